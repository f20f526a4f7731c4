"""Which entries of the paths can ever limit a row.

A resource of infinite capacity never does. Neither does one whose every user also draws on another
resource that is at least as tight for each of them: that one saturates first, so the rates are the
same without it.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

_CHUNK = 1 << 16  # paths looked at at a time: few enough for the processor's caches


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
    outer, uses = _outer_paths(ptr, link, len(least)), np.zeros(len(least), np.int64)
    for _, entries in _chunks(ptr):
        uses += np.bincount(link[entries], minlength=len(least))
    alive = np.isfinite(least)
    for position in range(int(np.diff(ptr).max(initial=0))):
        rival = _rivals(ptr, link, outer, position)
        # Nobody need look for a rival of what has one, or that is not used as often or has one.
        rival[~(alive & alive[rival] & (uses[rival] >= uses))] = -1
        _keep_tighter(rival, ptr, link, weight, (least, most), position)
        alive &= rival < 0
    return alive[link]


def _chunks(ptr: NDArray[np.int64]) -> Iterator[tuple[slice, slice]]:
    """Some paths, and their entries, at a time."""
    for first in range(0, len(ptr) - 1, _CHUNK):
        last = min(first + _CHUNK, len(ptr) - 1)
        yield slice(first, last), slice(int(ptr[first]), int(ptr[last]))


def _keep_tighter(
    rival: NDArray[np.int64],
    ptr: NDArray[np.int64],
    link: NDArray[np.int32],
    weight: NDArray[np.float64],
    range_of: tuple[NDArray[np.float64], NDArray[np.float64]],
    position: int,
) -> None:
    """Take back rivals, at `position` of most paths, that are not tighter wherever a resource is
    used; `range_of` are the least and the most capacity of all.
    """
    rivalled = rival >= 0
    if not rivalled.any():
        return
    for paths, entries in _chunks(ptr):
        here = link[entries]
        mine = np.flatnonzero(rivalled[here])  # few, or none: most have no rival
        if not len(mine):
            continue
        start = ptr[paths.start : paths.stop + 1] - entries.start
        way = np.repeat(np.arange(len(start) - 1), np.diff(start))[mine]
        ends = start[way], start[way + 1]
        loose = _loose(mine, ends, rival, here, weight[entries], range_of, position)
        rival[here[loose]], rivalled[here[loose]] = -1, False


def _loose(
    mine: NDArray[np.int64],
    ends: tuple[NDArray[np.int64], NDArray[np.int64]],
    rival: NDArray[np.int64],
    link: NDArray[np.int32],
    weight: NDArray[np.float64],
    range_of: tuple[NDArray[np.float64], NDArray[np.float64]],
    position: int,
) -> NDArray[np.int64]:
    """Those entries of which the rival is not on their path or not as tight there."""
    (least, most), found = range_of, []
    width = int((ends[1] - ends[0]).max(initial=0))
    for step in [position, *(k for k in range(width) if k != position)]:  # mostly the first
        other = ends[0] + step
        valid = other < ends[1]
        other[~valid] = 0
        met = valid & (link[other] == rival[link[mine]])
        here, there = mine[met], other[met]
        with np.errstate(divide="ignore", invalid="ignore"):
            demand = weight[here] / least[link[here]]  # at its tightest
            found.append(here[~(weight[there] / most[link[there]] >= demand)])
        mine, ends = mine[~met], (ends[0][~met], ends[1][~met])
        if not len(mine):
            break
    return np.concatenate([*found, mine])


def _outer_paths(
    ptr: NDArray[np.int64], link: NDArray[np.int32], links: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The first and the last path of every resource, -1 for what is on none."""
    first, last = np.full(links, -1), np.full(links, -1)
    for paths, entries in _chunks(ptr):
        here = link[entries]
        lengths = np.diff(ptr[paths.start : paths.stop + 1])
        owner = np.repeat(np.arange(paths.start, paths.stop), lengths)
        last[here] = owner
        here, owner = here[::-1], owner[::-1]
        new = first[here] < 0
        first[here[new]] = owner[new]
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
