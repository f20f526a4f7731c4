"""A sketch of a textbook algorithm: who sends to whom, and how many rows that would be.

From it follows which lanes are equal: where everything looks the same from two lanes, these do the
same at the same times. It costs far less than the rows themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from netsim.base.memo import different
from netsim.base.values import dataclass
from netsim.collectives.row_writer import EVERY, MessagePart, Numbers, Rows, RowWriter
from netsim.schedule.builder import Builder
from netsim.schedule.partition import Hops, Skeleton
from netsim.schedule.schedule import Schedule, Style

Ints = NDArray[np.int64]
NumberedPart = tuple[Rows, Rows, Numbers | slice]
"""Numbers of styles, pieces, and the messages that have such a part."""


@dataclass(frozen=True, slots=True)
class _Messages:
    """Messages that lanes `src` send to lanes `dst` at the same point of the algorithm.

    `columns()` distinguishes messages of one such group: equal ones have equal entries in all
    columns. With `only_checks`, equal lanes are not made from them, but must agree with them. If
    not `is_awaited`, only the end of the algorithm waits for their arrival."""

    src: Numbers
    dst: Numbers
    columns: Callable[[], tuple[Ints, ...]]
    only_checks: bool = False
    is_awaited: bool = True


@dataclass
class TextbookSketch(RowWriter):
    """What lanes send, and the number of rows of each lane (`rows`)."""

    lanes: int = 0
    ranks: int = 0
    rows: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    refused: str = ""
    """Why equal lanes cannot be found, as a clause."""
    step_count: int = 0
    """Messages that every lane sends, one step after the other, whose arrival only the end waits
    for (`program/lockstep.py`)."""
    step_bytes: float = 0.0
    """Bytes of each of them."""
    _events: list[_Messages | tuple[Ints, Ints]] = field(default_factory=list)
    """In the order of the algorithm: messages, or lanes with values that distinguish them."""
    _style_numbers: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    _piece_counts: Ints = field(default_factory=lambda: np.zeros(0, np.int64))

    # **** As a writer ****

    def begin(self, builder: Builder, channels: int) -> None:
        """Begin with no rows for each lane."""
        self.ranks, self.lanes = builder.ranks, builder.ranks * channels
        self.rows = np.zeros(self.lanes, np.int64)

    def end(self, schedule: Schedule) -> None:
        """Note the tables that numbers of styles and pieces refer to."""
        numbers: dict[Style, int] = {}
        plain_styles = (replace(style, channel=0) for style in schedule.styles)
        self._style_numbers = np.array(
            [numbers.setdefault(style, len(numbers)) for style in plain_styles], np.int64
        )
        self._piece_counts = schedule.pieces.count

    def written(self, lanes: Numbers) -> Numbers:
        """None."""
        return np.zeros(0, np.int64)

    def marked_ranks(self, ranks: int) -> Numbers:
        """None."""
        return np.zeros(0, np.int64)

    def distinguish(self, lanes: Numbers, values: Numbers, rows: int = 0) -> None:
        """Note values that distinguish lanes."""
        self._events.append((np.asarray(lanes, np.int64), np.asarray(values, np.int64)))
        np.add.at(self.rows, lanes, rows)

    def message(
        self, builder: Builder, src: Numbers, dst: Numbers, parts: Sequence[MessagePart]
    ) -> None:
        """Note messages, which differ by the styles and sizes of their parts."""
        numbered = [_numbered_part(builder, part) for part in parts]
        columns = partial(self._columns_of_parts, len(src), numbered)
        self._events.append(_Messages(src, dst, columns))
        for _, _, which in numbered:
            np.add.at(self.rows, src[which], 1)

    def rings(self, src: Numbers, dst: Numbers, styles: Rows, first: Rows, length: int) -> None:
        """Note the hops of rings, which differ by the styles and sizes of their steps."""
        columns = partial(self._columns_of_rings, len(src), styles, different(first), length)
        self._events.append(_Messages(src, dst, columns))
        np.add.at(self.rows, src, len(styles))

    def hops(
        self,
        sender: Ints,
        receiver: Ints,
        rows: int = 1,
        *,
        only_checks: bool = False,
        is_awaited: bool = True,
    ) -> None:
        """Note equal messages of some rows each; the flags are those of `_Messages`."""
        equal = np.zeros(len(sender), np.int64)
        self._events.append(_Messages(sender, receiver, lambda: (equal,), only_checks, is_awaited))
        if not only_checks:
            np.add.at(self.rows, sender, rows)

    # **** What follows from it ****

    def checks(self, turn: Ints) -> list[Skeleton]:
        """A skeleton for each group of messages that equal lanes must agree with."""
        no_kinds = np.zeros(self.lanes, np.int64)
        return [
            self._skeleton(no_kinds, [(group.src, group.dst, group.columns()[0])], turn)
            for group in self._messages
            if group.only_checks
        ]

    def steps(self) -> list[tuple[Numbers, Numbers]]:
        """Senders and receivers of messages that only the end waits for, also of those that only
        check."""
        return [(group.src, group.dst) for group in self._messages if not group.is_awaited]

    def skeleton(self, turn: Ints, *, with_steps: bool = True) -> Skeleton:
        """The skeleton of the algorithm, with or without messages that only the end waits for.

        `turn` is, by rank, what distinguishes it besides its place."""
        kind = np.zeros(self.lanes, np.int64)
        hops = []
        next_label = 1
        for event in self._events:
            if not isinstance(event, _Messages):
                lanes, values = event
                value_of_lane = np.zeros(self.lanes, np.int64)
                value_of_lane[lanes] = 1 + np.unique(values, return_inverse=True)[1]
                kind = _combination_numbers((kind, value_of_lane))
            elif not event.only_checks and (event.is_awaited or with_steps):
                label = next_label + _combination_numbers(event.columns())
                hops.append((event.src, event.dst, label))
                next_label += len(event.src)
        return self._skeleton(kind, hops, turn)

    @property
    def _messages(self) -> list[_Messages]:
        return [event for event in self._events if isinstance(event, _Messages)]

    def _skeleton(
        self, kind: Ints, hops: list[tuple[Numbers, Numbers, Ints]], turn: Ints
    ) -> Skeleton:
        lane = np.arange(self.lanes, dtype=np.int32)
        channel = lane // np.int32(self.ranks)
        rank = lane % np.int32(self.ranks)
        by_channel = tuple(self._hops_by_channel(hops))
        return Skeleton(self.ranks, rank, channel, channel, kind, by_channel, turn)

    def _hops_by_channel(self, hops: list[tuple[Numbers, Numbers, Ints]]) -> list[Hops]:
        src, dst, label = (
            np.concatenate([np.zeros(0, np.int64), *column])
            for column in zip(*hops, (np.zeros(0, np.int64),) * 3, strict=True)
        )
        channel_of_hop = src // self.ranks
        by_channel = []
        for channel in range(self.lanes // self.ranks):
            on_channel = np.flatnonzero(channel_of_hop == channel)
            ends = src[on_channel].astype(np.int32), dst[on_channel].astype(np.int32)
            by_channel.append(Hops(*ends, label[on_channel], channel, ""))
        return by_channel

    def _columns_of_parts(self, size: int, parts: Sequence[NumberedPart]) -> tuple[Ints, ...]:
        """The style and the number of elements of every part, by message; -1 without such a
        part."""
        columns = []
        for styles, pieces, which in parts:
            style_and_count = np.full((2, size), -1, np.int64)
            style_and_count[0, which] = self._style_numbers[styles]
            style_and_count[1, which] = self._piece_counts[pieces]
            columns += list(style_and_count)
        return tuple(columns)

    def _columns_of_rings(
        self, size: int, styles: Rows, first: Rows, length: int
    ) -> tuple[Ints, ...]:
        """What distinguishes the hops of rings. If chunks differ in size, every place differs."""
        place = np.arange(size)
        counts = self._piece_counts[first[:, None] + place].reshape(len(first), -1, length)
        columns = [np.repeat(counts_of_step[:, 0], length) for counts_of_step in counts]
        if not (counts == counts[:, :, :1]).all():
            columns.append(place)
        numbers = self._style_numbers[styles]
        if not (numbers == numbers[:, :1]).all():
            kinds = np.unique(numbers, axis=1, return_inverse=True)[1].reshape(-1)
            columns.append(kinds[place if len(kinds) == len(place) else place // length])
        return tuple(columns)


def _numbered_part(builder: Builder, part: MessagePart) -> NumberedPart:
    style = part.style
    if isinstance(style, Style):
        style = np.full(len(part.piece), builder.style(style), np.int32)
    return style, part.piece, EVERY if part.which is None else part.which


def _combination_numbers(columns: Sequence[Ints]) -> Ints:
    """By entry, a number for the combination of its values in all columns; numbers begin at 0 and
    are fewer than the entries."""
    varying = [column for column in columns if len(column) and (column != column[0]).any()]
    if not varying:
        return np.zeros(len(columns[0]) if columns else 0, np.int64)
    if len(varying) == 1:
        return np.unique(varying[0], return_inverse=True)[1].astype(np.int64)
    table = np.column_stack(varying)
    return np.unique(table, axis=0, return_inverse=True)[1].reshape(-1).astype(np.int64)
