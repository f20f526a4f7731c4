"""GOAL files (LogGOPSim, ATLAHS) as rows of a schedule: what proves that the written ones say what
was run. Read as text or in the binary form of `txt2bin`."""

import re
import struct
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import field
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from netsim.base.errors import InputError
from netsim.base.values import dataclass
from netsim.schedule import schedule as work
from netsim.schedule.builder import Builder, compute_style
from netsim.schedule.schedule import ARRIVED, IN_ORDER, MARK, Schedule, Style, Use
from netsim.workloads import tape
from netsim.workloads.lower import Lowered

SEND, RECEIVE, CALCULATE = 1, 2, 3  # kinds of operations, as the binary form has them
ANY = 2**32 - 1  # a receive's source or tag that may be any
COOKIE, USED_UP = 4223, 2342  # what a binary file begins with
NODE = np.dtype([
    ("waits", "<u4"), ("kind", "i1"), ("peer", "<u4"), ("size", "<u8"), ("tag", "<u4"),
    ("cpu", "u1"), ("nic", "u1"), ("then", "<u4"), ("then_at", "<u4"), ("begun", "<u4"),
    ("begun_at", "<u4"),
])  # fmt: skip
COLUMNS = ("rank", "kind", "peer", "size", "tag", "cpu", "nic")
MOST_RANKS, MOST_SIZE = 1 << 20, 1 << 53
NS = 1e-9

Longs = NDArray[np.int64]


@dataclass(frozen=True)
class Goal:
    """Operations, rank after rank, in `COLUMNS`: `size` is of bytes, of computation in ns. `waits`
    has an operation, the one it waits for, and whether only for its start. `lines` of the file."""

    path: str
    ranks: int
    table: Longs
    waits: Longs
    lines: Longs | None = None

    def column(self, name: str) -> Longs:
        """One figure of every operation."""
        return self.table[:, COLUMNS.index(name)]

    def where(self, number: int) -> str:
        """Where an operation stands."""
        if self.lines is not None:
            return f"{self.path}:{self.lines[number]}"
        return f"{self.path}: operation {number}, of rank {self.table[number, 0]}"


def is_goal(path: Path) -> bool:
    """Whether a file is one of these, by its name."""
    return path.suffix in (".goal", ".bin")


def read_goal(path: Path) -> Goal:
    """A file in either form; what is wrong is told with its place."""
    try:
        data = path.read_bytes()
        goal = _of_binary(str(path), data) if b"\0" in data[:8] else _Text(str(path)).goal(data)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (struct.error, ValueError, IndexError, OverflowError) as error:
        raise InputError(f"{path}: cut, or neither form of GOAL: {error}") from None
    kind, peer = goal.column("kind"), goal.column("peer")
    known = (peer < goal.ranks) | (kind == CALCULATE) | ((kind == RECEIVE) & (peer == ANY))
    known &= np.isin(kind, (SEND, RECEIVE, CALCULATE))
    if not known.all():
        one = int(known.argmin())
        told = f"a send, receive or calculation with a rank in 0..{goal.ranks - 1}"
        got = f"kind {kind[one]} with rank {peer[one]}"
        raise InputError(f"{goal.where(one)}: expected {told}, got {got}")
    if not len(kind):
        raise InputError(f"{path}: has no operations")
    return goal


LABEL = r"[A-Za-z][A-Za-z0-9_]*"
LINE = re.compile(
    r"|num_ranks\s*(?P<ranks>\d{1,9})|rank\s*(?P<rank>\d{1,9})\s*\{\s*(?P<empty>\}?)|(?P<end>\})|"
    rf"(?P<one>{LABEL})\s+(?P<start>i?)requires\s+(?P<other>{LABEL})|(?:(?P<label>{LABEL})\s*:\s*)?"
    r"(?P<verb>calc|send|recv)\s*(?P<size>\d+)(?:\s*b\s*(?P<way>to|from)\s*(?P<peer>-1|\d+)"
    r"(?:\s*tag\s*(?P<tag>-1|\d+))?)?(?:\s*cpu\s*(?P<cpu>\d+))?(?:\s*nic\s*(?P<nic>\d+))?"
)
COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
VERBS = {("send", "to"): SEND, ("recv", "from"): RECEIVE, ("calc", None): CALCULATE}
EXPECTED = "send Nb to RANK, recv Nb from RANK, calc N, LABEL requires LABEL or }"


@dataclass
class _Text:
    """A text while it is read: the rank that is open, and what its labels stand for."""

    path: str
    ranks: int = 0
    rank: int = -1
    known: set[int] = field(default_factory=set)
    rows: list[tuple[int, ...]] = field(default_factory=list)
    waits: list[tuple[int, int, bool]] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)

    def goal(self, data: bytes) -> Goal:
        """All lines."""
        plain = COMMENT.sub(lambda found: "\n" * found[0].count("\n"), data.decode())
        for number, line in enumerate(plain.split("\n"), 1):
            try:
                self._line(number, line.strip())
            except LookupError as error:
                raise InputError(f"{self.path}:{number}: {error.args[0]}") from None
        if self.rank >= 0 or not self.ranks:
            missing = f"}} of rank {self.rank}" if self.ranks else "num_ranks"
            raise InputError(f"{self.path}: ends without {missing}")
        table = np.array(self.rows, np.int64).reshape(-1, len(COLUMNS) + 1)
        order, links = np.argsort(table[:, 0], kind="stable"), np.array(self.waits, np.int64)
        links = links.reshape(-1, 3)
        links[:, :2] = np.argsort(order)[links[:, :2]]
        return Goal(self.path, self.ranks, table[order, :-1], links, table[order, -1])

    def _line(self, number: int, line: str) -> None:
        found = LINE.fullmatch(line)
        if found is None or (line and (self.rank < 0) != bool(found["ranks"] or found["rank"])):
            expected = "num_ranks N or rank N {" if self.rank < 0 else EXPECTED
            raise LookupError(f"expected {expected}, got {line[:60]!r}")
        if found["ranks"]:
            self.ranks = int(found["ranks"])
            if not 0 < self.ranks <= MOST_RANKS:
                raise LookupError(f"expected 1 to {MOST_RANKS} ranks")
        elif found["rank"]:
            rank = int(found["rank"])
            if rank >= self.ranks or rank in self.known:
                raise LookupError(
                    f"expected another rank below {self.ranks} (num_ranks), got {rank}"
                )
            self.known.add(rank)
            self.rank, self.labels = -1 if found["empty"] else rank, {}
        elif found["end"]:
            self.rank = -1
        elif found["one"]:
            one, other = found["one"], found["other"]
            if missing := [name for name in (one, other) if name not in self.labels]:
                raise LookupError(f"rank {self.rank} has no operation {missing[0]} above")
            self.waits.append((self.labels[one], self.labels[other], found["start"] == "i"))
        elif line:
            self._operation(number, found)

    def _operation(self, number: int, found: re.Match[str]) -> None:
        kind, label = VERBS.get((found["verb"], found["way"])), found["label"]
        told = found.group("peer", "size", "tag", "cpu", "nic")
        peer, size, tag, cpu, nic = (ANY if one == "-1" else int(one or 0) for one in told)
        if kind is None or size > MOST_SIZE or max(cpu, nic) > 255 or max(tag, peer) > ANY:
            bounds = "sizes to 2^53, tags of 32 bits, cpu and nic of 8"
            raise LookupError(f"expected {EXPECTED}; {bounds}, got {found[0][:60]!r}")
        if label in self.labels:
            raise LookupError(f"label {label} stands for another operation of rank {self.rank}")
        if label is not None:
            self.labels[label] = len(self.rows)
        self.rows.append((self.rank, kind, peer, size, tag, cpu, nic, number))


# **** Binary ****
# A head (cookie, ranks, the highest processor and NIC), where every rank's part begins and ends,
# and the parts: counts, the operations that wait for nothing, all of them, and who waits for whom.


def _of_binary(path: str, data: bytes) -> Goal:
    cookie, ranks = struct.unpack_from("<QI", data)
    if cookie == USED_UP:
        raise ValueError("LogGOPSim has used it up (--save-mem); txt2bin makes it anew")
    if cookie != COOKIE or not 0 < ranks <= MOST_RANKS:
        raise ValueError(f"expected the number {COOKIE}, then 1 to {MOST_RANKS} ranks")
    tables, links, first = list[Longs](), [np.zeros((0, 3), np.int64)], 0
    for rank in range(ranks):
        (begin,) = struct.unpack_from("<Q", data, 14 + 16 * rank)
        count, roots = struct.unpack_from("<II", data, begin + 8)
        at = begin + 16 + 4 * roots
        nodes = np.frombuffer(data, NODE, count, at)
        if (nodes["size"] > MOST_SIZE).any():
            raise ValueError("an operation of more than 2^53 bytes")
        columns = [np.full(count, rank), *(nodes[name] for name in COLUMNS[1:])]
        tables.append(np.stack(columns, axis=1).astype(np.int64))
        total = int(nodes["then"].sum(dtype=np.int64) + nodes["begun"].sum(dtype=np.int64))
        others = np.frombuffer(data, "<u4", total, at + nodes.nbytes).astype(np.int64)
        if total and others.max() >= count:
            raise ValueError(f"rank {rank} has no operation {others.max()}")
        for way, name in enumerate(("then", "begun")):
            many = nodes[name].astype(np.int64)
            owner, start = np.repeat(np.arange(count), many), nodes[f"{name}_at"] - np.cumsum(many)
            one = others[np.arange(len(owner)) + np.repeat(start + many, many)]
            links.append(np.stack([one + first, owner + first, np.full(len(one), way)], axis=1))
        first += count
    return Goal(path, ranks, np.concatenate(tables), np.concatenate(links))


def as_binary(goal: Goal) -> bytes:
    """The bytes that `txt2bin` makes of it."""
    waits = goal.waits[np.lexsort((goal.waits[:, 2], goal.waits[:, 1]))]
    firsts = np.searchsorted(goal.table[:, 0], np.arange(goal.ranks + 1))
    ends = np.searchsorted(waits[:, 1], firsts).tolist()
    at, table, parts = 6 + 16 * goal.ranks, list[bytes](), list[bytes]()
    for (first, end), (low, high) in zip(pairwise(firsts.tolist()), pairwise(ends), strict=True):
        one, other, way = (waits[low:high] - [first, first, 0]).T
        nodes = np.zeros(end - first, NODE)
        for name in COLUMNS[1:]:
            nodes[name] = goal.column(name)[first:end]
        nodes["waits"], nodes["then"], nodes["begun"] = (
            np.bincount(some, minlength=len(nodes))
            for some in (one, other[way == 0], other[way == 1])
        )
        both = nodes["then"] + nodes["begun"]
        nodes["then_at"] = np.cumsum(both) - both
        nodes["begun_at"] = nodes["then_at"] + nodes["then"]
        roots = np.flatnonzero(nodes["waits"] == 0).astype("<u4")
        part = struct.pack("<II", len(nodes), len(roots)) + roots.tobytes() + nodes.tobytes()
        parts.append(part + one.astype("<u4").tobytes())
        table.append(struct.pack("<QQ", at, at + len(parts[-1])))
        at += len(parts[-1])
    most = (int(goal.column(name).max(initial=0)) for name in ("cpu", "nic"))
    return struct.pack("<QIBB", COOKIE, goal.ranks, *most) + b"".join(table + parts)


# **** Run ****
# A send is a transfer, a receive a mark that waits for its arrival; a calculation is work on one of
# its rank's processors, of which each goes on beside the others.


def replayed(
    goal: Goal, rendezvous: float = np.inf, slow: Mapping[int, float] | None = None
) -> tuple[tape.Tape, Lowered, tuple[str, ...]]:
    """What a file is made of, its rows, and in words what was chosen. Messages of more than
    `rendezvous` bytes begin when their receive is posted too; `slow`: by rank, of calculations."""
    notes: list[str] = []
    sends, receives = _pairs(goal, notes)
    schedule, place = _Rows(goal, sends, receives, rendezvous).schedule(slow or {})
    calculated = np.flatnonzero(goal.column("kind") == CALCULATE)
    ends = goal.table[:, [0, 2]].astype(np.int32)
    named = {tape.COMPUTE: ends[calculated, :1], "messages": ends[sends]}
    tasks = [tape.Task(name, name, "", name, groups, ()) for name, groups in named.items()]
    rows = place[calculated], place[sends]
    lowered = Lowered(schedule, rows, rows, ((), ()), rows)
    return tape.Tape(tasks=tasks), lowered, tuple(notes)


def _pairs(goal: Goal, notes: list[str]) -> tuple[Longs, Longs]:
    """Sends, and the receive of each: the nth of one source, target and tag meets the nth."""
    table = _resolved(goal, notes)
    keys, found = [], []
    for kind, ends in ((SEND, [0, 2, 4]), (RECEIVE, [2, 0, 4])):
        mine = np.flatnonzero(goal.column("kind") == kind)
        order = np.lexsort(table[mine][:, ends[::-1]].T)
        found.append(mine[order])
        keys.append(table[mine[order]][:, ends])
    if not np.array_equal(keys[0], keys[1]):
        sent, wanted = (Counter(map(tuple, one.tolist())) for one in keys)
        source, target, tag = key = next(k for k in sorted(sent | wanted) if sent[k] != wanted[k])
        more = int(sent[key] < wanted[key])
        last = found[more][np.flatnonzero((keys[more] == key).all(axis=1))[-1]]
        raise InputError(
            f"{goal.where(int(last))}: rank {source} sends rank {target} {sent[key]} messages with "
            f"tag {tag}, of which it receives {wanted[key]}"
        )
    if other := int(np.count_nonzero(np.subtract(*(goal.column("size")[one] for one in found)))):
        notes.append(f"{other} messages of the sender's size, where the receiver tells another")
    return found[0], found[1]


def _resolved(goal: Goal, notes: list[str]) -> Longs:
    """The operations, where receives from anybody name a sender: of those left, the first."""
    table = goal.table.copy()
    receives = table[:, 1] == RECEIVE
    anybody = receives & (table[:, [2, 4]] == ANY).any(axis=1)
    if not anybody.any():
        return table
    taken = Counter(map(tuple, table[receives & ~anybody][:, [2, 0, 4]].tolist()))
    free: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for source, target, tag in table[table[:, 1] == SEND][:, [0, 2, 4]].tolist():
        taken[source, target, tag] -= 1
        if taken[source, target, tag] < 0:
            free[target].append((source, tag))
    for number in np.flatnonzero(anybody).tolist():
        target, source, tag = table[number, [0, 2, 4]].tolist()
        fits = (one for one in free[target] if source in (ANY, one[0]) and tag in (ANY, one[1]))
        if (one := next(fits, None)) is None:
            raise InputError(f"{goal.where(number)}: no message is left for this receive")
        free[target].remove(one)
        table[number, [2, 4]] = one
    notes.append(f"{anybody.sum()} receives from anybody take senders in the order of the file")
    return table


class _Rows:
    """The rows of a file: one an operation, and one where others wait for an operation's start."""

    def __init__(self, goal: Goal, sends: Longs, receives: Longs, rendezvous: float) -> None:
        self.goal, count = goal, len(goal.table)
        one, other, way = goal.waits.T
        late = goal.column("size")[sends] > rendezvous
        self.starts = np.unique(np.concatenate([other[way == 1], receives[late]]))
        self.operation = np.append(np.arange(count), self.starts)  # of every node
        entry = np.arange(count)  # where an operation waits: its start, if it has one, or itself
        entry[self.starts] = begun = count + np.arange(len(self.starts))
        target = entry[one], self.starts, entry[sends[late]], receives
        source = np.where(way == 1, entry[other], other), begun, entry[receives[late]], sends
        self.target, self.source = np.concatenate(target), np.concatenate(source)
        self.arrives = np.arange(len(self.target)) >= len(self.target) - len(sends)

    def schedule(self, slow: Mapping[int, float]) -> tuple[Schedule, NDArray[np.int32]]:
        """The schedule, and the row of every operation."""
        builder = Builder(self.goal.ranks, collectives=("application",))
        lags = np.array([builder.lag(IN_ORDER), builder.lag(ARRIVED)], np.int16)
        order = np.array(self._order())
        place = np.empty(len(order), np.int32)
        place[order] = np.arange(len(order))
        sort = np.argsort(place[self.target], kind="stable")
        ends = np.searchsorted(place[self.target][sort], np.arange(len(order) + 1))
        joins = ends, place[self.source[sort]], lags[self.arrives[sort].astype(np.int8)]
        builder.rows(*(column[order] for column in self._columns(builder, slow)), joins=joins)
        return builder.finish(), place[: len(self.goal.table)]

    def _columns(self, builder: Builder, slow: Mapping[int, float]) -> list[Longs]:
        """Style, source, target and piece of every node."""
        rank, kind, peer, size, _, cpu, nic = self.goal.table.T
        sends, calculates = kind == SEND, kind == CALCULATE
        mark, nothing = builder.style(Style(kind=MARK)), int(builder.pieces(0)[0])
        style, piece = np.full(len(kind), mark), np.full(len(kind), nothing)
        for number in np.unique(cpu[calculates]).tolist():
            uses = (Use("sms", "src", 1.0, index=number),)
            made = builder.style(compute_style(uses=uses, stream=f"cpu {number}"))
            style[calculates & (cpu == number)] = made
        for number in np.unique(nic[sends]).tolist():
            style[sends & (nic == number)] = builder.style(Style(channel=number))
        style[sends & (rank == peer)] = builder.style(Style(kind=work.LOCAL_COPY))
        speed = np.ones(self.goal.ranks)
        speed[list(slow)] = list(slow.values())
        seconds = size * NS * speed[rank]
        tables = (sends, size, builder.pieces), (calculates, seconds, builder.work)
        for mine, given, pieces in tables:
            distinct, which = np.unique(given[mine], return_inverse=True)
            piece[mine] = pieces(distinct)[which]
        columns, at = (style, rank, np.where(sends, peer, rank), piece), rank[self.starts]
        ends = np.full(len(at), mark), at, at, np.full(len(at), nothing)
        return [np.append(one, more) for one, more in zip(columns, ends, strict=True)]

    def _order(self) -> list[int]:
        """All nodes, each behind what it waits for."""
        count = len(self.operation)
        sort = np.argsort(self.source, kind="stable")
        edges = np.searchsorted(self.source[sort], np.arange(count + 1)).tolist()
        then, left = self.target[sort].tolist(), np.bincount(self.target, minlength=count).tolist()
        found = [node for node, waits in enumerate(left) if not waits]
        for node in found:  # it grows
            for other in then[edges[node] : edges[node + 1]]:
                left[other] -= 1
                if not left[other]:
                    found.append(other)
        if stuck := [self.operation[node] for node, waits in enumerate(left) if waits]:
            places = ", ".join(map(self.goal.where, sorted({*stuck})[:5]))
            raise InputError(f"{places}: wait for each other, or for what does")
        return found
