"""Paths in CSR form, from blocks of entries."""

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int32]
Entries = tuple[Ints, Ints, NDArray[np.float64]]  # way, link, weight
Packed = tuple[NDArray[np.int64], Ints, NDArray[np.float64]]  # pointers, links, weights

_NARROW = 16  # paths of so few entries are searched for repetitions entry by entry


def pack(blocks: list[Entries], ways: int) -> Packed:
    """Take all blocks out of the list and lay out their entries way by way.

    In a block, the entries of a way follow each other. Several of one way on one link (half duplex,
    both ends) are added up.
    """
    none = np.zeros(0, np.int32)
    ptr = np.zeros(ways + 1, np.int64)
    owners = np.concatenate([none, *(block[0] for block in blocks)])
    np.cumsum(np.bincount(owners, minlength=ways), out=ptr[1:])
    del owners
    link = np.empty(int(ptr[-1]), np.int32)
    values = {float(w[0]) if w.strides == (0,) else None for _, _, w in blocks if len(w)}
    same = values.pop() if len(values) == 1 else None
    weight = np.empty(len(link)) if same is None else np.broadcast_to(same, len(link))
    filled = ptr[:-1].copy()
    blocks.reverse()
    while blocks:
        owner, its_link, its_weight = blocks.pop()
        starts = np.flatnonzero(np.append(True, owner[1:] != owner[:-1])[: len(owner)])
        lengths = np.diff(np.append(starts, len(owner)))
        place = np.arange(len(owner)) + np.repeat(filled[owner[starts]] - starts, lengths)
        link[place] = its_link
        if same is None:
            weight[place] = its_weight
        filled[owner[starts]] += lengths
    return _merged(ptr, link, weight) if _repeats(ptr, link) else (ptr, link, weight)


def thrifty(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The same values; where all are equal, they take no memory."""
    if len(values) and values.min() == values.max():
        return np.broadcast_to(values[0], len(values))
    return values


def owners_of(ptr: NDArray[np.int64]) -> Ints:
    """The way of every entry."""
    return np.repeat(np.arange(len(ptr) - 1, dtype=np.int32), np.diff(ptr))


def _repeats(ptr: NDArray[np.int64], link: Ints) -> bool:
    """Whether some way may have several entries on one link."""
    width = int(np.diff(ptr).max(initial=0))
    if width > _NARROW:
        return True
    owner = owners_of(ptr)
    return any(
        bool(((link[k:] == link[:-k]) & (owner[k:] == owner[:-k])).any()) for k in range(1, width)
    )


def _merged(ptr: NDArray[np.int64], link: Ints, weight: NDArray[np.float64]) -> Packed:
    """Entries of one way on one link become one, in the place of the first."""
    owner = owners_of(ptr).astype(np.int64)
    key = owner * (int(link.max(initial=0)) + 1) + link
    distinct, place = np.unique(key, return_inverse=True)
    first = np.full(len(distinct), len(key))
    np.minimum.at(first, place, np.arange(len(key)))
    total = np.bincount(place, weight)
    keep = np.sort(first)
    fewer = np.zeros(len(ptr), np.int64)
    np.cumsum(np.bincount(owner[keep], minlength=len(ptr) - 1), out=fewer[1:])
    return fewer, link[keep], total[place[keep]]
