"""Write the loops of blocks: the rows of one turn of a channel, repeated for all its turns.

A turn is one pass through the body of a loop. The rows of all turns are the same but for the data
that they move, and they wait for rows of the same turn or of an earlier one. The modules of the
algorithms (`ring.py`, `tree.py`, ...) decide which rows a turn has.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from netsim.base.memo import different
from netsim.base.values import dataclass
from netsim.collectives.collective import Collective
from netsim.nccl.constants import NO_HANDLING
from netsim.nccl.schedules.plan import Ints, Plan, Work
from netsim.nccl.schedules.primitives import Pass, PlannedChannel, RowKind, link_kinds, routes
from netsim.nccl.split import ALIGNMENT, FifoSteps, loops_of_part
from netsim.schedule import schedule
from netsim.schedule.builder import Builder
from netsim.schedule.extent import ALL, Extent
from netsim.schedule.schedule import IN, IN_ORDER, LOCAL_COPY, OUT, REDUCE, SCRATCH, Lag

Rows = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Segments:
    """The data of every turn (first axis), cut into segments (second axis), in elements.

    - `offset`, `count`: where a segment begins in the data of the call, and its size.
    - `slots`: the number of slots of a FIFO.
    - `subs`: the number of segments of a chunk.
    - `first_chunk`: the number of the first segment that is a chunk in one piece.
    """

    offset: Ints
    count: Ints
    slots: int = 1
    subs: int = 1
    first_chunk: int = 0


class Weave:
    """The rows of one turn of a loop and their dependencies, to which rows can be added."""

    def __init__(self) -> None:
        self.kinds: dict[RowKind, int] = {}
        self._blocks: list[Sequence[NDArray[Any]]] = []  # columns of rows
        self._single: list[tuple[int, ...]] = []  # rows that `_flush` will make a block of
        self._edges: dict[Lag, list[tuple[Rows, Rows, Rows]]] = {}
        self._pairs: dict[Lag, list[tuple[int, int, int]]] = {}
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def kind(self, kind: RowKind) -> int:
        """Return the number of a kind of row; a new kind is added."""
        return self.kinds.setdefault(kind, len(self.kinds))

    def rows(
        self,
        kind: ArrayLike,
        src: ArrayLike,
        dst: ArrayLike,
        segment: ArrayLike,
        *,
        step: ArrayLike = 0,
        base: ArrayLike = 0,
        origin: ArrayLike | None = None,
    ) -> Ints:
        """Append rows and return their numbers; the arrays are broadcast against each other.

        The data of a row begins `base` elements behind the offset of its segment, in the memory of
        the sender `origin` elements behind it (by default also `base`).
        """
        self._flush()
        columns = [np.asarray(x, np.int32) for x in (kind, src, dst, step, segment)]
        columns += [np.asarray(x, np.int64) for x in (base, base if origin is None else origin)]
        shape = np.broadcast_shapes((1,), *(column.shape for column in columns))
        self._blocks.append([np.broadcast_to(column, shape).reshape(-1) for column in columns])
        first = self._size
        self._size += int(np.prod(shape))
        return np.arange(first, self._size)

    def row(self, kind: RowKind, src: int, dst: int, segment: int, *, base: int = 0) -> int:
        """Append one row and return its number."""
        self._single.append((self.kind(kind), src, dst, 0, segment, base, base))
        self._size += 1
        return self._size - 1

    def after(self, row: ArrayLike, earlier: ArrayLike, lag: Lag, back: ArrayLike = 0) -> None:
        """Let rows wait for earlier rows, those of the turn `back` turns ago."""
        if isinstance(row, int) and isinstance(earlier, int) and isinstance(back, int):
            self._pairs.setdefault(lag, []).append((row, earlier, back))
            return
        columns = [np.asarray(x, np.int32) for x in (row, earlier, back)]
        rows, earlier_rows, turns_back = (x.reshape(-1) for x in np.broadcast_arrays(*columns))
        self._edges.setdefault(lag, []).append((rows, earlier_rows, turns_back))

    def _flush(self) -> None:
        """Make the rows that were appended one at a time a block."""
        if self._single:
            *columns, base, origin = np.array(self._single, np.int64).T
            self._blocks.append([*(column.astype(np.int32) for column in columns), base, origin])
            self._single = []

    def _flush_edges(self) -> None:
        """Make the dependencies that were added one at a time arrays."""
        for lag, pairs in self._pairs.items():
            rows, earlier_rows, turns_back = np.array(pairs, np.int32).T
            self._edges.setdefault(lag, []).append((rows, earlier_rows, turns_back))
        self._pairs = {}

    def unroll(
        self,
        builder: Builder,
        segments: Segments,
        *,
        places: bool,
        gates: Sequence[tuple[Rows, Lag]],
    ) -> Rows:
        """Append the rows of all turns to `builder` and return their numbers by turn (first axis).

        Without `places` rows say only how much data they move, and not where it is. The rows of the
        first turn also wait for the rows in `gates` (an array with a row number for each row of the
        turn, -1: none, and a lag).
        """
        self._flush()
        self._flush_edges()
        columns = list(zip(*self._blocks, strict=True))
        kind, src, dst, step, segment = map(_concatenate, columns[:-2])
        bases = list(map(_concatenate, columns[-2:])) if places else []
        turns = len(segments.count)
        size = self._size
        joins = self._unrolled(builder, turns, gates)
        made = builder.rows(
            self._styles(builder, kind, segment, segments).ravel(),
            np.tile(src, turns),
            np.tile(dst, turns),
            _pieces(builder, segments, segment, bases).ravel(),
            step=np.tile(step, turns),
            joins=joins,
        )
        return made.reshape(turns, size)

    def _styles(self, builder: Builder, kind: Ints, segment: Ints, segments: Segments) -> Rows:
        """Return the number of every row's style, by turn (first axis).

        There is a style for each kind and size. Messages of all turns but the first follow an
        earlier message of their connection (`RowKind.follows`).
        """
        kinds = list(self.kinds)
        later = np.arange(len(kinds), dtype=np.int32)
        for number, first in enumerate(kinds[:]):
            if first.path.handling != NO_HANDLING and not first.follows:
                later[number] = len(kinds)
                kinds.append(replace(first, follows=True))
        sizes, which = np.unique(segments.count, return_inverse=True)
        which = which.reshape(segments.count.shape)
        patterns, turn = _patterns(np.column_stack([np.arange(len(which)) == 0, which]))
        # The code of a style is (number of its kind) · (number of sizes) + (number of its size).
        style_numbers: dict[int, int] = {}
        columns = []
        for first_turn, *size_of in patterns:
            code = (kind if first_turn else later[kind]) * np.int32(len(sizes))
            code += np.array(size_of, np.int32)[segment]
            numbers = np.zeros(len(kinds) * len(sizes), np.int32)
            for c in np.flatnonzero(np.bincount(code)).tolist():
                if c not in style_numbers:
                    row_kind = kinds[c // len(sizes)]
                    nbytes = sizes[c % len(sizes)] * builder.element_bytes
                    style_numbers[c] = builder.style(row_kind.of(nbytes))
                numbers[c] = style_numbers[c]
            columns.append(numbers[code])
        return np.stack(columns)[turn]

    def _unrolled(
        self, builder: Builder, turns: int, gates: Sequence[tuple[Rows, Lag]]
    ) -> tuple[Ints, Rows, NDArray[np.int16]]:
        """Return the dependencies of the rows of all turns as pointers, earlier rows and lags.

        The first turns have fewer, because there are no turns before the first one.
        """
        row, earlier, back, lag = self._sorted_edges(builder, turns)
        size = self._size
        first = len(builder)
        target = earlier - back * np.int32(size) + np.int32(first)
        counts = list[Ints]()
        rows = list[Rows]()
        lags = list[NDArray[np.int16]]()
        settled = min(turns, int(back.max(initial=0)))
        for turn in range(settled):
            exists = back <= turn
            counts.append(np.bincount(row[exists], minlength=size))
            rows.append(target[exists] + np.int32(turn * size))
            lags.append(lag[exists])
        rest = np.arange(settled, turns, dtype=np.int32)[:, None] * np.int32(size)
        counts.append(np.tile(np.bincount(row, minlength=size), len(rest)))
        rows.append((target[None] + rest).ravel())
        lags.append(np.tile(lag, len(rest)))
        ptr = np.concatenate([[0], np.cumsum(np.concatenate(counts))])
        joins = ptr, np.concatenate(rows), np.concatenate(lags)
        return _gated(builder, joins, gates) if gates else joins

    def _sorted_edges(self, builder: Builder, turns: int) -> Iterator[NDArray[Any]]:
        """Return row, earlier row, turns back and lag of all dependencies, sorted by row.

        Dependencies that go back farther than there are turns are left out.
        """
        none = np.zeros(0, np.int32)
        parts: list[tuple[NDArray[Any], ...]] = [(none, none, none, none.astype(np.int16))]
        for lag, edges in self._edges.items():
            number = builder.lag(lag)
            for edge in edges:
                turns_back = edge[-1]
                exists = turns_back < turns
                lags = np.full(exists.sum(), number, np.int16)
                parts.append((*(column[exists] for column in edge), lags))
        every = [np.concatenate(column) for column in zip(*parts, strict=True)]
        order = np.argsort(every[0], kind="stable")
        return (column[order] for column in every)


def _concatenate(parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Return the parts one after the other, without a copy if there is only one."""
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _patterns(table: Ints) -> tuple[list[list[int]], Ints]:
    """Return the distinct rows of a table, sorted, and which of these each row equals."""
    new = np.append(True, (table[1:] != table[:-1]).any(axis=1))
    rows = table[new].tolist()
    patterns = sorted(map(list, set(map(tuple, rows))))
    number = {tuple(row): place for place, row in enumerate(patterns)}
    which = np.array([number[tuple(row)] for row in rows])
    return patterns, which[np.cumsum(new) - 1]


def _gated(
    builder: Builder, joins: tuple[Ints, Rows, NDArray[np.int16]], gates: Sequence[tuple[Rows, Lag]]
) -> tuple[Ints, Rows, NDArray[np.int16]]:
    """Return dependencies with those of the rows of the first turn on the rows in `gates`."""
    ptr, rows, lags = joins
    owner = np.repeat(np.arange(len(ptr) - 1), np.diff(ptr))
    for earlier, lag in gates:
        there = np.flatnonzero(earlier >= 0)
        owner = np.append(owner, there)
        rows = np.append(rows, earlier[there])
        lags = np.append(lags, np.full(len(there), builder.lag(lag), np.int16))
    order = np.argsort(owner, kind="stable")
    counts = np.bincount(owner, minlength=len(ptr) - 1)
    return np.append(0, np.cumsum(counts)), rows[order], lags[order]


def _pieces(builder: Builder, segments: Segments, segment: Ints, bases: Sequence[Ints]) -> Rows:
    """Return the numbers of the pieces of all rows; without `bases` there is one for each size."""
    if not bases:
        sizes, which = np.unique(segments.count, return_inverse=True)
        return builder.pieces(sizes)[which.reshape(segments.count.shape)][:, segment]
    count = segments.count[:, segment]
    target, origin = (segments.offset[:, segment] + base for base in bases)
    return builder.pieces(count.ravel(), origin.ravel(), target.ravel()).reshape(count.shape)


# Segments: a channel's part is cut into loops, chunks, and the slices or pieces in which chunks
# move. Offsets and counts are in elements, chunk sizes of a plan in bytes.

ONE = FifoSteps(1, 1)


def chunk_table(
    work: Work, element_bytes: int, spread: int = 1, alignment: int = ALIGNMENT
) -> tuple[Ints, Ints]:
    """Return offset and count of every chunk of a part (elements), by loop and chunk.

    A loop has `spread` chunks.
    """
    nbytes = work.count * element_bytes
    loops = loops_of_part(nbytes, work.chunk, spread=spread, alignment=alignment, last=work.last)
    size = np.array(loops.chunks, np.int64)[:, None] // element_bytes
    start = np.arange(len(size))[:, None] * (spread * work.chunk) // element_bytes
    low = start + np.arange(spread) * size
    count = np.clip(work.count - low, 0, size)
    return work.offset + np.minimum(low, work.count), count


def segments(
    plan: Plan,
    element_bytes: int,
    table: tuple[Ints, Ints],
    *,
    steps: FifoSteps = ONE,
    threads: float = 1.0,
) -> Segments:
    """Return the segments of all chunks of a table, each chunk cut into the same number of subs.

    With u subs a chunk, chunk c has the segments c·u to c·u + u − 1. Segments that are uncut chunks
    follow, and an empty segment for rows that only wait is the last one. Example of two chunks and
    two subs: [chunk 0 sub 0, chunk 0 sub 1, chunk 1 sub 0, chunk 1 sub 1, chunk 0, chunk 1, empty].

    `steps` says how many of the FIFO's `plan.slots` a chunk takes. `threads` is the smallest
    fraction of a block's threads that moves a chunk.
    """
    offset, count = table
    size, subs = _sizes(plan, element_bytes, count, steps, threads)
    part = np.arange(subs)
    begin = np.minimum(part * size[:, :, None], count[:, :, None])
    length = np.minimum(size[:, :, None], count[:, :, None] - begin)
    return Segments(
        offset=_subs_and_chunks(offset[:, :, None] + begin, offset),
        count=_subs_and_chunks(length, count),
        slots=max(1, plan.slots // steps.chunk),
        subs=subs,
        first_chunk=subs * count.shape[1],
    )


def _subs_and_chunks(subs: Ints, chunks: Ints) -> Ints:
    """Return the values of subs, then those of chunks, then 0 for the empty segment, by turn."""
    values = np.hstack([subs.reshape(len(chunks), -1), chunks])
    return np.pad(values, ((0, 0), (0, 1)))


def _sizes(
    plan: Plan, element_bytes: int, count: Ints, steps: FifoSteps, threads: float
) -> tuple[Ints, int]:
    """Return the elements of a sub of every chunk, and the number of subs of a chunk.

    Simple moves slices (`src/device/prims_simple.h`, sizes in `genericOp`). With LL and LL128 a
    chunk of `count` elements moves as a number of pieces that the mechanism limits.
    """
    if plan.protocol == "Simple":
        slices = steps.chunk // steps.slice
        least = max(1, plan.slot * steps.slice // element_bytes // 32)
        size = np.maximum(-(-count // (16 * slices)) * 16, least)
        return size, slices if (count > size).any() else 1
    mechanism = plan.mechanism
    largest = int(count.max(initial=0)) * element_bytes
    grain = mechanism.grain.of(plan.protocol)
    if plan.protocol == "LL":  # each thread passes on a line; with LL128 each warp does
        grain *= threads
    pieces = int(-(-largest // grain))
    line = max(1, ALIGNMENT // element_bytes)
    if plan.protocol == "LL":  # a piece is a number of complete waves; the last one may be smaller
        waves = max(1, -(-pieces // mechanism.most_pieces))
        piece = max(line, int(waves * grain) // element_bytes // line * line)
        return np.full_like(count, piece), max(1, -(-largest // (piece * element_bytes)))
    subs = max(1, min(mechanism.most_pieces, pieces))
    return np.maximum(-(-count // (subs * line)) * line, 1), subs


# Lines: the passes of blocks in one turn of a loop, and the connections between the blocks.
# A pass empties slots of some connections and fills slots of others. The order of passes and the
# credits of slots follow from which rows fill a slot and which rows empty it.

Hop = tuple[int, int]


@dataclass
class Lines:
    """One channel while the rows of a turn are written, sub by sub.

    - `first_chunk`: the number of the segment that is the chunk in one piece.
    - `by_sub`: the channel that makes the rows of a sub, if its rows represent more equal rows than
      those of `channel`.
    - `passes`: by lane and rank, the rows of every sub. A lane is a group of threads of a block.
    - `filled`: by hop and sub, the row of the block that sends, and the row that moves the data (of
      the block itself, or of its proxy).
    - `taken`: by hop and sub, the rows that empty the slot.
    """

    channel: PlannedChannel
    subs: int
    slots: int
    first_chunk: int = 0
    by_sub: Mapping[int, PlannedChannel] = field(default_factory=dict)
    woven: Weave = field(default_factory=Weave)
    passes: dict[tuple[str, int], list[list[int]]] = field(default_factory=dict)
    filled: dict[tuple[int, int, int], tuple[int, int]] = field(default_factory=dict)
    taken: dict[tuple[int, int, int], list[int]] = field(default_factory=dict)
    _left: dict[Hop, list[int]] = field(default_factory=dict)

    def send(self, hop: Hop, sub: int, made: Pass, *, base: int = 0) -> int:
        """Add a pass of a block to another rank and return its row.

        Over the network the pass fills a FIFO of the block's own GPU, and the proxy gets a row that
        sends from there: one for each sub with Simple, else one for the chunk.
        """
        src, dst = hop
        channel = self.by_sub.get(sub, self.channel)
        block = channel.hop(src, dst, made, proxy=False)
        if not channel.is_net(src, dst):
            row = self.woven.row(block, src, dst, sub, base=base)
            self.filled[src, dst, sub] = row, row
            return row
        row = self.woven.row(block, src, src, sub, base=base)
        self._left.setdefault(hop, []).append(row)
        if channel.simple or sub == self.subs - 1:
            segment = sub if channel.simple else self.first_chunk
            proxy = channel.hop(src, dst, made, proxy=True)
            if channel.simple and sub:
                proxy = replace(proxy, follows=True)
            self._sent(hop, sub, self.woven.row(proxy, src, dst, segment, base=base))
        return row

    def _sent(self, hop: Hop, sub: int, sent: int) -> None:
        """Let the row of a proxy wait for the rows of its block that it has not sent yet.

        With Simple that is a slice, else all pieces of a chunk.
        """
        rows = self._left.pop(hop)
        for number, row in enumerate(rows):
            self.woven.after(sent, row, self.channel.noticed)
            self.filled[(*hop, sub - len(rows) + 1 + number)] = row, sent

    def merge(self, rank: int, sub: int, hops: Sequence[Hop], *, base: int = 0) -> int:
        """Add a row for a further source of a pass, which waits for the data of some hops."""
        kind = self.channel.merge(SCRATCH, REDUCE)
        row = self.woven.row(kind, rank, rank, sub, base=base)
        for hop in hops:
            self.wait([row], hop, sub)
        return row

    def wait(self, rows: Sequence[int], hop: Hop, sub: int) -> None:
        """Let rows wait for the data of a hop."""
        for row in rows:
            self.woven.after(row, self.filled[(*hop, sub)][1], self.channel.sync(*hop))

    def take(self, rows: Sequence[int], hop: Hop, sub: int) -> None:
        """Let rows wait for the data of a hop and empty its slot."""
        self.wait(rows, hop, sub)
        self.taken[(*hop, sub)] = list(rows)

    def read(self, rows: Sequence[int], written: Sequence[int], sync: Lag) -> None:
        """Let rows wait for the rows that wrote their data.

        The writers' next use of the slot, `slots` turns later, waits for the readers in turn.
        """
        readers = np.repeat(rows, len(written))
        read = np.tile(written, len(rows))
        self.woven.after(readers, read, sync)
        self.woven.after(read, readers, IN_ORDER, self.slots)

    def done(self, lane: str, rank: int, rows: Sequence[int]) -> None:
        """Append the rows of the next pass of a lane of a rank's block."""
        self.passes.setdefault((lane, rank), []).append(list(rows))

    def close(self) -> tuple[list[int], list[int]]:
        """Add the order of passes and the credits; return the ranks and rows that end a turn."""
        for passes in self.passes.values():
            for sub, rows in enumerate(passes):
                for row in rows:
                    for earlier in passes[sub - 1]:
                        self.woven.after(row, earlier, IN_ORDER, int(sub == 0))
        hops: dict[Hop, list[int]] = {}
        for src, dst, sub in self.filled:
            hops.setdefault((src, dst), []).append(sub)
        for hop, subs in hops.items():
            for number, sub in enumerate(subs):
                if self.channel.simple or number == 0:
                    self._messages(hop, sub, subs[number - 1], back=int(number == 0))
                    self._credits(hop, sub, sub if self.channel.simple else subs[-1])
        ends = [(rank, row) for (_, rank), passes in self.passes.items() for row in passes[-1]]
        return [rank for rank, _ in ends], [row for _, row in ends]

    def _messages(self, hop: Hop, sub: int, before: int, back: int) -> None:
        """Let a message wait for that of the sub `before`, of the turn `back` turns ago."""
        row, sent = self.filled[(*hop, sub)]
        if sent != row:
            self.woven.after(sent, self.filled[(*hop, before)][1], IN_ORDER, back)

    def _credits(self, hop: Hop, sub: int, used: int) -> None:
        """Let the rows that fill a slot wait until it was emptied `slots` turns ago.

        `used` is the last sub in the slot: with Simple each slice has a slot, with LL and LL128 the
        chunk has one slot for all its pieces.
        """
        row, sent = self.filled[(*hop, sub)]
        for reader in self.taken[(*hop, used)]:
            self.woven.after(sent, reader, self.channel.credit(*hop), self.slots)
        if sent != row:
            before = self.filled[(*hop, used)][1]
            self.woven.after(row, before, self.channel.local_credit, self.slots)


# Output: the schedule while it is written, channel by channel. It also copies the data that stays
# on its rank, and ends with one mark for each rank.

KEEP = schedule.Style(kind=LOCAL_COPY, src_buffer=IN, dst_buffer=OUT, stream="keep")

MEMORABLE = 500_000  # a turn with more rows is not cached for other sizes


@dataclass(frozen=True)
class Turn:
    """The rows of one turn of a channel's loop; `last` are the ranks and rows that end it."""

    woven: Weave
    last: tuple[ArrayLike, ArrayLike]


def remembered(collective: Collective, plan: Plan, key: object, write: Callable[[], Turn]) -> Turn:
    """Return one turn of a channel's loop, from the plan's cache if another size has written it.

    `key` contains all that the turn depends on besides the collective and those parts of the plan
    that are the same for all sizes.
    """
    call = (collective.name, collective.root, plan.algorithm, plan.protocol)
    full_key = (*call, plan.direct, plan.registered, plan.cached, key)
    return plan.memo.of(full_key, write, lambda turn: len(turn.woven) <= MEMORABLE)


class Output:
    """A Builder, and the last rows of each rank.

    With `keep` the data that a rank keeps is copied from its input to its output.
    """

    def __init__(
        self,
        collective: Collective,
        *,
        extent: Extent = ALL,
        keep: bool = True,
    ) -> None:
        self.collective = collective
        self.builder = Builder(
            collective.ranks, float(collective.element_bytes), (collective.name,)
        )
        self.builder.fold = extent.fold
        self.places = extent.has_places
        self._final: list[Rows] = []
        if keep:
            self._keep()

    def add(self, turn: Turn, cut: Segments, gates: Sequence[tuple[Rows, Lag]] = ()) -> Rows:
        """Append all turns of a channel; return the numbers of its rows by turn (first axis)."""
        woven = turn.woven
        last = turn.last
        if not len(cut.count) or not len(woven):
            return np.zeros((0, len(woven)), np.int32)
        rows = woven.unroll(self.builder, cut, places=self.places, gates=gates)
        self.ends(np.asarray(last[0]), rows[-1][np.asarray(last[1])])
        return rows

    def ends(self, ranks: NDArray[np.int64], rows: Rows) -> None:
        """Let the end of ranks wait for rows; a rank may occur several times."""
        if self.builder.fold is not None:
            ranks = self.builder.fold.ranks.first[ranks].astype(np.int64)
        order = np.argsort(ranks, kind="stable")
        ranks = ranks[order]
        rows = rows[order]
        place = np.arange(len(ranks)) - np.searchsorted(ranks, ranks)
        columns = np.full((int(place.max(initial=-1)) + 1, self.collective.ranks), -1, np.int32)
        columns[place, ranks] = rows
        self._final += list(columns)

    def close(self) -> schedule.Schedule:
        """Return the finished schedule; its last rows are the marks of the ranks' ends, by rank."""
        after = [(rows, IN_ORDER) for rows in self._final]
        self.builder.marks(np.arange(self.collective.ranks), after=after)
        return self.builder.finish()

    def _keep(self) -> None:
        """Add copies of the data that stays on its rank, unless the collective is in place.

        NCCL makes these copies in a block's first send.
        """
        local = self.collective.local_data()
        if self.collective.in_place or not len(local.rank):
            return
        piece = self.builder.pieces(local.count, local.in_offset, local.out_offset)
        fold = self.builder.fold
        if fold is None:
            self.ends(local.rank, self.builder.rows(KEEP, local.rank, local.rank, piece))
            return
        is_representative = fold.ranks.first[local.rank] == local.rank
        for copies in different(fold.ranks.count[local.rank[is_representative]]).tolist():
            has_copies = fold.ranks.count[local.rank] == copies
            selected = np.flatnonzero(is_representative & has_copies)
            rank = local.rank[selected]
            style = replace(KEEP, copies=copies)
            self.ends(rank, self.builder.rows(style, rank, rank, piece[selected]))


# Sheet: the rows of a turn, added for many ranks at once in any order. Every row has a place; in
# the end rows are written into a Weave in the order of places, and rows of one place in the order
# in which they were added.

PASS = 7  # the number of columns that describe a Pass: all its fields but `keeps`
COLUMNS = 5  # the number of columns of a row: kind, source, destination, segment, place


@dataclass
class Sheet:
    """The rows of one turn of a channel whose chunks have `subs` segments."""

    channel: PlannedChannel
    subs: int
    woven: Weave = field(default_factory=Weave)
    _blocks: list[Ints] = field(default_factory=list)
    _edges: list[tuple[Ints, Ints, Lag, ArrayLike]] = field(default_factory=list)
    _size: int = 0

    def rows(
        self, kind: ArrayLike, ends: tuple[Ints, Ints], segment: ArrayLike, place: Ints
    ) -> Ints:
        """Add a row for each segment (first axis) and pair of endpoints (second axis).

        Returns the numbers of the rows in the order in which they were added.
        """
        columns = np.broadcast_arrays(kind, *ends, np.asarray(segment)[..., None], place)
        self._blocks.append(np.array([column.ravel() for column in columns], np.int64))
        first = self._size
        self._size += columns[0].size
        return np.arange(first, self._size).reshape(columns[0].shape)

    def after(self, rows: Ints, earlier: Ints, lag: Lag, back: ArrayLike = 0) -> None:
        """Let rows wait for earlier rows, those of the turn `back` turns ago."""
        self._edges.append((rows, earlier, lag, back))

    def written(self) -> tuple[Weave, Ints]:
        """Return the Weave of all rows, and the number in it of every row as it was added."""
        columns = np.concatenate([np.zeros((COLUMNS, 0), np.int64), *self._blocks], axis=1)
        order = np.argsort(columns[-1], kind="stable")
        kind, src, dst, segment, _ = columns[:, order]
        number = np.empty(self._size, np.int64)
        number[order] = self.woven.rows(kind, src, dst, segment)
        for rows, earlier, lag, back in self._edges:
            if rows.size:
                self.woven.after(number[rows], number[earlier], lag, back)
        return self.woven, number

    def kinds(
        self,
        hops: "HopsOf",
        made: Sequence[ArrayLike],
        *,
        proxy: bool,
        change: Callable[[RowKind], RowKind] = lambda kind: kind,
    ) -> Ints:
        """Return the number of the kind of a row for each hop.

        `made` are the fields of the hops' passes (`PASS` columns), `change` is applied to every
        kind. Hops with equal passes, kinds of link and routes share a kind.
        """
        table = np.stack(
            [np.broadcast_to(np.asarray(x, np.float64), hops.src.shape) for x in made]
            + [hops.kind.astype(np.float64), hops.route.astype(np.float64)]
        )
        _, first, which = np.unique(table, axis=1, return_index=True, return_inverse=True)
        numbers = []
        for hop in first.tolist():
            *whole_numbers, threads = table[:PASS, hop].tolist()
            src_buffer, dst_buffer, op, reads, writes, fan = map(int, whole_numbers)
            hop_pass = Pass(src_buffer, dst_buffer, op, reads, writes, fan, threads)
            kind = self.channel.hop(int(hops.src[hop]), int(hops.dst[hop]), hop_pass, proxy=proxy)
            numbers.append(self.woven.kind(change(kind)))
        return np.array(numbers, np.int64)[which.reshape(-1)]


@dataclass(frozen=True)
class HopsOf:
    """Hops of a channel.

    - `src`, `dst`: the endpoints of every hop, which are ranks.
    - `kind`: the kind of link between them, as `link_kinds` numbers it.
    - `route`: a number that hops of equal routes share.
    """

    src: Ints
    dst: Ints
    kind: Ints
    route: Ints

    @property
    def ends(self) -> tuple[Ints, Ints]:
        """The sources and the destinations."""
        return self.src, self.dst

    def subset(self, places: NDArray[np.bool_] | Ints) -> "HopsOf":
        """Return the hops at some places."""
        return HopsOf(self.src[places], self.dst[places], self.kind[places], self.route[places])

    def by_link_kind(self) -> Iterator[tuple[Ints, tuple[int, int]]]:
        """Yield, for each kind of link, the places of its hops and the endpoints of the first."""
        for kind in different(self.kind).tolist():
            places = np.flatnonzero(self.kind == kind)
            first = places[0]
            yield places, (int(self.src[first]), int(self.dst[first]))


def hops_of(channel: PlannedChannel, src: Ints, dst: Ints) -> HopsOf:
    """Return the hops of a channel between pairs of ranks."""
    plan = channel.plan
    kind = link_kinds(plan, np.array(plan.node), src, dst)
    hop_routes = routes(plan, channel.number, src, dst, kind).tolist()
    numbers = {route: number for number, route in enumerate(dict.fromkeys(hop_routes))}
    return HopsOf(src, dst, kind, np.array([numbers[route] for route in hop_routes], np.int64))
