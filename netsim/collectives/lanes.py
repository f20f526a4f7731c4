"""Lanes: what every rank has sent last and what it still waits for, while an algorithm is written.

It turns "send this next" into rows with the right dependencies: a rank sends after its last send
and after everything that has arrived at it since, and it is finished after all of that.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from netsim.arrays import different
from netsim.collectives.collective import Collective
from netsim.collectives.relay import Relay
from netsim.collectives.sketch import Sent, Sketch
from netsim.collectives.stands import Stands, copied
from netsim.schedule import (
    ARRIVED,
    COPY,
    IN,
    IN_ORDER,
    LOCAL_COPY,
    OUT,
    Builder,
    Lag,
    Schedule,
    Style,
)
from netsim.values import dataclass

Rows = NDArray[np.int32]
Ints = NDArray[np.int64] | NDArray[np.int32]
Folding = Sketch | Stands | Relay | None
KEEP = Style(kind=LOCAL_COPY, src_buffer=IN, dst_buffer=OUT)


@dataclass(frozen=True, slots=True)
class Part:
    """One contiguous part of a message of some of its senders (`which`; None: of all)."""

    style: Style | Rows
    piece: Rows
    which: Ints | None = None


class Lanes:
    """A Builder and, for every lane (channel · ranks + rank), its last row and open arrivals.

    With a Sketch no rows are written, with Stands only those of lanes that stand for others, with a
    Relay a few steps of rings.
    """

    def __init__(self, collective: Collective, channels: int = 1, fold: Folding = None) -> None:
        n = collective.ranks
        self.collective = collective
        self.ranks = n
        self.channels = channels
        self.builder = Builder(n, collective.element_bytes, (collective.name,))
        self.last = np.full(channels * n, -1, np.int32)
        self._open: list[tuple[Rows, Lag]] = []
        self._final: list[tuple[Rows, Lag]] = []
        self._step = 0
        self.sketch = fold if isinstance(fold, Sketch) else None
        self.stands = fold if isinstance(fold, Stands) else None
        self.relay = fold if isinstance(fold, Relay) else None
        if self.sketch is not None:
            self.sketch.begin(n, channels)
        if self.relay is not None:
            self.relay.begin(n)
        if self.stands is not None:
            self.builder.fold = self.stands.fold

    def keep(self) -> Rows:
        """Copy the data that stays on its rank to the output, unless it is there already.

        Returns for every rank the row of its (last) copy, or -1.
        """
        copies = np.full(self.ranks, -1, np.int32)
        kept = self.collective.kept()
        if self.collective.in_place or not len(kept.rank):
            return copies
        piece, rank = self.builder.pieces(kept.count, kept.in_offset, kept.out_offset), kept.rank
        if self.sketch is not None:
            self.sketch.mark(rank, kept.count, rows=1)
            return copies
        style: Style | Rows = KEEP
        if self.stands is not None:
            mine, ranks = self.stands.written(rank), self.stands.fold.ranks
            rank, piece = rank[mine], piece[mine]
            number = np.full(len(mine), self.builder.style(KEEP), np.int32)
            style = copied(self.builder, number, ranks.count[rank])
        copies[rank] = rows = self.builder.rows(style, rank, rank, piece)
        self._final += self._columns(rank, rows, IN_ORDER)
        if self.relay is not None:
            self.relay.keep(rank, rows)
        return copies

    def style(self, src_buffer: int, dst_buffer: int, op: int = COPY, channel: int = 0) -> int:
        """The number of the style of a plain transfer."""
        return self.builder.style(
            Style(src_buffer=src_buffer, dst_buffer=dst_buffer, op=op, channel=channel)
        )

    def styles(self, src_buffer: ArrayLike, dst_buffer: ArrayLike, op: ArrayLike = COPY) -> Rows:
        """The numbers of the styles of many plain transfers."""
        table = np.broadcast_arrays(*np.atleast_1d(src_buffer, dst_buffer, op))
        code = table[0] + 8 * table[1] + 64 * table[2]
        numbers = {c: self.style(c % 8, c // 8 % 8, c // 64) for c in different(code).tolist()}
        return np.array([numbers[c] for c in code.tolist()], np.int32)

    def settle(self, rows: Rows, ranks: Ints | None = None) -> None:
        """Let what comes next on some ranks (default: all) wait for their rows, -1 for none."""
        some: Ints = np.arange(self.ranks) if ranks is None else ranks
        if self.sketch is not None:
            self.sketch.mark(some, np.zeros(len(some), np.int64))
        some = some[rows[some] >= 0]
        self.wait(some, rows[some], IN_ORDER)

    def send(
        self,
        src: Ints,
        dst: Ints,
        parts: Sequence[Part],
        step: int,
        *,
        channel: Ints | int = 0,
        ready: bool = False,
        blocking: bool = False,
    ) -> Rows:
        """Append a message from each of `src` to each of `dst`; returns its last rows (-1: none).

        `ready`: not before the receiver has received what was sent to it before (it reduces into
        the same place). `blocking`: not before the sender's last message has arrived.
        """
        base = np.asarray(channel) * self.ranks
        sender, receiver = base + src, base + dst
        ends = np.full(len(src), -1, np.int32)
        if self.sketch is not None:
            self.sketch.message(sender, receiver, [self._told(part) for part in parts])
            return ends
        written: Ints | slice = slice(None)
        if self.stands is not None:
            written = self.stands.written(sender)
            sender, receiver = sender[written], self.stands.first[receiver[written]]
            parts = [self._of_leaders(part, written, sender, len(src)) for part in parts]
        after = [(column[sender], lag) for column, lag in self._open]
        after.append((self.last[sender], ARRIVED if blocking else IN_ORDER))
        if ready:
            after += [(column[receiver], lag) for column, lag in self._open]
        last = np.full(len(sender), -1, np.int32)
        for part in parts:
            self._append(src[written], dst[written], part, step, after, last)
        if self.relay is not None:
            some = len(parts) > 1 or parts[0].which is not None
            self.relay.message(sender, receiver, last, ready=ready, plain=not (some or blocking))
        sent = np.flatnonzero(last >= 0)
        self.passed(sender[sent], last[sent], step)
        self.wait(receiver[sent], last[sent])
        ends[written] = last
        return ends

    def _told(self, part: Part) -> Sent:
        """A part as a Sketch wants it."""
        which: Ints | slice = slice(None) if part.which is None else part.which
        style = part.style
        if isinstance(style, Style):
            style = np.full(len(part.piece), self.builder.style(style), np.int32)
        return style, part.piece, which

    def _of_leaders(self, part: Part, written: Ints, sender: Ints, size: int) -> Part:
        """The same part of the messages that are written down."""
        assert self.stands is not None
        if part.which is None:
            style = part.style if isinstance(part.style, Style) else part.style[written]
            return Part(self.stands.styles(self.builder, style, sender), part.piece[written])
        place = np.full(size, -1)
        place[written] = np.arange(len(written))
        mine = np.flatnonzero(place[part.which] >= 0)
        which = place[part.which[mine]]
        style = part.style if isinstance(part.style, Style) else part.style[mine]
        return Part(self.stands.styles(self.builder, style, sender[which]), part.piece[mine], which)

    def _append(
        self,
        src: Ints,
        dst: Ints,
        part: Part,
        step: int,
        after: list[tuple[Rows, Lag]],
        ends: Rows,
    ) -> None:
        some = slice(None) if part.which is None else part.which
        before = ends[some]
        deps = [(np.where(before < 0, rows[some], -1), lag) for rows, lag in after]
        deps = [
            (rows, lag) for rows, lag in [*deps, (before, IN_ORDER)] if rows.max(initial=-1) >= 0
        ]
        ends[some] = self.builder.rows(
            part.style, src[some], dst[some], part.piece, step=step, after=deps
        )

    def passed(self, lanes: Ints, rows: Rows, step: int = 0) -> None:
        """Note the last rows of some lanes; they came after all that was open there."""
        for column, _ in self._open:
            column[lanes] = -1
        self._open = [entry for entry in self._open if entry[0].max() >= 0]
        self.last[lanes] = rows
        self._step = max(self._step, step)

    def wait(self, lanes: Ints, rows: Rows, lag: Lag = ARRIVED, step: int = 0) -> None:
        """Let what comes next on some lanes wait for rows; a lane may occur several times."""
        self._open += self._columns(lanes, rows, lag)
        self._step = max(self._step, step)

    def close(self) -> Schedule:
        """The finished Schedule; its last rows are one mark a rank, in order: the rank is done."""
        n = self.ranks
        if self.sketch is not None:
            schedule = self.builder.finish()
            self.sketch.end(schedule.styles, schedule.pieces)
            return schedule
        columns = [*self._open, (self.last, IN_ORDER), *self._final]
        if self.stands is not None:
            columns = [(column[self.stands.first], lag) for column, lag in columns]
        by_rank = [(part, lag) for column, lag in columns for part in column.reshape(-1, n)]
        after = [(rows, lag) for rows, lag in by_rank if rows.max() >= 0]
        self.builder.marks(np.arange(n), step=self._step, after=after)
        finished = self.builder.finish()
        if self.relay is not None:
            self.relay.end(finished)
        return finished

    def _columns(self, lanes: Ints, rows: Rows, lag: Lag) -> list[tuple[Rows, Lag]]:
        """One column for each time that a lane occurs."""
        order = np.argsort(lanes, kind="stable")
        ordered = lanes[order]
        first = np.searchsorted(ordered, ordered)
        place = np.arange(len(ordered)) - first
        columns = np.full((int(place.max(initial=-1)) + 1, len(self.last)), -1, np.int32)
        columns[place, ordered] = rows[order]
        return [(column, lag) for column in columns]
