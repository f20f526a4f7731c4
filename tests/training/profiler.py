"""Writes profiler traces as torch.profiler does: operators, launches, kernels, flows, steps.

Times are microseconds since some boot, as Kineto's are.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

BASE = 4386379669145.25
MAIN, AUTOGRAD = 15501, 15824  # threads of the host
NAME = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


@dataclass
class Recording:
    """A trace in the making; every method adds what PyTorch would."""

    rank: int = 0
    world: int = 8
    events: list[dict[str, Any]] = field(default_factory=list)
    groups: list[dict[str, Any]] = field(default_factory=list)
    number: int = 0

    def event(self, cat: str, name: str, at: float, lasts: float, **more: Any) -> dict[str, Any]:
        made = {"ph": "X", "cat": cat, "name": name, "pid": 15501, "tid": MAIN,
                "ts": BASE + at, "dur": lasts, "args": {}, **more}  # fmt: skip
        self.events.append(made)
        return made

    def step(self, number: int, at: float, lasts: float) -> None:
        self.event("user_annotation", f"ProfilerStep#{number}", at, lasts)
        self.event("gpu_user_annotation", f"ProfilerStep#{number}", at, lasts, pid=0, tid=7)

    def kernel(
        self,
        at: float,
        lasts: float,
        *,
        launched: float | None = None,
        name: str = "sm90_gemm",
        stream: int = 7,
        thread: int = MAIN,
        operator: int | None = None,
        **told: Any,
    ) -> int:
        """A kernel with its launch (by default just before it) and the arrow between."""
        self.number += 1
        when = at - 1 if launched is None else launched
        number = self.number
        common = {"correlation": number} | ({} if operator is None else {"External id": operator})
        self.event(
            "cuda_runtime",
            "cudaLaunchKernelExC",
            when,
            0.5,
            tid=thread,
            args={"cbid": 430, **common},
        )
        flow = {"id": number, "cat": "ac2g", "name": "ac2g"}
        self.events.append({"ph": "s", "pid": 15501, "tid": thread, "ts": BASE + when, **flow})
        self.events.append({"ph": "f", "pid": 0, "tid": stream, "ts": BASE + at, "bp": "e", **flow})
        self.event(
            "kernel",
            name,
            at,
            lasts,
            pid=0,
            tid=stream,
            args={
                "device": 0,
                "context": 1,
                "stream": stream,
                "grid": [16, 1, 1],
                "block": [640, 1, 1],
                **common,
                **told,
            },
        )
        return number

    def record(self, at: float, args: dict[str, Any], *, thread: int = MAIN) -> int:
        """The operator that describes a call of NCCL's; its number."""
        self.number += 1
        args = {"External id": 1000 + self.number, **args}
        self.event("cpu_op", "record_param_comms", at, 0.4, tid=thread, args=args)
        return 1000 + self.number

    def data(self, **more: Any) -> dict[str, Any]:
        info = {"backend": "nccl", "rank": self.rank, "world_size": self.world,
                "pg_count": len(self.groups), "pg_config": self.groups,
                "nccl_version": "2.27.5"}  # fmt: skip
        return {
            "schemaVersion": 1,
            "deviceProperties": [{"id": 0, "name": "NVIDIA H100 80GB HBM3"}],
            "distributedInfo": info,
            "with_stack": 1,
            "displayTimeUnit": "ms",
            "baseTimeNanoseconds": 1790857026000000000,
            "traceEvents": self.events,
            "traceName": "trace.json",
            **more,
        }

    def write(self, path: Path, **more: Any) -> Path:
        path.write_text(json.dumps(self.data(**more)))
        return path


def said(collective: str = "allreduce", elements: int = 2**20, **more: Any) -> dict[str, Any]:
    """The arguments of a call on all of eight ranks."""
    return {
        "Collective name": collective,
        "In msg nelems": elements,
        "Out msg nelems": elements,
        "Group size": 8,
        "dtype": "BFloat16",
        "In split size": "[]",
        "Out split size": "[]",
        "Process Group Name": "0",
        "Process Group Description": "default_pg",
        "Process Group Ranks": "[0, 1, 2, 3, 4, 5, 6, 7]",
        **more,
    }


def steps_of_data_parallelism(*lengths: float) -> Recording:
    """A step of each length: two kernels, an all-reduce beside the second, the optimizer."""
    made, at = Recording(), 0.0
    for number, length in enumerate(lengths, 3):
        made.step(number, at - 5, length + 4)
        made.kernel(at, 100)
        made.kernel(at + 100, 200)
        made.kernel(at + 110, length - 160, name=NAME, stream=20, **said())
        made.kernel(at + length - 50, 45)
        at += length
    return made
