"""Read and write Chakra execution traces (MLCommons), and make a training step of them."""

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

VARINT = 0
FIXED64 = 1
LENGTH = 2
FIXED32 = 5
Value = int | float | bytes


def varint(number: int) -> bytes:
    """Encode an unsigned number in protobuf's format: seven bits per byte, the lowest first."""
    encoded_bytes = bytearray()
    while number > 0x7F:
        encoded_bytes.append(number & 0x7F | 0x80)
        number >>= 7
    encoded_bytes.append(number)
    return bytes(encoded_bytes)


def wire_field(number: int, value: int | bytes | str) -> bytes:
    """Return a field of a protobuf message as bytes; `number` is the number of the field."""
    if isinstance(value, int):
        return varint(number << 3 | VARINT) + varint(value)
    content = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | LENGTH) + varint(len(content)) + content


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """The number that is encoded at position `at`, and the position after it."""
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise InputError("ends in the middle of a number")
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at = at + 1
        shift = shift + 7
        if byte < 0x80:
            return value, at


def fields(data: bytes) -> Iterator[tuple[int, Value]]:
    """Yield (number, value) of all fields of a protobuf message, in order."""
    at = 0
    while at < len(data):
        key, at = read_varint(data, at)
        kind = key & 7
        if kind == VARINT:
            value: Value
            value, at = read_varint(data, at)
        elif kind == LENGTH:
            size, at = read_varint(data, at)
            value = data[at : at + size]
            at = at + size
        elif kind in (FIXED64, FIXED32):
            size, form = (8, "<d") if kind == FIXED64 else (4, "<f")
            if at + size > len(data):
                raise InputError("ends in the middle of a field")
            value = struct.unpack(form, data[at : at + size])[0]
            at = at + size
        else:
            raise InputError(f"holds a field of the unknown kind {kind}")
        if at > len(data):
            raise InputError("ends in the middle of a field")
        yield key >> 3, value


# The field number of an attribute's value is its type. Wire types alone do not say whether a number
# is signed, zigzag-encoded, or an integer of fixed size. The field numbers by encoding:
SIGNED = (7, 9)
ZIGZAG = (15, 17)
FIXED_SIZE_INTEGERS = {19: ("<f", "<I"), 21: ("<d", "<Q"), 23: ("<f", "<i"), 25: ("<d", "<q")}


def typed(number: int, value: Value) -> Value:
    """The value of an attribute, decoded by the field number of its type."""
    if number in SIGNED and isinstance(value, int):
        return value - (1 << 64) if value >> 63 else value
    if number in ZIGZAG and isinstance(value, int):
        return (value >> 1) ^ -(value & 1)
    if number in FIXED_SIZE_INTEGERS and isinstance(value, float):
        read, meant = FIXED_SIZE_INTEGERS[number]
        integer: int = struct.unpack(meant, struct.pack(read, value))[0]
        return integer
    return value


def packed(value: Value) -> list[int]:
    """Return the numbers of a packed field, or the single number of a field that is not packed."""
    if isinstance(value, int):
        return [value]
    if not isinstance(value, bytes):
        raise InputError("holds a list of fractions where node numbers are expected")
    numbers = []
    at = 0
    while at < len(value):
        number, at = read_varint(value, at)
        numbers.append(number)
    return numbers


# Chakra execution traces: one file `NAME.RANK.et` for each rank, and the groups of ranks in
# groups.json. A file is a sequence of messages, each preceded by its length: the first describes
# the trace, the others are its nodes (MLCommons Chakra, et_def.proto). The size of a collective
# there is the number of bytes that one rank contributes.

# Types of nodes (`NodeType` in et_def.proto).
COMPUTE = 4
SEND = 5
RECEIVE = 6
COLLECTIVE = 7
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
ID = 1
NAME = 2
TYPE = 3
CONTROL = 4
DATA = 5
START = 6
DURATION = 7
INPUTS = 8
ATTRIBUTE = 10
TYPES_IN = {1: "values", 3: "types"}  # fields of a node's inputs
# Field numbers of an attribute's value, by the type of the value.
INT32 = 7
INT64 = 9
BOOL = 27
BOOLS = 28
STRING = 29
SENDS_ONE_PART = ("all_gather", "gather")  # a rank sends 1/n of the size that nccl-tests counts
VERSION = "0.0.4"
RAN_ALONE = "kernels_alone"  # attribute of a trace: its kernels ran without collectives beside them
MOVING = "moving_micros"  # attribute of a kernel: how long it only moves bytes, with few SMs
GROUPS = "groups.json"


@dataclass(frozen=True)
class TraceNode:
    """One node of a trace: a kernel, a send, a receive or a collective.

    - `after`: the numbers of the nodes that it waits for.
    - `micros`: its duration in microseconds.
    - `attributes`: what a communication node moves.
    """

    number: int
    name: str
    kind: int
    after: tuple[int, ...] = ()
    micros: int = 0
    attributes: Mapping[str, Value] = field(default_factory=dict)

    @property
    def moving(self) -> float:
        """The seconds of a kernel in which it only moves bytes."""
        micros = self.attributes.get(MOVING, 0)
        return min(micros, self.micros) * 1e-6 if isinstance(micros, int) else 0.0


def nodes_of(
    tape: Tape, rank: int, groups: dict[tuple[int, ...], int], slowdown: float = 1.0
) -> Iterator[TraceNode]:
    """Yield the nodes of one rank of a tape, in order.

    Durations are whole microseconds, rounded such that their running sum stays exact to half a
    microsecond. A step of a ring of sends becomes two nodes, a send and a receive.

    Args:
        groups: the number of each group; new groups are added.
        slowdown: factor on the compute times of this rank.
    """
    last: dict[str, int] = {}
    made: dict[int, tuple[int, ...]] = {}
    computed = written_so_far = 0.0
    for number, entry in enumerate(tape.entries):
        rows = [row for row in entry.groups.tolist() if rank in row]
        if not rows:
            continue
        # A receive that was posted ahead waits for no kernel.
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
        node = TraceNode(number, name, COMPUTE, after, micros, {MOVING: moving} if moving else {})
        nodes = [node]
        if entry.collective:
            nodes = _calls(node, entry, rank, tuple(rows[0]), groups, len(tape.entries) + number)
        made[number] = tuple(one.number for one in nodes)
        yield from nodes


def _calls(
    node: TraceNode,
    entry: TapeEntry,
    rank: int,
    ranks: tuple[int, ...],
    groups: dict[tuple[int, ...], int],
    second: int,
) -> list[TraceNode]:
    """Return the nodes of a collective, send or receive on one rank: one node, or a send and a
    receive for a step of a ring of sends.

    Args:
        node: a node with the number and the dependencies of the first node.
        entry: the entry of the tape.
        rank: the rank.
        ranks: the ranks of its group, in order.
        groups: the number of each group; a new group is added.
        second: number of a second node.
    """
    if entry.collective == "p2p":
        return [_end_node(node, entry, (ranks[0], ranks[1]), node.number, sends=rank == ranks[0])]
    if entry.collective == "sendrecv":
        place = ranks.index(rank)
        before = ranks[place - 1]
        after = ranks[(place + 1) % len(ranks)]
        receive = replace(node, number=second)
        return [
            _end_node(node, entry, (rank, after), node.number, sends=True),
            _end_node(receive, entry, (before, rank), node.number, sends=False),
        ]
    group = groups.setdefault(ranks, len(groups) + 1)  # ASTRA-sim takes 0 for no group
    size = (
        max(1, entry.nbytes // len(ranks)) if entry.collective in SENDS_ONE_PART else entry.nbytes
    )
    attributes: dict[str, Value] = {
        "comm_size": size,
        "comm_type": TYPES.index(entry.collective),
        "pg_name": str(group).encode(),
        "dtype": entry.dtype.encode(),
    }
    return [replace(node, kind=COLLECTIVE, micros=0, attributes=attributes)]


def _end_node(
    node: TraceNode, entry: TapeEntry, pair: tuple[int, int], tag: int, *, sends: bool
) -> TraceNode:
    """The node of one rank's send or receive.

    `pair` is (source, destination), `sends` says which of both the rank does, `tag` is equal for
    both.
    """
    attributes: dict[str, Value] = {
        "comm_size": entry.nbytes,
        "comm_src": pair[0],
        "comm_dst": pair[1],
        "comm_tag": tag,
    }
    return replace(node, kind=SEND if sends else RECEIVE, micros=0, attributes=attributes)


def encoded(nodes: Sequence[TraceNode]) -> bytes:
    """The content of a trace file with these nodes."""
    alone = wire_field(2, wire_field(1, RAN_ALONE) + wire_field(BOOL, 1))
    messages = [wire_field(1, VERSION) + alone, *map(_message, nodes)]
    return b"".join(varint(len(message)) + message for message in messages)


def _message(node: TraceNode) -> bytes:
    """A node as a protobuf message."""
    parts = [wire_field(ID, node.number), wire_field(NAME, node.name), wire_field(TYPE, node.kind)]
    parts += [wire_field(DATA, one) for one in node.after]
    parts.append(wire_field(DURATION, node.micros))
    kinds = {
        "comm_size": INT64, "comm_type": INT64, "pg_name": STRING, "dtype": STRING,
        "is_cpu_op": BOOL, "involved_dim": BOOLS,
    }  # fmt: skip
    for name, value in {"is_cpu_op": 0, **node.attributes}.items():
        assert isinstance(value, int | bytes)
        attribute = wire_field(1, name) + wire_field(kinds.get(name, INT32), value)
        parts.append(wire_field(ATTRIBUTE, attribute))
    return b"".join(parts)


def decoded(data: bytes) -> list[TraceNode]:
    """The nodes of a trace file, from its content."""
    messages = []
    at = 0
    while at < len(data):
        size, at = read_varint(data, at)
        if at + size > len(data):
            raise InputError("ends in the middle of a node")
        messages.append(data[at : at + size])
        at += size
    return [_read(message) for message in messages[1:]]


def _read(data: bytes) -> TraceNode:
    """A node, from its protobuf message."""
    number = kind = micros = 0
    name = ""
    after = list[int]()
    attributes = dict[str, Value]()
    for key, value in fields(data):
        if key == ID and isinstance(value, int):
            number = value
        elif key == NAME and isinstance(value, bytes):
            name = value.decode(errors="replace")
        elif key == TYPE and isinstance(value, int):
            kind = value
        elif key == DATA:  # CONTROL says which node called which, not what waits for what
            after += packed(value)
        elif key == DURATION and isinstance(value, int):
            micros = value
        elif key == INPUTS and isinstance(value, bytes):
            attributes |= {TYPES_IN[k]: v for k, v in fields(value) if k in TYPES_IN}
        elif key == ATTRIBUTE and isinstance(value, bytes):
            pair = dict(fields(value))
            label = pair.pop(1, b"")
            pair.pop(2, None)
            if isinstance(label, bytes) and pair:
                place, field_value = next(iter(pair.items()))
                attributes[label.decode(errors="replace")] = typed(place, field_value)
    return TraceNode(number, name, kind, tuple(after), micros, attributes)


# Three forms of a trace in JSON: that of Chakra's feeder (`workload_graph`), protobuf messages as
# JSON, and that of PyTorch's ExecutionTraceObserver (`schema`, `nodes`). The last has durations
# only if kernels of a profile were linked to it.

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
PLAIN_ATTRIBUTES = (
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
PARSE_ERRORS = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)


def is_execution_trace(path: Path) -> bool:
    """Whether a file is a Chakra trace or an execution trace of PyTorch, but not a profile."""
    if path.suffix == ".et":
        return True
    head = head_of(path)
    return b'"traceEvents"' not in head and JSON_MARKS.search(head) is not None


def ran_alone(path: Path) -> bool:
    """Whether netsim wrote a trace, in which case its kernels ran without collectives
    beside them.
    """
    with path.open("rb") as file:
        return RAN_ALONE.encode() in file.read(256)


def nodes_of_json(text: str) -> list[TraceNode]:
    """Return the nodes of a trace in JSON."""
    decoder = json.JSONDecoder()
    at = 0
    documents = list[Any]()
    while at < len(text):
        document, at = decoder.raw_decode(text, at)
        documents.append(document)
        at += len(text[at:]) - len(text[at:].lstrip()) if text[at : at + 1].isspace() else 0
    first = documents[0] if documents and isinstance(documents[0], dict) else {}
    if "schema" in first:
        return _nodes_of_pytorch(first["nodes"])
    rest = first["workload_graph"] if "workload_graph" in first else documents[1:]
    return [_node_of_json(document) for document in rest]


def _node_of_json(node: Mapping[str, Any]) -> TraceNode:
    """A node, from its JSON form."""
    attributes = {name: _plain_value(node[name]) for name in PLAIN_ATTRIBUTES if name in node}
    for attribute in node.get("attr", ()):
        values = [v for name, v in attribute.items() if name not in ("name", "docString")]
        attributes[attribute["name"]] = _plain_value(values[-1]) if values else 0
    attributes |= {name: text.encode() for name, text in node.get("inputs", {}).items()}
    kind = node.get("NodeType", node.get("type", 0))
    return TraceNode(
        int(node.get("Id", node.get("id", 0))),
        str(node.get("Name", node.get("name", ""))),
        KINDS.index(kind) if kind in KINDS else int(kind),
        tuple(map(int, node.get("data_deps", node.get("dataDeps", ())))),
        int(node.get("runtime", node.get("durationMicros", 0))),
        attributes,
    )


def _plain_value(value: object) -> Value:
    """The value of an attribute as a number if it is one in text form, otherwise as bytes."""
    if isinstance(value, str) and not value.lstrip("-").isdigit():
        return value.encode()
    return int(value) if isinstance(value, str | bool) else value  # type: ignore[return-value]


def _nodes_of_pytorch(nodes: Sequence[Mapping[str, Any]]) -> list[TraceNode]:
    """The calls of an execution trace of PyTorch in the order of the host, and its kernels if it
    has any.

    A call waits for the last kernel launched before it and for the last call of its group; the
    kernel after a `wait` waits for all calls before it.
    """
    trace_nodes = list[TraceNode]()
    calls = dict[str, int]()
    kernels = list[int]()
    waits = list[int]()
    records = {node["id"] for node in nodes if node["name"] == RECORD}
    for node in sorted(nodes, key=lambda node: int(node["id"])):
        number = int(node["id"])
        name = str(node["name"])
        inputs = node.get("inputs", {})
        if GROUPS_MADE in name:
            trace_nodes.append(
                TraceNode(number, name, METADATA, (), 0, {"values": str(inputs).encode()})
            )
        elif name == RECORD:
            call = _call_of_record(number, inputs, kernels[-1:])
            if call is None and "wait" in inputs["values"]:
                waits = list(calls.values())
            elif call is not None:
                earlier = [calls[node] for node in (group_of(call),) if node in calls]
                trace_nodes.append(replace(call, after=(*call.after, *earlier)))
                calls[group_of(call)] = number
        elif node.get("cat") is not None and node.get("ctrl_deps") not in records:
            after = (*waits, *map(int, node.get("sync_dep") or ()))
            trace_nodes.append(
                TraceNode(number, name, COMPUTE, after, round(node.get("exclusive_dur", 0)))
            )
            kernels = [number]
            waits = []
    return trace_nodes


def _call_of_record(
    number: int, inputs: Mapping[str, Any], after: Sequence[int]
) -> TraceNode | None:
    """The call of a `record_param_comms` node; its inputs are tensors, group, rank and name, in
    this order.
    """
    values = inputs["values"]
    place, match = next(
        ((k, m) for k, v in enumerate(values) if isinstance(v, str) and (m := SPELT.match(v))),
        (0, None),
    )
    if match is None or place < 3:
        return None
    kind = str(match.lastgroup)
    group = values[place - 2]
    attributes: dict[str, Value] = {
        "comm_size": _bytes_in(values[0]),
        "types": str(inputs["types"][0]).encode(),
        "pg_name": str(group[0] if isinstance(group, list) else group).encode(),
    }
    if kind in TYPES:
        attributes["comm_type"] = TYPES.index(kind)
        return TraceNode(number, kind, COLLECTIVE, tuple(after), 0, attributes)
    sends = values[place].lower().startswith("send")
    attributes["comm_dst" if sends else "comm_src"] = values[place - 1]
    return TraceNode(number, kind, SEND if sends else RECEIVE, tuple(after), 0, attributes)


def _bytes_in(value: Any) -> int:
    """The bytes of several tensors, each of which is [id, storage, offset, elements, bytes per
    element, device].
    """
    if isinstance(value, list) and len(value) == 6 and isinstance(value[5], str):
        return int(value[3]) * int(value[4])
    return sum(map(_bytes_in, value)) if isinstance(value, list) else 0


def read_rank(path: Path) -> tuple[list[TraceNode], dict[str, tuple[int, ...]]]:
    """The nodes of a rank's file, ordered such that each comes after the nodes that it waits for,
    and the groups of its calls.
    """
    content = unpacked(path)
    try:
        in_json = content.lstrip()[:1] == b"{"
        nodes = nodes_of_json(content.decode()) if in_json else decoded(content)
    except InputError as error:
        raise InputError(f"{path}: {error.message}: cut, or no Chakra trace") from None
    except PARSE_ERRORS as error:
        raise InputError(f"{path}: cut, or no execution trace in JSON: {error}") from None
    if not any(node.kind in (COLLECTIVE, SEND, RECEIVE) for node in nodes):
        raise InputError(f"{path}: has no collectives, sends or receives")
    groups = {name: ranks for node in nodes for name, ranks in _declared(node)}
    named = any(group_of(node) not in ("", *groups) for node in nodes if node.kind == COLLECTIVE)
    return _ordered(path, nodes), groups | (_groups(path.parent / GROUPS) if named else {})


def _declared(node: TraceNode) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield the groups that a node of PyTorch declares, by name and by number of the backend."""
    text = node.attributes.get("values", b"")
    if GROUPS_MADE not in node.name or not isinstance(text, bytes):
        return
    match = re.search(r"\[\{.*\}\]", text.decode(errors="replace").replace("\\", ""))
    for group in json.loads(match[0]) if match else ():
        ranks = tuple(group.get("ranks") or range(int(group.get("group_size", 0))))
        yield from ((str(group[key]), ranks) for key in ("pg_name", "backend_id") if key in group)


def group_of(node: TraceNode) -> str:
    """Return the group of a collective (`comm_group` in older traces); "" for all ranks."""
    attributes = node.attributes
    name = attributes.get("pg_name", attributes.get("comm_group", b""))
    return name.decode(errors="replace") if isinstance(name, bytes) else str(name)


def spans_all(node: TraceNode) -> bool:
    """Whether a collective without a group covers all dimensions of its network."""
    value = node.attributes.get("involved_dim", b"")
    if not isinstance(value, bytes):
        return True
    return all(flag for _, flags in fields(value) for flag in packed(flags))


def _groups(path: Path) -> dict[str, tuple[int, ...]]:
    """The ranks of each group by name, from groups.json beside the trace."""
    try:
        groups = json.loads(text_of(path, LARGEST_TABLE))
        return {str(name): tuple(int(rank) for rank in ranks) for name, ranks in groups.items()}
    except PARSE_ERRORS:
        raise InputError(f'{path}: expected groups as {{"0": [0, 1, …]}}') from None


def _ordered(path: Path, nodes: Sequence[TraceNode]) -> list[TraceNode]:
    """The nodes, ordered such that each comes after those it waits for, otherwise in the order of
    the file.
    """
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
    ordered: list[TraceNode] = []
    ready = [place[number] for number in sorter.get_ready()]
    heapify(ready)
    while ready:
        node = nodes[heappop(ready)]
        ordered.append(node)
        sorter.done(node.number)
        for number in sorter.get_ready():
            heappush(ready, place[number])
    return ordered


def write_ranks(
    folder: Path,
    name: str,
    tape: Tape,
    ranks: Sequence[int],
    slowdown: Mapping[int, float] | None = None,
) -> list[Path]:
    """Write a trace file for every rank, and the file of groups; return their paths.

    `slowdown` is by rank the factor on its compute times.
    """
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
    """The tape of a trace, from the files of all ranks, of which `path` is one; and notes on what
    is left out.
    """
    match = RANK_IN_NAME.search(path.name)
    if match is None:
        return _tape_of_one(path, world, None)
    file_of_rank = {
        int(name_match[1]): rank_file
        for rank_file in sorted(path.parent.glob(f"{glob.escape(path.name[: match.start()])}.*"))
        if (name_match := RANK_IN_NAME.search(rank_file.name))
        and rank_file.name
        == f"{path.name[: match.start()]}.{name_match[1]}{path.name[match.end(1) :]}"
    }
    if len(file_of_rank) < 2:
        return _tape_of_one(path, world, int(match[1]))
    if sorted(file_of_rank) != list(range(world)):
        missing_rank = next(
            (rank for rank in range(max(file_of_rank)) if rank not in file_of_rank), None
        )
        lacks = "" if missing_rank is None else f", of which that of rank {missing_rank} is missing"
        raise InputError(
            f"{path}: beside it are files of ranks up to {max(file_of_rank)}{lacks}, but the "
            f"cluster has {world} GPUs",
            hint="set cluster.nodes to match, or leave one file alone: all ranks then do the same",
        )
    files = [
        _Rank(file_of_rank[rank], world, rank, *read_rank(file_of_rank[rank]))
        for rank in sorted(file_of_rank)
    ]
    try:
        tape = _Joined(files, merge_equal=True).tape()
    except CycleError:
        try:
            tape = _Joined(files, merge_equal=False).tape()
        except CycleError:
            raise InputError(f"{path}: the ranks' calls wait for each other") from None
    left_out = sum((rank_file.left_out for rank_file in files), Counter[str]())
    return tape, tuple(f"{count} {what}" for what, count in left_out.items())


def _tape_of_one(path: Path, world: int, rank: int | None) -> tuple[Tape, tuple[str, ...]]:
    """The tape on which every rank does the same as the rank of the one file that exists."""
    rank_file = _Rank(path, world, rank, *read_rank(path))
    tape = Tape(phase="step")
    everyone = np.arange(world, dtype=np.int32)
    entry_of_node = dict[int, int]()
    tiles: dict[tuple[bool, Members], Ranks] = {}
    for node, call, numbers in rank_file.steps():
        after = tuple(entry_of_node[number] for number in numbers)
        if call is None:
            seconds = node.micros * 1e-6
            entry_of_node[node.number] = tape.compute(
                node.name, everyone, seconds, after, moving=node.moving
            )
            continue
        key = (call.collective == "p2p", call.ranks)
        if key not in tiles:
            tiles[key] = groups_of(key, world)
        entry_of_node[node.number] = call.write(tape, tiles[key], after, call.stream)
    notes = [f"{count} {what}" for what, count in rank_file.left_out.items()]
    if world > 1:
        notes.insert(0, "one rank's file taken for all ranks")
    return tape, tuple(notes)


@dataclass(frozen=True)
class _Call:
    """The collective, send or receive of a node.

    `ranks` of a p2p call are source and destination. `sequence` counts the calls with the same
    `ranks` and `tag`; the members of a call have the same count, by which they are matched.
    """

    collective: str
    ranks: Members
    nbytes: int
    dtype: str
    stream: str
    name: str
    tag: Value = 0
    sequence: int = 0

    def write(
        self, tape: Tape, groups: Ranks, after: Deps, stream: str, *, posted: bool = False
    ) -> int:
        """Add the call to a tape in each of `groups`, after the entries `after`; return the number
        of its entry.
        """
        (made,) = tape.collective(  # one entry, as calls have at least two ranks and one byte
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
    """The file of one rank, and the number of nodes that are left out, by reason; `rank` is None if
    it is not known.
    """

    path: Path
    world: int
    rank: int | None
    nodes: list[TraceNode]
    groups: dict[str, Members]
    left_out: Counter[str] = field(default_factory=Counter)

    def steps(
        self, *, joined: bool = False
    ) -> Iterator[tuple[TraceNode, _Call | None, tuple[int, ...]]]:
        """Yield (node, call, numbers of the nodes that it waits for) of all nodes that take time;
        the call of a kernel is None.

        Nodes that take no time are replaced by the nodes that they wait for. Calls of the same
        ranks run in order. If the files of all ranks are `joined`, a receive itself waits for
        earlier calls of the same ranks only, as if it were posted ahead. A node after the receive
        waits for the receive and for all that the file says the receive waits for.
        """
        rows_of_node: dict[int, tuple[int, ...]] = {}
        waits_of_row: dict[int, tuple[int, ...]] = {}
        last_call: dict[object, tuple[int, int]] = {}
        for node in self.nodes:
            awaited_rows = dict.fromkeys(k for n in node.after for k in rows_of_node.get(n, ()))
            implied = {k for n in awaited_rows for k in waits_of_row.get(n, ())}
            after = tuple(k for k in awaited_rows if k not in implied)
            call = self._call(node)
            rows_of_node[node.number] = (node.number,)
            if call is not None:
                line = (call.collective == "p2p", call.ranks, call.tag)
                earlier_calls, last = last_call.get(line, (0, node.number))
                after = after if not earlier_calls or last in after else (*after, last)
                last_call[line] = (earlier_calls + 1, node.number)
                if joined and node.kind == RECEIVE:
                    others = tuple(k for k in after if k != last)
                    rows_of_node[node.number], after = (
                        (node.number, *others),
                        (last,) * (earlier_calls > 0),
                    )
                waits_of_row[node.number] = after
                yield node, replace(call, sequence=earlier_calls + 1), after
            elif node.kind == COMPUTE and not node.attributes.get("is_cpu_op"):
                waits_of_row[node.number] = after
                yield node, None, after
            else:
                rows_of_node[node.number] = after

    def _call(self, node: TraceNode) -> _Call | None:
        """The call of a node; None for a kernel and for a node that takes no time, which is counted
        as left out.
        """
        if node.attributes.get("is_cpu_op"):
            self.left_out["operators of hosts left out"] += 1
        elif node.kind == COLLECTIVE:
            return self._collective(node)
        elif node.kind in (SEND, RECEIVE):
            ends = [node.attributes.get(name, self.rank) for name in ("comm_src", "comm_dst")]
            nbytes = node.attributes.get("comm_size", 0)
            ranks = tuple(end for end in ends if isinstance(end, int))
            if len(set(ranks)) < 2 or not isinstance(nbytes, int) or nbytes <= 0:
                self.left_out["sends and receives without a peer left out"] += 1
                return None
            label = f"pairs {ranks[0]}>{ranks[1]}"
            tag = node.attributes.get("comm_tag", 0)
            return _Call("p2p", ranks, nbytes, "uint8", label, node.name, tag)
        elif node.kind != COMPUTE:
            self.left_out["nodes of memory and metadata left out"] += 1
        return None

    def _collective(self, node: TraceNode) -> _Call | None:
        """The collective of a node; None if it moves nothing."""
        kind = node.attributes.get("comm_type")
        nbytes = node.attributes.get("comm_size")
        has_known_type = isinstance(kind, int) and 0 <= kind < len(TYPES)
        if not has_known_type or not isinstance(nbytes, int):
            raise InputError(
                f"{self.path}: node {node.number} ({node.name}) has no comm_type or comm_size"
            )
        collective = TYPES[int(kind or 0)]
        group = group_of(node)
        if collective == "barrier" or nbytes <= 0:
            return None
        if group and group not in self.groups:
            raise InputError(
                f"{self.path}: node {node.number} is of group {group!r}, which groups.json lacks"
            )
        if not group and not spans_all(node):
            raise InputError(
                f"{self.path}: node {node.number} is over some dimensions of a network only "
                "(involved_dim)",
                hint="give it a pg_name, and its ranks in groups.json",
            )
        ranks = self.groups[group] if group else tuple(range(self.world))
        if len(ranks) < 2:
            return None
        total_bytes = nbytes * len(ranks) if collective in SENDS_ONE_PART else nbytes
        label = f"group {group}".strip()
        return _Call(
            collective, ranks, total_bytes, self._dtype(node, total_bytes), label, node.name
        )

    def _dtype(self, node: TraceNode, nbytes: int) -> str:
        """The data type of a collective, from an attribute or the name of the kernel; a guess is
        counted in `left_out`.
        """
        spelled = node.attributes.get("dtype", node.attributes.get("types", b""))
        text = spelled.decode(errors="replace") if isinstance(spelled, bytes) else ""
        dtype = (
            text if text in DTYPES else spelt_dtype(text) or spelt_dtype(node.name.split("(")[0])
        )
        if dtype is not None and nbytes % DTYPES[dtype] == 0:
            return dtype
        self.left_out["collectives that tell no dtype taken as bfloat16"] += 1
        return "bfloat16" if nbytes % 2 == 0 else "uint8"


NodePart = tuple[int, int]  # a rank and the number of one of its nodes


class _Joined:
    """The nodes of all ranks as entries of one tape.

    A call is one entry for all its members. With `merge_equal`, equal kernels and equal calls of
    several ranks are one entry as well.
    """

    def __init__(self, files: Sequence[_Rank], *, merge_equal: bool) -> None:
        self.merge_equal = merge_equal
        self.path = files[0].path
        self.steps = [{one[0].number: one for one in file.steps(joined=True)} for file in files]
        self.rows: dict[object, list[tuple[NodePart, ...]]] = {}
        parts_of_call: dict[object, list[NodePart]] = {}
        for rank, steps in enumerate(self.steps):
            for number, (node, call, after) in steps.items():
                if call is None:
                    key = (number, node.name, node.micros, after, merge_equal or rank)
                    self.rows.setdefault(key, []).append(((rank, number),))
                else:
                    call_key = (call.collective == "p2p", call.ranks, call.tag, call.sequence)
                    parts_of_call.setdefault(call_key, []).append((rank, number))
        for parts in parts_of_call.values():
            self._join_call(dict(parts))

    def call(self, rank: int, number: int) -> _Call:
        """The call of the node `number` of a rank."""
        call = self.steps[rank][number][1]
        assert call is not None
        return call

    def _join_call(self, numbers: dict[int, int]) -> None:
        """Join the nodes of a call's members to one entry; an error if they disagree about the
        call.
        """
        first = self.call(*next(iter(numbers.items())))
        where = f"{self.path}: call {first.sequence} of {first.stream} ({first.name})"
        for rank in first.ranks:
            if rank not in numbers:
                raise InputError(f"{where}: rank {rank} takes no part in it")
            call = self.call(rank, numbers[rank])
            if (call.collective, call.nbytes) != (first.collective, first.nbytes):
                raise InputError(
                    f"{where} is {first.collective} of {first.nbytes} bytes, but that of rank "
                    f"{rank} is {call.collective} of {call.nbytes}"
                )
        row = tuple((rank, numbers[rank]) for rank in first.ranks)
        waits = tuple((number, self.steps[rank][number][2]) for rank, number in row)
        key = (first.collective, first.nbytes, first.dtype, waits, self.merge_equal or row)
        self.rows.setdefault(key, []).append(row)

    def tape(self) -> Tape:
        """The tape, on which each entry comes after those that its ranks wait for."""
        rows = list(self.rows.values())
        place = {
            part: place_number
            for place_number, rows_of_entry in enumerate(rows)
            for row in rows_of_entry
            for part in row
        }
        waits: list[set[int]] = [set() for _ in rows]
        graph: dict[int, set[int]] = {place_number: set() for place_number in range(len(rows))}
        for rank, steps in enumerate(self.steps):
            last = set[int]()
            for number, (_, call, after) in steps.items():
                here = place[rank, number]
                waits[here] |= {place[rank, awaited] for awaited in after}
                if call is None:
                    graph[here] |= last
                    last = {here}
        for place_number, awaited_places in enumerate(waits):
            graph[place_number] |= awaited_places
        return self._written(rows, waits, list(TopologicalSorter(graph).static_order()))

    def _written(
        self, rows: list[list[tuple[NodePart, ...]]], waits: list[set[int]], sequence: list[int]
    ) -> Tape:
        """A tape with the entries in the order of `sequence`.

        Args:
            rows: by entry, the nodes of each of its groups of ranks.
            waits: by entry, the entries that it waits for.
            sequence: the entries in an order that respects `waits`.
        """
        tape = Tape(phase="step")
        entry_of_row: dict[int, int] = {}
        arrays: dict[Any, tuple[Ranks, Ranks]] = {}
        streams: dict[str, list[Any]] = {}
        for place in sequence:
            key = tuple(tuple(rank for rank, _ in row) for row in rows[place])
            if key not in arrays:
                groups = np.array(key, np.int32)
                arrays[key] = groups, groups[:, 0].copy()
            after = tuple(sorted(entry_of_row[one] for one in waits[place]))
            rank, number = rows[place][0][0]
            node, call, _ = self.steps[rank][number]
            if call is None:
                seconds = node.micros * 1e-6
                ranks = arrays[key][1]
                entry_of_row[place] = tape.compute(
                    node.name, ranks, seconds, after, moving=node.moving
                )
                continue
            member_lists = streams.setdefault(call.stream, [])
            member_lists += [key] if key not in member_lists else []
            nth = member_lists.index(key)  # groups with different members run in different streams
            stream = f"{call.stream} {nth + 1}" if nth else call.stream
            entry_of_row[place] = call.write(
                tape, arrays[key][0], after, stream, posted=call.collective == "p2p"
            )
        return tape
