"""Which few parameters explain residuals: every small set is fitted and scored.

A log often cannot separate constants: what a hop takes and what a launch takes make the same flat
curve. A fit of all of them spreads a deviation over several, each a little wrong, and then other
collectives get worse. So sets of at most `MOST_FITTED` parameters are compared instead. A parameter
counts as determined only if every set that explains the residuals about as well as the best one
contains it; what differs between these sets is a group that the log cannot separate.

The residual of a point is the logarithm of simulated over measured time. A parameter is the
logarithm of a factor on its usual value."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations
from math import log

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import lsq_linear

from netsim.base.values import dataclass

Floats = NDArray[np.float64]
Members = tuple[int, ...]  # parameters of a set, by number, ascending

NOISE = 0.02  # of a measured point, as a fraction: for robust weights and intervals
FLOOR = 0.004  # residual that counts as 0: tables of logs have three or four digits
SPREAD = 0.4  # by how much a parameter differs between systems, as a standard deviation of its log
ROBUST_ROUNDS = 4  # rounds in which points that are far off lose their weight
MOST_FITTED = 4  # parameters in a set
POINTS_EACH = 3  # points that a fitted parameter needs
# Scores differ by 2 log(likelihood ratio). A set counts as plausible if the best one is less than
# e^3 = 20 times as likely (6 = 2 * 3). A subset of the best one replaces it if the best one is less
# than e = 2.7 times as likely (2 = 2 * 1).
AS_GOOD = 6.0
FEWER_AS_GOOD = 2.0
DRAWS = 200  # of the bootstrap
SEED = 20240229


@dataclass(frozen=True)
class Linear:
    """Residuals where all parameters are 0, and their derivatives (rows: points)."""

    usual: Floats
    slopes: Floats

    def without(self, point: int) -> "Linear":
        """The same without one point."""
        return Linear(np.delete(self.usual, point), np.delete(self.slopes, point, axis=0))

    def at(self, x: Floats) -> Floats:
        """The residuals at some parameters."""
        residuals: Floats = self.usual + self.slopes @ x
        return residuals


@dataclass(frozen=True)
class FittedSet:
    """A set of parameters with the values that fit best (all others are 0), the residuals that
    they leave, and the score: the lower, the more plausible."""

    members: Members
    x: Floats
    residuals: Floats
    score: float


def score_of(residuals: Floats, x: Floats, count: int) -> float:
    """How implausible it is that `count` parameters x leave these residuals: -2 log(likelihood)
    with unknown noise, a penalty for every parameter (Schwarz, for few points as by Hurvich and
    Tsai) and for moves that systems rarely show. Points far off count less than by their square."""
    points = len(residuals)
    scale = 2 * NOISE
    squares = 2 * scale**2 * (np.sqrt(1 + (residuals / scale) ** 2) - 1)
    likelihood = points * log(float(squares.mean()) + FLOOR**2)
    penalty = count * log(points) * points / max(1, points - count - 1)
    return likelihood + penalty + float(x @ x) / SPREAD**2


def solved(line: Linear, members: Members, low: Floats, high: Floats) -> Floats:
    """The values of the members that fit best, within bounds, by robust least squares with a weak
    pull to the usual values; the others are 0."""
    x = np.zeros(line.slopes.shape[1])
    if not members:
        return x
    chosen = list(members)
    slopes = line.slopes[:, chosen]
    pull = np.eye(len(chosen)) / SPREAD
    nothing = np.zeros(len(chosen))
    weight = np.ones(len(line.usual))
    for _ in range(ROBUST_ROUNDS):
        rows = np.vstack([slopes * (weight / NOISE)[:, None], pull])
        target = np.concatenate([-line.usual * weight / NOISE, nothing])
        values = np.linalg.lstsq(rows, target, rcond=None)[0]
        rest = line.usual + slopes @ values
        weight = (1 + (rest / (2 * NOISE)) ** 2) ** -0.25
    if ((values < low[chosen]) | (values > high[chosen])).any():
        values = lsq_linear(rows, target, (low[chosen], high[chosen])).x
    x[chosen] = values
    return x


def fitted_set(line: Linear, members: Members, low: Floats, high: Floats) -> FittedSet:
    """A set fitted where residuals are straight lines of the parameters."""
    x = solved(line, members, low, high)
    residuals = line.at(x)
    return FittedSet(members, x, residuals, score_of(residuals, x, len(members)))


def fitted_sets(
    line: Linear, seen: Sequence[int], low: Floats, high: Floats, most: int = MOST_FITTED
) -> list[FittedSet]:
    """Fit every set of at most `most` of the parameters `seen` (numbers of those that the points
    depend on), with at least `POINTS_EACH` points per parameter; the most plausible first."""
    most = min(most, len(line.usual) // POINTS_EACH)
    sets = (
        fitted_set(line, members, low, high)
        for count in range(most + 1)
        for members in combinations(seen, count)
    )
    return sorted(sets, key=lambda fit: fit.score)


def plausible(sets: Iterable[FittedSet]) -> list[FittedSet]:
    """Return the sets that explain the residuals about as well as the best one, the best first.

    The best set is the one with the lowest score, or a proper subset of it whose score is at most
    `FEWER_AS_GOOD` higher. Other sets are added if their score is within `AS_GOOD` of the best,
    they have no more parameters than it, are no subset of it, and contain no set already added."""
    ordered = sorted(sets, key=lambda one: one.score)
    best = ordered[0]
    for one in ordered:
        if set(one.members) < set(best.members) and one.score <= best.score + FEWER_AS_GOOD:
            best = one
    limit = best.score + AS_GOOD
    chosen = [best]
    for one in sorted(ordered, key=lambda one: (len(one.members), one.score)):
        members = set(one.members)
        larger = len(members) > len(best.members)
        contains = any(set(other.members) <= members for other in chosen)
        if one.score <= limit and not larger and not contains and not members < set(best.members):
            chosen.append(one)
    return chosen


def common_members(sets: Sequence[FittedSet]) -> Members:
    """The parameters that are in all sets."""
    common = set(sets[0].members)
    for fit in sets[1:]:
        common &= set(fit.members)
    return tuple(sorted(common))


def forecast_residuals(line: Linear, members: Members, low: Floats, high: Floats) -> Floats:
    """The residual of every point where the members are fitted to the others alone."""
    forecast = np.zeros(len(line.usual))
    for point in range(len(forecast)):
        x = solved(line.without(point), members, low, high)
        forecast[point] = line.usual[point] + line.slopes[point] @ x
    return forecast


def interval_moves(line: Linear, fitted: FittedSet) -> Floats:
    """Return the 90 % interval of each parameter relative to its fitted value (5th and 95th
    percentile of its logarithm), by bootstrap: points are drawn with replacement, with noise of at
    least `NOISE`. 0 for parameters outside the set."""
    spans = np.zeros((len(fitted.x), 2))
    chosen = list(fitted.members)
    if not chosen:
        return spans
    points = len(fitted.residuals)
    random = np.random.default_rng(SEED)
    size = np.maximum(np.abs(fitted.residuals), NOISE)
    moves = np.array([_move(line.slopes[:, chosen], size, random) for _ in range(DRAWS)])
    assert moves.shape == (DRAWS, len(chosen))
    assert points == len(line.usual)
    spans[chosen] = np.quantile(moves, (0.05, 0.95), axis=0).T
    return spans


def _move(slopes: Floats, size: Floats, random: np.random.Generator) -> Floats:
    """Return the deviation of each member from its fitted value for one bootstrap draw. A parameter
    that the points do not determine varies with the spread between systems, `SPREAD`."""
    points, count = slopes.shape
    drawn = random.integers(points, size=points)
    noise = random.choice((-1.0, 1.0), size=points) * size[random.integers(points, size=points)]
    pull = random.normal(size=count)
    rows = np.vstack([slopes[drawn] / NOISE, np.eye(count) / SPREAD])
    target = np.concatenate([noise / NOISE, pull])
    values: Floats = np.linalg.lstsq(rows, target, rcond=None)[0]
    return values


def alternatives(sets: Sequence[FittedSet]) -> Iterator[Members]:
    """What every set has beside the parameters that are in all of them."""
    common = set(common_members(sets))
    for fit in sets:
        rest = tuple(number for number in fit.members if number not in common)
        if rest:
            yield rest
