"""trace.json: a run as trace events, for Perfetto, chrome://tracing and readers of Kineto profiles.

A process a rank, a thread a stream or channel, arrows from sends to receives, a collective slice a
rank with Kineto's arguments, and counters for links. The same run gives the same bytes.
"""

import gzip
from collections.abc import Iterator, Sequence
from functools import cache
from operator import itemgetter
from pathlib import Path
from typing import Any

from netsim.files import write_bytes
from netsim.program import Program, Timeline
from netsim.trace.counters import Event, busiest_load, counter_events, process_names
from netsim.trace.kernels import kernel_slices
from netsim.trace.names import Names, named_operations
from netsim.trace.operation import Operation, distributed_info
from netsim.trace.rows import row_slices
from netsim.trace.selection import Selection, Written, first_rows
from netsim.trace.slices import Slice, Track, as_json, lanes, threads, track_name

MOST_ROWS = 50_000  # about 40 MB of JSON, which viewers still open
MOST_LINKS = 64
BINS = 500  # of counters; where there are no more than
CHANGES = 1000  # times at which anything changes, counters change exactly then

Threads = dict[tuple[int, Track, int], int]
_Timed = tuple[float, str]  # when, and the event as JSON


def write_trace(
    path: Path,
    program: Program,
    timeline: Timeline,
    operations: Sequence[Operation] = (),
    *,
    rows: int = MOST_ROWS,
    links: int = MOST_LINKS,
) -> Written:
    """Write a trace; `path` ends in .json or .json.gz. Above `rows`, the first ones are shown."""
    selection = first_rows(timeline, rows)
    text = "".join(_lines(program, timeline, tuple(operations), selection, links)).encode()
    if path.suffix == ".gz":
        text = gzip.compress(text, compresslevel=6, mtime=0)
    write_bytes(path, text)
    return Written(path, selection.note())


def _lines(
    program: Program,
    timeline: Timeline,
    operations: tuple[Operation, ...],
    selection: Selection,
    links: int,
) -> Iterator[str]:
    named = named_operations(program, operations)
    header = {
        "schemaVersion": 1,
        "displayTimeUnit": "ns",
        "distributedInfo": distributed_info(program.schedule.ranks, named),
        "otherData": _about(program, timeline, selection),
    }
    yield as_json(header)[:-1] + ',"traceEvents":[\n'
    yield ",\n".join(_events(program, timeline, named, selection, links))
    yield "\n]}\n"


def _events(
    program: Program,
    timeline: Timeline,
    named: tuple[Operation, ...],
    selection: Selection,
    links: int,
) -> list[str]:
    """All trace events: names first, then everything in order of time."""
    slices = row_slices(program, timeline, Names(program, named), selection)
    placed = lanes(slices + kernel_slices(program, timeline, named))
    tids = threads(placed)
    load = busiest_load(program, timeline, links, BINS, CHANGES)
    counter_names, counters = counter_events(program, load)
    bars, starts, ends = _slice_events(placed, tids)
    # At one instant, slices come before the arrows that they hold.
    timed = [*bars, *((event["ts"], as_json(event)) for event in counters), *starts, *ends]
    timed.sort(key=itemgetter(0))
    names = [*_rank_names(program, tids), *counter_names]
    return [*map(as_json, names), *(text for _, text in timed)]


def _about(program: Program, timeline: Timeline, selection: Selection) -> dict[str, object]:
    about: dict[str, object] = {
        "simulator": "netsim",
        "ranks": program.schedule.ranks,
        "rows": selection.total,
        "makespan_us": timeline.makespan * 1e6,
    }
    if not selection.whole:
        about["left_out"] = f"this trace {selection.note()}"
    return about


def _slice_events(
    placed: Sequence[tuple[Slice, int]], tids: Threads
) -> tuple[list[_Timed], list[_Timed], list[_Timed]]:
    """Slices, where arrows start, and where they end. There are so many that each is filled into a
    text; what is said of all of them together is made JSON once.
    """
    bars: list[_Timed] = []
    starts: list[_Timed] = []
    ends: list[_Timed] = []
    told = cache(as_json)
    for (begin, rank, track, end, name, category, args, leaving, reaching), lane in placed:
        ts = begin / 1000
        where = f'"pid":{rank},"tid":{tids[rank, track, lane]},"ts":{ts}'
        bars.append((ts, (
            f'{{"ph":"X","cat":"{category}","name":{told(name)},{where},'
            f'"dur":{(end - begin) / 1000},"args":{args}}}'
        )))  # fmt: skip
        arrow = f'"cat":"transfer","name":"transfer",{where}}}'
        starts += [(ts, f'{{"ph":"s","id":{number},{arrow}') for number in leaving]
        ends += [(ts, f'{{"ph":"f","bp":"e","id":{number},{arrow}') for number in reaching]
    return bars, starts, ends


def _rank_names(program: Program, tids: Threads) -> Iterator[Event]:
    """Names of ranks and of their threads, each with its place from top to bottom."""
    for rank, gpu in enumerate(program.gpus):
        yield from process_names(rank, f"rank {rank} ({gpu})")
    for (rank, track, lane), tid in tids.items():
        thread: dict[str, Any] = {"ph": "M", "pid": rank, "tid": tid}
        yield {**thread, "name": "thread_name", "args": {"name": track_name(track, lane)}}
        yield {**thread, "name": "thread_sort_index", "args": {"sort_index": tid}}
