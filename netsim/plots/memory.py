"""What a GPU of every pipeline stage holds over a step, from memory_over_time.csv."""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from netsim.plots.style import (
    BLUE,
    FORMATS,
    GREY,
    ORANGE,
    PALE,
    drawing,
    new_figure,
    save,
    time_unit,
    tint,
)

GB = 1e9
MOST_STAGES = 8


def plot_memory(path: Path, out_dir: Path, formats: Sequence[str] = FORMATS) -> list[Path]:
    """Draw memory_over_time.csv."""
    table = pd.read_csv(path)
    if table.empty:
        return []
    with drawing():
        return save(memory_figure(table), out_dir / "memory", formats)


def memory_figure(table: pd.DataFrame) -> Figure:
    """A panel a stage: what is always there, activations on top, the peak and the GPU's memory."""
    stages = _chosen(sorted(table["stage"].unique()))
    figure = new_figure(9.5, 0.9 + 1.35 * len(stages))
    panels = figure.subplots(len(stages), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
    unit, factor = time_unit(float(table["time_us"].max()))
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


def _chosen(stages: list[int]) -> list[int]:
    """All stages, or of many some, the first and the last among them."""
    if len(stages) <= MOST_STAGES:
        return stages
    last = len(stages) - 1
    return [stages[round(k * last / (MOST_STAGES - 1))] for k in range(MOST_STAGES)]


def _panel(axes: Axes, table: pd.DataFrame, factor: float) -> None:
    when, total = table["time_us"] / factor, table["bytes"] / GB
    constant = float((table["bytes"] - table["activations_bytes"]).min()) / GB
    axes.fill_between(
        when, 0, constant, step="post", color=PALE, label="states and buffers", linewidth=0
    )
    axes.fill_between(
        when, constant, total, step="post", color=tint(BLUE, 0.5), label="activations", linewidth=0
    )
    peak = int(total.to_numpy().argmax())
    axes.plot(when.iloc[peak], total.iloc[peak], "v", color=ORANGE, label="peak")
    axes.annotate(
        f"{total.iloc[peak]:.3g} GB", (when.iloc[peak], total.iloc[peak]), (0, 5),
        textcoords="offset points", ha="center", fontsize=8,
    )  # fmt: skip
    room = float(table["gpu_bytes"].max()) / GB
    if room < 2 * float(total.max()):
        axes.axhline(room, color=GREY, linestyle="--", linewidth=1, label="memory of a GPU")
    axes.margins(x=0.01)
