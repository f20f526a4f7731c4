"""Logs of measured runs: nccl-tests' text and JSON, CSV; curves, and what they say of a run."""

import csv
import json
import re
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from itertools import islice, pairwise
from math import inf, isfinite, nan
from operator import attrgetter
from pathlib import Path
from statistics import median
from typing import Any

from netsim.base.errors import InputError, ScenarioError, suggest
from netsim.base.files import content_of, text_of
from netsim.base.values import dataclass
from netsim.results.nccl_tests import COLUMNS
from netsim.scenario.names import collective_name

SAME_WORK = ("all_reduce", "broadcast", "reduce")  # in and out of place: the rest is noise


@dataclass(frozen=True, slots=True)
class Measured:
    """One row: times in seconds, None where nothing was given; `line` is where it was written."""

    size_bytes: int
    count: int | None = None
    dtype: str = "float"
    redop: str = ""
    root: int = -1
    out_of_place: float | None = None
    in_place: float | None = None
    line: int = 0

    def seconds(self, collective: str) -> float | None:
        """The time that counts, as the design defines it."""
        given = [t for t in (self.out_of_place, self.in_place) if t is not None]
        if not given:
            return None
        return min(given) if collective in SAME_WORK else given[0]

    def is_in_place(self, collective: str) -> bool:
        """Whether the time that counts is one in place that differs from one out of place."""
        return self.out_of_place is None and collective not in SAME_WORK


CLEAR = 0.5  # GB/s from which two decimals tell a ratio


@dataclass(frozen=True, slots=True)
class Device:
    """A rank's GPU as nccl-tests lists it. `number` is that of the CUDA device on its host, -1
    where the list does not say."""

    rank: int
    process: str
    host: str
    name: str
    number: int = -1


@dataclass(frozen=True)
class LogRun:
    """One table of a log. `ratios` are busbw over algbw of its rows, where they tell anything."""

    file: str
    collective: str = ""
    rows: tuple[Measured, ...] = ()
    devices: tuple[Device, ...] = ()
    gpus_per_thread: int | None = None
    command: str = ""
    nccl: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)
    network: tuple[str, ...] = ()  # what NCCL and its plug-ins say of networks
    choices: Mapping[int, tuple[str, str]] = field(default_factory=dict)
    ratios: tuple[tuple[float, float], ...] = ()  # algbw, busbw
    problems: tuple[str, ...] = ()  # lines that look like data and cannot be used
    notes: tuple[str, ...] = ()
    line: int = 1
    iterations: int | None = None
    """The operations that were timed, where the head of the table says so."""

    @property
    def hosts(self) -> dict[str, int]:
        """Ranks listed on every host."""
        return dict(Counter(device.host for device in self.devices))

    @property
    def listed_ranks(self) -> int | None:
        """Ranks by the list of devices; the list may be cut, so the last number counts."""
        return max((device.rank for device in self.devices), default=-1) + 1 or None

    @cached_property
    def bus_factor(self) -> float | None:
        """Bus bandwidth over algorithm bandwidth, where rows are fast enough to tell."""
        clear = [bus / alg for alg, bus in self.ratios if alg > CLEAR]
        return median(clear) if clear else None

    @property
    def gpu_name(self) -> str:
        """The commonest name of its GPUs."""
        names = Counter(device.name for device in self.devices if device.name)
        return names.most_common(1)[0][0] if names else ""


# Single lines of nccl-tests output: what kind a line is, whatever launchers wrote before it.
# Lines may be anything, and as long as the file: no pattern looks at a character more often than
# some fixed number of times (no run of characters begins at each of them, nor ends at each).

TYPES = (
    "int8|uint8|int32|uint32|int64|uint64|half|float|double|bfloat16|float16|float32|float64|"
    "bf16|fp16|fp32|fp64|fp8_e4m3|fp8_e5m2|f8e4m3|f8e5m2|fp8"
)
ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
CORE = re.compile(rf"(?<![\w.,\-])(\d{{1,20}})\s+(\d{{1,20}})\s+({TYPES})(?![\w.])(.*)", re.DOTALL)
HEADER = re.compile(r"(?<=[#\s])size\s+count\s+(?:\(elements\)\s+)?type\b(.*)")  # behind a #
DEVICE = re.compile(
    r"#\s*Rank\s+(\d{1,9})\s+(?:Group\s+\d+\s+)?Pid\s+(\d+)\s+on\s+(\S+)\s+device\s+(\d+)\s*"
    r"\[([^\[\]]*)\]\s*(.*)"
)
SETTINGS = re.compile(r"#\s*nThread\s+(\d{1,9})\s+nGpus\s+(\d{1,9})\b")
# Operations that are timed. Several (`-m`) may be issued as one group, and all of them be part of a
# graph that is launched some times (`-G`).
ITERATIONS = re.compile(
    r"\bwarmup iters:\s*\d{1,9}\s+iters:\s*(\d{1,9})(?:\s+agg iters:\s*(\d{1,9}))?"
    r"(?:.{0,80}\bgraph:\s*(\d{1,9}))?"
)
STARTING = re.compile(r"#\s*Collective test starting:\s*(\w+)\s*$")
LIBRARY = re.compile(r"nccl-library=(\d{4,6})")
VERSION = re.compile(r"\b[RN]CCL version\s*(?::\s*)?(\d+\.\d+(?:\.\d+)?)")
PERF = re.compile(
    r"\b(all_?reduce|all_?gather|reduce_?scatter|broadcast|reduce|alltoallv?|all_to_all|gather|"
    r"scatter|sendrecv|send_recv|hypercube)_perf",
    re.IGNORECASE,
)
COMMAND = re.compile(rf"{PERF.pattern}\w*\s+-\w", re.IGNORECASE)
ENVIRONMENT = re.compile(r"\b(NCCL_[A-Z0-9_]+) set by environment to (\S+)")
ASSIGNMENT = re.compile(r"(?:-x|export|--env|-e|^)\s+(NCCL_[A-Z0-9_]+)=(['\"]?)([^\s'\"]+)\2")
# What is told of networks, and the variables of plug-ins.
NETWORK = re.compile(r"(?:NET/|Using network |[Ll]oaded net plugin |\bFI_[A-Z_]{1,40}=).{1,160}")
MOST_MESSAGES = 64
CHOICE = re.compile(r"(?<!\d)(\d{1,20}) Bytes -> Algo (\w+) proto (\w+)")
INFO = re.compile(r":\d+:\d+ \[[-\d]+\] NCCL (?:INFO|WARN|TRACE)")  # behind a host's name
HOST = re.compile(r"[\w.\-]*[A-Za-z]")  # backwards
LONGEST_HOST = 255
CLOCK = r"\d{2}:\d{2}:\d{2}(?:[.,]\d+)?"
STAMP = re.compile(rf"\d{{4}}-\d{{2}}-\d{{2}}(?:T{CLOCK})?Z?")
TIME_OF_DAY = re.compile(rf"{CLOCK}Z?")
# What launchers write before a line: srun -l, mpirun --tag-output and --timestamp-output, dates.
PREFIX = re.compile(
    r"""^\s*(?:
        \d+:(?!\d) | \[[^\]]*\](?:<std(?:out|err)>)?:? |
        \[?\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}:\d{2}[\d.,]*(?:Z|[+-]\d{2}:?\d{2})?\]? |
        \d{2}:\d{2}:\d{2}[.,\d]* | [A-Z][a-z]{2}\s[A-Z][a-z]{2}\s+\d+\s\d{2}:\d{2}:\d{2}\s\d{4} |
        <std(?:out|err)>: | [A-Za-z][\w.\-/]*(?:\[\d+\])?\s?[:|](?=\s)
    )\s*""",
    re.VERBOSE,
)
NUMBERS = re.compile(r"^\s*-?\d[\d,]*\s+\d[\d,]*\s+\S")
LABELS = ("redop", "root")
OTHER_NAMES = {"wrong": "#wrong", "error": "#wrong", "cputime": "time", "gputime": "time"}
OPS = frozenset(("sum", "prod", "max", "min", "avg", "mulsum", "none", "all"))
ALGORITHMS = {
    "RING": "Ring", "TREE": "Tree", "NVLS": "NVLS", "NVLS_TREE": "NVLSTree", "PAT": "PAT",
    "COLLNET_DIRECT": "CollNetDirect", "COLLNET_CHAIN": "CollNetChain",
    "0": "Tree", "1": "Ring", "2": "CollNetDirect", "3": "CollNetChain", "4": "NVLS",
    "5": "NVLSTree", "6": "PAT",
}  # fmt: skip
PROTOCOLS = {"LL": "LL", "LL128": "LL128", "SIMPLE": "Simple", "0": "LL", "1": "LL128",
             "2": "Simple"}  # fmt: skip
TWO_HALVES = ("time", "algbw", "busbw", "#wrong") * 2
BY_COUNT = {8: TWO_HALVES, 6: ("time", "algbw", "busbw") * 2, 4: TWO_HALVES[:4], 3: TWO_HALVES[:3]}


@dataclass(frozen=True)
class Cells:
    """The cells of a data row by the columns of its header; halves as (time, algbw, busbw)."""

    size: int
    count: int
    dtype: str
    redop: str
    root: str
    halves: tuple[tuple[str, ...], ...]
    cut: bool = False


def cleaned(line: str) -> str:
    """A line without terminal colours."""
    return ESCAPE.sub("", line).rstrip("\r\n")


def info_in(line: str) -> int | None:
    """Where a message of NCCL begins in a line, with the name of its host."""
    if "] NCCL " not in line:
        return None
    for match in INFO.finditer(line):
        host = HOST.match(line[max(0, match.start() - LONGEST_HOST) : match.start()][::-1])
        if host:
            return match.start() - host.end()
    return None


def header_in(line: str) -> re.Match[str] | None:
    """The names of columns behind a `#`."""
    first = line.find("#")
    return HEADER.search(line, first + 1) if first >= 0 else None


def without_stamps(text: str) -> list[str]:
    """The words of a row, without the dates that launchers wrote behind it."""
    words = text.split()
    while words:
        clock = len(words) > 1 and TIME_OF_DAY.fullmatch(words[-1]) is not None
        if not STAMP.fullmatch(words[-2 if clock else -1]):
            break
        del words[-2 if clock else -1 :]
    return words


def without_prefix(line: str) -> str:
    """A line without what launchers write before it."""
    for _ in range(4):
        match = PREFIX.match(line)
        if match is None or not match.end():
            return line
        line = line[match.end() :]
    return line


def header_columns(text: str) -> tuple[str, ...]:
    """The columns after `type`, from the rest of a header line."""
    names = (name.casefold() for name in text.split())
    return tuple(OTHER_NAMES.get(name, name) for name in names if name != "#")


def cells_of(match: re.Match[str], header: Sequence[str]) -> Cells | str:
    """The cells of a row, or why it is not understood."""
    size, count, dtype, rest = match.groups()
    tokens = without_stamps(rest)
    redop = tokens.pop(0) if tokens and tokens[0].casefold() in OPS else ""
    root = ""
    columns = [name for name in header if name not in (*LABELS, "timestamp")]
    rooted = "root" in header or (not header and len(tokens) in (5, 7, 9))
    whole = tokens[:1] and tokens[0].removeprefix("-").isdecimal()
    if whole and rooted and len(tokens) != len(columns):
        root = tokens.pop(0)
    if not columns:
        if len(tokens) not in BY_COUNT:
            return f"{len(tokens)} values and no header above"
        columns = list(BY_COUNT[len(tokens)])
    if len(tokens) > len(columns):
        return f"expected {len(columns)} values after the type, got {len(tokens)}"
    halves = _halves(columns, tokens)
    if not halves:
        return "the row is cut before its first bandwidths"
    cut = len(tokens) < len(columns)
    return Cells(int(size), int(count), dtype, redop, root, halves, cut)


def _halves(columns: Sequence[str], tokens: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    whole = len(tokens) if len(tokens) == len(columns) else len(tokens) - 1
    return tuple(
        tuple(tokens[first : first + 3])
        for first in range(whole - 2)
        if list(columns[first : first + 3]) == ["time", "algbw", "busbw"]
    )


# The text that nccl-tests and rccl-tests print, of every version, as runs.
# Columns are read by the names of the header. Launchers may write before lines, NCCL may write
# between and within them, and files may hold several runs and other text.

MICRO = 1e-6
MISMATCH = 0.05  # by which a time may miss size / algbw before the row is doubted
NONE = ("n/a", "nan", "-nan", "inf", "-inf")
SHOWN = 90
LONGEST_COMMAND = 1 << 16
FEW = 1000  # words among which the start of nccl-tests is looked for
COLOURS = re.compile(ESCAPE.pattern.encode())
# What every row and every header has: a word behind blanks, behind a number or `size`. A pattern
# that begins with a word is found faster than lines are split. All but ASCII may be a blank.
BEFORE = 64  # bytes that are looked at before a word
BLANK, NUMBER = rb"[\s\x1c-\x1f\x80-\xff]", rb"[\d\s\x1c-\x1f\x80-\xff]{2}"
ROW_WORDS = tuple(
    re.compile(rb"%b(?:(?<=%b%b)|(?<=%b[ub]%b))" % (word, NUMBER + BLANK, word, BLANK, word))
    for word in TYPES.encode().replace(b"uint", b"int").replace(b"bfloat", b"float").split(b"|")
)
HEADER_WORDS = (re.compile(rb"count(?<=[e\s\x1c-\x1f\x80-\xff]%bcount)" % BLANK),)
ROW_START = re.compile(r"(?:(?:\A\ufffd*|\d)\s+\d+|\A\ufffd*\d*)\s+[ub]?\Z")
HEADER_START = re.compile(r"(?:\A\ufffd*\w{0,4}|size)\s+\Z")


@dataclass
class _Table:
    line: int
    header: tuple[str, ...] = ()
    collective: str = ""
    gpus_per_thread: int | None = None
    iterations: int | None = None
    devices: dict[int, Device] = field(default_factory=dict)
    rows: list[Measured] = field(default_factory=list)
    ratios: list[tuple[float, float]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    choices: dict[int, tuple[str, str]] = field(default_factory=dict)
    empty: int = 0


def parse_text(text: str, name: str) -> tuple[LogRun, ...]:
    """All runs of a text, called `name` in errors."""
    if not text.strip():
        raise InputError(f"{name}: the file is empty")
    content = text.encode("utf-8", errors="replace")
    _refuse_without_tables(content, name)
    reader = _Reader(name)
    for number, line in enumerate(_joined(text.splitlines()), 1):
        reader.read(number, line)
    reader.finish()
    if not reader.runs:
        raise _without_tables(content, name)
    return tuple(reader.runs)


def _refuse_without_tables(content: bytes, name: str) -> None:
    """Refuse at once what has nothing that rows or headers have; what is let through may be both.
    Junk of 100 MB is not worth looking at line by line, which takes minutes."""
    content = COLOURS.sub(b"", content)
    for words, start in ((ROW_WORDS, ROW_START), (HEADER_WORDS, HEADER_START)):
        for match in (match for word in words for match in word.finditer(content)):
            before = content[max(0, match.start() - BEFORE) : match.start()]
            if start.search(before.decode(errors="replace")):
                return
    raise _without_tables(content, name)


def _without_tables(content: bytes, name: str) -> InputError:
    """What to say of a file without results."""
    folded = content.lower()  # of ASCII
    for pattern, where, word in ((PERF, folded, b"_perf"), (SETTINGS, content, b"nThread")):
        for match in islice(re.finditer(word, where), FEW):
            near = where[max(0, match.start() - BEFORE) : match.start() + BEFORE]
            if pattern.search(near.decode(errors="replace")):
                return InputError(f"{name}: nccl-tests was started, but no row of results follows")
    return InputError(f"{name}: no table of nccl-tests or rccl-tests is in this file")


def _joined(lines: list[str]) -> Iterator[str]:
    held = ""
    blanks = 0
    for raw in lines:
        line = cleaned(raw)
        inside, core = info_in(line), CORE.search(line)
        if held and inside is None and not core and line.lstrip()[:1] not in ("", "#"):
            yield held + line
            yield from [""] * blanks
            held, blanks = "", 0
        elif core and inside is not None and inside > core.start():
            held, blanks = line[:inside], 1
        elif held and inside is not None:
            blanks += 1
        else:
            if held:
                yield held
                yield from [""] * (blanks - 1)
                held, blanks = "", 0
            yield line
    if held:
        yield held


@dataclass
class _Reader:
    name: str
    runs: list[LogRun] = field(default_factory=list)
    command: str = ""
    nccl: str = ""
    variables: dict[str, str] = field(default_factory=dict)
    network: dict[str, None] = field(default_factory=dict)
    table: _Table | None = None

    def read(self, number: int, line: str) -> None:
        """One line."""
        self._statements(number, line)
        if match := header_in(line):
            self._begin(number).header = header_columns(match.group(1))
        elif match := CORE.search(line):
            self._row(number, match)
        elif self.table is not None and self.table.header:
            bare = without_prefix(line)
            if NUMBERS.match(bare) and len(bare.split()) > 4:
                shown = bare.strip()[:SHOWN]
                self.table.problems.append(f"line {number}: not understood: {shown}")

    def finish(self) -> None:
        """Close the open table."""
        table = self.table
        self.table = None
        if table is None or not (table.rows or table.problems):
            return
        if table.empty:
            table.notes.append(f"{table.empty} rows of size 0 left out")
        rows = _ordered(table)
        if not rows and not table.problems:
            return
        self.runs.append(
            LogRun(
                self.name,
                table.collective or collective_in(self.command),
                rows,
                tuple(table.devices[rank] for rank in sorted(table.devices)),
                table.gpus_per_thread,
                self.command,
                self.nccl,
                dict(self.variables),
                tuple(self.network),
                dict(table.choices),
                tuple(table.ratios),
                tuple(table.problems),
                tuple(table.notes),
                table.line,
                table.iterations,
            )
        )

    def _begin(self, number: int) -> _Table:
        """The open table; another one where that has a header or rows already."""
        before = self.table
        if before is not None and not (before.rows or before.header):
            return before
        self.finish()
        self.table = table = _Table(number)
        if before is not None and before.rows:
            table.devices = before.devices  # until the next list of devices
            table.gpus_per_thread = before.gpus_per_thread
            table.iterations = before.iterations
        return table

    def _statements(self, number: int, line: str) -> None:
        """Read a line that is no row of a table: what NCCL or the test says of itself."""
        self._table_statements(number, line)
        if match := LIBRARY.search(line) or VERSION.search(line):
            self.nccl = match.group(1)
        if match := ENVIRONMENT.search(line):
            self.variables[match[1]] = match[2].rstrip(".,;")
        if (match := NETWORK.search(line)) and len(self.network) < MOST_MESSAGES:
            self.network[match[0]] = None
        for match in ASSIGNMENT.finditer(line):
            self.variables[match[1]] = match[3]
        if COMMAND.search(line) and info_in(line) is None:
            self.command = without_prefix(line).strip().lstrip("#$> ")[:LONGEST_COMMAND]
        if self.table is not None and (match := CHOICE.search(line)):
            algorithm = ALGORITHMS.get(match[2].upper(), match[2])
            protocol = PROTOCOLS.get(match[3].upper(), match[3])
            self.table.choices[int(match[1])] = (algorithm, protocol)

    def _table_statements(self, number: int, line: str) -> None:
        """Read a line that belongs to the head of a table, and open that table."""
        if match := STARTING.search(line):
            name = match[1][: match[1].find("_perf", 1)] if "_perf" in match[1][1:] else match[1]
            self._begin(number).collective = collective_in(name + "_perf")
        elif match := SETTINGS.search(line):
            table = self._begin(number)
            table.gpus_per_thread = int(match[2])
            if timed := ITERATIONS.search(line):
                table.iterations = int(timed[1]) * int(timed[2] or 1) * max(1, int(timed[3] or 1))
        elif match := DEVICE.search(line):
            table = self._begin(number)
            rank, process, host, number_on_host, _, model = match.groups()
            if int(rank) == 0:
                table.devices = {}
            table.devices[int(rank)] = Device(
                int(rank), f"{host}:{process}", host, model.strip(), int(number_on_host)
            )

    def _row(self, number: int, match: re.Match[str]) -> None:
        table = self.table or self._begin(number)
        found = cells_of(match, table.header)
        if isinstance(found, str):
            table.problems.append(f"line {number}: {found}: {match.group().strip()[:SHOWN]}")
            return
        if found.size == 0:
            table.empty += 1
            return
        try:
            row, ratios = _measured(found, number)
        except ValueError as error:
            table.problems.append(f"line {number}: {error}: {match.group().strip()[:SHOWN]}")
            return
        if found.cut:
            table.notes.append(f"line {number}: the row is cut; what is whole was taken")
        if row.out_of_place is None and row.in_place is None:
            table.problems.append(f"line {number}: no time at {found.size} B")
            return
        table.rows.append(row)
        table.ratios += ratios


def _measured(cells: Cells, line: int) -> tuple[Measured, list[tuple[float, float]]]:
    times: list[float | None] = []
    ratios = []
    for time, algbw, busbw in cells.halves:
        seconds = positive(time, "time")
        alg, bus = positive(algbw, "algbw", zero=True), positive(busbw, "busbw", zero=True)
        if seconds is not None and alg is not None and alg > 1:
            implied = cells.size / alg / 1e9 / MICRO
            if abs(seconds / implied - 1) > MISMATCH:
                raise ValueError(f"{time} µs and {algbw} GB/s do not fit {cells.size} B")
        if alg is not None and bus is not None:
            ratios.append((alg, bus))
        times.append(None if seconds is None else seconds * MICRO)
    root = int(cells.root) if cells.root else -1
    out = times[0]
    inside = times[1] if len(times) > 1 else None
    row = Measured(cells.size, cells.count, cells.dtype, cells.redop, root, out, inside, line)
    return row, ratios


def positive(text: str, what: str, *, zero: bool = False) -> float | None:
    """A number of a table; None where there is none, an error where it is impossible."""
    if text.casefold() in NONE:
        return None
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"{what}: expected a number, got {text!r}") from None
    if not isfinite(value) or value < 0 or (value == 0 and not zero):
        raise ValueError(f"{what}: expected more than 0, got {text}")
    return value


def _ordered(table: _Table) -> tuple[Measured, ...]:
    """Rows by size, of each size and type the first; what was out of order is told."""
    seen: dict[tuple[int, str, str, int], Measured] = {}
    for row in table.rows:
        first = seen.setdefault((row.size_bytes, row.dtype, row.redop, row.root), row)
        if first is not row:
            told = f"{row.size_bytes} B a second time, the row of line {first.line} holds"
            table.notes.append(f"line {row.line}: {told}")
    found = list(seen.values())
    kind = attrgetter("dtype", "redop", "root")
    if all(a.size_bytes < b.size_bytes or kind(a) != kind(b) for a, b in pairwise(found)):
        return tuple(found)
    table.notes.append("sizes were out of order and are sorted")
    return tuple(sorted(found, key=lambda row: row.size_bytes))


def collective_in(text: str) -> str:
    """The collective that a command or program name times; empty where it names none."""
    match = PERF.search(text)
    if match is None:
        return ""
    try:
        return collective_name(match.group(1).replace("all_to_all", "alltoall"))
    except ValueError:
        return match.group(1)


JSON_TIMES = ("time", "cpu_time", "gpu_time")


def parse_json(text: str, name: str) -> tuple[LogRun, ...]:
    """The runs of a JSON text: one, or one for each line or entry of a list."""
    values = _values(text, name)
    runs = [_run(value, name) for value in values if isinstance(value, Mapping)]
    found = tuple(run for run in runs if run.rows or run.problems)
    if not found:
        raise InputError(f"{name}: this JSON has no results of nccl-tests")
    return found


def _values(text: str, name: str) -> list[Any]:
    try:
        value = json.loads(text)
        return value if isinstance(value, list) else [value]
    except (ValueError, RecursionError) as error:
        several = text.splitlines() if '"results"' in text else [text]
        lines = [line for line in several if line.strip()]
        try:
            return [json.loads(line) for line in lines]
        except (ValueError, RecursionError):
            raise InputError(f"{name}: this JSON cannot be read: {error}") from None


def _run(value: Mapping[str, Any], name: str) -> LogRun:
    config = value.get("config") if isinstance(value.get("config"), Mapping) else {}
    assert isinstance(config, Mapping)
    rows: list[Measured] = []
    ratios: list[tuple[float, float]] = []
    problems: list[str] = []
    results = value.get("results")
    for number, result in enumerate(results if isinstance(results, list) else [], 1):
        try:
            row, found = _json_row(result, number)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            problems.append(f"line {number}: result {number}: {error}")
            continue
        if row is not None:
            rows.append(row)
            ratios += found
    arguments = [str(one) for one in _list(value.get("args"))]
    devices, serial = _list(config.get("devices") or value.get("devices")), str(config.get("ngpus"))
    return LogRun(
        name,
        collective_in(str(value.get("test", "")) + " " + " ".join(arguments)),
        tuple(sorted(rows, key=lambda row: row.size_bytes)),
        tuple(_device(one) for one in devices if isinstance(one, Mapping)),
        int(serial) if serial.isdecimal() else None,
        " ".join(arguments),
        str(value.get("nccl_version") or ""),
        _variables(value.get("env")),
        ratios=tuple(ratios),
        problems=tuple(problems),
    )


def _json_row(
    result: Mapping[str, Any], number: int
) -> tuple[Measured | None, list[tuple[float, float]]]:
    size = int(result["size"])
    if size == 0:
        return None, []
    times: list[float | None] = []
    ratios = []
    for side in ("out_of_place", "in_place"):
        half = result.get(side)
        if not isinstance(half, Mapping):
            times.append(None)
            continue
        given = next((half[key] for key in JSON_TIMES if key in half), None)
        seconds = None if given is None else positive(str(given), f"{side}.time")
        times.append(None if seconds is None else seconds * MICRO)
        alg, bus = (positive(str(half.get(k, "nan")), k, zero=True) for k in ("alg_bw", "bus_bw"))
        if alg is not None and bus is not None:
            ratios.append((alg, bus))
    if times == [None, None]:
        raise ValueError(f"no time at {size} B")
    root = str(result.get("root", "-1"))
    row = Measured(
        size,
        int(result["count"]) if result.get("count") is not None else None,
        str(result.get("type", "float")),
        str(result.get("redop", "")),
        _rank(root, -1),
        times[0],
        times[1],
        number,
    )
    return row, ratios


def _device(one: Mapping[str, Any]) -> Device:
    host = str(one.get("hostname", ""))
    name = str(one.get("device_info") or one.get("device_name") or "")
    number = _rank(one.get("device"), -1)
    return Device(_rank(one.get("rank")), f"{host}:{one.get('pid', '')}", host, name, number)


def _variables(given: Any) -> dict[str, str]:
    texts = (str(one).split("=", 1) for one in _list(given) if "=" in str(one))
    pairs = given.items() if isinstance(given, Mapping) else texts
    return {str(key): str(value) for key, value in pairs if str(key).startswith("NCCL_")}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


CSV_TIMES = ("oop_time_us", "ip_time_us")
COARSE = 0.05  # error of a rate by its last digit beyond which it tells no time


def question(row: Measured) -> Measured:
    """A row without its figures: a second stands for them."""
    return replace(row, out_of_place=1.0, in_place=None)


def read_csv(path: Path, bus_factor: float = 0.0, *, asked: bool = False) -> tuple[Measured, ...]:
    """All rows of a file that have a time, or a bandwidth of which it follows (bus bandwidth is
    `bus_factor` of algorithm bandwidth); of a file that is `asked`, all rows as questions, without
    a look at their figures. What cannot be read is an error with its line."""
    text = text_of(path, LARGEST_FILE)
    if asked:
        rows = list(csv.DictReader(text.splitlines()))
        kept = COLUMNS[:5]  # what comes before the figures
        lines = (
            [*kept, "oop_time_us"],
            *([row.get(key) or "" for key in kept] + ["1e6"] for row in rows),
        )
        text = "\n".join(map(",".join, lines))
    return parse_csv(text, str(path), bus_factor)


def parse_csv(text: str, name: str, bus_factor: float = 0.0) -> tuple[Measured, ...]:
    """The rows of a text, called `name` in errors."""
    if not text.strip():
        raise InputError(f"{name}: the file is empty")
    lines = csv.reader(text.splitlines())
    try:
        return _csv_rows(lines, name, bus_factor)
    except csv.Error as error:
        raise InputError(f"{name}:{lines.line_num}: cannot be read: {error}") from None


def _csv_rows(lines: Any, name: str, bus_factor: float) -> tuple[Measured, ...]:
    header = [column.strip() for column in next(lines)]
    if "size_bytes" not in header or not set(COLUMNS[5:]) & set(header):
        missing = "size_bytes" if "size_bytes" not in header else " or ".join(CSV_TIMES)
        raise InputError(
            f"{name}: not a table of measured runs, there is no column {missing}"
            f"{suggest(missing, header)}"
        )
    found = []
    for cells in lines:
        place = f"{name}:{lines.line_num}"
        if not any(cell.strip() for cell in cells):
            continue
        if len(cells) != len(header):
            raise InputError(f"{place}: expected {len(header)} values, got {len(cells)}")
        values = {key: cell.strip() for key, cell in zip(header, cells, strict=True)}
        row = _csv_row(values, place, lines.line_num, bus_factor)
        if row.out_of_place is not None or row.in_place is not None:
            found.append(row)
    if not found:
        raise InputError(f"{name}: no row has a time")
    return tuple(found)


def _csv_row(values: Mapping[str, str], place: str, line: int, bus_factor: float) -> Measured:
    root, size = values.get("root", ""), _whole(values["size_bytes"], "size_bytes", place)
    return Measured(
        size_bytes=size,
        count=_whole(values["count"], "count", place) if values.get("count") else None,
        dtype=values.get("dtype") or "float",
        redop=values.get("redop", ""),
        root=_rank(root, -1),
        out_of_place=_timed(values, "oop", size, bus_factor, place),
        in_place=_timed(values, "ip", size, bus_factor, place),
        line=line,
    )


def _timed(
    values: Mapping[str, str], side: str, size: int, bus_factor: float, place: str
) -> float | None:
    """The time of a side; of a bandwidth where there is none, if its digits tell it."""
    column = f"{side}_time_us"
    micros = _positive(values.get(column, ""), column, "microseconds", place)
    for kind, factor in (("algbw", 1.0), ("busbw", bus_factor)):
        text = values.get(column := f"{side}_{kind}_gbps", "") if micros is None else ""
        rate = _positive(text, column, "GB/s", place) if text.strip("0.") else None
        if rate and 10.0 ** -len(text.partition(".")[2]) / 2 <= COARSE * rate:
            micros = size * factor / rate / 1e3 or None
    return None if micros is None else micros * MICRO


def _whole(text: str, column: str, place: str) -> int:
    try:
        number = float(text)
    except ValueError:
        number = nan
    if not 0 <= number < inf or number != int(number):
        raise InputError(f"{place}: {column}: expected a whole number, got {text!r}")
    return int(number)


def _rank(given: object, unknown: int = 0) -> int:
    return int(str(given)) if re.fullmatch(r"-?\d{1,9}", str(given)) else unknown


def _positive(text: str, column: str, unit: str, place: str) -> float | None:
    if text.casefold() in ("", "n/a", "nan"):
        return None
    try:
        found = float(text)
    except ValueError:
        raise InputError(f"{place}: {column}: expected {unit}, got {text!r}") from None
    if not 0 < found < inf:
        raise InputError(f"{place}: {column}: expected {unit} above 0, got {text}")
    return found


# Files with measured runs, of any kind that is read: text, JSON, CSV; and what was timed in them.
# What a file does not say of itself is inferred from its name and its figures, or asked for.

LARGEST_FILE = 256 * 2**20  # bytes of text, packed or not
GZIP_MAGIC = b"\x1f\x8b"
OTHER_KINDS = (b"{", b"[{", b"size_bytes,")  # how JSON and CSV begin
WHOLE, PART, DOUBLE = "1", "(n-1)/n", "2(n-1)/n"
FACTOR = {
    "all_reduce": DOUBLE, "all_gather": PART, "reduce_scatter": PART, "alltoall": PART,
    "gather": PART, "scatter": PART, "alltoallv": PART, "broadcast": WHOLE, "reduce": WHOLE,
    "sendrecv": WHOLE,
}  # fmt: skip
IN_NAME = re.compile(
    r"(?<![a-z])(all[_-]?reduce|all[_-]?gather|reduce[_-]?scatter|broadcast|bcast|alltoall|"
    r"all[_-]to[_-]all|send[_-]?recv|reduce|gather|scatter)(?![a-z])",
    re.IGNORECASE,
)


def read_log(
    path: Path, collective: str | None = None, presumed: str | None = None
) -> tuple[LogRun, ...]:
    """All runs of a file, each with its collective: the one given, where the file names none, or
    the one presumed, where nothing else tells and the figures allow it."""
    return tuple(_named(run, collective, presumed) for run in parse_log(_text(path), str(path)))


def parse_log(text: str, name: str) -> tuple[LogRun, ...]:
    """All runs of a text, of whatever kind it is."""
    start = text.lstrip("\ufeff \t\r\n")
    if start.startswith(("{", "[{")):
        return parse_json(start, name)
    if start.split("\n", 1)[0].startswith("size_bytes,"):
        return (LogRun(name, rows=parse_csv(start, name)),)
    return parse_text(start, name)


def true_ranks(run: LogRun) -> tuple[int, int] | None:
    """The fewest and most ranks that busbw over algbw allows; None where it tells nothing."""
    kind, factor = FACTOR.get(run.collective), run.bus_factor
    if kind in (None, WHOLE) or factor is None:
        return None
    part = factor / 2 if kind == DOUBLE else factor
    if not 0 < part < 1:
        return None
    fastest = max(alg for alg, _ in run.ratios)
    slack = 0.5 * 0.01 * (1 + factor) / fastest / (2 if kind == DOUBLE else 1)
    low, high = 1 / (1 - max(part - slack, 0.01)), 1 / max(1 - part - slack, 1e-6)
    return max(2, round(low)), max(2, min(round(high), 10**6))


def _text(path: Path) -> str:
    try:
        content = content_of(path, LARGEST_FILE, is_binary=path.suffix == ".gz")
    except ScenarioError as error:
        if path.is_dir():
            raise InputError(f"{path}: expected a log, got a directory") from None
        raise InputError(f"{path}: {error.message}") from None
    if content[:2] == GZIP_MAGIC:
        content = _unpacked(content, path)
    if b"\0" in content[:4096]:
        if content[:2] in (b"\xff\xfe", b"\xfe\xff"):  # as Windows shells redirect
            return content.decode("utf-16", errors="replace")
        raise InputError(f"{path}: expected a log as text, got a binary file")
    if not content.strip():
        raise InputError(f"{path}: the file is empty")
    if not content.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(OTHER_KINDS):
        _refuse_without_tables(content, str(path))
    return content.decode("utf-8", errors="replace")


def _unpacked(content: bytes, path: Path) -> bytes:
    """The text in a gzip file. What unpacks to more than the limit of unpacked logs is refused
    before it takes the memory: a small file may unpack to a thousand times its size."""
    text = bytearray()
    try:
        while content:
            stream = zlib.decompressobj(zlib.MAX_WBITS | 16)
            text += stream.decompress(content, LARGEST_FILE + 1 - len(text))
            if len(text) > LARGEST_FILE:
                raise InputError(f"{path}: larger than {LARGEST_FILE // 2**20} MiB when unpacked")
            if not stream.eof:
                raise InputError(f"{path}: the gzip data is cut")
            content = stream.unused_data.lstrip(b"\0")  # several streams, or padding at the end
    except zlib.error:
        raise InputError(f"{path}: the gzip data is damaged") from None
    return bytes(text)


def _named(run: LogRun, given: str | None, presumed: str | None = None) -> LogRun:
    """The run with its collective: as it says, as given, by its file's name, by its figures."""
    if run.collective and given and run.collective != given:
        raise InputError(f"{run.file}: this is {run.collective}, not {given}")
    found, why = run.collective or given or "", ""
    possible = _by_figures(run)
    if not found:
        match = IN_NAME.search(Path(run.file).stem)
        if match:
            word = match.group(1).casefold().replace("bcast", "broadcast")
            found = collective_name(re.sub(r"[_-]to[_-]", "to", word))
            why = f"taken as {found}, by the name of the file"
        elif len(possible) == 1:
            found = possible[0]
            why = f"taken as {found}, by its columns"
        elif presumed in possible:
            found, why = str(presumed), f"taken as {presumed}, which is simulated"
    if not found:
        several = " or ".join(possible) if possible else "unknown"
        raise InputError(
            f"{run.file}: the log does not say what it timed ({several})",
            hint="name it with --collective",
        )
    if found not in FACTOR:
        raise InputError(f"{run.file}: {found} is not simulated; known: {', '.join(FACTOR)}")
    if possible and found not in possible:
        why = f"{found} is said, but its columns are those of {' or '.join(possible)}"
    return replace(run, collective=found, notes=(*run.notes, *([why] if why else [])))


def _by_figures(run: LogRun) -> list[str]:
    """What it may be by its operation, root, and bus bandwidth over algorithm bandwidth."""
    if not run.rows:
        return []
    first = run.rows[-1]
    names = [name for name in FACTOR if name != "alltoallv"]
    factor = run.bus_factor
    if factor is not None:
        # 2(n-1)/n is 1 for two ranks, and (n-1)/n is never 1
        if factor > 1.01:
            kinds = {DOUBLE}
        else:
            kinds = {WHOLE, DOUBLE} if factor > 0.99 else {PART}
        names = [name for name in names if FACTOR[name] in kinds]
    if first.redop:
        summed = first.redop != "none"
        reduces = ("all_reduce", "reduce_scatter", "reduce", "sendrecv")
        names = [name for name in names if (name in reduces) is summed]
    if first.redop or first.root >= 0:
        rooted = ("broadcast", "reduce", "gather", "scatter")
        names = [name for name in names if (name in rooted) is (first.root >= 0)]
    return names
