"""Pictures of a sweep, from its results alone: what every axis does, heat maps of two axes, and
what is fastest for what it costs.
"""

from collections.abc import Sequence
from itertools import combinations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import EngFormatter, FuncFormatter

from netsim.plots.lines import AXIS, in_words, spoken
from netsim.plots.style import BLACK, BLUE, GREY, ORANGE, new_figure, time_axis, time_text, tint
from netsim.units import format_size

_MOST_AXES = 6
_MOST_VALUES = 40
_MOST_MAPS = 3
_FAR = 20  # times as long, from which times are drawn on a logarithmic axis
_LABELLED = 14  # columns or rows of a heat map whose cells are labelled
_NAMED = 12  # cells of a front that have names
_LEVEL_ROOM = 34  # letters that fit below a panel side by side
_SAME = 1e-3  # part of a time by which cells have to differ


def swept_axes(table: pd.DataFrame) -> list[str]:
    """The columns of axes with more than one value."""
    return [c for c in table.columns if str(c).startswith(AXIS) and table[c].nunique() > 1]


def at_largest(table: pd.DataFrame) -> pd.DataFrame:
    """The rows of the largest size that all cells have; steps have none."""
    if "size_bytes" not in table.columns or not table["size_bytes"].notna().any():
        return table.assign(time=table["step_time_us"])
    counts = table.groupby("size_bytes")["cell"].nunique()
    shared = counts[counts == counts.max()].index.max()
    rows: pd.DataFrame = table[table["size_bytes"] == shared]
    return rows.assign(time=rows["time_us"])


def axes_figure(table: pd.DataFrame) -> Figure | None:
    """For every axis, the times of all cells at each of its values: all, and their median."""
    rows = at_largest(table)
    axes = swept_axes(rows)[:_MOST_AXES]
    if not axes or rows["time"].isna().all():
        return None
    across = min(len(axes), 3)
    down = -(-len(axes) // across)
    figure = new_figure(3.4 * across + 0.6, 2.9 * down + 0.3)
    panels = figure.subplots(down, across, squeeze=False, sharey=True)
    for panel, axis in zip(panels.flat, axes, strict=False):
        _axis_panel(panel, rows, axis)
    for panel in list(panels.flat)[len(axes) :]:
        panel.set_visible(False)
    for row in panels:
        row[0].set_ylabel("time")
    _wide_or_from_zero(panels[0][0], rows["time"].dropna())
    for row in panels:
        row[0].yaxis.set_major_formatter(FuncFormatter(lambda value, _: time_text(value)))
    return figure


def _wide_or_from_zero(panel: Axes, times: pd.Series) -> None:
    """Times from 0 on, or on a logarithmic axis where they are far apart."""
    if times.min() > 0 and times.max() > _FAR * times.min():
        time_axis(panel, float(times.min()), float(times.max()))
    else:
        panel.set_ylim(bottom=0)


def _axis_panel(panel: Axes, rows: pd.DataFrame, axis: str) -> None:
    values = list(dict.fromkeys(rows[axis]))[:_MOST_VALUES]
    groups = [rows[rows[axis] == value]["time"].dropna().to_numpy() for value in values]
    for place, times in enumerate(groups):
        abreast = min(len(times), 7)
        spread = (np.arange(len(times)) % 7 - (abreast - 1) / 2) * 0.04
        panel.plot(np.full(len(times), place) + spread, times, "o", color=tint(BLUE, 0.45),
                   markersize=3.5, markeredgewidth=0)  # fmt: skip
    medians = [float(np.median(times)) if len(times) else np.nan for times in groups]
    panel.plot(range(len(values)), medians, "-", color=ORANGE, marker="o", markersize=5)
    labels = [str(value) for value in values]
    _name_columns(panel, range(len(values)), labels)
    panel.grid(axis="x", visible=False)
    panel.set_title(short(axis), loc="left", fontsize=10)


def _name_columns(panel: Axes, places: Sequence[float], labels: Sequence[str]) -> None:
    """Names below a panel, at an angle where they would not fit side by side."""
    crowded = sum(map(len, labels)) > _LEVEL_ROOM
    panel.set_xticks(places, labels, rotation=35 if crowded else 0,
                     ha="right" if crowded else "center", fontsize=8.5)  # fmt: skip


def heat_figure(table: pd.DataFrame) -> Figure | None:
    """The median time for every pair of values of two axes, for the first few pairs of axes."""
    rows = at_largest(table)
    axes = [a for a in swept_axes(rows) if rows[a].nunique() <= _MOST_VALUES]
    axes.sort(key=lambda axis: -_effect(rows, axis))
    pairs = list(combinations(axes, 2))[:_MOST_MAPS]
    if not pairs or rows["time"].isna().all():
        return None
    figure = new_figure(4.3 * len(pairs) + 0.4, 3.6)
    panels = figure.subplots(1, len(pairs), squeeze=False)[0]
    for panel, (one, other) in zip(panels, pairs, strict=True):
        grid = rows.pivot_table("time", one, other, aggfunc="median", sort=False, observed=True)
        image = panel.pcolormesh(grid.to_numpy(), cmap="viridis_r", edgecolors="white",
                                 linewidth=1.5)  # fmt: skip
        middles = [place + 0.5 for place in range(grid.shape[1])]
        _name_columns(panel, middles, [str(v) for v in grid.columns])
        panel.set_yticks(np.arange(grid.shape[0]) + 0.5, [str(v) for v in grid.index],
                         fontsize=8.5)  # fmt: skip
        panel.set_xlabel(short(other))
        panel.set_ylabel(short(one))
        panel.grid(visible=False)
        _label_cells(panel, grid.to_numpy())
        bar = figure.colorbar(image, ax=panel, shrink=0.85)
        bar.ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: time_text(value)))
        bar.ax.tick_params(labelsize=8)
    return figure


def _label_cells(panel: Axes, values: np.ndarray[tuple[int, int], np.dtype[np.float64]]) -> None:
    if max(values.shape) > _LABELLED or values.shape[1] > 8:
        return
    middle = (np.nanmin(values) + np.nanmax(values)) / 2
    for (row, column), value in np.ndenumerate(values):
        if np.isfinite(value):
            colour = "white" if value > middle else BLACK
            label = time_text(float(f"{value:.3g}"))
            panel.text(column + 0.5, row + 0.5, label, ha="center", va="center", fontsize=7.5,
                       color=colour)  # fmt: skip


def _effect(rows: pd.DataFrame, axis: str) -> float:
    """How far the medians of an axis lie apart."""
    medians = rows.groupby(axis, sort=False, observed=True)["time"].median()
    return float(medians.max() / medians.min()) if len(medians) and medians.min() > 0 else 0.0


def pareto_front(cost: Sequence[float], time: Sequence[float]) -> list[int]:
    """The positions of cells that no other beats in both, the cheapest first. Who pays more gets
    a shorter time, not one that only rounding tells from another.
    """
    order = sorted(range(len(cost)), key=lambda i: (cost[i], time[i]))
    front: list[int] = []
    best = np.inf
    for place in order:
        if time[place] < best * (1 - _SAME):
            best = time[place]
            front.append(place)
    return front


def pareto_figure(table: pd.DataFrame, column: str, label: str) -> Figure | None:
    """Time against what a cell takes (cost, power), with those that nothing beats in both."""
    rows = at_largest(table)
    if column not in rows.columns:
        return None
    rows = rows[rows[column].notna() & rows["time"].notna()]
    if rows[column].nunique() < 2:
        return None
    cost, time = rows[column].to_numpy(np.float64), rows["time"].to_numpy(np.float64)
    front = pareto_front(cost.tolist(), time.tolist())
    figure = new_figure(9.2, 4.2)
    panel = figure.subplots()
    panel.plot(cost, time, "o", color=tint(GREY, 0.55), markersize=5, label="all cells")
    panel.step(cost[front], time[front], where="post", color=ORANGE, linewidth=1.4)
    panel.plot(cost[front], time[front], "o", color=ORANGE, markersize=11, label="nothing beats")
    _name_front(figure, panel, rows.iloc[front[:_NAMED]], column)
    panel.set_xlabel(label)
    panel.xaxis.set_major_formatter(EngFormatter(sep=""))
    panel.set_ylabel("time")
    panel.yaxis.set_major_formatter(FuncFormatter(lambda value, _: time_text(value)))
    panel.margins(x=0.12, y=0.12)
    panel.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, borderaxespad=0.2)
    return figure


def _name_front(figure: Figure, panel: Axes, front: pd.DataFrame, column: str) -> None:
    """Number the cells of a front, and list them beside it: names would cover each other."""
    axes, handles = swept_axes(front), []
    for number, (_, row) in enumerate(front.iterrows(), start=1):
        panel.annotate(str(number), (row[column], row["time"]), ha="center", va="center",
                       color="white", fontsize=7.5, fontweight="bold")  # fmt: skip
        name = ", ".join(spoken(axis, str(row[axis])) for axis in axes)
        handles.append(Line2D([], [], linestyle="", label=f"{number}  {name}"))
    figure.legend(handles=handles, loc="outside right upper", handlelength=0, handletextpad=0)


def shown_size(table: pd.DataFrame) -> str:
    """The size that the pictures are of."""
    rows = at_largest(table)
    sizes = rows["size_bytes"].dropna().tolist() if "size_bytes" in rows.columns else []
    return format_size(int(sizes[0])) if sizes else ""


def short(axis: str) -> str:
    """The last part of an axis' key."""
    return in_words(axis.removeprefix(AXIS).rpartition(".")[2])
