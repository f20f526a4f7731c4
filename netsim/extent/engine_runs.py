"""Simulations of operations: one from an idle cluster, several back to back, runs with fewer loops.

Ranks that end early begin their next operation early, so operations can overlap. The methods decide
what follows from a few simulated operations for the others (`extent/operations.py`,
`extent/fewer_loops.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import field, replace
from functools import cached_property
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from netsim.base.memo import Memo
from netsim.base.values import dataclass
from netsim.engines.engine import AnySimulator, choose, ends_of_operations, simulator
from netsim.extent.forms import LoopSchedule
from netsim.extent.steady_state import AGREE, Recurrence, find_recurrence, lanes_of
from netsim.metrics import links
from netsim.program.place import place
from netsim.program.program import Operations, Program, Timeline, operations
from netsim.schedule.repeat import Launch
from netsim.schedule.schedule import Schedule
from netsim.topology.graph import Topology

_PART = 1 << 18  # rows

R = TypeVar("R")
Floats = NDArray[np.float64]
Progress = Callable[[int, int, float], None]


@dataclass(frozen=True)
class Bench:
    """The cluster and the engine with which operations are simulated."""

    topology: Topology
    gpus: NDArray[np.int32]
    launch: Launch = Launch()
    engine: str = "auto"
    progress: Progress | None = None

    def standalone(self, schedule: Schedule, placed: Program | None = None) -> StandaloneRun:
        """Simulate one operation from an idle cluster; `placed` is its program, if it exists
        already.
        """
        program = self.placed(schedule) if placed is None else placed
        engine = choose(program, self.engine)
        runs = simulator(program, engine)
        timeline = runs.timeline(progress=self.progress)
        program = program.as_run(timeline)
        ends = ends_of(program, timeline) + self.launch.kernel
        return StandaloneRun(schedule, program, timeline, ends, runs, engine)

    def placed(self, schedule: Schedule) -> Program:
        """The schedule placed on the links of this topology."""
        return place(schedule, self.topology, self.gpus.tolist())


@dataclass(frozen=True)
class StandaloneRun:
    """The simulation of one operation from an idle cluster.

    `ends[channel, rank]` is the finish time of a rank on a channel, in seconds. `simulator` can run
    the program again.
    """

    schedule: Schedule
    program: Program
    timeline: Timeline
    ends: Floats
    simulator: AnySimulator
    engine: str

    @cached_property
    def taking_part(self) -> NDArray[np.int64]:
        """The ranks that send, receive or copy anything; all ranks if none does."""
        return taking_part(self.schedule)

    @cached_property
    def busy(self) -> NDArray[np.int64]:
        """The ranks of `taking_part`, in their order, each replaced by its representative."""
        return self.schedule.stand_in(self.taking_part.astype(np.int32)).astype(np.int64)

    @cached_property
    def first(self) -> Floats:
        """By rank, when its last channel is finished, in seconds."""
        ends: Floats = self.ends.max(axis=0)
        return ends


def taking_part(schedule: Schedule) -> NDArray[np.int64]:
    """The ranks that send, receive or copy anything; all ranks if none does."""
    busy, written = np.zeros((2, schedule.ranks), bool)
    written[schedule.stand_in(np.arange(schedule.ranks, dtype=np.int32))] = True
    for rows in _in_parts(len(schedule)):
        moving = links.moves(schedule, rows)
        for _, rank in (links.senders(schedule, moving), links.receivers(schedule, moving)):
            busy[rank] = True
        if busy[written].all():  # mostly after the first step of a loop
            break
    if not busy.any():
        return np.arange(schedule.ranks)
    if schedule.fold is None:
        return np.flatnonzero(busy)
    representative = schedule.fold.ranks.first.astype(np.int64)
    is_representative = np.zeros(schedule.ranks, bool)
    is_representative[representative[busy]] = True
    return np.flatnonzero(is_representative[representative])


def ends_of(program: Program, timeline: Timeline, *, apart: bool = False) -> Floats:
    """The finish times as `[channel, rank]`, in seconds: everything that the rank sends on the
    channel has left, and everything that it receives has arrived.

    Ranks without rows of their own get their times at their representative. With `apart`, every row
    counts only for the ranks that are in it.
    """
    schedule = program.schedule
    latency = program.path_latency
    first = np.array([style.channel for style in schedule.styles], np.int64) * schedule.ranks
    ends = np.zeros((int(first.max(initial=0)) // schedule.ranks + 1, schedule.ranks))

    def note(row: NDArray[np.int64], rank: NDArray[np.int32], when: Floats) -> None:
        where = first[schedule.style[row]] + (rank if apart else schedule.stand_in(rank))
        np.maximum.at(ends.reshape(-1), where, when)

    for rows in _in_parts(len(program)):
        row, sender = links.senders(schedule, links.moves(schedule, rows) if apart else rows)
        note(row, sender, timeline.end[row])
        row, receiver = links.receivers(schedule, rows)
        note(row, receiver, timeline.end[row] + latency[program.path[row]])
    return ends


def _in_parts(rows: int) -> Iterator[NDArray[np.int64]]:
    """Yield all rows in parts that are small enough for the caches of the processor."""
    for start in range(0, rows, _PART):
        yield np.arange(start, min(start + _PART, rows))


@dataclass(frozen=True)
class BackToBackRun:
    """The simulation of operations back to back, each like one that was simulated from an idle
    cluster.
    """

    standalone: StandaloneRun
    launch: Launch
    engine: str = "auto"
    _apart: list[Floats] = field(default_factory=list, repr=False, compare=False)
    _together: list[Floats] = field(default_factory=list, repr=False, compare=False)
    _under_way: list[object] = field(default_factory=list, repr=False, compare=False)

    @cached_property
    def _operations(self) -> Operations:
        return operations(self.standalone.program, 1, self.launch)

    def ends(self, times: int) -> tuple[Floats, bool]:
        """Finish times in seconds as [operation, rank], for `times` operations; and whether each
        operation ends before the next one begins.

        The ranks are those of `standalone.busy`, in this order. If no two operations overlap, each
        is simulated by itself, from the times at which its ranks begin.
        """
        standalone = self.standalone
        is_apart = self.launch.together and _is_over(standalone, standalone.first, self.launch)
        ends = self._one_by_one(times) if is_apart else None
        if ends is not None:
            return ends[:, standalone.busy], True
        if len(self._together) < times:
            launched = self.launch.times(times, standalone.schedule.ranks)
            many = replace(self._operations, launched=launched)
            self._together[:] = ends_of_operations(many, self.engine, self._under_way)
        return np.stack(self._together[:times])[:, standalone.busy], False

    def _one_by_one(self, times: int) -> Floats | None:
        """The finish times of operations that are simulated one by one, by operation and rank.

        None if operations overlap after all, or if ranks must wait for a launch of the host.
        """
        launched = self.launch.times(times, self.standalone.schedule.ranks)
        row = self._apart
        busy = self.standalone.busy
        if not row:
            row.append(launched[0] + self.standalone.first)
        for begin in launched[len(row) :]:
            is_over = _is_over(self.standalone, row[-1], self.launch)
            if not is_over or (begin > row[-1])[busy].any():
                return None
            if self._is_steady(row):  # all further ones begin as the last one did
                row.append(2 * row[-1] - row[-2])
                continue
            begins = np.maximum(row[-1], begin) + self.launch.kernel
            timeline = self.standalone.simulator.timeline(begins)
            program = self.standalone.program.as_run(timeline)
            ends = ends_of(program, timeline).max(axis=0)
            row.append(np.maximum(begins, ends))  # idle ranks complete immediately
        return np.stack(row[:times])

    def _is_steady(self, row: list[Floats]) -> bool:
        """Whether the last operation in `row` took equally long on all ranks, and at least as long
        as the host's launch. `row` has the finish times by rank for each operation so far.
        """
        if len(row) < 2:
            return False
        added = (row[-1] - row[-2])[self.standalone.busy]
        least = max(float(added.mean()), self.launch.period)
        return bool(np.ptp(added) <= AGREE * least and added.mean() >= self.launch.period)


def _is_over(standalone: StandaloneRun, ends: Floats, launch: Launch) -> bool:
    """Whether an operation ends on all ranks before the ranks that end first begin to move bytes of
    the next one.
    """
    return bool(np.ptp(ends[standalone.busy]) <= launch.kernel)


# **** Runs with fewer loops **** Runs of one form with some of its loops. Other sizes of a task may
# share these runs.

LAST = "last run"
ENDS = "ends"
RECURS = "recurs"
NEED = "need"


@dataclass(frozen=True)
class LoopRuns:
    """Runs of a form with fewer loops, by number of loops. The last run is kept; of earlier ones
    only derived values, such as finish times.
    """

    bench: Bench
    schedules: LoopSchedule

    def __getitem__(self, loops: int) -> StandaloneRun:
        last = self.schedules.memo.of(LAST, lambda: Memo(1))
        return last.of(self._key(loops), lambda: self._run(loops))

    def _run(self, loops: int) -> StandaloneRun:
        """Simulate a number of loops, and cache what other sizes need of the run."""
        run = self.bench.standalone(self.schedules.schedule(loops))
        self.answer(loops, ENDS, lambda _: run.ends.ravel(), run)
        is_power_of_two = loops & (loops - 1) == 0
        # Tasks of other sizes will need the recurrence of the same run.
        if self.schedules.key_of is not None and is_power_of_two and loops >= self.schedules.first:
            self.recurs(loops, run)
        return run

    def ends(self, loops: int) -> Floats:
        """The finish times of a run with `loops` loops in seconds: all channels and ranks in one
        array.
        """
        return self.answer(loops, ENDS, lambda run: run.ends.ravel())

    def has_lanes(self, loops: int) -> bool:
        """Whether the rows of a run can be separated by loops."""
        schedule = self.schedules.schedule(loops)
        shortest = self.schedules.shortest
        return lanes_of(schedule, shortest, loops - self.schedules.least) is not None

    def recurs(self, loops: int, run: StandaloneRun | None = None) -> Recurrence | None:
        """The steady state that a run has reached before its last loops begin; None if it has
        reached none.
        """
        return self.answer(loops, RECURS, lambda run: self._recurrence(loops, run), run)

    def answer(
        self,
        loops: int,
        question: Hashable,
        find: Callable[[StandaloneRun], R],
        run: StandaloneRun | None = None,
    ) -> R:
        """The value of `find` for the run with `loops` loops. It may be cached, also from a task of
        another size.

        - `question`: name of the value in the cache.
        - `find`: computes the value from the run.
        - `run`: the run, if it exists already.
        """
        key = (*self._key(loops), question)
        return self.schedules.memo.of(key, lambda: find(self[loops] if run is None else run))

    def use_of_all(self, loops: int, seconds: float) -> links.LinkUse:
        """The use of links by all loops if they take `seconds`, extrapolated from a run with
        `loops` loops.

        Each further loop adds the same bytes to a link as the loops of this run do on average.
        """
        run = self[loops]
        makespan = run.timeline.makespan + seconds - float(run.ends.max())
        amounts, per_loop = self._amounts(loops, run.program)
        further_loops = self.schedules.loops - loops
        return links.use_of(run.program, amounts + further_loops * per_loop, makespan)

    def need(self, loops: int) -> float:
        """The seconds that the busiest link needs for the bytes of one further loop, from the run
        with `loops` loops.
        """

        def needed(run: StandaloneRun) -> float:
            _, per_loop = self._amounts(loops, run.program)
            return float(links.use_of(run.program, per_loop, 1.0).utilisation.max(initial=0.0))

        return self.answer(loops, NEED, needed)

    def _amounts(self, loops: int, program: Program) -> tuple[Floats, Floats]:
        """Two arrays by link: the bytes that cross it in the run `program` of `loops` loops, and
        the bytes that each further loop adds.

        The latter are the difference to the shortest schedule, divided by the difference in loops.
        """
        amounts = links.link_amounts(program)
        less = links.amounts_by(program.links, self._shortest)
        return amounts, (amounts - less) / (loops - self.schedules.least)

    @cached_property
    def _shortest(self) -> Program:
        """The placed schedule with the fewest loops. If messages choose their paths by load, it has
        the paths that they chose in a simulation.
        """
        placed = self.bench.placed(self.schedules.shortest)
        if placed.paths.choices is None:
            return placed
        return self.bench.standalone(placed.schedule).program

    def _recurrence(self, loops: int, run: StandaloneRun) -> Recurrence | None:
        """The steady state of a run; None if it has none, or if a rank ends before the last loops
        begin.
        """
        lanes = lanes_of(run.schedule, self.schedules.shortest, loops - self.schedules.least)
        steady_state = find_recurrence(run.program, run.timeline, lanes) if lanes else None
        if steady_state is None:
            return None
        ends = run.ends.ravel() - self.bench.launch.kernel
        ends_before = (ends > 0) & (ends <= steady_state.until)
        return None if ends_before.any() else steady_state

    def _key(self, loops: int) -> tuple[object, ...]:
        """A key for the cache of runs with `loops` loops. Equal runs have equal keys, also in tasks
        of other sizes.
        """
        key_of = self.schedules.key_of
        same = loops if key_of is None else key_of(loops)
        bench = self.bench  # on links that may not be the job's own: what if they were faster?
        return same, bench.topology.token, bench.engine, bench.launch.kernel
