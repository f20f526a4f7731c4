"""How the lines of a plot look: a colour and a marker each, so that any two can be told apart.

Many lines that differ in two ways get their colour by one and their marker by the other.
"""

from dataclasses import dataclass
from typing import Any

from matplotlib import colormaps

from netsim.plots.lines import Lines
from netsim.plots.style import MARKERS, PALETTE

Colour = str | tuple[float, float, float, float]


@dataclass(frozen=True)
class Look:
    """Colour and marker of one line."""

    colour: Colour
    marker: str

    def simulated(self) -> dict[str, Any]:
        """Arguments for a simulated line."""
        edge = {"markeredgecolor": "white", "markeredgewidth": 0.6}
        return {"color": self.colour, "marker": self.marker, **edge}

    def measured(self) -> dict[str, Any]:
        """Arguments for measured points: hollow, without a line."""
        edge = {"markeredgecolor": self.colour, "markeredgewidth": 1.2, "markerfacecolor": "white"}
        return {"linestyle": "", "marker": self.marker, "zorder": 4, **edge}


def looks_of(lines: Lines) -> list[Look]:
    """A look for every line."""
    count = len(lines.lines)
    if count <= len(PALETTE):
        return [Look(PALETTE[i], MARKERS[i]) for i in range(count)]
    groups = [list(dict.fromkeys(values)) for values in zip(*_values(lines), strict=True)]
    few = [k for k, values in enumerate(groups) if 1 < len(values) <= len(PALETTE)]
    if len(groups) < 2 or not few:
        steps = [0.92 * i / (count - 1) for i in range(count)]
        return [Look(colormaps["viridis"](x), _marker(i)) for i, x in enumerate(steps)]
    k = few[0]
    rest = list(dict.fromkeys(values[:k] + values[k + 1 :] for values in _values(lines)))
    return [
        Look(PALETTE[groups[k].index(v[k])], _marker(rest.index(v[:k] + v[k + 1 :])))
        for v in _values(lines)
    ]


def _values(lines: Lines) -> list[tuple[str, ...]]:
    return [line.values for line in lines.lines]


def _marker(number: int) -> str:
    return MARKERS[number % len(MARKERS)]
