"""Plain graphs as functions of a few numbers: switch, ring, full mesh, torus.

GPUs are `gpu0`, `gpu1`, …; bandwidths are bytes/s in each direction, latencies seconds a hop. In
rings, meshes and tori the GPUs are the routers, so they pass on traffic of others.
"""

from collections.abc import Iterable, Sequence
from itertools import combinations, product
from math import prod

from netsim.topology.graph import Topology
from netsim.topology.layout import Sketch, TopologyError
from netsim.topology.routing import StaticRouter


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


def torus(dims: Sequence[int], bandwidth: float, latency: float = 0.0) -> Topology:
    """A grid of the given extents that closes in every dimension."""
    if not dims or min(dims) < 1:
        raise TopologyError(f"torus: expected extents of at least 1, got {list(dims)}")
    strides = [prod(dims[k + 1 :]) for k in range(len(dims))]
    pairs = []
    for place in product(*(range(extent) for extent in dims)):
        here = sum(p * s for p, s in zip(place, strides, strict=True))
        for k, extent in enumerate(dims):
            if extent > 2 or (extent == 2 and place[k] == 0):
                step = ((place[k] + 1) % extent - place[k]) * strides[k]
                pairs.append((here, here + step))
    name = f"torus({'x'.join(map(str, dims))})"
    return _mesh(name, prod(dims), pairs, bandwidth, latency)


def _mesh(
    name: str, gpus: int, pairs: Iterable[tuple[int, int]], bandwidth: float, latency: float
) -> Topology:
    graph = _gpus(gpus, forwards=True)
    for a, b in pairs:
        _join(graph, f"gpu{a}", f"gpu{b}", bandwidth, latency)
    return _topology(name, graph, gpus)


def _gpus(gpus: int, *, forwards: bool) -> Sketch:
    if gpus < 1:
        raise TopologyError(f"gpus: expected at least 1, got {gpus}")
    graph = Sketch()
    for number in range(gpus):
        graph.node(f"gpu{number}", kind="gpu", forwards=forwards)
    return graph


def _join(graph: Sketch, a: str, b: str, bandwidth: float, latency: float) -> None:
    for tail, head in ((a, b), (b, a)):
        graph.edge(tail, head, bandwidth=bandwidth, latency=latency, kind="fabric")


def _topology(name: str, graph: Sketch, gpus: int) -> Topology:
    return Topology(name, graph, tuple(f"gpu{i}" for i in range(gpus)), StaticRouter())
