"""The report on a simulation that cannot finish: which ranks, rows and links wait."""

from collections.abc import Sequence
from math import inf

import numpy as np

from netsim.base.arrays import different
from netsim.base.errors import StalledError
from netsim.program.program import Program

_MOST = 5  # rows and links that a message names


def stalled(
    program: Program, start: Sequence[float], end: Sequence[float], now: float
) -> StalledError:
    """The error for rows that have started and stand still, and those that wait for them."""
    begun, over = np.asarray(start) < inf, np.asarray(end) < inf
    stuck = np.flatnonzero(begun & ~over)
    waiting = int((~begun).sum())
    schedule = program.schedule
    ranks = sorted({rank for row in stuck for side in schedule.members(int(row)) for rank in side})
    rows = [schedule.describe(int(row)) for row in stuck[:_MOST]]
    links = _dead_links(program, stuck)
    return StalledError(
        f"the simulation cannot finish: at {now:.9g} s, {len(stuck)} rows stand still and "
        f"{waiting} more wait for them; ranks {_some(list(map(str, ranks)))}; "
        f"{_some(rows, len(stuck))}; links without capacity: {_some(links)}"
    )


def _dead_links(program: Program, stuck: np.ndarray) -> list[str]:
    """Links of the stuck rows that have, at the end of all changes, no capacity."""
    capacity = program.links.capacity.copy()
    for _, link, value in program.links.changes:
        capacity[link] = value
    paths, dead = program.paths, set()
    for path in different(program.path[stuck]):
        links = paths.link[paths.ptr[path] : paths.ptr[path + 1]]
        dead.update(links[capacity[links] == 0].tolist())
    return [program.links.name(link) for link in sorted(dead)]


def _some(names: list[str], total: int | None = None) -> str:
    total = len(names) if total is None else total
    more = f" and {total - _MOST} more" if total > _MOST else ""
    return ", ".join(names[:_MOST]) + more if names else "none"
