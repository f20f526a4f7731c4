"""Write the trace of a step (trace.json): passes, kernels, collectives, and how long ranks wait in
them.

A collective begins when its last rank has joined; the kernels of the other ranks wait until then.
"""

import gzip
import json
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import groupby
from pathlib import Path

from netsim.base.files import write_bytes
from netsim.base.memo import Memo, Same
from netsim.scenario.names import DTYPES
from netsim.trace import rank_files
from netsim.trace.chrome import Event, busiest_load, counter_events, named
from netsim.trace.names import (
    TracedOperation,
    Written,
    distributed_info,
    kineto_args,
    launch_args,
    stream_numbers,
)
from netsim.training.run import Spans, Step, entry_title, pass_title, stream_title
from netsim.workloads.lower import row_by_rank
from netsim.workloads.tape import COMPUTE, TapeEntry


def entries_of_rank(
    spans: Spans, rank: int
) -> Iterator[tuple[int, int, tuple[float, float, float]]]:
    """Yield the entries of a rank in order, each as (number of the entry, row of the rank in its
    groups, (joined, began, ended)), with times in seconds.

    `joined` is when the rank itself was ready for the entry. For a receive that was posted ahead it
    is when its data comes.
    """
    free = dict[str, float]()
    ends = dict[int, float]()
    rows = Memo()
    columns = (column.tolist() for column in spans.of_rank(rank))
    for number, begin, end in zip(*columns, strict=True):
        entry = spans.tape.entries[number]
        find_row = partial(row_by_rank, entry.groups, spans.ranks)
        row = int(rows.of(Same(entry.groups), find_row)[rank])
        end_rows = (ends[one] for one in entry.after if one in ends)
        joined = max([free.get(entry.stream, 0.0), entry.launched, *end_rows])
        receives = entry.posted and int(entry.groups[row, -1]) == rank
        first = begin if receives or not entry.collective else min(joined, begin)
        yield number, row, (first, begin, end)
        ends[number] = free[entry.stream] = end


# trace.json of a step has a process for each GPU, and threads for its passes, its kernels and each
# stream of NCCL. If many ranks are equal, one of each pipeline stage is shown, and those that a
# straggler affects. The arguments of collectives are those of Kineto, so that programs which read
# PyTorch's profiles can read this trace.

MOST_SLICES = 200_000
MOST_RANKS = 16
# Counters in the trace: the number of links with the highest load, and of points of each.
LINKS = 32
BINS = 400
PASS = "passes"
VISIBLE = 0.5e-6  # seconds of waiting from which they are shown


def shown_ranks(step: Step) -> list[int]:
    """The ranks in a trace: all ranks of a small job, otherwise the first of each stage and the
    stragglers.
    """
    grid = step.resolved.setting.grid
    if grid.size <= MOST_RANKS:
        return list(range(grid.size))
    first = [int(grid.stage(number)[0]) for number in range(grid.degrees["pp"])]
    return sorted({*first, *[one.rank for one in step.resolved.work.stragglers]})[:MOST_RANKS]


def write_step_trace(path: Path, step: Step) -> Written:
    """Write the trace of a step; return its path and a note which ranks it shows, if not all."""
    ranks = shown_ranks(step)
    seen = _TraceEvents(step, ranks)
    timed = sorted(seen.events(), key=lambda event: (event["ts"], -event.get("dur", -1)))
    left = len(timed) - MOST_SLICES
    shown = timed[:MOST_SLICES]
    load = busiest_load(step.program, step.spans.timeline, LINKS, BINS)
    counter_names, counters = counter_events(step.program, load)
    info = distributed_info(step.spans.ranks, list(seen.groups.values()))
    cell = step.resolved.cell
    header = {
        "schemaVersion": 1,
        "displayTimeUnit": "ms",
        "distributedInfo": {**info, "rank": ranks[0]},
        "otherData": {
            "simulator": "netsim",
            "approximation": step.approximation,
            "cell": cell.id,
            "title": cell.title(f"{step.resolved.work.title_start} {step.resolved.work.label}"),
        },
        "traceEvents": [*seen.names(), *counter_names, *shown, *counters],
    }
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    write_bytes(path, gzip.compress(text, compresslevel=6, mtime=0))
    note = "" if len(ranks) == step.spans.ranks else f"ranks {', '.join(map(str, ranks))}"
    if left > 0:
        note += f"{', ' if note else ''}the first {MOST_SLICES} slices"
    return Written(path, note)


def write_step_rank_files(folder: Path, step: Step) -> list[Path]:
    """Write a profile in Kineto's format for every rank of a step; return the paths.

    NCCL's kernels have the names that NCCL gives them, because programs find communication by name.
    The name that trace.json.gz uses is in their argument `title`.
    """
    rank_files.check_rank_count(step.spans.ranks)
    cell = step.resolved.cell
    about = {
        "approximation": step.approximation,
        "cell": cell.id,
        "title": cell.title(f"{step.resolved.work.title_start} {step.resolved.work.label}"),
    }
    paths = []
    for rank in range(step.spans.ranks):
        seen = _TraceEvents(step, [rank])
        kernels = [_as_profiled(event) for event in seen.events() if event.get("cat") == "kernel"]
        kernels.sort(key=lambda event: (event["ts"], event["tid"]))
        name = f"rank {rank} ({step.program.gpus[rank]})"
        names = rank_files.process_events(rank, name, [event["tid"] for event in kernels])
        info = distributed_info(step.spans.ranks, list(seen.groups.values()), rank)
        paths.append(rank_files.write_rank_file(folder, rank, info, about, [*names, *kernels]))
    return paths


def _as_profiled(event: Event) -> Event:
    """A kernel as Kineto writes it: on the thread of its stream, under NCCL's name."""
    args = dict(event["args"])
    name = event["name"]
    if "kernel" in args:
        args["title"] = name
        name = args.pop("kernel")
    return {**event, "name": name, "tid": args["stream"], "args": args}


class _TraceEvents:
    """Makes the events of some ranks of a step, and notes the process groups that occur in them."""

    def __init__(self, step: Step, ranks: Sequence[int]) -> None:
        self.step = step
        self.ranks = ranks
        self.groups: dict[str, TracedOperation] = {}
        self.threads = self._threads()
        all_streams = (entry.stream for entry in step.spans.tape.entries)
        self.stream_numbers = stream_numbers(all_streams, COMPUTE)
        self.kernel_count = 0
        batches = {entry.micro_batch for entry in step.spans.tape.entries}
        self.several = len(batches - {-1}) > 1

    def _threads(self) -> dict[tuple[int, str], int]:
        """The number of the thread in the trace, by rank and stream."""
        spans = self.step.spans
        streams = {
            (rank, spans.tape.entries[number].stream)
            for rank in self.ranks
            for number in spans.of_rank(rank)[0].tolist()
        }
        keys = sorted(
            streams | {(rank, PASS) for rank in self.ranks},
            key=lambda key: (key[0], key[1] != PASS, key[1] != COMPUTE, key[1]),
        )
        return {key: number for number, key in enumerate(keys, 1)}

    def events(self) -> Iterator[Event]:
        """Yield the slices of all ranks, and an arrow from every send to its receive."""
        for rank in self.ranks:
            seq: dict[str, int] = {}
            kernels: list[tuple[str, float, float]] = []
            for number, row, when in entries_of_rank(self.step.spans, rank):
                entry = self.step.spans.tape.entries[number]
                (_, begin, end) = when
                if not entry.collective:
                    kernels.append((pass_title(entry), begin, end))
                    yield self._slice(entry, rank, (rank,), (begin, end))
                    continue
                seq[entry.stream] = seq.get(entry.stream, -1) + 1
                yield from self._call(number, row, rank, seq[entry.stream], when)
            yield from self._passes(rank, kernels)

    def _passes(self, rank: int, kernels: Sequence[tuple[str, float, float]]) -> Iterator[Event]:
        """Yield a slice for each pass of a rank, from its first kernel to its last; `kernels` are
        (title of the pass, begin, end).
        """
        for name, group in groupby(kernels, key=lambda kernel: kernel[0]):
            spans = list(group)
            yield self._event(name, "gpu_user_annotation", rank, PASS, spans[0][1], spans[-1][2])

    def _call(
        self, number: int, row: int, rank: int, seq: int, when: tuple[float, float, float]
    ) -> Iterator[Event]:
        """Yield the slice of a collective on a rank, its wait for other ranks, and for a send or
        receive the end of an arrow.

        `when` is (joined, began, ended) in seconds, `seq` the number of the call on its stream.
        """
        entry = self.step.spans.tape.entries[number]
        joined, begin, end = when
        members = tuple(entry.groups[row].tolist())
        first = joined if begin - joined > VISIBLE else begin
        made = self._slice(entry, rank, members, (first, end))
        made["args"] |= self._collective_args(number, entry, row, rank, seq, members)
        if first < begin:
            made["args"]["waiting for others (us)"] = (begin - first) * 1e6
        yield made
        if first < begin:
            yield self._event("waiting for the last rank", "wait", rank, entry.stream, first, begin)
        if entry.collective == "p2p" and set(members) <= set(self.ranks):
            arrow = {
                "id": number * self.step.spans.ranks + members[0],
                "name": entry.name,
                "cat": "p2p",
                "pid": rank,
                "tid": self.threads[rank, entry.stream],
            }
            kind = {"ph": "s"} if rank == members[0] else {"ph": "f", "bp": "e"}
            yield {**kind, **arrow, "ts": begin * 1e6}

    def _slice(
        self, entry: TapeEntry, rank: int, members: tuple[int, ...], when: tuple[float, float]
    ) -> Event:
        """The slice of an entry on a rank, with its layer, phase and micro-batch."""
        name = entry_title(entry, rank, members, several=self.several)
        arguments = {"phase": entry.phase, "layer": entry.layer, "micro batch": entry.micro_batch}
        made = self._event(name, "kernel", rank, entry.stream, *when)
        self.kernel_count += 1
        stream = self.stream_numbers[entry.stream]
        made["args"] = launch_args(rank, stream, self.kernel_count)
        made["args"] |= {key: value for key, value in arguments.items() if value not in ("", -1)}
        return made

    def _event(
        self, name: str, kind: str, rank: int, stream: str, begin: float, end: float
    ) -> Event:
        """A slice of the trace ("ph": "X") on a stream of a rank; `begin` and `end` are in
        seconds.
        """
        return {
            "ph": "X",
            "cat": kind,
            "name": name,
            "pid": rank,
            "tid": self.threads[rank, stream],
            "ts": begin * 1e6,
            "dur": (end - begin) * 1e6,
            "args": {},
        }

    def _collective_args(
        self, number: int, entry: TapeEntry, row: int, rank: int, seq: int, members: tuple[int, ...]
    ) -> Event:
        """The arguments of a collective's slice, as Kineto has them, and its algorithm, size and
        standalone time.
        """
        lowered = self.step.spans.lowered
        coarse = lowered.coarse[number][int(lowered.class_of[number][row])]
        count = entry.nbytes // DTYPES[entry.dtype]
        part = max(1, count // len(members))
        group = f"{entry.kind} {' '.join(map(str, members[:2]))}".strip()
        operation = TracedOperation(
            entry.collective,
            coarse.algorithm,
            coarse.protocol,
            entry.dtype,
            in_elements=part if entry.collective in ("all_gather", "gather") else count,
            out_elements=part if entry.collective in ("reduce_scatter", "scatter") else count,
            ranks=members,
            group=group,
            group_description=entry.kind,
        )
        self.groups.setdefault(group, operation)
        return {
            "algorithm": coarse.algorithm,
            "protocol": coarse.protocol,
            "channels": coarse.channels,
            "bytes": entry.nbytes,
            "alone (us)": coarse.seconds * 1e6,
            "kernel": operation.kernel,
            **kineto_args(operation, rank, members, seq),
        }

    def names(self) -> Iterator[Event]:
        """Yield the events that name processes and threads and put them in order."""
        for rank in self.ranks:
            stage = _stage_of(self.step, rank)
            where = f", stage {stage}" if stage is not None else ""
            yield from named(f"rank {rank} ({self.step.program.gpus[rank]}{where})", rank)
        for (rank, stream), tid in self.threads.items():
            name = stream if stream == PASS else stream_title(stream, _stage_of(self.step, rank))
            yield from named(name, rank, tid)


def _stage_of(step: Step, rank: int) -> int | None:
    grid = step.resolved.setting.grid
    return None if grid.degrees["pp"] == 1 else grid.stages[rank]
