"""Chakra execution traces: a file a rank, `NAME.RANK.et`, and the groups of ranks in JSON beside.

A file is a sequence of messages, each behind its length: first about the trace, then its nodes
(MLCommons Chakra, et_def.proto).
"""

import gzip
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from netsim.errors import InputError
from netsim.training.recorded.wire import Value, fields, packed, read_varint, varint
from netsim.training.recorded.wire import field as written
from netsim.workloads.tape import Tape, Task

COMPUTE, SEND, RECEIVE, COLLECTIVE = 4, 5, 6, 7  # kinds of nodes
TYPES = (
    "all_reduce", "reduce", "all_gather", "gather", "scatter", "broadcast", "alltoall",
    "reduce_scatter", "reduce_scatter", "barrier",
)  # fmt: skip
ID, NAME, TYPE, CONTROL, DATA, START, DURATION, ATTRIBUTE = 1, 2, 3, 4, 5, 6, 7, 10
# Where a value stands in an attribute, by its type.
INT32, INT64, UINT64, BOOL, STRING = 7, 9, 13, 27, 29
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


def nodes_of(tape: Tape, rank: int, groups: dict[tuple[int, ...], int]) -> Iterator[Node]:
    """What one rank does, in order; `groups` numbers the groups as they come up."""
    last: dict[str, int] = {}
    for number, task in enumerate(tape.tasks):
        rows = [row for row in task.groups.tolist() if rank in row]
        if not rows:
            continue
        after = [one for one in task.after if rank in tape.tasks[one].groups]
        after += [last[task.stream]] if task.stream in last else []
        last[task.stream] = number
        yield _node(number, task, rank, tuple(rows[0]), tuple(dict.fromkeys(after)), groups)


def _node(
    number: int,
    task: Task,
    rank: int,
    ranks: tuple[int, ...],
    after: tuple[int, ...],
    groups: dict[tuple[int, ...], int],
) -> Node:
    name = " ".join(filter(None, (task.layer, task.name)))
    if not task.collective:
        return Node(number, name, COMPUTE, after, round(task.seconds * 1e6))
    told: dict[str, Value] = {"comm_size": task.nbytes}
    if task.collective in ("p2p", "sendrecv"):
        told |= {"comm_src": ranks[0], "comm_dst": ranks[1], "comm_tag": number}
        return Node(number, name, SEND if rank == ranks[0] else RECEIVE, after, 0, told)
    group = groups.setdefault(ranks, len(groups))
    told |= {"comm_type": TYPES.index(task.collective), "pg_name": str(group).encode()}
    return Node(number, name, COLLECTIVE, after, 0, told)


def encoded(nodes: Sequence[Node]) -> bytes:
    """The bytes of a file."""
    messages = [written(1, VERSION), *map(_message, nodes)]
    return b"".join(varint(len(message)) + message for message in messages)


def _message(node: Node) -> bytes:
    parts = [written(ID, node.number), written(NAME, node.name), written(TYPE, node.kind)]
    parts += [written(DATA, one) for one in node.after]
    parts.append(written(DURATION, node.micros))
    parts.append(_attribute("is_cpu_op", BOOL, 0))
    kinds = {"comm_size": INT64, "comm_type": INT64, "pg_name": STRING}
    for name, value in node.attributes.items():
        assert isinstance(value, int | bytes)
        parts.append(_attribute(name, kinds.get(name, INT32), value))
    return b"".join(parts)


def _attribute(name: str, kind: int, value: int | bytes) -> bytes:
    return written(ATTRIBUTE, written(1, name) + written(kind, value))


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
                told[label.decode(errors="replace")] = next(iter(pair.values()))
    return Node(number, name, kind, tuple(after), micros, told)


def read_rank(path: Path) -> tuple[list[Node], dict[str, tuple[int, ...]]]:
    """The nodes of one rank, and the groups that its calls name."""
    try:
        nodes = decoded(path.read_bytes())
        groups = json.loads((path.parent / GROUPS).read_text(encoding="utf-8"))
        known = {str(name): tuple(int(rank) for rank in ranks) for name, ranks in groups.items()}
    except InputError as error:
        raise InputError(f"{path}: {error.message}: cut, or no Chakra trace") from None
    except (OSError, EOFError) as error:
        where = getattr(error, "filename", None) or path
        raise InputError(f"{where}: cannot be read: {error}") from None
    except (ValueError, TypeError, AttributeError):
        message = f'{path.parent / GROUPS}: expected groups as {{"0": [0, 1, …]}}'
        raise InputError(message) from None
    if not any(node.kind == COLLECTIVE for node in nodes):
        raise InputError(f"{path}: has no collectives")
    return nodes, known


def write_ranks(folder: Path, name: str, tape: Tape, ranks: Sequence[int]) -> list[Path]:
    """A file for every rank, and the groups."""
    folder.mkdir(parents=True, exist_ok=True)
    groups: dict[tuple[int, ...], int] = {}
    paths = []
    for rank in ranks:
        path = folder / f"{name}.{rank}.et"
        path.write_bytes(encoded(list(nodes_of(tape, rank, groups))))
        paths.append(path)
    text = json.dumps({str(number): list(members) for members, number in groups.items()})
    (folder / GROUPS).write_text(text + "\n", encoding="utf-8")
    return [*paths, folder / GROUPS]
