"""A sketch of a textbook algorithm: which lane sends to which, and how many rows each lane has.

Lanes are equal if the algorithm and the topology look the same from both; then they do the same at
the same times. A sketch finds equal lanes at far less cost than the rows themselves.
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

    - `columns`: returns columns with an entry for each message; messages are equal if their entries
      are equal in all columns.
    - `only_checks`: the messages are not used to find equal lanes, only to check them afterwards.
    - `is_awaited`: whether anything before the end of the algorithm waits for their arrival.
    """

    src: Numbers
    dst: Numbers
    columns: Callable[[], tuple[Ints, ...]]
    only_checks: bool = False
    is_awaited: bool = True


@dataclass
class TextbookSketch(RowWriter):
    """The writer that writes no rows and notes which lane sends to which; `rows` has the number of
    rows of each lane.
    """

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

    # **** Methods of RowWriter ****

    def begin(self, builder: Builder, channels: int) -> None:
        """Set the number of rows of each lane to 0."""
        self.ranks = builder.ranks
        self.lanes = builder.ranks * channels
        self.rows = np.zeros(self.lanes, np.int64)

    def end(self, schedule: Schedule) -> None:
        """Note the styles, without their channels, and the sizes of pieces that rows refer to by
        number.
        """
        numbers: dict[Style, int] = {}
        plain_styles = (replace(style, channel=0) for style in schedule.styles)
        self._style_numbers = np.array(
            [numbers.setdefault(style, len(numbers)) for style in plain_styles], np.int64
        )
        self._piece_counts = schedule.pieces.count

    def written(self, lanes: Numbers) -> Numbers:
        """Empty: no lane is written."""
        return np.zeros(0, np.int64)

    def marked_ranks(self, ranks: int) -> Numbers:
        """Empty: no rank gets a mark."""
        return np.zeros(0, np.int64)

    def distinguish(self, lanes: Numbers, values: Numbers, rows: int = 0) -> None:
        """Note that lanes with different values are not equal, and `rows` rows of each lane."""
        self._events.append((np.asarray(lanes, np.int64), np.asarray(values, np.int64)))
        np.add.at(self.rows, lanes, rows)

    def message(
        self, builder: Builder, src: Numbers, dst: Numbers, parts: Sequence[MessagePart]
    ) -> None:
        """Note messages; they are equal if the styles and sizes of their parts are."""
        numbered = [_numbered_part(builder, part) for part in parts]
        columns = partial(self._columns_of_parts, len(src), numbered)
        self._events.append(_Messages(src, dst, columns))
        for _, _, which in numbered:
            np.add.at(self.rows, src[which], 1)

    def rings(self, src: Numbers, dst: Numbers, styles: Rows, first: Rows, length: int) -> None:
        """Note the hops of rings; they are equal if the styles and sizes of their steps are."""
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
        """Note equal messages, each with `rows` rows. `only_checks` and `is_awaited` are those of
        `_Messages`.
        """
        equal = np.zeros(len(sender), np.int64)
        self._events.append(_Messages(sender, receiver, lambda: (equal,), only_checks, is_awaited))
        if not only_checks:
            np.add.at(self.rows, sender, rows)

    # **** Results: skeletons ****

    def checks(self, rank_kinds: Ints) -> list[Skeleton]:
        """A skeleton for each group of messages that only check, with these messages as its only
        hops.

        Classes of equal lanes, which are found without these messages, must be consistent with each
        of these skeletons. `rank_kinds` is that of `skeleton`.
        """
        no_kinds = np.zeros(self.lanes, np.int64)
        return [
            self._skeleton(no_kinds, [(group.src, group.dst, group.columns()[0])], rank_kinds)
            for group in self._messages
            if group.only_checks
        ]

    def steps(self) -> list[tuple[Numbers, Numbers]]:
        """Senders and receivers of each group of messages that only the end waits for, including
        those that only check.
        """
        return [(group.src, group.dst) for group in self._messages if not group.is_awaited]

    def skeleton(self, rank_kinds: Ints, *, with_steps: bool = True) -> Skeleton:
        """The lanes of the algorithm and the hops between them, from which equal lanes follow.

        Args:
            rank_kinds: by rank, a number; ranks with different numbers are not equal.
            with_steps: whether to include messages that only the end waits for.
        """
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
        return self._skeleton(kind, hops, rank_kinds)

    @property
    def _messages(self) -> list[_Messages]:
        return [event for event in self._events if isinstance(event, _Messages)]

    def _skeleton(
        self, kind: Ints, hops: list[tuple[Numbers, Numbers, Ints]], rank_kinds: Ints
    ) -> Skeleton:
        """The skeleton of all lanes.

        - `kind`: by lane, a number; lanes with different numbers are not equal.
        - `hops`: (senders, receivers, labels) of groups of hops; hops with different labels are not
          equal.
        - `rank_kinds`: that of `skeleton`.
        """
        lane = np.arange(self.lanes, dtype=np.int32)
        channel = lane // np.int32(self.ranks)
        rank = lane % np.int32(self.ranks)
        by_channel = tuple(self._hops_by_channel(hops))
        return Skeleton(self.ranks, rank, channel, channel, kind, by_channel, rank_kinds)

    def _hops_by_channel(self, hops: list[tuple[Numbers, Numbers, Ints]]) -> list[Hops]:
        """The hops as one `Hops` for each channel, in the order of channels. `hops` are (senders,
        receivers, labels), with lanes as senders and receivers.
        """
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
        """Columns for the equality of messages: the number of the style and the number of elements
        of every part, or -1 for messages without such a part. `size` is the number of messages.
        """
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
        """Columns for the equality of hops of rings, with an entry for each lane.

        Hops are equal if all their steps have the same size and style. If the chunks of a step
        differ in size, no two hops are equal.
        """
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
    """A part of messages as (numbers of styles, pieces, messages that have it)."""
    style = part.style
    if isinstance(style, Style):
        style = np.full(len(part.piece), builder.style(style), np.int32)
    return style, part.piece, EVERY if part.which is None else part.which


def _combination_numbers(columns: Sequence[Ints]) -> Ints:
    """By entry, a number for the combination of its values in all columns: equal combinations have
    equal numbers, which begin at 0 and are fewer than the entries.
    """
    varying = [column for column in columns if len(column) and (column != column[0]).any()]
    if not varying:
        return np.zeros(len(columns[0]) if columns else 0, np.int64)
    if len(varying) == 1:
        return np.unique(varying[0], return_inverse=True)[1].astype(np.int64)
    table = np.column_stack(varying)
    return np.unique(table, axis=0, return_inverse=True)[1].reshape(-1).astype(np.int64)
