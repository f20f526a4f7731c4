"""Ranges of elements that a Collective speaks of: expected, exchanged and kept ones.

Values only; offsets and counts are in elements.
"""

import numpy as np
from numpy.typing import NDArray

from netsim.values import dataclass


@dataclass(frozen=True, slots=True)
class Expectation:
    """An output range that must hold each origin's contribution exactly once, added up.

    Element `offset + k` of the output is the sum over `origins` of their input `origin_offset + k`.
    """

    offset: int
    count: int
    origins: tuple[int, ...]
    origin_offset: int


@dataclass(frozen=True, slots=True)
class Blocks:
    """What each rank (first axis) has for each rank (second axis), and where it lies."""

    count: NDArray[np.int64]
    in_offset: NDArray[np.int64]
    out_offset: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Kept:
    """Data that is output on the rank whose input it is: out of place it must be copied."""

    rank: NDArray[np.int64]
    in_offset: NDArray[np.int64]
    out_offset: NDArray[np.int64]
    count: NDArray[np.int64]
