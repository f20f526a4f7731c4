"""Static routes on any graph: the cheapest path by kind of link; of equally cheap ones, that with
the lowest link numbers.

Costs are computed for all destinations at once, one relaxation for each hop. This module serves the
inside of hosts and graphs of GPUs; paths between NICs are found by `topology/network.py`.
"""

from collections.abc import Iterable, Sequence
from itertools import combinations
from math import prod
from typing import Any

import numpy as np

from netsim.base.values import dataclass
from netsim.topology.graph import (
    LINK_KINDS,
    Floats,
    GraphSketch,
    Ints,
    Longs,
    Router,
    Routes,
    Topology,
    TopologyError,
)

# The cost of a hop by kind of link: NVLink is preferred to PCIe and so on, in the order of NCCL's
# path types.
HOP_COST = {
    "nvlink": 1, "xgmi": 1, "c2c": 2, "pcie": 4, "nic": 4, "fabric": 4, "hostmem": 8, "upi": 16,
}  # fmt: skip
_FAR = np.int32(2**30)
_DEAD = 2**20  # a link without capacity: last resort
_CELLS = 4_000_000  # size of one relaxation's working array, in (link, destination) cells


@dataclass(frozen=True)
class StaticRouter(Router):
    """Shortest paths that depend on the destination only. A GPU does not forward traffic between
    others unless its node has `forwards: True`.
    """

    per_channel: bool = False

    def routes(self, topology: Topology, src: Ints, dst: Ints, channel: Ints, way: str) -> Routes:
        """Return the routes from device `src[i]` to device `dst[i]`; `channel` and `way` do not
        change them.
        """
        start = topology.gpu_nodes[src]
        end = topology.gpu_nodes[dst]
        hops = cheapest_paths(topology, start, end)
        if hops is None:
            for a, b in zip(start, end, strict=True):
                if cheapest_paths(topology, np.array([a]), np.array([b])) is None:
                    names = topology.nodes
                    raise TopologyError(f"{topology.name}: no path from {names[a]} to {names[b]}")
            raise AssertionError("every pair is connected after all")
        return pack_routes(topology, hops, np.ones(hops.shape))


def cheapest_paths(topology: Topology, start: Ints, end: Ints) -> Ints | None:
    """Return the links of the cheapest path from node `start[i]` to `end[i]`, a row each, padded
    with -1; None if any pair is not connected.
    """
    targets, column = np.unique(end, return_inverse=True)
    arcs = _arcs(topology)
    width = max(1, _CELLS // max(1, len(arcs.core) + len(arcs.nodes)))
    blocks = []
    for first in range(0, len(targets), width):
        members = np.flatnonzero((column >= first) & (column < first + width))
        tables = _Tables(arcs, targets[first : first + width])
        hops = _follow(tables, start[members], (column[members] - first).astype(np.int32))
        if hops is None:
            return None
        if len(members) == len(start):
            return hops
        blocks.append((members, hops))
    longest = max((hops.shape[1] for _, hops in blocks), default=0)
    result = np.full((len(start), longest), -1, np.int32)
    for members, hops in blocks:
        result[members, : hops.shape[1]] = hops
    return result


@dataclass(frozen=True, slots=True)
class _Arcs:
    """The links of a topology, prepared for routing.

    Args:
        nodes: the nodes that forward traffic.
        place: index in `nodes` of every node; -1 for nodes that do not forward.
        core: the links between two forwarding nodes, sorted by tail.
        out: all links, sorted by tail.
        out_ptr: where the links of each node begin in `out`.
        cost: cost of every link (HOP_COST).
        tail: node that every link leaves.
        head: node that every link enters.
    """

    nodes: Longs
    place: Longs
    core: Longs
    out: Longs
    out_ptr: Longs
    cost: Ints
    tail: Ints
    head: Ints


def _arcs(topology: Topology) -> _Arcs:
    links = topology.links
    passes = topology.layout.passes
    nodes = np.flatnonzero(passes)
    place = np.full(len(topology.nodes), -1)
    place[nodes] = np.arange(len(nodes))
    out = np.argsort(links.tail, kind="stable")
    cost = np.array([HOP_COST[kind] for kind in LINK_KINDS], np.int32)[links.kind]
    cost[links.bandwidth == 0] = _DEAD
    out_ptr = np.searchsorted(links.tail[out], np.arange(len(topology.nodes) + 1))
    core = out[passes[links.tail[out]] & passes[links.head[out]]]
    return _Arcs(nodes, place, core, out, out_ptr, cost, links.tail, links.head)


class _Tables:
    """For each forwarding node (row) and target (column): the cost of the cheapest path, and its
    first link.
    """

    def __init__(self, arcs: _Arcs, targets: Ints) -> None:
        self.arcs = arcs
        self.targets = targets
        self.column = np.full(len(arcs.place), -1, np.int32)  # of every node that is a target
        self.column[targets] = np.arange(len(targets))
        self.distance = np.full((len(arcs.nodes), len(targets)), _FAR, np.int32)
        passing = np.flatnonzero(arcs.place[targets] >= 0)
        self.distance[arcs.place[targets[passing]], passing] = 0
        # The last hop to a target that does not forward.
        last = (self.column[arcs.head] >= 0) & (arcs.place[arcs.head] < 0)
        self.last = np.flatnonzero(last & (arcs.place[arcs.tail] >= 0))
        self.last_cell = arcs.place[arcs.tail[self.last]], self.column[arcs.head[self.last]]
        np.minimum.at(self.distance, self.last_cell, arcs.cost[self.last])
        self.tails = arcs.place[arcs.tail[arcs.core]]
        self.first = np.flatnonzero(np.r_[True, self.tails[1:] != self.tails[:-1]])
        self._relax()
        self.link = self._links()

    def _relax(self) -> None:
        starts = self.tails[self.first] if len(self.tails) else self.tails
        while len(starts):
            best = np.minimum.reduceat(self._onward(), self.first, axis=0)
            if not (best < self.distance[starts]).any():
                return
            self.distance[starts] = np.minimum(best, self.distance[starts])

    def _onward(self) -> Ints:
        arcs = self.arcs
        onward: Ints = self.distance[arcs.place[arcs.head[arcs.core]]]
        onward += arcs.cost[arcs.core][:, None]
        return onward

    def _links(self) -> Ints:
        """Return for each node and target the lowest-numbered link on a cheapest path, -1 if there
        is none.
        """
        arcs, none = self.arcs, len(self.arcs.head)
        link = np.full(self.distance.shape, none, np.int32)
        if len(arcs.core):
            near = self.distance[self.tails]
            fits = (self._onward() == near) & (near < _FAR)
            chosen = np.where(fits, arcs.core[:, None].astype(np.int32), np.int32(none))
            link[self.tails[self.first]] = np.minimum.reduceat(chosen, self.first, axis=0)
        fits = arcs.cost[self.last] == self.distance[self.last_cell]
        cells = tuple(part[fits] for part in self.last_cell)
        np.minimum.at(link, cells, self.last[fits].astype(np.int32))
        link[link == none] = -1
        return link

    def next_links(self, here: Ints, column: Ints) -> Ints:
        """Return the first link of the cheapest path from node `here[i]` to the target in
        `column[i]`; -1 if there is none.
        """
        place = self.arcs.place[here]
        step = self.link[place, column] if len(self.link) else np.full(len(here), -1, np.int32)
        ends = np.flatnonzero(place < 0)
        if len(ends):
            step[ends] = self._first_links(here[ends], column[ends])
        return step

    def _first_links(self, here: Ints, column: Ints) -> Ints:
        """Return the first link of the cheapest path from node `here[i]` to the target in
        `column[i]`, -1 if there is none, for nodes that do not forward. They have no row in the
        table, so the costs over all their links are compared.
        """
        arcs = self.arcs
        best = np.full(len(here), _FAR)
        chosen = np.full(len(here), -1, np.int32)
        degree = arcs.out_ptr[here + 1] - arcs.out_ptr[here]
        for k in range(int(degree.max(initial=0))):
            link = arcs.out[np.where(k < degree, arcs.out_ptr[here] + k, 0)]
            head = arcs.head[link]
            onward = (
                np.where(arcs.place[head] >= 0, self.distance[arcs.place[head], column], _FAR)
                if len(arcs.nodes)
                else np.full(len(here), _FAR)
            )
            onward = np.where(head == self.targets[column], 0, onward) + arcs.cost[link]
            better = (k < degree) & (onward < best)
            best = np.where(better, onward, best)
            chosen = np.where(better, link, chosen)
        return chosen.astype(np.int32)


def pack_routes(topology: Topology, hops: Ints, fraction: Floats) -> Routes:
    """Return routes in CSR form, given a row of links for each pair (padded with -1) and the
    fraction of the bytes on each link.
    """
    used = hops >= 0
    ptr = np.zeros(len(hops) + 1, np.int64)
    np.cumsum(used.sum(axis=1), out=ptr[1:])
    latency = (np.where(used, topology.links.latency[hops], 0.0) * fraction).sum(axis=1)
    return Routes(ptr, hops[used], fraction[used], latency)


def _follow(tables: _Tables, start: Ints, column: Ints) -> Ints | None:
    """Return the links of all paths from `start[i]` to the target in `column[i]`, a row each, by
    following the tables; None if a pair is not connected.
    """
    end = tables.targets[column]
    here = start.copy()
    hops = []
    while (away := here != end).any():
        step = np.full(len(here), -1, np.int32)
        step[away] = tables.next_links(here[away], column[away])
        if (step[away] < 0).any():
            return None
        hops.append(step)
        here = np.where(away, tables.arcs.head[step], here)
    return np.stack(hops, axis=1) if hops else np.zeros((len(start), 0), np.int32)


# Simple graphs from a few numbers: switch, ring, full mesh, torus. GPUs are `gpu0`, `gpu1`, …;
# bandwidths are bytes/s in each direction, latencies seconds of a hop. In rings, meshes and tori
# the GPUs are the routers, so they forward traffic between others.


def switch(gpus: int, bandwidth: float, latency: float = 0.0) -> Topology:
    """Return GPUs on one non-blocking switch; `latency` is the seconds of the whole way from GPU to
    GPU.
    """
    graph = _gpus(gpus, forwards=False)
    graph.node("switch0", kind="switch")
    for gpu in range(gpus):
        _join(graph, f"gpu{gpu}", "switch0", bandwidth, latency / 2)
    return _topology(f"switch({gpus})", graph, gpus)


def ring(gpus: int, bandwidth: float, latency: float = 0.0) -> Topology:
    """Return a ring: every GPU is linked to the next, the last to the first."""
    pairs = [(i, (i + 1) % gpus) for i in range(gpus if gpus > 2 else gpus - 1)]
    return _mesh(f"ring({gpus})", gpus, pairs, bandwidth, latency)


def full_mesh(gpus: int, bandwidth: float, latency: float = 0.0) -> Topology:
    """Return a full mesh: a link between every two GPUs."""
    return _mesh(f"full-mesh({gpus})", gpus, combinations(range(gpus), 2), bandwidth, latency)


def torus(
    dims: Sequence[int],
    bandwidth: float | Sequence[float],
    latency: float | Sequence[float] = 0.0,
    **shape: Any,
) -> Topology:
    """Return a torus of GPUs.

    Args:
        dims: number of GPUs in each dimension.
        bandwidth: bytes/s of a link, or of the links of each dimension.
        latency: seconds of a hop, or of the hops of each dimension.
        shape: `twist`, `cube` and `optical`, see `grid_cables`.
    """
    if not dims or min(dims) < 1:
        raise TopologyError(f"torus: expected extents of at least 1, got {list(dims)}")
    low, high, axis, optical = grid_cables(dims, **shape)
    graph = _gpus(prod(dims), forwards=True)
    rates, hops = (np.broadcast_to(given, len(dims))[axis] for given in (bandwidth, latency))
    ends = zip(low.tolist(), high.tolist(), rates.tolist(), (hops + optical).tolist(), strict=True)
    for a, b, rate, hop in ends:
        _join(graph, f"gpu{a}", f"gpu{b}", rate, hop)
    return _topology(f"torus({'x'.join(map(str, dims))})", graph, prod(dims))


def grid_cables(
    dims: Sequence[int], *, twist: bool = False, cube: int = 0, optical: float = 0.0
) -> tuple[Ints, Ints, Ints, Floats]:
    """Return the cables of a torus, dimension by dimension: one end, the other end, the dimension,
    and the additional seconds of each.

    Places are numbered row by row (the last dimension fastest). In a dimension of length 2, two
    places share one cable, not two.

    Args:
        dims: number of places in each dimension.
        twist: whether the cables that close a dimension of length k are shifted by k in every
            dimension of length 2k.
        cube: places along the edge of a cube; cables between cubes pass optical switches. 0: none.
        optical: additional seconds of the cables between cubes.
    """
    check_grid(dims, twist=twist, cube=cube)
    place = np.indices(tuple(dims)).reshape(len(dims), -1)
    parts = []
    for axis, extent in enumerate(dims):
        longer = [n for n, other in enumerate(dims) if twist and other == 2 * extent]
        onward = extent if longer else {1: 0, 2: 1}.get(extent, extent)
        starts = np.flatnonzero(place[axis] < onward)
        ends = place[:, starts].copy()
        ends[axis] = (ends[axis] + 1) % extent
        closing = place[axis][starts] == extent - 1
        for n in longer:
            ends[n] = np.where(closing, (ends[n] + extent) % dims[n], ends[n])
        number = np.ravel_multi_index(tuple(ends), tuple(dims))
        between = (place[axis][starts] + 1) % cube == 0 if cube else np.zeros(len(starts), bool)
        parts.append((starts, number, 0 * starts + axis, between * optical))
    low, high, axes, more = (np.concatenate(column) for column in zip(*parts, strict=True))
    return low.astype(np.int32), high.astype(np.int32), axes.astype(np.int32), more


def check_grid(dims: Sequence[int], *, twist: bool, cube: int) -> None:
    """Refuse a twist without a dimension twice as long as another, and dimensions that are no
    multiple of `cube`.
    """
    wrong = next((extent for extent in dims if cube and extent % cube), 0)
    if wrong:
        raise TopologyError(f"dims: {wrong} is no multiple of the cube's {cube}")
    if twist and not any(2 * a == b for a in dims for b in dims):
        raise TopologyError("twist: no dimension is twice as long as another")


def _mesh(
    name: str, gpus: int, pairs: Iterable[tuple[int, int]], bandwidth: float, latency: float
) -> Topology:
    graph = _gpus(gpus, forwards=True)
    for a, b in pairs:
        _join(graph, f"gpu{a}", f"gpu{b}", bandwidth, latency)
    return _topology(name, graph, gpus)


def _gpus(gpus: int, *, forwards: bool) -> GraphSketch:
    if gpus < 1:
        raise TopologyError(f"gpus: expected at least 1, got {gpus}")
    graph = GraphSketch()
    for number in range(gpus):
        graph.node(f"gpu{number}", kind="gpu", forwards=forwards)
    return graph


def _join(graph: GraphSketch, a: str, b: str, bandwidth: float, latency: float) -> None:
    graph.edge(a, b, both=True, bandwidth=bandwidth, latency=latency, kind="fabric")


def _topology(name: str, graph: GraphSketch, gpus: int) -> Topology:
    return Topology(name, graph, tuple(f"gpu{i}" for i in range(gpus)), StaticRouter())
