"""CollNetDirect: every rank gives each head of its node a part, the network adds up the parts.

Four groups of threads of a block work at once: scattering to heads, reducing, handing the sums of
all nodes out, and storing them.
"""

from dataclasses import dataclass, field

from netsim.collectives.collective import Collective
from netsim.constants import value
from netsim.nccl.schedules.hops import Channel, Pass
from netsim.nccl.schedules.lines import Lines
from netsim.nccl.schedules.network import Network
from netsim.nccl.schedules.nvls import loop_segments
from netsim.nccl.schedules.output import Output, Turn, remembered
from netsim.nccl.schedules.plan import Plan, folded
from netsim.nccl.schedules.weave import USER, Place
from netsim.nccl.split import ALIGNMENT
from netsim.schedule import COPY, IN, IN_ORDER, OUT, REDUCE, REDUCE_INPUT, SCRATCH, Schedule

GIVEN, SUMMED, FOUND, FIRST = 0, 1, 2, 3  # then FIFOs from local ranks, then from heads
SHARE = value("share.of_a_task")  # of a block's threads, for each of its four tasks


def collnet_direct(collective: Collective, plan: Plan) -> Schedule:
    """AllReduce over all channels."""
    output = Output(collective, places=plan.places, keep=False)
    nodes = plan.nodes
    groups = [output.builder.group(same) for same in zip(*plan.heads, strict=True)]
    widest, heads = max(len(ranks) for ranks in nodes), len(plan.heads[0])
    for work, multiplicity in folded(plan, dict.fromkeys((w.channel for w in plan.work), 0)):
        cut = loop_segments(collective, work, heads, plan.slots, ALIGNMENT)
        channel = Channel(plan, work.channel, multiplicity)

        def turn(channel: Channel = channel) -> Turn:
            lines = Lines(channel, heads, plan.slots)
            return Turn(lines.woven, _Heads(lines, plan, nodes, groups).all())

        key = (*channel.key, heads, plan.slots, len(plan.work))
        output.add(remembered(collective, plan, key, turn), cut, FIRST + widest + heads)
    return output.close()


@dataclass
class _Heads:
    """One channel while the rows of a loop are written; groups are heads of one number."""

    lines: Lines
    plan: Plan
    nodes: list[tuple[int, ...]]
    groups: list[int]
    network: Network = field(init=False)

    def __post_init__(self) -> None:
        self.network = Network(self.lines, GIVEN, SUMMED, FOUND)
        self.widest = max(len(ranks) for ranks in self.nodes)

    def all(self) -> tuple[list[int], list[int]]:
        """All rows of a loop; the ranks and rows that end it."""
        numbers = range(len(self.nodes))
        for node in numbers:
            self._scatter(node)
        for h in range(self.lines.subs):
            given = [self._reduce(node, h) for node in numbers]
            heads = [self.plan.heads[node][h] for node in numbers]
            done = self.network.sum(self.groups[h], heads, h, given, self.plan.doors[h])
            for node in numbers:
                self.network.take(done, self._hand(node, h))
        for node in numbers:
            self._store(node)
        return self.lines.close()

    def _others(self, node: int, h: int) -> list[int]:
        """The ranks of a node without one head."""
        return [rank for rank in self.nodes[node] if rank != self.plan.heads[node][h]]

    def _scatter(self, node: int) -> None:
        """Every rank sends each head its part, in one pass."""
        for rank in self.nodes[node]:
            rows = []
            heads = [(h, head) for h, head in enumerate(self.plan.heads[node]) if head != rank]
            for h, head in heads:
                number = self._others(node, h).index(rank)
                op = COPY if number else REDUCE_INPUT  # the first is added to the head's own
                made = Pass(IN, SCRATCH, op, threads=SHARE / len(heads))
                target = Place(0, FIRST + number)
                rows.append(self.lines.send((rank, head), h, made, target=target))
            if rows:
                self.lines.done("scatter", rank, rows)

    def _reduce(self, node: int, h: int) -> int:
        """A head adds up its part of all ranks of its node and gives it to its proxy."""
        lines, head, others = self.lines, self.plan.heads[node][h], self._others(node, h)
        merges: list[int] = []
        for number, rank in enumerate(others[1:], 1):
            made, hops = Pass(SCRATCH, SCRATCH, REDUCE), [(others[0], head), (rank, head)]
            places = Place(0, FIRST + number), Place(0, FIRST)
            merge = lines.merge(head, h, made, *places, hops)
            if merges:
                lines.woven.after(merge, merges[-1], IN_ORDER)
            merges.append(merge)
        buffer, source = (SCRATCH, Place(0, FIRST)) if others else (IN, USER)
        made = Pass(buffer, SCRATCH, COPY, 1 + len(others), 1, threads=SHARE)
        row = lines.woven.row(
            lines.channel.local(made), head, head, h, source=source, target=Place(0, GIVEN)
        )
        for rank in others:
            lines.take([row], (rank, head), h)
        if merges:
            lines.woven.after(row, merges[-1], IN_ORDER)
        lines.done("reduce", head, [row])
        return row

    def _hand(self, node: int, h: int) -> list[int]:
        """A head stores its part of the result and sends it to the ranks of its node."""
        lines, head, others = self.lines, self.plan.heads[node][h], self._others(node, h)
        found = Place(0, FOUND)
        # With others the copy is part of the pass that sends.
        alone = lines.channel.local(Pass(SCRATCH, OUT, COPY, 1, 1, threads=SHARE))
        kind = lines.channel.merge(OUT, COPY) if others else alone
        rows = [lines.woven.row(kind, head, head, h, source=found)]
        for rank in others:
            out = OUT if self.plan.direct else SCRATCH
            made = Pass(SCRATCH, out, COPY, 1, 1, len(others), SHARE)
            target = USER if self.plan.direct else Place(0, self._from_head(h))
            rows.append(lines.send((head, rank), h, made, source=found, target=target))
        lines.done("hand", head, rows)
        return rows

    def _from_head(self, h: int) -> int:
        return FIRST + self.widest + h

    def _store(self, node: int) -> None:
        """Every rank takes the parts of the other heads out of its FIFOs, in one pass."""
        lines, heads = self.lines, self.plan.heads[node]
        for rank in self.nodes[node]:
            rows, others = [], [(h, head) for h, head in enumerate(heads) if head != rank]
            for h, head in others:
                made = Pass(SCRATCH, OUT, COPY, 1, 1, threads=SHARE / len(others))
                kind, part = lines.channel.local(made), h
                if self.plan.direct:
                    kind, part = lines.channel.wait(), -1
                source = Place(0, self._from_head(h))
                row = lines.woven.row(kind, rank, rank, part, source=source)
                lines.take([row], (head, rank), h)
                rows.append(row)
            if rows:
                lines.done("store", rank, rows)
