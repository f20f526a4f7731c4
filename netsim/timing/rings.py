"""Rings over very many ranks, from runs in which chunks go only a few hosts far.

Every rank of the ring is there, with its neighbours and all that they share. What each further host
on a chunk's way adds is found by running some: no closed form is assumed. Full rings take rows by
the square of their ranks. Chunks that are shorter than the others come round in such a run as often
as in the full ring (`nccl/schedules/ring`: `round_again`), for what they disturb stays disturbed.
"""

from collections.abc import Callable, Iterator
from itertools import islice, pairwise

from netsim.base.values import dataclass
from netsim.collectives.collective import Collective
from netsim.nccl.schedules.plan import Plan
from netsim.nccl.schedules.ring import WALKS, shorter_chunks
from netsim.timing.steady import AGREE, extend

WINDOW = 3  # increments that are held against one another


@dataclass(frozen=True)
class Hops:
    """The time of a full ring, from a run of `hops` of its `whole`, and by which part it is off."""

    seconds: float
    hops: int
    whole: int
    uncertainty: float


def why_whole(collective: Collective, plan: Plan, least: int) -> str:
    """Why what a few hops add does not tell what a plan takes; "" where it may."""
    if plan.algorithm != "Ring" or collective.name not in WALKS:
        return "only rings have hops to leave out"
    if len({len(ranks) for ranks in plan.nodes}) > 1:
        return "nodes of the ring have different numbers of ranks"
    if len(list(islice(runs_of(collective, plan, least), WINDOW + 1))) <= WINDOW:
        return f"a ring of {len(plan.node) - 1} hops is too short to leave some out"
    return ""


def runs_of(collective: Collective, plan: Plan, least: int) -> Iterator[int]:
    """How far chunks go in runs of a ring, one longer than the other by whole hosts and at least
    that many hops, up to half of the ring; chunks that are shorter than others fit in between.
    """
    ranks, whole = len(plan.nodes[0]), len(plan.node) - 1
    unit, first = ranks * -(-least // ranks), shorter_chunks(collective, plan)
    hops = first + (whole - first) % unit or unit
    start = hops
    while hops <= (whole - 1) // 2:
        yield hops
        hops += unit * max(1, (hops - start) // (WINDOW * unit))


def full_ring(
    whole: int, runs: Iterator[int], seconds: Callable[[int], float], tolerated: float, part: float
) -> Hops | None:
    """The time of a ring of `whole` hops, by `seconds` of chunks that go as far as in some `runs`.
    None if what hops add still differs by more than is `tolerated`, from that `part` of it on.
    """
    times: dict[int, float] = {}
    for last in runs:
        times[last] = seconds(last)
        if len(times) <= WINDOW:
            continue
        pairs = list(pairwise(sorted(times)[-1 - WINDOW :]))[::-1]
        allowed = tolerated if last > part * whole else min(AGREE, tolerated)
        found = extend(lambda hops: times[hops], whole, pairs, allowed)
        if found is not None:
            # Where the ring closes may be a hop unlike the others, which short ways pass once less.
            each = (found.seconds - times[last]) / (whole - last) / found.seconds
            return Hops(found.seconds, last, whole, found.off + each)
    return None
