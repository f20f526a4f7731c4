"""Fair levels after an instant: weighted max-min, solved only where something can have changed.

The levels of all seats are known from before. A change is followed upwards in one sweep: links are
looked at in the order of the level at which something happens on them.

- A link that becomes full at a level stops there whoever is rising on it, and lowers the settled
  seats above it: they have grown at the expense of smaller ones.
- A full link that is found with room left at its old level is full no more: the settled seats that
  it alone held back rise again.
- Whoever is touched by neither keeps its level. So every seat ends at its cap or with a full link
  on which no level is higher, which is the condition of optimality, and a change spreads only
  through full links.

Whatever changes on a link while the sweep is at level x changes nothing below x; therefore no link
has to be gone back to.
"""

from math import inf

from netsim.engines.compiled.flows import advance
from netsim.engines.compiled.jit import Inner
from netsim.engines.compiled.queue import level_of, put_in, take_out
from netsim.engines.compiled.state import RISING, SETTLED, STOPPED, UNLISTED, Net, Records

EQUAL = 1e-12  # levels this close are the same
TIED = 1e-14  # so close that one instant should see the ends of what they carry
CLOSE = 1e-9  # so are these, if the link's capacity cannot tell them apart


@Inner
def sweep(net: Net) -> None:
    """Follow all changes that were noted since the last solution."""
    while net.looks[1].level < inf and net.core[0].stop == 0:
        level, number = net.looks[1].level, net.looks[1].who
        if number < len(net.links):
            _visit(net, number, level)
            continue
        take_out(net.looks, number)
        place = number - len(net.links)
        if net.seats[place].state == RISING:
            net.core[0].level = level
            _stop(net, place, net.kinds[net.groups[net.seats[place].group].kind].cap)


@Inner
def look_at(net: Net, link: int, level: float) -> None:
    """See to it that a link is looked at when the sweep comes to a level, or before."""
    net.links[link].exact = 0
    if level_of(net.looks, link) > level:
        put_in(net.looks, link, level)


@Inner
def rise(net: Net, place: int) -> None:
    """Take back what a seat was given, and let it rise until something stops it."""
    seat, core = net.seats[place], net.core[0]
    group = net.groups[seat.group]
    move(net, place)
    for k in range(group.first, net.groups[seat.group + 1].first):
        draw = net.draws[k]
        link = net.links[draw.link]
        if seat.level < inf:
            link.used -= seat.counted * draw.weight * seat.level
        _add_rising(link, seat.flows * draw.weight)
        link.risers += 1
        look_at(net, draw.link, core.level)
    seat.counted, seat.state = seat.flows, RISING
    cap = net.kinds[group.kind].cap
    if cap < inf:
        put_in(net.looks, len(net.links) + place, max(cap, core.level))


@Inner
def _add_rising(link: Records, weight: float) -> None:
    """Add to what rises, to twice the precision: shares may differ by more than a float holds, and
    the small ones go on when the large ones have stopped.
    """
    total = link.rising + weight
    added = total - link.rising
    link.rest += (link.rising - (total - added)) + (weight - added)
    link.rising = total


@Inner
def _rising(link: Records) -> float:
    return float(link.rising + link.rest)


@Inner
def move(net: Net, place: int) -> None:
    """Bring a seat up to date before its level changes, and list it as moved."""
    seat, core = net.seats[place], net.core[0]
    advance(seat, core.now)
    if seat.next == UNLISTED:
        seat.next = core.moved
        core.moved = place


@Inner
def _visit(net: Net, number: int, now: float) -> None:
    """Decide what happens on a link when the sweep comes to a level."""
    link = net.links[number]
    free = link.capacity - link.used
    slack = link.capacity * (EQUAL + 4e-16 * link.count)
    if link.level == inf:
        if link.capacity == inf or (link.risers == 0 and free >= -slack):
            take_out(net.looks, number)  # nothing is full here
            return
    elif link.capacity == inf or free - link.level * _rising(link) >= -slack:
        if now < link.level:
            put_in(net.looks, number, link.level)
        elif link.capacity < inf and free - link.level * _rising(link) <= slack:
            _fill(net, number, link.level)  # as full as before
        else:
            _open(net, number)
        return
    level = now
    if link.exact == 0:
        level = _water_level(net, number, now, slack)
        if level > now:
            link.exact = 1
            put_in(net.looks, number, level)
            return
    reached = net.core[0].level
    _fill(net, number, reached if level <= reached * (1 + TIED) else level)


@Inner
def _water_level(net: Net, number: int, low: float, slack: float) -> float:
    """The level, at least `low`, at which a link is full once all above are lowered to it."""
    link, reached = net.links[number], net.core[0].level
    level = low
    while net.core[0].stop == 0:
        below, above, used, least = 0.0, _rising(link), 0.0, inf
        for k in range(link.first, link.first + link.count):
            member = net.members[k]
            seat = net.seats[member.seat]
            if seat.state == RISING:
                continue
            weight = seat.counted * net.draws[member.draw].weight
            used += weight * seat.level
            if seat.level > level:
                above += weight
                least = min(least, seat.level)
            else:
                below += weight * seat.level
        link.used = used
        if above == 0.0:
            return inf  # it is not full at all
        up = max(level, (link.capacity - below) / above)
        if up <= reached * (1 + CLOSE) and (up - reached) * above <= slack:
            return float(reached)  # a tie: equal to the last bit
        if up <= level or up <= least:
            return float(up)
        level = up
    return inf


@Inner
def _fill(net: Net, number: int, level: float) -> None:
    """A link is full at a level: stop who rises on it, lower who is above."""
    link = net.links[number]
    take_out(net.looks, number)
    link.level, used = level, 0.0
    net.core[0].level = max(net.core[0].level, level)
    for k in range(link.first, link.first + link.count):
        member = net.members[k]
        seat = net.seats[member.seat]
        if seat.state == RISING:
            _stop(net, member.seat, level)
        elif seat.level > level * (1 + EQUAL) and seat.state == SETTLED:
            _lower(net, member.seat, number, level)
        used += seat.counted * net.draws[member.draw].weight * seat.level
    link.used = used  # afresh, so that rounding cannot add up


@Inner
def _open(net: Net, number: int) -> None:
    """A link is full no more: let those rise that it held back."""
    link = net.links[number]
    level = link.level
    net.core[0].level = max(net.core[0].level, level)
    link.level = inf
    take_out(net.looks, number)
    if link.risers > 0:
        look_at(net, number, net.core[0].level)
    for k in range(link.first, link.first + link.count):
        place = net.members[k].seat
        seat = net.seats[place]
        if seat.state == SETTLED and seat.level >= level * (1 - EQUAL):
            rise(net, place)


@Inner
def _stop(net: Net, place: int, level: float) -> None:
    """A rising seat has reached its level."""
    seat = net.seats[place]
    seat.level, seat.state = level, STOPPED
    for k in range(net.groups[seat.group].first, net.groups[seat.group + 1].first):
        draw = net.draws[k]
        link = net.links[draw.link]
        link.exact = 0
        link.risers -= 1
        weight = seat.flows * draw.weight
        if link.risers > 0:
            _add_rising(link, -weight)
        else:
            link.rising, link.rest = 0.0, 0.0
        if level < inf:
            link.used += weight * level


@Inner
def _lower(net: Net, place: int, number: int, level: float) -> None:
    """A settled seat has to give way; that may leave room on other links that were full."""
    seat = net.seats[place]
    move(net, place)
    for k in range(net.groups[seat.group].first, net.groups[seat.group + 1].first):
        draw = net.draws[k]
        link = net.links[draw.link]
        link.exact = 0
        link.used -= seat.counted * draw.weight * (seat.level - level)
        if link.level < inf and draw.link != number:
            look_at(net, draw.link, max(link.level, level))
    seat.level, seat.state = level, STOPPED


@Inner
def finish_sweep(net: Net, place: int) -> None:
    """Settle a seat that moved; whoever nothing has stopped is without limit."""
    seat = net.seats[place]
    if seat.state == RISING:
        _stop(net, place, inf)
    seat.state, seat.next = SETTLED, UNLISTED
