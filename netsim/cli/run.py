"""`netsim run`: simulate all cells of a scenario and write what was asked for."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import typer

from netsim.cli.arguments import ScenarioName, Settings
from netsim.cli.outputs import write_outputs
from netsim.cli.progress import Bar
from netsim.cli.tables import footer, header, line
from netsim.errors import NetsimError
from netsim.results import Row, csv_text, open_folder
from netsim.runs import checked_cells, find_scenario, load_source, notes_of
from netsim.scenario.cells import Cell
from netsim.scenario.clusters import cluster_label, node_count
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
    tables = form in ("table", "nccl-tests")
    with open_folder(folder, name, resume=resume) as results, Bar(len(tasks), quiet) as bar:
        if tables:
            typer.echo(_title(cells, plain=form == "nccl-tests"))
            typer.echo(header(axes, plain=form == "nccl-tests"))
        try:
            for task, row, error in run_tasks(tasks, results, engine=engine, progress=bar.task):
                rows.append(row)
                failure = failure or error
                bar.advance()
                if tables:
                    root = task.cell.scenario.workload.root
                    bar.print(line(row, axes, plain=form == "nccl-tests", root=root))
        finally:
            results.write_results(rows, axes)
    _print_whole(rows, axes, form)
    return rows, failure


def _print_whole(rows: list[Row], axes: list[str], form: Format) -> None:
    if form == "csv":
        typer.echo(csv_text(rows, axes), nl=False)
    elif form == "json":
        typer.echo(json.dumps([asdict(row) for row in rows], indent=1))
    else:
        typer.echo(footer(rows))


def _title(cells: list[Cell], *, plain: bool) -> str:
    """What is being run, as comment lines."""
    scenario = cells[0].scenario
    work, sizes = scenario.workload, scenario.workload.size_list()
    test = f"# Collective test starting: {work.collective}_perf"
    if not plain:
        algorithm = "" if "workload.algorithm" in cells[0].axes else f", {work.algorithm}"
        several = f", {len(cells)} cells" if len(cells) > 1 else ""
        return (
            f"# {work.collective} on {node_count(scenario.cluster)} x "
            f"{cluster_label(scenario.cluster)}{algorithm}{several}"
        )
    return (
        f"{test}\n# nThread 1 nGpus 1 minBytes {min(sizes)} maxBytes {max(sizes)} "
        "step: 2(factor) warmup iters: 1 iters: 20 agg iters: 1 validation: 0 graph: 0\n#"
    )


def _tell(text: str) -> None:
    typer.echo(text, err=True)


def _silent(text: str) -> None:
    """Say nothing."""
