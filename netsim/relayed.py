"""The time of an algorithm of long rings whose lanes are never in each other's way."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from netsim.arrays import different
from netsim.back_to_back import REPEATS, Alone, Period, busy_ranks, ends_of, of_many
from netsim.collectives import Collective, Relay, build
from netsim.collectives.relay import Laps
from netsim.engines import simulate, simulator
from netsim.metrics.bound import Causes, narrowest_kind
from netsim.metrics.links import link_amounts, use_of
from netsim.program import Program, place
from netsim.relay import Costs, costs_of, replayed
from netsim.schedule import Schedule
from netsim.timing import Bench, Timing
from netsim.topology import Topology

AGREE = 1e-9  # what is followed from sums and maxima differs by less from what the engine says
BIT = 1e-6  # by which part costs are raised to see what the time owes them


Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Relayed:
    """A few steps of an algorithm, placed; what is left of it; and how long its rows take."""

    relay: Relay
    program: Program
    costs: Costs

    @property
    def seconds(self) -> float:
        """The time of one operation from standstill."""
        return float(replayed(self.relay, self.costs, np.zeros(self.relay.ranks)).max())

    @property
    def schedule(self) -> Schedule:
        """The steps that are written."""
        return self.program.schedule


def relayed(
    collective: Collective,
    algorithm: str,
    parameters: Mapping[str, Any],
    topology: Topology,
    gpus: NDArray[np.int32],
) -> Relayed | str:
    """An algorithm of long rings on a topology, or why its steps do not follow from a few."""
    relay = Relay()
    schedule = build(collective, algorithm, fold=relay, **parameters)
    if relay.refused:
        return relay.refused
    program = place(schedule, topology, gpus.tolist())
    costs = costs_of(program, relay)
    if isinstance(costs, str):
        return costs
    begin = np.zeros(relay.ranks)
    told = ends_of(program, simulate(program)).max(axis=0)
    if not np.allclose(replayed(relay, costs, begin, short=True), told, rtol=AGREE, atol=0.0):
        return "its first steps end at other times than sums of their parts"
    return Relayed(relay, program, costs)


def time_relayed(bench: Bench, work: Relayed) -> Timing:
    """The time of an operation of which a few steps are written."""
    runs = simulator(work.program, bench.engine)
    timeline = runs.timeline(progress=bench.progress)
    ends = replayed(work.relay, work.costs, np.zeros(work.relay.ranks)) + bench.launch.kernel
    first = Alone(work.schedule, work.program, timeline, ends[None], runs)
    amounts = link_amounts(work.program, _times(work))
    use = use_of(work.program, amounts, float(ends.max()) - bench.launch.kernel)
    timing = bench.timing_of(first, _period(bench, work, ends), use)
    return replace(timing, causes=_causes(work))


def _causes(work: Relayed) -> Causes:
    """What the time goes to: by how much it grows with every part of it, for it is a sum."""
    begin, costs = np.zeros(work.relay.ranks), work.costs
    whole = work.seconds

    def part(took: Floats, way: Floats) -> float:
        more = Costs(costs.took + BIT * took, costs.way + BIT * way)
        return (float(replayed(work.relay, more, begin).max()) - whole) / BIT

    def transfers() -> dict[str, float]:
        rows, found = work.relay.rows, {}
        path, place = np.unique(work.program.path[rows], return_inverse=True)
        example = np.zeros(len(path), np.int64)
        example[place] = rows
        kinds = np.array([narrowest_kind(work.program, row) for row in example.tolist()])[place]
        for kind in different(kinds).tolist():
            mine = np.zeros_like(costs.took)
            mine[rows[kinds == kind]] = 1.0
            found[kind] = part(costs.took * mine, np.zeros_like(mine))
        return found

    latency = part(np.zeros_like(costs.took), costs.way) / whole
    return Causes({"latency": latency, "transfer": 1 - latency}, transfers)


def _period(bench: Bench, work: Relayed, ends: Floats) -> Period:
    launch, busy = bench.launch, busy_ranks(work.schedule)
    told, found = bench.told_by_one(ends[busy], launch), list[Floats]()
    if told is not None:
        return told
    done, period = np.zeros(work.relay.ranks), Period(0.0)
    for times in REPEATS:
        for launched in launch.times(times, work.relay.ranks)[len(found) :]:
            begin = np.maximum(done, launched) + launch.kernel
            done = replayed(work.relay, work.costs, begin)
            found.append(done[busy])
        period = of_many(np.stack(found))
        if not period.approximation:
            break
    return period


def _times(work: Relayed) -> Floats:
    """How often every row is there, with the steps that are not written."""
    times = np.ones(len(work.program))
    for call in work.relay.calls:
        if isinstance(call, Laps):
            times[call.rows.ravel()] += call.steps - call.written
    return times
