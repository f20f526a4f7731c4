"""Operations back to back, as a benchmark issues them: each rank's kernels serial on its stream.

A rank's operation begins when its previous one is over and the host has launched it, and is over
when all that the rank sends has left and all that it receives has arrived.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from netsim.schedule.groups import spelled_out
from netsim.schedule.rows import (
    ARRIVED,
    IN_ORDER,
    MARK,
    MULTICAST,
    SWITCH_REDUCE,
    Lag,
    Pieces,
    Schedule,
    Style,
)


@dataclass(frozen=True, slots=True)
class Launch:
    """What it takes to begin an operation.

    `host` seconds of a process for each launch, one after the other over the GPUs it drives
    (`gpus_per_process`), and `kernel` seconds on the GPU before the first byte moves.
    """

    host: float = 0.0
    kernel: float = 0.0
    gpus_per_process: int = 1

    @property
    def period(self) -> float:
        """The least time from one operation to the next that the host allows."""
        return self.host * self.gpus_per_process


@dataclass(frozen=True, slots=True)
class Repeated:
    """A schedule of several operations; `ends[i, r]` is the row that ends operation i on rank r."""

    schedule: Schedule
    ends: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class _Edges:
    """Dependencies as (row, earlier row, number of the lag)."""

    row: NDArray[np.int64]
    earlier: NDArray[np.int64]
    lag: NDArray[np.int64]


def repeat(schedule: Schedule, times: int, launch: Launch = Launch()) -> Repeated:
    """`times` operations of a schedule, one after the other on every rank."""
    ranks, rows = schedule.ranks, len(schedule)
    lags, (arrived, in_order) = _numbered(schedule.lags, (ARRIVED, IN_ORDER))
    block = _block(schedule, arrived, in_order)
    size = rows + 2 * ranks
    starts = np.arange(ranks)
    again = _Edges(starts, starts - ranks, np.full(ranks, in_order))  # the end marks just before
    dep_ptr, dep_row, dep_lag = _in_a_row(block, _merge(again, block), times, size)
    begin, end = len(schedule.styles), len(schedule.styles) + 1
    release_row, release_time = _releases(schedule, times, size, launch)
    repeated = Schedule(
        ranks=ranks,
        styles=(*schedule.styles, Style(MARK, stream="launch", latency=launch.kernel), Style(MARK)),
        pieces=_with_nothing(schedule.pieces),
        lags=lags,
        groups=schedule.groups,
        style=np.tile(_framed(schedule.style, ranks, begin, end), times),
        src=np.tile(_framed(schedule.src, ranks, starts, starts), times),
        dst=np.tile(_framed(schedule.dst, ranks, starts, starts), times),
        piece=np.tile(_framed(schedule.piece, ranks, *2 * [len(schedule.pieces.count)]), times),
        step=np.tile(_framed(schedule.step, ranks, 0, 0), times),
        dep_ptr=dep_ptr,
        dep_row=dep_row,
        dep_lag=dep_lag,
        release_row=release_row,
        release_time=release_time,
        collectives=schedule.collectives,
        fold=schedule.fold,
    )
    first = np.arange(times)[:, None] * size
    return Repeated(repeated, first + ranks + rows + np.arange(ranks)[None, :])


def _in_a_row(
    first: _Edges, later: _Edges, times: int, size: int
) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int16]]:
    """Pointers, earlier rows and lags of several operations of `size` rows each; all but the first
    are alike.
    """
    kinds = [_by_row(first), _by_row(later)]
    counts = [np.bincount(kind.row, minlength=size) for kind in kinds]
    ptr = np.zeros(times * size + 1, np.int32)
    np.cumsum(np.concatenate([counts[min(i, 1)] for i in range(times)]), out=ptr[1:])
    row = [(kinds[min(i, 1)].earlier + i * size).astype(np.int32) for i in range(times)]
    lags = [kind.lag.astype(np.int16) for kind in kinds]
    return ptr, np.concatenate(row), np.concatenate([lags[min(i, 1)] for i in range(times)])


def _by_row(edges: _Edges) -> _Edges:
    order = np.argsort(edges.row, kind="stable")
    return _Edges(edges.row[order], edges.earlier[order], edges.lag[order])


def _block(schedule: Schedule, arrived: int, in_order: int) -> _Edges:
    """Edges of one operation: start marks 0…n-1, then the rows, then end marks."""
    ranks, rows = schedule.ranks, len(schedule)
    owner = np.repeat(np.arange(rows), np.diff(schedule.dep_ptr)).astype(np.int64)
    inner = _Edges(owner, schedule.dep_row.astype(np.int64), schedule.dep_lag.astype(np.int64))
    row, rank, receives = _touches(schedule)
    first = ~_follows(schedule, inner, row, rank)
    last = ~_is_followed(schedule, inner, row, rank, receives)
    gates = _Edges(row[first] + ranks, rank[first], np.full(int(first.sum()), in_order))
    closing = np.where(receives[last], arrived, in_order)
    ends = _Edges(rank[last] + ranks + rows, row[last] + ranks, closing)
    idle = np.arange(ranks)  # a rank that takes part in nothing still begins and ends
    bridge = _Edges(idle + ranks + rows, idle, np.full(ranks, in_order))
    return _merge(gates, _Edges(inner.row + ranks, inner.earlier + ranks, inner.lag), ends, bridge)


def _touches(
    schedule: Schedule,
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
    """Every (row, rank) pair that takes part, and whether the rank receives."""
    kinds = schedule.kind
    grouped = np.isin(kinds, (MULTICAST, SWITCH_REDUCE))
    plain = np.flatnonzero(~grouped)
    src, dst = schedule.stand_in(schedule.src[plain]), schedule.stand_in(schedule.dst[plain])
    apart = schedule.src[plain] != schedule.dst[plain]
    rows, ranks = [plain, plain[apart]], [src, dst[apart]]
    receives = [np.zeros(len(plain), bool), np.ones(int(apart.sum()), bool)]
    row, rank, receiving = _touched_by_groups(schedule, np.flatnonzero(grouped))
    return (
        np.concatenate([*rows, row]).astype(np.int64),
        np.concatenate([*ranks, rank]).astype(np.int64),
        np.concatenate([*receives, receiving]),
    )


def _touched_by_groups(
    schedule: Schedule, rows: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
    """The same of multicasts and in-switch reductions: the group, and the one outside."""
    down = schedule.kind[rows] == MULTICAST
    root = np.where(down, schedule.src[rows], schedule.dst[rows])
    place, member = spelled_out(
        schedule.groups, np.where(down, schedule.dst[rows], schedule.src[rows])
    )
    everyone = np.concatenate([place, np.arange(len(rows))])
    rank = schedule.stand_in(np.concatenate([member, root]).astype(np.int32))
    receives = np.concatenate([down[place] | (member == root[place]), ~down])
    key, first = np.unique(everyone.astype(np.int64) * schedule.ranks + rank, return_inverse=True)
    receiving = np.zeros(len(key), bool)
    np.logical_or.at(receiving, first, receives)
    found: NDArray[np.int64] = key % schedule.ranks
    return rows[key // schedule.ranks], found, receiving


def _follows(
    schedule: Schedule, edges: _Edges, row: NDArray[np.int64], rank: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Which (row, rank) pairs depend on an earlier row of the same rank."""
    return _known(schedule, edges.row, edges.earlier, np.ones(len(edges.row), bool), row, rank)


def _is_followed(
    schedule: Schedule,
    edges: _Edges,
    row: NDArray[np.int64],
    rank: NDArray[np.int64],
    receives: NDArray[np.bool_],
) -> NDArray[np.bool_]:
    """Which (row, rank) pairs some later row of the same rank waits for: where the rank receives,
    for the arrival.
    """
    arrival = np.array([lag.arrival for lag in schedule.lags])[edges.lag]
    anyhow = _known(schedule, edges.earlier, edges.row, np.ones(len(arrival), bool), row, rank)
    arrived = _known(schedule, edges.earlier, edges.row, arrival, row, rank)
    return np.where(receives, arrived, anyhow)


def _known(
    schedule: Schedule,
    here: NDArray[np.int64],
    there: NDArray[np.int64],
    counts: NDArray[np.bool_],
    row: NDArray[np.int64],
    rank: NDArray[np.int64],
) -> NDArray[np.bool_]:
    """Which (row, rank) pairs have an edge from `here` = row to a plain row `there` of the rank."""
    src, dst = schedule.src, schedule.dst
    plain = ~np.isin(schedule.kind, (MULTICAST, SWITCH_REDUCE))
    use = counts & plain[there]
    here, there = here[use], there[use]
    known = np.zeros(len(row), bool)
    for end in (src, dst):
        met = np.zeros(len(schedule), bool)
        met[here[(end[here] == src[there]) | (end[here] == dst[there])]] = True
        known |= met[row] & (end[row] == rank)
    grouped, use = ~plain[row], ~plain[here]
    keys = [here[use] * schedule.ranks + end[there[use]] for end in (src, dst)]
    known[grouped] = np.isin(row[grouped] * schedule.ranks + rank[grouped], np.concatenate(keys))
    return known


def _releases(
    schedule: Schedule, times: int, size: int, launch: Launch
) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """Launches of the host, one after the other, and the schedule's own releases (first time)."""
    ranks = np.arange(schedule.ranks)
    turn = ranks % launch.gpus_per_process + 1
    operation = np.arange(times)[:, None]
    when = (operation * launch.gpus_per_process + turn) * launch.host
    rows = operation * size + ranks
    own = schedule.release_row.astype(np.int64) + schedule.ranks
    row = np.concatenate([rows.ravel(), own])
    time = np.concatenate([when.ravel(), schedule.release_time])
    order = np.argsort(row, kind="stable")
    return row[order].astype(np.int32), time[order]


def _numbered(known: tuple[Lag, ...], wanted: tuple[Lag, ...]) -> tuple[tuple[Lag, ...], list[int]]:
    lags = list(dict.fromkeys([*known, *wanted]))
    return tuple(lags), [lags.index(lag) for lag in wanted]


def _framed(
    column: NDArray[np.int32], ranks: int, before: object, after: object
) -> NDArray[np.int32]:
    ends = (np.broadcast_to(np.asarray(x, np.int32), ranks) for x in (before, after))
    first, last = ends
    return np.concatenate([first, column, last])


def _with_nothing(pieces: Pieces) -> Pieces:
    columns = (getattr(pieces, name) for name in Pieces.__slots__)
    return Pieces(*(np.append(column, np.zeros(1, column.dtype)) for column in columns))


def _merge(*parts: _Edges) -> _Edges:
    return _Edges(
        np.concatenate([part.row for part in parts]),
        np.concatenate([part.earlier for part in parts]),
        np.concatenate([part.lag for part in parts]),
    )
