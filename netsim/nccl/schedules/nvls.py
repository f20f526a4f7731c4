"""NVLS in one node: the switch adds up what heads ask for and hands out what they store.

Every rank copies its input into a buffer that the switch can read, and results out of one, unless
its own buffers are registered. A head reads sums and stores them in one pass: here two rows for
each piece of its chunk, so that it reads one piece while it stores the one before.
"""

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from netsim.collectives.collective import Collective
from netsim.constants import value
from netsim.nccl.schedules.cuts import chunk_table
from netsim.nccl.schedules.hops import Channel, RowKind
from netsim.nccl.schedules.members import Members, members_of
from netsim.nccl.schedules.output import Output, Turn, remembered
from netsim.nccl.schedules.plan import Plan, Work, written
from netsim.nccl.schedules.weave import USER, Place, Segments, Weave
from netsim.schedule import (
    ARRIVED,
    IN,
    IN_ORDER,
    MULTICAST,
    OUT,
    SCRATCH,
    SWITCH_REDUCE,
    Lag,
    Schedule,
    Style,
    Use,
)

GIVEN, SUMS, RESULTS, REGIONS = 0, 1, 2, 3  # copied in, summed up by a head, handed out
LAST_ALIGNMENT = 16384  # bytes to which the chunk of the last loop is rounded up
PIECES = int(value("nvls.pieces"))  # of a head's chunk


def nvls(collective: Collective, plan: Plan) -> Schedule:
    """AllReduce, AllGather or ReduceScatter through the switch of one node."""
    output = Output(collective, places=plan.places, keep=False, fold=plan.stands)
    group = output.builder.group(range(collective.ranks))
    for lane in written(plan, switch_keys(plan)):
        cut = loop_segments(collective, lane.work, len(plan.heads[0]), plan.slots)
        pieces = PIECES if collective.name == "all_reduce" else 1
        cut = in_pieces(cut, pieces)
        members = members_of(plan, lane, plan.nodes, pieces)

        def turn(members: Members = members) -> Turn:
            switch = _Switch(members, collective, plan.heads[0], group)
            last = switch.all(plan.slots)
            return Turn(switch.woven, last)

        key = (*members.key, plan.slots)
        output.add(remembered(collective, plan, key, turn), cut, REGIONS)
    return output.close()


def switch_keys(plan: Plan) -> dict[int, object]:
    """Nothing tells channels apart."""
    return dict.fromkeys((work.channel for work in plan.work), 0)


def loop_segments(
    collective: Collective,
    work: Work,
    heads: int,
    slots: int,
    alignment: int = LAST_ALIGNMENT,
) -> Segments:
    """Heads' chunks of every loop, then the whole loop, then nothing.

    Chunks of AllReduce follow one another in the buffer; of the others each head's is the same
    part of another block.
    """
    element_bytes = collective.element_bytes
    if collective.name == "all_reduce":
        offset, count = chunk_table(work, element_bytes, heads, alignment)
        within = offset - offset[:, :1]
    else:
        offset, count = (np.repeat(x, heads, 1) for x in chunk_table(work, element_bytes))
        within = np.arange(heads) * count
    nothing = np.zeros((len(count), 1), np.int64)
    return Segments(
        np.hstack([offset, offset[:, :1], nothing]),
        np.hstack([count, count.sum(1, keepdims=True), nothing]),
        np.hstack([within, nothing, nothing]),
        slots=slots,
    )


def in_pieces(cut: Segments, pieces: int) -> Segments:
    """The same with every head's chunk in so many pieces, side by side."""
    if pieces == 1:
        return cut
    offset, count, within = (x[:, :-2, None] for x in (cut.offset, cut.count, cut.within))
    size = -(-count // pieces)
    begin = np.minimum(np.arange(pieces) * size, count)

    def joined(parts: NDArray[np.int64], before: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.hstack([parts.reshape(len(before), -1), before[:, -2:]])

    return replace(
        cut,
        offset=joined(offset + begin, cut.offset),
        count=joined(np.minimum(size, count - begin), cut.count),
        within=joined(within + begin, cut.within),
    )


@dataclass
class _Switch:
    """One channel while the rows of a loop are written.

    `stages` holds, by stage and rank (head), the rows of a pass.
    """

    members: Members
    collective: Collective
    heads: tuple[int, ...]
    group: int
    woven: Weave = field(default_factory=Weave)
    stages: dict[str, dict[int, list[int]]] = field(default_factory=dict)

    @property
    def channel(self) -> Channel:
        """What a pass of a head costs."""
        return self.members.by_head

    def all(self, slots: int) -> tuple[list[int], list[int]]:
        """All rows of a loop; the ranks and rows that end it."""
        name, mechanism = self.collective.name, self.channel.plan.mechanism
        sync = Lag(mechanism.nvls_sync)
        if name != "all_gather":
            self._copies("give")
            self._sums()
            self._follow("sum", "give", sync, IN_ORDER, slots)
        if name != "reduce_scatter":
            self._stores()
            self._copies("take")
            self._follow("take", "store", sync, IN_ORDER, slots)
        if name == "all_reduce":
            for head in (self.heads[number] for number in self.members.heads):
                here, before = self.stages["store"][head], self.stages["sum"][head]
                self.woven.after(here, before, ARRIVED)
                self.woven.after(before, here, IN_ORDER, slots)
        for stage, by_rank in self.stages.items():
            for rows in by_rank.values():
                if stage in ("sum", "store"):
                    self.woven.after(rows, np.roll(rows, 1), IN_ORDER, np.arange(len(rows)) == 0)
                    continue
                for row in rows:
                    self.woven.after(row, np.array(rows), IN_ORDER, 1)
        last = self.stages["sum" if name == "reduce_scatter" else "take"]
        ends = [(rank, row) for rank, rows in last.items() for row in rows]
        return [rank for rank, _ in ends], [row for _, row in ends]

    def _copies(self, stage: str) -> None:
        """Every rank's pass between its own buffer and the switch's."""
        giving, channel = stage == "give", self.members.by_rank
        region = Place(0, GIVEN if giving else RESULTS)
        buffers = (IN, SCRATCH) if giving else (SCRATCH, OUT)
        at_once = self.collective.name == "all_reduce"
        kind = channel.staging(*buffers, least_part=LAST_ALIGNMENT if at_once else 0)
        whole, nothing = len(self.heads) * self.channel.pieces, -1
        done = self.stages.setdefault(stage, {})
        for rank in self.members.ranks:
            if channel.plan.registered:
                done[rank] = [self.woven.row(channel.wait(), rank, rank, nothing)]
            elif self.collective.name == "all_reduce":
                ends = (USER, region) if giving else (region, USER)
                done[rank] = [
                    self.woven.row(kind, rank, rank, whole, source=ends[0], target=ends[1])
                ]
            else:
                done[rank] = self._block_copies(buffers, rank, region, giving=giving)

    def _block_copies(
        self, buffers: tuple[int, int], rank: int, region: Place, *, giving: bool
    ) -> list[int]:
        """One pass over all heads' blocks, a row for each."""
        kind, rows = self.members.of_both.staging(*buffers), []
        for number in self.members.heads:
            block = Place(self.heads[number] * self.collective.count)
            ends = (block, region) if giving else (region, block)
            rows.append(self.woven.row(kind, rank, rank, number, source=ends[0], target=ends[1]))
        return rows

    def _sums(self) -> None:
        """Every head reads the sum of its chunk from the switch."""
        whole = self.collective.name == "all_reduce"
        kind = switch_kind(
            self.channel,
            SWITCH_REDUCE,
            IN if self.channel.plan.registered else SCRATCH,
            SCRATCH if whole else OUT,
        )
        done = self.stages.setdefault("sum", {})
        for number in self.members.heads:
            head = self.heads[number]
            base = 0 if whole else head * self.collective.count
            source = Place(base) if self.channel.plan.registered else Place(0, GIVEN)
            target = Place(0, SUMS) if whole else USER
            done[head] = [
                self.woven.row(kind, self.group, head, piece, source=source, target=target)
                for piece in self._pieces(number)
            ]

    def _stores(self) -> None:
        """Every head stores its chunk to all ranks through the switch."""
        whole = self.collective.name == "all_reduce"
        out = OUT if self.channel.plan.registered else SCRATCH
        kind = switch_kind(self.channel, MULTICAST, SCRATCH if whole else IN, out, second=whole)
        done = self.stages.setdefault("store", {})
        for number in self.members.heads:
            head = self.heads[number]
            base = 0 if whole else head * self.collective.count
            target = Place(base) if self.channel.plan.registered else Place(0, RESULTS)
            source = Place(0, SUMS) if whole else USER
            done[head] = [
                self.woven.row(kind, head, self.group, piece, source=source, target=target)
                for piece in self._pieces(number)
            ]

    def _pieces(self, number: int) -> range:
        """The segments of a head's chunk."""
        return range(number * self.channel.pieces, (number + 1) * self.channel.pieces)

    def _follow(self, later: str, earlier: str, sync: Lag, freed: Lag, slots: int) -> None:
        """Each pass of a stage takes in what all of the one before have left, and frees it."""
        before = _all(self.stages[earlier])
        after = _all(self.stages[later])
        pairs = np.repeat(after, len(before)), np.tile(before, len(after))
        self.woven.after(*pairs, sync)
        self.woven.after(pairs[1], pairs[0], freed, slots)


def switch_kind(
    channel: Channel, kind: int, src_buffer: int, dst_buffer: int, *, second: bool = False
) -> RowKind:
    """A head's pass through the switch; `second`: the storing half of one that also reads."""
    mechanism = channel.plan.mechanism
    end = "dst" if kind == SWITCH_REDUCE else "src"
    uses = [Use("nvls", end, 1.0)]
    if not second:
        uses.append(Use("sm", end, 1.0, index=channel.number))
    style = Style(
        kind,
        src_buffer=src_buffer,
        dst_buffer=dst_buffer,
        channel=channel.number,
        multiplicity=channel.multiplicity,
        copies=channel.copies,
        wire=1 / mechanism.nvls_efficiency,
        uses=tuple(uses),
        latency=0.0 if second else mechanism.step_cost.simple / channel.pieces,
        cap=channel.rate,
    )
    return RowKind(style)


def _all(stage: dict[int, list[int]]) -> NDArray[np.int64]:
    return np.array([row for rows in stage.values() for row in rows])
