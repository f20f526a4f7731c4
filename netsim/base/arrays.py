"""What numpy has as well, but takes more than a run has to start."""

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

S = TypeVar("S", bound=np.generic)


def different(values: NDArray[S]) -> NDArray[S]:
    """The different ones among values, in order. `np.unique` would import masked arrays, and ask a
    hash table for each value, which takes several times as long where most are different.
    """
    ordered = np.sort(values, axis=None)
    new = np.ones(len(ordered), bool)
    new[1:] = ordered[1:] != ordered[:-1]
    return ordered[new]
