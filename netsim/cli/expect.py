"""`netsim expect`: the table that nccl-tests would print, with what NCCL chooses for each size."""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import typer

from netsim.base.errors import InputError, NetsimError
from netsim.base.startup import late
from netsim.base.units import format_bandwidth, parse_cli_size, parse_ratio
from netsim.cell import simulate
from netsim.cell.answer import checked_cells
from netsim.cell.cluster import wishes_of
from netsim.cell.prepare import Prepared, prepare
from netsim.cli import (
    check_outputs,
    parsed,
    print_lines,
    refuse_output_as_input,
    shown,
    with_options,
)
from netsim.cli.questions import Given, Text, asked, simulated
from netsim.cli.shown import SURENESS, Engine, Format, halves, sureness
from netsim.nccl import choice, environment
from netsim.results import nccl_tests
from netsim.results.nccl_tests import acceptance_csv, closing, line, microseconds, min_bandwidth
from netsim.results.row import Row, csv_text, stored
from netsim.scenario.cells import assumed_defaults
from netsim.scenario.models import node_count
from netsim.topology.config import ClusterConfig
from netsim.topology.load import figure_text
from netsim.topology.machine import Machine

SHOWN_SIZES = 4


def assumptions(prepared: Prepared, given: Given) -> Iterator[str]:
    """Everything that the answer depends on and nobody said."""
    scenario, work = prepared.cell.scenario, prepared.cell.scenario.collective
    config = scenario.cluster
    if config.graph is None and node_count(config) > 1:
        yield from _network(config, given)
        yield from assumed_defaults(prepared.cell)
        fabric = prepared.jobs[0].cluster.fabric if prepared.jobs else None
        if fabric is not None and fabric.note:
            yield fabric.note
    if given.launch is None and "launch" not in prepared.cell.source.data:
        yield "assumed: one process for each GPU (--launch single_process is nccl-tests -g 8)"
    if prepared.jobs:
        if given.nccl is None and "version" not in scenario.nccl.model_fields_set:
            yield f"assumed: NCCL {scenario.nccl.version} (--nccl names another)"
        yield from _plugin(prepared)
        for name, why in environment.without_effect(scenario.nccl.env).items():
            yield f"warning: {name} is known to NCCL but has no effect here: {why}"
        collective = prepared.collective(max(work.size_list()))
        # NCCL before 2.24 does not always do what it is told to.
        if reason := choice.fallback(prepared.jobs[0], collective, work.dtype):
            yield f"NCCL {scenario.nccl.version} {reason}"
    elif work.algorithm == "ring":
        yield "ring is the textbook algorithm, without NCCL's costs; NCCL's is Ring"
    for group in config.members if config.graph is None else ():
        if not group.loaded.machine.gpu.sm:
            yield (
                f"assumed, not validated: NCCL's rules hold for {group.loaded.machine.gpu.model}, "
                "which runs another library"
            )


def _plugin(prepared: Prepared) -> Iterator[str]:
    job, scenario = prepared.jobs[0], prepared.cell.scenario
    wishes = wishes_of(scenario)
    variables = wishes.on(job.cluster, job.gpus).variables
    ours = [f"{name}={value}" for name, value in variables.items() if name not in wishes.variables]
    if ours and job.cluster.transport:
        yield f"assumed: the plugin of {job.cluster.transport.name} sets {', '.join(ours)} (--env)"


def approximations(rows: Sequence[Row]) -> Iterator[str]:
    """Where not everything was simulated, and by how much that may move an answer."""
    for row in rows:
        if row.approximation:
            most = row.approximation_pct or 0.0
            yield f"approximated: {row.size_bytes} B: {row.approximation} (within {most:.2g} %)"


def roundings(prepared: Prepared, sizes: list[int]) -> Iterator[str]:
    """Sizes that nccl-tests rounds, and to what."""
    pairs = [(size, prepared.collective(size).size_bytes) for size in sizes]
    rounded = [f"{size} B -> {became} B" for size, became in pairs if size != became]
    if rounded:
        more = len(rounded) - SHOWN_SIZES
        shown = ", ".join(rounded[:SHOWN_SIZES]) + (f" and {more} more" if more > 0 else "")
        yield f"rounded as nccl-tests rounds: {shown}"


def _network(config: ClusterConfig, given: Given) -> Iterator[str]:
    """What is assumed of the network between hosts, machine by machine where they differ."""
    if given.fabric is None and config.fabric is None:
        several = max(group.nic_count for group in config.members) > 1
        kind = "rail-optimized fabric" if several else "single switch"
        yield f"assumed: a {kind} that never blocks (--fabric names another)"
    said = config.nic or (config.network.nic if config.network else None)
    for group in config.members if said is None else ():
        nics = group.loaded.machine.nics
        if nics is None:
            continue
        rate = format_bandwidth(nics.rates[0], bits=True)
        host = "a host" if len(config.members) == 1 else f"a {group.loaded.name}"
        yield f"assumed: {group.nic_count} NICs of {rate} {host} (--nic, --nics-per-node)"
    for group in config.members:
        nics = group.loaded.machine.nics
        if nics is not None and nics.count < group.nic_count:
            yield (
                f"warning: --nics-per-node {group.nic_count} is more than the {nics.count} NICs of "
                f"a {group.loaded.name}: it is simulated with the further ones added"
            )
    if config.network is None or config.network.transport is None:
        yield f"assumed: {config.usual_transport} (--transport names another)"


_CHOICE = f"  {'algorithm':<13}  {'protocol':<9}  {'chan':>4}"


_PERCENTILES = ("p5", "p50", "p95", "p99")  # of samples with noise, in us


def header(*, noise: bool = False) -> str:
    """The lines above the rows."""
    percentiles = "  " + "".join(f"{name:>9}" for name in _PERCENTILES)
    return shown.titles(percentiles * noise + _CHOICE + SURENESS)


def line_of(row: Row) -> str:
    """One row in the columns of the header; without a time where there is none."""
    fixed = f"{row.size_bytes:>12}  {row.count:>12}  {row.dtype:>8}"
    channels = "" if row.channels is None else str(row.channels)
    times = [time for name in _PERCENTILES if (time := getattr(row, f"{name}_us")) is not None]
    percentiles = "".join(["  ", *(f"{microseconds(time):>9}" for time in times)] if times else "")
    choice = f"  {row.algorithm:<13}  {row.protocol:<9}  {channels:>4}"
    last = row.bound_by if row.status == "ok" else row.error
    return f"{fixed}{halves(row)}{percentiles}{choice}{sureness(row)}  {last}"


def print_table(
    prepared: Prepared, form: Format, engine: Engine, failures: list[NetsimError]
) -> list[Row]:
    """All sizes; those that cannot be simulated say why and do not stop the rest."""
    found = simulated(prepared, engine, failures)
    if form in ("csv", "json"):
        rows = list(found)
        values = json.dumps([asdict(row) for row in rows], indent=1) + "\n"
        typer.echo(csv_text(rows) if form == "csv" else values, nl=False)
        return rows
    if form == "nccl-tests":
        run = shown.run_of(prepared)
        return _printed(
            found, nccl_tests.opening(run), lambda row: line(row, run.root),
            lambda rows: closing(run, rows),
        )  # fmt: skip
    noise = prepared.cell.scenario.noise is not None
    return _printed(found, header(noise=noise), line_of, shown.footer)


def _printed(
    found: Iterator[Row],
    title: str,
    text: Callable[[Row], str],
    footer: Callable[[Sequence[Row]], str],
) -> list[Row]:
    """Every row as it is there; of a table without a time, nothing."""
    rows, held, timed = list[Row](), [title], False
    for row in found:
        rows.append(row)
        held.append(text(row))
        timed = timed or row.status in ("ok", "failed")
        if timed:
            typer.echo("\n".join(held))
            held = []
    if timed:
        typer.echo(footer(rows))
    return rows


# What a row is bound by, as its words begin, and the figures that decide it.
DECIDED_BY = {
    "NVLink": ("scale_up.link_bandwidth",), "xGMI": ("scale_up.link_bandwidth",),
    "NVLS": ("scale_up.link_bandwidth",), "PCIe": ("pcie.generation", "pcie.width"),
    "host memory": ("cpu.memory_bandwidth",), "UPI": ("cpu.link",), "C2C": ("c2c.bandwidth",),
    "NIC": ("nics.rate",),
}  # fmt: skip
SERIAL = "serial transfers ("
EXECUTION = ("latency", "launch", "proxy", "SM", "own rate", "NIC messages")
WEAK = ("assumed", "transferred")


def weak_figures(prepared: Prepared, rows: Sequence[Row]) -> Iterator[str]:
    """A line for every figure that decides some rows and is assumed or transferred."""
    config = prepared.cell.scenario.cluster
    if config.graph is not None or not config.members:
        return
    machine = config.members[0].loaded.machine
    count = Counter(kind_of(row.bound_by or "") for row in rows if row.status == "ok")
    chosen = config.nic is not None or (config.network is not None and config.network.nic)
    decided = Counter(path for kind in count.elements() for path in DECIDED_BY.get(kind, ()))
    for path, bounds in decided.items():
        found = next((one for one in machine.sources if one.path == path), None)
        if found is None or found.stamp not in WEAK or (path == "nics.rate" and chosen):
            continue
        yield f"{found.stamp}: {path} {figure_text(path, found.value)}, {_bounds(bounds, rows)}"
    slow = sum(count[kind] for kind in EXECUTION)
    if slow and prepared.jobs and not _known(prepared, machine):
        yield (
            "transferred: latencies and channel rates, of other machines with such GPUs, "
            f"{_bounds(slow, rows)} (netsim calibrate fits them to a log)"
        )


def kind_of(bound_by: str) -> str:
    """What bounds a row, without its place and share: `NIC` of `NIC egress node0.nic1 97 %`."""
    text = bound_by.removeprefix(SERIAL)
    return max((kind for kind in (*DECIDED_BY, *EXECUTION) if text.startswith(kind)), key=len,
               default="")  # fmt: skip


def _bounds(number: int, rows: Sequence[Row]) -> str:
    return f"which decides {number} of {len(rows)} sizes"


def _known(prepared: Prepared, machine: Machine) -> bool:
    fitted = any(
        figure.stamp in ("calibrated", "measured") for figure in machine.calibration.values()
    )
    where = simulate.class_of(prepared)
    return fitted or any(one == where for one, _, _ in stored())


def part_of(text: str) -> float:
    """The part that must be reached, from `90%` or `0.9`."""
    part = parsed(parse_ratio, "--acceptance", text)
    if part > 1:
        near = f"did you mean {text}%?" if part <= 100 and "%" not in text else ""
        raise InputError(f"--acceptance {text}: expected at most 100%", hint=near)
    return part


def print_acceptance(
    prepared: Prepared, part: float, engine: Engine, failures: list[NetsimError]
) -> None:
    """The table on standard output; the one number that nccl-tests takes beside it."""
    rows = list(simulated(prepared, engine, failures))
    for row in (row for row in rows if row.status != "ok"):
        typer.echo(f"left out: {row.size_bytes} B: {row.error}", err=True)
    typer.echo(acceptance_csv(rows, part, prepared.cell.scenario.collective.root), nl=False)
    typer.echo(
        f"NCCL_TESTS_MIN_BW={min_bandwidth(rows, part):.4g} asks nccl-tests for {part:.4g} of the "
        "expected average over these sizes",
        err=True,
    )


@with_options(Given)
def command(
    topology: str, collective: str, given: Given, why: Text = None, acceptance: Text = None,
    tuner_out: Path | None = None, graph_out: Path | None = None, engine: Engine = "auto",
    form: Format = "table", json_file: Path | None = None,
) -> None:  # fmt: skip
    """Print what nccl-tests would print for COLLECTIVE on TOPOLOGY."""
    part = None if acceptance is None else part_of(acceptance)
    outputs = {"--tuner-out": tuner_out, "--graph-out": graph_out, "-J": json_file}
    _check_outputs({"--why": why, "--acceptance": acceptance, **outputs}, outputs)
    for file in (json_file, tuner_out):
        refuse_output_as_input(file, [Path(topology)])
    if given.nccl and "," in given.nccl:
        if form != "table" or part is not None or why is not None or any(outputs.values()):
            raise InputError(f"--nccl {given.nccl}: compares two versions, and goes alone")
        late("netsim.cli.diff.upgrade")(topology, collective, given)
        return
    source, notes = asked(topology, collective, given)
    prepared = prepare(checked_cells(source)[0])
    inputs = files_read(source.name, prepared.cell.scenario.cluster, given)
    for output in filter(None, outputs.values()):
        refuse_output_as_input(output, inputs)
    print_lines((*notes, *assumptions(prepared, given)), err=True)
    if graph_out is not None:
        late("netsim.cli.expect_more.write_graph")(prepared, graph_out)
        return
    if why is not None:
        late("netsim.cli.expect_more.explain")(prepared, parsed(parse_cli_size, "--why", why), form)
        return
    print_lines(roundings(prepared, prepared.cell.scenario.collective.size_list()), err=True)
    if tuner_out is not None:
        late("netsim.cli.expect_more.write_tuner")(prepared, tuner_out, engine)
        return
    _print_answer(prepared, part, form, engine, json_file)


def files_read(topology: str, config: ClusterConfig, given: Given) -> list[Path]:
    """The files of the topology, its machines, the tuner table and the graph of a question."""
    named = [Path(name) for name in (topology, given.tuner, given.graph) if name]
    machines = [group.loaded.path for group in config.members] if config.graph is None else []
    return [*named, *filter(None, machines)]


def _print_answer(
    prepared: Prepared, part: float | None, form: Format, engine: Engine, json_file: Path | None
) -> None:
    """The table, or what a healthy machine should pass; then what went wrong first."""
    failures: list[NetsimError] = []
    if part is not None:
        print_acceptance(prepared, part, engine, failures)
    else:
        started = shown.time_of_day()
        rows = print_table(prepared, form, engine, failures)
        print_lines((*approximations(rows), *weak_figures(prepared, rows)), err=True)
        if json_file is not None:
            run = replace(shown.run_of(prepared), started=started, ended=shown.time_of_day())
            written = shown.write_json(json_file, run, rows)
            typer.echo(f"wrote {written}", err=True)
    if failures:
        raise failures[0]


def _check_outputs(asked_for: Mapping[str, object], files: Mapping[str, Path | None]) -> None:
    """One answer at a time, and a place for it, before anything is simulated."""
    several = [flag for flag, value in asked_for.items() if value is not None]
    if len(several) > 1:
        raise InputError(f"{' and '.join(several)} are different answers: give one of them")
    check_outputs(files)
