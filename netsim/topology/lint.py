"""Find likely mistakes in machines and clusters; each finding states what it costs."""

from collections.abc import Iterator

import numpy as np

from netsim.base.units import format_bandwidth, format_time
from netsim.base.values import dataclass
from netsim.topology.cluster import Cluster
from netsim.topology.figures import fabric_figures
from netsim.topology.graph import GPU_LINKS, LINK_KINDS, Topology
from netsim.topology.host import Host, relation
from netsim.topology.machine import PCIE_EFFICIENCY, PCIE_LANE, PcieLink

# The newest PCIe generation of GPUs of each compute capability (data sheets).
NEWEST = {60: 3, 70: 3, 75: 3, 80: 4, 86: 4, 89: 4, 90: 5, 100: 5, 103: 6, 120: 5}


@dataclass(frozen=True, slots=True)
class LintFinding:
    """A likely mistake: the rule, the place, and a message that says what it costs."""

    rule: str
    place: str
    message: str


def lint_cluster(cluster: Cluster) -> tuple[LintFinding, ...]:
    """Return all findings: in each class of hosts, then between hosts."""
    findings = [finding for name, host in _classes(cluster) for finding in lint_host(host, name)]
    findings += [*_dead_nics(cluster), *_missing_rails(cluster), *_oversubscription(cluster)]
    return (*findings, *lint_topology(cluster.topology))


def lint_host(host: Host, name: str) -> tuple[LintFinding, ...]:
    """Return the findings about one host."""
    prefix = f"{name}." if name else ""
    rules = (_narrow, _old_slots, _far_nics, _lonely_nics, _slow_slots, _asymmetric)
    return tuple(
        LintFinding(finding.rule, prefix + finding.place, finding.message)
        for rule in rules
        for finding in rule(host)
    )


def lint_topology(topology: Topology) -> tuple[LintFinding, ...]:
    """Return a finding for each node that nothing reaches and each link without bandwidth."""
    links = topology.links
    alive = links.bandwidth > 0
    count = len(topology.nodes)
    degree = np.bincount(links.tail, minlength=count) + np.bincount(links.head, minlength=count)
    usable = np.bincount(links.tail[alive], minlength=count)
    usable += np.bincount(links.head[alive], minlength=count)
    gpus = set(topology.gpu_nodes.tolist())
    alone = [
        LintFinding("isolated", str(topology.nodes[n]), _cut_off(n in gpus, bool(degree[n])))
        for n in np.flatnonzero(usable == 0).tolist()
    ]
    dead = [
        LintFinding("dead-link", topology.link_name(n), _loss(topology, n))
        for n in np.flatnonzero(~alive).tolist()
    ]
    return (*alone, *dead)


def _cut_off(gpu: bool, linked: bool) -> str:
    """Return the message about a node that nothing reaches. `gpu`: it is a GPU; `linked`: it has
    links, which are all dead.
    """
    why = "all its links are dead" if linked else "has no link at all"
    cost = "no collective with it ends" if gpu else "all of its bandwidth is lost"
    return f"{why}: nothing reaches it, {cost}"


def _loss(topology: Topology, link: int) -> str:
    """Return the message about a dead link: how much bandwidth its node has lost.

    The rate that the link had is no longer in the topology; it is taken from the links of its kind
    at the same node.
    """
    links = topology.links
    tail = int(links.tail[link])
    head = int(links.head[link])
    nodes = topology.node_kinds
    siblings = np.flatnonzero(
        (links.tail == tail) & (links.kind == links.kind[link]) & (nodes[links.head] == nodes[head])
    )
    left = links.bandwidth[siblings]
    alive = left[left > 0]
    if not len(alive):
        return f"has no bandwidth: nothing of its kind is left of {topology.nodes[tail]}"
    rate = float(alive.max())
    return (
        f"has no bandwidth: {topology.nodes[tail]} has {len(alive)} of {len(siblings)} such links "
        f"left, {_less(float(alive.sum()), rate * len(siblings))}"
    )


def _less(left: float, healthy: float, when: str = "") -> str:
    """Return a text such as `50 GB/s of 100 GB/s (50% less)`; `when` is inserted before the
    bracket. Rates are in bytes/s.
    """
    rates = f"{format_bandwidth(left)} of {format_bandwidth(healthy)}"
    return f"{rates}{when} ({1 - left / healthy:.0%} less)"


def _classes(cluster: Cluster) -> Iterator[tuple[str, Host]]:
    """Yield for each class of hosts the name of its first host, and its Host."""
    for number, host in enumerate(cluster.hosts):
        where = np.flatnonzero(cluster.host_class == number)
        yield f"node{int(where[0])}", host


def _dead_nics(cluster: Cluster) -> Iterator[LintFinding]:
    """Yield a finding for each NIC that a fault has killed, with the number of NICs that its host
    still has.
    """
    for name in cluster.dead_nics:
        host = int(name.partition(".")[0].removeprefix("node"))
        left = int((cluster.ports.owner == host).sum())
        lost = sum(other.startswith(f"node{host}.") for other in cluster.dead_nics)
        message = f"dead: its host has {left} of {left + lost} NICs left"
        yield LintFinding("dead-nic", name, message)


def _width(host: Host, gpu: int, nic: int) -> float:
    """Return the bytes per second of the narrowest link from a GPU to a NIC."""
    hops = host.out[gpu, nic]
    return float(host.layout.links.bandwidth[hops[hops >= 0]].min(initial=np.inf))


def _narrow(host: Host) -> Iterator[LintFinding]:
    """Yield a finding for each GPU, and each NIC that this slows, with fewer than 16 PCIe lanes."""
    machine = host.machine
    parts: list[tuple[str, PcieLink]] = [
        (f"gpu{gpu}", machine.link_of(machine.gpu, gpu)) for gpu in host.gpus
    ]
    if machine.nics is not None:
        parts += [(f"nic{nic}", machine.link_of(machine.nics, nic)) for nic in host.rail.tolist()]
    for name, link in parts:
        if link.width < 16 and (machine.c2c is None or name.startswith("nic")):
            full = PCIE_LANE[link.generation] * 16 * PCIE_EFFICIENCY
            message = f"has {link.width} PCIe lanes, not 16: {_less(link.usable, full)}"
            if not name.startswith("nic") or link.usable < _rate(host, int(name[3:])):
                yield LintFinding("narrow-slot", name, message)


def _old_slots(host: Host) -> Iterator[LintFinding]:
    """Yield a finding for each GPU in a PCIe slot of an older generation than its own."""
    best = NEWEST.get(host.machine.gpu.sm, 0)
    for gpu in host.gpus if host.machine.c2c is None else ():
        link = host.machine.link_of(host.machine.gpu, gpu)
        if link.generation < best:
            full = PCIE_LANE[best] * link.width * PCIE_EFFICIENCY
            message = f"is in a slot of PCIe generation {link.generation}, not {best}: "
            yield LintFinding("old-pcie", f"gpu{gpu}", message + _less(link.usable, full))


def _rate(host: Host, nic: int) -> float:
    """Return the line rate of a NIC in bytes per second; 0 without NICs."""
    return host.machine.nics.rates[nic] if host.machine.nics else 0.0


def _far_nics(host: Host) -> Iterator[LintFinding]:
    """Yield a finding for each GPU whose nearest NIC is in another NUMA domain."""
    machine = host.machine
    far = []
    for slot, gpu in enumerate(host.gpus if host.nics else ()):
        nic = int(host.rail[host.local[slot, 0]])
        if relation(machine, machine.gpu_at(gpu), machine.nic_at(nic)) == "SYS":
            far.append((slot, gpu, nic))
    for slot, gpu, nic in far:
        width = _width(host, slot, int(host.local[slot, 0]))
        rate = _rate(host, nic)
        where = f"its nearest NIC, nic{nic}, is in another NUMA domain"
        yield LintFinding(
            "far-nic", f"gpu{gpu}", f"{where}: {_crossing(host, width, rate, len(far))}"
        )


def _crossing(host: Host, width: float, rate: float, gpus: int) -> str:
    """Return a text on the cost of reaching a NIC in another NUMA domain.

    Args:
        host: the host.
        width: bytes per second of the path to the NIC.
        rate: bytes per second of the NIC.
        gpus: number of GPUs that share the crossing.
    """
    if width / gpus < rate:
        many = f"when all {gpus} GPUs that cross there send" if gpus > 1 else "at most"
        return _less(width / gpus, rate, f" {many}")
    links = host.layout.links
    more = float(links.latency[links.kind == LINK_KINDS.index("upi")].max())
    return (
        f"no bandwidth is lost ({format_bandwidth(width)} cross, the NIC has "
        f"{format_bandwidth(rate)}), but every message takes {format_time(more)} longer"
    )


def _lonely_nics(host: Host) -> Iterator[LintFinding]:
    """Yield a finding for each NIC that is not the nearest of any GPU."""
    used = set(host.local.ravel().tolist())
    for place, nic in enumerate(host.rail.tolist()):
        if place not in used:
            message = (
                f"no GPU is nearest to it: {format_bandwidth(_rate(host, nic))} stay unused unless "
                "a schedule asks for it"
            )
            yield LintFinding("unused-nic", f"nic{nic}", message)


def _slow_slots(host: Host) -> Iterator[LintFinding]:
    """Yield a finding for each GPU whose path to its NIC is narrower than the NIC's line rate."""
    for slot, gpu in enumerate(host.gpus if host.nics else ()):
        place = int(host.local[slot, 0])
        nic = int(host.rail[place])
        width = _width(host, slot, place)
        if width < 0.9 * _rate(host, nic):
            message = f"gpu{gpu} reaches it with {_less(width, _rate(host, nic))}"
            yield LintFinding("slow-slot", f"nic{nic}", message)


def _asymmetric(host: Host) -> Iterator[LintFinding]:
    """Yield a finding for each GPU that can send less than other GPUs of its host: the slowest GPU
    sets the pace of collectives.
    """
    links = host.layout.links
    wide = np.isin(links.kind, GPU_LINKS)
    up = np.bincount(links.tail[wide], links.bandwidth[wide], len(host.layout.nodes))
    of_gpu = up[host.gpu_node]
    users = np.bincount(host.local[:, 0], minlength=host.nics) if host.nics else np.zeros(0)
    for slot, gpu in enumerate(host.gpus):
        if of_gpu[slot] < of_gpu.max() * (1 - 1e-9):
            yield LintFinding("asymmetric", f"gpu{gpu}", _slower(of_gpu[slot], of_gpu.max()))
        least = users[users > 0].min() if host.nics else 0
        if host.nics and users[host.local[slot, 0]] > least:
            nic = int(host.rail[host.local[slot, 0]])
            share = _rate(host, nic) / int(users[host.local[slot, 0]])
            yield LintFinding(
                "asymmetric",
                f"gpu{gpu}",
                f"shares nic{nic} with more GPUs than others share theirs: "
                f"{format_bandwidth(share)} each "
                f"({1 - least / users[host.local[slot, 0]]:.0%} less)",
            )


def _slower(rate: float, best: float) -> str:
    """Return a text on the cost of a GPU that sends `rate` bytes/s to other GPUs while the best GPU
    sends `best`.
    """
    if rate == 0:
        return (
            f"has no link to other GPUs but PCIe, the best has {format_bandwidth(best)}: "
            "rings through it run over PCIe"
        )
    return (
        f"has {format_bandwidth(rate)} to other GPUs, the best has {format_bandwidth(best)}: "
        f"rings run at the lower rate ({1 - rate / best:.0%} less)"
    )


def _missing_rails(cluster: Cluster) -> Iterator[LintFinding]:
    """Yield a finding for each class of hosts without a NIC that other hosts have."""
    rates = {rail: _rate(host, rail) for host in cluster.hosts for rail in host.rail.tolist()}
    for name, host in _classes(cluster):
        for rail in sorted(set(rates) - set(host.rail.tolist())):
            yield LintFinding("missing-rail", name, _without(host, rail, rates[rail]))


def _without(host: Host, rail: int, rate: float) -> str:
    """Return a text on the cost of a missing NIC: number `rail`, of `rate` bytes/s."""
    left = sum(_rate(host, nic) for nic in host.rail.tolist())
    share = left / len(host.gpus)
    return (
        f"has no nic{rail}: its GPUs share the others, {format_bandwidth(share)} each "
        f"({rate / (left + rate):.0%} less), and the whole job waits for them"
    )


def _oversubscription(cluster: Cluster) -> Iterator[LintFinding]:
    """Yield a finding if the fabric carries less between its halves than the NICs of one half can
    send.
    """
    figures = fabric_figures(cluster)
    if figures is not None and figures.oversubscription > 1.01:
        share = figures.bisection / max(1, len(cluster.topology) // 2)
        message = (
            f"oversubscribed {figures.oversubscription:.3g}:1 between halves: "
            f"{format_bandwidth(share)} a GPU when all send across "
            f"({1 - 1 / figures.oversubscription:.0%} less)"
        )
        yield LintFinding("oversubscription", "fabric", message)
