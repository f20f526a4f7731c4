"""A Cluster: hosts laid out one after the other, joined by a fabric into one Topology.

GPUs are `node0.gpu3` and so on; host by host, links and nodes are offsets of those of its class.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from netsim.topology.calibration import both_ways
from netsim.topology.fabrics.fabric import Fabric, Ports
from netsim.topology.fabrics.select import Policy
from netsim.topology.graph import Topology
from netsim.topology.host import Host
from netsim.topology.layout import LINK_KINDS, NODE_KINDS, Layout, Links
from netsim.topology.machine import Machine
from netsim.topology.router import ClusterRouter, Places, stack
from netsim.topology.transports import Transport
from netsim.values import dataclass


@dataclass(frozen=True, slots=True)
class Cluster:
    """A topology with what it was made of; `notes` is what the user should be told."""

    topology: Topology
    hosts: tuple[Host, ...]
    host_class: NDArray[np.int32]
    domain: NDArray[np.int32]
    gpu_host: NDArray[np.int32]
    ports: Ports
    fabric: Fabric | None = None
    transport: Transport | None = None
    notes: tuple[str, ...] = ()

    def machine_of(self, host: int) -> Machine:
        """The machine of a host."""
        return self.hosts[int(self.host_class[host])].machine


@dataclass(frozen=True, slots=True)
class Plan:
    """The hosts of a cluster before it is laid out: classes, the class and NVLink domain of each
    host, their names, and where in the fabric they are.
    """

    name: str
    hosts: tuple[Host, ...]
    host_class: NDArray[np.int32]
    domain: NDArray[np.int32]
    names: tuple[str, ...]
    position: NDArray[np.int32]

    def per_host(self, counts: Sequence[int]) -> NDArray[np.int32]:
        """A figure of every host, from that of its class."""
        return np.array(counts, np.int32)[self.host_class]

    @property
    def ports(self) -> Ports:
        """The NIC ports of all hosts."""
        nics = self.per_host([host.nics for host in self.hosts])
        host = np.repeat(np.arange(len(nics), dtype=np.int32), nics)
        rail = _tiled(self, [host.rail for host in self.hosts])
        rates = [np.array(h.machine.nics.rates if h.machine.nics else ()) for h in self.hosts]
        rate = _tiled(self, [given[h.rail] for given, h in zip(rates, self.hosts, strict=True)])
        return Ports(self.position[host], rail, rate, host)


def _buses(hosts: Sequence[Host]) -> NDArray[np.float64]:
    """What every GPU's PCIe link carries both ways together, by class of host and slot."""
    found = np.full((len(hosts), max(len(host.gpus) for host in hosts)), np.inf)
    for number, host in enumerate(hosts):
        rates = [host.machine.link_of(host.machine.gpu, gpu).usable for gpu in host.gpus]
        found[number, : len(rates)] = both_ways(host.machine) * np.array(rates)
    return found


def join(plan: Plan, fabric: Fabric | None, policy: Policy, *, rail: bool = False) -> Cluster:
    """Lay out the hosts of a plan and the fabric between them."""
    ports = plan.ports
    places = _places(plan)
    layout = _layout(plan, fabric, ports)
    gpus = [
        f"{plan.names[h]}.gpu{plan.hosts[plan.host_class[h]].gpus[s]}"
        for h, s in zip(places.gpu_host.tolist(), places.gpu_slot.tolist(), strict=True)
    ]
    hosts_links = len(layout.links) - (len(fabric.tail) if fabric else 0)
    router = ClusterRouter(
        places, stack(plan.hosts), fabric.wiring if fabric else None, policy, hosts_links, rail
    )
    memory = np.array([host.machine.gpu.memory_bandwidth for host in plan.hosts])
    bus = _buses(plan.hosts)[plan.host_class[places.gpu_host], places.gpu_slot]
    capacities = {"hbm": memory[plan.host_class][places.gpu_host], "bus": bus}
    topology = Topology(plan.name, layout, tuple(gpus), router, capacities)
    return Cluster(
        topology, plan.hosts, plan.host_class, plan.domain, places.gpu_host, ports, fabric
    )


def _starts(counts: NDArray[np.int32]) -> NDArray[np.int32]:
    """Where each host's part begins."""
    return (np.cumsum(counts) - counts).astype(np.int32)


def _places(plan: Plan) -> Places:
    gpus = plan.per_host([len(host.gpus) for host in plan.hosts])
    owner = np.repeat(np.arange(len(gpus), dtype=np.int32), gpus)
    slot = np.arange(len(owner), dtype=np.int32) - np.repeat(_starts(gpus), gpus)
    return Places(
        plan.host_class,
        plan.domain,
        _starts(plan.per_host([len(host.layout.links) for host in plan.hosts])),
        _starts(plan.per_host([host.nics for host in plan.hosts])),
        owner,
        slot,
    )


def _layout(plan: Plan, fabric: Fabric | None, ports: Ports) -> Layout:
    """Nodes and links of hosts, then switches and cables of the fabric."""
    layouts = [host.layout for host in plan.hosts]
    own = [layouts[kind] for kind in plan.host_class.tolist()]
    first_node = _starts(plan.per_host([len(one.nodes) for one in layouts]))
    names: list[str] = [
        f"{name}.{node}" for name, one in zip(plan.names, own, strict=True) for node in one.nodes
    ]
    kinds = [_tiled(plan, [one.kinds for one in layouts])]
    passes = [_tiled(plan, [one.passes for one in layouts])]
    reduces = [_tiled(plan, [one.reduces for one in layouts])]
    columns = _host_links(plan, first_node)
    if fabric is not None:
        nics = [plan.hosts[k].nic_node for k in plan.host_class.tolist()]
        port_node = np.concatenate(nics) + first_node[ports.owner]
        ends = np.concatenate([port_node, len(names) + np.arange(len(fabric.switches))])
        columns = _with_fabric(columns, fabric, ends.astype(np.int32))
        names.extend(fabric.switches)
        switch = NODE_KINDS.index("switch")
        kinds.append(np.full(len(fabric.switches), switch, np.int8))
        passes.append(np.ones(len(fabric.switches), bool))
        reduces.append(np.full(len(fabric.switches), fabric.reduces))
    of_nodes = [np.concatenate(column) for column in (kinds, passes, reduces)]
    layout = Layout(tuple(names), of_nodes[0], of_nodes[1], Links(**columns), of_nodes[2])
    return _with_shared_switches(plan, layout, first_node)


def _tiled(plan: Plan, parts: list[NDArray[Any]]) -> NDArray[Any]:
    """A column of every host's own values, one host after the other."""
    return np.concatenate([parts[kind] for kind in plan.host_class.tolist()])


def _host_links(plan: Plan, first_node: NDArray[np.int32]) -> dict[str, NDArray[Any]]:
    links = [host.layout.links for host in plan.hosts]
    counts = plan.per_host([len(one) for one in links])
    first_link = np.repeat(_starts(counts), counts)
    node = np.repeat(first_node, counts)
    columns = {
        name: _tiled(plan, [getattr(one, name) for one in links]) for name in Links.__slots__
    }
    columns["tail"] = (columns["tail"] + node).astype(np.int32)
    columns["head"] = (columns["head"] + node).astype(np.int32)
    columns["resource"] = (columns["resource"] + first_link).astype(np.int32)
    return columns


def _with_fabric(
    columns: dict[str, NDArray[Any]], fabric: Fabric, ends: NDArray[np.int32]
) -> dict[str, NDArray[Any]]:
    count, before = len(fabric.tail), len(columns["tail"])
    kind = np.full(count, LINK_KINDS.index("fabric"), np.int8)
    outside = np.minimum(fabric.tail, fabric.head) < fabric.ports
    kind[outside] = LINK_KINDS.index("nic")
    added = {
        "tail": ends[fabric.tail],
        "head": ends[fabric.head],
        "bandwidth": fabric.bandwidth,
        "latency": fabric.latency,
        "kind": kind,
        "resource": np.arange(before, before + count, dtype=np.int32),
    }
    return {name: np.concatenate([columns[name], added[name]]) for name in columns}


def _with_shared_switches(plan: Plan, layout: Layout, first_node: NDArray[np.int32]) -> Layout:
    """One NVSwitch node, `nvlink0.nvswitch0`, for all hosts of an NVLink domain."""
    local = [h.layout.nodes.index("nvswitch0") if _shares(h) else -1 for h in plan.hosts]
    if max(local) < 0:
        return layout
    offset = plan.per_host(local)
    node = (first_node + offset)[offset >= 0]
    _, first, group = np.unique(plan.domain[offset >= 0], return_index=True, return_inverse=True)
    target = np.arange(len(layout.nodes))
    target[node] = node[first][group]
    keep = target == np.arange(len(target))
    number = (np.cumsum(keep) - 1)[target].astype(np.int32)
    names = np.array(layout.nodes, object)
    names[node[first]] = [f"nvlink{n}.nvswitch0" for n in range(len(first))]
    links = replace(layout.links, tail=number[layout.links.tail], head=number[layout.links.head])
    kept = [column[keep] for column in (layout.kinds, layout.passes, layout.reduces)]
    return Layout(tuple(names[keep]), kept[0], kept[1], links, kept[2])


def _shares(host: Host) -> bool:
    """Whether its NVSwitches are those of other hosts as well."""
    return host.machine.scale_up is not None and host.machine.scale_up.hosts > 1
