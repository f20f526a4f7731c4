"""Operations back to back: the time from one to the next, from a few of them.

Ranks that end early begin their next operation early, so operations can overlap. Where none does,
each follows from the one before it alone; else several are simulated in a row.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from netsim.engines import ends_of_operations
from netsim.periodic import AGREE, LONGEST_PERIOD, steady
from netsim.program import Operations, Program, operations
from netsim.schedule import Launch

SAME_INSTANT = 1e-12
# Operations back to back: the fewest that can show a period, and more while they are small.
# nccl-tests: one operation to warm up, then the mean of twenty.
REPEATS = (3, 8, 21)
FEW_ROWS = 100_000  # of operations repeated, beyond which only the fewest are
MANY_ROWS = 300_000  # of the fewest repeated, beyond which one that ends `TOGETHER` is enough
MOST_ROWS = 30_000_000  # of operations repeated; larger ones are simulated alone
TOGETHER = 1e-3  # part of the time between the first rank's end and the last one's
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
    """Operations of a program in a row. `first` is when every rank ends one that begins at once on
    all of them, `busy` are the ranks that do anything.
    """

    program: Program
    first: Floats
    busy: NDArray[np.int64]
    launch: Launch
    engine: str = "auto"

    def period(self) -> Period:
        """The period that a few operations show."""
        found = _of_one(self.first[self.busy])
        least = MANY_ROWS if found.uncertainty <= TOGETHER else MOST_ROWS
        rows = len(self.program)
        if REPEATS[0] * rows > least:
            return found
        many = operations(self.program, REPEATS[0], self.launch)
        if (apart := self._apart(many)) is not None:
            return Period(apart)
        for times in REPEATS:
            if times > REPEATS[0] and times * rows > FEW_ROWS:
                break
            many = replace(many, launched=self.launch.times(times, many.ranks))
            found = of_many(ends_of_operations(many, self.engine)[:, self.busy])
            if not found.approximation:
                break
        return found

    def _apart(self, many: Operations) -> float | None:
        """The period of operations of which each is over before the next one moves anything, if
        the second takes equally long on all ranks: all further ones then begin as it did.
        """
        launched = many.launched
        if np.ptp(launched[0]) > 0:
            return None
        ends = launched[0] + self.first
        begin = np.maximum(ends, launched[1])
        own, kernel = self.busy, self.launch.kernel
        if begin[own].min() + kernel < ends[own].max() or (begin > ends)[own].any():
            return None
        then = ends_of_operations(replace(many, launched=begin[None]), self.engine)[0]
        added = (then - ends)[own]
        seconds = float(added.mean())
        if np.ptp(added) > AGREE * seconds or seconds < self.launch.period:
            return None
        return seconds


def in_step(ends: Floats) -> bool:
    """Whether all ranks end at one instant: the next operation is then the same, only later."""
    return bool(np.ptp(ends) <= SAME_INSTANT * ends.max(initial=0.0))


def _of_one(ends: Floats) -> Period:
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
    return Period(mean, MEAN, float(np.ptp(added)) / mean if mean > 0 else 0.0)
