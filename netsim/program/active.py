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
    pairs = np.sort(owner.astype(np.int64) * len(least) + link)
    for position in range(int(np.diff(ptr).max(initial=0))):
        dominated = _dominated(ptr, owner, pairs, link, weight, least, most, active, position)
        active &= ~dominated[link]
    return active


def _dominated(
    ptr: NDArray[np.int64],
    owner: NDArray[np.int32],
    pairs: NDArray[np.int64],
    link: NDArray[np.int32],
    weight: NDArray[np.float64],
    least: NDArray[np.float64],
    most: NDArray[np.float64],
    active: NDArray[np.bool_],
    position: int,
) -> NDArray[np.bool_]:
    """Resources for which the one at `position` of their first path is tighter everywhere."""
    rival = _rivals(ptr, link, owner, pairs, len(least), position)
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


def _rivals(
    ptr: NDArray[np.int64],
    link: NDArray[np.int32],
    owner: NDArray[np.int32],
    pairs: NDArray[np.int64],
    links: int,
    position: int,
) -> NDArray[np.int64]:
    """A candidate for every resource: on its first path at `position`, and on its last path too.

    `pairs` are the keys of all (path, resource), sorted.
    """
    first, last = np.full(links, -1), np.full(links, -1)
    first[link[::-1]] = owner[::-1]
    last[link] = owner
    at = np.where(first >= 0, ptr[first] + position, 0)
    has = (first >= 0) & (at < ptr[first + 1])
    rival = np.where(has, link[np.where(has, at, 0)] if len(link) else -1, -1)
    rival[rival == np.arange(links)] = -1
    some = np.flatnonzero(rival >= 0)
    wanted = last[some].astype(np.int64) * links + rival[some]
    place = np.minimum(np.searchsorted(pairs, wanted), len(pairs) - 1)
    missing = some[pairs[place] != wanted] if len(pairs) else some
    rival[missing] = -1
    return rival
