"""Read logs of measured runs: the text and the JSON of nccl-tests, and tables in CSV.

Files may hold several runs and other text; a log may also show the system that it ran on.
"""

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

# Collectives that do the same work in and out of place: the two times differ by noise only.
SAME_WORK = ("all_reduce", "broadcast", "reduce")


@dataclass(frozen=True, slots=True)
class MeasuredRow:
    """One row of a table of a log: times in seconds, None if not measured; `line` is its line in
    the file.
    """

    size_bytes: int
    count: int | None = None
    dtype: str = "float"
    redop: str = ""
    root: int = -1
    out_of_place: float | None = None
    in_place: float | None = None
    line: int = 0

    def seconds(self, collective: str) -> float | None:
        """Return the time in seconds that is compared with the simulation; None without a time.

        It is the smaller one of both if the collective does the same work in and out of place, else
        the time out of place or, if that is missing, the time in place.
        """
        times = [time for time in (self.out_of_place, self.in_place) if time is not None]
        if not times:
            return None
        return min(times) if collective in SAME_WORK else times[0]

    def is_in_place(self, collective: str) -> bool:
        """Whether the compared time is in place, for a collective whose work in place differs."""
        return self.out_of_place is None and collective not in SAME_WORK


CLEAR = 0.5  # GB/s above which bandwidths with two decimals give a usable ratio


@dataclass(frozen=True, slots=True)
class LogDevice:
    """The GPU of a rank in the list of devices that nccl-tests prints; `number` is its CUDA device,
    -1 if not stated.
    """

    rank: int
    process: str
    host: str
    name: str
    number: int = -1


@dataclass(frozen=True)
class LogRun:
    """One table of a log, and what the log states of its system."""

    file: str
    collective: str = ""
    rows: tuple[MeasuredRow, ...] = ()
    devices: tuple[LogDevice, ...] = ()
    gpus_per_thread: int | None = None
    command: str = ""
    nccl: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)
    network: tuple[str, ...] = ()  # messages of NCCL and its plug-ins about networks
    choices: Mapping[int, tuple[str, str]] = field(default_factory=dict)  # by size
    ratios: tuple[tuple[float, float], ...] = ()  # algbw and busbw of the rows, in GB/s
    problems: tuple[str, ...] = ()  # lines that look like rows and cannot be used
    notes: tuple[str, ...] = ()
    line: int = 1
    iterations: int | None = None
    """The operations that were timed, or None if the head of the table does not state them."""

    @property
    def hosts(self) -> dict[str, int]:
        """The number of listed ranks of each host."""
        return dict(Counter(device.host for device in self.devices))

    @property
    def listed_ranks(self) -> int | None:
        """The number of ranks: the last rank in the list of devices (which may be incomplete) plus
        1.
        """
        return max((device.rank for device in self.devices), default=-1) + 1 or None

    @cached_property
    def bus_factor(self) -> float | None:
        """The median of bus bandwidth over algorithm bandwidth; None if the bandwidths of all rows
        are too small for that.
        """
        clear = [bus / alg for alg, bus in self.ratios if alg > CLEAR]
        return median(clear) if clear else None

    @property
    def gpu_name(self) -> str:
        """The most frequent name of the GPUs that the log lists."""
        names = Counter(device.name for device in self.devices if device.name)
        return names.most_common(1)[0][0] if names else ""


# Patterns that recognize the lines of nccl-tests, with any text of launchers before them. A line
# may be as long as the file. So each pattern is written such that a search reads every character a
# bounded number of times, also in a long run of equal characters.

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
# The number of timed operations. Several of them may be issued as a group (`-m`), and all of them
# may be part of a CUDA graph that is launched several times (`-G`).
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
# Messages about networks, and the variables of network plugins.
NETWORK = re.compile(r"(?:NET/|Using network |[Ll]oaded net plugin |\bFI_[A-Z_]{1,40}=).{1,160}")
MOST_MESSAGES = 64  # about networks that are kept
CHOICE = re.compile(r"(?<!\d)(\d{1,20}) Bytes -> Algo (\w+) proto (\w+)")
INFO = re.compile(r":\d+:\d+ \[[-\d]+\] NCCL (?:INFO|WARN|TRACE)")  # after the name of a host
HOST = re.compile(r"[\w.\-]*[A-Za-z]")  # matched against the reversed line before `INFO`
LONGEST_HOST = 255
CLOCK = r"\d{2}:\d{2}:\d{2}(?:[.,]\d+)?"
STAMP = re.compile(rf"\d{{4}}-\d{{2}}-\d{{2}}(?:T{CLOCK})?Z?")
TIME_OF_DAY = re.compile(rf"{CLOCK}Z?")
# Text of launchers before a line: srun -l, mpirun --tag-output and --timestamp-output, dates.
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
    """The values of a row of a table.

    Args:
        halves: (time, algbw, busbw) as text, out of place and then in place.
        cut: whether the end of the row is missing.
    """

    size: int
    count: int
    dtype: str
    redop: str
    root: str
    halves: tuple[tuple[str, ...], ...]
    cut: bool = False


def cleaned(line: str) -> str:
    """Return a line without escape sequences for colors."""
    return ESCAPE.sub("", line).rstrip("\r\n")


def info_in(line: str) -> int | None:
    """Return the position in a line at which a message of NCCL begins (with the name of its host);
    None without one.
    """
    if "] NCCL " not in line:
        return None
    for match in INFO.finditer(line):
        host = HOST.match(line[max(0, match.start() - LONGEST_HOST) : match.start()][::-1])
        if host:
            return match.start() - host.end()
    return None


def header_in(line: str) -> re.Match[str] | None:
    """Return the match of the column names after a `#`; None if the line has none."""
    first = line.find("#")
    return HEADER.search(line, first + 1) if first >= 0 else None


def without_stamps(text: str) -> list[str]:
    """Return the words of a row without the time stamps that launchers wrote after it."""
    words = text.split()
    while words:
        clock = len(words) > 1 and TIME_OF_DAY.fullmatch(words[-1]) is not None
        if not STAMP.fullmatch(words[-2 if clock else -1]):
            break
        del words[-2 if clock else -1 :]
    return words


def without_prefix(line: str) -> str:
    """Return a line without the text that launchers write before it."""
    for _ in range(4):
        match = PREFIX.match(line)
        if match is None or not match.end():
            return line
        line = line[match.end() :]
    return line


def header_columns(text: str) -> tuple[str, ...]:
    """Return the names of the columns after `type`, given the rest of a header line."""
    names = (name.casefold() for name in text.split())
    return tuple(OTHER_NAMES.get(name, name) for name in names if name != "#")


def cells_of(match: re.Match[str], header: Sequence[str]) -> Cells | str:
    """Parse a row: return its values, or the reason why it is not understood. `header` has the
    names of the columns.
    """
    size, count, dtype, rest = match.groups()
    tokens = without_stamps(rest)
    redop = tokens.pop(0) if tokens and tokens[0].casefold() in OPS else ""
    root = ""
    columns = [name for name in header if name not in (*LABELS, "timestamp")]
    rooted = "root" in header or (not header and len(tokens) in (5, 7, 9))
    starts_with_number = bool(tokens) and tokens[0].removeprefix("-").isdecimal()
    if starts_with_number and rooted and len(tokens) != len(columns):
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
    return Cells(
        size=int(size),
        count=int(count),
        dtype=dtype,
        redop=redop,
        root=root,
        halves=halves,
        cut=cut,
    )


def _halves(columns: Sequence[str], tokens: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """Return (time, algbw, busbw) of each complete group of these columns: out of place, then in
    place.

    The last token of a row that is cut may lack digits and is not used.
    """
    usable_count = len(tokens) if len(tokens) == len(columns) else len(tokens) - 1
    return tuple(
        tuple(tokens[first : first + 3])
        for first in range(usable_count - 2)
        if list(columns[first : first + 3]) == ["time", "algbw", "busbw"]
    )


# Reading the text that nccl-tests and rccl-tests print, in every version. The names in the header
# identify the columns. Launchers may write text before lines, NCCL may write between and within
# lines, and a file may hold several runs and other text.

MICRO = 1e-6
MISMATCH = 0.05  # a row is refused if its time and size / algbw differ by a larger fraction
NONE = ("n/a", "nan", "-nan", "inf", "-inf")
SHOWN = 90  # characters of a line that a message quotes
LONGEST_COMMAND = 1 << 16
FEW = 1000  # words that are examined for the start of nccl-tests
COLORS = re.compile(ESCAPE.pattern.encode())
# Every row and every header contains one of these words, after blanks that follow a number or
# `size`. To search a file for such words is faster than to split it into lines. Bytes that are not
# ASCII may be blanks.
BEFORE = 64  # bytes before a word that are examined
BLANK = rb"[\s\x1c-\x1f\x80-\xff]"
NUMBER = rb"[\d\s\x1c-\x1f\x80-\xff]{2}"
ROW_WORDS = tuple(
    re.compile(rb"%b(?:(?<=%b%b)|(?<=%b[ub]%b))" % (word, NUMBER + BLANK, word, BLANK, word))
    for word in TYPES.encode().replace(b"uint", b"int").replace(b"bfloat", b"float").split(b"|")
)
HEADER_WORDS = (re.compile(rb"count(?<=[e\s\x1c-\x1f\x80-\xff]%bcount)" % BLANK),)
ROW_START = re.compile(r"(?:(?:\A\ufffd*|\d)\s+\d+|\A\ufffd*\d*)\s+[ub]?\Z")
HEADER_START = re.compile(r"(?:\A\ufffd*\w{0,4}|size)\s+\Z")


@dataclass
class _Table:
    """A table that is being read, with what the log has stated about it so far."""

    line: int
    header: tuple[str, ...] = ()
    collective: str = ""
    gpus_per_thread: int | None = None
    iterations: int | None = None
    devices: dict[int, LogDevice] = field(default_factory=dict)
    rows: list[MeasuredRow] = field(default_factory=list)
    ratios: list[tuple[float, float]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    choices: dict[int, tuple[str, str]] = field(default_factory=dict)
    empty: int = 0


def parse_text(text: str, name: str) -> tuple[LogRun, ...]:
    """Return all runs of a text of nccl-tests; `name` is the name of the file in errors."""
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
    """Raise an error at once for a file without any word that rows or headers contain.

    To examine 100 MB of other text line by line would take minutes.
    """
    content = COLORS.sub(b"", content)
    for words, start in ((ROW_WORDS, ROW_START), (HEADER_WORDS, HEADER_START)):
        for match in (match for word in words for match in word.finditer(content)):
            before = content[max(0, match.start() - BEFORE) : match.start()]
            if start.search(before.decode(errors="replace")):
                return
    raise _without_tables(content, name)


def _without_tables(content: bytes, name: str) -> InputError:
    """Return the error for a file without results."""
    folded = content.lower()  # changes only ASCII letters
    for pattern, where, word in ((PERF, folded, b"_perf"), (SETTINGS, content, b"nThread")):
        for match in islice(re.finditer(word, where), FEW):
            near = where[max(0, match.start() - BEFORE) : match.start() + BEFORE]
            if pattern.search(near.decode(errors="replace")):
                return InputError(f"{name}: nccl-tests was started, but no row of results follows")
    return InputError(f"{name}: no table of nccl-tests or rccl-tests is in this file")


def _joined(lines: list[str]) -> Iterator[str]:
    """Yield the lines; rows that a message of NCCL has cut into two lines are joined.

    Empty lines replace the removed ones, so that line numbers stay the same.
    """
    row_start = ""
    blanks = 0
    for raw in lines:
        line = cleaned(raw)
        message = info_in(line)
        core = CORE.search(line)
        if row_start and message is None and not core and line.lstrip()[:1] not in ("", "#"):
            yield row_start + line
            yield from [""] * blanks
            row_start = ""
            blanks = 0
        elif core and message is not None and message > core.start():
            row_start = line[:message]
            blanks = 1
        elif row_start and message is not None:
            blanks += 1
        else:
            if row_start:
                yield row_start
                yield from [""] * (blanks - 1)
                row_start = ""
                blanks = 0
            yield line
    if row_start:
        yield row_start


@dataclass
class _Reader:
    """Reads the lines of a log one after the other; `runs` are the complete tables so far."""

    name: str
    runs: list[LogRun] = field(default_factory=list)
    command: str = ""
    nccl: str = ""
    variables: dict[str, str] = field(default_factory=dict)
    network: dict[str, None] = field(default_factory=dict)
    table: _Table | None = None

    def read(self, number: int, line: str) -> None:
        """Read the line with number `number` of the file."""
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
        """Close the open table, and add its run to `runs`."""
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
                file=self.name,
                collective=table.collective or collective_in(self.command),
                rows=rows,
                devices=tuple(table.devices[rank] for rank in sorted(table.devices)),
                gpus_per_thread=table.gpus_per_thread,
                command=self.command,
                nccl=self.nccl,
                variables=dict(self.variables),
                network=tuple(self.network),
                choices=dict(table.choices),
                ratios=tuple(table.ratios),
                problems=tuple(table.problems),
                notes=tuple(table.notes),
                line=table.line,
                iterations=table.iterations,
            )
        )

    def _begin(self, number: int) -> _Table:
        """Return the open table, or open a new one at line `number` if the open one already has a
        header or rows.
        """
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
        """Read what a line states about NCCL, variables, networks, or the command."""
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
        """Read a line of the head of a table, and open that table."""
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
            table.devices[int(rank)] = LogDevice(
                rank=int(rank),
                process=f"{host}:{process}",
                host=host,
                name=model.strip(),
                number=int(number_on_host),
            )

    def _row(self, number: int, match: re.Match[str]) -> None:
        """Read a row of the open table; without a table, one is opened. `number` is the number of
        the line.
        """
        table = self.table or self._begin(number)
        row_text = match.group().strip()[:SHOWN]
        cells = cells_of(match, table.header)
        if isinstance(cells, str):
            table.problems.append(f"line {number}: {cells}: {row_text}")
            return
        if cells.size == 0:
            table.empty += 1
            return
        try:
            row, ratios = _measured(cells, number)
        except ValueError as error:
            table.problems.append(f"line {number}: {error}: {row_text}")
            return
        if cells.cut:
            table.notes.append(f"line {number}: the row is cut; what is whole was taken")
        if row.out_of_place is None and row.in_place is None:
            table.problems.append(f"line {number}: no time at {cells.size} B")
            return
        table.rows.append(row)
        table.ratios += ratios


def _measured(cells: Cells, line: int) -> tuple[MeasuredRow, list[tuple[float, float]]]:
    """Return the measured row with some values, and its pairs of algbw and busbw.

    Raises:
        ValueError: a value is impossible, or a time does not fit its bandwidth.
    """
    times: list[float | None] = []
    ratios = []
    for time, algbw, busbw in cells.halves:
        seconds = positive(time, "time")
        alg = positive(algbw, "algbw", zero=True)
        bus = positive(busbw, "busbw", zero=True)
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
    row = MeasuredRow(
        size_bytes=cells.size,
        count=cells.count,
        dtype=cells.dtype,
        redop=cells.redop,
        root=root,
        out_of_place=out,
        in_place=inside,
        line=line,
    )
    return row, ratios


def positive(text: str, column: str, *, zero: bool = False) -> float | None:
    """Return a number of a table, or None if it has a text instead of a number, such as `n/a`.

    Raises:
        ValueError: the text is no number, or the number is not above 0.
    """
    if text.casefold() in NONE:
        return None
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"{column}: expected a number, got {text!r}") from None
    if not isfinite(value) or value < 0 or (value == 0 and not zero):
        raise ValueError(f"{column}: expected more than 0, got {text}")
    return value


def _ordered(table: _Table) -> tuple[MeasuredRow, ...]:
    """Return the rows of a table sorted by size, only the first of each size and data type.

    Notes are added to the table on rows that were left out or sorted.
    """
    seen: dict[tuple[int, str, str, int], MeasuredRow] = {}
    for row in table.rows:
        first = seen.setdefault((row.size_bytes, row.dtype, row.redop, row.root), row)
        if first is not row:
            repeated = f"{row.size_bytes} B a second time, the row of line {first.line} holds"
            table.notes.append(f"line {row.line}: {repeated}")
    rows = list(seen.values())
    kind = attrgetter("dtype", "redop", "root")
    if all(a.size_bytes < b.size_bytes or kind(a) != kind(b) for a, b in pairwise(rows)):
        return tuple(rows)
    table.notes.append("sizes were out of order and are sorted")
    return tuple(sorted(rows, key=lambda row: row.size_bytes))


def collective_in(text: str) -> str:
    """Return the collective that a command or the name of a program times; empty if it names
    none.
    """
    match = PERF.search(text)
    if match is None:
        return ""
    try:
        return collective_name(match.group(1).replace("all_to_all", "alltoall"))
    except ValueError:
        return match.group(1)


JSON_TIMES = ("time", "cpu_time", "gpu_time")


def parse_json(text: str, name: str) -> tuple[LogRun, ...]:
    """Return the runs of a JSON text: of a single object, or one for each line or each entry of a
    list.
    """
    values = _values(text, name)
    runs = [_run(value, name) for value in values if isinstance(value, Mapping)]
    results = tuple(run for run in runs if run.rows or run.problems)
    if not results:
        raise InputError(f"{name}: this JSON has no results of nccl-tests")
    return results


def _values(text: str, name: str) -> list[Any]:
    """Return the values of a JSON text: the entries of a list, a single value, or one value per
    line.
    """
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
    """Return the run of a JSON object."""
    config = value.get("config") if isinstance(value.get("config"), Mapping) else {}
    assert isinstance(config, Mapping)
    rows: list[MeasuredRow] = []
    ratios: list[tuple[float, float]] = []
    problems: list[str] = []
    results = value.get("results")
    for number, result in enumerate(results if isinstance(results, list) else [], 1):
        try:
            row, row_ratios = _json_row(result, number)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            problems.append(f"line {number}: result {number}: {error}")
            continue
        if row is not None:
            rows.append(row)
            ratios += row_ratios
    arguments = [str(argument) for argument in _list(value.get("args"))]
    devices = _list(config.get("devices") or value.get("devices"))
    gpus_per_thread = str(config.get("ngpus"))
    return LogRun(
        file=name,
        collective=collective_in(str(value.get("test", "")) + " " + " ".join(arguments)),
        rows=tuple(sorted(rows, key=lambda row: row.size_bytes)),
        devices=tuple(_device(values) for values in devices if isinstance(values, Mapping)),
        gpus_per_thread=int(gpus_per_thread) if gpus_per_thread.isdecimal() else None,
        command=" ".join(arguments),
        nccl=str(value.get("nccl_version") or ""),
        variables=_variables(value.get("env")),
        ratios=tuple(ratios),
        problems=tuple(problems),
    )


def _json_row(
    result: Mapping[str, Any], number: int
) -> tuple[MeasuredRow | None, list[tuple[float, float]]]:
    """Return the measured row of a result in JSON and its pairs of algbw and busbw; no row for a
    size of 0.
    """
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
        time = next((half[key] for key in JSON_TIMES if key in half), None)
        seconds = None if time is None else positive(str(time), f"{side}.time")
        times.append(None if seconds is None else seconds * MICRO)
        alg = positive(str(half.get("alg_bw", "nan")), "alg_bw", zero=True)
        bus = positive(str(half.get("bus_bw", "nan")), "bus_bw", zero=True)
        if alg is not None and bus is not None:
            ratios.append((alg, bus))
    if times == [None, None]:
        raise ValueError(f"no time at {size} B")
    root = str(result.get("root", "-1"))
    row = MeasuredRow(
        size_bytes=size,
        count=int(result["count"]) if result.get("count") is not None else None,
        dtype=str(result.get("type", "float")),
        redop=str(result.get("redop", "")),
        root=_rank(root, -1),
        out_of_place=times[0],
        in_place=times[1],
        line=number,
    )
    return row, ratios


def _device(values: Mapping[str, Any]) -> LogDevice:
    """Return the GPU of a rank, given its entry in JSON."""
    host = str(values.get("hostname", ""))
    process = f"{host}:{values.get('pid', '')}"
    name = str(values.get("device_info") or values.get("device_name") or "")
    number = _rank(values.get("device"), -1)
    return LogDevice(
        rank=_rank(values.get("rank")), process=process, host=host, name=name, number=number
    )


def _variables(environment: Any) -> dict[str, str]:
    """Return the variables of NCCL in an environment: a mapping, or a list of texts NAME=value."""
    if isinstance(environment, Mapping):
        pairs = [(str(name), str(value)) for name, value in environment.items()]
    else:
        texts = [str(entry) for entry in _list(environment)]
        pairs = [(name, value) for name, sign, value in (t.partition("=") for t in texts) if sign]
    return {name: value for name, value in pairs if name.startswith("NCCL_")}


def _list(value: Any) -> list[Any]:
    """Return the value if it is a list, else an empty list."""
    return value if isinstance(value, list) else []


CSV_TIMES = ("oop_time_us", "ip_time_us")
COARSE = 0.05  # a bandwidth gives no time if its last digit is a larger fraction of it


def question(row: MeasuredRow) -> MeasuredRow:
    """Return a row with the time 1 s in place of its measured times."""
    return replace(row, out_of_place=1.0, in_place=None)


def read_csv(
    path: Path, bus_factor: float = 0.0, *, without_times: bool = False
) -> tuple[MeasuredRow, ...]:
    """Return the rows of a CSV file that have a time, or a bandwidth from which the time follows.

    Args:
        path: the file.
        bus_factor: bus bandwidth over algorithm bandwidth; 0 if unknown.
        without_times: return all rows with 1 s as their time; times and bandwidths are not read.

    Raises:
        InputError: a line that cannot be read.
    """
    text = text_of(path, LARGEST_FILE)
    if without_times:
        rows = list(csv.DictReader(text.splitlines()))
        columns = COLUMNS[:5]  # those before the figures
        header = ",".join([*columns, "oop_time_us"])
        lines = [",".join([*(row.get(key) or "" for key in columns), "1e6"]) for row in rows]
        text = "\n".join([header, *lines])
    return parse_csv(text, str(path), bus_factor)


def parse_csv(text: str, name: str, bus_factor: float = 0.0) -> tuple[MeasuredRow, ...]:
    """Return the rows of a CSV text that have a time. `name` is the name of the file in errors,
    `bus_factor` bus bandwidth over algorithm bandwidth (0: unknown).
    """
    if not text.strip():
        raise InputError(f"{name}: the file is empty")
    lines = csv.reader(text.splitlines())
    try:
        return _csv_rows(lines, name, bus_factor)
    except csv.Error as error:
        raise InputError(f"{name}:{lines.line_num}: cannot be read: {error}") from None


def _csv_rows(lines: Any, name: str, bus_factor: float) -> tuple[MeasuredRow, ...]:
    """Return the rows of the lines of a CSV table that have a time. `name` is the name of the file
    in errors, `bus_factor` bus bandwidth over algorithm bandwidth (0: unknown).
    """
    header = [column.strip() for column in next(lines)]
    if "size_bytes" not in header or not set(COLUMNS[5:]) & set(header):
        missing = "size_bytes" if "size_bytes" not in header else " or ".join(CSV_TIMES)
        raise InputError(
            f"{name}: not a table of measured runs, there is no column {missing}"
            f"{suggest(missing, header)}"
        )
    rows = []
    for cells in lines:
        place = f"{name}:{lines.line_num}"
        if not any(cell.strip() for cell in cells):
            continue
        if len(cells) != len(header):
            raise InputError(f"{place}: expected {len(header)} values, got {len(cells)}")
        values = {key: cell.strip() for key, cell in zip(header, cells, strict=True)}
        row = _csv_row(values, place, lines.line_num, bus_factor)
        if row.out_of_place is not None or row.in_place is not None:
            rows.append(row)
    if not rows:
        raise InputError(f"{name}: no row has a time")
    return tuple(rows)


def _csv_row(values: Mapping[str, str], place: str, line: int, bus_factor: float) -> MeasuredRow:
    """Return the measured row of a line. `values` are its cells by column, `place` its position for
    errors, `bus_factor` is bus bandwidth over algorithm bandwidth (0: unknown).
    """
    root = values.get("root", "")
    size = _whole_number(values["size_bytes"], "size_bytes", place)
    return MeasuredRow(
        size_bytes=size,
        count=_whole_number(values["count"], "count", place) if values.get("count") else None,
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
    """Return the time out of place (`side` "oop") or in place ("ip") of a row in seconds: as
    stated, or derived from its bandwidth.

    A bandwidth with too few digits gives no time.
    """
    column = f"{side}_time_us"
    micros = _positive(values.get(column, ""), column, "microseconds", place)
    for kind, factor in (("algbw", 1.0), ("busbw", bus_factor)):
        text = values.get(column := f"{side}_{kind}_gbps", "") if micros is None else ""
        rate = _positive(text, column, "GB/s", place) if text.strip("0.") else None
        if rate and 10.0 ** -len(text.partition(".")[2]) / 2 <= COARSE * rate:
            micros = size * factor / rate / 1e3 or None
    return None if micros is None else micros * MICRO


def _whole_number(text: str, column: str, place: str) -> int:
    """Return a cell of a column as a whole number of at least 0."""
    try:
        number = float(text)
    except ValueError:
        number = nan
    if not 0 <= number < inf or number != int(number):
        raise InputError(f"{place}: {column}: expected a whole number, got {text!r}")
    return int(number)


def _rank(value: object, default: int = 0) -> int:
    """Return the number of a rank or device; the default if the value is no such number."""
    return int(str(value)) if re.fullmatch(r"-?\d{1,9}", str(value)) else default


def _positive(text: str, column: str, unit: str, place: str) -> float | None:
    """Return a cell of a column as a number above 0, or None if the cell has no number."""
    if text.casefold() in ("", "n/a", "nan"):
        return None
    try:
        value = float(text)
    except ValueError:
        raise InputError(f"{place}: {column}: expected {unit}, got {text!r}") from None
    if not 0 < value < inf:
        raise InputError(f"{place}: {column}: expected {unit} above 0, got {text}")
    return value


# Files with measured runs as text, JSON or CSV, and the collective that was timed in them. If a
# file does not state the collective, it follows from the name of the file, its columns or an
# option.

LARGEST_FILE = 256 * 2**20  # bytes of text, also of a compressed file
GZIP_MAGIC = b"\x1f\x8b"
OTHER_KINDS = (b"{", b"[{", b"size_bytes,")  # how JSON and CSV begin
# Bus bandwidth over algorithm bandwidth of each collective on n ranks.
WHOLE = "1"
PART = "(n-1)/n"
DOUBLE = "2(n-1)/n"
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
    """Return all runs of a file, each with its collective.

    Args:
        path: the file.
        collective: the collective that was timed, if the file does not state it.
        presumed: the collective that is assumed if nothing else shows it and the bandwidths allow
            it.
    """
    return tuple(_named(run, collective, presumed) for run in parse_log(_text(path), str(path)))


def parse_log(text: str, name: str) -> tuple[LogRun, ...]:
    """Return all runs of a text in any of the formats; `name` is the name of the file in errors."""
    start = text.lstrip("\ufeff \t\r\n")
    if start.startswith(("{", "[{")):
        return parse_json(start, name)
    if start.split("\n", 1)[0].startswith("size_bytes,"):
        return (LogRun(name, rows=parse_csv(start, name)),)
    return parse_text(start, name)


def true_ranks(run: LogRun) -> tuple[int, int] | None:
    """Return the fewest and the most ranks with which the collective of a run has its busbw /
    algbw.

    None if this factor does not depend on the ranks, or is not known. If (n - 1) / n = f, there are
    n = 1 / (1 - f) ranks; both bandwidths are rounded to 0.01, hence the range.
    """
    kind = FACTOR.get(run.collective)
    factor = run.bus_factor
    if kind in (None, WHOLE) or factor is None:
        return None
    double = 2 if kind == DOUBLE else 1
    fraction = factor / double
    if not 0 < fraction < 1:
        return None
    fastest = max(alg for alg, _ in run.ratios)
    slack = 0.5 * 0.01 * (1 + factor) / fastest / double
    low = 1 / (1 - max(fraction - slack, 0.01))
    high = 1 / max(1 - fraction - slack, 1e-6)
    return max(2, round(low)), max(2, min(round(high), 10**6))


def _text(path: Path) -> str:
    """Return the text of a file, which may be compressed with gzip or be UTF-16."""
    try:
        content = content_of(path, LARGEST_FILE, is_binary=path.suffix == ".gz")
    except ScenarioError as error:
        if path.is_dir():
            raise InputError(f"{path}: expected a log, got a directory") from None
        raise InputError(f"{path}: {error.message}") from None
    if content[:2] == GZIP_MAGIC:
        content = _unpacked(content, path)
    if b"\0" in content[:4096]:
        if content[:2] in (b"\xff\xfe", b"\xfe\xff"):  # Windows shells write UTF-16
            return content.decode("utf-16", errors="replace")
        raise InputError(f"{path}: expected a log as text, got a binary file")
    if not content.strip():
        raise InputError(f"{path}: the file is empty")
    if not content.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(OTHER_KINDS):
        _refuse_without_tables(content, str(path))
    return content.decode("utf-8", errors="replace")


def _unpacked(content: bytes, path: Path) -> bytes:
    """Return the text of a gzip file; raise an error as soon as it exceeds the limit.

    A small file may unpack to a thousand times its size, which must not fill the memory.
    """
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


def _named(run: LogRun, stated: str | None, presumed: str | None = None) -> LogRun:
    """Return the run with its collective.

    It is taken from the run itself, else from `stated` (by the user), else from the name of the
    file, else from the columns of the table, else it is `presumed`. A note records how it was
    inferred.
    """
    if run.collective and stated and run.collective != stated:
        raise InputError(f"{run.file}: this is {run.collective}, not {stated}")
    collective = run.collective or stated or ""
    why = ""
    possible = _by_figures(run)
    if not collective:
        match = IN_NAME.search(Path(run.file).stem)
        if match:
            word = match.group(1).casefold().replace("bcast", "broadcast")
            collective = collective_name(re.sub(r"[_-]to[_-]", "to", word))
            why = f"taken as {collective}, by the name of the file"
        elif len(possible) == 1:
            collective = possible[0]
            why = f"taken as {collective}, by its columns"
        elif presumed in possible:
            collective = str(presumed)
            why = f"taken as {presumed}, which is simulated"
    if not collective:
        candidates = " or ".join(possible) if possible else "unknown"
        raise InputError(
            f"{run.file}: the log does not say what it timed ({candidates})",
            hint="name it with --collective",
        )
    if collective not in FACTOR:
        names = ", ".join(FACTOR)
        raise InputError(f"{run.file}: {collective} is not simulated; known: {names}")
    if possible and collective not in possible:
        why = f"{collective} is said, but its columns are those of {' or '.join(possible)}"
    notes = [*run.notes, why] if why else run.notes
    return replace(run, collective=collective, notes=tuple(notes))


def _by_figures(run: LogRun) -> list[str]:
    """Return the collectives that a run may be, judged by its reduction, its root, and busbw /
    algbw.
    """
    if not run.rows:
        return []
    first = run.rows[-1]
    names = [name for name in FACTOR if name != "alltoallv"]
    factor = run.bus_factor
    if factor is not None:
        # 2(n-1)/n is 1 for two ranks; (n-1)/n is never 1.
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
