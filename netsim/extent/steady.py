"""Steady states: what goes on as it did, loop after loop, hop after hop, operation after operation.

What further ones add is found by running a few in full: no closed form is assumed, and how far the
answer can be off is part of it. Between runs increments are compared (`extend`); within one, all
that is going on with what was going on loops before (`recurrence`)."""

from collections.abc import Callable, Sequence
from itertools import chain, pairwise
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from netsim.base.values import dataclass
from netsim.program.program import Program, Timeline
from netsim.schedule.schedule import MARK, Schedule

AGREE = 1e-6  # increments that differ by less, relatively, are those of the steady state
LONGEST_PERIOD = 4  # loops after which the pattern may repeat
AT_LAST_RATE = "the rest at the rate of the last"

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Extended:
    """When ranks or channels end; `off` is by which part of the last end that may be wrong, `how`
    it was found where loops do not recur."""

    ends: Floats
    off: float
    how: str = ""

    @property
    def seconds(self) -> float:
        """The end of the last part."""
        return float(self.ends.max())


def extend(
    ends_of: Callable[[int], ArrayLike],
    n: int,
    pairs: Sequence[tuple[int, int]],
    tolerated: float = AGREE,
) -> Extended | None:
    """The ends of `n` of anything, if what one more adds is the same in all `pairs` of runs, of
    which the first ends with the longest. Each pair is a verdict on the others at another phase."""
    ends = {k: np.atleast_1d(np.asarray(ends_of(k), np.float64)) for k in set(chain(*pairs))}
    length = np.array([b - a for a, b in pairs])
    added = np.stack([(ends[b] - ends[a]) / (b - a) for a, b in pairs])
    most, last = float(added.max()), pairs[0][1]
    if added.min() < 0 or most <= 0:
        return None
    spread = float(np.ptp(added, axis=0).max()) / most
    if spread > tolerated:
        return None
    return onward(ends[last], (n - last) * np.average(added, axis=0, weights=length), spread)


def paced(
    ends_of: Callable[[int], Floats], n: int, last: int, tolerated: float, need: float = 0.0
) -> Extended | None:
    """The same by the part that ends last, if each one from half of `last` on adds what the busiest
    link has to do for it (`need`), else as much as those before did, and to no part more."""
    ends, half = ends_of(last), ends_of(last // 2)
    each = float(ends.max() - half.max())
    usual = need * (last - last // 2) or 2 * float(half.max() - ends_of(last // 4).max())
    spread = max(abs(each - usual), float((ends - half).max()) - each)
    if spread > tolerated * each:
        return None
    more = (n - last) / (last - last // 2)
    later = ends + more * np.minimum(ends - half, each)
    return Extended(later, LATE + spread * more / float(later.max()), AT_LAST_RATE)


def onward(ends: Floats, added: Floats, spread: float) -> Extended | None:
    """Ends that are so much later, of which `spread` is not sure; None if a part overtakes another
    that was the last: what parts then do to one another has not been seen."""
    later = ends + added
    latest = float(later[ends.argmax()])
    if later.max() > latest * (1 + AGREE):
        return None
    return Extended(later, spread * float(added.max()) / latest)


# **** Recurring ****
# Steady states seen within one run: when all that is going on goes on as it did loops before.
# Calls that differ by whole loops run alike until the first row of a last loop starts. If by then
# the same rows are in flight as some loops before, as far on and with the same ones over, the same
# follows again for as long as loops follow, and the end of the run is the same, only later.

FEWEST_PERIODS = 2  # that are held against those before them

Number = TypeVar("Number", bound=np.generic)


@dataclass(frozen=True, slots=True)
class Lane:
    """Rows that a channel repeats loop after loop: the last is just before `end`, a loop has
    `size`, and there are `loops`. `begin` is the first row before them all."""

    begin: int
    end: int
    size: int

    @property
    def loops(self) -> int:
        """Whole loops, counted from the last one."""
        return (self.end - self.begin) // self.size

    def by_loop(self, column: NDArray[Number]) -> NDArray[Number]:
        """What a column has for the rows of all loops: by loop, then by row."""
        return column[self.end - self.loops * self.size : self.end].reshape(-1, self.size)

    def ahead(self, column: NDArray[Number]) -> NDArray[Number]:
        """What it has for rows before the first whole loop."""
        return column[self.begin : self.end - self.loops * self.size]


@dataclass(frozen=True, slots=True)
class Recurrence:
    """Every `loops` loops the same goes on again, `seconds` later; what was seen differs by
    `spread` from this, relatively. The last loops begin at `until`."""

    loops: int
    seconds: float
    spread: float
    until: float


def lanes_of(schedule: Schedule, short: Schedule, loops: int) -> list[Lane] | None:
    """Where the loops lie, from a schedule with `loops` fewer of them; None if unclear."""
    edges, fewer = _edges(schedule), _edges(short)
    if len(edges) != len(fewer) or loops <= 0:
        return None
    more = np.diff(edges) - np.diff(fewer)
    if (more % loops).any() or not more.any():
        return None
    lanes = [
        Lane(begin, end, size)
        for begin, end, size in zip(edges, edges[1:], (more // loops).tolist(), strict=False)
        if size
    ]
    return lanes if all(_repeats(schedule, lane) for lane in lanes) else None


def _edges(schedule: Schedule) -> list[int]:
    """Where rows of another channel begin, or marks."""
    key = schedule.style_column("channel").astype(np.int64) * 2 + (schedule.kind == MARK)
    return [0, *(np.flatnonzero(np.diff(key)) + 1).tolist(), len(schedule)]


def _repeats(schedule: Schedule, lane: Lane) -> bool:
    """Whether the last loops are the same rows that wait for as many others."""
    waits = np.diff(schedule.dep_ptr)
    return all(
        len(table) > 1 and bool((table[-2:] == table[-2]).all())
        for table in (lane.by_loop(x) for x in (schedule.src, schedule.dst, waits.astype(np.int32)))
    )


def recurrence(program: Program, timeline: Timeline, lanes: Sequence[Lane]) -> Recurrence | None:
    """The steady state that a run has reached before its last loops begin; None if it has none."""
    run = _Run(program, timeline, lanes)
    most = min((min(lane.loops for lane in lanes) - 2) // 2, LONGEST_PERIOD)
    found = (run.recurs(period) for period in range(1, most + 1))
    return next((one for one in found if one is not None), None)


class _Run:
    """A run whose rows are held against those of other loops."""

    def __init__(self, program: Program, timeline: Timeline, lanes: Sequence[Lane]) -> None:
        self.lanes = lanes
        self.start, self.end = timeline.start, timeline.end
        self.until = min(float(lane.by_loop(self.start)[-1].min()) for lane in lanes)
        # What is over for so long is in nobody's way any more, and what is not has begun since.
        longest = max(float((self.end - self.start)[lane.begin : lane.end].max()) for lane in lanes)
        lags = float(program.lag_seconds.max(initial=0.0))
        self.memory = longest + lags + float(program.path_latency.max(initial=0.0))

    def recurs(self, period: int) -> Recurrence | None:
        """Whether all that ended of late ended so many loops before as well, as much earlier."""
        seconds = self._later(period)
        since = self.until - max(self.memory, FEWEST_PERIODS * seconds)
        if not 0 < seconds < since:
            return None
        off = AGREE * seconds
        low, high = seconds, seconds
        for lane in self.lanes:
            ends = lane.by_loop(self.end)
            now, before = ends[period:-1], ends[: -1 - period]
            seen = (now > since) & (now <= self.until)
            for times in (ends, lane.by_loop(self.start)):
                later = times[period:-1][seen] - times[: -1 - period][seen]
                low = min(low, float(later.min(initial=low)))
                high = max(high, float(later.max(initial=high)))
            old, new = now <= since, now > self.until
            begun = [lane.ahead(self.end), ends[:period].ravel()]
            next_ones = lane.by_loop(self.start)[-1 - period]
            if high - low > off or not (
                (before[old] <= since - seconds + off).all()
                and (before[new] > self.until - seconds - off).all()
                and (np.concatenate(begun) <= since).all()
                and (next_ones >= self.until - seconds - off).all()
            ):
                return None
        return Recurrence(period, seconds, (high - low) / seconds, self.until)

    def _later(self, period: int) -> float:
        """How much later a row ended than so many loops before: the last one that tells."""
        ends = self.lanes[0].by_loop(self.end)
        now = np.where(ends[period:-1] <= self.until, ends[period:-1], -np.inf)
        place = np.unravel_index(np.argmax(now), now.shape)
        return float(now[place] - ends[: -1 - period][place])


# **** Overlap ****
# By how much operations back to back overlap, from runs with fewer loops.

LATE = 1e-3  # by which part a little may change what operations in a row take


def more_gained(gains: dict[int, float], loops: int) -> tuple[float, float]:
    """How much more operations overlap with all loops, as between the last runs; and by how much
    that may be off, as between the last three."""
    known = sorted(gains)
    slopes = [(gains[b] - gains[a]) / (b - a) for a, b in pairwise(known)]
    left = loops - known[-1]
    return left * slopes[-1], left * max(abs(slope) for slope in slopes[-2:])
