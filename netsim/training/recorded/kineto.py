"""A PyTorch profiler (Kineto) trace of one rank: its kernels and its calls of NCCL."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from netsim.errors import InputError
from netsim.scenario.names import DTYPES
from netsim.trace.operation import KINETO_TYPES
from netsim.training.recorded.reading import read_json

# What PyTorch calls collectives, in its several ways.
NAMES = {
    "allreduce": "all_reduce", "all_reduce": "all_reduce", "allreduce_coalesced": "all_reduce",
    "_allgather_base": "all_gather", "allgather": "all_gather", "all_gather": "all_gather",
    "allgather_into_tensor_coalesced": "all_gather", "all_gather_into_tensor": "all_gather",
    "_reduce_scatter_base": "reduce_scatter", "reduce_scatter": "reduce_scatter",
    "reduce_scatter_tensor": "reduce_scatter",
    "reduce_scatter_tensor_coalesced": "reduce_scatter",
    "all_to_all": "alltoall", "all_to_allv": "alltoall", "alltoall": "alltoall",
    "alltoall_base": "alltoall", "broadcast": "broadcast", "_broadcast_oop": "broadcast",
    "reduce": "reduce", "gather": "gather", "scatter": "scatter",
}  # fmt: skip
TYPES = {name: dtype for dtype, name in KINETO_TYPES.items()} | {
    "Float8_e4m3fn": "f8e4m3", "Float8_e5m2": "f8e5m2", "Bool": "uint8",
}  # fmt: skip
KERNELS = ("kernel", "gpu_memcpy", "gpu_memset")
WHOLE_OUTPUT = ("all_gather",)  # the size counts what comes out, of others what goes in


@dataclass(frozen=True, slots=True)
class Call:
    """One kernel of NCCL's: begin and end in seconds, and what it was called for."""

    begin: float
    end: float
    stream: str
    collective: str
    nbytes: int
    dtype: str
    ranks: tuple[int, ...]
    group: str


@dataclass(frozen=True)
class Profile:
    """What one rank did: kernels as (begin, end) in order of time, and calls of NCCL.

    `unsized` counts kernels of NCCL's whose size or peers the trace does not tell.
    """

    rank: int
    world: int
    kernels: tuple[tuple[float, float], ...]
    calls: tuple[Call, ...]
    unsized: int = 0


def read_profile(path: Path) -> Profile:
    """The profile in a file."""
    data = read_json(path)
    events = _of_one_device([e for e in data["traceEvents"] if _is_kernel(e)], data)
    ours = [e for e in events if _is_nccl(e)]
    if not events:
        raise InputError(f"{path}: has no kernels (was the profiler told to record CUDA?)")
    if not ours:
        raise InputError(f"{path}: has {len(events)} kernels, but none of NCCL's")
    sized = [(e, call) for e in ours if (call := _call(path, e)) is not None]
    if not sized:
        raise InputError(
            f"{path}: NCCL's kernels say neither sizes nor groups",
            hint="PyTorch 2.3 and later write them",
        )
    others = sorted(
        (e["ts"] * 1e-6, (e["ts"] + e["dur"]) * 1e-6) for e in events if not _is_nccl(e)
    )
    calls = tuple(sorted((call for _, call in sized), key=lambda call: call.begin))
    info = data.get("distributedInfo") or {}
    rank = int(info.get("rank", sized[0][0]["args"].get("Rank", min(calls[0].ranks))))
    world = int(info.get("world_size", max(max(call.ranks) for call in calls) + 1))
    return Profile(rank, world, tuple(others), calls, len(ours) - len(sized))


def _of_one_device(events: list[Any], data: Mapping[str, Any]) -> list[Any]:
    """The kernels of the recorded rank's device, where a file holds several."""
    devices = {event.get("pid") for event in events}
    rank = (data.get("distributedInfo") or {}).get("rank")
    if len(devices) < 2:
        return events
    own = [e["pid"] for e in events if _is_nccl(e) and (e.get("args") or {}).get("Rank") == rank]
    device = own[0] if own else next((e["pid"] for e in events if _is_nccl(e)), events[0]["pid"])
    return [event for event in events if event.get("pid") == device]


def _is_kernel(event: object) -> bool:
    return (
        isinstance(event, dict)
        and event.get("ph") == "X"
        and str(event.get("cat", "")).lower() in KERNELS
        and isinstance(event.get("ts"), int | float)
        and isinstance(event.get("dur"), int | float)
    )


def _is_nccl(event: Mapping[str, Any]) -> bool:
    args = event.get("args")
    named = isinstance(args, dict) and "Collective name" in args
    return named or str(event.get("name", "")).startswith(("ncclDevKernel", "ncclKernel"))


def _call(path: Path, event: Mapping[str, Any]) -> Call | None:
    """The call of one kernel; None if it does not say what it moves between whom."""
    args = event.get("args") or {}
    collective = NAMES.get(str(args.get("Collective name", "")).lower())
    dtype = TYPES.get(str(args.get("dtype", "")))
    ranks = _ranks(path, args)
    which = "Out msg nelems" if collective in WHOLE_OUTPUT else "In msg nelems"
    elements = args.get(which)
    if collective is None or dtype not in DTYPES or not ranks or not isinstance(elements, int):
        return None
    if elements <= 0 or len(ranks) < 2:
        return None
    return Call(
        event["ts"] * 1e-6, (event["ts"] + event["dur"]) * 1e-6, str(event.get("tid", "")),
        collective, elements * DTYPES[str(dtype)], str(dtype), ranks,
        str(args.get("Process Group Description") or args.get("Process Group Name") or "group"),
    )  # fmt: skip


def _ranks(path: Path, args: Mapping[str, Any]) -> tuple[int, ...]:
    """The ranks of a group; a list that Kineto cut with an ellipsis goes on as it began."""
    text, size = str(args.get("Process Group Ranks", "")), args.get("Group size")
    if "..." in text:
        head = text.partition("...")[0].strip("[], ")
        first = [int(part) for part in head.split(",") if part.strip().isdigit()]
        if len(first) < 2 or not isinstance(size, int):
            return ()
        return tuple(first[0] + k * (first[1] - first[0]) for k in range(size))
    try:
        found = json.loads(text) if text else []
    except ValueError:
        raise InputError(f"{path}: 'Process Group Ranks' is no list: {text[:60]!r}") from None
    if not found and isinstance(size, int):  # the default group is written without its ranks
        return tuple(range(size))
    return tuple(int(rank) for rank in found)
