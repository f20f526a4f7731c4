"""How each GPU spends a run: computing, communicating, both at once, or waiting."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from netsim.metrics.ends import receivers, senders
from netsim.program import Program, Timeline
from netsim.schedule import COMPUTE, MARK

Spans = tuple[NDArray[np.int32], NDArray[np.float64], NDArray[np.float64]]  # rank, begin, end


@dataclass(frozen=True, slots=True)
class GpuTime:
    """Seconds of every rank. Communicating is sending, receiving or copying; busy is that or
    computing, so `busy - computing` is communication that nothing hides; waiting is the rest of the
    makespan.
    """

    communicating: NDArray[np.float64]
    computing: NDArray[np.float64]
    busy: NDArray[np.float64]
    waiting: NDArray[np.float64]


def gpu_time(program: Program, timeline: Timeline) -> GpuTime:
    """Where the time of every GPU goes."""
    kind = program.schedule.kind
    work = _working(program, timeline, np.flatnonzero(kind == COMPUTE))
    moving = np.flatnonzero((kind != COMPUTE) & (kind != MARK))
    talk = _joined(_working(program, timeline, moving), arrivals(program, timeline, moving))
    ranks = program.schedule.ranks
    computing = _covered(work, ranks, timeline.makespan)
    communicating = _covered(talk, ranks, timeline.makespan)
    busy = communicating
    if len(work[0]):
        busy = _covered(_joined(work, talk), ranks, timeline.makespan)
    return GpuTime(
        communicating=communicating,
        computing=computing,
        busy=busy,
        waiting=np.maximum(timeline.makespan - busy, 0.0),
    )


def arrivals(program: Program, timeline: Timeline, rows: NDArray[np.int64]) -> Spans:
    """When the data of rows comes in, by receiving rank: a path latency after it leaves."""
    row, rank = receivers(program.schedule, rows)
    delay = program.path_latency[program.path[row]]
    startup = program.style_values("latency")[program.schedule.style[row]]
    end = timeline.end[row]
    return rank, np.minimum(timeline.start[row] + startup, end) + delay, end + delay


def _working(program: Program, timeline: Timeline, rows: NDArray[np.int64]) -> Spans:
    row, rank = senders(program.schedule, rows)
    return rank, timeline.start[row], timeline.end[row]


def _joined(one: Spans, other: Spans) -> Spans:
    return (
        np.concatenate([one[0], other[0]]),
        np.concatenate([one[1], other[1]]),
        np.concatenate([one[2], other[2]]),
    )


def _covered(spans: Spans, ranks: int, makespan: float) -> NDArray[np.float64]:
    """Length of the union of the spans of every rank, up to the makespan."""
    rank, begin, end = spans
    small = rank.astype(np.uint16) if ranks <= 1 << 16 else rank  # numpy sorts these by counting
    order = np.argsort(small, kind="stable")
    begin, end = begin[order], np.minimum(end[order], makespan)
    covered = np.zeros(ranks)
    edges = np.concatenate([[0], np.cumsum(np.bincount(rank, minlength=ranks))])
    for r in range(ranks):
        mine = slice(int(edges[r]), int(edges[r + 1]))
        turn = np.argsort(begin[mine], kind="stable")
        first, reach = begin[mine][turn], np.maximum.accumulate(end[mine][turn])
        before = np.concatenate([[0.0], reach[:-1]]) if len(reach) else reach
        covered[r] = np.maximum(reach - np.maximum(first, before), 0.0).sum()
    return covered
