"""`netsim compare`: measured logs and traces against the prediction, and what would explain it."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from math import inf, log1p
from pathlib import Path
from typing import Any

import numpy as np
import typer

from netsim.base.errors import InputError
from netsim.base.files import csv_of, write_text
from netsim.base.units import parse_ratio
from netsim.cli import check_outputs, parsed, print_lines, with_options, wrote
from netsim.cli.log_questions import Question, cell_of_trace, prepared_with_notes, question_of
from netsim.cli.questions import ONLY_EXPECT, Given, Text
from netsim.measured import compare as comparing
from netsim.measured.hypotheses import SIZES, explanations
from netsim.measured.logs import LogRun, read_log
from netsim.plots.explanation import plot_calls
from netsim.plots.results import plot_results
from netsim.results.nccl_tests import microseconds
from netsim.results.row import BANDS, Row, csv_text
from netsim.results.workspace import RESULTS, OutputFolder
from netsim.scenario.models import cluster_label, hosts_label, line_rate
from netsim.training.compared import Line, TraceCompared, compare_trace
from netsim.training.prepare import PreparedStep, prepare_step
from netsim.training.recorded.kineto import Profile, is_trace, read_profile
from netsim.training.run import simulate_step
from netsim.yamlio.read import Source

HEADER = (
    f"# {'size':>11}  {'measured':>9}  {'simulated':>9}  {'error':>7}  "
    f"{'measured':>9}  {'simulated':>9}  algorithm      protocol\n"
    f"# {'(B)':>11}  {'(us)':>9}  {'(us)':>9}  {'(%)':>7}  {'busbw':>9}  {'busbw':>9}"
)


def line(row: Row, logged: Mapping[int, tuple[str, str]]) -> str:
    """One size; where the log tells another choice of NCCL's, that as well."""
    size, measured = row.size_bytes or 0, row.measured_time_us or 0.0
    if row.status != "ok" or row.time_us is None or row.busbw_GBps is None:
        return f"{size:>13}  {microseconds(measured):>9}  not simulated: {row.error}"
    busbw = row.busbw_GBps * row.time_us / measured
    said = logged.get(size)
    other = said is not None and said != (row.algorithm, row.protocol)
    choice = f"{row.algorithm:<14} {row.protocol}"
    return (
        f"{size:>13}  {microseconds(measured):>9}  {microseconds(row.time_us):>9}  "
        f"{row.error_pct or 0.0:>+7.1f}  {busbw:>9.2f}  {row.busbw_GBps:>9.2f}  "
        f"{choice}{f'  (the log: {said[0]} {said[1]})' if said and other else ''}"
    )


def summary(bands: Mapping[str, comparing.Error], what: str = "sizes") -> Iterator[str]:
    """The error by band."""
    for band in (*BANDS, comparing.ALL):
        if band in bands:
            error = bands[band]
            yield (
                f"# {band:>12}: median error {error.median:6.1%}, 90th percentile "
                f"{error.p90:6.1%}, bias {error.bias:+.1%} ({error.points} {what})"
            )


TABLE = "collectives.csv"
COLUMNS = {
    **{name: f"any.{name}" for name in ("collective", "group", "ranks", "size_bytes", "dtype")},
    "calls": "measured.calls", "measured_us": "measured.us", "least_us": "measured.least_us",
    "time_us": "simulated.us", "alone_us": "simulated.alone_us", "error_pct": ".error",
    "measured_total_us": "measured.total_us", "total_us": "simulated.total_us",
    "measured_exposed_us": "measured.exposed_us", "exposed_us": "simulated.exposed_us",
    "simulated_calls": "simulated.calls", "algorithm": "simulated.algorithm",
    "protocol": "simulated.protocol", "channels": "simulated.channels",
}  # fmt: skip


def record(line: Line) -> dict[str, Any]:
    """A kind of calls by the columns of the table; None is what is missing."""
    found: dict[str, Any] = {}
    for column, place in COLUMNS.items():
        part, _, name = place.partition(".")
        found[column] = getattr(getattr(line, part) if part else line, name, None)
    return found | {"error_pct": None if line.error is None else line.error * 100}


def compare_traces(
    traces: Sequence[Path], asked: Question, output: OutputFolder | None, json_file: Path | None
) -> float:
    """Compare every trace, print and write it; the largest error of one."""
    profiles = [read_profile(path) for path in traces]  # all, before the first is answered
    done = [_compared_trace(asked, *one) for one in zip(traces, profiles, strict=True)]
    every = [(one.trace, line) for one in done for line in one.lines]
    rows = [(Path(trace).name, *record(line).values()) for trace, line in every]
    table = csv_of([("trace", *COLUMNS), *rows])
    values = [as_json(one) for one in done]
    if files := _write(values, json_file, output, TABLE, table, plot_calls, is_whole=True):
        wrote(*files)
    return max(map(error_of_time, done))


def _compared_trace(asked: Question, path: Path, profile: Profile) -> TraceCompared:
    cell, notes = cell_of_trace(asked, path, profile)
    prepared = prepare_step(cell)
    ranks = prepared.setting.grid.size
    if ranks != profile.world:
        raise InputError(f"{path}: the trace is of {profile.world} ranks, the scenario of {ranks}")
    for note in (*notes, *_asides(profile, prepared)):
        typer.echo(f"{path}: {note}", err=True)
    cluster = cell.scenario.cluster
    found = compare_trace(str(path), cluster_label(cluster), profile, simulate_step(prepared))
    typer.echo(f"# rank {profile.rank} of {ranks} on {hosts_label(cluster)}, {path}")
    print_lines(lines(found))
    return found


def _asides(profile: Profile, prepared: PreparedStep) -> Iterator[str]:
    if prepared.recorded is not None:
        yield from prepared.recorded.notes
    elif profile.unsized:
        yield f"{profile.unsized} kernels of NCCL's without size or peers left out"
    if len(profile.steps) > 1:
        yield f"measured times are those of {len(profile.steps)} steps"


def bands_of(found: TraceCompared) -> dict[str, comparing.Error]:
    """The error by size band, over the kinds of calls that have both times."""
    points = [
        comparing.Point(
            found.trace, found.machine, line.any.collective, line.any.size_bytes,
            line.measured.us, line.simulated.us, line.simulated.algorithm,
            line.simulated.protocol, True,
        )
        for line in found.lines
        if line.measured is not None and line.simulated is not None
    ]  # fmt: skip
    return comparing.by_band(points)


def error_of_time(found: TraceCompared) -> float:
    """The median error, each kind of call counted by its measured time; infinite without any."""
    pairs = [
        (log1p(line.error), line.measured.total_us)
        for line in found.lines
        if line.measured is not None and line.error is not None
    ]
    if not pairs:
        return inf
    ratios, spent = np.array(pairs).T
    return comparing.error_figures(ratios, spent)[0]


def lines(found: TraceCompared) -> Iterator[str]:
    """The comparison as text: a line a kind of call, the error by band, the step."""
    yield (
        f"# {'collective':<14}  {'group':<14}  {'ranks':>5}  {'size':>11}  {'calls':>5}  "
        f"{'measured':>9}  {'least':>9}  {'simulated':>9}  {'alone':>9}  {'error':>7}  "
        f"{'exposed':>9}  {'simulated':>9}  algorithm"
    )
    yield (
        f"# {'':<14}  {'':<14}  {'':>5}  {'(B)':>11}  {'/step':>5}  {'(us)':>9}  {'(us)':>9}  "
        f"{'(us)':>9}  {'(us)':>9}  {'(%)':>7}  {'(us/step)':>9}  {'(us/step)':>9}"
    )
    yield from map(_line, found.lines)
    yield from summary(bands_of(found), "kinds of calls")
    if bands_of(found):
        yield f"# {'time':>12}: half of the measured time is within {error_of_time(found):.1%}"
    error = found.simulated_step_us / found.step_us - 1
    yield (
        f"# {'step':>12}: measured {microseconds(found.step_us)} us, simulated "
        f"{microseconds(found.simulated_step_us)} us ({error:+.1%})"
    )
    yield "#"


def _line(line: Line) -> str:
    row = record(line)
    times = ("measured_us", "least_us", "time_us", "alone_us")
    first, second = (
        "  ".join(f"{'-' if row[name] is None else microseconds(row[name]):>9}" for name in names)
        for names in (times, ("measured_exposed_us", "exposed_us"))
    )
    error = "-" if line.error is None else f"{row['error_pct']:+.1f}"
    chosen = "not simulated"
    if line.simulated is not None:
        chosen = " ".join(filter(None, (row["algorithm"], row["protocol"])))
        chosen += "" if line.measured is not None else "  (not in the trace)"
    return (
        f"  {row['collective']:<14}  {row['group'][:14]:<14}  {row['ranks']:>5}  "
        f"{row['size_bytes']:>11}  {line.any.calls:>5g}  {first}  {error:>7}  {second}  {chosen}"
    )


def as_json(found: TraceCompared) -> dict[str, Any]:
    """A comparison as plain values."""
    return {
        "trace": found.trace,
        "machine": found.machine,
        "step_us": found.step_us,
        "simulated_step_us": found.simulated_step_us,
        "calls": [{**asdict(line), "error": line.error} for line in found.lines],
        "bands": comparing.as_values(bands_of(found)),
    }


def _write(
    values: list[dict[str, Any]], json_file: Path | None, output: OutputFolder | None, name: str,
    table: str, plot: Callable[[Path, Path], list[Path]], *, is_whole: bool,
) -> list[Path]:  # fmt: skip
    """Write a comparison as JSON, and with its table and pictures to a folder; return the files
    there. A part of a comparison, of one that was interrupted, replaces nothing."""
    text = json.dumps(values, indent=1) + "\n"
    if json_file is not None and (is_whole or not json_file.is_file()):
        write_text(json_file, text)
    if output is None or not (is_whole or not output.has_results()):
        return []

    def write(place: Path) -> list[Path]:
        written = write_text(place / name, table)
        return [written, write_text(place / "comparison.json", text), *plot(written, place)]

    return output.write(write)


MEANING = (
    "# error: simulated / measured - 1; of several, the median of the factor by which they differ\n"
    "# either way, less 1 (at 0.5 and at 2 times it is 100%); bias: the same with its sign"
)
FAR = 0.25  # log ratio from which a run that is slower than simulated is explained
SHOWN = 5
ALTERNATIVES = 3  # causes that look the same, of which more are too many to read


@with_options(Given, "sizes", "dtype", *ONLY_EXPECT)
def command(
    logs: list[Path], given: Given, topology: Text = None, scenario: Text = None,
    tolerance: str = "15%", collective: Text = None, output: Path | None = None,
    json_file: Path | None = None, explain: bool = False,
) -> None:  # fmt: skip
    """Print measured times of LOG… (or traces) beside simulated ones, and the error by size."""
    most = parsed(parse_ratio, "--tolerance", tolerance)
    if most > 1 and "%" not in tolerance:
        message = f"--tolerance {tolerance}: expected a part such as 15% or 0.15"
        raise InputError(message, hint=f"did you mean {tolerance}%?")
    if topology is not None and scenario is not None:
        raise InputError("give --topology or --scenario, not both")
    asked = Question(topology, scenario, given)
    check_outputs({"--json": json_file}, output=output)
    folder = None
    if output is not None:
        folder = OutputFolder(output, "compare", tuple(map(str, logs)))
        folder.check()
    traces = [path for path in logs if is_trace(path)]
    if traces:
        if len(traces) < len(logs):
            other = next(path for path in logs if path not in traces)
            raise InputError(f"{traces[0]} is a trace, {other} is none: compare them one by one")
        for name, value in (("--collective", collective is not None), ("--explain", explain)):
            if value:
                raise InputError(f"{name}: goes with logs, {traces[0]} is a trace")
        worst = compare_traces(traces, asked, folder, json_file)
    else:
        runs = [run for path in logs for run in read_log(path, collective)]
        done: list[comparing.Compared] = []
        is_whole = False
        typer.echo(MEANING)
        try:
            for run in runs:
                _compared(asked, run, done, explain=explain)
            is_whole = True
        finally:  # what is finished is worth having
            _write_logs(done, folder, json_file, is_whole=is_whole)
        worst = max((one.bands[comparing.ALL].median for one in done if one.points), default=inf)
    if worst > most:
        typer.echo(f"# beyond the tolerance: {worst:.1%} > {most:.1%}", err=True)
        raise typer.Exit(1)


def _compared(
    asked: Question, run: LogRun, done: list[comparing.Compared], *, explain: bool
) -> None:
    """One run, whose rows are printed and kept as they are compared."""
    if not run.rows:
        raise InputError(f"{run.file}: {run.problems[0] if run.problems else 'no rows'}")
    source, notes = question_of(asked, run)
    prepared = prepared_with_notes(source, notes, run)
    if len(run.rows) == 1:
        typer.echo(f"{run.file}: one size only: no curve to compare", err=True)
    cluster, rows = prepared.cell.scenario.cluster, list[Row]()
    typer.echo(f"# {run.collective} on {hosts_label(cluster)}, {run.file}")
    typer.echo(HEADER)
    try:
        for row in comparing.rows_of(prepared, run):
            rows.append(row)
            typer.echo(line(row, run.choices))
    finally:
        found = comparing.Compared(run, tuple(rows), line_rate(cluster))
        done.append(found)
    print_lines(summary(found.bands))
    if explain or (found.points and found.slower > FAR):
        print_lines(_causes(source, run))
    typer.echo("#")


def _causes(source: Source, run: LogRun) -> Iterator[str]:
    found = explanations(source, run)
    if not found:
        return
    good, tried = [one for one in found if one.explains], len(comparing.few(run.rows, SIZES))
    some = f" at {tried} of {len(run.rows)} rows" if tried < len(run.rows) else ""
    yield (
        f"# single causes that would explain it{some}, the best fit (mean |log ratio|) first:"
        if good
        else f"# no single cause that was tried{some} explains it; the nearest:"
    )
    for one in (good or found)[:SHOWN]:
        text = " or ".join(one.names[:ALTERNATIVES])
        yield f"#   {text}: median error {one.error:.1%} instead of {one.before:.1%}"


def _write_logs(
    done: list[comparing.Compared], output: OutputFolder | None, json_file: Path | None,
    *, is_whole: bool,
) -> None:  # fmt: skip
    rows = [row for one in done for row in one.rows]
    values = [
        {
            "run": one.run.file,
            "collective": one.run.collective,
            "points": [asdict(point) for point in one.points],
            "bands": comparing.as_values(one.bands),
        }
        for one in done
    ]
    if not rows:
        return

    def plot(table: Path, place: Path) -> list[Path]:
        return plot_results([table], place, line_rate=done[0].rate)

    table = csv_text(rows)
    wrote(*_write(values, json_file, output, RESULTS, table, plot, is_whole=is_whole))
