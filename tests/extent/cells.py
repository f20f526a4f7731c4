"""What tests ask of the ladder: a cell as it is run, and what of it is alike."""

from dataclasses import replace

from netsim.collectives.reduced import Stands
from netsim.extent import ladder
from netsim.extent.bench import Bench
from netsim.extent.call import Call, Looped, call_of
from netsim.extent.ladder import Timing
from netsim.extent.memory import LIMITS, Limits
from netsim.extent.textbook import Sketched, sketched
from netsim.results.row import Row
from netsim.tasks import outcome
from netsim.tasks.resolve import ResolvedCell
from netsim.tasks.row import row_of_outcome

IN_FULL = replace(LIMITS.in_full, shown=1 << 60)


def within(one: ResolvedCell, limits: Limits) -> ResolvedCell:
    """A cell within other limits, folded or not as before."""
    return replace(one, limits=replace(limits, folds=one.limits.folds))


def call_at(one: ResolvedCell, size: int, *, in_place: bool = False) -> Call:
    """The task of a cell at a size, in the form in which it is simulated."""
    return call_of(one.task(size, in_place=in_place), one.limits)


def bench_of(one: ResolvedCell, size: int, engine: str = "auto") -> Bench:
    """Where operations of a cell are run."""
    return Bench(one.topology, one.gpus, one.launch(size), engine)


def folded(one: ResolvedCell, size: int) -> Looped:
    """A cell as it is run: what is alike written down once."""
    return ladder.written(call_at(one, size), one.limits)


def timed(
    one: ResolvedCell, size: int, limits: Limits = LIMITS, engine: str = "compiled"
) -> Timing:
    """A cell within some limits."""
    return ladder.timed(call_at(one, size), engine, limits=limits)


def sketch_of(one: ResolvedCell, size: int) -> Sketched | None:
    """A textbook algorithm as it is sketched."""
    return sketched(call_at(one, size))


def stands_of(one: ResolvedCell, size: int) -> Stands | None:
    """Which lanes of a textbook algorithm stand for which."""
    sketch = sketch_of(one, size)
    return None if sketch is None else sketch.stands()


def simulate_size(one: ResolvedCell, size: int, *, engine: str = "auto") -> tuple[Row, Timing]:
    """The row of one cell at one size, and the timing behind it (out of place)."""
    timing, inplace = outcome._timings(one, size, engine, None)
    return row_of_outcome(one, size, outcome._outcome(one, timing, inplace)), timing
