"""The rows of a sweep: its cells at their sizes, what is known already, who simulates the rest."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from dataclasses import asdict, replace
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from netsim.base.errors import (
    InputError,
    LostError,
    NetsimError,
    NoRoomError,
    StalledError,
    Tell,
    silent,
)
from netsim.base.startup import MODEL_VERSION, STAGE, __version__, at, late, memory_limit
from netsim.base.values import dataclass
from netsim.engines.engine import FEW
from netsim.extent.decisions import listening, tell_listener
from netsim.extent.engine_runs import Progress
from netsim.results.folder import Folder, Key
from netsim.results.row import Row, row_from
from netsim.results.sealed import sealed, unsealed
from netsim.scenario.cells import Cell, Invalid, cell_of, is_textbook, named
from netsim.tasks.answer import AnyResolved, answer, memory_needed, resolve_any
from netsim.tasks.row import untimed
from netsim.yamlio.read import Source

if TYPE_CHECKING:
    from netsim.base.processes import Processes

MANY = 64  # rows from which the start-up of the compiled engine pays, however small their programs


@dataclass(frozen=True)
class SizedCell:
    """One cell at one size."""

    cell: Cell
    size: int

    @property
    def key(self) -> tuple[str, int]:
        """What the journal knows it by."""
        return self.cell.id, self.size


def tasks_of(cells: Sequence[Cell]) -> list[SizedCell]:
    """Every cell at every size, in the order of results.csv."""
    return [SizedCell(cell, size) for cell in cells for size in cell.scenario.workload.size_list()]


def engine_for(tasks: Sequence[SizedCell], engine: str = "auto") -> str:
    """The engine of all rows of a sweep, so that they do not depend on how the work is divided."""
    if engine != "auto":
        return engine
    if len(tasks) >= MANY:
        return "compiled"
    return FEW if all(is_textbook(task.cell.scenario) for task in tasks) else engine


def finished_row(folder: Folder, task: SizedCell) -> Row:
    """The row of a task; an equal question asked under other names keeps its own names."""
    row = folder.finished[task.key]
    named = replace(
        row,
        scenario=task.cell.scenario.name or "",
        axes=dict(task.cell.axes),
        size_asked=task.size or None,
    )
    if not task.cell.scenario.measured:
        return named
    beside: Row = late("netsim.measured.compare.overlaid")(named, task.cell)
    return beside


def invalid_row(point: Invalid, scenario: str) -> Row:
    """The row of a point that no scenario is possible at."""
    return Row(
        scenario=scenario,
        cell=point.id,
        model_version=MODEL_VERSION,
        status="invalid",
        error=str(point.error),
        axes=dict(point.axes),
    )


# Finished rows of all sweeps on this machine, by the id of what was asked.
# A file of SQLite that several sweeps may use at once; only rows without an error are kept.

_TABLE = (
    "create table if not exists rows (cell text, size integer, engine text, version text, row text,"
    " primary key (cell, size, engine, version))"
)
_FIND = "select row from rows where cell = ? and size = ? and engine = ? and version = ?"
_KEEP = "insert or replace into rows values (?, ?, ?, ?, ?)"


def cache_file() -> Path:
    """Where the cache is: $NETSIM_CACHE, or in the user's folder for caches."""
    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(os.environ.get("NETSIM_CACHE") or Path(home, "netsim", "rows.sqlite"))


def _sqlite() -> Any:
    """For the few who keep rows for other sweeps."""
    return import_module("sqlite3")


class Cache:
    """Rows that were computed before, by cell, size, engine and version of netsim.

    Damaged rows are reported and computed again; a file that can no longer be used is reported
    once."""

    def __init__(self, path: Path, tell: Tell = silent) -> None:
        self.path, self.tell, self.found = path, tell, 0
        self._base: Any = None
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._base = _sqlite().connect(path, timeout=30.0, isolation_level=None)
            self._base.text_factory = bytes
            with self._told():
                self._base.execute(_TABLE)
        except (OSError, _sqlite().Error) as error:
            message = f"{self.path}: cannot be used as a cache: {error}"
            raise InputError(message, hint="set NETSIM_CACHE, or run without --cache") from None

    def find(self, key: Key, engine: str) -> Row | None:
        """The row of a cell at a size, or None."""
        entry = None
        if self._base is not None:
            with self._told():
                entry = self._base.execute(_FIND, (*key, engine, __version__)).fetchone()
        if entry is None:
            return None
        try:
            row = _cached(entry[0], key)
        except (ValueError, TypeError, InputError) as error:
            self.tell(f"{self.path}: row of {key[0]} at {key[1]} B: damaged: {error}")
            return None
        self.found += 1
        return row

    def keep(self, key: Key, engine: str, row: Row) -> None:
        """Keep a row for other sweeps."""
        if self._base is not None:
            with self._told():
                text = sealed({"cell": key[0], "size": key[1], "row": asdict(row)})
                self._base.execute(_KEEP, (*key, engine, __version__, text))

    def close(self) -> None:
        """Let go of the file."""
        if self._base is not None:
            self._base.close()

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Report a failure of the cache, and do not use it from then on."""
        try:
            yield
        except (OSError, _sqlite().Error) as error:
            if not _is_database(self.path):  # but something else, which somebody named
                raise
            self.tell(f"{self.path}: the cache is left alone from here on: {error}")
            self.close()
            self._base = None


def _is_database(path: Path) -> bool:
    with suppress(OSError), path.open("rb") as file:
        return file.read(6) == b"SQLite"
    return False


def _cached(text: bytes, key: Key) -> Row:
    """The row of an entry, which was made for a key; older ones are a row and nothing else."""
    values = unsealed(text)
    if "row" not in values:
        return row_from(values)
    if (values["cell"], values["size"]) != key:
        raise ValueError("it is of another cell or size")
    return row_from(values["row"])


# Orders: what a worker, in another process or on another machine, has to compute.
# An order is plain values. A worker checks them as it would check a file, refuses another version
# of netsim or other machine files than those that the order was made from, and runs nothing else.

VERSION = f"{__version__} (model {MODEL_VERSION})"


@dataclass(frozen=True)
class Order:
    """A cell as plain values, the id that it must turn out to have, and the sizes wanted."""

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
class Answer:
    """What came of one size: a row, or an error and the exit code that it means."""

    size: int
    row: Mapping[str, Any] | None
    timing: Mapping[str, Any]
    error: str = ""
    exit_code: int = 0
    is_stalled: bool = False  # the operation cannot finish: it waits for what is dead
    decisions: tuple[str, ...] = ()  # by which methods the time was found, a line each


def fulfil(order: Order) -> Iterator[Answer]:
    """Do what an order asks for, after checking it."""
    if order.version != VERSION:
        message = f"worker {socket.gethostname()} runs netsim {VERSION}, the sweep {order.version}"
        raise InputError(message, hint="install the same version everywhere")
    once = replace(order, sizes=())  # orders of one cell differ in sizes only
    _cell(once)  # what is wrong here is wrong with the worker
    try:
        resolved = _resolved(once)
    except NetsimError as error:
        yield from (misfit(size, error) for size in order.sizes)
        return
    yield from answers(resolved, order.sizes, order.engine)


def fulfilled(order: Order) -> list[Answer]:
    """The same as a whole."""
    return list(fulfil(order))


def misfit(size: int, error: NetsimError) -> Answer:
    """The answer for a cell whose parts do not fit, or that memory has no room for."""
    code = LostError.exit_code if isinstance(error, NoRoomError) else error.exit_code
    return Answer(size, None, {}, str(error), code)


def answers(
    resolved: AnyResolved,
    sizes: Sequence[int],
    engine: str,
    progress: Callable[[int], Progress | None] = lambda size: None,
) -> Iterator[Answer]:
    """The answers of one cell, one size after the other."""
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
        yield Answer(size, values, timing, error, code, is_stalled, tuple(decisions))


def no_room(resolved: AnyResolved, size: int) -> str:
    """The message for a cell that ended for lack of memory."""
    most, limit = resolved.memory_needed(size), memory_limit()
    there = f" of {limit / 1e9:.2g} GB" if limit else ""
    message = f"does not fit into the memory{there} (estimated at up to {most / 1e9:.2g} GB)"
    return f"{message}; fewer ranks, sizes or chunks need less"


@lru_cache(maxsize=4)
def _cell(order: Order) -> Cell:
    cell = cell_of(Source(order.name, dict(order.data)), order.axes)
    if cell.id != order.cell:
        told = "finds other machine or topology files than the sweep was made from"
        hint = "bring the same files to every machine"
        raise InputError(f"worker {socket.gethostname()} {told}", hint=hint)
    return cell


@lru_cache(maxsize=4)
def _resolved(order: Order) -> AnyResolved:
    return resolve_any(_cell(order))


CHUNK = 31  # sizes that one order has at most: enough to make what a cell needs only once
LONG = 5.0  # seconds after which what is left is shared out
Shown = Callable[[SizedCell], Progress | None]
Found = Generator[tuple[SizedCell, Answer], None, None]
Later = Callable[[], AbstractContextManager["Workers | None"]]


class CellError(NetsimError):
    """What one cell failed with, wherever it ran."""

    def __init__(self, message: str, exit_code: int = 2, *, is_stalled: bool = False) -> None:
        super().__init__(message)
        self.exit_code = exit_code
        self.is_stalled = is_stalled


Fulfilled = Generator[tuple[Order, list[Answer]], None, None]


class Workers(Protocol):
    """Workers that fulfil orders, in any sequence."""

    def fulfil(self, orders: Sequence[Order]) -> Fulfilled:
        """Every order with its answers, as they come, some of them at a time."""
        ...


class Local:
    """The workers of this machine (`base/processes.py`)."""

    def __init__(self, processes: Processes, cells: Sequence[Cell]) -> None:
        self.processes = processes
        self.cells = {cell.id: cell for cell in cells}

    def fulfil(self, orders: Sequence[Order]) -> Fulfilled:
        """Every order with its answers; what ended its worker twice has errors for answers."""
        jobs = (
            (
                order,
                titled(order),
                memory_needed(self.cells[order.cell], order.sizes),
                len(order.sizes),
            )
            for order in _shared_out(orders, self.processes.count)
        )
        with closing(self.processes.results(jobs)) as results:
            STAGE.others, total = self.processes.memory, sum(len(one.sizes) for one in orders)
            at(", ".join(self.processes.names()), 0, total)
            for done, (order, answer) in enumerate(results, 1):
                at(", ".join(self.processes.names()), done, total)
                ended = isinstance(answer, LostError)
                yield order, [misfit(n, answer) for n in order.sizes] if ended else [answer]


def left_of(order: Order, answered: int) -> Order:
    """The rest of an order of which `answered` sizes are done."""
    return replace(order, sizes=order.sizes[answered:])


def titled(of: Order | Cell) -> str:
    """A cell as people know it: by the values of its axes, else by its scenario."""
    where = named(of.axes)
    if where:
        return f"cell {where}"
    data, cell = (of.data, of.cell) if isinstance(of, Order) else (of.source.data, of.id)
    return str(data.get("name") or f"cell {cell}")


def _shared_out(orders: Sequence[Order], count: int) -> list[Order]:
    """Orders small enough that every process has some, the largest sizes first."""
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
    progress: Shown = lambda task: None,
    later: Later | None = None,
) -> Generator[tuple[SizedCell, Row, NetsimError | None], None, None]:
    """Get the rows that the folder does not have yet; yield every row, in order, once it is there.
    `engine` is what `engine_for` all tasks of the sweep says, also where these are some of them.
    Without workers, those of `later` do what is left once it takes long."""
    engine = engine_for(tasks, engine)
    if cache is not None:
        _from_cache(tasks, folder, cache, engine)
    missing = [task for task in tasks if task.key not in folder.finished]
    errors: dict[tuple[str, int], NetsimError] = {}
    if workers is None:
        source = _here(missing, engine, progress, later)
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
                task, known_row = next(source)
                for line in known_row.decisions:
                    tell_listener(line)
                if task.key not in folder.finished:
                    keep(folder, task, known_row, errors)
                    if cache is not None and not known_row.error:
                        cache.keep(task.key, engine, folder.finished[task.key])


def keep(
    folder: Folder, task: SizedCell, answer: Answer, errors: dict[tuple[str, int], NetsimError]
) -> None:
    """Record what came of a task; its error goes to `errors`."""
    if answer.row is None:
        errors[task.key] = CellError(answer.error, answer.exit_code, is_stalled=answer.is_stalled)
        known, size = untimed(task.cell), task.size or None
        row = replace(known, size_bytes=size, status="error", error=answer.error)
    else:
        row = row_from(answer.row)
    folder.record(task.key, row, dict(answer.timing))


def _from_cache(tasks: Sequence[SizedCell], folder: Folder, cache: Cache, engine: str) -> None:
    for task in tasks:
        if task.key not in folder.finished:
            row = cache.find(task.key, engine)
            if row is not None:
                folder.record(task.key, row, {"host": "cache"})


def _cells(tasks: Sequence[SizedCell]) -> list[list[SizedCell]]:
    """Tasks by cell, each question once."""
    groups: dict[str, dict[int, SizedCell]] = {}
    for task in tasks:
        groups.setdefault(task.cell.id, {}).setdefault(task.size, task)
    return [list(group.values()) for group in groups.values()]


def _here(tasks: Sequence[SizedCell], engine: str, progress: Shown, later: Later | None) -> Found:
    groups, done, until = _cells(tasks), 0, time.monotonic() + LONG
    every = [task for group in groups for task in group]
    for group in groups:
        by_size = {task.size: task for task in group}
        try:
            resolved = resolve_any(group[0].cell)
        except NetsimError as error:  # sweeps refuse such cells before, a search does not
            for task in group:
                yield task, misfit(task.size, error)
            done += len(group)
            continue

        def shown(size: int, known: Mapping[int, SizedCell] = by_size) -> Progress | None:
            return progress(known[size])

        at(titled(group[0].cell), done, len(tasks))
        for fulfilled in answers(resolved, list(by_size), engine, shown):
            yield by_size[fulfilled.size], fulfilled
            done += 1
            at(titled(group[0].cell), done, len(tasks))
            if later is not None and len(every) > done + 1 and time.monotonic() > until:
                with later() as workers:
                    assert workers is not None
                    yield from _elsewhere(every[done:], engine, workers)
                return


def _elsewhere(tasks: Sequence[SizedCell], engine: str, workers: Workers) -> Found:
    cell_of_size: dict[tuple[str, int], SizedCell] = {}
    orders = []
    for group in _cells(tasks):
        for first in range(0, len(group), CHUNK):
            part = group[first : first + CHUNK]
            cell, sizes = part[0].cell, tuple(task.size for task in part)
            where = cell.source.name, cell.source.data, cell.axes
            orders.append(Order(cell.id, *where, sizes, engine))
            cell_of_size.update({task.key: task for task in part})
    with closing(workers.fulfil(orders)) as fulfilled:
        for order, results in fulfilled:
            for answer in results:
                yield cell_of_size[order.cell, answer.size], answer
