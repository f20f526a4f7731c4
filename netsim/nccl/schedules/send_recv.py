"""Sends and receives as columns: parts, waves, and the rows that blocks and proxies run.

Batches that share no channel can be written together. A wave is all batches that follow nothing but
earlier waves."""

from collections.abc import Callable
from dataclasses import field, replace
from functools import cached_property
from typing import cast

import numpy as np
from numpy.typing import NDArray

from netsim.base.memo import different
from netsim.base.values import dataclass, grouped
from netsim.collectives.collective import Collective
from netsim.nccl.facts import Protocol
from netsim.nccl.p2p import BATCH, P2pWork, distinct_rows
from netsim.nccl.schedules.plan import Plan, Work
from netsim.nccl.schedules.primitives import Pass, PlannedChannel, RowKind, link_kinds
from netsim.nccl.schedules.transfers import Columns, Ints, Transfers
from netsim.nccl.schedules.writing import Output, Segments, Turn, Weave, chunk_table, segments
from netsim.schedule.extent import ALL, Extent
from netsim.schedule.partition import Fold
from netsim.schedule.schedule import IN, IN_ORDER, OUT, SCRATCH, Lag, Schedule


@dataclass(frozen=True, slots=True)
class Like:
    """What parts that are written together have in common.

    `of` is the number of parts of their send; `alone`: copies on one GPU."""

    protocol: str
    chunk: int
    count: int
    multiplicity: int
    of: int
    alone: bool


@dataclass(frozen=True, eq=False)
class MessageParts:
    """Parts of sends: where each lies (elements), its channel, its kind (in `likes`) and its wave.

    By the receivers' blocks: for every received part, its representative, and the rank."""

    src: Ints
    dst: Ints
    offset: Ints
    target: Ints
    channel: Ints
    like: Ints
    likes: tuple[Like, ...]
    wave: Ints
    received: Ints
    receiver: Ints

    @property
    def channels(self) -> int:
        """How many channels there are at most."""
        return int(self.channel.max(initial=0)) + 1

    def waves(self) -> list[tuple[Ints, Ints]]:
        """The parts of every wave, and which of those received belong to it."""
        count = int(self.wave.max(initial=-1)) + 1
        sent, taken = _grouped(self.wave, count), _grouped(self.wave[self.received], count)
        return list(zip(sent, taken, strict=True))


def written_parts(plan: Plan, element_bytes: int, extent: Extent) -> MessageParts:
    """The parts that are written: all, or those of representatives."""
    transfers, fold = plan.transfers, extent.fold
    assert transfers is not None
    if fold is None:
        sends = transfers.of(np.arange(transfers.collective.ranks), extent)
        stand_in, receiver = np.arange(len(sends.src)), sends.dst
    else:
        sends = transfers.of(fold.leaders.astype(np.int64), extent)
        stand_in, receiver = _received(transfers, sends, fold, extent)
    pieces = _Pieces.of(sends, element_bytes, merges_channels=extent.merges_channels)
    send, place = _spread(pieces.size[pieces.turn])
    row = pieces.first[pieces.turn[send]] + place
    start, _, channel, _ = pieces.table[row].T
    first = np.searchsorted(send, np.arange(len(sends.src)))
    others = np.flatnonzero(sends.src[stand_in] != sends.dst[stand_in])
    which, place = _spread(pieces.size[pieces.turn[stand_in[others]]])
    likes, like = _likes(sends, pieces, send, row)
    return MessageParts(
        sends.src[send],
        sends.dst[send],
        sends.offset[send] + start,
        sends.target[send] + start,
        channel,
        like,
        likes,
        pieces.wave[pieces.turn[send]],
        first[stand_in[others]][which] + place,
        receiver[others][which],
    )


def _received(
    transfers: Transfers, sends: Columns, fold: Fold, extent: Extent
) -> tuple[Ints, Ints]:
    """For every send that a representative receives: the send of its sender's representative in the
    same round, and the receiver."""
    src, dst, number = transfers.into(fold.leaders.astype(np.int64), extent)
    leader = np.full(transfers.rounds.n_ranks, -1)
    leader[fold.leaders] = np.arange(len(fold.leaders))
    rounds = transfers.rounds.n_ranks
    known = np.full(len(fold.leaders) * rounds, -1)
    known[leader[sends.src] * rounds + sends.number] = np.arange(len(sends.src))
    return known[leader[fold.ranks.first[src]] * rounds + number], dst


@dataclass(frozen=True, eq=False)
class _Pieces:
    """The pieces of every kind of work in a batch (a turn): rows of `table` from `first` on, `size`
    of them, with start, count, channel and multiplicity; and the turn of each send."""

    table: Ints
    first: Ints
    size: Ints
    works: list[P2pWork]
    wave: Ints
    turn: Ints

    @classmethod
    def of(cls, sends: Columns, element_bytes: int, *, merges_channels: bool) -> "_Pieces":
        """The pieces of all turns of some sends."""
        turns, turn = distinct_rows([sends.number // BATCH, sends.work])
        works = [sends.works[work] for _, work in turns]
        batches = grouped(range(len(turns)), lambda place: turns[place][0])
        pieces: list[list[tuple[int, ...]]] = [[] for _ in turns]
        wave, after = np.zeros(len(turns), np.int64), dict[int, int]()
        for batch in sorted(batches):
            mine = batches[batch]
            sets = {frozenset(works[place].channels) for place in mine}
            used = frozenset[int]().union(*sets)
            wave[mine] = now = max(after.get(channel, 0) for channel in used)
            after.update(dict.fromkeys(used, now + 1))
            apart = sum(map(len, sets)) == len(used)
            for place in mine:
                pieces[place] = _cut(
                    works[place], element_bytes, merges_channels=merges_channels and apart
                )
        size = np.array([len(cut) for cut in pieces], np.int64)
        table = np.array([row for cut in pieces for row in cut], np.int64).reshape(-1, 4)
        return cls(table, np.cumsum(size) - size, size, works, wave, turn)


def _cut(work: P2pWork, element_bytes: int, *, merges_channels: bool) -> list[tuple[int, ...]]:
    """Start, count (elements), channel and multiplicity of parts; equal ones are one."""
    counts = [nbytes // element_bytes for nbytes in work.parts]
    if merges_channels and len(set(work.parts)) == 1 < len(counts):
        return [(0, counts[0], min(work.channels), len(counts))]
    starts = np.cumsum([0, *counts]).tolist()
    columns = zip(starts, counts, work.channels, strict=False)
    return [(start, count, channel, 1) for start, count, channel in columns if count]


def _likes(sends: Columns, pieces: _Pieces, send: Ints, row: Ints) -> tuple[tuple[Like, ...], Ints]:
    works, turn = pieces.works, pieces.turn[send]
    alone = (sends.src == sends.dst).astype(np.int64)
    keys = list(dict.fromkeys((work.protocol, work.chunk) for work in works))
    kind = np.array([keys.index((work.protocol, work.chunk)) for work in works], np.int64)
    parts = np.array([len(work.parts) for work in works], np.int64)
    _, count, _, times = pieces.table[row].T
    table, like = distinct_rows([kind[turn], count, times, parts[turn], alone[send]])
    likes = [
        Like(*keys[kind], size, copies, of, bool(own)) for kind, size, copies, of, own in table
    ]
    return tuple(likes), like


def _spread(size: Ints) -> tuple[Ints, Ints]:
    number = np.repeat(np.arange(len(size)), size)
    return number, np.arange(len(number)) - np.repeat(np.cumsum(size) - size, size)


def _grouped(number: Ints, count: int) -> list[Ints]:
    order = np.argsort(number, kind="stable")
    return np.split(order, np.searchsorted(number[order], np.arange(1, count)))[:count]


# The Exchange: parts of sends that are equal in size, chunk by chunk, all at once.
# The sender's block writes into a FIFO of the receiver (or one that its proxy empties), and the
# receiver's block copies from there into the output.

Make = Callable[[PlannedChannel, tuple[int, int], float], RowKind]
NETWORK = 0  # among kinds of links


@dataclass(frozen=True, eq=False)
class Ends:
    """Parts of sends as columns: places (elements), the channel, and the number represented."""

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
    of each, `multiplicity` how many equal channels each part is for, `of` how many a send has."""

    plan: Plan
    ends: Ends
    crowd: tuple[Ints, Ints]
    cut: Segments
    multiplicity: int
    of: int
    woven: Weave = field(default_factory=Weave)

    def passes(self) -> list[Ints]:
        """Write all rows; returns those of the blocks at either end by piece and part."""
        ends, net = self.ends, self._link == NETWORK
        first = ends.src, np.where(net, ends.src, ends.dst)
        sends = self._rows(self._sending(proxy=False), *first)
        sent = sends.copy()
        if net.any():
            sent[:, net] = self._messages(sends, net)
        stores = self._stores()
        for kind in different(self._link).tolist():
            mine = np.flatnonzero(self._link == kind)
            hop = self.ends.hop(int(mine[0]))
            self.woven.after(stores[:, mine], sent[:, mine], self._one.sync(*hop))
            self._free(sent[:, mine], stores[:, mine], self._one.credit(*hop))
        return [sends, stores]

    def copies(self) -> list[Ints]:
        """Sends to oneself are copies by the block."""
        kinds = self._kinds(0, lambda channel, _, share: channel.local(_copy(IN, OUT, share)))
        return [self._rows(kinds, self.ends.src, self.ends.src)]

    @cached_property
    def _link(self) -> Ints:
        return link_kinds(self.plan, np.array(self.plan.node), self.ends.src, self.ends.dst)

    def _kinds(self, end: int, make: Make) -> Ints:
        """The kind of row of every part by the block at one end; each different one is made once,
        for its channel, a hop and the operation's share of the warps. Sends over one kind of link
        all take one kind of way."""
        ends = self.ends
        _, which = distinct_rows([ends.channel, ends.copies, self.crowd[end], self._link])
        found = []
        for part in np.unique(which, return_index=True)[1].tolist():
            channel = PlannedChannel(
                self.plan,
                int(ends.channel[part]),
                self.multiplicity,
                self.cut.subs,
                int(ends.copies[part]),
                self.of,
            )
            share = 1 / int(self.crowd[end][part])
            found.append(self.woven.kind(make(channel, ends.hop(part), share)))
        return np.array(found, np.int64)[which]

    def _sending(self, *, proxy: bool, further: bool = False) -> Ints:
        out = OUT if self.plan.direct else SCRATCH

        def make(channel: PlannedChannel, hop: tuple[int, int], share: float) -> RowKind:
            kind = channel.hop(*hop, Pass(IN, out, threads=share), proxy=proxy)
            return channel.further(kind) if further else kind

        return self._kinds(0, make)

    def _messages(self, sends: Ints, net: NDArray[np.bool_]) -> Ints:
        """What proxies send, a chunk at a time; of LL the receiver uses what there is."""
        channel, ends = self._one, (self.ends.src[net], self.ends.dst[net])
        segments = np.array([[self.cut.whole]]) if channel.simple else self.pieces
        kinds = self._sending(proxy=True)[net][None]
        if len(segments) > 1:
            later = self._sending(proxy=True, further=True)[net]
            kinds = np.concatenate([kinds, np.tile(later, (len(segments) - 1, 1))])
        messages = self._rows(kinds, *ends, segments, net)
        self.woven.after(messages, sends[:, net], channel.noticed)
        if len(messages) > 1:  # a message of LL begins when all of a chunk is there
            self.woven.after(messages[0], sends[-1, net], channel.noticed)
        self._free(sends[:, net], messages, channel.local_credit)
        return messages

    def _stores(self) -> Ints:
        dst, pieces = self.ends.dst, self.pieces
        if self.plan.direct:
            kinds = self._kinds(1, lambda channel, *_: channel.wait())
            return self._rows(kinds, dst, dst, np.full_like(pieces, -1))
        kinds = self._kinds(1, lambda channel, _, share: channel.store(_copy(SCRATCH, OUT, share)))
        return self._rows(kinds, dst, dst)

    @property
    def pieces(self) -> Ints:
        """The segments of a chunk, one below the other."""
        return np.arange(self.cut.subs)[:, None]

    def _rows(
        self,
        kinds: Ints,
        src: Ints,
        dst: Ints,
        segments: Ints | None = None,
        which: NDArray[np.bool_] | slice = slice(None),
    ) -> Ints:
        segment = self.pieces if segments is None else segments
        base, origin = self.ends.target[which], self.ends.offset[which]
        made = self.woven.rows(kinds, src, dst, segment, base=base, origin=origin)
        rows = made.reshape(len(segment), -1)
        first = np.arange(len(rows))[:, None] == 0
        self.woven.after(rows, np.roll(rows, 1, 0), IN_ORDER, first)
        return rows

    @property
    def _one(self) -> PlannedChannel:
        return PlannedChannel(self.plan, 0)

    def _free(self, filling: Ints, emptying: Ints, lag: Lag) -> None:
        """A slot is filled again once its last piece has been taken out."""
        self.woven.after(filling[0], emptying[-1], lag, self.cut.slots)


def _copy(source: int, target: int, share: float) -> Pass:
    return Pass(source, target, writes=1, threads=share)


# Grouped sends and receives: rounds in batches, each part of a send on a channel of its own.
# The operations of a batch on one block progress together, each by its share of the warps; the next
# batch of that block begins when all of them are done.

NOBODY: tuple[Ints, Ints] = (np.zeros(0, np.int64), np.zeros(0, np.int64))


def send_recv(collective: Collective, plan: Plan, extent: Extent = ALL) -> Schedule:
    """All transfers of a plan, batch after batch on every block."""
    output = Output(collective, extent=extent, keep=False)
    parts = written_parts(plan, collective.element_bytes, extent)
    written = _Writer(output, plan, parts, extent.fold)
    for sent, received in written.parts.waves():
        written.wave(sent, received)
    channel, rank = np.nonzero(written.doors >= 0)
    output.ends(rank, written.doors[channel, rank])
    return output.close()


@dataclass
class _Writer:
    """Parts on their way into an Output; `doors` are the marks after which the block of each
    channel (first axis) and rank may begin its next batch."""

    output: Output
    plan: Plan
    parts: MessageParts
    fold: Fold | None
    doors: NDArray[np.int32] = field(init=False)

    def __post_init__(self) -> None:
        self.doors = np.full((self.parts.channels, self.output.collective.ranks), -1, np.int32)

    @cached_property
    def leads(self) -> Ints:
        """The representative of each rank."""
        fold = self.fold
        ranks = np.arange(self.output.collective.ranks) if fold is None else fold.ranks.first
        return ranks.astype(np.int64)

    @cached_property
    def copies(self) -> Ints:
        """The number of ranks that each represents."""
        fold = self.fold
        one = np.ones(len(self.leads), np.int64)
        return one if fold is None else fold.ranks.count.astype(np.int64)

    def wave(self, sent: Ints, received: Ints) -> None:
        """Append the parts of a wave; blocks may receive representatives of parts."""
        parts = self.parts
        taken, receiver = parts.received[received], parts.receiver[received]
        crowd = np.zeros(self.doors.shape, np.int64)
        np.add.at(crowd, (parts.channel[sent], parts.src[sent]), 1)
        np.add.at(crowd, (parts.channel[taken], receiver), 1)
        ends = np.full((2, len(parts.src)), -1, np.int32)
        for like in different(parts.like[sent]).tolist():
            mine = sent[parts.like[sent] == like]
            ends[:, mine] = self._append(like, mine, crowd)
        self._close(
            np.concatenate([parts.channel[sent], parts.channel[taken]]),
            np.concatenate([parts.src[sent], receiver]),
            np.concatenate([ends[0, sent], ends[1, taken]]),
        )

    def _append(self, number: int, mine: Ints, crowd: Ints) -> NDArray[np.int32]:
        parts, like = self.parts, self.parts.likes[number]
        channel, src, dst = parts.channel[mine], parts.src[mine], parts.dst[mine]
        seats = (channel, src), (channel, self.leads[dst])
        plan = replace(self.plan, protocol=cast("Protocol", like.protocol))
        element_bytes = self.output.collective.element_bytes
        table = chunk_table(Work(0, 0, like.count, like.chunk), element_bytes)
        exchange = Exchange(
            plan,
            Ends(src, dst, parts.offset[mine], parts.target[mine], channel, self.copies[src]),
            (crowd[seats[0]], crowd[seats[1]]),
            segments(plan, element_bytes, table),
            like.multiplicity,
            like.of,
        )
        made = exchange.copies() if like.alone else exchange.passes()
        gates = np.full(len(exchange.woven), -1, np.int32)
        for rows, seat in zip(made, seats, strict=False):
            gates[rows] = self.doors[seat]
        gated = [(gates, IN_ORDER)] if gates.max() >= 0 else []
        turn = Turn(exchange.woven, NOBODY)
        turns = self.output.add(turn, exchange.cut, gated)
        last = [turns[-1][block[-1]] for block in made]
        return np.stack(last if len(last) > 1 else last * 2)

    def _close(self, channel: Ints, rank: Ints, rows: NDArray[np.int32]) -> None:
        order = np.lexsort((rank, channel))
        seat = channel[order] * len(self.leads) + rank[order]
        first = np.flatnonzero(np.diff(seat, prepend=-1))
        seats = np.divmod(seat[first], len(self.leads))
        joins = (np.append(first, len(seat)), rows[order], IN_ORDER)
        self.doors[seats] = self.output.builder.marks(seats[1], joins=joins)
