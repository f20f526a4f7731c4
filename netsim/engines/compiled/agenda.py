"""Agendas: who is next, as a tournament over a fixed number of places.

`tree[1]` is the earliest time of all, `tree[n + i]` the time of place i, and every node between
holds the earlier of its two children. A change stops climbing where it decides nothing, so that a
batch of equal times costs a few steps each, however large the tournament.
"""

from math import inf

import numpy as np
from numpy.typing import NDArray

from netsim.engines.compiled.jit import Inner

Agenda = NDArray[np.float64]


def empty_agenda(places: int) -> Agenda:
    """An agenda with at least so many places, all without a time."""
    leaves = 1 << max(0, places - 1).bit_length()
    return np.full(2 * leaves, inf)


@Inner
def put(tree: Agenda, place: int, when: float) -> None:
    """Give a place a time; infinity takes it out."""
    node = (len(tree) >> 1) + place
    tree[node] = when
    node >>= 1
    while node > 0:
        left, right = tree[2 * node], tree[2 * node + 1]
        earlier = left if left < right else right
        if tree[node] == earlier:
            break
        tree[node] = earlier
        node >>= 1


@Inner
def next_due(tree: Agenda, node: int, horizon: float) -> int:
    """The next node at the bottom whose time is not after the horizon, or 0 if there is none.

    A walk over all that is due: begin at node 1, take the time of every node found out, and go on
    from it. The tree is in order again at the end of the walk.
    """
    leaves = len(tree) >> 1
    while tree[node] > horizon:
        node >>= 1
        if node == 0:
            return 0
        left, right = tree[2 * node], tree[2 * node + 1]
        tree[node] = left if left < right else right
    while node < leaves:
        node = 2 * node if tree[2 * node] <= horizon else 2 * node + 1
    return node


def grown(tree: Agenda) -> Agenda:
    """The same agenda with twice the places."""
    leaves = len(tree) >> 1
    wide = np.full(4 * leaves, inf)
    wide[2 * leaves : 3 * leaves] = tree[leaves:]
    level = leaves
    while level:
        below = wide[2 * level : 4 * level]
        np.minimum(below[0::2], below[1::2], out=wide[level : 2 * level])
        level >>= 1
    return wide
