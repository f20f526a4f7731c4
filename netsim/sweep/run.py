"""Compute the rows of a sweep: every cell at every size, here, on other processes or on a cluster.

Rows that the result folder or the cache already has are not computed again.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from dataclasses import asdict, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from netsim.base.errors import (
    InputError,
    LostError,
    NetsimError,
    NoRoomError,
    StalledError,
    Tell,
    silent,
)
from netsim.base.startup import MODEL_VERSION, STAGE, __version__, at, memory_limit
from netsim.base.values import dataclass
from netsim.base.worker_pool import Job, WorkerPool
from netsim.engines.engine import FEW
from netsim.extent.decisions import listening, tell_listener
from netsim.extent.engine_runs import Progress
from netsim.results.folder import Folder, Key
from netsim.results.journal import sealed, unsealed
from netsim.results.row import Row, row_from
from netsim.scenario.cells import Cell, Invalid, cell_of, is_textbook, named
from netsim.tasks.answer import AnyResolved, answer, memory_needed, resolve_any
from netsim.tasks.row import untimed
from netsim.yamlio.read import Source

MANY = 64  # for this many rows the compiled engine is worth its start-up, however small they are


@dataclass(frozen=True)
class SizedCell:
    """One cell of a sweep at one size in bytes (0 for a training step), which gives one row of
    results.csv.
    """

    cell: Cell
    size: int

    @property
    def key(self) -> tuple[str, int]:
        """The cell's id and the size: the key of the row in the journal."""
        return self.cell.id, self.size


def tasks_of(cells: Sequence[Cell]) -> list[SizedCell]:
    """The tasks of a sweep: each cell at each of its sizes, in the order of results.csv."""
    return [SizedCell(cell, size) for cell in cells for size in cell.scenario.workload.size_list()]


def engine_for(tasks: Sequence[SizedCell], engine: str = "auto") -> str:
    """The engine for all rows of a sweep; `engine` "auto" leaves the choice to this function.

    The choice depends on the complete sweep, so that rows do not depend on how the work is divided.
    """
    if engine != "auto":
        return engine
    if len(tasks) >= MANY:
        return "compiled"
    return FEW if all(is_textbook(task.cell.scenario) for task in tasks) else engine


def finished_row(folder: Folder, task: SizedCell) -> Row:
    """The row of a task that is in a folder, with the scenario name and axes of this task.

    Cells with different names may need the same simulation; they share its row.
    """
    row = folder.finished[task.key]
    named = replace(
        row,
        scenario=task.cell.scenario.name or "",
        axes=dict(task.cell.axes),
        size_asked=task.size or None,
    )
    if not task.cell.scenario.measured:
        return named
    from netsim.measured.compare import overlaid

    return overlaid(named, task.cell)


def invalid_row(point: Invalid, scenario: str) -> Row:
    """The row of a point of the sweep for which no valid scenario exists."""
    return Row(
        scenario=scenario,
        cell=point.id,
        model_version=MODEL_VERSION,
        status="invalid",
        error=str(point.error),
        axes=dict(point.axes),
    )


# The cache: finished rows of all sweeps on this machine, by the id of their cell. It is a file of
# SQLite that several sweeps may use at once. Only rows without an error are kept.

_TABLE = (
    "create table if not exists rows (cell text, size integer, engine text, version text, row text,"
    " primary key (cell, size, engine, version))"
)
_FIND = "select row from rows where cell = ? and size = ? and engine = ? and version = ?"
_KEEP = "insert or replace into rows values (?, ?, ?, ?, ?)"


def cache_file() -> Path:
    """The path of the cache: $NETSIM_CACHE, or a file in the user's folder for caches."""
    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(os.environ.get("NETSIM_CACHE") or Path(home, "netsim", "rows.sqlite"))


def _sqlite() -> Any:
    """The module sqlite3, which is imported only if the cache is used."""
    import sqlite3

    return sqlite3


class Cache:
    """Rows of earlier sweeps, by cell, size, engine and version of netsim.

    Damaged rows are reported and computed again. A file that can no longer be used is reported once
    and then ignored. `hits` is the number of rows that were read.
    """

    def __init__(self, path: Path, tell: Tell = silent) -> None:
        self.path = path
        self.tell = tell
        self.hits = 0
        self._base: Any = None
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._base = _sqlite().connect(path, timeout=30.0, isolation_level=None)
            self._base.text_factory = bytes
            with self._failures_reported():
                self._base.execute(_TABLE)
        except (OSError, _sqlite().Error) as error:
            message = f"{self.path}: cannot be used as a cache: {error}"
            raise InputError(message, hint="set NETSIM_CACHE, or run without --cache") from None

    def find(self, key: Key, engine: str) -> Row | None:
        """The row of a cell at a size, or None if the cache does not have it."""
        entry = None
        if self._base is not None:
            with self._failures_reported():
                entry = self._base.execute(_FIND, (*key, engine, __version__)).fetchone()
        if entry is None:
            return None
        try:
            row = _cached(entry[0], key)
        except (ValueError, TypeError, InputError) as error:
            self.tell(f"{self.path}: row of {key[0]} at {key[1]} B: damaged: {error}")
            return None
        self.hits += 1
        return row

    def keep(self, key: Key, engine: str, row: Row) -> None:
        """Store a row of a cell and size (`key`) for other sweeps."""
        if self._base is not None:
            with self._failures_reported():
                text = sealed({"cell": key[0], "size": key[1], "row": asdict(row)})
                self._base.execute(_KEEP, (*key, engine, __version__, text))

    def close(self) -> None:
        """Close the file."""
        if self._base is not None:
            self._base.close()

    @contextmanager
    def _failures_reported(self) -> Iterator[None]:
        """Report a failure of the cache within the `with` block, and stop using the cache."""
        try:
            yield
        except (OSError, _sqlite().Error) as error:
            if not _is_database(self.path):  # the user named a file of another kind
                raise
            self.tell(f"{self.path}: the cache is left alone from here on: {error}")
            self.close()
            self._base = None


def _is_database(path: Path) -> bool:
    """Whether a file is a database of SQLite."""
    with suppress(OSError), path.open("rb") as file:
        return file.read(6) == b"SQLite"
    return False


def _cached(text: bytes, key: Key) -> Row:
    """The row in an entry of the cache; raises an error unless the entry has the expected key.

    Entries of older versions have only the row.
    """
    values = unsealed(text)
    if "row" not in values:
        return row_from(values)
    if (values["cell"], values["size"]) != key:
        raise ValueError("it is of another cell or size")
    return row_from(values["row"])


# An order tells a worker, in another process or on another machine, what to compute. It consists of
# plain values, which the worker validates like the content of a file. A worker refuses an order
# that was made by another version of netsim, or from other machine files.

VERSION = f"{__version__} (model {MODEL_VERSION})"


@dataclass(frozen=True)
class Order:
    """What a worker has to compute: one cell at some sizes.

    - `cell`: the id that the cell must have when the worker builds it.
    - `data`, `axes`: the scenario of the cell and its values on the axes, as plain values.
    - `sizes`: the sizes in bytes.
    - `version`: the version of netsim that made the order.
    """

    cell: str
    name: str
    data: Mapping[str, Any]
    axes: Mapping[str, Any]
    sizes: tuple[int, ...]
    engine: str
    version: str = VERSION

    def __hash__(self) -> int:
        return hash(self.cell)


@dataclass(frozen=True)
class SizeAnswer:
    """The result of one size: a row as plain values, or an error with its exit code.

    `timing` has the seconds it took, the host and the process.
    """

    size: int
    row: Mapping[str, Any] | None
    timing: Mapping[str, Any]
    error: str = ""
    exit_code: int = 0
    is_stalled: bool = False  # the operation cannot finish: it waits for a dead link or rank
    decisions: tuple[str, ...] = ()  # lines on the methods that were tried and taken


def fulfil(order: Order) -> Iterator[SizeAnswer]:
    """Check an order, then simulate its sizes and yield the answer of each."""
    if order.version != VERSION:
        message = f"worker {socket.gethostname()} runs netsim {VERSION}, the sweep {order.version}"
        raise InputError(message, hint="install the same version everywhere")
    # Orders of one cell differ only in their sizes. The cached functions below are called without
    # sizes, so that they find the cell of an earlier order.
    without_sizes = replace(order, sizes=())
    _cell(without_sizes)  # raises an error if the worker has other files
    try:
        resolved = _resolved(without_sizes)
    except NetsimError as error:
        yield from (misfit(size, error) for size in order.sizes)
        return
    yield from answers(resolved, order.sizes, order.engine)


def misfit(size: int, error: NetsimError) -> SizeAnswer:
    """The answer with the error of a cell that cannot be resolved, or that does not fit into
    memory.
    """
    code = LostError.exit_code if isinstance(error, NoRoomError) else error.exit_code
    return SizeAnswer(size=size, row=None, timing={}, error=str(error), exit_code=code)


def answers(
    resolved: AnyResolved,
    sizes: Sequence[int],
    engine: str,
    progress: Callable[[int], Progress | None] = lambda size: None,
) -> Iterator[SizeAnswer]:
    """Simulate the sizes of one cell, and yield the answer of each.

    `progress(size)` returns the function that the engine calls with its progress, or None.
    """
    for size in sizes:
        began = time.perf_counter()
        row: Row | None = None
        error = ""
        code = 0
        is_stalled = False
        decisions: list[str] = []
        try:
            with listening(decisions.append):
                row = answer(resolved, size, engine=engine, progress=progress(size))
        except NetsimError as caught:
            error = str(caught)
            code = caught.exit_code
            is_stalled = isinstance(caught, StalledError)
        except MemoryError:
            error = no_room(resolved, size)
            code = LostError.exit_code
        took = time.perf_counter() - began
        timing = {"wall_s": took, "host": socket.gethostname(), "worker": os.getpid()}
        values = None if row is None else asdict(row)
        yield SizeAnswer(
            size=size,
            row=values,
            timing=timing,
            error=error,
            exit_code=code,
            is_stalled=is_stalled,
            decisions=tuple(decisions),
        )


def no_room(resolved: AnyResolved, size: int) -> str:
    """The message for a cell whose simulation needed more memory than there is."""
    most = resolved.memory_needed(size)
    limit = memory_limit()
    there = f" of {limit / 1e9:.2g} GB" if limit else ""
    message = f"does not fit into the memory{there} (estimated at up to {most / 1e9:.2g} GB)"
    return f"{message}; fewer ranks, sizes or chunks need less"


@lru_cache(maxsize=4)
def _cell(order: Order) -> Cell:
    """The cell of an order, after a check that it has the id of the order."""
    cell = cell_of(Source(order.name, dict(order.data)), order.axes)
    if cell.id != order.cell:
        problem = "finds other machine or topology files than the sweep was made from"
        hint = "bring the same files to every machine"
        raise InputError(f"worker {socket.gethostname()} {problem}", hint=hint)
    return cell


@lru_cache(maxsize=4)
def _resolved(order: Order) -> AnyResolved:
    """The resolved cell of an order."""
    return resolve_any(_cell(order))


CHUNK = 31  # most sizes of an order; usually all of a cell, so that it is resolved only once
LONG = 5.0  # seconds after which worker processes are started for the remaining rows
ProgressOf = Callable[[SizedCell], Progress | None]
AnswerStream = Generator[tuple[SizedCell, SizeAnswer], None, None]
LaterWorkers = Callable[[], AbstractContextManager["Workers | None"]]


class CellError(NetsimError):
    """The error of one cell that failed, in whatever process it was simulated.

    `is_stalled` says that its operation cannot finish.
    """

    def __init__(self, message: str, exit_code: int = 2, *, is_stalled: bool = False) -> None:
        super().__init__(message)
        self.exit_code = exit_code
        self.is_stalled = is_stalled


Fulfilled = Generator[tuple[Order, list[SizeAnswer]], None, None]


class Workers:
    """Workers that fulfil orders in any sequence: processes here, or those of a Dask cluster."""

    def __init__(self, pool: WorkerPool, cells: Sequence[Cell]) -> None:
        self.pool = pool
        self.cells = {cell.id: cell for cell in cells}

    def fulfil(self, orders: Sequence[Order]) -> Fulfilled:
        """Yield every order with its answers as they finish; an order may come several times.

        An order whose workers died has errors as answers."""
        jobs = map(self._job, _shared_out(orders, self.pool.worker_count))
        with closing(self.pool.results(jobs)) as results:
            STAGE.others = self.pool.memory
            total = sum(len(order.sizes) for order in orders)
            at(", ".join(self.pool.names()), 0, total)
            for done, (order, answer) in enumerate(results, 1):
                at(", ".join(self.pool.names()), done, total)
                if isinstance(answer, LostError):
                    yield order, [misfit(size, answer) for size in order.sizes]
                else:
                    yield order, [answer]

    def _job(self, order: Order) -> Job:
        """The job of an order, with its memory if the pool has a limit."""
        memory = memory_needed(self.cells[order.cell], order.sizes) if self.pool.limit else 0
        return Job(order, titled(order), memory, len(order.sizes))


def left_of(order: Order, answered: int) -> Order:
    """The order without its first `answered` sizes, which have been answered."""
    return replace(order, sizes=order.sizes[answered:])


def titled(cell_or_order: Order | Cell) -> str:
    """The name of a cell in messages: its values on the axes, or else the name of its scenario."""
    where = named(cell_or_order.axes)
    if where:
        return f"cell {where}"
    if isinstance(cell_or_order, Order):
        data = cell_or_order.data
        cell_id = cell_or_order.cell
    else:
        data = cell_or_order.source.data
        cell_id = cell_or_order.id
    return str(data.get("name") or f"cell {cell_id}")


def _shared_out(orders: Sequence[Order], count: int) -> list[Order]:
    """The orders, split into single sizes (largest first) if there are fewer than two for each of
    `count` workers.
    """
    if len(orders) >= 2 * count:
        return list(orders)
    parts = [(size, order) for order in orders for size in order.sizes]
    parts.sort(key=lambda part: -part[0])
    return [replace(order, sizes=(size,)) for size, order in parts]


def run_tasks(
    tasks: Sequence[SizedCell],
    folder: Folder,
    *,
    engine: str,
    workers: Workers | None,
    cache: Cache | None = None,
    progress: ProgressOf = lambda task: None,
    later: LaterWorkers | None = None,
) -> Generator[tuple[SizedCell, Row, NetsimError | None], None, None]:
    """Compute the rows that the folder lacks. Yield (task, row, error or None) for every task in
    order, as soon as it is there.

    - `tasks`: all tasks of a sweep, or some of them.
    - `folder`: the result folder, which records every row.
    - `engine`: the engine of all tasks of the sweep (`engine_for`).
    - `workers`: who computes the rows; None: this process.
    - `cache`: rows of earlier sweeps.
    - `progress`: returns the progress display of a task.
    - `later`: starts workers, which compute the remaining rows after `LONG` seconds in this
      process.
    """
    engine = engine_for(tasks, engine)
    if cache is not None:
        _from_cache(tasks, folder, cache, engine)
    missing = [task for task in tasks if task.key not in folder.finished]
    errors: dict[tuple[str, int], NetsimError] = {}
    if workers is None:
        source = _here(missing, engine, progress, later)
    else:
        source = _elsewhere(missing, engine, workers)
    remaining_tasks = iter(tasks)
    next_task = next(remaining_tasks, None)
    with closing(source):
        while next_task is not None:
            while next_task is not None and next_task.key in folder.finished:
                yield next_task, finished_row(folder, next_task), errors.get(next_task.key)
                next_task = next(remaining_tasks, None)
            if next_task is not None:
                task, new_answer = next(source)
                for line in new_answer.decisions:
                    tell_listener(line)
                if task.key not in folder.finished:
                    keep(folder, task, new_answer, errors)
                    if cache is not None and not new_answer.error:
                        cache.keep(task.key, engine, folder.finished[task.key])


def keep(
    folder: Folder, task: SizedCell, answer: SizeAnswer, errors: dict[tuple[str, int], NetsimError]
) -> None:
    """Record the answer of a task in the folder; its error, if any, is also added to `errors`."""
    if answer.row is None:
        errors[task.key] = CellError(answer.error, answer.exit_code, is_stalled=answer.is_stalled)
        size = task.size or None
        row = replace(untimed(task.cell), size_bytes=size, status="error", error=answer.error)
    else:
        row = row_from(answer.row)
    folder.record(task.key, row, dict(answer.timing))


def _from_cache(tasks: Sequence[SizedCell], folder: Folder, cache: Cache, engine: str) -> None:
    """Record in the folder those rows of tasks that the cache has."""
    for task in tasks:
        if task.key not in folder.finished:
            row = cache.find(task.key, engine)
            if row is not None:
                folder.record(task.key, row, {"host": "cache"})


def _cells(tasks: Sequence[SizedCell]) -> list[list[SizedCell]]:
    """The tasks as one list for each cell; each size of a cell occurs once."""
    groups: dict[str, dict[int, SizedCell]] = {}
    for task in tasks:
        groups.setdefault(task.cell.id, {}).setdefault(task.size, task)
    return [list(group.values()) for group in groups.values()]


def _here(
    tasks: Sequence[SizedCell],
    engine: str,
    progress: ProgressOf,
    later: LaterWorkers | None,
) -> AnswerStream:
    """Simulate tasks in this process and yield each with its answer.

    After LONG seconds, the workers that `later` starts simulate the remaining tasks.
    """
    groups = _cells(tasks)
    done = 0
    share_at = time.monotonic() + LONG
    all_tasks = [task for group in groups for task in group]
    for group in groups:
        by_size = {task.size: task for task in group}
        try:
            resolved = resolve_any(group[0].cell)
        except NetsimError as error:  # a sweep has refused such a cell before, a search has not
            for task in group:
                yield task, misfit(task.size, error)
            done += len(group)
            continue

        def progress_of(
            size: int, tasks_by_size: Mapping[int, SizedCell] = by_size
        ) -> Progress | None:
            return progress(tasks_by_size[size])

        at(titled(group[0].cell), done, len(tasks))
        for answer_of_size in answers(resolved, list(by_size), engine, progress_of):
            yield by_size[answer_of_size.size], answer_of_size
            done += 1
            at(titled(group[0].cell), done, len(tasks))
            has_rest = len(all_tasks) > done + 1
            if later is not None and has_rest and time.monotonic() > share_at:
                with later() as workers:
                    assert workers is not None
                    yield from _elsewhere(all_tasks[done:], engine, workers)
                return


def _elsewhere(tasks: Sequence[SizedCell], engine: str, workers: Workers) -> AnswerStream:
    """Let workers simulate tasks, in orders of up to CHUNK sizes; yield each task with
    its answer.
    """
    task_of_key: dict[tuple[str, int], SizedCell] = {}
    orders = []
    for group in _cells(tasks):
        for first in range(0, len(group), CHUNK):
            part = group[first : first + CHUNK]
            cell = part[0].cell
            order = Order(
                cell=cell.id,
                name=cell.source.name,
                data=cell.source.data,
                axes=cell.axes,
                sizes=tuple(task.size for task in part),
                engine=engine,
            )
            orders.append(order)
            task_of_key.update({task.key: task for task in part})
    with closing(workers.fulfil(orders)) as order_results:
        for order, results in order_results:
            for answer in results:
                yield task_of_key[order.cell, answer.size], answer
