"""Proofs of NCCL's schedules as they run: data goes along dependencies, FIFOs are windows.

A row that reads scratch reads what the rows that it waits for have brought to its rank; lags tell
these from credits. Rows that write there fill the FIFO between their rank and the reader's: what
is filled, in slots of as many as were filled together, may be filled again once all that used it
so many slots ago is over. So nothing here knows an algorithm or an address, and all rows and
dependencies are those that are simulated.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from unittest.mock import patch

import numpy as np

from netsim.base.memo import Memo
from netsim.collectives.collective import Collective
from netsim.collectives.verify import (
    Access,
    RaceError,
    VerificationError,
    _AccessChecker,
    _CausalPast,
    rows_of,
)
from netsim.nccl.choice import schedule_of
from netsim.nccl.constants import Mechanism
from netsim.nccl.schedules.plan import SEND_RECV, Plan
from netsim.nccl.schedules.writing import Output
from netsim.schedule.extent import Extent
from netsim.schedule.schedule import (
    COMPUTE,
    COPY,
    IN,
    LOCAL_COPY,
    MARK,
    OUT,
    REDUCE,
    REDUCE_INPUT,
    SCRATCH,
    Schedule,
)

NOTICED, EMPTIED, FREED = 12.0, 34.0, 56.0  # seconds that no other lags have

# How far data is from its place in the input, and whose contributions are added up in it: how often
# those of each rank, in 16 bits each.
Value = tuple[int, int]
BITS = 16


def told_apart(mechanism: Mechanism) -> Mechanism:
    """The same with seconds by which a proxy's dependencies and credits are known."""
    links = {name: replace(getattr(mechanism, name), credit=FREED) for name in ("nvlink", "pcie")}
    network = replace(mechanism.network, notice=NOTICED, credit=FREED)
    return replace(mechanism, network=network, local_credit=EMPTIED, **links)


@dataclass(frozen=True)
class Written:
    """A schedule that says which data rows move; by row, the part that was written at once, its
    turn in a loop, and the slots of FIFOs."""

    made: Schedule
    part: list[int]
    turn: list[int]
    slots: list[int]


def written(collective: Collective, plan: Plan) -> Written:
    """What a plan becomes."""
    parts = []
    add = Output.add

    def noted(self, turn, cut, *gates):
        rows = add(self, turn, cut, *gates)
        parts.append((rows, cut))
        return rows

    plan = replace(plan, memo=Memo(), mechanism=told_apart(plan.mechanism))
    extent = Extent(merges_channels=False, has_places=True)
    with patch.object(Output, "add", noted):
        made = schedule_of(collective, plan, extent)
    part, turn, slots = np.zeros((3, len(made)), np.int64)
    for number, (rows, cut) in enumerate(parts):
        part[rows], slots[rows] = number, cut.slots
        turn[rows] = np.arange(len(rows))[:, None]
    return Written(made, part.tolist(), turn.tolist(), slots.tolist())


class Proof:
    """Rows of a schedule and what they read and write."""

    def __init__(self, collective: Collective, plan: Plan, what: Written) -> None:
        self.collective, self.plan, self.what, self.made = collective, plan, what, what.made
        made, pieces = what.made, what.made.pieces
        self.rows = rows_of(made, 0)
        self.styles = [made.styles[k] for k in made.style.tolist()]
        self.count = pieces.count[made.piece].tolist()
        self.at, self.origin = (
            x[made.piece].tolist() for x in (pieces.dst_offset, pieces.src_offset)
        )
        first, size = zip(*self._whole(), strict=True)
        begin, count = np.array([*self.at, *first]), np.array([*self.count, *size])
        cuts = np.unique([*begin, *(begin + count)])
        self.cuts = cuts.tolist()
        ends = np.searchsorted(cuts, self.at), np.searchsorted(cuts, np.add(self.at, self.count))
        self.cells = [range(*pair) for pair in zip(*(x.tolist() for x in ends), strict=True)]
        self.ends = [made.members(row) for row in range(len(made))]
        self.data = [self._data(row) for row in range(len(made))]
        self.readers: list[list[int]] = [[] for _ in self.data]
        for row, sources in enumerate(self.data):
            for earlier in sources:
                self.readers[earlier].append(row)

    def _whole(self) -> Iterator[tuple[int, int]]:
        """Where what outputs must hold begins, and how much it is."""
        c = self.collective
        for rank in range(c.ranks):
            for wanted in c.expectations(rank):
                yield wanted.offset + (c.name == "reduce_scatter") * rank * c.count, wanted.count

    def idle(self, row: int) -> bool:
        """Whether a row moves nothing."""
        return self.styles[row].kind in (COMPUTE, MARK) or not self.count[row]

    def _data(self, row: int) -> list[int]:
        """The rows whose data a row reads: those it waits for that bring something to its rank."""
        if self.idle(row) or self.styles[row].src_buffer == IN:
            return []
        found = (
            earlier
            for earlier, lag in self.made.dependencies(row)
            if (lag.seconds == NOTICED or (lag.arrival and lag.seconds != EMPTIED))
            and not self.idle(earlier)
            and set(self.ends[earlier][1]) & set(self.ends[row][0])
        )
        return list(dict.fromkeys(found))

    # **** What every rank ends with ****

    def verify(self) -> None:
        """Raise an error unless outputs hold what the collective demands."""
        self.held: dict[tuple[int, int, int], Value] = {}
        self.writer: dict[tuple[int, int], int] = {}  # of what is kept in scratch
        self.brought: dict[int, dict[int, Value]] = {}
        if self.collective.in_place:
            self._keep()
        for row in self.rows:
            if not self.idle(row):
                self._execute(row)
        for rank in range(self.collective.ranks):
            for wanted in self.collective.expectations(rank):
                self._check(rank, wanted)
        for row in self.brought:
            if self.styles[row].dst_buffer == SCRATCH and not self._keeps(row):
                self._check_read(row)

    def _check_read(self, row: int) -> None:
        """Nothing that comes into a FIFO stays there."""
        read: set[int] = set()
        for reader in self.readers[row]:
            read |= set(self.brought[row] if self._bundle(reader) else self.cells[reader])
        left = set(self.brought[row]) - read
        if left:
            raise VerificationError(
                f"{self.made.describe(row)}: nobody reads {self.cuts[min(left)]}"
            )

    def _keep(self) -> None:
        """What lies in outputs from the start."""
        kept = self.collective.local_data()
        columns = (x.tolist() for x in (kept.rank, kept.in_offset, kept.out_offset, kept.count))
        sends = self.plan.algorithm == SEND_RECV
        for rank, origin, at, count in zip(*columns, strict=True):
            value = (origin - at) * sends, 1 << (BITS * rank)
            begin, end = np.searchsorted(self.cuts, [at, at + count]).tolist()
            self.held |= {(rank, OUT, cell): value for cell in range(begin, end)}

    def _execute(self, row: int) -> None:
        style, (sources, targets) = self.styles[row], self.ends[row]
        if style.multiplicity != 1 or style.copies != 1:
            raise VerificationError(f"{self.made.describe(row)} is folded: prove the unfolded")
        self.brought[row] = data = self._read(row, sources)
        for target in targets:
            if style.op != COPY:
                self.brought[row] = data = self._added(row, target, data)
            if style.dst_buffer == OUT:
                self._local(row, target, OUT)
            elif style.dst_buffer == IN:
                raise VerificationError(f"{self.made.describe(row)} overwrites the input")
            if style.dst_buffer == OUT or style.kind == LOCAL_COPY:
                self.held |= {(target, style.dst_buffer, cell): data[cell] for cell in data}
            if style.dst_buffer == SCRATCH and style.kind == LOCAL_COPY:
                self._fill_up(row, target)

    def _added(self, row: int, target: int, data: dict[int, Value]) -> dict[int, Value]:
        """The sum of data and what lies where it goes."""
        style = self.styles[row]
        if style.op == REDUCE_INPUT:
            return {cell: _sum(data[cell], self._input(row, target, cell)) for cell in data}
        there = {cell: self.held.get((target, style.dst_buffer, cell)) for cell in data}
        return {cell: _sum(data[cell], there[cell]) for cell in data}

    def _fill_up(self, row: int, target: int) -> None:
        """Sums in a slot are read by who reads the last of them."""
        for cell in self.cells[row]:
            first = self.writer.get((target, cell))
            if self.styles[row].op == REDUCE and first is not None:
                self.readers[first] += [row, *self.readers[row]]
            else:
                self.writer[target, cell] = row

    def _read(self, row: int, sources: tuple[int, ...]) -> dict[int, Value]:
        buffer, found = self.styles[row].src_buffer, dict[int, Value]()
        # A pass of a root adds what lies in FIFOs to what came right into its output.
        fifos = [e for e in self.data[row] if self.styles[e].dst_buffer == SCRATCH]
        if fifos:
            found = self._read_fifos(row)
            if buffer == OUT:
                self.held |= {(sources[0], OUT, cell): found[cell] for cell in found}
            return found
        sums = self.plan.algorithm == "PAT" and self.styles[row].kind == LOCAL_COPY
        if buffer == SCRATCH and not sums:
            raise VerificationError(f"{self.made.describe(row)} waits for nothing that it reads")
        for source in sources:
            for cell in self.cells[row]:
                own = buffer == IN
                value = (
                    self._input(row, source, cell) if own else self.held.get((source, buffer, cell))
                )
                if value is None:
                    raise VerificationError(
                        f"{self.made.describe(row)} reads {self.cuts[cell]} before it is written"
                    )
                found[cell] = _sum(value, found.get(cell))
        return found

    def _read_fifos(self, row: int) -> dict[int, Value]:
        """The data that the rows before this one brought into FIFOs, by cell."""
        found: dict[int, Value] = {}
        for earlier in self.data[row]:
            for cell, value in self.brought[earlier].items():
                if cell in self.cells[row] or self._bundle(row):
                    found[cell] = _sum(value, found.get(cell))
        there = sum(self.cuts[cell + 1] - self.cuts[cell] for cell in found)
        if there != self.count[row]:
            raise VerificationError(
                f"{self.made.describe(row)} reads {self.count[row]} elements before they are"
                f" written: {there} are there"
            )
        return found

    def _bundle(self, row: int) -> bool:
        """Whether a row moves all that it finds: a message of several blocks."""
        return self.plan.algorithm == "PAT" and self.styles[row].kind != LOCAL_COPY

    def _keeps(self, row: int) -> bool:
        """Whether a row writes into scratch that no other rank reads."""
        return self.styles[row].kind == LOCAL_COPY and self.styles[row].op != 0

    def _input(self, row: int, rank: int, cell: int) -> Value:
        own = 1 << (BITS * rank)
        if self.plan.algorithm == SEND_RECV:
            return self.origin[row] - self.at[row], own
        self._local(row, rank, IN)
        there = self.held.get((rank, OUT, cell)) if self.collective.in_place else None
        return there or (0, own)  # an output in the same place may have overwritten it

    def _local(self, row: int, rank: int, buffer: int) -> int:
        """Where the data of a row begins in a rank's own buffer."""
        c, at = self.collective, self.at[row]
        if self.plan.algorithm == SEND_RECV:
            at = self.origin[row] if buffer == IN else at
        elif c.name == ("all_gather" if buffer == IN else "reduce_scatter"):
            at -= rank * c.count
        extent = (c.input_count, c.output_count)[buffer](rank)
        if not 0 <= at <= at + self.count[row] <= extent:
            raise VerificationError(
                f"{self.made.describe(row)} is at {at}..{at + self.count[row]} of rank {rank}:"
                f" there are only {extent}"
            )
        return at

    def _check(self, rank: int, wanted) -> None:
        if not wanted.count:
            return
        sends = self.plan.algorithm == SEND_RECV
        own = self.collective.name == "reduce_scatter"
        first = wanted.offset + own * rank * self.collective.count
        value = (
            (wanted.origin_offset - wanted.offset) * sends,
            sum(1 << (BITS * origin) for origin in wanted.origins),
        )
        begin, end = np.searchsorted(self.cuts, [first, first + wanted.count]).tolist()
        if self.cuts[begin : end + 1][:: max(1, end - begin)] != [first, first + wanted.count]:
            raise VerificationError(f"rank {rank}: {first} and what follows is never written")
        for cell in range(begin, end):
            held = self.held.get((rank, OUT, cell))
            if held != value:
                raise VerificationError(
                    f"rank {rank} holds {held} at {self.cuts[cell]}, not {value}"
                )

    # **** Whether order keeps everything apart ****

    def check_races(self) -> None:
        """Raise an error unless slots are free when they are filled, and buffers when written."""
        past, watch = _CausalPast(self.made), _AccessChecker(self.made, self.collective)
        uses = self._uses()
        for row in range(len(self.made)):
            past.enter(row)
            if self.idle(row):
                continue
            watch.touch_all(row, list(self._accesses(row)), past)
            for touch in uses.get(row, ()):
                if not past.has(touch):
                    raise RaceError(
                        f"{self.made.describe(row)} fills a slot that"
                        f" {self.made.describe(touch >> 1)} uses, and nothing orders the two"
                    )
            for earlier in self.data[row]:
                if not past.has(2 * earlier + self._late(earlier)):
                    raise RaceError(f"{self.made.describe(row)} reads what may not be there")

    def _late(self, row: int) -> bool:
        return self.styles[row].kind != LOCAL_COPY

    def _uses(self) -> dict[int, list[int]]:
        """By row: those that must be over before it fills its slot, twice their number; plus one
        for those whose end is their arrival."""
        found: dict[int, list[int]] = {}
        for fillings in self._fifos().values():
            order = [fillings[key] for key in sorted(fillings)]
            for number, rows in enumerate(order):
                slots = self.what.slots[rows[0]]
                before = order[number - slots] if number >= slots else []
                for place, row in enumerate(rows):
                    # A slice has a part of the slot; pieces of LL share it with their chunk.
                    simple = self.plan.protocol == "Simple" and not self._bundled
                    shared = before[place : place + 1] if simple else before
                    found.setdefault(row, []).extend(
                        touch
                        for one in shared
                        for touch in (
                            2 * one + self._late(one),
                            *(2 * reader for reader in self.readers[one]),
                        )
                    )
        return found

    @property
    def _bundled(self) -> bool:
        return self.plan.algorithm in ("PAT", SEND_RECV)

    def _fifos(self) -> dict[object, dict[tuple[int, ...], list[int]]]:
        """The rows that fill each FIFO, by filling in order."""
        found: dict[object, dict[tuple[int, ...], list[int]]] = defaultdict(dict)
        for row in self.rows:
            style, local = self.styles[row], self.styles[row].kind == LOCAL_COPY
            # An empty message has its place among those of a filling all the same.
            moves = not self.idle(row) if local else style.kind not in (COMPUTE, MARK)
            if not moves or style.dst_buffer != SCRATCH or self._keeps(row):
                continue
            # A proxy's FIFO is that of the rank which it sends to.
            beyond = {self.ends[reader][1] for reader in self.readers[row]} if local else ()
            key = self.what.part[row], style.channel, style.kind, self.ends[row], frozenset(beyond)
            filling: tuple[int, ...] = (self.what.turn[row], int(self.made.step[row]))
            if self.plan.algorithm == "PAT":
                filling = (min(self.readers[row], default=row) if local else row,)
            found[key].setdefault(filling, []).append(row)
        return found

    def _accesses(self, row: int) -> Iterator[Access]:
        """What a row does to buffers, as far as it is no FIFO."""
        style, late = self.styles[row], self._late(row)
        sources, targets = self.ends[row]
        if style.src_buffer != SCRATCH:
            for rank in sources:
                start = self._local(row, rank, style.src_buffer)
                yield Access(rank, style.src_buffer, start, False, False)
        elif not self.data[row]:
            start = self._sums_at(row)
            yield from (Access(rank, SCRATCH, start, False, False) for rank in sources)
        for rank in targets:
            if style.op == REDUCE_INPUT:
                yield Access(rank, IN, self._local(row, rank, IN), False, late)
            if style.dst_buffer == OUT:
                yield Access(rank, OUT, self._local(row, rank, OUT), True, late)
            elif self._keeps(row):
                yield Access(rank, SCRATCH, self._sums_at(row), True, late)

    def _sums_at(self, row: int) -> int:
        """Where sums of a block lie: those of PAT in the same place in every turn."""
        size = self.collective.count
        if self.plan.algorithm != "PAT":
            return self.at[row]
        return (self.what.part[row] * self.collective.ranks + self.at[row] // size) * size


def _sum(one: Value, other: Value | None) -> Value:
    if other is None:
        return one
    if one[0] != other[0]:
        raise VerificationError("elements from different places of the input are added")
    return one[0], one[1] + other[1]


def prove(collective: Collective, plan: Plan) -> Schedule:
    """The schedule of a plan, once it is proven."""
    what = written(collective, plan)
    proof = Proof(collective, plan, what)
    proof.verify()
    proof.check_races()
    return what.made
