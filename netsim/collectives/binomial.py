"""Binomial trees over whole buffers: broadcast, reduce, and both for an all-reduce.

Ranks are counted from the root on. In round s of a broadcast every v < 2^s hands the data to
v + 2^s; a reduce runs backwards. A rank's next message waits until its last one has arrived, as
with blocking sends, so that each of the ceil(log2 n) rounds takes α + S/B.
"""

import numpy as np

from netsim.collectives.chunks import ceil_log2, rank_of
from netsim.collectives.collective import Collective
from netsim.collectives.lanes import Folding, Lanes, Part
from netsim.schedule import IN, OUT, REDUCE, REDUCE_INPUT, SCRATCH, Schedule


def broadcast(collective: Collective, *, fold: Folding = None) -> Schedule:
    """The ranks that have the data double every round."""
    lanes = Lanes(collective, fold=fold)
    lanes.keep()
    _spread(lanes, collective.root, IN, 0)
    return lanes.close()


def reduce(collective: Collective, *, fold: Folding = None) -> Schedule:
    """The ranks that have partial sums halve every round."""
    lanes = Lanes(collective, fold=fold)
    lanes.keep()
    _collect(lanes, collective.root, SCRATCH)
    return lanes.close()


def all_reduce(collective: Collective, *, root: int = 0, fold: Folding = None) -> Schedule:
    """A reduce to one root, then a broadcast from there."""
    lanes, root = Lanes(collective, fold=fold), rank_of("root", root, collective.ranks)
    lanes.keep()
    _spread(lanes, root, OUT, _collect(lanes, root, OUT))
    return lanes.close()


def _spread(lanes: Lanes, root: int, from_buffer: int, step: int) -> int:
    n = lanes.ranks
    piece = lanes.builder.pieces(lanes.collective.count)
    for s in range(ceil_log2(n)):
        v = np.arange(min(1 << s, n - (1 << s)))
        part = Part(lanes.styles(np.where(v == 0, from_buffer, OUT), OUT), np.repeat(piece, len(v)))
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
        style = lanes.styles(
            np.where(summed[w], buffer[w], IN), buffer[v], np.where(summed[v], REDUCE, REDUCE_INPUT)
        )
        part = Part(style, np.repeat(piece, len(v)))
        lanes.send((w + root) % n, (v + root) % n, [part], step, ready=True)
        summed[v] = True
    return rounds
