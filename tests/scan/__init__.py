"""What physics forbids, or a reader would doubt: tables of `netsim expect`, looked through.

    python -m tests.scan                                       # every machine, all that follows
    python -m tests.scan dgx-h100 gh200-x4 --collectives all_reduce,sendrecv --nodes 1,2,16
    python -m tests.scan --sizes 1M:1G:2 --jobs 2 --json scan.json

Listed are

- *fall*: time falls by more than 3 % as bytes double, with the same algorithm and protocol;
- *switch*: the same where NCCL's choice changes, with what NCCL's own model says of both choices
  and what the new one takes at the smaller size, simulated;
- *nodes*: time falls by more than 3 % as nodes double, with the same algorithm and protocol;
- *one node*: it is slower than two in bus bandwidth, with the same algorithm;
- *dip*: bus bandwidth more than 20 % below that of both neighbours;
- *approximate*: rows that may be off by more than 1 %;
- *wire*: less time than the busiest link needs for its bytes; *error*: rows without a time;
- *slow*, *large*: rows that took over 30 s of processor time, or over 2 GB of memory.

What `tests/data/scan.yaml` names is listed as known, with its evidence; the exit code is 1 if there
is anything else. Each table is computed in a process of its own.
"""

import argparse
import csv
import json
import multiprocessing
import resource
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatch
from itertools import pairwise
from multiprocessing.connection import Connection
from pathlib import Path

import yaml

from netsim.base.errors import NetsimError
from netsim.base.files import preset_names
from netsim.base.units import format_size, parse_cli_size
from netsim.cli.questions import QuestionOptions, source_of_question
from netsim.nccl.choice import cost_table
from netsim.scenario.cells import expand
from netsim.tasks.resolve import ResolvedCell, resolve
from netsim.tasks.row import row_of_size
from netsim.topology.load import load_machine

COLLECTIVES = (
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "broadcast",
    "reduce",
    "alltoall",
    "sendrecv",
)
NODES = (1, 2, 4, 16)
SIZES = "8:8G:2"
FALL, DIP, MORE, APPROXIMATE = 0.03, 0.2, 0.03, 1.0
SECONDS, BYTES = 30.0, 2e9
KNOWN = Path(__file__).parents[1] / "data" / "scan.yaml"
MEASURED = Path(__file__).parents[2] / "scenarios" / "measured" / "index.yaml"
TABLE_SECONDS = 900  # after which the rest of a table is left out, and said to be


@dataclass(frozen=True, order=True)
class Table:
    """A question to `netsim expect`."""

    machine: str
    collective: str
    nodes: int

    def resolved(self, sizes: str, **forced: str) -> ResolvedCell:
        """It as a cell, with an algorithm and a protocol if they are forced."""
        given = QuestionOptions(self.nodes, sizes=sizes, **forced)
        return resolve(expand(source_of_question(self.machine, self.collective, given).source)[0])


@dataclass(frozen=True)
class Point:
    """A row of a table, and what it took to compute: processor time, and bytes of memory beyond
    what its process began with. `empty` is one so small that nccl-tests moves nothing.
    """

    table: Table
    size: int
    time_us: float = 0.0
    busbw: float = 0.0
    algorithm: str = ""
    protocol: str = ""
    channels: int = 0
    off_pct: float = 0.0
    error: str = ""
    seconds: float = 0.0
    memory: float = 0.0
    empty: bool = False

    @property
    def told(self) -> bool:
        """Whether it has a time that tells something."""
        return not self.error and not self.empty

    @property
    def choice(self) -> tuple[str, str]:
        """What NCCL chose."""
        return self.algorithm, self.protocol

    def __str__(self) -> str:
        chosen = f"{self.algorithm} {self.protocol}x{self.channels}"
        return f"{format_size(self.size)} {self.time_us:.4g} us ({chosen})"


@dataclass(frozen=True)
class Finding:
    """Something that a reader would doubt."""

    kind: str
    table: Table
    size: int
    words: str
    evidence: str = ""
    known: str = ""
    numbers: Mapping[str, float] = field(default_factory=dict)

    def __str__(self) -> str:
        place = f"{self.table.machine} {self.table.collective} x{self.table.nodes}"
        return f"{self.kind:<11} {place:<34} {self.words}"


# **** Tables ****


def points(table: Table, sizes: str) -> Iterator[Point]:
    """The rows of a table, one by one, computed here."""
    before = _memory()
    ready = table.resolved(sizes)
    for size in ready.cell.scenario.collective.size_list():
        begin = time.process_time()
        try:
            row = row_of_size(ready, size)
        except NetsimError as error:
            yield Point(table, size, error=str(error), memory=_memory() - before)
            continue
        took = time.process_time() - begin
        yield Point(
            table,
            size,
            row.time_us or 0.0,
            row.busbw_GBps or 0.0,
            row.algorithm,
            row.protocol,
            row.channels or 0,
            row.approximation_pct or 0.0,
            row.error,
            took,
            _memory() - before,
            not row.size_bytes,
        )


def _memory() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0


def _send(table: Table, sizes: str, out: Connection) -> None:
    try:
        for point in points(table, sizes):
            out.send(point)
    except NetsimError as error:
        out.send(Point(table, 0, error=str(error)))
    out.send(None)


def apart(table: Table, sizes: str) -> list[Point]:
    """The rows of a table, computed in a process of its own; those that it got to."""
    here, there = multiprocessing.Pipe(duplex=False)
    worker = multiprocessing.get_context("fork").Process(target=_send, args=(table, sizes, there))
    worker.start()
    there.close()
    found, end = list[Point](), time.monotonic() + TABLE_SECONDS
    try:
        while here.poll(max(0.0, end - time.monotonic())):
            point = here.recv()
            if point is None:
                return found
            found.append(point)
        words = f"no further row in {TABLE_SECONDS} s"
    except EOFError:
        worker.join()
        words = f"the process ended with {worker.exitcode}"
    finally:
        worker.terminate()
        worker.join()
    return [*found, Point(table, found[-1].size * 2 if found else 0, error=words)]


# **** Findings ****


def findings(every: Sequence[Point]) -> list[Finding]:
    """All that is doubtful in some tables."""
    by_table: dict[Table, list[Point]] = {}
    for point in every:
        by_table.setdefault(point.table, []).append(point)
    found = [one for point in every for one in _alone(point)]
    for rows in by_table.values():
        told = [row for row in rows if row.told]
        found += [one for pair in pairwise(told) for one in _falls(*pair)]
        found += [one for k in range(1, len(told) - 1) for one in _dips(*told[k - 1 : k + 2])]
    for table, rows in by_table.items():
        more = by_table.get(Table(table.machine, table.collective, 2 * table.nodes), [])
        other = {row.size: row for row in more if row.told}
        pairs = [(row, other[row.size]) for row in rows if row.size in other and row.told]
        found += [one for pair in pairs for one in _more_nodes(*pair)]
    return found


def _alone(row: Point) -> Iterator[Finding]:
    if row.error:
        kind = "wire" if "needs at least" in row.error else "error"
        yield Finding(kind, row.table, row.size, f"{format_size(row.size)} {row.error}")
        return
    if row.off_pct > APPROXIMATE:
        yield _finding(
            "approximate", row, f"{row} may be off by {row.off_pct:.2g} %", pct=row.off_pct
        )
    if row.seconds > SECONDS:
        yield _finding("slow", row, f"{row} took {row.seconds:.0f} s", seconds=row.seconds)
    if row.memory > BYTES:
        yield _finding(
            "large", row, f"{row} took up to {row.memory / 1e9:.1f} GB", bytes=row.memory
        )


def _falls(small: Point, large: Point) -> Iterator[Finding]:
    change = large.time_us / small.time_us - 1
    if large.size == 2 * small.size and change < -FALL:
        kind = "fall" if small.choice == large.choice else "switch"
        evidence, meant = evidence_of(small, large) if kind == "switch" else ("", False)
        words, known = f"{small} -> {large}: {change:.0%}", f"NCCL's: {evidence}" if meant else ""
        numbers = {"change": change}
        yield Finding(kind, small.table, small.size, words, evidence, known, numbers)


def _dips(before: Point, row: Point, after: Point) -> Iterator[Finding]:
    least = min(before.busbw, after.busbw)
    if row.busbw < (1 - DIP) * least:
        change = row.busbw / least - 1
        yield _finding("dip", row, f"{before} - {row} - {after}: {change:.0%}", change=change)


def _more_nodes(one: Point, more: Point) -> Iterator[Finding]:
    change = more.time_us / one.time_us - 1
    same = one.algorithm == more.algorithm
    if one.choice == more.choice and change < -FALL:
        yield _finding(
            "nodes", one, f"{one} -> x{more.table.nodes} {more}: {change:.0%}", change=change
        )
    if one.table.nodes == 1 and same and more.busbw > (1 + MORE) * one.busbw:
        words = f"{one}: {one.busbw:.4g} GB/s, two nodes {more.busbw:.4g} GB/s"
        yield _finding("one node", one, words, change=one.busbw / more.busbw - 1)


def _finding(kind: str, row: Point, words: str, **numbers: float) -> Finding:
    return Finding(kind, row.table, row.size, words, numbers=numbers)


def evidence_of(small: Point, large: Point) -> tuple[str, bool]:
    """What NCCL's model says of both choices at both sizes, and what the new one takes before; and
    whether that model, which is held against NCCL's own code, leaves the one for the other here.
    """
    ready = small.table.resolved(f"{small.size}")
    if not ready.jobs:
        return "", False
    words, meant = [], True
    for size, best in ((small.size, small.choice), (large.size, large.choice)):
        costs = {
            (one.cost.algorithm, one.cost.protocol): one.time_us
            for one in cost_table(ready.jobs[0], ready.collective(size), "float")
            if one.time_us is not None
        }
        both = {name: costs[name] for name in (small.choice, large.choice) if name in costs}
        told = ", ".join(f"{' '.join(name)} {time:.4g}" for name, time in both.items())
        words.append(f"its model at {format_size(size)}: {told} us")
        meant = meant and best in both and both[best] <= min(both.values())
    try:
        forced = small.table.resolved(f"{small.size}", algo=large.algorithm, proto=large.protocol)
        earlier = row_of_size(forced, small.size).time_us
        words.append(f"{' '.join(large.choice)} at {format_size(small.size)}: {earlier:.4g} us")
    except NetsimError as error:
        words.append(str(error))
    return "; ".join(words), meant


def falls_in(curve: Mapping[int, float]) -> tuple[int, list[float]]:
    """Doublings of a curve of times by size, and the falls among them by more than `FALL`."""
    changes = [curve[2 * size] / curve[size] - 1 for size in curve if 2 * size in curve]
    return len(changes), [change for change in changes if change < -FALL]


def measured_falls(index: Path = MEASURED) -> tuple[int, list[float]]:
    """The same of all healthy runs that are published."""
    doublings, falls = 0, []
    for run in yaml.safe_load(index.read_text(encoding="utf-8")):
        file = index.parent / run["file"]
        if not str(run.get("healthy", "")).startswith("yes") or file.suffix != ".csv":
            continue
        with file.open(encoding="utf-8") as lines:
            rows = [row for row in csv.DictReader(lines) if float(row.get("oop_time_us") or 0) > 0]
        found = falls_in({int(row["size_bytes"]): float(row["oop_time_us"]) for row in rows})
        doublings, falls = doublings + found[0], falls + found[1]
    return doublings, falls


# **** Known ****


def with_known(found: Iterable[Finding], known: Sequence[Mapping[str, str]]) -> list[Finding]:
    """Findings with the evidence that is in the repository."""
    return [
        Finding(
            **{
                **{name: getattr(one, name) for name in one.__dataclass_fields__},
                "known": next((entry["why"] for entry in known if _meant(entry, one)), one.known),
            }
        )
        for one in found
    ]


def _meant(entry: Mapping[str, str], one: Finding) -> bool:
    low, _, high = str(entry.get("sizes", "1:1T")).partition(":")
    least, most = (parse_cli_size(text) for text in (low, high or low))
    nodes = [one.partition(":") for one in str(entry.get("nodes", "1:99999")).split(",")]
    return (
        one.kind in entry["kind"].replace(", ", ",").split(",")
        and any(fnmatch(one.table.machine, name) for name in entry["machine"].split(", "))
        and any(fnmatch(one.table.collective, name) for name in entry["collective"].split(", "))
        and any(int(few) <= one.table.nodes <= int(many or few) for few, _, many in nodes)
        and least <= one.size <= most
    )


def known_entries(path: Path = KNOWN) -> list[dict[str, str]]:
    """What the repository says of findings."""
    return yaml.safe_load(path.read_text(encoding="utf-8")) or []


# **** Command ****


def tables(
    machines: Sequence[str], collectives: Sequence[str], nodes: Sequence[int]
) -> list[Table]:
    """All questions; several hosts only of machines with NICs. `alltoall` over more ranks than is
    sensible is left out by `expect` itself.
    """
    alone = {m for m in machines if load_machine(m).nics is None}
    return [
        Table(m, c, n)
        for m in machines
        for c in collectives
        for n in nodes
        if n < 2 or m not in alone
    ]


def scanned(every: Sequence[Table], sizes: str, jobs: int) -> Iterator[list[Point]]:
    """The rows of all tables, some of them at a time."""
    with ThreadPoolExecutor(jobs) as pool:
        yield from pool.map(lambda table: apart(table, sizes), every)


def report(
    found: Sequence[Finding], rows: int, simulated: tuple[int, list[float]] = (0, [])
) -> None:
    """Findings by kind, unknown ones first."""
    for one in sorted(found, key=lambda one: (bool(one.known), one.kind, one.table, one.size)):
        print(f"{'known  ' if one.known else ''}{one}")
        if one.evidence or one.known:
            print(f"    {one.known or one.evidence}")
    kinds = dict.fromkeys(one.kind for one in found)
    counts = (f"{sum(one.kind == kind for one in found)} {kind}" for kind in kinds)
    new = sum(not one.known for one in found)
    print(f"{rows} rows; {', '.join(counts) or 'nothing'}; {new} without evidence in {KNOWN.name}")
    for name, (doublings, falls) in (("these tables", simulated), ("measured", measured_falls())):
        deepest = f", down to {min(falls):.0%}" if falls else ""
        print(f"{name}: {len(falls)} of {doublings} doublings fall by over {FALL:.0%}{deepest}")


def main() -> int:
    """Scan what was asked for."""
    parser = argparse.ArgumentParser(prog="python -m tests.scan")
    parser.add_argument("machines", nargs="*", default=preset_names("topologies"))
    parser.add_argument("--collectives", default=",".join(COLLECTIVES))
    parser.add_argument("--nodes", default=",".join(map(str, NODES)))
    parser.add_argument("--sizes", default=SIZES)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    nodes = [int(one) for one in given.nodes.split(",")]
    asked_for = tables(given.machines, given.collectives.split(","), nodes)
    rows: list[Point] = []
    for number, part in enumerate(scanned(asked_for, given.sizes, given.jobs), 1):
        rows += part
        took = sum(row.seconds for row in part)
        print(f"{number}/{len(asked_for)} {asked_for[number - 1]} {took:.1f} s", file=sys.stderr)
        if given.json:
            given.json.write_text(json.dumps([asdict(row) for row in rows]), encoding="utf-8")
    found = with_known(findings(rows), known_entries())
    curves: dict[Table, dict[int, float]] = {}
    for row in rows:
        if row.told:
            curves.setdefault(row.table, {})[row.size] = row.time_us
    each = [falls_in(curve) for curve in curves.values()]
    report(found, len(rows), (sum(n for n, _ in each), [one for _, some in each for one in some]))
    return int(any(not one.known for one in found))
