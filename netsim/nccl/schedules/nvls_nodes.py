"""What the switches of several nodes do for NVLS: add up what heads ask for, hand out results.

Which way sums go from node to node in between is the business of each algorithm.
"""

from dataclasses import dataclass, field

from netsim.nccl.schedules.hops import RowKind
from netsim.nccl.schedules.lines import Lines
from netsim.nccl.schedules.members import Members
from netsim.nccl.schedules.nvls import GIVEN, RESULTS, SUMS, switch_kind
from netsim.nccl.schedules.plan import Plan
from netsim.nccl.schedules.weave import USER, Place
from netsim.schedule import IN, IN_ORDER, MULTICAST, OUT, SCRATCH, SWITCH_REDUCE, Lag


@dataclass
class SwitchedNodes:
    """One channel while the rows of a loop are written: ranks and groups of all nodes.

    A sub of `lines` is the part of one head of every node. `sums` and `stores` are rows by node
    and head.
    """

    lines: Lines
    plan: Plan
    nodes: list[tuple[int, ...]]
    groups: list[int]
    members: Members
    sums: dict[tuple[int, int], int] = field(default_factory=dict)
    stores: dict[tuple[int, int], int] = field(default_factory=dict)

    def head(self, node: int, h: int) -> int:
        """The rank of a head."""
        return self.plan.heads[node][h]

    def _ranks(self, node: int) -> list[int]:
        everyone = self.nodes[node]
        return [everyone[place] for place in self.members.ranks if place < len(everyone)]

    def copies(self, lane: str, node: int) -> list[int]:
        """Every rank's pass between its own buffer and its switch's: to `give` or to `take`."""
        giving, channel = lane == "give", self.members.by_rank
        ends = (USER, Place(0, GIVEN)) if giving else (Place(0, RESULTS), USER)
        kind: RowKind = channel.staging(*((IN, SCRATCH) if giving else (SCRATCH, OUT)))
        whole = self.lines.subs
        if self.plan.registered:
            kind, whole = channel.wait(), -1
        rows = []
        for rank in self._ranks(node):
            row = self.lines.woven.row(kind, rank, rank, whole, source=ends[0], target=ends[1])
            self.lines.done(lane, rank, [row])
            rows.append(row)
        return rows

    def sum(self, node: int, h: int, given: list[int]) -> int:
        """A head reads the sum of its part from its switch, once all ranks have given theirs."""
        sync, head = Lag(self.plan.mechanism.nvls_sync), self.head(node, h)
        buffer = IN if self.plan.registered else SCRATCH
        kind = switch_kind(self.lines.channel, SWITCH_REDUCE, buffer, SCRATCH)
        source = USER if self.plan.registered else Place(0, GIVEN)
        target = Place(0, SUMS)
        row = self.lines.woven.row(kind, self.groups[node], head, h, source=source, target=target)
        self.lines.done("sum", head, [row])
        self.sums[node, h] = row
        for one in given:
            self.lines.woven.after(row, one, sync)
            self.lines.woven.after(one, row, IN_ORDER, self.lines.slots)
        return row

    def store(self, node: int, h: int, source: Place, *, second: bool = False) -> int:
        """A head hands its part of the result out; `second`: in a pass that sends it too."""
        out = OUT if self.plan.registered else SCRATCH
        kind = switch_kind(self.lines.channel, MULTICAST, SCRATCH, out, second=second)
        target = USER if self.plan.registered else Place(0, RESULTS)
        head, group = self.head(node, h), self.groups[node]
        row = self.lines.woven.row(kind, head, group, h, source=source, target=target)
        self.stores[node, h] = row
        return row

    def hand_out(self, node: int) -> None:
        """Every rank takes the results out once all heads of its node have stored them."""
        sync = Lag(self.plan.mechanism.nvls_sync)
        for row in self.copies("take", node):
            for h in self.members.heads:
                store = self.stores[node, h]
                self.lines.woven.after(row, store, sync)
                self.lines.woven.after(store, row, IN_ORDER, self.lines.slots)
