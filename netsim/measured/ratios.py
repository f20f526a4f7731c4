"""Log ratios of simulated over measured times at any parameters, on several processes.

No point is simulated twice with parameters that are alike for it.
"""

import multiprocessing
import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from math import exp, log
from types import TracebackType

import numpy as np
from numpy.typing import NDArray

from netsim.errors import NetsimError
from netsim.interrupts import deaf
from netsim.measured.bands import Error, by_band
from netsim.measured.comparison import prepared_for, simulated_seconds
from netsim.measured.curve import Measured
from netsim.measured.log_run import LogRun
from netsim.measured.parameters import Parameter, calibration, concerns
from netsim.measured.points import MICRO, Point
from netsim.prepared import Prepared
from netsim.yamlio.overrides import override
from netsim.yamlio.source import Source

IMPOSSIBLE = 3.0  # log ratio of what cannot be simulated with some parameters
LARGE = 8  # ranks from which other processes are worth what it takes to start them

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Set:
    """A run, the scenario it is held against, and those of its rows that are used."""

    source: Source
    run: LogRun
    rows: tuple[Measured, ...]


@dataclass
class Cells:
    """The prepared cells of all sets at some parameters; the last ones are remembered."""

    parameters: Sequence[Parameter]
    sets: Sequence[Set]
    last: tuple[bytes, list[Prepared]] | None = None

    def at(self, x: Floats) -> list[Prepared]:
        """The cell of every set."""
        if self.last is None or self.last[0] != x.tobytes():
            figures: dict[str, float] = {}
            for parameter, value in zip(self.parameters, x.tolist(), strict=True):
                figures |= parameter.figures(value) if value else {}
            made = calibration(figures)
            cells = [prepared_for(changed(one.source, made), one.run) for one in self.sets]
            self.last = (x.tobytes(), cells)
        return self.last[1]

    def ratio(self, x: Floats, place: int, row: Measured) -> float:
        """The log ratio of one row of a set."""
        collective = self.sets[place].run.collective
        seconds = row.seconds(collective)
        assert seconds is not None  # readers keep only rows with a time
        try:
            return log(simulated_seconds(self.at(x)[place], row, collective) / seconds)
        except NetsimError:
            return IMPOSSIBLE


Asked = tuple[Floats, int, Measured]  # parameters, the number of a set, one of its rows
_here: list[Cells] = []  # of a worker process


def _begin(cells: Cells) -> None:
    _here[:] = [cells]


def _ratio(asked: Asked) -> float:
    return _here[0].ratio(*asked)


@dataclass
class Ratios:
    """The log ratios of all points at any parameters.

    with Ratios(parameters, sets, jobs) as ratios: ratios.at([x, y], which)
    """

    parameters: Sequence[Parameter]
    sets: Sequence[Set]
    jobs: int | None = None
    large: int = LARGE
    depends: dict[int, NDArray[np.bool_]] = field(default_factory=dict)
    known: dict[tuple[int, bytes], float] = field(default_factory=dict)
    narrowed: set[int] = field(default_factory=set)
    pool: ProcessPoolExecutor | None = None

    def __enter__(self) -> "Ratios":
        self.cells = Cells(self.parameters, self.sets)
        cells = self.cells.at(np.zeros(len(self.parameters)))
        self._look(cells)
        jobs = self.jobs or min(os.cpu_count() or 1, len(self.points))
        if jobs > 1 and max(len(cell.gpus) for cell in cells) >= self.large:
            spawn = multiprocessing.get_context("spawn")  # forks of a threaded process may hang
            fresh = Cells(self.parameters, self.sets)
            self.pool = ProcessPoolExecutor(jobs, spawn, _begin, (fresh,))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.pool is not None:
            self.pool.shutdown(wait=error is None, cancel_futures=True)

    @property
    def points(self) -> list[tuple[int, Measured]]:
        """The number of its set, and the row, of every point."""
        return [(n, row) for n, one in enumerate(self.sets) for row in one.rows]

    def _look(self, cells: Sequence[Prepared]) -> None:
        """Find from what NCCL runs at each point which parameters cannot matter for it."""
        for number, (place, row) in enumerate(self.points):
            plan = cells[place].planned(row.size_bytes)
            assert plan is not None  # checked by whoever calibrates
            self.depends[number] = np.array(
                [concerns(one, plan.algorithm, plan.protocol) for one in self.parameters]
            )

    def at(self, places: Sequence[Floats], which: Sequence[int]) -> list[Floats]:
        """The log ratios of some points at some places."""
        missing: dict[tuple[int, bytes], Asked] = {}
        for x in places:
            for number in which:
                key = self._key(x, number)
                if key not in self.known:
                    missing.setdefault(key, (x, *self.points[number]))
        self.known |= zip(missing, self._simulated(list(missing.values())), strict=True)
        return [np.array([self.known[self._key(x, n)] for n in which]) for x in places]

    def _simulated(self, asked: list[Asked]) -> Iterable[float]:
        if self.pool is None or len(asked) == 1:
            return [self.cells.ratio(*one) for one in asked]
        with deaf():  # whoever shares out the work hears of interrupts
            return self.pool.map(_ratio, asked)

    def _key(self, x: Floats, number: int) -> tuple[int, bytes]:
        return number, x[self.depends[number]].tobytes()

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

    def errors(self, x: Floats, which: Sequence[int]) -> dict[str, Error]:
        """The error of some points by band."""
        return self.by_band(self.at([x], which)[0], which)

    def by_band(self, ratios: Floats, which: Sequence[int]) -> dict[str, Error]:
        """Log ratios of some points as errors by band."""
        found = []
        for number, ratio in zip(which, ratios.tolist(), strict=True):
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
