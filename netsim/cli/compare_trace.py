"""`netsim compare TRACE`: the collectives of a profile beside simulated ones."""

import csv
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from io import StringIO
from math import expm1, inf, log1p
from pathlib import Path
from typing import Any

import typer

from netsim.cli.compare_text import summary
from netsim.cli.logs_question import Question
from netsim.cli.trace_question import cell_of
from netsim.errors import InputError
from netsim.files import write_text
from netsim.measured.bands import Error, as_values, by_band
from netsim.measured.points import Point
from netsim.plots import plot_calls
from netsim.results.nccl_tests import microseconds
from netsim.scenario.clusters import cluster_label, node_count
from netsim.training.compared import Line, TraceCompared, compare_trace
from netsim.training.prepare import PreparedStep, prepare_step
from netsim.training.recorded.kineto import Profile, read_profile
from netsim.training.run import simulate_step

TABLE = "collectives.csv"
COLUMNS = (
    "collective", "group", "ranks", "size_bytes", "dtype", "calls", "measured_us", "least_us",
    "time_us", "alone_us", "error_pct", "measured_total_us", "total_us", "measured_exposed_us",
    "exposed_us", "simulated_calls", "algorithm", "protocol", "channels",
)  # fmt: skip


def compare_traces(
    traces: Sequence[Path], asked: Question, output: Path | None, json_file: Path | None
) -> float:
    """Compare every trace, print and write it; the largest error of one."""
    profiles = [read_profile(path) for path in traces]  # all, before the first is answered
    done = [_compared(asked, *one) for one in zip(traces, profiles, strict=True)]
    values = [as_json(one) for one in done]
    if json_file is not None:
        write_text(json_file, json.dumps(values, indent=1) + "\n")
    if output is not None:
        _write(done, values, output)
    return max(map(error_of_time, done))


def _compared(asked: Question, path: Path, profile: Profile) -> TraceCompared:
    cell, notes = cell_of(asked, path, profile)
    prepared = prepare_step(cell)
    ranks = prepared.setting.grid.size
    if ranks != profile.world:
        raise InputError(f"{path}: the trace is of {profile.world} ranks, the scenario of {ranks}")
    for note in (*notes, *_asides(profile, prepared)):
        typer.echo(f"{path}: {note}", err=True)
    cluster = cell.scenario.cluster
    machine = cluster_label(cluster)
    found = compare_trace(str(path), machine, profile, simulate_step(prepared))
    typer.echo(f"# rank {profile.rank} of {ranks} on {node_count(cluster)} x {machine}, {path}")
    for text in lines(found):
        typer.echo(text)
    return found


def _asides(profile: Profile, prepared: PreparedStep) -> Iterator[str]:
    if prepared.recorded is not None:
        yield from prepared.recorded.notes
    elif profile.unsized:
        yield f"{profile.unsized} kernels of NCCL's without size or peers left out"
    if len(profile.steps) > 1:
        yield f"measured times are those of {len(profile.steps)} steps"


def bands_of(found: TraceCompared) -> dict[str, Error]:
    """The error by size band, over the kinds of calls that have both times."""
    points = [
        Point(
            found.trace, found.machine, line.any.collective, line.any.size_bytes,
            line.measured.us, line.simulated.us, line.simulated.algorithm,
            line.simulated.protocol, True,
        )
        for line in found.lines
        if line.measured is not None and line.simulated is not None
    ]  # fmt: skip
    return by_band(points)


def error_of_time(found: TraceCompared) -> float:
    """The median error, each kind of call counted by its measured time; infinite without any."""
    errors = sorted(
        (abs(log1p(line.error)), line.measured.total_us)
        for line in found.lines
        if line.measured is not None and line.error is not None
    )
    half, so_far = sum(spent for _, spent in errors) / 2, 0.0
    for error, spent in errors:
        so_far += spent
        if so_far >= half:
            return expm1(error)
    return inf


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
    one, measured, simulated = line.any, line.measured, line.simulated
    times = [
        measured.us if measured else None, measured.least_us if measured else None,
        simulated.us if simulated else None, simulated.alone_us if simulated else None,
    ]  # fmt: skip
    exposed = [
        measured.exposed_us if measured else None,
        simulated.exposed_us if simulated else None,
    ]
    error = "-" if line.error is None else f"{line.error * 100:+.1f}"
    chosen = "not simulated"
    if simulated is not None:
        chosen = " ".join(filter(None, (simulated.algorithm, simulated.protocol)))
        chosen += "" if measured is not None else "  (not in the trace)"
    return (
        f"  {one.collective:<14}  {one.group[:14]:<14}  {one.ranks:>5}  {one.size_bytes:>11}  "
        f"{one.calls:>5g}  {'  '.join(f'{_us(t):>9}' for t in times)}  {error:>7}  "
        f"{'  '.join(f'{_us(t):>9}' for t in exposed)}  {chosen}"
    )


def _us(value: float | None) -> str:
    return "-" if value is None else microseconds(value)


def as_rows(found: TraceCompared) -> Iterator[tuple[object, ...]]:
    """The lines of the CSV; what is missing is empty."""
    for line in found.lines:
        one, measured, simulated = line.any, line.measured, line.simulated
        yield (
            one.collective, one.group, one.ranks, one.size_bytes, one.dtype,
            measured.calls if measured else "", measured.us if measured else "",
            measured.least_us if measured else "", simulated.us if simulated else "",
            simulated.alone_us if simulated else "",
            "" if line.error is None else line.error * 100,
            measured.total_us if measured else "", simulated.total_us if simulated else "",
            measured.exposed_us if measured else "", simulated.exposed_us if simulated else "",
            simulated.calls if simulated else "", simulated.algorithm if simulated else "",
            simulated.protocol if simulated else "", simulated.channels if simulated else "",
        )  # fmt: skip


def as_json(found: TraceCompared) -> dict[str, Any]:
    """A comparison as plain values."""
    return {
        "trace": found.trace,
        "machine": found.machine,
        "step_us": found.step_us,
        "simulated_step_us": found.simulated_step_us,
        "calls": [
            {
                "measured": line.measured and asdict(line.measured),
                "simulated": line.simulated and asdict(line.simulated),
                "error": line.error,
            }
            for line in found.lines
        ],
        "bands": as_values(bands_of(found)),
    }


def _write(done: Sequence[TraceCompared], values: list[dict[str, Any]], output: Path) -> None:
    output.mkdir(parents=True, exist_ok=True)
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("trace", *COLUMNS))
    for one in done:
        for row in as_rows(one):
            cells = [repr(v) if isinstance(v, float) else v for v in row]
            writer.writerow([Path(one.trace).name, *cells])
    table = write_text(output / TABLE, text.getvalue())
    kept = write_text(output / "comparison.json", json.dumps(values, indent=1) + "\n")
    for file in (table, kept, *plot_calls(table, output)):
        typer.echo(f"wrote {file}", err=True)
