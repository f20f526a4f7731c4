"""Static routes on any graph: cheapest path by kind of link, ties by link number.

Costs are computed for all destinations at once, one relaxation a hop; structural routers of the
fabrics (by formula, not by search) live beside the fabrics.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from netsim.topology.graph import Routes, Topology
from netsim.topology.layout import LINK_KINDS, TopologyError

# Preference: NVLink before anything else, then PCIe, as NCCL's path types rank them.
HOP_COST = {
    "nvlink": 1,
    "xgmi": 1,
    "c2c": 2,
    "pcie": 4,
    "nic": 4,
    "fabric": 4,
    "hostmem": 8,
    "upi": 16,
}
_FAR = np.int32(2**30)
_DEAD = 2**20  # a link without capacity: last resort
_CELLS = 4_000_000  # size of one relaxation's working array, in (link, destination) cells


@dataclass(frozen=True)
class StaticRouter:
    """Destination-based shortest paths. A GPU passes on no traffic of others unless its node says
    `forwards: True`.
    """

    per_channel: bool = False

    def routes(
        self,
        topology: Topology,
        src: NDArray[np.int32],
        dst: NDArray[np.int32],
        channel: NDArray[np.int32],
        way: str,
    ) -> Routes:
        """Routes from device to device; neither channel nor way changes them."""
        del channel, way
        start, end = topology.gpu_nodes[src], topology.gpu_nodes[dst]
        hops = walk(topology, start, end)
        if hops is None:
            return _refuse(topology, start, end)
        return pack_routes(topology, hops)


def walk(
    topology: Topology, start: NDArray[np.int32], end: NDArray[np.int32]
) -> NDArray[np.int32] | None:
    """Links of the cheapest path of every pair, padded with -1; None if a pair is not connected."""
    targets, column = np.unique(end, return_inverse=True)
    width = max(1, _CELLS // max(1, len(topology.links)))
    blocks = []
    for first in range(0, len(targets), width):
        mine = np.flatnonzero((column >= first) & (column < first + width))
        table = next_links(topology, targets[first : first + width])
        hops = _follow(topology, table, start[mine], end[mine], column[mine] - first)
        if hops is None:
            return None
        blocks.append((mine, hops))
    longest = max((hops.shape[1] for _, hops in blocks), default=0)
    result = np.full((len(start), longest), -1, np.int32)
    for mine, hops in blocks:
        result[mine, : hops.shape[1]] = hops
    return result


def next_links(topology: Topology, targets: NDArray[np.int32]) -> NDArray[np.int32]:
    """The link to take at each node (row) towards each target (column); -1 where there is none."""
    links = topology.links
    nodes, count = len(topology.nodes), len(targets)
    order = np.argsort(links.tail, kind="stable")
    tails, heads = links.tail[order], links.head[order]
    first = np.flatnonzero(np.r_[True, tails[1:] != tails[:-1]]) if len(order) else order
    cost = np.array([HOP_COST[kind] for kind in LINK_KINDS], np.int32)[links.kind[order]]
    cost[links.bandwidth[order] == 0] = _DEAD
    passes = topology.layout.passes
    distance = np.full((nodes, count), _FAR, np.int32)
    distance[targets, np.arange(count)] = 0
    while len(order):
        onward = np.where(passes[heads][:, None] | (distance[heads] == 0), distance[heads], _FAR)
        best = np.minimum.reduceat(onward + cost[:, None], first, axis=0)
        improved = best < distance[tails[first]]
        if not improved.any():
            break
        distance[tails[first]] = np.minimum(best, distance[tails[first]])
    table = np.full((nodes, count), -1, np.int32)
    if len(order):
        onward = np.where(passes[heads][:, None] | (distance[heads] == 0), distance[heads], _FAR)
        fits = onward + cost[:, None] == distance[tails]
        chosen = np.where(fits & (distance[tails] < _FAR), order[:, None], len(order))
        lowest = np.minimum.reduceat(chosen, first, axis=0).astype(np.int32)
        table[tails[first]] = np.where(lowest == len(order), -1, lowest)
    return table


def pack_routes(topology: Topology, hops: NDArray[np.int32]) -> Routes:
    """Routes from links padded with -1."""
    used = hops >= 0
    ptr = np.zeros(len(hops) + 1, np.int64)
    np.cumsum(used.sum(axis=1), out=ptr[1:])
    latency = np.where(used, topology.links.latency[hops], 0.0).sum(axis=1)
    return Routes(ptr, hops[used], np.ones(int(ptr[-1])), latency)


def _follow(
    topology: Topology,
    table: NDArray[np.int32],
    start: NDArray[np.int32],
    end: NDArray[np.int32],
    column: NDArray[np.int64],
) -> NDArray[np.int32] | None:
    """Walk all pairs at once along the table of next links."""
    heads = topology.links.head
    here, hops = start.copy(), []
    while (here != end).any():
        away = here != end
        step = np.where(away, table[here, column], -1)
        if (step[away] < 0).any():
            return None
        hops.append(step.astype(np.int32))
        here = np.where(away, heads[step], here)
    return np.stack(hops, axis=1) if hops else np.zeros((len(start), 0), np.int32)


def _refuse(topology: Topology, start: NDArray[np.int32], end: NDArray[np.int32]) -> Routes:
    for a, b in zip(start, end, strict=True):
        if walk(topology, np.array([a]), np.array([b])) is None:
            names = topology.nodes
            raise TopologyError(f"{topology.name}: no path from {names[a]} to {names[b]}")
    raise AssertionError("every pair is connected after all")
