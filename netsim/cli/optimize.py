"""`netsim optimize`: the best of the cells that a scenario's sweep declares, as a scenario file."""

from pathlib import Path
from typing import Annotated

import typer

from netsim.cli.arguments import ScenarioName, Settings
from netsim.cli.bar import bar_over
from netsim.cli.expect_tuner import write_tuner
from netsim.cli.sweep_text import named
from netsim.errors import InputError, suggest
from netsim.files import write_text
from netsim.prepared import prepare
from netsim.results import csv_text, open_folder
from netsim.results.folder import check_writable
from netsim.runs import find_scenario, load_source
from netsim.scenario.cells import Expansion, expand_all
from netsim.sweep.bills import check_prices
from netsim.sweep.constraints import FIGURES, PRICED, constraints_of, nearest_misses
from netsim.sweep.manifest import about
from netsim.sweep.search import OBJECTIVES, Search, Trial, best_of, trials
from netsim.training.details import OF_MODEL
from netsim.yamlio.dump import dump

BEST = "best.yaml"


def command(
    scenario: ScenarioName,
    objective: Annotated[
        str, typer.Option(help="What to make best, of one size.", metavar="FIGURE")
    ] = "",
    constraint: Annotated[
        list[str] | None,
        typer.Option("--subject-to", help="Such as 'cost_usd < 5e6'.", metavar="CONDITION"),
    ] = None,
    trial_count: Annotated[
        int | None, typer.Option("--trials", help="Cells to try; the rest is skipped.", min=1)
    ] = None,
    tuner_out: Annotated[
        Path | None,
        typer.Option(
            help="Write NCCL's best choice by size there, of the best cell.", metavar="FILE"
        ),
    ] = None,
    settings: Settings = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Folder for results.", metavar="DIR")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Keep what is finished.")] = False,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Print results only.")] = False,
) -> None:
    """Search the choices that SCENARIO's sweep declares for the best."""
    found = find_scenario(scenario)
    source = load_source(found.path, settings or [])
    expansion = expand_all(source)
    expansion.refuse_invalid()
    cells = expansion.cells
    if tuner_out is not None:
        check_writable("--tuner-out", tuner_out)
    if len(cells) == 1 and tuner_out is not None:  # the only choice is NCCL's
        write_tuner(prepare(cells[0]), tuner_out, "auto")
        return
    if len(cells) < 2:
        raise InputError(f"{found.path}: declares no choices", hint="write them under sweep:")
    check_prices(cells)
    constraints = constraints_of(constraint or [], cells)
    search = Search(cells, _objective(objective, expansion), constraints, "auto")
    name = f"{cells[0].scenario.name or found.path.stem}"
    folder = output or Path("reports") / f"{name}-optimized"
    manifest = about(expansion, found.path, settings or [], "auto")
    looked: list[Trial] = []
    count = min(trial_count or len(cells), len(cells))
    with open_folder(folder, name, resume=resume, about=manifest) as results:
        try:
            with bar_over(count, quiet) as bar:
                seed = cells[0].scenario.seed
                for trial in trials(search, results, most=trial_count, seed=seed):
                    looked.append(trial)
                    bar.advance(trial.row)
        finally:
            rows = [trial.row for trial in looked]
            write_text(folder / "results.csv", csv_text(rows, list(cells[0].axes)))
            results.sync()
    best = _tell(search, looked, folder)
    if tuner_out is not None:
        write_tuner(prepare(best.cell), tuner_out, "auto")


def _objective(given: str, expansion: Expansion) -> str:
    if given and given not in OBJECTIVES:
        hint = suggest(given, OBJECTIVES)
        known = ", ".join(OBJECTIVES)
        raise InputError(f"--objective: expected one of {known}, got {given!r}{hint}")
    cell = expansion.cells[0]
    needs_prices = given in ("cost_usd", "power_w", "time_x_cost")
    if needs_prices and cell.scenario.prices is None:
        raise InputError(f"--objective {given}: needs prices", hint="add prices: default")
    training = "size_list" in dir(cell.scenario.workload) and not any(
        cell.scenario.workload.size_list()
    )
    return given or ("step_time_us" if training else "time_us")


def _tell(search: Search, looked: list[Trial], folder: Path) -> Trial:
    """Print the best and write the scenario that reproduces it."""
    best = best_of(looked, search.objective)
    out = sum(not trial.allowed for trial in looked)
    failed = sum(trial.row.status != "ok" for trial in looked)
    typer.echo(f"{len(looked)} of {len(search.cells)} cells looked at, {failed} failed, "
               f"{out - failed if out > failed else 0} outside the constraints")  # fmt: skip
    if best is None:
        raise _none(search, looked, folder)
    typer.echo(f"best: {named(best.cell.axes)}")
    said = {search.objective, *FIGURES, *PRICED, *OF_MODEL, *search.constraints.names}
    for name, value in best.figures.items():
        if value is not None and name in said:
            typer.echo(f"  {name:<14}{value:>16,.6g}")
    data = {key: value for key, value in best.cell.source.data.items() if key != "sweep"}
    data["name"] = f"{data.get('name', 'scenario')}-best"
    note = f"# The best of {len(looked)} cells by {search.objective}; netsim run reproduces it.\n"
    path = write_text(folder / BEST, note + dump(data))
    typer.echo(f"wrote {path}", err=True)
    return best


def _none(search: Search, looked: list[Trial], folder: Path) -> InputError:
    """Why there is no best cell."""
    see = f"see {folder / 'results.csv'}"
    ran = [trial for trial in looked if trial.row.status == "ok"]
    if not ran:
        return InputError(f"every cell failed, the first with {looked[0].row.error}", hint=see)
    if all(trial.figures.get(search.objective) is None for trial in ran):
        return InputError(f"--objective {search.objective}: no cell has such a figure", hint=see)
    why = nearest_misses(search.constraints, [(one.cell.axes, one.figures) for one in ran])
    return InputError(f"no cell meets the constraints: {why}", hint=see)
