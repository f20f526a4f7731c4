"""The tiered fabrics: leaf-spine, fat-tree, rail-optimized, rail-only and dual-plane."""

import numpy as np

from netsim.topology.fabrics.clos import Clos, Shape, cables_of, wiring_of
from netsim.topology.fabrics.fabric import Fabric, Ints, Ports, Terms, fabric, numbered
from netsim.topology.fabrics.shapes import clos_shape, uplinks_for, widest_leaf
from netsim.topology.layout import TopologyError
from netsim.values import dataclass


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
