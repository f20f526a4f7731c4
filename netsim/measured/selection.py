"""Find which few parameters explain residuals: fit and score every small set of parameters.

A log often cannot separate constants: the time of a hop and the time of a launch give the same flat
curve. A fit of all constants spreads one deviation over several of them; each is then slightly
wrong, and other collectives become worse. So sets of at most `MOST_FITTED` parameters are compared
instead. A parameter counts as determined only if every plausible set contains it, that is, every
set that explains the residuals about as well as the best one. The parameters in which these sets
differ cannot be separated by the log.

The residual of a point is the logarithm of simulated over measured time. A parameter is the
logarithm of a factor on its usual value, so 0 is the usual value.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations
from math import log

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import lsq_linear

from netsim.base.values import dataclass

Floats = NDArray[np.float64]
Members = tuple[int, ...]  # parameters of a set, by number, ascending

NOISE = 0.02  # of a measured time, as a fraction; used in robust weights and intervals
FLOOR = 0.004  # a smaller residual counts as 0: tables of logs have three or four digits
SPREAD = 0.4  # standard deviation of a parameter (a logarithm) between systems
ROBUST_ROUNDS = 4  # times that the weights of points with large residuals are reduced
MOST_FITTED = 4  # parameters in a set
POINTS_EACH = 3  # points that a fitted parameter needs
# Scores are -2 log(likelihood), so a difference of 2 log(r) is a likelihood ratio r. A set is
# plausible if the best one is less than e^3 = 20 times more likely (a difference of 6). A subset of
# the best one replaces it if the best one is less than e = 2.7 times more likely (a difference of
# 2).
AS_GOOD = 6.0
FEWER_AS_GOOD = 2.0
DRAWS = 200  # samples of the bootstrap
SEED = 20240229  # of the bootstrap, so that intervals are reproducible


@dataclass(frozen=True)
class LinearModel:
    """A linear model of residuals: `usual` are the residuals with all parameters at 0, `slopes`
    their derivatives (a row per point, a column per parameter).
    """

    usual: Floats
    slopes: Floats

    def without(self, point: int) -> "LinearModel":
        """The model without one point."""
        return LinearModel(np.delete(self.usual, point), np.delete(self.slopes, point, axis=0))

    def at(self, x: Floats) -> Floats:
        """Return the residuals at the parameter values x."""
        residuals: Floats = self.usual + self.slopes @ x
        return residuals


@dataclass(frozen=True)
class FittedSet:
    """A set of parameters that was fitted.

    Args:
        members: numbers of the parameters.
        x: the values of all parameters that fit best; those of non-members are 0.
        residuals: the residuals at x.
        score: see `score_of`; lower is more plausible.
    """

    members: Members
    x: Floats
    residuals: Floats
    score: float


def score_of(residuals: Floats, x: Floats, count: int) -> float:
    """Return the score of a fit with `count` parameters, given its residuals and the parameter
    values x; lower is more plausible.

    It is -2 log(likelihood) with unknown noise, plus a penalty for every parameter (Schwarz; for
    few points as by Hurvich and Tsai), plus a penalty for values that systems rarely have. Large
    residuals count less than by their square.
    """
    points = len(residuals)
    scale = 2 * NOISE
    squares = 2 * scale**2 * (np.sqrt(1 + (residuals / scale) ** 2) - 1)
    likelihood = points * log(float(squares.mean()) + FLOOR**2)
    penalty = count * log(points) * points / max(1, points - count - 1)
    return likelihood + penalty + float(x @ x) / SPREAD**2


def solved(line: LinearModel, members: Members, low: Floats, high: Floats) -> Floats:
    """Return the values of all parameters, with the `members` fitted best within bounds and all
    others 0.

    The method is robust least squares with a weak penalty on the distance from the usual values.
    """
    x = np.zeros(line.slopes.shape[1])
    if not members:
        return x
    chosen = list(members)
    slopes = line.slopes[:, chosen]
    pull = np.eye(len(chosen)) / SPREAD
    zeros = np.zeros(len(chosen))
    weight = np.ones(len(line.usual))
    for _ in range(ROBUST_ROUNDS):
        rows = np.vstack([slopes * (weight / NOISE)[:, None], pull])
        target = np.concatenate([-line.usual * weight / NOISE, zeros])
        values = np.linalg.lstsq(rows, target, rcond=None)[0]
        left_residuals = line.usual + slopes @ values
        weight = (1 + (left_residuals / (2 * NOISE)) ** 2) ** -0.25
    if ((values < low[chosen]) | (values > high[chosen])).any():
        values = lsq_linear(rows, target, (low[chosen], high[chosen])).x
    x[chosen] = values
    return x


def fitted_set(line: LinearModel, members: Members, low: Floats, high: Floats) -> FittedSet:
    """Fit a set of parameters to a linear model of the residuals, within the bounds `low` and
    `high`.
    """
    x = solved(line, members, low, high)
    residuals = line.at(x)
    return FittedSet(members, x, residuals, score_of(residuals, x, len(members)))


def fitted_sets(
    line: LinearModel, seen: Sequence[int], low: Floats, high: Floats, most: int = MOST_FITTED
) -> list[FittedSet]:
    """Fit every set of at most `most` of the parameters `seen` to a linear model; return them with
    the most plausible set first.

    `seen` are the numbers of the parameters on which points depend. Sets with fewer than
    `POINTS_EACH` points per parameter are skipped.
    """
    most = min(most, len(line.usual) // POINTS_EACH)
    sets = (
        fitted_set(line, members, low, high)
        for count in range(most + 1)
        for members in combinations(seen, count)
    )
    return sorted(sets, key=lambda fit: fit.score)


def plausible(sets: Iterable[FittedSet]) -> list[FittedSet]:
    """Return the plausible sets: those that explain the residuals about as well as the best one,
    which comes first.

    The best set is the one with the lowest score, or a proper subset of it whose score is at most
    `FEWER_AS_GOOD` higher. A further set is added if its score is within `AS_GOOD` of the best, it
    has no more parameters than the best, it is no subset of the best, and it contains no set that
    was already added.
    """
    ordered = sorted(sets, key=lambda candidate: candidate.score)
    best = ordered[0]
    for candidate in ordered:
        is_subset = set(candidate.members) < set(best.members)
        if is_subset and candidate.score <= best.score + FEWER_AS_GOOD:
            best = candidate
    limit = best.score + AS_GOOD
    chosen = [best]
    by_count = sorted(ordered, key=lambda candidate: (len(candidate.members), candidate.score))
    for candidate in by_count:
        members = set(candidate.members)
        is_larger = len(members) > len(best.members)
        contains_chosen = any(set(member_set.members) <= members for member_set in chosen)
        is_subset = members < set(best.members)
        if candidate.score <= limit and not (is_larger or contains_chosen or is_subset):
            chosen.append(candidate)
    return chosen


def common_members(sets: Sequence[FittedSet]) -> Members:
    """Return the numbers of the parameters that are in all sets."""
    common = set(sets[0].members)
    for fit in sets[1:]:
        common &= set(fit.members)
    return tuple(sorted(common))


def forecast_residuals(line: LinearModel, members: Members, low: Floats, high: Floats) -> Floats:
    """Return the residual of every point when the parameters `members` are fitted to the other
    points only.
    """
    forecast = np.zeros(len(line.usual))
    for point in range(len(forecast)):
        x = solved(line.without(point), members, low, high)
        forecast[point] = line.usual[point] + line.slopes[point] @ x
    return forecast


def interval_moves(line: LinearModel, fitted: FittedSet) -> Floats:
    """Return the 90 % interval of each parameter relative to its fitted value (columns: low, high);
    0 for parameters outside the set.

    The ends are the 5th and the 95th percentile by bootstrap: points are drawn with replacement,
    with noise of at least `NOISE`.
    """
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
    """Return the deviation of each fitted parameter from its value in one sample of the bootstrap.

    If the points do not determine a parameter, it varies by the spread between systems, `SPREAD`.
    """
    points, count = slopes.shape
    drawn = random.integers(points, size=points)
    noise = random.choice((-1.0, 1.0), size=points) * size[random.integers(points, size=points)]
    pull = random.normal(size=count)
    rows = np.vstack([slopes[drawn] / NOISE, np.eye(count) / SPREAD])
    target = np.concatenate([noise / NOISE, pull])
    values: Floats = np.linalg.lstsq(rows, target, rcond=None)[0]
    return values


def alternatives(sets: Sequence[FittedSet]) -> Iterator[Members]:
    """Yield for each set its parameters that are not in all sets, if it has any."""
    common = set(common_members(sets))
    for fit in sets:
        rest = tuple(number for number in fit.members if number not in common)
        if rest:
            yield rest
