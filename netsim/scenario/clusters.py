"""What a cluster section is called, and what it asks: for results and for the id of a cell."""

from typing import Any

from netsim.topology.config import ClusterConfig


def cluster_label(config: ClusterConfig) -> str:
    """The name of the machines, or of the graph."""
    if config.graph is not None:
        return getattr(config.graph, "kind", "graph")
    return " + ".join(dict.fromkeys(group.loaded.name for group in config.members))


def node_count(config: ClusterConfig) -> int:
    """Hosts; a graph counts as one."""
    return 1 if config.graph is not None else sum(group.nodes for group in config.members)


def question(config: ClusterConfig) -> dict[str, Any]:
    """The cluster with the contents of its machine files, as plain values."""
    asked: dict[str, Any] = config.model_dump(mode="json", exclude={"machine", "groups"})
    asked["hosts"] = [
        group.model_dump(mode="json", exclude={"machine"})
        | {"machine": group.loaded.machine.model_dump(mode="json")}
        for group in config.members
    ]
    return asked


def line_rate(config: ClusterConfig) -> float | None:
    """GB/s that a bus bandwidth is read against: a GPU's scale-up rate, or the NICs of a host."""
    if config.graph is not None:
        switched = getattr(config.graph, "kind", "") == "switch"
        return config.graph.bandwidth / 1e9 if switched else None
    group = config.members[0]
    machine = group.loaded.machine
    if node_count(config) > 1:
        nics = machine.nics
        if nics is None or len(config.members) > 1:
            return None
        count = nics.count if config.nics_per_node is None else config.nics_per_node
        return count * (config.nic or nics.rate) / 1e9
    up = machine.scale_up
    if up is None or up.links is None:
        return None
    return up.links * up.link_bandwidth / 1e9 if up.switches else None
