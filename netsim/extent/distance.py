"""The distances that chunks travel in runs that are extrapolated: hops of a ring, rounds of sends
to all.

A full ring has rows by the square of its ranks. Here every rank of a ring is simulated, with its
neighbors and all links that they share, but chunks travel over a few hosts only. Chunks that are
shorter than the others pass every rank as often as in the full ring (`nccl/schedules/ring.py`,
`repeat_short_chunks`), because the gaps that they cause stay. Of sends to all the first rounds are
simulated, in multiples of the rounds in which every channel has work once: NCCL's order of rounds
(`ncclTaskP2pPlan` in src/enqueue.cc) reaches all distances early.

`extrapolate_distance` compares what further hops add in several runs:

>>> times = {7: 15.0, 15: 31.0, 23: 47.0, 31: 63.0}
>>> extrapolate_distance(135, iter(times), times.__getitem__, (0.02, 0.02), 17).seconds
271.0
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice, pairwise

from netsim.base.values import dataclass
from netsim.collectives.collective import Collective
from netsim.extent.steady_state import extrapolate_increments
from netsim.nccl.schedules.plan import Plan
from netsim.nccl.schedules.ring import WALKS, shorter_chunks
from netsim.nccl.schedules.transfers import Transfers

INCREMENTS = 3
"""Increments that are compared with each other; they take one run more."""
MAX_TURNS = 32
"""Turns of all channels into which sends to all are divided at most."""


@dataclass(frozen=True)
class FullDistance:
    """The time of all hops of a ring, or of all rounds of sends, extrapolated from shorter runs.

    - `seconds`: the extrapolated time.
    - `run`: the hops or rounds of the longest run that was simulated.
    - `full`: all hops or rounds.
    - `uncertainty`: the largest relative error of `seconds`.
    """

    seconds: float
    run: int
    full: int
    uncertainty: float


def why_not_fewer_hops(collective: Collective, plan: Plan, min_step: int) -> str:
    """The reason why a plan cannot be extrapolated from a few hops, as a clause; empty if it can.

    `min_step` is the least number of hops by which two runs differ.
    """
    if plan.algorithm != "Ring" or collective.name not in WALKS:
        return "only rings have hops to leave out"
    if len({len(ranks) for ranks in plan.nodes}) > 1:
        return "nodes of the ring have different numbers of ranks"
    if len(list(islice(ring_distances(collective, plan, min_step), INCREMENTS + 1))) <= INCREMENTS:
        return f"a ring of {len(plan.node) - 1} hops is too short to leave some out"
    return ""


def ring_distances(collective: Collective, plan: Plan, min_step: int) -> Iterator[int]:
    """Yield the distances in hops that chunks travel in the runs of a ring, up to half of the ring.

    The first four distances increase by the same step: a whole number of hosts, and at least
    `min_step` hops. Each later increase is the sum of all increases before it, plus one step. The
    number of hops that are left out is always a multiple of the step. The first distance is at
    least as long as the number of chunks that are shorter than the others (`shorter_chunks`).
    """
    ranks = len(plan.nodes[0])
    full = len(plan.node) - 1
    unit = ranks * -(-min_step // ranks)
    first = shorter_chunks(collective, plan)
    return _distances(first + (full - first) % unit or unit, unit, full)


def send_rounds(sends: Transfers, loops: int) -> Iterator[int]:
    """Yield the numbers of rounds in the runs of an all-to-all by sends, up to half of all rounds.

    The first four increase by the same step: a multiple of the rounds in which every channel has
    work once. Each later increase is the sum of all increases before it, plus one step.

    - `sends`: NCCL's sends of the all-to-all.
    - `loops`: loops of each send; with more loops the step is smaller, as each round has more rows.
    """
    ranks = sends.collective.ranks
    turn = sends.rounds_of_all_channels
    unit = turn * max(1, ranks // turn // MAX_TURNS // loops)
    return _distances(2 * unit, unit, ranks)  # the first rounds are those between neighbors


def _distances(start: int, unit: int, full: int) -> Iterator[int]:
    """Yield distances from `start` on, up to half of `full`: the first four are `unit` apart, then
    each is twice as far from `start` as the one before, plus `unit`.
    """
    distance = start
    while distance <= (full - 1) // 2:
        yield distance
        distance += unit if distance < start + INCREMENTS * unit else distance - start + unit


def extrapolate_distance(
    full: int,
    distances: Iterator[int],
    seconds: Callable[[int], float],
    tolerances: tuple[float, float],
    far: float,
) -> FullDistance | None:
    """Extrapolate the time to `full` hops or rounds from runs at increasing distances.

    Args:
        full: the hops or rounds of the full operation.
        distances: the hops or rounds of the runs, in increasing order.
        seconds: returns the time of a run, in seconds.
        tolerances: the relative difference to which the last three increments per hop must agree,
            for distances up to `far` and beyond it.
        far: the distance at which the second tolerance begins.

    No further runs are made once the increments agree. None if they never do.
    """
    times: dict[int, float] = {}
    for last in distances:
        times[last] = seconds(last)
        if len(times) <= INCREMENTS:
            continue
        # Distances increase by u, u, u, 4 u, 8 u … Of five or more, the third is left out, so that
        # those that are compared lie u, 2 u, 4 u … apart: each increment is twice the last.
        lengths = sorted(times)
        if len(lengths) > INCREMENTS + 1:
            del lengths[INCREMENTS - 1]
        pairs = list(pairwise(lengths[-1 - INCREMENTS :]))[::-1]
        tolerance = tolerances[1] if last > far else tolerances[0]
        extended = extrapolate_increments(lambda distance: times[distance], full, pairs, tolerance)
        if extended is not None:
            # The hop that closes the ring may differ from the others, and short distances pass it
            # once less.
            one_hop = (extended.seconds - times[last]) / (full - last) / extended.seconds
            return FullDistance(extended.seconds, last, full, extended.uncertainty + one_hop)
    return None
