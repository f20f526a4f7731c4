"""The Program: a schedule placed on a topology, as arrays that engines read; and the Timeline.

Links are meant in the wide sense: wires, and whatever else has a rate that rows share. A Program
knows neither collectives nor scenarios, and holds no state of a run."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from netsim.base.errors import InputError, StalledError
from netsim.base.memo import different
from netsim.base.values import dataclass
from netsim.schedule.repeat import Launch, framed, unrolled
from netsim.schedule.schedule import COMPUTE, MULTICAST, SWITCH_REDUCE, Schedule, spelled_out
from netsim.topology.network import entries_of


class PlacementError(InputError, ValueError):
    """A schedule that cannot run on a topology; the message names ranks and rows."""


@dataclass(frozen=True, slots=True)
class Choices:
    """Paths that messages choose from when they start (adaptive routing).

    Path p belongs to route `way[p]`, whose number is that of its first path; its further paths are
    `more[way]` to `more[way + 1]`. On path p the messages under way are counted in the slots
    `slot[ptr[p]:ptr[p + 1]]`, one for each link: slot s counts those of `link[s]`. Slots that are
    `apart` belong to links that not all paths of the route share; a path is chosen by these.
    """

    way: NDArray[np.int32]
    more: NDArray[np.int64]
    ptr: NDArray[np.int64]
    slot: NDArray[np.int32]
    apart: NDArray[np.bool_]
    link: NDArray[np.int64]

    def __post_init__(self) -> None:
        for name in Choices.__slots__:
            getattr(self, name).setflags(write=False)


@dataclass(frozen=True, slots=True)
class Paths:
    """The distinct sets of resources that rows draw on, in CSR form. `link` and `weight` (resource
    units per byte or work-second) hold everything a path draws on; `active` marks the entries that
    can ever limit it. `latency` is that of one traversal."""

    ptr: NDArray[np.int64]
    link: NDArray[np.int32]
    weight: NDArray[np.float64]
    active: NDArray[np.bool_]
    latency: NDArray[np.float64]
    choices: Choices | None = None

    def __post_init__(self) -> None:
        for column in (self.ptr, self.link, self.weight, self.active, self.latency):
            column.setflags(write=False)

    def __len__(self) -> int:
        return len(self.latency)


Steps = tuple[NDArray[np.float64], NDArray[np.float64]]  # times, and the value from each on


@dataclass(frozen=True, slots=True)
class LinkTable:
    """Every resource of a Program: what it is, where, and its capacity.

    - `name`, `kind`: functions of a link's number, so that no text is made for links that nobody
      looks at. A kind is that of a wire, or the name of a resource.
    - `capacity`: units a second; `latency`: seconds.
    - `changes`: (time, link, capacity), in order of time.
    - `count`: the number of equal links that each link represents; None: each represents itself.
    - `incast`: a link at which k senders are at work has capacity ÷ (1 + incast · (k − 1)).
    - `senders`: the link that each sender resource belongs to, by the number of the resource.
    - `resources`: what is not a wire, in order of first use: kind, owner, index. Their numbers
      follow those of the wires.
    - `met`: after a run, the times at which links with senders got which capacity.
    """

    name: Callable[[int], str]
    kind: Callable[[int], str]
    capacity: NDArray[np.float64]
    latency: NDArray[np.float64]
    changes: tuple[tuple[float, int, float], ...] = ()
    count: NDArray[np.int32] | None = None
    incast: float = 0.0
    senders: Mapping[int, int] = field(default_factory=dict)
    resources: Sequence[tuple[str, int, int]] = ()
    met: Mapping[int, Steps] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.capacity)

    @property
    def wires(self) -> int:
        """The number of wires, which have the lowest numbers."""
        return len(self.capacity) - len(self.resources)

    def steps(self, link: int) -> Steps:
        """The times (seconds, from 0 on) at which a link's capacity changes, and the capacities."""
        changes = [(time, capacity) for time, number, capacity in self.changes if number == link]
        since, capacity = np.array([(0.0, self.capacity[link]), *changes]).T
        return self.met.get(link, (since, capacity))


@dataclass(frozen=True, slots=True)
class Program:
    """A schedule placed on a topology: what an engine simulates.

    - `schedule`: its styles, pieces and dependencies are those of the program.
    - `path`: for every row its entry of `paths`, or -1 if it draws on nothing.
    - `paths`: the distinct sets of links that rows draw on.
    - `links`: the capacity of every link, by number, and how it changes in time.
    - `gpus`: the name of every rank's GPU.
    - `instant`: the seconds within which everything that begins or ends has its rates solved
      together; 0 is the exact simulation.

    `netsim.place` makes it and has an example.
    """

    schedule: Schedule
    path: NDArray[np.int32]
    paths: Paths
    links: LinkTable
    gpus: tuple[str, ...]
    instant: float = 0.0

    def __post_init__(self) -> None:
        self.path.setflags(write=False)

    def __len__(self) -> int:
        return len(self.path)

    def style_values(self, name: str) -> NDArray[np.float64]:
        """One attribute of every style as numbers: latency, cap, share."""
        return np.array([getattr(s, name) for s in self.schedule.styles], np.float64)

    @property
    def caps(self) -> NDArray[np.float64]:
        """The highest rate of the rows of every style; a GPU does one work-second a second."""
        styles = self.schedule.styles
        return np.array([min(s.cap, 1.0 if s.kind == COMPUTE else inf) for s in styles], np.float64)

    @property
    def lag_seconds(self) -> NDArray[np.float64]:
        """Return the seconds of every lag (delay of a dependency) without path latencies."""
        return np.array([lag.seconds for lag in self.schedule.lags], np.float64)

    @property
    def lag_arrival(self) -> NDArray[np.int8]:
        """Return for every lag how many path latencies of the earlier row it includes.

        0: the dependent row waits for the sender only; 1: until the data has arrived; 2: until the
        answer is back.
        """
        return np.array([lag.arrival for lag in self.schedule.lags], np.int8)

    @property
    def path_latency(self) -> NDArray[np.float64]:
        """Path latency by path number, with 0 appended for rows without a path (-1)."""
        latency = self.paths.latency
        if latency.strides == (0,) and len(self.path) and self.path.min() >= 0:
            return latency  # the same for all, which takes no memory
        latency = np.append(latency, 0.0)
        latency.setflags(write=False)
        return latency

    def as_run(self, timeline: "Timeline") -> "Program":
        """The program with the paths that messages chose, and the capacity where senders met."""
        run = self if timeline.path is None else replace(self, path=timeline.path)
        links = run.links
        return replace(run, links=replace(links, met=_met(run, timeline))) if links.senders else run


@dataclass(frozen=True, slots=True)
class Timeline:
    """When every row starts and ends, in seconds since the start of the simulation.

    `path` is the path of every row if messages choose theirs (adaptive routing), else None.

    >>> timeline = Timeline(start=np.zeros(2), end=np.array([1e-6, 3e-6]))
    >>> timeline.makespan
    3e-06
    """

    start: NDArray[np.float64]
    end: NDArray[np.float64]
    path: NDArray[np.int32] | None = None

    def __post_init__(self) -> None:
        self.start.setflags(write=False)
        self.end.setflags(write=False)

    def __len__(self) -> int:
        return len(self.end)

    @property
    def makespan(self) -> float:
        """The end of the last row."""
        return float(self.end.max(initial=0.0))


def _met(program: Program, timeline: Timeline) -> dict[int, Steps]:
    """For each link at which several senders met: the times at which its capacity changed."""
    table = program.links
    schedule = program.schedule
    into = np.full(len(table), -1)
    into[[*table.senders]] = [*table.senders.values()]
    rows = np.flatnonzero((program.path >= 0) & (schedule.amount > 0))
    number, entry = entries_of(program.paths.ptr, program.path[rows])
    counted = into[program.paths.link[entry]] >= 0
    row = rows[number[counted]]
    sender = program.paths.link[entry[counted]]
    late = program.style_values("latency")[schedule.style[row]]
    begin = np.minimum(timeline.start[row] + late, timeline.end[row])
    when = np.append(begin, timeline.end[row])
    more = np.repeat([1, -1], len(row))
    senders, when, more, busy = _counted(np.append(sender, sender), when, more)
    first_or_last = busy == (more > 0)
    columns = (into[senders], when, more)
    link, when, _, busy = _counted(*(column[first_or_last] for column in columns))
    met = {}
    for number in different(link[busy > 1]).tolist():
        is_here = link == number
        since, healthy = table.steps(number)
        times = np.union1d(since, when[is_here])
        places = np.searchsorted(when[is_here], times, side="right")
        sender_counts = np.append(0, busy[is_here])[places]
        capacity = healthy[np.searchsorted(since, times, side="right") - 1]
        met[number] = times, capacity / (1 + table.incast * np.maximum(0, sender_counts - 1))
    return met


def _counted(
    owner: NDArray[Any], when: NDArray[np.float64], more: NDArray[Any]
) -> tuple[NDArray[Any], ...]:
    """Begins (`more` 1) and ends (-1) sorted by owner and time, and how many are under way then."""
    order = np.lexsort((-more, when, owner))
    return owner[order], when[order], more[order], np.cumsum(more[order])


COARSE = 1e-11  # relative distance of times that are one instant for adaptive routing


# Operations: a placed schedule done several times over, one operation after the other.
# It is kept once: only the launch by the host differs from one operation to the next.


@dataclass(frozen=True, slots=True)
class Operations:
    """Operations back to back: one operation and the times of its launches.

    `once` is one operation between its marks (see `framed`). `launched` holds the seconds at which
    the host has launched each operation (first axis) on each rank. A rank begins an operation when
    it has ended the one before.
    """

    once: Program
    launched: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.once) * len(self.launched)

    @property
    def ranks(self) -> int:
        """The number of ranks; an operation begins and ends with this number of marks."""
        return self.once.schedule.ranks

    @property
    def ends(self) -> NDArray[np.int64]:
        """The rows that end each operation (first axis) on every rank."""
        first = np.arange(1, len(self.launched) + 1)[:, None] * len(self.once)
        return first - self.ranks + np.arange(self.ranks)

    def unrolled(self) -> Program:
        """One program with the rows of all operations."""
        schedule = unrolled(self.once.schedule, self.launched).schedule
        path = np.tile(self.once.path, len(self.launched))
        return replace(self.once, schedule=schedule, path=path)


def operations(program: Program, times: int, launch: Launch) -> Operations:
    """`times` operations of a program."""
    frame = framed(program.schedule, launch.kernel)
    nowhere = np.full(frame.ranks, -1, np.int32)
    path = np.concatenate([nowhere, program.path, nowhere])
    once = replace(program, schedule=frame, path=path)
    return Operations(once, launch.times(times, frame.ranks))


# Ranks that begin at times of their own: none of a rank's rows starts before the rank does.
# As no row starts before a row that it follows, it is enough that every row gets this limit; which
# rows come first on their ranks need not be known.

Floats = NDArray[np.float64]


def released(program: Program, begins: Floats) -> Program:
    """The program with rows that may start only when their ranks have begun."""
    times = earliest(program.schedule, begins)
    every = np.arange(len(times), dtype=np.int32)
    schedule = replace(program.schedule, release_row=every, release_time=times)
    return replace(program, schedule=schedule)


def earliest(schedule: Schedule, begins: Floats) -> Floats:
    """The earliest start of every row in seconds, where `begins` is that of every rank."""
    times = _last_of_ranks(schedule, begins)
    held = schedule.release_row
    times[held] = np.maximum(times[held], schedule.release_time)
    return times


def _last_of_ranks(schedule: Schedule, begins: Floats) -> Floats:
    begins = begins[schedule.stand_in(np.arange(schedule.ranks, dtype=np.int32))]
    kinds = {style.kind for style in schedule.styles}
    if kinds.isdisjoint((MULTICAST, SWITCH_REDUCE)):
        times = begins[schedule.src]
        return np.maximum(times, begins[schedule.dst], out=times)
    place, member = spelled_out(schedule.groups, np.arange(len(schedule.groups)))
    of_group = np.zeros(len(schedule.groups))
    np.maximum.at(of_group, place, begins[member])
    # Ranks and groups side by side: at one end of rows of one kind there is a group.
    both = np.concatenate([begins, of_group])
    kind = schedule.kind
    src = schedule.src + schedule.ranks * (kind == SWITCH_REDUCE)
    dst = schedule.dst + schedule.ranks * (kind == MULTICAST)
    last: Floats = np.maximum(both[src], both[dst])
    return last


_MOST_NAMED = 5  # rows and links that a message names


def stalled(
    program: Program, start: Sequence[float], end: Sequence[float], now: float
) -> StalledError:
    """The error for a simulation in which rows have started and no longer move.

    `start` and `end` are seconds by row, infinite if not reached; `now` is the time."""
    begun = np.asarray(start) < inf
    over = np.asarray(end) < inf
    stuck = np.flatnonzero(begun & ~over)
    waiting = int((~begun).sum())
    schedule = program.schedule
    ranks = sorted({rank for row in stuck for side in schedule.members(int(row)) for rank in side})
    rows = [schedule.describe(int(row)) for row in stuck[:_MOST_NAMED]]
    capacity = program.links.capacity.copy()
    for _, link, value in program.links.changes:
        capacity[link] = value
    paths = program.paths
    dead = set()
    for path in different(program.path[stuck]):
        crossed = paths.link[paths.ptr[path] : paths.ptr[path + 1]]
        dead.update(crossed[capacity[crossed] == 0].tolist())
    links = [program.links.name(link) for link in sorted(dead)]
    return StalledError(
        f"the simulation cannot finish: at {now:.9g} s, {len(stuck)} rows stand still and "
        f"{waiting} more wait for them; ranks {_first_names(list(map(str, ranks)))}; "
        f"{_first_names(rows, len(stuck))}; links without capacity: {_first_names(links)}",
        dead_links=links,
    )


def _first_names(names: list[str], total: int | None = None) -> str:
    total = len(names) if total is None else total
    more = f" and {total - _MOST_NAMED} more" if total > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more if names else "none"
