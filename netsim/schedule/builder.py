"""The Builder: writes a Schedule, many rows at a time.

It stores each distinct style, lag and group once, and refuses a dependency on a row that does not
come earlier. It knows nothing of collectives.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from netsim.schedule import schedule
from netsim.schedule.partition import Fold

After = tuple[ArrayLike, schedule.Lag]
Joins = tuple[ArrayLike, ArrayLike, schedule.Lag | NDArray[np.int16]]
Rows = NDArray[np.int32]

MAX_ROWS = 2**31 - 1  # row numbers are int32
COMPUTE_SHARE = 1e-15  # compute is counted in seconds a second, transfers in bytes a second


class Builder:
    """Collects rows for `ranks` ranks and finishes them as a Schedule.

    `element_bytes` is the size of an element, `collectives` the names of the operations that the
    schedule contains. A row states its ranks (`src`, `dst`), its Style (kind, operation, buffers,
    channel), its elements (a piece), and the earlier rows that it waits for. Arguments may be
    arrays: there are as many new rows as the longest has entries, and the others are repeated.

    Two ranks exchange halves of four elements, and are done when these have arrived:

    >>> from netsim.schedule.schedule import ARRIVED, IN, Style
    >>> builder = Builder(2, element_bytes=4)
    >>> halves = builder.pieces(count=[2, 2], src_offset=[0, 2])
    >>> sent = builder.rows(Style(src_buffer=IN), src=[0, 1], dst=[1, 0], piece=halves)
    >>> marks = builder.marks([1, 0], after=[(sent, ARRIVED)])
    >>> schedule = builder.finish()
    >>> len(schedule), schedule.amount.tolist()
    (4, [8.0, 8.0, 0.0, 0.0])

    docs/extending.md goes through an entire algorithm.
    """

    def __init__(
        self, ranks: int, element_bytes: float = 1.0, collectives: Sequence[str] = ("",)
    ) -> None:
        if ranks < 1:
            raise ValueError(f"ranks: expected at least 1, got {ranks}")
        self.ranks = ranks
        self.element_bytes = element_bytes
        self.collectives = tuple(collectives)
        self.fold: Fold | None = None
        self._styles: dict[schedule.Style, int] = {}
        self._grouped = False
        self._lags: dict[schedule.Lag, int] = {}
        self._groups: dict[tuple[int, ...], int] = {}
        self._pieces: list[tuple[NDArray[np.int64], ...]] = []
        self._amounts: list[NDArray[np.float64]] = []
        self._piece_count = 0
        self._no_piece: int | None = None
        self._columns: list[tuple[NDArray[np.int32], ...]] = []
        self._deps: list[tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int16]]] = []
        self._releases: list[tuple[NDArray[np.int32], NDArray[np.float64]]] = []
        self._rows = 0
        self._edges = 0

    def __len__(self) -> int:
        return self._rows

    def style(self, style: schedule.Style) -> int:
        """The number of a style; a style that is equal to an earlier one gets the same number."""
        if not 0 <= style.collective < len(self.collectives):
            raise ValueError(f"collective: expected 0..{len(self.collectives) - 1}, got {style}")
        self._grouped |= style.kind in (schedule.MULTICAST, schedule.SWITCH_REDUCE)
        return self._styles.setdefault(style, len(self._styles))

    @property
    def styles(self) -> tuple[schedule.Style, ...]:
        """All styles so far, by number."""
        return tuple(self._styles)

    def lag(self, lag: schedule.Lag) -> int:
        """The number of a lag; a lag that is equal to an earlier one gets the same number."""
        return self._lags.setdefault(lag, len(self._lags))

    def group(self, ranks: Sequence[int]) -> int:
        """The number of a group of ranks, to be used as `dst` of a multicast or `src` of an
        in-switch reduction.
        """
        members = tuple(int(rank) for rank in ranks)
        if not members or len(set(members)) < len(members):
            raise ValueError(f"group: expected different ranks, got {members}")
        if min(members) < 0 or max(members) >= self.ranks:
            raise ValueError(f"group: expected ranks in 0..{self.ranks - 1}, got {members}")
        return self._groups.setdefault(members, len(self._groups))

    def pieces(
        self,
        count: ArrayLike,
        src_offset: ArrayLike = 0,
        dst_offset: ArrayLike | None = None,
        own_offset: ArrayLike | None = None,
    ) -> Rows:
        """Add pieces of data; return their numbers. Offsets and counts are in elements.

        - `count`: elements of each piece.
        - `src_offset`: where it begins in the source buffer.
        - `dst_offset`: where it begins in the destination buffer (default: `src_offset`).
        - `own_offset`: for a fused receive-reduce (REDUCE_INPUT), where the elements of the
          receiver's own input begin that are added (default: `dst_offset`).
        """
        dst = src_offset if dst_offset is None else dst_offset
        input_offset = dst if own_offset is None else own_offset
        arguments = (src_offset, dst, input_offset, count)
        columns = [np.atleast_1d(np.asarray(values, np.int64)) for values in arguments]
        has_one_shape = all(column.shape == columns[0].shape for column in columns)
        table = tuple(columns) if has_one_shape else tuple(np.broadcast_arrays(*columns))
        if any((column < 0).any() for column in table):
            raise ValueError("pieces: offsets and counts must not be negative")
        amounts = np.broadcast_to(columns[3] * float(self.element_bytes), table[3].shape)
        return self._add_pieces(table, amounts)

    def work(self, seconds: ArrayLike) -> Rows:
        """Add pieces of work for compute rows, in seconds; return their numbers."""
        amounts = np.atleast_1d(np.asarray(seconds, np.float64))
        if not ((amounts >= 0) & np.isfinite(amounts)).all():
            raise ValueError("work: expected finite seconds from 0 up")
        zero = np.broadcast_to(np.int64(0), amounts.shape)
        return self._add_pieces((zero, zero, zero, zero), amounts)

    def _add_pieces(
        self, table: tuple[NDArray[np.int64], ...], amounts: NDArray[np.float64]
    ) -> Rows:
        first = self._piece_count
        self._pieces.append(table)
        self._amounts.append(amounts)
        self._piece_count += len(amounts)
        return np.arange(first, self._piece_count, dtype=np.int32)

    def rows(
        self,
        style: schedule.Style | ArrayLike,
        src: ArrayLike,
        dst: ArrayLike,
        piece: ArrayLike,
        *,
        step: ArrayLike = 0,
        after: Sequence[After] = (),
        joins: Joins | None = None,
    ) -> Rows:
        """Append rows (arrays broadcast against each other); return their numbers.

        - `style`: a Style or numbers from `style()`.
        - `src`, `dst`: source and destination ranks, or numbers from `group()`.
        - `piece`: numbers from `pieces()` or `work()`.
        - `step`: a label for messages and traces.
        - `after`: (rows, lag) pairs. `rows` has for every new row one earlier row that it waits for
          (-1: none). The lag is ARRIVED if the new row reads what the earlier one has sent,
          IN_ORDER if only the sender must be done.
        - `joins`: in place of `after`, any number of earlier rows in CSR form: (pointers, rows, lag
          or numbers of lags). New row i waits for rows[pointers[i]:pointers[i + 1]].
        """
        number = self.style(style) if isinstance(style, schedule.Style) else style
        columns = [np.asarray(values, np.int32) for values in (number, src, dst, piece, step)]
        shape = np.broadcast_shapes((1,), *(x.shape for x in columns))
        block = tuple(x if x.shape == shape else np.broadcast_to(x, shape) for x in columns)
        first = self._rows
        size = shape[0]
        if first + size > MAX_ROWS:
            raise ValueError(f"a schedule has at most {MAX_ROWS} rows, got {first + size}")
        self._check(block)
        deps = self._after(after, size) if joins is None else self._joins(joins, size)
        self._check_order(deps, first)
        self._columns.append(block)
        self._deps.append(deps)
        self._rows, self._edges = first + size, self._edges + len(deps[1])
        return np.arange(first, first + size, dtype=np.int32)

    def marks(
        self,
        rank: ArrayLike,
        *,
        step: ArrayLike = 0,
        after: Sequence[After] = (),
        joins: Joins | None = None,
        style: schedule.Style = schedule.Style(kind=schedule.MARK),  # noqa: B008  (a frozen value)
    ) -> Rows:
        """Append marks (rows without work, such as starts, arrivals and joins) of ranks; return
        their numbers.

        `step`, `after` and `joins` are those of `rows`.
        """
        if self._no_piece is None:
            self._no_piece = int(self.pieces(0)[0])
        return self.rows(style, rank, rank, self._no_piece, step=step, after=after, joins=joins)

    def release(self, rows: ArrayLike, seconds: ArrayLike) -> None:
        """Let each of `rows` start no earlier than the time in `seconds` from the start of the
        simulation.
        """
        which, when = np.broadcast_arrays(
            np.atleast_1d(np.asarray(rows, np.int32)), np.asarray(seconds, np.float64)
        )
        if not ((when >= 0) & np.isfinite(when)).all():
            raise ValueError("release: expected finite seconds from 0 up")
        if which.size and not 0 <= which.min() <= which.max() < self._rows:
            raise ValueError("release: unknown row")
        self._releases.append((which.copy(), when.astype(np.float64)))

    def finish(self) -> schedule.Schedule:
        """The Schedule of all rows that were appended. The Builder cannot be used afterwards."""
        columns = [_join([block[k] for block in self._columns], np.int32) for k in range(5)]
        self._columns.clear()
        ptr = np.broadcast_to(np.int32(0), self._rows + 1)
        if self._edges:
            counts = _join([deps[0] for deps in self._deps], np.int32)
            ptr = np.empty(self._rows + 1, np.int32)
            ptr[0] = 0
            np.cumsum(counts, out=ptr[1:])
            del counts
        src_offset, dst_offset, own_offset, count = (
            _join([block[k] for block in self._pieces], np.int64) for k in range(4)
        )
        amount = _join(self._amounts, np.float64)
        row, time = self._finished_releases()
        return schedule.Schedule(
            ranks=self.ranks,
            styles=tuple(self._styles),
            pieces=schedule.Pieces(src_offset, dst_offset, own_offset, count, amount),
            lags=tuple(self._lags) or (schedule.IN_ORDER,),
            groups=tuple(self._groups),
            style=columns[0],
            src=columns[1],
            dst=columns[2],
            piece=columns[3],
            step=columns[4],
            dep_ptr=ptr,
            dep_row=_join([deps[1] for deps in self._deps], np.int32),
            dep_lag=np.ascontiguousarray(_join([deps[2] for deps in self._deps], np.int16)),
            release_row=row,
            release_time=time,
            collectives=self.collectives,
            fold=self.fold,
        )

    def _finished_releases(self) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        """The rows that have a release time, and this time in seconds.

        If several times were stated for a row, it is the latest.
        """
        rows = _join([r for r, _ in self._releases], np.int32)
        times = _join([t for _, t in self._releases], np.float64)
        which, place = np.unique(rows, return_inverse=True)
        latest = np.zeros(len(which))
        np.maximum.at(latest, place, times)
        return which, latest

    def _after(
        self, after: Sequence[After], size: int
    ) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int16]]:
        """The dependencies of `size` new rows that `after` states (see `rows`).

        They are three arrays: by row, the number of dependencies; by dependency, the earlier row
        and the number of the lag.
        """
        if not after:
            return np.zeros(size, np.int32), np.zeros(0, np.int32), np.zeros(0, np.int16)
        rows = np.empty((size, len(after)), np.int32)
        lags = np.empty((size, len(after)), np.int16)
        for k, (earlier, lag) in enumerate(after):
            rows[:, k] = earlier
            lags[:, k] = self.lag(lag)
        if rows.min(initial=0) >= 0:
            counts = np.broadcast_to(np.int32(len(after)), size)  # takes no memory
            if len(after) == 1 and size:
                return counts, rows.reshape(-1), np.broadcast_to(lags[0], size)
            return counts, rows.reshape(-1), lags.reshape(-1)
        is_stated = rows >= 0  # -1: this row waits for nothing here
        return is_stated.sum(axis=1, dtype=np.int32), rows[is_stated], lags[is_stated]

    def _joins(
        self, joins: Joins, size: int
    ) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int16]]:
        """The dependencies of `size` new rows that `joins` states (see `rows`).

        They are three arrays: by row, the number of dependencies; by dependency, the earlier row
        and the number of the lag.
        """
        ptr = np.asarray(joins[0], np.int64)
        rows = np.asarray(joins[1], np.int32)
        if len(ptr) != size + 1 or ptr[0] != 0 or ptr[-1] != len(rows):
            raise ValueError(f"joins: pointers do not fit {size} rows and {len(rows)} dependencies")
        stated_lags = joins[2]
        if not isinstance(stated_lags, schedule.Lag):
            return np.diff(ptr).astype(np.int32), rows, stated_lags
        lags = np.broadcast_to(np.int16(self.lag(stated_lags)), len(rows))  # takes no memory
        return np.diff(ptr).astype(np.int32), rows, lags

    def _check(self, block: tuple[NDArray[np.int32], ...]) -> None:
        """Raise a ValueError if styles, ranks or pieces of new rows do not exist."""
        style, src, dst, piece, _ = block
        limits = (len(self._styles), self.ranks, self.ranks, self._piece_count)
        if self._grouped:
            widest = max(self.ranks, len(self._groups))
            limits = (limits[0], widest, widest, limits[3])
        names = ("style", "src", "dst", "piece")
        for name, column, limit in zip(names, (style, src, dst, piece), limits, strict=True):
            if column.size and not 0 <= column.min() <= column.max() < limit:
                raise ValueError(f"{name}: expected numbers in 0..{limit - 1}")

    @staticmethod
    def _check_order(
        deps: tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int16]], first: int
    ) -> None:
        """Raise a ValueError if a new row depends on a row that does not come earlier.

        `deps` are the dependencies as `_after` returns them; the new rows are numbered from `first`
        on.
        """
        counts, rows, _ = deps
        if not rows.size:
            return
        if rows.min() < 0:
            raise ValueError("a dependency on a row that does not exist")
        if rows.max() < first:
            return
        wrong = _not_earlier(counts, rows, first)
        if wrong.size:
            owner = first + int(np.searchsorted(np.cumsum(counts), wrong[0], side="right"))
            early = int(rows[wrong[0]])
            raise ValueError(f"row {owner} depends on row {early}, which does not come earlier")


def _not_earlier(counts: Rows, rows: Rows, first: int) -> NDArray[np.int64]:
    """The positions in `rows` of earlier rows that do not come before the row that waits for them.

    - `counts`: by new row, the number of rows that it waits for.
    - `rows`: these rows, one new row after the other.
    - `first`: the number of the first new row.
    """
    mean_count = len(rows) // len(counts)
    owner = np.arange(first, first + len(counts), dtype=np.int32)
    if (counts == mean_count).all():
        return np.flatnonzero(rows.reshape(-1, mean_count) >= owner[:, None])
    return np.flatnonzero(rows >= np.repeat(owner, counts))


def compute_style(**attributes: Any) -> schedule.Style:
    """The style of a compute row, with further attributes of a Style.

    The row's amount is seconds of work on the SMs of one GPU, of which at most one second is done
    in a second. Its share is so small that communication comes first: channels keep the SMs that
    they hold, and computing gets the rest.

    >>> compute_style(stream="compute").cap
    1.0
    """
    return schedule.Style(kind=schedule.COMPUTE, cap=1.0, share=COMPUTE_SHARE, **attributes)


def _join(blocks: list[NDArray[Any]], dtype: type[np.generic]) -> NDArray[Any]:
    """One array of all blocks of a column; a single block is returned without a copy."""
    if len(blocks) == 1:
        return blocks[0]
    return np.concatenate([np.zeros(0, dtype), *blocks])
