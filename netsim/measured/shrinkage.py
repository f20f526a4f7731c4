"""Fit all parameters that have an effect on a log, with a penalty on the distance from their usual
values.

Real systems differ a little in every parameter, and their logs have noise, so that often no small
set of parameters explains them. All parameters are then fitted at once by robust least squares with
a penalty. Its strength is the one with which fits to all points but one predict the left-out point
best. If no fit predicts better than the usual values, these are kept.

The residual of a point is the logarithm of simulated over measured time. A parameter is the
logarithm of a factor on its usual value, so 0 is the usual value. The penalty is described by
`spread`: the standard deviation that parameters are assumed to have between systems.
"""

from collections.abc import Callable, Iterator, Sequence
from math import log

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import lsq_linear

from netsim.base.values import dataclass
from netsim.measured.selection import DRAWS, NOISE, SEED, Floats, LinearModel

Which = NDArray[np.bool_]
# A function of several x (the values of all parameters) that returns the residuals at each x.
Residuals = Callable[[Sequence[Floats]], Sequence[Floats]]
Differences = Callable[[Floats], Floats]  # a function of x: the derivatives of all residuals at x

ROBUST_ROUNDS = 6  # times that the weights of points with large residuals are reduced
UNCERTAIN = 0.9  # a parameter is determined if its deviation is below this fraction of its spread
SPAN = 3.3  # standard deviations from the 5th to the 95th percentile
WIDE = log(4)  # a parameter is not determined if the ends of its interval differ by more
SPREADS = (0.1, 0.2, 0.4)  # tried standard deviations of a parameter between systems
ROUNDS = 4  # most values of x at which the residuals are simulated
STILL = 0.01  # the fit has converged when no parameter changes by more
BENT = 0.03  # derivatives are computed anew if the linear model misses residuals by more
FAR = 0.3  # the largest error with which a forecast counts


@dataclass(frozen=True)
class Shrunken:
    """The result of a fit with a penalty.

    Args:
        x: the values of all parameters.
        fitted: mask of the parameters that were fitted; the others are 0.
        intervals: the 90 % interval of each parameter (columns: low, high).
        forecast: the residual of each point by a fit to the other points.
    """

    x: Floats
    fitted: Which
    intervals: Floats
    forecast: Floats


def shrunken_fit(
    residuals: Residuals,
    differences: Differences,
    seen: Which,
    rates: Which,
    low: Floats,
    high: Floats,
) -> Shrunken:
    """Fit all parameters that are `seen`, or only the `rates` among them if that predicts left-out
    points better.

    Large sizes determine rates even if they do not determine latencies.

    Args:
        residuals: returns the residuals at given values of the parameters.
        differences: returns the derivatives of the residuals at values of the parameters.
        seen: mask of the parameters that have an effect.
        rates: mask of the parameters that are rates.
        low: least value of each parameter.
        high: largest value of each parameter.
    """
    x = np.zeros(len(seen))
    usual = residuals([x])[0]
    here = usual
    slopes = differences(x)
    best_cost = _cost(x, here)
    best = (x, np.zeros(len(seen), dtype=bool), SPREADS[0], usual)
    line = LinearModel(here, slopes)
    for last in range(ROUNDS):
        line = LinearModel(here - slopes @ x, slopes)
        spread, candidates, forecast = _best_forecast(line, (seen, seen & rates), usual)
        chosen = determined(line, candidates, spread)
        aim = bounded_solution(line, chosen, spread, low, high)
        move = aim - x
        if np.abs(move).max(initial=0.0) < STILL:
            break
        there = residuals([aim])[0]
        missed = there - (here + slopes @ move)
        x = aim
        here = there
        cost = _cost(x, here)
        if cost < best_cost:
            best_cost = cost
            best = (x, chosen, spread, forecast)
        if np.median(np.abs(missed)) > BENT and last < ROUNDS - 1:
            slopes = differences(x)
        else:  # what the step showed (Broyden); differences would hardly change the next one
            slopes = slopes + np.outer(missed, move) / float(move @ move)
    x, chosen, spread, forecast = best
    return Shrunken(x, chosen, x[:, None] + interval_moves(line, chosen, spread), forecast)


def forecast_score(errors: Floats) -> float:
    """Return the mean absolute error of predictions, each error limited to `FAR`."""
    return float(np.minimum(np.abs(errors), FAR).mean())


def solution(line: LinearModel, chosen: Which, spread: float) -> Floats:
    """Return the parameter values that fit a linear model best, where only those in the mask
    `chosen` differ from 0.

    `spread` sets the strength of the penalty.
    """
    x = np.zeros(len(chosen))
    for rows, target in _weighted(line, chosen, spread):
        x[chosen] = np.linalg.lstsq(rows, target, rcond=None)[0]
    return x


def bounded_solution(
    line: LinearModel, chosen: Which, spread: float, low: Floats, high: Floats
) -> Floats:
    """Return the parameter values between `low` and `high` that fit a linear model best, where only
    those in the mask `chosen` differ from 0. `spread` sets the strength of the penalty.
    """
    x = np.zeros(len(chosen))
    if not chosen.any():
        return x
    *_, (rows, target) = _weighted(line, chosen, spread)
    x[chosen] = lsq_linear(rows, target, (low[chosen], high[chosen])).x
    return x


def _weighted(line: LinearModel, chosen: Which, spread: float) -> Iterator[tuple[Floats, Floats]]:
    """Yield, round by round, the equations (matrix, right side) of a weighted least squares fit of
    the parameters in the mask `chosen`.

    From round to round, points with large residuals get less weight. The last rows are those of the
    penalty, whose strength `spread` sets.
    """
    slopes = line.slopes[:, chosen]
    count = int(chosen.sum())
    weight = np.ones(len(line.usual))
    pull = np.eye(count) / spread
    nothing = np.zeros(count)
    for _ in range(ROBUST_ROUNDS):
        rows = np.vstack([slopes * (weight / NOISE)[:, None], pull])
        target = np.concatenate([-line.usual * weight / NOISE, nothing])
        yield rows, target
        rest = line.usual + slopes @ np.linalg.lstsq(rows, target, rcond=None)[0]
        weight = (1 + (rest / (2 * NOISE)) ** 2) ** -0.25


def determined(line: LinearModel, seen: Which, spread: float) -> Which:
    """Return a mask of the parameters that the points determine.

    Of the parameters in the mask `seen`, the least certain one is removed, again and again, until
    every one that is left is certain enough: its standard deviation is at most the fraction
    UNCERTAIN of `spread` (the standard deviation assumed between systems), and its interval is at
    most WIDE. Two parameters with the same effect are both uncertain until one of them is removed.
    """
    chosen = seen.copy()
    while chosen.any():
        *_, (rows, target) = _weighted(line, chosen, spread)
        deviation = np.sqrt(np.diag(np.linalg.inv(rows.T @ rows)))
        rest = line.usual + line.slopes[:, chosen] @ np.linalg.lstsq(rows, target, rcond=None)[0]
        # The factor by which the residuals are larger than those of a good fit.
        worse = max(1.0, float(np.median(np.abs(rest))) / NOISE)
        vagueness = np.maximum(deviation / spread / UNCERTAIN, deviation * worse * SPAN / WIDE)
        worst = int(vagueness.argmax())
        if vagueness[worst] <= 1.0:
            break
        chosen[np.flatnonzero(chosen)[worst]] = False
    return chosen


def forecast_errors(line: LinearModel, seen: Which, spread: float) -> Floats:
    """Return the residual of every point by a fit to the other points."""
    errors = np.zeros(len(line.usual))
    for point in range(len(errors)):
        others = line.without(point)
        x = solution(others, determined(others, seen, spread), spread)
        errors[point] = line.usual[point] + line.slopes[point] @ x
    return errors


def interval_moves(line: LinearModel, chosen: Which, spread: float) -> Floats:
    """Return the 5th and 95th percentile of the deviation of each parameter from its fitted value,
    by bootstrap; 0 for parameters that are not `chosen`.

    Points are drawn with replacement. If the points do not determine a parameter, it varies by the
    spread between systems.
    """
    spans = np.zeros((len(chosen), 2))
    count = int(chosen.sum())
    points = len(line.usual)
    if not count:
        return spans
    rest = line.usual + line.slopes @ solution(line, chosen, spread)
    random = np.random.default_rng(SEED)
    size = np.maximum(np.abs(rest), NOISE)
    moves = np.zeros((DRAWS, count))
    for draw in range(DRAWS):
        drawn = random.integers(points, size=points)
        noise = random.choice((-1.0, 1.0), size=points)
        noise *= size[random.integers(points, size=points)]
        pull = random.normal(size=count)
        rows = np.vstack([line.slopes[drawn][:, chosen] / NOISE, np.eye(count) / spread])
        target = np.concatenate([noise / NOISE, pull])
        moves[draw] = np.linalg.lstsq(rows, target, rcond=None)[0]
    spans[chosen] = np.quantile(moves, (0.05, 0.95), axis=0).T
    return spans


def _best_forecast(
    line: LinearModel, choices: Sequence[Which], usual: Floats
) -> tuple[float, Which, Floats]:
    """Return the spread and the mask of parameters with which fits predict left-out points best,
    and the residuals of these predictions.

    `choices` are the masks that are tried. The mask is empty if the usual values (residuals
    `usual`) predict best.
    """
    best = (SPREADS[0], np.zeros_like(choices[0]), usual)
    best_score = forecast_score(usual)
    for seen in choices:
        for spread in SPREADS:
            errors = forecast_errors(line, seen, spread)
            score = forecast_score(errors)
            if score < best_score:
                best = (spread, seen, errors)
                best_score = score
    return best


def _cost(x: Floats, residuals: Floats) -> float:
    """Return the quantity that a fit minimizes: robust squares of residuals plus squares of the
    parameters.
    """
    size = residuals / (2 * NOISE)
    return float(4 * (np.sqrt(1 + size**2) - 1).sum() + (x / SPREADS[-1]) @ (x / SPREADS[-1]))
