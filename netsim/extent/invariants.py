"""Statements that hold for every answer, whatever the task: one table of them.

The cheap ones are checked before a time is printed; the others need further simulations and are
checked in tests. If one does not hold, the mistake is netsim's and never the input's, and the
answer is refused.

No time can be shorter than the busiest link needs for its bytes. If an approximate time is shorter,
but its stated error includes the time that the link needs, that time is printed (`raised`).
"""

from collections.abc import Callable
from dataclasses import replace
from math import isfinite

import numpy as np

from netsim.base.errors import InvariantError
from netsim.base.values import dataclass
from netsim.collectives.collective import Collective
from netsim.engines.engine import simulate
from netsim.extent.result import Result
from netsim.extent.steady_state import AGREE
from netsim.metrics.links import LinkUse, link_amounts, link_use, needed
from netsim.program.program import Program, Timeline
from netsim.schedule.schedule import MULTICAST, SWITCH_REDUCE, TRANSFER, Schedule

ALWAYS = "every answer"
IN_TESTS = "tests"
ROUNDING = 1e-9
"""The relative difference that rounding may make."""
MAX_DIFFERENCE_OF_LOOPS = 0.01
"""The fraction by which loops or hops may differ in their bytes."""
NOT_BELOW_LINKS = "no shorter than its links need"
MOVING = (TRANSFER, MULTICAST, SWITCH_REDUCE)


@dataclass(frozen=True)
class Answer:
    """A time in seconds, and the data from which it was computed. A check is skipped if it lacks
    data.
    """

    seconds: float
    uncertainty: float = 0.0
    """The largest relative error of `seconds`."""
    program: Program | None = None
    """The rows of one operation that were simulated."""
    timeline: Timeline | None = None
    use: LinkUse | None = None
    """What passes over each link in all, also in loops that were not simulated."""
    collective: Collective | None = None
    size_bytes: float = 0.0
    bandwidths: tuple[float, float] | None = None
    """Algorithm and bus bandwidth as they are printed, in GB/s."""
    bus_factor: float = 1.0
    in_full: Callable[[], float] | None = None
    """Simulates all rows of the same task, and returns the seconds."""
    limit: float = 0.0
    """The seconds that no algorithm can be faster than; 0: unknown."""
    slowest: float = 0.0
    """The seconds of the slowest process; 0: the same as `seconds`."""

    @property
    def longest(self) -> float:
        """The seconds of the slowest process, by which all bytes of an operation have passed.

        The mean over processes may be less than a link needs, as ranks run ahead of a slow link
        until FIFOs are full.
        """
        return max(self.seconds, self.slowest)


@dataclass(frozen=True, slots=True)
class Invariant:
    """A statement about every answer.

    - `checked`: ALWAYS or IN_TESTS.
    - `broken`: returns how an answer breaks the statement, as a clause; empty if it holds.
    """

    name: str
    statement: str
    checked: str
    broken: Callable[[Answer], str]


def _wire(answer: Answer) -> str:
    """How the time of the slowest process is shorter than the busiest link needs; empty if it is
    not.
    """
    if answer.use is None or answer.program is None:
        return ""
    least, link = needed(answer.use, answer.program.links)
    if least <= answer.longest * (1 + ROUNDING):
        return ""
    name = answer.program.links.name(link)
    if not isfinite(least):
        carried = answer.use.amount[answer.use.link == link][0]
        return f"{name} carries {carried:.6g} bytes, though it never has any capacity"
    return f"{name} needs at least {least * 1e6:.6g} us, the time is {answer.longest * 1e6:.6g} us"


def delivered(schedule: Schedule) -> float:
    """The bytes that all rows bring to ranks from other ranks.

    The bytes of a multicast count for each member that receives them, those of an in-switch
    reduction for each member that they come from.
    """
    styles = schedule.styles
    times = [style.multiplicity * style.copies * (style.kind in MOVING) for style in styles]
    brought = schedule.amount * np.array(times, np.float64)[schedule.style]
    grouped = np.array([style.kind in (MULTICAST, SWITCH_REDUCE) for style in styles])
    if not grouped.any():
        return float(brought.sum())
    rows = np.flatnonzero(grouped[schedule.style])
    cast = schedule.kind[rows] == MULTICAST
    src = schedule.src[rows].astype(np.int64)
    dst = schedule.dst[rows]
    group = np.where(cast, dst, src)
    single = np.where(cast, src, dst)
    by_pair = np.bincount(group * schedule.ranks + single, brought[rows])
    ends = (divmod(pair, schedule.ranks) for pair in np.flatnonzero(by_pair).tolist())
    others = [len(schedule.groups[g]) - (rank in schedule.groups[g]) for g, rank in ends]
    to_members = by_pair[by_pair != 0] @ np.array(others, np.float64)
    return float(brought.sum() - by_pair.sum() + to_members)


def least_delivered(collective: Collective) -> float:
    """The bytes that must reach ranks from other ranks with any algorithm.

    The contribution of each rank to a sum must reach another rank, and each rank must receive the
    part of its output that it does not have.
    """
    ranks = collective.ranks
    block = float(collective.count * collective.element_bytes)
    if collective.name == "alltoallv":
        others = np.array(collective.matrix, np.float64)
        return float((others.sum() - np.trace(others)) * collective.element_bytes)
    if collective.name == "p2p":
        return block * sum(src != dst for src, dst in collective.pairs)
    if collective.name == "sendrecv":
        return block * ranks * (ranks > 1)
    blocks = {
        "all_reduce": 2,
        "all_gather": ranks,
        "reduce_scatter": ranks,
        "alltoall": ranks,
    }
    return block * blocks.get(collective.name, 1) * (ranks - 1)


def _bytes(answer: Answer) -> str:
    """How rows bring fewer bytes to ranks than must reach them; empty if they do not."""
    program = answer.program
    use = answer.use
    if program is None or use is None or answer.collective is None:
        return ""
    least = least_delivered(answer.collective)
    brought = delivered(program.schedule)
    if brought >= least * (1 - ROUNDING):
        return ""
    # The use of links counts all loops, steps and hops; the rows may have fewer of them.
    written = link_amounts(program)[use.link]
    ratios = np.divide(use.amount, written, out=np.ones(len(use)), where=written > 0)
    times_as_many = float(ratios.max())
    brought *= max(1.0, times_as_many)
    tolerance = MAX_DIFFERENCE_OF_LOOPS if times_as_many > 1 + ROUNDING else ROUNDING
    if brought >= least * (1 - tolerance):
        return ""
    return f"rows bring {brought:.6g} bytes to ranks, {least:.6g} must reach them"


def _bounds(answer: Answer) -> str:
    """How times or errors are negative or not finite, or a row ends before it starts; empty if none
    is.
    """
    seconds = answer.seconds
    uncertainty = answer.uncertainty
    if not (isfinite(seconds) and seconds >= 0.0):
        return f"{seconds!r} seconds are no time"
    if not (isfinite(uncertainty) and uncertainty >= 0.0):
        return f"{uncertainty!r} is no relative error"
    timeline = answer.timeline
    if timeline is None or not len(timeline):
        return ""
    early = int(np.argmin(timeline.end - timeline.start))
    if timeline.end[early] >= timeline.start[early] and timeline.start.min() >= 0.0:
        return ""
    return f"row {early} ends before it starts, or one starts before all does"


def _bandwidths(answer: Answer) -> str:
    """How a printed bandwidth differs from bytes divided by time; empty if none does."""
    if answer.bandwidths is None or answer.seconds <= 0.0:
        return ""
    algorithm = answer.size_bytes / answer.seconds / 1e9
    for name, printed, computed in zip(
        ("algorithm", "bus"),
        answer.bandwidths,
        (algorithm, algorithm * answer.bus_factor),
        strict=True,
    ):
        if abs(printed - computed) > ROUNDING * computed:
            return f"{name} bandwidth {printed!r} GB/s, but bytes and time make it {computed!r}"
    return ""


def _engines(answer: Answer) -> str:
    """How both engines differ in the end of a row; empty if they agree to `ROUNDING`."""
    if answer.program is None:
        return ""
    simpy, compiled = (simulate(answer.program, engine) for engine in ("simpy", "compiled"))
    differences = np.abs(simpy.end - compiled.end)
    worst = int(np.argmax(differences)) if len(differences) else 0
    if not len(differences) or differences[worst] <= ROUNDING * simpy.makespan:
        return ""
    by_simpy = simpy.end[worst]
    by_compiled = compiled.end[worst]
    return (
        f"row {worst} ends at {by_simpy!r} s by SimPy's engine, {by_compiled!r} s by the compiled"
    )


def _stated_error(answer: Answer) -> str:
    """How the time differs from the full simulation by more than its stated error; empty if it does
    not.
    """
    if answer.in_full is None:
        return ""
    full = answer.in_full()
    if abs(full - answer.seconds) <= (answer.uncertainty + ROUNDING) * answer.seconds:
        return ""
    stated = f"{answer.seconds!r} s within {answer.uncertainty:.3g} of that"
    return f"{stated} are stated, but the full simulation takes {full!r} s"


def _limit(answer: Answer) -> str:
    """How the time is shorter than the limit, a time that no algorithm beats; empty if it is not.

    The limit is known for rows with `limits: true`, for explanations, and in tests.
    """
    most = answer.longest * (1 + answer.uncertainty + ROUNDING)
    if answer.limit <= 0.0 or answer.limit <= most:
        return ""
    return f"{answer.longest!r} s, though no algorithm takes less than {answer.limit!r} s"


INVARIANTS = (
    Invariant(
        "wire",
        "no link carries its bytes of an operation faster than its capacity allows",
        ALWAYS,
        _wire,
    ),
    Invariant(
        "bytes",
        "rows bring to each rank all bytes that it must get and does not have",
        ALWAYS,
        _bytes,
    ),
    Invariant(
        "bounds",
        "times and errors are finite and not negative, and no row ends before it starts",
        ALWAYS,
        _bounds,
    ),
    Invariant(
        "bandwidths", "bandwidths are bytes divided by the time beside them", ALWAYS, _bandwidths
    ),
    Invariant(
        "engines",
        f"both engines end every row at the same time, to {ROUNDING:g}",
        IN_TESTS,
        _engines,
    ),
    Invariant(
        "stated",
        "a time from fewer rows differs from the full simulation by no more than is stated",
        IN_TESTS,
        _stated_error,
    ),
    Invariant(
        "limit",
        "no time is below what cuts through the links and distances allow any algorithm",
        ALWAYS,
        _limit,
    ),
)


def broken(answer: Answer, checked: str = ALWAYS) -> list[str]:
    """How an answer breaks the invariants that are checked ALWAYS, or IN_TESTS: a clause for each
    that does not hold.
    """
    clauses = {
        invariant.name: invariant.broken(answer)
        for invariant in INVARIANTS
        if invariant.checked == checked
    }
    return [f"{name}: {clause}" for name, clause in clauses.items() if clause]


def check(answer: Answer, about: str) -> None:
    """Raise an InvariantError if an answer breaks an invariant that is always checked.

    `about` names the task in the message.
    """
    if clauses := broken(answer):
        raise InvariantError(about, clauses)


def raised(timing: Result) -> Result:
    """The result, raised to the time that its busiest link needs, if its stated error allows that.

    The slowest process cannot take less than the busiest link needs. If its time is an
    approximation and less than that, but not if the stated error is added, then the need of the
    link becomes its time, and the upper bound stays the same. An exact time may be less by rounding
    (`AGREE`). The printed time, mostly a mean over processes, is raised by the same factor.
    Otherwise the result is returned unchanged.
    """
    least, _ = needed(timing.use, timing.program.links)
    slowest = max(timing.seconds, timing.slowest)
    if slowest >= least or timing.seconds <= 0.0:
        return timing
    at_least = replace(timing, seconds=timing.seconds * (least / slowest), slowest=least)
    if not timing.approximation:
        is_rounding = least <= slowest * (1 + AGREE)
        return at_least if is_rounding else timing
    high = slowest * (1 + timing.uncertainty)
    if high < least:
        return timing
    words = f"{timing.approximation}, {NOT_BELOW_LINKS}"
    return replace(at_least, approximation=words, uncertainty=high / least - 1)


def sound(timing: Result, collective: Collective, about: str) -> Result:
    """The result after `raised` and after the checks of all invariants; an InvariantError if one is
    broken.
    """
    timing = raised(timing)
    answer = Answer(
        seconds=timing.seconds,
        uncertainty=timing.uncertainty,
        program=timing.program,
        timeline=timing.timeline,
        use=timing.use,
        collective=collective,
        slowest=timing.slowest,
    )
    check(answer, about)
    return timing


def sound_step(program: Program, timeline: Timeline, about: str) -> None:
    """Raise an InvariantError if the simulation of a training step breaks an invariant."""
    use = link_use(program, timeline)
    answer = Answer(seconds=timeline.makespan, program=program, timeline=timeline, use=use)
    check(answer, about)
