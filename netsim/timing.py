"""How long an operation takes as nccl-tests prints it: the period of operations back to back.

Each rank's kernels are serial on its stream, so ranks that finish early begin the next operation
early. The time is the steady period, mean over ranks. A call of very many loops is run with fewer.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from netsim.back_to_back import MOST_ROWS, BackToBack, Period, in_step
from netsim.engines import choose, simulate
from netsim.looped import Looped
from netsim.metrics.bound import Causes
from netsim.metrics.ends import receivers, senders
from netsim.metrics.links import LinkUse, extended_use, link_use, same_links
from netsim.periodic import Estimate, Plan, estimate
from netsim.program import Program, Timeline, place
from netsim.schedule import MARK, Launch, Schedule
from netsim.topology import Topology

BUDGET_ROWS = 50_000  # of one operation, from which fewer loops are tried

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
class Alone:
    """One operation from standstill: when each channel (first axis) of each rank is done."""

    schedule: Schedule
    program: Program
    timeline: Timeline
    ends: Floats

    @property
    def by_rank(self) -> Floats:
        """When the ranks that take part are done: others would only dilute a mean."""
        ends: Floats = self.ends.max(axis=0)[busy_ranks(self.schedule)]
        return ends


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
        return self.timing_of(alone, self._period(alone, self.launch))

    def time_looped(self, work: Looped) -> Timing:
        """The same of a call that may have too many loops to run them all."""
        if not work.worth_shortening:
            return self.time(work.schedule(work.loops))
        runs = _Runs(self, work)
        plan = Plan(work.loops, work.rows, runs.seconds, work.grains, work.least, work.memory)
        found = estimate(plan, BUDGET_ROWS, MOST_ROWS)
        alone = runs[found.loops, found.grain]
        if found.loops == work.loops:
            period = self._period(alone, self.launch)
            words = ", ".join(filter(None, (found.approximation, period.approximation)))
            off = found.uncertainty + period.uncertainty
            return self.timing_of(alone, replace(period, approximation=words, uncertainty=off))
        whole = replace(alone, ends=found.parts.reshape(alone.ends.shape))
        off = found.uncertainty + work.rounding
        if self.single or (self.starts_together and in_step(alone.by_rank)):
            period = replace(self._period(whole, self.launch), uncertainty=off)
        else:
            period = self._overlapping(whole, [runs[k] for k in sorted(runs)[-2:]], off)
        use = _use_of_all(work.loops, found, runs)
        return self.timing_of(alone, replace(period, approximation=found.approximation), use)

    def alone(self, schedule: Schedule) -> Alone:
        """Simulate one operation from standstill."""
        program, timeline = self._run(schedule)
        return Alone(schedule, program, timeline, ends_of(program, timeline) + self.launch.kernel)

    def _run(self, schedule: Schedule) -> tuple[Program, Timeline]:
        program = place(schedule, self.topology, self.gpus.tolist())
        return program, simulate(program, self.engine, progress=self.progress)

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

    @property
    def starts_together(self) -> bool:
        """Whether the host lets all ranks begin at one instant."""
        return self.launch.host == 0 or self.launch.gpus_per_process == 1

    def _period(self, alone: Alone, launch: Launch) -> Period:
        ends = alone.by_rank
        if self.single:
            return Period(launch.host + float(ends.max()))
        if self.starts_together and in_step(ends):
            return Period(max(float(ends.max()), launch.period))
        busy, first = busy_ranks(alone.schedule), alone.ends.max(axis=0)
        return BackToBack(alone.program, first, busy, launch, self.engine).period()

    def _overlapping(self, whole: Alone, runs: list[Alone], off: float) -> Period:
        """Operations begin before the last one is over by as much as those of fewer loops do.

        The host does not hold up what is so long, unless it does so all the time.
        """
        free = replace(self.launch, host=0.0)
        periods = [self._period(run, free) for run in runs]
        gains = [
            float(run.by_rank.max()) - period.seconds
            for run, period in zip(runs, periods, strict=True)
        ]
        seconds = float(whole.by_rank.max()) - gains[-1]
        moved = abs(gains[-1] - gains[0]) + max(p.uncertainty * p.seconds for p in periods)
        return Period(max(seconds, self.launch.period), "", off + moved / seconds)


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


class _Runs(Mapping[tuple[int, int], Alone]):
    """Runs of a call with some loops and grain; of those that a call of another size has told the
    ends of, the rest is simulated when somebody asks for it.
    """

    def __init__(self, bench: Bench, work: Looped) -> None:
        self.bench, self.work = bench, work
        self._known: dict[tuple[int, int], Alone | None] = {}

    def seconds(self, loops: int, grain: int) -> Floats:
        """When each channel of each rank is done."""
        bench, like = self.bench, self.work.like
        if like is None:
            return self[loops, grain].ends.ravel()
        key = (like(loops, grain), bench.engine, bench.launch.kernel)
        if key not in self.work.told:
            self.work.told[key] = self[loops, grain].ends.ravel()
        self._known.setdefault((loops, grain), None)
        ends: Floats = self.work.told[key]
        return ends

    def __getitem__(self, run: tuple[int, int]) -> Alone:
        found = self._known.get(run)
        if found is None:
            found = self._known[run] = self.bench.alone(self.work.schedule(*run))
        return found

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)


def _use_of_all(
    loops: int, found: Estimate, runs: Mapping[tuple[int, int], Alone]
) -> LinkUse | None:
    """What passes over the links in all loops: each further one adds what the last ones did."""
    fewer = max(k for k, grain in runs if k < found.loops and grain == found.grain)
    long, short = runs[found.loops, found.grain], runs[fewer, found.grain]
    if not same_links(long.program.links, short.program.links):
        return None
    times = (loops - found.loops) / (found.loops - fewer)
    return extended_use((long.program, long.timeline), (short.program, short.timeline), times)


def busy_ranks(schedule: Schedule) -> NDArray[np.int64]:
    """The ranks that do anything at all; everyone, where nobody does."""
    moving = np.flatnonzero(schedule.kind != MARK)
    busy = np.union1d(senders(schedule, moving)[1], receivers(schedule, moving)[1])
    if schedule.fold is not None:  # as often as there are ranks that one stands for
        everyone = schedule.fold.ranks.first
        busy = everyone[np.isin(everyone, everyone[busy])]
    return (busy if len(busy) else np.arange(schedule.ranks)).astype(np.int64)


def ends_of(program: Program, timeline: Timeline) -> Floats:
    """When each channel (first axis) of each rank is done: all that the rank sends has left, all
    that it receives has arrived.
    """
    schedule, rows = program.schedule, np.arange(len(program))
    channel = schedule.style_column("channel").astype(np.int64)
    ends = np.zeros((int(channel.max(initial=0)) + 1, schedule.ranks))
    sent, sender = senders(schedule, rows)
    np.maximum.at(ends, (channel[sent], schedule.stand_in(sender)), timeline.end[sent])
    received, receiver = receivers(schedule, rows)
    latency = program.path_latency[program.path[received]]
    arrival = timeline.end[received] + latency
    np.maximum.at(ends, (channel[received], schedule.stand_in(receiver)), arrival)
    return ends
