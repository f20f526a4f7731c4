"""What a run leaves for other programs: traces, and Chakra's execution traces of steps."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from netsim.base.errors import InputError
from netsim.base.files import write_text
from netsim.cell.explained import shown_of
from netsim.cell.prepare import Prepared, prepare
from netsim.engines.engine import simulate
from netsim.metrics.links import gpu_time
from netsim.program.place import place
from netsim.program.program import Program, Timeline
from netsim.scenario.cells import Cell
from netsim.scenario.models import Workload
from netsim.schedule.schedule import MULTICAST, SWITCH_REDUCE, TRANSFER
from netsim.trace.chrome import write_trace
from netsim.trace.names import Operation
from netsim.trace.tables import write_links, write_links_over_time, write_rows
from netsim.training import prepare as steps
from netsim.training import run, timeline
from netsim.training.prepare import prepare_step
from netsim.training.recorded.chakra import write_ranks

TRACE = "trace.json.gz"
ROWS = "trace.csv"
LINKS = "links.csv"
LOAD = "links_over_time.csv"
_BREAKDOWN = "breakdown.csv"


def write_traces(cells: Sequence[Cell], folder: Path, engine: str) -> list[str]:
    """Simulate the operation once, from standstill, and write its trace and its links."""
    if not isinstance(cells[0].scenario.workload, Workload):
        return _write_step(cells[0], folder, engine)
    prepared = prepare(cells[0])
    size = max(cells[0].scenario.collective.size_list())
    shown = shown_of(prepared, size)
    program = place(shown.schedule, prepared.topology, prepared.gpus.tolist())
    done = simulate(program, engine)
    operations = _operations(prepared, size)
    files = [
        write_trace(folder / TRACE, program, done, operations),
        write_rows(folder / ROWS, program, done, operations),
        write_links(folder / LINKS, program, done),
        write_links_over_time(folder / LOAD, program, done),
    ]
    _write_breakdown(folder / _BREAKDOWN, cells[0].id, size, program, done)
    notes = [f"{file.path}{f' ({file.note})' if file.note else ''}" for file in files]
    notes[0] += "".join(f" ({note})" for note in shown.notes)
    return [*notes, str(folder / _BREAKDOWN)]


def _write_step(cell: Cell, folder: Path, engine: str) -> list[str]:
    step = run.simulate_step(steps.prepare_step(cell), engine=engine)
    files = [
        timeline.write_step_trace(folder / TRACE, step),
        write_links(folder / LINKS, step.program, step.spans.timeline),
    ]
    notes = [f"{file.path}{f' ({file.note})' if file.note else ''}" for file in files]
    notes += [str(run.write_collectives(folder, step)), str(run.write_memory(folder, step))]
    if step.prepared.recorded is None:
        notes.append(str(run.write_memory_over_time(folder, step)))
    return notes


def _operations(prepared: Prepared, size: int) -> list[Operation]:
    work, collective = prepared.cell.scenario.collective, prepared.collective(size)
    plan = prepared.planned(size)
    return [
        Operation(
            collective=work.collective,
            algorithm=plan.algorithm if plan else work.algorithm,
            protocol=plan.protocol if plan else "",
            dtype=work.dtype,
            in_elements=collective.input_count(work.root),
            out_elements=collective.output_count(work.root),
            ranks=group,
            group=str(number),
        )
        for number, group in enumerate(prepared.groups)
    ]


def _write_breakdown(
    path: Path, cell: str, size: int, program: Program, timeline: Timeline
) -> None:
    """Where the time of every GPU goes, in µs."""
    spent = gpu_time(program, timeline)
    lines = ["cell,size_bytes,rank,gpu,communicating_us,computing_us,busy_us,waiting_us"]
    columns = (spent.communicating, spent.computing, spent.busy, spent.waiting)
    for rank, gpu in enumerate(program.gpus):
        times = ",".join(repr(float(column[rank]) * 1e6) for column in columns)
        lines.append(f"{cell},{size},{rank},{gpu},{times}")
    write_text(path, "\n".join(lines) + "\n")


FOLDER = "chakra"


def write_execution_traces(cells: Sequence[Cell], folder: Path, engine: str) -> list[str]:
    """Write the step of the first cell."""
    del engine
    cell = cells[0]
    prepared = prepare_step(cell)
    name = cell.scenario.name or "step"
    ranks = range(prepared.setting.grid.size)
    slow = {one.rank: one.slowdown for one in prepared.work.stragglers}
    files = write_ranks(folder / FOLDER, name, prepared.tape(), ranks, slow)
    return [f"{folder / FOLDER} ({len(files) - 1} ranks)"]


def write_connections(cells: Sequence[Cell], folder: Path, engine: str) -> list[str]:
    """Bytes from rank to rank of an operation of the first cell, at its largest size, as htsim
    (`.cm`) and ns-3 (flows of HPCC's and its descendants) read them; all flows begin at once.
    """
    del engine
    prepared = prepare(cells[0])
    shown = shown_of(prepared, max(cells[0].scenario.collective.size_list()))
    schedule = shown.schedule
    if shown.notes:
        raise InputError(f"outputs: connections of all ranks are too many: {shown.notes[0]}")
    moves = np.flatnonzero(np.isin(schedule.kind, (TRANSFER, MULTICAST, SWITCH_REDUCE)))
    if (schedule.kind[moves] != TRANSFER).any():
        raise InputError("outputs: connections: what switches multicast or add up has no receiver")
    pairs = schedule.src[moves].astype(np.int64) * schedule.ranks + schedule.dst[moves]
    amount = np.bincount(pairs, schedule.amount[moves], schedule.ranks**2)
    found = [
        (*divmod(k, schedule.ranks), round(amount[k])) for k in np.flatnonzero(amount).tolist()
    ]
    matrix = [f"Nodes {schedule.ranks}", f"Connections {len(found)}"]
    matrix += [f"{a}->{b} id {k} start 0 size {n}" for k, (a, b, n) in enumerate(found, 1)]
    flows = [str(len(found)), *(f"{a} {b} 3 {100 + k} {n} 0" for k, (a, b, n) in enumerate(found))]
    return [
        str(write_text(folder / "connections.cm", "\n".join(matrix) + "\n")),
        str(write_text(folder / "flows.txt", "\n".join(flows) + "\n")),
    ]
