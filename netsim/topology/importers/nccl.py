"""NCCL's topology XML as a machine: one host with its PCIe tree, NVLinks and NICs.

The file has no memory, no arithmetic and few figures of CPUs: those are taken from the preset that
is most like it. Files written by hand for NCCL_TOPO_FILE may lack the GPUs and NICs behind their
PCI functions as well; then PCI classes tell them.
"""

from pathlib import Path

from netsim.errors import InputError
from netsim.topology.importers.known import (
    Shape,
    cpu_figures,
    joined_by,
    machine_like,
    nvlink_rate,
    same_cpu,
)
from netsim.topology.importers.tree import Port, Tree, tree_of
from netsim.topology.machine import C2c as MachineC2c
from netsim.topology.machine import Cpu as MachineCpu
from netsim.topology.machine import Gpu as MachineGpu
from netsim.topology.machine import Machine, Nics, Pcie, PcieLink, ScaleUp
from netsim.topology.nccl_view import ASSUMED_LINK, NVSWITCH_CLASS, VENDORS
from netsim.topology.nccl_xml import Cpu, System, read_system
from netsim.topology.transports import TransportName

UNKNOWN_RATE = 1.25e9  # a port without speed, as NCCL takes it
CPU_CLASS = "0x068001"  # what NVLinks to a CPU lead to (POWER9)
PORTS: dict[str, TransportName] = {  # the network that ports of a name belong to
    "efa": "efa",
    "rdmap": "efa",
    "hsn": "slingshot",
    "cxi": "slingshot",
    "eth": "tcp",
    "en": "tcp",
    "ib": "infiniband",
    "mlx": "infiniband",
}


def read_nccl(path: Path, gpu: str = "") -> Machine:
    """The machine of an XML file; `gpu` names its model if the compute capability is not enough."""
    return machine_of(read_system(path), gpu, path.stem)


def machine_of(
    system: System, gpu: str = "", name: str = "host", nic_rate: float | None = None
) -> Machine:
    """The machine that a system describes; `nic_rate` is that of ports without a speed."""
    cpus, hosts = _one_host(system, name)
    tree = tree_of(cpus)
    if not tree.gpus:
        raise InputError(f"{name}: the topology has no GPUs")
    first = tree.gpus[0].gpu
    if first is None and not gpu:
        raise InputError(
            f"{name}: it has GPUs (PCI class 0x0302) without a gpu element, so nothing tells their "
            "model; name it, as --gpu A100"
        )
    shape = _shape(tree, cpus)
    like = machine_like(gpu, shape, sm=first.sm if first else 0, gcn=first.gcn if first else "")
    given = like.scale_up if first is None else _scale_up(tree, like)
    return Machine(
        description=f"imported from {name} (NCCL topology XML)",
        gpu=_gpus(tree, like),
        scale_up=_shared(given, hosts, like),
        c2c=_c2c(tree, like),
        pcie=_pcie(tree),
        cpu=_cpus(cpus, like),
        nics=_nics(tree, like, nic_rate, shape.cpu),
        p2p=bool(shape.p2p) or like.p2p,
        transport=_transport(tree, like),
    )


def _one_host(system: System, name: str) -> tuple[tuple[Cpu, ...], int]:
    """The CPUs of the first host, and how many hosts there are, which must be alike."""
    hashes = list(dict.fromkeys(cpu.host_hash for cpu in system.cpus))
    members = [tuple(cpu for cpu in system.cpus if cpu.host_hash == one) for one in hashes]
    if len({tree_of(cpus).outline() for cpus in members}) > 1:
        raise InputError(f"{name}: this file holds hosts that differ; give one host a file")
    return members[0], len(members)


def _shape(tree: Tree, cpus: tuple[Cpu, ...]) -> Shape:
    """What the file tells of the host."""
    known = [slot.gpu for slot in tree.gpus if slot.gpu is not None]
    up = _scale_up(tree, None) if known else None
    rates = [port.net.speed for port in tree.ports if port.net and port.net.speed > 0]
    return Shape(
        len(tree.gpus),
        joined_by(up, len(tree.gpus)),
        any(gpu.gdr for gpu in known) if known else None,
        cpus[0].arch,
        (_vendor(cpus[0]), cpus[0].familyid, cpus[0].modelid),
        len(tree.ports),
        rates[0] * 1e6 / 8 if rates else None,
        len(up.peers) if up else None,
    )


def _gpus(tree: Tree, like: Machine) -> MachineGpu:
    first = tree.gpus[0].gpu
    arch = like.gpu.arch if first is None or first.gcn else f"sm_{first.sm}"
    return like.gpu.model_copy(
        update={
            "count": len(tree.gpus),
            "arch": arch,
            "at": tuple(slot.place for slot in tree.gpus),
            "pcie": tuple(slot.link for slot in tree.gpus),
        }
    )


def _scale_up(tree: Tree, like: Machine | None) -> ScaleUp | None:
    """NVLinks to a switch, or between GPUs; what one carries is known of the GPU's like."""
    gpus = [slot.gpu for slot in tree.gpus if slot.gpu is not None]
    sm, foreign = gpus[0].sm, bool(gpus[0].gcn)
    links = [link for gpu in gpus for link in gpu.nvlinks]
    switched = [link.count for link in links if link.tclass == NVSWITCH_CLASS]
    known = like.scale_up if like is not None else None
    rate = known.link_bandwidth if known and like and like.gpu.arch else nvlink_rate(sm)
    if known and not foreign and like and like.gpu.sm != sm:
        rate = nvlink_rate(sm)
    if switched:
        return ScaleUp.model_construct(
            kind="nvlink",
            link_bandwidth=rate,
            links=min(switched),
            switches=known.switches or 1 if known else 1,
            multicast=sm >= 90,
        )
    if not (pairs := tree.pairs()):
        return None
    if foreign and not any(link.xgmi for link in links):  # NVLinks that stand for as much as xGMI
        pairs = {ends: max(1, round(n * ASSUMED_LINK / rate)) for ends, n in pairs.items()}
    peers = tuple((a, b, count) for (a, b), count in sorted(pairs.items()))
    kind = "xgmi" if foreign else "nvlink"
    return ScaleUp.model_construct(kind=kind, link_bandwidth=rate, peers=peers)


def _shared(scale_up: ScaleUp | None, hosts: int, like: Machine) -> ScaleUp | None:
    """NVSwitches that several hosts share: those of the file, or as many as its like has."""
    if scale_up is None or scale_up.switches is None:
        return scale_up
    usual = like.scale_up.hosts if like.scale_up else 1
    return scale_up.model_copy(update={"hosts": hosts if hosts > 1 else usual})


def _c2c(tree: Tree, like: Machine) -> MachineC2c | None:
    """Coherent links to the CPU: C2C, or NVLinks of POWER9."""
    found = []
    for slot in tree.gpus:
        if slot.gpu is not None:
            to_cpu = sum(x.count for x in slot.gpu.nvlinks if x.tclass == CPU_CLASS)
            found.append(
                sum(c2c.bandwidth * c2c.count for c2c in slot.gpu.c2c) * 1e6
                + to_cpu * nvlink_rate(slot.gpu.sm)
            )
    if not found:
        return like.c2c
    return MachineC2c.model_construct(bandwidth=max(found)) if max(found) > 0 else None


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


def _vendor(cpu: Cpu) -> str:
    if cpu.arch == "ppc64":
        return "ibm"
    if cpu.arch == "arm64" and not cpu.vendor:
        return "arm"
    return next((short for short, name in VENDORS.items() if name == cpu.vendor), cpu.vendor)


def _cpus(cpus: tuple[Cpu, ...], like: Machine) -> MachineCpu:
    """The CPUs; their memory as that of the like if they are of one model."""
    first, vendor = cpus[0], _vendor(cpus[0])
    same = same_cpu(like.cpu, (vendor, first.familyid, first.modelid))
    memory, link = cpu_figures("arm" if first.arch == "arm64" else vendor, first.modelid)
    named = f"family {first.familyid} model {first.modelid}"
    return MachineCpu.model_construct(
        vendor=vendor or "unknown",
        model=like.cpu.model if same else named,
        arch=first.arch,
        family=first.familyid,
        model_id=first.modelid,
        domains=len(cpus),
        memory=like.cpu.memory if same else None,
        memory_bandwidth=like.cpu.memory_bandwidth if same else memory,
        link=((like.cpu.link if same else None) or link) if len(cpus) > 1 else None,
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
