"""`netsim run`: simulate all cells of a scenario and write what was asked for."""

from contextlib import closing
from pathlib import Path
from typing import Annotated, Literal

import typer

from netsim.cli.arguments import ScenarioName, Settings
from netsim.cli.bar import bar_over
from netsim.cli.outputs import write_outputs
from netsim.cli.run_text import PRINTERS
from netsim.cli.sweep_text import after_lines, approximations, refuse_invalid, worst
from netsim.cli.workers import (
    Dask,
    Jobs,
    Shard,
    SkipInvalid,
    UseCache,
    cache,
    part_of,
    shard_of,
    workers,
)  # fmt: skip
from netsim.errors import InputError, NetsimError
from netsim.measured import overlay
from netsim.results import Row, open_folder
from netsim.runs import checked, find_scenario, load_source, notes_of
from netsim.scenario.cells import Cell, Expansion
from netsim.scenario.unused import unused_keys
from netsim.sweep import Task, run_tasks, tasks_of
from netsim.sweep.bills import check_prices, write_costs
from netsim.sweep.manifest import about
from netsim.sweep.tasks import engine_for, invalid_row
from netsim.sweep.written import write_tables
from netsim.values import dataclass

Format = Literal["table", "nccl-tests", "csv", "json"]


@dataclass(frozen=True)
class _Run:
    """What is run and how."""

    expansion: Expansion
    cells: list[Cell]
    folder: Path
    name: str
    engine: str
    form: Format
    manifest: dict[str, object]
    jobs: int | None
    dask: str | None
    cached: bool
    resume: bool
    quiet: bool


def command(
    scenario: ScenarioName,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Folder for results.", metavar="DIR")
    ] = None,
    settings: Settings = None,
    engine: Annotated[
        Literal["auto", "simpy", "compiled"], typer.Option(help="Engine; the answer is the same.")
    ] = "auto",
    resume: Annotated[bool, typer.Option("--resume", help="Keep what is finished.")] = False,
    jobs: Jobs = None,
    dask: Dask = None,
    shard: Shard = None,
    use_cache: UseCache = False,
    skip_invalid: SkipInvalid = False,
    seed: Annotated[int | None, typer.Option(help="Replace the scenario's seed.")] = None,
    form: Annotated[Format, typer.Option("--format", help="What to print.")] = "table",
    allow_oom: Annotated[
        bool,
        typer.Option("--allow-oom", help="Run steps that need more memory than there is."),
    ] = False,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Print results only.")] = False,
    verbose: Annotated[bool, typer.Option("-v", "--verbose", help="Say more.")] = False,
) -> None:
    """Simulate all cells of SCENARIO and write results, plots and a trace."""
    found = find_scenario(scenario)
    oom = ["workload.allow_oom=true"] if allow_oom else []
    changes = [*(settings or []), *oom, *([] if seed is None else [f"seed={seed}"])]
    part = shard_of(shard)
    expansion = checked(load_source(found.path, changes))
    refuse_invalid(expansion, skip=skip_invalid)
    cells, tell = expansion.cells, _silent if quiet else _tell
    for note in dict.fromkeys([found.note, *notes_of(cells)]):
        if note:
            tell(note)
    for text in unused_keys(cells):
        tell(f"warning: {text}")
    check_prices(cells)
    for cell in cells:
        if cell.scenario.measured is not None:
            overlay.check(cell)
    name = cells[0].scenario.name or found.path.stem
    folder = output or Path("reports") / (name if part is None else f"{name}-{part[0]}of{part[1]}")
    one = engine_for(tasks_of(cells), engine)
    manifest = about(expansion, found.path, changes, one, part)
    job = _Run(expansion, part_of(cells, part), folder, name, one, form, manifest, jobs, dask,
               use_cache, resume, quiet)  # fmt: skip
    rows, failure = _simulate(job)
    if failure is None or len(cells) > 1:
        written = [str(folder / "results.csv")]
        if part is None:
            tables = [*write_tables(expansion, rows, folder), *write_costs(cells, folder)]
            written = [*tables, *write_outputs(cells, folder, engine)]
        for file in written:
            tell(f"wrote {file}")
    for text in approximations(rows):
        tell(text)
    for text in after_lines(expansion, rows, one) if part is None else ():
        tell(text)
    if verbose:
        tell(f"{sum(row.rows or 0 for row in rows)} rows of schedules were simulated")
    if failure is not None:
        raise failure


def _simulate(job: _Run) -> tuple[list[Row], NetsimError | None]:
    """Simulate, printing rows as they are finished; the first failure is told at the end."""
    axes, tasks = list(job.cells[0].axes) if job.cells else [], tasks_of(job.cells)
    if not tasks:
        raise InputError("this part has no cells", hint="there are fewer cells than parts")
    rows: list[Row] = []
    failures: list[NetsimError] = []
    printer = PRINTERS[job.form](job.cells)
    with (
        open_folder(job.folder, job.name, resume=job.resume, about=job.manifest) as results,
        workers(job.jobs, job.dask) as helpers,
        cache(job.cached) as known,
        bar_over(len(tasks), job.quiet) as bar,
    ):
        progress = bar.task if helpers is None else _unseen
        if results.discarded:
            _tell(f"{results.discarded} rows of a run that did not end are dropped "
                  "(--resume keeps them)")  # fmt: skip
        if results.failed:
            _tell(f"{results.failed} rows that failed are tried again")
        try:
            with closing(
                run_tasks(
                    tasks,
                    results,
                    engine=job.engine,
                    workers=helpers,
                    cache=known,
                    progress=progress,
                )
            ) as found:
                for task, row, error in found:
                    rows.append(row)
                    failures += [error] if error else []
                    bar.advance(row)
                    for text in printer.lines(task.cell, row):
                        bar.print(text)
        finally:
            results.write_results(_in_order(job, rows), axes)
        if known is not None and known.found and not job.quiet:
            _tell(f"{known.found} of {len(tasks)} rows were known from earlier sweeps")
    for text in printer.end(rows):
        typer.echo(text)
    return rows, worst(failures, len(tasks))


def _in_order(job: _Run, rows: list[Row]) -> list[Row]:
    """The rows that are there, with those of points that are invalid in their places."""
    if not job.expansion.invalid:
        return rows
    left = iter(rows)
    ordered: list[Row] = []
    mine = {id(cell) for cell in job.cells}
    for point in job.expansion.points:
        if not isinstance(point, Cell):
            ordered.append(invalid_row(point, job.name))
        elif id(point) in mine:
            sizes = len(point.scenario.workload.size_list())
            ordered += [row for _, row in zip(range(sizes), left, strict=False)]
    return ordered


def _unseen(task: Task) -> None:
    """No progress within a task that runs elsewhere."""
    del task


def _tell(text: str) -> None:
    typer.echo(text, err=True)


def _silent(text: str) -> None:
    """Say nothing."""
