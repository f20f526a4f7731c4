"""NVLSTree: switches reduce within nodes, trees of heads between them, switches hand out.

Heads with the same number form a tree over the nodes, even channels the first of the double binary
tree, odd ones its twin. A head adds what its child nodes sent to the sum of its own switch.
"""

from dataclasses import dataclass, field

from netsim.collectives.collective import Collective
from netsim.constants import value
from netsim.nccl.schedules.hops import Pass
from netsim.nccl.schedules.lines import Lines
from netsim.nccl.schedules.members import Members, members_of
from netsim.nccl.schedules.nvls import SUMS, loop_segments
from netsim.nccl.schedules.nvls_nodes import SwitchedNodes
from netsim.nccl.schedules.output import Output, Turn, remembered
from netsim.nccl.schedules.plan import Plan, written
from netsim.nccl.schedules.weave import Place
from netsim.nccl.split import ALIGNMENT
from netsim.nccl.trees import NodePlace, double_binary_tree
from netsim.schedule import ARRIVED, COPY, IN_ORDER, REDUCE, SCRATCH, Schedule

SHARE = value("share.of_a_way")  # of a block's threads, for each direction
# FIFOs of a head besides those of its switch.
FROM_CHILD, TO_PARENT, FROM_PARENT, TO_CHILD, REGIONS = 3, 5, 6, 7, 9


def nvls_tree(collective: Collective, plan: Plan) -> Schedule:
    """AllReduce over all channels."""
    output = Output(collective, places=plan.places, keep=False, fold=plan.stands)
    nodes = plan.nodes
    groups = [output.builder.group(ranks) for ranks in nodes]
    twins, heads = double_binary_tree(len(nodes)), len(plan.heads[0])
    for lane in written(plan, crown_keys(plan)):
        members = members_of(plan, lane, nodes)
        cut = loop_segments(collective, lane.work, heads, plan.slots, ALIGNMENT)

        def turn(members: Members = members) -> Turn:
            lines = Lines(members.by_head, heads, plan.slots)
            places = twins[members.by_head.number % 2]
            crown = _Crown(lines, plan, nodes, groups, members, places=places)
            return Turn(lines.woven, crown.all())

        key = (*members.key, heads, plan.slots)
        output.add(remembered(collective, plan, key, turn), cut, REGIONS)
    return output.close()


def crown_keys(plan: Plan) -> dict[int, object]:
    """What tells channels apart: which of the trees they have, and the ways along it."""
    return {w.channel: (w.channel % 2, _routes(plan, w.channel)) for w in plan.work}


def _routes(plan: Plan, channel: int) -> tuple[tuple[object, str], ...]:
    ways = ((pair, way) for (number, *pair), way in plan.routes.items() if number == channel)
    return tuple(sorted((tuple(pair), way) for pair, way in ways))


@dataclass
class _Crown(SwitchedNodes):
    """Nodes joined by a tree; `merges` add what child nodes sent, by node and head."""

    places: tuple[NodePlace, ...] = ()
    merges: dict[tuple[int, int], list[int]] = field(default_factory=dict)

    def all(self) -> tuple[list[int], list[int]]:
        """All rows of a loop; the ranks and rows that end it."""
        order = [next(k for k, place in enumerate(self.places) if place.up < 0)]
        for node in order:
            order += [child for child in self.places[node].down if child >= 0]
        gives = [self.copies("give", node) for node in order]
        for node, given in zip(order, gives, strict=True):
            for h in self.members.heads:
                self.sum(node, h, given)
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
        """Add what child nodes sent to the own sum, and send it to the parent node."""
        head, place, lines = self.head(node, h), self.places[node], self.lines
        merges: list[int] = []  # part of the pass, but where rows say where their data lies
        for number, child in enumerate(self._children(node) if self.plan.places else ()):
            made, hop = Pass(SCRATCH, SCRATCH, REDUCE), (self.head(child, h), head)
            ends = Place(0, FROM_CHILD + number), Place(0, SUMS)
            merge = lines.merge(head, h, made, *ends, [hop])
            lines.woven.after(merge, self.sums[node, h], ARRIVED)
            if merges:
                lines.woven.after(merge, merges[-1], IN_ORDER)
            merges.append(merge)
        self.merges[node, h] = merges
        if place.up < 0:
            return
        number = self._children(place.up).index(node)
        row = lines.send(
            (head, self.head(place.up, h)),
            h,
            Pass(SCRATCH, SCRATCH, COPY, 1 + len(self._children(node)), threads=SHARE),
            source=Place(0, SUMS),
            target=Place(0, FROM_CHILD + number),
            region=TO_PARENT,
        )
        self._take_sums(node, h, [row])
        lines.done("up", head, [row])

    def _take_sums(self, node: int, h: int, rows: list[int]) -> None:
        """Let rows use the sum of a node and its child nodes, and free it."""
        lines, head = self.lines, self.head(node, h)
        for child in self._children(node):
            lines.take(rows, (self.head(child, h), head), h)
        for row in rows:
            lines.woven.after(row, self.sums[node, h], ARRIVED)
            lines.woven.after(self.sums[node, h], row, IN_ORDER, lines.slots)
            for merge in self.merges[node, h][-1:]:
                lines.woven.after(row, merge, IN_ORDER)

    def _down(self, node: int, h: int) -> None:
        """Hand the result to child nodes and, through the switch, to the own node."""
        head, place, lines = self.head(node, h), self.places[node], self.lines
        root, children = place.up < 0, self._children(node)
        source = Place(0, SUMS if root else FROM_PARENT)
        made = Pass(SCRATCH, SCRATCH, COPY, 1, 0, max(1, len(children)), 1.0 if root else SHARE)
        rows = [
            lines.send(
                *((head, self.head(child, h)), h, made),
                source=source,
                target=Place(0, FROM_PARENT),
                region=TO_CHILD + number,
            )
            for number, child in enumerate(children)
        ]
        rows.append(self.store(node, h, source, second=bool(children)))
        if root:
            self._take_sums(node, h, rows)
        else:
            lines.take(rows, (self.head(place.up, h), head), h)
        lines.done("down", head, rows)
