"""Ring algorithms: every chunk goes around, or pieces follow each other down a chain.

All-reduce is a reduce-scatter followed by an all-gather (Patarasuk and Yuan, 2009). The rings may
be several at once: the channels of one communicator, or the groups of a hierarchical algorithm.
"""

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from netsim.collectives.collective import Collective
from netsim.collectives.reduced import Part
from netsim.collectives.writing import Folding, Ints, Lanes, Rows, channel_count, edges, piece_count
from netsim.schedule.schedule import (
    ARRIVED,
    COPY,
    IN,
    IN_ORDER,
    OUT,
    REDUCE_INPUT,
    SCRATCH,
    Schedule,
    Style,
)


def all_reduce(collective: Collective, *, channels: int = 1, fold: Folding = None) -> Schedule:
    """Chunk c goes around once to be summed up and once more to be handed out: 2(n-1) steps."""
    n, k = collective.ranks, channel_count(channels)
    lanes = Lanes(collective, k, fold).keep()
    bounds = edges(collective.count, k * n)
    first = lanes.builder.pieces(np.diff(bounds), bounds[:-1])[0]
    phases = [(IN, OUT, REDUCE_INPUT), *[(OUT, OUT, REDUCE_INPUT)] * (n - 2)]
    phases += [(OUT, OUT, COPY)] * (n - 1)
    styles = channel_styles(lanes, phases[: 2 * (n - 1)], k)
    pass_around(lanes, np.arange(n), styles, np.full(len(styles), first), 0, channels=k)
    return lanes.close()


def all_gather(collective: Collective, *, channels: int = 1, fold: Folding = None) -> Schedule:
    """Everyone's block goes around once: n-1 steps."""
    n, k = collective.ranks, channel_count(channels)
    lanes = Lanes(collective, k, fold).keep()
    part, whole, count = _block_offsets(collective, k)
    first = lanes.builder.pieces(count, part, whole)[0]
    later = lanes.builder.pieces(count, whole)[0]
    phases = [(IN, OUT, COPY), *[(OUT, OUT, COPY)] * (n - 2)]
    styles = channel_styles(lanes, phases[: n - 1], k)
    pass_around(lanes, np.arange(n), styles, np.array([first] + [later] * (n - 2)), 0, channels=k)
    return lanes.close()


def reduce_scatter(collective: Collective, *, channels: int = 1, fold: Folding = None) -> Schedule:
    """Block c starts after its owner, is summed up on its way and ends there: n-1 steps."""
    n, k = collective.ranks, channel_count(channels)
    lanes = Lanes(collective, k, fold).keep()
    part, whole, count = _block_offsets(collective, k)
    inner = lanes.builder.pieces(count, whole)[0]
    final = lanes.builder.pieces(count, whole, part, whole)[0]
    buffers = [IN] + [SCRATCH] * (n - 2) + [OUT]
    phases = [(src, dst, REDUCE_INPUT) for src, dst in pairwise(buffers)]
    styles = channel_styles(lanes, phases[: n - 1], k)
    first = np.array([inner] * (n - 2) + [final])
    pass_around(lanes, np.arange(n), styles, first, -1, channels=k)
    return lanes.close()


def _block_offsets(c: Collective, k: int) -> tuple[NDArray[np.int64], ...]:
    """Offsets in a block and in all blocks, and counts, of every channel's part of every block."""
    bounds = edges(c.count, k)
    part, block = np.meshgrid(bounds[:-1], np.arange(c.ranks) * c.count, indexing="ij")
    count = np.repeat(np.diff(bounds), c.ranks)
    return part.ravel(), (part + block).ravel(), count


def channel_styles(lanes: Lanes, phases: list[tuple[int, int, int]], channels: int) -> Rows:
    """The style of each step (source buffer, destination buffer, operation) on each channel."""
    known = {
        phase: [lanes.style(*phase, channel) for channel in range(channels)]
        for phase in dict.fromkeys(phases)
    }
    return np.array([known[phase] for phase in phases], np.int32).reshape(len(phases), channels)


def pass_around(
    lanes: Lanes,
    members: Ints,
    styles: Rows,
    first_piece: Ints,
    start: int,
    step: int = 0,
    channels: int = 1,
    ready: bool = False,
) -> int:
    """Append the steps of several rings of length L at once; returns the step after the last.

    At step t the p-th member of ring i sends chunk c = (p + start - t) mod L, piece
    `first_piece[t]` + i·L + c, in style `styles[t, i]`, or `styles[t, i·L + p]` if there are so
    many. With `channels`, the ranks of a single ring are in one ring on each channel.
    """
    ring = np.tile(np.asarray(members, np.int32), (channels, 1))
    steps, (rings, length) = len(styles), ring.shape
    if steps == 0 or length == 1:
        return step
    channel = np.repeat(np.arange(rings) * (channels > 1), length)
    lane = channel * lanes.ranks + ring.ravel()
    after = np.roll(lane.reshape(ring.shape), -1, 1).ravel()
    first = np.asarray(first_piece, np.int32)
    lanes.writer.rings(lane, after, styles, first, length)
    styles, first = lanes.writer.shortened(styles, first, ring.size)
    some = np.arange(rings * length)[lanes.writer.written(lane)]
    if not len(some):
        return step + steps
    each = styles[:, some if styles.shape[1] == rings * length else some // length]
    pieces = _ring_pieces(first, some, length, start)
    places = _Places(lanes, lane, after, some)
    part = Part(each[0], pieces[0])
    head = lanes.send(places.src, places.dst, [part], step, channel=channel[some], ready=ready)
    tail = _ring_rows(lanes, places, each[1:], pieces[1:], head, step + 1)
    if steps > 1:
        lanes.writer.laps(lane.reshape(ring.shape), tail, steps - 1, len(styles) - 1)
        lanes.passed(places.own, tail, step + steps - 1)
        lanes.wait(places.next, tail)
    return step + steps


class _Places:
    """The places of rings that are written down: their lanes, those after and the one before."""

    def __init__(self, lanes: Lanes, lane: Ints, after: Ints, some: Ints) -> None:
        writer, n = lanes.writer, lanes.ranks
        self.own: Ints = lane[some]
        self.next = writer.lead(after[some])
        before = np.full(lanes.channels * n, -1)
        before[after] = lane
        earlier = writer.lead(before[self.own])
        number = np.full(lanes.channels * n, -1, np.int32)
        number[self.own] = np.arange(len(some), dtype=np.int32)
        self.before = number[earlier]
        self.src = (lane[some] % n).astype(np.int32)
        self.dst = (after[some] % n).astype(np.int32)


def _ring_pieces(first: Rows, some: Ints, length: int, start: int) -> Rows:
    place = some.astype(np.int32)
    ring = place // np.int32(length) * np.int32(length)
    chunk: Rows = (place - ring + start) - np.arange(len(first), dtype=np.int32)[:, None]
    chunk %= length
    chunk += first[:, None]
    chunk += ring
    return chunk


def _ring_rows(
    lanes: Lanes, places: _Places, styles: Rows, pieces: Rows, head: Rows, step: int
) -> Rows:
    """All steps but the first at once: each row follows two of the step before."""
    steps, width = styles.shape
    place = np.arange(width, dtype=np.int32)
    base = np.int32(head[0]) + np.arange(steps, dtype=np.int32) * np.int32(width)
    rows = lanes.builder.rows(
        np.asarray(lanes.writer.styles(lanes.builder, styles, places.own)).ravel(),
        np.tile(places.src, steps),
        np.tile(places.dst, steps),
        pieces.ravel(),
        step=np.repeat(np.arange(step, step + steps, dtype=np.int32), width),
        after=[
            (np.add.outer(base, places.before).ravel(), ARRIVED),
            (np.add.outer(base, place).ravel(), IN_ORDER),
        ],
    )
    return rows[len(rows) - width :]


# Pipelined chains ("ring" broadcast and reduce): pieces follow each other from rank to rank.
# With k pieces on n ranks it takes (n-1)·α + (n-2+k)·S/(kB): a rank sends the next piece as soon as
# the last one has left, and only the first piece pays the latency of every hop.


def broadcast(
    collective: Collective, *, chunks: int | None = None, chunk_bytes: int | str | None = None
) -> Schedule:
    """The data runs from the root along the ranks, in `chunks` pieces or in `chunk_bytes` each."""
    n = collective.ranks
    buffers = [IN] + [OUT] * (n - 1)
    styles = [Style(src_buffer=a, dst_buffer=b, op=COPY) for a, b in pairwise(buffers)]
    order = (np.arange(n) + collective.root) % n
    return _chain(collective, order, styles, chunks, chunk_bytes)


def reduce(
    collective: Collective, *, chunks: int | None = None, chunk_bytes: int | str | None = None
) -> Schedule:
    """The sum runs along the ranks to the root, in `chunks` pieces or in `chunk_bytes` each."""
    n = collective.ranks
    buffers = [IN] + [SCRATCH] * (n - 2) + [OUT]
    styles = [Style(src_buffer=a, dst_buffer=b, op=REDUCE_INPUT) for a, b in pairwise(buffers)]
    order = (np.arange(n) + collective.root + 1) % n
    return _chain(collective, order, styles, chunks, chunk_bytes)


def _chain(
    collective: Collective,
    order: Ints,
    styles: list[Style],
    chunks: int | None,
    chunk_bytes: int | str | None,
) -> Schedule:
    """Row j·(n-1) + h takes piece j over hop h, once it is there and piece j-1 has left."""
    lanes = Lanes(collective).keep()
    builder, hops = lanes.builder, collective.ranks - 1
    k = piece_count(collective.count, collective.element_bytes, chunks, chunk_bytes)
    if hops == 0:
        return lanes.close()
    bounds = edges(collective.count, k)
    pieces = builder.pieces(np.diff(bounds), bounds[:-1])
    piece, hop = np.divmod(np.arange(k * hops, dtype=np.int32), np.int32(hops))
    row = len(builder) + np.arange(k * hops, dtype=np.int32)
    numbers = np.array([builder.style(style) for style in styles], np.int32)
    rows = builder.rows(
        numbers[hop],
        order[hop],
        order[hop + 1],
        pieces[piece],
        step=piece + hop,
        after=[(_if(hop > 0, row - 1), ARRIVED), (_if(piece > 0, row - hops), IN_ORDER)],
    )
    lanes.passed(order[:-1], rows[-hops:], k + hops - 2)
    lanes.wait(order[1:], rows[-hops:])
    return lanes.close()


def _if(condition: NDArray[np.bool_], rows: Rows) -> Rows:
    return np.where(condition, rows, np.int32(-1)).astype(np.int32)
