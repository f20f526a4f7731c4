"""A strip below a plot over sizes: which algorithm and protocol was chosen where."""

from collections.abc import Mapping, Sequence
from itertools import groupby, pairwise
from math import log2

from matplotlib.axes import Axes
from matplotlib.patches import Patch, Rectangle

from netsim.plots.lines import Line
from netsim.plots.looks import Colour
from netsim.plots.style import BLACK, PALETTE, tint

_CHARACTERS = 105  # of the smallest print that fit the width of our figures
Run = tuple[str, float, float]  # what was chosen, from size, to size


def choice(line: Line) -> list[str]:
    """Algorithm and protocol at every size of a line."""
    columns = [c for c in ("algorithm", "protocol") if c in line.table.columns]
    if not columns:
        return [""] * len(line.table)
    return [
        " ".join(filter(None, values)) for values in line.table[columns].itertuples(index=False)
    ]


def changes_choice(line: Line) -> bool:
    """Whether a line has more than one algorithm or protocol."""
    return len(set(choice(line))) > 1


def rows_of(lines: Sequence[Line]) -> int:
    """How many rows the strip has."""
    return 1 if all(_runs(line) == _runs(lines[0]) for line in lines[1:]) else len(lines)


def draw_strip(axes: Axes, lines: Sequence[Line], colours: Sequence[Colour]) -> None:
    """One row for every line: boxes from size to size, named where the name fits; a single one for
    all where all have the same.
    """
    runs = [_runs(line) for line in lines]
    labels = [_short(line.label) for line in lines]
    if rows_of(lines) < len(lines):
        runs, labels, colours = runs[:1], ["every line"], [BLACK]
    names = list(dict.fromkeys(name for row in runs for name, _, _ in row))
    fill = {name: tint(PALETTE[i % len(PALETTE)], 0.3) for i, name in enumerate(names)}
    doublings = log2(max(row[-1][2] for row in runs) / min(row[0][1] for row in runs))
    unnamed = []
    for y, row in enumerate(runs):
        for name, low, high in row:
            box = Rectangle(
                (low, y - 0.4), high - low, 0.8, facecolor=fill[name], edgecolor="white"
            )
            axes.add_patch(box)
            room = _CHARACTERS * log2(high / low) / doublings
            if not _write(axes, name, (low * high) ** 0.5, y, room):
                unnamed.append(name)
    _key(axes, {name: fill[name] for name in dict.fromkeys(unnamed)})
    axes.set_ylim(len(runs) - 0.5, -0.5)
    axes.set_yticks(range(len(runs)), labels, fontsize=8)
    for label, colour in zip(axes.get_yticklabels(), colours, strict=True):
        label.set_color(colour)
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False)
    for side in axes.spines.values():
        side.set_visible(False)


def _runs(line: Line) -> list[Run]:
    """Stretches of sizes with one choice; they meet halfway between two sizes."""
    sizes = line.table["size_bytes"].tolist()
    edges = [sizes[0] / 2**0.5, *((a * b) ** 0.5 for a, b in pairwise(sizes))]
    edges.append(sizes[-1] * 2**0.5)
    runs, first = [], 0
    for name, group in groupby(choice(line)):
        last = first + len(list(group))
        runs.append((name, edges[first], edges[last]))
        first = last
    return runs


def _write(axes: Axes, name: str, x: float, y: float, room: float) -> bool:
    """Write a name into its box on one line or two; whether it fits."""
    for text in (name, name.replace(" ", "\n")):
        if max(map(len, text.split("\n"))) <= room:
            axes.text(x, y, text, ha="center", va="center", fontsize=6.5, linespacing=0.95)
            return True
    return False


def _key(axes: Axes, fill: Mapping[str, tuple[float, float, float]]) -> None:
    """Names of the colours of boxes too small for their names."""
    if fill:
        patches = [Patch(facecolor=colour, label=name) for name, colour in fill.items()]
        axes.legend(handles=patches, loc="upper left", bbox_to_anchor=(1.0, 1.1), fontsize=7)


def _short(label: str) -> str:
    """A label that fits; lines differ at either end."""
    return label if len(label) <= 20 else f"{label[:9]}…{label[-10:]}"
