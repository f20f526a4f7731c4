"""Cuts: a channel's part in loops, chunks, and the slices or pieces in which chunks move.

Offsets and counts are in elements, chunk sizes of a plan in bytes.
"""

import numpy as np
from numpy.typing import NDArray

from netsim.nccl.chunks import Steps
from netsim.nccl.schedules.plan import Plan, Work
from netsim.nccl.schedules.weave import Segments
from netsim.nccl.split import ALIGNMENT, loops_of_part

Ints = NDArray[np.int64]
ONE = Steps(1, 1)


def chunk_table(
    work: Work, element_bytes: int, spread: int = 1, alignment: int = ALIGNMENT
) -> tuple[Ints, Ints]:
    """Offset and count of every chunk of a part, by loop and chunk."""
    loops = loops_of_part(
        work.count * element_bytes, work.chunk, spread=spread, alignment=alignment
    )
    size = np.array(loops.chunks, np.int64)[:, None] // element_bytes
    start = np.arange(len(size))[:, None] * (spread * work.chunk) // element_bytes
    low = start + np.arange(spread) * size
    count = np.clip(work.count - low, 0, size)
    return work.offset + np.minimum(low, work.count), count


def segments(
    plan: Plan,
    element_bytes: int,
    table: tuple[Ints, Ints],
    *,
    steps: Steps = ONE,
    turns: int = 1,
    threads: float = 1.0,
) -> Segments:
    """Cut all chunks alike: the u subs of chunk c are the segments c·u, c·u + 1, …

    After them come whole chunks, and last an empty segment for rows that only wait. A FIFO of
    `plan.slots` holds as many chunks as fit and is filled `turns` times a loop. `threads` is the
    least part of a block's threads that moves a chunk.
    """
    offset, count = table
    size, subs = _sizes(plan, element_bytes, count, steps, threads)
    part = np.arange(subs)
    begin = np.minimum(part * size[:, :, None], count[:, :, None])
    length = np.minimum(size[:, :, None], count[:, :, None] - begin)
    # Every slice has a place of its own in the slot; pieces lie side by side, to be sent as one.
    apart = part * int(size.max(initial=1))
    within = np.broadcast_to(apart, begin.shape) if plan.protocol == "Simple" else begin
    columns = [(offset[:, :, None] + begin, offset), (length, count), (within, 0 * count)]
    where, much, inside = (
        np.pad(np.hstack([x.reshape(len(count), -1), whole]), ((0, 0), (0, 1)))
        for x, whole in columns
    )
    slots = max(1, plan.slots // steps.chunk)
    return Segments(where, much, inside, slots, turns, subs, subs * count.shape[1])


def _sizes(
    plan: Plan, element_bytes: int, count: Ints, steps: Steps, threads: float
) -> tuple[Ints, int]:
    """Elements of a whole segment of each chunk, and the number of segments of a chunk."""
    if plan.protocol == "Simple":
        slices = steps.chunk // steps.slice
        least = max(1, plan.slot * steps.slice // element_bytes // 32)
        size = np.maximum(-(-count // (16 * slices)) * 16, least)
        return size, slices if (count > size).any() else 1
    mechanism = plan.mechanism
    largest = int(count.max(initial=0)) * element_bytes
    grain = mechanism.grain.of(plan.protocol)
    if plan.protocol == "LL":  # a line a thread; warps of LL128 pass on theirs one by one
        grain *= threads
    pieces = int(-(-largest // grain))
    subs = max(1, min(mechanism.most_pieces, pieces))
    line = max(1, ALIGNMENT // element_bytes)
    return np.maximum(-(-count // (subs * line)) * line, 1), subs
