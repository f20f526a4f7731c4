"""The options that say who simulates: this process, several, a Dask cluster, or only a part."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated

import typer

from netsim.errors import InputError
from netsim.scenario.cells import Cell
from netsim.sweep import cache as kept
from netsim.sweep import cluster, local
from netsim.sweep.work import Workers

MOST_JOBS = 4096

Jobs = Annotated[
    int | None, typer.Option("--jobs", "-j", help="Processes of this machine.", metavar="N")
]
Dask = Annotated[
    str | None,
    typer.Option("--dask", help="A Dask scheduler (tcp://…), or slurm.", metavar="ADDRESS"),
]
UseCache = Annotated[
    bool, typer.Option("--cache", help="Take rows that any sweep here has computed before.")
]
Shard = Annotated[
    str | None, typer.Option("--shard", help="Only the i-th of n parts.", metavar="i/n")
]
SkipInvalid = Annotated[
    bool, typer.Option("--skip-invalid", help="Leave out cells that cannot be built.")
]


@contextmanager
def workers(jobs: int | None, dask: str | None) -> Iterator[Workers | None]:
    """Whoever was asked for; None is this process."""
    if jobs is not None and not 1 <= jobs <= MOST_JOBS:
        raise InputError(f"--jobs: expected 1 to {MOST_JOBS}, got {jobs}")
    if dask is not None:
        found = cluster.DaskWorkers(dask, jobs, lambda text: typer.echo(text, err=True))
        try:
            yield found
        finally:
            found.close()
        return
    yield local.Processes(jobs) if jobs is not None and jobs > 1 else None


@contextmanager
def cache(wanted: bool) -> "Iterator[kept.Cache | None]":
    """The rows of earlier sweeps, if they are wanted."""
    if not wanted:
        yield None
        return
    opened = kept.Cache(kept.cache_file())
    try:
        yield opened
    finally:
        opened.close()


def shard_of(text: str | None) -> tuple[int, int] | None:
    """Which part of how many."""
    if text is None:
        return None
    found = re.fullmatch(r"([0-9]{1,6})/([0-9]{1,6})", text)
    if not found or not 1 <= int(found[1]) <= int(found[2]):
        raise InputError(f"--shard: expected i/n such as 1/8, with i from 1 to n, got {text!r}")
    return int(found[1]), int(found[2])


def part_of(cells: Sequence[Cell], shard: tuple[int, int] | None) -> list[Cell]:
    """The cells of a part: every n-th, so that parts take about as long."""
    if shard is None:
        return list(cells)
    return list(cells[shard[0] - 1 :: shard[1]])
