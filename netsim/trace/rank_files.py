"""One trace for each rank, as PyTorch's profiler (Kineto) writes them, for programs that compare
ranks.

HolisticTraceAnalysis and TraceLens take a folder with one file for each rank. A file holds the
kernels that a GPU runs, and nothing about links or single transfers: those are in trace.json.gz.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from netsim.base.errors import InputError
from netsim.base.files import write_text
from netsim.program.program import Program, Timeline
from netsim.schedule.schedule import COMPUTE
from netsim.trace import names as trace_names
from netsim.trace.chrome import Event, Slice, as_json, kernel_slices, named, row_slices

FOLDER = "rank_traces"
MOST_FILES = 1024  # ranks; above this, a folder of files is refused


def file_name(rank: int) -> str:
    """The name under which TraceLens looks for the trace of a rank (`rank*_trace.json`)."""
    return f"rank{rank}_trace.json"


def check_rank_count(ranks: int) -> None:
    """Raise an InputError if a job has more ranks than the most for which files are written."""
    if ranks > MOST_FILES:
        raise InputError(
            f"outputs: trace_per_rank: {ranks} ranks, expected at most {MOST_FILES}",
            hint="`trace` writes one file that shows some of the ranks",
        )


def write_rank_file(
    folder: Path,
    rank: int,
    info: Mapping[str, object],
    about: Mapping[str, object],
    events: Iterable[Event],
) -> Path:
    """Write the trace of one rank and return its path.

    `info` is the distributedInfo of Kineto's header. The header stands on the first line, with a
    blank after every colon: HolisticTraceAnalysis finds the rank of a file by searching its lines
    for `"rank": 3` (hta/common/trace_file.py, create_rank_to_trace_dict)."""
    folder.mkdir(parents=True, exist_ok=True)
    header = {
        "schemaVersion": 1,
        "distributedInfo": dict(info),
        "displayTimeUnit": "ns",
        "otherData": {"simulator": "netsim", **about},
    }
    first_line = json.dumps(header, ensure_ascii=False)[:-1]
    event_lines = ",\n".join(as_json(event) for event in events)
    text = f'{first_line}, "traceEvents": [\n{event_lines}\n]}}\n'
    return write_text(folder / file_name(rank), text)


def process_events(rank: int, name: str, streams: Iterable[int]) -> list[Event]:
    """The events that name the process of a GPU (`rank`) and its streams."""
    events = named(name, rank)
    for stream in sorted(set(streams)):
        events += named(f"stream {stream}", rank, stream)
    return events


def write_rank_files(
    folder: Path,
    program: Program,
    timeline: Timeline,
    operations: Sequence[trace_names.TracedOperation] = (),
    about: Mapping[str, object] | None = None,
) -> list[Path]:
    """Write the kernels of a program, one file for each rank, and return the paths."""
    ranks = program.schedule.ranks
    check_rank_count(ranks)
    operations = trace_names.named_operations(program, tuple(operations))
    slices: dict[int, list[Slice]] = {rank: [] for rank in range(ranks)}
    for item in _kernels(program, timeline, operations):
        slices[item.rank].append(item)
    paths = []
    for rank, own_slices in slices.items():
        kernels = [_kernel_event(item) for item in sorted(own_slices, key=lambda item: item.begin)]
        streams = [event["tid"] for event in kernels]
        names = process_events(rank, f"rank {rank} ({program.gpus[rank]})", streams)
        info = trace_names.distributed_info(ranks, operations, rank)
        paths.append(write_rank_file(folder, rank, info, about or {}, [*names, *kernels]))
    return paths


def _kernels(
    program: Program, timeline: Timeline, operations: tuple[trace_names.TracedOperation, ...]
) -> Iterator[Slice]:
    """Yield the kernels of all ranks: those that compute, and one for each rank of each
    collective.
    """
    computing = np.flatnonzero(program.schedule.kind == COMPUTE)
    selection = trace_names.ShownRows(computing, len(computing), timeline.makespan)
    yield from row_slices(program, timeline, trace_names.Names(program, operations), selection)
    yield from kernel_slices(program, timeline, operations)


def _kernel_event(item: Slice) -> Event:
    """A kernel as Kineto writes it: its process is the GPU, its thread the stream."""
    args: dict[str, Any] = json.loads(item.args)
    return {
        "ph": "X",
        "cat": item.category,
        "name": item.name,
        "pid": item.rank,
        "tid": args["stream"],
        "ts": item.begin / 1000,
        "dur": (item.end - item.begin) / 1000,
        "args": args,
    }
