"""Broadcast and reduce of large data in two halves (van de Geijn; Thakur et al., 2005).

A broadcast scatters the data down a binomial tree and gathers it everywhere around a ring; a
reduce scatters sums around a ring and gathers them up a binomial tree. Chunk v belongs to the v-th
rank from the root on.
"""

from itertools import pairwise

import numpy as np

from netsim.collectives.chunks import ceil_log2, edges
from netsim.collectives.collective import Collective
from netsim.collectives.lanes import KEEP, Lanes, Part
from netsim.collectives.ring import channel_styles, pass_around
from netsim.schedule import COPY, IN, IN_ORDER, OUT, REDUCE_INPUT, SCRATCH, Schedule


def broadcast(collective: Collective) -> Schedule:
    """Scatter along a binomial tree, then all-gather around a ring."""
    lanes, root, n = Lanes(collective), collective.root, collective.ranks
    bounds = edges(collective.count, n)
    chunks = lanes.builder.pieces(np.diff(bounds), bounds[:-1])
    for step, s in enumerate(reversed(range(ceil_log2(n)))):
        distance = 1 << s
        v = np.arange(0, n - distance, 2 * distance)
        low, high = v + distance, np.minimum(v + 2 * distance, n)
        piece = lanes.builder.pieces(bounds[high] - bounds[low], bounds[low])
        part = Part(lanes.styles(np.where(v == 0, IN, OUT), OUT), piece)
        lanes.send((v + root) % n, (low + root) % n, [part], step, blocking=True)
    if not collective.in_place:
        own = lanes.builder.rows(KEEP, root, root, chunks[0])
        lanes.wait(np.array([root]), own, IN_ORDER)
    styles = channel_styles(lanes, [(OUT, OUT, COPY)] * (n - 1), 1)
    first = np.full(n - 1, chunks[0])
    pass_around(lanes, (np.arange(n) + root) % n, styles, first, 0, step=ceil_log2(n))
    return lanes.close()


def reduce(collective: Collective) -> Schedule:
    """Reduce-scatter around a ring, then gather along a binomial tree."""
    lanes, root, n = Lanes(collective), collective.root, collective.ranks
    lanes.keep()
    bounds = edges(collective.count, n)
    chunks = lanes.builder.pieces(np.diff(bounds), bounds[:-1])
    buffers = np.full((n, n), SCRATCH)
    buffers[0] = IN
    buffers[-1, 0] = OUT  # the last step ends at the root in its output
    styles = [lanes.styles(a[0], b, REDUCE_INPUT) for a, b in pairwise(buffers)]
    receiver = np.array(styles, np.int32).reshape(n - 1, n)
    ranks, first = (np.arange(n) + root) % n, np.full(n - 1, chunks[0])
    pass_around(lanes, ranks, np.roll(receiver, -1, 1), first, -1)
    for s in range(ceil_log2(n)):
        v = np.arange(1 << s, n, 2 << s)
        high = np.minimum(v + (1 << s), n)
        piece = lanes.builder.pieces(bounds[high] - bounds[v], bounds[v])
        part = Part(lanes.styles(SCRATCH, np.where(v == 1 << s, OUT, SCRATCH)), piece)
        lanes.send((v + root) % n, (v - (1 << s) + root) % n, [part], n - 1 + s)
    return lanes.close()
