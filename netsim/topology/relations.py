"""How the devices of a host are joined, as `nvidia-smi topo -m` and NCCL name it.

NV# (that many NVLinks), XGMI, PIX (one switch), PXB (several), PHB (over a host bridge of the
CPU), NODE (between host bridges of one NUMA domain), SYS (between NUMA domains).
"""

from dataclasses import dataclass

from netsim.topology.host import Host
from netsim.topology.host_graph import cpu_above
from netsim.topology.machine import Machine, node_of


@dataclass(frozen=True, slots=True)
class Relations:
    """Devices by name, and the relation of every pair; `affinity` is the CPU of each."""

    devices: tuple[str, ...]
    cells: tuple[tuple[str, ...], ...]
    affinity: tuple[str, ...]

    def text(self) -> str:
        """The matrix as `nvidia-smi topo -m` prints it."""
        lines = ["\t" + "\t".join([*self.devices, "CPU Affinity", "NUMA Affinity"])]
        for name, row, cpu in zip(self.devices, self.cells, self.affinity, strict=True):
            number = cpu.removeprefix("cpu")
            tail = [f"{number}", number] if name.startswith("GPU") else []
            lines.append("\t".join([name, *row, *tail]))
        return "\n".join(lines) + "\n"


def relations(host: Host) -> Relations:
    """The matrix of a host: GPUs in device order, then NICs."""
    machine = host.machine
    gpus = [(f"GPU{gpu}", machine.gpu_at(gpu)) for gpu in host.gpus]
    nics = [(f"NIC{nic}", machine.nic_at(nic)) for nic in host.rail.tolist()]
    devices = gpus + nics
    links = _links(machine)
    cells = tuple(
        tuple(
            "X" if a == b else links.get(frozenset((a[0], b[0]))) or relation(machine, a[1], b[1])
            for b in devices
        )
        for a in devices
    )
    affinity = tuple(cpu_above(machine, place) for _, place in devices)
    return Relations(tuple(name for name, _ in devices), cells, affinity)


def relation(machine: Machine, one: str, other: str) -> str:
    """How two places of the PCIe tree are joined."""
    up, down = _above(machine, one), _above(machine, other)
    shared = next((place for place in up if place in down), "")
    if not shared.startswith("pcie"):
        bridge = "PHB" if "." in shared else "NODE"
        return bridge if node_of(up[-1]) == node_of(down[-1]) else "SYS"
    switches = len({*up[: up.index(shared) + 1], *down[: down.index(shared) + 1]})
    return "PIX" if switches == 1 and not machine.pcie.bridged else "PXB"


def _above(machine: Machine, place: str) -> list[str]:
    """A place, and all that it hangs on, up to the CPU."""
    found = [place]
    while place.startswith("pcie"):
        place = machine.pcie.switches[int(place.removeprefix("pcie"))]
        found.append(place)
    return found


def _links(machine: Machine) -> dict[frozenset[str], str]:
    """NVLink and xGMI between GPUs."""
    scale_up = machine.scale_up
    if scale_up is None or not scale_up.fitted:
        return {}
    word = "NV" if scale_up.kind == "nvlink" else "XGMI"
    pairs = scale_up.peers or tuple(
        (a, b, scale_up.links or 0) for b in range(machine.gpu.count) for a in range(b)
    )
    return {frozenset((f"GPU{a}", f"GPU{b}")): f"{word}{n}" for a, b, n in pairs}
