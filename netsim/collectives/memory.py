"""Memory: the buffers of all ranks while a schedule is executed symbolically, row by row.

Instead of numbers, every element holds which ranks' inputs were added up in it, how often, and from
which place of the input they come. It knows no times: rows are executed in the order asked for.
"""

from collections.abc import Sequence

from netsim.collectives.collective import Collective
from netsim.collectives.segments import Part, Segments
from netsim.errors import NetsimError
from netsim.schedule import (
    BUFFER_NAMES,
    COMPUTE,
    IN,
    MARK,
    REDUCE,
    REDUCE_INPUT,
    SCRATCH,
    Schedule,
)

BITS = 16  # of the count of each rank's contributions
MANY = 1 << (BITS - 1)

# Origin offset minus position, and the contributions with 16 bits a rank; None: never written.
Cell = tuple[int, int] | None


class VerificationError(NetsimError, ValueError):
    """A schedule that does not do what its collective demands."""


def span_text(rank: int, buffer: int, start: int, stop: int) -> str:
    """An element range in words, for messages."""
    return f"rank {rank}, {BUFFER_NAMES[buffer]} elements {start}..{stop - 1}"


class Memory:
    """What every rank holds; `execute` applies one row.

    `members[i]` is the schedule's rank that is rank i of the collective (default: the same).
    """

    def __init__(
        self, schedule: Schedule, collective: Collective, members: Sequence[int] | None = None
    ) -> None:
        ranks = range(collective.ranks) if members is None else members
        if len(ranks) != collective.ranks:
            raise ValueError(f"members: expected {collective.ranks} ranks, got {len(ranks)}")
        self.schedule = schedule
        self.collective = collective
        self.number = {int(member): rank for rank, member in enumerate(ranks)}
        self.buffers: dict[tuple[int, int], Segments[Cell]] = {}
        self._high = sum(MANY << (BITS * rank) for rank in range(collective.ranks))
        p = schedule.pieces
        columns = (p.src_offset, p.dst_offset, p.own_offset, p.count)
        self._pieces = list(zip(*(column.tolist() for column in columns), strict=True))
        for rank in range(collective.ranks):
            self._store(rank, IN, 0, [(0, collective.input_count(rank), (0, 1 << (BITS * rank)))])

    def execute(self, row: int) -> None:
        """Move and reduce the data of one row."""
        style = self.schedule.styles[int(self.schedule.style[row])]
        if style.kind in (COMPUTE, MARK):
            return
        if style.multiplicity != 1:
            raise VerificationError(f"{self.schedule.describe(row)} is folded: verify the unfolded")
        src_offset, dst_offset, own_offset, count = self._pieces[int(self.schedule.piece[row])]
        sources, targets = self.schedule.members(row)
        data: list[Part[Cell]] = []
        for source in sources:
            part = self._load(row, self._rank(row, source), style.src_buffer, src_offset, count)
            data = self._add(row, data, part) if data else part
        for target in (self._rank(row, t) for t in targets):
            result = data
            if style.op == REDUCE:
                own = self._load(row, target, style.dst_buffer, dst_offset, count)
                result = self._add(row, data, own)
            elif style.op == REDUCE_INPUT:
                own = self._load(row, target, IN, own_offset, count)
                result = self._add(row, data, own)
            self._check_target(row, target, style.dst_buffer, dst_offset, count)
            self._store(target, style.dst_buffer, dst_offset, result)

    def segments(self, rank: int, buffer: int) -> tuple[Segments[Cell], int]:
        """The physical buffer in which a buffer lies, and where in it."""
        physical, base = self.collective.location(rank, buffer)
        return self.buffers.setdefault((rank, physical), Segments(None)), base

    def read(self, rank: int, buffer: int, start: int, count: int) -> list[Part[Cell]]:
        """What a range holds, with positions relative to its start."""
        segments, base = self.segments(rank, buffer)
        origin = base + start
        return [
            (low - origin, high - origin, cell and (cell[0] + origin, cell[1]))
            for low, high, cell in segments.read(origin, origin + count)
        ]

    def _rank(self, row: int, member: int) -> int:
        if member not in self.number:
            raise VerificationError(f"{self.schedule.describe(row)} is outside the collective")
        return self.number[member]

    def _load(self, row: int, rank: int, buffer: int, start: int, count: int) -> list[Part[Cell]]:
        parts = self.read(rank, buffer, start, count)
        for low, high, cell in parts:
            if cell is None:
                where = span_text(rank, buffer, start + low, start + high)
                raise VerificationError(
                    f"{self.schedule.describe(row)} reads {where} before they are written"
                )
        return parts

    def _store(self, rank: int, buffer: int, start: int, parts: list[Part[Cell]]) -> None:
        segments, base = self.segments(rank, buffer)
        origin = base + start
        moved: list[Part[Cell]] = [
            (low + origin, high + origin, cell and (cell[0] - origin, cell[1]))
            for low, high, cell in parts
            if low < high
        ]
        segments.write(moved)

    def _check_target(self, row: int, rank: int, buffer: int, start: int, count: int) -> None:
        if buffer == SCRATCH or count == 0:
            return
        if buffer == IN and not self.collective.in_place:
            raise VerificationError(f"{self.schedule.describe(row)} overwrites the input")
        extent = (self.collective.input_count, self.collective.output_count)[buffer](rank)
        if start + count > extent:
            where = span_text(rank, buffer, start, start + count)
            raise VerificationError(
                f"{self.schedule.describe(row)} writes {where}: there are only {extent}"
            )

    def _add(self, row: int, one: list[Part[Cell]], other: list[Part[Cell]]) -> list[Part[Cell]]:
        """Two equally long runs of cells, added element by element."""
        if len(one) == len(other) == 1:
            return [(one[0][0], one[0][1], self._sum(row, one[0][2], other[0][2]))]
        result: list[Part[Cell]] = []
        i = j = at = 0
        while i < len(one) and j < len(other):
            stop = min(one[i][1], other[j][1])
            result.append((at, stop, self._sum(row, one[i][2], other[j][2])))
            i, j, at = i + (one[i][1] == stop), j + (other[j][1] == stop), stop
        return result

    def _sum(self, row: int, one: Cell, other: Cell) -> Cell:
        assert one is not None
        assert other is not None
        if one[0] != other[0]:
            raise VerificationError(
                f"{self.schedule.describe(row)} adds elements from different places of the input"
                f" ({one[0]} and {other[0]})"
            )
        total = one[1] + other[1]
        if total & self._high:
            raise VerificationError(
                f"{self.schedule.describe(row)} adds one rank's contribution {MANY} times or more"
            )
        return one[0], total
