"""Operations back to back: the time from one to the next, from a few of them.

Ranks that end early begin their next operation early, so operations can overlap. Where none does,
each follows from the one before it alone; else several are simulated in a row.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from netsim.engines import Simulator, ends_of_operations
from netsim.metrics.ends import moves, receivers, senders
from netsim.periodic import AGREE, LONGEST_PERIOD, steady
from netsim.program import Program, Timeline, operations
from netsim.schedule import Launch, Schedule
from netsim.values import dataclass

SAME_INSTANT = 1e-12
# Operations back to back: the fewest that can show a period, and more while they are small.
# nccl-tests: one operation to warm up, then the mean of twenty.
REPEATS = (3, 8, 21)
FEW_ROWS = 100_000  # of operations repeated, beyond which only the fewest are
MANY_ROWS = 300_000  # of the fewest repeated, beyond which one that ends `TOGETHER` is enough
MOST_ROWS = 30_000_000  # of operations repeated; larger ones are simulated alone
TOGETHER = 1e-3  # part of the time between the first rank's end and the last one's
_PART = 1 << 18  # rows
MEAN = "mean of operations back to back"
ALONE = "one operation alone"

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Period:
    """The time from one operation to the next, and how far it may be off."""

    seconds: float
    approximation: str = ""
    uncertainty: float = 0.0


@dataclass(frozen=True)
class BackToBack:
    """Operations in a row, each like one that begins at once on all ranks."""

    alone: "Alone"
    launch: Launch
    engine: str = "auto"

    @property
    def program(self) -> Program:
        """One of them."""
        return self.alone.program

    @property
    def busy(self) -> NDArray[np.int64]:
        """The ranks that do anything."""
        return self.alone.busy

    @cached_property
    def first(self) -> Floats:
        """When every rank ends the first one."""
        ends: Floats = self.alone.ends.max(axis=0)
        return ends

    @property
    def are_few(self) -> bool:
        """Whether there are so few rows that more operations than the fewest may be simulated."""
        return REPEATS[0] * len(self.program) <= FEW_ROWS

    @property
    def are_apart(self) -> bool:
        """Whether every operation is over before the next one moves anything."""
        return self.launch.together and self._is_over(self.first)

    def period(self) -> Period:
        """The period that a few operations show."""
        found = of_one(self.first[self.busy])
        least = MANY_ROWS if found.uncertainty <= TOGETHER else MOST_ROWS
        if REPEATS[0] * len(self.program) > least:
            return found
        apart = self._apart() if self.are_apart else None
        return self._in_a_row() if apart is None else apart

    def _in_a_row(self) -> Period:
        """The period of several operations that are simulated together."""
        many, found = operations(self.program, REPEATS[0], self.launch), Period(0.0)
        for times in self._repeats:
            many = replace(many, launched=self.launch.times(times, many.ranks))
            found = of_many(ends_of_operations(many, self.engine)[:, self.busy])
            if not found.approximation:
                break
        return found

    def _apart(self) -> Period | None:
        """The period of operations that follow from the one before alone. If one takes equally long
        on all ranks, all further ones begin as it did. None if they overlap, or the host holds up.
        """
        ranks = self.program.schedule.ranks
        row, found = [self.launch.times(1, ranks)[0] + self.first], Period(0.0)
        for times in self._repeats:
            launched = self.launch.times(times, ranks)
            for begin in launched[len(row) :]:
                if not self._is_over(row[-1]) or (begin > row[-1])[self.busy].any():
                    return None
                row.append(self._next(np.maximum(row[-1], begin)))
                added = (row[-1] - row[-2])[self.busy]
                seconds = float(added.mean())
                if np.ptp(added) <= AGREE * seconds and seconds >= self.launch.period:
                    return Period(seconds)
            found = of_many(np.stack(row)[:, self.busy])
            if not found.approximation:
                break
        return found

    def _next(self, launched: Floats) -> Floats:
        """When every rank ends an operation that is launched on it at a time of its own."""
        begins = launched + self.launch.kernel
        timeline = self.alone.simulator.timeline(begins)
        ended: Floats = ends_of(self.program, timeline).max(axis=0)
        return np.maximum(begins, ended)  # who does nothing ends, too

    @property
    def _repeats(self) -> Iterator[int]:
        """The fewest operations, and more while they are few rows."""
        few = (times for times in REPEATS[1:] if times * len(self.program) <= FEW_ROWS)
        return chain(REPEATS[:1], few)

    def _is_over(self, ends: Floats) -> bool:
        """Whether one is over before kernels start on the ranks that end first."""
        return bool(np.ptp(ends[self.busy]) <= self.launch.kernel)


@dataclass(frozen=True)
class Alone:
    """One operation from standstill: when each channel (first axis) of each rank is done."""

    schedule: Schedule
    program: Program
    timeline: Timeline
    ends: Floats
    simulator: Simulator

    @cached_property
    def busy(self) -> NDArray[np.int64]:
        """The ranks that do anything at all."""
        return busy_ranks(self.schedule)

    @property
    def by_rank(self) -> Floats:
        """When the ranks that take part are done: others would only dilute a mean."""
        ends: Floats = self.ends.max(axis=0)[self.busy]
        return ends


def busy_ranks(schedule: Schedule) -> NDArray[np.int64]:
    """The ranks that do anything at all; everyone, where nobody does."""
    busy, written = np.zeros((2, schedule.ranks), bool)
    written[schedule.stand_in(np.arange(schedule.ranks, dtype=np.int32))] = True
    for rows in _in_parts(len(schedule)):
        moving = moves(schedule, rows)
        for _, rank in (senders(schedule, moving), receivers(schedule, moving)):
            busy[rank] = True
        if busy[written].all():  # mostly after the first turn of a loop
            break
    if not busy.any():
        return np.arange(schedule.ranks)
    if schedule.fold is None:
        return np.flatnonzero(busy)
    everyone, leads = schedule.fold.ranks.first.astype(np.int64), np.zeros(schedule.ranks, bool)
    leads[everyone[busy]] = True
    return everyone[leads[everyone]]  # as often as there are ranks that one stands for


def ends_of(program: Program, timeline: Timeline) -> Floats:
    """When each channel (first axis) of each rank is done: all that the rank sends has left, all
    that it receives has arrived.
    """
    schedule, latency = program.schedule, program.path_latency
    first = np.array([style.channel for style in schedule.styles], np.int64) * schedule.ranks
    ends = np.zeros((int(first.max(initial=0)) // schedule.ranks + 1, schedule.ranks))

    def note(row: NDArray[np.int64], rank: NDArray[np.int32], when: Floats) -> None:
        place = first[schedule.style[row]] + schedule.stand_in(rank)
        np.maximum.at(ends.reshape(-1), place, when)

    for rows in _in_parts(len(program)):
        row, sender = senders(schedule, rows)
        note(row, sender, timeline.end[row])
        row, receiver = receivers(schedule, rows)
        note(row, receiver, timeline.end[row] + latency[program.path[row]])
    return ends


def _in_parts(rows: int) -> Iterator[NDArray[np.int64]]:
    """All rows, so many at a time that what is made of them stays in the processor's caches."""
    for start in range(0, rows, _PART):
        yield np.arange(start, min(start + _PART, rows))


def in_step(ends: Floats) -> bool:
    """Whether all ranks end at one instant: the next operation is then the same, only later."""
    return bool(np.ptp(ends) <= SAME_INSTANT * ends.max(initial=0.0))


def of_one(ends: Floats) -> Period:
    """Of an operation too large to repeat: the next one may begin this much earlier, and ranks that
    do not start together may disturb each other a little.
    """
    spread = 1 - float(ends.min() / ends.max())
    return Period(float(ends.max()), ALONE, max(spread, TOGETHER))


def of_many(ends: Floats) -> Period:
    """From the ends of operations (first axis) by rank: the time from one to the next.

    If every rank ends later by the same from one to the next, all that follows is equal. Else the
    mean of all, and by how much single ranks and operations differ.
    """
    times = len(ends)
    for period in range(1, min(LONGEST_PERIOD, (times - 1) // 2) + 1):
        found = steady(lambda k: ends[k], times - 1, period, period + 1)
        if found is not None:
            return Period(float(found.added.mean()) / period)
    added = np.diff(ends, axis=0)
    mean = float(added.mean())
    if mean <= 0:
        return Period(mean, MEAN)
    return Period(mean, MEAN, float(np.ptp(added) + _still_to_come(added.mean(axis=1))) / mean)


def _still_to_come(took: Floats) -> float:
    """By how much the last operation that nccl-tests does may differ from the last of these: where
    each takes longer than the one before, and that does not die away, they may go on so.
    """
    drift = np.diff(took)
    goes_on = len(drift) > 1 and abs(drift[-1]) >= abs(drift[0]) / 2
    if not goes_on or not (np.sign(drift) == np.sign(drift[0])).all():
        return 0.0
    return float(abs(drift[-1])) * (REPEATS[-1] - 1 - len(took))
