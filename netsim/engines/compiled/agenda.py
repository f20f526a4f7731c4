"""Agendas: who is next, as a tournament over a fixed number of places.

Of n places, a power of 4, `tree[n + i]` is the time of place i, `tree[1]` the earliest of all, and
every node k between holds the earliest of its four children, from `tree[4 * k]` on. A change stops
climbing where it decides nothing, so that a batch of equal times costs a few steps each, however
large the tournament.
"""

from math import inf

import numpy as np
from numpy.typing import NDArray

from netsim.engines.compiled.jit import Inner

Agenda = NDArray[np.float64]


def places_for(count: int) -> int:
    """How many places an agenda for so many has."""
    places = 1
    while places < count:
        places *= 4
    return places


def empty_agenda(count: int) -> Agenda:
    """An agenda with at least so many places, all without a time."""
    return np.full(2 * places_for(count), inf)


@Inner
def put(tree: Agenda, place: int, when: float) -> None:
    """Give a place a time; infinity takes it out."""
    node = (len(tree) >> 1) + place
    tree[node] = when
    node >>= 2
    while node > 0:
        earliest = _earliest(tree, 4 * node)
        if tree[node] == earliest:
            break
        tree[node] = earliest
        node >>= 2


@Inner
def next_due(tree: Agenda, node: int, horizon: float) -> int:
    """The next node at the bottom whose time is not after the horizon, or 0 if there is none.

    A walk over all that is due: begin at node 1, take the time of every node found out, and go on
    from it. The tree is in order again at the end of the walk.
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


@Inner
def _earliest(tree: Agenda, first: int) -> float:
    """The earliest time of four nodes."""
    a, b, c, d = tree[first], tree[first + 1], tree[first + 2], tree[first + 3]
    left, right = a if a < b else b, c if c < d else d
    return float(left if left < right else right)


def grown(tree: Agenda) -> Agenda:
    """The same agenda with four times the places."""
    leaves = len(tree) >> 1
    wide = np.full(8 * leaves, inf)
    wide[4 * leaves : 5 * leaves] = tree[leaves:]
    level = leaves
    while level:
        np.min(wide[4 * level : 8 * level].reshape(-1, 4), axis=1, out=wide[level : 2 * level])
        level >>= 2
    return wide
