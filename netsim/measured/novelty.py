"""How the error of a prediction depends on which similar systems were measured ("novelty").

Every run is simulated with constants that were estimated at three levels: without its own system,
without all systems of its machine and transport, and without all systems of its machine. What then
remains of the corpus determines the novelty class of that simulation: a sibling was measured
(another system of the same machine, transport and NCCL generation), only the kind (the same
machine), or neither (`netsim.results.novelty`). A run counts once in each class, at the level that
leaves out least.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

import numpy as np

from netsim.base.errors import NetsimError
from netsim.base.files import csv_of
from netsim.base.values import dataclass, grouped
from netsim.measured.accuracy import Accuracy, intervals_from, leave_out
from netsim.measured.accuracy_records import AccuracyRecords
from netsim.measured.compare import ComparedPoint, Error, error_of, weights_of
from netsim.measured.index import IndexEntry, version_of
from netsim.results import row as result_rows
from netsim.results.novelty import NOVELTIES, SIBLING, WORDS, Trait, nccl_generation, novelty_of

SYSTEM = "system"
TRANSPORT = "transport"
KIND = "kind"
LEVELS = (SYSTEM, TRANSPORT, KIND)
ANY: result_rows.Class = ("", "", "", "")  # the points of one class and band are one class here


@dataclass(frozen=True)
class NoveltyError:
    """The error of one novelty class in one size band.

    - `error`: the error of its points.
    - `within`: the fraction of points inside an interval that was computed without their system:
      for runs with a sibling, the interval of their class (machine, transport, collective and
      band), which such questions get; otherwise that of the novelty class. None if there is no
      such interval.
    - `interval`: the interval from the points of all systems of the novelty class; None for runs
      with a sibling.
    """

    novelty: str
    band: str
    error: Error
    within: float | None
    interval: result_rows.TimeInterval | None


def trait_of(entry: IndexEntry) -> Trait:
    """Return the machine, the transport and the generation of NCCL of a run."""
    version, _ = version_of(entry.text("nccl"), entry.text("remarks"), entry.text("date"))
    generation = nccl_generation(version.major, version.minor)
    return Trait(entry.machine, entry.transport, generation)


def group_of(entry: IndexEntry, level: str) -> str:
    """Return a name for what is left out together with a run at a level: its system, all runs on
    its machine and transport, or all runs on its machine.
    """
    if level == KIND:
        return f"kind {entry.machine}"
    if level == TRANSPORT:
        return f"transport {entry.machine} {entry.transport}"
    return entry.system


def regrouped(entry: IndexEntry, level: str) -> IndexEntry:
    """Return a run whose `system` is replaced by its group at a level (`group_of`)."""
    return replace(entry, values={**entry.values, "system": group_of(entry, level)})


def left_out_by(
    level: str,
    results: Accuracy,
    entries: Sequence[IndexEntry],
    corpus: Sequence[IndexEntry],
    jobs: int | None = None,
    done: Callable[[int, int], None] | None = None,
    records: AccuracyRecords | None = None,
) -> tuple[ComparedPoint, ...]:
    """Return the points of some runs, each simulated with constants that were estimated without its
    group at a level.

    Args:
        level: the level, see `group_of`.
        results: the result of the usual simulation.
        entries: the runs.
        corpus: all runs from which constants may be estimated.
        jobs: the number of worker processes; None is one per processor.
        done: called with the number of finished parts and the number of all parts.
        records: results that are not computed again.
    """
    systems = {entry.id: entry.system for entry in entries}
    left_out = leave_out(
        results,
        [regrouped(entry, level) for entry in entries],
        [regrouped(entry, level) for entry in corpus],
        jobs,
        done,
        records,
        (),
    )
    return tuple(replace(point, system=systems[point.run]) for point in left_out.left_out)


def novelty_left_out(entry: IndexEntry, level: str, corpus: Sequence[IndexEntry]) -> str:
    """Return the novelty class of a run if its group at a level is left out of the corpus."""
    group = group_of(entry, level)
    remaining = [other for other in corpus if other.healthy and group_of(other, level) != group]
    return novelty_of(trait_of(entry), map(trait_of, remaining))


def by_novelty(
    points: Mapping[str, Sequence[ComparedPoint]], corpus: Sequence[IndexEntry]
) -> dict[str, list[ComparedPoint]]:
    """Return the points of healthy runs by novelty class. A run counts at most once in each class.

    `points` has, by level, the points of runs that were simulated with their group at that level
    left out. `corpus` has all measured runs, from which the novelty class of a run follows.
    """
    entries = {entry.id: entry for entry in corpus}
    classes: dict[str, list[ComparedPoint]] = {novelty: [] for novelty in NOVELTIES}
    taken = set[tuple[str, str]]()
    for level in LEVELS:
        healthy = [point for point in points.get(level, ()) if point.healthy]
        for run, run_points in grouped(healthy, lambda point: point.run).items():
            with suppress(NetsimError):
                novelty = novelty_left_out(entries[run], level, corpus)
                if (run, novelty) not in taken:
                    classes[novelty] += run_points
                    taken.add((run, novelty))
    return classes


def _interval(
    points: Sequence[ComparedPoint], without: str = ""
) -> result_rows.TimeInterval | None:
    """Return the interval of measured over simulated times of some points, without those of the
    system `without`; None if there are too few systems.
    """
    ratios = [(point.log_ratio, point.system) for point in points]
    return intervals_from({(result_rows.TIME, ANY): ratios}, without).get((result_rows.TIME, ANY))


def _within(points: Sequence[ComparedPoint]) -> float | None:
    """Return the fraction of points inside the interval computed from all other systems; every
    system has the same weight.

    A measured time is inside if it lies between `low` and `high` times the simulated one.
    """
    inside = list[bool]()
    systems = list[str]()
    for system, system_points in grouped(points, lambda point: point.system).items():
        interval = _interval(points, system)
        if interval is None:
            continue
        for point in system_points:
            factor = float(np.exp(-point.log_ratio))  # measured over simulated
            inside.append(interval.low <= factor <= interval.high)
            systems.append(system)
    return _fraction(inside, systems)


def _fraction(inside: Sequence[bool], systems: Sequence[str]) -> float | None:
    """Return the fraction of points that are inside; every system has the same weight. None if
    there are no points.

    - `inside`: for each point, whether it is inside.
    - `systems`: for each point, the name of its system.
    """
    return float(np.average(inside, weights=weights_of(systems))) if inside else None


def _within_own_class(
    points: Sequence[ComparedPoint], is_within: Mapping[tuple[str, int], bool]
) -> float | None:
    """Return the fraction of points for which `is_within`, by run and size in bytes, is true; every
    system has the same weight. None if `is_within` has none of the points.
    """
    covered = [point for point in points if (point.run, point.size_bytes) in is_within]
    inside = [is_within[point.run, point.size_bytes] for point in covered]
    return _fraction(inside, [point.system for point in covered])


def novelty_errors(
    classes: Mapping[str, Sequence[ComparedPoint]],
    is_within: Mapping[tuple[str, int], bool] | None = None,
) -> list[NoveltyError]:
    """Return the errors of all novelty classes by size band, and how often their intervals hold.

    `is_within` says by run and size in bytes whether the measured time lies in the interval of its
    class of machines (`accuracy.points_within`); it counts for runs with a sibling.
    """
    errors = list[NoveltyError]()
    for novelty, points in classes.items():
        bands = grouped(points, lambda point: result_rows.band_of(point.size_bytes))
        for band in result_rows.BANDS:
            band_points = bands.get(band)
            if not band_points:
                continue
            if novelty == SIBLING:
                within = _within_own_class(band_points, is_within or {})
                interval = None
            else:
                within = _within(band_points)
                interval = _interval(band_points)
            error = error_of(band_points)
            errors.append(NoveltyError(novelty, band, error, within, interval))
    return errors


def page_rows(errors: Sequence[NoveltyError]) -> Iterator[str]:
    """Yield the errors as rows of a Markdown table, for a page of the docs."""
    for row in errors:
        within = "" if row.within is None else f"{row.within:.0%}"
        span = ""
        if row.interval is not None:
            span = f"{row.interval.low:.2f}-{row.interval.high:.2f}"
        yield (
            f"| {WORDS[row.novelty]} | {row.band} | {row.error} | {row.error.systems} | "
            f"{row.error.points} | {span} | {within} |"
        )


def printed_rows(errors: Sequence[NoveltyError]) -> Iterator[str]:
    """Yield the errors as a plain text table for the terminal: a line per novelty class and size
    band.
    """
    yield "# errors by what else was measured: median error, [90th percentile], bias"
    yield f"# {'class':<26}{'band':<14}{'error':<22}{'systems':>8}{'points':>8}{'within':>8}"
    for row in errors:
        within = "-" if row.within is None else f"{row.within:.0%}"
        yield (
            f"  {WORDS[row.novelty]:<26}{row.band:<14}{row.error!s:<22}{row.error.systems:>8}"
            f"{row.error.points:>8}{within:>8}"
        )
    yield "#"


def errors_text(errors: Sequence[NoveltyError]) -> str:
    """Return the errors as CSV: the file that `validated` and intervals read."""
    lines: list[Sequence[object]] = [
        ("novelty", "band", "systems", "points", "median", "p90", "bias", "within", "low", "high")
    ]
    for row in errors:
        error = row.error
        figures = [f"{value:.4f}" for value in (error.median, error.p90, error.bias)]
        within = "" if row.within is None else f"{row.within:.4f}"
        ends = ["", ""]
        if row.interval is not None:
            ends = [f"{row.interval.low:.4f}", f"{row.interval.high:.4f}"]
        lines.append((row.novelty, row.band, error.systems, error.points, *figures, within, *ends))
    return csv_of(lines)


def traits_text(corpus: Sequence[IndexEntry]) -> str:
    """Return machine, transport and NCCL generation of the healthy runs of an index as CSV, each
    combination once.
    """
    traits = {trait_of(entry) for entry in corpus if entry.healthy}
    lines: list[Sequence[object]] = [("machine", "transport", "nccl")]
    lines += [(it.machine, it.transport, it.generation) for it in sorted(traits)]
    return csv_of(lines)
