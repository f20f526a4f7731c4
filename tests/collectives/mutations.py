"""Schedules with one thing changed, to see whether the checkers notice."""

from dataclasses import replace

import numpy as np

from netsim.schedule.schedule import ARRIVED, IN_ORDER, OP_NAMES, Pieces, Schedule


def with_piece(schedule: Schedule, row: int, **changes: int) -> Schedule:
    """One row moves another piece: columns of the piece get new values."""
    p = schedule.pieces
    columns = {}
    for name in Pieces.__slots__:
        column = getattr(p, name)
        new = changes.get(name, column[schedule.piece[row]])
        columns[name] = np.append(column, np.asarray(new, column.dtype))
    piece = schedule.piece.copy()
    piece[row] = len(p.count)
    return replace(schedule, pieces=Pieces(**columns), piece=piece)


def without_row(schedule: Schedule, row: int) -> Schedule:
    """One row moves nothing; what waits for it still does."""
    return with_piece(schedule, row, count=0, amount=0)


def with_style(schedule: Schedule, row: int, **changes: int) -> Schedule:
    """One row gets another operation, kind or buffer."""
    changed = replace(schedule.styles[schedule.style[row]], **changes)
    style = schedule.style.copy()
    style[row] = len(schedule.styles)
    return replace(schedule, styles=(*schedule.styles, changed), style=style)


def with_end(schedule: Schedule, row: int, **ends: int) -> Schedule:
    """One row goes from or to another rank."""
    columns = {name: getattr(schedule, name).copy() for name in ends}
    for name, rank in ends.items():
        columns[name][row] = rank
    return replace(schedule, **columns)


def without_dependency(schedule: Schedule, edge: int) -> Schedule:
    """One dependency less."""
    owner = np.searchsorted(schedule.dep_ptr, edge, side="right") - 1
    ptr = schedule.dep_ptr.copy()
    ptr[owner + 1 :] -= 1
    return replace(
        schedule,
        dep_ptr=ptr,
        dep_row=np.delete(schedule.dep_row, edge),
        dep_lag=np.delete(schedule.dep_lag, edge),
    )


def with_other_lag(schedule: Schedule, edge: int) -> Schedule:
    """One dependency waits for the end instead of the arrival, or the other way round."""
    lags = (*schedule.lags, ARRIVED, IN_ORDER)
    was = schedule.lags[schedule.dep_lag[edge]].arrival
    lag = schedule.dep_lag.copy()
    lag[edge] = len(lags) - (1 if was else 2)
    return replace(schedule, lags=lags, dep_lag=lag)


def with_row_twice(schedule: Schedule, row: int) -> Schedule:
    """One row happens a second time right after the first."""
    names = ("style", "src", "dst", "piece", "step")
    columns = {n: np.insert(getattr(schedule, n), row, getattr(schedule, n)[row]) for n in names}
    moved = schedule.dep_row + (schedule.dep_row >= row)
    start, stop = schedule.dep_ptr[row], schedule.dep_ptr[row + 1]
    dep_row = np.insert(moved, stop, np.append(moved[start:stop], row)).astype(np.int32)
    dep_lag = np.insert(schedule.dep_lag, stop, np.append(schedule.dep_lag[start:stop], 0)).astype(
        np.int16
    )
    ptr = np.insert(schedule.dep_ptr, row + 1, stop)
    ptr[row + 2 :] += stop - start + 1
    return replace(
        schedule, dep_row=dep_row, dep_lag=dep_lag, dep_ptr=ptr.astype(np.int32), **columns
    )


def mutate(schedule: Schedule, row: int, what: int, amount: int) -> Schedule:
    """One of many small changes of a row."""
    p, k = schedule.pieces, schedule.piece[row]
    offsets = ("src_offset", "dst_offset", "own_offset")
    if what < 3:
        moved = max(0, int(getattr(p, offsets[what])[k]) + (amount % 5 - 2))
        return with_piece(schedule, row, **{offsets[what]: moved})
    if what == 3:
        return with_style(schedule, row, op=amount % len(OP_NAMES))
    if what == 4:
        return with_style(schedule, row, src_buffer=amount % 3)
    if what == 5:
        return with_style(schedule, row, dst_buffer=amount % 3)
    if what == 6:
        return with_end(schedule, row, src=amount % schedule.ranks)
    if what == 7:
        return with_end(schedule, row, dst=amount % schedule.ranks)
    if what == 8:
        return with_piece(schedule, row, count=max(0, int(p.count[k]) - 1))
    return with_row_twice(schedule, row) if what == 9 else without_row(schedule, row)


MUTATIONS = 11
