"""Cells side by side as bars, where there is only one size (or none) to plot against."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from netsim.plots.lines import Line, Lines, thinned
from netsim.plots.seeds import PERCENTILES, has_bands
from netsim.plots.style import BLACK, BLUE, GREEN, ORANGE, new_figure, time_text, time_unit

_MOST = 60  # bars that one figure shows


@dataclass(frozen=True)
class _Measure:
    """One quantity of every cell, and how to write a value of it."""

    label: str
    values: list[float]
    texts: list[str]
    colour: str
    ends: list[tuple[float, float]] | None = None  # of the outermost percentiles over seeds


def bars_figure(lines: Lines, title: str = "") -> Figure:
    """A bar for every cell: bus bandwidth and time, or the time of a training step."""
    shown = thinned(lines, _MOST).lines
    measures = _measures(pd.DataFrame([line.table.iloc[-1] for line in shown]))
    width = 0.075 * max(len(line.label) for line in shown)
    figure = new_figure(min(1 + width, 5) + 3.2 * max(len(measures), 1), 1.3 + 0.3 * len(shown))
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
    """What the cells have: those columns that are not empty."""
    measures = []
    if rows["busbw_GBps"].notna().any():
        values = rows["busbw_GBps"].tolist()
        texts = [f"{value:.4g}" for value in values]
        ideal = rows["busbw_GBps"] * rows["time_us"]
        ends = _ends(rows, "time_us")
        rates = ends and [(b / high, b / low) for b, (low, high) in zip(ideal, ends, strict=True)]
        measures.append(_Measure("bus bandwidth (GB/s)", values, texts, BLUE, rates))
    for column, what, colour in (
        ("time_us", "time of one operation", ORANGE),
        ("step_time_us", "time of a training step", GREEN),
    ):
        if column in rows.columns and rows[column].notna().any():
            values = rows[column].tolist()
            unit, factor = time_unit(max(filter(isfinite, values)))
            scaled = [value / factor for value in values]
            texts = [time_text(value) if isfinite(value) else "" for value in values]
            ends = _ends(rows, column)
            spread = ends and [(low / factor, high / factor) for low, high in ends]
            measures.append(_Measure(f"{what} ({unit})", scaled, texts, colour, spread))
    return measures


def _of_seeds(lines: Sequence[Line]) -> str:
    """What bars with ends mean."""
    if not any(has_bands(line.table) or has_bands(line.table, "step_time_us") for line in lines):
        return ""
    seeds = int(max(line.table["seeds"].max() for line in lines))
    return f"\nmedian and {PERCENTILES[0]} to {PERCENTILES[-1]} % of {seeds} seeds"


def _ends(rows: pd.DataFrame, column: str) -> list[tuple[float, float]] | None:
    """The outermost percentiles over seeds of a time."""
    if not has_bands(rows, column):
        return None
    low, high = (rows[f"{column}_p{p}"] for p in (PERCENTILES[0], PERCENTILES[-1]))
    return list(zip(low.tolist(), high.tolist(), strict=True))


def _draw(axes: Axes, measure: _Measure) -> None:
    axes.barh(range(len(measure.values)), measure.values, height=0.62, color=measure.colour)
    if measure.ends:
        for place, (low, high) in enumerate(measure.ends):
            axes.plot([low, high], [place, place], color=BLACK, linewidth=1.2, marker="|")
    furthest = [high for _, high in measure.ends or []] or measure.values
    for place, (end, text) in enumerate(zip(furthest, measure.texts, strict=True)):
        if isfinite(end):
            axes.annotate(text, (end, place), (5, 0), textcoords="offset points", va="center",
                          fontsize=9)  # fmt: skip
    axes.set_xlabel(measure.label)
    axes.set_xlim(0, 1.28 * max(filter(isfinite, furthest), default=1.0))
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="y", length=0)
