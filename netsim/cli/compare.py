"""`netsim compare`: prints measured logs and traces beside the simulation, and causes of
differences.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from math import expm1
from pathlib import Path

import typer

from netsim.base.errors import InputError
from netsim.base.files import write_text
from netsim.base.units import format_size, parse_ratio
from netsim.base.values import dataclass
from netsim.cli.compare_traces import TABLE, compare_traces
from netsim.cli.comparison import (
    COMPARISON,
    allowed_errors,
    allowed_text,
    summary,
    write_comparison,
)
from netsim.cli.gate_options import confidence_of
from netsim.cli.log_questions import Question, question_of, resolved_with_notes
from netsim.cli.output import check_outputs, parsed, print_lines, refuse_output_as_input, wrote
from netsim.cli.questions import QuestionOptions
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
from netsim.plots.results import plot_results
from netsim.results.junit import JunitCase, junit_text
from netsim.results.nccl_tests import microseconds
from netsim.results.row import Row, csv_text
from netsim.results.workspace import RESULTS, OutputFolder
from netsim.scenario.models import hosts_label, line_rate
from netsim.tasks.resolve import ResolvedCell
from netsim.training.recorded.kineto import is_trace

HEADER = (
    f"# {'size':>11}  {'measured':>9}  {'simulated':>9}  {'error':>7}  "
    f"{'measured':>9}  {'simulated':>9}  algorithm      protocol\n"
    f"# {'(B)':>11}  {'(us)':>9}  {'(us)':>9}  {'(%)':>7}  {'busbw':>9}  {'busbw':>9}"
)


def line(row: Row, logged: Mapping[int, tuple[str, str]]) -> str:
    """The line of one size: measured and simulated time and bus bandwidth, error, algorithm and
    protocol.

    `logged` has (algorithm, protocol) by size in bytes as NCCL logged them; a choice that differs
    from the simulated one is added.
    """
    size = row.requested_size
    measured = row.measured_time_us or 0.0
    if row.status != "ok" or row.time_us is None or row.busbw_GBps is None:
        return f"{size:>13}  {microseconds(measured):>9}  not simulated: {row.error}"
    busbw = row.busbw_GBps * row.time_us / measured
    choice = f"{row.algorithm:<14} {row.protocol}"
    logged_choice = logged.get(size)
    if logged_choice is not None and logged_choice != (row.algorithm, row.protocol):
        choice += f"  (the log: {' '.join(logged_choice)})"
    return (
        f"{size:>13}  {microseconds(measured):>9}  {microseconds(row.time_us):>9}  "
        f"{row.error_pct or 0.0:>+7.1f}  {busbw:>9.2f}  {row.busbw_GBps:>9.2f}  "
        f"{choice}"
    )


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
    """How a log is judged: by a tolerance, or by a gate if `confidence` is set (both are
    fractions).
    """

    tolerance: float
    confidence: float | None = None


@dataclass(frozen=True)
class LogOutputs:
    """The folder and files to which a comparison of logs is written; None where an output is not
    wanted.
    """

    folder: OutputFolder | None = None
    json_file: Path | None = None
    junit: Path | None = None


CAUSES_SHOWN = 5
NODE = re.compile(r"\bnode(\d+)\b")  # a host, as simulations call it
ALTERNATIVES_SHOWN = 3  # causes that look the same; more are too many to read


@dataclass(frozen=True)
class CompareOptions:
    """The options of `compare`, as they were given, except those of the cluster
    (`QuestionOptions`).
    """

    topology: str | None
    scenario: str | None
    tolerance: str
    gate: str | None
    against: Sequence[Path] | None
    collective: str | None
    output: Path | None
    json_file: Path | None
    junit: Path | None
    explain: bool


def compare_logs_and_traces(
    paths: list[Path], cluster: QuestionOptions, options: CompareOptions
) -> None:
    """Print measured times of logs or traces beside simulated ones, and the error by size."""
    tolerance = _tolerance_of(options.tolerance)
    if options.topology is not None and options.scenario is not None:
        raise InputError("give --topology or --scenario, not both")
    question = Question(options.topology, options.scenario, cluster)
    output = options.output
    check_outputs({"--json": options.json_file, "--junit": options.junit}, output=output)
    logs = logs_in(paths)
    before = logs_in(options.against or ())
    for file in (options.json_file, options.junit, *_files_written(output)):
        refuse_output_as_input(file, [*logs, *before])
    if before:
        _refuse_beside("--against", {"-o": output, "--gate": options.gate})
        outputs = ChangeOutputs(options.json_file, options.junit, options.explain)
        compare_sets(logs, before, question, options.collective, outputs)
        return
    confidence = None if options.gate is None else confidence_of(options.gate)
    folder = None
    if output is not None:
        folder = OutputFolder(output, "compare", tuple(map(str, logs)))
        folder.check()
    traces = [path for path in logs if is_trace(path)]
    if not traces:
        rule = Rule(tolerance, confidence)
        files = LogOutputs(folder, options.json_file, options.junit)
        _compare_logs(logs, question, rule, options.collective, files, explain=options.explain)
        return
    _refuse_beside_traces(traces, logs, options)
    error = compare_traces(traces, question, folder, options.json_file)
    if error > tolerance:
        typer.echo(f"# beyond the tolerance: {error:.1%} > {tolerance:.1%}", err=True)
        raise typer.Exit(1)


def _tolerance_of(text: str) -> float:
    """The value of `--tolerance` as a fraction: 0.15 for `15%` or `0.15`."""
    most = parsed(parse_ratio, "--tolerance", text)
    if most > 1 and "%" not in text:
        message = f"--tolerance {text}: expected a part such as 15% or 0.15"
        raise InputError(message, hint=f"did you mean {text}%?")
    return most


def _refuse_beside(flag: str, options: Mapping[str, object]) -> None:
    """Raise an InputError if one of `options` (values by flag) is set; they do not go
    with `flag`.
    """
    for name, value in options.items():
        if value is not None:
            raise InputError(f"{name} {value}: goes without {flag}")


def _refuse_beside_traces(
    traces: Sequence[Path], logs: Sequence[Path], options: CompareOptions
) -> None:
    """Raise an InputError if some paths are logs rather than traces, or if an option of logs is
    set.

    `logs` has all paths of the command line, `traces` those that are traces.
    """
    if len(traces) < len(logs):
        log = next(path for path in logs if path not in traces)
        raise InputError(f"{traces[0]} is a trace, {log} is none: compare them one by one")
    of_logs = {
        "--collective": options.collective,
        "--explain": options.explain,
        "--gate": options.gate,
        "--junit": options.junit,
    }
    for name, value in of_logs.items():
        if value:
            raise InputError(f"{name}: goes with logs, {traces[0]} is a trace")


def _files_written(folder: Path | None) -> list[Path]:
    """The paths of the tables that are written to the folder of `-o`; empty without `-o`."""
    if folder is None:
        return []
    return [folder / name for name in (TABLE, RESULTS, COMPARISON)]


def _compare_logs(
    logs: Sequence[Path],
    question: Question,
    rule: Rule,
    collective: str | None,
    files: LogOutputs,
    *,
    explain: bool,
) -> None:
    """Compare every run of the logs with its simulation; print and write the results.

    Exits with code 1 if a size band of a run fails by the rule, or if a log is slower than the
    others.
    """
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
    failed = [log for log in judged if log.verdict.fails or log.is_bad]
    limit = "beyond the tolerance" if rule.confidence is None else "below the gate"
    for log in failed:
        typer.echo(f"# {limit}: {log.label}: {_failure(log.verdict)}", err=True)
    if failed:
        raise typer.Exit(1)


def _labels(runs: Sequence[LogRun]) -> list[str]:
    """A unique label for each run, for tables and pictures: the file's name.

    Where two files share a name, the label is the path; where a file has several runs, ` #2` and so
    on is added.
    """
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
    """Which size bands of a log fail and by how much, or another reason why the log fails."""
    if not verdict.bands:
        return "no size could be simulated"
    if not verdict.failed_bands:
        return "slower than the other logs"
    return ", ".join(
        f"{band.band} {band.error:+.1%} (allowed {allowed_errors(band)})"
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
    """Simulate the sizes of one run, print a line for each and the verdict, and append it to
    `judged`.

    Rows are printed as they are simulated. After an interruption, `judged` has the rows that were
    finished. `several` says that the command compares several runs, so that rows are labelled.
    """
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
            # Pictures draw one line for each scenario name, so the rows of a log take its label as
            # their name.
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
    print_lines(_launch_line(verdict, resolved, max(row.size_bytes for row in run.rows)))


def _launch_line(verdict: Verdict, resolved: ResolvedCell, size: int) -> Iterator[str]:
    """Yield how much longer or shorter a launch took than simulated (µs), by the smallest sizes.

    Where one process launches several GPUs, also yield the cost of one launch on the host.
    Differences below 0.05 µs are not mentioned. `size` is in bytes.
    """
    if verdict.launch_us is None or abs(verdict.launch_us) < 0.05:
        return
    more = "longer" if verdict.launch_us > 0 else "less"
    yield (
        f"# {'launch':>12}: takes {abs(verdict.launch_us):.3g} us {more} than simulated, "
        "by the smallest sizes; small bands are judged with it"
    )
    launches = resolved.gpus_per_process
    if launches > 1:
        seconds = resolved.launch(size).host + verdict.launch_us * 1e-6 / launches
        yield (
            f"# {'host':>12}: a launch takes {seconds * 1e6:.3g} us, one for each of {launches} "
            f"GPUs (--host {seconds * 1e6:.3g}us)"
        )


def _causes(judged: Judged) -> Iterator[str]:
    """Yield the causes that would explain the error of a run, the best fit first, with the sizes
    that each explains.

    If none explains it, yield the nearest ones.
    """
    run = judged.compared.run
    explained = explanations(judged.source, run)
    if not explained:
        yield "# no cause can be tried on this system"
        return
    good = [one for one in explained if one.explains]
    tried = len(compare.few(run.rows, SIZES))
    sizes = f" at {tried} of {len(run.rows)} rows" if tried < len(run.rows) else ""
    if good:
        order = "the best fit (mean |log ratio|) first:"
        yield f"# single causes that would explain it{sizes}, {order}"
    else:
        yield f"# no single cause that was tried{sizes} explains it; the nearest:"
    lines = [_cause_line(one) for one in (good or explained)[:CAUSES_SHOWN]]
    for text in lines:
        yield f"#   {_with_host_names(text, judged.hosts)}"
    if any(NODE.search(text) for text in lines):
        yield (
            "# (a part in brackets is one of several that are used in the same way: "
            "one log cannot tell which)"
        )


def _with_host_names(text: str, hosts: Sequence[str]) -> str:
    """The text with `node0`, `node1`, … replaced by `hosts[0]`, `hosts[1]`, …, the names in the
    log.

    The text is unchanged if `hosts` is empty, which it is if the log does not list its hosts.
    """

    def host_name(match: re.Match[str]) -> str:
        number = int(match[1])
        return hosts[number] if number < len(hosts) else match[0]

    return NODE.sub(host_name, text)


def _cause_line(cause: Explained) -> str:
    """One cause as text: its title, the mean error with and without it, and which sizes it
    explains.
    """
    titles = joined_titles(cause.names)
    text = " or ".join(titles[:ALTERNATIVES_SHOWN])
    more = len(titles) - ALTERNATIVES_SHOWN
    text += f" or {more} more" if more > 0 else ""
    parts = [f"mean error {expm1(cause.distance):.1%} instead of {expm1(cause.usual):.1%}"]
    for verb, sizes in (
        ("explains", cause.explained_sizes),
        ("does not explain", cause.unexplained_sizes),
        ("makes worse", cause.worse_sizes),
    ):
        if sizes:
            parts.append(f"{verb} {', '.join(map(format_size, sizes))}")
    return f"{text}: {'; '.join(parts)}"


LABEL_WIDTH = 24


def _table_of_logs(judged: Sequence[Judged]) -> Iterator[str]:
    """Yield a table of all logs, the slowest compared with its simulation first, and the hosts that
    slow logs have in common.
    """
    yield "# logs by deviation, the slowest compared with its simulation first"
    yield f"# {'log':<{LABEL_WIDTH}}  {'error':>7}  {'band':>12}  {'verdict':<8}  hosts"
    for log in ranking(judged):
        band = log.verdict.slowest_band
        error = "-" if band is None else f"{band.error:+.1%}"
        name = "-" if band is None else band.band
        if log.is_bad:
            verdict = "slow"
        else:
            verdict = "fails" if log.verdict.fails else "within"
        hosts = " ".join(log.hosts) or "not listed"
        yield f"  {log.label:<{LABEL_WIDTH}}  {error:>7}  {name:>12}  {verdict:<8}  {hosts}"
    yield from (f"# {text}" for text in culprit_lines(judged))
    yield "#"


def _write_logs(judged: Sequence[Judged], files: LogOutputs, *, is_whole: bool) -> None:
    """Write the comparisons finished so far as JSON, CSV, pictures and JUnit; nothing if there is
    none.

    If not `is_whole` (the command was interrupted), earlier results are not replaced.
    """
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
    written = write_comparison(
        values, files.json_file, files.folder, RESULTS, table, plot, is_whole=is_whole
    )
    if files.junit is not None and is_whole:
        cases = list(_junit_cases(judged))
        written = [*written, write_text(files.junit, junit_text("netsim compare", cases))]
    wrote(*written)


def _junit_cases(judged: Sequence[Judged]) -> Iterator[JunitCase]:
    """Yield a JUnit case for each size band of each log; it fails if more than half of its sizes
    are beyond the allowed error.
    """
    for log in judged:
        for band in log.verdict.bands:
            yield JunitCase(
                log.label,
                f"{log.compared.run.collective} {band.band}",
                "failed" if band.fails else "passed",
                f"{_error_text(band)}, {allowed_text(band)}" if band.fails else "",
                {"error_pct": f"{100 * band.error:.1f}"},
            )


def _error_text(band: BandVerdict) -> str:
    """The error of a band, and the number of its sizes that are beyond the allowed error."""
    return f"error {band.error:+.1%} ({band.sizes_beyond} of {band.sizes} sizes beyond)"
