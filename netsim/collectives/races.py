"""check_races: is every read ordered after the write it needs, and every write after what it ends?

A row ends at its sender first and arrives at its receiver later. So each row has two moments, and
only an edge that waits for the arrival orders what happens at the receiver. One exception: rows
between the same two ranks on the same channel and route arrive in the order in which they are sent.

The causal past of every row is kept as a bit set over rows, which holds the same as a vector clock
a chain of rows and is faster to merge for the sizes that are checked (up to some 100,000 rows).
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from netsim.collectives.collective import Collective
from netsim.collectives.memory import span_text
from netsim.collectives.segments import Part, Segments
from netsim.collectives.verifier import rows_of
from netsim.errors import NetsimError
from netsim.schedule import (
    COMPUTE,
    IN,
    LOCAL_COPY,
    MARK,
    REDUCE_INPUT,
    TRANSFER,
    Schedule,
)

# A row that touched a location, doubled; plus one if it did so at its arrival.
Touch = int
# Who wrote a location last (-1: nobody), and who has read it since.
Use = tuple[Touch, tuple[Touch, ...]]


class RaceError(NetsimError, ValueError):
    """Two accesses to the same elements, one of them a write, that nothing orders."""


class Access(NamedTuple):
    """What a row does to a range of a buffer; `late`: until the arrival, not just the end."""

    rank: int
    buffer: int
    start: int
    write: bool
    late: bool


def check_races(
    schedule: Schedule,
    collective: Collective,
    which: int = 0,
    members: Sequence[int] | None = None,
) -> None:
    """Raise a RaceError unless all conflicting accesses to one location are ordered.

    `members[i]` is the schedule's rank that is rank i of the collective (default: the same).
    """
    number = {int(m): r for r, m in enumerate(members or range(collective.ranks))}
    watch = _Watch(schedule, collective)
    past = _Past(schedule)
    mine = set(rows_of(schedule, which))
    for row in range(len(schedule)):
        past.enter(row)
        if row in mine:
            watch.touch_all(row, list(_accesses(schedule, row, number)), past)


def _accesses(schedule: Schedule, row: int, number: dict[int, int]) -> Iterator[Access]:
    style = schedule.styles[int(schedule.style[row])]
    if style.kind in (COMPUTE, MARK):
        return
    piece, pieces = int(schedule.piece[row]), schedule.pieces
    late = style.kind != LOCAL_COPY
    sources, targets = schedule.members(row)
    outside = [member for member in (*sources, *targets) if member not in number]
    if outside:
        raise RaceError(f"{schedule.describe(row)} is outside the collective")
    for source in sources:
        yield Access(number[source], style.src_buffer, int(pieces.src_offset[piece]), False, False)
    for target in targets:
        if style.op == REDUCE_INPUT:
            yield Access(number[target], IN, int(pieces.own_offset[piece]), False, late)
        yield Access(number[target], style.dst_buffer, int(pieces.dst_offset[piece]), True, late)


class _Past:
    """What is over when the current row starts: rows that have ended, rows that have arrived."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._ptr = schedule.dep_ptr.tolist()
        self._row = schedule.dep_row.tolist()
        self._arrival = [schedule.lags[k].arrival for k in schedule.dep_lag.tolist()]
        kinds = [style.kind for style in schedule.styles]
        self._local = [kinds[k] in (LOCAL_COPY, COMPUTE, MARK) for k in schedule.style.tolist()]
        self._lane = list(zip(*_lanes(schedule), strict=True))
        self._waiting = [0] * len(schedule)
        for earlier in self._row:
            self._waiting[earlier] += 1
        # Known at the start: ended, arrived; known at the arrival: arrived.
        self._known: dict[int, tuple[int, int, int]] = {}
        self.ended = self.arrived = 0

    def enter(self, row: int) -> None:
        """Go on to the next row; rows must be entered in order."""
        ended = arrived = along = 0
        for edge in range(self._ptr[row], self._ptr[row + 1]):
            earlier = self._row[edge]
            known = self._known[earlier]
            bit = 1 << earlier
            ended |= known[0] | bit
            if self._arrival[edge] or self._local[earlier]:
                arrived |= known[2] | bit
            else:
                arrived |= known[1]
                if self._lane[row] == self._lane[earlier]:
                    along |= known[2] | bit
            self._forget(earlier)
        self.ended, self.arrived = ended, arrived
        if self._waiting[row]:
            self._known[row] = ended, arrived, arrived | along

    def _forget(self, row: int) -> None:
        self._waiting[row] -= 1
        if not self._waiting[row]:
            del self._known[row]

    def has(self, touch: Touch) -> bool:
        """Whether an earlier access is over when the current row starts."""
        over = self.arrived if touch & 1 else self.ended
        return bool(over >> (touch >> 1) & 1)


def _lanes(schedule: Schedule) -> tuple[list[object], ...]:
    """What two rows must share to arrive in the order in which they are sent."""
    ways = [
        (style.channel, style.route, style.kind) if style.kind == TRANSFER else (k, "", style.kind)
        for k, style in enumerate(schedule.styles)
    ]
    return schedule.src.tolist(), schedule.dst.tolist(), [ways[k] for k in schedule.style.tolist()]


class _Watch:
    """Who touched which elements of which physical buffer last."""

    def __init__(self, schedule: Schedule, collective: Collective) -> None:
        self._schedule = schedule
        self._collective = collective
        self._uses: dict[tuple[int, int], Segments[Use]] = {}

    def touch_all(self, row: int, accesses: list[Access], past: _Past) -> None:
        """Check the accesses of one row against all that went before, and note them."""
        for access in accesses:
            self._touch(row, access, past)
        for write in (a for a in accesses if a.write):
            for read in (a for a in accesses if not a.write):
                self._check_shift(row, read, write)

    def _check_shift(self, row: int, read: Access, write: Access) -> None:
        """A row may overwrite what it reads, but not what it has yet to read."""
        count = int(self._schedule.pieces.count[self._schedule.piece[row]])
        (one, one_base), (other, other_base) = (
            self._collective.location(a.rank, a.buffer) for a in (read, write)
        )
        shift = write.start + other_base - read.start - one_base
        if (read.rank, one) == (write.rank, other) and 0 < abs(shift) < count:
            raise RaceError(f"{self._schedule.describe(row)} overwrites what it reads")

    def _touch(self, row: int, access: Access, past: _Past) -> None:
        count = int(self._schedule.pieces.count[self._schedule.piece[row]])
        physical, base = self._collective.location(access.rank, access.buffer)
        start = base + access.start
        uses = self._uses.setdefault((access.rank, physical), Segments((-1, ())))
        me = 2 * row + access.late
        after: list[Part[Use]] = []
        for low, high, (writer, readers) in uses.read(start, start + count):
            for other in (writer, *readers) if access.write else (writer,):
                if other >= 0 and other >> 1 != row and not past.has(other):
                    where = (low - base, high - base)
                    raise self._race(row, other >> 1, access, where)
            after.append((low, high, (me, ()) if access.write else (writer, (*readers, me))))
        uses.write(after)

    def _race(self, row: int, other: int, access: Access, where: tuple[int, int]) -> RaceError:
        deed = "writes" if access.write else "reads"
        describe = self._schedule.describe
        return RaceError(
            f"{describe(row)} {deed} {span_text(access.rank, access.buffer, *where)}"
            f" that {describe(other)} uses, and nothing orders the two"
        )
