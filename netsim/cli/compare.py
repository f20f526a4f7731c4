"""`netsim compare`: measured logs and traces against the prediction, and what would explain it."""

import json
from collections.abc import Iterator
from dataclasses import asdict
from math import inf
from pathlib import Path
from typing import Annotated

import typer

from netsim.cli.compare_text import header, line, summary
from netsim.cli.compare_trace import compare_traces
from netsim.cli.expect_question import Given
from netsim.cli.logs_question import Question, prepared_with_notes, question_of
from netsim.errors import InputError
from netsim.files import write_text
from netsim.measured.bands import ALL, as_values
from netsim.measured.comparison import Compared, compare, prepared_for
from netsim.measured.hypotheses import explanations
from netsim.measured.log_run import LogRun
from netsim.measured.logs import read_log
from netsim.plots import plot_results
from netsim.results import csv_text
from netsim.results.folder import check_writable
from netsim.scenario.clusters import line_rate, node_count
from netsim.training.recorded.reading import is_trace
from netsim.units import UnitError, parse_ratio
from netsim.yamlio.source import Source

Text = str | None
FAR = 0.25  # log ratio from which a run that is slower than simulated is explained
SHOWN = 5
ALTERNATIVES = 3  # causes that look the same, of which more are too many to read


def command(
    logs: Annotated[
        list[Path],
        typer.Argument(help="Logs, JSON or CSV; traces of PyTorch's profiler.", metavar="LOG…"),
    ],
    topology: Annotated[
        Text, typer.Option(help="A machine, or a topology file (default: as the log says).")
    ] = None,
    scenario: Annotated[Text, typer.Option(help="A scenario instead.", metavar="S")] = None,
    tolerance: Annotated[
        str, typer.Option(help="Largest median error that passes.", metavar="15%")
    ] = "15%",
    collective: Annotated[Text, typer.Option(help="What a silent log timed.", metavar="C")] = None,
    nodes: Annotated[int | None, typer.Option(help="Hosts.", metavar="N")] = None,
    gpus_per_node: Annotated[
        int | None, typer.Option(help="GPUs of a host in use.", metavar="G")
    ] = None,
    fabric: Annotated[Text, typer.Option(help="What joins the hosts.", metavar="K")] = None,
    nic: Annotated[Text, typer.Option(help="Line rate of the NICs.", metavar="400Gbps")] = None,
    nics_per_node: Annotated[
        int | None, typer.Option(help="NICs of a host in use.", metavar="K")
    ] = None,
    transport: Annotated[Text, typer.Option(help="infiniband, roce, …", metavar="T")] = None,
    algo: Annotated[Text, typer.Option(help="Force an algorithm.", metavar="A")] = None,
    proto: Annotated[Text, typer.Option(help="Force LL, LL128 or Simple.", metavar="P")] = None,
    launch: Annotated[
        Text, typer.Option(help="process_per_gpu, single_process, …", metavar="L")
    ] = None,
    nccl: Annotated[Text, typer.Option(help="NCCL's version, as 2.27.", metavar="V")] = None,
    env: Annotated[
        list[str] | None, typer.Option(help="An NCCL variable.", metavar="NAME=VALUE")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="Replace one value of the scenario.", metavar="KEY=VALUE"),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Write CSV, JSON and pictures.", metavar="DIR"),
    ] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write the comparison.", metavar="FILE")
    ] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Try causes even where the fit is good.")
    ] = False,
) -> None:
    """Print measured times of LOG… (or traces) beside simulated ones, and the error by size."""
    most = tolerance_of(tolerance)
    if topology is not None and scenario is not None:
        raise InputError("give --topology or --scenario, not both")
    flags = {
        "nodes": nodes, "gpus_per_node": gpus_per_node, "nic": nic, "nics_per_node": nics_per_node,
        "algo": algo, "proto": proto, "launch": launch, "nccl": nccl,
    }  # fmt: skip
    given = Given(flags, "8", fabric, transport, tuple(env or ()), False, tuple(settings or ()))
    asked = Question(topology, scenario, given)
    if json_file is not None:
        check_writable("--json", json_file)
    traces = [path for path in logs if is_trace(path)]
    if traces:
        _refuse_for_traces(traces, logs, collective, explain=explain)
        worst = compare_traces(traces, asked, output, json_file)
    else:
        runs = [run for path in logs for run in read_log(path, collective)]
        done = [_compared(asked, run, explain) for run in runs]
        _write(done, asked, output, json_file)
        worst = max((one.bands[ALL].median for one in done if one.points), default=inf)
    if worst > most:
        typer.echo(f"# beyond the tolerance: {worst:.1%} > {most:.1%}", err=True)
        raise typer.Exit(1)


def _refuse_for_traces(
    traces: list[Path], logs: list[Path], collective: str | None, *, explain: bool
) -> None:
    """What goes with logs only."""
    if len(traces) < len(logs):
        other = next(path for path in logs if path not in traces)
        raise InputError(f"{traces[0]} is a trace, {other} is none: compare them one by one")
    for name, given in (("--collective", collective is not None), ("--explain", explain)):
        if given:
            raise InputError(f"{name}: goes with logs, {traces[0]} is a trace")


def tolerance_of(text: str) -> float:
    """A tolerance such as 15%."""
    try:
        return parse_ratio(text)
    except UnitError as error:
        raise InputError(f"--tolerance {text}: {error}") from None


def _compared(asked: Question, run: LogRun, explain: bool) -> Compared:
    """One run, printed as it is compared."""
    source, notes = question_of(asked, run)
    if not run.rows:
        raise InputError(f"{run.file}: {run.problems[0] if run.problems else 'no rows'}")
    prepared = prepared_with_notes(source, notes, run)
    if len(run.rows) == 1:
        typer.echo(f"{run.file}: one size only: no curve to compare", err=True)
    found = compare(prepared, run)
    hosts = node_count(prepared.cell.scenario.cluster)
    typer.echo(f"# {run.collective} on {hosts} x {found.rows[0].topology}, {run.file}")
    typer.echo(header())
    for row in found.rows:
        typer.echo(line(row, run.choices))
    for text in summary(found.bands):
        typer.echo(text)
    if explain or (found.points and found.slower > FAR):
        for text in _causes(source, run):
            typer.echo(text)
    typer.echo("#")
    return found


def _causes(source: Source, run: LogRun) -> Iterator[str]:
    found = explanations(source, run)
    if not found:
        return
    good = [one for one in found if one.explains]
    yield (
        "# single causes that would explain it, the best fit first:"
        if good
        else "# no single cause that was tried explains it; the nearest:"
    )
    for one in (good or found)[:SHOWN]:
        text = " or ".join(one.names[:ALTERNATIVES])
        yield f"#   {text}: mean error {one.error:.0%} instead of {one.before:.0%}"


def _write(
    done: list[Compared], asked: Question, output: Path | None, json_file: Path | None
) -> None:
    rows = [row for one in done for row in one.rows]
    values = [
        {
            "run": one.run.file,
            "collective": one.run.collective,
            "points": [asdict(point) for point in one.points],
            "bands": as_values(one.bands),
        }
        for one in done
    ]
    if json_file is not None:
        write_text(json_file, json.dumps(values, indent=1) + "\n")
    if output is None:
        return
    output.mkdir(parents=True, exist_ok=True)
    table = write_text(output / "results.csv", csv_text(rows))
    write_text(output / "comparison.json", json.dumps(values, indent=1) + "\n")
    source, _ = question_of(asked, done[0].run)
    rate = line_rate(prepared_for(source, done[0].run).cell.scenario.cluster)
    for file in (table, output / "comparison.json", *plot_results([table], output, line_rate=rate)):
        typer.echo(f"wrote {file}", err=True)
