"""The inside of one host as a graph, from its Machine: names are local (`gpu0`, `pcie1`, `nic3`).

Nodes: GPUs, one `nvswitch0` for all NVSwitch chips, PCIe switches, CPUs (NUMA domains), their
memories, NICs. A GPU's egress and ingress are its two links to `nvswitch0`.
"""

from collections.abc import Iterator
from itertools import combinations, permutations
from typing import get_args

from netsim.constants import value
from netsim.topology.layout import Sketch
from netsim.topology.machine import LinkKind, Machine, ScaleUp, node_of

# Seconds of one traversal, with the forwarding of the node it enters. Protocol and driver costs are
# not in here. `latencies` of a machine replaces them.
DIRECT_NVLINK = value("wire.nvlink_direct")
LATENCY: dict[LinkKind, float] = {kind: value(f"wire.{kind}") for kind in get_args(LinkKind)}


def host_graph(machine: Machine) -> Sketch:
    """The graph of one host; every node has a kind, every edge bandwidth, latency, kind, duplex."""
    graph = Sketch()
    for number in range(machine.gpu.count):
        graph.node(f"gpu{number}", kind="gpu", forwards=False)
    if machine.scale_up is not None and machine.scale_up.switches is not None:
        graph.node("nvswitch0", kind="nvswitch", **_adds(machine.scale_up))
    for number in range(len(machine.pcie.switches)):
        graph.node(f"pcie{number}", kind="pcie")
    for number in range(machine.cpu.domains):
        graph.node(f"cpu{number}", kind="cpu")
        graph.node(f"mem{number}", kind="memory", forwards=False)
    for number in range(machine.nics.count if machine.nics else 0):
        graph.node(f"nic{number}", kind="nic", forwards=False)
    for a, b, kind, bandwidth in _joints(machine):
        _join(graph, machine, a, b, kind, bandwidth)
    return graph


def _adds(scale_up: ScaleUp) -> dict[str, bool]:
    """The mark of switches that reduce and multicast (NVLink SHARP)."""
    return {"reduces": True} if scale_up.multicast else {}


def _joints(machine: Machine) -> Iterator[tuple[str, str, LinkKind, float]]:
    """Every pair of neighbours once: ends, kind and bandwidth in one direction."""
    if machine.scale_up is not None and machine.scale_up.fitted:
        yield from _scale_up(machine.scale_up, machine.gpu.count)
    for number, parent in enumerate(machine.switches_at):
        yield f"pcie{number}", parent, "pcie", machine.pcie.uplink(number).usable
    for number in range(machine.gpu.count):
        place, link = node_of(machine.gpu_at(number)), machine.link_of(machine.gpu, number)
        if machine.c2c is None or place.startswith("pcie"):
            yield f"gpu{number}", place, "pcie", link.usable
        if machine.c2c is not None:
            yield f"gpu{number}", cpu_above(machine, place), "c2c", machine.c2c.bandwidth
    if machine.nics is not None:
        for number in range(machine.nics.count):
            usable = machine.link_of(machine.nics, number).usable
            yield f"nic{number}", node_of(machine.nic_at(number)), "pcie", usable
    for number in range(machine.cpu.domains):
        yield f"cpu{number}", f"mem{number}", "hostmem", machine.cpu.memory_bandwidth
    for a, b in combinations(range(machine.cpu.domains), 2):
        yield f"cpu{a}", f"cpu{b}", "upi", machine.cpu.link or 0.0


def _scale_up(scale_up: ScaleUp, gpus: int) -> Iterator[tuple[str, str, LinkKind, float]]:
    """Links of one pair of GPUs, or of a GPU and the switch, count as one with their sum."""
    rate, links = scale_up.link_bandwidth, scale_up.links or 0
    if scale_up.switches is not None:
        for gpu in range(gpus):
            yield f"gpu{gpu}", "nvswitch0", scale_up.kind, links * rate
        return
    mesh = [(a, b, links) for a, b in combinations(range(gpus), 2)]
    for a, b, count in scale_up.peers or mesh:
        yield f"gpu{a}", f"gpu{b}", scale_up.kind, count * rate


def _join(
    graph: Sketch, machine: Machine, a: str, b: str, kind: LinkKind, bandwidth: float
) -> None:
    own = {**LATENCY, **machine.latencies}
    if a.startswith("gpu") and b.startswith("gpu"):
        own["nvlink"] = machine.latencies.get("nvlink", DIRECT_NVLINK)
    for tail, head in permutations((a, b)):
        graph.edge(
            tail,
            head,
            kind=kind,
            bandwidth=bandwidth,
            latency=own[kind] + (own["nic"] if head.startswith("nic") else 0.0),
            duplex="half" if kind == "hostmem" else "full",
        )


def cpu_above(machine: Machine, place: str) -> str:
    """The CPU that a place of the PCIe tree hangs on."""
    while place.startswith("pcie"):
        place = machine.pcie.switches[int(place.removeprefix("pcie"))]
    return node_of(place)
