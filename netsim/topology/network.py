"""Paths between NIC ports over any graph of switches, and which of them a connection takes.

Ends are numbered: ports of NICs first, then switches. Every cable takes two links, one from its
first end and one back: 2c and 2c + 1. Paths follow equal-cost next links, found for all
destinations of a switch at once; fabrics say what the graph is, never what its paths are."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import chain
from math import inf, prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from netsim.base.values import dataclass
from netsim.topology.graph import Floats, Ints, Longs, TopologyError

Paths = tuple[Ints, Floats]  # links padded with -1, and the part of the bytes on each


@dataclass(frozen=True, slots=True)
class Ports:
    """NIC ports of a fabric: its host, rail, bytes/s, and the host of the job they are of."""

    host: Ints
    rail: Ints
    rate: Floats
    owner: Ints

    def __len__(self) -> int:
        return len(self.host)


@dataclass(frozen=True, slots=True)
class Terms:
    """What all fabrics take: rate of cables between switches (bytes/s), latency of one switch hop
    and of entering a NIC (seconds), the usable part of every line rate, and at most how much of it
    a NIC carries."""

    link: float
    hop: float
    nic: float
    usable: float
    nic_cap: float

    def port(self, rate: Floats) -> Floats:
        """What NIC ports of a line rate carry, bytes/s."""
        return np.minimum(rate * self.usable, self.nic_cap)


@dataclass(frozen=True, slots=True)
class Fabric:
    """A fabric as columns; `tail` and `head` number ports, then switches from `ports` on. `tiers`
    names the levels of switches from the NICs up, `level` is that of every switch. `groups` is the
    group of every switch (-1: none), `grid` the extents of routers on a torus. `reduces`: its
    switches add up data on its way (SHARP). `note` is what was assumed."""

    kind: str
    terms: Terms
    ports: int
    switches: tuple[str, ...]
    tiers: tuple[str, ...]
    level: Ints
    tail: Ints
    head: Ints
    bandwidth: Floats
    latency: Floats
    groups: Ints | None = None
    grid: tuple[int, ...] = ()
    reduces: bool = False
    note: str = ""


@dataclass(frozen=True, slots=True)
class Cables:
    """Cables between two switches each, by number of the switch."""

    low: Ints
    high: Ints

    def __len__(self) -> int:
        return len(self.low)


def fabric(
    kind: str,
    tiers: tuple[tuple[str, tuple[str, ...]], ...],
    ports: Ports,
    terms: Terms,
    leaf: Ints,
    cables: Cables,
    **more: Any,
) -> Fabric:
    """Port p is on switch `leaf[p]` (given twice: NICs of two ports, each of half their rate)."""
    count, planes = len(ports), len(leaf) // max(1, len(ports))
    low = np.r_[np.tile(np.arange(count), planes), count + cables.low].astype(np.int32)
    high = np.r_[count + leaf, count + cables.high].astype(np.int32)
    access = np.tile(terms.port(ports.rate) / max(1, planes), planes)
    rate = np.r_[access, [terms.link * terms.usable] * len(cables)]
    down = np.where(np.arange(len(low)) < len(leaf), terms.nic, terms.hop)
    levels, names = zip(*tiers, strict=True)
    level = np.repeat(np.arange(len(tiers), dtype=np.int32), [len(some) for some in names])
    tail, head, latency = (
        np.stack(pair, axis=1).ravel()
        for pair in ((low, high), (high, low), (np.full(len(low), terms.hop), down))
    )
    columns = (level, tail, head, np.repeat(rate, 2), latency)
    return Fabric(kind, terms, count, tuple(chain(*names)), levels, *columns, **more)


def _ends_present(fabric: Fabric, present: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Mask over the ends of a fabric, ports first: all switches, and the ports that are present."""
    return np.append(present, np.ones(len(fabric.switches), bool))


def links_of_ports(fabric: Fabric, present: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Which links of a fabric are left when only some of its ports are present."""
    ends = _ends_present(fabric, present)
    left: NDArray[np.bool_] = ends[fabric.tail] & ends[fabric.head]
    return left


def without_ports(fabric: Fabric, present: NDArray[np.bool_]) -> Fabric:
    """A fabric as it was built, without the cables of ports that are not present any more: of dead
    NICs. Its switches and the cables between them stay."""
    left = links_of_ports(fabric, present)
    if left.all():
        return fabric
    number = (np.cumsum(_ends_present(fabric, present)) - 1).astype(np.int32)
    return replace(
        fabric,
        ports=int(present.sum()),
        tail=number[fabric.tail[left]],
        head=number[fabric.head[left]],
        bandwidth=fabric.bandwidth[left],
        latency=fabric.latency[left],
    )


def found_tiers(made: Fabric) -> Fabric:
    """The fabric with tiers by how far switches are from NICs, named as their switches are."""
    level = tiers_of_switches(made) - 1
    names = []
    for tier in range(int(level.max(initial=-1)) + 1):
        mine = [made.switches[n].rstrip("0123456789") for n in np.flatnonzero(level == tier)]
        alike = mine[0].strip("-_.") if len(set(mine)) == 1 else ""
        names.append(alike if alike and alike not in names else f"tier {tier + 1}")
    return replace(made, tiers=tuple(names), level=level)


def columns(*parts: Ints) -> Ints:
    """Links of many paths, one column a hop."""
    return np.stack(parts, axis=1).astype(np.int32)


def numbered(name: str, count: int) -> tuple[str, ...]:
    """`name0`, `name1`, …"""
    return tuple(f"{name}{number}" for number in range(count))


FAR = np.int16(2**15 - 1)  # as many links as lead nowhere
_KEPT = 1 << 25  # distances that are kept; beyond, those to the targets asked for are found anew
_TOGETHER = 1 << 11  # targets searched for together


@dataclass(frozen=True, slots=True)
class Candidates:
    """The next links of each of some (switch, target): `link[ptr[i]:ptr[i + 1]]`, the parallel
    ones to a neighbour side by side; `first` says where another neighbour begins."""

    ptr: Longs
    link: Ints
    head: Ints
    first: NDArray[np.bool_]

    @property
    def count(self) -> Longs:
        """How many there are of each."""
        return np.diff(self.ptr)

    @property
    def neighbours(self) -> Longs:
        """How many neighbours they lead to."""
        return np.diff(np.searchsorted(np.flatnonzero(self.first), self.ptr))

    def place(self, pair: Longs, neighbour: Ints, lane: Ints) -> Longs:
        """Where the link of a pair is by number of the neighbour and among those to it (both are
        taken modulo what there is)."""
        starts = np.flatnonzero(self.first)
        size = np.diff(np.append(starts, len(self.link)))
        begin = np.searchsorted(starts, self.ptr)
        turn = begin[pair] + neighbour % np.diff(begin)[pair]
        found: Longs = starts[turn] + lane % size[turn]
        return found


class NextLinks:
    """Shortest paths between switches by number of links, over those with a number in `link`. Links
    of a switch stand in the order of its neighbours: by their first cable, forward before back,
    which on a torus turns one dimension after the other."""

    def __init__(
        self, switches: int, tail: Ints, head: Ints, link: Ints, targets: tuple[Longs, Ints]
    ) -> None:
        self.switches, self.targets = switches, targets
        order = np.lexsort((link, link & 1, head, tail))
        tail, head, link = tail[order], head[order], link[order]
        new = np.r_[True, (tail[1:] != tail[:-1]) | (head[1:] != head[:-1])][: len(link)]
        rank = ((link & 1).astype(np.int64) << 32 | link)[new][np.cumsum(new) - 1]
        order = np.lexsort((link, rank, tail))
        self.tail, self.head, self.link = tail[order], head[order], link[order]
        self.ptr = np.searchsorted(self.tail, np.arange(switches + 1))
        same = (self.tail[1:] == self.tail[:-1]) & (self.head[1:] == self.head[:-1])
        self.first = np.r_[True, ~same][: len(link)]
        size = len(targets[0]) - 1
        self._keeps = switches * size <= _KEPT
        self._distance = np.full((switches, size if self._keeps else 0), FAR)
        self._known = np.zeros(size, bool)

    def distance(self, node: Ints, target: Ints) -> NDArray[np.int16]:
        """Links from switches to targets; `FAR` where there is no way."""
        table, column = self._table(target)
        return table[node, column]

    def _table(self, target: Ints) -> tuple[NDArray[np.int16], Ints]:
        asked = np.flatnonzero(np.bincount(target, minlength=len(self._known)))
        if not self._keeps:
            column = np.zeros(len(self._known), np.int32)
            column[asked] = np.arange(len(asked))
            return self._search(asked), column[target]
        for first in range(0, len(asked), _TOGETHER):
            fresh = asked[first : first + _TOGETHER]
            fresh = fresh[~self._known[fresh]]
            if len(fresh):
                self._distance[:, fresh] = self._search(fresh)
                self._known[fresh] = True
        return self._distance, target

    def _search(self, asked: Longs) -> NDArray[np.int16]:
        """Breadth first from some targets at once: a bit for each says whom it has reached."""
        ptr, member = self.targets
        found = np.full((self.switches, len(asked)), FAR)
        seen = np.zeros((self.switches, -(-len(asked) // 64)), np.uint64)
        column, place = entries_of(ptr, asked)
        start = member[place]
        found[start, column] = 0
        bit = np.uint64(1) << (column & 63).astype(np.uint64)
        np.bitwise_or.at(seen, (start, column >> 6), bit)
        tail, head = self.tail[self.first], self.head[self.first]
        starts = np.flatnonzero(np.r_[True, tail[1:] != tail[:-1]][: len(tail)])
        level = 0
        while len(starts):
            level += 1
            fresh = np.bitwise_or.reduceat(seen[head], starts, axis=0) & ~seen[tail[starts]]
            if not fresh.any():
                break
            seen[tail[starts]] |= fresh
            bits = np.unpackbits(fresh.view(np.uint8), axis=1, bitorder="little")
            rows = found[tail[starts]]
            rows[bits[:, : len(asked)].view(bool)] = level
            found[tail[starts]] = rows
        return found

    def candidates(self, node: Ints, target: Ints) -> tuple[Candidates, Longs]:
        """The next links of the distinct (switch, target), and which of these each pair is."""
        key, pair = np.unique(
            node.astype(np.int64) * len(self._known) + target, return_inverse=True
        )
        here, goal = key // len(self._known), (key % len(self._known)).astype(np.int32)
        table, column = self._table(goal)
        who, slot = entries_of(self.ptr, here)
        near = table[here, column] - 1
        fits = table[self.head[slot], column[who]] == near[who]
        slot, who = slot[fits], who[fits]
        ptr = np.searchsorted(who, np.arange(len(key) + 1))
        first = np.r_[True, (who[1:] != who[:-1]) | self.first[slot[1:]]][: len(slot)]
        first[1:] |= self.head[slot[1:]] != self.head[slot[:-1]]
        return Candidates(ptr, self.link[slot], self.head[slot], first), pair.reshape(-1)


@dataclass(frozen=True)
class Network:
    """Ports and switches of a fabric, without the links that are `dead`."""

    fabric: Fabric
    dead: NDArray[np.bool_] | None = None

    @cached_property
    def access(self) -> tuple[tuple[Longs, Ints], tuple[Longs, Ints]]:
        """The links out of every port, and into it, as CSR."""
        made, ends = self.fabric, []
        for near in (made.tail, made.head):
            mine = np.flatnonzero((near < made.ports) & self.alive)
            mine = mine[np.argsort(near[mine], kind="stable")]
            ptr = np.searchsorted(near[mine], np.arange(made.ports + 1))
            ends.append((ptr, mine.astype(np.int32)))
        return ends[0], ends[1]

    @cached_property
    def alive(self) -> NDArray[np.bool_]:
        """The links that carry anything."""
        return np.ones(len(self.fabric.tail), bool) if self.dead is None else ~self.dead

    @cached_property
    def places(self) -> tuple[Ints, tuple[Longs, Ints]]:
        """The target of every port (ports on the same switches have one), and its switches."""
        made, (ptr, link) = self.fabric, self.access[1]
        size = np.diff(ptr)
        at = np.full((made.ports, max(1, int(size.max(initial=1)))), -1, np.int32)
        owner = np.repeat(np.arange(made.ports), size)
        at[owner, np.arange(len(link)) - ptr[owner]] = made.tail[link] - made.ports
        at = np.sort(np.where(at < 0, -1, at), axis=1)
        sets, place = np.unique(at, axis=0, return_inverse=True)
        inside = sets >= 0
        ends = np.r_[0, np.cumsum(inside.sum(axis=1))]
        return place.reshape(-1).astype(np.int32), (ends, sets[inside])

    @cached_property
    def core(self) -> Ints:
        """The links between switches."""
        made = self.fabric
        inner = np.minimum(made.tail, made.head) >= made.ports
        return np.flatnonzero(inner & self.alive).astype(np.int32)

    @cached_property
    def next(self) -> NextLinks:
        """Shortest paths to the switches of ports."""
        return self._links(self.core, self.places[1])

    def _links(self, link: Ints, targets: tuple[Longs, Ints]) -> NextLinks:
        made = self.fabric
        tail, head = made.tail[link] - made.ports, made.head[link] - made.ports
        return NextLinks(len(made.switches), tail, head, link, targets)

    @cached_property
    def _groups(self) -> tuple[Longs, Longs]:
        """The groups at both ends of the links between switches."""
        made = self.fabric
        assert made.groups is not None
        near, far = (made.groups[end[self.core] - made.ports] for end in (made.tail, made.head))
        return near.astype(np.int64), far.astype(np.int64)

    @cached_property
    def inside(self) -> NextLinks:
        """Shortest paths to every switch that stay in its group."""
        near, far = self._groups
        every = np.arange(len(self.fabric.switches) + 1)
        return self._links(self.core[near == far], (every, every[:-1].astype(np.int32)))

    @cached_property
    def between(self) -> tuple[Longs, Ints]:
        """The links from group to group, as CSR by (group, other group)."""
        near, far = self._groups
        count = _group_count(self.fabric)
        key = np.where((near != far) & (near >= 0) & (far >= 0), near * count + far, -1)
        order = np.argsort(key, kind="stable")
        order = order[key[order] >= 0]
        return np.searchsorted(key[order], np.arange(count * count + 1)), self.core[order]

    @cached_property
    def tier(self) -> Ints:
        """How far every switch is from NICs: 1 for those that have some."""
        return tiers_of_switches(self.fabric)

    @cached_property
    def rank(self) -> Ints:
        """The rank of the switches of every port among all with ports."""
        place, (ptr, switch) = self.places
        first = np.append(switch, 0)[np.minimum(ptr[:-1], len(switch))]
        return np.argsort(np.argsort(first, kind="stable"), kind="stable").astype(np.int32)[place]

    @cached_property
    def order(self) -> tuple[Ints, ...]:
        """By tier of the switch that chooses (0: the NIC), the number of every port: in its host's
        turn; its slot on its switches; then what tells apart those that come up to one switch,
        parallel cables first and then the rank of their switches. Taken modulo the ways up, that is
        what D-mod-k and subnet managers do: every port of a leaf has an uplink of its own, every
        leaf of a pod a core."""
        place, turn = self.places[0], np.argsort(self.places[0], kind="stable")
        slot = np.empty(len(place), np.int32)
        slot[turn] = np.arange(len(place)) - np.searchsorted(place[turn], place[turn])
        found, high = [np.arange(len(place), dtype=np.int32), slot], self.rank
        for tier in range(1, int(self.tier.max(initial=1))):
            near, wide = (max(1, most[tier]) for most in self.widths)
            lane, high = found[-1] % wide // near, high if tier == 1 else high // wide
            found.append((lane + wide // near * high).astype(np.int32))
        return tuple(found)

    @cached_property
    def widths(self) -> tuple[list[int], list[int]]:
        """The most neighbours above, and links to them, of a switch of each tier."""
        made, link, tier = self.fabric, self.core, self.tier
        tail, head = (end[link] - made.ports for end in (made.tail, made.head))
        up = tier[head] > tier[tail]
        pairs = np.unique(tail[up].astype(np.int64) * len(tier) + head[up]) // max(1, len(tier))
        most = []
        for starts in (pairs, tail[up]):
            count = np.bincount(starts, minlength=len(tier))
            wide = np.zeros(int(tier.max(initial=1)) + 2, np.int64)
            np.maximum.at(wide, tier, count)
            most.append(wide.tolist())
        return most[0], most[1]

    @cached_property
    def turns(self) -> tuple[int, ...]:
        """How many links a NIC, and a switch of each tier but the last, chooses from at most."""
        top, least = int(self.tier.max(initial=1)), 2 if len(self.core) else 1
        above = (max(least, width) for width in self.widths[1][1 : max(2, top)])
        return int(np.diff(self.access[0][0]).max(initial=1)), *above

    def leave(self, src: Ints, dst: Ints) -> tuple[Ints, Ints]:
        """The links out of every source (-1: no more), and how far on: -1 if straight there."""
        made, (ptr, link) = self.fabric, self.access[0]
        size = np.diff(ptr)[src]
        found = np.full((len(src), max(1, int(size.max(initial=1)))), -1, np.int32)
        apart = np.full(found.shape, FAR, np.int32)
        target = self.places[0][dst]
        for lane in range(found.shape[1]):
            some = np.flatnonzero(size > lane)
            found[some, lane] = link[ptr[src[some]] + lane]
            head = made.head[found[some, lane]] - made.ports
            inner = head >= 0
            apart[some[inner], lane] = self.next.distance(head[inner], target[some[inner]])
            apart[some[~inner & (head + made.ports == dst[some])], lane] = -1
        return found, apart

    def joined(self, src: Ints, dst: Ints) -> NDArray[np.bool_]:
        """Whether there is a way between each pair of ports."""
        return self.distance(src, dst) < FAR

    def distance(self, src: Ints, dst: Ints) -> Ints:
        """Switches between ports, less one; `FAR` where there is no way."""
        shortest: Ints = self.leave(src, dst)[1].min(axis=1)
        return shortest

    def arrival(self, switch: Ints, dst: Ints, number: NDArray[Any]) -> Ints:
        """The link from a switch to a port, by number where there are several."""
        link, fits = self.arrivals(switch, dst)
        return link[np.arange(len(dst)), chosen(fits, number)]

    def arrivals(self, switch: Ints, dst: Ints) -> tuple[Ints, NDArray[np.bool_]]:
        """The links into every port, and which of them are from a switch."""
        ptr, link = self.access[1]
        size = np.diff(ptr)[dst]
        lane = np.arange(max(1, int(size.max(initial=1))))
        slot = link[ptr[dst][:, None] + np.minimum(lane, size[:, None] - 1)]
        at = self.fabric.tail[slot] - self.fabric.ports
        return slot, (at == switch[:, None]) & (lane < size[:, None])


def tiers_of_switches(made: Fabric) -> Ints:
    """How far every switch is from NICs: 1 for those that have some."""
    tail, head = made.tail - made.ports, made.head - made.ports
    tier = np.zeros(len(made.switches), np.int32)
    tier[head[(tail < 0) & (head >= 0)]] = 1
    inner = (tail >= 0) & (head >= 0)
    tail, head, level = tail[inner], head[inner], 1
    while (near := (tier[tail] == level) & (tier[head] == 0)).any():
        level += 1
        tier[head[near]] = level
    return np.where(tier == 0, level, tier).astype(np.int32)


def chosen(fits: NDArray[np.bool_], number: NDArray[Any]) -> Longs:
    """Of those in a row that fit, the place of the one with a number, modulo how many they are."""
    count = np.maximum(fits.sum(axis=1), 1)
    turn = (number % count.astype(number.dtype)).astype(np.int64)
    found: Longs = (np.cumsum(fits, axis=1) > turn[:, None]).argmax(axis=1)
    return found


# Which of the equal-cost paths a connection takes: static, ecmp, spray, adaptive, minimal, valiant.
# A function of ports, channel and seed, so that a connection keeps its path. What a fault cuts off
# is spread over all that is left; paths over dead links are left out if another one exists.

MOST_WAYS = 64  # paths that a message chooses from with adaptive routing
_CELLS = 4_000_000  # cells of paths that are looked at together, to bound temporary memory
_FIRST, _LAST, _AGAIN = 62, 63, 64  # turns of a hash: at the ends, and around what is dead


@dataclass(frozen=True, slots=True)
class Policy:
    """How paths are chosen: `static` by destination, `ecmp` by hash, `spray` over all equally,
    `adaptive` by load when a message starts, `minimal` and `valiant` by hash among the links
    between groups. With hashes a connection has `qps` queue pairs, each with a hash of its own:
    they `split` every message, or messages take them in turn. `dead` marks links of the fabric that
    carry nothing. What has to arrive `in_order` is not sprayed. `window`: bytes that each
    connection (queue pair) may have under way. `incast`: see `Transport`."""

    routing: str
    seed: int = 0
    qps: int = 1
    split: bool = True
    dead: NDArray[np.bool_] | None = None
    in_order: bool = False
    window: float = inf
    incast: float = 0.0

    @property
    def hashed(self) -> bool:
        """Whether connections between the same ports part."""
        return self.routing in ("ecmp", "minimal", "valiant")


STEP = np.uint64(0x9E3779B97F4A7C15)
_MIX = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1))
_BLOCK = 1 << 15  # numbers mixed at a time: few enough for the processor's caches


def mixed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Numbers spread over all 64 bits: splitmix64."""
    result = values + STEP
    shifted = np.empty(min(len(result), _BLOCK), np.uint64)
    for first in range(0, len(result), _BLOCK):
        block = result[first : first + _BLOCK]
        for shift, factor in _MIX:
            np.right_shift(block, np.uint64(shift), out=shifted[: len(block)])
            block ^= shifted[: len(block)]
            block *= np.uint64(factor)
    return result


def mix(*values: NDArray[Any] | int) -> NDArray[np.uint64]:
    """A fixed integer hash of several columns."""
    state = np.zeros(1, np.uint64)
    for value in values:
        state = mixed(state + np.asarray(value).astype(np.uint64))
    return state


@dataclass(frozen=True, slots=True)
class _Spread:
    """Turns of static routes: by destination, see `Network.order`; so many `off` them, counted
    through those of the NIC, then of every tier."""

    usual: Network
    dst: Ints
    off: int = 0

    @property
    def _order(self) -> Ints:
        turns, order = self.usual.turns, np.stack(self.usual.order).astype(np.int32)
        off = np.unravel_index(self.off % prod(turns), turns, order="F")
        order[: len(turns)] += np.array(off, np.int32)[:, None]
        return order

    def number(self, rows: Longs, step: int) -> Longs:
        """Where there is no order: at the ends; and where the usual way is cut, so that what was on
        one cable, or on those to one neighbour, parts."""
        order, dst = self.usual.order, self.dst[rows]
        if step in (_FIRST, _LAST):
            ends: Longs = self._order[0][dst].astype(np.int64)
            return ends
        near, wide = (max(1, most[1]) for most in self.usual.widths)
        spread = order[1][dst] // near + self.usual.rank[dst] * (wide // near)
        return spread.astype(np.int64) + self.off

    def place(self, found: Candidates, pair: Longs, node: Ints, rows: Longs, step: int) -> Longs:
        """Up by the number of the tier; down by the same number among parallel cables, so that
        what went up apart comes down apart."""
        tier, order = self.usual.tier, self._order
        here, there = tier[node], tier[found.head[found.ptr[pair]]]
        up, dst = there >= here, self.dst[rows]
        neighbour = order[np.where(up, here, np.maximum(there - 1, 1)), dst]
        wide = np.maximum(np.array(self.usual.widths[0]), 1)
        share = np.where(up, found.neighbours[pair], wide[there])
        return found.place(pair, neighbour, order[np.where(up, here, there), dst] // share)


@dataclass(frozen=True, slots=True)
class _Hashed:
    """Turns of hashed paths: by connection, and anew at every switch."""

    key: NDArray[np.uint64]

    def number(self, rows: Longs, step: int) -> NDArray[np.uint64]:
        """The hash at a step."""
        return mix(self.key[rows], step) if step else self.key[rows]

    def place(self, found: Candidates, pair: Longs, node: Ints, rows: Longs, step: int) -> Longs:
        """Any of all next links."""
        turn = self.number(rows, step) % found.count[pair].astype(np.uint64)
        return found.ptr[pair] + turn.astype(np.int64)


Turns = _Spread | _Hashed


@dataclass(frozen=True)
class Selection:
    """The paths of one fabric under one policy."""

    fabric: Fabric
    policy: Policy

    @cached_property
    def usual(self) -> Network:
        """The network as it was built."""
        return Network(self.fabric)

    @cached_property
    def left(self) -> Network:
        """The network as faults leave it."""
        dead = self.policy.dead
        return self.usual if dead is None else Network(self.fabric, dead)

    @property
    def choices(self) -> int:
        """Paths that a message chooses from when it starts, at most."""
        adaptive = self.policy.routing == "adaptive"
        return min(MOST_WAYS, prod(self.usual.turns)) if adaptive else 1

    def paths(self, src: Ints, dst: Ints, channel: Ints, queue: int = -1) -> Paths:
        """Links between the switches of each pair of ports and the part of the bytes on each, over
        all queue pairs or one; with adaptive routing, one of the choices."""
        policy = self.policy
        if policy.routing == "spray":
            return self._over_what_is_left(
                src, dst, lambda now, rows: _evenly(now, src[rows], dst[rows])
            )
        parts = []
        queue_pairs: Iterable[int] = (queue,)
        if queue < 0:
            queue_pairs = range(policy.qps if policy.hashed else 1)
        for qp in queue_pairs:
            turns: Turns = _Spread(self.usual, dst, max(0, queue))
            if policy.hashed:
                turns = _Hashed(np.broadcast_to(mix(policy.seed, src, dst, channel, qp), len(src)))
            parts.append(self._one(src, dst, turns))
        hops = np.concatenate(parts, axis=1)
        return hops, np.full(hops.shape, 1 / len(parts))

    def _one(self, src: Ints, dst: Ints, turns: Turns) -> Ints:
        find = _over_groups if self.policy.routing in ("minimal", "valiant") else _shortest

        def over(now: Network, rows: Longs) -> Paths:
            hops = find(self, now, src[rows], dst[rows], turns, rows)
            return hops, np.ones(hops.shape)

        return self._over_what_is_left(src, dst, over)[0]

    def _over_what_is_left(
        self, src: Ints, dst: Ints, find: Callable[[Network, Longs], Paths]
    ) -> Paths:
        """Over the usual network where what faults leave does not join both ends."""
        whole = np.ones(len(src), bool)
        if self.left is not self.usual:
            whole = self.left.joined(src, dst)
        sides = (self.left, np.flatnonzero(whole)), (self.usual, np.flatnonzero(~whole))
        parts = [(rows, find(now, rows)) for now, rows in sides if len(rows)]
        return parts[0][1] if len(parts) == 1 else assembled(len(src), parts)


def _shortest(
    how: Selection, now: Network, src: Ints, dst: Ints, turns: Turns, rows: Longs
) -> Ints:
    """From switch to switch, every flow one link at a time."""
    made, target = how.fabric, now.places[0][dst]
    links, apart = now.leave(src, dst)
    near = apart.min(axis=1, initial=FAR)
    turn = chosen(apart == near[:, None], turns.number(rows, _FIRST))
    first = links[np.arange(len(src)), turn]
    here, legs, step = made.head[first] - made.ports, [first], 0
    away = np.flatnonzero(near > 0)
    while len(away):
        link = np.full(len(src), -1, np.int32)
        link[away] = _onward(how, now, here[away], dst[away], turns, rows[away], step)
        here = np.where(link >= 0, made.head[link] - made.ports, here)
        legs.append(link)
        away = away[now.next.distance(here[away], target[away]) > 0]
        step += 1
    last = np.full(len(src), -1, np.int32)
    ends = near >= 0
    last[ends] = now.arrival(here[ends], dst[ends], turns.number(rows[ends], _LAST))
    return columns(*legs, last)


def _onward(
    how: Selection, now: Network, node: Ints, dst: Ints, turns: Turns, rows: Longs, step: int
) -> Ints:
    """The next link of every flow: its usual one, or where that leads nowhere, any that does."""
    usual, link = how.usual, np.full(len(node), -1, np.int32)
    there = usual.places[0][dst]
    known = np.flatnonzero(usual.next.distance(node, there) > 0)
    found, pair = usual.next.candidates(node[known], there[known])
    link[known] = found.link[turns.place(found, pair, node[known], rows[known], step)]
    if now is usual:
        return link
    there = now.places[0][dst]
    near = now.next.distance(how.fabric.head[link] - how.fabric.ports, there)
    good = (link >= 0) & now.alive[link] & (near == now.next.distance(node, there) - 1)
    lost = np.flatnonzero(~good)
    found, pair = now.next.candidates(node[lost], there[lost])
    number = turns.number(rows[lost], step + _AGAIN)
    turn = number % found.count[pair].astype(number.dtype)
    link[lost] = found.link[found.ptr[pair] + turn.astype(np.int64)]
    return link


def _over_groups(
    how: Selection, now: Network, src: Ints, dst: Ints, turns: Turns, rows: Longs
) -> Ints:
    """Over any link between the groups of the ends; with Valiant by way of a third group."""
    made, count = how.fabric, len(src)
    assert made.groups is not None
    links, apart = now.leave(src, dst)
    turn = chosen(apart < FAR, turns.number(rows, _FIRST))
    first = links[np.arange(count), turn]
    here, legs = made.head[first] - made.ports, [first]
    ptr, switch = now.places[1]
    end = switch[ptr[now.places[0][dst]]]
    goals, step = [made.groups[end]], 0
    if how.policy.routing == "valiant":
        goals = [_between_groups(made, made.groups[here], goals[0], turns.number(rows, 61)), *goals]
    for goal in goals:
        link = _crossing(how, now, made.groups[here], goal, turns.number(rows, step))
        stop = np.where(link >= 0, made.tail[link] - made.ports, here)
        legs += [*_inside(now, here, stop, turns, rows, step), link]
        here = np.where(link >= 0, made.head[link] - made.ports, here)
        step += 16
    legs += _inside(now, here, end, turns, rows, step)
    return columns(*legs, now.arrival(end, dst, turns.number(rows, _LAST)))


def _group_count(made: Fabric) -> int:
    assert made.groups is not None
    return int(made.groups.max()) + 1


def _between_groups(made: Fabric, here: Ints, there: Ints, number: NDArray[Any]) -> Ints:
    """A third group for each pair that is apart, if there is one; else the other."""
    count = _group_count(made)
    low, high = np.minimum(here, there), np.maximum(here, there)
    via = (number % np.uint64(max(1, count - 2))).astype(np.int32)
    via = via + (via >= low)
    via = via + (via >= high)
    return np.where((here != there) & (count > 2), via, there).astype(np.int32)


def _crossing(how: Selection, now: Network, here: Ints, there: Ints, number: NDArray[Any]) -> Ints:
    """A link from group to group for each pair, -1 where they are the same."""
    apart = here != there
    key = here.astype(np.int64) * _group_count(how.fabric) + there
    link = np.full(len(here), -1, np.int32)
    for network in (now, how.usual):
        ptr, between = network.between
        size = np.diff(ptr)[key]
        some = apart & (link < 0) & (size > 0)
        turn = number[some] % size[some].astype(np.uint64)
        link[some] = between[ptr[key[some]] + turn.astype(np.int64)]
    return link


def _inside(
    now: Network, here: Ints, end: Ints, turns: Turns, rows: Longs, step: int
) -> list[Ints]:
    """The links on the way between switches of a group, one column a hop."""
    made, legs, here = now.fabric, [], here.copy()
    away = np.flatnonzero(here != end)
    while len(away):
        step += 1
        found, pair = now.inside.candidates(here[away], end[away])
        if not len(found.link):
            raise TopologyError("")
        link = np.full(len(here), -1, np.int32)
        link[away] = found.link[turns.place(found, pair, here[away], rows[away], step)]
        here[away] = made.head[link[away]] - made.ports
        legs.append(link)
        away = away[here[away] != end[away]]
    return legs


Entries = tuple[Longs, Ints, Floats]  # pair, link, part of the bytes


def _evenly(network: Network, src: Ints, dst: Ints) -> Paths:
    """The same over what a network has; some pairs at a time."""
    made, target = network.fabric, network.places[0][dst]
    links, apart = network.leave(src, dst)
    near = apart.min(axis=1, initial=FAR)
    row, lane = np.nonzero(apart == near[:, None])
    share = 1 / np.bincount(row, minlength=len(src))[row]
    first = links[row, lane]
    inner = np.flatnonzero(near[row] >= 0)
    start = made.head[first[inner]].astype(np.int64) - made.ports
    key, place = np.unique(start * made.ports + target[row[inner]], return_inverse=True)
    ends = (key // made.ports).astype(np.int32), (key % made.ports).astype(np.int32)
    (pair, link, part), (last, switch, rest) = _fanned(network, *ends)
    size, every = np.bincount(pair, minlength=len(key))[place.reshape(-1)], np.arange(len(key) + 1)
    if size.sum() > _CELLS and len(src) > 1:
        sides = np.array_split(np.arange(len(src)), 2)
        return assembled(
            len(src), [(side, _evenly(network, src[side], dst[side])) for side in sides]
        )
    mine, entry = entries_of(np.searchsorted(pair, every), place.reshape(-1))
    mine = inner[mine]
    whole: list[Entries] = [
        (row, first, share),
        (row[mine], link[entry], share[mine] * part[entry]),
    ]
    mine, entry = entries_of(np.searchsorted(last, every), place.reshape(-1))
    mine = inner[mine]
    slot, fits = network.arrivals(switch[entry], dst[row[mine]])
    at, lane = np.nonzero(fits)
    portion = (share[mine] * rest[entry] / np.maximum(fits.sum(axis=1), 1))[at]
    whole.append((row[mine[at]], slot[at, lane], portion))
    return _merged(len(src), whole)


def _fanned(network: Network, node: Ints, target: Ints) -> tuple[Entries, Entries]:
    """What passes over each link of switches on the way from one to a target, and ends where."""
    none = np.zeros(0, np.int64)
    pair, part = np.arange(len(node)), np.ones(len(node))
    out: list[Entries] = [(none, none.astype(np.int32), np.zeros(0))]
    ends = [(none, none.astype(np.int32), np.zeros(0))]
    while len(pair):
        there = network.next.distance(node, target[pair]) == 0
        ends.append((pair[there], node[there], part[there]))
        pair, node, part = pair[~there], node[~there], part[~there]
        found, which = network.next.candidates(node, target[pair])
        who, slot = entries_of(found.ptr, which)
        flow = (part / np.maximum(found.count[which], 1))[who]
        out.append((pair[who], found.link[slot], flow))
        key = pair[who] * network.next.switches + found.head[slot]
        key, place = np.unique(key, return_inverse=True)
        part = np.zeros(len(key))
        np.add.at(part, place.reshape(-1), flow)
        pair, node = key // network.next.switches, (key % network.next.switches).astype(np.int32)
    pairs, links, flows = (np.concatenate(column) for column in zip(*out, strict=True))
    turn = np.argsort(pairs, kind="stable")
    last, switch, rest = (np.concatenate(column) for column in zip(*ends, strict=True))
    end = np.argsort(last, kind="stable")
    return (pairs[turn], links[turn], flows[turn]), (last[end], switch[end], rest[end])


def entries_of(ptr: Longs, asked: NDArray[np.integer[Any]]) -> tuple[Longs, Longs]:
    """Every entry of each owner asked for, behind the number of the question; `ptr` says where the
    entries of every owner are."""
    size = ptr[asked + 1] - ptr[asked]
    who = np.repeat(np.arange(len(asked)), size)
    return who, np.arange(len(who)) - np.repeat(np.cumsum(size) - size, size) + ptr[asked][who]


def _merged(count: int, entries: list[Entries]) -> Paths:
    """Entries by row: each link once, in their order, with all that goes over it."""
    row, link, part = (np.concatenate(column) for column in zip(*entries, strict=True))
    links = int(link.max(initial=0)) + 1
    key, place = np.unique(row * links + link, return_inverse=True)
    total = np.bincount(place.reshape(-1), part, len(key))
    owner = key // links
    ptr = np.searchsorted(owner, np.arange(count + 1))
    hops = np.full((count, int(np.diff(ptr).max(initial=0))), -1, np.int32)
    share = np.zeros(hops.shape)
    at = np.arange(len(key)) - ptr[owner]
    hops[owner, at], share[owner, at] = key % links, total
    return hops, share


def assembled(count: int, parts: Sequence[tuple[Longs, Paths]]) -> Paths:
    """Paths of some rows each, as those of all."""
    width = max((hops.shape[1] for _, (hops, _) in parts), default=0)
    links, share = np.full((count, width), -1, np.int32), np.zeros((count, width))
    for rows, (hops, part) in parts:
        links[rows, : hops.shape[1]] = hops
        share[rows, : hops.shape[1]] = part
    return links, share
