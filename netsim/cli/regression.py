"""`netsim compare AFTER… --against BEFORE`: prints what changed by more than noise, and why."""

import json
from collections.abc import Iterator, Sequence
from math import exp
from pathlib import Path

import typer

from netsim.base.errors import InputError
from netsim.base.files import write_text
from netsim.base.units import format_size
from netsim.base.values import dataclass
from netsim.cli.log_questions import Question, question_of
from netsim.cli.output import print_lines, wrote
from netsim.measured.compare import few
from netsim.measured.hypotheses import SIZES, Explained
from netsim.measured.index import proposal_of
from netsim.measured.logs import LogRun, read_log
from netsim.measured.regression import (
    BandChange,
    KindChange,
    as_record,
    changes_between,
    explained_change,
    left_out,
)
from netsim.measured.single_parts import joined_titles
from netsim.results.junit import JunitCase, junit_text
from netsim.results.nccl_tests import microseconds

LOG_SUFFIXES = (".txt", ".log", ".out", ".json", ".csv", ".gz")
CAUSES_SHOWN = 5
MEANING = (
    "# after / before: the time after the change over the time before (above 1: slower); of a\n"
    "# band the median of its sizes, of repeats the median"
)
HEADER = f"# {'size':>11}  {'before':>9}  {'after':>9}  {'after /':>7}\n"
HEADER += f"# {'(B)':>11}  {'(us)':>9}  {'(us)':>9}  {'before':>7}"


@dataclass(frozen=True)
class ChangeOutputs:
    """The files for the comparison of two sets of logs; with `explain`, causes of every change are
    tried.
    """

    json_file: Path | None
    junit: Path | None
    explain: bool


def logs_in(paths: Sequence[Path]) -> list[Path]:
    """The log files that `paths` name; a folder gives its files with the suffix of a log.

    Raises an InputError for a folder without logs.
    """
    logs: list[Path] = []
    for path in paths:
        if not path.is_dir():
            logs.append(path)
            continue
        members = sorted(file for file in path.iterdir() if file.suffix in LOG_SUFFIXES)
        if not members:
            suffixes = ", ".join(LOG_SUFFIXES)
            raise InputError(f"{path}: no log in this folder (expected files {suffixes})")
        logs += members
    return logs


def compare_sets(
    after: Sequence[Path],
    before: Sequence[Path],
    question: Question,
    collective: str | None,
    outputs: ChangeOutputs,
) -> None:
    """Print what changed from the logs `before` to the logs `after`; exit with code 1 if a size
    band is slower.
    """
    old_runs = _runs_of(before, collective)
    new_runs = _runs_of(after, collective)
    changes = changes_between(old_runs, new_runs)
    typer.echo(f"# before: {_counted(before, old_runs)}; after: {_counted(after, new_runs)}")
    typer.echo(MEANING)
    print_lines(left_out(old_runs, new_runs), err=True)
    causes: dict[str, list[Explained]] = {}
    for change in changes:
        print_lines(lines_of_change(change))
        if change.is_slower or change.is_faster or outputs.explain:
            causes[str(change.kind)] = _print_causes(change, question)
        typer.echo("#")
    print_lines(closing_lines(changes))
    _write(changes, causes, outputs)
    if any(change.is_slower for change in changes):
        raise typer.Exit(1)


def _runs_of(paths: Sequence[Path], collective: str | None) -> list[LogRun]:
    """The runs in all logs. Raises an InputError for a run without rows."""
    runs = [run for path in paths for run in read_log(path, collective)]
    for run in runs:
        if not run.rows:
            raise InputError(f"{run.file}: {run.problems[0] if run.problems else 'no rows'}")
    return runs


def _counted(paths: Sequence[Path], runs: Sequence[LogRun]) -> str:
    """The number of logs, and of runs if that differs, as text."""
    logs = f"{len(paths)} log{'s' * (len(paths) > 1)}"
    return logs if len(runs) == len(paths) else f"{logs} with {len(runs)} runs"


def lines_of_change(change: KindChange) -> Iterator[str]:
    """Yield the table of sizes, then a line for each size band, of one kind of runs."""
    yield f"# {change.kind}"
    yield HEADER
    for size in change.sizes:
        mark = "" if size.change == "same" else f"  {size.change}"
        before, after = (_median_us(times) for times in (size.before, size.after))
        yield f"{size.size_bytes:>13}  {before:>9}  {after:>9}  {size.ratio:>7.3f}{mark}"
    for band in change.bands:
        yield f"# {band.band:>12}: {_band_text(band)}"


def _median_us(times: Sequence[float]) -> str:
    """The median of times in seconds, as text in microseconds."""
    ordered = sorted(times)
    middle = (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2
    return microseconds(middle * 1e6)


def _band_text(band: BandChange) -> str:
    """The ratio of times in a band, the range that noise explains, the verdict, and the source of
    the noise.
    """
    allowed = f"noise explains {exp(-band.log_limit):.3f} to {exp(band.log_limit):.3f}"
    if band.change == "same":
        verdict = "within"
    elif band.changed_sizes:
        sizes = ", ".join(format_size(size.size_bytes) for size in band.changed_sizes)
        verdict = f"{band.change.upper()} (at {sizes})"
    else:
        verdict = band.change.upper()
    source = f"no repeats: noise of published ones, {band.noise:.0%}"
    if band.repeats:
        source = f"noise {band.noise:.1%} by {band.repeats} repeats and published ones"
    return f"{band.ratio:.3f} times the time; {allowed}: {verdict} ({source})"


def _print_causes(change: KindChange, question: Question) -> list[Explained]:
    """Try causes for a change and print the best; return those that explain it.

    Returns an empty list if the system is unknown or nothing explains the change.
    """
    if not _is_system_named(change.run, question):
        typer.echo("# causes are not tried: the logs name no machine (--topology names the system)")
        return []
    try:
        source, notes = question_of(question, change.run)
    except InputError as error:
        reason = error.message
        typer.echo(f"# causes are not tried: {reason} (--topology names the system)")
        return []
    print_lines((f"{change.run.file}: {note}" for note in notes), err=True)
    explained = explained_change(source, change)
    good = [cause for cause in explained if cause.explains]
    print_lines(_cause_lines(change, explained, good))
    return good


def _is_system_named(run: LogRun, question: Question) -> bool:
    """Whether the options or the log name the machine of a run."""
    named = question.topology is not None or question.scenario is not None
    return named or proposal_of(run).machine is not None


def _cause_lines(
    change: KindChange, explained: Sequence[Explained], good: Sequence[Explained]
) -> Iterator[str]:
    """Yield the causes in `good`, which explain the change, or the nearest of all tried
    (`explained`).
    """
    if not explained:
        yield "# no cause can be tried on this system"
        return
    when = "before the change" if change.is_faster else "after the change"
    count = len(few(change.run.rows, SIZES))
    if good:
        yield f"# single causes that hold {when} would explain it (at {count} sizes), best first:"
    else:
        yield f"# no single cause that was tried explains it (at {count} sizes); the nearest:"
    for cause in (good or explained)[:CAUSES_SHOWN]:
        titles = joined_titles(cause.names)
        more = f" or {len(titles) - 3} more" if len(titles) > 3 else ""
        text = " or ".join(titles[:3]) + more
        left = exp(cause.distance) - 1
        usual = exp(cause.usual) - 1
        yield f"#   {text}: leaves {left:.1%} of the change of {usual:.1%}"


def closing_lines(changes: Sequence[KindChange]) -> Iterator[str]:
    """Yield one line with the number of size bands that are slower and faster."""
    bands = [band.change for change in changes for band in change.bands]
    slower = bands.count("slower")
    faster = bands.count("faster")
    if slower:
        yield f"# regression: {slower} of {len(bands)} bands slower, {faster} faster"
    elif faster:
        yield f"# no regression: {faster} of {len(bands)} bands faster, none slower"
    else:
        yield "# no change beyond the noise of repeats"


def junit_cases(changes: Sequence[KindChange]) -> Iterator[JunitCase]:
    """Yield a JUnit case for each size band; it fails if the band is slower."""
    for change in changes:
        for band in change.bands:
            failed = band.change == "slower"
            yield JunitCase(
                str(change.kind),
                band.band,
                "failed" if failed else "passed",
                _band_text(band) if failed else "",
                {"after_over_before": f"{band.ratio:.4f}", "change": band.change},
            )


def _write(
    changes: Sequence[KindChange],
    causes: dict[str, list[Explained]],
    outputs: ChangeOutputs,
) -> None:
    """Write the files of `--json` and `--junit`; `causes` has those that explain each
    kind of runs.
    """
    if outputs.json_file is not None:
        records = as_record(changes)
        for change, record in zip(changes, records, strict=True):
            record["causes"] = [
                {"names": list(cause.names), "left_pct": (exp(cause.distance) - 1) * 100}
                for cause in causes.get(str(change.kind), ())
            ]
        text = json.dumps({"regression": any(r["regression"] for r in records), "runs": records})
        wrote(write_text(outputs.json_file, text + "\n"))
    if outputs.junit is not None:
        text = junit_text("netsim compare --against", list(junit_cases(changes)))
        wrote(write_text(outputs.junit, text))
