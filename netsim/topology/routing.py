"""Static routes on any graph: cheapest path by kind of link, ties by link number.

Costs are computed for all destinations at once, one relaxation a hop. It serves the inside of hosts
and graphs of GPUs; paths between NICs are those of `topology/network.py`."""

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

# Preference: NVLink before anything else, then PCIe, as NCCL's path types rank them.
HOP_COST = {
    "nvlink": 1, "xgmi": 1, "c2c": 2, "pcie": 4, "nic": 4, "fabric": 4, "hostmem": 8, "upi": 16,
}  # fmt: skip
_FAR = np.int32(2**30)
_DEAD = 2**20  # a link without capacity: last resort
_CELLS = 4_000_000  # size of one relaxation's working array, in (link, destination) cells


@dataclass(frozen=True)
class StaticRouter(Router):
    """Destination-based shortest paths. A GPU passes on no traffic of others unless its node says
    `forwards: True`."""

    per_channel: bool = False

    def routes(self, topology: Topology, src: Ints, dst: Ints, channel: Ints, way: str) -> Routes:
        """Routes from device to device; neither channel nor way changes them."""
        start = topology.gpu_nodes[src]
        end = topology.gpu_nodes[dst]
        hops = walk(topology, start, end)
        if hops is None:
            for a, b in zip(start, end, strict=True):
                if walk(topology, np.array([a]), np.array([b])) is None:
                    names = topology.nodes
                    raise TopologyError(f"{topology.name}: no path from {names[a]} to {names[b]}")
            raise AssertionError("every pair is connected after all")
        return pack_routes(topology, hops, np.ones(hops.shape))


def walk(topology: Topology, start: Ints, end: Ints) -> Ints | None:
    """Links of the cheapest path of every pair, padded with -1; None if a pair is not connected."""
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
    """The links of a topology as routing sees them: `nodes` are those that pass on traffic, `core`
    the links between such, ordered by tail. `place` numbers the nodes, -1 for the others. `out` has
    all links ordered by tail; `cost` and `head` go by link."""

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
    """For some targets (columns): how far every passing node (row) is, and its link there."""

    def __init__(self, arcs: _Arcs, targets: Ints) -> None:
        self.arcs = arcs
        self.targets = targets
        self.column = np.full(len(arcs.place), -1, np.int32)  # of every node that is a target
        self.column[targets] = np.arange(len(targets))
        self.distance = np.full((len(arcs.nodes), len(targets)), _FAR, np.int32)
        passing = np.flatnonzero(arcs.place[targets] >= 0)
        self.distance[arcs.place[targets[passing]], passing] = 0
        # The last hop to a target that passes on nothing.
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
        """The lowest link that is on a cheapest way, -1 if there is none."""
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
        """The link to take at a node towards a target, -1 if there is none."""
        place = self.arcs.place[here]
        step = self.link[place, column] if len(self.link) else np.full(len(here), -1, np.int32)
        ends = np.flatnonzero(place < 0)
        if len(ends):
            step[ends] = self._first_links(here[ends], column[ends])
        return step

    def _first_links(self, here: Ints, column: Ints) -> Ints:
        """The same for nodes that pass on nothing, which are not in the table."""
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
    """Routes from links padded with -1, and the part of the bytes on each."""
    used = hops >= 0
    ptr = np.zeros(len(hops) + 1, np.int64)
    np.cumsum(used.sum(axis=1), out=ptr[1:])
    latency = (np.where(used, topology.links.latency[hops], 0.0) * fraction).sum(axis=1)
    return Routes(ptr, hops[used], fraction[used], latency)


def _follow(tables: _Tables, start: Ints, column: Ints) -> Ints | None:
    """Walk all pairs at once along the tables of next links."""
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


# Plain graphs as functions of a few numbers: switch, ring, full mesh, torus.
# GPUs are `gpu0`, `gpu1`, …; bandwidths are bytes/s in each direction, latencies seconds a hop. In
# rings, meshes and tori the GPUs are the routers, so they pass on traffic of others.


def switch(gpus: int, bandwidth: float, latency: float = 0.0) -> Topology:
    """GPUs on one non-blocking switch; `latency` is that of a whole traversal GPU to GPU."""
    graph = _gpus(gpus, forwards=False)
    graph.node("switch0", kind="switch")
    for gpu in range(gpus):
        _join(graph, f"gpu{gpu}", "switch0", bandwidth, latency / 2)
    return _topology(f"switch({gpus})", graph, gpus)


def ring(gpus: int, bandwidth: float, latency: float = 0.0) -> Topology:
    """Every GPU linked to the next, the last to the first."""
    pairs = [(i, (i + 1) % gpus) for i in range(gpus if gpus > 2 else gpus - 1)]
    return _mesh(f"ring({gpus})", gpus, pairs, bandwidth, latency)


def full_mesh(gpus: int, bandwidth: float, latency: float = 0.0) -> Topology:
    """A link between every two GPUs."""
    return _mesh(f"full-mesh({gpus})", gpus, combinations(range(gpus), 2), bandwidth, latency)


def torus(
    dims: Sequence[int],
    bandwidth: float | Sequence[float],
    latency: float | Sequence[float] = 0.0,
    **shape: Any,
) -> Topology:
    """A grid that closes in every dimension; rates and latencies of all, or by dimension."""
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
    """The cables of a torus, dimension after dimension: their ends, dimensions, and the seconds
    that they take more between cubes, whose faces optical switches join. Two places have one cable
    between them, not two. With a twist, what closes a dimension of k is shifted by k in every
    dimension of 2k."""
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
    """Refuse tori that cannot be twisted or cut into cubes."""
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
