"""The inside of a host in rows: NICs, PCIe switches, CPUs, GPUs, NVSwitches.

Devices stand above and below the switch or CPU that they hang on, GPUs in order from left to right.
"""

from dataclasses import dataclass, field

from netsim.plots.topology.values import GAP, Box, Frame, Sheet
from netsim.topology.host import Host
from netsim.topology.machine import Machine, ScaleUp, node_of

_NARROW = 0.8


@dataclass
class _Plan:
    """Where things are: x of each place and device, and the level of each switch above devices."""

    host: Host
    x: dict[str, float] = field(default_factory=dict)
    level: dict[str, int] = field(default_factory=dict)

    @property
    def machine(self) -> Machine:
        """The machine of the host."""
        return self.host.machine

    def devices(self, place: str) -> tuple[list[str], list[str]]:
        """GPUs and NICs that hang on a place itself."""
        gpus = [f"gpu{n}" for n in self.host.gpus if node_of(self.machine.gpu_at(n)) == place]
        nics = [
            f"nic{n}" for n in self.host.rail.tolist() if node_of(self.machine.nic_at(n)) == place
        ]
        return gpus, nics

    def below(self, place: str) -> list[str]:
        """Switches that hang on a place, those with the first GPUs first."""
        switches = enumerate(self.machine.switches_at)
        mine = [f"pcie{n}" for n, parent in switches if parent == place]
        return sorted((one for one in mine if self.used(one)), key=self.first)

    def used(self, place: str) -> bool:
        """Whether any device is on a place or below it."""
        return any(self.devices(place)) or any(map(self.used, self.below(place)))

    def first(self, place: str) -> tuple[int, str]:
        """The lowest GPU on a place or below it."""
        gpus = [int(name[3:]) for name in self.devices(place)[0]]
        return min([min(gpus, default=999), *(self.first(one)[0] for one in self.below(place))]), (
            place
        )

    def lay(self, place: str, start: float) -> float:
        """Give a place and all below it their x, from `start` on; the end."""
        gpus, nics = self.devices(place)
        columns = max(len(gpus), len(nics))
        for names in (gpus, nics):
            for number, name in enumerate(names):
                self.x[name] = start + (number + 0.5) * columns / len(names)
        end = start + columns
        parts = self.below(place)
        for part in parts:
            end = self.lay(part, end)
        end = max(end, start + 1)
        self.x[place] = (start + end) / 2
        self.level[place] = 1 + max((self.level[part] for part in parts), default=0)
        return end


def draw_host(
    sheet: Sheet, host: Host, name: str, start: float, *, switch: str = "", levels: int = 0
) -> float:
    """Add a host from `start` on and return where it ends; `switch` is the name of its NVSwitch,
    empty if hosts share it and it is drawn elsewhere.
    """
    plan = _Plan(host)
    end = start
    for cpu in sorted((f"cpu{n}" for n in range(host.machine.cpu.domains)), key=plan.first):
        end = plan.lay(cpu, end)
    ys = _rows(plan, levels)
    for gpu in host.gpus:
        _add(sheet, name, f"gpu{gpu}", plan, ys["gpu"], f"GPU {gpu}")
    for nic in host.rail.tolist():
        _add(sheet, name, f"nic{nic}", plan, ys["nic"], f"NIC {nic}")
    _add_tree(sheet, name, plan, ys)
    inside = bool(switch) and host.egress.max(initial=-1) >= 0
    if inside and host.machine.scale_up is not None:
        add_switch(sheet, [f"{name}.{switch}"], (start, end), host.machine.scale_up)
    top = ys["nic"] if host.nics else max(y for row, y in ys.items() if row != "nic")
    bottom = 0.0 if inside else ys["gpu"]
    sheet.frames.append(Frame(start - 0.1, bottom - 0.42, end + 0.1, top + 0.42, name))
    return end


def _add_tree(sheet: Sheet, name: str, plan: _Plan, ys: dict[str, float]) -> None:
    """PCIe switches, CPUs, and memory where traffic between GPUs passes it."""
    machine = plan.machine
    for number in range(len(machine.pcie.switches)):
        place = f"pcie{number}"
        if place in plan.x:
            level = plan.level[place]
            if level > 1:
                _make_room(plan, place, ys[f"pcie{level}"], ys)
            _add(sheet, name, place, plan, ys[f"pcie{level}"], "PCIe")
    for number in range(machine.cpu.domains):
        _make_room(plan, f"cpu{number}", ys["cpu"], ys)
        box = _add(sheet, name, f"cpu{number}", plan, ys["cpu"], f"CPU {number}")
        sheet.of[f"{name}.mem{number}"] = box
        if not machine.p2p:
            _add_memory(sheet, name, number, plan, ys["cpu"])


def add_switch(
    sheet: Sheet, nodes: list[str], span: tuple[float, float], scale_up: ScaleUp
) -> None:
    """The NVSwitches of a host or of a domain, as one box below its GPUs."""
    count = scale_up.switches or 1
    label = f"{count} NVSwitches" if count > 1 else "NVSwitch"
    if scale_up.hosts > 1 and span[1] - span[0] > 3:
        label += f", shared by {scale_up.hosts} hosts"
    width = max(1.0, span[1] - span[0] - 0.2)
    sheet.add(Box("nvswitch", (span[0] + span[1]) / 2, 0.0, width, label), *nodes)


def levels_of(host: Host) -> int:
    """How many rows of PCIe switches a host needs."""
    plan = _Plan(host)
    for number in range(host.machine.cpu.domains):
        plan.lay(f"cpu{number}", 0.0)
    return max([n for place, n in plan.level.items() if place.startswith("pcie")], default=0)


def rows_of(levels: int, *, nics: bool) -> list[tuple[float, str]]:
    """The y and the name of the rows of hosts with so many levels of switches."""
    ys = _ys(levels)
    names = {"gpu": "GPUs", "cpu": "CPUs"} | ({"nic": "NICs"} if nics else {})
    found = [(ys[row], text) for row, text in names.items()]
    middle = (ys["pcie1"] + ys[f"pcie{levels}"]) / 2 if levels else 0.0
    return [*found, *([(middle, "PCIe switches")] if levels else [])]


def _ys(levels: int) -> dict[str, float]:
    ys = {"gpu": GAP, "cpu": 2 * GAP}
    ys |= {f"pcie{level}": (3 + levels - level) * GAP for level in range(1, levels + 1)}
    return ys | {"nic": (3 + levels) * GAP}


def _rows(plan: _Plan, levels: int) -> dict[str, float]:
    own = max([n for place, n in plan.level.items() if place.startswith("pcie")], default=0)
    return _ys(max(levels, own))


def _add(sheet: Sheet, name: str, node: str, plan: _Plan, y: float, label: str) -> int:
    kind = node.rstrip("0123456789")
    return sheet.add(Box(kind, plan.x[node], y, _NARROW, label), f"{name}.{node}")


def _add_memory(sheet: Sheet, name: str, number: int, plan: _Plan, y: float) -> None:
    x = plan.x[f"cpu{number}"]
    sheet.add(Box("memory", x + 0.95, y, 0.66, "DRAM"), f"{name}.mem{number}")


def _make_room(plan: _Plan, place: str, y: float, ys: dict[str, float]) -> None:
    """Move a place aside, as little as possible, so that no line to a GPU runs behind its box."""
    passing = []
    for other, level in plan.level.items():
        above = ys[f"pcie{level}"] if other.startswith("pcie") else y
        if above > y + 1e-6:
            part = (above - y) / (above - ys["gpu"])
            here = plan.x[other]
            passing += [here + part * (plan.x[gpu] - here) for gpu in plan.devices(other)[0]]
    steps = sorted((s * 0.05 for s in range(-30, 31)), key=lambda s: (abs(s), s))
    for need in (_NARROW / 2 + 0.25, _NARROW / 2 + 0.06):
        for step in steps:
            if all(abs(plan.x[place] + step - x) >= need for x in passing):
                plan.x[place] += step
                return
