"""All runs of an index, simulated on several processes, with the error of each point.

The same index gives the same points, however many processes share the work.
"""

import json
import multiprocessing
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from math import log2, sqrt
from pathlib import Path
from typing import Any

from netsim.errors import InputError, NetsimError, suggest
from netsim.interrupts import deaf
from netsim.measured.bands import as_values, by_band, grouped
from netsim.measured.index import Entry
from netsim.measured.points import Answer, Failed, Part, Point, answer

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
