"""The kinds of fabrics: each function makes the switches and cables of one kind from a few numbers.
Paths through them are found by `topology/network.py`.

Cables of folded Clos networks of two or three levels: uplink u of a leaf leads to spine u mod S of
its pod, if a pod has S spines; uplink v of spine a leads to core v mod G of the G cores that serve
the spines with number a in all pods.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import ceil, inf, prod
from typing import Any, NamedTuple

import numpy as np

from netsim.base.units import format_bandwidth
from netsim.base.values import dataclass
from netsim.topology.graph import Ints, TopologyError
from netsim.topology.network import (
    Cables,
    Fabric,
    FabricTerms,
    Ports,
    fabric,
    numbered,
    with_derived_tiers,
)
from netsim.topology.routing import grid_cables


@dataclass(frozen=True, slots=True)
class Shape:
    """The numbers of switches and cables of a Clos network.

    - `leaves`: number of leaves of all pods.
    - `pod_leaves`: leaves of one pod; consecutive leaves are in one pod.
    - `spines`: spines of one pod.
    - `uplinks`: cables from one leaf to the spines of its pod.
    - `core_links`: cables from one spine to cores; 0 with two levels.
    - `group_cores`: cores that one spine reaches. Spine a of every pod reaches the same ones.
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
    """Return the cables of a Clos network: from leaves to spines, then from spines to cores.

    Switches are numbered in this order: all leaves, all spines, all cores.
    """
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


FEWEST_SPINES = 4  # as the scalable unit of a DGX SuperPOD has: losing one leaves most
# The sizes of switches, in ports, that are tried in this order if the file does not state `ports`:
# 64 as InfiniBand NDR; more where switch chips of 51.2 and 102.4 Tb/s are split into slower ports.
SWITCH_PORTS = (64, 128, 256, 512)
_ROUND = 1e-9


def uplinks_for(down: int, ratio: float, oversubscription: float) -> int:
    """Return the fewest uplinks, at least 1, with which a leaf does not exceed an oversubscription
    (bandwidth down over bandwidth up).

    The leaf has `down` ports to NICs, each `ratio` times as fast as an uplink.
    """
    return max(1, ceil(down * ratio / oversubscription - _ROUND))


class Uplinks(NamedTuple):
    """The uplinks of a leaf.

    Args:
        number: uplinks of each leaf.
        terms: rates of the cables between switches; slower than requested if one uplink of full
            rate would already exceed what the oversubscription allows.
        note: message for the user; empty if the oversubscription is exact.
    """

    number: int
    terms: FabricTerms
    note: str


def uplinks_of(down: int, ratio: float, oversubscription: float, terms: FabricTerms) -> Uplinks:
    """Return the uplinks of a leaf with `down` ports, each `ratio` times as fast as a cable of
    `terms`.

    The oversubscription requires `down * ratio / oversubscription` uplinks. If that is below 1,
    there is one uplink of a lower rate, which gives exactly this oversubscription. If it is not an
    integer, it is rounded up, and `note` states the oversubscription that results: 10 ports at 3:1
    require 3.33; 4 uplinks give 2.5:1."""
    wanted = down * ratio / oversubscription
    count = uplinks_for(down, ratio, oversubscription)
    if wanted < 1 - _ROUND:
        slower = replace(terms, link=terms.link * wanted)
        rate = format_bandwidth(slower.link, bits=True)
        note = (
            f"assumed: one uplink of {rate} per leaf; one of full rate for {down} ports would give "
            f"{down * ratio:.3g}:1, not {oversubscription:.3g}:1"
        )
        return Uplinks(1, slower, note)
    if count > wanted * (1 + _ROUND):
        note = (
            f"assumed: {count} uplinks for {down} ports of a leaf, which is "
            f"{down * ratio / count:.3g}:1; {oversubscription:.3g}:1 does not come out even"
        )
        return Uplinks(count, terms, note)
    return Uplinks(count, terms, "")


def core_uplinks_for(down: int, oversubscription: float) -> int:
    """Return the fewest uplinks with which a spine of `down` ports does not exceed an
    oversubscription.

    Raises a TopologyError if the oversubscription is larger than `down`: even a single uplink would
    give less.
    """
    if down < oversubscription * (1 - _ROUND):
        raise TopologyError(
            f"oversubscription: a spine has {down} ports down, and with one uplink it is {down}:1 "
            f"already, not {oversubscription:.3g}:1"
        )
    return uplinks_for(down, 1.0, oversubscription)


def widest_leaf(radix: int, ratio: float, oversubscription: float) -> int:
    """Return the most ports to NICs that a leaf of `radix` ports can have beside the uplinks that
    the oversubscription requires.

    `ratio` is the rate of a port to a NIC over that of an uplink.
    """
    down = int(radix / (1 + ratio / oversubscription) + _ROUND) + 1
    while down > 1 and down + uplinks_for(down, ratio, oversubscription) > radix:
        down -= 1
    if down + uplinks_for(down, ratio, oversubscription) > radix:
        raise TopologyError(f"ports: a switch of {radix} ports is too small for any leaf")
    return down


@dataclass(frozen=True, slots=True)
class Upper:
    """How a third level of switches is built.

    Args:
        unit: leaves of a scalable unit; pods consist of whole units.
        ratio: oversubscription of a spine: bandwidth down over bandwidth up.
        pod_units: units of a pod; 0: the most that fit.
        levels: 3 requires a third level even if two are enough, 2 forbids it, 0 decides by size.
    """

    unit: int
    ratio: float = 1.0
    pod_units: int = 0
    levels: int = 0


def clos_shape(
    leaves: int,
    down: int,
    uplinks: int,
    radix: int,
    spines: int | None = None,
    upper: Upper | None = None,
) -> Shape:
    """Return the shape of a Clos network: two levels if spines have enough ports, else three if
    `upper` allows them.

    Args:
        leaves: number of leaves.
        down: ports of a leaf to NICs.
        uplinks: ports of a leaf to spines.
        radix: ports of a switch.
        spines: number of spines; None: the fewest, from FEWEST_SPINES on, over which uplinks spread
            evenly.
        upper: how a third level is built; None: it is not allowed.
    """
    if leaves == 1:
        _fits("a leaf", down, 0, radix)
        return Shape(1, 1, 0, 0)
    _fits("a leaf", down, uplinks, radix)
    if upper is not None and upper.levels == 3:
        return _three_levels(leaves, uplinks, radix, upper)
    if spines is not None:
        if uplinks % spines:
            raise TopologyError(f"spines: {uplinks} uplinks a leaf do not spread over {spines}")
        _fits("a spine", leaves * uplinks // spines, 0, radix)
        return Shape(leaves, leaves, spines, uplinks)
    for count in range(min(uplinks, FEWEST_SPINES), uplinks + 1):
        if _spreads(uplinks, count, leaves, radix):
            return Shape(leaves, leaves, count, uplinks)
    if upper is None or upper.levels == 2:
        raise TopologyError(
            f"ports: {leaves} leaves need spines of {leaves} ports, but a switch has {radix}; take "
            "larger switches, more nodes a leaf, or a fabric of three levels"
        )
    return _three_levels(leaves, uplinks, radix, upper)


def _three_levels(leaves: int, uplinks: int, radix: int, upper: Upper) -> Shape:
    """Return the shape of a network of leaves, spines and cores, with the largest pods that a spine
    can reach.

    If the file requests three levels, there are at least two pods.

    Args:
        leaves: number of leaves.
        uplinks: ports of a leaf to spines.
        radix: ports of a switch.
        upper: how the third level is built.
    """
    widest = widest_leaf(radix, 1.0, upper.ratio)
    pod_leaves = widest // upper.unit * upper.unit or widest
    if upper.levels == 3:
        pod_leaves = min(pod_leaves, -(-leaves // upper.unit // 2) * upper.unit)
    pod_leaves = upper.pod_units * upper.unit or pod_leaves
    pods = ceil(leaves / pod_leaves)
    core_links = core_uplinks_for(pod_leaves, upper.ratio)
    _fits("a spine", pod_leaves, core_links, radix)
    if pods > radix:
        raise TopologyError(
            f"ports: {leaves} leaves in {pods} pods need cores of {pods} ports, but a switch has "
            f"{radix}; three levels reach no further"
        )
    cores = next(n for n in range(1, core_links + 1) if _spreads(core_links, n, pods, radix))
    return Shape(leaves, pod_leaves, uplinks, uplinks, core_links, cores)


def _spreads(links: int, switches: int, below: int, radix: int) -> bool:
    """Whether `below` switches of `links` uplinks each can spread these evenly over `switches`
    upper switches of `radix` ports each.
    """
    return links % switches == 0 and below * (links // switches) <= radix


def _fits(switch: str, down: int, up: int, radix: int) -> None:
    """Refuse a switch (named `switch` in the message) whose ports down and up exceed `radix`."""
    if down + up > radix:
        raise TopologyError(
            f"ports: {switch} with {down} ports down and {up} up needs {down + up}, but a switch "
            f"has {radix}"
        )


def of_usual_switches(build: Callable[..., Fabric], keywords: dict[str, Any]) -> Fabric:
    """Return the fabric that `build` makes with the smallest switches of SWITCH_PORTS that reach
    all hosts.

    `keywords` are the other arguments of `build`. The note of the fabric states the size if it is
    not the smallest of SWITCH_PORTS.
    """
    refused: list[TopologyError] = []
    for radix in SWITCH_PORTS:
        try:
            made = build(**{**keywords, "radix": radix})
        except TopologyError as error:
            if not error.message.startswith("ports: "):
                raise
            refused.append(error)
            continue
        if not refused:
            return made
        note = f"assumed: switches of {radix} ports, for those of {SWITCH_PORTS[0]} do not reach "
        note += "all hosts (cluster.fabric.ports names others)"
        return replace(made, note="; ".join(filter(None, (note, made.note))))
    raise refused[0]


class Site(NamedTuple):
    """What a fabric joins: the NIC ports, the rates of its cables, and the number of hosts for
    which it is built.
    """

    ports: Ports
    terms: FabricTerms
    hosts: int


Ratios = tuple[float, ...]  # bandwidth down over bandwidth up of the switches of every tier
MaybeCount = int | None  # None: the most that fit


def leaf_spine(
    at: Site,
    *,
    radix: int,
    oversubscription: Ratios,
    nodes_per_leaf: MaybeCount,
    spines: MaybeCount,
) -> Fabric:
    """Return a leaf-spine fabric: all NICs of a host on one leaf, every leaf cabled to every spine.

    Args:
        at: ports, rates and hosts.
        radix: ports of a switch.
        oversubscription: one value, that of the leaves.
        nodes_per_leaf: hosts of a leaf; None: the most that fit, but at most half of all hosts.
        spines: number of spines; None: derived from the uplinks.
    """
    ports, terms, hosts = at
    nics = _nics(ports)
    ratio = _ratio(ports, terms)
    over = _of_two(oversubscription)
    widest = widest_leaf(radix, ratio, over)
    hosts_per_leaf = nodes_per_leaf or min(widest // nics, -(-hosts // 2))
    if hosts_per_leaf < 1:
        raise TopologyError(f"ports: a host with {nics} NICs does not fit a leaf of {radix} ports")
    leaves = -(-hosts // hosts_per_leaf)
    down = hosts_per_leaf * nics
    up = uplinks_of(down, ratio, over, terms)
    shape = clos_shape(leaves, down, up.number, radix, spines)
    return _clos("leaf-spine", ports, up, shape, ports.host // hosts_per_leaf)


def rail_optimized(
    at: Site,
    *,
    radix: int,
    oversubscription: Ratios,
    nodes_per_unit: MaybeCount,
    spines: MaybeCount,
    levels: MaybeCount,
    units_per_pod: MaybeCount,
) -> Fabric:
    """Return a rail-optimized fabric: each scalable unit of hosts has one leaf per rail; spines
    join all leaves, and cores the pods of spines if there are many units.

    Args:
        at: ports, rates and hosts.
        radix: ports of a switch.
        oversubscription: that of the leaves and, with three levels, that of the spines.
        nodes_per_unit: hosts of a scalable unit; None: the most that fit.
        spines: number of spines of two levels; None: derived from the uplinks.
        levels: levels of switches; None: two if they are enough.
        units_per_pod: scalable units of a pod; None: the most that fit.
    """
    ports, terms, hosts = at
    nics = _nics(ports)
    ratio = _ratio(ports, terms)
    (over, *above) = oversubscription
    three = levels or (3 if units_per_pod or above else 0)
    upper = Upper(nics, above[-1] if above else 1.0, units_per_pod or 0, three)
    hosts_per_unit = nodes_per_unit or min(hosts, widest_leaf(radix, ratio, over))
    units = -(-hosts // hosts_per_unit)
    up = uplinks_of(hosts_per_unit, ratio, over, terms)
    shape = clos_shape(units * nics, hosts_per_unit, up.number, radix, spines, upper)
    leaf = ports.host // hosts_per_unit * nics + ports.rail
    return _clos("rail-optimized", ports, up, shape, leaf)


def rail_only(
    at: Site, *, radix: int, oversubscription: Ratios, nodes_per_unit: MaybeCount
) -> Fabric:
    """Return a fabric with a separate two-level network for each rail; `at` has the ports, rates
    and hosts. A NIC of another rail is reached only by passing data over NVLink first.
    """
    ports, terms, hosts = at
    nics = _nics(ports)
    ratio = _ratio(ports, terms)
    over = _of_two(oversubscription)
    widest = radix if hosts <= radix else widest_leaf(radix, ratio, over)
    hosts_per_unit = nodes_per_unit or min(hosts, widest)
    units = -(-hosts // hosts_per_unit)
    up = uplinks_of(hosts_per_unit, ratio, over, terms)
    shape = clos_shape(units, hosts_per_unit, up.number, radix)
    rails = Shape(units * nics, units, shape.spines, shape.uplinks)
    return _clos("rail-only", ports, up, rails, ports.rail * units + ports.host // hosts_per_unit)


def fat_tree(at: Site, *, k: MaybeCount, levels: int, oversubscription: Ratios) -> Fabric:
    """Return the k-ary fat tree: with 3 levels it has k³/4 NIC ports and 5k²/4 switches, with 2
    levels k²/2 NIC ports and 3k/2 switches.

    Without `k` it is the smallest even k with enough ports (above 8, only one with which no host is
    divided between edge switches, as nobody would cable it so).
    """
    ports, terms, hosts = at
    nics = _nics(ports)
    per_port = 4 if levels == 3 else 2
    need = hosts * nics
    if k is None:  # over 8 ports, no host is split between edge switches, as nobody would wire it
        k = next(
            k
            for k in range(2, 2**20, 2)
            if k**levels // per_port >= need and (k <= 8 or 0 in (k // 2 % nics, nics % (k // 2)))
        )
    if k % 2:
        raise TopologyError(f"k: a fat tree needs an even k, got {k}")
    have = k**levels // per_port
    if have < need:
        raise TopologyError(
            f"k: a fat tree of {levels} levels with k = {k} has {have} ports, but {hosts} hosts "
            f"need {need}"
        )
    half = k // 2
    above = (*oversubscription, 1.0) if levels == 3 else (_of_two(oversubscription), 1.0)
    up = uplinks_of(half, 1.0, above[0], terms)
    shape = Shape(k, k, up.number, up.number)
    if levels == 3:
        core = core_uplinks_for(half, above[1])
        shape = Shape(k * half, half, up.number, up.number, core, core)
    return _clos("fat-tree", ports, up, shape, (ports.host * nics + ports.rail) // half)


def dual_plane(
    at: Site, *, radix: int, oversubscription: Ratios, nodes_per_unit: MaybeCount
) -> Fabric:
    """Return two separate rail-optimized networks of two levels. Each NIC has two ports of half its
    rate, one in each network.
    """
    ports, terms, hosts = at
    nics = _nics(ports)
    ratio = _ratio(ports, terms) / 2
    over = _of_two(oversubscription)
    hosts_per_unit = nodes_per_unit or min(hosts, widest_leaf(radix, ratio, over))
    leaves = -(-hosts // hosts_per_unit) * nics
    up = uplinks_of(hosts_per_unit, ratio, over, terms)
    plane = clos_shape(leaves, hosts_per_unit, up.number, radix)
    shape = Shape(2 * leaves, leaves, plane.spines, plane.uplinks)
    leaf = ports.host // hosts_per_unit * nics + ports.rail
    return _clos("dual-plane", ports, up, shape, np.concatenate([leaf, leaf + leaves]))


def _clos(kind: str, ports: Ports, up: Uplinks, shape: Shape, leaf: Ints) -> Fabric:
    """Return the fabric of a Clos shape; `leaf` is the leaf of every port, `up` the uplinks of a
    leaf.
    """
    leaf = leaf.astype(np.int32)
    tiers = (
        ("leaf", numbered("leaf", shape.leaves)),
        ("spine", numbered("spine", shape.pods * shape.spines)),
        ("core", numbered("core", shape.cores)),
    )
    note = up.note if shape.spines else ""
    return fabric(kind, tiers, ports, up.terms, leaf, cables_of(shape), note=note)


def _of_two(oversubscription: tuple[float, ...]) -> float:
    """Return the single oversubscription of a fabric of two levels, that of its leaves.

    Raises a TopologyError if the file has more than one.
    """
    if len(oversubscription) > 1:
        raise TopologyError(
            f"oversubscription: two levels of switches have one, got {len(oversubscription)}"
        )
    return oversubscription[0]


def _nics(ports: Ports) -> int:
    """The number of rails: the NICs of the host that has most."""
    return int(ports.rail.max(initial=0)) + 1


def _ratio(ports: Ports, terms: FabricTerms) -> float:
    """The rate of the fastest NIC port over that of a cable between switches."""
    return float(ports.rate.max(initial=0.0)) / terms.link


def single_switch(ports: Ports, terms: FabricTerms) -> Fabric:
    """Return a fabric with all ports on one switch, `switch0`."""
    none = np.zeros(0, np.int32)
    leaf = np.zeros(len(ports), np.int32)
    tiers = (("switch", ("switch0",)),)
    return fabric("single-switch", tiers, ports, terms, leaf, Cables(none, none))


def torus(
    at: Site,
    *,
    dims: tuple[int, ...] | None = None,
    kind: str = "torus",
    link: tuple[float, ...] = (),
    latency: tuple[float, ...] = (),
    **shape: Any,
) -> Fabric:
    """Return a torus with one router for each host, or a ring of all hosts if `dims` is None.

    Args:
        at: ports, rates and hosts.
        dims: number of routers in each dimension.
        kind: `torus` or `ring`, for messages.
        link: line rate of cables in each dimension, bytes per second; empty: that of `at.terms`.
        latency: seconds of a hop in each dimension; empty: that of `at.terms`.
        shape: `twist`, `cube` and `optical`, see `grid_cables`.
    """
    ports, terms, hosts = at
    extents = dims or (hosts,)
    count = prod(extents)
    grid = " x ".join(map(str, extents))
    if count < hosts:
        raise TopologyError(
            f"dims: a torus of {grid} has {count} routers, not {hosts} for the hosts"
        )
    low, high, axis, optical = grid_cables(extents, **shape)
    for name, values in (("link", link), ("latency", latency)):
        if values and len(values) != len(extents):
            raise TopologyError(f"{name}: expected one for each of {len(extents)} dimensions")
    hop = np.array(latency or [terms.hop] * len(extents))[axis] + optical
    rate = np.array(link or [terms.link] * len(extents))[axis]
    router = ports.host.astype(np.int32)
    tiers = (("router", numbered("router", count)),)
    made = fabric(kind, tiers, ports, terms, router, Cables(low, high), grid=extents)
    inner = 2 * len(ports)
    return replace(
        made,
        bandwidth=np.r_[made.bandwidth[:inner], np.repeat(rate * terms.usable, 2)],
        latency=np.r_[made.latency[:inner], np.repeat(hop, 2)],
    )


# The dragonfly: groups of fully joined routers, and cables between every two groups (Kim et al.,
# "Technology-Driven, Highly-Scalable Dragonfly Topology", 2008). With a routers per group, group g
# has the routers g·a … g·a + a - 1. Its cables to other groups are spread evenly over these groups.


def dragonfly(
    at: Site,
    *,
    radix: int,
    routers: int,
    ports_per_router: int,
    global_links: int,
    groups: MaybeCount,
) -> Fabric:
    """Return a dragonfly: groups of `routers` routers, with cables between every two groups.

    Each router has `ports_per_router` NIC ports and `global_links` cables to other groups. Without
    `groups` there are the fewest groups that hold all NIC ports.
    """
    ports, terms, hosts = at
    nics = _nics(ports)
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
    tiers = (("router", numbered("router", count * routers)),)
    cables = _group_cables(count, routers, global_links)
    group = np.repeat(np.arange(count, dtype=np.int32), routers)
    return fabric("dragonfly", tiers, ports, terms, router, cables, groups=group)


def _group_cables(groups: int, routers: int, global_links: int) -> Cables:
    """Return the cables of a dragonfly: inside groups first, then between groups.

    Every two routers of a group share one cable. Every two groups share this number of cables: the
    `routers * global_links` global ports of a group, divided by the number of other groups and
    rounded down. With 4 routers of 2 global links and 5 groups, that is 8 / 4 = 2.
    """
    cable_count = routers * global_links // max(1, groups - 1)
    x, y = np.triu_indices(routers, 1)
    group = np.arange(groups)[:, None] * routers
    a, b = (np.repeat(side, cable_count).astype(np.int32) for side in np.triu_indices(groups, 1))
    cable_number = np.tile(np.arange(cable_count, dtype=np.int32), groups * (groups - 1) // 2)

    def gateway(here: Ints, there: Ints) -> Ints:
        """Return, for each cable between groups, the number of the router at its end in group
        `here[i]`, if the other end of cable i is in group `there[i]`.
        """
        port = ((there - here) % groups - 1) * cable_count + cable_number
        router: Ints = here * routers + port // global_links
        return router

    return Cables(
        np.concatenate([(group + x).ravel(), gateway(a, b)]).astype(np.int32),
        np.concatenate([(group + y).ravel(), gateway(b, a)]).astype(np.int32),
    )


Cable = tuple[int, int, float | None, float | None]  # ends, bytes/s, seconds


def custom(
    ports: Ports,
    terms: FabricTerms,
    switches: tuple[str, ...],
    cables: list[Cable],
    groups: Ints | None = None,
) -> Fabric:
    """Return the fabric of a list of switches and cables. Raises a TopologyError if a NIC port has
    no cable.

    Args:
        ports: NIC ports of all hosts.
        terms: rates and latencies of the links for which a cable states none.
        switches: names of the switches.
        cables: for each cable (end, end, line rate in bytes per second or None, latency in seconds
            or None). Ends are numbers: NIC ports first, then switches. A cable without a rate has
            that of its NIC port, or `terms.link` between switches.
        groups: group of every switch, -1 if it is in none; None: the fabric has no groups.
    """
    joined = {end for cable in cables for end in cable[:2]}
    missing = next((port for port in range(len(ports)) if port not in joined), None)
    if missing is not None:
        name = f"node{ports.owner[missing]}.nic{ports.rail[missing]}"
        raise TopologyError(f"links: {name} is on no switch")
    port_counts = np.bincount(
        [end for low, high, *_ in cables for end in {low, high}], minlength=len(ports)
    )
    ends = []
    rates = []
    delays = []
    for low, high, rate, latency in cables:
        port = next((end for end in (low, high) if end < len(ports)), None)
        usual = terms.link if port is None else float(ports.rate[port])
        most = inf if port is None else terms.nic_cap / int(port_counts[port])
        carried = min((rate or usual) * terms.usable, most)
        for tail, head in ((low, high), (high, low)):
            hop = terms.nic if head < len(ports) else terms.hop
            ends.append((tail, head))
            rates.append(carried)
            delays.append(hop if latency is None else latency)
    out, into = np.array(ends, np.int32).reshape(-1, 2).T.copy()
    level = np.zeros(len(switches), np.int32)
    columns = (np.array(rates), np.array(delays))
    made = Fabric("custom", terms, len(ports), switches, (), level, out, into, *columns, groups)
    return with_derived_tiers(made)


def join_sites(parts: Sequence[Fabric], ports: Ports, sites: Any) -> Fabric:
    """Join the fabrics of several sites to one.

    Each site gets a border switch (`site0`, …), cabled to all its highest switches, and
    `sites.links` cables lead from each border to every other one. The cables from a site to its
    border are fast enough for all that leaves the site.

    Args:
        parts: the fabric of each site.
        ports: NIC ports of all sites.
        sites: the `sites` section (`config.Sites`).
    """
    first = np.cumsum([0, *(len(part.switches) for part in parts)])
    leaf = list[Ints]()
    low = list[Ints]()
    high = list[Ints]()
    for number, part in enumerate(parts):
        inner = 2 * part.ports
        at = first[number] - part.ports
        top = np.flatnonzero(part.level == part.level.max()) + first[number]
        leaf.append(part.head[:inner:2] + at)
        low += [part.tail[inner::2] + at, top]
        high += [part.head[inner::2] + at, np.full(len(top), first[-1] + number)]
    a, b = (np.repeat(end, sites.links) for end in np.triu_indices(len(parts), 1))
    tail = np.concatenate([*low, first[-1] + a])
    head = np.concatenate([*high, first[-1] + b])
    names = [f"site{n}.{name}" for n, part in enumerate(parts) for name in part.switches]
    tiers = (("site", (*names, *numbered("site", len(parts)))),)
    terms = parts[0].terms
    made = fabric(parts[0].kind, tiers, ports, terms, np.concatenate(leaf), Cables(tail, head))
    rate = np.where(head < first[-1], terms.link, sites.bandwidth) * terms.usable
    rate[(head >= first[-1]) & (tail < first[-1])] *= sites.links * (len(parts) - 1)
    delay = np.where(tail < first[-1], terms.hop, sites.delay)
    levels = [*(part.level for part in parts), np.full(len(parts), len(parts[0].tiers))]
    return replace(
        made,
        tiers=(*parts[0].tiers, "site"),
        level=np.concatenate(levels).astype(np.int32),
        bandwidth=np.r_[made.bandwidth[: 2 * len(ports)], np.repeat(rate, 2)],
        latency=np.r_[made.latency[: 2 * len(ports)], np.repeat(delay, 2)],
    )
