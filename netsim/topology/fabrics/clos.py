"""Folded Clos networks of two or three levels: the wiring of leaves, spines and cores.

Leaf l's uplink u leads to spine u mod S of its pod; spine a's uplink v leads to core v mod G
of group a.
A path is chosen by (u, v) and comes down by the same numbers, so every path is up/down symmetric.
"""

import numpy as np

from netsim.topology.fabrics.fabric import Cables, Ints, columns
from netsim.values import dataclass


@dataclass(frozen=True, slots=True)
class Clos:
    """Paths by formula: `leaf` of every port and its `slot` there, `pod` of every leaf, `uplinks`
    of a leaf and `core_links` of a spine (0: pods never meet); `first` is the number of the first
    cable between switches, `first_core` that of the first one to a core.
    """

    leaf: Ints
    slot: Ints
    pod: Ints
    pod_leaves: int
    spines: int
    uplinks: int
    core_links: int
    first: int
    first_core: int

    def choices(self, src: Ints, dst: Ints) -> Ints:
        """1 below one leaf; by uplinks inside a pod; by uplinks and core links between pods."""
        a, b = self.leaf[src], self.leaf[dst]
        count = np.where(self.pod[a] == self.pod[b], 1, self.core_links) * self.uplinks
        return np.where(a == b, 1, count).astype(np.int32)

    def hops(self, src: Ints, dst: Ints, choice: Ints) -> Ints:
        """Access, up, over a core if need be, down, access."""
        a, b = self.leaf[src], self.leaf[dst]
        up, core = choice % max(1, self.uplinks), choice // max(1, self.uplinks)
        away = a != b
        over = away & (self.pod[a] != self.pod[b])
        spine = up % max(1, self.spines)
        climb = [self.first + leaf * self.uplinks + up for leaf in (a, b)]
        cross = [
            self.first_core + (self.pod[leaf] * self.spines + spine) * self.core_links + core
            for leaf in (a, b)
        ]
        return columns(
            2 * src,
            np.where(away, 2 * climb[0], -1),
            np.where(over, 2 * cross[0], -1),
            np.where(over, 2 * cross[1] + 1, -1),
            np.where(away, 2 * climb[1] + 1, -1),
            2 * dst + 1,
        )

    def order(self, dst: Ints) -> Ints:
        """Every port of a leaf has an uplink of its own, every leaf of a pod a core (D-mod-k), as
        subnet managers lay static routes out.
        """
        uplinks = max(1, self.uplinks)
        number = self.slot[dst] % uplinks + uplinks * (self.leaf[dst] % self.pod_leaves)
        return number.astype(np.int32)


@dataclass(frozen=True, slots=True)
class Shape:
    """The numbers of a Clos network: `leaves`, pods of `pod_leaves` of them (in order), `spines`
    a pod, `uplinks` a leaf, `core_links` a spine, to `group_cores` cores.
    """

    leaves: int
    pod_leaves: int
    spines: int
    uplinks: int
    core_links: int = 0
    group_cores: int = 0

    @property
    def pods(self) -> int:
        """The number of pods."""
        return -(-self.leaves // self.pod_leaves)

    @property
    def cores(self) -> int:
        """The number of cores: a group of them for each spine of a pod."""
        return self.spines * self.group_cores


def cables_of(shape: Shape) -> Cables:
    """Leaf to spine, then spine to core; switches are numbered leaves, spines, cores."""
    leaf, up = (side.ravel() for side in np.indices((shape.leaves, shape.uplinks)))
    spine = up % max(1, shape.spines) + leaf // shape.pod_leaves * shape.spines
    pod, a, v = (side.ravel() for side in np.indices((shape.pods, shape.spines, shape.core_links)))
    first_spine = shape.leaves
    first_core = first_spine + shape.pods * shape.spines
    low = np.concatenate([leaf, first_spine + pod * shape.spines + a])
    high = np.concatenate(
        [first_spine + spine, first_core + a * shape.group_cores + v % max(1, shape.group_cores)]
    )
    return Cables(low.astype(np.int32), high.astype(np.int32))


def wiring_of(shape: Shape, leaf: Ints) -> Clos:
    """The paths of a Clos network with ports on `leaf`."""
    first = len(leaf)
    order = np.argsort(leaf, kind="stable")
    slot = np.empty(first, np.int32)
    slot[order] = np.arange(first) - np.searchsorted(leaf[order], leaf[order])
    return Clos(
        leaf,
        slot,
        (np.arange(shape.leaves) // shape.pod_leaves).astype(np.int32),
        shape.pod_leaves,
        shape.spines,
        shape.uplinks,
        shape.core_links,
        first,
        first + shape.leaves * shape.uplinks,
    )
