"""Read profiles of PyTorch (Kineto): kernels, calls of NCCL, and the steps that were recorded."""

import gzip
import json
import re
import zlib
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from itertools import pairwise
from math import prod
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np

from netsim.base.errors import InputError
from netsim.base.files import LARGEST_TABLE, content_of
from netsim.base.memo import Memo
from netsim.base.values import dataclass, grouped
from netsim.scenario.names import DTYPES
from netsim.trace.goal import MOST_RANKS
from netsim.trace.names import KINETO_TYPES
from netsim.workloads.setting import Ranks
from netsim.workloads.tape import Deps, Tape

GZIP = b"\x1f\x8b"
OTHER_PACKERS = {b"PK\x03\x04": "zip", b"(\xb5/\xfd": "zstd", b"\xfd7zXZ": "xz", b"BZh": "bzip2"}

HEAD = 1 << 20
TRACE_MARKS = (b'"schemaVersion"', b'"traceEvents"', b'"baseTimeNanoseconds"', b'"distributedInfo"')


def head_of(path: Path) -> bytes:
    """Return the first megabyte of a file, unpacked; empty if it cannot be read."""
    try:
        with path.open("rb") as file:
            head = file.read(HEAD)
        packed = zlib.decompressobj(zlib.MAX_WBITS | 16)
        return packed.decompress(head, HEAD) if head[:2] == GZIP else head
    except (OSError, zlib.error):
        return b""


def is_trace(path: Path) -> bool:
    """Whether a file looks like a trace, by the keys at its beginning."""
    head = head_of(path)
    if not head:
        return path.name.endswith(".json.gz")  # damaged; the error is raised when it is read
    begun = head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
    events = begun == b"[" and b'"ph"' in head
    return events or (begun == b"{" and any(mark in head for mark in TRACE_MARKS))


def read_json(path: Path) -> dict[str, Any]:
    """Return the trace in a file, as a mapping with `traceEvents`."""
    content = unpacked(path)
    for magic, name in OTHER_PACKERS.items():
        if content.startswith(magic):
            raise InputError(f"{path}: is packed by {name}", hint="unpack it, or pack it by gzip")
    try:
        trace = json.loads(content)
    except UnicodeDecodeError:
        raise InputError(f"{path}: expected a trace in JSON, got binary data") from None
    except json.JSONDecodeError as error:
        ended = error.pos >= len(error.doc.rstrip()) - len("false")
        cut = ended or error.msg.startswith("Unterminated")
        problem = (
            "ends in the middle (was the profiler stopped?)" if cut else f"is no JSON: {error.msg}"
        )
        raise InputError(f"{path}:{error.lineno}:{error.colno}: {problem}") from None
    except (ValueError, RecursionError) as error:  # endless digits or brackets
        raise InputError(f"{path}: is no trace: {error}") from None
    if isinstance(trace, list):
        trace = {"traceEvents": trace}
    if not isinstance(trace, dict) or not isinstance(trace.get("traceEvents"), list):
        raise InputError(f"{path}: expected a trace with traceEvents")
    return trace


def unpacked(path: Path) -> bytes:
    """Return the contents of a file without the gzip around it."""
    content = content_of(path, LARGEST_TABLE)
    try:
        while content[:2] == GZIP:  # some pipelines compress twice
            content = gzip.decompress(content)
    except (EOFError, OSError, zlib.error):
        raise InputError(f"{path}: the gzip data is cut or damaged") from None
    return content


# PyTorch's description of one call of NCCL: its collective, size and ranks. It is in the arguments
# of the operator `record_param_comms`, and of the kernel that this operator launches.


# A pattern for PyTorch's names of collectives in all versions: `_allgather_base`, `all_to_allv`,
# `reduce_scatter_tensor_coalesced`, `all_gather_single`.
SPELT = re.compile(
    r"_?(?:(?P<all_reduce>all_?reduce)|(?P<all_gather>all_?gather)|"
    r"(?P<reduce_scatter>reduce_?scatter)|(?P<alltoall>all_?to_?all)|(?P<broadcast>broadcast)|"
    r"(?P<reduce>reduce)|(?P<gather>gather)|(?P<scatter>scatter)|(?P<p2p>send|recv))(?:_|v|$)",
    re.IGNORECASE,
)
TYPES = {name: dtype for dtype, name in KINETO_TYPES.items()} | {
    "Float8_e4m3fnuz": "f8e4m3",
    "Float8_e5m2fnuz": "f8e5m2",
    "Bool": "uint8",
}
# Collectives whose size, as nccl-tests counts it, is that of the output; and collectives of which a
# rank records only its own part of the size.
WHOLE_OUTPUT = ("all_gather",)
RANK_PART_NAMES = {"gather": "In msg nelems", "scatter": "Out msg nelems"}
LIST = re.compile(r"[\s,\[\]]+")
IS_NCCL = re.compile(r"(?:void )?(?:nccl|rccl|msccl)\w*Kernel", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class CallDescription:
    """One call of NCCL, as PyTorch describes it.

    `nbytes` is the size as nccl-tests counts it. `ranks` of a p2p call are source and destination.
    `uneven` is set if ranks exchange parts of different size; `nbytes` is then the larger one of
    input and output.
    """

    collective: str
    nbytes: int
    dtype: str
    ranks: tuple[int, ...]
    group: str
    uneven: bool = False


def collective_of(args: Mapping[str, Any]) -> str | None:
    """The collective that PyTorch's arguments of a call name; None if they name none, or one that
    moves nothing (`wait`).
    """
    match = SPELT.match(str(args.get("Collective name", "")))
    return None if match is None else match.lastgroup


@dataclass(frozen=True)
class ProfiledJob:
    """The job that a trace's header describes: this rank, the number of ranks, and the ranks of
    groups by name.
    """

    rank: int | None
    world: int | None
    groups: Mapping[str, tuple[int, ...]]

    def description_of_call(self, args: Mapping[str, Any]) -> CallDescription | None:
        """The call of NCCL that PyTorch's arguments describe; None if size or ranks are missing."""
        collective = collective_of(args)
        dtype = TYPES.get(str(args.get("dtype", "")))
        ranks = self._ranks(args)
        if collective is None or dtype is None or len(ranks) < 2:
            return None
        uneven = any(len(set(_splits(args, way))) > 1 for way in ("In", "Out"))
        elements = _elements(collective, args, len(ranks), uneven=uneven)
        if collective == "p2p":
            ranks = self._pair(args, ranks)
        if elements <= 0 or len(ranks) < 2 or len(set(ranks)) < len(ranks):
            return None
        group = args.get("Process Group Description") or args.get("Process Group Name") or "group"
        if group in ("undefined", "default_pg"):
            group = "default"
        return CallDescription(
            collective, elements * DTYPES[dtype], dtype, ranks, str(group), uneven
        )

    def _ranks(self, args: Mapping[str, Any]) -> tuple[int, ...]:
        """The ranks of a call's group; () if they are not known."""
        text = str(args.get("Process Group Ranks", ""))
        size = args.get("Group size")
        _check_ranks(size, "'Group size'")
        listed = self.groups.get(str(args.get("Process Group Name", "")), ())
        if "..." in text and isinstance(size, int):
            return listed if len(listed) == size else _completed_ranks(text, size, args)
        numbers = [part for part in LIST.split(text) if part]
        if not all(number.isdigit() for number in numbers):
            raise InputError(f"'Process Group Ranks' is no list: {text[:60]!r}")
        if numbers or listed:
            return tuple(map(int, numbers)) or listed
        return tuple(range(size)) if isinstance(size, int) else ()  # the default group

    def _pair(self, args: Mapping[str, Any], ranks: Sequence[int]) -> tuple[int, ...]:
        """The source and destination of a send or receive; () if they are not known."""
        sends = str(args["Collective name"]).lower().startswith("send")
        peer = args.get("Dst Rank" if sends else "Src Rank")
        other_ranks = [rank for rank in ranks if rank != self.rank]
        if peer is None and len(other_ranks) == 1 and len(ranks) == 2:
            peer = other_ranks[0]
        if self.rank is None or not str(peer).isdigit():
            return ()
        peer_rank = int(str(peer))
        return (self.rank, peer_rank) if sends else (peer_rank, self.rank)


def _check_ranks(ranks: object, subject: str) -> None:
    """Raise an error for more ranks than any job has, before memory is taken for each of them.

    `subject` names the place in the message.
    """
    if isinstance(ranks, int) and ranks > MOST_RANKS:
        raise InputError(f"{subject}: expected at most {MOST_RANKS} ranks, got {ranks}")


def job_of(data: Mapping[str, Any]) -> ProfiledJob:
    """The job that a trace's header describes; what the header lacks is left empty."""
    info = data.get("distributedInfo")
    info = info if isinstance(info, dict) else {}
    rank = info.get("rank")
    world = info.get("world_size")
    groups = {}
    config = info.get("pg_config")
    for group in config if isinstance(config, list) else ():
        ranks = group.get("ranks") if isinstance(group, dict) else None
        if isinstance(ranks, list) and ranks and all(isinstance(r, int) for r in ranks):
            groups[str(group.get("pg_name", ""))] = tuple(ranks)
    return ProfiledJob(
        rank if isinstance(rank, int) else None, world if isinstance(world, int) else None, groups
    )


def _elements(collective: str, args: Mapping[str, Any], members: int, *, uneven: bool) -> int:
    """Return the number of elements in the size of a call, as nccl-tests counts it, from the call's
    arguments.

    `members` is the number of ranks of its group, `uneven` whether ranks exchange parts of
    different size.
    """
    into, out = (_number(args.get(f"{way} msg nelems")) for way in ("In", "Out"))
    if collective in RANK_PART_NAMES:
        return _number(args.get(RANK_PART_NAMES[collective])) * members
    if collective == "p2p" or uneven:
        return max(into, out)
    return out if collective in WHOLE_OUTPUT else into


def _number(value: object) -> int:
    """A JSON value as a number; 0 if it is not one."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    return int(value) if isinstance(value, str) and value.isdigit() else 0


def _splits(args: Mapping[str, Any], side: str) -> list[int]:
    """Return the number of elements for each rank in an all-to-all, from the arguments of the call.
    `side` is "In" for the input, "Out" for the output.
    """
    text = str(args.get(f"{side} split size", ""))
    if "..." in text:
        text = text.partition("...")[0]
    return [int(part) for part in LIST.split(text) if part.isdigit()]


def _completed_ranks(text: str, size: int, args: Mapping[str, Any]) -> tuple[int, ...]:
    """Return all `size` ranks of a list that PyTorch has shortened by an ellipsis to `text`, from
    its start and stride; () if the ranks have no constant stride.
    """
    first = args.get("Global rank start")
    stride = args.get("Global rank stride")
    if isinstance(first, int) and isinstance(stride, int) and stride > 0:
        return tuple(first + k * stride for k in range(size))
    head, _, tail = text.partition("...")
    first_ranks = [int(part) for part in LIST.split(head) if part.isdigit()]
    if len(first_ranks) < 2:
        return ()
    ranks = tuple(first_ranks[0] + k * (first_ranks[1] - first_ranks[0]) for k in range(size))
    is_regular = first_ranks == list(ranks[: len(first_ranks)]) and LIST.sub("", tail) in (
        "",
        str(ranks[-1]),
    )
    return ranks if is_regular else ()


# Events of a profile: kernels, their launches by the host, descriptions of NCCL calls, and steps.

Event = Mapping[str, Any]
KERNELS = ("kernel", "gpu_memcpy", "gpu_memset", "memcpy", "memset")
RUNTIME = ("cuda_runtime", "cuda_driver", "runtime", "hip_runtime", "privateuse1_runtime")
RECORD = "record_param_comms"
COMMUNICATES = re.compile(r"record_param_comms|c10d::|nccl:|ProcessGroup", re.IGNORECASE)
STEP = re.compile(r"ProfilerStep#(\d+)")


def is_nccl(event: Event) -> bool:
    """Whether a kernel belongs to NCCL."""
    named = "Collective name" in args_of(event)
    return named or IS_NCCL.match(str(event.get("name", ""))) is not None


def args_of(event: Event) -> Mapping[str, Any]:
    """The arguments of an event."""
    args = event.get("args")
    return args if isinstance(args, dict) else {}


@dataclass
class Events:
    """The events of a trace by kind, times in microseconds as in the file.

    Args:
        kernels: kernels and copies on the GPU.
        launched: by correlation, when and by which thread of the host a kernel was launched.
        records: descriptions of NCCL calls (`record_param_comms`).
        operators: communication operators that show the shapes of their tensors.
        steps: begin and end of each step of the profiler on the host.
        steps_on_gpu: the same on the GPU.
    """

    kernels: list[Event] = field(default_factory=list)
    launched: dict[object, tuple[float, object]] = field(default_factory=dict)
    records: list[Event] = field(default_factory=list)
    operators: list[Event] = field(default_factory=list)
    steps: dict[int, tuple[float, float]] = field(default_factory=dict)
    steps_on_gpu: dict[int, tuple[float, float]] = field(default_factory=dict)

    def launch_of(self, kernel: Event) -> tuple[float, object] | None:
        """(time in microseconds, thread) of the launch of a kernel by the host; None if it is not
        known.
        """
        return self.launched.get(args_of(kernel).get("correlation"))

    def step_of(self, kernel: Event) -> int:
        """The number of the profiler's step in which a kernel was launched; -1 for none."""
        launch = self.launch_of(kernel)
        if launch is not None and self.steps:
            return _step_at(self.steps, launch[0])
        return _step_at(self.steps_on_gpu or self.steps, float(kernel["ts"]))

    def calls_of_kernels(
        self, kernels: Sequence[Event]
    ) -> Iterator[tuple[Event, list[Mapping[str, Any]]]]:
        """Yield every kernel of NCCL with the descriptions of the calls that it carries out.

        A kernel has a description itself, or refers to one by its id. Otherwise it carries out the
        calls that its thread has described since the thread's launch before; these may be several.
        """
        by_id = {args_of(record).get("External id"): record for record in self.records}
        described_ids = {
            args_of(k).get("External id") for k in kernels if "Collective name" in args_of(k)
        }
        undescribed_records = (
            record
            for record in self.records
            if args_of(record).get("External id") not in described_ids
        )
        ordered = sorted(undescribed_records, key=lambda record: float(record["ts"]))
        records_of_thread: dict[object, list[Event]] = grouped(
            ordered, lambda record: record.get("tid")
        )
        last_launch: dict[object, float] = {}
        for kernel in sorted(kernels, key=self._launch_time):
            launch = self.launch_of(kernel)
            args = args_of(kernel)
            call_arguments: list[Mapping[str, Any]]
            if "Collective name" in args:
                call_arguments = [args]
            elif args.get("External id") in by_id and args.get("External id") is not None:
                call_arguments = [args_of(by_id[args["External id"]])]
            elif launch is not None:
                when, thread = launch
                waiting = records_of_thread.get(thread, [])
                since = last_launch.get(thread, float("-inf"))
                call_arguments = [
                    args_of(record) for record in waiting if since < float(record["ts"]) <= when
                ]
            else:
                call_arguments = []
            if launch is not None:
                last_launch[launch[1]] = launch[0]
            yield kernel, call_arguments

    def _launch_time(self, kernel: Event) -> float:
        """The time in microseconds at which a kernel was launched; if that is not known, at which
        it started.
        """
        launch = self.launch_of(kernel)
        return float(kernel["ts"]) if launch is None else launch[0]


def events_of(trace_events: Sequence[object]) -> Events:
    """The complete events ("X") of a trace, in one list for each kind (kernels, launches, records,
    operators, steps); all others are dropped.
    """
    events = Events()
    for event in trace_events:
        if not isinstance(event, dict) or event.get("ph") != "X":
            continue
        if all(isinstance(event.get(key), int | float) for key in ("ts", "dur")):
            _add(events, event)
    return events


def _add(events: Events, event: Event) -> None:
    """Add an event to the list of its kind."""
    kind = str(event.get("cat", "")).lower()
    name = str(event.get("name", ""))
    if kind in KERNELS:
        events.kernels.append(event)
    elif kind in RUNTIME:
        correlation = args_of(event).get("correlation")
        if correlation is not None:
            events.launched[correlation] = (float(event["ts"]), event.get("tid"))
    elif name == RECORD and collective_of(args_of(event)) is not None:
        events.records.append(event)
    elif COMMUNICATES.search(name) and args_of(event):
        events.operators.append(event)
    elif "annotation" in kind:
        step = STEP.fullmatch(name)
        if step:
            steps = events.steps_on_gpu if kind.startswith("gpu") else events.steps
            begin = float(event["ts"])
            steps[int(step.group(1))] = (begin, begin + float(event["dur"]))


def _step_at(steps: Mapping[int, tuple[float, float]], when: float) -> int:
    """The number of the step that contains the moment `when`; -1 for none."""
    numbers = sorted(steps, key=lambda number: steps[number])
    place = bisect_right([steps[number][0] for number in numbers], when) - 1
    return numbers[place] if place >= 0 and when < steps[numbers[place]][1] else -1


@dataclass(frozen=True, slots=True)
class ThreadInterval:
    """A span of time on a thread of the host; `name` identifies it."""

    begin: float
    end: float
    thread: object
    name: str = ""
    number: int = -1


def holding(
    intervals: Sequence[ThreadInterval], moments: Sequence[tuple[float, object]]
) -> Iterator[tuple[int, tuple[ThreadInterval, ...]]]:
    """Yield (number of the moment, intervals of its thread that contain it, outermost first) for
    each of `moments`, which are (time, thread).
    """
    by_thread = grouped(intervals, lambda interval: interval.thread)
    for intervals_of_thread in by_thread.values():
        intervals_of_thread.sort(key=lambda interval: (interval.begin, -interval.end))
    order = sorted(range(len(moments)), key=lambda number: moments[number][0])
    places = dict.fromkeys(by_thread, 0)
    open_intervals: dict[object, list[ThreadInterval]] = {thread: [] for thread in by_thread}
    for number in order:
        when, thread = moments[number]
        if thread not in by_thread:
            yield number, ()
            continue
        intervals_of_thread = by_thread[thread]
        next_interval = places[thread]
        stack = open_intervals[thread]
        while (
            next_interval < len(intervals_of_thread)
            and intervals_of_thread[next_interval].begin <= when
        ):
            while stack and stack[-1].end <= intervals_of_thread[next_interval].begin:
                stack.pop()
            stack.append(intervals_of_thread[next_interval])
            next_interval += 1
        places[thread] = next_interval
        while stack and stack[-1].end < when:
            stack.pop()
        yield number, tuple(interval for interval in stack if interval.end >= when)


# Traces of PyTorch before 2.3 do not describe calls of NCCL. The calls follow from the names of the
# kernels and the shapes (`record_shapes`) of the operators that launched them; all ranks take part.

KERNEL = re.compile(
    r"(?P<all_reduce>AllReduce)|(?P<all_gather>AllGather)|(?P<reduce_scatter>ReduceScatter)|"
    r"(?P<broadcast>Broadcast)|(?P<reduce>Reduce)"
)
TO_ALL = re.compile(r"all_?to_?all", re.IGNORECASE)
# Names of data types in kernels and operators. If one name contains another, the longer one comes
# first.
SPELT_TYPES = (
    ("bfloat16", ("bf16", "bfloat16")), ("half", ("f16", "half")), ("double", ("f64", "double")),
    ("float", ("f32", "float")), ("int64", ("i64", "int64_t", "long")),
    ("int32", ("i32", "int32_t", "int")), ("uint8", ("u8", "uint8_t", "unsigned char", "bool")),
    ("int8", ("i8", "int8_t", "signed char")),
)  # fmt: skip
SUMS = ("all_reduce", "reduce_scatter", "reduce")
BY_SHAPES = "all ranks"


def calls_from_shapes(
    events: Events, kernels: Sequence[Event], world: int | None
) -> dict[int, CallDescription]:
    """Return descriptions of calls by the position of their kernel in `kernels`: the call that the
    shapes of the operator imply within which the host launched the kernel.

    `world` is the number of ranks, if it is known.
    """
    launches = [events.launch_of(kernel) or (-1.0, None) for kernel in kernels]
    operators = [_interval(place, one) for place, one in enumerate(events.operators)]
    descriptions = {}
    for place, around in holding(operators, launches):
        for interval in reversed(around):
            operator = events.operators[interval.number]
            description = _call_from_shapes(
                str(kernels[place].get("name", "")), operator, world or 0
            )
            if description is not None:
                descriptions[place] = description
                break
    return descriptions


def _interval(place: int, event: Event) -> ThreadInterval:
    """An event as an interval whose name is `place`."""
    begin = float(event["ts"])
    return ThreadInterval(begin, begin + float(event["dur"]), event.get("tid"), number=place)


def _call_from_shapes(kernel: str, operator: Event, world: int) -> CallDescription | None:
    """The call that a kernel carries out, from the shapes of the operator that launched it; None if
    they do not say.
    """
    match = KERNEL.search(kernel)
    collective = match.lastgroup if match else None
    if TO_ALL.search(str(operator.get("name", ""))):
        collective = "alltoall"
    args = args_of(operator)
    counts = [count for count in map(_count, _list_argument(args, "Input Dims")) if count]
    named = kernel.partition("(")[0] if collective in SUMS else ""  # kernels that copy use int8
    dtype = spelt_dtype(named) or spelt_dtype(
        " ".join(map(str, _list_argument(args, "Input type")[:2]))
    )
    if collective is None or dtype is None or not counts or world < 2:
        return None
    elements = max(counts[:2])
    if collective == "all_gather" and len(set(counts[:2])) == 1:
        elements *= world  # the operator shows only the part of this rank
    return CallDescription(
        collective, elements * DTYPES[dtype], dtype, tuple(range(world)), BY_SHAPES
    )


def _list_argument(args: Mapping[str, Any], name: str) -> list[Any]:
    """The argument `name` of a call if it is a list, in upper or lower case; otherwise an empty
    list.
    """
    for key, value in args.items():
        if key.lower() == name.lower() and isinstance(value, list):
            return value
    return []


def _count(dims: object) -> int:
    """The number of elements of all tensors together; `dims` are their dimensions."""
    if not isinstance(dims, list) or not dims:
        return 0
    if all(isinstance(one, int) for one in dims):
        return prod(dims)
    return sum(map(_count, dims))


def spelt_dtype(text: str) -> str | None:
    """The data type that occurs as a word in a text; None if there is none."""
    words = re.split(r"[^a-z0-9]+", text.lower().replace("_t", ""))
    for dtype, names in SPELT_TYPES:
        if any(name.replace("_t", "") in words or (" " in name and name in text) for name in names):
            return dtype
    return None


NO_STEP = -1


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel other than NCCL's: begin and end in seconds, and the number of the
    profiler's step.
    """

    begin: float
    end: float
    step: int = NO_STEP


@dataclass(frozen=True, slots=True)
class ProfiledCall:
    """One call of NCCL: begin and end of its kernel in seconds, and what it does.

    `part` numbers the calls that one kernel carries out together.
    """

    begin: float
    end: float
    stream: str
    description: CallDescription
    part: int = 0
    step: int = NO_STEP


@dataclass(frozen=True)
class Profile:
    """The kernels and calls of one rank, in order of time, in seconds since its first kernel.

    `unsized` counts kernels of NCCL without known size or peers. `steps` are the numbers of the
    steps that the profiler marked.
    """

    rank: int
    world: int
    kernels: tuple[Kernel, ...]
    calls: tuple[ProfiledCall, ...]
    unsized: int = 0
    steps: tuple[int, ...] = ()
    gpu: str = ""
    nccl: str = ""

    @property
    def seconds(self) -> float:
        """The seconds from the start of the first kernel to the end of the last."""
        every: tuple[Kernel | ProfiledCall, ...] = (*self.kernels, *self.calls)
        return max(one.end for one in every) - min(one.begin for one in every)

    def busy(self, pause: float = 0.0) -> list[list[float]]:
        """The [begin, end] of each span of time in which kernels ran; pauses of at most `pause`
        seconds do not end a span.
        """
        busy_spans: list[list[float]] = []
        for kernel in self.kernels:
            if busy_spans and kernel.begin <= busy_spans[-1][1] + pause:
                busy_spans[-1][1] = max(busy_spans[-1][1], kernel.end)
            else:
                busy_spans.append([kernel.begin, kernel.end])
        return busy_spans

    def of_step(self, step: int) -> "Profile":
        """The part of the profile that belongs to one step."""
        return replace(
            self,
            kernels=tuple(one for one in self.kernels if one.step == step),
            calls=tuple(one for one in self.calls if one.step == step),
            steps=(step,),
        )

    def usual_step(self) -> int | None:
        """The number of the step of median length; None if no steps are marked."""
        lengths = sorted((self.of_step(step).seconds, step) for step in self.steps)
        return lengths[(len(lengths) - 1) // 2][1] if lengths else None


_LAST_PROFILE = Memo(1)


def read_profile(path: Path) -> Profile:
    """Return the profile in a file. The last one is cached, as every cell of a sweep reads it."""
    state = path.stat() if path.exists() else None
    key = (path, state and (state.st_mtime_ns, state.st_size))
    return _LAST_PROFILE.of(key, lambda: profile_of(read_json(path), path))


def profile_of(data: Mapping[str, Any], path: Path) -> Profile:
    """Return the profile in the contents of a trace."""
    job = job_of(data)
    events = events_of(data["traceEvents"])
    events.kernels = _of_one_device(events.kernels, job.rank)
    ours = [event for event in events.kernels if is_nccl(event)]
    if not events.kernels:
        raise InputError(f"{path}: has no kernels (did the profiler record CUDA?)")
    if not ours:
        raise InputError(f"{path}: has {len(events.kernels)} kernels, but none of NCCL's")
    job = _with_rank(job, ours)
    origin = min(float(event["ts"]) for event in events.kernels)
    try:
        calls, unsized = _calls(events, ours, job, origin)
    except InputError as error:
        raise InputError(f"{path}: {error.message}") from None
    if not calls:
        raise InputError(
            f"{path}: NCCL's kernels say neither sizes nor groups",
            hint="PyTorch 2.3 and later write them; before, record_shapes=True tells sizes",
        )
    rank = job.rank if job.rank is not None else min(calls[0].description.ranks)
    world = job.world or max(max(call.description.ranks) for call in calls) + 1
    _check_ranks(world, f"{path}: the job")
    other_events = [event for event in events.kernels if not is_nccl(event)]
    kernels = sorted(
        (Kernel(*_seconds_of(event, origin), events.step_of(event)) for event in other_events),
        key=lambda kernel: (kernel.begin, kernel.end),
    )
    calls.sort(key=lambda call: (call.begin, call.part))
    steps = sorted({call.step for call in calls if call.step != NO_STEP})
    return Profile(
        rank, world, tuple(kernels), tuple(calls), unsized, tuple(steps), _gpu(data), _nccl(data)
    )


def _calls(
    events: Events, ours: Sequence[Event], job: ProfiledJob, origin: float
) -> tuple[list[ProfiledCall], int]:
    """Return (calls that the kernels `ours` carry out, number of kernels without a description).

    `ours` are the kernels of NCCL on this rank's GPU, `origin` is the time in microseconds at which
    the first kernel of the profile starts.
    """
    calls_of_launch: dict[object, list[ProfiledCall]] = {}
    unsized = 0
    described = list(events.calls_of_kernels(ours))
    has_no_descriptions = not any(call_arguments for _, call_arguments in described)
    from_shapes = (
        calls_from_shapes(events, [description for description, _ in described], job.world)
        if has_no_descriptions
        else {}
    )
    for number, (kernel, call_arguments) in enumerate(described):
        descriptions = _merged_calls(
            [
                description
                for args in call_arguments
                if (description := job.description_of_call(args)) is not None
            ]
        )
        if number in from_shapes:
            descriptions = [from_shapes[number]]
        unsized += not descriptions
        begin, end = _seconds_of(kernel, origin)
        launch_id = args_of(kernel).get("External id")
        stream = str(args_of(kernel).get("stream", kernel.get("tid", "")))
        key = (launch_id, stream) if launch_id else number
        if key in calls_of_launch:
            begin = min(begin, calls_of_launch[key][0].begin)
            end = max(end, calls_of_launch[key][0].end)
        step = events.step_of(kernel)
        calls_of_launch[key] = [
            ProfiledCall(begin, end, stream, description, part, step)
            for part, description in enumerate(descriptions)
        ]
    return [call for calls in calls_of_launch.values() for call in calls], unsized


def _merged_calls(calls: Sequence[CallDescription]) -> list[CallDescription]:
    """The calls with those of one kernel merged: collectives with equal ranks and data type to one
    call, and sends and receives likewise.
    """
    merged: dict[object, CallDescription] = {}
    for call in calls:
        key = (call.collective, call.ranks, call.dtype)
        earlier = merged.get(key)
        merged[key] = (
            call if earlier is None else replace(earlier, nbytes=earlier.nbytes + call.nbytes)
        )
    return list(merged.values())


def _with_rank(job: ProfiledJob, ours: Sequence[Event]) -> ProfiledJob:
    """The job with the rank that its kernels name, if the header lacks it."""
    if job.rank is not None:
        return job
    for event in ours:
        args = args_of(event)
        named = isinstance(args.get("Rank"), int) and "Src Rank" not in args
        if named and "Dst Rank" not in args and args.get("Collective name") not in ("send", "recv"):
            return replace(job, rank=args["Rank"])
    return job


def _of_one_device(events: list[Event], rank: int | None) -> list[Event]:
    """Return the events of this rank's GPU only, if the trace has events of several GPUs. `rank` is
    the number of the rank; None: unknown.
    """
    devices = {repr(event.get("pid")) for event in events}
    if len(devices) < 2:
        return events
    ours = [event for event in events if is_nccl(event)]
    devices_of_rank = [event["pid"] for event in ours if args_of(event).get("Rank") == rank]
    if devices_of_rank:
        device = devices_of_rank[0]
    else:
        device = ours[0]["pid"] if ours else events[0]["pid"]
    return [event for event in events if event.get("pid") == device]


def _seconds_of(event: Event, origin: float) -> tuple[float, float]:
    """The begin and end of an event in seconds since `origin`."""
    begin = float(event["ts"]) - origin
    return begin * 1e-6, (begin + float(event["dur"])) * 1e-6


def _gpu(data: Mapping[str, Any]) -> str:
    """The name of the GPU in a trace."""
    devices = data.get("deviceProperties")
    first = devices[0] if isinstance(devices, list) and devices else {}
    return str(first.get("name", "")) if isinstance(first, dict) else ""


def _nccl(data: Mapping[str, Any]) -> str:
    """The version of NCCL in a trace."""
    info = data.get("distributedInfo")
    return str(info.get("nccl_version", "")) if isinstance(info, dict) else ""


class StepNotRecorded(InputError):
    """The error for a step that the user asks for and the trace does not have."""


def step_of(profile: Profile, wanted_step: int | None) -> tuple[Profile, tuple[str, ...]]:
    """One step of a profile, and notes on what was chosen and left out.

    It is `wanted_step`, or by default the step of median length; the complete profile if no steps
    are marked.
    """
    if wanted_step is not None and wanted_step not in profile.steps:
        has = _numbers(profile.steps) if profile.steps else "none that the profiler marked"
        raise StepNotRecorded(f"the trace has no step {wanted_step}; it has {has}")
    step = profile.usual_step() if wanted_step is None else wanted_step
    chosen = profile if step is None else profile.of_step(step)
    notes = []
    if len(profile.steps) > 1:
        notes.append(f"step {step} of the trace's {_numbers(profile.steps)}")
    if profile.unsized:
        notes.append(f"{profile.unsized} kernels of NCCL's without size or peers left out")
    if any(call.description.uneven for call in chosen.calls):
        notes.append("all-to-alls of uneven parts as even ones")
    if any(call.description.group == BY_SHAPES for call in chosen.calls):
        notes.append("calls by the shapes of their operators, over all ranks")
    return chosen, tuple(notes)


def _numbers(steps: tuple[int, ...]) -> str:
    """Numbers of steps as text for a message."""
    if len(steps) > 2 and steps == tuple(range(steps[0], steps[-1] + 1)):
        return f"{steps[0]} to {steps[-1]}"
    return ", ".join(map(str, steps))


# The profile of one rank becomes a tape on which every rank does the same.
#
# Kernels follow each other with the gaps that the host left. A call of NCCL starts when the kernels
# before it are done. Kernels that begin after an idle time wait for the calls that ended in it.
# Idle times before calls are kept, but not the time that a kernel of NCCL waited for other ranks.
# If calls take as long as measured, the tape takes as long as the profile.

Key = tuple[bool, tuple[int, ...]]
IDLE = 1e-6  # a gap of this many seconds between kernels means that the GPU waited for something


def tape_of(profile: Profile) -> Tape:
    """A tape on which every rank does the same as the profiled rank."""
    work = _Replaying(profile)
    calls = [(call.begin, partial(work.call, n)) for n, call in enumerate(profile.calls)]
    blocks = [(begin, partial(work.kernels, begin, end)) for begin, end in _blocks(profile)]
    for _, write in sorted([*calls, *blocks], key=itemgetter(0)):  # at one moment, calls first
        write()
    return work.tape


class _Replaying:
    """Writes the tape of a profile, moment by moment.

    `busy_until` is when the last kernel ended, in seconds; `running_calls` are the calls that have
    not been waited for.
    """

    def __init__(self, profile: Profile) -> None:
        self.profile = profile
        self.tape = Tape(phase="step")
        self.everyone = np.arange(profile.world, dtype=np.int32)
        self.groups = {key: groups_of(key, profile.world) for key in map(_group_key, profile.calls)}
        self.running_calls: dict[int, int] = {}
        self.last_kernel: Deps = ()
        first = [one.begin for one in profile.kernels[:1]] + [
            one.begin for one in profile.calls[:1]
        ]
        self.busy_until = min(first, default=0.0)

    def kernels(self, begin: float, end: float) -> None:
        """Add a block of kernels that ran from `begin` to `end` (seconds) to the tape, after the
        calls that ended in the idle time before it.
        """
        awaited, gap = self._idle(begin)
        self._compute("kernels", gap + end - begin, awaited)
        self.busy_until = end

    def call(self, number: int) -> None:
        """Add a call to the tape; it starts when the kernels before it are done and the host has
        issued it.
        """
        call = self.profile.calls[number]
        awaited, gap = self._idle(call.begin)
        if gap > IDLE:
            self._compute("gap", gap, awaited)
            self.busy_until = call.begin
        self.running_calls[number] = _write_call(self.tape, call, self.groups, self.last_kernel)

    def _compute(self, name: str, seconds: float, awaited: Deps) -> None:
        """Add `seconds` of computing on all ranks, after the calls `awaited`."""
        self.last_kernel = (
            self.tape.compute(name, self.everyone, seconds, (*self.last_kernel, *awaited)),
        )

    def _idle(self, begin: float) -> tuple[Deps, float]:
        """The calls that ended in the idle time before the moment `begin`, and the idle seconds
        after them.
        """
        calls = self.profile.calls
        self.running_calls = {
            n: made for n, made in self.running_calls.items() if calls[n].end > self.busy_until
        }
        over = [n for n in self.running_calls if calls[n].end <= begin + IDLE]
        reached = max([self.busy_until, *(calls[n].end for n in over)])
        gap = max(0.0, begin - reached) if begin - self.busy_until > IDLE else 0.0
        return tuple(self.running_calls[n] for n in over), gap


def _group_key(call: ProfiledCall) -> Key:
    """(whether a call is a send or receive, the ranks of its communicator).

    `groups_of` derives from this key the groups in which all ranks make the same call.
    """
    return call.description.collective == "p2p", call.description.ranks


def _write_call(tape: Tape, call: ProfiledCall, groups: dict[Key, Ranks], after: Deps) -> int:
    """Add a call to the tape; return the number of its entry."""
    description = call.description
    part_title = f" part {call.part}" if call.part else ""
    (made,) = tape.collective(  # one entry, as calls have at least two ranks and one byte
        description.collective,
        description.group,
        description.collective,
        groups[_group_key(call)],
        description.nbytes,
        after,
        stream=f"{description.group} {call.stream}{part_title}",
        dtype=description.dtype,
        measured=call.end - call.begin,
    )
    return made


def _blocks(profile: Profile) -> list[tuple[float, float]]:
    """The spans in which kernels ran without a pause, divided where a call of NCCL begins."""
    cuts = sorted(call.begin for call in profile.calls)
    blocks = []
    for begin, end in profile.busy(IDLE):
        inside = cuts[bisect_right(cuts, begin) : bisect_right(cuts, end)]
        blocks += [pair for pair in pairwise([begin, *inside, end]) if pair[1] > pair[0]]
    return blocks


def groups_of(key: Key, world: int) -> Ranks:
    """The groups of ranks that make a call at the same time, one line for each group.

    A profile shows one rank; all others are assumed to make the same call in groups of the same
    shape. A send runs between all pairs of ranks at the same distance. If the ranks of a group have
    no constant stride, only this group is returned.
    """
    p2p, ranks = key
    groups = tiled(ranks, world)
    backward = p2p and ranks[0] > ranks[1]
    return np.ascontiguousarray(groups[:, ::-1]) if backward else groups


def tiled(ranks: tuple[int, ...], world: int) -> Ranks:
    """The group of one rank and its copies at all offsets, which together cover all ranks, one line
    for each group.

    If the ranks have no constant stride, or copies do not cover all ranks, only the group itself.
    """
    group = np.array(sorted(ranks), np.int32)
    if len(np.unique(group)) < len(group) or group.max() >= world:
        raise InputError(f"a group of ranks {ranks[:8]} is none of {world} ranks")
    step = int(group[1] - group[0])
    if (np.diff(group) != step).any() or world % (step * len(group)):
        return group.reshape(1, -1)  # an irregular group: those of the other ranks are not known
    all_ranks = np.arange(world, dtype=np.int32).reshape(-1, len(group), step)
    return np.ascontiguousarray(all_ranks.transpose(0, 2, 1).reshape(-1, len(group)))
