"""`netsim optimize`: finds the best cell of a scenario's sweep and writes it as a scenario file."""

from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import typer

from netsim.base.errors import InputError, LostError, NetsimError, ScenarioError, suggest
from netsim.base.files import csv_of, write_text
from netsim.base.startup import on, worked
from netsim.cli.output import check_outputs, refuse_output_as_input, tell, wrote
from netsim.cli.run import RunOptions, note_best, refuse_invalid
from netsim.cli.tuner_table import write_tuner
from netsim.cli.workers import helpers_of
from netsim.results.folder import Folder, open_folder
from netsim.results.row import Row
from netsim.results.workspace import RESULTS, check_place
from netsim.scenario.cells import Expansion, expand, expand_all, named
from netsim.scenario.sweep import SEED, looked_up
from netsim.sweep import search as trial_search
from netsim.sweep.run import SizedCell
from netsim.sweep.summary import about, check_prices
from netsim.tasks.answer import find_scenario, load_source
from netsim.tasks.resolve import resolve
from netsim.training.run import OF_MODEL
from netsim.yamlio.read import Source, dump

BEST = "best.yaml"
LAYOUTS = "layouts.csv"  # all layouts, with their estimates


def optimize_scenario(
    scenario: str,
    options: RunOptions,
    objective: str = "",
    constraint: list[str] | None = None,
    trial_count: int | None = None,
    tuner_out: Path | None = None,
) -> None:
    """Search the choices of a scenario's sweep for the best; print it and write it to best.yaml.

    Args:
        objective: the figure to minimize or maximize; empty for the time
        constraint: conditions that the best must meet, such as `memory_GB<80`
        trial_count: how many choices are simulated at most; None for all
        tuner_out: file for a tuner table for the best cell
    """
    scenario_path = find_scenario(scenario).path
    source = load_source(scenario_path, options.changes)
    expansion = expand_all(source)
    refuse_invalid(expansion, skip=options.skip_invalid)
    cells = expansion.cells
    check_outputs({"--tuner-out": tuner_out})
    refuse_output_as_input(tuner_out, [scenario_path])
    if len(cells) == 1 and tuner_out is not None:  # the only choice is NCCL's
        write_tuner(resolve(cells[0]), tuner_out, "auto")
        return
    constraints = trial_search.constraints_of(constraint or [], cells)
    search = trial_search.Search(cells, _objective(objective, expansion), constraints)
    if len(search.choices) < 2:
        raise InputError(f"{scenario_path}: declares no choices", hint="write them under sweep:")
    check_prices(cells)
    name = cells[0].scenario.name or scenario_path.stem
    folder = options.output or Path("reports") / f"{name}-optimized"
    check_place(folder)
    manifest = about(expansion, scenario_path, options.changes, "auto")
    count = min(trial_count or len(cells), len(search.choices)) * len(search.choices[0].tasks)
    trial_search.check_sampler(search, most=trial_count)
    with (
        helpers_of(options.jobs, options.dask, options.memory, cells) as helpers,
        open_folder(
            folder, name, resume=options.resume, about=manifest, verb="optimize", tell=tell
        ) as results,
    ):
        tried = trial_search.trials(
            search,
            results,
            most=trial_count,
            seed=cells[0].scenario.seed,
            workers=helpers,
            together=options.jobs or 1,
        )
        looked = _run_trials(tried, results, list(cells[0].axes), count)
        has_answer = any(not trial.failure for trial in looked)
        if not has_answer and (results.path / RESULTS).exists():
            results.is_withheld = True  # every cell failed: the earlier answer is worth more
        answer = _print_result(search, looked, results, None if trial_count else source)
    if isinstance(answer, NetsimError):
        raise answer
    if tuner_out is not None:
        write_tuner(resolve(answer.choice.cell), tuner_out, "auto")
    if lost := [trial.lost for trial in looked if trial.lost]:
        raise LostError(f"{len(lost)} of {len(looked)} cells looked at were lost: {lost[0]}")


def _run_trials(
    tried: Generator[trial_search.Trial, None, None],
    results: Folder,
    axes: list[str],
    row_count: int,
) -> list[trial_search.Trial]:
    """Run all trials and return them; write the rows of the finished ones even if interrupted.

    `row_count` is the number of rows expected, for the progress display.
    """
    looked: list[trial_search.Trial] = []
    best: Row | None = None
    done = 0

    def write() -> None:
        results.write_results([row for trial in looked for row in trial.rows], axes)

    with results.ended_by(write), closing(tried):
        for trial in tried:
            looked.append(trial)
            for row in trial.rows:
                best = note_best(best, row)
                done += 1
            worked(done, row_count)
            on(f"{done} of {row_count} rows")
    return looked


def _objective(text: str, expansion: Expansion) -> str:
    """The name of the figure to optimize; the time (of a step or an operation) if `text` is empty.

    Raises an InputError for an unknown name, or if the figure needs prices that the scenario lacks.
    """
    if text and text not in trial_search.OBJECTIVES:
        hint = suggest(text, trial_search.OBJECTIVES)
        names = ", ".join(trial_search.OBJECTIVES)
        raise InputError(f"--objective: expected one of {names}, got {text!r}{hint}")
    cell = expansion.cells[0]
    needs_prices = text in ("cost_usd", "power_w", "time_x_cost")
    if needs_prices and cell.scenario.prices is None:
        raise InputError(f"--objective {text}: needs prices", hint="add prices: default")
    training = not any(cell.scenario.workload.size_list())
    return text or ("step_time_us" if training else "time_us")


def _print_result(
    search: trial_search.Search,
    looked: list[trial_search.Trial],
    results: Folder,
    layouts: Source | None,
) -> trial_search.Trial | NetsimError:
    """Print the result of the search and write best.yaml; return the best trial, or the error that
    says why there is none.

    `looked` has the trials that were run. `layouts` is the scenario if estimates of all layouts are
    to be printed, else None.
    """
    best = trial_search.best_of(looked, search.objective)
    out = sum(not trial.allowed for trial in looked)
    failed = sum(bool(trial.failure) for trial in looked)
    seeds = len(search.choices[0].tasks)
    unit = "cells" if seeds == 1 else f"choices, {seeds} seeds each,"
    typer.echo(
        f"{len(looked)} of {len(search.choices)} {unit} looked at, {failed} failed, "
        f"{out - failed if out > failed else 0} outside the constraints"
    )
    if layouts and len(looked) < len(search.choices) and search.estimates:
        _print_layouts(search, looked, results)
        _print_stated_layout(search, layouts)
    if best is None:
        return _no_best_error(
            search, looked, results.place if results.is_withheld else results.path
        )
    if unsure := [trial for trial in looked if trial.doubtful]:
        typer.echo(f"not considered for the best: {_doubtful_text(unsure)}")
    typer.echo(f"best: {named(best.choice.axes)}{'' if seeds == 1 else ' (medians over seeds)'}")
    said = {*trial_search.FIGURES, *trial_search.PRICED, *OF_MODEL}
    said |= {search.objective, *search.constraints.names}
    for name, value in best.figures.items():
        if value is not None and name in said:
            typer.echo(f"  {name:<14}{value:>16,.6g}")
    note = f"# The best of {len(looked)} by {search.objective}; netsim run reproduces it.\n"
    write_text(results.place / BEST, note + dump(_best_scenario(best.choice)))
    wrote(results.path / BEST)
    return best


def _print_layouts(
    search: trial_search.Search, looked: list[trial_search.Trial], results: Folder
) -> None:
    """Print the layouts that were simulated; write layouts.csv with the estimates of
    all layouts.
    """
    refused = sum(bool(trial_of_layout.refused) for trial_of_layout in search.estimates)
    typer.echo(
        f"all {len(search.estimates)} layouts were estimated by one rank of each stage first, "
        f"{refused} of them are refused ({LAYOUTS})"
    )
    for trial in sorted(
        looked, key=lambda trial_of_layout: trial_of_layout.value(search.objective)
    ):
        took = trial.figures.get(search.objective)
        said = trial.failure or f"{took / 1e3:,.1f} ms" if took else "no time"
        typer.echo(f"  {said:>14}  {named(trial.choice.axes)}")
    axes = list(search.choices[0].axes)
    lines = [
        (
            *(trial_of_layout.choice.axes[axis] for axis in axes),
            "" if trial_of_layout.refused else trial_of_layout.seconds * 1e6,
            trial_of_layout.refused,
        )
        for trial_of_layout in search.estimates
    ]
    head = (*(f"axis:{axis}" for axis in axes), "told_step_time_us", "refused")
    write_text(results.place / LAYOUTS, csv_of([head, *lines]))
    wrote(results.path / LAYOUTS)


def _print_stated_layout(search: trial_search.Search, source: Source) -> None:
    """Print how the layout in the scenario file itself ranks among the estimates, if the file
    states one.
    """
    bare = replace(source, data={key: one for key, one in source.data.items() if key != "sweep"})
    try:
        for axis in search.choices[0].axes:
            looked_up(bare.data, {}, axis)
        (cell,) = expand(bare)
    except (KeyError, ScenarioError):
        return
    estimate = trial_search.estimate_layout(trial_search.LayoutChoice({}, (SizedCell(cell, 0),)))
    if estimate.refused:
        typer.echo(f"the layout of the file itself: {estimate.refused}")
        return
    place = 1 + sum(one.seconds < estimate.seconds for one in search.estimates)
    longer = estimate.seconds / search.estimates[0].seconds - 1
    able = sum(not layout.refused for layout in search.estimates)
    typer.echo(
        f"the layout of the file itself: estimated at {estimate.seconds * 1e3:,.1f} ms, "
        f"{longer:+.1%} against the best estimate, place {place} of {able}"
    )


def _best_scenario(choice: trial_search.LayoutChoice) -> dict[str, Any]:
    """The scenario file of a choice as plain values; it sweeps over seeds if the search did."""
    source = choice.cell.source.data
    data = {key: value for key, value in source.items() if key != "sweep"}
    data["name"] = f"{data.get('name', 'scenario')}-best"
    if len(choice.tasks) > 1:
        del data[SEED]
        data["sweep"] = {"seeds": [task.cell.scenario.seed for task in choice.tasks]}
    return data


def _doubtful_text(trials: Sequence[trial_search.Trial]) -> str:
    """The number of these trials and their largest error bound in %, as text."""
    most = max(row.approximation_pct or 0.0 for trial in trials for row in trial.rows)
    return f"{len(trials)} with error bounds of up to {most:.2g} % (approximation_pct)"


def _no_best_error(
    search: trial_search.Search, looked: list[trial_search.Trial], folder: Path
) -> NetsimError:
    """The error that says why no trial is the best: all failed, lack the figure, or break
    constraints.
    """
    see = f"see {folder / 'results.csv'}"
    ran = [trial for trial in looked if not trial.failure]
    if not ran and looked[0].lost:
        return LostError(f"every cell was lost or failed, the first: {looked[0].lost}")
    if not ran:
        return InputError(f"every cell failed, the first with {looked[0].failure}", hint=see)
    if all(trial.figures.get(search.objective) is None for trial in ran):
        return InputError(f"--objective {search.objective}: no cell has such a figure", hint=see)
    if unsure := [one for one in ran if one.doubtful and one.allowed]:
        return InputError(
            f"no cell is sure enough to be the best: {_doubtful_text(unsure)}", hint=see
        )
    why = trial_search.nearest_misses(
        search.constraints, [(one.choice.axes, one.figures) for one in ran]
    )
    return InputError(f"no cell meets the constraints: {why}", hint=see)
