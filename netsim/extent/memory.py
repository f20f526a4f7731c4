"""What is timed in which way, and whether it would fit: thresholds of the ladder, and rows and
memory of a schedule, estimated before it is built."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import cache
from math import log2
from pathlib import Path

import numpy as np

from netsim.base.memo import different
from netsim.base.values import dataclass
from netsim.schedule.builder import MAX_ROWS
from netsim.schedule.schedule import Schedule

# **** Thresholds ****


@dataclass(frozen=True, slots=True)
class Limits:
    """Where one way to time a call ends and another begins.

    Ranks of textbook algorithms are asked whether they keep step from so many `steps` of all of
    them on, if they end within the part `early` of all steps; rings of `long` rows are followed in
    (max,+) unless `rounds` of telling apart fold them.

    A call is run in full at once if it has no more `rows`; else with fewer loops, if runs of up to
    the `part` of them show how they go on. Only rings of more than `rings` rows are told by hops,
    from runs that differ by at least so many `hops` (as a FIFO has slots): what these add may
    differ by `alike`, and by `tolerated` once chunks go so `far` or the part `around` of the ring,
    or the run has more than `meeting` rows.
    From the part `hopped` of those rows on, so are rings that this tells to within `alike`; up to
    `doubted` times as many rows, those that it tells to within `doubt`. Rings of fewer than
    `folded` rows are written out; from so many loops times ranks on (`level`), heads become equal.

    Of operations back to back the numbers `in_a_row` are tried, the first one with up to `most`
    rows, the others with up to `repeated`; where those not run may move the mean by more than
    `alike`, or the part `idle` if more are more rows than that, all with up to `uneven` or twice as
    many with half of that; none, where more than `repeated` rows leave the busiest link idle for so
    little that one alone is off by up to the part `idle`. Of trees of which all would be more than
    `uneven`, one tells all if it has up to `soon` loops and ranks that end within the part
    `tolerated` of their time, or if the fewest are more than `restless`. By `alike` what fewer
    loops tell of how they overlap may differ, unless all are up to `restless` rows; rings of more
    tell it by fewer hops. Launches of the host leave no trace in what is longer by `short`. From
    `meeting` rows on it is asked where channels meet, of trees from where one tells all, and sends
    to all are told from their first rounds, unless these are more than `solved`. From `crowded`
    rows times GPUs of sends on, of which no less than the part `little` is written, `crowd` rows
    are run, in instants of the part `instant` for each of what the busiest link needs. Up to
    `shown` rows are shown in full. `exact`: nothing is left out. `folds`: one member
    may be simulated for a class of equal ranks. `without` are rungs that are not asked."""

    steps: int = 1 << 26
    early: float = 1e-3
    long: int = 200_000
    rounds: int = 24
    rows: float = 50_000
    part: float = 0.25
    rings: float = 3_000_000
    doubted: float = 2.0
    hopped: float = 2 / 3
    hops: int = 8
    tolerated: float = 0.05
    far: int = 100
    around: float = 0.125
    folded: int = 0
    level: float = 15_000
    in_a_row: tuple[int, ...] = (3, 8)
    most: float = 30_000_000
    repeated: float = 1_000_000
    restless: float = 8_000_000
    uneven: float = 44_000_000
    soon: int = 32
    idle: float = 0.025
    alike: float = 7.5e-3
    doubt: float = 1e-2
    short: float = 0.1
    meeting: float = 10_000_000
    little: float = 0.125
    solved: float = 80_000_000
    crowded: float = 1e8
    crowd: int = 2_000_000
    instant: float = 6e-9
    shown: int = 4_000_000
    exact: bool = False
    folds: bool = True
    without: frozenset[str] = frozenset()

    def folds_groups(self, group_count: int) -> bool:
        """Whether equal ranks may be folded: those of a single communicator only."""
        return self.folds and group_count == 1

    @property
    def in_full(self) -> Limits:
        """The same, but that nothing of one operation is left out."""
        return replace(self, rows=np.inf, rings=np.inf)


LIMITS = Limits()
FOLDED_IN_STEPS = 30_000  # rows of rings; what a step asks for is mostly small


def limits_of(*, exact: bool, step: bool = False) -> Limits:
    """Those of a cell or a training step; `exact`: nothing is left out."""
    found = replace(LIMITS, folded=FOLDED_IN_STEPS) if step else LIMITS
    if not exact:
        return found
    return replace(
        found.in_full, most=np.inf, repeated=np.inf, restless=np.inf, uneven=np.inf, exact=True
    )


# **** Rows and memory ****

BYTES_A_ROW = 100  # schedule, program, engine and timeline together, with some room
BYTES_A_PATH = 220  # of a few links: where it goes and what is under way on it
BYTES_A_ROW_OF_NCCL = 500  # what NCCL plans for each message included
BYTES_A_LOOP = 200  # of further loops, in operations in a row, proxies' rows included
EXACT_UP_TO = 256  # ranks up to which building is cheaper than estimating


def estimated_rows(ranks: int, rows_at: Callable[[int], int], multiple: int = 1) -> int:
    """Rows at many ranks, from how they grow between two smaller numbers (of a `multiple`)."""
    fewer, more = 4 * multiple * -(-16 // multiple), 8 * multiple * -(-16 // multiple)
    if ranks <= max(EXACT_UP_TO, more):
        return rows_at(ranks)
    low, high = rows_at(fewer), rows_at(more)
    exponent = log2(high / low) if low else 0.0
    return int(high * (ranks / more) ** exponent)


def estimated_size(
    ranks: int, schedule_at: Callable[[int], Schedule], multiple: int = 1, groups: int = 1
) -> tuple[int, int]:
    """Rows and bytes of equal groups of many ranks; rows with the same ends share a path."""
    known = cache(schedule_at)
    rows = estimated_rows(ranks, lambda count: len(known(count)), multiple)
    paths = estimated_rows(ranks, lambda count: _ways(known(count)), multiple)
    return groups * rows, groups * (rows * BYTES_A_ROW + paths * BYTES_A_PATH)


def _ways(schedule: Schedule) -> int:
    return len(different(schedule.src.astype(np.int64) * schedule.ranks + schedule.dst))


def least_rows_of_nccl(collective: str, ranks: int, algorithm: str) -> int:
    """Rows that NCCL's schedule has at least: a send and a receive, or a step of each ring."""
    if collective in ("alltoall", "alltoallv"):
        return 2 * ranks * ranks
    steps = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1}.get(collective, 0)
    return steps * ranks * (ranks - 1) if algorithm == "Ring" else ranks


def misfit_of_nccl(
    collective: str, ranks: int, groups: int, algorithm: str, loops: int = 1, share: float = 1.0
) -> str:
    """The same for NCCL's schedule: its least rows in every loop, and the share that is written."""
    rows = int(least_rows_of_nccl(collective, ranks, algorithm) * groups * share)
    return misfit(rows * loops, rows * (BYTES_A_ROW_OF_NCCL + (loops - 1) * BYTES_A_LOOP), ranks)


def misfit(rows: int, memory: int, ranks: int) -> str:
    """Why a schedule would not fit, and what would; empty if it memory."""
    available = available_memory()
    most = min(available * rows // max(1, memory), MAX_ROWS)
    if rows <= most:
        return ""
    return (
        f"about {rows:.2g} rows would take {memory / 1e9:.0f} GB of memory, but "
        f"{available / 1e9:.0f} GB are free and at most {MAX_ROWS:.2g} rows are possible; with "
        f"this algorithm about {max(2, int(ranks * (most / rows) ** 0.5))} ranks would fit, else "
        "take one with fewer steps or larger chunks"
    )


SOLVED = 100_000  # rows a second of sends that meet (alltoall of 1,024 GPUs in docs/performance.md)


def too_long(rows: int, most: float) -> str:
    """Why sends that meet on links would take too long, and what would not; empty if they fit."""
    minutes = rows / SOLVED / 60
    told = f"about {rows:.2g} rows of sends that meet on links would be solved, which takes some"
    others = "take fewer ranks, smaller sizes, or a fabric on which ranks are alike"
    return f"{told} {minutes:.0f} minutes a size; {others}" if rows > most else ""


# What a process needs at most, from closed forms: measured on collectives of 8 to 2,048 GPUs and
# steps of up to 4 million rows (`python -m tests.bench.memory`). Operations that end on all ranks
# at once are run once, others again and again, which nobody knows before.
PROCESS = 200_000_000  # the libraries, and the engine when it is compiled
BYTES_A_GPU = 16_000  # of the cluster, which is a graph
BYTES_A_ROW_IN_STEP = 600
BYTES_A_ROW_APART = 2_100
BYTES_A_ROW_TIMED = 1_350  # where all operations that are timed may be run
BYTES_A_TASK = 200  # of a training step, on each GPU
TOGETHER = 16  # ranks up to which all end at about the same time


def needed(gpus: int, rows: int, memory: float = 0) -> int:
    """The bytes of a process that runs so many rows on a cluster, or that need so much."""
    return int(PROCESS + gpus * BYTES_A_GPU + max(rows * BYTES_A_ROW_IN_STEP, memory))


def available_memory() -> int:
    """Bytes that a process may still take: of the system, or of the group that it belongs to."""
    return min([_of_system(), *_of_groups()])


def _of_system() -> int:
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            found = dict(line.split(":", 1) for line in file)
        return int(found["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        pages = os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 2**22
        return pages * 4096


# Of both versions of Linux's control groups: where they are, the files that say how much there may
# be and is, and what of that the system can take back.
GROUPS = (
    ("", "memory.max", "memory.current", "inactive_file"),
    ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)


def _of_groups(
    root: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")
) -> Iterator[int]:
    """What each control group of this process leaves it."""
    with suppress(OSError, ValueError):
        lines = [line.split(":", 2) for line in own.read_text(encoding="ascii").splitlines()]
        for name, most, now, back in GROUPS:
            below = [path for _, kinds, path in lines if name in kinds.split(",")]
            for place in {path.strip("/") for path in below} | {""}:
                folder = root / name / place
                with suppress(OSError, ValueError, KeyError):
                    limit = int((folder / most).read_text(encoding="ascii"))
                    taken = int((folder / now).read_text(encoding="ascii"))
                    stat = (folder / "memory.stat").read_text(encoding="ascii").splitlines()
                    cached = int(dict(line.split() for line in stat)[back])
                    yield max(0, limit - taken + cached)
