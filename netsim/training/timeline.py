"""trace.json of a step: a process a GPU, a thread a stream, kernels and collectives by name.

Of many equal ranks, one of each pipeline stage is shown, and those that a straggler touches. The
collectives' arguments are Kineto's, so that what reads PyTorch's profiles reads these.
"""

import gzip
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from netsim.scenario.names import DTYPES
from netsim.trace import Operation, Written, kineto_args
from netsim.training.run import Step
from netsim.workloads.tape import COMPUTE, Task

TRACE = "trace.json.gz"
MOST_SLICES = 200_000
MOST_RANKS = 16
Event = dict[str, Any]


def shown_ranks(step: Step) -> list[int]:
    """The ranks of a trace: all of a small job, else the first of each stage and the slow ones."""
    grid = step.prepared.setting.grid
    if grid.size <= MOST_RANKS:
        return list(range(grid.size))
    first = [int(grid.stage(number)[0]) for number in range(grid.degrees["pp"])]
    slow = [one.rank for one in step.prepared.work.stragglers]
    return sorted({*first, *slow})[:MOST_RANKS]


def write_step_trace(path: Path, step: Step) -> Written:
    """Write the trace; it says which ranks it shows."""
    ranks = shown_ranks(step)
    events = sorted(_slices(step, ranks), key=lambda event: (event["ts"], -event["dur"]))
    left = len(events) - MOST_SLICES
    streams = sorted({(e["pid"], e["tid"]) for e in events}, key=_stream_order)
    threads = {key: number for number, key in enumerate(streams, 1)}
    for event in events:
        event["tid"] = threads[event["pid"], event["tid"]]
    names = [*_process_names(step, ranks), *_thread_names(threads)]
    header = {
        "schemaVersion": 1,
        "displayTimeUnit": "ms",
        "distributedInfo": {"backend": "nccl", "world_size": step.spans.ranks, "rank": ranks[0]},
        "otherData": {"simulator": "netsim", "approximation": step.approximation},
        "traceEvents": [*names, *events[:MOST_SLICES]],
    }
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    path.write_bytes(gzip.compress(text, compresslevel=6, mtime=0))
    note = "" if len(ranks) == step.spans.ranks else f"ranks {', '.join(map(str, ranks))}"
    if left > 0:
        note += f"{', ' if note else ''}the first {MOST_SLICES} slices"
    return Written(path, note)


def _stream_order(key: tuple[int, str]) -> tuple[int, bool, str]:
    return key[0], key[1] != COMPUTE, key[1]


def _slices(step: Step, ranks: Sequence[int]) -> Iterator[Event]:
    """A slice for every task of these ranks, from when a rank itself was ready for it."""
    counts: dict[tuple[int, str], int] = {}
    for number, task in enumerate(step.spans.tape.tasks):
        chosen = np.flatnonzero(np.isin(task.groups, ranks).any(axis=1))
        if not len(chosen):
            continue
        begin, end = step.spans.begin(number), step.spans.end(number)
        for group in chosen.tolist():
            for rank in task.groups[group].tolist():
                if rank in ranks:
                    seq = counts[rank, task.stream] = counts.get((rank, task.stream), -1) + 1
                    yield _slice(step, number, task, group, rank, seq, (begin[group], end[group]))


def _slice(
    step: Step, number: int, task: Task, group: int, rank: int, seq: int, when: tuple[float, float]
) -> Event:
    where = f"mb {task.micro_batch}" if task.micro_batch >= 0 else task.phase
    name = " ".join(filter(None, (task.layer, task.name)))
    args: Event = {"phase": task.phase, "layer": task.layer, "micro batch": task.micro_batch}
    if task.collective:
        args |= _collective_args(step, number, task, group, rank, seq)
    return {
        "ph": "X", "cat": "kernel", "name": f"{name} ({where})", "pid": rank, "tid": task.stream,
        "ts": when[0] * 1e6, "dur": (when[1] - when[0]) * 1e6, "args": args,
    }  # fmt: skip


def _collective_args(step: Step, number: int, task: Task, group: int, rank: int, seq: int) -> Event:
    lowered = step.spans.lowered
    coarse = lowered.coarse[number][int(lowered.class_of[number][group])]
    members = tuple(task.groups[group].tolist())
    whole = task.nbytes // DTYPES[task.dtype]
    part = max(1, whole // len(members))
    operation = Operation(
        task.collective, coarse.algorithm, coarse.protocol, task.dtype,
        in_elements=part if task.collective == "all_gather" else whole,
        out_elements=part if task.collective == "reduce_scatter" else whole,
        ranks=members, group=f"{task.kind} {members[0]}", group_description=task.kind,
    )  # fmt: skip
    return {
        "algorithm": coarse.algorithm, "protocol": coarse.protocol, "channels": coarse.channels,
        "bytes": task.nbytes, "alone (us)": coarse.seconds * 1e6, "kernel": operation.kernel,
        **kineto_args(operation, rank, members, seq),
    }  # fmt: skip


def _process_names(step: Step, ranks: Sequence[int]) -> Iterator[Event]:
    for rank in ranks:
        gpu = step.program.gpus[rank]
        stage = _stage_of(step, rank)
        name = f"rank {rank} ({gpu}{stage})"
        yield {"ph": "M", "pid": rank, "tid": 0, "name": "process_name", "args": {"name": name}}
        order = {"sort_index": rank}
        yield {"ph": "M", "pid": rank, "tid": 0, "name": "process_sort_index", "args": order}


def _stage_of(step: Step, rank: int) -> str:
    grid = step.prepared.setting.grid
    if grid.degrees["pp"] == 1:
        return ""
    stage = next(k for k in range(grid.degrees["pp"]) if rank in grid.stage(k))
    return f", stage {stage}"


def _thread_names(threads: dict[tuple[int, str], int]) -> Iterator[Event]:
    for (rank, stream), tid in threads.items():
        where: Event = {"ph": "M", "pid": rank, "tid": tid}
        yield {**where, "name": "thread_name", "args": {"name": f"stream {stream}"}}
        yield {**where, "name": "thread_sort_index", "args": {"sort_index": tid}}
