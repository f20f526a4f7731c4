"""A job: one NCCL communicator in its cluster, with what NCCL found and will choose for a call."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from netsim.arrays import different
from netsim.errors import InputError
from netsim.expect.inside import check_shared_memory
from netsim.expect.nodes import Node, nodes_of
from netsim.expect.settings import Wishes
from netsim.expect.wiring import Wiring
from netsim.nccl.calibrated import calibrated
from netsim.nccl.communicator import Communicator
from netsim.nccl.executed import executed_channels, worst_graph
from netsim.nccl.facts import Facts
from netsim.nccl.mechanism import Mechanism, mechanism_of
from netsim.nccl.messages import plugin_of as message_plugin
from netsim.nccl.node import communicator
from netsim.nccl.p2p_rounds import Rounds, rounds_of
from netsim.nccl.plan import Sends, sends_of
from netsim.nccl.plugins import plugin_variables
from netsim.topology.cluster import Cluster
from netsim.topology.nccl_view import ASSUMED_SM
from netsim.topology.stamped import Figure

GRAPHS = ("ring", "tree", "nvls", "collnet_direct", "collnet_chain")


@dataclass(frozen=True, eq=False)
class Job:
    """A communicator and its nodes; `gpus` are the devices of its ranks in the cluster."""

    comm: Communicator
    nodes: tuple[Node, ...]
    cluster: Cluster
    gpus: NDArray[np.int32]

    @cached_property
    def node_ranks(self) -> tuple[tuple[int, ...], ...]:
        """The ranks of every node."""
        return tuple(node.ranks for node in self.nodes)

    @property
    def calibration(self) -> Mapping[str, Figure]:
        """What was fitted to its first host."""
        return self.cluster.machine_of(0).calibration

    @cached_property
    def mechanism(self) -> Mechanism:
        """What execution costs on its GPUs."""
        transport = self.cluster.transport.name if self.cluster.transport else ""
        usual = mechanism_of(
            self.comm.min_cc,
            cpu_vendor=self.comm.cpu_vendor,
            plugin=message_plugin(transport, self.comm.settings),
            rccl=self.comm.rccl,
        )
        return calibrated(usual, self.calibration)

    @cached_property
    def memory(self) -> dict[object, Any]:
        """What schedules of several sizes have in common."""
        return {}

    @cached_property
    def wiring(self) -> Wiring:
        """How its ranks hang together."""
        return Wiring(self.comm, self.nodes)

    @cached_property
    def rounds(self) -> Rounds:
        """Who sends to whom when."""
        return rounds_of(self.node_ranks, self.comm.facts, self.comm.settings)

    @cached_property
    def sends(self) -> Sends:
        """Channels and chunk of sends and receives."""
        tables = {id(node.view): node.view.table for node in self.nodes}
        return sends_of(self.comm, list(tables.values()))


def job_of(cluster: Cluster, gpus: NDArray[np.int32], wishes: Wishes) -> Job:
    """The communicator that NCCL makes of these GPUs, in rank order."""
    wishes = wishes.with_plugin(plugin_of(cluster, gpus))
    settings = wishes.settings()
    nodes = nodes_of(cluster, gpus, wishes.version, wishes.variables, settings, wishes.graphs)
    if len(nodes) > 1 and not all(node.view.table.nets for node in nodes):
        raise InputError("NCCL cannot join these nodes: some have no NIC")
    kinds = {id(node.view): node for node in nodes}
    alike = [
        communicator(
            node.view,
            len(nodes),
            version=wishes.version,
            settings=settings,
            network_collectives=_reduces(node),
        )
        for node in kinds.values()
    ]
    ranks = [len(node.ranks) for node in nodes]
    check_shared_memory(alike[0], [node.view for node in kinds.values()])
    comm = replace(_joined(alike, ranks), tuner=wishes.tuner)
    return Job(comm, nodes, cluster, gpus)


def _reduces(node: Node) -> bool:
    """Whether the network of a node reduces in its switches."""
    graph = node.view.table.graph
    return any(graph.net(net).coll for net in node.view.table.nets)


def plugin_of(cluster: Cluster, gpus: NDArray[np.int32]) -> Mapping[str, str]:
    """What the network's plugin sets for a job; nothing where the job is one NVLink domain."""
    hosts = different(cluster.gpu_host[gpus])
    if cluster.transport is None or len(different(cluster.domain[hosts])) == 1:
        return {}
    oldest = min(cluster.machine_of(host).gpu.sm or ASSUMED_SM for host in hosts.tolist())
    return plugin_variables(cluster.transport.name, oldest)


def _joined(kinds: Sequence[Communicator], ranks: Sequence[int]) -> Communicator:
    """What nodes of several kinds agree on, from communicators over nodes of one kind each."""
    first = kinds[0]
    if len(kinds) == 1:
        return first
    vendors, oldest = {one.cpu_vendor for one in kinds}, min(one.min_cc for one in kinds)
    graphs = _worst_graphs(kinds, first.facts)
    channels = executed_channels(  # every rank counts them from the graphs agreed on
        graphs["ring"],
        graphs["tree"],
        n_nodes=first.n_nodes,
        local_ranks=min(ranks),
        min_cc=oldest,
        facts=first.facts,
        settings=first.settings,
        collnet=graphs["collnet_chain"],
    )
    return replace(
        first,
        **graphs,
        n_ranks=sum(ranks),
        n_channels=channels,
        min_cc=oldest,
        max_cc=max(one.max_cc for one in kinds),
        cpu_vendor=first.cpu_vendor if len(vendors) == 1 else "mixed",
        nvls_channels=min(one.nvls_channels for one in kinds),
        n_heads=min(one.n_heads for one in kinds),
        most_local_ranks=max(ranks),
        fewest_local_ranks=min(ranks),
        nvswitch=all(one.nvswitch for one in kinds),
        network_collectives=all(one.network_collectives for one in kinds),
    )


def _worst_graphs(kinds: Sequence[Communicator], facts: Facts) -> dict[str, Any]:
    """The worst graphs of all nodes, by name; none where one node has none."""
    found: dict[str, Any] = {}
    for name in GRAPHS:
        graphs = [getattr(one, name) for one in kinds]
        found[name] = None if None in graphs else worst_graph(graphs, facts)
    return found
