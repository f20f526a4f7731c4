"""Ring algorithms: everyone passes a chunk to the next, and every chunk goes around.

All-reduce is a reduce-scatter followed by an all-gather (Patarasuk and Yuan, 2009). The rings may
be several at once: the channels of one communicator, or the groups of a hierarchical algorithm.
"""

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from netsim.collectives.chunks import channel_count, edges
from netsim.collectives.collective import Collective
from netsim.collectives.lanes import Ints, Lanes, Part, Rows
from netsim.schedule import ARRIVED, COPY, IN, IN_ORDER, OUT, REDUCE_INPUT, SCRATCH, Schedule


def all_reduce(collective: Collective, *, channels: int = 1) -> Schedule:
    """Chunk c goes around once to be summed up and once more to be handed out: 2(n-1) steps."""
    n, k = collective.ranks, channel_count(channels)
    lanes = Lanes(collective, k)
    lanes.keep()
    bounds = edges(collective.count, k * n)
    first = lanes.builder.pieces(np.diff(bounds), bounds[:-1])[0]
    phases = [(IN, OUT, REDUCE_INPUT), *[(OUT, OUT, REDUCE_INPUT)] * (n - 2)]
    phases += [(OUT, OUT, COPY)] * (n - 1)
    styles = channel_styles(lanes, phases[: 2 * (n - 1)], k)
    pass_around(lanes, np.arange(n), styles, np.full(len(styles), first), 0, channels=k)
    return lanes.close()


def all_gather(collective: Collective, *, channels: int = 1) -> Schedule:
    """Everyone's block goes around once: n-1 steps."""
    n, k = collective.ranks, channel_count(channels)
    lanes = Lanes(collective, k)
    lanes.keep()
    part, whole, count = _block_offsets(collective, k)
    first = lanes.builder.pieces(count, part, whole)[0]
    later = lanes.builder.pieces(count, whole)[0]
    phases = [(IN, OUT, COPY), *[(OUT, OUT, COPY)] * (n - 2)]
    styles = channel_styles(lanes, phases[: n - 1], k)
    pass_around(lanes, np.arange(n), styles, np.array([first] + [later] * (n - 2)), 0, channels=k)
    return lanes.close()


def reduce_scatter(collective: Collective, *, channels: int = 1) -> Schedule:
    """Block c starts after its owner, is summed up on its way and ends there: n-1 steps."""
    n, k = collective.ranks, channel_count(channels)
    lanes = Lanes(collective, k)
    lanes.keep()
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
    table = [[lanes.style(*phase, channel) for channel in range(channels)] for phase in phases]
    return np.array(table, np.int32).reshape(len(phases), channels)


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
    each = styles if styles.shape[1] == rings * length else np.repeat(styles, length, axis=1)
    channel = np.repeat(np.arange(rings) * (channels > 1), length)
    src, dst = ring.ravel(), np.roll(ring, -1, 1).ravel()
    pieces = _ring_pieces(np.asarray(first_piece, np.int32), rings, length, start)
    head = lanes.send(src, dst, [Part(each[0], pieces[0])], step, channel=channel, ready=ready)
    tail = _ring_rows(lanes, src, dst, each[1:], pieces[1:], head, length, step + 1)
    if steps > 1:
        lanes.passed(channel * lanes.ranks + src, tail, step + steps - 1)
        lanes.wait(channel * lanes.ranks + dst, tail)
    return step + steps


def _ring_pieces(first: Rows, rings: int, length: int, start: int) -> Rows:
    position = np.arange(length, dtype=np.int32)
    chunk: Rows = (position + start) - np.arange(len(first), dtype=np.int32)[:, None]
    chunk %= length
    chunk += first[:, None]
    offset = np.arange(rings, dtype=np.int32)[:, None] * np.int32(length)
    pieces: Rows = chunk[:, None, :] + offset
    return pieces.reshape(len(first), rings * length)


def _ring_rows(
    lanes: Lanes,
    src: Rows,
    dst: Rows,
    styles: Rows,
    pieces: Rows,
    head: Rows,
    length: int,
    step: int,
) -> Rows:
    """All steps but the first at once: each row follows two of the step before."""
    steps, width = styles.shape
    place = np.arange(width, dtype=np.int32)
    before = place // length * length + (place - 1) % length
    base = np.int32(head[0]) + np.arange(steps, dtype=np.int32) * np.int32(width)
    rows = lanes.builder.rows(
        styles.ravel(),
        np.tile(src, steps),
        np.tile(dst, steps),
        pieces.ravel(),
        step=np.repeat(np.arange(step, step + steps, dtype=np.int32), width),
        after=[
            (np.add.outer(base, before).ravel(), ARRIVED),
            (np.add.outer(base, place).ravel(), IN_ORDER),
        ],
    )
    return rows[len(rows) - width :]
