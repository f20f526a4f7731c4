"""What limits rows: the rate each would have alone, and the link that was full while it moved."""

from dataclasses import dataclass, field
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from netsim.program import Program, Timeline

ALIKE = 1e-6  # by which links that are full or narrow alike may differ


def full_rates(program: Program, rows: NDArray[np.int64]) -> NDArray[np.float64]:
    """The rate of each row if it were alone: its own cap, or that of its narrowest link."""
    caps = program.caps[program.schedule.style[rows]]
    paths = program.paths
    narrowest = np.full(len(paths) + 1, inf)
    used = np.unique(program.path[rows])
    for path in used[used >= 0].tolist():
        rates = _rates(program, path)[1]
        narrowest[path] = rates.min(initial=inf)
    result: NDArray[np.float64] = np.minimum(caps, narrowest[program.path[rows]])
    return result


def _rates(program: Program, path: int) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """Links of a path, and the rate of a row that is alone on each."""
    paths = program.paths
    span = slice(int(paths.ptr[path]), int(paths.ptr[path + 1]))
    link = paths.link[span]
    return link, program.links.capacity[link] / paths.weight[span]


@dataclass
class Loads:
    """How much had passed over a link at any time of a run; found for links that are asked for.

    A row's amount is spread evenly over the time that its bytes move.
    """

    program: Program
    timeline: Timeline
    _known: dict[int, tuple[NDArray[np.float64], NDArray[np.float64]]] = field(default_factory=dict)

    def between(
        self, link: int, begin: NDArray[np.float64], end: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """What passes over a link from begin to end."""
        if link not in self._known:
            self._known[link] = self._passed(link)
        when, passed = self._known[link]
        if not len(when):
            return np.zeros(len(begin))
        found: NDArray[np.float64] = np.interp(end, when, passed) - np.interp(begin, when, passed)
        return found

    def users(self, link: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Rows that draw on a link, and how much each draws."""
        order, ptr, weight = self._entries
        mine = order[ptr[link] : ptr[link + 1]]
        paths = self._owners[mine]
        first, last = self._path_ptr[paths], self._path_ptr[paths + 1]
        rows = np.concatenate(
            [self._by_path[a:b] for a, b in zip(first, last, strict=True)] or [np.zeros(0, int)]
        )
        drawn = np.repeat(weight[mine], last - first)
        return rows, self.program.schedule.amount[rows] * drawn

    def __post_init__(self) -> None:
        paths = self.program.paths
        self._owners = np.repeat(np.arange(len(paths)), np.diff(paths.ptr))
        order = np.argsort(paths.link, kind="stable")
        ptr = np.searchsorted(paths.link[order], np.arange(len(self.program.links) + 1))
        self._entries = order, ptr, paths.weight
        self._by_path = np.argsort(self.program.path, kind="stable")
        self._path_ptr = np.searchsorted(
            self.program.path[self._by_path], np.arange(len(paths) + 1)
        )

    def flow(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """When the bytes of rows begin and end to move."""
        latency = self.program.style_values("latency")[self.program.schedule.style[rows]]
        end = self.timeline.end[rows]
        return np.minimum(self.timeline.start[rows] + latency, end), end

    def _passed(self, link: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Breakpoints of the amount over time."""
        rows, drawn = self.users(link)
        begin, end = self.flow(rows)
        lasting = end > begin
        begin, end, drawn = begin[lasting], end[lasting], drawn[lasting]
        rate = drawn / (end - begin)
        when = np.concatenate([begin, end])
        order = np.argsort(when, kind="stable")
        when = when[order]
        rates = np.cumsum(np.concatenate([rate, -rate])[order])
        passed = np.concatenate([[0.0], np.cumsum(rates[:-1] * np.diff(when))])
        return when, passed[: len(when)]


@dataclass(frozen=True)
class Limits:
    """What limits each of some rows while it moves.

    `link` is the fullest of its path if it was slowed, else the narrowest; -1 is the row's own cap,
    -2 nothing. `alike` are all that are as full or as narrow, the cap (-1) among them.
    """

    link: NDArray[np.int64]
    alike: list[tuple[int, ...]]


def limits(
    program: Program,
    timeline: Timeline,
    rows: NDArray[np.int64],
    slowed: NDArray[np.bool_],
    loads: Loads,
) -> Limits:
    """What limits each row, `slowed` being those that others on their links slowed."""
    found = Limits(np.full(len(rows), -2, np.int64), [()] * len(rows))
    begin, end = loads.flow(rows)
    cap = program.caps[program.schedule.style[rows]]
    path = program.path[rows]
    for number in np.unique(path).tolist():
        mine = np.flatnonzero((path == number) & (program.schedule.amount[rows] > 0))
        if number < 0:
            _note(found, mine, np.array([-1]), np.ones((1, len(mine)), bool))
            continue
        link, alone = _rates(program, number)
        busy, free = mine[slowed[mine]], mine[~slowed[mine]]
        rates = np.concatenate([[cap[free], *([one] * len(free) for one in alone)]])
        narrow = (rates <= rates.min(axis=0) * (1 + ALIKE)) & np.isfinite(rates)
        _note(found, free, np.concatenate([[-1], link]), narrow)
        if len(busy) and len(link):
            share = _shares(program, loads, link, begin[busy], end[busy])
            _note(found, busy, link, share >= share.max(axis=0) - ALIKE)
    return found


def _note(
    found: Limits, rows: NDArray[np.int64], links: NDArray[Any], limiting: NDArray[np.bool_]
) -> None:
    """Note for each row (columns) which links limit it: the first of them, its own cap last."""
    for row, column in zip(rows.tolist(), limiting.T, strict=True):
        alike = tuple(links[column].tolist())
        found.alike[row] = alike
        if alike:
            found.link[row] = alike[1] if alike[0] < 0 < len(alike) - 1 else alike[0]


def _shares(
    program: Program,
    loads: Loads,
    link: NDArray[np.int32],
    begin: NDArray[np.float64],
    end: NDArray[np.float64],
) -> NDArray[np.float64]:
    """How full the links of a path (rows) are while each of some rows (columns) moves."""
    use = np.array([loads.between(one, begin, end) for one in link.tolist()])
    room = program.links.capacity[link][:, None] * np.maximum(end - begin, 1e-300)
    full: NDArray[np.float64] = np.divide(
        use, room, out=np.zeros_like(use), where=np.isfinite(room) & (room > 0)
    )
    return full
