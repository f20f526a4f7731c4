"""What bounds a run: its critical path, from the row that ends last back to the first.

Every second of the makespan falls to one cause. Knows Program and Timeline only.
"""

from collections.abc import Callable, Mapping
from math import inf

import numpy as np
from numpy.typing import NDArray

from netsim.base.memo import different
from netsim.base.values import dataclass
from netsim.metrics.links import LinkUse, link_use
from netsim.program.program import LinkTable, Program, Timeline
from netsim.schedule.schedule import COMPUTE, MARK

_EQUAL = 1e-9  # rates that differ by less, relatively, are one
# Rows that the way back looks at together, and of how many it must go through one for it to pay.
SHORTEST, LONGEST, MANY = 16, 8192, 32


@dataclass(frozen=True, slots=True)
class CriticalPath:
    """Rows from first to last, and the seconds of each part of the makespan.

    `latency` is waiting for arrivals and start-up before bytes move; `launch` is a host's and a
    kernel's start, `transfer` and `compute` are flows; `release` is waiting for a given time.
    """

    rows: NDArray[np.int64]
    latency: float
    launch: float
    transfer: float
    compute: float
    release: float

    def shares(self) -> dict[str, float]:
        """Each cause's part of the whole, 0…1."""
        causes = ("latency", "launch", "transfer", "compute", "release")
        seconds = {cause: float(getattr(self, cause)) for cause in causes}
        total = sum(seconds.values())
        return {cause: value / total if total > 0 else 0.0 for cause, value in seconds.items()}


def critical_path(program: Program, timeline: Timeline) -> CriticalPath:
    """Walk back from the last row to end, always to the dependency that was ready last."""
    if not len(program):
        return CriticalPath(np.zeros(0, np.int64), 0.0, 0.0, 0.0, 0.0, 0.0)
    rows, lags, release = _walk(program, timeline)
    startup = program.style_values("latency")[program.schedule.style[rows]]
    spent = timeline.end[rows] - timeline.start[rows]
    startup = np.minimum(startup, spent)
    flow = spent - startup
    kind = program.schedule.kind[rows]
    compute, mark = kind == COMPUTE, kind == MARK  # a mark with a start-up is a kernel's launch
    launch = on_host(program, rows) & ~compute
    issued = release if mark[0] and startup[0] > 0 else 0.0
    return CriticalPath(
        rows=rows,
        latency=lags + float(startup[~mark].sum()),
        launch=float(flow[launch].sum() + startup[mark].sum()) + issued,
        transfer=float(flow[~launch & ~compute].sum()),
        compute=float(flow[compute].sum()),
        release=release - issued,
    )


def _walk(program: Program, timeline: Timeline) -> tuple[NDArray[np.int64], float, float]:
    """Rows of the path, the sum of the lags between them, and the release time of the first."""
    start, end, waits = timeline.start, timeline.end, _Waits(program, timeline)
    row, lags, rows = int(np.argmax(end)), 0.0, list[int]()
    first, size, met = row + 1, SHORTEST, SHORTEST
    while True:
        if row < first:  # longer stretches where the path goes through many of their rows
            size = min(4 * size, LONGEST) if met * MANY >= size else max(size // 4, SHORTEST)
            first, met = max(0, row + 1 - size), 0
            earlier, times = waits.of(first, row + 1)
        rows.append(row)
        met += 1
        best, when, began = earlier[row - first], times[row - first], start.item(row)
        if best < 0 or when < began * (1 - 1e-12):  # it waited for its release
            return np.array(rows[::-1], np.int64), lags, began
        lags += began - end.item(best)
        row = best


class _Waits:
    """What rows wait for."""

    def __init__(self, program: Program, timeline: Timeline) -> None:
        self.schedule, self.path, self.end = program.schedule, program.path, timeline.end
        self.seconds, self.arrival = program.lag_seconds, program.lag_arrival
        self.latency = program.path_latency

    def of(self, first: int, last: int) -> tuple[list[int], list[float]]:
        """Of some rows, the dependency that was ready last (-1: none) and when that was."""
        ptr = self.schedule.dep_ptr[first : last + 1].astype(np.int64)
        span = slice(int(ptr[0]), int(ptr[-1]))
        earlier, lag = self.schedule.dep_row[span], self.schedule.dep_lag[span]
        ways = np.where(self.arrival[lag], self.latency[self.path[earlier]], 0.0)
        ready = self.end[earlier] + (self.seconds[lag] + ways)
        best, when = np.full(last - first, -1), np.full(last - first, -inf)
        some = np.flatnonzero(np.diff(ptr))
        if len(some):
            when[some] = np.maximum.reduceat(ready, ptr[some] - ptr[0])
            owner = np.repeat(np.arange(last - first), np.diff(ptr))
            hit = np.flatnonzero(ready == when[owner])[::-1]  # of equal ones the first
            best[owner[hit]] = earlier[hit]
        return best.tolist(), when.tolist()


def on_host(program: Program, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which rows draw on a host's launches."""
    paths, kind = program.paths, program.links.kind
    launching = {-1: False}
    for path in different(program.path[rows]).tolist():
        if path >= 0:
            links = paths.link[paths.ptr[path] : paths.ptr[path + 1]].tolist()
            launching[path] = any(kind(link) == "host" for link in links)
    return np.array([launching[path] for path in program.path[rows].tolist()], bool)


def narrowest(program: Program, row: int) -> list[int]:
    """The links that alone would slow a row most; none if its own cap, or nothing, does."""
    schedule, paths, path = program.schedule, program.paths, int(program.path[row])
    if path < 0:
        return []
    span = slice(int(paths.ptr[path]), int(paths.ptr[path + 1]))
    capacity, weight = program.links.capacity[paths.link[span]], paths.weight[span]
    rates = np.divide(capacity, weight, out=np.full(len(weight), inf), where=capacity < inf)
    least = rates.min(initial=inf)
    if least > float(program.caps[schedule.style[row]]) or least == inf:
        return []
    found: list[int] = paths.link[span][rates <= least * (1 + _EQUAL)].tolist()
    return found


# What bounds a run, in a few words: `NIC ingress node1.nic0 97 %`, `latency 83 %`, `launch 71 %`.
# A first answer: the busiest link if it is busy most of the time, else the largest part of the
# critical path. Knows Program and Timeline only.


BUSY = 0.6  # utilisation from which a link is what bounds a run
_ALIKE = 0.02  # links within this of the busiest are as busy

SPOKEN = {
    "nvlink": "NVLink",
    "xgmi": "xGMI",
    "c2c": "C2C",
    "pcie": "PCIe",
    "upi": "UPI",
    "hostmem": "host memory",
    "nic": "NIC",
    "fabric": "fabric",
    "sm": "SM",
    "sms": "compute",
    "hbm": "memory",
    "proxy": "proxy",
    "nic_msg": "NIC messages",
    "nvls": "NVLS",
    "host": "launch",
    "bus": "PCIe both ways",
}


@dataclass(frozen=True, slots=True)
class Causes:
    """What the time of a run goes to: the part of each cause; and the seconds of its transfers by
    the kind of link that makes them take as long, for whom it concerns.
    """

    shares: Mapping[str, float]
    transfers: Callable[[], Mapping[str, float]]


def bound_by(
    program: Program,
    timeline: Timeline,
    use: LinkUse | None = None,
    causes: Causes | None = None,
) -> str:
    """What a run needs more of to be faster, by the `use` of its links, and `causes` if known."""
    if timeline.makespan <= 0:
        return "nothing"
    use = link_use(program, timeline) if use is None else use
    most = float(use.utilisation.max(initial=0.0))
    causes = _causes(program, timeline) if causes is None else causes
    shares = causes.shares
    cause = max(shares, key=lambda name: shares[name])
    if most >= BUSY or (cause == "transfer" and most >= shares[cause] * BUSY):
        return _busiest(program.links, use)
    what = cause
    if cause == "transfer":
        transfers = causes.transfers()
        what = f"serial transfers ({max(transfers, key=lambda kind: transfers[kind])})"
    return f"{what} {shares[cause]:.0%}".replace("%", " %")


def _causes(program: Program, timeline: Timeline) -> Causes:
    """Those of the critical path."""
    path = critical_path(program, timeline)
    return Causes(path.shares(), lambda: _transfers(program, timeline, path))


def link_label(table: LinkTable, link: int) -> tuple[str, str]:
    """A link's class and place in words: ("NIC ingress", "node1.nic0"), ("memory", "gpu3")."""
    name, kind = table.name(link), table.kind(link)
    spoken = SPOKEN.get(kind, kind)
    if "->" not in name:
        return spoken, name.partition("(")[2].rstrip(")") or name
    tail, _, head = name.partition("->")
    ends = [end for end in (tail, head) if _is_device(end)]
    if len(ends) != 1:
        return spoken, name
    return f"{spoken} {'egress' if ends[0] == tail else 'ingress'}", ends[0]


def _is_device(node: str) -> bool:
    """Whether a node is one end of a link (a GPU or NIC) rather than a switch in the middle."""
    return node.rpartition(".")[2].startswith(("gpu", "nic"))


def _busiest(table: LinkTable, use: LinkUse) -> str:
    """The class of the busiest link, and its place unless most of that class are as busy."""
    most = float(use.utilisation.max())
    hot = (use.utilisation >= most - _ALIKE).tolist()
    label, place = link_label(table, int(use.link[np.argmax(use.utilisation)]))
    same, alike = 0, 0
    for link, is_hot in zip(use.link.tolist(), hot, strict=True):
        if link_label(table, link)[0] == label:
            same += _count(table, link)
            alike += is_hot * _count(table, link)
    where = f" {place}" if alike * 2 < same or same == 1 else ""
    return f"{label}{where} {min(most, 1.0):.0%}".replace("%", " %")


def _count(table: LinkTable, link: int) -> int:
    """How many links like it a link stands for."""
    return 1 if table.count is None else int(table.count[link])


def _transfers(program: Program, timeline: Timeline, path: CriticalPath) -> dict[str, float]:
    """Transfers one after another: each fills its link, but no link is in use all the time."""
    seconds: dict[str, float] = {}
    for row in path.rows.tolist():
        kind = narrowest_kind(program, row)
        took = float(timeline.end[row] - timeline.start[row])
        seconds[kind] = seconds.get(kind, 0.0) + took
    return seconds


def narrowest_kind(program: Program, row: int) -> str:
    """The kind of link that makes a row take as long; of equal kinds the first by name."""
    kinds = {link_label(program.links, link)[0] for link in narrowest(program, row)}
    return min(kinds, default="own rate")
