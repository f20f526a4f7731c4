"""How a call is timed: rungs, exact ones first, each of which offers to do it or says why not.

Cells and training steps ask the same question here. All thresholds are `Limits`.
"""

from collections.abc import Callable
from dataclasses import replace

from netsim.base.errors import InputError
from netsim.base.values import dataclass
from netsim.collectives.collective import Collective
from netsim.nccl.schedules.plan import Plan
from netsim.nccl.schedules.ring import WALKS, rows_of_rings
from netsim.timing.bench import Bench, Timing
from netsim.timing.fits import BYTES_A_ROW_OF_NCCL, misfit
from netsim.timing.loops import Looped, looped_nccl
from netsim.timing.rings import full_ring, runs_of, why_whole
from netsim.timing.steady import AGREE


@dataclass(frozen=True, slots=True)
class Limits:
    """Where one way to time a call ends and another begins.

    `rows` of rings are run in full at most, where fewer may tell the rest. Runs that are compared
    differ by at least so many `hops` (as a FIFO has slots); what these add is one steady state if
    it differs by no more than `agree`, and may still be taken for one up to `tolerated`. Rings of
    a training step are folded from so many rows on (`folded`), from which on a few hops stand for
    what they move as well.
    """

    rows: int = 5_000_000
    hops: int = 8
    agree: float = AGREE
    tolerated: float = 0.02
    folded: int = 30_000


LIMITS = Limits()


@dataclass(frozen=True)
class Call:
    """A call, with its `loops` as it is written down, folded where it may be; `plan` is what NCCL's
    only communicator does in it, None where there are several, or none.
    """

    collective: Collective
    loops: Looped
    plan: Plan | None = None

    @property
    def rows_of_rings(self) -> int:
        """Rows of the rings that it runs; 0 where it runs none."""
        plan = self.plan
        if plan is None or plan.algorithm != "Ring" or self.collective.name not in WALKS:
            return 0
        return rows_of_rings(self.collective, plan)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a rung does not time a call."""

    words: str


@dataclass(frozen=True, slots=True)
class Ended:
    """The time of a call; `hops` is how far chunks went round rings for it, 0: all the way."""

    timing: Timing
    hops: int = 0


@dataclass(frozen=True, slots=True)
class Offer:
    """How a rung times a call, which may end in a refusal, too."""

    time: Callable[[Bench], Ended | Refusal]


Rung = Callable[[Call, Limits], Offer | Refusal]


def whole(call: Call, limits: Limits) -> Offer | Refusal:
    """Every row that is written down."""
    rows = call.rows_of_rings
    if rows > limits.rows:
        return Refusal(f"{rows:.2g} rows are more than {limits.rows:.2g}")
    return _in_full(call)


def fewer_hops(call: Call, limits: Limits) -> Offer | Refusal:
    """Rings in which chunks go a few hosts far: what further ones add is extrapolated."""
    if call.plan is None:
        return Refusal("only rings of a single communicator are told from a few hops")
    if why := why_whole(call.collective, call.plan, limits.hops):
        return Refusal(why)
    plan = call.plan
    return Offer(lambda bench: _by_hops(bench, call.collective, plan, limits))


def as_memory_allows(call: Call, limits: Limits) -> Offer | Refusal:
    """Every row that is written down, however many, as long as there is memory for them."""
    del limits
    rows = call.rows_of_rings
    why = misfit(rows, rows * BYTES_A_ROW_OF_NCCL, call.collective.ranks)
    return Refusal(why) if why else _in_full(call)


RUNGS: tuple[Rung, ...] = (whole, fewer_hops, as_memory_allows)


def chosen(call: Call, limits: Limits = LIMITS) -> Rung | None:
    """The first rung that offers to time a call; nothing is simulated for that."""
    return next((rung for rung in RUNGS if isinstance(rung(call, limits), Offer)), None)


def timed(bench: Bench, call: Call, limits: Limits = LIMITS) -> Ended:
    """The time of a call, from the first rung that tells it."""
    why = []
    for rung in RUNGS:
        found: Offer | Refusal | Ended = rung(call, limits)
        if isinstance(found, Offer):
            found = found.time(bench)
        if isinstance(found, Ended):
            return found
        why.append(found.words)
    raise InputError("; ".join(reversed(why)))


def of_plan(collective: Collective, plan: Plan) -> Call:
    """The call of a plan."""
    return Call(collective, looped_nccl(collective, [plan], lambda made: made[0]), plan)


def _in_full(call: Call) -> Offer:
    return Offer(lambda bench: Ended(bench.time_looped(call.loops)))


def _by_hops(bench: Bench, collective: Collective, plan: Plan, limits: Limits) -> Ended | Refusal:
    """Rows are those of the last run; on links, each hop leaves as much as another."""
    timings: dict[int, Timing] = {}

    def seconds(hops: int) -> float:
        timings[hops] = bench.time_looped(of_plan(collective, replace(plan, hops=hops)).loops)
        return timings[hops].seconds

    runs = runs_of(collective, plan, limits.hops)
    found = full_ring(len(plan.node) - 1, runs, seconds, limits.agree, limits.tolerated)
    if found is None:
        return Refusal("what a few hops add differs too much to tell the rest")
    last = timings[found.hops]
    off = found.uncertainty + last.uncertainty * last.seconds / found.seconds
    words = f"rings of {found.whole} hops from what {found.hops} take"
    use = replace(last.use, amount=last.use.amount * (found.whole / found.hops))
    timing = replace(last, seconds=found.seconds, approximation=words, uncertainty=off, use=use)
    return Ended(timing, found.hops)
