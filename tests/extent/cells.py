"""What tests ask of methods: a cell as it is simulated, and which of its ranks are equal."""

from dataclasses import fields, replace
from typing import Any

from netsim.collectives.representatives import RepresentativeWriter
from netsim.extent.budget import USUAL_BUDGET, Budget, Thresholds
from netsim.extent.engine_runs import Bench
from netsim.extent.forms import Form, LoopSchedule, form_of
from netsim.extent.result import MethodInput, Result
from netsim.extent.shown import written_schedule
from netsim.extent.sketches import AlgorithmSketch, sketched
from netsim.extent.solve import solve_form
from netsim.results.row import Row
from netsim.tasks import outcome
from netsim.tasks.resolve import ResolvedCell
from netsim.tasks.row import row_of_outcome

NAMES_OF_THRESHOLDS = {field.name for field in fields(Thresholds)}


def budget_with(budget: Budget = USUAL_BUDGET, **changes: Any) -> Budget:
    """A budget with some of its fields or thresholds replaced, to force a method."""
    thresholds = {name: changes.pop(name) for name in NAMES_OF_THRESHOLDS & changes.keys()}
    return replace(budget.with_thresholds(**thresholds), **changes)


IN_FULL = budget_with(USUAL_BUDGET.in_full, max_shown_rows=1 << 60)


def within(one: ResolvedCell, budget: Budget) -> ResolvedCell:
    """A cell within another budget, folded or not as before."""
    return replace(one, budget=replace(budget, may_fold=one.budget.may_fold))


def form_at(one: ResolvedCell, size: int, *, in_place: bool = False) -> Form:
    """The task of a cell at a size, in the form in which it is simulated."""
    return form_of(one.task(size, in_place=in_place), one.budget)


def input_at(one: ResolvedCell, size: int, budget: Budget = USUAL_BUDGET) -> MethodInput:
    """What methods are given for a cell at a size."""
    return MethodInput(form_at(one, size), budget)


def bench_of(one: ResolvedCell, size: int, engine: str = "auto") -> Bench:
    """Where operations of a cell are simulated."""
    return Bench(one.topology, one.gpus, one.launch(size), engine)


def folded(one: ResolvedCell, size: int) -> LoopSchedule:
    """A cell as it is simulated, with one representative for each class of equal rows."""
    return written_schedule(form_at(one, size), one.budget)


def timed(
    one: ResolvedCell, size: int, budget: Budget = USUAL_BUDGET, engine: str = "compiled"
) -> Result:
    """A cell within some budget."""
    return solve_form(form_at(one, size), budget, engine)


def sketch_of(one: ResolvedCell, size: int) -> AlgorithmSketch | None:
    """A textbook algorithm as it is sketched."""
    return sketched(form_at(one, size))


def representatives_of(one: ResolvedCell, size: int) -> RepresentativeWriter | None:
    """Which lanes of a textbook algorithm represent which."""
    sketch = sketch_of(one, size)
    return None if sketch is None else sketch.representatives()


def simulate_size(one: ResolvedCell, size: int, *, engine: str = "auto") -> tuple[Row, Result]:
    """The row of one cell at one size, and the result behind it (out of place)."""
    timing, inplace = outcome._timings(one, size, engine, None)
    return row_of_outcome(one, size, outcome._outcome(one, timing, inplace)), timing
