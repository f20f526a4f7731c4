"""The ends of a ring's lanes after many steps: a power of a matrix of sums and maxima.

In a step every lane waits for its own last row and for what the lane before has sent, which arrives
`way` later, and then takes `took`. After m steps a lane's end is the greatest, over the lane q from
which its wait comes, of q's end at first, the ways and rows from there, and as many rows as are
left (of m) of the slowest lane in between, for rows may wait at any of them.
"""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
MOST_STEPS = 64  # up to which they are taken one by one
MOST_KINDS = 64  # different times that rows of a ring may take, each of which is looked at


def after(ends: Floats, took: Floats, way: Floats, steps: int) -> Floats:
    """The ends of rings (a ring each line) after so many further steps."""
    if steps <= MOST_STEPS:
        return one_by_one(ends, took, way, steps)
    each = zip(ends, took, way, strict=True)
    return np.stack([in_closed_form(e, t, w, steps) for e, t, w in each])


def one_by_one(ends: Floats, took: Floats, way: Floats, steps: int) -> Floats:
    """The same from its definition."""
    for _ in range(steps):
        arrived = np.roll(ends + way, 1, axis=-1)
        ends = np.maximum(ends, arrived) + took
    return ends


def in_closed_form(ends: Floats, took: Floats, way: Floats, steps: int) -> Floats:
    """The same of one ring, however many steps."""
    size = len(ends)
    laps = -(-steps // size) + 1
    hop = np.roll(way, 1) + took  # from the lane before to the end of the row here
    # Positions along all laps: the last lap is the one of interest.
    along = np.cumsum(np.tile(hop, laps))
    here = np.arange((laps - 1) * size, laps * size)
    position = np.arange(laps * size, dtype=np.float64)
    start = np.tile(ends, laps) - along
    slow = np.tile(took, laps)
    best = np.full(size, -np.inf)
    for kind in np.unique(took).tolist():
        last = np.maximum.accumulate(np.where(slow >= kind, np.arange(laps * size), -1))[here]
        worth = start + position * kind
        found = _greatest(worth, here - steps, last)
        best = np.maximum(best, found + along[here] + (steps - position[here]) * kind)
    return best


def _greatest(values: Floats, first: NDArray[np.int64], last: NDArray[np.int64]) -> Floats:
    """The greatest of the values from `first` to `last`; -inf where there are none."""
    result = np.full(len(first), -np.inf)
    length = last - first + 1
    table, width = values, 1
    while True:
        mine = np.flatnonzero((length >= width) & (length < 2 * width))
        result[mine] = np.maximum(table[first[mine]], table[last[mine] - width + 1])
        if 2 * width > length.max(initial=0):
            return result
        table, width = np.maximum(table[:-width], table[width:]), 2 * width
