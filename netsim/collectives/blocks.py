"""Messages of whole blocks that do not lie in one piece: where they must be cut into parts.

A message covers a range of blocks. It is cut where the ranks wrap around, and around the block of
the one rank whose block lies in another buffer (in its input, or in its output).
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from netsim.collectives.lanes import Ints, Lanes, Part, Rows

Range = tuple[Ints, Ints, Ints]  # which messages, first block, block after the last


def wrapped(start: ArrayLike, count: ArrayLike, n: int) -> list[Range]:
    """The ranges of blocks start … start+count-1 (mod n): up to n, and from 0 on."""
    first, number = np.broadcast_arrays(np.asarray(start) % n, count)
    stop = first + number
    low, high = np.flatnonzero(number > 0), np.flatnonzero(stop > n)
    return [(low, first[low], np.minimum(stop, n)[low]), (high, 0 * high, stop[high] - n)]


def around(low: Ints, high: Ints, block: Ints) -> list[Range]:
    """The ranges of blocks low … high-1 before and after one of them."""
    before, after = np.flatnonzero(block > low), np.flatnonzero(block + 1 < high)
    return [(before, low[before], block[before]), (after, block[after] + 1, high[after])]


def range_parts(
    lanes: Lanes, ranges: list[Range], bounds: NDArray[np.int64], styles: Rows
) -> list[Part]:
    """Parts that lie at the same place on both sides; `bounds` says where each block begins."""
    return [
        Part(styles[which], lanes.builder.pieces(bounds[high] - bounds[low], bounds[low]), which)
        for which, low, high in ranges
        if len(which)
    ]
