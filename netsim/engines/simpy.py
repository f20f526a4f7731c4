"""The SimPy engine: it defines the model in plain code, and the compiled engine is tested against
it.

Rates are max-min fair: all flows rise together, each at its share times a common level, until a
resource is full or a flow reaches its cap. Those flows stop, and the others rise further.

A process for every GPU starts rows when they are ready. One for every link in use applies changes
of capacity and integrates what passes. One, the fabric, divides the links at the end of an instant.
A clock lets everything that belongs to one instant happen at it.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import field
from heapq import heappop, heappush
from math import inf
from typing import Any

import numpy as np
import simpy

from netsim.base.values import dataclass, grouped
from netsim.program.program import COARSE, Program, Timeline, stalled
from netsim.schedule.schedule import SWITCH_REDUCE


@dataclass(frozen=True, slots=True)
class Demand:
    """What one flow draws on.

    - `draws`: pairs (resource, weight): units of the resource for each byte.
    - `cap`: the highest rate in bytes/s.
    - `share`: the weight of the flow when a resource is divided.
    """

    draws: tuple[tuple[int, float], ...]
    cap: float = inf
    share: float = 1.0


def fair_rates(demands: Sequence[Demand], capacity: Mapping[int, float]) -> list[float]:
    """Return the max-min fair rates of flows, in bytes/s.

    On every resource Σ weight·rate ≤ capacity, and every rate ≤ its cap. No rate ÷ share can grow
    except at the expense of one that is equal or smaller.
    """
    if len(demands) == 1:
        return [_alone(demands[0], capacity)]
    rates = [0.0] * len(demands)
    rising = set(range(len(demands)))
    left, loads = _resources(demands, capacity)
    full_at = {resource: left[resource] / sum(loads[resource].values()) for resource in loads}
    capped_at = sorted(((d.cap / d.share, i) for i, d in enumerate(demands)), reverse=True)
    while rising:
        level = min(capped_at[-1][0], min(full_at.values(), default=inf))
        stopping = set()
        while capped_at and capped_at[-1][0] <= level:
            stopping.add(capped_at.pop()[1])
        for resource in [r for r, full in full_at.items() if full <= level < inf]:
            stopping.update(loads[resource])
        changed = set()
        for i in sorted(stopping & rising):
            rates[i] = min(demands[i].share * level, demands[i].cap)
            for resource, weight in demands[i].draws:
                del loads[resource][i]
                left[resource] = max(0.0, left[resource] - weight * rates[i])
                changed.add(resource)
        for resource in changed:
            load = sum(loads[resource].values())
            full_at[resource] = left[resource] / load if load else inf
        rising -= stopping
    return rates


def _alone(demand: Demand, capacity: Mapping[int, float]) -> float:
    """Return the rate of a flow that shares with nobody: that of its tightest resource, or its
    cap.
    """
    rate = demand.cap
    for resource, weight in demand.draws:
        rate = min(rate, capacity[resource] / weight)
    return rate


def _resources(
    demands: Sequence[Demand], capacity: Mapping[int, float]
) -> tuple[dict[int, float], dict[int, dict[int, float]]]:
    """Return the capacity of each resource, and what flows draw on it.

    The second result has by resource and by flow (its index in `demands`) the units for each unit
    of level.
    """
    left: dict[int, float] = {}
    loads: dict[int, dict[int, float]] = {}
    for i, demand in enumerate(demands):
        for resource, weight in demand.draws:
            left[resource] = capacity[resource]
            loads.setdefault(resource, {})[i] = weight * demand.share
    return left, loads


def dependants(program: Program) -> list[list[tuple[int, float, int]]]:
    """Return for every row the rows that wait for it.

    Each is a tuple (row, lag in seconds, number of latencies of the earlier row's path to add to
    it).
    """
    schedule = program.schedule
    owners = np.repeat(np.arange(len(program)), np.diff(schedule.dep_ptr))
    lag, arrival = (of[schedule.dep_lag] for of in (program.lag_seconds, program.lag_arrival))
    after: list[list[tuple[int, float, int]]] = [[] for _ in range(len(program))]
    columns = (owners, schedule.dep_row, lag, arrival)
    for row, earlier, *wait in zip(*(column.tolist() for column in columns), strict=True):
        after[earlier].append((row, *wait))
    return after


TOLERANCE = 1e-14  # events within this fraction of the earliest time belong to its instant
READY, JOIN, LEAVE, CAPACITY, LOAD = range(5)

FABRIC = ("fabric", 0)

Process = Generator[simpy.Event, Any, None]
Address = tuple[str, int]
Letter = tuple[int, int, float, float]  # row or link, what happened, detail, when
Observer = Callable[[float, Mapping[int, float], Mapping[int, float]], None]
Progress = Callable[[int, int, float], None]


def run(
    program: Program, *, observer: Observer | None = None, progress: Progress | None = None
) -> Timeline:
    """Simulate a program and return its Timeline.

    After every instant `observer(now, rates by row, capacities by link)` gets the allocation, and
    `progress(rows done, rows, now)` is called.
    """
    return Simulation(program, observer, progress).timeline()


@dataclass(slots=True)
class _Flow:
    """A row that shares links: its rate, and the bytes that are left at the time `since`."""

    demand: Demand
    left: float
    since: float
    later: float = 0.0  # seconds from the instant in which it first has a rate to its own beginning
    rate: float = 0.0
    version: int = 0


@dataclass
class Simulation:
    """The state of one run.

    - `agenda`: a heap of events: (time, row or link, what happens, detail).
    - `flows`: by row, the rows that share links now.
    - `users`: by link, the rows that draw on it.
    - `carried`: by link, the units that have passed, such as bytes.
    """

    program: Program
    observer: Observer | None = None
    progress: Progress | None = None
    now: float = 0.0
    horizon: float = 0.0  # events up to this time belong to this instant
    done: int = 0
    agenda: list[tuple[float, int, int, float]] = field(default_factory=list)
    flows: dict[int, _Flow] = field(default_factory=dict)
    users: dict[int, set[int]] = field(default_factory=dict)
    touched: set[int] = field(default_factory=set)  # links with a change in this instant
    loners: set[int] = field(default_factory=set)  # new flows that draw on no link
    choosing: list[int] = field(default_factory=list)  # rows that choose paths in this instant
    messages: dict[int, int] = field(default_factory=dict)  # under way, by slot of choices
    carried: dict[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        program, schedule = self.program, self.program.schedule
        self.env = simpy.Environment()
        self.choices = program.paths.choices
        self.path = program.path.tolist()
        self.path_latency = program.path_latency.tolist()
        self.tolerance = TOLERANCE if self.choices is None else COARSE
        self.mail: dict[Address, list[Letter]] = {}
        self.sleeping: dict[Address, simpy.Event] = {}
        self.style = schedule.style.tolist()
        self.amount = schedule.amount.tolist()
        reduces = schedule.kind == SWITCH_REDUCE
        self.owner = np.where(reduces, schedule.dst, schedule.src).tolist()
        self.caps = program.caps.tolist()
        self.shares = program.style_values("share").tolist()
        self.latency = program.style_values("latency").tolist()
        self.capacity = dict(enumerate(program.links.capacity.tolist()))
        self.healthy = dict(self.capacity)  # capacities of links with one sender
        self.senders = grouped(program.links.senders, program.links.senders.get)
        self.draws: dict[int, tuple[tuple[int, float], ...]] = {-1: ()}
        self.start = [inf] * len(program)
        self.end = [inf] * len(program)
        self.ready = [0.0] * len(program)
        for row, when in zip(schedule.release_row, schedule.release_time, strict=True):
            self.ready[row] = float(when)
        self.waiting = np.diff(schedule.dep_ptr).tolist()
        self.after = dependants(program)

    def timeline(self) -> Timeline:
        """Run until the end, and return the Timeline."""
        for row in [row for row, count in enumerate(self.waiting) if count == 0]:
            self._wake(row)
        for time, link, value in self.program.links.changes:
            heappush(self.agenda, (time, link, CAPACITY, value))
        self.env.process(self._fabric())
        self.env.process(self._clock())
        self.env.run()
        if self.done < len(self.program):
            raise stalled(self.program, self.start, self.end, self.now)
        path = None if self.choices is None else np.array(self.path, np.int32)
        return Timeline(np.array(self.start), np.array(self.end), path)

    # **** Processes ****

    def _clock(self) -> Process:
        """Process one instant after the other, until all rows have finished or no event is left.

        An instant is over when the processes cause no further event within it.
        """
        while self._next_is_due() and self.done < len(self.program):
            self.now = self.agenda[0][0]
            if self.now > self.env.now:
                yield self.env.timeout(self.now - self.env.now)
            self.horizon = self.now * (1 + self.tolerance) + self.program.instant
            while self._deliver():
                yield self.env.timeout(0)  # processes that were woken act before the next event
            if self.observer is not None:
                rates = {row: flow.rate for row, flow in self.flows.items()}
                self.observer(self.now, rates, self.capacity)
            if self.progress is not None:
                self.progress(self.done, len(self.program), self.now)

    def _gpu(self, rank: int) -> Process:
        """Start the rows of a rank when they are ready, and let them share links after their
        latency.
        """
        while True:
            for row, message, _, when in self._letters("gpu", rank):
                latency = self.latency[self.style[row]]
                if message == READY:
                    self.start[row] = when
                if message == READY and latency > 0:
                    heappush(self.agenda, (when + latency, row, JOIN, 0.0))
                elif self.amount[row] > 0 and self._may_choose(row):
                    self.choosing.append(row)
                elif self.amount[row] > 0:
                    self._join(row)
                else:
                    self._finish(row, when)
            yield self._sleep("gpu", rank)

    def _link(self, link: int) -> Process:
        """Apply changes of a link's capacity, and integrate its load."""
        load = 0.0
        since = 0.0
        self.carried[link] = 0.0
        while True:
            for _, message, value, when in self._letters("link", link):
                if message == CAPACITY:
                    self.healthy[link] = value
                    self.touched.add(link)
                else:
                    self.carried[link] += load * (when - since)
                    load = value
                    since = when
            yield self._sleep("link", link)

    def _fabric(self) -> Process:
        """Remove flows that have ended, and solve for all rates at the end of an instant.

        Before the rates are solved, messages that may choose their path do so in the order of rows.
        """
        while True:
            yield self._sleep(*FABRIC)
            for row, _, _, when in self._letters(*FABRIC):
                self._leave(row, when)
            over = not self.agenda or self.agenda[0][0] > self.horizon
            for row in sorted(self.choosing) if over else ():
                self._choose(row)
            self.choosing = [] if over else self.choosing
            if over and (self.touched or self.loners):
                self._solve()
                self.horizon = 0.0 if self.program.instant else self.horizon

    # **** Mail between processes ****

    def _letters(self, kind: str, number: int) -> list[Letter]:
        """Return the messages for a process (kind, number), and remove them from its mail."""
        return self.mail.pop((kind, number), [])

    def _sleep(self, kind: str, number: int) -> simpy.Event:
        """Return an event on which a process waits for mail."""
        sleeper = self.sleeping[kind, number] = self.env.event()
        return sleeper

    def _wake_process(self, kind: str, number: int) -> None:
        """Wake a process, or create it when it is first needed."""
        sleeper = self.sleeping.get((kind, number))
        if sleeper is None:
            self.env.process({"gpu": self._gpu, "link": self._link}[kind](number))
        elif not sleeper.triggered:
            sleeper.succeed()

    def _deliver(self) -> bool:
        """Deliver all events of this instant that are due to their processes.

        Events are delivered in row order, to the fabric last. Returns whether there were any.
        """
        due: list[Letter] = []
        while self.agenda and self.agenda[0][0] <= self.horizon:
            time, number, message, detail = heappop(self.agenda)
            if message != LEAVE or self._is_current(number, detail):
                due.append((number, message, detail, time if self.program.instant else self.now))
        for letter in sorted(due):
            number, message = letter[:2]
            if message == LEAVE:
                address = FABRIC
            else:
                address = ("link", number) if message == CAPACITY else ("gpu", self.owner[number])
            self.mail.setdefault(address, []).append(letter)
            if address != FABRIC:
                self._wake_process(*address)
        if due:
            self._wake_process(*FABRIC)
        return bool(due)

    def _next_is_due(self) -> bool:
        """Return whether any event is left; outdated finish times of flows are dropped."""
        while self.agenda:
            _, number, message, detail = self.agenda[0]
            if message != LEAVE or self._is_current(number, detail):
                return True
            heappop(self.agenda)
        return False

    def _is_current(self, row: int, version: float) -> bool:
        """Return whether a row is a flow whose rate has this version.

        Each new rate of a flow gets a new version, so that finish times of earlier rates can be
        recognized.
        """
        return row in self.flows and self.flows[row].version == version

    # **** Rows and flows ****

    def _may_choose(self, row: int) -> bool:
        """Return whether a row may choose between paths."""
        if self.choices is None or not self._draws(row):
            return False
        return len(self._options(row)) > 1

    def _options(self, row: int) -> list[int]:
        """Return the paths that a row may choose from."""
        assert self.choices is not None
        route = int(self.choices.route[self.path[row]])
        return [route, *range(*self.choices.more[route : route + 2].tolist())]

    def _choose(self, row: int) -> None:
        """Choose the path of a message and start it.

        It takes the path with the least `_fullest`, and of equal ones the first.
        """
        self.path[row] = min(self._options(row), key=self._fullest)
        self._join(row)

    def _fullest(self, path: int) -> float:
        """Return how full a path is: messages / capacity (s/B) of its fullest link.

        The messages of a link are the active ones and one more. Links that all alternative paths
        share do not count.
        """
        choices = self.choices
        full = 0.0
        assert choices is not None
        for entry in range(*choices.ptr[path : path + 2].tolist()):
            if choices.apart[entry]:
                rate = self.healthy[int(choices.link[choices.slot[entry]])]
                messages = self.messages.get(int(choices.slot[entry]), 0) + 1
                full = max(full, messages / rate if rate else inf)
        return full

    def _count(self, row: int, more: int) -> None:
        """Add `more` (1 or -1) to the number of active messages on each link of a row's path."""
        path = self.path[row]
        if self.choices is not None and self._draws(row):
            for slot in self.choices.slot[slice(*self.choices.ptr[path : path + 2])].tolist():
                self.messages[slot] = self.messages.get(slot, 0) + more

    def _join(self, row: int) -> None:
        """Let a row share the links of its path."""
        draws = self._draws(row)
        style = self.style[row]
        demand = Demand(draws, self.caps[style], self.shares[style])
        later = max(0.0, self._move_time(row) - self.now) if self.program.instant else 0.0
        self.flows[row] = _Flow(demand, self.amount[row], self.now, later)
        for link, _ in draws:
            self.users.setdefault(link, set()).add(row)
            self.touched.add(link)
        if not draws:
            self.loners.add(row)
        self._count(row, 1)

    def _draws(self, row: int) -> tuple[tuple[int, float], ...]:
        """Return what a row draws on, as pairs (resource, weight).

        Resources that can never limit it are left out.
        """
        path = self.path[row]
        paths = self.program.paths
        if path not in self.draws:
            span = slice(int(paths.ptr[path]), int(paths.ptr[path + 1]))
            links = paths.link[span]
            weights = paths.weight[span]
            active = paths.active[span]
            pairs = zip(links[active].tolist(), weights[active].tolist(), strict=True)
            self.draws[path] = tuple(pairs)
        return self.draws[path]

    def _move_time(self, row: int) -> float:
        """Return the time in seconds at which the bytes of a row begin to move: its start plus its
        latency.
        """
        return float(self.start[row] + self.latency[self.style[row]])

    def _leave(self, row: int, when: float) -> None:
        """End the flow of a row."""
        for link, _ in self.flows.pop(row).demand.draws:
            self.users[link].discard(row)
            self.touched.add(link)
        self._count(row, -1)
        self._finish(row, max(when, self._move_time(row)) if self.program.instant else when)

    def _wake(self, row: int) -> None:
        """Start a row whose dependencies have all finished.

        Without wide instants (`instant` is 0) its start is an event. With them only a row that
        shares links needs an event, for when its bytes begin to move; the finish time of any other
        row is computed at once.
        """
        self.start[row] = self.ready[row]
        if self.program.instant == 0:
            heappush(self.agenda, (self.ready[row], row, READY, 0.0))
        elif self.amount[row] > 0 and self._draws(row):
            heappush(self.agenda, (self._move_time(row), row, JOIN, 0.0))
        else:
            self._finish(row, self._move_time(row) + self.amount[row] / self.caps[self.style[row]])

    def _finish(self, row: int, when: float) -> None:
        """Set the finish time of a row, and start the rows that have no other dependency left."""
        self.end[row] = when
        self.done += 1
        latency = self.path_latency[self.path[row]]
        for dependant, lag, arrival in self.after[row]:
            ready = when + (lag + arrival * latency)
            self.ready[dependant] = max(self.ready[dependant], ready)
            self.waiting[dependant] -= 1
            if self.waiting[dependant] == 0:
                self._wake(dependant)

    def _solve(self) -> None:
        """Recompute the fair rates of all flows that a change in this instant can affect.

        These are the flows that share links, directly or through other flows, with a flow or link
        that changed.
        """
        self._resize()
        links, rows = self._connected()
        self.touched.clear()
        self.loners.clear()
        flows = [self.flows[row] for row in rows]
        rates = fair_rates([flow.demand for flow in flows], self.capacity)
        for row, flow, rate in zip(rows, flows, rates, strict=True):
            flow.left += rate * flow.later if rate < inf else 0.0
            flow.later = 0.0
            if rate == flow.rate:
                continue
            if flow.rate > 0:
                flow.left = max(0.0, flow.left - flow.rate * (self.now - flow.since))
            flow.since = self.now
            flow.rate = rate
            flow.version += 1
            if rate > 0:
                heappush(self.agenda, (self.now + flow.left / rate, row, LEAVE, flow.version))
        for link in links:
            flows = [self.flows[row] for row in sorted(self.users.get(link, ()))]
            load = sum(flow.rate * dict(flow.demand.draws)[link] for flow in flows)
            if load < inf:  # a flow with an infinite rate ends at once
                self.mail.setdefault(("link", link), []).append((link, LOAD, load, self.now))
                self._wake_process("link", link)

    def _resize(self) -> None:
        """Recompute the capacity of links with a change, from the number of their senders.

        With n active senders, incast divides the capacity of a link by 1 + incast * (n - 1).
        """
        table = self.program.links
        self.touched |= {table.senders[one] for one in self.touched if one in table.senders}
        for link in self.touched:
            busy = sum(bool(self.users.get(one)) for one in self.senders.get(link, ()))
            self.capacity[link] = self.healthy[link] / (1 + table.incast * max(0, busy - 1))

    def _connected(self) -> tuple[list[int], list[int]]:
        """Return the links and rows that are connected, over shared links, to what has changed."""
        links = set(self.touched)
        rows = set(self.loners)
        fresh = list(self.touched)
        while fresh:
            for row in self.users.get(fresh.pop(), ()):
                if row not in rows:
                    rows.add(row)
                    new = [link for link, _ in self.flows[row].demand.draws if link not in links]
                    links.update(new)
                    fresh.extend(new)
        return sorted(links), sorted(rows)
