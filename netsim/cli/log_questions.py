"""The scenario that a log or a recorded trace was measured on.

Options complete what the file states. Contradictions between the file and the options are printed.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import typer

from netsim.base.errors import InputError, NetsimError
from netsim.base.files import preset_names
from netsim.base.startup import at
from netsim.base.values import dataclass
from netsim.cli.questions import NotedSource, QuestionOptions, source_of_question
from netsim.measured import index
from netsim.measured.compare import error_figures, fit_of, resolved_for
from netsim.measured.logs import LogRun
from netsim.scenario.cells import Cell
from netsim.scenario.models import node_count
from netsim.scenario.training import Training
from netsim.tasks.answer import checked_cells, find_scenario, load_source
from netsim.tasks.resolve import ResolvedCell
from netsim.topology.load import FOLDER, load_machine
from netsim.training.recorded.kineto import Profile
from netsim.yamlio.models import override
from netsim.yamlio.read import Source

CANDIDATES = 5  # machines that are named where a log does not say on what it ran
CANDIDATE_SIZES = 4  # sizes that are simulated for each machine
MOST_GUESSED_ERROR = 0.4  # median error beyond which the best machine is not taken for the log's


@dataclass(frozen=True)
class Question:
    """What the command line states: a topology, a scenario, or neither, and further options."""

    topology: str | None
    scenario: str | None
    options: QuestionOptions


def question_of(question: Question, run: LogRun) -> NotedSource:
    """The scenario for a run of a log, with notes about what was taken from the log."""
    if question.scenario is not None:
        return NotedSource(_scenario(question.scenario, question.options, "log"))
    said = index.proposal_of(run)
    notes: list[str] = []
    topology = question.topology
    if topology is None:
        if said.machine is None:
            topology, text = _fitting(question, run, said)
        else:
            topology = said.machine
            text = f"taken from the log: {said.machine} ({run.gpu_name})"
        notes.append(text)
    options = _completed(question.options, said, topology, notes, run.file)
    source, question_notes = source_of_question(topology, run.collective, options)
    if said.timing and "timing" not in source.data:
        source = override(source, "timing", dict(said.timing), f"{run.file}: the log")
        timing = ", ".join(f"{key} {value}" for key, value in said.timing.items())
        notes.append(f"taken from the log: timing of {timing}")
    return NotedSource(source, (*notes, *question_notes))


def _scenario(name: str, options: QuestionOptions, kind: str) -> Source:
    """The scenario file `name`, to compare a log or a trace with (`kind` is that word); raises an
    InputError for a sweep.
    """
    path = find_scenario(name).path
    source = load_source(path, options.settings or ())
    if "sweep" in source.data:
        raise InputError(f"{path}: a {kind} is held against one cell, not a sweep")
    return source


def _fitting(question: Question, run: LogRun, said: index.Proposal) -> tuple[str, str]:
    """The machine whose simulation is closest to a log that names no machine, and a note with the
    next ones.

    Raises an InputError if no machine is within MOST_GUESSED_ERROR, because all results would then
    be about another system. `said` is what the log states.
    """
    candidates: list[tuple[float, float, str]] = []
    names = preset_names(FOLDER)
    for done, name in enumerate(names):
        at(f"{run.file}: was it {name}?", done, len(names))
        with suppress(NetsimError):
            options = _completed(question.options, said, name, [], run.file)
            ratios = fit_of(
                source_of_question(name, run.collective, options)[0], run, CANDIDATE_SIZES
            )
            median_error = error_figures(ratios)[0]
            candidates.append((median_error, float(abs(ratios).mean()), name))
    if not candidates:
        raise InputError(
            f"{run.file}: the log does not say on what it ran, and no machine has its ranks",
            hint="give --topology",
        )
    nearest = sorted(candidates)[:CANDIDATES]
    errors = ", ".join(f"{name} (median error {error:.1%})" for error, _, name in nearest)
    best_error, _, best = nearest[0]
    if best_error > MOST_GUESSED_ERROR:
        raise InputError(
            f"{run.file}: the log does not say on what it ran, and none of {len(candidates)} "
            f"machines fits it within {MOST_GUESSED_ERROR:.0%}; the nearest are {errors}",
            hint=f"give --topology (netsim list names machines){_missing_options(question, said)}",
        )
    text = f"the log does not say on what it ran; of {len(candidates)} machines these fit best:"
    return best, f"{text} {errors}; {best} is taken, --topology names another"


def _missing_options(question: Question, said: index.Proposal) -> str:
    """The end of a hint: the options besides --topology that neither the command line nor the log
    states.
    """
    missing = []
    if question.options.nodes is None and said.hosts is None:
        missing.append("--nodes")
    counted = said.hosts is not None and said.ranks is not None
    if question.options.gpus_per_node is None and not counted:
        missing.append("--gpus-per-node")
    if question.options.launch is None and said.launch is None:
        missing.append("--launch (single_process for nccl-tests -g 8)")
    if question.options.transport is None and said.cloud is None:
        missing.append("--transport and --nic")
    return f", and {', '.join(missing)} as the system has them" if missing else ""


def resolved_with_notes(source: Source, notes: Sequence[str], run: LogRun) -> ResolvedCell:
    """Resolve the scenario for a run, check that the numbers of ranks agree, and print notes about
    both.
    """
    resolved = resolved_for(source, run)
    scenario = resolved.cell.scenario
    hosts = node_count(scenario.cluster)
    index.check_ranks(run, len(resolved.gpus), hosts)
    asides = [*notes, *run.notes, *index.contradictions(run, scenario.launch_costs().style, hosts)]
    asides += [f"not used: {problem}" for problem in run.problems]
    for note in dict.fromkeys(asides):
        typer.echo(f"{run.file}: {note}", err=True)
    return resolved


def _completed(
    options: QuestionOptions, said: index.Proposal, topology: str, notes: list[str], file: str
) -> QuestionOptions:
    """The options, with values from the log where the command line states none.

    `said` is what the log states; messages about the values taken are appended to `notes`.
    """
    least, most = said.ranks or (0, 0)
    counts: dict[str, int] = {}
    if least == most:
        counts = _counts(options, topology, most, f"{file}: the log", said.hosts)
    stated: dict[str, str | int | None] = {"launch": said.launch, "nccl": said.nccl, **counts}
    if said.cloud and not options.fabric and (counts.get("nodes") or options.nodes or 1) > 1:
        cloud, words = said.cloud
        machine = load_machine(topology)
        usual = machine.nics.count if machine.nics else 0
        fewer = int(cloud.nics) if cloud.nics and int(cloud.nics) < usual else None
        transport = cloud.transport if cloud.transport != machine.transport else None
        stated |= {"transport": transport, "nic": cloud.nic or None, "nics_per_node": fewer}
        notes.append(f"the log's '{words}' tells {cloud.name}")
    options = _taken(options, stated, notes, "log")
    named = {text.partition("=")[0] for text in options.env or ()}
    more = [f"{name}={value}" for name, value in said.variables if name not in named]
    notes += [f"taken from the log: {text}" for text in more]
    return replace(options, env=[*(options.env or ()), *more])


def _taken(
    options: QuestionOptions, stated: Mapping[str, str | int | None], notes: list[str], file: str
) -> QuestionOptions:
    """The options, with `stated` values (by option name) where the command line states none.

    A message about each value is appended to `notes`; `file` is "log" or "trace".
    """
    unsaid = [name for name in stated if getattr(options, name) is None]
    more = {name: stated[name] for name in unsaid if stated[name] is not None}
    notes += [f"taken from the {file}: {name.replace('_', ' ')} {more[name]}" for name in more]
    return replace(options, **more)  # type: ignore[arg-type]


def _counts(
    options: QuestionOptions, topology: str, ranks: int, origin: str, hosts: int | None = None
) -> dict[str, int]:
    """The options `nodes` and `gpus_per_node` that follow from the number of ranks; empty if
    unknown.

    Args:
        ranks: ranks of the log or trace; 0 if unknown
        origin: name of the log or trace in errors
        hosts: hosts of the log, if it lists them
    """
    if not ranks or Path(topology).suffix:
        return {}
    try:
        most = load_machine(topology).gpu.count
    except NetsimError:
        return {}
    nodes = options.nodes or hosts
    if nodes and ranks % nodes == 0:
        if options.gpus_per_node is None and ranks // nodes > most:
            raise InputError(
                f"{origin} has {ranks} ranks on {nodes} host{'s' * (nodes > 1)}, "
                f"{topology} has {most} GPUs",
                hint="give --nodes, or another --topology",
            )
        return {"nodes": nodes, "gpus_per_node": ranks // nodes}
    gpus_per_node = options.gpus_per_node or min(most, ranks)
    if ranks % gpus_per_node:
        return {}
    return {"nodes": ranks // gpus_per_node, "gpus_per_node": gpus_per_node}


NOT_FOR_TRACES = {"algo": "--env NCCL_ALGO=…", "proto": "--env NCCL_PROTO=…"}


def cell_of_trace(question: Question, path: Path, profile: Profile) -> tuple[Cell, tuple[str, ...]]:
    """The cell for a trace, and notes about what was taken from the trace.

    If the scenario has no training workload, the cell replays the trace.
    """
    for name, instead in NOT_FOR_TRACES.items():
        if name in question.options.flags:
            raise InputError(f"--{name}: is for logs of one collective", hint=f"use {instead}")
    if question.scenario is not None:
        source, notes = NotedSource(_scenario(question.scenario, question.options, "trace"))
        first = checked_cells(source)[0]
        if isinstance(first.scenario.workload, Training):
            return first, ()
    else:
        source, notes = _of_topology(question, path, profile)
    source = override(source, "workload", {"trace": str(path)}, str(path))
    return checked_cells(source)[0], notes


def _of_topology(question: Question, path: Path, profile: Profile) -> NotedSource:
    """The scenario of a trace without --scenario: its cluster, from options and the trace, with
    notes.
    """
    notes: list[str] = []
    topology = question.topology
    options = question.options
    if topology is None:
        topology = index.machine_named(profile.gpu, min(profile.world, 8))
        if topology is None:
            gpu = f" ({profile.gpu})" if profile.gpu else ""
            raise InputError(
                f"{path}: the trace does not say on what it ran{gpu}", hint="give --topology"
            )
        notes.append(f"taken from the trace: {topology} ({profile.gpu})")
    counts = _counts(options, topology, profile.world, f"{path}: the trace")
    stated: dict[str, str | int] = {**counts}
    if profile.nccl and options.nccl is None:
        version, note = index.version_of(profile.nccl)
        stated["nccl"] = str(version)
        if note:
            notes.append(note)
    source, question_notes = source_of_question(
        topology, "all_reduce", _taken(options, stated, notes, "trace")
    )
    return NotedSource(source, (*notes, *question_notes))
