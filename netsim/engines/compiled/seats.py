"""Seats: how groups of flows come and go, and the end of an instant."""

from math import inf

from netsim.engines.compiled.agenda import Agenda, put
from netsim.engines.compiled.fair import EQUAL, finish_sweep, look_at, rise, sweep
from netsim.engines.compiled.flows import advance, next_end
from netsim.engines.compiled.jit import Inner
from netsim.engines.compiled.queue import take_out
from netsim.engines.compiled.state import NOBODY, SETTLED, UNLISTED, Net, Rows


@Inner
def seat_for(net: Net, group: int) -> int:
    """The seat of a group, up to date for one more flow."""
    place = net.groups[group].seat
    if place < 0:
        place = _take_seat(net, group)
    seat = net.seats[place]
    advance(seat, net.core[0].now)
    if seat.flows == 0:
        seat.clock = 0.0
    mark_dirty(net, place)
    return int(place)


@Inner
def mark_dirty(net: Net, place: int) -> None:
    """List a seat whose flows change in this instant."""
    seat, core = net.seats[place], net.core[0]
    if seat.next == UNLISTED:
        seat.next = core.dirty
        core.dirty = place


@Inner
def settle(rows: Rows, net: Net, ends: Agenda) -> None:
    """At the end of an instant: solve for the new levels, and note when flows will end."""
    core = net.core[0]
    place = core.dirty
    while place >= 0 and core.stop == 0:
        seat = net.seats[place]
        if seat.flows == 0:
            _leave_links(net, place)
        elif seat.counted == 0:
            _enter_links(net, place)
        place = seat.next
    while core.dirty >= 0 and core.stop == 0:
        place = core.dirty
        _seek_level(net, place)
        if net.seats[place].state == SETTLED and net.seats[place].flows > 0:
            put(ends, place, next_end(rows, net.seats[place]))
    sweep(net)
    while core.moved >= 0 and core.stop == 0:
        place = core.moved
        core.moved = net.seats[place].next
        finish_sweep(net, place)
        put(ends, place, next_end(rows, net.seats[place]))
    core.level = 0.0


@Inner
def _seek_level(net: Net, place: int) -> None:
    """Do what a change in the number of flows calls for."""
    seat, core = net.seats[place], net.core[0]
    core.dirty, seat.next = seat.next, UNLISTED
    if seat.flows == 0:
        net.groups[seat.group].seat = NOBODY
        seat.root = core.free_seat
        core.free_seat = place
    elif seat.flows != seat.counted and not _settle_alone(net, place):
        rise(net, place)  # with as many flows as before, the level stays


@Inner
def _settle_alone(net: Net, place: int) -> bool:
    """The level of a seat that shares no link with others, if that is so."""
    seat = net.seats[place]
    draws = range(net.groups[seat.group].first, net.groups[seat.group + 1].first)
    level = net.kinds[net.groups[seat.group].kind].cap
    for k in draws:
        link = net.links[net.draws[k].link]
        if link.count > 1:
            return False
        level = min(level, link.capacity / (seat.flows * net.draws[k].weight))
    advance(seat, net.core[0].now)
    seat.level, seat.counted, seat.state = level, seat.flows, SETTLED
    for k in draws:
        number = net.draws[k].link
        link = net.links[number]
        used = seat.flows * net.draws[k].weight * level
        full = used >= link.capacity * (1 - EQUAL)
        link.used = used if level < inf else 0.0
        link.level = level if full else inf
        take_out(net.looks, number)
    return True


@Inner
def _take_seat(net: Net, group: int) -> int:
    core = net.core[0]
    place = core.free_seat
    if place >= 0:
        core.free_seat = net.seats[place].root
    else:
        place = core.seats
        core.seats += 1
    net.groups[group].seat = place
    seat = net.seats[place]
    seat.group, seat.root, seat.flows, seat.counted = group, NOBODY, 0, 0
    seat.level, seat.since, seat.clock = 0.0, core.now, 0.0
    seat.state, seat.next = SETTLED, UNLISTED
    return int(place)


@Inner
def _enter_links(net: Net, place: int) -> None:
    group = net.seats[place].group
    for k in range(net.groups[group].first, net.groups[group + 1].first):
        link = net.links[net.draws[k].link]
        net.draws[k].place = link.first + link.count
        member = net.members[link.first + link.count]
        member.seat, member.draw = place, k
        link.count += 1


@Inner
def _leave_links(net: Net, place: int) -> None:
    group = net.seats[place].group
    for k in range(net.groups[group].first, net.groups[group + 1].first):
        _leave_link(net, place, k)


@Inner
def _leave_link(net: Net, place: int, k: int) -> None:
    """Take a seat off one of its links; the last member moves to the place that is free now."""
    seat, number = net.seats[place], net.draws[k].link
    link = net.links[number]
    link.exact = 0
    link.count -= 1
    if seat.level < inf:
        link.used -= seat.counted * net.draws[k].weight * seat.level
    last = net.members[link.first + link.count]
    freed = net.members[net.draws[k].place]
    freed.seat, freed.draw = last.seat, last.draw
    net.draws[last.draw].place = net.draws[k].place
    if link.count == 0:
        link.used, link.level = 0.0, inf
    elif link.level < inf:
        look_at(net, number, link.level)
