"""A schedule with start and end marks, and operations back to back as nccl-tests issues them.

The rows of a rank begin after its start mark. Its end mark comes when everything that it sends has
left and everything that it receives has arrived. A row that waits for another row of its rank does
not wait for the start mark as well.
"""

from dataclasses import replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from netsim.base.values import dataclass
from netsim.schedule.schedule import (
    ARRIVED,
    IN_ORDER,
    MARK,
    MULTICAST,
    SWITCH_REDUCE,
    Lag,
    Pieces,
    Schedule,
    Style,
    spelled_out,
)

COLUMNS = ("style", "src", "dst", "piece", "step")  # the columns of a row besides dependencies
_CHUNK = 1 << 20  # dependencies that are examined at a time, to bound temporary memory

Flags = NDArray[np.bool_]
Rows = NDArray[np.int32]


def framed(schedule: Schedule, kernel: float) -> Schedule:
    """The schedule between marks of each of its n ranks: n start marks, all rows, n end marks.

    A start mark takes `kernel` seconds.
    """
    ranks = schedule.ranks
    rows = len(schedule)
    lags, arrived, in_order = _lags(schedule.lags)
    gates, closing = _rows_at_marks(schedule)
    style = (*schedule.styles, Style(MARK, stream="launch", latency=kernel), Style(MARK))
    everyone = np.arange(ranks, dtype=np.int32)
    nothing = len(schedule.pieces.count)
    table = [getattr(schedule.pieces, name) for name in Pieces.__slots__]
    waits = np.diff(schedule.dep_ptr)
    counts = [np.zeros(ranks, np.int64), waits + np.bincount(gates.row, minlength=rows)]
    counts.append(1 + np.bincount(closing.rank, minlength=ranks))  # idle ranks complete immediately
    ptr = np.zeros(rows + 2 * ranks + 1, np.int32)
    np.cumsum(np.concatenate(counts), out=ptr[1:])
    inner = np.ones(int(ptr[ranks + rows]), bool)
    first = ptr[ranks + gates.row] + waits[gates.row]
    inner[first + np.arange(len(gates.row)) - np.searchsorted(gates.row, gates.row)] = False
    dep_row = np.empty(len(inner), np.int32)
    dep_lag = np.empty(len(inner), np.int16)
    dep_row[inner] = schedule.dep_row + ranks
    dep_lag[inner] = schedule.dep_lag
    dep_row[~inner] = gates.rank
    dep_lag[~inner] = in_order
    at = np.searchsorted(closing.rank, everyone)  # the place of the rank's own start mark
    last = np.insert(closing.row + ranks, at, everyone)
    last_lag = np.insert(np.where(closing.receives, arrived, in_order), at, in_order)
    usual = ((value, value) for value in (everyone, everyone, nothing, 0))
    marks = zip(COLUMNS, ((len(style) - 2, len(style) - 1), *usual), strict=True)
    columns: dict[str, Any] = {
        name: _framed_column(getattr(schedule, name), *ends, ranks) for name, ends in marks
    }
    return replace(
        schedule,
        styles=style,
        lags=lags,
        **columns,
        dep_ptr=ptr,
        pieces=Pieces(*(np.append(column, np.zeros(1, column.dtype)) for column in table)),
        dep_row=np.concatenate([dep_row, last.astype(np.int32)]),
        dep_lag=np.concatenate([dep_lag, last_lag.astype(np.int16)]),
        release_row=schedule.release_row + np.int32(ranks),
    )


@dataclass(frozen=True, slots=True)
class _RowsOfRanks:
    """Pairs of a row and one of its ranks, as columns; `receives`: whether the rank receives."""

    row: NDArray[np.int64]
    rank: NDArray[np.int64]
    receives: Flags


@dataclass(frozen=True, slots=True)
class _Order:
    """For each row, how it is ordered with the other rows of its source and of its target rank.

    Each field has two arrays by row: for the source rank and for the target rank.

    - `follows`: whether the row waits for an earlier row of that rank.
    - `followed`: whether a later row of that rank waits for it (at a receiving rank: for its
      arrival).
    """

    follows: tuple[Flags, Flags]
    followed: tuple[Flags, Flags]


def _rows_at_marks(schedule: Schedule) -> tuple[_RowsOfRanks, _RowsOfRanks]:
    """The pairs (row, rank) between which and the rank's marks there must be a dependency.

    The first result has the pairs in which the row must wait for the rank's start mark, sorted by
    row. The second has the pairs in which the rank's end mark must wait for the row, sorted by
    rank.
    """
    grouped = np.isin(schedule.kind, (MULTICAST, SWITCH_REDUCE))
    ends = schedule.src.copy(), schedule.dst.copy()
    for end in ends:
        end[~grouped] = schedule.stand_in(end[~grouped])
    order = _order_of_plain_rows(schedule, ends, grouped)
    has_end = ~grouped, ~grouped & (schedule.src != schedule.dst)  # source, then target
    groups = _rows_of_groups(schedule, np.flatnonzero(grouped))
    first, last = (
        [
            _at_end(np.flatnonzero(present & ~ordered), end, receives=end is ends[1])
            for present, ordered, end in zip(has_end, flags, ends, strict=True)
        ]
        for flags in (order.follows, order.followed)
    )
    first.append(
        _selected(groups, ~_has_plain_neighbor(schedule, groups, ends, grouped, ahead=True))
    )
    last.append(
        _selected(groups, ~_has_plain_neighbor(schedule, groups, ends, grouped, ahead=False))
    )
    return _sorted_by(first, "row"), _sorted_by(last, "rank")


def _order_of_plain_rows(schedule: Schedule, ends: tuple[Rows, Rows], grouped: Flags) -> _Order:
    """How plain rows are ordered with other plain rows of the same rank.

    A plain row is no multicast or in-switch reduction, so that both endpoints are ranks.

    - `ends`: source and target of every row.
    - `grouped`: by row, whether it is not plain.
    """
    rows = len(schedule)
    has_groups = bool(grouped.any())
    result = _Order(*((np.zeros(rows, bool), np.zeros(rows, bool)) for _ in range(2)))
    owner = np.repeat(np.arange(rows, dtype=np.int32), np.diff(schedule.dep_ptr))
    arrival = np.array([lag.arrival for lag in schedule.lags], bool)
    for start in range(0, len(owner), _CHUNK):
        part = slice(start, start + _CHUNK)
        here = owner[part]
        there = schedule.dep_row[part]
        lag = schedule.dep_lag[part]
        here_plain = ~grouped[here] if has_groups else True
        there_plain = ~grouped[there] if has_groups else True
        # same[i][j]: whether the later row's rank at end i is the earlier row's rank at end j (0:
        # source, 1: target).
        same = [[later[here] == earlier[there] for earlier in ends] for later in ends]
        for k in (0, 1):
            result.follows[k][here[(same[k][0] | same[k][1]) & there_plain]] = True
            ordered = (same[0][k] | same[1][k]) & here_plain
            result.followed[k][there[ordered & arrival[lag] if k else ordered]] = True
    return result


def _rows_of_groups(schedule: Schedule, rows: NDArray[np.int64]) -> _RowsOfRanks:
    """The multicasts and in-switch reductions `rows`, each paired with all of its ranks.

    These are the members of the group, and the sender or receiver at the other end.
    """
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
    return _RowsOfRanks(rows[key // schedule.ranks], key % schedule.ranks, receiving)


def _has_plain_neighbor(
    schedule: Schedule, touch: _RowsOfRanks, ends: tuple[Rows, Rows], grouped: Flags, *, ahead: bool
) -> Flags:
    """For each pair (row, rank) in `touch`, whether the rank has a plain row next to this row.

    A plain row is no multicast or in-switch reduction. It is next if the row waits for it
    (`ahead`), or if it waits for the row (for its arrival, where the rank receives).

    - `ends`: source and target of every row.
    - `grouped`: by row, whether it is not plain.
    """
    if not len(touch.row):
        return np.zeros(0, bool)
    owner = np.repeat(np.arange(len(schedule)), np.diff(schedule.dep_ptr))
    here, there = (owner, schedule.dep_row) if ahead else (schedule.dep_row, owner)
    use = grouped[here] & ~grouped[there]
    arrival = np.array([lag.arrival for lag in schedule.lags], bool)[schedule.dep_lag[use]]
    here = here[use].astype(np.int64) * schedule.ranks
    there = there[use]
    wanted = touch.row * schedule.ranks + touch.rank  # in order, as `_rows_of_groups` has them
    anyhow, arrived = np.zeros((2, len(wanted)), bool)
    for end in ends:
        key = here + end[there]
        place = np.minimum(np.searchsorted(wanted, key), len(wanted) - 1)
        is_wanted = wanted[place] == key
        anyhow[place[is_wanted]] = True
        arrived[place[is_wanted & arrival]] = True
    return anyhow if ahead else np.where(touch.receives, arrived, anyhow)


def _at_end(rows: NDArray[np.int64], end: Rows, *, receives: bool) -> _RowsOfRanks:
    """Pairs of each of `rows` and its rank in `end`, the column of sources or of targets."""
    return _RowsOfRanks(rows, end[rows].astype(np.int64), np.full(len(rows), receives))


def _selected(touch: _RowsOfRanks, which: Flags) -> _RowsOfRanks:
    """The entries of `touch` for which `which` is true."""
    return _RowsOfRanks(touch.row[which], touch.rank[which], touch.receives[which])


def _sorted_by(parts: list[_RowsOfRanks], by: str) -> _RowsOfRanks:
    """All entries of `parts`, sorted by the column `by` ("row" or "rank")."""
    columns = [
        np.concatenate([getattr(part, name) for part in parts]) for name in _RowsOfRanks.__slots__
    ]
    order = np.argsort(columns[_RowsOfRanks.__slots__.index(by)], kind="stable")
    return _RowsOfRanks(*(column[order] for column in columns))


def _lags(present: tuple[Lag, ...]) -> tuple[tuple[Lag, ...], int, int]:
    """The lags of a schedule with ARRIVED and IN_ORDER added if they are missing.

    The second and the third result are the numbers of ARRIVED and IN_ORDER.
    """
    lags = list(dict.fromkeys([*present, ARRIVED, IN_ORDER]))
    return tuple(lags), lags.index(ARRIVED), lags.index(IN_ORDER)


def _framed_column(column: Rows, before: object, after: object, ranks: int) -> Rows:
    """A column of the framed schedule: values of start marks, of rows, and of end marks.

    - `column`: the values of the rows.
    - `before`, `after`: the value of start marks and of end marks, or one for each.
    - `ranks`: the number of ranks, which is that of start marks and of end marks.
    """
    first, last = (np.broadcast_to(np.asarray(x, np.int32), ranks) for x in (before, after))
    return np.concatenate([first, column, last])


# Operations back to back, as a benchmark issues them: the kernels of a rank run one after the other
# on its stream. A rank begins an operation when it has completed the previous one and the host has
# launched this one. It has completed an operation when everything that it sends has left and
# everything that it receives has arrived.


@dataclass(frozen=True, slots=True)
class Launch:
    """How long the launch of an operation takes.

    - `host`: seconds of the CPU for the launch on one GPU. A process launches on its GPUs one after
      the other.
    - `kernel`: seconds on the GPU before the first byte moves.
    - `gpus_per_process`: the number of GPUs that one process drives.

    >>> Launch(host=5e-6, gpus_per_process=2).times(operations=1, ranks=4).tolist()
    [[5e-06, 1e-05, 5e-06, 1e-05]]
    """

    host: float = 0.0
    kernel: float = 0.0
    gpus_per_process: int = 1

    @property
    def period(self) -> float:
        """The least seconds between two consecutive launches on one GPU.

        In between, the host launches on all other GPUs of the process.
        """
        return self.host * self.gpus_per_process

    @property
    def together(self) -> bool:
        """Whether the host launches an operation on all ranks at the same time."""
        return self.host == 0 or self.gpus_per_process == 1

    def times(self, operations: int, ranks: int) -> NDArray[np.float64]:
        """When the host has launched each operation on each rank: seconds, [operation, rank]."""
        place = np.arange(ranks) % self.gpus_per_process + 1
        times = np.arange(operations)[:, None] * self.gpus_per_process + place
        return times.astype(np.float64) * self.host


AT_ONCE = Launch()

ITERATIONS = 20
"""The operations that nccl-tests times by default (`-n`)."""
OverProcesses = Literal["mean", "first", "min", "max"]


@dataclass(frozen=True, slots=True)
class BackToBack:
    """How operations back to back are timed, as nccl-tests does it.

    Each process issues `iterations` operations, one after the other, and divides the time from the
    first launch to the end of its last operation by that number (`BenchTime` in nccl-tests'
    src/common.cu). A process with several GPUs ends with the last of them. `over_processes` says
    which value of all processes is the time of the collective: the mean (nccl-tests' default, `-a
    1`), that of the first process, the minimum or the maximum.
    """

    iterations: int = ITERATIONS
    over_processes: OverProcesses = "mean"


@dataclass(frozen=True, slots=True)
class RepeatedSchedule:
    """A schedule of several operations; row `ends[i, r]` is the end mark of operation i on
    rank r.
    """

    schedule: Schedule
    ends: NDArray[np.int64]


def repeat(schedule: Schedule, times: int, launch: Launch = AT_ONCE) -> RepeatedSchedule:
    """A schedule of `times` equal operations, one after the other on every rank.

    A rank begins an operation when it has completed the previous one and the host has launched this
    one. Row `ends[i, r]` of the result is the end mark of operation i on rank r.

    >>> from netsim import Collective, build
    >>> one_operation = build(Collective("all_reduce", ranks=2, count=8), "ring")
    >>> repeated = repeat(one_operation, 3)
    >>> repeated.ends.shape, len(repeated.schedule) > 3 * len(one_operation)
    ((3, 2), True)
    """
    return unrolled(framed(schedule, launch.kernel), launch.times(times, schedule.ranks))


def unrolled(frame: Schedule, launched: NDArray[np.float64]) -> RepeatedSchedule:
    """A schedule that repeats `frame`, a schedule between marks, once for each operation.

    `launched` has as [operation, rank] the seconds at which the host launches it.
    """
    times, ranks = launched.shape
    size = len(frame)
    dep_ptr, dep_row, dep_lag = _repeated_dependencies(frame, times)
    release_row, release_time = _releases(frame, launched)
    tiled: dict[str, Any] = {name: np.tile(getattr(frame, name), times) for name in COLUMNS}
    schedule = replace(
        frame,
        **tiled,
        dep_ptr=dep_ptr,
        dep_row=dep_row,
        dep_lag=dep_lag,
        release_row=release_row,
        release_time=release_time,
    )
    first = np.arange(times)[:, None] * size
    return RepeatedSchedule(schedule, first + size - ranks + np.arange(ranks)[None, :])


def _repeated_dependencies(
    frame: Schedule, times: int
) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int16]]:
    """The dependencies of `times` operations back to back: pointers, earlier rows, lag numbers.

    They are in CSR form. The start marks of an operation also wait for the end marks of the
    operation before.
    """
    ranks = frame.ranks
    size = len(frame)
    counts = np.diff(frame.dep_ptr)
    later = counts.copy()
    later[:ranks] += 1
    ptr = np.zeros(times * size + 1, np.int32)
    np.cumsum(np.concatenate([counts, *[later] * (times - 1)]), out=ptr[1:])
    before = np.arange(ranks, dtype=np.int32) - ranks
    row = [frame.dep_row]
    lag = [frame.dep_lag]
    for number in range(1, times):
        row.append(np.concatenate([before, frame.dep_row]) + np.int32(number * size))
        lag += [np.full(ranks, frame.lags.index(IN_ORDER), np.int16), frame.dep_lag]
    return ptr, np.concatenate(row), np.concatenate(lag)


def _releases(
    frame: Schedule, launched: NDArray[np.float64]
) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """The release times of operations back to back: rows, and times in seconds.

    Start marks are released when the host has launched the operation. The schedule's own release
    times apply to the first operation.
    """
    times, ranks = launched.shape
    rows = np.arange(times)[:, None] * len(frame) + np.arange(ranks)
    row = np.concatenate([rows.ravel(), frame.release_row])
    time = np.concatenate([launched.ravel(), frame.release_time])
    order = np.argsort(row, kind="stable")
    return row[order].astype(np.int32), time[order]
