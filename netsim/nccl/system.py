"""The graph that NCCL builds of one node: GPUs, PCIe switches, CPUs, NVSwitches, NICs and ports.

It is made from the values of a topology file (src/graph/topo.cc). The order of nodes and links
decides ties later, so it follows NCCL's: faster links first, the link up the PCIe tree last. The
module `paths` finds the paths.
"""

from collections.abc import Collection
from dataclasses import field
from itertools import permutations
from typing import Literal

from netsim.base.errors import InputError
from netsim.base.values import dataclass
from netsim.nccl.environment import Settings, VariableError
from netsim.nccl.facts import Facts, step_value
from netsim.topology.foreign.nccl_xml import XmlCpu, XmlGpu, XmlNet, XmlPci, XmlSystem

NodeKind = Literal["GPU", "PCI", "NVS", "CPU", "NIC", "NET"]
LinkKind = Literal["LOC", "NVL", "C2C", "PCI", "SYS", "NET"]

LOCAL = 5000.0  # GB/s that mean "no limit" (NCCL: LOC_BW)
SWITCH_CLASS = "0x068000"
CPU_CLASS = "0x068001"
LANE_SPEED = {"2.5": 15, "5": 30, "8": 60, "16": 120, "32": 240, "64": 480}  # 100 Mb/s by GT/s
VENDORS = {
    "GenuineIntel": "Intel",
    "AuthenticAMD": "AMD",
    "CentaurHauls": "Zhaoxin",
    "  Shanghai  ": "Zhaoxin",
}


@dataclass(frozen=True)
class Node:
    """A node of the graph.

    - `value`: its GPU, port or CPU in the file.
    - `host`: the host that it belongs to.
    """

    kind: NodeKind
    host: str
    value: XmlGpu | XmlNet | XmlCpu | None = None


@dataclass
class Link:
    """A directed link in GB/s; links of one kind between two nodes are summed."""

    kind: LinkKind
    source: int
    target: int
    bandwidth: float


@dataclass
class SystemGraph:
    """Nodes, links, and the links out of every node in NCCL's order; it does not change once it is
    built.
    """

    facts: Facts
    nodes: list[Node] = field(default_factory=list)
    links: list[Link] = field(default_factory=list)
    links_out: list[list[int]] = field(default_factory=list)
    # By GPU, in the order of `of_kind("GPU")`, its rank within the node.
    local_ranks: tuple[int, ...] = ()

    def of_kind(self, kind: NodeKind) -> list[int]:
        """Return the nodes of one kind, in the order of the file."""
        return [index for index, node in enumerate(self.nodes) if node.kind == kind]

    def gpu(self, node: int) -> XmlGpu:
        """Return the GPU at a node."""
        value = self.nodes[node].value
        assert isinstance(value, XmlGpu)
        return value

    def net(self, node: int) -> XmlNet:
        """Return the network port at a node."""
        value = self.nodes[node].value
        assert isinstance(value, XmlNet)
        return value

    def cpu(self, node: int) -> XmlCpu:
        """Return the CPU at a node."""
        value = self.nodes[node].value
        assert isinstance(value, XmlCpu)
        return value

    @property
    def first_cpu(self) -> XmlCpu:
        """The first CPU, which NCCL uses where it considers a single one."""
        return self.cpu(self.of_kind("CPU")[0])

    def add(self, kind: NodeKind, host: str, value: XmlGpu | XmlNet | XmlCpu | None = None) -> int:
        """Add a node and return its number."""
        self.nodes.append(Node(kind, host, value))
        self.links_out.append([])
        return len(self.nodes) - 1

    def connect(self, kind: LinkKind, source: int, target: int, bandwidth: float) -> None:
        """Add bandwidth in GB/s in the direction from source to target."""
        for index in self.links_out[source]:
            link = self.links[index]
            if link.target == target and link.kind == kind:
                link.bandwidth += bandwidth
                return
        self.links_out[source].append(len(self.links))
        self.links.append(Link(kind, source, target, bandwidth))

    def connect_both(self, kind: LinkKind, first: int, second: int, bandwidth: float) -> None:
        """Add the same bandwidth in GB/s in both directions."""
        self.connect(kind, first, second, bandwidth)
        self.connect(kind, second, first, bandwidth)


def system_graph(
    system: XmlSystem, facts: Facts, *, networked: bool, devices: Collection[int] | None = None
) -> SystemGraph:
    """Return NCCL's graph of a node (src/graph/topo.cc, ncclTopoGetSystemFromXml).

    - `networked`: whether the graph has network ports; a single node needs none.
    - `devices`: the numbers of the CUDA devices in use; None: all. If the file states ranks, GPUs
      without a rank are left out.
    """
    builder = _Builder(SystemGraph(facts), networked, _used_gpus(system, devices))
    for cpu in system.cpus:
        node = builder.graph.add("CPU", cpu.host_hash, cpu)
        for pci in cpu.pcis:
            builder.pci(pci, node, node)
        for nic in cpu.nics:
            builder.nic(nic.nets, node, LOCAL, f"{cpu.host_hash} {node}")
    builder.nvlinks()
    graph = builder.graph
    for first, second in permutations(graph.of_kind("CPU"), 2):
        if graph.nodes[first].host == graph.nodes[second].host:
            graph.connect("SYS", first, second, socket_bandwidth(graph.cpu(first), facts))
    _sort_links(graph)
    ranks = sorted(rank for _, rank in builder.gpu_ranks)
    graph.local_ranks = tuple(ranks.index(rank) for _, rank in builder.gpu_ranks)
    if not graph.of_kind("GPU"):
        raise InputError("the topology has no GPU elements, or none of the devices in use")
    return graph


def cpu_vendor(cpu: XmlCpu) -> str:
    """Return the short name of a CPU's vendor."""
    return VENDORS.get(cpu.vendor, "")


def nvlink_bandwidth(sm: int, facts: Facts) -> float:
    """Return the GB/s that NCCL assumes for one NVLink of a GPU of this generation
    (ncclTopoNVLinkBw).
    """
    return step_value(facts.nvlink, sm)


def pci_bandwidth(pci: XmlPci) -> float:
    """Return the GB/s that NCCL assumes for a PCIe link; an unknown speed counts as generation
    3.
    """
    speed = pci.link_speed.split(" ")[0].removesuffix(".0")
    return (pci.link_width or 16) * LANE_SPEED.get(speed, 60) / 80


def net_bandwidth(net: XmlNet) -> float:
    """Return the GB/s that NCCL assumes for a port; an unknown speed counts as 10 Gb/s."""
    return (net.speed if net.speed > 0 else 10000) / 8000


def socket_bandwidth(cpu: XmlCpu, facts: Facts) -> float:
    """Return the GB/s that NCCL assumes between two CPUs of one host (ncclTopoGetInterCpuBw)."""
    if cpu.arch == "ppc64":
        return 32.0
    if cpu.arch == "arm64":
        return 6.0
    vendor = cpu_vendor(cpu)
    if vendor == "Intel":
        return step_value(facts.intel_sockets, cpu.modelid)
    if vendor == "AMD":
        return facts.amd_sockets
    return 9.0 if vendor == "Zhaoxin" and cpu.modelid == 0x5B else 6.0


def _used_gpus(system: XmlSystem, devices: Collection[int] | None) -> dict[tuple[int, int], int]:
    """Return the rank of every GPU in use, by (CUDA device, place of the GPU in the file).

    `devices` are the CUDA devices in use; None: all GPUs, or those with a rank if the file states
    ranks.
    """
    gpus = list(system.gpus())
    if devices is not None:
        chosen = [(place, gpu) for place, gpu in enumerate(gpus) if gpu.dev in devices]
        return {(gpu.dev, place): rank for rank, (place, gpu) in enumerate(chosen)}
    if all(gpu.rank is None for gpu in gpus):
        return {(gpu.dev, place): place for place, gpu in enumerate(gpus)}
    return {(gpu.dev, place): gpu.rank for place, gpu in enumerate(gpus) if gpu.rank is not None}


@dataclass
class _Builder:
    """Builds the graph in one pass over the topology file.

    - `networked`: whether ports are added.
    - `ranks`: the rank of every GPU in use, by (CUDA device, place in the file).
    - `by_bus`: the node of each PCI device, by (host, bus id), because links refer to bus ids.
    - `cards`: the node of each NIC, by the key of its card.
    - `switch_links`: for each link between PCIe switches, its node and the bus id of the other end.
    """

    graph: SystemGraph
    networked: bool
    ranks: dict[tuple[int, int], int]
    by_bus: dict[tuple[str, str], int] = field(default_factory=dict)
    cards: dict[str, int] = field(default_factory=dict)
    gpus: list[tuple[int, int, XmlGpu]] = field(default_factory=list)
    switch_links: list[tuple[int, str]] = field(default_factory=list)
    gpu_ranks: list[tuple[int, int]] = field(default_factory=list)
    seen_gpus: int = 0

    def pci(self, pci: XmlPci, parent: int, cpu: int) -> None:
        """Add a PCI device and what is below it (ncclTopoAddPci)."""
        host = self.graph.nodes[cpu].host
        bandwidth = pci_bandwidth(pci)
        if pci.gpu is not None:
            self.gpu(pci.gpu, pci.busid, parent, cpu, bandwidth)
        elif pci.nics:
            nets = tuple(net for nic in pci.nics for net in nic.nets)
            self.nic(nets, parent, bandwidth, f"{host} {pci.busid.split('.')[0]}")
        elif pci.pcis or pci.pci_links:
            node = self.graph.add("PCI", host)
            self.by_bus[host, pci.busid.lower()] = node
            self.switch_links += [(node, link.target) for link in pci.pci_links]
            for below in pci.pcis:
                self.pci(below, node, cpu)
            self.graph.connect_both("PCI", node, parent, bandwidth)

    def gpu(self, gpu: XmlGpu, busid: str, parent: int, cpu: int, bandwidth: float) -> None:
        """Add a GPU, unless it is not in use."""
        place = self.seen_gpus
        self.seen_gpus += 1
        if (gpu.dev, place) not in self.ranks:
            return
        host = self.graph.nodes[cpu].host
        node = self.graph.add("GPU", host, gpu)
        self.by_bus[host, busid.lower()] = node
        self.gpus.append((node, cpu, gpu))
        self.gpu_ranks.append((node, self.ranks[gpu.dev, place]))
        self.graph.connect_both("PCI", node, parent, bandwidth)

    def nic(self, nets: tuple[XmlNet, ...], parent: int, bandwidth: float, card: str) -> None:
        """Add a NIC and its ports; `card` is a key that is equal for the functions of one card."""
        if not self.networked or not any(net.net for net in nets):
            return
        host = self.graph.nodes[parent].host
        earlier = self.cards.get(card)
        node = self.graph.add("NIC", host) if earlier is None else earlier
        self.cards[card] = node
        for net in nets:
            port = self.graph.add("NET", host, net)
            self.graph.connect_both("NET", node, port, net_bandwidth(net))
        if earlier is None:
            self.graph.connect_both("PCI", node, parent, bandwidth)

    def nvlinks(self) -> None:
        """Add NVLinks, C2C links and links between PCIe switches (ncclTopoAddNvLinks)."""
        graph = self.graph
        switch = -1
        for node, cpu, gpu in self.gpus:
            host = graph.nodes[node].host
            link_bandwidth = nvlink_bandwidth(gpu.sm, graph.facts)
            for link in gpu.nvlinks:
                if link.tclass == SWITCH_CLASS:
                    switch = graph.add("NVS", "") if switch < 0 else switch
                    graph.connect_both("NVL", node, switch, link.count * link_bandwidth)
                elif link.tclass == CPU_CLASS:
                    graph.connect_both("NVL", node, cpu, link.count * link_bandwidth)
                elif (host, link.target.lower()) in self.by_bus:
                    peer = self.by_bus[host, link.target.lower()]
                    graph.connect("NVL", node, peer, link.count * link_bandwidth)
            for c2c in gpu.c2c:
                graph.connect_both("C2C", node, cpu, c2c.count * c2c.bandwidth / 1000)
        for node, target in self.switch_links:
            peer = self.by_bus.get((graph.nodes[node].host, target.lower()), -1)
            if peer >= 0:
                graph.connect_both("LOC", node, peer, LOCAL)


def _sort_links(graph: SystemGraph) -> None:
    """Sort the links out of every node (NCCL: ncclTopoSortSystem).

    Faster links come first, but the link to the parent in the PCIe tree comes last.
    """
    for links in graph.links_out:
        links.sort(key=lambda index: -graph.links[index].bandwidth)
    stack = [(cpu, -1) for cpu in graph.of_kind("CPU")]
    while stack:
        node, parent = stack.pop()
        links = graph.links_out[node]
        links.sort(key=lambda index, up=parent: graph.links[index].target == up)  # type: ignore[misc]
        for index in links:
            link = graph.links[index]
            if link.kind == "PCI" and link.target != parent:
                stack.append((link.target, node))


SOCKETS = ("tcp",)  # transports whose NICs are network interfaces to NCCL


def with_nics(system: XmlSystem, transport: str, settings: Settings) -> XmlSystem:
    """Return the system with the NICs that the user lets NCCL use (NCCL_IB_HCA,
    NCCL_SOCKET_IFNAME).
    """
    sockets = transport in SOCKETS
    variable = "NCCL_SOCKET_IFNAME" if sockets else "NCCL_IB_HCA"
    names = settings.interfaces if sockets else settings.hcas
    if names is None:
        return system
    there = [_shown(net, sockets) for net in system.nets()]
    changed = system.with_ports(
        lambda net: net if names.admit(_shown(net, sockets), net.port) else None
    )
    if there and not any(changed.nets()):
        present = ", ".join(dict.fromkeys(there))
        raise VariableError(variable, f"it names none of the NICs {present}")
    return changed


def _shown(net: XmlNet, sockets: bool) -> str:
    """Return the name by which NCCL knows a port; `sockets`: whether NCCL uses it as an interface
    of TCP.
    """
    return f"eth{net.dev}" if sockets else net.name
