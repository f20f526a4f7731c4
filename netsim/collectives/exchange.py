"""All-to-all, with equal or given block sizes: everyone sends every block straight to its rank."""

import numpy as np

from netsim.collectives.collective import Collective
from netsim.collectives.lanes import Lanes, Rows
from netsim.schedule import ARRIVED, IN, IN_ORDER, OUT, Schedule, Style

DIRECT = Style(src_buffer=IN, dst_buffer=OUT)


def linear_shift(collective: Collective) -> Schedule:
    """In step s everyone sends to the rank s after it, one message after the other."""
    lanes = Lanes(collective)
    lanes.keep()
    shift_blocks(lanes)
    return lanes.close()


def shift_blocks(lanes: Lanes) -> None:
    """Append the messages of a linear shift."""
    shift, src = _steps(lanes.ranks)
    dst = (src + shift) % np.int32(lanes.ranks)
    _exchange(lanes, src, dst, shift, paired=False)


def pairwise(collective: Collective) -> Schedule:
    """In step s ranks r and r xor s exchange (n a power of two), else r sends to r + s.

    Nobody begins a step before it has received the message of the step before.
    """
    lanes = Lanes(collective)
    lanes.keep()
    n = collective.ranks
    shift, src = _steps(n)
    dst = src ^ shift if n & (n - 1) == 0 else (src + shift) % np.int32(n)
    _exchange(lanes, src, dst, shift, paired=True)
    return lanes.close()


def _steps(n: int) -> tuple[Rows, Rows]:
    """The shift 1 … n-1 of each row, and its sender."""
    shift = np.repeat(np.arange(1, n, dtype=np.int32), n)
    return shift, np.tile(np.arange(n, dtype=np.int32), n - 1)


def _exchange(lanes: Lanes, src: Rows, dst: Rows, shift: Rows, *, paired: bool) -> None:
    """Row (s-1)·n + r is the message of rank r in step s."""
    n, blocks = lanes.ranks, lanes.collective.blocks()
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
        received[steps, dst.reshape(n - 1, n)] = np.arange(first, first + len(src)).reshape(
            n - 1, n
        )
        after.append((np.concatenate([np.full(n, -1, np.int32), received[:-1].ravel()]), ARRIVED))
    rows = lanes.builder.rows(DIRECT, src, dst, pieces, step=shift - 1, after=after)
    lanes.passed(np.arange(n), rows[-n:], n - 2)
    last = slice(-n, None) if paired else slice(None)
    lanes.wait(dst[last], rows[last])
