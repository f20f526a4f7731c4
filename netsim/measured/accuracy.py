"""All runs of an index, simulated on several processes, with their errors, and the page on them.

The same index gives the same points, however many processes share the work.
"""

import json
import multiprocessing
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import asdict, astuple, field, replace
from math import log2, sqrt
from pathlib import Path
from typing import Any

from netsim.base.errors import InputError, NetsimError, suggest
from netsim.base.files import deaf
from netsim.base.startup import MODEL_VERSION
from netsim.base.values import dataclass
from netsim.measured.compare import (
    ALL,
    Answer,
    Error,
    Failed,
    Part,
    Point,
    answer,
    as_values,
    by_band,
    error_of,
    grouped,
)
from netsim.measured.index import Entry, nics_gbps
from netsim.results.row import BANDS, Joined, band_of, joined

LARGE = 32  # ranks from which the sizes of a run are shared out


@dataclass(frozen=True)
class Accuracy:
    """The points of an index in its order, with what failed and what was assumed."""

    points: tuple[Point, ...]
    failed: tuple[Failed, ...] = ()
    notes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    missing: int = 0  # parts that were not simulated: somebody interrupted

    def json(self) -> str:
        """The points and the error by band, healthy runs apart from others."""
        values = {"points": [asdict(point) for point in self.points], "bands": bands(self.points)}
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
    jobs: int | None = None,
    done: Callable[[int, int], None] | None = None,
) -> Accuracy:
    """Simulate all runs, or until Ctrl-C; `done` hears how many parts of how many are finished."""
    parts: list[Part] = []
    failed: list[Failed] = []
    for entry in entries:
        try:
            parts += _parts(entry)
        except NetsimError as error:
            failed.append(Failed(entry.id, str(error)))
    order = sorted(range(len(parts)), key=lambda number: -_work(parts[number]))
    answers: dict[int, Answer] = {}
    with suppress(KeyboardInterrupt):  # what is finished is worth having
        for number, found in _answers(parts, order, jobs or os.cpu_count() or 1):
            answers[number] = found
            if done:
                done(len(answers), len(parts))
    finished = _joined([answers[number] for number in sorted(answers)], failed)
    return replace(finished, missing=len(parts) - len(answers))


def _answers(parts: Sequence[Part], order: list[int], jobs: int) -> Iterator[tuple[int, Answer]]:
    if jobs == 1 or len(parts) == 1:
        for number in order:
            yield number, answer(parts[number])
        return
    spawn = multiprocessing.get_context("spawn")  # forks of a threaded process may hang
    with ProcessPoolExecutor(min(jobs, len(parts)), spawn) as pool:
        with deaf():  # this process decides what becomes of an interrupt
            waiting = {pool.submit(answer, parts[number]): number for number in order}
        try:
            for future in as_completed(waiting):
                yield waiting[future], future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in multiprocessing.active_children():
                process.terminate()  # nobody waits for what they are at
            raise


def _parts(entry: Entry) -> list[Part]:
    """A run as parts; that of many ranks in four, so that processes can share it."""
    rows = entry.rows()
    if _ranks(entry) < LARGE:
        return [Part(entry, rows)]
    return [Part(entry, rows[first::4]) for first in range(4) if rows[first::4]]


def _ranks(entry: Entry) -> int:
    counts = (entry.text("topology", key) for key in ("nodes", "gpus_per_node"))
    nodes, gpus = (int(text) if text.isdecimal() else 1 for text in counts)
    return nodes * gpus


def _work(part: Part) -> float:
    """About how long a part takes, relative to others: the longest begin first."""
    sizes = sum(log2(row.size_bytes + 2) for row in part.rows)
    return sizes * sqrt(_ranks(part.entry)) ** 3


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


def read_accuracy(path: Path) -> tuple[Point, ...]:
    """The points of an earlier result."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        return tuple(Point(**point) for point in values["points"])
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path}: not a result of netsim accuracy --json: {error}") from None


def compared(now: Sequence[Point], before: Sequence[Point]) -> list[tuple[str, float, float]]:
    """Runs of both results with their median errors (before, now), what changed most first."""
    errors = []
    for points in (before, now):
        found = grouped(points, lambda point: point.run)
        errors.append({run: by_band(list(some))["all"].median for run, some in found.items()})
    both = [(run, errors[0][run], errors[1][run]) for run in errors[1] if run in errors[0]]
    return sorted(both, key=lambda one: -abs(one[2] - one[1]))


INTRO = """# Validation

Every run of the corpus (`scenarios/measured/`) beside its simulation with default parameters: no
figure was fitted to the run's own system unless a comment in `topologies/` or
`netsim doctor --constants` says that it was. This page is written by

```sh
netsim accuracy scenarios/measured/index.yaml --page docs/validation.md
```

The error of a point is simulated ÷ measured − 1. Tables show, by size band, the median of the
|log ratio| as a percentage, in brackets its 90th percentile, then the signed median (negative: the
simulation is too fast). Versions and launches that a source does not name are assumed as
`netsim accuracy` says; runs that their posters or we judge to have a problem are kept apart.
"""


def classes_of(points: Sequence[Point], entries: Sequence[Entry]) -> str:
    """The error of every class of healthy runs, as the file that `validated` reads."""
    where = {
        entry.id: joined(entry.machine, entry.transport, nics_gbps(entry)) for entry in entries
    }
    found = grouped(
        (point for point in points if point.healthy),
        lambda p: (astuple(where[p.run]), p.collective, band_of(p.size_bytes)),
    )
    values = []
    for (machines, collective, band), some in sorted(found.items()):
        error = error_of(some)
        values.append(
            {
                **asdict(Joined(*machines)), "collective": collective, "band": band,
                "median": round(error.median, 4), "runs": error.runs,
            }
        )  # fmt: skip
    return json.dumps(values, indent=1) + "\n"


def page_text(
    found: Accuracy, entries: Sequence[Entry], pictures: Mapping[str, Sequence[str]]
) -> Iterator[str]:
    """The lines of the page; `pictures` are the files by machine, relative to the page."""
    yield INTRO
    healthy = [point for point in found.points if point.healthy]
    yield from _headline(found, healthy, [entry for entry in entries if not entry.healthy])
    yield "\n## By machine\n"
    yield from _table("machine", _by(healthy, "machine"))
    yield "\n## By collective\n"
    yield from _table("collective", _by(healthy, "collective"))
    sources = {entry.id: entry.text("source") for entry in entries}
    for machine, points in sorted(grouped(found.points, lambda p: p.machine).items()):
        yield f"\n## {machine}\n"
        for picture in pictures.get(machine, ()):
            yield f"![Measured and simulated times on {machine}]({picture})\n"
        marked = {
            name + ("" if some[0].healthy else " (problem)"): some
            for name, some in grouped(points, lambda p: p.run).items()
        }
        yield from _table("run", marked)
        links = sorted({sources[p.run] for p in points if sources[p.run].startswith("http")})
        if links:
            yield "\nSources: " + ", ".join(f"<{link}>" for link in links)
    yield from _assumed(found)
    if found.failed:
        yield "\n## Not simulated\n"
        for one in found.failed:
            size = "" if one.size_bytes is None else f" at {one.size_bytes} B"
            yield f"- {one.run}{size}: {one.reason}"


def _headline(found: Accuracy, healthy: Sequence[Point], ill: Sequence[Entry]) -> Iterator[str]:
    """The figures of all healthy runs, and under which conditions they hold."""
    runs = len({point.run for point in healthy})
    machines = len({point.machine for point in healthy})
    where = f"{_count(runs, 'healthy run')} on {_count(machines, 'kind')} of machine"
    where += "s" * (machines != 1)
    yield f"Model {MODEL_VERSION}, {where}, {_count(len(healthy), 'point')}.\n"
    problems = [point for point in found.points if not point.healthy]
    parts = {"all healthy runs": healthy, "runs with a problem": problems}
    yield from _table("", {name: some for name, some in parts.items() if some})
    yield "\nConditions:\n"
    yield (
        "- The constants of execution, launches and transports were fitted to some of these runs "
        "(`netsim doctor --constants` names them), so this is how well one set of constants for "
        "each generation describes all of them, not a forecast for machines that are not among "
        "them."
    )
    yield "- Every point counts alike, so runs with many sizes count more than those with few."
    yield "- A column `validated` quotes the median of its class here, however few its runs are."
    if ill:
        names = ", ".join(f"{entry.id} ({entry.text('healthy')})" for entry in ill)
        yield f"- Kept apart as having a problem: {names}."
    if found.notes:
        yield f"- Something was assumed for {_count(len(found.notes), 'run')}, as listed below."


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"


def _assumed(found: Accuracy) -> Iterator[str]:
    """What entries of the index left open."""
    if found.notes:
        yield "\n## Assumed\n"
        for run, notes in sorted(found.notes.items()):
            yield f"- {run}: {'; '.join(notes)}"


def _by(points: Sequence[Point], key: str) -> dict[str, list[Point]]:
    return dict(sorted(grouped(points, lambda point: str(getattr(point, key))).items()))


def _table(title: str, parts: Mapping[str, Sequence[Point]]) -> Iterator[str]:
    yield f"| {title} | " + " | ".join((*BANDS, ALL)) + " | points |"
    yield "|---|" + "---|" * (len(BANDS) + 2)
    for name, points in parts.items():
        errors = by_band(points)
        cells = " | ".join(_cell(errors.get(band)) for band in (*BANDS, ALL))
        yield f"| {name} | {cells} | {len(points)} |"


def _cell(error: Error | None) -> str:
    if error is None:
        return ""
    return f"{error.median:.1%} [{error.p90:.0%}] {error.bias:+.0%}"


def results_path(index: Path) -> Path:
    """Where the classes of an index are stored: beside it."""
    return index.parent / "validated.json"
