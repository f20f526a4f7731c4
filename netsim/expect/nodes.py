"""The nodes of a communicator as NCCL sees them: GPUs by NVLink domain, each kind searched once.

A node's GPUs are numbered by their ranks; GPUs that take no part are not there for NCCL.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial

import numpy as np
from numpy.typing import NDArray

from netsim.nccl.environment import settings_from
from netsim.nccl.graph_xml import GraphFile, graphs_of
from netsim.nccl.nics_in_use import with_latency, with_nics
from netsim.nccl.node import NodeView, search_node
from netsim.nccl.settings import Settings
from netsim.nccl.version import Version
from netsim.topology.cluster import Cluster
from netsim.topology.nccl_view import node_system
from netsim.topology.nccl_xml import Pci, System
from netsim.values import dataclass

STATED_SINCE = Version(2, 18)  # plugins of before did not tell NCCL their latency
CHOICE_ONLY = ("NCCL_ALGO", "NCCL_PROTO")  # variables that no search depends on


@dataclass(frozen=True)
class Node:
    """One node: the ranks of the communicator on it, in order, and what NCCL found there."""

    ranks: tuple[int, ...]
    view: NodeView


def nodes_of(
    cluster: Cluster,
    gpus: NDArray[np.int32],
    version: Version,
    variables: Mapping[str, str],
    settings: Settings,
    graphs: GraphFile | None = None,
) -> tuple[Node, ...]:
    """The nodes of a communicator whose ranks are these GPUs of a cluster, by their first rank."""
    domain = cluster.domain
    transport = cluster.transport.name if cluster.transport else ""
    stated = 0.0
    if cluster.transport and version >= STATED_SINCE:
        stated = cluster.transport.stated_latency * 1e6
    if settings.mnnvl == 0:  # every host is a node, even where NVLink joins several
        domain = np.arange(len(cluster.host_class), dtype=np.int32)
        cluster = replace(cluster, domain=domain)
    ranks: dict[int, list[int]] = {}
    for rank, number in enumerate(domain[cluster.gpu_host[gpus]].tolist()):
        ranks.setdefault(number, []).append(rank)
    numbers = np.arange(int(domain[-1]) + 2)
    first = np.searchsorted(domain[cluster.gpu_host], numbers[:-1])
    host = np.searchsorted(domain, numbers)
    chosen = tuple(sorted((k, v) for k, v in variables.items() if k not in CHOICE_ONLY))
    views: dict[tuple[object, ...], NodeView] = {}
    found = []
    for number, here in ranks.items():
        places = tuple((gpus[here] - first[number]).tolist())
        key = (tuple(cluster.host_class[host[number] : host[number + 1]].tolist()), places)
        if key not in views:
            there = with_nics(node_system(cluster, number), transport, settings)
            if stated:
                there = with_latency(there, stated)
            system = _taking_part(there, places)
            views[key] = _searched(system, len(ranks) > 1, version, chosen, graphs)
        found.append(Node(tuple(here), views[key]))
    return tuple(found)


@lru_cache(maxsize=64)
def _searched(
    system: System,
    networked: bool,
    version: Version,
    variables: tuple[tuple[str, str], ...],
    graphs: GraphFile | None,
) -> NodeView:
    return search_node(
        system,
        networked=networked,
        version=version,
        settings=settings_from(dict(variables), version),
        given=partial(graphs_of, graphs) if graphs else None,
    )


def _taking_part(system: System, places: Sequence[int]) -> System:
    """The system in which the GPUs at these places have ranks 0, 1, …, and the others none."""
    number = {place: rank for rank, place in enumerate(places)}
    if number == {gpu.rank: gpu.rank for gpu in system.gpus()}:
        return system

    def ranked(pci: Pci) -> Pci:
        gpu = pci.gpu
        if gpu is None:
            return pci
        assert gpu.rank is not None  # node_system gives every GPU one
        return replace(pci, gpu=replace(gpu, rank=number.get(gpu.rank)))

    return system.changed(ranked)
