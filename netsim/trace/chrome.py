"""Write trace.json: a run as trace events for Perfetto, chrome://tracing and readers of Kineto
traces.

Each rank is a process, with a thread for what it sends, receives and copies over each medium
(NVLink, NIC, ...). Arrows lead from sends to receives; a slice for each collective and rank has
Kineto's arguments; counters show links. Equal runs give equal bytes.

A track is a thread before overlaps are resolved: (group, stream, role, medium). Slices of a track
that overlap are put on several lanes, each of which is a thread.
"""

import gzip
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from heapq import heappop, heappush
from itertools import count, groupby
from json import JSONEncoder
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from netsim.base.files import write_bytes
from netsim.base.values import dataclass, grouped
from netsim.metrics.links import (
    IN_SECONDS,
    LinkLoad,
    arrivals,
    link_use,
    load_over_time,
    receivers,
    senders,
)
from netsim.program.path_entries import owners_of
from netsim.program.program import Program, Timeline
from netsim.schedule.schedule import COMPUTE, LOCAL_COPY, MARK, OP_NAMES, Schedule, Style
from netsim.trace import names as trace_names

Track = tuple[int, str, int, int]  # group, stream, role, over what
LAUNCH, KERNELS, COMPUTES, MOVES = range(4)
SEND, RECEIVE, LOCAL = range(3)
_ROLES = ("send", "recv", "copy")
# The medium of a transfer is the first of these kinds of links that its path has.
_OVER = ("nic", "nvlink", "xgmi", "c2c", "hostmem", "pcie")
_MEDIA = ("", "NIC", "NVLink", "xGMI", "C2C", "host memory", "PCIe")

as_json = JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode
Nanoseconds = NDArray[np.int64]


class Slice(NamedTuple):
    """One bar of the trace; slices are sorted by their fields.

    Args:
        begin: start in nanoseconds.
        end: end in nanoseconds.
        args: arguments as JSON.
        leaving: numbers of the arrows that start here.
        reaching: numbers of the arrows that end here.
        row: row of the schedule, or -1.
    """

    begin: int
    rank: int
    track: Track
    end: int
    name: str
    category: str
    args: str
    leaving: tuple[int, ...] = ()
    reaching: tuple[int, ...] = ()
    row: int = -1


_place_of = itemgetter(slice(Slice._fields.index("name") + 1))


def nanoseconds(seconds: NDArray[np.float64]) -> Nanoseconds:
    """Return times rounded to whole nanoseconds."""
    return np.rint(seconds * 1e9).astype(np.int64)


def spans(begin: NDArray[np.float64], end: NDArray[np.float64]) -> tuple[Nanoseconds, Nanoseconds]:
    """The begins and ends (given in seconds) in nanoseconds, at least 1 ns apart so that slices are
    visible.
    """
    first = nanoseconds(begin)
    return first, np.maximum(nanoseconds(end), first + 1)


def track_name(track: Track, lane: int) -> str:
    """The name of the thread for a lane of a track: `send NIC`, `gemm`, `collectives`; `send NIC ·
    2` for its second lane.
    """
    group, stream, role, over = track
    name = {LAUNCH: stream, KERNELS: "collectives", COMPUTES: stream or "compute"}.get(group)
    if name is None:
        name = f"{stream} {_ROLES[role]} {_MEDIA[over]}".strip()
    return name if lane == 0 else f"{name} · {lane + 1}"


def lanes(slices: Iterable[Slice]) -> list[tuple[Slice, int]]:
    """(slice, number of its lane) for each slice, in order of time. On a lane of its track a slice
    overlaps no other.
    """
    ordered = sorted(slices, key=_place_of)
    lane = [0] * len(ordered)
    for slices_of_track in grouped(
        range(len(ordered)), lambda position: (ordered[position].rank, ordered[position].track)
    ).values():
        spans = [(ordered[position].begin, ordered[position].end) for position in slices_of_track]
        for position, number in zip(slices_of_track, packed(spans), strict=True):
            lane[position] = number
    return list(zip(ordered, lane, strict=True))


def packed(spans: Iterable[tuple[float, float]], slack: float = 0.0) -> Iterator[int]:
    """Yield for each span (begin, end), which must be ordered by begins, the number of the lane
    that it gets: the lowest lane that is free when the span begins.

    A lane is free if its last span ends at most `slack` after the begin.
    """
    idle = list[int]()
    busy = list[tuple[float, int]]()
    for begin, end in spans:
        while busy and busy[0][0] <= begin + slack:
            heappush(idle, heappop(busy)[1])
        lane = heappop(idle) if idle else len(busy)
        heappush(busy, (end, lane))
        yield lane


def threads(placed: Iterable[tuple[Slice, int]]) -> dict[tuple[int, Track, int], int]:
    """By (rank, track, lane), the number of the thread that shows it. In each rank, threads are
    numbered from 1 in the order of display.
    """
    used = sorted({(item.rank, item.track, lane) for item, lane in placed})
    ranks = grouped(used, itemgetter(0)).values()
    return {
        lane_of_rank: number
        for lanes_of_rank in ranks
        for number, lane_of_rank in enumerate(lanes_of_rank, 1)
    }


_CATEGORIES = {MARK: "launch", COMPUTE: "kernel", LOCAL_COPY: "gpu_memcpy"}  # rows on one rank
_Bar = tuple[int, int, str, str]  # begin, end, name and arguments


def row_slices(
    program: Program, timeline: Timeline, names: trace_names.Names, selection: trace_names.ShownRows
) -> list[Slice]:
    """The slices of all rows that the trace shows, without rows that take no time and
    move nothing.
    """
    schedule = program.schedule
    rows = selection.rows
    kind = np.array([style.kind for style in schedule.styles], int)[schedule.style[rows]]
    moves_nothing = (kind == MARK) | (schedule.pieces.amount[schedule.piece[rows]] == 0)
    is_visible = (timeline.end[rows] > timeline.start[rows]) | ~moves_nothing
    is_local = np.isin(kind, list(_CATEGORIES))
    local_rows = _Shown(program, timeline, names, rows[is_visible & is_local])
    moved_rows = _Shown(program, timeline, names, rows[is_visible & ~is_local])
    return _together(names, [*local_rows.local(), *moved_rows.transfers()])


def _together(names: trace_names.Names, slices: Iterable[Slice]) -> list[Slice]:
    """Merge the slices of one step that a rank sends (or receives) at the same time over the same
    medium.

    Equal channels have such slices; unmerged, each would need a thread.
    """
    groups: defaultdict[tuple[object, ...], list[Slice]] = defaultdict(list)
    step = names.program.schedule.step
    for entry in slices:
        separate_row = entry.row if entry.track[0] != MOVES else -1
        key = (
            entry.begin,
            entry.rank,
            entry.track,
            entry.end,
            entry.category,
            int(step[entry.row]),
            separate_row,
        )
        groups[key].append(entry)
    return [
        _as_one(names, equal_slices) if len(equal_slices) > 1 else equal_slices[0]
        for equal_slices in groups.values()
    ]


def _as_one(names: trace_names.Names, equal_slices: Sequence[Slice]) -> Slice:
    """One slice for slices of equal time, rank and track: bytes and rates are added, and it has the
    arrows of all.
    """
    arguments = [json.loads(item.args) for item in equal_slices]
    args = {"rows": [item.pop("row") for item in arguments], **arguments[0]}
    for key in {"channel", "path"}.intersection(args):
        values = list(dict.fromkeys(item[key] for item in arguments))
        args[key] = values if len(values) > 1 else values[0]
    for key in {"bytes", "GB/s"}.intersection(args):
        args[key] = float(f"{sum(item[key] for item in arguments):.6g}")
    if "bytes" in args:
        args["bytes"] = sum(item["bytes"] for item in arguments)
    return equal_slices[0]._replace(
        name=names.of_several(args["rows"], receiving=equal_slices[0].category == "recv"),
        args=as_json(args),
        leaving=tuple(arrow for item in equal_slices for arrow in item.leaving),
        reaching=tuple(arrow for item in equal_slices for arrow in item.reaching),
    )


@dataclass(frozen=True, slots=True)
class _Shown:
    """Rows that the trace shows, and how they become slices.

    Names and arguments are made for all rows at once, column by column, for speed.
    """

    program: Program
    timeline: Timeline
    names: trace_names.Names
    rows: NDArray[np.int64]

    def local(self) -> Iterator[Slice]:
        """Yield a slice for each row; all rows are local to one rank (copies, computations,
        launches).
        """
        schedule = self.program.schedule
        track = [_local_track(style) for style in schedule.styles]
        category = [_CATEGORIES.get(style.kind, "") for style in schedule.styles]
        style_numbers = schedule.style[self.rows].tolist()
        ranks = schedule.src[self.rows].tolist()
        args = self._args(
            step=self._steps(),
            **{"stream name": self._of_style(lambda style: as_json(style.stream))},
        )
        bars = self._bars(self._column("start"), self._column("end"), args)
        streams = _compute_streams(schedule)
        for row, number, rank, bar in zip(
            self.rows.tolist(), style_numbers, ranks, bars, strict=True
        ):
            begin, end, name, about = bar
            if schedule.styles[number].kind == COMPUTE:
                stream = streams[schedule.styles[number].stream]
                launch = as_json(trace_names.launch_args(rank, stream, _correlation_of_row(row)))
                about = f"{about[:-1]},{launch[1:]}"
            yield Slice(begin, rank, track[number], end, name, category[number], about, row=row)

    def transfers(self) -> Iterator[Slice]:
        """Yield slices for rows that are transfers: one for each sender and one for each receiver.

        Receivers' slices are later by the latency of the path.
        """
        schedule = self.program.schedule
        arrows = count(1)
        style = schedule.style[self.rows].tolist()
        over = self._over()
        for row, style_number, medium, sending, received in zip(
            self.rows.tolist(), style, over, self._sending(), self._receiving(), strict=True
        ):
            stream = schedule.styles[style_number].stream
            sources, targets = schedule.members(row)
            pairs = [(a, b, next(arrows)) for a in sources for b in targets if a != b]
            begin, end, name, args = sending
            track = MOVES, stream, SEND, medium
            for rank in sources:
                leaving = tuple([number for a, _, number in pairs if a == rank])
                yield Slice(begin, rank, track, end, name, "send", args, leaving, (), row)
            begin, end, name, args = received
            track = MOVES, stream, RECEIVE, medium
            for rank in targets:
                reaching = tuple([number for _, b, number in pairs if b == rank])
                yield Slice(begin, rank, track, end, name, "recv", args, (), reaching, row)

    def _over(self) -> list[int]:
        """The medium (NVLink, NIC, ...) of each row, as an index of `_MEDIA`."""
        program, counts = self.program, np.zeros(len(self.program.paths) + 1, int)
        kinds = np.array([program.links.kind(link) for link in range(len(program.links))], object)
        owner = owners_of(program.paths.ptr)
        for number, kind in reversed([*enumerate(_OVER, 1)]):
            counts[owner[kinds[program.paths.link] == kind]] = number
        over: list[int] = counts[program.path[self.rows]].tolist()
        return over

    def _sending(self) -> Iterator[_Bar]:
        """The bars of the rows at their senders, in the order of the rows."""
        schedule = self.program.schedule
        start = self._column("start")
        end = self._column("end")
        flowing = end - self._flowing_from()
        nbytes = schedule.pieces.amount[schedule.piece[self.rows]]
        rate = np.divide(nbytes, flowing, out=np.zeros_like(nbytes), where=flowing > 0) / 1e9
        path = self.program.path[self.rows]
        args = self._args(
            bytes=trace_names.spelled(nbytes, trace_names.number_text),
            **{"GB/s": trace_names.spelled(rate, _four_digits)},
            op=self._of_style(lambda style: as_json(OP_NAMES[style.op])),
            channel=self._of_style(lambda style: str(style.channel)),
            step=self._steps(),
            path=trace_names.spelled(path, lambda number: as_json(self.names.path(number))),
        )
        return self._bars(start, end, args)

    def _receiving(self) -> Iterator[_Bar]:
        """The bars of the rows at their receivers, later by the latency of the path."""
        delay = self.program.path_latency[self.program.path[self.rows]]
        begin = self._flowing_from() + delay
        end = self._column("end") + delay
        return self._bars(begin, end, self._args(), receiving=True)

    def _bars(
        self,
        begin: NDArray[np.float64],
        end: NDArray[np.float64],
        args: Iterable[str],
        *,
        receiving: bool = False,
    ) -> Iterator[_Bar]:
        """Yield (begin in ns, end in ns, name, arguments as JSON) of each row.

        - `begin`, `end`: by row, in seconds.
        - `args`: by row, its arguments as JSON.
        - `receiving`: whether names are those of the receiver.
        """
        first, last = spans(begin, end)
        names = self.names.rows(self.rows, receiving=receiving)
        return zip(first.tolist(), last.tolist(), names, args, strict=True)

    def _args(self, **columns: list[str]) -> Iterator[str]:
        """Yield the arguments of each row as a JSON object. `columns` have, by key of the object, a
        list with a JSON value for each row.
        """
        keys = "".join(f',"{key}":%s' for key in columns)
        form = f'{{"row":%s{keys}}}'
        return map(form.__mod__, zip(self.rows.tolist(), *columns.values(), strict=True))

    def _of_style(self, spell: Callable[[Style], str]) -> list[str]:
        """For each row, the text that `spell` returns for its style."""
        schedule = self.program.schedule
        return trace_names.spelled(
            schedule.style[self.rows], lambda number: spell(schedule.styles[number])
        )

    def _steps(self) -> list[str]:
        """The step of each row as text."""
        return trace_names.spelled(self.program.schedule.step[self.rows], str)

    def _flowing_from(self) -> NDArray[np.float64]:
        """For each row, when its bytes begin to move, after its start-up time, in seconds."""
        wait = self.program.style_values("latency")[self.program.schedule.style[self.rows]]
        begin: NDArray[np.float64] = np.minimum(self._column("start") + wait, self._column("end"))
        return begin

    def _column(self, name: str) -> NDArray[np.float64]:
        """The values of a column of the timeline for the rows."""
        column: NDArray[np.float64] = getattr(self.timeline, name)[self.rows]
        return column


def _compute_streams(schedule: Schedule) -> dict[str, int]:
    """The CUDA stream number of each stream of kernels that compute, by the stream's name."""
    streams = {style.stream for style in schedule.styles if style.kind == COMPUTE}
    default_stream = "" if "" in streams or not streams else min(streams)
    return trace_names.stream_numbers(streams, default_stream)


def _correlation_of_row(row: int) -> int:
    """The number that links the kernel of a row with its launch; numbers of collectives follow
    those of all rows.
    """
    return row + 1


def _local_track(style: Style) -> Track:
    """The track of the rows of a style that are local to one rank."""
    if style.kind == MARK:
        return LAUNCH, style.stream or "marks", 0, 0
    if style.kind == COMPUTE:
        return COMPUTES, style.stream, 0, 0
    return MOVES, style.stream, LOCAL, 0


def _four_digits(rate: float) -> str:
    """A number as text with four significant digits."""
    return repr(float(np.format_float_positional(rate, 4, fractional=False)))


# The spans in which ranks send or receive: row, rank, begin and end in seconds.
_RankSpans = tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float64], NDArray[np.float64]]


def kernel_slices(
    program: Program, timeline: Timeline, operations: tuple[trace_names.TracedOperation, ...]
) -> list[Slice]:
    """A slice for each rank, collective and repetition, even if only a part of its rows is shown.

    It covers all that the rank does for the collective, and has Kineto's arguments, so that readers
    of PyTorch profiles understand it.
    """
    schedule = program.schedule
    row, rank, begin, end = _communication_spans(program, timeline)
    repetition = _repetitions(schedule)
    repetitions = int(repetition.max(initial=0)) + 1
    width = len(operations)
    collective = np.array([style.collective for style in schedule.styles], np.int64)
    key = (rank.astype(np.int64) * repetitions + repetition[row]) * width + collective[
        schedule.style[row]
    ]
    groups, first, last = _spans(key, begin, end)
    begins, ends = spans(first, last)
    names = [operation.kernel for operation in operations]
    stream = max(_compute_streams(schedule).values()) + 1
    stream = max(stream, trace_names.FIRST_OTHER_STREAM)
    slices = []
    for place, (number, begin_ns, end_ns) in enumerate(
        zip(groups.tolist(), begins.tolist(), ends.tolist(), strict=True)
    ):
        rank = number // (width * repetitions)
        sequence = number % (width * repetitions)
        operation = operations[sequence % width]
        correlation = _correlation_of_row(len(schedule.style) + place)
        args = {
            **trace_names.launch_args(rank, stream, correlation),
            **_collective_args(operation, rank, schedule.ranks, sequence),
        }
        track = (KERNELS, "", 0, 0)
        name = names[sequence % width]
        slices.append(Slice(begin_ns, rank, track, end_ns, name, "kernel", as_json(args)))
    return slices


def _communication_spans(program: Program, timeline: Timeline) -> _RankSpans:
    """The spans in which ranks send or receive, as arrays (row, rank, begin, end), times in
    seconds.
    """
    kind = program.schedule.kind
    moving = np.flatnonzero((kind != MARK) & (kind != COMPUTE))
    row, rank = senders(program.schedule, moving)
    received, _ = receivers(program.schedule, moving)
    taker, begin, end = arrivals(program, timeline, moving)
    return (
        np.concatenate([row, received]),
        np.concatenate([rank, taker]),
        np.concatenate([timeline.start[row], begin]),
        np.concatenate([timeline.end[row], end]),
    )


def _collective_args(
    operation: trace_names.TracedOperation, rank: int, ranks: int, sequence: int
) -> dict[str, object]:
    """Return Kineto's arguments of a call, preceded by algorithm and protocol if they are known."""
    choices = {"algorithm": operation.algorithm, "protocol": operation.protocol}
    known_choices = {name: value for name, value in choices.items() if value}
    members = operation.ranks or range(ranks)
    return {**known_choices, **trace_names.kineto_args(operation, rank, members, sequence)}


def _repetitions(schedule: Schedule) -> NDArray[np.int64]:
    """By row, the number of its repetition, from 0. A repetition begins with a block of rows that
    are launches; rows before the first launch belong to repetition 0.
    """
    launching = np.array([s.kind == MARK and s.stream == "launch" for s in schedule.styles], bool)
    launch = launching[schedule.style] if len(schedule.styles) else np.zeros(0, bool)
    begins = launch.copy()
    begins[1:] &= ~launch[:-1]
    repetitions: NDArray[np.int64] = np.maximum(np.cumsum(begins) - 1, 0)
    return repetitions


def _spans(
    keys: NDArray[np.int64], begins: NDArray[np.float64], ends: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
    """Three arrays: the different keys in increasing order, and for each key the first begin and
    the last end.
    """
    present = np.zeros(int(keys.max(initial=-1)) + 1, bool)
    present[keys] = True
    numbers = np.flatnonzero(present)
    place = (np.cumsum(present) - 1)[keys]
    first = np.full(len(numbers), np.inf)
    last = np.zeros(len(numbers))
    np.minimum.at(first, place, begins)
    np.maximum.at(last, place, ends)
    return numbers, first, last


FIRST_PROCESS = 1_000_000  # process numbers of link kinds begin here, those below are ranks
Event = dict[str, Any]


def busiest_load(
    program: Program, timeline: Timeline, links: int, bins: int, exact: int = 0
) -> LinkLoad:
    """The load over time of the `links` most utilized links, in link order.

    `bins` and `exact` are those of `load_over_time`.
    """
    use = link_use(program, timeline)
    return load_over_time(program, timeline, np.sort(use.link[use.top(links)]), bins, exact)


def counter_events(program: Program, load: LinkLoad) -> tuple[list[Event], list[Event]]:
    """Two lists: the events that name a process for each kind of links, and the events of counters,
    of which each link has one.

    Counters are rates in GB/s; for resources that give seconds, the utilization in %.
    """
    kinds = [program.links.kind(link) for link in load.link.tolist()]
    process = {kind: FIRST_PROCESS + i for i, kind in enumerate(dict.fromkeys(kinds))}
    names = [event for kind, pid in process.items() for event in named(f"links: {kind}", pid)]
    times = (nanoseconds(load.edges) / 1000).tolist()
    events = []
    for i, kind in enumerate(kinds):
        unit = "GB/s"
        values = load.rate[i] / 1e9
        if kind in IN_SECONDS:
            unit = "%"
            values = load.utilisation[i] * 100
        counter = {
            "ph": "C",
            "pid": process[kind],
            "tid": 0,
            "name": program.links.name(int(load.link[i])),
        }
        steps = _steps(times, [float(f"{value:.6g}") for value in values.tolist()])
        events += [{**counter, "ts": ts, "args": {unit: value}} for ts, value in steps]
    return names, events


def named(name: str, pid: int, tid: int = 0) -> list[Event]:
    """The events that name a process and set its place in the display; with `tid` (from 1), the
    same for a thread of this process.
    """
    kind = "thread" if tid else "process"
    about = {"ph": "M", "pid": pid, "tid": tid}
    return [
        {**about, "name": f"{kind}_name", "args": {"name": name}},
        {**about, "name": f"{kind}_sort_index", "args": {"sort_index": tid or pid}},
    ]


def _steps(times: list[float], values: list[float]) -> list[tuple[float, float]]:
    """The (time, value) pairs at which a value changes; `values[k]` holds from `times[k]` to
    `times[k + 1]`.
    """
    moments = zip(times, [*values, 0.0], strict=True)
    return [next(same) for _, same in groupby(moments, key=itemgetter(1))]


MOST_ROWS = 50_000  # about 40 MB of JSON, which viewers still open
MOST_LINKS = 64
BINS = 500  # intervals of counters
CHANGES = 1000  # with at most this many times of change, counters change exactly then instead

Threads = dict[tuple[int, Track, int], int]
_Timed = tuple[float, str]  # when, and the event as JSON


def write_trace(
    path: Path,
    program: Program,
    timeline: Timeline,
    operations: Sequence[trace_names.TracedOperation] = (),
    *,
    rows: int = MOST_ROWS,
    about: Mapping[str, str] | None = None,
) -> trace_names.Written:
    """Write a trace to `path` (.json or .json.gz); return the file with a note about omitted rows.

    It has at most `rows` rows, those that start first. Its first line is the header, with what was
    simulated (`about`).
    """
    selection = trace_names.first_rows(timeline, rows)
    operations = trace_names.named_operations(program, tuple(operations))
    header = {
        "schemaVersion": 1,
        "displayTimeUnit": "ns",
        "distributedInfo": trace_names.distributed_info(program.schedule.ranks, operations),
        "otherData": {**_about(program, timeline, selection), **(about or {})},
    }
    events = ",\n".join(_events(program, timeline, operations, selection))
    text = f'{as_json(header)[:-1]},"traceEvents":[\n{events}\n]}}\n'.encode()
    if path.suffix == ".gz":
        text = gzip.compress(text, compresslevel=6, mtime=0)
    write_bytes(path, text)
    return trace_names.Written(path, selection.note())


def _events(
    program: Program,
    timeline: Timeline,
    operations: tuple[trace_names.TracedOperation, ...],
    selection: trace_names.ShownRows,
) -> list[str]:
    """All events of a trace as JSON: first those with names, then the others by time."""
    slices = row_slices(program, timeline, trace_names.Names(program, operations), selection)
    placed = lanes(slices + kernel_slices(program, timeline, operations))
    tids = threads(placed)
    load = busiest_load(program, timeline, MOST_LINKS, BINS, CHANGES)
    counter_names, counters = counter_events(program, load)
    bars, starts, ends = _slice_events(placed, tids)
    # At the same time, slices must come before the arrows that start or end in them.
    timed = [*bars, *((event["ts"], as_json(event)) for event in counters), *starts, *ends]
    timed.sort(key=itemgetter(0))
    names = [*_rank_names(program, tids), *counter_names]
    return [*map(as_json, names), *(text for _, text in timed)]


def _about(
    program: Program, timeline: Timeline, selection: trace_names.ShownRows
) -> dict[str, object]:
    """The entries of the header that describe the run."""
    about: dict[str, object] = {
        "simulator": "netsim",
        "ranks": program.schedule.ranks,
        "rows": selection.total,
        "makespan_us": timeline.makespan * 1e6,
    }
    if not selection.is_complete:
        about["left_out"] = f"this trace {selection.note()}"
    return about


def _slice_events(
    placed: Sequence[tuple[Slice, int]], tids: Threads
) -> tuple[list[_Timed], list[_Timed], list[_Timed]]:
    """Three lists of (time in µs, event as JSON): the slices, the starts of arrows, and the ends of
    arrows.

    - `placed`: slices with their lanes, as `lanes` returns them.
    - `tids`: thread numbers, as `threads` returns them.

    There may be millions, so each event is formatted from a template, and common parts are
    converted once.
    """
    bars: list[_Timed] = []
    starts: list[_Timed] = []
    ends: list[_Timed] = []
    arguments_text = cache(as_json)
    for (begin, rank, track, end, name, category, args, leaving, reaching, _), lane in placed:
        ts = begin / 1000
        where = f'"pid":{rank},"tid":{tids[rank, track, lane]},"ts":{ts}'
        bars.append(
            (
                ts,
                (
                    f'{{"ph":"X","cat":"{category}","name":{arguments_text(name)},{where},'
                    f'"dur":{(end - begin) / 1000},"args":{args}}}'
                ),
            )
        )
        arrow = f'"cat":"transfer","name":"transfer",{where}}}'
        starts += [(ts, f'{{"ph":"s","id":{number},{arrow}') for number in leaving]
        ends += [(ts, f'{{"ph":"f","bp":"e","id":{number},{arrow}') for number in reaching]
    return bars, starts, ends


def _rank_names(program: Program, tids: Threads) -> Iterator[Event]:
    """Yield the events that name ranks and their threads."""
    for rank, gpu in enumerate(program.gpus):
        yield from named(f"rank {rank} ({gpu})", rank)
    for (rank, track, lane), tid in tids.items():
        yield from named(track_name(track, lane), rank, tid)
