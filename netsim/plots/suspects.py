"""The picture of `netsim localize`: the cluster with its suspects, and the tested pairs."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch
from numpy.typing import NDArray

from netsim.localize.answer import (
    LocalizeResult,
    fault_words,
    pair_ratios,
    part_of,
    percent,
    suspected_nodes,
)
from netsim.plots import style

MAP = "cividis_r"  # from light (healthy) to dark; equal for all kinds of color vision
PER_ROW = 8  # nodes in a row of the picture
MOST_LABELS = 40  # names on an axis
MOST_NUMBERS = 16  # nodes up to which pairs have their ratio written in them
LEAST_RANGE = 1.2  # of the colors: the ratio of the darkest one is at least this
MOST_RANGE = 3.0
HOST_NAMES = 64  # nodes up to which boxes have names
SUSPECTED = 0.02  # probability from which a node is marked


def plot_suspects(result: LocalizeResult, folder: Path) -> list[Path]:
    """Draw the suspects and the tested pairs of nodes as `suspects.svg` and `suspects.png`."""
    return style.drawn(folder, {"suspects": lambda: suspects_figure(result)})


def suspects_figure(result: LocalizeResult) -> Figure:
    """The figure of a search for faults, with two panels.

    On the left all nodes by leaf switch, darker the more probably they are at fault; on the right
    the measured time over the expected time of each pair of nodes.
    """
    ratios = pair_ratios(result.search)
    nodes = sorted({node for pair in ratios for node in pair})
    width = 6.5 if not nodes else 13.5
    rows = node_rows(result)
    figure = style.new_figure(width, max(4.8, 0.5 * len(rows) + 2.4))
    panels = figure.subplots(1, 2 if nodes else 1, squeeze=False)[0]
    _draw_nodes(panels[0], result, rows)
    if nodes:
        _draw_pairs(figure, panels[1], result, nodes)
    return figure


def node_rows(result: LocalizeResult) -> list[tuple[str, list[int]]]:
    """The nodes as rows of boxes: (name of the row, node numbers) of each.

    Nodes of one leaf switch are in one row with its name. A long row continues in rows without a
    name. If all nodes share all leaf switches, no row has a name.
    """
    parts = result.predictor.parts
    if parts.node_count > 1 and parts.has_node_leaves:
        by_leaf: dict[str, list[int]] = {}
        for node, leaves in enumerate(parts.leaves):
            by_leaf.setdefault(leaves[0], []).append(node)
        groups = list(by_leaf.items())
    else:
        groups = [("", list(range(parts.node_count)))]
    return [
        (name if first == 0 else "", nodes[first : first + PER_ROW])
        for name, nodes in groups
        for first in range(0, len(nodes), PER_ROW)
    ]


def _draw_nodes(
    panel: Axes, result: LocalizeResult, rows: Sequence[tuple[str, Sequence[int]]]
) -> None:
    """Draw all nodes by leaf switch; suspected nodes are darker and have their probability."""
    colors = mpl.colormaps[MAP]
    suspected = suspected_nodes(result)
    tested = {node for timed in result.search.tests for node in timed.test.nodes}
    widest = max(len(nodes) for _, nodes in rows)
    switches = {
        group.best.suspect.local: group.probability
        for group in result.verdict.ranking
        if group.best.suspect.kind == "leaf"
    }
    for row, (leaf, nodes) in enumerate(rows):
        if leaf:
            share = switches.get(leaf, 0.0)
            marked = share > SUSPECTED
            panel.text(
                -0.3,
                row + 0.5,
                leaf,
                ha="right",
                va="center",
                fontsize=8.5,
                color=style.ORANGE if marked else style.GREY,
                weight="bold" if marked else "normal",
            )
        for column, node in enumerate(nodes):
            share = suspected.get(node, 0.0)
            marked = share > SUSPECTED
            panel.add_patch(
                FancyBboxPatch(
                    (column + 0.08, row + 0.1),
                    0.84,
                    0.8,
                    boxstyle="round,pad=0,rounding_size=0.1",
                    facecolor=colors(share) if node in tested else "white",
                    edgecolor=style.ORANGE if marked else style.GREY,
                    linewidth=2.5 if marked else 0.8,
                    linestyle="-" if node in tested else ":",
                )
            )
            if (len(suspected) and marked) or result.predictor.node_count <= HOST_NAMES:
                _name_node(panel, result, node, column, row, dark=share > 0.5)
    panel.set_xlim(-1.2 if rows[0][0] else -0.1, widest + 0.1)
    panel.set_ylim(len(rows) + 0.1, -0.1)
    panel.set_aspect("equal")
    panel.set_axis_off()
    panel.set_title(_title(result), loc="left", fontsize=9.5)
    panel.text(
        0.0,
        -0.02,
        "box: a node; orange frame: suspected; dark: probable; dotted: in no test",
        transform=panel.transAxes,
        fontsize=8,
        va="top",
        color=style.GREY,
    )


def _name_node(
    panel: Axes, result: LocalizeResult, node: int, column: int, row: int, *, dark: bool
) -> None:
    """Write the name of a node into its box, shortened if it is long."""
    name = result.hosts.name_of(node)
    panel.text(
        column + 0.5,
        row + 0.5,
        name if len(name) <= 9 else f"…{name[-8:]}",
        ha="center",
        va="center",
        fontsize=6.5,
        color="white" if dark else style.BLACK,
    )


def _title(result: LocalizeResult) -> str:
    """The most probable faults in words, or that nothing is wrong."""
    verdict = result.verdict
    if not verdict.faults:
        return f"Nothing is wrong ({percent(verdict.healthy_probability)} probable)"
    lines = [
        f"{part_of(result, group)}: {fault_words(group.best.suspect, group.best.severity)} "
        f"({percent(group.probability)})"
        for group in verdict.ranking[:3]
        if group.probability > SUSPECTED
    ]
    return "\n".join(style.wrapped(text, 6.0) for text in lines)


def _draw_pairs(figure: Figure, panel: Axes, result: LocalizeResult, nodes: Sequence[int]) -> None:
    """Draw the map of tested pairs of `nodes`. The color of a cell is the measured time over the
    expected time.

    Tests of one node are on the diagonal; pairs without a test are hatched.
    """
    grid = pair_grid(result, nodes)
    darkest = float(np.clip(np.nanmax(grid), LEAST_RANGE, MOST_RANGE))
    panel.set_facecolor("white")
    panel.patch.set_hatch("////")
    panel.patch.set_edgecolor(style.PALE)
    image = panel.pcolormesh(np.ma.masked_invalid(grid), cmap=MAP, vmin=1.0, vmax=darkest)
    names = [result.hosts.name_of(node) for node in nodes]
    step = -(-len(nodes) // MOST_LABELS)
    places = np.arange(0, len(nodes), step)
    labels = [names[place] for place in places.tolist()]
    panel.set_xticks(places + 0.5, labels, rotation=90, fontsize=7.5)
    panel.set_yticks(places + 0.5, labels, fontsize=7.5)
    panel.invert_yaxis()
    panel.set_aspect("equal")
    panel.grid(visible=False)
    panel.set(xlabel="node", ylabel="node")
    panel.set_title("Measured time over expected time", loc="left", fontsize=10)
    if len(nodes) <= MOST_NUMBERS:
        for (row, column), value in np.ndenumerate(grid):
            if np.isfinite(value):
                color = "white" if value > (1 + darkest) / 2 else style.BLACK
                panel.text(
                    column + 0.5,
                    row + 0.5,
                    f"{value:.2f}",
                    ha="center",
                    va="center",
                    fontsize=6.5,
                    color=color,
                )
    bar = figure.colorbar(image, ax=panel, shrink=0.85, extend="max")
    bar.set_label("measured ÷ expected (1: healthy; hatched: not tested)", fontsize=8)
    bar.ax.tick_params(labelsize=8)


def pair_grid(result: LocalizeResult, nodes: Sequence[int]) -> NDArray[np.float64]:
    """A symmetric matrix over `nodes`: the measured time over the expected time of each pair; NaN
    for pairs without a test.
    """
    place = {node: number for number, node in enumerate(nodes)}
    grid = np.full((len(nodes), len(nodes)), np.nan)
    for (first, second), ratio in pair_ratios(result.search).items():
        grid[place[first], place[second]] = ratio
        grid[place[second], place[first]] = ratio
    return grid
