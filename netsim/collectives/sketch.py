"""Sketch: who sends what to whom in an algorithm, without a row for every step.

Lanes that hold a Sketch write nothing down; they tell it their messages and rings. Where these look
the same from two lanes, the lanes do the same at the same times.
"""

from collections.abc import Callable, Sequence
from dataclasses import field, replace

import numpy as np
from numpy.typing import NDArray

from netsim.arrays import different
from netsim.schedule import Hops, Pieces, Skeleton, Style
from netsim.values import dataclass

Ints = NDArray[np.int64]
Rows = NDArray[np.int32]
Some = NDArray[np.int64] | NDArray[np.int32]
Sent = tuple[Rows, Rows, Some | slice]  # styles, pieces, and of which messages they are parts


@dataclass(frozen=True, slots=True)
class _Call:
    """Hops that are made together; `columns` is what tells them apart, besides this call."""

    src: Ints
    dst: Ints
    columns: tuple[Ints, ...]


@dataclass
class Sketch:
    """What lanes (channel · ranks + rank) send, and how many rows each would write."""

    lanes: int = 0
    ranks: int = 0
    rows: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    refused: str = ""  # why it cannot be written down once for what is alike
    step_count: int = 0  # messages that every lane sends for whose arrival only the end waits
    step_bytes: float = 0.0  # of each
    _bare: list[tuple[Ints, Ints, bool, bool]] = field(default_factory=list)
    _messages: list[tuple[Ints, Ints, Sequence[Sent]]] = field(default_factory=list)
    _rings: list[tuple[Ints, Ints, Rows, Rows, int]] = field(default_factory=list)
    _order: list[tuple[str, int]] = field(default_factory=list)
    _marks: list[tuple[Ints, Ints]] = field(default_factory=list)
    _styles: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    _count: Ints = field(default_factory=lambda: np.zeros(0, np.int64))

    def begin(self, ranks: int, channels: int) -> None:
        """Listen to an algorithm from its start."""
        self.ranks, self.lanes = ranks, ranks * channels
        self.rows = np.zeros(self.lanes, np.int64)

    def mark(self, lanes: Some, values: Ints, rows: int = 0) -> None:
        """Something else that lanes do or wait for, with a value that tells them apart."""
        self._order.append(("mark", len(self._marks)))
        self._marks.append((np.asarray(lanes, np.int64), np.asarray(values, np.int64)))
        np.add.at(self.rows, lanes, rows)

    def message(self, sender: Ints, receiver: Ints, parts: Sequence[Sent]) -> None:
        """A message from each of some lanes to each of others."""
        self._order.append(("message", len(self._messages)))
        self._messages.append((sender, receiver, parts))
        for _, _, which in parts:
            np.add.at(self.rows, sender[which], 1)

    def hops(
        self,
        sender: Ints,
        receiver: Ints,
        rows: int = 1,
        *,
        check: bool = False,
        awaited: bool = True,
    ) -> None:
        """Messages that do not differ, of some rows each; `check`: only to check what is found. If
        not `awaited`, only the end waits for their arrival.
        """
        self._order.append(("bare", len(self._bare)))
        self._bare.append((sender, receiver, check, awaited))
        if not check:
            np.add.at(self.rows, sender, rows)

    def rings(self, src: Ints, dst: Ints, styles: Rows, first: Rows, length: int) -> None:
        """Rings of a length in which everyone passes on what it has, in `len(styles)` steps."""
        self._order.append(("ring", len(self._rings)))
        self._rings.append((src, dst, styles, different(first), length))
        np.add.at(self.rows, src, len(styles))

    def end(self, styles: Sequence[Style], pieces: Pieces) -> None:
        """Note the tables that styles and pieces are numbers of."""
        known: dict[Style, int] = {}
        plain = (replace(style, channel=0) for style in styles)
        self._styles = np.array([known.setdefault(style, len(known)) for style in plain], np.int64)
        self._count = pieces.count

    def checks(self, turn: Ints) -> list[Skeleton]:
        """Further hops in which what is alike must be so, too."""
        parts = [
            (src, dst, np.zeros(len(src), np.int64)) for src, dst, check, _ in self._bare if check
        ]
        return [self._skeleton(np.zeros(self.lanes, np.int64), [part], turn) for part in parts]

    def steps(self) -> list[tuple[Ints, Ints]]:
        """Senders and receivers of messages that only the end waits for, also of those to check."""
        return [(src, dst) for src, dst, _, awaited in self._bare if not awaited]

    def skeleton(self, turn: Ints, *, steps: bool = True) -> Skeleton:
        """What lanes and hops are, with or without `steps`; `turn` is what else tells a rank from
        others.
        """
        kind, hops, label = np.zeros(self.lanes, np.int64), [], 1
        for what, number in self._order:
            if what == "mark":
                lanes, values = self._marks[number]
                own = np.zeros(self.lanes, np.int64)
                own[lanes] = 1 + np.unique(values, return_inverse=True)[1]
                kind = _numbered((kind, own))
                continue
            if what == "bare" and self._left_out(number, steps=steps):
                continue
            call = CALLS[what](self, number)
            labels = label + _numbered(call.columns)
            label += len(call.src)
            hops.append((call.src, call.dst, labels))
        return self._skeleton(kind, hops, turn)

    def _skeleton(self, kind: Ints, hops: list[tuple[Ints, Ints, Ints]], turn: Ints) -> Skeleton:
        lane = np.arange(self.lanes, dtype=np.int32)
        channel = lane // np.int32(self.ranks)
        return Skeleton(
            self.ranks, lane % np.int32(self.ranks), channel, channel, kind,
            tuple(self._hops(hops)), turn,
        )  # fmt: skip

    def _hops(self, calls: list[tuple[Ints, Ints, Ints]]) -> list[Hops]:
        src, dst, label = (
            np.concatenate([np.zeros(0, np.int64), *column])
            for column in zip(*calls, (np.zeros(0, np.int64),) * 3, strict=True)
        )
        own, found = src // self.ranks, []
        for channel in range(self.lanes // self.ranks):
            mine = np.flatnonzero(own == channel)
            ends = src[mine].astype(np.int32), dst[mine].astype(np.int32)
            found.append(Hops(*ends, label[mine], channel, ""))
        return found

    def _left_out(self, number: int, *, steps: bool) -> bool:
        _, _, check, awaited = self._bare[number]
        return check or not (awaited or steps)

    def _plain(self, number: int) -> _Call:
        sender, receiver, *_ = self._bare[number]
        return _Call(sender, receiver, (np.zeros(len(sender), np.int64),))

    def _message(self, number: int) -> _Call:
        sender, receiver, parts = self._messages[number]
        columns = []
        for styles, pieces, which in parts:
            both = np.full((2, len(sender)), -1, np.int64)
            both[0, which], both[1, which] = self._styles[styles], self._count[pieces]
            columns += list(both)
        return _Call(sender, receiver, tuple(columns))

    def _ring(self, number: int) -> _Call:
        """Where chunks differ in size from place to place, no place is like another."""
        src, dst, styles, first, length = self._rings[number]
        place = np.arange(len(src))
        count = self._count[first[:, None] + place].reshape(len(first), -1, length)
        columns = [np.repeat(part[:, 0], length) for part in count]
        if not (count == count[:, :, :1]).all():
            columns.append(place)
        own = self._styles[styles]
        if not (own == own[:, :1]).all():
            kinds = np.unique(own, axis=1, return_inverse=True)[1].reshape(-1)
            columns.append(kinds[place if len(kinds) == len(place) else place // length])
        return _Call(src, dst, tuple(columns))


CALLS: dict[str, Callable[[Sketch, int], _Call]] = {
    "bare": Sketch._plain,
    "message": Sketch._message,
    "ring": Sketch._ring,
}


def _numbered(columns: Sequence[Ints]) -> Ints:
    """One number for each different combination, from 0 up; fewer than there are."""
    differ = [column for column in columns if len(column) and (column != column[0]).any()]
    if not differ:
        return np.zeros(len(columns[0]) if columns else 0, np.int64)
    if len(differ) == 1:
        return np.unique(differ[0], return_inverse=True)[1].astype(np.int64)
    table = np.column_stack(differ)
    return np.unique(table, axis=0, return_inverse=True)[1].reshape(-1).astype(np.int64)
