"""Topologies as InfraGraph's infrastructures: a device for every kind of host, links by figures.

Lossy: InfraGraph's links have no direction and no duplex, and parallel links are one.
"""

import re
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from netsim.errors import InputError
from netsim.topology.graph import Topology
from netsim.topology.importers.infragraph_file import COMPONENTS, REDUCING, package


def write_infragraph(topology: Topology) -> str:
    """The YAML text of an infrastructure with one device for every host (or other part)."""
    classes = package()
    made = classes.Infrastructure(name="netsim", description=topology.name)
    parts = _parts(topology)
    place: dict[Hashable, tuple[str, str]] = {}
    for number, (shape, owners) in enumerate(parts.items()):
        called = f"{re.sub(r'[^A-Za-z]+', '', owners[0].name) or 'part'}{number}"
        _add_device(classes, made, called, shape)
        made.instances.add(name=called, device=called, count=len(owners))
        for index, owner in enumerate(owners):
            for node, component in owner.components.items():
                place[node] = (f"{called}[{index}]", component)
    for a, b, link in _links(topology):
        if _owner(a) != _owner(b):
            edge = made.edges.add(scheme="one2one", link=_link(made, link))
            edge.ep1.instance, edge.ep1.component = place[a]
            edge.ep2.instance, edge.ep2.component = place[b]
    return str(made.serialize(encoding="yaml"))


@dataclass(frozen=True, slots=True)
class _Wire:
    """A link without direction: kind, bytes/s, seconds."""

    kind: str
    bandwidth: float
    latency: float


@dataclass(frozen=True, slots=True)
class _Part:
    """A host, or a switch of the fabric: its components by node, and the links between them."""

    name: str
    components: dict[Hashable, str] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    inside: list[tuple[str, str, _Wire]] = field(default_factory=list)

    @property
    def shape(self) -> "_Shape":
        """What makes it the same device as another."""
        return tuple(self.counts.items()), tuple(self.inside)


_Shape = tuple[tuple[tuple[str, int], ...], tuple[tuple[str, str, _Wire], ...]]


def _parts(topology: Topology) -> dict[_Shape, list[_Part]]:
    """All parts, those that are alike together."""
    parts: dict[str, _Part] = {}
    for node, data in topology.graph.nodes(data=True):
        part = parts.setdefault(_owner(node), _Part(_owner(node)))
        kind = _component(data)
        part.components[node] = f"{kind}[{part.counts.get(kind, 0)}]"
        part.counts[kind] = part.counts.get(kind, 0) + 1
    for a, b, link in _links(topology):
        if (owner := _owner(a)) == _owner(b):
            known = parts[owner].components
            parts[owner].inside.append((known[a], known[b], link))
    alike: dict[_Shape, list[_Part]] = {}
    for part in parts.values():
        alike.setdefault(part.shape, []).append(part)
    return alike


def _links(topology: Topology) -> Iterator[tuple[Hashable, Hashable, _Wire]]:
    """Every pair of neighbours once; entering a NIC takes longer than leaving it: the mean."""
    graph, told = topology.graph, set()
    for a, b, data in graph.edges(data=True):
        back = graph.get_edge_data(b, a)
        if back is None or back["bandwidth"] != data["bandwidth"]:
            raise InputError(
                f"{topology.name}: {a} to {b} and back differ; InfraGraph's links have no direction"
            )
        if (b, a) not in told:
            told.add((a, b))
            latency = (data["latency"] + back["latency"]) / 2
            yield a, b, _Wire(data["kind"], data["bandwidth"], latency)


def _add_device(classes: Any, made: Any, called: str, shape: _Shape) -> None:
    """A device: components of InfraGraph's types (what it has no word for is custom) and links."""
    device = classes.Device(name=called)
    plain = {ours: theirs for theirs, ours in COMPONENTS.items()} | {"switch": "switch"}
    for kind, count in shape[0]:
        component = device.components.add(name=kind, count=count)
        if kind in plain:
            component.choice = plain[kind]
        else:
            component.custom.type = kind
    for a, b, wire in shape[1]:
        edge = device.edges.add(scheme="one2one", link=_link(device, wire))
        edge.ep1.component, edge.ep2.component = a, b
    device.links, device.edges  # noqa: B018 - both must be there, if empty
    made.devices.append(device)


def _owner(node: Hashable) -> str:
    """The host that a node is of; a switch of the fabric is a part by itself."""
    return str(node).partition(".")[0]


def _component(data: Mapping[str, Any]) -> str:
    """The name of components of a kind, of switches that reduce another one."""
    kind = str(data.get("kind", "switch"))
    return f"{kind}{REDUCING}" if data.get("reduces") else kind


def _link(made: Any, wire: _Wire) -> str:
    """The name of a link with these figures, which is added where it is new."""
    rate = f"{wire.bandwidth / 1e9:.6g}".replace(".", "p").replace("+", "")
    name = f"{wire.kind}-{rate}-{wire.latency * 1e9:.6g}".replace(".", "p")
    if all(link.name != name for link in made.links):
        link = made.links.add(name=name)
        if np.isfinite(wire.bandwidth):
            link.physical.bandwidth.gigabytes_per_second = wire.bandwidth / 1e9
        if wire.latency:
            link.physical.latency.ns = wire.latency * 1e9
    return name
