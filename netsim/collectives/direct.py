"""Algorithms without forwarding: total exchanges, pairs, gather, scatter, barrier, parameter
server.

Where a rank sums what several ranks send it, each sender writes to a scratch slot of its own at the
receiver, which adds the slots to its output one after the other. Without slots, nothing would order
additions of messages that arrive at the same time.
"""

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
    """All-gather: every rank sends its block to all other ranks at once."""
    lanes = Lanes(collective).copy_local_data()
    n = collective.ranks
    block = collective.count
    piece = lanes.builder.pieces(np.full(n, block), 0, np.arange(n) * block)
    send_to_all(lanes, Style(src_buffer=IN), np.tile(piece, n - 1), 0)
    return lanes.close()


def all_reduce(collective: Collective) -> Schedule:
    """All-reduce: every rank sends its whole input to all other ranks, and sums what it
    receives.
    """
    lanes = Lanes(collective).copy_local_data()
    n = collective.ranks
    count = collective.count
    zero = np.zeros(n, np.int64)
    exchange_and_add(lanes, zero, zero, np.full(n, count), overwrites=collective.in_place)
    return lanes.close()


def reduce_scatter(collective: Collective) -> Schedule:
    """Reduce-scatter: every rank sends each block to the rank that owns it, which sums the
    blocks.
    """
    lanes = Lanes(collective).copy_local_data()
    n = collective.ranks
    block = collective.count
    exchange_and_add(lanes, np.arange(n) * block, np.zeros(n, np.int64), np.full(n, block))
    return lanes.close()


def everyone_else(n: int) -> tuple[Rows, Rows]:
    """The source and the destination of each message when every rank sends to every other rank.

    Messages are ordered by distance, then by source: with 3 ranks, 0→1, 1→2, 2→0, 0→2, 1→0, 2→1.
    """
    src = np.tile(np.arange(n, dtype=np.int32), n - 1)
    dst = src + np.repeat(np.arange(1, n, dtype=np.int32), n)
    dst %= n
    return src, dst


def send_to_all(
    lanes: Lanes, style: Style, pieces: Rows, step: int, after: Rows | None = None
) -> Rows:
    """Append one row from every rank to every other rank; return the rows in the order of
    `everyone_else`.

    Args:
        style: the style of all rows.
        pieces: the piece of each row.
        step: the step number of all rows.
        after: by rank, a row that must end before the rank's rows start.
    """
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
    """Let every rank q sum a range of all ranks' inputs in its output; return the last row of each
    rank.

    Args:
        source: by rank q, where its range begins in the inputs, in elements.
        target: by rank q, where the sum begins in the output of q, in elements.
        count: by rank q, the number of elements of its range.
        overwrites: whether the sums overwrite inputs that other ranks receive (all-reduce in
            place): a rank then starts to add when all messages of the first step have been sent.
    """
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
    lanes.set_last_rows(ranks, last, 1)
    lanes.wait(src, sent, IN_ORDER)
    return last


DIRECT = Style(src_buffer=IN, dst_buffer=OUT)


def linear_shift(collective: Collective) -> Schedule:
    """All-to-all: in step s every rank sends to the rank at distance s, one message after the
    other.
    """
    lanes = Lanes(collective).copy_local_data()
    exchange(lanes, *everyone_else(lanes.ranks), paired=False)
    return lanes.close()


def pairwise(collective: Collective) -> Schedule:
    """All-to-all in n - 1 steps, each of which waits for the step before.

    In step s, rank r exchanges blocks with rank r xor s if the number of ranks n is a power of 2;
    otherwise it sends to rank r + s and receives from rank r - s.
    """
    lanes = Lanes(collective).copy_local_data()
    src, dst = everyone_else(collective.ranks)
    if collective.ranks & (collective.ranks - 1) == 0:
        dst = src ^ (dst - src) % np.int32(collective.ranks)
    exchange(lanes, src, dst, paired=True)
    return lanes.close()


def exchange(lanes: Lanes, src: Rows, dst: Rows, *, paired: bool) -> None:
    """Append the messages of an all-to-all: row (s - 1) · n + r is the message of rank r in step s.

    Args:
        src: the sender of each row.
        dst: the receiver of each row.
        paired: whether a rank's message also waits for the message that the rank received in the
            step before; otherwise it waits only until its own message before has been sent.
    """
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
    lanes.set_last_rows(np.arange(n), rows[-n:], n - 2)
    last = slice(-n, None) if paired else slice(None)
    lanes.wait(dst[last], rows[last])


def sendrecv(collective: Collective) -> Schedule:
    """Sendrecv: every rank sends its input to the next rank, all at once, as nccl-tests does."""
    lanes = Lanes(collective).copy_local_data()
    n = collective.ranks
    if n > 1:
        piece = lanes.builder.pieces(np.full(n, collective.count))
        part = MessagePart(lanes.builder.style(DIRECT) + np.zeros(n, np.int32), piece)
        lanes.send(np.arange(n), (np.arange(n) + 1) % n, [part], 0)
    return lanes.close()


def pairs(collective: Collective) -> Schedule:
    """P2p: the messages of all pairs at once; those from a rank to itself are local copies."""
    lanes = Lanes(collective).copy_local_data()
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
    """Barrier: in round s every rank sends an empty message to the rank at distance 2^s
    (dissemination, Hensgen et al., 1988).
    """
    lanes = Lanes(collective)
    n = collective.ranks
    ranks = np.arange(n)
    signal = np.repeat(lanes.builder.pieces(0), n)
    for s in range(ceil_log2(n)):
        part = MessagePart(lanes.builder.style(DIRECT) + np.zeros(n, np.int32), signal)
        lanes.send(ranks, (ranks + (1 << s)) % n, [part], s)
    return lanes.close()


# Gather and scatter: linear, and along a binomial tree. In the tree, ranks are counted from the
# root on: v = (rank - root) mod n. In the gather, for d = 1, 2, 4 …, the ranks v = d, 3d, 5d … send
# the blocks of their subtree to v - d; a scatter runs backwards. On their way blocks lie in
# SCRATCH, at the place that they have in the root's buffer. Messages that reach the same rank at
# the same time share its links.


def linear_gather(collective: Collective) -> Schedule:
    """Gather: every rank sends its block to the root at once."""
    lanes = Lanes(collective).copy_local_data()
    others = np.delete(np.arange(collective.ranks), collective.root)
    block = collective.count
    piece = lanes.builder.pieces(np.full(len(others), block), 0, others * block)
    root = np.full(len(others), collective.root)
    lanes.send(others, root, [MessagePart(lanes.styles(0 * others + IN, OUT), piece)], 0)
    return lanes.close()


def linear_scatter(collective: Collective) -> Schedule:
    """Scatter: the root sends every rank its block, one after the other."""
    lanes = Lanes(collective).copy_local_data()
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
    lanes.set_last_rows(np.full(len(rows[-1:]), root), rows[-1:], max(0, n - 2))
    lanes.wait(others, rows)
    return lanes.close()


def binomial_gather(collective: Collective) -> Schedule:
    """Gather up a binomial tree: in step s, messages of up to 2^s blocks."""
    lanes = Lanes(collective).copy_local_data()
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
    """Scatter down a binomial tree: in every step a rank sends away half of the blocks that it
    holds.
    """
    lanes = Lanes(collective).copy_local_data()
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
    """The parts of messages that have all blocks of a subtree but its first one: blocks r + 1 … r +
    k - 1 (mod n) for the k blocks of rank r.

    - `rank`: r of each message.
    - `number`: k of each message.
    - `styles`: the style of each message.
    """
    bounds = np.arange(lanes.ranks + 1) * lanes.collective.count
    return range_parts(lanes, writing.ranges_mod(rank + 1, number - 1, lanes.ranks), bounds, styles)


# Parameter server: every rank sends its input to a server, which sums the inputs and sends the sum
# to all. All data crosses the links of the one server, which rings and trees avoid; with `sharded`,
# every rank is the server of a part of the data.


def server_all_reduce(collective: Collective, *, root: int = 0, sharded: bool = False) -> Schedule:
    """All-reduce by a parameter server: the rank `root`, or with `sharded` every rank for
    its part.
    """
    n = collective.ranks
    count = collective.count
    lanes = Lanes(collective).copy_local_data()
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
