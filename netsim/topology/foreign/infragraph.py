"""Read and write InfraGraph files by means of InfraGraph's own Python package."""

import json
import re
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any

import numpy as np

from netsim.base.errors import InputError, ScenarioError, suggest
from netsim.base.units import parse_bandwidth, parse_time
from netsim.base.values import dataclass, grouped
from netsim.topology.graph import LINK_KINDS, GraphSketch, Topology
from netsim.topology.machine import PcieLink
from netsim.topology.routing import StaticRouter, cheapest_paths
from netsim.yamlio.read import parse_source

if TYPE_CHECKING:
    import networkx as nx

MOST_NODES = 100_000
MOST_PAIRS = 2_000_000  # links of one edge in slice notation
# netsim's kind of node for each of InfraGraph's types of components; it has no type for the other
# kinds.
COMPONENTS = {"xpu": "gpu", "nic": "nic", "cpu": "cpu", "memory": "memory"}
REDUCING = "-reducing"  # suffix of the types of switches that add up data that passes


def package() -> Any:
    """Import InfraGraph's package; raise an InputError if it is not installed."""
    try:
        import infragraph
    except ImportError:
        raise InputError(
            "InfraGraph files need the package infragraph", hint="pip install 'netsim[infragraph]'"
        ) from None
    return infragraph


def graph_of(text: str, name: str) -> "nx.Graph[Any]":
    """Return the graph of a file, as InfraGraph expands it, after checks of its size and links.

    `text` is the content of the file, `name` its name for messages.
    """
    data = parse_source(text, name).data
    package()
    from infragraph.infragraph_service import InfraGraphService

    if not data.get("instances"):  # a device alone, as `infragraph translate` writes it
        names = [item.get("name") for item in data.get("devices") or [] if isinstance(item, dict)]
        data = {**data, "instances": [{"name": n, "device": n, "count": 1} for n in names]}
    data = {"name": "infrastructure", **data}
    _check_size(data, name)
    for part in (data, *(d for d in data.get("devices") or [] if isinstance(d, dict))):
        _check_links(part, name)
    between_instances: list[tuple[str, str, str]] = []

    class RecordingService(InfraGraphService):  # type: ignore[misc]  # no types in the package
        """InfraGraph's service, which additionally records every edge between instances: its own
        graph keeps a single edge for each pair of components.
        """

        def _parse_infrastructure_edges(self) -> None:
            add_edge = self._graph.add_edge

            def recorded(tail: str, head: str, **attributes: Any) -> None:
                between_instances.append((tail, head, str(attributes.get("link"))))
                add_edge(tail, head, **attributes)

            self._graph.add_edge = recorded
            try:
                super()._parse_infrastructure_edges()
            finally:
                del self._graph.add_edge

    service = RecordingService()
    try:
        service.set_graph(json.dumps(data))
    except Exception as error:  # the package raises whatever its parts raise
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ScenarioError(f"InfraGraph refuses it: {reason}", source=name) from None
    _check_parallel_edges(between_instances, "", name)
    for device, inside in service._device_data.items():
        edges = [
            (item, other, str(link))
            for item, targets in inside.edges.items()
            for other, link in targets
        ]
        _check_parallel_edges(edges, f"device {device}: ", name)
    graph: nx.Graph[Any] = service.get_networkx_graph()
    return graph


def _check_parallel_edges(edges: list[tuple[str, str, str]], where: str, name: str) -> None:
    """Refuse two links between the same two components: InfraGraph's graph would keep only the last
    one.

    Edges are (component, component, link). An edge of scheme many2many within one kind of component
    lists every pair in both orders; this is one link. `where` begins the message.
    """
    links: dict[tuple[str, str], str] = {}
    for first, second, link in edges:
        if (first, second) in links or links.get((second, first), link) != link:
            raise ScenarioError(
                f"{where}two links between {first} and {second}; InfraGraph's graph has one for "
                "each pair of components, so give their bandwidth as that of one link",
                source=name,
            )
        links[first, second] = link


def _check_size(data: Mapping[str, Any], name: str) -> None:
    """Refuse files that expand to too many components or links; with slice notation a few lines
    suffice for that.
    """
    devices = {d.get("name"): d for d in data.get("devices") or [] if isinstance(d, dict)}
    total = 0
    for instance in data["instances"]:
        device = devices.get(instance.get("device"), {}) if isinstance(instance, dict) else {}
        parts = {c.get("name"): _count(c) for c in device.get("components") or []}
        total += (_count(instance) if isinstance(instance, dict) else 1) * sum(parts.values())
        for edge in device.get("edges") or []:
            ends = [str((edge.get(end) or {}).get("component", "")) for end in ("ep1", "ep2")]
            pairs = _extent(ends[0], parts) * _extent(ends[1], parts)
            if edge.get("scheme") == "many2many" and pairs > MOST_PAIRS:
                raise ScenarioError(f"an edge means {pairs} links", source=name)
    if total > MOST_NODES:
        message = f"{total} components are too many (at most {MOST_NODES})"
        raise ScenarioError(message, source=name)


def _check_links(part: Mapping[str, Any], name: str) -> None:
    """Refuse edges whose link is not described in the same device or infrastructure `part`;
    InfraGraph's package would accept them.
    """
    link_names = [
        str(link.get("name")) for link in part.get("links") or [] if isinstance(link, dict)
    ]
    for edge in part.get("edges") or []:
        link = edge.get("link") if isinstance(edge, dict) else None
        if link is not None and link not in link_names:
            where = part.get("name", "infrastructure")
            message = f"{where}: an edge has link '{link}', which is not among its links"
            raise ScenarioError(message + suggest(str(link), link_names), source=name)


def _count(item: Mapping[str, Any]) -> int:
    """Return the number of copies of a component or an instance, from its key `count`."""
    count = item.get("count", 1)
    return count if isinstance(count, int) else 1


def _extent(endpoint: str, parts: Mapping[Any, int]) -> int:
    """Return the largest number of components that an endpoint such as `xpu[0:2]` can mean (here
    2).

    `parts` is the number of components of each name.
    """
    part, _, inside = endpoint.rpartition(".")[2].partition("[")
    bounds = re.fullmatch(r"(\d+)(?::(\d+))?\]", inside)
    if bounds is None:
        return parts.get(part, 1)
    return max(0, int(bounds[2]) - int(bounds[1])) if bounds[2] else 1


# InfraGraph's infrastructures as topologies. A file names its links, but often without rates. A
# missing rate is assumed from the generation of NVLink or PCIe in the name of the link; such links
# are reported.

NVLINKS = {1: 72e9, 2: 120e9, 3: 240e9, 4: 370.8e9, 5: 721.8e9}  # usable bytes/s of all of a GPU
# Generations that are assumed if the name of a link has none.
USUAL_NVLINK = 4
USUAL_PCIE = 5
SOCKETS = 22e9  # bytes/s between CPUs (NCCL 2.30, src/graph/topo.h, Sapphire Rapids)
UNITS = {"Gbps": "Gbps", "GBps": "GB/s"}
NVLINK = re.compile(r"nv(?:link|l)?[_ -]?(\d)?|xpu_fabric|xgmi", re.IGNORECASE)
PCIE = re.compile(r"pci\D*(?:gen)?[_ ]?(\d)?", re.IGNORECASE)


def read_infragraph(text: str, name: str) -> Topology:
    """Return the topology of an infrastructure in YAML or JSON; its XPUs are the GPUs, in the order
    of the file.
    """
    graph_of_file = graph_of(text, name)
    types = {node: str(data["type"]) for node, data in graph_of_file.nodes(data=True)}
    if "xpu" not in types.values():
        raise ScenarioError("expected at least one component of type xpu", source=name)
    hosts = {_instance(node) for node, kind in types.items() if kind == "xpu"}
    kinds = {node: _kind(graph_of_file, types, node, hosts) for node in graph_of_file}
    gpus = tuple(node for node in graph_of_file if types[node] == "xpu")
    shares = _shares(graph_of_file, gpus)
    for relays in (False, True):
        graph = GraphSketch()
        for node, kind in kinds.items():
            forwards = relays if kind == "gpu" else kind != "memory"
            reduces = types[node].endswith(REDUCING)
            graph.node(node, kind=kind, forwards=forwards, reduces=reduces)
        for a, b, data in graph_of_file.edges(data=True):
            figures = _figures(shares, kinds, (a, b), data, name)
            graph.edge(a, b, both=True, **figures)
        topology = Topology(name, graph, gpus, StaticRouter())
        nodes = topology.gpu_nodes
        first = np.full(len(nodes), nodes[0])
        if (
            cheapest_paths(topology, first, nodes) is not None
            and cheapest_paths(topology, nodes, first) is not None
        ):
            return topology
    raise ScenarioError("not all XPUs are connected", source=name)


def unrated_links(text: str, name: str) -> tuple[str, ...]:
    """Return the names of the links without a bandwidth; a bandwidth is assumed for these."""
    edges = graph_of(text, name).edges(data=True)
    return tuple(sorted({str(d["link"]) for *_, d in edges if not _rate(d.get("bandwidth"), name)}))


def _instance(node: str) -> str:
    """Return the instance that a node belongs to: its first two name parts, such as `dgx.0`."""
    return ".".join(node.split(".")[:2])


def _kind(graph: "nx.Graph[Any]", types: Mapping[str, str], node: str, hosts: set[str]) -> str:
    """Return netsim's kind of node for a component; components of instances without XPUs are
    switches or NICs.

    Args:
        graph: the graph of the file.
        types: InfraGraph's type of every node.
        node: the node.
        hosts: the instances with XPUs.
    """
    kind = types[node].removesuffix(REDUCING)
    if kind == "xpu":
        return "gpu"
    if kind in ("nvswitch", "pcie"):
        return kind
    if _instance(node) not in hosts:
        return "nic" if kind == "nic" else "switch"
    if kind in COMPONENTS:
        return COMPONENTS[kind]
    links = [graph.edges[node, near] for near in graph[node] if types[near] == "xpu"]
    scale_up = any(not PCIE.match(str(link["link"])) for link in links)
    return "nvswitch" if scale_up else "pcie"


def _shares(graph: "nx.Graph[Any]", gpus: tuple[str, ...]) -> dict[tuple[str, str], int]:
    """Return the largest number of edges that a GPU has over a link, by (name of the instance,
    link).

    The rate of all NVLinks of a GPU is divided by this number: a GPU with fewer edges has fewer
    NVLinks, not faster ones.
    """
    most: dict[tuple[str, str], int] = {}
    for gpu in gpus:
        counts = Counter(str(graph.edges[gpu, node]["link"]) for node in graph[gpu])
        for link, count in counts.items():
            key = gpu.split(".")[0], link
            most[key] = max(most.get(key, 0), count)
    return most


def _figures(
    shares: Mapping[tuple[str, str], int],
    kinds: Mapping[str, str],
    ends: tuple[str, str],
    data: Mapping[str, Any],
    name: str,
) -> dict[str, Any]:
    """Return bandwidth (bytes/s), latency (seconds), kind and duplex of an edge.

    A missing bandwidth is assumed.

    Args:
        shares: see `_shares`.
        kinds: netsim's kind of every node.
        ends: the two nodes of the edge.
        data: attributes of the edge in the file.
        name: name of the file.
    """
    link = str(data["link"])
    kind = _link_kind(link, {kinds[end] for end in ends})
    rate = _rate(data.get("bandwidth"), name)
    if not rate:
        gpu = next((end for end in ends if kinds[end] == "gpu"), None)
        edge_count = 1 if gpu is None else shares[gpu.split(".")[0], link]
        rate = _assumed(kind, link, edge_count)
    return {
        "bandwidth": rate,
        "latency": parse_time(str(data["latency"]).replace(" ", "")) if "latency" in data else 0.0,
        "kind": kind,
        "duplex": "half" if kind == "hostmem" else "full",
    }


def _link_kind(link: str, ends: set[str]) -> str:
    """Return the kind of a link: from its name if netsim wrote the file, else from the kinds `ends`
    of the nodes that it joins.
    """
    named = link.partition("-")[0]
    if named in LINK_KINDS:
        return named
    if ends <= {"switch"}:
        return "fabric"
    if "switch" in ends:
        return "nic"
    if "memory" in ends:
        return "hostmem"
    if ends == {"cpu"}:
        return "upi"
    return "nvlink" if ends <= {"gpu", "nvswitch"} else "pcie"


def _rate(text: str | None, name: str) -> float:
    """Return the bytes per second that a text such as `400 Gbps` states; 0 if it states none."""
    number, _, unit = (text or "").partition(" ")
    if unit not in UNITS:  # nothing, or transfers without a width
        return 0.0
    try:
        return parse_bandwidth(f"{number}{UNITS[unit]}")
    except ValueError as error:
        raise ScenarioError(f"bandwidth {text}: {error}", source=name) from None


def _assumed(kind: str, link: str, times: int) -> float:
    """Return the assumed bytes per second of a link.

    For NVLink it is the rate of all NVLinks of a GPU, divided by `times`, the number of its edges.
    """
    if kind == "nvlink":
        match = NVLINK.search(link)
        generation = int(match[1]) if match and match[1] else USUAL_NVLINK
        return NVLINKS.get(generation, NVLINKS[USUAL_NVLINK]) / max(1, times)
    if kind == "pcie":
        match = PCIE.search(link)
        generation = int(match[1]) if match and match[1] else USUAL_PCIE
        return PcieLink(generation=min(max(generation, 1), 6)).usable
    return SOCKETS if kind == "upi" else float("inf")


# Topologies as InfraGraph's infrastructures: one device for each kind of host, one link for each
# rate and latency. Information is lost: InfraGraph's links have no direction and no duplex, and
# parallel links become one.


def write_infragraph(topology: Topology) -> str:
    """Return a topology as the YAML of an infrastructure with one device for each kind of host or
    switch.
    """
    classes = package()
    infrastructure = classes.Infrastructure(name="netsim", description=topology.name)
    parts = _parts(topology)
    place_of_node: dict[Hashable, tuple[str, str]] = {}
    for number, (shape, owners) in enumerate(parts.items()):
        device_name = f"{re.sub(r'[^A-Za-z]+', '', owners[0].name) or 'part'}{number}"
        _add_device(classes, infrastructure, device_name, shape)
        infrastructure.instances.add(name=device_name, device=device_name, count=len(owners))
        for index, owner in enumerate(owners):
            for node, component in owner.components.items():
                place_of_node[node] = (f"{device_name}[{index}]", component)
    for a, b, link in _links(topology):
        if _owner(a) != _owner(b):
            edge = infrastructure.edges.add(scheme="one2one", link=_link(infrastructure, link))
            edge.ep1.instance, edge.ep1.component = place_of_node[a]
            edge.ep2.instance, edge.ep2.component = place_of_node[b]
    return str(infrastructure.serialize(encoding="yaml"))


@dataclass(frozen=True, slots=True)
class _Wire:
    """A link without direction: kind, bytes per second, seconds."""

    kind: str
    bandwidth: float
    latency: float


@dataclass(frozen=True, slots=True)
class _Part:
    """A host, or a switch of the fabric.

    Args:
        name: name of the host or switch.
        components: name of the component for each node, such as `gpu[3]`.
        counts: number of components of each kind.
        inside: links as (component, component, wire).
    """

    name: str
    components: dict[Hashable, str] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    inside: list[tuple[str, str, _Wire]] = field(default_factory=list)

    @property
    def shape(self) -> "_Shape":
        """What parts must have in common to become instances of the same device: components and
        links.
        """
        return tuple(self.counts.items()), tuple(self.inside)


_Shape = tuple[tuple[tuple[str, int], ...], tuple[tuple[str, str, _Wire], ...]]


def _parts(topology: Topology) -> dict[_Shape, list[_Part]]:
    """Return the hosts and switches of a topology, grouped by shape."""
    parts: dict[str, _Part] = {}
    for node, data in topology.graph.nodes(data=True):
        part = parts.setdefault(_owner(node), _Part(_owner(node)))
        kind = str(data.get("kind", "switch")) + REDUCING * bool(data.get("reduces"))
        part.components[node] = f"{kind}[{part.counts.get(kind, 0)}]"
        part.counts[kind] = part.counts.get(kind, 0) + 1
    for a, b, link in _links(topology):
        if (owner := _owner(a)) == _owner(b):
            component_of = parts[owner].components
            parts[owner].inside.append((component_of[a], component_of[b], link))
    return grouped(parts.values(), lambda part: part.shape)


def _links(topology: Topology) -> Iterator[tuple[Hashable, Hashable, _Wire]]:
    """Yield every pair of neighbors once, as (node, node, wire).

    The latency is the mean of both directions: entering a NIC takes longer than leaving it.
    """
    graph = topology.graph
    yielded_pairs = set()
    for a, b, data in graph.edges(data=True):
        back = graph.get_edge_data(b, a)
        if back is None or back["bandwidth"] != data["bandwidth"]:
            raise InputError(
                f"{topology.name}: {a} to {b} and back differ; InfraGraph's links have no direction"
            )
        if (b, a) not in yielded_pairs:
            yielded_pairs.add((a, b))
            latency = (data["latency"] + back["latency"]) / 2
            yield a, b, _Wire(data["kind"], data["bandwidth"], latency)


def _add_device(classes: Any, infrastructure: Any, device_name: str, shape: _Shape) -> None:
    """Add a device with the name `device_name` to an infrastructure. Kinds of nodes for which
    InfraGraph has no type become custom components.

    `classes` is InfraGraph's package; `shape` has the components and links of the device
    (`_Part.shape`).
    """
    device = classes.Device(name=device_name)
    type_of_kind = {ours: theirs for theirs, ours in COMPONENTS.items()} | {"switch": "switch"}
    for kind, count in shape[0]:
        component = device.components.add(name=kind, count=count)
        if kind in type_of_kind:
            component.choice = type_of_kind[kind]
        else:
            component.custom.type = kind
    for a, b, wire in shape[1]:
        edge = device.edges.add(scheme="one2one", link=_link(device, wire))
        edge.ep1.component = a
        edge.ep2.component = b
    device.links, device.edges  # noqa: B018 - both lists must exist, even if empty
    infrastructure.devices.append(device)


def _owner(node: Hashable) -> str:
    """Return the host that a node belongs to: `node0` of `node0.gpu3`. A switch of the fabric is
    its own owner.
    """
    return str(node).partition(".")[0]


def _link(owner: Any, wire: _Wire) -> str:
    """Return the name of a device's or infrastructure's link with the kind, bandwidth and latency
    of `wire`; add the link if it is new.
    """
    rate = f"{wire.bandwidth / 1e9:.6g}".replace(".", "p").replace("+", "")
    name = f"{wire.kind}-{rate}-{wire.latency * 1e9:.6g}".replace(".", "p")
    if all(link.name != name for link in owner.links):
        link = owner.links.add(name=name)
        if np.isfinite(wire.bandwidth):
            link.physical.bandwidth.gigabytes_per_second = wire.bandwidth / 1e9
        if wire.latency:
            link.physical.latency.ns = wire.latency * 1e9
    return name
