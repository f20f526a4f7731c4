"""Bus bandwidth and time against message size, as people read nccl-tests: the plateau against the
line rate, the time of small messages, the knee in between; measured points on top where there are.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from netsim.plots.lines import Line, Lines
from netsim.plots.looks import Look, looks_of
from netsim.plots.seeds import BAND_NAMES, PERCENTILES, has_bands
from netsim.plots.strip import changes_choice, draw_strip, rows_of
from netsim.plots.style import BLACK, GREY, new_figure, size_axis, time_axis

_WIDTH, _PANEL = 7.6, 3.0  # inches: of the panels, and the height of each
_RATE: dict[str, Any] = {"color": GREY, "linestyle": (0, (5, 3)), "linewidth": 1.2}
_PALE: dict[str, Any] = {"color": "#bdbdbd", "linewidth": 0.7, "zorder": 1.2}
_MOST_DRAWN = 100  # pale lines that an SVG has as such
_BANDS = (0.16, 0.3)  # how strong the outer and the inner percentiles are
_MOST_HIDDEN = 3  # lines on top of one for which it is drawn wider
_FAR = 3  # times the fastest line, beyond which a line rate is told, not drawn
_SEEN = 0.01  # from which times of two lines can be told apart
Entry = tuple[Artist, str]


def sizes_figure(lines: Lines, title: str = "", line_rate: float | None = None) -> Figure:
    """Both panels over one size axis, and below them what NCCL chose, where that changes.

    `line_rate` (GB/s) is drawn as a guide.
    """
    shown, looks = lines.lines, looks_of(lines)
    strip = [i for i, line in enumerate(shown) if changes_choice(line)][:8]
    rows = rows_of([shown[i] for i in strip]) if strip else 0
    heights = [_PANEL, _PANEL, *([0.28 * rows + 0.1] if rows else [])]
    figure = new_figure(_WIDTH, sum(heights) + 0.6)
    panels = figure.subplots(
        len(heights), 1, sharex=True, squeeze=False, gridspec_kw={"height_ratios": heights}
    )[:, 0].tolist()
    _draw_pale(panels[0], panels[1], lines.rest)
    for place, (line, look) in enumerate(zip(shown, looks, strict=True)):
        hidden = min(sum(_alike(line, other) for other in shown[place + 1 :]), _MOST_HIDDEN)
        _draw(panels[0], panels[1], line, look, hidden)
    _bandwidth_panel(panels[0], line_rate if _near(line_rate, shown) else None)
    _time_panel(panels[1], [*shown, *lines.rest])
    if strip:
        draw_strip(panels[2], [shown[i] for i in strip], [looks[i].colour for i in strip])
    _shared_axis(panels, shown)
    _legend(figure, [*_entries(panels[0], shown, line_rate), *_summarised(lines)])
    panels[0].set_title(f"{shown[0].label} {title}" if len(shown) == 1 else title, loc="left")
    return figure


def _alike(line: Line, other: Line) -> bool:
    """Whether a line would be hidden behind another: the same times, as far as can be seen."""
    one, two = (each.table.set_index("size_bytes")["time_us"] for each in (line, other))
    both = one.index.intersection(two.index)
    return bool(len(both)) and bool((abs(one[both] / two[both] - 1) < _SEEN).mean() > 0.5)


def _draw(bandwidth: Axes, time: Axes, line: Line, look: Look, hidden: int) -> None:
    """A line; so many others lie on top of it, beside which it is still to be seen."""
    sizes = line.table["size_bytes"].to_numpy()
    if has_bands(line.table):
        _draw_bands(bandwidth, time, line.table, look)
    simulated = look.simulated()
    if hidden:
        simulated |= {"linewidth": 1.8 + 2.2 * hidden, "markersize": 5 + 2.2 * hidden}
    bandwidth.plot(sizes, line.table["busbw_GBps"].to_numpy(), label=line.label, **simulated)
    time.plot(sizes, line.table["time_us"].to_numpy(), **simulated)
    if has_measured(line):
        measured = look.measured()
        bandwidth.plot(sizes, measured_bandwidth(line), **measured)
        time.plot(sizes, line.table["measured_time_us"].to_numpy(), **measured)


def _draw_bands(bandwidth: Axes, time: Axes, table: pd.DataFrame, look: Look) -> None:
    """Between the percentiles over seeds, the inner ones stronger."""
    ideal = table["busbw_GBps"] * table["time_us"]
    times = [table[f"time_us_p{p}"] for p in PERCENTILES]
    for low, high, alpha in zip(times, times[::-1], _BANDS, strict=False):
        fill: dict[str, Any] = {"color": look.colour, "alpha": alpha, "linewidth": 0, "zorder": 1.5}
        bandwidth.fill_between(table["size_bytes"], ideal / high, ideal / low, **fill)
        time.fill_between(table["size_bytes"], low, high, **fill)


def _draw_pale(bandwidth: Axes, time: Axes, rest: Sequence[Line]) -> None:
    """Lines that are too many for a colour each; as pixels, if they are more than a file of lines
    should have.
    """
    for axes, column in ((bandwidth, "busbw_GBps"), (time, "time_us")):
        points = ((line.table["size_bytes"], line.table[column]) for line in rest)
        paths = [np.column_stack(pair) for pair in points]
        pale = LineCollection(paths, rasterized=len(rest) > _MOST_DRAWN, **_PALE)
        axes.add_collection(pale)


def has_measured(line: Line) -> bool:
    """Whether any size of a line was measured."""
    return "measured_time_us" in line.table.columns and bool(
        line.table["measured_time_us"].notna().any()
    )


def measured_bandwidth(line: Line) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
    """Bus bandwidth of the measured times, by the factor of the simulated ones."""
    table = line.table
    return (table["busbw_GBps"] * table["time_us"] / table["measured_time_us"]).to_numpy()


def _near(line_rate: float | None, lines: Sequence[Line]) -> bool:
    """Whether a line rate is near enough to what is drawn not to flatten it."""
    fastest = max(line.table["busbw_GBps"].max() for line in lines)
    return line_rate is not None and bool(line_rate < _FAR * fastest)


def _bandwidth_panel(axes: Axes, line_rate: float | None) -> None:
    axes.set_ylabel("bus bandwidth (GB/s)")
    if line_rate is not None:
        axes.axhline(line_rate, zorder=1, **_RATE)
    axes.set_ylim(bottom=0)
    axes.set_ylim(top=axes.get_ylim()[1] * 1.04)


def _time_panel(axes: Axes, lines: Sequence[Line]) -> None:
    axes.set_ylabel("time of one operation")
    columns = ("time_us", "measured_time_us")
    times = np.concatenate(
        [line.table[c] for line in lines for c in columns if c in line.table.columns]
    )
    times = times[np.isfinite(times) & (times > 0)]
    if len(times):
        time_axis(axes, float(times.min()), float(times.max()))


def _shared_axis(panels: Sequence[Axes], lines: Sequence[Line]) -> None:
    sizes = np.concatenate([line.table["size_bytes"] for line in lines])
    for axes in panels:
        size_axis(axes, max(float(sizes.min()), 1.0), max(float(sizes.max()), 1.0))
        axes.tick_params(axis="x", which="minor", length=2)
    panels[-1].set_xlabel("message size")


def _entries(axes: Axes, lines: Sequence[Line], line_rate: float | None) -> list[Entry]:
    """What the legend holds: lines in the order in which they end on the right, then the rest."""
    handles, labels = axes.get_legend_handles_labels()
    last = [line.table["busbw_GBps"].iloc[-1] for line in lines]
    labels = labels if len(labels) > 1 else ["simulated"]
    entries = [(handles[i], labels[i]) for i in sorted(range(len(handles)), key=lambda i: -last[i])]
    if any(map(has_measured, lines)):
        hollow = Line2D([], [], color=BLACK, marker="o", markerfacecolor="white", linestyle="")
        entries.append((hollow, "measured"))
    if line_rate is not None:
        drawn = Line2D([], [], **_RATE) if _near(line_rate, lines) else Line2D([], [], linestyle="")
        far = "" if _near(line_rate, lines) else " (far above)"
        entries.append((drawn, f"line rate {line_rate:.4g} GB/s{far}"))
    return entries


def _summarised(lines: Lines) -> list[Entry]:
    """What stands for several: bands for seeds, pale lines for cells."""
    entries: list[Entry] = []
    of_seeds = [line.table for line in lines.lines if has_bands(line.table)]
    if of_seeds:
        seeds = int(max(table["seeds"].max() for table in of_seeds))
        entries.append((Line2D([], [], color=GREY), f"median of {seeds} seeds"))
        strong = zip(reversed(_BANDS), BAND_NAMES, strict=True)
        entries += [(Patch(color=GREY, alpha=alpha, linewidth=0), name) for alpha, name in strong]
    if lines.rest:
        many = f"{len(lines.rest):,} more cell{'' if len(lines.rest) == 1 else 's'}"
        entries.append((Line2D([], [], **_PALE), many))
    return entries


def _legend(figure: Figure, entries: list[Entry]) -> None:
    """Outside the data; the figure grows by what the legend takes."""
    if len(entries) < 2:
        return
    figure.legend(*zip(*entries, strict=True), loc="outside right upper")
    figure.set_figwidth(_WIDTH + 0.7 + 0.075 * max(len(label) for _, label in entries))
