"""How long an operation takes as nccl-tests prints it: the period of operations back to back.

Each rank's kernels are serial on its stream, so ranks that finish early begin the next operation
early. The time is the steady period, mean over ranks.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from netsim.engines import choose, simulate
from netsim.program import Program, Timeline, place
from netsim.schedule import Launch, Repeated, Schedule, repeat
from netsim.topology import Topology

SETTLED = 1e-6  # two successive periods that differ by less are the steady one
SAME_INSTANT = 1e-12
REPEATS = (4, 8, 21)  # nccl-tests: one operation to warm up, then the mean of twenty


@dataclass(frozen=True)
class Timing:
    """The time of one operation in seconds, and how it was found.

    `program` and `timeline` are those of one operation alone; `uncertainty` is the relative
    difference of the last two periods, 0 where the period is exact.
    """

    seconds: float
    uncertainty: float
    program: Program
    timeline: Timeline
    engine: str


Progress = Callable[[int, int, float], None]


def time_operation(
    schedule: Schedule,
    topology: Topology,
    gpus: NDArray[np.int32],
    launch: Launch,
    *,
    single: bool = False,
    engine: str = "auto",
    progress: Progress | None = None,
) -> Timing:
    """The time of a schedule as one of many back to back, or (`single`) of one from standstill."""
    once = repeat(schedule, 1, launch)
    program, timeline = _run(once, topology, gpus, engine, progress)
    used = choose(program, engine)
    ends = timeline.end[once.ends[0]]
    if single:
        return Timing(float(ends.max()), 0.0, program, timeline, used)
    if _in_step(ends) and launch.gpus_per_process == 1:
        seconds = max(float(ends.max()) - launch.host, launch.period)
        return Timing(seconds, 0.0, program, timeline, used)
    period, difference = 0.0, np.inf
    for times in REPEATS:
        many = repeat(schedule, times, launch)
        _, longer = _run(many, topology, gpus, engine, progress)
        means = longer.end[many.ends].mean(axis=1)
        period, difference = _steady(means)
        if difference <= SETTLED:
            return Timing(period, 0.0, program, timeline, used)
    return Timing(float((means[-1] - means[0]) / (times - 1)), difference, program, timeline, used)


def _run(
    repeated: Repeated,
    topology: Topology,
    gpus: NDArray[np.int32],
    engine: str,
    progress: Progress | None,
) -> tuple[Program, Timeline]:
    program = place(repeated.schedule, topology, gpus.tolist())
    options = {"progress": progress} if choose(program, engine) == "simpy" else {}
    return program, simulate(program, engine, **options)


def _in_step(ends: NDArray[np.float64]) -> bool:
    """Whether all ranks end at one instant: the next operation is then the same, only later."""
    return bool(np.ptp(ends) <= SAME_INSTANT * ends.max(initial=0.0))


def _steady(means: NDArray[np.float64]) -> tuple[float, float]:
    """The last period and how much, relatively, it differs from the one before."""
    periods = np.diff(means)
    last, before = float(periods[-1]), float(periods[-2])
    return last, abs(last - before) / last if last > 0 else 0.0
