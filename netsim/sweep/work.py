"""Getting the rows of a sweep: what is known already, and the rest from this process or workers."""

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from typing import Any, Protocol

from netsim.answers import prepare_any
from netsim.errors import NetsimError
from netsim.results import Folder, Row
from netsim.results.row import row_from
from netsim.sweep import cache as kept
from netsim.sweep.orders import Answer, Order, answers, misfit, order_of
from netsim.sweep.tasks import Task, engine_for, failed_row, finished_row
from netsim.timing import Progress

CHUNK = 31  # sizes that one order has at most: enough to make what a cell needs only once
Shown = Callable[[Task], Progress | None]
Found = Generator[tuple[Task, Answer], None, None]


class CellError(NetsimError):
    """What one cell failed with, wherever it ran."""

    def __init__(self, message: str, exit_code: int = 2) -> None:
        super().__init__(message)
        self.exit_code = exit_code


Fulfilled = Generator[tuple[Order, list[Answer]], None, None]


class Workers(Protocol):
    """Whoever fulfils orders, in any order of time."""

    def fulfil(self, orders: Sequence[Order]) -> Fulfilled:
        """Every order with its answers, as they come."""
        ...


def run_tasks(
    tasks: Sequence[Task],
    folder: Folder,
    *,
    engine: str = "auto",
    workers: Workers | None = None,
    cache: "kept.Cache | None" = None,
    progress: Shown = lambda task: None,
) -> Generator[tuple[Task, Row, NetsimError | None], None, None]:
    """Get the rows that the folder does not have yet; yield every row, in order, once it is there.

    `engine` is what `engine_for` all tasks of the sweep says, also where these are some of them.
    """
    engine = engine_for(tasks, engine)
    if cache is not None:
        _from_cache(tasks, folder, cache, engine)
    missing = [task for task in tasks if task.key not in folder.finished]
    errors: dict[tuple[str, int], NetsimError] = {}
    if workers is None:
        source = _here(missing, engine, progress)
    else:
        source = _elsewhere(missing, engine, workers)
    waiting = iter(tasks)
    ahead = next(waiting, None)
    with closing(source):
        while ahead is not None:
            while ahead is not None and ahead.key in folder.finished:
                yield ahead, finished_row(folder, ahead), errors.get(ahead.key)
                ahead = next(waiting, None)
            if ahead is not None:
                task, answer = next(source)
                if task.key not in folder.finished:
                    keep(folder, task, answer, errors)
                    if cache is not None and not answer.error:
                        cache.keep(task.key, engine, folder.finished[task.key])


def keep(
    folder: Folder, task: Task, answer: Answer, errors: dict[tuple[str, int], NetsimError]
) -> None:
    """Record what came of a task; its error goes to `errors`."""
    if answer.row is None:
        errors[task.key] = CellError(answer.error, answer.exit_code)
        row = failed_row(task, answer.error)
    else:
        row = row_from(answer.row)
    folder.record(task.key, row, dict(answer.timing))


def _from_cache(tasks: Sequence[Task], folder: Folder, cache: "kept.Cache", engine: str) -> None:
    for task in tasks:
        if task.key not in folder.finished:
            row = cache.find(task.key, engine)
            if row is not None:
                folder.record(task.key, row, {"host": "cache"})


def _cells(tasks: Sequence[Task]) -> list[list[Task]]:
    """Tasks by cell, each question once."""
    groups: dict[str, dict[int, Task]] = {}
    for task in tasks:
        groups.setdefault(task.cell.id, {}).setdefault(task.size, task)
    return [list(group.values()) for group in groups.values()]


def _here(tasks: Sequence[Task], engine: str, progress: Shown) -> Found:
    for group in _cells(tasks):
        by_size = {task.size: task for task in group}
        try:
            prepared = prepare_any(group[0].cell)
        except NetsimError as error:  # sweeps refuse such cells before, a search does not
            for task in group:
                yield task, misfit(task.size, error)
            continue

        def shown(size: int, known: Mapping[int, Task] = by_size) -> Progress | None:
            return progress(known[size])

        for answer in answers(prepared, list(by_size), engine, shown):
            yield by_size[answer.size], answer


def _elsewhere(tasks: Sequence[Task], engine: str, workers: Workers) -> Found:
    known: dict[tuple[str, int], Task] = {}
    orders = []
    for group in _cells(tasks):
        for first in range(0, len(group), CHUNK):
            part = group[first : first + CHUNK]
            orders.append(order_of(part[0].cell, [task.size for task in part], engine))
            known.update({task.key: task for task in part})
    with closing(workers.fulfil(orders)) as fulfilled:
        for order, found in fulfilled:
            for answer in found:
                yield known[order.cell, answer.size], answer


def died(order: Order, times: int) -> list[Answer]:
    """The answers to an order that took its workers' lives every time."""
    message = f"the worker died {times} times while it simulated this cell (out of memory?)"
    nothing: dict[str, Any] = {}
    return [Answer(size, None, nothing, message, 2) for size in order.sizes]
