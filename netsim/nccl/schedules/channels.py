"""Which channels of a plan are written, and how many equal channels each of them represents.

Channels are equal in two ways. Those with the same amount of data in the same chunks, over the same
ranks in the same order, have the same rows: they are written once, with a multiplicity
(`Extent.merges_channels`). If the blocks of two channels belong to the same classes
(`Extent.partition`), the channels do the same on different GPUs: one is written, and has copies.

Example: 16 channels over 4 different rings, all with the same amount of data, are 4 distinct
channels of multiplicity 4. If the 4 rings leave the nodes through different but equal NICs, one of
them is written, with 4 copies.
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
    """A channel whose rows are written, and the channels that it represents.

    - `work`: its part of the collective.
    - `multiplicity`: the number of channels with the same rows, over the same ranks.
    - `copies`: the number of distinct channels, over different GPUs, that it represents.
    - `number`: its index among the distinct channels, which is its lane in the skeleton
      (`skeletons.py`).
    """

    work: Work
    multiplicity: int = 1
    copies: int = 1
    number: int = 0


def distinct_channels(
    plan: Plan, keys: Mapping[int, object], extent: Extent
) -> list[WrittenChannel]:
    """Return one channel for each distinct pair of key and amount of data, in the order of
    channels.

    `keys` has for each channel what has to be equal besides the amount: the ranks and their routes.
    """
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
    """Return the channels whose rows are written; every other channel is equal to one of them.

    `keys`: see `distinct_channels`.
    """
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
    """Return the places in a node whose rows are written, and how many places each of them
    represents.

    `nodes` has the ranks, or the heads, of every node; a place is an index into these. Two places
    are equal if on every node their blocks belong to one class. If nodes have different sizes, all
    places are written.
    """
    sizes = {len(ranks) for ranks in nodes}
    if partition is None or len(sizes) > 1:
        return dict.fromkeys(range(max(sizes)), 1)
    class_of_block = partition.block[channel.number * len(plan.node) + np.array(nodes)]
    _, first, count = np.unique(class_of_block, axis=1, return_index=True, return_counts=True)
    return dict(sorted(zip(first.tolist(), count.tolist(), strict=True)))
