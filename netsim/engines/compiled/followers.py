"""Dependencies the other way around: for every row, those that wait for it."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from netsim.engines.compiled.jit import Entry
from netsim.schedule import Schedule


class Followers(NamedTuple):
    """Who waits for row i: `row[ptr[i]:ptr[i + 1]]`, each with the number of its lag."""

    ptr: NDArray[np.int32]
    row: NDArray[np.int32]
    lag: NDArray[np.int16]


def followers_of(schedule: Schedule) -> Followers:
    """The followers of every row, in row order."""
    rows, edges = len(schedule), len(schedule.dep_row)
    found = Followers(
        np.zeros(rows + 2, np.int32), np.empty(edges, np.int32), np.empty(edges, np.int16)
    )
    if edges:
        turn_around(schedule.dep_ptr, schedule.dep_row, schedule.dep_lag, *found)
    return found


@Entry
def turn_around(
    dep_ptr: NDArray[np.int32],
    dep_row: NDArray[np.int32],
    dep_lag: NDArray[np.int16],
    ptr: NDArray[np.int32],
    row: NDArray[np.int32],
    lag: NDArray[np.int16],
) -> int:
    """Count, add up, fill in: while rows are filled in, ptr[i + 1] is where row i goes on."""
    for k in range(len(dep_row)):
        ptr[dep_row[k] + 2] += 1
    for i in range(2, len(ptr)):
        ptr[i] += ptr[i - 1]
    for i in range(len(dep_ptr) - 1):
        for k in range(dep_ptr[i], dep_ptr[i + 1]):
            place = ptr[dep_row[k] + 1]
            row[place], lag[place] = i, dep_lag[k]
            ptr[dep_row[k] + 1] += 1
    return 0
