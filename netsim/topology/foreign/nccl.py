"""NCCL's topology XML as a machine: devices and their places; figures that it lacks, by preset."""

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
class Slot:
    """A GPU: None where the file has its PCI function only."""

    gpu: XmlGpu | None
    busid: str
    place: str
    link: PcieLink


@dataclass(frozen=True, slots=True)
class Port:
    """A network port: None where the file has its PCI function only."""

    net: XmlNet | None
    place: str
    link: PcieLink | None


@dataclass
class Tree:
    """GPUs and ports as NCCL numbers them; what each PCIe switch hangs on, with its link.
    `bridged`: every device below a switch has a bridge of its own, which is left out here."""

    gpus: list[Slot] = field(default_factory=list)
    ports: list[Port] = field(default_factory=list)
    switches: list[tuple[str, PcieLink]] = field(default_factory=list)
    bridged: bool = False
    source: str = ""

    def known_gpus(self) -> list[tuple[int, XmlGpu]]:
        """The number and gpu element of every GPU that has one."""
        return [(n, slot.gpu) for n, slot in enumerate(self.gpus) if slot.gpu is not None]

    def gpu_name(self, number: int) -> str:
        """A GPU in messages: its number and its bus id."""
        return f"GPU {number} ({self.gpus[number].busid})"

    def switch_links(self) -> dict[int, int]:
        """The NVLinks of every GPU to NVSwitches, by its number: the sum over its elements, of
        which a dump has one for each switch."""
        return {
            number: sum(link.count for link in gpu.nvlinks if link.tclass == NVSWITCH_CLASS)
            for number, gpu in self.known_gpus()
        }

    def pairs(self) -> dict[tuple[int, int], int]:
        """NVLinks between two GPUs, by their numbers: the sum over the elements of either GPU."""
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
                one, other = self.gpu_name(a), self.gpu_name(b)
                raise InputError(
                    f"{self.source}: {one} has {there} links to {other}, which has {back} back; a "
                    "machine has as many in both directions"
                )
        return {(a, b): count for (a, b), count in directed.items() if a < b}

    def outline(self) -> str:
        """What makes two hosts equal: everything but bus ids, names and ranks."""
        gpus = [
            (slot.place, slot.link, slot.gpu and (slot.gpu.sm, slot.gpu.gdr, slot.gpu.gcn))
            for slot in self.gpus
        ]
        links = (self.switch_links(), sorted(self.pairs().items()), _cpu_links(self))
        ports = [(p.place, p.link, p.net and (p.net.speed, p.net.gdr)) for p in self.ports]
        return repr((gpus, links, ports, self.switches))


def tree_of(cpus: Sequence[XmlCpu], source: str = "") -> Tree:
    """The devices below the CPUs of one host; `source` names the file in messages."""
    roots = [pci for cpu in cpus for pci in cpu.pcis]
    tree = Tree(bridged=_bridged(roots), source=source)
    for number, cpu in enumerate(cpus):
        for pci in cpu.pcis:
            _add(tree, pci, f"cpu{number}")
        nets = [net for nic in cpu.nics for net in nic.nets]
        tree.ports += [Port(net, f"cpu{number}", None) for net in nets]
    tree.gpus.sort(key=lambda slot: slot.gpu.dev if slot.gpu is not None else 0)
    tree.ports.sort(key=lambda port: port.net.dev if port.net is not None else 0)
    return tree


def link_of(pci: XmlPci) -> PcieLink:
    """The PCIe link of a device; unknown is generation 3 and 16 lanes, as NCCL has it."""
    speed = pci.link_speed.split(" ")[0].removesuffix(".0")
    known = {text.split(" ")[0].removesuffix(".0"): number for number, text in SPEEDS.items()}
    width = pci.link_width if pci.link_width in (1, 2, 4, 8, 16, 32) else 16
    return PcieLink(generation=known.get(speed, 3), width=width)  # type: ignore[arg-type]


def _is_gpu(pci: XmlPci) -> bool:
    return pci.gpu is not None or (pci.class_code.startswith(GPU_CODES) and not pci.nics)


def _is_device(pci: XmlPci) -> bool:
    return _is_gpu(pci) or bool(pci.nics) or pci.class_code.startswith(NIC_CODES)


def _bridged(roots: Sequence[XmlPci]) -> bool:
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


def _add(tree: Tree, pci: XmlPci, place: str) -> None:
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


@dataclass(frozen=True, slots=True)
class Model:
    """A GPU: SMs or compute units, GB, GB/s and TFLOPS by dtype; `p2p`: the driver lets peers reach
    its memory. `sm` is the compute capability of NVIDIA's, `gcn` the architecture of AMD's."""

    sms: int
    memory: int
    bandwidth: float
    flops: dict[str, float]
    sm: int = 0
    gcn: str = ""
    p2p: bool = True

    def filled(self, name: str, like: Gpu) -> Gpu:
        """A machine's GPUs with these figures in place of their own."""
        flops = {dtype: rate * 1e12 for dtype, rate in self.flops.items()}
        figures = {"memory": self.memory * 10**9, "memory_bandwidth": self.bandwidth * 1e9}
        arch = self.gcn or f"sm_{self.sm}"
        named = {"model": name, "arch": arch, "sms": self.sms, "flops": flops}
        return like.model_copy(update=named | figures)


_FILE = Path(__file__).with_name("figures.toml")
_TOLD: Mapping[str, Any] = tomllib.loads(_FILE.read_text(encoding="utf-8"))
MODELS = {name: Model(**figures) for name, figures in _TOLD["models"].items()}


def _by_sm(figure: str, sm: int) -> Any:
    """A figure of GPUs of a compute capability, or of the next lower one that is told."""
    told = {int(key): value for key, value in _TOLD["by_sm"][figure].items()}
    return told[max((one for one in told if one <= sm), default=70)]


@dataclass(frozen=True, slots=True)
class BoxShape:
    """What a file tells of a host, as far as it tells it (None: it does not). `joined`: how its
    GPUs are, see `joined_by`; `cpu`: vendor, family and model; `pairs`: how many pairs of GPUs have
    links of their own."""

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
    """The preset most like a host whose GPUs are of a model, a compute capability `sm` or one of
    AMD's architectures `gcn` with so many compute units (0: unknown)."""
    gpu = gpu or _TOLD["by_sm"]["model"].get(str(sm), "")
    if gpu:
        machines = _of_model(gpu)
    elif gcn:
        machines = _of_gcn(gcn, compute_units)
    else:
        machines = _of_capability(sm)
    return max(machines, key=lambda machine: _alike(machine, shape))


def joined_by(scale_up: ScaleUp | None, gpus: int) -> tuple[str, int]:
    """How GPUs are joined: by a switch, each other or nothing, and with how many links a GPU."""
    if scale_up is None or not scale_up.fitted:
        return "nothing", 0
    return "peers" if scale_up.switches is None else "switch", scale_up.links_of(gpus)


def nvlink_rate(sm: int) -> float:
    """Usable bytes/s of one NVLink of a GPU."""
    return float(_by_sm("nvlink", sm))


def xgmi_rate(gcn: str) -> float:
    """Usable bytes/s of one xGMI link of a GPU with this architecture (unknown: as gfx942)."""
    rates: Mapping[str, float] = _TOLD["by_gcn"]["xgmi"]
    return rates.get(_architecture(gcn), rates["gfx942"])


def _architecture(gcn: str) -> str:
    """The architecture as which another is read: gfx942 of gfx940."""
    same: Mapping[str, str] = _TOLD["by_gcn"]["same_as"]
    return same.get(gcn, gcn)


def most_links(sm: int) -> int:
    """The NVLinks of one GPU."""
    return int(_by_sm("most_links", sm))


def same_cpu(cpu: Cpu, wanted: tuple[str, int, int]) -> bool:
    """Whether a CPU is of this vendor, family and model."""
    return (cpu.vendor, cpu.family, cpu.model_id) == wanted


def _of_model(gpu: str) -> list[Machine]:
    """Machines whose GPUs have a name in their model: presets, else hosts of that capability."""
    known = [load_machine(name) for name in preset_names(FOLDER)]
    for least in (3, 2, 1):  # so that L40 is not L40S, nor A10 A100
        if presets := [one for one in known if _likeness(one.gpu.model, gpu) >= least]:
            return presets
        if name := next((name for name in MODELS if _likeness(name, gpu) >= least), ""):
            return _hosts_with(name)
    models = sorted({one.gpu.model for one in known} | set(MODELS))
    raise InputError(f"unknown GPU '{gpu}'{suggest(gpu, models)}; known: {', '.join(models)}")


def _hosts_with(name: str) -> list[Machine]:
    """Presets with GPUs of the same maker (and, of NVIDIA's, the same generation) in which GPUs of
    a model take the place of theirs."""
    model = MODELS[name]
    hosts = _of_amd() if model.gcn else _of_capability(model.sm)
    return [_with_gpu(host, name) for host in hosts]


def _with_gpu(like: Machine, name: str) -> Machine:
    gpu = MODELS[name].filled(name, like.gpu)
    scale_up = like.scale_up
    if scale_up is not None and like.gpu.arch != gpu.arch:
        rate = xgmi_rate(gpu.arch) if MODELS[name].gcn else scale_up.link_bandwidth
        if gpu.sm != like.gpu.sm:
            rate = nvlink_rate(gpu.sm)
        scale_up = scale_up.model_copy(update={"link_bandwidth": rate})
    return like.model_copy(update={"gpu": gpu, "scale_up": scale_up, "p2p": MODELS[name].p2p})


def _of_amd() -> list[Machine]:
    """The presets with AMD's GPUs."""
    known = [load_machine(name) for name in preset_names(FOLDER)]
    return [machine for machine in known if not machine.gpu.sm]


def _of_gcn(gcn: str, compute_units: int) -> list[Machine]:
    """Machines with GPUs of one of AMD's architectures and, where there are any, with so many
    compute units: presets before hosts with GPUs that no preset has."""
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
    known = {machine.gpu.arch for machine in _of_amd()} | {model.gcn for model in MODELS.values()}
    known |= set(_TOLD["by_gcn"]["same_as"])
    raise InputError(
        f"no GPU model is known for the architecture '{gcn}'; name it, as --gpu MI300X "
        f"(known architectures: {', '.join(sorted(known - {''}))})"
    )


def _of_capability(sm: int) -> list[Machine]:
    """Presets with NVIDIA's GPUs of a compute capability, the usual one first."""
    known = [load_machine(name) for name in preset_names(FOLDER)]
    usual = load_machine(_by_sm("preset", sm))
    return [usual, *(one for one in known if one.gpu.sm == usual.gpu.sm)]


def _alike(one: Machine, shape: BoxShape) -> tuple[bool, ...]:
    """What a preset has in common with a host, the weightiest first."""
    joined = joined_by(one.scale_up, one.gpu.count)
    rate = one.nics.rates[0] if one.nics else None
    return (
        shape.p2p is None or one.p2p == shape.p2p,
        shape.arch is None or one.cpu.arch == shape.arch,
        joined[0] == shape.joined[0],
        joined == shape.joined,
        shape.pairs is None or _pairs(one) == shape.pairs,
        shape.cpu is not None and same_cpu(one.cpu, shape.cpu),
        one.gpu.count == shape.gpus,
        rate == shape.rate,
        (one.nics.count if one.nics else 0) == shape.nics,
    )


def _pairs(one: Machine) -> int:
    if one.scale_up is None or not one.scale_up.fitted or one.scale_up.switches is not None:
        return 0
    return len(one.scale_up.pairs(one.gpu.count))


def _likeness(model: str, wanted: str) -> int:
    """How a model is like a name: 3 begins so, 2 has its words, 1 holds its letters, 0 not."""
    mine, words = _words(model), _words(wanted)
    ways = (mine[: len(words)] == words, {*words} <= {*mine}, "".join(words) in "".join(mine))
    return 3 - ways.index(True) if words and True in ways else 0


def _words(name: str) -> list[str]:
    words = re.findall(r"[a-z0-9]+", name.casefold())
    return [word for word in words if word not in ("nvidia", "geforce", "amd", "server", "edition")]


# NCCL's topology XML as a machine: one host with its PCIe tree, NVLinks and NICs.
# The file has no memory, no arithmetic and few figures of CPUs: those are taken from the preset
# that is most like it. Files written by hand for NCCL_TOPO_FILE may lack the GPUs and NICs behind
# their PCI functions as well; then PCI classes tell them.

UNKNOWN_RATE = 1.25e9  # a port without speed, as NCCL takes it
CPU_CLASS = "0x068001"  # what NVLinks to a CPU lead to (POWER9)
PORTS: Mapping[str, TransportName] = _TOLD["ports"]


def machine_of(
    system: XmlSystem, gpu: str = "", name: str = "host", nic_rate: float | None = None
) -> Machine:
    """The machine that a system describes; `nic_rate` is that of ports without a speed."""
    cpus, hosts = _one_host(system, name)
    tree = tree_of(cpus, name)
    if not tree.gpus:
        raise InputError(f"{name}: the topology has no GPUs")
    _check_equal_gpus(tree)
    first = tree.gpus[0].gpu
    if first is None and not gpu:
        raise InputError(
            f"{name}: it has GPUs (PCI class 0x0302) without a gpu element, so nothing tells their "
            "model; name it, as --gpu A100"
        )
    shape = _shape(tree, cpus)
    # In RCCL's files (version 2) `sm` counts compute units.
    compute_units = first.sm if first is not None and system.version == RCCL_VERSION else 0
    if first is None:
        like = machine_like(gpu, shape)
    else:
        like = machine_like(gpu, shape, sm=first.sm, gcn=first.gcn, compute_units=compute_units)
    given = like.scale_up if first is None else _scale_up(tree, like)
    return Machine(
        description=f"imported from {name} ({'RCCL' if compute_units else 'NCCL'} topology XML)",
        gpu=_gpus(tree, like, compute_units),
        scale_up=_shared(given, hosts, like),
        c2c=_c2c(tree, like),
        pcie=_pcie(tree),
        cpu=_cpus(cpus, like),
        nics=_nics(tree, like, nic_rate, shape.cpu),
        p2p=bool(shape.p2p) or like.p2p,
        transport=_transport(tree, like),
    )


def _one_host(system: XmlSystem, name: str) -> tuple[list[XmlCpu], int]:
    members = list(grouped(system.cpus, lambda cpu: cpu.host_hash).values())
    trees = [tree_of(cpus, name) for cpus in members]
    for number, tree in enumerate(trees):
        if tree.outline() != trees[0].outline():
            why = _different_links(trees[0], tree, number)
            raise InputError(
                f"{name}: this file holds hosts that differ{why}; give one host a file"
            )
    return members[0], len(members)


def _different_links(first: Tree, tree: Tree, number: int) -> str:
    """Which GPU of host `number` has other NVLinks to switches than that of host 0, in words."""
    usual, links = first.switch_links(), tree.switch_links()
    for gpu in sorted(usual.keys() & links.keys()):
        if usual[gpu] != links[gpu]:
            name = tree.gpu_name(gpu)
            return f" ({name} of host {number} has {links[gpu]} NVLinks, of host 0 {usual[gpu]})"
    return ""


def _shape(tree: Tree, cpus: Sequence[XmlCpu]) -> BoxShape:
    known = [slot.gpu for slot in tree.gpus if slot.gpu is not None]
    up = _scale_up(tree, None) if known else None
    rates = [port.net.speed for port in tree.ports if port.net and port.net.speed > 0]
    return BoxShape(
        len(tree.gpus),
        joined_by(up, len(tree.gpus)),
        any(gpu.gdr for gpu in known) if known else None,
        cpus[0].arch,
        (_vendor(cpus[0]), cpus[0].familyid, cpus[0].modelid),
        len(tree.ports),
        rates[0] * 1e6 / 8 if rates else None,
        len(up.peers) if up else None,
    )


def _gpus(tree: Tree, like: Machine, compute_units: int) -> Gpu:
    """The GPUs with their places; with as many compute units as RCCL's file says."""
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


def _scale_up(tree: Tree, like: Machine | None) -> ScaleUp | None:
    """NVLinks to a switch, or between GPUs. The rate of one link is that of the preset `like` if
    its GPUs are of the same kind, else that of the compute capability."""
    gpus = [gpu for _, gpu in tree.known_gpus()]
    sm, foreign = gpus[0].sm, bool(gpus[0].gcn)
    usual = like.scale_up if like is not None else None
    same_kind = like is not None and (foreign or like.gpu.sm == sm)
    rate = xgmi_rate(gpus[0].gcn) if foreign else nvlink_rate(sm)
    if usual is not None and same_kind:
        rate = usual.link_bandwidth
    switch_links, pairs = tree.switch_links(), tree.pairs()
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
    if foreign and not has_xgmi:  # NVLinks that stand for as much as xGMI
        pairs = {ends: max(1, round(n * ASSUMED_LINK / rate)) for ends, n in pairs.items()}
    peers = tuple((a, b, count) for (a, b), count in sorted(pairs.items()))
    kind = "xgmi" if foreign else "nvlink"
    return ScaleUp.model_construct(kind=kind, link_bandwidth=rate, peers=peers)


def _check_one_kind(
    tree: Tree, switch_links: Mapping[int, int], pairs: Mapping[tuple[int, int], int]
) -> None:
    """Refuse GPUs with NVLinks to switches where others have NVLinks to each other."""
    for a, b in pairs:
        switched = next(number for number, links in switch_links.items() if links)
        one, other, third = map(tree.gpu_name, (a, b, switched))
        raise InputError(
            f"{tree.source}: {one} has NVLinks to {other}, and {third} to NVSwitches; the GPUs of "
            "a machine are joined in one of the two ways"
        )


def _check_equal_gpus(tree: Tree) -> None:
    """Refuse GPUs whose elements differ in what a machine has once for all of its GPUs."""
    known = tree.known_gpus()
    if known and len(known) < len(tree.gpus):
        bare = next(n for n, slot in enumerate(tree.gpus) if slot.gpu is None)
        raise InputError(
            f"{tree.source}: {tree.gpu_name(bare)} has no gpu element, but other GPUs have; give "
            "all of them one, or none"
        )
    units = "number of compute units" if known and known[0][1].gcn else "compute capability"
    for what, values in (
        (units, {number: str(gpu.sm) for number, gpu in known}),
        ("architecture", {number: gpu.gcn or "NVIDIA's" for number, gpu in known}),
        ("C2C bandwidth in MB/s", {n: f"{rate / 1e6:.0f}" for n, rate in _cpu_links(tree).items()}),
    ):
        common = next(iter(values.values()), "")
        for number, value in values.items():
            if value != common:
                raise InputError(
                    f"{tree.source}: {tree.gpu_name(number)} has another {what} ({value}) than "
                    f"{tree.gpu_name(min(values))} ({common}); the GPUs of a machine are equal"
                )


def _shared(scale_up: ScaleUp | None, hosts: int, like: Machine) -> ScaleUp | None:
    """NVSwitches that several hosts share: those of the file, or as many as its like has."""
    if scale_up is None or scale_up.switches is None:
        return scale_up
    usual = like.scale_up.hosts if like.scale_up else 1
    return scale_up.model_copy(update={"hosts": hosts if hosts > 1 else usual})


def _cpu_links(tree: Tree) -> dict[int, float]:
    """Bytes/s of every GPU's coherent links to its CPU: C2C, or NVLinks of POWER9."""
    return {
        number: sum(c2c.bandwidth * c2c.count for c2c in gpu.c2c) * 1e6
        + sum(x.count for x in gpu.nvlinks if x.tclass == CPU_CLASS) * nvlink_rate(gpu.sm)
        for number, gpu in tree.known_gpus()
    }


def _c2c(tree: Tree, like: Machine) -> C2c | None:
    """The coherent link of every GPU to its CPU; that of the preset where no GPU is described."""
    rates = _cpu_links(tree)
    if not rates:
        return like.c2c
    most = max(rates.values())
    return C2c.model_construct(bandwidth=most) if most > 0 else None


def _pcie(tree: Tree) -> Pcie:
    """The tree; the link of the first GPU stands for all that is not told."""
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
    """The CPUs; their memory as that of the like if they are of one model."""
    first, vendor = cpus[0], _vendor(cpus[0])
    same = same_cpu(like.cpu, (vendor, first.familyid, first.modelid))
    cpus_of, maker = _TOLD["cpus"], "arm" if first.arch == "arm64" else vendor
    known = {int(least): pair for least, pair in cpus_of.get(maker, cpus_of[""]).items()}
    memory, link = known[max(least for least in known if least <= first.modelid)]
    named = f"family {first.familyid} model {first.modelid}"
    cpu_link = None
    if len(cpus) > 1:
        cpu_link = (like.cpu.link if same else None) or link
    return Cpu.model_construct(
        vendor=vendor or "unknown",
        model=like.cpu.model if same else named,
        arch=first.arch,
        family=first.familyid,
        model_id=first.modelid,
        domains=len(cpus),
        memory=like.cpu.memory if same else None,
        memory_bandwidth=like.cpu.memory_bandwidth if same else memory,
        link=cpu_link,
    )


def _nics(
    tree: Tree, like: Machine, nic_rate: float | None, cpu: tuple[str, int, int] | None
) -> Nics | None:
    """All ports, as they are numbered by NCCL."""
    if not tree.ports:
        return None
    usual = like.nics.rates[0] if like.nics else UNKNOWN_RATE
    rates = tuple(_rate(port, nic_rate, usual) for port in tree.ports)
    nets = [port.net for port in tree.ports if port.net is not None]
    alike = like.nics is not None and (not nets or like.nics.rates[0] == rates[0])
    name = nets[0].name.rstrip("0123456789").rstrip("_") if nets else ""
    reach = all(slot.gpu.gdr for slot in tree.gpus if slot.gpu is not None)
    return Nics.model_construct(
        model=like.nics.model if alike and like.nics else name or "NIC",
        count=len(rates),
        rate=rates[0],
        rate_each=rates,
        at=tuple(port.place for port in tree.ports),
        gpudirect=reach and (not nets or any(net.gdr for net in nets)),
        pcie=tuple(_measured(port.link or tree.gpus[0].link, like, cpu) for port in tree.ports),
    )


def _measured(link: PcieLink, like: Machine, cpu: tuple[str, int, int] | None) -> PcieLink:
    """The link of a NIC, with what its like was measured to carry if both are of one kind."""
    if like.nics is None or cpu is None or not same_cpu(like.cpu, cpu):
        return link
    usual = like.link_of(like.nics, 0)
    alike = (usual.generation, usual.width) == (link.generation, link.width)
    return link.model_copy(update={"bandwidth": usual.bandwidth}) if alike else link


def _rate(port: Port, told: float | None, usual: float) -> float:
    """Bytes/s of a port: its speed, else what was told, else as NCCL takes it (or as usual)."""
    if port.net is None:
        return told or usual
    return port.net.speed * 1e6 / 8 if port.net.speed > 0 else told or UNKNOWN_RATE


def _transport(tree: Tree, like: Machine) -> TransportName:
    """What the names of ports tell; Mellanox's may be InfiniBand or Ethernet, as with the like."""
    names = [port.net.name for port in tree.ports if port.net is not None]
    if not names:
        return like.transport
    found = next((kind for start, kind in PORTS.items() if names[0].startswith(start)), None)
    if found == "infiniband" and like.transport in ("infiniband", "roce"):
        return like.transport
    return found or like.transport
