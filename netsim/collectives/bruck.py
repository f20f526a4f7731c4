"""Bruck's algorithms for any number of ranks (Bruck et al., 1997): ceil(log2 n) steps.

All-gather: in step s everyone sends all that it has, or what is still missing, to the rank 2^s
before it. All-to-all: a block that must go j ranks on moves 2^s ranks in each step s whose bit is
set in j. Blocks are put where they belong without rotating them first or last, in several parts.
"""

import numpy as np

from netsim.collectives.blocks import range_parts, wrapped
from netsim.collectives.chunks import ceil_log2
from netsim.collectives.collective import Collective
from netsim.collectives.lanes import Lanes, Part
from netsim.collectives.ranges import Blocks
from netsim.schedule import IN, OUT, SCRATCH, Schedule


def all_gather(collective: Collective) -> Schedule:
    """The number of blocks that everyone has doubles every step."""
    lanes = Lanes(collective)
    copies = lanes.keep()
    n, block = collective.ranks, collective.count
    ranks, bounds = np.arange(n), np.arange(n + 1) * block
    for s in range(ceil_log2(n)):
        if s == 0:
            own = lanes.builder.pieces(np.full(n, block), 0, bounds[:-1])
            parts = [Part(lanes.styles(np.full(n, IN), OUT), own)]
        else:
            ranges = wrapped(ranks, min(1 << s, n - (1 << s)), n)
            parts = range_parts(lanes, ranges, bounds, lanes.styles(np.full(n, OUT), OUT))
        lanes.send(ranks, (ranks - (1 << s)) % n, parts, s)
        if s == 0:
            lanes.settle(copies)
    return lanes.close()


def alltoall(collective: Collective) -> Schedule:
    """Few messages, but each block is sent up to log2(n) times: for small blocks."""
    lanes = Lanes(collective)
    lanes.keep()
    n = collective.ranks
    ranks, blocks = np.arange(n), collective.blocks()
    for s in range(ceil_log2(n)):
        moving = [j for j in range(1, n) if j >> s & 1]
        parts = [_moved(lanes, blocks, j, s) for j in moving]
        lanes.send(ranks, (ranks + (1 << s)) % n, parts, s)
    return lanes.close()


def _moved(lanes: Lanes, blocks: Blocks, j: int, s: int) -> Part:
    """The blocks that must go j ranks on, moving by 2^s; in between they lie in scratch slots."""
    n = lanes.ranks
    done = j & ((1 << s) - 1)
    origin = (np.arange(n) - done) % n
    final = (origin + j) % n
    count = blocks.count[origin, final]
    slot = int(blocks.count.max()) * (n * np.arange(s + 1) + j)
    source = slot[done.bit_length() - 1] if done else blocks.in_offset[origin, final]
    last = j >> s == 1
    target = blocks.out_offset[origin, final] if last else slot[s]
    style = lanes.style(SCRATCH if done else IN, OUT if last else SCRATCH)
    return Part(np.full(n, style, np.int32), lanes.builder.pieces(count, source, target))
