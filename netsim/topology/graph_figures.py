"""Figures of a graph of GPUs: what each can send, the flow between its halves, its diameter."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import dijkstra, maximum_flow

from netsim.topology.graph import Topology

_UNITS = 2**30  # resolution of the flow, which is found in whole numbers
_MOST_STARTS = 64  # GPUs from which the diameter is looked for; regular graphs need only one
_MOST_CELLS = 400_000  # starts times nodes


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
    out = _summed(links.tail, links.bandwidth, len(topology.nodes))[gpus]
    hops, latency = _diameter(topology)
    return GraphFigures(out, _bisection(topology, out), hops, latency)


def _summed(
    node: NDArray[np.int32], bandwidth: NDArray[np.float64], nodes: int
) -> NDArray[np.float64]:
    """What the links of every node carry together."""
    total = np.zeros(nodes)
    np.add.at(total, node, bandwidth)
    return total


def _diameter(topology: Topology) -> tuple[int, float]:
    links, gpus = topology.links, topology.gpu_nodes
    alive = links.bandwidth > 0
    shape = (len(topology.nodes),) * 2
    ends = links.tail[alive], links.head[alive]
    most = max(1, min(len(gpus), _MOST_STARTS, _MOST_CELLS // len(topology.nodes)))
    starts = gpus[np.unique(np.linspace(0, len(gpus) - 1, most).astype(int))]
    steps = csr_array((np.ones(len(ends[0])), ends), shape=shape)
    hops, before = dijkstra(steps, indices=starts, unweighted=True, return_predecessors=True)
    if not np.isfinite(hops[:, gpus]).all():
        return -1, 0.0
    start, end = np.unravel_index(int(hops[:, gpus].argmax()), (len(starts), len(gpus)))
    route = [int(gpus[end])]
    while route[-1] != starts[start]:
        route.append(int(before[start, route[-1]]))
    seconds = csr_array((links.latency[alive], ends), shape=shape)
    pairs = zip(route[1:], route, strict=False)
    return len(route) - 1, float(sum(float(seconds[tail, head]) for tail, head in pairs))


def _bisection(topology: Topology, out: NDArray[np.float64]) -> float:
    """The largest flow from the first half of the GPUs to the others."""
    links, gpus, nodes = topology.links, topology.gpu_nodes, len(topology.nodes)
    half = len(gpus) // 2
    if not half:
        return 0.0
    into = _summed(links.head, links.bandwidth, nodes)[gpus]
    first, second = np.full(half, nodes), np.full(len(gpus) - half, nodes + 1)
    tail = np.concatenate([links.tail, first, gpus[half:]])
    head = np.concatenate([links.head, gpus[:half], second])
    capacity = np.concatenate([links.bandwidth, out[:half], into[half:]])
    total = float(out[:half].sum())
    if not np.isfinite(total):
        return float("inf")
    capacity = np.minimum(capacity, total)  # more than all GPUs send is as good as infinite
    unit = _unit(capacity, total)
    whole = np.round(np.minimum(capacity / unit, _UNITS)).astype(np.int32)
    matrix = csr_array(coo_array((whole, (tail, head)), shape=(nodes + 2, nodes + 2)))
    return float(f"{maximum_flow(matrix, nodes, nodes + 1).flow_value * unit:.5g}")


def _unit(capacity: NDArray[np.float64], total: float) -> float:
    """The bytes/s that flow is counted in: a common divisor of all capacities if one is found."""
    finest = max(total, 1.0) / _UNITS
    some = capacity[capacity > 0]
    for part in range(1, 25):
        unit = float(some.min(initial=np.inf)) / part
        counts = some / unit
        if unit > finest and np.allclose(counts, np.round(counts), rtol=0, atol=1e-9):
            return unit
    return finest
