"""Residuals as straight lines of parameters: the best ones, what they forecast, how sure they are.

Parameters spread around 0, the usual value, by a given amount from system to system.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import log

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import lsq_linear

Floats = NDArray[np.float64]
Which = NDArray[np.bool_]

NOISE = 0.02  # of a measured point, as a part
ROBUST = 6  # rounds in which points far off lose their weight
TELLS = 0.9  # of how little was known of a parameter, what points must leave at most
SPAN = 3.3  # standard deviations from the 5th to the 95th percentile
WIDE = log(4)  # an interval wider than this factor tells nothing
DRAWS = 200
SEED = 20240229


@dataclass(frozen=True)
class Linear:
    """Residuals where all parameters are 0, and how they change with each."""

    usual: Floats
    slopes: Floats

    def without(self, point: int) -> "Linear":
        """The same without one point."""
        return Linear(np.delete(self.usual, point), np.delete(self.slopes, point, axis=0))

    def intervals(self, kept: Which, spread: float) -> Floats:
        """The 5th and 95th percentile of each parameter's move when points are drawn anew.

        What the points do not tell is drawn as systems differ.
        """
        spans = np.zeros((len(kept), 2))
        count, points = int(kept.sum()), len(self.usual)
        if not count:
            return spans
        rest = self.usual + self.slopes @ solved(self, kept, spread)
        random = np.random.default_rng(SEED)
        size = np.maximum(np.abs(rest), NOISE)
        moves = np.zeros((DRAWS, count))
        for draw in range(DRAWS):
            chosen = random.integers(points, size=points)
            noise = random.choice((-1.0, 1.0), size=points)
            noise *= size[random.integers(points, size=points)]
            pull = random.normal(size=count)
            rows = np.vstack([self.slopes[chosen][:, kept] / NOISE, np.eye(count) / spread])
            target = np.concatenate([noise / NOISE, pull])
            moves[draw] = np.linalg.lstsq(rows, target, rcond=None)[0]
        spans[kept] = np.quantile(moves, (0.05, 0.95), axis=0).T
        return spans


def solved(line: Linear, kept: Which, spread: float) -> Floats:
    """The best values of the parameters that are kept; the others are 0."""
    x = np.zeros(len(kept))
    for rows, target in _weighted(line, kept, spread):
        x[kept] = np.linalg.lstsq(rows, target, rcond=None)[0]
    return x


def least_squares(line: Linear, kept: Which, spread: float, low: Floats, high: Floats) -> Floats:
    """The same within bounds."""
    x = np.zeros(len(kept))
    if not kept.any():
        return x
    *_, (rows, target) = _weighted(line, kept, spread)
    x[kept] = lsq_linear(rows, target, (low[kept], high[kept])).x
    return x


def _weighted(line: Linear, kept: Which, spread: float) -> Iterator[tuple[Floats, Floats]]:
    """Equations in rounds: points that the last solution misses by far count less."""
    slopes, count = line.slopes[:, kept], int(kept.sum())
    weight = np.ones(len(line.usual))
    pull, nothing = np.eye(count) / spread, np.zeros(count)
    for _ in range(ROBUST):
        rows = np.vstack([slopes * (weight / NOISE)[:, None], pull])
        target = np.concatenate([-line.usual * weight / NOISE, nothing])
        yield rows, target
        rest = line.usual + slopes @ np.linalg.lstsq(rows, target, rcond=None)[0]
        weight = (1 + (rest / (2 * NOISE)) ** 2) ** -0.25


def settled(line: Linear, seen: Which, spread: float) -> Which:
    """The parameters of which the points tell something, found by leaving the vaguest, one by one.

    Two that do the same are both vague until one of them is left.
    """
    kept = seen.copy()
    while kept.any():
        *_, (rows, target) = _weighted(line, kept, spread)
        sure = np.sqrt(np.diag(np.linalg.inv(rows.T @ rows)))
        rest = line.usual + line.slopes[:, kept] @ np.linalg.lstsq(rows, target, rcond=None)[0]
        worse = max(1.0, float(np.median(np.abs(rest))) / NOISE)  # than points of a good fit
        vague = np.maximum(sure / spread / TELLS, sure * worse * SPAN / WIDE)
        worst = int(vague.argmax())
        if vague[worst] <= 1.0:
            break
        kept[np.flatnonzero(kept)[worst]] = False
    return kept


def forecast_errors(line: Linear, seen: Which, spread: float) -> Floats:
    """How far every point is off where the others alone are fitted."""
    found = np.zeros(len(line.usual))
    for point in range(len(found)):
        others = line.without(point)
        x = solved(others, settled(others, seen, spread), spread)
        found[point] = line.usual[point] + line.slopes[point] @ x
    return found
