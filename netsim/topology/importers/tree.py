"""The devices of one host in NCCL's XML, each with its place in the PCIe tree and its link."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from netsim.topology.machine import PcieLink
from netsim.topology.nccl_view import SPEEDS
from netsim.topology.nccl_xml import Cpu, Gpu, Net, Pci

GPU_CODES = ("0x0300", "0x0302", "0x0380", "0x1200")  # display, 3D, AMD's accelerators
NIC_CODES = ("0x0200", "0x0207")  # Ethernet, InfiniBand


@dataclass(frozen=True, slots=True)
class Slot:
    """A GPU: None where the file has its PCI function only."""

    gpu: Gpu | None
    busid: str
    place: str
    link: PcieLink


@dataclass(frozen=True, slots=True)
class Port:
    """A network port: None where the file has its PCI function only."""

    net: Net | None
    place: str
    link: PcieLink | None


@dataclass
class Tree:
    """GPUs and ports as NCCL numbers them; what each PCIe switch hangs on, with its link.

    `bridged`: every device below a switch has a bridge of its own, which is left out here.
    """

    gpus: list[Slot] = field(default_factory=list)
    ports: list[Port] = field(default_factory=list)
    switches: list[tuple[str, PcieLink]] = field(default_factory=list)
    bridged: bool = False

    def pairs(self) -> dict[tuple[int, int], int]:
        """NVLinks between two GPUs, by their numbers."""
        number = {slot.busid: n for n, slot in enumerate(self.gpus)}
        found: dict[tuple[int, int], int] = {}
        for n, slot in enumerate(self.gpus):
            for link in slot.gpu.nvlinks if slot.gpu is not None else ():
                peer = number.get(link.target.lower())
                if peer is not None and peer != n:
                    found[min(n, peer), max(n, peer)] = link.count
        return found

    def outline(self) -> str:
        """What makes two hosts alike: everything but bus ids, names and ranks."""
        gpus = [
            (slot.place, slot.link, slot.gpu and (slot.gpu.sm, slot.gpu.gdr, len(slot.gpu.nvlinks)))
            for slot in self.gpus
        ]
        ports = [(p.place, p.link, p.net and (p.net.speed, p.net.gdr)) for p in self.ports]
        return repr((gpus, ports, self.switches))


def tree_of(cpus: Sequence[Cpu]) -> Tree:
    """The devices below the CPUs of one host."""
    roots = [pci for cpu in cpus for pci in cpu.pcis]
    tree = Tree(bridged=_bridged(roots))
    for number, cpu in enumerate(cpus):
        for pci in cpu.pcis:
            _add(tree, pci, f"cpu{number}")
        nets = [net for nic in cpu.nics for net in nic.nets]
        tree.ports += [Port(net, f"cpu{number}", None) for net in nets]
    tree.gpus.sort(key=lambda slot: slot.gpu.dev if slot.gpu is not None else 0)
    tree.ports.sort(key=lambda port: port.net.dev if port.net is not None else 0)
    return tree


def link_of(pci: Pci) -> PcieLink:
    """The PCIe link of a device; unknown is generation 3 and 16 lanes, as NCCL has it."""
    speed = pci.link_speed.split(" ")[0].removesuffix(".0")
    known = {text.split(" ")[0].removesuffix(".0"): number for number, text in SPEEDS.items()}
    width = pci.link_width if pci.link_width in (1, 2, 4, 8, 16, 32) else 16
    return PcieLink(generation=known.get(speed, 3), width=width)  # type: ignore[arg-type]


def _is_gpu(pci: Pci) -> bool:
    return pci.gpu is not None or (pci.class_code.startswith(GPU_CODES) and not pci.nics)


def _is_device(pci: Pci) -> bool:
    return _is_gpu(pci) or bool(pci.nics) or pci.class_code.startswith(NIC_CODES)


def _bridged(roots: Sequence[Pci]) -> bool:
    """Whether every device below a switch sits alone behind a bridge with a link like its own."""
    switches = [pci for pci in roots if not _is_device(pci)]
    below = [one for switch in switches for one in switch.pcis]
    alone = [
        not _is_device(one)
        and len(one.pcis) == 1
        and _is_device(one.pcis[0])
        and link_of(one) == link_of(one.pcis[0])
        for one in below
    ]
    return bool(alone) and all(alone)


def _add(tree: Tree, pci: Pci, place: str) -> None:
    """A device or a switch with all below it."""
    if _is_gpu(pci):
        tree.gpus.append(Slot(pci.gpu, pci.busid.lower(), place, link_of(pci)))
    elif pci.nics:
        nets = [net for nic in pci.nics for net in nic.nets if net.net]
        tree.ports += [Port(net, place, link_of(pci)) for net in nets]
    elif _is_device(pci):
        tree.ports.append(Port(None, place, link_of(pci)))
    elif tree.bridged and place.startswith("pcie"):
        _add(tree, pci.pcis[0], place)
    elif pci.pcis:
        here = f"pcie{len(tree.switches)}"
        tree.switches.append((place, link_of(pci)))
        for below in pci.pcis:
            _add(tree, below, here)
