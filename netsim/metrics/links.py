"""What was carried by the links of a program during a run, and what each GPU did meanwhile.

Amounts are in the unit of the resource: bytes for links and memories, seconds of work for resources
that give one second in each second (SMs that compute, proxies, messages, launches).
"""

from dataclasses import field

import numpy as np
from numpy.typing import NDArray

from netsim.base.memo import Memo, different
from netsim.base.values import dataclass
from netsim.program.program import LinkTable, Program, Timeline
from netsim.schedule.schedule import (
    COMPUTE,
    LOCAL_COPY,
    MARK,
    MULTICAST,
    SWITCH_REDUCE,
    TRANSFER,
    Schedule,
    spelled_out,
)
from netsim.topology.graph import LINK_KINDS, Floats, Ints, Longs, Topology, least_and_most

_ENDLESS = 1e100  # a finite number in place of an infinite rate
IN_SECONDS = frozenset({"sms", "clock", "proxy", "nic_msg", "host"})
"""Kinds of resources whose amounts are seconds, not bytes."""


@dataclass(frozen=True, slots=True)
class LinkUse:
    """The links that carried anything in a run, in three arrays with an entry for each: `link`, its
    number; `amount`, what it carried, in its unit; `utilisation`, the average from 0 to 1.
    """

    link: Longs
    amount: Floats
    utilisation: Floats

    def __len__(self) -> int:
        return len(self.link)

    def top(self, count: int) -> Longs:
        """The positions, in the arrays, of the `count` links with the largest utilization, the
        largest first. Equal ones stay in their order.
        """
        return np.argsort(-self.utilisation, kind="stable")[:count]


def link_amounts(program: Program, times: Floats | None = None) -> Floats:
    """By number of the link, the amount that all rows of a program together draw from it.

    - `times`: by row, a factor on its amount; by default 1.
    """
    paths = program.paths
    placed = program.path >= 0
    amount = program.schedule.amount[placed] * (1.0 if times is None else times[placed])
    by_path = np.bincount(program.path[placed], amount, minlength=len(paths))
    drawn = np.repeat(by_path, np.diff(paths.ptr)) * paths.weight
    amounts = np.zeros(len(program.links))
    np.add.at(amounts, paths.link, drawn)
    return amounts


def amounts_by(table: LinkTable, program: Program) -> Floats:
    """By number of the link in `table`, the amount that all rows of a program together draw from
    it.

    `table` has all links of the program, and may have more; those have the amount 0.
    """
    amounts = np.zeros(len(table))
    wires = len(table) - len(table.resources)
    numbers = dict(zip(table.resources, range(wires, len(table)), strict=True))
    places = [*range(wires), *(numbers[key] for key in program.links.resources)]
    amounts[places] = link_amounts(program)
    return amounts


def link_use(program: Program, timeline: Timeline) -> LinkUse:
    """The links that carried anything in a run: their amounts, and their utilization over the
    makespan.
    """
    return use_of(program, link_amounts(program), timeline.makespan)


def use_of(program: Program, amounts: Floats, seconds: float) -> LinkUse:
    """The links with an amount above 0, and their utilization if they carry it in `seconds`.

    `amounts` has an entry for each link of the program.
    """
    link = np.flatnonzero(amounts > 0)
    room = capacity_room(program.links, link, np.array([0.0, seconds]))[:, 0]
    return LinkUse(link, amounts[link], utilisation_of(amounts[link], room))


@dataclass(frozen=True, slots=True)
class Fullest:
    """The link between switches that carries most, and its amount divided by the mean of all such
    links.
    """

    name: str
    over_mean: float


def fullest_link(topology: Topology, program: Program, use: LinkUse) -> Fullest | None:
    """The link between switches that carries most, with its amount over the mean of all links
    between switches, unused ones included; None if none of them is used.
    """
    between = topology.links.kind == LINK_KINDS.index("fabric")
    wires = use.link < len(between)
    wire_numbers = np.flatnonzero(wires)[between[use.link[wires]]]
    if not len(wire_numbers):
        return None
    link = use.link[wire_numbers]
    amount = use.amount[wire_numbers]
    equal_count = 1 if program.links.count is None else program.links.count[link]
    mean = float((amount * equal_count).sum()) / int(between.sum())
    first = int(amount.argmax())
    return Fullest(program.links.name(int(link[first])), float(amount[first]) / mean)


def utilisation_of(amount: Floats, room: Floats) -> Floats:
    """Amount divided by room, as fractions; 0 where the room is 0 or infinite."""
    bounded = np.isfinite(room) & (room > 0)
    return np.divide(amount, room, out=np.zeros_like(amount), where=bounded)


def capacity_room(table: LinkTable, links: Longs, edges: Floats) -> Floats:
    """Return the most that each link can carry between consecutive times `edges` (seconds).

    One row per link, one column per interval, in units of the link (bytes, or seconds of work).
    Changes of capacity during an interval are included.
    """
    widths = np.diff(edges)
    with np.errstate(invalid="ignore"):
        room = table.capacity[links][:, None] * widths
    room[:, widths <= 0] = 0.0
    changed = {link for _, link, _ in table.changes} | table.incast_steps.keys()
    for position, link in enumerate(links.tolist()):
        if link in changed:
            room[position] = np.diff(room_until(table, link, edges))
    return room


def room_until(table: LinkTable, link: int, when: Floats) -> Floats:
    """Return the most that a link can carry from 0 s up to each of the times `when` (seconds).

    Changes of its capacity are included.
    """
    since, rate = table.steps(link)
    rate = np.minimum(rate, _ENDLESS)
    passed = np.append(0.0, np.cumsum(np.diff(since) * rate[:-1]))
    place = np.searchsorted(since, when, side="right") - 1
    room: Floats = passed[place] + rate[place] * (when - since[place])
    return room


# The ranks that take part in the rows of a schedule, as flat arrays with one entry for every member
# of the group of a multicast or an in-switch reduction.

Ends = tuple[Longs, Ints]  # numbers of rows, and for each a rank


def senders(schedule: Schedule, rows: Longs) -> Ends:
    """The ranks that rows read from or work on: arrays (row, rank), with an entry for each rank of
    a row.
    """
    return _spelled_out(schedule, rows, schedule.src[rows], SWITCH_REDUCE)


def receivers(schedule: Schedule, rows: Longs) -> Ends:
    """The ranks at which data of rows arrives from other ranks: arrays (row, rank)."""
    rows = rows[_of_kinds(schedule, rows, TRANSFER, MULTICAST, SWITCH_REDUCE)]
    return _spelled_out(schedule, rows, schedule.dst[rows], MULTICAST)


def _spelled_out(schedule: Schedule, rows: Longs, end: Ints, group_kind: int) -> Ends:
    """Columns (rows, ranks): each row with the rank at one of its two endpoints.

    - `end`: the entries of that endpoint by row: `src` or `dst` of the schedule.
    - `group_kind`: the kind of rows (multicast or in-switch reduction) that have the number of a
      group there. Such a row gets an entry for every rank of the group.
    """
    if all(style.kind != group_kind for style in schedule.styles):
        return rows, end
    grouped = _of_kinds(schedule, rows, group_kind)
    place, member = spelled_out(schedule.groups, end[grouped])
    plain = ~grouped
    where = np.concatenate([np.flatnonzero(plain), np.flatnonzero(grouped)[place]])
    order = np.argsort(where, kind="stable")
    everyone = np.concatenate([rows[plain], rows[grouped][place]])
    return everyone[order], np.concatenate([end[plain], member.astype(np.int32)])[order]


def moves(schedule: Schedule, rows: Longs | None = None) -> Longs:
    """The numbers of those rows (of all, or of `rows`) that transfer, copy, reduce or compute."""
    kinds = (TRANSFER, LOCAL_COPY, MULTICAST, SWITCH_REDUCE, COMPUTE)
    rows = np.arange(len(schedule)) if rows is None else rows
    return rows[_of_kinds(schedule, rows, *kinds)]


def _of_kinds(schedule: Schedule, rows: Longs, *kinds: int) -> NDArray[np.bool_]:
    """For each of `rows`, whether it is of one of the `kinds`."""
    wanted = np.array([style.kind in kinds for style in schedule.styles], bool)
    matches: NDArray[np.bool_] = wanted[schedule.style[rows]]
    return matches


# The load of links over time, in bins. The amount of a row is spread evenly over the time in which
# its bytes move, which is exact on average over the row. If rows change their speed, the even
# spread can exceed the capacity of a link in a bin; the excess is moved to other bins of the same
# busy period.

BINS = 200
_INSTANT = 1e-9  # changes that are closer than this fraction of the run count as one


@dataclass(frozen=True, slots=True)
class LinkLoad:
    """The load of some links over time, in bins.

    - `link`: the numbers of the links.
    - `edges`: the times in seconds at which bins begin, and the end of the last bin.
    - `amount`: `amount[i, k]` passes `link[i]` in bin k.
    - `room`: in the same shape, the amount that the link's capacity allows in the bin.
    """

    link: Longs
    edges: Floats
    amount: Floats
    room: Floats

    @property
    def rate(self) -> Floats:
        """The average rate as [link, bin], in units of the link per second."""
        widths = np.diff(self.edges)
        return np.divide(self.amount, widths, out=np.zeros_like(self.amount), where=widths > 0)

    @property
    def utilisation(self) -> Floats:
        """The average utilization as [link, bin], a fraction."""
        return utilisation_of(self.amount, self.room)

    def seconds_at_capacity(self, least: float = 0.99) -> Floats:
        """For each link, the seconds in which its utilization is at least the fraction `least`."""
        seconds: Floats = (self.utilisation >= least) @ np.diff(self.edges)
        return seconds


@dataclass
class Loads:
    """How much had passed over a link at any time of a run; computed for a link at its first use.

    The amount of a row is spread evenly over the time in which its bytes move.
    """

    program: Program
    timeline: Timeline
    _passed_by_link: Memo = field(default_factory=Memo)

    def between(self, link: int, begin: Floats, end: Floats) -> Floats:
        """The amounts that pass over a link from `begin[k]` to `end[k]` seconds, for each k. Rows
        that take no time are left out.
        """
        when, passed, *_ = self._passed_by_link.of(link, lambda: self._passed(link))
        if not len(when):
            return np.zeros(len(begin))
        amounts: Floats = np.interp(end, when, passed) - np.interp(begin, when, passed)
        return amounts

    def in_bins(self, link: int, edges: Floats) -> Floats:
        """The amounts that pass over a link between consecutive times `edges` (seconds).

        Rows that take no time are included.
        """
        *_, when, drawn = self._passed_by_link.of(link, lambda: self._passed(link))
        at_once: Floats = np.histogram(when, edges, weights=drawn)[0]
        return at_once + self.between(link, edges[:-1], edges[1:])

    def users(self, link: int) -> tuple[Longs, Floats]:
        """Two arrays: the rows that use a link, and the amount that each of them draws from it."""
        order, ptr, weight = self._entries
        members = order[ptr[link] : ptr[link + 1]]
        paths = self._owners[members]
        first = self._path_ptr[paths]
        last = self._path_ptr[paths + 1]
        rows = np.concatenate(
            [self._by_path[a:b] for a, b in zip(first, last, strict=True)] or [np.zeros(0, int)]
        )
        return rows, self.program.schedule.amount[rows] * np.repeat(weight[members], last - first)

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

    def flow(self, rows: Longs) -> tuple[Floats, Floats]:
        """For each row, when its bytes begin to move and when all have moved, in seconds."""
        return moving_times(self.program, self.timeline, rows)

    def _passed(self, link: int) -> tuple[Floats, Floats, Floats, Floats]:
        """What passes over a link, as four arrays; times are in seconds.

        The first two are times, and the amount that had passed by each. The last two are the times
        and the amounts of rows that take no time, which the first two leave out.
        """
        rows, drawn = self.users(link)
        begin, end = self.flow(rows)
        lasting = end > begin
        at_once = begin[~lasting], drawn[~lasting]
        begin = begin[lasting]
        end = end[lasting]
        drawn = drawn[lasting]
        rate = drawn / (end - begin)
        when = np.concatenate([begin, end])
        order = np.argsort(when, kind="stable")
        when = when[order]
        rates = np.cumsum(np.concatenate([rate, -rate])[order])
        # No row is moving: the rate is 0 and not the rounding error of the sum.
        rates[np.cumsum(np.repeat([1, -1], len(begin))[order]) == 0] = 0.0
        passed = np.concatenate([[0.0], np.cumsum(rates[:-1] * np.diff(when))])
        return when, passed[: len(when)], *at_once


def load_over_time(
    program: Program, timeline: Timeline, links: Longs, bins: int, exact: int = 0
) -> LinkLoad:
    """The load of some links in `bins` equal bins from 0 to the end of the run.

    If there are at most `exact` times at which rows begin or end, the bins lie between these times
    instead.
    """
    if bins < 1:
        raise ValueError(f"bins: expected at least 1, got {bins}")
    edges = _changes(program, timeline) if exact else np.zeros(0)
    if not 2 <= len(edges) <= exact:
        edges = np.linspace(0.0, timeline.makespan, bins + 1)
    loads = Loads(program, timeline)
    amount = np.array([loads.in_bins(link, edges) for link in links.tolist()])
    amount = amount.reshape(len(links), len(edges) - 1)
    room = capacity_room(program.links, links, edges)
    # Move the excess over the room of a bin to other bins of the same busy period: first to earlier
    # bins, then to later ones.
    busy = amount > 0
    earlier = _passed_on(amount[:, ::-1], room[:, ::-1], busy[:, ::-1])[:, ::-1]
    return LinkLoad(links, edges, _passed_on(earlier, room, busy), room)


def moving_times(program: Program, timeline: Timeline, rows: Longs) -> tuple[Floats, Floats]:
    """For each row, when its bytes begin to move (after its start-up) and when all have moved, in
    seconds.
    """
    latency = program.style_values("latency")[program.schedule.style[rows]]
    end = timeline.end[rows]
    return np.minimum(timeline.start[rows] + latency, end), end


def _changes(program: Program, timeline: Timeline) -> Floats:
    """The times in seconds at which rows begin or end to move, with 0 and the end of the run.

    Times that nearly coincide are joined.
    """
    moving = np.flatnonzero((program.path >= 0) & (program.schedule.amount > 0))
    times = moving_times(program, timeline, moving)
    when = different(np.concatenate([[0.0], *times, [timeline.makespan]]))
    apart = np.diff(when, prepend=-np.inf) > timeline.makespan * _INSTANT
    apart[-1] = False  # the end itself comes last, whatever is next to it
    return np.append(when[apart], timeline.makespan)


def _passed_on(amount: Floats, room: Floats, busy: NDArray[np.bool_]) -> Floats:
    """`amount`, with what exceeds the room of a bin moved to the next bin.

    `amount`, `room` and `busy` (whether anything passes) are arrays [link, bin]. Nothing is moved
    past the end of a busy period: its last bin keeps the excess.
    """
    level = np.empty_like(amount)
    surplus = np.zeros(len(amount))
    is_next_busy = np.append(busy[:, 1:], np.zeros((len(amount), 1), bool), axis=1)
    for column in range(amount.shape[1]):
        total = amount[:, column] + surplus
        limited = np.minimum(total, room[:, column])
        level[:, column] = np.where(is_next_busy[:, column], limited, total)
        surplus = total - level[:, column]
    return level


Spans = tuple[Ints, Floats, Floats]  # rank, begin, end


@dataclass(frozen=True, slots=True)
class GpuTime:
    """The seconds that each rank spends communicating, computing, busy and waiting.

    Communicating is sending, receiving or copying. Busy is communicating or computing, so that
    `busy - computing` is communication that no computing overlaps. Waiting is the rest of the
    makespan.
    """

    communicating: Floats
    computing: Floats
    busy: Floats
    waiting: Floats


def gpu_time(program: Program, timeline: Timeline) -> GpuTime:
    """The seconds that each rank spends communicating, computing and waiting in a run."""
    kind = program.schedule.kind
    work = _working(program, timeline, np.flatnonzero(kind == COMPUTE))
    moving = np.flatnonzero((kind != COMPUTE) & (kind != MARK))
    talk = _joined(_working(program, timeline, moving), arrivals(program, timeline, moving))
    ranks = program.schedule.ranks
    computing = _covered(work, ranks, timeline.makespan)
    communicating = _covered(talk, ranks, timeline.makespan)
    busy = communicating
    if len(work[0]):
        busy = _covered(_joined(work, talk), ranks, timeline.makespan)
    return GpuTime(communicating, computing, busy, np.maximum(timeline.makespan - busy, 0.0))


def arrivals(program: Program, timeline: Timeline, rows: Longs) -> Spans:
    """When the data of rows arrives, as arrays (receiving rank, begin, end) in seconds.

    Data arrives later than it leaves, by the latency of the path.
    """
    row, rank = receivers(program.schedule, rows)
    delay = program.path_latency[program.path[row]]
    begin, end = moving_times(program, timeline, row)
    return rank, begin + delay, end + delay


def _working(program: Program, timeline: Timeline, rows: Longs) -> Spans:
    """The spans in which ranks send or compute for rows: arrays (rank, start, finish), times in
    seconds.
    """
    row, rank = senders(program.schedule, rows)
    return rank, timeline.start[row], timeline.end[row]


def _joined(first: Spans, second: Spans) -> Spans:
    """Concatenate two sets of spans (rank, begin, end)."""
    return (
        np.concatenate([first[0], second[0]]),
        np.concatenate([first[1], second[1]]),
        np.concatenate([first[2], second[2]]),
    )


def _covered(spans: Spans, ranks: int, makespan: float) -> Floats:
    """For each rank, the seconds that at least one of its spans covers, up to the makespan."""
    rank, begin, end = spans
    small = rank.astype(np.uint16) if ranks <= 1 << 16 else rank  # numpy sorts these by counting
    order = np.argsort(small, kind="stable")
    begin = begin[order]
    end = np.minimum(end[order], makespan)
    covered = np.zeros(ranks)
    edges = np.concatenate([[0], np.cumsum(np.bincount(rank, minlength=ranks))])
    for r in range(ranks):
        span = slice(int(edges[r]), int(edges[r + 1]))
        by_begin = np.argsort(begin[span], kind="stable")
        first = begin[span][by_begin]
        reach = np.maximum.accumulate(end[span][by_begin])
        before = np.concatenate([[0.0], reach[:-1]]) if len(reach) else reach
        covered[r] = np.maximum(reach - np.maximum(first, before), 0.0).sum()
    return covered


def needed(use: LinkUse, links: LinkTable) -> tuple[float, int]:
    """(seconds, link): the seconds that the busiest link needs for its amount at its highest
    capacity, and the number of this link.

    A link that carries bytes and never has capacity needs infinite seconds. If no link is used, the
    result is (0, -1).
    """
    if not len(use):
        return 0.0, -1
    capacity = least_and_most(links.capacity, links.changes)[1][use.link]
    seconds = np.divide(use.amount, capacity, out=np.full(len(use), np.inf), where=capacity > 0)
    busiest = int(np.argmax(seconds))
    return float(seconds[busiest]), int(use.link[busiest])
