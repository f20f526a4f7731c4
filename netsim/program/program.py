"""The Program: a schedule placed on a topology, as arrays that engines read; and the Timeline.

A link is here a wire, or anything else that has a rate which rows share. A Program knows neither
collectives nor scenarios, and holds no state of a run.
"""

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

    - `route`: by path, its route; a route has the number of its first path.
    - `more`: pointers: route r has the further paths `more[r]` to `more[r + 1]` - 1.
    - `slot`, `ptr`: a slot is a counter of active messages, one for each link by which paths are
      compared. A message on path p counts in the slots `slot[ptr[p]:ptr[p + 1]]`.
    - `apart`: by entry of `slot`, whether some path of the route does not have this link. Only
      these entries are compared.
    - `link`: the link of each slot.
    """

    route: NDArray[np.int32]
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
    """The distinct sets of links and other resources that rows draw on, in CSR form.

    - `ptr`: path p has the entries `ptr[p]` to `ptr[p + 1]` - 1.
    - `link`: by entry, the number of a link or other resource that the path draws on.
    - `weight`: by entry, the units of the resource for each byte or second of work.
    - `active`: by entry, whether the resource can ever limit the path.
    - `latency`: by path, the seconds of one traversal.
    - `choices`: the paths that messages choose from; None if each message has one path.
    """

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

    - `name`, `kind`: functions of a link's number, so that a text is made only where it is needed.
      A kind is that of a wire, or the name of a resource.
    - `capacity`: units a second; `latency`: seconds.
    - `changes`: (time, link, capacity), in order of time.
    - `count`: the number of equal links that each link represents; None: each represents itself.
    - `incast`: a link to which k senders send at a time has capacity ÷ (1 + incast · (k − 1)).
    - `senders`: by number of a sender resource, the link to which it belongs.
    - `resources`: everything that is not a wire, in order of first use: kind, owner, index. Their
      numbers follow those of the wires.
    - `incast_steps`: after a run, for links with several senders: the times and the capacities from
      then on.
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
    incast_steps: Mapping[int, Steps] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.capacity)

    @property
    def wires(self) -> int:
        """The number of wires, which have the lowest numbers."""
        return len(self.capacity) - len(self.resources)

    def steps(self, link: int) -> Steps:
        """Return when a link's capacity changes, as two arrays: times and capacities.

        Each capacity holds from its time (seconds) on; the first time is 0.
        """
        changes = [(time, capacity) for time, number, capacity in self.changes if number == link]
        since, capacity = np.array([(0.0, self.capacity[link]), *changes]).T
        return self.incast_steps.get(link, (since, capacity))


@dataclass(frozen=True, slots=True)
class Program:
    """A schedule placed on a topology: what an engine simulates.

    - `schedule`: its styles, pieces and dependencies are those of the program.
    - `path`: for every row its entry of `paths`, or -1 if it draws on nothing.
    - `paths`: the distinct sets of links that rows draw on.
    - `links`: the capacity of every link, by number, and how it changes in time.
    - `gpus`: the name of every rank's GPU.
    - `instant`: seconds; everything that begins or ends within this time has its rates solved
      together. 0 is the exact simulation.

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
        """Return one attribute of every style as numbers; `name` is latency, cap or share."""
        return np.array([getattr(s, name) for s in self.schedule.styles], np.float64)

    @property
    def caps(self) -> NDArray[np.float64]:
        """By style, the highest rate of its rows in bytes/s.

        For compute it is in seconds of work a second, at most 1.
        """
        styles = self.schedule.styles
        return np.array([min(s.cap, 1.0 if s.kind == COMPUTE else inf) for s in styles], np.float64)

    @property
    def lag_seconds(self) -> NDArray[np.float64]:
        """The seconds of every lag (delay of a dependency) without path latencies."""
        return np.array([lag.seconds for lag in self.schedule.lags], np.float64)

    @property
    def lag_arrival(self) -> NDArray[np.int8]:
        """By lag, how many latencies of the earlier row's path it includes: 0, 1 or 2.

        0: the dependent row waits for the sender only; 1: until the data has arrived; 2: until the
        answer is back.
        """
        return np.array([lag.arrival for lag in self.schedule.lags], np.int8)

    @property
    def path_latency(self) -> NDArray[np.float64]:
        """By path, the seconds of one traversal; the last entry, 0, is for rows without a path."""
        latency = self.paths.latency
        if latency.strides == (0,) and len(self.path) and self.path.min() >= 0:
            return latency  # the same for all, which takes no memory
        latency = np.append(latency, 0.0)
        latency.setflags(write=False)
        return latency

    def as_run(self, timeline: "Timeline") -> "Program":
        """Return the program as a run has simulated it.

        It has the paths that messages chose, and the capacities that links had while several
        senders used them (incast). `timeline` is the result of the run.
        """
        run = self if timeline.path is None else replace(self, path=timeline.path)
        links = run.links
        return (
            replace(run, links=replace(links, incast_steps=_incast_steps(run, timeline)))
            if links.senders
            else run
        )


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
        """The finish time of the last row, in seconds."""
        return float(self.end.max(initial=0.0))


def _incast_steps(program: Program, timeline: Timeline) -> dict[int, Steps]:
    """Return by link how its capacity changed because several senders used it (incast).

    The values are two arrays: times in seconds, and the capacity from each time on. Links with at
    most one active sender at any time are left out.
    """
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
    senders, when, more, busy = _count_under_way(np.append(sender, sender), when, more)
    first_or_last = busy == (more > 0)
    columns = (into[senders], when, more)
    link, when, _, busy = _count_under_way(*(column[first_or_last] for column in columns))
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


def _count_under_way(
    owner: NDArray[Any], when: NDArray[np.float64], more: NDArray[Any]
) -> tuple[NDArray[Any], ...]:
    """Return events sorted by owner and time, and how many are under way after each.

    - `owner`: what the events belong to.
    - `when`: their times.
    - `more`: 1 for a begin, -1 for an end.

    The result has four columns: owner, time, `more` and the count.
    """
    order = np.lexsort((-more, when, owner))
    return owner[order], when[order], more[order], np.cumsum(more[order])


COARSE = 1e-11  # relative distance of times that are one instant for adaptive routing


# A placed schedule that is executed several times, one operation after the other, is stored once:
# operations differ only in the times of their launches by the host.


@dataclass(frozen=True, slots=True)
class Operations:
    """Operations back to back: one operation and the times of its launches.

    - `once`: one operation between its start and end marks (see `framed`).
    - `launched`: as [operation, rank], the seconds at which the host has launched it.

    A rank begins an operation when it has ended the one before.
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
        """The rows that end each operation on every rank, as [operation, rank]."""
        first = np.arange(1, len(self.launched) + 1)[:, None] * len(self.once)
        return first - self.ranks + np.arange(self.ranks)

    def unrolled(self) -> Program:
        """Return one program with the rows of all operations."""
        schedule = unrolled(self.once.schedule, self.launched).schedule
        path = np.tile(self.once.path, len(self.launched))
        return replace(self.once, schedule=schedule, path=path)


def operations(program: Program, times: int, launch: Launch) -> Operations:
    """Return `times` operations of a program back to back, as the host launches them."""
    frame = framed(program.schedule, launch.kernel)
    nowhere = np.full(frame.ranks, -1, np.int32)
    path = np.concatenate([nowhere, program.path, nowhere])
    once = replace(program, schedule=frame, path=path)
    return Operations(once, launch.times(times, frame.ranks))


# If ranks begin at different times, none of a rank's rows starts before the rank begins. Every row
# gets this limit: it changes nothing for rows that follow other rows of the rank, so that it need
# not be known which rows are the first.

Floats = NDArray[np.float64]


def released(program: Program, begins: Floats) -> Program:
    """Return the program with rows that start no earlier than their ranks begin.

    `begins` is by rank the time in seconds.
    """
    times = earliest(program.schedule, begins)
    every = np.arange(len(times), dtype=np.int32)
    schedule = replace(program.schedule, release_row=every, release_time=times)
    return replace(program, schedule=schedule)


def earliest(schedule: Schedule, begins: Floats) -> Floats:
    """Return by row the earliest time in seconds at which it may start.

    It depends on when its ranks begin (`begins`, in seconds) and on its release time.
    """
    times = _latest_begin(schedule, begins)
    held = schedule.release_row
    times[held] = np.maximum(times[held], schedule.release_time)
    return times


def _latest_begin(schedule: Schedule, begins: Floats) -> Floats:
    """Return by row the latest time at which one of its ranks begins, in seconds."""
    begins = begins[schedule.stand_in(np.arange(schedule.ranks, dtype=np.int32))]
    kinds = {style.kind for style in schedule.styles}
    if kinds.isdisjoint((MULTICAST, SWITCH_REDUCE)):
        times = begins[schedule.src]
        return np.maximum(times, begins[schedule.dst], out=times)
    place, member = spelled_out(schedule.groups, np.arange(len(schedule.groups)))
    of_group = np.zeros(len(schedule.groups))
    np.maximum.at(of_group, place, begins[member])
    # One end of a multicast or an in-switch reduction is a group; groups are numbered after ranks.
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
    """Return the error for a simulation in which rows have started and no longer move.

    `start` and `end` are seconds by row, infinite if not reached; `now` is the simulated time in
    seconds.
    """
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
    """Return up to `_MOST_NAMED` of the names as a text, and how many more there are.

    `total` is the number of all; by default that of `names`.
    """
    total = len(names) if total is None else total
    more = f" and {total - _MOST_NAMED} more" if total > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more if names else "none"
