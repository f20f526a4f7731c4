"""InfraGraph's infrastructures as topologies.

A file names its links, but often gives them no rates: those are then taken from what the name of a
link says (NVLink and PCIe by generation) and reported.
"""

import re
from collections.abc import Mapping
from typing import Any

import networkx as nx
import numpy as np

from netsim.errors import ScenarioError
from netsim.topology.graph import Topology
from netsim.topology.importers.infragraph_file import COMPONENTS, REDUCING, graph_of
from netsim.topology.layout import LINK_KINDS
from netsim.topology.machine import PcieLink
from netsim.topology.routing import StaticRouter, walk
from netsim.units import parse_bandwidth, parse_time

NVLINKS = {1: 72e9, 2: 120e9, 3: 240e9, 4: 370.8e9, 5: 721.8e9}  # usable bytes/s of a GPU's all
USUAL_NVLINK, USUAL_PCIE = 4, 5  # generations where none is told
SOCKETS = 22e9  # bytes/s between CPUs (NCCL 2.30, src/graph/topo.h, Sapphire Rapids)
UNITS = {"Gbps": "Gbps", "GBps": "GB/s"}
NVLINK = re.compile(r"nv(?:link|l)?[_ -]?(\d)?|xpu_fabric|xgmi", re.IGNORECASE)
PCIE = re.compile(r"pci\D*(?:gen)?[_ ]?(\d)?", re.IGNORECASE)


def read_infragraph(text: str, name: str) -> Topology:
    """The topology of an infrastructure in YAML or JSON; XPUs are GPUs in the order of the file."""
    found = graph_of(text, name)
    types = {node: str(data["type"]) for node, data in found.nodes(data=True)}
    if "xpu" not in types.values():
        raise ScenarioError("expected at least one component of type xpu", source=name)
    hosts = {_instance(node) for node, kind in types.items() if kind == "xpu"}
    kinds = {node: _kind(found, types, node, hosts) for node in found}
    gpus = tuple(node for node in found if types[node] == "xpu")
    for relays in (False, True):
        graph: nx.DiGraph[Any] = nx.DiGraph()
        for node, kind in kinds.items():
            forwards = relays if kind == "gpu" else kind != "memory"
            extra = {"reduces": True} if types[node].endswith(REDUCING) else {}
            graph.add_node(node, kind=kind, forwards=forwards, **extra)
        for a, b, data in found.edges(data=True):
            figures = _figures(found, kinds, (a, b), data, name)
            graph.add_edge(a, b, **figures)
            graph.add_edge(b, a, **figures)
        topology = Topology(name, graph, gpus, StaticRouter())
        if _connected(topology):
            return topology
    raise ScenarioError("not all XPUs are connected", source=name)


def unrated_links(text: str, name: str) -> tuple[str, ...]:
    """The names of links without a bandwidth, which had to be assumed."""
    edges = graph_of(text, name).edges(data=True)
    return tuple(sorted({str(d["link"]) for *_, d in edges if not _rate(d.get("bandwidth"), name)}))


def _instance(node: str) -> str:
    """The device that a component such as `server.0.xpu.3` is of."""
    return ".".join(node.split(".")[:2])


def _kind(found: "nx.Graph[Any]", types: Mapping[str, str], node: str, hosts: set[str]) -> str:
    """The kind of node that a component is: what has no XPUs beside it is part of a switch."""
    kind = types[node].removesuffix(REDUCING)
    if kind == "xpu":
        return "gpu"
    if kind in ("nvswitch", "pcie"):
        return kind
    if _instance(node) not in hosts:
        return "nic" if kind == "nic" else "switch"
    if kind in COMPONENTS:
        return COMPONENTS[kind]
    links = [found.edges[node, near] for near in found[node] if types[near] == "xpu"]
    scale_up = any(not PCIE.match(str(link["link"])) for link in links)
    return "nvswitch" if scale_up else "pcie"


def _figures(
    found: "nx.Graph[Any]",
    kinds: Mapping[str, str],
    ends: tuple[str, str],
    data: Mapping[str, Any],
    name: str,
) -> dict[str, Any]:
    """Bandwidth, latency and kind of a link in one direction."""
    link = str(data["link"])
    kind = _link_kind(link, {kinds[end] for end in ends})
    rate = _rate(data.get("bandwidth"), name)
    if not rate:
        gpu = next((end for end in ends if kinds[end] == "gpu"), None)
        alike = [n for n in found[gpu] if found.edges[gpu, n]["link"] == link] if gpu else [""]
        rate = _assumed(kind, link, len(alike))
    return {
        "bandwidth": rate,
        "latency": parse_time(str(data["latency"]).replace(" ", "")) if "latency" in data else 0.0,
        "kind": kind,
        "duplex": "half" if kind == "hostmem" else "full",
    }


def _link_kind(link: str, ends: set[str]) -> str:
    """The kind of a link: by the name that netsim writes, else by its name and ends."""
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
    """Bytes/s in one direction; 0 where the file does not say."""
    number, _, unit = (text or "").partition(" ")
    if unit not in UNITS:  # nothing, or transfers without a width
        return 0.0
    try:
        return parse_bandwidth(f"{number}{UNITS[unit]}")
    except ValueError as error:
        raise ScenarioError(f"bandwidth {text}: {error}", source=name) from None


def _assumed(kind: str, link: str, times: int) -> float:
    """What a link without a rate carries; a GPU's NVLinks are shared out over `times`."""
    if kind == "nvlink":
        told = NVLINK.search(link)
        generation = int(told[1]) if told and told[1] else USUAL_NVLINK
        return NVLINKS.get(generation, NVLINKS[USUAL_NVLINK]) / max(1, times)
    if kind == "pcie":
        told = PCIE.search(link)
        generation = int(told[1]) if told and told[1] else USUAL_PCIE
        return PcieLink(generation=min(max(generation, 1), 6)).usable
    return SOCKETS if kind == "upi" else float("inf")


def _connected(topology: Topology) -> bool:
    nodes = topology.gpu_nodes
    first = np.full(len(nodes), nodes[0])
    return walk(topology, first, nodes) is not None and walk(topology, nodes, first) is not None
