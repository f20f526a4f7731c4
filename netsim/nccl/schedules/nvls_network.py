"""NVLS over several nodes whose network reduces: switches add up within nodes and between them.

Heads read the sums of their nodes, give them to the network, and store what comes back in their
nodes again.
"""

from dataclasses import dataclass

from netsim.collectives.collective import Collective
from netsim.nccl.schedules.lines import Lines
from netsim.nccl.schedules.members import Members, members_of
from netsim.nccl.schedules.network import Network
from netsim.nccl.schedules.nvls import SUMS, loop_segments, switch_keys
from netsim.nccl.schedules.nvls_nodes import SwitchedNodes
from netsim.nccl.schedules.output import Output, Turn, remembered
from netsim.nccl.schedules.plan import Plan, lanes_of
from netsim.nccl.schedules.weave import Place
from netsim.nccl.split import ALIGNMENT
from netsim.schedule import Schedule

SUMMED, FOUND, REGIONS = 3, 4, 5  # FIFOs of a head besides those of its switch


def nvls_network(collective: Collective, plan: Plan) -> Schedule:
    """AllReduce over all channels."""
    output = Output(collective, places=plan.places, keep=False)
    inside = [output.builder.group(ranks) for ranks in plan.nodes]
    across = [output.builder.group(same) for same in zip(*plan.heads, strict=True)]
    heads = len(plan.heads[0])
    for lane in lanes_of(plan, switch_keys(plan)):
        members = members_of(plan, lane, plan.nodes)
        cut = loop_segments(collective, lane.work, heads, plan.slots, ALIGNMENT)

        def turn(members: Members = members) -> Turn:
            lines = Lines(members.by_head, heads, plan.slots)
            joined = _Joined(lines, plan, plan.nodes, inside, members, across=across)
            return Turn(lines.woven, joined.all())

        key = (*members.key, heads, plan.slots, len(plan.work))
        output.add(remembered(collective, plan, key, turn), cut, REGIONS)
    return output.close()


@dataclass
class _Joined(SwitchedNodes):
    """Nodes joined by the switches of the network; `across` are groups of heads of one number."""

    across: list[int] | None = None

    def all(self) -> tuple[list[int], list[int]]:
        """All rows of a loop; the ranks and rows that end it."""
        network, numbers = Network(self.lines, SUMS, SUMMED, FOUND), range(len(self.nodes))
        assert self.across is not None
        gives = [self.copies("give", node) for node in numbers]
        for h, group in enumerate(self.across):
            given = [self.sum(node, h, gives[node]) for node in numbers]
            heads = [self.head(node, h) for node in numbers]
            done = network.sum(group, heads, h, given, self.plan.doors[h])
            for node in numbers:
                row = self.store(node, h, Place(0, FOUND))
                network.take(done, [row])
                self.lines.done("store", self.head(node, h), [row])
        for node in numbers:
            self.hand_out(node)
        return self.lines.close()
