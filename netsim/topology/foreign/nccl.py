"""Make a machine of NCCL's topology XML; values that the file lacks come from a similar preset."""

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

from netsim.base.errors import InputError, suggest
from netsim.base.files import preset_names
from netsim.base.values import dataclass, grouped
from netsim.topology.foreign.nccl_xml import RCCL_VERSION, XmlCpu, XmlGpu, XmlNet, XmlPci, XmlSystem
from netsim.topology.load import FOLDER, load_machine
from netsim.topology.machine import (
    C2c,
    Cpu,
    Gpu,
    Machine,
    Nics,
    Pcie,
    PcieLink,
    ScaleUp,
    TransportName,
)
from netsim.topology.nccl_view import ASSUMED_LINK, NVSWITCH_CLASS, SPEEDS, VENDORS

GPU_CODES = ("0x0300", "0x0302", "0x0380", "0x1200")  # display, 3D, AMD's accelerators
NIC_CODES = ("0x0200", "0x0207")  # Ethernet, InfiniBand


@dataclass(frozen=True, slots=True)
class GpuSlot:
    """A GPU at a place of the PCIe tree; `gpu` is None if the file has only the PCI function."""

    gpu: XmlGpu | None
    busid: str
    place: str
    link: PcieLink


@dataclass(frozen=True, slots=True)
class NetPort:
    """A network port at a place of the PCIe tree; `net` is None if the file has only the PCI
    function.
    """

    net: XmlNet | None
    place: str
    link: PcieLink | None


@dataclass
class DeviceTree:
    """The devices of one host.

    Args:
        gpus: GPUs in NCCL's order.
        ports: network ports in NCCL's order.
        switches: for each PCIe switch, the place above it and its link to that place.
        bridged: whether every device below a switch has a PCIe bridge of its own; these bridges are
            omitted here.
        source: name of the file in messages.
    """

    gpus: list[GpuSlot] = field(default_factory=list)
    ports: list[NetPort] = field(default_factory=list)
    switches: list[tuple[str, PcieLink]] = field(default_factory=list)
    bridged: bool = False
    source: str = ""

    def known_gpus(self) -> list[tuple[int, XmlGpu]]:
        """Return (number, gpu element) of every GPU that has such an element."""
        return [(n, slot.gpu) for n, slot in enumerate(self.gpus) if slot.gpu is not None]

    def gpu_name(self, number: int) -> str:
        """Return the name of a GPU in messages: its number and bus id."""
        return f"GPU {number} ({self.gpus[number].busid})"

    def switch_links(self) -> dict[int, int]:
        """Return the number of NVLinks to NVSwitches by the number of the GPU; several elements of
        a GPU add up.
        """
        return {
            number: sum(link.count for link in gpu.nvlinks if link.tclass == NVSWITCH_CLASS)
            for number, gpu in self.known_gpus()
        }

    def pairs(self) -> dict[tuple[int, int], int]:
        """Return the number of NVLinks between GPUs by (GPU, GPU); several elements of a GPU add
        up.

        Refuses links that only one of the two GPUs lists.
        """
        number = {slot.busid: n for n, slot in enumerate(self.gpus)}
        directed: dict[tuple[int, int], int] = {}
        for gpu_number, gpu in self.known_gpus():
            for link in gpu.nvlinks:
                peer = number.get(link.target.lower())
                if peer is not None and peer != gpu_number:
                    ends = gpu_number, peer
                    directed[ends] = directed.get(ends, 0) + link.count
        for (a, b), there in directed.items():
            back = directed.get((b, a), 0)
            if there != back:
                first = self.gpu_name(a)
                second = self.gpu_name(b)
                raise InputError(
                    f"{self.source}: {first} has {there} links to {second}, which has {back} back; "
                    "a machine has as many in both directions"
                )
        return {(a, b): count for (a, b), count in directed.items() if a < b}

    def outline(self) -> str:
        """Return a text that describes the devices and links of the host without bus ids, names and
        ranks. Two hosts are equal if their texts are.
        """
        gpus = [
            (slot.place, slot.link, slot.gpu and (slot.gpu.sm, slot.gpu.gdr, slot.gpu.gcn))
            for slot in self.gpus
        ]
        links = (self.switch_links(), sorted(self.pairs().items()), _cpu_links(self))
        ports = [(p.place, p.link, p.net and (p.net.speed, p.net.gdr)) for p in self.ports]
        return repr((gpus, links, ports, self.switches))


def tree_of(cpus: Sequence[XmlCpu], source: str = "") -> DeviceTree:
    """Return the devices below the CPUs of one host; `source` is the name of the file in
    messages.
    """
    roots = [pci for cpu in cpus for pci in cpu.pcis]
    tree = DeviceTree(bridged=_is_bridged(roots), source=source)
    for number, cpu in enumerate(cpus):
        for pci in cpu.pcis:
            _add_devices(tree, pci, f"cpu{number}")
        nets = [net for nic in cpu.nics for net in nic.nets]
        tree.ports += [NetPort(net, f"cpu{number}", None) for net in nets]
    tree.gpus.sort(key=lambda slot: slot.gpu.dev if slot.gpu is not None else 0)
    tree.ports.sort(key=lambda port: port.net.dev if port.net is not None else 0)
    return tree


def link_of(pci: XmlPci) -> PcieLink:
    """Return the PCIe link of a device; if unknown, generation 3 with 16 lanes, as NCCL assumes."""
    speed = pci.link_speed.split(" ")[0].removesuffix(".0")
    generation_of_speed = {
        text.split(" ")[0].removesuffix(".0"): number for number, text in SPEEDS.items()
    }
    width = pci.link_width if pci.link_width in (1, 2, 4, 8, 16, 32) else 16
    return PcieLink(generation=generation_of_speed.get(speed, 3), width=width)  # type: ignore[arg-type]


def _is_gpu(pci: XmlPci) -> bool:
    return pci.gpu is not None or (pci.class_code.startswith(GPU_CODES) and not pci.nics)


def _is_device(pci: XmlPci) -> bool:
    return _is_gpu(pci) or bool(pci.nics) or pci.class_code.startswith(NIC_CODES)


def _is_bridged(roots: Sequence[XmlPci]) -> bool:
    """Whether every device below a switch is alone below a bridge with the same link. `roots` are
    the PCI devices directly below the CPUs.
    """
    switches = [pci for pci in roots if not _is_device(pci)]
    bridges = [bridge for switch in switches for bridge in switch.pcis]
    is_lone_bridge = [
        not _is_device(bridge)
        and len(bridge.pcis) == 1
        and _is_device(bridge.pcis[0])
        and link_of(bridge) == link_of(bridge.pcis[0])
        for bridge in bridges
    ]
    return bool(is_lone_bridge) and all(is_lone_bridge)


def _add_devices(tree: DeviceTree, pci: XmlPci, place: str) -> None:
    """Add a PCI device at `place`, and all that is below it, to the tree."""
    if _is_gpu(pci):
        tree.gpus.append(GpuSlot(pci.gpu, pci.busid.lower(), place, link_of(pci)))
    elif pci.nics:
        nets = [net for nic in pci.nics for net in nic.nets if net.net]
        tree.ports += [NetPort(net, place, link_of(pci)) for net in nets]
    elif _is_device(pci):
        tree.ports.append(NetPort(None, place, link_of(pci)))
    elif tree.bridged and place.startswith("pcie"):
        _add_devices(tree, pci.pcis[0], place)
    elif pci.pcis:
        here = f"pcie{len(tree.switches)}"
        tree.switches.append((place, link_of(pci)))
        for below in pci.pcis:
            _add_devices(tree, below, here)


@dataclass(frozen=True, slots=True)
class GpuModel:
    """A model of GPU.

    Args:
        sms: SMs, or compute units of AMD's GPUs.
        memory: GB.
        bandwidth: GB/s of the memory.
        flops: TFLOPS by data type.
        sm: compute capability of NVIDIA's GPUs.
        gcn: architecture of AMD's GPUs.
        p2p: whether the driver lets peers access its memory.
    """

    sms: int
    memory: int
    bandwidth: float
    flops: dict[str, float]
    sm: int = 0
    gcn: str = ""
    p2p: bool = True

    def filled(self, name: str, like: Gpu) -> Gpu:
        """Return the GPUs `like` with the values of this model, whose name is `name`."""
        flops = {dtype: rate * 1e12 for dtype, rate in self.flops.items()}
        figures = {"memory": self.memory * 10**9, "memory_bandwidth": self.bandwidth * 1e9}
        arch = self.gcn or f"sm_{self.sm}"
        named = {"model": name, "arch": arch, "sms": self.sms, "flops": flops}
        return like.model_copy(update=named | figures)


_FILE = Path(__file__).with_name("figures.toml")
_FIGURES: Mapping[str, Any] = tomllib.loads(_FILE.read_text(encoding="utf-8"))
MODELS = {name: GpuModel(**figures) for name, figures in _FIGURES["models"].items()}


def _by_sm(figure: str, sm: int) -> Any:
    """Return a value of the table `by_sm` in figures.toml for a compute capability, or for the next
    lower one in the table.
    """
    figure_of_sm = {int(key): value for key, value in _FIGURES["by_sm"][figure].items()}
    return figure_of_sm[max((known_sm for known_sm in figure_of_sm if known_sm <= sm), default=70)]


@dataclass(frozen=True, slots=True)
class BoxShape:
    """What a topology file says of a host; None for what it does not say.

    Args:
        gpus: number of GPUs.
        joined: how they are linked, and the number of links per GPU, see `joined_by`.
        p2p: whether GPUs reach each other's memory over PCIe.
        arch: architecture of the CPU.
        cpu: vendor, family and model of the CPU.
        nics: number of network ports.
        rate: line rate of a port in bytes per second.
        pairs: number of pairs of GPUs with links of their own.
    """

    gpus: int
    joined: tuple[str, int]
    p2p: bool | None = None
    arch: str | None = None
    cpu: tuple[str, int, int] | None = None
    nics: int | None = None
    rate: float | None = None
    pairs: int | None = None


def machine_like(
    gpu: str, shape: BoxShape, *, sm: int = 0, gcn: str = "", compute_units: int = 0
) -> Machine:
    """Return the preset that is most similar to a host.

    Args:
        gpu: model of its GPUs; may be empty.
        shape: what the file says of the host.
        sm: compute capability of NVIDIA's GPUs (90 for 9.0).
        gcn: architecture of AMD's GPUs, such as gfx942.
        compute_units: compute units of AMD's GPUs; 0 if unknown.
    """
    gpu = gpu or _FIGURES["by_sm"]["model"].get(str(sm), "")
    if gpu:
        machines = _of_model(gpu)
    elif gcn:
        machines = _of_gcn(gcn, compute_units)
    else:
        machines = _of_capability(sm)
    return max(machines, key=lambda machine: _common_features(machine, shape))


def joined_by(scale_up: ScaleUp | None, gpus: int) -> tuple[str, int]:
    """Return how the GPUs of a machine are linked ("switch", "peers" or "nothing"), and the number
    of links per GPU.
    """
    if scale_up is None or not scale_up.fitted:
        return "nothing", 0
    return "peers" if scale_up.switches is None else "switch", scale_up.links_of(gpus)


def nvlink_rate(sm: int) -> float:
    """Return the usable bytes per second of one NVLink of a GPU of a compute capability."""
    return float(_by_sm("nvlink", sm))


def xgmi_rate(gcn: str) -> float:
    """Return the usable bytes per second of one xGMI link of a GPU of an architecture; that of
    gfx942 if the architecture is unknown.
    """
    rates: Mapping[str, float] = _FIGURES["by_gcn"]["xgmi"]
    return rates.get(_architecture(gcn), rates["gfx942"])


def _architecture(gcn: str) -> str:
    """Return the architecture from which values are taken for an architecture: gfx942 for gfx940,
    which has none of its own.
    """
    same: Mapping[str, str] = _FIGURES["by_gcn"]["same_as"]
    return same.get(gcn, gcn)


def most_links(sm: int) -> int:
    """Return the most NVLinks that a GPU of a compute capability has."""
    return int(_by_sm("most_links", sm))


def same_cpu(cpu: Cpu, wanted: tuple[str, int, int]) -> bool:
    """Whether a CPU is of this vendor, family and model."""
    return (cpu.vendor, cpu.family, cpu.model_id) == wanted


def _of_model(gpu: str) -> list[Machine]:
    """Return machines with GPUs of a model: presets or, if there are none, presets with their GPUs
    replaced by the model.
    """
    presets = [load_machine(name) for name in preset_names(FOLDER)]
    for least in (3, 2, 1):  # the most similar first: L40 is not L40S, nor A10 A100
        if fitting := [
            machine for machine in presets if _likeness(machine.gpu.model, gpu) >= least
        ]:
            return fitting
        if name := next((name for name in MODELS if _likeness(name, gpu) >= least), ""):
            return _hosts_with(name)
    models = sorted({machine.gpu.model for machine in presets} | set(MODELS))
    raise InputError(f"unknown GPU '{gpu}'{suggest(gpu, models)}; known: {', '.join(models)}")


def _hosts_with(name: str) -> list[Machine]:
    """Return presets of the same maker (with NVIDIA's GPUs: of the same generation), with their
    GPUs replaced by the model `name`.
    """
    model = MODELS[name]
    hosts = _of_amd() if model.gcn else _of_capability(model.sm)
    return [_with_gpu(host, name) for host in hosts]


def _with_gpu(like: Machine, name: str) -> Machine:
    """Return the machine `like` with its GPUs replaced by those of the model `name`."""
    gpu = MODELS[name].filled(name, like.gpu)
    scale_up = like.scale_up
    if scale_up is not None and like.gpu.arch != gpu.arch:
        rate = xgmi_rate(gpu.arch) if MODELS[name].gcn else scale_up.link_bandwidth
        if gpu.sm != like.gpu.sm:
            rate = nvlink_rate(gpu.sm)
        scale_up = scale_up.model_copy(update={"link_bandwidth": rate})
    return like.model_copy(update={"gpu": gpu, "scale_up": scale_up, "p2p": MODELS[name].p2p})


def _of_amd() -> list[Machine]:
    """Return the presets with AMD's GPUs."""
    presets = [load_machine(name) for name in preset_names(FOLDER)]
    return [machine for machine in presets if not machine.gpu.sm]


def _of_gcn(gcn: str, compute_units: int) -> list[Machine]:
    """Return machines with GPUs of one of AMD's architectures, if possible with this number of
    compute units.

    Presets are preferred to machines made from presets with other GPUs.
    """
    arch = _architecture(gcn)
    presets = [machine for machine in _of_amd() if machine.gpu.arch == arch]
    names = [name for name, model in MODELS.items() if model.gcn == arch]
    if equal := [machine for machine in presets if machine.gpu.sms == compute_units]:
        return equal
    for name in names:
        if MODELS[name].sms == compute_units:
            return _hosts_with(name)
    if presets or names:
        return presets or _hosts_with(names[0])
    architectures = {machine.gpu.arch for machine in _of_amd()} | {
        model.gcn for model in MODELS.values()
    }
    architectures |= set(_FIGURES["by_gcn"]["same_as"])
    raise InputError(
        f"no GPU model is known for the architecture '{gcn}'; name it, as --gpu MI300X "
        f"(known architectures: {', '.join(sorted(architectures - {''}))})"
    )


def _of_capability(sm: int) -> list[Machine]:
    """Return the presets with NVIDIA's GPUs of a compute capability, the usual one first."""
    presets = [load_machine(name) for name in preset_names(FOLDER)]
    usual = load_machine(_by_sm("preset", sm))
    return [usual, *(machine for machine in presets if machine.gpu.sm == usual.gpu.sm)]


def _common_features(machine: Machine, shape: BoxShape) -> tuple[bool, ...]:
    """Return which features a preset has in common with a host, the most important first; a larger
    tuple means a more similar preset.
    """
    joined = joined_by(machine.scale_up, machine.gpu.count)
    rate = machine.nics.rates[0] if machine.nics else None
    return (
        shape.p2p is None or machine.p2p == shape.p2p,
        shape.arch is None or machine.cpu.arch == shape.arch,
        joined[0] == shape.joined[0],
        joined == shape.joined,
        shape.pairs is None or _pairs(machine) == shape.pairs,
        shape.cpu is not None and same_cpu(machine.cpu, shape.cpu),
        machine.gpu.count == shape.gpus,
        rate == shape.rate,
        (machine.nics.count if machine.nics else 0) == shape.nics,
    )


def _pairs(machine: Machine) -> int:
    """Return the number of pairs of GPUs of a machine with links of their own (0 with
    NVSwitches).
    """
    if (
        machine.scale_up is None
        or not machine.scale_up.fitted
        or machine.scale_up.switches is not None
    ):
        return 0
    return len(machine.scale_up.pairs(machine.gpu.count))


def _likeness(model: str, wanted: str) -> int:
    """Return how similar the name of a GPU model is to a wanted name.

    3: the model begins with the wanted words; 2: it has all these words; 1: it contains their
    letters in a row; 0: none of these.
    """
    words_of_model = _words(model)
    wanted_words = _words(wanted)
    tests = (
        words_of_model[: len(wanted_words)] == wanted_words,
        {*wanted_words} <= {*words_of_model},
        "".join(wanted_words) in "".join(words_of_model),
    )
    return 3 - tests.index(True) if wanted_words and True in tests else 0


def _words(name: str) -> list[str]:
    words = re.findall(r"[a-z0-9]+", name.casefold())
    return [word for word in words if word not in ("nvidia", "geforce", "amd", "server", "edition")]


# NCCL's topology XML as a machine: one host with its PCIe tree, NVLinks and NICs. The file does not
# state memory and FLOPS, and little of CPUs: those values are taken from the most similar preset.
# Files written by hand for NCCL_TOPO_FILE may also lack the gpu and nic elements of PCI functions;
# GPUs and NICs are then recognized by PCI class.

UNKNOWN_RATE = 1.25e9  # bytes/s of a port without speed, as NCCL assumes
CPU_CLASS = "0x068001"  # `tclass` of NVLinks to a CPU (POWER9)
PORTS: Mapping[str, TransportName] = _FIGURES["ports"]


def machine_of(
    system: XmlSystem, gpu: str = "", name: str = "host", nic_rate: float | None = None
) -> Machine:
    """Return the machine that a topology XML describes.

    Args:
        system: the content of the file.
        gpu: model of the GPU; needed if the file lacks it.
        name: name of the file, for messages.
        nic_rate: bytes per second of ports without a stated speed.
    """
    cpus, hosts = _one_host(system, name)
    tree = tree_of(cpus, name)
    if not tree.gpus:
        raise InputError(f"{name}: the topology has no GPUs")
    _check_equal_gpus(tree)
    first = tree.gpus[0].gpu
    if first is None and not gpu:
        raise InputError(
            f"{name}: it has GPUs (PCI class 0x0302) without a gpu element, so their model is not "
            "known; name it, as --gpu A100"
        )
    shape = _shape(tree, cpus)
    # In RCCL's files (version 2) `sm` counts compute units.
    compute_units = first.sm if first is not None and system.version == RCCL_VERSION else 0
    if first is None:
        like = machine_like(gpu, shape)
    else:
        like = machine_like(gpu, shape, sm=first.sm, gcn=first.gcn, compute_units=compute_units)
    own_scale_up = like.scale_up if first is None else _scale_up(tree, like)
    return Machine(
        description=f"imported from {name} ({'RCCL' if compute_units else 'NCCL'} topology XML)",
        gpu=_gpus(tree, like, compute_units),
        scale_up=_with_hosts(own_scale_up, hosts, like),
        c2c=_c2c(tree, like),
        pcie=_pcie(tree),
        cpu=_cpus(cpus, like),
        nics=_nics(tree, like, nic_rate, shape.cpu),
        p2p=bool(shape.p2p) or like.p2p,
        transport=_transport(tree, like),
    )


def _one_host(system: XmlSystem, name: str) -> tuple[list[XmlCpu], int]:
    """Return the CPUs of the first host, and the number of hosts in the file; refuse hosts that
    differ.
    """
    members = list(grouped(system.cpus, lambda cpu: cpu.host_hash).values())
    trees = [tree_of(cpus, name) for cpus in members]
    for number, tree in enumerate(trees):
        if tree.outline() != trees[0].outline():
            why = _different_links(trees[0], tree, number)
            raise InputError(
                f"{name}: this file holds hosts that differ{why}; give one host a file"
            )
    return members[0], len(members)


def _different_links(first: DeviceTree, tree: DeviceTree, number: int) -> str:
    """Return the part of a message that names a GPU of host `number` with another number of NVLinks
    than the same GPU of host 0; "" if there is none.

    `first` and `tree` are the devices of host 0 and of host `number`.
    """
    usual = first.switch_links()
    links = tree.switch_links()
    for gpu in sorted(usual.keys() & links.keys()):
        if usual[gpu] != links[gpu]:
            name = tree.gpu_name(gpu)
            return f" ({name} of host {number} has {links[gpu]} NVLinks, of host 0 {usual[gpu]})"
    return ""


def _shape(tree: DeviceTree, cpus: Sequence[XmlCpu]) -> BoxShape:
    """Return what the file says of the host, as far as it decides which preset is most similar:
    numbers of GPUs and ports, links between GPUs, CPU, rate of the ports.
    """
    gpus = [slot.gpu for slot in tree.gpus if slot.gpu is not None]
    scale_up = _scale_up(tree, None) if gpus else None
    rates = [port.net.speed for port in tree.ports if port.net and port.net.speed > 0]
    return BoxShape(
        len(tree.gpus),
        joined_by(scale_up, len(tree.gpus)),
        any(gpu.gdr for gpu in gpus) if gpus else None,
        cpus[0].arch,
        (_vendor(cpus[0]), cpus[0].familyid, cpus[0].modelid),
        len(tree.ports),
        rates[0] * 1e6 / 8 if rates else None,
        len(scale_up.peers) if scale_up else None,
    )


def _gpus(tree: DeviceTree, like: Machine, compute_units: int) -> Gpu:
    """Return the GPUs `like.gpu` with the places and links of the file. `compute_units` is their
    number in RCCL's files, else 0.
    """
    first = tree.gpus[0].gpu
    arch = like.gpu.arch if first is None or first.gcn else f"sm_{first.sm}"
    return like.gpu.model_copy(
        update={
            "count": len(tree.gpus),
            "arch": arch,
            "sms": compute_units or like.gpu.sms,
            "at": tuple(slot.place for slot in tree.gpus),
            "pcie": tuple(slot.link for slot in tree.gpus),
        }
    )


def _scale_up(tree: DeviceTree, like: Machine | None) -> ScaleUp | None:
    """Return the NVLinks or xGMI links of the file, to a switch or between GPUs; None without any.

    The rate of one link is that of the preset `like` if its GPUs are of the same kind, else the
    usual one of the GPU's architecture.
    """
    gpus = [gpu for _, gpu in tree.known_gpus()]
    sm = gpus[0].sm
    foreign = bool(gpus[0].gcn)
    usual = like.scale_up if like is not None else None
    same_kind = like is not None and (foreign or like.gpu.sm == sm)
    rate = xgmi_rate(gpus[0].gcn) if foreign else nvlink_rate(sm)
    if usual is not None and same_kind:
        rate = usual.link_bandwidth
    switch_links = tree.switch_links()
    pairs = tree.pairs()
    if any(switch_links.values()):
        _check_one_kind(tree, switch_links, pairs)
        links = [switch_links[number] for number in range(len(tree.gpus))]
        return ScaleUp.model_construct(
            kind="nvlink",
            link_bandwidth=rate,
            links=max(links),
            links_each=tuple(links) if min(links) < max(links) else None,
            switches=usual.switches or 1 if usual else 1,
            multicast=sm >= 90,
        )
    if not pairs:
        return None
    has_xgmi = any(link.xgmi for gpu in gpus for link in gpu.nvlinks)
    if foreign and not has_xgmi:  # NVLinks whose number expresses the rate of xGMI links
        pairs = {ends: max(1, round(n * ASSUMED_LINK / rate)) for ends, n in pairs.items()}
    peers = tuple((a, b, count) for (a, b), count in sorted(pairs.items()))
    kind = "xgmi" if foreign else "nvlink"
    return ScaleUp.model_construct(kind=kind, link_bandwidth=rate, peers=peers)


def _check_one_kind(
    tree: DeviceTree, switch_links: Mapping[int, int], pairs: Mapping[tuple[int, int], int]
) -> None:
    """Refuse machines in which some GPUs have NVLinks to switches and others to each other."""
    for a, b in pairs:
        switched = next(number for number, links in switch_links.items() if links)
        first, second, third = map(tree.gpu_name, (a, b, switched))
        raise InputError(
            f"{tree.source}: {first} has NVLinks to {second}, and {third} to NVSwitches; the GPUs "
            "of a machine are joined in one of the two ways"
        )


def _check_equal_gpus(tree: DeviceTree) -> None:
    """Refuse GPUs that differ in values of which a machine has a single one for all its GPUs."""
    known_gpus = tree.known_gpus()
    if known_gpus and len(known_gpus) < len(tree.gpus):
        bare = next(n for n, slot in enumerate(tree.gpus) if slot.gpu is None)
        raise InputError(
            f"{tree.source}: {tree.gpu_name(bare)} has no gpu element, but other GPUs have; give "
            "all of them one, or none"
        )
    units = (
        "number of compute units" if known_gpus and known_gpus[0][1].gcn else "compute capability"
    )
    for figure, values in (
        (units, {number: str(gpu.sm) for number, gpu in known_gpus}),
        ("architecture", {number: gpu.gcn or "NVIDIA's" for number, gpu in known_gpus}),
        ("C2C bandwidth in MB/s", {n: f"{rate / 1e6:.0f}" for n, rate in _cpu_links(tree).items()}),
    ):
        common = next(iter(values.values()), "")
        for number, value in values.items():
            if value != common:
                raise InputError(
                    f"{tree.source}: {tree.gpu_name(number)} has another {figure} ({value}) than "
                    f"{tree.gpu_name(min(values))} ({common}); the GPUs of a machine are equal"
                )


def _with_hosts(scale_up: ScaleUp | None, hosts: int, like: Machine) -> ScaleUp | None:
    """Return NVSwitches with the number of hosts that share them: `hosts` of the file if several,
    else that of the preset `like`.
    """
    if scale_up is None or scale_up.switches is None:
        return scale_up
    usual = like.scale_up.hosts if like.scale_up else 1
    return scale_up.model_copy(update={"hosts": hosts if hosts > 1 else usual})


def _cpu_links(tree: DeviceTree) -> dict[int, float]:
    """Return the bytes per second of the coherent links (C2C, or NVLinks of POWER9) of each GPU to
    its CPU, by the number of the GPU.
    """
    return {
        number: sum(c2c.bandwidth * c2c.count for c2c in gpu.c2c) * 1e6
        + sum(x.count for x in gpu.nvlinks if x.tclass == CPU_CLASS) * nvlink_rate(gpu.sm)
        for number, gpu in tree.known_gpus()
    }


def _c2c(tree: DeviceTree, like: Machine) -> C2c | None:
    """Return the coherent link of each GPU to its CPU; that of the preset if the file describes no
    GPU; None without such a link.
    """
    rates = _cpu_links(tree)
    if not rates:
        return like.c2c
    most = max(rates.values())
    return C2c.model_construct(bandwidth=most) if most > 0 else None


def _pcie(tree: DeviceTree) -> Pcie:
    """Return the PCIe tree of the file. Parts without a stated link are assumed to have that of the
    first GPU.
    """
    usual = tree.gpus[0].link
    return Pcie(
        generation=usual.generation,
        width=usual.width,
        switches=tuple(place for place, _ in tree.switches),
        uplinks=tuple(link for _, link in tree.switches) or None,
        bridged=tree.bridged,
    )


def _vendor(cpu: XmlCpu) -> str:
    if cpu.arch == "ppc64":
        return "ibm"
    if cpu.arch == "arm64" and not cpu.vendor:
        return "arm"
    return next((short for short, name in VENDORS.items() if name == cpu.vendor), cpu.vendor)


def _cpus(cpus: Sequence[XmlCpu], like: Machine) -> Cpu:
    """Return the CPUs of the file; memory size and bandwidth are those of the preset `like` if both
    have the same model of CPU.
    """
    first = cpus[0]
    vendor = _vendor(cpus[0])
    is_same_model = same_cpu(like.cpu, (vendor, first.familyid, first.modelid))
    cpus_of = _FIGURES["cpus"]
    maker = "arm" if first.arch == "arm64" else vendor
    figures_of_model = {int(least): pair for least, pair in cpus_of.get(maker, cpus_of[""]).items()}
    memory, link = figures_of_model[
        max(least for least in figures_of_model if least <= first.modelid)
    ]
    named = f"family {first.familyid} model {first.modelid}"
    cpu_link = None
    if len(cpus) > 1:
        cpu_link = (like.cpu.link if is_same_model else None) or link
    return Cpu.model_construct(
        vendor=vendor or "unknown",
        model=like.cpu.model if is_same_model else named,
        arch=first.arch,
        family=first.familyid,
        model_id=first.modelid,
        domains=len(cpus),
        memory=like.cpu.memory if is_same_model else None,
        memory_bandwidth=like.cpu.memory_bandwidth if is_same_model else memory,
        link=cpu_link,
    )


def _nics(
    tree: DeviceTree, like: Machine, nic_rate: float | None, cpu: tuple[str, int, int] | None
) -> Nics | None:
    """Return all ports as NICs, in NCCL's order; None without ports.

    Args:
        tree: the devices of the file.
        like: the similar preset.
        nic_rate: bytes per second of ports without a stated speed.
        cpu: vendor, family and model of the CPU.
    """
    if not tree.ports:
        return None
    usual = like.nics.rates[0] if like.nics else UNKNOWN_RATE
    rates = tuple(_rate(port, nic_rate, usual) for port in tree.ports)
    nets = [port.net for port in tree.ports if port.net is not None]
    is_same_rate = like.nics is not None and (not nets or like.nics.rates[0] == rates[0])
    name = nets[0].name.rstrip("0123456789").rstrip("_") if nets else ""
    has_gpudirect = all(slot.gpu.gdr for slot in tree.gpus if slot.gpu is not None)
    return Nics.model_construct(
        model=like.nics.model if is_same_rate and like.nics else name or "NIC",
        count=len(rates),
        rate=rates[0],
        rate_each=rates,
        at=tuple(port.place for port in tree.ports),
        gpudirect=has_gpudirect and (not nets or any(net.gdr for net in nets)),
        pcie=tuple(
            _with_measured_rate(port.link or tree.gpus[0].link, like, cpu) for port in tree.ports
        ),
    )


def _with_measured_rate(
    link: PcieLink, like: Machine, cpu: tuple[str, int, int] | None
) -> PcieLink:
    """Return the link of a NIC, with the bandwidth measured on the preset `like` if both hosts have
    the same CPU and link.
    """
    if like.nics is None or cpu is None or not same_cpu(like.cpu, cpu):
        return link
    usual_link = like.link_of(like.nics, 0)
    is_same_kind = (usual_link.generation, usual_link.width) == (link.generation, link.width)
    return link.model_copy(update={"bandwidth": usual_link.bandwidth}) if is_same_kind else link


def _rate(port: NetPort, nic_rate: float | None, usual: float) -> float:
    """Return the bytes per second of a port: its speed if stated, else `nic_rate`, else what NCCL
    assumes.

    A port of which the file has only the PCI function has `nic_rate`, else `usual`.
    """
    if port.net is None:
        return nic_rate or usual
    return port.net.speed * 1e6 / 8 if port.net.speed > 0 else nic_rate or UNKNOWN_RATE


def _transport(tree: DeviceTree, like: Machine) -> TransportName:
    """Return the transport that the names of ports imply. Mellanox ports may be InfiniBand or
    Ethernet: then it is that of the preset `like`.
    """
    names = [port.net.name for port in tree.ports if port.net is not None]
    if not names:
        return like.transport
    transport_name = next(
        (kind for start, kind in PORTS.items() if names[0].startswith(start)), None
    )
    if transport_name == "infiniband" and like.transport in ("infiniband", "roce"):
        return like.transport
    return transport_name or like.transport
