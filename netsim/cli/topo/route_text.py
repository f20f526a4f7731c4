"""How routes meet, as text: flows on links between switches, and where several share one."""

from collections.abc import Iterator

import numpy as np

from netsim.cli.topo.columns import labelled, plural
from netsim.topology.cluster import Cluster
from netsim.topology.figures import route_statistics
from netsim.topology.layout import NODE_KINDS

MOST_LINKS = 5


def route_lines(cluster: Cluster) -> Iterator[str]:
    """Every GPU sends one flow to the GPU half way round: who meets whom between switches."""
    topology = cluster.topology
    gpus = np.arange(len(topology), dtype=np.int32)
    other = (gpus + len(gpus) // 2) % len(gpus)
    found = route_statistics(topology, gpus, other)
    switch = topology.node_kinds == NODE_KINDS.index("switch")
    between = np.flatnonzero(switch[topology.links.tail] & switch[topology.links.head])
    flows = found.flows[between]
    yield "\nRoutes when every GPU sends to the one half way round, on channel 0:"
    if not flows.any():
        yield from labelled([("links", "no link between switches is on any of these routes")])
        return
    used = flows[flows > 0]
    rows = [
        ("links", f"{len(used)} of {len(between)} between switches in use"),
        ("flows a link", f"{used.mean():.3g} in the mean, {used.max():.3g} at most"),
        ("collisions", f"{plural(len(found.collisions), 'link')} with more than one flow"),
    ]
    worst = found.collisions[np.argsort(-found.flows[found.collisions], kind="stable")]
    rows += [
        ("", f"{found.flows[link]:.3g} flows on {topology.link_name(link)}")
        for link in worst[:MOST_LINKS].tolist()
    ]
    yield from labelled(rows)
