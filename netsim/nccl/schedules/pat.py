"""PAT: AllGather and ReduceScatter along binomial trees that are rotations of one another.

Peers are powers of two apart. AllGather starts with the farthest and one block and ends with the
nearest and many; ReduceScatter is its mirror. Small blocks share a message. One rank a node."""

from dataclasses import field, replace

import numpy as np

from netsim.base.values import dataclass
from netsim.collectives.collective import Collective
from netsim.nccl.schedules import writing
from netsim.nccl.schedules.channels import distinct_channels
from netsim.nccl.schedules.nvls import switch_keys
from netsim.nccl.schedules.plan import Ints, Plan, Work
from netsim.nccl.schedules.primitives import Pass, PlannedChannel, RowKind
from netsim.schedule import schedule
from netsim.schedule.extent import ALL, Extent
from netsim.schedule.schedule import COPY, IN, IN_ORDER, OUT, REDUCE, REDUCE_INPUT, SCRATCH, Lag


def pat(collective: Collective, plan: Plan, extent: Extent = ALL) -> schedule.Schedule:
    """Return the schedule of AllGather or ReduceScatter by PAT, over all channels."""
    if len(set(plan.node)) < len(plan.node):
        raise ValueError("PAT: expected one rank a node")
    output = writing.Output(collective, extent=extent)
    for distinct in distinct_channels(plan, switch_keys(plan), extent):
        work = distinct.work
        channel = PlannedChannel(plan, work.channel, distinct.multiplicity)
        together = blocks_together(plan, work, collective)
        turns = -(-(collective.ranks // 2) // together)  # nearest neighbours pass most blocks
        cut = _segments(collective, work, together, plan.slots)
        rounds = _Rounds(channel, collective, together, turns, plan.slots)

        def turn(rounds: _Rounds = rounds) -> writing.Turn:
            return writing.Turn(rounds.woven, (rounds.ranks, rounds.all()))

        key = (*channel.key, together, turns, plan.slots)
        output.add(writing.remembered(collective, plan, key, turn), cut)
    return output.close()


def blocks_together(plan: Plan, work: Work, collective: Collective) -> int:
    """Return the number of blocks of one message.

    It is the largest power of two with which the message fits into a slot, but at most the smallest
    power of two that is at least half of the number of ranks.
    """
    nbytes = max(1, min(work.chunk, work.count * collective.element_bytes))
    together = 1
    while plan.slot // (nbytes * together) >= 2 and together < collective.ranks / 2:
        together *= 2
    return together


def _segments(c: Collective, work: Work, together: int, slots: int) -> writing.Segments:
    """Return the segments of every loop, in elements.

    Segment 0 is one block. Segment k is a message of k blocks, up to `together`.
    """
    offset, count = writing.chunk_table(work, c.element_bytes)
    sizes = np.concatenate([[1], np.arange(1, together + 1)])
    return writing.Segments(offset + 0 * sizes, count * sizes, slots=slots)


@dataclass
class _Rounds:
    """Writes the rows of one PAT loop on one channel, for all ranks.

    - `together`: the most blocks of one message.
    - `turns`: the number of messages in the round that has most of them.
    - `slots`: the number of slots of a FIFO.
    - `first`, `last`: by rank, its first and its latest row in this loop.
    """

    channel: PlannedChannel
    collective: Collective
    together: int
    turns: int
    slots: int
    woven: writing.Weave = field(default_factory=writing.Weave)

    def __post_init__(self) -> None:
        self.ranks = np.arange(self.collective.ranks)
        self.dimensions = (self.collective.ranks - 1).bit_length()
        self.gathers = self.collective.name == "all_gather"
        self.first: Ints | None = None
        self.last: Ints = self.ranks

    def all(self) -> Ints:
        """Write all rows of a loop; return the last row of every rank."""
        order = range(self.dimensions)
        for dimension in reversed(order) if self.gathers else order:
            self._round(dimension)
        assert self.first is not None
        self.woven.after(self.first, self.last, IN_ORDER, 1)
        return self.last

    def _round(self, dimension: int) -> None:
        """Write one round: every rank sends blocks to the rank at distance 2**dimension.

        AllGather sends to the rank below, ReduceScatter to the rank above. Blocks are put into
        messages of `together` blocks.
        """
        far = 1 << dimension
        n = self.collective.ranks
        offsets = [o for o in range(0, n, 2 * far) if o + far < n]
        groups = [offsets[k : k + self.together] for k in range(0, len(offsets), self.together)]
        peer = (self.ranks + (-far if self.gathers else far)) % n
        filled = list[list[Ints]]()
        sent = list[Ints]()
        stored = list[Ints]()
        for turn in range(len(groups) + self.slots):
            done = turn - self.slots  # with all slots full, one must be emptied to fill the next
            if 0 <= done < len(groups):
                stored.append(self._store(groups[done], dimension, (sent[done], peer)))
            if turn < len(groups):
                filled.append(self._fill(groups[turn], dimension))
                sent.append(self._message(filled[-1], peer))
        self._credits([rows[0] for rows in filled], sent, stored, peer)

    def _step(self, rows: Ints) -> Ints:
        if self.first is None:
            self.first = rows
        else:
            self.woven.after(rows, self.last, IN_ORDER)
        self.last = rows
        return rows

    def _local(self, made: Pass, number: int) -> int:
        """Return the kind of row that copies block `number` of a message between buffers.

        One pass copies all blocks of a message, so only the first has the fixed cost.
        """
        kind = self.channel.local(made)
        return self.woven.kind(RowKind(replace(kind.style, latency=0.0)) if number else kind)

    def _fill(self, group: list[int], dimension: int) -> list[Ints]:
        """Write the copies of a message's blocks (or partial sums of them) into the FIFO.

        Return, for each block, the row of every rank.
        """
        rows = []
        for number, offset in enumerate(group):
            ahead = offset if self.gathers else offset + (1 << dimension)
            block = (self.ranks + ahead) % self.collective.ranks * self.collective.count
            summed = not self.gathers and dimension > 0 and ahead + 1 < self.collective.ranks
            if summed:
                buffer = SCRATCH
            else:
                buffer = OUT if self.gathers and offset else IN
            kind = self._local(Pass(buffer, SCRATCH, writes=1), number)
            rows.append(self._step(self.woven.rows(kind, self.ranks, self.ranks, 0, base=block)))
        return rows

    def _message(self, filled: list[Ints], peer: Ints) -> Ints:
        """Write the row by which each rank's proxy sends a message to `peer`; return these rows.

        `filled` are the rows that put the blocks of the message into the FIFO. The proxy sends when
        it has noticed all of them.
        """
        pairs = zip(self.ranks.tolist(), peer.tolist(), strict=True)
        kinds = [self.woven.kind(self.channel.message(*pair, SCRATCH)) for pair in pairs]
        rows = self.woven.rows(kinds, self.ranks, peer, len(filled))
        for blocks in filled:
            self.woven.after(rows, blocks, self.channel.noticed)
        return rows

    def _store(self, group: list[int], dimension: int, arrived: tuple[Ints, Ints]) -> Ints:
        sent, peer = arrived
        for number, offset in enumerate(group):
            ahead = offset + (1 << dimension) if self.gathers else offset
            block = (self.ranks + ahead) % self.collective.ranks * self.collective.count
            if self.gathers:
                op = COPY
            else:
                op = REDUCE if dimension else REDUCE_INPUT
            out = self.gathers or ahead == 0
            made = Pass(SCRATCH, OUT if out else SCRATCH, op, 1 if self.gathers else 2, 1)
            kind = self._local(made, number)
            rows = self._step(self.woven.rows(kind, self.ranks, self.ranks, 0, base=block))
            for src, dst in zip(self.ranks.tolist(), peer.tolist(), strict=True):
                self.woven.after(rows[dst], sent[src], self.channel.sync(src, dst))
        return self.last

    def _credits(
        self, filled: list[Ints], sent: list[Ints], stored: list[Ints], peer: Ints
    ) -> None:
        """Add the dependencies by which the messages of one round wait for free FIFO slots.

        A rank fills a slot again when its proxy has sent what was in it. The proxy sends the next
        message when the receiver has emptied the slot there. Both may have been in an earlier loop.
        """
        credit: Lag = self.channel.credit(0, int(peer[0]))
        for turn, (fill, message) in enumerate(zip(filled, sent, strict=True)):
            back, before = divmod(turn - self.slots, self.turns)
            before = min(before, len(sent) - 1)
            self.woven.after(message, stored[before][peer], credit, -back)
            self.woven.after(fill, sent[before], self.channel.local_credit, -back)
            earlier = (turn - 1) % len(sent)
            self.woven.after(message, sent[earlier], IN_ORDER, int(turn == 0))
