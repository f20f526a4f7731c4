"""Pictures of an explained step: where its critical path and its GPUs spend their time, and how
long it would take with something faster or free. Drawn from the values of explain.json alone.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from netsim.plots.style import (
    AMBER,
    BLACK,
    BLUE,
    FORMATS,
    GREEN,
    ORANGE,
    PINK,
    SKY,
    YELLOW,
    drawing,
    new_figure,
    save,
    time_text,
    time_unit,
    tint,
)  # fmt: skip

Colour = str | tuple[float, float, float]
KINDS: dict[str, Colour] = {
    "tp": BLUE, "cp": SKY, "ep": PINK, "dp": ORANGE, "pp": AMBER, "extra": BLACK,
}  # fmt: skip
WORK: dict[str, Colour] = {
    "computing": tint(GREEN, 0.6), "compute, forward": tint(GREEN, 0.4),
    "compute, backward": tint(GREEN, 0.9), "compute, weights": tint(YELLOW, 0.9),
    "compute, step": "#8c8c8c", "compute, slowed by NCCL": tint(PINK, 0.35), "waiting": "#c8c8c8",
}  # fmt: skip
OTHER: Colour = "#5a5a5a"
ROOM = 0.05  # of the step: parts that are wide enough for their name


def plot_explained_step(
    found: Mapping[str, Any], folder: Path, formats: Sequence[str] = FORMATS
) -> list[Path]:
    """Draw both pictures; the files written."""
    with drawing():
        figures = {"explain-breakdown": breakdown_figure(found), "explain-what-if": answers(found)}
        return [
            path
            for name, figure in figures.items()
            for path in save(figure, folder / name, formats)
        ]


def breakdown_figure(found: Mapping[str, Any]) -> Figure:
    """A stacked bar of the critical path, and one of the GPUs (of every stage)."""
    bars = [("critical path", found["causes_us"])]
    bars += [
        (one["gpus"], {name: value for name, value in one.items() if name != "gpus"})
        for one in found["gpus_us"]
    ]
    figure = new_figure(9.5, 1.5 + 0.45 * len(bars))
    axes = figure.subplots()
    _, factor = time_unit(found["time_us"])
    seen: dict[str, Colour] = {}
    for place, (_, parts) in enumerate(bars):
        _stack(axes, place, parts, found["time_us"], factor, seen)
    _finish(axes, [name for name, _ in bars], found)
    handles = [axes.barh(0, 0, color=colour, label=name) for name, colour in seen.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=4)
    return figure


def _stack(
    axes: Axes,
    place: int,
    parts: Mapping[str, float],
    whole: float,
    factor: float,
    seen: dict[str, Colour],
) -> None:
    left = 0.0
    for name, value in parts.items():
        width = value / factor
        if value > 1e-3 * whole:
            colour = seen.setdefault(name, _colour(name))
            axes.barh(place, width, left=left, height=0.7, color=colour, edgecolor="white", lw=0.5)
            if value > ROOM * whole:
                axes.text(
                    left + width / 2, place, f"{value / whole:.0%}", ha="center", va="center",
                    fontsize=8, color="white" if colour in (BLUE, BLACK, OTHER) else "#111111",
                )  # fmt: skip
        left += width


def _colour(name: str) -> Colour:
    if name in WORK:
        return WORK[name]
    if name.startswith("exposed "):
        return KINDS.get(name.removeprefix("exposed "), OTHER)
    kind, _, rest = name.partition(" ")
    colour = KINDS.get(kind, OTHER)
    return tint(str(colour), 0.45) if rest.startswith("sharing") else colour


def answers(found: Mapping[str, Any]) -> Figure:
    """The step as it is, and with each thing 10 % faster, and free."""
    rows = found["answers"]
    figure = new_figure(9.5, 1.6 + 0.5 * len(rows))
    axes = figure.subplots()
    _, factor = time_unit(found["time_us"])
    now = found["time_us"]
    for place, one in enumerate(rows):
        looks = (("free_us", -0.2, BLUE, "free"),
                 ("faster_10pct_us", 0.2, tint(BLUE, 0.45), "10 % faster"))  # fmt: skip
        for key, shift, colour, label in looks:
            value = one[key]
            if value is None:
                continue
            name = label if place == 0 else "_"
            axes.barh(place + shift, value / factor, height=0.36, color=colour, label=name)
            text = f" {time_text(value)} ({value / now - 1:+.1%})"
            axes.text(
                value / factor, place + shift, text, va="center", fontsize=8,
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.8}, zorder=3,
            )  # fmt: skip
    axes.axvline(now / factor, color="#333333", lw=1.2, label="as it is")
    _finish(axes, [one["what"] for one in rows], found, room=1.18)
    figure.legend(loc="outside lower center", ncols=3)
    return figure


def _finish(
    axes: Axes, names: Sequence[str], found: Mapping[str, Any], *, room: float = 1.0
) -> None:
    unit, factor = time_unit(found["time_us"])
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.grid(visible=False, axis="y")
    axes.set_xlim(0, found["time_us"] / factor * room)
    axes.set_xlabel(f"time ({unit})")
    axes.set_title(f"{found['title']}: {time_text(found['time_us'])}", loc="left")
