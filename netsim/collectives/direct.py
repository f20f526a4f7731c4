"""Direct algorithms: everyone sends to everyone at once, in one round.

What is to be summed up lands in a slot of its own for each sender and is added there by the
receiver, one after the other: nothing else would order simultaneous arrivals.
"""

import numpy as np
from numpy.typing import NDArray

from netsim.collectives.collective import Collective
from netsim.collectives.lanes import Lanes, Rows
from netsim.schedule import (
    ARRIVED,
    IN,
    IN_ORDER,
    LOCAL_COPY,
    OUT,
    REDUCE,
    REDUCE_INPUT,
    SCRATCH,
    Schedule,
    Style,
)

Offsets = NDArray[np.int64]
TO_SLOT = Style(src_buffer=IN, dst_buffer=SCRATCH)


def all_gather(collective: Collective) -> Schedule:
    """Everyone sends its block to all others."""
    lanes = Lanes(collective)
    lanes.keep()
    n, block = collective.ranks, collective.count
    piece = lanes.builder.pieces(np.full(n, block), 0, np.arange(n) * block)
    send_to_all(lanes, Style(src_buffer=IN), np.tile(piece, n - 1), 0)
    return lanes.close()


def all_reduce(collective: Collective) -> Schedule:
    """Everyone sends its whole input to all others, and adds up what it gets."""
    lanes = Lanes(collective)
    lanes.keep()
    n, count = collective.ranks, collective.count
    zero = np.zeros(n, np.int64)
    exchange_and_add(lanes, zero, zero, np.full(n, count), overwrites=collective.in_place)
    return lanes.close()


def reduce_scatter(collective: Collective) -> Schedule:
    """Everyone sends each block to its owner, who adds up what it gets."""
    lanes = Lanes(collective)
    lanes.keep()
    n, block = collective.ranks, collective.count
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
    """Append a total exchange at once; row (s-1)·n + r goes from r to r+s.

    `after`: for every rank a row to wait for (default: nothing).
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
    """Let rank q sum up `count[q]` elements at `source[q]` of all inputs at `target[q]` of OUT.

    `overwrites`: the sums go where others' messages are read from. Returns the last row by rank.
    """
    n, builder = lanes.ranks, lanes.builder
    if n == 1:
        return np.full(1, -1, np.int32)
    _, dst = everyone_else(n)
    slot = np.repeat(np.arange(n - 1), n) * count.max(initial=0)
    into = builder.pieces(count[dst], source[dst], slot)
    src, dst = everyone_else(n)
    sent = builder.rows(TO_SLOT, src, dst, into, step=0)
    table = sent.reshape(n - 1, n)
    blockers = [(row, IN_ORDER) for row in table] if overwrites else []
    ranks, last = np.arange(n), np.full(n, -1, np.int32)
    for s in range(1, n):
        own = builder.pieces(count, slot[(s - 1) * n], target, source)
        style = Style(LOCAL_COPY, REDUCE_INPUT if s == 1 else REDUCE, SCRATCH, OUT)
        arrived = (np.roll(table[s - 1], s), ARRIVED)
        last = builder.rows(
            style, ranks, ranks, own, step=1, after=[arrived, (last, IN_ORDER), *blockers]
        )
        blockers = []
    lanes.passed(ranks, last, 1)
    lanes.wait(src, sent, IN_ORDER)
    return last
