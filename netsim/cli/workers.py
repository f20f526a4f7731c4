"""Workers, memory, cache and part of a sweep, as the options name them."""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

from netsim.base.errors import InputError
from netsim.base.startup import limit_memory, resident
from netsim.base.units import parse_size
from netsim.cli.output import parsed, tell
from netsim.extent.memory import PROCESS, available_memory
from netsim.scenario.cells import Cell
from netsim.sweep import run
from netsim.sweep.run import Workers

MOST_JOBS = 4096


def memory_of(text: str | None) -> int:
    """The bytes of `--memory`; by default, the memory available to this process and its workers."""
    if text is None:
        return available_memory() + resident()
    size = parsed(parse_size, "--memory", text)
    if size < PROCESS:
        least = f"{PROCESS / 1e6:.0f}MB"
        raise InputError(f"--memory {text}: one process alone needs up to {least}", hint="as 8GB")
    return size


@contextmanager
def workers(
    jobs: int | None, call: Callable[..., Any], memory: str | None = None, **settings: Any
) -> Iterator[Any]:
    """A context with `jobs` worker processes that run `call` (`netsim/base/processes.py`).

    It gives None if everything runs in this process (`jobs` None or 1). `memory` is the text of
    `--memory`, `settings` are passed on to Processes.
    """
    limit = memory_of(memory)
    if jobs is not None and not 1 <= jobs <= MOST_JOBS:
        raise InputError(f"--jobs: expected 1 to {MOST_JOBS}, got {jobs}")
    if jobs is None or jobs == 1:
        if memory is not None:
            limit_memory(limit)
        yield None
        return
    from netsim.base.processes import Processes  # with multiprocessing

    with Processes(jobs, call, memory=limit, tell=tell, **settings) as processes:
        yield processes


@contextmanager
def helpers_of(
    jobs: int | None, dask: str | None, memory: str | None, cells: Sequence[Cell]
) -> Iterator[Workers | None]:
    """A context with the workers for a sweep: local processes or a Dask cluster; None for this
    process.
    """
    if dask is None:
        with workers(jobs, run.fulfil, memory, rest=run.left_of) as processes:
            yield None if processes is None else run.Workers(processes, cells)
        return
    if memory is not None:
        raise InputError("--memory: a Dask cluster knows what its workers have")
    from netsim.sweep.cluster import DaskPool

    with DaskPool(dask, run.fulfil, jobs, tell) as pool:
        yield run.Workers(pool, cells)


@contextmanager
def opened_cache(is_wanted: bool) -> Iterator[run.Cache | None]:
    """A context with the cache of rows from earlier sweeps; None if it is not wanted."""
    if not is_wanted:
        yield None
        return
    with closing(run.Cache(run.cache_file(), tell)) as opened:
        yield opened


def shard_of(text: str | None) -> tuple[int, int] | None:
    """The number of a part and the number of all parts, from `--shard i/n`; None without the
    option.
    """
    if text is None:
        return None
    match = re.fullmatch(r"([0-9]{1,6})/([0-9]{1,6})", text)
    if not match or not 1 <= int(match[1]) <= int(match[2]):
        raise InputError(f"--shard: expected i/n such as 1/8, with i from 1 to n, got {text!r}")
    return int(match[1]), int(match[2])


def part_of(cells: Sequence[Cell], shard: tuple[int, int] | None) -> list[Cell]:
    """The cells of part i of n (`shard`): every n-th, so that parts take about the same time."""
    number, parts = shard or (1, 1)
    return list(cells[number - 1 :: parts])
