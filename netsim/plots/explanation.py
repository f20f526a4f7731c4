"""Pictures of an explanation, from the values of explain.json alone: where the time goes (one
stacked bar), what would change it (a tornado chart), and the critical path over all GPUs.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from netsim.plots.style import (
    AMBER,
    BLACK,
    BLUE,
    FORMATS,
    GREEN,
    GREY,
    ORANGE,
    PALE,
    PINK,
    SKY,
    drawing,
    new_figure,
    save,
    time_text,
    time_unit,
    tint,
)  # fmt: skip

CAUSES = {
    "launch": ("launch", GREY),
    "wire": ("wires and switches", SKY),
    "protocol": ("protocol and start-up", AMBER),
    "transfer": ("transfer at full rate", BLUE),
    "sharing": ("sharing", ORANGE),
    "waiting": ("waiting for a peer", PINK),
    "compute": ("compute", GREEN),
}
_ROWS = 12  # parameters of a tornado
_LANES = 32  # GPUs of a timeline; of more, only those on the path are shown
_UNSURE = 0.4  # strength of colours of what was not simulated again
_LEAST = 1e-3  # part of the whole below which a parameter is left out


def plot_explanation(
    found: Mapping[str, Any], folder: Path, formats: Sequence[str] = FORMATS, *, title: str = ""
) -> list[Path]:
    """Draw what there is to draw of an explanation; the files written."""
    title = title or found.get("title", "")
    with drawing():
        figures = {
            "explain-breakdown": breakdown_figure({"": found}, title),
            "explain-tornado": tornado_figure(found, title),
            "explain-timeline": timeline_figure(found, title),
        }
        return [
            path
            for name, figure in figures.items()
            if figure is not None
            for path in save(figure, folder / name, formats)
        ]


def breakdown_figure(found: Mapping[str, Mapping[str, Any]], title: str = "") -> Figure:
    """A stacked bar of causes for every named explanation."""
    figure = new_figure(7.6, 1.5 + 0.55 * len(found))
    axes = figure.subplots()
    unit, factor = time_unit(max(one["time_us"] for one in found.values()))
    for place, one in enumerate(found.values()):
        _stack(axes, place, one, factor)
    axes.set_yticks(range(len(found)), list(found))
    axes.set_ylim(len(found) - 0.4, -0.6)
    axes.set_xlabel(f"time ({unit})")
    axes.grid(axis="y", visible=False)
    used = [c for c in CAUSES if any(one["causes_us"].get(c, 0) > 0 for one in found.values())]
    handles = [Patch(color=CAUSES[cause][1], label=CAUSES[cause][0]) for cause in used]
    figure.legend(handles=handles, loc="outside lower left", ncols=min(4, len(handles) or 1))
    axes.set_title(title, loc="left")
    return figure


def _stack(axes: Axes, place: int, one: Mapping[str, Any], factor: float) -> None:
    left = 0.0
    whole = one["time_us"] or 1.0
    for cause, (_, colour) in CAUSES.items():
        spent = one["causes_us"].get(cause, 0.0)
        if spent <= 0:
            continue
        axes.barh(place, spent / factor, left=left / factor, color=colour, height=0.62)
        if spent / whole > 0.07:
            text = f"{spent / whole:.0%}"
            middle = (left + spent / 2) / factor
            light = colour in (AMBER, SKY)
            axes.text(middle, place, text, ha="center", va="center", fontsize=9,
                      color=BLACK if light else "white")  # fmt: skip
        left += spent


def tornado_figure(found: Mapping[str, Any], title: str = "") -> Figure | None:
    """How far 10 % of each parameter moves the time, either way; None where nothing does.

    What was not simulated again is drawn pale, by its part of the critical path.
    """
    now = found["time_us"]
    shown = [(one, _swing(one, now)) for one in found["parameters"]]
    shown = [pair for pair in shown if abs(pair[1][0] - pair[1][1]) > _LEAST]
    shown.sort(key=lambda pair: -abs(pair[1][0] - pair[1][1]))
    shown = shown[:_ROWS]
    if not shown:
        return None
    figure = new_figure(7.6, 1.7 + 0.38 * len(shown))
    axes = figure.subplots()
    for place, (one, changes) in enumerate(shown):
        strength = 1.0 if _simulated(one) else _UNSURE
        _draw_swing(axes, place, changes, strength)
    axes.axvline(0, color=BLACK, linewidth=1)
    axes.set_yticks(range(len(shown)), [_parameter(one) for one, _ in shown])
    axes.set_ylim(len(shown) - 0.4, -0.6)
    axes.grid(axis="y", visible=False)
    axes.margins(x=0.16)
    axes.xaxis.set_major_formatter(lambda value, _: f"{100 * value:+.3g} %" if value else "0")
    axes.set_xlabel(f"change of the time ({time_text(now)})")
    handles = [Patch(color=ORANGE, label="10 % worse"), Patch(color=BLUE, label="10 % better")]
    if not all(_simulated(one) for one, _ in shown):
        pale = tint(GREY, _UNSURE)
        handles.append(Patch(color=pale, label="pale: by the critical path, not simulated"))
    figure.legend(handles=handles, loc="outside lower left", ncols=3)
    axes.set_title(title, loc="left")
    return figure


def _simulated(one: Mapping[str, Any]) -> bool:
    return one["worse_10pct_us"] is not None


def _swing(one: Mapping[str, Any], now: float) -> tuple[float, float]:
    """By which part of the time 10 % less and 10 % more of a parameter change it."""
    if _simulated(one):
        return one["worse_10pct_us"] / now - 1, one["better_10pct_us"] / now - 1
    part = one["on_path_us"] / now
    if one["per_percent_us"] < 0:  # a rate
        return part * (1 / 0.9 - 1), part * (1 / 1.1 - 1)
    return part * 0.1, -part * 0.1


def _draw_swing(axes: Axes, place: int, changes: tuple[float, float], strength: float) -> None:
    """The bars of a parameter. Where both point one way (what is slower may be in nobody's way),
    the shorter lies on the longer, and both figures stand behind that.
    """
    bars = list(zip(changes, (ORANGE, BLUE), ("worse", "better"), strict=True))
    bars.sort(key=lambda bar: -abs(bar[0]))
    (far, *_), (near, *_) = bars
    together = far * near > 0
    for number, (change, colour, _) in enumerate(bars):
        height = 0.34 if together and number else 0.62
        axes.barh(place, change, color=tint(colour, strength), height=height)
    if together and abs(near) > _LEAST:
        _label_change(axes, place, far, ", ".join(f"{c:+.1%} {name}" for c, _, name in bars))
    else:
        for change in (far, near):
            _label_change(axes, place, change, f"{change:+.1%}")


def _label_change(axes: Axes, place: int, change: float, text: str) -> None:
    if abs(change) > _LEAST:
        sign = 1 if change > 0 else -1
        axes.annotate(text, (change, place), (4 * sign, 0), va="center",
                      textcoords="offset points", ha="left" if sign > 0 else "right",
                      fontsize=8.5)  # fmt: skip


def _parameter(one: Mapping[str, Any]) -> str:
    value = "" if one["value"] is None else f" ({one['value']:.4g} {one['unit']})"
    return f"{one['label']}{value}".replace(" us)", " µs)")


def timeline_figure(found: Mapping[str, Any], title: str = "") -> Figure | None:
    """All GPUs over time in grey, with the critical path in the colours of its causes."""
    path = [
        row for row in found["path"] if row["end_us"] > row["begin_us"] or row["kind"] != "mark"
    ]
    if not path:
        return None
    names = list(found["slack_us"]["by_gpu"])
    on_path = dict.fromkeys(row["from_rank"] for row in path)
    ranks = list(range(len(names))) if len(names) <= _LANES else sorted([*on_path][:_LANES])
    left_out = len(names) - len(ranks)
    place = {rank: number for number, rank in enumerate(ranks)}
    unit, factor = time_unit(found["time_us"])
    figure = new_figure(9.6, 1.6 + max(0.16, min(0.4, 9 / len(ranks))) * len(ranks))
    axes = figure.subplots()
    lanes = [(r, a, b) for r, a, b in found["lanes"] if r in place]
    grey = LineCollection(
        [[(a / factor, place[r]), (b / factor, place[r])] for r, a, b in lanes],
        colors=[PALE], linewidths=9, capstyle="butt",
    )  # fmt: skip
    grey.set_rasterized(True)
    axes.add_collection(grey)
    used = _draw_path(axes, path, place, factor)
    axes.set_yticks(range(len(ranks)), [names[rank] for rank in ranks],
                    fontsize=9 if len(ranks) <= 24 else 6)  # fmt: skip
    axes.set_ylim(len(ranks) - 0.3, -0.7)
    axes.set_xlim(0, max(row["end_us"] for row in path) / factor * 1.01)
    axes.set_xlabel(f"time since the launch ({unit})")
    axes.grid(axis="y", visible=False)
    others = f" ({left_out} GPUs not shown)" if left_out else ""
    handles = [Patch(color=PALE, label=f"all other work{others}")]
    handles += [Patch(color=CAUSES[c][1], label=CAUSES[c][0]) for c in CAUSES if c in used]
    figure.legend(handles=handles, loc="outside lower left", ncols=4)
    axes.set_title(f"critical path: {title}" if title else "critical path", loc="left")
    return figure


def _draw_path(
    axes: Axes, path: Sequence[Mapping[str, Any]], place: Mapping[int, int], factor: float
) -> set[str]:
    """The rows of the path as bars in the colour of each cause, joined by lines; causes used."""
    bars: dict[str, list[list[tuple[float, float]]]] = {}
    joints: list[list[tuple[float, float]]] = []
    last: tuple[float, float] | None = None
    for row in path:
        if row["from_rank"] not in place:
            last = None
            continue
        lane = place[row["from_rank"]]
        begin, end = row["begin_us"], row["end_us"]
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
            LineCollection(lines, colors=[CAUSES[cause][1]], linewidths=7, capstyle="butt")
        )
    pale = tint(BLACK, 0.7)
    axes.add_collection(LineCollection(joints, colors=[pale], linewidths=0.9))
    return set(bars)
