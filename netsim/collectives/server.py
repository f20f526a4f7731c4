"""Parameter server: everyone pushes its data to a server, which adds up and hands out the sum.

With one server its link carries everything, which is what rings and trees were made to avoid; with
`sharded`, every rank is the server of a part of the data.
"""

import numpy as np

from netsim.collectives.chunks import edges, flag, rank_of
from netsim.collectives.collective import Collective
from netsim.collectives.direct import exchange_and_add, send_to_all
from netsim.collectives.lanes import Lanes
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


def all_reduce(collective: Collective, *, root: int = 0, sharded: bool = False) -> Schedule:
    """Push to the server `root`, or with `sharded` to all ranks as servers; then pull."""
    lanes, root = Lanes(collective), rank_of("root", root, collective.ranks)
    lanes.keep()
    if flag("sharded", sharded):
        _sharded(lanes)
    elif collective.ranks > 1:
        _single(lanes, root)
    return lanes.close()


def _sharded(lanes: Lanes) -> None:
    n = lanes.ranks
    bounds = edges(lanes.collective.count, n)
    sums = exchange_and_add(lanes, bounds[:-1], bounds[:-1], np.diff(bounds))
    shard = lanes.builder.pieces(np.diff(bounds), bounds[:-1])
    send_to_all(lanes, Style(), np.tile(shard, n - 1), 2, after=sums)


def _single(lanes: Lanes, root: int) -> None:
    n, count, builder = lanes.ranks, lanes.collective.count, lanes.builder
    others = (root + np.arange(1, n)) % n
    slot = np.arange(n - 1) * count
    push = builder.pieces(np.full(n - 1, count), 0, slot)
    pushed = builder.rows(Style(src_buffer=IN, dst_buffer=SCRATCH), others, root, push)
    lanes.passed(others, pushed)
    first = builder.style(Style(LOCAL_COPY, REDUCE_INPUT, SCRATCH, OUT))
    style = np.full(n - 1, builder.style(Style(LOCAL_COPY, REDUCE, SCRATCH, OUT)))
    style[0] = first
    before = len(builder) + np.arange(-1, n - 2)
    before[0] = -1
    add = builder.pieces(np.full(n - 1, count), slot, 0)
    added = builder.rows(
        style, root, root, add, step=1, after=[(pushed, ARRIVED), (before, IN_ORDER)]
    )
    whole = builder.pieces(count)
    pulled = builder.rows(
        Style(), root, others, whole, step=2, after=[(np.repeat(added[-1:], n - 1), IN_ORDER)]
    )
    lanes.wait(np.full(n - 1, root), pulled, IN_ORDER, 2)
    lanes.wait(others, pulled)
