"""Every kind of call in a step, measured and simulated: two bars each, what is exposed full."""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from netsim.plots.style import (
    BLUE,
    FORMATS,
    ORANGE,
    drawing,
    new_figure,
    save,
    time_unit,
    tint,
)
from netsim.units import format_size

MOST = 16  # kinds of calls drawn: those that take longest
_HALVES = (
    ("measured_total_us", "measured_exposed_us", ORANGE, "measured", -0.2),
    ("total_us", "exposed_us", BLUE, "simulated", 0.2),
)


def plot_calls(table: Path, out_dir: Path, formats: Sequence[str] = FORMATS) -> list[Path]:
    """Draw the collectives of a comparison; nothing if there are none."""
    rows = pd.read_csv(table)
    if rows.empty:
        return []
    with drawing():
        return save(calls_figure(rows), out_dir / "collectives", formats)


def calls_figure(rows: pd.DataFrame) -> Figure:
    """A pair of bars for each kind of call, the longest first."""
    longest = rows[["measured_total_us", "total_us"]].max(axis=1)
    rows = rows.loc[longest.sort_values(ascending=False).index[:MOST]].reset_index(drop=True)
    figure = new_figure(9.5, 1.7 + 0.5 * len(rows))
    axes = figure.subplots()
    unit, factor = time_unit(float(longest.max()))
    for total, exposed, colour, _, shift in _HALVES:
        places = [place + shift for place in range(len(rows))]
        whole, bare = rows[total].fillna(0.0) / factor, rows[exposed].fillna(0.0) / factor
        bare = bare.clip(upper=whole)
        axes.barh(places, bare, height=0.36, color=colour)
        axes.barh(places, whole - bare, left=bare, height=0.36, color=tint(colour, 0.35))
    axes.set_yticks(range(len(rows)), [_label(row) for _, row in rows.iterrows()])
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    axes.set_xlabel(f"time in a step ({unit})")
    axes.set_title("Collectives of a step, measured and simulated", loc="left")
    patches = [
        Patch(color=tint(colour, part), label=f"{name}, {what}")
        for _, _, colour, name, _ in _HALVES
        for part, what in ((1.0, "exposed"), (0.35, "behind computing"))
    ]
    figure.legend(handles=patches, loc="outside lower center", ncols=4)
    return figure


def _label(row: pd.Series) -> str:
    size = format_size(int(row["size_bytes"]))
    calls = row["calls"] if pd.notna(row["calls"]) else row["simulated_calls"]
    return f"{row['collective']} of {size}\n{row['group']}, {row['ranks']} ranks, {calls:g} times"
