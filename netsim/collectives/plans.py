"""Plans of thread blocks, as files of MSCCL and MSCCL++ say them, and the rows that they become.

Each block has operations in order, on memory of its own and of others. MSCCL's send into FIFOs of
the receiver; those of MSCCL++ put and get, signal over channels what is there, or send packets,
whose flags tell that they have come. A chunk moves as a whole, but in pipelines."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import field, replace
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from netsim.base.files import table_beside
from netsim.base.values import dataclass
from netsim.collectives.collective import DIVIDED, Collective, CollectiveError
from netsim.collectives.verify import ChunkSegments
from netsim.collectives.writing import MOST_PARTS, at_most, edges
from netsim.schedule import schedule
from netsim.schedule.builder import Builder
from netsim.schedule.schedule import (
    ARRIVED,
    COPY,
    IN,
    IN_ORDER,
    LOCAL_COPY,
    MULTICAST,
    OUT,
    REDUCE,
    REDUCE_INPUT,
    SCRATCH,
    SWITCH_REDUCE,
    TRANSFER,
    Lag,
    Style,
    Use,
)

FIFO, ANEW = -1, -2  # in the place of buffers: a connection's, and memory that nobody has yet
PIPELINE = "pipeline"
SEMAPHORE, BARRIER = "semaphore", "barrier"
MEMORY, PORT = "memory", "port"  # a port's puts are done by a proxy: the block goes on meanwhile
WIRE = {"Simple": 1.0, "LL": 2.0, "LL128": 16 / 15}  # bytes on the wire for a byte of data
SLOTS = 8  # messages that a connection's FIFO holds (NCCL_STEPS)
ANSWERED = Lag(0.0, 2)  # what is fetched has been asked for
IN_PASSING = (Use("hbm", "src", 1e-9),)  # added in registers: no passes over memory
JOINED = ("all_reduce", "all_gather", "broadcast", "alltoall")  # what one buffer can stand for

Place = tuple[int, int]  # a buffer, and a chunk of it; FIFO and a channel
Way = tuple[str, int, int, int]  # kind, sender, receiver, and which of theirs
Counts = NDArray[np.int64]
Rows = NDArray[np.int32]
NOTHING: Rows = np.zeros(0, np.int32)
Token = tuple[list[Rows], list[Rows]]  # rows that are over, and rows that have arrived, once told


class Does(NamedTuple):
    """What an operation does, and with what: a letter for each of its ends, the last for all that
    follow. m: memory, p: packets, w: memory of a group over a switch, P: packets over it; in MSCCL
    s, d: a step's source and destination, f: the FIFO of its peer, n: memory that nobody has."""

    how: str
    reads: str
    writes: str
    then: tuple[str, ...]


def _operations(tool: str) -> dict[str, Does]:
    return {
        row["name"]: Does(row["does"], row["reads"], row["writes"], tuple(row["then"].split()))
        for row in table_beside(__file__, "operations.csv")
        if row["tool"] == tool
    }


STEPS, OPERATIONS = _operations("MSCCL"), _operations("MSCCL++")


@dataclass(frozen=True, slots=True)
class Ref:
    """Chunks of a buffer of a GPU, or of all those of a group that a switch joins; or as many in
    the FIFO from one to another."""

    ranks: tuple[int, ...]
    place: Place
    count: int

    @property
    def in_fifo(self) -> bool:
        """Whether they are a message."""
        return self.place[0] == FIFO

    @property
    def switched(self) -> bool:
        """Whether they are chunks of a group."""
        return len(self.ranks) > 1 and not self.in_fifo

    def packets(self, letters: str, k: int) -> bool:
        """Whether they are packets, as the k-th end of an operation with such ends."""
        return letters[min(k, len(letters) - 1)] in "pP"


@dataclass(frozen=True, slots=True)
class PlanOperation:
    """What a thread block does at a time. `after` are steps of other blocks of its GPU, by block
    and number; `part` is that of a group of blocks which share it; `window` the part of chunks that
    a turn of a pipeline takes."""

    name: str
    does: Does
    sources: tuple[Ref, ...] = ()
    targets: tuple[Ref, ...] = ()
    after: tuple[tuple[int, int], ...] = ()
    ways: tuple[Way, ...] = ()  # channels from here, in a `wait` from there; semaphores; a barrier
    blocks: int = 1  # that come to a barrier
    part: tuple[int, int] = (0, 1)
    inner: tuple["PlanOperation", ...] = ()
    sizes: tuple[int, int] = (1, 0)  # of a pipeline: bytes of a turn, and chunks in all
    window: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Block:
    """A thread block: its GPU, its operations, and what semaphores of the GPU begin with."""

    gpu: int
    number: int
    channel: int
    ops: tuple[PlanOperation, ...]
    semaphores: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class BlockPlan:
    """What a file says; as an algorithm, a function."""

    name: str
    collective: str
    ranks: int
    chunks: int
    protocol: str
    in_place: bool
    out_of_place: bool
    scratch: tuple[int, ...]
    blocks: tuple[Block, ...]
    words: tuple[str, str]  # what the file calls blocks, and what they do

    def __call__(self, collective: Collective) -> schedule.Schedule:
        """Its schedule for a collective."""
        return self._machine(collective).all()

    def place_of(self, row: int, collective: Collective) -> str:
        """The operation that wrote a row; "" for a copy made before them all."""
        machine = self._machine(collective)
        machine.all()
        found = [(block, at) for first, block, at in machine.places if first <= row]
        return machine.where(*found[-1]) if found else ""

    def _machine(self, collective: Collective) -> "_Machine":
        if (self.collective, self.ranks) != (collective.name, collective.ranks):
            got = f"{collective.name} on {collective.ranks}"
            message = f"{self.name} is {self.collective} on {self.ranks} GPUs, this is {got}"
            raise CollectiveError("algorithm", message)
        return _Machine(self, collective)


@dataclass(frozen=True, slots=True)
class _Span:
    """Parts of a rank's buffer, in elements."""

    buffer: int
    offset: Counts
    count: Counts


def _in_scratch(start: int, count: Counts) -> _Span:
    """Parts one behind the other in scratch memory."""
    return _Span(SCRATCH, start + np.cumsum(count) - count, count)


@dataclass
class _Turn:
    """How far a block is: its operation, and the rows before it; what it wrote elsewhere, and what
    it has put last, by kind of channel and peer, if nothing came after that."""

    block: Block
    ops: Sequence[PlanOperation]
    before: list[Rows]
    at: int = 0
    flying: list[Rows] = field(default_factory=list)
    recent: dict[object, Rows] = field(default_factory=dict)
    passed: Counter[Way] = field(default_factory=Counter)  # barriers


class _Source(NamedTuple):
    """What is added up or given on: where it is, the rows that bring it as a message or packets,
    and whether it was fetched for that."""

    rank: int
    span: _Span
    arrived: Rows
    fetched: bool = False


@dataclass
class _Fifo:
    """Where a FIFO is, and the rows and messages that came and went."""

    start: int
    sent: list[tuple[Rows, _Span]] = field(default_factory=list)
    taken: list[Rows] = field(default_factory=list)

    def free(self) -> list[Rows]:
        """The rows that made room for the next message."""
        at = len(self.sent) - SLOTS
        return self.taken[at : at + 1] if at >= 0 else []


class _Machine:
    """A plan while its rows are written: blocks go on in turn until none can."""

    def __init__(self, plan: BlockPlan, collective: Collective) -> None:
        self.plan, self.collective = plan, collective
        self.builder = Builder(collective.ranks, collective.element_bytes, (collective.name,))
        blocks = collective.ranks if collective.name in DIVIDED else 1
        self.each = plan.chunks // blocks  # chunks of a block
        if self.each * blocks != plan.chunks:
            raise self._error(f"expected a multiple of {blocks} chunks a loop, got {plan.chunks}")
        self.edges = edges(collective.count, self.each)  # of the chunks of a block, in elements
        self.chunk_sizes = np.diff(self.edges)  # of the chunks of a block, in elements
        self.unit = int(self.chunk_sizes.max())  # elements of the largest chunk
        # A file for calls in place has one buffer, one for others may not find its input changed.
        self.joined = not plan.out_of_place and not collective.in_place
        self.copied = not plan.in_place and collective.in_place
        if self.joined and collective.name not in JOINED:
            raise self._error(f"is for {collective.name} in place only")
        self.used = [n * self.unit for n in plan.scratch]  # of each rank's scratch memory
        self.copy_at = list(self.used)
        self.places: list[tuple[int, Block, int]] = []  # from which row on which step wrote them
        self.held: dict[tuple[int, int], int] = {}  # elements in chunks of scratch memory
        self.done: dict[tuple[int, int, int], list[Rows]] = {}  # by GPU, block and operation
        self.fifos: dict[tuple[object, ...], _Fifo] = {}
        ops = [op for block in plan.blocks for op in block.ops]
        self.room = max((one.count for op in ops for one in op.targets), default=0) * self.unit
        self.tokens: dict[Way, list[Token]] = {}  # what was told by signals and semaphores
        self.taken: Counter[Way] = Counter()
        self.posted: dict[Way, Rows] = {}  # what proxies were last given
        self.barriers: dict[tuple[Way, int], dict[int, Token]] = {}
        self.flags: dict[
            int, ChunkSegments[int]
        ] = {}  # by rank the row of the packets in its scratch

    def _error(self, message: str) -> CollectiveError:
        """An error that names the file."""
        return CollectiveError("algorithm", f"{self.plan.name}: {message}")

    def where(self, block: Block, at: int) -> str:
        """An operation of a block, in words."""
        name, step = self.plan.words
        return f"gpu {block.gpu}, {name} {block.number}, {step} {at}"

    def all(self) -> schedule.Schedule:
        """Write everything; ranks are done when their blocks are."""
        first = [self._own(rank) for rank in range(self.collective.ranks)]
        turns = [_Turn(one, self._expanded(one), first[one.gpu]) for one in self.plan.blocks]
        waiting = [turn for turn in turns if turn.ops]
        while waiting:
            if not sum(self._goes(turn) for turn in waiting):
                where = self.where(waiting[0].block, waiting[0].at)
                raise self._error(f"{where} waits for what never comes")
            waiting = [turn for turn in waiting if turn.at < len(turn.ops)]
        for rank, own in enumerate(first):
            last = [rows for turn in turns if turn.block.gpu == rank for rows in turn.before]
            waits = np.concatenate([NOTHING, *own, *last])
            self.builder.marks(rank, joins=([0, len(waits)], waits, IN_ORDER))
        return self.builder.finish()

    def _expanded(self, block: Block) -> list[PlanOperation]:
        """The operations of a block, those of pipelines once for each part of their chunks."""
        found: list[PlanOperation] = []
        for op in block.ops:
            each = max(1, op.sizes[0] // int(self.collective.element_bytes))
            whole = op.sizes[1] * self.unit
            at_most("unit_size", whole // each, MOST_PARTS)
            turns = range(0, whole, each)
            found += [replace(one, window=(at, at + each)) for at in turns for one in op.inner]
            found += [op] * (op.name != PIPELINE)
        return found

    def _goes(self, turn: _Turn) -> bool:
        """Write the rows of a block's next operation, and note where; whether that goes already."""
        op, at, first, before = turn.ops[turn.at], turn.at, len(self.builder), turn.before
        me = turn.block.gpu
        there = [self.done.get((me, *one)) for one in op.after]
        if None in there:
            return False
        turn.before = [*before, *(rows for done in there for rows in done or ())]
        if not HOW[op.does.how](self, turn, op):
            turn.before = before
            return False
        self.done[me, turn.block.number, at] = turn.before
        self.places += [(first, turn.block, at)] * (len(self.builder) > first)
        turn.at += 1
        return True

    # **** What orders ****

    def _signal(self, turn: _Turn, op: PlanOperation) -> bool:
        """Tell peers to go on; unless relaxed, when all that came before has arrived. What was just
        put there tells it by itself, as a flag behind the data does."""
        fence = [] if op.name.startswith("rlx") else self._fence(turn)
        for way in op.ways:
            rows = turn.recent.get(way, turn.recent.get(way[:3]))
            if rows is None:
                waits = [*turn.before, self.posted.get(way, NOTHING)]
                style = Style(TRANSFER, COPY, SCRATCH, SCRATCH, channel=turn.block.channel)
                empty = _Span(SCRATCH, *np.zeros((2, 1), np.int64))
                rows = self._rows(style, *way[1:3], (empty, empty, None), waits)
            self._told(turn, way).append(([], [rows, *fence]))
        return True

    def _fence(self, turn: _Turn) -> list[Rows]:
        """One mark for when all that a block wrote elsewhere is there."""
        if sum(map(len, turn.flying)) > 1:
            turn.flying = [self._mark(turn.block.gpu, [], turn.flying)]
        return turn.flying

    def _mark(self, rank: int, before: list[Rows], arrived: list[Rows], lag: Lag = ARRIVED) -> Rows:
        """A mark for when some rows are over and others have arrived."""
        parts = [np.unique(np.concatenate([NOTHING, *rows])) for rows in (before, arrived)]
        lags = [self.builder.lag(IN_ORDER), self.builder.lag(lag)]
        kinds = np.repeat(np.array(lags, np.int16), [len(part) for part in parts])
        waits = np.concatenate(parts)
        return self.builder.marks(rank, joins=([0, len(waits)], waits, kinds))

    def _wait(self, turn: _Turn, op: PlanOperation) -> bool:
        """Take what others told, once they all did; behind a semaphore, what this block wrote
        itself has come, too."""
        told = [one for way in op.ways for one in self._told(turn, way)[self.taken[way] :][:1]]
        if len(told) < len(op.ways):
            return False
        if op.does.how == "acquire":
            told, turn.flying = [*told, ([], turn.flying)], []
        self.taken.update(op.ways)
        self._meet(turn, told)
        return True

    def _told(self, turn: _Turn, way: Way) -> list[Token]:
        """All that was told by a way; a semaphore begins with tokens of nothing."""
        begin = turn.block.semaphores[way[3]] if way[0] == SEMAPHORE else 0
        return self.tokens.setdefault(way, [([], [])] * begin)

    def _meet(self, turn: _Turn, told: Sequence[Token]) -> None:
        """Go on behind what others had done by then, when what they wrote has come."""
        ended, came = ([rows for one in told for rows in one[k]] for k in (0, 1))
        turn.before, turn.recent = [self._mark(turn.block.gpu, [*turn.before, *ended], came)], {}

    def _flush(self, turn: _Turn, op: PlanOperation) -> bool:
        """Wait until proxies have sent what they were given."""
        turn.before = [*turn.before, *(self.posted.get(way, NOTHING) for way in op.ways)]
        return True

    def _release(self, turn: _Turn, op: PlanOperation) -> bool:
        for way in op.ways:
            self._told(turn, way).append((turn.before, turn.flying))
        return True

    def _barrier(self, turn: _Turn, op: PlanOperation) -> bool:
        """All blocks of a barrier go on when the last of them has come."""
        (way,) = op.ways
        met = self.barriers.setdefault((way, turn.passed[way]), {})
        met.setdefault(turn.block.number, (turn.before, turn.flying))
        if len(met) < op.blocks:
            return False
        self._meet(turn, list(met.values()))
        turn.flying = []
        turn.passed[way] += 1
        return True

    # **** What moves ****

    def _data(self, turn: _Turn, op: PlanOperation) -> bool:
        """Write the rows of an operation on data, once what it reads is sent and FIFOs have room;
        what is put here is ordered behind, what is fetched has been asked for."""
        arrived = self._arrived(turn, op)
        if arrived is None:
            return False
        me, turn.recent, adds = turn.block.gpu, {}, op.does.how == "sum"
        sources = self._gathered(turn, op, arrived)
        if adds:
            sources = [self._summed(turn, op, sources)]
        took = turn.before
        sources *= len(op.targets) // len(sources)
        moved = [
            (source.rank == me, self._moved(turn, op, k, source))
            for k, source in enumerate(sources)
            if k or not adds
        ]
        if moved and not (op.ways and op.ways[0][0] == PORT):
            made, asked = ([rows for here, rows in moved if here == one] for one in (True, False))
            turn.before = [self._mark(me, made, asked, ANSWERED)] if asked else made
        for ref in op.sources:
            if ref.in_fifo:
                self._fifo(ref).taken += took
        for what in op.does.then:
            HOW[what](self, turn, op)
        return True

    def _arrived(self, turn: _Turn, op: PlanOperation) -> list[Rows] | None:
        """The rows that bring what each source has; none if some are to be sent yet, or a FIFO has
        no room."""
        fifos = [self._fifo(ref) for ref in op.targets if ref.in_fifo]
        if any(len(one.taken) <= len(one.sent) - SLOTS for one in fifos):
            return None
        found: list[Rows] = []
        for k, ref in enumerate(op.sources):
            rows: Rows | None = NOTHING
            if ref.in_fifo:
                rows = self._message(turn, ref)
            elif ref.packets(op.does.reads, k):
                rows = self._flagged(turn.block.gpu, self._part(op, ref))
            if rows is None:
                return None
            found.append(rows)
        return found

    def _message(self, turn: _Turn, ref: Ref) -> Rows | None:
        """The rows of the next message of a FIFO; none if there is none yet."""
        fifo = self._fifo(ref)
        if len(fifo.sent) <= len(fifo.taken):
            return None
        rows, message = fifo.sent[len(fifo.taken)]
        if len(message.count) != ref.count:
            where = f"gpu {turn.block.gpu}, tb {turn.block.number} receives {ref.count} chunks"
            raise self._error(f"{where}, but gpu {ref.ranks[0]} sends {len(message.count)}")
        return rows

    def _flagged(self, rank: int, span: _Span) -> Rows | None:
        """The rows that bring packets into scratch memory; none if some are still to be sent."""
        flags = self.flags.get(rank, ChunkSegments(-1))
        ends = zip(span.offset.tolist(), span.count.tolist(), strict=True)
        found = [row for at, count in ends for _, _, row in flags.read(at, at + count)]
        return None if -1 in found else np.unique(np.array(found, np.int32))

    def _flag(self, ranks: Sequence[int], target: _Span, rows: Rows) -> None:
        """Note which rows bring packets into scratch memory."""
        columns = target.offset.tolist(), target.count.tolist(), rows.tolist()
        for rank, (at, count, row) in product(ranks, zip(*columns, strict=True)):
            self.flags.setdefault(rank, ChunkSegments(-1)).write(
                [(at, at + count, row)] * (count > 0)
            )

    def _moved(self, turn: _Turn, op: PlanOperation, k: int, source: _Source) -> Rows:
        """A copy to a target: in memory of a GPU or, by the switch, of a group, or in a FIFO."""
        ref, me, ways = op.targets[k], turn.block.gpu, op.ways
        target = self._part(op, ref, op.sources[min(k, len(op.sources) - 1)])
        packets, fifo = ref.packets(op.does.writes, k), ref.in_fifo
        port = ways[k] if ways and ways[0][0] == PORT else None
        waits = [*turn.before, self.posted.get(port, NOTHING) if port else NOTHING]
        ranks, dst, kind = self._reached(ref, me, op.sources[0], source.rank)
        if fifo:
            waits += self._fifo(ref).free()
        protocol = "LL" if packets and kind != LOCAL_COPY else "Simple"
        style = Style(
            kind,
            COPY,
            source.span.buffer,
            target.buffer,
            channel=turn.block.channel,
            wire=WIRE[self.plan.protocol if fifo else protocol],
        )
        spans = source.span, target, None
        rows = self._rows(style, source.rank, dst, spans, waits, source.arrived)
        if fifo:
            self._fifo(ref).sent.append((rows, target))
        elif packets:
            self._flag(ranks, target, rows)
        elif ranks != (me,):
            turn.flying = [*turn.flying, rows]
        if port:
            self.posted[port] = rows
        if kind != MULTICAST:
            turn.recent[port or (MEMORY, me, dst)] = rows
        return rows

    def _reached(
        self, ref: Ref, me: int, given: Ref, source: int
    ) -> tuple[tuple[int, ...], int, int]:
        """The ranks to which a copy goes, they or their group, and the kind of row for that. What a
        GPU would write over itself by a switch, its own packets, stays as it is."""
        if ref.switched:
            there = (given.ranks, given.place) == ((me,), ref.place)
            ranks = tuple(one for one in ref.ranks if not there or one != me)
            return ranks, self.builder.group(ranks), MULTICAST
        rank = ref.ranks[-1]
        return (rank,), rank, LOCAL_COPY if rank == source else TRANSFER

    def _gathered(self, turn: _Turn, op: PlanOperation, arrived: Sequence[Rows]) -> list[_Source]:
        """What an operation reads, where it then is: what is added up here, and what a switch adds
        up, is fetched, all at once."""
        me, found, fetched = turn.block.gpu, list[_Source](), list[Rows]()
        adds = op.does.how == "sum"
        like = op.sources[0] if adds else None
        for ref, there in zip(op.sources, arrived, strict=True):
            span, far = self._part(op, ref, like), ref.ranks != (me,) and not ref.in_fifo
            if not (ref.switched or (adds and far)):
                found.append(_Source(ref.ranks[-1], span, there))
                continue
            to = _in_scratch(self._scratch(me, int(span.count.sum())), span.count)
            kind = SWITCH_REDUCE if ref.switched else TRANSFER
            src = self.builder.group(ref.ranks) if ref.switched else ref.ranks[0]
            style = Style(kind, COPY, span.buffer, SCRATCH, channel=turn.block.channel)
            fetched.append(self._rows(style, src, me, (span, to, None), turn.before))
            found.append(_Source(me, to, there, fetched=True))
        if fetched:
            turn.before = [self._mark(me, turn.before, fetched, ANSWERED)]
        return found

    def _summed(self, turn: _Turn, op: PlanOperation, adds: list[_Source]) -> _Source:
        """Add the sources up in the first target, as they come: what lies there already comes
        first, a message last."""
        me, into, fused = turn.block.gpu, op.targets[0], op.sources[0].in_fifo
        order = sorted(
            zip(op.sources, adds, strict=True), key=lambda a: (a[0] != into, a[0].in_fifo)
        )
        target, (first, *more) = self._part(op, into, op.sources[0]), [one for _, one in order]
        kept = into in op.sources
        own = first.span if fused and more and first.span.buffer == IN else None
        if own is not None:
            how = REDUCE_INPUT
        else:
            how = REDUCE if kept else COPY
        adds = more if kept or own is not None else [first, *more]
        for one in adds:
            begins = how == COPY and len(adds) > 1 and not fused
            uses = IN_PASSING if begins or one.fetched else ()
            style = Style(LOCAL_COPY, how, one.span.buffer, target.buffer, uses=uses)
            spans = one.span, target, own
            turn.before = [self._rows(style, me, me, spans, turn.before, one.arrived)]
            how, own = REDUCE, None
        return _Source(me, target, NOTHING)

    # **** Where it is ****

    def _fifo(self, ref: Ref) -> _Fifo:
        """The FIFO between two GPUs on a channel."""
        key = ref.ranks, ref.place
        if key not in self.fifos:
            self.fifos[key] = _Fifo(self._scratch(ref.ranks[1], SLOTS * self.room))
        return self.fifos[key]

    def _part(self, op: PlanOperation, ref: Ref, like: Ref | None = None) -> _Span:
        """The part of some chunks that an operation is about; `like` those that come into them."""
        whole = self._whole(ref, None if like in (None, ref) else self._whole(like).count)
        if op.part == (0, 1) and op.window is None:
            return whole
        number, parts = op.part
        low, high = edges(ref.count * self.unit, parts)[number : number + 2].tolist()
        if op.window:
            low, high = low + op.window[0], min(high, low + op.window[1])
        at = np.arange(ref.count) * self.unit
        first, last = (np.clip(end - at, 0, whole.count) for end in (low, high))
        some = last > first
        return _Span(whole.buffer, (whole.offset + first)[some], (last - first)[some])

    def _whole(self, ref: Ref, holds: Counts | None = None) -> _Span:
        """All of some chunks; `holds` is what comes into them."""
        if ref.in_fifo:
            fifo = self._fifo(ref)
            if holds is None:
                return fifo.sent[len(fifo.taken)][1]
            return _in_scratch(fifo.start + len(fifo.sent) % SLOTS * self.room, holds)
        if ref.place[0] == ANEW and holds is not None:
            return _in_scratch(self._scratch(ref.ranks[0], int(holds.sum())), holds)
        whole, *_ = (self._span(rank, ref.place, ref.count, holds) for rank in ref.ranks)
        return whole

    def _own(self, rank: int) -> list[Rows]:
        """The copy of a rank's input, where the file has no input of its own."""
        c = self.collective
        count = c.input_count(rank) if self.joined or self.copied else 0
        if not count:
            return []
        to, at = (OUT, self._home(rank)) if self.joined else (SCRATCH, self.copy_at[rank])
        self.used[rank] += count * self.copied
        piece = self.builder.pieces(count, 0, at)
        return [self.builder.rows(Style(LOCAL_COPY, COPY, IN, to), rank, rank, piece)]

    def _home(self, rank: int) -> int:
        """Where in its output a rank's input lies in place."""
        return rank * self.collective.count if self.collective.name == "all_gather" else 0

    def _scratch(self, rank: int, count: int) -> int:
        """So many elements of scratch memory of a rank that nobody has yet."""
        self.used[rank] += count
        return self.used[rank] - count

    def _span(self, rank: int, place: Place, count: int, holds: Counts | None = None) -> _Span:
        """Chunks of a buffer; `holds` says how much comes into chunks of scratch memory."""
        buffer, first = place
        chunks = np.arange(first, first + count)
        if buffer == SCRATCH:
            if holds is None:
                holds = np.array([self.held.get((rank, c), self.unit) for c in chunks.tolist()])
            self.held.update(zip([(rank, c) for c in chunks.tolist()], holds.tolist(), strict=True))
            return _Span(SCRATCH, chunks * self.unit, holds)
        block, within = np.divmod(chunks, self.each)
        sizes = self.chunk_sizes[within]
        offset = block * self.collective.count + self.edges[within]
        if buffer == IN and self.joined:
            buffer, offset = OUT, offset + self._home(rank)
        elif buffer == IN and self.copied:
            buffer, offset = SCRATCH, offset + self.copy_at[rank]
        return _Span(buffer, offset, sizes)

    def _rows(
        self,
        style: Style,
        src: int,
        dst: int,
        spans: tuple[_Span, _Span, _Span | None],
        after: Sequence[Rows],
        arrived: Rows | None = None,
    ) -> Rows:
        """Rows of a step, which all wait for the same."""
        waits = np.concatenate([NOTHING, *after])
        lags = np.full(len(waits), self.builder.lag(IN_ORDER), np.int16)
        if arrived is not None:
            there = np.full(len(arrived), self.builder.lag(ARRIVED), np.int16)
            waits, lags = np.concatenate([waits, arrived]), np.concatenate([lags, there])
        source, target, own = spans
        offset = None if own is None else own.offset
        piece = self.builder.pieces(source.count, source.offset, target.offset, offset)
        count = len(piece)
        if count == 1:  # most steps: tiling would take as long as all the rest of this
            joins = np.array([0, len(waits)]), waits, lags
        else:
            joins = np.arange(count + 1) * len(waits), np.tile(waits, count), np.tile(lags, count)
        return self.builder.rows(style, src, dst, piece, joins=joins)


HOW: dict[str, Callable[[_Machine, _Turn, PlanOperation], bool]] = {
    "nop": lambda machine, turn, op: True,
    "signal": _Machine._signal,
    "wait": _Machine._wait,
    "flush": _Machine._flush,
    "barrier": _Machine._barrier,
    "acquire": _Machine._wait,
    "release": _Machine._release,
    "copy": _Machine._data,
    "sum": _Machine._data,
    "load": _Machine._data,
}
