"""Files of a step beside its results: every collective, and the memory of every stage."""

import csv
from collections.abc import Iterable, Sequence
from io import StringIO
from pathlib import Path

import numpy as np

from netsim.files import write_text
from netsim.training.fitting import PARTS, memories
from netsim.training.run import Step
from netsim.training.titles import family
from netsim.workloads.tape import Task

COLLECTIVES = "collectives.csv"
MEMORY = "memory.csv"
COLLECTIVE_COLUMNS = (
    "kind", "name", "phase", "collective", "ranks", "groups", "nodes", "calls", "size_bytes",
    "dtype", "algorithm", "protocol", "channels", "time_us", "alone_us", "total_us", "exposed_us",
    "sent_bytes", "measured_us",
)  # fmt: skip
WHOLE = ("sendrecv", "p2p", "broadcast", "reduce")


def sent_bytes(collective: str, nbytes: int, ranks: int) -> float:
    """Bytes that a rank sends (the closed form of each collective), from its size."""
    if collective == "all_reduce":
        return 2 * (ranks - 1) / ranks * nbytes
    return float(nbytes) if collective in WHOLE else (ranks - 1) / ranks * nbytes


def write_collectives(path: Path, step: Step) -> Path:
    """A line for all calls that are alike: where, how often, bytes, times a call.

    `time_us` is the mean beside everything else, `alone_us` that of NCCL alone; `total_us` and
    `exposed_us` are sums over the calls of one rank, the mean of ranks that take part.
    """
    return _write(path / COLLECTIVES, COLLECTIVE_COLUMNS, _collective_lines(step))


def _collective_lines(step: Step) -> Iterable[Sequence[object]]:
    alike: dict[tuple[object, ...], list[int]] = {}
    for number, task in enumerate(step.spans.tape.tasks):
        if task.collective:
            alike.setdefault(_key(task), []).append(number)
    hosts = step.prepared.cluster.gpu_host
    for numbers in alike.values():
        task = step.spans.tape.tasks[numbers[0]]
        ranks, groups = task.groups.shape[1], task.groups.shape[0]
        times = [step.spans.end(n) - step.spans.begin(n) for n in numbers]
        coarse = step.spans.lowered.coarse[numbers[0]][0]
        per_rank = {rank: 0 for n in numbers for rank in step.spans.tape.tasks[n].groups.ravel()}
        calls = sum(step.spans.tape.tasks[n].groups.size for n in numbers) / len(per_rank)
        exposed = float(step.breakdown.exposed_by_task[numbers].sum()) / len(per_rank)
        mean = float(np.mean(np.concatenate(times)))
        wire = sent_bytes(task.collective, task.nbytes, ranks)
        yield (
            task.kind, family(task.name), task.phase, task.collective, ranks, groups,
            len(np.unique(hosts[task.groups[0]])), f"{calls:g}", task.nbytes, task.dtype,
            coarse.algorithm, coarse.protocol, coarse.channels, mean * 1e6, coarse.seconds * 1e6,
            mean * calls * 1e6, exposed * 1e6, wire, _measured(step, numbers),
        )  # fmt: skip


def _measured(step: Step, numbers: Sequence[int]) -> object:
    """The mean of what a profile recorded for these calls, in µs; empty without one."""
    found = [step.spans.tape.tasks[number].measured for number in numbers]
    return float(np.mean(found)) * 1e6 if any(found) else ""


def _key(task: Task) -> tuple[object, ...]:
    return (
        task.kind, family(task.name), task.phase, task.collective, task.groups.shape[1],
        task.nbytes, task.dtype,
    )  # fmt: skip


def write_memory(path: Path, step: Step) -> Path:
    """A line for the GPUs of every pipeline stage, in bytes."""
    lines = [
        (stage, *(getattr(one, name) for name in PARTS), one.total)
        for stage, one in enumerate(memories(step.prepared.setting))
    ]
    columns = ("stage", *(f"{name}_bytes" for name in PARTS), "total_bytes")
    return _write(path / MEMORY, columns, lines)


def _write(path: Path, columns: Sequence[str], lines: Iterable[Sequence[object]]) -> Path:
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    for line in lines:
        writer.writerow([repr(v) if isinstance(v, float) else v for v in line])
    return write_text(path, text.getvalue())
