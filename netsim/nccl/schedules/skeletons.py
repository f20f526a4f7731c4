"""The skeleton of a collective as NCCL runs it: blocks and the hops between them, without rows.

The skeleton and a topology determine which ranks and channels are equal (`program/partition.py`).
Rings, trees, NVLS on one node, and NVLSTree have one. A lane of the skeleton is a distinct channel
(`channels.py`), and a block is what one rank does on that channel. Each hop has a label for its
part in the algorithm: up or down a tree and to which child, or through a switch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from netsim.collectives.collective import Collective
from netsim.nccl.connect import double_binary_tree
from netsim.nccl.schedules.channels import WrittenChannel, distinct_channels
from netsim.nccl.schedules.nvls import loop_segments, nvls_tree_keys, switch_keys
from netsim.nccl.schedules.plan import Ints, Plan, Work
from netsim.nccl.schedules.primitives import link_kinds, routes
from netsim.nccl.schedules.ring import WALKS, ring_keys
from netsim.nccl.schedules.tree import Branches, tree_keys
from netsim.nccl.schedules.writing import chunk_table
from netsim.nccl.split import ALIGNMENT
from netsim.schedule.extent import ALL
from netsim.schedule.partition import Hops, Skeleton

HAS_HEADS = ("NVLS", "NVLSTree")
"""Algorithms whose heads reduce in the switch: their blocks are of a kind of their own."""
UP = 1
DOWN = 1024
THROUGH_SWITCH = 2048
"""Labels of hops: to the parent and to a child (both plus the number of the child), and between a
head and a rank of its node."""
MAX_LINK_KINDS = 8
"""More than the numbers of `link_kinds`: a label times this, plus such a number, is unique."""
LabeledHops = tuple[Ints, Ints, Ints]
"""Sources, destinations and labels of hops."""


def has_skeleton(collective: Collective, plan: Plan) -> bool:
    """Return whether a collective has a skeleton, so that equal ranks can be found."""
    if plan.algorithm == "Ring":
        return collective.name in WALKS
    if plan.algorithm == "NVLS":
        return len(plan.heads) == 1
    return plan.algorithm in ("Tree", "NVLSTree") and collective.name == "all_reduce"


def skeleton_of(collective: Collective, plan: Plan, launch_order: Ints) -> Skeleton:
    """Return the skeleton of a collective.

    `launch_order` is by rank its place among the GPUs that its process launches one after the
    other. Ranks with different places are not equal.
    """
    channels = lanes_of_skeleton(plan)
    hops = _hops_of_channels(plan, channels)
    n_ranks = collective.ranks
    amounts = [(lane.work.count, lane.work.chunk, lane.multiplicity) for lane in channels]
    number_of_amount = {amount: number for number, amount in enumerate(sorted(set(amounts)))}
    places = np.stack([_kinds_of_places(collective, plan, lane) for lane in channels])
    number = np.array([number_of_amount[amount] for amount in amounts])[:, None]
    kind: Ints = np.unique(number * (places.max() + 1) + places, return_inverse=True)[1]
    return Skeleton(
        n_ranks,
        np.tile(np.arange(n_ranks, dtype=np.int32), len(channels)),
        np.repeat(np.array([lane.work.channel for lane in channels], np.int32), n_ranks),
        np.repeat(np.arange(len(channels), dtype=np.int32), n_ranks),
        kind.reshape(-1),
        tuple(_hops_by_route(plan, channels, hops)),
        launch_order,
    )


def lanes_of_skeleton(plan: Plan) -> list[WrittenChannel]:
    """Return the distinct channels of a plan that has a skeleton."""
    return distinct_channels(plan, _keys(plan), ALL)


def sizes_of_channels(collective: Collective, plan: Plan) -> tuple[object, ...]:
    """Return what the skeleton of a call depends on in the size of the call.

    Two calls of a communicator with equal results have the same classes. An entry for each channel:
    its number, a number for its amount of data, and whether its chunks are equal.
    """
    numbers: dict[tuple[int, int], tuple[int, bool]] = {}
    for work in plan.work:
        size = work.count, work.chunk
        if size not in numbers:
            numbers[size] = len(numbers), _has_equal_chunks(collective, plan, work)
    return tuple((work.channel, *numbers[work.count, work.chunk]) for work in plan.work)


def _keys(plan: Plan) -> dict[int, object]:
    """Return a key for each channel: channels with equal keys have the same rows for equal
    amounts.
    """
    if plan.algorithm == "Ring":
        return ring_keys(plan)
    if plan.algorithm == "Tree":
        return tree_keys(plan, dict(enumerate(plan.trees)))
    return switch_keys(plan) if plan.algorithm == "NVLS" else nvls_tree_keys(plan)


# **** What distinguishes blocks of a channel ****


def _kinds_of_places(collective: Collective, plan: Plan, lane: WrittenChannel) -> Ints:
    """Return by rank a number; ranks with different numbers have different blocks on the channel
    `lane`.

    Heads differ from other ranks. If chunks have different sizes, every place differs from the
    others.
    """
    kind = np.zeros(collective.ranks, np.int64)
    nodes_of_heads = plan.heads if plan.algorithm in HAS_HEADS else ()
    for heads in nodes_of_heads:
        kind[list(heads)] = 1
    if not _has_equal_chunks(collective, plan, lane.work):
        for order in nodes_of_heads or [plan.rings[lane.work.channel]]:
            kind[np.array(order)] = 1 + np.arange(len(order))
    return kind


def _has_equal_chunks(collective: Collective, plan: Plan, work: Work) -> bool:
    """Return whether all places of a ring, or all heads, have chunks of one size in every loop."""
    if plan.algorithm in HAS_HEADS:
        heads = len(plan.heads[0])
        alignment = (ALIGNMENT,) if plan.algorithm == "NVLSTree" else ()
        segments = loop_segments(collective, work, heads, plan.slots, *alignment)
        count = segments.count[:, :heads]
    elif plan.algorithm == "Ring" and collective.name == "all_reduce":
        count = chunk_table(work, collective.element_bytes, collective.ranks)[1]
    else:
        return True
    return bool((count == count[:, :1]).all())


# **** Hops ****


def _hops_of_channels(plan: Plan, channels: Sequence[WrittenChannel]) -> list[LabeledHops]:
    """Return for each channel its hops: sources, destinations (ranks) and labels."""
    if plan.algorithm == "Ring":
        return [_hops_of_ring(plan, lane) for lane in channels]
    if plan.algorithm == "Tree":
        return [_hops_of_tree(plan, lane) for lane in channels]
    inside = _hops_through_switches(plan)
    if plan.algorithm == "NVLS":
        return [inside] * len(channels)
    between = [_hops_between_heads(plan, which) for which in (0, 1)]
    return [_joined(inside, between[lane.work.channel % 2]) for lane in channels]


def _hops_of_ring(plan: Plan, lane: WrittenChannel) -> LabeledHops:
    """Return the hops of a channel's ring: sources, destinations and labels, which are all 0."""
    order = np.array(plan.rings[lane.work.channel])
    return order, np.roll(order, -1), np.zeros(len(order), np.int64)


def _hops_of_tree(plan: Plan, lane: WrittenChannel) -> LabeledHops:
    """Return the hops of a channel's tree, in both directions."""
    branches = Branches(plan.trees[lane.work.channel])
    below = branches.below
    return _both_ways(below, branches.up[below], branches.number[below])


def _hops_between_heads(plan: Plan, which: int) -> LabeledHops:
    """Return the hops of NVLSTree between nodes; each joins heads with the same number.

    `which` is the tree of the double binary tree, 0 or 1.
    """
    places = double_binary_tree(len(plan.heads))[which]
    heads = np.array(plan.heads)
    parent = np.array([place.up for place in places])
    below = np.flatnonzero(parent >= 0)
    number_of_child = [
        [child for child in places[above].down if child >= 0].index(node)
        for node, above in zip(below.tolist(), parent[below].tolist(), strict=True)
    ]
    ends = heads[below].ravel(), heads[parent[below]].ravel()
    return _both_ways(*ends, np.repeat(np.array(number_of_child, np.int64), heads.shape[1]))


def _both_ways(below: Ints, above: Ints, number: Ints) -> LabeledHops:
    """Return hops from children (`below`) to parents (`above`) and back.

    `number` is the number of each child among the children of its parent.
    """
    return _joined((below, above, number + UP), (above, below, number + DOWN))


def _hops_through_switches(plan: Plan) -> LabeledHops:
    """Return the hops between every head and every other rank of its node, in both directions.

    They are three arrays: sources, destinations and labels.
    """
    src = [np.zeros(0, np.int64)]
    dst = [np.zeros(0, np.int64)]
    for heads, ranks in zip(plan.heads, plan.nodes, strict=True):
        head = np.repeat(heads, len(ranks))
        rank = np.tile(ranks, len(heads))
        src.append(head[head != rank])
        dst.append(rank[head != rank])
    ends = np.concatenate(src), np.concatenate(dst)
    label = np.full(len(ends[0]), THROUGH_SWITCH)
    return _joined((*ends, label), (*ends[::-1], -label))


def _joined(*hops: LabeledHops) -> LabeledHops:
    """Return several sets of hops (sources, destinations, labels) as one."""
    src, dst, label = (np.concatenate(column) for column in zip(*hops, strict=True))
    return src, dst, label


def _hops_by_route(
    plan: Plan, channels: Sequence[WrittenChannel], hops_of_channels: Sequence[LabeledHops]
) -> Iterable[Hops]:
    """Yield the hops between blocks, one `Hops` for each channel and named route."""
    node, n_ranks = np.array(plan.node), len(plan.node)
    by_route: dict[tuple[int, str], list[LabeledHops]] = {}
    for lane, (src, dst, label) in zip(channels, hops_of_channels, strict=True):
        channel = lane.work.channel
        kind = link_kinds(plan, node, src, dst)
        route_of_hop = routes(plan, channel, src, dst, kind)
        first_block = lane.number * n_ranks
        for route in set(route_of_hop.tolist()):
            on_route = np.flatnonzero(route_of_hop == route)
            hops = (
                src[on_route] + first_block,
                dst[on_route] + first_block,
                label[on_route] * MAX_LINK_KINDS + kind[on_route],
            )
            by_route.setdefault((channel, route), []).append(hops)
    for (channel, route), parts in by_route.items():
        src, dst, label = _joined(*parts)
        yield Hops(src.astype(np.int32), dst.astype(np.int32), label, channel, route)
