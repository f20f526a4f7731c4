"""PAT: AllGather and ReduceScatter along binomial trees, one rooted at each rank, on one rank a
node.

A round has a distance, a power of two, between the ranks that exchange messages. AllGather starts
with the largest distance and one block, and ends with distance 1 and the most blocks; ReduceScatter
has the rounds in the opposite order. Small blocks share a message.

NCCL: `PatAGAlgorithm` and `PatRSAlgorithm` in src/include/collectives.h.
"""

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
    """Return the schedule of an AllGather or ReduceScatter with PAT, over all channels."""
    if len(set(plan.node)) < len(plan.node):
        raise ValueError("PAT: expected one rank a node")
    output = writing.Output(collective, extent=extent)
    for distinct in distinct_channels(plan, switch_keys(plan), extent):
        work = distinct.work
        channel = PlannedChannel(plan, work.channel, distinct.multiplicity)
        together = blocks_together(plan, work, collective)
        most_messages = -(-(collective.ranks // 2) // together)  # of distance 1, the most
        cut = _segments(collective, work, together, plan.slots)
        rounds = _Rounds(channel, collective, together, most_messages, plan.slots)

        def write_loop(rounds: _Rounds = rounds) -> writing.WrittenLoop:
            """Write the rows of one loop, for the cache of loops."""
            return writing.WrittenLoop(rounds.body, (rounds.ranks, rounds.all()))

        key = (*channel.key, together, most_messages, plan.slots)
        output.add(writing.cached_loop(collective, plan, key, write_loop), cut)
    return output.close()


def blocks_together(plan: Plan, work: Work, collective: Collective) -> int:
    """Return the number of blocks that share a message.

    It is the largest power of two with which the message fits into a slot of the FIFO, but at most
    the smallest power of two that is at least half of the number of ranks.
    """
    nbytes = max(1, min(work.chunk, work.count * collective.element_bytes))
    together = 1
    while plan.slot // (nbytes * together) >= 2 and together < collective.ranks / 2:
        together *= 2
    return together


def _segments(c: Collective, work: Work, together: int, slots: int) -> writing.Segments:
    """Return the segments of every loop, in elements.

    Segment 0 is one block. Segment k is a message of k blocks, up to `together`. `slots` is the
    number of slots of a FIFO.
    """
    offset, count = writing.chunk_table(work, c.element_bytes)
    sizes = np.concatenate([[1], np.arange(1, together + 1)])
    return writing.Segments(offset + 0 * sizes, count * sizes, slots=slots)


@dataclass
class _Rounds:
    """Writes one loop of PAT on one channel, for all ranks.

    - `together`: the most blocks of one message.
    - `most_messages`: the number of messages of a rank in the round that has most of them.
    - `slots`: the number of slots of a FIFO.
    - `first`, `last`: by rank, its first and its latest row in this loop.
    """

    channel: PlannedChannel
    collective: Collective
    together: int
    most_messages: int
    slots: int
    body: writing.LoopBody = field(default_factory=writing.LoopBody)

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
        self.body.after(self.first, self.last, IN_ORDER, 1)
        return self.last

    def _round(self, dimension: int) -> None:
        """Write one round: every rank sends blocks to the rank at distance 2**dimension.

        AllGather sends to the rank below, ReduceScatter to the rank above. Up to `together` blocks
        share a message.
        """
        far = 1 << dimension
        n = self.collective.ranks
        offsets = [o for o in range(0, n, 2 * far) if o + far < n]
        groups = [offsets[k : k + self.together] for k in range(0, len(offsets), self.together)]
        peer = (self.ranks + (-far if self.gathers else far)) % n
        filled = list[list[Ints]]()
        sent = list[Ints]()
        stored = list[Ints]()
        for number in range(len(groups) + self.slots):
            done = number - self.slots  # all slots are full: empty the oldest, then fill it anew
            if 0 <= done < len(groups):
                stored.append(self._store(groups[done], dimension, (sent[done], peer)))
            if number < len(groups):
                filled.append(self._fill(groups[number], dimension))
                sent.append(self._message(filled[-1], peer))
        self._credits([rows[0] for rows in filled], sent, stored, peer)

    def _step(self, rows: Ints) -> Ints:
        """Append one new row for each rank, after its latest row in this loop; return the rows.

        `rows` has the numbers of the new rows by rank.
        """
        if self.first is None:
            self.first = rows
        else:
            self.body.after(rows, self.last, IN_ORDER)
        self.last = rows
        return rows

    def _local(self, block_pass: Pass, number: int) -> int:
        """Return the number of the kind of row that copies a block of a message between buffers.

        `number` is that of the block in its message. One pass copies all blocks of a message, so
        only the first has the fixed cost.
        """
        kind = self.channel.local(block_pass)
        return self.body.kind(RowKind(replace(kind.style, latency=0.0)) if number else kind)

    def _fill(self, group: list[int], dimension: int) -> list[Ints]:
        """Write the copies of a message's blocks (or partial sums of them) into the FIFO.

        - `group`: for each block of the message, how many ranks its owner is after the sending rank
          (AllGather) or after the receiving rank (ReduceScatter).

        Returns, for each block, an array with the row of every rank.
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
            rows.append(self._step(self.body.rows(kind, self.ranks, self.ranks, 0, base=block)))
        return rows

    def _message(self, filled: list[Ints], peer: Ints) -> Ints:
        """Write the row by which each rank's proxy sends a message; return these rows, by rank.

        - `filled`: for each block of the message, the rows that put it into the FIFO. The proxy
          sends when it has noticed all of them.
        - `peer`: by rank, the rank that it sends to.
        """
        pairs = zip(self.ranks.tolist(), peer.tolist(), strict=True)
        kinds = [self.body.kind(self.channel.message(*pair, SCRATCH)) for pair in pairs]
        rows = self.body.rows(kinds, self.ranks, peer, len(filled))
        for blocks in filled:
            self.body.after(rows, blocks, self.channel.noticed)
        return rows

    def _store(self, group: list[int], dimension: int, arrived: tuple[Ints, Ints]) -> Ints:
        """Write the rows by which every rank copies a message, or adds it to its own data.

        - `group`: for each block of the message, how many ranks its owner is after the sending rank
          (AllGather) or after the receiving rank (ReduceScatter).
        - `arrived`: by sending rank, the row of its message, and the rank that it sends to.

        Returns the last of these rows of every rank.
        """
        sent, peer = arrived
        for number, offset in enumerate(group):
            ahead = offset + (1 << dimension) if self.gathers else offset
            block = (self.ranks + ahead) % self.collective.ranks * self.collective.count
            if self.gathers:
                op = COPY
            else:
                op = REDUCE if dimension else REDUCE_INPUT
            out = self.gathers or ahead == 0
            block_pass = Pass(SCRATCH, OUT if out else SCRATCH, op, 1 if self.gathers else 2, 1)
            kind = self._local(block_pass, number)
            rows = self._step(self.body.rows(kind, self.ranks, self.ranks, 0, base=block))
            for src, dst in zip(self.ranks.tolist(), peer.tolist(), strict=True):
                self.body.after(rows[dst], sent[src], self.channel.sync(src, dst))
        return self.last

    def _credits(
        self, filled: list[Ints], sent: list[Ints], stored: list[Ints], peer: Ints
    ) -> None:
        """Let the messages of one round wait for free slots of the FIFO.

        A rank fills a slot again when its proxy has sent what was in it. The proxy sends the next
        message when the receiver has emptied the slot there. Both may have happened in an earlier
        loop.

        - `filled`: by message, the rows (by rank) that fill its slot.
        - `sent`: by message, the rows of the proxies.
        - `stored`: by message, the rows of the receivers that empty its slot.
        - `peer`: by rank, the rank that it sends to.
        """
        credit: Lag = self.channel.credit(0, int(peer[0]))
        for number, (fill, message) in enumerate(zip(filled, sent, strict=True)):
            back, before = divmod(number - self.slots, self.most_messages)
            before = min(before, len(sent) - 1)
            self.body.after(message, stored[before][peer], credit, -back)
            self.body.after(fill, sent[before], self.channel.local_credit, -back)
            earlier = (number - 1) % len(sent)
            self.body.after(message, sent[earlier], IN_ORDER, int(number == 0))
