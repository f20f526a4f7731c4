"""The events of a profiler trace that matter here: kernels, who launched them, in which step.

A kernel of NCCL's says what it does, or the operator says it that launched it: found by its id, or
as the calls that were recorded since the launch before, where several were coalesced into one.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from netsim.training.recorded.calls import IS_NCCL, collective_of

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
    """Events by what they are. Times are those of the file, in microseconds.

    `launched` is when and on which thread of the host each kernel was launched, by correlation;
    `operators` are those of communication that show the shapes of their tensors.
    """

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
        free: dict[object, list[Event]] = {}
        for record in sorted(self.records, key=lambda one: float(one["ts"])):
            if args_of(record).get("External id") not in own:
                free.setdefault(record.get("tid"), []).append(record)
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
        if isinstance(event, dict) and event.get("ph") == "X" and _timed(event):
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


def _timed(event: Event) -> bool:
    return isinstance(event.get("ts"), int | float) and isinstance(event.get("dur"), int | float)


def _within(steps: Mapping[int, tuple[float, float]], when: float) -> int:
    numbers = sorted(steps, key=lambda number: steps[number])
    place = bisect_right([steps[number][0] for number in numbers], when) - 1
    return numbers[place] if place >= 0 and when < steps[numbers[place]][1] else -1
