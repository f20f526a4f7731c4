"""The scenario that a log is held against: options and files as given, the rest as the log says."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import typer

from netsim.cli.expect_question import Given, asked
from netsim.errors import InputError, NetsimError
from netsim.measured.comparison import prepared_for
from netsim.measured.log_run import LogRun
from netsim.measured.proposals import Proposal, check_ranks, contradictions, proposal_of
from netsim.prepared import Prepared
from netsim.runs import find_scenario, load_source
from netsim.scenario.clusters import node_count
from netsim.topology.load import load_machine
from netsim.yamlio.source import Source


@dataclass(frozen=True)
class Question:
    """What the command line says: a topology or a scenario, or neither, and options."""

    topology: str | None
    scenario: str | None
    given: Given


def question_of(question: Question, run: LogRun) -> tuple[Source, tuple[str, ...]]:
    """The scenario for a run, and what was taken from the log."""
    if question.scenario is not None:
        found = find_scenario(question.scenario)
        source = load_source(found.path, question.given.settings)
        if "sweep" in source.data:
            raise InputError(f"{found.path}: a log is held against one cell, not a sweep")
        return source, ()
    said = proposal_of(run)
    notes: list[str] = []
    topology = question.topology
    if topology is None:
        if said.machine is None:
            raise InputError(
                f"{run.file}: the log does not say on what it ran", hint="give --topology"
            )
        topology = said.machine
        notes.append(f"taken from the log: {topology} ({run.gpu_name})")
    given = _completed(question.given, said, topology, notes, run.file)
    answer = asked(topology, run.collective, given)
    return answer.source, (*notes, *answer.notes)


def prepared_with_notes(source: Source, notes: Sequence[str], run: LogRun) -> Prepared:
    """The scenario prepared for a run that fits it; what the user should know of both is told."""
    prepared = prepared_for(source, run)
    scenario = prepared.cell.scenario
    hosts = node_count(scenario.cluster)
    check_ranks(run, len(prepared.gpus), hosts)
    asides = [*notes, *run.notes, *contradictions(run, scenario.launch_costs().style, hosts)]
    asides += [f"not used: {problem}" for problem in run.problems]
    for note in dict.fromkeys(asides):
        typer.echo(f"{run.file}: {note}", err=True)
    return prepared


def _completed(given: Given, said: Proposal, topology: str, notes: list[str], file: str) -> Given:
    """The options, and what the log says where they say nothing."""
    flags = dict(given.flags)
    counts = _counts(flags, said, topology, file)
    known: dict[str, str | int | None] = {"launch": said.launch, "nccl": said.nccl, **counts}
    for name, value in known.items():
        if value is not None and flags.get(name) is None:
            flags[name] = value
            notes.append(f"taken from the log: {name.replace('_', ' ')} {value}")
    named = {text.partition("=")[0] for text in given.variables}
    more = [f"{name}={value}" for name, value in said.variables if name not in named]
    notes += [f"taken from the log: {text}" for text in more]
    return replace(given, flags=flags, variables=(*given.variables, *more))


def _counts(
    flags: dict[str, object], said: Proposal, topology: str, file: str
) -> dict[str, int | None]:
    """Hosts and GPUs of each, from ranks and hosts of the log."""
    if said.ranks is None or said.ranks[0] != said.ranks[1] or Path(topology).suffix:
        return {}
    try:
        machine = load_machine(topology)
    except NetsimError:
        return {}
    ranks, gpus = said.ranks[0], flags.get("gpus_per_node")
    nodes = flags.get("nodes") or said.hosts
    if isinstance(nodes, int) and ranks % nodes == 0:
        if gpus is None and ranks // nodes > machine.gpu.count:
            said_hosts = f"{nodes} host{'s' * (nodes > 1)}"
            raise InputError(
                f"{file}: the log has {ranks} ranks on {said_hosts}, "
                f"{topology} has {machine.gpu.count} GPUs",
                hint="give --nodes, or another --topology",
            )
        return {"nodes": nodes, "gpus_per_node": ranks // nodes}
    each = gpus if isinstance(gpus, int) else min(machine.gpu.count, ranks)
    if ranks % each:
        return {}
    return {"nodes": ranks // each, "gpus_per_node": each}
