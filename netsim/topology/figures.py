"""Compute figures of clusters and graphs: switches, cables, bisection, oversubscription, diameter.

The bisection is the maximum flow from the first half of the hosts to the second half, bytes per
second.
"""

from dataclasses import replace

import numpy as np

from netsim.base.values import dataclass
from netsim.topology import graph
from netsim.topology.cluster import Cluster
from netsim.topology.graph import GPU_LINKS, NODE_KINDS, Floats, Ints, Longs, Topology
from netsim.topology.network import Fabric, FabricNetwork, Ports, Selection
from netsim.topology.router import ClusterRouter

_UNITS = 2**30  # the maximum flow is computed in whole numbers: fractions of 1/2^30


@dataclass(frozen=True, slots=True)
class Figures:
    """Size and bandwidth of a fabric.

    Args:
        switches: number of switches by tier.
        cables: number of cables between switches.
        access: number of cables to NICs.
        bisection: bytes per second from the first half of the hosts to the second.
        oversubscription: usable rate of the NICs of the first half over `bisection`.
        diameter: number of switches on the longest route.
    """

    switches: dict[str, int]
    cables: int
    access: int
    bisection: float
    oversubscription: float
    diameter: int


def fabric_figures(cluster: Cluster) -> Figures | None:
    """Compute the figures of a cluster's fabric; None without a fabric, as for a single host."""
    made = cluster.fabric
    if made is None:
        return None
    bisection, line = _bisection(made, cluster.ports)
    outside = int((made.tail < made.ports).sum())
    counts = np.bincount(made.level, minlength=len(made.tiers)).tolist()
    return Figures(
        {level: n for level, n in zip(made.tiers, counts, strict=True) if n},
        len(made.tail) // 2 - outside,
        outside,
        bisection,
        line / bisection if bisection else float("inf"),
        _diameter(made),
    )


def gpu_bandwidth(cluster: Cluster) -> tuple[Floats, Floats]:
    """Return two arrays with the bytes per second that each GPU can send: over NVLink or xGMI, and
    over its share of its host's NICs.
    """
    links = cluster.topology.links
    topology = cluster.topology
    wide = np.isin(links.kind, GPU_LINKS)
    up = _summed(links.tail[wide], links.bandwidth[wide], len(topology.nodes))
    out = _summed(cluster.ports.owner, cluster.ports.rate, len(cluster.host_class))
    share = np.bincount(cluster.gpu_host, minlength=len(out))
    return up[topology.gpu_nodes], (out / np.maximum(share, 1))[cluster.gpu_host]


@dataclass(frozen=True, slots=True)
class RouteStatistics:
    """The load of each link when some flows run at once.

    Args:
        flows: number of flows on each link; fractions where a flow is sprayed.
        collisions: numbers of the links between switches with more than one flow.
    """

    flows: Floats
    collisions: Longs


def route_statistics(topology: Topology, src: Ints, dst: Ints, channel: int = 0) -> RouteStatistics:
    """Return how one flow from every device `src[i]` to `dst[i]`, all on one channel, loads the
    links.
    """
    routes = topology.routes_of_messages([(src, dst, np.full(len(src), channel, np.int32), "")])
    flows = _summed(routes.link, routes.fraction, len(topology.links))
    between = links_of_fabric(topology)
    return RouteStatistics(flows, between[flows[between] > 1 + 1e-9])


def links_of_fabric(topology: Topology) -> Longs:
    """Return the numbers of the links between switches."""
    switch = topology.node_kinds == NODE_KINDS.index("switch")
    return np.flatnonzero(switch[topology.links.tail] & switch[topology.links.head])


def loads_by_routing(cluster: Cluster, src: Ints, dst: Ints) -> dict[str, tuple[Floats, Longs]]:
    """Return for each routing policy the number of flows on each link between switches, and the
    numbers of these links.

    There is one flow from every device `src[i]` to `dst[i]`. The cluster's own policy comes first,
    then the others that its fabric allows.
    """
    router = cluster.topology.router
    assert isinstance(router, ClusterRouter)
    assert router.selection is not None
    now = router.selection
    grouped = () if now.fabric.groups is None else ("minimal", "valiant")
    between = links_of_fabric(cluster.topology)
    loads = {}
    sprayed = () if now.policy.in_order else ("spray",)
    names = ("static", "ecmp", *sprayed, "adaptive", *grouped)
    for routing in dict.fromkeys((now.policy.routing, *names)):
        policy = replace(now.policy, routing=routing)
        changed = replace(router, selection=Selection(now.fabric, policy))
        topology = replace(cluster.topology, router=changed)
        loads[routing] = route_statistics(topology, src, dst).flows[between], between
    return loads


def _bisection(made: Fabric, ports: Ports) -> tuple[float, float]:
    """Return the bisection of a fabric, and the bytes per second that the NICs of the first half
    can send.
    """
    order = np.unique(ports.host)
    first = np.isin(ports.host, order[: max(1, len(order) // 2)])
    source = made.ports + len(made.switches)
    sink = made.ports + len(made.switches) + 1
    out = made.tail < made.ports
    rate = _summed(made.tail[out], made.bandwidth[out], made.ports)
    ends = np.arange(made.ports)
    tail = np.concatenate([made.tail, np.full(int(first.sum()), source), ends[~first]])
    head = np.concatenate([made.head, ends[first], np.full(int((~first).sum()), sink)])
    capacity = np.concatenate([made.bandwidth, rate[first], rate[~first]])
    line = float(rate[first].sum())
    if not np.isfinite(capacity).all():
        return float("inf"), line
    unit = max(line, float(rate[~first].sum())) / _UNITS
    return _flow(tail, head, capacity, unit, (source, sink)), line


def _flow(tail: Longs, head: Longs, capacity: Floats, unit: float, ends: tuple[int, int]) -> float:
    """Return the maximum flow from node `ends[0]` to node `ends[1]` in bytes per second, computed
    in whole multiples of `unit` bytes per second.

    `tail`, `head` and `capacity` (bytes per second) describe the links.
    """
    units = np.round(np.minimum(capacity / unit, _UNITS))
    return float(f"{graph.flow([(tail, head, units)], *ends)[0] * unit:.5g}")


def _diameter(made: Fabric) -> int:
    """Return the number of switches on the longest of the routes from the first port and from the
    last port.
    """
    network = FabricNetwork(made)
    ends = np.arange(made.ports, dtype=np.int32)
    longest = 0
    for start in {0, made.ports - 1}:
        src = np.full(made.ports, start, np.int32)
        far = network.distance(src, ends)[network.joined(src, ends) & (src != ends)]
        longest = max(longest, int(far.max(initial=-1)) + 1)
    return longest


_MOST_STARTS = 64  # GPUs from which shortest routes are computed; regular graphs need only one
_MOST_CELLS = 400_000  # starts times nodes


@dataclass(frozen=True, slots=True)
class GraphFigures:
    """Bandwidth and distances of a topology, computed from its links.

    Args:
        out: bytes per second out of each GPU.
        bisection: bytes per second from the first half of the GPUs to the second.
        diameter: number of links on the longest of the shortest routes; -1 if some GPU is not
            reached.
        latency: seconds of that route.
    """

    out: Floats
    bisection: float
    diameter: int
    latency: float


def graph_figures(topology: Topology) -> GraphFigures:
    """Compute GPU bandwidth, bisection, diameter and latency of any topology, from its links."""
    links = topology.links
    gpus = topology.gpu_nodes
    out = _summed(links.tail, links.bandwidth, len(topology.nodes))[gpus]
    hops, latency = _graph_diameter(topology)
    return GraphFigures(out, _graph_bisection(topology, out), hops, latency)


def _summed(node: Ints, bandwidth: Floats, nodes: int) -> Floats:
    """Return for each of `nodes` nodes the sum of the bandwidths of the links at it; `node` is the
    node of each link.
    """
    return np.bincount(node, bandwidth, nodes).astype(np.float64)


def _graph_diameter(topology: Topology) -> tuple[int, float]:
    """Return the number of links on the longest of the shortest routes from some GPUs to all GPUs,
    and its latency in seconds; (-1, 0) if some GPU is not reached.
    """
    from scipy.sparse import csgraph, csr_array

    links = topology.links
    gpus = topology.gpu_nodes
    alive = links.bandwidth > 0
    shape = (len(topology.nodes),) * 2
    ends = links.tail[alive], links.head[alive]
    most = max(1, min(len(gpus), _MOST_STARTS, _MOST_CELLS // len(topology.nodes)))
    starts = gpus[np.unique(np.linspace(0, len(gpus) - 1, most).astype(int))]
    steps = csr_array((np.ones(len(ends[0])), ends), shape=shape)
    hops, before = csgraph.dijkstra(
        steps, indices=starts, unweighted=True, return_predecessors=True
    )
    if not np.isfinite(hops[:, gpus]).all():
        return -1, 0.0
    start, end = np.unravel_index(int(hops[:, gpus].argmax()), (len(starts), len(gpus)))
    route = [int(gpus[end])]
    while route[-1] != starts[start]:
        route.append(int(before[start, route[-1]]))
    seconds = csr_array((links.latency[alive], ends), shape=shape)
    pairs = zip(route[1:], route, strict=False)
    return len(route) - 1, float(sum(float(seconds[tail, head]) for tail, head in pairs))


def _graph_bisection(topology: Topology, out: Floats) -> float:
    """Return the bisection of a topology: bytes per second from the first half of its GPUs to the
    second. `out` is the bytes per second out of each GPU.
    """
    links = topology.links
    gpus = topology.gpu_nodes
    nodes = len(topology.nodes)
    half = len(gpus) // 2
    if not half:
        return 0.0
    into = _summed(links.head, links.bandwidth, nodes)[gpus]
    first = np.full(half, nodes)
    second = np.full(len(gpus) - half, nodes + 1)
    tail = np.concatenate([links.tail, first, gpus[half:]])
    head = np.concatenate([links.head, gpus[:half], second])
    capacity = np.concatenate([links.bandwidth, out[:half], into[half:]])
    total = float(out[:half].sum())
    if not np.isfinite(total):
        return float("inf")
    capacity = np.minimum(capacity, total)  # more than all GPUs send never limits
    return _flow(tail, head, capacity, max(total, 1.0) / _UNITS, (nodes, nodes + 1))


@dataclass(frozen=True, slots=True)
class TierSide:
    """The ports of one tier's switches in one direction (down, across or up).

    Args:
        ports: ports of the switch that has most of them.
        bandwidth: bytes per second of these ports.
    """

    ports: int
    bandwidth: float


@dataclass(frozen=True, slots=True)
class Tier:
    """The switches of one level of a fabric.

    Args:
        name: name of the level.
        switches: number of switches.
        down: ports towards NICs.
        across: ports to switches of the same level.
        up: ports away from NICs.
        ratio: the largest bandwidth down over bandwidth up of one of its switches.
    """

    name: str
    switches: int
    down: TierSide
    across: TierSide
    up: TierSide
    ratio: float

    @property
    def ports(self) -> int:
        """The number of ports in use of the fullest switch."""
        return self.down.ports + self.across.ports + self.up.ports


def tiers_of(fabric: Fabric) -> tuple[Tier, ...]:
    """Return the number of switches, the ports and the bandwidth of each level of a fabric, from
    the NICs up; levels without switches are left out.
    """
    level = fabric.level + 1
    rank = np.concatenate([np.zeros(fabric.ports, np.int64), level])  # NICs 0, leaves 1, ...
    counts = []
    carried = []
    steps = np.sign(rank[fabric.head] - rank[fabric.tail])
    for step in (-1, 0, 1):
        is_member = steps == step
        tail = fabric.tail[is_member]
        size = len(rank)
        counts.append(np.bincount(tail, minlength=size)[fabric.ports :])
        carried.append(np.bincount(tail, fabric.bandwidth[is_member], size)[fabric.ports :])
    tiers = []
    for number, name in enumerate(fabric.tiers, 1):
        is_member = level == number
        if is_member.any():
            down, across, up = (
                _side(c[is_member], b[is_member]) for c, b in zip(counts, carried, strict=True)
            )
            above = is_member & (carried[2] > 0)
            ratio = float((carried[0] / np.maximum(carried[2], 1))[above].max(initial=0.0))
            tiers.append(Tier(name, int(is_member.sum()), down, across, up, ratio))
    return tuple(tiers)


def _side(counts: Longs, carried: Floats) -> TierSide:
    """Return the ports of the switch with most ports; `counts` and `carried` are ports and bytes
    per second of each switch.
    """
    fullest = int(counts.argmax())
    return TierSide(int(counts[fullest]), float(carried[fullest]))
