"""NVLS in one node, and NVLSTree between nodes.

NCCL: NCCL_ALGO_NVLS and NCCL_ALGO_NVLS_TREE in src/device/all_reduce.h; src/transport/nvls.cc.

NVSwitch sums the data of all GPUs of a node when a head reads it, and multicasts to all of them
what a head stores. Every rank copies its input into a buffer that the switch can access, and its
result out of such a buffer, unless its own buffers are registered. NCCL's heads read a sum and
store it in one pass; here a head has two rows for each piece of its chunk, so that it reads one
piece while it stores the one before.
"""

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
from netsim.nccl.schedules.writing import (
    Output,
    PassWriter,
    Segments,
    WrittenLoop,
    cached_loop,
    chunk_table,
)
from netsim.nccl.split import ALIGNMENT
from netsim.schedule import schedule
from netsim.schedule.extent import ALL, Extent
from netsim.schedule.schedule import ARRIVED, COPY, IN, OUT, SCRATCH, SWITCH_REDUCE, Lag, Schedule

LAST_ALIGNMENT = 16384  # bytes to which the chunk of the last loop is rounded up
PIECES = int(value("nvls.pieces"))  # of a head's chunk


def nvls(collective: Collective, plan: Plan, extent: Extent = ALL) -> Schedule:
    """Return an AllReduce, AllGather or ReduceScatter through the switch of one node."""
    output = Output(collective, extent=extent, keep=False)
    group = output.builder.group(range(collective.ranks))
    is_all_reduce = collective.name == "all_reduce"
    block, least = (0, LAST_ALIGNMENT) if is_all_reduce else (collective.count, 0)
    heads = len(plan.heads[0])
    pieces = PIECES if is_all_reduce else 1
    for written in written_channels(plan, switch_keys(plan), extent):
        cut = in_pieces(loop_segments(collective, written.work, heads, plan.slots), pieces)
        members = members_of(plan, written, plan.nodes, extent, pieces)

        def write_loop(members: Members = members) -> WrittenLoop:
            """Write the rows of one loop, for the cache of loops."""
            writer = PassWriter(members.channel, heads * pieces, plan.slots, by_sub=members.by_sub)
            switch = _SingleNode(writer, plan, plan.nodes, [group], members, block, least)
            return WrittenLoop(writer.body, switch.all(reduces=collective.reducing))

        key = (*members.key, plan.slots)
        output.add(cached_loop(collective, plan, key, write_loop), cut)
    return output.close()


def switch_keys(plan: Plan) -> dict[int, object]:
    """Return a key for each channel, here 0 for all of them.

    Channels with equal keys and equal amounts of data have the same rows, so that one represents
    all.
    """
    return dict.fromkeys((work.channel for work in plan.work), 0)


def loop_segments(
    collective: Collective, work: Work, heads: int, slots: int, alignment: int = LAST_ALIGNMENT
) -> Segments:
    """Return the segments of every loop of a channel, in elements; row `l` is loop `l`.

    Columns 0 to `heads - 1` are the chunks of the heads. The column after them is the data of the
    whole loop, and the last column is an empty segment.

    The chunks of an AllReduce follow one another in the buffer. In AllGather and ReduceScatter the
    chunk of each head has the same offset in the block of its own rank.

    - `heads`: the number of heads of a node.
    - `slots`: the number of slots of a FIFO.
    - `alignment`: the bytes to whose multiple the chunks of the last loop are rounded up.
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
    """Return the segments with the chunk of every head divided into `pieces` consecutive parts.

    Columns: the parts of head 0, those of head 1, ..., then the two last columns as they were.
    """
    if pieces == 1:
        return cut
    offset, count = (x[:, :-2, None] for x in (cut.offset, cut.count))
    size = -(-count // pieces)
    begin = np.minimum(np.arange(pieces) * size, count)

    def joined(parts: NDArray[np.int64], before: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the parts [loop, head, part] as columns, followed by the last two columns of
        `before`.
        """
        return np.hstack([parts.reshape(len(before), -1), before[:, -2:]])

    return replace(
        cut,
        offset=joined(offset + begin, cut.offset),
        count=joined(np.minimum(size, count - begin), cut.count),
    )


def switch_kind(
    channel: PlannedChannel, kind: int, src_buffer: int, dst_buffer: int, *, second: bool = False
) -> RowKind:
    """Return the kind of row by which a head reads a sum from its switch, or stores by multicast.

    - `kind`: `SWITCH_REDUCE` or `MULTICAST`.
    - `src_buffer`, `dst_buffer`: the buffers at both ends: `IN`, `OUT` or `SCRATCH`.
    - `second`: whether the row is the storing half of a pass that also reads or sends. Then it uses
      no SM and has no latency, because the first half has both.
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


@dataclass
class SwitchedNodes:
    """Writes one loop on one channel: what the ranks and the switches of all nodes do.

    A sub is the part of a head, or with k pieces one of the subs h·k to h·k + k - 1 of head number
    h. All nodes have the same subs.

    - `nodes`: by node, its ranks; `groups`: by node, the number of the group of its ranks.
    - `members`: the heads and ranks whose rows are written.
    - `block`: the elements of a rank's block, if each head's part belongs to the block of its rank
      (AllGather and ReduceScatter); 0 if heads divide all of the data (AllReduce).
    - `least`: the least bytes of a part that a rank copies at once.
    - `sums`: by (node, sub), the row by which a head reads a sum.
    - `stores`: by (node, sub), the row by which a head stores.
    """

    writer: PassWriter
    plan: Plan
    nodes: list[tuple[int, ...]]
    groups: list[int]
    members: Members
    block: int = 0
    least: int = 0
    sums: dict[tuple[int, int], int] = field(default_factory=dict)
    stores: dict[tuple[int, int], int] = field(default_factory=dict)

    def head(self, node: int, sub: int) -> int:
        """Return the rank of the head of a node whose part, or a piece of it, is this sub."""
        return self.plan.heads[node][sub // self.writer.channel.pieces]

    def base(self, node: int, sub: int) -> int:
        """Return the elements before the block of the head that a sub belongs to, in the buffer.

        It is 0 if the heads divide all of the data.
        """
        return self.head(node, sub) * self.block

    def copies(self, lane: str, node: int) -> list[int]:
        """Write the copies of all ranks of a node to its switch's buffer, or from it; return their
        rows.

        `lane` is "give" for copies to the buffer, "take" for copies from it.
        """
        everyone = self.nodes[node]
        parts = self._parts(node)
        rows = list[int]()
        kind = cache(lambda times: self._copy(lane, self.members.with_copies(times)))
        for place, times in self.members.ranks.items():
            if place >= len(everyone):
                continue
            rank = everyone[place]
            made = [
                self.writer.body.row(kind(times * heads), rank, rank, segment, base=base)
                for segment, base, heads in parts
            ]
            self.writer.done(lane, rank, made)
            rows += made
        return rows

    def _parts(self, node: int) -> list[tuple[int, int, int]]:
        """Return what each rank of a node copies to or from the switch's buffer.

        Each entry is (segment, base, heads): the segment, the elements before its block in the
        buffer, and the number of equal heads whose parts the copy represents.
        """
        if self.plan.registered:
            return [(-1, 0, 1)]
        if not self.block:
            return [(self.writer.subs, 0, 1)]
        return [(h, self.base(node, h), times) for h, times in self.members.heads.items()]

    def _copy(self, lane: str, channel: PlannedChannel) -> RowKind:
        """Return the kind of row of a rank's copy to the switch's buffer, or from it.

        - `lane`: "give" for a copy to the buffer, "take" for one from it.
        - `channel`: makes the kind.

        If buffers are registered, the row only waits.
        """
        if self.plan.registered:
            return channel.wait()
        buffers = (IN, SCRATCH) if lane == "give" else (SCRATCH, OUT)
        return channel.staging(*buffers, least_part=self.least)

    def sum(self, node: int, sub: int, inputs: list[int]) -> int:
        """Write the row by which a head reads the sum of its part from the switch; return it.

        - `sub`: the head's part, or a piece of it.
        - `inputs`: the rows by which the ranks of the node give their data, for which it waits.
        """
        sync = Lag(self.plan.mechanism.nvls_sync)
        head = self.head(node, sub)
        buffer = IN if self.plan.registered else SCRATCH
        out = OUT if self.block else SCRATCH
        kind = switch_kind(self.writer.by_sub[sub], SWITCH_REDUCE, buffer, out)
        group = self.groups[node]
        base = self.base(node, sub)
        row = self.writer.body.row(kind, group, head, sub, base=base)
        self.writer.done("sum", head, [row])
        self.sums[node, sub] = row
        self.writer.read([row], inputs, sync)
        return row

    def store(self, node: int, sub: int, *, second: bool = False) -> int:
        """Write the multicast by which a head stores its part on all ranks of its node; return it.

        - `sub`: the head's part, or a piece of it.
        - `second`: whether the same pass also reads the part from the switch or sends it to other
          nodes.
        """
        out = OUT if self.plan.registered else SCRATCH
        here = IN if self.block else SCRATCH
        kind = switch_kind(self.writer.by_sub[sub], schedule.MULTICAST, here, out, second=second)
        head = self.head(node, sub)
        group = self.groups[node]
        base = self.base(node, sub)
        row = self.writer.body.row(kind, head, group, sub, base=base)
        self.stores[node, sub] = row
        return row

    def hand_out(self, node: int) -> None:
        """Write the copies by which every rank of a node takes the results, once all heads have
        stored them.
        """
        stored = [self.stores[node, sub] for sub in self.writer.by_sub]
        sync = Lag(self.plan.mechanism.nvls_sync)
        self.writer.read(self.copies("take", node), stored, sync)


class _SingleNode(SwitchedNodes):
    """Writes one loop of NVLS on one channel inside one node."""

    def all(self, *, reduces: bool) -> tuple[list[int], list[int]]:
        """Write all rows of a loop.

        In AllReduce and ReduceScatter (`reduces`) ranks give their input, and each head reads the
        sum of its part from the switch. In AllReduce and AllGather heads store their part by
        multicast, and ranks copy it from the switch's buffer.

        Returns the rows that end the loop: a list of their ranks, and a list of the rows.
        """
        inputs = self.copies("give", 0) if reduces else []
        for sub in self.writer.by_sub if reduces else ():
            self.sum(0, sub, inputs)
        if not (self.block and reduces):
            for sub in self.writer.by_sub:
                row = self.store(0, sub, second=reduces)
                self.writer.done("store", self.head(0, sub), [row])
                self.writer.read([row], [self.sums[0, sub]] if reduces else [], ARRIVED)
            self.hand_out(0)
        return self.writer.close()


# NVLSTree: switches reduce inside nodes, trees of heads reduce between nodes, and switches
# distribute the results. Heads with the same number form a tree over the nodes: on even channels
# the first tree of the double binary tree, on odd channels the second. A head adds what its child
# nodes sent to the sum of its own switch.

SHARE = value("share.of_a_way")  # fraction of a block's threads for each direction


def nvls_tree(collective: Collective, plan: Plan, extent: Extent = ALL) -> Schedule:
    """Return an AllReduce with NVLSTree, over all channels."""
    output = Output(collective, extent=extent, keep=False)
    nodes = plan.nodes
    groups = [output.builder.group(ranks) for ranks in nodes]
    two_trees = double_binary_tree(len(nodes))
    heads = len(plan.heads[0])
    for written in written_channels(plan, nvls_tree_keys(plan), extent):
        members = members_of(plan, written, nodes, extent)
        cut = loop_segments(collective, written.work, heads, plan.slots, ALIGNMENT)

        def write_loop(members: Members = members) -> WrittenLoop:
            """Write the rows of one loop, for the cache of loops."""
            writer = PassWriter(members.channel, heads, plan.slots, by_sub=members.by_sub)
            places = two_trees[members.channel.number % 2]
            tree_writer = _NvlsTree(writer, plan, nodes, groups, members, places=places)
            return WrittenLoop(writer.body, tree_writer.all())

        key = (*members.key, heads, plan.slots)
        output.add(cached_loop(collective, plan, key, write_loop), cut)
    return output.close()


def nvls_tree_keys(plan: Plan) -> dict[int, object]:
    """Return a key for each channel: 0 or 1, which tree of the double binary tree it uses.

    Channels with equal keys and equal amounts of data have the same rows, so that one represents
    all.
    """
    return {w.channel: w.channel % 2 for w in plan.work}


@dataclass
class _NvlsTree(SwitchedNodes):
    """Writes one loop of NVLSTree on one channel, on all nodes.

    The sums of the switches go up a tree of nodes, and the results come down. `places` has for
    every node its parent and its children in that tree.
    """

    places: tuple[NodePlace, ...] = ()

    def all(self) -> tuple[list[int], list[int]]:
        """Write all rows of a loop.

        Returns the rows that end it: a list of their ranks, and a list of the rows.
        """
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
        return self.writer.close()

    def _children(self, node: int) -> list[int]:
        """Return the nodes below a node in the tree."""
        return [child for child in self.places[node].down if child >= 0]

    def _up(self, node: int, h: int) -> None:
        """Write the pass by which head number `h` of a node sends its sum up; the root's head has
        none.
        """
        head = self.head(node, h)
        place = self.places[node]
        writer = self.writer
        if place.up < 0:
            return
        made = Pass(SCRATCH, SCRATCH, COPY, 1 + len(self._children(node)), threads=SHARE)
        row = writer.send((head, self.head(place.up, h)), h, made)
        self._take_sums(node, h, [row])
        writer.done("up", head, [row])

    def _take_sums(self, node: int, h: int, rows: list[int]) -> None:
        """Let `rows` wait for what head number `h` of a node adds up.

        These are the sum of the node's switch, and the sums that the node's children have sent.
        """
        writer = self.writer
        head = self.head(node, h)
        for child in self._children(node):
            writer.take(rows, (self.head(child, h), head), h)
        for row in rows:
            writer.read([row], [self.sums[node, h]], ARRIVED)

    def _down(self, node: int, h: int) -> None:
        """Write the rows by which head number `h` of a node sends the result down and stores it in
        its node.
        """
        head = self.head(node, h)
        place = self.places[node]
        writer = self.writer
        root = place.up < 0
        children = self._children(node)
        made = Pass(SCRATCH, SCRATCH, COPY, 1, 0, max(1, len(children)), 1.0 if root else SHARE)
        rows = [writer.send((head, self.head(child, h)), h, made) for child in children]
        rows.append(self.store(node, h, second=bool(children)))
        if root:
            self._take_sums(node, h, rows)
        else:
            writer.take(rows, (self.head(place.up, h), head), h)
        writer.done("down", head, rows)
