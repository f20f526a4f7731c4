"""How all pictures look: colours, markers, tick labels, and files that come out the same each time.

Pictures are made with the object interface of matplotlib, so that no global state is touched; the
settings below hold only while one is drawn.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import log2
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter

from netsim.files import replacing
from netsim.units import format_size

# Okabe and Ito (2008): told apart by people with any common colour blindness.
BLUE, ORANGE, GREEN, PINK = "#0072B2", "#D55E00", "#009E73", "#CC79A7"
AMBER, SKY, BLACK, YELLOW = "#E69F00", "#56B4E9", "#000000", "#F0E442"
PALETTE = (BLUE, ORANGE, GREEN, PINK, AMBER, SKY, BLACK)
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "*", "h", "p")
GREY, PALE = "#555555", "#d9d9d9"
FORMATS = ("svg", "png")
TIMES = (("s", 1e6), ("ms", 1e3), ("µs", 1.0), ("ns", 1e-3))  # units and their microseconds

_SETTINGS = {
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.7,
    "axes.edgecolor": "#888888",
    "legend.frameon": False,
    "legend.fontsize": 9,
    "lines.linewidth": 1.8,
    "lines.markersize": 5,
    "svg.hashsalt": "netsim",
    "svg.fonttype": "path",
    "figure.dpi": 100,
}


@contextmanager
def drawing() -> Iterator[None]:
    """The settings of all pictures, for as long as one is drawn and saved."""
    with mpl.rc_context(rc=_SETTINGS):  # type: ignore[arg-type]
        yield


def new_figure(width: float, height: float) -> Figure:
    """An empty figure (inches) that makes room for what lies outside its axes."""
    return Figure(figsize=(width, height), layout="constrained")


def save(figure: Figure, stem: Path, formats: Sequence[str] = FORMATS) -> list[Path]:
    """Write a figure as `stem` with each suffix; the same figure gives the same bytes."""
    engine = figure.get_layout_engine()
    if engine is not None:  # once for all formats: finding room takes longer than drawing
        engine.execute(figure)
        figure.set_layout_engine(None)
    made_by = {"svg": {"Date": None, "Creator": "netsim"}, "png": {"Software": "netsim"}}
    paths = []
    for kind in formats:
        if kind not in made_by:
            raise ValueError(f"formats: expected {' or '.join(made_by)}, got {kind!r}")
        path = stem.parent / f"{stem.name}.{kind}"
        with replacing(path) as stream:
            figure.savefig(stream, format=kind, dpi=150, facecolor="white", metadata=made_by[kind])
        paths.append(path)
    return paths


def size_axis(axes: Axes, smallest: float, largest: float) -> None:
    """A logarithmic axis of message sizes, with round sizes in bytes, KiB, MiB and GiB as ticks."""
    axes.set_xscale("log", base=2)
    low, high = int(log2(smallest) // 1), int(-(-log2(largest) // 1))
    step = next((s for s in (1, 2, 3, 5, 10) if (high - low) / s <= 11), 10)
    first = low + (-low + 3) % step if step == 3 else low  # 8 B, 64 B, 512 B, 4 KiB, …
    axes.xaxis.set_major_locator(FixedLocator([2.0**k for k in range(first, high + 1, step)]))
    axes.xaxis.set_minor_locator(FixedLocator([2.0**k for k in range(low, high + 1)]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda size, _: format_size(round(size))))
    axes.xaxis.set_minor_formatter(NullFormatter())
    pad = max(0.02 * (log2(largest) - log2(smallest)), 0.3)
    axes.set_xlim(2 ** (log2(smallest) - pad), 2 ** (log2(largest) + pad))


def time_axis(axes: Axes, smallest: float, largest: float) -> None:
    """A logarithmic y axis of times (µs), each tick with its unit."""
    axes.set_yscale("log")
    decades = [10.0**k for k in range(-4, 13)]
    inside = [d for d in decades if smallest / 10 < d < largest * 10]
    if largest / smallest < 30:  # a decade or less: label some of its parts as well
        parts = (1, 2, 5) if largest / smallest > 5 else (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8)
        inside = [d * k for d in inside for k in parts]
    axes.yaxis.set_major_locator(FixedLocator(inside))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda time, _: time_text(time)))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_ylim(smallest / 1.4, largest * 1.4)


def time_text(microseconds: float) -> str:
    """A time with its unit: `20 µs`, `1.5 ms`, `500 ns`."""
    unit, factor = time_unit(microseconds)
    return f"{microseconds / factor:.4g} {unit}"


def time_unit(microseconds: float) -> tuple[str, float]:
    """The unit that suits a time, and how many µs it has."""
    fits = (pair for pair in TIMES if microseconds >= pair[1] * (1 - 1e-9))
    return next(fits, TIMES[-1])


def tint(colour: str, strength: float) -> tuple[float, float, float]:
    """A colour mixed with white: 1 leaves it as it is, 0 is white."""
    red, green, blue = mpl.colors.to_rgb(colour)
    return (
        1 - (1 - red) * strength,
        1 - (1 - green) * strength,
        1 - (1 - blue) * strength,
    )
