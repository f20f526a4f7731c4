"""A fit of all parameters that a log shows, each pulled to its usual value.

Real systems differ a little in every parameter, and their logs have noise, so that no few
parameters explain them. All are fitted at once by robust least squares with a pull to the usual
values, as strong as lets fits without a point best forecast that point. Where no fit forecasts
better than the usual values do, those stay.

The residual of a point is the logarithm of simulated over measured time. A parameter is the
logarithm of a factor on its usual value."""

from collections.abc import Callable, Iterator, Sequence
from math import log

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import lsq_linear

from netsim.base.values import dataclass
from netsim.measured.selection import DRAWS, NOISE, SEED, Floats, Linear

Which = NDArray[np.bool_]
Residuals = Callable[[Sequence[Floats]], Sequence[Floats]]  # at some places, of all parameters
Differences = Callable[[Floats], Floats]  # derivatives of all residuals at a place

ROBUST_ROUNDS = 6  # rounds in which points that are far off lose their weight
UNCERTAIN = 0.9  # of a parameter's usual spread: what points must reduce it to
SPAN = 3.3  # standard deviations from the 5th to the 95th percentile
WIDE = log(4)  # an interval wider than this factor determines nothing
SPREADS = (0.1, 0.2, 0.4)  # by how much systems may differ in their parameters, as a log
ROUNDS = 4  # places at which the residuals are simulated
STILL = 0.01  # a move of all parameters that changes nothing any more
BENT = 0.03  # by how much a straight line may miss residuals before it is drawn anew
FAR = 0.3  # a forecast that is further off counts no more than this


@dataclass(frozen=True)
class Shrunken:
    """The parameters x, which of them were fitted, their 90 % intervals (rows: low, high), and the
    residual of each point where the others alone are fitted."""

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
    """The fit of all parameters that are `seen`, or only of the `rates` among them if that
    forecasts better: large sizes show rates also where latencies cannot be fitted."""
    x = np.zeros(len(seen))
    usual = residuals([x])[0]
    here = usual
    slopes = differences(x)
    best_cost = _cost(x, here)
    best = (x, np.zeros(len(seen), dtype=bool), SPREADS[0], usual)
    line = Linear(here, slopes)
    for last in range(ROUNDS):
        line = Linear(here - slopes @ x, slopes)
        spread, candidates, forecast = _best_forecast(line, (seen, seen & rates), usual)
        chosen = determined(line, candidates, spread)
        aim = bounded_solution(line, chosen, spread, low, high)
        move = aim - x
        if np.abs(move).max(initial=0.0) < STILL:
            break
        there = residuals([aim])[0]
        missed = there - (here + slopes @ move)
        x, here = aim, there
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
    """The mean |error| of forecasts, in which none counts for more than `FAR`."""
    return float(np.minimum(np.abs(errors), FAR).mean())


def solution(line: Linear, chosen: Which, spread: float) -> Floats:
    """The best values of the parameters that are kept; the others are 0."""
    x = np.zeros(len(chosen))
    for rows, target in _weighted(line, chosen, spread):
        x[chosen] = np.linalg.lstsq(rows, target, rcond=None)[0]
    return x


def bounded_solution(
    line: Linear, chosen: Which, spread: float, low: Floats, high: Floats
) -> Floats:
    """The best values within bounds of the parameters that are kept; the others are 0."""
    x = np.zeros(len(chosen))
    if not chosen.any():
        return x
    *_, (rows, target) = _weighted(line, chosen, spread)
    x[chosen] = lsq_linear(rows, target, (low[chosen], high[chosen])).x
    return x


def _weighted(line: Linear, chosen: Which, spread: float) -> Iterator[tuple[Floats, Floats]]:
    """Equations in rounds: points that the last solution misses by far count less."""
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


def determined(line: Linear, seen: Which, spread: float) -> Which:
    """The parameters that the points determine, found by leaving the vaguest, one by one. Two that
    do the same are both vague until one of them is left."""
    chosen = seen.copy()
    while chosen.any():
        *_, (rows, target) = _weighted(line, chosen, spread)
        deviation = np.sqrt(np.diag(np.linalg.inv(rows.T @ rows)))
        rest = line.usual + line.slopes[:, chosen] @ np.linalg.lstsq(rows, target, rcond=None)[0]
        worse = max(1.0, float(np.median(np.abs(rest))) / NOISE)  # than points of a good fit
        vagueness = np.maximum(deviation / spread / UNCERTAIN, deviation * worse * SPAN / WIDE)
        worst = int(vagueness.argmax())
        if vagueness[worst] <= 1.0:
            break
        chosen[np.flatnonzero(chosen)[worst]] = False
    return chosen


def forecast_errors(line: Linear, seen: Which, spread: float) -> Floats:
    """How far every point is off where the others alone are fitted."""
    errors = np.zeros(len(line.usual))
    for point in range(len(errors)):
        others = line.without(point)
        x = solution(others, determined(others, seen, spread), spread)
        errors[point] = line.usual[point] + line.slopes[point] @ x
    return errors


def interval_moves(line: Linear, kept: Which, spread: float) -> Floats:
    """The 5th and 95th percentile of each parameter's move when points are drawn anew. What the
    points do not determine moves as systems differ."""
    spans = np.zeros((len(kept), 2))
    count = int(kept.sum())
    points = len(line.usual)
    if not count:
        return spans
    rest = line.usual + line.slopes @ solution(line, kept, spread)
    random = np.random.default_rng(SEED)
    size = np.maximum(np.abs(rest), NOISE)
    moves = np.zeros((DRAWS, count))
    for draw in range(DRAWS):
        chosen = random.integers(points, size=points)
        noise = random.choice((-1.0, 1.0), size=points)
        noise *= size[random.integers(points, size=points)]
        pull = random.normal(size=count)
        rows = np.vstack([line.slopes[chosen][:, kept] / NOISE, np.eye(count) / spread])
        target = np.concatenate([noise / NOISE, pull])
        moves[draw] = np.linalg.lstsq(rows, target, rcond=None)[0]
    spans[kept] = np.quantile(moves, (0.05, 0.95), axis=0).T
    return spans


def _best_forecast(
    line: Linear, choices: Sequence[Which], usual: Floats
) -> tuple[float, Which, Floats]:
    """The spread, and the parameters, whose fits forecast best what they have not seen; no
    parameters where the usual values forecast best."""
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
    """What a fit makes small: robust squares of residuals, and of parameters as they may spread."""
    size = residuals / (2 * NOISE)
    return float(4 * (np.sqrt(1 + size**2) - 1).sum() + (x / SPREADS[-1]) @ (x / SPREADS[-1]))
