"""How a call is timed: one list of rungs, each of which offers to do it or says why not.

Cells, training steps, traces, explanations and the question whether a run fits ask here, and nobody
else decides. The first rungs time one operation from standstill; the last ones, operations back to
back, of which one is known by then. All thresholds are `Limits` (`extent/memory.py`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import islice, takewhile

import numpy as np

from netsim.base.errors import InputError
from netsim.base.units import format_time
from netsim.base.values import dataclass
from netsim.collectives.reduced import STEPS as STEPS_OF_RINGS
from netsim.engines.engine import choose, simulator
from netsim.extent import memory, steady
from netsim.extent.back_to_back import (
    Clock,
    doubt_of_estimate,
    estimated,
    last_of_equal,
    swing,
)
from netsim.extent.bench import Alone, Bench, Floats, InARow, Progress, Runs, ends_of, taking_part
from netsim.extent.call import Call, Looped, looped_fold
from netsim.extent.max_plus import Relayed, causes_of, relayed_in_a_row, replayed, whole_use
from netsim.extent.memory import LIMITS, Limits
from netsim.extent.steady import more_gained
from netsim.extent.textbook import ends_of_all, sketched, standing
from netsim.metrics.bound import Causes
from netsim.metrics.links import LinkUse, amounts_by, link_amounts, link_use, needed, use_of
from netsim.nccl.schedules.smaller import ends_by_rank, written_share
from netsim.program.program import Program, Timeline
from netsim.schedule.repeat import Launch
from netsim.schedule.schedule import Schedule

WIDTHS = 4  # by so many instants a time may be off at least, where they are wide
APART = 0.5  # what rounds of sends add may differ by so much: distances do
UNSURE, NARROW = 0.2, 64  # where times may be off by more, instants are up to so many times shorter
SHAKEN = 1e-12  # seconds
# By which one operation of a tree may differ from all: over few loops and with ranks that end at
# about the same time, and else; and by which these may end apart then.
FURTHER, AT_ONCE = (0.055, 0.11), 0.15
SAME_INSTANT = 1e-12  # ends so close, relatively, are one
BY_CHANNEL = "one channel for all that meet in nothing that can be full"
EQUAL = "heads with as much as each other"
TOGETHER = "its ranks end at about the same time"
ALONE = "more would be too many rows"
KEPT_BUSY = "it keeps a link busy"


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a rung does not time a call."""

    words: str


Follow = Callable[[Launch, int], tuple[Floats, bool]]

NOT_SHORT = Refusal("ranks end at too different times, or after too many loops")
ONCE = Refusal("what is alike is written down once")
TOO_DIFFERENT = Refusal("what a few hops add differs too much to tell the rest")


@dataclass(frozen=True)
class One:
    """One operation from standstill, of which `alone` was run. `ends` is when the ranks that take
    part are done, which may be off by the part `off`. `follow` tells when operations in a row are
    over by rank, and whether each is over before the next (None: that cannot be told); each is
    `rows`. `fewer` are runs with fewer loops."""

    alone: Alone
    ends: Floats
    use: LinkUse
    words: str = ""
    off: float = 0.0
    causes: Causes | None = None
    rows: int = 0
    follow: Follow | None = None
    fewer: Runs | None = None


@dataclass(frozen=True)
class Timing:
    """The time of one operation in seconds, and how it was found. `program` and `timeline` are
    those of one operation alone, or of what stands for it; `uncertainty` is by which part the
    answer can move. `use` is what passes over the links in all of it, `causes` what the time goes
    to where the timeline does not tell; `hops` is how far chunks went round rings for it, 0: all
    the way. `slowest` is the time that the slowest process finds (`seconds` is the mean)."""

    seconds: float
    program: Program
    timeline: Timeline
    use: LinkUse
    engine: str
    approximation: str = ""
    uncertainty: float = 0.0
    causes: Causes | None = None
    hops: int = 0
    slowest: float = 0.0


@dataclass(frozen=True)
class Asked:
    """A call, within which limits it is to be timed, and one operation of it once that is known."""

    call: Call
    limits: Limits
    one: One | None = None


@dataclass(frozen=True, slots=True)
class Offer:
    """How a rung times a call, which may end in a refusal, too. An exact rung has it written in
    some way (`work`), of so many `rows` that take so many `ways`, and says what they are (`note`).
    """

    run: Callable[[Bench], One | Timing | Refusal]
    work: Looped | None = None
    rows: int = 0
    ways: int = 0
    note: str = ""


Rung = Callable[[Asked], Offer | Refusal]


# **** One operation, exactly ****


def in_step(asked: Asked) -> Offer | Refusal:
    """One rank for all that keep step."""
    call, found = asked.call, sketched(asked.call)
    # Operations back to back fall out of step: they are followed where that is not too large.
    least = asked.limits.steps * (1 if call.task.is_single else 4)
    steps = None if found is None else found.together(least, asked.limits.early)
    if found is None or steps is None:
        return Refusal("ranks do not keep step")
    stands = standing(steps.symmetry)
    work = looped_fold(call, stands)

    def run(bench: Bench) -> One:
        alone = bench.alone(work.schedule())
        ends = ends_of_all(call, alone, steps.spread)
        use = use_of(alone.program, link_amounts(alone.program), float(ends.max()))
        return One(alone, ends + bench.launch.kernel, use)

    return Offer(run, work, found.rows(stands), found.ways(stands))


def max_plus(asked: Asked) -> Offer | Refusal:
    """Long rings whose lanes are never in each other's way, from their first steps."""
    found = sketched(asked.call)
    if found is None or not found.is_long(asked.limits.long):
        return Refusal("there are no long rings")
    if found.stands(asked.limits.rounds) is not None:
        return Refusal("what is alike is found in few rounds")
    work = found.relayed()
    if isinstance(work, str):
        return Refusal(work)
    sizes = len(work.program), len(work.program.paths)
    written = Looped(1, lambda _: work.schedule)
    note = (
        f"those of the first {STEPS_OF_RINGS} steps of every ring are shown, and what follows "
        f"them; the whole takes {format_time(work.seconds)}"
    )
    return Offer(lambda bench: _relayed(bench, work), written, *sizes, note)


def _relayed(bench: Bench, work: Relayed) -> One:
    engine, launch = choose(work.program, bench.engine), bench.launch
    runs = simulator(work.program, engine)
    timeline = runs.timeline(progress=bench.progress)
    ends = replayed(work.relay, work.costs, np.zeros(work.relay.ranks)) + launch.kernel
    alone = Alone(work.schedule, work.program, timeline, ends[None], runs, engine)
    return One(
        alone,
        ends[taking_part(work.schedule)],
        whole_use(work, float(ends.max()) - launch.kernel),
        causes=causes_of(work),
        rows=len(work.program),
        follow=lambda launch, times: (relayed_in_a_row(work, launch, times), False),
    )


def folded(asked: Asked) -> Offer | Refusal:
    """One row for each class of equal rows: all in a class have the same rate at all times."""
    call = asked.call
    if call.task.is_nccl:
        if call.rows_of_rings < asked.limits.folded:
            return Refusal("it has few rows")
        one = _form(asked)
        return Refusal("nothing in it is alike") if one is call else _in_full(one, asked.limits)
    found = sketched(call)
    early = found and found.is_long(asked.limits.long) and found.stands(asked.limits.rounds)
    stands = early or (found and found.stands())
    if not found or not stands:
        return Refusal("nothing in it is alike")
    work = looped_fold(call, stands)
    sizes = found.rows(stands), found.ways(stands)
    return Offer(lambda bench: _all_of(bench, work, asked.limits), work, *sizes)


def whole(asked: Asked) -> Offer | Refusal:
    """Every row."""
    if _form(asked) is not asked.call:
        return ONCE
    return _in_full(asked.call, asked.limits)


def _in_full(call: Call, limits: Limits) -> Offer | Refusal:
    """All loops of a call, unless these are too many rows."""
    work, rings = call.looped, call.rows_of_rings
    if rings > limits.hopped * limits.rings:
        return Refusal(f"{rings:.2g} rows are more than {limits.hopped * limits.rings:.2g}")
    if limits.rows < np.inf:
        if _may_be_cut(work, limits) and work.rows() > limits.rows:
            return Refusal(f"{work.rows():.2g} rows are more than {limits.rows:.2g}")
    elif why := _misfit(call, rings, limits):
        return Refusal(why)
    return Offer(lambda bench: _all_of(bench, work, limits), work)


def _misfit(call: Call, rings: int, limits: Limits) -> str:
    if rings or not _may_be_cut(call.looped, limits):
        return memory.misfit(rings, rings * memory.BYTES_A_ROW_OF_NCCL, call.collective.ranks)
    rows = call.looped.rows()
    return memory.misfit(rows, rows * memory.BYTES_A_ROW, call.collective.ranks)


def _all_of(bench: Bench, work: Looped, limits: Limits) -> One:
    runs = Runs(bench, work)
    alone = runs[work.loops]
    use, rows = link_use(alone.program, alone.timeline), len(alone.program)
    fewer = runs if _may_be_cut(work, limits) else None
    follow = _following(alone, bench.engine)
    how = EQUAL if work.doubt else "", work.doubt
    return One(alone, alone.first[alone.busy], use, *how, rows=rows, follow=follow, fewer=fewer)


def _following(alone: Alone, engine: str) -> Follow:
    known = cache(lambda launch: InARow(alone, launch, engine))
    return lambda launch, times: known(launch).ends(times)


# **** One operation, within what is stated ****


def by_channel(asked: Asked) -> Offer | Refusal:
    """Trees, one channel for all that meet in nothing that can ever be full but on their ranks."""
    call, limits = asked.call, asked.limits
    if limits.exact or not _is_tree(call):
        return Refusal("channels that do not meet are left out of large trees only")
    if limits.rows < np.inf and _may_be_cut(call.looped, limits):
        return Refusal("fewer loops are tried first")
    if _can_be_timed(call, _form(asked).looped.rows(), limits):
        return Refusal("it has few rows")
    many = call.task.is_single or limits.in_a_row[0] * call.looped.rows() > limits.restless
    if not many and call.looped.loops > limits.soon:
        return NOT_SHORT
    one = call.by_channel
    if one is None:
        return Refusal("its channels meet in what can be full")

    def run(bench: Bench) -> One | Refusal:
        found = _by_channel(bench, one, limits)
        return found if many or _is_short(call, found, limits) else NOT_SHORT

    return Offer(run)


def _by_channel(bench: Bench, call: Call, limits: Limits) -> One:
    """What it may be off shows in runs in which ranks begin a picosecond apart: where queues are
    full, the least difference grows from loop to loop, and no order of sums is right. Operations in
    a row are not told (nor asked, for all of them may be wrong): channels get out of step."""
    one, ranks = _all_of(bench, call.looped, limits), call.collective.ranks
    alone = one.alone
    begins = np.random.default_rng(0).uniform(0, SHAKEN, (2 if call.task.is_single else 0, ranks))
    shaken = [alone.simulator.timeline(each).makespan for each in begins]
    off = 2 * max((abs(each / alone.timeline.makespan - 1) for each in shaken), default=0.0)
    own = ends_of(alone.program, alone.timeline, apart=True)
    ends = ends_by_rank(call.plans[0], own) + bench.launch.kernel
    return replace(one, ends=ends, words=BY_CHANNEL, off=off, follow=None, fewer=None)


def wide_instants(asked: Asked) -> Offer | Refusal:
    """Many sends that meet: rates are solved once for all that changes within a short time."""
    call, limits = _form(asked), asked.limits
    if limits.exact or not any(plan.transfers is not None for plan in call.plans):
        return Refusal("instants are wide for grouped sends only")
    if written_share(call.plans[0]) < limits.little or call.topology.changes:
        return Refusal("it folds, or capacities change")
    crowd, work = limits.crowded / len(call.task.gpus), call.looped
    if work.rows() < crowd:
        return Refusal("it has few rows")
    if limits.rows < np.inf and _may_be_cut(work, limits) and work.rows(work.first) < crowd:
        return Refusal("fewer loops are tried first")
    return Offer(lambda bench: _wide(bench, work, limits))


def _wide(bench: Bench, work: Looped, limits: Limits) -> One | Refusal:
    """From its first loops: each further one takes what the busiest link needs for it, or as much
    longer as those did. What instants may be off shows in some that are twice and four times as
    wide: three times as much as the former differ is stated, or half as much of the latter, and no
    less than some widths. Where that is much they are halved."""
    loops = min(work.loops, max(work.least, limits.crowd * work.least // len(work.shortest)))
    program = bench.placed(work.schedule(loops))
    if program.paths.choices is not None:
        return Refusal("messages choose their paths")
    amounts = every = link_amounts(program)
    if left := work.loops - loops:
        less = amounts_by(program.links, bench.placed(work.write(loops - 1)))
        every = amounts + left * (amounts - less)
    need, whole = (use_of(program, each, 1.0).utilisation.max() for each in (amounts, every))
    instant = limits.instant * len(program) * need
    alone = bench.alone(program.schedule, replace(program, instant=instant))
    widest, wider = (alone.simulator.timeline(instant=n * instant).makespan for n in (4, 2))
    timeline, narrowest = alone.timeline, instant / NARROW
    while True:
        seconds = timeline.makespan
        off = max(WIDTHS * instant, 3 * abs(wider - seconds), 1.5 * abs(widest - seconds))
        if off <= UNSURE * seconds or instant <= narrowest:
            break
        widest, wider, instant = wider, seconds, instant / 2
        timeline = alone.simulator.timeline(instant=instant)
    alone = replace(alone, timeline=timeline, ends=ends_of(program, timeline) + bench.launch.kernel)
    off += max(0.0, seconds - need) * (whole / need - 1)
    use = use_of(alone.program, every, total := seconds + whole - need)
    words = f"{loops} of {work.loops} loops, rates solved anew every {format_time(instant)}"
    ends = alone.first[alone.busy] + (whole - need)
    return One(alone, ends, use, words, off / total, rows=len(program))


def fewer_loops(asked: Asked) -> Offer | Refusal:
    """Loops that recur within a run go on."""
    call, limits = _form(asked), asked.limits
    work = call.looped
    if limits.exact or call.rows_of_rings > limits.rings:
        return Refusal("a loop has too many rows")
    if not _may_be_cut(work, limits):
        return Refusal(f"{work.loops} loops are too few to leave some out")
    if call.rows_of_rings or any(plan.transfers for plan in call.plans):
        limits = replace(limits, repeated=np.inf)  # others are told from these: errors would add up

    def run(bench: Bench) -> One | Refusal:
        fewer = None if work.rows() < limits.meeting else asked.call.by_channel
        found = None if fewer is None else _by_loops(Runs(bench, fewer.looped), limits)
        return found if isinstance(found, Refusal) else _by_loops(Runs(bench, work), limits)

    return Offer(run)


def _form(asked: Asked) -> Call:
    """The call as it is written: folded, where that is worth it."""
    call, limits = asked.call, asked.limits
    if "folded" in limits.without or call.rows_of_rings < limits.folded:
        return call
    if (
        not limits.exact
        and call.task.is_nccl
        and call.looped.loops * call.collective.ranks > limits.level
    ):
        return call.level.folded or call
    return call.folded or call


def _may_be_cut(work: Looped, limits: Limits) -> bool:
    return work.first <= limits.part * work.loops


def _by_loops(runs: Runs, limits: Limits) -> One | Refusal:
    work, size = runs.work, runs.work.first
    while size <= limits.part * work.loops and work.rows(size) <= limits.most:
        one = _recurring(runs, size) if runs.has_lanes(size) else _repeating(runs, size)
        if one is None and work.rows() > limits.repeated and size > work.first:
            found = steady.paced(runs.ends, work.loops, size, steady.LATE, runs.need(size))
            one = _with_all_loops(runs, size, found)
        if one is not None:
            return one
        size *= 2
    one, last = None, size // 2
    if work.rows() > limits.repeated and last >= 4 * work.first:
        how = runs.ends, work.loops, last, limits.doubt
        found = steady.paced(*how, runs.need(last)) or steady.paced(*how)
        one = _with_all_loops(runs, last, found)
    return one or Refusal(f"no steady state in {last} of {work.loops} loops")


def _recurring(runs: Runs, size: int) -> One | None:
    """With all loops, from a run with the first of them in which they recur."""
    work, found = runs.work, runs.recurs(size)
    last = size if found is None else size - (size - work.loops) % found.loops
    if last != size:
        found = runs.recurs(last)  # a verdict at another phase
    if found is None or (work.loops - last) % found.loops:
        return None
    ends, seconds = runs.ends(last), found.seconds / found.loops
    added = np.where(ends > runs.bench.launch.kernel, (work.loops - last) * seconds, 0.0)
    return _with_all_loops(runs, last, steady.onward(ends, added, found.spread))


def _repeating(runs: Runs, size: int) -> One | None:
    """The same from several runs, whose rows cannot be told apart by loops."""
    work, least = runs.work, runs.work.least
    shortest = float(runs.ends(least).max())
    each = (float(runs.ends(size).max()) - shortest) / (size - least)
    if (size - steady.LONGEST_PERIOD - 1) * each < shortest - (least - 1) * each:
        return None  # loops that are all under way at once take the same time, but not for long
    for period in range(1, steady.LONGEST_PERIOD + 1):
        last = size - (size - work.loops) % period
        pairs = [(last - k - period, last - k) for k in range(period + 1)]
        found = steady.extend(runs.ends, work.loops, pairs)
        if found is not None:
            return _with_all_loops(runs, last, found)
    return None


def _with_all_loops(runs: Runs, last: int, found: steady.Extended | None) -> One | None:
    if found is None:
        return None
    work, alone = runs.work, runs[last]
    by_rank = found.ends.reshape(alone.ends.shape).max(axis=0)[alone.busy]
    use = runs.use_of_all(last, found.seconds)
    if use is not None and found.seconds < needed(use, alone.program.links)[0] * (1 - steady.AGREE):
        return None  # FIFOs are not full yet: from then on the links decide
    words = ", ".join(filter(None, (f"{last} of {work.loops} loops", found.how)))
    words += f", {EQUAL}" if work.doubt else ""
    return One(alone, by_rank, use, words, found.off + work.rounding + work.doubt, fewer=runs)


def fewer_hops(asked: Asked) -> Offer | Refusal:
    """Rings in which chunks go a few hosts far: what further ones add goes on."""
    call, limits = _form(asked), asked.limits
    if not asked.call.may_fold or len(call.plans) != 1:
        return Refusal("only rings of a single communicator are told from a few hops")
    if why := steady.why_whole(call.collective, call.plans[0], limits.hops):
        return Refusal(why)
    if limits.exact or call.rows_of_rings <= limits.hopped * limits.rings:
        return Refusal("rings have few enough rows")
    return Offer(lambda bench: _by_hops(bench, asked.call, call, limits))


def fewer_rounds(asked: Asked) -> Offer | Refusal:
    """Sends to all of the first rounds, in some turns of all channels: what others add goes on."""
    call = _sent_to_all(asked)
    if isinstance(call, Refusal):
        return call
    return Offer(lambda bench: _by_rounds(bench, call, asked.limits))


def _sent_to_all(asked: Asked) -> Call | Refusal:
    """The sends, as they are written, of which a few rounds may tell the others."""
    call, limits = _form(asked), asked.limits
    if limits.exact or not asked.call.may_fold or len(call.plans) != 1:
        return Refusal("only sends of a single communicator are told from a few rounds")
    plan, sends, ranks = call.plans[0], call.plans[0].transfers, call.collective.ranks
    if sends is None or call.collective.name != "alltoall" or sends.first:
        return Refusal("only sends to all have rounds to leave out")
    if len({len(nodes) for nodes in plan.nodes}) > 1:
        return Refusal("nodes that send to all have different numbers of ranks")
    if len(_first_rounds(call, steady.WINDOW + 1)) <= steady.WINDOW:
        return Refusal(f"{ranks} rounds of sends are too few to leave some out")
    if _rows_of_rounds(call, ranks) <= limits.meeting:
        return Refusal("sends have few enough rows")
    return call


def _first_rounds(call: Call, runs: int) -> list[int]:
    """How many rounds the first so many runs of sends to all have."""
    sends = call.plans[0].transfers
    assert sends is not None
    return list(islice(steady.rounds_of(sends, call.looped.least), runs))


def _rows_of_rounds(call: Call, rounds: int) -> float:
    """About how many rows so many rounds of sends to all have, with the fewest loops."""
    ranks, share = call.collective.ranks, written_share(call.plans[0])
    return A_STEP * call.looped.least * rounds * ranks * share


def _by_rounds(bench: Bench, call: Call, limits: Limits) -> One | Refusal:
    """One operation from its first rounds; on links, each leaves as much as another."""
    known = dict[int, One]()

    def alone(rounds: int) -> float:
        known.clear()  # the next one needs the memory
        one = _climbed(bench, Asked(call.of_hops(rounds), limits), SINGLE)
        assert isinstance(one, One)
        known[rounds] = one
        return float(one.ends.max())

    sends, whole = call.plans[0].transfers, call.collective.ranks
    assert sends is not None
    runs = steady.rounds_of(sends, call.looped.least)
    found = steady.full_ring(whole, runs, alone, (APART, APART), 0)
    if found is None:
        return TOO_DIFFERENT
    one, more = known[found.hops], (whole - 1) / (found.hops - 1)  # own data is in the first
    ends = one.ends + (found.seconds - one.ends.max())
    rate = more * (one.ends.max() - bench.launch.kernel) / (ends.max() - bench.launch.kernel)
    full = one.use.utilisation * rate  # of some links more than they could: they carry less later
    part = np.minimum(full, 1.0)
    left = np.divide(part, full, out=np.ones_like(full), where=full > 0)
    use = replace(one.use, amount=one.use.amount * more * left, utilisation=part)
    words = ", ".join(filter(None, (f"{found.hops} of {whole} rounds of sends", one.words)))
    last = sends.turn / whole  # of the channels, which may have a part of it only
    off = one.off + found.uncertainty + last + max(0.0, full.max() - 1)
    return replace(one, ends=ends, use=use, words=words, off=off, follow=None, fewer=None)


def _by_hops(bench: Bench, given: Call, call: Call, limits: Limits) -> Timing | Refusal:
    """One operation, less what operations in a row overlap with the least hops that are held
    against others and with the most, or the run before where those are many rows, whose rows are
    shown: each further hop adds to it, and leaves on links, as much as those between."""
    few, (given, doubt) = call.rows_of_rings <= limits.rings, given.evened
    call = _form(Asked(given, limits))
    plan, shorter = call.plans[0], replace(limits, rings=np.inf, uneven=limits.repeated, idle=0.0)
    times, known = dict[int, float](), dict[int, Asked]()
    written = _one_channel(bench, given, call, limits)

    def alone(hops: int) -> float:
        for before in sorted(known)[:-1]:  # the next one needs the memory
            del known[before]
        asked = Asked(written.of_hops(hops), shorter)
        one = _climbed(bench, asked, SINGLE)
        assert isinstance(one, One)
        known[hops] = replace(asked, one=one)
        times[hops] = float(one.ends.max())
        return times[hops]

    runs, whole = steady.runs_of(call.collective, plan, limits.hops), len(plan.node) - 1
    if few:  # all of them can be run instead
        runs = takewhile(lambda hops: hops <= limits.around * whole, runs)
    tolerated = min(limits.alike, limits.tolerated), limits.tolerated
    found = steady.full_ring(whole, runs, alone, tolerated, _far(call, limits))
    if found is None:
        return TOO_DIFFERENT
    many = limits.in_a_row[0] * _known(known[found.hops]).rows > limits.restless
    row, least = (min if many else max)(known), sorted(times)[-1 - steady.WINDOW]
    kept = known[row]
    known.clear()
    last = _in_a_row(bench, kept)
    gain = times[row] - last.seconds
    less = times[least] - _timed(bench, written.of_hops(least), shorter).seconds
    more = (gain - less) / (row - least) * (found.whole - row)
    seconds = found.seconds - gain - more
    off = abs(more) / seconds + doubt
    if few and found.uncertainty + off > limits.alike:
        return TOO_DIFFERENT
    off += found.uncertainty + last.uncertainty * last.seconds / seconds
    if off > limits.doubt and call.rows_of_rings <= limits.doubted * limits.rings:
        return TOO_DIFFERENT
    use = replace(last.use, amount=last.use.amount * (found.whole / row))
    return replace(
        last,
        use=use,
        seconds=seconds,
        hops=row,
        approximation=f"{found.hops} of {found.whole} hops of rings",
        uncertainty=off,
        slowest=seconds * last.slowest / last.seconds,
    )


def _far(call: Call, limits: Limits) -> float:
    """How many hops are so far, or so many rows, that what they add may differ by more."""
    whole = len(call.plans[0].node) - 1
    return min(limits.around * whole, limits.far, whole * limits.meeting / call.rows_of_rings)


def _one_channel(bench: Bench, given: Call, call: Call, limits: Limits) -> Call:
    """Rings with one channel for all, if operations of the fewest hops take as long in a row so."""
    fewest = next(steady.runs_of(call.collective, call.plans[0], limits.hops))
    if (one := given.of_hops(fewest).by_channel) is None:
        return call
    alone = [bench.alone(each.looped.schedule()) for each in (one, call.of_hops(fewest))]
    rows = [
        InARow(each, call.task.launch, bench.engine).ends(limits.in_a_row[0])[0] for each in alone
    ]
    told, full = (ends.max(axis=1) for ends in rows)
    return one if np.allclose(told, full, rtol=steady.AGREE, atol=0) else call


# **** Operations back to back ****


def one_operation(asked: Asked) -> Offer | Refusal:
    """One operation tells all: it is the only one, or ends on all ranks at one instant."""
    call, one = asked.call, _known(asked)
    launch, last = call.task.launch, float(one.ends.max())
    if call.task.back_to_back is None:
        return Offer(lambda bench: _timing(bench, one, launch.host + last))
    if launch.together and call.task.back_to_back.iterations == 1:
        return Offer(lambda bench: _from_last(bench, asked, launch.host + one.ends))
    if launch.together and np.ptp(one.ends) <= SAME_INSTANT * last:
        return Offer(lambda bench: _from_last(bench, asked, _last_like(asked)))
    return Refusal("ranks end at different times")


def _last_like(asked: Asked) -> Floats:
    """When the last operation is over by rank, if each is over before the next one begins and all
    take as long as the first one."""
    one, launch = _known(asked), asked.call.task.launch
    others = _iterations(asked.call) - 1
    return launch.host + others * max(float(one.ends.max()), launch.period) + one.ends


def nearly_together(asked: Asked) -> Offer | Refusal:
    """One alone tells about all of a tree whose ranks end at about the same time, and of which
    operations in a row are too many rows."""
    call, one, limits = asked.call, _known(asked), asked.limits
    if limits.exact or not _is_tree(call):
        return Refusal("one operation tells about all of trees only")
    rows = max(one.rows, _form(asked).looped.rows())
    if one.fewer is not None or _can_be_timed(call, rows, limits):
        return Refusal("operations in a row can be run")
    many = one.follow is None or limits.in_a_row[0] * one.rows > limits.restless
    short = _is_short(call, one, limits)
    if not short and not (many and _early(one) <= AT_ONCE):
        return NOT_SHORT
    off = FURTHER[not short]  # as `tests.bench.rounds 400 trees` finds
    return Offer(lambda bench: _from_one(bench, asked, TOGETHER, off))


def kept_busy(asked: Asked) -> Offer | Refusal:
    """One alone tells about all where a link has work throughout: in a row, operations gain no more
    than it idles, as they begin and end, and lose no more where they meet; trees half of that."""
    call, one, limits = asked.call, _known(asked), asked.limits
    trees = all("Tree" in plan.algorithm for plan in call.plans)
    off = _idle(one, call.task.launch) / (2 if trees else 1)  # `tests.bench.rounds 700 busy`
    if limits.exact or not call.task.is_nccl or off > limits.idle:
        return Refusal("no link is busy throughout")
    rows = one.rows if one.fewer is None else one.fewer.work.rows()
    if min(limits.in_a_row[0], _iterations(call)) * rows <= limits.repeated:
        return Refusal("operations in a row can be run")
    return Offer(lambda bench: _from_one(bench, asked, KEPT_BUSY, off))


def _from_one(bench: Bench, asked: Asked, why: str, off: float) -> Timing:
    """The time of operations that all take as long as one alone, which is about right: `why`."""
    words = f"1 of {_iterations(asked.call)} operations ({why})"
    return _from_last(bench, asked, _last_like(asked), words, off)


def _idle(one: One, launch: Launch) -> float:
    """For which part of one operation the busiest link has nothing to do."""
    last = float(one.ends.max())
    if last <= 0.0:  # nothing moves, and no kernel is started
        return 1.0
    return 1.0 - float(one.use.utilisation.max(initial=0.0)) * (1.0 - launch.kernel / last)


def _is_tree(call: Call) -> bool:
    return [plan.algorithm for plan in call.plans] == ["Tree"]


def _is_short(call: Call, one: One, limits: Limits) -> bool:
    return call.looped.loops <= limits.soon and _early(one) <= limits.tolerated


def _iterations(call: Call) -> int:
    """The number of operations that are timed."""
    return 1 if call.task.back_to_back is None else call.task.back_to_back.iterations


def _can_be_timed(call: Call, rows: int, limits: Limits) -> bool:
    """Whether all operations that are timed are not too many rows."""
    return _iterations(call) * rows <= limits.uneven


def recurring_operations(asked: Asked) -> Offer | Refusal:
    """A few in a row tell all: every rank ends as much later as every other, again and again."""
    one = _known(asked)
    if one.follow is None:
        return Refusal("operations in a row are not followed")
    follow = one.follow

    def run(bench: Bench) -> Timing | Refusal:
        last = _last_of_all(follow, asked, one.rows)
        if last is None:
            return Refusal("operations in a row do not repeat")
        return _from_last(bench, asked, last + _left_out_host(asked))

    return Offer(run)


def overlap_of_fewer_loops(asked: Asked) -> Offer | Refusal:
    """Operations begin before the last one is over by as much as those with fewer loops do, and as
    much more with every loop."""
    one = _known(asked)
    if one.follow is not None or one.fewer is None:
        return Refusal("no runs with fewer loops are known")
    return Offer(lambda bench: _overlapping(bench, asked))


def some_operations(asked: Asked) -> Offer | Refusal:
    """All operations that are timed, or as many as are not too many rows."""
    one, limits = _known(asked), asked.limits
    if one.follow is None and one.fewer is None and limits.exact:
        return Refusal("operations in a row are not followed")
    return Offer(lambda bench: _some_operations(bench, asked))


def _some_operations(bench: Bench, asked: Asked) -> Timing:
    one, launch, limits = _known(asked), _launch(asked), asked.limits
    if one.follow is None and one.fewer is not None:
        # Fewer loops do not tell how operations overlap: they are run with all loops.
        whole = replace(asked, one=_all_of(bench, one.fewer.work, limits))
        return _in_a_row(bench, whole)
    iterations = _iterations(asked.call)
    if one.follow is None or not _numbers(one.rows, asked):
        # In a row they take hardly longer, and no less than the busiest link needs.
        return _from_one(bench, asked, ALONE, _idle(one, launch))
    clock = _clock(asked.call, one.alone)
    times, early = _numbers(one.rows, asked)[-1], _early(one)
    ends = one.follow(launch, times)[0]
    off = doubt_of_estimate(clock.over(ends), iterations, early)
    while times < iterations:
        times = _more(asked, times)
        few = times * one.rows <= limits.repeated
        most = limits.uneven * (1.0 if times == iterations else 0.5)
        if off <= (limits.alike if few else limits.idle) or times * one.rows > most:
            break
        ends = one.follow(launch, times)[0]
        off = doubt_of_estimate(clock.over(ends), iterations, early)
    if len(ends) == iterations:
        last = ends[-1] + _left_out_host(asked)
        return _from_last(bench, asked, last, off=swing(clock.over(ends)) if one.off else 0.0)
    off += swing(clock.over(ends)) if one.off else 0.0
    first = _left_out_host(asked)
    seconds = (estimated(clock.over(ends), iterations) + first) / iterations
    slowest = (estimated(ends.max(axis=1), iterations) + first) / iterations
    words = f"{len(ends)} of {iterations} operations"
    return _timing(bench, one, seconds, words, off, slowest)


def _more(asked: Asked, times: int) -> int:
    """How many operations are run after `times` of them: twice as many, or all of them where that
    is little more; of three that are many rows, four."""
    rows, limits, iterations = _known(asked).rows, asked.limits, _iterations(asked.call)
    if times in (3, 4):
        is_four = times == 3 and limits.repeated < 4 * rows <= limits.restless
        return min(4 if is_four else 6, iterations)
    if 2.5 * times > iterations and _can_be_timed(asked.call, rows, limits):
        return iterations
    return min(2 * times, iterations)


def _early(one: One) -> float:
    """By which part of the time the first rank is done before the last."""
    last = float(one.ends.max())
    return float(np.ptp(one.ends)) / last if last > 0.0 else 0.0


def _numbers(rows: int, asked: Asked) -> list[int]:
    """How many operations in a row are run, one after the other: the fewest, and those that are not
    too many rows, up to all of them."""
    limits, iterations = asked.limits, _iterations(asked.call)
    fewest, *others = sorted({min(times, iterations) for times in (*limits.in_a_row, iterations)})
    if fewest * rows > limits.most:
        return []
    return [fewest, *(times for times in others if times * rows <= limits.repeated)]


def _last_of_all(follow: Follow, asked: Asked, rows: int) -> Floats | None:
    """When the last operation is over by rank: all were run, or those that were repeat; None if
    they do not."""
    iterations, launch = _iterations(asked.call), _launch(asked)
    for times in _numbers(rows, asked):
        ends, apart = follow(launch, times)
        if times == iterations:
            return np.asarray(ends[-1])
        last = last_of_equal(ends, iterations, apart=apart)
        if last is not None:
            return last
    return None


def _overlapping(bench: Bench, asked: Asked) -> Timing | Refusal:
    one, limits = _known(asked), asked.limits
    runs, gains = one.fewer, dict[int, Floats]()
    assert runs is not None
    work, loops, whole = runs.work, runs.work.first, float(one.ends.max())
    iterations, launch = _iterations(asked.call), _launch(asked)

    def told(alone: Alone) -> Floats:
        """The time of operations with fewer loops, and that of their slowest process."""
        row = InARow(alone, launch, bench.engine)
        clock = _clock(asked.call, alone)
        last = _last_of_all(lambda _, times: row.ends(times), asked, len(alone.program))
        if last is None:
            last = row.ends(iterations)[0][-1]
        return np.array([clock.seconds(last), clock.slowest(last)])

    key = "time", launch, asked.call.task.back_to_back
    while 2 * loops <= work.loops and not _tells(gains, work, asked, loops, whole):
        gains[loops] = float(runs.ends(loops).max()) - runs.known(loops, key, told)
        loops *= 2
    if len(gains) < 2:
        return Refusal("there are too few runs with fewer loops")
    (more, off), (more_of_slowest, _) = (
        more_gained({size: float(gain[k]) for size, gain in gains.items()}, work.loops)
        for k in (0, 1)
    )
    least = launch.period + _left_out_host(asked) / iterations
    seconds, slowest = (
        max(whole - float(gain) - added + _left_out_host(asked) / iterations, least)
        for gain, added in zip(gains[loops // 2], (more, more_of_slowest), strict=True)
    )
    if off > limits.alike * seconds and iterations * work.rows() <= limits.restless:
        return Refusal("operations with fewer loops do not tell how those with all overlap")
    words = f"the overlap of operations from {loops // 2} of {work.loops} loops"
    return _timing(bench, one, seconds, words, off / seconds, max(slowest, seconds))


def _tells(gains: dict[int, Floats], work: Looped, asked: Asked, loops: int, whole: float) -> bool:
    """Whether what is known of how operations overlap is enough, or more would be too many rows."""
    if len(gains) < 2:
        return False
    off = more_gained({size: float(gain[0]) for size, gain in gains.items()}, work.loops)[1]
    rows = _iterations(asked.call) * work.rows(loops)
    enough = len(gains) > 2 and off <= asked.limits.alike * whole
    return enough or rows > asked.limits.restless


def _launch(asked: Asked) -> Launch:
    """How operations begin: the host does not hold up ranks that are all busy for much longer."""
    launch = asked.call.task.launch
    short = launch.period < asked.limits.short * float(_known(asked).ends.min())
    return replace(launch, host=0.0) if short and launch.together else launch


def _left_out_host(asked: Asked) -> float:
    """By how much all operations are later for the first launch, where `_launch` leaves it out."""
    return asked.call.task.launch.host - _launch(asked).host


def _known(asked: Asked) -> One:
    assert asked.one is not None
    return asked.one


def _clock(call: Call, alone: Alone) -> Clock:
    """How the times of the ranks of a call become its time."""
    back_to_back, together = call.task.back_to_back, call.task.gpus_per_process
    assert back_to_back is not None
    return Clock(back_to_back, alone.taking_part // together)


def _from_last(
    bench: Bench, asked: Asked, last: Floats, words: str = "", off: float = 0.0
) -> Timing:
    """The time of operations back to back, the last of which is over at such times by rank."""
    one = _known(asked)
    clock = _clock(asked.call, one.alone)
    if len(last) != len(clock.process):  # of all ranks, not only of those that take part
        clock = replace(clock, process=np.arange(len(last)) // asked.call.task.gpus_per_process)
    return _timing(bench, one, clock.seconds(last), words, off, clock.slowest(last))


def _timing(
    bench: Bench,
    one: One,
    seconds: float,
    words: str = "",
    off: float = 0.0,
    slowest: float | None = None,
) -> Timing:
    told, alone = ", ".join(filter(None, (one.words, words))), one.alone
    return Timing(
        seconds,
        alone.program,
        alone.timeline,
        one.use,
        alone.engine,
        told,
        one.off + off,
        one.causes,
        slowest=seconds if slowest is None else slowest,
    )


# **** The ladder ****

EXACT: tuple[Rung, ...] = (in_step, max_plus, folded, whole)
OPERATIONS: tuple[Rung, ...] = (
    one_operation,
    nearly_together,
    kept_busy,
    recurring_operations,
    overlap_of_fewer_loops,
    some_operations,
)
SINGLE: tuple[Rung, ...] = (
    by_channel,
    fewer_rounds,
    wide_instants,
    *EXACT,
    fewer_loops,
    fewer_hops,
)
RUNGS = (*SINGLE, *OPERATIONS)


def timed(
    call: Call, engine: str = "auto", progress: Progress | None = None, limits: Limits = LIMITS
) -> Timing:
    """The time of a call, from the first rungs that tell it."""
    return _timed(
        Bench(call.topology, call.task.gpus, call.task.launch, engine, progress), call, limits
    )


def _timed(bench: Bench, call: Call, limits: Limits) -> Timing:
    found = _climbed(bench, Asked(call, limits), SINGLE)
    return found if isinstance(found, Timing) else _in_a_row(bench, Asked(call, limits, found))


def _in_a_row(bench: Bench, asked: Asked) -> Timing:
    found = _climbed(bench, asked, OPERATIONS)
    assert isinstance(found, Timing)
    return found


def _climbed(bench: Bench, asked: Asked, rungs: tuple[Rung, ...]) -> One | Timing:
    """What the first of the rungs tells, if none does within wider limits."""
    why = list[str]()
    for limits in (asked.limits, asked.limits.in_full):
        for rung in _asked(rungs, limits):
            found: Offer | One | Timing | Refusal = rung(replace(asked, limits=limits))
            if isinstance(found, Offer):
                found = found.run(bench)
            if not isinstance(found, Refusal):
                return found
            why.append(found.words)
    raise InputError("; ".join(dict.fromkeys(reversed(why))))


def _asked(rungs: tuple[Rung, ...], limits: Limits) -> list[Rung]:
    return [rung for rung in rungs if rung.__name__ not in limits.without]


def alike(one: Call, other: Call, limits: Limits = LIMITS) -> bool:
    """Whether two calls are the same rows; of many loops, a few tell. Of rings that hops tell,
    whether those end as soon: what differs are copies of own data, as long for any hops."""
    if told_by_hops(one, limits) and told_by_hops(other, limits):
        fewest = next(steady.runs_of(one.collective, one.plans[0], limits.hops))
        mine, theirs = (_ends_of_hops(call, fewest, limits) for call in (one, other))
        return mine.shape == theirs.shape and np.allclose(mine, theirs, steady.AGREE, 0.0)
    first, second = (written(call, limits) for call in (one, other))
    if (first.loops, first.least) != (second.loops, second.least):
        return False
    loops = first.least if _may_be_cut(first, limits) else first.loops
    return _same(first.schedule(loops), second.schedule(loops))


def _ends_of_hops(call: Call, hops: int, limits: Limits) -> Floats:
    bench = Bench(call.topology, call.task.gpus)
    return bench.alone(written(call.evened[0].of_hops(hops), limits).schedule()).first


def _same(a: Schedule, b: Schedule) -> bool:
    tables = a.styles == b.styles and a.lags == b.lags and len(a) == len(b)
    columns = zip((*a.columns(), a.pieces.amount), (*b.columns(), b.pieces.amount), strict=True)
    return tables and all(np.array_equal(x, y) for x, y in columns)


def written(call: Call, limits: Limits = LIMITS) -> Looped:
    """The rows of a call as it is written, with all its loops or fewer."""
    asked = Asked(call, limits)
    if call.task.is_nccl:
        return _form(asked).looped
    for rung in (in_step, max_plus, folded):
        found = rung(asked)
        if isinstance(found, Offer) and found.work is not None:
            return found.work
    return call.looped


# **** What fits, and what is shown ****


def why_not(call: Call, limits: Limits) -> str:
    """Why a call would not fit, by its least rows; "" if it does. Nothing is simulated."""
    if limits.exact:
        offers = [rung(Asked(call, limits)) for rung in _asked(EXACT, limits)]
        if any(isinstance(found, Offer) for found in offers):
            return ""
        mine = offers[EXACT.index(folded) :] if call.task.is_nccl else offers
        words = (found.words for found in mine if isinstance(found, Refusal) and found != ONCE)
        rows, why = max(call.rows_of_rings, rows_in_full(call)), "; ".join(words)
        return f"no exact rung tells it, for {why}; in full it has about {rows:.2g} rows"
    if not call.task.is_nccl:
        found = size_of(call, limits)
        return "" if found is None else memory.misfit(*found, len(call.task.gpus))
    c, plan, loops = call.collective, call.plans[0], 1
    if c.name == "alltoall" and c.count:
        loops = call.looped.least
        if runs := _told_by_rounds(call, limits, steady.WINDOW + 1):  # which it mostly takes
            why = memory.misfit(runs[-1], runs[-1] * memory.BYTES_A_ROW_IN_STEP, c.ranks)
            return why or memory.too_long(sum(runs), limits.solved)
    asked = c.name, c.ranks, len(call.task.groups), plan.algorithm, loops
    if not memory.misfit_of_nccl(*asked) or not c.count or told_by_hops(call, limits):
        return ""
    return memory.misfit_of_nccl(*asked, written_share((call.folded or call).plans[0]))


def _told_by_rounds(call: Call, limits: Limits, runs: int) -> list[int]:
    """About how many rows the first so many runs of sends to all have that are told from a few
    rounds; none where other rungs tell them."""
    form = _sent_to_all(Asked(call, limits))
    if isinstance(form, Refusal) or not _asked((fewer_rounds,), limits):
        return []
    rounds = _first_rounds(form, runs)
    return [int(max(_rows_of_rounds(form, first), limits.crowd)) for first in rounds]


def told_by_hops(call: Call, limits: Limits) -> bool:
    """Whether rings of a call are told from a few hops."""
    if not call.task.is_nccl or not _asked((fewer_hops,), limits):
        return False
    return isinstance(fewer_hops(Asked(call, limits)), Offer)


def size_of(call: Call, limits: Limits = LIMITS) -> tuple[int, int] | None:
    """Rows and bytes of a textbook algorithm; None where it is not sketched."""
    for rung in (in_step, max_plus, folded):
        found = rung(Asked(call, limits))
        if isinstance(found, Offer):
            return found.rows, found.rows * memory.BYTES_A_ROW + found.ways * memory.BYTES_A_PATH
    sketch = sketched(call)
    if sketch is None:
        return None
    return sketch.full, sketch.full * memory.BYTES_A_ROW + sketch.ways(None) * memory.BYTES_A_PATH


LOOPS = 128  # of a call, of which a run has at most so many, but for very few
UP_AND_DOWN = 7  # steps of a tree's ranks, of which few are alike
A_STEP = 3.1  # rows: of a rank and channel in a loop, of a message in one of all-to-all


def bytes_expected(call: Call, limits: Limits = LIMITS) -> int:
    """About how many bytes the rows of the largest run of one of NCCL's calls take at most."""
    written = _form(Asked(call, limits))
    plan, ranks = written.plans[0], call.collective.ranks
    apart = plan.symmetry is None or plan.transfers is not None
    a_row = (
        memory.BYTES_A_ROW_APART
        if apart and ranks > memory.TOGETHER
        else memory.BYTES_A_ROW_IN_STEP
    )
    if rings := written.rows_of_rings:
        most = limits.rings * (limits.doubted if ranks * limits.doubt < 2 else 1)
        if rings > most and _asked((fewer_hops,), limits):
            runs, far = steady.runs_of(call.collective, plan, limits.hops), _far(written, limits)
            told = rings / ranks * next((hops for hops in runs if hops > far), 0)
            rings = int(min(rings, max(limits.rings, told)))
        hopped = rings > limits.hopped * limits.rings
        return a_row * rings if hopped else _bytes(rings, a_row, written, limits)
    if sent := _told_by_rounds(call, limits, steady.WINDOW + 3):
        return memory.BYTES_A_ROW_IN_STEP * sent[-1]
    moved = ranks * max(1, len(plan.work))
    if plan.transfers is not None:
        moved = ranks * (ranks if call.collective.name in ("alltoall", "alltoallv") else 1)
    elif plan.algorithm == "Tree":
        moved *= UP_AND_DOWN
    elif plan.algorithm == "PAT":
        moved *= max(1, ranks.bit_length())
    share, loops = written_share(plan), min(written.looped.loops, LOOPS)
    a_loop = len(call.task.groups) * A_STEP * moved * share
    if plan.transfers is not None and share >= limits.little and not limits.exact:  # wide instants
        crowd = limits.crowded / len(call.task.gpus)
        adaptive = call.topology.router.choices > 1
        if crowd <= min(a_loop * loops, limits.crowd) and not (adaptive or call.topology.changes):
            loops = min(loops, max(written.looped.least, int(limits.crowd / a_loop)))
    return _bytes(int(a_loop * loops), a_row, written, limits)


def _bytes(rows: int, a_row: int, call: Call, limits: Limits) -> int:
    in_full = not _may_be_cut(call.looped, limits) and _can_be_timed(call, rows, limits)
    return rows * max(a_row, memory.BYTES_A_ROW_TIMED if in_full else 0)


def rows_in_full(call: Call) -> int:
    """Rows that a call has at least where nothing is left out; 0 where that is not known."""
    if call.task.is_nccl:
        c = call.collective
        return memory.least_rows_of_nccl(c.name, c.ranks, call.plans[0].algorithm)
    sketch = sketched(call)
    return 0 if sketch is None else sketch.full


def shown(call: Call, limits: Limits = LIMITS) -> tuple[Schedule, str]:
    """The rows of an operation to look at: all, or those of an exact rung; and what they are."""
    rows = rows_in_full(call)
    if rows <= limits.shown:
        return call.looped.schedule(), ""
    for rung in (max_plus, folded, whole):
        found = rung(Asked(call, limits.in_full))
        if isinstance(found, Offer) and found.work is not None:
            schedule, note = found.work.schedule(), found.note
            break
    else:
        raise InputError(f"about {rows:.2g} rows are too many to show")
    if schedule.fold is not None and not note:
        few = len(schedule.fold.leaders)
        note = f"those of {few} GPUs are shown, which stand for all {schedule.ranks}"
    return schedule, note and f"of about {rows:.2g} rows {note}"
