"""Cells side by side as bars, where there is only one size (or none) to plot against."""

from dataclasses import dataclass
from math import isfinite

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from netsim.plots.lines import Lines
from netsim.plots.style import BLUE, GREEN, ORANGE, new_figure, time_text, time_unit

_MOST = 60  # bars that one figure shows


@dataclass(frozen=True)
class _Measure:
    """One quantity of every cell, and how to write a value of it."""

    label: str
    values: list[float]
    texts: list[str]
    colour: str


def bars_figure(lines: Lines, title: str = "") -> Figure:
    """A bar for every cell: bus bandwidth and time, or the time of a training step."""
    shown = lines.lines[:_MOST]
    measures = _measures(pd.DataFrame([line.table.iloc[-1] for line in shown]))
    width = 0.075 * max(len(line.label) for line in shown)
    figure = new_figure(min(1 + width, 5) + 3.2 * max(len(measures), 1), 1.3 + 0.3 * len(shown))
    panels = figure.subplots(1, max(len(measures), 1), sharey=True, squeeze=False)[0]
    for axes, measure in zip(panels, measures, strict=False):
        _draw(axes, measure)
    panels[0].set_yticks(range(len(shown)), [line.label for line in shown])
    panels[0].set_ylim(len(shown) - 0.4, -0.6)
    more = f" (the first {_MOST} of {len(lines.lines)} cells)" if len(lines.lines) > _MOST else ""
    figure.suptitle(title + more, x=0.01, ha="left", fontsize=12)
    return figure


def _measures(rows: pd.DataFrame) -> list[_Measure]:
    """What the cells have: those columns that are not empty."""
    measures = []
    if rows["busbw_GBps"].notna().any():
        values = rows["busbw_GBps"].tolist()
        texts = [f"{value:.4g}" for value in values]
        measures.append(_Measure("bus bandwidth (GB/s)", values, texts, BLUE))
    for column, what, colour in (
        ("time_us", "time of one operation", ORANGE),
        ("step_time_us", "time of a training step", GREEN),
    ):
        if column in rows.columns and rows[column].notna().any():
            values = rows[column].tolist()
            unit, factor = time_unit(max(filter(isfinite, values)))
            scaled = [value / factor for value in values]
            texts = [time_text(value) if isfinite(value) else "" for value in values]
            measures.append(_Measure(f"{what} ({unit})", scaled, texts, colour))
    return measures


def _draw(axes: Axes, measure: _Measure) -> None:
    bars = axes.barh(range(len(measure.values)), measure.values, height=0.62, color=measure.colour)
    axes.bar_label(bars, measure.texts, padding=4, fontsize=9)
    axes.set_xlabel(measure.label)
    axes.margins(x=0.22)
    axes.set_xlim(left=0)
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="y", length=0)
