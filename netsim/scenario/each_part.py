"""Sweeps over the parts of a cluster, which show the cost of each part when it is dead.

`sweep: {faults: each nic}` has one cell with only the faults that the scenario already has (labeled
`healthy`, the base line), and one cell per NIC in which this NIC is dead as well. `each rail`,
`each leaf`, `each spine` and `each switch` do the same for these; with `each host` the job runs on
the other hosts. `each nic at 50%` leaves half of the part's bandwidth.
"""

import re
from collections.abc import Sequence
from typing import Any

from netsim.base.errors import InputError, suggest
from netsim.base.values import dataclass
from netsim.topology.cluster import build_cluster, usual_fabric
from netsim.topology.config import ClusterConfig
from netsim.topology.graph import NODE_KINDS, Topology, TopologyError
from netsim.yamlio.read import KeyPath, Source
from netsim.yamlio.validate import validate

EACH = re.compile(r"each\s+(\w+?)s?(?:\s+at\s+(\S+))?")
PARTS = ("nic", "rail", "leaf", "spine", "switch", "host")
HEALTHY = "healthy"


@dataclass(frozen=True, slots=True)
class PartStep:
    """A value of the axis: its label, and the keys of the scenario that it changes."""

    label: str
    changes: tuple[tuple[str, Any], ...]


def names_each_part(value: object) -> bool:
    """Whether the value of an axis has the form `each PART`."""
    return isinstance(value, str) and value.split()[:1] == ["each"]


def part_steps(source: Source, path: KeyPath, value: str) -> list[PartStep]:
    """Return the values of an axis `each PART`: first the cluster with the faults of the scenario,
    then for each part the same with this part failing.

    `value` is the text in the file at `path`. Raises an error with this position if it cannot be
    read, or if the cluster has no such part.
    """
    match = EACH.fullmatch(value.strip())
    part = match[1] if match else ""
    if match is None or part not in PARTS:
        choices = ", ".join(f"each {name}" for name in PARTS)
        raise source.error(path, f"expected one of {choices}, got {value!r}{suggest(part, PARTS)}")
    left = match[2]
    cluster = source.data.get("cluster")
    if not isinstance(cluster, dict) or "graph" in cluster:
        raise source.error(path, "needs a cluster of machines, whose parts it goes through")
    config = _config(source, cluster)
    try:
        topology = build_cluster(config).topology
    except TopologyError as error:
        raise source.error(("cluster",), error.message, key=True) from None
    present = list(cluster.get("faults") or [])
    steps = [PartStep(HEALTHY, (("cluster.faults", present),))]
    if part == "host":
        return steps + _without_each_host(source, path, cluster, config, left)
    names = part_names(topology, part)
    if not names:
        raise source.error(path, f"this cluster has no {part}")
    for name in names:
        fault = {part: name, **({"bandwidth": left} if left else {})}
        label = f"{part} {name}" if part == "rail" else name
        steps.append(PartStep(label, (("cluster.faults", [*present, fault]),)))
    return steps


def _config(source: Source, cluster: dict[str, Any]) -> ClusterConfig:
    """Return the section `cluster` without its own faults, so that no part is missing when parts
    are listed.
    """
    healthy = {key: value for key, value in cluster.items() if key != "faults"}
    try:
        return validate(ClusterConfig, Source(source.name, healthy))
    except InputError as error:
        raise source.error(("cluster",), str(error), key=True) from None


def part_names(topology: Topology, part: str) -> list[str]:
    """Return the names of NICs or switches, or the numbers of rails, by the kind `part`."""
    names = [str(name) for name in topology.nodes]
    kinds = [NODE_KINDS[kind] for kind in topology.node_kinds.tolist()]
    if part in ("nic", "rail"):
        nics = [name for name, kind in zip(names, kinds, strict=True) if kind == "nic"]
        if part == "nic":
            return nics
        return sorted({name.rpartition(".nic")[2] for name in nics}, key=int)
    switches = [name for name, kind in zip(names, kinds, strict=True) if kind == "switch"]
    return [name for name in switches if part == "switch" or name.startswith(part)]


def _without_each_host(
    source: Source, path: KeyPath, cluster: dict[str, Any], config: ClusterConfig, left: str | None
) -> list[PartStep]:
    """Return the values of the axis `each host`: the job runs on all hosts but one, on the same
    fabric.

    With `at 50%` (`left`), all hosts run, and the NIC cables of one host keep that fraction of
    their bandwidth.
    """
    count = sum(group.nodes for group in config.members)
    present = list(cluster.get("faults") or [])
    if left:
        return [
            PartStep(
                f"node{host}", (("cluster.faults", [*present, {"host": host, "bandwidth": left}]),)
            )
            for host in range(count)
        ]
    if config.groups or config.placement != "contiguous" or config.sites is not None:
        message = "each host goes with one kind of machine, placed contiguously, and no sites"
        raise source.error(path, message)
    if count < 2:
        raise source.error(path, "needs two hosts or more: without the only one nothing runs")
    machine = config.members[0].loaded.machine
    nics = machine.nics.count if machine.nics else 0
    fabric = dict(cluster.get("fabric") or {"kind": usual_fabric(nics).kind})
    steps = []
    for host in range(count):
        others = [other for other in range(count) if other != host]
        changes: Sequence[tuple[str, Any]] = (
            ("cluster.nodes", count - 1),
            ("cluster.fabric", {**fabric, "nodes": fabric.get("nodes", count)}),
            ("cluster.placement", others),
        )
        steps.append(PartStep(f"without node{host}", tuple(changes)))
    return steps
