"""How long an operation takes as nccl-tests prints it: the period of operations back to back.

Each rank's kernels are serial on its stream, so ranks that finish early begin the next operation
early. The time is the steady period, mean over ranks. A call of very many loops is run with fewer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from netsim.back_to_back import MOST_ROWS, Alone, BackToBack, Period, ends_of, in_step
from netsim.engines import choose, simulator
from netsim.looped import Looped
from netsim.metrics.bound import Causes
from netsim.metrics.links import LinkUse, busy_with_more, extended_use, link_use, same_links
from netsim.periodic import Estimate, Plan, Steady, estimate
from netsim.program import Program, Timeline, place
from netsim.recurring import lanes_of, recurrence
from netsim.schedule import Launch, Schedule
from netsim.topology import Topology
from netsim.values import dataclass

BUDGET_ROWS = 50_000  # of one operation, from which fewer loops are tried
ENOUGH = 2  # times the loops of runs that tell how operations overlap, from which they are asked
SHORT = 1e-1  # part of the first operation that the host's launches may take without a trace
LAST = "last run"

Floats = NDArray[np.float64]
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
        runs = simulator(program, self.engine)
        timeline = runs.timeline(progress=self.progress)
        ends = ends_of(program, timeline) + self.launch.kernel
        return Alone(schedule, program, timeline, ends, runs)

    def placed(self, schedule: Schedule) -> Program:
        """A schedule on the links of this place."""
        return place(schedule, self.topology, self.gpus.tolist())

    def timing_of(self, alone: Alone, period: Period, use: LinkUse | None = None) -> Timing:
        """A period, with the operation from standstill that tells why it is what it is."""
        engine = choose(alone.program, self.engine)
        return Timing(
            period.seconds,
            alone.program,
            alone.timeline,
            link_use(alone.program, alone.timeline) if use is None else use,
            engine,
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
