"""Sums in the switches of a network (SHARP): operations of the proxies of some heads.

A head gives its data to its proxy, switches add up what all heads of a group send, and the sum
comes to all of them while it still goes in. It lies in a FIFO of every head's until it is taken."""

from collections.abc import Sequence
from dataclasses import field, replace
from itertools import pairwise
from typing import Any

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

# Ways of rows through switches that reduce; the way to a NIC follows.
STREAMED = "sharp-all:"  # up to the root and down to everyone at once; the hand-out is part of it
SINGLE = "sharp:"  # from everyone to one, or from one to everyone
# Channels whose data NCCL's proxies give to the network as one operation.
GROUP = int(value("collnet.group"))


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation of a group: the row that moves the data, the row by which it is there, and
    from the end of that how long until a block may use it."""

    moved: int
    handed: int
    lag: Lag = schedule.ARRIVED


@dataclass(frozen=True)
class Network:
    """The network operations of one channel."""

    lines: Lines

    def sum(
        self, group: int, heads: Sequence[int], sub: int, given: Sequence[int], door: str
    ) -> Operation:
        """Add up what the rows `given` have put into the FIFOs of heads, for all of them."""
        lines, lead = self.lines, heads[0]
        move = self._moves(SWITCH_REDUCE, STREAMED + door)
        hand = RowKind(self._style(schedule.MULTICAST, STREAMED + door, FREE))
        moved = lines.woven.row(move, group, lead, sub)
        handed = lines.woven.row(hand, lead, group, sub)
        lines.woven.after(handed, moved, self._arrival)
        lines.woven.after(moved, handed, IN_ORDER, lines.slots)
        self._give(moved, given)
        lines.done("network", lead, [moved])
        return Operation(moved, handed)

    def share(self, group: int, one: int, given: int, door: str, base: int) -> Operation:
        """Give what a row has put into the FIFO of one head, its block, to all heads of its group.
        It lies `base` elements from the first block."""
        kind = self._moves(schedule.MULTICAST, SINGLE + door)
        moved = self.lines.woven.row(kind, one, group, one, base=base)
        return self._single(one, moved, [given])

    def collect(
        self, group: int, one: int, given: Sequence[int], door: str, base: int
    ) -> Operation:
        """Add up for one head what rows of all have put into FIFOs for it: its block."""
        kind = self._moves(SWITCH_REDUCE, SINGLE + door)
        moved = self.lines.woven.row(kind, group, one, one, base=base)
        return self._single(one, moved, given)

    def _single(self, one: int, moved: int, given: Sequence[int]) -> Operation:
        self._give(moved, given)
        self.lines.done("network", one, [moved])
        return Operation(moved, moved, self._arrival)

    def take(self, operation: Operation, rows: Sequence[int]) -> None:
        """Let rows take the sum out of a FIFO; the next operation on that slot waits for them."""
        woven, credit = self.lines.woven, self.lines.channel.plan.mechanism.network.credit
        for row in rows:
            woven.after(row, operation.handed, operation.lag)
            woven.after(operation.moved, row, Lag(credit, arrival=False), self.lines.slots)

    def _give(self, moved: int, given: Sequence[int]) -> None:
        """Let an operation wait for what heads give, and free their FIFOs."""
        channel, woven = self.lines.channel, self.lines.woven
        for row in given:
            woven.after(moved, row, replace(channel.noticed, arrival=True))
            woven.after(row, moved, channel.local_credit, self.lines.slots)

    @property
    def _arrival(self) -> Lag:
        """From the end of an operation's traffic until a block may use the result."""
        network = self.lines.channel.plan.mechanism.network
        return Lag(network.reduction + network.delivery.simple)

    def _moves(self, kind: int, route: str) -> RowKind:
        """The traffic of an operation, which its proxies post and NICs send."""
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
        ends: dict[str, Any] = {"src_buffer": SCRATCH, "dst_buffer": SCRATCH, "route": route}
        return schedule.Style(kind, **ends, **self.lines.channel.tags, uses=(use,))


# NVLS over several nodes whose network reduces: switches add up within nodes and between them.
# Heads read the sums of their nodes, give them to the network, and store what comes back in their
# nodes again.


def nvls_network(collective: Collective, plan: Plan, extent: Extent = ALL) -> Schedule:
    """AllReduce over all channels."""
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
    """Nodes joined by the switches of the network; `across` are groups of heads of one number."""

    across: list[int] | None = None

    def all(self) -> tuple[list[int], list[int]]:
        """All rows of a loop; the ranks and rows that end it."""
        network = Network(self.lines)
        numbers = range(len(self.nodes))
        assert self.across is not None
        gives = [self.copies("give", node) for node in numbers]
        for h, group in enumerate(self.across):
            given = [self.sum(node, h, gives[node]) for node in numbers]
            heads = [self.head(node, h) for node in numbers]
            done = network.sum(group, heads, h, given, self.plan.doors[h])
            for node in numbers:
                row = self.store(node, h)
                network.take(done, [row])
                self.lines.done("store", self.head(node, h), [row])
        for node in numbers:
            self.hand_out(node)
        return self.lines.close()


# CollNetChain: chains reduce inside nodes, switches of the network add up, chains hand out.
# The first rank of each chain, its head, gives the sum of its node to the network and hands the sum
# of all down the chain again; both ways at once, by a group of threads each.

CHAIN_SHARE = value("share.of_a_way")  # of a block's threads, for each direction


def collnet_chain(collective: Collective, plan: Plan, extent: Extent = ALL) -> Schedule:
    """AllReduce over all channels' chains."""
    output = Output(collective, extent=extent)
    keys = {w.channel: (plan.chains[w.channel], plan.doors[w.channel]) for w in plan.work}
    for distinct in distinct_channels(plan, keys, extent):
        work = distinct.work
        channel, nodes = (
            PlannedChannel(plan, work.channel, distinct.multiplicity),
            plan.chains[work.channel],
        )
        table = chunk_table(work, collective.element_bytes)
        cut = writing.segments(plan, collective.element_bytes, table, threads=CHAIN_SHARE)
        group = output.builder.group([order[0] for order in nodes])
        joined = (nodes, group, plan.doors[work.channel])

        def turn(
            channel: PlannedChannel = channel,
            cut: Segments = cut,
            joined: tuple[tuple[tuple[int, ...], ...], int, str] = joined,
        ) -> Turn:
            lines = Lines(channel, cut.subs, cut.slots, cut.whole)
            return Turn(lines.woven, _Chains(lines, *joined).all())

        key = (*joined, *channel.key, cut.subs, cut.slots, cut.whole, len(plan.work))
        output.add(remembered(collective, plan, key, turn), cut)
    return output.close()


@dataclass
class _Chains:
    """One channel while the rows of one chunk are written; `nodes` are chains from the head on."""

    lines: Lines
    nodes: tuple[tuple[int, ...], ...]
    group: int
    door: str

    def all(self) -> tuple[list[int], list[int]]:
        """All rows of a chunk; the ranks and rows that end it."""
        network, heads = Network(self.lines), [order[0] for order in self.nodes]
        for sub in range(self.lines.subs):
            given = [self._up(order, sub) for order in self.nodes]
            done = network.sum(self.group, heads, sub, given, self.door)
            for order in self.nodes:
                network.take(done, self._down(order, sub))
        return self.lines.close()

    def _up(self, order: tuple[int, ...], sub: int) -> int:
        """Reduce along a chain, last rank first; returns the head's row."""
        below: tuple[int, int] | None = None
        for upper, rank in reversed(list(pairwise(order))):
            buffer = SCRATCH if below else IN
            made = Pass(
                buffer, SCRATCH, schedule.REDUCE_INPUT, 2 if below else 1, threads=CHAIN_SHARE
            )
            row = self.lines.send((rank, upper), sub, made)
            self._took(row, below, sub, "up", rank)
            below = (rank, upper)
        buffer, head = SCRATCH if below else IN, order[0]
        made = Pass(buffer, SCRATCH, COPY, 2 if below else 1, 1, threads=CHAIN_SHARE)
        row = self.lines.woven.row(self.lines.channel.local(made), head, head, sub)
        self._took(row, below, sub, "up", head)
        return row

    def _down(self, order: tuple[int, ...], sub: int) -> list[int]:
        """Hand the sum of all down a chain; returns the head's rows."""
        lines, head = self.lines, order[0]
        if len(order) == 1:
            made = Pass(SCRATCH, OUT, COPY, 1, 1, threads=CHAIN_SHARE)
            rows = [lines.woven.row(lines.channel.local(made), head, head, sub)]
        else:
            # One pass stores and sends: the copy is part of it.
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
        """Store what came and send it on; a rank that sends it on finds it in its output."""
        hop = (order[place], order[place + 1])
        stored = hop[1] != order[-1] or self.lines.channel.plan.direct
        made = Pass(buffer, OUT if stored else SCRATCH, COPY, 1, 1, threads=CHAIN_SHARE)
        return self.lines.send(hop, sub, made)

    def _store(self, rank: int, sub: int) -> int:
        channel, woven = self.lines.channel, self.lines.woven
        if channel.plan.direct:
            return woven.row(channel.wait(), rank, rank, -1)
        kind = channel.local(Pass(SCRATCH, OUT, COPY, 1, 1, threads=CHAIN_SHARE))
        return woven.row(kind, rank, rank, sub)

    def _took(self, row: int, hop: tuple[int, int] | None, sub: int, lane: str, rank: int) -> None:
        if hop is not None:
            self.lines.take([row], hop, sub)
        self.lines.done(lane, rank, [row])


# CollNetDirect: every rank gives each head of its node a part, the network adds up the parts.
# Four groups of threads of a block work at once: scattering to heads, reducing, handing the sums of
# all nodes out, and storing them.


SUM_SHARE = value("share.of_a_sum")  # of a block's threads, for the group that reduces


def collnet_direct(collective: Collective, plan: Plan, extent: Extent = ALL) -> Schedule:
    """AllReduce over all channels."""
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
    """One channel while the rows of a loop are written; groups are heads of one number."""

    lines: Lines
    plan: Plan
    nodes: list[tuple[int, ...]]
    groups: list[int]

    def all(self) -> tuple[list[int], list[int]]:
        """All rows of a loop; the ranks and rows that end it."""
        network, numbers = Network(self.lines), range(len(self.nodes))
        for node in numbers:
            self._scatter(node)
        for h in range(self.lines.subs):
            given = [self._reduce(node, h) for node in numbers]
            heads = [self.plan.heads[node][h] for node in numbers]
            done = network.sum(self.groups[h], heads, h, given, self.plan.doors[h])
            for node in numbers:
                others = _others(self.nodes[node], heads[node])
                rows = _handed(self.lines, heads[node], others, h)
                network.take(done, rows)
        for node in numbers:
            self._store(node)
        return self.lines.close()

    def _scatter(self, node: int) -> None:
        for rank in self.nodes[node]:
            rows = []
            heads = [(h, head) for h, head in enumerate(self.plan.heads[node]) if head != rank]
            for h, head in heads:
                first = _others(self.nodes[node], head)[0] == rank  # is added to the head's own
                op = schedule.REDUCE_INPUT if first else COPY
                made = Pass(IN, SCRATCH, op, threads=self.plan.mechanism.copy_share / len(heads))
                rows.append(self.lines.send((rank, head), h, made))
            if rows:
                self.lines.done("scatter", rank, rows)

    def _reduce(self, node: int, h: int) -> int:
        lines, head = self.lines, self.plan.heads[node][h]
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
        """Every rank takes the parts of the other heads out of its FIFOs, in one pass."""
        heads = self.plan.heads[node]
        for rank in self.nodes[node]:
            others = [(h, head) for h, head in enumerate(heads) if head != rank]
            rows = [_taken(self.lines, (head, rank), h, len(others)) for h, head in others]
            if rows:
                self.lines.done("store", rank, rows)


def _handed(
    lines: Lines, head: int, others: Sequence[int], sub: int, *, base: int = 0, own: bool = False
) -> list[int]:
    """A head stores a part of the result that it has found and sends it to the others of its node,
    into their FIFOs or right where it belongs."""
    channel, direct = lines.channel, lines.channel.plan.direct
    share = channel.plan.mechanism.copy_share
    # With others the copy is part of the pass that sends.
    alone = channel.local(Pass(SCRATCH, OUT, COPY, 1, 1, threads=share))
    kind, segment = channel.merge(OUT, COPY) if others else alone, sub
    if own:  # it is in place already
        kind, segment = channel.wait(), -1
    rows = [lines.woven.row(kind, head, head, segment, base=base)]
    made = Pass(SCRATCH, OUT if direct else SCRATCH, COPY, 1, 1, len(others), share)
    rows += [lines.send((head, rank), sub, made, base=base) for rank in others]
    lines.done("hand", head, rows)
    return rows


def _taken(lines: Lines, hop: tuple[int, int], sub: int, parts: int, base: int = 0) -> int:
    """A rank takes one of `parts` parts that heads sent out of a FIFO."""
    share = lines.channel.plan.mechanism.copy_share
    made = Pass(SCRATCH, OUT, COPY, 1, 1, threads=share / parts)
    kind, segment = lines.channel.local(made), sub
    if lines.channel.plan.direct:
        kind, segment = lines.channel.wait(), -1
    row = lines.woven.row(kind, hop[1], hop[1], segment, base=base)
    lines.take([row], hop, sub)
    return row


def _others(ranks: Sequence[int], head: int) -> list[int]:
    return [rank for rank in ranks if rank != head]


# AllGather and ReduceScatter where the network shares and adds up: NVLS and CollNetDirect.
# Every rank is a head. Blocks travel between heads of one number on all nodes, and between a head
# and the ranks of its node: through their NVSwitch, or in passes from one to the other.


def network_blocks(collective: Collective, plan: Plan, extent: Extent = ALL) -> Schedule:
    """AllGather or ReduceScatter over all channels."""
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
            (_gather if collective.name == "all_gather" else _reduce)(made)
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
    """One channel while a loop is written; `count` is of a block of the whole call. In each node a
    head can `hand` a block that it has found to the ranks, which `store` what heads gave them; or
    they `give` heads their parts of all blocks, of which each can `sum` one up for its proxy (its
    first and last row)."""

    lines: Lines
    plan: Plan
    count: int
    across: list[int]
    inside: list[int]

    def at(self, block: int) -> int:
        """Where a block lies among all blocks."""
        return block * self.count


@dataclass
class _Switched(_Blocks):
    """Heads and ranks of a node joined by an NVSwitch that adds up and hands out."""

    _rows: dict[tuple[int, int], int] = field(default_factory=dict)
    _given: dict[tuple[int, int], list[int]] = field(default_factory=dict)

    def hand(self, node: int, h: int, block: int) -> list[int]:
        head, out = self.plan.heads[node][h], OUT if self.plan.registered else SCRATCH
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
        lines, head = self.lines, self.plan.heads[node][h]
        buffer = IN if self.plan.registered else SCRATCH
        kind = switch_kind(lines.channel, SWITCH_REDUCE, buffer, SCRATCH)
        row = lines.woven.row(kind, self.inside[node], head, block, base=self.at(block))
        lines.read([row], self._given[node, block], Lag(self.plan.mechanism.nvls_sync))
        lines.done("sum", head, [row])
        return row, row

    def _copies(self, node: int, lane: str, buffers: tuple[int, int]) -> None:
        """Every rank's pass between its own buffer and its switch's, over all blocks."""
        lines, registered = self.lines, self.plan.registered
        kind = lines.channel.wait() if registered else lines.channel.staging(*buffers)
        for rank in self.plan.nodes[node]:
            rows = []
            for block in range(lines.subs):
                segment = -1 if registered else block
                row = lines.woven.row(kind, rank, rank, segment, base=self.at(block))
                rows.append(row)
                if lane == "give":
                    self._given.setdefault((node, block), []).append(row)
                else:
                    sync = Lag(self.plan.mechanism.nvls_sync)
                    lines.read([row], [self._rows[node, block]], sync)
            lines.done(lane, rank, rows)


class _Direct(_Blocks):
    """Heads and ranks of a node that send to one another."""

    def hand(self, node: int, h: int, block: int) -> list[int]:
        head, base = self.plan.heads[node][h], self.at(block)
        others = _others(self.plan.nodes[node], head)
        return _handed(self.lines, head, others, block, base=base, own=block == head)

    def store(self, node: int) -> None:
        for rank in self.plan.nodes[node]:
            for h, head in enumerate(self.plan.heads[node]):
                if head != rank:
                    blocks, hop = [one[h] for one in self.plan.heads], (head, rank)
                    parts = len(blocks)
                    rows = [_taken(self.lines, hop, b, parts, self.at(b)) for b in blocks]
                    self.lines.done("store", rank, rows)

    def give(self, node: int) -> None:
        for rank in self.plan.nodes[node]:
            heads = [(h, head) for h, head in enumerate(self.plan.heads[node]) if head != rank]
            for own in self.plan.heads:
                share = self.plan.mechanism.copy_share / max(1, len(heads))
                made = Pass(IN, SCRATCH, COPY, threads=share)
                rows = [
                    self.lines.send((rank, head), own[h], made, base=self.at(own[h]))
                    for h, head in heads
                ]
                if rows:
                    self.lines.done("scatter", rank, rows)

    def sum(self, node: int, h: int, block: int) -> tuple[int, int]:
        lines, head = self.lines, self.plan.heads[node][h]
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
    """Every head shares its own block; all hand on what they find."""
    network = Network(blocks.lines)
    for h, group in enumerate(blocks.across):
        for heads in blocks.plan.heads:
            block = heads[h]
            base, door = blocks.at(block), blocks.plan.doors[h]
            kind = blocks.lines.channel.local(Pass(IN, SCRATCH, COPY, writes=1))
            row = blocks.lines.woven.row(kind, block, block, block, base=base)
            blocks.lines.done("give", block, [row])
            done = network.share(group, block, row, door, base)
            for node in range(len(blocks.plan.nodes)):
                network.take(done, blocks.hand(node, h, block))
    for node in range(len(blocks.plan.nodes)):
        blocks.store(node)


def _reduce(blocks: "_Switched | _Direct") -> None:
    """Heads add up their nodes' parts; the network adds those up for the owner of a block."""
    network = Network(blocks.lines)
    for node in range(len(blocks.plan.nodes)):
        blocks.give(node)
    for h, group in enumerate(blocks.across):
        for heads in blocks.plan.heads:
            block = heads[h]
            base = blocks.at(block)
            sums = [blocks.sum(node, h, block) for node in range(len(blocks.plan.nodes))]
            given, door = [last for _, last in sums], blocks.plan.doors[h]
            done = network.collect(group, block, given, door, base)
            for first, _ in sums:
                credit = blocks.lines.channel.local_credit
                blocks.lines.woven.after(first, done.moved, credit, blocks.lines.slots)
            kind = blocks.lines.channel.local(Pass(SCRATCH, OUT, COPY, 1, 1))
            row = blocks.lines.woven.row(kind, block, block, block, base=base)
            network.take(done, [row])
            blocks.lines.done("store", block, [row])
