"""Mistakes in machines and clusters that nobody makes on purpose, each with what it costs."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from netsim.topology.cluster import Cluster
from netsim.topology.figures import fabric_figures
from netsim.topology.graph import Topology
from netsim.topology.host import Host
from netsim.topology.layout import GPU_LINKS
from netsim.topology.machine import PCIE_EFFICIENCY, PCIE_LANE, PcieLink
from netsim.topology.relations import relation
from netsim.units import format_bandwidth


@dataclass(frozen=True, slots=True)
class Finding:
    """What is odd, where, and what it costs."""

    rule: str
    place: str
    message: str


def lint_cluster(cluster: Cluster) -> tuple[Finding, ...]:
    """All findings: hosts first (each class once), then what is between them."""
    found = [one for name, host in _classes(cluster) for one in lint_host(host, name)]
    found += [*_missing_rails(cluster), *_oversubscription(cluster)]
    return (*found, *lint_topology(cluster.topology))


def lint_host(host: Host, name: str = "") -> tuple[Finding, ...]:
    """Findings about one host."""
    prefix = f"{name}." if name else ""
    rules = (_narrow, _far_nics, _lonely_nics, _slow_slots, _asymmetric)
    return tuple(
        Finding(one.rule, prefix + one.place, one.message) for rule in rules for one in rule(host)
    )


def lint_topology(topology: Topology) -> tuple[Finding, ...]:
    """Nodes without any link, and links that carry nothing."""
    links = topology.links
    degree = np.bincount(np.concatenate([links.tail, links.head]), minlength=len(topology.nodes))
    alone = [
        Finding("isolated", str(topology.nodes[int(n)]), "has no link at all: nothing reaches it")
        for n in np.flatnonzero(degree == 0)
    ]
    dead = [
        Finding("dead-link", topology.link_name(int(n)), "has no bandwidth: traffic goes around it")
        for n in np.flatnonzero(links.bandwidth == 0)
    ]
    return (*alone, *dead)


def _classes(cluster: Cluster) -> Iterator[tuple[str, Host]]:
    for number, host in enumerate(cluster.hosts):
        where = np.flatnonzero(cluster.host_class == number)
        yield f"node{int(where[0])}", host


def _width(host: Host, gpu: int, nic: int) -> float:
    """What the way from a GPU to a NIC carries."""
    hops = host.out[gpu, nic]
    return float(host.layout.links.bandwidth[hops[hops >= 0]].min(initial=np.inf))


def _narrow(host: Host) -> Iterator[Finding]:
    """Slots with fewer lanes than those of their like."""
    machine = host.machine
    parts: list[tuple[str, PcieLink]] = [
        (f"gpu{gpu}", machine.link_of(machine.gpu, gpu)) for gpu in host.gpus
    ]
    if machine.nics is not None:
        parts += [(f"nic{nic}", machine.link_of(machine.nics, nic)) for nic in host.rail.tolist()]
    for name, link in parts:
        if link.width < 16 and (machine.c2c is None or name.startswith("nic")):
            full = PCIE_LANE[link.generation] * 16 * PCIE_EFFICIENCY
            message = (
                f"has {link.width} PCIe lanes, not 16: {format_bandwidth(link.usable)} of "
                f"{format_bandwidth(full)}"
            )
            if not name.startswith("nic") or link.usable < _rate(host, int(name[3:])):
                yield Finding("narrow-slot", name, message)


def _rate(host: Host, nic: int) -> float:
    return host.machine.nics.rates[nic] if host.machine.nics else 0.0


def _far_nics(host: Host) -> Iterator[Finding]:
    """GPUs whose nearest NIC is in another NUMA domain."""
    machine = host.machine
    for slot, gpu in enumerate(host.gpus if host.nics else ()):
        nic = int(host.rail[host.local[slot, 0]])
        if relation(machine, machine.gpu_at(gpu), machine.nic_at(nic)) == "SYS":
            width = _width(host, slot, int(host.local[slot, 0]))
            yield Finding(
                "far-nic",
                f"gpu{gpu}",
                f"its nearest NIC, nic{nic}, is in another NUMA domain: at most "
                f"{format_bandwidth(width)} of {format_bandwidth(_rate(host, nic))}, shared by all "
                "that crosses there",
            )


def _lonely_nics(host: Host) -> Iterator[Finding]:
    """NICs that no GPU is near to: others carry the traffic."""
    used = set(host.local.ravel().tolist())
    for place, nic in enumerate(host.rail.tolist()):
        if place not in used:
            message = (
                f"no GPU is nearest to it: {format_bandwidth(_rate(host, nic))} stay unused unless "
                "a schedule asks for it"
            )
            yield Finding("unused-nic", f"nic{nic}", message)


def _slow_slots(host: Host) -> Iterator[Finding]:
    """NICs faster than the way between them and their GPU."""
    for slot, gpu in enumerate(host.gpus if host.nics else ()):
        place = int(host.local[slot, 0])
        nic, width = int(host.rail[place]), _width(host, slot, place)
        if width < 0.9 * _rate(host, nic):
            yield Finding(
                "slow-slot",
                f"nic{nic}",
                f"gpu{gpu} reaches it with {format_bandwidth(width)} of "
                f"{format_bandwidth(_rate(host, nic))}",
            )


def _asymmetric(host: Host) -> Iterator[Finding]:
    """GPUs that can send less than others: collectives go at the pace of the slowest."""
    links = host.layout.links
    wide = np.isin(links.kind, GPU_LINKS)
    up = np.bincount(links.tail[wide], links.bandwidth[wide], len(host.layout.nodes))
    of_gpu = up[host.gpu_node]
    users = np.bincount(host.local[:, 0], minlength=host.nics) if host.nics else np.zeros(0)
    for slot, gpu in enumerate(host.gpus):
        if of_gpu[slot] < of_gpu.max() * (1 - 1e-9):
            yield Finding(
                "asymmetric",
                f"gpu{gpu}",
                f"has {format_bandwidth(float(of_gpu[slot]))} to other GPUs, the best has "
                f"{format_bandwidth(float(of_gpu.max()))}: rings run at the lower rate",
            )
        if host.nics and users[host.local[slot, 0]] > users[users > 0].min():
            nic = int(host.rail[host.local[slot, 0]])
            share = _rate(host, nic) / int(users[host.local[slot, 0]])
            yield Finding(
                "asymmetric",
                f"gpu{gpu}",
                f"shares nic{nic} with more GPUs than others share theirs: "
                f"{format_bandwidth(share)} each",
            )


def _missing_rails(cluster: Cluster) -> Iterator[Finding]:
    """NICs that other hosts of the same machine have."""
    every = {int(rail) for host in cluster.hosts for rail in host.rail}
    for name, host in _classes(cluster):
        for rail in sorted(every - set(host.rail.tolist())):
            message = f"has no nic{rail}: its GPUs share the others, and rail {rail} ends here"
            yield Finding("missing-rail", name, message)


def _oversubscription(cluster: Cluster) -> Iterator[Finding]:
    figures = fabric_figures(cluster)
    if figures is not None and figures.oversubscription > 1.01:
        each = figures.bisection / max(1, len(cluster.topology) // 2)
        message = (
            f"oversubscribed {figures.oversubscription:.3g}:1 between halves: "
            f"{format_bandwidth(each)} a GPU when all send across"
        )
        yield Finding("oversubscription", "fabric", message)
