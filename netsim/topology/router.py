"""What every fabric is: switches, cables between them and the NIC ports, and its equal-cost paths.

Ends are numbered: ports of NICs first, then switches. Every cable takes two links, up (from its
first end) and down; those of the ports come first, so port p has links 2p and 2p + 1.
"""

from collections.abc import Sequence
from math import inf
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from netsim.base.values import dataclass
from netsim.topology.graph import Routes, Topology, TopologyError, Way, parse_way
from netsim.topology.host import Host

Ints = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Ports:
    """The NIC ports that a fabric joins: host of the fabric, rail (number of the NIC in its host),
    bytes/s, and the host of the job that it belongs to.
    """

    host: Ints
    rail: Ints
    rate: NDArray[np.float64]
    owner: Ints

    def __len__(self) -> int:
        return len(self.host)


@dataclass(frozen=True, slots=True)
class Terms:
    """What all fabrics take: rate of cables between switches (bytes/s), latency of one switch hop
    and of entering a NIC (seconds), the usable part of every line rate, and at most how much of it
    a NIC carries.
    """

    link: float
    hop: float
    nic: float
    usable: float = 1.0
    nic_cap: float = inf

    def port(self, rate: NDArray[np.float64]) -> NDArray[np.float64]:
        """What NIC ports of a line rate carry, bytes/s."""
        return np.minimum(rate * self.usable, self.nic_cap)


class Wiring(Protocol):
    """The paths between ports, by formula."""

    def choices(self, src: Ints, dst: Ints) -> Ints:
        """How many equal-cost paths there are for every pair of ports; 0: not connected."""
        ...

    def hops(self, src: Ints, dst: Ints, choice: Ints) -> Ints:
        """The links of one path for every pair, port to port, padded with -1."""
        ...

    def order(self, dst: Ints) -> Ints:
        """The number by which static routing picks a path to each port, modulo the choices."""
        ...


@dataclass(frozen=True, slots=True)
class Fabric:
    """A fabric as columns; `tail` and `head` number ports, then switches from `ports` on.

    The first `access` links join ports to switches; `tiers` names the switches' levels from the
    NICs up, with the number of the first switch of each. `reduces`: its switches add up data on
    its way (SHARP). `note` is what was assumed.
    """

    kind: str
    ports: int
    switches: tuple[str, ...]
    tiers: tuple[tuple[str, int], ...]
    access: int
    tail: Ints
    head: Ints
    bandwidth: NDArray[np.float64]
    latency: NDArray[np.float64]
    wiring: Wiring
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
    wiring: Wiring,
) -> Fabric:
    """Port p is on switch `leaf[p]` (given twice: NICs of two ports, each of half their rate)."""
    count, planes = len(ports), len(leaf) // max(1, len(ports))
    low = np.r_[np.tile(np.arange(count), planes), count + cables.low].astype(np.int32)
    high = np.r_[count + leaf, count + cables.high].astype(np.int32)
    access = np.tile(terms.port(ports.rate) / max(1, planes), planes)
    rate = np.r_[access, [terms.link * terms.usable] * len(cables)]
    down = np.where(np.arange(len(low)) < len(leaf), terms.nic, terms.hop)
    firsts = np.cumsum([0, *(len(names) for _, names in tiers)]).tolist()
    return Fabric(
        kind,
        count,
        tuple(name for _, names in tiers for name in names),
        tuple((level, first) for (level, _), first in zip(tiers, firsts, strict=False)),
        2 * len(leaf),
        np.stack([low, high], axis=1).ravel(),
        np.stack([high, low], axis=1).ravel(),
        np.repeat(rate, 2),
        np.stack([np.full(len(low), terms.hop), down], axis=1).ravel(),
        wiring,
    )


def columns(*parts: Ints) -> Ints:
    """Links of many paths, one column a hop."""
    return np.stack(parts, axis=1).astype(np.int32)


def numbered(name: str, count: int) -> tuple[str, ...]:
    """`name0`, `name1`, …"""
    return tuple(f"{name}{number}" for number in range(count))


# **** Select ****
# Which of the equal-cost paths a connection takes: static, ecmp or spray.
# A pure function of ports, channel and seed, so that a connection keeps its path. Paths over dead
# links are left out as long as another one exists.


_CELLS = 500_000  # paths that are looked at together, to bound temporary memory


@dataclass(frozen=True, slots=True)
class Policy:
    """How paths are chosen: `static` by destination, `ecmp` by hash, `spray` over all equally.

    With ecmp a connection has `qps` queue pairs, each with a hash of its own. `dead` marks links
    of the fabric that carry nothing.
    """

    routing: str
    seed: int = 0
    qps: int = 1
    dead: NDArray[np.bool_] | None = None


def mix(*values: NDArray[Any] | int) -> NDArray[np.uint64]:
    """A fixed integer hash of several columns (splitmix64's finaliser after each)."""
    state: NDArray[np.uint64] = np.zeros(1, np.uint64)
    with np.errstate(over="ignore"):
        for value in values:
            state = state + np.asarray(value).astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
            state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            state = state ^ (state >> np.uint64(31))
    return state


def select_paths(
    wiring: Wiring, policy: Policy, src: Ints, dst: Ints, channel: Ints
) -> tuple[Ints, NDArray[np.float64]]:
    """Links between the switches of each pair of ports and the part of the bytes on each."""
    counts = wiring.choices(src, dst)
    if policy.routing == "spray":
        return _spread(wiring, policy, src, dst, counts)
    draws = range(policy.qps if policy.routing == "ecmp" else 1)
    parts = []
    for qp in draws:
        static = policy.routing == "static"
        number = wiring.order(dst) if static else mix(policy.seed, src, dst, channel, qp)
        choice = (number % np.maximum(counts, 1).astype(number.dtype)).astype(np.int32)
        hops = wiring.hops(src, dst, choice)
        parts.append(_around_dead(wiring, policy, (src, dst, counts), hops, number))
    width = max(part.shape[1] for part in parts)
    hops = np.concatenate([_wide(part, width) for part in parts], axis=1)
    return hops, np.full(hops.shape, 1 / len(parts))


def _around_dead(
    wiring: Wiring,
    policy: Policy,
    pairs: tuple[Ints, Ints, Ints],
    hops: Ints,
    number: NDArray[np.int32] | NDArray[np.uint64],
) -> Ints:
    """The paths, but another one for every pair whose own crosses a dead link, if there is one."""
    if policy.dead is None:
        return hops
    broken = np.flatnonzero((policy.dead[hops] & (hops >= 0)).any(axis=1))
    for pair in broken:
        src, dst, count = (column[pair : pair + 1] for column in pairs)
        every = np.arange(int(count[0]), dtype=np.int32)
        paths = wiring.hops(src.repeat(len(every)), dst.repeat(len(every)), every)
        alive = np.flatnonzero(~(policy.dead[paths] & (paths >= 0)).any(axis=1))
        if len(alive):
            chosen = paths[alive[int(number[pair]) % len(alive)]]
            hops = _wide(hops, len(chosen))
            hops[pair] = -1
            hops[pair, : len(chosen)] = chosen
    return hops


def _spread(
    wiring: Wiring, policy: Policy, src: Ints, dst: Ints, counts: Ints
) -> tuple[Ints, NDArray[np.float64]]:
    """Every path of each pair, with equal parts of the bytes; some pairs at a time."""
    most = max(1, int(counts.max(initial=0)))
    at_once = max(1, _CELLS // most)
    if len(src) > at_once:
        parts = [
            _spread(
                wiring, policy, src[n : n + at_once], dst[n : n + at_once], counts[n : n + at_once]
            )
            for n in range(0, len(src), at_once)
        ]
        width = max(hops.shape[1] for hops, _ in parts)
        hops = np.concatenate([_wide(hops, width) for hops, _ in parts])
        missing = [(part, width - part.shape[1]) for _, part in parts]
        return hops, np.concatenate([np.pad(part, [(0, 0), (0, n)]) for part, n in missing])
    every = np.arange(most, dtype=np.int32)
    pairs = [column.repeat(most) for column in (src, dst, counts)]
    choice = np.tile(every, len(src))
    paths = wiring.hops(pairs[0], pairs[1], choice % np.maximum(pairs[2], 1))
    alive = choice < pairs[2]
    if policy.dead is not None:
        living = alive & ~(policy.dead[paths] & (paths >= 0)).any(axis=1)
        some = living.reshape(-1, most).any(axis=1).repeat(most)
        alive = np.where(some, living, alive)
    part = alive / np.maximum(alive.reshape(-1, most).sum(axis=1), 1).repeat(most)
    hops = np.where(alive[:, None], paths, -1).reshape(len(src), -1)
    fraction = np.repeat(part[:, None], paths.shape[1], axis=1).reshape(len(src), -1)
    return _merged(hops, fraction)


def _merged(hops: Ints, fraction: NDArray[np.float64]) -> tuple[Ints, NDArray[np.float64]]:
    """Each link once, with all that goes over it."""
    order = np.argsort(np.where(hops < 0, np.iinfo(np.int32).max, hops), axis=1, kind="stable")
    hops = np.take_along_axis(hops, order, axis=1)
    total = np.cumsum(np.take_along_axis(fraction, order, axis=1) * (hops >= 0), axis=1)
    last = np.ones(hops.shape, bool)
    last[:, :-1] = hops[:, 1:] != hops[:, :-1]
    until = np.maximum.accumulate(np.where(last, total, 0.0), axis=1)
    before = np.concatenate([np.zeros((len(hops), 1)), until[:, :-1]], axis=1)
    keep = last & (hops >= 0)
    width = int(keep.sum(axis=1).max(initial=0))
    front = np.argsort(~keep, axis=1, kind="stable")[:, :width]
    hops = np.take_along_axis(np.where(keep, hops, -1), front, axis=1)
    return hops, np.take_along_axis(np.where(keep, total - before, 0.0), front, axis=1)


def _wide(hops: Ints, width: int) -> Ints:
    missing = max(0, width - hops.shape[1])
    return np.pad(hops, [(0, 0), (0, missing)], constant_values=-1)


# **** Router ****
# The router of clusters: tables inside hosts, formulas between them, all pairs at once.
# Same host: the class's table. Same NVLink domain: egress and ingress. Else: GPU to NIC, the
# fabric's path from port to port, NIC to GPU.


_PORTION = 1 << 15  # pairs treated at a time, to bound temporary memory
Paths = tuple[Ints, NDArray[np.float64]]  # links padded with -1, and the part of the bytes on each


@dataclass(frozen=True, slots=True)
class Places:
    """Where everything is: hosts by class, domain, first link and port; GPUs by host and slot."""

    host_class: Ints
    domain: Ints
    first_link: Ints
    first_port: Ints
    gpu_host: Ints
    gpu_slot: Ints


@dataclass(frozen=True, slots=True)
class Tables:
    """The tables of all classes of hosts on top of each other, see Host; `rail` and `slot` turn
    the place of a NIC among those of its host into its number, and back (-1: not there).
    """

    peer: Ints
    staged: Ints
    out: Ints
    into: Ints
    relay: Ints
    local: Ints
    egress: Ints
    ingress: Ints
    rail: Ints
    slot: Ints


@dataclass(frozen=True)
class ClusterRouter:
    """Routes of a cluster whose fabric's links start at `fabric_links`."""

    places: Places
    tables: Tables
    wiring: Wiring | None
    policy: Policy
    fabric_links: int
    rail: bool = False

    @property
    def per_channel(self) -> bool:
        """Channels part where hashes choose, or where a GPU has several NICs."""
        return self.policy.routing == "ecmp" or self.tables.local.shape[2] > 1

    def routes(self, topology: Topology, src: Ints, dst: Ints, channel: Ints, way: str) -> Routes:
        """Routes from device to device."""
        asked = parse_way(way)
        if self.rail and not way:
            asked = Way(relay=True)
        ends = [slice(first, first + _PORTION) for first in range(0, len(src), _PORTION)]
        parts = [self._routes(topology, src[s], dst[s], channel[s], asked) for s in ends]
        return parts[0] if len(parts) == 1 else joined(parts)

    def _routes(
        self, topology: Topology, src: Ints, dst: Ints, channel: Ints, asked: Way
    ) -> Routes:
        at = self.places
        here, there = at.gpu_host[src], at.gpu_host[dst]
        inside = (here == there) & (not asked.network)
        shared = ~inside & (at.domain[here] == at.domain[there]) & (not asked.network)
        shared &= (self._link(self.tables.egress, src) >= 0) & (here != there)
        parts: list[tuple[NDArray[np.int64], Paths]] = []
        for mask, find in (
            (inside, self._inside),
            (shared, self._shared),
            (~inside & ~shared, None),
        ):
            rows = np.flatnonzero(mask)
            if not len(rows):
                continue
            ends = (src[rows], dst[rows])
            found = (
                find(*ends, asked) if find else self._outside(topology, ends, channel[rows], asked)
            )
            parts.append((rows, found))
        return _pack(topology, len(src), parts)

    def _inside(self, src: Ints, dst: Ints, asked: Way) -> Paths:
        at, tables = self.places, self.tables
        host = at.gpu_host[src]
        table = tables.staged if asked.staged else tables.peer
        hops = table[at.host_class[host], at.gpu_slot[src], at.gpu_slot[dst]]
        return _whole(_moved(hops, at.first_link[host]))

    def _shared(self, src: Ints, dst: Ints, asked: Way) -> Paths:
        """Over the NVSwitches that several hosts have in common."""
        ends = (self._link(self.tables.egress, src), self._link(self.tables.ingress, dst))
        return _whole(np.stack(ends, axis=1))

    def _link(self, table: Ints, gpu: Ints) -> Ints:
        at = self.places
        host = at.gpu_host[gpu]
        local = table[at.host_class[host], at.gpu_slot[gpu]]
        return np.where(local >= 0, local + at.first_link[host], -1)

    def _outside(
        self, topology: Topology, ends: tuple[Ints, Ints], channel: Ints, asked: Way
    ) -> Paths:
        """GPU to NIC, through the fabric, NIC to GPU."""
        if self.wiring is None:
            raise TopologyError(
                f"{topology.name}: {_between(topology, ends)}: no fabric joins them"
            )
        at = self.places
        here, there = at.gpu_host[ends[0]], at.gpu_host[ends[1]]
        leave, arrive = self._nics(topology, ends, channel, asked)
        leave, relayed = self._onto_rail(here, there, leave, arrive, asked)
        ports = at.first_port[here] + leave, at.first_port[there] + arrive
        if (unjoined := self.wiring.choices(*ports) == 0).any():
            pair = _between(topology, (ends[0][unjoined], ends[1][unjoined]))
            raise TopologyError(f"{topology.name}: {pair}: the fabric does not join their NICs")
        relay = self._row(self.tables.relay, ends[0], leave)
        direct = _widened(self._row(self.tables.out, ends[0], leave), relay.shape[1])
        out = _moved(np.where(relayed[:, None], relay, direct), at.first_link[here])
        middle, part = select_paths(self.wiring, self.policy, *ports, channel)
        middle = np.where(middle >= 0, middle + self.fabric_links, -1)
        into = self.tables.into[at.host_class[there], arrive, at.gpu_slot[ends[1]]]
        hops = np.concatenate([out, middle, _moved(into, at.first_link[there])], axis=1)
        fraction = np.ones(hops.shape)
        fraction[:, out.shape[1] : out.shape[1] + middle.shape[1]] = part
        return hops.astype(np.int32), fraction

    def _onto_rail(
        self, here: Ints, there: Ints, leave: Ints, arrive: Ints, asked: Way
    ) -> tuple[Ints, NDArray[np.bool_]]:
        """The NIC to leave by, and whether the way to it is over NVLink: where that was asked for,
        and where the fabric does not join the two NICs. It is on the other's rail, unless it was
        named and is joined.
        """
        at = self.places
        assert self.wiring is not None
        apart = self.wiring.choices(at.first_port[here] + leave, at.first_port[there] + arrive) == 0
        relayed = apart | asked.relay
        same_rail = self._slot(here, self.tables.rail[at.host_class[there], arrive])
        moved = apart if asked.leave >= 0 else relayed
        return np.where(moved & (same_rail >= 0), same_rail, leave), relayed

    def _slot(self, host: Ints, rail: Ints | int) -> Ints:
        """The place of the NIC with a number among those of its host; -1 if it is not there."""
        table = self.tables.slot
        inside = np.minimum(rail, table.shape[1] - 1)
        return np.where(rail == inside, table[self.places.host_class[host], inside], -1)

    def _row(self, table: Ints, gpu: Ints, nic: Ints) -> Ints:
        at = self.places
        return table[at.host_class[at.gpu_host[gpu]], at.gpu_slot[gpu], nic]

    def _nics(
        self, topology: Topology, ends: tuple[Ints, Ints], channel: Ints, asked: Way
    ) -> tuple[Ints, Ints]:
        """The NIC by which each pair leaves and arrives."""
        at, tables = self.places, self.tables
        result = []
        for gpu, given in zip(ends, (asked.leave, asked.arrive), strict=True):
            host = at.gpu_host[gpu]
            own = tables.local[at.host_class[host], at.gpu_slot[gpu]]
            slot = own[np.arange(len(gpu)), channel % own.shape[1]] if own.size else host * 0 - 1
            slot = slot if given < 0 else self._slot(host, given)
            if (slot < 0).any():
                name = str(topology.gpus[int(gpu[np.flatnonzero(slot < 0)[0]])]).partition(".")[0]
                what = f"no NIC {given}" if given >= 0 else "no NIC"
                raise TopologyError(f"{topology.name}: {name} has {what}")
            result.append(slot)
        return result[0], result[1]


def stack(hosts: Sequence[Host]) -> Tables:
    """The tables of several classes of hosts, padded to the largest."""
    columns = {}
    for name in ("peer", "staged", "out", "into", "relay", "local", "egress", "ingress", "rail"):
        parts = [getattr(host, name) for host in hosts]
        shape = tuple(max(sizes) for sizes in zip(*(part.shape for part in parts), strict=True))
        whole = np.full((len(parts), *shape), -1, np.int32)
        for number, part in enumerate(parts):
            corner = tuple(slice(size) for size in part.shape)
            whole[number][corner] = part
        columns[name] = whole
    for number, host in enumerate(hosts):  # a GPU with fewer NICs than another takes turns as well
        have, want = host.local.shape[1], columns["local"].shape[2]
        if 0 < have < want:
            columns["local"][number, : len(host.gpus)] = host.local[:, np.arange(want) % have]
    slot = np.full((len(hosts), int(columns["rail"].max(initial=0)) + 1), -1, np.int32)
    for number, host in enumerate(hosts):
        slot[number, host.rail] = np.arange(host.nics)
    return Tables(**columns, slot=slot)


def _whole(hops: Ints) -> Paths:
    return hops, np.ones(hops.shape)


def _moved(hops: Ints, first: Ints) -> Ints:
    """Local link numbers as those of the cluster."""
    return np.where(hops >= 0, hops + first[:, None], -1)


def _widened(hops: Ints, width: int) -> Ints:
    return np.pad(hops, [(0, 0), (0, width - hops.shape[1])], constant_values=-1)


def _between(topology: Topology, ends: tuple[Ints, Ints]) -> str:
    return " to ".join(str(topology.gpus[int(end[0])]) for end in ends)


def _pack(topology: Topology, count: int, parts: list[tuple[NDArray[np.int64], Paths]]) -> Routes:
    """All parts as one set of routes, in the order of the pairs."""
    width = max((hops.shape[1] for _, (hops, _) in parts), default=0)
    links = np.full((count, width), -1, np.int32)
    fractions = np.zeros((count, width))
    for rows, (hops, fraction) in parts:
        links[rows, : hops.shape[1]] = hops
        fractions[rows, : hops.shape[1]] = fraction
    used = links >= 0
    ptr = np.zeros(count + 1, np.int64)
    np.cumsum(used.sum(axis=1), out=ptr[1:])
    latency = (np.where(used, topology.links.latency[links], 0.0) * fractions).sum(axis=1)
    return Routes(ptr, links[used], fractions[used], latency)


def joined(parts: list[Routes]) -> Routes:
    """Routes of some pairs after those of others."""
    first = np.cumsum([0] + [len(part.link) for part in parts])
    ptr = [part.ptr[:-1] + start for part, start in zip(parts, first, strict=False)]
    return Routes(
        np.concatenate([*ptr, first[-1:]]),
        np.concatenate([np.zeros(0, np.int32), *(part.link for part in parts)]),
        np.concatenate([np.zeros(0), *(part.fraction for part in parts)]),
        np.concatenate([np.zeros(0), *(part.latency for part in parts)]),
    )
