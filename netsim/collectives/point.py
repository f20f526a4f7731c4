"""Point to point: the sendrecv ring of nccl-tests, pairs, and a barrier of signals."""

import numpy as np

from netsim.collectives.chunks import ceil_log2
from netsim.collectives.collective import Collective
from netsim.collectives.lanes import Lanes, Part
from netsim.schedule import ARRIVED, IN, IN_ORDER, OUT, Schedule, Style

DIRECT = Style(src_buffer=IN, dst_buffer=OUT)


def sendrecv(collective: Collective) -> Schedule:
    """Everyone sends its data to the next rank at once, as nccl-tests does."""
    lanes = Lanes(collective)
    lanes.keep()
    n = collective.ranks
    if n > 1:
        piece = lanes.builder.pieces(np.full(n, collective.count))
        part = Part(lanes.builder.style(DIRECT) + np.zeros(n, np.int32), piece)
        lanes.send(np.arange(n), (np.arange(n) + 1) % n, [part], 0)
    return lanes.close()


def pairs(collective: Collective) -> Schedule:
    """All pairs at once."""
    lanes = Lanes(collective)
    lanes.keep()
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
    """In round s everyone signals the rank 2^s on (Hensgen, Finkel and Manber, 1988).

    A signal is a message without bytes.
    """
    lanes = Lanes(collective)
    n = collective.ranks
    ranks, signal = np.arange(n), np.repeat(lanes.builder.pieces(0), n)
    for s in range(ceil_log2(n)):
        part = Part(lanes.builder.style(DIRECT) + np.zeros(n, np.int32), signal)
        lanes.send(ranks, (ranks + (1 << s)) % n, [part], s)
    return lanes.close()
