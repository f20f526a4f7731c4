"""Measuring one case: in a process of its own, so that memory and start-up are its own."""

import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from pathlib import Path

KEPT = ("case", "ranks", "rows", "build_s", "place_s", "run_s", "rows_per_s", "peak_mb")


@dataclass(frozen=True, slots=True)
class Figures:
    """What one case took: seconds of its parts and of the whole process, and memory in MB."""

    case: str
    ranks: int
    rows: int
    import_s: float
    build_s: float
    place_s: float
    run_s: float
    rows_per_s: float
    total_s: float
    peak_mb: float
    makespan_s: float


def process_use(
    command: Sequence[str], folder: Path, environment: Mapping[str, str] | None = None
) -> tuple[float, float]:
    """Processor seconds and most memory (MB) of a process that runs a command in a folder.

    Raises a CalledProcessError if it fails; what it prints is not shown. Byte code is written and
    read, as where netsim is installed: half of the time of a small command would be compiling.
    """
    variables = {**(os.environ if environment is None else environment)}
    variables.pop("PYTHONDONTWRITEBYTECODE", None)
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=variables,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    _, status, use = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return use.ru_utime + use.ru_stime, use.ru_maxrss * 1024 / 1e6


def measure_here(name: str, began: float, engine: str) -> Figures:
    """Run a case in this process, which began at a time of the monotonic clock."""
    from netsim.engines.engine import simulate
    from netsim.program.place import place
    from tests.bench.cases import parse_case

    case = parse_case(name)
    ticks = [time.perf_counter()]
    schedule = case.schedule()
    ticks.append(time.perf_counter())
    program = place(schedule, case.topology())
    ticks.append(time.perf_counter())
    timeline = simulate(program, engine)
    ticks.append(time.perf_counter())
    build, placing, run = (later - earlier for earlier, later in pairwise(ticks))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
    return Figures(
        name,
        case.ranks,
        len(program),
        ticks[0] - began,
        build,
        placing,
        run,
        len(program) / run,
        0.0,
        peak,
        timeline.makespan,
    )


def measure(name: str, runs: int, engine: str) -> Figures:
    """The medians over several processes, after one that is not counted."""
    results = [_process(name, engine) for _ in range(runs + 1)][1:]
    values = {
        field.name: statistics.median(getattr(result, field.name) for result in results)
        for field in fields(Figures)
        if field.name != "case"
    }
    return Figures(**{"case": name, **values, "rows": results[0].rows, "ranks": results[0].ranks})


def _process(name: str, engine: str) -> Figures:
    began = time.perf_counter()
    command = [sys.executable, "-m", "tests.bench", "--one", name, "--engine", engine]
    env = {**os.environ}
    env.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package is compiled once
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    total = time.perf_counter() - began
    if done.returncode:
        raise SystemExit(f"{name}: {done.stderr.strip() or done.returncode}")
    return Figures(**{**json.loads(done.stdout), "total_s": total})


def as_json(figures: list[Figures]) -> str:
    """The figures as the file that later runs compare with."""
    cases = [{key: getattr(one, key) for key in KEPT} for one in figures]
    return json.dumps({"cases": cases}, indent=1) + "\n"
