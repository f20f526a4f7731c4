"""The `fabric` part of a cluster: the kind, its few numbers, and what all kinds take."""

from collections.abc import Callable
from typing import Annotated, Literal

from pydantic import Field

from netsim.topology.fabrics.fabric import Fabric, Ports, Terms
from netsim.topology.fabrics.select import Policy
from netsim.topology.fabrics.single_switch import single_switch
from netsim.topology.transports import TRANSPORTS, Transport
from netsim.yamlio.model import Model
from netsim.yamlio.quantities import Bandwidth, Count, Index, Seconds

TransportName = Literal["infiniband", "roce", "efa", "tcpxo", "slingshot", "tcp", "nvlink"]
SECONDS_A_METRE = 5e-9  # light in fibre and signals in copper: about 0.2 m a nanosecond


class _Fabric(Model):
    """What every fabric takes; `latency` is one switch hop, `link` a cable between switches."""

    nic: Bandwidth | None = None
    link: Bandwidth | None = None
    latency: Seconds | None = None
    cable_metres: Annotated[float, Field(ge=0, le=100_000)] = 0.0
    transport: TransportName | None = None
    routing: Literal["static", "ecmp", "spray", "rail"] | None = None
    qps: Count = 1
    seed: Index = 0


class SingleSwitch(_Fabric):
    """One switch that never blocks."""

    kind: Literal["single-switch"]


FabricConfig = SingleSwitch
BUILDERS: dict[str, Callable[[FabricConfig, Ports, Terms], Fabric]] = {
    "single-switch": lambda _, ports, terms: single_switch(ports, terms),
}


def transport_of(config: FabricConfig, machine_default: str) -> Transport:
    """The transport of a fabric: its own, or what the machine usually has."""
    return TRANSPORTS[config.transport or machine_default]


def build_fabric(config: FabricConfig, ports: Ports, transport: Transport) -> Fabric:
    """The fabric that joins the ports."""
    hop = transport.hop if config.latency is None else config.latency
    link = config.link or float(ports.rate.max(initial=0.0))
    terms = Terms(link, hop + config.cable_metres * SECONDS_A_METRE, 250e-9, transport.usable)
    return BUILDERS[config.kind](config, ports, terms)


def policy_of(config: FabricConfig, transport: Transport) -> Policy:
    """How connections choose among equal paths."""
    routing = config.routing or transport.routing
    return Policy("static" if routing == "rail" else routing, config.seed, config.qps)
