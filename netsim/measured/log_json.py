"""What nccl-tests writes with -J: one JSON object a run. NaN and booleans are texts there."""

import json
from collections.abc import Mapping
from typing import Any

from netsim.errors import InputError
from netsim.measured.curve import Measured
from netsim.measured.log_run import Device, LogRun, Problem
from netsim.measured.log_text import collective_in, positive

MICRO = 1e-6
TIMES = ("time", "cpu_time", "gpu_time")


def parse_json(text: str, name: str) -> tuple[LogRun, ...]:
    """The runs of a JSON text: one, or one for each line or entry of a list."""
    values = _values(text, name)
    runs = [_run(value, name) for value in values if isinstance(value, Mapping)]
    found = tuple(run for run in runs if run.rows or run.problems)
    if not found:
        raise InputError(f"{name}: this JSON has no results of nccl-tests")
    return found


def _values(text: str, name: str) -> list[Any]:
    try:
        value = json.loads(text)
        return value if isinstance(value, list) else [value]
    except ValueError as error:
        lines = [line for line in text.splitlines() if line.strip()]
        try:
            return [json.loads(line) for line in lines]
        except ValueError:
            raise InputError(f"{name}: this JSON cannot be read: {error}") from None


def _run(value: Mapping[str, Any], name: str) -> LogRun:
    config = value.get("config") if isinstance(value.get("config"), Mapping) else {}
    assert isinstance(config, Mapping)
    rows: list[Measured] = []
    ratios: list[tuple[float, float]] = []
    problems: list[Problem] = []
    results = value.get("results")
    for number, result in enumerate(results if isinstance(results, list) else [], 1):
        try:
            row, found = _row(result, number)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            problems.append(Problem(number, f"result {number}: {error}"))
            continue
        if row is not None:
            rows.append(row)
            ratios += found
    arguments = [str(one) for one in _list(value.get("args"))]
    devices = _list(config.get("devices") or value.get("devices"))
    per_process = [config.get("nthreads"), config.get("ngpus")]
    return LogRun(
        name,
        collective_in(str(value.get("test", "")) + " " + " ".join(arguments)),
        tuple(sorted(rows, key=lambda row: row.size_bytes)),
        tuple(_device(one) for one in devices if isinstance(one, Mapping)),
        _product(per_process),
        " ".join(arguments),
        str(value.get("nccl_version") or ""),
        _variables(value.get("env")),
        ratios=tuple(ratios),
        problems=tuple(problems),
    )


def _row(
    result: Mapping[str, Any], number: int
) -> tuple[Measured | None, list[tuple[float, float]]]:
    size = int(result["size"])
    if size == 0:
        return None, []
    times: list[float | None] = []
    ratios = []
    for side in ("out_of_place", "in_place"):
        half = result.get(side)
        if not isinstance(half, Mapping):
            times.append(None)
            continue
        given = next((half[key] for key in TIMES if key in half), None)
        seconds = None if given is None else positive(str(given), f"{side}.time")
        times.append(None if seconds is None else seconds * MICRO)
        alg, bus = (positive(str(half.get(k, "nan")), k, zero=True) for k in ("alg_bw", "bus_bw"))
        if alg is not None and bus is not None:
            ratios.append((alg, bus))
    if times == [None, None]:
        raise ValueError(f"no time at {size} B")
    root = str(result.get("root", "-1"))
    row = Measured(
        size,
        int(result["count"]) if result.get("count") is not None else None,
        str(result.get("type", "float")),
        str(result.get("redop", "")),
        int(root) if root.lstrip("-").isdecimal() else -1,
        times[0],
        times[1],
        number,
    )
    return row, ratios


def _device(one: Mapping[str, Any]) -> Device:
    host = str(one.get("hostname", ""))
    name = str(one.get("device_info") or one.get("device_name") or "")
    return Device(int(one.get("rank", 0)), f"{host}:{one.get('pid', '')}", host, name)


def _variables(given: Any) -> dict[str, str]:
    """NCCL's variables, from a mapping or from NAME=VALUE texts."""
    pairs = (
        given.items()
        if isinstance(given, Mapping)
        else (str(one).split("=", 1) for one in _list(given) if "=" in str(one))
    )
    return {str(key): str(value) for key, value in pairs if str(key).startswith("NCCL_")}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _product(values: list[Any]) -> int | None:
    found = 1
    for value in values:
        if not str(value).isdecimal():
            return None
        found *= int(value)
    return found
