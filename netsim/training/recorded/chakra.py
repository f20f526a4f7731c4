"""Chakra execution traces (MLCommons): read, written, and as steps that are simulated."""

import glob
import json
import re
import struct
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from graphlib import CycleError, TopologicalSorter
from heapq import heapify, heappop, heappush
from pathlib import Path
from typing import Any

import numpy as np

from netsim.base.errors import InputError
from netsim.base.files import LARGEST_TABLE, text_of, write_bytes, write_text
from netsim.base.values import dataclass
from netsim.scenario.names import DTYPES
from netsim.training.recorded.kineto import RECORD, SPELT, groups_of, head_of, spelt_dtype, unpacked
from netsim.workloads.setting import Ranks
from netsim.workloads.tape import Deps, Tape, TapeEntry

VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5
Value = int | float | bytes


def varint(number: int) -> bytes:
    """An unsigned number, seven bits a byte."""
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)


def wire_field(number: int, value: int | bytes | str) -> bytes:
    """One field of a message."""
    if isinstance(value, int):
        return varint(number << 3 | VARINT) + varint(value)
    content = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | LENGTH) + varint(len(content)) + content


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """The number that begins at a place, and the place behind it."""
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise InputError("ends in the middle of a number")
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def fields(data: bytes) -> Iterator[tuple[int, Value]]:
    """All fields of a message, in order."""
    at = 0
    while at < len(data):
        key, at = read_varint(data, at)
        kind = key & 7
        if kind == VARINT:
            value: Value
            value, at = read_varint(data, at)
        elif kind == LENGTH:
            size, at = read_varint(data, at)
            value, at = data[at : at + size], at + size
        elif kind in (FIXED64, FIXED32):
            size, form = (8, "<d") if kind == FIXED64 else (4, "<f")
            if at + size > len(data):
                raise InputError("ends in the middle of a field")
            value, at = struct.unpack(form, data[at : at + size])[0], at + size
        else:
            raise InputError(f"holds a field of the unknown kind {kind}")
        if at > len(data):
            raise InputError("ends in the middle of a field")
        yield key >> 3, value


# Attributes hold their value under the number of its type: of those that varints and fixed sizes do
# not tell, signed ones, those in zigzag, and whole numbers of a fixed size.
SIGNED, ZIGZAG = (7, 9), (15, 17)
WHOLE = {19: ("<f", "<I"), 21: ("<d", "<Q"), 23: ("<f", "<i"), 25: ("<d", "<q")}


def typed(number: int, value: Value) -> Value:
    """The value of an attribute, from what stands under a number."""
    if number in SIGNED and isinstance(value, int):
        return value - (1 << 64) if value >> 63 else value
    if number in ZIGZAG and isinstance(value, int):
        return (value >> 1) ^ -(value & 1)
    if number in WHOLE and isinstance(value, float):
        read, meant = WHOLE[number]
        found: int = struct.unpack(meant, struct.pack(read, value))[0]
        return found
    return value


def packed(value: Value) -> list[int]:
    """Numbers that were packed into one field, or the one that was not."""
    if isinstance(value, int):
        return [value]
    if not isinstance(value, bytes):
        raise InputError("holds a list of fractions where node numbers are expected")
    found, at = [], 0
    while at < len(value):
        number, at = read_varint(value, at)
        found.append(number)
    return found


# Chakra execution traces: a file a rank, `NAME.RANK.et`, and the groups of ranks in JSON beside.
# A file is a sequence of messages, each behind its length: first about the trace, then its nodes
# (MLCommons Chakra, et_def.proto). The size of a collective is what one rank puts in.

COMPUTE, SEND, RECEIVE, COLLECTIVE = 4, 5, 6, 7  # kinds of nodes
TYPES = (
    "all_reduce",
    "reduce",
    "all_gather",
    "gather",
    "scatter",
    "broadcast",
    "alltoall",
    "reduce_scatter",
    "reduce_scatter",
    "barrier",
)
ID, NAME, TYPE, CONTROL, DATA, START, DURATION, INPUTS, ATTRIBUTE = 1, 2, 3, 4, 5, 6, 7, 8, 10
TYPES_IN = {1: "values", 3: "types"}  # of a node's inputs
# Where a value stands in an attribute, by its type.
INT32, INT64, BOOL, BOOLS, STRING = 7, 9, 27, 28, 29
PARTS = ("all_gather", "gather")  # one rank puts in a part of what nccl-tests counts
VERSION = "0.0.4"
ALONE = "kernels_alone"  # of a trace: its durations are of kernels that ran beside no collective
MOVING = "moving_micros"  # of a kernel: how long it only moves bytes, which needs few SMs
GROUPS = "groups.json"


@dataclass(frozen=True)
class Node:
    """One node: its number, what it waits for, how long it takes or what it moves."""

    number: int
    name: str
    kind: int
    after: tuple[int, ...] = ()
    micros: int = 0
    attributes: Mapping[str, Value] = field(default_factory=dict)

    @property
    def moving(self) -> float:
        """Seconds of a kernel that only moves bytes."""
        told = self.attributes.get(MOVING, 0)
        return min(told, self.micros) * 1e-6 if isinstance(told, int) else 0.0


def nodes_of(
    tape: Tape, rank: int, groups: dict[tuple[int, ...], int], slowdown: float = 1.0
) -> Iterator[Node]:
    """What one rank does, in order; `groups` numbers the groups as they come up. Durations are
    whole microseconds, of which each rounds away what those before have left over. A ring of sends
    is two nodes, a send and a receive."""
    last: dict[str, int] = {}
    made: dict[int, tuple[int, ...]] = {}
    computed = written_so_far = 0.0
    for number, entry in enumerate(tape.entries):
        rows = [row for row in entry.groups.tolist() if rank in row]
        if not rows:
            continue
        # Who has posted a receive ahead waits for no kernel before it.
        awaited = () if entry.posted and rank == rows[0][-1] else entry.after
        waits = [*awaited, *([last[entry.stream]] if entry.stream in last else [])]
        after = tuple(dict.fromkeys(one for wait in waits for one in made.get(wait, ())))
        last[entry.stream] = number
        time = tape.kernel_time(entry, rank)
        computed += time.seconds * slowdown * 1e6
        micros = round(computed - written_so_far)
        written_so_far += micros
        name = " ".join(filter(None, (entry.layer, entry.name)))
        moving = min(micros, round(time.moving * slowdown * 1e6))
        node = Node(number, name, COMPUTE, after, micros, {MOVING: moving} if moving else {})
        nodes = [node]
        if entry.collective:
            nodes = _calls(node, entry, rank, tuple(rows[0]), groups, len(tape.entries) + number)
        made[number] = tuple(one.number for one in nodes)
        yield from nodes


def _calls(
    node: Node,
    entry: TapeEntry,
    rank: int,
    ranks: tuple[int, ...],
    groups: dict[tuple[int, ...], int],
    second: int,
) -> list[Node]:
    """The node of a collective, a send or a receive; of both, the other has the number `second`."""
    if entry.collective == "p2p":
        return [_end(node, entry, (ranks[0], ranks[1]), node.number, sends=rank == ranks[0])]
    if entry.collective == "sendrecv":
        place = ranks.index(rank)
        before, after = ranks[place - 1], ranks[(place + 1) % len(ranks)]
        other = replace(node, number=second)
        return [
            _end(node, entry, (rank, after), node.number, sends=True),
            _end(other, entry, (before, rank), node.number, sends=False),
        ]
    group = groups.setdefault(ranks, len(groups) + 1)  # ASTRA-sim takes 0 for no group
    size = max(1, entry.nbytes // len(ranks)) if entry.collective in PARTS else entry.nbytes
    told: dict[str, Value] = {
        "comm_size": size,
        "comm_type": TYPES.index(entry.collective),
        "pg_name": str(group).encode(),
        "dtype": entry.dtype.encode(),
    }
    return [replace(node, kind=COLLECTIVE, micros=0, attributes=told)]


def _end(node: Node, entry: TapeEntry, pair: tuple[int, int], tag: int, *, sends: bool) -> Node:
    told: dict[str, Value] = {
        "comm_size": entry.nbytes,
        "comm_src": pair[0],
        "comm_dst": pair[1],
        "comm_tag": tag,
    }
    return replace(node, kind=SEND if sends else RECEIVE, micros=0, attributes=told)


def encoded(nodes: Sequence[Node]) -> bytes:
    """The bytes of a file."""
    alone = wire_field(2, wire_field(1, ALONE) + wire_field(BOOL, 1))
    messages = [wire_field(1, VERSION) + alone, *map(_message, nodes)]
    return b"".join(varint(len(message)) + message for message in messages)


def _message(node: Node) -> bytes:
    parts = [wire_field(ID, node.number), wire_field(NAME, node.name), wire_field(TYPE, node.kind)]
    parts += [wire_field(DATA, one) for one in node.after]
    parts.append(wire_field(DURATION, node.micros))
    kinds = {
        "comm_size": INT64, "comm_type": INT64, "pg_name": STRING, "dtype": STRING,
        "is_cpu_op": BOOL, "involved_dim": BOOLS,
    }  # fmt: skip
    for name, value in {"is_cpu_op": 0, **node.attributes}.items():
        assert isinstance(value, int | bytes)
        told = wire_field(1, name) + wire_field(kinds.get(name, INT32), value)
        parts.append(wire_field(ATTRIBUTE, told))
    return b"".join(parts)


def decoded(data: bytes) -> list[Node]:
    """The nodes of a file."""
    messages, at = [], 0
    while at < len(data):
        size, at = read_varint(data, at)
        if at + size > len(data):
            raise InputError("ends in the middle of a node")
        messages.append(data[at : at + size])
        at += size
    return [_read(message) for message in messages[1:]]


def _read(data: bytes) -> Node:
    number = kind = micros = 0
    name, after, told = "", list[int](), dict[str, Value]()
    for key, value in fields(data):
        if key == ID and isinstance(value, int):
            number = value
        elif key == NAME and isinstance(value, bytes):
            name = value.decode(errors="replace")
        elif key == TYPE and isinstance(value, int):
            kind = value
        elif key == DATA:  # CONTROL tells who called whom, which is no wait
            after += packed(value)
        elif key == DURATION and isinstance(value, int):
            micros = value
        elif key == INPUTS and isinstance(value, bytes):
            told |= {TYPES_IN[k]: v for k, v in fields(value) if k in TYPES_IN}
        elif key == ATTRIBUTE and isinstance(value, bytes):
            pair = dict(fields(value))
            label = pair.pop(1, b"")
            pair.pop(2, None)
            if isinstance(label, bytes) and pair:
                place, found = next(iter(pair.items()))
                told[label.decode(errors="replace")] = typed(place, found)
    return Node(number, name, kind, tuple(after), micros, told)


# The same in JSON: as the feeder's (`workload_graph`), as protobuf writes messages, and what
# PyTorch's ExecutionTraceObserver writes (`schema`, `nodes`), which has durations only where
# kernels of a profile were linked in.

KINDS = (
    "INVALID_NODE",
    "METADATA_NODE",
    "MEM_LOAD_NODE",
    "MEM_STORE_NODE",
    "COMP_NODE",
    "COMM_SEND_NODE",
    "COMM_RECV_NODE",
    "COMM_COLL_NODE",
)
METADATA = 1
PLAIN = (
    "is_cpu_op",
    "comm_type",
    "comm_size",
    "comm_src",
    "comm_dst",
    "comm_tag",
    "pg_name",
    "dtype",
)
GROUPS_MADE = "process_group:init"
JSON_MARKS = re.compile(rb'"(workload_graph|(data|ctrl)_?[dD]eps)"\s*:')
BROKEN = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)


def is_execution_trace(path: Path) -> bool:
    """Whether a file is a Chakra trace, or PyTorch's of the same kind, and no profile."""
    if path.suffix == ".et":
        return True
    head = head_of(path)
    return b'"traceEvents"' not in head and JSON_MARKS.search(head) is not None


def ran_alone(path: Path) -> bool:
    """Whether kernels of a trace have lost no time to collectives beside them: it is simulated."""
    with path.open("rb") as file:
        return ALONE.encode() in file.read(256)


def nodes_of_json(text: str) -> list[Node]:
    """The nodes of a trace in JSON."""
    decoder, at, found = json.JSONDecoder(), 0, list[Any]()
    while at < len(text):
        one, at = decoder.raw_decode(text, at)
        found.append(one)
        at += len(text[at:]) - len(text[at:].lstrip()) if text[at : at + 1].isspace() else 0
    first = found[0] if found and isinstance(found[0], dict) else {}
    if "schema" in first:
        return _of_pytorch(first["nodes"])
    rest = first["workload_graph"] if "workload_graph" in first else found[1:]
    return [_of_json(one) for one in rest]


def _of_json(one: Mapping[str, Any]) -> Node:
    told = {name: _plain(one[name]) for name in PLAIN if name in one}
    for attribute in one.get("attr", ()):
        others = [v for name, v in attribute.items() if name not in ("name", "docString")]
        told[attribute["name"]] = _plain(others[-1]) if others else 0
    told |= {name: text.encode() for name, text in one.get("inputs", {}).items()}
    kind = one.get("NodeType", one.get("type", 0))
    return Node(
        int(one.get("Id", one.get("id", 0))),
        str(one.get("Name", one.get("name", ""))),
        KINDS.index(kind) if kind in KINDS else int(kind),
        tuple(map(int, one.get("data_deps", one.get("dataDeps", ())))),
        int(one.get("runtime", one.get("durationMicros", 0))),
        told,
    )


def _plain(value: object) -> Value:
    if isinstance(value, str) and not value.lstrip("-").isdigit():
        return value.encode()
    return int(value) if isinstance(value, str | bool) else value  # type: ignore[return-value]


def _of_pytorch(nodes: Sequence[Mapping[str, Any]]) -> list[Node]:
    """Calls in the order of the host, by group, and kernels where there are any. A call waits for
    the kernels launched before it, kernels behind a `wait` for the calls before."""
    found, calls, kernels, waits = list[Node](), dict[str, int](), list[int](), list[int]()
    records = {one["id"] for one in nodes if one["name"] == RECORD}
    for one in sorted(nodes, key=lambda one: int(one["id"])):
        number, name, inputs = int(one["id"]), str(one["name"]), one.get("inputs", {})
        if GROUPS_MADE in name:
            found.append(Node(number, name, METADATA, (), 0, {"values": str(inputs).encode()}))
        elif name == RECORD:
            call = _record(number, inputs, kernels[-1:])
            if call is None and "wait" in inputs["values"]:
                waits = list(calls.values())
            elif call is not None:
                earlier = [calls[one] for one in (group_of(call),) if one in calls]
                found.append(replace(call, after=(*call.after, *earlier)))
                calls[group_of(call)] = number
        elif one.get("cat") is not None and one.get("ctrl_deps") not in records:
            after = (*waits, *map(int, one.get("sync_dep") or ()))
            found.append(Node(number, name, COMPUTE, after, round(one.get("exclusive_dur", 0))))
            kernels, waits = [number], []
    return found


def _record(number: int, inputs: Mapping[str, Any], after: Sequence[int]) -> Node | None:
    """The call that `record_param_comms` tells: tensors, group, rank and name, in this order."""
    values = inputs["values"]
    place, match = next(
        ((k, m) for k, v in enumerate(values) if isinstance(v, str) and (m := SPELT.match(v))),
        (0, None),
    )
    if match is None or place < 3:
        return None
    kind, group = str(match.lastgroup), values[place - 2]
    told: dict[str, Value] = {
        "comm_size": _bytes_in(values[0]),
        "types": str(inputs["types"][0]).encode(),
        "pg_name": str(group[0] if isinstance(group, list) else group).encode(),
    }
    if kind in TYPES:
        told["comm_type"] = TYPES.index(kind)
        return Node(number, kind, COLLECTIVE, tuple(after), 0, told)
    sends = values[place].lower().startswith("send")
    told["comm_dst" if sends else "comm_src"] = values[place - 1]
    return Node(number, kind, SEND if sends else RECEIVE, tuple(after), 0, told)


def _bytes_in(value: Any) -> int:
    """The bytes of tensors: each is an id, its storage, offset, elements, their bytes, a device."""
    if isinstance(value, list) and len(value) == 6 and isinstance(value[5], str):
        return int(value[3]) * int(value[4])
    return sum(map(_bytes_in, value)) if isinstance(value, list) else 0


def read_rank(path: Path) -> tuple[list[Node], dict[str, tuple[int, ...]]]:
    """A rank's nodes, each behind what it waits for; and the groups that its calls name."""
    content = unpacked(path)
    try:
        in_json = content.lstrip()[:1] == b"{"
        nodes = nodes_of_json(content.decode()) if in_json else decoded(content)
    except InputError as error:
        raise InputError(f"{path}: {error.message}: cut, or no Chakra trace") from None
    except BROKEN as error:
        raise InputError(f"{path}: cut, or no execution trace in JSON: {error}") from None
    if not any(node.kind in (COLLECTIVE, SEND, RECEIVE) for node in nodes):
        raise InputError(f"{path}: has no collectives, sends or receives")
    known = {name: ranks for node in nodes for name, ranks in _declared(node)}
    named = any(group_of(node) not in ("", *known) for node in nodes if node.kind == COLLECTIVE)
    return _ordered(path, nodes), known | (_groups(path.parent / GROUPS) if named else {})


def _declared(node: Node) -> Iterator[tuple[str, tuple[int, ...]]]:
    """The groups that a node of PyTorch's declares, by name and by number of their backend."""
    text = node.attributes.get("values", b"")
    if GROUPS_MADE not in node.name or not isinstance(text, bytes):
        return
    match = re.search(r"\[\{.*\}\]", text.decode(errors="replace").replace("\\", ""))
    for one in json.loads(match[0]) if match else ():
        ranks = tuple(one.get("ranks") or range(int(one.get("group_size", 0))))
        yield from ((str(one[key]), ranks) for key in ("pg_name", "backend_id") if key in one)


def group_of(node: Node) -> str:
    """The group of a collective (`comm_group` in older traces); "" for all ranks."""
    told = node.attributes
    name = told.get("pg_name", told.get("comm_group", b""))
    return name.decode(errors="replace") if isinstance(name, bytes) else str(name)


def spans_all(node: Node) -> bool:
    """Whether a collective without a group is over all dimensions of its network."""
    value = node.attributes.get("involved_dim", b"")
    if not isinstance(value, bytes):
        return True
    return all(flag for _, flags in fields(value) for flag in packed(flags))


def _groups(path: Path) -> dict[str, tuple[int, ...]]:
    try:
        found = json.loads(text_of(path, LARGEST_TABLE))
        return {str(name): tuple(int(rank) for rank in ranks) for name, ranks in found.items()}
    except BROKEN:
        raise InputError(f'{path}: expected groups as {{"0": [0, 1, …]}}') from None


def _ordered(path: Path, nodes: Sequence[Node]) -> list[Node]:
    by_number = {node.number: node for node in nodes}
    sorter = TopologicalSorter(
        {node.number: [one for one in node.after if one in by_number] for node in nodes}
    )
    try:
        sorter.prepare()
    except CycleError as error:
        circle = ", ".join(map(str, error.args[1][:6]))
        raise InputError(f"{path}: nodes wait for each other: {circle}") from None
    place = {node.number: k for k, node in enumerate(nodes)}
    found: list[Node] = []
    able = [place[number] for number in sorter.get_ready()]
    heapify(able)
    while able:
        node = nodes[heappop(able)]
        found.append(node)
        sorter.done(node.number)
        for number in sorter.get_ready():
            heappush(able, place[number])
    return found


def write_ranks(
    folder: Path,
    name: str,
    tape: Tape,
    ranks: Sequence[int],
    slowdown: Mapping[int, float] | None = None,
) -> list[Path]:
    """A file for every rank, and the groups; `slowdown` is by rank, of what it computes."""
    folder.mkdir(parents=True, exist_ok=True)
    groups: dict[tuple[int, ...], int] = {}
    paths = []
    for rank in ranks:
        path = folder / f"{name}.{rank}.et"
        slow = (slowdown or {}).get(rank, 1.0)
        write_bytes(path, encoded(list(nodes_of(tape, rank, groups, slow))))
        paths.append(path)
    text = json.dumps({str(number): list(members) for members, number in groups.items()})
    return [*paths, write_text(folder / GROUPS, text + "\n")]


GROUP = "group"
RANK_IN_NAME = re.compile(r"\.(\d+)(\.et|\.json|\.et\.json)(\.gz)?$")
Members = tuple[int, ...]


def tape_of_trace(path: Path, world: int) -> tuple[Tape, tuple[str, ...]]:
    """The tape of all ranks' files, of one of which the path is, and in words what is left out."""
    match = RANK_IN_NAME.search(path.name)
    if match is None:
        return _tape_of_one(path, world, None)
    found = {
        int(other[1]): one
        for one in sorted(path.parent.glob(f"{glob.escape(path.name[: match.start()])}.*"))
        if (other := RANK_IN_NAME.search(one.name))
        and one.name == f"{path.name[: match.start()]}.{other[1]}{path.name[match.end(1) :]}"
    }
    if len(found) < 2:
        return _tape_of_one(path, world, int(match[1]))
    if sorted(found) != list(range(world)):
        some = next((rank for rank in range(max(found)) if rank not in found), None)
        lacks = "" if some is None else f", of which that of rank {some} is missing"
        raise InputError(
            f"{path}: beside it are files of ranks up to {max(found)}{lacks}, but the cluster has "
            f"{world} GPUs",
            hint="set cluster.nodes to as many, or put one file alone, which then stands for all",
        )
    files = [_Rank(found[rank], world, rank, *read_rank(found[rank])) for rank in sorted(found)]
    try:
        tape = _Joined(files, alike=True).tape()
    except CycleError:
        try:
            tape = _Joined(files, alike=False).tape()
        except CycleError:
            raise InputError(f"{path}: the ranks' calls wait for each other") from None
    left = sum((one.left for one in files), Counter[str]())
    return tape, tuple(f"{count} {what}" for what, count in left.items())


def _tape_of_one(path: Path, world: int, rank: int | None) -> tuple[Tape, tuple[str, ...]]:
    """The tape on which every rank does what this one does."""
    one, tape = _Rank(path, world, rank, *read_rank(path)), Tape(phase="step")
    everyone, made = np.arange(world, dtype=np.int32), dict[int, int]()
    tiles: dict[tuple[bool, Members], Ranks] = {}
    for node, call, numbers in one.steps():
        after = tuple(made[number] for number in numbers)
        if call is None:
            seconds = node.micros * 1e-6
            made[node.number] = tape.compute(
                node.name, everyone, seconds, after, moving=node.moving
            )
            continue
        key = (call.collective == "p2p", call.ranks)
        if key not in tiles:
            tiles[key] = groups_of(key, world)
        made[node.number] = call.write(tape, tiles[key], after, call.stream)
    notes = [f"{count} {what}" for what, count in one.left.items()]
    return tape, tuple(["one rank's file stands for all"] * (world > 1) + notes)


@dataclass(frozen=True)
class _Call:
    """What a node moves: of a p2p, `ranks` are source and destination. `turn` counts those of the
    same ranks and `tag`, which is how their members find each other."""

    collective: str
    ranks: Members
    nbytes: int
    dtype: str
    stream: str
    name: str
    tag: Value = 0
    turn: int = 0

    def write(
        self, tape: Tape, groups: Ranks, after: Deps, stream: str, *, posted: bool = False
    ) -> int:
        (made,) = tape.collective(  # calls have two ranks and a byte at least
            self.name,
            GROUP,
            self.collective,
            groups,
            self.nbytes,
            after,
            stream=stream,
            dtype=self.dtype,
            posted=posted,
        )
        return made


@dataclass
class _Rank:
    """The file of one rank (None: not known which), and what of it is left out."""

    path: Path
    world: int
    rank: int | None
    nodes: list[Node]
    known: dict[str, Members]
    left: Counter[str] = field(default_factory=Counter)

    def steps(
        self, *, joined: bool = False
    ) -> Iterator[tuple[Node, _Call | None, tuple[int, ...]]]:
        """What takes time, as a call or (None) a kernel, and the numbers of what it waits for.
        Nodes that take none are looked through; calls of the same ranks follow each other. Where
        the sender is `joined`, a receive holds up what follows it, but not the message."""
        made: dict[int, tuple[int, ...]] = {}
        waited: dict[int, tuple[int, ...]] = {}
        before: dict[object, tuple[int, int]] = {}
        for node in self.nodes:
            found = dict.fromkeys(k for n in node.after for k in made.get(n, ()))
            implied = {k for n in found for k in waited.get(n, ())}
            after = tuple(k for k in found if k not in implied)
            call = self._call(node)
            made[node.number] = (node.number,)
            if call is not None:
                line = (call.collective == "p2p", call.ranks, call.tag)
                turn, last = before.get(line, (0, node.number))
                after = after if not turn or last in after else (*after, last)
                before[line] = (turn + 1, node.number)
                if joined and node.kind == RECEIVE:
                    others = tuple(k for k in after if k != last)
                    made[node.number], after = (node.number, *others), (last,) * (turn > 0)
                waited[node.number] = after
                yield node, replace(call, turn=turn + 1), after
            elif node.kind == COMPUTE and not node.attributes.get("is_cpu_op"):
                waited[node.number] = after
                yield node, None, after
            else:
                made[node.number] = after

    def _call(self, node: Node) -> _Call | None:
        """What a node moves; None for nothing, where what takes no time is counted."""
        if node.attributes.get("is_cpu_op"):
            self.left["operators of hosts left out"] += 1
        elif node.kind == COLLECTIVE:
            return self._collective(node)
        elif node.kind in (SEND, RECEIVE):
            ends = [node.attributes.get(name, self.rank) for name in ("comm_src", "comm_dst")]
            nbytes = node.attributes.get("comm_size", 0)
            ranks = tuple(end for end in ends if isinstance(end, int))
            if len(set(ranks)) < 2 or not isinstance(nbytes, int) or nbytes <= 0:
                self.left["sends and receives without a peer left out"] += 1
                return None
            way = f"pairs {ranks[0]}>{ranks[1]}"
            tag = node.attributes.get("comm_tag", 0)
            return _Call("p2p", ranks, nbytes, "uint8", way, node.name, tag)
        elif node.kind != COMPUTE:
            self.left["nodes of memory and metadata left out"] += 1
        return None

    def _collective(self, node: Node) -> _Call | None:
        kind, nbytes = node.attributes.get("comm_type"), node.attributes.get("comm_size")
        known = isinstance(kind, int) and 0 <= kind < len(TYPES)
        if not known or not isinstance(nbytes, int):
            raise InputError(
                f"{self.path}: node {node.number} ({node.name}) has no comm_type or comm_size"
            )
        collective, group = TYPES[int(kind or 0)], group_of(node)
        if collective == "barrier" or nbytes <= 0:
            return None
        if group and group not in self.known:
            raise InputError(
                f"{self.path}: node {node.number} is of group {group!r}, which groups.json lacks"
            )
        if not group and not spans_all(node):
            raise InputError(
                f"{self.path}: node {node.number} is over some dimensions of a network only "
                "(involved_dim)",
                hint="give it a pg_name, and its ranks in groups.json",
            )
        ranks = self.known[group] if group else tuple(range(self.world))
        if len(ranks) < 2:
            return None
        whole = nbytes * len(ranks) if collective in PARTS else nbytes
        label = f"group {group}".strip()
        return _Call(collective, ranks, whole, self._dtype(node, whole), label, node.name)

    def _dtype(self, node: Node, nbytes: int) -> str:
        """The type that a node tells, or its kernel's name; two bytes a number else, and noted."""
        told = node.attributes.get("dtype", node.attributes.get("types", b""))
        text = told.decode(errors="replace") if isinstance(told, bytes) else ""
        found = (
            text if text in DTYPES else spelt_dtype(text) or spelt_dtype(node.name.split("(")[0])
        )
        if found is not None and nbytes % DTYPES[found] == 0:
            return found
        self.left["collectives that tell no dtype taken as bfloat16"] += 1
        return "bfloat16" if nbytes % 2 == 0 else "uint8"


Part = tuple[int, int]  # a rank, and the number of its node


class _Joined:
    """All ranks' nodes as entries: one for a call of all its members, one for equal kernels."""

    def __init__(self, files: Sequence[_Rank], *, alike: bool) -> None:
        self.alike, self.path = alike, files[0].path
        self.steps = [{one[0].number: one for one in file.steps(joined=True)} for file in files]
        self.rows: dict[object, list[tuple[Part, ...]]] = {}
        met: dict[object, list[Part]] = {}
        for rank, steps in enumerate(self.steps):
            for number, (node, call, after) in steps.items():
                if call is None:
                    key = (number, node.name, node.micros, after, alike or rank)
                    self.rows.setdefault(key, []).append(((rank, number),))
                else:
                    meeting = (call.collective == "p2p", call.ranks, call.tag, call.turn)
                    met.setdefault(meeting, []).append((rank, number))
        for parts in met.values():
            self._meet(dict(parts))

    def call(self, rank: int, number: int) -> _Call:
        """The call of a node."""
        call = self.steps[rank][number][1]
        assert call is not None
        return call

    def _meet(self, numbers: dict[int, int]) -> None:
        """Bring the members of a call together; equal calls of all members are one entry."""
        first = self.call(*next(iter(numbers.items())))
        where = f"{self.path}: call {first.turn} of {first.stream} ({first.name})"
        for rank in first.ranks:
            if rank not in numbers:
                raise InputError(f"{where}: rank {rank} takes no part in it")
            one = self.call(rank, numbers[rank])
            if (one.collective, one.nbytes) != (first.collective, first.nbytes):
                raise InputError(
                    f"{where} is {first.collective} of {first.nbytes} bytes, but that of rank "
                    f"{rank} is {one.collective} of {one.nbytes}"
                )
        row = tuple((rank, numbers[rank]) for rank in first.ranks)
        seen = tuple((number, self.steps[rank][number][2]) for rank, number in row)
        key = (first.collective, first.nbytes, first.dtype, seen, self.alike or row)
        self.rows.setdefault(key, []).append(row)

    def tape(self) -> Tape:
        """The entries, in an order in which each comes after what its ranks wait for."""
        rows = list(self.rows.values())
        place = {part: k for k, one in enumerate(rows) for row in one for part in row}
        waits: list[set[int]] = [set() for _ in rows]
        graph: dict[int, set[int]] = {k: set() for k in range(len(rows))}
        for rank, steps in enumerate(self.steps):
            last = set[int]()
            for number, (_, call, after) in steps.items():
                here = place[rank, number]
                waits[here] |= {place[rank, one] for one in after}
                if call is None:
                    graph[here] |= last
                    last = {here}
        for k, one in enumerate(waits):
            graph[k] |= one
        return self._written(rows, waits, list(TopologicalSorter(graph).static_order()))

    def _written(
        self, rows: list[list[tuple[Part, ...]]], waits: list[set[int]], sequence: list[int]
    ) -> Tape:
        tape, made = Tape(phase="step"), dict[int, int]()
        arrays: dict[Any, tuple[Ranks, Ranks]] = {}
        streams: dict[str, list[Any]] = {}
        for place in sequence:
            key = tuple(tuple(rank for rank, _ in row) for row in rows[place])
            if key not in arrays:
                groups = np.array(key, np.int32)
                arrays[key] = groups, groups[:, 0].copy()
            after = tuple(sorted(made[one] for one in waits[place]))
            rank, number = rows[place][0][0]
            node, call, _ = self.steps[rank][number]
            if call is None:
                seconds = node.micros * 1e-6
                ranks = arrays[key][1]
                made[place] = tape.compute(node.name, ranks, seconds, after, moving=node.moving)
                continue
            known = streams.setdefault(call.stream, [])
            known += [key] if key not in known else []
            nth = known.index(key)  # groups of other members are other streams
            stream = f"{call.stream} {nth + 1}" if nth else call.stream
            made[place] = call.write(
                tape, arrays[key][0], after, stream, posted=call.collective == "p2p"
            )
        return tape
