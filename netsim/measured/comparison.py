"""One measured run against one prepared cell: a row a size, with both times and the error."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from netsim.collectives.collective import HAS_IN_PLACE
from netsim.errors import NetsimError
from netsim.measured.bands import Error, by_band
from netsim.measured.curve import Measured
from netsim.measured.log_run import LogRun
from netsim.measured.mapping import dtype_of
from netsim.measured.points import MICRO, Point
from netsim.prepared import Prepared, prepare
from netsim.results import Row
from netsim.runs import checked_cells
from netsim.simulate import question_row, simulate_one
from netsim.yamlio.overrides import override
from netsim.yamlio.source import Source

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Compared:
    """A run with its rows; those that could not be simulated have a status."""

    run: LogRun
    rows: tuple[Row, ...]

    @property
    def points(self) -> list[Point]:
        """The rows that were simulated, as points."""
        return [
            Point(
                self.run.file, row.topology, row.collective, row.size_bytes or 0,
                row.measured_time_us or 0.0, row.time_us, row.algorithm, row.protocol, True,
            )
            for row in self.rows
            if row.status == "ok" and row.time_us is not None
        ]  # fmt: skip

    @property
    def bands(self) -> dict[str, Error]:
        """The error by size band."""
        return by_band(self.points)

    @property
    def slower(self) -> float:
        """How much longer the run took than simulated where it is worst: log ratio of a band."""
        found: dict[str, list[float]] = {}
        for point in self.points:
            from_band = "large" if point.size_bytes > 2**20 else "small"
            found.setdefault(from_band, []).append(-point.log_ratio)
        return max((sorted(some)[len(some) // 2] for some in found.values()), default=0.0)


def prepared_for(source: Source, run: LogRun) -> Prepared:
    """The cell of a source at the sizes, type and collective of a run."""
    sizes = sorted({row.size_bytes for row in run.rows})
    first = run.rows[0]
    said = run.file
    for key, value in (
        ("workload.collective", run.collective),
        ("workload.sizes", sizes),
        ("workload.dtype", dtype_of(first.dtype)),
        ("workload.root", max(first.root, 0)),
    ):
        source = override(source, key, value, said)
    return prepare(checked_cells(source)[0])


def compare(prepared: Prepared, run: LogRun) -> Compared:
    """Every row of a run beside its simulation."""
    return Compared(run, tuple(_row(prepared, row, run.collective) for row in run.rows))


def _row(prepared: Prepared, measured: Measured, collective: str) -> Row:
    seconds = measured.seconds(collective)
    assert seconds is not None  # readers keep only rows with a time
    row = replace(question_row(prepared, measured.size_bytes), measured_time_us=seconds * MICRO)
    try:
        simulated = simulated_seconds(prepared, measured, collective)
    except NetsimError as error:
        return replace(row, status="error", error=str(error))
    collective_now = prepared.collective(measured.size_bytes)
    algbw = collective_now.size_bytes / simulated / 1e9
    return replace(
        row,
        time_us=simulated * MICRO,
        algbw_GBps=algbw,
        busbw_GBps=algbw * collective_now.bus_factor,
        error_pct=(simulated / seconds - 1) * 100,
        engine="compiled",
    )


def simulated_seconds(prepared: Prepared, measured: Measured, collective: str) -> float:
    """The simulated time of what a row measured."""
    in_place = measured.is_in_place(collective) and collective in HAS_IN_PLACE
    size = measured.size_bytes
    return simulate_one(prepared, size, in_place=in_place, engine="compiled").seconds


def few(rows: Sequence[Measured], most: int) -> tuple[Measured, ...]:
    """At most so many rows, evenly over the sizes, the largest among them."""
    step = max(1, -(-len(rows) // most))
    return tuple(rows[::-1][::step][::-1])


def times_of(prepared: Prepared, rows: Sequence[Measured], collective: str) -> Floats:
    """The simulated times of some rows."""
    return np.array([simulated_seconds(prepared, row, collective) for row in rows])
