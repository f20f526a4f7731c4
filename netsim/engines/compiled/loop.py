"""The compiled event loop: from instant to instant until every row has ended."""

from math import inf
from typing import Any

from netsim.engines.compiled.agenda import Agenda, next_due, put
from netsim.engines.compiled.fair import look_at
from netsim.engines.compiled.flows import join, leave, next_end
from netsim.engines.compiled.jit import Entry, Inner
from netsim.engines.compiled.seats import mark_dirty, seat_for, settle
from netsim.engines.compiled.state import Future, Net, Records, Rows

INSTANT = 1e-14  # what lies within this of the earliest event belongs to its instant
DONE, STALLED, STOPPED, MORE_SEATS, MORE_ALARMS = range(5)


@Entry
def advance_rows(rows: Rows, net: Net, future: Future) -> int:
    """Simulate on to the end, or until there is not enough room; why it stopped.

    All state lies in the arguments: a call takes up exactly where the last one left off.
    """
    core = net.core[0]
    while core.stop == 0:
        while (core.over >= 0 or core.ready >= 0) and core.stop == 0:
            if core.over >= 0:
                _end(rows, core)
            elif core.free_seat < 0 and core.seats == len(future.ends) >> 1:
                return MORE_SEATS
            elif core.free_alarm < 0 and core.alarms == len(future.alarms) >> 1:
                return MORE_ALARMS
            else:
                _begin(rows, net, future)
        settle(rows, net, future.ends)
        if core.done == len(rows.start):
            return DONE
        if not _next_instant(rows, net, future):
            return STALLED
    return STOPPED


@Inner
def _next_instant(rows: Rows, net: Net, future: Future) -> bool:
    """Go to the earliest of all events, and collect what belongs to its instant."""
    core = net.core[0]
    ends, alarms, changes = future.ends, future.alarms, future.changes
    now = min(ends[1], alarms[1], changes[core.change].time)
    if now == inf:
        return False
    core.now, core.horizon = now, now * (1 + INSTANT)
    while changes[core.change].time <= core.horizon:
        change = changes[core.change]
        net.links[change.link].capacity = change.capacity
        look_at(net, change.link, 0.0)
        core.change += 1
    node = next_due(alarms, 1, core.horizon)
    while node > 0 and core.stop == 0:
        alarms[node] = inf
        _ring(rows, core, future.alarm_row, node - (len(alarms) >> 1))
        node = next_due(alarms, node, core.horizon)
    node = next_due(ends, 1, core.horizon)
    while node > 0 and core.stop == 0:
        ends[node] = inf
        place = node - (len(ends) >> 1)
        seat = net.seats[place]
        while seat.flows > 0 and next_end(rows, seat) <= core.horizon:
            _finish(rows, core, leave(rows, seat), core.now)
        mark_dirty(net, place)
        node = next_due(ends, node, core.horizon)
    return True


@Inner
def _begin(rows: Rows, net: Net, future: Future) -> None:
    """Take the next row that is ready: start it, or set its alarm for when it can. Nothing holds
    up a row that shares no link: its end is known at once, long before its time has come.
    """
    core = net.core[0]
    row = core.ready
    core.ready = rows.waits[row]
    once = row if row < core.span else row % core.span
    style = rows.styles[rows.style[once]]
    moves = rows.start[row] + style.latency
    amount = rows.amount[rows.piece[once]]
    group = once if core.kinds == 0 else (rows.path[once] + 1) * core.kinds + style.kind
    group = rows.group[group]
    if amount <= 0.0 or (group < 0 and style.cap == inf):
        _finish(rows, core, row, moves)
    elif group < 0:
        _finish(rows, core, row, moves + amount / style.cap)
    elif moves > core.horizon:
        _set_alarm(core, future.alarms, future.alarm_row, row, moves)
    else:
        rows.start[row] = min(rows.start[row], core.now)
        seat = net.seats[seat_for(net, group)]
        join(rows, seat, row, amount / net.kinds[net.groups[group].kind].share)


@Inner
def _finish(rows: Rows, core: Records, row: int, end: float) -> None:
    rows.end[row] = end
    rows.waits[row] = core.over
    core.over = row


@Inner
def _end(rows: Rows, core: Records) -> None:
    """Take the next row that is over, and tell those that wait for it."""
    row = core.over
    core.over = rows.waits[row]
    core.done += 1
    once = row if row < core.span else row % core.span
    end, way = rows.end[row], rows.path_latency[rows.path[once]]
    for k in range(rows.next_ptr[once], rows.next_ptr[once + 1]):
        lag = rows.lags[rows.next_lag[k]]
        after = rows.next_row[k] + (row - once)
        _tell(rows, core, after, end + (lag.seconds + way if lag.arrival else lag.seconds))
    mark = once - (core.span - core.marks)
    if mark >= 0 and row + core.marks < len(rows.start):  # the next operation of a rank
        _tell(rows, core, row + core.marks, end)


@Inner
def _tell(rows: Rows, core: Records, row: int, start: float) -> None:
    """A row has one less to wait for, and starts no earlier than this."""
    rows.start[row] = max(rows.start[row], start)
    rows.waits[row] -= 1
    if rows.waits[row] == 0:
        rows.waits[row] = core.ready
        core.ready = row


@Inner
def _set_alarm(core: Records, alarms: Agenda, alarm_row: Any, row: int, when: float) -> None:
    place = core.free_alarm
    if place >= 0:
        core.free_alarm = alarm_row[place]
    else:
        place = core.alarms
        core.alarms += 1
    alarm_row[place] = row
    put(alarms, place, when)


@Inner
def _ring(rows: Rows, core: Records, alarm_row: Any, place: int) -> None:
    """The alarm of a row: it begins to move its bytes."""
    row = alarm_row[place]
    alarm_row[place] = core.free_alarm
    core.free_alarm = place
    rows.waits[row] = core.ready
    core.ready = row
