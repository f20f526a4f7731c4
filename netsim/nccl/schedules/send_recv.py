"""Schedules of sends and receives: parts, waves, and the rows of blocks and proxies.

Each send is divided into parts, each on a channel of its own. NCCL runs the rounds in batches.
Batches that share no channel are written together as one wave: a batch belongs to the first wave
after those of all earlier batches that share a channel with it.
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
from netsim.nccl.schedules.writing import (
    LoopBody,
    Output,
    Segments,
    WrittenLoop,
    chunk_table,
    segments,
)
from netsim.schedule.extent import ALL, Extent
from netsim.schedule.partition import Fold
from netsim.schedule.schedule import IN, IN_ORDER, OUT, SCRATCH, Lag, Schedule


@dataclass(frozen=True, slots=True)
class PartKind:
    """What parts that are written together have in common.

    - `protocol`: LL or Simple.
    - `chunk`: the bytes of a chunk.
    - `count`: the elements of a part.
    - `multiplicity`: the number of equal channels that a part represents.
    - `parts_per_send`: the number of parts of a send.
    - `is_copy`: whether a part is a copy on one GPU.
    """

    protocol: str
    chunk: int
    count: int
    multiplicity: int
    parts_per_send: int
    is_copy: bool


@dataclass(frozen=True, eq=False)
class MessageParts:
    """Parts of sends as columns.

    Args:
        src: sender.
        dst: receiver.
        offset: position in the sender's input, in elements.
        target: position in the receiver's output, in elements.
        channel: channel.
        kind_of_part: index of the part's PartKind in `part_kinds`.
        wave: number of the wave.
        received: for every part that a representative receives, the part that is written for it.
        receiver: for every entry of `received`, the representative that receives it.
    """

    src: Ints
    dst: Ints
    offset: Ints
    target: Ints
    channel: Ints
    kind_of_part: Ints
    part_kinds: tuple[PartKind, ...]
    wave: Ints
    received: Ints
    receiver: Ints

    @property
    def channels(self) -> int:
        """An upper bound of the number of channels."""
        return int(self.channel.max(initial=0)) + 1

    def waves(self) -> list[tuple[Ints, Ints]]:
        """Return a pair for every wave: its parts, and its entries of `received`.

        Both are arrays of positions (in the columns of parts, and in `received`).
        """
        count = int(self.wave.max(initial=-1)) + 1
        sent = _split_by_number(self.wave, count)
        taken = _split_by_number(self.wave[self.received], count)
        return list(zip(sent, taken, strict=True))


def written_parts(plan: Plan, element_bytes: int, extent: Extent) -> MessageParts:
    """Return the parts that are written: those that all ranks, or all representatives, send."""
    transfers = plan.transfers
    fold = extent.fold
    assert transfers is not None
    if fold is None:
        sends = transfers.of(np.arange(transfers.collective.ranks), extent)
        representative_send = np.arange(len(sends.src))
        receiver = sends.dst
    else:
        sends = transfers.of(fold.leaders.astype(np.int64), extent)
        representative_send, receiver = _received(transfers, sends, fold, extent)
    pieces = _Pieces.of(sends, element_bytes, merges_channels=extent.merges_channels)
    send, place = _members_of_groups(pieces.size[pieces.kind_of_send])
    row = pieces.first[pieces.kind_of_send[send]] + place
    start, _, channel, _ = pieces.table[row].T
    first = np.searchsorted(send, np.arange(len(sends.src)))
    others = np.flatnonzero(sends.src[representative_send] != sends.dst[representative_send])
    which, place = _members_of_groups(pieces.size[pieces.kind_of_send[representative_send[others]]])
    part_kinds, kind_of_part = _kinds_of_parts(sends, pieces, send, row)
    return MessageParts(
        sends.src[send],
        sends.dst[send],
        sends.offset[send] + start,
        sends.target[send] + start,
        channel,
        kind_of_part,
        part_kinds,
        pieces.wave[pieces.kind_of_send[send]],
        first[representative_send[others]][which] + place,
        receiver[others][which],
    )


def _received(
    transfers: Transfers, sends: Columns, fold: Fold, extent: Extent
) -> tuple[Ints, Ints]:
    """Return for every send to a representative the send that is written in its place.

    A send to a representative is replaced by the send of its sender's representative in the same
    round. The second result has the representatives that receive.
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
    """The parts of every kind of send. Sends with equal parts in the same batch are of one kind.

    Args:
        table: one row for each part: start and count (elements), channel, and multiplicity.
        first: first row of each kind.
        size: number of rows of each kind.
        works: the work of each kind.
        wave: wave of each kind.
        kind_of_send: kind of each send.
    """

    table: Ints
    first: Ints
    size: Ints
    works: list[P2pWork]
    wave: Ints
    kind_of_send: Ints

    @classmethod
    def of(cls, sends: Columns, element_bytes: int, *, merges_channels: bool) -> "_Pieces":
        """Return the parts of some sends.

        With `merges_channels`, equal parts on several channels become one part with a multiplicity.
        """
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
    """Return the parts of a send as rows: start, count (both in elements), channel and
    multiplicity.

    With `merges_channels`, equal parts on several channels are one row.
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
    """Return the distinct kinds of parts, and for each part the index of its kind.

    - `send`: the send of each part.
    - `row`: the part's row in the table of `pieces`.
    """
    works = pieces.works
    turn = pieces.kind_of_send[send]
    alone = (sends.src == sends.dst).astype(np.int64)
    keys = list(dict.fromkeys((work.protocol, work.chunk) for work in works))
    kind_of_work = np.array([keys.index((work.protocol, work.chunk)) for work in works], np.int64)
    parts = np.array([len(work.parts) for work in works], np.int64)
    _, count, _, times = pieces.table[row].T
    table, kind_of_part = distinct_rows(
        [kind_of_work[turn], count, times, parts[turn], alone[send]]
    )
    part_kinds = [
        PartKind(*keys[kind_of_work], size, copies, of, bool(is_copy))
        for kind_of_work, size, copies, of, is_copy in table
    ]
    return tuple(part_kinds), kind_of_part


def _members_of_groups(size: Ints) -> tuple[Ints, Ints]:
    """Return, for groups of the given sizes, each member's group and its index within that group.

    Sizes 2 and 1 give groups 0, 0, 1 and indices 0, 1, 0.
    """
    number = np.repeat(np.arange(len(size)), size)
    return number, np.arange(len(number)) - np.repeat(np.cumsum(size) - size, size)


def _split_by_number(number: Ints, count: int) -> list[Ints]:
    """Return for each number from 0 to `count` - 1 the positions in `number` where it is."""
    order = np.argsort(number, kind="stable")
    return np.split(order, np.searchsorted(number[order], np.arange(1, count)))[:count]


# A function that returns a kind of row for a channel, a hop, and a fraction of the block's threads.
Make = Callable[[PlannedChannel, tuple[int, int], float], RowKind]
NETWORK = 0  # the number of network links among kinds of links


@dataclass(frozen=True, eq=False)
class PartColumns:
    """Parts of sends as columns.

    - `src`, `dst`: sender and receiver.
    - `offset`, `target`: position in the sender's input and in the receiver's output, in elements.
    - `channel`: channel.
    - `copies`: the number of ranks that the sender represents.
    """

    src: Ints
    dst: Ints
    offset: Ints
    target: Ints
    channel: Ints
    copies: Ints

    def hop(self, part: int) -> tuple[int, int]:
        """Return the sender and the receiver of a part."""
        return int(self.src[part]), int(self.dst[part])


@dataclass
class Exchange:
    """Writes the rows of one chunk of parts of one kind.

    The sender's block writes into a FIFO of the receiver (or into one that its proxy empties), and
    the receiver's block copies from there into the output (src/device/sendrecv.h).

    Args:
        ends: the parts.
        operations_per_block: two columns: for each part, the number of operations that share the
            block of its sender, and the number of those that share the block of its receiver.
        chunk_segments: how a chunk is divided into segments.
        multiplicity: number of equal channels that each part represents.
        parts_per_send: number of parts of each send.
    """

    plan: Plan
    ends: PartColumns
    operations_per_block: tuple[Ints, Ints]
    chunk_segments: Segments
    multiplicity: int
    parts_per_send: int
    body: LoopBody = field(default_factory=LoopBody)

    def passes(self) -> list[Ints]:
        """Write all rows of a chunk.

        Returns the rows of the senders' blocks and those of the receivers' blocks, each as
        [segment, part].
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
            self.body.after(
                stores[:, parts_of_kind], sent[:, parts_of_kind], self._any_channel.sync(*hop)
            )
            self._free(
                sent[:, parts_of_kind], stores[:, parts_of_kind], self._any_channel.credit(*hop)
            )
        return [sends, stores]

    def copies(self) -> list[Ints]:
        """Write the copies that take the place of sends of ranks to themselves.

        Returns a list with their rows as an array [segment, part].
        """
        kinds = self._kinds(0, lambda channel, _, share: channel.local(_copy(IN, OUT, share)))
        return [self._rows(kinds, self.ends.src, self.ends.src)]

    @cached_property
    def _link(self) -> Ints:
        """The kind of link of each part, as `link_kinds` numbers it."""
        return link_kinds(self.plan, np.array(self.plan.node), self.ends.src, self.ends.dst)

    def _kinds(self, end: int, make: Make) -> Ints:
        """Return for every part the number of the kind of row of its block at one end.

        - `end`: 0: the sender's block; 1: the receiver's.
        - `make`: returns the kind. It is called once for each distinct channel, kind of link,
          number of copies, and fraction of the block's warps. All sends over one kind of link have
          one kind of route.
        """
        ends = self.ends
        _, which = distinct_rows(
            [ends.channel, ends.copies, self.operations_per_block[end], self._link]
        )
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
            share = 1 / int(self.operations_per_block[end][part])
            kinds.append(self.body.kind(make(channel, ends.hop(part), share)))
        return np.array(kinds, np.int64)[which]

    def _sending(self, *, proxy: bool, further: bool = False) -> Ints:
        """Return for every part the kind of row (by number) by which its block or proxy sends.

        - `proxy`: whether the row is the proxy's.
        - `further`: whether it is the proxy's second or a later row of a message.
        """
        out = OUT if self.plan.direct else SCRATCH

        def make(channel: PlannedChannel, hop: tuple[int, int], share: float) -> RowKind:
            """Return the kind of row by which a block or its proxy sends with a fraction of the
            threads.
            """
            kind = channel.hop(*hop, Pass(IN, out, threads=share), proxy=proxy)
            return channel.further(kind) if further else kind

        return self._kinds(0, make)

    def _messages(self, sends: Ints, net: NDArray[np.bool_]) -> Ints:
        """Write the rows by which proxies send parts to other nodes; return them as [row, part].

        - `sends`: the rows of the blocks, as [segment, part].
        - `net`: a mask of the parts.

        With Simple a message has one row for the chunk. With LL and LL128 it has one for each
        segment, because receivers use segments as they arrive.
        """
        channel = self._any_channel
        ends = (self.ends.src[net], self.ends.dst[net])
        segments = np.array([[self.chunk_segments.first_chunk]]) if channel.simple else self.pieces
        kinds = self._sending(proxy=True)[net][None]
        if len(segments) > 1:
            later = self._sending(proxy=True, further=True)[net]
            kinds = np.concatenate([kinds, np.tile(later, (len(segments) - 1, 1))])
        messages = self._rows(kinds, *ends, segments, net)
        self.body.after(messages, sends[:, net], channel.noticed)
        if len(messages) > 1:  # the message of a chunk of LL starts when the chunk is complete
            self.body.after(messages[0], sends[-1, net], channel.noticed)
        self._free(sends[:, net], messages, channel.local_credit)
        return messages

    def _stores(self) -> Ints:
        """Write the rows by which receivers copy from the FIFO into their output; return [segment,
        part].

        With direct writes the data is in the output already, and the rows only wait.
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
        """The numbers of the segments of a chunk, as a column."""
        return np.arange(self.chunk_segments.subs)[:, None]

    def _rows(
        self,
        kinds: Ints,
        src: Ints,
        dst: Ints,
        segments: Ints | None = None,
        which: NDArray[np.bool_] | slice = slice(None),
    ) -> Ints:
        """Add rows for segments and parts, each after the row of the part's previous segment.

        - `kinds`: numbers of kinds of row, by part or as [segment, part].
        - `segments`: the segments as a column; by default all of a chunk.
        - `which`: selects parts; by default all.

        Returns the rows as [segment, part].
        """
        segment = self.pieces if segments is None else segments
        base = self.ends.target[which]
        origin = self.ends.offset[which]
        made = self.body.rows(kinds, src, dst, segment, base=base, origin=origin)
        rows = made.reshape(len(segment), -1)
        first = np.arange(len(rows))[:, None] == 0
        self.body.after(rows, np.roll(rows, 1, 0), IN_ORDER, first)
        return rows

    @property
    def _any_channel(self) -> PlannedChannel:
        """A channel of the plan, for lags, which are equal for all channels."""
        return PlannedChannel(self.plan, 0)

    def _free(self, filling: Ints, emptying: Ints, lag: Lag) -> None:
        """Let each slot be filled again, by the rows `filling`, a lag after it was emptied.

        A slot is empty when its last segment has been read, by the last of the rows `emptying`.
        Both are arrays [segment, part].
        """
        self.body.after(filling[0], emptying[-1], lag, self.chunk_segments.slots)


def _copy(source: int, target: int, share: float) -> Pass:
    """Return the pass of a copy between two buffers by a fraction (`share`) of a block's
    threads.
    """
    return Pass(source, target, writes=1, threads=share)


NOBODY: tuple[Ints, Ints] = (np.zeros(0, np.int64), np.zeros(0, np.int64))


def send_recv(collective: Collective, plan: Plan, extent: Extent = ALL) -> Schedule:
    """Return the schedule of all sends and receives of a plan, batch after batch on every block.

    The operations of one batch on one block progress together, each with its share of the warps.
    The block begins its next batch when all of them are done.
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

    `last_marks` has as [channel, rank] the mark after which a block may begin its next batch; -1:
    none.
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
        """Write the parts of one wave.

        - `sent`: the parts that are written.
        - `received`: the positions in `MessageParts.received` that belong to the wave.
        """
        parts = self.parts
        taken = parts.received[received]
        receiver = parts.receiver[received]
        operations_per_block = np.zeros(self.last_marks.shape, np.int64)
        np.add.at(operations_per_block, (parts.channel[sent], parts.src[sent]), 1)
        np.add.at(operations_per_block, (parts.channel[taken], receiver), 1)
        ends = np.full((2, len(parts.src)), -1, np.int32)
        for kind_of_part in different(parts.kind_of_part[sent]).tolist():
            parts_of_kind = sent[parts.kind_of_part[sent] == kind_of_part]
            ends[:, parts_of_kind] = self._append(kind_of_part, parts_of_kind, operations_per_block)
        self._close(
            np.concatenate([parts.channel[sent], parts.channel[taken]]),
            np.concatenate([parts.src[sent], receiver]),
            np.concatenate([ends[0, sent], ends[1, taken]]),
        )

    def _append(
        self, kind_number: int, part_numbers: Ints, operations_per_block: Ints
    ) -> NDArray[np.int32]:
        """Write the parts `part_numbers`, which are of one kind.

        - `kind_number`: the index of their PartKind.
        - `operations_per_block`: as [channel, rank], the number of operations that share a block.

        Returns the last row of each part on its sender's block, and that on its receiver's block.
        """
        parts = self.parts
        part_kind = parts.part_kinds[kind_number]
        channel = parts.channel[part_numbers]
        src = parts.src[part_numbers]
        dst = parts.dst[part_numbers]
        blocks = (channel, src), (channel, self.representatives[dst])
        plan = replace(self.plan, protocol=cast("Protocol", part_kind.protocol))
        element_bytes = self.output.collective.element_bytes
        table = chunk_table(Work(0, 0, part_kind.count, part_kind.chunk), element_bytes)
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
            (operations_per_block[blocks[0]], operations_per_block[blocks[1]]),
            segments(plan, element_bytes, table),
            part_kind.multiplicity,
            part_kind.parts_per_send,
        )
        written_rows = exchange.copies() if part_kind.is_copy else exchange.passes()
        awaited_marks = np.full(len(exchange.body), -1, np.int32)
        for rows, seat in zip(written_rows, blocks, strict=False):
            awaited_marks[rows] = self.last_marks[seat]
        gated = [(awaited_marks, IN_ORDER)] if awaited_marks.max() >= 0 else []
        turn = WrittenLoop(exchange.body, NOBODY)
        turns = self.output.add(turn, exchange.chunk_segments, gated)
        last = [turns[-1][block[-1]] for block in written_rows]
        return np.stack(last if len(last) > 1 else last * 2)

    def _close(self, channel: Ints, rank: Ints, rows: NDArray[np.int32]) -> None:
        """Add the mark that ends the wave's batch on each block.

        `rows[i]` is a row that ends an operation on the block of `channel[i]` and `rank[i]`.
        """
        order = np.lexsort((rank, channel))
        block = channel[order] * len(self.representatives) + rank[order]
        first = np.flatnonzero(np.diff(block, prepend=-1))
        block_ends = np.divmod(block[first], len(self.representatives))
        joins = (np.append(first, len(block)), rows[order], IN_ORDER)
        self.last_marks[block_ends] = self.output.builder.marks(block_ends[1], joins=joins)
