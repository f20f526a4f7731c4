"""Paths between the NIC ports of a fabric, and which of them a connection takes.

A fabric has nodes: the ports of NICs are numbered first, then the switches. Cable c consists of two
directed links: link 2c from the cable's first end to its second, link 2c + 1 back. All paths are
shortest paths by number of links. They are computed with numpy for many pairs of ports at once. The
modules in `fabrics/` build the graph; this module finds all its paths.
"""

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

Paths = tuple[Ints, Floats]  # links padded with -1, and the fraction of the bytes on each


@dataclass(frozen=True, slots=True)
class Ports:
    """NIC ports of a fabric as columns: entry p of each array describes port p.

    Args:
        host: the host's position in the fabric.
        rail: number of the NIC in its host.
        rate: line rate in bytes per second.
        owner: number of the host in the job (`node3` is 3); differs from `host` if the fabric has
            more hosts than the job uses, or if the placement is not contiguous.
    """

    host: Ints
    rail: Ints
    rate: Floats
    owner: Ints

    def __len__(self) -> int:
        return len(self.host)

    @property
    def fastest_rate(self) -> float:
        """The line rate of the fastest port in bytes per second; 0 without ports."""
        return float(self.rate.max(initial=0.0))


@dataclass(frozen=True, slots=True)
class FabricTerms:
    """Rates and latencies that every kind of fabric needs.

    Args:
        link: line rate of cables between switches, bytes per second.
        hop: latency of a link that ends at a switch, seconds.
        nic: latency of a link that ends at a NIC, seconds.
        usable: fraction of every line rate that carries data.
        nic_cap: most bytes per second that a NIC carries, in each direction.
    """

    link: float
    hop: float
    nic: float
    usable: float
    nic_cap: float

    def port(self, rate: Floats) -> Floats:
        """Return the usable bytes per second of NIC ports whose line rates (bytes per second) are
        `rate`.
        """
        return np.minimum(rate * self.usable, self.nic_cap)


@dataclass(frozen=True, slots=True)
class Fabric:
    """A fabric as columns.

    Nodes are numbered: NIC ports from 0, then switches from `ports` on. Columns of links have one
    entry per directed link, columns of switches one per switch.

    Args:
        kind: kind of fabric, such as `rail-optimized`.
        terms: the rates and latencies it was built with.
        ports: number of NIC ports.
        switches: names of the switches.
        tiers: names of the levels of switches, from the NICs up.
        level: level of every switch, an index of `tiers`.
        tail: node that each link leaves.
        head: node that each link enters.
        bandwidth: usable bytes per second of each link.
        latency: seconds of each link.
        groups: group of every switch (-1: none); None if the fabric has no groups. Dragonflies and
            custom fabrics may have them.
        grid: number of routers in each dimension of a torus or ring; else empty.
        reduces: whether switches add up data on its way (SHARP).
        note: what was assumed, as a message for the user.
    """

    kind: str
    terms: FabricTerms
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
    """Cables between switches: cable c joins the switches with numbers `low[c]` and `high[c]`."""

    low: Ints
    high: Ints

    def __len__(self) -> int:
        return len(self.low)


def fabric(
    kind: str,
    tiers: tuple[tuple[str, tuple[str, ...]], ...],
    ports: Ports,
    terms: FabricTerms,
    leaf: Ints,
    cables: Cables,
    **columns_of_fabric: Any,
) -> Fabric:
    """Build a fabric from its switches and cables.

    Args:
        kind: kind of fabric.
        tiers: (name of the tier, names of its switches) from the NICs up; switches are numbered in
            this order.
        ports: the NIC ports.
        terms: rates and latencies of the links.
        leaf: number of the switch that each port is cabled to. A list of twice the length means
            NICs with two cables of half their rate each: first one cable of every port, then the
            other.
        cables: cables between switches.
        columns_of_fabric: further fields of `Fabric`.
    """
    count = len(ports)
    planes = len(leaf) // max(1, len(ports))
    low = np.r_[np.tile(np.arange(count), planes), count + cables.low].astype(np.int32)
    high = np.r_[count + leaf, count + cables.high].astype(np.int32)
    access = np.tile(terms.port(ports.rate) / max(1, planes), planes)
    rate = np.r_[access, [terms.link * terms.usable] * len(cables)]
    down = np.where(np.arange(len(low)) < len(leaf), terms.nic, terms.hop)
    levels, names = zip(*tiers, strict=True)
    level = np.repeat(
        np.arange(len(tiers), dtype=np.int32), [len(switch_names) for switch_names in names]
    )
    tail, head, latency = (
        np.stack(pair, axis=1).ravel()
        for pair in ((low, high), (high, low), (np.full(len(low), terms.hop), down))
    )
    columns = (level, tail, head, np.repeat(rate, 2), latency)
    return Fabric(kind, terms, count, tuple(chain(*names)), levels, *columns, **columns_of_fabric)


def _ends_present(fabric: Fabric, present: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return a mask over the nodes of a fabric (ports, then switches): the mask `present` over the
    ports, followed by True for every switch.
    """
    return np.append(present, np.ones(len(fabric.switches), bool))


def links_of_ports(fabric: Fabric, present: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return a mask over the links of a fabric: False if the link ends at a port for which
    `present`, a mask over the ports, is False.
    """
    ends = _ends_present(fabric, present)
    left: NDArray[np.bool_] = ends[fabric.tail] & ends[fabric.head]
    return left


def without_ports(fabric: Fabric, present: NDArray[np.bool_]) -> Fabric:
    """Return a fabric with only the ports for which the mask `present` is True. The other ports,
    those of dead NICs, are removed with their cables.

    The remaining ports are renumbered; all switches and the cables between them stay.
    """
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


def with_derived_tiers(fabric: Fabric) -> Fabric:
    """Return the fabric with the level of each switch derived from its distance to the nearest NIC.

    A tier is named by the prefix that the names of all its switches share (`leaf` of `leaf0`,
    `leaf1`), else `tier 1`, `tier 2`, …
    """
    level = tiers_of_switches(fabric) - 1
    names = []
    for tier in range(int(level.max(initial=-1)) + 1):
        prefixes = [fabric.switches[n].rstrip("0123456789") for n in np.flatnonzero(level == tier)]
        prefix = prefixes[0].strip("-_.") if len(set(prefixes)) == 1 else ""
        names.append(prefix if prefix and prefix not in names else f"tier {tier + 1}")
    return replace(fabric, tiers=tuple(names), level=level)


def stack_hops(*parts: Ints) -> Ints:
    """Stack arrays of links, one array per hop, to a table with a row per path and a column per
    hop.
    """
    return np.stack(parts, axis=1).astype(np.int32)


def numbered(name: str, count: int) -> tuple[str, ...]:
    """Return the names `name0`, `name1`, …"""
    return tuple(f"{name}{number}" for number in range(count))


FAR = np.int16(2**15 - 1)  # the distance if there is no path
_MAX_DISTANCES = 1 << 25  # distances that are stored; with more, each query computes its own
_SEARCH_BATCH = 1 << 11  # targets of one search


@dataclass(frozen=True, slots=True)
class Candidates:
    """For each queried (switch, target): the links of the switch that are first links of shortest
    paths to the target.

    Entry i is `link[ptr[i]:ptr[i + 1]]`. A neighbor is a switch at the other end of such a link;
    parallel links to one neighbor are side by side.

    Args:
        ptr: where the links of each (switch, target) begin.
        link: numbers of the links.
        head: switch that each link enters.
        first: True for the first link to each neighbor.
    """

    ptr: Longs
    link: Ints
    head: Ints
    first: NDArray[np.bool_]

    @property
    def count(self) -> Longs:
        """The number of links of each (switch, target)."""
        return np.diff(self.ptr)

    @property
    def neighbors(self) -> Longs:
        """The number of different neighbors that the links of each (switch, target) lead to."""
        return np.diff(np.searchsorted(np.flatnonzero(self.first), self.ptr))

    def place(self, pair: Longs, neighbor: Ints, parallel_link: Ints) -> Longs:
        """Return, for each entry, the position in `link` of one link to one neighbor.

        - `pair`: number of the queried (switch, target).
        - `neighbor`: number of the neighbor, modulo the number of neighbors of the pair.
        - `parallel_link`: number among the links to that neighbor, modulo their number.
        """
        starts = np.flatnonzero(self.first)
        size = np.diff(np.append(starts, len(self.link)))
        begin = np.searchsorted(starts, self.ptr)
        neighbor_number = begin[pair] + neighbor % np.diff(begin)[pair]
        position: Longs = starts[neighbor_number] + parallel_link % size[neighbor_number]
        return position


class NextLinks:
    """Shortest paths, by number of links, from all switches to targets over some of a fabric's
    links.

    A target is a set of switches: a path ends at the nearest of them.

    Args:
        switches: number of switches.
        tail: switch that each link leaves.
        head: switch that each link enters.
        link: numbers of the links in the fabric; only these links are used.
        targets: CSR: the switches of target t are `targets[1][targets[0][t]:targets[0][t + 1]]`.

    The links out of a switch are sorted by neighbor. A link with an even number leads from the
    first end of its cable to the second, one with an odd number back. Neighbors that are reached by
    even links come first, then the others; both are ordered by the lowest number of a link to them.
    Paths on a torus that always take the first link therefore correct one dimension after the
    other.
    """

    def __init__(
        self, switches: int, tail: Ints, head: Ints, link: Ints, targets: tuple[Longs, Ints]
    ) -> None:
        self.switches = switches
        self.targets = targets
        order = np.lexsort((link, link & 1, head, tail))
        tail = tail[order]
        head = head[order]
        link = link[order]
        new = np.r_[True, (tail[1:] != tail[:-1]) | (head[1:] != head[:-1])][: len(link)]
        rank = ((link & 1).astype(np.int64) << 32 | link)[new][np.cumsum(new) - 1]
        order = np.lexsort((link, rank, tail))
        self.tail = tail[order]
        self.head = head[order]
        self.link = link[order]
        self.ptr = np.searchsorted(self.tail, np.arange(switches + 1))
        same = (self.tail[1:] == self.tail[:-1]) & (self.head[1:] == self.head[:-1])
        self.first = np.r_[True, ~same][: len(link)]
        size = len(targets[0]) - 1
        self.keeps_distances = switches * size <= _MAX_DISTANCES
        self.distances = np.full((switches, size if self.keeps_distances else 0), FAR)
        self.has_distances = np.zeros(size, bool)

    def distance(self, node: Ints, target: Ints) -> NDArray[np.int16]:
        """Return the number of links from each switch `node[i]` to `target[i]`; `FAR` if there is
        no path.
        """
        table, column = self._table(target)
        return table[node, column]

    def _table(self, target: Ints) -> tuple[NDArray[np.int16], Ints]:
        """Return a table of distances (row: switch) and the column of each entry of `target`."""
        targets = np.flatnonzero(np.bincount(target, minlength=len(self.has_distances)))
        if not self.keeps_distances:
            column = np.zeros(len(self.has_distances), np.int32)
            column[targets] = np.arange(len(targets))
            return self._search(targets), column[target]
        for first in range(0, len(targets), _SEARCH_BATCH):
            new_targets = targets[first : first + _SEARCH_BATCH]
            new_targets = new_targets[~self.has_distances[new_targets]]
            if len(new_targets):
                self.distances[:, new_targets] = self._search(new_targets)
                self.has_distances[new_targets] = True
        return self.distances, target

    def _search(self, targets: Longs) -> NDArray[np.int16]:
        """Return the distance in links from every switch (row) to each of `targets` (column).

        Breadth-first from all targets at once: each switch has a bit string with one bit per
        target, set once the search from that target has reached the switch.
        """
        ptr, member = self.targets
        distances = np.full((self.switches, len(targets)), FAR)
        reached = np.zeros((self.switches, -(-len(targets) // 64)), np.uint64)
        column, place = entries_of(ptr, targets)
        start = member[place]
        distances[start, column] = 0
        bit = np.uint64(1) << (column & 63).astype(np.uint64)
        np.bitwise_or.at(reached, (start, column >> 6), bit)
        tail = self.tail[self.first]
        head = self.head[self.first]
        starts = np.flatnonzero(np.r_[True, tail[1:] != tail[:-1]][: len(tail)])
        level = 0
        while len(starts):
            level += 1
            newly_reached = (
                np.bitwise_or.reduceat(reached[head], starts, axis=0) & ~reached[tail[starts]]
            )
            if not newly_reached.any():
                break
            reached[tail[starts]] |= newly_reached
            bits = np.unpackbits(newly_reached.view(np.uint8), axis=1, bitorder="little")
            rows = distances[tail[starts]]
            rows[bits[:, : len(targets)].view(bool)] = level
            distances[tail[starts]] = rows
        return distances

    def candidates(self, node: Ints, target: Ints) -> tuple[Candidates, Longs]:
        """Return the first links of shortest paths from `node[i]` to `target[i]`.

        The Candidates have one entry for each distinct (switch, target); the second array says
        which entry belongs to each i.
        """
        key, pair = np.unique(
            node.astype(np.int64) * len(self.has_distances) + target, return_inverse=True
        )
        switches = key // len(self.has_distances)
        goals = (key % len(self.has_distances)).astype(np.int32)
        table, column = self._table(goals)
        pair_number, slot = entries_of(self.ptr, switches)
        next_distance = table[switches, column] - 1
        is_nearer = table[self.head[slot], column[pair_number]] == next_distance[pair_number]
        slot = slot[is_nearer]
        pair_number = pair_number[is_nearer]
        ptr = np.searchsorted(pair_number, np.arange(len(key) + 1))
        first = np.r_[True, (pair_number[1:] != pair_number[:-1]) | self.first[slot[1:]]][
            : len(slot)
        ]
        first[1:] |= self.head[slot[1:]] != self.head[slot[:-1]]
        return Candidates(ptr, self.link[slot], self.head[slot], first), pair.reshape(-1)


@dataclass(frozen=True)
class FabricNetwork:
    """The graph of a fabric for path searches, without the links in the mask `dead`.

    `rates` are the bytes per second of each link with permanent faults and overrides, by which
    sprayed packets are distributed; those of dead links are as built. None if packets are sprayed
    equally.
    """

    fabric: Fabric
    dead: NDArray[np.bool_] | None = None
    rates: Floats | None = None

    @cached_property
    def access(self) -> tuple[tuple[Longs, Ints], tuple[Longs, Ints]]:
        """The links out of every port, then the links into every port, each as CSR (ptr, links)."""
        made = self.fabric
        ends = []
        for port_end in (made.tail, made.head):
            port_links = np.flatnonzero((port_end < made.ports) & self.alive)
            port_links = port_links[np.argsort(port_end[port_links], kind="stable")]
            ptr = np.searchsorted(port_end[port_links], np.arange(made.ports + 1))
            ends.append((ptr, port_links.astype(np.int32)))
        return ends[0], ends[1]

    @cached_property
    def alive(self) -> NDArray[np.bool_]:
        """Mask over the links of the fabric: True if the link is not dead."""
        return np.ones(len(self.fabric.tail), bool) if self.dead is None else ~self.dead

    @cached_property
    def port_targets(self) -> tuple[Ints, tuple[Longs, Ints]]:
        """The number of each port's target, and the switches of every target in CSR form.

        The target of a port is the set of switches that it is cabled to (see NextLinks). Ports on
        the same switches share one target.
        """
        made = self.fabric
        (ptr, link) = self.access[1]
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
        """The numbers of the links between two switches that are not dead."""
        made = self.fabric
        inner = np.minimum(made.tail, made.head) >= made.ports
        return np.flatnonzero(inner & self.alive).astype(np.int32)

    @cached_property
    def next(self) -> NextLinks:
        """Shortest paths to the targets of all ports, that is, to the switches that they are cabled
        to.
        """
        return self._links(self.core, self.port_targets[1])

    def _links(self, link: Ints, targets: tuple[Longs, Ints]) -> NextLinks:
        made = self.fabric
        tail = made.tail[link] - made.ports
        head = made.head[link] - made.ports
        return NextLinks(len(made.switches), tail, head, link, targets)

    @cached_property
    def _groups(self) -> tuple[Longs, Longs]:
        """Two arrays with an entry for each link of `core`: the group of the switch that it leaves,
        and the group of the switch that it enters.
        """
        made = self.fabric
        assert made.groups is not None
        near, far = (made.groups[end[self.core] - made.ports] for end in (made.tail, made.head))
        return near.astype(np.int64), far.astype(np.int64)

    @cached_property
    def inside(self) -> NextLinks:
        """Shortest paths from switch to switch that do not leave the group of both. Target t is
        switch t.
        """
        near, far = self._groups
        every = np.arange(len(self.fabric.switches) + 1)
        return self._links(self.core[near == far], (every, every[:-1].astype(np.int32)))

    @cached_property
    def between(self) -> tuple[Longs, Ints]:
        """The links between groups in CSR form: entry `a * group count + b` has the links from a to
        b.
        """
        near, far = self._groups
        count = _group_count(self.fabric)
        key = np.where((near != far) & (near >= 0) & (far >= 0), near * count + far, -1)
        order = np.argsort(key, kind="stable")
        order = order[key[order] >= 0]
        return np.searchsorted(key[order], np.arange(count * count + 1)), self.core[order]

    @cached_property
    def tier(self) -> Ints:
        """The tier of every switch: 1 if a NIC is cabled to it, else 1 + the lowest tier next to
        it.
        """
        return tiers_of_switches(self.fabric)

    @cached_property
    def rank(self) -> Ints:
        """For each port, the position of its target among all targets when these are sorted by
        their first switch: the number of its leaf, if each port is on one leaf.
        """
        place, (ptr, switch) = self.port_targets
        first = np.append(switch, 0)[np.minimum(ptr[:-1], len(switch))]
        return np.argsort(np.argsort(first, kind="stable"), kind="stable").astype(np.int32)[place]

    @cached_property
    def port_numbers(self) -> tuple[Ints, ...]:
        """For each tier (0: NICs), an array with a number for every destination port.

        With static routing, a node of this tier sends data for port p upwards on its link number
        `port_numbers[tier][p]`, modulo the number of its links up. At the NIC the number is that of
        the port; at a leaf, the position of the port among the ports of its own leaf; further up,
        the parallel cable first and then the rank of the port's leaf. D-mod-k and subnet managers
        route this way: so each port of a leaf has an uplink of its own, and each leaf of a pod a
        core.
        """
        place = self.port_targets[0]
        turn = np.argsort(self.port_targets[0], kind="stable")
        slot = np.empty(len(place), np.int32)
        slot[turn] = np.arange(len(place)) - np.searchsorted(place[turn], place[turn])
        numbers = [np.arange(len(place), dtype=np.int32), slot]
        high = self.rank
        for tier in range(1, int(self.tier.max(initial=1))):
            near, wide = (max(1, most[tier]) for most in self.widths)
            parallel_link = numbers[-1] % wide // near
            high = high if tier == 1 else high // wide
            numbers.append((parallel_link + wide // near * high).astype(np.int32))
        return tuple(numbers)

    @cached_property
    def widths(self) -> tuple[list[int], list[int]]:
        """Two lists with an entry for each tier: the largest number of different neighbors in
        higher tiers that a switch of this tier has, and the largest number of links to them.
        """
        made = self.fabric
        link = self.core
        tier = self.tier
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
    def choice_counts(self) -> tuple[int, ...]:
        """How many links there are to choose from at each hop upwards, at most: the first entry is
        for a NIC, the others are for switches of tier 1, tier 2 and so on, without the highest
        tier.
        """
        top = int(self.tier.max(initial=1))
        least = 2 if len(self.core) else 1
        above = (max(least, width) for width in self.widths[1][1 : max(2, top)])
        return int(np.diff(self.access[0][0]).max(initial=1)), *above

    def leave(self, src: Ints, dst: Ints) -> tuple[Ints, Ints]:
        """Return the links out of port `src[i]`, and how far each of them is from the target of
        `dst[i]`.

        Both tables have a row per pair and a column per link of the port, padded with -1 and `FAR`.
        The distance is the number of links from the head of the link to a switch of the
        destination; -1 if the link leads straight to the destination port.
        """
        made = self.fabric
        (ptr, link) = self.access[0]
        size = np.diff(ptr)[src]
        links = np.full((len(src), max(1, int(size.max(initial=1)))), -1, np.int32)
        distances = np.full(links.shape, FAR, np.int32)
        target = self.port_targets[0][dst]
        for column in range(links.shape[1]):
            sources = np.flatnonzero(size > column)
            links[sources, column] = link[ptr[src[sources]] + column]
            head = made.head[links[sources, column]] - made.ports
            is_switch = head >= 0
            distances[sources[is_switch], column] = self.next.distance(
                head[is_switch], target[sources[is_switch]]
            )
            distances[sources[~is_switch & (head + made.ports == dst[sources])], column] = -1
        return links, distances

    def joined(self, src: Ints, dst: Ints) -> NDArray[np.bool_]:
        """Whether there is a path from port `src[i]` to port `dst[i]`."""
        return self.distance(src, dst) < FAR

    def distance(self, src: Ints, dst: Ints) -> Ints:
        """Return the number of switches on a shortest path between two ports, less one; `FAR` if
        there is no path.
        """
        shortest: Ints = self.leave(src, dst)[1].min(axis=1)
        return shortest

    def arrival(self, switch: Ints, dst: Ints, number: NDArray[Any]) -> Ints:
        """Return a link from `switch[i]` to port `dst[i]`; of several, number `number[i]` modulo
        their count.
        """
        link, fits = self.arrivals(switch, dst)
        return link[np.arange(len(dst)), nth_true(fits, number)]

    def arrivals(self, switch: Ints, dst: Ints) -> tuple[Ints, NDArray[np.bool_]]:
        """Return all links into port `dst[i]` (row i), and a mask of those that come from
        `switch[i]`.
        """
        ptr, link = self.access[1]
        size = np.diff(ptr)[dst]
        column = np.arange(max(1, int(size.max(initial=1))))
        slot = link[ptr[dst][:, None] + np.minimum(column, size[:, None] - 1)]
        at = self.fabric.tail[slot] - self.fabric.ports
        return slot, (at == switch[:, None]) & (column < size[:, None])


def tiers_of_switches(made: Fabric) -> Ints:
    """Return the tier of every switch: 1 if a NIC is cabled to it, else 1 + the lowest tier next to
    it.
    """
    tail = made.tail - made.ports
    head = made.head - made.ports
    tier = np.zeros(len(made.switches), np.int32)
    tier[head[(tail < 0) & (head >= 0)]] = 1
    inner = (tail >= 0) & (head >= 0)
    tail = tail[inner]
    head = head[inner]
    level = 1
    while (near := (tier[tail] == level) & (tier[head] == 0)).any():
        level += 1
        tier[head[near]] = level
    return np.where(tier == 0, level, tier).astype(np.int32)


def nth_true(fits: NDArray[np.bool_], number: NDArray[Any]) -> Longs:
    """In each row of the mask `fits`, return the column of the n-th True, n = `number` of the row
    modulo the count of True in the row.
    """
    count = np.maximum(fits.sum(axis=1), 1)
    wanted = (number % count.astype(number.dtype)).astype(np.int64)
    position: Longs = (np.cumsum(fits, axis=1) > wanted[:, None]).argmax(axis=1)
    return position


# Which of the shortest paths a connection takes, for each routing policy: static, ecmp, spray,
# adaptive, minimal, valiant. The choice depends on ports, channel and seed only, so a connection
# keeps its path. Where a dead link cuts paths, the flows on them are spread over the remaining
# paths.

MOST_WAYS = 64  # paths that a message chooses from with adaptive routing
_MAX_CELLS = 4_000_000  # cells of paths that are computed together, to bound temporary memory
# What is hashed in place of the number of the hop, for the link out of the source NIC and for the
# link into the destination NIC.
_FIRST_HOP = 62
_LAST_HOP = 63
_DETOUR = 64  # added to the step of a hash around a dead link
# Bytes per second in place of an infinite bandwidth, where packets are distributed by rates.
_FASTEST = 1e15


@dataclass(frozen=True, slots=True)
class Policy:
    """How a fabric chooses among equally short paths.

    Args:
        routing: `static` by destination, `ecmp` by hash, `spray` over all paths, `adaptive` by load
            when a message starts, `minimal` and `valiant` by hash among the links between groups.
        seed: seed of the hashes.
        qps: queue pairs of a connection, each with a hash of its own.
        split: whether each message is divided among all queue pairs; else successive messages use
            the queue pairs in turn.
        dead: mask over the fabric's links: True if the link carries nothing.
        bandwidth_ratio: permanent bandwidth of each of the fabric's links divided by its bandwidth
            as built: 1 also for dead links, above 1 if an override raises it. None if every live
            link has its bandwidth as built.
        in_order: whether packets must arrive in order; they are then not sprayed.
        window: bytes that each queue pair may have in flight.
        incast: see `Transport`.
    """

    routing: str
    seed: int = 0
    qps: int = 1
    split: bool = True
    dead: NDArray[np.bool_] | None = None
    bandwidth_ratio: Floats | None = None
    in_order: bool = False
    window: float = inf
    incast: float = 0.0

    @property
    def hashed(self) -> bool:
        """Whether a hash chooses the path, so that two connections between the same ports may take
        different paths.
        """
        return self.routing in ("ecmp", "minimal", "valiant")


STEP = np.uint64(0x9E3779B97F4A7C15)
_MIX = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1))
_BLOCK = 1 << 15  # numbers mixed at a time: few enough for the processor's caches


def mixed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Hash each number to 64 bits (splitmix64)."""
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
    """Hash several columns of integers (or single integers) row by row to one column of 64-bit
    numbers; the same on every machine.
    """
    state = np.zeros(1, np.uint64)
    for value in values:
        state = mixed(state + np.asarray(value).astype(np.uint64))
    return state


@dataclass(frozen=True, slots=True)
class _StaticChoices:
    """How static routes choose links, by destination port: see `FabricNetwork.port_numbers`.

    Args:
        usual: the network without dead links.
        dst: destination port of every flow.
        off: number of the alternative path with adaptive routing. Its mixed-radix digits are added
            to the numbers of the NIC and of each tier.
    """

    usual: FabricNetwork
    dst: Ints
    off: int = 0

    @property
    def _order(self) -> Ints:
        """`FabricNetwork.port_numbers` plus the digit of `off` that belongs to the NIC or tier."""
        counts = self.usual.choice_counts
        order = np.stack(self.usual.port_numbers).astype(np.int32)
        off = np.unravel_index(self.off % prod(counts), counts, order="F")
        order[: len(counts)] += np.array(off, np.int32)[:, None]
        return order

    def number(self, rows: Longs, step: int) -> Longs:
        """Return a number for each flow in `rows` that chooses its link (modulo the count of
        links).

        It is used for the first and last link of a path, and where dead links cut the static route.
        In the latter case, flows that shared one cable, or the cables to one neighbor, get
        different numbers, so that they spread over what remains.
        """
        order = self.usual.port_numbers
        dst = self.dst[rows]
        if step in (_FIRST_HOP, _LAST_HOP):
            ends: Longs = self._order[0][dst].astype(np.int64)
            return ends
        near, wide = (max(1, most[1]) for most in self.usual.widths)
        spread = order[1][dst] // near + self.usual.rank[dst] * (wide // near)
        return spread.astype(np.int64) + self.off

    def place(
        self, candidates: Candidates, pair: Longs, node: Ints, rows: Longs, step: int
    ) -> Longs:
        """Choose the next link of each flow; return its position in `candidates.link`.

        On the way up, the number of the destination port in `port_numbers` for this tier selects
        neighbor and parallel link. On the way down, the same number selects among parallel links
        only. So flows that went up over different cables come down over different cables.
        """
        tier = self.usual.tier
        order = self._order
        here = tier[node]
        there = tier[candidates.head[candidates.ptr[pair]]]
        up = there >= here
        dst = self.dst[rows]
        neighbor = order[np.where(up, here, np.maximum(there - 1, 1)), dst]
        wide = np.maximum(np.array(self.usual.widths[0]), 1)
        share = np.where(up, candidates.neighbors[pair], wide[there])
        return candidates.place(pair, neighbor, order[np.where(up, here, there), dst] // share)


@dataclass(frozen=True, slots=True)
class _HashedChoices:
    """How hashed routing chooses links: by a hash of the connection, independent at every switch.

    `key` is the hash of each flow's ports, channel, queue pair and the seed.
    """

    key: NDArray[np.uint64]

    def number(self, rows: Longs, step: int) -> NDArray[np.uint64]:
        """Return the hash of each flow in `rows` for a step of its path (step 0: its key)."""
        return mix(self.key[rows], step) if step else self.key[rows]

    def place(
        self, candidates: Candidates, pair: Longs, node: Ints, rows: Longs, step: int
    ) -> Longs:
        """Choose one of all candidates for each flow by its hash; return its position in
        `candidates.link`.
        """
        turn = self.number(rows, step) % candidates.count[pair].astype(np.uint64)
        return candidates.ptr[pair] + turn.astype(np.int64)


LinkChoices = _StaticChoices | _HashedChoices


@dataclass(frozen=True)
class Selection:
    """The paths that connections take through a fabric under a routing policy."""

    fabric: Fabric
    policy: Policy

    @cached_property
    def built(self) -> FabricNetwork:
        """The fabric as built, with its dead links."""
        return FabricNetwork(self.fabric, rates=self._rates)

    @cached_property
    def remaining(self) -> FabricNetwork:
        """The fabric without its dead links."""
        dead = self.policy.dead
        return self.built if dead is None else FabricNetwork(self.fabric, dead, self._rates)

    @cached_property
    def _rates(self) -> Floats | None:
        """The rates by which sprayed packets are distributed; None if every live link has its
        bandwidth as built.
        """
        ratio = self.policy.bandwidth_ratio
        return None if ratio is None else np.minimum(self.fabric.bandwidth * ratio, _FASTEST)

    @property
    def choices(self) -> int:
        """The number of alternative paths from which a message chooses when it starts: 1 unless
        routing is adaptive.
        """
        adaptive = self.policy.routing == "adaptive"
        return min(MOST_WAYS, prod(self.built.choice_counts)) if adaptive else 1

    def paths(self, src: Ints, dst: Ints, channel: Ints, queue: int = -1) -> Paths:
        """Return the links from port `src[i]` to port `dst[i]`, and the fraction of the bytes on
        each.

        Both tables have a row per pair; links are padded with -1.

        Args:
            src: source ports.
            dst: destination ports.
            channel: channel of each flow; part of the hash.
            queue: -1: all queue pairs of the connection, side by side in a row. Else the number of
                one queue pair or, with adaptive routing, of one of the `choices`.
        """
        policy = self.policy
        if policy.routing == "spray":
            return self._over_remaining_links(
                src, dst, lambda now, rows: _sprayed_paths(now, src[rows], dst[rows])
            )
        parts = []
        queue_pairs: Iterable[int] = (queue,)
        if queue < 0:
            queue_pairs = range(policy.qps if policy.hashed else 1)
        for qp in queue_pairs:
            choices: LinkChoices = _StaticChoices(self.built, dst, max(0, queue))
            if policy.hashed:
                choices = _HashedChoices(
                    np.broadcast_to(mix(policy.seed, src, dst, channel, qp), len(src))
                )
            parts.append(self._one_path(src, dst, choices))
        hops = np.concatenate(parts, axis=1)
        return hops, np.full(hops.shape, 1 / len(parts))

    def _one_path(self, src: Ints, dst: Ints, choices: LinkChoices) -> Ints:
        """Return one path for each pair, with the links that `choices` selects."""
        find = _over_groups if self.policy.routing in ("minimal", "valiant") else _shortest_paths

        def over(now: FabricNetwork, rows: Longs) -> Paths:
            hops = find(self, now, src[rows], dst[rows], choices, rows)
            return hops, np.ones(hops.shape)

        return self._over_remaining_links(src, dst, over)[0]

    def _over_remaining_links(
        self, src: Ints, dst: Ints, find: Callable[[FabricNetwork, Longs], Paths]
    ) -> Paths:
        """Find paths without dead links where such a path exists; elsewhere paths through the
        fabric as built.

        `find(network, rows)` returns the paths of some of the pairs.
        """
        is_joined = np.ones(len(src), bool)
        if self.remaining is not self.built:
            is_joined = self.remaining.joined(src, dst)
        sides = (
            (self.remaining, np.flatnonzero(is_joined)),
            (self.built, np.flatnonzero(~is_joined)),
        )
        parts = [(rows, find(now, rows)) for now, rows in sides if len(rows)]
        return parts[0][1] if len(parts) == 1 else merge_rows(len(src), parts)


def _shortest_paths(
    selection: Selection,
    network: FabricNetwork,
    src: Ints,
    dst: Ints,
    choices: LinkChoices,
    rows: Longs,
) -> Ints:
    """Return a shortest path for every flow: follow all flows from switch to switch at the same
    time. The result has a row of links for each flow, padded with -1.

    Args:
        selection: the fabric and its routing policy.
        network: the fabric for path searches, with or without its dead links.
        src: source port of each flow.
        dst: destination port of each flow.
        choices: chooses links where there are several.
        rows: numbers of the flows, for `choices`.
    """
    made = selection.fabric
    target = network.port_targets[0][dst]
    links, distances = network.leave(src, dst)
    near = distances.min(axis=1, initial=FAR)
    turn = nth_true(distances == near[:, None], choices.number(rows, _FIRST_HOP))
    first = links[np.arange(len(src)), turn]
    here = made.head[first] - made.ports
    hops = [first]
    step = 0
    unfinished = np.flatnonzero(near > 0)
    while len(unfinished):
        link = np.full(len(src), -1, np.int32)
        link[unfinished] = _next_links(
            selection, network, here[unfinished], dst[unfinished], choices, rows[unfinished], step
        )
        here = np.where(link >= 0, made.head[link] - made.ports, here)
        hops.append(link)
        unfinished = unfinished[network.next.distance(here[unfinished], target[unfinished]) > 0]
        step += 1
    last = np.full(len(src), -1, np.int32)
    ends = near >= 0
    last[ends] = network.arrival(here[ends], dst[ends], choices.number(rows[ends], _LAST_HOP))
    return stack_hops(*hops, last)


def _next_links(
    selection: Selection,
    network: FabricNetwork,
    node: Ints,
    dst: Ints,
    choices: LinkChoices,
    rows: Longs,
    step: int,
) -> Ints:
    """Return the next link of every flow at switch `node[i]`; -1 if it has arrived.

    It is the link that the flow takes in the fabric as built. If that link is dead or no longer on
    a shortest path, it is another link of `network`.
    """
    usual = selection.built
    link = np.full(len(node), -1, np.int32)
    there = usual.port_targets[0][dst]
    reachable = np.flatnonzero(usual.next.distance(node, there) > 0)
    candidates, pair = usual.next.candidates(node[reachable], there[reachable])
    link[reachable] = candidates.link[
        choices.place(candidates, pair, node[reachable], rows[reachable], step)
    ]
    if network is usual:
        return link
    there = network.port_targets[0][dst]
    near = network.next.distance(selection.fabric.head[link] - selection.fabric.ports, there)
    good = (link >= 0) & network.alive[link] & (near == network.next.distance(node, there) - 1)
    lost = np.flatnonzero(~good)
    candidates, pair = network.next.candidates(node[lost], there[lost])
    number = choices.number(rows[lost], step + _DETOUR)
    turn = number % candidates.count[pair].astype(number.dtype)
    link[lost] = candidates.link[candidates.ptr[pair] + turn.astype(np.int64)]
    return link


def _over_groups(
    selection: Selection,
    network: FabricNetwork,
    src: Ints,
    dst: Ints,
    choices: LinkChoices,
    rows: Longs,
) -> Ints:
    """Return the paths of flows in a fabric with groups: to a link into the destination's group,
    then to the destination. The result has a row of links for each flow, padded with -1.

    The link between the groups is chosen among all of them. With Valiant routing the path first
    goes to a third group.

    Args:
        selection: the fabric and its routing policy.
        network: the fabric for path searches, with or without its dead links.
        src: source port of each flow.
        dst: destination port of each flow.
        choices: chooses links where there are several.
        rows: numbers of the flows, for `choices`.
    """
    made = selection.fabric
    count = len(src)
    assert made.groups is not None
    links, distances = network.leave(src, dst)
    turn = nth_true(distances < FAR, choices.number(rows, _FIRST_HOP))
    first = links[np.arange(count), turn]
    here = made.head[first] - made.ports
    hops = [first]
    ptr, switch = network.port_targets[1]
    end = switch[ptr[network.port_targets[0][dst]]]
    goals = [made.groups[end]]
    step = 0
    if selection.policy.routing == "valiant":
        goals = [
            _between_groups(made, made.groups[here], goals[0], choices.number(rows, 61)),
            *goals,
        ]
    for goal in goals:
        link = _crossing(selection, network, made.groups[here], goal, choices.number(rows, step))
        stop = np.where(link >= 0, made.tail[link] - made.ports, here)
        hops += [*_inside(network, here, stop, choices, rows, step), link]
        here = np.where(link >= 0, made.head[link] - made.ports, here)
        step += 16
    hops += _inside(network, here, end, choices, rows, step)
    return stack_hops(*hops, network.arrival(end, dst, choices.number(rows, _LAST_HOP)))


def _group_count(made: Fabric) -> int:
    assert made.groups is not None
    return int(made.groups.max()) + 1


def _between_groups(made: Fabric, here: Ints, there: Ints, number: NDArray[Any]) -> Ints:
    """Return for each flow the group through which it makes a detour: a third group, chosen by
    `number[i]`, for a flow from group `here[i]` to group `there[i]`. It is `there[i]` itself if
    both are the same, or if there are only two groups.
    """
    count = _group_count(made)
    low = np.minimum(here, there)
    high = np.maximum(here, there)
    via = (number % np.uint64(max(1, count - 2))).astype(np.int32)
    via = via + (via >= low)
    via = via + (via >= high)
    return np.where((here != there) & (count > 2), via, there).astype(np.int32)


def _crossing(
    selection: Selection, network_left: FabricNetwork, here: Ints, there: Ints, number: NDArray[Any]
) -> Ints:
    """Return a link from group `here[i]` to group `there[i]`, chosen by `number[i]`; -1 if both are
    the same.

    `network_left` is the fabric without its dead links. If all links between two groups are dead,
    one of them is returned nevertheless.
    """
    differs = here != there
    key = here.astype(np.int64) * _group_count(selection.fabric) + there
    link = np.full(len(here), -1, np.int32)
    for network in (network_left, selection.built):
        ptr, between = network.between
        size = np.diff(ptr)[key]
        open_pairs = differs & (link < 0) & (size > 0)
        turn = number[open_pairs] % size[open_pairs].astype(np.uint64)
        link[open_pairs] = between[ptr[key[open_pairs]] + turn.astype(np.int64)]
    return link


def _inside(
    network: FabricNetwork, here: Ints, end: Ints, choices: LinkChoices, rows: Longs, step: int
) -> list[Ints]:
    """Return the links from switch `here[i]` to `end[i]` inside their group: a list with one array
    per hop.

    Raises a TopologyError if dead links cut a switch off from the rest of its group.
    """
    made = network.fabric
    hops = []
    here = here.copy()
    unfinished = np.flatnonzero(here != end)
    while len(unfinished):
        step += 1
        candidates, pair = network.inside.candidates(here[unfinished], end[unfinished])
        cut_off = unfinished[candidates.count[pair] == 0]
        if len(cut_off):
            first = made.switches[here[cut_off[0]]]
            last = made.switches[end[cut_off[0]]]
            raise TopologyError(
                f"dead links leave no way from '{first}' to '{last}' inside their group, which "
                "routing minimal and valiant need; take static, ecmp, spray or adaptive"
            )
        link = np.full(len(here), -1, np.int32)
        link[unfinished] = candidates.link[
            choices.place(candidates, pair, here[unfinished], rows[unfinished], step)
        ]
        here[unfinished] = made.head[link[unfinished]] - made.ports
        hops.append(link)
        unfinished = unfinished[here[unfinished] != end[unfinished]]
    return hops


Entries = tuple[Longs, Ints, Floats]  # pair, link, fraction of the bytes


def _sprayed_paths(network: FabricNetwork, src: Ints, dst: Ints) -> Paths:
    """Return paths that spread the bytes of each pair over all shortest paths.

    At every switch the bytes divide among the links of shortest paths: equally or, if the network
    has `rates`, in proportion to what each of these links and the paths behind it can carry
    (`path_widths`). The NIC's first links also count what the last links into the destination can
    carry. If the table of the result is large, it is made in halves to bound temporary memory.
    """
    made = network.fabric
    target = network.port_targets[0][dst]
    links, distances = network.leave(src, dst)
    near = distances.min(axis=1, initial=FAR)
    row, column = np.nonzero(distances == near[:, None])
    first = links[row, column]
    inner = np.flatnonzero(near[row] >= 0)
    start = made.head[first[inner]].astype(np.int64) - made.ports
    key, place = np.unique(start * made.ports + target[row[inner]], return_inverse=True)
    ends = (key // made.ports).astype(np.int32), (key % made.ports).astype(np.int32)
    widths = None if network.rates is None else path_widths(network, network.rates, *ends)
    (pair, link, part), (last, switch, rest) = _spread_over_links(network, *ends, widths)
    size = np.bincount(pair, minlength=len(key))[place.reshape(-1)]
    every = np.arange(len(key) + 1)
    if size.sum() > _MAX_CELLS and len(src) > 1:
        sides = np.array_split(np.arange(len(src)), 2)
        return merge_rows(
            len(src), [(side, _sprayed_paths(network, src[side], dst[side])) for side in sides]
        )
    arrival, end_entry = entries_of(np.searchsorted(last, every), place.reshape(-1))
    slot, fits = network.arrivals(switch[end_entry], dst[row[inner[arrival]]])
    last_rates = np.where(fits, 1.0 if widths is None else widths.rates[slot], 0.0)

    width = np.ones(len(first))
    if widths is not None:
        into_port = np.bincount(arrival, last_rates.sum(axis=1), len(inner))
        behind = np.full(len(first), np.inf)
        behind[inner] = np.minimum(widths.between(*ends)[place.reshape(-1)], into_port)
        neighbor = np.unique(row * len(made.tail) + made.head[first], return_inverse=True)[1]
        width = _divided_width(widths.rates[first], neighbor.reshape(-1), behind)
    share = width / np.bincount(row, width, len(src))[row]

    start_number, entry = entries_of(np.searchsorted(pair, every), place.reshape(-1))
    start_number = inner[start_number]
    arriving = share[inner[arrival]] * rest[end_entry]
    at, column = np.nonzero(fits)
    portion = arriving[at] * last_rates[at, column] / last_rates.sum(axis=1)[at]
    entries_of_paths: list[Entries] = [
        (row, first, share),
        (row[start_number], link[entry], share[start_number] * part[entry]),
        (row[inner[arrival[at]]], slot[at, column], portion),
    ]
    return _merged_paths(len(src), entries_of_paths)


@dataclass(frozen=True, slots=True)
class PathWidths:
    """What all shortest paths from a switch to a target can carry together, in bytes per second.

    It is an upper bound: where paths by way of different neighbors meet again, what they share
    counts for each of them.

    Args:
        rates: bytes per second of every link of the fabric.
        targets: number of targets.
        keys: `switch * targets + target` of every entry, in ascending order.
        widths: bytes per second of every entry; infinite if the switch is part of the target.
    """

    rates: Floats
    targets: int
    keys: Longs
    widths: Floats

    def between(self, switch: Ints, target: Ints) -> Floats:
        """Return the width from each `switch[i]` to `target[i]`. There has to be an entry for
        each.
        """
        keys = switch.astype(np.int64) * self.targets + target
        return self.widths[np.searchsorted(self.keys, keys)]


def path_widths(network: FabricNetwork, rates: Floats, node: Ints, target: Ints) -> PathWidths:
    """Return the width from each switch `node[i]` to `target[i]`, which have to be joined, and from
    all switches on the shortest paths between them.

    The width of a switch is the sum over its next neighbors of the lesser of two numbers: the rates
    of all links to the neighbor, and the width of the neighbor. With two links of 10 GB/s to a
    switch that is 15 GB/s wide, and one of 10 GB/s to a switch of the target, it is 25 GB/s.

    `rates` are the bytes per second of every link.
    """
    targets = len(network.next.has_distances)
    starts = np.unique(node.astype(np.int64) * targets + target)
    distance = network.next.distance(*_switch_and_target(starts, targets))
    # From the farthest switches to those of the targets: for each distance the keys, their next
    # links, and the keys at the other ends of these links.
    layers: list[tuple[Longs, Candidates, Longs, Longs, Longs]] = []
    keys = np.zeros(0, np.int64)
    for hops in range(int(distance.max(initial=0)), 0, -1):
        keys = np.union1d(keys, starts[distance == hops])
        switch, goal = _switch_and_target(keys, targets)
        candidates, which = network.next.candidates(switch, goal)
        owner, slot = entries_of(candidates.ptr, which)
        next_keys = candidates.head[slot].astype(np.int64) * targets + goal[owner]
        layers.append((keys, candidates, owner, slot, next_keys))
        keys = np.unique(next_keys)
    keys = np.union1d(keys, starts[distance == 0])
    widths = np.full(len(keys), np.inf)
    all_keys = [keys]
    all_widths = [widths]
    for farther_keys, candidates, owner, slot, next_keys in reversed(layers):
        behind = widths[np.searchsorted(keys, next_keys)]
        link_width = _link_widths(rates, candidates, slot, behind)
        keys = farther_keys
        widths = np.bincount(owner, link_width, len(keys))
        all_keys.append(keys)
        all_widths.append(widths)
    sorted_keys, first = np.unique(np.concatenate(all_keys), return_index=True)
    return PathWidths(rates, targets, sorted_keys, np.concatenate(all_widths)[first])


def _link_widths(rates: Floats, candidates: Candidates, slot: Longs, behind: Floats) -> Floats:
    """Return the bytes per second that each link `candidates.link[slot]` can carry towards its
    target.

    Args:
        rates: bytes per second of all links.
        candidates: next links of some (switch, target).
        slot: entries of `candidates`; those of one (switch, target) are complete and adjacent.
        behind: width of the switch that each of these links enters.
    """
    neighbor = np.cumsum(candidates.first[slot]) - 1
    return _divided_width(rates[candidates.link[slot]], neighbor, behind)


def _divided_width(rate: Floats, neighbor: Longs, behind: Floats) -> Floats:
    """Return what each link can carry if the links with one `neighbor` number divide what is behind
    them by their rates.

    `rate` and `behind` (the same for all links to a neighbor) are bytes per second.
    """
    together = np.bincount(neighbor, rate)[neighbor]
    divided: Floats = rate / together * np.minimum(together, behind)
    return divided


def _switch_and_target(keys: Longs, targets: int) -> tuple[Ints, Ints]:
    """Return the switch and the target of each key `switch * targets + target`."""
    return (keys // targets).astype(np.int32), (keys % targets).astype(np.int32)


def _spread_over_links(
    network: FabricNetwork, node: Ints, target: Ints, widths: PathWidths | None
) -> tuple[Entries, Entries]:
    """Spread one unit of bytes from each switch `node[i]` over all shortest paths to `target[i]`.

    At a switch the bytes divide equally among the links of shortest paths or, with `widths`, in
    proportion to what each of these links can carry.

    Returns two sets of entries, sorted by i: (i, link, fraction of the bytes on it), and (i, switch
    of the target, fraction of the bytes that arrives there).
    """
    none = np.zeros(0, np.int64)
    pair = np.arange(len(node))
    part = np.ones(len(node))
    out: list[Entries] = [(none, none.astype(np.int32), np.zeros(0))]
    ends = [(none, none.astype(np.int32), np.zeros(0))]
    while len(pair):
        there = network.next.distance(node, target[pair]) == 0
        ends.append((pair[there], node[there], part[there]))
        pair = pair[~there]
        node = node[~there]
        part = part[~there]
        candidates, which = network.next.candidates(node, target[pair])
        pair_of_entry, slot = entries_of(candidates.ptr, which)
        if widths is None:
            flow = (part / np.maximum(candidates.count[which], 1))[pair_of_entry]
        else:
            behind = widths.between(candidates.head[slot], target[pair[pair_of_entry]])
            width = _link_widths(widths.rates, candidates, slot, behind)
            total = np.bincount(pair_of_entry, width, len(pair))
            flow = part[pair_of_entry] * width / total[pair_of_entry]
        out.append((pair[pair_of_entry], candidates.link[slot], flow))
        key = pair[pair_of_entry] * network.next.switches + candidates.head[slot]
        key, place = np.unique(key, return_inverse=True)
        part = np.zeros(len(key))
        np.add.at(part, place.reshape(-1), flow)
        pair = key // network.next.switches
        node = (key % network.next.switches).astype(np.int32)
    pairs, links, flows = (np.concatenate(column) for column in zip(*out, strict=True))
    turn = np.argsort(pairs, kind="stable")
    last, switch, rest = (np.concatenate(column) for column in zip(*ends, strict=True))
    end = np.argsort(last, kind="stable")
    return (pairs[turn], links[turn], flows[turn]), (last[end], switch[end], rest[end])


def entries_of(ptr: Longs, owners: NDArray[np.integer[Any]]) -> tuple[Longs, Longs]:
    """Return all entries of `owners` in a CSR structure: the index in `owners` and the entry's
    number.

    `ptr[o]` to `ptr[o + 1]` are the entries of owner o. With ptr [0, 2, 3] and owners [1, 0], the
    result is [0, 1, 1] and [2, 0, 1].
    """
    size = ptr[owners + 1] - ptr[owners]
    owner_number = np.repeat(np.arange(len(owners)), size)
    return owner_number, np.arange(len(owner_number)) - np.repeat(
        np.cumsum(size) - size, size
    ) + ptr[owners][owner_number]


def _merged_paths(count: int, entries: list[Entries]) -> Paths:
    """Return the paths that consist of `entries` (pair, link, fraction): each link of a pair once,
    with the sum of its fractions, in the order in which it first occurs.

    `count` is the number of pairs, the rows of the result.
    """
    row, link, part = (np.concatenate(column) for column in zip(*entries, strict=True))
    links = int(link.max(initial=0)) + 1
    key, first, place = np.unique(row * links + link, return_index=True, return_inverse=True)
    total = np.bincount(place.reshape(-1), part, len(key))
    in_order = np.lexsort((first, key // links))
    key = key[in_order]
    total = total[in_order]
    owner = key // links
    ptr = np.searchsorted(owner, np.arange(count + 1))
    hops = np.full((count, int(np.diff(ptr).max(initial=0))), -1, np.int32)
    share = np.zeros(hops.shape)
    at = np.arange(len(key)) - ptr[owner]
    hops[owner, at] = key % links
    share[owner, at] = total
    return hops, share


def merge_rows(count: int, parts: Sequence[tuple[Longs, Paths]]) -> Paths:
    """Join paths that were computed for groups of rows to one table with `count` rows."""
    width = max((hops.shape[1] for _, (hops, _) in parts), default=0)
    links = np.full((count, width), -1, np.int32)
    share = np.zeros((count, width))
    for rows, (hops, part) in parts:
        links[rows, : hops.shape[1]] = hops
        share[rows, : hops.shape[1]] = part
    return links, share
