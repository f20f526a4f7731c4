"""Read algorithms from files of MSCCL (XML) and MSCCL++ (JSON execution plans), and write schedules
to such files.
"""

import json
from bisect import bisect_right
from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from math import gcd
from typing import Annotated, Any, Literal
from xml.etree import ElementTree

import numpy as np
import pydantic
from defusedxml.common import DefusedXmlException
from defusedxml.ElementTree import fromstring
from pydantic import AliasChoices, Field

from netsim.base.values import dataclass
from netsim.collectives import plans
from netsim.collectives.collective import Collective, CollectiveError
from netsim.collectives.plans import (
    OPERATIONS,
    STEPS,
    Block,
    BlockPlan,
    Connection,
    Place,
    PlanOperation,
    Ref,
)
from netsim.collectives.writing import MOST_PARTS
from netsim.schedule.schedule import (
    COPY,
    IN,
    LOCAL_COPY,
    MARK,
    OUT,
    REDUCE_INPUT,
    SCRATCH,
    TRANSFER,
    Schedule,
)
from netsim.yamlio.models import Count, ListOf
from netsim.yamlio.read import parse_source
from netsim.yamlio.validate import validate

# Names of collectives in MSCCL's files. RCCL (src/misc/msccl/msccl_parser.cc) and MSCCL's scheduler
# read reducescatter; msccl-tools also writes reduce_scatter.
NAMES = {"allreduce": "all_reduce", "allgather": "all_gather", "reducescatter": "reduce_scatter",
         "reduce_scatter": "reduce_scatter", "broadcast": "broadcast", "reduce": "reduce",
         "alltoall": "alltoall"}  # fmt: skip
MSCCL_NAMES = {ours: theirs for theirs, ours in NAMES.items() if "_" not in theirs}
KINDS = {**NAMES, "sendrecv": "sendrecv"}  # of MSCCL++
BUFFERS = {"i": IN, "o": OUT, "s": SCRATCH}
LETTERS = {number: letter for letter, number in BUFFERS.items()}
MOST_CHUNKS = 1024
MOST_OPERATIONS = 64  # of a thread block, in MSCCL++'s executor
MOST_STEPS = 64  # of a thread block, in RCCL (src/include/msccl/msccl_struct.h)
MOST_BLOCKS = 64  # of a GPU, in RCCL

Key = tuple[int, str, int, int]  # of a block that is written: GPU, what it does, peer and channel
Json = dict[str, Any]
Tables = dict[str, list[Any]]
Letter = Literal["i", "o", "s"]
Kind = Literal["memory", "port", "switch"]
Index = Annotated[int, Field(ge=0, le=MOST_PARTS)]  # of things, or how many


def algorithm(name: str, text: str) -> BlockPlan:
    """The algorithm in the file `name` with the content `text`.

    Errors are CollectiveErrors that name the line, or the GPU, block and step.
    """
    try:
        return (_plan if name.endswith(".json") else _algo)(name, text)
    except (ElementTree.ParseError, DefusedXmlException, ValueError) as error:
        raise CollectiveError("algorithm", f"{name}: {error}") from None


# **** Reading files of MSCCL **** A block has at most one peer to send to and one to receive from.
# MSCCL divides chunks into slices, and executes a file several times for data that exceeds its
# FIFOs; here a chunk is one transfer of any size.


def _algo(name: str, text: str) -> BlockPlan:
    """The algorithm in an XML file of MSCCL."""
    root = fromstring(text)
    if root.tag != "algo" or root.get("coll") not in NAMES:
        got = f"<{root.tag} coll={root.get('coll')!r}>"
        raise ValueError(f"expected <algo coll=…> of one of {', '.join(NAMES)}, got {got}")
    gpus = sorted(root.findall("gpu"), key=lambda gpu: _number(gpu, "id"))
    if [_number(gpu, "id") for gpu in gpus] != list(range(_number(root, "ngpus"))):
        raise ValueError(f"expected a gpu for each of 0..{_number(root, 'ngpus') - 1}")
    protocol = root.get("proto", "Simple")
    chunks = _number(root, "nchunksperloop")
    if protocol not in plans.WIRE or chunks < 1:
        raise ValueError(
            f"expected a proto of {', '.join(plans.WIRE)} and nchunksperloop from 1 up, "
            f"got {protocol!r} and {chunks}"
        )
    used_connections = set[tuple[str, int, int, int]]()
    return BlockPlan(
        name,
        NAMES[root.get("coll", "")],
        len(gpus),
        chunks,
        protocol,
        root.get("inplace") == "1",
        root.get("outofplace", "1") == "1",
        tuple(_number(gpu, "s_chunks", "0") for gpu in gpus),
        tuple(
            _block(gpu, tb, len(gpus), used_connections) for gpu in gpus for tb in gpu.findall("tb")
        ),
        ("tb", "step"),
    )


def _number(node: ElementTree.Element, key: str, default: str = "") -> int:
    """The attribute `key` of an XML element as a whole number."""
    text = node.get(key, default)
    if not text.lstrip("-").isdigit() or int(text) > MOST_PARTS:
        expected = f"expected a whole number up to {MOST_PARTS}"
        raise ValueError(f"<{node.tag} {key}=…>: {expected}, got {text!r}")
    return int(text)


def _block(
    gpu: ElementTree.Element,
    tb: ElementTree.Element,
    ranks: int,
    used_connections: set[tuple[str, int, int, int]],
) -> Block:
    """The thread block of a `tb` element.

    `used_connections` are (direction, GPU, peer, channel) of earlier blocks; those of this block
    are added. Two blocks with the same entry are refused.
    """
    rank = _number(gpu, "id")
    number = _number(tb, "id")
    channel = _number(tb, "chan")
    where = f"gpu {rank}, tb {number}"
    send = _number(tb, "send")
    receive = _number(tb, "recv")
    ends = (rank, send), (receive, rank)
    ops = tuple(_step(where, step, rank, ends, channel) for step in tb.findall("step"))
    for name, peer, used in (
        ("send", send, any("f" in op.does.writes for op in ops)),
        ("recv", receive, any("f" in op.does.reads for op in ops)),
    ):
        if not -1 <= peer < ranks or peer == rank or (used and peer < 0):
            raise ValueError(f"{where}: {name}: expected another GPU, got {peer}")
        connection = name, rank, peer, channel
        if used and connection in used_connections:
            raise ValueError(f"{where}: another block has {name} {peer} on channel {channel}")
        used_connections.update([connection] * used)
    return Block(rank, number, channel, ops)


def _step(
    where: str, step: ElementTree.Element, rank: int, ends: Sequence[tuple[int, int]], channel: int
) -> PlanOperation:
    """The operation of a `step` element.

    Args:
        where: GPU and block, for error messages.
        rank: the GPU.
        ends: (sender, receiver) of the FIFO that the block sends to, and of the one it receives
            from.
        channel: channel of the block.
    """
    where = f"{where}, step {step.get('s')}"
    kind = step.get("type", "")
    buffers = step.get("srcbuf", "i"), step.get("dstbuf", "o")
    if kind not in STEPS or set(buffers) - set(BUFFERS):
        expected = f"a type of {', '.join(STEPS)} and buffers i, o, s"
        raise ValueError(f"{where}: expected {expected}, got {kind!r}, {buffers}")
    count = _number(step, "cnt")
    does = STEPS[kind]
    chunks = _number(step, "srcoff"), _number(step, "dstoff")
    if kind != "nop" and min(*chunks, count - 1) < 0:
        raise ValueError(f"{where}: expected chunks from 0 up, at least one")
    source, target = ((BUFFERS[b], chunk) for b, chunk in zip(buffers, chunks, strict=True))
    places = {"s": source, "d": target, "n": (plans.NEW_SCRATCH, 0)}
    memory = {letter: Ref((rank,), place, count) for letter, place in places.items()}
    written, read = ({**memory, "f": Ref(pair, (plans.FIFO, channel), count)} for pair in ends)
    sources = (read[letter] for letter in does.reads)
    targets = (written[letter] for letter in does.writes)
    after = _number(step, "depid"), _number(step, "deps")
    return PlanOperation(kind, does, tuple(sources), tuple(targets), (after,) * (after[0] >= 0))


# **** Reading plans of MSCCL++ **** The classes have the keys of a file as fields; unknown keys are
# ignored.


class _Keys(pydantic.BaseModel):
    """The base class of the objects in an execution plan of MSCCL++; it ignores unknown keys."""

    model_config = pydantic.ConfigDict(extra="ignore", strict=True, frozen=True)


class _Chunks(_Keys):
    """Chunks that an operation reads or writes: `size` chunks, the first of which has the number
    `index`.

    They are in this GPU's memory (the buffer with the letter `type`), in remote memory
    (`buffer_id`), or behind a switch (`switch_channel_id`).
    """

    type: Letter | None = None
    buffer_id: Index | None = None
    switch_channel_id: Index | None = None
    index: Index
    size: Annotated[Index, Field(ge=1)]


class _Op(_Keys):
    name: Literal[tuple(OPERATIONS)]  # type: ignore[valid-type]
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


class _References(_Keys):
    """The channels, or the remote buffers, of one kind that a thread block uses, as numbers in the
    tables of its GPU.
    """

    kind: Kind = Field(validation_alias=AliasChoices("channel_type", "access_channel_type"))
    ids: ListOf[Index] = Field(validation_alias=AliasChoices("channel_ids", "remote_buffer_ids"))


class _Threads(_Keys):
    id: Index
    ops: ListOf[_Op]
    channels: ListOf[_References] = ()
    remote_buffer_refs: ListOf[_References] = ()


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


def _plan(name: str, text: str) -> BlockPlan:
    """The algorithm in a JSON execution plan of MSCCL++."""
    try:
        plan = _Plan.model_validate_json(text)
    except pydantic.ValidationError:
        plan = validate(_Plan, parse_source(text, name))  # slower, but its errors name lines
    if [gpu.id for gpu in plan.gpus] != list(range(len(plan.gpus))):
        raise ValueError(f"gpus: expected ids 0..{len(plan.gpus) - 1} in order")
    return BlockPlan(
        name,
        KINDS[plan.collective],
        len(plan.gpus),
        max(max(gpu.input_chunks, gpu.output_chunks) for gpu in plan.gpus) or 1,
        plan.protocol,
        plan.inplace,
        not plan.inplace,
        tuple(gpu.scratch_chunks for gpu in plan.gpus),
        tuple(block for gpu in plan.gpus for block in _Reader(gpu, len(plan.gpus)).blocks()),
        ("threadblock", "op"),
    )


class _Reader:
    """Reads the thread blocks of one GPU, whose operations refer to its channels, remote buffers
    and semaphores by number.
    """

    def __init__(self, gpu: _Gpu, ranks: int) -> None:
        self.gpu = gpu
        self.ranks = range(ranks)
        self.where = f"gpu {gpu.id}"
        # By kind of channel, its entries. Memory and port: (peer, number of this channel among
        # those to this peer). Switch: (buffer, ranks that the switch joins).
        self.channels: Tables = {kind: [] for kind in (plans.MEMORY, plans.PORT, "switch")}
        for channel in gpu.channels:
            table = self.channels[channel.channel_type]
            for peer in channel.connected_to:
                earlier_channels = [earlier_peer for earlier_peer, _ in table].count(
                    self._entry(peer, self.ranks)
                )
                table.append((peer, earlier_channels))
            for group in channel.rank_groups:
                members = tuple(self._entry(member, self.ranks) for member in group.ranks)
                if len(members) < 2 or len(set(members)) < len(members):
                    raise ValueError(f"{self.where}: expected two ranks or more behind a switch")
                table.append((BUFFERS[channel.buffer_type], members))

    def _entry(self, number: int, table: Sequence[Any]) -> Any:
        """The entry of a table with this number; a ValueError if there is none."""
        if number >= len(table):
            raise ValueError(f"{self.where}: expected one of {len(table)} entries, got {number}")
        return table[number]

    def blocks(self) -> Iterator[Block]:
        """Yield the thread blocks of the GPU in the order of the file."""
        gpu = self.gpu
        memory = [(self._entry(m.rank, self.ranks), BUFFERS[m.type]) for m in gpu.remote_buffers]
        starts = tuple(semaphore.get("init_value", 0) for semaphore in gpu.semaphores)
        for block in gpu.threadblocks:
            self.where = f"gpu {gpu.id}, threadblock {block.id}"
            own_channels: Tables = {kind: [] for kind in self.channels}
            remote_memory: Tables = {kind: [] for kind in (*self.channels, "none")}
            for references in block.channels:
                own_channels[references.kind] += [
                    self._entry(k, self.channels[references.kind]) for k in references.ids
                ]
            for references in block.remote_buffer_refs:
                remote_memory[references.kind] += [self._entry(k, memory) for k in references.ids]
            where = self.where
            ops = list[PlanOperation]()
            for number, op in enumerate(block.ops):
                self.where = f"{where}, op {number}"
                ops.append(self._operation(op, own_channels, remote_memory))
            yield Block(gpu.id, block.id, block.id, tuple(ops), starts)

    def _operation(self, op: _Op, own_channels: Tables, remote_memory: Tables) -> PlanOperation:
        """The operation of a thread block that the entry `op` of the file describes.

        A ValueError if it names something that the GPU does not have, or breaks a rule.

        - `own_channels`: by kind of channel, the entries of the block's channels.
        - `remote_memory`: by kind of channel, (rank, buffer) of the block's remote buffers.
        """
        does = OPERATIONS[op.name]
        if op.name == plans.PIPELINE:
            inner = tuple(self._operation(item, own_channels, remote_memory) for item in op.ops)
            sizes = op.iter_context.get("unit_size", 1), op.iter_context.get("num_chunks", 1)
            return PlanOperation(op.name, does, inner=inner, sizes=sizes)
        switches = own_channels["switch"]
        memory = remote_memory[op.channel_type]
        operation = PlanOperation(
            name=op.name,
            does=does,
            sources=tuple(self._ref(item, switches, memory) for item in op.src_buff),
            targets=tuple(self._ref(item, switches, memory) for item in op.dst_buff),
            connections=self._connections(op, own_channels),
            blocks=op.num_threadblocks,
            part=self._part(op),
        )
        problem = _broken_rule(operation, op.channel_type == plans.PORT)
        if problem:
            raise ValueError(f"{self.where}: {op.name}: expected {problem}")
        return operation

    def _connections(self, op: _Op, own_channels: Tables) -> tuple[Connection, ...]:
        """What the entry `op` of a file signals or waits on: channels, a barrier, semaphores.

        `own_channels` are those of `_operation`.
        """
        me = self.gpu.id
        connections = list[Connection]()
        is_wait = op.name.endswith("wait")
        channel_ids = op.channel_ids if op.channel_type in (plans.MEMORY, plans.PORT) else ()
        for item in channel_ids:
            peer, number = self._entry(item, own_channels[op.channel_type])
            sender = peer if is_wait else me
            receiver = me if is_wait else peer
            connections.append((op.channel_type, sender, receiver, number))
        if OPERATIONS[op.name].action == "barrier":
            connections = [(plans.BARRIER, me, me, op.barrier_id)]
        for item in op.semaphore_ids:
            self._entry(item, self.gpu.semaphores)
            connections.append((plans.SEMAPHORE, me, me, item))
        return tuple(connections)

    def _part(self, op: _Op) -> tuple[int, int]:
        """(number of this block, number of blocks) among the blocks that share the operation."""
        count = op.tbg_info.get("tbg_size", 1)
        number = self._entry(op.tbg_info.get("tb_id", 0), range(count))
        return number, count

    def _ref(self, chunks: _Chunks, switches: Sequence[Any], memory: Sequence[Any]) -> Ref:
        """The Ref of the chunks that an operation names: of this GPU, of remote memory, or behind a
        switch.

        - `switches`: (buffer, ranks that the switch joins) of the block's switch channels.
        - `memory`: (rank, buffer) of the block's remote buffers.
        """
        if chunks.switch_channel_id is not None:
            buffer, ranks = self._entry(chunks.switch_channel_id, switches)
            return Ref(ranks, (buffer, chunks.index), chunks.size)
        if chunks.buffer_id is not None:
            rank, buffer = self._entry(chunks.buffer_id, memory)
            return Ref((rank,), (buffer, chunks.index), chunks.size)
        if chunks.type is None:
            raise ValueError(f"{self.where}: expected a type of i, o, s in a chunk")
        return Ref((self.gpu.id,), (BUFFERS[chunks.type], chunks.index), chunks.size)


def _broken_rule(op: PlanOperation, ports: bool) -> str:
    """The rule that the sources and targets of an operation break, in words; "" if they break none.

    `ports` says whether the operation uses channels of kind port.
    """
    ends, does, moves = (op.sources, op.targets), op.does, op.does.action == "copy"
    if not does.reads:
        return ""
    if not all(ends) or (moves and len(ends[0]) not in (1, len(ends[1]))):
        return "as many src_buff as dst_buff, or one"
    counts = [[one.count for one in end] for end in ends]
    paired = moves and len(ends[0]) > 1
    if counts[0] != counts[1] if paired else len({*counts[0], *counts[1]}) > 1:
        return "equal sizes"
    switched = [letters[0] in "wP" for letters in (does.reads, does.writes)]
    if [end[0].switched for end in ends] != switched:
        return "switch_channel_id in the operations of a switch, and there only"
    return "a channel for each target" * (ports and moves and len(op.connections) != len(ends[1]))


# **** Writing files **** A GPU has one block for all that it sends to a peer on a channel, one for
# all that it receives from a peer on a channel, and one for its local copies. A step waits for at
# most one step of another block; if it must wait for more, `nop` steps before it wait for the
# others.


@dataclass(frozen=True, slots=True)
class FileStep:
    """A step of a thread block.

    - `row`: the row of the schedule that it belongs to.
    - `kind`: MSCCL's step type (s, r, rrc, cpy, re or nop).
    - `source`, `target`: (buffer, first chunk) that it reads and writes.
    - `count`: number of chunks.
    - `after`: the step of another block that it waits for, as (key of the block, number).
    """

    row: int
    kind: str
    source: Place
    target: Place
    count: int
    after: tuple[Key, int] | None


class AlgorithmFile:
    """The thread blocks and steps of a schedule, from which its file is written.

    A chunk has the largest number of elements that divides all sizes and offsets of the schedule.
    """

    tool: str
    names: Mapping[str, str]  # of collectives, by ours

    def __init__(self, name: str, schedule: Schedule, collective: Collective) -> None:
        self.name = name
        self.schedule = schedule
        self.collective = collective
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
        self.blocks: dict[Key, list[FileStep]] = {}
        self.steps: dict[tuple[int, int], tuple[Key, int]] = {}  # by row and GPU
        self.scratch = [0] * schedule.ranks
        channels = sorted({style.channel for style in schedule.styles})
        self.channel = {number: place for place, number in enumerate(channels)}
        for row in np.flatnonzero(self.moves).tolist():
            self._add(row)

    def _add(self, row: int) -> None:
        """Add the steps of a row: for a transfer one on each GPU, for a local copy or sum one or
        two.
        """
        s = self.schedule
        piece = int(self.schedule.piece[row])
        style = s.styles[int(s.style[row])]
        src = int(s.src[row])
        dst = int(s.dst[row])
        source = self._place(src, style.src_buffer, int(s.pieces.src_offset[piece]), piece)
        target = self._place(dst, style.dst_buffer, int(s.pieces.dst_offset[piece]), piece)
        own_place = self._place(dst, IN, int(s.pieces.own_offset[piece]), piece)
        count = int(s.pieces.count[piece]) // self.chunk
        channel = self.channel[style.channel]
        if style.kind == TRANSFER:
            self._step((src, "s", dst, channel), row, "s", source, target, count)
            kind = "r" if style.op == COPY else "rrc"
            first = own_place if style.op == REDUCE_INPUT else target
            self._step((dst, "r", src, channel), row, kind, first, target, count)
            return
        block = (src, "l", -1, 0)
        if style.op == REDUCE_INPUT and own_place != target:
            self._step(block, row, "cpy", own_place, target, count)
        kind = "cpy" if style.op == COPY else "re"
        self._step(block, row, kind, source, target, count)

    def _place(self, rank: int, buffer: int, offset: int, piece: int) -> Place:
        """(buffer, number of the chunk) for element `offset` of a rank's `buffer`.

        For scratch memory, also note that the rank's scratch memory must be large enough for
        `piece`, if it begins there.
        """
        chunk = offset // self.chunk
        if buffer == SCRATCH:
            last = chunk + int(self.schedule.pieces.count[piece]) // self.chunk
            self.scratch[rank] = max(self.scratch[rank], last)
        return buffer, chunk

    def _step(
        self, key: Key, row: int, kind: str, source: Place, target: Place, count: int
    ) -> None:
        """Add a step to the block `key`. If the row waits for rows whose steps are in other blocks
        of the same GPU, the step waits for these steps.

        - `kind`: MSCCL's step type.
        - `source`, `target`: (buffer, first chunk) that it reads and writes.
        - `count`: number of chunks.
        """
        rank = key[0]
        block = self.blocks.setdefault(key, [])
        waits = {
            self.steps[awaited, rank]
            for awaited, _ in self.waits(row)
            if (awaited, rank) in self.steps
        }
        other_steps = sorted(awaited for awaited in waits if awaited[0] != key)
        block += [FileStep(row, "nop", source, target, 0, awaited) for awaited in other_steps[:-1]]
        after = other_steps[-1] if other_steps else None
        block.append(FileStep(row, kind, source, target, count, after))
        self.steps[row, rank] = key, len(block) - 1

    def waits(self, row: int) -> list[tuple[int, bool]]:
        """The rows that a row waits for, each with True if it waits until their data has arrived at
        the receiver, or False if it waits only until they have ended.

        Marks move no data; they are replaced by the rows that they wait for.
        """
        awaited: list[tuple[int, bool]] = []
        for earlier, lag in self.schedule.dependencies(row):
            awaited += (
                [(earlier, bool(lag.arrival))] if self.moves[earlier] else self.waits(earlier)
            )
        return awaited

    def sizes(self, rank: int) -> dict[str, int]:
        """The number of chunks of a rank's input, output and scratch memory, by letter i, o, s."""
        c = self.collective
        counts = c.input_count(rank), c.output_count(rank), self.scratch[rank] * self.chunk
        return {letter: count // self.chunk for letter, count in zip("ios", counts, strict=True)}

    def blocks_of(self, rank: int) -> list[Key]:
        """The keys of a GPU's blocks in the order of the blocks' numbers."""
        return [key for key in self.blocks if key[0] == rank]


class AlgoFile(AlgorithmFile):
    """The XML file of MSCCL for a schedule."""

    tool = "MSCCL"
    names = MSCCL_NAMES

    def text(self) -> str:
        """The content of the file."""
        c = self.collective
        sizes = [self.sizes(rank) for rank in range(self.collective.ranks)]
        root = ElementTree.Element(
            "algo",
            {
                "name": self.name,
                "proto": "Simple",
                "nchannels": str(len(self.channel)),
                "nchunksperloop": str(
                    max(max(size_of_rank["i"], size_of_rank["o"]) for size_of_rank in sizes) or 1
                ),
                "ngpus": str(c.ranks),
                "coll": self.names[c.name],
                "inplace": str(int(c.in_place)),
                "outofplace": str(int(not c.in_place)),
                "minBytes": "0",
                "maxBytes": str(2**40),
            },
        )
        needed = {step.after for steps in self.blocks.values() for step in steps}
        for rank in range(c.ranks):
            about = {f"{letter}_chunks": str(size) for letter, size in sizes[rank].items()}
            gpu = ElementTree.SubElement(root, "gpu", {"id": str(rank), **about})
            for key in self.blocks_of(rank):
                self._block(gpu, key, needed)
        ElementTree.indent(root)
        return ElementTree.tostring(root, encoding="unicode") + "\n"

    def beyond_limits(self) -> str:
        """The numbers that exceed the limits of RCCL's reader, in words; "" if none does."""
        steps = max(map(len, self.blocks.values()), default=0)
        blocks = max(len(self.blocks_of(rank)) for rank in range(self.collective.ranks))
        counts = (
            (steps, MOST_STEPS, "steps in a thread block"),
            (blocks, MOST_BLOCKS, "thread blocks on a GPU"),
        )
        return ", ".join(
            f"{count} {what}, RCCL takes {most}" for count, most, what in counts if count > most
        )

    def _block(self, gpu: ElementTree.Element, key: Key, needed: Container[object]) -> None:
        """Append the element of a thread block to that of its GPU; `needed` are all steps, as (key
        of the block, number), that steps of other blocks wait for.
        """
        rank, activity, peer, channel = key
        keys = self.blocks_of(rank)
        ends = [str(peer if activity == letter else -1) for letter in "sr"]
        about = {"id": str(keys.index(key)), "send": ends[0], "recv": ends[1], "chan": str(channel)}
        block = ElementTree.SubElement(gpu, "tb", about)
        for number, step in enumerate(self.blocks[key]):
            tb, at = (keys.index(step.after[0]), step.after[1]) if step.after else (-1, -1)
            target = step.source if activity == "s" else step.target
            attributes = {
                "s": number,
                "type": step.kind,
                "srcbuf": LETTERS[step.source[0]],
                "srcoff": step.source[1],
                "dstbuf": LETTERS[target[0]],
                "dstoff": target[1],
                "cnt": step.count,
                "depid": tb,
                "deps": at,
                "hasdep": int((key, number) in needed),
            }
            ElementTree.SubElement(block, "step", {k: str(v) for k, v in attributes.items()})


# A transfer is a put to its final place. If the receiver must sum it, or must first wait for
# something that the sender does not notice, it is a put to the receiver's scratch memory, from
# which the receiver copies or sums it. Blocks of a GPU wait for each other by semaphores, one for
# each pair of blocks: the k-th acquire takes the k-th release.

SIGNAL = {"channel_ids": [0], "channel_type": plans.MEMORY}
# MSCCL++'s names of the collectives, by netsim's: `allreduce` for `all_reduce`.
PLAN_NAMES = {collective: collective.replace("_", "") for collective in KINDS.values()}


class PlanFile(AlgorithmFile):
    """The execution plan of MSCCL++ for a schedule; `longest` is the number of operations of its
    longest thread block, once `text` has been called.
    """

    tool = "MSCCL++"
    names = PLAN_NAMES
    longest = 0

    def text(self) -> str:
        """The content of the file."""
        c = self.collective
        self.needed: dict[tuple[Key, Key], list[int]] = {}  # by two blocks: steps waited for
        self.staged: dict[int, int] = {}  # by row the chunk of scratch memory that it goes through
        for key, steps in self.blocks.items():
            for earlier_block, at in sorted({step.after for step in steps if step.after}):
                self.needed.setdefault((earlier_block, key), []).append(at)
            for step in steps:
                if step.kind == "rrc" or (step.kind == "r" and not self._is_direct(step.row)):
                    self.staged[step.row] = self.scratch[key[0]]
                    self.scratch[key[0]] += step.count
        gpus = [self._gpu(rank) for rank in range(c.ranks)]
        plan = {
            "name": self.name,
            "collective": self.names[c.name],
            "protocol": "Simple",
            "inplace": c.in_place,
            "reuse_resources": False,
            "gpus": gpus,
            "num_threads_per_block": 1024,
            "use_double_scratch_buffer": False,
            "buffer_alignment": 16,
            "min_message_size": 0,
            "max_message_size": 2**64 - 1,
        }
        return json.dumps(plan, indent=1) + "\n"

    def _is_direct(self, row: int) -> bool:
        """Whether the sender of a row knows by itself that all rows which the row waits for are
        done: it has received them, or sent them and need not wait for their arrival.
        """
        src, ends = int(self.schedule.src[row]), (self.schedule.src, self.schedule.dst)
        return all(
            src == int(ends[1][earlier]) or (src == int(ends[0][earlier]) and not arrived)
            for earlier, arrived in self.waits(row)
        )

    def _gpu(self, rank: int) -> Json:
        """The JSON object of a GPU."""
        keys = self.blocks_of(rank)
        sizes = self.sizes(rank)
        pairs = [pair for pair in self.needed if pair[0][0] == rank]
        peers = sorted({key[2:] for key in keys if key[1] != "l"})
        places = {
            key: sorted({self._arrival_place(peer)[0] for peer in self.blocks[key]}) for key in keys
        }
        remote = sorted(
            {(key[2], buffer) for key in keys if key[1] == "s" for buffer in places[key]}
        )
        blocks = []
        for key in keys:
            ids = [peers.index(key[2:])] if key[1] != "l" else []
            refs = [remote.index((key[2], buffer)) for buffer in places[key] if key[1] == "s"]
            reference = {"access_channel_type": plans.MEMORY, "remote_buffer_ids": refs}
            blocks.append(
                {
                    "id": keys.index(key),
                    "ops": self._ops(key, pairs, places[key]),
                    "channels": [{"channel_type": plans.MEMORY, "channel_ids": ids}] * len(ids),
                    "remote_buffer_refs": [reference] * bool(refs),
                }
            )
        memory = [{"rank": peer, "type": LETTERS[buffer]} for peer, buffer in remote]
        return {
            "id": rank,
            "input_chunks": sizes["i"],
            "output_chunks": sizes["o"],
            "scratch_chunks": sizes["s"],
            "threadblocks": blocks,
            "channels": [
                {"channel_type": plans.MEMORY, "connected_to": [peer for peer, _ in peers]}
            ],
            "remote_buffers": [{**peer, "access_channel_types": [plans.MEMORY]} for peer in memory],
            "semaphores": [{"init_value": 0}] * len(pairs),
        }

    def _arrival_place(self, step: FileStep) -> Place:
        """(buffer, chunk) at the receiver where the data of a step arrives."""
        return (SCRATCH, self.staged[step.row]) if step.row in self.staged else step.target

    def _ops(self, key: Key, pairs: list[tuple[Key, Key]], places: list[int]) -> list[Json]:
        """The operations of a block as JSON, with `nop` (a barrier of the block's threads) around
        each transfer.

        - `key`: key of the block.
        - `pairs`: (releasing block, acquiring block) of this GPU; the position of a pair is the
          number of its semaphore.
        - `places`: buffers (IN, OUT or SCRATCH) of the peer that the block writes to; the position
          of a buffer is its number in the file.
        """
        ops = list[Json]()
        acquired = Counter[Key]()
        nop = {"name": "nop"}
        released_steps = {k: self.needed[pair] for k, pair in enumerate(pairs) if pair[0] == key}
        for number, step in enumerate(self.blocks[key]):
            if step.after:
                earlier_block, at = step.after
                acquire = {
                    "name": "sem_acquire",
                    "semaphore_ids": [pairs.index((earlier_block, key))],
                }
                needed_count = bisect_right(self.needed[earlier_block, key], at)
                ops += [acquire] * (needed_count - acquired[earlier_block])
                acquired[earlier_block] = max(needed_count, acquired[earlier_block])
            if step.kind == "nop":
                continue
            ops += [{"name": "wait", **SIGNAL}] * (key[1] == "r")
            ops += [nop, *self._ops_of_step(step, places), nop]
            ops += [{"name": "signal", **SIGNAL}] * (key[1] == "s")
            ids = [k for k, steps in released_steps.items() if number in steps]
            ops += [{"name": "sem_release", "semaphore_ids": ids}] * bool(ids)
        shown = [op for last, op in zip([{}, *ops], ops, strict=False) if op != nop or last != nop]
        self.longest = max(self.longest, len(shown))
        return shown

    def _ops_of_step(self, step: FileStep, places: list[int]) -> list[Json]:
        """The operations that move the data of a step, as JSON: none if source and target are the
        same.

        `places` are those of `_ops`.
        """
        landing = self._arrival_place(step)
        into = _chunk(step.target, step.count)
        if step.kind == "s":
            there = {"buffer_id": places.index(landing[0]), "index": landing[1]}
            put = _op("put", step, [step.source], {**there, "size": step.count})
            return [{**put, "channel_type": plans.MEMORY}]
        source = landing if step.kind in ("r", "rrc") else step.source
        if step.kind in ("r", "cpy"):
            return [_op("copy", step, [source], into)] * (source != step.target)
        first = step.source if step.kind == "rrc" else step.target
        return [{**_op("re", step, [first, source], into), "reduce_op": "sum"}]


def _op(name: str, step: FileStep, sources: list[Place], into: Json) -> Json:
    """The JSON object of the operation `name` on the chunks of a step: it reads as many chunks at
    each place of `sources`, and writes `into`, the JSON object of some chunks.
    """
    chunks = [_chunk(place, step.count) for place in sources]
    return {"name": name, "src_buff": chunks, "dst_buff": [into]}


def _chunk(place: Place, count: int) -> Json:
    """The JSON object of `count` chunks from `place` (buffer, number of the first chunk) on."""
    return {"type": LETTERS[place[0]], "index": place[1], "size": count}
