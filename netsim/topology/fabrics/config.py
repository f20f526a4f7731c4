"""The models of the `fabric` part of a cluster, one for each kind, and functions that build the
Fabric and the routing policy from them.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import cached_property, partial
from itertools import combinations
from math import inf
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BeforeValidator, Field, model_validator

from netsim.base.constants import value
from netsim.base.errors import shown, suggest
from netsim.base.units import parse_ratio
from netsim.base.values import dataclass
from netsim.topology.fabrics import kinds
from netsim.topology.fabrics.kinds import Cable as CableEnds
from netsim.topology.graph import Ints, TopologyError
from netsim.topology.machine import Transport, TransportName
from netsim.topology.network import FAR, Fabric, FabricNetwork, FabricTerms, Policy, Ports
from netsim.yamlio import models

Radix = Annotated[int, Field(ge=2, le=4096)]
SECONDS_A_METRE = value("wire.metre")
NIC_SECONDS = value("wire.nic")  # entering a NIC, as inside a host

Routing = Literal["static", "ecmp", "spray", "adaptive", "minimal", "valiant", "rail"]


def _down_to_up(value: Any) -> float:
    ratio = parse_ratio(value)
    if ratio < 1:
        raise ValueError(f"expected at least 1, got {shown(value)}")
    return ratio


ByTier = Annotated[
    tuple[float, ...],
    models.Quantity(
        _down_to_up, 2, "2:1", [1, 2], kind=["string", "number", "array"], several=True
    ),
    Field(min_length=1, max_length=2),
]


class _Fabric(models.Model):
    """The keys that every kind of fabric has.

    - `nic`: line rate of the NICs, bytes per second (default: that of the machine).
    - `link`: line rate of a cable between switches (default: that of a NIC).
    - `latency`: seconds of one switch hop (default: that of the transport).
    - `cable_metres`: length of each cable.
    - `transport`: kind of network, such as `infiniband` (default: that of the oldest machine).
    - `routing`: how connections choose among equally short paths (see `Policy`).
    - `seed`: seed of the hashes that choose paths.
    - `nodes`: number of hosts for which it is built, if more than the job has.
    - `sharp`: its switches add up data on its way (SHARP), as NCCL's CollNet and NVLS between nodes
      use it.
    - `qps`: queue pairs of a connection.
    - `split_on_qps`: whether every message is divided among all queue pairs; else successive
      messages use them in turn.
    - `window`: bytes that each connection may have in flight.
    - `delivery`: whether packets of a message arrive in order (default: as the transport has it).
    - `incast`: the fraction by which a NIC takes longer to receive a byte for each further NIC that
      sends to it; `true`: the fraction measured for the transport.
    """

    nic: models.Bandwidth | None = None
    link: models.Bandwidth | None = None
    latency: models.Seconds | None = None
    cable_metres: Annotated[float, Field(ge=0, le=100_000)] = 0.0
    transport: TransportName | None = None
    routing: Routing | None = None
    qps: Annotated[int, Field(ge=1, le=128)] = 1
    split_on_qps: bool = True
    window: models.Bytes | None = None
    delivery: Literal["in-order", "out-of-order"] | None = None
    incast: bool | models.Part = False
    seed: models.Index = 0
    nodes: models.Count | None = None
    sharp: bool = False


class SingleSwitch(_Fabric):
    """All NICs on one switch that never blocks."""

    kind: Literal["single-switch"]


class _Tiered(_Fabric):
    """The keys of folded Clos fabrics: leaves, spines and perhaps cores.

    - `ports`: ports of a switch (default: 64, or the next larger size if that does not reach all
      hosts).
    - `oversubscription`: bandwidth down over bandwidth up of a leaf; with three levels a list of
      that of a leaf and that of a spine.
    """

    ports: Radix = kinds.SWITCH_PORTS[0]
    oversubscription: ByTier = (1.0,)


class LeafSpine(_Tiered):
    """A leaf-spine fabric: all NICs of a host are on one leaf.

    - `nodes_per_leaf`: hosts of a leaf (default: the most that fit, at most half of all).
    - `spines`: number of spines (default: derived from the uplinks).
    """

    kind: Literal["leaf-spine"]
    nodes_per_leaf: models.Count | None = None
    spines: models.Count | None = None


class RailOptimized(_Tiered):
    """A rail-optimized fabric: each scalable unit of hosts has one leaf for each rail.

    - `nodes_per_unit`: hosts of a scalable unit (default: the most that fit).
    - `spines`: number of spines (default: derived from the uplinks).
    - `levels`: 2 (leaves and spines) or 3 (cores join pods of leaves and spines).
    - `units_per_pod`: scalable units of a pod with three levels.
    """

    kind: Literal["rail-optimized"]
    nodes_per_unit: models.Count | None = None
    spines: models.Count | None = None
    levels: Literal[2, 3] | None = None
    units_per_pod: models.Count | None = None


class RailOnly(_Tiered):
    """A separate network for each rail; `nodes_per_unit` is the number of hosts that share its
    leaves.
    """

    kind: Literal["rail-only"]
    nodes_per_unit: models.Count | None = None


class DualPlane(_Tiered):
    """Two separate rail-optimized networks; each NIC has a port of half its rate in both."""

    kind: Literal["dual-plane"]
    nodes_per_unit: models.Count | None = None


class FatTree(_Fabric):
    """The k-ary fat tree of two or three levels; without `k` the smallest one with enough ports."""

    kind: Literal["fat-tree"]
    k: Annotated[int, Field(ge=2, le=1024)] | None = None
    levels: Literal[2, 3] = 3
    oversubscription: ByTier = (1.0,)


class DragonflyFabric(_Fabric):
    """A dragonfly: groups of routers with a cable between every two routers of a group, and cables
    between all groups.

    - `ports`: ports of a router.
    - `routers`: routers of a group.
    - `ports_per_router`: NIC ports of a router.
    - `global_links`: cables of a router to other groups.
    - `groups`: number of groups (default: the fewest that hold all NICs).
    """

    kind: Literal["dragonfly"]
    ports: Radix = 64
    routers: models.Count = 8
    ports_per_router: models.Count = 16
    global_links: models.Count = 4
    groups: models.Count | None = None


class TorusFabric(_Fabric):
    """A torus with one router for each host, cabled to its neighbors in every dimension.

    - `dims`: number of routers in each dimension.
    - `link`, `latency`: one value, or a list with one value for each dimension.
    - `twist`: whether the cables that close a dimension of length k are shifted by k in the
      dimensions of length 2k.
    - `cube`: routers along the edge of a cube; cables between cubes pass optical switches.
    - `optical`: seconds that such cables take longer.
    """

    kind: Literal["torus"]
    dims: Annotated[models.ListOf[models.Count], Field(min_length=1, max_length=4)]
    link: models.Bandwidths = ()  # type: ignore[assignment]
    latency: models.Delays = ()  # type: ignore[assignment]
    twist: bool = False
    cube: models.Index = 0
    optical: models.Seconds = 0.0


class RingFabric(_Fabric):
    """A ring with one router for each host, cabled to the next."""

    kind: Literal["ring"]


def _with_kind(value: object) -> object:
    """Add `kind: rail-optimized` to a fabric without a kind."""
    if isinstance(value, dict) and "kind" not in value:
        return {**value, "kind": "rail-optimized"}
    return value


class Cable(models.Model):
    """`count` cables from each node that `from` matches to each node that `to` matches.

    Nodes are switches, or NICs such as `node0.nic0`; names may be patterns with `*`, `?` and
    `[0-3]`.
    """

    tail: Annotated[str, Field(alias="from")]
    head: Annotated[str, Field(alias="to")]
    count: models.Count = 1
    bandwidth: models.Bandwidth | None = None
    latency: models.Seconds | None = None


class CustomFabric(_Fabric):
    """A fabric that lists its switches and cables.

    `groups` maps the name of a group to its switches; routing between groups (minimal, valiant)
    needs it.
    """

    kind: Literal["custom"]
    switches: Annotated[models.ListOf[str], Field(min_length=1)]
    links: models.ListOf[Cable]
    groups: dict[str, models.ListOf[str]] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _once(self) -> "CustomFabric":
        for number, name in enumerate(self.switches):
            if name in self.switches[:number]:
                raise models.FieldError(f"two switches are called '{name}'", "switches", number)
        return self


_Between = (
    SingleSwitch
    | LeafSpine
    | RailOptimized
    | RailOnly
    | DualPlane
    | FatTree
    | DragonflyFabric
    | TorusFabric
    | RingFabric
    | CustomFabric
)


class NvlinkDomain(_Fabric):
    """NVLink domains of `hosts` hosts each. `between` is the fabric that joins the domains; by
    default a single switch with the rates and latencies given here.
    """

    kind: Literal["nvlink-domain"]
    hosts: models.Count
    between: (
        Annotated[_Between, Field(discriminator="kind"), BeforeValidator(_with_kind)] | None
    ) = None

    @model_validator(mode="after")
    def _told_once(self) -> "NvlinkDomain":
        foreign = sorted(self.model_fields_set - {"kind", "hosts", "between"})
        if self.between is not None and foreign:
            raise models.FieldError(
                "belongs to the fabric between the domains: below between", foreign[0]
            )
        return self


FabricConfig = Annotated[
    _Between | NvlinkDomain, Field(discriminator="kind"), BeforeValidator(_with_kind)
]
_OWN = set(_Fabric.model_fields) | {"kind"}
REDUCING = ("single-switch", "leaf-spine", "fat-tree", "rail-optimized", "rail-only", "custom")
Builder = Callable[..., Fabric]
BUILDERS: dict[str, Builder] = {
    "leaf-spine": kinds.leaf_spine,
    "rail-optimized": kinds.rail_optimized,
    "rail-only": kinds.rail_only,
    "dual-plane": kinds.dual_plane,
    "fat-tree": kinds.fat_tree,
    "dragonfly": kinds.dragonfly,
    "torus": kinds.torus,
}


JOINED = ("single-switch", "leaf-spine", "fat-tree", "rail-optimized", "nvlink-domain")


def build_sites(
    config: Any, ports: Ports, hosts: Sequence[int], transport: Transport, sites: Any
) -> Fabric:
    """Build a fabric at each site for its hosts, and join them by cables between the sites.

    Args:
        config: the fabric of each site.
        ports: NIC ports of all hosts.
        hosts: number of hosts of each site.
        transport: the transport.
        sites: the `sites` section of the cluster.
    """
    if config.kind not in JOINED or config.sharp:
        problem = "sharp: switches reduce" if config.sharp else f"kind: {config.kind} has switches"
        raise TopologyError(
            f"{problem} at one site only; sites join fabrics of kind {', '.join(JOINED[:-1])}"
        )
    parts = []
    owner = np.repeat(np.arange(len(hosts)), hosts)[ports.host]
    for site, count in enumerate(hosts):
        is_here = owner == site
        first = sum(hosts[:site])
        host = ports.host[is_here] - first
        rail = ports.rail[is_here]
        rate = ports.rate[is_here]
        site_ports = Ports(host, rail, rate, ports.owner[is_here])
        parts.append(build_fabric(config, site_ports, count, transport))
    return kinds.join_sites(parts, ports, sites)


def build_fabric(config: Any, ports: Ports, hosts: int, transport: Transport) -> Fabric:
    """Build the fabric that joins NIC ports, for `hosts` hosts; refuse what its kind cannot do."""
    if config.sharp and config.kind not in REDUCING:
        raise TopologyError(
            f"sharp: switches of kind {config.kind} form no tree to reduce along; expected one of "
            f"{', '.join(REDUCING)}"
        )
    if config.sharp and transport.name != "infiniband":
        raise TopologyError(
            f"sharp: only InfiniBand switches reduce, the transport is {transport.name} (set "
            "transport: infiniband)"
        )
    made = replace(_joined(config, ports, hosts, transport), reduces=config.sharp)
    if config.routing == "spray" and _in_order(config, transport):
        raise TopologyError(
            f"routing: spray lets packets of a message overtake each other, and {transport.name} "
            "delivers in order: it would drop and resend them; take adaptive, or ecmp with several "
            "qps, or say delivery: out-of-order if NICs place packets as they come"
        )
    check_routing(made, policy_of(config, transport, ports.fastest_rate).routing)
    return made


def _joined(config: Any, ports: Ports, hosts: int, transport: Transport) -> Fabric:
    stated_latency = _single_value(config.latency)
    cable = config.cable_metres * SECONDS_A_METRE
    hop = (transport.hop if stated_latency is None else stated_latency) + cable
    link = _single_value(config.link) or ports.fastest_rate
    arrival = NIC_SECONDS + transport.latency
    terms = FabricTerms(link, hop, arrival, transport.usable, transport.nic_cap)
    if config.kind in ("single-switch", "nvlink-domain"):
        return kinds.single_switch(ports, terms)
    if config.kind == "custom":
        places = zip(ports.owner.tolist(), ports.rail.tolist(), strict=True)
        nodes = _FabricNodes(
            tuple(f"node{host}.nic{rail}" for host, rail in places), config.switches
        )
        cables = _cables(nodes, config.links)
        groups = _groups(nodes, config.groups)
        made = kinds.custom(ports, terms, config.switches, cables, groups)
        _check_reached(made, ports)
        return made
    if config.kind == "ring":
        return kinds.torus(kinds.Site(ports, terms, hosts), kind="ring")
    names = [name for name in type(config).model_fields if name not in _OWN]
    keywords = {name: getattr(config, name) for name in names}
    if "ports" in keywords:
        keywords["radix"] = keywords.pop("ports")
    if config.kind == "torus" and len(config.link) > 1:
        keywords["link"] = config.link
    if config.kind == "torus" and len(config.latency) > 1:
        keywords["latency"] = tuple(hop + cable for hop in config.latency)
    build = partial(BUILDERS[config.kind], kinds.Site(ports, terms, hosts))
    if isinstance(config, _Tiered) and "ports" not in config.model_fields_set:
        return kinds.of_usual_switches(build, keywords)
    return build(**keywords)


def _single_value(value: float | tuple[float, ...] | None) -> float | None:
    """Return the value of a key that may be a list with one for each dimension; None if it has
    several.
    """
    if isinstance(value, tuple):
        return value[0] if len(value) == 1 else None
    return value


def policy_of(config: Any, transport: Transport, nic_rate: float) -> Policy:
    """Return how connections choose among equally short paths in a fabric.

    `nic_rate` is the line rate of the fastest NIC in bytes/s: it tells the generation of the
    switches, and so what they usually do.
    """
    in_order = _in_order(config, transport)
    usual_of_kind = {"torus": "static", "ring": "static"}
    if in_order:  # packets of a message must not overtake each other, so they are not sprayed
        usual_routing = transport.routing
    else:
        usual_routing = transport.routing_for(nic_rate)
        usual_of_kind["dual-plane"] = "spray"
    routing = config.routing or usual_of_kind.get(config.kind, usual_routing)
    return Policy(
        "static" if routing == "rail" else routing,
        config.seed,
        config.qps,
        config.split_on_qps,
        in_order=in_order,
        window=config.window or inf,
        incast=_incast(config, transport),
    )


def _incast(config: Any, transport: Transport) -> float:
    """The fraction by which a NIC takes longer to receive a byte for each further sender."""
    if config.incast is True and not transport.incast:
        raise TopologyError(
            f"incast: nobody measured what senders cost each other on {transport.name}; expected a "
            "part, such as 10%"
        )
    return transport.incast if config.incast is True else float(config.incast)


def _in_order(config: Any, transport: Transport) -> bool:
    """Whether the packets of a message must arrive in order."""
    if config.delivery is None:
        return transport.in_order
    return bool(config.delivery == "in-order")


def check_routing(made: Fabric, routing: str) -> None:
    """Refuse minimal and valiant routing on a fabric without suitable groups of switches.

    Every switch with NICs must be in a group, every two groups with NICs must share a link, and the
    switches of a group must be connected inside it.
    """
    if routing not in ("minimal", "valiant"):
        return
    if made.groups is None:
        raise TopologyError(
            f"routing: {routing} chooses among the links between groups of switches, and a fabric "
            f"of kind {made.kind} has no groups; take static, ecmp, spray or adaptive, or declare "
            "the groups of a custom fabric"
        )
    network = FabricNetwork(made)
    used = np.unique(network.port_targets[1][1])
    groupless = used[made.groups[used] < 0]
    if len(groupless):
        name = made.switches[int(groupless[0])]
        raise TopologyError(f"groups: '{name}' has NICs and is in no group, as {routing} needs")
    groups = np.unique(made.groups[used])
    count = int(made.groups.max()) + 1
    size = np.diff(network.between[0]).reshape(count, count)
    unlinked_groups = [(a, b) for a in groups for b in groups if a != b and not size[a, b]]
    if unlinked_groups:
        a, b = (made.switches[int((made.groups == group).argmax())] for group in unlinked_groups[0])
        message = f"no link between the groups of '{a}' and '{b}', which {routing} needs"
        raise TopologyError(f"groups: {message}")
    switches = np.flatnonzero(made.groups >= 0).astype(np.int32)
    first = np.array([int((made.groups == made.groups[n]).argmax()) for n in switches], np.int32)
    apart = np.flatnonzero(network.inside.distance(first, switches) == FAR)
    if len(apart):
        a, b = (made.switches[int(end[apart[0]])] for end in (first, switches))
        raise TopologyError(f"groups: no way from '{a}' to '{b}' inside their group")


@dataclass(frozen=True)
class _FabricNodes:
    """The nodes of a custom fabric by name, as cables refer to them: NICs (`node0.nic0`), then
    switches.
    """

    nics: tuple[str, ...]
    switches: tuple[str, ...]

    @cached_property
    def number(self) -> dict[str, int]:
        """The number of each node by name: NICs first, then switches."""
        return {name: n for n, name in enumerate((*self.nics, *self.switches))}

    def numbers_of(self, text: str, *field: object, switches: bool = False) -> list[int]:
        """Return the numbers of the nodes that a name or pattern matches; raise a TopologyError if
        none.

        Args:
            text: a name or a pattern with `*`, `?`, `[`.
            field: path of the key in the file, for the message.
            switches: whether only switches may be meant.
        """
        first = len(self.nics) if switches else 0
        if text in self.number:
            return [self.number[text]] if self.number[text] >= first else []
        numbers = []
        if any(sign in text for sign in "*?["):
            candidates = [(name, n) for name, n in self.number.items() if n >= first]
            numbers = [n for name, n in candidates if fnmatchcase(name, text)]
        if not numbers:
            names = [*self.switches, *([] if switches else self.nics[:64])]
            kind_name = "switch" if switches else "switch or NIC"
            hint = suggest(text, names) or f" (switches: {', '.join(self.switches[:8])})"
            place = ".".join(map(str, field))
            raise TopologyError(f"{place}: there is no {kind_name} '{text}'{hint}")
        return numbers


def _cables(nodes: _FabricNodes, links: tuple[Cable, ...]) -> list[CableEnds]:
    cables = []
    for place, cable in enumerate(links):
        sides = [
            nodes.numbers_of(text, "links", place, key)
            for key, text in (("from", cable.tail), ("to", cable.head))
        ]
        pairs = [(a, b) for a in sides[0] for b in sides[1] if a != b]
        if not pairs:
            raise TopologyError(f"links.{place}: a cable from '{cable.tail}' to itself")
        if len(sides[0]) > 1 and len(sides[1]) > 1:
            pairs = list({frozenset(pair): pair for pair in reversed(pairs)}.values())[::-1]
        for a, b in pairs:
            up = (b, a) if b < len(nodes.nics) <= a else (a, b)  # as they stand, but a NIC first
            cables += [(*up, cable.bandwidth, cable.latency)] * cable.count
    return cables


def _groups(nodes: _FabricNodes, groups: dict[str, tuple[str, ...]]) -> Ints | None:
    """Return the group of every switch, -1 if it is in none; None if the file has no groups."""
    if not groups:
        return None
    group_of_switch = np.full(len(nodes.switches), -1, np.int32)
    for number, (name, members) in enumerate(groups.items()):
        for place, text in enumerate(members):
            for end in nodes.numbers_of(text, "groups", name, place, switches=True):
                switch = end - len(nodes.nics)
                if group_of_switch[switch] not in (-1, number):
                    message = f"'{nodes.switches[switch]}' is in another group already"
                    raise TopologyError(f"groups.{name}.{place}: {message}")
                group_of_switch[switch] = number
    return group_of_switch


def _check_reached(made: Fabric, ports: Ports) -> None:
    """Refuse a custom fabric in which two hosts have no NICs with a path between them."""
    part = np.arange(made.ports + len(made.switches))
    while True:
        low = np.minimum(part[made.tail], part[made.head])
        before = part.copy()
        np.minimum.at(part, made.tail, low)
        np.minimum.at(part, made.head, low)
        part = part[part]
        if np.array_equal(part, before):
            break
    host_by_parts: dict[frozenset[int], int] = {}
    for host in np.unique(ports.owner).tolist():
        host_by_parts.setdefault(frozenset(part[: made.ports][ports.owner == host].tolist()), host)
    for (first, a), (second, b) in combinations(host_by_parts.items(), 2):
        if not first & second:
            raise TopologyError(f"links: no way from node{a} to node{b}: no NICs of theirs meet")
