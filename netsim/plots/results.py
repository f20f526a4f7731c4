"""Pictures of results.csv: against size, side by side as bars, and beside measured times."""

import re
from collections.abc import Mapping, Sequence
from itertools import combinations
from math import isfinite
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import EngFormatter, FixedLocator, FuncFormatter, NullFormatter

from netsim.base.units import format_size
from netsim.base.values import dataclass
from netsim.plots import sizes as by_size
from netsim.plots import style

MOST_CURVES = 8  # that a distribution is drawn with
_MOST = 60  # bars that one figure shows


@dataclass(frozen=True)
class _Measure:
    """One quantity of every cell, and how to write a value of it."""

    label: str
    values: list[float]
    texts: list[str]
    colour: str
    ends: list[tuple[float, float]] | None = None  # of the outermost percentiles over seeds


def bars_figure(lines: by_size.Lines, title: str = "") -> Figure:
    """A bar for every cell: bus bandwidth and time, or the time of a training step."""
    shown = by_size.thinned(lines, _MOST).lines
    measures = _measures(pd.DataFrame([line.table.iloc[-1] for line in shown]))
    width = 0.075 * max(len(line.label) for line in shown)
    figure = style.new_figure(
        min(1 + width, 5) + 3.2 * max(len(measures), 1), 1.3 + 0.3 * len(shown)
    )
    panels = figure.subplots(1, max(len(measures), 1), sharey=True, squeeze=False)[0]
    for axes, measure in zip(panels, measures, strict=False):
        _draw(axes, measure)
    panels[0].set_yticks(range(len(shown)), [line.label for line in shown])
    panels[0].set_ylim(len(shown) - 0.4, -0.6)
    few = len(shown) < len(lines.lines)
    more = f" ({len(shown)} of {len(lines.lines):,} cells)" if few else ""
    figure.suptitle(title + more + _of_seeds(shown), x=0.01, ha="left", fontsize=12)
    return figure


def _measures(rows: pd.DataFrame) -> list[_Measure]:
    measures = []
    if rows["busbw_GBps"].notna().any():
        values = rows["busbw_GBps"].tolist()
        texts = [f"{value:.4g}" for value in values]
        ideal = rows["busbw_GBps"] * rows["time_us"]
        ends = _ends(rows, "time_us")
        rates = ends and [(b / high, b / low) for b, (low, high) in zip(ideal, ends, strict=True)]
        measures.append(_Measure("bus bandwidth (GB/s)", values, texts, style.BLUE, rates))
    for column, what, colour in (
        ("time_us", "time of one operation", style.ORANGE),
        ("step_time_us", "time of a training step", style.GREEN),
    ):
        if column in rows.columns and rows[column].notna().any():
            values = rows[column].tolist()
            unit, factor = style.time_unit(max(filter(isfinite, values)))
            scaled = [value / factor for value in values]
            texts = [style.time_text(value) if isfinite(value) else "" for value in values]
            ends = _ends(rows, column)
            spread = ends and [(low / factor, high / factor) for low, high in ends]
            measures.append(_Measure(f"{what} ({unit})", scaled, texts, colour, spread))
    return measures


def _of_seeds(lines: Sequence[by_size.Line]) -> str:
    """What bars with ends mean."""
    if not any(
        by_size.has_bands(line.table) or by_size.has_bands(line.table, "step_time_us")
        for line in lines
    ):
        return ""
    seeds = int(max(line.table["seeds"].max() for line in lines))
    return f"\nmedian and {by_size.PERCENTILES[0]} to {by_size.PERCENTILES[-1]} % of {seeds} seeds"


def _ends(rows: pd.DataFrame, column: str) -> list[tuple[float, float]] | None:
    if not by_size.has_bands(rows, column):
        return None
    low, high = (rows[f"{column}_p{p}"] for p in (by_size.PERCENTILES[0], by_size.PERCENTILES[-1]))
    return list(zip(low.tolist(), high.tolist(), strict=True))


def _draw(axes: Axes, measure: _Measure) -> None:
    axes.barh(range(len(measure.values)), measure.values, height=0.62, color=measure.colour)
    if measure.ends:
        for place, (low, high) in enumerate(measure.ends):
            axes.plot([low, high], [place, place], color=style.BLACK, linewidth=1.2, marker="|")
    furthest = [high for _, high in measure.ends or []] or measure.values
    for place, (end, text) in enumerate(zip(furthest, measure.texts, strict=True)):
        if isfinite(end):
            axes.annotate(text, (end, place), (5, 0), textcoords="offset points", va="center",
                          fontsize=9)  # fmt: skip
    axes.set_xlabel(measure.label)
    axes.set_xlim(0, 1.28 * max(filter(isfinite, furthest), default=1.0))
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="y", length=0)


MOST_LINES = 12  # in one figure; more become figures by a column that tells them apart
FEW_LINES = 7  # with names, where the others are drawn pale
MOST_FIGURES = 6  # beside the one of all


def plot_results(
    paths: Sequence[Path],
    out_dir: Path,
    formats: Sequence[str] = style.FORMATS,
    *,
    line_rate: float | None = None,
) -> list[Path]:
    """Draw one or several results.csv; the files written, none if there is nothing to draw.
    `line_rate` (GB/s) is drawn as a guide. More lines than a figure can show are pale behind some
    of them, and are spread over several figures, by the column with the fewest values.
    """
    table = by_size.read_results(paths)
    steps = table.get("step_time_us", pd.Series(dtype=float)).notna().reindex(table.index)
    parts = [
        *_parts("busbw", table[table["size_bytes"] > 0]),
        *_parts("step_time", table[~(table["size_bytes"] > 0) & steps.fillna(False)]),
    ]
    written: list[Path] = []
    out_dir.mkdir(parents=True, exist_ok=True)
    with style.drawing():
        for name, title, lines in parts:
            written += style.save(_figure(lines, title, line_rate), out_dir / name, formats)
    return written


def _figure(lines: by_size.Lines, title: str, line_rate: float | None) -> Figure:
    sizes = {size for line in lines.lines for size in line.table["size_bytes"].dropna()}
    if len(sizes) > 1:
        return by_size.sizes_figure(lines, title, line_rate)
    size = f" at {format_size(int(sizes.pop()))}" if sizes else ""
    return bars_figure(lines, title + size)


def _parts(name: str, table: pd.DataFrame) -> list[tuple[str, str, by_size.Lines]]:
    if table.empty:
        return []
    lines = by_size.lines_of(table)
    title = _title(table)
    if len(lines.lines) <= MOST_LINES or table["size_bytes"].nunique() < 2:
        return [(name, title, lines)]
    if len(lines.columns) < 2:
        return [(name, title, by_size.thinned(lines, FEW_LINES))]
    place = _splitting(lines)
    values = list(dict.fromkeys(line.values[place] for line in lines.lines))
    column = lines.columns[place].removeprefix(by_size.AXIS)
    drawn, told = values, ""
    if len(values) > MOST_FIGURES:
        steps = (round(k * (len(values) - 1) / (MOST_FIGURES - 1)) for k in range(MOST_FIGURES))
        drawn = [values[k] for k in steps]
        told = f"\n{MOST_FIGURES} of {len(values)} values of {column} have a picture each"
    return [
        (name, title + told, by_size.thinned(lines, FEW_LINES)),
        *(
            (f"{name}-{_plain(column)}-{_plain(value)}", f"{title}, {column} = {value}", part)
            for value in drawn
            for part in [by_size.thinned(_only(lines, place, value), FEW_LINES, MOST_LINES)]
        ),
    ]


def _splitting(lines: by_size.Lines) -> int:
    """The naming column with the fewest values, which makes the fewest figures."""
    counts = [len({line.values[k] for line in lines.lines}) for k in range(len(lines.columns))]
    return min(range(len(counts)), key=lambda k: (counts[k], k))


def _only(lines: by_size.Lines, place: int, value: str) -> by_size.Lines:
    """The lines that have a value in a column, named by the columns in which they still differ."""
    found = [line for line in lines.lines if line.values[place] == value]
    left = [k for k in range(len(lines.columns)) if len({line.values[k] for line in found}) > 1]
    columns = tuple(lines.columns[k] for k in left)
    named = (([line.values[k] for k in left], line.table) for line in found)
    return by_size.Lines(
        columns, tuple(by_size.Line(by_size.label_of(columns, v, t), tuple(v), t) for v, t in named)
    )


def _title(table: pd.DataFrame) -> str:
    """What all rows have in common: `all_reduce on 4 x dgx-h100`."""
    collective, topology, hosts, ranks = (
        str(table[column].iloc[0])
        if column in table.columns and table[column].nunique() == 1
        else ""
        for column in ("collective", "topology", "nodes", "ranks")
    )
    many = topology and " x " not in topology and hosts not in ("", "1")
    where = f"{hosts} x {topology}" if many else topology or (f"{ranks} GPUs" if ranks else "")
    return " on ".join(filter(None, (collective, where)))


def _plain(text: str) -> str:
    return "".join(c if c.isalnum() or c in "-_" else "-" for c in text.rpartition(".")[2] or text)


# Pictures of a sweep, from its results alone: what every axis does, heat maps of two axes, and
# what is fastest for what it costs.

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
    return [c for c in table.columns if str(c).startswith(by_size.AXIS) and table[c].nunique() > 1]


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
    figure = style.new_figure(3.4 * across + 0.6, 2.9 * down + 0.3)
    panels = figure.subplots(down, across, squeeze=False, sharey=True)
    for panel, axis in zip(panels.flat, axes, strict=False):
        _axis_panel(panel, rows, axis)
    for panel in list(panels.flat)[len(axes) :]:
        panel.set_visible(False)
    for row in panels:
        row[0].set_ylabel("time")
    _wide_or_from_zero(panels[0][0], rows["time"].dropna())
    for row in panels:
        row[0].yaxis.set_major_formatter(FuncFormatter(lambda value, _: style.time_text(value)))
    return figure


def _wide_or_from_zero(panel: Axes, times: pd.Series) -> None:
    """Times from 0 on, or on a logarithmic axis where they are far apart."""
    if times.min() > 0 and times.max() > _FAR * times.min():
        style.time_axis(panel, float(times.min()), float(times.max()))
    else:
        panel.set_ylim(bottom=0)


def _axis_panel(panel: Axes, rows: pd.DataFrame, axis: str) -> None:
    values = list(dict.fromkeys(rows[axis]))[:_MOST_VALUES]
    groups = [rows[rows[axis] == value]["time"].dropna().to_numpy() for value in values]
    for place, times in enumerate(groups):
        abreast = min(len(times), 7)
        spread = (np.arange(len(times)) % 7 - (abreast - 1) / 2) * 0.04
        panel.plot(place + spread, times, "o", color=style.tint(style.BLUE, 0.45), markersize=3.5,
                   markeredgewidth=0)  # fmt: skip
    medians = [float(np.median(times)) if len(times) else np.nan for times in groups]
    panel.plot(range(len(values)), medians, "-", color=style.ORANGE, marker="o", markersize=5)
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
    figure = style.new_figure(4.3 * len(pairs) + 0.4, 3.6)
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
        bar.ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: style.time_text(value)))
        bar.ax.tick_params(labelsize=8)
    return figure


def _label_cells(panel: Axes, values: np.ndarray[tuple[int, int], np.dtype[np.float64]]) -> None:
    if max(values.shape) > _LABELLED or values.shape[1] > 8:
        return
    middle = (np.nanmin(values) + np.nanmax(values)) / 2
    for (row, column), value in np.ndenumerate(values):
        if np.isfinite(value):
            colour = "white" if value > middle else style.BLACK
            label = style.time_text(float(f"{value:.3g}"))
            panel.text(column + 0.5, row + 0.5, label, ha="center", va="center", fontsize=7.5,
                       color=colour)  # fmt: skip


def _effect(rows: pd.DataFrame, axis: str) -> float:
    medians = rows.groupby(axis, sort=False, observed=True)["time"].median()
    return float(medians.max() / medians.min()) if len(medians) and medians.min() > 0 else 0.0


def pareto_front(cost: Sequence[float], time: Sequence[float]) -> list[int]:
    """Positions of cells that no other beats in both, the cheapest first; ties by rounding."""
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
    figure = style.new_figure(9.2, 4.2)
    panel = figure.subplots()
    panel.plot(cost, time, "o", color=style.tint(style.GREY, 0.55), markersize=5, label="all cells")
    panel.step(cost[front], time[front], where="post", color=style.ORANGE, linewidth=1.4)
    panel.plot(
        cost[front], time[front], "o", color=style.ORANGE, markersize=11, label="nothing beats"
    )
    _name_front(figure, panel, rows.iloc[front[:_NAMED]], column)
    panel.set_xlabel(label)
    panel.xaxis.set_major_formatter(EngFormatter(sep=""))
    panel.set_ylabel("time")
    panel.yaxis.set_major_formatter(FuncFormatter(lambda value, _: style.time_text(value)))
    panel.margins(x=0.12, y=0.12)
    panel.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, borderaxespad=0.2)
    return figure


def _name_front(figure: Figure, panel: Axes, front: pd.DataFrame, column: str) -> None:
    """Number the cells of a front, and list them beside it: names would cover each other."""
    axes, handles = swept_axes(front), []
    for number, (_, row) in enumerate(front.iterrows(), start=1):
        panel.annotate(str(number), (row[column], row["time"]), ha="center", va="center",
                       color="white", fontsize=7.5, fontweight="bold")  # fmt: skip
        name = ", ".join(by_size.spoken(axis, str(row[axis])) for axis in axes)
        handles.append(Line2D([], [], linestyle="", label=f"{number}  {name}"))
    figure.legend(handles=handles, loc="outside right upper", handlelength=0, handletextpad=0)


def shown_size(table: pd.DataFrame) -> str:
    """The size that the pictures are of."""
    rows = at_largest(table)
    sizes = rows["size_bytes"].dropna().tolist() if "size_bytes" in rows.columns else []
    return format_size(int(sizes[0])) if sizes else ""


def short(axis: str) -> str:
    """The last part of an axis' key."""
    return by_size.in_words(axis.removeprefix(by_size.AXIS).rpartition(".")[2])


Curve = Sequence[tuple[int, float, float]]  # size, measured µs, simulated µs
WITHIN = (0.85, 1.15)
MOST_CURVES = len(style.PALETTE)  # in one picture: each with a colour of its own


def plot_accuracy(
    curves: Mapping[str, Curve], stem: Path, title: str, formats: Sequence[str] = ("svg",)
) -> list[Path]:
    """Draw runs by name: points are measured, lines simulated; below, the ratio of the two."""
    with style.drawing():
        figure = style.new_figure(9.6, 5.6 + 0.16 * len(curves))
        times, ratios = figure.subplots(2, 1, sharex=True, height_ratios=[2.2, 1])
        for number, (name, curve) in enumerate(curves.items()):
            colour, marker = (
                style.PALETTE[number % len(style.PALETTE)],
                style.MARKERS[number % len(style.MARKERS)],
            )
            sizes = [size for size, _, _ in curve]
            times.plot(sizes, [s for _, _, s in curve], color=colour, linewidth=1.4)
            points = {"color": colour, "marker": marker, "linestyle": "none", "markersize": 4}
            times.plot(
                sizes, [m for _, m, _ in curve], label=name, markerfacecolor="none", **points
            )
            ratio = [s / m for _, m, s in curve]
            ratios.plot(
                sizes, ratio, color=colour, linewidth=1.2, marker=marker, markersize=3,
                markerfacecolor="none",
            )  # fmt: skip
        every = [time for curve in curves.values() for _, m, s in curve for time in (m, s)]
        style.time_axis(times, min(every), max(every))
        times.set_ylabel("time: points measured, lines simulated")
        times.set_title(title, loc="left")
        _ratio_axis(ratios)
        smallest = min(size for curve in curves.values() for size, _, _ in curve)
        largest = max(size for curve in curves.values() for size, _, _ in curve)
        style.size_axis(ratios, smallest, largest)
        ratios.set_xlabel("message size")
        figure.legend(loc="outside lower center", ncols=2, fontsize=8)
        return style.save(figure, stem, formats)


def _ratio_axis(axes: Axes) -> None:
    axes.set_yscale("log")
    axes.axhspan(*WITHIN, color=style.tint(style.GREY, 0.15), zorder=0)
    axes.axhline(1.0, color=style.GREY, linewidth=1)
    low, high = axes.get_ylim()
    axes.set_ylim(min(low, 0.5), max(high, 2.0))
    axes.yaxis.set_major_locator(FixedLocator([0.1, 0.25, 0.5, 0.8, 1.0, 1.25, 2.0, 4.0, 10.0]))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_ylabel("simulated ÷ measured")


def plot_distribution(path: Path, out_dir: Path) -> list[Path]:
    """Draw distribution.csv: which part of the samples takes longer than so many medians."""
    table = style.read_values(path, ("scenario", "cell", "p50"), "distribution.csv")
    points = [str(name) for name in table.columns if re.fullmatch(r"p[0-9.]+", str(name))]
    axes_of = [str(name) for name in table.columns if str(name).startswith(by_size.AXIS)]
    with style.drawing():
        figure = style.new_figure(8, 4.6)
        axes = figure.subplots()
        for _, row in table.iloc[:: -(-len(table) // MOST_CURVES)].iterrows():
            named = [
                f"{name.rpartition('.')[2].removeprefix(by_size.AXIS)} {row[name]}"
                for name in axes_of
            ]
            size = [format_size(int(row["size_bytes"]))] if row["size_bytes"] else []
            label = ", ".join([*named, *size, style.time_text(row["p50"])])
            over = row[points].to_numpy(float) / row["p50"]
            longer = [100 - float(name[1:]) for name in points]
            axes.plot(over[:-1], longer[:-1], label=label)
        axes.set(xlabel="time ÷ median", ylabel="samples that take longer (%)", yscale="log")
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        figure.legend(loc="outside lower center", ncols=2)
        axes.set_title(f"{table['scenario'].iloc[0]}: samples with noise", loc="left")
        return style.save(figure, out_dir / "distribution")
