"""The figures of one machine as text, for `topo list` and `topo show`."""

import numpy as np

from netsim.topology.affinity import PATH_TYPES, path_types
from netsim.topology.host import Host
from netsim.topology.host_graph import cpu_above
from netsim.topology.machine import Machine, ScaleUp
from netsim.topology.relations import relations
from netsim.units import format_bandwidth, format_size

KINDS = {"nvlink": "NVLink", "xgmi": "xGMI"}
LEGEND = (
    "NVL: NVLink or xGMI   NVB: NVLink through a GPU   C2C: GPU to its CPU   PIX: one PCIe switch",
    "PXB: several PCIe switches   P2C: C2C and PCIe   PHB: through a CPU   SYS: between sockets",
)


def figures(machine: Machine) -> list[tuple[str, str]]:
    """Label and text of each figure of a machine."""
    gpu, cpu, pcie = machine.gpu, machine.cpu, machine.pcie
    domains = f"{cpu.domains} NUMA domain{'s' * (cpu.domains > 1)}"
    between = f", {format_bandwidth(cpu.link)} between two" if cpu.link and cpu.domains > 1 else ""
    return [
        ("GPUs", f"{gpu.count} x {gpu.model} ({gpu.arch}, {gpu.sms} SMs)"),
        ("memory a GPU", f"{format_size(gpu.memory)}, {format_bandwidth(gpu.memory_bandwidth)}"),
        ("scale-up a GPU", scale_up(machine)),
        ("NVLink domain", _domain(machine)),
        ("PCIe", f"gen {pcie.generation} x{pcie.width}, {format_bandwidth(pcie.usable)} usable "
                 "in each direction"),
        ("CPU", f"{cpu.vendor} {cpu.model}, {domains}{between}"),
        ("NICs", nics(machine)),
        ("peer access", "yes" if machine.p2p else "no: GPUs exchange data through host memory"),
    ]  # fmt: skip


def scale_up(machine: Machine, *, short: bool = False) -> str:
    """What a GPU sends over NVLink or xGMI."""
    up = machine.scale_up
    if up is None or not up.fitted:
        return "none"
    links = _most_links(machine.gpu.count, up)
    rate, kind = format_bandwidth(links * up.link_bandwidth), KINDS[up.kind]
    if short:
        return f"{rate} {kind}"
    how = "to switches" if up.switches is not None else "to other GPUs"
    return f"{rate} ({links} {kind} links {how}) in each direction, usable"


def nics(machine: Machine, *, short: bool = False) -> str:
    """Number, rate and model of the NICs."""
    given = machine.nics
    if given is None:
        return "none"
    rates = sorted(set(given.rates), reverse=True)
    rate = " and ".join(format_bandwidth(one, bits=True) for one in rates)
    if short:
        return f"{given.count} x {rate}"
    direct = "" if given.gpudirect else ", without GPUDirect"
    return f"{given.count} x {rate} {given.model}{direct}"


def _domain(machine: Machine) -> str:
    up = machine.scale_up
    if up is None or up.hosts == 1:
        return ""
    gpus = up.hosts * machine.gpu.count
    return f"{up.hosts} such hosts share their NVLink switches: {gpus} GPUs"


def _most_links(gpus: int, up: ScaleUp) -> int:
    """Links of the GPU that has the most."""
    if up.links is not None:
        return up.links if up.switches is not None else up.links * (gpus - 1)
    mine = [sum(count for *pair, count in up.peers if gpu in pair) for gpu in range(gpus)]
    return max(mine)


def path_matrix(host: Host) -> list[tuple[str, ...]]:
    """Path types from GPUs to GPUs and NICs as NCCL names them, and the NICs that each GPU uses."""
    between, to_nic = path_types(host.layout, host.peer), path_types(host.layout, host.out)
    gpus = [f"GPU{number}" for number in host.gpus]
    names = [f"NIC{number}" for number in host.rail.tolist()]
    rows = [("", *gpus, *names, "NUMA", "own NIC")]
    for slot, gpu in enumerate(gpus):
        kinds = [PATH_TYPES[int(kind)] for kind in between[slot]]
        kinds[slot] = "X"
        ways = [PATH_TYPES[int(kind)] for kind in np.atleast_1d(to_nic[slot])] if names else []
        own = ", ".join(dict.fromkeys(names[int(nic)] for nic in host.local[slot]))
        cpu = cpu_above(host.machine, host.machine.gpu_at(host.gpus[slot]))
        rows.append((gpu, *kinds, *ways, cpu.removeprefix("cpu"), own or "-"))
    return rows


def device_matrix(host: Host) -> list[tuple[str, ...]]:
    """All devices as `nvidia-smi topo -m` shows them, with the NUMA domain of each."""
    shown = relations(host)
    rows = [("", *shown.devices, "NUMA")]
    for name, cells, cpu in zip(shown.devices, shown.cells, shown.affinity, strict=True):
        rows.append((name, *cells, cpu.removeprefix("cpu")))
    return rows
