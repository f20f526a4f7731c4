"""What tests ask of the ladder: a cell as it is run, and what of it is alike."""

from dataclasses import replace

from netsim.cell import simulate
from netsim.cell.prepare import Prepared
from netsim.collectives.reduced import Stands
from netsim.results.row import Row
from netsim.timing import ladder
from netsim.timing.bench import Bench
from netsim.timing.call import Looped
from netsim.timing.fits import LIMITS, Limits
from netsim.timing.ladder import Timing
from netsim.timing.textbook import Sketched, sketched

IN_FULL = replace(LIMITS.in_full, shown=1 << 60)


def bench_of(one: Prepared, size: int, engine: str = "auto") -> Bench:
    """Where operations of a cell are run."""
    return Bench(one.topology, one.gpus, one.launch(size), engine)


def folded(one: Prepared, size: int) -> Looped:
    """A cell as it is run: what is alike written down once."""
    return ladder.written(one.call(size), one.limits)


def timed(one: Prepared, size: int, limits: Limits = LIMITS, engine: str = "compiled") -> Timing:
    """A cell within some limits."""
    return ladder.timed(one.call(size), engine, limits=limits)


def sketch_of(one: Prepared, size: int) -> Sketched | None:
    """A textbook algorithm as it is sketched."""
    return sketched(one.call(size))


def stands_of(one: Prepared, size: int) -> Stands | None:
    """Which lanes of a textbook algorithm stand for which."""
    sketch = sketch_of(one, size)
    return None if sketch is None else sketch.stands()


def simulate_size(one: Prepared, size: int, *, engine: str = "auto") -> tuple[Row, Timing]:
    """The row of one cell at one size, and the timing behind it (out of place)."""
    timing, inplace = simulate._timings(one, size, engine, None)
    return simulate._row(one, size, simulate._outcome(one, timing, inplace)), timing
