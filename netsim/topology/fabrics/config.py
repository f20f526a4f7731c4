"""The `fabric` part of a cluster: the kind, its few numbers, and what all kinds take."""

from collections.abc import Callable
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from netsim.base.constants import value
from netsim.base.errors import suggest
from netsim.topology.fabrics.clos import (
    SWITCH_PORTS,
    dual_plane,
    fat_tree,
    leaf_spine,
    of_usual_switches,
    rail_only,
    rail_optimized,
    single_switch,
)
from netsim.topology.fabrics.direct import custom, dragonfly, torus
from netsim.topology.graph import TopologyError
from netsim.topology.machine import Transport, TransportName
from netsim.topology.router import Fabric, Policy, Ports, Terms
from netsim.yamlio.models import Bandwidth, Count, FieldError, Index, ListOf, Model, Ratio, Seconds

Radix = Annotated[int, Field(ge=2, le=4096)]
SECONDS_A_METRE = value("wire.metre")
NIC_SECONDS = value("wire.nic")  # entering a NIC, as inside a host


class _Fabric(Model):
    """What every fabric takes.

    `nic`: line rate of the NICs; `link`: of a cable between switches (default: as a NIC);
    `latency`: one switch hop; `nodes`: hosts that it joins, if more than the job has; `sharp`: its
    switches add up data on its way (SHARP), as NCCL's CollNet and NVLS between nodes use it.
    """

    nic: Bandwidth | None = None
    link: Bandwidth | None = None
    latency: Seconds | None = None
    cable_metres: Annotated[float, Field(ge=0, le=100_000)] = 0.0
    transport: TransportName | None = None
    routing: Literal["static", "ecmp", "spray", "rail"] | None = None
    qps: Annotated[int, Field(ge=1, le=128)] = 1
    seed: Index = 0
    nodes: Count | None = None
    sharp: bool = False


class SingleSwitch(_Fabric):
    """One switch that never blocks."""

    kind: Literal["single-switch"]


class _Tiered(_Fabric):
    """Leaves and spines of switches with `ports` ports (default: 64, or the next larger ones where
    these do not reach all hosts); oversubscription is down : up of a leaf.
    """

    ports: Radix = SWITCH_PORTS[0]
    oversubscription: Annotated[Ratio, Field(ge=1)] = 1.0


class LeafSpine(_Tiered):
    """All NICs of a host on one leaf."""

    kind: Literal["leaf-spine"]
    nodes_per_leaf: Count | None = None
    spines: Count | None = None


class RailOptimized(_Tiered):
    """A leaf a rail in each scalable unit of hosts; spines between."""

    kind: Literal["rail-optimized"]
    nodes_per_unit: Count | None = None
    spines: Count | None = None


class RailOnly(_Tiered):
    """A network of its own for each rail."""

    kind: Literal["rail-only"]
    nodes_per_unit: Count | None = None


class DualPlane(_Tiered):
    """NICs with a port in each of two rail-optimized networks."""

    kind: Literal["dual-plane"]
    nodes_per_unit: Count | None = None


class FatTree(_Fabric):
    """The k-ary fat tree of two or three levels; without k the smallest that has enough ports."""

    kind: Literal["fat-tree"]
    k: Annotated[int, Field(ge=2, le=1024)] | None = None
    levels: Literal[2, 3] = 3


class DragonflyFabric(_Fabric):
    """Groups of routers that are fully joined, and global links between all groups."""

    kind: Literal["dragonfly"]
    ports: Radix = 64
    routers: Count = 8
    ports_per_router: Count = 16
    global_links: Count = 4
    groups: Count | None = None
    routing: Literal["static", "ecmp", "spray", "minimal", "valiant"] | None = None  # type: ignore[assignment]


class TorusFabric(_Fabric):
    """A router for each host, joined to its neighbours in every dimension."""

    kind: Literal["torus"]
    dims: Annotated[ListOf[Count], Field(min_length=1, max_length=4)]


class RingFabric(_Fabric):
    """A router for each host, joined to the next."""

    kind: Literal["ring"]


def _with_kind(value: object) -> object:
    """A fabric without a kind is rail-optimized (for one NIC a host: leaves and spines)."""
    if isinstance(value, dict) and "kind" not in value:
        return {**value, "kind": "rail-optimized"}
    return value


class Cable(Model):
    """A cable; ends are switches, or NICs as `node0.nic0` (with `*` for any)."""

    tail: Annotated[str, Field(alias="from")]
    head: Annotated[str, Field(alias="to")]
    bandwidth: Bandwidth | None = None
    latency: Seconds | None = None


class CustomFabric(_Fabric):
    """Switches and cables written out; routes are the shortest."""

    kind: Literal["custom"]
    switches: Annotated[ListOf[str], Field(min_length=1)]
    links: ListOf[Cable]


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
    single switch with the figures given here.
    """

    kind: Literal["nvlink-domain"]
    hosts: Count
    between: (
        Annotated[_Between, Field(discriminator="kind"), BeforeValidator(_with_kind)] | None
    ) = None

    @model_validator(mode="after")
    def _told_once(self) -> "NvlinkDomain":
        foreign = sorted(self.model_fields_set - {"kind", "hosts", "between"})
        if self.between is not None and foreign:
            raise FieldError("belongs to the fabric between the domains: below between", foreign[0])
        return self


FabricConfig = Annotated[
    _Between | NvlinkDomain, Field(discriminator="kind"), BeforeValidator(_with_kind)
]
_OWN = set(_Fabric.model_fields) | {"kind"}
REDUCING = ("single-switch", "leaf-spine", "fat-tree", "rail-optimized", "rail-only", "custom")
Builder = Callable[..., Fabric]
BUILDERS: dict[str, Builder] = {
    "leaf-spine": leaf_spine,
    "rail-optimized": rail_optimized,
    "rail-only": rail_only,
    "dual-plane": dual_plane,
    "fat-tree": fat_tree,
    "dragonfly": dragonfly,
    "torus": torus,
}


def build_fabric(config: Any, ports: Ports, hosts: int, transport: Transport) -> Fabric:
    """The fabric that joins the ports of `hosts` hosts."""
    if config.sharp:
        _check_sharp(config.kind, transport)
    return replace(_joined(config, ports, hosts, transport), reduces=config.sharp)


def _check_sharp(kind: str, transport: Transport) -> None:
    """Trees of switches reduce, and of the transports only InfiniBand has switches that do."""
    if kind not in REDUCING:
        raise TopologyError(
            f"sharp: switches of kind {kind} form no tree to reduce along; expected one of "
            f"{', '.join(REDUCING)}"
        )
    if transport.name != "infiniband":
        raise TopologyError(
            f"sharp: only InfiniBand switches reduce, the transport is {transport.name} (set "
            "transport: infiniband)"
        )


def _joined(config: Any, ports: Ports, hosts: int, transport: Transport) -> Fabric:
    hop = transport.hop if config.latency is None else config.latency
    link = config.link or float(ports.rate.max(initial=0.0))
    hop += config.cable_metres * SECONDS_A_METRE
    arrival = NIC_SECONDS + transport.latency
    terms = Terms(link, hop, arrival, transport.usable, transport.nic_cap)
    if config.kind in ("single-switch", "nvlink-domain"):
        return single_switch(ports, terms)
    if config.kind == "custom":
        return custom(ports, terms, config.switches, _cables(config, ports))
    if config.kind == "ring":
        return torus(ports, terms, hosts, kind="ring", free=config.routing not in (None, "static"))
    given = {name: getattr(config, name) for name in type(config).model_fields if name not in _OWN}
    if "ports" in given:
        given["radix"] = given.pop("ports")
    if config.kind == "torus":
        given["free"] = config.routing not in (None, "static")
    if config.kind == "dragonfly":
        given["valiant"] = config.routing == "valiant"
    build = partial(BUILDERS[config.kind], ports, terms, hosts)
    if isinstance(config, _Tiered) and "ports" not in config.model_fields_set:
        return of_usual_switches(build, given)
    return build(**given)


def policy_of(config: Any, transport: Transport) -> Policy:
    """How connections choose among equal paths."""
    usual = {"dual-plane": "spray", "torus": "static", "ring": "static"}
    routing = config.routing or usual.get(config.kind, transport.routing)
    plain = {"rail": "static", "minimal": "ecmp", "valiant": "ecmp"}
    return Policy(plain.get(routing, routing), config.seed, config.qps)


def _cables(
    config: CustomFabric, ports: Ports
) -> list[tuple[int, int, float | None, float | None]]:
    """The cables by number of their ends."""
    names = [
        f"node{host}.nic{rail}"
        for host, rail in zip(ports.owner.tolist(), ports.rail.tolist(), strict=True)
    ]
    number = {name: len(names) + n for n, name in enumerate(config.switches)}
    found = []
    for place, cable in enumerate(config.links):
        ends = []
        for end in (cable.tail, cable.head):
            ports_here = [n for n, name in enumerate(names) if fnmatchcase(name, end)]
            if not ports_here and end not in number:
                hint = suggest(end, [*config.switches, *names[:64]])
                raise TopologyError(f"links.{place}: there is no switch or NIC '{end}'{hint}")
            ends.append([number[end]] if end in number else ports_here)
        found += [
            (min(a, b), max(a, b), cable.bandwidth, cable.latency) for a in ends[0] for b in ends[1]
        ]
    return found
