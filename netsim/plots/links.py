"""Links over time, from links_over_time.csv: the busiest one by one, many as a heat map.

Links that do the same at the same time, as those of symmetric GPUs do, share a panel.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from netsim.plots.style import BLUE, FORMATS, drawing, new_figure, save, time_unit, tint
from netsim.plots.tables import LOAD, filled, read_table

MOST_LINES = 8
_LEAST = 1.0  # % at the busiest moment, below which a link is not shown
_ALIKE = 0.02  # links within this of each other all the time share a panel
_WIDTH = 8.5


@dataclass(frozen=True)
class Load:
    """Utilisation in % of each link in bins that begin and end at `edges` (µs)."""

    links: tuple[str, ...]
    edges: NDArray[np.float64]
    percent: NDArray[np.float64]


def plot_links(load_csv: Path, out_dir: Path, formats: Sequence[str] = FORMATS) -> list[Path]:
    """Draw links over time as lines and as a heat map; the files written."""
    load = _in_use(read_load(load_csv))
    if not load.links:
        return []
    out_dir.mkdir(parents=True, exist_ok=True)
    with drawing():
        files = save(lines_figure(load), out_dir / "links", formats)
        return files + save(heat_figure(load), out_dir / "links-heatmap", formats)


def read_load(path: Path) -> Load:
    """The load of all links of a links_over_time.csv."""
    table = read_table(path, LOAD, "the columns of links_over_time.csv")
    table = filled(path, table, ("t_us", "utilisation"))
    grid = table.pivot_table(index="link", columns="t_us", values="utilisation", sort=False)
    grid = grid.sort_index(axis="columns").fillna(0.0)
    begins = np.asarray(grid.columns, np.float64)
    width = float(begins[1] - begins[0]) if len(begins) > 1 else 1.0
    edges = np.append(begins, begins[-1] + width) if len(begins) else begins
    return Load(tuple(map(str, grid.index)), edges, grid.to_numpy() * 100)


def _in_use(load: Load) -> Load:
    """The links that are busy enough to be seen at some time."""
    seen = load.percent.max(axis=1, initial=0.0) >= _LEAST
    links = tuple(name for name, keep in zip(load.links, seen.tolist(), strict=True) if keep)
    return Load(links, load.edges, load.percent[seen])


def lines_figure(load: Load) -> Figure:
    """The busiest links one below the other, one panel for those that do the same."""
    groups = _alike(load)
    shown = groups[:MOST_LINES]
    figure = new_figure(_WIDTH, max(2.4, 0.9 + 0.85 * len(shown)))
    panels = figure.subplots(len(shown), 1, sharex=True, sharey=True, squeeze=False)[:, 0].tolist()
    unit, factor = time_unit(float(load.edges[-1]))
    for axes, (leader, members) in zip(panels, shown, strict=True):
        axes.stairs(load.percent[leader], load.edges / factor, fill=True, color=tint(BLUE, 0.35))
        axes.stairs(load.percent[leader], load.edges / factor, color=BLUE, linewidth=1.2)
        alike = f" and {len(members) - 1} alike" if len(members) > 1 else ""
        mean = f"mean {load.percent[members].mean():.0f} %"
        axes.set_title(f"{load.links[leader]}{alike}, {mean}", fontsize=9, pad=3, loc="left")
        axes.set_yticks([0, 50, 100])
    panels[-1].set_ylim(0, 104)
    panels[-1].set_xlim(0, load.edges[-1] / factor)
    panels[-1].set_xlabel(f"time ({unit})")
    figure.supylabel("utilisation (%)", fontsize=10)
    if len(groups) > MOST_LINES:
        text = f"the busiest {MOST_LINES} of {len(groups)} that differ"
        figure.suptitle(text, x=0.01, ha="left", fontsize=11)
    return figure


def _alike(load: Load) -> list[tuple[int, list[int]]]:
    """Groups of links that do the same, with the first of each, the busiest group first."""
    groups: list[tuple[int, list[int]]] = []
    means = np.round(load.percent.mean(axis=1), 2)
    for link in np.argsort(-means, kind="stable").tolist():
        same = (
            members
            for leader, members in groups
            if np.abs(load.percent[leader] - load.percent[link]).max() <= 100 * _ALIKE
        )
        found = next(same, None)
        if found is None:
            groups.append((link, [link]))
        else:
            found.append(link)
    return groups


def heat_figure(load: Load) -> Figure:
    """Every link a row, utilisation as colour."""
    rows = len(load.links)
    figure = new_figure(_WIDTH + 0.06 * max(map(len, load.links)), 1.3 + max(1.2, _inches(rows)))
    axes = figure.subplots()
    unit, factor = time_unit(float(load.edges[-1]))
    mesh = axes.pcolormesh(
        load.edges / factor,
        np.arange(rows + 1),
        load.percent,
        cmap="viridis",
        vmin=0,
        vmax=100,
        rasterized=True,
    )
    _name_rows(axes, load.links)
    axes.set_xlabel(f"time ({unit})")
    axes.set_title("links over time", loc="left")
    bar = figure.colorbar(mesh, ax=axes, pad=0.01, fraction=0.05, aspect=25)
    bar.set_label("utilisation (%)")
    return figure


def _inches(rows: int) -> float:
    return min(0.2 * rows, max(8.0, 0.09 * rows))


def _name_rows(axes: Axes, names: Sequence[str]) -> None:
    """Names at the middle of the rows; where they would touch, only some of them."""
    every = max(1, int(np.ceil(0.13 * len(names) / _inches(len(names)))))
    places = np.arange(len(names))[::every]
    size = 8 if len(names) <= 40 else 7
    axes.set_yticks(places + 0.5, [names[i] for i in places], fontsize=size)
    axes.set_ylim(len(names), 0)
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False)
