"""Ways: the links that rows with the same ends draw on, found once for each.

Millions of rows usually take a few thousand ways; everything that costs is done once for each."""

from collections.abc import Iterator, Sequence
from dataclasses import field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from netsim.base.errors import InputError
from netsim.base.memo import different
from netsim.base.values import dataclass, grouped
from netsim.program.program import Choices
from netsim.schedule.partition import Fold
from netsim.schedule.schedule import (
    COMPUTE,
    COMPUTING,
    LOCAL_COPY,
    MARK,
    MULTICAST,
    SWITCH_REDUCE,
    TRANSFER,
    Schedule,
    Style,
    Use,
    spelled_out,
)
from netsim.topology.graph import LINK_KINDS, NODE_KINDS, Floats, Topology, least_and_most
from netsim.topology.reduction import SwitchReduction

_DENSE = 1 << 25  # largest table of (class, source, destination) that is looked up directly
_SMALL, _WORTH = 1 << 16, 64  # cells that cost nothing; cells a row that cost more than sorting
_PATHS = 1 << 20  # about so many paths are chosen from at most; two for each way in any case
_ROWS_AT_A_TIME = 1 << 18  # rows treated at a time: few enough for the processor's caches


@dataclass(frozen=True, slots=True)
class Way:
    """What the rows of one class have in common, apart from their ends."""

    kind: int
    wire: float
    multiplicity: int
    uses: tuple[Use, ...]
    route: str
    channel: int
    copies: int = 1


@dataclass(frozen=True, slots=True)
class Distinct:
    """The number of the way of every row (-1: none), and class, source and destination of each."""

    path: NDArray[np.int32]
    classes: tuple[Way, ...]
    klass: NDArray[np.int32]
    src: NDArray[np.int32]
    dst: NDArray[np.int32]


def distinct_ways(schedule: Schedule, topology: Topology) -> Distinct:
    """Find the distinct (class, source, destination) of all rows; marks go nowhere."""
    classes: dict[Way, int] = {}
    router = topology.router
    per_channel, turns = router.per_channel, router.turns
    of_style = np.array(
        [
            -1 if s.kind == MARK else classes.setdefault(_way(s, per_channel), len(classes))
            for s in schedule.styles
        ],
        np.int64,
    )
    turn, every = None, tuple(classes)
    if turns > 1:  # a class for each queue pair
        turn, of_style = _turns(schedule, turns), np.where(of_style < 0, -1, of_style * turns)
        every = tuple(_over(way, queue) for way in every for queue in range(turns))
    width = max(schedule.ranks, len(schedule.groups))
    size = len(every) * width * width
    keys = _Keys(schedule, of_style if size > _DENSE else of_style.astype(np.int32), width, turn)
    dense = size <= min(_DENSE, max(_SMALL, _WORTH * len(schedule)))
    path, ways = _by_table(keys, size) if dense else _by_sorting(keys)
    return Distinct(path, every, *_apart(ways, width))


def connections_on_links(
    schedule: Schedule, topology: Topology, device: NDArray[np.int32]
) -> NDArray[np.float64]:
    """How many connections every link carries: pairs of ranks that send on a channel, each counted
    by the part of its bytes that goes there."""
    found, ranks = distinct_ways(schedule, topology), schedule.ranks
    sent = (number for number, way in enumerate(found.classes) if way.kind == TRANSFER)
    kinds = grouped(sent, lambda n: (found.classes[n].route, found.classes[n].channel))
    asked = []
    for (route, channel), numbers in kinds.items():
        mine = np.isin(found.klass, numbers)
        pair = different(found.src[mine].astype(np.int64) * ranks + found.dst[mine])
        channels = np.full(len(pair), channel, np.int32)
        asked.append((device[pair // ranks], device[pair % ranks], channels, route))
    flows, routes = np.zeros(len(topology.links)), topology.laid(asked)
    np.add.at(flows, routes.link, routes.fraction)
    return flows


def with_choices(
    found: Distinct, topology: Topology, device: NDArray[np.int32]
) -> tuple[Distinct, NDArray[np.int32]]:
    """The ways, behind them those that their messages may take instead, each once, and of which way
    every one is: of a way of so many turns, each that is like no earlier one."""
    ways, count = np.arange(len(found.klass), dtype=np.int32), len(found.classes)
    turns = min(topology.router.choices, max(2, _PATHS // max(1, len(ways))))
    if turns < 2:
        return found, ways
    marks = np.random.default_rng(0).integers(1 << 62, size=len(topology.links))
    seen, new = np.zeros((turns, len(ways)), np.int64), np.zeros((turns, len(ways)), bool)
    for turn in range(turns):
        for number, way in enumerate(found.classes):
            if way.kind == TRANSFER:
                mine = np.flatnonzero(found.klass == number)
                ends = device[found.src[mine]], device[found.dst[mine]]
                channel = np.full(len(mine), way.channel, np.int32)
                routes = topology.routes(*ends, channel, _over(way, turn).route)
                total = np.append(0, np.cumsum(marks[routes.link]))
                seen[turn, mine] = total[routes.ptr[1:]] - total[routes.ptr[:-1]]
        new[turn] = (seen[turn] != seen[:turn]).all(axis=0)
    owner, later = np.nonzero(new[1:].T)
    classes = [_over(way, turn) for turn in range(turns) for way in found.classes]
    klass = np.append(found.klass, found.klass[owner] + (later + 1) * count).astype(np.int32)
    more = Distinct(
        found.path,
        (*found.classes, *classes[count:]),
        klass,
        np.append(found.src, found.src[owner]),
        np.append(found.dst, found.dst[owner]),
    )
    return more, np.append(ways, owner).astype(np.int32)


def choices_of(
    way: NDArray[np.int32], ways: int, ptr: NDArray[np.int64], link: NDArray[np.int32]
) -> Choices:
    """What is chosen from, by the way that every path is one of, and all paths."""
    count, wires = np.bincount(way, minlength=ways), int(link.max(initial=0)) + 1
    key = np.repeat(way, np.diff(ptr)).astype(np.int64) * wires + link
    distinct, place, times = np.unique(key, return_inverse=True, return_counts=True)
    apart = (times < count[distinct // wires])[place]
    compared = np.zeros(wires, bool)
    compared[link[apart]] = True
    kept, slot = compared[link], np.cumsum(compared) - 1
    return Choices(
        way,
        ways + np.append(0, np.cumsum(count - 1)),
        np.append(0, np.cumsum(kept))[ptr],
        slot[link[kept]].astype(np.int32),
        apart[kept],
        np.flatnonzero(compared),
    )


def _apart(ways: NDArray[np.int64], width: int) -> tuple[NDArray[np.int32], ...]:
    """The class, source and destination of every key: there are few classes and many ways."""
    pair = ways // width
    dst = (ways - pair * width).astype(np.int32)
    klass = (pair // width).astype(np.int32)
    pair -= klass.astype(np.int64) * width
    return klass, pair.astype(np.int32), dst


def _way(style: Style, per_channel: bool) -> Way:
    uses = style.uses
    if style.kind == COMPUTE and not any(use.resource == "sms" for use in uses):
        uses = (*uses, Use("sms", "src", 1.0))
    if style.kind == LOCAL_COPY and not any(use.resource == "hbm" for use in uses):
        uses = (*uses, Use("hbm", "src", 2.0 if style.op == 0 else 3.0))
    channel = style.channel if per_channel else 0
    return Way(style.kind, style.wire, style.multiplicity, uses, style.route, channel, style.copies)


def _over(way: Way, queue: int) -> Way:
    """The way over one queue pair; what is no message has no queue pairs."""
    return replace(way, route=f"{way.route}@{queue}") if way.kind == TRANSFER else way


def _turns(schedule: Schedule, turns: int) -> NDArray[np.int32]:
    """The queue pair of every message: those of a connection take all in turn."""
    styles = schedule.styles
    channel = np.array([s.channel if s.kind == TRANSFER else -1 for s in styles])[schedule.style]
    key = (channel * schedule.ranks + schedule.src) * schedule.ranks + schedule.dst
    order = np.argsort(key, kind="stable")
    number = np.empty(len(key), np.int64)
    number[order] = np.arange(len(key))
    first = np.searchsorted(key[order], key)
    return np.where(channel < 0, 0, (number - first) % turns).astype(np.int32)


@dataclass(frozen=True, slots=True)
class _Keys:
    """The key of every row, as wide as `of_style`, a chunk at a time; -1 for marks."""

    schedule: Schedule
    of_style: NDArray[np.int64] | NDArray[np.int32]
    width: int
    turn: NDArray[np.int32] | None = None

    def chunk(self, first: int) -> NDArray[np.int64] | NDArray[np.int32]:
        rows = slice(first, first + _ROWS_AT_A_TIME)
        key = klass = self.of_style[self.schedule.style[rows]]
        if self.turn is not None:
            key = klass + self.turn[rows]
        key = key * self.width
        key += self.schedule.src[rows]
        key *= self.width
        key += self.schedule.dst[rows]
        key[klass < 0] = -1
        return key


def _by_table(keys: _Keys, size: int) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    rows = len(keys.schedule)
    number = np.full(size + 1, -1, np.int32)  # the last cell, index -1, stays for marks
    path = np.empty(rows, np.int32)  # the keys, until they have numbers
    for first in range(0, rows, _ROWS_AT_A_TIME):
        key = keys.chunk(first)
        number[key] = 0
        path[first : first + _ROWS_AT_A_TIME] = key
    number[-1] = -1
    ways = np.flatnonzero(number == 0)
    number[ways] = np.arange(len(ways), dtype=np.int32)
    for first in range(0, rows, _ROWS_AT_A_TIME):
        path[first : first + _ROWS_AT_A_TIME] = number[path[first : first + _ROWS_AT_A_TIME]]
    return path, ways


def _by_sorting(keys: _Keys) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    rows = len(keys.schedule)
    parts = [different(keys.chunk(first)) for first in range(0, rows, _ROWS_AT_A_TIME)]
    ways = different(np.concatenate([np.zeros(0, np.int64), *parts]))
    ways = ways[ways >= 0]
    path = np.empty(rows, np.int32)
    for first in range(0, rows, _ROWS_AT_A_TIME):
        key = keys.chunk(first)
        path[first : first + _ROWS_AT_A_TIME] = np.where(key < 0, -1, np.searchsorted(ways, key))
    return path, ways


Ints = NDArray[np.int32]
Entries = tuple[Ints, Ints, NDArray[np.float64]]  # way, link, weight
Packed = tuple[NDArray[np.int64], Ints, NDArray[np.float64]]  # pointers, links, weights

_NARROW = 16  # paths of so few entries are searched for repetitions entry by entry
_SOME = 1 << 14  # others so many at a time


def pack(blocks: list[Entries], ways: int) -> Packed:
    """Take all blocks out of the list and lay out their entries way by way. In a block, the entries
    of a way follow each other. Several of one way on one link (half duplex, both ends) are added
    up."""
    none = np.zeros(0, np.int32)
    ptr = np.zeros(ways + 1, np.int64)
    owners = np.concatenate([none, *(block[0] for block in blocks)])
    np.cumsum(np.bincount(owners, minlength=ways), out=ptr[1:])
    del owners
    link = np.empty(int(ptr[-1]), np.int32)
    values = {float(w[0]) if w.strides == (0,) else None for _, _, w in blocks if len(w)}
    same = values.pop() if len(values) == 1 else None
    weight = np.empty(len(link)) if same is None else np.broadcast_to(same, len(link))
    filled = ptr[:-1].copy()
    blocks.reverse()
    while blocks:
        owner, its_link, its_weight = blocks.pop()
        starts = np.flatnonzero(np.append(True, owner[1:] != owner[:-1])[: len(owner)])
        lengths = np.diff(np.append(starts, len(owner)))
        place = np.arange(len(owner)) + np.repeat(filled[owner[starts]] - starts, lengths)
        link[place] = its_link
        if same is None:
            weight[place] = its_weight
        filled[owner[starts]] += lengths
    return _merged(ptr, link, weight) if _repeats(ptr, link) else (ptr, link, weight)


def thrifty(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The same values; where all are equal, they take no memory."""
    if len(values) and values.min() == values.max():
        return np.broadcast_to(values[0], len(values))
    return values


def owners_of(ptr: NDArray[np.int64]) -> Ints:
    """The way of every entry."""
    return np.repeat(np.arange(len(ptr) - 1, dtype=np.int32), np.diff(ptr))


def _repeats(ptr: NDArray[np.int64], link: Ints) -> bool:
    width = int(np.diff(ptr).max(initial=0))
    if width > _NARROW:
        return any(_repeat(ptr[k : k + _SOME + 1], link) for k in range(0, len(ptr) - 1, _SOME))
    owner = owners_of(ptr)
    return any(
        bool(((link[k:] == link[:-k]) & (owner[k:] == owner[:-k])).any()) for k in range(1, width)
    )


def _repeat(ptr: NDArray[np.int64], link: Ints) -> bool:
    some = link[ptr[0] : ptr[-1]]
    key = owners_of(ptr).astype(np.int64) * (int(some.max(initial=0)) + 1) + some
    return len(different(key)) < len(key)


def _merged(ptr: NDArray[np.int64], link: Ints, weight: NDArray[np.float64]) -> Packed:
    """Entries of one way on one link become one, in the place of the first."""
    owner = owners_of(ptr).astype(np.int64)
    key = owner * (int(link.max(initial=0)) + 1) + link
    distinct, place = np.unique(key, return_inverse=True)
    first = np.full(len(distinct), len(key))
    np.minimum.at(first, place, np.arange(len(key)))
    total = np.bincount(place, weight)
    keep = np.sort(first)
    fewer = np.zeros(len(ptr), np.int64)
    np.cumsum(np.bincount(owner[keep], minlength=len(ptr) - 1), out=fewer[1:])
    return fewer, link[keep], total[place[keep]]


def active_entries(
    link: Ints, capacity: NDArray[np.float64], changes: Sequence[tuple[float, int, float]] = ()
) -> NDArray[np.bool_]:
    """True for every path entry that can limit a row: a resource of infinite capacity never does.
    Which others are never full, the compiled engine finds out."""
    return np.isfinite(least_and_most(capacity, changes)[0])[link]


# Ways through switches of a fabric that reduce (SHARP): trees of links in place of one route.
# Names of such ways begin with `sharp:` (from a group to one GPU, or from one to a group) or
# `sharp-all:` (from a group to all of it in one stream, which is the reducing row's; handing out
# then takes nothing); the way from GPU to NIC follows, see `parse_route_options`.
# The search for trees, and the library that it needs, are imported only where there are some: that
# takes as long as simulating a million rows.

ONE_WAY, BOTH_WAYS = "sharp", "sharp-all"

WINDOW = "window"  # what a connection may have under way, over its round trip
SENDER = "sender"  # a NIC at another that it sends to; nothing but there to be counted
_UNIT = ("sms", "clock", "proxy", "nic_msg", "host")  # resources that give one second a second
_PORTION = 1 << 15  # ways routed at a time, to bound temporary memory


class PlacementError(InputError, ValueError):
    """A schedule that cannot run on a topology; the message names ranks and rows."""


@dataclass
class Resources:
    """Numbers for resources other than wires, in order of first use."""

    first: int
    topology: Topology
    keys: list[tuple[str, int, int]] = field(default_factory=list)
    _tables: dict[tuple[str, int], NDArray[np.int64]] = field(default_factory=dict)
    _windows: dict[tuple[Any, ...], tuple[int, float]] = field(default_factory=dict)

    def window(self, connection: tuple[Any, ...], rate: float) -> int:
        """The number of what a connection of two GPUs may have under way, a round trip."""
        new = self.first + len(self.keys)
        number, _ = self._windows.setdefault(connection, (new, rate))
        if number == new:
            self.keys.append((WINDOW, *connection[:2]))
        return number

    def numbers(self, resource: str, index: int, owners: NDArray[np.int64]) -> NDArray[np.int64]:
        """The number of one resource of each owner (a GPU, NIC node or process)."""
        size = int(owners.max(initial=0)) + 1
        table = self._tables.get((resource, index), np.zeros(0, np.int64))
        if len(table) < size:
            table = np.append(table, np.full(size - len(table), -1))
        new = different(owners[table[owners] < 0])
        table[new] = self.first + len(self.keys) + np.arange(len(new))
        self.keys.extend((resource, int(owner), index) for owner in new)
        self._tables[resource, index] = table
        return table[owners]

    def capacity(self) -> NDArray[np.float64]:
        """What each of them gives a second; a resource the topology does not state never limits."""
        given = self.topology.capacities
        free = {name: 1.0 if name in _UNIT else np.inf for name, _, _ in self.keys}
        found = [given[n][owner] if n in given else free[n] for n, owner, _ in self.keys]
        for number, rate in self._windows.values():
            found[number - self.first] = rate
        return np.array(found, np.float64)

    def changes(self) -> Iterator[tuple[float, int, float]]:
        """When which of them gives how much, where GPUs are slower for a time."""
        slowed = {*self.topology.capacities, *COMPUTING}
        whole = self.capacity().tolist() if self.topology.slower else []
        for time, gpu, fraction in self.topology.slower:
            for number, (name, owner, _) in enumerate(self.keys):
                if owner == gpu and name in slowed:
                    yield time, self.first + number, whole[number] * fraction

    def counts(self, fold: Fold, device: NDArray[np.int32]) -> NDArray[np.int32]:
        """How many like it each of them stands for."""
        rank = np.full(len(self.topology), 0, np.int32)
        rank[device] = np.arange(len(device))
        found = []
        for resource, owner, index in self.keys:
            alike, place = fold.ranks, owner
            if resource == "nic_msg":
                alike = fold.nodes
            elif resource != "host":
                place = int(rank[owner])
                alike = fold.blocks[index] if resource == "sm" else fold.ranks
            found.append(int(alike.count[place]))
        return np.array(found, np.int32)

    def kind(self, number: int) -> str:
        """The name of the resource with a number."""
        return self.keys[number - self.first][0]

    def name(self, number: int) -> str:
        """A resource in words, such as `hbm(node0.gpu3)` or `sm(node0.gpu3, 5)`."""
        resource, owner, index = self.keys[number - self.first]
        place: object = f"process {owner}"
        if resource == SENDER:
            return f"{resource}({self.topology.nodes[owner]}, {self.topology.link_name(index)})"
        if resource == "nic_msg":
            place = self.topology.nodes[owner]
        elif resource != "host":
            place = self.topology.gpus[owner]
        if resource == WINDOW:
            return f"{resource}({place}, {self.topology.gpus[index]})"
        return f"{resource}({place}, {index})" if resource == "sm" else f"{resource}({place})"


@dataclass
class Ways:
    """Turns distinct ways into paths on one topology."""

    schedule: Schedule
    topology: Topology
    device: NDArray[np.int32]
    process: NDArray[np.int32]

    @cached_property
    def resources(self) -> Resources:
        """What else they draw on."""
        return Resources(len(self.topology.links), self.topology)

    @cached_property
    def fabric(self) -> SwitchReduction:
        """Trees through switches of the fabric that reduce."""
        return SwitchReduction(self.topology)

    def paths(
        self, found: Distinct
    ) -> tuple[NDArray[np.int64], Ints, NDArray[np.float64], NDArray[np.float64]]:
        """Pointers, links, weights and latencies of all ways, in CSR form."""
        latency = np.zeros(len(found.klass))
        entries: list[Entries] = []
        order = np.argsort(found.klass, kind="stable").astype(np.int32)
        ends = np.searchsorted(found.klass[order], np.arange(len(found.classes) + 1))
        for number, way in enumerate(found.classes):
            mine = order[ends[number] : ends[number + 1]]
            if len(mine) > _PORTION:  # by destination, for the sake of routers that search
                mine = mine[np.argsort(found.dst[mine], kind="stable")]
            for first in range(0, len(mine), _PORTION):
                self._portion(way, mine[first : first + _PORTION], found, latency, entries)
        return (*pack(entries, len(latency)), thrifty(latency))

    def _portion(
        self,
        way: Way,
        mine: Ints,
        found: Distinct,
        latency: NDArray[np.float64],
        entries: list[Entries],
    ) -> None:
        """Add the entries of some ways of one class."""
        src, dst = found.src[mine], found.dst[mine]
        wires = self._wires(way, mine, src, dst, latency)
        weight = wires[2] * (way.wire * way.multiplicity)
        drawn = self.topology.links.resource[wires[1]]
        entries.append((wires[0], *self._folded_wires(way, drawn, weight)))
        entries.extend(self._use(way, use, mine, src, dst, wires) for use in way.uses)
        window = self.topology.router.window
        if way.kind == TRANSFER and window < np.inf:
            trips = 2 * np.maximum(latency[mine], 1e-12)
            entries.append(self._windows(way, mine, (src, dst), wires, window / trips))
        if way.kind == TRANSFER and self.topology.router.incast > 0:
            entries.extend(self._senders(wires))

    def _senders(self, wires: Entries) -> Iterator[Entries]:
        """The NIC that ways come from, on the link to each that they come to."""
        owner, link, _ = wires
        links, is_nic = self.topology.links, self.topology.node_kinds == NODE_KINDS.index("nic")
        cable = links.kind[link] == LINK_KINDS.index("nic")
        leaves, enters = (cable & is_nic[end[link]] for end in (links.tail, links.head))
        sender = np.zeros(int(owner.max(initial=0)) + 1, np.int64)
        sender[owner[leaves][::-1]] = links.tail[link[leaves]][::-1]
        into = links.resource[link[enters]]
        for one in different(into).tolist():
            mine = owner[enters][into == one]
            numbers = self.resources.numbers(SENDER, one, sender[mine])
            yield mine, numbers.astype(np.int32), np.ones(len(mine))

    def _windows(
        self, way: Way, mine: Ints, ends: tuple[Ints, Ints], wires: Entries, rate: Floats
    ) -> Entries:
        """Of connections that are slower for them than their NICs; equal channels have theirs."""
        owner, link, part = wires
        carried = np.zeros(int(mine.max(initial=0)) + 1)
        nic = self.topology.links.kind[link] == LINK_KINDS.index("nic")
        np.maximum.at(carried, owner[nic], (self.topology.links.bandwidth[link] / part)[nic])
        slow = np.flatnonzero(rate < carried[mine])
        pairs = zip(*(self.device[end[slow]].tolist() for end in ends), strict=True)
        links = [
            self.resources.window((*pair, way.channel, way.route), one)
            for pair, one in zip(pairs, rate[slow].tolist(), strict=True)
        ]
        return mine[slow], np.array(links, np.int32), np.full(len(slow), way.wire)

    def _wires(
        self, way: Way, mine: Ints, src: Ints, dst: Ints, latency: NDArray[np.float64]
    ) -> Entries:
        """The links that data crosses, in its direction: what they draw on tells no direction."""
        if way.kind in (MULTICAST, SWITCH_REDUCE):
            return self._trees(way, mine, src, dst, latency)
        if way.kind != TRANSFER:
            none = np.zeros(0, np.int32)
            return none, none, np.zeros(0)
        channel = np.full(len(mine), way.channel, np.int32)
        routes = self.topology.routes(self.device[src], self.device[dst], channel, way.route)
        latency[mine] = routes.latency
        return np.repeat(mine, np.diff(routes.ptr)), routes.link, routes.fraction

    def _trees(
        self, way: Way, mine: Ints, src: Ints, dst: Ints, latency: NDArray[np.float64]
    ) -> Entries:
        """Each link of the tree between a GPU and a group carries the data once."""
        down = way.kind == MULTICAST
        root, group = (src, dst) if down else (dst, src)
        if way.route.partition(":")[0] in (ONE_WAY, BOTH_WAYS):
            return self._fabric_trees(way, mine, root, group, latency)
        place, member = spelled_out(self.schedule.groups, group)
        others = np.flatnonzero(member != root[place])
        alone = np.bincount(place[others], minlength=len(mine)) == 0
        if alone.any():
            where = int(root[alone][0])
            raise PlacementError(f"rank {where}: a group of its own needs no switch")
        near, far = root[place[others]], member[others].astype(np.int32)
        owner, links, delay = self._routes((near, far) if down else (far, near), way)
        slowest = np.zeros(len(mine))
        np.maximum.at(slowest, place[others], delay)
        latency[mine] = slowest
        # The switch gives to, or takes from, a root in the group like any other member.
        within, first = np.unique(place[others], return_index=True)
        inside = np.isin(within, place[member == root[place]])
        within, near, far = within[inside], near[first[inside]], far[first[inside]]
        back_owner, back, _ = self._routes((far, near) if down else (near, far), way)
        ends = np.append(back_owner, -1) if down else np.append(-1, back_owner)
        at = np.flatnonzero(np.diff(ends))  # the last link down, the first one up
        keys = np.concatenate([place[others][owner], within[back_owner[at]]]).astype(np.int64)
        return self._once(mine, keys, np.concatenate([links, back[at]]))

    def _once(self, mine: Ints, keys: NDArray[np.int64], links: Ints) -> Entries:
        """Each link of each tree; a capacity that a tree crosses both ways is drawn on once."""
        wires = len(self.topology.links)
        found = different(keys * wires + links)
        tree, link = found // wires, (found % wires).astype(np.int32)
        drawn, weight = tree * wires + self.topology.links.resource[link], np.ones(len(found))
        if (drawn != found).any():  # half duplex
            _, place, ways = np.unique(drawn, return_inverse=True, return_counts=True)
            weight /= ways[place]
        return mine[tree], link, weight

    def _fabric_trees(
        self, way: Way, mine: Ints, root: Ints, group: Ints, latency: NDArray[np.float64]
    ) -> Entries:
        """The same through switches of the fabric."""
        none = np.zeros(0, np.int32)
        parts: list[Entries] = [(none, none, np.zeros(0))]  # no row may be of this class
        for number, rank, members in zip(mine, root, group, strict=True):
            devices = self.device[np.array(self.schedule.groups[members])]
            kind, _, inner = way.route.partition(":")
            links, delay = self.fabric.links(
                int(self.device[rank]),
                (devices, inner, way.channel),
                down=way.kind == MULTICAST,
                all_at_once=kind == BOTH_WAYS,
            )
            latency[number] = delay
            parts.append((np.full(len(links), number, np.int32), links, np.ones(len(links))))
        return tuple(np.concatenate(column) for column in zip(*parts, strict=True))  # type: ignore[return-value]

    def _routes(self, ends: tuple[Ints, Ints], way: Way) -> tuple[Ints, Ints, NDArray[np.float64]]:
        """The pair and the link of every hop on the way between some pairs; the latency of each."""
        src, dst = ends
        channel = np.full(len(src), way.channel, np.int32)
        routes = self.topology.routes(self.device[src], self.device[dst], channel, way.route)
        owner = np.repeat(np.arange(len(src), dtype=np.int32), np.diff(routes.ptr))
        return owner, routes.link, routes.latency

    def _use(self, way: Way, use: Use, mine: Ints, src: Ints, dst: Ints, wires: Entries) -> Entries:
        rank = src if use.end == "src" or way.kind not in (TRANSFER, SWITCH_REDUCE) else dst
        if use.resource == "nic_msg":
            who, owners = self._nics(use, wires)
        elif use.resource == "proxy" and use.end == "src" and way.kind == TRANSFER:
            who, owners = mine, self._last_gpus(mine, self.device[rank], wires)
        elif use.resource == "host":
            who, owners = mine, self.process[rank].astype(np.int64)
        else:
            who, owners = mine, self.device[rank].astype(np.int64)
        # One of `multiplicity` equal channels has an SM of its own; everything else they share.
        times = 1 if use.resource == "sm" else way.multiplicity
        weight = np.full(len(owners), use.weight * times)
        if self.schedule.fold is None:
            links = self.resources.numbers(use.resource, use.index, owners).astype(np.int32)
            return who, links, weight
        return who, *self._folded_use(self.schedule.fold, way, use, owners, weight)

    def _folded_wires(
        self, way: Way, links: Ints, weight: NDArray[np.float64]
    ) -> tuple[Ints, NDArray[np.float64]]:
        """On the wire that stands for each: what all copies together draw on one such wire."""
        fold = self.schedule.fold
        if fold is None:
            return links, thrifty(weight)
        wires = fold.wires
        return wires.first[links], weight * (way.copies / wires.count[links])

    def _folded_use(
        self, fold: Fold, way: Way, use: Use, owners: NDArray[np.int64], weight: NDArray[np.float64]
    ) -> tuple[Ints, NDArray[np.float64]]:
        """The same for other resources; a rank's SM of a channel may be that of another channel."""
        if use.resource == "sm":
            blocks, ranks = fold.blocks[use.index], self._rank_of[owners]
            first = blocks.first[ranks]
            links = np.empty(len(owners), np.int32)
            for channel in different(first // self.schedule.ranks).tolist():
                mine = first // self.schedule.ranks == channel
                here = self.device[first[mine] % self.schedule.ranks].astype(np.int64)
                links[mine] = self.resources.numbers("sm", channel, here)
            return links, weight * (way.copies / blocks.count[ranks])
        if use.resource == "nic_msg":
            leads, count = fold.nodes.first[owners].astype(np.int64), fold.nodes.count[owners]
        else:
            place = self._rank_of[owners]
            leads = self.device[fold.ranks.first[place]].astype(np.int64)
            count = fold.ranks.count[place]
        links = self.resources.numbers(use.resource, use.index, leads).astype(np.int32)
        return links, weight * (way.copies / count)

    @cached_property
    def _rank_of(self) -> NDArray[np.int32]:
        ranks = np.full(len(self.topology), -1, np.int32)
        ranks[self.device] = np.arange(len(self.device))
        return ranks

    def _last_gpus(self, mine: Ints, own: Ints, wires: Entries) -> NDArray[np.int64]:
        """The GPU from which each way's data leaves its host: a relay (PXN), or the sender."""
        owner, link, _ = wires
        device = np.full(len(self.topology.node_kinds), -1, np.int64)
        device[self.topology.gpu_nodes] = np.arange(len(self.topology))
        at = device[self.topology.links.tail[link]]
        ways, last = np.unique(owner[at >= 0][::-1], return_index=True)
        found = own.astype(np.int64)
        place = np.searchsorted(mine, ways, sorter=np.argsort(mine))
        found[np.argsort(mine)[place]] = at[at >= 0][::-1][last]
        return found

    def _nics(self, use: Use, wires: Entries) -> tuple[Ints, NDArray[np.int64]]:
        is_nic = self.topology.node_kinds == NODE_KINDS.index("nic")
        owner, link, _ = wires
        at = self.topology.links.head if use.end == "src" else self.topology.links.tail
        on_nic = is_nic[at[link]]
        ways, nics = owner[on_nic], at[link[on_nic]].astype(np.int64)
        if use.end == "dst":
            ways, nics = ways[::-1], nics[::-1]
        who, place = np.unique(ways, return_index=True)
        return who, nics[place]
