"""What passed over the links of a Program during a run, and what each GPU did meanwhile.

Amounts are in the unit of the resource: bytes on wires and memories, seconds on what gives one
second a second (SMs as compute, proxies, messages, launches). Knows Program and Timeline only."""

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

_ENDLESS = 1e100  # so much a second is no end
IN_SECONDS = frozenset({"sms", "clock", "proxy", "nic_msg", "host"})
"""Kinds of resources that give seconds a second, not bytes."""


@dataclass(frozen=True, slots=True)
class LinkUse:
    """The links that carried anything, each with its amount and its average utilisation (0…1)."""

    link: Longs
    amount: Floats
    utilisation: Floats

    def __len__(self) -> int:
        return len(self.link)

    def top(self, count: int) -> Longs:
        """Positions of the most utilised links, the busiest first, equal ones in link order."""
        return np.argsort(-self.utilisation, kind="stable")[:count]


def link_amounts(program: Program, times: Floats | None = None) -> Floats:
    """What all rows together draw on every link of the program; `times` weighs each row (1)."""
    paths = program.paths
    placed = program.path >= 0
    amount = program.schedule.amount[placed] * (1.0 if times is None else times[placed])
    by_path = np.bincount(program.path[placed], amount, minlength=len(paths))
    drawn = np.repeat(by_path, np.diff(paths.ptr)) * paths.weight
    amounts = np.zeros(len(program.links))
    np.add.at(amounts, paths.link, drawn)
    return amounts


def amounts_by(table: LinkTable, program: Program) -> Floats:
    """The same by the numbers of a table that has all links of the program, and perhaps others."""
    amounts, wires = np.zeros(len(table)), len(table) - len(table.resources)
    numbers = dict(zip(table.resources, range(wires, len(table)), strict=True))
    amounts[[*range(wires), *(numbers[key] for key in program.links.resources)]] = link_amounts(
        program
    )
    return amounts


def link_use(program: Program, timeline: Timeline) -> LinkUse:
    """Amount and utilisation, averaged over the makespan, of every link in use."""
    return use_of(program, link_amounts(program), timeline.makespan)


def use_of(program: Program, amounts: Floats, seconds: float) -> LinkUse:
    """The utilization of links that carry these amounts in `seconds`, as fractions."""
    link = np.flatnonzero(amounts > 0)
    room = capacity_room(program.links, link, np.array([0.0, seconds]))[:, 0]
    return LinkUse(link, amounts[link], utilisation_of(amounts[link], room))


@dataclass(frozen=True, slots=True)
class Fullest:
    """The link between switches that carries most, and how often as much as they do in the mean."""

    name: str
    over_mean: float


def fullest_link(topology: Topology, program: Program, use: LinkUse) -> Fullest | None:
    """Of the links between switches, those of no use included; None where none is used."""
    between = topology.links.kind == LINK_KINDS.index("fabric")
    wires = use.link < len(between)
    wire_numbers = np.flatnonzero(wires)[between[use.link[wires]]]
    if not len(wire_numbers):
        return None
    link, amount = use.link[wire_numbers], use.amount[wire_numbers]
    equal_count = 1 if program.links.count is None else program.links.count[link]
    mean = float((amount * equal_count).sum()) / int(between.sum())
    first = int(amount.argmax())
    return Fullest(program.links.name(int(link[first])), float(amount[first]) / mean)


def utilisation_of(amount: Floats, room: Floats) -> Floats:
    """Amount ÷ room; 0 where there is no room, or no end to it."""
    bounded = np.isfinite(room) & (room > 0)
    return np.divide(amount, room, out=np.zeros_like(amount), where=bounded)


def capacity_room(table: LinkTable, links: Longs, edges: Floats) -> Floats:
    """What each link could carry between consecutive edges, with its capacity changes."""
    widths = np.diff(edges)
    with np.errstate(invalid="ignore"):
        room = table.capacity[links][:, None] * widths
    room[:, widths <= 0] = 0.0
    changed = {link for _, link, _ in table.changes} | table.met.keys()
    for position, link in enumerate(links.tolist()):
        if link in changed:
            room[position] = np.diff(room_until(table, link, edges))
    return room


def room_until(table: LinkTable, link: int, when: Floats) -> Floats:
    """What a link could carry up to some times, with the changes of its capacity."""
    since, rate = table.steps(link)
    rate = np.minimum(rate, _ENDLESS)
    passed = np.append(0.0, np.cumsum(np.diff(since) * rate[:-1]))
    place = np.searchsorted(since, when, side="right") - 1
    room: Floats = passed[place] + rate[place] * (when - since[place])
    return room


# Who takes part in the rows of a schedule, as flat arrays: groups of multicasts and in-switch
# reductions are spelled out member by member. Knows no links and no times.

Ends = tuple[Longs, Ints]  # rows, and a rank of each


def senders(schedule: Schedule, rows: Longs) -> Ends:
    """Every (row, rank that it reads from or works on)."""
    return _spelled_out(schedule, rows, schedule.src[rows], SWITCH_REDUCE)


def receivers(schedule: Schedule, rows: Longs) -> Ends:
    """Every (row, rank that data arrives at from elsewhere)."""
    rows = rows[_of_kinds(schedule, rows, TRANSFER, MULTICAST, SWITCH_REDUCE)]
    return _spelled_out(schedule, rows, schedule.dst[rows], MULTICAST)


def _spelled_out(schedule: Schedule, rows: Longs, end: Ints, group_kind: int) -> Ends:
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
    """Those of some rows (of all) that do anything."""
    kinds = (TRANSFER, LOCAL_COPY, MULTICAST, SWITCH_REDUCE, COMPUTE)
    rows = np.arange(len(schedule)) if rows is None else rows
    return rows[_of_kinds(schedule, rows, *kinds)]


def _of_kinds(schedule: Schedule, rows: Longs, *kinds: int) -> NDArray[np.bool_]:
    wanted = np.array([style.kind in kinds for style in schedule.styles], bool)
    matches: NDArray[np.bool_] = wanted[schedule.style[rows]]
    return matches


# Links over time, in bins: each row's amount spread evenly over the time that its bytes move.
# That is exact on average over every row. Where rows change speed under way the even spread can ask
# more of a link than it has; the surplus is moved to the rest of the same busy spell.

BINS = 200
_INSTANT = 1e-9  # of a run: changes closer than that are one


@dataclass(frozen=True, slots=True)
class LinkLoad:
    """Amounts by link and bin: `amount[i, k]` passes `link[i]` from `edges[k]` to `edges[k + 1]`;
    `room` is what its capacity allows in that time."""

    link: Longs
    edges: Floats
    amount: Floats
    room: Floats

    @property
    def rate(self) -> Floats:
        """Average rate in every bin, in resource units a second."""
        widths = np.diff(self.edges)
        return np.divide(self.amount, widths, out=np.zeros_like(self.amount), where=widths > 0)

    @property
    def utilisation(self) -> Floats:
        """Average utilisation in every bin, 0…1."""
        return utilisation_of(self.amount, self.room)

    def seconds_at_capacity(self, least: float = 0.99) -> Floats:
        """How long each link was used to at least this part of its capacity."""
        seconds: Floats = (self.utilisation >= least) @ np.diff(self.edges)
        return seconds


@dataclass
class Loads:
    """How much had passed over a link at any time of a run; found for links that are asked for. A
    row's amount is spread evenly over the time that its bytes move."""

    program: Program
    timeline: Timeline
    _known: Memo = field(default_factory=Memo)

    def between(self, link: int, begin: Floats, end: Floats) -> Floats:
        """What passes over a link from begin to end."""
        when, passed, *_ = self._known.of(link, lambda: self._passed(link))
        if not len(when):
            return np.zeros(len(begin))
        amounts: Floats = np.interp(end, when, passed) - np.interp(begin, when, passed)
        return amounts

    def in_bins(self, link: int, edges: Floats) -> Floats:
        """What passes over a link from edge to edge, with rows that take no time."""
        *_, when, drawn = self._known.of(link, lambda: self._passed(link))
        at_once: Floats = np.histogram(when, edges, weights=drawn)[0]
        return at_once + self.between(link, edges[:-1], edges[1:])

    def users(self, link: int) -> tuple[Longs, Floats]:
        """Rows that draw on a link, and how much each draws."""
        order, ptr, weight = self._entries
        members = order[ptr[link] : ptr[link + 1]]
        paths = self._owners[members]
        first, last = self._path_ptr[paths], self._path_ptr[paths + 1]
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
        """When the bytes of rows begin and end to move."""
        return moving_times(self.program, self.timeline, rows)

    def _passed(self, link: int) -> tuple[Floats, Floats, Floats, Floats]:
        """How much had passed at which times; and when rows that take no time draw, how much."""
        rows, drawn = self.users(link)
        begin, end = self.flow(rows)
        lasting = end > begin
        at_once = begin[~lasting], drawn[~lasting]
        begin, end, drawn = begin[lasting], end[lasting], drawn[lasting]
        rate = drawn / (end - begin)
        when = np.concatenate([begin, end])
        order = np.argsort(when, kind="stable")
        when = when[order]
        rates = np.cumsum(np.concatenate([rate, -rate])[order])
        rates[np.cumsum(np.repeat([1, -1], len(begin))[order]) == 0] = 0.0  # not what rounding left
        passed = np.concatenate([[0.0], np.cumsum(rates[:-1] * np.diff(when))])
        return when, passed[: len(when)], *at_once


def load_over_time(
    program: Program, timeline: Timeline, links: Longs, bins: int, exact: int = 0
) -> LinkLoad:
    """The load of some links in equal bins from 0 to the end of the run. Where rows begin and end
    at no more than `exact` times, the bins lie between these instead."""
    if bins < 1:
        raise ValueError(f"bins: expected at least 1, got {bins}")
    edges = _changes(program, timeline) if exact else np.zeros(0)
    if not 2 <= len(edges) <= exact:
        edges = np.linspace(0.0, timeline.makespan, bins + 1)
    loads = Loads(program, timeline)
    amount = np.array([loads.in_bins(link, edges) for link in links.tolist()])
    amount = amount.reshape(len(links), len(edges) - 1)
    room = capacity_room(program.links, links, edges)
    # Move what exceeds the room of a bin to others of the same busy spell: earlier, then later.
    busy = amount > 0
    earlier = _passed_on(amount[:, ::-1], room[:, ::-1], busy[:, ::-1])[:, ::-1]
    return LinkLoad(links, edges, _passed_on(earlier, room, busy), room)


def moving_times(program: Program, timeline: Timeline, rows: Longs) -> tuple[Floats, Floats]:
    """When the bytes of rows begin and end to move."""
    latency = program.style_values("latency")[program.schedule.style[rows]]
    end = timeline.end[rows]
    return np.minimum(timeline.start[rows] + latency, end), end


def _changes(program: Program, timeline: Timeline) -> Floats:
    moving = np.flatnonzero((program.path >= 0) & (program.schedule.amount > 0))
    times = moving_times(program, timeline, moving)
    when = different(np.concatenate([[0.0], *times, [timeline.makespan]]))
    apart = np.diff(when, prepend=-np.inf) > timeline.makespan * _INSTANT
    apart[-1] = False  # the end itself comes last, whatever is next to it
    return np.append(when[apart], timeline.makespan)


def _passed_on(amount: Floats, room: Floats, busy: NDArray[np.bool_]) -> Floats:
    """Hand surplus from bin to bin; what is left at the end of a busy spell stays there."""
    level = np.empty_like(amount)
    surplus = np.zeros(len(amount))
    goes_on = np.append(busy[:, 1:], np.zeros((len(amount), 1), bool), axis=1)
    for k in range(amount.shape[1]):
        total = amount[:, k] + surplus
        level[:, k] = np.where(goes_on[:, k], np.minimum(total, room[:, k]), total)
        surplus = total - level[:, k]
    return level


Spans = tuple[Ints, Floats, Floats]  # rank, begin, end


@dataclass(frozen=True, slots=True)
class GpuTime:
    """Seconds of every rank. Communicating is sending, receiving or copying; busy is that or
    computing, so `busy - computing` is communication that nothing hides; waiting is the rest of the
    makespan."""

    communicating: Floats
    computing: Floats
    busy: Floats
    waiting: Floats


def gpu_time(program: Program, timeline: Timeline) -> GpuTime:
    """Where the time of every GPU goes."""
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
    """When the data of rows comes in, by receiving rank: a path latency after it leaves."""
    row, rank = receivers(program.schedule, rows)
    delay = program.path_latency[program.path[row]]
    begin, end = moving_times(program, timeline, row)
    return rank, begin + delay, end + delay


def _working(program: Program, timeline: Timeline, rows: Longs) -> Spans:
    row, rank = senders(program.schedule, rows)
    return rank, timeline.start[row], timeline.end[row]


def _joined(first: Spans, second: Spans) -> Spans:
    return (
        np.concatenate([first[0], second[0]]),
        np.concatenate([first[1], second[1]]),
        np.concatenate([first[2], second[2]]),
    )


def _covered(spans: Spans, ranks: int, makespan: float) -> Floats:
    rank, begin, end = spans
    small = rank.astype(np.uint16) if ranks <= 1 << 16 else rank  # numpy sorts these by counting
    order = np.argsort(small, kind="stable")
    begin, end = begin[order], np.minimum(end[order], makespan)
    covered = np.zeros(ranks)
    edges = np.concatenate([[0], np.cumsum(np.bincount(rank, minlength=ranks))])
    for r in range(ranks):
        span = slice(int(edges[r]), int(edges[r + 1]))
        turn = np.argsort(begin[span], kind="stable")
        first, reach = begin[span][turn], np.maximum.accumulate(end[span][turn])
        before = np.concatenate([[0.0], reach[:-1]]) if len(reach) else reach
        covered[r] = np.maximum(reach - np.maximum(first, before), 0.0).sum()
    return covered


def needed(use: LinkUse, links: LinkTable) -> tuple[float, int]:
    """Seconds that the busiest link needs for its bytes at its best capacity, and which it is.

    A link that carries bytes and never has any capacity needs forever: infinite seconds."""
    if not len(use):
        return 0.0, -1
    capacity = least_and_most(links.capacity, links.changes)[1][use.link]
    seconds = np.divide(use.amount, capacity, out=np.full(len(use), np.inf), where=capacity > 0)
    busiest = int(np.argmax(seconds))
    return float(seconds[busiest]), int(use.link[busiest])
