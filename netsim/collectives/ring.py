"""Ring algorithms, in which every chunk travels around the ranks, and algorithms for tori.

All-reduce is a reduce-scatter followed by an all-gather (Patarasuk and Yuan, 2009). Several rings
may run at once: the channels of one communicator, or the groups of a hierarchical algorithm.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from math import gcd, prod

import numpy as np
from numpy.typing import ArrayLike, NDArray

from netsim.base.values import dataclass
from netsim.collectives import writing
from netsim.collectives.collective import Collective, CollectiveError
from netsim.collectives.row_writer import MessagePart, RowWriter
from netsim.collectives.writing import Ints, Lanes, Rows, channel_count, edges, positive
from netsim.schedule import schedule
from netsim.schedule.schedule import ARRIVED, COPY, IN, OUT, REDUCE_INPUT, SCRATCH, Schedule


def all_reduce(
    collective: Collective, *, channels: int = 1, writer: RowWriter | None = None
) -> Schedule:
    """The schedule of a ring all-reduce: every chunk travels around once while it is summed and
    once as result, in 2(n-1) steps.
    """
    n = collective.ranks
    k = channel_count(channels)
    lanes = Lanes(collective, k, writer).copy_local_data()
    bounds = edges(collective.count, k * n)
    first = lanes.builder.pieces(np.diff(bounds), bounds[:-1])[0]
    phases = [(IN, OUT, REDUCE_INPUT), *[(OUT, OUT, REDUCE_INPUT)] * (n - 2)]
    phases += [(OUT, OUT, COPY)] * (n - 1)
    styles = channel_styles(lanes, phases[: 2 * (n - 1)], k)
    pass_around(lanes, np.arange(n), styles, np.full(len(styles), first), 0, channels=k)
    return lanes.close()


def all_gather(
    collective: Collective, *, channels: int = 1, writer: RowWriter | None = None
) -> Schedule:
    """The schedule of a ring all-gather: every block travels around once, in n-1 steps."""
    n = collective.ranks
    k = channel_count(channels)
    lanes = Lanes(collective, k, writer).copy_local_data()
    part, offset, count = _block_offsets(collective, k)
    first = lanes.builder.pieces(count, part, offset)[0]
    later = lanes.builder.pieces(count, offset)[0]
    phases = [(IN, OUT, COPY), *[(OUT, OUT, COPY)] * (n - 2)]
    styles = channel_styles(lanes, phases[: n - 1], k)
    pass_around(lanes, np.arange(n), styles, np.array([first] + [later] * (n - 2)), 0, channels=k)
    return lanes.close()


def reduce_scatter(
    collective: Collective, *, channels: int = 1, writer: RowWriter | None = None
) -> Schedule:
    """The schedule of a ring reduce-scatter: block c starts at the rank after its owner and ends at
    its owner, after n-1 steps.
    """
    n = collective.ranks
    k = channel_count(channels)
    lanes = Lanes(collective, k, writer).copy_local_data()
    part, offset, count = _block_offsets(collective, k)
    inner = lanes.builder.pieces(count, offset)[0]
    final = lanes.builder.pieces(count, offset, part, offset)[0]
    buffers = [IN] + [SCRATCH] * (n - 2) + [OUT]
    phases = [(src, dst, REDUCE_INPUT) for src, dst in pairwise(buffers)]
    styles = channel_styles(lanes, phases[: n - 1], k)
    first = np.array([inner] * (n - 2) + [final])
    pass_around(lanes, np.arange(n), styles, first, -1, channels=k)
    return lanes.close()


def _block_offsets(c: Collective, k: int) -> tuple[NDArray[np.int64], ...]:
    """For every channel's part of every block, its offset in the block, its offset in all blocks,
    and its size, in elements: three arrays, ordered by channel, then by block.
    """
    bounds = edges(c.count, k)
    part, block = np.meshgrid(bounds[:-1], np.arange(c.ranks) * c.count, indexing="ij")
    count = np.repeat(np.diff(bounds), c.ranks)
    return part.ravel(), (part + block).ravel(), count


def channel_styles(lanes: Lanes, phases: list[tuple[int, int, int]], channels: int) -> Rows:
    """The numbers of the styles of each step (row) on each channel (column).

    `phases` has (source buffer, destination buffer, operation) of each step.
    """
    numbers = range(channels)
    styles = {
        one: [lanes.style(*one, channel) for channel in numbers] for one in dict.fromkeys(phases)
    }
    return np.array([styles[phase] for phase in phases], np.int32).reshape(len(phases), channels)


def pass_around(
    lanes: Lanes,
    members: Ints,
    styles: Rows,
    first_piece: Ints,
    start: int,
    step: int = 0,
    channels: int = 1,
    ready: bool = False,
) -> int:
    """Append the steps of several rings of length L at once; return the number of the next step.

    At step t the p-th member of ring i sends chunk c = (p + start - t) mod L, which is piece
    `first_piece[t]` + i·L + c, in style `styles[t, i]` (or `styles[t, i·L + p]` if styles has a
    column for each member). For example, in the first phase of an all-reduce on 4 ranks start is 0:
    at step 0 rank p sends chunk p, at step 1 chunk p - 1, which it has just received.

    Args:
        members: the ranks of each ring, one line for each; or the ranks of one ring.
        styles: the styles by step.
        first_piece: by step, the piece of chunk 0 of the first ring.
        start: the offset in the formula above.
        step: number of the first step.
        channels: if more than 1, the single ring of `members` runs on each of that many channels.
        ready: whether the first step waits until the receiver has received all earlier messages.
    """
    ring = np.tile(np.asarray(members, np.int32), (channels, 1))
    steps = len(styles)
    (rings, length) = ring.shape
    if steps == 0 or length == 1:
        return step
    channel = np.repeat(np.arange(rings) * (channels > 1), length)
    lane = channel * lanes.ranks + ring.ravel()
    after = np.roll(lane.reshape(ring.shape), -1, 1).ravel()
    first = np.asarray(first_piece, np.int32)
    lanes.writer.rings(lane, after, styles, first, length)
    styles, first = lanes.writer.first_steps(styles, first, ring.size)
    lanes_here = np.arange(rings * length)[lanes.writer.written(lane)]
    if not len(lanes_here):
        return step + steps
    step_styles = styles[
        :, lanes_here if styles.shape[1] == rings * length else lanes_here // length
    ]
    pieces = _ring_pieces(first, lanes_here, length, start)
    places = _WrittenPlaces(lanes, lane, after, lanes_here)
    part = MessagePart(step_styles[0], pieces[0])
    head = lanes.send(
        places.src, places.dst, [part], step, channel=channel[lanes_here], ready=ready
    )
    tail = _ring_rows(lanes, places, step_styles[1:], pieces[1:], head, step + 1)
    if steps > 1:
        lanes.writer.rows_of_steps(lane.reshape(ring.shape), tail, steps - 1, len(styles) - 1)
        lanes.set_last_rows(places.lanes, tail, step + steps - 1)
        lanes.wait(places.next, tail)
    return step + steps


class _WrittenPlaces:
    """The positions on rings whose rows are written: their lanes, the lanes after them, and the
    positions before them.
    """

    def __init__(self, lanes: Lanes, lane: Ints, after: Ints, lanes_here: Ints) -> None:
        writer = lanes.writer
        n = lanes.ranks
        self.lanes: Ints = lane[lanes_here]
        self.next = writer.representatives(after[lanes_here])
        before = np.full(lanes.channels * n, -1)
        before[after] = lane
        earlier = writer.representatives(before[self.lanes])
        number = np.full(lanes.channels * n, -1, np.int32)
        number[self.lanes] = np.arange(len(lanes_here), dtype=np.int32)
        self.before = number[earlier]
        self.src = (lane[lanes_here] % n).astype(np.int32)
        self.dst = (after[lanes_here] % n).astype(np.int32)


def _ring_pieces(first: Rows, lanes_here: Ints, length: int, start: int) -> Rows:
    """The number of the piece that each position sends in each step, as an array [step, position].

    - `first`: by step, the piece of chunk 0 of the first ring.
    - `lanes_here`: the positions on rings, counted through all rings.
    - `length`: the lanes of each ring.
    - `start`: the offset of `pass_around`.
    """
    place = lanes_here.astype(np.int32)
    ring = place // np.int32(length) * np.int32(length)
    chunk: Rows = (place - ring + start) - np.arange(len(first), dtype=np.int32)[:, None]
    chunk %= length
    chunk += first[:, None]
    chunk += ring
    return chunk


def _ring_rows(
    lanes: Lanes, places: _WrittenPlaces, styles: Rows, pieces: Rows, head: Rows, step: int
) -> Rows:
    """Write all steps but the first; return the rows of the last step, by position.

    A row waits until the row that its lane received in the step before has arrived, and until the
    row that its lane sent in the step before has ended. `head` are the rows of the first step.
    """
    steps, width = styles.shape
    place = np.arange(width, dtype=np.int32)
    base = np.int32(head[0]) + np.arange(steps, dtype=np.int32) * np.int32(width)
    rows = lanes.builder.rows(
        np.asarray(lanes.writer.styles(lanes.builder, styles, places.lanes)).ravel(),
        np.tile(places.src, steps),
        np.tile(places.dst, steps),
        pieces.ravel(),
        step=np.repeat(np.arange(step, step + steps, dtype=np.int32), width),
        after=[
            (np.add.outer(base, places.before).ravel(), ARRIVED),
            (np.add.outer(base, place).ravel(), schedule.IN_ORDER),
        ],
    )
    return rows[len(rows) - width :]


# **** Tori **** bucket: rings in one dimension after the other. multi-ring: rings through all
# ranks. swing: partners on alternating sides. Ranks are numbered as on the grid, the last dimension
# fastest. Every algorithm is a plan of a reduce-scatter: which rank sends which range of blocks to
# which rank, step by step. An all-gather executes the plan backwards, an all-reduce first forwards
# and then backwards. The data is divided among ports, which begin in different dimensions or travel
# in opposite directions, so that all links of a torus are used at once.

MOST_PORTS = 64


@dataclass(frozen=True, slots=True)
class RingStep:
    """A step in which every rank sends some blocks to another rank.

    - `to`: by rank, the rank that it sends to.
    - `low`: by rank, the place of its first block.
    - `size`: number of blocks, at consecutive places.
    - `summed`: whether the sender already holds partial sums of these blocks.
    - `adds`: whether the receiver already holds partial sums of these blocks.
    """

    to: Ints
    low: Ints
    size: int
    summed: bool
    adds: bool


@dataclass(frozen=True, slots=True)
class RingPlan:
    """The steps of a reduce-scatter. Places number the blocks such that each message has
    consecutive ones; at the end rank `owner[p]` has the sum of the block at place p.
    """

    owner: Ints
    steps: Sequence[RingStep]


Planner = Callable[[int, Sequence[int] | None, int | None], list[RingPlan]]


def extents_of(ranks: int, dims: Sequence[int] | None) -> tuple[int, ...]:
    """The extents of a torus of all ranks, by dimension: `dims`, or by default a ring."""
    if dims is None:
        return (ranks,)
    if not isinstance(dims, list | tuple) or not dims:
        raise CollectiveError("dims", f"expected extents such as [4, 4], got {dims!r}")
    extents = tuple(positive("dims", extent) for extent in dims)
    if prod(extents) != ranks:
        grid = " x ".join(map(str, extents))
        raise CollectiveError("dims", f"a torus of {grid} has {prod(extents)} ranks, not {ranks}")
    return extents


def _port_orders(extents: Sequence[int], ports: int | None) -> Iterator[tuple[list[int], int]]:
    """Yield for each port the order in which it uses the dimensions, and its direction (1
    or -1).
    """
    used = [axis for axis, extent in enumerate(extents) if extent > 1]
    count = 2 * max(1, len(used)) if ports is None else positive("ports", ports)
    for port in range(writing.at_most("ports", count, MOST_PORTS)):
        first = port // 2 % max(1, len(used))
        yield used[first:] + used[:first], -1 if port % 2 else 1


def bucket(ranks: int, dims: Sequence[int] | None, ports: int | None) -> list[RingPlan]:
    """The plans of rings along one dimension after the other, by port.

    Each dimension divides the blocks that the dimension before has left to a rank.
    """
    extents = extents_of(ranks, dims)
    at = np.array(np.unravel_index(np.arange(ranks), extents)).reshape(len(extents), ranks)
    return [
        _rings(at, extents, order, direction) for order, direction in _port_orders(extents, ports)
    ]


def _rings(at: Ints, extents: Sequence[int], order: list[int], direction: int) -> RingPlan:
    """The plan of rings along the dimensions in an order.

    Args:
        at: coordinates of the ranks, by dimension and rank.
        extents: number of ranks in each dimension.
        order: the dimensions in the order of their use.
        direction: 1 or -1: the direction of all rings.
    """
    ranks = at.shape[1]
    steps = []
    number = np.zeros(extents, np.int64)
    low = np.zeros(ranks, np.int64)
    number[tuple(at)] = np.arange(ranks)
    size = ranks
    for stage, axis in enumerate(order):
        k = extents[axis]
        place = at[axis]
        size //= k
        there = at.copy()
        there[axis] = (place + direction) % k
        to = number[tuple(there)]
        for t in range(k - 1):
            chunk = (place - direction * (1 + t)) % k
            steps.append(RingStep(to, low + chunk * size, size, stage > 0 or t > 0, stage > 0))
        low = low + place * size
    return RingPlan(np.argsort(low), steps)


def multi_ring(ranks: int, dims: Sequence[int] | None, ports: int | None) -> list[RingPlan]:
    """The plans of rings through all ranks in both directions, by port; no two rings share a link
    in one direction (Bae and Bose).
    """
    extents = tuple(extent for extent in extents_of(ranks, dims) if extent > 1) or (1,)
    cycles = _cycles(extents)
    count = writing.at_most("ports", positive("ports", ports or 2 * len(cycles)), MOST_PORTS)
    plans = []
    for port in range(count):
        place = np.empty((1, ranks), np.int64)
        place[0, cycles[port // 2 % len(cycles)]] = np.arange(ranks)
        plans.append(_rings(place, (ranks,), [0], -1 if port % 2 else 1))
    return plans


def _cycles(extents: tuple[int, ...]) -> list[Ints]:
    """Cycles through all ranks of a torus of one or two dimensions that share no link: the rank at
    each place of each cycle.
    """
    ranks = prod(extents)
    if len(extents) == 1:
        return [np.arange(ranks)]
    long = max(extents)
    short = min(extents)
    if len(extents) > 2 or long % short or gcd(long, short - 1) > 1:
        grid = " x ".join(map(str, extents))
        raise CollectiveError(
            "dims",
            "expected one dimension, or two of which one is a multiple of the other without a "
            f"common divisor with the other less one, got {grid}; bucket takes any torus",
        )
    turn, place = np.divmod(np.arange(ranks), short)
    pairs = [(turn, (place - turn) % short), ((turn * (short - 1) + place) % long, turn % short)]
    swapped = extents[0] < extents[1]
    return [b * long + a if swapped else a * short + b for a, b in pairs]


def swing(ranks: int, dims: Sequence[int] | None, ports: int | None) -> list[RingPlan]:
    """The plans with partners at distances 1, 1, 3, 5, 11, … on alternating sides, by port (De
    Sensi et al. 2024).
    """
    extents = extents_of(ranks, dims)
    if any(extent & (extent - 1) for extent in extents):
        parameter = "dims" if dims else "ranks"
        grid = " x ".join(map(str, extents))
        raise CollectiveError(parameter, f"swing takes powers of two, got {grid}; bucket takes any")
    at = np.array(np.unravel_index(np.arange(ranks), extents)).reshape(len(extents), ranks)
    return [
        _halving_plan(
            [_partner(at, extents, axis, s, direction) for axis, s in _swings(extents, order)]
        )
        for order, direction in _port_orders(extents, ports)
    ]


def _swings(extents: Sequence[int], order: list[int]) -> Iterator[tuple[int, int]]:
    """Yield (dimension, number of earlier steps in this dimension) for each step of a swing
    reduce-scatter.

    Steps go through the dimensions in turn, in the given `order`. A dimension that is halved down
    to one rank is left out.
    """
    for s in range(max(extents).bit_length()):
        for axis in order:
            if extents[axis] >> (s + 1):
                yield axis, s


def _partner(at: Ints, extents: Sequence[int], axis: int, s: int, direction: int) -> Ints:
    """The partner of each rank in step `s` of the dimension `axis`.

    - `at`: coordinates of the ranks, by dimension and rank.
    - `direction`: 1 or -1, the direction in which ranks with an even coordinate have their partner
      in step 0.
    """
    distance = (1 - (-2) ** (s + 1)) // 3
    there = at.copy()
    there[axis] = (at[axis] + direction * np.where(at[axis] % 2, -distance, distance)) % extents[
        axis
    ]
    partner: Ints = np.ravel_multi_index(tuple(there), tuple(extents))
    return partner


def _halving_plan(partners: list[Ints]) -> RingPlan:
    """The plan of a reduce-scatter from the partner of each rank by step.

    In each step a rank keeps the half of its blocks that belong to ranks which it reaches in later
    steps, and sends the other half, which its partner reaches.
    """
    ranks = 1 << len(partners)
    reach = [np.arange(ranks)]  # by step, the least rank that the later steps of a rank reach
    for partner in reversed(partners):
        reach.insert(0, np.minimum(reach[0], reach[0][partner]))
    low = np.zeros(ranks, np.int64)
    steps = []
    for s, partner in enumerate(partners):
        size = ranks >> (s + 1)
        low = low + size * (reach[s + 1] != reach[s])
        steps.append(RingStep(partner, low[partner], size, s > 0, s > 0))
    return RingPlan(np.argsort(low), steps)


@dataclass(frozen=True)
class _Port:
    """Makes the messages of one port of an algorithm for tori.

    The `port`-th of `ports` equal parts of the data is sent as `plan` says. Ranks keep sums in OUT;
    in a reduce-scatter, sums of other ranks' blocks are in SCRATCH, at the offset that the block
    has in the input. In an all-reduce, blocks are numbered by place, so that a message is one
    piece.
    """

    lanes: Lanes
    plan: RingPlan
    port: int
    ports: int

    def message(self, hop: RingStep, op: int) -> Iterator[MessagePart]:
        """Yield the one part that the messages of a step of an all-reduce have.

        - `hop`: the step, which says who sends which blocks to whom.
        - `op`: COPY or REDUCE_INPUT and the like, as in a Style.
        """
        n = self.lanes.ranks
        bounds = edges(self.lanes.collective.count, n * self.ports)[self.port * n :]
        low, high = bounds[hop.low], bounds[hop.low + hop.size]
        source = OUT if op == COPY or hop.summed else IN
        yield self._part(source, OUT, op, self.lanes.builder.pieces(high - low, low))

    def blocks(self, hop: RingStep, op: int) -> Iterator[MessagePart]:
        """Yield the parts of the messages of a step of a reduce-scatter or all-gather: one for each
        block, as the blocks are not adjacent in memory.

        `hop` and `op` are those of `message`.
        """
        size = self.lanes.collective.count
        n = self.lanes.ranks
        first, end = edges(size, self.ports)[self.port : self.port + 2]
        for place in range(hop.size):
            block = self.plan.owner[hop.low + place]
            is_receivers = block == hop.to
            offset = block * size + first
            alone = np.where(is_receivers, first, offset)
            count = np.full(n, end - first)
            if op == COPY:
                piece = self.lanes.builder.pieces(count, alone, offset)
                yield self._part(np.where(is_receivers, IN, OUT), OUT, op, piece)
            else:
                piece = self.lanes.builder.pieces(count, offset, alone, offset)
                source = SCRATCH if hop.summed else IN
                yield self._part(source, np.where(is_receivers, OUT, SCRATCH), op, piece)

    def _part(self, source: ArrayLike, target: ArrayLike, op: int, piece: Rows) -> MessagePart:
        ends = np.broadcast(source, target)
        styles = [self.lanes.style(int(a), int(b), op, self.port) for a, b in ends]
        return MessagePart(np.resize(np.array(styles, np.int32), len(piece)), piece)


PLANNERS: dict[str, Planner] = {"bucket": bucket, "multi-ring": multi_ring, "swing": swing}


def on_tori(name: str) -> dict[str, Callable[..., Schedule]]:
    """The algorithms for tori of a collective (all_reduce, all_gather or reduce_scatter),
    by name.
    """
    return {
        algorithm: _algorithm_of_planner(planner, name) for algorithm, planner in PLANNERS.items()
    }


def _algorithm_of_planner(planner: Planner, name: str) -> Callable[..., Schedule]:
    """The algorithm that builds the collective `name` from the plans of `planner`."""

    def all_ports(
        collective: Collective, *, dims: Sequence[int] | None = None, ports: int | None = None
    ) -> Schedule:
        """The schedule of a collective in which every port carries its part of the data, by its own
        plan.
        """
        ranks, plans = np.arange(collective.ranks), planner(collective.ranks, dims, ports)
        lanes = Lanes(collective, len(plans)).copy_local_data()
        for port, plan in enumerate(plans):
            one_port = _Port(lanes, plan, port, len(plans))
            parts = one_port.message if name == "all_reduce" else one_port.blocks
            there = [] if name == "all_gather" else plan.steps
            back = [] if name == "reduce_scatter" else plan.steps[::-1]
            for step, hop in enumerate(there):
                sent = list(parts(hop, schedule.REDUCE if hop.adds else REDUCE_INPUT))
                lanes.send(ranks, hop.to, sent, step, channel=port, ready=hop.adds)
            for step, hop in enumerate(back, len(there)):
                lanes.send(hop.to, ranks, list(parts(hop, COPY)), step, channel=port)
        return lanes.close()

    return all_ports
