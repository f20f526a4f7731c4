"""A PyTorch profiler (Kineto) trace of one rank: its kernels and its calls of NCCL."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from netsim.errors import InputError
from netsim.training.recorded.calls import Job, Said, job_of
from netsim.training.recorded.events import Event, Events, args_of, events_of, is_nccl
from netsim.training.recorded.reading import read_json
from netsim.training.recorded.shapes import said_by_shapes

NO_STEP = -1


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel that is none of NCCL's: begin and end in seconds, and the profiler's step."""

    begin: float
    end: float
    step: int = NO_STEP


@dataclass(frozen=True, slots=True)
class Call:
    """One kernel of NCCL's: begin and end in seconds, and what it was called for.

    `part` counts the calls that one kernel carries out together.
    """

    begin: float
    end: float
    stream: str
    said: Said
    part: int = 0
    step: int = NO_STEP


@dataclass(frozen=True)
class Profile:
    """What one rank did, in order of time, in seconds since its first kernel.

    `unsized` counts kernels of NCCL's whose size or peers the trace does not tell; `steps` are the
    profiler's, where it recorded several.
    """

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


def read_profile(path: Path) -> Profile:
    """The profile in a file; the last one is kept, as every cell of a sweep asks for it."""
    try:
        state = path.stat()
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    return _kept(path, state.st_mtime_ns, state.st_size)


@lru_cache(maxsize=1)
def _kept(path: Path, changed: int, size: int) -> Profile:
    del changed, size
    return profile_of(read_json(path), path)


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
    """The calls of all kernels, and how many kernels do not say what they do.

    A call that took several kernels of one stream, one after the other, is as long as all of them.
    """
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
    """The job with the rank that its collectives name, where the header has none."""
    if job.rank is not None:
        return job
    for event in ours:
        args = args_of(event)
        named = isinstance(args.get("Rank"), int) and "Src Rank" not in args
        if named and "Dst Rank" not in args and args.get("Collective name") not in ("send", "recv"):
            return replace(job, rank=args["Rank"])
    return job


def _of_one_device(events: list[Event], rank: int | None) -> list[Event]:
    """The kernels of the recorded rank's device, where a file holds several."""
    devices = {event.get("pid") for event in events}
    if len(devices) < 2:
        return events
    ours = [event for event in events if is_nccl(event)]
    own = [event["pid"] for event in ours if args_of(event).get("Rank") == rank]
    device = own[0] if own else ours[0]["pid"] if ours else events[0]["pid"]
    return [event for event in events if event.get("pid") == device]


def _when(event: Event, origin: float) -> tuple[float, float]:
    """Begin and end in seconds; whole microseconds are taken off first, which floats hold."""
    begin = float(event["ts"]) - origin
    return begin * 1e-6, (begin + float(event["dur"])) * 1e-6


def _gpu(data: Mapping[str, Any]) -> str:
    devices = data.get("deviceProperties")
    first = devices[0] if isinstance(devices, list) and devices else {}
    return str(first.get("name", "")) if isinstance(first, dict) else ""


def _nccl(data: Mapping[str, Any]) -> str:
    info = data.get("distributedInfo")
    return str(info.get("nccl_version", "")) if isinstance(info, dict) else ""
