"""Which entries of the paths can ever limit a row.

A resource of infinite capacity never does. Neither does one whose every user also draws on another
resource that is at least as tight for each of them: that one saturates first, so the rates are the
same without it.
"""

import numpy as np
from numpy.typing import NDArray

from netsim.program.pack import owners_of


def active_entries(
    ptr: NDArray[np.int64],
    link: NDArray[np.int32],
    weight: NDArray[np.float64],
    capacity: NDArray[np.float64],
    changes: tuple[tuple[float, int, float], ...] = (),
) -> NDArray[np.bool_]:
    """True for every path entry that engines have to look at."""
    least, most = capacity.copy(), capacity.copy()
    for _, where, value in changes:
        least[where], most[where] = min(least[where], value), max(most[where], value)
    active = np.isfinite(least)[link]
    owner = owners_of(ptr)
    outer = _outer_paths(owner, link, len(least))
    uses, alive = np.bincount(link, minlength=len(least)), np.isfinite(least)
    for position in range(int(np.diff(ptr).max(initial=0))):
        rival = _rivals(ptr, link, outer, position)
        # Nobody need look for a rival of what has one, or that is not used as often or has one.
        rival[~(alive & alive[rival] & (uses[rival] >= uses))] = -1
        dominated = _dominated(ptr, owner, link, weight, least, most, active, rival, position)
        if dominated.any():
            active &= ~dominated[link]
            alive &= ~dominated
    return active


def _dominated(
    ptr: NDArray[np.int64],
    owner: NDArray[np.int32],
    link: NDArray[np.int32],
    weight: NDArray[np.float64],
    least: NDArray[np.float64],
    most: NDArray[np.float64],
    active: NDArray[np.bool_],
    rival: NDArray[np.int64],
    position: int,
) -> NDArray[np.bool_]:
    """Resources whose rival, at `position` of most paths, is tighter wherever they are used."""
    entries = np.flatnonzero((rival >= 0)[link])  # few, or none: most have no rival
    uses = np.bincount(link[entries], minlength=len(least))
    everywhere = np.zeros(len(least), np.int64)
    width = int(np.diff(ptr)[owner[entries]].max(initial=0))
    for step in [position, *(k for k in range(width) if k != position)]:  # mostly the first
        here, way = link[entries], owner[entries]
        other = ptr[way] + step
        valid = other < ptr[way + 1]
        other[~valid] = 0
        met = np.flatnonzero(valid & (link[other] == rival[here]))
        here, other = here[met], other[met]
        with np.errstate(divide="ignore", invalid="ignore"):
            demand = weight[entries[met]] / least[here]  # at its tightest
            tighter = active[other] & (weight[other] / most[link[other]] >= demand)
        everywhere += np.bincount(here[tighter], minlength=len(least))
        entries = np.delete(entries, met)
        if not len(entries):
            break
    dominated: NDArray[np.bool_] = (rival >= 0) & (everywhere == uses)
    return dominated


def _outer_paths(
    owner: NDArray[np.int32], link: NDArray[np.int32], links: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The first and the last path of every resource, -1 for what is on none."""
    first, last = np.full(links, -1), np.full(links, -1)
    first[link[::-1]] = owner[::-1]
    last[link] = owner
    return first, last


def _rivals(
    ptr: NDArray[np.int64],
    link: NDArray[np.int32],
    outer: tuple[NDArray[np.int64], NDArray[np.int64]],
    position: int,
) -> NDArray[np.int64]:
    """A candidate for every resource: on its first path at `position`, and on its last path too."""
    first, last = outer
    rival = np.full(len(first), -1)
    some = np.flatnonzero(first >= 0)
    some = some[ptr[first[some]] + position < ptr[first[some] + 1]]
    some = some[link[ptr[first[some]] + position] != some]
    wanted, met = link[ptr[first[some]] + position], np.zeros(len(some), bool)
    start, end = ptr[last[some]], ptr[last[some] + 1]
    for step in range(int((end - start).max(initial=0))):
        inside = start + step < end
        met |= inside & (link[np.where(inside, start + step, 0)] == wanted)
    rival[some[met]] = wanted[met]
    return rival
