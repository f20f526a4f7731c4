"""Sums in the switches of a network (SHARP): operations of the proxies of some heads.

A head gives its data to its proxy, switches add up what all heads of a group send, and the sum
comes to all of them while it still goes in. It lies in a FIFO of every head's until it is taken.
"""

from collections.abc import Sequence
from dataclasses import replace

from netsim.constants import value
from netsim.nccl.schedules.hops import FREE, RowKind
from netsim.nccl.schedules.lines import Lines
from netsim.nccl.schedules.weave import Place
from netsim.schedule import (
    ARRIVED,
    IN_ORDER,
    MULTICAST,
    SCRATCH,
    SWITCH_REDUCE,
    Lag,
    Style,
    Use,
)
from netsim.values import dataclass

# Ways of rows through switches that reduce; the way to a NIC follows.
STREAMED = "sharp-all:"  # up to the root and down to everyone at once; the hand-out is part of it
SINGLE = "sharp:"  # from everyone to one, or from one to everyone
GROUP = int(
    value("collnet.group")
)  # channels whose data NCCL's proxies give to the network as one operation


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation of a group: the row that moves the data, the row by which it is there, and
    from the end of that how long until a block may use it.
    """

    moved: int
    handed: int
    lag: Lag = ARRIVED


@dataclass(frozen=True)
class Network:
    """The network operations of one channel; regions are FIFOs in every head's scratch.

    `given` is what heads hand to their proxies, `summed` the sum at the first head of a group,
    `found` the sum at all of them.
    """

    lines: Lines
    given: int
    summed: int
    found: int

    def sum(
        self, group: int, heads: Sequence[int], sub: int, given: Sequence[int], door: str
    ) -> Operation:
        """Add up what the rows `given` have put into the FIFOs of heads, for all of them."""
        lines, lead = self.lines, heads[0]
        source, total, target = (Place(0, r) for r in (self.given, self.summed, self.found))
        move, hand = self._moves(SWITCH_REDUCE, STREAMED + door), self._hands(STREAMED + door)
        moved = lines.woven.row(move, group, lead, sub, source=source, target=total)
        handed = lines.woven.row(hand, lead, group, sub, source=total, target=target)
        lines.woven.after(handed, moved, self._arrival)
        lines.woven.after(moved, handed, IN_ORDER, lines.slots)
        self._give(moved, given)
        lines.done("network", lead, [moved])
        return Operation(moved, handed)

    def share(
        self, group: int, one: int, sub: int, given: int, door: str, number: int = 0
    ) -> Operation:
        """Give what a row has put into the FIFO of one head to all heads of its group, who find it
        in the FIFO `number` after the first.
        """
        source, target = Place(0, self.given), Place(0, self.found + number)
        kind = self._moves(MULTICAST, SINGLE + door)
        moved = self.lines.woven.row(kind, one, group, sub, source=source, target=target)
        return self._single(one, moved, [given])

    def collect(
        self, group: int, one: int, sub: int, given: Sequence[int], door: str, number: int = 0
    ) -> Operation:
        """Add up for one head what rows have put into the FIFO `number` after the first of all."""
        source, target = Place(0, self.given + number), Place(0, self.found)
        kind = self._moves(SWITCH_REDUCE, SINGLE + door)
        moved = self.lines.woven.row(kind, group, one, sub, source=source, target=target)
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
        style = Style(
            kind,
            src_buffer=SCRATCH,
            dst_buffer=SCRATCH,
            channel=channel.number,
            multiplicity=channel.multiplicity,
            copies=channel.copies,
            route=route,
            uses=(Use("hbm", end, 2.0),),
        )
        together = min(GROUP, len(channel.plan.work))
        costs = (
            ("proxy", end, network.post.simple / together),
            ("nic_msg", end, network.message / together),
        )
        return RowKind(style, tuple(cost for cost in costs if cost[2] > 0))

    def _hands(self, route: str) -> RowKind:
        """The arrival of a sum everywhere: its traffic is in the row that makes it."""
        channel = self.lines.channel
        return RowKind(
            Style(
                MULTICAST,
                src_buffer=SCRATCH,
                dst_buffer=SCRATCH,
                channel=channel.number,
                multiplicity=channel.multiplicity,
                copies=channel.copies,
                route=route,
                uses=(FREE,),
            )
        )
