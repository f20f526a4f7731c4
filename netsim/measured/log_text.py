"""The text that nccl-tests and rccl-tests print, of every version, as runs.

Columns are read by the names of the header. Launchers may write before lines, NCCL may write
between and within them, and files may hold several runs and other text.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf, isfinite

from netsim.errors import InputError
from netsim.measured.curve import Measured
from netsim.measured.log_lines import (
    ALGORITHMS,
    ASSIGNMENT,
    CHOICE,
    COMMAND,
    CORE,
    DEVICE,
    ENVIRONMENT,
    HEADER,
    INFO,
    LIBRARY,
    NUMBERS,
    PERF,
    PROTOCOLS,
    SETTINGS,
    STARTING,
    VERSION,
    Cells,
    cells_of,
    cleaned,
    header_columns,
    without_prefix,
)
from netsim.measured.log_run import Device, LogRun, Problem
from netsim.scenario.names import collective_name

MICRO = 1e-6
MISMATCH = 0.05  # by which a time may miss size / algbw before the row is doubted
NONE = ("n/a", "nan", "-nan", "inf", "-inf")
SHOWN = 90


@dataclass
class _Table:
    """A run while it is read."""

    line: int
    header: tuple[str, ...] = ()
    collective: str = ""
    gpus_per_process: int | None = None
    devices: dict[int, Device] = field(default_factory=dict)
    rows: list[Measured] = field(default_factory=list)
    ratios: list[tuple[float, float]] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    choices: dict[int, tuple[str, str]] = field(default_factory=dict)
    empty: int = 0


@dataclass
class _Around:
    """What a file says outside its tables; it holds for the tables that follow."""

    command: str = ""
    nccl: str = ""
    variables: dict[str, str] = field(default_factory=dict)


def parse_text(text: str, name: str) -> tuple[LogRun, ...]:
    """All runs of a text, called `name` in errors."""
    if not text.strip():
        raise InputError(f"{name}: the file is empty")
    reader = _Reader(name)
    for number, line in enumerate(_joined(text.splitlines()), 1):
        reader.read(number, line)
    reader.finish()
    if not reader.runs:
        if PERF.search(text) or any(SETTINGS.search(line) for line in text.splitlines()):
            raise InputError(f"{name}: nccl-tests was started, but no row of results follows")
        raise InputError(f"{name}: no table of nccl-tests or rccl-tests is in this file")
    return tuple(reader.runs)


def _joined(lines: list[str]) -> Iterator[str]:
    """Lines without colours; a row that NCCL wrote into is put together again."""
    held = ""
    blanks = 0
    for raw in lines:
        line = cleaned(raw)
        inside, core = INFO.search(line), CORE.search(line)
        if held and not inside and not core and line.strip() and not line.lstrip().startswith("#"):
            yield held + line
            yield from [""] * blanks
            held, blanks = "", 0
        elif core and inside and inside.start() > core.start():
            held, blanks = line[: inside.start()], 1
        elif held and inside:
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
    """The state between lines: the open table, and what was said around it."""

    name: str
    runs: list[LogRun] = field(default_factory=list)
    around: _Around = field(default_factory=_Around)
    table: _Table | None = None

    def read(self, number: int, line: str) -> None:
        """One line."""
        self._statements(number, line)
        if match := HEADER.search(line):
            self._open(number, fresh=bool(self.table and (self.table.rows or self.table.header)))
            assert self.table is not None
            self.table.header = header_columns(match.group(1))
        elif match := CORE.search(line):
            self._row(number, match)
        elif self.table is not None and self.table.header:
            bare = without_prefix(line)
            if NUMBERS.match(bare) and len(bare.split()) > 4:
                shown = bare.strip()[:SHOWN]
                self.table.problems.append(Problem(number, f"not understood: {shown}"))

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
                table.collective or collective_in(self.around.command),
                rows,
                tuple(table.devices[rank] for rank in sorted(table.devices)),
                table.gpus_per_process,
                self.around.command,
                self.around.nccl,
                dict(self.around.variables),
                dict(table.choices),
                tuple(table.ratios),
                tuple(table.problems),
                tuple(table.notes),
                table.line,
            )
        )

    def _open(self, number: int, *, fresh: bool) -> None:
        """A table that what follows belongs to; a fresh one where the last is complete."""
        if self.table is not None and not fresh:
            return
        before = self.table
        self.finish()
        self.table = _Table(number)
        if before is not None and before.rows:
            self.table.devices = before.devices  # until the next list of devices
            self.table.gpus_per_process = before.gpus_per_process

    def _begin(self, number: int) -> _Table:
        """The table that statements in front of rows belong to."""
        done = self.table is not None and bool(self.table.rows or self.table.header)
        self._open(number, fresh=done)
        assert self.table is not None
        return self.table

    def _statements(self, number: int, line: str) -> None:
        """What a line says about the run."""
        around = self.around
        if match := STARTING.search(line):
            self._begin(number).collective = collective_in(match.group(1) + "_perf")
        elif match := SETTINGS.search(line):
            self._begin(number).gpus_per_process = int(match[1]) * int(match[2])
        elif match := DEVICE.search(line):
            table = self._begin(number)
            rank, process, host, _, _, model = match.groups()
            if int(rank) == 0:
                table.devices = {}
            table.devices[int(rank)] = Device(int(rank), f"{host}:{process}", host, model.strip())
        if match := LIBRARY.search(line) or VERSION.search(line):
            around.nccl = match.group(1)
        if match := ENVIRONMENT.search(line):
            around.variables[match[1]] = match[2].rstrip(".,;")
        for match in ASSIGNMENT.finditer(line):
            around.variables[match[1]] = match[3]
        if COMMAND.search(line) and not INFO.search(line):
            around.command = without_prefix(line).strip().lstrip("#$> ")
        if self.table is not None and (match := CHOICE.search(line)):
            algorithm = ALGORITHMS.get(match[2].upper(), match[2])
            protocol = PROTOCOLS.get(match[3].upper(), match[3])
            self.table.choices[int(match[1])] = (algorithm, protocol)

    def _row(self, number: int, match: re.Match[str]) -> None:
        self._open(number, fresh=False)
        table = self.table
        assert table is not None
        found = cells_of(match, table.header)
        if isinstance(found, str):
            table.problems.append(Problem(number, f"{found}: {match.group().strip()[:SHOWN]}"))
            return
        if found.size == 0:
            table.empty += 1
            return
        try:
            row, ratios = _measured(found, number)
        except ValueError as error:
            table.problems.append(Problem(number, f"{error}: {match.group().strip()[:SHOWN]}"))
            return
        if found.cut:
            table.notes.append(f"line {number}: the row is cut; what is whole was taken")
        if row.out_of_place is None and row.in_place is None:
            table.problems.append(Problem(number, f"no time at {found.size} B"))
            return
        table.rows.append(row)
        table.ratios += ratios


def _measured(cells: Cells, line: int) -> tuple[Measured, list[tuple[float, float]]]:
    """The row of some cells, and algbw with busbw of its halves."""
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
    if not isfinite(value) or value < 0 or (value == 0 and not zero) or value == inf:
        raise ValueError(f"{what}: expected more than 0, got {text}")
    return value


def _ordered(table: _Table) -> tuple[Measured, ...]:
    """Rows by size, of each size and type the first; what was out of order is told."""
    seen: dict[tuple[int, str, str, int], Measured] = {}
    for row in table.rows:
        key = (row.size_bytes, row.dtype, row.redop, row.root)
        if key in seen:
            first = seen[key].line
            table.notes.append(
                f"line {row.line}: {row.size_bytes} B a second time, the row of line {first} holds"
            )
        else:
            seen[key] = row
    found = list(seen.values())
    keys = [(row.dtype, row.redop, row.root) for row in found]
    if all(
        a.size_bytes < b.size_bytes or keys[n] != keys[n + 1]
        for n, (a, b) in enumerate(pairwise(found))
    ):
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
