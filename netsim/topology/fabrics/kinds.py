"""The kinds of fabrics: switches and cables from a few numbers. Paths are the network's business.

Folded Clos networks of two or three levels: leaf l's uplink u leads to spine u mod S of its pod;
spine a's uplink v leads to core v mod G of group a."""

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
# Ports of one switch: 64 as InfiniBand NDR, more where switch chips of 51.2 and 102.4 Tb/s are
# split into slower ports. Where nobody says which, the smallest that reaches all hosts.
SWITCH_PORTS = (64, 128, 256, 512)
_ROUND = 1e-9


def uplinks_for(down: int, ratio: float, oversubscription: float) -> int:
    """Return the fewest uplinks, at least 1, with which a leaf keeps to an oversubscription.

    The leaf has `down` ports to NICs, each `ratio` times as fast as an uplink.
    """
    return max(1, ceil(down * ratio / oversubscription - _ROUND))


class Uplinks(NamedTuple):
    """Uplinks of a leaf: `number` per leaf; `terms` of all cables between switches (slower than
    requested if one full-rate uplink is too much); `note` for the user, empty if the
    oversubscription is exact."""

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
    """Return the fewest uplinks with which a spine of `down` ports keeps to an oversubscription.

    Raises a TopologyError if even one uplink has less than this oversubscription.
    """
    if down < oversubscription * (1 - _ROUND):
        raise TopologyError(
            f"oversubscription: a spine has {down} ports down, and with one uplink it is {down}:1 "
            f"already, not {oversubscription:.3g}:1"
        )
    return uplinks_for(down, 1.0, oversubscription)


def widest_leaf(radix: int, ratio: float, oversubscription: float) -> int:
    """Return the most ports down of a switch that leave enough of its `radix` ports for uplinks.

    `ratio` is the rate of a port down over that of an uplink.
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

    Pods consist of whole `unit`s of leaves, `pod_units` of them (0: the most that fit). `ratio` is
    that of the ports of a spine down to those up. `levels` 3 asks for a third level even if two
    are enough."""

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
    """Return a network of two levels if spines have enough ports, else of three if allowed."""
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
    """Return a network of leaves, spines and cores, with the largest pods that a spine can reach.

    If the file requests three levels, there are at least two pods.
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
    """Whether `below` switches of `links` uplinks each can spread them evenly over `switches`.

    Each of the upper switches has `radix` ports, which must suffice.
    """
    return links % switches == 0 and below * (links // switches) <= radix


def _fits(switch: str, down: int, up: int, radix: int) -> None:
    if down + up > radix:
        raise TopologyError(
            f"ports: {switch} with {down} ports down and {up} up needs {down + up}, but a switch "
            f"has {radix}"
        )


def of_usual_switches(build: Callable[..., Fabric], keywords: dict[str, Any]) -> Fabric:
    """The fabric with the smallest usual switches that reach all hosts.

    Its note says so if these are not the smallest of all."""
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
    """What a fabric joins: ports, what its cables are, and the number of hosts."""

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
    """All NICs of a host on one leaf, `nodes_per_leaf` hosts a leaf, every leaf on every spine.
    Without `nodes_per_leaf` a leaf has the most hosts that fit, but at most half of them."""
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
    """A leaf a rail in every scalable unit; spines (and cores, if many units) join the rails."""
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
    """A network of its own for each rail; other rails are reached over NVLink only."""
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
    """The k-ary fat tree: k³/4 ports and 5k²/4 switches in 3 levels, k²/2 and 3k/2 in 2."""
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
    """Each NIC has two ports of half its rate, one in each of two rail-optimized networks."""
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
    leaf = leaf.astype(np.int32)
    tiers = (
        ("leaf", numbered("leaf", shape.leaves)),
        ("spine", numbered("spine", shape.pods * shape.spines)),
        ("core", numbered("core", shape.cores)),
    )
    note = up.note if shape.spines else ""
    return fabric(kind, tiers, ports, up.terms, leaf, cables_of(shape), note=note)


def _of_two(oversubscription: tuple[float, ...]) -> float:
    """Return the only oversubscription of a fabric of two levels, that of its leaves.

    Raises a TopologyError if the file has more than one.
    """
    if len(oversubscription) > 1:
        raise TopologyError(
            f"oversubscription: two levels of switches have one, got {len(oversubscription)}"
        )
    return oversubscription[0]


def _nics(ports: Ports) -> int:
    return int(ports.rail.max(initial=0)) + 1


def _ratio(ports: Ports, terms: FabricTerms) -> float:
    return float(ports.rate.max(initial=0.0)) / terms.link


def single_switch(ports: Ports, terms: FabricTerms) -> Fabric:
    """All ports on `switch0`."""
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
    """A router for each host; without `dims` a ring of all of them. `link` and `latency` are by
    dimension, `shape` is as for `grid_cables`."""
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


# The dragonfly: groups of fully joined routers, and links between every two groups.
# Kim et al., "Technology-Driven, Highly-Scalable Dragonfly Topology", 2008. Routers of group g are
# g·a … g·a + a - 1; global links are spread evenly over the other groups.


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

    Every two routers of a group share one cable. Every two groups share `lanes` cables: the
    `routers * global_links` global ports of a group, divided by the number of other groups and
    rounded down. With 4 routers of 2 global links and 5 groups, that is 8 / 4 = 2.
    """
    lanes = routers * global_links // max(1, groups - 1)
    x, y = np.triu_indices(routers, 1)
    group = np.arange(groups)[:, None] * routers
    a, b = (np.repeat(side, lanes).astype(np.int32) for side in np.triu_indices(groups, 1))
    lane = np.tile(np.arange(lanes, dtype=np.int32), groups * (groups - 1) // 2)

    def gateway(here: Ints, there: Ints) -> Ints:
        """The router of group `here` with the global link to `there`."""
        port = ((there - here) % groups - 1) * lanes + lane
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
    """Return the fabric of a list of switches and cables.

    The two ends of a cable are numbers: NIC ports first, then switches.
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


def far_apart(parts: Sequence[Fabric], ports: Ports, sites: Any) -> Fabric:
    """The fabrics of all sites, a border (`site0`) above the highest switches of each, and cables
    between every two borders. What joins a site to its border carries all that leaves it."""
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
