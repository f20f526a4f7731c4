"""Torus and ring: a router for every host, joined to its neighbours in every dimension."""

from itertools import permutations
from math import factorial, inf, prod

import numpy as np
from numpy.typing import NDArray

from netsim.base.values import dataclass
from netsim.topology.graph import Sketch, Topology, TopologyError
from netsim.topology.router import Cables, Fabric, Ints, Ports, Terms, columns, fabric, numbered
from netsim.topology.routing import StaticRouter, walk


@dataclass(frozen=True, slots=True)
class Torus:
    """Shortest paths, one dimension after the other; `free` tries every order of dimensions, and
    both ways round where they are equally long. `cable` numbers the cable from each router onwards
    in each dimension.
    """

    router: Ints
    dims: tuple[int, ...]
    cable: Ints
    free: bool

    def choices(self, src: Ints, dst: Ints) -> Ints:
        """1, or all orders and directions (which may coincide)."""
        apart = self.router[src] != self.router[dst]
        every = factorial(len(self.dims)) * 2 ** len(self.dims) if self.free else 1
        return np.where(apart, every, 1).astype(np.int32)

    def hops(self, src: Ints, dst: Ints, choice: Ints) -> Ints:
        """Access, every step, access."""
        here, there = self.router[src].copy(), self.router[dst]
        orders = np.array(list(permutations(range(len(self.dims)))))
        order = orders[choice >> len(self.dims)]
        legs: list[Ints] = [2 * src]
        for turn in range(len(self.dims)):
            legs += self._along(order[:, turn], here, there, choice)
        return np.stack([*legs, 2 * dst + 1], axis=1).astype(np.int32)

    def order(self, dst: Ints) -> Ints:
        """By destination port."""
        return dst

    def _along(self, axis: Ints, here: Ints, there: Ints, choice: Ints) -> list[Ints]:
        """All steps in one dimension, which may differ by pair; moves `here`."""
        extent = np.array(self.dims)[axis]
        stride = np.array([prod(self.dims[k + 1 :]) for k in range(len(self.dims))])[axis]
        place, goal = here // stride % extent, there // stride % extent
        ahead = (goal - place) % extent
        tie = 2 * ahead == extent
        forward = np.where(tie, (choice >> axis) & 1 == 0, 2 * ahead < extent)
        steps = np.where(forward, ahead, extent - ahead) * (ahead > 0)
        legs = []
        for step in range(int(steps.max(initial=0))):
            moves = step < steps
            onward = (place + np.where(forward, 1, -1)) % extent
            following = here + (onward - place) * stride
            pair = np.where(extent == 2, place == 0, forward)
            cable = np.where(pair, self.cable[here, axis], self.cable[following, axis])
            legs.append(np.where(moves, 2 * cable + ~pair, -1))
            here[:] = np.where(moves, following, here)
            place = np.where(moves, onward, place)
        return legs


def torus(
    ports: Ports,
    terms: Terms,
    hosts: int,
    *,
    dims: tuple[int, ...] | None = None,
    free: bool = False,
    kind: str = "torus",
) -> Fabric:
    """A router for each host; without `dims` a ring of all of them."""
    shape = dims or (hosts,)
    count = prod(shape)
    if count < hosts:
        grid = " x ".join(map(str, shape))
        raise TopologyError(
            f"dims: a torus of {grid} has {count} routers, not {hosts} for the hosts"
        )
    cables, number = _grid(shape, len(ports))
    router = ports.host.astype(np.int32)
    tiers = (("router", numbered("router", count)),)
    return fabric(kind, tiers, ports, terms, router, cables, Torus(router, shape, number, free))


def _grid(shape: tuple[int, ...], first: int) -> tuple[Cables, Ints]:
    """The cables of a torus, and the number of the one from each router on in each dimension."""
    number = np.full((prod(shape), len(shape)), -1, np.int32)
    low: list[Ints] = []
    high: list[Ints] = []
    place = np.indices(shape).reshape(len(shape), -1)
    for axis, extent in enumerate(shape):
        onward = {1: 0, 2: 1}.get(extent, extent)  # two routers have one cable, not two
        starts = np.flatnonzero(place[axis] < onward).astype(np.int32)
        ends = place[:, starts].copy()
        ends[axis] = (ends[axis] + 1) % extent
        number[starts, axis] = first + sum(len(one) for one in low) + np.arange(len(starts))
        low.append(starts)
        high.append(np.ravel_multi_index(tuple(ends), shape).astype(np.int32))
    return Cables(np.concatenate(low), np.concatenate(high)), number


# **** Dragonfly ****
# The dragonfly: groups of fully joined routers, and links between every two groups.
# Kim et al., "Technology-Driven, Highly-Scalable Dragonfly Topology", 2008. Routers of group g are
# g·a … g·a + a - 1; global links are spread evenly over the other groups.


@dataclass(frozen=True, slots=True)
class Dragonfly:
    """Minimal paths (local, global, local), or Valiant's over a third group."""

    router: Ints
    groups: int
    routers: int
    global_links: int
    valiant: bool

    @property
    def pair_links(self) -> int:
        """Global links between two groups."""
        return self.routers * self.global_links // max(1, self.groups - 1)

    def choices(self, src: Ints, dst: Ints) -> Ints:
        """By global link; with Valiant, by the group between as well."""
        here, there = self.router[src] // self.routers, self.router[dst] // self.routers
        via = self.groups - 2 if self.valiant and self.groups > 2 else 1
        return np.where(here == there, 1, via * self.pair_links).astype(np.int32)

    def hops(self, src: Ints, dst: Ints, choice: Ints) -> Ints:
        """Access, to the gateway, across, and on to the last router."""
        start, end = self.router[src], self.router[dst]
        here, there = start // self.routers, end // self.routers
        apart = here != there
        turn, lane = choice // max(1, self.pair_links), choice % max(1, self.pair_links)
        legs: list[Ints] = [2 * src]
        if self.valiant and self.groups > 2:
            low, high = np.minimum(here, there), np.maximum(here, there)
            via = turn + (turn >= low)
            via = np.where(apart, via + (via >= high), here)
            first, start = self._cross(start, here, via, lane, apart)
            legs += first
            here = via
        second, start = self._cross(start, here, there, lane, apart)
        legs += [*second, self._local(start, end), 2 * dst + 1]
        return columns(*legs)

    def order(self, dst: Ints) -> Ints:
        """By destination port."""
        return dst

    def _cross(
        self, start: Ints, here: Ints, there: Ints, lane: Ints, apart: NDArray[np.bool_]
    ) -> tuple[list[Ints], Ints]:
        """To the gateway of `here` and over a global link; the router where that ends."""
        leave, arrive = self._gateway(here, there, lane), self._gateway(there, here, lane)
        local = np.where(apart, self._local(start, leave), -1)
        link = self._global(here, there, lane)
        return [local, np.where(apart, link, -1)], np.where(apart, arrive, start)

    def _gateway(self, here: Ints, there: Ints, lane: Ints) -> Ints:
        """The router of group `here` with the global link to `there`."""
        port = ((there - here) % self.groups - 1) * self.pair_links + lane
        router: Ints = here * self.routers + np.maximum(port, 0) // self.global_links
        return router

    def _local(self, a: Ints, b: Ints) -> Ints:
        """The link between two routers of a group; -1 if they are the same."""
        size = self.routers
        x, y = np.minimum(a, b) % size, np.maximum(a, b) % size
        cable = len(self.router) + a // size * (size * (size - 1) // 2) + _pair(x, y, size)
        return np.where(a == b, -1, 2 * cable + (a > b))

    def _global(self, here: Ints, there: Ints, lane: Ints) -> Ints:
        low, high = np.minimum(here, there), np.maximum(here, there)
        first = len(self.router) + self.groups * (self.routers * (self.routers - 1) // 2)
        cable = first + _pair(low, high, self.groups) * self.pair_links + lane
        return 2 * cable + (here > there)


def dragonfly(
    ports: Ports,
    terms: Terms,
    hosts: int,
    *,
    radix: int = 64,
    routers: int = 8,
    ports_per_router: int = 16,
    global_links: int = 4,
    groups: int | None = None,
    valiant: bool = False,
) -> Fabric:
    """Groups of `routers`, each with some NIC ports and global links."""
    nics = int(ports.rail.max(initial=0)) + 1
    fewest = -(-hosts * nics // (routers * ports_per_router))
    count = groups or fewest
    if count < fewest:
        raise TopologyError(f"groups: {hosts} hosts of {nics} NICs need {fewest}, got {count}")
    if count - 1 > routers * global_links:
        raise TopologyError(
            f"groups: {count} groups need {count - 1} global links each, but {routers} routers "
            f"with {global_links} have {routers * global_links}"
        )
    used = ports_per_router + routers - 1 + global_links
    if used > radix:
        raise TopologyError(f"ports: a router needs {used} ports, but a switch has {radix}")
    router = ((ports.host * nics + ports.rail) // ports_per_router).astype(np.int32)
    wiring = Dragonfly(router, count, routers, global_links, valiant)
    tiers = (("router", numbered("router", count * routers)),)
    return fabric("dragonfly", tiers, ports, terms, router, _cables(wiring), wiring)


def _cables(shape: Dragonfly) -> Cables:
    x, y = np.triu_indices(shape.routers, 1)
    group = np.arange(shape.groups)[:, None] * shape.routers
    a, b = (side.astype(np.int32) for side in np.triu_indices(shape.groups, 1))
    lane = np.tile(np.arange(shape.pair_links, dtype=np.int32), len(a))
    here, there = np.repeat(a, shape.pair_links), np.repeat(b, shape.pair_links)
    ends = shape._gateway(here, there, lane), shape._gateway(there, here, lane)
    return Cables(
        np.concatenate([(group + x).ravel(), ends[0]]).astype(np.int32),
        np.concatenate([(group + y).ravel(), ends[1]]).astype(np.int32),
    )


def _pair(low: Ints, high: Ints, count: int) -> Ints:
    """The number of a pair low < high among all pairs of `count`, as triu_indices orders them."""
    return low * (2 * count - low - 1) // 2 + high - low - 1


# **** Custom ****
# A fabric that a scenario writes out: switches, and cables between them and the NICs.


Cable = tuple[int, int, float | None, float | None]  # ends, bytes/s, seconds


@dataclass(frozen=True)
class Searched:
    """Cheapest paths in a graph whose first nodes are the ports."""

    topology: Topology

    def choices(self, src: Ints, dst: Ints) -> Ints:
        """One path, wherever there is one."""
        if walk(self.topology, src, dst) is not None:
            return np.ones(len(src), np.int32)
        pairs = zip(src[:, None], dst[:, None], strict=True)
        return np.array([walk(self.topology, *pair) is not None for pair in pairs], np.int32)

    def hops(self, src: Ints, dst: Ints, choice: Ints) -> Ints:
        """The cheapest path."""
        found = walk(self.topology, src, dst)
        assert found is not None  # pairs without a choice are not asked for
        return found

    def order(self, dst: Ints) -> Ints:
        """By destination port."""
        return dst


def custom(
    ports: Ports,
    terms: Terms,
    switches: tuple[str, ...],
    cables: list[Cable],
) -> Fabric:
    """Ends of cables are numbered: ports first, then switches."""
    joined = {end for cable in cables for end in cable[:2]}
    missing = next((port for port in range(len(ports)) if port not in joined), None)
    if missing is not None:
        name = f"node{ports.owner[missing]}.nic{ports.rail[missing]}"
        raise TopologyError(f"links: {name} is on no switch")
    graph = _graph(ports, terms, len(switches), cables)
    topology = Topology("custom", graph, (0,), StaticRouter())
    links = topology.links
    return Fabric(
        "custom",
        len(ports),
        switches,
        (("switch", 0),),
        0,
        links.tail,
        links.head,
        links.bandwidth,
        links.latency,
        Searched(topology),
    )


def _graph(ports: Ports, terms: Terms, switches: int, cables: list[Cable]) -> Sketch:
    """Ports and switches by number, and every cable in both directions."""
    graph = Sketch()
    for number in range(len(ports)):
        graph.node(number, kind="nic", forwards=False)
    for number in range(switches):
        graph.node(len(ports) + number, kind="switch")
    for low, high, rate, latency in sorted(cables, key=lambda cable: cable[:2]):
        port = next((end for end in (low, high) if end < len(ports)), None)
        usual = terms.link if port is None else float(ports.rate[port])
        most = inf if port is None else terms.nic_cap
        for tail, head in ((low, high), (high, low)):
            hop = terms.nic if head < len(ports) else terms.hop
            graph.edge(
                tail,
                head,
                bandwidth=min((rate or usual) * terms.usable, most),
                latency=hop if latency is None else latency,
                kind="fabric",
            )
    return graph
