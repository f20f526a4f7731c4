"""The Exchange: parts of sends that are equal in size, chunk by chunk, all at once.

The sender's block writes into a FIFO of the receiver (or one that its proxy empties), and the
receiver's block copies from there into the output.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from netsim.nccl.schedules.hops import Channel, Pass
from netsim.nccl.schedules.plan import Plan
from netsim.nccl.schedules.weave import NOWHERE, Place, Segments, Weave
from netsim.schedule import IN, IN_ORDER, OUT, SCRATCH, Lag

Ints = NDArray[np.int64]
Seat = tuple[int, int]  # a rank and a channel: one block


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a send: where it lies (elements), and the channel that moves it."""

    src: int
    dst: int
    offset: int
    target: int
    count: int
    channel: int
    multiplicity: int

    @property
    def hop(self) -> tuple[int, int]:
        """From whom to whom."""
        return self.src, self.dst

    @property
    def seats(self) -> tuple[Seat, ...]:
        """The blocks at both ends; a copy on one GPU is one operation."""
        ranks = (self.src,) if self.src == self.dst else self.hop
        return tuple((rank, self.channel) for rank in ranks)


@dataclass
class Exchange:
    """Rows of one chunk of all parts; `crowd` is how many operations share each block."""

    plan: Plan
    parts: Sequence[Part]
    crowd: dict[Seat, int]
    cut: Segments
    woven: Weave = field(default_factory=Weave)

    def __post_init__(self) -> None:
        self.channels = [
            Channel(self.plan, p.channel, p.multiplicity, self.cut.subs) for p in self.parts
        ]
        self.src, self.dst, self.offset, self.target = (
            np.array([getattr(part, name) for part in self.parts])
            for name in ("src", "dst", "offset", "target")
        )

    def passes(self) -> list[tuple[Ints, list[Seat]]]:
        """Write all rows; returns those of blocks by piece and part, and the block of each part."""
        seats = [[part.seats[k] for part in self.parts] for k in range(len(self.parts[0].seats))]
        if len(seats) == 1:
            return [(self._copies(seats[0]), seats[0])]
        net = np.array([c.is_net(*p.hop) for c, p in zip(self.channels, self.parts, strict=True)])
        number = np.arange(len(net))
        out = NOWHERE if self.plan.direct else 2 * number
        arrival = Place(self.target, out)
        fifo = Place(self.target, np.where(net, 2 * number + 1, out))
        sends = self._rows(
            self._sending(seats[0], proxy=False),
            *(self.src, np.where(net, self.src, self.dst)),
            *(Place(self.offset), fifo),
        )
        sent = sends.copy()
        if net.any():
            sent[:, net] = self._messages(sends, net, seats[0], arrival)
        stores = self._stores(seats[1], number)
        self._couple(sent, stores)
        return [(sends, seats[0]), (stores, seats[1])]

    def _copies(self, seats: list[Seat]) -> Ints:
        """Sends to oneself are copies by the block."""
        kinds = [
            self.woven.kind(channel.local(self._pass(seat, IN, OUT, writes=1)))
            for channel, seat in zip(self.channels, seats, strict=True)
        ]
        places = Place(self.offset), Place(self.target)
        return self._rows(np.array(kinds), self.src, self.src, *places)

    def _pass(self, seat: Seat, source: int, target: int, writes: int = 0) -> Pass:
        """A pass by the operation's share of the warps of a block."""
        return Pass(source, target, writes=writes, threads=1 / self.crowd[seat])

    def _sending(self, seats: list[Seat], *, proxy: bool, further: bool = False) -> Ints:
        """Kinds of the rows that move data to the receivers."""
        out = OUT if self.plan.direct else SCRATCH
        made = (self._pass(seat, IN, out) for seat in seats)
        trio = zip(self.channels, self.parts, made, strict=True)
        kinds = ((c, c.hop(*p.hop, m, proxy=proxy)) for c, p, m in trio)
        return np.array([self.woven.kind(c.further(k) if further else k) for c, k in kinds])

    def _messages(
        self, sends: Ints, net: NDArray[np.bool_], seats: list[Seat], arrival: Place
    ) -> Ints:
        """What proxies send from the FIFOs that their blocks have filled, a chunk at a time; of
        LL the receiver uses what there is.
        """
        some = np.flatnonzero(net)
        target = Place(self.target[net], np.broadcast_to(arrival.region, net.shape)[net])
        ends, fifo = (self.src[net], self.dst[net]), Place(0, 2 * some + 1)
        segments = np.array([[self.cut.whole]]) if self.channels[0].simple else self.pieces
        kinds = self._sending(seats, proxy=True)[net][None]
        if len(segments) > 1:
            later = self._sending(seats, proxy=True, further=True)[net]
            kinds = np.concatenate([kinds, np.tile(later, (len(segments) - 1, 1))])
        messages = self._rows(kinds, *ends, fifo, target, segments)
        self.woven.after(messages[0], sends[-1, net], self.channels[0].noticed)
        self._free(sends[:, net], messages, self.channels[0].local_credit)
        return messages

    def _stores(self, seats: list[Seat], number: Ints) -> Ints:
        """What receivers take out of their FIFOs; nothing, if it is in place already."""
        pairs, pieces = zip(self.channels, seats, strict=True), self.pieces
        if self.plan.direct:
            kinds = [self.woven.kind(channel.wait()) for channel, _ in pairs]
            return self._rows(
                np.array(kinds), self.dst, self.dst, Place(), Place(), np.full_like(pieces, -1)
            )
        kinds = [
            self.woven.kind(channel.local(self._pass(seat, SCRATCH, OUT, writes=1)))
            for channel, seat in pairs
        ]
        places = Place(0, 2 * number), Place(self.target)
        return self._rows(np.array(kinds), self.dst, self.dst, *places)

    @property
    def pieces(self) -> Ints:
        """The segments of a chunk, one below the other."""
        return np.arange(self.cut.subs)[:, None]

    def _rows(
        self,
        kinds: Ints,
        src: Ints,
        dst: Ints,
        source: Place,
        target: Place,
        segments: Ints | None = None,
    ) -> Ints:
        """A row of each part (second axis) for every piece of a chunk (first axis), in order."""
        segment = self.pieces if segments is None else segments
        made = self.woven.rows(kinds, src, dst, segment, source=source, target=target)
        rows = made.reshape(len(segment), -1)
        first = np.arange(len(rows))[:, None] == 0
        self.woven.after(rows, np.roll(rows, 1, 0), IN_ORDER, first)
        return rows

    def _couple(self, sent: Ints, stores: Ints) -> None:
        """Receivers wait for data, senders for credits."""
        pairs = list(zip(self.channels, self.parts, strict=True))
        syncs = [channel.sync(*part.hop) for channel, part in pairs]
        credits = [channel.credit(*part.hop) for channel, part in pairs]
        for lag in dict.fromkeys(syncs):
            mine = np.flatnonzero([other == lag for other in syncs])
            self.woven.after(stores[:, mine], sent[:, mine], lag)
        for lag in dict.fromkeys(credits):
            mine = np.flatnonzero([other == lag for other in credits])
            self._free(sent[:, mine], stores[:, mine], lag)

    def _free(self, filling: Ints, emptying: Ints, lag: Lag) -> None:
        """A slot is filled again once its last piece has been taken out."""
        self.woven.after(filling[0], emptying[-1], lag, self.cut.slots)
