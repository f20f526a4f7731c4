"""Who takes part in the rows of a schedule, as flat arrays: groups of multicasts and in-switch
reductions are spelled out member by member. Knows no links and no times.
"""

import numpy as np
from numpy.typing import NDArray

from netsim.schedule import (
    COMPUTE,
    LOCAL_COPY,
    MARK,
    MULTICAST,
    SWITCH_REDUCE,
    Schedule,
    spelled_out,
)

Ends = tuple[NDArray[np.int64], NDArray[np.int32]]  # rows, and a rank of each


def senders(schedule: Schedule, rows: NDArray[np.int64]) -> Ends:
    """Every (row, rank that it reads from or works on)."""
    return _spelled_out(schedule, rows, schedule.src[rows], SWITCH_REDUCE)


def receivers(schedule: Schedule, rows: NDArray[np.int64]) -> Ends:
    """Every (row, rank that data arrives at from elsewhere)."""
    kind = schedule.kind[rows]
    rows = rows[(kind != COMPUTE) & (kind != MARK) & (kind != LOCAL_COPY)]
    return _spelled_out(schedule, rows, schedule.dst[rows], MULTICAST)


def _spelled_out(
    schedule: Schedule, rows: NDArray[np.int64], end: NDArray[np.int32], group_kind: int
) -> Ends:
    grouped = schedule.kind[rows] == group_kind
    if not grouped.any():
        return rows, end
    place, member = spelled_out(schedule.groups, end[grouped])
    plain = ~grouped
    where = np.concatenate([np.flatnonzero(plain), np.flatnonzero(grouped)[place]])
    order = np.argsort(where, kind="stable")
    everyone = np.concatenate([rows[plain], rows[grouped][place]])
    return everyone[order], np.concatenate([end[plain], member.astype(np.int32)])[order]
