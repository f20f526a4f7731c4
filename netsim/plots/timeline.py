"""A run as a timeline: a band for each GPU, a lane for each channel, sends above receives.

Bars are coloured by what they do to the data, so that the phases of an algorithm show; steps are
written into the bars that have room for them.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from netsim.plots.gantt import (
    COMPUTE,
    FULL,
    LAUNCH,
    LOCAL,
    LOWER,
    RECEIVE,
    RECEIVE_SUM,
    SEND,
    SEND_SUM,
    WHAT,
    Gantt,
    read_gantt,
)
from netsim.plots.style import (
    AMBER,
    BLUE,
    FORMATS,
    GREEN,
    ORANGE,
    PINK,
    drawing,
    new_figure,
    save,
    time_unit,
    tint,
)

COLOURS = {
    SEND_SUM: tint(ORANGE, 1.0),
    RECEIVE_SUM: tint(ORANGE, 0.4),
    SEND: tint(BLUE, 1.0),
    RECEIVE: tint(BLUE, 0.4),
    LOCAL: tint(PINK, 0.9),
    COMPUTE: tint(GREEN, 0.9),
    LAUNCH: tint(AMBER, 0.6),
}
_WIDTH = 11.0
_THIN = 0.0008  # of the whole, below which a bar could not be seen
_GAP = 0.35  # between bands, in lanes
_MOST_BARS = 5_000  # drawn as shapes; more become an image within the SVG
_MOST_LABELS = 600


def plot_timeline(trace: Path, out_dir: Path, formats: Sequence[str] = FORMATS) -> list[Path]:
    """Draw the timeline of a trace.csv; the files written, none if nothing takes time."""
    gantt = read_gantt(trace)
    if gantt.bars.empty:
        return []
    out_dir.mkdir(parents=True, exist_ok=True)
    with drawing():
        return save(timeline_figure(gantt), out_dir / "timeline", formats)


def timeline_figure(gantt: Gantt) -> Figure:
    """All bands over one time axis, with a legend of what the bars are."""
    bands, lanes = len(gantt.ranks), len(gantt.lanes)
    total = bands * (lanes + _GAP)
    inches = min(max(0.42 * total, 2.0), max(9.0, 0.16 * total))
    figure = new_figure(_WIDTH, inches + 1.1)
    axes = figure.subplots()
    unit, factor = time_unit(float(gantt.bars["end"].max()))
    boxes = _boxes(gantt, factor)
    bars = PolyCollection(
        _corners(boxes),  # type: ignore[arg-type]  # an array is taken as a whole, which is quicker
        facecolors=np.array([COLOURS[what] for what in WHAT])[gantt.bars["what"].cat.codes],
        edgecolors="white",
        linewidths=0.5 if inches / total > 0.1 and len(boxes) < _MOST_BARS else 0.0,
        rasterized=len(boxes) > _MOST_BARS,
    )
    axes.add_collection(bars, autolim=False)
    axes.set_xlim(0, float(boxes[:, 1].max()))
    axes.set_ylim(total - _GAP + 0.1, -0.1)
    axes.set_xlabel(f"time ({unit})")
    _name_bands(axes, gantt, inches / total)
    _label_steps(axes, gantt.bars, boxes, inches / total)
    _legend(figure, gantt)
    notes = [gantt.title, f"{bands} ranks" if not gantt.left_out else gantt.left_out]
    axes.set_title(", ".join(filter(None, notes)), loc="left")
    return figure


def _boxes(gantt: Gantt, factor: float) -> np.ndarray:
    """Left, right, top and bottom of every bar."""
    bars = gantt.bars
    band = np.searchsorted(gantt.ranks, bars["rank"])
    lane, half = bars["lane"].to_numpy(), bars["part"].to_numpy()
    height = np.where(half == FULL, 0.94, 0.46)
    top = band * (len(gantt.lanes) + _GAP) + lane + np.where(half == LOWER, 0.5, 0.03)
    share = height / bars["tracks"].to_numpy()
    top = top + bars["track"].to_numpy() * share
    left, right = bars["begin"].to_numpy() / factor, bars["end"].to_numpy() / factor
    right = np.maximum(right, left + _THIN * right.max())
    return np.column_stack([left, right, top, top + share])


def _corners(boxes: np.ndarray) -> np.ndarray:
    left, right, top, bottom = boxes.T
    return np.stack(
        [
            np.column_stack(xy)
            for xy in ((left, top), (right, top), (right, bottom), (left, bottom))
        ],
        axis=1,
    )


def _name_bands(axes: Axes, gantt: Gantt, inches: float) -> None:
    """Ranks at the middle of their bands; lanes, where there is room, at their own."""
    lanes, step = len(gantt.lanes), len(gantt.lanes) + _GAP
    every = max(1, int(np.ceil(0.15 / (inches * step))))
    middles = [i * step + lanes / 2 for i in range(len(gantt.ranks))]
    axes.set_yticks(middles[::every], [f"rank {rank}" for rank in gantt.ranks[::every]])
    axes.tick_params(axis="y", which="both", length=0)
    axes.grid(visible=False, axis="y")
    for i in range(0, len(gantt.ranks), 2):
        axes.axhspan(i * step - _GAP / 2, i * step + lanes + _GAP / 2, color="#f4f4f4", zorder=0)
    if lanes > 1 and inches > 0.12:
        axes.yaxis.remove_overlapping_locs = False  # the middle lane of a band keeps its name
        axes.tick_params(axis="y", which="major", pad=8 + 5.2 * max(map(len, gantt.lanes)))
        places = [i * step + k + 0.5 for i in range(len(gantt.ranks)) for k in range(lanes)]
        axes.set_yticks(places, list(gantt.lanes) * len(gantt.ranks), minor=True, fontsize=7)


def _label_steps(axes: Axes, bars: pd.DataFrame, boxes: np.ndarray, inches: float) -> None:
    """The step in every bar that is wide and high enough to read it."""
    points = _WIDTH * 0.85 * 72 / boxes[:, 1].max()
    size = np.minimum((boxes[:, 3] - boxes[:, 2]) * inches * 72 * 0.75, 8)
    steps, which = np.unique(bars["step"], return_inverse=True)
    texts = np.array([f"s{step}" for step in steps.tolist()])
    room = (boxes[:, 1] - boxes[:, 0]) * points
    long = np.char.str_len(texts)[which]
    fits = (size >= 5) & (room > size * 0.7 * long) & (bars["what"] != LAUNCH)
    for i in np.flatnonzero(fits)[:_MOST_LABELS]:
        dark = bars["what"].iloc[i] in (SEND, SEND_SUM, COMPUTE)
        where = boxes[i, :2].mean(), boxes[i, 2:].mean()
        colour = "white" if dark else "#333333"
        text = texts[which[i]]
        axes.text(*where, text, color=colour, fontsize=float(size[i]), ha="center", va="center")


def _legend(figure: Figure, gantt: Gantt) -> None:
    present = set(gantt.bars["what"])
    patches = [Patch(color=COLOURS[what], label=what) for what in COLOURS if what in present]
    figure.legend(handles=patches, loc="outside lower left", ncols=len(patches))
