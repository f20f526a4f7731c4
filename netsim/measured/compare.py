"""One measured run against one resolved cell: points, errors, and both times in results."""

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import asdict, field, replace
from functools import lru_cache
from itertools import groupby
from math import log
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from netsim.base.errors import InputError, NetsimError
from netsim.base.files import named_in
from netsim.base.startup import at
from netsim.base.values import dataclass, grouped
from netsim.collectives.collective import HAS_IN_PLACE, CollectiveError
from netsim.measured.index import ONLY_CHOICE, Entry, Mapped, dtype_of, mapped
from netsim.measured.logs import LogRun, Measured, read_log
from netsim.results.row import BANDS, Row, band_of
from netsim.scenario.cells import Cell
from netsim.scenario.models import Workload
from netsim.tasks.answer import checked_cells
from netsim.tasks.outcome import simulate_one
from netsim.tasks.resolve import ResolvedCell, resolve
from netsim.tasks.row import question_row
from netsim.tasks.validation import interval_at
from netsim.yamlio.models import override
from netsim.yamlio.read import Source

MICRO = 1e6
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Point:
    """One size of one run; the fields are the keys of the JSON."""

    run: str
    machine: str
    collective: str
    size_bytes: int
    measured_us: float
    simulated_us: float
    algorithm: str
    protocol: str
    healthy: bool
    system: str = ""

    @property
    def log_ratio(self) -> float:
        """How much too slow (above 0) or too fast the simulation is."""
        return log(self.simulated_us / self.measured_us)


@dataclass(frozen=True)
class Failed:
    """What could not be simulated, and why; without a size, the whole run."""

    run: str
    reason: str
    size_bytes: int | None = None


@dataclass(frozen=True)
class Part:
    """Some rows of a run that one process simulates, perhaps with other figures of calibration."""

    entry: Entry
    rows: tuple[Measured, ...]
    figures: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Answer:
    """What became of a part."""

    run: str
    points: tuple[Point, ...] = ()
    failed: tuple[Failed, ...] = ()
    notes: tuple[str, ...] = ()


def answer(part: Part) -> Answer:
    """The points of a part; what fails is told and does not stop the rest."""
    entry = part.entry
    try:
        plan = replace(mapped(entry), figures=part.figures)
        points: list[Point] = []
        failed: list[Failed] = []
        for key, rows in groupby(part.rows, key=lambda row: (dtype_of(row.dtype), row.root)):
            chosen = list(rows)
            sizes = sorted({row.size_bytes for row in chosen})
            plan, resolved = resolved_at(plan, sizes, *key)
            for row in chosen:
                try:
                    points += point_of(entry, resolved, row)
                except NetsimError as error:
                    failed.append(Failed(entry.id, str(error), row.size_bytes))
    except NetsimError as error:
        return Answer(entry.id, failed=(Failed(entry.id, str(error)),))
    return Answer(entry.id, tuple(points), tuple(failed), plan.notes)


def resolved_at(
    plan: Mapped, sizes: list[int], dtype: str, root: int
) -> tuple[Mapped, ResolvedCell]:
    """The resolved cell; variables that force what cannot be had are left out, and told."""
    try:
        return plan, _resolve(plan, sizes, dtype, root)
    except NetsimError as error:
        other = plan.without(ONLY_CHOICE, str(error))
        if other is None:
            raise
        return other, _resolve(other, sizes, dtype, root)


def _resolve(plan: Mapped, sizes: list[int], dtype: str, root: int) -> ResolvedCell:
    source = plan.source(plan.data["name"], sizes, dtype, root)
    resolved = resolve(checked_cells(source)[0])
    for size in sizes:  # a forced algorithm may be impossible only at some
        resolved.planned(size)
    return resolved


def point_of(entry: Entry, resolved: ResolvedCell, row: Measured) -> Iterator[Point]:
    """The point of a row; none where it has no time."""
    seconds = row.seconds(entry.collective)
    if seconds is None or row.size_bytes <= 0:
        return
    work = resolved.cell.scenario.collective
    in_place = row.is_in_place(work.collective) and work.collective in HAS_IN_PLACE
    try:
        size = simulated_size(resolved, row.size_bytes)
        timing = simulate_one(resolved, size, in_place=in_place, engine="compiled")
        plan = resolved.planned(size)
    except CollectiveError as error:
        raise InputError(error.message) from None
    yield Point(
        entry.id,
        entry.machine,
        work.collective,
        row.size_bytes,
        seconds * MICRO,
        timing.seconds * MICRO,
        plan.algorithm if plan else work.algorithm,
        plan.protocol if plan else "",
        entry.healthy,
        entry.system,
    )


# The one definition of error, of sizes, steps, kinds of calls and causes: that of a point is
# simulated / measured - 1; of several, the median of |log ratio|, its 90th percentile, and the
# signed median (bias). All are parts: 0.15 means that both differ by a factor of 1.15.

K = TypeVar("K", bound=Hashable)

ALL = "all"


@dataclass(frozen=True)
class Error:
    """How far simulated times are from measured ones, every system weighing the same."""

    points: int
    runs: int
    systems: int
    median: float
    p90: float
    bias: float

    def __str__(self) -> str:
        return f"{self.median:.1%} [{self.p90:.0%}] {self.bias:+.0%}"


def error_of(points: Sequence[Point]) -> Error:
    """The error of some points, at least one."""
    systems = [point.system or point.run for point in points]
    figures = error_figures([point.log_ratio for point in points], weights_of(systems))
    return Error(len(points), len({point.run for point in points}), len({*systems}), *figures)


def error_figures(
    ratios: Sequence[float] | Floats, weights: Floats | None = None
) -> tuple[float, float, float]:
    """Median error, 90th percentile and bias of log ratios that may count differently."""
    signed = np.asarray(ratios, dtype=float)
    weights, size = np.ones(len(signed)) if weights is None else weights, np.abs(signed)
    median, p90, bias = (
        float(np.expm1(weighted_quantile(values, weights, part)))
        for values, part in ((size, 0.5), (size, 0.9), (signed, 0.5))
    )
    return median, p90, bias


def weights_of(systems: Sequence[str]) -> Floats:
    """What points count for, so that every system counts for the same."""
    count = Counter(systems)
    return np.array([1 / count[system] for system in systems])


def weighted_quantile(values: Floats, weights: Floats, part: float) -> float:
    """A quantile of values that count differently, each in the middle of its share."""
    order = np.argsort(values)
    middle = np.cumsum(weights[order]) - weights[order] / 2
    return float(np.interp(part * weights.sum(), middle, values[order]))


def by_band(points: Sequence[Point]) -> dict[str, Error]:
    """The error in every band that has points, and of all."""
    found = grouped(points, lambda point: band_of(point.size_bytes))
    errors = {band: error_of(found[band]) for band in BANDS if band in found}
    return errors | ({ALL: error_of(points)} if points else {})


def as_values(errors: dict[str, Error]) -> dict[str, dict[str, float]]:
    """Errors as plain values."""
    return {band: asdict(error) for band, error in errors.items()}


@dataclass(frozen=True)
class Compared:
    """A run with its rows; those that could not be simulated have a status."""

    run: LogRun
    rows: tuple[Row, ...]
    rate: float | None = None  # of the NICs of a GPU, which plots show

    @property
    def points(self) -> list[Point]:
        """The rows that were simulated, as points."""
        return [
            Point(
                self.run.file,
                row.topology,
                row.collective,
                row.size_bytes or 0,
                row.measured_time_us or 0.0,
                row.time_us,
                row.algorithm,
                row.protocol,
                True,
            )
            for row in self.rows
            if row.status == "ok" and row.time_us is not None
        ]

    @property
    def bands(self) -> dict[str, Error]:
        """The error by size band."""
        return by_band(self.points)

    @property
    def slower(self) -> float:
        """How much longer the run took than simulated where it is worst: log ratio of a band."""
        bands = grouped(self.points, lambda point: point.size_bytes > 2**20).values()
        found = (sorted(-point.log_ratio for point in some)[len(some) // 2] for some in bands)
        return max(found, default=0.0)


def resolved_for(source: Source, run: LogRun) -> ResolvedCell:
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
    return resolve(checked_cells(source)[0])


def rows_of(resolved: ResolvedCell, run: LogRun) -> Iterator[Row]:
    """Every row of a run beside its simulation, as it is done."""
    for done, row in enumerate(run.rows):
        at(f"{run.file} at {row.size_bytes} B", done, len(run.rows))
        yield _row(resolved, row, run.collective)


def simulated_size(resolved: ResolvedCell, size_bytes: int) -> int:
    """The size that is simulated for a row of a log: its own, or where newer versions of nccl-tests
    would round that to nothing (alltoall of 8 B on 16 ranks), the next power of 2 times it of
    which they would not. The system that wrote the log did move the row's bytes."""
    while size_bytes and not resolved.collective(size_bytes).size_bytes:
        size_bytes *= 2
    return size_bytes


def _row(resolved: ResolvedCell, measured: Measured, collective: str) -> Row:
    seconds = measured.seconds(collective)
    assert seconds is not None  # readers keep only rows with a time
    size = simulated_size(resolved, measured.size_bytes)
    row = replace(
        question_row(resolved, size),
        measured_time_us=seconds * MICRO,
        size_asked=measured.size_bytes,
    )
    if size != measured.size_bytes:
        row = replace(row, size_bytes=measured.size_bytes)
    try:
        simulated = simulated_seconds(resolved, measured, collective)
    except NetsimError as error:
        return replace(row, status="error", error=str(error))
    algbw = (row.size_bytes or 0) / simulated / 1e9
    return replace(
        row,
        time_us=simulated * MICRO,
        **interval_at(resolved, size, simulated * MICRO),
        algbw_GBps=algbw,
        busbw_GBps=algbw * resolved.collective(size).bus_factor,
        error_pct=(simulated / seconds - 1) * 100,
        engine="compiled",
    )


def simulated_seconds(resolved: ResolvedCell, measured: Measured, collective: str) -> float:
    """The simulated time of what a row measured."""
    in_place = measured.is_in_place(collective) and collective in HAS_IN_PLACE
    size = simulated_size(resolved, measured.size_bytes)
    return simulate_one(resolved, size, in_place=in_place, engine="compiled").seconds


def few(rows: Sequence[K], most: int) -> tuple[K, ...]:
    """At most so many rows, evenly over the sizes, the largest among them."""
    step = max(1, -(-len(rows) // most))
    return tuple(rows[::-1][::step][::-1])


def times_of(resolved: ResolvedCell, rows: Sequence[Measured], collective: str) -> Floats:
    """The simulated times of some rows."""
    return np.array([simulated_seconds(resolved, row, collective) for row in rows])


def fit_of(source: Source, run: LogRun, most: int) -> Floats:
    """The log ratios of a source's times over some of a run's."""
    rows = few(run.rows, most)
    measured = np.array([row.seconds(run.collective) for row in rows], dtype=float)
    ratios: Floats = np.log(times_of(resolved_for(source, run), rows, run.collective) / measured)
    return ratios


def overlaid(row: Row, cell: Cell) -> Row:
    """The row with the measured time of its size and the error, where its file has it."""
    if cell.scenario.measured is None or row.time_us is None or row.size_bytes is None:
        return row
    measured = _times_of_cell(cell, cell.scenario.measured, row.collective).get(row.size_bytes)
    if measured is None:
        return row
    return replace(row, measured_time_us=measured, error_pct=(row.time_us / measured - 1) * 100)


def check(cell: Cell) -> None:
    """Refuse a file that cannot be read, before anything runs."""
    if cell.scenario.measured is not None:
        workload = cell.scenario.workload
        collective = workload.collective if isinstance(workload, Workload) else ""
        _times_of_cell(cell, cell.scenario.measured, collective)


def _times_of_cell(cell: Cell, name: str, collective: str) -> dict[int, float]:
    try:
        return _times(str(named_in(cell.source.name, name)), collective)
    except InputError as error:
        raise cell.source.error(("measured",), error.message, hint=error.hint) from None


@lru_cache(maxsize=32)
def _times(path: str, collective: str) -> dict[int, float]:
    found: dict[int, float] = {}
    for run in read_log(Path(path), presumed=collective):
        if run.collective == collective:
            for row in run.rows:
                found.setdefault(row.size_bytes, (row.seconds(collective) or 0.0) * 1e6)
    if not found:
        raise InputError(f"{path}: has no run of {collective}")
    return found
