"""A calibration: measured runs of one system, the parameters that fit them, the error that is left.

Some sizes are held back while fitting, to tell the error where nothing was fitted; then all are
used.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from netsim.errors import InputError
from netsim.measured.bands import Error
from netsim.measured.comparison import few, prepared_for
from netsim.measured.curve import Measured
from netsim.measured.fit import Fitted, fit
from netsim.measured.log_run import LogRun
from netsim.measured.parameters import figure, parameters_of
from netsim.measured.ratios import Ratios, Set
from netsim.topology.stamped import Figure
from netsim.yamlio.source import Source

FEWEST = 3  # sizes of which anything can be fitted
ENOUGH = 8  # sizes from which some can be held back
MOST = 11  # sizes of one run that are simulated again and again
HUGE = 4 * 2**30  # larger sizes show no more than this one does, and take long


@dataclass(frozen=True)
class Calibrated:
    """What was fitted, and the error by band before and after; `held_out` of sizes not used."""

    fitted: tuple[Fitted, ...]
    figures: dict[str, Figure]
    before: dict[str, Error]
    after: dict[str, Error]
    held_out_before: dict[str, Error]
    held_out: dict[str, Error]


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
    with Ratios(parameters_of(first), sets, jobs) as ratios:
        return _calibrated(ratios, count)


def _used(rows: Sequence[Measured]) -> tuple[Measured, ...]:
    """The rows of a run that are simulated: of many, some evenly over the sizes."""
    usual = [row for row in rows if row.size_bytes <= HUGE]
    return few(usual if len(usual) >= MOST else rows, MOST)


def _calibrated(simulated: Ratios, count: int) -> Calibrated:
    every = list(range(count))
    usual = np.zeros(len(simulated.parameters))
    kept = [number for number in every if _kept(number)] if count >= ENOUGH else []
    held_before: dict[str, Error] = {}
    held: dict[str, Error] = {}
    if kept:
        trial = _fitted(simulated, [number for number in every if not _kept(number)])
        held_before = simulated.errors(usual, kept)
        held = simulated.errors(_vector(trial), kept)
    found = _fitted(simulated, every, trial if kept else None)
    before, after = simulated.errors(usual, every), simulated.errors(_vector(found), every)
    return Calibrated(tuple(found), _figures(found), before, after, held_before, held)


def _fitted(
    simulated: Ratios, which: Sequence[int], earlier: Sequence[Fitted] | None = None
) -> list[Fitted]:
    """The parameters that some of the points give."""
    return fit(
        simulated.parameters,
        lambda places: simulated.at(places, which),
        lambda depends: simulated.narrow(depends, which),
        earlier,
    )


def _vector(fitted: Sequence[Fitted]) -> NDArray[np.float64]:
    return np.array([one.x for one in fitted])


def _kept(number: int) -> bool:
    """Whether a point is held back while the others are fitted: every third."""
    return number % 3 == 1


def _figures(fitted: Sequence[Fitted]) -> dict[str, Figure]:
    found: dict[str, Figure] = {}
    for one in fitted:
        if one.left:
            continue
        low, high = one.parameter.figures(one.low), one.parameter.figures(one.high)
        for name, value in one.parameter.figures(one.x).items():
            found[name] = figure(name, value, low[name], high[name])
    return found
