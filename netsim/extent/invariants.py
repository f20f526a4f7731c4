"""What holds of every answer, whatever was asked: one table, asked wherever a time is printed.

The cheap ones are asked of every answer; the others run it again, and are asked in tests. One that
does not hold is a mistake of ours, never of the input.

A time that is approximate says within which bounds the true one lies. Where these reach up to what
the wire needs, the true time lies between the wire and the upper bound, and that is what is printed
(`lifted`). An exact time below the wire, or one that is so with all that it may be off, is refused.
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

ALWAYS, IN_TESTS = "every answer", "tests"
EQUAL = 1e-9  # relative: what rounding may do
EVEN = 0.01  # by which loops or hops may differ from one another in bytes
LIFTED = "no shorter than its links need"
MOVING = (TRANSFER, MULTICAST, SWITCH_REDUCE)


@dataclass(frozen=True)
class Answer:
    """A row, as far as it is known, and what it follows from: seconds, and the part by which they
    may be `off`; the operation whose rows were run; what passes over its links in all, in loops
    that were not run, too; the collective; size, algorithm and bus bandwidth as they are printed;
    the seconds of the same question run in full; those that no algorithm beats; and those that the
    slowest process finds (0: the same as `seconds`)."""

    seconds: float
    off: float = 0.0
    program: Program | None = None
    timeline: Timeline | None = None
    use: LinkUse | None = None
    collective: Collective | None = None
    size_bytes: float = 0.0
    bandwidths: tuple[float, float] | None = None
    bus_factor: float = 1.0
    in_full: Callable[[], float] | None = None
    limit: float = 0.0
    slowest: float = 0.0

    @property
    def longest(self) -> float:
        """The seconds by the slowest process: all bytes of an operation have passed by then. The
        mean may be less, for ranks run ahead of a slow link until FIFOs are full."""
        return max(self.seconds, self.slowest)


@dataclass(frozen=True, slots=True)
class Invariant:
    """A statement; when it is asked; and how an answer breaks it ("": it does not)."""

    name: str
    statement: str
    asked: str
    broken: Callable[[Answer], str]


def _wire(answer: Answer) -> str:
    if answer.use is None or answer.program is None:
        return ""
    least, link = needed(answer.use, answer.program.links)
    if least <= answer.longest * (1 + EQUAL):
        return ""
    name = answer.program.links.name(link)
    if not isfinite(least):
        carried = answer.use.amount[answer.use.link == link][0]
        return f"{name} carries {carried:.6g} bytes, though it never has any capacity"
    return f"{name} needs at least {least * 1e6:.6g} us, the time is {answer.longest * 1e6:.6g} us"


def delivered(schedule: Schedule) -> float:
    """Bytes that all rows bring to ranks from others: those of a multicast to each of its members,
    those of an in-switch reduction from each of them."""
    styles = schedule.styles
    times = [style.multiplicity * style.copies * (style.kind in MOVING) for style in styles]
    brought = schedule.amount * np.array(times, np.float64)[schedule.style]
    grouped = np.array([style.kind in (MULTICAST, SWITCH_REDUCE) for style in styles])
    if not grouped.any():
        return float(brought.sum())
    rows = np.flatnonzero(grouped[schedule.style])
    cast = schedule.kind[rows] == MULTICAST
    src, dst = schedule.src[rows].astype(np.int64), schedule.dst[rows]
    group, one = np.where(cast, dst, src), np.where(cast, src, dst)
    each = np.bincount(group * schedule.ranks + one, brought[rows])
    ends = (divmod(pair, schedule.ranks) for pair in np.flatnonzero(each).tolist())
    others = [len(schedule.groups[g]) - (rank in schedule.groups[g]) for g, rank in ends]
    return float(brought.sum() - each.sum() + each[each != 0] @ np.array(others, np.float64))


def least_delivered(collective: Collective) -> float:
    """Bytes that must reach ranks from others, however it is done. Each rank's contribution to a
    sum has to meet another one, and each rank that is to have what it has not has to get it."""
    ranks, block = collective.ranks, float(collective.count * collective.element_bytes)
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
    program, use = answer.program, answer.use
    if program is None or use is None or answer.collective is None:
        return ""
    least, brought = least_delivered(answer.collective), delivered(program.schedule)
    if brought >= least * (1 - EQUAL):
        return ""
    # Rows may stand for further loops, steps or hops, which the use of links has; copies do not.
    written = link_amounts(program)[use.link]
    more = float(np.divide(use.amount, written, out=np.ones(len(use)), where=written > 0).max())
    brought *= max(1.0, more)
    if brought >= least * (1 - (EVEN if more > 1 + EQUAL else EQUAL)):
        return ""
    return f"rows bring {brought:.6g} bytes to ranks, {least:.6g} must reach them"


def _bounds(answer: Answer) -> str:
    seconds, off = answer.seconds, answer.off
    if not (isfinite(seconds) and seconds >= 0.0):
        return f"{seconds!r} seconds are no time"
    if not (isfinite(off) and off >= 0.0):
        return f"{off!r} is no part by which a time may be off"
    timeline = answer.timeline
    if timeline is None or not len(timeline):
        return ""
    early = int(np.argmin(timeline.end - timeline.start))
    if timeline.end[early] >= timeline.start[early] and timeline.start.min() >= 0.0:
        return ""
    return f"row {early} ends before it starts, or one starts before all does"


def _bandwidths(answer: Answer) -> str:
    if answer.bandwidths is None or answer.seconds <= 0.0:
        return ""
    algorithm = answer.size_bytes / answer.seconds / 1e9
    for name, told, meant in zip(
        ("algorithm", "bus"),
        answer.bandwidths,
        (algorithm, algorithm * answer.bus_factor),
        strict=True,
    ):
        if abs(told - meant) > EQUAL * meant:
            return f"{name} bandwidth {told!r} GB/s, bytes and time make it {meant!r}"
    return ""


def _engines(answer: Answer) -> str:
    if answer.program is None:
        return ""
    one, other = (simulate(answer.program, engine) for engine in ("simpy", "compiled"))
    apart = np.abs(one.end - other.end)
    worst = int(np.argmax(apart)) if len(apart) else 0
    if not len(apart) or apart[worst] <= EQUAL * one.makespan:
        return ""
    ends = f"{one.end[worst]!r} s with SimPy's engine, {other.end[worst]!r} s with the compiled one"
    return f"row {worst} ends at {ends}"


def _rung(answer: Answer) -> str:
    if answer.in_full is None:
        return ""
    full = answer.in_full()
    if abs(full - answer.seconds) <= (answer.off + EQUAL) * answer.seconds:
        return ""
    told = f"{answer.seconds!r} s within {answer.off:.3g} of that"
    return f"told are {told}, the run in full takes {full!r} s"


def _limit(answer: Answer) -> str:
    """Asked where a limit is known: of rows with `limits: true`, of explanations, and in tests."""
    most = answer.longest * (1 + answer.off + EQUAL)
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
        "bytes", "rows bring all to ranks that these are to have and do not have", ALWAYS, _bytes
    ),
    Invariant(
        "bounds",
        "a time is a time, no row ends before it starts, and bounds are bounds",
        ALWAYS,
        _bounds,
    ),
    Invariant(
        "bandwidths", "bandwidths are bytes divided by the time beside them", ALWAYS, _bandwidths
    ),
    Invariant(
        "engines", f"both engines end every row at the same time, to {EQUAL:g}", IN_TESTS, _engines
    ),
    Invariant(
        "rung",
        "a time that is told from fewer rows lies within its bounds of that in full",
        IN_TESTS,
        _rung,
    ),
    Invariant(
        "limit",
        "no time is below what cuts of the links and distances leave any algorithm",
        ALWAYS,
        _limit,
    ),
)


def broken(answer: Answer, asked: str = ALWAYS) -> list[str]:
    """How an answer breaks the invariants that are asked so."""
    told = ((one.name, one.broken(answer)) for one in INVARIANTS if one.asked == asked)
    return [f"{name}: {words}" for name, words in told if words]


def ask(answer: Answer, about: str) -> None:
    """Refuse an answer that breaks an invariant of those that are always asked."""
    if found := broken(answer):
        raise InvariantError(about, found)


def lifted(timing: Result) -> Result:
    """The timing, raised to what its busiest link needs if its stated error allows that.

    The slowest process cannot take less than the busiest link needs. If an approximate time of that
    process is less, but not with all of its stated error, the need of the link becomes its time,
    and the upper bound stays. An exact time may be less by rounding (`AGREE`). The printed time,
    mostly a mean over processes, is raised by the same factor."""
    least, _ = needed(timing.use, timing.program.links)
    slowest = max(timing.seconds, timing.slowest)
    if slowest >= least or timing.seconds <= 0.0:
        return timing
    raised = replace(timing, seconds=timing.seconds * (least / slowest), slowest=least)
    if not timing.approximation:
        is_rounding = least <= slowest * (1 + AGREE)
        return raised if is_rounding else timing
    high = slowest * (1 + timing.uncertainty)
    if high < least:
        return timing
    words = f"{timing.approximation}, {LIFTED}"
    return replace(raised, approximation=words, uncertainty=high / least - 1)


def sound(timing: Result, collective: Collective, about: str) -> Result:
    """A timing that breaks no invariant, lifted to the wire if it says that it may lie there."""
    found = lifted(timing)
    told = found.seconds, found.uncertainty, found.program, found.timeline, found.use
    ask(Answer(*told, collective, slowest=found.slowest), about)
    return found


def sound_step(program: Program, timeline: Timeline, about: str) -> None:
    """Refuse the run of a training step that breaks an invariant."""
    use = link_use(program, timeline)
    ask(Answer(timeline.makespan, 0.0, program, timeline, use), about)
