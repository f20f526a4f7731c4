"""`netsim compare` for traces of PyTorch's profiler: compares the collectives of a
training step.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from math import inf, log1p
from pathlib import Path
from typing import Any

import numpy as np
import typer

from netsim.base.errors import InputError
from netsim.base.files import csv_of
from netsim.cli.comparison import summary, write_comparison
from netsim.cli.log_questions import Question, cell_of_trace
from netsim.cli.output import print_lines, wrote
from netsim.measured import compare
from netsim.plots.explanation import plot_calls
from netsim.results.nccl_tests import microseconds
from netsim.results.workspace import OutputFolder
from netsim.scenario.models import cluster_label, hosts_label
from netsim.training.compared import ComparedCalls, TraceCompared, compare_trace
from netsim.training.recorded.kineto import Profile, read_profile
from netsim.training.resolve import ResolvedStep, resolve_step
from netsim.training.run import simulate_step

TABLE = "collectives.csv"
# The columns of the table, each with its place in a `ComparedCalls`: `measured.us` is the field
# `us` of the part `measured`; `.error` is a field of the `ComparedCalls` itself.
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
    """A line of the comparison (one kind of calls) as values by column; None where a value is
    missing.
    """
    values: dict[str, Any] = {}
    for column, place in COLUMNS.items():
        part, _, name = place.partition(".")
        owner = getattr(line, part) if part else line
        values[column] = None if owner is None else getattr(owner, name)
    values["error_pct"] = None if line.error is None else line.error * 100
    return values


def compare_traces(
    traces: Sequence[Path],
    question: Question,
    output: OutputFolder | None,
    json_file: Path | None,
) -> float:
    """Compare every trace with its simulation, print and write the comparisons.

    Returns the largest `error_of_time` of any trace, a fraction.
    """
    profiles = [read_profile(path) for path in traces]  # all, before the first is answered
    done = [_compared_trace(question, *one) for one in zip(traces, profiles, strict=True)]
    every = [(one.trace, line) for one in done for line in one.lines]
    rows = [(Path(trace).name, *record(line).values()) for trace, line in every]
    table = csv_of([("trace", *COLUMNS), *rows])
    values = [as_json(one) for one in done]
    if files := write_comparison(
        values, json_file, output, TABLE, table, plot_calls, is_whole=True
    ):
        wrote(*files)
    return max(map(error_of_time, done))


def _compared_trace(question: Question, path: Path, profile: Profile) -> TraceCompared:
    """Simulate a trace's step on its cluster, print both side by side, and return the
    comparison.
    """
    cell, notes = cell_of_trace(question, path, profile)
    resolved = resolve_step(cell)
    ranks = resolved.setting.grid.size
    if ranks != profile.world:
        raise InputError(f"{path}: the trace is of {profile.world} ranks, the scenario of {ranks}")
    for note in (*notes, *_asides(profile, resolved)):
        typer.echo(f"{path}: {note}", err=True)
    cluster = cell.scenario.cluster
    compared = compare_trace(str(path), cluster_label(cluster), profile, simulate_step(resolved))
    typer.echo(f"# rank {profile.rank} of {ranks} on {hosts_label(cluster)}, {path}")
    print_lines(lines(compared))
    return compared


def _asides(profile: Profile, resolved: ResolvedStep) -> Iterator[str]:
    """Yield notes for the user: what was left out of a trace, and over how many steps times are
    averaged.
    """
    if resolved.recorded is not None:
        yield from resolved.recorded.notes
    elif profile.unsized:
        yield f"{profile.unsized} kernels of NCCL's without size or peers left out"
    if len(profile.steps) > 1:
        yield f"measured times are those of {len(profile.steps)} steps"


def bands_of(compared: TraceCompared) -> dict[str, compare.Error]:
    """The errors by size band, over the kinds of calls that have a measured and a
    simulated time.
    """
    points = [
        compare.ComparedPoint(
            compared.trace,
            compared.machine,
            line.any.collective,
            line.any.size_bytes,
            line.measured.us,
            line.simulated.us,
            line.simulated.algorithm,
            line.simulated.protocol,
            True,
        )
        for line in compared.lines
        if line.measured is not None and line.simulated is not None
    ]
    return compare.by_band(points)


def error_of_time(compared: TraceCompared) -> float:
    """The median error (a fraction) over kinds of calls, each weighted by its total measured time.

    Infinite if no kind of calls has both times.
    """
    pairs = [
        (log1p(line.error), line.measured.total_us)
        for line in compared.lines
        if line.measured is not None and line.error is not None
    ]
    if not pairs:
        return inf
    ratios, spent = np.array(pairs).T
    return compare.error_figures(ratios, spent)[0]


def lines(compared: TraceCompared) -> Iterator[str]:
    """Yield the comparison as text: a line for each kind of calls, the error by size band, the step
    time.
    """
    yield (
        f"# {'collective':<14}  {'group':<14}  {'ranks':>5}  {'size':>11}  {'calls':>5}  "
        f"{'measured':>9}  {'least':>9}  {'simulated':>9}  {'alone':>9}  {'error':>7}  "
        f"{'exposed':>9}  {'simulated':>9}  algorithm"
    )
    yield (
        f"# {'':<14}  {'':<14}  {'':>5}  {'(B)':>11}  {'/step':>5}  {'(us)':>9}  {'(us)':>9}  "
        f"{'(us)':>9}  {'(us)':>9}  {'(%)':>7}  {'(us/step)':>9}  {'(us/step)':>9}"
    )
    yield from map(_line, compared.lines)
    yield from summary(bands_of(compared), "kinds of calls")
    if bands_of(compared):
        yield f"# {'time':>12}: half of the measured time is within {error_of_time(compared):.1%}"
    error = compared.simulated_step_us / compared.step_us - 1
    yield (
        f"# {'step':>12}: measured {microseconds(compared.step_us)} us, simulated "
        f"{microseconds(compared.simulated_step_us)} us ({error:+.1%})"
    )
    yield "#"


def _line(line: ComparedCalls) -> str:
    """The line of the table for one kind of calls."""
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


def as_json(compared: TraceCompared) -> dict[str, Any]:
    """A comparison as plain values, which JSON can hold."""
    return {
        "trace": compared.trace,
        "machine": compared.machine,
        "step_us": compared.step_us,
        "simulated_step_us": compared.simulated_step_us,
        "calls": [{**asdict(line), "error": line.error} for line in compared.lines],
        "bands": compare.as_values(bands_of(compared)),
    }
