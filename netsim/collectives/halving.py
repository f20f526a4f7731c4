"""Recursive halving and doubling, Bruck's algorithms, binomial trees: partners at powers of two.

All-reduce is a reduce-scatter by halving and an all-gather by doubling (Rabenseifner, 2004). Among
n ranks the largest power of two form the core; each of the others (the odd ones of the first
pairs) first hands its data to its even neighbour, and gets its result from there in the end."""

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
    """The ranks of the core, the outsiders, and the first block of each member (and the end)."""

    members: Ints
    extras: Ints
    first: Ints

    @property
    def folded(self) -> NDArray[np.bool_]:
        """For each member, whether it also represents an outsider."""
        return np.diff(self.first) > 1


def core_of(n: int) -> Core:
    """The core of n ranks: a member and its outsider own neighbouring blocks."""
    size = 1 << (n.bit_length() - 1)
    extras = n - size
    first = np.arange(size + 1) + np.minimum(np.arange(size + 1), extras)
    return Core(first[:size], first[:extras] + 1, first)


def all_reduce(collective: Collective, *, writer: RowWriter | None = None) -> Schedule:
    """Halve down to one chunk a member of the core, then double back: 2·log2(n) steps."""
    lanes = Lanes(collective, writer=writer).keep()
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
        op = np.where(core.folded[partner] | (not first), REDUCE, REDUCE_INPUT)
        styles = lanes.styles(np.where(core.folded | (not first), OUT, IN), OUT, op)
        piece = lanes.builder.pieces(bounds[low + distance] - bounds[low], bounds[low])
        parts = [MessagePart(styles, piece)]
        lanes.send(core.members[member], core.members[partner], parts, step, ready=True)
        step += 1
    step = _double(lanes, core, bounds, distances[::-1], step)
    parts = [MessagePart(lanes.styles(np.full(odd, OUT), OUT), all_data)]
    lanes.send(core.members[:odd], core.extras, parts, step)
    return lanes.close()


def all_gather(collective: Collective, *, writer: RowWriter | None = None) -> Schedule:
    """Partners exchange all they have (recursive doubling): log2(n) steps."""
    lanes = Lanes(collective, writer=writer).keep()
    core = core_of(collective.ranks)
    n = collective.ranks
    block = collective.count
    odd = len(core.extras)
    bounds = np.arange(n + 1) * block
    own_block = lanes.builder.pieces(np.full(n, block), 0, bounds[:-1])
    outer = MessagePart(lanes.styles(np.full(odd, IN), OUT), own_block[core.extras])
    lanes.send(core.extras, core.members[:odd], [outer], 0)
    step = 1 if odd else 0
    lanes.settle(lanes.copies, core.members[:odd])
    size = len(core.members)
    if size > 1:
        member, partner, _ = _partners(size, 1)
        both = lanes.builder.pieces(np.diff(bounds[core.first]), bounds[core.first[:-1]])
        piece = np.where(core.folded, both, own_block[core.members])
        parts = [MessagePart(lanes.styles(np.where(core.folded, OUT, IN), OUT), piece)]
        lanes.send(core.members[member], core.members[partner], parts, step)
    lanes.settle(lanes.copies)
    step = _double(
        lanes, core, bounds[core.first], [2 << k for k in range(size.bit_length() - 2)], step + 1
    )
    low = np.zeros(odd, np.int64)
    high = np.full(odd, n)
    styles = lanes.styles(np.full(odd, OUT), OUT)
    parts = writing.range_parts(lanes, writing.around(low, high, core.extras), bounds, styles)
    lanes.send(core.members[:odd], core.extras, parts, step)
    return lanes.close()


def reduce_scatter(collective: Collective, *, writer: RowWriter | None = None) -> Schedule:
    """Partners hand each other the half that is the other's (recursive halving): log2(n) steps."""
    lanes = Lanes(collective, writer=writer).keep()
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
        op = np.where(core.folded[partner] | (not first), REDUCE, REDUCE_INPUT)
        source = np.where(core.folded | (not first), SCRATCH, IN)
        parts = _summands(lanes, core.members[partner], *blocks, source, op)
        lanes.send(core.members[member], core.members[partner], parts, step, ready=True)
        step += 1
    block = lanes.builder.pieces(np.full(odd, collective.count), core.extras * collective.count, 0)
    parts = [MessagePart(lanes.styles(np.full(odd, SCRATCH), OUT), block)]
    lanes.send(core.members[:odd], core.extras, parts, step)
    return lanes.close()


def _partners(size: int, distance: int) -> tuple[Ints, Ints, Ints]:
    """Members, their partners, and the first member of the partner's half in a halving step."""
    member = np.arange(size)
    partner = member ^ distance
    return member, partner, partner & -distance


def _double(
    lanes: Lanes, core: Core, bounds: NDArray[np.int64], distances: list[int], step: int
) -> int:
    """Partners at growing distances copy to each other all that they have, in OUT."""
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
    """Blocks low … high-1: the receiver's own is summed up in OUT, the rest in SCRATCH."""
    block = lanes.collective.count
    bounds = np.arange(lanes.ranks + 1) * block
    rest = writing.range_parts(
        lanes, writing.around(low, high, receiver), bounds, lanes.styles(source, SCRATCH, op)
    )
    receiver_offset = bounds[receiver]
    piece = lanes.builder.pieces(
        np.full(len(receiver_offset), block), receiver_offset, 0, receiver_offset
    )
    return [*rest, MessagePart(lanes.styles(source, OUT, op), piece)]


# Bruck's algorithms for any number of ranks (Bruck et al., 1997): ceil(log2 n) steps.
# All-gather: in step s everyone sends all that it has, or what is still missing, to the rank 2^s
# before it. All-to-all: a block that must go j ranks on moves 2^s ranks in each step s whose bit is
# set in j. Blocks are put where they belong without rotating them first or last, in several parts.


def bruck_all_gather(collective: Collective) -> Schedule:
    """The number of blocks that everyone has doubles every step."""
    lanes = Lanes(collective).keep()
    n = collective.ranks
    block = collective.count
    ranks = np.arange(n)
    bounds = np.arange(n + 1) * block
    for s in range(writing.ceil_log2(n)):
        if s == 0:
            own_block = lanes.builder.pieces(np.full(n, block), 0, bounds[:-1])
            parts = [MessagePart(lanes.styles(np.full(n, IN), OUT), own_block)]
        else:
            ranges = writing.wrapped(ranks, min(1 << s, n - (1 << s)), n)
            parts = writing.range_parts(lanes, ranges, bounds, lanes.styles(np.full(n, OUT), OUT))
        lanes.send(ranks, (ranks - (1 << s)) % n, parts, s)
        if s == 0:
            lanes.settle(lanes.copies)
    return lanes.close()


def bruck_alltoall(collective: Collective) -> Schedule:
    """Few messages, but each block is sent up to log2(n) times: for small blocks."""
    lanes = Lanes(collective).keep()
    n = collective.ranks
    ranks = np.arange(n)
    blocks = collective.blocks()
    for s in range(writing.ceil_log2(n)):
        moving = [j for j in range(1, n) if j >> s & 1]
        parts = [_moved(lanes, blocks, j, s) for j in moving]
        lanes.send(ranks, (ranks + (1 << s)) % n, parts, s)
    return lanes.close()


def _moved(lanes: Lanes, blocks: Blocks, j: int, s: int) -> MessagePart:
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
    return MessagePart(np.full(n, style, np.int32), lanes.builder.pieces(count, source, target))


# Binomial trees over whole buffers. Ranks are counted from the root on. In round s of a broadcast
# every v < 2^s hands the data to v + 2^s; a reduce runs backwards. A rank's next message waits
# until its last one has arrived, as with blocking sends, so that each of the ceil(log2 n) rounds
# takes α + S/B.


def broadcast(collective: Collective, *, writer: RowWriter | None = None) -> Schedule:
    """The ranks that have the data double every round."""
    lanes = Lanes(collective, writer=writer).keep()
    _spread(lanes, collective.root, IN, 0)
    return lanes.close()


def reduce(collective: Collective, *, writer: RowWriter | None = None) -> Schedule:
    """The ranks that have partial sums halve every round."""
    lanes = Lanes(collective, writer=writer).keep()
    _collect(lanes, collective.root, SCRATCH)
    return lanes.close()


def binomial_all_reduce(
    collective: Collective, *, root: int = 0, writer: RowWriter | None = None
) -> Schedule:
    """A reduce to one root, then a broadcast from there."""
    lanes = Lanes(collective, writer=writer).keep()
    root = writing.rank_of("root", root, collective.ranks)
    _spread(lanes, root, OUT, _collect(lanes, root, OUT))
    return lanes.close()


def _spread(lanes: Lanes, root: int, from_buffer: int, step: int) -> int:
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
    """Sum up into OUT at the root and into the buffer `elsewhere` on the others."""
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
