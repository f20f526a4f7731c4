"""A calibration: measured runs of one system, the parameters that fit them, the error that is left.

Of runs with many sizes some are fitted; others, which the fit never sees, tell the error elsewhere.
What the fit forecasts of a size without it tells the same of few.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from netsim.errors import InputError
from netsim.measured.bands import Error
from netsim.measured.comparison import few, prepared_for
from netsim.measured.curve import Measured
from netsim.measured.fit import Fit, Fitted, fit
from netsim.measured.log_run import LogRun
from netsim.measured.parameters import figure, parameters_of
from netsim.measured.ratios import Ratios, Set
from netsim.topology.stamped import Figure
from netsim.yamlio.source import Source

FEWEST = 3  # sizes of which anything can be fitted
MOST = 11  # sizes of one run that are simulated again and again
MOST_HELD = 8  # sizes of one run that are held back
HUGE = 4 * 2**30  # larger sizes show no more than this one does, and take long


@dataclass(frozen=True)
class Calibrated:
    """What was fitted, and the error by band before and after.

    `forecast` is of every fitted size where the others alone are fitted, `held` of sizes that no
    fit has seen, where there are any.
    """

    fitted: tuple[Fitted, ...]
    figures: dict[str, Figure]
    before: dict[str, Error]
    after: dict[str, Error]
    forecast: dict[str, Error]
    held_before: dict[str, Error]
    held: dict[str, Error]


def calibrate(pairs: Sequence[tuple[Source, LogRun]], jobs: int | None = None) -> Calibrated:
    """Fit the parameters of one system to some runs of it."""
    sets = [Set(source, run, _used(run.rows)) for source, run in pairs]
    count = sum(len(one.rows) for one in sets)
    if count < FEWEST:
        raise InputError(
            f"{sets[0].run.file}: {count} size{'s' * (count != 1)}: nothing can be fitted to fewer "
            f"than {FEWEST}"
        )
    first = prepared_for(sets[0].source, sets[0].run)
    if not first.jobs:
        raise InputError("only NCCL's own algorithms can be calibrated; leave algorithm at auto")
    held = [replace(one, rows=_held_back(one)) for one in sets]
    both = [*sets, *(one for one in held if one.rows)]
    with Ratios(parameters_of(first), both, jobs) as ratios:
        fitted = list(range(count))
        found = fit(
            ratios.parameters,
            lambda places: ratios.at(places, fitted),
            lambda depends: ratios.narrow(depends, fitted),
        )
        return _calibrated(ratios, found, fitted)


def _used(rows: Sequence[Measured]) -> tuple[Measured, ...]:
    """The rows of a run that are simulated: of many, some evenly over the sizes."""
    usual = [row for row in rows if row.size_bytes <= HUGE]
    return few(usual if len(usual) >= MOST else rows, MOST)


def _held_back(one: Set) -> tuple[Measured, ...]:
    """Some of the rows that are not used, evenly over the sizes."""
    return few(
        [row for row in one.run.rows if row not in one.rows and row.size_bytes <= HUGE], MOST_HELD
    )


def _calibrated(ratios: Ratios, found: Fit, fitted: Sequence[int]) -> Calibrated:
    usual, held = np.zeros(len(ratios.parameters)), range(len(fitted), len(ratios.points))
    return Calibrated(
        found.fitted,
        _figures(found.fitted),
        ratios.errors(usual, fitted),
        ratios.errors(found.x, fitted),
        ratios.by_band(found.forecast, fitted),
        ratios.errors(usual, held) if held else {},
        ratios.errors(found.x, held) if held else {},
    )


def _figures(fitted: Sequence[Fitted]) -> dict[str, Figure]:
    found: dict[str, Figure] = {}
    for one in fitted:
        if one.left:
            continue
        low, high = one.parameter.figures(one.low), one.parameter.figures(one.high)
        for name, value in one.parameter.figures(one.x).items():
            found[name] = figure(name, value, low[name], high[name])
    return found
