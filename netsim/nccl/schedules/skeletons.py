"""Skeletons of NCCL's schedules: the blocks of all channels, and the hops between them.

What rows a block writes follows from its kind and its hops, so blocks that cannot be told apart by
these do the same at the same times.
"""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from netsim.collectives.collective import Collective
from netsim.nccl.schedules.cuts import chunk_table
from netsim.nccl.schedules.nvls import loop_segments, switch_keys
from netsim.nccl.schedules.nvls_tree import crown_keys
from netsim.nccl.schedules.plan import Lane, Plan, Work, lanes_of
from netsim.nccl.schedules.ring import ring_keys
from netsim.nccl.schedules.tree import tree_keys
from netsim.nccl.schedules.walks import WALKS
from netsim.nccl.schedules.ways import link_kinds, routes
from netsim.nccl.split import ALIGNMENT
from netsim.nccl.trees import double_binary_tree
from netsim.schedule import Hops, Skeleton

SWITCHED = ("NVLS", "NVLSTree")  # blocks of heads are of their own kind
Ints = NDArray[np.int64]
Ends = tuple[Ints, Ints, Ints]  # sources, destinations and labels of hops
UP, DOWN, FAN = 1, 1024, 2048  # labels of hops: up or down to which child; through a switch


def foldable(collective: Collective, plan: Plan) -> bool:
    """Whether a call has a skeleton."""
    if plan.algorithm == "Ring":
        return collective.name in WALKS
    if plan.algorithm == "NVLS":
        return len(plan.heads) == 1
    return plan.algorithm in ("Tree", "NVLSTree") and collective.name == "all_reduce"


def skeleton_of(collective: Collective, plan: Plan, turn: Ints) -> Skeleton:
    """The skeleton of a call; `turn` is what tells a rank from others besides its place."""
    lanes = lanes_of(plan, _keys(plan))
    links = _links(plan, lanes)
    n = collective.ranks
    return Skeleton(
        n,
        np.tile(np.arange(n, dtype=np.int32), len(lanes)),
        np.repeat(np.array([lane.work.channel for lane in lanes], np.int32), n),
        np.repeat(np.arange(len(lanes), dtype=np.int32), n),
        _kinds(collective, plan, lanes),
        tuple(_hops(plan, lanes, links)),
        turn,
    )


def works_alike(collective: Collective, plan: Plan) -> tuple[object, ...]:
    """What of a call's sizes tells channels apart: the rest of its skeleton is the same for all."""
    seen: dict[tuple[int, int], tuple[int, bool]] = {}
    for work in plan.work:
        size = work.count, work.chunk
        if size not in seen:
            seen[size] = len(seen), _is_even(collective, plan, work)
    return tuple((work.channel, *seen[work.count, work.chunk]) for work in plan.work)


def _keys(plan: Plan) -> dict[int, object]:
    if plan.algorithm == "Ring":
        return ring_keys(plan)
    if plan.algorithm == "Tree":
        return tree_keys(plan, dict(enumerate(plan.trees)))
    return switch_keys(plan) if plan.algorithm == "NVLS" else crown_keys(plan)


def _links(plan: Plan, lanes: Sequence[Lane]) -> list[Ends]:
    """The hops of every lane."""
    if plan.algorithm == "Ring":
        return [_ring(plan, lane) for lane in lanes]
    if plan.algorithm == "Tree":
        return [_tree(plan, lane) for lane in lanes]
    fans, crowns = _fans(plan), list[Ends]()
    if plan.algorithm == "NVLSTree":
        crowns = [_crown(plan, number) for number in (0, 1)]
    return [_together(fans, *crowns[lane.work.channel % 2 :][:1]) for lane in lanes]


def _kinds(collective: Collective, plan: Plan, lanes: Sequence[Lane]) -> Ints:
    """A number for what each block moves, lane after lane."""
    moved = [(lane.work.count, lane.work.chunk, lane.multiplicity) for lane in lanes]
    numbers = {what: number for number, what in enumerate(sorted(set(moved)))}
    places = np.stack([_places(collective, plan, lane) for lane in lanes])
    number = np.array([numbers[what] for what in moved])[:, None]
    found: Ints = np.unique(number * (places.max() + 1) + places, return_inverse=True)[1]
    return found.reshape(-1)


def _places(collective: Collective, plan: Plan, lane: Lane) -> Ints:
    """What tells the blocks of a lane apart: heads of switches; where chunks differ from place to
    place, every place.
    """
    n, work = collective.ranks, lane.work
    place = np.zeros(n, np.int64)
    heads = plan.heads if plan.algorithm in SWITCHED else ()
    for node in heads:
        place[list(node)] = 1
    if not _is_even(collective, plan, work):
        for order in heads or [plan.rings[work.channel]]:
            place[np.array(order)] = 1 + np.arange(len(order))
    return place


def _is_even(collective: Collective, plan: Plan, work: Work) -> bool:
    """Whether all places of a ring, or all heads, have chunks of one size in every loop."""
    if plan.algorithm in SWITCHED:
        heads = len(plan.heads[0])
        alignment = (ALIGNMENT,) if plan.algorithm == "NVLSTree" else ()
        count = loop_segments(collective, work, heads, plan.slots, *alignment).count[:, :heads]
    elif plan.algorithm == "Ring" and collective.name == "all_reduce":
        count = chunk_table(work, collective.element_bytes, collective.ranks)[1]
    else:
        return True
    return bool((count == count[:, :1]).all())


def _ring(plan: Plan, lane: Lane) -> Ends:
    order = np.array(plan.rings[lane.work.channel])
    return order, np.roll(order, -1), np.zeros(len(order), np.int64)


def _tree(plan: Plan, lane: Lane) -> Ends:
    """Up, and down again."""
    found = plan.trees[lane.work.channel]
    up = np.array(found.up)
    number = np.zeros(len(up), np.int64)
    for children in found.down:
        for place, child in enumerate(children):
            number[child] = place
    below = np.flatnonzero(up >= 0)
    return _both_ways(below, up[below], number[below])


def _crown(plan: Plan, twin: int) -> Ends:
    """The tree over nodes, of every head with those of its number."""
    places, heads = double_binary_tree(len(plan.heads))[twin], np.array(plan.heads)
    up = np.array([place.up for place in places])
    below = np.flatnonzero(up >= 0)
    number = [
        [child for child in places[above].down if child >= 0].index(node)
        for node, above in zip(below.tolist(), up[below].tolist(), strict=True)
    ]
    ends = heads[below].ravel(), heads[up[below]].ravel()
    return _both_ways(*ends, np.repeat(np.array(number, np.int64), heads.shape[1]))


def _both_ways(below: Ints, above: Ints, number: Ints) -> Ends:
    return _together((below, above, number + UP), (above, below, number + DOWN))


def _fans(plan: Plan) -> Ends:
    """From every head to all ranks of its node, as its switch hands out and adds up."""
    src, dst = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for heads, ranks in zip(plan.heads, plan.nodes, strict=True):
        here, there = np.repeat(heads, len(ranks)), np.tile(ranks, len(heads))
        src.append(here[here != there])
        dst.append(there[here != there])
    ends = np.concatenate(src), np.concatenate(dst)
    return _together(
        (*ends, np.full(len(ends[0]), FAN)), (*ends[::-1], np.full(len(ends[0]), -FAN))
    )


def _together(*ends: Ends) -> Ends:
    src, dst, label = (np.concatenate(column) for column in zip(*ends, strict=True))
    return src, dst, label


def _hops(plan: Plan, lanes: Sequence[Lane], links: Sequence[Ends]) -> Iterable[Hops]:
    """The hops of all lanes, together where they take the same way."""
    node, n = np.array(plan.node), len(plan.node)
    ways: dict[tuple[int, str], list[Ends]] = {}
    for lane, (src, dst, label) in zip(lanes, links, strict=True):
        channel = lane.work.channel
        kind = link_kinds(plan, node, src, dst)
        ways_of = routes(plan, channel, src, dst, kind)
        base = lane.number * n
        for route in set(ways_of.tolist()):
            mine = np.flatnonzero(ways_of == route)
            found = (src[mine] + base, dst[mine] + base, label[mine] * 8 + kind[mine])
            ways.setdefault((channel, route), []).append(found)
    for (channel, route), parts in ways.items():
        src, dst, label = _together(*parts)
        yield Hops(src.astype(np.int32), dst.astype(np.int32), label, channel, route)
