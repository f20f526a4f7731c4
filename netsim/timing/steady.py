"""The time of a very long run, from shorter ones of the same period.

A huge message goes through its buffers loop after loop, and operations follow each other back to
back; after some of them every further one adds the same time. What that time is, is found by
running a few in full: no closed form is assumed, and how far the answer can be off is part of it.
This module knows neither schedules nor engines; it is given functions of the number of loops.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from netsim.base.errors import InputError
from netsim.base.values import dataclass
from netsim.program.program import Program, Timeline
from netsim.schedule.schedule import MARK, Schedule

AGREE = 1e-6  # increments that differ by less, relatively, are those of the steady state
TOLERATED = 2e-3  # by which the time may be off if loops take what the busiest link needs
MARGIN = 1e-4  # of the time: the end of a run depends a little on where in a loop it comes
LONGEST_PERIOD = 4  # loops after which the pattern may repeat
_FIRST = 8  # loops that the first attempt runs
_IN_VAIN = 4  # part of the loops that an attempt may run, where a run in full is possible
_COARSEST = 1 << 20

Floats = NDArray[np.float64]
Totals = Callable[[int], Floats]


class BudgetError(InputError):
    """A run that does not fit into the budget of rows in any way."""


@dataclass(frozen=True, slots=True)
class Steady:
    """What a period of loops adds to every part, and how much, relatively, what was seen of it
    differs.
    """

    added: Floats
    spread: float
    period: int = 1


@dataclass(frozen=True, slots=True)
class Plan:
    """A long run: `rows(loops, grain)` and `seconds(loops, grain)` of it with that many loops and
    with chunks `grain` times as large as they are. `grains`: whether chunks can be larger at all.

    `seconds` may be several times, of parts that end on their own (ranks, channels): the run ends
    with the last of them. No run has fewer loops than `least`. `within(loops)`, if there is one,
    tells what further loops add from within a run with that many (None: it is not steady), and
    `pace()` how long the busiest link is busy with a loop, which is what it takes at least (0: not
    known).
    """

    loops: int
    rows: Callable[[int, int], int]
    seconds: Callable[[int, int], ArrayLike]
    grains: bool = False
    least: int = 1
    memory: int = 0
    within: Callable[[int], Steady | None] | None = None
    pace: Callable[[], float] = float

    @property
    def first(self) -> int:
        """Loops of the first attempt: what it compares has gone once through all memory."""
        return self.least - 1 + max(_FIRST, self.memory + 1 + LONGEST_PERIOD)

    @property
    def shortest(self) -> int:
        """Loops of the shortest run looked into: 2, 4, 8, …, for shorter calls have as many."""
        return 1 << (self.first - 1).bit_length()


@dataclass(frozen=True, slots=True)
class Estimate:
    """The time of a long run, and the times of all its parts.

    `approximation` says in words what was done instead of running it all ("" if nothing was), and
    `uncertainty` by how much, relatively, `seconds` may be off for that. `loops` and `grain` are
    those of the largest run.
    """

    parts: Floats
    loops: int
    grain: int = 1
    uncertainty: float = 0.0
    approximation: str = ""

    @property
    def seconds(self) -> float:
        """The time of the run: of its last part."""
        return float(self.parts.max())


def steady(totals: Totals, last: int, period: int, times: int) -> Steady | None:
    """What `period` loops add to runs of up to `last` loops, if they do so `times` times alike."""
    low = high = first = totals(last) - totals(last - period)
    for end in range(last - 1, last - times, -1):
        added = totals(end) - totals(end - period)
        low, high = np.minimum(low, added), np.maximum(high, added)
        if not (high - low).max() <= AGREE * first.max():
            return None
    if first.max() <= 0 or first.min() < 0:
        return None
    return Steady(first, float((high - low).max() / first.max()), period)


def estimate(plan: Plan, budget: int, most: int | None = None) -> Estimate:
    """The time of a plan: in full with at most `budget` rows, else extrapolated from its steady
    state. Without one it may still take `most` rows (default: the budget), else larger chunks.
    """
    most = budget if most is None else most
    if plan.rows(plan.loops, 1) <= budget:
        return _in_full(plan)
    fits = plan.rows(plan.loops, 1) <= most
    found = _from_within(plan, most) if plan.within else None
    if found is None and not (fits and plan.within):
        found = _from_several(plan, most, fits=fits)
    if found is not None:
        return found
    return _in_full(plan) if fits else _coarser(plan, most)


def _from_within(plan: Plan, most: int) -> Estimate | None:
    """The time of a plan from one run that has become steady."""
    size = plan.shortest
    while size < plan.loops and plan.rows(size, 1) <= most:
        found = _seen(plan, size)
        if found is not None:
            last = size - (size - plan.loops) % found.period
            if last != size:
                found = _seen(plan, last)
            if found is not None and (plan.loops - last) % found.period == 0:
                return _extended(plan.loops, last, _parts(plan, last, 1), found)
        paced = _at_its_pace(plan, size) if found is None else None
        if paced is not None:
            return paced
        size *= 2
    return None


def _at_its_pace(plan: Plan, size: int) -> Estimate | None:
    """The time of a plan whose loops take hardly longer than the busiest link needs for them.

    Runs of half and of a quarter of the loops tell how they come near to that. From then on every
    loop takes between what the last ones did and what the link needs; in a steady state it is the
    latter, for a link that is always busy stays so.
    """
    if size < 4 * plan.shortest:
        return None
    ends = [_parts(plan, size // k, 1) for k in (4, 2, 1)]
    quarter, half, last = (float(parts.max()) for parts in ends)
    before, now = (half - quarter) / (size // 4), (last - half) / (size // 2)
    pace = plan.pace()
    if not 0 < pace <= now * (1 + AGREE) or now > before:
        return None
    added = np.where(ends[0] == ends[-1], 0.0, pace)  # not of ranks and channels that do nothing
    words = f"{size} of {plan.loops} loops, others at the pace of the busiest link"
    found = _extended(plan.loops, size, ends[-1], Steady(added, abs(now / pace - 1)), words)
    if found is None or found.uncertainty > TOLERATED:
        return None
    return replace(found, uncertainty=found.uncertainty + MARGIN)


def _seen(plan: Plan, loops: int) -> Steady | None:
    return plan.within(loops) if plan.within and loops >= plan.least else None


def _from_several(plan: Plan, most: int, *, fits: bool) -> Estimate | None:
    once = cache(lambda loops: _parts(plan, loops, 1))
    limit = max(plan.first, plan.loops // _IN_VAIN) if fits else plan.loops
    short = lambda k: k <= limit and plan.rows(k, 1) <= most  # noqa: E731
    return extrapolate(plan.loops, once, short, plan.least, plan.first)


def extrapolate(
    loops: int,
    seconds: Callable[[int], ArrayLike],
    fits: Callable[[int], bool],
    least: int = 1,
    first: int = _FIRST,
) -> Estimate | None:
    """The time of `loops` loops, from the shortest run that has a steady state and fits."""
    once = cache(lambda k: np.atleast_1d(np.asarray(seconds(k), np.float64)))
    size = first
    while size < loops and fits(size):
        if _is_full(once, size, least):
            found = _from_steady(loops, size, once, least)
            if found is not None:
                return found
        size *= 2
    return None


def _is_full(totals: Totals, size: int, least: int) -> bool:
    """Whether the first loop is over before those begin that are compared. Loops that are all in
    flight at once take the same time each, too, but not the time that they take in the long run.
    """
    shortest = float(totals(least).max())
    each = (float(totals(size).max()) - shortest) / (size - least)
    return (size - LONGEST_PERIOD - 1) * each >= shortest - (least - 1) * each


def _from_steady(loops: int, size: int, totals: Totals, least: int) -> Estimate | None:
    """An estimate from runs of up to `size` loops, if what a period adds does not depend on where
    it begins. The run that is extended differs from the whole by a multiple of the period.

    If the start dies away at least by half from period to period, the error is smaller than if all
    that is added were off by as much as what was seen to be added differs.
    """
    for period in range(1, LONGEST_PERIOD + 1):
        last = size - (size - loops) % period
        if last < least - 1 + period + LONGEST_PERIOD:
            break
        found = steady(totals, last, period, LONGEST_PERIOD)
        if found is not None:
            return _extended(loops, last, totals(last), found)
    return None


def _extended(
    loops: int, last: int, total: Floats, found: Steady, words: str = ""
) -> Estimate | None:
    """A run with further periods; None if a part overtakes another that was the last to end: what
    parts then do to one another has not been seen.
    """
    periods = (loops - last) // found.period
    parts = total + periods * found.added
    latest = float(parts[total.argmax()])
    if parts.max() > latest * (1 + AGREE):
        return None
    off = periods * found.spread * float(found.added.max()) / latest
    return Estimate(parts, last, 1, off, words or f"steady state of {last} of {loops} loops")


def _in_full(plan: Plan) -> Estimate:
    return Estimate(_parts(plan, plan.loops, 1), plan.loops)


def _parts(plan: Plan, loops: int, grain: int) -> Floats:
    return np.atleast_1d(np.asarray(plan.seconds(loops, grain), np.float64))


def _coarser(plan: Plan, budget: int) -> Estimate:
    """The whole run with the smallest larger chunks that fit, and what doubling them changes."""
    grain = 2
    while plan.grains and grain <= _COARSEST:
        if plan.rows(plan.loops, grain) <= budget:
            fine, coarse = (_parts(plan, plan.loops, g) for g in (grain, 2 * grain))
            moved = abs(float(coarse.max()) / float(fine.max()) - 1)
            return Estimate(fine, plan.loops, grain, moved, f"chunks {grain} times as large")
        grain *= 2
    raise BudgetError(
        f"{plan.loops} loops take {plan.rows(plan.loops, 1):,} rows, more than the budget of "
        f"{budget:,}, and no steady state was found in fewer",
        hint="a larger budget of rows, fewer ranks or channels, or a smaller message",
    )


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
    `size`, and there are `loops`. `begin` is the first row before them all.
    """

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
    `spread` from this, relatively. The last loops begin at `until`.
    """

    loops: int
    seconds: float
    spread: float
    until: float


def lanes_of(schedule: Schedule, short: Schedule, loops: int) -> list[Lane] | None:
    """Where the loops lie, from a schedule that has `loops` fewer of them; None if it cannot be
    told.
    """
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
