"""NVLS in one node: the switch adds up what heads ask for and hands out what they store.

NCCL: NCCL_ALGO_NVLS and NCCL_ALGO_NVLS_TREE in src/device/all_reduce.h; src/transport/nvls.cc.

Every rank copies its input into a buffer that the switch can read, and results out of one, unless
its own buffers are registered. A head reads sums and stores them in one pass: here two rows for
each piece of its chunk, so that it reads one piece while it stores the one before."""

from dataclasses import field, replace
from functools import cache

import numpy as np
from numpy.typing import NDArray

from netsim.base.constants import value
from netsim.base.values import dataclass
from netsim.collectives.collective import Collective
from netsim.nccl.connect import NodePlace, double_binary_tree
from netsim.nccl.schedules.channels import written_channels
from netsim.nccl.schedules.plan import Plan, Work
from netsim.nccl.schedules.primitives import Members, Pass, PlannedChannel, RowKind, members_of
from netsim.nccl.schedules.writing import Lines, Output, Segments, Turn, chunk_table, remembered
from netsim.nccl.split import ALIGNMENT
from netsim.schedule import schedule
from netsim.schedule.extent import ALL, Extent
from netsim.schedule.schedule import ARRIVED, COPY, IN, OUT, SCRATCH, SWITCH_REDUCE, Lag, Schedule

LAST_ALIGNMENT = 16384  # bytes to which the chunk of the last loop is rounded up
PIECES = int(value("nvls.pieces"))  # of a head's chunk


def nvls(collective: Collective, plan: Plan, extent: Extent = ALL) -> Schedule:
    """AllReduce, AllGather or ReduceScatter through the switch of one node."""
    output = Output(collective, extent=extent, keep=False)
    group = output.builder.group(range(collective.ranks))
    is_all_reduce = collective.name == "all_reduce"
    block, least = (0, LAST_ALIGNMENT) if is_all_reduce else (collective.count, 0)
    heads = len(plan.heads[0])
    pieces = PIECES if is_all_reduce else 1
    for written in written_channels(plan, switch_keys(plan), extent):
        cut = in_pieces(loop_segments(collective, written.work, heads, plan.slots), pieces)
        members = members_of(plan, written, plan.nodes, extent, pieces)

        def turn(members: Members = members) -> Turn:
            lines = Lines(members.channel, heads * pieces, plan.slots, by_sub=members.by_sub)
            switch = _Alone(lines, plan, plan.nodes, [group], members, block, least)
            return Turn(lines.woven, switch.all(reduces=collective.reducing))

        key = (*members.key, plan.slots)
        output.add(remembered(collective, plan, key, turn), cut)
    return output.close()


def switch_keys(plan: Plan) -> dict[int, object]:
    """Return a key for each channel, here 0 for all of them.

    Channels with equal keys have the same rows, so that one can represent the others.
    """
    return dict.fromkeys((work.channel for work in plan.work), 0)


def loop_segments(
    collective: Collective, work: Work, heads: int, slots: int, alignment: int = LAST_ALIGNMENT
) -> Segments:
    """Return the segments of every loop of a channel, in elements; row `l` is loop `l`.

    Columns 0 to `heads - 1` are the chunks of the heads. The column after them is the data of the
    whole loop, and the last has no data.

    The chunks of an AllReduce follow one another in the buffer. In AllGather and ReduceScatter the
    chunk of each head has the same offset in the block of its own rank.
    """
    element_bytes = collective.element_bytes
    if collective.name == "all_reduce":
        offset, count = chunk_table(work, element_bytes, heads, alignment)
    else:
        offset, count = (np.repeat(x, heads, 1) for x in chunk_table(work, element_bytes))
    nothing = np.zeros((len(count), 1), np.int64)
    return Segments(
        np.hstack([offset, offset[:, :1], nothing]),
        np.hstack([count, count.sum(1, keepdims=True), nothing]),
        slots=slots,
    )


def in_pieces(cut: Segments, pieces: int) -> Segments:
    """Return the segments with the chunk of every head divided into `pieces` consecutive parts."""
    if pieces == 1:
        return cut
    offset, count = (x[:, :-2, None] for x in (cut.offset, cut.count))
    size = -(-count // pieces)
    begin = np.minimum(np.arange(pieces) * size, count)

    def joined(parts: NDArray[np.int64], before: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.hstack([parts.reshape(len(before), -1), before[:, -2:]])

    return replace(
        cut,
        offset=joined(offset + begin, cut.offset),
        count=joined(np.minimum(size, count - begin), cut.count),
    )


def switch_kind(
    channel: PlannedChannel, kind: int, src_buffer: int, dst_buffer: int, *, second: bool = False
) -> RowKind:
    """Return the kind of row by which a head reads a sum from its switch or stores by multicast.

    `kind` is `SWITCH_REDUCE` or `MULTICAST`. With `second` the row is the storing half of a pass
    that also reads or sends: it uses no SM and has no latency, as the first half has both.
    """
    mechanism = channel.plan.mechanism
    reached = mechanism.nvls_tree if channel.plan.algorithm == "NVLSTree" else 1.0
    end = "dst" if kind == SWITCH_REDUCE else "src"
    uses = [schedule.Use("nvls", end, 1.0)]
    if not second:
        uses.append(schedule.Use("sm", end, 1.0, index=channel.number))
    style = schedule.Style(
        kind,
        src_buffer=src_buffer,
        dst_buffer=dst_buffer,
        **channel.tags,
        wire=1 / (mechanism.nvls_efficiency * reached),
        uses=tuple(uses),
        latency=0.0 if second else mechanism.step_cost.simple / channel.pieces,
        cap=channel.rate,
    )
    return RowKind(style)


# What the switches of nodes do for NVLS: add up what heads ask for, hand out results.
# Which way sums go from node to node in between is the business of each algorithm.


@dataclass
class SwitchedNodes:
    """Writes the rows of one loop on one channel: what ranks and switches of all nodes do.

    - a sub of `lines`: the part of one head of every node, or a piece of it.
    - `block`: the elements of the block that a head's part belongs to (0: all of the data).
    - `least`: the least bytes of a part that ranks copy at once.
    - `sums`, `stores`: rows by node and sub."""

    lines: Lines
    plan: Plan
    nodes: list[tuple[int, ...]]
    groups: list[int]
    members: Members
    block: int = 0
    least: int = 0
    sums: dict[tuple[int, int], int] = field(default_factory=dict)
    stores: dict[tuple[int, int], int] = field(default_factory=dict)

    def head(self, node: int, sub: int) -> int:
        """The rank of a head."""
        return self.plan.heads[node][sub // self.lines.channel.pieces]

    def base(self, node: int, sub: int) -> int:
        """Where a head's block begins among all blocks."""
        return self.head(node, sub) * self.block

    def copies(self, lane: str, node: int) -> list[int]:
        """Write the copies of all ranks of a node to the switch's buffer (lane `give`) or from it
        (lane `take`); return their rows."""
        everyone = self.nodes[node]
        parts = self._parts(node)
        rows = list[int]()
        kind = cache(lambda times: self._copy(lane, self.members.standing(times)))
        for place, times in self.members.ranks.items():
            if place >= len(everyone):
                continue
            rank = everyone[place]
            made = [
                self.lines.woven.row(kind(times * heads), rank, rank, segment, base=base)
                for segment, base, heads in parts
            ]
            self.lines.done(lane, rank, made)
            rows += made
        return rows

    def _parts(self, node: int) -> list[tuple[int, int, int]]:
        """Return what each rank copies to or from its switch's buffer, as (segment, base, heads).

        `base` is the first element of the block that holds the segment. `heads` is the number of
        equal heads whose parts the copy represents.
        """
        if self.plan.registered:
            return [(-1, 0, 1)]
        if not self.block:
            return [(self.lines.subs, 0, 1)]
        return [(h, self.base(node, h), times) for h, times in self.members.heads.items()]

    def _copy(self, lane: str, channel: PlannedChannel) -> RowKind:
        if self.plan.registered:
            return channel.wait()
        buffers = (IN, SCRATCH) if lane == "give" else (SCRATCH, OUT)
        return channel.staging(*buffers, least_part=self.least)

    def sum(self, node: int, sub: int, inputs: list[int]) -> int:
        """A head reads the sum of its part from its switch, once all ranks have given theirs."""
        sync = Lag(self.plan.mechanism.nvls_sync)
        head = self.head(node, sub)
        buffer = IN if self.plan.registered else SCRATCH
        out = OUT if self.block else SCRATCH
        kind = switch_kind(self.lines.by_sub[sub], SWITCH_REDUCE, buffer, out)
        group = self.groups[node]
        base = self.base(node, sub)
        row = self.lines.woven.row(kind, group, head, sub, base=base)
        self.lines.done("sum", head, [row])
        self.sums[node, sub] = row
        self.lines.read([row], inputs, sync)
        return row

    def store(self, node: int, sub: int, *, second: bool = False) -> int:
        """Write the multicast by which a head stores its part of the result on all ranks of a node.

        `second`: the same pass also reads the part from the switch, or sends it on to other nodes.
        """
        out = OUT if self.plan.registered else SCRATCH
        here = IN if self.block else SCRATCH
        kind = switch_kind(self.lines.by_sub[sub], schedule.MULTICAST, here, out, second=second)
        head = self.head(node, sub)
        group = self.groups[node]
        base = self.base(node, sub)
        row = self.lines.woven.row(kind, head, group, sub, base=base)
        self.stores[node, sub] = row
        return row

    def hand_out(self, node: int) -> None:
        """Every rank takes the results out once all heads of its node have stored them."""
        stored = [self.stores[node, sub] for sub in self.lines.by_sub]
        sync = Lag(self.plan.mechanism.nvls_sync)
        self.lines.read(self.copies("take", node), stored, sync)


class _Alone(SwitchedNodes):
    """Writes the rows of one NVLS loop on one channel inside one node."""

    def all(self, *, reduces: bool) -> tuple[list[int], list[int]]:
        """Write all rows of a loop; return the ranks, and the last row of each.

        AllReduce and ReduceScatter (`reduces`): ranks give their input, and each head reads the sum
        of its part from the switch. AllReduce and AllGather: heads store their part by multicast,
        and ranks take it out.
        """
        inputs = self.copies("give", 0) if reduces else []
        for sub in self.lines.by_sub if reduces else ():
            self.sum(0, sub, inputs)
        if not (self.block and reduces):
            for sub in self.lines.by_sub:
                row = self.store(0, sub, second=reduces)
                self.lines.done("store", self.head(0, sub), [row])
                self.lines.read([row], [self.sums[0, sub]] if reduces else [], ARRIVED)
            self.hand_out(0)
        return self.lines.close()


# NVLSTree: switches reduce within nodes, trees of heads between them, switches hand out.
# Heads with the same number form a tree over the nodes, even channels the first of the double
# binary tree, odd ones its twin. A head adds what its child nodes sent to the sum of its own
# switch.

SHARE = value("share.of_a_way")  # of a block's threads, for each direction


def nvls_tree(collective: Collective, plan: Plan, extent: Extent = ALL) -> Schedule:
    """AllReduce over all channels."""
    output = Output(collective, extent=extent, keep=False)
    nodes = plan.nodes
    groups = [output.builder.group(ranks) for ranks in nodes]
    twins = double_binary_tree(len(nodes))
    heads = len(plan.heads[0])
    for written in written_channels(plan, crown_keys(plan), extent):
        members = members_of(plan, written, nodes, extent)
        cut = loop_segments(collective, written.work, heads, plan.slots, ALIGNMENT)

        def turn(members: Members = members) -> Turn:
            lines = Lines(members.channel, heads, plan.slots, by_sub=members.by_sub)
            places = twins[members.channel.number % 2]
            crown = _Crown(lines, plan, nodes, groups, members, places=places)
            return Turn(lines.woven, crown.all())

        key = (*members.key, heads, plan.slots)
        output.add(remembered(collective, plan, key, turn), cut)
    return output.close()


def crown_keys(plan: Plan) -> dict[int, object]:
    """Return a key for each channel: 0 or 1, the tree of the double tree that it uses.

    Channels with equal keys have the same rows, so that one can represent the others.
    """
    return {w.channel: w.channel % 2 for w in plan.work}


@dataclass
class _Crown(SwitchedNodes):
    """Writes the rows of one NVLSTree loop on one channel, on all nodes.

    The sums of the switches go up a tree of nodes, and the results come down. `places` has the
    parent and the children of every node in that tree.
    """

    places: tuple[NodePlace, ...] = ()

    def all(self) -> tuple[list[int], list[int]]:
        """Write all rows of a loop; return the ranks, and the last row of each."""
        order = [next(k for k, place in enumerate(self.places) if place.up < 0)]
        for node in order:
            order += self._children(node)
        gives = [self.copies("give", node) for node in order]
        for node, inputs in zip(order, gives, strict=True):
            for h in self.members.heads:
                self.sum(node, h, inputs)
        for h in self.members.heads:
            for node in reversed(order):
                self._up(node, h)
            for node in order:
                self._down(node, h)
        for node in order:
            self.hand_out(node)
        return self.lines.close()

    def _children(self, node: int) -> list[int]:
        return [child for child in self.places[node].down if child >= 0]

    def _up(self, node: int, h: int) -> None:
        head = self.head(node, h)
        place = self.places[node]
        lines = self.lines
        if place.up < 0:
            return
        made = Pass(SCRATCH, SCRATCH, COPY, 1 + len(self._children(node)), threads=SHARE)
        row = lines.send((head, self.head(place.up, h)), h, made)
        self._take_sums(node, h, [row])
        lines.done("up", head, [row])

    def _take_sums(self, node: int, h: int, rows: list[int]) -> None:
        lines = self.lines
        head = self.head(node, h)
        for child in self._children(node):
            lines.take(rows, (self.head(child, h), head), h)
        for row in rows:
            lines.read([row], [self.sums[node, h]], ARRIVED)

    def _down(self, node: int, h: int) -> None:
        head = self.head(node, h)
        place = self.places[node]
        lines = self.lines
        root = place.up < 0
        children = self._children(node)
        made = Pass(SCRATCH, SCRATCH, COPY, 1, 0, max(1, len(children)), 1.0 if root else SHARE)
        rows = [lines.send((head, self.head(child, h)), h, made) for child in children]
        rows.append(self.store(node, h, second=bool(children)))
        if root:
            self._take_sums(node, h, rows)
        else:
            lines.take(rows, (self.head(place.up, h), head), h)
        lines.done("down", head, rows)
