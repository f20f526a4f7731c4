"""The time of a collective from when operations back to back are over, as nccl-tests computes it.

nccl-tests (`BenchTime` in src/common.cu) warms up, waits until all processes are there, and then
each process issues `iterations` operations without waiting in between. When its last one is over on
all of its GPUs, it divides the time since the start by the number of operations. What is printed is
the mean over all processes. A rank that ends an operation early begins the next one early, so
operations may overlap.

`ends[operation, rank]` is when a rank is done with an operation, `over[operation]` when the
processes that count are (see `Clock`), both in seconds since the start."""

import numpy as np
from numpy.typing import NDArray

from netsim.base.values import dataclass
from netsim.extent.steady_state import AGREE, extrapolate_increments
from netsim.schedule.repeat import BackToBack

Floats = NDArray[np.float64]

# The relative error of operations that were not simulated, where three were. It falls with the
# number of operations that were. Of 36 drawn tasks none is off by more than is stated; with 0.02
# two are (by less than 1.2 times): `python -m tests.bench.rounds 160 operations`.
DRIFT = 0.029
# The same for ranks that end at different times, as a factor of the square of (last end - first
# end) / last end: ranks that end early by some part get ahead by as much, in as many operations.
AHEAD = 0.5
# Standard deviations that 98 of 100 values lie within, and how many more if two values tell what
# the deviation is.
SURE = 2.33
UNSURE_OF_FEW = 4.0


@dataclass(frozen=True, eq=False)
class Clock:
    """How the ends of ranks become the time that nccl-tests prints.

    `process[rank]` is the number of the process that a rank belongs to; it never falls from one
    rank to the next.
    """

    back_to_back: BackToBack
    process: NDArray[np.int64]

    @property
    def iterations(self) -> int:
        """The number of operations that are timed."""
        return self.back_to_back.iterations

    def over(self, ends: Floats) -> Floats:
        """`over[operation]` from `ends[operation, rank]`: the last end of each process, and of all
        processes the mean (or what else is printed). Not yet divided by the iterations."""
        return self._of_processes(self._by_process(ends))

    def seconds(self, last: Floats) -> float:
        """The time of the collective from `last[rank]`, the ends of the last operation."""
        return float(self.over(last)) / self.iterations

    def slowest(self, last: Floats) -> float:
        """The same for the process that ends last, whatever is printed."""
        return float(last.max()) / self.iterations

    def _by_process(self, ends: Floats) -> Floats:
        first = np.flatnonzero(np.diff(self.process, prepend=-1))
        by_process: Floats = np.maximum.reduceat(ends, first, axis=-1)
        return by_process

    def _of_processes(self, ends: Floats) -> Floats:
        match self.back_to_back.over_processes:
            case "first":
                return ends[..., 0]
            case "min":
                return np.asarray(ends.min(axis=-1))
            case "max":
                return np.asarray(ends.max(axis=-1))
            case _:
                return np.asarray(ends.mean(axis=-1))


def last_of_equal(ends: Floats, iterations: int, *, apart: bool = False) -> Floats | None:
    """`last[rank]`, the ends of operation number `iterations`, if the simulated ones are periodic.

    They are periodic with length p if all ranks end operation i by the same seconds later than
    operation i - p, for two such pairs one after the other. One pair is enough if each operation
    is over before the next one begins (`apart`). None if they are not periodic.
    """
    period = period_of(ends, apart=apart)
    if period is None:
        return None
    length, seconds = period
    last_simulated = len(ends) - 1
    last_timed = iterations - 1
    # The last simulated operation that is at the same place of a period.
    like = last_simulated - (last_simulated - last_timed) % length
    ends_of_last: Floats = ends[like] + (last_timed - like) * seconds
    return ends_of_last


def period_of(ends: Floats, *, apart: bool = False) -> tuple[int, float] | None:
    """The length p of the period in operations, and the mean seconds of one operation in it."""
    last = len(ends) - 1
    for length in range(1, last // 2 + 1):
        seconds = float((ends[last] - ends[last - length]).mean()) / length
        pairs = [(last - k - length, last - k) for k in range(1 if apart else 2)]
        if pairs[-1][0] < 0:
            continue
        extended = extrapolate_increments(lambda k: ends[k], last + length, pairs)
        if extended is None:
            continue
        if np.ptp(extended.ends - ends[last]) <= AGREE * length * seconds:
            return length, seconds
    return None


def estimated(over: Floats, iterations: int) -> float:
    """When operation number `iterations` is over, if each operation that was not simulated takes as
    long as the mean of the later half of the simulated ones."""
    simulated = len(over)
    if simulated >= iterations:
        return float(over[iterations - 1])
    seconds = np.diff(over)[-max(2, simulated // 2) :].mean()
    return float(over[-1] + (iterations - simulated) * seconds)


def doubt_of_estimate(over: Floats, iterations: int, early: float = 0.0) -> float:
    """The relative error of `estimated` that drawn tasks exceed in about 1 of 50 cases.

    It has two terms. The standard error of the mean of few durations, times about Student's t for
    98 %. And a drift: operations that overlap may need many until their overlap is final, or ranks
    get ahead if they end early; `early` is (last end - first end) / last end of one operation.
    """
    simulated = len(over)
    left = iterations - simulated
    if left <= 0:
        return 0.0
    took = np.diff(over)
    scatter = float(np.std(took, ddof=1) / took.mean())
    apart = float(np.sqrt(1 / max(2, simulated // 2) + 1 / left))
    sampled = (SURE + UNSURE_OF_FEW / (len(took) - 1)) * scatter * apart
    return left / iterations * (sampled + max(3 * DRIFT / simulated, AHEAD * early**2))


def swing(over: Floats) -> float:
    """Half of the range of the durations of operations, divided by their mean.

    It is the error if the one operation that was simulated is itself inexact: a small difference
    can give each operation any of these durations.
    """
    took = np.diff(over)
    if len(took) == 0:
        return 0.0
    return float(np.ptp(took) / took.mean()) / 2
