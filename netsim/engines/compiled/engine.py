"""The compiled engine: its event loop, and how a Program is prepared for it and simulated."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property, partial
from math import inf
from threading import Thread
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from netsim.base.values import dataclass
from netsim.engines.compiled import structures
from netsim.engines.compiled.fair import look_at, mark_dirty, resize, seat_for, settle
from netsim.engines.compiled.grouping import (
    Followers,
    Grouping,
    followers_of,
    group_rows,
    tight_entries,
)
from netsim.engines.compiled.machine_code import CompiledFunction, InnerFunction
from netsim.program.program import COARSE, Choices, Operations, Program, Timeline, earliest, stalled

__all__ = ["Simulator", "is_ready", "run", "run_operations", "tight_entries"]

INSTANT = 1e-14  # events within this fraction of the earliest time belong to its instant
DONE, STALLED, STOPPED, PAUSED, MORE_SEATS, MORE_ALARMS = range(6)


@CompiledFunction
def advance_rows(
    rows: structures.RowColumns,
    net: structures.Net,
    future: structures.Future,
    options: structures.PathChoices,
) -> int:
    """Simulate until the end or an obstacle; return the reason for which it stopped.

    - DONE: all rows have finished.
    - STALLED: no row can continue.
    - STOPPED: `core.stop` was set.
    - PAUSED: a row from number `core.pause` on is about to be finished.
    - MORE_SEATS, MORE_ALARMS: there is no place for another seat or alarm.

    The arguments hold the entire state, so that the next call continues where this one has
    returned.
    """
    core = net.core[0]
    waiting = options.waiting
    while core.stop == 0:
        while core.stop == 0 and (core.over >= 0 or core.ready >= 0 or waiting[0].number > 0):
            if core.over >= core.pause:
                return PAUSED
            if core.over >= 0:
                _end(rows, core, options.taken)
            elif core.free_seat < 0 and core.seats == len(future.ends) >> 1:
                return MORE_SEATS
            elif core.free_alarm < 0 and core.alarms == len(future.alarms) >> 1:
                return MORE_ALARMS
            elif core.ready >= 0:
                _begin(rows, net, future, options)
            else:
                _choose(rows, net, options)
        settle(rows, net, future.ends)
        _join_later(rows, net, future.ends)
        if core.done == len(rows.start):
            return DONE
        if not _next_instant(rows, net, future, options):
            return STALLED
    return STOPPED


@InnerFunction
def _next_instant(
    rows: structures.RowColumns,
    net: structures.Net,
    future: structures.Future,
    options: structures.PathChoices,
) -> bool:
    """Go to the earliest event and process all events of its instant; return whether any is left.

    Events are changes of capacities, alarms of rows, and the ends of flows.
    """
    core = net.core[0]
    ends = future.ends
    alarms = future.alarms
    changes = future.changes
    now = min(ends[1], alarms[1], changes[core.change].time)
    if now == inf:
        return False
    core.now, part = now, COARSE if len(options.taken) > 0 else INSTANT
    core.horizon = now * (1 + part) + core.instant
    while changes[core.change].time <= core.horizon:
        change = changes[core.change]
        if change.link >= 0:
            net.links[change.link].capacity = change.capacity
            look_at(net, change.link, 0.0)
            if len(net.crowds) > 0:
                net.crowds[change.link].healthy = change.capacity
                resize(net, change.link, 0)
        if change.slot >= 0:
            options.slots[change.slot].capacity = change.capacity
        core.change += 1
    node = structures.next_due(alarms, 1, core.horizon)
    while node > 0 and core.stop == 0:
        alarms[node] = inf
        _end_alarm(rows, core, future.alarm_row, node - (len(alarms) >> 1))
        node = structures.next_due(alarms, node, core.horizon)
    node = structures.next_due(ends, 1, core.horizon)
    while node > 0 and core.stop == 0:
        ends[node] = inf
        place = node - (len(ends) >> 1)
        seat = net.seats[place]
        while seat.flows > 0 and structures.next_end(rows, seat) <= core.horizon:
            when = structures.next_end(rows, seat)
            row = structures.leave(rows, seat)
            _count(options, row, -1.0)
            when = max(now, when, _move_time(rows, core, row)) if core.instant > 0.0 else now
            _finish(rows, core, row, when)
        mark_dirty(net, place)
        node = structures.next_due(ends, node, core.horizon)
    return True


@InnerFunction
def _begin(
    rows: structures.RowColumns,
    net: structures.Net,
    future: structures.Future,
    options: structures.PathChoices,
) -> None:
    """Take the next row from the list of ready rows, and start it.

    If its bytes begin to move after this instant, it gets an alarm for that time, when it is ready
    again. A row that shares no link runs at a known rate, so its finish time is computed at once.
    """
    core = net.core[0]
    row = core.ready
    core.ready = rows.waits[row]
    once = row if row < core.span else row % core.span
    style = rows.styles[rows.style[once]]
    moves = rows.start[row] + style.latency
    amount = rows.amount[rows.piece[once]]
    path = rows.path[once]
    group = rows.group[once if core.kinds == 0 else (path + 1) * core.kinds + style.kind]
    if amount <= 0.0 or (group < 0 and style.cap == inf):
        _finish(rows, core, row, moves)
    elif group < 0:
        _finish(rows, core, row, moves + amount / style.cap)
    elif moves > core.horizon:
        _set_alarm(core, future.alarms, future.alarm_row, row, moves)
    elif len(options.taken) > 0 and path >= 0 and _alternatives(options, path) > 0:
        structures.put_in(options.waiting, row, 0.0)
    else:
        _join(rows, net, options, row, group)


@InnerFunction
def _join(
    rows: structures.RowColumns,
    net: structures.Net,
    options: structures.PathChoices,
    row: int,
    group: int,
) -> None:
    """Make a row a flow in the seat of its group, so that it shares links.

    If its bytes begin to move later in this instant, `_join_later` adds it when the rates are
    known.
    """
    core = net.core[0]
    place = seat_for(net, group)
    net.seats[place].flows += 1
    _count(options, row, 1.0)
    if core.instant == 0.0:
        rows.start[row] = min(rows.start[row], core.now)
    elif _move_time(rows, core, row) > core.now:
        rows.child[row], rows.waits[row], core.later = place, core.later, row
        return
    _add_flow(rows, net, row, place, 0.0)


@InnerFunction
def _add_flow(
    rows: structures.RowColumns, net: structures.Net, row: int, place: int, more: float
) -> None:
    """Add a row to the flows of seat number `place`.

    Its work is amount / share (bytes) plus `more`, which is in the same unit.
    """
    core = net.core[0]
    seat = net.seats[place]
    amount = rows.amount[rows.piece[row if row < core.span else row % core.span]]
    structures.join(rows, seat, row, amount / net.kinds[net.groups[seat.group].kind].share + more)


@InnerFunction
def _move_time(rows: structures.RowColumns, core: structures.Records, row: int) -> float:
    """Return the time in seconds at which the bytes of a row begin to move: its start plus its
    latency.
    """
    once = row if row < core.span else row % core.span
    return float(rows.start[row] + rows.styles[rows.style[once]].latency)


@InnerFunction
def _join_later(rows: structures.RowColumns, net: structures.Net, ends: structures.Agenda) -> None:
    """Add those rows to the flows of their seats whose bytes begin to move within this instant.

    They have bandwidth from the beginning of the instant on. So that they finish at the right time,
    their work grows by what they would move until their bytes begin to move: level * seconds.
    """
    core = net.core[0]
    while core.later >= 0 and core.stop == 0:
        row = core.later
        place = rows.child[core.later]
        core.later = rows.waits[row]
        rows.child[row] = 0
        level = net.seats[place].level
        more = (_move_time(rows, core, row) - core.now) * level if level < inf else 0.0
        _add_flow(rows, net, row, place, more)
        structures.put(ends, place, structures.next_end(rows, net.seats[place]))


@InnerFunction
def _alternatives(options: structures.PathChoices, path: int) -> int:
    """Return the number of further paths of the route whose first path is `path`."""
    route = options.route[path]
    return int(options.more[route + 1] - options.more[route])


@InnerFunction
def _choose(
    rows: structures.RowColumns, net: structures.Net, options: structures.PathChoices
) -> None:
    """Choose the path of a message (the first row of `options.waiting`), and start it.

    It takes the path with the least `_fullest`, and of equal ones the first.
    """
    core = net.core[0]
    row = options.waiting[1].number
    structures.take_out(options.waiting, row)
    best = options.route[options.taken[row]]
    least = _fullest(options, best)
    first = options.more[best]
    for path in range(first, first + _alternatives(options, best)):
        full = _fullest(options, path)
        if full < least:
            best = path
            least = full
    options.taken[row] = best
    style = rows.styles[rows.style[row if row < core.span else row % core.span]]
    _join(rows, net, options, row, rows.group[(best + 1) * core.kinds + style.kind])


@InnerFunction
def _fullest(options: structures.PathChoices, path: int) -> float:
    """Return how full a path is: messages / capacity (s/B) of its fullest link.

    The messages of a link are the active ones and one more. Links that all alternative paths share
    do not count.
    """
    full = 0.0
    for k in range(options.ptr[path], options.ptr[path + 1]):
        if options.apart[k]:
            slot = options.slots[options.slot[k]]
            full = max(full, (slot.messages + 1) / slot.capacity if slot.capacity > 0.0 else inf)
    return full


@InnerFunction
def _count(options: structures.PathChoices, row: int, more: float) -> None:
    """Add `more` (1 or -1) to the number of active messages on each link of a row's path."""
    path = options.taken[row] if len(options.taken) > 0 else -1
    if path >= 0:
        for k in range(options.ptr[path], options.ptr[path + 1]):
            options.slots[options.slot[k]].messages += more


@InnerFunction
def _finish(rows: structures.RowColumns, core: structures.Records, row: int, end: float) -> None:
    """Set the finish time of a row, and put the row on the list of finished rows."""
    rows.end[row] = end
    rows.waits[row] = core.over
    core.over = row


@InnerFunction
def _end(rows: structures.RowColumns, core: structures.Records, taken: NDArray[np.int32]) -> None:
    """Take the next row from the list of finished rows, and tell its followers its finish time.

    `taken` is by row the path that it has chosen; empty if there is no choice of paths. The end
    mark of a rank also starts the rank's next operation.
    """
    row = core.over
    core.over = rows.waits[row]
    core.done += 1
    once = row if row < core.span else row % core.span
    path = taken[row] if len(taken) > 0 else rows.path[once]
    end = rows.end[row]
    latency = rows.path_latency[path]
    for k in range(rows.next_ptr[once], rows.next_ptr[once + 1]):
        lag = rows.lags[rows.next_lag[k]]
        after = rows.next_row[k] + (row - once)
        _meet_dependency(rows, core, after, end + (lag.seconds + latency * lag.arrival))
    mark = once - (core.span - core.marks)
    if mark >= 0 and row + core.marks < len(rows.start):  # the next operation of a rank
        _meet_dependency(rows, core, row + core.marks, end)


@InnerFunction
def _meet_dependency(
    rows: structures.RowColumns, core: structures.Records, row: int, start: float
) -> None:
    """Record that one dependency of a row is met and that the row starts at `start` or later.

    After its last dependency the row joins the list of ready rows.
    """
    rows.start[row] = max(rows.start[row], start)
    rows.waits[row] -= 1
    if rows.waits[row] == 0:
        rows.waits[row] = core.ready
        core.ready = row


@InnerFunction
def _set_alarm(
    core: structures.Records, alarms: structures.Agenda, alarm_row: Any, row: int, when: float
) -> None:
    """Set an alarm: `row` becomes ready again at the time `when` (seconds).

    `alarm_row` has the row of every alarm; the new alarm gets the first free place in it.
    """
    place = core.free_alarm
    if place >= 0:
        core.free_alarm = alarm_row[place]
    else:
        place = core.alarms
        core.alarms += 1
    alarm_row[place] = row
    structures.put(alarms, place, when)


@InnerFunction
def _end_alarm(
    rows: structures.RowColumns, core: structures.Records, alarm_row: Any, place: int
) -> None:
    """Free the place of an alarm whose time has come; its row joins the list of ready rows."""
    row = alarm_row[place]
    alarm_row[place] = core.free_alarm
    core.free_alarm = place
    rows.waits[row] = core.ready
    core.ready = row


# Machine code runs in a thread of its own, while the main thread reports progress. Python can react
# to Ctrl-C only between calls, and one call may simulate for minutes.

LOOK = 0.1  # seconds between two reports of progress


def run_in_thread(
    call: Callable[[], int], stop: Callable[[], None], look: Callable[[], None]
) -> int:
    """Run `call` in another thread and return its result.

    Meanwhile `look()` is called every `LOOK` seconds. On an interruption (Ctrl-C) `stop()` is
    called, and the interruption is raised when the thread has ended.
    """
    answers: list[int] = []
    thread = Thread(target=lambda: answers.append(call()))
    thread.start()
    try:
        thread.join(LOOK)
        while thread.is_alive():
            look()
            thread.join(LOOK)
    except BaseException:
        stop()
        thread.join()
        raise
    return answers[0]


Floats = NDArray[np.float64]
Progress = Callable[[int, int, float], None]

_PLACES = 1 << 10  # seats and alarms to begin with
MIN_ROWS_TO_KEEP_MEMORY = 1_000_000  # rows for which memory that is freed is worth keeping
MAX_CONTINUED_ROWS = 20_000_000  # rows of operations on which more may follow: of more, none do
MAX_UNWATCHED_ROWS = 5000  # rows that are simulated before anybody could interrupt


@dataclass(frozen=True)
class Simulator:
    """Simulates a program several times; its groups and dependencies are computed once."""

    program: Program

    def timeline(
        self,
        begins: Floats | None = None,
        *,
        progress: Progress | None = None,
        instant: float | None = None,
    ) -> Timeline:
        """Simulate the program and return its Timeline.

        - `begins`: the times at which ranks begin, in seconds; by default all begin at 0.
        - `progress`: is called now and then with the rows that are done, all rows, and the
          simulated time.
        - `instant`: the length of an instant in seconds; by default that of the program.
        """
        program = self.program if instant is None else replace(self.program, instant=instant)
        run = _Run(Operations(program, np.zeros((1, 0))), self._prepared, begins)
        run.simulate(progress)
        return run.timeline

    @cached_property
    def _prepared(self) -> "_Prepared":
        """The groups and dependencies of the program."""
        return _prepare(self.program)


def run(program: Program, *, progress: Progress | None = None) -> Timeline:
    """Simulate a program once and return its Timeline; `progress`: see `Simulator.timeline`."""
    return Simulator(program).timeline(progress=progress)


def is_ready() -> bool:
    """Return whether the event loop has been compiled, so that a run compiles nothing."""
    return advance_rows.is_ready


def run_operations(many: Operations, under_way: "list[_Run] | None" = None) -> Timeline:
    """Simulate operations back to back; return the times of the rows of all of them, in order.

    `under_way` is a list with at most one earlier run, of fewer of the same operations. That run is
    continued from the time at which the first rank had finished its last operation. The new run
    replaces it in the list.
    """
    run = under_way.pop().longer(many) if under_way else _Run(many, _prepare(many.once))
    if len(many) >= MAX_CONTINUED_ROWS:
        structures.trim_memory()
    elif under_way is not None:
        run.keep()
        under_way.append(run)
    run.simulate()
    return run.timeline


class _Prepared(NamedTuple):
    """What does not change between runs of a program: groups of rows, and followers of rows."""

    grouping: Grouping
    followers: Followers


def _prepare(program: Program) -> _Prepared:
    """Return the groups and the followers of a program's rows."""
    if len(program) >= MIN_ROWS_TO_KEEP_MEMORY:
        structures.keep_freed_memory()
    return _Prepared(group_rows(program), followers_of(program.schedule))


CHANGING = ("start", "end", "waits", "child")  # columns of rows


class _Run:
    """A simulation in progress. The arguments of `advance_rows` hold its entire state."""

    def __init__(self, many: Operations, prepared: _Prepared, begins: Floats | None = None) -> None:
        self.many = many
        self.prepared = prepared
        grouping = prepared.grouping
        self.rows = _rows(many, prepared, begins)
        ready, free = _list_free_rows(self.rows)
        places = _places(min(free, len(grouping.groups) - 1))
        self.net = _net(many.once, grouping, places)
        self.future = _future(many, grouping, places)
        self.options, core = _options(many), self.net.core[0]
        core["ready"], core["span"], core["marks"] = ready, len(many.once), many.launched.shape[1]
        core["pause"] = len(many)

    def simulate(self, progress: Progress | None = None) -> None:
        """Simulate until the end, or until the row where the run is to pause (`core["pause"]`).

        `progress` is called now and then with the rows that are done, all rows, and the simulated
        time.
        """
        many = self.many
        grouping = self.prepared.grouping
        core = self.net.core[0]

        def look() -> None:
            """Call `progress`, if there is one."""
            if progress is not None:
                progress(int(core["done"]), len(many), float(core["now"]))

        stop = partial(core.__setitem__, "stop", 1)
        while True:
            call = advance_rows.ready(self.rows, self.net, self.future, self.options)
            state = call() if len(many) < MAX_UNWATCHED_ROWS else run_in_thread(call, stop, look)
            if state == MORE_SEATS:
                if _has_caps(grouping):
                    self.net = self.net._replace(looks=structures.longer(self.net.looks))
                self.future = self.future._replace(ends=structures.grown(self.future.ends))
            elif state == MORE_ALARMS:
                self.future = self.future._replace(alarms=structures.grown(self.future.alarms))
            else:
                break
        if state == STALLED:
            program = many.once if len(many.launched) == 1 else many.unrolled()
            raise _stalled(program, self.rows, max(float(core["now"]), float(self.rows.end.max())))

    @property
    def timeline(self) -> Timeline:
        """The times of all rows, once they have finished."""
        taken = self.options.taken
        return Timeline(self.rows.start, self.rows.end, taken if len(taken) else None)

    def keep(self) -> None:
        """Simulate until the first rank has finished its last operation, and save the state then.

        `longer` continues from it. Columns of rows are saved from the first unfinished row on.
        """
        core = self.net.core
        core["pause"] = len(self.many) - core["marks"]
        self.simulate()
        core["pause"] = len(self.many)
        first = int((self.rows.end < 0).argmax())
        columns = [getattr(self.rows, name)[first:].copy() for name in CHANGING]
        state = self.net, self.future, self.options
        self.saved: Any = first, columns, *(type(one)(*map(np.copy, one)) for one in state)

    def longer(self, many: Operations) -> "_Run":
        """Return a run of more operations that continues from the saved state."""
        run = _Run(many, self.prepared)
        (first, columns, net, future, options) = self.saved
        for name, column in zip(CHANGING, columns, strict=True):
            getattr(run.rows, name)[: len(self.many)] = getattr(self.rows, name)
            getattr(run.rows, name)[first : len(self.many)] = column
        run.future.alarm_row[: len(self.many)] = future.alarm_row
        run.options.taken[: len(options.taken)] = options.taken
        run.options.waiting[: len(options.waiting)] = options.waiting
        run.net, run.future = net, future._replace(alarm_row=run.future.alarm_row)
        run.options = run.options._replace(slots=options.slots)
        run.net.core["pause"] = len(many)
        return run


def _places(seats: int) -> int:
    """Return the number of places of the agenda `ends` for `seats` seats: a power of 4.

    The queue `looks` has the same number of entries for seats, after those for links.
    """
    return structures.places_for(max(seats, _PLACES))


def _rows(many: Operations, prepared: _Prepared, begins: Floats | None) -> structures.RowColumns:
    """Return the columns of rows before the start of a run.

    `begins` are the times at which ranks begin, in seconds; None: all begin at 0.
    """
    program = many.once
    schedule = many.once.schedule
    times, marks = many.launched.shape
    if begins is None:
        start = np.zeros(len(many))
        start[schedule.release_row] = schedule.release_time
    else:
        start = earliest(schedule, begins)
    begins = start.reshape(times, -1)[:, :marks]
    np.maximum(begins, many.launched, out=begins)
    waits = np.tile(np.diff(schedule.dep_ptr), times)
    waits.reshape(times, -1)[1:, :marks] += 1
    styles = np.zeros(len(schedule.styles), structures.STYLE)
    styles["latency"], styles["cap"] = program.style_values("latency"), program.caps
    styles["kind"] = prepared.grouping.kind
    lags = np.zeros(len(schedule.lags), structures.LAG)
    lags["seconds"], lags["arrival"] = program.lag_seconds, program.lag_arrival
    return structures.RowColumns(
        style=schedule.style,
        piece=schedule.piece,
        path=program.path,
        start=start,
        end=np.full(len(many), -1.0),
        waits=waits,
        child=structures.untouched(len(many), np.int32),
        next_ptr=prepared.followers.ptr,
        next_row=prepared.followers.row,
        next_lag=prepared.followers.lag,
        styles=styles,
        lags=lags,
        amount=schedule.pieces.amount,
        path_latency=program.path_latency,
        group=prepared.grouping.group,
    )


def _net(program: Program, grouping: Grouping, places: int) -> structures.Net:
    """Return the links, groups and seats before the start, when no row is active.

    Unused seats take no memory. `places` is the number of seats for which the queue `looks` has
    room.
    """
    core = np.zeros(1, structures.CORE)
    for name in ("ready", "over", "free_seat", "free_alarm", "later", "dirty", "moved"):
        core[name] = structures.NOBODY
    core["kinds"], core["incast"] = grouping.kinds, program.links.incast
    core["instant"], core["horizon"] = program.instant, -float(program.instant > 0.0)
    return structures.Net(
        core=core,
        links=grouping.links.copy(),
        kinds=grouping.limits,
        groups=grouping.groups.copy(),
        draws=grouping.draws,
        members=grouping.members,
        seats=structures.untouched(len(grouping.groups) - 1, structures.SEAT),
        looks=structures.empty_queue(len(grouping.links) + _has_caps(grouping) * places),
        crowds=_crowds(program.links.senders, grouping),
    )


def _crowds(senders: Mapping[int, int], grouping: Grouping) -> structures.Records:
    """Return a record for each link of what incast needs: see `CROWD` in `structures.py`.

    `senders` maps a link to the link that it sends into. Without senders there are no records.
    """
    crowds = np.zeros(len(grouping.links) + 1 if senders else 0, structures.CROWD)
    if senders:  # links that are not in use have number -1: they write to the last record
        crowds["healthy"][:-1], crowds["into"] = grouping.links["capacity"], structures.NOBODY
        crowds["into"][grouping.number[[*senders]]] = grouping.number[[*senders.values()]]
    return crowds


def _has_caps(grouping: Grouping) -> bool:
    """Return whether any kind of row has a highest rate."""
    return bool(np.isfinite(grouping.limits["cap"]).any())


def _future(many: Operations, grouping: Grouping, places: int) -> structures.Future:
    """Return the events to come before the start: no ends, no alarms, and all changes of capacity.

    The changes end with one at infinity, which never comes. `places` is the number of places for
    seats.
    """
    slots = np.full(len(grouping.number), structures.NOBODY)
    choices = many.once.paths.choices
    if choices is not None:
        slots[choices.link] = np.arange(len(choices.link))
    changes = [
        (time, capacity, grouping.number[link], slots[link])
        for time, link, capacity in many.once.links.changes
        if max(grouping.number[link], slots[link]) >= 0
    ]
    return structures.Future(
        ends=structures.empty_agenda(places),
        alarms=structures.empty_agenda(_PLACES),
        alarm_row=structures.untouched(len(many), np.int32),
        changes=np.array([*changes, (inf, 0.0, 0, 0)], structures.CHANGE),
    )


def _options(many: Operations) -> structures.PathChoices:
    """Return the paths that messages may choose from, before any message has chosen.

    Its arrays are empty if no message has a choice.
    """
    none = np.zeros(0, np.int32), np.zeros(0, np.int64), np.zeros(0, np.int64)
    paths = many.once.paths.choices or Choices(*none, none[0], np.zeros(0, bool), none[1])
    rows = 0 if many.once.paths.choices is None else len(many)
    fixed = paths.route, paths.more, paths.ptr, paths.slot, paths.apart
    slots = np.zeros(len(paths.link), structures.SLOT)
    slots["capacity"] = many.once.links.capacity[paths.link]
    taken = np.tile(many.once.path, len(many.launched))[:rows].astype(np.int32)
    return structures.PathChoices(*fixed, taken, slots, structures.empty_queue(rows))


def _list_free_rows(rows: structures.RowColumns) -> tuple[int, int]:
    """Link the rows that wait for nothing into a list in row order.

    Returns the first of them, and their number.
    """
    free = np.flatnonzero(rows.waits == 0).astype(np.int32)
    rows.waits[free] = np.append(free[1:], np.int32(structures.NOBODY))
    return int(free[0]) if len(free) else structures.NOBODY, len(free)


def _stalled(program: Program, rows: structures.RowColumns, now: float) -> Exception:
    """Return the error for a simulation in which some rows can never finish.

    Rows that wait for an unfinished row count as not started. `now` is the simulated time in
    seconds.
    """
    schedule = program.schedule
    end = np.where(rows.end < 0, inf, rows.end)
    edge = np.repeat(np.arange(len(program)), np.diff(schedule.dep_ptr))
    start = rows.start.copy()
    start[edge[end[schedule.dep_row] == inf]] = inf
    return stalled(program, start.tolist(), end.tolist(), now)
