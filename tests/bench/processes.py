"""Commands with all the processes that they start: wall time, CPU time of all, and memory."""

import ctypes
import os
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36  # Linux: orphans of our children become ours, with their CPU time


@dataclass(frozen=True, slots=True)
class Cost:
    """What a command took: seconds on the clock, seconds of CPU of all its processes, and MB of
    the largest one.
    """

    wall_s: float
    cpu_s: float
    peak_mb: float
    output: str


def netsim(folder: Path, *arguments: object) -> Cost:
    """Run `netsim` with arguments in a folder, to the end of its last process."""
    return run([sys.executable, "-m", "netsim", *map(str, arguments)], folder)


def run(command: Sequence[str], folder: Path) -> Cost:
    """Run a command in a folder, to the end of its last process."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    paths = os.pathsep.join(filter(None, (str(Path.cwd()), os.environ.get("PYTHONPATH"))))
    env = os.environ | {"PYTHONPATH": paths}
    env.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package is compiled once
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    wall = time.perf_counter() - began
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: {done.stderr.strip() or done.returncode}")
    with suppress(ChildProcessError):
        while True:
            os.waitpid(-1, 0)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Cost(wall, cpu, after.ru_maxrss * 1024 / 1e6, done.stdout)
