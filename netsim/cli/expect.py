"""`netsim expect`: the table that nccl-tests would print, with what NCCL chooses for each size."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

import typer

from netsim.base.errors import InputError, NetsimError, silent
from netsim.base.units import format_bandwidth, parse_cli_size, parse_ratio
from netsim.base.values import dataclass
from netsim.cli import shown
from netsim.cli.options import Engine, Format, GateFormat
from netsim.cli.output import check_outputs, parsed, print_lines, refuse_output_as_input
from netsim.cli.questions import QuestionOptions, simulated, source_of_question
from netsim.cli.shown import SURENESS, halves, sureness
from netsim.extent.decisions import listening
from netsim.nccl import choice, environment
from netsim.results import nccl_tests
from netsim.results.nccl_tests import acceptance_csv, closing, line, microseconds, min_bandwidth
from netsim.results.row import Row, csv_text, stored
from netsim.scenario.cells import assumed_defaults
from netsim.scenario.models import node_count
from netsim.tasks.answer import checked_cells
from netsim.tasks.cluster import wishes_of
from netsim.tasks.resolve import ResolvedCell, resolve
from netsim.tasks.unknown_launch import is_launch_unknown
from netsim.tasks.validation import class_of
from netsim.topology.config import ClusterConfig
from netsim.topology.host_costs import HOST_CLASSES, host_class
from netsim.topology.load import figure_text
from netsim.topology.machine import Machine

SHOWN_SIZES = 4


def assumptions(resolved: ResolvedCell, options: QuestionOptions) -> Iterator[str]:
    """Yield a message for each assumption that the answer depends on and that no option states."""
    scenario = resolved.cell.scenario
    work = scenario.collective
    config = scenario.cluster
    if config.graph is None and node_count(config) > 1:
        yield from _network(config, options)
        yield from assumed_defaults(resolved.cell)
        fabric = resolved.jobs[0].cluster.fabric if resolved.is_nccl else None
        if fabric is not None and fabric.note:
            yield fabric.note
    if options.launch is None and "launch" not in resolved.cell.source.data:
        yield "assumed: one process for each GPU (--launch single_process is nccl-tests -g 8)"
    yield from _launch_assumptions(resolved)
    if resolved.is_nccl:
        yield from _nccl_assumptions(resolved, options)
    elif work.algorithm == "ring":
        yield "ring is the textbook algorithm, without NCCL's costs; NCCL's is Ring"
    for group in config.members if config.graph is None else ():
        if not group.loaded.machine.gpu.sm:
            yield (
                f"assumed, not validated: NCCL's rules hold for {group.loaded.machine.gpu.model}, "
                "which runs another library"
            )


def _launch_assumptions(resolved: ResolvedCell) -> Iterator[str]:
    """Yield what a kernel launch is assumed to cost, if it matters or is unknown.

    It matters if one process launches the kernels of several GPUs one after the other.
    """
    is_unknown = is_launch_unknown(resolved)
    if is_unknown:
        yield (
            "launch unknown: times are between one process for each GPU and one for all GPUs of a "
            "node, and intervals cover both (--launch names one)"
        )
    if not is_unknown and resolved.gpus_per_process == 1:
        return
    if resolved.host_costs is None:
        usual = host_class("bare-metal")
        classes = ", ".join(HOST_CLASSES)
        yield f"assumed: {usual.words} (--host names a class or a time: {classes}, 7us)"
    elif resolved.host_costs.name:
        yield f"assumed: {resolved.host_costs.words}"


def _nccl_assumptions(resolved: ResolvedCell, options: QuestionOptions) -> Iterator[str]:
    """Yield the assumed NCCL version, what the transport's plugin sets, and which variables have no
    effect.
    """
    scenario = resolved.cell.scenario
    work = scenario.collective
    if options.nccl is None and "version" not in scenario.nccl.model_fields_set:
        yield f"assumed: NCCL {scenario.nccl.version} (--nccl names another)"
    yield from _plugin(resolved)
    for name, why in environment.without_effect(scenario.nccl.env).items():
        yield f"warning: {name} is known to NCCL but has no effect here: {why}"
    collective = resolved.collective(max(work.size_list()))
    # NCCL before 2.24 does not always use the algorithm and protocol that the user sets.
    if reason := choice.fallback(resolved.jobs[0], collective, work.dtype):
        yield f"NCCL {scenario.nccl.version} {reason}"


def _plugin(resolved: ResolvedCell) -> Iterator[str]:
    """Yield which NCCL variables the plugin of the network transport sets that the user does not
    set.
    """
    job = resolved.jobs[0]
    wishes = wishes_of(resolved.cell.scenario)
    variables = wishes.on(job.cluster, job.gpus).variables
    ours = [f"{name}={value}" for name, value in variables.items() if name not in wishes.variables]
    if ours and job.cluster.transport:
        yield f"assumed: the plugin of {job.cluster.transport.name} sets {', '.join(ours)} (--env)"


def approximations(rows: Sequence[Row]) -> Iterator[str]:
    """Yield a message for each row of which only a part was simulated, with its error
    bound in %.
    """
    for row in rows:
        if row.approximation:
            most = row.approximation_pct or 0.0
            yield f"approximated: {row.size_bytes} B: {row.approximation} (within {most:.2g} %)"


def roundings(resolved: ResolvedCell, sizes: list[int]) -> Iterator[str]:
    """Yield one message about the sizes that nccl-tests rounds, and to what; `sizes`
    are in bytes.
    """
    pairs = [(size, resolved.collective(size).size_bytes) for size in sizes]
    rounded = [f"{size} B -> {became} B" for size, became in pairs if size != became]
    if rounded:
        more = len(rounded) - SHOWN_SIZES
        shown = ", ".join(rounded[:SHOWN_SIZES]) + (f" and {more} more" if more > 0 else "")
        yield f"rounded as nccl-tests rounds: {shown}"


def _network(config: ClusterConfig, options: QuestionOptions) -> Iterator[str]:
    """Yield what is assumed about the network between hosts, for each machine if they differ."""
    if options.fabric is None and config.fabric is None:
        several = max(group.nic_count for group in config.members) > 1
        kind = "rail-optimized fabric" if several else "single switch"
        yield f"assumed: a {kind} that never blocks (--fabric names another)"
    said = config.nic_rate
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
    """The header lines of the table; with `noise`, it has columns of percentiles."""
    percentiles = "  " + "".join(f"{name:>9}" for name in _PERCENTILES)
    return shown.titles(percentiles * noise + _CHOICE + SURENESS)


def line_of(row: Row) -> str:
    """The line of one row in the columns of `header`; its times are empty if it has none."""
    fixed = f"{row.size_bytes:>12}  {row.count:>12}  {row.dtype:>8}"
    channels = "" if row.channels is None else str(row.channels)
    times = [time for name in _PERCENTILES if (time := getattr(row, f"{name}_us")) is not None]
    percentiles = "".join(["  ", *(f"{microseconds(time):>9}" for time in times)] if times else "")
    choice = f"  {row.algorithm:<13}  {row.protocol:<9}  {channels:>4}"
    return f"{fixed}{halves(row)}{percentiles}{choice}{sureness(row)}  {_bound_or_error(row)}"


def _bound_or_error(row: Row) -> str:
    """What bounds the time of a row (such as `NIC egress node0.nic1 97 %`), or why it
    has no time.
    """
    return row.bound_by if row.status == "ok" else row.error


_COMPACT_CHOICE = 20  # characters of algorithm, protocol and channels: `NVLSTree Simple x16`


def compact_header() -> str:
    """The header lines of the table with few columns, for a narrow terminal."""
    title = f"{shown.COMPACT_TITLES}  {'choice':<{_COMPACT_CHOICE}}  bound by"
    return f"{title}\n{shown.COMPACT_UNITS}"


def compact_line_of(row: Row) -> str:
    """The line of one row in the columns of `compact_header`."""
    channels = "" if row.channels is None else f"x{row.channels}"
    choice = " ".join(filter(None, (row.algorithm, row.protocol, channels)))
    return f"{shown.compact_figures(row)}  {choice:<{_COMPACT_CHOICE}}  {_bound_or_error(row)}"


@dataclass(frozen=True)
class TextTable:
    """A table for people: its header lines (`title`) and the function that formats one row."""

    title: str
    line: Callable[[Row], str]


def text_table(collectives: Sequence[str], *, noise: bool, width: int | None) -> TextTable:
    """The table for one or several collectives; several get a column for the collective's name.

    With a `width` in characters, the table has fewer columns and its lines are cut to that width;
    errors are not cut. With `noise`, it has columns of percentiles.
    """
    table = TextTable(header(noise=noise), line_of)
    if width is not None:
        table = TextTable(compact_header(), compact_line_of)
    if len(collectives) > 1:
        table = _with_collective_column(table, max(map(len, [*collectives, "collective"])))
    return table if width is None else _cut_to_width(table, width)


def _with_collective_column(table: TextTable, width: int) -> TextTable:
    """The table with a first column, `width` characters wide, that has the collective
    of each row.
    """
    titles = []
    for text in table.title.splitlines():
        is_names = text.startswith("#") and " size " in text
        titles.append(f"# {'collective' if is_names else '':<{width}} {text[1:]}")
    return TextTable("\n".join(titles), lambda row: f"  {row.collective:<{width}}{table.line(row)}")


def _cut_to_width(table: TextTable, width: int) -> TextTable:
    """The table with lines cut to `width` characters; the error message of a row is not cut."""

    def cut(row: Row) -> str:
        text = table.line(row)
        return shown.shortened(text, width) if row.status == "ok" else text.rstrip()

    titles = (shown.shortened(text, width) for text in table.title.splitlines())
    return TextTable("\n".join(titles), cut)


def print_tables(
    tests: Sequence[ResolvedCell],
    form: Format,
    engine: Engine,
    failures: list[NetsimError],
    *,
    wide: bool = False,
) -> list[list[Row]]:
    """Simulate all sizes of all collectives and print them; return the rows of each collective.

    `tests` has one resolved cell for each collective. A size that cannot be simulated gets a line
    with the reason, is added to `failures`, and does not stop the others.
    """
    if form in ("csv", "json"):
        groups = [list(simulated(resolved, engine, failures)) for resolved in tests]
        rows = [row for group in groups for row in group]
        values = json.dumps([asdict(row) for row in rows], indent=1) + "\n"
        typer.echo(csv_text(rows) if form == "csv" else values, nl=False)
        return groups
    if form == "nccl-tests":
        return [_print_log(resolved, engine, failures) for resolved in tests]
    names = [resolved.cell.scenario.collective.collective for resolved in tests]
    noise = tests[0].cell.scenario.noise is not None
    table = text_table(names, noise=noise, width=shown.compact_width(wide=wide))
    groups = [[] for _ in tests]
    held = [table.title]
    for group, resolved in zip(groups, tests, strict=True):
        for row in simulated(resolved, engine, failures):
            group.append(row)
            held.append(table.line(row))
            if any(_is_timed(row) for rows in groups for row in rows):
                typer.echo("\n".join(held))
                held = []
    if not held:
        print_lines(_footers(names, groups))
    return groups


def _is_timed(row: Row) -> bool:
    """Whether a row has a time; of a failed operation, that is the time until it fails."""
    return row.status in ("ok", "failed")


def _footers(names: Sequence[str], groups: Sequence[Sequence[Row]]) -> Iterator[str]:
    """Yield the mean bus bandwidth (GB/s) of each collective; for a single one, as nccl-tests
    prints it.

    `groups` has the rows of each collective in `names`.
    """
    if len(names) == 1:
        yield shown.footer(groups[0])
        return
    width = max(map(len, names))
    for name, rows in zip(names, groups, strict=True):
        yield f"# Avg bus bandwidth of {name:<{width}} : {nccl_tests.average_busbw(rows):g}"
    yield "#"


def _print_log(resolved: ResolvedCell, engine: Engine, failures: list[NetsimError]) -> list[Row]:
    """Print one collective as a log of nccl-tests and return its rows; print nothing if no size has
    a time.
    """
    run = shown.run_of(resolved)
    held = [nccl_tests.opening(run)]
    rows: list[Row] = []
    for row in simulated(resolved, engine, failures):
        rows.append(row)
        held.append(line(row, run.root))
        if any(map(_is_timed, rows)):
            typer.echo("\n".join(held))
            held = []
    if not held:
        typer.echo(closing(run, rows))
    return rows


# By the first word of what bounds a row: the figures of the machine that decide its time.
DECIDED_BY = {
    "NVLink": ("scale_up.link_bandwidth",),
    "xGMI": ("scale_up.link_bandwidth",),
    "NVLS": ("scale_up.link_bandwidth",),
    "PCIe": ("pcie.generation", "pcie.width"),
    "host memory": ("cpu.memory_bandwidth",),
    "UPI": ("cpu.link",),
    "C2C": ("c2c.bandwidth",),
    "NIC": ("nics.rate",),
}
SERIAL = "serial transfers ("
EXECUTION = ("latency", "launch", "proxy", "SM", "own rate", "NIC messages")
WEAK = ("assumed", "transferred")


def weak_figures(resolved: ResolvedCell, rows: Sequence[Row]) -> Iterator[str]:
    """Yield a message for each figure of the machine that decides some rows and is only assumed, or
    transferred from a similar machine.
    """
    config = resolved.cell.scenario.cluster
    if config.graph is not None or not config.members:
        return
    machine = config.members[0].loaded.machine
    count = Counter(kind_of(row.bound_by or "") for row in rows if row.status == "ok")
    chosen = config.nic_rate is not None
    decided = Counter(path for kind in count.elements() for path in DECIDED_BY.get(kind, ()))
    for path, bounds in decided.items():
        figure = next((figure for figure in machine.sources if figure.path == path), None)
        if figure is None or figure.stamp not in WEAK or (path == "nics.rate" and chosen):
            continue
        text = f"{path} {figure_text(path, figure.value)}"
        yield f"{figure.stamp}: {text}, {_bounds(bounds, rows)}"
    slow = sum(count[kind] for kind in EXECUTION)
    if slow and resolved.is_nccl and not _is_measured(resolved, machine):
        yield (
            "transferred: latencies and channel rates, of other machines with such GPUs, "
            f"{_bounds(slow, rows)} (netsim calibrate fits them to a log)"
        )


def kind_of(bound_by: str) -> str:
    """The kind of thing that bounds a row, without place and fraction: `NIC` for `NIC egress
    node0.nic1 97 %`.

    "" if the text begins with none of the known kinds.
    """
    text = bound_by.removeprefix(SERIAL)
    return max(
        (kind for kind in (*DECIDED_BY, *EXECUTION) if text.startswith(kind)), key=len, default=""
    )


def _bounds(number: int, rows: Sequence[Row]) -> str:
    """The clause "which decides N of M sizes"; `number` is N."""
    return f"which decides {number} of {len(rows)} sizes"


def _is_measured(resolved: ResolvedCell, machine: Machine) -> bool:
    """Whether figures of a machine were fitted to measurements, or the corpus has runs of such
    machines.
    """
    fitted = any(
        figure.stamp in ("calibrated", "measured") for figure in machine.calibration.values()
    )
    where = class_of(resolved)
    return fitted or any(validated == where for validated, _, _ in stored())


def part_of(text: str) -> float:
    """The fraction of the expected bandwidth that must be reached: 0.9 for `90%` or `0.9`."""
    part = parsed(parse_ratio, "--acceptance", text)
    if part > 1:
        near = f"did you mean {text}%?" if part <= 100 and "%" not in text else ""
        raise InputError(f"--acceptance {text}: expected at most 100%", hint=near)
    return part


def print_acceptance(
    resolved: ResolvedCell, part: float, engine: Engine, failures: list[NetsimError]
) -> None:
    """Print the least bus bandwidth that each size must reach, as CSV on standard output.

    `part` is the fraction of the expected bandwidth that must be reached. Standard error gets the
    sizes that are left out, and NCCL_TESTS_MIN_BW (GB/s), the one threshold with which nccl-tests
    compares its average.
    """
    rows = list(simulated(resolved, engine, failures))
    for row in (row for row in rows if row.status != "ok"):
        typer.echo(f"left out: {row.size_bytes} B: {row.error}", err=True)
    typer.echo(acceptance_csv(rows, part, resolved.cell.scenario.collective.root), nl=False)
    typer.echo(
        f"NCCL_TESTS_MIN_BW={min_bandwidth(rows, part):.4g} asks nccl-tests for {part:.4g} of the "
        "expected average over these sizes",
        err=True,
    )


@dataclass(frozen=True)
class Answers:
    """The options of `expect` that say which answer is printed or written, as they were given."""

    why: str | None = None
    acceptance: str | None = None
    gate: str | None = None
    gate_format: GateFormat | None = None
    gate_out: Path | None = None
    tuner_out: Path | None = None
    graph_out: Path | None = None
    json_file: Path | None = None
    form: Format = "table"
    wide: bool = False
    quiet: bool = False

    @property
    def files(self) -> dict[str, Path | None]:
        """The files that are written, by the option that names each; None if the option is not
        given.
        """
        return {
            "--tuner-out": self.tuner_out,
            "--graph-out": self.graph_out,
            "-J": self.json_file,
            "--gate-out": self.gate_out,
        }

    @property
    def of_one_collective(self) -> dict[str, object]:
        """The options, by flag, that go with a single collective only."""
        return {
            "--why": self.why,
            "--acceptance": self.acceptance,
            "--tuner-out": self.tuner_out,
            "--graph-out": self.graph_out,
            "-J": self.json_file,
        }

    @property
    def exclusive(self) -> dict[str, object]:
        """The options, by flag, of which at most one may be given."""
        return {**self.of_one_collective, "--gate": self.gate}

    @property
    def is_table(self) -> bool:
        """Whether the answer is only the table for people."""
        return self.form == "table" and not any(self.exclusive.values())


def print_expected(
    topology: str,
    collective: str,
    options: QuestionOptions,
    answers: Answers,
    engine: Engine,
    *,
    verbose: bool,
) -> None:
    """Print the table that nccl-tests would print, or another answer that an option selects.

    With `verbose`, standard error gets which method each time was computed with, and why.
    """
    with listening(partial(typer.echo, err=True) if verbose else silent):
        _expect(topology, collective, options, answers, engine)


def _expect(
    topology: str, collective: str, options: QuestionOptions, answers: Answers, engine: Engine
) -> None:
    """Check the options, resolve one cell for each collective, and print the answer."""
    if answers.acceptance is not None:
        part_of(answers.acceptance)
    _check_outputs(answers.exclusive, answers.files)
    gates = None
    if answers.gate or answers.gate_format or answers.gate_out:
        from netsim.cli.gate_options import gate_options

        gates = gate_options(answers.gate, answers.gate_format, answers.gate_out)
    collectives = collectives_of(collective, answers.of_one_collective, options.nccl)
    _refuse_outputs(answers, [Path(topology)])
    if options.nccl and "," in options.nccl:
        _compare_versions(topology, collective, options, is_alone=answers.is_table)
        return
    questions = [source_of_question(topology, name, options) for name in collectives]
    tests = [resolve(checked_cells(question.source)[0]) for question in questions]
    inputs = files_read(questions[0].source.name, tests[0].cell.scenario.cluster, options)
    _refuse_outputs(answers, inputs)
    notes = [note for question in questions for note in question.notes]
    assumed = [text for test in tests for text in assumptions(test, options)]
    _print_notes(dict.fromkeys([*notes, *assumed]), answers)
    if answers.graph_out is not None or answers.why is not None:
        _print_choice(tests[0], answers)
        return
    for test in tests:
        sizes = test.cell.scenario.collective.size_list()
        _print_notes(_named_of(test, tests, roundings(test, sizes)), answers)
    failures: list[NetsimError] = []
    if gates is not None:
        from netsim.cli.gate import write_gates

        _print_notes(gates.notes, answers)
        write_gates(tests, gates, engine, failures)
    else:
        _simulate(tests, answers, engine, failures)
    if failures:
        raise failures[0]


def _print_choice(resolved: ResolvedCell, answers: Answers) -> None:
    """Write NCCL's graph to a file, or print why NCCL chooses its algorithm; nothing is
    simulated.
    """
    from netsim.cli.expect_more import explain_choice, write_graph

    if answers.graph_out is not None:
        write_graph(resolved, answers.graph_out)
    elif answers.why is not None:
        explain_choice(resolved, parsed(parse_cli_size, "--why", answers.why), answers.form)


def _simulate(
    tests: Sequence[ResolvedCell],
    answers: Answers,
    engine: Engine,
    failures: list[NetsimError],
) -> None:
    """Simulate all sizes; print the table, or the tuner table or acceptance limits if options ask
    for them.
    """
    if answers.tuner_out is not None:
        from netsim.cli.tuner_table import write_tuner

        write_tuner(tests[0], answers.tuner_out, engine)
    elif answers.acceptance is not None:
        print_acceptance(tests[0], part_of(answers.acceptance), engine, failures)
    else:
        _print_answer(tests, answers, engine, failures)


def _refuse_outputs(answers: Answers, inputs: Sequence[Path]) -> None:
    """Raise an InputError if a file that is to be written is one that is read."""
    for file in answers.files.values():
        refuse_output_as_input(file, inputs)


def _print_notes(lines: Iterable[str], answers: Answers) -> None:
    """Print messages to standard error; with `-q`, only those that are warnings."""
    for text in lines:
        if not answers.quiet or text.startswith("warning: "):
            typer.echo(text, err=True)


def _compare_versions(
    topology: str, collective: str, options: QuestionOptions, *, is_alone: bool
) -> None:
    """Print the times with both NCCL versions of `--nccl A,B` side by side.

    Raises an InputError if not `is_alone`: other options ask for another answer.
    """
    if not is_alone:
        raise InputError(f"--nccl {options.nccl}: compares two versions, and goes alone")
    from netsim.cli.diff import compare_versions

    compare_versions(topology, collective, options)


def collectives_of(text: str, answers: Mapping[str, object], nccl: str | None) -> list[str]:
    """The collectives that the text names, separated by commas: `all_reduce,alltoall`.

    Raises an InputError for an empty or repeated name, and if there are several collectives and one
    of `answers` (options by flag that go with one collective only) is set.
    """
    names = [name.strip() for name in text.split(",")]
    example = "name them as all_reduce,all_gather,alltoall"
    if len(names) > 1 and not all(names):
        raise InputError(f"{text}: a collective is missing beside a comma", hint=example)
    for name, count in Counter(names).items():
        if count > 1:
            raise InputError(f"{text}: {name} is named twice", hint=example)
    if len(names) == 1:
        return names
    options = [option for option, value in answers.items() if value is not None]
    if nccl and "," in nccl:
        options.append(f"--nccl {nccl}")
    if options:
        raise InputError(
            f"{options[0]}: goes with one collective only, got {len(names)}: {', '.join(names)}",
            hint=f"run netsim expect once for each, as with {names[0]}",
        )
    return names


def _named_of(
    test: ResolvedCell, tests: Sequence[ResolvedCell], texts: Iterable[str]
) -> Iterator[str]:
    """Yield messages about one collective, with its name in front if there are several `tests`."""
    prefix = f"{test.cell.scenario.collective.collective}: " if len(tests) > 1 else ""
    for text in texts:
        yield prefix + text


def files_read(topology: str, config: ClusterConfig, options: QuestionOptions) -> list[Path]:
    """The files that the command reads: topology, machines, tuner table and NCCL graph."""
    named = [Path(name) for name in (topology, options.tuner, options.graph) if name]
    machines = [group.loaded.path for group in config.members] if config.graph is None else []
    return [*named, *filter(None, machines)]


def _print_answer(
    tests: Sequence[ResolvedCell], answers: Answers, engine: Engine, failures: list[NetsimError]
) -> None:
    """Print the table of all collectives; then messages about approximated rows and
    weak figures.
    """
    started = shown.time_of_day()
    groups = print_tables(tests, answers.form, engine, failures, wide=answers.wide)
    for test, rows in zip(tests, groups, strict=True):
        texts = (*approximations(rows), *weak_figures(test, rows))
        _print_notes(_named_of(test, tests, texts), answers)
    if answers.json_file is not None:
        run = replace(shown.run_of(tests[0]), started=started, ended=shown.time_of_day())
        written = shown.write_json(answers.json_file, run, groups[0])
        typer.echo(f"wrote {written}", err=True)


def _check_outputs(asked_for: Mapping[str, object], files: Mapping[str, Path | None]) -> None:
    """Raise an InputError if several answers are asked for, or if a file could not be written.

    `asked_for` has the options that select an answer, `files` those that name a file, by flag.
    """
    several = [flag for flag, value in asked_for.items() if value is not None]
    if len(several) > 1:
        raise InputError(f"{' and '.join(several)} are different answers: give one of them")
    check_outputs(files)
