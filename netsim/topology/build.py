"""From the `cluster` section of a scenario to a Cluster and its Topology."""

from dataclasses import replace
from math import ceil

import numpy as np

from netsim.topology.cluster import Cluster, Plan, join
from netsim.topology.config import ClusterConfig, Group
from netsim.topology.fabrics.config import SingleSwitch, build_fabric, policy_of, transport_of
from netsim.topology.fabrics.fabric import Ints
from netsim.topology.graph import Topology
from netsim.topology.host import Host, make_host
from netsim.topology.machine import Machine
from netsim.topology.transports import Transport


def build_topology(config: ClusterConfig) -> Topology:
    """The topology of a cluster section."""
    return config.graph.build() if config.graph else build_cluster(config).topology


def build_cluster(config: ClusterConfig) -> Cluster:
    """The cluster of a section that names machines."""
    fabric = config.fabric or SingleSwitch(kind="single-switch")
    members = config.members
    transport = transport_of(fabric, members[0].loaded.machine.transport)
    hosts = tuple(_host(group, transport, fabric.nic) for group in members)
    counts = [group.nodes for group in members]
    host_class = np.repeat(np.arange(len(members), dtype=np.int32), counts)
    total = len(host_class)
    plan = Plan(
        _name(members),
        hosts,
        host_class,
        _domains(hosts, host_class),
        tuple(f"node{number}" for number in range(total)),
    )
    joined = total > 1 and bool(len(plan.ports))
    made = build_fabric(fabric, plan.ports, transport) if joined else None
    notes = tuple(dict.fromkeys(note for group in members if (note := group.loaded.note)))
    rail = fabric.routing == "rail"
    cluster = join(plan, made, policy_of(fabric, transport), rail=rail)
    return replace(cluster, notes=notes)


def _name(members: tuple[Group, ...]) -> str:
    return " + ".join(f"{group.nodes} x {group.loaded.name}" for group in members)


def _domains(hosts: tuple[Host, ...], host_class: Ints) -> Ints:
    """A number for every NVLink domain: hosts in order fill one after the other."""
    sizes = [h.machine.scale_up.hosts if h.machine.scale_up else 1 for h in hosts]
    domain = np.zeros(len(host_class), np.int32)
    following = 0
    for kind, size in enumerate(sizes):
        mine = np.flatnonzero(host_class == kind)
        domain[mine] = following + np.arange(len(mine)) // size
        following += ceil(len(mine) / size)
    return domain


def _host(group: Group, transport: Transport, rate: float | None) -> Host:
    machine = group.loaded.machine
    gpus = group.gpus or tuple(range(group.gpus_per_node or machine.gpu.count))
    if group.p2p is not None:
        machine = machine.model_copy(update={"p2p": group.p2p})
    machine = with_nics(machine, group.nics_per_node, group.nic or rate, gpus, transport)
    return make_host(machine, gpus)


def with_nics(
    machine: Machine,
    per_node: int | None,
    rate: float | None,
    gpus: tuple[int, ...],
    transport: Transport,
) -> Machine:
    """The machine with that many NICs of that rate, near the GPUs in use."""
    nics = machine.nics
    if nics is None:
        return machine
    count = nics.count if per_node is None else per_node
    if count == 0:
        return machine.model_copy(update={"nics": None})
    rate = rate or nics.rate
    if transport.groups and count > machine.gpu.count:
        rate, count = rate * count / machine.gpu.count, machine.gpu.count
    chosen = list(range(nics.count))
    if count < nics.count:
        near = sorted(set(make_host(machine, gpus).local.ravel().tolist()))
        others = [nic for nic in chosen if nic not in near]
        chosen = _evenly(near, min(count, len(near))) + others[: max(0, count - len(near))]
        chosen.sort()
    elif count > nics.count:
        chosen = [nic * nics.count // count for nic in range(count)]
    changed = {
        "count": count,
        "rate": min(rate, transport.nic_cap / transport.usable),
        "at": tuple(machine.nic_at(nic) for nic in chosen),
        "gpudirect": nics.gpudirect and transport.gpudirect,
    }
    return machine.model_copy(update={"nics": nics.model_copy(update=changed)})


def _evenly(items: list[int], count: int) -> list[int]:
    return [items[index * len(items) // count] for index in range(count)]
