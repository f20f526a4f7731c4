"""A cluster as a picture: its hosts from inside or as boxes, and the fabric above them."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from netsim.plots.topology.bundles import bent, lines_between
from netsim.plots.topology.grids import circle_picture, grid_picture
from netsim.plots.topology.groups import Group, host_groups, some_of
from netsim.plots.topology.inside import add_switch, draw_host, levels_of, rows_of
from netsim.plots.topology.tiers import Row, draw_rows, gap_of, rows_above, width_of_row
from netsim.plots.topology.values import GAP, Box, Caption, Picture, Sheet, around
from netsim.topology.cluster import Cluster
from netsim.topology.fabrics.torus import Torus
from netsim.topology.figures import fabric_figures, gpu_bandwidth
from netsim.topology.host import Host
from netsim.units import format_bandwidth

MOST_GPUS, MOST_HOSTS = 32, 4  # of which the inside is drawn
_BETWEEN = 0.9  # from host to host

Use = NDArray[np.float64] | None


def cluster_picture(name: str, cluster: Cluster, used: Use) -> Picture:
    """The picture of a cluster."""
    hosts, gpus = len(cluster.host_class), len(cluster.topology)
    if gpus <= MOST_GPUS and hosts <= MOST_HOSTS:
        return _whole(name, cluster, used)
    made = cluster.fabric
    if made is not None and isinstance(made.wiring, Torus):
        upper = _on_routers(name, cluster, made.wiring.dims, used)
    else:
        upper = _outside(name, cluster, used)
    return upper.below(_one_host(cluster, used))


def _on_routers(name: str, cluster: Cluster, dims: Sequence[int], used: Use) -> Picture:
    """Hosts with their routers on the grid of a torus, or in a ring."""
    assert cluster.fabric is not None
    nodes = _nodes(cluster)
    owner = dict(zip(cluster.ports.host.tolist(), cluster.ports.owner.tolist(), strict=True))
    cells = []
    for number, router in enumerate(cluster.fabric.switches):
        host = owner.get(number)
        inside = [] if host is None else nodes[f"node{host}"]
        each = 0 if host is None else len(cluster.hosts[cluster.host_class[host]].gpus)
        label = "no host" if host is None else f"node{host}\n{each} GPUs"
        cells.append(([router, *inside], label, "host"))
    ends = _title(name, cluster), _subtitle(cluster), cluster.topology
    extents = [extent for extent in dims if extent > 1]
    if len(extents) > 1:
        picture = grid_picture(*ends, extents, cells, used)
    else:
        picture = circle_picture(*ends, cells, used)
    usable = cluster.transport.usable if cluster.transport else 1.0
    return replace(picture, usable=usable)


def _whole(name: str, cluster: Cluster, used: Use) -> Picture:
    """All hosts from inside."""
    sheet = Sheet()
    levels = max(map(levels_of, cluster.hosts))
    nics = any(host.nics for host in cluster.hosts)
    rows = rows_above(cluster.fabric, _leaves(host_groups(cluster))) if cluster.fabric else []
    x = 0.0
    ends: list[tuple[float, float]] = []
    for number, kind in enumerate(cluster.host_class.tolist()):
        host = cluster.hosts[kind]
        switch = "" if _shared(host) else "nvswitch0"
        end = draw_host(sheet, host, f"node{number}", x, switch=switch, levels=levels)
        ends.append((x, end))
        x = end + _BETWEEN
    _draw_domains(sheet, cluster, ends)
    sheet.rows += rows_of(levels, nics=nics)
    if any(box.kind == "nvswitch" for box in sheet.boxes):
        sheet.rows.append((0.0, "NVSwitches"))
    _above(sheet, cluster, rows, (0.0, x - _BETWEEN), (3 + levels) * GAP)
    if len(cluster.host_class) == 1:
        sheet.frames = [replace(frame, label="") for frame in sheet.frames]
    return _picture(name, cluster, sheet, used)


def _outside(name: str, cluster: Cluster, used: Use) -> Picture:
    """Hosts as boxes."""
    sheet = Sheet()
    every = host_groups(cluster)
    groups = some_of(every)
    rows = rows_above(cluster.fabric, _leaves(groups)) if cluster.fabric else []
    pitch = 2.2 if any(group.count > 1 for group in groups) else 1.6
    slots = _slots(every, groups)
    width = max(pitch * len(slots), *map(width_of_row, rows), 8.0)
    nodes = _nodes(cluster)
    for place, slot in enumerate(slots):
        x = (place + 0.5) * width / len(slots)
        if isinstance(slot, int):
            sheet.captions.append(Caption(x, GAP, f"… {slot} more hosts …"))
        else:
            names = [n for host in range(slot.first, slot.last + 1) for n in nodes[f"node{host}"]]
            sheet.add(_host_box(cluster, slot, x, pitch), *names)
    _domain_switches(sheet, cluster, nodes)
    _above(sheet, cluster, rows, (0.0, width), GAP)
    hosts = len(cluster.host_class)
    sheet.rows.append((GAP, f"{hosts} hosts\n{len(cluster.topology)} GPUs"))
    return _picture(name, cluster, sheet, used)


def _one_host(cluster: Cluster, used: Use) -> Picture:
    """The first host from inside, to stand below the others."""
    sheet, host = Sheet(), cluster.hosts[int(cluster.host_class[0])]
    draw_host(sheet, host, "node0", 0.0, switch="nvswitch0")
    if "node0.nvswitch0" in sheet.of:
        sheet.of[f"nvlink{cluster.domain[0]}.nvswitch0"] = sheet.of["node0.nvswitch0"]
    levels = levels_of(host)
    sheet.rows += rows_of(levels, nics=bool(host.nics))
    if any(box.kind == "nvswitch" for box in sheet.boxes):
        sheet.rows.append((0.0, "NVSwitches"))
    alike = int((cluster.host_class == cluster.host_class[0]).sum())
    text = f"inside node0, one of {alike} such hosts" if alike > 1 else "inside node0"
    sheet.frames = [replace(sheet.frames[0], label=text)]
    lines = bent(lines_between(cluster.topology, sheet.of, used), sheet.boxes)
    return Picture(
        "",
        "",
        tuple(sheet.boxes),
        tuple(lines),
        frames=tuple(around(frame, sheet.boxes, lines) for frame in sheet.frames),
        rows=tuple(sheet.rows),
    )


def _picture(name: str, cluster: Cluster, sheet: Sheet, used: Use) -> Picture:
    lines = bent(lines_between(cluster.topology, sheet.of, used), sheet.boxes)
    return Picture(
        _title(name, cluster),
        _subtitle(cluster),
        tuple(sheet.boxes),
        tuple(lines),
        tuple(sheet.captions),
        tuple(around(frame, sheet.boxes, lines) for frame in sheet.frames),
        tuple(sheet.rows),
        usable=cluster.transport.usable if cluster.transport else 1.0,
    )


def _title(name: str, cluster: Cluster) -> str:
    hosts = len(cluster.host_class)
    if hosts == 1:
        return f"{name}: {cluster.hosts[0].machine.description}"
    kind = f", {cluster.fabric.kind}" if cluster.fabric else ""
    return f"{name}: {hosts} hosts, {len(cluster.topology)} GPUs{kind}"


def _subtitle(cluster: Cluster) -> str:
    found = fabric_figures(cluster)
    if found is None or cluster.transport is None:
        gpu, (up, out) = cluster.hosts[0].machine.gpu, gpu_bandwidth(cluster)
        ways = [f"{format_bandwidth(float(up.max()))} to other GPUs"] if up.any() else []
        ways += [f"{format_bandwidth(float(out.max()), bits=True)} of NIC"] if out.any() else []
        return f"{len(cluster.topology)} x {gpu.model}; a GPU has {' and '.join(ways) or 'PCIe'}"
    over = "non-blocking" if found.oversubscription < 1.01 else (
        f"oversubscribed {found.oversubscription:.3g}:1"
    )  # fmt: skip
    return (
        f"{cluster.transport.name}; {format_bandwidth(found.bisection)} between the halves in each "
        f"direction, {over}; at most {found.diameter} switches on a route"
    )


def _above(
    sheet: Sheet, cluster: Cluster, rows: list[Row], span: tuple[float, float], y: float
) -> None:
    """The fabric, wider than the hosts if it must be."""
    if cluster.fabric is None:
        return
    middle, wide = sum(span) / 2, max([span[1] - span[0], *map(width_of_row, rows)])
    ends = (middle - wide / 2, middle + wide / 2)
    draw_rows(sheet, cluster.fabric, rows, ends, y + gap_of(ends))


def _leaves(groups: Sequence[Group]) -> set[int]:
    return {switch for group in groups for switch in group.switches}


def _shared(host: Host) -> bool:
    up = host.machine.scale_up
    return up is not None and up.hosts > 1


def _slots(every: list[Group], shown: list[Group]) -> list[Group | int]:
    """The groups that are drawn; a number where that many hosts are left out."""
    if len(shown) == len(every):
        return list(shown)
    front = -(-len(shown) // 2)
    left = sum(group.count for group in every) - sum(group.count for group in shown)
    return [*shown[:front], left, *shown[front:]]


def _nodes(cluster: Cluster) -> dict[str, list[str]]:
    """The nodes of each host, and of each NVLink domain, by its name."""
    found: dict[str, list[str]] = {}
    for node in cluster.topology.nodes:
        owner, dot, _ = str(node).partition(".")
        if dot:
            found.setdefault(owner, []).append(str(node))
    return found


def _host_box(cluster: Cluster, group: Group, x: float, pitch: float) -> Box:
    host = cluster.hosts[group.kind]
    each = len(host.gpus)
    if group.count == 1:
        text = f"node{group.first}\n{each} GPUs"
    else:
        text = (
            f"{group.count} hosts\nnode{group.first} … node{group.last}\n{group.count * each} GPUs"
        )
    if group.domain >= 0 and group.count > 1:
        text += "\none NVLink domain"
    return Box("host", x, GAP, pitch * 0.84, text, 0.22 + 0.25 * (text.count("\n") + 1))


def _domain_switches(sheet: Sheet, cluster: Cluster, nodes: dict[str, list[str]]) -> None:
    """NVSwitches that hosts share: below these, or inside a box that is a whole domain."""
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
        up = cluster.machine_of(int(names[0][4:])).scale_up
        if up is not None:
            add_switch(sheet, switches, ends, up)


def _draw_domains(sheet: Sheet, cluster: Cluster, ends: list[tuple[float, float]]) -> None:
    """NVSwitches that hosts drawn from inside share."""
    for domain in np.unique(cluster.domain).tolist():
        mine = np.flatnonzero(cluster.domain == domain).tolist()
        machine = cluster.machine_of(mine[0])
        if machine.scale_up is not None and machine.scale_up.hosts > 1:
            span = (ends[mine[0]][0], ends[mine[-1]][1])
            add_switch(sheet, [f"nvlink{domain}.nvswitch0"], span, machine.scale_up)
