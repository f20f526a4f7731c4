"""Rows as text: the columns that nccl-tests users know, with what netsim adds."""

import json
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import Annotated, Self

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from netsim.base.errors import InputError
from netsim.base.files import write_text
from netsim.base.units import format_size, format_time
from netsim.cell.prepare import Prepared
from netsim.nccl.facts import parse_version
from netsim.results.nccl_tests import (
    IN_PLACE,
    OUT_OF_PLACE,
    Device,
    TestRun,
    average_busbw,
    document,
    half,
    microseconds,
)
from netsim.results.row import NOT_VALIDATED, Row
from netsim.scenario.cells import Cell
from netsim.sweep import cluster, run
from netsim.sweep import workers as local
from netsim.sweep.run import Task, Workers
from netsim.timing.bench import Progress as Report
from netsim.topology.nccl_view import gpu_bus

_WIDTH = 16  # of the column of an axis
SURE = 14  # characters of how a case is validated; the whole text is in the CSV


def header(axes: Sequence[str] = (), *, validated: bool = False) -> str:
    """The lines above the rows."""
    sure = f"  {'validated':<{SURE}}" if validated else ""
    names = "".join(f"  {_short(axis):<{_WIDTH}}" for axis in axes)
    part = f"  {'time':>7}  {'algbw':>6}  {'busbw':>6}"
    units = f"  {'(us)':>7}  {'(GB/s)':>6}  {'(GB/s)':>6}"
    return "\n".join(
        [
            f"#{'out-of-place':>61}{'in-place':>25}",
            f"# {'size':>10}  {'count':>12}  {'type':>8}{part}{part}{names}{sure}  bound by",
            f"# {'(B)':>10}  {'(elements)':>12}  {'':>8}{units}{units}",
        ]
    )


def line(row: Row, axes: Sequence[str] = (), *, validated: bool = False) -> str:
    """One row in the columns of the header."""
    values = "".join(f"  {row.axes.get(axis)!s:<{_WIDTH}}" for axis in axes)
    if row.status != "ok":
        return f"# {row.size_bytes} B{values}: {row.error}"
    fixed = f"{row.size_bytes:>12}  {row.count:>12}  {row.dtype:>8}"
    shown = f"  {sure(row.validated):<{SURE}}" if validated else ""
    return f"{fixed}{halves(row)}{values}{shown}  {row.bound_by}"


def sure(validated: str) -> str:
    """How a case is validated, in few characters: the error and from how many runs, or not."""
    end = " (" if validated.startswith(NOT_VALIDATED) else ")"
    return validated.split(end, maxsplit=1)[0] + (")" if end == ")" and validated else "")


def footer(rows: Sequence[Row]) -> str:
    """The mean of every bus bandwidth, as nccl-tests closes."""
    return f"# Avg bus bandwidth    : {average_busbw(rows):g}\n#"


def halves(row: Row) -> str:
    """The figures out of place and in place; N/A for what was not simulated."""
    return _half(row, OUT_OF_PLACE) + _half(row, IN_PLACE)


def _half(row: Row, which: str) -> str:
    if getattr(row, which) is None or row.algbw_GBps is None:
        return f"  {'N/A':>7}  {'N/A':>6}  {'N/A':>6}"
    time, algbw, busbw = half(row, which)
    return f"  {microseconds(time):>7}  {algbw:>6.2f}  {busbw:>6.2f}"


def _short(axis: str) -> str:
    """The last part of a dotted key, by which the title of a column is read."""
    return axis.rpartition(".")[2]


# **** Nccl tests ****
# The run of nccl-tests that a cell stands for: what the header of its log and its JSON say.


def run_of(prepared: Prepared) -> TestRun:
    """The header of a cell; processes are numbered from 1, for nothing of the kind runs."""
    scenario, work = prepared.cell.scenario, prepared.cell.scenario.collective
    style = scenario.launch_costs().style
    variables = dict(scenario.nccl.env)
    if work.split is not None:
        variables["NCCL_TESTS_SPLIT"] = work.split
    return TestRun(
        collective=work.collective,
        sizes=tuple(work.size_list()),
        devices=_devices(prepared, one_process=style == "single_process"),
        n_gpus=prepared.gpus_per_node if style == "single_process" else 1,
        nccl_code=parse_version(scenario.nccl.version).code if prepared.jobs else None,
        cuda_graph=style == "cuda_graph",
        root=work.root,
        dtype=work.dtype,
        variables=tuple(variables.items()),
    )


def write_json(path: Path, run: TestRun, rows: Sequence[Row]) -> Path:
    """Write the file of -J; as nccl-tests does, leave a file that exists alone and add a number."""
    found, number = path, 0
    while found.exists():
        number += 1
        found = path.with_name(f"{path.name}.{number}")
    return write_text(found, json.dumps(document(run, rows), indent=1) + "\n")


def _devices(prepared: Prepared, *, one_process: bool) -> tuple[Device, ...]:
    """The ranks in order, with host and device as the topology names them (node0.gpu3)."""
    group = {rank: number for number, ranks in enumerate(prepared.groups) for rank in ranks}
    hosts: dict[str, int] = {}
    found = []
    models = _models(prepared)
    for rank, gpu in enumerate(prepared.gpus.tolist()):
        host, _, name = str(prepared.topology.gpus[gpu]).rpartition(".")
        number = hosts.setdefault(host, len(hosts))
        digits = name.removeprefix("gpu")
        device = int(digits) if digits.isdecimal() else gpu
        process = number + 1 if one_process else rank + 1
        found.append(
            Device(
                rank, group[rank], process, host or "graph", device, gpu_bus(device), models[gpu]
            )
        )
    return tuple(found)


def _models(prepared: Prepared) -> list[str]:
    """The model of every GPU of the cluster."""
    if not prepared.jobs:
        return ["GPU"] * len(prepared.topology)
    cluster = prepared.jobs[0].cluster
    return [cluster.machine_of(host).gpu.model for host in cluster.gpu_host.tolist()]


# **** Counter ****
# How many of how many are done, for work that is shared out. Only on a terminal.


class Shown:
    """What shows its progress while it is entered."""

    progress: Progress

    def __enter__(self) -> Self:
        self.progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.progress.stop()


class Counter(Shown):
    """A bar that is told what is done.

    with Counter("runs", quiet=False) as counter: counter.show(3, 70)
    """

    def __init__(self, noun: str, quiet: bool) -> None:
        console = Console(stderr=True)
        columns = (TextColumn(noun), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        hidden = quiet or not console.is_terminal
        self.progress = Progress(*columns, console=console, transient=True, disable=hidden)
        self.task = self.progress.add_task(noun, total=None)

    def show(self, done: int, total: int) -> None:
        """So much of so much is done."""
        self.progress.update(self.task, completed=done, total=total)


# **** Progress ****
# The progress bar of long runs: cells done, simulated time, time left. Only on a terminal.


REFRESH = 0.1  # seconds


class Bar(Shown):
    """A bar over all tasks, and one over the rows of the task at hand.

    with Bar(31, quiet=False) as bar: ...
    """

    def __init__(self, tasks: int, quiet: bool) -> None:
        self.console = Console(stderr=True)
        self.best: Row | None = None
        self.shown = self.console.is_terminal and not quiet
        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=self.console,
            transient=True,
            disable=not self.shown,
        )
        self.all = self.progress.add_task("sizes", total=tasks)
        self.one = self.progress.add_task("rows", total=None, visible=False)

    def task(self, task: Task) -> Report | None:
        """What the engine reports to while it simulates one task."""
        if not self.shown:
            return None
        name = format_size(task.size)

        shown = 0.0

        def report(done: int, rows: int, now: float) -> None:
            nonlocal shown
            if monotonic() > shown + REFRESH:
                shown = monotonic()
                text = f"{name}: {format_time(now)} simulated"
                self.progress.update(
                    self.one, completed=done, total=rows, description=text, visible=rows > 5000
                )

        return report

    def advance(self, row: Row | None = None) -> None:
        """One task is done; the best row so far stands beside the bar."""
        self.progress.advance(self.all)
        if not self.shown or row is None or row.status != "ok" or not row.time_us:
            return
        size, best = row.size_bytes or 0, self.best
        if best is None or (-size, row.time_us) < (-(best.size_bytes or 0), best.time_us or 0.0):
            self.best = row
            where = ", ".join(str(value) for value in row.axes.values())
            text = f"sizes (best: {where} {format_time(row.time_us / 1e6)})" if where else "sizes"
            self.progress.update(self.all, description=text)

    def print(self, text: str) -> None:
        """A line of results, on standard output, above the bar."""
        if self.shown and sys.stdout.isatty():
            self.progress.console.print(text, highlight=False, markup=False, soft_wrap=True)
        else:
            typer.echo(text)


# **** Bar ****
# Where the progress of a run is shown, if anywhere: on a terminal only.


class NoBar:
    """Shows nothing but results."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Nothing is left to tidy up."""

    def task(self, task: Task) -> Report | None:
        """Nobody asks an engine how far it is."""
        del task
        return None

    def advance(self, row: Row | None = None) -> None:
        """One task is done."""

    def print(self, text: str) -> None:
        """A line of results."""
        typer.echo(text)


def bar_over(tasks: int, quiet: bool) -> NoBar | Bar:
    """A bar over so many tasks, or what stands for it where nobody looks."""
    return NoBar() if quiet or not sys.stderr.isatty() else Bar(tasks, quiet)


# **** Workers ****
# The options that say who simulates: this process, several, a Dask cluster, or only a part.


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
def cache(wanted: bool) -> Iterator[run.Cache | None]:
    """The rows of earlier sweeps, if they are wanted."""
    if not wanted:
        yield None
        return
    opened = run.Cache(run.cache_file())
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
