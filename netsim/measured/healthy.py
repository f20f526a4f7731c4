"""The errors of healthy systems of the corpus, from which the margins of gates follow.

`netsim/results/margins.py` says what margins are, and reads the table that is written here.
"""

from collections.abc import Iterator, Mapping, Sequence
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from netsim.base.files import csv_of
from netsim.base.values import dataclass, grouped
from netsim.measured.compare import ComparedPoint, weighted_quantile, weights_of
from netsim.results.margins import (
    CONFIDENCES,
    QUANTILE,
    SCALE,
    ClassError,
    Margins,
    margin_classes,
)
from netsim.results.row import BANDS, Class, Joined, band_of

Floats = NDArray[np.float64]
COLUMNS = ("of", "machine", "transport", "collective", "band", "confidence", "systems", "value")


@dataclass(frozen=True)
class HealthyPoint:
    """The error of one size of a healthy run: `error` is the log of measured over simulated
    time.
    """

    run: str
    system: str
    machine: str
    band: str
    classes: tuple[Class, ...]
    error: float


def healthy_points(
    points: Sequence[ComparedPoint], where: Mapping[str, Joined]
) -> list[HealthyPoint]:
    """Return the errors of the healthy points; `where` has the machine, transport and rate of each
    run.
    """
    return [
        HealthyPoint(
            run=point.run,
            system=point.system,
            machine=point.machine,
            band=band_of(point.size_bytes),
            classes=margin_classes(where[point.run], point.collective, band_of(point.size_bytes)),
            error=-point.log_ratio,
        )
        for point in points
        if point.healthy
    ]


class ErrorsByClass:
    """The mean square error of every class of runs, by system, so that a system can be left out."""

    def __init__(self, points: Sequence[HealthyPoint]) -> None:
        squares: dict[Class, dict[str, list[float]]] = {}
        for point in points:
            for name in point.classes:
                by_system = squares.setdefault(name, {})
                by_system.setdefault(point.system, []).append(point.error**2)
        self._means = {
            name: {system: float(np.mean(values)) for system, values in by_system.items()}
            for name, by_system in squares.items()
        }

    def without(self, system: str = "") -> dict[Class, ClassError]:
        """Return the errors of all classes without one system; all other systems have the same
        weight.
        """
        errors = {}
        for name, by_system in self._means.items():
            means = [mean for member, mean in by_system.items() if member != system]
            if means:
                errors[name] = ClassError(float(np.mean(means)), len(means))
        return errors


def scaled_errors(points: Sequence[HealthyPoint], errors: ErrorsByClass) -> Floats:
    """Return the error of every point divided by the scale of its classes, computed without the
    point's own system.
    """
    scales: dict[tuple[str, tuple[Class, ...]], float] = {}
    for system, members in grouped(points, lambda point: point.system).items():
        margins = Margins(errors.without(system), {})
        for classes in {point.classes for point in members}:
            scales[system, classes] = margins.scale(classes)
    return np.array([point.error / scales[point.system, point.classes] for point in points])


def level_of(confidence: float, systems: int) -> float:
    """Return the level of the quantile that bounds the error of a further system with the
    probability `confidence`, given the errors of `systems` systems.

    A plain quantile (level = confidence) of few systems is too low for a further system. With half
    a system more, the coverage of left-out systems is right.
    """
    return min(1.0, confidence * (systems + 0.5) / systems)


def quantiles_of(
    points: Sequence[HealthyPoint], scaled: Floats, without: str = ""
) -> dict[str, list[float]]:
    """Return for each size band the quantiles of scaled errors at the levels `CONFIDENCES`, without
    the system `without`.

    Every system has the same weight.
    """
    quantiles = {}
    for band in BANDS:
        members = [
            place
            for place, point in enumerate(points)
            if point.band == band and point.system != without
        ]
        if not members:
            continue
        systems = [points[place].system for place in members]
        weights = weights_of(systems)
        values = scaled[members]
        count = len(set(systems))
        quantiles[band] = [
            weighted_quantile(values, weights, level_of(confidence, count))
            for confidence in CONFIDENCES
        ]
    return quantiles


def margins_of(points: Sequence[HealthyPoint]) -> Margins:
    """Return the margins computed from all points."""
    errors = ErrorsByClass(points)
    return Margins(errors.without(), quantiles_of(points, scaled_errors(points, errors)))


def margins_left_out(points: Sequence[HealthyPoint]) -> Iterator[tuple[str, Margins]]:
    """Yield (system, margins computed without this system) for every system."""
    errors = ErrorsByClass(points)
    scaled = scaled_errors(points, errors)
    for system in dict.fromkeys(point.system for point in points):
        yield system, Margins(errors.without(system), quantiles_of(points, scaled, system))


def margins_text(points: Sequence[HealthyPoint]) -> str:
    """Return the margins computed from all points as CSV: the table that gates read."""
    margins = margins_of(points)
    lines: list[Sequence[object]] = [COLUMNS]
    for name, error in sorted(margins.errors.items()):
        lines.append((SCALE, *name, "", error.systems, f"{sqrt(error.mean_square):.4f}"))
    for band, values in margins.quantiles.items():
        systems = len({point.system for point in points if point.band == band})
        for confidence, value in zip(CONFIDENCES, values, strict=True):
            lines.append((QUANTILE, "", "", "", band, confidence, systems, f"{value:.4f}"))
    return csv_of(lines)
