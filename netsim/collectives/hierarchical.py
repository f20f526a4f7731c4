"""Hierarchical algorithms: first inside groups of consecutive ranks, then between the groups.

All-reduce of size S on g groups of m ranks: reduce-scatter inside each group, all-reduce between
groups, all-gather inside each group. Between groups, the ranks with the same place in their groups
form a ring, each for its m-th of the data; so each link between groups carries 2(g-1)/g · S/m.
"""

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
    """All-reduce by rings inside groups and between them.

    Groups are `node_size` consecutive ranks, or those of `groups`.
    """
    lanes = Lanes(collective, writer=writer).copy_local_data()
    inside = groups_of(collective.ranks, node_size, groups)
    g, m = inside.shape
    bounds = edges(collective.count, m * g)
    fine = lanes.builder.pieces(np.diff(bounds), bounds[:-1]).reshape(m, g)
    coarse = lanes.builder.pieces(np.tile(np.diff(bounds[::g]), g), np.tile(bounds[:-1:g], g))
    step = _rings(lanes, inside, [FIRST, *[SUM] * (m - 2)][: m - 1], coarse[0], 0, 0)
    # After the reduce-scatter the p-th rank of a group has the sum of chunk p + 1 (mod m), so ring
    # c between the groups consists of the ranks that have chunk c.
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
    """Append the steps of rings with `members` (a line for each ring); return the number of the
    next step.

    The arguments are those of `pass_around`; `phases` are the styles by step.
    """
    styles = np.repeat(channel_styles(lanes, phases, 1), len(members), axis=1)
    first = np.full(len(phases), first_piece)
    return pass_around(lanes, members, styles, first, start, step=step, ready=ADD in phases)


# Broadcast and reduce of large data in two halves (van de Geijn; Thakur et al., 2005). A broadcast
# scatters the data down a binomial tree and then all-gathers it around a ring; a reduce
# reduce-scatters around a ring and then gathers the sums up a binomial tree. Chunk v belongs to the
# v-th rank, counted from the root on.


def broadcast(collective: Collective) -> Schedule:
    """Broadcast: scatter along a binomial tree, then all-gather around a ring."""
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
    """Reduce: reduce-scatter around a ring, then gather along a binomial tree."""
    lanes = Lanes(collective).copy_local_data()
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


# **** All-to-all **** The peers of a rank are the ranks with the same place in other groups. A
# block first moves inside its group to the peer of its destination, where all blocks of the group
# for this destination lie side by side in scratch. From there they cross as one message, which is
# contiguous in the output too: between two groups there is one message a rank instead of one for
# each pair of ranks.

Offsets = NDArray[np.int64]
STAGE = schedule.Style(schedule.LOCAL_COPY, 0, IN, SCRATCH)
MOST_HOPS = 1 << 21  # across that are all sketched; of more, some distances and others to check
CHECKED = 6  # of these


@dataclass(frozen=True, slots=True)
class Staging:
    """The sizes and places of the blocks of an all-to-all between `g` groups of `m` ranks, in
    elements.

    - `block`: elements of each block if all are equal; offsets then follow from formulas.
    - `tables`: four matrices if blocks differ, else None. The first three, by source rank and
      destination rank, are the counts, the offsets in the input of the source, and the offsets in
      the output of the destination. The fourth has the offsets in scratch memory, by the rank that
      keeps the block and by b * m + i (see `scratch_offset`).
    """

    g: int
    m: int
    block: int
    tables: tuple[Offsets, Offsets, Offsets, Offsets] | None = None

    def count(self, rank: Ints, to: Ints) -> Offsets:
        """The number of elements that `rank` sends to the rank `to`."""
        if self.tables is None:
            return np.full(np.broadcast(rank, to).shape, self.block)
        return _long(self.tables[0][rank, to])

    def input_offset(self, rank: Ints, to: Ints) -> Offsets:
        """Where the block for the rank `to` begins in the input of `rank`, in elements."""
        return _long(to * self.block) if self.tables is None else _long(self.tables[1][rank, to])

    def output_offset(self, rank: Ints, to: Ints) -> Offsets:
        """Where the block that comes from `rank` begins in the output of the rank `to`, in
        elements.
        """
        return _long(rank * self.block) if self.tables is None else _long(self.tables[2][rank, to])

    def scratch_offset(self, rank: Ints, b: Ints, i: Ints | int) -> Offsets:
        """Where a block begins in the scratch memory of `rank`, in elements.

        The block is that of the i-th rank of the group of `rank`, for the peer of `rank` in group
        `b`. `rank` keeps it until it sends the blocks of its whole group to this peer.
        """
        if self.tables is None:
            skipped = np.where(b > rank // self.m, self.m, 0)
            return _long((b * self.m + i - skipped) * self.block)
        return _long(self.tables[3][rank, b * self.m + i])

    def count_between(self, rank: Ints, b: Ints) -> Offsets:
        """The number of elements that a rank's group sends to the peer of this rank in group b."""
        if self.tables is None:
            return np.full(np.broadcast(rank, b).shape, self.m * self.block)
        group = rank // self.m * self.m
        to = b * self.m + rank % self.m
        return _long(sum(self.tables[0][group + i, to] for i in range(self.m)))


def _long(values: ArrayLike) -> Offsets:
    return np.asarray(values, np.int64)


def _pairs_of(steps: Ints, ranks: Ints) -> tuple[Offsets, Offsets]:
    """Every pair of a step and a rank, as two arrays: the steps and the ranks. Pairs are ordered by
    step, then by rank: [0, 0, 1, 1] and [4, 5, 4, 5] for steps 0, 1 and ranks 4, 5.
    """
    return _long(np.repeat(steps, len(ranks))), _long(np.tile(ranks, len(steps)))


def alltoall(
    collective: Collective, *, node_size: int | None = None, writer: RowWriter | None = None
) -> Schedule:
    """All-to-all through peers in groups of `node_size` consecutive ranks.

    By default a group has the largest number of ranks up to 8 that divides the number of ranks.
    """
    lanes = Lanes(collective, writer=writer).copy_local_data()
    g, m = groups_of(collective.ranks, node_size).shape
    if isinstance(lanes.writer, TextbookSketch):  # a short description is all that it needs
        _note_hops(lanes.writer, collective, g, m)
        return lanes.close()
    if m == 1:
        exchange(lanes, *everyone_else(lanes.ranks), paired=False)
        return lanes.close()
    staging = _staging(collective, g, m)
    everyone = np.arange(g * m)
    ranks = everyone[lanes.writer.written(everyone)]
    copies = _copy_own_blocks(lanes, staging, ranks)
    _messages_between_groups(
        lanes, staging, ranks, copies, _messages_inside_groups(lanes, staging, ranks)
    )
    return lanes.close()


def alltoallv(collective: Collective, *, node_size: int | None = None) -> Schedule:
    """All-to-all through peers with blocks of any size; it takes no writer, so it is always written
    in full.
    """
    return alltoall(collective, node_size=node_size)


def _note_hops(sketch: TextbookSketch, collective: Collective, g: int, m: int) -> None:
    """Note in a sketch the hops of the all-to-all inside groups and between groups.

    - `g`: number of groups.
    - `m`: ranks of each group.

    If there are many groups, hops between groups are noted at some distances only. Hops at some
    other distances are used to check the classes of equal lanes, not to find them.
    """
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
    """Two sets of distances, in groups: those whose hops between groups are noted in a sketch, and
    those whose hops are only used to check the classes of equal lanes.

    Up to `MOST_HOPS` hops the first set has all distances. Beyond that, it has up to five, and the
    second set has `CHECKED` random ones of the others. `g`: number of groups; `n`: number of ranks.
    """
    if g * n <= MOST_HOPS:
        return set(range(1, g)), set()
    sketched = {1, 2, 3, g // 2, g - 1}
    others = np.setdiff1d(np.arange(1, g), list(sketched))
    checked = np.random.default_rng(g).permutation(others)[:CHECKED]
    return sketched & set(range(1, g)), set(checked.tolist())


def _staging(collective: Collective, g: int, m: int) -> Staging:
    """The Staging of an alltoall or alltoallv between `g` groups of `m` ranks."""
    if collective.name == "alltoall":
        return Staging(g, m, collective.count)
    blocks = collective.blocks()
    n = g * m
    count = blocks.count.reshape(g, m, g, m).transpose(0, 3, 2, 1).copy()  # group, place, b, i
    count[np.arange(g), :, np.arange(g), :] = 0
    flat = count.reshape(n, n)
    offset = np.cumsum(flat, 1) - flat
    return Staging(g, m, 0, (blocks.count, blocks.in_offset, blocks.out_offset, offset))


def _copy_own_blocks(lanes: Lanes, s: Staging, ranks: Ints) -> Rows:
    """Let each of `ranks` copy its blocks for its own peers from its input to its scratch memory;
    return the rows.

    There is one row for each rank and each other group. Rows are ordered by the distance of the
    peer's group, then by rank. `s` says where blocks lie.
    """
    u, rank = _pairs_of(np.arange(s.g - 1), ranks)
    group, place = np.divmod(rank, s.m)
    b = (group + u + 1) % s.g
    final = b * s.m + place
    piece = lanes.builder.pieces(
        s.count(rank, final), s.input_offset(rank, final), s.scratch_offset(rank, b, place)
    )
    return lanes.builder.rows(lanes.writer.styles(lanes.builder, STAGE, rank), rank, rank, piece)


def _messages_inside_groups(lanes: Lanes, s: Staging, ranks: Ints) -> Rows:
    """Write the messages inside groups that `ranks` send; return their rows as an array [t, u,
    position of the sender in `ranks`].

    In step t every rank sends to the rank at distance t + 1 in its group, the receiver. It sends
    one block for each group: the block for the receiver's peer in the group at distance u. For u =
    0 that is the block for the receiver itself. `s` says where blocks lie.
    """
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
    target = np.where(u == 0, s.output_offset(rank, final), s.scratch_offset(to, b, place))
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
    lanes.set_last_rows(ranks, rows[-k:], m - 2)
    lanes.wait(lanes.writer.representatives(to[u == 0]), rows[u == 0])
    return rows.reshape(shape)


def _messages_between_groups(
    lanes: Lanes, s: Staging, ranks: Ints, copies: Rows, inside: Rows
) -> None:
    """Write the messages between groups: each has all blocks of a group for one rank of another
    group.

    Args:
        ranks: the ranks whose messages are written.
        copies: rows of `_copy_own_blocks`.
        inside: rows of `_messages_inside_groups`.
    """
    g = s.g
    m = s.m
    k = len(ranks)
    if g == 1:
        return
    number = np.full(g * m, -1)
    number[ranks] = np.arange(k)
    u, rank = _pairs_of(np.arange(1, g), ranks)
    group, place = np.divmod(rank, m)
    b = (group + u) % g
    to = b * m + place
    piece = lanes.builder.pieces(
        s.count_between(rank, b), s.scratch_offset(rank, b, 0), s.output_offset(group * m, to)
    )
    before = len(lanes.builder) + np.arange(-k, len(rank) - k)
    before[:k] = lanes.last[ranks]
    awaited_copies = np.full(len(u), -1, np.int32)
    awaited_copies[: len(copies)] = copies
    after: list[tuple[Ints, schedule.Lag]] = [(before, IN_ORDER), (awaited_copies, IN_ORDER)]
    for t in range(m - 1):
        sender = number[lanes.writer.representatives(group * m + (place - t - 1) % m)]
        after.append((inside[t, u, sender], ARRIVED))
    style = np.full(len(rank), lanes.style(SCRATCH, OUT), np.int32)
    styles = lanes.writer.styles(lanes.builder, style, rank)
    rows = lanes.builder.rows(styles, rank, to, piece, step=m - 2 + u, after=after)
    lanes.last[ranks] = rows[-k:]
    _wait_for_other_groups(lanes, s, ranks, rows.reshape(g - 1, k), number)


def _wait_for_other_groups(lanes: Lanes, s: Staging, ranks: Ints, rows: Rows, number: Ints) -> None:
    """Let the end of every rank wait for all messages that the rank gets from other groups.

    - `ranks`: the ranks whose messages were written.
    - `rows`: the rows of the messages as [distance between groups - 1, position of the sender in
      `ranks`].
    - `number`: by rank, its position in `ranks`.
    """
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
