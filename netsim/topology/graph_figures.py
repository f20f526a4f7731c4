"""Figures of a graph of GPUs: what each can send, the flow between its halves, its diameter."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import dijkstra, maximum_flow

from netsim.topology.graph import Topology

_UNITS = 2**24  # resolution of the flow, which is found in whole numbers
_MOST_STARTS = 64  # GPUs from which the diameter is looked for; regular graphs need only one


@dataclass(frozen=True, slots=True)
class GraphFigures:
    """Bytes/s out of each GPU, and from the first half of the GPUs to the others; the most links
    on a shortest route (-1: some GPU is not reached), and the latency of such a route in seconds.
    """

    out: NDArray[np.float64]
    bisection: float
    diameter: int
    latency: float


def graph_figures(topology: Topology) -> GraphFigures:
    """The figures of any topology, from its links alone."""
    links, gpus = topology.links, topology.gpu_nodes
    out = np.bincount(links.tail, links.bandwidth, len(topology.nodes))[gpus]
    hops, latency = _diameter(topology)
    return GraphFigures(out, _bisection(topology, out), hops, latency)


def _diameter(topology: Topology) -> tuple[int, float]:
    links, gpus = topology.links, topology.gpu_nodes
    alive = links.bandwidth > 0
    shape = (len(topology.nodes),) * 2
    ends = links.tail[alive], links.head[alive]
    starts = np.unique(np.linspace(0, len(gpus) - 1, min(len(gpus), _MOST_STARTS)).astype(int))
    steps = csr_array((np.ones(len(ends[0])), ends), shape=shape)
    hops = dijkstra(steps, indices=gpus[starts], unweighted=True)[:, gpus]
    if not np.isfinite(hops).all():
        return -1, 0.0
    start, end = np.unravel_index(int(hops.argmax()), hops.shape)
    pair = np.array([starts[start]], np.int32), np.array([end], np.int32)
    if pair[0] == pair[1]:
        return 0, 0.0
    routes = topology.routes(*pair, np.zeros(1, np.int32))
    return int(hops.max()), float(routes.latency[0])


def _bisection(topology: Topology, out: NDArray[np.float64]) -> float:
    """The largest flow from the first half of the GPUs to the others."""
    links, gpus, nodes = topology.links, topology.gpu_nodes, len(topology.nodes)
    half = len(gpus) // 2
    if not half:
        return 0.0
    into = np.bincount(links.head, links.bandwidth, nodes)[gpus]
    first, second = np.full(half, nodes), np.full(len(gpus) - half, nodes + 1)
    tail = np.concatenate([links.tail, first, gpus[half:]])
    head = np.concatenate([links.head, gpus[:half], second])
    capacity = np.concatenate([links.bandwidth, out[:half], into[half:]])
    if not np.isfinite(capacity).all():
        return float("inf")
    unit = max(float(out[:half].sum()), 1.0) / _UNITS
    whole = np.round(np.minimum(capacity / unit, _UNITS)).astype(np.int32)
    matrix = csr_array(coo_array((whole, (tail, head)), shape=(nodes + 2, nodes + 2)))
    return float(f"{maximum_flow(matrix, nodes, nodes + 1).flow_value * unit:.5g}")
