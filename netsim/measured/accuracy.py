"""Simulate all runs of an index of measured runs on several processes, and derive errors, intervals
and forecasts from the results.

An index is a YAML file that lists measured runs. The same index gives the same points (pairs of
measured and simulated times), whatever the number of processes.
"""

import csv
import json
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import asdict, astuple, field, replace
from functools import lru_cache
from itertools import combinations
from math import ceil, exp, inf, log, log2, sqrt
from operator import attrgetter
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from scipy.special import bdtrik

from netsim.base import constants as constant_table
from netsim.base.constants import TABLE, Constant
from netsim.base.errors import InputError, LostError, NetsimError, Tell, silent, suggest
from netsim.base.files import LARGEST_TABLE, csv_of, preset_folder, text_of
from netsim.base.memo import digest
from netsim.base.processes import Processes
from netsim.base.startup import MODEL_VERSION, STAGE, __version__, at, worked
from netsim.base.values import dataclass, grouped
from netsim.measured import estimate
from netsim.measured.accuracy_records import AccuracyRecords, point_from
from netsim.measured.compare import (
    ALL,
    ComparedPoint,
    Failed,
    Floats,
    PartAnswer,
    RunPart,
    answer,
    as_values,
    by_band,
    error_of,
    resolved_at,
    weighted_quantile,
    weights_of,
)
from netsim.measured.estimate import Without, figures_without, looked_at, shown_by
from netsim.measured.index import IndexEntry, dtype_of, joined_by, mapped
from netsim.measured.noise_floor import noise_by_band, noise_table, repeated_times
from netsim.measured.training import (
    ComparedStep,
    ComparedSteps,
    StepAnswer,
    published,
    rendered,
    run_steps,
)
from netsim.results import row as result_rows

CLASS = ("machine", "transport", "collective", "band")
LARGE = 32  # a run of at least this many ranks is simulated in four parts, each with some sizes


@dataclass(frozen=True)
class Accuracy:
    """The result of simulating an index.

    Args:
        points: measured and simulated time of each size of each run, in the order of the index.
        failed: runs and sizes that could not be simulated.
        notes: assumptions by the id of the run.
    """

    points: tuple[ComparedPoint, ...]
    failed: tuple[Failed, ...] = ()
    notes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    missing: int = 0  # parts that were not simulated because the user interrupted
    lost: int = 0  # parts whose worker process died
    # The same points, each simulated with constants that were estimated without its own system.
    left_out: tuple[ComparedPoint, ...] = ()
    without: tuple[Without, ...] = ()  # those estimates, by constant and left-out system

    def json(self) -> str:
        """Return the points and the errors by size band as JSON text; healthy runs separately from
        runs with a problem.
        """
        values = {"points": [asdict(point) for point in self.points], "bands": bands(self.points)}
        if self.left_out:
            values["left_out"] = [asdict(point) for point in self.left_out]
            values["left_out_bands"] = bands(self.left_out)
            values["without"] = [asdict(estimated) for estimated in self.without]
        return json.dumps(values, indent=1) + "\n"


def bands(points: Sequence[ComparedPoint]) -> dict[str, Any]:
    """Return the errors by size band as plain values, for healthy runs and for runs with a
    problem.
    """
    sides = {"healthy": True, "unhealthy": False}
    return {
        name: as_values(by_band([point for point in points if point.healthy is side]))
        for name, side in sides.items()
    }


def chosen(entries: Sequence[IndexEntry], only: Sequence[str]) -> list[IndexEntry]:
    """Return the entries whose id begins with one of the texts `only`; all entries if there are no
    texts.
    """
    for text in only:
        if not any(entry.id.startswith(text) for entry in entries):
            hint = suggest(text, [entry.id for entry in entries])
            raise InputError(f"no run of the index is called {text!r}{hint}")
    if not only:
        return list(entries)
    return [entry for entry in entries if entry.id.startswith(tuple(only))]


def run_index(
    entries: Sequence[IndexEntry],
    jobs: int | None,
    done: Callable[[int, int], None] | None = None,
    *,
    memory: int = 0,
    tell: Tell = silent,
    records: AccuracyRecords | None = None,
    figures: Mapping[str, Mapping[str, float]] = MappingProxyType({}),
) -> Accuracy:
    """Simulate all runs. If the user presses Ctrl-C, the result has the runs that were finished.

    Args:
        entries: the runs.
        jobs: the number of worker processes; None is one per processor.
        done: called with the number of finished parts and the number of all parts.
        memory: bytes that the workers may use together; 0 is no limit.
        tell: called with a message for each worker that died.
        records: answers that are not simulated again; new ones are added to them.
        figures: calibration values that replace the usual ones, by the id of the run and the name
            of the value.
    """
    parts: list[RunPart] = []
    failed: list[Failed] = []
    for entry in entries:
        try:
            parts += _parts(entry, figures.get(entry.id, {}))
        except NetsimError as error:
            failed.append(Failed(entry.id, str(error)))
    if records is None:
        records = AccuracyRecords()
    answers = {
        number: records.answers[key]
        for number, part in enumerate(parts)
        if (key := key_of(part)) in records.answers
    }
    same_parts = _numbers_of_same_parts(parts)
    for first, numbers in same_parts.items():
        if first in answers:
            answers |= {number: _answer_for(answers[first], parts[number]) for number in numbers}
    remaining = {number for number in same_parts if number not in answers}
    largest_first = sorted(remaining, key=lambda number: (-_work(parts[number]), number))
    work_total = sum(_work(parts[number]) for number in remaining)
    work_done = 0.0
    workers = Processes(jobs or os.cpu_count() or 1, answered, memory=memory, tell=tell)
    lost = 0
    with suppress(KeyboardInterrupt), workers:  # what is finished is worth having
        STAGE.others = workers.memory
        STAGE.done = len(answers)
        STAGE.total = len(parts)
        worked(0.0, work_total)
        for number, result in _answers(parts, largest_first, workers):
            work_done += _work(parts[number])
            worked(work_done, work_total)
            at(", ".join(workers.names()), len(answers), len(parts))
            for same_number in same_parts[number]:
                part = parts[same_number]
                if isinstance(result, LostError):
                    lost += 1
                    failure = Failed(part.entry.id, str(result))
                    answers[same_number] = PartAnswer(part.entry.id, failed=(failure,))
                else:
                    answers[same_number] = _answer_for(result, part)
                    records.keep(key_of(part), answer=asdict(answers[same_number]))
            if done:
                done(len(answers), len(parts))
    finished = _joined([answers[number] for number in sorted(answers)], failed)
    return replace(finished, missing=len(parts) - len(answers), lost=lost)


def _answers(
    parts: Sequence[RunPart], order: list[int], workers: Processes
) -> Iterator[tuple[int, PartAnswer | LostError]]:
    """Simulate parts of runs in the order `order` (their numbers); yield the number of each with
    its answer, as they finish.
    """
    if workers.worker_count == 1:
        for number in order:
            try:
                yield number, answer(parts[number])
            except MemoryError:
                yield number, LostError("out of memory")
        return
    jobs = (
        (parts[number], _title(parts[number]), _memory_needed(parts[number]), 1) for number in order
    )
    numbers = {id(part): number for number, part in enumerate(parts)}
    with closing(workers.results(jobs)) as results:
        for part, result in results:
            yield numbers[id(part)], result


def _numbers_of_same_parts(parts: Sequence[RunPart]) -> dict[int, list[int]]:
    """Return groups of parts that need the same simulation: the numbers of all parts of a group, by
    the first of them.

    Some runs differ only in the times that were measured.
    """
    first_numbers: dict[bytes, int] = {}
    numbers_by_first: dict[int, list[int]] = {}
    for number, part in enumerate(parts):
        try:
            scenario = mapped(part.entry).data
            data = {key: value for key, value in scenario.items() if key != "name"}
        except NetsimError:
            data = {"run": part.entry.id}  # the simulation of the part reports the error
        name = part.entry.collective
        rows = [
            (row.size_bytes, dtype_of(row.dtype), row.root, row.is_in_place(name))
            for row in part.rows
        ]
        key = digest(repr((data, rows, sorted(part.figures.items()))))
        first = first_numbers.setdefault(key, number)
        numbers_by_first.setdefault(first, []).append(number)
    return numbers_by_first


def _answer_for(answer: PartAnswer, part: RunPart) -> PartAnswer:
    """Return the answer for a part, made from the answer of another part that needs the same
    simulation.
    """
    entry = part.entry
    if entry.id == answer.run:
        return answer
    simulated = {point.size_bytes: point for point in answer.points}
    points = [
        replace(
            simulated[row.size_bytes],
            run=entry.id,
            measured_us=seconds * 1e6,
            machine=entry.machine,
            healthy=entry.healthy,
            system=entry.system,
        )
        for row in part.rows
        if row.size_bytes in simulated and (seconds := row.seconds(entry.collective))
    ]
    failed = tuple(replace(failure, run=entry.id) for failure in answer.failed)
    return PartAnswer(entry.id, tuple(points), failed, answer.notes)


def answered(part: RunPart) -> Iterator[PartAnswer]:
    """Yield the answer of a part. Worker processes call this function."""
    yield answer(part)


def _memory_needed(part: RunPart) -> int:
    """Return an upper estimate of the bytes that a process needs for a part; 0 if the part cannot
    be simulated.
    """
    with suppress(NetsimError):
        largest = max(part.rows, key=lambda row: row.size_bytes)
        sizes = [largest.size_bytes]
        plan = mapped(part.entry)
        _, resolved = resolved_at(plan, sizes, dtype_of(largest.dtype), largest.root)
        return resolved.memory_needed(largest.size_bytes)
    return 0


def _title(part: RunPart) -> str:
    """Return the name of a part in progress messages: its run, and its smallest and largest
    size.
    """
    sizes = [row.size_bytes for row in part.rows]
    return f"{part.entry.id} at {min(sizes)} to {max(sizes)} B" if sizes else part.entry.id


def key_of(part: RunPart, constant: Constant | None = None) -> str:
    """Return a digest of everything that the answer of a part depends on.

    This is the part, the version of netsim, the table of constants, the machine files and, if a
    constant is estimated from the run, the id of this constant.
    """
    entry = part.entry
    settings = [*part.figures.items()]
    estimated = () if constant is None else (constant.id,)
    values = dict(entry.values)
    if constant is not None:
        values.pop("system", None)  # what a run shows is the same whatever is left out with it
    question = (
        entry.id,
        str(entry.folder),
        str(values),
        part.rows,
        (*settings, *estimated),
    )
    return digest((question, __version__, MODEL_VERSION, _digest_of_files())).hex()


@lru_cache(maxsize=1)
def _digest_of_files() -> bytes:
    """Return a digest of the table of constants and of all machine files."""
    folders = (preset_folder("topologies"), Path("topologies"))
    machines = (file for folder in folders for file in sorted(folder.glob("*.y*ml")))
    return digest(tuple(file.read_bytes() for file in (constant_table.FILE, *machines)))


def _parts(entry: IndexEntry, figures: Mapping[str, float]) -> list[RunPart]:
    """Return the parts of a run: four for a run of many ranks, so that several processes can share
    it. `figures` are calibration values by name.
    """
    rows = entry.rows()
    if entry.ranks < LARGE:
        return [RunPart(entry, rows, figures)]
    return [RunPart(entry, rows[first::4], figures) for first in range(4) if rows[first::4]]


def leave_out(
    accuracy: Accuracy,
    entries: Sequence[IndexEntry],
    corpus: Sequence[IndexEntry],
    jobs: int | None,
    done: Callable[[int, int], None] | None,
    records: AccuracyRecords | None,
    off: Sequence[Without],
) -> Accuracy:
    """Return the result with each run also simulated as if its own system had never been measured.

    Args:
        accuracy: the result of the usual simulation.
        entries: the runs.
        corpus: all runs from which constants may be estimated.
        jobs: the number of worker processes; None is one per processor.
        done: called with the number of finished parts and the number of all parts.
        records: results that are not computed again.
        off: constants that are switched off and therefore not estimated.

    Every other constant that was fitted to a system is estimated from the other systems of the
    corpus.
    """
    systems = {entry.system for entry in entries}
    constants_off = {switched.constant for switched in off}
    estimates = [
        estimated
        for estimated in _estimates_without(systems, corpus, jobs, records)
        if estimated.constant not in constants_off
    ]
    figures_by_run = {}
    for entry in entries:
        of_system = [estimated for estimated in estimates if estimated.system == entry.system]
        if of_system:
            figures_by_run[entry.id] = figures_without(entry, [*of_system, *off])
    runs = [entry for entry in entries if figures_by_run.get(entry.id)]
    if runs:
        changed = run_index(runs, jobs, done, records=records, figures=figures_by_run)
    else:
        changed = Accuracy(())
    changed_runs = {point.run for point in changed.points}
    unchanged_points = [point for point in accuracy.points if point.run not in changed_runs]
    place = {entry.id: number for number, entry in enumerate(entries)}
    points = sorted((*changed.points, *unchanged_points), key=lambda point: place[point.run])
    return replace(
        accuracy,
        missing=accuracy.missing + changed.missing,
        lost=accuracy.lost + changed.lost,
        left_out=tuple(points),
        without=tuple(sorted(estimates, key=attrgetter("system", "constant"))),
    )


def steps_left_out(
    entries: Sequence[IndexEntry],
    corpus: Sequence[IndexEntry],
    jobs: int | None,
    done: Callable[[int, int], None] | None,
    records: AccuracyRecords | None = None,
) -> ComparedSteps:
    """Return training steps, each simulated twice: with the constants of the table, and with
    constants that were estimated without the steps of its own group (framework and GPU generation).

    `corpus` has all steps from which constants may be estimated; `jobs` and `done` as in
    `run_index`.
    """
    members = list[IndexEntry]()
    for entry in corpus:
        with suppress(NetsimError):
            group = published(entry).group
            members.append(replace(entry, values={**entry.values, "system": group}))
    groups = {member.id: member.system for member in members}
    groups_of_entries = {groups[entry.id] for entry in entries if entry.id in groups}
    estimates = sorted(
        _estimates_without(groups_of_entries, members, jobs),
        key=attrgetter("system", "constant"),
    )
    values: dict[str, dict[str, float]] = {}
    for run, group in groups.items():
        changed_values = {
            estimated.constant: _value_of(estimated)
            for estimated in estimates
            if estimated.system == group and estimated.ratio != 1
        }
        if changed_values:
            values[run] = changed_values
    words = tuple(map(_words_for_estimate, estimates))
    return replace(journaled_steps(entries, jobs, done, records, values), without=words)


def _value_of(estimated: Without) -> float:
    """Return the value of a constant as it was estimated without a system."""
    return TABLE[estimated.constant].value * estimated.ratio


def _words_for_estimate(estimated: Without) -> str:
    """Return a line on the value of a constant without a system, and on the constant that replaces
    it, if one does.
    """
    words = f"{estimated.system}: {estimated.constant} {_value_of(estimated):.3g}"
    if estimated.of in TABLE:
        return f"{words}, that of {estimated.of}"
    return f"{words}, as nothing else shows it" if estimated.of else words


def journaled_steps(
    entries: Sequence[IndexEntry],
    jobs: int | None,
    done: Callable[[int, int], None] | None,
    records: AccuracyRecords | None = None,
    values: Mapping[str, Mapping[str, float]] = MappingProxyType({}),
) -> ComparedSteps:
    """Return training steps; those that the records lack are simulated and added to them.

    `values` are changed values of constants by the id of the step: such a step is simulated with
    the constants of the table and also with the changed ones. `jobs` and `done` as in `run_index`.
    """
    if records is None:
        return run_steps(entries, jobs, done, values)
    keys = {entry.id: _key_of_step(entry, values.get(entry.id, {})) for entry in entries}
    known_answers: dict[str, StepAnswer] = {}
    for entry in entries:
        figures = records.steps.get(keys[entry.id])
        if isinstance(figures, str):
            known_answers[entry.id] = figures
        elif figures is not None:
            of_entry = published(entry)
            usual, changed = (ComparedStep(of_entry, *pair) for pair in figures)
            known_answers[entry.id] = usual, changed

    def keep(entry: IndexEntry, answer: StepAnswer) -> None:
        if isinstance(answer, str):
            records.keep(keys[entry.id], step=answer)
        else:
            figures = [(compared.simulated, compared.mfu) for compared in answer]
            records.keep(keys[entry.id], step=figures)

    return run_steps(entries, jobs, done, values, known_answers=known_answers, keep=keep)


def _key_of_step(entry: IndexEntry, values: Mapping[str, float]) -> str:
    """Return a digest of everything that the answer of a training step depends on; `values` are
    changed values of constants.
    """
    question = (entry.id, str(dict(entry.values)), sorted(values.items()))
    return digest((question, __version__, MODEL_VERSION, _digest_of_files())).hex()


def figures_off(
    entries: Sequence[IndexEntry], off: Sequence[Without]
) -> dict[str, Mapping[str, float]]:
    """Return the calibration values that differ when the constants `off` are switched off, by the
    id of the run.

    Runs on which the constants have no effect are left out.

    Raises:
        InputError: no run of the index depends on these constants.
    """
    if not off:
        return {}
    figures_by_run: dict[str, Mapping[str, float]] = {}
    for entry in entries:
        with suppress(NetsimError):  # the simulation of the run reports the error
            figures = figures_without(entry, off)
            if figures:
                figures_by_run[entry.id] = figures
    if not figures_by_run:
        names = ", ".join(switched.constant for switched in off)
        raise InputError(f"{names}: no run of the index is simulated with it")
    return figures_by_run


def _estimates_without(
    systems: Collection[str],
    corpus: Sequence[IndexEntry],
    jobs: int | None,
    records: AccuracyRecords | None = None,
) -> list[Without]:
    """For each system, estimate the constants that were fitted to it from the runs of the other
    systems.
    """
    system_of_run = {entry.id: entry.system for entry in corpus}
    constants = [
        constant
        for constant in TABLE.values()
        if constant.fitted
        and any(system_of_run.get(run) in systems for run in constant.fitted.runs)
    ]
    shown = _what_runs_show(constants, corpus, jobs, records)
    estimates = list[Without]()
    for system in sorted(systems):
        estimates += estimate.without(system, constants, corpus, shown)
    return estimates


def _what_runs_show(
    constants: Sequence[Constant],
    corpus: Sequence[IndexEntry],
    jobs: int | None,
    records: AccuracyRecords | None,
) -> Mapping[str, dict[str, Floats]]:
    """Return what the estimator of each constant reads from each run (`shown_by`), by constant id
    and run id.

    The estimates without a system are made from these arrays, leaving out those of its runs.
    """
    pairs = {
        (constant.id, run.id): (constant, run)
        for constant in constants
        for run in looked_at(constant, corpus)
    }
    keys = dict[tuple[str, str], str]()
    shown = dict[tuple[str, str], Floats]()
    if records is not None:
        for ids, (constant, run) in pairs.items():
            keys[ids] = key_of(RunPart(run, run.rows()), constant)
            if keys[ids] in records.shown:
                shown[ids] = records.shown[keys[ids]]
    most_ranks_first = sorted(set(pairs) - set(shown), key=lambda ids: -pairs[ids][1].ranks)
    workers = Processes(jobs or os.cpu_count() or 1, _shown)
    tasks = ((pairs[ids], " of ".join(ids), 0, 1) for ids in most_ranks_first)
    with workers, closing(workers.results(tasks)) as results:
        for (constant, run), values in results:
            if isinstance(values, LostError):  # without the run the estimate would differ
                raise values
            ids = (constant.id, run.id)
            shown[ids] = values
            if records is not None:
                records.shown[keys[ids]] = values
                records.keep(keys[ids], shown=values.tolist())
    by_constant: dict[str, dict[str, Floats]] = {constant.id: {} for constant in constants}
    for (constant_id, run_id), values in shown.items():
        by_constant[constant_id][run_id] = values
    return by_constant


def _shown(task: tuple[Constant, IndexEntry]) -> Iterator[Floats]:
    """Yield what the estimator of a constant reads from a run. Worker processes call this
    function.
    """
    yield shown_by(*task)


def _work(part: RunPart) -> float:
    """Return the relative work of simulating a part; parts with more work are simulated first."""
    sizes = sum(log2(row.size_bytes + 2) for row in part.rows)
    return sizes * sqrt(part.entry.ranks) ** 3


def _joined(answers: Sequence[PartAnswer], failed: list[Failed]) -> Accuracy:
    """Return the result of all parts; the failure of a whole run is listed once, not for each of
    its parts.
    """
    points: list[ComparedPoint] = []
    notes: dict[str, tuple[str, ...]] = {}
    failed_runs: dict[str, Failed] = {}
    for part_answer in answers:
        points += part_answer.points
        for failure in part_answer.failed:
            if failure.size_bytes is None:
                failed_runs[failure.run] = failure
            else:
                failed.append(failure)
        if part_answer.notes:
            run = part_answer.run
            notes[run] = tuple(dict.fromkeys((*notes.get(run, ()), *part_answer.notes)))
    runs = dict.fromkeys(point.run for point in points)
    place = {run: number for number, run in enumerate(runs)}
    points.sort(key=lambda point: (place[point.run], point.size_bytes))
    return Accuracy(tuple(points), (*failed, *failed_runs.values()), notes)


FORECAST = ("run", "system", "machine", "collective", "size_bytes", "dtype", "root", "time_us",
            "time_low_us", "time_high_us", "algorithm", "protocol", "model_version")  # fmt: skip


def questions(entries: Sequence[IndexEntry]) -> list[IndexEntry]:
    """Return the entries without their measured times and bandwidths: only sizes, data types and
    roots of their rows stay.
    """
    return [replace(entry, is_question=True) for entry in entries]


def forecast_text(accuracy: Accuracy, entries: Sequence[IndexEntry]) -> str:
    """Return the simulated times and their 80 % intervals as CSV.

    If the runs were also simulated without their own systems, those times are written.
    """
    where = {entry.id: joined_by(entry) for entry in entries}
    rows = {
        (entry.id, row.size_bytes): (row.dtype, row.root)
        for entry in entries
        for row in entry.rows()
    }
    lines: list[Sequence[object]] = [FORECAST]
    for point in accuracy.left_out or accuracy.points:
        band = result_rows.band_of(point.size_bytes)
        classes = result_rows.wider(where[point.run], point.collective, band)
        interval = result_rows.interval_of(classes)
        limits = ["", ""]
        if interval:
            limits = [f"{point.simulated_us * end:.6g}" for end in (interval.low, interval.high)]
        line = (
            *(point.run, point.system, point.machine, point.collective, point.size_bytes),
            *rows[point.run, point.size_bytes],
            *(f"{point.simulated_us:.6g}", *limits),
            *(point.algorithm, point.protocol, MODEL_VERSION),
        )
        lines.append(line)
    return csv_of(lines)


Key = tuple[str, int]  # the id of a run and a size in bytes


@dataclass(frozen=True)
class _Forecast:
    """The rows of a forecast file by run and size, their times and their intervals, in
    microseconds.
    """

    rows: Mapping[Key, Mapping[str, str]]
    times: Mapping[Key, float]
    spans: Mapping[Key, result_rows.Span]  # only of rows that state an interval


def _read_forecast(path: Path) -> _Forecast:
    """Read a forecast that `netsim accuracy INDEX --predict` has written."""
    table = csv.DictReader(text_of(path, LARGEST_TABLE).splitlines())
    rows = dict[Key, Any]()
    times = dict[Key, float]()
    spans = dict[Key, result_rows.Span]()
    missing = [name for name in FORECAST if name not in (table.fieldnames or ())]
    if missing:
        hint = f"netsim accuracy INDEX --predict {path} writes one"
        raise InputError(f"{path}:1: {missing[0]}: no such column in this forecast", hint=hint)

    def number(row: Mapping[str, str], name: str) -> float:
        text = row[name] or ""
        with suppress(ValueError):
            value = float(text)
            if 0 < value < inf:
                return value
        where = f"{path}:{table.line_num}: {name}"
        raise InputError(f"{where}: expected a finite number above 0, got {text or 'nothing'}")

    for row in table:
        key = row["run"], int(number(row, "size_bytes"))
        rows[key] = row
        times[key] = number(row, "time_us")
        if row["time_low_us"]:
            spans[key] = number(row, "time_low_us"), number(row, "time_high_us")
    return _Forecast(rows, times, spans)


def from_forecast(path: Path, entries: Sequence[IndexEntry]) -> tuple[Accuracy, str]:
    """Return the points of an index with the simulated times of an earlier forecast, and a text.

    Rows that the forecast lacks are failures. The text says how many of the measured times lie
    within the intervals of the forecast.
    """
    forecast = _read_forecast(path)
    points = list[ComparedPoint]()
    failed = list[Failed]()
    for entry in entries:
        for row in entry.rows():
            key = (entry.id, row.size_bytes)
            seconds = row.seconds(entry.collective)
            if key not in forecast.times:
                failed.append(Failed(entry.id, "the forecast does not have it", row.size_bytes))
            elif seconds:
                points.append(
                    ComparedPoint(
                        run=entry.id,
                        machine=entry.machine,
                        collective=forecast.rows[key]["collective"],
                        size_bytes=row.size_bytes,
                        measured_us=seconds * 1e6,
                        simulated_us=forecast.times[key],
                        algorithm=forecast.rows[key]["algorithm"],
                        protocol=forecast.rows[key]["protocol"],
                        healthy=entry.healthy,
                        system=entry.system,
                    )
                )
    return Accuracy(tuple(points), tuple(failed)), _words_for_intervals(points, forecast)


def _words_for_intervals(points: Sequence[ComparedPoint], forecast: _Forecast) -> str:
    """Return a text on how many measured times of healthy runs lie within the intervals of a
    forecast.
    """
    with_interval = [
        (point, forecast.spans[point.run, point.size_bytes])
        for point in points
        if point.healthy and (point.run, point.size_bytes) in forecast.spans
    ]
    if not with_interval:
        return "intervals: none forecast"
    within = sum(low <= point.measured_us <= high for point, (low, high) in with_interval)
    return f"{within} of {len(with_interval)} healthy points lie within their intervals of 80 %"


def read_accuracy(path: Path) -> tuple[ComparedPoint, ...]:
    """Read the points in a file that `netsim accuracy --json` has written."""
    why = "expected an object with points, as written"
    try:
        return tuple(
            point_from(point) for point in json.loads(text_of(path, LARGEST_TABLE))["points"]
        )
    except (ValueError, RecursionError) as error:
        why = str(error)
    except (KeyError, TypeError):
        pass
    raise InputError(f"{path}: not a result of netsim accuracy --json: {why}")


def compared(
    now: Sequence[ComparedPoint], before: Sequence[ComparedPoint]
) -> list[tuple[str, float, float]]:
    """Return (run, median error before, median error now) for the runs that two results share.

    The run whose error changed most comes first.
    """
    errors = []
    for points in (before, now):
        runs = grouped(points, lambda point: point.run)
        errors.append({run: by_band(of_run)[ALL].median for run, of_run in runs.items()})
    shared = [(run, errors[0][run], errors[1][run]) for run in errors[1] if run in errors[0]]
    return sorted(shared, key=lambda change: -abs(change[2] - change[1]))


def classes_of(points: Sequence[ComparedPoint], entries: Sequence[IndexEntry]) -> str:
    """Return the median error of every class of healthy runs as JSON, the file that `validated`
    reads.

    A class is a machine, transport, line rate, collective and size band.
    """
    where = {entry.id: joined_by(entry) for entry in entries}
    by_class = grouped(
        (point for point in points if point.healthy),
        lambda point: (
            astuple(where[point.run])[:3],
            point.collective,
            result_rows.band_of(point.size_bytes),
        ),
    )
    values = list[dict[str, Any]]()
    for (machines, collective, band), of_class in sorted(by_class.items()):
        error = error_of(of_class)
        class_values = dict(zip(("machine", "transport", "gbps"), machines, strict=True))
        class_values |= {
            "collective": collective,
            "band": band,
            "median": round(error.median, 4),
            "runs": error.runs,
            "systems": error.systems,
        }
        values.append(class_values)
    return json.dumps(values, indent=1) + "\n"


# A list of (log ratio of simulated over measured, system) for each kind of interval (of times, or
# of ratios of two times) and each class of runs.
Residuals = dict[tuple[str, result_rows.Class], list[tuple[float, str]]]


def _residuals(
    points: Sequence[ComparedPoint], where: Mapping[str, result_rows.Joined]
) -> Residuals:
    """Return the log ratios of simulated over measured times by class. A point is in several
    classes: its own and wider ones.

    `where` has the machine, transport and rate of each run.
    """
    residuals: Residuals = {}
    for point in points:
        band = result_rows.band_of(point.size_bytes)
        for class_name in result_rows.wider(where[point.run], point.collective, band):
            of_class = residuals.setdefault((result_rows.TIME, class_name), [])
            of_class.append((point.log_ratio, point.system))
    return residuals


def _residuals_of_ratios(points: Sequence[ComparedPoint]) -> Residuals:
    """Return the errors in predicting how much faster one run is than another: the log of the
    simulated over the measured ratio of two times.

    Every two runs of one system at the same size are a pair. Pairs of one collective are also in
    the class of equal collectives. Each pair counts with both signs, as its order is arbitrary.
    """
    residuals: Residuals = {}
    by_system = grouped(points, lambda point: (point.system, point.size_bytes))
    for (system, size), of_system in by_system.items():
        for first, second in combinations(of_system, 2):
            ratio = first.log_ratio - second.log_ratio
            kinds = {"", result_rows.SAME} if first.collective == second.collective else {""}
            for kind in kinds:
                class_name = ("", "", kind, result_rows.band_of(size))
                both_signs = residuals.setdefault((result_rows.RATIO, class_name), [])
                both_signs += [(ratio, system), (-ratio, system)]
    return residuals


def intervals_from(residuals: Residuals, without: str = "") -> result_rows.Intervals:
    """Return the intervals of the classes with enough systems, without the residuals of the system
    `without`.

    An interval is meant for a further system: if k systems are in the class, the rank of the next
    one among all k + 1 is taken as equally probable, so the interval reaches beyond the plain
    quantile. A class with a collective and fewer systems than `FEWEST` has the interval that holds
    the middle half of its residuals.
    """
    intervals = {}
    for (kind, class_name), all_values in residuals.items():
        used = [(value, system) for value, system in all_values if system != without]
        count = len({system for _, system in used})
        if count >= result_rows.FEWEST:
            key = kind, class_name
            end = ((1 - result_rows.WITHIN) / 2 * (count + 1) - 0.5) / count
        elif count and kind == result_rows.TIME and class_name[0] and class_name[2]:
            key = result_rows.HALF, class_name
            end = 0.25
        else:
            continue
        values = np.array([value for value, _ in used])
        weights = weights_of([system for _, system in used])
        low, high = (weighted_quantile(values, weights, part) for part in (end, 1 - end))
        intervals[key] = result_rows.TimeInterval(exp(-high), exp(-low), count)
    return intervals


def intervals_text(points: Sequence[ComparedPoint], entries: Sequence[IndexEntry]) -> str:
    """Return the intervals of every class as CSV: the file from which results take their
    intervals.
    """
    where = {entry.id: joined_by(entry) for entry in entries}
    healthy = [point for point in points if point.healthy]
    intervals = intervals_from(_residuals(healthy, where) | _residuals_of_ratios(healthy))
    lines: list[Sequence[object]] = [("of", *CLASS, "systems", "low", "high")]
    for (kind, class_name), interval in sorted(intervals.items()):
        limits = (f"{interval.low:.4f}", f"{interval.high:.4f}")
        lines.append((kind, *class_name, interval.systems, *limits))
    return csv_of(lines)


@dataclass(frozen=True)
class _Covered:
    """Whether a point lies in the interval of its class that was computed without the point's
    system.
    """

    point: ComparedPoint
    is_within: float  # 1 if the measured time lies in the interval, else 0
    width: float  # log of the upper over the lower end
    score: float  # the interval score: the width plus a penalty for a time outside


def _covered(
    points: Sequence[ComparedPoint], where: Mapping[str, result_rows.Joined], residuals: Residuals
) -> Iterator[_Covered]:
    """Yield for each point how well an interval computed without the point's system covers it;
    points without such an interval are skipped.

    `where` has the machine, transport and rate of each run, `residuals` the log ratios by class
    (`_residuals`).
    """
    for system, of_system in grouped(points, lambda point: point.system).items():
        intervals = intervals_from(residuals, system)
        for point in of_system:
            band = result_rows.band_of(point.size_bytes)
            classes = result_rows.wider(where[point.run], point.collective, band)
            interval = result_rows.interval_of(classes, intervals)
            if interval is not None:
                below = log(interval.low) + point.log_ratio
                above = -point.log_ratio - log(interval.high)
                outside = max(below, above, 0.0)
                width = log(interval.high / interval.low)
                score = width + 2 / (1 - result_rows.WITHIN) * outside
                yield _Covered(point, float(not outside), width, score)


def points_within(
    points: Sequence[ComparedPoint], entries: Sequence[IndexEntry]
) -> dict[tuple[str, int], bool]:
    """Whether each measured time lies in the interval of its class (machine, transport, collective
    and band), made without the system of the point; by run and size in bytes.

    Points without an interval are left out.
    """
    where = {entry.id: joined_by(entry) for entry in entries}
    return {
        (covered.point.run, covered.point.size_bytes): bool(covered.is_within)
        for covered in _covered(points, where, _residuals(points, where))
    }


def _coverage(points: Sequence[ComparedPoint], entries: Sequence[IndexEntry]) -> Iterator[str]:
    """Yield the lines of a Markdown table on how well intervals cover measured times: one for each
    size band and each system.

    Columns: the number of independent points, the fraction within their intervals, the range in
    which that fraction lies by chance, the median width, the interval score, and the score of
    intervals that are the same for all classes.
    """
    where = {entry.id: joined_by(entry) for entry in entries}
    log_ratios = [(point.log_ratio, point.system) for point in points]
    same_for_all: Residuals = {
        (result_rows.TIME, ("", "", "", band)): log_ratios for band in result_rows.BANDS
    }
    by_class = list(_covered(points, where, _residuals(points, where)))
    without_classes = list(_covered(points, where, same_for_all))
    systems = sorted({covered.point.system for covered in by_class})
    for name in (*result_rows.BANDS, ALL, *systems):
        chosen_points = [covered for covered in by_class if _is_in(covered.point, name)]
        if chosen_points:
            same_points = [covered for covered in without_classes if _is_in(covered.point, name)]
            yield _coverage_line(name, chosen_points, same_points)


def _is_in(point: ComparedPoint, name: str) -> bool:
    """Whether a point belongs to the size band or system `name`; every point belongs to `ALL`."""
    return name in (ALL, point.system, result_rows.band_of(point.size_bytes))


def _coverage_line(
    name: str, by_class: Sequence[_Covered], without_classes: Sequence[_Covered]
) -> str:
    """Return one line of the table of `_coverage`; every system has the same weight.

    `by_class` and `without_classes` are the same points with intervals of their classes, and with
    one interval for all classes.
    """
    weights = weights_of([covered.point.system for covered in by_class])
    within = np.average([covered.is_within for covered in by_class], weights=weights)
    score = np.average([covered.score for covered in by_class], weights=weights)
    width = exp(float(np.median([covered.width for covered in by_class])))
    count = round(weights.sum())
    low, high = (ceil(bdtrik(part, count, result_rows.WITHIN)) / count for part in (0.05, 0.95))
    score_without_classes = np.average(
        [covered.score for covered in without_classes],
        weights=weights_of([covered.point.system for covered in without_classes]),
    )
    return (
        f"| {name} | {count} | {within:.0%} | {low:.0%}-{high:.0%} | {width:.2f} | "
        f"{score:.2f} | {score_without_classes:.2f} |"
    )


def page_text(
    accuracy: Accuracy,
    entries: Sequence[IndexEntry],
    pictures: Mapping[str, Sequence[str]],
    novelty_rows: Sequence[str] = (),
) -> str:
    """Return the page of the docs on the accuracy, as Markdown.

    `pictures` are file names by machine, `novelty_rows` the rows of a table of errors by how
    similar the other measured systems are (`novelty.py`).
    """
    healthy = [point for point in accuracy.points if point.healthy]
    left_out = [point for point in accuracy.left_out if point.healthy]
    parts = {
        "healthy runs, left out": left_out,
        "healthy runs, in sample": healthy,
        "runs with a problem": [point for point in accuracy.points if not point.healthy],
    }
    noise = noise_by_band(repeated_times(entries))
    of_healthy = {
        name: points
        for name, points in {"left out": left_out, "in sample": healthy}.items()
        if points
    }
    return rendered(
        "validation.md",
        noise=noise,
        noise_rows=noise_table(of_healthy, noise),
        novelty_rows=novelty_rows,
        version=MODEL_VERSION,
        found=accuracy,
        healthy=healthy,
        left=left_out,
        parts={name: points for name, points in parts.items() if points},
        pictures=pictures,
        machines=len({point.machine for point in healthy}),
        bands=(*result_rows.BANDS, ALL),
        ill=[entry for entry in entries if not entry.healthy],
        by_band=by_band,
        by=lambda points, key: dict(
            sorted(grouped(points, lambda point: str(getattr(point, key))).items())
        ),
        sources={entry.id: entry.text("source") for entry in entries},
        by_run=lambda points: grouped(
            points, lambda point: point.run + ("" if point.healthy else " (problem)")
        ),
        coverage=_coverage(left_out, entries),
        counted=lambda number, noun: f"{number} {noun}{'' if number == 1 else 's'}",
    )


def results_path(index: Path, name: str = result_rows.STORED) -> Path:
    """Return the path of a file beside an index: `name` is that of the stored classes or
    intervals.
    """
    return index.parent / name
