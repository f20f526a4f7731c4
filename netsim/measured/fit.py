"""Robust least squares of a few physical parameters on measured times, with intervals.

The residual of a point is the logarithm of simulated over measured time. Parameters are logarithms
of factors on their usual values, and systems are known to be alike: a pull draws every parameter
to its usual value, as strongly as lets a fit without a point best forecast that point. Where no
fit forecasts better than the usual values do, those stay.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from netsim.measured.linear import NOISE, Linear, forecast_errors, least_squares, settled
from netsim.measured.parameters import Parameter

Floats = NDArray[np.float64]
Residuals = Callable[[Sequence[Floats]], Sequence[Floats]]  # at some places, of all parameters
Narrow = Callable[[NDArray[np.bool_]], None]  # told which points depend on which parameters

STEP = 0.1  # of a parameter, for differences: simulated times are piecewise smooth
DEPENDS = 1e-3  # change of a log time by a factor of e from which a point depends on a parameter
SHOWS = 0.03  # the same from which a point shows it
SPREADS = (0.1, 0.2, 0.4)  # by how much systems may differ in their parameters, as a log
ROUNDS = 4
STILL = 0.01  # a move of all parameters that changes nothing any more
BENT = 0.03  # by how much a straight line may miss residuals before it is drawn anew
FAR = 0.3  # a forecast that is further off than this counts no more than one that is not
UNSEEN = "the points do not show it"
VAGUE = "the points do not determine it"
NO_BETTER = "without a point, no fit forecasts it better than the usual values do"


@dataclass(frozen=True)
class Fitted:
    """One parameter: its logarithm, the 90 % interval, and why it was left alone, if it was."""

    parameter: Parameter
    x: float
    low: float
    high: float
    left: str = ""

    @property
    def at_edge(self) -> bool:
        """Whether it would go beyond what is physical; a part that is nearly all may be all."""
        low, high = np.log([self.parameter.low, self.parameter.high])
        return bool(self.x < low + STILL or (self.x > high - STILL and high > 0.05))


@dataclass(frozen=True)
class Fit:
    """The parameters, and how far each point is off where a fit without it forecasts it."""

    fitted: tuple[Fitted, ...]
    forecast: Floats

    @property
    def x(self) -> Floats:
        """The logarithms of all factors."""
        return np.array([one.x for one in self.fitted])


def fit(parameters: Sequence[Parameter], residuals: Residuals, narrow: Narrow) -> Fit:
    """The parameters that the points determine; the others at their usual values."""
    count = len(parameters)
    low, high = _bounds(parameters)
    x = np.zeros(count)
    here = residuals([x])[0]
    slopes = _differences(residuals, x, high)
    narrow(np.abs(slopes) > DEPENDS)
    seen = np.abs(slopes).max(axis=0, initial=0.0) > SHOWS
    rates = np.array([one.is_rate for one in parameters], dtype=bool)
    usual = here
    best = _Place(_cost(x, here), x, np.zeros(count, dtype=bool), SPREADS[0], usual)
    for last in range(ROUNDS):
        line = Linear(here - slopes @ x, slopes)
        spread, among, forecast = _chosen(line, (seen, seen & rates), usual)
        kept = settled(line, among, spread)
        aim = least_squares(line, kept, spread, low, high)
        move = aim - x
        if np.abs(move).max(initial=0.0) < STILL:
            break
        there = residuals([aim])[0]
        missed = there - (here + slopes @ move)
        x, here = aim, there
        if _cost(x, here) < best.cost:
            best = _Place(_cost(x, here), x, kept, spread, forecast)
        if np.median(np.abs(missed)) > BENT and last < ROUNDS - 1:
            slopes = _differences(residuals, x, high)
        else:  # what the step showed (Broyden); differences would hardly change the next one
            slopes = slopes + np.outer(missed, move) / float(move @ move)
    x, kept, spread, forecast = best.x, best.kept, best.spread, best.forecast
    left = [_why(bool(seen[i]), bool(kept[i]), bool(kept.any())) for i in range(count)]
    spans = line.intervals(kept, spread)
    fitted = (
        Fitted(parameters[i], float(x[i]), float(x[i] + s[0]), float(x[i] + s[1]), left[i])
        for i, s in enumerate(spans)
    )
    return Fit(tuple(fitted), forecast)


@dataclass(frozen=True)
class _Place:
    """Somewhere that was simulated, and what was known there."""

    cost: float
    x: Floats
    kept: NDArray[np.bool_]
    spread: float
    forecast: Floats


def _cost(x: Floats, residuals: Floats) -> float:
    """What a fit makes small: robust squares of residuals, and of parameters as they may spread."""
    size = residuals / (2 * NOISE)
    return float(4 * (np.sqrt(1 + size**2) - 1).sum() + (x / SPREADS[-1]) @ (x / SPREADS[-1]))


def _why(seen: bool, kept: bool, fitted: bool) -> str:
    if not seen:
        return UNSEEN
    if not fitted:
        return NO_BETTER
    return "" if kept else VAGUE


def _chosen(
    line: Linear, choices: Sequence[NDArray[np.bool_]], usual: Floats
) -> tuple[float, NDArray[np.bool_], Floats]:
    """The spread, and the parameters, whose fits forecast best what they have not seen.

    Nothing where no fit should be made. `choices`: what large sizes tell of rates may hold where
    latencies, which small ones show, are not to be had.
    """
    found, best = (SPREADS[0], np.zeros_like(choices[0]), usual), _score(usual)
    for seen in choices:
        for spread in SPREADS:
            errors = forecast_errors(line, seen, spread)
            if _score(errors) < best:
                found, best = (spread, seen, errors), _score(errors)
    return found


def _score(errors: Floats) -> float:
    return float(np.minimum(np.abs(errors), FAR).mean())


def _differences(residuals: Residuals, x: Floats, high: Floats) -> Floats:
    """How the residuals change with every parameter."""
    steps = np.where(x + STEP <= high, STEP, -STEP)
    here, *moved = residuals([x, *(x + np.diag(steps))])
    columns = [(there - here) / step for there, step in zip(moved, steps, strict=True)]
    return np.array(columns).T.reshape(len(here), len(columns))


def _bounds(parameters: Sequence[Parameter]) -> tuple[Floats, Floats]:
    low = np.log([parameter.low for parameter in parameters])
    return low, np.maximum(np.log([parameter.high for parameter in parameters]), low + 0.01)
