"""Compare a measured run with its simulation: points, errors by size band, and rows with both
times."""

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
from netsim.measured.index import ONLY_CHOICE, IndexEntry, Mapped, dtype_of, mapped
from netsim.measured.logs import LogRun, MeasuredRow, read_log
from netsim.results.row import BANDS, Row, band_of
from netsim.scenario.cells import Cell
from netsim.scenario.models import Workload
from netsim.tasks.answer import checked_cells
from netsim.tasks.outcome import simulate_one
from netsim.tasks.resolve import ResolvedCell, resolve
from netsim.tasks.row import question_row
from netsim.tasks.unknown_launch import is_launch_unknown, seconds_of_both
from netsim.tasks.validation import interval_at
from netsim.yamlio.models import override
from netsim.yamlio.read import Source

MICRO = 1e6
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class ComparedPoint:
    """The measured and the simulated time of one size of a run; the names of the fields are the
    keys in JSON.
    """

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
        """The natural logarithm of simulated over measured time; above 0 if the simulation is
        too slow."""
        return log(self.simulated_us / self.measured_us)


@dataclass(frozen=True)
class Failed:
    """A size of a run, or without a size the whole run, that could not be simulated, and the
    reason."""

    run: str
    reason: str
    size_bytes: int | None = None


@dataclass(frozen=True)
class RunPart:
    """The rows of a run that one process simulates; `figures` are calibration values that replace
    the usual ones.
    """

    entry: IndexEntry
    rows: tuple[MeasuredRow, ...]
    figures: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class PartAnswer:
    """The points of a simulated part, its failures, and notes on what was assumed."""

    run: str
    points: tuple[ComparedPoint, ...] = ()
    failed: tuple[Failed, ...] = ()
    notes: tuple[str, ...] = ()


def answer(part: RunPart) -> PartAnswer:
    """Simulate a part of a run; a size that fails is listed with the reason, and the others are
    still simulated.
    """
    entry = part.entry
    try:
        plan = replace(mapped(entry), figures=part.figures)
        points: list[ComparedPoint] = []
        failed: list[Failed] = []
        for key, rows in groupby(part.rows, key=lambda row: (dtype_of(row.dtype), row.root)):
            of_kind = list(rows)
            sizes = sorted({row.size_bytes for row in of_kind})
            plan, resolved = resolved_at(plan, sizes, *key)
            for row in of_kind:
                try:
                    points += point_of(entry, resolved, row)
                except NetsimError as error:
                    failed.append(Failed(entry.id, str(error), row.size_bytes))
    except NetsimError as error:
        return PartAnswer(entry.id, failed=(Failed(entry.id, str(error)),))
    return PartAnswer(entry.id, tuple(points), tuple(failed), plan.notes)


def resolved_at(
    plan: Mapped, sizes: list[int], dtype: str, root: int
) -> tuple[Mapped, ResolvedCell]:
    """Return the scenario of a run and its resolved cell at some sizes (bytes), with a data type
    and a root.

    The scenario is `plan`, except if the run's environment forces a choice that NCCL does not have
    on this system. Then the variables that force it are left out, and the notes of the scenario say
    so.
    """
    try:
        return plan, _resolve(plan, sizes, dtype, root)
    except NetsimError as error:
        relaxed = plan.without(ONLY_CHOICE, str(error))
        if relaxed is None:
            raise
        return relaxed, _resolve(relaxed, sizes, dtype, root)


def _resolve(plan: Mapped, sizes: list[int], dtype: str, root: int) -> ResolvedCell:
    """Return the resolved cell of a run at some sizes."""
    source = plan.source(plan.data["name"], sizes, dtype, root)
    resolved = resolve(checked_cells(source)[0])
    for size in sizes:  # a forced algorithm may be impossible at one size and possible at others
        resolved.planned(size)
    return resolved


def point_of(
    entry: IndexEntry, resolved: ResolvedCell, row: MeasuredRow
) -> Iterator[ComparedPoint]:
    """Yield the compared point of a row, or nothing if the row has no time."""
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
    yield ComparedPoint(
        run=entry.id,
        machine=entry.machine,
        collective=work.collective,
        size_bytes=row.size_bytes,
        measured_us=seconds * MICRO,
        simulated_us=timing.seconds * MICRO,
        algorithm=plan.algorithm if plan else work.algorithm,
        protocol=plan.protocol if plan else "",
        healthy=entry.healthy,
        system=entry.system,
    )


# This is the only definition of an error in netsim, for sizes, training steps, kinds of calls and
# causes. The error of a single point is simulated / measured - 1. Of several points, three values
# of the log ratio are computed: the median of its absolute value, the 90th percentile of that, and
# the signed median (bias). All are given as fractions: 0.15 means that the simulated and the
# measured time differ by a factor of 1.15.

K = TypeVar("K", bound=Hashable)

ALL = "all"


@dataclass(frozen=True)
class Error:
    """How far simulated times are from measured ones; all systems have the same weight.

    Args:
        points: number of points.
        runs: number of runs.
        systems: number of systems.
        median: median error, a fraction: 0.15 means that both times differ by a factor of 1.15.
        p90: 90th percentile of the error.
        bias: signed median; above 0 if the simulation is too slow.
    """

    points: int
    runs: int
    systems: int
    median: float
    p90: float
    bias: float

    def __str__(self) -> str:
        return f"{self.median:.1%} [{self.p90:.0%}] {self.bias:+.0%}"


def error_of(points: Sequence[ComparedPoint]) -> Error:
    """Return the error of one or more points."""
    systems = [point.system or point.run for point in points]
    figures = error_figures([point.log_ratio for point in points], weights_of(systems))
    return Error(len(points), len({point.run for point in points}), len({*systems}), *figures)


def error_figures(
    ratios: Sequence[float] | Floats, weights: Floats | None = None
) -> tuple[float, float, float]:
    """Return the median error, its 90th percentile and the bias of log ratios, as fractions.

    Without `weights` all ratios count the same.
    """
    signed = np.asarray(ratios, dtype=float)
    if weights is None:
        weights = np.ones(len(signed))
    absolute = np.abs(signed)
    median = float(np.expm1(weighted_quantile(absolute, weights, 0.5)))
    percentile_90 = float(np.expm1(weighted_quantile(absolute, weights, 0.9)))
    bias = float(np.expm1(weighted_quantile(signed, weights, 0.5)))
    return median, percentile_90, bias


def weights_of(systems: Sequence[str]) -> Floats:
    """Return the weight of each point, given its system: all points of a system together weigh
    1.
    """
    count = Counter(systems)
    return np.array([1 / count[system] for system in systems])


def weighted_quantile(values: Floats, weights: Floats, part: float) -> float:
    """Return the quantile of weighted values at the fraction `part`, interpolated between two of
    them.

    Each value is at the middle of its weight.
    """
    order = np.argsort(values)
    middle = np.cumsum(weights[order]) - weights[order] / 2
    return float(np.interp(part * weights.sum(), middle, values[order]))


def by_band(points: Sequence[ComparedPoint]) -> dict[str, Error]:
    """Return the errors by size band, without empty bands, and the error of all points under
    `all`.
    """
    bands = grouped(points, lambda point: band_of(point.size_bytes))
    errors = {band: error_of(bands[band]) for band in BANDS if band in bands}
    if points:
        errors[ALL] = error_of(points)
    return errors


def as_values(errors: dict[str, Error]) -> dict[str, dict[str, float]]:
    """Return errors as plain values, which can be written as JSON."""
    return {band: asdict(error) for band, error in errors.items()}


@dataclass(frozen=True)
class Compared:
    """A measured run and its rows with both times; rows that could not be simulated have a
    status."""

    run: LogRun
    rows: tuple[Row, ...]
    rate: float | None = None  # bytes/s of the NICs of a GPU, which plots show

    @property
    def points(self) -> list[ComparedPoint]:
        """The rows that were simulated, as points."""
        return [
            ComparedPoint(
                run=self.run.file,
                machine=row.topology,
                collective=row.collective,
                size_bytes=row.size_bytes or 0,
                measured_us=row.measured_time_us or 0.0,
                simulated_us=row.time_us,
                algorithm=row.algorithm,
                protocol=row.protocol,
                healthy=True,
            )
            for row in self.rows
            if row.status == "ok" and row.time_us is not None
        ]

    @property
    def bands(self) -> dict[str, Error]:
        """The errors by size band."""
        return by_band(self.points)

    @property
    def slower(self) -> float:
        """The logarithm of the largest factor by which a size above 1 MiB is slower than simulated;
        at least 0.

        Of several points of a size, the median counts.
        """
        large_sizes = grouped(self.points, lambda point: point.size_bytes > 2**20).values()
        medians = []
        for points in large_sizes:
            ratios = sorted(-point.log_ratio for point in points)
            medians.append(ratios[len(ratios) // 2])
        return max(medians, default=0.0)


def resolved_for(source: Source, run: LogRun) -> ResolvedCell:
    """Return the resolved cell of a scenario at the sizes, the data type and the collective of a
    run.
    """
    sizes = sorted({row.size_bytes for row in run.rows})
    first = run.rows[0]
    origin = run.file
    for key, value in (
        ("workload.collective", run.collective),
        ("workload.sizes", sizes),
        ("workload.dtype", dtype_of(first.dtype)),
        ("workload.root", max(first.root, 0)),
    ):
        source = override(source, key, value, origin)
    return resolve(checked_cells(source)[0])


def rows_of(resolved: ResolvedCell, run: LogRun) -> Iterator[Row]:
    """Simulate the rows of a run; yield a result row with the measured and the simulated time of
    each.
    """
    for done, row in enumerate(run.rows):
        at(f"{run.file} at {row.size_bytes} B", done, len(run.rows))
        yield _row(resolved, row, run.collective)


def simulated_size(resolved: ResolvedCell, size_bytes: int) -> int:
    """Return the size in bytes that is simulated for a row of a log, usually that of the row.

    Newer versions of nccl-tests round small sizes down to a multiple of the ranks, which can be 0
    (alltoall of 8 B on 16 ranks). The system that wrote the log did move the row's bytes, so the
    size is doubled until it is not rounded to 0.
    """
    while size_bytes and not resolved.collective(size_bytes).size_bytes:
        size_bytes *= 2
    return size_bytes


def _row(resolved: ResolvedCell, measured: MeasuredRow, collective: str) -> Row:
    """Return the result row of a measured row, with both times and the error in percent."""
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


def simulated_seconds(resolved: ResolvedCell, measured: MeasuredRow, collective: str) -> float:
    """Return the simulated time of a measured row in seconds; the geometric mean of both launch
    styles if the style is not known.
    """
    in_place = measured.is_in_place(collective) and collective in HAS_IN_PLACE
    size = simulated_size(resolved, measured.size_bytes)

    def seconds_of(cell: ResolvedCell) -> float:
        return simulate_one(cell, size, in_place=in_place, engine="compiled").seconds

    if is_launch_unknown(resolved):
        return seconds_of_both(resolved, seconds_of)
    return seconds_of(resolved)


def few(rows: Sequence[K], most: int) -> tuple[K, ...]:
    """Return at most `most` of the rows, at equal distances, including the last one."""
    step = max(1, -(-len(rows) // most))
    return tuple(rows[::-1][::step][::-1])


def times_of(resolved: ResolvedCell, rows: Sequence[MeasuredRow], collective: str) -> Floats:
    """Return the simulated times of rows in seconds."""
    return np.array([simulated_seconds(resolved, row, collective) for row in rows])


def fit_of(source: Source, run: LogRun, most: int) -> Floats:
    """Return the log ratios of simulated over measured time at up to `most` sizes of a run."""
    rows = few(run.rows, most)
    measured = np.array([row.seconds(run.collective) for row in rows], dtype=float)
    ratios: Floats = np.log(times_of(resolved_for(source, run), rows, run.collective) / measured)
    return ratios


def overlaid(row: Row, cell: Cell) -> Row:
    """Return a result row with the measured time of its size and the error, if the log that the
    scenario names has that size.
    """
    if cell.scenario.measured is None or row.time_us is None or row.size_bytes is None:
        return row
    measured = _times_of_cell(cell, cell.scenario.measured, row.collective).get(row.size_bytes)
    if measured is None:
        return row
    return replace(row, measured_time_us=measured, error_pct=(row.time_us / measured - 1) * 100)


def check(cell: Cell) -> None:
    """Read the log that a scenario names, so that an unreadable log is refused before anything is
    simulated.
    """
    if cell.scenario.measured is not None:
        workload = cell.scenario.workload
        collective = workload.collective if isinstance(workload, Workload) else ""
        _times_of_cell(cell, cell.scenario.measured, collective)


def _times_of_cell(cell: Cell, name: str, collective: str) -> dict[int, float]:
    """Return the measured times in the log that a cell names, in microseconds by size in bytes;
    errors point at the key `name` of the scenario.
    """
    try:
        return _times(str(named_in(cell.source.name, name)), collective)
    except InputError as error:
        raise cell.source.error(("measured",), error.message, hint=error.hint) from None


@lru_cache(maxsize=32)
def _times(path: str, collective: str) -> dict[int, float]:
    """Return the measured times of a collective in a log, in microseconds by size in bytes."""
    times_us: dict[int, float] = {}
    for run in read_log(Path(path), presumed=collective):
        if run.collective == collective:
            for row in run.rows:
                times_us.setdefault(row.size_bytes, (row.seconds(collective) or 0.0) * 1e6)
    if not times_us:
        raise InputError(f"{path}: has no run of {collective}")
    return times_us
