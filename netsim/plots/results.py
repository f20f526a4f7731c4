"""Pictures of results.csv: over sizes, as bars, over the axes of a sweep, and with
measured times.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from itertools import combinations
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import EngFormatter, FixedLocator, FuncFormatter, NullFormatter

from netsim.base.errors import InputError
from netsim.base.units import format_size
from netsim.base.values import dataclass, evenly_spaced
from netsim.plots import sizes, style
from netsim.results.differences import certainty_of, pair_kind
from netsim.results.row import EQUAL, off_of, ratio_of
from netsim.scenario.sweep import CONDITIONS

Grid = np.ndarray[tuple[int, ...], np.dtype[np.float64]]
_MOST = 60  # most bars of one figure


@dataclass(frozen=True)
class _Measure:
    """A quantity that is drawn as bars.

    - `label`: its name and unit.
    - `values`: its value for each cell.
    - `texts`: each value as text.
    - `color`: the color of the bars.
    - `ends`: the lowest and highest percentile for each cell, drawn as error bars; None: no error
      bars.
    """

    label: str
    values: list[float]
    texts: list[str]
    color: str
    ends: list[tuple[float, float]] | None = None  # the outermost percentiles over seeds


def bars_figure(lines: sizes.PlotLines, title: str) -> Figure:
    """A bar for each cell: bus bandwidth and time, or the time of a training step."""
    shown = sizes.thinned(lines, _MOST).lines
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
    """The quantities for which the rows have values: bus bandwidth, time, time of a
    training step.
    """
    measures = []
    if rows["busbw_GBps"].notna().any():
        values = rows["busbw_GBps"].tolist()
        texts = [f"{value:.4g}" for value in values]
        ideal = rows["busbw_GBps"] * rows["time_us"]
        ends = _ends(rows, "time_us")
        rates = ends and [(b / high, b / low) for b, (low, high) in zip(ideal, ends, strict=True)]
        measures.append(
            _Measure(
                label="bus bandwidth (GB/s)",
                values=values,
                texts=texts,
                color=style.BLUE,
                ends=rates,
            )
        )
    for column, name, color in (
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
            measures.append(
                _Measure(
                    label=f"{name} ({unit})", values=scaled, texts=texts, color=color, ends=spread
                )
            )
    return measures


def _of_seeds(lines: Sequence[sizes.PlotLine]) -> str:
    """A line of the title that says what the error bars mean; empty without error bars."""
    if any(sizes.has_noise(line.table) for line in lines):
        return "\nwithout noise, and 5 to 95 % of samples with it"
    if not any(
        sizes.has_bands(line.table) or sizes.has_bands(line.table, "step_time_us") for line in lines
    ):
        return ""
    seeds = int(max(line.table["seeds"].max() for line in lines))
    return f"\nmedian and {sizes.PERCENTILES[0]} to {sizes.PERCENTILES[-1]} % of {seeds} seeds"


def _ends(rows: pd.DataFrame, column: str) -> list[tuple[float, float]] | None:
    """For each row, (lowest, highest) percentile of the time column `column` that is drawn.

    They are over samples of noise, or else over seeds; None if there are neither.
    """
    if sizes.has_noise(rows):
        return list(zip(rows["p5_us"].tolist(), rows["p95_us"].tolist(), strict=True))
    if not sizes.has_bands(rows, column):
        return None
    low, high = (rows[f"{column}_p{p}"] for p in (sizes.PERCENTILES[0], sizes.PERCENTILES[-1]))
    return list(zip(low.tolist(), high.tolist(), strict=True))


def _draw(axes: Axes, measure: _Measure) -> None:
    """Draw the bars of a quantity with their values."""
    axes.barh(range(len(measure.values)), measure.values, height=0.62, color=measure.color)
    if measure.ends:
        for place, (low, high) in enumerate(measure.ends):
            axes.plot([low, high], [place, place], color=style.BLACK, linewidth=1.2, marker="|")
    highest = [high for _, high in measure.ends or []] or measure.values
    furthest = [max(pair) for pair in zip(measure.values, highest, strict=True)]
    for place, (end, text) in enumerate(zip(furthest, measure.texts, strict=True)):
        if isfinite(end):
            axes.annotate(
                text, (end, place), (5, 0), textcoords="offset points", va="center", fontsize=9
            )
    axes.set_xlabel(measure.label)
    axes.set_xlim(0, 1.28 * max(filter(isfinite, furthest), default=1.0))
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="y", length=0)


MOST_LINES = 12  # most lines of a figure; more are divided over figures by the values of a column
FEW_LINES = 7  # lines with names, if the others are drawn pale
MOST_FIGURES = 6  # most figures for single values, beside the figure of all lines


def plot_results(
    paths: Sequence[Path], out_dir: Path, *, line_rate: float | None = None
) -> list[Path]:
    """Draw one or several results.csv into a folder; return the paths of the pictures.

    - `line_rate`: a bandwidth in GB/s that is drawn as a guide.

    If there are more lines than one figure can show, most lines of the first figure are pale. One
    column is then chosen, the one with the fewest values, and each of its values gets a further
    figure with the lines that have this value.
    """
    figures = {
        name: partial(_figure, lines, title, line_rate)
        for name, title, lines in _all_parts(sizes.read_results(paths))
    }
    return style.drawn(out_dir, figures)


def figure_of_table(table: pd.DataFrame) -> Figure:
    """The first figure that `plot_results` draws from a table with the columns of results.csv."""
    good = table[table["status"].isin(["", "ok"])].reset_index(drop=True)
    parts = _all_parts(good.assign(file=""))
    if not parts:
        raise InputError("no row has a time that could be drawn", hint="their errors say why")
    _, title, lines = parts[0]
    with style.drawing():
        return _figure(lines, title, None)


def _all_parts(table: pd.DataFrame) -> list[tuple[str, str, sizes.PlotLines]]:
    """(name, title, lines) of each figure of a table: those of collectives first, then those of
    training steps.
    """
    steps = table.get("step_time_us", pd.Series(dtype=float)).notna().reindex(table.index)
    return [
        *_parts("busbw", table[table["size_bytes"] > 0]),
        *_parts("step_time", table[~(table["size_bytes"] > 0) & steps.fillna(False)]),
    ]


def _figure(lines: sizes.PlotLines, title: str, line_rate: float | None) -> Figure:
    """A plot with lines over sizes, or with bars if there is a single size."""
    byte_sizes = {size for line in lines.lines for size in line.table["size_bytes"].dropna()}
    if len(byte_sizes) > 1:
        return sizes.sizes_figure(lines, title, line_rate)
    size = f" at {format_size(int(byte_sizes.pop()))}" if byte_sizes else ""
    return bars_figure(lines, title + size)


def _parts(name: str, table: pd.DataFrame) -> list[tuple[str, str, sizes.PlotLines]]:
    """(name, title, lines) of each figure of a table with rows of one kind; none for an empty
    table.
    """
    if table.empty:
        return []
    lines = sizes.lines_of(table)
    title = title_of(table)
    if len(lines.lines) <= MOST_LINES or table["size_bytes"].nunique() < 2:
        return [(name, title, lines)]
    if len(lines.columns) < 2:
        return [(name, title, sizes.thinned(lines, FEW_LINES))]
    counts = [len({line.values[k] for line in lines.lines}) for k in range(len(lines.columns))]
    place = counts.index(min(counts))  # the column that makes the fewest figures
    values = list(dict.fromkeys(line.values[place] for line in lines.lines))
    column = lines.columns[place].removeprefix(sizes.AXIS)
    drawn = values
    note = ""
    if len(values) > MOST_FIGURES:
        drawn = [values[k] for k in evenly_spaced(len(values), MOST_FIGURES)]
        note = f"\n{MOST_FIGURES} of {len(values)} values of {column} have a picture each"
    return [
        (name, title + note, sizes.thinned(lines, FEW_LINES)),
        *(
            (f"{name}-{_plain(column)}-{_plain(value)}", f"{title}, {column} = {value}", part)
            for value in drawn
            for part in [sizes.thinned(_only(lines, place, value), FEW_LINES, MOST_LINES)]
        ),
    ]


def _only(lines: sizes.PlotLines, place: int, value: str) -> sizes.PlotLines:
    """The lines that have `value` in column number `place` of `lines.columns`.

    They are named by the columns in which they still differ.
    """
    matching = [line for line in lines.lines if line.values[place] == value]
    differing = [
        k for k in range(len(lines.columns)) if len({line.values[k] for line in matching}) > 1
    ]
    columns = tuple(lines.columns[k] for k in differing)
    named = [([line.values[k] for k in differing], line.table) for line in matching]
    return sizes.PlotLines(
        columns,
        tuple(
            sizes.PlotLine(sizes.label_of(columns, values, table), tuple(values), table)
            for values, table in named
        ),
    )


def title_of(table: pd.DataFrame) -> str:
    """A title from what all rows have in common: `all_reduce on 4 x dgx-h100`."""
    collective, topology, hosts, ranks = (
        str(table[column].iloc[0])
        if column in table.columns and table[column].nunique() == 1
        else ""
        for column in ("collective", "topology", "nodes", "ranks")
    )
    many = topology and " x " not in topology and hosts not in ("", "1")
    if many:
        where = f"{hosts} x {topology}"
    else:
        where = topology or (f"{ranks} GPUs" if ranks else "")
    return " on ".join(filter(None, (collective, where)))


def _plain(text: str) -> str:
    """The last part of a key, reduced to characters that file names may have."""
    return "".join(c if c.isalnum() or c in "-_" else "-" for c in text.rpartition(".")[2] or text)


# Pictures of a sweep. An axis of a sweep is a condition (such as the number of nodes) or a choice
# (such as the algorithm). Choices are compared under equal conditions and at one size.

_MOST_AXES = 6
_MOST_VALUES = 40
_MOST_MAPS = 3
MOST_QUESTIONS = 24  # most conditions in a map of conditions by choices
MOST_PANELS = 12  # most conditions that have a panel
_LABELLED = 14  # a heat map with more columns or rows has no values in its cells
_NAMED = 12  # most cells of a front that have names
_LEVEL_ROOM = 34  # letters that fit below a panel on one line
_SAME = 1e-3  # times that differ by a smaller fraction count as equal
_SLOWED = 1.0005  # a job is slowed if it takes this many times its time without other jobs


@dataclass(frozen=True)
class SweepQuestion:
    """What a sweep compares: the columns of its conditions and choices, and the base line.

    The base line is the choice that others are compared with, as values by column.
    """

    conditions: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    base: Mapping[str, Any] = field(default_factory=dict)


def question_of(table: pd.DataFrame, manifest: Mapping[str, Any]) -> SweepQuestion:
    """The conditions and choices of a sweep, as the manifest of its run states them.

    An axis with a single value is neither a condition nor a choice.
    """
    axes = [
        column
        for column in table.columns
        if str(column).startswith(sizes.AXIS) and table[column].nunique() > 1
    ]
    condition_names = manifest.get("conditions", CONDITIONS)
    conditions = tuple(axis for axis in axes if axis.removeprefix(sizes.AXIS) in condition_names)
    base = {sizes.AXIS + axis: str(value) for axis, value in (manifest.get("base") or {}).items()}
    choices = tuple(axis for axis in axes if axis not in (*conditions, sizes.SEED))
    base_of_choices = {choice: base[choice] for choice in choices if choice in base}
    return SweepQuestion(conditions, choices, base_of_choices)


def names_of(table: pd.DataFrame, columns: Sequence[str]) -> list[str]:
    """A name for each row, made of its values in some columns: `4 nodes, nic 400Gbps`."""
    texts = []
    for column in columns:
        values = list(dict.fromkeys(table[column].astype(str)))
        words = [sizes.spoken(column, value).strip() for value in sizes.telling(values)]
        texts.append(table[column].astype(str).map(dict(zip(values, words, strict=True))))
    return [", ".join(words) for words in zip(*texts, strict=True)] or [""] * len(table)


def compared(table: pd.DataFrame, question: SweepQuestion) -> pd.DataFrame:
    """The rows of a sweep, each compared with the fastest row that has the same conditions and the
    same size.

    Added columns:

    - `question`: the conditions as text.
    - `choice`: the choices as text.
    - `time`: µs of an operation or of a training step.
    - `size`: bytes.
    - those of `with_ratios`.
    - `shown`: whether pictures show the row. They show one size for each set of conditions: of the
      sizes for which the greatest number of cells has a row, the largest.
    """
    column = "time_us" if table["time_us"].notna().any() else "step_time_us"
    rows = table.assign(time=table[column], size=table["size_asked"].fillna(0).astype(int))
    rows = rows[rows["time"] > 0]
    rows = rows.assign(
        question=names_of(rows, question.conditions), choice=names_of(rows, question.choices)
    )
    same = rows.groupby(["question", "size"], sort=False)
    rows = with_ratios(rows, rows.loc[same["time"].transform("idxmin")])
    counts = same["cell"].nunique()
    shared = counts[counts == counts.groupby("question").transform("max")].reset_index()
    largest = shared.groupby("question")["size"].max()
    return rows.assign(shown=rows["size"] == rows["question"].map(largest))


def with_ratios(rows: pd.DataFrame, others: pd.DataFrame) -> pd.DataFrame:
    """The rows with their times relative to those of `others`, which has one row for each of
    `rows`.

    Added columns: `ratio` (time of the row over that of the other row), `low` and `high` (the
    interval of the ratio), `certainty` (sure, likely, cannot tell), and `equal` (whether the
    difference is smaller than its uncertainty).
    """
    pairs = list(zip(others.to_dict("records"), rows.to_dict("records"), strict=True))
    spans = [ratio_of(base_row, row) for base_row, row in pairs]
    certainty = [
        _certainty(base_row, row, has_interval=low < high)
        for (base_row, row), (_, low, high) in zip(pairs, spans, strict=True)
    ]
    equal = [
        sureness == "cannot tell" or abs(ratio - 1) <= EQUAL
        for sureness, (ratio, _, _) in zip(certainty, spans, strict=True)
    ]
    ratio, low, high = zip(*spans, strict=True) if spans else ((), (), ())
    return rows.assign(ratio=ratio, low=low, high=high, equal=equal, certainty=certainty)


def _certainty(first: Mapping[Any, Any], second: Mapping[Any, Any], *, has_interval: bool) -> str:
    """How certain it is which of two rows is faster: sure, likely or cannot tell.

    Empty if the ratio of their times has no interval.
    """
    if not has_interval:
        return ""
    kind = pair_kind(
        same_machine=first["topology"] == second["topology"],
        same_collective=first["collective"] == second["collective"],
        measured=0,
    )
    error_bound = (1 + off_of(first)) * (1 + off_of(second)) - 1
    return certainty_of(second["time"] / first["time"], kind, error_bound)


def against(rows: pd.DataFrame, question: SweepQuestion) -> pd.DataFrame:
    """The rows compared with the base line, as `with_ratios` returns them.

    Each row is compared with the row that has the values of the base line, and the row's own values
    on all other axes. Rows for which there is no such row are left out. The column `is_base` marks
    rows that are part of the base line.
    """
    others = [axis for axis in question.choices if axis not in question.base]
    keys = [*rows[["question", "size", *others]].astype(str).itertuples(index=False, name=None)]
    at_base = (rows[[*question.base]].astype(str) == list(question.base.values())).all(axis=1)
    place = {key: k for k, (key, is_base) in enumerate(zip(keys, at_base, strict=True)) if is_base}
    has_base = np.array([key in place for key in keys], bool)
    pairs = [place[key] for key in keys if key in place]
    return with_ratios(rows[has_base], rows.iloc[pairs]).assign(
        choice=names_of(rows[has_base], [*question.base]), is_base=at_base[has_base]
    )


def axes_figure(rows: pd.DataFrame, question: SweepQuestion, title: str) -> Figure | None:
    """A figure with a panel for each axis that is a choice; None if there is none.

    A panel shows the ratio of times between each value of its axis and the base line's value, or
    else the first one. Each point compares two cells whose other choices are equal; lines are the
    geometric means.
    """
    rows = rows[rows["shown"]]
    axes = question.choices[:_MOST_AXES]
    if not axes:
        return None
    across = min(len(axes), 3)
    down = -(-len(axes) // across)
    figure = style.new_figure(3.4 * across + 0.6, 2.9 * down + 0.5)
    panels = figure.subplots(down, across, squeeze=False, sharey=True)
    for panel, axis in zip(panels.flat, axes, strict=False):
        first = {axis: question.base.get(axis, str(rows[axis].iloc[0]))}
        _axis_panel(panel, against(rows, replace(question, base=first)), axis, first[axis])
    for panel in list(panels.flat)[len(axes) :]:
        panel.set_visible(False)
    for row in panels:
        row[0].set_ylabel("times as long, all else equal")
    figure.suptitle(title, x=0.01, ha="left", fontsize=11)
    return figure


def _axis_panel(panel: Axes, pairs: pd.DataFrame, axis: str, first: str) -> None:
    """Draw the ratios of times for each value of an axis, and their geometric mean.

    - `pairs`: rows that are compared with the same cell at the value `first`, as `against` returns
      them.
    - `axis`: the column of the axis.
    """
    values = list(dict.fromkeys(pairs[axis].astype(str)))[:_MOST_VALUES]
    panel.axhline(1.0, color=style.GREY, linewidth=0.8)
    for place, value in enumerate(values):
        ratios = pairs[pairs[axis].astype(str) == value]["ratio"].to_numpy(np.float64)
        abreast = min(len(ratios), 7)
        spread = (np.arange(len(ratios)) % 7 - (abreast - 1) / 2) * 0.04
        panel.plot(
            place + spread,
            ratios,
            "o",
            color=style.tint(style.BLUE, 0.45),
            markersize=3.5,
            markeredgewidth=0,
        )
        mean = float(np.exp(np.log(ratios).mean()))
        panel.plot([place - 0.3, place + 0.3], [mean, mean], color=style.ORANGE, linewidth=2.4)
    _name_columns(panel, range(len(values)), values)
    panel.grid(axis="x", visible=False)
    panel.set_xlim(-0.6, len(values) - 0.4)
    panel.set_title(f"{short(axis)}, against {first}", loc="left", fontsize=10)


def _name_columns(panel: Axes, places: Any, labels: Sequence[str]) -> None:
    """Write labels below a panel at the x positions `places`; slanted if they do not fit side by
    side.
    """
    crowded = sum(map(len, labels)) > _LEVEL_ROOM
    panel.set_xticks(
        places,
        labels,
        rotation=35 if crowded else 0,
        ha="right" if crowded else "center",
        fontsize=8.5,
    )


def heat_figure(rows: pd.DataFrame, question: SweepQuestion, title: str = "") -> Figure | None:
    """A heat map of times; None if there is nothing to compare.

    With several conditions: a row for each condition, a column for each choice, and the time as a
    multiple of the fastest. With one condition: the median time for each pair of values of two
    choice axes, for the first few pairs of axes.
    """
    rows = rows[rows["shown"]]
    if rows["choice"].nunique() < 2:
        return None
    if rows["question"].nunique() > 1:
        few = list(dict.fromkeys(rows["question"]))[:MOST_QUESTIONS]
        rows = rows[rows["question"].isin(few)]
        grid = rows.pivot_table("ratio", "question", "choice", sort=False)
        figure = style.new_figure(0.55 * grid.shape[1] + 3.4, max(3.6, 0.3 * len(grid) + 1.6))
        text = "times as long as the fastest (light = fast)"
        _heat_panel(figure, figure.subplots(), grid, text, lambda value: f"{value:.3g}")
    else:
        axes = [a for a in question.choices if rows[a].nunique() <= _MOST_VALUES]
        medians = {a: rows.groupby(a, sort=False, observed=True)["time"].median() for a in axes}
        axes.sort(key=lambda axis: -float(medians[axis].max() / medians[axis].min()))
        pairs = list(combinations(axes, 2))[:_MOST_MAPS]
        if not pairs:
            return None
        figure = style.new_figure(4.3 * len(pairs) + 0.4, 3.6)
        panels = figure.subplots(1, len(pairs), squeeze=False)[0]
        for panel, (row_axis, column_axis) in zip(panels, pairs, strict=True):
            grid = rows.pivot_table(
                "time", row_axis, column_axis, aggfunc="median", sort=False, observed=True
            )
            _heat_panel(figure, panel, grid, "median time (light = fast)", style.time_text)
            panel.set(xlabel=short(column_axis), ylabel=short(row_axis))
    figure.suptitle(title, x=0.01, ha="left", fontsize=11)
    return figure


def interference_figure(path: Path) -> Figure | None:
    """A grid of how many times as long each job takes beside each other job, with the link that
    both use.

    It is drawn from interference.csv, for the last size; None if the file does not exist.
    """
    if not path.exists():
        return None
    table = style.read_values(path, ("scenario", "cell", "size_bytes"), path.name)
    by = [str(name) for name in table.columns if str(name).startswith("by:")]
    axes = [str(name) for name in table.columns if str(name).startswith(sizes.AXIS)]
    table = table.drop_duplicates("cell", keep="last")
    figure, panel = style.one_panel(2.5 + 1.7 * len(by), 1.5 + 0.6 * len(table))
    grid = table[by].to_numpy(float)
    panel.pcolormesh(grid, cmap="Reds", vmin=1, vmax=2, edgecolors="white", linewidth=1.5)
    for (row, column), value in np.ndenumerate(np.nan_to_num(grid)):
        met = str(table[f"on:{by[column][3:]}"].iloc[row]).replace("->", "->\n")
        text = f"{value:.3g}" if value else ""
        if value > _SLOWED:
            text += f"\n{met}"
        panel.text(
            column + 0.5,
            row + 0.5,
            text,
            ha="center",
            va="center",
            fontsize=7.5,
            color="white" if value > 1.6 else style.BLACK,
        )
    panel.set_xticks(np.arange(len(by)) + 0.5, [f"beside {name[3:]}" for name in by])
    names = [", ".join(map(str, values)) for values in table[axes].itertuples(index=False)]
    panel.set_yticks(np.arange(len(table)) + 0.5, names)
    panel.invert_yaxis()
    panel.grid(visible=False)
    panel.set_title("Times as long as alone", loc="left")
    return figure


def plot_interference(path: Path, out_dir: Path) -> list[Path]:
    """Draw interference.csv: which job slows which; return the paths of the files."""
    return style.drawn(out_dir, {"interference": lambda: interference_figure(path)})


def _heat_panel(
    figure: Figure, panel: Axes, grid: pd.DataFrame, label: str, text: Callable[[float], str]
) -> None:
    """Draw a heat map of a table; `label` belongs to the color bar, `text` formats a value."""
    image = panel.pcolormesh(grid.to_numpy(), cmap="viridis_r", edgecolors="white", linewidth=1.5)
    _name_columns(panel, np.arange(grid.shape[1]) + 0.5, [str(v) for v in grid.columns])
    panel.set_yticks(np.arange(len(grid)) + 0.5, [str(v) for v in grid.index], fontsize=8.5)
    panel.invert_yaxis()
    panel.grid(visible=False)
    _label_cells(panel, grid.to_numpy(), text)
    bar = figure.colorbar(image, ax=panel, shrink=0.85)
    bar.ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: text(value)))
    bar.ax.tick_params(labelsize=8)
    bar.set_label(label, fontsize=8)


def _label_cells(panel: Axes, values: Grid, text: Callable[[float], str]) -> None:
    """Write the values into the cells of a heat map, unless it has too many."""
    if values.shape[0] > max(_LABELLED, MOST_QUESTIONS) or values.shape[1] > _LABELLED:
        return
    middle = (np.nanmin(values) + np.nanmax(values)) / 2
    for (row, column), value in np.ndenumerate(values):
        if np.isfinite(value):
            color = "white" if value > middle else style.BLACK
            label = text(float(f"{value:.3g}"))
            panel.text(
                column + 0.5, row + 0.5, label, ha="center", va="center", fontsize=7.5, color=color
            )


def facets_figure(
    rows: pd.DataFrame, few: Sequence[str], line_rate: float | None, title: str = ""
) -> Figure:
    """Bus bandwidth over size, in a panel for each condition, with a line for each choice named in
    `few`.

    A choice has the same color in all panels.
    """
    questions = list(dict.fromkeys(rows["question"]))[:MOST_PANELS]
    across = min(len(questions), 4)
    down = -(-len(questions) // across)
    figure = style.new_figure(3.1 * across + 2.6, 2.5 * down + 0.5)
    panels = figure.subplots(down, across, squeeze=False, sharex=True)
    for panel, question in zip(panels.flat, questions, strict=False):
        panel_rows = rows[rows["question"] == question].sort_values("size")
        for number, name in enumerate(few):
            line = panel_rows[panel_rows["choice"] == name]
            panel.plot(
                line["size"],
                line["busbw_GBps"],
                label=name,
                color=style.PALETTE[number],
                marker=style.MARKERS[number],
                markersize=4,
                linewidth=1.4,
            )
        if line_rate is not None:
            panel.axhline(line_rate, label=f"line rate {line_rate:.4g} GB/s", **sizes.RATE)
        style.size_axis(panel, rows["size"].min(), rows["size"].max())
        panel.tick_params(axis="x", labelsize=7.5)
        panel.set_ylim(bottom=0)
        panel.set_title(question, loc="left", fontsize=9)
    for panel in list(panels.flat)[len(questions) :]:
        panel.set_visible(False)
    for row in panels:
        row[0].set_ylabel("bus bandwidth (GB/s)", fontsize=8.5)
    handles, labels = panels[0][0].get_legend_handles_labels()
    why = sizes.above_rate(rows, line_rate) if line_rate is not None else []
    handles += [Line2D([], [], linestyle="") for _ in why]
    figure.legend(handles, [*labels, *why], loc="outside right upper")
    figure.suptitle(title, x=0.01, ha="left", fontsize=11)
    return figure


def pareto_front(cost: Sequence[float], time: Sequence[float]) -> list[int]:
    """The positions of the cells that no other cell beats in both cost and time, from the cheapest
    on.
    """
    order = sorted(range(len(cost)), key=lambda i: (cost[i], time[i]))
    front: list[int] = []
    best = np.inf
    for place in order:
        if time[place] < best * (1 - _SAME):
            best = time[place]
            front.append(place)
    return front


def pareto_figure(rows: pd.DataFrame, column: str, label: str, title: str = "") -> Figure | None:
    """Time over a quantity of the cells (cost, power), marking cells that no cell beats in both.

    `column` has the quantity and `label` is its title. None if all cells have the same value.
    """
    if column not in rows.columns or rows[column].nunique() < 2:
        return None
    rows = rows[rows[column].notna()]
    cost = rows[column].to_numpy(np.float64)
    time = rows["time"].to_numpy(np.float64)
    front = pareto_front(cost.tolist(), time.tolist())
    figure, panel = style.one_panel(9.2, 4.2)
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
    figure.suptitle(title, x=0.01, ha="left", fontsize=11)
    panel.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, borderaxespad=0.2)
    return figure


def _name_front(figure: Figure, panel: Axes, front: pd.DataFrame, column: str) -> None:
    """Write a number on each cell of a Pareto front, and list the names of these cells beside the
    panel.

    `front` are the rows of these cells, and the column `column` has their x.
    """
    handles = []
    for number, (_, row) in enumerate(front.iterrows(), start=1):
        panel.annotate(
            str(number),
            (row[column], row["time"]),
            ha="center",
            va="center",
            color="white",
            fontsize=7.5,
            fontweight="bold",
        )
        handles.append(Line2D([], [], linestyle="", label=f"{number}  {row['choice']}"))
    figure.legend(handles=handles, loc="outside right upper", handlelength=0, handletextpad=0)


def short(axis: str) -> str:
    """The last part of an axis's key as words: `gpus per node` for `cluster.gpus_per_node`."""
    return sizes.in_words(axis.removeprefix(sizes.AXIS).rpartition(".")[2])


Curve = Sequence[tuple[int, float, float]]  # size, measured µs, simulated µs
WITHIN = (0.85, 1.15)
MOST_CURVES = len(style.PALETTE)  # in one picture: each with a color of its own


def plot_accuracy(curves: Mapping[str, Curve], stem: Path, title: str) -> list[Path]:
    """Draw measured (points) and simulated times (lines) over size, and their ratio in a second
    panel.

    `curves` has the points of each run as (bytes, measured µs, simulated µs). Returns the file,
    `stem`.svg.
    """
    with style.drawing():
        figure = style.new_figure(9.6, 5.6 + 0.16 * len(curves))
        times, ratios = figure.subplots(2, 1, sharex=True, height_ratios=[2.2, 1])
        for number, (name, curve) in enumerate(curves.items()):
            color = style.PALETTE[number % len(style.PALETTE)]
            marker = style.MARKERS[number % len(style.MARKERS)]
            curve_sizes = [size for size, _, _ in curve]
            simulated = [simulated_us for _, _, simulated_us in curve]
            times.plot(curve_sizes, simulated, color=color, linewidth=1.4)
            look: dict[str, Any] = {"color": color, "marker": marker, "markerfacecolor": "none"}
            measured = [measured_us for _, measured_us, _ in curve]
            ratio = [simulated_us / measured_us for _, measured_us, simulated_us in curve]
            times.plot(curve_sizes, measured, label=name, linestyle="none", markersize=4, **look)
            ratios.plot(curve_sizes, ratio, linewidth=1.2, markersize=3, **look)
        points = [point for curve in curves.values() for point in curve]
        all_times = [time for _, *both in points for time in both]
        style.time_axis(times, min(all_times), max(all_times))
        times.set_ylabel("time: points measured, lines simulated")
        times.set_title(title, loc="left")
        _ratio_axis(ratios)
        style.size_axis(ratios, min(points)[0], max(points)[0])
        ratios.set_xlabel("message size")
        figure.legend(loc="outside lower center", ncols=2, fontsize=8)
        return style.save(figure, stem, ("svg",))


def _ratio_axis(axes: Axes) -> None:
    """Make the y axis a logarithmic axis of ratios, with a band around 1."""
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
    """Draw distribution.csv: the percentage of samples with noise that take longer than x times the
    median.
    """
    table = style.read_values(path, ("scenario", "cell", "p50"), "distribution.csv")
    points = [str(name) for name in table.columns if re.fullmatch(r"p[0-9.]+", str(name))]
    axes_of = [str(name) for name in table.columns if str(name).startswith(sizes.AXIS)]
    with style.drawing():
        figure, axes = style.one_panel(8, 4.6)
        for _, row in table.iloc[:: -(-len(table) // MOST_CURVES)].iterrows():
            named = [
                f"{name.rpartition('.')[2].removeprefix(sizes.AXIS)} {row[name]}"
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
