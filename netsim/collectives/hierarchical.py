"""Hierarchical all-reduce: reduce-scatter inside each group, all-reduce across, all-gather inside.

Every rank of a group carries its part of the data across, on a ring with the ranks of the same
place in the other groups; so each link between groups carries 2(g-1)/g of S/m only.
"""

from collections.abc import Sequence

import numpy as np

from netsim.collectives.chunks import edges
from netsim.collectives.collective import Collective
from netsim.collectives.groups import groups_of
from netsim.collectives.lanes import Folding, Ints, Lanes
from netsim.collectives.ring import channel_styles, pass_around
from netsim.schedule import COPY, IN, OUT, REDUCE, REDUCE_INPUT, Schedule

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
