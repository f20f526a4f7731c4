"""What joins pairs of ranks, and the ways between them, for many pairs at once."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from netsim.nccl.schedules.plan import Plan

Ints = NDArray[np.int64]


def link_kinds(plan: Plan, node: Ints, src: Ints, dst: Ints) -> Ints:
    """What joins each pair, as a number: the network is 0, what is usual in a node 1."""
    kind: Ints = (node[src] == node[dst]).astype(np.int64)
    numbers = {kind: number for number, kind in enumerate(sorted(set(plan.links.values())), 2)}
    if plan.links:
        pairs = np.array(list(plan.links), np.int64) @ np.array([len(node), 1])
        named = np.array([numbers[name] for name in plan.links.values()], np.int64)
        order, pair = np.argsort(pairs), src * len(node) + dst
        place = order[np.minimum(np.searchsorted(pairs[order], pair), len(pairs) - 1)]
        found = pairs[place] == pair
        kind[found] = named[place[found]]
    return kind


def routes(plan: Plan, channel: int, src: Ints, dst: Ints, kind: Ints) -> NDArray[np.object_]:
    """The way of each pair through the topology."""
    ways: Mapping[tuple[int, int, int], str] = plan.routes
    if not plan.links and plan.link != "shm":  # inside a node there is but one way
        found = np.full(len(src), "", object)
        for hop in np.flatnonzero(kind == 0).tolist():
            found[hop] = ways.get((channel, int(src[hop]), int(dst[hop])), "")
        return found
    pairs = zip(src.tolist(), dst.tolist(), strict=True)
    return np.array([plan.route_of(channel, a, b) for a, b in pairs], object)
