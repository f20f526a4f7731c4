"""The state of the compiled engine: records for links, groups and seats, columns for rows.

A flow is a row that shares links. Flows of one *group* have equal links, weights, share and cap, so
they always have the same rate and are solved as one. A group with active flows occupies a *seat*,
which is free again when its last flow has ended. So the state grows with the number of groups that
are active at a time, not with the program.

A *level* is rate / share, which max-min fairness equalizes. The *clock* of a seat is the integral
of its level over time: a flow that joins when the clock shows c ends when it shows c + amount /
share, however the rate changes meanwhile. A seat is *rising* while rates are solved and its new
level is not known yet.
"""

import ctypes
import mmap
import sys
from math import inf
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from netsim.engines.compiled.machine_code import InnerFunction

Records = Any  # a structured array; numba knows its fields, the type checker does not

LINK = np.dtype(
    [
        ("capacity", "f8"),
        ("used", "f8"),  # capacity used by seats that are not rising
        ("rising", "f8"),  # what the rising seats use per unit of level
        ("rest", "f8"),  # rounding error of that sum
        ("level", "f8"),  # level at which it is saturated; infinite if it is not
        ("first", "i4"),  # first of its entries in `members`
        ("count", "i4"),  # number of seats on it
        ("risers", "i4"),  # number of rising seats on it
        ("exact", "i1"),  # whether its time in the agenda is exact, not a lower bound
    ],
    align=True,
)
# For incast, of a link: its capacity with one sender; the link that it sends into, or NOBODY; the
# number of active links that send into it.
CROWD = np.dtype([("healthy", "f8"), ("into", "i4"), ("senders", "i4")], align=True)
KIND = np.dtype([("share", "f8"), ("cap", "f8")], align=True)  # the cap as a level
# Of a group: the number of its kind; of its first draw; of its seat (NOBODY without active flows).
GROUP = np.dtype([("kind", "i4"), ("first", "i4"), ("seat", "i4")], align=True)
# Of a draw of a group on a link: units of the link for one flow at level 1; the link; the index of
# the group's seat in `members`.
DRAW = np.dtype([("weight", "f8"), ("link", "i4"), ("place", "i4")], align=True)
MEMBER = np.dtype([("seat", "i4"), ("draw", "i4")], align=True)
SEAT = np.dtype(
    [
        ("level", "f8"),
        ("clock", "f8"),  # at time `since`
        ("since", "f8"),
        ("group", "i4"),
        ("flows", "i4"),  # active flows
        ("counted", "i4"),  # flows that the present levels include
        ("root", "i4"),  # the row that ends first; in a free seat, the next free one
        ("next", "i4"),  # in the list of seats whose flows, or whose level, may have changed
        ("state", "i1"),
    ],
    align=True,
)
STYLE = np.dtype([("latency", "f8"), ("cap", "f8"), ("kind", "i4")], align=True)
LAG = np.dtype([("seconds", "f8"), ("arrival", "i1")], align=True)
CHANGE = np.dtype([("time", "f8"), ("capacity", "f8"), ("link", "i4"), ("slot", "i4")], align=True)
SLOT = np.dtype([("capacity", "f8"), ("messages", "f8")], align=True)
CORE = np.dtype(
    [
        ("now", "f8"),
        ("horizon", "f8"),  # events up to this time belong to the present instant
        ("level", "f8"),  # level that the present solution has reached
        ("incast", "f8"),
        ("instant", "f8"),  # length of an instant
        ("done", "i8"),
        ("ready", "i4"),  # heads of lists of rows, linked through `waits`
        ("over", "i4"),
        ("change", "i4"),  # the next change of a capacity
        ("free_seat", "i4"),
        ("seats", "i4"),
        ("free_alarm", "i4"),
        ("alarms", "i4"),
        ("later", "i4"),  # head of a list of rows that begin to move within the present instant
        ("dirty", "i4"),  # heads of lists of seats
        ("moved", "i4"),
        ("stop", "i4"),  # set from outside: end soon, in any state
        ("kinds", "i4"),  # how many (share, cap) there are; 0 if `RowColumns.group` is by row
        ("span", "i4"),  # rows of one operation, which further operations repeat
        ("marks", "i4"),  # marks that begin, and that end, each of several operations
        ("pause", "i4"),  # stop before a row from this number on is finished
    ],
    align=True,
)

# The end of a list, and the state of an entry that is in no list.
NOBODY = -1
UNLISTED = -2

# States of a seat while rates are solved.
SETTLED, RISING, STOPPED = range(3)


class RowColumns(NamedTuple):
    """The program by row, style, piece and lag, and the timeline while it is filled in.

    If there are several operations, the program is that of the first, and the timeline is that of
    all.

    - `start`: the earliest start time known so far, in seconds.
    - `end`: the finish time in seconds. It is negative while the row has not finished: -1, or,
      while it shares links, minus the value of its seat's clock at which it ends.
    - `waits`: the number of rows that a row waits for; after that, the next row of a list.
    - `child`: the row's first child in the heap of its seat, plus 1.
    - `next_ptr`, `next_row`, `next_lag`: the followers of each row (`grouping.Followers`).
    - `group`: the group of each (path, kind), or of each row.
    """

    style: NDArray[np.int32]
    piece: NDArray[np.int32]
    path: NDArray[np.int32]
    start: NDArray[np.float64]
    end: NDArray[np.float64]
    waits: NDArray[np.int32]
    child: NDArray[np.int32]
    next_ptr: NDArray[np.int32]
    next_row: NDArray[np.int32]
    next_lag: NDArray[np.int16]
    styles: Records
    lags: Records
    amount: NDArray[np.float64]
    path_latency: NDArray[np.float64]
    group: NDArray[np.int32]  # by path and kind, or by row


class Net(NamedTuple):
    """The links, groups and seats: the state from which fair rates are solved.

    - `core`: the one record of the engine's scalars.
    - `links`, `groups`, `seats`: a record for each; a seat is taken by a group while any of its
      flows is active.
    - `kinds`: the distinct pairs of share and cap / share.
    - `draws`: by group, one after the other, the links that it draws on.
    - `members`: by link, one after the other, the seats on it.
    - `looks`: a queue, by level, of what can stop seats from rising while rates are solved: links,
      with the level at which each must be checked for saturation, and rising seats (numbered after
      the links), with their caps.
    - `crowds`: for incast, by link; empty if several senders do not reduce a receiver's capacity.
    """

    core: Records
    links: Records
    kinds: Records
    groups: Records
    draws: Records
    members: Records
    seats: Records
    looks: Records
    crowds: Records


class Future(NamedTuple):
    """The events to come.

    - `ends`: an agenda: by seat, the time at which its next flow ends.
    - `alarms`: an agenda: by alarm, the time at which the bytes of a row begin to move.
    - `alarm_row`: the row of each alarm; of a free alarm, the next free one.
    - `changes`: changes of capacities, by time.
    """

    ends: NDArray[np.float64]
    alarms: NDArray[np.float64]
    alarm_row: NDArray[np.int32]
    changes: Records


class PathChoices(NamedTuple):
    """The paths that messages choose from, in the form of `program.Choices`.

    - `taken`: the path of every row of all operations; empty if there is no choice.
    - `slots`: the number of active messages on each link, and its capacity.
    - `waiting`: a queue of the rows that choose in this instant.
    """

    route: NDArray[np.int32]
    more: NDArray[np.int64]
    ptr: NDArray[np.int64]
    slot: NDArray[np.int32]
    apart: NDArray[np.bool_]
    taken: NDArray[np.int32]
    slots: Records
    waiting: Records


# An agenda has a time for each of a fixed number of places, and the earliest of them: a tournament
# tree. With n places (a power of 4), `tree[n + i]` is the time of place i, `tree[1]` is the
# earliest of all, and every node k between is the earliest of its four children, from `tree[4 * k]`
# on. A change ends at the first node that it does not change, so that each of many equal times
# costs a few steps, however large the tree.

Agenda = NDArray[np.float64]


def places_for(count: int) -> int:
    """Return the number of places of an agenda for `count` entries: a power of 4.

    >>> places_for(5)
    16
    """
    places = 1
    while places < count:
        places *= 4
    return places


def empty_agenda(count: int) -> Agenda:
    """Return an agenda with at least `count` places, all at infinity."""
    return np.full(2 * places_for(count), inf)


@InnerFunction
def put(tree: Agenda, place: int, when: float) -> None:
    """Set the time of a place in an agenda; infinity removes it."""
    node = (len(tree) >> 1) + place
    tree[node] = when
    node >>= 2
    while node > 0:
        earliest = _earliest(tree, 4 * node)
        if tree[node] == earliest:
            break
        tree[node] = earliest
        node >>= 2


@InnerFunction
def next_due(tree: Agenda, node: int, horizon: float) -> int:
    """Return the next leaf of an agenda whose time is not after `horizon`; 0 if there is none.

    - `node`: where the search begins. To visit all leaves that are due, begin at node 1, set the
      time of each returned leaf to infinity, and continue from that leaf. The tree is in order
      again when 0 is returned.
    """
    leaves = len(tree) >> 1
    while tree[node] > horizon:
        node >>= 2
        if node == 0:
            return 0
        tree[node] = _earliest(tree, 4 * node)
    while node < leaves:
        node *= 4
        while tree[node] > horizon:
            node += 1
    return node


@InnerFunction
def _earliest(tree: Agenda, first: int) -> float:
    """Return the earliest time of four nodes, from node `first` on."""
    a = tree[first]
    b = tree[first + 1]
    c = tree[first + 2]
    d = tree[first + 3]
    left = a if a < b else b
    right = c if c < d else d
    return float(left if left < right else right)


def grown(tree: Agenda) -> Agenda:
    """Return an agenda with the same times and four times the places."""
    leaves = len(tree) >> 1
    wide = np.full(8 * leaves, inf)
    wide[4 * leaves : 5 * leaves] = tree[leaves:]
    level = leaves
    while level:
        np.min(wide[4 * level : 8 * level].reshape(-1, 4), axis=1, out=wide[level : 2 * level])
        level >>= 2
    return wide


# A queue holds few of many numbers, sorted by level: a heap, and the place of each number in it.
# The cost of a change depends on the count of numbers in the heap, where that of an agenda depends
# on all its places. Of equal levels, the lowest number comes first.

Queue = Any  # records: entry i of the heap, from 1 on, and the place in it of number i
# Entry i of the heap has `level` and `number`; the `number` of entry 0 is the count of entries. The
# `place` of record n is the index in the heap of number n, or 0 if n is not in the queue.
ENTRY = np.dtype([("level", "f8"), ("number", "i4"), ("place", "i4")], align=True)


def empty_queue(numbers: int) -> Queue:
    """Return an empty queue for the numbers 0 … `numbers` - 1."""
    queue = np.zeros(numbers + 2, ENTRY)
    queue["level"][1] = inf
    return queue


def longer(queue: Queue) -> Queue:
    """Return the same queue with room for four times the numbers, as `grown` does for an agenda."""
    wide = np.zeros(4 * len(queue), ENTRY)
    wide[: len(queue)] = queue
    return wide


@InnerFunction
def level_of(queue: Queue, number: int) -> float:
    """Return the level of a number in a queue; infinite if it is not in the queue."""
    place = queue[number].place
    return float(queue[place].level) if place > 0 else inf


@InnerFunction
def put_in(queue: Queue, number: int, level: float) -> None:
    """Set the level of a number in a queue; a number that is not in the queue is added."""
    place = queue[number].place
    if place == 0:
        queue[0].number += 1
        _rise(queue, queue[0].number, number, level)
    elif level > queue[place].level:
        _sink(queue, place, number, level)
    else:
        _rise(queue, place, number, level)


@InnerFunction
def take_out(queue: Queue, number: int) -> None:
    """Remove a number from a queue, if it is there."""
    place = queue[number].place
    if place == 0:
        return
    queue[number].place = 0
    count = queue[0].number
    queue[0].number = count - 1
    if place < count:
        last = queue[count].number
        level = queue[count].level
        if _before(queue, place, last, level):
            _sink(queue, place, last, level)
        else:
            _rise(queue, place, last, level)
    elif count == 1:
        queue[1].level = inf


@InnerFunction
def _before(queue: Queue, place: int, number: int, level: float) -> bool:
    """Return whether the entry at `place` of the heap comes before a `number` with a `level`."""
    there = queue[place]
    return bool(there.level < level or (there.level == level and there.number < number))


@InnerFunction
def _rise(queue: Queue, place: int, number: int, level: float) -> None:
    """Write a number to a free place of the heap, or to one nearer to the top.

    The entries on the way that come after the number move down.
    """
    while place > 1 and not _before(queue, place >> 1, number, level):
        _move(queue, place >> 1, place)
        place >>= 1
    _set(queue, place, number, level)


@InnerFunction
def _sink(queue: Queue, place: int, number: int, level: float) -> None:
    """Write a number to a free place of the heap, or to one farther from the top.

    The entries on the way that come before the number move up.
    """
    count = queue[0].number
    while 2 * place <= count:
        child = 2 * place
        if child < count and _before(queue, child + 1, queue[child].number, queue[child].level):
            child += 1
        if not _before(queue, child, number, level):
            break
        _move(queue, child, place)
        place = child
    _set(queue, place, number, level)


@InnerFunction
def _move(queue: Queue, here: int, there: int) -> None:
    """Copy the entry at the place `here` of the heap to the place `there`."""
    _set(queue, there, queue[here].number, queue[here].level)


@InnerFunction
def _set(queue: Queue, place: int, number: int, level: float) -> None:
    """Write a number and its level to a place of the heap."""
    queue[place].level = level
    queue[place].number = number
    queue[number].place = place


# The flows of a seat are ordered by their end on its clock, in a pairing heap. If flows join in the
# order in which they end, as those of equal size do, that costs nothing; in any other order it
# costs the logarithm of their number. While a row is a flow, its columns hold the heap: `end` the
# value of the clock at which it ends, `waits` its next sibling, `child` its first child.


@InnerFunction
def join(rows: RowColumns, seat: Records, row: int, work: float) -> None:
    """Add a row to the flows of a seat, whose clock must show the present.

    `work` is its bytes divided by its share.
    """
    rows.end[row] = -(seat.clock + work)
    rows.waits[row] = NOBODY
    seat.root = row if seat.root < 0 else _meld(rows, seat.root, row)


@InnerFunction
def leave(rows: RowColumns, seat: Records) -> int:
    """Remove the flow of a seat that ends first; return its row."""
    row = seat.root
    seat.root = _without_root(rows, row)
    seat.flows -= 1
    return int(row)


@InnerFunction
def next_end(rows: RowColumns, seat: Records) -> float:
    """Return the time in seconds at which the next flow of a seat ends, at its present level."""
    left = -rows.end[seat.root] - seat.clock
    if seat.level == inf or left <= 0.0:
        return float(seat.since)
    return float(seat.since + left / seat.level) if seat.level > 0.0 else inf


@InnerFunction
def advance(seat: Records, now: float) -> None:
    """Bring the clock of a seat forward to the time `now`: add its level times the seconds since
    the last change.
    """
    if now > seat.since and seat.level < inf:
        seat.clock += seat.level * (now - seat.since)
    seat.since = now


@InnerFunction
def _meld(rows: RowColumns, a: int, b: int) -> int:
    """Join the heaps with the roots `a` and `b` (rows); return the root that ends first."""
    if rows.end[b] > rows.end[a]:  # negative: b finishes first
        a, b = b, a
    rows.waits[b] = rows.child[a] - 1
    rows.child[a] = b + 1
    return a


@InnerFunction
def _without_root(rows: RowColumns, root: int) -> int:
    """Return the root of a heap after `root` has been removed.

    The children are melded in pairs, then the pairs from the last to the first.
    """
    pairs = NOBODY
    child = rows.child[root] - 1
    while child >= 0:
        a = child
        b = rows.waits[child]
        child = NOBODY
        if b >= 0:
            child = rows.waits[b]
            a = _meld(rows, a, b)
        rows.waits[a] = pairs
        pairs = a
    heap = NOBODY
    while pairs >= 0:
        pair = pairs
        pairs = rows.waits[pairs]
        heap = pair if heap < 0 else _meld(rows, heap, pair)
    return heap


# Numbers of the options of mallopt, as <malloc.h> defines them.
_TRIM_THRESHOLD = -1
_MMAP_MAX = -4
_NEVER = -1


def keep_freed_memory() -> None:
    """Let the C library keep freed memory for later use, if it can (glibc).

    Large arrays come and go with every run; taking their pages from the system again each time
    costs as much as simulating a part of their rows.
    """
    _of_glibc("mallopt", _MMAP_MAX, 0)
    _of_glibc("mallopt", _TRIM_THRESHOLD, _NEVER)


def trim_memory() -> None:
    """Return freed memory to the system, if the C library can (glibc).

    It is called when the arrays to come are larger than any hole that freed arrays have left.
    """
    _of_glibc("malloc_trim", 0)


def _of_glibc(name: str, *arguments: int) -> None:
    """Call a function of the C library, if there is one of that name."""
    function = getattr(ctypes.CDLL(None), name, None) if sys.platform == "linux" else None
    if function is not None:
        function(*arguments)


def untouched(count: int, dtype: DTypeLike) -> NDArray[Any]:
    """Return an array of zeros whose pages take memory only when they are written.

    Numpy's zeros may instead reuse freed memory and clear it at once.
    """
    size = max(1, count * np.dtype(dtype).itemsize)
    private = {} if sys.platform == "win32" else {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS}
    try:
        return np.frombuffer(mmap.mmap(-1, size, **private), dtype, count)
    except OSError as error:  # the same error as numpy's
        raise MemoryError from error
