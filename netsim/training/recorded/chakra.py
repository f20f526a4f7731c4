"""Chakra execution traces (MLCommons): read, written, and as steps that are simulated."""

import gzip
import json
import re
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from graphlib import CycleError, TopologicalSorter
from heapq import heapify, heappop, heappush
from pathlib import Path

import numpy as np

from netsim.base.errors import InputError
from netsim.base.files import write_bytes, write_text
from netsim.base.values import dataclass
from netsim.training.recorded.kineto import tiled
from netsim.workloads.setting import Ranks
from netsim.workloads.tape import Deps, Tape, Task

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
    "all_reduce", "reduce", "all_gather", "gather", "scatter", "broadcast", "alltoall",
    "reduce_scatter", "reduce_scatter", "barrier",
)  # fmt: skip
ID, NAME, TYPE, CONTROL, DATA, START, DURATION, ATTRIBUTE = 1, 2, 3, 4, 5, 6, 7, 10
# Where a value stands in an attribute, by its type.
INT32, INT64, BOOL, BOOLS, STRING = 7, 9, 27, 28, 29
PARTS = ("all_gather", "gather")  # one rank puts in a part of what nccl-tests counts
VERSION = "0.0.4"
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


def nodes_of(
    tape: Tape, rank: int, groups: dict[tuple[int, ...], int], slowdown: float = 1.0
) -> Iterator[Node]:
    """What one rank does, in order; `groups` numbers the groups as they come up.

    Durations are whole microseconds, of which each rounds away what those before have left over. A
    ring of sends is two nodes, a send and a receive.
    """
    last: dict[str, int] = {}
    made: dict[int, tuple[int, ...]] = {}
    computed = written_so_far = 0.0
    for number, task in enumerate(tape.tasks):
        rows = [row for row in task.groups.tolist() if rank in row]
        if not rows:
            continue
        waits = [*task.after, *([last[task.stream]] if task.stream in last else [])]
        after = tuple(dict.fromkeys(one for wait in waits for one in made.get(wait, ())))
        last[task.stream] = number
        computed += task.seconds * slowdown * 1e6
        micros = round(computed - written_so_far)
        written_so_far += micros
        node = Node(number, _name(task), COMPUTE, after, micros)
        nodes = [node]
        if task.collective:
            nodes = _calls(node, task, rank, tuple(rows[0]), groups, len(tape.tasks) + number)
        made[number] = tuple(one.number for one in nodes)
        yield from nodes


def _name(task: Task) -> str:
    return " ".join(filter(None, (task.layer, task.name)))


def _calls(
    node: Node,
    task: Task,
    rank: int,
    ranks: tuple[int, ...],
    groups: dict[tuple[int, ...], int],
    second: int,
) -> list[Node]:
    """The node of a collective, a send or a receive; of both, the other has the number `second`."""
    if task.collective == "p2p":
        return [_end(node, task, (ranks[0], ranks[1]), node.number, sends=rank == ranks[0])]
    if task.collective == "sendrecv":
        place = ranks.index(rank)
        before, after = ranks[place - 1], ranks[(place + 1) % len(ranks)]
        other = replace(node, number=second)
        return [
            _end(node, task, (rank, after), node.number, sends=True),
            _end(other, task, (before, rank), node.number, sends=False),
        ]
    group = groups.setdefault(ranks, len(groups))
    size = max(1, task.nbytes // len(ranks)) if task.collective in PARTS else task.nbytes
    told: dict[str, Value] = {
        "comm_size": size,
        "comm_type": TYPES.index(task.collective),
        "pg_name": str(group).encode(),
    }
    return [replace(node, kind=COLLECTIVE, micros=0, attributes=told)]


def _end(node: Node, task: Task, pair: tuple[int, int], tag: int, *, sends: bool) -> Node:
    told: dict[str, Value] = {
        "comm_size": task.nbytes, "comm_src": pair[0], "comm_dst": pair[1], "comm_tag": tag,
    }  # fmt: skip
    return replace(node, kind=SEND if sends else RECEIVE, micros=0, attributes=told)


def encoded(nodes: Sequence[Node]) -> bytes:
    """The bytes of a file."""
    messages = [wire_field(1, VERSION), *map(_message, nodes)]
    return b"".join(varint(len(message)) + message for message in messages)


def _message(node: Node) -> bytes:
    parts = [wire_field(ID, node.number), wire_field(NAME, node.name), wire_field(TYPE, node.kind)]
    parts += [wire_field(DATA, one) for one in node.after]
    parts.append(wire_field(DURATION, node.micros))
    kinds = {
        "comm_size": INT64,
        "comm_type": INT64,
        "pg_name": STRING,
        "is_cpu_op": BOOL,
        "involved_dim": BOOLS,
    }
    for name, value in {"is_cpu_op": 0, **node.attributes}.items():
        assert isinstance(value, int | bytes)
        told = wire_field(1, name) + wire_field(kinds.get(name, INT32), value)
        parts.append(wire_field(ATTRIBUTE, told))
    return b"".join(parts)


def decoded(data: bytes) -> list[Node]:
    """The nodes of a file."""
    if data[:2] == b"\x1f\x8b":
        data = gzip.decompress(data)
    found, at, first = [], 0, True
    while at < len(data):
        size, at = read_varint(data, at)
        if at + size > len(data):
            raise InputError("ends in the middle of a node")
        if not first:
            found.append(_read(data[at : at + size]))
        at, first = at + size, False
    return found


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
        elif key in (CONTROL, DATA):
            after += packed(value)
        elif key == DURATION and isinstance(value, int):
            micros = value
        elif key == ATTRIBUTE and isinstance(value, bytes):
            pair = dict(fields(value))
            label = pair.pop(1, b"")
            pair.pop(2, None)
            if isinstance(label, bytes) and pair:
                place, found = next(iter(pair.items()))
                told[label.decode(errors="replace")] = typed(place, found)
    return Node(number, name, kind, tuple(after), micros, told)


def read_rank(path: Path) -> tuple[list[Node], dict[str, tuple[int, ...]]]:
    """The nodes of one rank, in an order in which each comes after what it waits for; and the
    groups that its calls name.
    """
    try:
        nodes = decoded(path.read_bytes())
    except InputError as error:
        raise InputError(f"{path}: {error.message}: cut, or no Chakra trace") from None
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise InputError(f"{path}: the gzip data is cut or damaged") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None
    if not any(node.kind in (COLLECTIVE, SEND, RECEIVE) for node in nodes):
        raise InputError(f"{path}: has no collectives, sends or receives")
    named = any(group_of(node) for node in nodes if node.kind == COLLECTIVE)
    return _ordered(path, nodes), _groups(path.parent / GROUPS) if named else {}


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
        found = json.loads(path.read_text(encoding="utf-8"))
        return {str(name): tuple(int(rank) for rank in ranks) for name, ranks in found.items()}
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (ValueError, TypeError, AttributeError):
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
RANK_IN_NAME = re.compile(r"\.(\d+)\.et$")


def tape_of_rank(path: Path, world: int) -> tuple[Tape, tuple[str, ...]]:
    """The tape, and in words what of the trace is left out."""
    nodes, known = read_rank(path)
    match = RANK_IN_NAME.search(path.name)
    work = _Writing(path, world, known, int(match.group(1)) if match else None)
    made: dict[int, Deps] = {}
    for node in nodes:
        after = tuple(dict.fromkeys(one for n in node.after for one in made.get(n, ())))
        task = work.task(node, after)
        made[node.number] = after if task is None else (task,)
    return work.tape, work.notes()


@dataclass
class _Writing:
    path: Path
    world: int
    known: dict[str, tuple[int, ...]]
    rank: int | None
    tape: Tape = field(default_factory=lambda: Tape(phase="step"))
    left: dict[str, int] = field(default_factory=dict)
    tiles: dict[tuple[bool, tuple[int, ...]], Ranks] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.everyone = np.arange(self.world, dtype=np.int32)

    def notes(self) -> tuple[str, ...]:
        """What was left out."""
        return tuple(f"{count} {what} left out" for what, count in self.left.items())

    def task(self, node: Node, after: Deps) -> int | None:
        """The task of a node; None if it takes no time of a GPU."""
        if node.kind == COMPUTE and not node.attributes.get("is_cpu_op"):
            return self.tape.compute(node.name, self.everyone, node.micros * 1e-6, after)
        if node.kind == COLLECTIVE:
            return self._collective(node, after)
        if node.kind in (SEND, RECEIVE):
            return self._pair(node, after)
        what = "operators of hosts" if node.kind == COMPUTE else "nodes of memory and metadata"
        self.left[what] = self.left.get(what, 0) + 1
        return None

    def _collective(self, node: Node, after: Deps) -> int | None:
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
        return self._call(node, collective, ranks, whole, after, f"group {group}".strip())

    def _pair(self, node: Node, after: Deps) -> int | None:
        ends = [node.attributes.get(name, self.rank) for name in ("comm_src", "comm_dst")]
        nbytes = node.attributes.get("comm_size", 0)
        ranks = tuple(end for end in ends if isinstance(end, int))
        if len(set(ranks)) < 2 or not isinstance(nbytes, int):
            what = "sends and receives without a peer"
            self.left[what] = self.left.get(what, 0) + 1
            return None
        way = f"{ranks[0]}>{ranks[1]}"
        return self._call(node, "p2p", ranks, nbytes, after, f"pairs {way}")

    def _call(
        self, node: Node, collective: str, ranks: tuple[int, ...], nbytes: int, after: Deps,
        stream: str,
    ) -> int | None:  # fmt: skip
        key = (collective == "p2p", ranks)
        if key not in self.tiles:
            tiles = tiled(ranks, self.world)
            backward = collective == "p2p" and ranks[0] > ranks[1]
            self.tiles[key] = np.ascontiguousarray(tiles[:, ::-1]) if backward else tiles
        return self.tape.collective(
            node.name, GROUP, collective, self.tiles[key], nbytes, after, stream=stream,
            dtype="uint8",
        )  # fmt: skip
