"""Recursive halving and doubling, Bruck's algorithms, binomial trees: partners at powers of two.

All-reduce is a reduce-scatter by halving and an all-gather by doubling (Rabenseifner, 2004). Both
need a power of two of ranks: the core, as many of the n ranks as possible. The first odd ranks, 1,
3, 5 …, are outside of the core: each first sends its data to the rank before it, and receives its
result from that rank at the end.
"""

import numpy as np
from numpy.typing import NDArray

from netsim.base.values import dataclass
from netsim.collectives import writing
from netsim.collectives.collective import Blocks, Collective
from netsim.collectives.row_writer import MessagePart, RowWriter
from netsim.collectives.writing import Ints, Lanes
from netsim.schedule.schedule import IN, OUT, REDUCE, REDUCE_INPUT, SCRATCH, Schedule


@dataclass(frozen=True, slots=True)
class Core:
    """The ranks of the core, the ranks outside of it, and the blocks of each core rank.

    - `members`: the ranks of the core.
    - `extras`: the ranks outside; the first members of the core each act for the next rank too.
    - `first`: by member, the first block that it is responsible for, and at the end the number of
      blocks.

    With 5 ranks: members 0, 2, 3, 4; extras 1; first 0, 2, 3, 4, 5.
    """

    members: Ints
    extras: Ints
    first: Ints

    @property
    def acts_for_extra(self) -> NDArray[np.bool_]:
        """For each member, whether it also acts for a rank outside of the core."""
        return np.diff(self.first) > 1


def core_of(n: int) -> Core:
    """The core of n ranks."""
    size = 1 << (n.bit_length() - 1)
    extras = n - size
    first = np.arange(size + 1) + np.minimum(np.arange(size + 1), extras)
    return Core(first[:size], first[:extras] + 1, first)


def all_reduce(collective: Collective, *, writer: RowWriter | None = None) -> Schedule:
    """All-reduce: halve down to one chunk for each member of the core, then double back: 2·log2(n)
    steps.
    """
    lanes = Lanes(collective, writer=writer).copy_local_data()
    core = core_of(collective.ranks)
    size = len(core.members)
    odd = len(core.extras)
    bounds = writing.edges(collective.count, size)
    all_data = np.repeat(lanes.builder.pieces(collective.count), odd)
    outer = MessagePart(lanes.styles(np.full(odd, IN), OUT, REDUCE_INPUT), all_data)
    lanes.send(core.extras, core.members[:odd], [outer], 0)
    step = 1 if odd else 0
    distances = [size >> k for k in range(1, size.bit_length())]
    for distance in distances:
        first = distance == size // 2
        member, partner, low = _partners(size, distance)
        op = np.where(core.acts_for_extra[partner] | (not first), REDUCE, REDUCE_INPUT)
        styles = lanes.styles(np.where(core.acts_for_extra | (not first), OUT, IN), OUT, op)
        piece = lanes.builder.pieces(bounds[low + distance] - bounds[low], bounds[low])
        parts = [MessagePart(styles, piece)]
        lanes.send(core.members[member], core.members[partner], parts, step, ready=True)
        step += 1
    step = _double(lanes, core, bounds, distances[::-1], step)
    parts = [MessagePart(lanes.styles(np.full(odd, OUT), OUT), all_data)]
    lanes.send(core.members[:odd], core.extras, parts, step)
    return lanes.close()


def all_gather(collective: Collective, *, writer: RowWriter | None = None) -> Schedule:
    """All-gather: partners exchange all blocks that they have (recursive doubling), in log2(n)
    steps.
    """
    lanes = Lanes(collective, writer=writer).copy_local_data()
    core = core_of(collective.ranks)
    n = collective.ranks
    block = collective.count
    odd = len(core.extras)
    bounds = np.arange(n + 1) * block
    own_block = lanes.builder.pieces(np.full(n, block), 0, bounds[:-1])
    outer = MessagePart(lanes.styles(np.full(odd, IN), OUT), own_block[core.extras])
    lanes.send(core.extras, core.members[:odd], [outer], 0)
    step = 1 if odd else 0
    lanes.wait_for_own_rows(lanes.copies, core.members[:odd])
    size = len(core.members)
    if size > 1:
        member, partner, _ = _partners(size, 1)
        both = lanes.builder.pieces(np.diff(bounds[core.first]), bounds[core.first[:-1]])
        piece = np.where(core.acts_for_extra, both, own_block[core.members])
        parts = [MessagePart(lanes.styles(np.where(core.acts_for_extra, OUT, IN), OUT), piece)]
        lanes.send(core.members[member], core.members[partner], parts, step)
    lanes.wait_for_own_rows(lanes.copies)
    step = _double(
        lanes, core, bounds[core.first], [2 << k for k in range(size.bit_length() - 2)], step + 1
    )
    low = np.zeros(odd, np.int64)
    high = np.full(odd, n)
    styles = lanes.styles(np.full(odd, OUT), OUT)
    parts = writing.range_parts(
        lanes, writing.without_block(low, high, core.extras), bounds, styles
    )
    lanes.send(core.members[:odd], core.extras, parts, step)
    return lanes.close()


def reduce_scatter(collective: Collective, *, writer: RowWriter | None = None) -> Schedule:
    """Reduce-scatter: each of two partners sends the half of the blocks that the other one keeps
    (recursive halving), in log2(n) steps.
    """
    lanes = Lanes(collective, writer=writer).copy_local_data()
    core = core_of(collective.ranks)
    n = collective.ranks
    odd = len(core.extras)
    size = len(core.members)
    everything = (np.zeros(odd, np.int64), np.full(odd, n))
    inputs = np.full(odd, IN)
    parts = _summands(lanes, core.members[:odd], *everything, inputs, np.full(odd, REDUCE_INPUT))
    lanes.send(core.extras, core.members[:odd], parts, 0)
    step = 1 if odd else 0
    for distance in [size >> k for k in range(1, size.bit_length())]:
        first = distance == size // 2
        member, partner, low = _partners(size, distance)
        blocks = (core.first[low], core.first[low + distance])
        op = np.where(core.acts_for_extra[partner] | (not first), REDUCE, REDUCE_INPUT)
        source = np.where(core.acts_for_extra | (not first), SCRATCH, IN)
        parts = _summands(lanes, core.members[partner], *blocks, source, op)
        lanes.send(core.members[member], core.members[partner], parts, step, ready=True)
        step += 1
    block = lanes.builder.pieces(np.full(odd, collective.count), core.extras * collective.count, 0)
    parts = [MessagePart(lanes.styles(np.full(odd, SCRATCH), OUT), block)]
    lanes.send(core.members[:odd], core.extras, parts, step)
    return lanes.close()


def _partners(size: int, distance: int) -> tuple[Ints, Ints, Ints]:
    """Three arrays by member of the core: its number; its partner, at distance `distance` (a power
    of 2); and the first member of the half of blocks that the partner keeps.

    `size` is the number of members. With size 8 and distance 2, member 0 has the partner 2, which
    keeps the blocks of members 2 and 3.
    """
    member = np.arange(size)
    partner = member ^ distance
    return member, partner, partner & -distance


def _double(
    lanes: Lanes, core: Core, bounds: NDArray[np.int64], distances: list[int], step: int
) -> int:
    """Append the steps of a doubling; return the number of the next step.

    In each step, two partners send each other all that they have in OUT.

    - `bounds`: where the data of each member begins in OUT, and at the end where the last one's
      ends, in elements.
    - `distances`: the distance between partners in each step.
    - `step`: the number of the first step.
    """
    size = len(core.members)
    style = lanes.styles(np.full(size, OUT), OUT)
    for distance in distances:
        member, partner, _ = _partners(size, distance)
        low = member & -distance
        piece = lanes.builder.pieces(bounds[low + distance] - bounds[low], bounds[low])
        lanes.send(core.members[member], core.members[partner], [MessagePart(style, piece)], step)
        step += 1
    return step


def _summands(
    lanes: Lanes, receiver: Ints, low: Ints, high: Ints, source: Ints, op: Ints
) -> list[MessagePart]:
    """Parts of messages with blocks low … high - 1, which receivers sum: their own block in OUT,
    the others in SCRATCH.

    Args:
        receiver: receiver of each message.
        low: first block of each message.
        high: the block after the last one.
        source: buffer of each sender.
        op: REDUCE or REDUCE_INPUT, by message.
    """
    block = lanes.collective.count
    bounds = np.arange(lanes.ranks + 1) * block
    rest = writing.range_parts(
        lanes, writing.without_block(low, high, receiver), bounds, lanes.styles(source, SCRATCH, op)
    )
    receiver_offset = bounds[receiver]
    piece = lanes.builder.pieces(
        np.full(len(receiver_offset), block), receiver_offset, 0, receiver_offset
    )
    return [*rest, MessagePart(lanes.styles(source, OUT, op), piece)]


# Bruck's algorithms for any number of ranks (Bruck et al., 1997): ceil(log2 n) steps. All-gather:
# in step s every rank sends all blocks that it has, or those that are still missing, to the rank
# 2^s before it. All-to-all: a block whose destination is j ranks further moves by 2^s ranks in each
# step s whose bit is set in j. Bruck rotates blocks locally before the first and after the last
# step; here each block is sent to its final place instead, which divides messages into several
# parts.


def bruck_all_gather(collective: Collective) -> Schedule:
    """All-gather after Bruck: the number of blocks on every rank doubles in each step."""
    lanes = Lanes(collective).copy_local_data()
    n = collective.ranks
    block = collective.count
    ranks = np.arange(n)
    bounds = np.arange(n + 1) * block
    for s in range(writing.ceil_log2(n)):
        if s == 0:
            own_block = lanes.builder.pieces(np.full(n, block), 0, bounds[:-1])
            parts = [MessagePart(lanes.styles(np.full(n, IN), OUT), own_block)]
        else:
            ranges = writing.ranges_mod(ranks, min(1 << s, n - (1 << s)), n)
            parts = writing.range_parts(lanes, ranges, bounds, lanes.styles(np.full(n, OUT), OUT))
        lanes.send(ranks, (ranks - (1 << s)) % n, parts, s)
        if s == 0:
            lanes.wait_for_own_rows(lanes.copies)
    return lanes.close()


def bruck_alltoall(collective: Collective) -> Schedule:
    """All-to-all after Bruck: log2(n) messages a rank, but each block is sent up to log2(n) times;
    good for small blocks.
    """
    lanes = Lanes(collective).copy_local_data()
    n = collective.ranks
    ranks = np.arange(n)
    blocks = collective.blocks()
    for s in range(writing.ceil_log2(n)):
        moving = [j for j in range(1, n) if j >> s & 1]
        parts = [_moved(lanes, blocks, j, s) for j in moving]
        lanes.send(ranks, (ranks + (1 << s)) % n, parts, s)
    return lanes.close()


def _moved(lanes: Lanes, blocks: Blocks, j: int, s: int) -> MessagePart:
    """The part that every message of step s has for one block: the block whose destination is `j`
    ranks after the rank that it comes from.

    Before its first move a block is in the input, after its last one in the output, and in between
    in a scratch slot. `blocks` has the counts and offsets of all blocks.
    """
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
    return MessagePart(np.full(n, style, np.int32), lanes.builder.pieces(count, source, target))


# Binomial trees over whole buffers. Ranks are counted from the root on: v = (rank - root) mod n. In
# round s of a broadcast every v < 2^s sends the data to v + 2^s; a reduce runs backwards. In a
# broadcast a rank's next message waits until its last one has arrived, as with blocking sends, so
# that each of the ceil(log2 n) rounds takes α + S/B (latency plus size over bandwidth).


def broadcast(collective: Collective, *, writer: RowWriter | None = None) -> Schedule:
    """Broadcast along a binomial tree: the number of ranks that have the data doubles
    every round.
    """
    lanes = Lanes(collective, writer=writer).copy_local_data()
    _spread(lanes, collective.root, IN, 0)
    return lanes.close()


def reduce(collective: Collective, *, writer: RowWriter | None = None) -> Schedule:
    """Reduce along a binomial tree: the number of ranks with partial sums halves every round."""
    lanes = Lanes(collective, writer=writer).copy_local_data()
    _collect(lanes, collective.root, SCRATCH)
    return lanes.close()


def binomial_all_reduce(
    collective: Collective, *, root: int = 0, writer: RowWriter | None = None
) -> Schedule:
    """All-reduce: a reduce to the rank `root`, then a broadcast from there, both along a binomial
    tree.
    """
    lanes = Lanes(collective, writer=writer).copy_local_data()
    root = writing.rank_of("root", root, collective.ranks)
    _spread(lanes, root, OUT, _collect(lanes, root, OUT))
    return lanes.close()


def _spread(lanes: Lanes, root: int, from_buffer: int, step: int) -> int:
    """Append the rounds of a broadcast from `root`; return the number of the next step.

    - `from_buffer`: the buffer of the root that has the data. All ranks receive it in OUT.
    - `step`: the number of the first step.
    """
    n = lanes.ranks
    piece = lanes.builder.pieces(lanes.collective.count)
    for s in range(writing.ceil_log2(n)):
        v = np.arange(min(1 << s, n - (1 << s)))
        part = MessagePart(
            lanes.styles(np.where(v == 0, from_buffer, OUT), OUT), np.repeat(piece, len(v))
        )
        source = (v + root) % n
        target = (v + (1 << s) + root) % n
        lanes.send(source, target, [part], step + s, blocking=True)
    return step + writing.ceil_log2(n)


def _collect(lanes: Lanes, root: int, elsewhere: int) -> int:
    """Append the rounds of a reduce to `root`, from step 0 on; return the number of rounds.

    The root sums in OUT, the other ranks in their buffer `elsewhere`.
    """
    n = lanes.ranks
    rounds = writing.ceil_log2(lanes.ranks)
    piece = lanes.builder.pieces(lanes.collective.count)
    summed = np.zeros(n, bool)  # by distance from the root: holds more than its own input
    buffer = np.where(np.arange(n) == 0, OUT, elsewhere)
    for step, s in enumerate(reversed(range(rounds))):
        v = np.arange(min(1 << s, n - (1 << s)))
        w = v + (1 << s)
        style = lanes.styles(
            np.where(summed[w], buffer[w], IN), buffer[v], np.where(summed[v], REDUCE, REDUCE_INPUT)
        )
        part = MessagePart(style, np.repeat(piece, len(v)))
        lanes.send((w + root) % n, (v + root) % n, [part], step, ready=True)
        summed[v] = True
    return rounds
