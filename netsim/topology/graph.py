"""The Topology: a directed graph of GPUs, switches, NICs and the links between them.

The networkx graph is the description; for simulating it is frozen to arrays, and no state of a run
lives on it. This module knows neither schedules nor scenarios.
"""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import isnan
from typing import Any, Protocol

import networkx as nx
import numpy as np
from numpy.typing import NDArray

NODE_KINDS = ("gpu", "nvswitch", "pcie", "cpu", "nic", "switch")
LINK_KINDS = ("nvlink", "xgmi", "c2c", "pcie", "upi", "hostmem", "nic", "fabric")

# Preference in routing: NVLink before anything else, then PCIe, as NCCL's path types rank them.
HOP_COST = {
    "nvlink": 1,
    "xgmi": 1,
    "c2c": 2,
    "pcie": 4,
    "nic": 4,
    "fabric": 4,
    "hostmem": 8,
    "upi": 16,
}


class TopologyError(ValueError):
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

    def __len__(self) -> int:
        return len(self.tail)


@dataclass(frozen=True, slots=True)
class Routes:
    """One route for each pair asked for, in CSR form: links, the fraction of the bytes on each
    (1 unless sprayed over several paths), and the latency of one traversal in seconds.
    """

    ptr: NDArray[np.int64]
    link: NDArray[np.int32]
    fraction: NDArray[np.float64]
    latency: NDArray[np.float64]


class Router(Protocol):
    """Finds the links between GPUs; a pure function of the topology and its own parameters."""

    @property
    def per_channel(self) -> bool:
        """Whether different channels between the same GPUs may go different ways."""
        ...

    def routes(
        self,
        topology: "Topology",
        src: NDArray[np.int32],
        dst: NDArray[np.int32],
        channel: NDArray[np.int32],
        way: str,
    ) -> Routes:
        """Routes from device `src[i]` to device `dst[i]` for rows of a channel."""
        ...


@dataclass(frozen=True)
class Topology:
    """Devices joined by links.

    `gpus` lists the graph's nodes of kind gpu in device order. `capacities` holds, by resource name
    (`sm`, `hbm`, `nvls`, …), what one GPU has of it; what is absent never limits.
    """

    name: str
    graph: "nx.DiGraph[Any]"
    gpus: tuple[Hashable, ...]
    router: Router
    capacities: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)
    changes: tuple[tuple[float, int, float], ...] = ()

    def __post_init__(self) -> None:
        if not self.gpus:
            raise TopologyError(f"{self.name}: a topology needs at least one GPU")

    def __len__(self) -> int:
        return len(self.gpus)

    @cached_property
    def nodes(self) -> tuple[Hashable, ...]:
        """The names of all nodes, in the order of their numbers."""
        return tuple(self.graph.nodes)

    @cached_property
    def node_number(self) -> Mapping[Hashable, int]:
        """The number of every node."""
        return {name: number for number, name in enumerate(self.nodes)}

    @cached_property
    def gpu_nodes(self) -> NDArray[np.int32]:
        """The node number of every device."""
        return np.array([self.node_number[gpu] for gpu in self.gpus], np.int32)

    @cached_property
    def links(self) -> Links:
        """The links as arrays, in the order of the graph's edges."""
        return freeze_links(self)

    def link_name(self, link: int) -> str:
        """A link as `tail->head`."""
        tail, head = int(self.links.tail[link]), int(self.links.head[link])
        return f"{self.nodes[tail]}->{self.nodes[head]}"

    def routes(
        self,
        src: NDArray[np.int32],
        dst: NDArray[np.int32],
        channel: NDArray[np.int32],
        way: str = "",
    ) -> Routes:
        """Routes between devices, see Router."""
        return self.router.routes(self, src, dst, channel, way)


def freeze_links(topology: Topology) -> Links:
    """Read the edges of the graph into columns, refusing what no simulation could use."""
    number = topology.node_number
    edges = list(topology.graph.edges(data=True))
    for tail, head, given in edges:
        _check_edge(topology.name, f"{tail}->{head}", given)
    tails = np.array([number[t] for t, _, _ in edges], np.int32)
    heads = np.array([number[h] for _, h, _ in edges], np.int32)
    half = np.array([d.get("duplex", "full") == "half" for _, _, d in edges], bool)
    links = Links(
        tail=tails,
        head=heads,
        bandwidth=np.array([d["bandwidth"] for _, _, d in edges], np.float64),
        latency=np.array([d.get("latency", 0.0) for _, _, d in edges], np.float64),
        kind=np.array([LINK_KINDS.index(d.get("kind", "fabric")) for _, _, d in edges], np.int8),
        resource=_resources(tails, heads, half),
    )
    for name in Links.__slots__:
        getattr(links, name).setflags(write=False)
    return links


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


def _resources(
    tail: NDArray[np.int32], head: NDArray[np.int32], half: NDArray[np.bool_]
) -> NDArray[np.int32]:
    """A number for the capacity that each link draws on: its own, or the pair's if half duplex."""
    resource = np.arange(len(tail), dtype=np.int32)
    first: dict[tuple[int, int], int] = {}
    for link in np.flatnonzero(half):
        ends = sorted((int(tail[link]), int(head[link])))
        resource[link] = first.setdefault((ends[0], ends[1]), int(link))
    return resource
