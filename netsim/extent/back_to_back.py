"""The time of a collective from the finish times of operations back to back, as nccl-tests computes
it.

nccl-tests (`BenchTime` in src/common.cu) warms up and waits until all processes are ready. Then
each process issues `iterations` operations without waiting in between. When its last operation has
ended on all of its GPUs, it divides the time since the start by the number of operations. The
printed time is the mean over all processes. A rank that ends an operation early begins the next one
early, so operations may overlap.

In this file, `ends[operation, rank]` is the finish time of an operation on a rank, and
`over[operation]` its finish time on the processes that count (see `Clock`), in seconds since the
start.
"""

import numpy as np
from numpy.typing import NDArray

from netsim.base.values import dataclass
from netsim.extent.steady_state import AGREE, extrapolate_increments
from netsim.schedule.repeat import BackToBack

Floats = NDArray[np.float64]

# The relative error of the time if three operations are simulated and the others extrapolated; with
# more simulated operations it is smaller. The errors of 36 randomly drawn tasks are all below the
# one that is stated; with 0.02 in its place, two of them exceed it, by up to 1.2 times (`python -m
# tests.bench.rounds 160 operations`).
DRIFT = 0.029
# The same error for ranks that end an operation at different times, as a factor of the square of
# (last end - first end) / last end: ranks that end early get ahead of the others by a part of each
# operation, within a number of operations that is about the inverse of that part.
AHEAD = 0.5
# Factors of a standard deviation for a confidence of 98 %. The second one is added, divided by the
# degrees of freedom, if few values were measured; together they are about Student's t.
SURE = 2.33
UNSURE_OF_FEW = 4.0


@dataclass(frozen=True, eq=False)
class Clock:
    """Turns the finish times of ranks into the time that nccl-tests prints.

    `back_to_back` says how many operations are timed and which processes count. `process[rank]` is
    the number of the process that a rank belongs to; ranks of one process are consecutive.
    """

    back_to_back: BackToBack
    process: NDArray[np.int64]

    @property
    def iterations(self) -> int:
        """The number of operations that are timed."""
        return self.back_to_back.iterations

    def over(self, ends: Floats) -> Floats:
        """The finish time of each operation in seconds, from `ends[operation, rank]`.

        A process ends with the last of its ranks; the result is the mean of all processes, or what
        `over_processes` of `back_to_back` says. It is not divided by the number of operations.
        """
        return self._of_processes(self._by_process(ends))

    def seconds(self, last: Floats) -> float:
        """The time of the collective in seconds from `last[rank]`, the finish times of the last
        operation.
        """
        return float(self.over(last)) / self.iterations

    def slowest(self, last: Floats) -> float:
        """The time of the collective in seconds on the process that ends last, whichever processes
        count.
        """
        return float(last.max()) / self.iterations

    def _by_process(self, ends: Floats) -> Floats:
        """The finish time of each process from `ends`, whose last axis are ranks. A process ends
        with the last of its ranks; in the result, processes are the last axis.
        """
        first = np.flatnonzero(np.diff(self.process, prepend=-1))
        by_process: Floats = np.maximum.reduceat(ends, first, axis=-1)
        return by_process

    def _of_processes(self, ends: Floats) -> Floats:
        """The finish time of an operation from `ends`, whose last axis are processes: the mean over
        processes, or what `over_processes` says.
        """
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
    """The finish times of the last of `iterations` operations, by rank, in seconds.

    They follow from the simulated operations `ends[operation, rank]` if these are periodic: with a
    period of p operations, all ranks end operation i by the same number of seconds later than
    operation i - p. That must hold for the last two simulated operations. If `apart` is true, the
    last one is enough: each operation ends before the next one begins. None if operations are not
    periodic.
    """
    period = period_of(ends, apart=apart)
    if period is None:
        return None
    length, seconds = period
    last_simulated = len(ends) - 1
    last_timed = iterations - 1
    # The last simulated operation whose place in the period is that of the last timed operation.
    like = last_simulated - (last_simulated - last_timed) % length
    ends_of_last: Floats = ends[like] + (last_timed - like) * seconds
    return ends_of_last


def period_of(ends: Floats, *, apart: bool = False) -> tuple[int, float] | None:
    """The period of simulated operations, as (number of operations, mean seconds of one operation);
    None if they are not periodic. `ends` and `apart` are those of `last_of_equal`.
    """
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


def estimated_finish_time(over: Floats, iterations: int) -> float:
    """The finish time in seconds of the last of `iterations` operations.

    `over` are the finish times of the simulated ones. Each operation that was not simulated is
    taken to last as long as the mean of the later half of those that were.
    """
    simulated = len(over)
    if simulated >= iterations:
        return float(over[iterations - 1])
    seconds = np.diff(over)[-max(2, simulated // 2) :].mean()
    return float(over[-1] + (iterations - simulated) * seconds)


def error_of_estimate(over: Floats, iterations: int, early: float = 0.0) -> float:
    """The relative error of `estimated_finish_time`; about 1 of 50 randomly drawn tasks exceeds it.

    It has two terms. One is the standard error of the mean of few durations, times about Student's
    t for 98 %. The other is a drift: operations that overlap may need many operations until their
    overlap is constant, and ranks that end early get ahead. `early` is (last end - first end) /
    last end of one operation.
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


def half_range_of_durations(over: Floats) -> float:
    """Half of the range of the durations of operations, divided by their mean.

    It is the error if the simulation of one operation is itself inexact: a small difference can
    then give an operation any of these durations.
    """
    took = np.diff(over)
    if len(took) == 0:
        return 0.0
    return float(np.ptp(took) / took.mean()) / 2
