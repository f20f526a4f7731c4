"""Rings over very many ranks, from runs in which chunks go only a few hosts far.

Every rank of the ring is there, with its neighbours and all that they share. What each further host
on a chunk's way adds is found by running some: no closed form is assumed. Full rings take rows by
the square of their ranks.
"""

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

from netsim.base.errors import InputError
from netsim.base.values import dataclass
from netsim.collectives.collective import Collective
from netsim.nccl.schedules.plan import Plan
from netsim.nccl.schedules.ring import WALKS, rows_of_rings
from netsim.timing.bench import Bench, Timing
from netsim.timing.fits import BYTES_A_ROW_OF_NCCL, misfit
from netsim.timing.loops import looped_nccl
from netsim.timing.steady import AGREE

RANKS = 128  # from which a ring is worth it
LEAST = 8  # hops that a run is longer than the one before: a FIFO's slots
TOO_MANY = 5_000_000  # rows of rings that are not run in full
TOLERATED = 0.02  # by which what hops add may differ, where hosts are not all alike


@dataclass(frozen=True)
class Hops:
    """The time of a full ring, from a run of `hops` of its `whole` hops; `spread` is by which part
    the hops seen differ from one another.
    """

    seconds: float
    hops: int
    whole: int
    spread: float

    @property
    def scale(self) -> float:
        """How many times more bytes the full ring moves."""
        return self.whole / self.hops


def has_long_ring(plan: Plan, collective: str) -> bool:
    """Whether a plan runs rings that are worth it, over nodes of equally many ranks."""
    if plan.algorithm != "Ring" or collective not in WALKS or len(plan.node) < RANKS:
        return False
    return len({len(ranks) for ranks in plan.nodes}) == 1


def too_long(collective: Collective, plan: Plan) -> bool:
    """Whether the rings of a plan have more rows than are run where a few hops tell the rest."""
    return has_long_ring(plan, collective.name) and rows_of_rings(collective, plan) > TOO_MANY


def check_rows(collective: Collective, plan: Plan) -> None:
    """Refuse rings that do not fit in full."""
    rows = rows_of_rings(collective, plan)
    if too_large := misfit(rows, rows * BYTES_A_ROW_OF_NCCL, collective.ranks):
        raise InputError(f"{too_large}; what a few hops add differs too much to tell the rest")


def time_rings(bench: Bench, collective: Collective, plan: Plan) -> Timing | None:
    """The time of a plan's rings from runs in which chunks go a few hops far; None if those do not
    tell it. Rows and links are those of the last such run.
    """
    runs: dict[int, Timing] = {}

    def seconds(hops: int) -> float:
        call = looped_nccl(collective, [replace(plan, hops=hops)], lambda made: made[0])
        runs[hops] = bench.time_looped(call)
        return runs[hops].seconds

    found = full_ring(plan, seconds)
    if found is None:
        return None
    last = runs[found.hops]
    off = found.spread + last.uncertainty * last.seconds / found.seconds
    words = f"rings of {found.whole} hops from what {found.hops} take"
    return replace(last, seconds=found.seconds, approximation=words, uncertainty=off)


def full_ring(plan: Plan, seconds: Callable[[int], float]) -> Hops | None:
    """The time of a plan's rings, by `seconds` of chunks that go so many ranks far.

    None if what hops add still differs too much when half of the ring has been run.
    """
    whole = len(plan.node) - 1
    unit = _unit(len(plan.nodes[0]))
    first = whole % unit or unit
    times = {hops: seconds(hops) for hops in (first, first + unit, first + 2 * unit)}
    while (last := max(times)) <= whole // 2:
        added = _added(times)
        spread = (max(added) - min(added)) / max(added)
        if spread <= AGREE or (spread <= TOLERATED and last > whole // 8):
            each = (times[last] - times[first]) / (last - first)
            return Hops(times[last] + (whole - last) * each, last, whole, spread)
        more = min(last + unit * ((last - first) // unit), whole)
        times[more] = seconds(more)
    return None


def _unit(ranks: int) -> int:
    """Whole hosts of so many ranks, at least `LEAST` hops."""
    return ranks * -(-LEAST // ranks)


def _added(times: dict[int, float]) -> list[float]:
    """What a hop adds from each run to the next."""
    hops = sorted(times)
    return [(times[b] - times[a]) / (b - a) for a, b in pairwise(hops)]
