"""Write the rows of a channel: those of one loop, then repeated for every loop of the channel.

A loop is, as in NCCL, one iteration over the buffers. All loops of a channel have the same rows,
which differ only in the data that they move; a row waits for rows of its own loop or of an earlier
loop. The modules of the algorithms (`ring.py`, `tree.py`, ...) decide which rows a loop has.

A loop has one or several chunks. A sub is the part of a chunk that one row moves: a slice of
Simple, a piece of LL and LL128. A segment is any range of elements: a sub, a chunk, or nothing.
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
    """The data of every loop (first axis), cut into segments (second axis), in elements.

    - `offset`: where a segment begins in the data of the call, as [loop, segment].
    - `count`: the elements of a segment, as [loop, segment].
    - `slots`: the number of slots of a FIFO, counted in chunks.
    - `subs`: the number of subs of a chunk.
    - `first_chunk`: the number of the first segment that is a chunk in one piece.
    """

    offset: Ints
    count: Ints
    slots: int = 1
    subs: int = 1
    first_chunk: int = 0


class LoopBody:
    """The rows of one loop of a channel and their dependencies, while they are added.

    Rows are numbered from 0 in the order in which they are added. A dependency may reach back to a
    row of an earlier loop.
    """

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
        """Return the number of `kind` among the kinds of row of this loop; a new kind is added."""
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

        - `kind`: numbers of kinds, from `kind()`.
        - `src`, `dst`: the ranks (or a group) at both ends.
        - `segment`: the segment that a row moves.
        - `step`: a label for messages and traces.
        - `base`: elements added to the segment's offset in the receiver's memory.
        - `origin`: the same in the sender's memory; by default equal to `base`.
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
        """Append one row and return its number; the arguments are those of `rows`."""
        self._single.append((self.kind(kind), src, dst, 0, segment, base, base))
        self._size += 1
        return self._size - 1

    def after(self, row: ArrayLike, earlier: ArrayLike, lag: Lag, back: ArrayLike = 0) -> None:
        """Let row `row[i]` wait for row `earlier[i]` of the loop `back[i]` loops before, for all i.

        The three arrays are broadcast against each other; `lag` is the lag of all these
        dependencies.
        """
        if isinstance(row, int) and isinstance(earlier, int) and isinstance(back, int):
            self._pairs.setdefault(lag, []).append((row, earlier, back))
            return
        columns = [np.asarray(x, np.int32) for x in (row, earlier, back)]
        rows, earlier_rows, loops_back = (x.reshape(-1) for x in np.broadcast_arrays(*columns))
        self._edges.setdefault(lag, []).append((rows, earlier_rows, loops_back))

    def _flush(self) -> None:
        """Move the rows that `row` appended one at a time into a block of columns."""
        if self._single:
            *columns, base, origin = np.array(self._single, np.int64).T
            self._blocks.append([*(column.astype(np.int32) for column in columns), base, origin])
            self._single = []

    def _flush_edges(self) -> None:
        """Move the dependencies that `after` added one at a time into arrays."""
        for lag, pairs in self._pairs.items():
            rows, earlier_rows, loops_back = np.array(pairs, np.int32).T
            self._edges.setdefault(lag, []).append((rows, earlier_rows, loops_back))
        self._pairs = {}

    def unroll(
        self,
        builder: Builder,
        segments: Segments,
        *,
        places: bool,
        gates: Sequence[tuple[Rows, Lag]],
    ) -> Rows:
        """Append the rows of all loops to `builder`; return their numbers there as [loop, row].

        - `segments`: the data of every loop.
        - `places`: whether rows say where their data is, and not only how much they move.
        - `gates`: pairs (earlier rows, lag). Row i of the first loop also waits for entry i of the
          earlier rows, which are numbers of the schedule (-1: for none).
        """
        self._flush()
        self._flush_edges()
        columns = list(zip(*self._blocks, strict=True))
        kind, src, dst, step, segment = map(_concatenate, columns[:-2])
        bases = list(map(_concatenate, columns[-2:])) if places else []
        loop_count = len(segments.count)
        size = self._size
        joins = self._unrolled(builder, loop_count, gates)
        made = builder.rows(
            self._styles(builder, kind, segment, segments).ravel(),
            np.tile(src, loop_count),
            np.tile(dst, loop_count),
            _pieces(builder, segments, segment, bases).ravel(),
            step=np.tile(step, loop_count),
            joins=joins,
        )
        return made.reshape(loop_count, size)

    def _styles(self, builder: Builder, kind: Ints, segment: Ints, segments: Segments) -> Rows:
        """Return the number of every row's style as [loop, row].

        - `kind`, `segment`: the kind and the segment of each row.

        There is a style for each kind and size of data. In all loops but the first, a message
        follows an earlier message of its connection (`RowKind.follows`).
        """
        kinds = list(self.kinds)
        later = np.arange(len(kinds), dtype=np.int32)
        for number, first in enumerate(kinds[:]):
            if first.path.handling != NO_HANDLING and not first.follows:
                later[number] = len(kinds)
                kinds.append(replace(first, follows=True))
        sizes, which = np.unique(segments.count, return_inverse=True)
        which = which.reshape(segments.count.shape)
        patterns, pattern_of_loop = _patterns(np.column_stack([np.arange(len(which)) == 0, which]))
        # The code of a style is (number of its kind) · (number of sizes) + (number of its size).
        style_numbers: dict[int, int] = {}
        columns = []
        for is_first_loop, *size_of in patterns:
            code = (kind if is_first_loop else later[kind]) * np.int32(len(sizes))
            code += np.array(size_of, np.int32)[segment]
            numbers = np.zeros(len(kinds) * len(sizes), np.int32)
            for c in np.flatnonzero(np.bincount(code)).tolist():
                if c not in style_numbers:
                    row_kind = kinds[c // len(sizes)]
                    nbytes = sizes[c % len(sizes)] * builder.element_bytes
                    style_numbers[c] = builder.style(row_kind.of(nbytes))
                numbers[c] = style_numbers[c]
            columns.append(numbers[code])
        return np.stack(columns)[pattern_of_loop]

    def _unrolled(
        self, builder: Builder, loop_count: int, gates: Sequence[tuple[Rows, Lag]]
    ) -> tuple[Ints, Rows, NDArray[np.int16]]:
        """Return the dependencies of the rows of all loops: pointers, earlier rows, lag numbers.

        They are in CSR form, in the numbers of `builder`. A dependency that would reach before the
        first loop does not exist, so the first loops have fewer. `gates`: see `unroll`.
        """
        row, earlier, back, lag = self._sorted_edges(builder, loop_count)
        size = self._size
        first = len(builder)
        target = earlier - back * np.int32(size) + np.int32(first)
        counts = list[Ints]()
        rows = list[Rows]()
        lags = list[NDArray[np.int16]]()
        settled = min(loop_count, int(back.max(initial=0)))
        for loop in range(settled):
            exists = back <= loop
            counts.append(np.bincount(row[exists], minlength=size))
            rows.append(target[exists] + np.int32(loop * size))
            lags.append(lag[exists])
        rest = np.arange(settled, loop_count, dtype=np.int32)[:, None] * np.int32(size)
        counts.append(np.tile(np.bincount(row, minlength=size), len(rest)))
        rows.append((target[None] + rest).ravel())
        lags.append(np.tile(lag, len(rest)))
        ptr = np.concatenate([[0], np.cumsum(np.concatenate(counts))])
        joins = ptr, np.concatenate(rows), np.concatenate(lags)
        return _gated(builder, joins, gates) if gates else joins

    def _sorted_edges(self, builder: Builder, loop_count: int) -> Iterator[NDArray[Any]]:
        """Return four columns with an entry for each dependency, sorted by row.

        They are the row, the earlier row, the number of loops back, and the number of the lag.
        Dependencies that reach back as many loops as there are, or more, are left out.
        """
        none = np.zeros(0, np.int32)
        parts: list[tuple[NDArray[Any], ...]] = [(none, none, none, none.astype(np.int16))]
        for lag, edges in self._edges.items():
            number = builder.lag(lag)
            for edge in edges:
                loops_back = edge[-1]
                exists = loops_back < loop_count
                lags = np.full(exists.sum(), number, np.int16)
                parts.append((*(column[exists] for column in edge), lags))
        every = [np.concatenate(column) for column in zip(*parts, strict=True)]
        order = np.argsort(every[0], kind="stable")
        return (column[order] for column in every)


def _concatenate(parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Return the parts as one array, without a copy if there is only one."""
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _patterns(table: Ints) -> tuple[list[list[int]], Ints]:
    """Return the distinct rows of a table, sorted, and for each row its index among these."""
    new = np.append(True, (table[1:] != table[:-1]).any(axis=1))
    rows = table[new].tolist()
    patterns = sorted(map(list, set(map(tuple, rows))))
    number = {tuple(row): place for place, row in enumerate(patterns)}
    which = np.array([number[tuple(row)] for row in rows])
    return patterns, which[np.cumsum(new) - 1]


def _gated(
    builder: Builder, joins: tuple[Ints, Rows, NDArray[np.int16]], gates: Sequence[tuple[Rows, Lag]]
) -> tuple[Ints, Rows, NDArray[np.int16]]:
    """Return the dependencies `joins` with those of the first loop on the rows in `gates` added.

    `gates`: see `LoopBody.unroll`. `joins` and the result are dependencies in CSR form: pointers,
    earlier rows and lag numbers.
    """
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
    """Return the number of the piece that each row moves as [loop, row].

    - `segment`: the segment of each row.
    - `bases`: two columns by row: the elements to add to the segment's offset at the receiver, and
      at the sender. Without them rows of equal size share one piece that has no offset.
    """
    if not bases:
        sizes, which = np.unique(segments.count, return_inverse=True)
        return builder.pieces(sizes)[which.reshape(segments.count.shape)][:, segment]
    count = segments.count[:, segment]
    target, origin = (segments.offset[:, segment] + base for base in bases)
    return builder.pieces(count.ravel(), origin.ravel(), target.ravel()).reshape(count.shape)


ONE = FifoSteps(1, 1)


def chunk_table(
    work: Work, element_bytes: int, spread: int = 1, alignment: int = ALIGNMENT
) -> tuple[Ints, Ints]:
    """Return two arrays [loop, chunk] for a channel's part: offset and elements of every chunk.

    - `spread`: the number of chunks of a loop.
    - `alignment`: the bytes to whose multiple the chunks of the last loop are rounded up.
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

    With u subs a chunk, chunk c has the segments c·u to c·u + u − 1. Then come the chunks, each in
    one piece, and last an empty segment for rows that only wait. Example of two chunks and two
    subs: [chunk 0 sub 0, chunk 0 sub 1, chunk 1 sub 0, chunk 1 sub 1, chunk 0, chunk 1, empty].

    - `table`: offset and count of the chunks (`chunk_table`).
    - `steps`: the slots of a FIFO that a chunk and a slice take.
    - `threads`: the smallest fraction of a block's threads that moves a chunk.
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
    """Join values of subs [loop, chunk, sub] and of chunks [loop, chunk] as columns, by loop.

    A column of zeros for the empty segment is the last.
    """
    values = np.hstack([subs.reshape(len(chunks), -1), chunks])
    return np.pad(values, ((0, 0), (0, 1)))


def _sizes(
    plan: Plan, element_bytes: int, count: Ints, steps: FifoSteps, threads: float
) -> tuple[Ints, int]:
    """Return the elements of a sub of every chunk as [loop, chunk], and the number of subs of a
    chunk.

    - `count`: the elements of every chunk.
    - `steps`, `threads`: as in `segments`.

    Simple moves slices (`src/device/prims_simple.h`, sizes in `genericOp`). LL and LL128 move a
    chunk in pieces of the size and number that the mechanism states (`grain`, `most_pieces`).
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


# A pass of a block empties slots of some connections and fills slots of others. The order of passes
# and the credits of slots follow from which rows fill a slot and which rows empty it.

Hop = tuple[int, int]  # sender and receiver


@dataclass
class PassWriter:
    """Adds the rows of one loop of a channel pass by pass, and derives their order and the credits.

    - `subs`: the number of subs of a chunk (or of heads, where each has a chunk).
    - `slots`: the number of slots of a FIFO, counted in chunks.
    - `first_chunk`: the number of the segment that is the chunk in one piece.
    - `by_sub`: the channel that makes the rows of a sub, if these represent more equal rows than
      those of `channel` do.
    - `passes`: by lane and rank, the rows of every sub. A lane is a group of threads of a block.
    - `filled`: by source, destination and sub: the row with which the sender's block fills the
      slot, and the row that moves the data (the same one, or one of the sender's proxy).
    - `taken`: by source, destination and sub: the rows that empty the slot.
    """

    channel: PlannedChannel
    subs: int
    slots: int
    first_chunk: int = 0
    by_sub: Mapping[int, PlannedChannel] = field(default_factory=dict)
    body: LoopBody = field(default_factory=LoopBody)
    passes: dict[tuple[str, int], list[list[int]]] = field(default_factory=dict)
    filled: dict[tuple[int, int, int], tuple[int, int]] = field(default_factory=dict)
    taken: dict[tuple[int, int, int], list[int]] = field(default_factory=dict)
    _left: dict[Hop, list[int]] = field(default_factory=dict)

    def send(self, hop: Hop, sub: int, block_pass: Pass, *, base: int = 0) -> int:
        """Add a pass by which the block of a rank sends a sub to another rank; return its row.

        Over the network the pass fills a FIFO in the memory of the sender's GPU, and a row of its
        proxy sends from there: one for each sub with Simple, one for the whole chunk with LL and
        LL128.

        - `hop`: sender and receiver.
        - `base`: elements added to the offset of the sub's segment.
        """
        src, dst = hop
        channel = self.by_sub.get(sub, self.channel)
        block = channel.hop(src, dst, block_pass, proxy=False)
        if not channel.is_net(src, dst):
            row = self.body.row(block, src, dst, sub, base=base)
            self.filled[src, dst, sub] = row, row
            return row
        row = self.body.row(block, src, src, sub, base=base)
        self._left.setdefault(hop, []).append(row)
        if channel.simple or sub == self.subs - 1:
            segment = sub if channel.simple else self.first_chunk
            proxy = channel.hop(src, dst, block_pass, proxy=True)
            if channel.simple and sub:
                proxy = replace(proxy, follows=True)
            self._sent(hop, sub, self.body.row(proxy, src, dst, segment, base=base))
        return row

    def _sent(self, hop: Hop, sub: int, sent: int) -> None:
        """Let a proxy's row wait for the rows of its block whose data it sends.

        These are all rows of the hop that no proxy row has sent yet: with Simple one slice (number
        `sub`), else all pieces of a chunk, of which `sub` is the last. `sent` is the proxy's row.
        """
        rows = self._left.pop(hop)
        for number, row in enumerate(rows):
            self.body.after(sent, row, self.channel.noticed)
            self.filled[(*hop, sub - len(rows) + 1 + number)] = row, sent

    def merge(self, rank: int, sub: int, hops: Sequence[Hop], *, base: int = 0) -> int:
        """Add a row for one more source of a pass of `rank`; return it.

        It waits for the data of `hops`. The cost of reading the source is part of the pass itself.
        """
        kind = self.channel.merge(SCRATCH, REDUCE)
        row = self.body.row(kind, rank, rank, sub, base=base)
        for hop in hops:
            self.wait([row], hop, sub)
        return row

    def wait(self, rows: Sequence[int], hop: Hop, sub: int) -> None:
        """Let rows wait until a sub's data has arrived over a hop (sender, receiver)."""
        for row in rows:
            self.body.after(row, self.filled[(*hop, sub)][1], self.channel.sync(*hop))

    def take(self, rows: Sequence[int], hop: Hop, sub: int) -> None:
        """Let `rows` wait for the data of a sub that a hop brings, and empty its slot at their end.

        `hop` is (sender, receiver).
        """
        self.wait(rows, hop, sub)
        self.taken[(*hop, sub)] = list(rows)

    def read(self, rows: Sequence[int], written: Sequence[int], sync: Lag) -> None:
        """Let each of `rows` wait for all rows `written`, which wrote the data that it reads.

        `sync` is the lag. The rows `written` use the same slot again `slots` loops later, and then
        wait for the readers of this loop.
        """
        readers = np.repeat(rows, len(written))
        read = np.tile(written, len(rows))
        self.body.after(readers, read, sync)
        self.body.after(read, readers, IN_ORDER, self.slots)

    def done(self, lane: str, rank: int, rows: Sequence[int]) -> None:
        """Append rows as the next pass in a lane (a group of threads of a rank's block)."""
        self.passes.setdefault((lane, rank), []).append(list(rows))

    def close(self) -> tuple[list[int], list[int]]:
        """Add the order of passes in each lane, and the credits of all slots.

        Returns the rows that end the loop (those of the last pass of every lane): a list of their
        ranks, and a list of the rows.
        """
        for passes in self.passes.values():
            for sub, rows in enumerate(passes):
                for row in rows:
                    for earlier in passes[sub - 1]:
                        self.body.after(row, earlier, IN_ORDER, int(sub == 0))
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
        """Let the message of a sub wait for the message of the sub `before`, `back` loops ago.

        Only messages of proxies get this order; on a hop inside a node nothing is added.
        """
        row, sent = self.filled[(*hop, sub)]
        if sent != row:
            self.body.after(sent, self.filled[(*hop, before)][1], IN_ORDER, back)

    def _credits(self, hop: Hop, sub: int, used: int) -> None:
        """Let a sub's slot be filled only after it was emptied, `slots` loops ago.

        `used` is the last sub in the same slot: with Simple each slice has its own slot, so it is
        `sub`; with LL and LL128 all pieces of a chunk share one.
        """
        row, sent = self.filled[(*hop, sub)]
        for reader in self.taken[(*hop, used)]:
            self.body.after(sent, reader, self.channel.credit(*hop), self.slots)
        if sent != row:
            before = self.filled[(*hop, used)][1]
            self.body.after(row, before, self.channel.local_credit, self.slots)


KEEP = schedule.Style(kind=LOCAL_COPY, src_buffer=IN, dst_buffer=OUT, stream="keep")

MAX_CACHED_ROWS = 500_000  # a loop with more rows is not cached for other sizes


@dataclass(frozen=True)
class WrittenLoop:
    """All rows of one loop of a channel.

    `last` are the rows that end the loop, as two arrays: the ranks that they belong to, and the
    rows.
    """

    body: LoopBody
    last: tuple[ArrayLike, ArrayLike]


def cached_loop(
    collective: Collective, plan: Plan, key: object, write: Callable[[], WrittenLoop]
) -> WrittenLoop:
    """Return one loop of a channel from the plan's cache; if it is not there, `write` it.

    `key` contains all that the loop depends on, besides the collective and those parts of the plan
    that are the same for all sizes.
    """
    call = (collective.name, collective.root, plan.algorithm, plan.protocol)
    full_key = (*call, plan.direct, plan.registered, plan.cached, key)
    return plan.memo.of(full_key, write, lambda loop: len(loop.body) <= MAX_CACHED_ROWS)


class Output:
    """Collects the channels of a schedule while it is written, and the rows that end each rank.

    With `keep`, each rank also copies the data that stays with it from its input to its output.
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

    def add(self, loop: WrittenLoop, cut: Segments, gates: Sequence[tuple[Rows, Lag]] = ()) -> Rows:
        """Append all loops of a channel; return the numbers of its rows in the schedule as [loop,
        row].

        - `cut`: the data of every loop.
        - `gates`: rows that the first loop waits for, as in `LoopBody.unroll`.
        """
        body = loop.body
        last = loop.last
        if not len(cut.count) or not len(body):
            return np.zeros((0, len(body)), np.int32)
        rows = body.unroll(self.builder, cut, places=self.places, gates=gates)
        self.ends(np.asarray(last[0]), rows[-1][np.asarray(last[1])])
        return rows

    def ends(self, ranks: NDArray[np.int64], rows: Rows) -> None:
        """Let the end of `ranks[i]` wait for `rows[i]`; a rank may occur several times."""
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
        """Return the finished schedule.

        Its last rows are marks, one for each rank in order: its end.
        """
        after = [(rows, IN_ORDER) for rows in self._final]
        self.builder.marks(np.arange(self.collective.ranks), after=after)
        return self.builder.finish()

    def _keep(self) -> None:
        """Add a copy from input to output for data that stays on its rank, unless the call is in
        place.

        NCCL makes these copies as part of a block's first send.
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


PASS = 7  # the number of columns that describe a Pass: all its fields but `keeps`
COLUMNS = 5  # the number of columns of a row: kind, source, destination, segment, place


@dataclass
class RowSheet:
    """The rows of one loop of a channel, added for many ranks at once and in any order.

    In the end the rows are written into a `LoopBody` in increasing order of their `place`. `subs`
    is the number of subs of a chunk.
    """

    channel: PlannedChannel
    subs: int
    body: LoopBody = field(default_factory=LoopBody)
    _blocks: list[Ints] = field(default_factory=list)
    _edges: list[tuple[Ints, Ints, Lag, ArrayLike]] = field(default_factory=list)
    _size: int = 0

    def rows(
        self, kind: ArrayLike, ends: tuple[Ints, Ints], segment: ArrayLike, place: Ints
    ) -> Ints:
        """Add rows, one for each segment (first axis) and pair of endpoints (second axis).

        - `kind`: numbers of kinds of row; broadcast against the other arrays.
        - `ends`: sources and destinations.
        - `place`: sort key of a row: rows with a smaller one are written first.

        Returns the numbers of the rows in the order in which they were added, as [segment, pair].
        """
        columns = np.broadcast_arrays(kind, *ends, np.asarray(segment)[..., None], place)
        self._blocks.append(np.array([column.ravel() for column in columns], np.int64))
        first = self._size
        self._size += columns[0].size
        return np.arange(first, self._size).reshape(columns[0].shape)

    def after(self, rows: Ints, earlier: Ints, lag: Lag, back: ArrayLike = 0) -> None:
        """Let each of `rows` wait for the row in `earlier` at its place, with a lag.

        The earlier row is that of the loop `back` loops before. Rows are numbered as
        `RowSheet.rows` does.
        """
        self._edges.append((rows, earlier, lag, back))

    def written(self) -> tuple[LoopBody, Ints]:
        """Return the LoopBody with all rows in the order of `place`, and their numbers in it.

        The numbers are in the order in which the rows were added.
        """
        columns = np.concatenate([np.zeros((COLUMNS, 0), np.int64), *self._blocks], axis=1)
        order = np.argsort(columns[-1], kind="stable")
        kind, src, dst, segment, _ = columns[:, order]
        number = np.empty(self._size, np.int64)
        number[order] = self.body.rows(kind, src, dst, segment)
        for rows, earlier, lag, back in self._edges:
            if rows.size:
                self.body.after(number[rows], number[earlier], lag, back)
        return self.body, number

    def kinds(
        self,
        hops: "HopColumns",
        pass_fields: Sequence[ArrayLike],
        *,
        proxy: bool,
        change: Callable[[RowKind], RowKind] = lambda kind: kind,
    ) -> Ints:
        """Return the number of the kind of row of each hop.

        - `pass_fields`: the fields of the hops' passes, in the order of `Pass` (`PASS` columns).
        - `proxy`: whether the rows are those of proxies, not of blocks.
        - `change`: a function applied to every kind.

        Hops with equal passes, kinds of link and routes share a kind.
        """
        table = np.stack(
            [np.broadcast_to(np.asarray(x, np.float64), hops.src.shape) for x in pass_fields]
            + [hops.kind.astype(np.float64), hops.route.astype(np.float64)]
        )
        _, first, which = np.unique(table, axis=1, return_index=True, return_inverse=True)
        numbers = []
        for hop in first.tolist():
            *whole_numbers, threads = table[:PASS, hop].tolist()
            src_buffer, dst_buffer, op, reads, writes, fan = map(int, whole_numbers)
            hop_pass = Pass(src_buffer, dst_buffer, op, reads, writes, fan, threads)
            kind = self.channel.hop(int(hops.src[hop]), int(hops.dst[hop]), hop_pass, proxy=proxy)
            numbers.append(self.body.kind(change(kind)))
        return np.array(numbers, np.int64)[which.reshape(-1)]


@dataclass(frozen=True)
class HopColumns:
    """Hops of a channel as columns.

    - `src`, `dst`: the ranks at both ends of every hop.
    - `kind`: the kind of link between them, as `link_kinds` numbers it.
    - `route`: a number that hops of equal routes share.
    """

    src: Ints
    dst: Ints
    kind: Ints
    route: Ints

    @property
    def ends(self) -> tuple[Ints, Ints]:
        """The sources and the destinations of all hops."""
        return self.src, self.dst

    def subset(self, places: NDArray[np.bool_] | Ints) -> "HopColumns":
        """Return the hops that `places` selects (a mask or indices)."""
        return HopColumns(self.src[places], self.dst[places], self.kind[places], self.route[places])

    def by_link_kind(self) -> Iterator[tuple[Ints, tuple[int, int]]]:
        """Yield for each kind of link the indices of its hops, and (source, destination) of the
        first one.
        """
        for kind in different(self.kind).tolist():
            places = np.flatnonzero(self.kind == kind)
            first = places[0]
            yield places, (int(self.src[first]), int(self.dst[first]))


def hops_of(channel: PlannedChannel, src: Ints, dst: Ints) -> HopColumns:
    """Return the hops of a channel from the ranks `src` to the ranks `dst`, with links and
    routes.
    """
    plan = channel.plan
    kind = link_kinds(plan, np.array(plan.node), src, dst)
    hop_routes = routes(plan, channel.number, src, dst, kind).tolist()
    numbers = {route: number for number, route in enumerate(dict.fromkeys(hop_routes))}
    return HopColumns(src, dst, kind, np.array([numbers[route] for route in hop_routes], np.int64))
