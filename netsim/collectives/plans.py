"""Algorithms as MSCCL++'s execution plans have them: read into schedules, and written from these.

A plan has thread blocks, each with operations in order. Blocks put into and get from memory of
others; they signal what is there over channels, or send packets, whose flags tell that they have
come. A chunk moves as a whole, but in pipelines."""

import json
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field, replace
from typing import Annotated, Any, Literal

import numpy as np
import pydantic
from pydantic import AliasChoices, Field

from netsim.base.values import dataclass
from netsim.collectives.collective import Collective, CollectiveError
from netsim.collectives.msccl import (
    BUFFERS,
    NAMES,
    NOTHING,
    Block,
    BlockWriter,
    File,
    FromFile,
    Key,
    Place,
    Rows,
    Sheet,
    SheetStep,
    Span,
    Turn,
    in_scratch,
)
from netsim.collectives.verify import Segments
from netsim.collectives.writing import MOST_PARTS, at_most, edges
from netsim.schedule import schedule as work
from netsim.schedule.schedule import COPY, LOCAL_COPY, SCRATCH, TRANSFER, Lag, Schedule, Style
from netsim.yamlio.models import Count, Index, ListOf
from netsim.yamlio.read import parse_source
from netsim.yamlio.validate import validate

KINDS = {**NAMES, "sendrecv": "sendrecv"}
PACKET_WIRE = 2.0  # half of a packet are flags
MOVES = ("put", "pws", "pwsf", "get", "copy", "ppkt", "rppkt", "cpkt", "upkt")
SUMS = ("re", "res", "rre", "rres", "repkt", "respkt", "recpkt", "recspkt")
SWITCHED = ("glres", "gstore", "gstorepkt")
DATA = (*MOVES, *SUMS, *SWITCHED)
SYNCS = ("nop", "signal", "rlxsignal", "wait", "rlxwait", "flush", "barrier", "sem_acquire",
         "sem_release")  # fmt: skip
# The first source that is packets, whose flags are waited for; the first target that becomes some.
PACKETS_IN = {"rppkt": 0, "upkt": 0, "gstorepkt": 0, **dict.fromkeys(SUMS[4:], 1)}
PACKETS_OUT = {"ppkt": 0, "rppkt": 0, "cpkt": 0, "gstorepkt": 0, **dict.fromkeys(SUMS[5:], 1)}
PIPELINE = "pipeline"
MEMORY, PORT = "memory", "port"  # a port's puts are done by a proxy: the block goes on meanwhile
ANSWERED = Lag(0.0, 2)  # what is fetched has been asked for
IN_PASSING = (work.Use("hbm", "src", 1e-9),)  # added in registers: no passes over memory
MOST_OPERATIONS = 64  # of a thread block, in MSCCL++'s executor

Way = tuple[str, int, int, int]  # kind, sender, receiver, and which of their channels
Tables = dict[str, list[Any]]
Letter = Literal["i", "o", "s"]
Kind = Literal["memory", "port", "switch"]


@dataclass(frozen=True, slots=True)
class Ref:
    """Chunks of a buffer of a GPU, or of all those of a group that a switch joins."""

    ranks: tuple[int, ...]
    place: Place
    count: int
    switched: bool = False


@dataclass(frozen=True, slots=True)
class Operation:
    """What a thread block does at a time. `part` is that of a group of blocks which share it;
    `window` the part of chunks that a turn of a pipeline takes."""

    kind: str
    sources: tuple[Ref, ...] = ()
    targets: tuple[Ref, ...] = ()
    ways: tuple[Way, ...] = ()  # from here; in a `wait` from there
    numbers: tuple[int, ...] = ()  # of semaphores; of a barrier and how many blocks come to it
    part: tuple[int, int] = (0, 1)
    inner: tuple["Operation", ...] = ()
    sizes: tuple[int, int] = (1, 0)  # of a pipeline: bytes of a turn, and chunks in all
    window: tuple[int, int] | None = None

    def wrong(self, ports: bool) -> str:
        """What is expected of the ends of an operation on data that has others."""
        ends, moves = (self.sources, self.targets), self.kind in MOVES
        if self.kind not in DATA:
            return ""
        if not all(ends) or (moves and len(ends[0]) not in (1, len(ends[1]))):
            return "as many src_buff as dst_buff, or one"
        counts = [[one.count for one in end] for end in ends]
        paired = moves and len(ends[0]) > 1
        if counts[0] != counts[1] if paired else len({*counts[0], *counts[1]}) > 1:
            return "equal sizes"
        switched = [self.kind == "glres", True] if self.kind in SWITCHED else [False, False]
        if [end[0].switched for end in ends] != switched:
            return "switch_channel_id in the operations of a switch, and there only"
        return "a channel for each target" * (ports and moves and len(self.ways) != len(ends[1]))


# What a file has, key by key; what is not known here is left aside.


class _Keys(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="ignore", strict=True, frozen=True)


class _Chunks(_Keys):
    """Chunks of an operation's end: here, elsewhere, or wherever a switch reaches."""

    type: Letter | None = None
    buffer_id: Index | None = None
    switch_channel_id: Index | None = None
    index: Index
    size: Count


class _Op(_Keys):
    name: Literal[(*DATA, *SYNCS, PIPELINE)]  # type: ignore[valid-type]
    src_buff: ListOf[_Chunks] = ()
    dst_buff: ListOf[_Chunks] = ()
    channel_ids: ListOf[Index] = ()
    channel_type: Literal["memory", "port", "switch", "none"] = "none"
    tbg_info: dict[str, Index] = {}
    barrier_id: Index = 0
    num_threadblocks: Count = 1
    semaphore_ids: ListOf[Index] = ()
    iter_context: dict[str, Count] = {}
    ops: ListOf["_Op"] = ()


class _Members(_Keys):
    ranks: ListOf[Index]


class _Channel(_Keys):
    channel_type: Kind
    connected_to: ListOf[Index] = ()
    buffer_type: Letter = Field("s", validation_alias=AliasChoices("buffer_type", "buff"))
    rank_groups: ListOf[_Members] = ()


class _Own(_Keys):
    """Channels of a GPU, or memory of others, that a thread block uses."""

    kind: Kind = Field(validation_alias=AliasChoices("channel_type", "access_channel_type"))
    ids: ListOf[Index] = Field(validation_alias=AliasChoices("channel_ids", "remote_buffer_ids"))


class _Threads(_Keys):
    id: Index
    ops: ListOf[_Op]
    channels: ListOf[_Own] = ()
    remote_buffer_refs: ListOf[_Own] = ()


class _Memory(_Keys):
    rank: Index
    type: Letter


class _Gpu(_Keys):
    id: Index
    input_chunks: Index
    output_chunks: Index
    scratch_chunks: Index
    threadblocks: ListOf[_Threads]
    channels: ListOf[_Channel] = ()
    remote_buffers: ListOf[_Memory] = ()
    semaphores: ListOf[dict[str, Index]] = ()


class _Plan(_Keys):
    collective: Literal[tuple(KINDS)]  # type: ignore[valid-type]
    protocol: Literal["Simple", "LL"]
    inplace: bool
    gpus: Annotated[ListOf[_Gpu], Field(min_length=1)]


def algorithm(name: str, text: str) -> Callable[[Collective], Schedule]:
    """A plan's algorithm as a function; a mistake in it is told with its place."""
    try:
        plan = _Plan.model_validate_json(text)
    except pydantic.ValidationError:
        plan = validate(_Plan, parse_source(text, name))  # which tells lines, but takes long
    try:
        return FromFile(_file(name, plan), _Blocks)
    except ValueError as error:
        raise CollectiveError("algorithm", f"{name}: {error}") from None


def _file(name: str, plan: _Plan) -> File:
    if [gpu.id for gpu in plan.gpus] != list(range(len(plan.gpus))):
        raise ValueError(f"gpus: expected ids 0..{len(plan.gpus) - 1} in order")
    return File(
        name,
        KINDS[plan.collective],
        len(plan.gpus),
        max(max(gpu.input_chunks, gpu.output_chunks) for gpu in plan.gpus) or 1,
        plan.protocol,
        plan.inplace,
        not plan.inplace,
        tuple(gpu.scratch_chunks for gpu in plan.gpus),
        tuple(block for gpu in plan.gpus for block in _Reader(gpu, len(plan.gpus)).blocks()),
    )


@dataclass(frozen=True, slots=True)
class PlanBlock(Block):
    """A thread block of a plan, and what the semaphores of its GPU begin with."""

    semaphores: tuple[int, ...]


class _Reader:
    """What a GPU's thread blocks refer to: its channels, the memory of others, its semaphores."""

    def __init__(self, gpu: _Gpu, ranks: int) -> None:
        self.gpu, self.ranks, self.where = gpu, range(ranks), f"gpu {gpu.id}"
        # By kind: peers, and which of the channels to them; buffers that switches join.
        self.channels: Tables = {kind: [] for kind in (MEMORY, PORT, "switch")}
        for channel in gpu.channels:
            table = self.channels[channel.channel_type]
            for peer in channel.connected_to:
                met = [other for other, _ in table].count(self._entry(peer, self.ranks))
                table.append((peer, met))
            for group in channel.rank_groups:
                members = tuple(self._entry(one, self.ranks) for one in group.ranks)
                if len(members) < 2 or len(set(members)) < len(members):
                    raise ValueError(f"{self.where}: expected two ranks or more behind a switch")
                table.append((BUFFERS[channel.buffer_type], members))

    def _entry(self, number: int, table: Sequence[Any]) -> Any:
        """An entry of a table."""
        if number >= len(table):
            raise ValueError(f"{self.where}: expected one of {len(table)} entries, got {number}")
        return table[number]

    def blocks(self) -> Iterator[PlanBlock]:
        """The thread blocks."""
        gpu = self.gpu
        memory = [(self._entry(m.rank, self.ranks), BUFFERS[m.type]) for m in gpu.remote_buffers]
        starts = tuple(one.get("init_value", 0) for one in gpu.semaphores)
        for block in gpu.threadblocks:
            self.where = f"gpu {gpu.id}, threadblock {block.id}"
            mine: Tables = {kind: [] for kind in self.channels}
            theirs: Tables = {kind: [] for kind in (*self.channels, "none")}
            for own in block.channels:
                mine[own.kind] += [self._entry(k, self.channels[own.kind]) for k in own.ids]
            for own in block.remote_buffer_refs:
                theirs[own.kind] += [self._entry(k, memory) for k in own.ids]
            where, ops = self.where, list[Operation]()
            for number, op in enumerate(block.ops):
                self.where = f"{where}, op {number}"
                ops.append(self._operation(op, mine, theirs))
            yield PlanBlock(gpu.id, block.id, tuple(ops), starts)

    def _operation(self, op: _Op, mine: Tables, theirs: Tables) -> Operation:
        if op.name == PIPELINE:
            inner = tuple(self._operation(one, mine, theirs) for one in op.ops)
            sizes = op.iter_context.get("unit_size", 1), op.iter_context.get("num_chunks", 1)
            return Operation(op.name, inner=inner, sizes=sizes)
        here, there = mine["switch"], theirs[op.channel_type]
        sources = tuple(self._ref(one, here, there) for one in op.src_buff)
        targets = tuple(self._ref(one, here, there) for one in op.dst_buff)
        ways = []
        for one in op.channel_ids if op.channel_type in (MEMORY, PORT) else ():
            peer, number = self._entry(one, mine[op.channel_type])
            ends = (peer, self.gpu.id) if op.name.endswith("wait") else (self.gpu.id, peer)
            ways.append((op.channel_type, *ends, number))
        numbers = tuple(op.semaphore_ids)
        if op.name == "barrier":
            numbers = op.barrier_id, op.num_threadblocks
        elif numbers:
            self._entry(max(numbers), self.gpu.semaphores)
        parts = op.tbg_info.get("tbg_size", 1)
        part = self._entry(op.tbg_info.get("tb_id", 0), range(parts)), parts
        made = Operation(op.name, sources, targets, tuple(ways), numbers, part)
        wrong = made.wrong(op.channel_type == PORT)
        if wrong:
            raise ValueError(f"{self.where}: {op.name}: expected {wrong}")
        return made

    def _ref(self, one: _Chunks, switches: Sequence[Any], memory: Sequence[Any]) -> Ref:
        if one.switch_channel_id is not None:
            buffer, ranks = self._entry(one.switch_channel_id, switches)
            return Ref(ranks, (buffer, one.index), one.size, switched=True)
        if one.buffer_id is not None:
            rank, buffer = self._entry(one.buffer_id, memory)
            return Ref((rank,), (buffer, one.index), one.size)
        if one.type is None:
            raise ValueError(f"{self.where}: expected a type of i, o, s in a chunk")
        return Ref((self.gpu.id,), (BUFFERS[one.type], one.index), one.size)


# **** Read ****


@dataclass
class _Turn(Turn):
    """A turn of a block; what it wrote elsewhere, and what it has put last, by kind of channel and
    peer, if nothing came after that."""

    flying: list[Rows] = field(default_factory=list)
    recent: dict[object, Rows] = field(default_factory=dict)
    passed: Counter[int] = field(default_factory=Counter)  # barriers, by number


class _Blocks(BlockWriter[_Turn]):
    """A plan while its rows are written: what happens when to whose memory."""

    words = "threadblock", "op"
    turn = _Turn

    def __init__(self, file: File, collective: Collective) -> None:
        super().__init__(file, collective)
        self.blocks = [replace(one, steps=self._expanded(one)) for one in file.blocks]
        self.signals: dict[Way, list[list[Rows]]] = {}
        self.waited: Counter[Way] = Counter()
        self.posted: dict[Way, Rows] = {}  # what proxies were last given
        self.semaphores: dict[tuple[int, int], list[_Turn | None]] = {}
        self.acquired: Counter[tuple[int, int]] = Counter()
        self.barriers: dict[tuple[int, int, int], dict[int, _Turn]] = {}
        self.flags: dict[int, Segments[int]] = {}  # by rank the row of the packets in its scratch

    def _expanded(self, block: PlanBlock) -> tuple[Operation, ...]:
        """The operations of a block, those of pipelines once for each part of their chunks."""
        found: list[Operation] = []
        for op in block.steps:
            each = max(1, op.sizes[0] // int(self.collective.element_bytes))
            whole = op.sizes[1] * self.unit
            at_most("unit_size", whole // each, MOST_PARTS)
            turns = range(0, whole, each)
            found += [replace(one, window=(at, at + each)) for at in turns for one in op.inner]
            found += [op] * (op.kind != PIPELINE)
        return tuple(found)

    def goes(self, turn: _Turn) -> bool:
        """Write the rows of a block's next operation; whether that goes already."""
        op: Operation = turn.block.steps[turn.at]
        gone = SYNC.get(op.kind, _Blocks._data)(self, turn, op)
        turn.at += gone
        return gone

    # **** What orders ****

    def _signal(self, turn: _Turn, op: Operation) -> bool:
        """Tell peers to go on; unless relaxed, when all that came before has arrived. What was just
        put there tells it by itself, as a flag behind the data does."""
        fence = [] if op.kind.startswith("rlx") else self._fence(turn)
        for way in op.ways:
            rows = turn.recent.get(way, turn.recent.get(way[:3]))
            if rows is None:
                waits = [*turn.before, self.posted.get(way, NOTHING)]
                style = Style(TRANSFER, COPY, SCRATCH, SCRATCH, channel=turn.block.number)
                empty = Span(SCRATCH, *np.zeros((2, 1), np.int64))
                rows = self.rows(style, *way[1:3], (empty, empty, None), waits)
            self.signals.setdefault(way, []).append([rows, *fence])
        return True

    def _fence(self, turn: _Turn) -> list[Rows]:
        """One mark for when all that a block wrote elsewhere is there."""
        if sum(map(len, turn.flying)) > 1:
            turn.flying = [self._joined(turn.block.gpu, [], turn.flying)]
        return turn.flying

    def _joined(
        self, rank: int, before: list[Rows], arrived: list[Rows], lag: Lag = work.ARRIVED
    ) -> Rows:
        """A mark for when some rows are over and others have arrived."""
        parts = [np.unique(np.concatenate([NOTHING, *rows])) for rows in (before, arrived)]
        lags = [self.builder.lag(work.IN_ORDER), self.builder.lag(lag)]
        kinds = np.repeat(np.array(lags, np.int16), [len(part) for part in parts])
        waits = np.concatenate(parts)
        return self.builder.marks(rank, joins=([0, len(waits)], waits, kinds))

    def _wait(self, turn: _Turn, op: Operation) -> bool:
        if any(len(self.signals.get(way, ())) <= self.waited[way] for way in op.ways):
            return False
        told = [rows for way in op.ways for rows in self.signals[way][self.waited[way]]]
        self.waited.update(op.ways)
        turn.before, turn.recent = [self._joined(turn.block.gpu, turn.before, told)], {}
        return True

    def _flush(self, turn: _Turn, op: Operation) -> bool:
        """Wait until proxies have sent what they were given."""
        turn.before = [*turn.before, *(self.posted.get(way, NOTHING) for way in op.ways)]
        return True

    def _release(self, turn: _Turn, op: Operation) -> bool:
        for number in op.numbers:
            self._tokens(turn, number).append(replace(turn))
        return True

    def _acquire(self, turn: _Turn, op: Operation) -> bool:
        keys = [(turn.block.gpu, number) for number in op.numbers]
        if any(len(self._tokens(turn, key[1])) <= self.acquired[key] for key in keys):
            return False
        self._meet(turn, [self.semaphores[key][self.acquired[key]] for key in keys])
        self.acquired.update(keys)
        return True

    def _tokens(self, turn: _Turn, number: int) -> list[_Turn | None]:
        start: list[_Turn | None] = [None] * turn.block.semaphores[number]
        return self.semaphores.setdefault((turn.block.gpu, number), start)

    def _barrier(self, turn: _Turn, op: Operation) -> bool:
        """All blocks of a barrier go on when the last of them has come."""
        number, blocks = op.numbers
        key = turn.block.gpu, number, turn.passed[number]
        met = self.barriers.setdefault(key, {})
        met.setdefault(turn.block.number, replace(turn))
        if len(met) < blocks:
            return False
        self._meet(turn, list(met.values()))
        turn.passed[number] += 1
        return True

    def _meet(self, turn: _Turn, others: Sequence[_Turn | None]) -> None:
        """Go on behind what other blocks of the GPU had done by then: what they wrote has come."""
        met = [turn, *(one for one in others if one is not None)]
        ended = [rows for one in met for rows in one.before]
        written = [rows for one in met for rows in one.flying]
        turn.before, turn.flying = [self._joined(turn.block.gpu, ended, written)], []
        turn.recent = {}

    # **** What moves ****

    def _data(self, turn: _Turn, op: Operation) -> bool:
        """Write the rows of an operation on data, once the packets that it reads are sent."""
        arrived = [self._packets(turn, op, k) for k in range(len(op.sources))]
        if any(rows is None for rows in arrived):
            return False
        turn.recent = {}
        there = [NOTHING if rows is None else rows for rows in arrived]
        if op.kind in SWITCHED:
            self._switched(turn, op, there[0])
            return True
        sources = [(ref.ranks[0], self._part(op, ref)) for ref in op.sources]
        if op.kind in SUMS:
            total = self._summed(turn, op, there)
            sources, there = [total] * len(op.targets), [NOTHING] * len(op.targets)
        elif len(sources) == 1:
            sources, there = sources * len(op.targets), there * len(op.targets)
        self._copied(turn, op, sources, there)
        return True

    def _packets(self, turn: _Turn, op: Operation, k: int) -> Rows | None:
        """The rows that bring the packets of a source; none if some are still to be sent."""
        if k < PACKETS_IN.get(op.kind, len(op.sources)):
            return NOTHING
        span, flags = self._part(op, op.sources[k]), self.flags.get(turn.block.gpu)
        ranges = zip(span.offset.tolist(), span.count.tolist(), strict=True)
        found = [
            row
            for at, count in ranges
            for _, _, row in (flags.read(at, at + count) if flags else [(0, 0, -1)])
        ]
        return None if -1 in found else np.unique(np.array(found, np.int32))

    def _part(self, op: Operation, ref: Ref, like: Ref | None = None) -> Span:
        """The part of some chunks that an operation is about; `like` those that come into them."""
        holds = None if like is None else self.span(like.ranks[0], like.place, like.count).count
        whole, *_ = (self.span(rank, ref.place, ref.count, holds) for rank in ref.ranks)
        number, parts = op.part
        low, high = edges(ref.count * self.unit, parts)[number : number + 2].tolist()
        if op.window:
            low, high = low + op.window[0], min(high, low + op.window[1])
        at = np.arange(ref.count) * self.unit
        first, last = (np.clip(end - at, 0, whole.count) for end in (low, high))
        some = last > first
        return Span(whole.buffer, (whole.offset + first)[some], (last - first)[some])

    def _copied(
        self, turn: _Turn, op: Operation, sources: list[tuple[int, Span]], there: list[Rows]
    ) -> None:
        """Copies to the targets, all at once, and what follows on them: what is put here is ordered
        behind, what is fetched has been asked for."""
        first = int(op.kind in SUMS)
        moved = [
            (sources[k][0], self._moved(turn, op, k, sources[k], there[k]))
            for k in range(first, len(op.targets))
        ]
        ports = op.ways if op.ways and op.ways[0][0] == PORT else ()
        if moved and not ports:
            made, fetched = (
                [rows for rank, rows in moved if (rank == turn.block.gpu) == here]
                for here in (True, False)
            )
            turn.before = (
                [self._joined(turn.block.gpu, made, fetched, ANSWERED)] if fetched else made
            )
        for way in ports if op.kind in ("pws", "pwsf") else ():
            self._signal(turn, replace(op, ways=(way,)))
        if op.kind == "pwsf":
            self._flush(turn, op)

    def _moved(
        self, turn: _Turn, op: Operation, k: int, source: tuple[int, Span], arrived: Rows
    ) -> Rows:
        """A copy to a target, and note of it."""
        (src, span), (dst,), me = source, op.targets[k].ranks, turn.block.gpu
        target = self._part(op, op.targets[k], op.sources[min(k, len(op.sources) - 1)])
        packets = k >= PACKETS_OUT.get(op.kind, len(op.targets))
        port = op.ways[k] if op.ways and op.ways[0][0] == PORT else None
        style = Style(
            LOCAL_COPY if src == dst else TRANSFER, COPY, span.buffer, target.buffer,
            channel=turn.block.number, wire=PACKET_WIRE if packets and src != dst else 1.0,
        )  # fmt: skip
        waits = [*turn.before, self.posted.get(port, NOTHING) if port else NOTHING]
        rows = self.rows(style, src, dst, (span, target, None), waits, arrived)
        if packets:
            self._flag(dst, target, rows)
        elif dst != me:
            turn.flying = [*turn.flying, rows]
        if port:
            self.posted[port] = rows
        turn.recent[port or (MEMORY, me, dst)] = rows
        return rows

    def _flag(self, rank: int, target: Span, rows: Rows) -> None:
        """Note which rows bring packets into scratch memory."""
        ends = zip(target.offset.tolist(), target.count.tolist(), rows.tolist(), strict=True)
        flags = self.flags.setdefault(rank, Segments(-1))
        for at, count, row in ends:
            flags.write([(at, at + count, row)])

    def _summed(self, turn: _Turn, op: Operation, arrived: Sequence[Rows]) -> tuple[int, Span]:
        """Add the sources up in the first target; those of others are fetched all at once, and
        added as they come."""
        me, into, like = turn.block.gpu, op.targets[0], op.sources[0]
        target, waits, fetched = self._part(op, into, like), turn.before, list[Rows]()
        adds: list[tuple[Span, tuple[work.Use, ...], Rows]] = []
        # What lies there already comes first.
        for k in sorted(range(len(arrived)), key=lambda k: op.sources[k] != into):
            ref, span = op.sources[k], self._part(op, op.sources[k], like)
            uses: tuple[work.Use, ...] = ()
            if ref.ranks != (me,):
                to = in_scratch(self.scratch(me, int(span.count.sum())), span.count)
                style = Style(TRANSFER, COPY, span.buffer, SCRATCH, channel=turn.block.number)
                fetched.append(self.rows(style, ref.ranks[0], me, (span, to, None), waits))
                span, uses = to, IN_PASSING
            adds.append((span, uses, arrived[k]))
        turn.before = [self._joined(me, waits, fetched, ANSWERED)] if fetched else waits
        for k, (span, uses, there) in enumerate(adds[into in op.sources :]):
            first = k == 0 and into not in op.sources
            style = Style(
                LOCAL_COPY, COPY if first else work.REDUCE, span.buffer, target.buffer,
                uses=IN_PASSING if first and len(adds) > 1 else uses,
            )  # fmt: skip
            turn.before = [self.rows(style, me, me, (span, target, None), turn.before, there)]
        return me, target

    def _switched(self, turn: _Turn, op: Operation, arrived: Rows) -> None:
        """Give what lies here, or what the switch adds up, to all of a group by the switch."""
        me, target = turn.block.gpu, self._part(op, op.targets[0], op.sources[0])
        source, waits = self._part(op, op.sources[0]), turn.before
        # What a GPU would write over itself, its own packets, stays as it is.
        there = (op.sources[0].ranks, op.sources[0].place) == ((me,), op.targets[0].place)
        members = [one for one in op.targets[0].ranks if not there or one != me]
        channel, group = turn.block.number, self.builder.group(members)
        if op.kind == "glres":
            given = self.builder.group(op.sources[0].ranks)
            total = in_scratch(self.scratch(me, int(source.count.sum())), source.count)
            style = Style(work.SWITCH_REDUCE, COPY, source.buffer, SCRATCH, channel=channel)
            rows = self.rows(style, given, me, (source, total, None), waits)
            source, waits = total, [self._joined(me, waits, [rows], ANSWERED)]
        packets = op.kind in PACKETS_OUT
        wire = PACKET_WIRE if packets else 1.0
        ends = source.buffer, target.buffer
        style = Style(work.MULTICAST, COPY, *ends, channel=channel, wire=wire)
        rows = self.rows(style, me, group, (source, target, None), waits, arrived)
        turn.before, turn.flying = [rows], [*turn.flying, rows]
        for rank in members if packets else ():
            self._flag(rank, target, rows)


SYNC: dict[str, Callable[[_Blocks, _Turn, Operation], bool]] = {
    "nop": lambda writer, turn, op: True,
    "signal": _Blocks._signal,
    "rlxsignal": _Blocks._signal,
    "wait": _Blocks._wait,
    "rlxwait": _Blocks._wait,
    "flush": _Blocks._flush,
    "barrier": _Blocks._barrier,
    "sem_acquire": _Blocks._acquire,
    "sem_release": _Blocks._release,
}


# **** Written ****
# What is sent is put where it belongs, or, where it is added up or must wait for something there,
# into scratch memory of the receiver, who takes it from there. Blocks of a GPU wait for each other
# by semaphores, one for each pair: the k-th acquire takes the k-th release.

Json = dict[str, Any]
LETTERS = {number: letter for letter, number in BUFFERS.items()}
SIGNAL = {"channel_ids": [0], "channel_type": MEMORY}


class PlanSheet(Sheet):
    """A plan while it is written, and the operations of its longest thread block."""

    tool, names = "MSCCL++", {ours: ours.replace("_", "") for ours in KINDS.values()}
    longest = 0

    def text(self) -> str:
        """The whole file."""
        c = self.collective
        self.needed: dict[tuple[Key, Key], list[int]] = {}  # by two blocks: steps waited for
        self.staged: dict[int, int] = {}  # by row the chunk of scratch memory that it goes through
        for key, steps in self.blocks.items():
            for other, at in sorted({one for step in steps for one in step.after}):
                self.needed.setdefault((other, key), []).append(at)
            for step in steps:
                if step.kind == "rrc" or (step.kind == "r" and not self._is_direct(step.row)):
                    self.staged[step.row] = self.scratch[key[0]]
                    self.scratch[key[0]] += step.count
        gpus = [self._gpu(rank) for rank in range(c.ranks)]
        plan = {
            "name": self.name, "collective": self.names[c.name], "protocol": "Simple",
            "inplace": c.in_place, "reuse_resources": False, "gpus": gpus,
            "num_threads_per_block": 1024, "use_double_scratch_buffer": False,
            "buffer_alignment": 16, "min_message_size": 0, "max_message_size": 2**64 - 1,
        }  # fmt: skip
        return json.dumps(plan, indent=1) + "\n"

    def _is_direct(self, row: int) -> bool:
        """Whether all that a row waits for is known where it comes from."""
        src, ends = int(self.schedule.src[row]), (self.schedule.src, self.schedule.dst)
        return all(
            src == int(ends[1][one]) or (src == int(ends[0][one]) and not arrived)
            for one, arrived in self.waits(row)
        )

    def _gpu(self, rank: int) -> Json:
        mine = [key for key in self.blocks if key[0] == rank]
        pairs = [pair for pair in self.needed if pair[0][0] == rank]
        peers = sorted({key[2:] for key in mine if key[1] != "l"})
        places = {key: sorted({self._landing(one)[0] for one in self.blocks[key]}) for key in mine}
        remote = sorted({(key[2], at) for key in mine if key[1] == "s" for at in places[key]})
        blocks = []
        for key in mine:
            ids = [peers.index(key[2:])] if key[1] != "l" else []
            refs = [remote.index((key[2], at)) for at in places[key] if key[1] == "s"]
            theirs = {"access_channel_type": MEMORY, "remote_buffer_ids": refs}
            blocks.append({
                "id": self.numbers[key], "ops": self._ops(key, pairs, places[key]),
                "channels": [{"channel_type": MEMORY, "channel_ids": ids}] * len(ids),
                "remote_buffer_refs": [theirs] * bool(refs),
            })  # fmt: skip
        sizes = self.chunks_of(rank)
        memory = [{"rank": one, "type": LETTERS[at]} for one, at in remote]
        return {
            "id": rank, "input_chunks": sizes[0], "output_chunks": sizes[1],
            "scratch_chunks": sizes[2], "threadblocks": blocks,
            "channels": [{"channel_type": MEMORY, "connected_to": [one for one, _ in peers]}],
            "remote_buffers": [{**one, "access_channel_types": [MEMORY]} for one in memory],
            "semaphores": [{"init_value": 0}] * len(pairs),
        }  # fmt: skip

    def _landing(self, step: SheetStep) -> Place:
        """Where at the receiver a row's data comes."""
        return (SCRATCH, self.staged[step.row]) if step.row in self.staged else step.target

    def _ops(self, key: Key, pairs: list[tuple[Key, Key]], places: list[int]) -> list[Json]:
        """The operations of a block, with what synchronises its threads (`nop`) around signals."""
        ops, had, nop = list[Json](), Counter[Key](), {"name": "nop"}
        told = {k: self.needed[pair] for k, pair in enumerate(pairs) if pair[0] == key}
        for number, step in enumerate(self.blocks[key]):
            for other, at in step.after:
                acquire = {"name": "sem_acquire", "semaphore_ids": [pairs.index((other, key))]}
                wanted = bisect_right(self.needed[other, key], at)
                ops += [acquire] * (wanted - had[other])
                had[other] = max(wanted, had[other])
            ops += [{"name": "wait", **SIGNAL}] * (key[1] == "r")
            ops += [nop, *self._work(step, places), nop]
            ops += [{"name": "signal", **SIGNAL}] * (key[1] == "s")
            ids = [k for k, steps in told.items() if number in steps]
            ops += [{"name": "sem_release", "semaphore_ids": ids}] * bool(ids)
        shown = [op for last, op in zip([{}, *ops], ops, strict=False) if op != nop or last != nop]
        self.longest = max(self.longest, len(shown))
        return shown

    def _work(self, step: SheetStep, places: list[int]) -> list[Json]:
        """What a GPU does with what it has, or with what has come."""
        kind, landing, count = step.kind, self._landing(step), step.count
        target = {"dst_buff": [_chunk(step.target, count)]}
        if kind == "s":
            there = {"buffer_id": places.index(landing[0]), "index": landing[1], "size": count}
            ends = {"src_buff": [_chunk(step.source, count)], "dst_buff": [there]}
            return [{"name": "put", **ends, "channel_type": MEMORY}]
        source = landing if kind in ("r", "rrc") else step.source
        if kind in ("r", "cpy"):
            copy = {"name": "copy", "src_buff": [_chunk(source, count)], **target}
            return [copy] * (source != step.target)
        first = step.source if kind == "rrc" else step.target
        added = [_chunk(first, count), _chunk(source, count)]
        return [{"name": "re", "src_buff": added, **target, "reduce_op": "sum"}]


def _chunk(place: Place, count: int) -> Json:
    return {"type": LETTERS[place[0]], "index": place[1], "size": count}
