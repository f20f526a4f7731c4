"""Points: a measured time beside a simulated one, for one run at one size."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from math import log

from netsim.collectives import CollectiveError
from netsim.collectives.collective import HAS_IN_PLACE
from netsim.errors import InputError, NetsimError
from netsim.measured.curve import Measured
from netsim.measured.index import Entry
from netsim.measured.mapping import ONLY_CHOICE, Mapped, dtype_of, mapped
from netsim.prepared import Prepared, prepare
from netsim.runs import checked_cells
from netsim.simulate import simulate_one

MICRO = 1e6


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
    """Some rows of a run that one process simulates."""

    entry: Entry
    rows: tuple[Measured, ...]


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
        plan = mapped(entry)
        points: list[Point] = []
        failed: list[Failed] = []
        for key, rows in groupby(part.rows, key=lambda row: (dtype_of(row.dtype), row.root)):
            chosen = list(rows)
            sizes = sorted({row.size_bytes for row in chosen})
            plan, prepared = prepared_at(plan, sizes, *key)
            for row in chosen:
                try:
                    points += point_of(entry, prepared, row)
                except NetsimError as error:
                    failed.append(Failed(entry.id, str(error), row.size_bytes))
    except NetsimError as error:
        return Answer(entry.id, failed=(Failed(entry.id, str(error)),))
    return Answer(entry.id, tuple(points), tuple(failed), plan.notes)


def prepared_at(plan: Mapped, sizes: list[int], dtype: str, root: int) -> tuple[Mapped, Prepared]:
    """The prepared cell; variables that force what cannot be had are left out, and told."""
    try:
        return plan, _prepare(plan, sizes, dtype, root)
    except NetsimError as error:
        other = plan.without(ONLY_CHOICE, str(error))
        if other is None:
            raise
        return other, _prepare(other, sizes, dtype, root)


def _prepare(plan: Mapped, sizes: list[int], dtype: str, root: int) -> Prepared:
    source = plan.source(plan.data["name"], sizes, dtype, root)
    prepared = prepare(checked_cells(source)[0])
    for size in sizes:  # a forced algorithm may be impossible only at some
        prepared.planned(size)
    return prepared


def point_of(entry: Entry, prepared: Prepared, row: Measured) -> Iterator[Point]:
    """The point of a row; none where it has no time."""
    seconds = row.seconds(entry.collective)
    if seconds is None or row.size_bytes <= 0:
        return
    work = prepared.cell.scenario.collective
    in_place = row.is_in_place(work.collective) and work.collective in HAS_IN_PLACE
    try:
        timing = simulate_one(prepared, row.size_bytes, in_place=in_place, engine="compiled")
        plan = prepared.planned(row.size_bytes)
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
    )
