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
    busy = _covered(_joined(work, talk), ranks, timeline.makespan)
    return GpuTime(
        communicating=_covered(talk, ranks, timeline.makespan),
        computing=_covered(work, ranks, timeline.makespan),
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
    order = np.lexsort((begin, rank))
    rank, begin, end = rank[order], begin[order], np.minimum(end[order], makespan)
    covered = np.zeros(ranks)
    edges = np.searchsorted(rank, np.arange(ranks + 1))
    for r in range(ranks):
        mine = slice(int(edges[r]), int(edges[r + 1]))
        reach = np.maximum.accumulate(end[mine])
        before = np.concatenate([[0.0], reach[:-1]]) if len(reach) else reach
        covered[r] = np.maximum(reach - np.maximum(begin[mine], before), 0.0).sum()
    return covered
