"""The search for the best choice of a sweep, under constraints on figures and choices."""

from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import closing
from functools import cached_property
from importlib import import_module
from math import inf
from statistics import median
from typing import Any

from netsim.base.errors import InputError, LostError, shown, suggest
from netsim.base.startup import at
from netsim.base.values import dataclass, grouped
from netsim.results.folder import Folder
from netsim.results.row import Row
from netsim.scenario.cells import Cell, last_part
from netsim.scenario.models import Workload
from netsim.scenario.sweep import Condition, parse_condition
from netsim.sweep.run import SizedCell, Workers, engine_for, run_tasks
from netsim.sweep.summary import COLUMNS, Place, bill, place_of, time_of, without_seed
from netsim.training.resolve import resolve_step
from netsim.training.run import NAMES, folded_step

FIGURES = ("time_us", "busbw_GBps", "algbw_GBps", "step_time_us", "ranks", "nodes")
PRICED = (*COLUMNS, "time_x_cost")


@dataclass(frozen=True)
class Constraints:
    """What must hold of a cell; axes may be named by the last part of their key."""

    conditions: tuple[Condition, ...] = ()

    @property
    def names(self) -> set[str]:
        """The figures and axes that they speak of."""
        return {name for condition in self.conditions for name in condition.names}

    def hold(self, axes: Mapping[str, Any], figures: Mapping[str, Any]) -> bool:
        """Whether all of them hold; what a cell has no figure for does not."""
        return all(holds(condition, axes, figures) for condition in self.conditions)


def constraints_of(texts: Sequence[str], cells: Sequence[Cell]) -> Constraints:
    """Constraints as they were written; names that no cell has are refused."""
    constraints = []
    for text in texts:
        try:
            constraints.append(parse_condition(text, ()))
        except ValueError as error:
            raise InputError(f"--subject-to: {error}") from None
    priced = any(cell.scenario.prices is not None for cell in cells)
    steps = any(not isinstance(cell.scenario.workload, Workload) for cell in cells)
    names = (*FIGURES, *(PRICED if priced else ()), *(NAMES if steps else ()))
    distinct_names = tuple(dict.fromkeys(names))
    for condition in constraints:
        for name in condition.names:
            if name not in distinct_names and _axis(name, cells[0].axes) is None:
                raise _unknown(name, [*distinct_names, *cells[0].axes])
    return Constraints(tuple(constraints))


def _unknown(name: str, names: Sequence[str]) -> InputError:
    if name in PRICED:
        return InputError(f"--subject-to: {name} needs prices", hint="add prices: default")
    return InputError(
        f"--subject-to: unknown figure '{name}'{suggest(name, names)}; known: {', '.join(names)}"
    )


def _axis(name: str, axes: Iterable[str]) -> str | None:
    """The axis that a name means: its whole key, or the last part of only one."""
    if name in axes:
        return name
    short = [axis for axis in axes if last_part(axis) == name]
    return short[0] if len(short) == 1 else None


def holds(condition: Condition, axes: Mapping[str, Any], figures: Mapping[str, Any]) -> bool:
    """Whether one condition holds of a cell."""
    absent: list[str] = []

    def lookup(key: str) -> Any:
        if key in figures:
            value = figures[key]
        else:
            axis = _axis(key, axes)
            value = None if axis is None else axes[axis]
        if value is None:
            absent.append(key)
        return value

    try:
        return condition.holds(lookup)
    except ValueError as error:
        if absent:
            return False
        plain = [name for name in condition.names if name in figures][:1]
        hint = (f"; {name} is a plain number, such as {figures[name]:.4g}" for name in plain)
        raise InputError(f"--subject-to: {error}{''.join(hint)}") from None


def nearest_misses(
    constraints: Constraints, trials: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]
) -> str:
    """Why no cell will do: constraints that none meets, with what there is of each figure; if each
    is met by some, only together they rule out all. `found`: (axes, figures) of cells that ran."""
    never = [c for c in constraints.conditions if not any(holds(c, *one) for one in trials)]
    if not never:
        return "each constraint is met by some cell, but no cell meets all of them"
    parts = []
    for condition in never:
        ranges = [text for name in condition.names if (text := _range(name, trials))]
        parts.append(f"none has {condition.text.strip()} ({', '.join(ranges) or 'no figures'})")
    return "; ".join(parts)


def _range(name: str, trials: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]) -> str:
    values = [figures[name] for _, figures in trials if figures.get(name) is not None]
    if values:
        return f"{name} is {min(values):.6g} to {max(values):.6g}"
    axis = _axis(name, trials[0][0]) if trials else None
    if axis is None:
        return ""
    choices = list(dict.fromkeys(shown(axes[axis]) for axes, _ in trials))
    return f"{name} is one of {', '.join(choices)}"


# Search: the best of the choices that a sweep declares, all of them or a promising part.
# A choice is what cells that differ in nothing but their seed have in common; its figures are
# medians over them. Few choices are all simulated. Of many layouts of a training step, each is told
# by one rank of each stage first, which takes a second, and the best are simulated. Of many others,
# optuna (extra `optimize`) decides which to try next, from a seed: the same search tries the same
# ones. Rows are kept like those of any run.

EXHAUSTIVE = 400  # choices up to which all are simulated
LAYOUTS = 12  # training steps from which all are estimated first
IN_FULL = 5  # of those, what is simulated
OBJECTIVES = ("time_us", "busbw_GBps", "step_time_us", "cost_usd", "power_w", "time_x_cost")
LARGER_IS_BETTER = ("busbw_GBps",)


@dataclass(frozen=True)
class Choice:
    """What can be chosen: cells that differ in their seed only, each at its largest size."""

    axes: Mapping[str, Any]
    tasks: tuple[SizedCell, ...]

    @property
    def cell(self) -> Cell:
        """The first of its cells."""
        return self.tasks[0].cell


@dataclass(frozen=True)
class Trial:
    """A choice that was looked at: its rows, its figures, and whether it meets the constraints."""

    choice: Choice
    rows: tuple[Row, ...]
    figures: Mapping[str, Any]
    allowed: bool
    lost: str = ""  # how a worker was lost with it, or why there was no memory for it

    @property
    def failure(self) -> str:
        """What the first of its rows that failed says."""
        return next((row.error for row in self.rows if row.status != "ok"), "")

    @property
    def doubtful(self) -> bool:
        """Whether its error bound is too large to call it the best."""
        return any(row.doubtful for row in self.rows)

    def value(self, objective: str) -> float:
        """What is to be as small as possible."""
        value = self.figures.get(objective)
        if not self.allowed or self.failure or value is None:
            return inf
        return -float(value) if objective in LARGER_IS_BETTER else float(value)


@dataclass(frozen=True)
class Told:
    """The estimate of a training step by one rank of each stage; or why it is refused."""

    choice: Choice
    seconds: float = inf
    refused: str = ""


@dataclass(frozen=True)
class Search:
    """What is searched: cells at one size each, the objective, and what must hold."""

    cells: Sequence[Cell]
    objective: str
    constraints: Constraints

    @cached_property
    def choices(self) -> list[Choice]:
        """What can be chosen, in the order of the cells."""
        groups = grouped(self.cells, lambda cell: place_of(without_seed(cell.axes)))
        return [
            Choice(
                without_seed(some[0].axes),
                tuple(SizedCell(one, max(one.scenario.workload.size_list())) for one in some),
            )
            for some in groups.values()
        ]

    @cached_property
    def told(self) -> list[Told]:
        """Many layouts of a training step, the fastest first; of anything else, nothing."""
        choices = self.choices
        layouts = len(choices) >= LAYOUTS and self.objective == "step_time_us"
        if not layouts or any(
            len(estimate.tasks) > 1 or estimate.tasks[0].size for estimate in choices
        ):
            return []
        estimates = []
        for number, choice in enumerate(choices):
            at("estimating layouts by one rank of each stage", number, len(choices))
            estimates.append(told(choice))
        return sorted(estimates, key=lambda estimate: estimate.seconds)

    @cached_property
    def engine(self) -> str:
        """The engine of all rows."""
        return engine_for([task for choice in self.choices for task in choice.tasks])

    def look(
        self, choices: Sequence[Choice], folder: Folder, workers: Workers | None
    ) -> Generator[Trial, None, None]:
        """Look at some choices; what is known already is not simulated again."""
        tasks = [task for choice in choices for task in choice.tasks]
        with closing(run_tasks(tasks, folder, engine=self.engine, workers=workers)) as results:
            for choice in choices:
                ended = [next(results) for _ in choice.tasks]
                lost = (
                    str(one) for *_, one in ended if one and one.exit_code == LostError.exit_code
                )
                yield self.trial(choice, tuple(row for _, row, _ in ended), next(lost, ""))

    def trial(self, choice: Choice, rows: tuple[Row, ...], lost: str = "") -> Trial:
        """What rows make of a choice."""
        # What objectives and constraints can speak of; over several seeds, medians.
        good = [row for row in rows if row.status == "ok"]
        figures_of_rows = [
            {name: getattr(row, name) for name in FIGURES} | {**row.details} for row in good
        ]
        figures = {
            name: _middle([one.get(name) for one in figures_of_rows])
            for one in figures_of_rows[:1]
            for name in one
        }
        priced = bill(choice.cell)
        if priced is not None:
            for name in COLUMNS:
                figures[name] = getattr(priced, name)
            if figures_of_rows:
                figures["time_x_cost"] = median(map(time_of, rows)) * priced.cost_usd
        return Trial(choice, rows, figures, self.constraints.hold(choice.axes, figures), lost)


def told(choice: Choice) -> Told:
    """The estimate of a layout by one rank of each stage."""
    try:
        return Told(choice, folded_step(resolve_step(choice.cell)).seconds)
    except InputError as error:
        return Told(choice, refused=error.message)


def _best_told(
    search: Search, folder: Folder, workers: Workers | None
) -> Generator[Trial, None, None]:
    """Simulate layouts, those with the shortest estimate first, until enough are valid."""
    able = [one.choice for one in search.told if not one.refused]
    best = 0
    while able and best < IN_FULL:
        batch, able = able[: IN_FULL - best], able[IN_FULL - best :]
        for trial in search.look(batch, folder, workers):
            best += trial.value(search.objective) < inf
            yield trial


def _middle(values: Sequence[Any]) -> Any:
    numbers = len(values) > 1 and all(isinstance(v, int | float) for v in values)
    return median(values) if numbers else values[0]


def trials(
    search: Search,
    folder: Folder,
    *,
    most: int | None = None,
    seed: int = 1,
    workers: Workers | None = None,
    together: int = 1,
) -> Generator[Trial, None, None]:
    """All choices if they are few, the best of many layouts, else those that a sampler selects.

    The sampler selects at most `most` choices, `together` at once."""
    if most is None and any(not one.refused for one in search.told):
        yield from _best_told(search, folder, workers)
        return
    if most is None and len(search.choices) <= EXHAUSTIVE:
        yield from search.look(search.choices, folder, workers)
        return
    sampler = _Sampler(search, seed)
    most = min(most or EXHAUSTIVE, len(search.choices))
    while len(sampler.seen) < most:
        batch = sampler.ask(min(together, most - len(sampler.seen)))
        if not batch:
            return
        for trial in search.look(batch, folder, workers):
            sampler.tell(trial)
            yield trial


def check_sampler(search: Search, most: int | None) -> None:
    """Raise an InputError if `trials` would need a sampler, and its package is not installed."""
    many = len(search.choices) > EXHAUSTIVE and all(one.refused for one in search.told)
    if most is not None or many:
        _optuna()


class _Sampler:
    """Decides which choices to try next, from what came of those before."""

    def __init__(self, search: Search, seed: int) -> None:
        self._optuna, self._objective = _optuna(), search.objective
        self._optuna.logging.set_verbosity(self._optuna.logging.ERROR)
        sampler = self._optuna.samplers.TPESampler(seed=seed)
        self._study = self._optuna.create_study(sampler=sampler)
        self._choices = {place_of(choice.axes): choice for choice in search.choices}
        every = [choice.axes for choice in search.choices]
        self._axes = {a: list(dict.fromkeys(str(one[a]) for one in every)) for a in every[0]}
        self._asked: dict[Place, Any] = {}
        self.seen: dict[Place, Trial] = {}

    def ask(self, count: int) -> list[Choice]:
        """Choices that were not tried yet; fewer than asked for if the sampler repeats itself."""
        batch: dict[Place, Choice] = {}
        for _ in range(20 * len(self._choices)):  # it may ask for one again and again
            if len(batch) == count:
                break
            suggestion = self._study.ask()
            axes = {
                a: suggestion.suggest_categorical(a, values) for a, values in self._axes.items()
            }
            key = place_of(axes)
            if key in self.seen:
                self._report(suggestion, self.seen[key])
            elif key in batch or key not in self._choices:  # left out by a condition
                self._study.tell(suggestion, state=self._optuna.trial.TrialState.FAIL)
            else:
                batch[key], self._asked[key] = self._choices[key], suggestion
        return list(batch.values())

    def tell(self, trial: Trial) -> None:
        """What came of a choice."""
        key = place_of(trial.choice.axes)
        self.seen[key] = trial
        self._report(self._asked.pop(key), trial)

    def _report(self, suggestion: Any, trial: Trial) -> None:
        value = trial.value(self._objective)
        if value < inf:
            self._study.tell(suggestion, value)
        else:
            self._study.tell(suggestion, state=self._optuna.trial.TrialState.FAIL)


def _optuna() -> Any:
    try:
        return import_module("optuna")
    except ImportError:
        reason = f"to try some of many choices (--trials, or more than {EXHAUSTIVE}) needs optuna"
        raise InputError(reason, hint="pip install 'netsim[optimize]'") from None


def best_of(trials: Sequence[Trial], objective: str) -> Trial | None:
    """The best trial that meets all constraints, the first of equal ones.

    Trials with a large error bound are not considered."""
    good = [one for one in trials if one.value(objective) < inf and not one.doubtful]
    return min(good, key=lambda trial: trial.value(objective), default=None)
