"""Grouped sends and receives: rounds in batches, each part of a send on a channel of its own.

The operations of a batch on one block progress together, each by its share of the warps; the next
batch of that block begins when all of them are done.
"""

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import cast

import numpy as np
from numpy.typing import NDArray

from netsim.arrays import different
from netsim.collectives.collective import Collective
from netsim.nccl.names import Protocol
from netsim.nccl.schedules.cuts import chunk_table, segments
from netsim.nccl.schedules.exchange import Ends, Exchange
from netsim.nccl.schedules.output import Output, Turn
from netsim.nccl.schedules.parts import Parts, written_parts
from netsim.nccl.schedules.plan import Plan, Work
from netsim.schedule import IN_ORDER, Schedule

Ints = NDArray[np.int64]
NOBODY: tuple[Ints, Ints] = (np.zeros(0, np.int64), np.zeros(0, np.int64))


def send_recv(collective: Collective, plan: Plan) -> Schedule:
    """All transfers of a plan, batch after batch on every block."""
    output = Output(collective, places=plan.places, keep=False, fold=plan.stands)
    written = _Writer(output, plan, written_parts(plan, collective.element_bytes))
    for sent, received in written.parts.waves():
        written.wave(sent, received)
    channel, rank = np.nonzero(written.doors >= 0)
    output.ends(rank, written.doors[channel, rank])
    return output.close()


@dataclass
class _Writer:
    """Parts on their way into an Output; `doors` are the marks after which the block of each
    channel (first axis) and rank may begin its next batch.
    """

    output: Output
    plan: Plan
    parts: Parts
    doors: NDArray[np.int32] = field(init=False)

    def __post_init__(self) -> None:
        self.doors = np.full((self.parts.channels, self.output.collective.ranks), -1, np.int32)

    @cached_property
    def leads(self) -> Ints:
        """The rank that stands for each."""
        fold = self.plan.stands
        ranks = np.arange(self.output.collective.ranks) if fold is None else fold.ranks.first
        return ranks.astype(np.int64)

    @cached_property
    def copies(self) -> Ints:
        """How many ranks each stands for."""
        fold = self.plan.stands
        one = np.ones(len(self.leads), np.int64)
        return one if fold is None else fold.ranks.count.astype(np.int64)

    def wave(self, sent: Ints, received: Ints) -> None:
        """Append the parts of a wave, of which blocks receive some that others stand for."""
        parts = self.parts
        taken, receiver = parts.received[received], parts.receiver[received]
        crowd = np.zeros(self.doors.shape, np.int64)
        np.add.at(crowd, (parts.channel[sent], parts.src[sent]), 1)
        np.add.at(crowd, (parts.channel[taken], receiver), 1)
        ends = np.full((2, len(parts.src)), -1, np.int32)
        for like in different(parts.like[sent]).tolist():
            mine = sent[parts.like[sent] == like]
            ends[:, mine] = self._append(like, mine, crowd)
        self._close(
            np.concatenate([parts.channel[sent], parts.channel[taken]]),
            np.concatenate([parts.src[sent], receiver]),
            np.concatenate([ends[0, sent], ends[1, taken]]),
        )

    def _append(self, number: int, mine: Ints, crowd: Ints) -> NDArray[np.int32]:
        """Append parts that are alike; returns the last rows of the blocks at both ends."""
        parts, like = self.parts, self.parts.likes[number]
        channel, src, dst = parts.channel[mine], parts.src[mine], parts.dst[mine]
        seats = (channel, src), (channel, self.leads[dst])
        plan = replace(self.plan, protocol=cast("Protocol", like.protocol))
        element_bytes = self.output.collective.element_bytes
        table = chunk_table(Work(0, 0, like.count, like.chunk), element_bytes)
        exchange = Exchange(
            plan,
            Ends(src, dst, parts.offset[mine], parts.target[mine], channel, self.copies[src]),
            (crowd[seats[0]], crowd[seats[1]]),
            segments(plan, element_bytes, table),
            like.multiplicity,
        )
        made = exchange.copies() if like.alone else exchange.passes()
        gates = np.full(len(exchange.woven), -1, np.int32)
        for rows, seat in zip(made, seats, strict=False):
            gates[rows] = self.doors[seat]
        gated = [(gates, IN_ORDER)] if gates.max() >= 0 else []
        turn = Turn(exchange.woven, NOBODY)
        turns = self.output.add(turn, exchange.cut, 2 * len(mine), gated)
        last = [turns[-1][block[-1]] for block in made]
        return np.stack(last if len(last) > 1 else last * 2)

    def _close(self, channel: Ints, rank: Ints, rows: NDArray[np.int32]) -> None:
        """Blocks may go on when all that they do in this wave is done."""
        order = np.lexsort((rank, channel))
        seat = channel[order] * len(self.leads) + rank[order]
        first = np.flatnonzero(np.diff(seat, prepend=-1))
        seats = np.divmod(seat[first], len(self.leads))
        joins = (np.append(first, len(seat)), rows[order], IN_ORDER)
        self.doors[seats] = self.output.builder.marks(seats[1], joins=joins)
