"""NVLSTree: switches reduce within nodes, trees of heads between them, switches hand out.

Heads with the same number form a tree over the nodes, even channels the first of the double binary
tree, odd ones its twin. A head adds what its child nodes sent to the sum of its own switch.
"""

from dataclasses import dataclass

from netsim.collectives.collective import Collective
from netsim.nccl.schedules.hops import Channel, Pass, RowKind
from netsim.nccl.schedules.lines import Lines
from netsim.nccl.schedules.nvls import GIVEN, RESULTS, SUMS, loop_segments, switch_kind
from netsim.nccl.schedules.output import Output
from netsim.nccl.schedules.plan import Plan, folded
from netsim.nccl.schedules.weave import USER, Place
from netsim.nccl.split import ALIGNMENT
from netsim.nccl.trees import NodePlace, double_binary_tree
from netsim.schedule import (
    ARRIVED,
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

# FIFOs of a head besides those of its switch.
FROM_CHILD, TO_PARENT, FROM_PARENT, TO_CHILD, REGIONS = 3, 5, 6, 7, 9


def nvls_tree(collective: Collective, plan: Plan) -> Schedule:
    """AllReduce over all channels."""
    output = Output(collective, places=plan.places, keep=False)
    nodes = [
        tuple(rank for rank, home in enumerate(plan.node) if home == node)
        for node in range(len(plan.heads))
    ]
    groups = [output.builder.group(ranks) for ranks in nodes]
    twins = double_binary_tree(len(nodes))
    keys = {work.channel: (work.channel % 2, _routes(plan, work.channel)) for work in plan.work}
    for work, multiplicity in folded(plan, keys):
        channel = Channel(plan, work.channel, multiplicity)
        heads = len(plan.heads[0])
        cut = loop_segments(collective, work, heads, plan.slots, ALIGNMENT)
        lines = Lines(channel, heads, cut.slots)
        places = twins[work.channel % 2]
        last = _Crown(lines, places, plan, nodes, groups).all()
        output.add(lines.woven, cut, REGIONS, last)
    return output.close()


def _routes(plan: Plan, channel: int) -> tuple[tuple[object, str], ...]:
    ways = ((pair, way) for (number, *pair), way in plan.routes.items() if number == channel)
    return tuple(sorted((tuple(pair), way) for pair, way in ways))


@dataclass
class _Crown:
    """One channel while the rows of a loop are written: `nodes` are their ranks."""

    lines: Lines
    places: tuple[NodePlace, ...]
    plan: Plan
    nodes: list[tuple[int, ...]]
    groups: list[int]

    def all(self) -> tuple[list[int], list[int]]:
        """All rows of a loop; the ranks and rows that end it."""
        order = [next(k for k, place in enumerate(self.places) if place.up < 0)]
        for node in order:
            order += [child for child in self.places[node].down if child >= 0]
        gives = [self._copies("give", node) for node in order]
        self.sums = {
            (node, h): self._sum(node, h, given)
            for node, given in zip(order, gives, strict=True)
            for h in range(self.lines.subs)
        }
        self.ready: dict[tuple[int, int], list[int]] = {}
        self.stores: dict[tuple[int, int], int] = {}
        for h in range(self.lines.subs):
            for node in reversed(order):
                self._up(node, h)
            for node in order:
                self._down(node, h)
        for node in order:
            self._hand_out(node)
        return self.lines.close()

    def _children(self, node: int) -> list[int]:
        return [child for child in self.places[node].down if child >= 0]

    def _head(self, node: int, h: int) -> int:
        return self.plan.heads[node][h]

    def _copies(self, lane: str, node: int) -> list[int]:
        """Every rank's pass between its own buffer and its switch's."""
        giving, channel = lane == "give", self.lines.channel
        ends = (USER, Place(0, GIVEN)) if giving else (Place(0, RESULTS), USER)
        kind: RowKind = channel.staging(*((IN, SCRATCH) if giving else (SCRATCH, OUT)))
        whole = self.lines.subs
        if self.plan.registered:
            kind, whole = channel.wait(), -1
        rows = []
        for rank in self.nodes[node]:
            row = self.lines.woven.row(kind, rank, rank, whole, source=ends[0], target=ends[1])
            self.lines.done(lane, rank, [row])
            rows.append(row)
        return rows

    def _sum(self, node: int, h: int, given: list[int]) -> int:
        """A head reads the sum of its chunk from its switch."""
        sync, head = Lag(self.plan.mechanism.nvls_sync), self._head(node, h)
        buffer = IN if self.plan.registered else SCRATCH
        kind = switch_kind(self.lines.channel, SWITCH_REDUCE, buffer, SCRATCH)
        source = USER if self.plan.registered else Place(0, GIVEN)
        target = Place(0, SUMS)
        row = self.lines.woven.row(kind, self.groups[node], head, h, source=source, target=target)
        self.lines.done("sum", head, [row])
        for one in given:
            self.lines.woven.after(row, one, sync)
            self.lines.woven.after(one, row, IN_ORDER, self.lines.slots)
        return row

    def _up(self, node: int, h: int) -> None:
        """Add what child nodes sent to the own sum, and send it to the parent node."""
        head, place, lines = self._head(node, h), self.places[node], self.lines
        merges: list[int] = []
        for number, child in enumerate(self._children(node)):
            made, hop = Pass(SCRATCH, SCRATCH, REDUCE), (self._head(child, h), head)
            ends = Place(0, FROM_CHILD + number), Place(0, SUMS)
            merge = lines.merge(head, h, made, *ends, [hop])
            lines.woven.after(merge, self.sums[node, h], ARRIVED)
            if merges:
                lines.woven.after(merge, merges[-1], IN_ORDER)
            merges.append(merge)
        self.ready[node, h] = merges
        if place.up < 0:
            return
        number = self._children(place.up).index(node)
        row = lines.send(
            (head, self._head(place.up, h)),
            h,
            Pass(SCRATCH, SCRATCH, COPY, 1 + len(merges), threads=0.5),
            source=Place(0, SUMS),
            target=Place(0, FROM_CHILD + number),
            region=TO_PARENT,
        )
        self._take_sums(node, h, [row])
        lines.done("up", head, [row])

    def _take_sums(self, node: int, h: int, rows: list[int]) -> None:
        """Let rows use the sum of a node and its child nodes, and free it."""
        lines, head = self.lines, self._head(node, h)
        for child in self._children(node):
            lines.take(rows, (self._head(child, h), head), h)
        for row in rows:
            lines.woven.after(row, self.sums[node, h], ARRIVED)
            lines.woven.after(self.sums[node, h], row, IN_ORDER, lines.slots)
            for merge in self.ready[node, h][-1:]:
                lines.woven.after(row, merge, IN_ORDER)

    def _down(self, node: int, h: int) -> None:
        """Hand the result to child nodes and, through the switch, to the own node."""
        head, place, lines = self._head(node, h), self.places[node], self.lines
        root, children = place.up < 0, self._children(node)
        source = Place(0, SUMS if root else FROM_PARENT)
        made = Pass(SCRATCH, SCRATCH, COPY, 1, 0, max(1, len(children)), 1.0 if root else 0.5)
        rows = [
            lines.send(
                *((head, self._head(child, h)), h, made),
                source=source,
                target=Place(0, FROM_PARENT),
                region=TO_CHILD + number,
            )
            for number, child in enumerate(children)
        ]
        registered = self.plan.registered
        out = OUT if registered else SCRATCH
        kind = switch_kind(lines.channel, MULTICAST, SCRATCH, out, second=bool(children))
        target = USER if registered else Place(0, RESULTS)
        group = self.groups[node]
        store = lines.woven.row(kind, head, group, h, source=source, target=target)
        rows.append(store)
        self.stores[node, h] = store
        if root:
            self._take_sums(node, h, rows)
        else:
            lines.take(rows, (self._head(place.up, h), head), h)
        lines.done("down", head, rows)

    def _hand_out(self, node: int) -> None:
        """Every rank takes the results out once all heads of its node have stored them."""
        sync = Lag(self.plan.mechanism.nvls_sync)
        for row in self._copies("take", node):
            for h in range(self.lines.subs):
                store = self.stores[node, h]
                self.lines.woven.after(row, store, sync)
                self.lines.woven.after(store, row, IN_ORDER, self.lines.slots)
