"""Collectives of a run as kernel-like slices: one a rank, around everything it does for them.

Their arguments are Kineto's, so that what reads PyTorch profiles reads these.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from netsim.metrics import arrivals, receivers, senders
from netsim.program import Program, Timeline
from netsim.schedule import COMPUTE, MARK, Schedule
from netsim.trace.operation import Operation, kineto_args
from netsim.trace.slices import KERNELS, Slice, as_json, spans

# Row, rank, begin and end of what ranks do.
_Parts = tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float64], NDArray[np.float64]]


def kernel_slices(
    program: Program, timeline: Timeline, operations: tuple[Operation, ...]
) -> list[Slice]:
    """A slice for every rank, collective and repetition, whatever part of its rows is shown."""
    schedule = program.schedule
    row, rank, begin, end = _parts(program, timeline)
    turn = _turns(schedule)
    turns, width = int(turn.max(initial=0)) + 1, len(operations)
    key = (rank.astype(np.int64) * turns + turn[row]) * width + _collective(schedule, row)
    found, first, last = _spans(key, begin, end)
    begins, ends = spans(first, last)
    return [
        _kernel(schedule.ranks, operations, key // width // turns, key % (turns * width), when)
        for key, *when in zip(found.tolist(), begins.tolist(), ends.tolist(), strict=True)
    ]


def _parts(program: Program, timeline: Timeline) -> _Parts:
    """Row, rank, begin and end of every part that a rank has in moving data."""
    kind = program.schedule.kind
    moving = np.flatnonzero((kind != MARK) & (kind != COMPUTE))
    row, rank = senders(program.schedule, moving)
    received, _ = receivers(program.schedule, moving)
    taker, begin, end = arrivals(program, timeline, moving)
    return (
        np.concatenate([row, received]),
        np.concatenate([rank, taker]),
        np.concatenate([timeline.start[row], begin]),
        np.concatenate([timeline.end[row], end]),
    )


def _kernel(
    ranks: int,
    operations: tuple[Operation, ...],
    rank: int,
    seq: int,
    when: Sequence[int],
) -> Slice:
    operation = operations[seq % len(operations)]
    members = operation.ranks or range(ranks)
    chosen = {"algorithm": operation.algorithm, "protocol": operation.protocol}
    args = {
        "device": rank,
        "stream": 0,
        **{name: value for name, value in chosen.items() if value},
        **kineto_args(operation, rank, members, seq),
    }
    track, (begin, end) = (KERNELS, "", 0, 0), when
    return Slice(begin, rank, track, end, operation.kernel, "kernel", as_json(args))


def _collective(schedule: Schedule, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    table = np.array([style.collective for style in schedule.styles], np.int64)
    found: NDArray[np.int64] = table[schedule.style[rows]]
    return found


def _turns(schedule: Schedule) -> NDArray[np.int64]:
    """The repetition of every row: each block of launch marks begins a new one."""
    launching = np.array([s.kind == MARK and s.stream == "launch" for s in schedule.styles], bool)
    launch = launching[schedule.style] if len(schedule.styles) else np.zeros(0, bool)
    begins = launch.copy()
    begins[1:] &= ~launch[:-1]
    turns: NDArray[np.int64] = np.maximum(np.cumsum(begins) - 1, 0)
    return turns


def _spans(
    keys: NDArray[np.int64], begins: NDArray[np.float64], ends: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
    """The keys that there are, and the first begin and last end of each."""
    present = np.zeros(int(keys.max(initial=-1)) + 1, bool)
    present[keys] = True
    found = np.flatnonzero(present)
    place = (np.cumsum(present) - 1)[keys]
    first, last = np.full(len(found), np.inf), np.zeros(len(found))
    np.minimum.at(first, place, begins)
    np.maximum.at(last, place, ends)
    return found, first, last
