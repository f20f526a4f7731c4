"""Folded Clos networks of two or three levels: the wiring of leaves, spines and cores.

Leaf l's uplink u leads to spine u mod S of its pod; spine a's uplink v leads to core v mod G
of group a.
A path is chosen by (u, v) and comes down by the same numbers, so every path is up/down symmetric.
"""

from collections.abc import Callable
from dataclasses import replace
from math import ceil
from typing import Any

import numpy as np

from netsim.base.values import dataclass
from netsim.topology.graph import TopologyError
from netsim.topology.router import Cables, Fabric, Ints, Ports, Terms, columns, fabric, numbered


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


# **** Shapes ****
# How many switches a Clos network needs, and which networks cannot be built.


FEWEST_SPINES = 4  # as the scalable unit of a DGX SuperPOD has: losing one leaves most
# Ports of one switch: 64 as InfiniBand NDR, more where switch chips of 51.2 and 102.4 Tb/s are
# split into slower ports. Where nobody says which, the smallest that reaches all hosts.
SWITCH_PORTS = (64, 128, 256, 512)
_ROUND = 1e-9


def uplinks_for(down: int, ratio: float, oversubscription: float) -> int:
    """Uplinks of a leaf with `down` ports, each `ratio` times as fast as an uplink."""
    return max(1, ceil(down * ratio / oversubscription - _ROUND))


def widest_leaf(radix: int, ratio: float, oversubscription: float) -> int:
    """The most ports down that leave a leaf enough ports up."""
    down = int(radix / (1 + ratio / oversubscription) + _ROUND) + 1
    while down > 1 and down + uplinks_for(down, ratio, oversubscription) > radix:
        down -= 1
    if down + uplinks_for(down, ratio, oversubscription) > radix:
        raise TopologyError(f"ports: a switch of {radix} ports is too small for any leaf")
    return down


def clos_shape(
    leaves: int, down: int, uplinks: int, radix: int, spines: int | None = None, *, unit: int = 0
) -> Shape:
    """Two levels where the spines have enough ports, else three with pods of whole `unit`s of
    leaves (0: three levels are not offered).
    """
    if leaves == 1:
        _fits("a leaf", down, 0, radix)
        return Shape(1, 1, 0, 0)
    _fits("a leaf", down, uplinks, radix)
    if spines is not None:
        if uplinks % spines:
            raise TopologyError(f"spines: {uplinks} uplinks a leaf do not spread over {spines}")
        _fits("a spine", leaves * uplinks // spines, 0, radix)
        return Shape(leaves, leaves, spines, uplinks)
    for count in range(min(uplinks, FEWEST_SPINES), uplinks + 1):
        if _spreads(uplinks, count, leaves, radix):
            return Shape(leaves, leaves, count, uplinks)
    if not unit:
        raise TopologyError(
            f"ports: {leaves} leaves need spines of {leaves} ports, but a switch has {radix}; take "
            "larger switches, more nodes a leaf, or a fabric of three levels"
        )
    return _three_levels(leaves, uplinks, radix, unit)


def _three_levels(leaves: int, uplinks: int, radix: int, unit: int) -> Shape:
    pod_leaves = radix // 2 // unit * unit or radix // 2
    pods = ceil(leaves / pod_leaves)
    _fits("a spine", pod_leaves, pod_leaves, radix)
    if pods > radix:
        raise TopologyError(
            f"ports: {leaves} leaves in {pods} pods need cores of {pods} ports, but a switch has "
            f"{radix}; three levels reach no further"
        )
    cores = next(n for n in range(1, pod_leaves + 1) if _spreads(pod_leaves, n, pods, radix))
    return Shape(leaves, pod_leaves, uplinks, uplinks, pod_leaves, cores)


def _spreads(links: int, switches: int, below: int, radix: int) -> bool:
    """Whether so many links from each of those below spread evenly over switches with the ports."""
    return links % switches == 0 and below * (links // switches) <= radix


def _fits(switch: str, down: int, up: int, radix: int) -> None:
    if down + up > radix:
        raise TopologyError(
            f"ports: {switch} with {down} ports down and {up} up needs {down + up}, but a switch "
            f"has {radix}"
        )


def of_usual_switches(build: Callable[..., Fabric], given: dict[str, Any]) -> Fabric:
    """A fabric of the smallest switches that reach all hosts, and what is to be told of it."""
    refused: list[TopologyError] = []
    for radix in SWITCH_PORTS:
        try:
            made = build(**{**given, "radix": radix})
        except TopologyError as error:
            if not error.message.startswith("ports: "):
                raise
            refused.append(error)
            continue
        if not refused:
            return made
        note = f"assumed: switches of {radix} ports, for those of {SWITCH_PORTS[0]} do not reach "
        return replace(made, note=f"{note}all hosts (cluster.fabric.ports names others)")
    raise refused[0]


# **** Tiered ****
# The tiered fabrics: leaf-spine, fat-tree, rail-optimized, rail-only and dual-plane.


def leaf_spine(
    ports: Ports,
    terms: Terms,
    hosts: int,
    *,
    radix: int = 64,
    oversubscription: float = 1.0,
    nodes_per_leaf: int | None = None,
    spines: int | None = None,
) -> Fabric:
    """All NICs of a host on one leaf, `nodes_per_leaf` hosts a leaf, every leaf on every spine.

    Without `nodes_per_leaf` as many as fit, but at most half of them.
    """
    nics, ratio = _nics(ports), _ratio(ports, terms)
    widest = widest_leaf(radix, ratio, oversubscription)
    each = nodes_per_leaf or min(widest // nics, -(-hosts // 2))
    if each < 1:
        raise TopologyError(f"ports: a host with {nics} NICs does not fit a leaf of {radix} ports")
    leaves, down = -(-hosts // each), each * nics
    shape = clos_shape(leaves, down, uplinks_for(down, ratio, oversubscription), radix, spines)
    return _clos("leaf-spine", ports, terms, shape, ports.host // each)


def rail_optimized(
    ports: Ports,
    terms: Terms,
    hosts: int,
    *,
    radix: int = 64,
    oversubscription: float = 1.0,
    nodes_per_unit: int | None = None,
    spines: int | None = None,
) -> Fabric:
    """A leaf a rail in every scalable unit; spines (and cores, if many units) join the rails."""
    nics, ratio = _nics(ports), _ratio(ports, terms)
    each = nodes_per_unit or min(hosts, widest_leaf(radix, ratio, oversubscription))
    units = -(-hosts // each)
    up = uplinks_for(each, ratio, oversubscription)
    shape = clos_shape(units * nics, each, up, radix, spines, unit=nics)
    return _clos("rail-optimized", ports, terms, shape, ports.host // each * nics + ports.rail)


def rail_only(
    ports: Ports,
    terms: Terms,
    hosts: int,
    *,
    radix: int = 64,
    oversubscription: float = 1.0,
    nodes_per_unit: int | None = None,
) -> Fabric:
    """A network of its own for each rail; other rails are reached over NVLink only."""
    nics, ratio = _nics(ports), _ratio(ports, terms)
    widest = radix if hosts <= radix else widest_leaf(radix, ratio, oversubscription)
    each = nodes_per_unit or min(hosts, widest)
    units = -(-hosts // each)
    shape = clos_shape(units, each, uplinks_for(each, ratio, oversubscription), radix)
    rails = Shape(units * nics, units, shape.spines, shape.uplinks)
    return _clos("rail-only", ports, terms, rails, ports.rail * units + ports.host // each)


def fat_tree(
    ports: Ports, terms: Terms, hosts: int, *, k: int | None = None, levels: int = 3
) -> Fabric:
    """The k-ary fat tree: k³/4 ports and 5k²/4 switches in three levels, k²/2 and 3k/2 in two."""
    need = hosts * _nics(ports)
    if k is None:
        k = next(k for k in range(2, 2**20, 2) if k**levels // (4 if levels == 3 else 2) >= need)
    if k % 2:
        raise TopologyError(f"k: a fat tree needs an even k, got {k}")
    have = k**levels // (4 if levels == 3 else 2)
    if have < need:
        raise TopologyError(
            f"k: a fat tree of {levels} levels with k = {k} has {have} ports, but {hosts} hosts "
            f"need {need}"
        )
    half = k // 2
    shape = (
        Shape(k, k, half, half) if levels == 2 else Shape(k * half, half, half, half, half, half)
    )
    return _clos("fat-tree", ports, terms, shape, (ports.host * _nics(ports) + ports.rail) // half)


@dataclass(frozen=True, slots=True)
class TwoPlanes:
    """Two networks that never meet, and a port in each for every NIC: choices alternate."""

    inner: Clos
    ports: int

    def choices(self, src: Ints, dst: Ints) -> Ints:
        """Those of both planes."""
        return 2 * self.inner.choices(src, dst)

    def hops(self, src: Ints, dst: Ints, choice: Ints) -> Ints:
        """The path in one plane."""
        port = choice % 2 * self.ports
        return self.inner.hops(src + port, dst + port, choice // 2)

    def order(self, dst: Ints) -> Ints:
        """Planes in turn by destination."""
        return 2 * self.inner.order(dst) + dst % 2


def dual_plane(
    ports: Ports,
    terms: Terms,
    hosts: int,
    *,
    radix: int = 64,
    oversubscription: float = 1.0,
    nodes_per_unit: int | None = None,
) -> Fabric:
    """Each NIC has two ports of half its rate, one in each of two rail-optimized networks."""
    nics, ratio = _nics(ports), _ratio(ports, terms) / 2
    each = nodes_per_unit or min(hosts, widest_leaf(radix, ratio, oversubscription))
    leaves = -(-hosts // each) * nics
    one = clos_shape(leaves, each, uplinks_for(each, ratio, oversubscription), radix)
    shape = Shape(2 * leaves, leaves, one.spines, one.uplinks)
    leaf = ports.host // each * nics + ports.rail
    made = _clos("dual-plane", ports, terms, shape, np.concatenate([leaf, leaf + leaves]))
    assert isinstance(made.wiring, Clos)
    both = TwoPlanes(made.wiring, len(ports))
    return Fabric(**{n: getattr(made, n) for n in Fabric.__slots__ if n != "wiring"}, wiring=both)


def _clos(kind: str, ports: Ports, terms: Terms, shape: Shape, leaf: Ints) -> Fabric:
    leaf = leaf.astype(np.int32)
    tiers = (
        ("leaf", numbered("leaf", shape.leaves)),
        ("spine", numbered("spine", shape.pods * shape.spines)),
        ("core", numbered("core", shape.cores)),
    )
    wiring = wiring_of(shape, leaf)
    return fabric(kind, tiers, ports, terms, leaf, cables_of(shape), wiring)


def _nics(ports: Ports) -> int:
    return int(ports.rail.max(initial=0)) + 1


def _ratio(ports: Ports, terms: Terms) -> float:
    """How much faster a NIC port is than a cable between switches."""
    return float(ports.rate.max(initial=0.0)) / terms.link


# **** Single switch ****
# One switch that joins all NICs and never blocks.


@dataclass(frozen=True, slots=True)
class OneSwitch:
    """Every port reaches every other through the one switch."""

    def choices(self, src: Ints, dst: Ints) -> Ints:
        """One path."""
        return np.ones(len(src), np.int32)

    def hops(self, src: Ints, dst: Ints, choice: Ints) -> Ints:
        """Up and down."""
        return columns(2 * src, 2 * dst + 1)

    def order(self, dst: Ints) -> Ints:
        """By destination port."""
        return dst


def single_switch(ports: Ports, terms: Terms) -> Fabric:
    """All ports on `switch0`."""
    none = np.zeros(0, np.int32)
    leaf = np.zeros(len(ports), np.int32)
    tiers = (("switch", ("switch0",)),)
    return fabric("single-switch", tiers, ports, terms, leaf, Cables(none, none), OneSwitch())
