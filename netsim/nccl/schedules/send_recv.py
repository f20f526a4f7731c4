"""Schedules of sends and receives: parts, waves, and the rows that blocks and proxies run.

Each send is divided into parts, each on a channel of its own. Batches of rounds that share no
channel are written together: a wave is all batches whose predecessors belong to earlier waves.
"""

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
class PartKind:
    """What parts that are written together have in common.

    Args:
        chunk: bytes of a chunk.
        count: elements of the part.
        multiplicity: equal channels that the part represents.
        of: number of parts of the send.
        alone: whether the part is a copy on one GPU.
    """

    protocol: str
    chunk: int
    count: int
    multiplicity: int
    of: int
    alone: bool


@dataclass(frozen=True, eq=False)
class MessageParts:
    """Parts of sends as columns.

    Args:
        src: sender.
        dst: receiver.
        offset: position in the sender's input, elements.
        target: position in the receiver's output, elements.
        channel: channel.
        like: number of its PartKind in `likes`.
        wave: wave.
        received: for every part that a written block receives, the part that represents it.
        receiver: the rank of that block.
    """

    src: Ints
    dst: Ints
    offset: Ints
    target: Ints
    channel: Ints
    like: Ints
    likes: tuple[PartKind, ...]
    wave: Ints
    received: Ints
    receiver: Ints

    @property
    def channels(self) -> int:
        """An upper bound of the number of channels."""
        return int(self.channel.max(initial=0)) + 1

    def waves(self) -> list[tuple[Ints, Ints]]:
        """Return for every wave its parts, and the positions in `received` that belong to it."""
        count = int(self.wave.max(initial=-1)) + 1
        sent = _split_by_number(self.wave, count)
        taken = _split_by_number(self.wave[self.received], count)
        return list(zip(sent, taken, strict=True))


def written_parts(plan: Plan, element_bytes: int, extent: Extent) -> MessageParts:
    """Return the parts that are written: all, or those of representatives."""
    transfers = plan.transfers
    fold = extent.fold
    assert transfers is not None
    if fold is None:
        sends = transfers.of(np.arange(transfers.collective.ranks), extent)
        stand_in = np.arange(len(sends.src))
        receiver = sends.dst
    else:
        sends = transfers.of(fold.leaders.astype(np.int64), extent)
        stand_in, receiver = _received(transfers, sends, fold, extent)
    pieces = _Pieces.of(sends, element_bytes, merges_channels=extent.merges_channels)
    send, place = _numbered_within(pieces.size[pieces.turn])
    row = pieces.first[pieces.turn[send]] + place
    start, _, channel, _ = pieces.table[row].T
    first = np.searchsorted(send, np.arange(len(sends.src)))
    others = np.flatnonzero(sends.src[stand_in] != sends.dst[stand_in])
    which, place = _numbered_within(pieces.size[pieces.turn[stand_in[others]]])
    likes, like = _kinds_of_parts(sends, pieces, send, row)
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
    """For every send to a representative: the send that represents it, and the receiver.

    It is the send of its sender's representative in the same round.
    """
    src, dst, number = transfers.into(fold.leaders.astype(np.int64), extent)
    leader = np.full(transfers.rounds.n_ranks, -1)
    leader[fold.leaders] = np.arange(len(fold.leaders))
    rounds = transfers.rounds.n_ranks
    send_of_leader = np.full(len(fold.leaders) * rounds, -1)
    send_of_leader[leader[sends.src] * rounds + sends.number] = np.arange(len(sends.src))
    return send_of_leader[leader[fold.ranks.first[src]] * rounds + number], dst


@dataclass(frozen=True, eq=False)
class _Pieces:
    """The parts of every distinct kind of work in a batch.

    Args:
        table: rows with start, count, channel and multiplicity.
        first: first row of each kind.
        size: number of rows of each kind.
        wave: wave of each kind.
        turn: kind of each send.
    """

    table: Ints
    first: Ints
    size: Ints
    works: list[P2pWork]
    wave: Ints
    turn: Ints

    @classmethod
    def of(cls, sends: Columns, element_bytes: int, *, merges_channels: bool) -> "_Pieces":
        """Divide the work of some sends into parts."""
        turns, turn = distinct_rows([sends.number // BATCH, sends.work])
        works = [sends.works[work] for _, work in turns]
        batches = grouped(range(len(turns)), lambda place: turns[place][0])
        pieces: list[list[tuple[int, ...]]] = [[] for _ in turns]
        wave = np.zeros(len(turns), np.int64)
        next_wave = dict[int, int]()
        for batch in sorted(batches):
            places_of_batch = batches[batch]
            sets = {frozenset(works[place].channels) for place in places_of_batch}
            used = frozenset[int]().union(*sets)
            wave[places_of_batch] = current_wave = max(
                next_wave.get(channel, 0) for channel in used
            )
            next_wave.update(dict.fromkeys(used, current_wave + 1))
            are_disjoint = sum(map(len, sets)) == len(used)
            for place in places_of_batch:
                pieces[place] = _cut(
                    works[place], element_bytes, merges_channels=merges_channels and are_disjoint
                )
        size = np.array([len(cut) for cut in pieces], np.int64)
        table = np.array([row for cut in pieces for row in cut], np.int64).reshape(-1, 4)
        return cls(table, np.cumsum(size) - size, size, works, wave, turn)


def _cut(work: P2pWork, element_bytes: int, *, merges_channels: bool) -> list[tuple[int, ...]]:
    """Return start, count (elements), channel and multiplicity of parts; with
    `merges_channels`, equal ones as one.
    """
    counts = [nbytes // element_bytes for nbytes in work.parts]
    if merges_channels and len(set(work.parts)) == 1 < len(counts):
        return [(0, counts[0], min(work.channels), len(counts))]
    starts = np.cumsum([0, *counts]).tolist()
    columns = zip(starts, counts, work.channels, strict=False)
    return [(start, count, channel, 1) for start, count, channel in columns if count]


def _kinds_of_parts(
    sends: Columns, pieces: _Pieces, send: Ints, row: Ints
) -> tuple[tuple[PartKind, ...], Ints]:
    """The distinct kinds of parts, and the kind of each part."""
    works = pieces.works
    turn = pieces.turn[send]
    alone = (sends.src == sends.dst).astype(np.int64)
    keys = list(dict.fromkeys((work.protocol, work.chunk) for work in works))
    kind_of_work = np.array([keys.index((work.protocol, work.chunk)) for work in works], np.int64)
    parts = np.array([len(work.parts) for work in works], np.int64)
    _, count, _, times = pieces.table[row].T
    table, like = distinct_rows([kind_of_work[turn], count, times, parts[turn], alone[send]])
    likes = [
        PartKind(*keys[kind_of_work], size, copies, of, bool(is_copy))
        for kind_of_work, size, copies, of, is_copy in table
    ]
    return tuple(likes), like


def _numbered_within(size: Ints) -> tuple[Ints, Ints]:
    """For groups of these sizes: the group of every member, and its number in the group."""
    number = np.repeat(np.arange(len(size)), size)
    return number, np.arange(len(number)) - np.repeat(np.cumsum(size) - size, size)


def _split_by_number(number: Ints, count: int) -> list[Ints]:
    """The positions of each number from 0 to `count` - 1."""
    order = np.argsort(number, kind="stable")
    return np.split(order, np.searchsorted(number[order], np.arange(1, count)))[:count]


Make = Callable[[PlannedChannel, tuple[int, int], float], RowKind]
NETWORK = 0  # the number of network links among kinds of links


@dataclass(frozen=True, eq=False)
class PartColumns:
    """Parts of sends as columns: places (elements), channel, and number of ranks that they
    represent.
    """

    src: Ints
    dst: Ints
    offset: Ints
    target: Ints
    channel: Ints
    copies: Ints

    def hop(self, part: int) -> tuple[int, int]:
        """Return the sender and receiver of a part."""
        return int(self.src[part]), int(self.dst[part])


@dataclass
class Exchange:
    """The rows of one chunk of equal parts.

    The sender's block writes into a FIFO of the receiver (or one that its proxy empties), and the
    receiver's block copies from there into the output (src/device/sendrecv.h).

    Args:
        crowd: how many operations share the block of the sender, and of the receiver, of each part.
        chunk_segments: how a chunk is divided into segments.
        multiplicity: equal channels that each part represents.
        parts_per_send: parts of each send.
    """

    plan: Plan
    ends: PartColumns
    crowd: tuple[Ints, Ints]
    chunk_segments: Segments
    multiplicity: int
    parts_per_send: int
    woven: Weave = field(default_factory=Weave)

    def passes(self) -> list[Ints]:
        """Write all rows; return those of the senders' and of the receivers' blocks, by segment
        and part.
        """
        ends = self.ends
        over_network = self._link == NETWORK
        first = ends.src, np.where(over_network, ends.src, ends.dst)
        sends = self._rows(self._sending(proxy=False), *first)
        sent = sends.copy()
        if over_network.any():
            sent[:, over_network] = self._messages(sends, over_network)
        stores = self._stores()
        for kind in different(self._link).tolist():
            parts_of_kind = np.flatnonzero(self._link == kind)
            hop = self.ends.hop(int(parts_of_kind[0]))
            self.woven.after(
                stores[:, parts_of_kind], sent[:, parts_of_kind], self._any_channel.sync(*hop)
            )
            self._free(
                sent[:, parts_of_kind], stores[:, parts_of_kind], self._any_channel.credit(*hop)
            )
        return [sends, stores]

    def copies(self) -> list[Ints]:
        """Write sends of ranks to themselves as copies."""
        kinds = self._kinds(0, lambda channel, _, share: channel.local(_copy(IN, OUT, share)))
        return [self._rows(kinds, self.ends.src, self.ends.src)]

    @cached_property
    def _link(self) -> Ints:
        return link_kinds(self.plan, np.array(self.plan.node), self.ends.src, self.ends.dst)

    def _kinds(self, end: int, make: Make) -> Ints:
        """The kind of row of every part by the block at one end.

        Each distinct kind is made once, for its channel, hop, and share of the warps. Sends over
        one kind of link all use one kind of route.
        """
        ends = self.ends
        _, which = distinct_rows([ends.channel, ends.copies, self.crowd[end], self._link])
        kinds = []
        for part in np.unique(which, return_index=True)[1].tolist():
            channel = PlannedChannel(
                self.plan,
                int(ends.channel[part]),
                self.multiplicity,
                self.chunk_segments.subs,
                int(ends.copies[part]),
                self.parts_per_send,
            )
            share = 1 / int(self.crowd[end][part])
            kinds.append(self.woven.kind(make(channel, ends.hop(part), share)))
        return np.array(kinds, np.int64)[which]

    def _sending(self, *, proxy: bool, further: bool = False) -> Ints:
        """The kinds of rows by which blocks, or proxies, send."""
        out = OUT if self.plan.direct else SCRATCH

        def make(channel: PlannedChannel, hop: tuple[int, int], share: float) -> RowKind:
            kind = channel.hop(*hop, Pass(IN, out, threads=share), proxy=proxy)
            return channel.further(kind) if further else kind

        return self._kinds(0, make)

    def _messages(self, sends: Ints, net: NDArray[np.bool_]) -> Ints:
        """Write the messages of proxies: a chunk at a time; of LL, receivers use segments as
        they arrive.
        """
        channel = self._any_channel
        ends = (self.ends.src[net], self.ends.dst[net])
        segments = np.array([[self.chunk_segments.first_chunk]]) if channel.simple else self.pieces
        kinds = self._sending(proxy=True)[net][None]
        if len(segments) > 1:
            later = self._sending(proxy=True, further=True)[net]
            kinds = np.concatenate([kinds, np.tile(later, (len(segments) - 1, 1))])
        messages = self._rows(kinds, *ends, segments, net)
        self.woven.after(messages, sends[:, net], channel.noticed)
        if len(messages) > 1:  # a message of LL starts when its chunk is complete
            self.woven.after(messages[0], sends[-1, net], channel.noticed)
        self._free(sends[:, net], messages, channel.local_credit)
        return messages

    def _stores(self) -> Ints:
        """Write the rows by which receivers copy into their output, or only wait for direct
        messages.
        """
        dst = self.ends.dst
        pieces = self.pieces
        if self.plan.direct:
            kinds = self._kinds(1, lambda channel, *_: channel.wait())
            return self._rows(kinds, dst, dst, np.full_like(pieces, -1))
        kinds = self._kinds(1, lambda channel, _, share: channel.store(_copy(SCRATCH, OUT, share)))
        return self._rows(kinds, dst, dst)

    @property
    def pieces(self) -> Ints:
        """The segments of a chunk as a column."""
        return np.arange(self.chunk_segments.subs)[:, None]

    def _rows(
        self,
        kinds: Ints,
        src: Ints,
        dst: Ints,
        segments: Ints | None = None,
        which: NDArray[np.bool_] | slice = slice(None),
    ) -> Ints:
        """Add rows that follow each other segment by segment."""
        segment = self.pieces if segments is None else segments
        base = self.ends.target[which]
        origin = self.ends.offset[which]
        made = self.woven.rows(kinds, src, dst, segment, base=base, origin=origin)
        rows = made.reshape(len(segment), -1)
        first = np.arange(len(rows))[:, None] == 0
        self.woven.after(rows, np.roll(rows, 1, 0), IN_ORDER, first)
        return rows

    @property
    def _any_channel(self) -> PlannedChannel:
        return PlannedChannel(self.plan, 0)

    def _free(self, filling: Ints, emptying: Ints, lag: Lag) -> None:
        """Let a slot be filled again once its last segment has been taken out."""
        self.woven.after(filling[0], emptying[-1], lag, self.chunk_segments.slots)


def _copy(source: int, target: int, share: float) -> Pass:
    return Pass(source, target, writes=1, threads=share)


NOBODY: tuple[Ints, Ints] = (np.zeros(0, np.int64), np.zeros(0, np.int64))


def send_recv(collective: Collective, plan: Plan, extent: Extent = ALL) -> Schedule:
    """Return the schedule of all sends and receives of a plan, batch after batch on every block.

    The operations of a batch on one block progress together, each with its share of the warps. The
    next batch of that block begins when all of them are done.
    """
    output = Output(collective, extent=extent, keep=False)
    parts = written_parts(plan, collective.element_bytes, extent)
    written = _Writer(output, plan, parts, extent.fold)
    for sent, received in written.parts.waves():
        written.wave(sent, received)
    channel, rank = np.nonzero(written.last_marks >= 0)
    output.ends(rank, written.last_marks[channel, rank])
    return output.close()


@dataclass
class _Writer:
    """Writes parts to an Output.

    `last_marks` [channel, rank] are the marks after which a block may begin its next batch.
    """

    output: Output
    plan: Plan
    parts: MessageParts
    fold: Fold | None
    last_marks: NDArray[np.int32] = field(init=False)

    def __post_init__(self) -> None:
        self.last_marks = np.full((self.parts.channels, self.output.collective.ranks), -1, np.int32)

    @cached_property
    def representatives(self) -> Ints:
        """The representative of each rank."""
        fold = self.fold
        ranks = np.arange(self.output.collective.ranks) if fold is None else fold.ranks.first
        return ranks.astype(np.int64)

    @cached_property
    def copies(self) -> Ints:
        """The number of ranks that each rank represents."""
        fold = self.fold
        each_itself = np.ones(len(self.representatives), np.int64)
        return each_itself if fold is None else fold.ranks.count.astype(np.int64)

    def wave(self, sent: Ints, received: Ints) -> None:
        """Write the parts of a wave."""
        parts = self.parts
        taken = parts.received[received]
        receiver = parts.receiver[received]
        crowd = np.zeros(self.last_marks.shape, np.int64)
        np.add.at(crowd, (parts.channel[sent], parts.src[sent]), 1)
        np.add.at(crowd, (parts.channel[taken], receiver), 1)
        ends = np.full((2, len(parts.src)), -1, np.int32)
        for like in different(parts.like[sent]).tolist():
            parts_of_kind = sent[parts.like[sent] == like]
            ends[:, parts_of_kind] = self._append(like, parts_of_kind, crowd)
        self._close(
            np.concatenate([parts.channel[sent], parts.channel[taken]]),
            np.concatenate([parts.src[sent], receiver]),
            np.concatenate([ends[0, sent], ends[1, taken]]),
        )

    def _append(self, number: int, part_numbers: Ints, crowd: Ints) -> NDArray[np.int32]:
        """Write the parts of one kind; return the last rows of the senders' and receivers'
        blocks.
        """
        parts, like = self.parts, self.parts.likes[number]
        channel = parts.channel[part_numbers]
        src = parts.src[part_numbers]
        dst = parts.dst[part_numbers]
        blocks = (channel, src), (channel, self.representatives[dst])
        plan = replace(self.plan, protocol=cast("Protocol", like.protocol))
        element_bytes = self.output.collective.element_bytes
        table = chunk_table(Work(0, 0, like.count, like.chunk), element_bytes)
        exchange = Exchange(
            plan,
            PartColumns(
                src,
                dst,
                parts.offset[part_numbers],
                parts.target[part_numbers],
                channel,
                self.copies[src],
            ),
            (crowd[blocks[0]], crowd[blocks[1]]),
            segments(plan, element_bytes, table),
            like.multiplicity,
            like.of,
        )
        written_rows = exchange.copies() if like.alone else exchange.passes()
        awaited_marks = np.full(len(exchange.woven), -1, np.int32)
        for rows, seat in zip(written_rows, blocks, strict=False):
            awaited_marks[rows] = self.last_marks[seat]
        gated = [(awaited_marks, IN_ORDER)] if awaited_marks.max() >= 0 else []
        turn = Turn(exchange.woven, NOBODY)
        turns = self.output.add(turn, exchange.chunk_segments, gated)
        last = [turns[-1][block[-1]] for block in written_rows]
        return np.stack(last if len(last) > 1 else last * 2)

    def _close(self, channel: Ints, rank: Ints, rows: NDArray[np.int32]) -> None:
        """Add marks that end the batch of every block."""
        order = np.lexsort((rank, channel))
        block = channel[order] * len(self.representatives) + rank[order]
        first = np.flatnonzero(np.diff(block, prepend=-1))
        block_ends = np.divmod(block[first], len(self.representatives))
        joins = (np.append(first, len(block)), rows[order], IN_ORDER)
        self.last_marks[block_ends] = self.output.builder.marks(block_ends[1], joins=joins)
