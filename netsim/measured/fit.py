"""Robust least squares of a few physical parameters on measured times, with intervals.

The residual of a point is the logarithm of simulated over measured time. Parameters are logarithms
of factors on their usual values; a weak pull towards those keeps what the points do not show.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from netsim.measured.parameters import Parameter

Floats = NDArray[np.float64]
Residuals = Callable[[Sequence[Floats]], Sequence[Floats]]  # at some places, of all parameters
Narrow = Callable[[NDArray[np.bool_]], None]  # told which points depend on which parameters

STEP = 0.1  # of a parameter, for differences: simulated times are piecewise smooth
DEPENDS = 1e-3  # the same from which a point depends on a parameter at all
SHOWS = 0.03  # change of a log time by a factor of e from which a point shows a parameter
NOISE = 0.05  # of a measured point, as a part
PULL = 0.25  # weight of the pull: systems differ by about a quarter, points by 6 %
ROUNDS = 4  # of each loss, the first of them where it begins
DRAWS = 200
WIDE = np.log(2.5)  # an interval wider than this factor tells nothing
SEED = 20240229
VAGUE = "the points determine it to no better than a factor of 2.5"


@dataclass(frozen=True)
class Fitted:
    """One parameter: its logarithm, the 90 % interval, and why it was left alone, if it was."""

    parameter: Parameter
    x: float
    low: float
    high: float
    left: str = ""


def fit(
    parameters: Sequence[Parameter],
    residuals: Residuals,
    narrow: Narrow,
    earlier: Sequence[Fitted] | None = None,
) -> list[Fitted]:
    """The parameters that the points determine; the others at their usual values.

    `earlier`: what fewer of the points gave; those parameters are fitted again, and no others.
    """
    count = len(parameters)
    left: dict[int, str] = {}
    x = np.zeros(count)
    if earlier is None:
        jacobian = _differences(residuals, x, range(count), _bounds(parameters))
        narrow(np.abs(jacobian) > DEPENDS)
        seen = np.abs(jacobian).max(axis=0, initial=0.0) > SHOWS
        left = {i: "the points do not show it" for i in range(count) if not seen[i]}
    else:
        x = np.array([one.x for one in earlier])
        left = {i: one.left for i, one in enumerate(earlier) if one.left}
    intervals = np.zeros((count, 2))
    again = True
    while again:
        shown = [i for i in range(count) if i not in left]
        x[list(left)] = 0.0
        intervals = np.zeros((count, 2))
        if not shown:
            break
        x, jacobian, rest = _solved(parameters, residuals, x, shown)
        vague = _vague(jacobian, rest)
        left |= {shown[k]: VAGUE for k in vague}
        kept = [k for k in range(len(shown)) if k not in vague]
        intervals[[shown[k] for k in kept]] = _bootstrap(jacobian[:, kept], rest)
        edge = [] if vague else _at_bound(parameters, x, shown)[:1]
        left |= dict.fromkeys(edge, "it would lie at the edge of what is physical")
        again = bool(vague or edge)
    return [
        Fitted(
            parameter,
            float(x[i]),
            float(x[i] + intervals[i, 0]),
            float(x[i] + intervals[i, 1]),
            left.get(i, ""),
        )
        for i, parameter in enumerate(parameters)
    ]


def _vague(jacobian: Floats, residuals: Floats) -> list[int]:
    """Parameters that the points do not determine, the vaguest first, each without the last.

    Two that do the same are both vague until one of them is held.
    """
    gone: list[int] = []
    kept = list(range(jacobian.shape[1]))
    while kept:
        intervals = _bootstrap(jacobian[:, kept], residuals)
        width = intervals[:, 1] - intervals[:, 0]
        if width.max() <= WIDE:
            break
        gone.append(kept.pop(int(width.argmax())))
    return gone


def _solved(
    parameters: Sequence[Parameter], residuals: Residuals, start: Floats, shown: Sequence[int]
) -> tuple[Floats, Floats, Floats]:
    """The best values of some parameters, with the Jacobian and the residuals there."""
    bounds = _bounds(parameters)
    pull = PULL * np.eye(len(shown))

    def whole(part: Floats) -> Floats:
        x = start.copy()
        x[list(shown)] = part
        return x

    slope = Slope(_differences(residuals, whole(start[list(shown)]), shown, bounds))

    def errors(part: Floats) -> Floats:
        found = residuals([whole(part)])[0]
        slope.seen(part, found)
        return np.concatenate([found, PULL * part])

    def slopes(part: Floats) -> Floats:
        return np.vstack([slope.at(part), pull])

    picked = list(shown)
    low, high = bounds[0][picked], bounds[1][picked]
    best = start[picked]
    for loss in ("linear", "soft_l1"):  # far away the robust loss takes small steps
        found = least_squares(
            errors,
            np.clip(best, low + 1e-6, high - 1e-6),
            jac=slopes,
            bounds=(low, high),
            loss=loss,
            f_scale=NOISE,
            max_nfev=ROUNDS,
            xtol=1e-2,
            ftol=1e-3,
        )
        best = found.x
    x = whole(best)
    return x, slope.at(best), residuals([x])[0]


class Slope:
    """The Jacobian, by differences where a fit begins, then by what each step shows (Broyden).

    Differences at every step would take most of the time and hardly change the steps.
    """

    def __init__(self, jacobian: Floats) -> None:
        self.jacobian = jacobian
        self.place: Floats | None = None
        self.known: dict[bytes, Floats] = {}

    def seen(self, part: Floats, residuals: Floats) -> None:
        """The residuals somewhere."""
        self.known[part.tobytes()] = residuals

    def at(self, part: Floats) -> Floats:
        """The Jacobian at a place whose residuals were seen."""
        if self.place is not None:
            step = part - self.place
            length = float(step @ step)
            if length > 0.0:
                moved = self.known[part.tobytes()] - self.known[self.place.tobytes()]
                self.jacobian = (
                    self.jacobian + np.outer(moved - self.jacobian @ step, step) / length
                )
        self.place = part.copy()
        return self.jacobian


def _differences(
    residuals: Residuals, x: Floats, which: Sequence[int] | range, bounds: tuple[Floats, Floats]
) -> Floats:
    """How the residuals change with some parameters."""
    steps = [STEP if x[i] + STEP <= bounds[1][i] else -STEP for i in which]
    places = [x]
    for i, step in zip(which, steps, strict=True):
        places.append(x.copy())
        places[-1][i] += step
    here, *moved = residuals(places)
    columns = [(there - here) / step for there, step in zip(moved, steps, strict=True)]
    return np.array(columns).T.reshape(len(here), len(columns))


def _bounds(parameters: Sequence[Parameter]) -> tuple[Floats, Floats]:
    low = np.log([parameter.low for parameter in parameters])
    return low, np.maximum(np.log([parameter.high for parameter in parameters]), low + 0.01)


def _at_bound(parameters: Sequence[Parameter], x: Floats, shown: Sequence[int]) -> list[int]:
    low, high = _bounds(parameters)
    whole = high < 0.05  # a usable part that is nearly all already may be all of it
    return [i for i in shown if x[i] < low[i] + 0.01 or (x[i] > high[i] - 0.01 and not whole[i])]


def _bootstrap(jacobian: Floats, residuals: Floats) -> Floats:
    """The 5th and 95th percentile of each parameter's move when the points are drawn anew.

    The simulation is taken as linear around the optimum, where it is evaluated already.
    """
    points, count = jacobian.shape
    random = np.random.default_rng(SEED)
    spread = np.maximum(np.abs(residuals), 0.01)
    moves = np.zeros((DRAWS, count))
    if not count:
        return np.zeros((0, 2))
    for draw in range(DRAWS):
        chosen = random.integers(points, size=points)
        noise = (
            random.choice((-1.0, 1.0), size=points) * spread[random.integers(points, size=points)]
        )
        slopes = np.vstack([jacobian[chosen], PULL * np.eye(count)])
        target = np.concatenate([noise, np.zeros(count)])
        moves[draw] = np.linalg.lstsq(slopes, target, rcond=None)[0]
    return np.quantile(moves, (0.05, 0.95), axis=0).T
