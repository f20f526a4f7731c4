"""Collectives whose data the switches of the network reduce or multicast (CollNet, SHARP).

NCCL: `src/transport/coll_net.cc`; `src/device/all_reduce.h` (`NCCL_ALGO_COLLNET_DIRECT`,
`NCCL_ALGO_COLLNET_CHAIN`, `NCCL_ALGO_NVLS`).

Head number h of each node and those of the same number on all other nodes form a group. A head
copies its data to a FIFO from which its proxy sends. The switches reduce the data of all heads of
the group, and the sum arrives in a FIFO of every head while data is still being sent. There it
stays until a block reads it.
"""

from collections.abc import Sequence
from dataclasses import field, replace
from itertools import pairwise

import numpy as np

from netsim.base.constants import value
from netsim.base.values import dataclass
from netsim.collectives.collective import Collective
from netsim.nccl.schedules import primitives, writing
from netsim.nccl.schedules.channels import distinct_channels
from netsim.nccl.schedules.nvls import SwitchedNodes, loop_segments, switch_keys, switch_kind
from netsim.nccl.schedules.plan import Plan
from netsim.nccl.schedules.primitives import FREE, Members, Pass, PlannedChannel, RowKind
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
from netsim.schedule.schedule import COPY, IN, IN_ORDER, OUT, SCRATCH, SWITCH_REDUCE, Lag, Schedule

# Prefixes of names of routes through switches that reduce; the name of the route from a head to its
# NIC follows.
STREAMED = "sharp-all:"  # from all heads to the root of the tree and back to all in one stream
SINGLE = "sharp:"  # from all heads to one, or from one head to all
GROUP = int(value("collnet.group"))  # most channels whose data is one operation of the network


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation of the network on a group of heads.

    - `moved`: the row that moves the data.
    - `handed`: the row at whose end the result is in the FIFOs of the heads.
    - `lag`: the lag from the end of `handed` until a block may use the result.
    """

    moved: int
    handed: int
    lag: Lag = schedule.ARRIVED


@dataclass(frozen=True)
class Network:
    """Adds operations of the network to the rows of one channel, which `writer` writes."""

    writer: PassWriter

    def sum(
        self, group: int, heads: Sequence[int], sub: int, filled_by: Sequence[int], nic_route: str
    ) -> Operation:
        """Add the operation that sums one sub over all heads of a group; each of them gets the sum.

        - `group`: the number of the group; `heads`: its ranks.
        - `sub`: the number of the sub.
        - `filled_by`: the rows that copy the heads' data to their FIFOs.
        - `nic_route`: the name of the route from a head to its NIC.
        """
        writer = self.writer
        lead = heads[0]
        move = self._moves(SWITCH_REDUCE, STREAMED + nic_route)
        hand = RowKind(self._style(schedule.MULTICAST, STREAMED + nic_route, FREE))
        moved = writer.body.row(move, group, lead, sub)
        handed = writer.body.row(hand, lead, group, sub)
        writer.body.after(handed, moved, self._arrival)
        writer.body.after(moved, handed, IN_ORDER, writer.slots)
        self._give(moved, filled_by)
        writer.done("network", lead, [moved])
        return Operation(moved, handed)

    def multicast_block(
        self, group: int, head: int, filled_by: int, nic_route: str, base: int
    ) -> Operation:
        """Add the operation that multicasts the block of one head to all heads of its group.

        - `group`: the number of the group.
        - `filled_by`: the row that copies the block to the head's FIFO.
        - `nic_route`: the name of the route from the head to its NIC.
        - `base`: the elements before this block in the buffer of all blocks.
        """
        kind = self._moves(schedule.MULTICAST, SINGLE + nic_route)
        moved = self.writer.body.row(kind, head, group, head, base=base)
        return self._single(head, moved, [filled_by])

    def reduce_block(
        self, group: int, head: int, filled_by: Sequence[int], nic_route: str, base: int
    ) -> Operation:
        """Add the operation that reduces the block of one head from the FIFOs of all heads of its
        group.

        - `group`: the number of the group.
        - `filled_by`: the rows that copy the heads' contributions to their FIFOs.
        - `nic_route`: the name of the route from the head to its NIC.
        - `base`: the elements before this block in the buffer of all blocks.
        """
        kind = self._moves(SWITCH_REDUCE, SINGLE + nic_route)
        moved = self.writer.body.row(kind, group, head, head, base=base)
        return self._single(head, moved, filled_by)

    def _single(self, head: int, moved: int, filled_by: Sequence[int]) -> Operation:
        """Return the operation whose result is complete when the row `moved` has moved the data.

        - `head`: the head whose proxy serves the operation.
        - `filled_by`: the rows that fill the FIFOs, for which `moved` waits.
        """
        self._give(moved, filled_by)
        self.writer.done("network", head, [moved])
        return Operation(moved, moved, self._arrival)

    def take(self, operation: Operation, rows: Sequence[int]) -> None:
        """Let `rows` read the result of an operation from a FIFO, and so free the slot.

        The operation `slots` loops later uses the same slot and waits for these rows.
        """
        body = self.writer.body
        credit = self.writer.channel.plan.mechanism.network.credit
        for row in rows:
            body.after(row, operation.handed, operation.lag)
            body.after(operation.moved, row, Lag(credit, arrival=False), self.writer.slots)

    def _give(self, moved: int, filled_by: Sequence[int]) -> None:
        """Let an operation wait until the FIFOs of all heads are filled, and then free the slots.

        - `moved`: the row of the operation that moves the data.
        - `filled_by`: the rows that fill the FIFOs.
        """
        channel = self.writer.channel
        body = self.writer.body
        for row in filled_by:
            body.after(moved, row, replace(channel.noticed, arrival=True))
            body.after(row, moved, channel.local_credit, self.writer.slots)

    @property
    def _arrival(self) -> Lag:
        """The lag from the end of an operation's traffic until a block may use the result."""
        network = self.writer.channel.plan.mechanism.network
        return Lag(network.reduction + network.delivery.simple)

    def _moves(self, kind: int, route: str) -> RowKind:
        """Return the kind of row that moves an operation's data; proxies post it and NICs send it.

        `kind` is `SWITCH_REDUCE` or `MULTICAST`, `route` the name of the route. Proxies give the
        data of up to `GROUP` channels to the network as one operation, so that channels share its
        cost.
        """
        channel = self.writer.channel
        network = channel.plan.mechanism.network
        end = "dst" if kind == SWITCH_REDUCE else "src"
        style = self._style(kind, route, schedule.Use("hbm", end, 2.0))
        together = min(GROUP, len(channel.plan.work))
        costs = (
            ("proxy", end, network.post.simple / together),
            ("nic_msg", end, network.message / together),
        )
        return RowKind(style, tuple(cost for cost in costs if cost[2] > 0))

    def _style(self, kind: int, route: str, use: schedule.Use) -> schedule.Style:
        """Return the style of a row that moves data between the FIFOs of heads."""
        return schedule.Style(
            kind,
            src_buffer=SCRATCH,
            dst_buffer=SCRATCH,
            route=route,
            uses=(use,),
            **self.writer.channel.tags,
        )


# NVLS over several nodes: NVSwitch reduces inside nodes, the switches of the network between them.
# Each head reads the sum of its node through NVSwitch and gives it to the network. The network
# returns the sum of all nodes, and the head multicasts it to all GPUs of its node.


def nvls_network(collective: Collective, plan: Plan, extent: Extent = ALL) -> Schedule:
    """Return an AllReduce with NVLS inside nodes and a reducing network between them."""
    output = Output(collective, extent=extent, keep=False)
    inside = [output.builder.group(ranks) for ranks in plan.nodes]
    across = [output.builder.group(same) for same in zip(*plan.heads, strict=True)]
    heads = len(plan.heads[0])
    for distinct in distinct_channels(plan, switch_keys(plan), extent):
        members = primitives.members_of(plan, distinct, plan.nodes, extent)
        cut = loop_segments(collective, distinct.work, heads, plan.slots, ALIGNMENT)

        def write_loop(members: Members = members) -> WrittenLoop:
            """Write the rows of one loop, for the cache of loops."""
            writer = PassWriter(members.channel, heads, plan.slots, by_sub=members.by_sub)
            joined = _NvlsOverNetwork(writer, plan, plan.nodes, inside, members, across=across)
            return WrittenLoop(writer.body, joined.all())

        key = (*members.key, heads, plan.slots, len(plan.work))
        output.add(cached_loop(collective, plan, key, write_loop), cut)
    return output.close()


@dataclass
class _NvlsOverNetwork(SwitchedNodes):
    """Writes one loop of NVLS on one channel, over nodes that a reducing network connects.

    `across`: for each number of a head, the group of the heads that have it on their nodes.
    """

    across: list[int] | None = None

    def all(self) -> tuple[list[int], list[int]]:
        """Add all rows of a loop.

        Returns the rows that end it: a list of their ranks, and a list of the rows.
        """
        network = Network(self.writer)
        numbers = range(len(self.nodes))
        assert self.across is not None
        gives = [self.copies("give", node) for node in numbers]
        for h, group in enumerate(self.across):
            node_sums = [self.sum(node, h, gives[node]) for node in numbers]
            heads = [self.head(node, h) for node in numbers]
            done = network.sum(group, heads, h, node_sums, self.plan.nic_routes[h])
            for node in numbers:
                row = self.store(node, h)
                network.take(done, [row])
                self.writer.done("store", self.head(node, h), [row])
        for node in numbers:
            self.hand_out(node)
        return self.writer.close()


# CollNetChain: a chain reduces in each node, the switches of the network reduce between nodes, and
# the chains distribute the result. The first rank of each chain, its head, gives the sum of its
# node to the network and sends the sum of all nodes down the chain. Both directions run at the same
# time, each by a group of a block's threads.

CHAIN_SHARE = value("share.of_a_way")  # fraction of a block's threads for each direction


def collnet_chain(collective: Collective, plan: Plan, extent: Extent = ALL) -> Schedule:
    """Return an AllReduce with CollNetChain, over all channels."""
    output = Output(collective, extent=extent)
    keys = {w.channel: (plan.chains[w.channel], plan.nic_routes[w.channel]) for w in plan.work}
    for distinct in distinct_channels(plan, keys, extent):
        work = distinct.work
        channel = PlannedChannel(plan, work.channel, distinct.multiplicity)
        nodes = plan.chains[work.channel]
        table = chunk_table(work, collective.element_bytes)
        cut = writing.segments(plan, collective.element_bytes, table, threads=CHAIN_SHARE)
        group = output.builder.group([order[0] for order in nodes])
        joined = (nodes, group, plan.nic_routes[work.channel])

        def write_loop(
            channel: PlannedChannel = channel,
            cut: Segments = cut,
            joined: tuple[tuple[tuple[int, ...], ...], int, str] = joined,
        ) -> WrittenLoop:
            """Write the rows of one chunk, for the cache of loops."""
            writer = PassWriter(channel, cut.subs, cut.slots, cut.first_chunk)
            return WrittenLoop(writer.body, _Chains(writer, *joined).all())

        key = (*joined, *channel.key, cut.subs, cut.slots, cut.first_chunk, len(plan.work))
        output.add(cached_loop(collective, plan, key, write_loop), cut)
    return output.close()


@dataclass
class _Chains:
    """Writes one chunk of CollNetChain on one channel.

    - `nodes`: the chain of every node: its ranks, head first.
    - `group`: the number of the group of all heads.
    - `nic_route`: the name of the route from a head to its NIC.
    """

    writer: PassWriter
    nodes: tuple[tuple[int, ...], ...]
    group: int
    nic_route: str

    def all(self) -> tuple[list[int], list[int]]:
        """Add all rows of a chunk.

        Returns the rows that end it: a list of their ranks, and a list of the rows.
        """
        network = Network(self.writer)
        heads = [order[0] for order in self.nodes]
        for sub in range(self.writer.subs):
            node_sums = [self._up(order, sub) for order in self.nodes]
            done = network.sum(self.group, heads, sub, node_sums, self.nic_route)
            for order in self.nodes:
                network.take(done, self._down(order, sub))
        return self.writer.close()

    def _up(self, order: tuple[int, ...], sub: int) -> int:
        """Add the rows that reduce a sub along a node's chain `order`, from its last rank to its
        head.

        Returns the row by which the head puts the sum of the node into the FIFO of the network.
        """
        below: tuple[int, int] | None = None
        for upper, rank in reversed(list(pairwise(order))):
            buffer = SCRATCH if below else IN
            made = Pass(
                buffer, SCRATCH, schedule.REDUCE_INPUT, 2 if below else 1, threads=CHAIN_SHARE
            )
            row = self.writer.send((rank, upper), sub, made)
            self._append_pass(row, below, sub, "up", rank)
            below = (rank, upper)
        buffer = SCRATCH if below else IN
        head = order[0]
        made = Pass(buffer, SCRATCH, COPY, 2 if below else 1, 1, threads=CHAIN_SHARE)
        row = self.writer.body.row(self.writer.channel.local(made), head, head, sub)
        self._append_pass(row, below, sub, "up", head)
        return row

    def _down(self, order: tuple[int, ...], sub: int) -> list[int]:
        """Add the rows that send the result of a sub down a node's chain `order`, head first.

        Returns the rows of the head.
        """
        writer = self.writer
        head = order[0]
        if len(order) == 1:
            made = Pass(SCRATCH, OUT, COPY, 1, 1, threads=CHAIN_SHARE)
            rows = [writer.body.row(writer.channel.local(made), head, head, sub)]
        else:
            # One pass stores and sends, so that storing costs nothing in addition.
            free = writer.channel.merge(OUT, COPY)
            rows = [writer.body.row(free, head, head, sub)]
            rows.append(self._send_result(order, 0, SCRATCH, sub))
        writer.done("down", head, rows)
        for place, rank in enumerate(order[1:], 1):
            last = rank == order[-1]
            row = self._store(rank, sub) if last else self._send_result(order, place, OUT, sub)
            self._append_pass(row, (order[place - 1], rank), sub, "down", rank)
        return rows

    def _send_result(self, order: tuple[int, ...], place: int, buffer: int, sub: int) -> int:
        """Add the row by which a rank of a chain sends the result to the next rank; return it.

        - `order`: the chain, head first; `place`: the index of the sender in it.
        - `buffer`: where the sender reads the result.

        The next rank gets it in its output. Only the last rank gets it in a FIFO, unless
        `plan.direct` is set.
        """
        hop = (order[place], order[place + 1])
        stored = hop[1] != order[-1] or self.writer.channel.plan.direct
        made = Pass(buffer, OUT if stored else SCRATCH, COPY, 1, 1, threads=CHAIN_SHARE)
        return self.writer.send(hop, sub, made)

    def _store(self, rank: int, sub: int) -> int:
        """Add the row by which the last rank of a chain gets the result in its output; return it.

        With `plan.direct` the result is there already, and the row only waits.
        """
        channel = self.writer.channel
        body = self.writer.body
        if channel.plan.direct:
            return body.row(channel.wait(), rank, rank, -1)
        kind = channel.local(Pass(SCRATCH, OUT, COPY, 1, 1, threads=CHAIN_SHARE))
        return body.row(kind, rank, rank, sub)

    def _append_pass(
        self, row: int, hop: tuple[int, int] | None, sub: int, lane: str, rank: int
    ) -> None:
        """Append a row of `rank` as the next pass of a lane.

        - `hop`: (sender, receiver) of the data that the row reads: it waits for the sub and frees
          its slot. None: it reads only its own data.
        """
        if hop is not None:
            self.writer.take([row], hop, sub)
        self.writer.done(lane, rank, [row])


# CollNetDirect: every rank sends each head of its node a part of its data, heads reduce their part
# in the node, and the network reduces the parts of all nodes. Four groups of threads of a block
# work at the same time: they scatter parts to heads, reduce, send results to ranks, and store
# results.


SUM_SHARE = value("share.of_a_sum")  # fraction of a block's threads in the group that reduces


def collnet_direct(collective: Collective, plan: Plan, extent: Extent = ALL) -> Schedule:
    """Return an AllReduce with CollNetDirect: heads reduce in nodes, and the network between
    nodes.
    """
    output = Output(collective, extent=extent, keep=False)
    nodes = plan.nodes
    groups = [output.builder.group(same) for same in zip(*plan.heads, strict=True)]
    heads = len(plan.heads[0])
    for distinct in distinct_channels(plan, switch_keys(plan), extent):
        work = distinct.work
        cut = loop_segments(collective, work, heads, plan.slots, ALIGNMENT)
        channel = PlannedChannel(plan, work.channel, distinct.multiplicity)

        def write_loop(channel: PlannedChannel = channel) -> WrittenLoop:
            """Write the rows of one loop, for the cache of loops."""
            writer = PassWriter(channel, heads, plan.slots)
            return WrittenLoop(writer.body, _Heads(writer, plan, nodes, groups).all())

        key = (*channel.key, heads, plan.slots, len(plan.work))
        output.add(cached_loop(collective, plan, key, write_loop), cut)
    return output.close()


@dataclass
class _Heads:
    """Writes one loop of CollNetDirect on one channel.

    `groups`: for each number of a head, the group of the heads that have it on their nodes.
    """

    writer: PassWriter
    plan: Plan
    nodes: list[tuple[int, ...]]
    groups: list[int]

    def all(self) -> tuple[list[int], list[int]]:
        """Add all rows of a loop.

        Returns the rows that end it: a list of their ranks, and a list of the rows.
        """
        network = Network(self.writer)
        numbers = range(len(self.nodes))
        for node in numbers:
            self._scatter(node)
        for h in range(self.writer.subs):
            node_sums = [self._reduce(node, h) for node in numbers]
            heads = [self.plan.heads[node][h] for node in numbers]
            done = network.sum(self.groups[h], heads, h, node_sums, self.plan.nic_routes[h])
            for node in numbers:
                others = _others(self.nodes[node], heads[node])
                rows = _store_and_send(self.writer, heads[node], others, h)
                network.take(done, rows)
        for node in numbers:
            self._store(node)
        return self.writer.close()

    def _scatter(self, node: int) -> None:
        """Add the rows by which each rank of a node sends every head its part."""
        for rank in self.nodes[node]:
            rows = []
            heads = [(h, head) for h, head in enumerate(self.plan.heads[node]) if head != rank]
            for h, head in heads:
                # The data of the first rank is added to the head's own on arrival; the data of the
                # other ranks is added by rows of the head (`PassWriter.merge`).
                first = _others(self.nodes[node], head)[0] == rank
                op = schedule.REDUCE_INPUT if first else COPY
                made = Pass(IN, SCRATCH, op, threads=self.plan.mechanism.copy_share / len(heads))
                rows.append(self.writer.send((rank, head), h, made))
            if rows:
                self.writer.done("scatter", rank, rows)

    def _reduce(self, node: int, h: int) -> int:
        """Add the rows by which head number `h` of a node reduces its part; return the last row."""
        writer = self.writer
        head = self.plan.heads[node][h]
        others = _others(self.nodes[node], head)
        merges: list[int] = []
        for rank in others[1:]:
            merge = writer.merge(head, h, [(others[0], head), (rank, head)])
            if merges:
                writer.body.after(merge, merges[-1], IN_ORDER)
            merges.append(merge)
        buffer = SCRATCH if others else IN
        made = Pass(buffer, SCRATCH, COPY, 1 + len(others), 1, threads=SUM_SHARE)
        row = writer.body.row(writer.channel.local(made), head, head, h)
        for rank in others:
            writer.take([row], (rank, head), h)
        if merges:
            writer.body.after(row, merges[-1], IN_ORDER)
        writer.done("reduce", head, [row])
        return row

    def _store(self, node: int) -> None:
        """Add the rows by which every rank of a node reads the other heads' parts of the result."""
        heads = self.plan.heads[node]
        for rank in self.nodes[node]:
            others = [(h, head) for h, head in enumerate(heads) if head != rank]
            rows = [_read_part(self.writer, (head, rank), h, len(others)) for h, head in others]
            if rows:
                self.writer.done("store", rank, rows)


def _store_and_send(
    writer: PassWriter,
    head: int,
    others: Sequence[int],
    sub: int,
    *,
    base: int = 0,
    is_in_place: bool = False,
) -> list[int]:
    """Add the rows by which a head stores part `sub` of the result and sends it to the ranks
    `others`.

    It sends into their FIFOs, or with `plan.direct` into their outputs. Returns the rows.

    - `base`: elements added to the part's offset.
    - `is_in_place`: whether the part is in the head's output already.
    """
    channel = writer.channel
    direct = channel.plan.direct
    share = channel.plan.mechanism.copy_share
    segment = sub
    if is_in_place:
        kind = channel.wait()
        segment = -1
    elif others:  # one pass stores and sends, so that the copy costs nothing in addition
        kind = channel.merge(OUT, COPY)
    else:
        kind = channel.local(Pass(SCRATCH, OUT, COPY, 1, 1, threads=share))
    rows = [writer.body.row(kind, head, head, segment, base=base)]
    made = Pass(SCRATCH, OUT if direct else SCRATCH, COPY, 1, 1, len(others), share)
    rows += [writer.send((head, rank), sub, made, base=base) for rank in others]
    writer.done("hand", head, rows)
    return rows


def _read_part(
    writer: PassWriter, hop: tuple[int, int], sub: int, parts: int, base: int = 0
) -> int:
    """Add the row by which a rank copies part `sub` of the result from a FIFO to its output; return
    it.

    With `plan.direct` the part is in its output already, and the row only waits.

    - `hop`: the head that sent the part, and the rank.
    - `parts`: the number of parts that the rank's threads copy at the same time.
    - `base`: elements added to the part's offset.
    """
    share = writer.channel.plan.mechanism.copy_share
    made = Pass(SCRATCH, OUT, COPY, 1, 1, threads=share / parts)
    kind = writer.channel.local(made)
    segment = sub
    if writer.channel.plan.direct:
        kind = writer.channel.wait()
        segment = -1
    row = writer.body.row(kind, hop[1], hop[1], segment, base=base)
    writer.take([row], hop, sub)
    return row


def _others(ranks: Sequence[int], head: int) -> list[int]:
    """Return the ranks of a node without its head."""
    return [rank for rank in ranks if rank != head]


# AllGather and ReduceScatter with NVLS and CollNetDirect, over a network that multicasts and
# reduces. Every rank is a head. Blocks of data move between heads that have the same number on
# their nodes, and between a head and the ranks of its node: with NVLS through NVSwitch, with
# CollNetDirect by passes of the GPUs' own blocks of threads.


def network_blocks(collective: Collective, plan: Plan, extent: Extent = ALL) -> Schedule:
    """Return an AllGather or ReduceScatter with NVLS or CollNetDirect over several nodes."""
    switched = plan.algorithm == "NVLS"
    keep = not switched and collective.name == "all_gather"
    output = Output(collective, extent=extent, keep=keep)
    inside = [output.builder.group(ranks) for ranks in plan.nodes] if switched else []
    across = [output.builder.group(same) for same in zip(*plan.heads, strict=True)]
    kind = _Switched if switched else _Direct
    for distinct in distinct_channels(plan, switch_keys(plan), extent):
        work = distinct.work
        channel = PlannedChannel(plan, work.channel, distinct.multiplicity)

        def write_loop(channel: PlannedChannel = channel) -> WrittenLoop:
            """Write the rows of one loop, for the cache of loops."""
            writer = PassWriter(channel, collective.ranks, plan.slots)
            made = kind(writer, plan, collective.count, across, inside)
            if collective.name == "all_gather":
                _gather(made)
            else:
                _reduce(made)
            return WrittenLoop(writer.body, writer.close())

        key = (*channel.key, plan.slots, len(plan.work))
        written = cached_loop(collective, plan, key, write_loop)
        table = chunk_table(work, collective.element_bytes)
        offset, count = (np.repeat(x, collective.ranks + 1, 1) for x in table)
        count[:, -1] = 0
        output.add(written, Segments(offset, count, slots=plan.slots))
    return output.close()


@dataclass
class _Blocks:
    """Writes one loop of an AllGather or ReduceScatter on one channel; every rank is a head.

    - `count`: the elements of a rank's block in the complete call.
    - `across`: by number of a head, the group of the heads with this number on all nodes.
    - `inside`: by node, the group of its ranks.

    A block has the number of the rank that it belongs to. Subclasses move blocks between a head and
    the ranks of its node. AllGather: `hand` sends a block from a head to the ranks, `store` stores
    it there. ReduceScatter: `give` sends the ranks' parts of all blocks to the heads, `sum` reduces
    a block at a head for its proxy.
    """

    writer: PassWriter
    plan: Plan
    count: int
    across: list[int]
    inside: list[int]

    def at(self, block: int) -> int:
        """Return the number of elements before a block in the buffer of all blocks."""
        return block * self.count


@dataclass
class _Switched(_Blocks):
    """Moves blocks between heads and ranks through NVSwitch.

    - `_rows`: by node and block, the row that multicasts the block.
    - `_copies_by_block`: by node and block, the rows that copy data to the switch's buffers.
    """

    _rows: dict[tuple[int, int], int] = field(default_factory=dict)
    _copies_by_block: dict[tuple[int, int], list[int]] = field(default_factory=dict)

    def hand(self, node: int, h: int, block: int) -> list[int]:
        """Add the row by which head number `h` of a node multicasts a block.

        Returns a list with this row.
        """
        head = self.plan.heads[node][h]
        out = OUT if self.plan.registered else SCRATCH
        kind = switch_kind(self.writer.channel, schedule.MULTICAST, SCRATCH, out)
        row = self.writer.body.row(kind, head, self.inside[node], block, base=self.at(block))
        self.writer.done("hand", head, [row])
        self._rows[node, block] = row
        return [row]

    def store(self, node: int) -> None:
        """Add the copies by which the ranks of a node take all blocks from the switch's buffer."""
        self._copies(node, "take", (SCRATCH, OUT))

    def give(self, node: int) -> None:
        """Add the copies by which the ranks of a node put all blocks into the switch's buffer."""
        self._copies(node, "give", (IN, SCRATCH))

    def sum(self, node: int, h: int, block: int) -> tuple[int, int]:
        """Add the row by which head number `h` of a node reads the sum of a block.

        Returns the first and the last row of the reduction, which are both this row.
        """
        writer = self.writer
        head = self.plan.heads[node][h]
        buffer = IN if self.plan.registered else SCRATCH
        kind = switch_kind(writer.channel, SWITCH_REDUCE, buffer, SCRATCH)
        row = writer.body.row(kind, self.inside[node], head, block, base=self.at(block))
        writer.read([row], self._copies_by_block[node, block], Lag(self.plan.mechanism.nvls_sync))
        writer.done("sum", head, [row])
        return row, row

    def _copies(self, node: int, lane: str, buffers: tuple[int, int]) -> None:
        """Add each rank's copies of all blocks between its own buffer and the one that the switch
        accesses.

        The lane "give" copies to the switch's buffer, "take" from it. `buffers` are source and
        destination. If buffers are registered, the rows only wait.
        """
        writer = self.writer
        registered = self.plan.registered
        kind = writer.channel.wait() if registered else writer.channel.staging(*buffers)
        for rank in self.plan.nodes[node]:
            rows = []
            for block in range(writer.subs):
                segment = -1 if registered else block
                row = writer.body.row(kind, rank, rank, segment, base=self.at(block))
                rows.append(row)
                if lane == "give":
                    self._copies_by_block.setdefault((node, block), []).append(row)
                else:
                    sync = Lag(self.plan.mechanism.nvls_sync)
                    writer.read([row], [self._rows[node, block]], sync)
            writer.done(lane, rank, rows)


class _Direct(_Blocks):
    """Moves blocks between heads and ranks by passes of blocks of threads (CollNetDirect)."""

    def hand(self, node: int, h: int, block: int) -> list[int]:
        """Add the rows by which head number `h` of a node sends a block to its ranks; return
        them.
        """
        head = self.plan.heads[node][h]
        base = self.at(block)
        others = _others(self.plan.nodes[node], head)
        return _store_and_send(
            self.writer, head, others, block, base=base, is_in_place=block == head
        )

    def store(self, node: int) -> None:
        """Add the rows by which the ranks of a node copy all blocks from their FIFOs."""
        for rank in self.plan.nodes[node]:
            for h, head in enumerate(self.plan.heads[node]):
                if head != rank:
                    blocks = [heads[h] for heads in self.plan.heads]
                    hop = (head, rank)
                    parts = len(blocks)
                    rows = [_read_part(self.writer, hop, b, parts, self.at(b)) for b in blocks]
                    self.writer.done("store", rank, rows)

    def give(self, node: int) -> None:
        """Add the rows by which the ranks of a node send its heads their parts of all blocks."""
        for rank in self.plan.nodes[node]:
            heads = [(h, head) for h, head in enumerate(self.plan.heads[node]) if head != rank]
            for blocks in self.plan.heads:  # a block belongs to the rank with its number
                share = self.plan.mechanism.copy_share / max(1, len(heads))
                made = Pass(IN, SCRATCH, COPY, threads=share)
                rows = [
                    self.writer.send((rank, head), blocks[h], made, base=self.at(blocks[h]))
                    for h, head in heads
                ]
                if rows:
                    self.writer.done("scatter", rank, rows)

    def sum(self, node: int, h: int, block: int) -> tuple[int, int]:
        """Add the rows by which head number `h` of a node reduces a block.

        Returns the first and the last of them.
        """
        writer = self.writer
        head = self.plan.heads[node][h]
        others = _others(self.plan.nodes[node], head)
        base = self.at(block)
        made = Pass(IN, SCRATCH, COPY, 1 + len(others), 1, threads=SUM_SHARE)
        kind = writer.channel.local(made)
        row = writer.body.row(kind, head, head, block, base=base)
        last = row
        for rank in others:
            hop = (rank, head)
            merge = writer.merge(head, block, [hop], base=base)
            writer.body.after(merge, last, IN_ORDER)
            writer.wait([row], hop, block)
            writer.take([merge], hop, block)
            last = merge
        writer.done("reduce", head, [row])
        return row, last


def _gather(blocks: "_Switched | _Direct") -> None:
    """Add the rows of an AllGather.

    The network multicasts the block of each head to the heads of its group; these send it to the
    ranks of their nodes.
    """
    network = Network(blocks.writer)
    for h, group in enumerate(blocks.across):
        for heads in blocks.plan.heads:
            block = heads[h]
            base = blocks.at(block)
            nic_route = blocks.plan.nic_routes[h]
            kind = blocks.writer.channel.local(Pass(IN, SCRATCH, COPY, writes=1))
            row = blocks.writer.body.row(kind, block, block, block, base=base)
            blocks.writer.done("give", block, [row])
            done = network.multicast_block(group, block, row, nic_route, base)
            for node in range(len(blocks.plan.nodes)):
                network.take(done, blocks.hand(node, h, block))
    for node in range(len(blocks.plan.nodes)):
        blocks.store(node)


def _reduce(blocks: "_Switched | _Direct") -> None:
    """Add the rows of a ReduceScatter.

    The heads reduce a block inside their nodes; the network reduces these sums for the block's
    rank.
    """
    network = Network(blocks.writer)
    for node in range(len(blocks.plan.nodes)):
        blocks.give(node)
    for h, group in enumerate(blocks.across):
        for heads in blocks.plan.heads:
            block = heads[h]
            base = blocks.at(block)
            sums = [blocks.sum(node, h, block) for node in range(len(blocks.plan.nodes))]
            last_rows = [last for _, last in sums]
            done = network.reduce_block(group, block, last_rows, blocks.plan.nic_routes[h], base)
            for first, _ in sums:
                credit = blocks.writer.channel.local_credit
                blocks.writer.body.after(first, done.moved, credit, blocks.writer.slots)
            kind = blocks.writer.channel.local(Pass(SCRATCH, OUT, COPY, 1, 1))
            row = blocks.writer.body.row(kind, block, block, block, base=base)
            network.take(done, [row])
            blocks.writer.done("store", block, [row])
