"""From the `cluster` section of a scenario to a Cluster and its Topology."""

import re
from typing import TYPE_CHECKING

from netsim.topology import assembly, faults
from netsim.topology.config import ClusterConfig
from netsim.topology.graph import Topology
from netsim.topology.layout import TopologyError
from netsim.yamlio.model import FieldError
from netsim.yamlio.source import KeyPath, Source

if TYPE_CHECKING:
    from netsim.topology.cluster import Cluster

FIELD = re.compile(r"([a-z_]+(?:\.\w+)*): (.*)", re.DOTALL)


def build_topology(config: ClusterConfig) -> Topology:
    """The topology of a cluster section."""
    if config.graph is None:
        return build_cluster(config).topology
    topology = config.graph.build()
    return faults.with_faults(topology, config.faults) if config.faults else topology


def build_at(config: ClusterConfig, source: Source, path: KeyPath = ("cluster",)) -> Topology:
    """As `build_topology`; what cannot be built is told with its place in the source."""
    try:
        return build_topology(config)
    except TopologyError as error:
        told = FIELD.fullmatch(error.message)
        field, message = told.groups() if told else ("", error.message)
        raise source.error((*path, *_keys(field)), message) from None


def build_cluster(config: ClusterConfig) -> "Cluster":
    """The cluster of a section that names machines; errors begin with the key they are about."""
    try:
        return assembly.assembled(config)
    except FieldError as error:
        path = ".".join(map(str, error.path))
        raise TopologyError(f"{path}: {error.message}" if path else error.message) from None


def _keys(field: str) -> list[str | int]:
    return [int(key) if key.isdigit() else key for key in field.split(".")] if field else []
