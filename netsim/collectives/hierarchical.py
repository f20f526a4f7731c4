"""Hierarchical algorithms: inside groups of consecutive ranks first, then across them.

All-reduce: reduce-scatter inside each group, all-reduce across, all-gather inside. Every rank of a
group carries its part of the data across, on a ring with the ranks of the same place in the other
groups; so each link between groups carries 2(g-1)/g of S/m only."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray

from netsim.base.values import dataclass
from netsim.collectives.collective import Collective
from netsim.collectives.direct import everyone_else, exchange
from netsim.collectives.ring import channel_styles, pass_around
from netsim.collectives.row_writer import MessagePart, RowWriter
from netsim.collectives.sketch import TextbookSketch
from netsim.collectives.writing import KEEP, Ints, Lanes, Rows, ceil_log2, edges, groups_of
from netsim.schedule import schedule
from netsim.schedule.schedule import ARRIVED, IN, IN_ORDER, OUT, REDUCE_INPUT, SCRATCH, Schedule

FIRST = (IN, OUT, REDUCE_INPUT)
SUM = (OUT, OUT, REDUCE_INPUT)
ADD = (OUT, OUT, schedule.REDUCE)
HAND_ON = (OUT, OUT, schedule.COPY)


def all_reduce(
    collective: Collective,
    *,
    node_size: int | None = None,
    groups: Sequence[Sequence[int]] | None = None,
    writer: RowWriter | None = None,
) -> Schedule:
    """Rings inside groups of `node_size` consecutive ranks (or given `groups`) and across them."""
    lanes = Lanes(collective, writer=writer).keep()
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
    lanes = Lanes(collective)
    root = collective.root
    n = collective.ranks
    bounds = edges(collective.count, n)
    chunks = lanes.builder.pieces(np.diff(bounds), bounds[:-1])
    for step, s in enumerate(reversed(range(ceil_log2(n)))):
        distance = 1 << s
        v = np.arange(0, n - distance, 2 * distance)
        low = v + distance
        high = np.minimum(v + 2 * distance, n)
        piece = lanes.builder.pieces(bounds[high] - bounds[low], bounds[low])
        part = MessagePart(lanes.styles(np.where(v == 0, IN, OUT), OUT), piece)
        lanes.send((v + root) % n, (low + root) % n, [part], step, blocking=True)
    if not collective.in_place:
        copied = lanes.builder.rows(KEEP, root, root, chunks[0])
        lanes.wait(np.array([root]), copied, IN_ORDER)
    styles = channel_styles(lanes, [(OUT, OUT, schedule.COPY)] * (n - 1), 1)
    first = np.full(n - 1, chunks[0])
    pass_around(lanes, (np.arange(n) + root) % n, styles, first, 0, step=ceil_log2(n))
    return lanes.close()


def reduce(collective: Collective) -> Schedule:
    """Reduce-scatter around a ring, then gather along a binomial tree."""
    lanes = Lanes(collective).keep()
    root = collective.root
    n = collective.ranks
    bounds = edges(collective.count, n)
    chunks = lanes.builder.pieces(np.diff(bounds), bounds[:-1])
    buffers = np.full((n, n), SCRATCH)
    buffers[0] = IN
    buffers[-1, 0] = OUT  # the last step ends at the root in its output
    styles = [lanes.styles(a[0], b, REDUCE_INPUT) for a, b in pairwise(buffers)]
    receiver = np.array(styles, np.int32).reshape(n - 1, n)
    ranks = (np.arange(n) + root) % n
    first = np.full(n - 1, chunks[0])
    pass_around(lanes, ranks, np.roll(receiver, -1, 1), first, -1)
    for s in range(ceil_log2(n)):
        v = np.arange(1 << s, n, 2 << s)
        high = np.minimum(v + (1 << s), n)
        piece = lanes.builder.pieces(bounds[high] - bounds[v], bounds[v])
        part = MessagePart(lanes.styles(SCRATCH, np.where(v == 1 << s, OUT, SCRATCH)), piece)
        lanes.send((v + root) % n, (v - (1 << s) + root) % n, [part], n - 1 + s)
    return lanes.close()


# **** All-to-all ****
# Blocks first go to the rank of the receiver's place in the own group. From there they cross, so
# that between two groups there is one message a rank, not one a pair of ranks. What comes from one
# group lies together in the output.

Offsets = NDArray[np.int64]
STAGE = schedule.Style(schedule.LOCAL_COPY, 0, IN, SCRATCH)
MOST_HOPS = 1 << 21  # across that are all sketched; of more, some distances and others to check
CHECKED = 6  # of these


@dataclass(frozen=True, slots=True)
class Staging:
    """Blocks on their way between g groups of m ranks: numbers of elements, and where they lie.

    Equal blocks (`block` elements) follow from formulas. Otherwise `tables` are counts, and places
    in the input, in the output and in scratch, by source and destination rank."""

    g: int
    m: int
    block: int
    tables: tuple[Offsets, Offsets, Offsets, Offsets] | None = None

    def count(self, rank: Ints, to: Ints) -> Offsets:
        """The number of elements that a rank has for the rank `to`."""
        if self.tables is None:
            return np.full(np.broadcast(rank, to).shape, self.block)
        return _long(self.tables[0][rank, to])

    def input_offset(self, rank: Ints, to: Ints) -> Offsets:
        """Where these elements lie in the input of the rank."""
        return _long(to * self.block) if self.tables is None else _long(self.tables[1][rank, to])

    def output_offset(self, rank: Ints, to: Ints) -> Offsets:
        """Where these elements must go in the output of the rank `to`."""
        return _long(rank * self.block) if self.tables is None else _long(self.tables[2][rank, to])

    def staged(self, rank: Ints, b: Ints, i: Ints | int) -> Offsets:
        """Where a rank keeps the elements of its group's i-th rank for its peer in group b."""
        if self.tables is None:
            skipped = np.where(b > rank // self.m, self.m, 0)
            return _long((b * self.m + i - skipped) * self.block)
        return _long(self.tables[3][rank, b * self.m + i])

    def crossing(self, rank: Ints, b: Ints) -> Offsets:
        """What a rank's group has for its peer in group b."""
        if self.tables is None:
            return np.full(np.broadcast(rank, b).shape, self.m * self.block)
        group = rank // self.m * self.m
        to = b * self.m + rank % self.m
        return _long(sum(self.tables[0][group + i, to] for i in range(self.m)))


def _long(values: ArrayLike) -> Offsets:
    return np.asarray(values, np.int64)


def _each_for(steps: Ints, ranks: Ints) -> tuple[Offsets, Offsets]:
    """All of some ranks for each step: steps and ranks, one after the other."""
    return _long(np.repeat(steps, len(ranks))), _long(np.tile(ranks, len(steps)))


def alltoall(
    collective: Collective, *, node_size: int | None = None, writer: RowWriter | None = None
) -> Schedule:
    """Groups are `node_size` consecutive ranks (default: up to 8)."""
    lanes = Lanes(collective, writer=writer).keep()
    g, m = groups_of(collective.ranks, node_size).shape
    if isinstance(lanes.writer, TextbookSketch):  # a short description is all that it needs
        _describe(lanes.writer, collective, g, m)
        return lanes.close()
    if m == 1:
        exchange(lanes, *everyone_else(lanes.ranks), paired=False)
        return lanes.close()
    staging = _staging(collective, g, m)
    everyone = np.arange(g * m)
    ranks = everyone[lanes.writer.written(everyone)]
    copies = _stage_own(lanes, staging, ranks)
    _across(lanes, staging, ranks, copies, _inside(lanes, staging, ranks))
    return lanes.close()


def alltoallv(collective: Collective, *, node_size: int | None = None) -> Schedule:
    """The same with blocks of any size, which is never folded."""
    return alltoall(collective, node_size=node_size)


def _describe(sketch: TextbookSketch, collective: Collective, g: int, m: int) -> None:
    """Note the hops inside groups, and those between groups at some distances (at all distances if
    there are few). Hops at other distances only check the classes that follow from these."""
    if m == 1:
        sketch.refused = "groups have one rank each"
        return
    n = g * m
    rank = np.arange(g * m)
    group, place = np.divmod(rank, m)
    sketch.distinguish(rank, np.zeros(n, np.int64), rows=2 * g - 1)
    for t in range(m - 1):
        sketch.hops(rank, group * m + (place + t + 1) % m, rows=g)
    sketched, checked = distances(g, n)
    sketch.step_count = g - 1
    sketch.step_bytes = float(m * collective.count * collective.element_bytes)
    for u in range(1, g):
        if u in sketched:
            sketch.hops(rank, (rank + u * m) % n, rows=0, is_awaited=False)
        elif u in checked:
            sketch.hops(rank, (rank + u * m) % n, only_checks=True, is_awaited=False)


def distances(g: int, n: int) -> tuple[set[int], set[int]]:
    """Distances between groups that are sketched, and those that check what was found so."""
    if g * n <= MOST_HOPS:
        return set(range(1, g)), set()
    sketched = {1, 2, 3, g // 2, g - 1}
    others = np.setdiff1d(np.arange(1, g), list(sketched))
    checked = np.random.default_rng(g).permutation(others)[:CHECKED]
    return sketched & set(range(1, g)), set(checked.tolist())


def _staging(collective: Collective, g: int, m: int) -> Staging:
    if collective.name == "alltoall":
        return Staging(g, m, collective.count)
    blocks = collective.blocks()
    n = g * m
    count = blocks.count.reshape(g, m, g, m).transpose(0, 3, 2, 1).copy()  # group, place, b, i
    count[np.arange(g), :, np.arange(g), :] = 0
    flat = count.reshape(n, n)
    offset = np.cumsum(flat, 1) - flat
    return Staging(g, m, 0, (blocks.count, blocks.in_offset, blocks.out_offset, offset))


def _stage_own(lanes: Lanes, s: Staging, ranks: Ints) -> Rows:
    """Copy what a rank has for its own peers to where it crosses from: row by (u, rank)."""
    u, rank = _each_for(np.arange(s.g - 1), ranks)
    group, place = np.divmod(rank, s.m)
    b = (group + u + 1) % s.g
    final = b * s.m + place
    piece = lanes.builder.pieces(
        s.count(rank, final), s.input_offset(rank, final), s.staged(rank, b, place)
    )
    return lanes.builder.rows(lanes.writer.styles(lanes.builder, STAGE, rank), rank, rank, piece)


def _inside(lanes: Lanes, s: Staging, ranks: Ints) -> Rows:
    """Blocks for the peers of every other rank of the group go to that rank; row by (t, u, rank),
    where t - 1 is the distance inside the group, u that between the groups."""
    g = s.g
    m = s.m
    k = len(ranks)
    shape = (m - 1, g, k)
    t, u, number = (x.ravel() for x in np.indices(shape))
    rank = ranks[number]
    group, place = np.divmod(rank, m)
    to = group * m + (place + t + 1) % m
    b = (group + u) % g
    final = b * m + to % m
    target = np.where(u == 0, s.output_offset(rank, final), s.staged(to, b, place))
    piece = lanes.builder.pieces(s.count(rank, final), s.input_offset(rank, final), target)
    before = len(lanes.builder) + np.arange(-k, len(rank) - k)
    before[:k] = -1
    styles = np.array([lanes.style(IN, OUT), lanes.style(IN, SCRATCH)], np.int32)
    rows = lanes.builder.rows(
        lanes.writer.styles(lanes.builder, styles[np.minimum(u, 1)], rank),
        rank,
        to,
        piece,
        step=t,
        after=[(before, IN_ORDER)],
    )
    lanes.passed(ranks, rows[-k:], m - 2)
    lanes.wait(lanes.writer.representatives(to[u == 0]), rows[u == 0])
    return rows.reshape(shape)


def _across(lanes: Lanes, s: Staging, ranks: Ints, copies: Rows, inside: Rows) -> None:
    """What a group's ranks have for one rank of another group crosses in one message."""
    g = s.g
    m = s.m
    k = len(ranks)
    if g == 1:
        return
    number = np.full(g * m, -1)
    number[ranks] = np.arange(k)
    u, rank = _each_for(np.arange(1, g), ranks)
    group, place = np.divmod(rank, m)
    b = (group + u) % g
    to = b * m + place
    piece = lanes.builder.pieces(
        s.crossing(rank, b), s.staged(rank, b, 0), s.output_offset(group * m, to)
    )
    before = len(lanes.builder) + np.arange(-k, len(rank) - k)
    before[:k] = lanes.last[ranks]
    staged = np.full(len(u), -1, np.int32)
    staged[: len(copies)] = copies
    after: list[tuple[Ints, schedule.Lag]] = [(before, IN_ORDER), (staged, IN_ORDER)]
    for t in range(m - 1):
        sender = number[lanes.writer.representatives(group * m + (place - t - 1) % m)]
        after.append((inside[t, u, sender], ARRIVED))
    style = np.full(len(rank), lanes.style(SCRATCH, OUT), np.int32)
    styles = lanes.writer.styles(lanes.builder, style, rank)
    rows = lanes.builder.rows(styles, rank, to, piece, step=m - 2 + u, after=after)
    lanes.last[ranks] = rows[-k:]
    _arrive(lanes, s, ranks, rows.reshape(g - 1, k), number)


def _arrive(lanes: Lanes, s: Staging, ranks: Ints, rows: Rows, number: Ints) -> None:
    """Every rank waits for what crosses to it."""
    if len(ranks) == s.g * s.m:
        for u in range(1, s.g):
            lanes.wait((ranks + u * s.m) % (s.g * s.m), rows[u - 1], ARRIVED, s.m - 3 + s.g)
        return
    steps = np.arange(1, s.g)
    sender = (ranks[:, None] - steps[None, :] * s.m) % (s.g * s.m)
    arrived = rows[steps - 1, number[lanes.writer.representatives(sender)]]
    ptr = np.arange(len(ranks) + 1) * (s.g - 1)
    marks = lanes.builder.marks(ranks, step=s.m - 3 + s.g, joins=(ptr, arrived.ravel(), ARRIVED))
    lanes.wait(ranks, marks, IN_ORDER, s.m - 3 + s.g)
