"""The dragonfly: groups of fully joined routers, and links between every two groups.

Kim et al., "Technology-Driven, Highly-Scalable Dragonfly Topology", 2008. Routers of group g are
g·a … g·a + a - 1; global links are spread evenly over the other groups.
"""

import numpy as np
from numpy.typing import NDArray

from netsim.topology.fabrics.fabric import (
    Cables,
    Fabric,
    Ints,
    Ports,
    Terms,
    columns,
    fabric,
    numbered,
)
from netsim.topology.layout import TopologyError
from netsim.values import dataclass


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
