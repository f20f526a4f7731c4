"""Direct sends: everyone to everyone at once, pairs, gather and scatter, a parameter server.

What is to be summed up lands in a slot of its own for each sender and is added there by the
receiver, one after the other: nothing else would order simultaneous arrivals."""

import numpy as np
from numpy.typing import NDArray

from netsim.collectives import writing
from netsim.collectives.collective import Collective
from netsim.collectives.forest import Forest, up_and_down
from netsim.collectives.row_writer import MessagePart
from netsim.collectives.writing import Ints, Lanes, Rows, ceil_log2, edges, flag, range_parts
from netsim.schedule import schedule
from netsim.schedule.schedule import ARRIVED, IN, IN_ORDER, OUT, REDUCE, SCRATCH, Schedule, Style

Offsets = NDArray[np.int64]
TO_SLOT = Style(src_buffer=IN, dst_buffer=SCRATCH)


def all_gather(collective: Collective) -> Schedule:
    """Everyone sends its block to all others."""
    lanes = Lanes(collective).keep()
    n = collective.ranks
    block = collective.count
    piece = lanes.builder.pieces(np.full(n, block), 0, np.arange(n) * block)
    send_to_all(lanes, Style(src_buffer=IN), np.tile(piece, n - 1), 0)
    return lanes.close()


def all_reduce(collective: Collective) -> Schedule:
    """Everyone sends its whole input to all others, and adds up what it gets."""
    lanes = Lanes(collective).keep()
    n = collective.ranks
    count = collective.count
    zero = np.zeros(n, np.int64)
    exchange_and_add(lanes, zero, zero, np.full(n, count), overwrites=collective.in_place)
    return lanes.close()


def reduce_scatter(collective: Collective) -> Schedule:
    """Everyone sends each block to its owner, who adds up what it gets."""
    lanes = Lanes(collective).keep()
    n = collective.ranks
    block = collective.count
    exchange_and_add(lanes, np.arange(n) * block, np.zeros(n, np.int64), np.full(n, block))
    return lanes.close()


def everyone_else(n: int) -> tuple[Rows, Rows]:
    """The ranks of all messages in a total exchange: first everyone to the next, and so on."""
    src = np.tile(np.arange(n, dtype=np.int32), n - 1)
    dst = src + np.repeat(np.arange(1, n, dtype=np.int32), n)
    dst %= n
    return src, dst


def send_to_all(
    lanes: Lanes, style: Style, pieces: Rows, step: int, after: Rows | None = None
) -> Rows:
    """Append a total exchange, each after a row of its rank; row (s-1)·n + r goes to r + s."""
    n = lanes.ranks
    src, dst = everyone_else(n)
    deps = [] if after is None else [(after[src], IN_ORDER)]
    rows = lanes.builder.rows(style, src, dst, pieces, step=step, after=deps)
    lanes.wait(src, rows, IN_ORDER, step)
    lanes.wait(dst, rows, ARRIVED, step)
    return rows


def exchange_and_add(
    lanes: Lanes, source: Offsets, target: Offsets, count: Offsets, *, overwrites: bool = False
) -> Rows:
    """Let rank q sum up `count[q]` elements at `source[q]` of all inputs at `target[q]` of OUT.
    `overwrites`: the sums go where others' messages are read from. Returns the last row by rank."""
    n = lanes.ranks
    builder = lanes.builder
    if n == 1:
        return np.full(1, -1, np.int32)
    _, dst = everyone_else(n)
    slot = np.repeat(np.arange(n - 1), n) * count.max(initial=0)
    into = builder.pieces(count[dst], source[dst], slot)
    src, dst = everyone_else(n)
    sent = builder.rows(TO_SLOT, src, dst, into, step=0)
    table = sent.reshape(n - 1, n)
    blockers = [(row, IN_ORDER) for row in table] if overwrites else []
    ranks = np.arange(n)
    last = np.full(n, -1, np.int32)
    for s in range(1, n):
        own_pieces = builder.pieces(count, slot[(s - 1) * n], target, source)
        style = Style(
            schedule.LOCAL_COPY, schedule.REDUCE_INPUT if s == 1 else REDUCE, SCRATCH, OUT
        )
        arrived = (np.roll(table[s - 1], s), ARRIVED)
        last = builder.rows(
            style, ranks, ranks, own_pieces, step=1, after=[arrived, (last, IN_ORDER), *blockers]
        )
        blockers = []
    lanes.passed(ranks, last, 1)
    lanes.wait(src, sent, IN_ORDER)
    return last


DIRECT = Style(src_buffer=IN, dst_buffer=OUT)


def linear_shift(collective: Collective) -> Schedule:
    """In step s everyone sends to the rank s after it, one message after the other."""
    lanes = Lanes(collective).keep()
    exchange(lanes, *everyone_else(lanes.ranks), paired=False)
    return lanes.close()


def pairwise(collective: Collective) -> Schedule:
    """Step s, after the one before: r and r xor s exchange (n a power of 2), else r to r + s."""
    lanes = Lanes(collective).keep()
    src, dst = everyone_else(collective.ranks)
    if collective.ranks & (collective.ranks - 1) == 0:
        dst = src ^ (dst - src) % np.int32(collective.ranks)
    exchange(lanes, src, dst, paired=True)
    return lanes.close()


def exchange(lanes: Lanes, src: Rows, dst: Rows, *, paired: bool) -> None:
    """Row (s-1)·n + r is the message of rank r in step s."""
    n = lanes.ranks
    blocks = lanes.collective.blocks()
    if n == 1:
        return
    place = (blocks.count[src, dst], blocks.in_offset[src, dst], blocks.out_offset[src, dst])
    pieces = lanes.builder.pieces(*place)
    del place
    first = len(lanes.builder)
    before = np.arange(first - n, first - n + len(src), dtype=np.int32)
    before[:n] = -1
    after = [(before, IN_ORDER)]
    if paired:
        received = np.empty((n - 1, n), np.int32)
        steps = np.arange(n - 1)[:, None]
        pair_rows = np.arange(first, first + len(src)).reshape(n - 1, n)
        received[steps, dst.reshape(n - 1, n)] = pair_rows
        after.append((np.concatenate([np.full(n, -1, np.int32), received[:-1].ravel()]), ARRIVED))
    rows = lanes.builder.rows(DIRECT, src, dst, pieces, step=np.arange(len(src)) // n, after=after)
    lanes.passed(np.arange(n), rows[-n:], n - 2)
    last = slice(-n, None) if paired else slice(None)
    lanes.wait(dst[last], rows[last])


def sendrecv(collective: Collective) -> Schedule:
    """Everyone sends its data to the next rank at once, as nccl-tests does."""
    lanes = Lanes(collective).keep()
    n = collective.ranks
    if n > 1:
        piece = lanes.builder.pieces(np.full(n, collective.count))
        part = MessagePart(lanes.builder.style(DIRECT) + np.zeros(n, np.int32), piece)
        lanes.send(np.arange(n), (np.arange(n) + 1) % n, [part], 0)
    return lanes.close()


def pairs(collective: Collective) -> Schedule:
    """All pairs at once."""
    lanes = Lanes(collective).keep()
    ends = np.array(collective.pairs, np.int64).reshape(-1, 2)
    away = ends[:, 0] != ends[:, 1]
    source, target = (offsets[away] for offsets in collective.pair_offsets())
    src, dst = ends[away].T
    piece = lanes.builder.pieces(np.full(len(src), collective.count), source, target)
    rows = lanes.builder.rows(DIRECT, src, dst, piece)
    lanes.wait(src, rows, IN_ORDER)
    lanes.wait(dst, rows, ARRIVED)
    return lanes.close()


def barrier(collective: Collective) -> Schedule:
    """In round s everyone signals, without bytes, the rank 2^s on (Hensgen et al., 1988)."""
    lanes = Lanes(collective)
    n = collective.ranks
    ranks = np.arange(n)
    signal = np.repeat(lanes.builder.pieces(0), n)
    for s in range(ceil_log2(n)):
        part = MessagePart(lanes.builder.style(DIRECT) + np.zeros(n, np.int32), signal)
        lanes.send(ranks, (ranks + (1 << s)) % n, [part], s)
    return lanes.close()


# Gather and scatter: linear, and along a binomial tree.
# In the tree, ranks are counted from the root on. In the gather, v = d, 3d, 5d … hand the blocks of
# their subtree to v - d, for d = 1, 2, 4 …; a scatter runs backwards. In between, blocks lie in
# SCRATCH at their place in the root's buffer. Messages to the same root share its link.


def linear_gather(collective: Collective) -> Schedule:
    """Everyone sends its block to the root at once."""
    lanes = Lanes(collective).keep()
    others = np.delete(np.arange(collective.ranks), collective.root)
    block = collective.count
    piece = lanes.builder.pieces(np.full(len(others), block), 0, others * block)
    root = np.full(len(others), collective.root)
    lanes.send(others, root, [MessagePart(lanes.styles(0 * others + IN, OUT), piece)], 0)
    return lanes.close()


def linear_scatter(collective: Collective) -> Schedule:
    """The root sends everyone its block, one after the other."""
    lanes = Lanes(collective).keep()
    n = collective.ranks
    root = collective.root
    block = collective.count
    others = (root + np.arange(1, n)) % n
    pieces = lanes.builder.pieces(np.full(n - 1, block), others * block, 0)
    first = len(lanes.builder)
    before = np.arange(first - 1, first + n - 2)
    before[:1] = -1
    style = lanes.style(IN, OUT)
    rows = lanes.builder.rows(
        style, root, others, pieces, step=np.arange(n - 1), after=[(before, IN_ORDER)]
    )
    lanes.passed(np.full(len(rows[-1:]), root), rows[-1:], max(0, n - 2))
    lanes.wait(others, rows)
    return lanes.close()


def binomial_gather(collective: Collective) -> Schedule:
    """Blocks move up the tree, 1, 2, 4 … at a time."""
    lanes = Lanes(collective).keep()
    n = collective.ranks
    root = collective.root
    block = collective.count
    for step in range(ceil_log2(n)):
        distance = 1 << step
        v = np.arange(distance, n, 2 * distance)
        rank = (v + root) % n
        to = np.where(v == distance, OUT, SCRATCH)
        own_pieces = lanes.builder.pieces(np.full(len(v), block), 0, rank * block)
        parts = [MessagePart(lanes.styles(IN, to), own_pieces)]
        parts += _rest(lanes, rank, np.minimum(distance, n - v), lanes.styles(SCRATCH, to))
        lanes.send(rank, (v - distance + root) % n, parts, step)
    return lanes.close()


def binomial_scatter(collective: Collective) -> Schedule:
    """Blocks move down the tree, half of what is left at a time."""
    lanes = Lanes(collective).keep()
    n = collective.ranks
    root = collective.root
    block = collective.count
    for step, s in enumerate(reversed(range(ceil_log2(n)))):
        distance = 1 << s
        v = np.arange(0, n - distance, 2 * distance)
        rank = (v + distance + root) % n
        source = np.where(v == 0, IN, SCRATCH)
        number = np.minimum(distance, n - v - distance)
        own_pieces = lanes.builder.pieces(np.full(len(v), block), rank * block, 0)
        parts = _rest(lanes, rank, number, lanes.styles(source, SCRATCH))
        parts += [MessagePart(lanes.styles(source, OUT), own_pieces)]
        lanes.send((v + root) % n, rank, parts, step, blocking=True)
    return lanes.close()


def _rest(lanes: Lanes, rank: Ints, number: Ints, styles: Rows) -> list[MessagePart]:
    """The `number` blocks from a rank's on, without its own."""
    bounds = np.arange(lanes.ranks + 1) * lanes.collective.count
    return range_parts(lanes, writing.wrapped(rank + 1, number - 1, lanes.ranks), bounds, styles)


# Parameter server: everyone pushes its data to a server, which adds up and hands out the sum.
# With one server its link carries everything, which is what rings and trees were made to avoid;
# with `sharded`, every rank is the server of a part of the data.


def server_all_reduce(collective: Collective, *, root: int = 0, sharded: bool = False) -> Schedule:
    """Push to the server `root`, or with `sharded` to all ranks as servers; then pull."""
    n = collective.ranks
    count = collective.count
    lanes = Lanes(collective).keep()
    root = writing.rank_of("root", root, n)
    if not flag("sharded", sharded):
        others = ((root + distance) % n for distance in range(n - 1, 0, -1))
        star = Forest((root,), (1,), tuple((0, root, rank, 0, -1) for rank in others))
        return up_and_down(lanes, star, (np.array([[0]]), np.array([[0]]), np.array([[count]])))
    bounds = edges(count, n)
    sums = exchange_and_add(lanes, bounds[:-1], bounds[:-1], np.diff(bounds))
    shard = lanes.builder.pieces(np.diff(bounds), bounds[:-1])
    send_to_all(lanes, Style(), np.tile(shard, n - 1), 2, after=sums)
    return lanes.close()
