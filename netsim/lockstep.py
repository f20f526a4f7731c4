"""The time of an all-to-all in which all ranks keep step, of which one is written down.

They differ only in when the last messages arrive, which is added for each (`program/steps`).
"""

import numpy as np
from numpy.typing import NDArray

from netsim.back_to_back import Alone, of_one
from netsim.looped import Looped
from netsim.metrics.links import link_amounts, use_of
from netsim.schedule import MARK
from netsim.textbook import crossing
from netsim.timing import Bench, Timing

Floats = NDArray[np.float64]


def time_in_step(bench: Bench, call: Looped, spread: float) -> Timing:
    """The time of an operation; `spread` is by how much latencies between ranks differ."""
    alone = bench.alone(call.schedule(call.loops))
    ends = ends_of_all(bench, alone, spread)
    use = use_of(alone.program, link_amounts(alone.program), float(ends.max()))
    ends = ends + bench.launch.kernel
    return bench.timing_of(alone, bench.told_by_one(ends, bench.launch) or of_one(ends), use)


def ends_of_all(bench: Bench, alone: Alone, spread: float) -> Floats:
    """When every rank is done: whatever ends last, and the last messages that it receives.

    A message that one rank sends to another, all others send as far on.
    """
    schedule, timeline = alone.schedule, alone.timeline
    ranks, crosses = np.arange(schedule.ranks), crossing(alone.schedule)
    path = alone.program.path_latency[alone.program.path]
    own = np.where(crosses, 0.0, path) + timeline.end
    ends = np.full(len(ranks), own[schedule.kind != MARK].max())
    last = timeline.end[crosses].max() - spread
    for row in np.flatnonzero(crosses & (timeline.end >= last)).tolist():
        sender = (ranks - schedule.dst[row] + schedule.src[row]) % len(ranks)
        ends = np.maximum(ends, timeline.end[row] + _latency(bench, sender, ranks))
    return ends


def _latency(bench: Bench, src: NDArray[np.int64], dst: NDArray[np.int64]) -> Floats:
    channel = np.zeros(len(src), np.int32)
    return bench.topology.routes(bench.gpus[src], bench.gpus[dst], channel).latency
