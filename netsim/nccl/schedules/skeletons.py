"""Skeletons of NCCL's schedules: the blocks of all channels, and the hops between them.

What rows a block writes follows from its kind and its hops, so blocks that cannot be told apart by
these do the same at the same times.
"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from netsim.collectives.collective import Collective
from netsim.nccl.schedules.cuts import chunk_table
from netsim.nccl.schedules.plan import Lane, Plan, lanes_of
from netsim.nccl.schedules.ring import ring_keys
from netsim.nccl.schedules.tree import tree_keys
from netsim.nccl.schedules.walks import WALKS
from netsim.schedule import Hops, Skeleton

Ints = NDArray[np.int64]
UP, DOWN = 1, 1024  # labels of a tree's hops: the way, and which child it is


def foldable(collective: Collective, plan: Plan) -> bool:
    """Whether a call has a skeleton."""
    if plan.algorithm == "Ring":
        return collective.name in WALKS
    return plan.algorithm == "Tree" and collective.name == "all_reduce"


def skeleton_of(collective: Collective, plan: Plan, turn: Ints) -> Skeleton:
    """The skeleton of a call; `turn` is what tells a rank from others besides its place."""
    if plan.algorithm == "Ring":
        lanes = lanes_of(plan, ring_keys(plan))
        links = [_ring(plan, lane) for lane in lanes]
    else:
        trees = dict(enumerate(plan.trees))
        lanes = lanes_of(plan, tree_keys(plan, trees))
        links = [_tree(plan, lane) for lane in lanes]
    n = collective.ranks
    kinds = np.concatenate([_kind(collective, plan, lane) for lane in lanes])
    return Skeleton(
        n,
        np.tile(np.arange(n, dtype=np.int32), len(lanes)),
        np.repeat(np.array([lane.work.channel for lane in lanes], np.int32), n),
        np.repeat(np.arange(len(lanes), dtype=np.int32), n),
        np.unique(kinds, return_inverse=True, axis=0)[1].reshape(-1),
        tuple(_hops(plan, lanes, links)),
        turn,
    )


def works_alike(collective: Collective, plan: Plan) -> tuple[object, ...]:
    """What of a call's sizes tells channels apart: the rest of its skeleton is the same for all."""
    seen: dict[object, int] = {}
    return tuple(
        (w.channel, seen.setdefault((w.count, w.chunk), len(seen)), _is_even(collective, plan, w))
        for w in plan.work
    )


def _kind(collective: Collective, plan: Plan, lane: Lane) -> Ints:
    """What blocks of a lane move; where chunks differ from place to place, none is like another."""
    n, work = collective.ranks, lane.work
    place = np.zeros(n, np.int64)
    if not _is_even(collective, plan, work):
        place[np.array(plan.rings[work.channel])] = 1 + np.arange(n)
    same = np.array([work.count, work.chunk, lane.multiplicity])
    return np.column_stack([np.broadcast_to(same, (n, 3)), place])


def _is_even(collective: Collective, plan: Plan, work: object) -> bool:
    """Whether all places of a ring have chunks of one size in every loop."""
    if plan.algorithm != "Ring" or collective.name != "all_reduce":
        return True
    _, count = chunk_table(work, collective.element_bytes, collective.ranks)  # type: ignore[arg-type]
    return bool((count == count[:, :1]).all())


def _ring(plan: Plan, lane: Lane) -> tuple[Ints, Ints, Ints]:
    """Sources, destinations and labels of the hops of a ring."""
    order = np.array(plan.rings[lane.work.channel])
    return order, np.roll(order, -1), np.zeros(len(order), np.int64)


def _tree(plan: Plan, lane: Lane) -> tuple[Ints, Ints, Ints]:
    """The same of a tree: up, and down again."""
    found = plan.trees[lane.work.channel]
    up = np.array(found.up)
    below = np.flatnonzero(up >= 0)
    number = np.zeros(len(up), np.int64)
    for children in found.down:
        for place, child in enumerate(children):
            number[child] = place
    label = number[below]
    return (
        np.concatenate([below, up[below]]),
        np.concatenate([up[below], below]),
        np.concatenate([label + UP, label + DOWN]),
    )


def _hops(
    plan: Plan, lanes: Sequence[Lane], links: Sequence[tuple[Ints, Ints, Ints]]
) -> Iterable[Hops]:
    """The hops of all lanes, together where they take the same way."""
    node, n = np.array(plan.node), len(plan.node)
    ways: dict[tuple[int, str], list[tuple[Ints, Ints, Ints]]] = {}
    for lane, (src, dst, label) in zip(lanes, links, strict=True):
        channel = lane.work.channel
        kind = _link_kinds(plan, node, src, dst)
        routes = _routes(plan, channel, src, dst, kind)
        base = lane.number * n
        for route in set(routes.tolist()):
            mine = np.flatnonzero(routes == route)
            found = (src[mine] + base, dst[mine] + base, label[mine] * 8 + kind[mine])
            ways.setdefault((channel, route), []).append(found)
    for (channel, route), parts in ways.items():
        src, dst, label = (np.concatenate(column) for column in zip(*parts, strict=True))
        yield Hops(src.astype(np.int32), dst.astype(np.int32), label, channel, route)


def _link_kinds(plan: Plan, node: Ints, src: Ints, dst: Ints) -> Ints:
    """What joins each pair, as a number: the network is 0, what is usual in a node 1."""
    kind: Ints = (node[src] == node[dst]).astype(np.int64)
    numbers = {kind: number for number, kind in enumerate(sorted(set(plan.links.values())), 2)}
    for (a, b), name in plan.links.items():
        kind[(src == a) & (dst == b)] = numbers[name]
    return kind


def _routes(plan: Plan, channel: int, src: Ints, dst: Ints, kind: Ints) -> NDArray[np.object_]:
    ways: Mapping[tuple[int, int, int], str] = plan.routes
    if not plan.links and plan.link != "shm":  # inside a node there is but one way
        routes = np.full(len(src), "", object)
        for hop in np.flatnonzero(kind == 0).tolist():
            routes[hop] = ways.get((channel, int(src[hop]), int(dst[hop])), "")
        return routes
    pairs = zip(src.tolist(), dst.tolist(), strict=True)
    return np.array([plan.route_of(channel, a, b) for a, b in pairs], object)
