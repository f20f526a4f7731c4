"""How long an operation takes as nccl-tests prints it: the period of operations back to back.

Each rank's kernels are serial on its stream, so ranks that finish early begin the next operation
early. The time is the steady period, mean over ranks.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf

import numpy as np
from numpy.typing import NDArray

from netsim.engines import choose, simulate
from netsim.metrics.ends import receivers, senders
from netsim.program import Program, Timeline, place
from netsim.schedule import MARK, Launch, Schedule, repeat
from netsim.topology import Topology

SETTLED = 1e-6  # two successive periods that differ by less are the steady one
SAME_INSTANT = 1e-12
REPEATS = (4, 8, 21)  # nccl-tests: one operation to warm up, then the mean of twenty
MOST_ROWS = 30_000_000  # of operations repeated; larger ones are simulated alone
MEAN = "mean of operations back to back"
ALONE = "one operation alone"


@dataclass(frozen=True)
class Timing:
    """The time of one operation in seconds, and how it was found.

    `program` and `timeline` are those of one operation alone. `approximation` says what was done
    where the period is not exact, and `uncertainty` by which part the answer can move.
    """

    seconds: float
    program: Program
    timeline: Timeline
    engine: str
    approximation: str = ""
    uncertainty: float = 0.0


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

    def run(what: Schedule) -> tuple[Program, Timeline]:
        program = place(what, topology, gpus.tolist())
        return program, simulate(program, engine, progress=progress)

    program, timeline = run(schedule)
    alone = Timing(0.0, program, timeline, choose(program, engine))
    ends = rank_ends(program, timeline) + launch.kernel
    busy = busy_ranks(schedule)  # ranks that take no part would only dilute the mean
    ends = ends[busy]
    if single:
        return replace(alone, seconds=launch.host + float(ends.max()))
    together = launch.host == 0 or launch.gpus_per_process == 1  # all ranks are launched at once
    if together and _in_step(ends):
        return replace(alone, seconds=max(float(ends.max()), launch.period))
    period, difference = float(ends.max()), inf
    for times in REPEATS:
        if times * len(schedule) > MOST_ROWS:
            break
        many = repeat(schedule, times, launch)
        means = run(many.schedule)[1].end[many.ends[:, busy]].mean(axis=1)
        last, difference = _steady(means)
        if difference <= SETTLED:
            return replace(alone, seconds=last)
        period = float((means[-1] - means[0]) / (times - 1))
    if difference == inf:  # too many rows to repeat; the next operation may begin this much early
        spread = 1 - float(ends.min() / ends.max())
        return replace(alone, seconds=period, approximation=ALONE, uncertainty=spread)
    return replace(alone, seconds=period, approximation=MEAN, uncertainty=difference)


def busy_ranks(schedule: Schedule) -> NDArray[np.int64]:
    """The ranks that do anything at all; everyone, where nobody does."""
    moving = np.flatnonzero(schedule.kind != MARK)
    busy = np.union1d(senders(schedule, moving)[1], receivers(schedule, moving)[1])
    return (busy if len(busy) else np.arange(schedule.ranks)).astype(np.int64)


def rank_ends(program: Program, timeline: Timeline) -> NDArray[np.float64]:
    """When each rank is done: all that it sends has left, all that it receives has arrived."""
    rows = np.arange(len(program))
    ends = np.zeros(program.schedule.ranks)
    sent, sender = senders(program.schedule, rows)
    np.maximum.at(ends, sender, timeline.end[sent])
    received, receiver = receivers(program.schedule, rows)
    latency = program.path_latency[program.path[received]]
    np.maximum.at(ends, receiver, timeline.end[received] + latency)
    return ends


def _in_step(ends: NDArray[np.float64]) -> bool:
    """Whether all ranks end at one instant: the next operation is then the same, only later."""
    return bool(np.ptp(ends) <= SAME_INSTANT * ends.max(initial=0.0))


def _steady(means: NDArray[np.float64]) -> tuple[float, float]:
    """The last period and how much, relatively, it differs from the one before."""
    periods = np.diff(means)
    last, before = float(periods[-1]), float(periods[-2])
    return last, abs(last - before) / last if last > 0 else 0.0
