"""Check schedules symbolically: `verify` in row order, `check_races` for any order of simultaneous
rows.

`states` returns what every rank holds after each step.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from netsim.base.errors import NetsimError
from netsim.base.values import dataclass
from netsim.collectives.collective import Collective, Expectation
from netsim.schedule.schedule import (
    BUFFER_NAMES,
    COMPUTE,
    IN,
    LOCAL_COPY,
    MARK,
    OUT,
    REDUCE,
    REDUCE_INPUT,
    SCRATCH,
    TRANSFER,
    Schedule,
)

Value = TypeVar("Value")
Part = tuple[int, int, Value]  # from, to (exclusive), value


class ChunkSegments(Generic[Value]):
    """A value for every position from 0 up, stored as segments of equal values."""

    def __init__(self, value: Value) -> None:
        self._starts = [0]
        self._values = [value]

    def span(self, start: int, stop: int) -> slice:
        """The segments that cover exactly the positions start … stop - 1, as a slice of the stored
        lists; segments that extend beyond the range are divided.
        """
        return slice(self._cut(start), self._cut(stop))

    def read(self, start: int, stop: int) -> list[Part[Value]]:
        """The segments of positions start … stop - 1 from left to right, as (from, to, value)."""
        if start >= stop:
            return []
        span = self.span(start, stop)
        starts = self._starts[span]
        return list(zip(starts, [*starts[1:], stop], self._values[span], strict=True))

    def write(self, parts: Sequence[Part[Value]]) -> None:
        """Set the values of the positions that `parts`, (from, to, value), cover from left to right
        without gaps.
        """
        if not parts:
            return
        span = self.span(parts[0][0], parts[-1][1])
        self._starts[span] = [part[0] for part in parts]
        self._values[span] = [part[2] for part in parts]

    def __iter__(self) -> Iterator[Part[Value]]:
        """Yield (from, to, value) of each segment. The last segment, which extends without end, is
        left out.
        """
        return zip(self._starts, self._starts[1:], self._values, strict=False)

    def _cut(self, position: int) -> int:
        """The index of the segment that begins at a position, after dividing a segment if
        necessary.
        """
        index = bisect_left(self._starts, position)
        if index == len(self._starts) or self._starts[index] != position:
            self._starts.insert(index, position)
            self._values.insert(index, self._values[index - 1])
        return index


# The buffers of all ranks while a schedule is executed symbolically, row by row. Instead of a
# number, every element holds which ranks' inputs are summed in it, how often, and from which place
# of the input they come. There are no times: rows are executed in the order in which `execute` is
# called.

BITS = 16  # bits of the count of each rank's contributions
MANY = 1 << (BITS - 1)

# What an element holds: (its place in the inputs minus its position in this buffer, how often each
# rank's input is summed in it, 16 bits for each rank). None: never written.
Cell = tuple[int, int] | None


class VerificationError(NetsimError, ValueError):
    """The error for a schedule that does not implement its collective."""


def span_text(rank: int, buffer: int, start: int, stop: int) -> str:
    """A range of elements in words, such as "rank 0, out elements 10..19"."""
    return f"rank {rank}, {BUFFER_NAMES[buffer]} elements {start}..{stop - 1}"


class BufferContents:
    """The contents of all buffers of a collective's ranks while a schedule is executed.

    `members[i]` is the rank of the schedule that is rank i of the collective (default: i).
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
        self.buffers: dict[tuple[int, int], ChunkSegments[Cell]] = {}
        self._high = sum(MANY << (BITS * rank) for rank in range(collective.ranks))
        p = schedule.pieces
        columns = (p.src_offset, p.dst_offset, p.own_offset, p.count)
        self._pieces = list(zip(*(column.tolist() for column in columns), strict=True))
        for rank in range(collective.ranks):
            self._store(rank, IN, 0, [(0, collective.input_count(rank), (0, 1 << (BITS * rank)))])

    def execute(self, row: int) -> None:
        """Execute one row symbolically; a VerificationError if it reads what was never written or
        writes where it must not.
        """
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
                addend = self._load(row, target, style.dst_buffer, dst_offset, count)
                result = self._add(row, data, addend)
            elif style.op == REDUCE_INPUT:
                addend = self._load(row, target, IN, own_offset, count)
                result = self._add(row, data, addend)
            self._check_target(row, target, style.dst_buffer, dst_offset, count)
            self._store(target, style.dst_buffer, dst_offset, result)

    def segments(self, rank: int, buffer: int) -> tuple[ChunkSegments[Cell], int]:
        """The segments of the physical buffer that holds a rank's logical buffer, and the logical
        buffer's offset in it in elements.
        """
        physical, base = self.collective.location(rank, buffer)
        return self.buffers.setdefault((rank, physical), ChunkSegments(None)), base

    def read(self, rank: int, buffer: int, start: int, count: int) -> list[Part[Cell]]:
        """The contents of `count` elements from `start` on, as (from, to, cell) with positions
        relative to `start`.
        """
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
        """The contents that a row reads; a VerificationError if some were never written."""
        parts = self.read(rank, buffer, start, count)
        for low, high, cell in parts:
            if cell is None:
                where = span_text(rank, buffer, start + low, start + high)
                raise VerificationError(
                    f"{self.schedule.describe(row)} reads {where} before they are written"
                )
        return parts

    def _store(self, rank: int, buffer: int, start: int, parts: list[Part[Cell]]) -> None:
        """Write contents, with positions relative to `start`, to a buffer."""
        segments, base = self.segments(rank, buffer)
        origin = base + start
        moved: list[Part[Cell]] = [
            (low + origin, high + origin, cell and (cell[0] - origin, cell[1]))
            for low, high, cell in parts
            if low < high
        ]
        segments.write(moved)

    def _check_target(self, row: int, rank: int, buffer: int, start: int, count: int) -> None:
        """Raise a VerificationError if a row writes to the input out of place, or beyond the end of
        the input or output. Writes to scratch memory are not checked.
        """
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

    def _add(self, row: int, first: list[Part[Cell]], second: list[Part[Cell]]) -> list[Part[Cell]]:
        """The element-wise sum of two equally long ranges of cells, for the message of `row`."""
        if len(first) == len(second) == 1:
            return [(first[0][0], first[0][1], self._sum(row, first[0][2], second[0][2]))]
        result: list[Part[Cell]] = []
        i = j = at = 0
        while i < len(first) and j < len(second):
            stop = min(first[i][1], second[j][1])
            result.append((at, stop, self._sum(row, first[i][2], second[j][2])))
            i = i + (first[i][1] == stop)
            j = j + (second[j][1] == stop)
            at = stop
        return result

    def _sum(self, row: int, first: Cell, second: Cell) -> Cell:
        """The sum of two cells, for the message of `row`; an error if they come from different
        places of the input.
        """
        assert first is not None
        assert second is not None
        if first[0] != second[0]:
            raise VerificationError(
                f"{self.schedule.describe(row)} adds elements from different places of the input"
                f" ({first[0]} and {second[0]})"
            )
        total = first[1] + second[1]
        if total & self._high:
            raise VerificationError(
                f"{self.schedule.describe(row)} adds one rank's contribution {MANY} times or more"
            )
        return first[0], total


# verify: does a schedule implement its collective? The schedule is executed symbolically in row
# order (a topological order) and the outputs are compared with what the collective expects.
# `check_races` checks all other orders.

SHOWN = 8


def verify(
    schedule: Schedule, collective: Collective, which: int = 0, members: Sequence[int] | None = None
) -> None:
    """Execute a schedule symbolically; raise a VerificationError unless it implements the
    collective.

    Every output element must hold each contribution exactly once. `which` is the number of the
    operation in a schedule of several, and `members[i]` the rank of the schedule that is rank i of
    the collective (by default rank i). Times and links do not matter here.

    >>> from netsim import Collective, build
    >>> collective = Collective("all_gather", ranks=3, count=10)
    >>> verify(build(collective, "ring"), collective)
    >>> verify(build(collective, "ring"), Collective("all_gather", ranks=3, count=11))
    Traceback (most recent call last):
    netsim.collectives.verify.VerificationError: rank 0, out elements 10..10: missing the \
contribution of rank 0; foreign the contribution of rank 1
    """
    rows = rows_of(schedule, which)
    if collective.name == "barrier":
        _verify_barrier(schedule, rows, members or range(collective.ranks))
        return
    memory = BufferContents(schedule, collective, members)
    for row in rows:
        memory.execute(row)
    for rank in range(collective.ranks):
        for expected in collective.expectations(rank):
            _check_output(memory, rank, expected)


def rows_of(schedule: Schedule, which: int) -> list[int]:
    """The rows of the collective with number `which` in a schedule."""
    if not 0 <= which < len(schedule.collectives):
        raise ValueError(f"which: expected 0..{len(schedule.collectives) - 1}, got {which}")
    rows: list[int] = np.flatnonzero(schedule.style_column("collective") == which).tolist()
    return rows


def multiplicities(contributions: int, ranks: int) -> list[int]:
    """By rank, how often its input is summed in `contributions`, a number with 16 bits for each
    rank.
    """
    raw = contributions.to_bytes(ranks * BITS // 8, "little")
    return np.frombuffer(raw, "<u2").tolist()  # type: ignore[no-any-return]


def _check_output(memory: BufferContents, rank: int, expected: Expectation) -> None:
    for low, high, cell in memory.read(rank, OUT, expected.offset, expected.count):
        wrong = _fault(cell, expected, memory.collective.ranks)
        if wrong:
            where = span_text(rank, OUT, expected.offset + low, expected.offset + high)
            raise VerificationError(f"{where}: {wrong}")


def _fault(cell: Cell, expected: Expectation, ranks: int) -> str:
    """What is wrong with an output element, in words; "" if it is as expected."""
    if cell is None:
        return "never written"
    if cell == (expected.origin_offset, sum(1 << (BITS * origin) for origin in expected.origins)):
        return ""
    wanted = [0] * ranks
    for origin in expected.origins:
        wanted[origin] += 1
    held = multiplicities(cell[1], ranks)
    faults = {
        "missing": [r for r in range(ranks) if held[r] < wanted[r]],
        "double": [r for r in range(ranks) if 0 < wanted[r] < held[r]],
        "foreign": [r for r in range(ranks) if held[r] and not wanted[r]],
    }
    texts = [f"{what} the contribution of {_ranks(who)}" for what, who in faults.items() if who]
    if not texts and cell[0] != expected.origin_offset:
        texts = [f"foreign elements, {cell[0] - expected.origin_offset:+d} from those expected"]
    return "; ".join(texts)


def _ranks(ranks: list[int]) -> str:
    names = ", ".join(map(str, ranks[:SHOWN])) + (", …" if len(ranks) > SHOWN else "")
    return f"rank{'s' if len(ranks) > 1 else ''} {names}"


def _verify_barrier(schedule: Schedule, rows: list[int], members: Sequence[int]) -> None:
    """Raise a VerificationError if a rank can end its last row before all ranks have reached the
    barrier.
    """
    heard = dict.fromkeys(rows, 0)
    last: dict[int, int] = {}
    for row in rows:
        sender = int(schedule.src[row])
        heard[row] = 1 << sender
        for earlier, lag in schedule.dependencies(row):
            from_rank = int(schedule.src[earlier])
            to_rank = int(schedule.dst[earlier])
            if sender == from_rank or (lag.arrival and sender == to_rank):
                heard[row] |= heard.get(earlier, 0)
        last[sender] = row
    for rank in members:
        missing = [r for r in members if not heard.get(last.get(rank, -1), 1 << rank) >> r & 1]
        if missing:
            raise VerificationError(f"rank {rank} leaves the barrier without {_ranks(missing)}")


# check_races: is every read ordered after the write that it needs, and every write after the
# accesses to what it overwrites? A row ends at its sender first and arrives at its receiver later.
# So each row has two moments, and only a dependency on the arrival orders accesses at the receiver.
# One exception: rows between the same two ranks on the same channel and route arrive in the order
# in which they are sent. The causal past of every row is a bit set over rows. It has the same
# information as a vector clock with an entry for each chain of rows, and is faster to merge for up
# to some 100,000 rows.


# A row's access to a location: twice the row number, plus one if the access lasts until the row's
# arrival.
Touch = int
# The last write to a location (-1: none), and the reads since then.
Use = tuple[Touch, tuple[Touch, ...]]


class RaceError(NetsimError, ValueError):
    """The error for two accesses to the same elements, at least one of which writes, that no
    dependency orders.
    """


class Access(NamedTuple):
    """A row's access to a range of a buffer, from element `start` on.

    - `write`: whether it writes.
    - `late`: whether the access lasts until the row has arrived, not only until it has ended.
    """

    rank: int
    buffer: int
    start: int
    write: bool
    late: bool


def check_races(
    schedule: Schedule, collective: Collective, which: int = 0, members: Sequence[int] | None = None
) -> None:
    """Raise a RaceError unless a schedule orders all conflicting accesses to one location.

    Two rows conflict if both use a location and one writes it; their dependencies must order them.
    `which` and `members` are those of `verify`.

    >>> from netsim import Collective, build
    >>> collective = Collective("all_reduce", ranks=4, count=64)
    >>> check_races(build(collective, "ring"), collective)
    """
    number = {int(m): r for r, m in enumerate(members or range(collective.ranks))}
    watch = _AccessChecker(schedule, collective)
    past = _CausalPast(schedule)
    checked_rows = set(rows_of(schedule, which))
    for row in range(len(schedule)):
        past.enter(row)
        if row in checked_rows:
            watch.touch_all(row, list(_accesses(schedule, row, number)), past)


def _accesses(schedule: Schedule, row: int, number: dict[int, int]) -> Iterator[Access]:
    """Yield the accesses of a row to buffers; `number` is the collective's rank by rank of the
    schedule.
    """
    style = schedule.styles[int(schedule.style[row])]
    if style.kind in (COMPUTE, MARK):
        return
    piece = int(schedule.piece[row])
    pieces = schedule.pieces
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


class _CausalPast:
    """The rows that are certain to have ended, and to have arrived, when the current row starts."""

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
        # By row, sets of earlier rows as bits: those that have ended when it starts, those that
        # have arrived when it starts, and those that have arrived when it arrives.
        self._histories: dict[int, tuple[int, int, int]] = {}
        self.ended = self.arrived = 0

    def enter(self, row: int) -> None:
        """Make `row` the current row; rows must be entered in order."""
        ended = arrived = along = 0
        for edge in range(self._ptr[row], self._ptr[row + 1]):
            earlier = self._row[edge]
            history = self._histories[earlier]
            bit = 1 << earlier
            ended |= history[0] | bit
            if self._arrival[edge] or self._local[earlier]:
                arrived |= history[2] | bit
            else:
                arrived |= history[1]
                if self._lane[row] == self._lane[earlier]:
                    along |= history[2] | bit
            self._waiting[earlier] -= 1
            if not self._waiting[earlier]:
                del self._histories[earlier]
        self.ended = ended
        self.arrived = arrived
        if self._waiting[row]:
            self._histories[row] = ended, arrived, arrived | along

    def has(self, touch: Touch) -> bool:
        """Whether an earlier access is certain to be finished when the current row starts."""
        over = self.arrived if touch & 1 else self.ended
        return bool(over >> (touch >> 1) & 1)


def _lanes(schedule: Schedule) -> tuple[list[object], ...]:
    """Source, destination and kind of path of every row, as three lists. Rows that agree in all
    three arrive in the order in which they are sent.
    """
    paths = [
        (style.channel, style.route, style.kind) if style.kind == TRANSFER else (k, "", style.kind)
        for k, style in enumerate(schedule.styles)
    ]
    return schedule.src.tolist(), schedule.dst.tolist(), [paths[k] for k in schedule.style.tolist()]


class _AccessChecker:
    """Checks each access to elements of a physical buffer against the last accesses to them."""

    def __init__(self, schedule: Schedule, collective: Collective) -> None:
        self._schedule = schedule
        self._collective = collective
        self._uses: dict[tuple[int, int], ChunkSegments[Use]] = {}

    def touch_all(self, row: int, accesses: list[Access], past: _CausalPast) -> None:
        """Check the accesses of one row against all earlier accesses, and record them."""
        for access in accesses:
            self._touch(row, access, past)
        for write in (a for a in accesses if a.write):
            for read in (a for a in accesses if not a.write):
                self._check_shift(row, read, write)

    def _check_shift(self, row: int, read: Access, write: Access) -> None:
        """Raise a RaceError if a row writes to a range that overlaps the range it reads, without
        being equal to it.
        """
        count = int(self._schedule.pieces.count[self._schedule.piece[row]])
        source, source_base = self._collective.location(read.rank, read.buffer)
        target, target_base = self._collective.location(write.rank, write.buffer)
        shift = write.start + target_base - read.start - source_base
        if (read.rank, source) == (write.rank, target) and 0 < abs(shift) < count:
            raise RaceError(f"{self._schedule.describe(row)} overwrites what it reads")

    def _touch(self, row: int, access: Access, past: _CausalPast) -> None:
        """Check one access of a row against earlier accesses, and record it."""
        count = int(self._schedule.pieces.count[self._schedule.piece[row]])
        physical, base = self._collective.location(access.rank, access.buffer)
        start = base + access.start
        uses = self._uses.setdefault((access.rank, physical), ChunkSegments((-1, ())))
        me = 2 * row + access.late
        after: list[Part[Use]] = []
        for low, high, (writer, readers) in uses.read(start, start + count):
            for earlier in (writer, *readers) if access.write else (writer,):
                if earlier >= 0 and earlier >> 1 != row and not past.has(earlier):
                    where = (low - base, high - base)
                    raise self._race(row, earlier >> 1, access, where)
            after.append((low, high, (me, ()) if access.write else (writer, (*readers, me))))
        uses.write(after)

    def _race(self, row: int, earlier: int, access: Access, where: tuple[int, int]) -> RaceError:
        deed = "writes" if access.write else "reads"
        describe = self._schedule.describe
        return RaceError(
            f"{describe(row)} {deed} {span_text(access.rank, access.buffer, *where)}"
            f" that {describe(earlier)} uses, and nothing orders the two"
        )


# States: what every rank holds after every step of a schedule, as a value and as a text table. A
# chunk is a range of the data that the schedule never divides: of the input vector if contributions
# are summed or come from one root, else of the inputs of all ranks one after the other. If several
# buffers of a rank have sums of a chunk, the rank counts as holding the largest one.

START = -1  # the step of the state before the first row
NOTHING = "-"
MOST_TERMS = 6

Piece = tuple[int, int, int]  # from, to (exclusive), contributions


@dataclass(frozen=True, slots=True)
class Chunk:
    """A range of the data: its label (a, b, c …), its first element, and the element after its
    last.
    """

    label: str
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Holding:
    """What a rank holds of a chunk: the ranks whose contributions are summed (a rank that is summed
    twice occurs twice), and whether these are all contributions, each once.
    """

    origins: tuple[int, ...]
    complete: bool


@dataclass(frozen=True, slots=True)
class State:
    """What ranks hold after a step: `held[rank][chunk]`."""

    step: int
    held: tuple[tuple[Holding, ...], ...]


@dataclass(frozen=True, slots=True)
class ChunkStates:
    """The states of a schedule after each step; the first one is before the start (step -1)."""

    collective: Collective
    chunks: tuple[Chunk, ...]
    states: tuple[State, ...]


def states(
    schedule: Schedule, collective: Collective, which: int = 0, members: Sequence[int] | None = None
) -> ChunkStates:
    """What every rank holds before the schedule and after each of its steps.

    `which` and `members` are those of `verify`.
    """
    memory = BufferContents(schedule, collective, members)
    bases = _bases(collective)
    snapshots = [(START, _snapshot(memory, bases))]
    step: list[int] = schedule.step.tolist()
    for row in range(len(step)):
        step[row] = max([step[row], *(step[earlier] for earlier, _ in schedule.dependencies(row))])
    rows = sorted(rows_of(schedule, which), key=step.__getitem__)
    for number, group in groupby(rows, key=step.__getitem__):
        for row in group:
            memory.execute(row)
        snapshots.append((number, _snapshot(memory, bases)))
    cuts = sorted({x for _, held in snapshots for parts in held for p in parts for x in p[:2]})
    chunks = tuple(Chunk(_letters(k), *span) for k, span in enumerate(pairwise(cuts)))
    all_states = (State(number, _holdings(held, cuts, collective)) for number, held in snapshots)
    return ChunkStates(collective, chunks, tuple(all_states))


def render_text(
    value: ChunkStates, steps: Sequence[int] | None = None, most_terms: int = MOST_TERMS
) -> str:
    """Text tables of the states after `steps` (None: of all states), with a star at complete
    chunks.

    `most_terms`: sums of more terms are abbreviated, such as a[0-3,7].
    """
    shown = [state for state in value.states if steps is None or state.step in steps]
    return "\n\n".join(_table(state, value.chunks, most_terms) for state in shown) + "\n"


def _bases(collective: Collective) -> list[int]:
    """By rank, the position at which its input begins in all data.

    Ranks share the data if contributions are summed or come from one root: then every input begins
    at 0. Otherwise the inputs follow one another.
    """
    if collective.reducing or collective.name in ("broadcast", "scatter"):
        return [0] * collective.ranks
    counts = [collective.input_count(rank) for rank in range(collective.ranks)]
    return [sum(counts[:rank]) for rank in range(collective.ranks)]


def _snapshot(memory: BufferContents, bases: list[int]) -> list[list[Piece]]:
    """By rank, what all its buffers hold now: a list of (from, to, contributions), where positions
    are in all data.

    Contributions are numbers with 16 bits for each rank. `bases` says where each rank's input
    begins in all data.
    """
    held: list[list[Piece]] = [[] for _ in bases]
    shared = not any(bases)
    for (rank, _), segments in memory.buffers.items():
        for low, high, cell in segments:
            if cell is not None:
                for origin, contributions in _split(cell[1], len(bases), shared):
                    base = bases[origin] + cell[0]
                    held[rank].append((low + base, high + base, contributions))
    return held


def _split(contributions: int, ranks: int, shared: bool) -> Iterator[tuple[int, int]]:
    """Yield (rank whose input the data comes from, contributions) for the contents of a cell.

    If ranks share the data (`shared`), that is one item for rank 0 with all contributions;
    otherwise there is an item for each rank that contributes. Contributions are numbers with 16
    bits for each of `ranks` ranks.
    """
    if shared:
        yield 0, contributions
        return
    for origin, times in enumerate(multiplicities(contributions, ranks)):
        if times:
            yield origin, times << (BITS * origin)


def _holdings(
    held: list[list[Piece]], cuts: list[int], collective: Collective
) -> tuple[tuple[Holding, ...], ...]:
    """By rank and chunk, the largest sum that the rank holds of the chunk.

    - `held`: by rank, what its buffers hold, as `_snapshot` returns it.
    - `cuts`: the positions at which chunks begin, and the end of the last one.
    """
    rows = []
    for parts in held:
        best: list[tuple[int, ...]] = [()] * max(0, len(cuts) - 1)
        for low, high, contributions in parts:
            counts = enumerate(multiplicities(contributions, collective.ranks))
            origins = tuple(rank for rank, times in counts for _ in range(times))
            for k in range(bisect_left(cuts, low), bisect_left(cuts, high)):
                best[k] = max(best[k], origins, key=lambda o: (len(set(o)), len(o)))
        origin_count = collective.ranks if collective.reducing else 1
        rows.append(tuple(Holding(o, len(o) == len(set(o)) == origin_count) for o in best))
    return tuple(rows)


def _letters(index: int) -> str:
    """The label of the chunk with this index: a, b … z, aa, ab …"""
    text = ""
    index += 1
    while index:
        index, digit = divmod(index - 1, 26)
        text = chr(ord("a") + digit) + text
    return text


def _table(state: State, chunks: tuple[Chunk, ...], most_terms: int) -> str:
    """One state as a text table: a line for each rank, a column for each chunk."""
    title = "at the start" if state.step == START else f"after step {state.step}"
    lines = [[title, *(chunk.label for chunk in chunks)]]
    for rank, held in enumerate(state.held):
        cells = [_cell(h, c.label, most_terms) for h, c in zip(held, chunks, strict=True)]
        lines.append([f"rank {rank}", *cells])
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def _cell(holding: Holding, label: str, most_terms: int) -> str:
    """A holding in words: a sum such as a0+a1+a4, with many terms a[0-3,7], with a star if
    complete.
    """
    origins = holding.origins
    if not origins:
        return NOTHING
    text = "+".join(f"{label}{rank}" for rank in origins)
    if len(origins) > most_terms and len(set(origins)) == len(origins):
        text = f"{label}[{runs(origins)}]"
    return text + "*" * holding.complete


def runs(ranks: tuple[int, ...]) -> str:
    """Ranks as ranges in words: `0-6,9`."""
    breaks = [k for k in range(1, len(ranks)) if ranks[k] != ranks[k - 1] + 1]
    spans = [ranks[a:b] for a, b in pairwise([0, *breaks, len(ranks)])]
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in spans)
