"""Fair levels after an instant: weighted max-min, solved only where something can have changed.

`structures.py` defines seats and levels. The levels of all seats are known from before. A change is
followed in one sweep of a level that rises from 0: links are examined in the order of the level at
which something happens on them.

- A link that becomes full at a level stops all seats that rise on it at that level, and lowers the
  settled seats above it: they have grown at the expense of smaller ones.
- A link that was full at its old level and now has room there is full no more: the settled seats
  that it alone held back rise again.
- A seat that neither happens to keeps its level. So every seat ends at its cap or with a full link
  on which no level is higher, which is the condition of optimality, and a change spreads only
  through full links.

Whatever changes on a link while the sweep is at level x changes nothing below x; therefore the
sweep never goes back.
"""

from math import inf

from netsim.engines.compiled import structures
from netsim.engines.compiled.grouping import ROOM
from netsim.engines.compiled.machine_code import InnerFunction

EQUAL = 1e-12  # levels this close are the same
TIED = 1e-14  # so close that one instant should see the ends of what they carry
CLOSE = 1e-9  # so are these, if the link's capacity cannot tell them apart


@InnerFunction
def sweep(net: structures.Net) -> None:
    """Find the new levels of all seats that rise, and of those that must change because of them.

    Links and rising seats are examined in the order of their levels, until none is left in `looks`.
    A seat that nothing limits still rises afterwards.
    """
    while net.looks[1].level < inf and net.core[0].stop == 0:
        level = net.looks[1].level
        number = net.looks[1].number
        if number < len(net.links):
            _visit(net, number, level)
            continue
        structures.take_out(net.looks, number)
        place = number - len(net.links)
        if net.seats[place].state == structures.RISING:
            net.core[0].level = level
            _stop(net, place, net.kinds[net.groups[net.seats[place].group].kind].cap)


@InnerFunction
def look_at(net: structures.Net, link: int, level: float) -> None:
    """Put a link on the queue of links to examine, at `level`, or leave it at a lower one."""
    net.links[link].exact = 0
    if structures.level_of(net.looks, link) > level:
        structures.put_in(net.looks, link, level)


@InnerFunction
def rise(net: structures.Net, place: int) -> None:
    """Let seat number `place` rise: its present bandwidth becomes free on its links.

    Its level is not known until a link or its cap stops it.
    """
    seat = net.seats[place]
    core = net.core[0]
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
    seat.counted = seat.flows
    seat.state = structures.RISING
    cap = net.kinds[group.kind].cap
    if cap < inf:
        structures.put_in(net.looks, len(net.links) + place, max(cap, core.level))


@InnerFunction
def _add_rising(link: structures.Records, weight: float) -> None:
    """Add a weight to the capacity that the rising seats of a link use per unit of level.

    The sum has twice the precision of a float: shares may differ by more than a float holds, and
    seats of small shares continue when those of large shares have stopped.
    """
    total = link.rising + weight
    added = total - link.rising
    link.rest += (link.rising - (total - added)) + (weight - added)
    link.rising = total


@InnerFunction
def _rising(link: structures.Records) -> float:
    """Return the capacity that the rising seats of a link use per unit of level."""
    return float(link.rising + link.rest)


@InnerFunction
def move(net: structures.Net, place: int) -> None:
    """Set the clock of seat number `place` to the present before its level changes; list it as
    moved.
    """
    seat = net.seats[place]
    core = net.core[0]
    structures.advance(seat, core.now)
    if seat.next == structures.UNLISTED:
        seat.next = core.moved
        core.moved = place


@InnerFunction
def _visit(net: structures.Net, number: int, now: float) -> None:
    """Examine link `number`, at which the sweep has arrived at level `now`.

    Either it is full at this level (`_fill`), or it was full and has room now (`_open`), or it is
    put on the queue again at a higher level, or nothing on it changes.
    """
    link = net.links[number]
    free = link.capacity - link.used
    slack = link.capacity * (EQUAL + 4e-16 * link.count)
    if link.level == inf:
        if link.capacity == inf or (link.risers == 0 and free >= -slack):
            structures.take_out(net.looks, number)  # nothing is full here
            return
    elif link.capacity == inf or free - link.level * _rising(link) >= -slack:
        if now < link.level:
            structures.put_in(net.looks, number, link.level)
        elif link.capacity < inf and free - link.level * _rising(link) <= slack:
            _fill(net, number, link.level)  # as full as before
        else:
            _open(net, number)
        return
    level = now
    if link.exact == 0:
        rising = _rising(link)  # not full before that, even if nobody gives way
        least = (link.capacity * (1 - EQUAL) - link.used) / rising if rising > 0.0 else 0.0
        level = least if least > now else _water_level(net, number, now, slack)
        if level > now:
            link.exact = int(level != least)
            structures.put_in(net.looks, number, level)
            return
    reached = net.core[0].level
    _fill(net, number, reached if level <= reached * (1 + TIED) else level)


@InnerFunction
def _water_level(net: structures.Net, number: int, low: float, slack: float) -> float:
    """Return the level at which link `number` is full, if it lowers all seats above this level.

    It is infinite if the link does not become full.

    - `low`: the least level that is possible.
    - `slack`: the capacity (bytes/s) that counts as rounding.
    """
    link = net.links[number]
    reached = net.core[0].level
    level = low
    while net.core[0].stop == 0:
        below = 0.0
        above = _rising(link)
        used = 0.0
        least = inf
        for k in range(link.first, link.first + link.count):
            member = net.members[k]
            seat = net.seats[member.seat]
            if seat.state == structures.RISING:
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


@InnerFunction
def _fill(net: structures.Net, number: int, level: float) -> None:
    """Make link `number` full at a level: stop the seats that rise on it, lower those above the
    level.
    """
    link = net.links[number]
    structures.take_out(net.looks, number)
    link.level = level
    used = 0.0
    net.core[0].level = max(net.core[0].level, level)
    for k in range(link.first, link.first + link.count):
        member = net.members[k]
        seat = net.seats[member.seat]
        if seat.state == structures.RISING:
            _stop(net, member.seat, level)
        elif seat.level > level * (1 + EQUAL) and seat.state == structures.SETTLED:
            _lower(net, member.seat, number, level)
        used += seat.counted * net.draws[member.draw].weight * seat.level
    link.used = used  # afresh, so that rounding cannot add up


@InnerFunction
def _open(net: structures.Net, number: int) -> None:
    """Let a link that was full have room, and let those seats rise that it held back.

    It held back the seats whose level was that of the link.
    """
    link = net.links[number]
    level = link.level
    net.core[0].level = max(net.core[0].level, level)
    link.level = inf
    structures.take_out(net.looks, number)
    if link.risers > 0:
        look_at(net, number, net.core[0].level)
    for k in range(link.first, link.first + link.count):
        place = net.members[k].seat
        seat = net.seats[place]
        if seat.state == structures.SETTLED and seat.level >= level * (1 - EQUAL):
            rise(net, place)


@InnerFunction
def _stop(net: structures.Net, place: int, level: float) -> None:
    """Fix the level of seat number `place`, which was rising."""
    seat = net.seats[place]
    seat.level = level
    seat.state = structures.STOPPED
    for k in range(net.groups[seat.group].first, net.groups[seat.group + 1].first):
        draw = net.draws[k]
        link = net.links[draw.link]
        link.exact = 0
        link.risers -= 1
        weight = seat.flows * draw.weight
        if link.risers > 0:
            _add_rising(link, -weight)
        else:
            link.rising = 0.0
            link.rest = 0.0
        if level < inf:
            link.used += weight * level


@InnerFunction
def _lower(net: structures.Net, place: int, number: int, level: float) -> None:
    """Lower seat number `place` to the level at which link `number` is full.

    Its other links that were full are examined again, because they may have room now.
    """
    seat = net.seats[place]
    move(net, place)
    for k in range(net.groups[seat.group].first, net.groups[seat.group + 1].first):
        draw = net.draws[k]
        link = net.links[draw.link]
        link.exact = 0
        link.used -= seat.counted * draw.weight * (seat.level - level)
        if link.level < inf and draw.link != number:
            look_at(net, draw.link, max(link.level, level))
    seat.level = level
    seat.state = structures.STOPPED


@InnerFunction
def seat_for(net: structures.Net, group: int) -> int:
    """Return the number of a group's seat, with its clock at the present so that a flow can join.

    A group without a seat gets a free one.
    """
    place = net.groups[group].seat
    core = net.core[0]
    if place < 0:
        place = core.free_seat
        if place >= 0:
            core.free_seat = net.seats[place].root
        else:
            place = core.seats
            core.seats += 1
        net.groups[group].seat = place
        seat = net.seats[place]
        seat.group = group
        seat.root = structures.NOBODY
        seat.flows = 0
        seat.counted = 0
        seat.level = 0.0
        seat.since = core.now
        seat.clock = 0.0
        seat.state = structures.SETTLED
        seat.next = structures.UNLISTED
    seat = net.seats[place]
    structures.advance(seat, net.core[0].now)
    if seat.flows == 0:
        seat.clock = 0.0
    mark_dirty(net, place)
    return int(place)


@InnerFunction
def mark_dirty(net: structures.Net, place: int) -> None:
    """Put seat number `place` on the list of seats whose number of flows may have changed."""
    seat = net.seats[place]
    core = net.core[0]
    if seat.next == structures.UNLISTED:
        seat.next = core.dirty
        core.dirty = place


@InnerFunction
def settle(rows: structures.RowColumns, net: structures.Net, ends: structures.Agenda) -> None:
    """End an instant: find the new levels, and when the next flow of each changed seat ends.

    These times are put into the agenda `ends`.
    """
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
        core.dirty = net.seats[place].next
        net.seats[place].next = structures.UNLISTED
        _update_seat(net, place)
        if net.seats[place].state == structures.SETTLED and net.seats[place].flows > 0:
            structures.put(ends, place, structures.next_end(rows, net.seats[place]))
    sweep(net)
    while core.moved >= 0 and core.stop == 0:
        place = core.moved
        core.moved = net.seats[place].next
        if net.seats[place].state == structures.RISING:  # nothing has stopped it
            _stop(net, place, inf)
        net.seats[place].state = structures.SETTLED
        net.seats[place].next = structures.UNLISTED
        structures.put(ends, place, structures.next_end(rows, net.seats[place]))
    core.level = 0.0


@InnerFunction
def _update_seat(net: structures.Net, place: int) -> None:
    """Bring the level of seat number `place` up to date with the number of its flows.

    - If it has no flows any more, the seat is freed.
    - If it has as many flows as before, its level stays.
    - If other seats are not affected, it gets its new level at once.
    - Otherwise it rises, and the sweep finds the levels of all seats that are affected.
    """
    seat = net.seats[place]
    if seat.flows == 0:
        _free_seat(net, place)
        return
    if seat.flows == seat.counted:
        return
    if _settle_at_cap(net, place):
        return
    if _settle_alone(net, place):
        return
    rise(net, place)


@InnerFunction
def _free_seat(net: structures.Net, place: int) -> None:
    """Take seat number `place` from its group, and put it on the list of free seats."""
    seat = net.seats[place]
    core = net.core[0]
    net.groups[seat.group].seat = structures.NOBODY
    seat.root = core.free_seat
    core.free_seat = place


@InnerFunction
def _settle_at_cap(net: structures.Net, place: int) -> bool:
    """Let seat number `place` settle at its cap if its links have room; return whether they have.

    The seat must be new, or have been at its cap before. Then no other seat changes.
    """
    seat = net.seats[place]
    draws = range(net.groups[seat.group].first, net.groups[seat.group + 1].first)
    cap = net.kinds[net.groups[seat.group].kind].cap
    more = (seat.flows - seat.counted) * cap
    if cap == inf or (seat.counted > 0 and seat.level != cap):
        return False
    for k in draws:
        link = net.links[net.draws[k].link]
        used = link.used + more * net.draws[k].weight
        if link.level < inf or link.risers > 0 or used > link.capacity * (1 - ROOM):
            return False
    for k in draws:
        link = net.links[net.draws[k].link]
        link.used += more * net.draws[k].weight
        link.exact = 0
    structures.advance(seat, net.core[0].now)
    seat.level = cap
    seat.counted = seat.flows
    seat.state = structures.SETTLED
    return True


@InnerFunction
def _settle_alone(net: structures.Net, place: int) -> bool:
    """Set the level of seat number `place` if no other seat is on its links; return whether so."""
    seat = net.seats[place]
    draws = range(net.groups[seat.group].first, net.groups[seat.group + 1].first)
    level = net.kinds[net.groups[seat.group].kind].cap
    for k in draws:
        link = net.links[net.draws[k].link]
        if link.count > 1:
            return False
        level = min(level, link.capacity / (seat.flows * net.draws[k].weight))
    structures.advance(seat, net.core[0].now)
    seat.level = level
    seat.counted = seat.flows
    seat.state = structures.SETTLED
    for k in draws:
        number = net.draws[k].link
        link = net.links[number]
        used = seat.flows * net.draws[k].weight * level
        full = used >= link.capacity * (1 - EQUAL)
        link.used = used if level < inf else 0.0
        link.level = level if full else inf
        structures.take_out(net.looks, number)
    return True


@InnerFunction
def resize(net: structures.Net, number: int, more: int) -> None:
    """Add `more` senders to link `number` (-1: no link), and reduce its capacity by incast.

    With n senders the capacity is that with one sender divided by 1 + incast * (n - 1).
    """
    if number >= 0:
        crowd = net.crowds[number]
        crowd.senders += more
        slower = 1.0 + net.core[0].incast * max(0, crowd.senders - 1)
        net.links[number].capacity = crowd.healthy / slower
        look_at(net, number, 0.0)


@InnerFunction
def _enter_links(net: structures.Net, place: int) -> None:
    """List seat number `place` as a member of all its links."""
    group = net.seats[place].group
    for k in range(net.groups[group].first, net.groups[group + 1].first):
        link = net.links[net.draws[k].link]
        net.draws[k].place = link.first + link.count
        member = net.members[link.first + link.count]
        member.seat = place
        member.draw = k
        link.count += 1
        if len(net.crowds) > 0 and link.count == 1:
            resize(net, net.crowds[net.draws[k].link].into, 1)


@InnerFunction
def _leave_links(net: structures.Net, place: int) -> None:
    """Remove seat number `place` from the members of all its links.

    In `members` of a link its entry is overwritten with the last one.
    """
    seat = net.seats[place]
    for k in range(net.groups[seat.group].first, net.groups[seat.group + 1].first):
        number = net.draws[k].link
        link = net.links[number]
        link.exact = 0
        link.count -= 1
        if seat.level < inf:
            link.used -= seat.counted * net.draws[k].weight * seat.level
        last = net.members[link.first + link.count]
        freed = net.members[net.draws[k].place]
        freed.seat = last.seat
        freed.draw = last.draw
        net.draws[last.draw].place = net.draws[k].place
        if link.count == 0:
            link.used = 0.0
            link.level = inf
            if len(net.crowds) > 0:
                resize(net, net.crowds[number].into, -1)
        elif link.level < inf:
            look_at(net, number, link.level)
