"""Operations back to back: the time from one to the next, from a few of them.

Ranks that end early begin their next operation early, so operations can overlap. Where none does,
each follows from the one before it alone; else several are simulated in a row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from netsim.base.values import dataclass
from netsim.engines.engine import AnySimulator, choose, ends_of_operations, simulator
from netsim.metrics.bound import Causes
from netsim.metrics.links import (
    LinkUse,
    busy_with_more,
    extended_use,
    link_use,
    moves,
    receivers,
    same_links,
    senders,
)
from netsim.program.place import place
from netsim.program.program import Program, Timeline, operations
from netsim.schedule.repeat import Launch
from netsim.schedule.schedule import Schedule
from netsim.timing.loops import Looped
from netsim.timing.steady import (
    AGREE,
    LONGEST_PERIOD,
    Estimate,
    Plan,
    Steady,
    estimate,
    lanes_of,
    recurrence,
    steady,
)
from netsim.topology.graph import Topology

SAME_INSTANT = 1e-12
# Operations back to back: the fewest that can show a period, and more while they are small.
# nccl-tests: one operation to warm up, then the mean of twenty.
REPEATS = (3, 8, 21)
FEW_ROWS = 100_000  # of operations repeated, beyond which only the fewest are
MANY_ROWS = 300_000  # of the fewest repeated, beyond which one that ends `TOGETHER` is enough
MOST_ROWS = 30_000_000  # of operations repeated; larger ones are simulated alone
TOGETHER = 1e-3  # part of the time between the first rank's end and the last one's
_PART = 1 << 18  # rows
MEAN = "mean of operations back to back"
ALONE = "one operation alone"

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Period:
    """The time from one operation to the next, and how far it may be off."""

    seconds: float
    approximation: str = ""
    uncertainty: float = 0.0


@dataclass(frozen=True)
class BackToBack:
    """Operations in a row, each like one that begins at once on all ranks."""

    alone: Alone
    launch: Launch
    engine: str = "auto"

    @property
    def program(self) -> Program:
        """One of them."""
        return self.alone.program

    @property
    def busy(self) -> NDArray[np.int64]:
        """The ranks that do anything."""
        return self.alone.busy

    @cached_property
    def first(self) -> Floats:
        """When every rank ends the first one."""
        ends: Floats = self.alone.ends.max(axis=0)
        return ends

    @property
    def are_few(self) -> bool:
        """Whether there are so few rows that more operations than the fewest may be simulated."""
        return REPEATS[0] * len(self.program) <= FEW_ROWS

    @property
    def are_apart(self) -> bool:
        """Whether every operation is over before the next one moves anything."""
        return self.launch.together and self._is_over(self.first)

    def period(self) -> Period:
        """The period that a few operations show."""
        found = of_one(self.first[self.busy])
        least = MANY_ROWS if found.uncertainty <= TOGETHER else MOST_ROWS
        if REPEATS[0] * len(self.program) > least:
            return found
        apart = self._apart() if self.are_apart else None
        return self._in_a_row() if apart is None else apart

    def _in_a_row(self) -> Period:
        """The period of several operations that are simulated together."""
        many, found = operations(self.program, REPEATS[0], self.launch), Period(0.0)
        for times in self._repeats:
            many = replace(many, launched=self.launch.times(times, many.ranks))
            found = of_many(ends_of_operations(many, self.engine)[:, self.busy])
            if not found.approximation:
                break
        return found

    def _apart(self) -> Period | None:
        """The period of operations that follow from the one before alone. If one takes equally long
        on all ranks, all further ones begin as it did. None if they overlap, or the host holds up.
        """
        ranks = self.program.schedule.ranks
        row, found = [self.launch.times(1, ranks)[0] + self.first], Period(0.0)
        for times in self._repeats:
            launched = self.launch.times(times, ranks)
            for begin in launched[len(row) :]:
                if not self._is_over(row[-1]) or (begin > row[-1])[self.busy].any():
                    return None
                row.append(self._next(np.maximum(row[-1], begin)))
                added = (row[-1] - row[-2])[self.busy]
                seconds = float(added.mean())
                if np.ptp(added) <= AGREE * seconds and seconds >= self.launch.period:
                    return Period(seconds)
            found = of_many(np.stack(row)[:, self.busy])
            if not found.approximation:
                break
        return found

    def _next(self, launched: Floats) -> Floats:
        """When every rank ends an operation that is launched on it at a time of its own."""
        begins = launched + self.launch.kernel
        timeline = self.alone.simulator.timeline(begins)
        ended: Floats = ends_of(self.program, timeline).max(axis=0)
        return np.maximum(begins, ended)  # who does nothing ends, too

    @property
    def _repeats(self) -> Iterator[int]:
        """The fewest operations, and more while they are few rows."""
        few = (times for times in REPEATS[1:] if times * len(self.program) <= FEW_ROWS)
        return chain(REPEATS[:1], few)

    def _is_over(self, ends: Floats) -> bool:
        """Whether one is over before kernels start on the ranks that end first."""
        return bool(np.ptp(ends[self.busy]) <= self.launch.kernel)


@dataclass(frozen=True)
class Alone:
    """One operation from standstill: when each channel (first axis) of each rank is done."""

    schedule: Schedule
    program: Program
    timeline: Timeline
    ends: Floats
    simulator: AnySimulator
    engine: str

    @cached_property
    def busy(self) -> NDArray[np.int64]:
        """The ranks that do anything at all."""
        return busy_ranks(self.schedule)

    @property
    def by_rank(self) -> Floats:
        """When the ranks that take part are done: others would only dilute a mean."""
        ends: Floats = self.ends.max(axis=0)[self.busy]
        return ends


def busy_ranks(schedule: Schedule) -> NDArray[np.int64]:
    """The ranks that do anything at all; everyone, where nobody does."""
    busy, written = np.zeros((2, schedule.ranks), bool)
    written[schedule.stand_in(np.arange(schedule.ranks, dtype=np.int32))] = True
    for rows in _in_parts(len(schedule)):
        moving = moves(schedule, rows)
        for _, rank in (senders(schedule, moving), receivers(schedule, moving)):
            busy[rank] = True
        if busy[written].all():  # mostly after the first turn of a loop
            break
    if not busy.any():
        return np.arange(schedule.ranks)
    if schedule.fold is None:
        return np.flatnonzero(busy)
    everyone, leads = schedule.fold.ranks.first.astype(np.int64), np.zeros(schedule.ranks, bool)
    leads[everyone[busy]] = True
    return everyone[leads[everyone]]  # as often as there are ranks that one stands for


def ends_of(program: Program, timeline: Timeline) -> Floats:
    """When each channel (first axis) of each rank is done: all that the rank sends has left, all
    that it receives has arrived.
    """
    schedule, latency = program.schedule, program.path_latency
    first = np.array([style.channel for style in schedule.styles], np.int64) * schedule.ranks
    ends = np.zeros((int(first.max(initial=0)) // schedule.ranks + 1, schedule.ranks))

    def note(row: NDArray[np.int64], rank: NDArray[np.int32], when: Floats) -> None:
        place = first[schedule.style[row]] + schedule.stand_in(rank)
        np.maximum.at(ends.reshape(-1), place, when)

    for rows in _in_parts(len(program)):
        row, sender = senders(schedule, rows)
        note(row, sender, timeline.end[row])
        row, receiver = receivers(schedule, rows)
        note(row, receiver, timeline.end[row] + latency[program.path[row]])
    return ends


def _in_parts(rows: int) -> Iterator[NDArray[np.int64]]:
    """All rows, so many at a time that what is made of them stays in the processor's caches."""
    for start in range(0, rows, _PART):
        yield np.arange(start, min(start + _PART, rows))


def in_step(ends: Floats) -> bool:
    """Whether all ranks end at one instant: the next operation is then the same, only later."""
    return bool(np.ptp(ends) <= SAME_INSTANT * ends.max(initial=0.0))


def of_one(ends: Floats) -> Period:
    """Of an operation too large to repeat: the next one may begin this much earlier, and ranks that
    do not start together may disturb each other a little.
    """
    spread = 1 - float(ends.min() / ends.max())
    return Period(float(ends.max()), ALONE, max(spread, TOGETHER))


def of_many(ends: Floats) -> Period:
    """From the ends of operations (first axis) by rank: the time from one to the next.

    If every rank ends later by the same from one to the next, all that follows is equal. Else the
    mean of all, and by how much single ranks and operations differ.
    """
    times = len(ends)
    for period in range(1, min(LONGEST_PERIOD, (times - 1) // 2) + 1):
        found = steady(lambda k: ends[k], times - 1, period, period + 1)
        if found is not None:
            return Period(float(found.added.mean()) / period)
    added = np.diff(ends, axis=0)
    mean = float(added.mean())
    if mean <= 0:
        return Period(mean, MEAN)
    return Period(mean, MEAN, float(np.ptp(added) + _still_to_come(added.mean(axis=1))) / mean)


def _still_to_come(took: Floats) -> float:
    """By how much the last operation that nccl-tests does may differ from the last of these: where
    each takes longer than the one before, and that does not die away, they may go on so.
    """
    drift = np.diff(took)
    goes_on = len(drift) > 1 and abs(drift[-1]) >= abs(drift[0]) / 2
    if not goes_on or not (np.sign(drift) == np.sign(drift[0])).all():
        return 0.0
    return float(abs(drift[-1])) * (REPEATS[-1] - 1 - len(took))


# **** Timing ****
# How long an operation takes as nccl-tests prints it: the period of operations back to back.
# Each rank's kernels are serial on its stream, so ranks that finish early begin the next operation
# early. The time is the steady period, mean over ranks. A call of very many loops is run with
# fewer.


BUDGET_ROWS = 50_000  # of one operation, from which fewer loops are tried
ENOUGH = 2  # times the loops of runs that tell how operations overlap, from which they are asked
SHORT = 1e-1  # part of the first operation that the host's launches may take without a trace
LAST = "last run"
Progress = Callable[[int, int, float], None]


@dataclass(frozen=True)
class Timing:
    """The time of one operation in seconds, and how it was found.

    `program` and `timeline` are those of one operation alone, with fewer loops where that is the
    `approximation`; `uncertainty` is by which part the answer can move. `use` is what passes over
    the links in all loops, `causes` what the time goes to where the timeline does not tell.
    """

    seconds: float
    program: Program
    timeline: Timeline
    use: LinkUse
    engine: str
    approximation: str = ""
    uncertainty: float = 0.0
    causes: Causes | None = None


@dataclass(frozen=True)
class Bench:
    """Where operations are timed: `single` is one from standstill, else many back to back."""

    topology: Topology
    gpus: NDArray[np.int32]
    launch: Launch
    single: bool = False
    engine: str = "auto"
    progress: Progress | None = None

    def time(self, schedule: Schedule) -> Timing:
        """The time of one operation, simulated in full."""
        alone = self.alone(schedule)
        return self.timing_of(alone, self.period(alone, self.launch))

    def time_looped(self, work: Looped) -> Timing:
        """The same of a call that may have too many loops to run them all."""
        runs = Runs(self, work)
        if not work.worth_shortening:
            return self.timing_of(runs[work.loops, 1], runs.period(work.loops, 1))
        found = estimate(runs.plan, BUDGET_ROWS, MOST_ROWS)
        alone = runs[found.loops, found.grain]
        if found.loops == work.loops:
            return self.timing_of(alone, self._period_in_full(alone, found, runs))
        whole = replace(alone, ends=found.parts.reshape(alone.ends.shape))
        off = found.uncertainty + work.rounding
        if self.told_by_one(alone.by_rank, self.launch):
            period = replace(self.period(whole, self.launch), uncertainty=off)
        else:
            period = self._overlapping(whole, runs, off)
        use = runs.use_of_all(alone, found)
        return self.timing_of(alone, replace(period, approximation=found.approximation), use)

    def alone(self, schedule: Schedule) -> Alone:
        """Simulate one operation from standstill."""
        program = self.placed(schedule)
        engine = choose(program, self.engine)
        runs = simulator(program, engine)
        timeline = runs.timeline(progress=self.progress)
        ends = ends_of(program, timeline) + self.launch.kernel
        return Alone(schedule, program, timeline, ends, runs, engine)

    def placed(self, schedule: Schedule) -> Program:
        """A schedule on the links of this place."""
        return place(schedule, self.topology, self.gpus.tolist())

    def timing_of(self, alone: Alone, period: Period, use: LinkUse | None = None) -> Timing:
        """A period, with the operation from standstill that tells why it is what it is."""
        return Timing(
            period.seconds,
            alone.program,
            alone.timeline,
            link_use(alone.program, alone.timeline) if use is None else use,
            alone.engine,
            period.approximation,
            period.uncertainty,
        )

    def period(self, alone: Alone, launch: Launch) -> Period:
        """The time from one operation to the next."""
        told = self.told_by_one(alone.by_rank, launch)
        return told or BackToBack(alone, launch, self.engine).period()

    def told_by_one(self, ends: Floats, launch: Launch) -> Period | None:
        """The period where one operation tells it: that is all, or all ranks end it at once."""
        if self.single:
            return Period(launch.host + float(ends.max()))
        if launch.together and in_step(ends):
            return Period(max(float(ends.max()), launch.period))
        return None

    def _period_in_full(self, alone: Alone, found: Estimate, runs: Runs) -> Period:
        """The period of a call of which all loops were simulated."""
        row = BackToBack(alone, self.launch, self.engine)
        told = self.told_by_one(alone.by_rank, self.launch)
        few = told or row.are_few or row.are_apart
        if few or found.grain > 1 or runs.work.loops < ENOUGH * runs.few[-1]:
            period = runs.period(found.loops, found.grain)
        else:
            period = self._overlapping(alone, runs, 0.0)
        words = ", ".join(filter(None, (found.approximation, period.approximation)))
        return replace(
            period, approximation=words, uncertainty=found.uncertainty + period.uncertainty
        )

    def _overlapping(self, whole: Alone, runs: Runs, off: float) -> Period:
        """Operations begin before the last one is over by as much as those of fewer loops do.

        The host does not hold up what is so long, unless it does so all the time.
        """
        periods = [runs.period(loops, 1) for loops in runs.few]
        gains = [
            float(runs.told(loops, 1).ends.max()) - period.seconds
            for loops, period in zip(runs.few, periods, strict=True)
        ]
        seconds = float(whole.by_rank.max()) - gains[-1]
        moved = abs(gains[-1] - gains[0]) + max(p.uncertainty * p.seconds for p in periods)
        words = f"operations overlap like those of {runs.few[-1]} of {runs.work.loops} loops"
        return Period(max(seconds, self.launch.period), words, off + moved / seconds)


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
    return Bench(topology, gpus, launch, single, engine, progress).time(schedule)


@dataclass(frozen=True, slots=True)
class Told:
    """What a run told: when each channel of each rank is done, and what further loops add (None:
    the run is not steady, or nobody has asked: `looked` says which).
    """

    ends: Floats
    further: Steady | None = None
    looked: bool = False


@dataclass(frozen=True)
class Runs:
    """Runs of a call with some loops and grain. Calls of other sizes may have told of them: those
    are simulated again only for their timelines, but for the last one.
    """

    bench: Bench
    work: Looped

    @property
    def plan(self) -> Plan:
        """The call as it is estimated."""
        work, within = self.work, None if self.work.like is None else self._within
        return Plan(
            work.loops,
            work.rows,
            self._seconds,
            work.grains,
            work.least,
            work.memory,
            within,
            self._pace,
        )

    @property
    def few(self) -> tuple[int, int]:
        """Loops of the runs that tell how operations overlap. Shorter calls have as many."""
        return self.plan.shortest, 2 * self.plan.shortest

    def __getitem__(self, run: tuple[int, int]) -> Alone:
        key, told = self._key(*run), self.work.told
        if told.get(LAST, (None,))[0] != key:
            told.pop(LAST, None)  # before the next one needs the memory
            alone = self.bench.alone(self.work.schedule(*run))
            told[LAST] = key, alone
            told[key] = Told(alone.ends.ravel())
            if run in self._usual:
                self._look(*run)
        found: Alone = told[LAST][1]
        return found

    def told(self, loops: int, grain: int) -> Told:
        """What a run tells."""
        key = self._key(loops, grain)
        if key not in self.work.told:
            self[loops, grain]
        found: Told = self.work.told[key]
        return found

    def period(self, loops: int, grain: int) -> Period:
        """The time from one operation of a run to the next."""
        launch, ends = self.bench.launch, self.told(loops, grain).ends
        bench = self.bench
        short = launch.period < SHORT * float(ends.max())
        if short and launch.together and not bench.single:
            launch = replace(launch, host=0.0)  # it does not hold up what is so long
        key = (*self._key(loops, grain), launch, self.bench.single)
        if key not in self.work.told:
            self.work.told[key] = self.bench.period(self[loops, grain], launch)
        found: Period = self.work.told[key]
        return found

    def use_of_all(self, alone: Alone, found: Estimate) -> LinkUse | None:
        """What passes over the links in all loops: each adds what those simulated do."""
        short = self.bench.placed(self.work.shortest)
        if not same_links(alone.program.links, short.links):
            return None
        times = (self.work.loops - found.loops) / (found.loops - self.work.least)
        seconds = alone.timeline.makespan + found.seconds - float(alone.ends.max())
        return extended_use(alone.program, short, times, seconds)

    def _seconds(self, loops: int, grain: int) -> Floats:
        return self.told(loops, grain).ends

    def _within(self, loops: int) -> Steady | None:
        if not self.told(loops, 1).looked:
            self._look(loops, 1)
        return self.told(loops, 1).further

    def _pace(self) -> float:
        """What a loop takes at least: as long as the busiest link is busy with it."""
        work = self.work
        key = ("pace", self._key(work.least, 1), self._key(work.least + 1, 1))
        if key not in work.told:
            few, more = (self.bench.placed(work.write(work.least + k, 1)) for k in (0, 1))
            work.told[key] = busy_with_more(few, more)
        found: float = work.told[key]
        return found

    @property
    def _usual(self) -> list[tuple[int, int]]:
        """Runs that calls of other sizes will look into, too."""
        if self.work.like is None:
            return []
        times = max(1, self.work.loops // self.plan.shortest).bit_length()
        return [(self.plan.shortest << k, 1) for k in range(times)]

    def _look(self, loops: int, grain: int) -> None:
        found = self._further(self[loops, grain], loops)
        key = self._key(loops, grain)
        self.work.told[key] = replace(self.work.told[key], further=found, looked=True)

    def _further(self, alone: Alone, loops: int) -> Steady | None:
        """What further loops add to when channels of ranks are done, from within a run."""
        work, kernel = self.work, self.bench.launch.kernel
        lanes = lanes_of(alone.schedule, work.shortest, loops - work.least)
        found = recurrence(alone.program, alone.timeline, lanes) if lanes else None
        ends = alone.ends.ravel() - kernel
        if found is None or ((ends > 0) & (ends <= found.until)).any():
            return None
        return Steady(np.where(ends > 0, found.seconds, 0.0), found.spread, found.loops)

    def _key(self, loops: int, grain: int) -> tuple[object, ...]:
        like = self.work.like
        same = (loops, grain) if like is None else like(loops, grain)
        bench = self.bench  # on links that may not be the job's own: what if they were faster?
        where = bench.topology.memory.setdefault("where", object())
        return same, where, bench.engine, bench.launch.kernel
