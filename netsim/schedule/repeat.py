"""Operations back to back, as a benchmark issues them: each rank's kernels serial on its stream.

A rank's operation begins when its previous one is over and the host has launched it, and is over
when all that the rank sends has left and all that it receives has arrived.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from netsim.schedule.frame import framed
from netsim.schedule.rows import IN_ORDER, Schedule


@dataclass(frozen=True, slots=True)
class Launch:
    """What it takes to begin an operation.

    `host` seconds of a process for each launch, one after the other over the GPUs it drives
    (`gpus_per_process`), and `kernel` seconds on the GPU before the first byte moves.
    """

    host: float = 0.0
    kernel: float = 0.0
    gpus_per_process: int = 1

    @property
    def period(self) -> float:
        """The least time from one operation to the next that the host allows."""
        return self.host * self.gpus_per_process

    @property
    def together(self) -> bool:
        """Whether the host lets all ranks begin at one instant."""
        return self.host == 0 or self.gpus_per_process == 1

    def times(self, operations: int, ranks: int) -> NDArray[np.float64]:
        """When the host has launched operations (first axis) on every rank."""
        turn = np.arange(ranks) % self.gpus_per_process + 1
        times = np.arange(operations)[:, None] * self.gpus_per_process + turn
        return times.astype(np.float64) * self.host


@dataclass(frozen=True, slots=True)
class Repeated:
    """A schedule of several operations; `ends[i, r]` is the row that ends operation i on rank r."""

    schedule: Schedule
    ends: NDArray[np.int64]


def repeat(schedule: Schedule, times: int, launch: Launch = Launch()) -> Repeated:
    """`times` operations of a schedule, one after the other on every rank."""
    return unrolled(framed(schedule, launch.kernel), launch.times(times, schedule.ranks))


def unrolled(frame: Schedule, launched: NDArray[np.float64]) -> Repeated:
    """As many operations as there are launches (by rank), of one between its marks."""
    times, ranks = launched.shape
    size = len(frame)
    dep_ptr, dep_row, dep_lag = _in_a_row(frame, times)
    release_row, release_time = _releases(frame, launched)
    schedule = replace(
        frame,
        style=np.tile(frame.style, times),
        src=np.tile(frame.src, times),
        dst=np.tile(frame.dst, times),
        piece=np.tile(frame.piece, times),
        step=np.tile(frame.step, times),
        dep_ptr=dep_ptr,
        dep_row=dep_row,
        dep_lag=dep_lag,
        release_row=release_row,
        release_time=release_time,
    )
    first = np.arange(times)[:, None] * size
    return Repeated(schedule, first + size - ranks + np.arange(ranks)[None, :])


def _in_a_row(
    frame: Schedule, times: int
) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int16]]:
    """Pointers, earlier rows and lags; start marks wait for the end marks just before them."""
    ranks, size = frame.ranks, len(frame)
    counts = np.diff(frame.dep_ptr)
    later = counts.copy()
    later[:ranks] += 1
    ptr = np.zeros(times * size + 1, np.int32)
    np.cumsum(np.concatenate([counts, *[later] * (times - 1)]), out=ptr[1:])
    before = np.arange(ranks, dtype=np.int32) - ranks
    row, lag = [frame.dep_row], [frame.dep_lag]
    for number in range(1, times):
        row.append(np.concatenate([before, frame.dep_row]) + np.int32(number * size))
        lag += [np.full(ranks, frame.lags.index(IN_ORDER), np.int16), frame.dep_lag]
    return ptr, np.concatenate(row), np.concatenate(lag)


def _releases(
    frame: Schedule, launched: NDArray[np.float64]
) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """Launches of the host, and the schedule's own releases (first time)."""
    times, ranks = launched.shape
    rows = np.arange(times)[:, None] * len(frame) + np.arange(ranks)
    row = np.concatenate([rows.ravel(), frame.release_row])
    time = np.concatenate([launched.ravel(), frame.release_time])
    order = np.argsort(row, kind="stable")
    return row[order].astype(np.int32), time[order]
