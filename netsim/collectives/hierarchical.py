"""Collectives made of others: all-reduce inside and across groups, broadcast and reduce in halves.

Every rank of a group carries its part of the data across, on a ring with the ranks of the same
place in the other groups; so each link between groups carries 2(g-1)/g of S/m only.
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from netsim.collectives.collective import Collective
from netsim.collectives.ring import channel_styles, pass_around
from netsim.collectives.writing import KEEP, Folding, Ints, Lanes, Part, ceil_log2, edges, groups_of
from netsim.schedule.schedule import (
    COPY,
    IN,
    IN_ORDER,
    OUT,
    REDUCE,
    REDUCE_INPUT,
    SCRATCH,
    Schedule,
)

FIRST, SUM, ADD, HAND_ON = (
    (IN, OUT, REDUCE_INPUT),
    (OUT, OUT, REDUCE_INPUT),
    (OUT, OUT, REDUCE),
    (OUT, OUT, COPY),
)


def all_reduce(
    collective: Collective,
    *,
    node_size: int | None = None,
    groups: Sequence[Sequence[int]] | None = None,
    fold: Folding = None,
) -> Schedule:
    """Rings inside groups of `node_size` consecutive ranks (or given `groups`) and across them."""
    lanes = Lanes(collective, fold=fold)
    lanes.keep()
    inside = groups_of(collective.ranks, node_size, groups)
    g, m = inside.shape
    bounds = edges(collective.count, m * g)
    fine = lanes.builder.pieces(np.diff(bounds), bounds[:-1]).reshape(m, g)
    coarse = lanes.builder.pieces(np.tile(np.diff(bounds[::g]), g), np.tile(bounds[:-1:g], g))
    step = _rings(lanes, inside, [FIRST, *[SUM] * (m - 2)][: m - 1], coarse[0], 0, 0)
    # The p-th of a group has summed up chunk p + 1: ring c consists of those that have chunk c.
    across = np.roll(inside, 1, 1).T
    sums = [ADD] * (g - 1) if m > 1 else [FIRST, *[SUM] * (g - 2)][: g - 1]
    step = _rings(lanes, across, sums + [HAND_ON] * (g - 1), fine[0, 0], 0, step)
    _rings(lanes, inside, [HAND_ON] * (m - 1), coarse[0], 1, step)
    return lanes.close()


def _rings(
    lanes: Lanes,
    members: Ints,
    phases: list[tuple[int, int, int]],
    first_piece: np.int32,
    start: int,
    step: int,
) -> int:
    styles = np.repeat(channel_styles(lanes, phases, 1), len(members), axis=1)
    first = np.full(len(phases), first_piece)
    return pass_around(lanes, members, styles, first, start, step=step, ready=ADD in phases)


# Broadcast and reduce of large data in two halves (van de Geijn; Thakur et al., 2005).
# A broadcast scatters the data down a binomial tree and gathers it everywhere around a ring; a
# reduce scatters sums around a ring and gathers them up a binomial tree. Chunk v belongs to the
# v-th rank from the root on.


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
