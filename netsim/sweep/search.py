"""Search a sweep for its best choice, under constraints on figures and choices."""

from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import closing
from functools import cached_property
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
    """Conditions that a choice must meet, such as `memory_GB < 80`.

    A condition may name an axis by the last part of its key.
    """

    conditions: tuple[Condition, ...] = ()

    @property
    def names(self) -> set[str]:
        """The names of figures and axes that occur in the conditions."""
        return {name for condition in self.conditions for name in condition.names}

    def hold(self, axes: Mapping[str, Any], figures: Mapping[str, Any]) -> bool:
        """Whether all conditions hold for a choice with these values on axes and these figures. A
        condition about a figure that the choice lacks does not hold.
        """
        return all(holds(condition, axes, figures) for condition in self.conditions)


def constraints_of(texts: Sequence[str], cells: Sequence[Cell]) -> Constraints:
    """Parse the constraints, such as `memory_GB < 80`.

    Raises:
        InputError: a text is not a condition, or a name in it is no figure and no axis.
    """
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
    """The error for a name in a constraint that is no figure and no axis."""
    if name in PRICED:
        return InputError(f"--subject-to: {name} needs prices", hint="add prices: default")
    return InputError(
        f"--subject-to: unknown figure '{name}'{suggest(name, names)}; known: {', '.join(names)}"
    )


def _axis(name: str, axes: Iterable[str]) -> str | None:
    """The axis whose key is `name`, or the only axis whose key ends with `name`; else None."""
    if name in axes:
        return name
    short = [axis for axis in axes if last_part(axis) == name]
    return short[0] if len(short) == 1 else None


def holds(condition: Condition, axes: Mapping[str, Any], figures: Mapping[str, Any]) -> bool:
    """Whether a condition holds for the axes and figures of a choice; False if it lacks one of
    them.
    """
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
    """The reason why no choice meets all constraints, as text.

    It names the constraints that no choice meets, with the values of their figures. If each
    constraint is met by some choice, only their combination excludes all. `trials` are the axes and
    figures of the choices that were simulated.
    """
    never = [
        condition
        for condition in constraints.conditions
        if not any(holds(condition, axes, figures) for axes, figures in trials)
    ]
    if not never:
        return "each constraint is met by some cell, but no cell meets all of them"
    parts = []
    for condition in never:
        ranges = [text for name in condition.names if (text := _range(name, trials))]
        parts.append(f"none has {condition.text.strip()} ({', '.join(ranges) or 'no figures'})")
    return "; ".join(parts)


def _range(name: str, trials: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]) -> str:
    """A clause about the values that a figure or an axis has in `trials`, (axes, figures) of
    choices: "mfu is 0.3 to 0.4", "tp is one of 1, 2". Empty if none has a value.
    """
    values = [figures[name] for _, figures in trials if figures.get(name) is not None]
    if values:
        return f"{name} is {min(values):.6g} to {max(values):.6g}"
    axis = _axis(name, trials[0][0]) if trials else None
    if axis is None:
        return ""
    choices = list(dict.fromkeys(shown(axes[axis]) for axes, _ in trials))
    return f"{name} is one of {', '.join(choices)}"


# The search for the best of the choices of a sweep. A choice is a group of cells that differ only
# in their seed; its figures are the medians over these cells. If there are few choices, all are
# simulated. Many layouts of a training step are first estimated by one rank of each stage, which
# takes about a second each, and the best of them are simulated. For other kinds of choices, if
# there are many, optuna (extra `optimize`) decides which to try next. It starts from a seed, so
# that a repeated search tries the same choices. Rows are recorded like those of any run.

EXHAUSTIVE = 400  # up to this many choices, all are simulated
LAYOUTS = 12  # from this many layouts of a training step on, all are estimated first
IN_FULL = 5  # the number of the best estimated layouts that are simulated
OBJECTIVES = ("time_us", "busbw_GBps", "step_time_us", "cost_usd", "power_w", "time_x_cost")
LARGER_IS_BETTER = ("busbw_GBps",)


@dataclass(frozen=True)
class LayoutChoice:
    """A choice of a search: cells that differ only in their seed.

    - `axes`: their values on the axes, without the seed.
    - `tasks`: each of the cells at its largest size.
    """

    axes: Mapping[str, Any]
    tasks: tuple[SizedCell, ...]

    @property
    def cell(self) -> Cell:
        """The first cell of the choice."""
        return self.tasks[0].cell


@dataclass(frozen=True)
class Trial:
    """A choice that was simulated.

    - `rows`: the row of each of its tasks.
    - `figures`: by name, the median over its seeds.
    - `allowed`: whether it meets the constraints.
    - `lost`: why its worker process died, or why it did not fit into memory; empty if neither.
    """

    choice: LayoutChoice
    rows: tuple[Row, ...]
    figures: Mapping[str, Any]
    allowed: bool
    lost: str = ""  # why its worker process died, or why it did not fit into the memory

    @property
    def failure(self) -> str:
        """The error of the first row that failed; "" if none failed."""
        return next((row.error for row in self.rows if row.status != "ok"), "")

    @property
    def doubtful(self) -> bool:
        """Whether the error bound of a row is too large to call this choice the best."""
        return any(row.doubtful for row in self.rows)

    def value(self, objective: str) -> float:
        """The value that the search minimizes; infinite if the choice failed or is not allowed."""
        value = self.figures.get(objective)
        if not self.allowed or self.failure or value is None:
            return inf
        return -float(value) if objective in LARGER_IS_BETTER else float(value)


@dataclass(frozen=True)
class LayoutEstimate:
    """The estimated seconds of a training step with a layout, or why the layout is refused.

    The estimate simulates one rank of each pipeline stage.
    """

    choice: LayoutChoice
    seconds: float = inf
    refused: str = ""


@dataclass(frozen=True)
class Search:
    """A search: the cells to choose from, the objective (a figure), and the constraints."""

    cells: Sequence[Cell]
    objective: str
    constraints: Constraints

    @cached_property
    def choices(self) -> list[LayoutChoice]:
        """All choices, in the order of their first cells."""
        groups = grouped(self.cells, lambda cell: place_of(without_seed(cell.axes)))
        choices = []
        for cells in groups.values():
            tasks = [SizedCell(cell, max(cell.scenario.workload.size_list())) for cell in cells]
            choices.append(LayoutChoice(without_seed(cells[0].axes), tuple(tasks)))
        return choices

    @cached_property
    def estimates(self) -> list[LayoutEstimate]:
        """The estimates of all layouts of a training step, the fastest first.

        Empty if there are few choices, several seeds, or another objective than the step time.
        """
        choices = self.choices
        layouts = len(choices) >= LAYOUTS and self.objective == "step_time_us"
        if not layouts or any(len(choice.tasks) > 1 or choice.tasks[0].size for choice in choices):
            return []
        estimates = []
        for number, choice in enumerate(choices):
            at("estimating layouts by one rank of each stage", number, len(choices))
            estimates.append(estimate_layout(choice))
        return sorted(estimates, key=lambda estimate: estimate.seconds)

    @cached_property
    def engine(self) -> str:
        """The engine for all rows of the search."""
        return engine_for([task for choice in self.choices for task in choice.tasks])

    def look(
        self, choices: Sequence[LayoutChoice], folder: Folder, workers: Workers | None
    ) -> Generator[Trial, None, None]:
        """Simulate choices and yield their trials.

        Rows that the folder already has are not computed again."""
        tasks = [task for choice in choices for task in choice.tasks]
        with closing(run_tasks(tasks, folder, engine=self.engine, workers=workers)) as results:
            for choice in choices:
                ended = [next(results) for _ in choice.tasks]
                lost = (
                    str(error)
                    for _, _, error in ended
                    if error and error.exit_code == LostError.exit_code
                )
                rows = tuple(row for _, row, _ in ended)
                yield self.trial(choice, rows, next(lost, ""))

    def trial(self, choice: LayoutChoice, rows: tuple[Row, ...], lost: str = "") -> Trial:
        """The trial of a choice from its rows. `lost` is that of `Trial`."""
        figures_of_rows = [
            {name: getattr(row, name) for name in FIGURES} | {**row.details}
            for row in rows
            if row.status == "ok"
        ]
        figures = {}
        if figures_of_rows:
            for name in figures_of_rows[0]:
                figures[name] = _middle([of_row.get(name) for of_row in figures_of_rows])
        priced = bill(choice.cell)
        if priced is not None:
            for name in COLUMNS:
                figures[name] = getattr(priced, name)
            if figures_of_rows:
                figures["time_x_cost"] = median(map(time_of, rows)) * priced.cost_usd
        return Trial(
            choice=choice,
            rows=rows,
            figures=figures,
            allowed=self.constraints.hold(choice.axes, figures),
            lost=lost,
        )


def estimate_layout(choice: LayoutChoice) -> LayoutEstimate:
    """The estimated step time of the layout of a choice, from a simulation of one rank of each
    pipeline stage.
    """
    try:
        return LayoutEstimate(choice, folded_step(resolve_step(choice.cell)).seconds)
    except InputError as error:
        return LayoutEstimate(choice, refused=error.message)


def _best_estimated(
    search: Search, folder: Folder, workers: Workers | None
) -> Generator[Trial, None, None]:
    """Simulate layouts in the order of their estimates and yield the trials, until IN_FULL of them
    are valid.
    """
    remaining = [estimate.choice for estimate in search.estimates if not estimate.refused]
    valid_count = 0
    while remaining and valid_count < IN_FULL:
        batch_size = IN_FULL - valid_count
        batch = remaining[:batch_size]
        remaining = remaining[batch_size:]
        for trial in search.look(batch, folder, workers):
            if trial.value(search.objective) < inf:
                valid_count += 1
            yield trial


def _middle(values: Sequence[Any]) -> Any:
    """The median of values if they are several numbers, else the first value."""
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
    """Simulate choices of a search and yield a trial for each.

    If `most` is None, layouts that have estimates are simulated in the order of their estimates
    (`_best_estimated`), and otherwise all choices are simulated if there are at most `EXHAUSTIVE`.
    In all other cases a sampler with this `seed` selects at most `most` choices (default:
    `EXHAUSTIVE`), `together` at a time.
    """
    if most is None and any(not estimate.refused for estimate in search.estimates):
        yield from _best_estimated(search, folder, workers)
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
    """Raise an InputError if `trials` needs a sampler for this search and its package is not
    installed.
    """
    has_estimates = any(not estimate.refused for estimate in search.estimates)
    if most is not None or (len(search.choices) > EXHAUSTIVE and not has_estimates):
        _optuna()


class _Sampler:
    """Decides which choices to simulate next, from the results of earlier ones (TPE of optuna)."""

    def __init__(self, search: Search, seed: int) -> None:
        self._optuna = _optuna()
        self._objective = search.objective
        self._optuna.logging.set_verbosity(self._optuna.logging.ERROR)
        sampler = self._optuna.samplers.TPESampler(seed=seed)
        self._study = self._optuna.create_study(sampler=sampler)
        self._choices = {place_of(choice.axes): choice for choice in search.choices}
        self._axes: dict[str, list[str]] = {}
        for axis in search.choices[0].axes:
            values = dict.fromkeys(str(choice.axes[axis]) for choice in search.choices)
            self._axes[axis] = list(values)
        self._suggestions: dict[Place, Any] = {}
        self.seen: dict[Place, Trial] = {}

    def ask(self, count: int) -> list[LayoutChoice]:
        """Up to `count` choices to simulate next; fewer if the sampler only repeats
        earlier ones.
        """
        batch: dict[Place, LayoutChoice] = {}
        for _ in range(20 * len(self._choices)):  # the sampler may suggest a choice repeatedly
            if len(batch) == count:
                break
            suggestion = self._study.ask()
            axes = {
                axis: suggestion.suggest_categorical(axis, values)
                for axis, values in self._axes.items()
            }
            key = place_of(axes)
            if key in self.seen:
                self._report(suggestion, self.seen[key])
            elif key in batch or key not in self._choices:  # the sweep excludes the choice
                self._study.tell(suggestion, state=self._optuna.trial.TrialState.FAIL)
            else:
                batch[key] = self._choices[key]
                self._suggestions[key] = suggestion
        return list(batch.values())

    def tell(self, trial: Trial) -> None:
        """Report a finished trial to the sampler."""
        key = place_of(trial.choice.axes)
        self.seen[key] = trial
        self._report(self._suggestions.pop(key), trial)

    def _report(self, suggestion: Any, trial: Trial) -> None:
        """Report the value of a trial, or that it failed, as the result of one of the sampler's
        suggestions.
        """
        value = trial.value(self._objective)
        if value < inf:
            self._study.tell(suggestion, value)
        else:
            self._study.tell(suggestion, state=self._optuna.trial.TrialState.FAIL)


def _optuna() -> Any:
    """Import optuna; an InputError says how to install it if it is missing."""
    try:
        import optuna
    except ImportError:
        reason = f"to try some of many choices (--trials, or more than {EXHAUSTIVE}) needs optuna"
        raise InputError(reason, hint="pip install 'netsim[optimize]'") from None
    return optuna


def best_of(trials: Sequence[Trial], objective: str) -> Trial | None:
    """The trial with the best value that meets all constraints, the first of equal ones; None if
    there is none.

    Trials with a large error bound are not considered.
    """
    good = [trial for trial in trials if trial.value(objective) < inf and not trial.doubtful]
    return min(good, key=lambda trial: trial.value(objective), default=None)
