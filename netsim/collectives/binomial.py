"""Binomial trees over whole buffers: broadcast, reduce, and both for an all-reduce.

Ranks are counted from the root on. In round s of a broadcast every v < 2^s hands the data to
v + 2^s; a reduce runs backwards. A rank's next message waits until its last one has arrived, as
with blocking sends, so that each of the ceil(log2 n) rounds takes α + S/B.
"""

import numpy as np
from numpy.typing import NDArray

from netsim.collectives.chunks import ceil_log2
from netsim.collectives.collective import Collective
from netsim.collectives.lanes import Lanes, Part
from netsim.schedule import COPY, IN, OUT, REDUCE, REDUCE_INPUT, SCRATCH, Schedule, Style


def broadcast(collective: Collective) -> Schedule:
    """The ranks that have the data double every round."""
    lanes = Lanes(collective)
    lanes.keep()
    _spread(lanes, collective.root, IN, 0)
    return lanes.close()


def reduce(collective: Collective) -> Schedule:
    """The ranks that have partial sums halve every round."""
    lanes = Lanes(collective)
    lanes.keep()
    _collect(lanes, collective.root, SCRATCH)
    return lanes.close()


def all_reduce(collective: Collective, *, root: int = 0) -> Schedule:
    """A reduce to one root, then a broadcast from there."""
    lanes = Lanes(collective)
    lanes.keep()
    _spread(lanes, root, OUT, _collect(lanes, root, OUT))
    return lanes.close()


def _spread(lanes: Lanes, root: int, from_buffer: int, step: int) -> int:
    n, builder = lanes.ranks, lanes.builder
    piece = builder.pieces(lanes.collective.count)
    first, later = (builder.style(Style(src_buffer=b, op=COPY)) for b in (from_buffer, OUT))
    for s in range(ceil_log2(n)):
        v = np.arange(min(1 << s, n - (1 << s)))
        style = np.where(v == 0, first, later).astype(np.int32)
        part = Part(style, np.repeat(piece, len(v)))
        source, target = (v + root) % n, (v + (1 << s) + root) % n
        lanes.send(source, target, [part], step + s, blocking=True)
    return step + ceil_log2(n)


def _collect(lanes: Lanes, root: int, elsewhere: int) -> int:
    """Sum up into OUT at the root and into the buffer `elsewhere` on the others."""
    n, rounds = lanes.ranks, ceil_log2(lanes.ranks)
    piece = lanes.builder.pieces(lanes.collective.count)
    summed = np.zeros(n, bool)  # by distance from the root: holds more than its own input
    buffer = np.where(np.arange(n) == 0, OUT, elsewhere)
    for step, s in enumerate(reversed(range(rounds))):
        v = np.arange(min(1 << s, n - (1 << s)))
        w = v + (1 << s)
        style = _styles(lanes, np.where(summed[w], buffer[w], IN), buffer[v], summed[v])
        part = Part(style, np.repeat(piece, len(v)))
        lanes.send((w + root) % n, (v + root) % n, [part], step, ready=True)
        summed[v] = True
    return rounds


def _styles(
    lanes: Lanes, source: NDArray[np.int64], target: NDArray[np.int64], summed: NDArray[np.bool_]
) -> NDArray[np.int32]:
    """Style numbers of rows that add to a sum, or start one from the receiver's own input."""
    ops = np.where(summed, REDUCE, REDUCE_INPUT)
    keys = list(zip(source.tolist(), target.tolist(), ops.tolist(), strict=True))
    table = {
        key: lanes.builder.style(Style(src_buffer=key[0], dst_buffer=key[1], op=key[2]))
        for key in dict.fromkeys(keys)
    }
    return np.array([table[key] for key in keys], np.int32)
