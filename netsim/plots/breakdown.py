"""Where the time of training steps goes: a bar a cell, from breakdown.csv."""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from netsim.plots.lines import AXIS, telling
from netsim.plots.style import (
    AMBER,
    BLACK,
    BLUE,
    FORMATS,
    GREEN,
    ORANGE,
    PINK,
    SKY,
    drawing,
    new_figure,
    save,
    time_unit,
    tint,
)

PARTS = {
    "computing_us": "computing",
    "exposed_tp_us": "tensor parallel, exposed",
    "exposed_cp_us": "context parallel, exposed",
    "exposed_ep_us": "experts, exposed",
    "exposed_dp_us": "data parallel, exposed",
    "exposed_pp_us": "pipeline sends, exposed",
    "exposed_extra_us": "extras, exposed",
    "idle_us": "waiting (bubble, slower GPUs)",
}
_COLOURS = (tint(GREEN, 0.6), BLUE, SKY, PINK, ORANGE, AMBER, BLACK, "#c8c8c8")


def plot_breakdown(path: Path, out_dir: Path, formats: Sequence[str] = FORMATS) -> list[Path]:
    """Draw breakdown.csv; nothing if it is not one of training steps."""
    table = pd.read_csv(path)
    if table.empty or "computing_us" not in table or "step_time_us" not in table:
        return []
    with drawing():
        return save(breakdown_figure(table), out_dir / "breakdown", formats)


def breakdown_figure(table: pd.DataFrame) -> Figure:
    """One stacked bar for each cell, with its MFU at the end."""
    figure = new_figure(9.5, 1.6 + 0.42 * len(table))
    axes = figure.subplots()
    unit, factor = time_unit(float(table["step_time_us"].max()))
    left = pd.Series(0.0, index=table.index)
    places = range(len(table))
    for (column, name), colour in zip(PARTS.items(), _COLOURS, strict=True):
        width = table[column] / factor
        if width.max() > 0.001 * table["step_time_us"].max() / factor:
            axes.barh(places, width, left=left, color=colour, label=name, height=0.72)
        left = left + width
    _describe(axes, table, factor)
    axes.set_xlabel(f"time of a step ({unit}), mean over GPUs")
    figure.legend(loc="outside lower center", ncols=3)
    axes.set_title(str(table["scenario"].iloc[0]), loc="left")
    return figure


def _describe(axes: Axes, table: pd.DataFrame, factor: float) -> None:
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
        text = f"{mfu:.1f} % MFU"
        axes.text(time / factor + 0.01 * longest, place, text, va="center", fontsize=8.5)
