"""Links over time, in bins: each row's amount spread evenly over the time that its bytes move.

That is exact on average over every row. Where rows change speed under way the even spread can ask
more of a link than it has; the surplus is moved to the rest of the same busy spell.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from netsim.arrays import different
from netsim.metrics.links import capacity_room, utilisation_of
from netsim.program import Program, Timeline

BINS = 200
_INSTANT = 1e-9  # of a run: changes closer than that are one
_CHUNK = 1 << 20  # rows treated at a time, to bound temporary memory


@dataclass(frozen=True, slots=True)
class LinkLoad:
    """Amounts by link and bin: `amount[i, k]` passes `link[i]` from `edges[k]` to `edges[k + 1]`;
    `room` is what its capacity allows in that time.
    """

    link: NDArray[np.int64]
    edges: NDArray[np.float64]
    amount: NDArray[np.float64]
    room: NDArray[np.float64]

    @property
    def rate(self) -> NDArray[np.float64]:
        """Average rate in every bin, in resource units a second."""
        widths = np.diff(self.edges)
        return np.divide(self.amount, widths, out=np.zeros_like(self.amount), where=widths > 0)

    @property
    def utilisation(self) -> NDArray[np.float64]:
        """Average utilisation in every bin, 0…1."""
        return utilisation_of(self.amount, self.room)

    def seconds_at_capacity(self, least: float = 0.99) -> NDArray[np.float64]:
        """How long each link was used to at least this part of its capacity."""
        seconds: NDArray[np.float64] = (self.utilisation >= least) @ np.diff(self.edges)
        return seconds


def load_over_time(
    program: Program,
    timeline: Timeline,
    links: NDArray[np.int64],
    bins: int = BINS,
    exact: int = 0,
) -> LinkLoad:
    """The load of some links in equal bins from 0 to the end of the run.

    Where rows begin and end at no more than `exact` times, the bins lie between these instead.
    """
    if bins < 1:
        raise ValueError(f"bins: expected at least 1, got {bins}")
    edges = _changes(program, timeline) if exact else np.zeros(0)
    if not 2 <= len(edges) <= exact:
        edges = np.linspace(0.0, timeline.makespan, bins + 1)
    spread = _Spread(program, timeline, edges, _positions(program, links))
    amount = np.zeros((len(links), len(edges) - 1))
    for first in range(0, len(program), _CHUNK):
        spread.add(amount, np.arange(first, min(first + _CHUNK, len(program))))
    room = capacity_room(program.links, links, edges)
    return LinkLoad(links, edges, _levelled(amount, room), room)


def _changes(program: Program, timeline: Timeline) -> NDArray[np.float64]:
    """When any row begins or ends to move, from 0 to the end of the run."""
    moving = (program.path >= 0) & (program.schedule.amount > 0)
    latency = program.style_values("latency")[program.schedule.style[moving]]
    end = timeline.end[moving]
    begin = np.minimum(timeline.start[moving] + latency, end)
    when = different(np.concatenate([[0.0], begin, end, [timeline.makespan]]))
    apart = np.diff(when, prepend=-np.inf) > timeline.makespan * _INSTANT
    apart[-1] = False  # the end itself comes last, whatever is next to it
    return np.append(when[apart], timeline.makespan)


def _positions(program: Program, links: NDArray[np.int64]) -> NDArray[np.int64]:
    """The place of every link of the program among those asked for; -1 if it is not."""
    place = np.full(len(program.links), -1, np.int64)
    place[links] = np.arange(len(links))
    return place


@dataclass(frozen=True, slots=True)
class _Spread:
    program: Program
    timeline: Timeline
    edges: NDArray[np.float64]
    place: NDArray[np.int64]

    def add(self, amount: NDArray[np.float64], rows: NDArray[np.int64]) -> None:
        """Add what some rows draw on the links asked for."""
        row, link, drawn = self._draws(rows)
        style = self.program.schedule.style[row]
        begin = self.timeline.start[row] + self.program.style_values("latency")[style]
        end = self.timeline.end[row]
        begin = np.minimum(begin, end)
        bins, flat = amount.shape[1], amount.reshape(-1)
        first, last = self._bin(begin), self._bin(end)
        duration = np.where(end > begin, end - begin, 1.0)  # no time is spent within one bin
        head = np.where(first == last, 1.0, (self.edges[first + 1] - begin) / duration)
        tail = np.where(first == last, 0.0, (end - self.edges[last]) / duration)
        size = len(flat)
        flat += np.bincount(link * bins + first, drawn * head, size)
        flat += np.bincount(link * bins + last, drawn * tail, size)
        amount += self._between(link, first, last, drawn / duration, amount.shape)

    def _draws(
        self, rows: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
        """Rows, places of links and amounts of every draw on a link asked for."""
        paths = self.program.paths
        rows = rows[self.program.path[rows] >= 0]
        path = self.program.path[rows]
        times = paths.ptr[path + 1] - paths.ptr[path]
        within = np.arange(times.sum()) - np.repeat(np.cumsum(times) - times, times)
        entry = np.repeat(paths.ptr[path], times) + within
        row, link = np.repeat(rows, times), self.place[paths.link[entry]]
        drawn = self.program.schedule.amount[row] * paths.weight[entry]
        wanted = (link >= 0) & (drawn > 0)
        return row[wanted], link[wanted], drawn[wanted]

    def _bin(self, when: NDArray[np.float64]) -> NDArray[np.int64]:
        inside = np.searchsorted(self.edges, when, side="right") - 1
        return np.clip(inside, 0, len(self.edges) - 2)

    def _between(
        self,
        link: NDArray[np.int64],
        first: NDArray[np.int64],
        last: NDArray[np.int64],
        rate: NDArray[np.float64],
        shape: tuple[int, ...],
    ) -> NDArray[np.float64]:
        """What falls into the bins strictly between first and last: rises and falls, summed up."""
        far = last > first + 1
        link, first, last, rate = link[far], first[far], last[far], rate[far]
        size = shape[0] * shape[1]
        steps = np.bincount(link * shape[1] + first + 1, rate, size)
        steps -= np.bincount(link * shape[1] + last, rate, size)
        rates = np.cumsum(steps.reshape(shape), axis=1)
        return np.maximum(rates, 0.0) * np.diff(self.edges)


def _levelled(amount: NDArray[np.float64], room: NDArray[np.float64]) -> NDArray[np.float64]:
    """Move what exceeds the room of a bin to others of the same busy spell: earlier, then later."""
    busy = amount > 0
    earlier = _passed_on(amount[:, ::-1], room[:, ::-1], busy[:, ::-1])[:, ::-1]
    return _passed_on(earlier, room, busy)


def _passed_on(
    amount: NDArray[np.float64], room: NDArray[np.float64], busy: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Hand surplus from bin to bin; what is left at the end of a busy spell stays there."""
    level = np.empty_like(amount)
    surplus = np.zeros(len(amount))
    goes_on = np.append(busy[:, 1:], np.zeros((len(amount), 1), bool), axis=1)
    for k in range(amount.shape[1]):
        total = amount[:, k] + surplus
        level[:, k] = np.where(goes_on[:, k], np.minimum(total, room[:, k]), total)
        surplus = total - level[:, k]
    return level
