"""Bus bandwidth and time against message size, as people read nccl-tests: the plateau against the
line rate, the time of small messages, the knee in between; measured points on top where there are.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from netsim.plots.lines import Line, Lines
from netsim.plots.looks import Look, looks_of
from netsim.plots.strip import changes_choice, draw_strip
from netsim.plots.style import BLACK, GREY, new_figure, size_axis, time_axis

_WIDTH, _PANEL = 7.6, 3.0  # inches: of the panels, and the height of each
_RATE: dict[str, Any] = {"color": GREY, "linestyle": (0, (5, 3)), "linewidth": 1.2}
_SEEN = 0.01  # from which times of two lines can be told apart
Entry = tuple[Artist, str]


def sizes_figure(lines: Lines, title: str = "", line_rate: float | None = None) -> Figure:
    """Both panels over one size axis, and below them what NCCL chose, where that changes.

    `line_rate` (GB/s) is drawn as a guide.
    """
    shown, looks = lines.lines, looks_of(lines)
    strip = [i for i, line in enumerate(shown) if changes_choice(line)][:8]
    heights = [_PANEL, _PANEL, *([0.28 * len(strip) + 0.1] if strip else [])]
    figure = new_figure(_WIDTH, sum(heights) + 0.6)
    panels = figure.subplots(
        len(heights), 1, sharex=True, squeeze=False, gridspec_kw={"height_ratios": heights}
    )[:, 0].tolist()
    for place, (line, look) in enumerate(zip(shown, looks, strict=True)):
        hidden = sum(_alike(line, other) for other in shown[place + 1 :])
        _draw(panels[0], panels[1], line, look, hidden)
    _bandwidth_panel(panels[0], line_rate)
    _time_panel(panels[1], shown)
    if strip:
        draw_strip(panels[2], [shown[i] for i in strip], [looks[i].colour for i in strip])
    _shared_axis(panels, shown)
    _legend(figure, _entries(panels[0], shown, line_rate))
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
    simulated = look.simulated()
    if hidden:
        simulated |= {"linewidth": 1.8 + 3.0 * hidden, "markersize": 5 + 3.0 * hidden}
    bandwidth.plot(sizes, line.table["busbw_GBps"].to_numpy(), label=line.label, **simulated)
    time.plot(sizes, line.table["time_us"].to_numpy(), **simulated)
    if has_measured(line):
        measured = look.measured()
        bandwidth.plot(sizes, measured_bandwidth(line), **measured)
        time.plot(sizes, line.table["measured_time_us"].to_numpy(), **measured)


def has_measured(line: Line) -> bool:
    """Whether any size of a line was measured."""
    return "measured_time_us" in line.table.columns and bool(
        line.table["measured_time_us"].notna().any()
    )


def measured_bandwidth(line: Line) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
    """Bus bandwidth of the measured times, by the factor of the simulated ones."""
    table = line.table
    return (table["busbw_GBps"] * table["time_us"] / table["measured_time_us"]).to_numpy()


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
        entries.append((Line2D([], [], **_RATE), f"line rate {line_rate:.4g} GB/s"))
    return entries


def _legend(figure: Figure, entries: list[Entry]) -> None:
    """Outside the data; the figure grows by what the legend takes."""
    if len(entries) < 2:
        return
    figure.legend(*zip(*entries, strict=True), loc="outside right upper")
    figure.set_figwidth(_WIDTH + 0.7 + 0.075 * max(len(label) for _, label in entries))
