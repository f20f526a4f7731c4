"""Gather and scatter: linear, and along a binomial tree.

In the tree, ranks are counted from the root on. In the gather, v = d, 3d, 5d … hand the blocks of
their subtree to v - d, for d = 1, 2, 4 …; a scatter runs backwards. In between, blocks lie in
SCRATCH at their place in the root's buffer. Messages to the same root share its link.
"""

import numpy as np

from netsim.collectives.blocks import range_parts, wrapped
from netsim.collectives.chunks import ceil_log2
from netsim.collectives.collective import Collective
from netsim.collectives.lanes import Ints, Lanes, Part, Rows
from netsim.schedule import IN, IN_ORDER, OUT, SCRATCH, Schedule


def linear_gather(collective: Collective) -> Schedule:
    """Everyone sends its block to the root at once."""
    lanes = Lanes(collective)
    lanes.keep()
    others = np.delete(np.arange(collective.ranks), collective.root)
    block = collective.count
    piece = lanes.builder.pieces(np.full(len(others), block), 0, others * block)
    root = np.full(len(others), collective.root)
    lanes.send(others, root, [Part(lanes.styles(0 * others + IN, OUT), piece)], 0)
    return lanes.close()


def linear_scatter(collective: Collective) -> Schedule:
    """The root sends everyone its block, one after the other."""
    lanes = Lanes(collective)
    lanes.keep()
    n, root, block = collective.ranks, collective.root, collective.count
    others = (root + np.arange(1, n)) % n
    pieces = lanes.builder.pieces(np.full(n - 1, block), others * block, 0)
    first = len(lanes.builder)
    before = np.arange(first - 1, first + n - 2)
    before[:1] = -1
    style = lanes.style(IN, OUT)
    rows = lanes.builder.rows(
        style, root, others, pieces, step=np.arange(n - 1), after=[(before, IN_ORDER)]
    )
    lanes.passed(np.full(len(rows[-1:]), root), rows[-1:], max(0, n - 2))
    lanes.wait(others, rows)
    return lanes.close()


def binomial_gather(collective: Collective) -> Schedule:
    """Blocks move up the tree, 1, 2, 4 … at a time."""
    lanes = Lanes(collective)
    lanes.keep()
    n, root, block = collective.ranks, collective.root, collective.count
    for step in range(ceil_log2(n)):
        distance = 1 << step
        v = np.arange(distance, n, 2 * distance)
        rank, to = (v + root) % n, np.where(v == distance, OUT, SCRATCH)
        own = lanes.builder.pieces(np.full(len(v), block), 0, rank * block)
        parts = [Part(lanes.styles(IN, to), own)]
        parts += _rest(lanes, rank, np.minimum(distance, n - v), lanes.styles(SCRATCH, to))
        lanes.send(rank, (v - distance + root) % n, parts, step)
    return lanes.close()


def binomial_scatter(collective: Collective) -> Schedule:
    """Blocks move down the tree, half of what is left at a time."""
    lanes = Lanes(collective)
    lanes.keep()
    n, root, block = collective.ranks, collective.root, collective.count
    for step, s in enumerate(reversed(range(ceil_log2(n)))):
        distance = 1 << s
        v = np.arange(0, n - distance, 2 * distance)
        rank, source = (v + distance + root) % n, np.where(v == 0, IN, SCRATCH)
        number = np.minimum(distance, n - v - distance)
        own = lanes.builder.pieces(np.full(len(v), block), rank * block, 0)
        parts = _rest(lanes, rank, number, lanes.styles(source, SCRATCH))
        parts += [Part(lanes.styles(source, OUT), own)]
        lanes.send((v + root) % n, rank, parts, step, blocking=True)
    return lanes.close()


def _rest(lanes: Lanes, rank: Ints, number: Ints, styles: Rows) -> list[Part]:
    """The `number` blocks from a rank's on, without its own."""
    bounds = np.arange(lanes.ranks + 1) * lanes.collective.count
    return range_parts(lanes, wrapped(rank + 1, number - 1, lanes.ranks), bounds, styles)
