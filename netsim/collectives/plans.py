"""Plans of thread blocks, as files of MSCCL and MSCCL++ describe them, and the rows of their
schedules.

Each block has operations in order, on its own and remote memory. Operations of MSCCL send to FIFOs
of the receiver. Operations of MSCCL++ put and get, signal over channels, or send packets whose
flags say that they have arrived. A chunk moves undivided, except in pipelines.
"""

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

FIFO = -1  # in place of a buffer: the FIFO of a connection
NEW_SCRATCH = -2  # in place of a buffer: scratch memory that is not used yet
PIPELINE = "pipeline"
SEMAPHORE = "semaphore"
BARRIER = "barrier"
# kinds of channels; puts over a port are made by a proxy
MEMORY = "memory"
PORT = "port"
WIRE = {"Simple": 1.0, "LL": 2.0, "LL128": 16 / 15}  # bytes on the wire per byte of data
SLOTS = 8  # messages that the FIFO of a connection holds (NCCL_STEPS)
ANSWERED = Lag(0.0, 2)  # a get is answered: request and data have crossed the path
NO_MEMORY_PASS = (Use("hbm", "src", 1e-9),)  # sums in registers need no pass over memory
ONE_BUFFER = ("all_reduce", "all_gather", "broadcast", "alltoall")  # may run in one buffer

Place = tuple[int, int]  # a buffer, and a chunk of it; FIFO and a channel
Way = tuple[str, int, int, int]  # kind, sender, receiver, and which of theirs
Counts = NDArray[np.int64]
Rows = NDArray[np.int32]
NOTHING: Rows = np.zeros(0, np.int32)
Token = tuple[list[Rows], list[Rows]]  # a signal: rows that end, and rows that arrive, before it


class OperationKind(NamedTuple):
    """What an operation does and accesses.

    Args:
        action: name of its function in `ACTIONS`.
        reads: a letter for each source, the last for all further ones. m: memory, p: packets, w:
            memory of a group over a switch, P: packets over it. In MSCCL s and d: source and
            destination of a step, f: the FIFO of its peer, n: unused scratch memory.
        writes: a letter for each target.
        then: actions that follow.
    """

    action: str
    reads: str
    writes: str
    then: tuple[str, ...]


def _operations(tool: str) -> dict[str, OperationKind]:
    """Read the kinds of operations of a tool from operations.csv."""
    return {
        row["name"]: OperationKind(
            row["does"], row["reads"], row["writes"], tuple(row["then"].split())
        )
        for row in table_beside(__file__, "operations.csv")
        if row["tool"] == tool
    }


STEPS = _operations("MSCCL")
OPERATIONS = _operations("MSCCL++")


@dataclass(frozen=True, slots=True)
class Ref:
    """Chunks of a buffer: of one GPU, or of all GPUs that a switch joins; or of a FIFO."""

    ranks: tuple[int, ...]
    place: Place
    count: int

    @property
    def in_fifo(self) -> bool:
        """Whether the chunks are a message in a FIFO."""
        return self.place[0] == FIFO

    @property
    def switched(self) -> bool:
        """Whether the chunks belong to a group of GPUs behind a switch."""
        return len(self.ranks) > 1 and not self.in_fifo

    def packets(self, letters: str, k: int) -> bool:
        """Return whether they are packets, as the k-th end of an operation with these letters."""
        return letters[min(k, len(letters) - 1)] in "pP"


@dataclass(frozen=True, slots=True)
class PlanOperation:
    """One operation of a thread block.

    Args:
        after: steps of other blocks of its GPU, by block and number.
        ways: channels from here (of `wait`: to here), semaphores, or a barrier.
        blocks: blocks that take part in a barrier.
        part: number and count if several blocks share the operation.
        inner: operations of a pipeline.
        sizes: of a pipeline: bytes of a turn, chunks in all.
        window: part of the chunks that a turn of a pipeline processes.
    """

    name: str
    does: OperationKind
    sources: tuple[Ref, ...] = ()
    targets: tuple[Ref, ...] = ()
    after: tuple[tuple[int, int], ...] = ()
    ways: tuple[Way, ...] = ()
    blocks: int = 1
    part: tuple[int, int] = (0, 1)
    inner: tuple["PlanOperation", ...] = ()
    sizes: tuple[int, int] = (1, 0)
    window: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Block:
    """A thread block: its GPU, its operations, and the initial values of the GPU's semaphores."""

    gpu: int
    number: int
    channel: int
    ops: tuple[PlanOperation, ...]
    semaphores: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class BlockPlan:
    """The contents of a file; called with a collective, it returns the schedule."""

    name: str
    collective: str
    ranks: int
    chunks: int
    protocol: str
    in_place: bool
    out_of_place: bool
    scratch: tuple[int, ...]
    blocks: tuple[Block, ...]
    words: tuple[str, str]  # the file's words for blocks and operations

    def __call__(self, collective: Collective) -> schedule.Schedule:
        """Return the schedule of a collective."""
        return self._machine(collective).all()

    def place_of(self, row: int, collective: Collective) -> str:
        """Return the operation that wrote a row; "" for a copy before all operations."""
        machine = self._machine(collective)
        machine.all()
        places_before = [(block, at) for first, block, at in machine.places if first <= row]
        return machine.where(*places_before[-1]) if places_before else ""

    def _machine(self, collective: Collective) -> "_Machine":
        """The state with which the rows of a collective are written."""
        if (self.collective, self.ranks) != (collective.name, collective.ranks):
            got = f"{collective.name} on {collective.ranks}"
            message = f"{self.name} is {self.collective} on {self.ranks} GPUs, this is {got}"
            raise CollectiveError("algorithm", message)
        return _Machine(self, collective)


@dataclass(frozen=True, slots=True)
class _Span:
    """Ranges of a rank's buffer: the offset and the length of each, in elements."""

    buffer: int
    offset: Counts
    count: Counts


def _in_scratch(start: int, count: Counts) -> _Span:
    """Ranges of `count` elements each, side by side in scratch memory from element `start` on."""
    return _Span(SCRATCH, start + np.cumsum(count) - count, count)


@dataclass
class _Turn:
    """The progress of a block.

    Args:
        before: rows that the next operation waits for.
        at: number of the next operation.
        flying: rows that have written remotely and may not have arrived.
        recent: by channel, the last put, if nothing has followed it.
        passed: barriers that the block has passed.
    """

    block: Block
    ops: Sequence[PlanOperation]
    before: list[Rows]
    at: int = 0
    flying: list[Rows] = field(default_factory=list)
    recent: dict[object, Rows] = field(default_factory=dict)
    passed: Counter[Way] = field(default_factory=Counter)  # barriers


class _Source(NamedTuple):
    """The data that an operation reads: where it is, and the rows that bring it.

    `fetched` is set if it was copied here for this operation.
    """

    rank: int
    span: _Span
    arrived: Rows
    fetched: bool = False


@dataclass
class _Fifo:
    """A FIFO: where its memory starts, the messages sent, and the rows that have emptied it."""

    start: int
    sent: list[tuple[Rows, _Span]] = field(default_factory=list)
    taken: list[Rows] = field(default_factory=list)

    def free(self) -> list[Rows]:
        """Return the rows that made room for the next message."""
        at = len(self.sent) - SLOTS
        return self.taken[at : at + 1] if at >= 0 else []


class _Machine:
    """Writes the rows of a plan: blocks advance in turn until none can."""

    def __init__(self, plan: BlockPlan, collective: Collective) -> None:
        self.plan = plan
        self.collective = collective
        self.builder = Builder(collective.ranks, collective.element_bytes, (collective.name,))
        blocks = collective.ranks if collective.name in DIVIDED else 1
        self.block_chunks = plan.chunks // blocks  # chunks of a block
        if self.block_chunks * blocks != plan.chunks:
            raise self._error(f"expected a multiple of {blocks} chunks a loop, got {plan.chunks}")
        # Edges and sizes of the chunks of a block, and the size of the largest, in elements.
        self.edges = edges(collective.count, self.block_chunks)
        self.chunk_sizes = np.diff(self.edges)
        self.unit = int(self.chunk_sizes.max())
        # A file for calls in place has one buffer. A file for other calls expects that its input
        # does not change, so for calls in place the input is copied.
        self.has_one_buffer = not plan.out_of_place and not collective.in_place
        self.copies_input = not plan.in_place and collective.in_place
        if self.has_one_buffer and collective.name not in ONE_BUFFER:
            raise self._error(f"is for {collective.name} in place only")
        self.scratch_used = [n * self.unit for n in plan.scratch]  # of each rank's scratch memory
        self.input_copy_at = list(self.scratch_used)
        self.places: list[tuple[int, Block, int]] = []  # from which row on which step wrote them
        self.chunk_contents: dict[tuple[int, int], int] = {}  # elements in chunks of scratch memory
        self.done: dict[tuple[int, int, int], list[Rows]] = {}  # by GPU, block and operation
        self.fifos: dict[tuple[object, ...], _Fifo] = {}
        ops = [op for block in plan.blocks for op in block.ops]
        self.slot_size = max((one.count for op in ops for one in op.targets), default=0) * self.unit
        self.tokens: dict[Way, list[Token]] = {}  # signals, and releases of semaphores
        self.taken: Counter[Way] = Counter()
        self.posted: dict[Way, Rows] = {}  # the last rows given to a proxy
        self.barriers: dict[tuple[Way, int], dict[int, Token]] = {}
        self.flags: dict[
            int, ChunkSegments[int]
        ] = {}  # by rank the row of the packets in its scratch

    def _error(self, message: str) -> CollectiveError:
        """An error that names the file."""
        return CollectiveError("algorithm", f"{self.plan.name}: {message}")

    def where(self, block: Block, at: int) -> str:
        """Return an operation of a block in words."""
        name, step = self.plan.words
        return f"gpu {block.gpu}, {name} {block.number}, {step} {at}"

    def all(self) -> schedule.Schedule:
        """Return the schedule; a rank ends when its blocks have ended."""
        copies_of_ranks = [self._copy_of_input(rank) for rank in range(self.collective.ranks)]
        turns = [
            _Turn(block, self._expanded(block), copies_of_ranks[block.gpu])
            for block in self.plan.blocks
        ]
        waiting = [turn for turn in turns if turn.ops]
        while waiting:
            if not sum(self._advance(turn) for turn in waiting):
                where = self.where(waiting[0].block, waiting[0].at)
                raise self._error(f"{where} waits for what never comes")
            waiting = [turn for turn in waiting if turn.at < len(turn.ops)]
        for rank, copies in enumerate(copies_of_ranks):
            last = [rows for turn in turns if turn.block.gpu == rank for rows in turn.before]
            waits = np.concatenate([NOTHING, *copies, *last])
            self.builder.marks(rank, joins=([0, len(waits)], waits, IN_ORDER))
        return self.builder.finish()

    def _expanded(self, block: Block) -> list[PlanOperation]:
        """The operations of a block; those of pipelines are repeated for each part of their
        chunks.
        """
        expanded: list[PlanOperation] = []
        for op in block.ops:
            elements_per_turn = max(1, op.sizes[0] // int(self.collective.element_bytes))
            all_elements = op.sizes[1] * self.unit
            at_most("unit_size", all_elements // elements_per_turn, MOST_PARTS)
            turns = range(0, all_elements, elements_per_turn)
            expanded += [
                replace(inner_operation, window=(at, at + elements_per_turn))
                for at in turns
                for inner_operation in op.inner
            ]
            expanded += [op] * (op.name != PIPELINE)
        return expanded

    def _advance(self, turn: _Turn) -> bool:
        """Write the rows of a block's next operation; return False if it must wait for another
        block.
        """
        op = turn.ops[turn.at]
        at = turn.at
        first = len(self.builder)
        before = turn.before
        me = turn.block.gpu
        awaited = [self.done.get((me, *step)) for step in op.after]
        if None in awaited:
            return False
        turn.before = [*before, *(rows for rows_of_step in awaited for rows in rows_of_step or ())]
        if not ACTIONS[op.does.action](self, turn, op):
            turn.before = before
            return False
        self.done[me, turn.block.number, at] = turn.before
        self.places += [(first, turn.block, at)] * (len(self.builder) > first)
        turn.at += 1
        return True

    # **** What orders ****

    def _signal(self, turn: _Turn, op: PlanOperation) -> bool:
        """Signal peers that earlier writes have arrived (relaxed signals do not wait for that).

        A signal right after a put needs no row: it arrives with the data, like a flag behind it.
        """
        fence = [] if op.name.startswith("rlx") else self._fence(turn)
        for way in op.ways:
            rows = turn.recent.get(way, turn.recent.get(way[:3]))
            if rows is None:
                waits = [*turn.before, self.posted.get(way, NOTHING)]
                style = Style(TRANSFER, COPY, SCRATCH, SCRATCH, channel=turn.block.channel)
                empty = _Span(SCRATCH, *np.zeros((2, 1), np.int64))
                rows = self._rows(style, *way[1:3], (empty, empty, None), waits)
            self._tokens_of(turn, way).append(([], [rows, *fence]))
        return True

    def _fence(self, turn: _Turn) -> list[Rows]:
        """One mark that waits until everything that a block wrote remotely has arrived."""
        if sum(map(len, turn.flying)) > 1:
            turn.flying = [self._mark(turn.block.gpu, [], turn.flying)]
        return turn.flying

    def _mark(self, rank: int, before: list[Rows], arrived: list[Rows], lag: Lag = ARRIVED) -> Rows:
        """A mark that waits until some rows have ended and others have arrived."""
        parts = [np.unique(np.concatenate([NOTHING, *rows])) for rows in (before, arrived)]
        lags = [self.builder.lag(IN_ORDER), self.builder.lag(lag)]
        kinds = np.repeat(np.array(lags, np.int16), [len(part) for part in parts])
        waits = np.concatenate(parts)
        return self.builder.marks(rank, joins=([0, len(waits)], waits, kinds))

    def _wait(self, turn: _Turn, op: PlanOperation) -> bool:
        """Wait for a signal on each channel; return False if one has not been sent.

        Acquiring a semaphore also waits until this block's own remote writes have arrived.
        """
        tokens = [
            token for way in op.ways for token in self._tokens_of(turn, way)[self.taken[way] :][:1]
        ]
        if len(tokens) < len(op.ways):
            return False
        if op.does.action == "acquire":
            tokens = [*tokens, ([], turn.flying)]
            turn.flying = []
        self.taken.update(op.ways)
        self._meet(turn, tokens)
        return True

    def _tokens_of(self, turn: _Turn, way: Way) -> list[Token]:
        """All signals of a channel; a semaphore begins with some that wait for nothing."""
        begin = turn.block.semaphores[way[3]] if way[0] == SEMAPHORE else 0
        return self.tokens.setdefault(way, [([], [])] * begin)

    def _meet(self, turn: _Turn, tokens: Sequence[Token]) -> None:
        """Continue when the rows of some signals have ended or arrived."""
        finished, arrived = ([rows for token in tokens for rows in token[k]] for k in (0, 1))
        turn.before = [self._mark(turn.block.gpu, [*turn.before, *finished], arrived)]
        turn.recent = {}

    def _flush(self, turn: _Turn, op: PlanOperation) -> bool:
        """Wait until proxies have sent what they were given."""
        turn.before = [*turn.before, *(self.posted.get(way, NOTHING) for way in op.ways)]
        return True

    def _release(self, turn: _Turn, op: PlanOperation) -> bool:
        """Release semaphores."""
        for way in op.ways:
            self._tokens_of(turn, way).append((turn.before, turn.flying))
        return True

    def _barrier(self, turn: _Turn, op: PlanOperation) -> bool:
        """Pass a barrier when its last block has reached it."""
        (way,) = op.ways
        tokens_by_block = self.barriers.setdefault((way, turn.passed[way]), {})
        tokens_by_block.setdefault(turn.block.number, (turn.before, turn.flying))
        if len(tokens_by_block) < op.blocks:
            return False
        self._meet(turn, list(tokens_by_block.values()))
        turn.flying = []
        turn.passed[way] += 1
        return True

    # **** What moves ****

    def _data(self, turn: _Turn, op: PlanOperation) -> bool:
        """Write the rows of an operation on data.

        Return False if its sources are not sent yet, or a FIFO has no room. Later operations wait
        for puts to be issued and for gets to be answered.
        """
        arrived = self._arrived(turn, op)
        if arrived is None:
            return False
        me = turn.block.gpu
        turn.recent = {}
        adds = op.does.action == "sum"
        sources = self._gathered(turn, op, arrived)
        if adds:
            sources = [self._summed(turn, op, sources)]
        rows_before = turn.before
        sources *= len(op.targets) // len(sources)
        written = [
            (source.rank == me, self._moved(turn, op, k, source))
            for k, source in enumerate(sources)
            if k or not adds
        ]
        if written and not (op.ways and op.ways[0][0] == PORT):
            local_rows = [rows for is_local, rows in written if is_local]
            fetch_rows = [rows for is_local, rows in written if not is_local]
            turn.before = local_rows
            if fetch_rows:
                turn.before = [self._mark(me, local_rows, fetch_rows, ANSWERED)]
        for ref in op.sources:
            if ref.in_fifo:
                self._fifo(ref).taken += rows_before
        for follow_up in op.does.then:
            ACTIONS[follow_up](self, turn, op)
        return True

    def _arrived(self, turn: _Turn, op: PlanOperation) -> list[Rows] | None:
        """The rows that bring each source; None if some are not sent yet or a FIFO has no room."""
        fifos = [self._fifo(ref) for ref in op.targets if ref.in_fifo]
        if any(len(fifo.taken) <= len(fifo.sent) - SLOTS for fifo in fifos):
            return None
        arrivals: list[Rows] = []
        for k, ref in enumerate(op.sources):
            rows: Rows | None = NOTHING
            if ref.in_fifo:
                rows = self._message(turn, ref)
            elif ref.packets(op.does.reads, k):
                rows = self._flagged(turn.block.gpu, self._part(op, ref))
            if rows is None:
                return None
            arrivals.append(rows)
        return arrivals

    def _message(self, turn: _Turn, ref: Ref) -> Rows | None:
        """The rows of the next message of a FIFO; None if there is none yet."""
        fifo = self._fifo(ref)
        if len(fifo.sent) <= len(fifo.taken):
            return None
        rows, message = fifo.sent[len(fifo.taken)]
        if len(message.count) != ref.count:
            where = f"gpu {turn.block.gpu}, tb {turn.block.number} receives {ref.count} chunks"
            raise self._error(f"{where}, but gpu {ref.ranks[0]} sends {len(message.count)}")
        return rows

    def _flagged(self, rank: int, span: _Span) -> Rows | None:
        """The rows that bring packets into scratch memory; None if some are not sent yet."""
        flags = self.flags.get(rank, ChunkSegments(-1))
        ends = zip(span.offset.tolist(), span.count.tolist(), strict=True)
        rows_of_packets = [row for at, count in ends for _, _, row in flags.read(at, at + count)]
        return None if -1 in rows_of_packets else np.unique(np.array(rows_of_packets, np.int32))

    def _flag(self, ranks: Sequence[int], target: _Span, rows: Rows) -> None:
        """Record which rows bring packets into scratch memory."""
        columns = target.offset.tolist(), target.count.tolist(), rows.tolist()
        for rank, (at, count, row) in product(ranks, zip(*columns, strict=True)):
            self.flags.setdefault(rank, ChunkSegments(-1)).write(
                [(at, at + count, row)] * (count > 0)
            )

    def _moved(self, turn: _Turn, op: PlanOperation, k: int, source: _Source) -> Rows:
        """Write the copy to a target: memory of a GPU, of a group behind a switch, or a FIFO."""
        ref = op.targets[k]
        me = turn.block.gpu
        ways = op.ways
        target = self._part(op, ref, op.sources[min(k, len(op.sources) - 1)])
        packets = ref.packets(op.does.writes, k)
        fifo = ref.in_fifo
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
        self, ref: Ref, me: int, first_source: Ref, source: int
    ) -> tuple[tuple[int, ...], int, int]:
        """The ranks that a copy reaches, their number as a destination, and the kind of row.

        A multicast does not overwrite a GPU's own packets with themselves.
        """
        if ref.switched:
            is_in_place = (first_source.ranks, first_source.place) == ((me,), ref.place)
            ranks = tuple(
                rank_of_group
                for rank_of_group in ref.ranks
                if not is_in_place or rank_of_group != me
            )
            return ranks, self.builder.group(ranks), MULTICAST
        rank = ref.ranks[-1]
        return (rank,), rank, LOCAL_COPY if rank == source else TRANSFER

    def _gathered(self, turn: _Turn, op: PlanOperation, arrived: Sequence[Rows]) -> list[_Source]:
        """The sources of an operation; remote ones that it sums, and sums of a switch, are
        fetched first.
        """
        me = turn.block.gpu
        gathered = list[_Source]()
        fetched = list[Rows]()
        adds = op.does.action == "sum"
        size_of = op.sources[0] if adds else None
        for ref, arrived_rows in zip(op.sources, arrived, strict=True):
            span = self._part(op, ref, size_of)
            is_remote = ref.ranks != (me,) and not ref.in_fifo
            if not (ref.switched or (adds and is_remote)):
                gathered.append(_Source(ref.ranks[-1], span, arrived_rows))
                continue
            to = _in_scratch(self._scratch(me, int(span.count.sum())), span.count)
            kind = SWITCH_REDUCE if ref.switched else TRANSFER
            src = self.builder.group(ref.ranks) if ref.switched else ref.ranks[0]
            style = Style(kind, COPY, span.buffer, SCRATCH, channel=turn.block.channel)
            fetched.append(self._rows(style, src, me, (span, to, None), turn.before))
            gathered.append(_Source(me, to, arrived_rows, fetched=True))
        if fetched:
            turn.before = [self._mark(me, turn.before, fetched, ANSWERED)]
        return gathered

    def _summed(self, turn: _Turn, op: PlanOperation, addends: list[_Source]) -> _Source:
        """Sum the sources into the first target in order of arrival: what is there first, a
        message last.
        """
        me = turn.block.gpu
        target_ref = op.targets[0]
        fused = op.sources[0].in_fifo
        ordered = sorted(
            zip(op.sources, addends, strict=True), key=lambda a: (a[0] != target_ref, a[0].in_fifo)
        )
        target = self._part(op, target_ref, op.sources[0])
        (first, *more) = [addend for _, addend in ordered]
        target_is_source = target_ref in op.sources
        own_input = first.span if fused and more and first.span.buffer == IN else None
        if own_input is not None:
            operation = REDUCE_INPUT
        else:
            operation = REDUCE if target_is_source else COPY
        addends = more if target_is_source or own_input is not None else [first, *more]
        for addend in addends:
            begins = operation == COPY and len(addends) > 1 and not fused
            uses = NO_MEMORY_PASS if begins or addend.fetched else ()
            style = Style(LOCAL_COPY, operation, addend.span.buffer, target.buffer, uses=uses)
            spans = addend.span, target, own_input
            turn.before = [self._rows(style, me, me, spans, turn.before, addend.arrived)]
            operation = REDUCE
            own_input = None
        return _Source(me, target, NOTHING)

    # **** Where it is ****

    def _fifo(self, ref: Ref) -> _Fifo:
        """The FIFO between two GPUs on a channel."""
        key = ref.ranks, ref.place
        if key not in self.fifos:
            self.fifos[key] = _Fifo(self._scratch(ref.ranks[1], SLOTS * self.slot_size))
        return self.fifos[key]

    def _part(self, op: PlanOperation, ref: Ref, size_of: Ref | None = None) -> _Span:
        """The part of some chunks that an operation processes; `size_of` are chunks that
        determine their size.
        """
        complete = self._complete_span(
            ref, None if size_of in (None, ref) else self._complete_span(size_of).count
        )
        if op.part == (0, 1) and op.window is None:
            return complete
        number, parts = op.part
        low, high = edges(ref.count * self.unit, parts)[number : number + 2].tolist()
        if op.window:
            low, high = low + op.window[0], min(high, low + op.window[1])
        at = np.arange(ref.count) * self.unit
        first, last = (np.clip(end - at, 0, complete.count) for end in (low, high))
        is_nonempty = last > first
        return _Span(
            complete.buffer, (complete.offset + first)[is_nonempty], (last - first)[is_nonempty]
        )

    def _complete_span(self, ref: Ref, sizes: Counts | None = None) -> _Span:
        """All of some chunks; `sizes` are the sizes of the data that they receive."""
        if ref.in_fifo:
            fifo = self._fifo(ref)
            if sizes is None:
                return fifo.sent[len(fifo.taken)][1]
            return _in_scratch(fifo.start + len(fifo.sent) % SLOTS * self.slot_size, sizes)
        if ref.place[0] == NEW_SCRATCH and sizes is not None:
            return _in_scratch(self._scratch(ref.ranks[0], int(sizes.sum())), sizes)
        span, *_ = (self._span(rank, ref.place, ref.count, sizes) for rank in ref.ranks)
        return span

    def _copy_of_input(self, rank: int) -> list[Rows]:
        """Write the copy of a rank's input if the file has no input buffer of its own."""
        c = self.collective
        count = c.input_count(rank) if self.has_one_buffer or self.copies_input else 0
        if not count:
            return []
        to, at = (
            (OUT, self._home(rank)) if self.has_one_buffer else (SCRATCH, self.input_copy_at[rank])
        )
        self.scratch_used[rank] += count * self.copies_input
        piece = self.builder.pieces(count, 0, at)
        return [self.builder.rows(Style(LOCAL_COPY, COPY, IN, to), rank, rank, piece)]

    def _home(self, rank: int) -> int:
        """Where in its output a rank's input is in place."""
        return rank * self.collective.count if self.collective.name == "all_gather" else 0

    def _scratch(self, rank: int, count: int) -> int:
        """Reserve this number of elements of a rank's scratch memory."""
        self.scratch_used[rank] += count
        return self.scratch_used[rank] - count

    def _span(self, rank: int, place: Place, count: int, sizes: Counts | None = None) -> _Span:
        """Chunks of a buffer; `sizes` are the sizes of the data that scratch memory receives."""
        buffer, first = place
        chunks = np.arange(first, first + count)
        if buffer == SCRATCH:
            if sizes is None:
                sizes = np.array(
                    [self.chunk_contents.get((rank, c), self.unit) for c in chunks.tolist()]
                )
            self.chunk_contents.update(
                zip([(rank, c) for c in chunks.tolist()], sizes.tolist(), strict=True)
            )
            return _Span(SCRATCH, chunks * self.unit, sizes)
        block, within = np.divmod(chunks, self.block_chunks)
        sizes = self.chunk_sizes[within]
        offset = block * self.collective.count + self.edges[within]
        if buffer == IN and self.has_one_buffer:
            buffer = OUT
            offset = offset + self._home(rank)
        elif buffer == IN and self.copies_input:
            buffer = SCRATCH
            offset = offset + self.input_copy_at[rank]
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
        """Write the rows of a step, which all wait for the same rows."""
        waits = np.concatenate([NOTHING, *after])
        lags = np.full(len(waits), self.builder.lag(IN_ORDER), np.int16)
        if arrived is not None:
            arrival_lags = np.full(len(arrived), self.builder.lag(ARRIVED), np.int16)
            waits = np.concatenate([waits, arrived])
            lags = np.concatenate([lags, arrival_lags])
        source, target, own_input = spans
        offset = None if own_input is None else own_input.offset
        piece = self.builder.pieces(source.count, source.offset, target.offset, offset)
        count = len(piece)
        if count == 1:  # most steps: tiling would take as long as all the rest of this
            joins = np.array([0, len(waits)]), waits, lags
        else:
            joins = np.arange(count + 1) * len(waits), np.tile(waits, count), np.tile(lags, count)
        return self.builder.rows(style, src, dst, piece, joins=joins)


ACTIONS: dict[str, Callable[[_Machine, _Turn, PlanOperation], bool]] = {
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
