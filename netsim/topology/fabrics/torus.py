"""Torus and ring: a router for every host, joined to its neighbours in every dimension."""

from itertools import permutations
from math import factorial, prod

import numpy as np

from netsim.topology.fabrics.fabric import Cables, Fabric, Ints, Ports, Terms, fabric, numbered
from netsim.topology.layout import TopologyError
from netsim.values import dataclass


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
