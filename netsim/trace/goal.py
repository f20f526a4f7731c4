"""GOAL, the language of LogGOPSim and ATLAHS: sends, receives and time of ranks, read and written.

A transfer is a send and its receive, under a tag of its own between these ranks; all else takes the
time that it has alone. Work is done on processor 0, what only takes time on others in turn. What a
transfer waits for at its target, its receive waits for; elsewhere a message tells of it."""

import heapq
import re
import struct
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import field
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from netsim.base.errors import InputError
from netsim.base.files import LARGEST_TABLE, content_of
from netsim.base.values import dataclass
from netsim.program.program import Program
from netsim.schedule.builder import Builder, compute_style
from netsim.schedule.schedule import (
    ARRIVED,
    COMPUTE,
    IN_ORDER,
    LOCAL_COPY,
    MARK,
    MULTICAST,
    SWITCH_REDUCE,
    TRANSFER,
    Lag,
    Schedule,
    Style,
    Use,
)
from netsim.topology.graph import LINK_KINDS, Longs
from netsim.workloads import tape
from netsim.workloads.lower import Lowered

NS = 1e-9
SPREAD = 2654435761  # scatters numbers that follow each other (Knuth)
HINT = 1  # bytes of a message that only tells: LogGOPSim knows none of 0


@dataclass
class Sheet:
    """The text of a program, while it is written: lines of every rank. `hints` counts messages that
    only tell another rank to go on."""

    program: Program
    lines: list[list[str]] = field(default_factory=list)
    tags: Counter[tuple[int, int]] = field(default_factory=Counter)
    done: list[dict[int, int]] = field(default_factory=list)  # by row and rank, an operation
    released: dict[int, float] = field(default_factory=dict)  # by row, when it may begin
    made: int = 0
    hints: int = 0

    def text(self) -> str:
        """All of it."""
        schedule = self.program.schedule
        kinds = {style.kind for style in schedule.styles}
        if schedule.fold is not None or kinds & {MULTICAST, SWITCH_REDUCE}:
            raise InputError(
                "GOAL has messages only, no multicast and no sums in switches",
                hint="nccl: {env: {NCCL_NVLS_ENABLE: 0}}, or another algorithm",
            )
        self.lines = [[f"rank {rank} {{"] for rank in range(schedule.ranks)]
        times = zip(schedule.release_row.tolist(), schedule.release_time.tolist(), strict=True)
        self.released = dict(times)
        columns = schedule.style, schedule.src, schedule.dst, self._seconds(), schedule.amount
        for row, told in enumerate(zip(*(one.tolist() for one in columns), strict=True)):
            self._write(row, *told)
        lines = (line for some in self.lines for line in (*some, "}", ""))
        return "\n".join([f"num_ranks {schedule.ranks}", "", *lines])

    def _seconds(self) -> NDArray[np.float64]:
        """What each row takes alone; of a transfer, beyond its wires, which all channels share."""
        paths, links, schedule = self.program.paths, self.program.links, self.program.schedule
        owner = np.repeat(np.arange(len(paths)), np.diff(paths.ptr))
        rate, of_wires = (np.full(len(paths) + 1, np.inf) for _ in range(2))
        wire = np.array([links.kind(number) in LINK_KINDS for number in range(len(links))])
        reached, on = links.capacity[paths.link] / paths.weight, wire[paths.link]
        np.minimum.at(rate, owner, reached)
        np.minimum.at(of_wires, owner[on], reached[on])
        fastest = np.minimum(rate[self.program.path], self.program.caps[schedule.style])
        channels = len({style.channel for style in schedule.styles})
        moving = channels * schedule.amount / of_wires[self.program.path]
        latency = self.program.style_values("latency")[schedule.style]
        beyond: NDArray[np.float64] = np.maximum(0.0, schedule.amount / fastest - moving)
        return latency + beyond

    def _write(
        self, row: int, style: int, src: int, dst: int, seconds: float, amount: float
    ) -> None:
        """The operations of a row."""
        schedule, after = self.program.schedule, {src: list[int](), dst: list[int]()}
        row_style = schedule.styles[style]
        for earlier, lag in schedule.dependencies(row):
            knows = int((schedule.dst if lag.arrival else schedule.src)[earlier])
            knowing_ends = [end for end in (src, dst) if end == knows or end in self.done[earlier]]
            at = knows if knows in knowing_ends else [*knowing_ends, src][0]
            after[at].append(self._met(earlier, lag, at, knows))
        if row in self.released:
            after[src].append(self._delay(src, self.released[row], ()))
        if row_style.kind == TRANSFER and src != dst:
            if seconds >= NS / 2:
                after[src] = [self._delay(src, seconds, after[src])]
            size = max(HINT, round(amount * row_style.multiplicity * row_style.wire))
            self.done.append(self._message(src, dst, size, after[src], after[dst]))
        else:
            busy = row_style.kind == COMPUTE
            self.done.append({src: self._delay(src, seconds, after[src], busy=busy)})

    def _add(self, rank: int, text: str, after: Sequence[int]) -> int:
        """An operation behind others of its rank."""
        self.made += 1
        self.lines[rank].append(f"l{self.made}: {text}")
        self.lines[rank] += [f"l{self.made} requires l{one}" for one in dict.fromkeys(after)]
        return self.made

    def _delay(self, rank: int, seconds: float, after: Sequence[int], *, busy: bool = False) -> int:
        """Time that passes, with its rank at work or not."""
        time, turn = round(seconds / NS), (self.made * SPREAD >> 16) % 255
        return self._add(rank, f"calc {time}" + f" cpu {1 + turn}" * (time > 0 and not busy), after)

    def _message(
        self, src: int, dst: int, size: int, after: Sequence[int], there: Sequence[int] = ()
    ) -> dict[int, int]:
        """A send and its receive."""
        tag = self.tags[src, dst]
        self.tags[src, dst] += 1
        return {
            src: self._add(src, f"send {size}b to {dst} tag {tag}", after),
            dst: self._add(dst, f"recv {size}b from {src} tag {tag}", there),
        }

    def _met(self, row: int, lag: Lag, rank: int, owner: int) -> int:
        """What a rank waits for where it waits for a row, of which the owner knows first."""
        done, seconds = self.done[row], lag.seconds
        if rank not in done:
            done[rank] = self._message(owner, rank, HINT, [done[owner]])[rank]
            self.hints += 1
        elif lag.arrival and rank != owner:  # a sender that waits until its data is there
            seconds += float(self.program.path_latency[self.program.path[row]])
        return done[rank] if seconds < NS / 2 else self._delay(rank, seconds, [done[rank]])


# **** Read ****
# Text, or the binary form that `txt2bin` writes: a head, where the part of every rank begins and
# ends, and the parts: counts, operations without dependencies, all operations, and dependencies.

SEND, RECEIVE, CALCULATE = 1, 2, 3  # kinds of operations, as the binary form has them
ANY = (-1, 2**32 - 1)  # a receive's source or tag that may be any, in text and binary
COOKIE, USED_UP = 4223, 2342  # what a binary file begins with
HEAD, NODE = struct.Struct("<QIBB"), struct.Struct("<IbIQIBBIIII")
COLUMNS = ("rank", "kind", "peer", "size", "tag", "cpu", "nic", "line")
MOST_RANKS, MOST_SIZE = 1 << 20, 1 << 53
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
class Goal:
    """Operations, in `COLUMNS`: `size` is of bytes, of computation in ns. `waits` has an operation,
    the one it waits for, and whether only for its start. While a text is read: the rank that is
    open, those that were, and what its labels stand for."""

    path: Path
    ranks: int = 0
    rows: list[tuple[int, ...]] = field(default_factory=list)
    waits: list[tuple[int, int, bool]] = field(default_factory=list)
    rank: int = -1
    known: set[int] = field(default_factory=set)
    guessed: bool = False  # whether receives are from anybody, or of any tag
    labels: dict[str, int] = field(default_factory=dict)

    @cached_property
    def table(self) -> Longs:
        """All operations."""
        return np.array(self.rows, np.int64)

    def where(self, number: int) -> str:
        """Where an operation stands."""
        rank, *_, line = self.rows[number]
        return f"{self.path}:{line}" if line else f"{self.path}: operation {number}, of rank {rank}"

    def read_text(self, text: str) -> None:
        """All lines."""
        plain = COMMENT.sub(lambda match: "\n" * match[0].count("\n"), text)
        for number, line in enumerate(plain.split("\n"), 1):
            try:
                self._line(number, line.strip())
            except LookupError as error:
                raise InputError(f"{self.path}:{number}: {error.args[0]}") from None
        if self.rank >= 0 or not self.ranks:
            missing = f"}} of rank {self.rank}" if self.ranks else "num_ranks"
            raise LookupError(f"ends without {missing}")

    def _line(self, number: int, line: str) -> None:
        """Read one line without comments; `number` counts from 1."""
        match = LINE.fullmatch(line)
        if match is None or (line and (self.rank < 0) != bool(match["ranks"] or match["rank"])):
            expected = "num_ranks N or rank N {" if self.rank < 0 else EXPECTED
            raise LookupError(f"expected {expected}, got {line[:60]!r}")
        if match["ranks"]:
            self.ranks = int(match["ranks"])
            if not 0 < self.ranks <= MOST_RANKS:
                raise LookupError(f"expected 1 to {MOST_RANKS} ranks")
        elif match["rank"]:
            self._begin_rank(int(match["rank"]), is_empty=bool(match["empty"]))
        elif match["end"]:
            self.rank = -1
        elif match["one"]:
            self._add_wait(match["one"], match["other"], for_start=match["start"] == "i")
        elif line:
            self._add_operation(match, number)

    def _begin_rank(self, rank: int, *, is_empty: bool) -> None:
        """Open the block of a rank; one without operations is closed at once."""
        if rank >= self.ranks or rank in self.known:
            raise LookupError(f"expected another rank below {self.ranks}, got {rank}")
        self.known.add(rank)
        self.rank = -1 if is_empty else rank
        self.labels = {}

    def _add_wait(self, label: str, required: str, *, for_start: bool) -> None:
        """Let an operation wait for the end, or only for the start, of one that it requires."""
        for name in (label, required):
            if name not in self.labels:
                raise LookupError(f"rank {self.rank} has no operation {name} above")
        self.waits.append((self.labels[label], self.labels[required], for_start))

    def _add_operation(self, match: re.Match[str], number: int) -> None:
        """Add the operation of line `number`, under its label if it has one."""
        label = match["label"]
        if label in self.labels:
            raise LookupError(f"label {label} stands for another operation of this rank")
        if label:
            self.labels[label] = len(self.rows)
        values = (int(match[name] or 0) for name in COLUMNS[2:7])
        self._add(self.rank, VERBS.get((match["verb"], match["way"]), 0), *values, number)

    def _add(self, *row: int) -> None:
        _, kind, peer, size, tag, cpu, nic, _ = row
        anybody, any_tag = ((kind == RECEIVE and one in ANY) for one in (peer, tag))
        self.guessed |= anybody or any_tag
        is_valid = kind == CALCULATE or (kind in (SEND, RECEIVE) and 0 <= peer < self.ranks)
        sound = (is_valid or anybody) and (0 <= tag <= ANY[1] or any_tag)
        if not sound or size > MOST_SIZE or max(cpu, nic) > 255:
            bounds = f"ranks below {self.ranks}, sizes to 2^53, tags of 32 bits, cpu and nic of 8"
            fields_text = ", ".join(map("{} {}".format, COLUMNS[1:7], row[1:]))
            raise LookupError(f"expected {EXPECTED}; {bounds}; got {fields_text}")
        self.rows.append(row)

    def read_binary(self, data: bytes) -> None:
        """All ranks' parts."""
        cookie, self.ranks, _, _ = HEAD.unpack_from(data)
        if cookie == USED_UP:
            raise LookupError("LogGOPSim has used it up (--save-mem); txt2bin makes it anew")
        if cookie != COOKIE or not 0 < self.ranks <= MOST_RANKS:
            raise LookupError(f"expected the number {COOKIE}, then 1 to {MOST_RANKS} ranks")
        for rank in range(self.ranks):
            (begin,) = struct.unpack_from("<Q", data, HEAD.size + 16 * rank)
            count, roots = struct.unpack_from("<II", data, begin + 8)
            at, first = begin + 16 + 4 * roots, len(self.rows)
            lists = at + count * NODE.size
            for number in range(count):
                _, *columns, then, then_at, begun, begun_at = NODE.unpack_from(
                    data, at + number * NODE.size
                )
                self._add(rank, *columns, 0)
                for many, start, way in ((then, then_at, False), (begun, begun_at, True)):
                    for waited in struct.unpack_from(f"<{many}I", data, lists + 4 * start):
                        if waited >= count:
                            raise LookupError(f"rank {rank} has no operation {waited}")
                        self.waits.append((first + waited, first + number, way))


def read_goal(path: Path) -> Goal:
    """A file in either form; an InputError names the place of a mistake."""
    goal, data = Goal(path), content_of(path, LARGEST_TABLE, is_binary=True)
    try:
        if b"\0" in data[: HEAD.size]:
            goal.read_binary(data)
        else:
            goal.read_text(data.decode())
    except (struct.error, ValueError, OverflowError) as error:
        raise InputError(f"{path}: cut, or neither form of GOAL: {error}") from None
    except LookupError as error:
        raise InputError(f"{path}: {error.args[0]}") from None
    if not goal.rows:
        raise InputError(f"{path}: has no operations")
    return goal


# **** Run ****
# A send is a transfer, a receive a mark that waits for its arrival; a calculation is work on one of
# its rank's processors, of which each goes on beside the others.


def replayed(goal: Goal, gpus: int, rendezvous: int | None = None) -> tuple[tape.Tape, Lowered]:
    """What a file is made of, and its rows. Messages are of the sender's size; of more than
    `rendezvous` bytes they begin when their receive is posted, too."""
    if goal.ranks > gpus:
        raise InputError(f"{goal.path}: is of {goal.ranks} ranks, but the cluster has {gpus} GPUs")
    sends, receives = np.array(_pairs(goal), np.int64).reshape(-1, 2).T
    most = np.inf if rendezvous is None else rendezvous
    schedule, place = _Rows(goal, sends, receives, most).schedule()
    calculated = np.flatnonzero(goal.table[:, 1] == CALCULATE)
    ends = goal.table[:, [0, 2]].astype(np.int32)
    named = {tape.COMPUTE: ends[calculated, :1], "messages": ends[sends]}
    tasks = [tape.TapeEntry(name, name, "", name, groups, ()) for name, groups in named.items()]
    places = place[calculated], place[sends]
    return tape.Tape(entries=tasks), Lowered(schedule, places, places, ((), ()), places)


def _pairs(goal: Goal) -> list[tuple[int, int]]:
    """Sends, each with its receive: the nth of one source, target and tag meets the nth; where
    some receive from anybody, the first to come is met."""
    if goal.guessed:
        return _Meeting(goal).pairs()
    met: dict[tuple[int, ...], tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
    for number, (rank, kind, peer, _, tag, *_) in enumerate(goal.rows):
        if kind == SEND:
            met[rank, peer, tag][0].append(number)
        elif kind == RECEIVE:
            met[peer, rank, tag][1].append(number)
    for (source, target, tag), (sends, receives) in met.items():
        if len(sends) != len(receives):
            last = max(sends, receives, key=len)[-1]
            raise InputError(
                f"{goal.where(last)}: rank {source} sends rank {target} {len(sends)} messages with "
                f"tag {tag}, of which it receives {len(receives)}"
            )
    return [pair for both in met.values() for pair in zip(*both, strict=True)]


class _Meeting:
    """Operations in the order of their time on a network that takes none, so that a receive from
    anybody, or of any tag, meets the first message that comes; of those posted, the first."""

    def __init__(self, goal: Goal) -> None:
        self.goal, count = goal, len(goal.rows)
        self.left = [0] * count  # of what an operation waits for
        self.after: list[list[tuple[int, bool]]] = [[] for _ in range(count)]
        for one, other, start in goal.waits:
            self.left[one] += 1
            self.after[other].append((one, start))
        self.events = [(0, number, True) for number in range(count) if not self.left[number]]
        self.open: tuple[dict[int, list[int]], ...] = (defaultdict(list), defaultdict(list))
        self.met: list[tuple[int, int]] = []

    def pairs(self) -> list[tuple[int, int]]:
        """Sends, each with its receive."""
        while self.events:
            now, number, begins = heapq.heappop(self.events)
            for one, start in self.after[number]:
                if start == begins:
                    self.left[one] -= 1
                    if not self.left[one]:
                        heapq.heappush(self.events, (now, one, True))
            if begins:
                self._begin(now, number)
        rows = self.goal.rows
        alone = set(range(len(rows))) - {one for pair in self.met for one in pair}
        for number in sorted(alone):
            if rows[number][1] != CALCULATE:
                problem = "is not received" if rows[number][1] == SEND else "gets nothing"
                raise InputError(f"{self.goal.where(number)}: {problem}")
        return self.met

    def _begin(self, now: int, number: int) -> None:
        rank, kind, peer, size, *_ = self.goal.rows[number]
        if kind != RECEIVE:
            heapq.heappush(self.events, (now + size * (kind == CALCULATE), number, False))
        if kind == CALCULATE:
            return
        sent = kind == SEND
        open_here, others = (self.open[k][peer if sent else rank] for k in (not sent, sent))
        pairs = ((number, one) if sent else (one, number) for one in others)
        found = next((pair for pair in pairs if self._fit(*pair)), None)
        if found is None:
            open_here.append(number)
            return
        others.remove(found[sent])
        self.met.append(found)
        heapq.heappush(self.events, (now, found[1], False))

    def _fit(self, send: int, receive: int) -> bool:
        source, _, _, _, tag, *_ = self.goal.rows[send]
        _, _, peer, _, wanted, *_ = self.goal.rows[receive]
        return (peer in ANY or peer == source) and (wanted in ANY or wanted == tag)


class _Rows:
    """The rows of a file: one an operation, and one where others wait for an operation's start."""

    def __init__(self, goal: Goal, sends: Longs, receives: Longs, rendezvous: float) -> None:
        self.goal, count = goal, len(goal.table)
        one, other, way = np.array(goal.waits, np.int64).reshape(-1, 3).T
        late = goal.table[sends, 3] > rendezvous
        starts = np.unique(np.concatenate([other[way == 1], receives[late]]))
        self.operation = np.append(np.arange(count), starts)  # of every node
        self.nodes = goal.table[self.operation]
        self.nodes[count:, 1] = RECEIVE  # a start is a mark, as a receive is
        entry = np.arange(count)  # where an operation waits: its start, if it has one, or itself
        entry[starts] = begun = count + np.arange(len(starts))
        target = entry[one], starts, entry[sends[late]], receives
        source = np.where(way == 1, entry[other], other), begun, entry[receives[late]], sends
        self.target, self.source = np.concatenate(target), np.concatenate(source)
        self.arrives = np.arange(len(self.target)) >= len(self.target) - len(sends)

    def schedule(self) -> tuple[Schedule, NDArray[np.int32]]:
        """The schedule, and the row of every operation."""
        builder = Builder(self.goal.ranks, collectives=("application",))
        lags = np.array([builder.lag(IN_ORDER), builder.lag(ARRIVED)], np.int16)
        order = self._order()
        place = np.argsort(order).astype(np.int32)
        sort = np.argsort(place[self.target], kind="stable")
        ends = np.searchsorted(place[self.target][sort], np.arange(len(order) + 1))
        joins = ends, place[self.source[sort]], lags[self.arrives[sort].astype(np.int8)]
        builder.rows(*(column[order] for column in self._columns(builder)), joins=joins)
        return builder.finish(), place[: len(self.goal.table)]

    def _columns(self, builder: Builder) -> tuple[Longs, ...]:
        """Style, source, target and piece of every node."""
        rank, kind, peer, size, _, cpu, nic, _ = self.nodes.T
        sends, calculates = kind == SEND, kind == CALCULATE
        style = np.full(len(kind), builder.style(Style(kind=MARK)))
        for number in np.unique(cpu[calculates]).tolist():
            uses = (Use("sms", "src", 1.0, index=number),)
            made = compute_style(uses=uses, stream=f"cpu {number}")
            style[calculates & (cpu == number)] = builder.style(made)
        for number in np.unique(nic[sends]).tolist():
            style[sends & (nic == number)] = builder.style(Style(channel=number))
        style[sends & (rank == peer)] = builder.style(Style(kind=LOCAL_COPY))
        piece = np.full(len(kind), builder.pieces(0)[0])
        piece[sends] = builder.pieces(size[sends])
        piece[calculates] = builder.work((size * NS)[calculates])
        return style, rank, np.where(sends, peer, rank), piece

    def _order(self) -> Longs:
        """All nodes, each behind what it waits for."""
        sorter = TopologicalSorter[int](dict.fromkeys(range(len(self.nodes)), ()))
        for target, source in zip(self.target.tolist(), self.source.tolist(), strict=True):
            sorter.add(target, source)
        try:
            return np.array(list(sorter.static_order()))
        except CycleError as error:
            places = map(self.goal.where, sorted({*self.operation[error.args[1]].tolist()})[:5])
            raise InputError(f"{', '.join(places)}: wait for each other") from None
