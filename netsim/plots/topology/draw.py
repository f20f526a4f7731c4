"""A picture of a topology with matplotlib: boxes, lines by bandwidth, a legend with units."""

from collections import Counter, defaultdict
from math import isnan

from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, PathPatch
from matplotlib.path import Path as Curve

from netsim.plots.style import BLACK, GREY
from netsim.plots.topology.ends import Point, ends_of_lines
from netsim.plots.topology.legend import draw_legend, room_below
from netsim.plots.topology.looks import BOXES, HEAT, LINKS, UNUSED, fill_of, width_of
from netsim.plots.topology.values import Line, Picture

_UNIT, _WIDEST, _LEAST = 0.68, 19.0, 9.5  # inches of a unit; of a figure, at most and at least
_MOST_LABELS = 26  # lines between two rows that are labelled one by one
_CROWD = 40  # lines between two rows beyond which they are drawn lightly
_BEHIND = {"facecolor": "white", "edgecolor": "none", "pad": 0.8}  # of labels on lines

Colour = str | tuple[float, float, float, float]


def figure_of(picture: Picture) -> Figure:
    """The figure of a picture: a unit is equally long everywhere, so places are set in inches."""
    margin = 2.4 if picture.rows else 0.3
    wide, high = picture.right - picture.left + margin + 0.3, picture.top - picture.bottom + 0.3
    unit = min(_UNIT, _WIDEST / wide)
    heat = any(not isnan(line.used) for line in picture.lines)
    above, below = 0.85, room_below(picture, max(_LEAST, wide * unit), heat=heat)
    width, height = max(_LEAST, wide * unit), high * unit + above + below
    figure = Figure(figsize=(width, height))
    axes = figure.add_axes(
        (
            (width - wide * unit) / 2 / width,
            below / height,
            wide * unit / width,
            high * unit / height,
        )
    )
    axes.set_axis_off()
    axes.set_xlim(picture.left - margin, picture.left - margin + wide)
    axes.set_ylim(picture.bottom - 0.15, picture.top + 0.15)
    points = 8.0 * unit / _UNIT
    _draw_frames(axes, picture, points)
    _draw_lines(axes, picture, points, heat=heat)
    _draw_boxes(axes, picture, points)
    _draw_texts(axes, picture, points)
    left = 0.2 / width
    _titles(figure, picture, left)
    draw_legend(figure, picture, left, below / height, heat=heat)
    return figure


def _titles(figure: Figure, picture: Picture, left: float) -> None:
    width, height = figure.get_size_inches()
    title, below = _cut(picture.title, width * 9.5), _cut(picture.subtitle, width * 14)
    figure.text(left, 1 - 0.38 / height, title, fontsize=13, fontweight="bold")
    figure.text(left, 1 - 0.65 / height, below, fontsize=9.5, color=GREY)


def _cut(text: str, most: float) -> str:
    return text if len(text) <= most else text[: int(most) - 1].rstrip() + "…"


def _draw_frames(axes: Axes, picture: Picture, points: float) -> None:
    for frame in picture.frames:
        shape = FancyBboxPatch(
            (frame.left, frame.bottom),
            frame.right - frame.left,
            frame.top - frame.bottom,
            boxstyle="round,pad=0,rounding_size=0.15",
            facecolor="#fafafa",
            edgecolor="#b5b5b5",
            linewidth=0.9,
            zorder=0,
        )
        axes.add_patch(shape)
        if not frame.label:
            continue
        axes.text(frame.left + 0.12, frame.top + 0.06, frame.label, fontsize=points + 1,
                  va="bottom", ha="left", color=GREY, fontweight="bold", zorder=5,
                  bbox=_BEHIND)  # fmt: skip


def _draw_boxes(axes: Axes, picture: Picture, points: float) -> None:
    for box in picture.boxes:
        shape = FancyBboxPatch(
            (box.left, box.y - box.height / 2),
            box.width,
            box.height,
            boxstyle="round,pad=0,rounding_size=0.08",
            facecolor=fill_of(box.kind),
            edgecolor=BOXES[box.kind][0],
            linewidth=1.0,
            zorder=3,
        )
        axes.add_patch(shape)
        axes.text(box.x, box.y, box.label, fontsize=points, ha="center", va="center_baseline"
                  if "\n" not in box.label else "center", zorder=4, linespacing=1.15)  # fmt: skip


def _draw_texts(axes: Axes, picture: Picture, points: float) -> None:
    for one in picture.captions:
        size = points * 2 if one.strong else points
        axes.text(one.x, one.y, one.text, fontsize=size, ha=one.align, va="center", zorder=4,
                  color=GREY)  # fmt: skip
    for y, text in picture.rows:
        axes.text(picture.left - 0.35, y, text, fontsize=points + 0.5, ha="right", va="center",
                  color=BLACK, linespacing=1.2)  # fmt: skip


def _draw_lines(axes: Axes, picture: Picture, points: float, *, heat: bool) -> None:
    ends = ends_of_lines(picture)
    crowd = Counter(_rows_of(picture, line) for line in picture.lines)
    together: dict[tuple[float, float], list[tuple[Line, Point]]] = defaultdict(list)
    for line, (start, end) in sorted(
        zip(picture.lines, ends, strict=True), key=lambda one: -one[0].bandwidth
    ):
        rows = _rows_of(picture, line)
        dense = crowd[rows] > _CROWD and not heat
        colour = to_rgba(_colour(line, heat=heat), 0.5 if dense else 1)
        middle = _stroke(axes, line, start, end, colour, loop=line.free)
        together[rows].append((line, middle))
    for (low, high), members in together.items():
        level = (low + high) / 2 if high > low else high + 0.95
        _label_counts(axes, picture, level, members, points)


def _rows_of(picture: Picture, line: Line) -> tuple[float, float]:
    one, other = picture.boxes[line.tail].y, picture.boxes[line.head].y
    return min(one, other), max(one, other)


def _colour(line: Line, *, heat: bool) -> Colour:
    if not heat:
        return LINKS[line.kind][0]
    return UNUSED if isnan(line.used) else HEAT(min(1.0, line.used))


def _loop(bend: float, start: Point, end: Point) -> Curve:
    """A way around what is between: out by `bend`, along, and back in, with round corners."""
    upright = abs(start[0] - end[0]) < 1e-6
    out = (bend * 1.6, 0.0) if upright else (0.0, bend)
    sign = 1.0 if (end[1] > start[1] if upright else end[0] > start[0]) else -1.0
    along = (0.0, sign * 0.7) if upright else (sign * 0.7, 0.0)
    corner = [(x + out[0], y + out[1]) for x, y in (start, end)]
    points = [
        start,
        corner[0],
        (corner[0][0] + along[0], corner[0][1] + along[1]),
        (corner[1][0] - along[0], corner[1][1] - along[1]),
        corner[1],
        end,
    ]
    codes = [Curve.MOVETO, Curve.CURVE3, Curve.CURVE3, Curve.LINETO, Curve.CURVE3, Curve.CURVE3]
    return Curve(points, codes)


def _stroke(
    axes: Axes, line: Line, start: Point, end: Point, colour: Colour, *, loop: bool
) -> Point:
    """Draw one line; where its label would stand."""
    if line.bend and loop:
        curve, middle = _loop(line.bend, start, end), start
    elif line.bend:
        across = abs(start[0] - end[0]) < 1e-6
        push = (line.bend * 4 / 3, 0.0) if across else (0.0, line.bend * 4 / 3)
        points = [start, (start[0] + push[0], start[1] + push[1]),
                  (end[0] + push[0], end[1] + push[1]), end]  # fmt: skip
        curve = Curve(points, [Curve.MOVETO, Curve.CURVE4, Curve.CURVE4, Curve.CURVE4])
        middle = (
            (start[0] + end[0]) / 2 + push[0] * 0.75,
            (start[1] + end[1]) / 2 + push[1] * 0.75,
        )
    else:
        curve = Curve([start, end], [Curve.MOVETO, Curve.LINETO])
        middle = (0.55 * start[0] + 0.45 * end[0], 0.55 * start[1] + 0.45 * end[1])
    axes.add_patch(
        PathPatch(curve, fill=False, edgecolor=colour, linewidth=width_of(line.bandwidth),
                  capstyle="round", zorder=2)
    )  # fmt: skip
    return middle


def _label_counts(
    axes: Axes, picture: Picture, y: float, members: list[tuple[Line, Point]], points: float
) -> None:
    """How many links each line stands for: once where all are alike, else line by line."""
    counts = {line.count for line, _ in members}
    if counts == {1}:
        return
    if len(counts) == 1 and len(members) > 1:
        text = f"each line: {counts.pop()} {_noun(members)}"
        axes.text(picture.left - 0.35, y, text, fontsize=points, ha="right", va="center",
                  color=GREY, style="italic")  # fmt: skip
        return
    if len(members) > _MOST_LABELS:
        text = f"{min(counts)} to {max(counts)} {_noun(members)} a line"
        axes.text(picture.left - 0.35, y, text, fontsize=points, ha="right", va="center",
                  color=GREY, style="italic")  # fmt: skip
        return
    for line, (x, height) in members:
        if line.count > 1:
            axes.text(x, height, f"×{line.count}", fontsize=points, ha="center", va="center",
                      zorder=4, bbox=_BEHIND)  # fmt: skip


def _noun(members: list[tuple[Line, Point]]) -> str:
    return "cables" if members[0][0].kind in ("nic", "fabric") else "links"
