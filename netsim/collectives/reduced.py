"""Who writes an algorithm down: all rows, none (a sketch), those that stand for others, few steps.

Algorithms tell their Writer what they do, and write what it leaves of it; they never ask which it
is. Where what a Sketch was told looks the same from two lanes, these do the same at the same times.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from netsim.base.memo import different
from netsim.base.values import dataclass
from netsim.schedule.builder import Builder
from netsim.schedule.schedule import Fold, Hops, Schedule, Skeleton, Style

Ints = NDArray[np.int64]
Rows = NDArray[np.int32]
Some = NDArray[np.int64] | NDArray[np.int32]
Sent = tuple[Rows, Rows, Some | slice]  # styles, pieces, and of which messages they are parts
EVERY = slice(None)


@dataclass(frozen=True, slots=True)
class Part:
    """One contiguous part of a message of some of its senders (`which`; None: of all)."""

    style: Style | Rows
    piece: Rows
    which: Some | None = None


class Writer:
    """Writes down every row of lanes (channel · ranks + rank). Other writers leave some out; what
    they have to know of those they are told here."""

    def begin(self, builder: Builder, channels: int) -> None:
        """Listen to an algorithm from its start."""

    def written(self, lanes: Some) -> Some | slice:
        """Which of some lanes are written down."""
        return EVERY

    def lead(self, lanes: Some) -> Some:
        """Those that stand for some lanes."""
        return lanes

    def marked(self, ranks: int) -> Some:
        """The ranks that are marked as done in the end."""
        return np.arange(ranks)

    def styles(self, builder: Builder, styles: Style | Rows, lanes: Some) -> Style | Rows:
        """The styles of rows of some lanes, which may stand for others."""
        return styles

    def copies(self, builder: Builder, style: Style, ranks: Some) -> Style | Rows:
        """The same of what ranks keep for themselves."""
        return style

    def part(self, builder: Builder, part: Part, sender: Some) -> Part:
        """What is written of a part of the messages of some lanes."""
        return part

    def mark(self, lanes: Some, values: Some, rows: int = 0) -> None:
        """Something else that lanes do or wait for, with a value that tells them apart."""

    def message(self, builder: Builder, src: Some, dst: Some, parts: Sequence[Part]) -> None:
        """A message from each of some lanes to each of others."""

    def told(self, tell: Callable[[Sketch], None]) -> bool:
        """Whether an algorithm tells in short what it does, and that is all."""
        return False

    def rings(self, src: Some, dst: Some, styles: Rows, first: Rows, length: int) -> None:
        """Rings of a length in which everyone passes on what it has, in `len(styles)` steps."""

    def shortened(self, styles: Rows, first: Rows, size: int) -> tuple[Rows, Rows]:
        """The steps that are written of rings of `size` lanes together."""
        return styles, first

    def keep(self, ranks: Some, rows: Rows) -> None:
        """Copies that ranks made for themselves, beside all else."""

    def sent(self, sender: Some, receiver: Some, rows: Rows, *, ready: bool, plain: bool) -> None:
        """Rows from lanes to others; `plain`: of one part, which waits for no arrival."""

    def laps(self, ring: NDArray[np.int64], rows: Rows, steps: int, written: int) -> None:
        """The steps of rings after their first: the rows of the last that is written."""

    def end(self, schedule: Schedule) -> None:
        """All that is written."""


@dataclass(frozen=True, slots=True)
class _Call:
    """Hops that are made together; `columns` is what tells them apart, besides this call. Some are
    only to `check` what is found; of some that are not `awaited`, only the end waits for arrivals.
    """

    src: Some
    dst: Some
    columns: Callable[[], tuple[Ints, ...]]
    check: bool = False
    awaited: bool = True


@dataclass
class Sketch(Writer):
    """What lanes (channel · ranks + rank) send, and how many rows each would write."""

    lanes: int = 0
    ranks: int = 0
    rows: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    refused: str = ""  # why it cannot be written down once for what is alike
    step_count: int = 0  # messages that every lane sends for whose arrival only the end waits
    step_bytes: float = 0.0  # of each
    _told: list[_Call | tuple[Ints, Ints]] = field(default_factory=list)  # calls and marks
    _styles: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    _count: Ints = field(default_factory=lambda: np.zeros(0, np.int64))

    def begin(self, builder: Builder, channels: int) -> None:
        """Listen to an algorithm from its start."""
        self.ranks, self.lanes = builder.ranks, builder.ranks * channels
        self.rows = np.zeros(self.lanes, np.int64)

    def written(self, lanes: Some) -> Some:
        """None."""
        return np.zeros(0, np.int64)

    def marked(self, ranks: int) -> Some:
        """None."""
        return np.zeros(0, np.int64)

    def told(self, tell: Callable[[Sketch], None]) -> bool:
        """What an algorithm tells in short."""
        tell(self)
        return True

    def mark(self, lanes: Some, values: Some, rows: int = 0) -> None:
        """Something else that lanes do or wait for, with a value that tells them apart."""
        self._told.append((np.asarray(lanes, np.int64), np.asarray(values, np.int64)))
        np.add.at(self.rows, lanes, rows)

    def message(self, builder: Builder, src: Some, dst: Some, parts: Sequence[Part]) -> None:
        """A message from each of some lanes to each of others."""
        told = [_told(builder, part) for part in parts]
        self._told.append(_Call(src, dst, partial(self._of_parts, len(src), told)))
        for _, _, which in told:
            np.add.at(self.rows, src[which], 1)

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
        not `awaited`, only the end waits for their arrival."""
        alike = np.zeros(len(sender), np.int64)
        self._told.append(_Call(sender, receiver, lambda: (alike,), check, awaited))
        if not check:
            np.add.at(self.rows, sender, rows)

    def rings(self, src: Some, dst: Some, styles: Rows, first: Rows, length: int) -> None:
        """Rings of a length in which everyone passes on what it has, in `len(styles)` steps."""
        columns = partial(self._of_rings, len(src), styles, different(first), length)
        self._told.append(_Call(src, dst, columns))
        np.add.at(self.rows, src, len(styles))

    def end(self, schedule: Schedule) -> None:
        """Note the tables that styles and pieces are numbers of."""
        known: dict[Style, int] = {}
        plain = (replace(style, channel=0) for style in schedule.styles)
        self._styles = np.array([known.setdefault(style, len(known)) for style in plain], np.int64)
        self._count = schedule.pieces.count

    def checks(self, turn: Ints) -> list[Skeleton]:
        """Further hops in which what is alike must be so, too."""
        parts = [(one.src, one.dst, one.columns()[0]) for one in self._calls if one.check]
        return [self._skeleton(np.zeros(self.lanes, np.int64), [part], turn) for part in parts]

    def steps(self) -> list[tuple[Some, Some]]:
        """Senders and receivers of messages that only the end waits for, also of those to check."""
        return [(one.src, one.dst) for one in self._calls if not one.awaited]

    def skeleton(self, turn: Ints, *, steps: bool = True) -> Skeleton:
        """What lanes and hops are, with or without `steps`; `turn` tells ranks apart besides."""
        kind, hops, label = np.zeros(self.lanes, np.int64), [], 1
        for one in self._told:
            if not isinstance(one, _Call):
                lanes, values = one
                own = np.zeros(self.lanes, np.int64)
                own[lanes] = 1 + np.unique(values, return_inverse=True)[1]
                kind = _numbered((kind, own))
            elif not one.check and (one.awaited or steps):
                hops.append((one.src, one.dst, label + _numbered(one.columns())))
                label += len(one.src)
        return self._skeleton(kind, hops, turn)

    @property
    def _calls(self) -> list[_Call]:
        return [one for one in self._told if isinstance(one, _Call)]

    def _skeleton(self, kind: Ints, hops: list[tuple[Some, Some, Ints]], turn: Ints) -> Skeleton:
        lane = np.arange(self.lanes, dtype=np.int32)
        channel = lane // np.int32(self.ranks)
        return Skeleton(
            self.ranks,
            lane % np.int32(self.ranks),
            channel,
            channel,
            kind,
            tuple(self._hops(hops)),
            turn,
        )

    def _hops(self, calls: list[tuple[Some, Some, Ints]]) -> list[Hops]:
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

    def _of_parts(self, size: int, parts: Sequence[Sent]) -> tuple[Ints, ...]:
        columns = []
        for styles, pieces, which in parts:
            both = np.full((2, size), -1, np.int64)
            both[0, which], both[1, which] = self._styles[styles], self._count[pieces]
            columns += list(both)
        return tuple(columns)

    def _of_rings(self, size: int, styles: Rows, first: Rows, length: int) -> tuple[Ints, ...]:
        """Where chunks differ in size from place to place, no place is like another."""
        place = np.arange(size)
        count = self._count[first[:, None] + place].reshape(len(first), -1, length)
        columns = [np.repeat(part[:, 0], length) for part in count]
        if not (count == count[:, :, :1]).all():
            columns.append(place)
        own = self._styles[styles]
        if not (own == own[:, :1]).all():
            kinds = np.unique(own, axis=1, return_inverse=True)[1].reshape(-1)
            columns.append(kinds[place if len(kinds) == len(place) else place // length])
        return tuple(columns)


def _told(builder: Builder, part: Part) -> Sent:
    style = part.style
    if isinstance(style, Style):
        style = np.full(len(part.piece), builder.style(style), np.int32)
    return style, part.piece, EVERY if part.which is None else part.which


def _numbered(columns: Sequence[Ints]) -> Ints:
    """One number for each different combination, from 0 up; fewer than there are."""
    differ = [column for column in columns if len(column) and (column != column[0]).any()]
    if not differ:
        return np.zeros(len(columns[0]) if columns else 0, np.int64)
    if len(differ) == 1:
        return np.unique(differ[0], return_inverse=True)[1].astype(np.int64)
    table = np.column_stack(differ)
    return np.unique(table, axis=0, return_inverse=True)[1].reshape(-1).astype(np.int64)


WholeNumbers = NDArray[np.int64] | NDArray[np.int32]


@dataclass(frozen=True)
class Stands(Writer):
    """By lane (channel · ranks + rank): the one that stands for it, and how many that one is for.
    Rows of the others are not written down; what waits for them waits for those that stand in."""

    fold: Fold
    first: Rows
    count: Rows

    def begin(self, builder: Builder, channels: int) -> None:
        """Listen to an algorithm from its start."""
        builder.fold = self.fold

    def written(self, lanes: Some) -> NDArray[np.int64]:
        """Which of some lanes are written down."""
        return np.flatnonzero(self.first[lanes] == lanes)

    def lead(self, lanes: Some) -> Some:
        """Those that stand for some lanes."""
        return self.first[lanes]

    def styles(self, builder: Builder, styles: Style | Rows, lanes: Some) -> Rows:
        """The styles of rows of some lanes: each stands for as many as its lane does."""
        return copied(builder, styles, self.count[lanes])

    def copies(self, builder: Builder, style: Style, ranks: Some) -> Rows:
        """The same of what ranks keep for themselves."""
        return copied(builder, style, self.fold.ranks.count[ranks])

    def part(self, builder: Builder, part: Part, sender: Some) -> Part:
        """What is written of a part of the messages of some lanes."""
        style, which = part.style, EVERY if part.which is None else part.which
        mine = self.written(sender[which])
        style = style if isinstance(style, Style) else style[mine]
        if part.which is None:
            return Part(self.styles(builder, style, sender[mine]), part.piece[mine])
        place = np.full(len(sender), -1)
        written = self.written(sender)
        place[written] = np.arange(len(written))
        lanes = part.which[mine]
        return Part(self.styles(builder, style, sender[lanes]), part.piece[mine], place[lanes])


def copied(builder: Builder, styles: Style | Rows, copies: Rows) -> Rows:
    """The numbers of the same styles for rows that stand for so many."""
    if isinstance(styles, Style):
        styles = np.full(len(copies), builder.style(styles), np.int32)
    known = builder.styles
    width = int(copies.max(initial=1)) + 1
    code, place = np.unique(styles.astype(np.int64) * width + copies, return_inverse=True)
    pairs: Sequence[tuple[int, int]] = [divmod(one, width) for one in code.tolist()]
    numbers = [builder.style(replace(known[style], copies=times)) for style, times in pairs]
    found: Rows = np.array(numbers, np.int32)[place.reshape(styles.shape)]
    return found


# Relay: an algorithm of long rings with only a few steps of each, and what is left of them.
# Every lane is there, with its way to the next and all that they share. What the steps that are
# left out take follows from those that are written (`extent/max_plus.py`).

STEPS = 3  # of each ring that are written: in the second, everyone passes on what has come


@dataclass(frozen=True, slots=True)
class Message:
    """Rows that some lanes send to others; `ready`: not before these have what came before."""

    lanes: WholeNumbers
    receiver: WholeNumbers
    rows: Rows
    ready: bool


@dataclass(frozen=True, slots=True)
class Laps:
    """Rings of lanes in the order in which they pass on (a ring each line), after their first step:
    of `steps` that follow, `written` are; `rows` are those of the last."""

    lanes: NDArray[np.int64]
    rows: Rows
    steps: int
    written: int


@dataclass
class Relay(Writer):
    """What lanes do, call by call, where they hold one of these; rings have `STEPS` steps.
    `refused` says why steps cannot be left out."""

    ranks: int = 0
    kept: list[tuple[WholeNumbers, Rows]] = field(default_factory=list)
    calls: list[Message | Laps] = field(default_factory=list)
    refused: str = ""
    _rings: list[tuple[set[int], Rows, int]] = field(default_factory=list)

    @property
    def rows(self) -> Rows:
        """Rows of all messages and rings, one for each that a lane does the same at once."""
        return np.concatenate([call.rows.ravel() for call in self.calls])

    def begin(self, builder: Builder, channels: int) -> None:
        """Listen to an algorithm from its start."""
        self.ranks = builder.ranks

    def keep(self, ranks: Some, rows: Rows) -> None:
        """Copies that ranks made for themselves, beside all else."""
        self.kept.append((ranks, rows))

    def sent(self, sender: Some, receiver: Some, rows: Rows, *, ready: bool, plain: bool) -> None:
        """Rows from lanes to others; `plain`: of one part, which waits for no arrival."""
        if not plain:
            self.refused = "messages of several parts, or that wait for the last to arrive"
        self.calls.append(Message(sender, receiver, rows, ready))

    def shortened(self, styles: Rows, first: Rows, size: int) -> tuple[Rows, Rows]:
        """The first steps of rings."""
        self._rings.append((set(different(styles).tolist()), different(first), size))
        return styles[:STEPS], first[:STEPS]

    def laps(self, ring: NDArray[np.int64], rows: Rows, steps: int, written: int) -> None:
        """The steps of rings after their first: the rows of the last that is written."""
        self.calls.append(Laps(ring, rows.reshape(ring.shape), steps, written))

    def end(self, schedule: Schedule) -> None:
        """Look whether the steps of a ring move as much in the same way."""
        known, count = schedule.styles, schedule.pieces.count
        for styles, first, size in self._rings:
            ways = {replace(known[k], src_buffer=0, dst_buffer=0, op=0) for k in styles}
            if len({replace(style, channel=0) for style in ways}) > 1:
                self.refused = "steps of a ring differ"
            if any((count[k : k + size] != count[first[0]]).any() for k in first.tolist()):
                self.refused = "chunks of a ring differ"
