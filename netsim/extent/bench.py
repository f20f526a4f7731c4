"""Operations on an engine: one from standstill, and several back to back.

Ranks that end early begin their next operation early, so operations can overlap. What follows from
a few of them for all others, the ladder decides (`extent/ladder.py`)."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from netsim.base.memo import Memo
from netsim.base.values import dataclass
from netsim.engines.engine import AnySimulator, choose, ends_of_operations, simulator
from netsim.extent.call import Looped
from netsim.extent.steady import AGREE, Recurrence, lanes_of, recurrence
from netsim.metrics import links
from netsim.program.place import place
from netsim.program.program import Operations, Program, Timeline, operations
from netsim.schedule.repeat import Launch
from netsim.schedule.schedule import COMPUTING, Schedule
from netsim.topology.graph import Topology

_PART = 1 << 18  # rows

R = TypeVar("R")
Floats = NDArray[np.float64]
Progress = Callable[[int, int, float], None]


@dataclass(frozen=True)
class Bench:
    """Where operations are run."""

    topology: Topology
    gpus: NDArray[np.int32]
    launch: Launch = Launch()
    engine: str = "auto"
    progress: Progress | None = None

    def alone(self, schedule: Schedule, placed: Program | None = None) -> Alone:
        """Simulate one operation from standstill, perhaps one that has its place."""
        program = self.placed(schedule) if placed is None else placed
        engine = choose(program, self.engine)
        runs = simulator(program, engine)
        timeline = runs.timeline(progress=self.progress)
        program = program.as_run(timeline)
        ends = ends_of(program, timeline) + self.launch.kernel
        return Alone(schedule, program, timeline, ends, runs, engine)

    def placed(self, schedule: Schedule) -> Program:
        """A schedule on the links of this place."""
        return place(schedule, self.topology, self.gpus.tolist())


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
    def taking_part(self) -> NDArray[np.int64]:
        """The ranks that do anything at all."""
        return taking_part(self.schedule)

    @cached_property
    def busy(self) -> NDArray[np.int64]:
        """Those ranks, or the ranks that stand for them, in the same order."""
        return self.schedule.stand_in(self.taking_part.astype(np.int32)).astype(np.int64)

    @cached_property
    def first(self) -> Floats:
        """When every rank is done."""
        ends: Floats = self.ends.max(axis=0)
        return ends


def taking_part(schedule: Schedule) -> NDArray[np.int64]:
    """The ranks that do anything at all; everyone, where nobody does."""
    busy, written = np.zeros((2, schedule.ranks), bool)
    written[schedule.stand_in(np.arange(schedule.ranks, dtype=np.int32))] = True
    for rows in _in_parts(len(schedule)):
        moving = links.moves(schedule, rows)
        for _, rank in (links.senders(schedule, moving), links.receivers(schedule, moving)):
            busy[rank] = True
        if busy[written].all():  # mostly after the first turn of a loop
            break
    if not busy.any():
        return np.arange(schedule.ranks)
    if schedule.fold is None:
        return np.flatnonzero(busy)
    everyone, leads = schedule.fold.ranks.first.astype(np.int64), np.zeros(schedule.ranks, bool)
    leads[everyone[busy]] = True
    return np.flatnonzero(leads[everyone])


def ends_of(program: Program, timeline: Timeline, *, apart: bool = False) -> Floats:
    """When each channel (first axis) of each rank is done: all sent has left, all has arrived.
    `apart`: by its own rows, not by those of ranks that it stands for, too."""
    schedule, latency = program.schedule, program.path_latency
    first = np.array([style.channel for style in schedule.styles], np.int64) * schedule.ranks
    ends = np.zeros((int(first.max(initial=0)) // schedule.ranks + 1, schedule.ranks))

    def note(row: NDArray[np.int64], rank: NDArray[np.int32], when: Floats) -> None:
        place = first[schedule.style[row]] + (rank if apart else schedule.stand_in(rank))
        np.maximum.at(ends.reshape(-1), place, when)

    for rows in _in_parts(len(program)):
        row, sender = links.senders(schedule, links.moves(schedule, rows) if apart else rows)
        note(row, sender, timeline.end[row])
        row, receiver = links.receivers(schedule, rows)
        note(row, receiver, timeline.end[row] + latency[program.path[row]])
    return ends


def _in_parts(rows: int) -> Iterator[NDArray[np.int64]]:
    """All rows, so many at a time that what is made of them stays in the processor's caches."""
    for start in range(0, rows, _PART):
        yield np.arange(start, min(start + _PART, rows))


@dataclass(frozen=True)
class InARow:
    """Operations back to back, each like one that was simulated from standstill."""

    alone: Alone
    launch: Launch
    engine: str = "auto"
    _apart: list[Floats] = field(default_factory=list, repr=False, compare=False)
    _together: list[Floats] = field(default_factory=list, repr=False, compare=False)
    _under_way: list[object] = field(default_factory=list, repr=False, compare=False)

    @cached_property
    def _operations(self) -> Operations:
        return operations(self.alone.program, 1, self.launch)

    def ends(self, times: int) -> tuple[Floats, bool]:
        """When so many are over (first axis) by busy rank, and whether they are apart: each is then
        simulated alone, from when its ranks begin it."""
        apart = self.launch.together and _is_over(self.alone, self.alone.first, self.launch)
        found = self._one_by_one(times) if apart else None
        if found is None and len(self._together) < times:
            launched = self.launch.times(times, self.alone.schedule.ranks)
            many = replace(self._operations, launched=launched)
            self._together[:] = ends_of_operations(many, self.engine, self._under_way)
        ends = np.stack(self._together[:times]) if found is None else found
        return ends[:, self.alone.busy], found is not None

    def _one_by_one(self, times: int) -> Floats | None:
        """None if they overlap after all, or the host holds up."""
        launched = self.launch.times(times, self.alone.schedule.ranks)
        row, busy = self._apart, self.alone.busy
        if not row:
            row.append(launched[0] + self.alone.first)
        for begin in launched[len(row) :]:
            if not _is_over(self.alone, row[-1], self.launch) or (begin > row[-1])[busy].any():
                return None
            if self._goes_on(row):  # all further ones begin as the last one did
                row.append(2 * row[-1] - row[-2])
                continue
            begins = np.maximum(row[-1], begin) + self.launch.kernel
            timeline = self.alone.simulator.timeline(begins)
            ended = ends_of(self.alone.program.as_run(timeline), timeline).max(axis=0)
            row.append(np.maximum(begins, ended))  # who does nothing ends, too
        return np.stack(row[:times])

    def _goes_on(self, row: list[Floats]) -> bool:
        """Whether the last one took equally long on all ranks, and longer than the host."""
        if len(row) < 2:
            return False
        added = (row[-1] - row[-2])[self.alone.busy]
        least = max(float(added.mean()), self.launch.period)
        return bool(np.ptp(added) <= AGREE * least and added.mean() >= self.launch.period)


def _is_over(alone: Alone, ends: Floats, launch: Launch) -> bool:
    """Whether an operation is over before the next one starts on the ranks that end first."""
    return bool(np.ptp(ends[alone.busy]) <= launch.kernel)


# **** Noise ****
# What makes one operation take longer than another, as draws of a seed. The structure is shared: of
# a sample only the beginnings of ranks and the capacities of links and kernels differ.

DISTURBED = ("compute", "launch", "link")
NETWORK = ("nic", "fabric")
Draw = Callable[["np.random.Generator", int], Floats]


@dataclass(frozen=True)
class Noise:
    """By what is disturbed, draws of what comes on top (a part, of launches seconds), and whether a
    host has one for all that is its own; how many samples there are."""

    draws: Mapping[str, tuple[Draw, bool]]
    samples: int
    seed: int = 0

    def of(self, what: str, sample: int, names: Sequence[str]) -> Floats:
        """What comes on top of each of these, which are named by host and own name."""
        draw, common = self.draws[what]
        owners = [name.partition(".")[0] for name in names] if common else list(names)
        known = {name: place for place, name in enumerate(dict.fromkeys(owners))}
        random = np.random.default_rng([self.seed, DISTURBED.index(what), sample])
        found: Floats = draw(random, len(known))[[known[name] for name in owners]]
        return found


def disturbed(program: Program, noise: Noise, engine: str) -> Floats:
    """When a program is over in each of the samples."""
    return np.array([timeline.makespan for timeline in sampled(program, noise, engine)])


def sampled(program: Program, noise: Noise, engine: str) -> Iterator[Timeline]:
    """A program as each of the samples runs it."""
    paths, links = program.paths, program.links
    # What may limit anything is no longer told by capacities that are all the same.
    active = paths.active | np.isfinite(links.capacity)[paths.link]
    program = replace(program, paths=replace(paths, active=active))
    kinds = {number: links.kind(number) for number in np.unique(paths.link[active]).tolist()}
    hit = {
        "compute": [number for number, kind in kinds.items() if kind in COMPUTING],
        "link": [number for number, kind in kinds.items() if kind in NETWORK],
    }
    names = {what: [_owner(links.name(n)) for n in some] for what, some in hit.items()}
    runs, engine = simulator(program, engine), choose(program, engine)
    for sample in range(noise.samples):
        capacity = links.capacity.copy()
        for what, some in hit.items():
            if what in noise.draws and some:
                capacity[some] /= 1 + noise.of(what, sample, names[what])
        begins = noise.of("launch", sample, program.gpus) if "launch" in noise.draws else None
        schedule, held = program.schedule, program.schedule.release_row
        if begins is not None and len(held):  # what has times of its own is as much later
            times = schedule.release_time + begins[schedule.src[held]]
            schedule, begins = replace(schedule, release_time=times), None
        if hit.keys() & noise.draws.keys() or schedule is not program.schedule:
            other = replace(program, schedule=schedule, links=replace(links, capacity=capacity))
            runs = simulator(other, engine)
        yield runs.timeline(begins)


def _owner(name: str) -> str:
    """Whose a link or resource is: of `sms(node0.gpu3)` that GPU, of a cable the end in a host."""
    inside = name.partition("(")[2].removesuffix(")") or name
    tail, _, head = inside.partition("->")
    return inside if "." in tail or "." not in head else f"{head.partition('.')[0]}.{inside}"


# **** Runs ****
# Runs of one call with some of its loops. Calls of other sizes may have told of them.

LAST, ENDS, RECURS, NEED = "last run", "ends", "recurs", "need"


@dataclass(frozen=True)
class Runs:
    """Runs of a call with some loops; of all but the last, only the timelines are kept."""

    bench: Bench
    work: Looped

    def __getitem__(self, loops: int) -> Alone:
        last = self.work.memo.of(LAST, lambda: Memo(1))
        return last.of(self._key(loops), lambda: self._run(loops))

    def _run(self, loops: int) -> Alone:
        alone = self.bench.alone(self.work.schedule(loops))
        self.known(loops, ENDS, lambda _: alone.ends.ravel(), alone)
        usual = self.work.like is not None and loops & (loops - 1) == 0
        if usual and loops >= self.work.first:  # calls of other sizes will look into it, too
            self.recurs(loops, alone)
        return alone

    def ends(self, loops: int) -> Floats:
        """When each channel of each rank is done in a run."""
        return self.known(loops, ENDS, lambda alone: alone.ends.ravel())

    def has_lanes(self, loops: int) -> bool:
        """Whether rows of a run are told apart by loops."""
        schedule = self.work.schedule(loops)
        return lanes_of(schedule, self.work.shortest, loops - self.work.least) is not None

    def recurs(self, loops: int, run: Alone | None = None) -> Recurrence | None:
        """The steady state that a run has reached before its last loops begin."""
        return self.known(loops, RECURS, lambda alone: self._found(loops, alone), run)

    def known(
        self, loops: int, what: Hashable, found: Callable[[Alone], R], run: Alone | None = None
    ) -> R:
        """What is found of a run (the last one, unless it is given), perhaps by a call of another
        size."""
        asked = (*self._key(loops), what)
        return self.work.memo.of(asked, lambda: found(self[loops] if run is None else run))

    def use_of_all(self, loops: int, seconds: float) -> links.LinkUse:
        """What passes over the links in all loops: each adds what those of a run do."""
        alone = self[loops]
        whole = alone.timeline.makespan + seconds - float(alone.ends.max())
        amounts, each = self._amounts(loops, alone.program)
        return links.use_of(alone.program, amounts + (self.work.loops - loops) * each, whole)

    def need(self, loops: int) -> float:
        """How long the busiest link takes for one loop more than a run has."""

        def found(alone: Alone) -> float:
            _, each = self._amounts(loops, alone.program)
            return float(links.use_of(alone.program, each, 1.0).utilisation.max(initial=0.0))

        return self.known(loops, NEED, found)

    def _amounts(self, loops: int, program: Program) -> tuple[Floats, Floats]:
        """What passes over the links in a run, and what each of its loops adds."""
        amounts = links.link_amounts(program)
        less = links.amounts_by(program.links, self._shortest)
        return amounts, (amounts - less) / (loops - self.work.least)

    @cached_property
    def _shortest(self) -> Program:
        """The run with the fewest loops, on the paths that it takes."""
        placed = self.bench.placed(self.work.shortest)
        return placed if placed.paths.choices is None else self.bench.alone(placed.schedule).program

    def _found(self, loops: int, alone: Alone) -> Recurrence | None:
        work = self.work
        lanes = lanes_of(alone.schedule, work.shortest, loops - work.least)
        found = recurrence(alone.program, alone.timeline, lanes) if lanes else None
        ends = alone.ends.ravel() - self.bench.launch.kernel
        if found is None or ((ends > 0) & (ends <= found.until)).any():
            return None
        return found

    def _key(self, loops: int) -> tuple[object, ...]:
        like = self.work.like
        same = loops if like is None else like(loops)
        bench = self.bench  # on links that may not be the job's own: what if they were faster?
        return same, bench.topology.token, bench.engine, bench.launch.kernel
