"""Collectives of a run as kernel-like slices: one a rank, around everything it does for them.

Their arguments are Kineto's, so that what reads PyTorch profiles reads these.
"""

import numpy as np
from numpy.typing import NDArray

from netsim.metrics import arrivals, receivers, senders
from netsim.program import Program, Timeline
from netsim.schedule import COMPUTE, MARK, Schedule
from netsim.trace.operation import Operation, kineto_args
from netsim.trace.slices import KERNELS, Slice, span

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
    return [
        _kernel(schedule.ranks, operations, rank, turn_number * width + which, which, when)
        for rank, turn_number, which, when in _spans(key, begin, end, turns, width)
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
    which: int,
    when: tuple[float, float],
) -> Slice:
    operation = operations[which]
    members = operation.ranks or range(ranks)
    chosen = {"algorithm": operation.algorithm, "protocol": operation.protocol}
    args = {
        "device": rank,
        "stream": 0,
        **{name: value for name, value in chosen.items() if value},
        **kineto_args(operation, rank, members, seq),
    }
    return Slice(rank, (KERNELS, "", 0, 0), *span(*when), operation.kernel, "kernel", args)


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
    keys: NDArray[np.int64],
    begins: NDArray[np.float64],
    ends: NDArray[np.float64],
    turns: int,
    width: int,
) -> list[tuple[int, int, int, tuple[float, float]]]:
    """Rank, repetition, collective, and first begin and last end of each key."""
    found, place = np.unique(keys, return_inverse=True)
    first, last = np.full(len(found), np.inf), np.zeros(len(found))
    np.minimum.at(first, place, begins)
    np.maximum.at(last, place, ends)
    return [
        (key // width // turns, key // width % turns, key % width, (begin, end))
        for key, begin, end in zip(found.tolist(), first.tolist(), last.tolist(), strict=True)
    ]
