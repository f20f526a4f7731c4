"""Draw times and bandwidths as lines over message sizes, with NCCL's choices below."""

from collections.abc import Sequence
from dataclasses import fields
from itertools import groupby, pairwise
from math import log2
from pathlib import Path
from typing import IO, Any

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle

from netsim.base.values import dataclass, evenly_spaced
from netsim.collectives.collective import Collective
from netsim.plots import style
from netsim.results.row import COLUMNS, Row

SEED = "axis:seed"
PERCENTILES = (5, 25, 75, 95)  # percentiles that are drawn as bands; the median is the line
BAND_NAMES = ("25 to 75 %", "5 to 95 %")
_TIMES = ("time_us", "step_time_us")


def over_seeds(table: pd.DataFrame) -> pd.DataFrame:
    """The rows of all seeds merged: one row for each cell and size, with medians over the seeds.

    Added columns: `seeds` (their number) and percentiles of each time, such as `time_us_p5`. The
    table is returned unchanged if it has a single seed.
    """
    if SEED not in table.columns or table[SEED].nunique() < 2:
        return table
    axes = [str(c) for c in table.columns if str(c).startswith("axis:") and c != SEED]
    keys = [c for c in ("file", "scenario", *axes) if c in table.columns]
    cells = table.groupby(keys, sort=False, dropna=False).ngroup()
    table = table.assign(cell=table.groupby(cells)["cell"].transform("first"))
    groups = table.groupby(
        table.groupby([cells, "size_bytes"], sort=False, dropna=False).ngroup(), sort=False
    )
    rows: pd.DataFrame = groups.head(1).set_axis(pd.RangeIndex(groups.ngroups))
    for column in rows.select_dtypes("number").columns.difference(["size_bytes"]):
        if column in _TIMES:
            bands = {f"{column}_p{p}": groups[column].quantile(p / 100) for p in PERCENTILES}
            rows = rows.assign(**bands)
        rows = rows.assign(**{column: groups[column].median()})
    return rows.assign(seeds=groups.size()).drop(columns=[SEED, "seed"], errors="ignore")


def has_bands(table: pd.DataFrame, time: str = "time_us") -> bool:
    """Whether the column `time` holds medians over seeds whose times differ."""
    low, high = (f"{time}_p{p}" for p in (PERCENTILES[0], PERCENTILES[-1]))
    return low in table.columns and bool((table[low] < table[high]).any())


NUMBERS = (
    "size_bytes",
    "size_asked",
    "time_us",
    "time_low_us",
    "time_high_us",
    "busbw_GBps",
    "algbw_GBps",
    "measured_time_us",
    "step_time_us",
    "limit_us",
    "p5_us",
    "p50_us",
    "p95_us",
    "p99_us",
)
_NOT_DRAWN = ("ranks", "approximation_pct")  # columns of numbers that are read and not drawn
_BLANK = dict.fromkeys(COLUMNS, "") | dict.fromkeys((*NUMBERS, *_NOT_DRAWN), np.nan)
_BANDWIDTHS = ("algbw_GBps", "busbw_GBps")
_ROUNDED = 1e-6  # relative rounding by programs that read a file and write it again
_UNEVEN = ("alltoallv", "p2p")  # collectives whose blocks have different sizes
# Columns that lines keep for drawing, besides numbers and their percentiles.
DRAWN = ("cell", "algorithm", "protocol", "collective", "nodes", "seeds")
# Columns whose values may name cells in labels, the preferred ones first.
NAMING = (
    "topology", "collective", "workload", "algorithm", "protocol", "nodes", "gpus_per_node",
    "ranks", "channels", "dtype", "launch", "nccl_version", "scenario", "file", "seed", "engine",
    "model_version", "cell",
)  # fmt: skip
_PLAIN = {"topology", "collective", "workload", "algorithm", "protocol", "scenario", "kind"}
_COUNTED = {
    "nodes": "node",
    "ranks": "rank",
    "channels": "channel",
    "gpus_per_node": "GPU",
    "gpus": "GPU",
}
_SPOKEN = {"nccl_version": "NCCL"}
AXIS = "axis:"
MEASURED = "measured_time_us"
Integers = np.ndarray[tuple[int], np.dtype[np.integer[Any]]]


@dataclass(frozen=True)
class PlotLine:
    """A line of a plot, which shows one cell.

    - `label`: its text in the legend.
    - `values`: the values that distinguish the cell from others, one for each of
      `PlotLines.columns`.
    - `table`: its rows, one for each size, in increasing order.
    """

    label: str
    values: tuple[str, ...]
    table: pd.DataFrame


@dataclass(frozen=True)
class PlotLines:
    """The lines of a plot.

    - `columns`: the columns whose values distinguish the lines.
    - `lines`: the lines with colors of their own.
    - `rest`: lines that are too many for that and are drawn pale.
    """

    columns: tuple[str, ...]
    lines: tuple[PlotLine, ...]
    rest: tuple[PlotLine, ...] = ()


def read_results(paths: Sequence[Path]) -> pd.DataFrame:
    """The successful rows of one or several results.csv, with `file` as a column."""
    table = read_all(paths)
    return table[table["status"].isin(["", "ok"])].reset_index(drop=True)


def read_all(paths: Sequence[Path]) -> pd.DataFrame:
    """All rows of one or several results.csv; columns that a file lacks are empty."""
    tables = []
    for path in paths:
        table = style.read_table(path, style.RESULTS, "the columns of results.csv")
        table = style.with_numbers(path, table, NUMBERS)
        _check_written(path, table)
        missing = {name: _BLANK[name] for name in COLUMNS if name not in table.columns}
        table = table.assign(**missing)
        tables.append(table.assign(file=path.parent.name or path.stem))
    joined = pd.concat(tables, ignore_index=True)
    return joined.assign(size_asked=joined["size_asked"].fillna(joined["size_bytes"]))


def frame_of(file: IO[str]) -> pd.DataFrame:
    """The table of a results.csv that is known to be valid; empty numbers are NaN,
    empty texts "".
    """
    texts = [field.name for field in fields(Row) if isinstance(field.default, str)]
    types = dict.fromkeys(texts, str)
    table = pd.read_csv(file, dtype=types, keep_default_na=False, na_values=_EMPTY_NUMBERS)
    return table


_EMPTY_NUMBERS = {name: [""] for name in COLUMNS if not isinstance(getattr(Row(), name), str)}


def _check_written(path: Path, table: pd.DataFrame) -> None:
    """Raise an InputError for rows that no run writes: their bandwidths contradict size
    and time.
    """
    rows = style.with_numbers(path, table, _NOT_DRAWN)
    if "ranks" in rows.columns:
        style.refuse(
            path, rows["ranks"][rows["ranks"] < 1], "ranks", "expected a finite number from 1 on"
        )
    if not {*_BANDWIDTHS, *_NOT_DRAWN, "collective"} <= set(rows.columns):
        return
    rows = rows[(rows["time_us"] > 0) & rows["ranks"].notna()]
    factors = [
        Collective(name, int(ranks), 0).bus_factor if name not in _UNEVEN else np.nan
        for name, ranks in zip(rows["collective"], rows["ranks"], strict=True)
    ]
    expected = rows["size_bytes"] / rows["time_us"] / 1e3
    for column, factor in zip(_BANDWIDTHS, (np.ones(len(rows)), np.array(factors)), strict=True):
        wrong = (rows[column] - expected * factor).abs() > _ROUNDED * expected * factor
        why = "expected what size_bytes by time_us makes it"
        style.refuse(path, rows[column][wrong], column, why)


def lines_of(table: pd.DataFrame) -> PlotLines:
    """A line for each cell of each file, in the order of the files; all seeds of a cell make one
    line.
    """
    table = over_seeds(table)
    cell = table.groupby(["file", "scenario", "cell"], sort=False).ngroup().to_numpy()
    order = np.lexsort((table["size_bytes"].to_numpy(), cell))
    table = table.iloc[order]
    cell = cell[order]
    starts = np.flatnonzero(np.diff(cell, prepend=-1))
    ends = np.append(starts[1:], len(table))
    columns = _telling(table, cell, starts)
    named = table.iloc[starts][list(columns)].astype(str)
    named = named.assign(**{column: telling(named[column].tolist()) for column in columns})
    drawn = [
        column for column in table.columns if column in DRAWN or str(column).startswith(NUMBERS)
    ]
    table = table[drawn]
    lines = []
    for place, values in enumerate(map(tuple, named.to_numpy().tolist())):
        part = table.iloc[starts[place] : ends[place]]
        lines.append(PlotLine(label_of(columns, values, part), values, part))
    return PlotLines(columns, tuple(lines))


def thinned(lines: PlotLines, few: int, most: int = 0, always: Sequence[str] = ()) -> PlotLines:
    """The lines, of which only about `few` keep a color and the others are moved to `rest`.

    Nothing is moved if there are at most `few` or at most `most` lines. Lines that keep their color
    are evenly spaced: in the order of the table if one column names them, otherwise from the
    fastest to the slowest at their largest size. `always` are names of cells whose lines keep it in
    any case.
    """
    if len(lines.lines) <= max(few, most):
        return lines
    order = list(range(len(lines.lines)))
    if len(lines.columns) > 1:
        ends = [
            (-line.table["size_bytes"].iloc[-1], line.table["time_us"].iloc[-1])
            for line in lines.lines
        ]
        order.sort(key=ends.__getitem__)
    chosen = {order[k] for k in evenly_spaced(len(order), few)}
    chosen |= {k for k, line in enumerate(lines.lines) if line.table["cell"].iloc[0] in always}
    chosen_lines = [line for k, line in enumerate(lines.lines) if k in chosen]
    rest = [line for k, line in enumerate(lines.lines) if k not in chosen]
    return PlotLines(lines.columns, tuple(chosen_lines), tuple(rest))


def _telling(table: pd.DataFrame, cell: Integers, starts: Integers) -> tuple[str, ...]:
    """The columns whose values together distinguish the cells. A column that adds no distinction is
    left out.

    - `cell`: by row of the table, the number of its cell.
    - `starts`: by cell, its first row.
    """
    axes = [str(column) for column in table.columns if str(column).startswith(AXIS)]
    chosen: list[str] = []
    groups = np.zeros(len(starts), np.int64)
    group_count = 1
    for column in (*axes, *(name for name in NAMING if name in table.columns)):
        codes, values = pd.factorize(table[column])
        of_cell = codes[starts]
        if codes.min() < 0 or (codes != of_cell[cell]).any():
            continue
        finer, finer_groups = pd.factorize(groups * len(values) + of_cell)
        if len(finer_groups) > group_count:
            chosen.append(column)
            groups = finer
            group_count = len(finer_groups)
    return tuple(chosen)


def spoken(column: str, value: str) -> str:
    """A value of a column as labels show it: `ring`, `4 nodes`, `oversubscription 2`, the name of a
    variant.
    """
    key = column.removeprefix(AXIS)
    name = key.rpartition(".")[2]
    if name in _PLAIN or (column != key and name == key and key not in NAMING):
        return value or f"no {name}"
    if name in _COUNTED and value.isdigit():
        many = f"{value} {_COUNTED[name]}{'' if value == '1' else 's'}"
        return f"{many} a node" if name == "gpus_per_node" else many
    return f"{_SPOKEN.get(name, in_words(name))} {value}"


def in_words(name: str) -> str:
    """The last part of a key as words (`gpus per node`); an environment variable is not changed."""
    return name if name.isupper() else name.replace("_", " ")


def telling(values: Sequence[str]) -> list[str]:
    """The values, each without the parts that all of them share: `tp: 8, pp: 4` and `tp: 4, pp: 4`
    become `tp: 8` and `tp: 4`.
    """
    parts = [str(value).split(", ") for value in values]
    shared = set.intersection(*map(set, parts)) if parts else set()
    left = [", ".join(part for part in each if part not in shared) for each in parts]
    return left if all(left) and all(": " in part for part in shared) else list(map(str, values))


def label_of(columns: Sequence[str], values: Sequence[str], cell: pd.DataFrame) -> str:
    """The label of a line: its values in words.

    - `columns`, `values`: the columns that distinguish lines, and the line's value in each. If
      there are none, the label is the algorithm.
    - `cell`: the rows of the line.
    """
    label = ", ".join(map(spoken, columns, values))
    if not label and "algorithm" in cell.columns and cell["algorithm"].nunique() == 1:
        return str(cell["algorithm"].iloc[0])
    return label


# The look of lines: each line has its own combination of color and marker. If there are many lines
# that differ in two columns, one column determines the color and the other the marker.

Color = str | tuple[float, float, float, float]


@dataclass(frozen=True)
class Look:
    """The color and the marker of a line."""

    color: Color
    marker: str

    def simulated(self) -> dict[str, Any]:
        """Arguments of matplotlib for a simulated line."""
        edge = {"markeredgecolor": "white", "markeredgewidth": 0.6}
        return {"color": self.color, "marker": self.marker, **edge}

    def measured(self) -> dict[str, Any]:
        """Arguments of matplotlib for measured points: hollow, without a line."""
        edge = {"markeredgecolor": self.color, "markeredgewidth": 1.2, "markerfacecolor": "white"}
        return {"linestyle": "", "marker": self.marker, "zorder": 4, **edge}


def looks_of(lines: PlotLines) -> list[Look]:
    """The color and marker of each line, in the order of the lines."""
    all_values = [line.values for line in lines.lines]
    count = len(lines.lines)
    if count <= len(style.PALETTE):
        return [Look(style.PALETTE[i], style.MARKERS[i]) for i in range(count)]
    groups = [list(dict.fromkeys(values)) for values in zip(*all_values, strict=True)]
    few = [k for k, values in enumerate(groups) if 1 < len(values) <= len(style.PALETTE)]
    if len(groups) < 2 or not few:
        steps = [0.92 * i / (count - 1) for i in range(count)]
        return [Look(colormaps["viridis"](x), _marker(i)) for i, x in enumerate(steps)]
    k = few[0]
    rest = list(dict.fromkeys(values[:k] + values[k + 1 :] for values in all_values))
    return [
        Look(
            style.PALETTE[groups[k].index(values[k])],
            _marker(rest.index(values[:k] + values[k + 1 :])),
        )
        for values in all_values
    ]


def _marker(number: int) -> str:
    """The marker with a number; after the last one, the markers repeat."""
    return style.MARKERS[number % len(style.MARKERS)]


_CHARACTERS = 105  # characters of the smallest text that fit the width of a figure
Run = tuple[str, float, float]  # a choice, and the sizes in bytes between which it is taken


def choice(line: PlotLine) -> list[str]:
    """The algorithm and protocol, such as `Ring LL`, at each size of a line."""
    columns = [c for c in ("algorithm", "protocol") if c in line.table.columns]
    if not columns:
        return [""] * len(line.table)
    return [
        " ".join(filter(None, values)) for values in line.table[columns].itertuples(index=False)
    ]


def rows_of(lines: Sequence[PlotLine]) -> int:
    """The number of rows in the strip of NCCL's choices: 1 if all lines have the same choices, else
    one for each line.
    """
    return 1 if all(_runs(line) == _runs(lines[0]) for line in lines[1:]) else len(lines)


def draw_strip(axes: Axes, lines: Sequence[PlotLine], colors: Sequence[Color]) -> None:
    """Draw the strip of NCCL's choices: a row for each line, with a box for each span of sizes.

    One row is drawn if all lines have the same choices.
    """
    runs = [_runs(line) for line in lines]
    names = [line.label for line in lines]
    labels = [name if len(name) <= 20 else f"{name[:9]}…{name[-10:]}" for name in names]
    if rows_of(lines) < len(lines):
        runs = runs[:1]
        labels = ["every line"]
        colors = [style.BLACK]
    names = list(dict.fromkeys(name for row in runs for name, _, _ in row))
    fill = {
        name: style.tint(style.PALETTE[i % len(style.PALETTE)], 0.3) for i, name in enumerate(names)
    }
    doublings = log2(max(row[-1][2] for row in runs) / min(row[0][1] for row in runs))
    unnamed = []
    for y, row in enumerate(runs):
        for name, low, high in row:
            box = Rectangle(
                (low, y - 0.4), high - low, 0.8, facecolor=fill[name], edgecolor="white"
            )
            axes.add_patch(box)
            room = _CHARACTERS * log2(high / low) / doublings
            if not _write(axes, name, (low * high) ** 0.5, y, room):
                unnamed.append(name)
    if unnamed:
        patches = [Patch(facecolor=fill[name], label=name) for name in dict.fromkeys(unnamed)]
        axes.legend(handles=patches, loc="upper left", bbox_to_anchor=(1.0, 1.1), fontsize=7)
    axes.set_ylim(len(runs) - 0.5, -0.5)
    axes.set_yticks(range(len(runs)), labels, fontsize=8)
    for label, color in zip(axes.get_yticklabels(), colors, strict=True):
        label.set_color(color)
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)


def _runs(line: PlotLine) -> list[Run]:
    """The spans of sizes over which a line keeps one choice, as (choice, first byte, last byte).

    Neighboring spans meet at the geometric mean of two sizes.
    """
    sizes = line.table["size_bytes"].tolist()
    edges = [sizes[0] / 2**0.5, *((a * b) ** 0.5 for a, b in pairwise(sizes))]
    edges.append(sizes[-1] * 2**0.5)
    runs = []
    first = 0
    for name, group in groupby(choice(line)):
        last = first + len(list(group))
        runs.append((name, edges[first], edges[last]))
        first = last
    return runs


def _write(axes: Axes, name: str, x: float, y: float, room: float) -> bool:
    """Write a name into a box at (x, y) on one or two lines, if it fits; return whether it does.

    `room` is the width of the box in characters.
    """
    for text in (name, name.replace(" ", "\n")):
        if max(map(len, text.split("\n"))) <= room:
            axes.text(x, y, text, ha="center", va="center", fontsize=6.5, linespacing=0.95)
            return True
    return False


# Bus bandwidth and time by message size: the bandwidth of large messages is compared with the line
# rate, the time of small messages is visible below. Measured points are drawn on top.

_WIDTH = 7.6  # inches, of the panels
_PANEL = 3.0  # inches, the height of a panel
RATE: dict[str, Any] = {"color": style.GREY, "linestyle": (0, (5, 3)), "linewidth": 1.2}
_PALE: dict[str, Any] = {"color": "#bdbdbd", "linewidth": 0.7, "zorder": 1.2}
_MOST_DRAWN = 100  # more pale lines are stored as an image in the SVG
_BANDS = (0.16, 0.3)  # opacity of the outer and of the inner percentiles
_FEW_SPANS = 3  # at most this many lines are drawn with the interval of measured times
_MOST_HIDDEN = 3  # a line gets wider with each line that covers it, up to this many
_ABOVE = {
    **dict.fromkeys(("NVLS", "NVLSTree"), "NVLS, NVSwitches add up and copy"),
    **dict.fromkeys(("CollNetDirect", "CollNetChain"), "SHARP, switches of the fabric add up"),
    **dict.fromkeys(("alltoall", "alltoallv", "sendrecv"), "a part never leaves its host"),
}
_FAR = 3  # a line rate above this multiple of the fastest line is only named in the legend
_SEEN = 0.01  # lines with a smaller relative difference cannot be distinguished
Entry = tuple[Artist, str]


def sizes_figure(lines: PlotLines, title: str = "", line_rate: float | None = None) -> Figure:
    """Bus bandwidth and time over size in two panels, with a strip of NCCL's choices below if they
    change.

    `line_rate` (GB/s) is drawn as a guide.
    """
    shown = lines.lines
    looks = looks_of(lines)
    strip = [i for i, line in enumerate(shown) if len(set(choice(line))) > 1][:8]
    rows = rows_of([shown[i] for i in strip]) if strip else 0
    heights = [_PANEL, _PANEL, *([0.28 * rows + 0.1] if rows else [])]
    figure = style.new_figure(_WIDTH, sum(heights) + 0.6)
    panels = figure.subplots(
        len(heights), 1, sharex=True, squeeze=False, gridspec_kw={"height_ratios": heights}
    )[:, 0].tolist()
    _draw_pale(panels[0], panels[1], lines.rest)
    spans = len(shown) <= _FEW_SPANS and all(map(has_interval, shown))
    for place, (line, look) in enumerate(zip(shown, looks, strict=True)):
        covering_count = sum(_is_hidden(line, later) for later in shown[place + 1 :])
        hidden = min(covering_count, _MOST_HIDDEN)
        _draw(panels[0], panels[1], line, look, hidden)
        if spans:
            ends = line.table["time_low_us"], line.table["time_high_us"]
            _fill(panels[0], panels[1], line.table, ends, look, _BANDS[0])
    _bandwidth_panel(panels[0], line_rate if _near(line_rate, shown) else None)
    columns = ["p5_us", "p95_us"]
    if spans:
        columns += ["time_low_us", "time_high_us"]
    _time_panel(panels[1], [*shown, *lines.rest], columns)
    if strip:
        draw_strip(panels[2], [shown[i] for i in strip], [looks[i].color for i in strip])
    _shared_axis(panels, shown)
    _legend(figure, [*_entries(panels[0], shown, line_rate), *_summarised(lines, spans=spans)])
    panels[0].set_title(f"{shown[0].label} {title}" if len(shown) == 1 else title, loc="left")
    return figure


def _is_hidden(line: PlotLine, later: PlotLine) -> bool:
    """Whether a line is hidden behind a line drawn later: most of their times look the same."""
    first = line.table.set_index("size_bytes")["time_us"]
    second = later.table.set_index("size_bytes")["time_us"]
    shared = first.index.intersection(second.index)
    if not len(shared):
        return False
    is_same = abs(first[shared] / second[shared] - 1) < _SEEN
    return bool(is_same.mean() > 0.5)


def _draw(bandwidth: Axes, time: Axes, line: PlotLine, look: Look, hidden: int) -> None:
    """Draw a line in both panels; it is wider if `hidden` (a count) later lines cover it, to stay
    visible.
    """
    sizes = line.table["size_bytes"].to_numpy()
    if has_bands(line.table):  # between the percentiles over seeds, the inner ones stronger
        times = [line.table[f"time_us_p{p}"] for p in PERCENTILES]
        for low, high, alpha in zip(times, times[::-1], _BANDS, strict=False):
            _fill(bandwidth, time, line.table, (low, high), look, alpha)
    ideal = line.table["busbw_GBps"] * line.table["time_us"]
    if has_noise(line.table):
        ends = (line.table["p5_us"], line.table["p95_us"])
        middle = line.table["p50_us"]
        _fill(bandwidth, time, line.table, ends, look, _BANDS[0])
        for axes, values in ((bandwidth, ideal / middle), (time, middle)):
            axes.plot(sizes, values.to_numpy(), "--", color=look.color, linewidth=1.0)
    simulated = look.simulated()
    if hidden:
        simulated |= {"linewidth": 1.8 + 2.2 * hidden, "markersize": 5 + 2.2 * hidden}
    bandwidth.plot(sizes, line.table["busbw_GBps"].to_numpy(), label=line.label, **simulated)
    time.plot(sizes, line.table["time_us"].to_numpy(), **simulated)
    limit = {"color": look.color, "linestyle": ":", "linewidth": 1.1}
    for column, look_of_column in (("limit_us", limit), (MEASURED, look.measured())):
        if _has(line.table, column):
            bandwidth.plot(sizes, (ideal / line.table[column]).to_numpy(), **look_of_column)
            time.plot(sizes, line.table[column].to_numpy(), **look_of_column)


def _fill(
    bandwidth: Axes,
    time: Axes,
    table: pd.DataFrame,
    ends: tuple[pd.Series, pd.Series],
    look: Look,
    alpha: float,
) -> None:
    """Draw a band between two times in both panels, in the color of the line.

    - `table`: the rows of the line.
    - `ends`: the lower and the upper time by row, in µs.
    - `alpha`: the opacity of the band.
    """
    ideal = table["busbw_GBps"] * table["time_us"]
    band: dict[str, Any] = {"color": look.color, "alpha": alpha, "linewidth": 0, "zorder": 1.5}
    bandwidth.fill_between(table["size_bytes"], ideal / ends[1], ideal / ends[0], **band)
    time.fill_between(table["size_bytes"], *ends, **band)


def _draw_pale(bandwidth: Axes, time: Axes, rest: Sequence[PlotLine]) -> None:
    """Draw lines that are too many to have their own colors; more than `_MOST_DRAWN` are stored as
    a bitmap.
    """
    for axes, column in ((bandwidth, "busbw_GBps"), (time, "time_us")):
        points = ((line.table["size_bytes"], line.table[column]) for line in rest)
        paths = [np.column_stack(pair) for pair in points]
        pale = LineCollection(paths, rasterized=len(rest) > _MOST_DRAWN, **_PALE)
        axes.add_collection(pale)


def has_interval(line: PlotLine) -> bool:
    """Whether a line has 80 % intervals to draw: it has them, and neither bands over seeds nor
    noise.
    """
    table = line.table
    return _has(table, "time_low_us") and not has_bands(table) and not has_noise(table)


def has_noise(table: pd.DataFrame) -> bool:
    """Whether a table has percentiles of samples with noise."""
    return _has(table, "p95_us")


def _has(table: pd.DataFrame, column: str) -> bool:
    """Whether a table has the column, with at least one value."""
    return column in table.columns and bool(table[column].notna().any())


def _near(line_rate: float | None, lines: Sequence[PlotLine]) -> bool:
    """Whether the line rate (GB/s) is close enough to the bandwidths of the lines to be drawn with
    them.
    """
    fastest = max(line.table["busbw_GBps"].max() for line in lines)
    return line_rate is not None and bool(line_rate < _FAR * fastest)


def _bandwidth_panel(axes: Axes, line_rate: float | None) -> None:
    """Set the y axis of the panel of bandwidths, and draw the line rate."""
    axes.set_ylabel("bus bandwidth (GB/s)")
    if line_rate is not None:
        axes.axhline(line_rate, zorder=1, **RATE)
    axes.set_ylim(bottom=0)
    axes.set_ylim(top=axes.get_ylim()[1] * 1.04)


def _time_panel(axes: Axes, lines: Sequence[PlotLine], more: Sequence[str]) -> None:
    """Set the y axis of the panel of times; `more` are further columns of times that are drawn."""
    axes.set_ylabel("time of one operation")
    columns = ("time_us", "measured_time_us", *more)
    times = np.concatenate(
        [line.table[c] for line in lines for c in columns if c in line.table.columns]
    )
    times = times[np.isfinite(times) & (times > 0)]
    if len(times):
        style.time_axis(axes, float(times.min()), float(times.max()))


def _shared_axis(panels: Sequence[Axes], lines: Sequence[PlotLine]) -> None:
    """Set the x axis of message sizes in all panels, which share it."""
    sizes = np.concatenate([line.table["size_bytes"] for line in lines])
    for axes in panels:
        style.size_axis(axes, max(float(sizes.min()), 1.0), max(float(sizes.max()), 1.0))
        axes.tick_params(axis="x", which="minor", length=2)
    panels[-1].set_xlabel("message size")


def _entries(axes: Axes, lines: Sequence[PlotLine], line_rate: float | None) -> list[Entry]:
    """The entries of the legend: lines from the highest to the lowest bandwidth at the largest
    size, then the others.
    """
    handles, labels = axes.get_legend_handles_labels()
    last = [line.table["busbw_GBps"].iloc[-1] for line in lines]
    labels = labels if len(labels) > 1 else ["simulated"]
    entries = [(handles[i], labels[i]) for i in sorted(range(len(handles)), key=lambda i: -last[i])]
    if any(_has(line.table, MEASURED) for line in lines):
        hollow = Line2D(
            [], [], color=style.BLACK, marker="o", markerfacecolor="white", linestyle=""
        )
        plain = Line2D([], [], color=style.BLACK, marker="o")
        if len(labels) > 1:
            entries.append((plain, "simulated"))
        entries.append((hollow, "measured"))
    if any(drawn_line.get_linestyle() == ":" for drawn_line in axes.lines):
        entries.append((Line2D([], [], color=style.BLACK, linestyle=":"), "limit of the links"))
    if line_rate is not None:
        drawn = Line2D([], [], **RATE) if _near(line_rate, lines) else Line2D([], [], linestyle="")
        far = "" if _near(line_rate, lines) else " (far above)"
        entries.append((drawn, f"line rate {line_rate:.4g} GB/s{far}"))
        why = above_rate(pd.concat([line.table for line in lines]), line_rate)
        entries += [(Line2D([], [], linestyle=""), text) for text in why]
    return entries


def above_rate(table: pd.DataFrame, line_rate: float) -> list[str]:
    """The reasons why bus bandwidths exceed the line rate (GB/s), as lines for the legend.

    nccl-tests counts the bytes that a ring would send, and some algorithms send fewer.
    """
    over = table[table["busbw_GBps"] > line_rate * (1 + _SEEN)]
    kinds = over.reindex(columns=["algorithm", "collective", "nodes"]).astype(str)
    tree = {"Tree": "trees send every byte once between 2 nodes"}
    reasons = [
        _ABOVE.get(algorithm) or _ABOVE.get(collective) or tree.get(nodes == "2" and algorithm)
        for algorithm, collective, nodes in kinds.drop_duplicates().itertuples(index=False)
    ]
    return [f"above it: {why}" for why in dict.fromkeys(reasons) if why]


def _summarised(lines: PlotLines, *, spans: bool) -> list[Entry]:
    """The entries of the legend for bands over seeds, samples with noise, and pale lines. With
    `spans`, also one for intervals of measured times.
    """
    entries: list[Entry] = []
    if spans:
        patch = Patch(color=style.GREY, alpha=_BANDS[0], linewidth=0)
        entries.append((patch, "80 % of measured times, by other systems"))
    of_seeds = [line.table for line in lines.lines if has_bands(line.table)]
    if of_seeds:
        seeds = int(max(table["seeds"].max() for table in of_seeds))
        entries.append((Line2D([], [], color=style.GREY), f"median of {seeds} seeds"))
        strong = zip(reversed(_BANDS), BAND_NAMES, strict=True)
        entries += [
            (Patch(color=style.GREY, alpha=alpha, linewidth=0), name) for alpha, name in strong
        ]
    if any(has_noise(line.table) for line in lines.lines):
        dashed = Line2D([], [], color=style.GREY, linestyle="--", linewidth=1.0)
        entries.append((dashed, "median of samples with noise"))
        entries.append((Patch(color=style.GREY, alpha=_BANDS[0], linewidth=0), "5 to 95 % of them"))
    if lines.rest:
        many = f"{len(lines.rest):,} more cell{'' if len(lines.rest) == 1 else 's'}"
        entries.append((Line2D([], [], **_PALE), many))
    return entries


def _legend(figure: Figure, entries: list[Entry]) -> None:
    """Draw the legend beside the panels, and widen the figure by its width."""
    if len(entries) < 2:
        return
    figure.legend(*zip(*entries, strict=True), loc="outside right upper")
    figure.set_figwidth(_WIDTH + 0.7 + 0.075 * max(len(label) for _, label in entries))
