"""Rows in the JSON layout of nccl-tests' -J (version 3).

As there, booleans and roots are texts, times are µs and bandwidths GB/s. A simulation has no time
of day, so that `start_time` and `end_time` are null and equal questions give equal files.
"""

from collections.abc import Sequence
from typing import Any

from netsim.results.nccl_tests import (
    IN_PLACE,
    ITERATIONS,
    OUT_OF_PLACE,
    WARMUP,
    Device,
    TestRun,
    average_busbw,
    half,
    redop_of,
    root_of,
)
from netsim.results.row import Row

LAYOUT = 3


def document(run: TestRun, rows: Sequence[Row]) -> dict[str, Any]:
    """The whole file as a mapping; rows that failed are among its errors."""
    return {
        "version": LAYOUT,
        "start_time": None,
        "end_time": None,
        "args": arguments(run),
        "env": [f"{name}={value}" for name, value in run.variables],
        "nccl_version": run.nccl_code,
        "config": _config(run),
        "results": [_result(row, run.root) for row in rows if row.status == "ok"],
        "out_of_bounds": {"count": 0, "okay": "unchecked"},
        "average_bus_bandwidth": {"bandwidth": average_busbw(rows), "okay": "unchecked"},
        "errors": [f"{row.size_bytes} B: {row.error}" for row in rows if row.status != "ok"],
    }


def arguments(run: TestRun) -> list[str]:
    """The command of nccl-tests that asks the same question."""
    step = ["-f", str(run.factor)] if run.factor else ["-i", str(run.step)]
    graph = ["-G", str(ITERATIONS)] if run.cuda_graph else []
    root = ["-r", str(run.root)] if root_of(run.collective, run.root) > 0 else []
    sizes = ["-b", str(min(run.sizes)), "-e", str(max(run.sizes)), *step]
    return [run.test, "-g", str(run.n_gpus), *sizes, "-d", run.dtype, "-c", "0", *graph, *root]


def _config(run: TestRun) -> dict[str, Any]:
    step = {"step_factor": run.factor} if run.factor else {"step_bytes": run.step}
    return {
        "nthreads": 1,
        "ngpus": run.n_gpus,
        "minimum_bytes": min(run.sizes),
        "maximum_bytes": max(run.sizes),
        **step,
        "warmup_iters": WARMUP,
        "iterations": ITERATIONS,
        "aggregated_iterations": 1,
        "validation": 0,
        "graph": int(run.cuda_graph),
        "blocking_collectives": "false",
        "per_iter_timing": "false",
        "parallel_init": "false",
        "devices": [_device(device) for device in run.devices],
    }


def _device(device: Device) -> dict[str, Any]:
    return {
        "rank": device.rank,
        "group": device.group,
        "pid": device.process,
        "hostname": device.host,
        "device": device.device,
        "device_hex": device.bus,
        "device_info": device.model,
    }


def _result(row: Row, root: int) -> dict[str, Any]:
    return {
        "size": row.size_bytes,
        "count": row.count,
        "type": row.dtype,
        "redop": redop_of(row.collective),
        "root": str(root_of(row.collective, root)),
        "out_of_place": _half(row, OUT_OF_PLACE),
        "in_place": _half(row, IN_PLACE),
    }


def _half(row: Row, which: str) -> dict[str, Any]:
    time, algbw, busbw = half(row, which)
    return {"time": time, "alg_bw": algbw, "bus_bw": busbw, "nwrong": "N/A"}
