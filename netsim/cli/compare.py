"""`netsim compare`: measured logs and traces against the prediction, and what would explain it."""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from math import expm1, inf, log1p
from pathlib import Path
from typing import Any

import numpy as np
import typer

from netsim.base.errors import InputError
from netsim.base.files import csv_of, write_text
from netsim.base.units import format_size, parse_ratio
from netsim.base.values import dataclass
from netsim.cli import (
    check_outputs,
    parsed,
    print_lines,
    refuse_output_as_input,
    with_options,
    wrote,
)
from netsim.cli.gate import confidence_of
from netsim.cli.log_questions import Question, cell_of_trace, question_of, resolved_with_notes
from netsim.cli.questions import ONLY_EXPECT, Given, Text
from netsim.cli.regression import ChangeOutputs, compare_sets, logs_in
from netsim.measured import compare
from netsim.measured.hypotheses import SIZES, Explained, explanations
from netsim.measured.logs import LogRun, read_log
from netsim.measured.several import Judged, culprit_lines, ranking, with_bad_marked
from netsim.measured.single_parts import joined_titles
from netsim.measured.verdict import (
    BandVerdict,
    Verdict,
    gate_verdict,
    usual_launch_cost,
    verdict_of,
)
from netsim.plots.explanation import plot_calls
from netsim.plots.results import plot_results
from netsim.results.junit import JunitCase, junit_text
from netsim.results.nccl_tests import microseconds
from netsim.results.row import BANDS, Row, csv_text
from netsim.results.workspace import RESULTS, OutputFolder
from netsim.scenario.models import cluster_label, hosts_label, line_rate
from netsim.training.compared import ComparedCalls, TraceCompared, compare_trace
from netsim.training.recorded.kineto import Profile, is_trace, read_profile
from netsim.training.resolve import ResolvedStep, resolve_step
from netsim.training.run import simulate_step

HEADER = (
    f"# {'size':>11}  {'measured':>9}  {'simulated':>9}  {'error':>7}  "
    f"{'measured':>9}  {'simulated':>9}  algorithm      protocol\n"
    f"# {'(B)':>11}  {'(us)':>9}  {'(us)':>9}  {'(%)':>7}  {'busbw':>9}  {'busbw':>9}"
)


def line(row: Row, logged: Mapping[int, tuple[str, str]]) -> str:
    """One size of the table; where NCCL chose another algorithm by its log, that as well."""
    size = row.asked
    measured = row.measured_time_us or 0.0
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


def summary(
    bands: Mapping[str, compare.Error], what: str = "sizes", verdict: Verdict | None = None
) -> Iterator[str]:
    """A line for the error of every band; with a verdict, also what the band may be off."""
    judged = {one.band: one for one in verdict.bands} if verdict is not None else {}
    for band in (*BANDS, compare.ALL):
        if band in bands:
            error = bands[band]
            allowed = f"; {_allowed(judged[band])}" if band in judged else ""
            yield (
                f"# {band:>12}: median error {error.median:6.1%}, 90th percentile "
                f"{error.p90:6.1%}, bias {error.bias:+.1%} ({error.points} {what}){allowed}"
            )


def _allowed(band: BandVerdict) -> str:
    """What a band may be off, and whether it is within that."""
    verdict = "within" if not band.fails else "FAILS"
    return f"allowed {_allowed_errors(band)}: {verdict}"


def _allowed_errors(band: BandVerdict) -> str:
    """The errors that are allowed; a gate has only a limit for logs that are too slow."""
    if band.highest == inf:
        return f"{band.lowest:+.0%} and above"
    return f"{band.lowest:+.0%} to {band.highest:+.0%}"


TABLE = "collectives.csv"  # of traces
COMPARISON = "comparison.json"
COLUMNS = {
    **{name: f"any.{name}" for name in ("collective", "group", "ranks", "size_bytes", "dtype")},
    "calls": "measured.calls",
    "measured_us": "measured.us",
    "least_us": "measured.least_us",
    "time_us": "simulated.us",
    "alone_us": "simulated.alone_us",
    "error_pct": ".error",
    "measured_total_us": "measured.total_us",
    "total_us": "simulated.total_us",
    "measured_exposed_us": "measured.exposed_us",
    "exposed_us": "simulated.exposed_us",
    "simulated_calls": "simulated.calls",
    "algorithm": "simulated.algorithm",
    "protocol": "simulated.protocol",
    "channels": "simulated.channels",
}


def record(line: ComparedCalls) -> dict[str, Any]:
    """A kind of calls by the columns of the table; None is what is missing."""
    found: dict[str, Any] = {}
    for column, place in COLUMNS.items():
        part, _, name = place.partition(".")
        owner = getattr(line, part) if part else line
        found[column] = None if owner is None else getattr(owner, name)
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
    resolved = resolve_step(cell)
    ranks = resolved.setting.grid.size
    if ranks != profile.world:
        raise InputError(f"{path}: the trace is of {profile.world} ranks, the scenario of {ranks}")
    for note in (*notes, *_asides(profile, resolved)):
        typer.echo(f"{path}: {note}", err=True)
    cluster = cell.scenario.cluster
    found = compare_trace(str(path), cluster_label(cluster), profile, simulate_step(resolved))
    typer.echo(f"# rank {profile.rank} of {ranks} on {hosts_label(cluster)}, {path}")
    print_lines(lines(found))
    return found


def _asides(profile: Profile, resolved: ResolvedStep) -> Iterator[str]:
    if resolved.recorded is not None:
        yield from resolved.recorded.notes
    elif profile.unsized:
        yield f"{profile.unsized} kernels of NCCL's without size or peers left out"
    if len(profile.steps) > 1:
        yield f"measured times are those of {len(profile.steps)} steps"


def bands_of(found: TraceCompared) -> dict[str, compare.Error]:
    """The error by size band, over the kinds of calls that have both times."""
    points = [
        compare.Point(
            found.trace,
            found.machine,
            line.any.collective,
            line.any.size_bytes,
            line.measured.us,
            line.simulated.us,
            line.simulated.algorithm,
            line.simulated.protocol,
            True,
        )
        for line in found.lines
        if line.measured is not None and line.simulated is not None
    ]
    return compare.by_band(points)


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
    return compare.error_figures(ratios, spent)[0]


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


def _line(line: ComparedCalls) -> str:
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
        "bands": compare.as_values(bands_of(found)),
    }


def _write(
    values: list[dict[str, Any]],
    json_file: Path | None,
    output: OutputFolder | None,
    name: str,
    table: str,
    plot: Callable[[Path, Path], list[Path]],
    *,
    is_whole: bool,
) -> list[Path]:
    """Write a comparison as JSON, and with its table and pictures to a folder; return the files
    there. A part of a comparison, of one that was interrupted, replaces nothing."""
    text = json.dumps(values, indent=1) + "\n"
    if json_file is not None and (is_whole or not json_file.is_file()):
        write_text(json_file, text)
    if output is None or not (is_whole or not output.has_results()):
        return []

    def write(place: Path) -> list[Path]:
        written = write_text(place / name, table)
        return [written, write_text(place / COMPARISON, text), *plot(written, place)]

    return output.write(write)


ERROR_MEANING = (
    "# error: simulated / measured - 1; of several, the median of the factor by which they differ\n"
    "# either way, less 1 (at 0.5 and at 2 times it is 100%); bias: the same with its sign\n"
    "# measured: the smaller of out of place and in place for all_reduce, broadcast and reduce\n"
    "# (the same work: the rest is noise), else out of place"
)
MEANING = (
    f"{ERROR_MEANING}\n"
    "# allowed: the larger of --tolerance and the interval that holds 80% of validated systems"
)
GATE_MEANING = (
    "# allowed: what a healthy machine reaches with the probability of --gate; a band fails if\n"
    "# more than half of its sizes are slower"
)


@dataclass(frozen=True)
class Rule:
    """By what a log is judged: the tolerance, or the confidence of a gate."""

    tolerance: float
    confidence: float | None = None


@dataclass(frozen=True)
class LogOutputs:
    """Where a comparison of logs is written."""

    folder: OutputFolder | None = None
    json_file: Path | None = None
    junit: Path | None = None


CAUSES_SHOWN = 5
NODE = re.compile(r"\bnode(\d+)\b")  # a host, as simulations call it
ALTERNATIVES_SHOWN = 3  # causes that look the same; more are too many to read


@with_options(Given, "sizes", "dtype", *ONLY_EXPECT)
def command(
    logs: list[Path],
    given: Given,
    topology: Text = None,
    scenario: Text = None,
    tolerance: str = "15%",
    gate: Text = None,
    against: list[Path] | None = None,
    collective: Text = None,
    output: Path | None = None,
    json_file: Path | None = None,
    junit: Path | None = None,
    explain: bool = False,
) -> None:
    """Print measured times of LOG… (or traces) beside simulated ones, and the error by size."""
    most = _tolerance_of(tolerance)
    if topology is not None and scenario is not None:
        raise InputError("give --topology or --scenario, not both")
    question = Question(topology, scenario, given)
    check_outputs({"--json": json_file, "--junit": junit}, output=output)
    logs = logs_in(logs)
    before = logs_in(against or ())
    for file in (json_file, junit, *_files_written(output)):
        refuse_output_as_input(file, [*logs, *before])
    if before:
        _refuse_beside("--against", {"-o": output, "--gate": gate})
        outputs = ChangeOutputs(json_file, junit, explain)
        compare_sets(logs, before, question, collective, outputs)
        return
    confidence = None if gate is None else confidence_of(gate)
    folder = None
    if output is not None:
        folder = OutputFolder(output, "compare", tuple(map(str, logs)))
        folder.check()
    traces = [path for path in logs if is_trace(path)]
    if not traces:
        rule = Rule(most, confidence)
        files = LogOutputs(folder, json_file, junit)
        _compare_logs(logs, question, rule, collective, files, explain=explain)
        return
    for_logs = {"--collective": collective, "--explain": explain, "--gate": gate, "--junit": junit}
    _refuse_beside_traces(traces, logs, for_logs)
    error = compare_traces(traces, question, folder, json_file)
    if error > most:
        typer.echo(f"# beyond the tolerance: {error:.1%} > {most:.1%}", err=True)
        raise typer.Exit(1)


def _tolerance_of(text: str) -> float:
    """The fraction that `--tolerance` names."""
    most = parsed(parse_ratio, "--tolerance", text)
    if most > 1 and "%" not in text:
        message = f"--tolerance {text}: expected a part such as 15% or 0.15"
        raise InputError(message, hint=f"did you mean {text}%?")
    return most


def _refuse_beside(flag: str, options: Mapping[str, object]) -> None:
    """Raise an InputError for an option that has no meaning beside another."""
    for name, value in options.items():
        if value is not None:
            raise InputError(f"{name} {value}: goes without {flag}")


def _refuse_beside_traces(
    traces: Sequence[Path], logs: Sequence[Path], options: Mapping[str, object]
) -> None:
    """Raise an InputError for logs, and for options of logs, beside traces."""
    if len(traces) < len(logs):
        log = next(path for path in logs if path not in traces)
        raise InputError(f"{traces[0]} is a trace, {log} is none: compare them one by one")
    for name, value in options.items():
        if value:
            raise InputError(f"{name}: goes with logs, {traces[0]} is a trace")


def _files_written(folder: Path | None) -> list[Path]:
    """The tables that are written to the folder of `-o`."""
    if folder is None:
        return []
    return [folder / name for name in (TABLE, RESULTS, COMPARISON)]


def _compare_logs(
    logs: Sequence[Path],
    question: Question,
    rule: Rule,
    collective: Text,
    files: LogOutputs,
    *,
    explain: bool,
) -> None:
    """Compare every run of the logs, print and write the result; exit with 1 if a band fails."""
    runs = [run for path in logs for run in read_log(path, collective)]
    labels = _labels(runs)
    judged: list[Judged] = []
    is_whole = False
    typer.echo(MEANING if rule.confidence is None else f"{ERROR_MEANING}\n{GATE_MEANING}")
    try:
        for run, label in zip(runs, labels, strict=True):
            _compare_run(question, run, label, rule, judged, several=len(runs) > 1)
            if explain or (len(runs) == 1 and judged[-1].verdict.fails):
                print_lines(_causes(judged[-1]))
            typer.echo("#")
        is_whole = True
    finally:  # what is finished is worth having
        _write_logs(judged, files, is_whole=is_whole)
    if len(runs) > 1:
        judged = with_bad_marked(judged, rule.tolerance)
        print_lines(_table_of_logs(judged))
        worst = ranking(judged)[0]
        if not explain and (worst.verdict.fails or worst.is_bad):
            typer.echo(f"# causes of the slowest log, {worst.label} (--explain: of every log):")
            print_lines(_causes(worst))
    failed = [one for one in judged if one.verdict.fails or one.is_bad]
    limit = "beyond the tolerance" if rule.confidence is None else "below the gate"
    for one in failed:
        typer.echo(f"# {limit}: {one.label}: {_failure(one.verdict)}", err=True)
    if failed:
        raise typer.Exit(1)


def _labels(runs: Sequence[LogRun]) -> list[str]:
    """The names of runs in tables and pictures: of the file, with more of its path or the number of
    the run in the file where the name alone is not unique."""
    names = [Path(run.file).name for run in runs]
    paths_by_name: dict[str, set[str]] = {}
    for name, run in zip(names, runs, strict=True):
        paths_by_name.setdefault(name, set()).add(run.file)
    labels = []
    for name, run in zip(names, runs, strict=True):
        labels.append(name if len(paths_by_name[name]) == 1 else run.file)
    counts = Counter(labels)
    seen: Counter[str] = Counter()
    unique = []
    for label in labels:
        seen[label] += 1
        unique.append(label if counts[label] == 1 else f"{label} #{seen[label]}")
    return unique


def _failure(verdict: Verdict) -> str:
    """Which bands fail, by how much."""
    if not verdict.bands:
        return "no size could be simulated"
    if not verdict.failed_bands:
        return "slower than the other logs"
    return ", ".join(
        f"{band.band} {band.error:+.1%} (allowed {_allowed_errors(band)})"
        for band in verdict.failed_bands
    )


def _compare_run(
    question: Question,
    run: LogRun,
    label: str,
    rule: Rule,
    judged: list[Judged],
    *,
    several: bool,
) -> None:
    """Compare one run: its rows are printed as they are simulated, and kept when interrupted."""
    if not run.rows:
        raise InputError(f"{run.file}: {run.problems[0] if run.problems else 'no rows'}")
    source, notes = question_of(question, run)
    resolved = resolved_with_notes(source, notes, run)
    if len(run.rows) == 1:
        typer.echo(f"{run.file}: one size only: no curve to compare", err=True)
    scenario = resolved.cell.scenario
    rows = list[Row]()
    typer.echo(f"# {run.collective} on {hosts_label(scenario.cluster)}, {run.file}")
    typer.echo(HEADER)
    try:
        for row in compare.rows_of(resolved, run):
            # Pictures draw a line for each scenario, and name it so: that of a log is its label.
            rows.append(replace(row, scenario=label) if several else row)
            typer.echo(line(row, run.choices))
    finally:
        compared = compare.Compared(run, tuple(rows), line_rate(scenario.cluster))
        launch = scenario.launch_costs()
        usual_launch = usual_launch_cost(launch.style, resolved.gpus_per_node, launch.host)
        if rule.confidence is None:
            verdict = verdict_of(compared, rule.tolerance, usual_launch)
        else:
            verdict = gate_verdict(compared, resolved, rule.confidence)
        judged.append(Judged(label, source, compared, verdict))
    print_lines(summary(compared.bands, verdict=verdict))
    print_lines(_launch_line(verdict))


def _launch_line(verdict: Verdict) -> Iterator[str]:
    """What was inferred of the launch cost, if that makes a difference."""
    if verdict.launch_us is not None and abs(verdict.launch_us) >= 0.05:
        more = "longer" if verdict.launch_us > 0 else "less"
        yield (
            f"# {'launch':>12}: takes {abs(verdict.launch_us):.3g} us {more} than simulated, "
            "by the smallest sizes; small bands are judged with it"
        )


def _causes(judged: Judged) -> Iterator[str]:
    """The causes that were tried for a run, the best fit first, with the sizes each explains."""
    run = judged.compared.run
    explained = explanations(judged.source, run)
    if not explained:
        yield "# no cause can be tried on this system"
        return
    good = [one for one in explained if one.explains]
    tried = len(compare.few(run.rows, SIZES))
    some = f" at {tried} of {len(run.rows)} rows" if tried < len(run.rows) else ""
    yield (
        f"# single causes that would explain it{some}, the best fit (mean |log ratio|) first:"
        if good
        else f"# no single cause that was tried{some} explains it; the nearest:"
    )
    lines = [_cause_line(one) for one in (good or explained)[:CAUSES_SHOWN]]
    for text in lines:
        yield f"#   {_with_host_names(text, judged.hosts)}"
    if any(NODE.search(text) for text in lines):
        yield (
            "# (a part in brackets is one of several that are used in the same way: "
            "one log cannot tell which)"
        )


def _with_host_names(text: str, hosts: Sequence[str]) -> str:
    """A text in which hosts are called as in the log, whose ranks are in the same order, instead of
    `node0`, `node1`, …; unchanged where the log does not list its hosts."""

    def host_name(match: re.Match[str]) -> str:
        number = int(match[1])
        return hosts[number] if number < len(hosts) else match[0]

    return NODE.sub(host_name, text)


def _cause_line(one: Explained) -> str:
    """A cause with its error, and which sizes it explains."""
    titles = joined_titles(one.names)
    text = " or ".join(titles[:ALTERNATIVES_SHOWN])
    more = len(titles) - ALTERNATIVES_SHOWN
    text += f" or {more} more" if more > 0 else ""
    parts = [f"mean error {expm1(one.distance):.1%} instead of {expm1(one.usual):.1%}"]
    for what, sizes in (
        ("explains", one.explained_sizes),
        ("does not explain", one.unexplained_sizes),
        ("makes worse", one.worse_sizes),
    ):
        if sizes:
            parts.append(f"{what} {', '.join(map(format_size, sizes))}")
    return f"{text}: {'; '.join(parts)}"


LABEL_WIDTH = 24


def _table_of_logs(judged: Sequence[Judged]) -> Iterator[str]:
    """All logs by their deviation, the slowest first, and the host that makes them slow."""
    yield "# logs by deviation, the slowest compared with its simulation first"
    yield f"# {'log':<{LABEL_WIDTH}}  {'error':>7}  {'band':>12}  {'verdict':<8}  hosts"
    for one in ranking(judged):
        band = one.verdict.slowest_band
        error = "-" if band is None else f"{band.error:+.1%}"
        name = "-" if band is None else band.band
        if one.is_bad:
            verdict = "slow"
        else:
            verdict = "fails" if one.verdict.fails else "within"
        hosts = " ".join(one.hosts) or "not listed"
        yield f"  {one.label:<{LABEL_WIDTH}}  {error:>7}  {name:>12}  {verdict:<8}  {hosts}"
    yield from (f"# {text}" for text in culprit_lines(judged))
    yield "#"


def _write_logs(judged: Sequence[Judged], files: LogOutputs, *, is_whole: bool) -> None:
    """Write what was compared so far: nothing, if nothing was."""
    rows = [row for one in judged for row in one.compared.rows]
    if not rows:
        return
    values = [
        {
            "run": one.compared.run.file,
            "collective": one.compared.run.collective,
            "hosts": list(one.hosts),
            "points": [asdict(point) for point in one.compared.points],
            "bands": compare.as_values(one.compared.bands),
            "verdict": {
                "fails": one.verdict.fails,
                "launch_us": one.verdict.launch_us,
                "bands": [{**asdict(band), "fails": band.fails} for band in one.verdict.bands],
            },
        }
        for one in judged
    ]

    def plot(table: Path, place: Path) -> list[Path]:
        return plot_results([table], place, line_rate=judged[0].compared.rate)

    table = csv_text(rows)
    written = _write(values, files.json_file, files.folder, RESULTS, table, plot, is_whole=is_whole)
    if files.junit is not None and is_whole:
        cases = list(_junit_cases(judged))
        written = [*written, write_text(files.junit, junit_text("netsim compare", cases))]
    wrote(*written)


def _junit_cases(judged: Sequence[Judged]) -> Iterator[JunitCase]:
    """A case for each size band of each log: failed where more than half of its sizes are beyond
    what is allowed."""
    for one in judged:
        for band in one.verdict.bands:
            yield JunitCase(
                one.label,
                f"{one.compared.run.collective} {band.band}",
                "failed" if band.fails else "passed",
                f"{_error_text(band)}, {_allowed(band)}" if band.fails else "",
                {"error_pct": f"{100 * band.error:.1f}"},
            )


def _error_text(band: BandVerdict) -> str:
    """The error of a band, and at how many of its sizes it is beyond what is allowed."""
    return f"error {band.error:+.1%} ({band.sizes_beyond} of {band.sizes} sizes beyond)"
