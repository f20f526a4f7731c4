"""The Weave: rows of one turn of a channel's loop, repeated for all its turns at once.

Rows of one turn are the same in every turn but for the data they move; what they wait for lies in
the same turn or in an earlier one. It knows no algorithm.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from netsim.nccl.messages import NO_HANDLING
from netsim.nccl.schedules.hops import RowKind
from netsim.schedule import Builder, Lag
from netsim.values import dataclass

Ints = NDArray[np.int64]
Rows = NDArray[np.int32]
NOWHERE = -1  # no slot: the data lies in the user's buffer


@dataclass(frozen=True, slots=True)
class Segments:
    """The data of every turn (first axis) by segment (second axis), in elements.

    `offset` in the user's buffers, `count`, and `within`: where it lies in a FIFO slot. A FIFO has
    `slots`, filled `turns` times a turn of the loop. A chunk has `subs` segments; those from
    `whole` on are chunks in one piece.
    """

    offset: Ints
    count: Ints
    within: Ints
    slots: int = 1
    turns: int = 1
    subs: int = 1
    whole: int = 0

    @property
    def stride(self) -> int:
        """Elements of one slot."""
        return int((self.within + self.count).max(initial=1))


@dataclass(frozen=True, slots=True)
class Place:
    """Where data lies: `base` elements from its segment's offset, or in slots of a FIFO `region`.

    `turn` is the number of the slot's filling within a turn of the loop; with `inside` 0 the data
    lies at the slot's beginning wherever its segment does.
    """

    base: ArrayLike = 0
    region: ArrayLike = NOWHERE
    turn: ArrayLike = 0
    inside: ArrayLike = 1

    @property
    def columns(self) -> tuple[Any, ...]:
        """All of it, as rows hold it."""
        return self.base, self.region, self.turn, self.inside


USER = Place()


class Weave:
    """Rows and their dependencies in one turn of a loop, while it is written."""

    def __init__(self) -> None:
        self.kinds: dict[RowKind, int] = {}
        self._blocks: list[NDArray[np.int64]] = []
        self._single: list[tuple[int, ...]] = []  # rows not yet made a block of
        self._edges: dict[Lag, list[tuple[Ints, Ints, Ints]]] = {}
        self._pairs: dict[Lag, list[tuple[int, int, int]]] = {}
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def kind(self, kind: RowKind) -> int:
        """The number of a kind of row."""
        return self.kinds.setdefault(kind, len(self.kinds))

    def rows(
        self,
        kind: ArrayLike,
        src: ArrayLike,
        dst: ArrayLike,
        segment: ArrayLike,
        *,
        step: ArrayLike = 0,
        source: Place = USER,
        target: Place = USER,
        own: ArrayLike = 0,
    ) -> Ints:
        """Append rows (arrays broadcast against each other) and return their numbers."""
        self._flush()
        places = (*source.columns, *target.columns)
        given = [np.asarray(x, np.int64) for x in (kind, src, dst, step, segment, *places, own)]
        shape = np.broadcast_shapes((1,), *(x.shape for x in given))
        self._blocks.append(np.array([np.broadcast_to(x, shape).ravel() for x in given]))
        first = self._size
        self._size += int(np.prod(shape))
        return np.arange(first, self._size)

    def row(
        self,
        kind: RowKind,
        src: int,
        dst: int,
        segment: int,
        *,
        step: int = 0,
        source: Place = USER,
        target: Place = USER,
    ) -> int:
        """Append one row and return its number; its places are numbers."""
        columns = (self.kind(kind), src, dst, step, segment, *source.columns, *target.columns, 0)
        self._single.append(columns)
        self._size += 1
        return self._size - 1

    def after(self, row: ArrayLike, earlier: ArrayLike, lag: Lag, back: ArrayLike = 0) -> None:
        """Let rows wait for other rows, of the turn `back` turns ago."""
        if isinstance(row, int) and isinstance(earlier, int) and isinstance(back, int):
            self._pairs.setdefault(lag, []).append((row, earlier, back))
            return
        given = [np.asarray(x, np.int64) for x in (row, earlier, back)]
        one, two, three = (x.ravel() for x in np.broadcast_arrays(*given))
        self._edges.setdefault(lag, []).append((one, two, three))

    def _flush(self) -> None:
        if self._single:
            self._blocks.append(np.array(self._single, np.int64).T)
            self._single = []

    def _flush_edges(self) -> None:
        for lag, pairs in self._pairs.items():
            one, two, three = np.array(pairs, np.int64).T
            self._edges.setdefault(lag, []).append((one, two, three))
        self._pairs = {}

    def unroll(
        self,
        builder: Builder,
        segments: Segments,
        *,
        base: int = 0,
        places: bool = True,
        gates: Sequence[tuple[Rows, Lag]] = (),
    ) -> Rows:
        """Append all turns; returns the numbers of the rows by turn (first axis).

        Slots begin at element `base` of every rank's scratch. The rows of the first turn wait for
        the rows in `gates` too (one for each, -1: none).
        """
        self._flush()
        self._flush_edges()
        table = list(np.concatenate(self._blocks, axis=1))
        kind, src, dst, step, segment = table[:5]
        turns, size = len(segments.count), self._size
        joins = self._unrolled(builder, turns, gates)
        made = builder.rows(
            self._styles(builder, kind, segment, segments).ravel(),
            np.tile(src.astype(np.int32), turns),
            np.tile(dst.astype(np.int32), turns),
            _pieces(builder, segments, table[4:], base, places=places).ravel(),
            step=np.tile(step.astype(np.int32), turns),
            joins=joins,
        )
        return made.reshape(turns, size)

    def _styles(self, builder: Builder, kind: Ints, segment: Ints, segments: Segments) -> Rows:
        """Style numbers by turn: of each kind and size there is one.

        Messages of later turns follow others of their connection.
        """
        kinds = list(self.kinds)
        later = np.arange(len(kinds))
        for number, first in enumerate(kinds[:]):
            if first.path.handling != NO_HANDLING and not first.follows:
                later[number] = len(kinds)
                kinds.append(replace(first, follows=True))
        sizes, which = np.unique(segments.count, return_inverse=True)
        which = which.reshape(segments.count.shape)
        patterns, turn = _patterns(np.column_stack([np.arange(len(which)) == 0, which]))
        found: dict[int, int] = {}
        columns = []
        for first_turn, *size_of in patterns:
            code = (kind if first_turn else later[kind]) * len(sizes) + np.array(size_of)[segment]
            codes, place = np.unique(code, return_inverse=True)
            for c in codes.tolist():
                if c not in found:
                    style = kinds[c // len(sizes)].of(sizes[c % len(sizes)] * builder.element_bytes)
                    found[c] = builder.style(style)
            columns.append(np.array([found[c] for c in codes.tolist()], np.int32)[place])
        return np.stack(columns)[turn]

    def _unrolled(
        self, builder: Builder, turns: int, gates: Sequence[tuple[Rows, Lag]]
    ) -> tuple[Ints, Rows, NDArray[np.int16]]:
        """What the rows of all turns wait for, as pointers, rows and lags."""
        row, earlier, back, lag = self._sorted_edges(builder, turns)
        size, first = self._size, len(builder)
        target = (earlier - back * size + first).astype(np.int32)
        counts, rows, lags = list[Ints](), list[Rows](), list[NDArray[np.int16]]()
        settled = min(turns, int(back.max(initial=0)))
        for turn in range(settled):  # the first ones have fewer before them
            mine = back <= turn
            counts.append(np.bincount(row[mine], minlength=size))
            rows.append(target[mine] + np.int32(turn * size))
            lags.append(lag[mine])
        rest = np.arange(settled, turns, dtype=np.int32)[:, None] * np.int32(size)
        counts.append(np.tile(np.bincount(row, minlength=size), len(rest)))
        rows.append((target[None] + rest).ravel())
        lags.append(np.tile(lag, len(rest)))
        ptr = np.concatenate([[0], np.cumsum(np.concatenate(counts))])
        joins = ptr, np.concatenate(rows), np.concatenate(lags)
        return _gated(builder, joins, gates) if gates else joins

    def _sorted_edges(self, builder: Builder, turns: int) -> tuple[Ints, Ints, Ints, Any]:
        """Row, earlier row, turns between and number of the lag of all edges, by row."""
        parts = [np.zeros((4, 0), np.int64)]
        for lag, edges in self._edges.items():
            row, earlier, back = (np.concatenate(column) for column in zip(*edges, strict=True))
            parts.append(np.stack([row, earlier, back, np.full(len(row), builder.lag(lag))]))
        every = np.concatenate(parts, axis=1)
        every = every[:, every[2] < turns]
        row, earlier, back, number = every[:, np.argsort(every[0], kind="stable")]
        return row, earlier, back, number.astype(np.int16)


def _patterns(table: Ints) -> tuple[list[list[int]], Ints]:
    """The different rows of a table, in order, and which of them each row is: most are like the one
    before.
    """
    new = np.append(True, (table[1:] != table[:-1]).any(axis=1))
    rows = table[new].tolist()
    patterns = sorted(map(list, set(map(tuple, rows))))
    number = {tuple(row): place for place, row in enumerate(patterns)}
    which = np.array([number[tuple(row)] for row in rows])
    return patterns, which[np.cumsum(new) - 1]


def _gated(
    builder: Builder,
    joins: tuple[Ints, Rows, NDArray[np.int16]],
    gates: Sequence[tuple[Rows, Lag]],
) -> tuple[Ints, Rows, NDArray[np.int16]]:
    """The same, and the rows of the first turn wait for those in `gates` besides."""
    ptr, rows, lags = joins
    owner = np.repeat(np.arange(len(ptr) - 1), np.diff(ptr))
    for earlier, lag in gates:
        there = np.flatnonzero(earlier >= 0)
        owner = np.append(owner, there)
        rows = np.append(rows, earlier[there])
        lags = np.append(lags, np.full(len(there), builder.lag(lag), np.int16))
    order = np.argsort(owner, kind="stable")
    counts = np.bincount(owner, minlength=len(ptr) - 1)
    return np.append(0, np.cumsum(counts)), rows[order], lags[order]


def _pieces(
    builder: Builder, segments: Segments, table: Sequence[Ints], base: int, *, places: bool
) -> Rows:
    """The pieces of all rows; without places, one for each size."""
    segment = table[0]
    if not places:
        sizes, which = np.unique(segments.count, return_inverse=True)
        return builder.pieces(sizes)[which.reshape(segments.count.shape)][:, segment]
    count = segments.count[:, segment]
    source, target = (_position(segments, segment, table[k : k + 4], base) for k in (1, 5))
    own = segments.offset[:, segment] + table[9]
    made = builder.pieces(count.ravel(), source.ravel(), target.ravel(), own.ravel())
    return made.reshape(count.shape)


def _position(segments: Segments, segment: Ints, place: Sequence[Ints], base: int) -> Ints:
    offset, region, turn, inside = place
    filling = np.arange(len(segments.count))[:, None] * segments.turns + turn
    slot = region * segments.slots + filling % segments.slots
    in_slot = base + slot * segments.stride + segments.within[:, segment] * inside
    return np.where(region == NOWHERE, segments.offset[:, segment] + offset, in_slot)
