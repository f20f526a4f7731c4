"""The `fabric` part of a cluster: the kind, its few numbers, and what all kinds take."""

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
    """The keys of every kind of fabric.

    - `nic`: line rate of the NICs; `link`: of a cable between switches (by default that of a NIC).
    - `latency`: one switch hop; `cable_metres`: length of each cable.
    - `nodes`: hosts that it joins, if more than the job has.
    - `sharp`: its switches add up data on its way (SHARP), as NCCL's CollNet and NVLS between nodes
      use it.
    - `qps`: queue pairs of a connection; `split_on_qps`: every message is split over them, else
      messages take them in turn.
    - `window`: bytes that each connection may have under way.
    - `delivery`: the order of the packets of a message, if not that of the transport.
    - `incast`: the fraction by which a NIC takes longer to receive a byte for each further NIC that
      sends to it, or `true`: that of the transport.
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
    """One switch that never blocks."""

    kind: Literal["single-switch"]


class _Tiered(_Fabric):
    """Leaves and spines of switches with `ports` ports (default: 64, or the next larger ones where
    these do not reach all hosts); oversubscription is down : up of a leaf, or of each tier but the
    highest."""

    ports: Radix = kinds.SWITCH_PORTS[0]
    oversubscription: ByTier = (1.0,)


class LeafSpine(_Tiered):
    """All NICs of a host on one leaf."""

    kind: Literal["leaf-spine"]
    nodes_per_leaf: models.Count | None = None
    spines: models.Count | None = None


class RailOptimized(_Tiered):
    """A leaf a rail in each scalable unit of hosts; spines between, and in three levels cores
    between the pods of `units_per_pod`."""

    kind: Literal["rail-optimized"]
    nodes_per_unit: models.Count | None = None
    spines: models.Count | None = None
    levels: Literal[2, 3] | None = None
    units_per_pod: models.Count | None = None


class RailOnly(_Tiered):
    """A network of its own for each rail."""

    kind: Literal["rail-only"]
    nodes_per_unit: models.Count | None = None


class DualPlane(_Tiered):
    """NICs with a port in each of two rail-optimized networks."""

    kind: Literal["dual-plane"]
    nodes_per_unit: models.Count | None = None


class FatTree(_Fabric):
    """The k-ary fat tree of two or three levels; without k one that has enough ports."""

    kind: Literal["fat-tree"]
    k: Annotated[int, Field(ge=2, le=1024)] | None = None
    levels: Literal[2, 3] = 3
    oversubscription: ByTier = (1.0,)


class DragonflyFabric(_Fabric):
    """Groups of routers that are fully joined, and global links between all groups."""

    kind: Literal["dragonfly"]
    ports: Radix = 64
    routers: models.Count = 8
    ports_per_router: models.Count = 16
    global_links: models.Count = 4
    groups: models.Count | None = None


class TorusFabric(_Fabric):
    """A router for each host, joined to its neighbours in every dimension. `link` and `latency` may
    be lists, by dimension; a `twist` shifts what closes a dimension of k by k in those of 2k;
    cables between cubes of `cube` a side take `optical` longer."""

    kind: Literal["torus"]
    dims: Annotated[models.ListOf[models.Count], Field(min_length=1, max_length=4)]
    link: models.Bandwidths = ()  # type: ignore[assignment]
    latency: models.Delays = ()  # type: ignore[assignment]
    twist: bool = False
    cube: models.Index = 0
    optical: models.Seconds = 0.0


class RingFabric(_Fabric):
    """A router for each host, joined to the next."""

    kind: Literal["ring"]


def _with_kind(value: object) -> object:
    """A fabric without a kind is rail-optimized (for one NIC a host: leaves and spines)."""
    if isinstance(value, dict) and "kind" not in value:
        return {**value, "kind": "rail-optimized"}
    return value


class Cable(models.Model):
    """`count` cables between any two of its ends: switches, or NICs such as `node0.nic0`.

    Names may be patterns with `*`, `?` and `[0-3]`."""

    tail: Annotated[str, Field(alias="from")]
    head: Annotated[str, Field(alias="to")]
    count: models.Count = 1
    bandwidth: models.Bandwidth | None = None
    latency: models.Seconds | None = None


class CustomFabric(_Fabric):
    """Switches and cables written out. `groups` are switches by the group's name, as routing
    between groups (minimal, valiant) needs them."""

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
    """NVLink that joins `hosts` hosts each; what joins the domains is `between`, by default a
    single switch with the figures given here."""

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
    """A fabric for as many hosts at each site, and the cables between sites."""
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
    return kinds.far_apart(parts, ports, sites)


def build_fabric(config: Any, ports: Ports, hosts: int, transport: Transport) -> Fabric:
    """The fabric that joins the ports of `hosts` hosts."""
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
    check_routing(made, policy_of(config, transport).routing)
    return made


def _joined(config: Any, ports: Ports, hosts: int, transport: Transport) -> Fabric:
    stated_latency = _single_value(config.latency)
    cable = config.cable_metres * SECONDS_A_METRE
    hop = (transport.hop if stated_latency is None else stated_latency) + cable
    link = _single_value(config.link) or float(ports.rate.max(initial=0.0))
    arrival = NIC_SECONDS + transport.latency
    terms = FabricTerms(link, hop, arrival, transport.usable, transport.nic_cap)
    if config.kind in ("single-switch", "nvlink-domain"):
        return kinds.single_switch(ports, terms)
    if config.kind == "custom":
        places = zip(ports.owner.tolist(), ports.rail.tolist(), strict=True)
        ends = _Ends(tuple(f"node{host}.nic{rail}" for host, rail in places), config.switches)
        cables = _cables(ends, config.links)
        groups = _groups(ends, config.groups)
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
    """The value of a key that may have one for each dimension; None if it has several."""
    if isinstance(value, tuple):
        return value[0] if len(value) == 1 else None
    return value


def policy_of(config: Any, transport: Transport) -> Policy:
    """How connections choose among equal paths."""
    usual = {"torus": "static", "ring": "static"}
    if not _in_order(config, transport):
        usual["dual-plane"] = "spray"
    routing = config.routing or usual.get(config.kind, transport.routing)
    return Policy(
        "static" if routing == "rail" else routing,
        config.seed,
        config.qps,
        config.split_on_qps,
        in_order=_in_order(config, transport),
        window=config.window or inf,
        incast=_incast(config, transport),
    )


def _incast(config: Any, transport: Transport) -> float:
    """What a further sender costs a receiver."""
    if config.incast is True and not transport.incast:
        raise TopologyError(
            f"incast: nobody measured what senders cost each other on {transport.name}; expected a "
            "part, such as 10%"
        )
    return transport.incast if config.incast is True else float(config.incast)


def _in_order(config: Any, transport: Transport) -> bool:
    """Whether packets of a message may not overtake each other."""
    if config.delivery is None:
        return transport.in_order
    return bool(config.delivery == "in-order")


def check_routing(made: Fabric, routing: str) -> None:
    """Refuse what a routing cannot do on a graph."""
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
    alone = used[made.groups[used] < 0]
    if len(alone):
        name = made.switches[int(alone[0])]
        raise TopologyError(f"groups: '{name}' has NICs and is in no group, as {routing} needs")
    groups = np.unique(made.groups[used])
    count = int(made.groups.max()) + 1
    size = np.diff(network.between[0]).reshape(count, count)
    lone = [(a, b) for a in groups for b in groups if a != b and not size[a, b]]
    if lone:
        a, b = (made.switches[int((made.groups == group).argmax())] for group in lone[0])
        message = f"no link between the groups of '{a}' and '{b}', which {routing} needs"
        raise TopologyError(f"groups: {message}")
    switches = np.flatnonzero(made.groups >= 0).astype(np.int32)
    first = np.array([int((made.groups == made.groups[n]).argmax()) for n in switches], np.int32)
    apart = np.flatnonzero(network.inside.distance(first, switches) == FAR)
    if len(apart):
        a, b = (made.switches[int(end[apart[0]])] for end in (first, switches))
        raise TopologyError(f"groups: no way from '{a}' to '{b}' inside their group")


@dataclass(frozen=True)
class _Ends:
    """The NICs and switches of a custom fabric by name."""

    nics: tuple[str, ...]
    switches: tuple[str, ...]

    @cached_property
    def number(self) -> dict[str, int]:
        """The number of every end."""
        return {name: n for n, name in enumerate((*self.nics, *self.switches))}

    def of(self, text: str, *field: object, switches: bool = False) -> list[int]:
        """The numbers of the ends that a name or pattern matches; a TopologyError if none."""
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


def _cables(ends: _Ends, links: tuple[Cable, ...]) -> list[CableEnds]:
    cables = []
    for place, cable in enumerate(links):
        sides = [
            ends.of(text, "links", place, key)
            for key, text in (("from", cable.tail), ("to", cable.head))
        ]
        pairs = [(a, b) for a in sides[0] for b in sides[1] if a != b]
        if not pairs:
            raise TopologyError(f"links.{place}: a cable from '{cable.tail}' to itself")
        if len(sides[0]) > 1 and len(sides[1]) > 1:
            pairs = list({frozenset(pair): pair for pair in reversed(pairs)}.values())[::-1]
        for a, b in pairs:
            up = (b, a) if b < len(ends.nics) <= a else (a, b)  # as they stand, but a NIC first
            cables += [(*up, cable.bandwidth, cable.latency)] * cable.count
    return cables


def _groups(ends: _Ends, groups: dict[str, tuple[str, ...]]) -> Ints | None:
    """The group of every switch, -1 if it is in none."""
    if not groups:
        return None
    group_of_switch = np.full(len(ends.switches), -1, np.int32)
    for number, (name, members) in enumerate(groups.items()):
        for place, text in enumerate(members):
            for end in ends.of(text, "groups", name, place, switches=True):
                switch = end - len(ends.nics)
                if group_of_switch[switch] not in (-1, number):
                    message = f"'{ends.switches[switch]}' is in another group already"
                    raise TopologyError(f"groups.{name}.{place}: {message}")
                group_of_switch[switch] = number
    return group_of_switch


def _check_reached(made: Fabric, ports: Ports) -> None:
    """Every two hosts have NICs that meet somewhere."""
    part = np.arange(made.ports + len(made.switches))
    while True:
        low = np.minimum(part[made.tail], part[made.head])
        before = part.copy()
        np.minimum.at(part, made.tail, low)
        np.minimum.at(part, made.head, low)
        part = part[part]
        if np.array_equal(part, before):
            break
    meets: dict[frozenset[int], int] = {}
    for host in np.unique(ports.owner).tolist():
        meets.setdefault(frozenset(part[: made.ports][ports.owner == host].tolist()), host)
    for (first, a), (second, b) in combinations(meets.items(), 2):
        if not first & second:
            raise TopologyError(f"links: no way from node{a} to node{b}: no NICs of theirs meet")
