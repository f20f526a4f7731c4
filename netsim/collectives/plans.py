"""The programs of thread blocks that files of MSCCL and MSCCL++ contain, and their schedules.

Each thread block executes its operations in order. Operations of MSCCL send to FIFOs of the
receiver. Operations of MSCCL++ put to and get from remote memory, signal over channels, or send
packets (LL) whose flags tell the receiver that they have arrived. A chunk is one transfer, except
in pipelines.
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
# Kinds of channels of MSCCL++: GPUs write to memory directly; a CPU proxy makes the puts of a port.
MEMORY = "memory"
PORT = "port"
WIRE = {"Simple": 1.0, "LL": 2.0, "LL128": 16 / 15}  # bytes on the wire per byte of data
SLOTS = 8  # messages that the FIFO of a connection holds (NCCL_STEPS)
ANSWERED = Lag(0.0, 2)  # a get is answered: request and data have crossed the path
NO_MEMORY_PASS = (Use("hbm", "src", 1e-9),)  # sums in registers need no pass over memory
ONE_BUFFER = ("all_reduce", "all_gather", "broadcast", "alltoall")  # may run in one buffer

Place = tuple[int, int]  # a buffer, and a chunk of it; FIFO and a channel
Connection = tuple[str, int, int, int]  # kind, sender, receiver, and which of theirs
Counts = NDArray[np.int64]
Rows = NDArray[np.int32]
NOTHING: Rows = np.zeros(0, np.int32)
Token = tuple[list[Rows], list[Rows]]  # a signal: rows that end, and rows that arrive, before it


class OperationKind(NamedTuple):
    """What an operation does and accesses.

    Args:
        action: name of its function in `ACTIONS`.
        reads: a letter for each source; the last letter holds for all further sources. m: memory,
            p: packets, w: memory of a group of GPUs behind a switch, P: packets of such a group. In
            MSCCL s and d: source and destination of a step, f: the FIFO from its peer, n: unused
            scratch memory.
        writes: a letter for each target, as in `reads`; f: the FIFO to its peer.
        then: names in `ACTIONS` of actions that follow, such as a signal after a put.
    """

    action: str
    reads: str
    writes: str
    then: tuple[str, ...]


def _operations(tool: str) -> dict[str, OperationKind]:
    """The kinds of operations of a tool ("MSCCL" or "MSCCL++") by name, read from
    operations.csv.
    """
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
    """A reference to chunks that an operation reads or writes.

    - `ranks`: the GPU that has them; all GPUs that a switch joins; or sender and receiver of a
      FIFO.
    - `place`: buffer and first chunk; for a FIFO, FIFO and the channel.
    - `count`: number of chunks.
    """

    ranks: tuple[int, ...]
    place: Place
    count: int

    @property
    def in_fifo(self) -> bool:
        """Whether the chunks are a message in a FIFO."""
        return self.place[0] == FIFO

    @property
    def switched(self) -> bool:
        """Whether the chunks belong to a group of GPUs behind a switch (multicast, sums in the
        switch).
        """
        return len(self.ranks) > 1 and not self.in_fifo

    def packets(self, letters: str, k: int) -> bool:
        """Whether the chunks are packets; `letters` are an operation's `reads` or `writes`, k the
        position of this reference among its sources or targets.
        """
        return letters[min(k, len(letters) - 1)] in "pP"


@dataclass(frozen=True, slots=True)
class PlanOperation:
    """One operation of a thread block.

    Args:
        name: its name in the file.
        does: what it does and accesses.
        sources: the chunks that it reads.
        targets: the chunks that it writes.
        after: operations of other blocks of the same GPU that it waits for, as (block, number).
        connections: channels from this GPU that it uses (of `wait`: to it), semaphores,
            or a barrier.
        blocks: number of blocks that take part in a barrier.
        part: (number, count) if `count` blocks share the operation.
        inner: operations of a pipeline.
        sizes: of a pipeline: bytes of one iteration, number of chunks of all iterations.
        window: of an operation in a pipeline: first and last element (exclusive) of its iteration.
    """

    name: str
    does: OperationKind
    sources: tuple[Ref, ...] = ()
    targets: tuple[Ref, ...] = ()
    after: tuple[tuple[int, int], ...] = ()
    connections: tuple[Connection, ...] = ()
    blocks: int = 1
    part: tuple[int, int] = (0, 1)
    inner: tuple["PlanOperation", ...] = ()
    sizes: tuple[int, int] = (1, 0)
    window: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Block:
    """A thread block: its GPU, number, channel and operations, and the initial values of its GPU's
    semaphores.
    """

    gpu: int
    number: int
    channel: int
    ops: tuple[PlanOperation, ...]
    semaphores: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class BlockPlan:
    """The contents of a file; called with a collective, it returns the schedule.

    - `chunks`: number of chunks of the larger one of input and output.
    - `protocol`: Simple, LL or LL128.
    - `in_place`, `out_of_place`: whether the file is for calls in place, or out of place.
    - `scratch`: by GPU, the number of chunks of its scratch memory.
    - `words`: what the file calls blocks and operations, for messages.
    """

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
        """Return the schedule of a collective; a CollectiveError if the file is for another one."""
        return self._writer(collective).write_schedule()

    def place_of(self, row: int, collective: Collective) -> str:
        """The operation that wrote a row, in words ("gpu 0, tb 1, step 2"); "" for a copy before
        all operations.
        """
        writer = self._writer(collective)
        writer.write_schedule()
        places_before = [(block, at) for first, block, at in writer.places if first <= row]
        return writer.where(*places_before[-1]) if places_before else ""

    def _writer(self, collective: Collective) -> "_PlanWriter":
        """A new writer for the rows of a collective, which must be the one that the file is for."""
        if (self.collective, self.ranks) != (collective.name, collective.ranks):
            got = f"{collective.name} on {collective.ranks}"
            message = f"{self.name} is {self.collective} on {self.ranks} GPUs, this is {got}"
            raise CollectiveError("algorithm", message)
        return _PlanWriter(self, collective)


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
class _BlockProgress:
    """How far a thread block has come.

    Args:
        before: rows that the block's next operation waits for.
        at: number of the next operation.
        flying: rows that have written to remote memory and may not have arrived.
        recent: by channel, the last put, if no other operation has followed it.
        passed: by barrier, how often the block has passed it.
    """

    block: Block
    ops: Sequence[PlanOperation]
    before: list[Rows]
    at: int = 0
    flying: list[Rows] = field(default_factory=list)
    recent: dict[object, Rows] = field(default_factory=dict)
    passed: Counter[Connection] = field(default_factory=Counter)  # barriers


class _Source(NamedTuple):
    """The data of one source of an operation.

    - `rank`: the GPU that has the data.
    - `span`: where it is there.
    - `arrived`: the rows that bring it.
    - `fetched`: whether it was copied to this GPU for this operation only.
    """

    rank: int
    span: _Span
    arrived: Rows
    fetched: bool = False


@dataclass
class _Fifo:
    """The FIFO of a connection.

    - `start`: where its slots begin in the receiver's scratch memory, in elements.
    - `sent`: by message, its rows and where it is.
    - `taken`: by message, rows after which its slot is free again.
    """

    start: int
    sent: list[tuple[Rows, _Span]] = field(default_factory=list)
    taken: list[Rows] = field(default_factory=list)

    def free(self) -> list[Rows]:
        """The rows that made the slot of the next message free; empty for the first `SLOTS`
        messages.
        """
        at = len(self.sent) - SLOTS
        return self.taken[at : at + 1] if at >= 0 else []


class _PlanWriter:
    """The writer of a plan's rows: executes one operation of each block in turn until all
    are done.
    """

    def __init__(self, plan: BlockPlan, collective: Collective) -> None:
        self.plan = plan
        self.collective = collective
        self.builder = Builder(collective.ranks, collective.element_bytes, (collective.name,))
        blocks = collective.ranks if collective.name in DIVIDED else 1
        self.block_chunks = plan.chunks // blocks  # chunks of a block
        if self.block_chunks * blocks != plan.chunks:
            raise self._error(f"expected a multiple of {blocks} chunks a loop, got {plan.chunks}")
        # Where the chunks of a rank's block begin (and the last one ends), the size of each chunk,
        # and the size of the largest, in elements.
        self.edges = edges(collective.count, self.block_chunks)
        self.chunk_sizes = np.diff(self.edges)
        self.unit = int(self.chunk_sizes.max())
        # A file that is only for calls in place uses one buffer as input and output. For calls out
        # of place the input is first copied to the output. A file that is only for calls out of
        # place relies on an input that does not change. For calls in place the input is first
        # copied to scratch memory.
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
        self.tokens: dict[Connection, list[Token]] = {}  # signals, and releases of semaphores
        self.taken: Counter[Connection] = Counter()
        self.posted: dict[Connection, Rows] = {}  # the last rows given to a proxy
        self.barriers: dict[tuple[Connection, int], dict[int, Token]] = {}
        self.flags: dict[
            int, ChunkSegments[int]
        ] = {}  # by rank the row of the packets in its scratch

    def _error(self, message: str) -> CollectiveError:
        """A CollectiveError whose message names the file."""
        return CollectiveError("algorithm", f"{self.plan.name}: {message}")

    def where(self, block: Block, at: int) -> str:
        """An operation of a block in words, such as "gpu 0, tb 1, step 2"."""
        name, step = self.plan.words
        return f"gpu {block.gpu}, {name} {block.number}, {step} {at}"

    def write_schedule(self) -> schedule.Schedule:
        """Execute all operations; return the schedule. A rank ends when all its blocks
        have ended.
        """
        copies_of_ranks = [self._copy_of_input(rank) for rank in range(self.collective.ranks)]
        block_progress = [
            _BlockProgress(block, self._expanded(block), copies_of_ranks[block.gpu])
            for block in self.plan.blocks
        ]
        waiting = [progress for progress in block_progress if progress.ops]
        while waiting:
            if not sum(self._advance(progress) for progress in waiting):
                where = self.where(waiting[0].block, waiting[0].at)
                raise self._error(f"{where} waits for what never comes")
            waiting = [progress for progress in waiting if progress.at < len(progress.ops)]
        for rank, copies in enumerate(copies_of_ranks):
            last = [
                rows
                for progress in block_progress
                if progress.block.gpu == rank
                for rows in progress.before
            ]
            waits = np.concatenate([NOTHING, *copies, *last])
            self.builder.marks(rank, joins=([0, len(waits)], waits, IN_ORDER))
        return self.builder.finish()

    def _expanded(self, block: Block) -> list[PlanOperation]:
        """The operations of a block in order; those of a pipeline are repeated for each of its
        iterations.
        """
        expanded: list[PlanOperation] = []
        for op in block.ops:
            elements_per_iteration = max(1, op.sizes[0] // int(self.collective.element_bytes))
            all_elements = op.sizes[1] * self.unit
            at_most("unit_size", all_elements // elements_per_iteration, MOST_PARTS)
            iterations = range(0, all_elements, elements_per_iteration)
            expanded += [
                replace(inner_operation, window=(at, at + elements_per_iteration))
                for at in iterations
                for inner_operation in op.inner
            ]
            expanded += [op] * (op.name != PIPELINE)
        return expanded

    def _advance(self, progress: _BlockProgress) -> bool:
        """Write the rows of a block's next operation; return False if it must wait for another
        block.
        """
        op = progress.ops[progress.at]
        at = progress.at
        first = len(self.builder)
        before = progress.before
        me = progress.block.gpu
        awaited = [self.done.get((me, *step)) for step in op.after]
        if None in awaited:
            return False
        progress.before = [
            *before,
            *(rows for rows_of_step in awaited for rows in rows_of_step or ()),
        ]
        if not ACTIONS[op.does.action](self, progress, op):
            progress.before = before
            return False
        self.done[me, progress.block.number, at] = progress.before
        self.places += [(first, progress.block, at)] * (len(self.builder) > first)
        progress.at += 1
        return True

    # **** Order: signals, semaphores, barriers ****

    def _signal(self, progress: _BlockProgress, op: PlanOperation) -> bool:
        """Signal peers that all earlier writes of this block have arrived; return True.

        Relaxed signals (`rlx…`) do not wait for earlier writes. A signal right after a put needs no
        row of its own: it arrives with the data.
        """
        fence = [] if op.name.startswith("rlx") else self._fence(progress)
        for connection in op.connections:
            rows = progress.recent.get(connection, progress.recent.get(connection[:3]))
            if rows is None:
                waits = [*progress.before, self.posted.get(connection, NOTHING)]
                style = Style(TRANSFER, COPY, SCRATCH, SCRATCH, channel=progress.block.channel)
                empty = _Span(SCRATCH, *np.zeros((2, 1), np.int64))
                rows = self._rows(style, *connection[1:3], (empty, empty, None), waits)
            self._signals_of(progress, connection).append(([], [rows, *fence]))
        return True

    def _fence(self, progress: _BlockProgress) -> list[Rows]:
        """Rows after which everything that a block wrote to remote memory has arrived: at
        most one.
        """
        if sum(map(len, progress.flying)) > 1:
            progress.flying = [self._mark(progress.block.gpu, [], progress.flying)]
        return progress.flying

    def _mark(self, rank: int, before: list[Rows], arrived: list[Rows], lag: Lag = ARRIVED) -> Rows:
        """Write a mark on a GPU that waits for rows; return it as an array of one.

        - `before`: rows that must have ended.
        - `arrived`: rows for which the mark waits as `lag` says; by default, until their data has
          arrived.
        """
        parts = [np.unique(np.concatenate([NOTHING, *rows])) for rows in (before, arrived)]
        lags = [self.builder.lag(IN_ORDER), self.builder.lag(lag)]
        kinds = np.repeat(np.array(lags, np.int16), [len(part) for part in parts])
        waits = np.concatenate(parts)
        return self.builder.marks(rank, joins=([0, len(waits)], waits, kinds))

    def _wait(self, progress: _BlockProgress, op: PlanOperation) -> bool:
        """Wait for the next signal of each connection; return False if one of them has not been
        sent.

        Acquiring a semaphore also waits until this block's own remote writes have arrived.
        """
        tokens = [
            token
            for connection in op.connections
            for token in self._signals_of(progress, connection)[self.taken[connection] :][:1]
        ]
        if len(tokens) < len(op.connections):
            return False
        if op.does.action == "acquire":
            tokens = [*tokens, ([], progress.flying)]
            progress.flying = []
        self.taken.update(op.connections)
        self._wait_for_signals(progress, tokens)
        return True

    def _signals_of(self, progress: _BlockProgress, connection: Connection) -> list[Token]:
        """All signals of a connection so far. A semaphore begins with its initial number of
        signals, which wait for nothing.
        """
        begin = progress.block.semaphores[connection[3]] if connection[0] == SEMAPHORE else 0
        return self.tokens.setdefault(connection, [([], [])] * begin)

    def _wait_for_signals(self, progress: _BlockProgress, tokens: Sequence[Token]) -> None:
        """Let the block's next operation wait for `tokens`, the signals that it takes.

        A signal is (rows that must have ended, rows that must have arrived) before it counts as
        given.
        """
        finished, arrived = ([rows for token in tokens for rows in token[k]] for k in (0, 1))
        progress.before = [self._mark(progress.block.gpu, [*progress.before, *finished], arrived)]
        progress.recent = {}

    def _flush(self, progress: _BlockProgress, op: PlanOperation) -> bool:
        """Let the block's next operation wait until proxies have sent all puts of some ports;
        return True.
        """
        progress.before = [
            *progress.before,
            *(self.posted.get(connection, NOTHING) for connection in op.connections),
        ]
        return True

    def _release(self, progress: _BlockProgress, op: PlanOperation) -> bool:
        """Release semaphores, after all that the block has done so far; return True."""
        for connection in op.connections:
            self._signals_of(progress, connection).append((progress.before, progress.flying))
        return True

    def _barrier(self, progress: _BlockProgress, op: PlanOperation) -> bool:
        """Pass a barrier once its last block has reached it; return False before that."""
        (connection,) = op.connections
        tokens_by_block = self.barriers.setdefault((connection, progress.passed[connection]), {})
        tokens_by_block.setdefault(progress.block.number, (progress.before, progress.flying))
        if len(tokens_by_block) < op.blocks:
            return False
        self._wait_for_signals(progress, list(tokens_by_block.values()))
        progress.flying = []
        progress.passed[connection] += 1
        return True

    # **** Data: copies and sums ****

    def _move_data(self, progress: _BlockProgress, op: PlanOperation) -> bool:
        """Write the rows of an operation that copies or sums data.

        Return False if a source has not been sent yet, or if a FIFO has no free slot; the block
        tries again later. Otherwise return True, and let the block's next operation wait: until the
        rows of this one have ended; where data was read from another GPU, until its answer has
        arrived; and not at all where a proxy makes the puts.
        """
        arrived = self._arrival_rows(progress, op)
        if arrived is None:
            return False
        me = progress.block.gpu
        progress.recent = {}
        adds = op.does.action == "sum"
        sources = self._fetched_sources(progress, op, arrived)
        if adds:
            sources = [self._write_sum(progress, op, sources)]
        rows_before = progress.before
        sources *= len(op.targets) // len(sources)
        written = [
            (source.rank == me, self._write_copy(progress, op, k, source))
            for k, source in enumerate(sources)
            if k or not adds
        ]
        if written and not (op.connections and op.connections[0][0] == PORT):
            local_rows = [rows for is_local, rows in written if is_local]
            fetch_rows = [rows for is_local, rows in written if not is_local]
            progress.before = local_rows
            if fetch_rows:
                progress.before = [self._mark(me, local_rows, fetch_rows, ANSWERED)]
        for ref in op.sources:
            if ref.in_fifo:
                self._fifo(ref).taken += rows_before
        for follow_up in op.does.then:
            ACTIONS[follow_up](self, progress, op)
        return True

    def _arrival_rows(self, progress: _BlockProgress, op: PlanOperation) -> list[Rows] | None:
        """The rows that bring the data of each source, in the order of the sources (no rows: it is
        there already).

        None if a source has not been sent yet, or if a FIFO that the operation writes to has no
        free slot.
        """
        fifos = [self._fifo(ref) for ref in op.targets if ref.in_fifo]
        if any(len(fifo.taken) <= len(fifo.sent) - SLOTS for fifo in fifos):
            return None
        arrivals: list[Rows] = []
        for k, ref in enumerate(op.sources):
            rows: Rows | None = NOTHING
            if ref.in_fifo:
                rows = self._rows_of_next_message(progress, ref)
            elif ref.packets(op.does.reads, k):
                rows = self._rows_of_packets(progress.block.gpu, self._processed_span(op, ref))
            if rows is None:
                return None
            arrivals.append(rows)
        return arrivals

    def _rows_of_next_message(self, progress: _BlockProgress, ref: Ref) -> Rows | None:
        """The rows that bring the next message of a FIFO; None if it has not been sent yet."""
        fifo = self._fifo(ref)
        if len(fifo.sent) <= len(fifo.taken):
            return None
        rows, message = fifo.sent[len(fifo.taken)]
        if len(message.count) != ref.count:
            where = (
                f"gpu {progress.block.gpu}, tb {progress.block.number} receives {ref.count} chunks"
            )
            raise self._error(f"{where}, but gpu {ref.ranks[0]} sends {len(message.count)}")
        return rows

    def _rows_of_packets(self, rank: int, span: _Span) -> Rows | None:
        """The rows that bring the packets of a span of scratch memory; None if some are not sent
        yet.
        """
        flags = self.flags.get(rank, ChunkSegments(-1))
        ends = zip(span.offset.tolist(), span.count.tolist(), strict=True)
        rows_of_packets = [row for at, count in ends for _, _, row in flags.read(at, at + count)]
        return None if -1 in rows_of_packets else np.unique(np.array(rows_of_packets, np.int32))

    def _record_packets(self, ranks: Sequence[int], target: _Span, rows: Rows) -> None:
        """Record that `rows` bring packets into the span `target` of the scratch memory of some
        GPUs.
        """
        columns = target.offset.tolist(), target.count.tolist(), rows.tolist()
        for rank, (at, count, row) in product(ranks, zip(*columns, strict=True)):
            self.flags.setdefault(rank, ChunkSegments(-1)).write(
                [(at, at + count, row)] * (count > 0)
            )

    def _write_copy(
        self, progress: _BlockProgress, op: PlanOperation, k: int, source: _Source
    ) -> Rows:
        """Write the copy from a source to the k-th target of an operation; return its rows.

        The target is memory of one GPU, memory of a group of GPUs behind a switch, or a FIFO.
        """
        ref = op.targets[k]
        me = progress.block.gpu
        connections = op.connections
        target = self._processed_span(op, ref, op.sources[min(k, len(op.sources) - 1)])
        packets = ref.packets(op.does.writes, k)
        fifo = ref.in_fifo
        port = connections[k] if connections and connections[0][0] == PORT else None
        waits = [*progress.before, self.posted.get(port, NOTHING) if port else NOTHING]
        ranks, dst, kind = self._destination(ref, me, op.sources[0], source.rank)
        if fifo:
            waits += self._fifo(ref).free()
        protocol = "LL" if packets and kind != LOCAL_COPY else "Simple"
        style = Style(
            kind,
            COPY,
            source.span.buffer,
            target.buffer,
            channel=progress.block.channel,
            wire=WIRE[self.plan.protocol if fifo else protocol],
        )
        spans = source.span, target, None
        rows = self._rows(style, source.rank, dst, spans, waits, source.arrived)
        if fifo:
            self._fifo(ref).sent.append((rows, target))
        elif packets:
            self._record_packets(ranks, target, rows)
        elif ranks != (me,):
            progress.flying = [*progress.flying, rows]
        if port:
            self.posted[port] = rows
        if kind != MULTICAST:
            progress.recent[port or (MEMORY, me, dst)] = rows
        return rows

    def _destination(
        self, ref: Ref, me: int, first_source: Ref, source: int
    ) -> tuple[tuple[int, ...], int, int]:
        """The destination of a copy to `ref`, as (GPUs that it reaches, `dst` of its rows, kind of
        its rows).

        `dst` is the GPU, or the number of the group for a multicast. A multicast of a GPU's own
        data to the same place does not reach this GPU itself.

        - `me`: the GPU of the block.
        - `first_source`: the first source of the operation.
        - `source`: the GPU that has the data.
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

    def _fetched_sources(
        self, progress: _BlockProgress, op: PlanOperation, arrived: Sequence[Rows]
    ) -> list[_Source]:
        """All sources of an operation, each with the place of its data and the rows that bring it.

        Remote data that is to be summed, and sums that a switch makes, are first fetched into
        scratch memory. `arrived` are the rows that bring each source.
        """
        me = progress.block.gpu
        gathered = list[_Source]()
        fetched = list[Rows]()
        adds = op.does.action == "sum"
        size_of = op.sources[0] if adds else None
        for ref, arrived_rows in zip(op.sources, arrived, strict=True):
            span = self._processed_span(op, ref, size_of)
            is_remote = ref.ranks != (me,) and not ref.in_fifo
            if not (ref.switched or (adds and is_remote)):
                gathered.append(_Source(ref.ranks[-1], span, arrived_rows))
                continue
            to = _in_scratch(self._scratch(me, int(span.count.sum())), span.count)
            kind = SWITCH_REDUCE if ref.switched else TRANSFER
            src = self.builder.group(ref.ranks) if ref.switched else ref.ranks[0]
            style = Style(kind, COPY, span.buffer, SCRATCH, channel=progress.block.channel)
            fetched.append(self._rows(style, src, me, (span, to, None), progress.before))
            gathered.append(_Source(me, to, arrived_rows, fetched=True))
        if fetched:
            progress.before = [self._mark(me, progress.before, fetched, ANSWERED)]
        return gathered

    def _write_sum(
        self, progress: _BlockProgress, op: PlanOperation, addends: list[_Source]
    ) -> _Source:
        """Write the rows that sum all addends in the operation's first target; return the sum as a
        source.

        The target's own contents come first if it is one of the sources, and a message of a FIFO
        last.
        """
        me = progress.block.gpu
        target_ref = op.targets[0]
        fused = op.sources[0].in_fifo
        ordered = sorted(
            zip(op.sources, addends, strict=True), key=lambda a: (a[0] != target_ref, a[0].in_fifo)
        )
        target = self._processed_span(op, target_ref, op.sources[0])
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
            progress.before = [self._rows(style, me, me, spans, progress.before, addend.arrived)]
            operation = REDUCE
            own_input = None
        return _Source(me, target, NOTHING)

    # **** Places in memory ****

    def _fifo(self, ref: Ref) -> _Fifo:
        """The FIFO that a reference names: one for each sender, receiver and channel."""
        key = ref.ranks, ref.place
        if key not in self.fifos:
            self.fifos[key] = _Fifo(self._scratch(ref.ranks[1], SLOTS * self.slot_size))
        return self.fifos[key]

    def _processed_span(self, op: PlanOperation, ref: Ref, size_of: Ref | None = None) -> _Span:
        """The elements of the chunks `ref` that an operation processes: only its part if several
        blocks share the operation, and only the window of its iteration in a pipeline.

        `size_of` names the chunks from which the data comes. A target has as many elements in each
        chunk, unless its chunks have fixed sizes. Leave it out for a source.
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
        """All elements of the chunks `ref`.

        - `sizes`: if the chunks are written, the elements of each; None if they are read. Chunks of
          input and output have fixed sizes.

        Writing to a FIFO or to new scratch memory takes the next free place there.
        """
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
        """Write the copy of a rank's input that is needed if the file is for the other kind of
        call; return its rows (none if no copy is needed).

        If the file is for calls in place only, the copy goes to the output; if it is for calls out
        of place only, to scratch memory.
        """
        c = self.collective
        count = c.input_count(rank) if self.has_one_buffer or self.copies_input else 0
        if not count:
            return []
        to, at = (
            (OUT, self._in_place_offset(rank))
            if self.has_one_buffer
            else (SCRATCH, self.input_copy_at[rank])
        )
        self.scratch_used[rank] += count * self.copies_input
        piece = self.builder.pieces(count, 0, at)
        return [self.builder.rows(Style(LOCAL_COPY, COPY, IN, to), rank, rank, piece)]

    def _in_place_offset(self, rank: int) -> int:
        """Where a rank's input begins in its output when a collective is in place, in elements."""
        return rank * self.collective.count if self.collective.name == "all_gather" else 0

    def _scratch(self, rank: int, count: int) -> int:
        """Reserve `count` elements of a rank's scratch memory; return the offset of the
        first one.
        """
        self.scratch_used[rank] += count
        return self.scratch_used[rank] - count

    def _span(self, rank: int, place: Place, count: int, sizes: Counts | None = None) -> _Span:
        """The elements of `count` chunks of a rank, from `place` (buffer, number of the first
        chunk) on.

        - `sizes`: if the chunks are written to scratch memory, the elements of each, which are
          remembered. None if they are read: then the remembered sizes apply, or a full chunk if
          none is remembered. Chunks of input and output have fixed sizes.
        """
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
            offset = offset + self._in_place_offset(rank)
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
        """Write a row for each range of some spans, all with the same dependencies; return the
        rows.

        Args:
            spans: the ranges that are read, those that are written, and for REDUCE_INPUT those of
                the receiver's own input.
            after: rows that must have ended.
            arrived: rows that must have arrived.
        """
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


ACTIONS: dict[str, Callable[[_PlanWriter, _BlockProgress, PlanOperation], bool]] = {
    "nop": lambda writer, progress, op: True,
    "signal": _PlanWriter._signal,
    "wait": _PlanWriter._wait,
    "flush": _PlanWriter._flush,
    "barrier": _PlanWriter._barrier,
    "acquire": _PlanWriter._wait,
    "release": _PlanWriter._release,
    "copy": _PlanWriter._move_data,
    "sum": _PlanWriter._move_data,
    "load": _PlanWriter._move_data,
}
