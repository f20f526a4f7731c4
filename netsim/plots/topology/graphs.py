"""Graphs of GPUs without hosts: circles, grids, and otherwise layers by kind of node."""

import numpy as np
from numpy.typing import NDArray

from netsim.plots.topology.bundles import bent, lines_between
from netsim.plots.topology.grids import circle_picture, grid_dims, grid_picture
from netsim.plots.topology.groups import ends_of
from netsim.plots.topology.values import GAP, Box, Caption, Picture, Sheet
from netsim.topology.graph import Topology
from netsim.topology.graph_figures import graph_figures
from netsim.topology.layout import NODE_KINDS
from netsim.units import format_bandwidth

MOST_IN_ROW = 20
_ROWS = {"switch": "switches", "nic": "NICs", "pcie": "PCIe switches", "cpu": "CPUs", "gpu": "GPUs",
         "nvswitch": "NVSwitches"}  # fmt: skip
_PITCH = 1.2

Use = NDArray[np.float64] | None


def graph_picture(name: str, topology: Topology, used: Use) -> Picture:
    """The picture of a graph."""
    title = f"{name}: a graph of {len(topology)} GPUs"
    found = graph_figures(topology)
    subtitle = f"{format_bandwidth(found.bisection)} between the halves in each direction"
    if found.diameter > 0:
        subtitle += f"; at most {found.diameter} links on a route"
    kinds = {NODE_KINDS[kind] for kind in topology.node_kinds.tolist()}
    gpus = [str(gpu) for gpu in topology.gpus]
    if kinds != {"gpu"}:
        return _layered(title, subtitle, topology, used)
    dims = grid_dims(topology)
    cells = [((gpu,), _short(gpu), "gpu") for gpu in gpus]
    if dims:
        return grid_picture(title, subtitle, topology, dims, cells, used)
    return circle_picture(title, subtitle, topology, cells, used)


def _short(gpu: str) -> str:
    number = gpu.removeprefix("gpu")
    return f"GPU {number}" if number.isdigit() else gpu


def _layered(title: str, subtitle: str, topology: Topology, used: Use) -> Picture:
    """Rows by kind of node, switches by their distance from GPUs and NICs."""
    sheet, rows = Sheet(), _rows(topology)
    widest = max(min(len(nodes), MOST_IN_ROW + 1) for _, nodes in rows)
    y = 0.0
    for kind, nodes in rows:
        shown = ends_of(nodes, MOST_IN_ROW)
        slots: list[str] = [*shown]
        if len(shown) < len(nodes):
            slots.insert(-(-len(shown) // 2), "")
        pitch = widest * _PITCH / len(slots)
        for place, node in enumerate(slots):
            x = (place + 0.5) * pitch
            if node:
                label = _short(node) if kind == "gpu" else node
                width = min(max(0.9, 0.11 * len(label) + 0.2), max(0.9, 0.95 * pitch))
                sheet.add(Box(kind, x, y, width, label), node)
            else:
                sheet.captions.append(Caption(x, y, f"… {len(nodes) - len(shown)} more …"))
        sheet.rows.append((y, f"{len(nodes)} {_ROWS[kind]}" if len(nodes) > 1 else ""))
        y += GAP * 1.25
    lines = bent(lines_between(topology, sheet.of, used), sheet.boxes)
    return Picture(title, subtitle, tuple(sheet.boxes), tuple(lines), tuple(sheet.captions),
                   rows=tuple(sheet.rows))  # fmt: skip


def _rows(topology: Topology) -> list[tuple[str, list[str]]]:
    """The rows from the bottom up, with their nodes."""
    level = _distances(topology)
    found: dict[tuple[int, int], list[str]] = {}
    order = {"nvswitch": 0, "gpu": 1, "cpu": 2, "pcie": 3, "nic": 4, "switch": 5}
    for node, kind, far in zip(
        topology.nodes, topology.node_kinds.tolist(), level.tolist(), strict=True
    ):
        name = NODE_KINDS[kind]
        if name in order:
            key = (order[name], far if name in ("switch", "pcie") else 0)
            found.setdefault(key, []).append(str(node))
    kinds = {rank: name for name, rank in order.items()}
    return [(kinds[key[0]], nodes) for key, nodes in sorted(found.items())]


def _distances(topology: Topology) -> NDArray[np.int64]:
    """How many links each node is from the nearest GPU or NIC."""
    links, kinds = topology.links, topology.node_kinds
    far = np.full(len(kinds), len(kinds))
    far[(kinds == NODE_KINDS.index("gpu")) | (kinds == NODE_KINDS.index("nic"))] = 0
    while True:
        nearer = far.copy()
        np.minimum.at(nearer, links.head, far[links.tail] + 1)
        if (nearer == far).all():
            return far
        far = nearer
