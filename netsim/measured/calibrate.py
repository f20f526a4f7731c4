"""A calibration: measured runs of one system, the parameters that fit them, the error that is left.

Some sizes are held back while fitting, to tell the error where nothing was fitted; then all are
used.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import exp, log

import numpy as np
from numpy.typing import NDArray

from netsim.errors import InputError, NetsimError
from netsim.measured.bands import Error, by_band
from netsim.measured.comparison import few, prepared_for, simulated_seconds
from netsim.measured.curve import Measured
from netsim.measured.fit import Fitted, fit
from netsim.measured.log_run import LogRun
from netsim.measured.parameters import (
    Parameter,
    calibration,
    concerns,
    figure,
    parameters_of,
)
from netsim.measured.points import MICRO, Point
from netsim.prepared import Prepared
from netsim.topology.stamped import Figure
from netsim.yamlio.overrides import override
from netsim.yamlio.source import Source

FEWEST = 3  # sizes of which anything can be fitted
ENOUGH = 8  # sizes from which some can be held back
MOST = 11  # sizes of one run that are simulated again and again
IMPOSSIBLE = 3.0  # log ratio of what cannot be simulated with some parameters


@dataclass(frozen=True)
class Set:
    """A run, the scenario it is held against, and those of its rows that are used."""

    source: Source
    run: LogRun
    rows: tuple[Measured, ...]


@dataclass(frozen=True)
class Calibrated:
    """What was fitted, and the error by band before and after; `held_out` of sizes not used."""

    fitted: tuple[Fitted, ...]
    figures: dict[str, Figure]
    before: dict[str, Error]
    after: dict[str, Error]
    held_out_before: dict[str, Error]
    held_out: dict[str, Error]


def calibrate(pairs: Sequence[tuple[Source, LogRun]]) -> Calibrated:
    """Fit the parameters of one system to some runs of it."""
    sets = [Set(source, run, few(run.rows, MOST)) for source, run in pairs]
    count = sum(len(one.rows) for one in sets)
    if count < FEWEST:
        raise InputError(
            f"{sets[0].run.file}: {count} size{'s' * (count != 1)}: nothing can be fitted to fewer "
            f"than {FEWEST}"
        )
    first = prepared_for(sets[0].source, sets[0].run)
    if not first.jobs:
        raise InputError("only NCCL's own algorithms can be calibrated; leave algorithm at auto")
    simulated = _Simulated(parameters_of(first), sets)
    simulated.look()
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
    simulated: "_Simulated", which: Sequence[int], earlier: Sequence[Fitted] | None = None
) -> list[Fitted]:
    """The parameters that some of the points give."""
    return fit(
        simulated.parameters,
        lambda x: simulated.ratios(x, which),
        lambda depends: simulated.narrow(depends, which),
        earlier,
    )


def _vector(fitted: Sequence[Fitted]) -> NDArray[np.float64]:
    return np.array([one.x for one in fitted])


def _kept(number: int) -> bool:
    """Whether a point is held back while the others are fitted: every third."""
    return number % 3 == 1


@dataclass
class _Simulated:
    """The log ratios of all points at any parameters; no point is simulated twice alike."""

    parameters: Sequence[Parameter]
    sets: Sequence[Set]
    depends: dict[int, NDArray[np.bool_]] = field(default_factory=dict)
    known: dict[tuple[int, bytes], float] = field(default_factory=dict)
    narrowed: set[int] = field(default_factory=set)
    cell: tuple[bytes, list[Prepared]] | None = None

    @property
    def points(self) -> list[tuple[int, Measured]]:
        """The number of its set, and the row, of every point."""
        return [(n, row) for n, one in enumerate(self.sets) for row in one.rows]

    def look(self) -> None:
        """Find from what NCCL runs at each point which parameters cannot matter for it."""
        cells = self._cells(np.zeros(len(self.parameters)))
        for number, (place, row) in enumerate(self.points):
            plan = cells[place].planned(row.size_bytes)
            assert plan is not None  # checked by whoever calibrates
            self.depends[number] = np.array(
                [concerns(one, plan.algorithm, plan.protocol) for one in self.parameters]
            )

    def ratios(self, x: NDArray[np.float64], which: Sequence[int]) -> NDArray[np.float64]:
        """The log ratios of some points."""
        return np.array([self._ratio(x, number) for number in which])

    def narrow(self, depends: NDArray[np.bool_], which: Sequence[int]) -> None:
        """Hear on which parameters some points depend: others no longer count for them."""
        for number, row in zip(which, depends, strict=True):
            if number not in self.narrowed:
                self.narrowed.add(number)
                before = self.depends[number]
                self.depends[number] = before & row
                kept = row[before]
                for (one, key), value in list(self.known.items()):
                    if one == number:
                        self.known[one, np.frombuffer(key)[kept].tobytes()] = value

    def _ratio(self, x: NDArray[np.float64], number: int) -> float:
        key = (number, x[self.depends[number]].tobytes())
        if key not in self.known:
            place, row = self.points[number]
            run = self.sets[place].run
            seconds = row.seconds(run.collective)
            assert seconds is not None  # readers keep only rows with a time
            try:
                simulated = simulated_seconds(self._cells(x)[place], row, run.collective)
                self.known[key] = log(simulated / seconds)
            except NetsimError:
                self.known[key] = IMPOSSIBLE
        return self.known[key]

    def _cells(self, x: NDArray[np.float64]) -> list[Prepared]:
        """The prepared cells at some parameters; the last ones are remembered."""
        if self.cell is None or self.cell[0] != x.tobytes():
            figures: dict[str, float] = {}
            for parameter, value in zip(self.parameters, x.tolist(), strict=True):
                figures |= parameter.figures(value) if value else {}
            made = calibration(figures)
            cells = [prepared_for(changed(one.source, made), one.run) for one in self.sets]
            self.cell = (x.tobytes(), cells)
        return self.cell[1]

    def errors(self, x: NDArray[np.float64], which: Sequence[int]) -> dict[str, Error]:
        """The error of some points by band."""
        found = []
        for number, ratio in zip(which, self.ratios(x, which).tolist(), strict=True):
            place, row = self.points[number]
            run = self.sets[place].run
            micros = (row.seconds(run.collective) or 0.0) * MICRO
            found.append(
                Point(
                    run.file, "", run.collective, row.size_bytes, micros, micros * exp(ratio), "",
                    "", True,
                )
            )  # fmt: skip
        return by_band(found)


def changed(source: Source, figures: dict[str, dict[str, str]]) -> Source:
    """The scenario with a calibration of all its hosts, over what they have."""
    if not figures:
        return source
    cluster = source.data["cluster"]
    before = list(cluster.get("overrides") or [])
    return override(
        source,
        "cluster.overrides",
        [*before, {"machine": {"calibration": figures}}],
        "the calibration",
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
