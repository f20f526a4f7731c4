"""Whether a run would fit: rows and memory of a schedule, estimated before it is built."""

import os
from collections.abc import Callable
from functools import cache
from math import log2

import numpy as np

from netsim.base.memo import different
from netsim.schedule.builder import MAX_ROWS
from netsim.schedule.schedule import Schedule

BYTES_A_ROW = 100  # schedule, program, engine and timeline together, with some room
BYTES_A_PATH = 220  # of a few links: where it goes and what is under way on it
BYTES_A_ROW_OF_NCCL = 500  # what NCCL plans for each message included
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
    """Rows and bytes of equal groups of many ranks. Rows with the same ends share a path, as those
    of a ring; in an all-to-all, each has its own.
    """
    known = cache(schedule_at)
    rows = estimated_rows(ranks, lambda count: len(known(count)), multiple)
    paths = estimated_rows(ranks, lambda count: _ways(known(count)), multiple)
    return groups * rows, groups * (rows * BYTES_A_ROW + paths * BYTES_A_PATH)


def _ways(schedule: Schedule) -> int:
    ends = schedule.src.astype(np.int64) * schedule.ranks + schedule.dst
    return len(different(ends))


def least_rows_of_nccl(collective: str, ranks: int, algorithm: str = "") -> int:
    """Rows that NCCL's schedule has at least: a send and a receive, or a step of each ring."""
    if collective in ("alltoall", "alltoallv"):
        return 2 * ranks * ranks
    steps = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1}.get(collective, 0)
    return steps * ranks * (ranks - 1) if algorithm == "Ring" else ranks


def misfit_of_nccl(
    collective: str, ranks: int, groups: int, algorithm: str, share: float = 1.0
) -> str:
    """The same for NCCL's schedule, from the rows that it has at least and the share of them that
    is written down.
    """
    rows = int(least_rows_of_nccl(collective, ranks, algorithm) * groups * share)
    return misfit(rows, rows * BYTES_A_ROW_OF_NCCL, ranks)


def misfit(rows: int, memory: int, ranks: int) -> str:
    """Why a schedule would not fit, and what would; empty if it fits."""
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


def available_memory() -> int:
    """Bytes that a process may still take."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            found = dict(line.split(":", 1) for line in file)
        return int(found["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        pages = os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 2**22
        return pages * 4096
