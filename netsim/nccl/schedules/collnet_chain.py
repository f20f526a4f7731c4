"""CollNetChain: chains reduce inside nodes, switches of the network add up, chains hand out.

The first rank of each chain, its head, gives the sum of its node to the network and hands the sum
of all down the chain again; both ways at once, by a group of threads each.
"""

from dataclasses import dataclass, field
from itertools import pairwise

from netsim.collectives.collective import Collective
from netsim.constants import value
from netsim.nccl.schedules.cuts import chunk_table, segments
from netsim.nccl.schedules.hops import Channel, Pass
from netsim.nccl.schedules.lines import Lines, buffer_place
from netsim.nccl.schedules.network import Network
from netsim.nccl.schedules.output import Output, Turn, remembered
from netsim.nccl.schedules.plan import Plan, folded
from netsim.nccl.schedules.weave import Place, Segments
from netsim.schedule import COPY, IN, OUT, REDUCE_INPUT, SCRATCH, Schedule

BELOW, GIVEN, SUMMED, FOUND, ABOVE, REGIONS = 0, 1, 2, 3, 4, 5
SHARE = value("share.of_a_way")  # of a block's threads, for each direction


def collnet_chain(collective: Collective, plan: Plan) -> Schedule:
    """AllReduce over all channels' chains."""
    output = Output(collective, places=plan.places)
    keys = {w.channel: (plan.chains[w.channel], plan.doors[w.channel]) for w in plan.work}
    for work, multiplicity in folded(plan, keys):
        channel, nodes = Channel(plan, work.channel, multiplicity), plan.chains[work.channel]
        table = chunk_table(work, collective.element_bytes)
        cut = segments(plan, collective.element_bytes, table, threads=SHARE)
        group = output.builder.group([order[0] for order in nodes])
        joined = (nodes, group, plan.doors[work.channel])

        def turn(
            channel: Channel = channel,
            cut: Segments = cut,
            joined: tuple[tuple[tuple[int, ...], ...], int, str] = joined,
        ) -> Turn:
            lines = Lines(channel, cut.subs, cut.slots, cut.whole)
            return Turn(lines.woven, _Chains(lines, *joined).all())

        key = (*joined, *channel.key, cut.subs, cut.slots, cut.whole, len(plan.work))
        output.add(remembered(collective, plan, key, turn), cut, REGIONS)
    return output.close()


@dataclass
class _Chains:
    """One channel while the rows of one chunk are written; `nodes` are chains from the head on."""

    lines: Lines
    nodes: tuple[tuple[int, ...], ...]
    group: int
    door: str
    network: Network = field(init=False)

    def __post_init__(self) -> None:
        self.network = Network(self.lines, GIVEN, SUMMED, FOUND)

    def all(self) -> tuple[list[int], list[int]]:
        """All rows of a chunk; the ranks and rows that end it."""
        heads = [order[0] for order in self.nodes]
        for sub in range(self.lines.subs):
            given = [self._up(order, sub) for order in self.nodes]
            done = self.network.sum(self.group, heads, sub, given, self.door)
            for order in self.nodes:
                self.network.take(done, self._down(order, sub))
        return self.lines.close()

    def _up(self, order: tuple[int, ...], sub: int) -> int:
        """Reduce along a chain, last rank first; returns the head's row."""
        below: tuple[int, int] | None = None
        for upper, rank in reversed(list(pairwise(order))):
            buffer = SCRATCH if below else IN
            made = Pass(buffer, SCRATCH, REDUCE_INPUT, 2 if below else 1, threads=SHARE)
            row = self.lines.send(
                *((rank, upper), sub, made),
                source=buffer_place(buffer, BELOW),
                target=Place(0, BELOW),
            )
            self._took(row, below, sub, "up", rank)
            below = (rank, upper)
        buffer, head = SCRATCH if below else IN, order[0]
        made = Pass(buffer, SCRATCH, COPY, 2 if below else 1, 1, threads=SHARE)
        source = buffer_place(buffer, BELOW)
        row = self.lines.woven.row(
            self.lines.channel.local(made), head, head, sub, source=source, target=Place(0, GIVEN)
        )
        self._took(row, below, sub, "up", head)
        return row

    def _down(self, order: tuple[int, ...], sub: int) -> list[int]:
        """Hand the sum of all down a chain; returns the head's rows."""
        lines, head, found = self.lines, order[0], Place(0, FOUND)
        if len(order) == 1:
            made = Pass(SCRATCH, OUT, COPY, 1, 1, threads=SHARE)
            rows = [lines.woven.row(lines.channel.local(made), head, head, sub, source=found)]
        else:
            # One pass stores and sends: the copy is part of it.
            free = lines.channel.merge(OUT, COPY)
            rows = [lines.woven.row(free, head, head, sub, source=found)]
            rows.append(self._hand(order, 0, SCRATCH, found, sub))
        lines.done("down", head, rows)
        for place, rank in enumerate(order[1:], 1):
            last = rank == order[-1]
            row = self._store(rank, sub) if last else self._hand(order, place, OUT, Place(), sub)
            self._took(row, (order[place - 1], rank), sub, "down", rank)
        return rows

    def _hand(
        self, order: tuple[int, ...], place: int, buffer: int, source: Place, sub: int
    ) -> int:
        """Store what came and send it on; a rank that sends it on finds it in its output."""
        hop = (order[place], order[place + 1])
        stored = hop[1] != order[-1] or self.lines.channel.plan.direct
        made = Pass(buffer, OUT if stored else SCRATCH, COPY, 1, 1, threads=SHARE)
        target = buffer_place(made.dst_buffer, ABOVE)
        return self.lines.send(hop, sub, made, source=source, target=target)

    def _store(self, rank: int, sub: int) -> int:
        """The last rank takes data out of its FIFO, if it went there."""
        channel, woven = self.lines.channel, self.lines.woven
        if channel.plan.direct:
            return woven.row(channel.wait(), rank, rank, -1)
        kind = channel.local(Pass(SCRATCH, OUT, COPY, 1, 1, threads=SHARE))
        return woven.row(kind, rank, rank, sub, source=Place(0, ABOVE))

    def _took(self, row: int, hop: tuple[int, int] | None, sub: int, lane: str, rank: int) -> None:
        """A row that is the next of its lane and empties the slot of a hop, if there is one."""
        if hop is not None:
            self.lines.take([row], hop, sub)
        self.lines.done(lane, rank, [row])
