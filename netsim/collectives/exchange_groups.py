"""Hierarchical all-to-all: blocks first go to the rank of the receiver's place in the own group.

From there they cross, so that between two groups there is one message a rank, not one a pair of
ranks. Groups are consecutive ranks, so that what comes from one group lies together in the output.
"""

from dataclasses import dataclass

import numpy as np

from netsim.collectives.collective import Collective
from netsim.collectives.exchange import shift_blocks
from netsim.collectives.groups import groups_of
from netsim.collectives.lanes import Ints, Lanes, Rows
from netsim.collectives.ranges import Blocks
from netsim.schedule import ARRIVED, IN, IN_ORDER, LOCAL_COPY, OUT, SCRATCH, Schedule, Style


@dataclass(frozen=True, slots=True)
class Staging:
    """Blocks on their way: g groups of m ranks, and where each lies in scratch.

    `offset[r, b, i]` is the place at rank r of what its group's i-th rank has for r's peer in
    group b, and `count` how much it is (nothing for the own group).
    """

    g: int
    m: int
    blocks: Blocks
    offset: Ints
    count: Ints


def hierarchical(collective: Collective, *, node_size: int | None = None) -> Schedule:
    """Groups are `node_size` consecutive ranks (default: up to 8)."""
    lanes = Lanes(collective)
    lanes.keep()
    g, m = groups_of(collective.ranks, node_size).shape
    if m == 1:
        shift_blocks(lanes)
        return lanes.close()
    staging = _staging(collective, g, m)
    copied = _stage_own(lanes, staging)
    _across(lanes, staging, copied, _inside(lanes, staging))
    return lanes.close()


def _staging(collective: Collective, g: int, m: int) -> Staging:
    blocks, n = collective.blocks(), g * m
    count = blocks.count.reshape(g, m, g, m).transpose(0, 3, 2, 1).copy()  # group, place, b, i
    count[np.arange(g), :, np.arange(g), :] = 0
    flat = count.reshape(n, n)
    return Staging(
        g, m, blocks, (np.cumsum(flat, 1) - flat).reshape(n, g, m), flat.reshape(n, g, m)
    )


def _stage_own(lanes: Lanes, s: Staging) -> Rows:
    """Copy what a rank has for its own peers to where it crosses from; row by (u, rank)."""
    u, rank = np.divmod(np.arange((s.g - 1) * s.m * s.g), s.m * s.g)
    group, place = np.divmod(rank, s.m)
    b = (group + u + 1) % s.g
    final = b * s.m + place
    piece = lanes.builder.pieces(
        s.blocks.count[rank, final], s.blocks.in_offset[rank, final], s.offset[rank, b, place]
    )
    return lanes.builder.rows(Style(LOCAL_COPY, 0, IN, SCRATCH), rank, rank, piece)


def _inside(lanes: Lanes, s: Staging) -> Rows:
    """Blocks for the peers of every other rank of the group go to that rank; row by (t, u, rank).

    t - 1 is the distance inside the group, u that between the groups.
    """
    g, m, n = s.g, s.m, s.g * s.m
    shape = (m - 1, g, n)
    t, u, rank = (x.ravel() for x in np.indices(shape))
    group, place = np.divmod(rank, m)
    to, b = group * m + (place + t + 1) % m, (group + u) % g
    final = b * m + to % m
    target = np.where(u == 0, s.blocks.out_offset[rank, final], s.offset[to, b, place])
    piece = lanes.builder.pieces(
        s.blocks.count[rank, final], s.blocks.in_offset[rank, final], target
    )
    before = len(lanes.builder) + np.arange(-n, len(rank) - n)
    before[:n] = -1
    styles = np.array([lanes.style(IN, OUT), lanes.style(IN, SCRATCH)])
    rows = lanes.builder.rows(
        styles[np.minimum(u, 1)], rank, to, piece, step=t, after=[(before, IN_ORDER)]
    )
    lanes.passed(np.arange(n), rows[-n:], m - 2)
    lanes.wait(to[u == 0], rows[u == 0])
    return rows.reshape(shape)


def _across(lanes: Lanes, s: Staging, copied: Rows, inside: Rows) -> None:
    """What a group's ranks have for one rank of another group crosses in one message."""
    g, m, n = s.g, s.m, s.g * s.m
    rank = np.arange(n)
    group, place = np.divmod(rank, m)
    style = lanes.style(SCRATCH, OUT)
    last, arrivals = lanes.last.copy(), []
    for u in range(1, g):
        b = (group + u) % g
        to = b * m + place
        piece = lanes.builder.pieces(
            s.count[rank, b].sum(1), s.offset[rank, b, 0], s.blocks.out_offset[group * m, to]
        )
        after = [(last, IN_ORDER), (copied.reshape(g - 1, n)[u - 1], IN_ORDER)]
        after += [(inside[t, u, group * m + (place - t - 1) % m], ARRIVED) for t in range(m - 1)]
        last = lanes.builder.rows(style, rank, to, piece, step=m - 2 + u, after=after)
        arrivals.append((to, last))
    if arrivals:
        lanes.last[:] = last
    for to, rows in arrivals:
        lanes.wait(to, rows, ARRIVED, m - 3 + g)
