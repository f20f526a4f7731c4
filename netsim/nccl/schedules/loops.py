"""Loops over the buffers: how many a call has on each channel, and the same call with fewer.

A channel sends its part of the data in loops; a loop fills each chunk of its buffers once. With
fewer loops, every channel (of grouped sends: every part) loses the same number of whole loops, so
that what is left over for its last loop stays as it is. Nothing here knows times.

An example: a ring all-reduce of 4 ranks, 100 MB on one channel in chunks of 1 MB, has a loop for
every 4 MB. It has 25 loops; the same call with 5 loops moves 20 MB.
"""

from collections.abc import Sequence
from dataclasses import replace

from netsim.base.values import dataclass
from netsim.collectives.collective import Collective
from netsim.nccl.schedules.plan import Plan
from netsim.nccl.split import Loops, loops_of_part

CHUNK_PER_HEAD = ("NVLS", "NVLSTree", "CollNetDirect")
"""Algorithms whose all_reduce moves one chunk for each head in a loop."""
MANY_LOOPS = 256
"""Loops from which one loop more is a negligible part of the time."""


def loops_of(collective: Collective, plan: Plan) -> list[int]:
    """The number of loops of each channel, and of each kind of part of grouped sends."""
    chunks = _chunks_per_loop(collective, plan)
    sizes = [(work.count * collective.element_bytes, work.chunk * chunks) for work in plan.work]
    if plan.transfers is not None:
        for work in plan.transfers.works():
            sizes += [(part, work.chunk) for part in work.parts if part]
    return [-(-size // bytes_per_loop) for size, bytes_per_loop in sizes] or [1]


def without_loops(
    collective: Collective, plan: Plan, loops_left_out: int
) -> tuple[Collective, Plan]:
    """The same call with fewer loops on every channel.

    Messages of grouped sends are shortened by the writer (`Extent.loops_left_out`), as their sizes
    are known only there."""
    if not loops_left_out or not plan.work:
        return collective, plan
    chunks = loops_left_out * _chunks_per_loop(collective, plan)
    work = tuple(
        replace(one, count=one.count - chunks * one.chunk // collective.element_bytes)
        for one in plan.work
    )
    removed = sum(one.count for one in plan.work) - sum(one.count for one in work)
    shorter = replace(collective, count=collective.count - removed)
    return shorter, replace(plan, work=work)


def _chunks_per_loop(collective: Collective, plan: Plan) -> int:
    if collective.name == "all_reduce" and plan.algorithm == "Ring":
        return collective.ranks
    if collective.name == "all_reduce" and plan.algorithm in CHUNK_PER_HEAD:
        return len(plan.heads[0])
    return 1


@dataclass(frozen=True, slots=True)
class EqualHeads:
    """An NVLSTree of which all heads have as much data as each other.

    `rounding` is the fraction by which it moves more because every head's last chunk is as large
    as the largest; `more` is the fraction by which it moves more in all."""

    collective: Collective
    plan: Plan
    rounding: float
    more: float


def with_equal_heads(collective: Collective, plan: Plan) -> EqualHeads:
    """A call of NVLSTree in which every head has as much data as the head with most.

    In the last loop the last head has up to one line of data less than the others. Where a channel
    has many loops, its last loop is filled, too: then calls of other sizes have the same loops."""
    heads = len(plan.heads[0])
    element_bytes = collective.element_bytes

    def counts(loops_of_channels: Sequence[Loops]) -> list[int]:
        return [heads * sum(loops.chunks) // element_bytes for loops in loops_of_channels]

    rounded = [
        loops_of_part(work.count * element_bytes, work.chunk, spread=heads) for work in plan.work
    ]
    filled = [
        replace(loops, last=loops.chunk) if loops.last and loops.full_loops >= MANY_LOOPS else loops
        for loops in rounded
    ]
    count_before = sum(work.count for work in plan.work)
    count = max(1, collective.count)
    added_by_rounding = sum(counts(rounded)) - count_before
    added = sum(counts(filled)) - count_before
    works = tuple(
        replace(work, count=filled_count)
        for work, filled_count in zip(plan.work, counts(filled), strict=True)
    )
    return EqualHeads(
        replace(collective, count=collective.count + added),
        replace(plan, work=works),
        added_by_rounding / count,
        added / count,
    )
