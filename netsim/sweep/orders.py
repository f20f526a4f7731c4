"""Orders: what a worker, in another process or on another machine, is told to compute.

An order is plain values. A worker checks them as it would check a file, refuses another version of
netsim or other machine files than those that the order was made from, and runs nothing else.
"""

import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import lru_cache
from typing import Any

from netsim.answers import AnyPrepared, answer, prepare_any
from netsim.errors import InputError, NetsimError
from netsim.results import Row
from netsim.scenario.cells import Cell, cell_of
from netsim.timing import Progress
from netsim.values import dataclass
from netsim.version import MODEL_VERSION, __version__
from netsim.yamlio.source import Source

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


@dataclass(frozen=True)
class Answer:
    """What came of one size: a row, or an error and the exit code that it means."""

    size: int
    row: Mapping[str, Any] | None
    timing: Mapping[str, Any]
    error: str = ""
    exit_code: int = 0


def order_of(cell: Cell, sizes: Sequence[int], engine: str) -> Order:
    """The order for some sizes of a cell."""
    return Order(cell.id, cell.source.name, cell.source.data, cell.axes, tuple(sizes), engine)


def fulfil(order: Order) -> list[Answer]:
    """Do what an order asks for, after checking it."""
    if order.version != VERSION:
        raise InputError(
            f"worker {socket.gethostname()} runs netsim {VERSION}, the sweep {order.version}",
            hint="install the same version everywhere",
        )
    _cell(_Once(order))  # what is wrong here is wrong with the worker
    try:
        prepared = _prepared(_Once(order))
    except NetsimError as error:
        return [misfit(size, error) for size in order.sizes]
    return list(answers(prepared, order.sizes, order.engine))


def misfit(size: int, error: NetsimError) -> Answer:
    """The answer for a cell whose parts do not fit."""
    return Answer(size, None, {}, str(error), error.exit_code)


def answers(
    prepared: AnyPrepared,
    sizes: Sequence[int],
    engine: str,
    progress: Callable[[int], Progress | None] = lambda size: None,
) -> Iterator[Answer]:
    """The answers of one cell, one size after the other."""
    for size in sizes:
        began = time.perf_counter()
        try:
            row: Row | None = answer(prepared, size, engine=engine, progress=progress(size))
            error, code = "", 0
        except NetsimError as caught:
            row, error, code = None, str(caught), caught.exit_code
        except MemoryError:
            row, error, code = None, "out of memory; fewer ranks, sizes or chunks need less", 2
        timing = {
            "wall_s": time.perf_counter() - began,
            "host": socket.gethostname(),
            "worker": os.getpid(),
        }
        yield Answer(size, None if row is None else asdict(row), timing, error, code)


@dataclass(frozen=True)
class _Once:
    """An order as the key of a cache: orders of one cell differ in sizes only."""

    order: Order

    def __hash__(self) -> int:
        return hash(self.order.cell)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Once) and self.order.cell == other.order.cell


@lru_cache(maxsize=4)
def _cell(once: _Once) -> Cell:
    order = once.order
    cell = cell_of(Source(order.name, dict(order.data)), order.axes)
    if cell.id != order.cell:
        raise InputError(
            f"worker {socket.gethostname()} finds other machine or topology files than the sweep "
            "was made from",
            hint="bring the same files to every machine",
        )
    return cell


@lru_cache(maxsize=4)
def _prepared(once: _Once) -> AnyPrepared:
    return prepare_any(_cell(once))
