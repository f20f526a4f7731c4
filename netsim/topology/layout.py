"""A topology as arrays: names and kinds of nodes, and the links between them as columns.

Generated clusters are laid out as arrays at once; a sketch or a networkx graph is frozen into the
same form. Knows nothing of routes.
"""

from collections.abc import Hashable, Mapping
from dataclasses import field
from math import isnan
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from netsim.errors import InputError
from netsim.values import dataclass

if TYPE_CHECKING:
    import networkx as nx

NODE_KINDS = ("gpu", "nvswitch", "pcie", "cpu", "nic", "switch", "memory")
LINK_KINDS = ("nvlink", "xgmi", "c2c", "pcie", "upi", "hostmem", "nic", "fabric")
GPU_LINKS = (LINK_KINDS.index("nvlink"), LINK_KINDS.index("xgmi"))  # from GPU to GPU or NVSwitch


class TopologyError(InputError, ValueError):
    """A graph that is not a usable topology; the message names the node or link."""


@dataclass(frozen=True, slots=True)
class Links:
    """Every directed link as columns; `resource` is shared by the two directions of a half-duplex
    pair, which draw on one capacity.
    """

    tail: NDArray[np.int32]
    head: NDArray[np.int32]
    bandwidth: NDArray[np.float64]
    latency: NDArray[np.float64]
    kind: NDArray[np.int8]
    resource: NDArray[np.int32]

    def __post_init__(self) -> None:
        for name in Links.__slots__:
            getattr(self, name).setflags(write=False)

    def __len__(self) -> int:
        return len(self.tail)


@dataclass(frozen=True, slots=True)
class Layout:
    """Nodes (name, kind as index of NODE_KINDS, whether traffic of others passes, whether it adds
    up what passes: a switch with SHARP) and links.
    """

    nodes: tuple[Hashable, ...]
    kinds: NDArray[np.int8]
    passes: NDArray[np.bool_]
    links: Links
    reduces: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Sketch:
    """A graph as it is written down: nodes and links by their ends, each with its attributes.

    What a networkx graph would hold, where nothing else of networkx is needed: importing that takes
    longer than many a run.
    """

    nodes: dict[Hashable, dict[str, Any]] = field(default_factory=dict)
    edges: dict[tuple[Hashable, Hashable], dict[str, Any]] = field(default_factory=dict)

    def node(self, name: Hashable, **given: Any) -> None:
        """Add a node."""
        self.nodes[name] = given

    def edge(self, tail: Hashable, head: Hashable, **given: Any) -> None:
        """Add a link between nodes that are there."""
        self.edges[tail, head] = given

    def remove(self, name: Hashable) -> None:
        """Take out a node and its links."""
        del self.nodes[name]
        for ends in [ends for ends in self.edges if name in ends]:
            del self.edges[ends]


def freeze_graph(name: str, graph: "Sketch | nx.DiGraph[Any]") -> Layout:
    """Read a graph into columns, refusing what no simulation could use."""
    for node, given in graph.nodes.items():
        if given.get("kind", "switch") not in NODE_KINDS:
            raise TopologyError(f"{name}: node {node} is of unknown kind {given['kind']!r}")
    kinds = [d.get("kind", "switch") for d in graph.nodes.values()]
    passes = [d.get("forwards", d.get("kind") != "gpu") for d in graph.nodes.values()]
    reduces = [d.get("reduces", False) for d in graph.nodes.values()]
    return Layout(
        tuple(graph.nodes),
        np.array([NODE_KINDS.index(kind) for kind in kinds], np.int8),
        np.array(passes, bool),
        _freeze_links(name, graph),
        np.array(reduces, bool),
    )


def lanes(links: Links) -> NDArray[np.int32]:
    """The number of each link among those with the same ends: 0 but for parallel links."""
    order = np.lexsort((np.arange(len(links)), links.head, links.tail))
    tail, head = links.tail[order], links.head[order]
    new = np.r_[True, (tail[1:] != tail[:-1]) | (head[1:] != head[:-1])][: len(order)]
    position = np.arange(len(order))
    start = np.maximum.accumulate(np.where(new, position, 0))
    result = np.zeros(len(links), np.int32)
    result[order] = position - start
    return result


def pair_resources(
    tail: NDArray[np.int32], head: NDArray[np.int32], half: NDArray[np.bool_]
) -> NDArray[np.int32]:
    """A number for the capacity that each link draws on: its own, or the pair's if half duplex."""
    resource = np.arange(len(tail), dtype=np.int32)
    first: dict[tuple[int, int], int] = {}
    for link in np.flatnonzero(half):
        ends = sorted((int(tail[link]), int(head[link])))
        resource[link] = first.setdefault((ends[0], ends[1]), int(link))
    return resource


def _freeze_links(name: str, graph: "Sketch | nx.DiGraph[Any]") -> Links:
    number = {node: n for n, node in enumerate(graph.nodes)}
    edges = [(tail, head, given) for (tail, head), given in graph.edges.items()]
    edges.sort(key=lambda edge: number[edge[0]])  # as networkx has them: by the node they leave
    for tail, head, given in edges:
        _check_edge(name, f"{tail}->{head}", given)
    tails = np.array([number[t] for t, _, _ in edges], np.int32)
    heads = np.array([number[h] for _, h, _ in edges], np.int32)
    half = np.array([d.get("duplex", "full") == "half" for _, _, d in edges], bool)
    return Links(
        tail=tails,
        head=heads,
        bandwidth=np.array([d["bandwidth"] for _, _, d in edges], np.float64),
        latency=np.array([d.get("latency", 0.0) for _, _, d in edges], np.float64),
        kind=np.array([LINK_KINDS.index(d.get("kind", "fabric")) for _, _, d in edges], np.int8),
        resource=pair_resources(tails, heads, half),
    )


def _check_edge(name: str, link: str, given: Mapping[str, Any]) -> None:
    bandwidth, latency = given.get("bandwidth"), given.get("latency", 0.0)
    if bandwidth is None:
        raise TopologyError(f"{name}: link {link} has no bandwidth")
    if isnan(bandwidth) or bandwidth < 0:
        raise TopologyError(f"{name}: link {link} has bandwidth {bandwidth}, expected 0 or more")
    if not 0 <= latency < float("inf"):
        raise TopologyError(f"{name}: link {link} has latency {latency}, expected 0 s or more")
    if given.get("kind", "fabric") not in LINK_KINDS:
        raise TopologyError(f"{name}: link {link} is of unknown kind {given['kind']!r}")
