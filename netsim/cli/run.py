"""`netsim run`: simulate all cells of a scenario and write what was asked for."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from netsim.cli.arguments import ScenarioName, Settings
from netsim.cli.outputs import write_outputs
from netsim.cli.progress import Bar
from netsim.cli.run_text import PRINTERS
from netsim.errors import NetsimError
from netsim.results import Row, open_folder
from netsim.runs import checked_cells, find_scenario, load_source, notes_of
from netsim.scenario.cells import Cell
from netsim.sweep import run_tasks, tasks_of

Format = Literal["table", "nccl-tests", "csv", "json"]


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
    seed: Annotated[int | None, typer.Option(help="Replace the scenario's seed.")] = None,
    form: Annotated[Format, typer.Option("--format", help="What to print.")] = "table",
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Print results only.")] = False,
    verbose: Annotated[bool, typer.Option("-v", "--verbose", help="Say more.")] = False,
) -> None:
    """Simulate all cells of SCENARIO and write results, plots and a trace."""
    found = find_scenario(scenario)
    changes = [*(settings or []), *([] if seed is None else [f"seed={seed}"])]
    cells = checked_cells(load_source(found.path, changes))
    tell = _silent if quiet else _tell
    for note in dict.fromkeys([found.note, *notes_of(cells)]):
        if note:
            tell(note)
    name = cells[0].scenario.name or found.path.stem
    folder = output or Path("reports") / name
    rows, failure = _simulate(cells, folder, name, engine, form, resume=resume, quiet=quiet)
    if failure is None or len(cells) > 1:
        for file in write_outputs(cells, folder, engine):
            tell(f"wrote {file}")
    if verbose:
        tell(f"{sum(row.rows or 0 for row in rows)} rows of schedules were simulated")
    if failure is not None:
        raise failure


def _simulate(
    cells: list[Cell],
    folder: Path,
    name: str,
    engine: str,
    form: Format,
    *,
    resume: bool,
    quiet: bool,
) -> tuple[list[Row], NetsimError | None]:
    """Simulate, printing rows as they are finished; the first failure is told at the end."""
    axes = list(cells[0].axes)
    tasks = tasks_of(cells)
    rows: list[Row] = []
    failure = None
    printer = PRINTERS[form](cells)
    with open_folder(folder, name, resume=resume) as results, Bar(len(tasks), quiet) as bar:
        try:
            for task, row, error in run_tasks(tasks, results, engine=engine, progress=bar.task):
                rows.append(row)
                failure = failure or error
                bar.advance()
                for text in printer.lines(task.cell, row):
                    bar.print(text)
        finally:
            results.write_results(rows, axes)
    for text in printer.end(rows):
        typer.echo(text)
    return rows, failure


def _tell(text: str) -> None:
    typer.echo(text, err=True)


def _silent(text: str) -> None:
    """Say nothing."""
