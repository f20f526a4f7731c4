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
