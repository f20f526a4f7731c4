"""Lines over sizes: what they show, how many runs each represents, and where choices change."""

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
PERCENTILES = (5, 25, 75, 95)  # of those in bands.csv; the median takes the place of the time
BAND_NAMES = ("25 to 75 %", "5 to 95 %")
_TIMES = ("time_us", "step_time_us")


def over_seeds(table: pd.DataFrame) -> pd.DataFrame:
    """A row for all seeds of a cell and size, with how many there are in `seeds`, for each time its
    median, and its percentiles as `time_us_p5`; the table as it is, where seeds do not differ."""
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
    """Whether times are medians over seeds that made a difference."""
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
_ASKED = ("ranks", "approximation_pct")  # numbers that are not drawn
_BLANK = dict.fromkeys(COLUMNS, "") | dict.fromkeys((*NUMBERS, *_ASKED), np.nan)
_BANDWIDTHS = ("algbw_GBps", "busbw_GBps")
_ROUNDED = 1e-6  # what programs that read and write a file again may round
_UNEVEN = ("alltoallv", "p2p")  # whose sizes are not those of equal blocks
# Columns beside the numbers and their percentiles.
DRAWN = ("cell", "algorithm", "protocol", "collective", "nodes", "seeds")
# What may tell two cells apart, the most telling first.
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
AXIS, MEASURED = "axis:", "measured_time_us"
Integers = np.ndarray[tuple[int], np.dtype[np.integer[Any]]]


@dataclass(frozen=True)
class Line:
    """One cell: its label, the values that name it, and its rows in order of size."""

    label: str
    values: tuple[str, ...]
    table: pd.DataFrame


@dataclass(frozen=True)
class Lines:
    """All lines of a plot and the columns that tell them apart; those of `rest` are drawn pale."""

    columns: tuple[str, ...]
    lines: tuple[Line, ...]
    rest: tuple[Line, ...] = ()


def read_results(paths: Sequence[Path]) -> pd.DataFrame:
    """The rows of one or several results.csv that are answers, with `file` as a column."""
    table = read_all(paths)
    return table[table["status"].isin(["", "ok"])].reset_index(drop=True)


def read_all(paths: Sequence[Path]) -> pd.DataFrame:
    """All rows of one or several results.csv, also failed ones; what a file lacks is empty."""
    tables = []
    for path in paths:
        table = style.read_table(path, style.RESULTS, "the columns of results.csv")
        table = style.with_numbers(path, table, NUMBERS)
        _check_written(path, table)
        table = table.assign(**{one: _BLANK[one] for one in COLUMNS if one not in table.columns})
        tables.append(table.assign(file=path.parent.name or path.stem))
    found = pd.concat(tables, ignore_index=True)
    return found.assign(size_asked=found["size_asked"].fillna(found["size_bytes"]))


def frame_of(file: IO[str]) -> pd.DataFrame:
    """The table of a results.csv that is known to be sound: empty numbers are NaN, empty texts
    are empty."""
    texts = [field.name for field in fields(Row) if isinstance(field.default, str)]
    types = dict.fromkeys(texts, str)
    table = pd.read_csv(file, dtype=types, keep_default_na=False, na_values=_EMPTY_NUMBERS)
    return table


_EMPTY_NUMBERS = {name: [""] for name in COLUMNS if not isinstance(getattr(Row(), name), str)}


def _check_written(path: Path, table: pd.DataFrame) -> None:
    """Refuse rows that no run writes."""
    told = style.with_numbers(path, table, _ASKED)
    if "ranks" in told.columns:
        style.refuse(
            path, told["ranks"][told["ranks"] < 1], "ranks", "expected a finite number from 1 on"
        )
    if not {*_BANDWIDTHS, *_ASKED, "collective"} <= set(told.columns):
        return
    told = told[(told["time_us"] > 0) & told["ranks"].notna()]
    factors = [
        Collective(name, int(ranks), 0).bus_factor if name not in _UNEVEN else np.nan
        for name, ranks in zip(told["collective"], told["ranks"], strict=True)
    ]
    due = told["size_bytes"] / told["time_us"] / 1e3
    for column, factor in zip(_BANDWIDTHS, (np.ones(len(told)), np.array(factors)), strict=True):
        wrong = (told[column] - due * factor).abs() > _ROUNDED * due * factor
        why = "expected what size_bytes by time_us makes it"
        style.refuse(path, told[column][wrong], column, why)


def lines_of(table: pd.DataFrame) -> Lines:
    """A line for every cell of every file, in the order of the files; seeds are one line."""
    table = over_seeds(table)
    cell = table.groupby(["file", "scenario", "cell"], sort=False).ngroup().to_numpy()
    order = np.lexsort((table["size_bytes"].to_numpy(), cell))
    table, cell = table.iloc[order], cell[order]
    starts = np.flatnonzero(np.diff(cell, prepend=-1))
    ends = np.append(starts[1:], len(table))
    columns = _telling(table, cell, starts)
    named = table.iloc[starts][list(columns)].astype(str)
    named = named.assign(**{column: telling(named[column].tolist()) for column in columns})
    drawn = [c for c in table.columns if c in DRAWN or str(c).startswith(NUMBERS)]
    table, lines = table[drawn], []
    for place, values in enumerate(map(tuple, named.to_numpy().tolist())):
        part = table.iloc[starts[place] : ends[place]]
        lines.append(Line(label_of(columns, values, part), values, part))
    return Lines(columns, tuple(lines))


def thinned(lines: Lines, few: int, most: int = 0, always: Sequence[str] = ()) -> Lines:
    """A few of the lines, the others as `rest`, if there are more than `most`: evenly in the order
    of their one column, or from the fastest to the slowest at their largest size; those of some
    cells in any case."""
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
    kept = [line for k, line in enumerate(lines.lines) if k in chosen]
    rest = [line for k, line in enumerate(lines.lines) if k not in chosen]
    return Lines(lines.columns, tuple(kept), tuple(rest))


def _telling(table: pd.DataFrame, cell: Integers, starts: Integers) -> tuple[str, ...]:
    """The fewest columns that tell cells apart; cells by number, and where each starts."""
    axes = [str(column) for column in table.columns if str(column).startswith(AXIS)]
    chosen: list[str] = []
    groups, parts = np.zeros(len(starts), np.int64), 1
    for column in (*axes, *(name for name in NAMING if name in table.columns)):
        codes, values = pd.factorize(table[column])
        of_cell = codes[starts]
        if codes.min() < 0 or (codes != of_cell[cell]).any():
            continue
        finer, found = pd.factorize(groups * len(values) + of_cell)
        if len(found) > parts:
            chosen.append(column)
            groups, parts = finer, len(found)
    return tuple(chosen)


def spoken(column: str, value: str) -> str:
    """A value as a label says it: `ring`, `4 nodes`, `oversubscription 2`, a variant's name."""
    key = column.removeprefix(AXIS)
    name = key.rpartition(".")[2]
    if name in _PLAIN or (column != key and name == key and key not in NAMING):
        return value or f"no {name}"
    if name in _COUNTED and value.isdigit():
        many = f"{value} {_COUNTED[name]}{'' if value == '1' else 's'}"
        return f"{many} a node" if name == "gpus_per_node" else many
    return f"{_SPOKEN.get(name, in_words(name))} {value}"


def in_words(name: str) -> str:
    """The last part of a key as words; a variable of NCCL stays as it is set."""
    return name if name.isupper() else name.replace("_", " ")


def telling(values: Sequence[str]) -> list[str]:
    """Values of several keys (`tp: 8, pp: 4`) without those that all of them share."""
    parts = [str(value).split(", ") for value in values]
    shared = set.intersection(*map(set, parts)) if parts else set()
    left = [", ".join(part for part in each if part not in shared) for each in parts]
    return left if all(left) and all(": " in part for part in shared) else list(map(str, values))


def label_of(columns: Sequence[str], values: Sequence[str], cell: pd.DataFrame) -> str:
    """A line as the legend names it."""
    label = ", ".join(map(spoken, columns, values))
    if not label and "algorithm" in cell.columns and cell["algorithm"].nunique() == 1:
        return str(cell["algorithm"].iloc[0])
    return label


# How the lines of a plot look: each has a color and a marker that distinguish it from the others.
# Many lines that differ in two ways get their colour by one and their marker by the other.

Colour = str | tuple[float, float, float, float]


@dataclass(frozen=True)
class Look:
    """Colour and marker of one line."""

    colour: Colour
    marker: str

    def simulated(self) -> dict[str, Any]:
        """Arguments for a simulated line."""
        edge = {"markeredgecolor": "white", "markeredgewidth": 0.6}
        return {"color": self.colour, "marker": self.marker, **edge}

    def measured(self) -> dict[str, Any]:
        """Arguments for measured points: hollow, without a line."""
        edge = {"markeredgecolor": self.colour, "markeredgewidth": 1.2, "markerfacecolor": "white"}
        return {"linestyle": "", "marker": self.marker, "zorder": 4, **edge}


def looks_of(lines: Lines) -> list[Look]:
    """A look for every line."""
    every, count = [line.values for line in lines.lines], len(lines.lines)
    if count <= len(style.PALETTE):
        return [Look(style.PALETTE[i], style.MARKERS[i]) for i in range(count)]
    groups = [list(dict.fromkeys(values)) for values in zip(*every, strict=True)]
    few = [k for k, values in enumerate(groups) if 1 < len(values) <= len(style.PALETTE)]
    if len(groups) < 2 or not few:
        steps = [0.92 * i / (count - 1) for i in range(count)]
        return [Look(colormaps["viridis"](x), _marker(i)) for i, x in enumerate(steps)]
    k = few[0]
    rest = list(dict.fromkeys(values[:k] + values[k + 1 :] for values in every))
    return [
        Look(style.PALETTE[groups[k].index(v[k])], _marker(rest.index(v[:k] + v[k + 1 :])))
        for v in every
    ]


def _marker(number: int) -> str:
    return style.MARKERS[number % len(style.MARKERS)]


_CHARACTERS = 105  # of the smallest print that fit the width of our figures
Run = tuple[str, float, float]  # what was chosen, from size, to size


def choice(line: Line) -> list[str]:
    """Algorithm and protocol at every size of a line."""
    columns = [c for c in ("algorithm", "protocol") if c in line.table.columns]
    if not columns:
        return [""] * len(line.table)
    return [
        " ".join(filter(None, values)) for values in line.table[columns].itertuples(index=False)
    ]


def rows_of(lines: Sequence[Line]) -> int:
    """How many rows the strip has."""
    return 1 if all(_runs(line) == _runs(lines[0]) for line in lines[1:]) else len(lines)


def draw_strip(axes: Axes, lines: Sequence[Line], colours: Sequence[Colour]) -> None:
    """A row for every line, of boxes from size to size; a single one where all have the same."""
    runs = [_runs(line) for line in lines]
    names = [line.label for line in lines]
    labels = [name if len(name) <= 20 else f"{name[:9]}…{name[-10:]}" for name in names]
    if rows_of(lines) < len(lines):
        runs, labels, colours = runs[:1], ["every line"], [style.BLACK]
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
    for label, colour in zip(axes.get_yticklabels(), colours, strict=True):
        label.set_color(colour)
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)


def _runs(line: Line) -> list[Run]:
    """Stretches of sizes with one choice; they meet halfway between two sizes."""
    sizes = line.table["size_bytes"].tolist()
    edges = [sizes[0] / 2**0.5, *((a * b) ** 0.5 for a, b in pairwise(sizes))]
    edges.append(sizes[-1] * 2**0.5)
    runs, first = [], 0
    for name, group in groupby(choice(line)):
        last = first + len(list(group))
        runs.append((name, edges[first], edges[last]))
        first = last
    return runs


def _write(axes: Axes, name: str, x: float, y: float, room: float) -> bool:
    """Write a name into its box on one line or two; whether it fits."""
    for text in (name, name.replace(" ", "\n")):
        if max(map(len, text.split("\n"))) <= room:
            axes.text(x, y, text, ha="center", va="center", fontsize=6.5, linespacing=0.95)
            return True
    return False


# Bus bandwidth and time against message size, as people read nccl-tests: the plateau against the
# line rate, the time of small messages, the knee in between; measured points on top where there
# are.

_WIDTH, _PANEL = 7.6, 3.0  # inches: of the panels, and the height of each
RATE: dict[str, Any] = {"color": style.GREY, "linestyle": (0, (5, 3)), "linewidth": 1.2}
_PALE: dict[str, Any] = {"color": "#bdbdbd", "linewidth": 0.7, "zorder": 1.2}
_MOST_DRAWN = 100  # pale lines that an SVG has as such
_BANDS = (0.16, 0.3)  # how strong the outer and the inner percentiles are
_FEW_SPANS = 3  # lines that have a band of where measured times lie
_MOST_HIDDEN = 3  # lines on top of one for which it is drawn wider
_ABOVE = {
    **dict.fromkeys(("NVLS", "NVLSTree"), "NVLS, NVSwitches add up and copy"),
    **dict.fromkeys(("CollNetDirect", "CollNetChain"), "SHARP, switches of the fabric add up"),
    **dict.fromkeys(("alltoall", "alltoallv", "sendrecv"), "a part never leaves its host"),
}
_FAR = 3  # times the fastest line, beyond which a line rate is named, not drawn
_SEEN = 0.01  # relative difference from which two lines are distinguishable
Entry = tuple[Artist, str]


def sizes_figure(lines: Lines, title: str = "", line_rate: float | None = None) -> Figure:
    """Both panels over one size axis, and below them what NCCL chose, where that changes.
    `line_rate` (GB/s) is drawn as a guide."""
    shown, looks = lines.lines, looks_of(lines)
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
        hidden = min(sum(_alike(line, other) for other in shown[place + 1 :]), _MOST_HIDDEN)
        _draw(panels[0], panels[1], line, look, hidden)
        if spans:
            ends = line.table["time_low_us"], line.table["time_high_us"]
            _fill(panels[0], panels[1], line.table, ends, look, _BANDS[0])
    _bandwidth_panel(panels[0], line_rate if _near(line_rate, shown) else None)
    columns = ("time_low_us", "time_high_us") * spans + ("p5_us", "p95_us")
    _time_panel(panels[1], [*shown, *lines.rest], columns)
    if strip:
        draw_strip(panels[2], [shown[i] for i in strip], [looks[i].colour for i in strip])
    _shared_axis(panels, shown)
    _legend(figure, [*_entries(panels[0], shown, line_rate), *_summarised(lines, spans=spans)])
    panels[0].set_title(f"{shown[0].label} {title}" if len(shown) == 1 else title, loc="left")
    return figure


def _alike(line: Line, other: Line) -> bool:
    """Whether a line would be hidden behind another: the same times, as far as can be seen."""
    one, two = (each.table.set_index("size_bytes")["time_us"] for each in (line, other))
    both = one.index.intersection(two.index)
    return bool(len(both)) and bool((abs(one[both] / two[both] - 1) < _SEEN).mean() > 0.5)


def _draw(bandwidth: Axes, time: Axes, line: Line, look: Look, hidden: int) -> None:
    """Draw a line so that it is visible beside `hidden` others that lie on top of it."""
    sizes = line.table["size_bytes"].to_numpy()
    if has_bands(line.table):  # between the percentiles over seeds, the inner ones stronger
        times = [line.table[f"time_us_p{p}"] for p in PERCENTILES]
        for low, high, alpha in zip(times, times[::-1], _BANDS, strict=False):
            _fill(bandwidth, time, line.table, (low, high), look, alpha)
    ideal = line.table["busbw_GBps"] * line.table["time_us"]
    if has_noise(line.table):
        ends, middle = (line.table["p5_us"], line.table["p95_us"]), line.table["p50_us"]
        _fill(bandwidth, time, line.table, ends, look, _BANDS[0])
        for axes, values in ((bandwidth, ideal / middle), (time, middle)):
            axes.plot(sizes, values.to_numpy(), "--", color=look.colour, linewidth=1.0)
    simulated = look.simulated()
    if hidden:
        simulated |= {"linewidth": 1.8 + 2.2 * hidden, "markersize": 5 + 2.2 * hidden}
    bandwidth.plot(sizes, line.table["busbw_GBps"].to_numpy(), label=line.label, **simulated)
    time.plot(sizes, line.table["time_us"].to_numpy(), **simulated)
    limit = {"color": look.colour, "linestyle": ":", "linewidth": 1.1}
    for column, other in (("limit_us", limit), (MEASURED, look.measured())):
        if _has(line.table, column):
            bandwidth.plot(sizes, (ideal / line.table[column]).to_numpy(), **other)
            time.plot(sizes, line.table[column].to_numpy(), **other)


def _fill(
    bandwidth: Axes,
    time: Axes,
    table: pd.DataFrame,
    ends: tuple[pd.Series, pd.Series],
    look: Look,
    alpha: float,
) -> None:
    """A band between two times in both panels, in the colour of a line and so strong."""
    ideal = table["busbw_GBps"] * table["time_us"]
    band: dict[str, Any] = {"color": look.colour, "alpha": alpha, "linewidth": 0, "zorder": 1.5}
    bandwidth.fill_between(table["size_bytes"], ideal / ends[1], ideal / ends[0], **band)
    time.fill_between(table["size_bytes"], *ends, **band)


def _draw_pale(bandwidth: Axes, time: Axes, rest: Sequence[Line]) -> None:
    """Lines too many for a colour each; as pixels, if more than a file of lines should have."""
    for axes, column in ((bandwidth, "busbw_GBps"), (time, "time_us")):
        points = ((line.table["size_bytes"], line.table[column]) for line in rest)
        paths = [np.column_stack(pair) for pair in points]
        pale = LineCollection(paths, rasterized=len(rest) > _MOST_DRAWN, **_PALE)
        axes.add_collection(pale)


def has_interval(line: Line) -> bool:
    """Whether it is known between which times most of a line would be measured."""
    table = line.table
    return _has(table, "time_low_us") and not has_bands(table) and not has_noise(table)


def has_noise(table: pd.DataFrame) -> bool:
    """Whether there are percentiles of samples with noise."""
    return _has(table, "p95_us")


def _has(table: pd.DataFrame, column: str) -> bool:
    return column in table.columns and bool(table[column].notna().any())


def _near(line_rate: float | None, lines: Sequence[Line]) -> bool:
    """Whether a line rate is near enough to what is drawn not to flatten it."""
    fastest = max(line.table["busbw_GBps"].max() for line in lines)
    return line_rate is not None and bool(line_rate < _FAR * fastest)


def _bandwidth_panel(axes: Axes, line_rate: float | None) -> None:
    axes.set_ylabel("bus bandwidth (GB/s)")
    if line_rate is not None:
        axes.axhline(line_rate, zorder=1, **RATE)
    axes.set_ylim(bottom=0)
    axes.set_ylim(top=axes.get_ylim()[1] * 1.04)


def _time_panel(axes: Axes, lines: Sequence[Line], more: Sequence[str]) -> None:
    axes.set_ylabel("time of one operation")
    columns = ("time_us", "measured_time_us", *more)
    times = np.concatenate(
        [line.table[c] for line in lines for c in columns if c in line.table.columns]
    )
    times = times[np.isfinite(times) & (times > 0)]
    if len(times):
        style.time_axis(axes, float(times.min()), float(times.max()))


def _shared_axis(panels: Sequence[Axes], lines: Sequence[Line]) -> None:
    sizes = np.concatenate([line.table["size_bytes"] for line in lines])
    for axes in panels:
        style.size_axis(axes, max(float(sizes.min()), 1.0), max(float(sizes.max()), 1.0))
        axes.tick_params(axis="x", which="minor", length=2)
    panels[-1].set_xlabel("message size")


def _entries(axes: Axes, lines: Sequence[Line], line_rate: float | None) -> list[Entry]:
    """What the legend holds: lines in the order in which they end on the right, then the rest."""
    handles, labels = axes.get_legend_handles_labels()
    last = [line.table["busbw_GBps"].iloc[-1] for line in lines]
    labels = labels if len(labels) > 1 else ["simulated"]
    entries = [(handles[i], labels[i]) for i in sorted(range(len(handles)), key=lambda i: -last[i])]
    if any(_has(line.table, MEASURED) for line in lines):
        hollow = Line2D(
            [], [], color=style.BLACK, marker="o", markerfacecolor="white", linestyle=""
        )
        plain = Line2D([], [], color=style.BLACK, marker="o")
        entries += [(plain, "simulated")] * (len(labels) > 1) + [(hollow, "measured")]
    if any(one.get_linestyle() == ":" for one in axes.lines):
        entries.append((Line2D([], [], color=style.BLACK, linestyle=":"), "limit of the links"))
    if line_rate is not None:
        drawn = Line2D([], [], **RATE) if _near(line_rate, lines) else Line2D([], [], linestyle="")
        far = "" if _near(line_rate, lines) else " (far above)"
        entries.append((drawn, f"line rate {line_rate:.4g} GB/s{far}"))
        why = above_rate(pd.concat([line.table for line in lines]), line_rate)
        entries += [(Line2D([], [], linestyle=""), text) for text in why]
    return entries


def above_rate(table: pd.DataFrame, line_rate: float) -> list[str]:
    """Why bus bandwidths, which count what a ring would send, lie above a line rate."""
    over = table[table["busbw_GBps"] > line_rate * (1 + _SEEN)]
    kinds = over.reindex(columns=["algorithm", "collective", "nodes"]).astype(str)
    tree = {"Tree": "trees send every byte once between 2 nodes"}
    found = [
        _ABOVE.get(algorithm) or _ABOVE.get(collective) or tree.get(nodes == "2" and algorithm)
        for algorithm, collective, nodes in kinds.drop_duplicates().itertuples(index=False)
    ]
    return [f"above it: {why}" for why in dict.fromkeys(found) if why]


def _summarised(lines: Lines, *, spans: bool) -> list[Entry]:
    """Draw what represents several: bands for seeds and measured times, pale lines for cells."""
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
    """Outside the data; the figure grows by what the legend takes."""
    if len(entries) < 2:
        return
    figure.legend(*zip(*entries, strict=True), loc="outside right upper")
    figure.set_figwidth(_WIDTH + 0.7 + 0.075 * max(len(label) for _, label in entries))
