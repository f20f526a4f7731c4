"""Collectives whose data the switches of the network reduce or multicast (CollNet, SHARP).

NCCL: `src/transport/coll_net.cc`; `src/device/all_reduce.h` (`NCCL_ALGO_COLLNET_DIRECT`,
`NCCL_ALGO_COLLNET_CHAIN`, `NCCL_ALGO_NVLS`).

The heads of all nodes with the same number form a group. A head copies its data to a FIFO from
which its proxy sends, the switches reduce the data of all heads of the group, and the sum arrives
in a FIFO of every head while the data is still being sent. There it stays until a block reads it.
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
from netsim.nccl.schedules.writing import Lines, Output, Segments, Turn, chunk_table, remembered
from netsim.nccl.split import ALIGNMENT
from netsim.schedule import schedule
from netsim.schedule.extent import ALL, Extent
from netsim.schedule.schedule import COPY, IN, IN_ORDER, OUT, SCRATCH, SWITCH_REDUCE, Lag, Schedule

# Options of routes through switches that reduce; the options of the route to a NIC follow.
STREAMED = "sharp-all:"  # from all heads to the root of the tree and back to all in one stream
SINGLE = "sharp:"  # from all heads to one, or from one head to all
# The most channels whose data NCCL's proxies give to the network as one operation.
GROUP = int(value("collnet.group"))


@dataclass(frozen=True, slots=True)
class Operation:
    """One network operation of a group of heads.

    - `moved`: the row that moves the data.
    - `handed`: the row at whose end the result has arrived.
    - `lag`: the lag from that end until a block may use the result.
    """

    moved: int
    handed: int
    lag: Lag = schedule.ARRIVED


@dataclass(frozen=True)
class Network:
    """The network operations of one channel."""

    lines: Lines

    def sum(
        self, group: int, heads: Sequence[int], sub: int, filled_by: Sequence[int], door: str
    ) -> Operation:
        """Add the operation that reduces one sub of all heads of a group, for all of them.

        The rows `filled_by` copy the data to the heads' FIFOs; `door` is the route to the NIC.
        """
        lines = self.lines
        lead = heads[0]
        move = self._moves(SWITCH_REDUCE, STREAMED + door)
        hand = RowKind(self._style(schedule.MULTICAST, STREAMED + door, FREE))
        moved = lines.woven.row(move, group, lead, sub)
        handed = lines.woven.row(hand, lead, group, sub)
        lines.woven.after(handed, moved, self._arrival)
        lines.woven.after(moved, handed, IN_ORDER, lines.slots)
        self._give(moved, filled_by)
        lines.done("network", lead, [moved])
        return Operation(moved, handed)

    def share(self, group: int, head: int, filled_by: int, door: str, base: int) -> Operation:
        """Add the operation that sends the block of one head to all heads of its group.

        The row `filled_by` copies the block to the head's FIFO. The block begins `base` elements
        from the first block.
        """
        kind = self._moves(schedule.MULTICAST, SINGLE + door)
        moved = self.lines.woven.row(kind, head, group, head, base=base)
        return self._single(head, moved, [filled_by])

    def collect(
        self, group: int, head: int, filled_by: Sequence[int], door: str, base: int
    ) -> Operation:
        """Add the operation that reduces the block of one head from the FIFOs of all heads.

        The rows `filled_by` copy the heads' parts of the block to their FIFOs. The block begins
        `base` elements from the first block.
        """
        kind = self._moves(SWITCH_REDUCE, SINGLE + door)
        moved = self.lines.woven.row(kind, group, head, head, base=base)
        return self._single(head, moved, filled_by)

    def _single(self, head: int, moved: int, filled_by: Sequence[int]) -> Operation:
        """Return the operation of one head, whose row `moved` waits for the rows `filled_by`."""
        self._give(moved, filled_by)
        self.lines.done("network", head, [moved])
        return Operation(moved, moved, self._arrival)

    def take(self, operation: Operation, rows: Sequence[int]) -> None:
        """Let rows read the result from a FIFO; the next operation on that slot waits for them."""
        woven = self.lines.woven
        credit = self.lines.channel.plan.mechanism.network.credit
        for row in rows:
            woven.after(row, operation.handed, operation.lag)
            woven.after(operation.moved, row, Lag(credit, arrival=False), self.lines.slots)

    def _give(self, moved: int, filled_by: Sequence[int]) -> None:
        """Let an operation wait for the rows that fill the FIFOs, and free the slots at its end."""
        channel = self.lines.channel
        woven = self.lines.woven
        for row in filled_by:
            woven.after(moved, row, replace(channel.noticed, arrival=True))
            woven.after(row, moved, channel.local_credit, self.lines.slots)

    @property
    def _arrival(self) -> Lag:
        """The lag from the end of an operation's traffic until a block may use the result."""
        network = self.lines.channel.plan.mechanism.network
        return Lag(network.reduction + network.delivery.simple)

    def _moves(self, kind: int, route: str) -> RowKind:
        """Return the kind of the row that moves the data: proxies post it and NICs send it.

        Proxies share an operation among up to `GROUP` channels, and so its cost.
        """
        channel = self.lines.channel
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
        """Return the style of a row between FIFOs of heads."""
        return schedule.Style(
            kind,
            src_buffer=SCRATCH,
            dst_buffer=SCRATCH,
            route=route,
            uses=(use,),
            **self.lines.channel.tags,
        )


# NVLS over several nodes whose network reduces: NVSwitches reduce in nodes, the switches of the
# network between them. Each head reads the sum of its node through NVSwitch, gives it to the
# network, and stores the sum of all nodes, which comes back, through NVSwitch in all GPUs of its
# node.


def nvls_network(collective: Collective, plan: Plan, extent: Extent = ALL) -> Schedule:
    """Return an AllReduce with NVLS in nodes and a reducing network between them."""
    output = Output(collective, extent=extent, keep=False)
    inside = [output.builder.group(ranks) for ranks in plan.nodes]
    across = [output.builder.group(same) for same in zip(*plan.heads, strict=True)]
    heads = len(plan.heads[0])
    for distinct in distinct_channels(plan, switch_keys(plan), extent):
        members = primitives.members_of(plan, distinct, plan.nodes, extent)
        cut = loop_segments(collective, distinct.work, heads, plan.slots, ALIGNMENT)

        def turn(members: Members = members) -> Turn:
            lines = Lines(members.channel, heads, plan.slots, by_sub=members.by_sub)
            joined = _Joined(lines, plan, plan.nodes, inside, members, across=across)
            return Turn(lines.woven, joined.all())

        key = (*members.key, heads, plan.slots, len(plan.work))
        output.add(remembered(collective, plan, key, turn), cut)
    return output.close()


@dataclass
class _Joined(SwitchedNodes):
    """Nodes that are connected by the reducing switches of the network.

    `across` are the groups of heads of all nodes with the same number.
    """

    across: list[int] | None = None

    def all(self) -> tuple[list[int], list[int]]:
        """Add all rows of a loop; return the ranks and rows that end it."""
        network = Network(self.lines)
        numbers = range(len(self.nodes))
        assert self.across is not None
        gives = [self.copies("give", node) for node in numbers]
        for h, group in enumerate(self.across):
            node_sums = [self.sum(node, h, gives[node]) for node in numbers]
            heads = [self.head(node, h) for node in numbers]
            done = network.sum(group, heads, h, node_sums, self.plan.doors[h])
            for node in numbers:
                row = self.store(node, h)
                network.take(done, [row])
                self.lines.done("store", self.head(node, h), [row])
        for node in numbers:
            self.hand_out(node)
        return self.lines.close()


# CollNetChain: a chain reduces in each node, the switches of the network reduce between nodes, and
# the chains distribute the result. The first rank of each chain, its head, gives the sum of its
# node to the network and sends the sum of all nodes down the chain. Both directions run at the same
# time, each by a group of a block's threads.

CHAIN_SHARE = value("share.of_a_way")  # fraction of a block's threads for each direction


def collnet_chain(collective: Collective, plan: Plan, extent: Extent = ALL) -> Schedule:
    """Return an AllReduce over the chains of all channels."""
    output = Output(collective, extent=extent)
    keys = {w.channel: (plan.chains[w.channel], plan.doors[w.channel]) for w in plan.work}
    for distinct in distinct_channels(plan, keys, extent):
        work = distinct.work
        channel = PlannedChannel(plan, work.channel, distinct.multiplicity)
        nodes = plan.chains[work.channel]
        table = chunk_table(work, collective.element_bytes)
        cut = writing.segments(plan, collective.element_bytes, table, threads=CHAIN_SHARE)
        group = output.builder.group([order[0] for order in nodes])
        joined = (nodes, group, plan.doors[work.channel])

        def turn(
            channel: PlannedChannel = channel,
            cut: Segments = cut,
            joined: tuple[tuple[tuple[int, ...], ...], int, str] = joined,
        ) -> Turn:
            lines = Lines(channel, cut.subs, cut.slots, cut.first_chunk)
            return Turn(lines.woven, _Chains(lines, *joined).all())

        key = (*joined, *channel.key, cut.subs, cut.slots, cut.first_chunk, len(plan.work))
        output.add(remembered(collective, plan, key, turn), cut)
    return output.close()


@dataclass
class _Chains:
    """One channel while the rows of one chunk are written.

    - `nodes`: the chain of every node, beginning with its head.
    - `group`: the number of the group of all heads.
    - `door`: the route to the NIC.
    """

    lines: Lines
    nodes: tuple[tuple[int, ...], ...]
    group: int
    door: str

    def all(self) -> tuple[list[int], list[int]]:
        """Add all rows of a chunk; return the ranks and rows that end it."""
        network = Network(self.lines)
        heads = [order[0] for order in self.nodes]
        for sub in range(self.lines.subs):
            node_sums = [self._up(order, sub) for order in self.nodes]
            done = network.sum(self.group, heads, sub, node_sums, self.door)
            for order in self.nodes:
                network.take(done, self._down(order, sub))
        return self.lines.close()

    def _up(self, order: tuple[int, ...], sub: int) -> int:
        """Add the rows that reduce along a chain, from its last rank on; return the head's row."""
        below: tuple[int, int] | None = None
        for upper, rank in reversed(list(pairwise(order))):
            buffer = SCRATCH if below else IN
            made = Pass(
                buffer, SCRATCH, schedule.REDUCE_INPUT, 2 if below else 1, threads=CHAIN_SHARE
            )
            row = self.lines.send((rank, upper), sub, made)
            self._took(row, below, sub, "up", rank)
            below = (rank, upper)
        buffer = SCRATCH if below else IN
        head = order[0]
        made = Pass(buffer, SCRATCH, COPY, 2 if below else 1, 1, threads=CHAIN_SHARE)
        row = self.lines.woven.row(self.lines.channel.local(made), head, head, sub)
        self._took(row, below, sub, "up", head)
        return row

    def _down(self, order: tuple[int, ...], sub: int) -> list[int]:
        """Add the rows that send the result down a chain; return the head's rows."""
        lines = self.lines
        head = order[0]
        if len(order) == 1:
            made = Pass(SCRATCH, OUT, COPY, 1, 1, threads=CHAIN_SHARE)
            rows = [lines.woven.row(lines.channel.local(made), head, head, sub)]
        else:
            # One pass stores and sends, so that the copy costs nothing in addition.
            free = lines.channel.merge(OUT, COPY)
            rows = [lines.woven.row(free, head, head, sub)]
            rows.append(self._hand(order, 0, SCRATCH, sub))
        lines.done("down", head, rows)
        for place, rank in enumerate(order[1:], 1):
            last = rank == order[-1]
            row = self._store(rank, sub) if last else self._hand(order, place, OUT, sub)
            self._took(row, (order[place - 1], rank), sub, "down", rank)
        return rows

    def _hand(self, order: tuple[int, ...], place: int, buffer: int, sub: int) -> int:
        """Add a row that sends the result to the next rank of a chain.

        The next rank gets it in its output, or, if it is the last one and without `plan.direct`, in
        a FIFO.
        """
        hop = (order[place], order[place + 1])
        stored = hop[1] != order[-1] or self.lines.channel.plan.direct
        made = Pass(buffer, OUT if stored else SCRATCH, COPY, 1, 1, threads=CHAIN_SHARE)
        return self.lines.send(hop, sub, made)

    def _store(self, rank: int, sub: int) -> int:
        """Add the row by which the last rank of a chain has the result in its output."""
        channel = self.lines.channel
        woven = self.lines.woven
        if channel.plan.direct:
            return woven.row(channel.wait(), rank, rank, -1)
        kind = channel.local(Pass(SCRATCH, OUT, COPY, 1, 1, threads=CHAIN_SHARE))
        return woven.row(kind, rank, rank, sub)

    def _took(self, row: int, hop: tuple[int, int] | None, sub: int, lane: str, rank: int) -> None:
        """Append a row to a lane; it waits for the data of the hop and empties its slot, if any."""
        if hop is not None:
            self.lines.take([row], hop, sub)
        self.lines.done(lane, rank, [row])


# CollNetDirect: every rank sends each head of its node a part of its data, heads reduce their part
# in the node, and the network reduces the parts of all nodes. Four groups of threads of a block
# work at the same time: they scatter parts to heads, reduce, send results to ranks, and store
# results.


SUM_SHARE = value("share.of_a_sum")  # fraction of a block's threads in the group that reduces


def collnet_direct(collective: Collective, plan: Plan, extent: Extent = ALL) -> Schedule:
    """Return an AllReduce in which heads reduce in nodes, and the network between them."""
    output = Output(collective, extent=extent, keep=False)
    nodes = plan.nodes
    groups = [output.builder.group(same) for same in zip(*plan.heads, strict=True)]
    heads = len(plan.heads[0])
    for distinct in distinct_channels(plan, switch_keys(plan), extent):
        work = distinct.work
        cut = loop_segments(collective, work, heads, plan.slots, ALIGNMENT)
        channel = PlannedChannel(plan, work.channel, distinct.multiplicity)

        def turn(channel: PlannedChannel = channel) -> Turn:
            lines = Lines(channel, heads, plan.slots)
            return Turn(lines.woven, _Heads(lines, plan, nodes, groups).all())

        key = (*channel.key, heads, plan.slots, len(plan.work))
        output.add(remembered(collective, plan, key, turn), cut)
    return output.close()


@dataclass
class _Heads:
    """One channel of CollNetDirect while the rows of a loop are written.

    `groups` are the numbers of the groups of heads of all nodes with the same number.
    """

    lines: Lines
    plan: Plan
    nodes: list[tuple[int, ...]]
    groups: list[int]

    def all(self) -> tuple[list[int], list[int]]:
        """Add all rows of a loop; return the ranks and rows that end it."""
        network = Network(self.lines)
        numbers = range(len(self.nodes))
        for node in numbers:
            self._scatter(node)
        for h in range(self.lines.subs):
            node_sums = [self._reduce(node, h) for node in numbers]
            heads = [self.plan.heads[node][h] for node in numbers]
            done = network.sum(self.groups[h], heads, h, node_sums, self.plan.doors[h])
            for node in numbers:
                others = _others(self.nodes[node], heads[node])
                rows = _handed(self.lines, heads[node], others, h)
                network.take(done, rows)
        for node in numbers:
            self._store(node)
        return self.lines.close()

    def _scatter(self, node: int) -> None:
        """Add the rows by which the ranks of a node send each head its part."""
        for rank in self.nodes[node]:
            rows = []
            heads = [(h, head) for h, head in enumerate(self.plan.heads[node]) if head != rank]
            for h, head in heads:
                # The data of the first rank is reduced with that of the head, of others merged.
                first = _others(self.nodes[node], head)[0] == rank
                op = schedule.REDUCE_INPUT if first else COPY
                made = Pass(IN, SCRATCH, op, threads=self.plan.mechanism.copy_share / len(heads))
                rows.append(self.lines.send((rank, head), h, made))
            if rows:
                self.lines.done("scatter", rank, rows)

    def _reduce(self, node: int, h: int) -> int:
        """Add the rows by which head number `h` of a node reduces its part; return the last row."""
        lines = self.lines
        head = self.plan.heads[node][h]
        others = _others(self.nodes[node], head)
        merges: list[int] = []
        for rank in others[1:]:
            merge = lines.merge(head, h, [(others[0], head), (rank, head)])
            if merges:
                lines.woven.after(merge, merges[-1], IN_ORDER)
            merges.append(merge)
        buffer = SCRATCH if others else IN
        made = Pass(buffer, SCRATCH, COPY, 1 + len(others), 1, threads=SUM_SHARE)
        row = lines.woven.row(lines.channel.local(made), head, head, h)
        for rank in others:
            lines.take([row], (rank, head), h)
        if merges:
            lines.woven.after(row, merges[-1], IN_ORDER)
        lines.done("reduce", head, [row])
        return row

    def _store(self, node: int) -> None:
        """Add the rows by which every rank reads the parts of the other heads from its FIFOs."""
        heads = self.plan.heads[node]
        for rank in self.nodes[node]:
            others = [(h, head) for h, head in enumerate(heads) if head != rank]
            rows = [_taken(self.lines, (head, rank), h, len(others)) for h, head in others]
            if rows:
                self.lines.done("store", rank, rows)


def _handed(
    lines: Lines,
    head: int,
    others: Sequence[int],
    sub: int,
    *,
    base: int = 0,
    is_in_place: bool = False,
) -> list[int]:
    """Add the rows by which a head stores a part of the result and sends it to `others`.

    It sends into their FIFOs, or with `plan.direct` into their outputs. With `is_in_place` the part
    is in the head's output already. Returns the rows.
    """
    channel = lines.channel
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
    rows = [lines.woven.row(kind, head, head, segment, base=base)]
    made = Pass(SCRATCH, OUT if direct else SCRATCH, COPY, 1, 1, len(others), share)
    rows += [lines.send((head, rank), sub, made, base=base) for rank in others]
    lines.done("hand", head, rows)
    return rows


def _taken(lines: Lines, hop: tuple[int, int], sub: int, parts: int, base: int = 0) -> int:
    """Add the row by which a rank reads one of `parts` parts of the result from a FIFO.

    With `plan.direct` the part is in its output already, and the row only waits. Returns the row.
    """
    share = lines.channel.plan.mechanism.copy_share
    made = Pass(SCRATCH, OUT, COPY, 1, 1, threads=share / parts)
    kind = lines.channel.local(made)
    segment = sub
    if lines.channel.plan.direct:
        kind = lines.channel.wait()
        segment = -1
    row = lines.woven.row(kind, hop[1], hop[1], segment, base=base)
    lines.take([row], hop, sub)
    return row


def _others(ranks: Sequence[int], head: int) -> list[int]:
    """Return the ranks of a node without its head."""
    return [rank for rank in ranks if rank != head]


# AllGather and ReduceScatter with a network that multicasts and reduces: NVLS and CollNetDirect.
# Every rank is a head. Blocks of data move between the heads of all nodes with the same number, and
# between a head and the ranks of its node: with NVLS through NVSwitch, with CollNetDirect in passes
# from one to the other.


def network_blocks(collective: Collective, plan: Plan, extent: Extent = ALL) -> Schedule:
    """Return an AllGather or ReduceScatter with NVLS or CollNetDirect."""
    switched = plan.algorithm == "NVLS"
    keep = not switched and collective.name == "all_gather"
    output = Output(collective, extent=extent, keep=keep)
    inside = [output.builder.group(ranks) for ranks in plan.nodes] if switched else []
    across = [output.builder.group(same) for same in zip(*plan.heads, strict=True)]
    kind = _Switched if switched else _Direct
    for distinct in distinct_channels(plan, switch_keys(plan), extent):
        work = distinct.work
        channel = PlannedChannel(plan, work.channel, distinct.multiplicity)

        def turn(channel: PlannedChannel = channel) -> Turn:
            lines = Lines(channel, collective.ranks, plan.slots)
            made = kind(lines, plan, collective.count, across, inside)
            if collective.name == "all_gather":
                _gather(made)
            else:
                _reduce(made)
            return Turn(lines.woven, lines.close())

        key = (*channel.key, plan.slots, len(plan.work))
        written = remembered(collective, plan, key, turn)
        table = chunk_table(work, collective.element_bytes)
        offset, count = (np.repeat(x, collective.ranks + 1, 1) for x in table)
        count[:, -1] = 0
        output.add(written, Segments(offset, count, slots=plan.slots))
    return output.close()


@dataclass
class _Blocks:
    """One channel while the rows of a loop are written; subclasses move blocks inside nodes.

    `count` is the number of elements of a block of the complete call. For an AllGather, `hand` adds
    the rows by which a head sends a block to the ranks of its node, and `store` those by which the
    ranks store what heads sent. For a ReduceScatter, `give` adds the rows by which ranks send heads
    their parts of all blocks, and `sum` those by which a head reduces a block for its proxy; it
    returns their first and their last row.
    """

    lines: Lines
    plan: Plan
    count: int
    across: list[int]
    inside: list[int]

    def at(self, block: int) -> int:
        """Return the elements before a block."""
        return block * self.count


@dataclass
class _Switched(_Blocks):
    """Blocks that move between heads and ranks through NVSwitch.

    - `_rows`: by node and block, the row that multicasts the block.
    - `_copies_by_block`: by node and block, the rows that copy data to the switch's buffers.
    """

    _rows: dict[tuple[int, int], int] = field(default_factory=dict)
    _copies_by_block: dict[tuple[int, int], list[int]] = field(default_factory=dict)

    def hand(self, node: int, h: int, block: int) -> list[int]:
        head = self.plan.heads[node][h]
        out = OUT if self.plan.registered else SCRATCH
        kind = switch_kind(self.lines.channel, schedule.MULTICAST, SCRATCH, out)
        row = self.lines.woven.row(kind, head, self.inside[node], block, base=self.at(block))
        self.lines.done("hand", head, [row])
        self._rows[node, block] = row
        return [row]

    def store(self, node: int) -> None:
        self._copies(node, "take", (SCRATCH, OUT))

    def give(self, node: int) -> None:
        self._copies(node, "give", (IN, SCRATCH))

    def sum(self, node: int, h: int, block: int) -> tuple[int, int]:
        lines = self.lines
        head = self.plan.heads[node][h]
        buffer = IN if self.plan.registered else SCRATCH
        kind = switch_kind(lines.channel, SWITCH_REDUCE, buffer, SCRATCH)
        row = lines.woven.row(kind, self.inside[node], head, block, base=self.at(block))
        lines.read([row], self._copies_by_block[node, block], Lag(self.plan.mechanism.nvls_sync))
        lines.done("sum", head, [row])
        return row, row

    def _copies(self, node: int, lane: str, buffers: tuple[int, int]) -> None:
        """Add each rank's copies of all blocks between its buffer and that of the switch.

        The lane "give" copies to the switch, "take" from it. Registered buffers need no copy.
        """
        lines = self.lines
        registered = self.plan.registered
        kind = lines.channel.wait() if registered else lines.channel.staging(*buffers)
        for rank in self.plan.nodes[node]:
            rows = []
            for block in range(lines.subs):
                segment = -1 if registered else block
                row = lines.woven.row(kind, rank, rank, segment, base=self.at(block))
                rows.append(row)
                if lane == "give":
                    self._copies_by_block.setdefault((node, block), []).append(row)
                else:
                    sync = Lag(self.plan.mechanism.nvls_sync)
                    lines.read([row], [self._rows[node, block]], sync)
            lines.done(lane, rank, rows)


class _Direct(_Blocks):
    """Blocks that move in passes from heads to ranks and back."""

    def hand(self, node: int, h: int, block: int) -> list[int]:
        head = self.plan.heads[node][h]
        base = self.at(block)
        others = _others(self.plan.nodes[node], head)
        return _handed(self.lines, head, others, block, base=base, is_in_place=block == head)

    def store(self, node: int) -> None:
        for rank in self.plan.nodes[node]:
            for h, head in enumerate(self.plan.heads[node]):
                if head != rank:
                    blocks = [heads[h] for heads in self.plan.heads]
                    hop = (head, rank)
                    parts = len(blocks)
                    rows = [_taken(self.lines, hop, b, parts, self.at(b)) for b in blocks]
                    self.lines.done("store", rank, rows)

    def give(self, node: int) -> None:
        for rank in self.plan.nodes[node]:
            heads = [(h, head) for h, head in enumerate(self.plan.heads[node]) if head != rank]
            for blocks in self.plan.heads:  # a block belongs to the rank with its number
                share = self.plan.mechanism.copy_share / max(1, len(heads))
                made = Pass(IN, SCRATCH, COPY, threads=share)
                rows = [
                    self.lines.send((rank, head), blocks[h], made, base=self.at(blocks[h]))
                    for h, head in heads
                ]
                if rows:
                    self.lines.done("scatter", rank, rows)

    def sum(self, node: int, h: int, block: int) -> tuple[int, int]:
        lines = self.lines
        head = self.plan.heads[node][h]
        others = _others(self.plan.nodes[node], head)
        base = self.at(block)
        made = Pass(IN, SCRATCH, COPY, 1 + len(others), 1, threads=SUM_SHARE)
        kind = lines.channel.local(made)
        row = lines.woven.row(kind, head, head, block, base=base)
        last = row
        for rank in others:
            hop = (rank, head)
            merge = lines.merge(head, block, [hop], base=base)
            lines.woven.after(merge, last, IN_ORDER)
            lines.wait([row], hop, block)
            lines.take([merge], hop, block)
            last = merge
        lines.done("reduce", head, [row])
        return row, last


def _gather(blocks: "_Switched | _Direct") -> None:
    """Add the rows of an AllGather.

    The network multicasts the block of each head to its group; the heads send it to their nodes.
    """
    network = Network(blocks.lines)
    for h, group in enumerate(blocks.across):
        for heads in blocks.plan.heads:
            block = heads[h]
            base = blocks.at(block)
            door = blocks.plan.doors[h]
            kind = blocks.lines.channel.local(Pass(IN, SCRATCH, COPY, writes=1))
            row = blocks.lines.woven.row(kind, block, block, block, base=base)
            blocks.lines.done("give", block, [row])
            done = network.share(group, block, row, door, base)
            for node in range(len(blocks.plan.nodes)):
                network.take(done, blocks.hand(node, h, block))
    for node in range(len(blocks.plan.nodes)):
        blocks.store(node)


def _reduce(blocks: "_Switched | _Direct") -> None:
    """Add the rows of a ReduceScatter.

    Heads reduce a block in their nodes; the network reduces these sums for the block's rank.
    """
    network = Network(blocks.lines)
    for node in range(len(blocks.plan.nodes)):
        blocks.give(node)
    for h, group in enumerate(blocks.across):
        for heads in blocks.plan.heads:
            block = heads[h]
            base = blocks.at(block)
            sums = [blocks.sum(node, h, block) for node in range(len(blocks.plan.nodes))]
            last_rows = [last for _, last in sums]
            done = network.collect(group, block, last_rows, blocks.plan.doors[h], base)
            for first, _ in sums:
                credit = blocks.lines.channel.local_credit
                blocks.lines.woven.after(first, done.moved, credit, blocks.lines.slots)
            kind = blocks.lines.channel.local(Pass(SCRATCH, OUT, COPY, 1, 1))
            row = blocks.lines.woven.row(kind, block, block, block, base=base)
            network.take(done, [row])
            blocks.lines.done("store", block, [row])
