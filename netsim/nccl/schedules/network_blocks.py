"""AllGather and ReduceScatter where the network shares and adds up: NVLS and CollNetDirect.

Every rank is a head. Blocks travel between heads of one number on all nodes, and between a head
and the ranks of its node: through their NVSwitch, or in passes from one to the other.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field

import numpy as np

from netsim.collectives.collective import Collective
from netsim.constants import value
from netsim.nccl.schedules.cuts import chunk_table
from netsim.nccl.schedules.hops import Channel, Pass
from netsim.nccl.schedules.lines import Lines
from netsim.nccl.schedules.network import Network
from netsim.nccl.schedules.nvls import switch_kind
from netsim.nccl.schedules.output import Output, Turn, remembered
from netsim.nccl.schedules.plan import Plan, Work, folded
from netsim.nccl.schedules.weave import Place, Segments
from netsim.schedule import (
    COPY,
    IN,
    IN_ORDER,
    MULTICAST,
    OUT,
    REDUCE,
    SCRATCH,
    SWITCH_REDUCE,
    Lag,
    Schedule,
)

SHARE = value("share.of_a_task")  # of a block's threads, for each task of CollNetDirect


def network_blocks(collective: Collective, plan: Plan) -> Schedule:
    """AllGather or ReduceScatter over all channels."""
    switched = plan.algorithm == "NVLS"
    keep = not switched and collective.name == "all_gather"
    output = Output(collective, places=plan.places, keep=keep)
    inside = [output.builder.group(ranks) for ranks in plan.nodes] if switched else []
    across = [output.builder.group(same) for same in zip(*plan.heads, strict=True)]
    kind, nodes = _Switched if switched else _Direct, plan.nodes
    regions = 2 * len(nodes) + collective.ranks * max(len(ranks) for ranks in nodes)
    for work, multiplicity in folded(plan, dict.fromkeys((w.channel for w in plan.work), 0)):
        channel = Channel(plan, work.channel, multiplicity)

        def turn(channel: Channel = channel) -> Turn:
            lines = Lines(channel, collective.ranks, plan.slots)
            made = kind(lines, plan, collective.count, across, inside)
            made.gather() if collective.name == "all_gather" else made.reduce()
            return Turn(lines.woven, lines.close())

        key = (*channel.key, plan.slots, len(plan.work))
        written = remembered(collective, plan, key, turn)
        output.add(written, _segments(collective, plan, work), regions)
    return output.close()


def _segments(collective: Collective, plan: Plan, work: Work) -> Segments:
    """The same part of every block in each loop; the last segment is for rows that only wait."""
    table = chunk_table(work, collective.element_bytes)
    offset, count = (np.repeat(x, collective.ranks + 1, 1) for x in table)
    count[:, -1] = 0
    return Segments(offset, count, 0 * offset, slots=plan.slots)


@dataclass
class _Blocks(ABC):
    """One channel while the rows of a loop are written; blocks have the numbers of their ranks.

    `count` is the elements of a block of the whole call.
    """

    lines: Lines
    plan: Plan
    count: int
    across: list[int]
    inside: list[int]
    network: Network = field(init=False)
    nodes: list[tuple[int, ...]] = field(init=False)

    def __post_init__(self) -> None:
        n = len(self.plan.heads)
        self.nodes = self.plan.nodes
        self.network = Network(self.lines, 0, -1, n)  # a FIFO for each node, out and in
        self.first = 2 * n

    @abstractmethod
    def hand(self, node: int, h: int, block: int) -> list[int]:
        """A head gives a block that it has found to its node; returns its rows."""

    @abstractmethod
    def store(self, node: int) -> None:
        """The ranks of a node take out what heads gave them."""

    @abstractmethod
    def give(self, node: int) -> None:
        """The ranks of a node give heads their parts of all blocks."""

    @abstractmethod
    def sum(self, node: int, h: int, block: int) -> tuple[int, int]:
        """A head adds up its node's parts of a block for its proxy; returns first and last row."""

    def gather(self) -> None:
        """Every head shares its own block; all hand on what they find."""
        for h, group in enumerate(self.across):
            for number, heads in enumerate(self.plan.heads):
                block, made = heads[h], Pass(IN, SCRATCH, COPY, writes=1)
                kind = self.lines.channel.local(made)
                row = self.lines.woven.row(
                    kind, block, block, block, target=Place(0, self.network.given)
                )
                self.lines.done("give", block, [row])
                done = self.network.share(group, block, block, row, self.plan.doors[h], number)
                for node in range(len(self.nodes)):
                    self.network.take(done, self.hand(node, h, block))
        for node in range(len(self.nodes)):
            self.store(node)

    def reduce(self) -> None:
        """Heads add up their nodes' parts; the network adds those up for the owner of a block."""
        for node in range(len(self.nodes)):
            self.give(node)
        for h, group in enumerate(self.across):
            for number, heads in enumerate(self.plan.heads):
                block = heads[h]
                sums = [self.sum(node, h, block) for node in range(len(self.nodes))]
                given, door = [last for _, last in sums], self.plan.doors[h]
                done = self.network.collect(group, block, block, given, door, number)
                for first, _ in sums:
                    credit = self.lines.channel.local_credit
                    self.lines.woven.after(first, done.moved, credit, self.lines.slots)
                kind = self.lines.channel.local(Pass(SCRATCH, OUT, COPY, 1, 1))
                found = Place(0, self.network.found)
                row = self.lines.woven.row(kind, block, block, block, source=found)
                self.network.take(done, [row])
                self.lines.done("store", block, [row])

    def at(self, block: int) -> Place:
        """Where a block lies among all blocks."""
        return Place(block * self.count)

    def home(self, block: int) -> int:
        """The node of the rank whose block it is."""
        return self.plan.node[block]


class _Switched(_Blocks):
    """Heads and ranks of a node joined by an NVSwitch that adds up and hands out."""

    def hand(self, node: int, h: int, block: int) -> list[int]:
        head, registered = self.plan.heads[node][h], self.plan.registered
        kind = switch_kind(self.lines.channel, MULTICAST, SCRATCH, OUT if registered else SCRATCH)
        target = self.at(block) if registered else Place(0, self.first + block)
        source = Place(0, self.network.found + self.home(block))
        group = self.inside[node]
        row = self.lines.woven.row(kind, head, group, block, source=source, target=target)
        self.lines.done("hand", head, [row])
        self._rows[node, block] = row
        return [row]

    def store(self, node: int) -> None:
        self._copies(node, "take", (SCRATCH, OUT))

    def give(self, node: int) -> None:
        self._copies(node, "give", (IN, SCRATCH))

    def sum(self, node: int, h: int, block: int) -> tuple[int, int]:
        lines, head, registered = self.lines, self.plan.heads[node][h], self.plan.registered
        kind = switch_kind(lines.channel, SWITCH_REDUCE, IN if registered else SCRATCH, SCRATCH)
        source = self.at(block) if registered else Place(0, self.first + block)
        target = Place(0, self.network.given + self.home(block))
        row = lines.woven.row(kind, self.inside[node], head, block, source=source, target=target)
        for one in self._given[node, block]:
            lines.woven.after(row, one, Lag(self.plan.mechanism.nvls_sync))
            lines.woven.after(one, row, IN_ORDER, lines.slots)
        lines.done("sum", head, [row])
        return row, row

    def __post_init__(self) -> None:
        super().__post_init__()
        self._rows: dict[tuple[int, int], int] = {}
        self._given: dict[tuple[int, int], list[int]] = {}

    def _copies(self, node: int, lane: str, buffers: tuple[int, int]) -> None:
        """Every rank's pass between its own buffer and its switch's, over all blocks."""
        lines, registered = self.lines, self.plan.registered
        kind = lines.channel.wait() if registered else lines.channel.staging(*buffers)
        for rank in self.nodes[node]:
            rows = []
            for block in range(lines.subs):
                ends = [self.at(block), Place(0, self.first + block)]
                source, target = ends if lane == "give" else ends[::-1]
                segment = -1 if registered else block
                row = lines.woven.row(kind, rank, rank, segment, source=source, target=target)
                rows.append(row)
                if lane == "give":
                    self._given.setdefault((node, block), []).append(row)
                else:
                    before = self._rows[node, block]
                    lines.woven.after(row, before, Lag(self.plan.mechanism.nvls_sync))
                    lines.woven.after(before, row, IN_ORDER, lines.slots)
            lines.done(lane, rank, rows)


class _Direct(_Blocks):
    """Heads and ranks of a node that send to one another."""

    def _others(self, node: int, h: int) -> list[int]:
        return [rank for rank in self.nodes[node] if rank != self.plan.heads[node][h]]

    def hand(self, node: int, h: int, block: int) -> list[int]:
        head, others, direct = self.plan.heads[node][h], self._others(node, h), self.plan.direct
        channel, found = self.lines.channel, Place(0, self.network.found + self.home(block))
        if others:  # with them, the copy is part of the pass that sends
            kind = channel.merge(OUT, COPY)
        else:
            kind = channel.local(Pass(SCRATCH, OUT, COPY, 1, 1, threads=SHARE))
        segment = block
        if block == head:  # what is its own is in place already
            kind, segment = channel.wait(), -1
        at = self.at(block)
        rows = [self.lines.woven.row(kind, head, head, segment, source=found, target=at)]
        for rank in others:
            made = Pass(SCRATCH, OUT if direct else SCRATCH, COPY, 1, 1, len(others), SHARE)
            target = self.at(block) if direct else Place(0, self.first + block)
            rows.append(self.lines.send((head, rank), block, made, source=found, target=target))
        self.lines.done("hand", head, rows)
        return rows

    def store(self, node: int) -> None:
        channel, heads = self.lines.channel, self.plan.heads[node]
        for rank in self.nodes[node]:
            for h, head in enumerate(heads):
                rows = [self._taken(channel, rank, head, one[h]) for one in self.plan.heads]
                if head != rank:
                    self.lines.done("store", rank, rows)

    def _taken(self, channel: Channel, rank: int, head: int, block: int) -> int:
        if head == rank:
            return -1
        made = Pass(SCRATCH, OUT, COPY, 1, 1, threads=SHARE / len(self.plan.heads))
        kind, segment = channel.local(made), block
        if self.plan.direct:
            kind, segment = channel.wait(), -1
        source, target = Place(0, self.first + block), self.at(block)
        row = self.lines.woven.row(kind, rank, rank, segment, source=source, target=target)
        self.lines.take([row], (head, rank), block)
        return row

    def give(self, node: int) -> None:
        for rank in self.nodes[node]:
            heads = [(h, head) for h, head in enumerate(self.plan.heads[node]) if head != rank]
            for own in self.plan.heads:
                rows = []
                for h, head in heads:
                    number = self._others(node, h).index(rank)
                    made = Pass(IN, SCRATCH, COPY, threads=SHARE / len(heads))
                    target = Place(0, self._fifo(own[h], number))
                    rows.append(
                        self.lines.send(
                            *((rank, head), own[h], made), source=self.at(own[h]), target=target
                        )
                    )
                if rows:
                    self.lines.done("scatter", rank, rows)

    def _fifo(self, block: int, number: int) -> int:
        """The FIFO of a head for a block's parts of one of the other ranks."""
        return self.first + number * self.lines.subs + block

    def sum(self, node: int, h: int, block: int) -> tuple[int, int]:
        lines, head, others = self.lines, self.plan.heads[node][h], self._others(node, h)
        target = Place(0, self.network.given + self.home(block))
        made = Pass(IN, SCRATCH, COPY, 1 + len(others), 1, threads=SHARE)
        kind = lines.channel.local(made)
        row = lines.woven.row(kind, head, head, block, source=self.at(block), target=target)
        last = row
        for number, rank in enumerate(others):
            places = Place(0, self._fifo(block, number)), target
            hop = (rank, head)
            merge = lines.merge(head, block, Pass(SCRATCH, SCRATCH, REDUCE), *places, [hop])
            lines.woven.after(merge, last, IN_ORDER)
            lines.wait([row], hop, block)
            lines.take([merge], hop, block)
            last = merge
        lines.done("reduce", head, [row])
        return row, last
