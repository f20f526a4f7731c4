"""Loops over the buffers: how many a call has on each channel, and the same call with fewer.

A channel moves its part of the data in loops; a loop fills each chunk of its buffers once. If loops
are left out, every channel (of grouped sends: every part of a message) has the same number of whole
loops less, so that its last, incomplete loop keeps its size. Nothing in this module knows times.

Example: a ring AllReduce of 4 ranks moves 100 MB on one channel in chunks of 1 MB. A loop is 4 MB,
so it has 25 loops; the same call with 5 loops moves 20 MB.
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
    """Return the number of loops of each channel; of grouped sends, that of each distinct part."""
    chunks = _chunks_per_loop(collective, plan)
    sizes = [(work.count * collective.element_bytes, work.chunk * chunks) for work in plan.work]
    if plan.transfers is not None:
        for work in plan.transfers.works():
            sizes += [(part, work.chunk) for part in work.parts if part]
    return [-(-size // bytes_per_loop) for size, bytes_per_loop in sizes] or [1]


def without_loops(
    collective: Collective, plan: Plan, loops_left_out: int
) -> tuple[Collective, Plan]:
    """Return the same call (collective and plan) with `loops_left_out` loops less on every channel.

    Messages of grouped sends stay as they are here: their writer shortens them
    (`Extent.loops_left_out`), because only it knows their sizes.
    """
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
    """Return how many chunks a channel moves in one loop."""
    if collective.name == "all_reduce" and plan.algorithm == "Ring":
        return collective.ranks
    if collective.name == "all_reduce" and plan.algorithm in CHUNK_PER_HEAD:
        return len(plan.heads[0])
    return 1


@dataclass(frozen=True, slots=True)
class EqualHeads:
    """A call with NVLSTree in which all heads have the same amount of data.

    - `more`: how much more data it moves than the original call, as a fraction.
    - `rounding`: the part of this fraction that comes from rounding up: every head has as much data
      as the head with the most.
    """

    collective: Collective
    plan: Plan
    rounding: float
    more: float


def with_equal_heads(collective: Collective, plan: Plan) -> EqualHeads:
    """Return the call with NVLSTree in which every head has as much data as the head with the most.

    Originally the last heads may have less than the first in the last loop, because chunks are
    rounded up to 16 bytes. If a channel has at least `MANY_LOOPS` loops, its last loop is filled,
    too: then calls of other sizes have equal loops.
    """
    heads = len(plan.heads[0])
    element_bytes = collective.element_bytes

    def counts(loops_of_channels: Sequence[Loops]) -> list[int]:
        """Return the elements that each channel moves in these loops."""
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
