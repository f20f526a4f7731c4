"""Draw topologies with matplotlib: boxes, lines by bandwidth, legends, utilization of links."""

from collections import Counter, defaultdict
from dataclasses import replace
from math import isnan
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, Normalize, to_rgba
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import FancyBboxPatch, PathPatch
from matplotlib.path import Path as CurvePath
from numpy.typing import NDArray

from netsim.base.errors import InputError
from netsim.base.units import format_bandwidth
from netsim.plots import style
from netsim.plots.topology.graphs import graph_picture
from netsim.plots.topology.layout import cluster_picture
from netsim.plots.topology.shapes import Box, Drawing, Stroke
from netsim.topology.cluster import Cluster
from netsim.topology.figures import loads_by_routing
from netsim.topology.graph import Topology

Point = tuple[float, float]


def ends_of_lines(picture: Drawing) -> list[tuple[Point, Point]]:
    """The start and end point of each line, on the edges of the boxes that it joins.

    Several lines at one side of a box start beside each other, ordered by the x of the boxes that
    they lead to.
    """
    sides: dict[tuple[int, int], list[tuple[float, int]]] = defaultdict(list)
    for number, line in enumerate(picture.lines):
        for here, there in ((line.tail, line.head), (line.head, line.tail)):
            side = _side(picture.boxes[here], picture.boxes[there], line)
            sides[here, side].append((picture.boxes[there].x, number))
    x: dict[tuple[int, int], float] = {}
    for (box, side), members in sides.items():
        for place, (far, number) in enumerate(sorted(members)):
            x[box, number] = _attach(picture.boxes[box], side, far, place, len(members))
    return [
        (
            _point(picture, line, line.tail, line.head, x[line.tail, number]),
            _point(picture, line, line.head, line.tail, x[line.head, number]),
        )
        for number, line in enumerate(picture.lines)
    ]


def _side(here: Box, there: Box, line: Stroke) -> int:
    """The side of the box `here` at which a line to the box `there` leaves: 1 top, -1 bottom, 0
    left or right.
    """
    if abs(here.y - there.y) > 1e-6:
        return 1 if there.y > here.y else -1
    if not line.bend:
        return 0
    return 1 if line.bend > 0 else -1


def _attach(box: Box, side: int, far_end: float, place: int, count: int) -> float:
    """The x at which a line leaves a box at a side (1 top, -1 bottom, 0 left or right).

    `far_end` is the x of the line's other end; `place` is its position among the `count` lines at
    that side.
    """
    if side == 0:
        return box.right if far_end > box.x else box.left
    if box.width > 2.2:
        return min(max(far_end, box.left + 0.15), box.right - 0.15)
    step = min(0.14, 0.72 * box.width / max(1, count))
    return box.x + (place - (count - 1) / 2) * step


def _point(picture: Drawing, line: Stroke, here: int, there: int, x: float) -> Point:
    """The point at which a line leaves box number `here` towards box number `there`.

    `x` is the x of that point, unless the line runs from center to center (`free`).
    """
    box = picture.boxes[here]
    if line.free:
        return box.x, box.y
    return x, box.y + _side(box, picture.boxes[there], line) * box.height / 2


# The looks of boxes and of links, by kind.
BOXES = style.looks("box")
LINK_LOOKS = style.looks("link")
UNUSED = "#c9c9c9"
DEAD = "#b22222"  # together with dashes or a cross, which are visible without color
_DEAD_WIDTH = 1.4  # points
_DASHES = (0, (3.0, 2.2))
_HEAT = colormaps["YlOrRd"]
HEAT = LinearSegmentedColormap.from_list("use", [_HEAT(0.22 + 0.78 * x / 16) for x in range(17)])


def width_of(bandwidth: float) -> float:
    """The width of a line in points: proportional to the root of its bandwidth, within bounds."""
    gigabytes = min(bandwidth, 1e15) / 1e9
    return float(min(6.5, max(0.6, 0.25 * gigabytes**0.5)))


_MOST_KEYS = 8
_KEY_TITLE = "one link, in each direction (width by bandwidth)"


def draw_legend(figure: Figure, picture: Drawing, left: float, top: float, *, heat: bool) -> None:
    """Draw the legend: the kinds of links with their widths, and the meaning of colors.

    `left` and `top` are its upper left corner, as fractions of the figure.
    """
    width, height = figure.get_size_inches()
    keys: list[Artist] = [
        Line2D(
            [],
            [],
            color=style.GREY if heat else LINK_LOOKS[kind].color,
            linewidth=width_of(rate),
            label=_rate_text(kind, rate, picture.usable),
        )
        for kind, rate in _rates(picture)
    ]
    keys += _dead_keys(picture)
    figure.legend(
        handles=keys,
        loc="upper left",
        bbox_to_anchor=(left - 0.05 / width, top),
        ncols=_columns(len(keys), width),
        title=_KEY_TITLE,
        fontsize=9,
        title_fontsize=9,
        alignment="left",
        borderpad=0.1,
    )
    if heat:
        place = figure.add_axes((left, 0.45 / height, min(4.5, width - 0.4) / width, 0.13 / height))
        bar = figure.colorbar(
            ScalarMappable(Normalize(0, 100), HEAT), cax=place, orientation="horizontal"
        )
        bar.set_label(
            "utilisation (%), the busiest of links drawn as one; grey: unused",
            fontsize=9,
            loc="left",
        )
        bar.outline.set_visible(False)
        place.tick_params(labelsize=8)


def _rates(picture: Drawing) -> list[tuple[str, float]]:
    """(kind, rate in bytes/s) of each sort of link, for the legend: at most `_MOST_KEYS` of them,
    and none of dead links.
    """
    rates = {(line.kind, line.rate) for line in picture.lines if not line.is_dead}
    kinds = list(LINK_LOOKS)
    return sorted(rates, key=lambda pair: (kinds.index(pair[0]), -pair[1]))[:_MOST_KEYS]


def _dead_keys(picture: Drawing) -> list[Artist]:
    """The entries of the legend for dead parts; empty if nothing is dead."""
    keys: list[Artist] = []
    if any(line.dead_fraction for line in picture.lines):
        keys.append(
            Line2D([], [], color=DEAD, linewidth=_DEAD_WIDTH, linestyle=_DASHES, label="dead link")
        )
    if any(box.dead for box in picture.boxes):
        cross: dict[str, Any] = {"markerfacecolor": "white", "markeredgecolor": DEAD}
        keys.append(
            Line2D([], [], linestyle="none", marker="X", label="dead NIC", markersize=9, **cross)
        )
    return keys


def _rate_text(kind: str, rate: float, usable: float) -> str:
    """The kind and rate (bytes/s) of a link as text for the legend. If only the fraction `usable`
    of the line rate can be used, the text has both rates.
    """
    text = format_bandwidth(rate)
    if kind in ("nic", "fabric") and usable < 1:
        text = f"{format_bandwidth(rate / usable, bits=True)} ({text} usable)"
    return f"{LINK_LOOKS[kind].words} {text}"


def _columns(keys: int, width: float) -> int:
    """The number of columns of a legend with `keys` entries in a figure that is `width` inches
    wide.
    """
    return max(1, min(keys, 4, int(width / 3.1)))


def room_below(picture: Drawing, width: float, *, heat: bool) -> float:
    """The height of the legend in inches, in a figure that is `width` inches wide."""
    keys = len(_rates(picture)) + len(_dead_keys(picture))
    return 0.5 + 0.2 * -(-keys // _columns(keys, width)) + (0.75 if heat else 0.0)


# Inches of one unit of length of a drawing; the greatest and the least width of a figure in inches.
_UNIT = 0.68
_WIDEST = 19.0
_LEAST = 9.5
_MOST_LABELS = 26  # lines between two rows that are labeled one by one
_CROWD = 40  # lines between two rows beyond which they are drawn lightly
_BEHIND = {"facecolor": "white", "edgecolor": "none", "pad": 0.8}  # of labels on lines

Color = style.Color | tuple[float, float, float, float]


def figure_of(picture: Drawing) -> Figure:
    """The figure of a drawing; its size follows from the drawing, since a unit has a fixed length
    in inches.
    """
    margin = 2.4 if picture.rows else 0.3
    wide = picture.right - picture.left + margin + 0.3
    high = picture.top - picture.bottom + 0.3
    unit = min(_UNIT, _WIDEST / wide)
    heat = any(not isnan(line.used) for line in picture.lines)
    above = 0.85
    below = room_below(picture, max(_LEAST, wide * unit), heat=heat)
    width = max(_LEAST, wide * unit)
    height = high * unit + above + below
    figure = Figure(figsize=(width, height))
    across = wide * unit / width
    up = high * unit / height
    axes = figure.add_axes(((1 - across) / 2, below / height, across, up))
    axes.set_axis_off()
    axes.set_xlim(picture.left - margin, picture.left - margin + wide)
    axes.set_ylim(picture.bottom - 0.15, picture.top + 0.15)
    points = 8.0 * unit / _UNIT
    _draw_frames(axes, picture, points)
    _draw_lines(axes, picture, points, heat=heat)
    _draw_boxes(axes, picture, points)
    _draw_texts(axes, picture, points)
    left = 0.2 / width
    title = _cut(picture.title, width * 9.5)
    subtitle = _cut(picture.subtitle, width * 14)
    figure.text(left, 1 - 0.38 / height, title, fontsize=13, fontweight="bold")
    figure.text(left, 1 - 0.65 / height, subtitle, fontsize=9.5, color=style.GREY)
    draw_legend(figure, picture, left, below / height, heat=heat)
    return figure


def _cut(text: str, most: float) -> str:
    """The text, shortened to at most `most` characters."""
    return text if len(text) <= most else text[: int(most) - 1].rstrip() + "…"


def _draw_frames(axes: Axes, picture: Drawing, points: float) -> None:
    """Draw the frames with their names."""
    looks: dict[str, Any] = {"facecolor": "#fafafa", "edgecolor": "#b5b5b5", "linewidth": 0.9}
    for frame in picture.frames:
        size = frame.right - frame.left, frame.top - frame.bottom
        axes.add_patch(
            FancyBboxPatch(
                (frame.left, frame.bottom),
                *size,
                zorder=0,
                **looks,
                boxstyle="round,pad=0,rounding_size=0.15",
            )
        )
        if frame.label:
            axes.text(
                frame.left + 0.12,
                frame.top + 0.06,
                frame.label,
                fontsize=points + 1,
                va="bottom",
                ha="left",
                color=style.GREY,
                fontweight="bold",
                zorder=5,
                bbox=_BEHIND,
            )


def _draw_boxes(axes: Axes, picture: Drawing, points: float) -> None:
    """Draw the boxes with their labels; dead ones are dashed and crossed out."""
    for box in picture.boxes:
        look: dict[str, Any] = {"edgecolor": BOXES[box.kind].hue, "linewidth": 1.0, "zorder": 3}
        corner = (box.left, box.y - box.height / 2)
        inside = BOXES[box.kind].color
        if box.dead:
            inside = (1.0, 1.0, 1.0)
            look |= {"edgecolor": DEAD, "linestyle": _DASHES}
            _cross_out(axes, box)
        axes.add_patch(
            FancyBboxPatch(
                corner,
                box.width,
                box.height,
                facecolor=inside,
                **look,
                boxstyle="round,pad=0,rounding_size=0.08",
            )
        )
        axes.text(
            box.x,
            box.y,
            box.label,
            fontsize=points,
            ha="center",
            va="center_baseline" if "\n" not in box.label else "center",
            zorder=4,
            linespacing=1.15,
        )


def _cross_out(axes: Axes, box: Box) -> None:
    """Draw both diagonals of a box, behind its text and above its face."""
    low = box.y - box.height / 2
    high = box.y + box.height / 2
    for start, end in ((low, high), (high, low)):
        axes.plot(
            [box.left, box.right],
            [start, end],
            color=style.tint(DEAD, 0.45),
            linewidth=0.9,
            zorder=3.5,
        )


def _draw_texts(axes: Axes, picture: Drawing, points: float) -> None:
    """Draw the captions and the names of rows."""
    for caption in picture.captions:
        size = points * 2 if caption.strong else points
        axes.text(
            caption.x,
            caption.y,
            caption.text,
            fontsize=size,
            ha=caption.align,
            va="center",
            zorder=4,
            color=style.GREY,
        )
    for y, text in picture.rows:
        axes.text(
            picture.left - 0.35,
            y,
            text,
            fontsize=points + 0.5,
            ha="right",
            va="center",
            color=style.BLACK,
            linespacing=1.2,
        )


def _draw_lines(axes: Axes, picture: Drawing, points: float, *, heat: bool) -> None:
    """Draw the lines, the widest first, and write the number of links that each represents.

    - `points`: font size.
    - `heat`: whether the color of a line shows its utilization.
    """
    ends = ends_of_lines(picture)
    crowd = Counter(_rows_of(picture, line) for line in picture.lines)
    together: dict[tuple[float, float], list[tuple[Stroke, Point]]] = defaultdict(list)
    for line, (start, end) in sorted(
        zip(picture.lines, ends, strict=True), key=lambda pair: -pair[0].bandwidth
    ):
        rows = _rows_of(picture, line)
        dense = crowd[rows] > _CROWD and not heat
        color = to_rgba(_color(line, heat=heat), 0.5 if dense else 1)
        middle = _stroke(axes, line, start, end, color)
        together[rows].append((line, middle))
    for (low, high), members in together.items():
        level = (low + high) / 2 if high > low else high + 0.95
        _label_counts(axes, picture, level, members, points)


def _rows_of(picture: Drawing, line: Stroke) -> tuple[float, float]:
    """The y of the two rows that a line joins, the lower first."""
    tail = picture.boxes[line.tail].y
    head = picture.boxes[line.head].y
    return min(tail, head), max(tail, head)


def _color(line: Stroke, *, heat: bool) -> Color:
    """The color of a line: its kind's or, with `heat`, that of its utilization."""
    if line.is_dead:
        return DEAD
    if not heat:
        return LINK_LOOKS[line.kind].color
    return UNUSED if isnan(line.used) else HEAT(min(1.0, line.used))


def _loop(bend: float, start: Point, end: Point) -> CurvePath:
    """The path of a line from `start` to `end` that goes around the boxes between them: out by
    `bend`, along, and back, with round corners.
    """
    upright = abs(start[0] - end[0]) < 1e-6
    out = (bend * 1.6, 0.0) if upright else (0.0, bend)
    axis = 1 if upright else 0
    sign = 1.0 if end[axis] > start[axis] else -1.0
    along = (0.0, sign * 0.7) if upright else (sign * 0.7, 0.0)
    corner = [(x + out[0], y + out[1]) for x, y in (start, end)]
    first = (corner[0][0] + along[0], corner[0][1] + along[1])
    last = (corner[1][0] - along[0], corner[1][1] - along[1])
    points = [start, corner[0], first, last, corner[1], end]
    codes = [
        CurvePath.MOVETO,
        CurvePath.CURVE3,
        CurvePath.CURVE3,
        CurvePath.LINETO,
        CurvePath.CURVE3,
        CurvePath.CURVE3,
    ]
    return CurvePath(points, codes)


def _stroke(axes: Axes, line: Stroke, start: Point, end: Point, color: Color) -> Point:
    """Draw one line from `start` to `end`, and return the point for its label."""
    if line.bend and line.free:
        curve = _loop(line.bend, start, end)
        middle = start
    elif line.bend:
        across = abs(start[0] - end[0]) < 1e-6
        push = (line.bend * 4 / 3, 0.0) if across else (0.0, line.bend * 4 / 3)
        points = [
            start,
            (start[0] + push[0], start[1] + push[1]),
            (end[0] + push[0], end[1] + push[1]),
            end,
        ]
        curve = CurvePath(
            points, [CurvePath.MOVETO, CurvePath.CURVE4, CurvePath.CURVE4, CurvePath.CURVE4]
        )
        x = (start[0] + end[0]) / 2
        y = (start[1] + end[1]) / 2
        middle = (x + push[0] * 0.75, y + push[1] * 0.75)
    else:
        curve = CurvePath([start, end], [CurvePath.MOVETO, CurvePath.LINETO])
        middle = (0.55 * start[0] + 0.45 * end[0], 0.55 * start[1] + 0.45 * end[1])
    look: dict[str, Any] = {"fill": False, "zorder": 2}
    if not line.is_dead:
        width = width_of(line.bandwidth)
        axes.add_patch(PathPatch(curve, edgecolor=color, linewidth=width, capstyle="round", **look))
    if line.dead_fraction:  # dashes on the line show that some of its links are dead
        axes.add_patch(
            PathPatch(curve, edgecolor=DEAD, linewidth=_DEAD_WIDTH, linestyle=_DASHES, **look)
        )
    return middle


def _label_counts(
    axes: Axes, picture: Drawing, y: float, members: list[tuple[Stroke, Point]], points: float
) -> None:
    """Write how many links each line represents: once at the left if all numbers are equal, or a
    range if there are very many lines, else at each line.

    - `y`: the y of a text at the left.
    - `members`: the lines between two rows of boxes, each with the point for its label.
    - `points`: font size.
    """
    counts = {line.count for line, _ in members}
    if counts == {1}:
        return
    if len(counts) == 1 and len(members) > 1:
        text = f"each line: {counts.pop()} {_noun(members)}"
    elif len(members) > _MOST_LABELS:
        text = f"{min(counts)} to {max(counts)} {_noun(members)} a line"
    else:
        text = ""
    if text:
        axes.text(
            picture.left - 0.35,
            y,
            text,
            fontsize=points,
            ha="right",
            va="center",
            color=style.GREY,
            style="italic",
        )
        return
    for line, (x, height) in members:
        if line.count > 1:
            axes.text(
                x,
                height,
                f"×{line.count}",
                fontsize=points,
                ha="center",
                va="center",
                zorder=4,
                bbox=_BEHIND,
            )


def _noun(members: list[tuple[Stroke, Point]]) -> str:
    """The noun for the links of some lines: "cables" between hosts and switches, else "links"."""
    return "cables" if members[0][0].kind in ("nic", "fabric") else "links"


FILE = "links.csv"


def read_use(folder: Path, topology: Topology) -> NDArray[np.float64]:
    """The utilization (0 to 1) of each link of a topology, from links.csv; NaN for links not in the
    file.
    """
    path = folder / FILE if folder.is_dir() else folder
    if folder.is_dir() and not path.is_file():
        raise InputError(f"{folder}: holds no {FILE}", hint="netsim run writes it with traces")
    table = style.filled(
        path, style.read_table(path, style.LINKS, "the columns of links.csv"), ("utilisation",)
    )
    numbers = {topology.link_name(number): number for number in range(len(topology.links))}
    names = table["link"].astype(str)
    places = names.map(numbers).fillna(-1).to_numpy(np.int64)
    if (places < 0).all():
        first = next((name for name in names if "->" in name), "nothing")
        raise InputError(
            f"{path}: none of its links is in this topology, which has "
            f"{topology.link_name(0)} while the file has {first}",
            hint="name the cluster of that run: its scenario, or the same --nodes and --fabric",
        )
    used = np.full(len(topology.links), np.nan)
    ours = places >= 0
    used[places[ours]] = table["utilisation"].to_numpy(np.float64)[ours]
    return used


def plot_topology(
    name: str, drawn: Topology | Cluster, stem: Path, *, result: Path | None = None, run: str = ""
) -> list[Path]:
    """Draw a cluster or a graph; with a `result` folder, color links by their utilization in that
    run.

    `stem` is the path of the pictures without suffix; `run` describes the run. Returns the
    pictures.
    """
    topology = drawn.topology if isinstance(drawn, Cluster) else drawn
    used = None if result is None else read_use(result, topology)
    if isinstance(drawn, Cluster):
        picture = cluster_picture(name, drawn, used)
    else:
        picture = graph_picture(name, drawn, used)
    if result is not None:
        ours = f"{picture.subtitle}; " if picture.subtitle else ""
        picture = replace(picture, subtitle=f"{ours}utilisation from {run or result.as_posix()}")
    return style.drawn(stem.parent, {stem.name: lambda: figure_of(picture)})


def plot_loads(name: str, cluster: Cluster, stem: Path) -> list[Path]:
    """Draw, for each routing, the number of flows on each link between switches if GPU g of n sends
    to GPU g + n / 2 (mod n); return the paths of the pictures.
    """
    gpus = np.arange(len(cluster.topology), dtype=np.int32)
    loads = loads_by_routing(cluster, gpus, (gpus + len(gpus) // 2) % len(gpus))
    most = max(1.0, *(float(flows.max(initial=0.0)) for flows, _ in loads.values()))
    with style.drawing():
        figure = style.new_figure(2.6 * len(loads), 3.2)
        axes = figure.subplots(1, len(loads), sharey=True, squeeze=False)[0]
        for panel, (routing, (flows, _)) in zip(axes, loads.items(), strict=True):
            order = np.sort(flows)[::-1]
            panel.bar(np.arange(len(order)), order, width=1.0, color=style.BLUE)
            panel.axhline(flows.mean(), color="black", linewidth=0.8, linestyle=":")
            panel.set(title=routing, ylim=(0, most * 1.08), xlabel="links, fullest first")
            panel.text(
                0.98,
                0.95,
                f"most {flows.max(initial=0.0):.3g}\nmean {flows.mean():.3g}",
                transform=panel.transAxes,
                ha="right",
                va="top",
            )
        axes[0].set_ylabel("flows on a link between switches")
        figure.suptitle(f"{name}: every GPU sends to the one half way round")
        return style.save(figure, stem)
