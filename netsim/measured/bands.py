"""Error by size band: the median of |log ratio|, its 90th percentile, and the signed bias.

All are given as parts: 0.15 means that simulated and measured differ by a factor of 1.15.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import TypeVar

import numpy as np

from netsim.measured.points import Point
from netsim.validated import BANDS, band_of

K = TypeVar("K", bound=Hashable)

ALL = "all"


@dataclass(frozen=True)
class Error:
    """How far simulated times are from measured ones."""

    points: int
    runs: int
    median: float
    p90: float
    bias: float


def error_of(points: Sequence[Point]) -> Error:
    """The error of some points, at least one."""
    ratios = np.array([point.log_ratio for point in points])
    size = np.abs(ratios)
    return Error(
        len(points),
        len({point.run for point in points}),
        float(np.expm1(np.median(size))),
        float(np.expm1(np.quantile(size, 0.9))),
        float(np.expm1(np.median(ratios))),
    )


def by_band(points: Sequence[Point]) -> dict[str, Error]:
    """The error in every band that has points, and of all."""
    found = grouped(points, lambda point: band_of(point.size_bytes))
    errors = {band: error_of(found[band]) for band in BANDS if band in found}
    return errors | ({ALL: error_of(points)} if points else {})


def grouped(points: Iterable[Point], key: Callable[[Point], K]) -> dict[K, list[Point]]:
    """Points by a key, in the order in which keys appear."""
    found: dict[K, list[Point]] = {}
    for point in points:
        found.setdefault(key(point), []).append(point)
    return found


def as_values(errors: dict[str, Error]) -> dict[str, dict[str, float]]:
    """Errors as plain values."""
    return {band: asdict(error) for band, error in errors.items()}


__all__ = ["ALL", "BANDS", "Error", "as_values", "band_of", "by_band", "error_of", "grouped"]
