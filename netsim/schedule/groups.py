"""Groups of multicasts and in-switch reductions, spelled out member by member."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def spelled_out(
    groups: Sequence[Sequence[int]], which: NDArray[np.integer]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The members of some groups, each with the place in `which` of its group."""
    sizes = np.array([len(group) for group in groups], np.int64)
    flat = np.array([rank for group in groups for rank in group], np.int64)
    first, times = (np.cumsum(sizes) - sizes)[which], sizes[which]
    place = np.repeat(np.arange(len(which)), times)
    within = np.arange(len(place)) - np.repeat(np.cumsum(times) - times, times)
    return place, flat[first[place] + within]
