"""A fabric that a scenario writes out: switches, and cables between them and the NICs."""

from math import inf

import numpy as np

from netsim.topology.fabrics.fabric import Fabric, Ints, Ports, Terms
from netsim.topology.graph import Topology
from netsim.topology.layout import Sketch, TopologyError
from netsim.topology.routing import StaticRouter, walk
from netsim.values import dataclass

Cable = tuple[int, int, float | None, float | None]  # ends, bytes/s, seconds


@dataclass(frozen=True)
class Searched:
    """Cheapest paths in a graph whose first nodes are the ports."""

    topology: Topology

    def choices(self, src: Ints, dst: Ints) -> Ints:
        """One path, wherever there is one."""
        if walk(self.topology, src, dst) is not None:
            return np.ones(len(src), np.int32)
        pairs = zip(src[:, None], dst[:, None], strict=True)
        return np.array([walk(self.topology, *pair) is not None for pair in pairs], np.int32)

    def hops(self, src: Ints, dst: Ints, choice: Ints) -> Ints:
        """The cheapest path."""
        found = walk(self.topology, src, dst)
        assert found is not None  # pairs without a choice are not asked for
        return found

    def order(self, dst: Ints) -> Ints:
        """By destination port."""
        return dst


def custom(
    ports: Ports,
    terms: Terms,
    switches: tuple[str, ...],
    cables: list[Cable],
) -> Fabric:
    """Ends of cables are numbered: ports first, then switches."""
    joined = {end for cable in cables for end in cable[:2]}
    missing = next((port for port in range(len(ports)) if port not in joined), None)
    if missing is not None:
        name = f"node{ports.owner[missing]}.nic{ports.rail[missing]}"
        raise TopologyError(f"links: {name} is on no switch")
    graph = _graph(ports, terms, len(switches), cables)
    topology = Topology("custom", graph, (0,), StaticRouter())
    links = topology.links
    return Fabric(
        "custom",
        len(ports),
        switches,
        (("switch", 0),),
        0,
        links.tail,
        links.head,
        links.bandwidth,
        links.latency,
        Searched(topology),
    )


def _graph(ports: Ports, terms: Terms, switches: int, cables: list[Cable]) -> Sketch:
    """Ports and switches by number, and every cable in both directions."""
    graph = Sketch()
    for number in range(len(ports)):
        graph.node(number, kind="nic", forwards=False)
    for number in range(switches):
        graph.node(len(ports) + number, kind="switch")
    for low, high, rate, latency in sorted(cables, key=lambda cable: cable[:2]):
        port = next((end for end in (low, high) if end < len(ports)), None)
        usual = terms.link if port is None else float(ports.rate[port])
        most = inf if port is None else terms.nic_cap
        for tail, head in ((low, high), (high, low)):
            hop = terms.nic if head < len(ports) else terms.hop
            graph.edge(
                tail,
                head,
                bandwidth=min((rate or usual) * terms.usable, most),
                latency=hop if latency is None else latency,
                kind="fabric",
            )
    return graph
