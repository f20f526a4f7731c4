"""Measured and simulated times of the runs on one machine, and their ratio, against size."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter

from netsim.plots.style import (
    GREY,
    MARKERS,
    PALETTE,
    drawing,
    new_figure,
    save,
    size_axis,
    time_axis,
    tint,
)

Curve = Sequence[tuple[int, float, float]]  # size, measured µs, simulated µs
WITHIN = (0.85, 1.15)
MOST_CURVES = len(PALETTE)  # in one picture: each with a colour of its own


def plot_accuracy(
    curves: Mapping[str, Curve], stem: Path, title: str, formats: Sequence[str] = ("svg",)
) -> list[Path]:
    """Draw runs by name: points are measured, lines simulated; below, the ratio of the two."""
    with drawing():
        figure = new_figure(9.6, 5.6 + 0.16 * len(curves))
        times, ratios = figure.subplots(2, 1, sharex=True, height_ratios=[2.2, 1])
        for number, (name, curve) in enumerate(curves.items()):
            colour, marker = PALETTE[number % len(PALETTE)], MARKERS[number % len(MARKERS)]
            sizes = [size for size, _, _ in curve]
            times.plot(sizes, [s for _, _, s in curve], color=colour, linewidth=1.4)
            points = {"color": colour, "marker": marker, "linestyle": "none", "markersize": 4}
            times.plot(
                sizes, [m for _, m, _ in curve], label=name, markerfacecolor="none", **points
            )
            ratio = [s / m for _, m, s in curve]
            ratios.plot(
                sizes, ratio, color=colour, linewidth=1.2, marker=marker, markersize=3,
                markerfacecolor="none",
            )  # fmt: skip
        every = [time for curve in curves.values() for _, m, s in curve for time in (m, s)]
        time_axis(times, min(every), max(every))
        times.set_ylabel("time: points measured, lines simulated")
        times.set_title(title, loc="left")
        _ratio_axis(ratios)
        smallest = min(size for curve in curves.values() for size, _, _ in curve)
        largest = max(size for curve in curves.values() for size, _, _ in curve)
        size_axis(ratios, smallest, largest)
        ratios.set_xlabel("message size")
        figure.legend(loc="outside lower center", ncols=2, fontsize=8)
        return save(figure, stem, formats)


def _ratio_axis(axes: Axes) -> None:
    axes.set_yscale("log")
    axes.axhspan(*WITHIN, color=tint(GREY, 0.15), zorder=0)
    axes.axhline(1.0, color=GREY, linewidth=1)
    low, high = axes.get_ylim()
    axes.set_ylim(min(low, 0.5), max(high, 2.0))
    axes.yaxis.set_major_locator(FixedLocator([0.1, 0.25, 0.5, 0.8, 1.0, 1.25, 2.0, 4.0, 10.0]))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_ylabel("simulated ÷ measured")
