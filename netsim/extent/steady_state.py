"""Steady states: loops, hops or operations that each add the same time.

What further loops, hops or operations add is found by simulating a few: no closed form is assumed,
and every result states its error. Between runs, increments are compared (`extrapolate_increments`,
`extrapolate_rate`); within one run, all rows under way are compared with those that were under way
some loops before (`find_recurrence`).

>>> extrapolate_increments({4: 9.0, 8: 17.0, 6: 13.0}.__getitem__, 100, [(4, 8), (4, 6)]).seconds
201.0
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain, pairwise
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from netsim.base.values import dataclass
from netsim.program.program import Program, Timeline
from netsim.schedule.schedule import MARK, Schedule

AGREE = 1e-6
"""Relative difference of increments that belong to one steady state."""
LONGEST_PERIOD = 4
"""Loops after which a pattern may repeat."""
AT_LAST_RATE = "the rest at the rate of the last"
LATE = 1e-3
"""Relative error that is stated at least where a small difference may change what follows."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class ExtrapolatedEnds:
    """Finish times of ranks or channels, in seconds.

    `uncertainty` is the largest relative error of the last one; `words` say how they were found if
    loops do not recur.
    """

    ends: Floats
    uncertainty: float
    words: str = ""

    @property
    def seconds(self) -> float:
        """The last finish time, in seconds."""
        return float(self.ends.max())


def extrapolate_increments(
    ends_of: Callable[[int], ArrayLike],
    n: int,
    pairs: Sequence[tuple[int, int]],
    tolerance: float = AGREE,
) -> ExtrapolatedEnds | None:
    """The finish times of `n` loops, hops or operations, if each adds the same in all `pairs` of
    runs.

    Args:
        ends_of: returns the finish times of a run with a number of loops, hops or operations.
        n: the number to extrapolate to.
        pairs: (shorter, longer) numbers of runs; the first pair ends with the longest run. Pairs
            that end at another phase of a period check the others.
        tolerance: the largest difference of increments, relative to the largest one.

    None if increments differ by more.
    """
    ends = {k: np.atleast_1d(np.asarray(ends_of(k), np.float64)) for k in set(chain(*pairs))}
    lengths = np.array([last - first for first, last in pairs])
    added = np.stack([(ends[last] - ends[first]) / (last - first) for first, last in pairs])
    most = float(added.max())
    longest = pairs[0][1]
    if added.min() < 0 or most <= 0:
        return None
    spread = float(np.ptp(added, axis=0).max()) / most
    if spread > tolerance:
        return None
    mean = np.average(added, axis=0, weights=lengths)
    return later_ends(ends[longest], (n - longest) * mean, spread)


def extrapolate_rate(
    ends_of: Callable[[int], Floats], n: int, last: int, tolerance: float, need: float = 0.0
) -> ExtrapolatedEnds | None:
    """Extrapolate finish times to `n` loops from runs of `last`, half and a quarter as many loops.

    The condition is that the second half of the longest run, from half of `last` loops on, takes
    the expected time, up to the fraction `tolerance`. None if it does not. None also if another
    rank or channel is delayed by more than the one that ends last.

    - `ends_of`: returns the finish times of a run by its number of loops: seconds, by rank or
      channel.
    - `need`: the seconds that the busiest link needs for one loop, which are the time expected of
      each loop. If it is 0, each loop is expected to take as long as those from a quarter to half
      of `last`.
    """
    ends = ends_of(last)
    half = ends_of(last // 2)
    added = float(ends.max() - half.max())
    expected = need * (last - last // 2)
    if not expected:
        expected = 2 * float(half.max() - ends_of(last // 4).max())
    spread = max(abs(added - expected), float((ends - half).max()) - added)
    if spread > tolerance * added:
        return None
    factor = (n - last) / (last - last // 2)
    later = ends + factor * np.minimum(ends - half, added)
    return ExtrapolatedEnds(later, LATE + spread * factor / float(later.max()), AT_LAST_RATE)


def later_ends(ends: Floats, added: Floats, spread: float) -> ExtrapolatedEnds | None:
    """Finish times that are `added` seconds later than `ends`; their error is the fraction `spread`
    of `added`.

    None if another rank or channel becomes the last one: how these would then slow each other has
    not been simulated.
    """
    later = ends + added
    latest = float(later[ends.argmax()])
    if later.max() > latest * (1 + AGREE):
        return None
    return ExtrapolatedEnds(later, spread * float(added.max()) / latest)


# **** Loops that recur ****
# Steady states within one run. Runs that differ by whole loops are equal until the first row of a
# last loop starts. Assume that at this time the same rows have ended and the same rows are under
# way, with the same progress, as some loops before. Then these loops repeat for as long as there
# are more loops, and the end of a longer run is equal, only later.

FEWEST_PERIODS = 2
"""The number of last periods that are compared with the periods before them."""

Number = TypeVar("Number", bound=np.generic)


@dataclass(frozen=True, slots=True)
class LoopLane:
    """The rows of a channel's loops, which are consecutive in a schedule; each loop has `size`
    rows.

    `begin` is the first row of the channel, which may lie before the first whole loop; `end` is the
    row after the last loop.
    """

    begin: int
    end: int
    size: int

    @property
    def loops(self) -> int:
        """The number of whole loops, counted backwards from the end of the lane."""
        return (self.end - self.begin) // self.size

    def by_loop(self, column: NDArray[Number]) -> NDArray[Number]:
        """The entries of `column` (by row of the schedule) for all loops, as an array [loop, row in
        the loop].
        """
        return column[self.end - self.loops * self.size : self.end].reshape(-1, self.size)

    def before_loops(self, column: NDArray[Number]) -> NDArray[Number]:
        """The entries of `column` for rows before the first whole loop."""
        return column[self.begin : self.end - self.loops * self.size]


@dataclass(frozen=True, slots=True)
class Recurrence:
    """A steady state within a run: the same rows start and end again `loops` loops later.

    - `seconds`: how much later.
    - `spread`: how far the times of rows differ from that, as a fraction of `seconds`.
    - `until`: when the last loops begin, in seconds since the start of the simulation.
    """

    loops: int
    seconds: float
    spread: float
    until: float


def lanes_of(schedule: Schedule, short: Schedule, loops: int) -> list[LoopLane] | None:
    """The rows of the loops of each channel, found by comparison with `short`, the same schedule
    with `loops` fewer loops.

    None if rows cannot be separated by loops.
    """
    edges = _edges(schedule)
    fewer = _edges(short)
    if len(edges) != len(fewer) or loops <= 0:
        return None
    more = np.diff(edges) - np.diff(fewer)
    if (more % loops).any() or not more.any():
        return None
    lanes = [
        LoopLane(begin, end, size)
        for begin, end, size in zip(edges, edges[1:], (more // loops).tolist(), strict=False)
        if size
    ]
    return lanes if all(_repeats(schedule, lane) for lane in lanes) else None


def _edges(schedule: Schedule) -> list[int]:
    """The rows at which a section of the schedule begins, and at the end the number of rows.

    A section ends where the channel changes, or where marks begin or end.
    """
    key = schedule.style_column("channel").astype(np.int64) * 2 + (schedule.kind == MARK)
    return [0, *(np.flatnonzero(np.diff(key)) + 1).tolist(), len(schedule)]


def _repeats(schedule: Schedule, lane: LoopLane) -> bool:
    """Whether the last loop of a lane looks like the loop before: each row has the same endpoints
    and the same number of dependencies as the row at its place in the other loop.
    """
    waits = np.diff(schedule.dep_ptr)
    return all(
        len(table) > 1 and bool((table[-2:] == table[-2]).all())
        for table in (lane.by_loop(x) for x in (schedule.src, schedule.dst, waits.astype(np.int32)))
    )


def find_recurrence(
    program: Program, timeline: Timeline, lanes: Sequence[LoopLane]
) -> Recurrence | None:
    """The steady state that a run has reached before its last loops begin; None if it has reached
    none.
    """
    run = _Run(program, timeline, lanes)
    fewest_loops = min(lane.loops for lane in lanes)
    for period in range(1, min((fewest_loops - 2) // 2, LONGEST_PERIOD) + 1):
        recurrence = run.recurs(period)
        if recurrence is not None:
            return recurrence
    return None


class _Run:
    """The start and finish times of a run, to be compared with those of earlier loops."""

    def __init__(self, program: Program, timeline: Timeline, lanes: Sequence[LoopLane]) -> None:
        self.lanes = lanes
        self.start = timeline.start
        self.end = timeline.end
        self.until = min(float(lane.by_loop(self.start)[-1].min()) for lane in lanes)
        # A row that ended longer ago than this can no longer delay another row, and a row that has
        # not ended began within this time.
        longest = max(float((self.end - self.start)[lane.begin : lane.end].max()) for lane in lanes)
        lags = float(program.lag_seconds.max(initial=0.0))
        self.memory = longest + lags + float(program.path_latency.max(initial=0.0))

    def recurs(self, period: int) -> Recurrence | None:
        """The steady state with a period of `period` loops; None if the run is in no such state.

        Rows that ended recently must have started and ended later than the same rows `period` loops
        before, all by the same number of seconds.
        """
        seconds = self._seconds_of_period(period)
        since = self.until - max(self.memory, FEWEST_PERIODS * seconds)
        if not 0 < seconds < since:
            return None
        tolerance = AGREE * seconds
        low = seconds
        high = seconds
        for lane in self.lanes:
            ends = lane.by_loop(self.end)
            now = ends[period:-1]
            is_recent = (now > since) & (now <= self.until)
            for times in (ends, lane.by_loop(self.start)):
                later = times[period:-1][is_recent] - times[: -1 - period][is_recent]
                low = min(low, float(later.min(initial=low)))
                high = max(high, float(later.max(initial=high)))
            if high - low > tolerance or not self._is_same_state(lane, period, seconds, since):
                return None
        return Recurrence(period, seconds, (high - low) / seconds, self.until)

    def _is_same_state(self, lane: LoopLane, period: int, seconds: float, since: float) -> bool:
        """Whether a lane was in the same state `period` loops and `seconds` before: the same rows
        had ended, were under way, and had not started, counted by their place in the loops.

        Rows that ended by `since` are compared, and those that end after `until`. (The times of the
        rows between are compared in `recurs`.)
        """
        tolerance = AGREE * seconds
        ends = lane.by_loop(self.end)
        now = ends[period:-1]
        before = ends[: -1 - period]
        is_old = now <= since
        is_under_way = now > self.until
        first_rows = [lane.before_loops(self.end), ends[:period].ravel()]
        next_starts = lane.by_loop(self.start)[-1 - period]
        begin = self.until - seconds - tolerance
        return bool(
            (before[is_old] <= since - seconds + tolerance).all()
            and (before[is_under_way] > begin).all()
            and (np.concatenate(first_rows) <= since).all()
            and (next_starts >= begin).all()
        )

    def _seconds_of_period(self, period: int) -> float:
        """By how many seconds one row ends later than the same row `period` loops before.

        It is the row that ends last before the last loops begin. In a steady state this is the time
        of the period.
        """
        ends = self.lanes[0].by_loop(self.end)
        now = np.where(ends[period:-1] <= self.until, ends[period:-1], -np.inf)
        place = np.unravel_index(np.argmax(now), now.shape)
        return float(now[place] - ends[: -1 - period][place])


# **** Overlap ****
# By how much operations back to back overlap, from runs with fewer loops.


def extrapolate_overlap(overlaps: dict[int, float], loops: int) -> tuple[float, float]:
    """Two numbers of seconds: by how much more operations overlap with all `loops` loops than with
    the most that were simulated, and the error of this.

    `overlaps` has the seconds of overlap by the number of simulated loops. Each further loop is
    taken to add what a loop adds between the last two runs. The error is what further loops would
    add at the larger of the last two slopes.
    """
    lengths = sorted(overlaps)
    slopes = [
        (overlaps[longer] - overlaps[shorter]) / (longer - shorter)
        for shorter, longer in pairwise(lengths)
    ]
    further_loops = loops - lengths[-1]
    largest_slope = max(abs(slope) for slope in slopes[-2:])
    return further_loops * slopes[-1], further_loops * largest_slope
