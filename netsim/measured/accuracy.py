"""All runs of an index, simulated on several processes, with their errors, and the page on them.

The same index gives the same points, however many processes share the work."""

import csv
import fcntl
import json
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
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
from netsim.measured.compare import (
    ALL,
    Answer,
    Failed,
    Floats,
    Part,
    Point,
    answer,
    as_values,
    by_band,
    error_of,
    resolved_at,
    weighted_quantile,
    weights_of,
)
from netsim.measured.estimate import Without, figures_without, looked_at, shown_by
from netsim.measured.index import Entry, dtype_of, joined_by, mapped
from netsim.measured.noise_floor import noise_by_band, noise_table, repeated_times
from netsim.measured.training import Answer as StepAnswer
from netsim.measured.training import ComparedStep, Steps, published, rendered, run_steps
from netsim.results import row as result_rows
from netsim.results.folder import append, few_of
from netsim.results.sealed import damaged, sealed, unsealed

CLASS = ("machine", "transport", "collective", "band")
LARGE = 32  # ranks from which the sizes of a run are shared out


@dataclass(frozen=True)
class Accuracy:
    """The points of an index in its order, with what failed and what was assumed."""

    points: tuple[Point, ...]
    failed: tuple[Failed, ...] = ()
    notes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    missing: int = 0  # parts that were not simulated: somebody interrupted
    lost: int = 0  # parts that ended their processes
    left_out: tuple[Point, ...] = ()  # the same, each without what its own system says of constants
    without: tuple[Without, ...] = ()

    def json(self) -> str:
        """The points and the error by band, healthy runs apart from others."""
        values = {"points": [asdict(point) for point in self.points], "bands": bands(self.points)}
        if self.left_out:
            values["left_out"] = [asdict(point) for point in self.left_out]
            values["left_out_bands"] = bands(self.left_out)
            values["without"] = [asdict(one) for one in self.without]
        return json.dumps(values, indent=1) + "\n"


def bands(points: Sequence[Point]) -> dict[str, Any]:
    """Errors by band, of healthy runs and of others."""
    sides = {"healthy": True, "unhealthy": False}
    return {
        name: as_values(by_band([point for point in points if point.healthy is side]))
        for name, side in sides.items()
    }


def chosen(entries: Sequence[Entry], only: Sequence[str]) -> list[Entry]:
    """The entries whose id is, or begins with, one of some texts; all where there are none."""
    for text in only:
        if not any(entry.id.startswith(text) for entry in entries):
            hint = suggest(text, [entry.id for entry in entries])
            raise InputError(f"no run of the index is called {text!r}{hint}")
    return [one for one in entries if not only or any(one.id.startswith(text) for text in only)]


def run_index(
    entries: Sequence[Entry],
    jobs: int | None,
    done: Callable[[int, int], None] | None = None,
    *,
    memory: int = 0,
    tell: Tell = silent,
    journal: "Journal | None" = None,
    figures: Mapping[str, Mapping[str, float]] = MappingProxyType({}),
) -> Accuracy:
    """Simulate all runs, or until Ctrl-C; `done` hears how many parts of how many are finished,
    `tell` of workers that died; what `journal` has is not simulated again. `figures` of a
    calibration take the place of the usual ones in some runs."""
    parts: list[Part] = []
    failed: list[Failed] = []
    for entry in entries:
        try:
            parts += _parts(entry, figures.get(entry.id, {}))
        except NetsimError as error:
            failed.append(Failed(entry.id, str(error)))
    known = journal or Journal()
    answers = {
        n: known.found[key] for n, part in enumerate(parts) if (key := key_of(part)) in known.found
    }
    alike = _alike(parts)
    for first, others in alike.items():
        if first in answers:
            answers |= {n: _told_of(answers[first], parts[n]) for n in others}
    firsts = {n for n in alike if n not in answers}
    order = sorted(firsts, key=lambda n: (-_work(parts[n]), n))
    all_work, work_done = sum(_work(parts[n]) for n in firsts), 0.0
    workers = Processes(jobs or os.cpu_count() or 1, answered, memory=memory, tell=tell)
    lost = 0
    with suppress(KeyboardInterrupt), workers:  # what is finished is worth having
        STAGE.others, STAGE.done, STAGE.total = workers.memory, len(answers), len(parts)
        worked(0.0, all_work)
        for number, found in _answers(parts, order, workers):
            work_done += _work(parts[number])
            worked(work_done, all_work)
            at(", ".join(workers.names()), len(answers), len(parts))
            for other in alike[number]:
                if isinstance(found, LostError):
                    lost += 1
                    name = parts[other].entry.id
                    answers[other] = Answer(name, failed=(Failed(name, str(found)),))
                else:
                    answers[other] = _told_of(found, parts[other])
                    known.keep(key_of(parts[other]), answer=asdict(answers[other]))
            if done:
                done(len(answers), len(parts))
    finished = _joined([answers[number] for number in sorted(answers)], failed)
    return replace(finished, missing=len(parts) - len(answers), lost=lost)


def _answers(
    parts: Sequence[Part], order: list[int], workers: Processes
) -> Iterator[tuple[int, Answer | LostError]]:
    if workers.count == 1:
        for number in order:
            try:
                yield number, answer(parts[number])
            except MemoryError:
                yield number, LostError("out of memory")
        return
    jobs = ((parts[n], _titled(parts[n]), _memory_needed(parts[n]), 1) for n in order)
    numbers = {id(part): number for number, part in enumerate(parts)}
    with closing(workers.results(jobs)) as results:
        for part, found in results:
            yield numbers[id(part)], found


def _alike(parts: Sequence[Part]) -> dict[int, list[int]]:
    """The parts that ask the same, by the first: some runs differ only in what was measured."""
    firsts: dict[bytes, int] = {}
    found: dict[int, list[int]] = {}
    for number, part in enumerate(parts):
        try:
            data = {key: it for key, it in mapped(part.entry).data.items() if key != "name"}
        except NetsimError:
            data = {"run": part.entry.id}  # is told when it is simulated
        name = part.entry.collective
        rows = [(r.size_bytes, dtype_of(r.dtype), r.root, r.is_in_place(name)) for r in part.rows]
        key = digest(repr((data, rows, sorted(part.figures.items()))))
        found.setdefault(firsts.setdefault(key, number), []).append(number)
    return found


def _told_of(found: Answer, part: Part) -> Answer:
    entry, points = part.entry, {point.size_bytes: point for point in found.points}
    if entry.id == found.run:
        return found
    own = [
        replace(
            points[row.size_bytes],
            run=entry.id,
            measured_us=seconds * 1e6,
            machine=entry.machine,
            healthy=entry.healthy,
            system=entry.system,
        )
        for row in part.rows
        if row.size_bytes in points and (seconds := row.seconds(entry.collective))
    ]
    failed = tuple(replace(one, run=entry.id) for one in found.failed)
    return Answer(entry.id, tuple(own), failed, found.notes)


def answered(part: Part) -> Iterator[Answer]:
    """The answer of a part, as a worker gives it."""
    yield answer(part)


def _memory_needed(part: Part) -> int:
    """About how many bytes a process needs for a part at most; 0 where it cannot be simulated."""
    with suppress(NetsimError):
        largest = max(part.rows, key=lambda row: row.size_bytes)
        sizes = [largest.size_bytes]
        plan, dtype = mapped(part.entry), dtype_of(largest.dtype)
        _, resolved = resolved_at(plan, sizes, dtype, largest.root)
        return resolved.memory_needed(largest.size_bytes)
    return 0


def _titled(part: Part) -> str:
    sizes = [row.size_bytes for row in part.rows]
    return f"{part.entry.id} at {min(sizes)} to {max(sizes)} B" if sizes else part.entry.id


def key_of(part: Part, constant: Constant | None = None) -> str:
    """What an answer depends on, in a few characters: the part, this version, the constants and
    machine files, and the constant that a run is looked at for."""
    entry = part.entry
    own = (*part.figures.items(), *(() if constant is None else (constant.id,)))
    values = dict(entry.values)
    if constant is not None:
        values.pop("system", None)  # what a run shows is the same whatever is left out with it
    asked = (entry.id, str(entry.folder), str(values), part.rows, own)
    return digest((asked, __version__, MODEL_VERSION, _files())).hex()


@lru_cache(maxsize=1)
def _files() -> bytes:
    folders = (preset_folder("topologies"), Path("topologies"))
    machines = (file for one in folders for file in sorted(one.glob("*.y*ml")))
    return digest(tuple(file.read_bytes() for file in (constant_table.FILE, *machines)))


class Journal:
    """The answers of earlier runs (`found`), and a file that keeps those of this one."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self.found: dict[str, Answer] = {}
        self.shown: dict[str, Floats] = {}  # what runs say of constants
        self.steps: dict[str, StepFigures] = {}  # what training steps came to
        self.damaged: list[str] = []
        self.file: int | None = None

    def keep(self, key: str, **values: Any) -> None:
        """Keep an `answer`, what is `shown`, or a training `step`, whatever happens next."""
        if self.file is None:
            return
        try:
            append(self.file, sealed({"part": key, **values}).encode())
        except OSError as error:
            hint = "make room, then --resume continues with what is finished"
            message = f"{self.path}: cannot be written: {error.strerror}"
            raise InputError(message, hint=hint) from None

    def finish(self) -> None:
        """Nothing is left to go on with."""
        if self.path is not None and self.file is not None:
            self.path.unlink(missing_ok=True)

    def read(self) -> None:
        """Take up what the file has, but for damaged lines and a last one that was cut off."""
        assert self.path is not None
        for number, line in enumerate(self.path.read_bytes().splitlines(keepends=True), 1):
            try:
                values = unsealed(line)
                key = str(values["part"])
                if "step" in values:
                    self.steps[key] = _step_figures(values["step"])
                elif "shown" in values:
                    self.shown[key] = np.array(values["shown"], dtype=float)
                else:
                    told = values["answer"]
                    points = tuple(map(_point_from, told["points"]))
                    failed = tuple(Failed(**one) for one in told["failed"])
                    notes = tuple(map(str, told["notes"]))
                    self.found[key] = Answer(str(told["run"]), points, failed, notes)
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                if line.endswith(b"\n"):
                    why = error if type(error) is ValueError else ValueError("not of a journal")
                    self.damaged.append(damaged(self.path, number, why))


# Seconds and MFU of a training step, as it is and with other values of constants; or why it has
# none.
StepFigures = str | tuple[tuple[float, float], tuple[float, float]]


def _step_figures(kept: Any) -> StepFigures:
    """The figures of a step from a line of the journal."""
    if isinstance(kept, str):
        return kept
    first, again = ((float(seconds), float(mfu)) for seconds, mfu in kept)
    return first, again


@contextmanager
def journal_of(index: Path, *, resume: bool, tell: Tell) -> Iterator[Journal]:
    """The journal of an index, in the folder of reports; it goes when nothing is missing."""
    name = index.absolute().parent.name if index.stem == "index" else index.stem
    journal = Journal(Path("reports") / f"accuracy-{name}.jsonl")
    path = journal.path
    assert path is not None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("ab")
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if resume:
            message = f"{path}: cannot be used: {error.strerror}"
            raise InputError(message, hint="leave --resume away") from None
        yield Journal()
        return
    with file:
        if resume:
            journal.read()
            for text in few_of([f"{one}; it is computed again" for one in journal.damaged]):
                tell(text)
            if journal.steps:
                tell(f"{len(journal.steps)} steps are known from {path}")
            else:
                tell(f"{len(journal.found)} parts of runs are known from {path}")
            if not path.read_bytes().endswith(b"\n"):
                file.write(b"\n")  # ends a line that was cut off
                file.flush()
        else:
            file.truncate(0)
        journal.file = file.fileno()
        yield journal


def _parts(entry: Entry, figures: Mapping[str, float]) -> list[Part]:
    """A run as parts; that of many ranks in four, so that processes can share it."""
    rows = entry.rows()
    if entry.ranks < LARGE:
        return [Part(entry, rows, figures)]
    return [Part(entry, rows[first::4], figures) for first in range(4) if rows[first::4]]


def leave_out(
    found: Accuracy,
    entries: Sequence[Entry],
    corpus: Sequence[Entry],
    jobs: int | None,
    done: Callable[[int, int], None] | None,
    journal: "Journal | None",
    off: Sequence[Without],
) -> Accuracy:
    """The same with every run simulated once more without its own system: every constant that was
    fitted to that is estimated from the other systems of the corpus, but for those that are `off`.
    """
    asked, gone = {entry.system for entry in entries}, {one.constant for one in off}
    told = [one for one in _withouts(asked, corpus, jobs, journal) if one.constant not in gone]
    changed = {
        entry.id: figures_without(entry, [*mine, *off])
        for entry in entries
        if (mine := [one for one in told if one.system == entry.system])
    }
    runs = [entry for entry in entries if changed.get(entry.id)]
    again = run_index(runs, jobs, done, journal=journal, figures=changed) if runs else Accuracy(())
    own = {point.run for point in again.points}
    others = [point for point in found.points if point.run not in own]
    place = {entry.id: number for number, entry in enumerate(entries)}
    points = sorted((*again.points, *others), key=lambda point: place[point.run])
    order = sorted(told, key=lambda one: (one.system, one.constant))
    missing, lost = found.missing + again.missing, found.lost + again.lost
    both = replace(found, missing=missing, lost=lost, without=tuple(order))
    return replace(both, left_out=tuple(points))


def steps_left_out(
    entries: Sequence[Entry],
    corpus: Sequence[Entry],
    jobs: int | None,
    done: Callable[[int, int], None],
    journal: "Journal | None" = None,
) -> Steps:
    """Steps simulated, and once more without what their own group says of constants."""
    members = list[Entry]()
    for entry in corpus:
        with suppress(NetsimError):
            group = published(entry).group
            members.append(replace(entry, values={**entry.values, "system": group}))
    groups = {one.id: one.system for one in members}
    asked = {groups[entry.id] for entry in entries if entry.id in groups}
    told = sorted(_withouts(asked, members, jobs), key=attrgetter("system", "constant"))
    values: dict[str, dict[str, float]] = {}
    for id, group in groups.items():
        mine = (it for it in told if it.system == group and it.ratio != 1)
        if own := {it.constant: TABLE[it.constant].value * it.ratio for it in mine}:
            values[id] = own
    words = (
        f"{it.system}: {it.constant} {TABLE[it.constant].value * it.ratio:.3g}"
        + (f", that of {it.of}" if it.of in TABLE else ", as nothing else shows it" * bool(it.of))
        for it in told
    )
    return replace(journaled_steps(entries, jobs, done, journal, values), without=tuple(words))


def journaled_steps(
    entries: Sequence[Entry],
    jobs: int | None,
    done: Callable[[int, int], None] | None,
    journal: "Journal | None" = None,
    values: Mapping[str, Mapping[str, float]] = MappingProxyType({}),
) -> Steps:
    """Steps simulated, but for those that the journal has; each that is finished goes into it.
    Of one that was simulated with other `values` of constants, both answers are kept."""
    if journal is None:
        return run_steps(entries, jobs, done, values)
    keys = {entry.id: _key_of_step(entry, values.get(entry.id, {})) for entry in entries}
    known: dict[str, StepAnswer] = {}
    for entry in entries:
        figures = journal.steps.get(keys[entry.id])
        if isinstance(figures, str):
            known[entry.id] = figures
        elif figures is not None:
            of_entry = published(entry)
            first, again = (ComparedStep(of_entry, *pair) for pair in figures)
            known[entry.id] = first, again

    def keep(entry: Entry, answer: StepAnswer) -> None:
        kept = answer if isinstance(answer, str) else [(it.simulated, it.mfu) for it in answer]
        journal.keep(keys[entry.id], step=kept)

    return run_steps(entries, jobs, done, values, known=known, keep=keep)


def _key_of_step(entry: Entry, values: Mapping[str, float]) -> str:
    """What the answer of a training step depends on, in a few characters."""
    asked = (entry.id, str(dict(entry.values)), sorted(values.items()))
    return digest((asked, __version__, MODEL_VERSION, _files())).hex()


def figures_off(entries: Sequence[Entry], off: Sequence[Without]) -> dict[str, Mapping[str, float]]:
    """The figures of the runs that are simulated with some constant that is to be off."""
    found: dict[str, Mapping[str, float]] = {}
    for entry in entries if off else ():
        with suppress(NetsimError):  # is told when it is simulated
            found[entry.id] = figures_without(entry, off)
    if off and not any(found.values()):
        names = ", ".join(one.constant for one in off)
        raise InputError(f"{names}: no run of the index is simulated with it")
    return {id: figures for id, figures in found.items() if figures}


def _withouts(
    asked: Collection[str],
    corpus: Sequence[Entry],
    jobs: int | None,
    journal: "Journal | None" = None,
) -> list[Without]:
    """The constants that were fitted to the systems asked, without what each of these says."""
    system = {one.id: one.system for one in corpus}
    constants = [
        one
        for one in TABLE.values()
        if one.fitted and any(system.get(run) in asked for run in one.fitted.runs)
    ]
    shown = _what_runs_show(constants, corpus, jobs, journal)
    return [one for it in sorted(asked) for one in estimate.without(it, constants, corpus, shown)]


def _what_runs_show(
    constants: Sequence[Constant],
    corpus: Sequence[Entry],
    jobs: int | None,
    journal: "Journal | None",
) -> Mapping[str, dict[str, Floats]]:
    """What each run that is looked at says of each constant, whichever system is left out later."""
    asked = {(one.id, run.id): (one, run) for one in constants for run in looked_at(one, corpus)}
    keys, told = dict[tuple[str, str], str](), dict[tuple[str, str], Floats]()
    if journal is not None:
        keys = {pair: key_of(Part(run, run.rows()), one) for pair, (one, run) in asked.items()}
        told = {pair: journal.shown[key] for pair, key in keys.items() if key in journal.shown}
    order = sorted(set(asked) - set(told), key=lambda pair: -asked[pair][1].ranks)
    workers = Processes(jobs or os.cpu_count() or 1, _shown)
    tasks = ((asked[pair], " of ".join(pair), 0, 1) for pair in order)
    with workers, closing(workers.results(tasks)) as results:
        for (one, run), some in results:
            if isinstance(some, LostError):  # without it another value would be taken
                raise some
            told[one.id, run.id] = some
            if journal is not None:
                journal.shown[keys[one.id, run.id]] = some
                journal.keep(keys[one.id, run.id], shown=some.tolist())
    return {
        one.id: {run: some for (id, run), some in told.items() if id == one.id} for one in constants
    }


def _shown(task: tuple[Constant, Entry]) -> Iterator[Floats]:
    """What a run says of a constant, as a worker finds it."""
    yield shown_by(*task)


def _work(part: Part) -> float:
    sizes = sum(log2(row.size_bytes + 2) for row in part.rows)
    return sizes * sqrt(part.entry.ranks) ** 3


def _joined(answers: Sequence[Answer], failed: list[Failed]) -> Accuracy:
    points: list[Point] = []
    notes: dict[str, tuple[str, ...]] = {}
    whole: dict[str, Failed] = {}
    for one in answers:
        points += one.points
        for problem in one.failed:
            if problem.size_bytes is None:
                whole[problem.run] = problem
            else:
                failed.append(problem)
        if one.notes:
            notes[one.run] = tuple(dict.fromkeys((*notes.get(one.run, ()), *one.notes)))
    place = {run: n for n, run in enumerate(dict.fromkeys(point.run for point in points))}
    points.sort(key=lambda point: (place[point.run], point.size_bytes))
    return Accuracy(tuple(points), (*failed, *whole.values()), notes)


FORECAST = ("run", "system", "machine", "collective", "size_bytes", "dtype", "root", "time_us",
            "time_low_us", "time_high_us", "algorithm", "protocol", "model_version")  # fmt: skip


def questions(entries: Sequence[Entry]) -> list[Entry]:
    """The entries with what they ask and no figure: sizes, data types and roots of their rows."""
    return [replace(entry, asked=True) for entry in entries]


def forecast_text(found: Accuracy, entries: Sequence[Entry]) -> str:
    """What was simulated of questions, with its intervals, as CSV; each run without what its own
    system says of constants, if that was simulated."""
    where = {entry.id: joined_by(entry) for entry in entries}
    rows = {
        (entry.id, row.size_bytes): (row.dtype, row.root)
        for entry in entries
        for row in entry.rows()
    }
    lines: list[Sequence[object]] = [FORECAST]
    for p in found.left_out or found.points:
        what = p.run, p.system, p.machine, p.collective, p.size_bytes, *rows[p.run, p.size_bytes]
        classes = result_rows.wider(where[p.run], p.collective, result_rows.band_of(p.size_bytes))
        held = result_rows.interval_of(classes)
        ends = [f"{p.simulated_us * at:.6g}" for at in (held.low, held.high)] if held else ["", ""]
        time = f"{p.simulated_us:.6g}"
        lines.append((*what, time, *ends, p.algorithm, p.protocol, MODEL_VERSION))
    return csv_of(lines)


Key = tuple[str, int]  # a run and a size


def _forecasts(path: Path) -> tuple[dict[Key, Any], dict[Key, float], dict[Key, result_rows.Span]]:
    """The rows of a forecast, their times, and between what these lie where it says so."""
    table, told = csv.DictReader(text_of(path, LARGEST_TABLE).splitlines()), dict[Key, Any]()
    times, spans = dict[Key, float](), dict[Key, result_rows.Span]()
    missing = [name for name in FORECAST if name not in (table.fieldnames or ())]
    if missing:
        hint = f"netsim accuracy INDEX --predict {path} writes one"
        raise InputError(f"{path}:1: {missing[0]}: no such column in this forecast", hint=hint)

    def number(one: Mapping[str, str], name: str) -> float:
        text = one[name] or ""
        with suppress(ValueError):
            if 0 < (found := float(text)) < inf:
                return found
        where = f"{path}:{table.line_num}: {name}"
        raise InputError(f"{where}: expected a finite number above 0, got {text or 'nothing'}")

    for one in table:
        key = one["run"], int(number(one, "size_bytes"))
        told[key], times[key] = one, number(one, "time_us")
        if one["time_low_us"]:
            spans[key] = number(one, "time_low_us"), number(one, "time_high_us")
    return told, times, spans


def from_forecast(path: Path, entries: Sequence[Entry]) -> tuple[Accuracy, str]:
    """The points of an index with simulated times of an earlier forecast (others are told), and how
    many of those measured lie within its intervals."""
    told, times, spans = _forecasts(path)
    points, failed = list[Point](), list[Failed]()
    for entry in entries:
        for row in entry.rows():
            key, seconds = (entry.id, row.size_bytes), row.seconds(entry.collective)
            if key not in times:
                failed.append(Failed(entry.id, "the forecast does not have it", row.size_bytes))
            elif seconds:
                one = told[key]
                points.append(
                    Point(
                        entry.id,
                        entry.machine,
                        one["collective"],
                        row.size_bytes,
                        seconds * 1e6,
                        times[key],
                        one["algorithm"],
                        one["protocol"],
                        entry.healthy,
                        entry.system,
                    )
                )
    sure = [p for p in points if p.healthy and (p.run, p.size_bytes) in spans]
    ends = [(p.measured_us, *spans[p.run, p.size_bytes]) for p in sure]
    held = sum(low <= measured <= high for measured, low, high in ends)
    within = f"{held} of {len(ends)} healthy points lie within their intervals of 80 %"
    return Accuracy(tuple(points), tuple(failed)), within if ends else "intervals: none forecast"


def _point_from(values: Mapping[str, Any]) -> Point:
    point = Point(**values)
    for name, value in asdict(point).items():
        kind = type(getattr(POINT, name))
        number = kind in (int, float) and type(value) in (int, float) and 0 < value < inf
        if not (number or (kind in (str, bool) and type(value) is kind)):
            raise ValueError(f"{name}: {value!r}")
    return point


POINT = Point("", "", "", 1, 1.0, 1.0, "", "", True)


def read_accuracy(path: Path) -> tuple[Point, ...]:
    """The points of an earlier result."""
    why = "expected an object with points, as written"
    try:
        return tuple(
            _point_from(point) for point in json.loads(text_of(path, LARGEST_TABLE))["points"]
        )
    except (ValueError, RecursionError) as error:
        why = str(error)
    except (KeyError, TypeError):
        pass
    raise InputError(f"{path}: not a result of netsim accuracy --json: {why}")


def compared(now: Sequence[Point], before: Sequence[Point]) -> list[tuple[str, float, float]]:
    """Runs of both results with their median errors (before, now), what changed most first."""
    errors = []
    for points in (before, now):
        found = grouped(points, lambda point: point.run)
        errors.append({run: by_band(list(some))["all"].median for run, some in found.items()})
    both = [(run, errors[0][run], errors[1][run]) for run in errors[1] if run in errors[0]]
    return sorted(both, key=lambda one: -abs(one[2] - one[1]))


def classes_of(points: Sequence[Point], entries: Sequence[Entry]) -> str:
    """The error of every class of healthy runs, as the file that `validated` reads."""
    where = {entry.id: joined_by(entry) for entry in entries}
    found = grouped(
        (point for point in points if point.healthy),
        lambda p: (astuple(where[p.run])[:3], p.collective, result_rows.band_of(p.size_bytes)),
    )
    values = list[dict[str, Any]]()
    for (machines, collective, band), some in sorted(found.items()):
        error = error_of(some)
        one = dict(zip(("machine", "transport", "gbps"), machines, strict=True))
        one |= {"collective": collective, "band": band, "median": round(error.median, 4)}
        values.append(one | {"runs": error.runs, "systems": error.systems})
    return json.dumps(values, indent=1) + "\n"


# Log ratios, each with its system.
Residuals = dict[tuple[str, result_rows.Class], list[tuple[float, str]]]


def _residuals(points: Sequence[Point], where: Mapping[str, result_rows.Joined]) -> Residuals:
    """The log ratios of points by what an interval is of and by class."""
    found: Residuals = {}
    for p in points:
        for one in result_rows.wider(where[p.run], p.collective, result_rows.band_of(p.size_bytes)):
            found.setdefault((result_rows.TIME, one), []).append((p.log_ratio, p.system))
    return found


def _residuals_of_ratios(points: Sequence[Point]) -> Residuals:
    """The same of the ratios of any two times of a system, which are of any two of its runs."""
    found: Residuals = {}
    for (system, size), some in grouped(points, lambda p: (p.system, p.size_bytes)).items():
        for a, b in combinations(some, 2):
            ratio = a.log_ratio - b.log_ratio
            for alike in {"", result_rows.SAME * (a.collective == b.collective)}:
                both = found.setdefault(
                    (result_rows.RATIO, ("", "", alike, result_rows.band_of(size))), []
                )
                both += [(ratio, system), (-ratio, system)]
    return found


def intervals_from(residuals: Residuals, without: str = "") -> result_rows.Intervals:
    """The intervals of the classes that have enough systems, perhaps without what one system says.
    A class of k systems is told as one of k + 1, of which the next one is any. Of a collective's
    own class of fewer it is the middle half."""
    found = {}
    for (of, one), every in residuals.items():
        some = [it for it in every if it[1] != without]
        count = len({system for _, system in some})
        if count >= result_rows.FEWEST:
            what, end = of, ((1 - result_rows.WITHIN) / 2 * (count + 1) - 0.5) / count
        elif count and of == result_rows.TIME and one[0] and one[2]:
            what, end = result_rows.HALF, 0.25
        else:
            continue
        values, weights = np.array([it for it, _ in some]), weights_of([it for _, it in some])
        low, high = (weighted_quantile(values, weights, part) for part in (end, 1 - end))
        found[what, one] = result_rows.Interval(exp(-high), exp(-low), count)
    return found


def intervals_text(points: Sequence[Point], entries: Sequence[Entry]) -> str:
    """The intervals of every class, as the file that times are told with."""
    where = {entry.id: joined_by(entry) for entry in entries}
    healthy = [p for p in points if p.healthy]
    found = intervals_from(_residuals(healthy, where) | _residuals_of_ratios(healthy))
    lines: list[Sequence[object]] = [("of", *CLASS, "systems", "low", "high")]
    for (of, one), it in sorted(found.items()):
        lines.append((of, *one, it.systems, f"{it.low:.4f}", f"{it.high:.4f}"))
    return csv_of(lines)


Covered = tuple[Point, float, float, float]  # whether it is within, log of the width, score


def _covered(
    points: Sequence[Point], where: Mapping[str, result_rows.Joined], residuals: Residuals
) -> Iterator[Covered]:
    """How the interval of each point did that never saw its system."""
    for system, some in grouped(points, lambda p: p.system).items():
        known = intervals_from(residuals, system)
        for p in some:
            classes = result_rows.wider(
                where[p.run], p.collective, result_rows.band_of(p.size_bytes)
            )
            if (found := result_rows.interval_of(classes, known)) is not None:
                beyond = max(log(found.low) + p.log_ratio, -p.log_ratio - log(found.high), 0.0)
                width = log(found.high / found.low)
                yield p, not beyond, width, width + 2 / (1 - result_rows.WITHIN) * beyond


def _coverage(points: Sequence[Point], entries: Sequence[Entry]) -> Iterator[str]:
    """How far intervals can be trusted, by band and by system."""
    where = {entry.id: joined_by(entry) for entry in entries}
    every = [(p.log_ratio, p.system) for p in points]
    one = {(result_rows.TIME, ("", "", "", band)): every for band in result_rows.BANDS}
    found, single = (list(_covered(points, where, it)) for it in (_residuals(points, where), one))
    for name in (*result_rows.BANDS, ALL, *sorted({p.system for p, *_ in found})):
        some, same = (
            [
                it
                for it in each
                if name in (ALL, it[0].system, result_rows.band_of(it[0].size_bytes))
            ]
            for each in (found, single)
        )
        if some:
            weights = weights_of([p.system for p, *_ in some])
            within, _, score = np.average([it[1:] for it in some], axis=0, weights=weights)
            width = exp(float(np.median([it[2] for it in some])))
            count = round(weights.sum())
            low, high = (
                ceil(bdtrik(part, count, result_rows.WITHIN)) / count for part in (0.05, 0.95)
            )
            other = np.average(
                [it[3] for it in same], weights=weights_of([it[0].system for it in same])
            )
            yield (
                f"| {name} | {count} | {within:.0%} | {low:.0%}-{high:.0%} | {width:.2f} | "
                f"{score:.2f} | {other:.2f} |"
            )


def page_text(
    found: Accuracy,
    entries: Sequence[Entry],
    pictures: Mapping[str, Sequence[str]],
    novelty_rows: Sequence[str] = (),
) -> str:
    """The text of the page; `pictures` are the files by machine, relative to the page, and
    `novelty_rows` the rows of its table by what else was measured."""
    healthy = [point for point in found.points if point.healthy]
    left = [point for point in found.left_out if point.healthy]
    parts = {
        "healthy runs, left out": left,
        "healthy runs, in sample": healthy,
        "runs with a problem": [point for point in found.points if not point.healthy],
    }
    noise = noise_by_band(repeated_times(entries))
    of_healthy = {
        name: some for name, some in {"left out": left, "in sample": healthy}.items() if some
    }
    return rendered(
        "validation.md",
        noise=noise,
        noise_rows=noise_table(of_healthy, noise),
        novelty_rows=novelty_rows,
        version=MODEL_VERSION,
        found=found,
        healthy=healthy,
        left=left,
        parts={name: some for name, some in parts.items() if some},
        pictures=pictures,
        machines=len({point.machine for point in healthy}),
        bands=(*result_rows.BANDS, ALL),
        ill=[entry for entry in entries if not entry.healthy],
        by_band=by_band,
        by=lambda some, key: dict(sorted(grouped(some, lambda p: str(getattr(p, key))).items())),
        sources={entry.id: entry.text("source") for entry in entries},
        by_run=lambda some: grouped(some, lambda p: p.run + " (problem)" * (not p.healthy)),
        coverage=_coverage(left, entries),
        counted=lambda number, noun: f"{number} {noun}{'s' * (number != 1)}",
    )


def results_path(index: Path, name: str = result_rows.STORED) -> Path:
    """Where the classes of an index, or the `intervals`, are stored: beside it."""
    return index.parent / name
