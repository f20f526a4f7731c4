"""What the compiled engine keeps: a record for every link, group and seat, columns for rows.

Flows of one *group* share links, weights, share and cap, so they always have the same rate and are
solved as one. A group with flows under way takes a *seat*; a seat is free again when the last one
has ended, so that the state grows with what happens at once and not with the program.

A *level* is rate ÷ share, what max-min fairness equalises. The *clock* of a seat is the integral of
its level: a flow that joins when the clock shows c ends when it shows c + amount ÷ share, however
the rate changes meanwhile.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Records = Any  # a structured array; numba knows its fields, the type checker does not

LINK = np.dtype(
    [
        ("capacity", "f8"),
        ("used", "f8"),  # by seats that are not rising
        ("rising", "f8"),  # what the rising seats draw per unit of level
        ("rest", "f8"),  # of that sum, what a float of its size cannot hold
        ("level", "f8"),  # at which it is full, the highest on it; infinite if it is not
        ("first", "i4"),  # of its entries in `members`
        ("count", "i4"),  # of seats on it
        ("risers", "i4"),  # of seats rising on it
        ("exact", "i1"),  # whether its time in the agenda is no longer just a lower bound
    ],
    align=True,
)
KIND = np.dtype([("share", "f8"), ("cap", "f8")], align=True)  # the cap as a level
GROUP = np.dtype(
    [
        ("kind", "i4"),
        ("first", "i4"),  # of its draws
        ("seat", "i4"),  # NOBODY if none of its flows is under way
    ],
    align=True,
)
DRAW = np.dtype(
    [
        ("weight", "f8"),  # on the link, per unit of level
        ("link", "i4"),
        ("place", "i4"),  # where the link lists the seat
    ],
    align=True,
)
MEMBER = np.dtype([("seat", "i4"), ("draw", "i4")], align=True)
SEAT = np.dtype(
    [
        ("level", "f8"),
        ("clock", "f8"),  # at time `since`
        ("since", "f8"),
        ("group", "i4"),
        ("flows", "i4"),  # under way
        ("counted", "i4"),  # of them in the present levels
        ("root", "i4"),  # the row that ends first; in a free seat, the next free one
        ("next", "i4"),  # in the list of seats whose flows, or whose level, may have changed
        ("state", "i1"),
    ],
    align=True,
)
STYLE = np.dtype([("latency", "f8"), ("cap", "f8"), ("kind", "i4")], align=True)
LAG = np.dtype([("seconds", "f8"), ("arrival", "i1")], align=True)
CHANGE = np.dtype([("time", "f8"), ("capacity", "f8"), ("link", "i4")], align=True)
CORE = np.dtype(
    [
        ("now", "f8"),
        ("horizon", "f8"),  # what is due up to here belongs to the present instant
        ("level", "f8"),  # that the present solution has reached
        ("done", "i8"),
        ("ready", "i4"),  # heads of lists of rows, linked through `waits`
        ("over", "i4"),
        ("change", "i4"),  # the next change of a capacity
        ("free_seat", "i4"),
        ("seats", "i4"),
        ("free_alarm", "i4"),
        ("alarms", "i4"),
        ("dirty", "i4"),  # heads of lists of seats
        ("moved", "i4"),
        ("stop", "i4"),  # set from outside: give up, soon and in any state
        ("kinds", "i4"),  # how many (share, cap) there are; 0 if `Rows.group` goes by row
        ("span", "i4"),  # rows of an operation; the same again follow, if there are more
        ("marks", "i4"),  # that begin and that end each of several operations
    ],
    align=True,
)

NOBODY, UNLISTED = -1, -2  # the end of a list, and what is in none

# States of a seat while rates are solved.
SETTLED, RISING, STOPPED = range(3)


class Rows(NamedTuple):
    """The program by row, style, piece and lag, and the timeline as it is filled in.

    Of several operations the program is that of the first, and what is filled in is of all.

    `start` is the latest readiness known so far. `end` is negative while a row is not over: -1, or
    while it shares links, the negative of its finish on the clock of its seat; a row of known rate
    has its end at once. `waits` counts what a row waits for, then links it into lists. `child` is
    that of the heap of a seat, plus 1.
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
    """Links, groups and seats: all that solving needs.

    `looks` is a queue of links, with the levels at which they have to be looked at, and of rising
    seats, numbered on from there, with their caps.
    """

    core: Records
    links: Records
    kinds: Records
    groups: Records
    draws: Records
    members: Records
    seats: Records
    looks: Records


class Future(NamedTuple):
    """What is to come: agendas of the next end of every seat and of rows that begin or end at a
    known time (alarms), and changes of capacity.
    """

    ends: NDArray[np.float64]
    alarms: NDArray[np.float64]
    alarm_row: NDArray[np.int32]
    changes: Records
