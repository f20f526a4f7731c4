"""The entries of paths, in CSR form: which links a path draws on, and with which weight."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from netsim.base.memo import different
from netsim.topology.graph import least_and_most

Ints = NDArray[np.int32]
Entries = tuple[Ints, Ints, NDArray[np.float64]]  # path, link, weight
Packed = tuple[NDArray[np.int64], Ints, NDArray[np.float64]]  # pointers, links, weights

# To find links that occur twice in a path, all pairs of entries of a path are compared if no path
# has more than `_FEW_ENTRIES` entries; otherwise the entries of `_PATHS_AT_A_TIME` paths are
# sorted at a time.
_FEW_ENTRIES = 16
_PATHS_AT_A_TIME = 1 << 14


def no_entries() -> Entries:
    """Return a block of entries that is empty."""
    empty = np.zeros(0, np.int32)
    return empty, empty, np.zeros(0)


def pack(blocks: list[Entries], path_count: int) -> Packed:
    """Return pointers, links and weights of the entries of all paths, in CSR form.

    A block of entries has three columns: path, link and weight; in a block the entries of a path
    follow each other. If a path has several entries on one link (the same half-duplex capacity in
    both directions, the memory of one GPU at both endpoints), their weights are added. The list of
    blocks is emptied to save memory.
    """
    ptr = np.zeros(path_count + 1, np.int64)
    owners = np.concatenate([np.zeros(0, np.int32), *(block[0] for block in blocks)])
    np.cumsum(np.bincount(owners, minlength=path_count), out=ptr[1:])
    del owners
    link = np.empty(int(ptr[-1]), np.int32)
    common_weight = _common_weight(blocks)
    if common_weight is None:
        weight = np.empty(len(link))
    else:
        weight = np.broadcast_to(common_weight, len(link))
    filled = ptr[:-1].copy()
    blocks.reverse()
    while blocks:
        owner, block_link, block_weight = blocks.pop()
        starts = np.flatnonzero(np.append(True, owner[1:] != owner[:-1])[: len(owner)])
        lengths = np.diff(np.append(starts, len(owner)))
        place = np.arange(len(owner)) + np.repeat(filled[owner[starts]] - starts, lengths)
        link[place] = block_link
        if common_weight is None:
            weight[place] = block_weight
        filled[owner[starts]] += lengths
    return _merge_repeated(ptr, link, weight) if _repeats(ptr, link) else (ptr, link, weight)


def _common_weight(blocks: list[Entries]) -> float | None:
    """Return the weight that all entries of all blocks have; None if weights differ.

    Only weights of blocks from `broadcast_if_equal` are recognized as equal.
    """
    weights = {float(w[0]) if w.strides == (0,) else None for _, _, w in blocks if len(w)}
    return weights.pop() if len(weights) == 1 else None


def broadcast_if_equal(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the same values; if all are equal, as an array that stores the value once."""
    if len(values) and values.min() == values.max():
        return np.broadcast_to(values[0], len(values))
    return values


def owners_of(ptr: NDArray[np.int64]) -> Ints:
    """Return by entry the number of its path, from pointers: [0, 2, 3] gives [0, 0, 1]."""
    return np.repeat(np.arange(len(ptr) - 1, dtype=np.int32), np.diff(ptr))


def active_entries(
    link: Ints, capacity: NDArray[np.float64], changes: Sequence[tuple[float, int, float]] = ()
) -> NDArray[np.bool_]:
    """Return by path entry whether it can limit a row: whether its link has a finite capacity.

    - `link`: by entry, its link.
    - `capacity`, `changes`: by link its capacity, and changes (time, link, capacity) of it; the
      least counts.

    `engines/compiled/grouping.py` finds further entries that never limit a row.
    """
    return np.isfinite(least_and_most(capacity, changes)[0])[link]


def _repeats(ptr: NDArray[np.int64], link: Ints) -> bool:
    """Return whether any path has two entries on one link."""
    width = int(np.diff(ptr).max(initial=0))
    if width > _FEW_ENTRIES:
        starts = range(0, len(ptr) - 1, _PATHS_AT_A_TIME)
        return any(_repeats_by_sorting(ptr[k : k + _PATHS_AT_A_TIME + 1], link) for k in starts)
    owner = owners_of(ptr)
    return any(
        bool(((link[k:] == link[:-k]) & (owner[k:] == owner[:-k])).any()) for k in range(1, width)
    )


def _repeats_by_sorting(ptr: NDArray[np.int64], link: Ints) -> bool:
    """Return whether any path has two entries on one link, for the paths with these pointers."""
    links = link[ptr[0] : ptr[-1]]
    key = owners_of(ptr).astype(np.int64) * (int(links.max(initial=0)) + 1) + links
    return len(different(key)) < len(key)


def _merge_repeated(ptr: NDArray[np.int64], link: Ints, weight: NDArray[np.float64]) -> Packed:
    """Return the entries with at most one entry for each path and link.

    The weights of entries that are merged are added; the first of them keeps its place.
    """
    owner = owners_of(ptr).astype(np.int64)
    key = owner * (int(link.max(initial=0)) + 1) + link
    distinct, place = np.unique(key, return_inverse=True)
    first = np.full(len(distinct), len(key))
    np.minimum.at(first, place, np.arange(len(key)))
    total = np.bincount(place, weight)
    remaining = np.sort(first)
    merged_ptr = np.zeros(len(ptr), np.int64)
    np.cumsum(np.bincount(owner[remaining], minlength=len(ptr) - 1), out=merged_ptr[1:])
    return merged_ptr, link[remaining], total[place[remaining]]
