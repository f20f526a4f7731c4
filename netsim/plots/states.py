"""What every rank holds in every chunk, step by step: a small grid for each state of a schedule.

Takes any value shaped like that of `explain --state` (the protocols below); knows no collective.
"""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PatchCollection
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from netsim.plots.style import (
    AMBER,
    BLACK,
    BLUE,
    FORMATS,
    GREEN,
    ORANGE,
    drawing,
    new_figure,
    save,
    tint,
)

MOST_STATES = 16  # of more, some are shown, the first and the last among them
_MOST_TERMS = 6  # contributions up to which a cell spells them out
_WIDTH = 12.0  # inches that a grid, or a line of them, may take


class Holding(Protocol):
    """The ranks whose contributions a cell adds up, and whether that is all of them."""

    @property
    def origins(self) -> tuple[int, ...]: ...  # noqa: D102

    @property
    def complete(self) -> bool: ...  # noqa: D102


class State(Protocol):
    """What ranks hold after a step (-1: before the first): `held[rank][chunk]`."""

    @property
    def step(self) -> int: ...  # noqa: D102

    @property
    def held(self) -> Sequence[Sequence[Holding]]: ...  # noqa: D102


def plot_states(
    states: Sequence[State],
    chunks: Sequence[str],
    stem: Path,
    formats: Sequence[str] = FORMATS,
    title: str = "",
) -> list[Path]:
    """Draw states, with the labels of their chunks, to `stem` with each suffix."""
    stem.parent.mkdir(parents=True, exist_ok=True)
    with drawing():
        return save(states_figure(states, chunks, title), stem, formats)


def states_figure(states: Sequence[State], chunks: Sequence[str], title: str = "") -> Figure:
    """A grid of ranks × chunks for each state; sums as text, complete cells in green."""
    shown, ranks = _some(len(states)), len(states[0].held)
    wide, high = _text_inches(states)
    spelled = wide * len(chunks) <= _WIDTH and high * ranks <= _WIDTH
    if not spelled:
        wide = high = max(min(0.13, 2.6 / max(ranks, len(chunks))), 0.01)
    width, height = max(wide * len(chunks), 1.3), max(high * ranks, 1.0)
    across = min(max(1, int(_WIDTH / (width + 0.3))), len(shown))
    down = -(-len(shown) // across)
    across = -(-len(shown) // down)  # lines of equal length look better than full ones and a rest
    figure = new_figure(across * (width + 0.25) + 0.8, down * (height + 0.55) + 0.75)
    panels = figure.subplots(down, across, squeeze=False).ravel().tolist()
    draw = _draw_spelled if spelled else _draw_small
    for k, axes in enumerate(panels):
        axes.set_visible(k < len(shown))
        if k < len(shown):
            before = states[shown[k] - 1] if shown[k] else None
            draw(axes, states[shown[k]], before, chunks)
            _name_cells(axes, states[shown[k]], chunks, named=k % across == 0)
    left_out = f", {len(shown)} of {len(states)} states" if len(shown) < len(states) else ""
    figure.suptitle(title + left_out, x=0.01, ha="left", fontsize=12)
    _legend(figure, [states[i] for i in shown], spelled=spelled)
    return figure


def _some(count: int) -> list[int]:
    """Indices of the states shown: all, or as many as fit, evenly spread."""
    picked = np.linspace(0, count - 1, min(count, MOST_STATES)).round().astype(int)
    return sorted(set(picked.tolist()))


def _text_inches(states: Sequence[State]) -> tuple[float, float]:
    """Width and height that the longest sum needs."""
    sums = {h.origins for state in states for row in state.held for h in row}
    texts = [_sum(origins, "a").split("\n") for origins in sums]
    longest = max((len(line) for text in texts for line in text), default=2)
    return 0.16 + 0.085 * longest, 0.14 + 0.145 * max(map(len, texts), default=1)


def _draw_spelled(axes: Axes, state: State, before: State | None, chunks: Sequence[str]) -> None:
    """Cells with their sums as text, a rim around those that changed."""
    cells = [(r, c, h) for r, row in enumerate(state.held) for c, h in enumerate(row)]
    boxes = [Rectangle((c, r), 1, 1) for r, c, _ in cells]
    fill = [_colour(holding, len(state.held)) for _, _, holding in cells]
    axes.add_collection(PatchCollection(boxes, facecolors=fill, edgecolors="white", linewidths=1.0))
    new = [box for box, cell in zip(boxes, cells, strict=True) if _is_new(before, *cell)]
    rim: dict[str, Any] = {"facecolors": "none", "edgecolors": ORANGE, "linewidths": 1.6}
    axes.add_collection(PatchCollection(new, zorder=3, **rim))
    for r, c, holding in cells:
        weight = "bold" if holding.complete else "normal"
        text = _sum(holding.origins, chunks[c])
        axes.text(c + 0.5, r + 0.5, text, ha="center", va="center", fontsize=8, weight=weight)


def _draw_small(axes: Axes, state: State, before: State | None, chunks: Sequence[str]) -> None:
    """Cells as colours alone; those that changed are orange."""
    ranks = len(state.held)
    colours = [
        [
            tint(ORANGE, 0.8) if _is_new(before, r, c, holding) else _colour(holding, ranks)
            for c, holding in enumerate(row)
        ]
        for r, row in enumerate(state.held)
    ]
    image = np.array(colours).reshape(ranks, len(chunks), 3)
    axes.imshow(image, extent=(0, len(chunks), ranks, 0), interpolation="nearest", aspect="auto")


def _name_cells(axes: Axes, state: State, chunks: Sequence[str], *, named: bool) -> None:
    """Ranks on the left of the first grid of each line, chunks below every grid."""
    ranks = len(state.held)
    axes.set_xlim(-0.03, len(chunks) + 0.03)
    axes.set_ylim(ranks + 0.03, -0.03)
    axes.set_title(
        "at the start" if state.step < 0 else f"after step {state.step}", fontsize=10, loc="left"
    )
    axes.grid(visible=False)
    for side in axes.spines.values():
        side.set_visible(False)
    columns = range(0, len(chunks), max(1, len(chunks) // 12))
    axes.set_xticks([c + 0.5 for c in columns], [chunks[c] for c in columns], fontsize=8)
    lines = range(0, ranks, max(1, ranks // 12))
    names = [f"rank {r}" if named else "" for r in lines]
    axes.set_yticks([r + 0.5 for r in lines], names, fontsize=8)
    axes.tick_params(length=0, pad=2)


def _colour(holding: Holding, ranks: int) -> tuple[float, float, float]:
    """Nothing is nearly white, a sum is bluer with every contribution, a complete one green."""
    if not holding.origins:
        return (0.96, 0.96, 0.96)
    if len(set(holding.origins)) < len(holding.origins):
        return tint(AMBER, 0.8)  # somebody counted twice
    if holding.complete:
        return tint(GREEN, 0.5)
    return tint(BLUE, 0.12 + 0.38 * len(holding.origins) / ranks)


def _is_new(before: State | None, rank: int, chunk: int, holding: Holding) -> bool:
    return before is not None and before.held[rank][chunk].origins != holding.origins


def _sum(origins: tuple[int, ...], chunk: str) -> str:
    """A sum such as a0+a1, two terms a line; with many terms a[0-6,9]."""
    if len(origins) > _MOST_TERMS:
        return f"{chunk}[{_runs(origins)}]"
    terms = [f"{chunk}{rank}" for rank in origins]
    lines = ["+".join(terms[i : i + 2]) for i in range(0, len(terms), 2)]
    return "\n+".join(lines)


def _runs(ranks: tuple[int, ...]) -> str:
    breaks = [k for k in range(1, len(ranks)) if ranks[k] != ranks[k - 1] + 1]
    runs = [ranks[a:b] for a, b in pairwise([0, *breaks, len(ranks)])]
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def _legend(figure: Figure, states: Sequence[State], *, spelled: bool) -> None:
    held = [holding for state in states for row in state.held for holding in row]
    patches = [Patch(facecolor=tint(GREEN, 0.5), label="complete")]
    if any(h.origins and not h.complete for h in held):
        patches.insert(0, Patch(facecolor=tint(BLUE, 0.35), label="part of the sum"))
    if any(len(set(h.origins)) < len(h.origins) for h in held):
        patches.append(Patch(facecolor=tint(AMBER, 0.8), label="counted twice"))
    new: dict[str, Any] = {
        "facecolor": "none" if spelled else tint(ORANGE, 0.8),
        "edgecolor": ORANGE,
    }
    patches.append(Patch(label="changed in this step", **new))
    figure.legend(handles=patches, loc="outside lower left", ncols=len(patches), labelcolor=BLACK)
