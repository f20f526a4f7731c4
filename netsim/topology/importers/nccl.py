"""NCCL's topology XML as a machine: one host with its PCIe tree, NVLinks and NICs.

The file has no memory, no arithmetic and no figures of CPUs: those come from the GPU model named,
or from the compute capability.
"""

from dataclasses import dataclass, field
from pathlib import Path

from netsim.errors import InputError
from netsim.topology.importers.known import cpu_figures, gpu_named, gpu_of_sm, nvlink_rate
from netsim.topology.machine import C2c as MachineC2c
from netsim.topology.machine import Cpu as MachineCpu
from netsim.topology.machine import Gpu as MachineGpu
from netsim.topology.machine import Machine, Nics, Pcie, PcieLink, ScaleUp
from netsim.topology.nccl_view import NVSWITCH_CLASS, SPEEDS, VENDORS
from netsim.topology.nccl_xml import Gpu, Net, Pci, System, read_system

UNKNOWN_RATE = 1.25e9  # a port without speed, as NCCL takes it


def read_nccl(path: Path, gpu: str = "") -> Machine:
    """The machine of an XML file; `gpu` names its model if the compute capability is not enough."""
    return machine_of(read_system(path), gpu, path.stem)


def machine_of(system: System, gpu: str = "", name: str = "host") -> Machine:
    """The machine that a system describes."""
    if len({cpu.host_hash for cpu in system.cpus}) > 1:
        raise InputError(f"{name}: this file holds several hosts; give one host a file")
    tree = _Tree()
    for number, cpu in enumerate(system.cpus):
        for pci in cpu.pcis:
            tree.add(pci, f"cpu{number}")
        tree.nics += [(net, f"cpu{number}", None) for nic in cpu.nics for net in nic.nets]
    if not tree.gpus:
        raise InputError(f"{name}: the topology has no GPU elements")
    tree.gpus.sort(key=lambda one: one[0].dev)
    model = gpu_named(gpu) if gpu else gpu_of_sm(tree.gpus[0][0].sm)
    return Machine(
        description=f"imported from {name} (NCCL topology XML)",
        gpu=_gpus(tree, model),
        scale_up=_scale_up(tree),
        c2c=_c2c(tree),
        pcie=_pcie(tree),
        cpu=_cpus(system),
        nics=_nics(tree),
    )


@dataclass
class _Tree:
    """The devices of a system in the order of the file, each with its place and PCIe link."""

    gpus: list[tuple[Gpu, str, PcieLink]] = field(default_factory=list)
    nics: list[tuple[Net, str, PcieLink | None]] = field(default_factory=list)
    switches: list[tuple[str, PcieLink]] = field(default_factory=list)
    bus: dict[str, int] = field(default_factory=dict)

    def add(self, pci: Pci, place: str) -> None:
        """A device or a switch with all below it."""
        if pci.gpu is not None:
            self.bus[pci.busid.lower()] = pci.gpu.dev
            self.gpus.append((pci.gpu, place, _link(pci)))
        elif pci.nics:
            nets = [net for nic in pci.nics for net in nic.nets if net.net]
            self.nics += [(net, place, _link(pci)) for net in nets]
        elif pci.pcis:
            here = f"pcie{len(self.switches)}"
            self.switches.append((place, _link(pci)))
            for below in pci.pcis:
                self.add(below, here)

    @property
    def number(self) -> dict[int, int]:
        """The number of each GPU by its CUDA device."""
        return {gpu.dev: number for number, (gpu, _, _) in enumerate(self.gpus)}


def _link(pci: Pci) -> PcieLink:
    """The PCIe link of a device; unknown is generation 3 and 16 lanes, as NCCL has it."""
    speed = pci.link_speed.split(" ")[0].removesuffix(".0")
    known = {
        text.split(" ")[0].removesuffix(".0"): generation for generation, text in SPEEDS.items()
    }
    width = pci.link_width if pci.link_width in (1, 2, 4, 8, 16, 32) else 16
    return PcieLink(generation=known.get(speed, 3), width=width)  # type: ignore[arg-type]


def _gpus(tree: _Tree, model: MachineGpu) -> MachineGpu:
    sm = tree.gpus[0][0].sm
    return model.model_copy(
        update={
            "count": len(tree.gpus),
            "arch": f"sm_{sm}",
            "at": tuple(place for _, place, _ in tree.gpus),
            "pcie": tuple(link for _, _, link in tree.gpus),
        }
    )


def _scale_up(tree: _Tree) -> ScaleUp | None:
    """NVLinks to a switch, or between GPUs."""
    sm, number = tree.gpus[0][0].sm, tree.number
    rate = nvlink_rate(sm)
    switched = [
        link.count
        for gpu, _, _ in tree.gpus
        for link in gpu.nvlinks
        if link.tclass == NVSWITCH_CLASS
    ]
    if switched:
        return ScaleUp.model_construct(
            kind="nvlink",
            link_bandwidth=rate,
            links=min(switched),
            switches=1,
            multicast=sm >= 90,
        )
    pairs: dict[tuple[int, int], int] = {}
    for gpu, _, _ in tree.gpus:
        for link in gpu.nvlinks:
            peer = tree.bus.get(link.target.lower())
            if peer is not None:
                a, b = sorted((number[gpu.dev], number[peer]))
                pairs[a, b] = link.count
    if not pairs:
        return None
    peers = tuple((a, b, count) for (a, b), count in sorted(pairs.items()))
    return ScaleUp.model_construct(kind="nvlink", link_bandwidth=rate, peers=peers)


def _c2c(tree: _Tree) -> MachineC2c | None:
    rates = [sum(c2c.bandwidth * c2c.count for c2c in gpu.c2c) * 1e6 for gpu, _, _ in tree.gpus]
    return MachineC2c.model_construct(bandwidth=max(rates)) if max(rates) > 0 else None


def _pcie(tree: _Tree) -> Pcie:
    """The tree; the link of the first GPU stands for all that is not told."""
    usual = tree.gpus[0][2]
    return Pcie(
        generation=usual.generation,
        width=usual.width,
        switches=tuple(place for place, _ in tree.switches),
        uplinks=tuple(link for _, link in tree.switches) or None,
    )


def _cpus(system: System) -> MachineCpu:
    first = system.cpus[0]
    vendor = next((short for short, name in VENDORS.items() if name == first.vendor), first.vendor)
    memory, link = cpu_figures("arm" if first.arch == "arm64" else vendor, first.modelid)
    return MachineCpu.model_construct(
        vendor=vendor,
        model=f"family {first.familyid} model {first.modelid}",
        arch=first.arch,
        family=first.familyid,
        model_id=first.modelid,
        domains=len(system.cpus),
        memory_bandwidth=memory,
        link=link,
    )


def _nics(tree: _Tree) -> Nics | None:
    """All ports, as they are numbered by NCCL."""
    if not tree.nics:
        return None
    ports = sorted(tree.nics, key=lambda one: one[0].dev)
    rates = tuple(net.speed * 1e6 / 8 if net.speed > 0 else UNKNOWN_RATE for net, _, _ in ports)
    usual = tree.gpus[0][2]
    return Nics.model_construct(
        model=ports[0][0].name.rstrip("0123456789").rstrip("_") or "NIC",
        count=len(ports),
        rate=rates[0],
        rate_each=rates,
        at=tuple(place for _, place, _ in ports),
        gpudirect=any(net.gdr for net, _, _ in ports),
        pcie=tuple(link or usual for _, _, link in ports),
    )
