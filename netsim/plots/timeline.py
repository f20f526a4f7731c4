"""Pictures of traces: a timeline, links and memory over time, and the states of an algorithm.

A transfer is drawn as a bar at its sender and, later by the latency of the path, as a bar at its
receiver. Bars that overlap on a lane are drawn on tracks, which divide the lane's height.
"""

import gzip
import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.collections import PatchCollection, PolyCollection
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.patches import Patch, Rectangle
from numpy.typing import NDArray

from netsim.base import errors
from netsim.base.values import dataclass, evenly_spaced, grouped
from netsim.collectives.verify import Holding, State, runs
from netsim.plots import style
from netsim.schedule.schedule import spelled_out
from netsim.trace.chrome import packed

FULL, UPPER, LOWER = range(3)  # the part of a lane in which a bar lies
BAR_KINDS = (
    "send (to be reduced)",
    "send (copy)",
    "receive and reduce",
    "receive (copy)",
    "local copy",
    "compute",
    "launch",
)
SEND_SUM, SEND, RECEIVE_SUM, RECEIVE, LOCAL, COMPUTE, LAUNCH = BAR_KINDS
_MOVING = ("transfer", "multicast", "switch_reduce")
_OWN_KINDS = {"local_copy": LOCAL, "compute": COMPUTE, "mark": LAUNCH}
_DELAYS = ("startup_us", "latency_us")
_MOST_LANES = 128  # most lanes of all bands together
MOST_RANKS = 16  # if there are more, one rank of each class of equal ranks is drawn
# Ranks count as equal if their bars differ by at most this fraction of the total time. The values
# are tried in this order, until few enough classes are left.
_EQUAL_WITHIN = (0.02, 0.05, 0.1)


@dataclass(frozen=True)
class Gantt:
    """The bars of a timeline, the names of its ranks and lanes, and a note on what is left out.

    The columns of `bars` are `rank`, `lane` (a number), `part` (upper half, lower half or full
    height of the lane), `begin` and `end` in µs, `what` (the kind of bar), `step`, `track` (its
    number within the lane) and `tracks` (how many the lane is divided into).
    """

    bars: pd.DataFrame
    ranks: Mapping[int, str]
    lanes: tuple[str, ...]
    title: str
    note: str


def read_gantt(path: Path) -> Gantt:
    """Read a trace.csv and return the bars of its timeline."""
    table = style.read_long_table(
        path,
        style.TRACE,
        "the columns of trace.csv",
        only={*style.TRACE[1:], *_DELAYS, "op", "collective"},
    )
    table = style.filled(path, table, ("channel", "step", "start_us", "end_us"))
    table = style.with_numbers(path, table, _DELAYS)
    _refuse_ends(path, table)
    table, names = _with_lanes(table)
    bars = _bars(table)
    bars = bars[bars["end"] > bars["begin"]]
    ranks = np.unique(bars["rank"]).tolist()
    lanes = np.unique(bars["lane"]).tolist()
    shown = {rank: f"rank {rank}" for rank in ranks}
    note = f"{len(ranks)} ranks"
    if len(ranks) > MOST_RANKS:
        shown, note = _representatives(bars)
    shown_lanes = lanes[: max(_MOST_LANES // max(len(shown), 1), 1)]
    bars = bars[bars["rank"].isin(shown) & bars["lane"].isin(shown_lanes)]
    bars = bars.assign(lane=np.searchsorted(shown_lanes, bars["lane"]))
    about = about_trace(path.parent)
    titles = table["collective"].unique().tolist() if "collective" in table else []
    if (rows := about.get("rows", 0)) > len(table):
        note += f", the first {len(table):,} of {rows:,} rows"
    return Gantt(
        bars=_with_tracks(bars),
        ranks=shown,
        lanes=tuple(names[lane] for lane in shown_lanes),
        title=about.get("title") or ", ".join(filter(None, titles)),
        note=note
        if len(shown_lanes) == len(lanes)
        else f"{note}, {len(shown_lanes)} of {len(lanes)} lanes",
    )


def _refuse_ends(path: Path, table: pd.DataFrame) -> None:
    """Raise an error for a sender or receiver that is neither a rank nor a group of ranks."""
    for end in ("src", "dst"):
        wrong = table[end][~table[end].str.fullmatch(r"[0-9]{1,9}(;[0-9]{1,9})*").astype(bool)]
        if len(wrong):
            message = f"expected ranks such as 3 or 0;1, got {errors.shown(str(wrong.iloc[0]))}"
            raise errors.InputError(f"{path}:{wrong.index[0]}: {end}: {message}")


def _representatives(bars: pd.DataFrame) -> tuple[dict[int, str], str]:
    """The ranks to draw, and a note for the user about the classes of equal ranks.

    Ranks are equal if they do the same at about the same time, on any channels. One rank of each
    class is drawn, the key of the returned mapping; its value is the name to show. If there are too
    many classes, the largest are drawn.
    """
    ranks, sketches = _sketches(bars)
    classes = list[list[int]]()
    within = 0.0
    for within in _EQUAL_WITHIN:
        classes = _classes(sketches, within)
        if len(classes) <= MOST_RANKS:
            break
    shown = {}
    for first, *others in sorted(sorted(classes, key=len, reverse=True)[:MOST_RANKS]):
        more = f"\nand {len(others)} equal" if others else ""
        shown[ranks[first]] = f"rank {ranks[first]}{more}"
    count = f"{len(shown)}"
    if len(shown) < len(classes):
        count = f"{len(shown)} of {len(classes)}"
    noun = "class" if len(classes) == 1 else "classes"
    note = f"{len(ranks)} ranks in {count} {noun}, equal within {within:.0%} of the time"
    return shown, note


def _classes(
    sketches: Sequence[NDArray[np.float64]] | NDArray[np.float64], within: float
) -> list[list[int]]:
    """Divide ranks into classes of similar ones; return their positions by class.

    - `sketches`: for each rank an array that summarizes its work, as `_sketches` returns it.
    - `within`: each value of a sketch differs by at most this from that of the first member of its
      class.
    """
    classes: list[list[int]] = []
    for place, sketch in enumerate(sketches):
        for members in classes:
            first = sketches[members[0]]
            has_same_length = len(first) == len(sketch)
            if has_same_length and np.abs(first - sketch).max(initial=0.0) <= within:
                members.append(place)
                break
        else:
            classes.append([place])
    return classes


def _sketches(bars: pd.DataFrame) -> tuple[list[int], list[NDArray[np.float64]]]:
    """The ranks, and for each an array that summarizes its work: equal arrays mean equal work.

    The array has, for each kind of bar, the number of lanes with such bars, and when they begin,
    when they end and how long they are busy, each sorted and as a fraction of the total time.
    Channel numbers are not in it, because equal ranks may use different channels.
    """
    kinds = ["rank", "part", "what"]
    spans = bars.assign(busy=bars["end"] - bars["begin"]).groupby([*kinds, "lane"], observed=True)
    lanes = spans.agg({"begin": "min", "end": "max", "busy": "sum"}) / float(bars["end"].max())
    lanes = lanes.reset_index()
    count = lanes.groupby(kinds, observed=True).size().unstack(["part", "what"], fill_value=0)
    columns = [
        lanes.sort_values([*kinds, name])[name].to_numpy() for name in ("begin", "end", "busy")
    ]
    cuts = np.flatnonzero(np.diff(lanes["rank"])) + 1
    parts = zip(count.to_numpy(), *(np.split(column, cuts) for column in columns), strict=True)
    return count.index.tolist(), [np.concatenate(part) for part in parts]


def about_trace(folder: Path) -> Mapping[str, Any]:
    """The title, the number of rows and other values in the header of a folder's trace.json.gz.

    Empty if the file is missing or of another program.
    """
    try:
        with gzip.open(folder / "trace.json.gz", "rt", encoding="utf-8") as file:
            head = json.loads(file.readline().partition(',"traceEvents"')[0] + "}")
    except (OSError, EOFError, ValueError, zlib.error):  # missing, cut off, or of another program
        return {}
    values = head.get("otherData")
    return values if isinstance(values, dict) else {}


def _with_lanes(table: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """The table with the number of each row's lane, and the names of the lanes.

    A lane is a computation stream, the launches, or a channel; they are numbered in this order.
    """
    columns = ["kind", "stream", "channel"]
    group = table.groupby(columns, observed=True, sort=False).ngroup().to_numpy()
    one_of_each = table[columns].iloc[np.unique(group, return_index=True)[1]]
    lanes = [_lane(*row) for row in one_of_each.itertuples(index=False)]
    order = sorted(set(lanes))
    number = np.array([order.index(lane) for lane in lanes], int)
    return table.assign(lane=number[group]), [name for _, _, name in order]


def _lane(kind: str, stream: str, channel: float) -> tuple[int, int, str]:
    """The lane of a row: a sort key of two numbers, then the lane's name."""
    if kind == "compute":
        return 0, 0, stream or "compute"
    if kind == "mark":
        return 1, 0, "launch"
    return 2, int(channel), f"{stream} ch{int(channel)}".strip()


def _bars(table: pd.DataFrame) -> pd.DataFrame:
    """A bar at the sender and at the receiver of each transfer, and a bar for each other row."""
    kind = table["kind"]
    moving = table[kind.isin(_MOVING)]
    on_one_rank = table[kind.isin(list(_OWN_KINDS))]
    reduces = moving["op"].str.startswith("reduce") if "op" in moving else np.zeros(len(moving))
    parts = [
        _side(moving, "src", UPPER, np.where(reduces, SEND_SUM, SEND)),
        _side(moving, "dst", LOWER, np.where(reduces, RECEIVE_SUM, RECEIVE)),
        _side(on_one_rank, "src", FULL, on_one_rank["kind"].map(_OWN_KINDS).to_numpy(object)),
    ]
    return pd.concat(parts, ignore_index=True)


def _side(
    table: pd.DataFrame, end: str, part: int, bar_kinds: NDArray[np.str_] | NDArray[np.object_]
) -> pd.DataFrame:
    """A bar for each row at its sender (`end` "src") or receiver (`end` "dst").

    A row whose sender or receiver is a group of ranks has a bar for each rank of the group.

    - `part`: the part of the lane that the bars take: its upper half, its lower half, or all of it.
    - `bar_kinds`: the kind of bar of each row.
    """
    begin = table["start_us"]
    finish = table["end_us"]
    if end == "dst":
        zero = pd.Series(0.0, table.index)
        wait = table.get("startup_us", zero).fillna(0.0)
        delay = table.get("latency_us", zero).fillna(0.0)
        begin = (begin + wait).clip(upper=finish) + delay
        finish = finish + delay
    kinds = pd.Categorical(bar_kinds, list(BAR_KINDS))
    steps = table["step"].astype(int)
    bars = table[["lane"]].assign(part=part, begin=begin, end=finish, what=kinds, step=steps)
    ends = table[end].cat
    groups = [[int(rank) for rank in text.split(";")] for text in ends.categories]
    row, rank = spelled_out(groups, ends.codes.to_numpy())
    return bars.iloc[row].assign(rank=rank)


def _with_tracks(bars: pd.DataFrame) -> pd.DataFrame:
    """The bars with their tracks: bars that overlap on the same part of a lane get different
    tracks.
    """
    bars = bars.sort_values(["begin", "end"], kind="stable").reset_index(drop=True)
    begin = bars["begin"].to_numpy()
    end = bars["end"].to_numpy()
    track = np.zeros(len(bars), int)
    tracks = np.ones(len(bars), int)
    for members in bars.groupby(["rank", "lane", "part"], sort=False).indices.values():
        spans = zip(begin[members].tolist(), end[members].tolist(), strict=True)
        track[members] = [*packed(spans, 1e-9 * float(end[members].max()))]
        tracks[members] = track[members].max() + 1
    return bars.assign(track=track, tracks=tracks)


# The timeline of a run: a band for each GPU, in it a lane for each channel, with sends above
# receives. The color of a bar says what it does to the data, so that the phases of an algorithm are
# visible. Bars that are wide enough show their step.

COLORS = {what: look.color for what, look in style.looks("row").items()}
_TIMELINE_WIDTH = 11.0
_THIN = 0.0008  # the least width of a bar, as a fraction of the timeline
_GAP = 0.35  # the height between two bands, in lanes
_MOST_BARS = 5_000  # more bars are stored as an image in the SVG
_MOST_LABELS = 600


def plot_timeline(trace: Path, out_dir: Path) -> list[Path]:
    """Draw the timeline of a trace.csv into a folder; return the pictures, none if no row takes
    time.
    """
    gantt = read_gantt(trace)
    figures = {} if gantt.bars.empty else {"timeline": lambda: timeline_figure(gantt)}
    return style.drawn(out_dir, figures)


def timeline_figure(gantt: Gantt) -> Figure:
    """The figure of a timeline: the bands of all ranks over one time axis, with a legend of the
    kinds of bars.
    """
    bands = len(gantt.ranks)
    lanes = len(gantt.lanes)
    total = bands * (lanes + _GAP)
    inches = min(max(0.42 * total, 2.0), max(9.0, 0.16 * total))
    figure, axes = style.one_panel(_TIMELINE_WIDTH, inches + 1.1)
    unit, factor = style.time_unit(float(gantt.bars["end"].max()))
    boxes = _boxes(gantt, factor)
    bars = PolyCollection(
        _corners(boxes),  # type: ignore[arg-type]  # an array is accepted and faster
        facecolors=np.array([COLORS[what] for what in BAR_KINDS])[gantt.bars["what"].cat.codes],
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
    present = set(gantt.bars["what"])
    patches = [Patch(color=COLORS[what], label=what) for what in COLORS if what in present]
    figure.legend(handles=patches, loc="outside lower left", ncols=len(patches))
    title = ", ".join(filter(None, (gantt.title, gantt.note)))
    axes.set_title(style.wrapped(title, _TIMELINE_WIDTH), loc="left")
    return figure


def _boxes(gantt: Gantt, factor: float) -> np.ndarray:
    """The left, right, top and bottom edge of each bar as a row; `factor` is the µs of one unit of
    the x axis.
    """
    bars = gantt.bars
    band = np.searchsorted(list(gantt.ranks), bars["rank"])
    lane = bars["lane"].to_numpy()
    half = bars["part"].to_numpy()
    height = np.where(half == FULL, 0.94, 0.46)
    top = band * (len(gantt.lanes) + _GAP) + lane + np.where(half == LOWER, 0.5, 0.03)
    share = height / bars["tracks"].to_numpy()
    top = top + bars["track"].to_numpy() * share
    left = bars["begin"].to_numpy() / factor
    right = bars["end"].to_numpy() / factor
    right = np.maximum(right, left + _THIN * right.max())
    return np.column_stack([left, right, top, top + share])


def _corners(boxes: np.ndarray) -> np.ndarray:
    """The four corners (x, y) of each box; `boxes` has left, right, top and bottom."""
    left, right, top, bottom = boxes.T
    around = np.array([(left, top), (right, top), (right, bottom), (left, bottom)])
    return np.moveaxis(around, 2, 0)


def _name_bands(axes: Axes, gantt: Gantt, inches: float) -> None:
    """Write the names of ranks beside their bands and, if there is room, those of lanes."""
    lanes = len(gantt.lanes)
    step = lanes + _GAP
    interval = max(1, int(np.ceil(0.15 / (inches * step))))
    middles = [i * step + lanes / 2 for i in range(len(gantt.ranks))]
    axes.set_yticks(middles[::interval], list(gantt.ranks.values())[::interval])
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
    """Write the steps into the bars that have room; `inches` is the height of a lane."""
    points = _TIMELINE_WIDTH * 0.85 * 72 / boxes[:, 1].max()
    size = np.minimum((boxes[:, 3] - boxes[:, 2]) * inches * 72 * 0.75, 8)
    steps, which = np.unique(bars["step"], return_inverse=True)
    texts = np.array([f"s{step}" for step in steps.tolist()])
    room = (boxes[:, 1] - boxes[:, 0]) * points
    long = np.char.str_len(texts)[which]
    fits = (size >= 5) & (room > size * 0.7 * long) & (bars["what"] != LAUNCH)
    for i in np.flatnonzero(fits)[:_MOST_LABELS]:
        dark = bars["what"].iloc[i] in (SEND, SEND_SUM, COMPUTE)
        where = boxes[i, :2].mean(), boxes[i, 2:].mean()
        color = "white" if dark else "#333333"
        text = texts[which[i]]
        axes.text(*where, text, color=color, fontsize=float(size[i]), ha="center", va="center")


# Links over time, from links_over_time.csv: the busiest links in panels, and all links as a heat
# map. Links with the same utilization at all times, such as those of symmetric GPUs, share a panel.

MOST_LINES = 8
_LEAST = 1.0  # % of utilization that a link must reach to be shown
_SAME_LOAD = 0.02  # links whose utilization never differs by more share a panel
_LINKS_WIDTH = 8.5


@dataclass(frozen=True)
class Load:
    """The utilization of each link over time, read from links_over_time.csv.

    `percent` has a row for each link and a column for each time bin; bin k is from `edges[k]` to
    `edges[k + 1]` in µs.
    """

    links: tuple[str, ...]
    edges: NDArray[np.float64]
    percent: NDArray[np.float64]
    title: str = ""


def plot_links(load_csv: Path, out_dir: Path) -> list[Path]:
    """Draw links over time as panels and as a heat map; return the paths of the files."""
    load = read_load(load_csv)
    seen = load.percent.max(axis=1, initial=0.0) >= _LEAST
    if not seen.any():
        return []
    used = (name for name, keep in zip(load.links, seen.tolist(), strict=True) if keep)
    title = about_trace(load_csv.parent).get("title", "")
    load = Load(tuple(used), load.edges, load.percent[seen], title)
    figures = {"links": lambda: lines_figure(load), "links-heatmap": lambda: heat_figure(load)}
    return style.drawn(out_dir, figures)


def read_load(path: Path) -> Load:
    """Read links_over_time.csv: the utilization of all links."""
    table = style.read_table(path, style.LOAD, "the columns of links_over_time.csv")
    table = style.filled(path, table, ("t_us", "utilisation"))
    grid = table.pivot_table(index="link", columns="t_us", values="utilisation", sort=False)
    grid = grid.sort_index(axis="columns").fillna(0.0)
    begins = np.asarray(grid.columns, np.float64)
    width = float(begins[1] - begins[0]) if len(begins) > 1 else 1.0
    edges = np.append(begins, begins[-1] + width) if len(begins) else begins
    return Load(tuple(map(str, grid.index)), edges, grid.to_numpy() * 100)


def lines_figure(load: Load) -> Figure:
    """The utilization of the busiest links over time; links with the same utilization share a
    panel."""
    order = np.argsort(-np.round(load.percent.mean(axis=1), 2), kind="stable")
    classes = _classes(load.percent[order], 100 * _SAME_LOAD)
    groups = [order[places].tolist() for places in classes]
    shown = groups[:MOST_LINES]
    figure = style.new_figure(_LINKS_WIDTH, max(2.4, 0.9 + 0.85 * len(shown)))
    panels = figure.subplots(len(shown), 1, sharex=True, sharey=True, squeeze=False)[:, 0].tolist()
    unit, factor = style.time_unit(float(load.edges[-1]))
    for axes, members in zip(panels, shown, strict=True):
        leader = members[0]
        pale = style.tint(style.BLUE, 0.35)
        axes.stairs(load.percent[leader], load.edges / factor, fill=True, color=pale)
        axes.stairs(load.percent[leader], load.edges / factor, color=style.BLUE, linewidth=1.2)
        more = f" and {len(members) - 1} equal" if len(members) > 1 else ""
        mean = f"mean {load.percent[members].mean():.0f} %"
        axes.set_title(f"{load.links[leader]}{more}, {mean}", fontsize=9, pad=3, loc="left")
        axes.set_yticks([0, 50, 100])
    panels[-1].set_ylim(0, 104)
    panels[-1].set_xlim(0, load.edges[-1] / factor)
    panels[-1].set_xlabel(f"time ({unit})")
    figure.supylabel("utilisation (%)", fontsize=10)
    few = len(groups) <= MOST_LINES
    note = "" if few else f"the busiest {MOST_LINES} of {len(groups)} that differ"
    if text := "; ".join(filter(None, (load.title, note))):
        figure.suptitle(style.wrapped(text, _LINKS_WIDTH), x=0.01, ha="left", fontsize=11)
    return figure


def heat_figure(load: Load) -> Figure:
    """A heat map of the utilization: a row for every link, a column for every bin."""
    rows = len(load.links)
    width = _LINKS_WIDTH + 0.06 * max(map(len, load.links))
    figure, axes = style.one_panel(width, 1.3 + max(1.2, _inches(rows)))
    unit, factor = style.time_unit(float(load.edges[-1]))
    looks: dict[str, Any] = {"cmap": "viridis", "vmin": 0, "vmax": 100, "rasterized": True}
    mesh = axes.pcolormesh(load.edges / factor, np.arange(rows + 1), load.percent, **looks)
    # Names are at the middle of the rows. If they would touch, only every n-th name is written.
    interval = max(1, int(np.ceil(0.13 * rows / _inches(rows))))
    places = np.arange(rows)[::interval]
    names = [load.links[place] for place in places]
    axes.set_yticks(places + 0.5, names, fontsize=8 if rows <= 40 else 7)
    axes.set_ylim(rows, 0)
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False)
    axes.set_xlabel(f"time ({unit})")
    title = ": ".join(filter(None, ("links over time", load.title)))
    axes.set_title(style.wrapped(title, _LINKS_WIDTH), loc="left")
    bar = figure.colorbar(mesh, ax=axes, pad=0.01, fraction=0.05, aspect=25)
    bar.set_label("utilisation (%)")
    return figure


def _inches(rows: int) -> float:
    """The height of a heat map with a number of rows."""
    return min(0.2 * rows, max(8.0, 0.09 * rows))


# The timeline of a training step: the computations of a rank, and its streams of NCCL below. It is
# drawn from the trace. Of ranks that do the same, one is drawn.

PHASES = style.looks("phase")
KINDS = style.looks("parallel")
WAITING = "waiting for the last rank"
STEP_COLORS: dict[str, style.Color] = {
    **{look.words: look.color for look in (*PHASES.values(), *KINDS.values())},
    WAITING: style.PALE,
}
SHORT = {"all_gather": "AG", "reduce_scatter": "RS", "all_reduce": "AR", "alltoall": "A2A"}
MOST_STEP_RANKS = 8
MOST_LANES = 36
SAME = 100  # times are equal if they round to the same hundredth of the step
_STEP_WIDTH = 11.0  # inches
_STEP_LANE = 0.24  # inches, the height of a lane
_STEP_GAP = 0.5  # the height between two ranks, in lanes
_STEP_THIN = 0.0012  # the least width of a bar, as a fraction of the step
_MOST_SHAPES = 5_000  # more bars are stored as an image in the SVG
_FEW = 400  # in a lane with more bars, bars have no least width


@dataclass
class _Rank:
    """A rank of a training step.

    - `lanes`: by name of the lane, its bars as (begin, end, kind), in µs.
    - `labels`: texts on bars, as (begin, end, lane, text), in µs.
    """

    name: str
    lanes: dict[str, list[tuple[float, float, str]]] = field(default_factory=dict)
    labels: list[tuple[float, float, str, str]] = field(default_factory=list)

    def sketch(self, grain: float) -> tuple[object, ...]:
        """A summary of the rank's work, equal for ranks that do the same; times are rounded to
        `grain` µs.
        """
        spans = [
            (name, len(bars), round(sum(end - begin for begin, end, _ in bars) / grain))
            for name, bars in self.lanes.items()
        ]
        first = min((bars[0][0] for bars in self.lanes.values() if bars), default=0.0)
        return (round(first / grain), *spans)

    @property
    def end(self) -> float:
        """The end of the rank's last bar in µs."""
        return max(end for bars in self.lanes.values() for _, end, _ in bars)


def plot_step(trace: Path, out_dir: Path) -> list[Path]:
    """Draw the trace of a training step into a folder; return no path if it is another trace."""
    data = json.loads(gzip.decompress(trace.read_bytes()))
    ranks = _distinct(_ranks(data))
    if not ranks:
        return []
    title = data.get("otherData", {}).get("title", "")
    return style.drawn(out_dir, {"timeline": lambda: step_figure(ranks, title)})


def step_figure(ranks: Sequence[_Rank], title: str) -> Figure:
    """A band for each rank of a training step: computations above, a lane for each stream of NCCL
    below.
    """
    lanes = [(rank, name) for rank in ranks for name in rank.lanes]
    last = max(rank.end for rank in ranks)
    unit, factor = style.time_unit(last)
    figure = style.new_figure(_STEP_WIDTH, 1.3 + _STEP_LANE * (len(lanes) + _STEP_GAP * len(ranks)))
    engine = figure.get_layout_engine()
    if isinstance(engine, ConstrainedLayoutEngine):
        engine.set(w_pad=0.15)  # names of lanes are wider than the layout engine assumes
    axes = figure.subplots()
    top = 0.0
    boxes = list[Any]()
    colors = list[Any]()
    ticks = list[tuple[float, str]]()
    for rank in ranks:
        axes.text(0, top - 0.08, rank.name, fontsize=8.5, va="bottom", color="#333333")
        for name in rank.lanes:
            short = name.removeprefix("NCCL ")
            short = short.replace("from stage ", "from ").replace("to stage ", "to ")
            ticks.append((top + 0.5, short))
            # A lane with few bars gets a least width for each, so that they are visible. Many bars
            # are drawn as wide as they take, so that they show how busy the lane is.
            least_width = _STEP_THIN * last if len(rank.lanes[name]) < _FEW else 0.0
            for begin, end, bar_kind in rank.lanes[name]:
                right = max(end, begin + least_width) / factor
                boxes.append((begin / factor, right, top + 0.06, top + 0.94))
                colors.append(STEP_COLORS[bar_kind])
            top += 1.0
        _label(axes, rank, top - len(rank.lanes), factor, last)
        top += _STEP_GAP + 0.3
    many = len(boxes) > _MOST_SHAPES
    corners: Any = _corners(np.array(boxes))
    bars = PolyCollection(corners, facecolors=colors, linewidths=0, rasterized=many)
    axes.add_collection(bars)
    axes.set_xlim(0, last / factor)
    axes.set_ylim(top - _STEP_GAP, -0.7)
    axes.set_title(style.wrapped(title, _STEP_WIDTH), loc="left")
    axes.set_yticks([place for place, _ in ticks], [name for _, name in ticks], fontsize=7.5)
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    axes.set_xlabel(f"time ({unit})")
    present = {bar_kind for rank, name in lanes for *_, bar_kind in rank.lanes[name]}
    handles = [
        Patch(color=color, label=bar_kind)
        for bar_kind, color in STEP_COLORS.items()
        if bar_kind in present
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=min(6, len(handles)))
    return figure


def _label(axes: Axes, rank: _Rank, top: float, factor: float, last: float) -> None:
    """Write the micro-batch on each pass and the collective on each call, where the bar has room.

    - `top`: y of the top of the rank's band.
    - `factor`: µs of one unit of the x axis.
    - `last`: end of the step in µs.
    """
    room = _STEP_WIDTH * 0.85 * 72 / last
    places = {name: number for number, name in enumerate(rank.lanes)}
    for begin, end, lane, text in rank.labels:
        if text and (end - begin) * room > 6 * len(text):
            middle = (begin + end) / 2 / factor
            place = top + places[lane] + 0.5
            axes.text(middle, place, text, fontsize=6.5, ha="center", va="center", color="#111111")


def _ranks(data: Mapping[str, Any]) -> list[_Rank]:
    """The ranks of a trace (parsed JSON) with the bars of their lanes, lanes by thread number."""
    names = dict(_names(data, "thread_name"))
    ranks = {pid: _Rank(name) for (pid, tid), name in _names(data, "process_name") if tid == 0}
    events = [event for event in data["traceEvents"] if event.get("ph") == "X"]
    for (pid, _), name in sorted(names.items()):
        if pid in ranks and name != "passes":
            ranks[pid].lanes[name] = []
    for event in events:
        pid = event["pid"]
        lane = names.get((event["pid"], event["tid"]), "")
        bar = (event["ts"], event["ts"] + event["dur"])
        if event["cat"] == "gpu_user_annotation":
            number = event["name"].split()[2] if event["name"][1:5] == " mb " else ""
            ranks[pid].labels.append((*bar, "compute", number))
        elif event["cat"] == "wait":
            ranks[pid].lanes[lane].append((*bar, WAITING))
        else:
            look = KINDS.get(lane.removeprefix("NCCL ").split()[0], KINDS["extra"])
            if lane == "compute":
                look = PHASES.get(event["args"].get("phase", ""), PHASES[""])
            ranks[pid].lanes[lane].append((*bar, look.words))
            ranks[pid].labels.append((*bar, lane, SHORT.get(event["name"].split()[0], "")))
    return [rank for rank in ranks.values() if any(rank.lanes.values())]


def _names(data: Mapping[str, Any], kind: str) -> Iterator[tuple[tuple[int, int], str]]:
    """Yield ((process, thread), name) from a trace's metadata; `kind` is "process_name" or
    "thread_name".
    """
    for event in data["traceEvents"]:
        if event.get("ph") == "M" and event["name"] == kind:
            yield (event["pid"], event["tid"]), event["args"]["name"]


def _distinct(ranks: Sequence[_Rank]) -> list[_Rank]:
    """One rank of each class of equal ranks; its name says how many are equal.

    At most MOST_STEP_RANKS ranks and MOST_LANES lanes.
    """
    grain = max((rank.end for rank in ranks), default=0.0) / SAME
    representatives = []
    for members in grouped(ranks, lambda rank: rank.sketch(grain)).values():
        if len(members) > 1:
            members[0].name += f", and {len(members) - 1} equal"
        representatives.append(members[0])
    lane_count = 0
    shown = list[_Rank]()
    for rank in representatives[:MOST_STEP_RANKS]:
        lane_count += len(rank.lanes)
        if shown and lane_count > MOST_LANES:
            break
        shown.append(rank)
    return shown


GB = 1e9
MOST_STAGES = 8


def plot_memory(path: Path, out_dir: Path) -> list[Path]:
    """Draw memory_over_time.csv; return the paths of the files."""
    needed = ("stage", "rank", "time_us", "bytes", "gpu_bytes")
    table = style.read_values(path, needed, "the columns of memory_over_time.csv")
    return [] if table.empty else style.drawn(out_dir, {"memory": lambda: memory_figure(table)})


def memory_figure(table: pd.DataFrame) -> Figure:
    """A panel for each pipeline stage: constant memory, activations on top of it, the peak, and the
    GPU's memory.
    """
    stages = sorted(table["stage"].unique())
    # If there are many stages, draw evenly spaced ones, among them the first and the last.
    stages = [stages[k] for k in evenly_spaced(len(stages), MOST_STAGES)]
    figure = style.new_figure(9.5, 0.9 + 1.35 * len(stages))
    panels = figure.subplots(len(stages), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
    unit, factor = style.time_unit(float(table["time_us"].max()))
    for axes, stage in zip(panels, stages, strict=True):
        _panel(axes, table[table["stage"] == stage], factor)
        axes.set_ylabel("GB")
        axes.set_title(f"stage {stage}" if len(stages) > 1 else "", loc="left", fontsize=9)
    highest = max(float(table["bytes"].max()), 0.0) / GB
    room = float(table["gpu_bytes"].max()) / GB
    panels[0].set_ylim(0, max(highest * 1.3, room * 1.08 if room < 2 * highest else 0))
    panels[-1].set_xlabel(f"time ({unit})")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4)
    return figure


def _panel(axes: Axes, table: pd.DataFrame, factor: float) -> None:
    """Draw the memory of a stage over time; `factor` is the µs of a unit of time."""
    when = table["time_us"] / factor
    total = table["bytes"] / GB
    constant = float((table["bytes"] - table["activations_bytes"]).min()) / GB
    looks: dict[str, Any] = {"step": "post", "linewidth": 0}
    axes.fill_between(when, 0, constant, color=style.PALE, label="states and buffers", **looks)
    blue = style.tint(style.BLUE, 0.5)
    axes.fill_between(when, constant, total, color=blue, label="activations", **looks)
    peak = int(total.to_numpy().argmax())
    axes.plot(when.iloc[peak], total.iloc[peak], "v", color=style.ORANGE, label="peak")
    axes.annotate(
        f"{total.iloc[peak]:.3g} GB",
        (when.iloc[peak], total.iloc[peak]),
        (0, 5),
        textcoords="offset points",
        ha="center",
        fontsize=8,
    )
    room = float(table["gpu_bytes"].max()) / GB
    if room < 2 * float(total.max()):
        axes.axhline(room, color=style.GREY, linestyle="--", linewidth=1, label="memory of a GPU")
    axes.margins(x=0.01)


# The states of a schedule step by step: a grid of ranks by chunks, with the contributions that each
# rank holds.

MOST_STATES = 16  # if there are more, evenly spaced ones with the first and the last are shown
_MOST_TERMS = 6  # a cell lists each of up to this many contributions
_STATES_WIDTH = 12.0  # inches, the largest width of a row of grids


def plot_states(
    states: Sequence[State], chunks: Sequence[str], stem: Path, title: str = ""
) -> list[Path]:
    """Draw the states of an algorithm and return the files, `stem` with each suffix; `chunks` has
    the chunk labels.
    """
    return style.drawn(stem.parent, {stem.name: lambda: states_figure(states, chunks, title)})


def states_figure(states: Sequence[State], chunks: Sequence[str], title: str = "") -> Figure:
    """A grid for each state (after each step), with ranks as rows and chunks as columns.

    Cells show which ranks' contributions are summed; complete chunks are green.
    """
    shown = evenly_spaced(len(states), MOST_STATES)
    ranks = len(states[0].held)
    wide, high = _text_inches(states)
    spelled = wide * len(chunks) <= _STATES_WIDTH and high * ranks <= _STATES_WIDTH
    if not spelled:
        wide = high = max(min(0.13, 2.6 / max(ranks, len(chunks))), 0.01)
    width = max(wide * len(chunks), 1.3)
    height = max(high * ranks, 1.0)
    across = min(max(1, int(_STATES_WIDTH / (width + 0.3))), len(shown))
    down = -(-len(shown) // across)
    across = -(-len(shown) // down)  # about the same number of grids in every line
    figure = style.new_figure(across * (width + 0.25) + 0.8, down * (height + 0.55) + 0.75)
    panels = figure.subplots(down, across, squeeze=False).ravel().tolist()
    draw = _draw_spelled if spelled else _draw_small
    for k, axes in enumerate(panels):
        axes.set_visible(k < len(shown))
        if k < len(shown):
            before = states[shown[k] - 1] if shown[k] else None
            draw(axes, states[shown[k]], before, chunks)
            _name_cells(axes, states[shown[k]], chunks, named=k % across == 0)
    left_out = f", {len(shown)} of {len(states)} states" if len(shown) < len(states) else ""
    figure.suptitle(title + left_out, x=0.01, ha="left", fontsize=12)
    _states_legend(figure, [states[i] for i in shown], spelled=spelled)
    return figure


def _text_inches(states: Sequence[State]) -> tuple[float, float]:
    """The width and the height in inches of a cell of the grids, with room for the longest text of
    a sum.
    """
    sums = {h.origins for state in states for row in state.held for h in row}
    texts = [_sum(origins, "a").split("\n") for origins in sums]
    longest = max((len(line) for text in texts for line in text), default=2)
    return 0.16 + 0.085 * longest, 0.14 + 0.145 * max(map(len, texts), default=1)


def _draw_spelled(axes: Axes, state: State, before: State | None, chunks: Sequence[str]) -> None:
    """Draw a grid of chunks by ranks with the sums as text, and a border around cells that changed
    since `before`.
    """
    cells = [(r, c, h) for r, row in enumerate(state.held) for c, h in enumerate(row)]
    boxes = [Rectangle((c, r), 1, 1) for r, c, _ in cells]
    fill = [_color(holding, len(state.held)) for _, _, holding in cells]
    axes.add_collection(PatchCollection(boxes, facecolors=fill, edgecolors="white", linewidths=1.0))
    new = [box for box, cell in zip(boxes, cells, strict=True) if _is_new(before, *cell)]
    rim: dict[str, Any] = {"facecolors": "none", "edgecolors": style.ORANGE, "linewidths": 1.6}
    axes.add_collection(PatchCollection(new, zorder=3, **rim))
    for r, c, holding in cells:
        weight = "bold" if holding.complete else "normal"
        text = _sum(holding.origins, chunks[c])
        axes.text(c + 0.5, r + 0.5, text, ha="center", va="center", fontsize=8, weight=weight)


def _draw_small(axes: Axes, state: State, before: State | None, chunks: Sequence[str]) -> None:
    """Draw a grid of small cells without text; cells that changed since the state `before` are
    orange.
    """
    ranks = len(state.held)
    new = style.tint(style.ORANGE, 0.8)
    colors = [
        new if _is_new(before, r, c, holding) else _color(holding, ranks)
        for r, row in enumerate(state.held)
        for c, holding in enumerate(row)
    ]
    image = np.array(colors).reshape(ranks, len(chunks), 3)
    axes.imshow(image, extent=(0, len(chunks), ranks, 0), interpolation="nearest", aspect="auto")


def _name_cells(axes: Axes, state: State, chunks: Sequence[str], *, named: bool) -> None:
    """Write the step above a grid, the chunks below it and, if `named`, the ranks at its left."""
    ranks = len(state.held)
    axes.set_xlim(-0.03, len(chunks) + 0.03)
    axes.set_ylim(ranks + 0.03, -0.03)
    axes.set_title(
        "at the start" if state.step < 0 else f"after step {state.step}", fontsize=10, loc="left"
    )
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    columns = range(0, len(chunks), max(1, len(chunks) // 12))
    axes.set_xticks([c + 0.5 for c in columns], [chunks[c] for c in columns], fontsize=8)
    lines = range(0, ranks, max(1, ranks // 12))
    names = [f"rank {r}" if named else "" for r in lines]
    axes.set_yticks([r + 0.5 for r in lines], names, fontsize=8)
    axes.tick_params(length=0, pad=2)


def _color(holding: Holding, ranks: int) -> tuple[float, float, float]:
    """The color of a cell: darker blue with each contribution, green if complete, gray if empty.

    Amber if a contribution is counted twice. `ranks` is the number of contributions of a complete
    chunk.
    """
    if not holding.origins:
        return (0.96, 0.96, 0.96)
    if len(set(holding.origins)) < len(holding.origins):
        return style.tint(style.AMBER, 0.8)  # a contribution is counted twice
    if holding.complete:
        return style.tint(style.GREEN, 0.5)
    return style.tint(style.BLUE, 0.12 + 0.38 * len(holding.origins) / ranks)


def _is_new(before: State | None, rank: int, chunk: int, holding: Holding) -> bool:
    """Whether a rank's contributions to a chunk differ from those in the state before."""
    return before is not None and before.held[rank][chunk].origins != holding.origins


def _sum(origins: tuple[int, ...], chunk: str) -> str:
    """The contributions of the ranks `origins` to a chunk as text: `a0+a1`, or `a[0-6,9]` if there
    are many.
    """
    if len(origins) > _MOST_TERMS:
        return f"{chunk}[{runs(origins)}]"
    terms = [f"{chunk}{rank}" for rank in origins]
    lines = ["+".join(terms[i : i + 2]) for i in range(0, len(terms), 2)]
    return "\n+".join(lines)


def _states_legend(figure: Figure, states: Sequence[State], *, spelled: bool) -> None:
    """Draw the legend of the colors that occur."""
    held = [holding for state in states for row in state.held for holding in row]
    patches = [Patch(facecolor=style.tint(style.GREEN, 0.5), label="complete")]
    if any(h.origins and not h.complete for h in held):
        patches.insert(0, Patch(facecolor=style.tint(style.BLUE, 0.35), label="part of the sum"))
    if any(len(set(h.origins)) < len(h.origins) for h in held):
        patches.append(Patch(facecolor=style.tint(style.AMBER, 0.8), label="counted twice"))
    inside = "none" if spelled else style.tint(style.ORANGE, 0.8)
    patches.append(Patch(facecolor=inside, edgecolor=style.ORANGE, label="changed in this step"))
    looks: dict[str, Any] = {"ncols": len(patches), "labelcolor": style.BLACK}
    figure.legend(handles=patches, loc="outside lower left", **looks)
