"""Estimates of the rows and bytes of a schedule before it is built, and the memory that is
available.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from math import log2
from pathlib import Path

import numpy as np

from netsim.base.memo import different
from netsim.schedule.builder import MAX_ROWS
from netsim.schedule.schedule import Schedule

# **** Rows and bytes of a schedule ****

BYTES_A_ROW = 100
"""Bytes of a row: schedule, program, engine and timeline together, with some room."""
BYTES_A_PATH = 220
"""Bytes of a path of a few links: where it goes and what is under way on it."""
BYTES_A_ROW_OF_NCCL = 500
"""Bytes of a row of NCCL's, what NCCL plans for each message included."""
BYTES_A_LOOP = 200
"""Bytes of a row in further loops, in operations back to back, the proxies' rows included."""
EXACT_UP_TO = 256
"""Ranks up to which building a schedule is cheaper than estimating it."""


def estimated_rows(ranks: int, rows_at: Callable[[int], int], multiple: int = 1) -> int:
    """The rows of a schedule for many ranks, extrapolated by a power law from two smaller numbers
    of ranks.

    - `ranks`: the number of ranks.
    - `rows_at`: returns the rows for a number of ranks.
    - `multiple`: both smaller numbers are multiples of it, such as the ranks of a node.
    """
    fewer = 4 * multiple * -(-16 // multiple)
    more = 8 * multiple * -(-16 // multiple)
    if ranks <= max(EXACT_UP_TO, more):
        return rows_at(ranks)
    low = rows_at(fewer)
    high = rows_at(more)
    exponent = log2(high / low) if low else 0.0
    return int(high * (ranks / more) ** exponent)


def estimated_size(
    ranks: int, schedule_at: Callable[[int], Schedule], multiple: int = 1, groups: int = 1
) -> tuple[int, int]:
    """An estimate of the rows and bytes of `groups` equal schedules of many ranks. Rows with the
    same endpoints share a path.

    `schedule_at` returns the schedule for a number of ranks; `multiple` is that of
    `estimated_rows`.
    """
    schedule = cache(schedule_at)
    rows = estimated_rows(ranks, lambda count: len(schedule(count)), multiple)
    paths = estimated_rows(ranks, lambda count: _path_count(schedule(count)), multiple)
    return groups * rows, groups * (rows * BYTES_A_ROW + paths * BYTES_A_PATH)


def _path_count(schedule: Schedule) -> int:
    return len(different(schedule.src.astype(np.int64) * schedule.ranks + schedule.dst))


def least_rows_of_nccl(collective: str, ranks: int, algorithm: str) -> int:
    """A lower estimate of the rows of NCCL's schedule for a collective.

    - All-to-all: a send and a receive for each pair of ranks.
    - Ring: a row for each step of each rank.
    - Otherwise: a row for each rank.
    """
    if collective in ("alltoall", "alltoallv"):
        return 2 * ranks * ranks
    steps = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1}.get(collective, 0)
    return steps * ranks * (ranks - 1) if algorithm == "Ring" else ranks


def misfit_of_nccl(
    collective: str, ranks: int, groups: int, algorithm: str, loops: int = 1, share: float = 1.0
) -> str:
    """The reason why NCCL's schedules would not fit into memory, estimated from a lower bound of
    their rows; empty if they fit.

    - `groups`: number of communicators, each of `ranks` ranks.
    - `loops`: loops over the buffers.
    - `share`: the fraction of the rows that is written.
    """
    rows = int(least_rows_of_nccl(collective, ranks, algorithm) * groups * share)
    return misfit(rows * loops, rows * (BYTES_A_ROW_OF_NCCL + (loops - 1) * BYTES_A_LOOP), ranks)


def misfit(rows: int, memory: int, ranks: int) -> str:
    """The reason why a schedule would not fit into memory, and with how many ranks it would; empty
    if it fits.

    - `rows`: its rows.
    - `memory`: its bytes.
    - `ranks`: its ranks.
    """
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


SOLVED = 100_000
"""Rows a second of sends that meet (alltoall of 1,024 GPUs in docs/performance.md)."""


def too_long(rows: int, most: float) -> str:
    """The reason why `rows` rows of sends that share links would take too long, and what would not;
    empty if they are at most `most`.
    """
    if rows <= most:
        return ""
    minutes = rows / SOLVED / 60
    return (
        f"about {rows:.2g} rows of sends that meet on links would be solved, which takes some "
        f"{minutes:.0f} minutes a size; take fewer ranks, smaller sizes, or a fabric on which "
        "ranks are equal"
    )


# **** Memory of a process **** The most that a process needs, from closed forms: measured on
# collectives of 8 to 2,048 GPUs and steps of up to 4 million rows (`python -m tests.bench.memory`).
# Operations that end on all ranks at once are simulated once, others several times; which of both
# holds is not known in advance.

PROCESS = 200_000_000
"""Bytes of the libraries, and of the engine when it is compiled."""
BYTES_A_GPU = 16_000
"""Bytes of the cluster, which is a graph, for each GPU."""
BYTES_A_ROW_IN_STEP = 600
"""Bytes of a row if ranks keep step or have representatives."""
BYTES_A_ROW_APART = 2_100
"""Bytes of a row if ranks end at different times."""
BYTES_A_ROW_TIMED = 1_350
"""Bytes of a row, at least, if all operations that are timed may be simulated."""
BYTES_A_TASK = 200
"""Bytes of a tape entry of a training step, for each GPU."""
TOGETHER = 16
"""Ranks up to which all end at about the same time."""


def needed(gpus: int, rows: int, memory: float = 0) -> int:
    """An estimate of the bytes of a process that simulates `rows` rows on a cluster of `gpus` GPUs.

    `memory`: another estimate of the bytes of these rows; the larger estimate counts.
    """
    return int(PROCESS + gpus * BYTES_A_GPU + max(rows * BYTES_A_ROW_IN_STEP, memory))


def available_memory() -> int:
    """The bytes that this process may still take: of the system, or of the control groups it
    belongs to.
    """
    return min([_of_system(), *_of_groups()])


def _of_system() -> int:
    """The bytes that the system has available."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            values = dict(line.split(":", 1) for line in file)
        return int(values["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        pages = os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 2**22
        return pages * 4096


# Both versions of Linux's control groups: the kind of the group, the files with its limit and its
# current use, and the entry of its statistics that the system can reclaim.
GROUPS = (
    ("", "memory.max", "memory.current", "inactive_file"),
    ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)


def _of_groups(
    root: Path = Path("/sys/fs/cgroup"), process: Path = Path("/proc/self/cgroup")
) -> Iterator[int]:
    """Yield the bytes that each control group of this process has left.

    `root` is the folder of control groups, `process` the file that names those of this process.
    """
    with suppress(OSError, ValueError):
        lines = [line.split(":", 2) for line in process.read_text(encoding="ascii").splitlines()]
        for kind, limit_file, taken_file, reclaimable in GROUPS:
            paths = {path.strip("/") for _, kinds, path in lines if kind in kinds.split(",")}
            for path in paths | {""}:
                folder = root / kind / path
                with suppress(OSError, ValueError, KeyError):
                    limit = int((folder / limit_file).read_text(encoding="ascii"))
                    taken = int((folder / taken_file).read_text(encoding="ascii"))
                    text = (folder / "memory.stat").read_text(encoding="ascii")
                    statistics = dict(line.split() for line in text.splitlines())
                    yield max(0, limit - taken + int(statistics[reclaimable]))
