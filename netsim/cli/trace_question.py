"""The scenario that a profiler trace is held against: as given, the rest as the trace says."""

from dataclasses import replace
from pathlib import Path

from netsim.cli.expect_question import asked
from netsim.cli.logs_question import Question
from netsim.errors import InputError, NetsimError
from netsim.measured.proposals import machine_named
from netsim.measured.versions import version_of
from netsim.runs import checked_cells, find_scenario, load_source
from netsim.scenario.cells import Cell
from netsim.scenario.training import Training
from netsim.topology.load import load_machine
from netsim.training.recorded.kineto import Profile
from netsim.yamlio.overrides import apply_overrides, override
from netsim.yamlio.source import Source

NOT_FOR_TRACES = {
    "algo": "--env NCCL_ALGO=…",
    "proto": "--env NCCL_PROTO=…",
}


def cell_of(question: Question, path: Path, profile: Profile) -> tuple[Cell, tuple[str, ...]]:
    """The cell for a trace, and what was taken from it.

    A scenario with a model is simulated as it is; of any other, the trace takes the workload.
    """
    for name, instead in NOT_FOR_TRACES.items():
        if question.given.flags.get(name) is not None:
            raise InputError(f"--{name}: is for logs of one collective", hint=f"use {instead}")
    if question.scenario is not None:
        found = find_scenario(question.scenario)
        source = apply_overrides(load_source(found.path), question.given.settings)
        if "sweep" in source.data:
            raise InputError(f"{found.path}: a trace is held against one cell, not a sweep")
        first = checked_cells(source)[0]
        if isinstance(first.scenario.workload, Training):
            return first, ()
        return checked_cells(_with_trace(source, path))[0], ()
    source, notes = _of_topology(question, path, profile)
    return checked_cells(_with_trace(source, path))[0], notes


def _with_trace(source: Source, path: Path) -> Source:
    return override(source, "workload", {"trace": str(path)}, str(path))


def _of_topology(
    question: Question, path: Path, profile: Profile
) -> tuple[Source, tuple[str, ...]]:
    notes: list[str] = []
    topology, flags = question.topology, dict(question.given.flags)
    if topology is None:
        topology = machine_named(profile.gpu, min(profile.world, 8))
        if topology is None:
            gpu = f" ({profile.gpu})" if profile.gpu else ""
            raise InputError(
                f"{path}: the trace does not say on what it ran{gpu}", hint="give --topology"
            )
        notes.append(f"taken from the trace: {topology} ({profile.gpu})")
    known: dict[str, str | int] = dict(_counts(flags, topology, profile.world))
    if profile.nccl and flags.get("nccl") is None:
        version, note = version_of(profile.nccl)
        known["nccl"] = str(version)
        notes += [note] * bool(note)
    for name, value in known.items():
        if flags.get(name) is None:
            flags[name] = value
            notes.append(f"taken from the trace: {name.replace('_', ' ')} {value}")
    answer = asked(topology, "all_reduce", replace(question.given, flags=flags))
    return answer.source, (*notes, *answer.notes)


def _counts(flags: dict[str, object], topology: str, world: int) -> dict[str, int]:
    """Hosts and GPUs of each for so many ranks."""
    if Path(topology).suffix:
        return {}
    try:
        most = load_machine(topology).gpu.count
    except NetsimError:
        return {}
    each = flags.get("gpus_per_node") or min(most, world)
    nodes = flags.get("nodes") or (world // each if isinstance(each, int) else 1)
    if not isinstance(nodes, int) or nodes < 1 or world % nodes:
        return {}
    return {"nodes": nodes, "gpus_per_node": world // nodes}
