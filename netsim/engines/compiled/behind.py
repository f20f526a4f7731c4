"""Resources that cannot be full because of what else their users draw on.

However many rows go through a resource that is looked at, together they are never faster than it
lets them be: a GPU's memory is not filled by all that its NIC can bring.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from netsim.engines.compiled.jit import Entry, Inner
from netsim.engines.compiled.state import Records

ROOM = 1e-9  # of a capacity, which has to stay free
BEHIND = np.dtype(
    [
        ("all", "f8"),  # what all files behind a resource may draw on the one in question
        ("chosen", "f8"),  # what those draw for which this resource is the bound that counts
        ("passes", "f8"),  # the most that it lets through to the one in question
    ],
    align=True,
)


class Traffic(NamedTuple):
    """How many files of which kind go which way, and the least and most that resources carry.

    `behind` serves one resource in question at a time, and is zero between them.
    """

    files: NDArray[np.int32]
    limits: Records
    ptr: NDArray[np.int64]
    link: NDArray[np.int32]
    weight: NDArray[np.float64]
    least: NDArray[np.float64]
    most: NDArray[np.float64]
    behind: Records
    active: NDArray[np.bool_]


@Entry
def find_behind(traffic: Traffic, doubtful: NDArray[np.int64], owner: NDArray[np.int32]) -> int:
    """Leave out what has room: `doubtful` are entries, those of one resource side by side, `owner`
    their paths.

    One resource after the other, and only for the sake of those that are still looked at. So the
    last one left out has room by those that stay, and each before it by those and the later ones.
    """
    first = 0
    while first < len(doubtful):
        last, number = first, traffic.link[doubtful[first]]
        while last < len(doubtful) and traffic.link[doubtful[last]] == number:
            last += 1
        for i in range(first, last):
            _note(traffic, doubtful[i], owner[i])
        load = 0.0
        for i in range(first, last):
            load += _unbounded(traffic, doubtful[i], owner[i])
        for i in range(first, last):
            load += _bounded(traffic, owner[i])
        if load <= traffic.least[number] * (1 - ROOM):
            for i in range(first, last):
                traffic.active[doubtful[i]] = False
        first = last
    return 0


@Inner
def _note(traffic: Traffic, entry: int, way: int) -> None:
    """Add what a path draws at an entry to all resources that it is behind."""
    demand = _demand(traffic, entry, way)
    for k in range(traffic.ptr[way], traffic.ptr[way + 1]):
        if traffic.active[k] and k != entry:
            other = traffic.behind[traffic.link[k]]
            each = traffic.weight[entry] / traffic.weight[k]
            other.all += demand
            other.passes = max(other.passes, each * traffic.most[traffic.link[k]])


@Inner
def _unbounded(traffic: Traffic, entry: int, way: int) -> float:
    """Choose what bounds a path best, of what bounds those behind it at all; what the path draws
    if nothing does.
    """
    best, gain = -1, 0.0
    for k in range(traffic.ptr[way], traffic.ptr[way + 1]):
        other = traffic.behind[traffic.link[k]]
        if traffic.active[k] and k != entry and other.all - other.passes > gain:
            best, gain = traffic.link[k], other.all - other.passes
    demand = _demand(traffic, entry, way)
    if best < 0:
        return demand
    traffic.behind[best].chosen += demand
    return 0.0


@Inner
def _bounded(traffic: Traffic, way: int) -> float:
    """What comes by the resources of a path that have been chosen; each is counted once."""
    load = 0.0
    for k in range(traffic.ptr[way], traffic.ptr[way + 1]):
        other = traffic.behind[traffic.link[k]]
        load += min(other.chosen, other.passes)
        other.all, other.chosen, other.passes = 0.0, 0.0, 0.0
    return load


@Inner
def _demand(traffic: Traffic, entry: int, way: int) -> float:
    """What all files of a path may draw at an entry of it."""
    demand, kinds = 0.0, len(traffic.limits)
    for kind in range(kinds):
        count = traffic.files[(way + 1) * kinds + kind]
        if count > 0:
            rate = traffic.limits[kind].cap * traffic.limits[kind].share
            for k in range(traffic.ptr[way], traffic.ptr[way + 1]):
                if traffic.active[k]:
                    rate = min(rate, traffic.most[traffic.link[k]] / traffic.weight[k])
            demand += count * traffic.weight[entry] * rate
    return demand
