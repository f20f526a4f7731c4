"""Lines: the passes of blocks in one turn of a loop, and the connections between them.

A pass takes in what arrived on some connections and fills others. From who fills and who takes,
order and credits follow by themselves. It knows no algorithm.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from netsim.nccl.schedules.hops import Channel, Pass
from netsim.nccl.schedules.weave import USER, Place, Weave
from netsim.schedule import IN_ORDER, SCRATCH

Hop = tuple[int, int]


@dataclass
class Lines:
    """One channel while the rows of a turn are written, sub by sub.

    `passes` are the rows of each lane (a group of threads of a rank's block) by sub; `filled` the
    block's row and the row that brings the data, by hop and sub; `taken` the rows that empty it.
    `whole` is the segment of a chunk in one piece.
    """

    channel: Channel
    subs: int
    slots: int
    whole: int = 0
    woven: Weave = field(default_factory=Weave)
    passes: dict[tuple[str, int], list[list[int]]] = field(default_factory=dict)
    filled: dict[tuple[int, int, int], tuple[int, int]] = field(default_factory=dict)
    taken: dict[tuple[int, int, int], list[int]] = field(default_factory=dict)
    _left: dict[Hop, list[int]] = field(default_factory=dict)

    def send(
        self,
        hop: Hop,
        sub: int,
        made: Pass,
        *,
        source: Place = USER,
        target: Place = USER,
        region: int = 0,
        step: int = 0,
    ) -> int:
        """A pass to another rank by the block, and by the proxy from the FIFO in `region`."""
        src, dst = hop
        block = self.channel.hop(src, dst, made, proxy=False)
        if not self.channel.is_net(src, dst):
            row = self.woven.row(block, src, dst, sub, step=step, source=source, target=target)
            self.filled[src, dst, sub] = row, row
            return row
        fifo = Place(0, region)
        row = self.woven.row(block, src, src, sub, step=step, source=source, target=fifo)
        self._left.setdefault(hop, []).append(row)
        if self.channel.simple or sub == self.subs - 1:
            segment = sub if self.channel.simple else self.whole
            proxy = self.channel.hop(src, dst, made, proxy=True)
            if self.channel.simple and sub:
                proxy = replace(proxy, follows=True)
            sent = self.woven.row(proxy, src, dst, segment, step=step, source=fifo, target=target)
            self._sent(hop, sub, sent)
        return row

    def _sent(self, hop: Hop, sub: int, sent: int) -> None:
        """A proxy sends what its block has left: a slice of Simple, or a whole chunk of LL."""
        rows = self._left.pop(hop)
        self.woven.after(sent, rows[-1], self.channel.noticed)
        for number, row in enumerate(rows):
            self.filled[(*hop, sub - len(rows) + 1 + number)] = row, sent

    def merge(
        self, rank: int, sub: int, made: Pass, source: Place, target: Place, hops: Sequence[Hop]
    ) -> int:
        """A further source of a pass, once it is there on all of some hops."""
        kind = self.channel.merge(made.dst_buffer, made.op)
        row = self.woven.row(kind, rank, rank, sub, source=source, target=target)
        for hop in hops:
            self.wait([row], hop, sub)
        return row

    def wait(self, rows: Sequence[int], hop: Hop, sub: int) -> None:
        """Let rows wait for the data of a hop."""
        for row in rows:
            self.woven.after(row, self.filled[(*hop, sub)][1], self.channel.sync(*hop))

    def take(self, rows: Sequence[int], hop: Hop, sub: int) -> None:
        """Let rows wait for the data of a hop and empty its slot."""
        self.wait(rows, hop, sub)
        self.taken[(*hop, sub)] = list(rows)

    def done(self, lane: str, rank: int, rows: Sequence[int]) -> None:
        """The rows that make up the next pass of a lane."""
        self.passes.setdefault((lane, rank), []).append(list(rows))

    def close(self) -> tuple[list[int], list[int]]:
        """Add order and credits; returns the ranks and rows that end a turn."""
        for passes in self.passes.values():
            for sub, rows in enumerate(passes):
                for row in rows:
                    for earlier in passes[sub - 1]:
                        self.woven.after(row, earlier, IN_ORDER, int(sub == 0))
        hops: dict[Hop, list[int]] = {}
        for src, dst, sub in self.filled:
            hops.setdefault((src, dst), []).append(sub)
        for hop, subs in hops.items():
            for number, sub in enumerate(subs):
                if self.channel.simple or number == 0:
                    self._messages(hop, sub, subs[number - 1], back=int(number == 0))
                    self._credits(hop, sub, sub if self.channel.simple else subs[-1])
        ends = [(rank, row) for (_, rank), passes in self.passes.items() for row in passes[-1]]
        return [rank for rank, _ in ends], [row for _, row in ends]

    def _messages(self, hop: Hop, sub: int, before: int, back: int) -> None:
        """A proxy sends one message after the other."""
        row, sent = self.filled[(*hop, sub)]
        if sent != row:
            self.woven.after(sent, self.filled[(*hop, before)][1], IN_ORDER, back)

    def _credits(self, hop: Hop, sub: int, used: int) -> None:
        """A Simple slice has a slot of its own; pieces of LL share theirs with the whole chunk."""
        row, sent = self.filled[(*hop, sub)]
        for reader in self.taken[(*hop, used)]:
            self.woven.after(sent, reader, self.channel.credit(*hop), self.slots)
        if sent != row:
            before = self.filled[(*hop, used)][1]
            self.woven.after(row, before, self.channel.local_credit, self.slots)


def buffer_place(buffer: int, region: int) -> Place:
    """A slot of a FIFO, or the user's buffer."""
    return Place(0, region) if buffer == SCRATCH else USER
