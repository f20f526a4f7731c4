"""The layout of a drawing of a cluster: hosts in detail or as boxes, the fabric in tiers above.

In a host, devices are above and below the PCIe switch or CPU to which they are connected. GPUs are
in order from left to right.
"""

from collections.abc import Iterable, Sequence
from dataclasses import field, replace

import numpy as np
from numpy.typing import NDArray

from netsim.base.units import format_bandwidth
from netsim.base.values import dataclass, grouped
from netsim.plots.topology import shapes
from netsim.plots.topology.graphs import circle_picture, grid_picture
from netsim.topology.cluster import Cluster
from netsim.topology.figures import fabric_figures, gpu_bandwidth, tiers_of
from netsim.topology.host import Host
from netsim.topology.machine import Machine, ScaleUp, node_of
from netsim.topology.network import Fabric

_NARROW = 0.8  # the width of the box of a device
_ASIDE = 0.95  # the distance from a CPU to its memory


@dataclass
class _Plan:
    """The horizontal layout of a host. A place is a PCIe switch or a CPU.

    - `x`: by name, the x of the devices and places, those of dead NICs included.
    - `level`: by place, 1 if devices only are below it, otherwise 1 more than the highest level of
      a switch below it.
    - `dead_nics`: numbers of the NICs that a fault removed.
    """

    host: Host
    dead_nics: tuple[int, ...] = ()
    x: dict[str, float] = field(default_factory=dict)
    level: dict[str, int] = field(default_factory=dict)

    @property
    def machine(self) -> Machine:
        """The machine of the host."""
        return self.host.machine

    def devices(self, place: str) -> tuple[list[str], list[str]]:
        """The GPUs and NICs that are connected directly to a place."""
        gpus = [f"gpu{n}" for n in self.host.gpus if node_of(self.machine.gpu_at(n)) == place]
        numbers = sorted({*self.host.rail.tolist(), *self.dead_nics})
        nics = [f"nic{n}" for n in numbers if node_of(self.machine.nic_at(n)) == place]
        return gpus, nics

    def below(self, place: str) -> list[str]:
        """The PCIe switches directly below a place that have devices; those with the lowest GPUs
        first.
        """
        switches = enumerate(self.machine.switches_at)
        switches_below = [f"pcie{n}" for n, parent in switches if parent == place]
        return sorted(filter(self.used, switches_below), key=self.first)

    def used(self, place: str) -> bool:
        """Whether any device is connected to a place or below it."""
        return any(self.devices(place)) or any(map(self.used, self.below(place)))

    def first(self, place: str) -> tuple[int, str]:
        """A sort key of a place: the lowest number of a GPU at it or below it, then its name."""
        gpus = [int(name[3:]) for name in self.devices(place)[0]]
        below = (self.first(switch)[0] for switch in self.below(place))
        return min([*gpus, *below], default=999), place

    def lay(self, place: str, start: float) -> float:
        """Lay out a place and everything below it from x `start` to the right; return the x where
        it ends.
        """
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
    sheet: shapes.DrawingSheet,
    host: Host,
    name: str,
    start: float,
    *,
    switch: str,
    levels: int = 0,
    dead_nics: Sequence[int] = (),
) -> float:
    """Add a host to a drawing, with its left edge at x `start`; return the x of its right edge.

    - `name`: the name of the host.
    - `switch`: name of its NVSwitch; "" if hosts share NVSwitches.
    - `levels`: number of levels of PCIe switches for which all hosts of the drawing have room.
    - `dead_nics`: numbers of the NICs that faults removed.
    """
    plan = _Plan(host, tuple(dead_nics))
    end = start
    for cpu in sorted((f"cpu{n}" for n in range(host.machine.cpu.domains)), key=plan.first):
        end = plan.lay(cpu, end)
    ys = _ys(max(levels, levels_of(host)))
    end = _spread(plan, ys, start, end)
    for gpu in host.gpus:
        _add(sheet, name, f"gpu{gpu}", plan, ys["gpu"], f"GPU {gpu}")
    for nic in host.rail.tolist():
        _add(sheet, name, f"nic{nic}", plan, ys["nic"], f"NIC {nic}")
    for nic in dead_nics:
        x = plan.x[f"nic{nic}"]
        sheet.add(shapes.Box("nic", x, ys["nic"], _NARROW, f"NIC {nic}", dead=True))
    _add_tree(sheet, name, plan, ys)
    inside = bool(switch) and host.egress.max(initial=-1) >= 0
    if inside and host.machine.scale_up is not None:
        add_switch(sheet, [f"{name}.{switch}"], (start, end), host.machine.scale_up)
    top = ys["nic"] if host.nics or dead_nics else max(y for row, y in ys.items() if row != "nic")
    bottom = 0.0 if inside else ys["gpu"]
    sheet.frames.append(shapes.Frame(start - 0.1, bottom - 0.42, end + 0.1, top + 0.42, name))
    return end


def _add_tree(sheet: shapes.DrawingSheet, name: str, plan: _Plan, ys: dict[str, float]) -> None:
    """Add PCIe switches, CPUs and, if traffic between GPUs passes through it, host memory.

    `ys` has the y of each row of the host.
    """
    machine = plan.machine
    for number in range(len(machine.pcie.switches)):
        place = f"pcie{number}"
        if place in plan.x:
            _add(sheet, name, place, plan, ys[f"pcie{plan.level[place]}"], "PCIe")
    for number in range(machine.cpu.domains):
        box = _add(sheet, name, f"cpu{number}", plan, ys["cpu"], f"CPU {number}")
        sheet.of[f"{name}.mem{number}"] = box
        if not machine.p2p:
            memory = shapes.Box("memory", plan.x[f"cpu{number}"] + _ASIDE, ys["cpu"], 0.66, "DRAM")
            sheet.add(memory, f"{name}.mem{number}")


def add_switch(
    sheet: shapes.DrawingSheet, nodes: list[str], span: tuple[float, float], scale_up: ScaleUp
) -> None:
    """Add the NVSwitches of a host or of a domain (`nodes`) as one box below its GPUs, from
    `span[0]` to `span[1]`.
    """
    count = scale_up.switches or 1
    label = f"{count} NVSwitches" if count > 1 else "NVSwitch"
    if scale_up.hosts > 1 and span[1] - span[0] > 3:
        label += f", shared by {scale_up.hosts} hosts"
    width = max(1.0, span[1] - span[0] - 0.2)
    sheet.add(shapes.Box("nvswitch", (span[0] + span[1]) / 2, 0.0, width, label), *nodes)


def levels_of(host: Host) -> int:
    """The number of levels of PCIe switches of a host."""
    plan = _Plan(host)
    for number in range(host.machine.cpu.domains):
        plan.lay(f"cpu{number}", 0.0)
    return max([n for place, n in plan.level.items() if place.startswith("pcie")], default=0)


def name_rows(sheet: shapes.DrawingSheet, levels: int, *, nics: bool) -> None:
    """Write the names of the rows (GPUs, CPUs, NICs, switches) beside hosts with `levels` levels of
    PCIe switches.
    """
    ys = _ys(levels)
    names = {"gpu": "GPUs", "cpu": "CPUs"} | ({"nic": "NICs"} if nics else {})
    sheet.rows += [(ys[row], text) for row, text in names.items()]
    if levels:
        sheet.rows.append(((ys["pcie1"] + ys[f"pcie{levels}"]) / 2, "PCIe switches"))
    if any(box.kind == "nvswitch" for box in sheet.boxes):
        sheet.rows.append((0.0, "NVSwitches"))


def _ys(levels: int) -> dict[str, float]:
    """The y of each row of a host with `levels` levels of PCIe switches, by the name of the row."""
    ys = {"gpu": shapes.GAP, "cpu": 2 * shapes.GAP}
    ys |= {f"pcie{level}": (3 + levels - level) * shapes.GAP for level in range(1, levels + 1)}
    return ys | {"nic": (3 + levels) * shapes.GAP}


def _add(
    sheet: shapes.DrawingSheet, name: str, node: str, plan: _Plan, y: float, label: str
) -> int:
    """Add the box of a device or place (`node`) of the host `name` at height `y`; return the number
    of the box.
    """
    kind = node.rstrip("0123456789")
    return sheet.add(shapes.Box(kind, plan.x[node], y, _NARROW, label), f"{name}.{node}")


def _make_room(plan: _Plan, place: str, y: float, ys: dict[str, float]) -> None:
    """Move a place at height `y` sideways, as little as possible, so that it covers no line to a
    GPU.
    """
    passing = []
    for neighbor, level in plan.level.items():
        above = ys[f"pcie{level}"] if neighbor.startswith("pcie") else y
        if above > y + 1e-6:
            part = (above - y) / (above - ys["gpu"])
            here = plan.x[neighbor]
            passing += [here + part * (plan.x[gpu] - here) for gpu in plan.devices(neighbor)[0]]
    steps = sorted((s * 0.05 for s in range(-30, 31)), key=lambda s: (abs(s), s))
    for need in (_NARROW / 2 + 0.25, _NARROW / 2 + 0.06):
        for step in steps:
            if all(abs(plan.x[place] + step - x) >= need for x in passing):
                plan.x[place] += step
                return


def _spread(plan: _Plan, ys: dict[str, float], start: float, end: float) -> float:
    """Move switches and CPUs sideways so that they cover no lines; return the x of the host's new
    right edge.
    """
    cpus = [f"cpu{number}" for number in range(plan.machine.cpu.domains)]
    switches = [place for place, level in plan.level.items() if place not in cpus and level > 1]
    for place in switches + cpus:
        _make_room(plan, place, ys["cpu" if place in cpus else f"pcie{plan.level[place]}"], ys)
    memory = 0.0 if plan.machine.p2p else _ASIDE
    low = min(start, *(plan.x[cpu] - _NARROW / 2 for cpu in cpus))
    high = max(end, *(plan.x[cpu] + _NARROW / 2 + memory for cpu in cpus))
    plan.x = {place: x + start - low for place, x in plan.x.items()}
    return high + start - low


MOST_SWITCHES = 16  # most switches of a tier that are drawn
MOST_WRITTEN = 32  # the same for a fabric whose switches are listed in its file
_PITCH = 1.25


@dataclass(frozen=True, slots=True)
class Unit:
    """A switch of the fabric, or a group of switches, that is drawn as one box.

    - `number`: its position in its tier, from 0.
    - `label`: the text in the box.
    - `switches`: the numbers of its switches in the fabric.
    """

    number: int
    label: str
    switches: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TierRow:
    """A tier of switches in a drawing: the units that are drawn, and `total`, the number of all
    units.
    """

    name: str
    units: tuple[Unit, ...]
    total: int

    @property
    def slots(self) -> list[Unit | int]:
        """What is drawn from left to right: units, and a number between two units (or at an end)
        for the units that are left out there.
        """
        slots: list[Unit | int] = []
        before = -1
        for unit in self.units:
            if unit.number > before + 1:
                slots.append(unit.number - before - 1)
            slots.append(unit)
            before = unit.number
        return [*slots, self.total - before - 1] if before < self.total - 1 else slots


def rows_above(fabric: Fabric | None, hosts: Iterable[shapes.DrawnHosts]) -> list[TierRow]:
    """The tiers of switches to draw above hosts, from the leaf switches of the drawn
    hosts upwards.
    """
    wanted = {switch for group in hosts for switch in group.switches}
    rows = list[TierRow]()
    if fabric is None:
        return rows
    for number, name in enumerate(fabric.tiers):
        units = _units(fabric, name, np.flatnonzero(fabric.level == number).tolist())
        near = [unit for unit in units if wanted & set(unit.switches)]
        is_complete = fabric.kind == "custom" and len(units) <= MOST_WRITTEN
        shown = units if is_complete else shapes.ends_of(near, MOST_SWITCHES)
        if not shown:  # a tier without connections to the one below, such as borders of sites
            continue
        rows.append(TierRow(name, tuple(shown), len(units)))
        switch_nodes = [fabric.ports + switch for unit in shown for switch in unit.switches]
        wanted = set((fabric.head[np.isin(fabric.tail, switch_nodes)] - fabric.ports).tolist())
    return rows


def _units(fabric: Fabric, name: str, members: list[int]) -> list[Unit]:
    """The units of a tier called `name` with the switches `members`."""
    size = shapes.group_size(fabric)
    if size > 1:
        return [
            Unit(n, f"group {n}\n{size} {name}s", tuple(members[start : start + size]))
            for n, start in enumerate(range(0, len(members), size))
        ]
    return [Unit(n, fabric.switches[switch], (switch,)) for n, switch in enumerate(members)]


def width_of_row(row: TierRow) -> float:
    """The least width that a row of switches needs."""
    return _PITCH * len(row.slots)


def gap_of(span: tuple[float, float]) -> float:
    """The vertical gap above a row that extends from x `span[0]` to `span[1]`. Wider rows have
    larger gaps, since their lines are flatter.
    """
    return max(shapes.WIDE_GAP, 0.095 * (span[1] - span[0]))


def draw_rows(
    sheet: shapes.DrawingSheet,
    fabric: Fabric,
    rows: list[TierRow],
    span: tuple[float, float],
    y: float,
) -> None:
    """Add the tiers of a fabric to a drawing, from the lowest one at height `y` upwards. Each
    extends from x `span[0]` to `span[1]`.
    """
    ports = {tier.name: tier.ports for tier in tiers_of(fabric)}
    for row in rows:
        slots = row.slots
        pitch = (span[1] - span[0]) / len(slots)
        for place, slot in enumerate(slots):
            x = span[0] + (place + 0.5) * pitch
            if isinstance(slot, int):
                sheet.captions.append(shapes.Caption(x, y, f"… {slot} more …"))
                continue
            tall = 0.52 if "\n" not in slot.label else 0.78
            wide = max(1.0, 0.11 * max(map(len, slot.label.split("\n"))) + 0.2)
            box = shapes.Box("switch", x, y, min(wide, 0.94 * pitch), slot.label, tall)
            sheet.add(box, *(fabric.switches[n] for n in slot.switches))
        count = int((fabric.level == fabric.tiers.index(row.name)).sum())
        noun = "switches" if count > 1 else "switch"
        sheet.rows.append((y, f"{row.name}\n{count} {noun}\n{ports.get(row.name, 0)} ports in use"))
        y += gap_of(span)


MOST_GPUS = 32  # a cluster with more GPUs has one host drawn in detail
MOST_HOSTS = 4  # a cluster with more hosts has one host drawn in detail
_BETWEEN = 0.9  # the distance from host to host

Use = NDArray[np.float64] | None


def cluster_picture(name: str, cluster: Cluster, used: Use) -> shapes.Drawing:
    """The drawing of a cluster; `used` is the utilization of its links, or None."""
    hosts = len(cluster.host_class)
    gpus = len(cluster.topology)
    if gpus <= MOST_GPUS and hosts <= MOST_HOSTS:
        return _all_inside(name, cluster, used)
    made = cluster.fabric
    if made is not None and made.grid:
        upper = _on_routers(name, cluster, made.grid, used)
    else:
        upper = _outside(name, cluster, used)
    return upper.below(_one_host(cluster, used))


def _on_routers(name: str, cluster: Cluster, dims: Sequence[int], used: Use) -> shapes.Drawing:
    """The drawing of a cluster on a torus or ring: hosts with their routers on a grid, or in a
    circle.
    """
    assert cluster.fabric is not None
    nodes = _nodes(cluster)
    owner = dict(zip(cluster.ports.host.tolist(), cluster.ports.owner.tolist(), strict=True))
    cells = []
    for number, router in enumerate(cluster.fabric.switches):
        host = owner.get(number)
        inside = [] if host is None else nodes[f"node{host}"]
        gpus_per_host = 0 if host is None else len(cluster.hosts[cluster.host_class[host]].gpus)
        label = "no host" if host is None else f"node{host}\n{gpus_per_host} GPUs"
        cells.append(([router, *inside], label, "host"))
    ends = _title(name, cluster), _subtitle(cluster), cluster.topology
    extents = [extent for extent in dims if extent > 1]
    if len(extents) > 1:
        picture = grid_picture(*ends, extents, cells, used)
    else:
        picture = circle_picture(*ends, cells, used)
    usable = cluster.transport.usable if cluster.transport else 1.0
    return replace(picture, usable=usable)


def _all_inside(name: str, cluster: Cluster, used: Use) -> shapes.Drawing:
    """A drawing of all hosts in detail, with the fabric above them."""
    sheet = shapes.DrawingSheet()
    levels = max(map(levels_of, cluster.hosts))
    nics = any(host.nics for host in cluster.hosts)
    rows = rows_above(cluster.fabric, shapes.host_groups(cluster))
    x = 0.0
    ends: list[tuple[float, float]] = []
    for number, kind in enumerate(cluster.host_class.tolist()):
        host = cluster.hosts[kind]
        switch = "" if _shared(host) else "nvswitch0"
        end = draw_host(
            sheet,
            host,
            f"node{number}",
            x,
            switch=switch,
            levels=levels,
            dead_nics=dead_nics_of(cluster, number),
        )
        ends.append((x, end))
        x = end + _BETWEEN
    _draw_domains(sheet, cluster, ends)
    name_rows(sheet, levels, nics=nics)
    _above(sheet, cluster, rows, (0.0, x - _BETWEEN), (3 + levels) * shapes.GAP)
    if len(cluster.host_class) == 1:
        sheet.frames = [replace(frame, label="") for frame in sheet.frames]
    return _picture(name, cluster, sheet, used)


def dead_nics_of(cluster: Cluster, host: int) -> list[int]:
    """The numbers of the NICs of a host that faults removed."""
    start = f"node{host}.nic"
    return [int(name.removeprefix(start)) for name in cluster.dead_nics if name.startswith(start)]


def _outside(name: str, cluster: Cluster, used: Use) -> shapes.Drawing:
    """A drawing of hosts as boxes, with the fabric above them."""
    sheet = shapes.DrawingSheet()
    all_groups = shapes.host_groups(cluster)
    groups = shapes.some_of(all_groups)
    rows = rows_above(cluster.fabric, groups)
    pitch = 2.2 if any(group.count > 1 for group in groups) else 1.6
    slots = _slots(all_groups, groups)
    width = max(pitch * len(slots), *map(width_of_row, rows), 8.0)
    nodes = _nodes(cluster)
    for place, slot in enumerate(slots):
        x = (place + 0.5) * width / len(slots)
        if isinstance(slot, int):
            sheet.captions.append(shapes.Caption(x, shapes.GAP, f"… {slot} more hosts …"))
        else:
            members = range(slot.first, slot.last + 1)
            names = [node for host in members for node in nodes[f"node{host}"]]
            sheet.add(_host_box(cluster, slot, x, pitch), *names)
    _domain_switches(sheet, cluster, nodes)
    _above(sheet, cluster, rows, (0.0, width), shapes.GAP)
    hosts = len(cluster.host_class)
    sheet.rows.append((shapes.GAP, f"{hosts} hosts\n{len(cluster.topology)} GPUs"))
    return _picture(name, cluster, sheet, used)


def _one_host(cluster: Cluster, used: Use) -> shapes.Drawing:
    """One host in detail: the first with a dead NIC or link, or else the first host."""
    sheet = shapes.DrawingSheet()
    number = _host_to_show(cluster)
    host = cluster.hosts[int(cluster.host_class[number])]
    name = f"node{number}"
    dead_nics = dead_nics_of(cluster, number)
    draw_host(sheet, host, name, 0.0, switch="nvswitch0", dead_nics=dead_nics)
    if f"{name}.nvswitch0" in sheet.of:
        domain_switch = f"nvlink{cluster.domain[number]}.nvswitch0"
        sheet.of[domain_switch] = sheet.of[f"{name}.nvswitch0"]
    name_rows(sheet, levels_of(host), nics=bool(host.nics or dead_nics))
    same_count = int((cluster.host_class == cluster.host_class[number]).sum())
    text = f"inside {name}, one of {same_count} such hosts" if same_count > 1 else f"inside {name}"
    sheet.frames = [replace(sheet.frames[0], label=text)]
    lines = shapes.bent(shapes.lines_between(cluster.topology, sheet.of, used), sheet.boxes)
    return sheet.picture("", "", lines)


def _host_to_show(cluster: Cluster) -> int:
    """The number of the first host with a dead NIC or link; 0 if there is none."""
    if cluster.dead_nics:
        return int(cluster.dead_nics[0].partition(".")[0].removeprefix("node"))
    topology = cluster.topology
    for link in np.flatnonzero(topology.links.bandwidth <= 0).tolist():
        ends = (topology.links.tail[link], topology.links.head[link])
        hosts = {str(topology.nodes[end]).partition(".")[0] for end in ends}
        if len(hosts) == 1 and (name := hosts.pop()).startswith("node"):
            return int(name.removeprefix("node"))
    return 0


def _picture(name: str, cluster: Cluster, sheet: shapes.DrawingSheet, used: Use) -> shapes.Drawing:
    """The finished drawing of a sheet, with lines, title and subtitle."""
    lines = shapes.bent(shapes.lines_between(cluster.topology, sheet.of, used), sheet.boxes)
    usable = cluster.transport.usable if cluster.transport else 1.0
    return sheet.picture(_title(name, cluster), _subtitle(cluster), lines, usable)


def _title(name: str, cluster: Cluster) -> str:
    """The title of a drawing: the name, the number of hosts and GPUs, the kind of fabric."""
    hosts = len(cluster.host_class)
    if hosts == 1:
        return f"{name}: {cluster.hosts[0].machine.description}"
    kind = f", {cluster.fabric.kind}" if cluster.fabric else ""
    return f"{name}: {hosts} hosts, {len(cluster.topology)} GPUs{kind}"


def _subtitle(cluster: Cluster) -> str:
    """The figures of the fabric or, without one, the bandwidths of a GPU."""
    figures = fabric_figures(cluster)
    if figures is None or cluster.transport is None:
        gpu = cluster.hosts[0].machine.gpu
        to_gpus, to_nics = gpu_bandwidth(cluster)
        bandwidths = []
        if to_gpus.any():
            bandwidths.append(f"{format_bandwidth(float(to_gpus.max()))} to other GPUs")
        if to_nics.any():
            bandwidths.append(f"{format_bandwidth(float(to_nics.max()), bits=True)} of NIC")
        text = " and ".join(bandwidths) or "PCIe"
        return f"{len(cluster.topology)} x {gpu.model}; a GPU has {text}"
    over = "non-blocking"
    if figures.oversubscription >= 1.01:
        over = f"oversubscribed {figures.oversubscription:.3g}:1"
    several = "" if figures.diameter == 1 else "es"
    bisection = format_bandwidth(figures.bisection)
    return (
        f"{cluster.transport.name}; {bisection} between the halves in each "
        f"direction, {over}; at most {figures.diameter} switch{several} on a route"
    )


def _above(
    sheet: shapes.DrawingSheet,
    cluster: Cluster,
    rows: list[TierRow],
    span: tuple[float, float],
    y: float,
) -> None:
    """Add the fabric to a drawing of hosts.

    - `rows`: the tiers of the fabric.
    - `span`: the left and right edge of the hosts; tiers may be wider.
    - `y`: the top of the hosts.
    """
    if cluster.fabric is None:
        return
    middle = sum(span) / 2
    wide = max([span[1] - span[0], *map(width_of_row, rows)])
    ends = (middle - wide / 2, middle + wide / 2)
    draw_rows(sheet, cluster.fabric, rows, ends, y + gap_of(ends))


def _shared(host: Host) -> bool:
    """Whether the NVSwitches of a host are shared with other hosts."""
    scale_up = host.machine.scale_up
    return scale_up is not None and scale_up.hosts > 1


def _slots(
    all_groups: list[shapes.DrawnHosts], shown: list[shapes.DrawnHosts]
) -> list[shapes.DrawnHosts | int]:
    """What is drawn from left to right: groups of hosts, and in the middle the number of hosts that
    are left out, if any.

    `all_groups` are all groups, `shown` those that are drawn.
    """
    if len(shown) == len(all_groups):
        return list(shown)
    front = -(-len(shown) // 2)
    left = sum(group.count for group in all_groups) - sum(group.count for group in shown)
    return [*shown[:front], left, *shown[front:]]


def _nodes(cluster: Cluster) -> dict[str, list[str]]:
    """The names of the nodes of the topology, by the host (`node0`) or NVLink domain (`nvlink0`)
    that they are in.
    """
    inside = (str(node) for node in cluster.topology.nodes if "." in str(node))
    return grouped(inside, lambda node: node.partition(".")[0])


def _host_box(cluster: Cluster, group: shapes.DrawnHosts, x: float, pitch: float) -> shapes.Box:
    """The box of a group of hosts. `x`: its center; `pitch`: the distance to the next box, from
    which its width follows.
    """
    host = cluster.hosts[group.kind]
    gpu_count = len(host.gpus)
    if group.count == 1:
        text = f"node{group.first}\n{gpu_count} GPUs"
    else:
        names = f"node{group.first} … node{group.last}"
        text = f"{group.count} hosts\n{names}\n{group.count * gpu_count} GPUs"
    if group.domain >= 0 and group.count > 1:
        text += "\none NVLink domain"
    members = range(group.first, group.last + 1)
    dead_count = sum(len(dead_nics_of(cluster, number)) for number in members)
    if dead_count:
        text += f"\n{dead_count} dead {'NIC' if dead_count == 1 else 'NICs'}"
    return shapes.Box(
        "host", x, shapes.GAP, pitch * 0.84, text, 0.22 + 0.25 * (text.count("\n") + 1)
    )


def _domain_switches(
    sheet: shapes.DrawingSheet, cluster: Cluster, nodes: dict[str, list[str]]
) -> None:
    """Add the NVSwitches that hosts share: as a box below the hosts' boxes, or inside a box that is
    a complete domain.

    `nodes` are the names of nodes of the topology by host or NVLink domain, as `_nodes` returns
    them.
    """
    for domain in np.unique(cluster.domain).tolist():
        switches = nodes.get(f"nvlink{domain}", [])
        names = [f"node{h}" for h in np.flatnonzero(cluster.domain == domain).tolist()]
        boxes = sorted({sheet.of[f"{n}.gpu0"] for n in names if f"{n}.gpu0" in sheet.of})
        if not switches or not boxes:
            continue
        if len(boxes) == 1:
            sheet.of |= dict.fromkeys(switches, boxes[0])
            continue
        ends = (sheet.boxes[boxes[0]].left, sheet.boxes[boxes[-1]].right)
        scale_up = cluster.machine_of(int(names[0][4:])).scale_up
        if scale_up is not None:
            add_switch(sheet, switches, ends, scale_up)


def _draw_domains(
    sheet: shapes.DrawingSheet, cluster: Cluster, ends: list[tuple[float, float]]
) -> None:
    """Add the NVSwitches that hosts share, for hosts drawn in detail; `ends` has the left and right
    edge of each host.
    """
    for domain in np.unique(cluster.domain).tolist():
        members = np.flatnonzero(cluster.domain == domain).tolist()
        machine = cluster.machine_of(members[0])
        if machine.scale_up is not None and machine.scale_up.hosts > 1:
            span = (ends[members[0]][0], ends[members[-1]][1])
            add_switch(sheet, [f"nvlink{domain}.nvswitch0"], span, machine.scale_up)
