"""Figures of a cluster: switches, cables, bisection bandwidth, oversubscription, diameter.

Bisection is the largest flow from the first half of the fabric's hosts to the other half.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import maximum_flow

from netsim.topology.cluster import Cluster
from netsim.topology.fabrics.fabric import Fabric, Ints, Ports
from netsim.topology.graph import Topology
from netsim.topology.layout import GPU_LINKS, NODE_KINDS

_UNITS = 2**30  # resolution of the flow, which is found in whole numbers


@dataclass(frozen=True, slots=True)
class Figures:
    """What a fabric has and gives.

    `switches` by tier; `cables` between switches and `access` cables to NICs; bytes/s from one
    half of the hosts to the other; line rate of a half over that; switches on the longest route.
    """

    switches: dict[str, int]
    cables: int
    access: int
    bisection: float
    oversubscription: float
    diameter: int


def fabric_figures(cluster: Cluster) -> Figures | None:
    """The figures of the fabric of a cluster; None for a single host."""
    made = cluster.fabric
    if made is None:
        return None
    bisection, line = _bisection(made, cluster.ports)
    outside = int((made.tail < made.ports).sum())
    firsts = [first for _, first in made.tiers] + [len(made.switches)]
    counts = np.diff(firsts).tolist()
    return Figures(
        {level: n for (level, _), n in zip(made.tiers, counts, strict=True) if n},
        len(made.tail) // 2 - outside,
        outside,
        bisection,
        line / bisection if bisection else float("inf"),
        _diameter(made),
    )


def gpu_bandwidth(cluster: Cluster) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """What each GPU can send: over NVLink or xGMI, and over its part of the host's NICs."""
    links, topology = cluster.topology.links, cluster.topology
    up = np.zeros(len(topology.nodes))
    wide = np.isin(links.kind, GPU_LINKS)
    np.add.at(up, links.tail[wide], links.bandwidth[wide])
    out = np.zeros(len(cluster.host_class))
    np.add.at(out, cluster.ports.owner, cluster.ports.rate)
    share = np.bincount(cluster.gpu_host, minlength=len(out))
    return up[topology.gpu_nodes], (out / np.maximum(share, 1))[cluster.gpu_host]


@dataclass(frozen=True, slots=True)
class RouteStatistics:
    """How routes meet: flows on every link (in whole flows), and the links between switches that
    carry more than one.
    """

    flows: NDArray[np.float64]
    collisions: NDArray[np.int64]


def route_statistics(
    topology: Topology, src: Ints, dst: Ints, channel: int = 0, way: str = ""
) -> RouteStatistics:
    """The statistics of one flow from every `src[i]` to `dst[i]`."""
    routes = topology.routes(src, dst, np.full(len(src), channel, np.int32), way)
    flows = np.zeros(len(topology.links))
    np.add.at(flows, routes.link, routes.fraction)
    switch = topology.node_kinds == NODE_KINDS.index("switch")
    between = switch[topology.links.tail] & switch[topology.links.head]
    return RouteStatistics(flows, np.flatnonzero(between & (flows > 1 + 1e-9)))


def _bisection(made: Fabric, ports: Ports) -> tuple[float, float]:
    """Bytes/s between the halves, and what the NICs of the first half can send."""
    order = np.unique(ports.host)
    first = np.isin(ports.host, order[: max(1, len(order) // 2)])
    source, sink = made.ports + len(made.switches), made.ports + len(made.switches) + 1
    rate = np.zeros(made.ports)
    out = made.tail < made.ports
    np.add.at(rate, made.tail[out], made.bandwidth[out])
    ends = np.arange(made.ports)
    tail = np.concatenate([made.tail, np.full(int(first.sum()), source), ends[~first]])
    head = np.concatenate([made.head, ends[first], np.full(int((~first).sum()), sink)])
    capacity = np.concatenate([made.bandwidth, rate[first], rate[~first]])
    line = float(rate[first].sum())
    if not np.isfinite(capacity).all():
        return float("inf"), line
    unit = max(line, float(rate[~first].sum())) / _UNITS
    whole = np.round(np.minimum(capacity / unit, _UNITS)).astype(np.int32)
    matrix = csr_array(coo_array((whole, (tail, head)), shape=(sink + 1, sink + 1)))
    return float(f"{maximum_flow(matrix, source, sink).flow_value * unit:.5g}"), line


def _diameter(made: Fabric) -> int:
    """Switches on the longest of the routes from the first and the last port."""
    ends = np.arange(made.ports, dtype=np.int32)
    longest = 0
    for start in {0, made.ports - 1}:
        src = np.full(made.ports, start, np.int32)
        joined = (made.wiring.choices(src, ends) > 0) & (src != ends)
        hops = made.wiring.hops(src[joined], ends[joined], 0 * ends[joined])
        longest = max(longest, int((hops >= 0).sum(axis=1).max(initial=1)) - 1)
    return longest
