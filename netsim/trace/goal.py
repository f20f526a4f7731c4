"""Write and read GOAL, the language of LogGOPSim and ATLAHS: sends, receives and calculations of
ranks.

A transfer is written as a send and its receive, with a tag that is unique between these two ranks.
Other rows take their standalone time: work on processor 0, delays on other processors in rotation.
If a transfer waits for a row at its destination, its receive waits for it. If only another rank
knows that a row has finished, a small message tells the rank that waits for it.
"""

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
HINT = 1  # bytes of a message that only lets a rank go on; LogGOPSim has no empty messages


@dataclass
class GoalText:
    """The GOAL text of a program, which `text` writes.

    Args:
        lines: lines of every rank.
        tags: next tag by sender and receiver.
        operations_of_row: by row, the operation that finishes it on each rank that knows.
        released: by row, the earliest start in seconds.
        hint_count: number of small messages that only tell a rank that a row has finished.
    """

    program: Program
    lines: list[list[str]] = field(default_factory=list)
    tags: Counter[tuple[int, int]] = field(default_factory=Counter)
    operations_of_row: list[dict[int, int]] = field(
        default_factory=list
    )  # by row and rank, an operation
    released: dict[int, float] = field(default_factory=dict)  # by row, when it may begin
    operation_count: int = 0
    hint_count: int = 0

    def text(self) -> str:
        """Write all rows and return the text.

        Raises an InputError for programs that GOAL cannot express, such as those with multicast.
        """
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
        for row, values in enumerate(zip(*(column.tolist() for column in columns), strict=True)):
            self._write(row, *values)
        lines = (line for lines_of_rank in self.lines for line in (*lines_of_rank, "}", ""))
        return "\n".join([f"num_ranks {schedule.ranks}", "", *lines])

    def _seconds(self) -> NDArray[np.float64]:
        """By row, its seconds besides the time of its bytes on wires that rows share: its latency,
        and what a rate below that of the wires adds.
        """
        paths = self.program.paths
        links = self.program.links
        schedule = self.program.schedule
        owner = np.repeat(np.arange(len(paths)), np.diff(paths.ptr))
        rate, wire_rate = (np.full(len(paths) + 1, np.inf) for _ in range(2))
        wire = np.array([links.kind(number) in LINK_KINDS for number in range(len(links))])
        rates = links.capacity[paths.link] / paths.weight
        is_wire = wire[paths.link]
        np.minimum.at(rate, owner, rates)
        np.minimum.at(wire_rate, owner[is_wire], rates[is_wire])
        fastest = np.minimum(rate[self.program.path], self.program.caps[schedule.style])
        channels = len({style.channel for style in schedule.styles})
        moving = channels * schedule.amount / wire_rate[self.program.path]
        latency = self.program.style_values("latency")[schedule.style]
        excess: NDArray[np.float64] = np.maximum(0.0, schedule.amount / fastest - moving)
        return latency + excess

    def _write(
        self, row: int, style: int, src: int, dst: int, seconds: float, amount: float
    ) -> None:
        """Write the operations of a row; `seconds` is its time besides that of its `amount` (bytes)
        on wires.
        """
        schedule = self.program.schedule
        after = {src: list[int](), dst: list[int]()}
        row_style = schedule.styles[style]
        for earlier, lag in schedule.dependencies(row):
            owner = int((schedule.dst if lag.arrival else schedule.src)[earlier])
            knowing_ends = [
                end for end in (src, dst) if end == owner or end in self.operations_of_row[earlier]
            ]
            waiting_rank = owner if owner in knowing_ends else [*knowing_ends, src][0]
            after[waiting_rank].append(self._awaited(earlier, lag, waiting_rank, owner))
        if row in self.released:
            after[src].append(self._delay(src, self.released[row], ()))
        if row_style.kind == TRANSFER and src != dst:
            if seconds >= NS / 2:
                after[src] = [self._delay(src, seconds, after[src])]
            size = max(HINT, round(amount * row_style.multiplicity * row_style.wire))
            self.operations_of_row.append(self._message(src, dst, size, after[src], after[dst]))
        else:
            busy = row_style.kind == COMPUTE
            self.operations_of_row.append({src: self._delay(src, seconds, after[src], busy=busy)})

    def _add_operation(self, rank: int, text: str, after: Sequence[int]) -> int:
        """Add an operation of a rank that waits for the operations `after`; return its number."""
        self.operation_count += 1
        self.lines[rank].append(f"l{self.operation_count}: {text}")
        self.lines[rank] += [
            f"l{self.operation_count} requires l{one}" for one in dict.fromkeys(after)
        ]
        return self.operation_count

    def _delay(self, rank: int, seconds: float, after: Sequence[int], *, busy: bool = False) -> int:
        """Add an operation that only takes time, and return its number.

        With `busy` it occupies the rank's processor 0; otherwise another processor, so that it
        delays nothing else.
        """
        time = round(seconds / NS)
        turn = (self.operation_count * SPREAD >> 16) % 255
        return self._add_operation(
            rank, f"calc {time}" + f" cpu {1 + turn}" * (time > 0 and not busy), after
        )

    def _message(
        self, src: int, dst: int, size: int, after: Sequence[int], there: Sequence[int] = ()
    ) -> dict[int, int]:
        """Add a send and its receive of `size` bytes; return the number of each operation by rank.

        - `after`: operations of the sender that the send waits for.
        - `there`: operations of the receiver that the receive waits for.
        """
        tag = self.tags[src, dst]
        self.tags[src, dst] += 1
        return {
            src: self._add_operation(src, f"send {size}b to {dst} tag {tag}", after),
            dst: self._add_operation(dst, f"recv {size}b from {src} tag {tag}", there),
        }

    def _awaited(self, row: int, lag: Lag, rank: int, owner: int) -> int:
        """The number of the operation of `rank` after which `row` is finished and the lag after it
        is over.

        - `owner`: a rank that knows when the row ends. If `rank` does not know it, a message from
          `owner` to `rank` is added.
        - `lag`: if it takes time, a delay on `rank` is added.
        """
        done = self.operations_of_row[row]
        seconds = lag.seconds
        if rank not in done:
            done[rank] = self._message(owner, rank, HINT, [done[owner]])[rank]
            self.hint_count += 1
        elif lag.arrival and rank != owner:  # a sender that waits until its data has arrived
            seconds += float(self.program.path_latency[self.program.path[row]])
        return done[rank] if seconds < NS / 2 else self._delay(rank, seconds, [done[rank]])


# **** Read ****
# GOAL is text, or the binary form that `txt2bin` writes: a header, the begin and end of each rank's
# section, and the sections: counts, operations without dependencies, all operations, dependencies.

# The kinds of operations, with their numbers in the binary form.
SEND = 1
RECEIVE = 2
CALCULATE = 3
ANY = (-1, 2**32 - 1)  # source or tag of a receive that accepts any, in text and in binary
# The first number of a binary file: COOKIE as `txt2bin` writes it, USED_UP after LogGOPSim has read
# the file with --save-mem, which changes it.
COOKIE = 4223
USED_UP = 2342
HEAD = struct.Struct("<QIBB")
NODE = struct.Struct("<IbIQIBBIIII")
COLUMNS = ("rank", "kind", "peer", "size", "tag", "cpu", "nic", "line")
MOST_RANKS = 1 << 20
MOST_SIZE = 1 << 53
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
    """The operations of a GOAL file, as rows with the columns `COLUMNS`.

    Sizes are in bytes; those of calculations are in nanoseconds.

    Args:
        waits: (operation, operation that it waits for, whether only for its start).
        rank: rank whose block is open while a text is read; -1 for none.
        finished_ranks: ranks whose blocks were read.
        has_wildcards: whether receives accept any sender or any tag.
        labels: operations of the open block by label.
    """

    path: Path
    ranks: int = 0
    rows: list[tuple[int, ...]] = field(default_factory=list)
    waits: list[tuple[int, int, bool]] = field(default_factory=list)
    rank: int = -1
    finished_ranks: set[int] = field(default_factory=set)
    has_wildcards: bool = False  # whether receives are from anybody, or of any tag
    labels: dict[str, int] = field(default_factory=dict)

    @cached_property
    def table(self) -> Longs:
        """All operations as an array with the columns `COLUMNS`."""
        return np.array(self.rows, np.int64)

    def where(self, number: int) -> str:
        """The place of an operation in the file, for messages: `file:line`, or its number in a
        binary file.
        """
        rank, *_, line = self.rows[number]
        return f"{self.path}:{line}" if line else f"{self.path}: operation {number}, of rank {rank}"

    def read_text(self, text: str) -> None:
        """Read the operations of the text form."""
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
        """Read one line of the text form, without its comment; `number` counts lines from 1."""
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
        """Open the block of a rank while a text is read; a block without operations is closed at
        once.
        """
        if rank >= self.ranks or rank in self.finished_ranks:
            raise LookupError(f"expected another rank below {self.ranks}, got {rank}")
        self.finished_ranks.add(rank)
        self.rank = -1 if is_empty else rank
        self.labels = {}

    def _add_wait(self, label: str, required: str, *, for_start: bool) -> None:
        """Let the operation `label` wait for the operation `required`: for its end, or only for its
        start.
        """
        for name in (label, required):
            if name not in self.labels:
                raise LookupError(f"rank {self.rank} has no operation {name} above")
        self.waits.append((self.labels[label], self.labels[required], for_start))

    def _add_operation(self, match: re.Match[str], number: int) -> None:
        """Add the operation of line `number`, under its label if it has one."""
        label = match["label"]
        if label in self.labels:
            raise LookupError(f"label {label} is already used by an operation of this rank")
        if label:
            self.labels[label] = len(self.rows)
        values = (int(match[name] or 0) for name in COLUMNS[2:7])
        self._add(self.rank, VERBS.get((match["verb"], match["way"]), 0), *values, number)

    def _add(self, *row: int) -> None:
        """Add an operation; `row` are its values in the order of `COLUMNS`. Raise a LookupError if
        a value is out of range.
        """
        _, kind, peer, size, tag, cpu, nic, _ = row
        anybody, any_tag = ((kind == RECEIVE and one in ANY) for one in (peer, tag))
        self.has_wildcards |= anybody or any_tag
        is_valid = kind == CALCULATE or (kind in (SEND, RECEIVE) and 0 <= peer < self.ranks)
        sound = (is_valid or anybody) and (0 <= tag <= ANY[1] or any_tag)
        if not sound or size > MOST_SIZE or max(cpu, nic) > 255:
            bounds = f"ranks below {self.ranks}, sizes to 2^53, tags of 32 bits, cpu and nic of 8"
            fields_text = ", ".join(map("{} {}".format, COLUMNS[1:7], row[1:]))
            raise LookupError(f"expected {EXPECTED}; {bounds}; got {fields_text}")
        self.rows.append(row)

    def read_binary(self, data: bytes) -> None:
        """Read the operations of the binary form.

        After the head there are 16 bytes for each rank, of which the first 8 say where its part
        begins. A part has 8 bytes that are not needed here, the numbers of operations and of roots
        (operations that wait for nothing; 4 bytes each), the roots (4 bytes each), the operations
        (`NODE`), and a list of operation numbers. Each operation says which items of that list must
        have finished before it, and which must have started.
        """
        cookie, self.ranks, _, _ = HEAD.unpack_from(data)
        if cookie == USED_UP:
            raise LookupError("LogGOPSim has used it up (--save-mem); txt2bin makes it anew")
        if cookie != COOKIE or not 0 < self.ranks <= MOST_RANKS:
            raise LookupError(f"expected the number {COOKIE}, then 1 to {MOST_RANKS} ranks")
        for rank in range(self.ranks):
            (begin,) = struct.unpack_from("<Q", data, HEAD.size + 16 * rank)
            count, roots = struct.unpack_from("<II", data, begin + 8)
            at = begin + 16 + 4 * roots
            first = len(self.rows)
            lists = at + count * NODE.size
            for number in range(count):
                _, *columns, end_count, end_at, start_count, start_at = NODE.unpack_from(
                    data, at + number * NODE.size
                )
                self._add(rank, *columns, 0)
                for count_of_waits, start, for_start in (
                    (end_count, end_at, False),
                    (start_count, start_at, True),
                ):
                    for waited in struct.unpack_from(
                        f"<{count_of_waits}I", data, lists + 4 * start
                    ):
                        if waited >= count:
                            raise LookupError(f"rank {rank} has no operation {waited}")
                        self.waits.append((first + waited, first + number, for_start))


def read_goal(path: Path) -> Goal:
    """Read a GOAL file in its text or binary form; an InputError names the place of a mistake."""
    goal = Goal(path)
    data = content_of(path, LARGEST_TABLE, is_binary=True)
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


# **** Run **** A send becomes a transfer, and a receive a mark that waits for its arrival. A
# calculation becomes work on one of the processors of its rank, which work in parallel.


def replayed(goal: Goal, gpus: int, rendezvous: int | None = None) -> tuple[tape.Tape, Lowered]:
    """The tape and the schedule that replay a file on the first GPUs of a cluster.

    Messages have the sender's size. Messages of more than `rendezvous` bytes also wait until their
    receive is posted. Raises an InputError if the cluster has fewer `gpus` than the file has ranks.
    """
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
    """All pairs of a send and its receive, as operation numbers.

    The n-th send with a source, destination and tag is paired with the n-th receive. If some
    receives accept any sender or tag, pairs are formed in order of time (`_Matcher`).
    """
    if goal.has_wildcards:
        return _Matcher(goal).pairs()
    by_key: dict[tuple[int, ...], tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
    for number, (rank, kind, peer, _, tag, *_) in enumerate(goal.rows):
        if kind == SEND:
            by_key[rank, peer, tag][0].append(number)
        elif kind == RECEIVE:
            by_key[peer, rank, tag][1].append(number)
    for (source, target, tag), (sends, receives) in by_key.items():
        if len(sends) != len(receives):
            last = max(sends, receives, key=len)[-1]
            raise InputError(
                f"{goal.where(last)}: rank {source} sends rank {target} {len(sends)} messages with "
                f"tag {tag}, of which it receives {len(receives)}"
            )
    return [pair for lists in by_key.values() for pair in zip(*lists, strict=True)]


class _Matcher:
    """Pairs sends with receives in order of time, on a network without delay.

    A receive that accepts any sender or tag takes the first message that arrives; a message takes
    the first posted receive that accepts it.

    - `wait_count`: for each operation, the number of operations it still waits for.
    - `followers`: for each operation, those that wait for it, as (operation, whether it waits for
      the start and not for the end).
    - `events`: a heap of (time in ns, operation, whether it starts and does not end).
    - `open_sends`, `open_receives`: by receiving rank, those that have no partner yet.
    - `matches`: the pairs so far.
    """

    def __init__(self, goal: Goal) -> None:
        self.goal = goal
        count = len(goal.rows)
        self.wait_count = [0] * count
        self.followers: list[list[tuple[int, bool]]] = [[] for _ in range(count)]
        for waiting, awaited, start in goal.waits:
            self.wait_count[waiting] += 1
            self.followers[awaited].append((waiting, start))
        self.events = [(0, number, True) for number in range(count) if not self.wait_count[number]]
        self.open_sends: dict[int, list[int]] = defaultdict(list)
        self.open_receives: dict[int, list[int]] = defaultdict(list)
        self.matches: list[tuple[int, int]] = []

    def pairs(self) -> list[tuple[int, int]]:
        """Run all operations in order of time, once; return all pairs of a send and its receive, as
        operation numbers.
        """
        while self.events:
            now, number, begins = heapq.heappop(self.events)
            for waiting, start in self.followers[number]:
                if start == begins:
                    self.wait_count[waiting] -= 1
                    if not self.wait_count[waiting]:
                        heapq.heappush(self.events, (now, waiting, True))
            if begins:
                self._begin(now, number)
        rows = self.goal.rows
        alone = set(range(len(rows))) - {number for pair in self.matches for number in pair}
        for number in sorted(alone):
            if rows[number][1] != CALCULATE:
                problem = "is not received" if rows[number][1] == SEND else "gets nothing"
                raise InputError(f"{self.goal.where(number)}: {problem}")
        return self.matches

    def _begin(self, now: int, number: int) -> None:
        """Start operation `number` at time `now` (ns). A send or receive is paired with its
        partner, or kept until the partner starts.
        """
        rank, kind, peer, size, *_ = self.goal.rows[number]
        if kind != RECEIVE:
            heapq.heappush(self.events, (now + size * (kind == CALCULATE), number, False))
        if kind == CALCULATE:
            return
        if kind == SEND:
            match = self._receive_for(number, peer)
        else:
            match = self._send_for(number, rank)
        if match is not None:
            self.matches.append(match)
            heapq.heappush(self.events, (now, match[1], False))

    def _receive_for(self, send: int, receiver: int) -> tuple[int, int] | None:
        """Pair a send with the first open receive that accepts it, or keep it until one comes."""
        for receive in self.open_receives[receiver]:
            if self._fit(send, receive):
                self.open_receives[receiver].remove(receive)
                return send, receive
        self.open_sends[receiver].append(send)
        return None

    def _send_for(self, receive: int, receiver: int) -> tuple[int, int] | None:
        """Pair a receive with the first open send that it accepts, or keep it until one comes."""
        for send in self.open_sends[receiver]:
            if self._fit(send, receive):
                self.open_sends[receiver].remove(send)
                return send, receive
        self.open_receives[receiver].append(receive)
        return None

    def _fit(self, send: int, receive: int) -> bool:
        """Whether a receive accepts a send by sender and tag."""
        source, _, _, _, tag, *_ = self.goal.rows[send]
        _, _, peer, _, wanted, *_ = self.goal.rows[receive]
        return (peer in ANY or peer == source) and (wanted in ANY or wanted == tag)


class _Rows:
    """The rows that replay a file: one for each operation, and one for its start if others wait for
    that.
    """

    def __init__(self, goal: Goal, sends: Longs, receives: Longs, rendezvous: float) -> None:
        self.goal = goal
        count = len(goal.table)
        waiting, awaited, for_start = np.array(goal.waits, np.int64).reshape(-1, 3).T
        is_rendezvous = goal.table[sends, 3] > rendezvous
        starts = np.unique(np.concatenate([awaited[for_start == 1], receives[is_rendezvous]]))
        self.operation = np.append(np.arange(count), starts)  # of every node
        self.nodes = goal.table[self.operation]
        self.nodes[count:, 1] = RECEIVE  # a start is a mark, as a receive is
        entry = np.arange(count)  # where an operation waits: its start, if it has one, or itself
        entry[starts] = start_nodes = count + np.arange(len(starts))
        target = entry[waiting], starts, entry[sends[is_rendezvous]], receives
        source = (
            np.where(for_start == 1, entry[awaited], awaited),
            start_nodes,
            entry[receives[is_rendezvous]],
            sends,
        )
        self.target = np.concatenate(target)
        self.source = np.concatenate(source)
        self.arrives = np.arange(len(self.target)) >= len(self.target) - len(sends)

    def schedule(self) -> tuple[Schedule, NDArray[np.int32]]:
        """The schedule, and an array with the number of the row of each operation."""
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
        """Four arrays by row: the number of its style, its source, its destination, and the number
        of its piece.
        """
        rank, kind, peer, size, _, cpu, nic, _ = self.nodes.T
        sends = kind == SEND
        calculates = kind == CALCULATE
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
        """All rows in an order in which each row comes after those that it waits for.

        Raises an InputError that names the operations of a cycle.
        """
        sorter = TopologicalSorter[int](dict.fromkeys(range(len(self.nodes)), ()))
        for target, source in zip(self.target.tolist(), self.source.tolist(), strict=True):
            sorter.add(target, source)
        try:
            return np.array(list(sorter.static_order()))
        except CycleError as error:
            places = map(self.goal.where, sorted({*self.operation[error.args[1]].tolist()})[:5])
            raise InputError(f"{', '.join(places)}: wait for each other") from None
