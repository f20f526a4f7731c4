"""Search: the best of the cells that a sweep declares, all of them or a promising part.

Few cells are all simulated. Of many, optuna (extra `optimize`) chooses which to try next, from a
seed: the same search tries the same cells. Rows are kept like those of any run.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from math import inf
from typing import Any

from netsim.answers import prepare_any
from netsim.errors import InputError, NetsimError
from netsim.results import Folder, Row
from netsim.scenario.cells import Cell
from netsim.sweep.bills import COLUMNS, bill
from netsim.sweep.constraints import FIGURES, Constraints
from netsim.sweep.orders import answers
from netsim.sweep.tables import time_of
from netsim.sweep.tasks import Task
from netsim.sweep.work import keep

EXHAUSTIVE = 400  # cells up to which all are simulated
OBJECTIVES = ("time_us", "busbw_GBps", "step_time_us", "cost_usd", "power_w", "time_x_cost")
LARGER_IS_BETTER = ("busbw_GBps",)


@dataclass(frozen=True)
class Trial:
    """One cell that was looked at: its row, its figures, and whether it meets the constraints."""

    cell: Cell
    row: Row
    figures: Mapping[str, Any]
    allowed: bool

    def value(self, objective: str) -> float:
        """What is to be as small as possible."""
        found = self.figures.get(objective)
        if not self.allowed or self.row.status != "ok" or found is None:
            return inf
        return -float(found) if objective in LARGER_IS_BETTER else float(found)


@dataclass(frozen=True)
class Search:
    """What is searched: cells at one size each, the objective, and what must hold."""

    cells: Sequence[Cell]
    objective: str
    constraints: Constraints
    engine: str

    def trial(self, cell: Cell, folder: Folder) -> Trial:
        """Look at one cell; what is known already is not simulated again."""
        task = Task(cell, max(cell.scenario.workload.size_list()))
        if task.key not in folder.finished:
            try:
                prepared = prepare_any(cell)
            except NetsimError as error:
                row = Row(cell=cell.id, status="invalid", error=str(error), axes=dict(cell.axes))
                return Trial(cell, row, {}, allowed=False)
            for answer in answers(prepared, [task.size], self.engine):
                keep(folder, task, answer, {})
        row = folder.finished[task.key]
        figures = _figures(cell, row)
        return Trial(cell, row, figures, self.constraints.hold(cell.axes, figures))


def _figures(cell: Cell, row: Row) -> dict[str, Any]:
    """What objectives and constraints can speak of."""
    figures: dict[str, Any] = {name: getattr(row, name) for name in FIGURES} | dict(row.details)
    priced = bill(cell)
    if priced is not None:
        for name in COLUMNS:
            figures[name] = getattr(priced, name)
        figures["time_x_cost"] = time_of(row) * priced.cost_usd
    return figures


def trials(
    search: Search, folder: Folder, *, most: int | None = None, seed: int = 1
) -> Iterator[Trial]:
    """All cells where they are few, else those that a sampler chooses, `most` of them."""
    if most is None and len(search.cells) <= EXHAUSTIVE:
        for cell in search.cells:
            yield search.trial(cell, folder)
        return
    yield from _sampled(search, folder, most or EXHAUSTIVE, seed)


def _sampled(search: Search, folder: Folder, most: int, seed: int) -> Iterator[Trial]:
    optuna = _optuna()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed))
    by_axes = {_key(cell.axes): cell for cell in search.cells}
    choices = {
        axis: list(dict.fromkeys(str(cell.axes[axis]) for cell in search.cells))
        for axis in search.cells[0].axes
    }
    seen: dict[str, Trial] = {}
    for _ in range(20 * most):  # the sampler may ask for one cell again and again
        if len(seen) >= min(most, len(by_axes)):
            return
        asked = study.ask()
        axes = {axis: asked.suggest_categorical(axis, values) for axis, values in choices.items()}
        cell = by_axes.get(_key(axes))
        if cell is None:  # left out by a condition
            study.tell(asked, state=optuna.trial.TrialState.FAIL)
            continue
        known = cell.id in seen
        trial = seen[cell.id] if known else search.trial(cell, folder)
        seen[cell.id] = trial
        value = trial.value(search.objective)
        if value < inf:
            study.tell(asked, value)
        else:
            study.tell(asked, state=optuna.trial.TrialState.FAIL)
        if not known:
            yield trial


def _key(axes: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((axis, str(value)) for axis, value in axes.items()))


def _optuna() -> Any:
    try:
        return import_module("optuna")
    except ImportError:
        raise InputError(
            f"to try some of many cells (--trials, or more than {EXHAUSTIVE}) needs optuna",
            hint="pip install 'netsim[optimize]'",
        ) from None


def best_of(found: Sequence[Trial], objective: str) -> Trial | None:
    """The best trial that meets all constraints, the first of equal ones."""
    good = [trial for trial in found if trial.value(objective) < inf]
    return min(good, key=lambda trial: trial.value(objective), default=None)
