"""The outputs of a run for other programs: traces, Chakra execution traces, GOAL, MSCCL and others.

A writer takes the cells, of which it shows the first, the folder, and the engine. It returns the
names of the files, each with a remark about what it leaves out.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np

from netsim.base.errors import InputError
from netsim.base.files import write_text
from netsim.base.values import dataclass
from netsim.collectives.collective import Collective, CollectiveError
from netsim.collectives.msccl import MOST_OPERATIONS, AlgoFile, PlanFile
from netsim.engines.engine import simulate
from netsim.extent.noise import NoiseDraws, sampled
from netsim.metrics.links import gpu_time
from netsim.program.place import place
from netsim.program.program import Program, Timeline
from netsim.scenario.cells import Cell
from netsim.scenario.models import Workload
from netsim.schedule.schedule import MULTICAST, SWITCH_REDUCE, TRANSFER, Schedule
from netsim.tasks import jobs
from netsim.tasks.explained import explained_title, shown_of
from netsim.tasks.resolve import ResolvedCell, resolve
from netsim.topology.faults import slowdowns_of
from netsim.trace import rank_files
from netsim.trace.chrome import write_trace
from netsim.trace.goal import GoalText
from netsim.trace.names import TracedOperation
from netsim.trace.tables import write_links, write_links_over_time, write_rows
from netsim.training import run, timeline
from netsim.training.recorded.chakra import write_ranks
from netsim.training.resolve import resolve_step

S = TypeVar("S")  # a sheet
TRACE = "trace.json.gz"
ROWS = "trace.csv"
LINKS = "links.csv"
LOAD = "links_over_time.csv"
_BREAKDOWN = "breakdown.csv"


@dataclass(frozen=True, slots=True)
class _Run:
    """One simulated operation, training step or set of simultaneous jobs, to be written as a trace.

    `about` goes into the header of the trace; `notes` say what the trace does not show.
    """

    program: Program
    timeline: Timeline
    operations: tuple[TracedOperation, ...]
    about: dict[str, str]
    notes: tuple[str, ...] = ()


def write_traces(cells: Sequence[Cell], folder: Path, engine: str) -> list[str]:
    """Simulate the first cell once, from an idle cluster; write its trace and tables of links."""
    cell = cells[0]
    if not _is_collective(cell):
        return _write_step(cell, folder, engine)
    shown = _simulated(cell, engine)
    written = _written(shown, folder)
    if cell.scenario.shared:
        return written
    written[0] += "".join(f" ({note})" for note in shown.notes)
    size = max(cell.scenario.workload.size_list())
    breakdown = folder / _BREAKDOWN
    _write_breakdown(breakdown, cell.id, size, shown.program, shown.timeline)
    return [*written, str(breakdown)]


def write_traces_per_rank(cells: Sequence[Cell], folder: Path, engine: str) -> list[str]:
    """Simulate the first cell once; write a profile for every rank, as PyTorch's Kineto does."""
    cell = cells[0]
    place = folder / rank_files.FOLDER
    if _is_collective(cell):
        shown = _simulated(cell, engine)
    else:
        step = run.simulate_step(resolve_step(cell), engine=engine)
        if step.resolved.lowered is None:
            paths = timeline.write_step_rank_files(place, step)
            return [f"{place} ({len(paths)} ranks)"]
        shown = _step_as_run(cell, step)
    paths = rank_files.write_rank_files(
        place, shown.program, shown.timeline, shown.operations, shown.about
    )
    notes = "".join(f"; {note}" for note in shown.notes)
    return [f"{place} ({len(paths)} ranks{notes})"]


def _is_collective(cell: Cell) -> bool:
    """Whether a cell runs one collective or several jobs at the same time, rather than a training
    step.
    """
    return bool(cell.scenario.shared) or isinstance(cell.scenario.workload, Workload)


def _simulated(cell: Cell, engine: str) -> _Run:
    """Simulate the collective of a cell at its largest size, or all its jobs at the same time."""
    size = max(cell.scenario.workload.size_list())
    if cell.scenario.shared:
        ran = jobs.shared(jobs.resolve_jobs(cell), size, engine).all
        about = {"cell": cell.id, "title": cell.title("jobs beside each other")}
        return _Run(ran.program, ran.timeline, (), about)
    resolved = resolve(cell)
    shown = shown_of(resolved, size)
    program = place(shown.schedule, resolved.topology, resolved.gpus.tolist())
    done = simulate(program, engine)
    notes = list(shown.notes)
    if disturbances := cell.scenario.disturbances:
        done = next(sampled(program, NoiseDraws(*disturbances), engine))
        notes.append(f"the first of {disturbances[1]} samples with noise")
    title = cell.title(explained_title(resolved, size), *notes)
    return _Run(
        program=program.as_run(done),
        timeline=done,
        operations=tuple(_operations(resolved, size)),
        about={"cell": cell.id, "title": title},
        notes=tuple(notes),
    )


def _step_as_run(cell: Cell, step: run.Step) -> _Run:
    """A training step that was simulated as messages, in the form in which collectives
    are written.
    """
    about = {"cell": cell.id, "title": cell.title(step.resolved.work.label)}
    return _Run(step.program, step.spans.timeline, (), about)


def _written(shown: _Run, folder: Path) -> list[str]:
    """Write the trace and the tables of a run; return the files with remarks about what they leave
    out.
    """
    program = shown.program
    done = shown.timeline
    operations = list(shown.operations)
    files = [
        write_trace(folder / TRACE, program, done, operations, about=shown.about),
        write_rows(folder / ROWS, program, done, operations),
        write_links(folder / LINKS, program, done),
        write_links_over_time(folder / LOAD, program, done),
    ]
    return [f"{file.path}{f' ({file.note})' if file.note else ''}" for file in files]


def _write_step(cell: Cell, folder: Path, engine: str) -> list[str]:
    """Write the trace and the tables of a training step; return the files."""
    step = run.simulate_step(resolve_step(cell), engine=engine)
    if step.resolved.lowered is not None:
        return _written(_step_as_run(cell, step), folder)
    files = [
        timeline.write_step_trace(folder / TRACE, step),
        write_links(folder / LINKS, step.program, step.spans.timeline),
    ]
    notes = [f"{file.path}{f' ({file.note})' if file.note else ''}" for file in files]
    notes += [str(run.write_collectives(folder, step)), str(run.write_memory(folder, step))]
    if step.resolved.recorded is None:
        notes.append(str(run.write_memory_over_time(folder, step)))
    return notes


def _operations(resolved: ResolvedCell, size: int) -> list[TracedOperation]:
    """The operation of each communicator, as a trace names it, at a size in bytes."""
    work = resolved.cell.scenario.collective
    collective = resolved.collective(size)
    plan = resolved.planned(size)
    return [
        TracedOperation(
            collective=work.collective,
            algorithm=plan.algorithm if plan else work.algorithm,
            protocol=plan.protocol if plan else "",
            dtype=work.dtype,
            in_elements=collective.input_count(work.root),
            out_elements=collective.output_count(work.root),
            ranks=group,
            group=str(number),
        )
        for number, group in enumerate(resolved.groups)
    ]


def _write_breakdown(
    path: Path, cell: str, size: int, program: Program, timeline: Timeline
) -> None:
    """Write a CSV file with the µs that each GPU communicates, computes, is busy, and waits."""
    spent = gpu_time(program, timeline)
    lines = ["cell,size_bytes,rank,gpu,communicating_us,computing_us,busy_us,waiting_us"]
    columns = (spent.communicating, spent.computing, spent.busy, spent.waiting)
    for rank, gpu in enumerate(program.gpus):
        times = ",".join(repr(float(column[rank]) * 1e6) for column in columns)
        lines.append(f"{cell},{size},{rank},{gpu},{times}")
    write_text(path, "\n".join(lines) + "\n")


FOLDER = "chakra"


def write_execution_traces(cells: Sequence[Cell], folder: Path, engine: str) -> list[str]:
    """Write the training step of the first cell as Chakra execution traces, one for each rank."""
    cell = cells[0]
    resolved = resolve_step(cell)
    name = cell.scenario.name or "step"
    ranks = range(resolved.setting.grid.size)
    slowdowns = slowdowns_of(resolved.topology)
    files = write_ranks(folder / FOLDER, name, resolved.tape(), ranks, slowdowns)
    return [f"{folder / FOLDER} ({len(files) - 1} ranks)"]


def _in_full(cell: Cell, refusal: str) -> tuple[ResolvedCell, int, Schedule]:
    """The resolved cell, its largest size in bytes, and the schedule of one operation of that size.

    Raises an InputError with the text `refusal` if the schedule cannot have all rows.
    """
    resolved = resolve(cell)
    size = max(cell.scenario.collective.size_list())
    shown = shown_of(resolved, size)
    if shown.notes:
        raise InputError(f"outputs: {refusal}: {shown.notes[0]}")
    return resolved, size, shown.schedule


def write_connections(cells: Sequence[Cell], folder: Path, engine: str) -> list[str]:
    """Write the bytes that each rank sends to each other rank in one operation of the first cell.

    The files are a connection matrix for htsim (`.cm`) and flows for ns-3 (as HPCC and its
    descendants read them). All flows begin at time 0.
    """
    _, _, schedule = _in_full(cells[0], "connections of all ranks are too many")
    moves = np.flatnonzero(np.isin(schedule.kind, (TRANSFER, MULTICAST, SWITCH_REDUCE)))
    if (schedule.kind[moves] != TRANSFER).any():
        raise InputError("outputs: connections: what switches multicast or add up has no receiver")
    pairs = schedule.src[moves].astype(np.int64) * schedule.ranks + schedule.dst[moves]
    amount = np.bincount(pairs, schedule.amount[moves], schedule.ranks**2)
    connections = [
        (*divmod(pair, schedule.ranks), round(amount[pair]))
        for pair in np.flatnonzero(amount).tolist()
    ]
    matrix = [f"Nodes {schedule.ranks}", f"Connections {len(connections)}"]
    flows = [str(len(connections))]
    for number, (sender, receiver, size) in enumerate(connections):
        matrix.append(f"{sender}->{receiver} id {number + 1} start 0 size {size}")
        flows.append(f"{sender} {receiver} 3 {100 + number} {size} 0")
    return [
        str(write_text(folder / "connections.cm", "\n".join(matrix) + "\n")),
        str(write_text(folder / "flows.txt", "\n".join(flows) + "\n")),
    ]


def write_application(cells: Sequence[Cell], folder: Path, engine: str) -> list[str]:
    """Write what the first cell runs, at its largest size, as a GOAL file."""
    if isinstance(cells[0].scenario.workload, Workload):
        resolved, _, schedule = _in_full(cells[0], "goal")
        program = place(schedule, resolved.topology, resolved.gpus.tolist())
    else:
        program = run.simulate_step(resolve_step(cells[0])).program
    try:
        sheet = GoalText(program)
        path = write_text(folder / "application.goal", sheet.text())
    except InputError as error:
        raise InputError(f"outputs: goal: {error.message}", hint=error.hint) from None
    hints = f" ({sheet.hint_count} messages only tell a rank to go on)"
    return [f"{path}{hints}" if sheet.hint_count else f"{path}"]


def write_msccl(cells: Sequence[Cell], folder: Path, engine: str) -> list[str]:
    """Write the algorithm of the first cell, at its largest size, as an XML file for MSCCL."""
    sheet = _algorithm(cells[0], "msccl", AlgoFile)
    path = write_text(folder / "algorithm.xml", sheet.text())
    limits = sheet.beyond_limits()
    return [f"{path} ({limits})" if limits else str(path)]


def write_plan(cells: Sequence[Cell], folder: Path, engine: str) -> list[str]:
    """Write the algorithm of the first cell, at its largest size, as an execution plan
    for MSCCL++.
    """
    sheet = _algorithm(cells[0], "mscclpp", PlanFile)
    path = write_text(folder / "plan.json", sheet.text())
    note = f" ({sheet.longest} operations in a thread block, MSCCL++ takes {MOST_OPERATIONS})"
    return [f"{path}{note * (sheet.longest > MOST_OPERATIONS)}"]


def _algorithm(cell: Cell, output: str, kind: Callable[[str, Schedule, Collective], S]) -> S:
    resolved, size, schedule = _in_full(cell, output)
    if len(resolved.groups) > 1:
        raise InputError(f"outputs: {output}: several communicators have several algorithms")
    try:
        return kind(cell.scenario.collective.algorithm, schedule, resolved.collective(size))
    except CollectiveError as error:
        raise InputError(f"outputs: {output}: {error.message}") from None
