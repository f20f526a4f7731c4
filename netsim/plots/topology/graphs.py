"""Drawings of graphs of GPUs without hosts: rings and tori on a grid, other graphs in layers.

The last two dimensions of a torus are in the plane, the others in depth. Links that close a ring
around the end of a dimension swing out in the plane; in depth they are left out.

A cell is a place of a ring or torus: the nodes in it (such as a host's), its label and its kind.
"""

from collections.abc import Hashable, Sequence
from dataclasses import replace
from itertools import product
from math import cos, pi, prod, sin

import numpy as np
from numpy.typing import NDArray

from netsim.base.units import format_bandwidth
from netsim.plots.topology import shapes
from netsim.topology.figures import graph_figures
from netsim.topology.graph import NODE_KINDS, Topology
from netsim.topology.routing import torus

Use = NDArray[np.float64] | None
Cell = tuple[Sequence[str], str, str]  # nodes, label, kind of box
_ROUND = 24  # most cells of a circle
_FLAT = 8  # most cells of a dimension if there are two
_DEEP = 4  # most cells of a dimension if there are more


def grid_dims(topology: Topology) -> tuple[int, ...]:
    """The dimensions of a torus, from its name (`torus(4x4)`) and checked against its links; () for
    other graphs.
    """
    text = topology.name.removeprefix("torus(").removesuffix(")")
    if text == topology.name or not all(part.isdigit() for part in text.split("x")):
        return ()
    dims = tuple(int(part) for part in text.split("x") if int(part) > 1)
    if len(dims) < 2 or prod(dims) != len(topology):
        return ()
    same = len(torus(dims, 1.0).links) == len(topology.links)
    return dims if same else ()


def circle_picture(
    title: str, subtitle: str, topology: Topology, cells: Sequence[Cell], used: Use
) -> shapes.Drawing:
    """A drawing of cells in a circle, clockwise from the top; if there are many, the first and the
    last.

    `used` is the utilization of each link, or None.
    """
    sheet = shapes.DrawingSheet()
    slots = shapes.slots_of(cells, _ROUND)
    radius = max(1.5, len(slots) * 1.15 / (2 * pi))
    for place, cell in enumerate(slots):
        angle = pi / 2 - 2 * pi * place / len(slots)
        x = radius * cos(angle)
        y = radius * sin(angle)
        if cell is None:
            sheet.captions.append(shapes.Caption(x, y, f"… {len(cells) - len(slots) + 1} more …"))
            continue
        nodes, label, kind = cell
        sheet.add(shapes.Box(kind, x, y, 0.86, label, _height(label)), *nodes)
    lines = [replace(line, free=True) for line in shapes.lines_between(topology, sheet.of, used)]
    return sheet.picture(title, subtitle, lines)


def _height(label: str) -> float:
    """The height of a box, which depends on the number of lines of its label."""
    return 0.25 + 0.22 * (label.count("\n") + 1)


def grid_picture(
    title: str,
    subtitle: str,
    topology: Topology,
    dims: Sequence[int],
    cells: Sequence[Cell],
    used: Use,
) -> shapes.Drawing:
    """A drawing of a torus: its last dimension runs to the right, the one before it downwards.

    `dims` are the dimensions, `cells` the places in row-major order, `used` the utilization of each
    link or None.
    """
    sheet = shapes.DrawingSheet()
    deep = len(dims) > 2
    most = _DEEP if deep else _FLAT
    shown = [shapes.slots_of(range(n), most if n <= most else most - 1) for n in dims]
    slots: dict[int, tuple[int, ...]] = {}
    for place in product(*(range(len(axis_slots)) for axis_slots in shown)):
        at = [axis_slots[slot] for axis_slots, slot in zip(shown, place, strict=True)]
        x, y = _position(place, shown)
        if None not in at:
            number = int(np.ravel_multi_index([one or 0 for one in at], tuple(dims)))
            nodes, label, kind = cells[number]
            slots[sheet.add(shapes.Box(kind, x, y, 0.92, label, _height(label)), *nodes)] = place
        elif at.count(None) == 1:
            if at[-1] is None:
                sign = "⋯"
            else:
                sign = "⋮" if at[-2] is None else "⋰"
            sheet.captions.append(shapes.Caption(x, y, sign, strong=True))
    lines = []
    for line in shapes.lines_between(topology, sheet.of, used):
        far = [abs(a - b) for a, b in zip(slots[line.tail], slots[line.head], strict=True)]
        # A link that closes a ring (from the last place of a dimension to the first) swings out.
        lines.append(replace(line, bend=0.5 if max(far) > 1 else 0.0, free=True))
    straight_lines = [line for line in lines if not (deep and line.bend)]
    if len(straight_lines) < len(lines):
        subtitle += "; links around the ends are not drawn"
    return sheet.picture(title, subtitle, straight_lines)


def _position(place: Sequence[int], shown: Sequence[Sequence[int | None]]) -> tuple[float, float]:
    """The x and y of a cell of a torus in the drawing.

    - `place`: by dimension, the position of the cell among those that are drawn.
    - `shown`: by dimension, the coordinates that are drawn, with None for a gap.
    """
    *outer, row, column = place
    if not outer:
        return 1.75 * column, -1.35 * row
    size = [len(one) for one in shown[:-2]]
    depth = int(np.ravel_multi_index(outer, tuple(size)))
    total = prod(size)
    return (1.05 * total + 0.35) * column + 1.0 * depth, -(0.72 * total + 0.5) * row + 0.66 * depth


MOST_IN_ROW = 20
_ROWS = {"switch": "switches", "nic": "NICs", "pcie": "PCIe switches", "cpu": "CPUs", "gpu": "GPUs",
         "nvswitch": "NVSwitches"}  # fmt: skip
_PITCH = 1.2


def graph_picture(name: str, topology: Topology, used: Use) -> shapes.Drawing:
    """The drawing of a graph; `used` is the utilization of each link, or None."""
    title = f"{name}: a graph of {len(topology)} GPUs"
    figures = graph_figures(topology)
    subtitle = f"{format_bandwidth(figures.bisection)} between the halves in each direction"
    if figures.diameter > 0:
        subtitle += f"; at most {figures.diameter} links on a route"
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
    """The label of a GPU."""
    number = gpu.removeprefix("gpu")
    return f"GPU {number}" if number.isdigit() else gpu


def _layered(title: str, subtitle: str, topology: Topology, used: Use) -> shapes.Drawing:
    """A drawing with a row for each kind of node; switches are in rows by their distance from GPUs
    and NICs.
    """
    sheet = shapes.DrawingSheet()
    rows = _rows(topology)
    widest = max(min(len(nodes), MOST_IN_ROW + 1) for _, nodes in rows)
    y = 0.0
    for kind, nodes in rows:
        slots = shapes.slots_of(nodes, MOST_IN_ROW)
        pitch = widest * _PITCH / len(slots)
        for place, node in enumerate(slots):
            x = (place + 0.5) * pitch
            if node:
                label = _short(node) if kind == "gpu" else node
                width = min(max(0.9, 0.11 * len(label) + 0.2), max(0.9, 0.95 * pitch))
                sheet.add(shapes.Box(kind, x, y, width, label), node)
            else:
                left = len(nodes) - len(slots) + 1
                sheet.captions.append(shapes.Caption(x, y, f"… {left} more …"))
        sheet.rows.append((y, f"{len(nodes)} {_ROWS[kind]}" if len(nodes) > 1 else ""))
        y += shapes.GAP * 1.25
    lines = shapes.bent(shapes.lines_between(topology, sheet.of, used), sheet.boxes)
    return sheet.picture(title, subtitle, lines)


def _rows(topology: Topology) -> list[tuple[str, list[str]]]:
    """The rows of a layered drawing from the bottom to the top: (kind, its nodes) of each.

    Switches have a row for each distance from GPUs and NICs.
    """
    far = _distances(topology)
    rows: dict[tuple[int, int], list[str]] = {}
    order = ("nvswitch", "gpu", "cpu", "pcie", "nic", "switch")
    for node, kind in zip(topology.nodes, topology.node_kinds.tolist(), strict=True):
        name = NODE_KINDS[kind]
        if name in order:
            level = far.get(node, len(topology.nodes))
            key = (order.index(name), level if name in ("switch", "pcie") else 0)
            rows.setdefault(key, []).append(str(node))
    return [(order[key[0]], nodes) for key, nodes in sorted(rows.items())]


def _distances(topology: Topology) -> dict[Hashable, int]:
    """The number of links from each node to the nearest GPU or NIC; nodes that reach none are left
    out.
    """
    import networkx as nx

    kinds = zip(topology.nodes, topology.node_kinds.tolist(), strict=True)
    ends = [node for node, kind in kinds if NODE_KINDS[kind] in ("gpu", "nic")]
    distances = nx.multi_source_dijkstra_path_length(topology.graph, ends, weight=None)
    return {node: int(distance) for node, distance in distances.items()}
