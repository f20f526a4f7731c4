"""Pipelined chains ("ring" broadcast and reduce): pieces follow each other from rank to rank.

With k pieces on n ranks it takes (n-1)·α + (n-2+k)·S/(kB): a rank sends the next piece as soon as
the last one has left, and only the first piece pays the latency of every hop.
"""

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from netsim.collectives.chunks import edges, piece_count
from netsim.collectives.collective import Collective
from netsim.collectives.lanes import Ints, Lanes, Rows
from netsim.schedule import (
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
    lanes = Lanes(collective)
    lanes.keep()
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
