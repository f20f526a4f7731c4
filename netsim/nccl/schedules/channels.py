"""Which channels of a plan are written, and how many equal ones each of them represents.

Channels are equal in two ways. Those with the same amount of data in the same chunks, over the same
ranks in the same order, have the same rows: they become one row with a multiplicity
(`Extent.merges_channels`). And where the blocks of two channels are of the same classes
(`Extent.partition`), both do the same on different GPUs: one is written, with copies.

An example: 16 channels over 4 different rings, whose parts are equal, are 4 distinct channels of
multiplicity 4. If their rings leave the nodes through different but equal NICs, one of the 4 is
written, and has 4 copies.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from netsim.base.values import dataclass, grouped
from netsim.nccl.schedules.plan import Plan, Work
from netsim.schedule.extent import Extent
from netsim.schedule.partition import Partition


@dataclass(frozen=True, slots=True)
class WrittenChannel:
    """A channel whose rows are written.

    It represents `multiplicity` channels over the same ranks, and `copies` of these on different
    GPUs. `number` is its place among the distinct channels: the lane of the skeleton
    (`skeletons.py`)."""

    work: Work
    multiplicity: int = 1
    copies: int = 1
    number: int = 0


def distinct_channels(
    plan: Plan, keys: Mapping[int, object], extent: Extent
) -> list[WrittenChannel]:
    """One channel for each different amount of data and key, in the order of channels.

    `keys` says by channel what else must be equal: the order of ranks and their routes."""
    if not extent.merges_channels:
        return [WrittenChannel(work, number=number) for number, work in enumerate(plan.work)]
    groups = grouped(plan.work, lambda work: (keys[work.channel], work.count, work.chunk))
    return [
        WrittenChannel(group[0], len(group), number=number)
        for number, group in enumerate(groups.values())
    ]


def written_channels(
    plan: Plan, keys: Mapping[int, object], extent: Extent
) -> list[WrittenChannel]:
    """The channels that are written; each of the others is equal to one of them."""
    channels = distinct_channels(plan, keys, extent)
    if extent.partition is None:
        return channels
    copies = extent.partition.copies
    return [
        replace(channel, copies=copies[channel.number])
        for channel in channels
        if channel.number in copies
    ]


def written_places(
    plan: Plan,
    channel: WrittenChannel,
    nodes: Sequence[Sequence[int]],
    partition: Partition | None,
) -> dict[int, int]:
    """The places in a node that are written, and how many places each represents.

    `nodes` has the ranks, or the heads, of every node. Two places are equal if on every node their
    blocks are of one class. Nodes of different sizes are written in full."""
    sizes = {len(ranks) for ranks in nodes}
    if partition is None or len(sizes) > 1:
        return dict.fromkeys(range(max(sizes)), 1)
    class_of_block = partition.block[channel.number * len(plan.node) + np.array(nodes)]
    _, first, count = np.unique(class_of_block, axis=1, return_index=True, return_counts=True)
    return dict(sorted(zip(first.tolist(), count.tolist(), strict=True)))
