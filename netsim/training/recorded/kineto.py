"""Profiles of PyTorch (Kineto): kernels, calls of NCCL's, and the steps that they recorded."""

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
OTHERS = {b"PK\x03\x04": "zip", b"(\xb5/\xfd": "zstd", b"\xfd7zXZ": "xz", b"BZh": "bzip2"}

HEAD = 1 << 20
MARKS = (b'"schemaVersion"', b'"traceEvents"', b'"baseTimeNanoseconds"', b'"distributedInfo"')


def head_of(path: Path) -> bytes:
    """The beginning of a file, unpacked; empty if it cannot be read."""
    try:
        with path.open("rb") as file:
            head = file.read(HEAD)
        packed = zlib.decompressobj(zlib.MAX_WBITS | 16)
        return packed.decompress(head, HEAD) if head[:2] == GZIP else head
    except (OSError, zlib.error):
        return b""


def is_trace(path: Path) -> bool:
    """Whether a file looks like a trace by how it begins: in JSON, with what only traces have."""
    head = head_of(path)
    if not head:
        return path.name.endswith(".json.gz")  # damaged, which is reported when it is read
    begun = head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
    events = begun == b"[" and b'"ph"' in head
    return events or (begun == b"{" and any(mark in head for mark in MARKS))


def read_json(path: Path) -> dict[str, Any]:
    """The trace in a file: a mapping with `traceEvents`."""
    content = unpacked(path)
    for magic, name in OTHERS.items():
        if content.startswith(magic):
            raise InputError(f"{path}: is packed by {name}", hint="unpack it, or pack it by gzip")
    try:
        found = json.loads(content)
    except UnicodeDecodeError:
        raise InputError(f"{path}: expected a trace in JSON, got binary data") from None
    except json.JSONDecodeError as error:
        ended = error.pos >= len(error.doc.rstrip()) - len("false")
        cut = ended or error.msg.startswith("Unterminated")
        what = (
            "ends in the middle (was the profiler stopped?)" if cut else f"is no JSON: {error.msg}"
        )
        raise InputError(f"{path}:{error.lineno}:{error.colno}: {what}") from None
    except (ValueError, RecursionError) as error:  # digits or brackets without end
        raise InputError(f"{path}: is no trace: {error}") from None
    if isinstance(found, list):
        found = {"traceEvents": found}
    if not isinstance(found, dict) or not isinstance(found.get("traceEvents"), list):
        raise InputError(f"{path}: expected a trace with traceEvents")
    return found


def unpacked(path: Path) -> bytes:
    """What is in a file, without gzip around it."""
    content = content_of(path, LARGEST_TABLE)
    try:
        while content[:2] == GZIP:  # some pipelines pack what is packed already
            content = gzip.decompress(content)
    except (EOFError, OSError, zlib.error):
        raise InputError(f"{path}: the gzip data is cut or damaged") from None
    return content


# What PyTorch says of one call of NCCL's: its collective, its size, its peers.
# Kernels have it from the operator that launched them (`record_param_comms`), under the same names.


# What PyTorch calls collectives begins so, in every version: `_allgather_base`, `all_to_allv`,
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
# Collectives whose size, as nccl-tests counts it, is that of what comes out; and those of which one
# rank says only its own part.
WHOLE_OUTPUT = ("all_gather",)
OWN_PART = {"gather": "In msg nelems", "scatter": "Out msg nelems"}
LIST = re.compile(r"[\s,\[\]]+")
IS_NCCL = re.compile(r"(?:void )?(?:nccl|rccl|msccl)\w*Kernel", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Said:
    """One call. `ranks` of a p2p are its source and its destination. `uneven`: ranks exchange
    different parts; `nbytes` is then the larger of what comes and goes."""

    collective: str
    nbytes: int
    dtype: str
    ranks: tuple[int, ...]
    group: str
    uneven: bool = False


def collective_of(args: Mapping[str, Any]) -> str | None:
    """The collective that arguments name; None for none, or one that moves nothing (`wait`)."""
    match = SPELT.match(str(args.get("Collective name", "")))
    return None if match is None else match.lastgroup


@dataclass(frozen=True)
class Job:
    """What the header says of the job: this rank, how many there are, and groups by name."""

    rank: int | None
    world: int | None
    groups: Mapping[str, tuple[int, ...]]

    def said(self, args: Mapping[str, Any]) -> Said | None:
        """The call that arguments describe; None if they do not say what moves between whom."""
        collective, dtype = collective_of(args), TYPES.get(str(args.get("dtype", "")))
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
        return Said(collective, elements * DTYPES[dtype], dtype, ranks, str(group), uneven)

    def _ranks(self, args: Mapping[str, Any]) -> tuple[int, ...]:
        text, size = str(args.get("Process Group Ranks", "")), args.get("Group size")
        _check_ranks(size, "'Group size'")
        listed = self.groups.get(str(args.get("Process Group Name", "")), ())
        if "..." in text and isinstance(size, int):
            return listed if len(listed) == size else _cut(text, size, args)
        numbers = [part for part in LIST.split(text) if part]
        if not all(number.isdigit() for number in numbers):
            raise InputError(f"'Process Group Ranks' is no list: {text[:60]!r}")
        if numbers or listed:
            return tuple(map(int, numbers)) or listed
        return tuple(range(size)) if isinstance(size, int) else ()  # the default group

    def _pair(self, args: Mapping[str, Any], ranks: Sequence[int]) -> tuple[int, ...]:
        sends = str(args["Collective name"]).lower().startswith("send")
        peer = args.get("Dst Rank" if sends else "Src Rank")
        others = [rank for rank in ranks if rank != self.rank]
        if peer is None and len(others) == 1 and len(ranks) == 2:
            peer = others[0]
        if self.rank is None or not str(peer).isdigit():
            return ()
        other = int(str(peer))
        return (self.rank, other) if sends else (other, self.rank)


def _check_ranks(ranks: object, what: str) -> None:
    """Refuse more ranks than any job has, before each of them has a place in memory."""
    if isinstance(ranks, int) and ranks > MOST_RANKS:
        raise InputError(f"{what}: expected at most {MOST_RANKS} ranks, got {ranks}")


def job_of(data: Mapping[str, Any]) -> Job:
    """The job of a trace's header, as far as it has one."""
    info = data.get("distributedInfo")
    info = info if isinstance(info, dict) else {}
    rank, world = info.get("rank"), info.get("world_size")
    groups = {}
    config = info.get("pg_config")
    for one in config if isinstance(config, list) else ():
        ranks = one.get("ranks") if isinstance(one, dict) else None
        if isinstance(ranks, list) and ranks and all(isinstance(r, int) for r in ranks):
            groups[str(one.get("pg_name", ""))] = tuple(ranks)
    return Job(
        rank if isinstance(rank, int) else None, world if isinstance(world, int) else None, groups
    )


def _elements(collective: str, args: Mapping[str, Any], members: int, *, uneven: bool) -> int:
    into, out = (_number(args.get(f"{way} msg nelems")) for way in ("In", "Out"))
    if collective in OWN_PART:
        return _number(args.get(OWN_PART[collective])) * members
    if collective == "p2p" or uneven:
        return max(into, out)
    return out if collective in WHOLE_OUTPUT else into


def _number(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    return int(value) if isinstance(value, str) and value.isdigit() else 0


def _splits(args: Mapping[str, Any], way: str) -> list[int]:
    text = str(args.get(f"{way} split size", ""))
    if "..." in text:
        text = text.partition("...")[0]
    return [int(part) for part in LIST.split(text) if part.isdigit()]


def _cut(text: str, size: int, args: Mapping[str, Any]) -> tuple[int, ...]:
    """A list that was cut with an ellipsis: by start and stride, or as it begins and ends."""
    first, stride = args.get("Global rank start"), args.get("Global rank stride")
    if isinstance(first, int) and isinstance(stride, int) and stride > 0:
        return tuple(first + k * stride for k in range(size))
    head, _, tail = text.partition("...")
    begun = [int(part) for part in LIST.split(head) if part.isdigit()]
    if len(begun) < 2:
        return ()
    found = tuple(begun[0] + k * (begun[1] - begun[0]) for k in range(size))
    regular = begun == list(found[: len(begun)]) and LIST.sub("", tail) in ("", str(found[-1]))
    return found if regular else ()


# The events of a profiler trace that matter here: kernels, who launched them, in which step.
# A kernel of NCCL's says what it does, or the operator says it that launched it: found by its id,
# or as the calls that were recorded since the launch before, where several were coalesced into one.

Event = Mapping[str, Any]
KERNELS = ("kernel", "gpu_memcpy", "gpu_memset", "memcpy", "memset")
RUNTIME = ("cuda_runtime", "cuda_driver", "runtime", "hip_runtime", "privateuse1_runtime")
RECORD = "record_param_comms"
COMMUNICATES = re.compile(r"record_param_comms|c10d::|nccl:|ProcessGroup", re.IGNORECASE)
STEP = re.compile(r"ProfilerStep#(\d+)")


def is_nccl(event: Event) -> bool:
    """Whether a kernel is one of NCCL's."""
    named = "Collective name" in args_of(event)
    return named or IS_NCCL.match(str(event.get("name", ""))) is not None


def args_of(event: Event) -> Mapping[str, Any]:
    """The arguments of an event."""
    args = event.get("args")
    return args if isinstance(args, dict) else {}


@dataclass
class Events:
    """Events by what they are. Times are those of the file, in microseconds. `launched` is when and
    on which thread of the host each kernel was launched, by correlation; `operators` are those of
    communication that show the shapes of their tensors."""

    kernels: list[Event] = field(default_factory=list)
    launched: dict[object, tuple[float, object]] = field(default_factory=dict)
    records: list[Event] = field(default_factory=list)
    operators: list[Event] = field(default_factory=list)
    steps: dict[int, tuple[float, float]] = field(default_factory=dict)
    steps_on_gpu: dict[int, tuple[float, float]] = field(default_factory=dict)

    def launch_of(self, kernel: Event) -> tuple[float, object] | None:
        """When a kernel was launched, and by which thread."""
        return self.launched.get(args_of(kernel).get("correlation"))

    def step_of(self, kernel: Event) -> int:
        """The profiler's step in which a kernel was launched; -1 for none."""
        launch = self.launch_of(kernel)
        if launch is not None and self.steps:
            return _within(self.steps, launch[0])
        return _within(self.steps_on_gpu or self.steps, float(kernel["ts"]))

    def sayings(self, kernels: Sequence[Event]) -> Iterator[tuple[Event, list[Mapping[str, Any]]]]:
        """Every kernel of NCCL's with the arguments of the calls that it carries out."""
        by_id = {args_of(one).get("External id"): one for one in self.records}
        own = {args_of(k).get("External id") for k in kernels if "Collective name" in args_of(k)}
        others = (one for one in self.records if args_of(one).get("External id") not in own)
        ordered = sorted(others, key=lambda one: float(one["ts"]))
        free: dict[object, list[Event]] = grouped(ordered, lambda one: one.get("tid"))
        before: dict[object, float] = {}
        for kernel in sorted(kernels, key=self._launch_time):
            launch, args = self.launch_of(kernel), args_of(kernel)
            found: list[Mapping[str, Any]]
            if "Collective name" in args:
                found = [args]
            elif args.get("External id") in by_id and args.get("External id") is not None:
                found = [args_of(by_id[args["External id"]])]
            elif launch is not None:
                when, thread = launch
                waiting = free.get(thread, [])
                since = before.get(thread, float("-inf"))
                found = [args_of(one) for one in waiting if since < float(one["ts"]) <= when]
            else:
                found = []
            if launch is not None:
                before[launch[1]] = launch[0]
            yield kernel, found

    def _launch_time(self, kernel: Event) -> float:
        launch = self.launch_of(kernel)
        return float(kernel["ts"]) if launch is None else launch[0]


def events_of(found: Sequence[object]) -> Events:
    """The events of a trace, sorted out in one pass."""
    events = Events()
    for event in found:
        if not isinstance(event, dict) or event.get("ph") != "X":
            continue
        if all(isinstance(event.get(key), int | float) for key in ("ts", "dur")):
            _add(events, event)
    return events


def _add(events: Events, event: Event) -> None:
    kind, name = str(event.get("cat", "")).lower(), str(event.get("name", ""))
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
            kept = events.steps_on_gpu if kind.startswith("gpu") else events.steps
            begin = float(event["ts"])
            kept[int(step.group(1))] = (begin, begin + float(event["dur"]))


def _within(steps: Mapping[int, tuple[float, float]], when: float) -> int:
    numbers = sorted(steps, key=lambda number: steps[number])
    place = bisect_right([steps[number][0] for number in numbers], when) - 1
    return numbers[place] if place >= 0 and when < steps[numbers[place]][1] else -1


@dataclass(frozen=True, slots=True)
class Interval:
    """What went on for a while: begin and end, the thread, and what it is called."""

    begin: float
    end: float
    thread: object
    name: str = ""
    number: int = -1


def holding(
    intervals: Sequence[Interval], moments: Sequence[tuple[float, object]]
) -> Iterator[tuple[int, tuple[Interval, ...]]]:
    """The number of every moment (time, thread) with the intervals of its thread around it."""
    by_thread = grouped(intervals, lambda one: one.thread)
    for some in by_thread.values():
        some.sort(key=lambda one: (one.begin, -one.end))
    order = sorted(range(len(moments)), key=lambda number: moments[number][0])
    places = dict.fromkeys(by_thread, 0)
    open_: dict[object, list[Interval]] = {thread: [] for thread in by_thread}
    for number in order:
        when, thread = moments[number]
        if thread not in by_thread:
            yield number, ()
            continue
        some, place, stack = by_thread[thread], places[thread], open_[thread]
        while place < len(some) and some[place].begin <= when:
            while stack and stack[-1].end <= some[place].begin:
                stack.pop()
            stack.append(some[place])
            place += 1
        places[thread] = place
        while stack and stack[-1].end < when:
            stack.pop()
        yield number, tuple(one for one in stack if one.end >= when)


# Calls of NCCL's in traces of PyTorch before 2.3, which describe none: by the name of the kernel
# and the shapes (`record_shapes`) of the operator that launched it, over all ranks.

KERNEL = re.compile(
    r"(?P<all_reduce>AllReduce)|(?P<all_gather>AllGather)|(?P<reduce_scatter>ReduceScatter)|"
    r"(?P<broadcast>Broadcast)|(?P<reduce>Reduce)"
)
TO_ALL = re.compile(r"all_?to_?all", re.IGNORECASE)
# What kernels and operators call types, the longer before those that they contain.
SPELT_TYPES = (
    ("bfloat16", ("bf16", "bfloat16")), ("half", ("f16", "half")), ("double", ("f64", "double")),
    ("float", ("f32", "float")), ("int64", ("i64", "int64_t", "long")),
    ("int32", ("i32", "int32_t", "int")), ("uint8", ("u8", "uint8_t", "unsigned char", "bool")),
    ("int8", ("i8", "int8_t", "signed char")),
)  # fmt: skip
SUMS = ("all_reduce", "reduce_scatter", "reduce")
BY_SHAPES = "all ranks"


def said_by_shapes(events: Events, kernels: Sequence[Event], world: int | None) -> dict[int, Said]:
    """The calls of kernels (by their place) whose launch lies within an operator with shapes."""
    launches = [events.launch_of(kernel) or (-1.0, None) for kernel in kernels]
    operators = [_interval(place, one) for place, one in enumerate(events.operators)]
    found = {}
    for place, around in holding(operators, launches):
        for interval in reversed(around):
            operator = events.operators[interval.number]
            said = _said(str(kernels[place].get("name", "")), operator, world or 0)
            if said is not None:
                found[place] = said
                break
    return found


def _interval(place: int, event: Event) -> Interval:
    begin = float(event["ts"])
    return Interval(begin, begin + float(event["dur"]), event.get("tid"), number=place)


def _said(kernel: str, operator: Event, world: int) -> Said | None:
    match = KERNEL.search(kernel)
    collective = match.lastgroup if match else None
    if TO_ALL.search(str(operator.get("name", ""))):
        collective = "alltoall"
    args = args_of(operator)
    counts = [count for count in map(_count, _listed(args, "Input Dims")) if count]
    named = kernel.partition("(")[0] if collective in SUMS else ""  # others are of int8, always
    dtype = spelt_dtype(named) or spelt_dtype(" ".join(map(str, _listed(args, "Input type")[:2])))
    if collective is None or dtype is None or not counts or world < 2:
        return None
    elements = max(counts[:2])
    if collective == "all_gather" and len(set(counts[:2])) == 1:
        elements *= world  # the operator shows only what this rank puts in
    return Said(collective, elements * DTYPES[dtype], dtype, tuple(range(world)), BY_SHAPES)


def _listed(args: Mapping[str, Any], name: str) -> list[Any]:
    for key, value in args.items():
        if key.lower() == name.lower() and isinstance(value, list):
            return value
    return []


def _count(dims: object) -> int:
    if not isinstance(dims, list) or not dims:
        return 0
    if all(isinstance(one, int) for one in dims):
        return prod(dims)
    return sum(map(_count, dims))


def spelt_dtype(text: str) -> str | None:
    """The type that a text names as a word of its own."""
    words = re.split(r"[^a-z0-9]+", text.lower().replace("_t", ""))
    for dtype, names in SPELT_TYPES:
        if any(name.replace("_t", "") in words or (" " in name and name in text) for name in names):
            return dtype
    return None


NO_STEP = -1


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel that is none of NCCL's: begin and end in seconds, and the profiler's step."""

    begin: float
    end: float
    step: int = NO_STEP


@dataclass(frozen=True, slots=True)
class Call:
    """One kernel of NCCL's: begin and end in seconds, and what it was called for. `part` counts the
    calls that one kernel carries out together."""

    begin: float
    end: float
    stream: str
    said: Said
    part: int = 0
    step: int = NO_STEP


@dataclass(frozen=True)
class Profile:
    """What one rank did, in order of time, in seconds since its first kernel. `unsized` counts
    kernels of NCCL's whose size or peers the trace does not tell; `steps` are the profiler's, where
    it recorded several."""

    rank: int
    world: int
    kernels: tuple[Kernel, ...]
    calls: tuple[Call, ...]
    unsized: int = 0
    steps: tuple[int, ...] = ()
    gpu: str = ""
    nccl: str = ""

    @property
    def seconds(self) -> float:
        """From the first kernel to the end of the last."""
        every: tuple[Kernel | Call, ...] = (*self.kernels, *self.calls)
        return max(one.end for one in every) - min(one.begin for one in every)

    def busy(self, pause: float = 0.0) -> list[list[float]]:
        """Begins and ends of times in which kernels ran, with no longer a pause between them."""
        found: list[list[float]] = []
        for kernel in self.kernels:
            if found and kernel.begin <= found[-1][1] + pause:
                found[-1][1] = max(found[-1][1], kernel.end)
            else:
                found.append([kernel.begin, kernel.end])
        return found

    def of_step(self, step: int) -> "Profile":
        """What belongs to one step."""
        return replace(
            self,
            kernels=tuple(one for one in self.kernels if one.step == step),
            calls=tuple(one for one in self.calls if one.step == step),
            steps=(step,),
        )

    def usual_step(self) -> int | None:
        """The step of median length; None where there are no steps."""
        lengths = sorted((self.of_step(step).seconds, step) for step in self.steps)
        return lengths[(len(lengths) - 1) // 2][1] if lengths else None


_KEPT = Memo(1)


def read_profile(path: Path) -> Profile:
    """The profile in a file; the last one is kept, as every cell of a sweep asks for it."""
    state = path.stat() if path.exists() else None
    asked = (path, state and (state.st_mtime_ns, state.st_size))
    return _KEPT.of(asked, lambda: profile_of(read_json(path), path))


def profile_of(data: Mapping[str, Any], path: Path) -> Profile:
    """The profile of a trace that was read."""
    job, events = job_of(data), events_of(data["traceEvents"])
    events.kernels = _of_one_device(events.kernels, job.rank)
    ours = [event for event in events.kernels if is_nccl(event)]
    if not events.kernels:
        raise InputError(f"{path}: has no kernels (was the profiler told to record CUDA?)")
    if not ours:
        raise InputError(f"{path}: has {len(events.kernels)} kernels, but none of NCCL's")
    origin = min(float(event["ts"]) for event in events.kernels)
    try:
        calls, unsized = _calls(events, ours, _with_rank(job, ours), origin)
    except InputError as error:
        raise InputError(f"{path}: {error.message}") from None
    if not calls:
        raise InputError(
            f"{path}: NCCL's kernels say neither sizes nor groups",
            hint="PyTorch 2.3 and later write them; before, record_shapes=True tells sizes",
        )
    rank = job.rank if job.rank is not None else min(calls[0].said.ranks)
    world = job.world or max(max(call.said.ranks) for call in calls) + 1
    _check_ranks(world, f"{path}: the job")
    others = [event for event in events.kernels if not is_nccl(event)]
    kernels = sorted(
        (Kernel(*_when(event, origin), events.step_of(event)) for event in others),
        key=lambda one: (one.begin, one.end),
    )
    calls.sort(key=lambda call: (call.begin, call.part))
    steps = sorted({call.step for call in calls if call.step != NO_STEP})
    return Profile(
        rank, world, tuple(kernels), tuple(calls), unsized, tuple(steps), _gpu(data), _nccl(data)
    )


def _calls(
    events: Events, ours: Sequence[Event], job: Job, origin: float
) -> tuple[list[Call], int]:
    found: dict[object, list[Call]] = {}
    unsized, described = 0, list(events.sayings(ours))
    silent = not any(sayings for _, sayings in described)
    shown = said_by_shapes(events, [one for one, _ in described], job.world) if silent else {}
    for number, (kernel, sayings) in enumerate(described):
        said = _together([one for args in sayings if (one := job.said(args)) is not None])
        if number in shown:
            said = [shown[number]]
        unsized += not said
        begin, end = _when(kernel, origin)
        made = args_of(kernel).get("External id")
        stream = str(args_of(kernel).get("stream", kernel.get("tid", "")))
        key = (made, stream) if made else number
        if key in found:
            begin = min(begin, found[key][0].begin)
            end = max(end, found[key][0].end)
        step = events.step_of(kernel)
        found[key] = [Call(begin, end, stream, one, part, step) for part, one in enumerate(said)]
    return [call for calls in found.values() for call in calls], unsized


def _together(calls: Sequence[Said]) -> list[Said]:
    """Calls of one kernel: collectives of one kind and group are one, sends and receives apart."""
    found: dict[object, Said] = {}
    for one in calls:
        key = (one.collective, one.ranks, one.dtype)
        held = found.get(key)
        found[key] = one if held is None else replace(held, nbytes=held.nbytes + one.nbytes)
    return list(found.values())


def _with_rank(job: Job, ours: Sequence[Event]) -> Job:
    if job.rank is not None:
        return job
    for event in ours:
        args = args_of(event)
        named = isinstance(args.get("Rank"), int) and "Src Rank" not in args
        if named and "Dst Rank" not in args and args.get("Collective name") not in ("send", "recv"):
            return replace(job, rank=args["Rank"])
    return job


def _of_one_device(events: list[Event], rank: int | None) -> list[Event]:
    devices = {repr(event.get("pid")) for event in events}
    if len(devices) < 2:
        return events
    ours = [event for event in events if is_nccl(event)]
    own = [event["pid"] for event in ours if args_of(event).get("Rank") == rank]
    if own:
        device = own[0]
    else:
        device = ours[0]["pid"] if ours else events[0]["pid"]
    return [event for event in events if event.get("pid") == device]


def _when(event: Event, origin: float) -> tuple[float, float]:
    begin = float(event["ts"]) - origin
    return begin * 1e-6, (begin + float(event["dur"])) * 1e-6


def _gpu(data: Mapping[str, Any]) -> str:
    devices = data.get("deviceProperties")
    first = devices[0] if isinstance(devices, list) and devices else {}
    return str(first.get("name", "")) if isinstance(first, dict) else ""


def _nccl(data: Mapping[str, Any]) -> str:
    info = data.get("distributedInfo")
    return str(info.get("nccl_version", "")) if isinstance(info, dict) else ""


class StepError(InputError):
    """A step was asked for that the trace does not have."""


def step_of(profile: Profile, asked: int | None) -> tuple[Profile, tuple[str, ...]]:
    """The step that is asked for, else the one of median length; the whole, if it has no steps."""
    if asked is not None and asked not in profile.steps:
        has = _numbers(profile.steps) if profile.steps else "none that the profiler marked"
        raise StepError(f"the trace has no step {asked}; it has {has}")
    step = profile.usual_step() if asked is None else asked
    chosen = profile if step is None else profile.of_step(step)
    notes = []
    if len(profile.steps) > 1:
        notes.append(f"step {step} of the trace's {_numbers(profile.steps)}")
    if profile.unsized:
        notes.append(f"{profile.unsized} kernels of NCCL's without size or peers left out")
    if any(call.said.uneven for call in chosen.calls):
        notes.append("all-to-alls of uneven parts as even ones")
    if any(call.said.group == BY_SHAPES for call in chosen.calls):
        notes.append("calls by the shapes of their operators, over all ranks")
    return chosen, tuple(notes)


def _numbers(steps: tuple[int, ...]) -> str:
    if len(steps) > 2 and steps == tuple(range(steps[0], steps[-1] + 1)):
        return f"{steps[0]} to {steps[-1]}"
    return ", ".join(map(str, steps))


# From the profile of one rank to a tape for all: every rank does what this one did.
#
# Kernels follow each other with the gaps that the host left. A call of NCCL starts when the kernels
# that ran before it are done; kernels that begin after an idle time wait for the calls that ended
# in it. Idle times before calls stay as well, but not what a kernel of NCCL's itself waited for
# other ranks. With calls as long as they were measured, the tape takes the time of the profile.

Key = tuple[bool, tuple[int, ...]]
IDLE = 1e-6  # seconds without a kernel, from which on something was waited for


def tape_of(profile: Profile) -> Tape:
    """The tape of a profile on its whole world."""
    work = _Replaying(profile)
    calls = [(call.begin, partial(work.call, n)) for n, call in enumerate(profile.calls)]
    blocks = [(begin, partial(work.kernels, begin, end)) for begin, end in _blocks(profile)]
    for _, write in sorted([*calls, *blocks], key=itemgetter(0)):  # calls first where both begin
        write()
    return work.tape


class _Replaying:
    """The tape while it is written: the last kernels, when they ended, and calls under way."""

    def __init__(self, profile: Profile) -> None:
        self.profile, self.tape = profile, Tape(phase="step")
        self.everyone = np.arange(profile.world, dtype=np.int32)
        self.groups = {key: groups_of(key, profile.world) for key in map(_key, profile.calls)}
        self.running: dict[int, int] = {}
        self.last: Deps = ()
        first = [one.begin for one in profile.kernels[:1]] + [
            one.begin for one in profile.calls[:1]
        ]
        self.before = min(first, default=0.0)

    def kernels(self, begin: float, end: float) -> None:
        """A block of kernels, behind what it waited for."""
        awaited, gap = self._idle(begin)
        self._compute("kernels", gap + end - begin, awaited)
        self.before = end

    def call(self, number: int) -> None:
        """A call, which starts when the kernels before it are done and the host lets it."""
        call = self.profile.calls[number]
        awaited, gap = self._idle(call.begin)
        if gap > IDLE:
            self._compute("gap", gap, awaited)
            self.before = call.begin
        self.running[number] = _written(self.tape, call, self.groups, self.last)

    def _compute(self, name: str, seconds: float, awaited: Deps) -> None:
        self.last = (self.tape.compute(name, self.everyone, seconds, (*self.last, *awaited)),)

    def _idle(self, begin: float) -> tuple[Deps, float]:
        """The calls that were waited for before a moment, and how long nothing was after them."""
        calls = self.profile.calls
        self.running = {n: made for n, made in self.running.items() if calls[n].end > self.before}
        over = [n for n in self.running if calls[n].end <= begin + IDLE]
        reached = max([self.before, *(calls[n].end for n in over)])
        gap = max(0.0, begin - reached) if begin - self.before > IDLE else 0.0
        return tuple(self.running[n] for n in over), gap


def _key(call: Call) -> Key:
    return call.said.collective == "p2p", call.said.ranks


def _written(tape: Tape, call: Call, groups: dict[Key, Ranks], after: Deps) -> int:
    said = call.said
    together = f" part {call.part}" if call.part else ""
    (made,) = tape.collective(  # calls have two ranks and a byte at least
        said.collective,
        said.group,
        said.collective,
        groups[_key(call)],
        said.nbytes,
        after,
        stream=f"{said.group} {call.stream}{together}",
        dtype=said.dtype,
        measured=call.end - call.begin,
    )
    return made


def _blocks(profile: Profile) -> list[tuple[float, float]]:
    """Times of kernels without a pause, cut where a call of NCCL begins."""
    cuts = sorted(call.begin for call in profile.calls)
    found = []
    for begin, end in profile.busy(IDLE):
        inside = cuts[bisect_right(cuts, begin) : bisect_right(cuts, end)]
        found += [pair for pair in pairwise([begin, *inside, end]) if pair[1] > pair[0]]
    return found


def groups_of(key: Key, world: int) -> Ranks:
    """The group of a call and its likes; of sends, the pairs that are as far apart."""
    p2p, ranks = key
    found = tiled(ranks, world)
    backward = p2p and ranks[0] > ranks[1]
    return np.ascontiguousarray(found[:, ::-1]) if backward else found


def tiled(ranks: tuple[int, ...], world: int) -> Ranks:
    """The group of one rank and its likes, which together are the whole world."""
    group = np.array(sorted(ranks), np.int32)
    if len(np.unique(group)) < len(group) or group.max() >= world:
        raise InputError(f"a group of ranks {ranks[:8]} is none of {world} ranks")
    step = int(group[1] - group[0])
    if (np.diff(group) != step).any() or world % (step * len(group)):
        return group.reshape(1, -1)  # of its own kind: the other ranks' groups are not known
    every = np.arange(world, dtype=np.int32).reshape(-1, len(group), step)
    return np.ascontiguousarray(every.transpose(0, 2, 1).reshape(-1, len(group)))
