"""Who takes part in the rows of a schedule, as flat arrays: groups of multicasts and in-switch
reductions are spelled out member by member. Knows no links and no times.
"""

import numpy as np
from numpy.typing import NDArray

from netsim.schedule import (
    COMPUTE,
    LOCAL_COPY,
    MULTICAST,
    SWITCH_REDUCE,
    TRANSFER,
    Schedule,
    spelled_out,
)

Ends = tuple[NDArray[np.int64], NDArray[np.int32]]  # rows, and a rank of each


def senders(schedule: Schedule, rows: NDArray[np.int64]) -> Ends:
    """Every (row, rank that it reads from or works on)."""
    return _spelled_out(schedule, rows, schedule.src[rows], SWITCH_REDUCE)


def receivers(schedule: Schedule, rows: NDArray[np.int64]) -> Ends:
    """Every (row, rank that data arrives at from elsewhere)."""
    rows = rows[_of_kinds(schedule, rows, TRANSFER, MULTICAST, SWITCH_REDUCE)]
    return _spelled_out(schedule, rows, schedule.dst[rows], MULTICAST)


def _spelled_out(
    schedule: Schedule, rows: NDArray[np.int64], end: NDArray[np.int32], group_kind: int
) -> Ends:
    if all(style.kind != group_kind for style in schedule.styles):
        return rows, end
    grouped = _of_kinds(schedule, rows, group_kind)
    place, member = spelled_out(schedule.groups, end[grouped])
    plain = ~grouped
    where = np.concatenate([np.flatnonzero(plain), np.flatnonzero(grouped)[place]])
    order = np.argsort(where, kind="stable")
    everyone = np.concatenate([rows[plain], rows[grouped][place]])
    return everyone[order], np.concatenate([end[plain], member.astype(np.int32)])[order]


def moves(schedule: Schedule, rows: NDArray[np.int64] | None = None) -> NDArray[np.int64]:
    """Those of some rows (of all) that do anything."""
    kinds = (TRANSFER, LOCAL_COPY, MULTICAST, SWITCH_REDUCE, COMPUTE)
    rows = np.arange(len(schedule)) if rows is None else rows
    return rows[_of_kinds(schedule, rows, *kinds)]


def _of_kinds(schedule: Schedule, rows: NDArray[np.int64], *kinds: int) -> NDArray[np.bool_]:
    """Which rows are of some kinds; there are few styles, and many rows of each."""
    wanted = np.array([style.kind in kinds for style in schedule.styles], bool)
    found: NDArray[np.bool_] = wanted[schedule.style[rows]]
    return found
