"""How loops of blocks are written: rows of one turn of a channel, repeated for all at once.

Rows of one turn are the same in every turn but for the data they move; what they wait for lies in
the same turn or in an earlier one. It knows no algorithm."""

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
    """The data of every turn (first axis) by segment (second axis), in elements: where it lies in
    the call's data, and how much it is. A FIFO has `slots`. A chunk has `subs` segments; those from
    `whole` on are chunks in one piece."""

    offset: Ints
    count: Ints
    slots: int = 1
    subs: int = 1
    whole: int = 0


class Weave:
    """Rows and their dependencies in one turn of a loop, while it is written."""

    def __init__(self) -> None:
        self.kinds: dict[RowKind, int] = {}
        self._blocks: list[Sequence[NDArray[Any]]] = []  # columns of rows
        self._single: list[tuple[int, ...]] = []  # rows not yet made a block of
        self._edges: dict[Lag, list[tuple[Rows, Rows, Rows]]] = {}
        self._pairs: dict[Lag, list[tuple[int, int, int]]] = {}
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def kind(self, kind: RowKind) -> int:
        """The number of a kind of row."""
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
        """Append rows (arrays broadcast against each other) and return their numbers. Their data
        lies `base` elements behind the offset of their segment, at the sender's `origin`."""
        self._flush()
        given = [np.asarray(x, np.int32) for x in (kind, src, dst, step, segment)]
        given += [np.asarray(x, np.int64) for x in (base, base if origin is None else origin)]
        shape = np.broadcast_shapes((1,), *(x.shape for x in given))
        self._blocks.append([np.broadcast_to(x, shape).reshape(-1) for x in given])
        first = self._size
        self._size += int(np.prod(shape))
        return np.arange(first, self._size)

    def row(self, kind: RowKind, src: int, dst: int, segment: int, *, base: int = 0) -> int:
        """Append one row and return its number."""
        self._single.append((self.kind(kind), src, dst, 0, segment, base, base))
        self._size += 1
        return self._size - 1

    def after(self, row: ArrayLike, earlier: ArrayLike, lag: Lag, back: ArrayLike = 0) -> None:
        """Let rows wait for other rows, of the turn `back` turns ago."""
        if isinstance(row, int) and isinstance(earlier, int) and isinstance(back, int):
            self._pairs.setdefault(lag, []).append((row, earlier, back))
            return
        given = [np.asarray(x, np.int32) for x in (row, earlier, back)]
        one, two, three = (x.reshape(-1) for x in np.broadcast_arrays(*given))
        self._edges.setdefault(lag, []).append((one, two, three))

    def _flush(self) -> None:
        if self._single:
            *whole, base, origin = np.array(self._single, np.int64).T
            self._blocks.append([*(x.astype(np.int32) for x in whole), base, origin])
            self._single = []

    def _flush_edges(self) -> None:
        for lag, pairs in self._pairs.items():
            one, two, three = np.array(pairs, np.int32).T
            self._edges.setdefault(lag, []).append((one, two, three))
        self._pairs = {}

    def unroll(
        self,
        builder: Builder,
        segments: Segments,
        *,
        places: bool,
        gates: Sequence[tuple[Rows, Lag]],
    ) -> Rows:
        """Append all turns; returns the numbers of the rows by turn (first axis). The rows of the
        first turn wait for the rows in `gates` too (one for each, -1: none)."""
        self._flush()
        self._flush_edges()
        columns = list(zip(*self._blocks, strict=True))
        kind, src, dst, step, segment = map(_one, columns[:-2])
        bases = list(map(_one, columns[-2:])) if places else []
        turns, size = len(segments.count), self._size
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
        """Style numbers by turn, one for each kind and size; later turns follow earlier ones."""
        kinds = list(self.kinds)
        later = np.arange(len(kinds), dtype=np.int32)
        for number, first in enumerate(kinds[:]):
            if first.path.handling != NO_HANDLING and not first.follows:
                later[number] = len(kinds)
                kinds.append(replace(first, follows=True))
        sizes, which = np.unique(segments.count, return_inverse=True)
        which = which.reshape(segments.count.shape)
        patterns, turn = _patterns(np.column_stack([np.arange(len(which)) == 0, which]))
        found: dict[int, int] = {}
        columns = []
        for first_turn, *size_of in patterns:
            code = (kind if first_turn else later[kind]) * np.int32(len(sizes))
            code += np.array(size_of, np.int32)[segment]
            numbers = np.zeros(len(kinds) * len(sizes), np.int32)
            for c in np.flatnonzero(np.bincount(code)).tolist():
                if c not in found:
                    style = kinds[c // len(sizes)].of(sizes[c % len(sizes)] * builder.element_bytes)
                    found[c] = builder.style(style)
                numbers[c] = found[c]
            columns.append(numbers[code])
        return np.stack(columns)[turn]

    def _unrolled(
        self, builder: Builder, turns: int, gates: Sequence[tuple[Rows, Lag]]
    ) -> tuple[Ints, Rows, NDArray[np.int16]]:
        """What the rows of all turns wait for, as pointers, rows and lags."""
        row, earlier, back, lag = self._sorted_edges(builder, turns)
        size, first = self._size, len(builder)
        target = earlier - back * np.int32(size) + np.int32(first)
        counts, rows, lags = list[Ints](), list[Rows](), list[NDArray[np.int16]]()
        settled = min(turns, int(back.max(initial=0)))
        for turn in range(settled):  # the first ones have fewer before them
            mine = back <= turn
            counts.append(np.bincount(row[mine], minlength=size))
            rows.append(target[mine] + np.int32(turn * size))
            lags.append(lag[mine])
        rest = np.arange(settled, turns, dtype=np.int32)[:, None] * np.int32(size)
        counts.append(np.tile(np.bincount(row, minlength=size), len(rest)))
        rows.append((target[None] + rest).ravel())
        lags.append(np.tile(lag, len(rest)))
        ptr = np.concatenate([[0], np.cumsum(np.concatenate(counts))])
        joins = ptr, np.concatenate(rows), np.concatenate(lags)
        return _gated(builder, joins, gates) if gates else joins

    def _sorted_edges(self, builder: Builder, turns: int) -> Iterator[NDArray[Any]]:
        none = np.zeros(0, np.int32)
        parts: list[tuple[NDArray[Any], ...]] = [(none, none, none, none.astype(np.int16))]
        for lag, edges in self._edges.items():
            number = builder.lag(lag)
            for edge in edges:
                some = edge[-1] < turns  # by how many turns back
                parts.append((*(x[some] for x in edge), np.full(some.sum(), number, np.int16)))
        every = [np.concatenate(column) for column in zip(*parts, strict=True)]
        order = np.argsort(every[0], kind="stable")
        return (column[order] for column in every)


def _one(parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _patterns(table: Ints) -> tuple[list[list[int]], Ints]:
    """The different rows of a table, in order, and which of them each row is."""
    new = np.append(True, (table[1:] != table[:-1]).any(axis=1))
    rows = table[new].tolist()
    patterns = sorted(map(list, set(map(tuple, rows))))
    number = {tuple(row): place for place, row in enumerate(patterns)}
    which = np.array([number[tuple(row)] for row in rows])
    return patterns, which[np.cumsum(new) - 1]


def _gated(
    builder: Builder, joins: tuple[Ints, Rows, NDArray[np.int16]], gates: Sequence[tuple[Rows, Lag]]
) -> tuple[Ints, Rows, NDArray[np.int16]]:
    """The same, and the rows of the first turn wait for those in `gates` besides."""
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
    """The pieces of all rows; without places, one for each size."""
    if not bases:
        sizes, which = np.unique(segments.count, return_inverse=True)
        return builder.pieces(sizes)[which.reshape(segments.count.shape)][:, segment]
    count = segments.count[:, segment]
    target, origin = (segments.offset[:, segment] + base for base in bases)
    return builder.pieces(count.ravel(), origin.ravel(), target.ravel()).reshape(count.shape)


# Cuts: a channel's part in loops, chunks, and the slices or pieces in which chunks move.
# Offsets and counts are in elements, chunk sizes of a plan in bytes.

ONE = FifoSteps(1, 1)


def chunk_table(
    work: Work, element_bytes: int, spread: int = 1, alignment: int = ALIGNMENT
) -> tuple[Ints, Ints]:
    """Offset and count of every chunk of a part, by loop and chunk."""
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
    """Cut all chunks alike: the u subs of chunk c are the segments c·u, c·u + 1, … After them come
    whole chunks, and last an empty segment for rows that only wait. A FIFO of `plan.slots` holds as
    many chunks as fit. `threads` is the least part of a block's threads that moves a chunk."""
    offset, count = table
    size, subs = _sizes(plan, element_bytes, count, steps, threads)
    part = np.arange(subs)
    begin = np.minimum(part * size[:, :, None], count[:, :, None])
    length = np.minimum(size[:, :, None], count[:, :, None] - begin)
    columns = [(offset[:, :, None] + begin, offset), (length, count)]
    where, much = (
        np.pad(np.hstack([x.reshape(len(count), -1), whole]), ((0, 0), (0, 1)))
        for x, whole in columns
    )
    slots = max(1, plan.slots // steps.chunk)
    return Segments(where, much, slots, subs, subs * count.shape[1])


def _sizes(
    plan: Plan, element_bytes: int, count: Ints, steps: FifoSteps, threads: float
) -> tuple[Ints, int]:
    if plan.protocol == "Simple":
        slices = steps.chunk // steps.slice
        least = max(1, plan.slot * steps.slice // element_bytes // 32)
        size = np.maximum(-(-count // (16 * slices)) * 16, least)
        return size, slices if (count > size).any() else 1
    mechanism = plan.mechanism
    largest = int(count.max(initial=0)) * element_bytes
    grain = mechanism.grain.of(plan.protocol)
    if plan.protocol == "LL":  # a line a thread; warps of LL128 pass on theirs one by one
        grain *= threads
    pieces = int(-(-largest // grain))
    line = max(1, ALIGNMENT // element_bytes)
    if plan.protocol == "LL":  # whole waves, of which the last may have fewer lines
        waves = max(1, -(-pieces // mechanism.most_pieces))
        held = max(line, int(waves * grain) // element_bytes // line * line)
        return np.full_like(count, held), max(1, -(-largest // (held * element_bytes)))
    subs = max(1, min(mechanism.most_pieces, pieces))
    return np.maximum(-(-count // (subs * line)) * line, 1), subs


# Lines: the passes of blocks in one turn of a loop, and the connections between them.
# A pass takes in what arrived on some connections and fills others. From who fills and who takes,
# order and credits follow by themselves. It knows no algorithm.

Hop = tuple[int, int]


@dataclass
class Lines:
    """One channel while the rows of a turn are written, sub by sub. `passes` are the rows of each
    lane (a group of threads of a rank's block) by sub; `filled` the block's row and the row that
    brings the data, by hop and sub; `taken` the rows that empty it. `whole` is the segment of a
    chunk in one piece. Rows of some subs stand for more than those of the channel (`by_sub`)."""

    channel: PlannedChannel
    subs: int
    slots: int
    whole: int = 0
    by_sub: Mapping[int, PlannedChannel] = field(default_factory=dict)
    woven: Weave = field(default_factory=Weave)
    passes: dict[tuple[str, int], list[list[int]]] = field(default_factory=dict)
    filled: dict[tuple[int, int, int], tuple[int, int]] = field(default_factory=dict)
    taken: dict[tuple[int, int, int], list[int]] = field(default_factory=dict)
    _left: dict[Hop, list[int]] = field(default_factory=dict)

    def send(self, hop: Hop, sub: int, made: Pass, *, base: int = 0) -> int:
        """A pass to another rank by the block, and by the proxy from its FIFO."""
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
            segment = sub if channel.simple else self.whole
            proxy = channel.hop(src, dst, made, proxy=True)
            if channel.simple and sub:
                proxy = replace(proxy, follows=True)
            self._sent(hop, sub, self.woven.row(proxy, src, dst, segment, base=base))
        return row

    def _sent(self, hop: Hop, sub: int, sent: int) -> None:
        """A proxy sends what its block has left: a slice of Simple, or a whole chunk of LL."""
        rows = self._left.pop(hop)
        for number, row in enumerate(rows):
            self.woven.after(sent, row, self.channel.noticed)
            self.filled[(*hop, sub - len(rows) + 1 + number)] = row, sent

    def merge(self, rank: int, sub: int, hops: Sequence[Hop], *, base: int = 0) -> int:
        """A further source of a pass, once it is there on all of some hops."""
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
        """Let rows use what others have written, and them write there again when it is over."""
        readers, read = np.repeat(rows, len(written)), np.tile(written, len(rows))
        self.woven.after(readers, read, sync)
        self.woven.after(read, readers, IN_ORDER, self.slots)

    def done(self, lane: str, rank: int, rows: Sequence[int]) -> None:
        """The rows that make up the next pass of a lane."""
        self.passes.setdefault((lane, rank), []).append(list(rows))

    def close(self) -> tuple[list[int], list[int]]:
        """Add order and credits; returns the ranks and rows that end a turn."""
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
        row, sent = self.filled[(*hop, sub)]
        if sent != row:
            self.woven.after(sent, self.filled[(*hop, before)][1], IN_ORDER, back)

    def _credits(self, hop: Hop, sub: int, used: int) -> None:
        """A Simple slice has a slot of its own; pieces of LL share theirs with the whole chunk."""
        row, sent = self.filled[(*hop, sub)]
        for reader in self.taken[(*hop, used)]:
            self.woven.after(sent, reader, self.channel.credit(*hop), self.slots)
        if sent != row:
            before = self.filled[(*hop, used)][1]
            self.woven.after(row, before, self.channel.local_credit, self.slots)


# The Output: the schedule under construction, channel after channel, and its last rows.
# It keeps FIFOs of different channels apart in scratch, copies what stays on its rank, and ends
# with one mark a rank.

KEEP = schedule.Style(kind=LOCAL_COPY, src_buffer=IN, dst_buffer=OUT, stream="keep")

MEMORABLE = 500_000  # rows of the largest turn of a loop that is kept for other sizes


@dataclass(frozen=True)
class Turn:
    """One turn of a channel's loop, and the ranks and rows that end it."""

    woven: Weave
    last: tuple[ArrayLike, ArrayLike]


def remembered(collective: Collective, plan: Plan, key: object, write: Callable[[], Turn]) -> Turn:
    """One turn of a channel's loop, written once for all sizes. `key` is what it depends on besides
    the function and the plan without its work."""
    call = (collective.name, collective.root, plan.algorithm, plan.protocol)
    whole = (*call, plan.direct, plan.registered, plan.cached, key)
    return plan.memo.of(whole, write, lambda turn: len(turn.woven) <= MEMORABLE)


class Output:
    """A Builder, and the rows that end each rank."""

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
        """Append a channel; returns its rows by turn."""
        woven, last = turn.woven, turn.last
        if not len(cut.count) or not len(woven):
            return np.zeros((0, len(woven)), np.int32)
        rows = woven.unroll(self.builder, cut, places=self.places, gates=gates)
        self.ends(np.asarray(last[0]), rows[-1][np.asarray(last[1])])
        return rows

    def ends(self, ranks: NDArray[np.int64], rows: Rows) -> None:
        """Let the end of some ranks (one may occur several times) wait for rows of theirs."""
        if self.builder.fold is not None:
            ranks = self.builder.fold.ranks.first[ranks].astype(np.int64)
        order = np.argsort(ranks, kind="stable")
        ranks, rows = ranks[order], rows[order]
        place = np.arange(len(ranks)) - np.searchsorted(ranks, ranks)
        columns = np.full((int(place.max(initial=-1)) + 1, self.collective.ranks), -1, np.int32)
        columns[place, ranks] = rows
        self._final += list(columns)

    def close(self) -> schedule.Schedule:
        """The finished schedule; its last rows are one mark a rank, in order: the rank is done."""
        after = [(rows, IN_ORDER) for rows in self._final]
        self.builder.marks(np.arange(self.collective.ranks), after=after)
        return self.builder.finish()

    def _keep(self) -> None:
        """Copies of what stays where it is, if the output is elsewhere: part of a first send."""
        kept = self.collective.local_data()
        if self.collective.in_place or not len(kept.rank):
            return
        piece = self.builder.pieces(kept.count, kept.in_offset, kept.out_offset)
        fold = self.builder.fold
        if fold is None:
            self.ends(kept.rank, self.builder.rows(KEEP, kept.rank, kept.rank, piece))
            return
        leads = fold.ranks.first[kept.rank] == kept.rank
        for copies in different(fold.ranks.count[kept.rank[leads]]).tolist():
            mine = np.flatnonzero(leads & (fold.ranks.count[kept.rank] == copies))
            rank, style = kept.rank[mine], replace(KEEP, copies=copies)
            self.ends(rank, self.builder.rows(style, rank, rank, piece[mine]))


# The Sheet: rows of a turn as they come to mind, for many ranks at once, put in order in the end.
# Every row has a place; rows are written into a Weave by place and, on one place, as they came.

PASS = 7  # columns that say how a pass is made: what a Pass holds
COLUMNS = 5  # of a row: kind, ends, segment, place


@dataclass
class Sheet:
    """Rows of a channel whose chunks have `subs` segments."""

    channel: PlannedChannel
    subs: int
    woven: Weave = field(default_factory=Weave)
    _blocks: list[Ints] = field(default_factory=list)
    _edges: list[tuple[Ints, Ints, Lag, ArrayLike]] = field(default_factory=list)
    _size: int = 0

    def rows(
        self, kind: ArrayLike, ends: tuple[Ints, Ints], segment: ArrayLike, place: Ints
    ) -> Ints:
        """A row of each pair of ends (second axis) for each segment (first axis)."""
        columns = np.broadcast_arrays(kind, *ends, np.asarray(segment)[..., None], place)
        self._blocks.append(np.array([column.ravel() for column in columns], np.int64))
        first = self._size
        self._size += columns[0].size
        return np.arange(first, self._size).reshape(columns[0].shape)

    def after(self, rows: Ints, earlier: Ints, lag: Lag, back: ArrayLike = 0) -> None:
        """Let rows wait for others, of the turn `back` turns ago."""
        self._edges.append((rows, earlier, lag, back))

    def written(self) -> tuple[Weave, Ints]:
        """All of it, and the number of every row by when it came."""
        every = np.concatenate([np.zeros((COLUMNS, 0), np.int64), *self._blocks], axis=1)
        order = np.argsort(every[-1], kind="stable")
        kind, src, dst, segment, _ = every[:, order]
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
        """The kinds of rows of hops, each made by a pass; of each different one there is one."""
        table = np.stack(
            [np.broadcast_to(np.asarray(x, np.float64), hops.src.shape) for x in made]
            + [hops.kind.astype(np.float64), hops.route.astype(np.float64)]
        )
        _, first, which = np.unique(table, axis=1, return_index=True, return_inverse=True)
        found = []
        for hop in first.tolist():
            *counts, threads = table[:PASS, hop].tolist()
            buffers, op, reads, writes, fan = counts[:2], *map(int, counts[2:])
            way = int(hops.src[hop]), int(hops.dst[hop])
            passes = Pass(int(buffers[0]), int(buffers[1]), op, reads, writes, fan, threads)
            kind = self.channel.hop(*way, passes, proxy=proxy)
            found.append(self.woven.kind(change(kind)))
        return np.array(found, np.int64)[which.reshape(-1)]


@dataclass(frozen=True)
class HopsOf:
    """Hops of a channel: ends, what joins them (the network is 0), and a number for each way."""

    src: Ints
    dst: Ints
    kind: Ints
    route: Ints

    @property
    def ends(self) -> tuple[Ints, Ints]:
        """From whom to whom."""
        return self.src, self.dst

    def some(self, which: NDArray[np.bool_] | Ints) -> "HopsOf":
        """Some of them."""
        return HopsOf(self.src[which], self.dst[which], self.kind[which], self.route[which])

    def alike(self) -> Iterator[tuple[Ints, tuple[int, int]]]:
        """Those that are joined by the same, and one of them."""
        for kind in different(self.kind).tolist():
            mine = np.flatnonzero(self.kind == kind)
            yield mine, (int(self.src[mine[0]]), int(self.dst[mine[0]]))


def hops_of(channel: PlannedChannel, src: Ints, dst: Ints) -> HopsOf:
    """Hops of a channel between some ranks."""
    plan = channel.plan
    kind = link_kinds(plan, np.array(plan.node), src, dst)
    ways = routes(plan, channel.number, src, dst, kind).tolist()
    numbers = {way: number for number, way in enumerate(dict.fromkeys(ways))}
    return HopsOf(src, dst, kind, np.array([numbers[way] for way in ways], np.int64))
