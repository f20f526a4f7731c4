"""Algorithms as MSCCL's XML files have them: read into schedules, and written from these.

A file has thread blocks, each with at most one peer to send to and one to receive from. What is
sent waits in a FIFO of the receiver until a step there takes it. A chunk moves as a whole (MSCCL
cuts it into slices, and runs the file again for what its FIFOs do not hold)."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import gcd
from typing import Any, Generic, TypeVar
from xml.etree import ElementTree

import numpy as np
from defusedxml.common import DefusedXmlException
from defusedxml.ElementTree import fromstring
from numpy.typing import NDArray

from netsim.base.values import dataclass
from netsim.collectives.collective import DIVIDED, Collective, CollectiveError
from netsim.collectives.writing import edges
from netsim.schedule.builder import Builder
from netsim.schedule.schedule import (
    ARRIVED,
    COPY,
    IN,
    IN_ORDER,
    LOCAL_COPY,
    MARK,
    OUT,
    REDUCE,
    REDUCE_INPUT,
    SCRATCH,
    TRANSFER,
    Schedule,
    Style,
)

NAMES = {"allreduce": "all_reduce", "allgather": "all_gather", "reducescatter": "reduce_scatter",
         "reduce_scatter": "reduce_scatter", "broadcast": "broadcast", "reduce": "reduce",
         "alltoall": "alltoall"}  # fmt: skip
BUFFERS = {"i": IN, "o": OUT, "s": SCRATCH}
WIRE = {"Simple": 1.0, "LL": 2.0, "LL128": 16 / 15}  # bytes on the wire for a byte of data
RECEIVES, SENDS = ("r", "rcs", "rrs", "rrc", "rrcs"), ("s", "rcs", "rrs", "rrcs")
TYPES = (*dict.fromkeys(RECEIVES + SENDS), "cpy", "re", "nop")
SLOTS = 8  # messages that a connection's FIFO holds (NCCL_STEPS)
MOST_CHUNKS = 1024
JOINED = ("all_reduce", "all_gather", "broadcast", "alltoall")  # what one buffer can stand for

Place = tuple[int, int]  # a buffer, and a chunk of it
Way = tuple[int, int, int]  # sender, receiver and channel
Key = tuple[int, str, int, int]  # of a block that is written: GPU, what it does, peer and channel
Rows = NDArray[np.int32]
NOTHING: Rows = np.zeros(0, np.int32)


@dataclass(frozen=True, slots=True)
class BlockStep:
    """What a thread block does at a time; `after` is a block of its GPU and a step of that."""

    kind: str
    source: Place
    target: Place
    count: int
    after: tuple[int, int] | None


@dataclass(frozen=True, slots=True)
class Block:
    """A thread block: its GPU and its steps."""

    gpu: int
    number: int
    steps: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Connected(Block):
    """A thread block of MSCCL's: also its peers (-1: none) and its channel."""

    send: int
    receive: int
    channel: int


@dataclass(frozen=True, slots=True)
class File:
    """What a file says."""

    name: str
    collective: str
    ranks: int
    chunks: int
    protocol: str
    in_place: bool
    out_of_place: bool
    scratch: tuple[int, ...]
    blocks: tuple[Any, ...]  # Block


def read(name: str, text: str) -> File:
    """A file's algorithm; a mistake is told with the GPU, block and step where it is."""
    try:
        root = fromstring(text)
        if root.tag != "algo" or root.get("coll") not in NAMES:
            got = f"<{root.tag} coll={root.get('coll')!r}>"
            raise ValueError(f"expected <algo coll=…> of one of {', '.join(NAMES)}, got {got}")
        gpus = root.findall("gpu")
        if sorted(_number(gpu, "id") for gpu in gpus) != list(range(_number(root, "ngpus"))):
            raise ValueError(f"expected a gpu for each of 0..{_number(root, 'ngpus') - 1}")
        gpus.sort(key=lambda gpu: _number(gpu, "id"))
        file = File(
            name,
            NAMES[root.get("coll", "")],
            len(gpus),
            _number(root, "nchunksperloop"),
            root.get("proto", "Simple"),
            root.get("inplace") == "1",
            root.get("outofplace", "1") == "1",
            tuple(int(gpu.get("s_chunks", "0")) for gpu in gpus),
            tuple(_block(gpu, tb) for gpu in gpus for tb in gpu.findall("tb")),
        )
        for wrong in _mistakes(file):
            raise ValueError(wrong)
    except (ElementTree.ParseError, DefusedXmlException, ValueError) as error:
        raise CollectiveError("algorithm", f"{name}: {error}") from None
    return file


def _mistakes(file: File) -> Iterator[str]:
    """What cannot be in a file."""
    if file.protocol not in WIRE or file.chunks < 1:
        yield (
            f"expected a proto of {', '.join(WIRE)} and nchunksperloop from 1 up, "
            f"got {file.protocol!r} and {file.chunks}"
        )
    ways: set[tuple[str, Way]] = set()
    for block in file.blocks:
        where = f"gpu {block.gpu}, tb {block.number}"
        for name, peer, kinds in (("send", block.send, SENDS), ("recv", block.receive, RECEIVES)):
            used = any(step.kind in kinds for step in block.steps)
            if not -1 <= peer < file.ranks or peer == block.gpu or (used and peer < 0):
                yield f"{where}: {name}: expected another GPU, got {peer}"
            way = name, (block.gpu, peer, block.channel)
            if used and way in ways:
                yield f"{where}: another block has {name} {peer} on channel {block.channel}"
            ways |= {way} if used else set()
        for number, step in enumerate(block.steps):
            if step.kind != "nop" and min(step.source[1], step.target[1], step.count - 1) < 0:
                yield f"{where}, step {number}: expected chunks from 0 up, at least one"


def _number(node: ElementTree.Element, key: str) -> int:
    given = node.get(key, "")
    if not given.lstrip("-").isdigit():
        raise ValueError(f"<{node.tag} {key}=…>: expected a whole number, got {given!r}")
    return int(given)


def _block(gpu: ElementTree.Element, tb: ElementTree.Element) -> Connected:
    rank, number = _number(gpu, "id"), _number(tb, "id")
    steps = []
    for step in tb.findall("step"):
        where, kind = f"gpu {rank}, tb {number}, step {step.get('s')}", step.get("type", "")
        ends = step.get("srcbuf", "i"), step.get("dstbuf", "o")
        if kind not in TYPES or set(ends) - set(BUFFERS):
            expected = f"a type of {', '.join(TYPES)} and buffers i, o, s"
            raise ValueError(f"{where}: expected {expected}, got {kind!r}, {ends}")
        source, target = (
            (BUFFERS[end], _number(step, off))
            for end, off in zip(ends, ("srcoff", "dstoff"), strict=True)
        )
        depends = _number(step, "depid"), _number(step, "deps")
        after = None if depends[0] < 0 else depends
        steps.append(BlockStep(kind, source, target, _number(step, "cnt"), after))
    peers = _number(tb, "send"), _number(tb, "recv")
    return Connected(rank, number, tuple(steps), *peers, _number(tb, "chan"))


def algorithm(name: str, text: str) -> Callable[[Collective], Schedule]:
    """A file's algorithm as a function."""
    return FromFile(read(name, text), _Fifos)


# **** What files of thread blocks have in common ****


@dataclass(frozen=True, slots=True)
class FromFile:
    """The algorithm of a file, and what writes its rows."""

    file: File
    writer: "type[BlockWriter[Any]]"

    def __call__(self, collective: Collective) -> Schedule:
        """Its schedule for a collective."""
        return self._written(collective).all()

    def place_of(self, row: int, collective: Collective) -> str:
        """The step of the file that wrote a row; "" for a copy made before all steps."""
        writer = self._written(collective)
        writer.all()
        found = [(block, at) for first, block, at in writer.places if first <= row]
        return writer.where(*found[-1]) if found else ""

    def _written(self, collective: Collective) -> "BlockWriter[Any]":
        file = self.file
        if (file.collective, file.ranks) != (collective.name, collective.ranks):
            got = f"{collective.name} on {collective.ranks}"
            message = f"{file.name} is {file.collective} on {file.ranks} GPUs, this is {got}"
            raise CollectiveError("algorithm", message)
        return self.writer(file, collective)


@dataclass(frozen=True, slots=True)
class Span:
    """Parts of a rank's buffer, in elements."""

    buffer: int
    offset: NDArray[np.int64]
    count: NDArray[np.int64]


def in_scratch(start: int, count: NDArray[np.int64]) -> Span:
    """Parts one behind the other in scratch memory."""
    return Span(SCRATCH, start + np.cumsum(count) - count, count)


@dataclass
class Turn:
    """How far a block is: the step, and the rows before it."""

    block: Any  # Block
    before: list[Rows]
    at: int = 0


Turning = TypeVar("Turning", bound=Turn)


class BlockWriter(Generic[Turning]):
    """A file while its rows are written: blocks go on in turn until none can."""

    words = "tb", "step"  # what the file calls blocks, and what they do
    turn: type[Turning]

    def __init__(self, file: File, collective: Collective) -> None:
        self.file, self.collective = file, collective
        self.blocks: Sequence[Any] = file.blocks
        self.builder = Builder(collective.ranks, collective.element_bytes, (collective.name,))
        blocks = collective.ranks if collective.name in DIVIDED else 1
        self.each = file.chunks // blocks  # chunks of a block
        if self.each * blocks != file.chunks:
            raise self.error(f"expected a multiple of {blocks} chunks a loop, got {file.chunks}")
        self.edges = edges(collective.count, self.each)  # of the chunks of a block, in elements
        self.unit = int(np.diff(self.edges).max())  # elements of the largest chunk
        # A file for calls in place has one buffer, one for others may not find its input changed.
        self.joined = not file.out_of_place and not collective.in_place
        self.copied = not file.in_place and collective.in_place
        if self.joined and collective.name not in JOINED:
            raise self.error(f"is for {collective.name} in place only")
        self.used = [n * self.unit for n in file.scratch]  # of each rank's scratch memory
        self.copy_at = list(self.used)
        self.places: list[tuple[int, Block, int]] = []  # from which row on which step wrote them
        self.held: dict[tuple[int, int], int] = {}  # elements in chunks of scratch memory

    def error(self, message: str) -> CollectiveError:
        """An error that names the file."""
        return CollectiveError("algorithm", f"{self.file.name}: {message}")

    def all(self) -> Schedule:
        """Write everything; ranks are done when their blocks are."""
        first = [self._own(rank) for rank in range(self.collective.ranks)]
        turns = [self.turn(block, first[block.gpu]) for block in self.blocks]
        waiting = [turn for turn in turns if turn.block.steps]
        while waiting:
            if not sum(self._went(turn) for turn in waiting):
                where = self.where(waiting[0].block, waiting[0].at)
                raise self.error(f"{where} waits for what never comes")
            waiting = [turn for turn in waiting if turn.at < len(turn.block.steps)]
        for rank, own in enumerate(first):
            last = [rows for turn in turns if turn.block.gpu == rank for rows in turn.before]
            waits = np.concatenate([NOTHING, *own, *last])
            self.builder.marks(rank, joins=([0, len(waits)], waits, IN_ORDER))
        return self.builder.finish()

    def _went(self, turn: Turning) -> bool:
        """Write the rows of a block's next step, and note where; whether that goes already."""
        rows, at = len(self.builder), turn.at
        gone = self.goes(turn)
        self.places += [(rows, turn.block, at)] * (len(self.builder) > rows)
        return gone

    def goes(self, turn: Turning) -> bool:
        """Write the rows of a block's next step; whether that goes already."""
        raise NotImplementedError

    def where(self, block: Block, at: int) -> str:
        """A step of a block, in words."""
        name, step = self.words
        return f"gpu {block.gpu}, {name} {block.number}, {step} {at}"

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

    def scratch(self, rank: int, count: int) -> int:
        """So many elements of scratch memory of a rank that nobody has yet."""
        self.used[rank] += count
        return self.used[rank] - count

    def span(
        self, rank: int, place: Place, count: int, holds: NDArray[np.int64] | None = None
    ) -> Span:
        """Chunks of a buffer; `holds` says how much comes into chunks of scratch memory."""
        buffer, first = place
        chunks = np.arange(first, first + count)
        if buffer == SCRATCH:
            if holds is None:
                holds = np.array([self.held.get((rank, c), self.unit) for c in chunks.tolist()])
            self.held.update(zip([(rank, c) for c in chunks.tolist()], holds.tolist(), strict=True))
            return Span(SCRATCH, chunks * self.unit, holds)
        block, within = np.divmod(chunks, self.each)
        sizes = np.diff(self.edges)[within]
        offset = block * self.collective.count + self.edges[within]
        if buffer == IN and self.joined:
            buffer, offset = OUT, offset + self._home(rank)
        elif buffer == IN and self.copied:
            buffer, offset = SCRATCH, offset + self.copy_at[rank]
        return Span(buffer, offset, sizes)

    def rows(
        self,
        style: Style,
        src: int,
        dst: int,
        spans: tuple[Span, Span, Span | None],
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
        n = len(piece)
        joins = np.arange(n + 1) * len(waits), np.tile(waits, n), np.tile(lags, n)
        return self.builder.rows(style, src, dst, piece, joins=joins)


@dataclass
class _Turn(Turn):
    """A turn of a block of MSCCL's, and what of its step is received already."""

    received: tuple[Rows, Span] | None = None


class _Fifos(BlockWriter[_Turn]):
    """A file of MSCCL's: what is sent waits in a FIFO of the receiver."""

    turn = _Turn

    def __init__(self, file: File, collective: Collective) -> None:
        super().__init__(file, collective)
        self.fifos: dict[Way, tuple[int, int]] = {}  # where they are, and what a slot of them takes
        self.sent: dict[Way, list[tuple[Rows, Span]]] = {}
        self.taken: dict[Way, list[Rows]] = {}
        self.done: dict[tuple[int, int, int], list[Rows]] = {}  # by GPU, block and step

    def goes(self, turn: _Turn) -> bool:
        """Write the rows of a block's next step; whether that goes already."""
        block, step = turn.block, turn.block.steps[turn.at]
        there = () if step.after is None else self.done.get((block.gpu, *step.after))
        if there is None:
            return False
        waits = [*turn.before, *there]
        made: list[Rows] = []
        span = None
        if step.kind in RECEIVES:
            turn.received = turn.received or self._take(block, step, waits)
            if turn.received is None:
                return False
            made, span = [turn.received[0]], turn.received[1]
        elif step.kind in ("cpy", "re"):
            made = [self._local(block.gpu, step, waits)]
        if step.kind in SENDS:
            sent = self._send(block, step, span, [*waits, *made])
            if sent is None:
                return False
            made.append(sent)
        turn.before = self.done[block.gpu, block.number, turn.at] = made or waits
        turn.at, turn.received = turn.at + 1, None
        return True

    def _send(
        self, block: Connected, step: BlockStep, span: Span | None, waits: Sequence[Rows]
    ) -> Rows | None:
        """Send what was just received, or what lies in a buffer, into the FIFO of the peer."""
        way = (block.gpu, block.send, block.channel)
        sent, taken = self.sent.setdefault(way, []), self.taken.setdefault(way, [])
        if len(taken) <= len(sent) - SLOTS:
            return None
        if way not in self.fifos:
            largest = max(one.count for one in block.steps) * self.unit
            self.fifos[way] = self.scratch(block.send, SLOTS * largest), largest
        source = span or self.span(block.gpu, step.source, step.count)
        start, room = self.fifos[way]
        target = in_scratch(start + len(sent) % SLOTS * room, source.count)
        free = taken[len(sent) - SLOTS : len(sent) - SLOTS + 1] if len(sent) >= SLOTS else []
        tags = {"channel": block.channel, "wire": WIRE[self.file.protocol]}
        style = Style(TRANSFER, COPY, source.buffer, SCRATCH, **tags)  # type: ignore[arg-type]
        rows = self.rows(style, *way[:2], (source, target, None), [*waits, *free])
        sent.append((rows, target))
        return rows

    def _take(
        self, block: Connected, step: BlockStep, waits: Sequence[Rows]
    ) -> tuple[Rows, Span] | None:
        """Take a message out of a FIFO, adding to it what a reduction adds; where it then lies."""
        way = (block.receive, block.gpu, block.channel)
        sent, taken = self.sent.get(way, ()), self.taken.setdefault(way, [])
        if len(sent) <= len(taken):
            return None
        rows, message = sent[len(taken)]
        if len(message.count) != step.count:
            where = f"gpu {block.gpu}, tb {block.number} receives {step.count} chunks"
            raise self.error(f"{where}, but gpu {block.receive} sends {len(message.count)}")
        if step.kind == "rrs":
            at = self.scratch(block.gpu, int(message.count.sum()))
            target = in_scratch(at, message.count)
        else:
            target = self.span(block.gpu, step.target, step.count, message.count)
        op, own, before = COPY, None, list(waits)
        if step.kind in ("rrs", "rrc", "rrcs"):
            own = self.span(block.gpu, step.source, step.count, message.count)
            op = REDUCE_INPUT if own.buffer == IN else REDUCE
            if op == REDUCE and (step.kind == "rrs" or step.source != step.target):
                style = Style(LOCAL_COPY, COPY, own.buffer, target.buffer)
                before.append(self.rows(style, block.gpu, block.gpu, (own, target, None), waits))
        style = Style(LOCAL_COPY, op, SCRATCH, target.buffer)
        spans = (message, target, own if op == REDUCE_INPUT else None)
        taken.append(self.rows(style, block.gpu, block.gpu, spans, before, arrived=rows))
        return taken[-1], target

    def _local(self, rank: int, step: BlockStep, waits: Sequence[Rows]) -> Rows:
        source = self.span(rank, step.source, step.count)
        target = self.span(rank, step.target, step.count, source.count)
        style = Style(
            LOCAL_COPY, REDUCE if step.kind == "re" else COPY, source.buffer, target.buffer
        )
        return self.rows(style, rank, rank, (source, target, None), waits)


# **** Written ****
# A block for everything that a GPU sends to a peer on a channel, one for what it receives, and one
# for what it copies. In MSCCL's files a step waits for one other; more of them stand before it,
# each with a `nop`.


@dataclass(frozen=True, slots=True)
class SheetStep:
    """A step that is written: the row that it belongs to, and those of other blocks before it."""

    row: int
    kind: str
    source: Place
    target: Place
    count: int
    after: tuple[tuple[Key, int], ...]


class Sheet:
    """The blocks and steps of a schedule, while they are written: in chunks of the largest size
    of which all its pieces are made."""

    tool: str
    names: Mapping[str, str]  # of collectives, by ours

    def __init__(self, name: str, schedule: Schedule, collective: Collective) -> None:
        self.name, self.schedule, self.collective = name, schedule, collective
        if collective.name not in self.names:
            raise CollectiveError("collective", f"{self.tool} has no {collective.name}")
        kinds = set(schedule.kind.tolist())
        if schedule.fold is not None or kinds - {TRANSFER, LOCAL_COPY, MARK}:
            message = f"{self.tool} has sends and copies only, no multicast and no sums in switches"
            raise CollectiveError("algorithm", message)
        pieces = schedule.pieces
        self.moves = (schedule.kind != MARK) & (schedule.count > 0)  # by row
        used = np.unique(schedule.piece[self.moves])
        table = pieces.src_offset, pieces.dst_offset, pieces.own_offset, pieces.count
        parts = np.gcd.reduce(np.concatenate([column[used] for column in table] + [[0]]))
        self.chunk = gcd(int(parts), collective.count) or 1
        if collective.count // self.chunk > MOST_CHUNKS:
            message = f"its pieces are of {self.chunk} elements, more than {MOST_CHUNKS} chunks"
            raise CollectiveError(
                "algorithm", f"{message}: a size that more ranks divide has fewer"
            )
        self.blocks: dict[Key, list[SheetStep]] = {}
        self.steps: dict[tuple[int, int], tuple[Key, int]] = {}  # by row and GPU
        self.numbers: dict[Key, int] = {}
        self.scratch = [0] * schedule.ranks
        channels = sorted({style.channel for style in schedule.styles})
        self.channel = {number: place for place, number in enumerate(channels)}
        for row in np.flatnonzero(self.moves).tolist():
            self._add(row)

    def _add(self, row: int) -> None:
        """The steps of a row: one on each side of a transfer, one or two of a copy."""
        s, piece = self.schedule, int(self.schedule.piece[row])
        style, src, dst = s.styles[int(s.style[row])], int(s.src[row]), int(s.dst[row])
        source = self._place(src, style.src_buffer, int(s.pieces.src_offset[piece]), piece)
        target = self._place(dst, style.dst_buffer, int(s.pieces.dst_offset[piece]), piece)
        own = self._place(dst, IN, int(s.pieces.own_offset[piece]), piece)
        count, channel = int(s.pieces.count[piece]) // self.chunk, self.channel[style.channel]
        if style.kind == TRANSFER:
            self._step((src, "s", dst, channel), row, "s", source, target, count)
            kind = "r" if style.op == COPY else "rrc"
            first = own if style.op == REDUCE_INPUT else target
            self._step((dst, "r", src, channel), row, kind, first, target, count)
            return
        block = (src, "l", -1, 0)
        if style.op == REDUCE_INPUT and own != target:
            self._step(block, row, "cpy", own, target, count)
        kind = "cpy" if style.op == COPY else "re"
        self._step(block, row, kind, source, target, count)

    def _place(self, rank: int, buffer: int, offset: int, piece: int) -> Place:
        chunk = offset // self.chunk
        if buffer == SCRATCH:
            last = chunk + int(self.schedule.pieces.count[piece]) // self.chunk
            self.scratch[rank] = max(self.scratch[rank], last)
        return buffer, chunk

    def _step(
        self, key: Key, row: int, kind: str, source: Place, target: Place, count: int
    ) -> None:
        """Add a step to a block, behind those of other blocks that its row waits for here."""
        rank, block = key[0], self.blocks.setdefault(key, [])
        self.numbers.setdefault(key, sum(other[0] == rank for other in self.numbers))
        waits = {self.steps[one, rank] for one, _ in self.waits(row) if (one, rank) in self.steps}
        others = tuple(sorted(one for one in waits if one[0] != key))
        block.append(SheetStep(row, kind, source, target, count, others))
        self.steps[row, rank] = key, len(block) - 1

    def waits(self, row: int) -> list[tuple[int, bool]]:
        """The rows that move data which one waits for, and whether until they arrive; marks hand
        on what they wait for."""
        found: list[tuple[int, bool]] = []
        for one, lag in self.schedule.dependencies(row):
            found += [(one, bool(lag.arrival))] if self.moves[one] else self.waits(one)
        return found

    @property
    def total(self) -> int:
        """The chunks of the largest buffer that a call gives."""
        c = self.collective
        most = max(max(c.input_count(r), c.output_count(r)) for r in range(c.ranks))
        return most // self.chunk or 1

    def chunks_of(self, rank: int) -> tuple[int, int, int]:
        """The chunks of input, output and scratch memory of a rank."""
        c = self.collective
        return (
            c.input_count(rank) // self.chunk,
            c.output_count(rank) // self.chunk,
            self.scratch[rank],
        )


class AlgoSheet(Sheet):
    """The same in MSCCL's XML."""

    tool, names = "MSCCL", {ours: theirs for theirs, ours in NAMES.items()}

    def text(self) -> str:
        """The whole file."""
        c = self.collective
        root = ElementTree.Element("algo", {
            "name": self.name, "proto": "Simple", "nchannels": str(len(self.channel)),
            "nchunksperloop": str(self.total), "ngpus": str(c.ranks), "coll": self.names[c.name],
            "inplace": str(int(c.in_place)), "outofplace": str(int(not c.in_place)),
            "minBytes": "0", "maxBytes": str(2**40),
        })  # fmt: skip
        self.lines = {  # by block and step: where it stands in the file, behind its nops
            (key, k): line
            for key, steps in self.blocks.items()
            for k, line in enumerate(np.cumsum([max(1, len(one.after)) for one in steps]) - 1)
        }
        self.needed = {
            one for steps in self.blocks.values() for step in steps for one in step.after
        }
        for rank in range(c.ranks):
            sizes = zip(("i_chunks", "o_chunks", "s_chunks"), self.chunks_of(rank), strict=True)
            about = {name: str(size) for name, size in sizes}
            gpu = ElementTree.SubElement(root, "gpu", {"id": str(rank), **about})
            for key in (key for key in self.blocks if key[0] == rank):
                self._block(gpu, key)
        ElementTree.indent(root)
        return ElementTree.tostring(root, encoding="unicode") + "\n"

    def _block(self, gpu: ElementTree.Element, key: Key) -> None:
        _, way, peer, channel = key
        ends = {"send": str(peer if way == "s" else -1), "recv": str(peer if way == "r" else -1)}
        about = {"id": str(self.numbers[key]), **ends, "chan": str(channel)}
        block = ElementTree.SubElement(gpu, "tb", about)
        names = {number: name for name, number in BUFFERS.items()}
        for number, step in enumerate(self.blocks[key]):
            depends = [(self.numbers[one[0]], self.lines[one]) for one in step.after] or [(-1, -1)]
            target = step.source if step.kind == "s" else step.target
            for k, (tb, at) in enumerate(depends, 1 - len(depends)):
                found = {
                    "s": self.lines[key, number] + k, "type": "nop" if k else step.kind,
                    "srcbuf": names[step.source[0]], "srcoff": step.source[1],
                    "dstbuf": names[target[0]], "dstoff": target[1],
                    "cnt": 0 if k else step.count, "depid": tb, "deps": at,
                    "hasdep": int(not k and (key, number) in self.needed),
                }  # fmt: skip
                ElementTree.SubElement(block, "step", {k: str(v) for k, v in found.items()})
