"""The Exchange: parts of sends that are equal in size, chunk by chunk, all at once.

The sender's block writes into a FIFO of the receiver (or one that its proxy empties), and the
receiver's block copies from there into the output.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from netsim.arrays import different
from netsim.nccl.p2p_rounds import distinct_rows
from netsim.nccl.schedules.hops import Channel, Pass, RowKind
from netsim.nccl.schedules.plan import Plan
from netsim.nccl.schedules.ways import link_kinds
from netsim.nccl.schedules.weave import NOWHERE, Place, Segments, Weave
from netsim.schedule import IN, IN_ORDER, OUT, SCRATCH, Lag

Ints = NDArray[np.int64]
Make = Callable[[Channel, tuple[int, int], float], RowKind]
NETWORK = 0  # among kinds of links


@dataclass(frozen=True, eq=False)
class Ends:
    """Parts of sends as columns: where each lies (elements), the channel that moves it, and how
    many it stands for.
    """

    src: Ints
    dst: Ints
    offset: Ints
    target: Ints
    channel: Ints
    copies: Ints

    def hop(self, part: int) -> tuple[int, int]:
        """From whom to whom a part goes."""
        return int(self.src[part]), int(self.dst[part])


@dataclass
class Exchange:
    """Rows of one chunk of all parts; `crowd` is how many operations share the block at either end
    of each, `multiplicity` how many equal channels each part is for.
    """

    plan: Plan
    ends: Ends
    crowd: tuple[Ints, Ints]
    cut: Segments
    multiplicity: int = 1
    woven: Weave = field(default_factory=Weave)

    def passes(self) -> list[Ints]:
        """Write all rows; returns those of the blocks at either end by piece and part."""
        ends, net, number = self.ends, self._link == NETWORK, np.arange(len(self.ends.src))
        out = NOWHERE if self.plan.direct else 2 * number
        arrival = Place(ends.target, out)
        fifo = Place(ends.target, np.where(net, 2 * number + 1, out))
        sends = self._rows(
            self._sending(proxy=False),
            *(ends.src, np.where(net, ends.src, ends.dst)),
            *(Place(ends.offset), fifo),
        )
        sent = sends.copy()
        if net.any():
            sent[:, net] = self._messages(sends, net, arrival)
        stores = self._stores(number)
        self._couple(sent, stores)
        return [sends, stores]

    def copies(self) -> list[Ints]:
        """Sends to oneself are copies by the block."""
        kinds = self._kinds(0, lambda channel, _, share: channel.local(_copy(IN, OUT, share)))
        places = Place(self.ends.offset), Place(self.ends.target)
        return [self._rows(kinds, self.ends.src, self.ends.src, *places)]

    @cached_property
    def _link(self) -> Ints:
        """What joins the ends of each part."""
        return link_kinds(self.plan, np.array(self.plan.node), self.ends.src, self.ends.dst)

    def _kinds(self, end: int, make: Make) -> Ints:
        """The kind of row of every part by the block at one end; each different one is made once,
        for its channel, a hop and the operation's share of the warps. Sends over one kind of link
        all take one kind of way.
        """
        ends = self.ends
        _, which = distinct_rows([ends.channel, ends.copies, self.crowd[end], self._link])
        found = []
        for part in np.unique(which, return_index=True)[1].tolist():
            channel = Channel(
                self.plan,
                int(ends.channel[part]),
                self.multiplicity,
                self.cut.subs,
                int(ends.copies[part]),
            )
            share = 1 / int(self.crowd[end][part])
            found.append(self.woven.kind(make(channel, ends.hop(part), share)))
        return np.array(found, np.int64)[which]

    def _sending(self, *, proxy: bool, further: bool = False) -> Ints:
        """Kinds of the rows that move data to the receivers."""
        out = OUT if self.plan.direct else SCRATCH

        def make(channel: Channel, hop: tuple[int, int], share: float) -> RowKind:
            kind = channel.hop(*hop, Pass(IN, out, threads=share), proxy=proxy)
            return channel.further(kind) if further else kind

        return self._kinds(0, make)

    def _messages(self, sends: Ints, net: NDArray[np.bool_], arrival: Place) -> Ints:
        """What proxies send from the FIFOs that their blocks have filled, a chunk at a time; of
        LL the receiver uses what there is.
        """
        some, channel = np.flatnonzero(net), self._one
        target = Place(self.ends.target[net], np.broadcast_to(arrival.region, net.shape)[net])
        ends, fifo = (self.ends.src[net], self.ends.dst[net]), Place(0, 2 * some + 1)
        segments = np.array([[self.cut.whole]]) if channel.simple else self.pieces
        kinds = self._sending(proxy=True)[net][None]
        if len(segments) > 1:
            later = self._sending(proxy=True, further=True)[net]
            kinds = np.concatenate([kinds, np.tile(later, (len(segments) - 1, 1))])
        messages = self._rows(kinds, *ends, fifo, target, segments)
        self.woven.after(messages[0], sends[-1, net], channel.noticed)
        self._free(sends[:, net], messages, channel.local_credit)
        return messages

    def _stores(self, number: Ints) -> Ints:
        """What receivers take out of their FIFOs; nothing, if it is in place already."""
        dst, pieces = self.ends.dst, self.pieces
        if self.plan.direct:
            kinds = self._kinds(1, lambda channel, *_: channel.wait())
            return self._rows(kinds, dst, dst, Place(), Place(), np.full_like(pieces, -1))
        kinds = self._kinds(1, lambda channel, _, share: channel.local(_copy(SCRATCH, OUT, share)))
        return self._rows(kinds, dst, dst, Place(0, 2 * number), Place(self.ends.target))

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
        for kind in different(self._link).tolist():
            mine = np.flatnonzero(self._link == kind)
            hop = self.ends.hop(int(mine[0]))
            self.woven.after(stores[:, mine], sent[:, mine], self._one.sync(*hop))
            self._free(sent[:, mine], stores[:, mine], self._one.credit(*hop))

    @property
    def _one(self) -> Channel:
        """Any of the channels, for what is the same on all."""
        return Channel(self.plan, 0)

    def _free(self, filling: Ints, emptying: Ints, lag: Lag) -> None:
        """A slot is filled again once its last piece has been taken out."""
        self.woven.after(filling[0], emptying[-1], lag, self.cut.slots)


def _copy(source: int, target: int, share: float) -> Pass:
    return Pass(source, target, writes=1, threads=share)
