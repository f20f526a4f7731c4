"""What a cluster section is called, and what it asks: for results and for the id of a cell."""

from typing import TYPE_CHECKING, Any

from netsim.topology.config import ClusterConfig

if TYPE_CHECKING:
    from netsim.topology.machine import Machine


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
        graph: Any = config.graph
        return graph.bandwidth / 1e9 if getattr(graph, "kind", "") == "switch" else None
    machine = config.members[0].loaded.machine
    if node_count(config) > 1:
        return None if len(config.members) > 1 else _nic_sum(config, machine)
    up = machine.scale_up
    if up is None or up.links is None or not up.switches:
        return None
    return up.links * up.link_bandwidth / 1e9


def _nic_sum(config: ClusterConfig, machine: "Machine") -> float | None:
    nics = machine.nics
    if nics is None:
        return None
    chosen = config.nic or (config.fabric.nic if config.fabric else None)
    rates = (chosen,) * nics.count if chosen else nics.rates
    return sum(rates[: config.nics_per_node]) / 1e9
