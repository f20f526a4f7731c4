"""Pictures of explanations: where the time goes, what would change it, training steps and their
calls.

An explanation is the content of explain.json as a dictionary; its times are in µs.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from netsim.base.units import format_size
from netsim.measured.training import published_like
from netsim.plots import style
from netsim.plots.sizes import AXIS, read_results, telling
from netsim.plots.style import BLACK, BLUE, ORANGE, Color, drawn, looks, one_panel, time_unit, tint
from netsim.results.workspace import MANIFEST, read_manifest
from netsim.scenario.cells import with_settings
from netsim.yamlio.read import parse_source

CAUSES = looks("cause")
_ROWS = 12  # most parameters of a tornado chart
_LANES = 32  # most GPUs of a timeline; if there are more, only those on the path are shown
_UNSURE = 0.4  # strength of the color of an estimate that was not simulated
_LEAST = 1e-3  # a parameter that changes the time by a smaller fraction is left out


def plot_explanation(explanation: Mapping[str, Any], folder: Path) -> list[Path]:
    """Draw the pictures of an operation's explanation into a folder; return their paths."""
    title = explanation.get("title", "")
    return drawn(
        folder,
        {
            "explain-breakdown": lambda: breakdown_figure({"": explanation}, title),
            "explain-tornado": lambda: tornado_figure(explanation, title),
            "explain-timeline": lambda: timeline_figure(explanation, title),
        },
    )


def breakdown_figure(explanations: Mapping[str, Mapping[str, Any]], title: str = "") -> Figure:
    """A figure with a stacked bar for each explanation: the time of each cause.

    `explanations` has the explanations by the name of their bar.
    """
    figure, axes = one_panel(7.6, 1.5 + 0.55 * len(explanations))
    longest = max(explanation["time_us"] for explanation in explanations.values()) or 1.0
    unit, factor = time_unit(longest)
    for place, explanation in enumerate(explanations.values()):
        parts = [
            (explanation["causes_us"].get(cause, 0.0), look.color) for cause, look in CAUSES.items()
        ]
        _stack(axes, place, parts, explanation["time_us"] or 1.0, longest, factor)
        axes.text(
            explanation["time_us"] / factor,
            place,
            f" {style.time_text(explanation['time_us'])}",
            va="center",
        )
    axes.set_xlim(0, 1.12 * longest / factor)
    axes.set_yticks(range(len(explanations)), list(explanations))
    axes.set_ylim(len(explanations) - 0.4, -0.6)
    axes.set_xlabel(f"time ({unit})")
    axes.grid(axis="y", visible=False)
    used = [
        c
        for c in CAUSES
        if any(explanation["causes_us"].get(c, 0) > 0 for explanation in explanations.values())
    ]
    handles = [Patch(color=CAUSES[cause].color, label=CAUSES[cause].words) for cause in used]
    figure.legend(handles=handles, loc="outside lower left", ncols=min(4, len(handles) or 1))
    axes.set_title(style.wrapped(title, 7), loc="left")
    return figure


def _stack(
    axes: Axes,
    place: int,
    parts: Iterable[tuple[float, Color]],
    total: float,
    longest: float,
    factor: float,
) -> None:
    """Draw a stacked bar at the y position `place`; a wide part shows its percentage of `total`
    (µs).

    - `parts`: (value in µs, color) of each part.
    - `longest`: length of the longest bar of the figure in µs.
    - `factor`: µs of one unit of the x axis.
    """
    left = 0.0
    for value, color in parts:
        width = value / factor
        if value > 1e-3 * longest:
            axes.barh(place, width, left=left, height=0.66, color=color, edgecolor="white", lw=0.5)
        if value > ROOM * longest:
            red, green, blue = to_rgb(color)
            dark = 0.3 * red + 0.6 * green + 0.1 * blue < DARK
            axes.text(
                left + width / 2,
                place,
                f"{value / total:.0%}",
                ha="center",
                va="center",
                fontsize=8.5,
                color="white" if dark else BLACK,
            )
        left += width


def tornado_figure(explanation: Mapping[str, Any], title: str = "") -> Figure | None:
    """A pair of bars for each parameter: how the time changes if the parameter is 10 % worse or
    better.

    None if no parameter changes the time. Changes that were estimated from the critical path
    instead of simulated are pale.
    """
    now = explanation["time_us"]
    shown = [(parameter, _swing(parameter, now)) for parameter in explanation["parameters"]]
    shown = [pair for pair in shown if abs(pair[1][0] - pair[1][1]) > _LEAST]
    shown.sort(key=lambda pair: -abs(pair[1][0] - pair[1][1]))
    shown = shown[:_ROWS]
    if not shown:
        return None
    figure, axes = one_panel(7.6, 1.7 + 0.38 * len(shown))
    for place, (parameter, changes) in enumerate(shown):
        strength = 1.0 if _simulated(parameter) else _UNSURE
        _draw_swing(axes, place, changes, strength)
    axes.axvline(0, color=BLACK, linewidth=1)
    axes.set_yticks(range(len(shown)), [_parameter(parameter) for parameter, _ in shown])
    axes.set_ylim(len(shown) - 0.4, -0.6)
    axes.grid(axis="y", visible=False)
    axes.margins(x=0.16)
    axes.xaxis.set_major_formatter(lambda value, _: f"{100 * value:+.3g} %" if value else "0")
    axes.set_xlabel(f"change of the time ({style.time_text(now)})")
    handles = [Patch(color=ORANGE, label="10 % worse"), Patch(color=BLUE, label="10 % better")]
    if not all(_simulated(parameter) for parameter, _ in shown):
        pale = tint(style.GREY, _UNSURE)
        handles.append(Patch(color=pale, label="pale: by the critical path, not simulated"))
    figure.legend(handles=handles, loc="outside lower left", ncols=3)
    axes.set_title(style.wrapped(title, 5), loc="left")
    return figure


def _simulated(parameter: Mapping[str, Any]) -> bool:
    """Whether the changes of a parameter were simulated."""
    return parameter["worse_10pct_us"] is not None


def _swing(parameter: Mapping[str, Any], now: float) -> tuple[float, float]:
    """Two relative changes of the time `now` (µs): if a parameter is 10 % worse, and if it is 10 %
    better.

    They are simulated, or else estimated from the critical path.
    """
    if _simulated(parameter):
        return parameter["worse_10pct_us"] / now - 1, parameter["better_10pct_us"] / now - 1
    part = parameter["on_path_us"] / now
    if parameter["per_percent_us"] < 0:  # a rate
        return part * (1 / 0.9 - 1), part * (1 / 1.1 - 1)
    return part * 0.1, -part * 0.1


def _draw_swing(axes: Axes, place: int, changes: tuple[float, float], strength: float) -> None:
    """Draw the two bars of a parameter at the y position `place`, paler with less `strength`.

    If both changes have the same sign, the shorter bar is drawn on top of the longer.
    """
    bars = list(zip(changes, (ORANGE, BLUE), ("worse", "better"), strict=True))
    bars.sort(key=lambda bar: -abs(bar[0]))
    (far, *_), (near, *_) = bars
    together = far * near > 0
    for number, (change, color, _) in enumerate(bars):
        height = 0.34 if together and number else 0.62
        axes.barh(place, change, color=tint(color, strength), height=height)
    if together and abs(near) > _LEAST:
        _label_change(axes, place, far, ", ".join(f"{c:+.1%} {name}" for c, _, name in bars))
    else:
        for change in (far, near):
            _label_change(axes, place, change, f"{change:+.1%}")


def _label_change(axes: Axes, place: int, change: float, text: str) -> None:
    """Write a text at the end of a bar of length `change`, unless the bar is too small to see.

    - `place`: the y of the bar.
    - `change`: the relative change of the time, negative to the left.
    """
    if abs(change) > _LEAST:
        sign = 1 if change > 0 else -1
        axes.annotate(
            text,
            (change, place),
            (4 * sign, 0),
            va="center",
            textcoords="offset points",
            ha="left" if sign > 0 else "right",
            fontsize=8.5,
        )


def _parameter(parameter: Mapping[str, Any]) -> str:
    """The label of a parameter, with its value and unit."""
    value = "" if parameter["value"] is None else f" ({parameter['value']:.4g} {parameter['unit']})"
    return f"{parameter['label']}{value}".replace(" us)", " µs)")


def timeline_figure(explanation: Mapping[str, Any], title: str = "") -> Figure | None:
    """A timeline: the work of all GPUs in gray, and the critical path in the colors of
    its causes.
    """
    path = [
        row
        for row in explanation["path"]
        if row["end_us"] > row["begin_us"] or row["kind"] != "mark"
    ]
    if not path:
        return None
    names = list(explanation["slack_us"]["by_gpu"])
    on_path = dict.fromkeys(row["from_rank"] for row in path)
    ranks = list(range(len(names))) if len(names) <= _LANES else sorted([*on_path][:_LANES])
    left_out = len(names) - len(ranks)
    place = {rank: number for number, rank in enumerate(ranks)}
    unit, factor = time_unit(explanation["time_us"])
    figure, axes = one_panel(9.6, 1.6 + max(0.16, min(0.4, 9 / len(ranks))) * len(ranks))
    lanes = [(r, a, b) for r, a, b in explanation["lanes"] if r in place]
    grey = LineCollection(
        [[(a / factor, place[r]), (b / factor, place[r])] for r, a, b in lanes],
        colors=[style.PALE],
        linewidths=9,
        capstyle="butt",
    )
    grey.set_rasterized(True)
    axes.add_collection(grey)
    used = _draw_path(axes, path, place, factor)
    axes.set_yticks(
        range(len(ranks)), [names[rank] for rank in ranks], fontsize=9 if len(ranks) <= 24 else 6
    )
    axes.set_ylim(len(ranks) - 0.3, -0.7)
    axes.set_xlim(0, max(row["end_us"] for row in path) / factor * 1.01)
    axes.set_xlabel(f"time since the launch ({unit})")
    axes.grid(axis="y", visible=False)
    others = f" ({left_out} GPUs not shown)" if left_out else ""
    handles = [Patch(color=style.PALE, label=f"all other work{others}")]
    handles += [Patch(color=CAUSES[c].color, label=CAUSES[c].words) for c in CAUSES if c in used]
    figure.legend(handles=handles, loc="outside lower left", ncols=4)
    title = f"critical path: {title}" if title else "critical path"
    axes.set_title(style.wrapped(title, 9), loc="left")
    return figure


def _draw_path(
    axes: Axes, path: Sequence[Mapping[str, Any]], place: Mapping[int, int], factor: float
) -> set[str]:
    """Draw the rows of the critical path as bars in the colors of their causes, joined by lines.

    `place` has the y of each GPU's band, `factor` the µs of one unit of the x axis. Returns the
    causes drawn.
    """
    bars: dict[str, list[list[tuple[float, float]]]] = {}
    joints: list[list[tuple[float, float]]] = []
    last: tuple[float, float] | None = None
    for row in path:
        if row["from_rank"] not in place:
            last = None
            continue
        lane = place[row["from_rank"]]
        begin = row["begin_us"]
        end = row["end_us"]
        if last is not None:
            joints.append([last, (begin / factor, lane)])
        for cause in ("launch", "protocol", "transfer", "sharing", "compute"):
            spent = min(row.get(f"{cause}_us", 0.0), end - begin)
            if spent > 0:
                bars.setdefault(cause, []).append(
                    [(begin / factor, lane), ((begin + spent) / factor, lane)]
                )
                begin += spent
        last = (end / factor, lane)
    for cause, lines in bars.items():
        axes.add_collection(
            LineCollection(lines, colors=[CAUSES[cause].color], linewidths=7, capstyle="butt")
        )
    pale = tint(BLACK, 0.7)
    axes.add_collection(LineCollection(joints, colors=[pale], linewidths=0.9))
    return set(bars)


# Pictures of an explained training step: where its critical path and its GPUs spend their time, and
# the time with something faster or free. They are drawn from the values of explain.json.

KINDS = looks("parallel")
WORK = looks("spent")
OTHER: Color = "#5a5a5a"
ROOM = 0.06  # a part of a bar that exceeds this fraction of the longest bar shows its percentage
DARK = 0.55  # text is white on colors that are less light


def plot_explained_step(explanation: Mapping[str, Any], folder: Path) -> list[Path]:
    """Draw the two pictures of a training step's explanation into a folder; return their paths."""
    return drawn(
        folder,
        {
            "explain-breakdown": lambda: step_breakdown_figure(explanation),
            "explain-what-if": lambda: answers(explanation),
        },
    )


def step_breakdown_figure(explanation: Mapping[str, Any]) -> Figure:
    """A stacked bar of the critical path, and one for the GPUs of every stage."""
    bars = [("critical path", explanation["causes_us"])]
    bars += [
        (stage["gpus"], {name: value for name, value in stage.items() if name != "gpus"})
        for stage in explanation["gpus_us"]
    ]
    figure, axes = one_panel(9.5, 1.5 + 0.45 * len(bars))
    _, factor = time_unit(explanation["time_us"])
    seen: dict[str, Color] = {}
    step_us = explanation["time_us"]
    for place, (_, causes) in enumerate(bars):
        for name in (name for name, value in causes.items() if value > 1e-3 * step_us):
            seen.setdefault(name, _color(name))
        parts = [(value, seen.get(name, OTHER)) for name, value in causes.items()]
        _stack(axes, place, parts, step_us, step_us, factor)
    _finish(axes, [name for name, _ in bars], explanation)
    handles = [axes.barh(0, 0, color=color, label=name) for name, color in seen.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=4)
    return figure


def _color(name: str) -> Color:
    """The color of a cause."""
    if name in WORK:
        return WORK[name].color
    kind, _, rest = name.removeprefix("exposed ").partition(" ")
    color = KINDS[kind].color if kind in KINDS else OTHER
    return tint(color, 0.45) if rest.startswith("sharing") else color


def answers(explanation: Mapping[str, Any]) -> Figure:
    """Bars for each part of the step: the time of the step if the part were 10 % faster, or took no
    time.

    A vertical line marks the time as it is.
    """
    rows = explanation["answers"]
    figure, axes = one_panel(9.5, 1.6 + 0.5 * len(rows))
    _, factor = time_unit(explanation["time_us"])
    now = explanation["time_us"]
    for place, answer in enumerate(rows):
        looks = (
            ("free_us", -0.2, BLUE, "free"),
            ("faster_10pct_us", 0.2, tint(BLUE, 0.45), "10 % faster"),
        )
        for key, shift, color, label in looks:
            value = answer[key]
            if value is None:
                continue
            name = label if place == 0 else "_"
            axes.barh(place + shift, value / factor, height=0.36, color=color, label=name)
            text = f" {style.time_text(value)} ({value / now - 1:+.1%})"
            axes.text(
                value / factor,
                place + shift,
                text,
                va="center",
                fontsize=8,
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.8},
                zorder=3,
            )
    axes.axvline(now / factor, color="#333333", lw=1.2, label="as it is")
    _finish(axes, [answer["what"] for answer in rows], explanation, room=1.18)
    figure.legend(loc="outside lower center", ncols=3)
    return figure


def _finish(
    axes: Axes, names: Sequence[str], explanation: Mapping[str, Any], *, room: float = 1.0
) -> None:
    """Set the labels, the limits and the title of the axes.

    - `names`: the labels of the bars.
    - `room`: length of the x axis, as a multiple of the time of the step.
    """
    unit, factor = time_unit(explanation["time_us"])
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.grid(visible=False, axis="y")
    axes.set_xlim(0, explanation["time_us"] / factor * room)
    axes.set_xlabel(f"time ({unit})")
    title = f"{explanation['title']}: {style.time_text(explanation['time_us'])}"
    axes.set_title(style.wrapped(title, 8), loc="left")


PARTS = looks("part")


def plot_breakdown(path: Path, out_dir: Path) -> list[Path]:
    """Draw breakdown.csv into a folder; return the pictures, none if the file is not of training
    steps.
    """
    table = style.read_values(path, (), "breakdown.csv")
    if table.empty or "computing_us" not in table or "step_time_us" not in table:
        return []
    results_path = path.with_name("results.csv")
    results_table = read_results([results_path]) if results_path.exists() else table[:0]
    rows = scaled(table, results_table) if len(results_table) else results_table
    figures: dict[str, Callable[[], Figure]] = {"breakdown": lambda: gpu_breakdown_figure(table)}
    if len(rows):
        published_steps = published_points(rows, results_table, path.parent)
        figures["scaling"] = lambda: scaling_figure(rows, published_steps)
    return drawn(out_dir, figures)


def published_points(rows: pd.DataFrame, results: pd.DataFrame, folder: Path) -> pd.DataFrame:
    """Published training steps of the same machine, model, sequence length and data type, as rows
    to draw: name of the curve, GPUs, tokens/s and MFU (%).

    Their batches and layouts may differ. Their MFU is computed from their throughput with the ratio
    of both in the simulated steps.

    - `rows`: simulated steps, as `scaled` returns them.
    - `results`: the table of results.csv.
    - `folder`: the result folder, whose manifest has the scenario.
    """
    columns = ["line", "gpus", "tokens_per_s", "mfu_pct"]
    swept = {"axis:workload.model", "axis:workload.sequence"} & {*rows.columns}
    if swept or "mfu_pct" not in rows or not (folder / MANIFEST).exists():
        return pd.DataFrame(columns=columns)
    manifest = read_manifest(folder)
    source = with_settings(parse_source(manifest["text"], manifest["file"]), manifest["settings"])
    with_topology = rows.merge(
        results[["cell", "dtype", "topology"]].drop_duplicates("cell"), on="cell"
    )
    points = []
    for (dtype, machine), steps in with_topology.groupby(["dtype", "topology"]):
        of_rate = float((steps["mfu_pct"] * steps["gpus"] / steps["tokens_per_s"]).iloc[0])
        for published in published_like(str(machine), source.data["workload"]):
            if published.precision == dtype:
                rates = (published.rate * published.gpus, published.rate * of_rate)
                points.append((f"published: {published.origin}", published.gpus, *rates))
    return pd.DataFrame(points, columns=columns)


def scaled(steps: pd.DataFrame, results: pd.DataFrame) -> pd.DataFrame:
    """The training steps with added columns: `gpus` (their number) and `line` (the name of their
    curve).

    A curve is named by those axes that differ between steps with equally many GPUs. There are no
    rows if all steps have equally many GPUs.

    - `steps`: the table of breakdown.csv.
    - `results`: the table of results.csv, which has the number of GPUs of each cell.
    """
    if "tokens_per_s" not in steps:
        return steps[:0]
    gpus = results.drop_duplicates("cell").set_index("cell")["ranks"].astype(float)
    rows = steps.assign(gpus=steps["cell"].map(gpus)).dropna(subset=["gpus", "tokens_per_s"])
    if rows["gpus"].nunique() < 2:
        return rows[:0]
    # An axis whose value follows from the number of GPUs, such as a batch, is not part of the name.
    naming_axes = [
        axis
        for axis in rows.columns
        if axis.startswith(AXIS) and rows.groupby("gpus")[axis].nunique().max() > 1
    ]
    names = [
        ", ".join(f"{axis.rpartition('.')[2]} {row[axis]}" for axis in naming_axes)
        for _, row in rows.iterrows()
    ]
    return rows.assign(line=names).sort_values("gpus")


def scaling_figure(rows: pd.DataFrame, published: pd.DataFrame | None = None) -> Figure:
    """Tokens per second and GPU, and MFU, over the number of GPUs; dashed lines show scaling
    without loss.

    `published` steps are drawn as points.
    """
    points = rows[:0] if published is None else published
    rows = rows.assign(tokens_per_s=rows["tokens_per_s"] / rows["gpus"])
    points = points.assign(tokens_per_s=points["tokens_per_s"] / points["gpus"])
    lines = rows.groupby("line", sort=False)
    figures = [("tokens_per_s", "tokens a second and GPU")]
    if "mfu_pct" in rows:  # steps whose layers only have times have no MFU
        figures.append(("mfu_pct", "MFU (%)"))
    figure = style.new_figure(9.5, 3.8)
    panels = figure.subplots(1, len(figures), squeeze=False)[0]
    for axes, (column, label) in zip(panels, figures, strict=True):
        looks = zip(cycle(style.PALETTE), cycle(style.MARKERS), strict=False)
        for (name, line), (color, marker) in zip(lines, looks, strict=False):
            values = line[column]
            axes.plot(line["gpus"], values, color=color, marker=marker, label=name)
            axes.plot(line["gpus"].iloc[[0, -1]], values.iloc[[0, 0]], "--", color=color, lw=0.9)
        for (name, line), marker in zip(points.groupby("line"), "*P^X", strict=False):
            values = line[column]
            axes.scatter(
                line["gpus"], values, color=BLACK, marker=marker, s=42, label=name, zorder=3
            )
        axes.set_xscale("log", base=2)
        counts = sorted({*rows["gpus"], *points["gpus"]})
        axes.set_xticks(counts, [f"{count:,.0f}" for count in counts])
        axes.minorticks_off()
        axes.set_ylim(0, 1.1 * axes.get_ylim()[1])
        axes.set_xlabel("GPUs")
        axes.set_ylabel(label)
    if rows["line"].nunique() > 1 or len(points):
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    panels[0].set_title(f"{rows['scenario'].iloc[0]}; dashed: no loss", loc="left")
    return figure


def gpu_breakdown_figure(table: pd.DataFrame) -> Figure:
    """A stacked bar for each cell: how its GPUs spend a step on average; its MFU is written at the
    end.
    """
    figure, axes = one_panel(9.5, 1.6 + 0.42 * len(table))
    unit, factor = time_unit(float(table["step_time_us"].max()))
    left = pd.Series(0.0, index=table.index)
    places = range(len(table))
    for column, look in PARTS.items():
        width = table[column] / factor
        if width.max() > 0.001 * table["step_time_us"].max() / factor:
            axes.barh(places, width, left=left, color=look.color, label=look.words, height=0.72)
        left = left + width
    _describe(axes, table, factor)
    axes.set_xlabel(f"time of a step ({unit}), mean over GPUs")
    figure.legend(loc="outside lower center", ncols=3)
    axes.set_title(str(table["scenario"].iloc[0]), loc="left")
    return figure


def _describe(axes: Axes, table: pd.DataFrame, factor: float) -> None:
    """Label the bars of training steps with their cells, and write the MFU at their ends.

    `factor` is the µs of one unit of the x axis.
    """
    names = [column for column in table.columns if column.startswith(AXIS)]
    named = table.assign(**{name: telling(table[name].astype(str).tolist()) for name in names})
    labels = [
        "\n".join(f"{name.rpartition('.')[2]} {row[name]}" for name in names) or row["scenario"]
        for _, row in named.iterrows()
    ]
    axes.set_yticks(range(len(table)), labels)
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    longest = float(table["step_time_us"].max()) / factor
    axes.set_xlim(0, longest * 1.14)
    if "mfu_pct" not in table:
        return
    for place, (time, mfu) in enumerate(zip(table["step_time_us"], table["mfu_pct"], strict=True)):
        if not mfu > 0:
            continue
        text = f"{mfu:.1f} % MFU"
        axes.text(time / factor + 0.01 * longest, place, text, va="center", fontsize=8.5)


MOST = 16  # most kinds of calls that are drawn; those that take longest are chosen
_HALVES = (
    ("measured_total_us", "measured_exposed_us", ORANGE, "measured", -0.2),
    ("total_us", "exposed_us", BLUE, "simulated", 0.2),
)


def plot_calls(table: Path, out_dir: Path) -> list[Path]:
    """Draw collectives.csv of a comparison into a folder; return the pictures, none if it has no
    calls.
    """
    rows = style.read_values(table, (), "collectives.csv")
    return [] if rows.empty else drawn(out_dir, {"collectives": lambda: calls_figure(rows)})


def calls_figure(rows: pd.DataFrame) -> Figure:
    """A pair of bars for each kind of call, its measured and simulated time in a step; the longest
    first.
    """
    longest = rows[["measured_total_us", "total_us"]].max(axis=1)
    rows = rows.loc[longest.sort_values(ascending=False).index[:MOST]].reset_index(drop=True)
    figure, axes = one_panel(9.5, 1.7 + 0.5 * len(rows))
    unit, factor = time_unit(float(longest.max()))
    for total, exposed, color, _, shift in _HALVES:
        places = [place + shift for place in range(len(rows))]
        full = rows[total].fillna(0.0) / factor
        bare = rows[exposed].fillna(0.0) / factor
        bare = bare.clip(upper=full)
        axes.barh(places, bare, height=0.36, color=color)
        axes.barh(places, full - bare, left=bare, height=0.36, color=tint(color, 0.35))
    axes.set_yticks(range(len(rows)), [_label(row) for _, row in rows.iterrows()])
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    axes.set_xlabel(f"time in a step ({unit})")
    axes.set_title("Collectives of a step, measured and simulated", loc="left")
    patches = [
        Patch(color=tint(color, part), label=f"{name}, {part_name}")
        for _, _, color, name, _ in _HALVES
        for part, part_name in ((1.0, "exposed"), (0.35, "behind computing"))
    ]
    figure.legend(handles=patches, loc="outside lower center", ncols=4)
    return figure


def _label(row: pd.Series) -> str:
    """The label of a kind of call: collective, size, group, ranks and number of calls."""
    size = format_size(int(row["size_bytes"]))
    calls = row["calls"] if pd.notna(row["calls"]) else row["simulated_calls"]
    return f"{row['collective']} of {size}\n{row['group']}, {row['ranks']} ranks, {calls:g} times"
