"""`netsim explain`: prints why an operation takes as long as it does, or (`--state`) how an
algorithm works.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import typer

from netsim.base.errors import InputError
from netsim.base.files import made_folder, write_text
from netsim.base.startup import on
from netsim.base.units import parse_cli_size
from netsim.base.values import dataclass
from netsim.cli.explain_step_text import step_csv, step_lines
from netsim.cli.explain_text import explain_csv, explain_lines, paths_csv, paths_lines, time_text
from netsim.cli.options import Engine
from netsim.cli.output import check_outputs, parsed, print_lines, refuse_output_as_input, wrote
from netsim.cli.questions import QuestionOptions, questioned
from netsim.collectives.table import ALGORITHMS, build
from netsim.collectives.verify import ChunkStates, render_text, states
from netsim.plots.explanation import plot_explained_step, plot_explanation
from netsim.plots.timeline import plot_states
from netsim.results.workspace import OutputFolder
from netsim.scenario.names import DTYPES
from netsim.tasks.explained import explained_paths, explained_run, explained_title
from netsim.tasks.jobs import ResolvedJobs, row_of_job
from netsim.tasks.resolve import ResolvedCell
from netsim.training.explain import explained_messages, explained_step
from netsim.training.resolve import ResolvedStep
from netsim.training.run import simulate_step


def print_values(values: Mapping[str, Any], form: str, table: str, lines: Iterable[str]) -> None:
    """Print an explanation in the format `form`: `values` as JSON, `table` as CSV, or `lines` as
    text.
    """
    if form == "json":
        typer.echo(json.dumps(values, indent=1))
    elif form == "csv":
        typer.echo(table, nl=False)
    else:
        print_lines(lines)


def write_values(values: Mapping[str, Any], table: str, folder: Path) -> list[Path]:
    """Write `values` to explain.json and `table` to explain.csv in a folder; return both files."""
    made_folder(folder)
    return [
        write_text(folder / "explain.json", json.dumps(values)),
        write_text(folder / "explain.csv", table),
    ]


MOST_RANKS = 64


def show_states(resolved: ResolvedCell, size: int | None, output: OutputFolder | None) -> None:
    """Print which chunks every rank holds after each step of a textbook algorithm; draw it if there
    is an output folder.
    """
    value = _states(resolved, size)
    typer.echo(render_text(value), nl=False)
    if output is not None:
        work = resolved.cell.scenario.collective
        title = f"{work.algorithm} {work.collective}, {len(resolved.groups[0])} ranks"
        labels = [chunk.label for chunk in value.chunks]
        wrote(
            *output.write(
                lambda place: plot_states(value.states, labels, place / "state", title=title)
            )
        )


def _states(resolved: ResolvedCell, size: int | None) -> ChunkStates:
    """Which chunks every rank holds after each step of a textbook algorithm.

    `size` is in bytes; None takes a few elements in every chunk.
    """
    work = resolved.cell.scenario.collective
    ranks = len(resolved.groups[0])
    if ranks > MOST_RANKS:
        raise InputError(f"explain --state: at most {MOST_RANKS} ranks can be read, got {ranks}")
    # By default 16 elements for every pair of ranks: enough for several in each chunk, however the
    # algorithm divides the data.
    nbytes = size or ranks * ranks * 16 * DTYPES[work.dtype]
    collective = resolved.collective(nbytes)
    if resolved.is_nccl:
        names = ", ".join(ALGORITHMS[work.collective])
        raise InputError(
            "explain --state: shows textbook algorithms, not NCCL's own",
            hint=f"choose one with --set workload.algorithm=…: {names}",
        )
    return states(build(collective, work.built_by, **resolved.parameters), collective)


def beside_lines(resolved: ResolvedJobs, size: int | None, engine: str) -> Iterator[str]:
    """Yield how much longer a job takes beside all other jobs, and beside each one of them.

    `size` is in bytes; None takes the last of the job's sizes.
    """
    sizes = resolved.cell.scenario.workload.size_list()
    if size is not None and size not in sizes:
        raise InputError(f"--size: expected one of the job's, {', '.join(map(str, sizes))}")
    row = row_of_job(resolved, sizes[-1] if size is None else size, engine)
    took = row.step_time_us or row.time_us or 0.0
    alone = row.alone_us or 0.0
    name = resolved.jobs[resolved.number].name
    yield (
        f"{name}: {time_text(took)} beside the other jobs, {time_text(alone)} without them: "
        f"{row.slowdown:.3g} times as long"
    )
    for neighbor in [key[3:] for key in row.neighbours if key.startswith("by:")]:
        times = row.neighbours[f"by:{neighbor}"]
        link = row.neighbours[f"on:{neighbor}"]
        where = f"they meet most on {link}" if link else "they share no link"
        yield f"  beside {neighbor} only: {times:.3g} times as long; {where}"
    yield "Without the other jobs:\n"


def explain_step(
    resolved: ResolvedStep, form: str, output: OutputFolder | None, engine: str
) -> None:
    """Simulate and explain a training step; print it, and write it to the output folder if there is
    one.
    """
    on(f"a step of {resolved.work.label}")
    step = simulate_step(resolved, engine=engine)
    values = explained_step(step, engine=engine)
    table = step_csv(values)
    print_values(values, form, table, step_lines(values))
    if output is not None:
        wrote(
            *output.write(
                lambda place: [
                    *write_values(values, table, place),
                    *plot_explained_step(values, place),
                ]
            )
        )


def explain_rows(
    values: dict[str, Any], form: str, output: OutputFolder | None, title: str
) -> None:
    """Print the explanation of an operation (a collective, or a step simulated as messages).

    It is written to the output folder as well, if there is one.
    """
    table = explain_csv(values)
    print_values(values, form, table, explain_lines(values, title))
    if output is not None:
        wrote(
            *output.write(
                lambda place: [
                    *write_values(values, table, place),
                    *plot_explanation(values, place),
                ]
            )
        )


USUAL_SIZE = "64M"


@dataclass(frozen=True)
class ExplainOptions:
    """The options of `explain`, as they were given, except those of the cluster
    (`QuestionOptions`).
    """

    state: bool
    paths: bool
    seeds: int
    size: str | None
    output: Path | None
    form: Literal["table", "csv", "json"]
    engine: Engine


def explain_subject(
    subject: str, collective: str | None, question: QuestionOptions, options: ExplainOptions
) -> None:
    """Explain the time of a scenario (a training step as well), or of a collective on a topology.

    `subject` names the scenario, or the topology if a collective is given.
    """
    check_outputs({}, output=options.output)
    folder = None
    if options.output is not None:
        refuse_output_as_input(options.output, [Path(subject)])
        folder = OutputFolder(options.output, "explain", (subject, collective or ""))
        folder.check()
    size = None if options.size is None else parsed(parse_cli_size, "--size", options.size)
    question = replace(question, sizes=options.size or USUAL_SIZE)
    resolved, notes = questioned(subject, collective, question)
    print_lines(notes, err=True)
    if isinstance(resolved, ResolvedJobs):
        lines = beside_lines(resolved, size, options.engine)
        print_lines(lines, err=options.form != "table")
        resolved = resolved.alone[resolved.number]
    if isinstance(resolved, ResolvedStep):
        _explain_training_step(resolved, options, folder)
    else:
        _explain_collective(resolved, size, options, folder)


def _explain_training_step(
    resolved: ResolvedStep, options: ExplainOptions, folder: OutputFolder | None
) -> None:
    """Explain a training step; raise an InputError for options that go with collectives only."""
    of_collectives = {
        "--size": options.size,
        "--state": options.state,
        "--paths": options.paths,
    }
    for flag, value in of_collectives.items():
        if value:
            raise InputError(f"{flag}: goes with a collective, not with a training step")
    if resolved.lowered is None:
        explain_step(resolved, options.form, folder, options.engine)
        return
    step = simulate_step(resolved, engine=options.engine)
    values = explained_messages(step, engine=options.engine)
    explain_rows(values, options.form, folder, values["title"])


def _explain_collective(
    resolved: ResolvedCell,
    size: int | None,
    options: ExplainOptions,
    folder: OutputFolder | None,
) -> None:
    """Explain one operation of `size` bytes; None takes the largest size of the cell."""
    if options.state:
        show_states(resolved, size, folder)
        return
    size = size or max(resolved.cell.scenario.collective.size_list())
    title = explained_title(resolved, size)
    if options.paths:
        values = explained_paths(resolved, size, seeds=options.seeds, engine=options.engine)
        print_values(values, options.form, paths_csv(values), paths_lines(values, title))
        return
    values = explained_run(resolved, size, engine=options.engine)[0]
    explain_rows(values, options.form, folder, title)
