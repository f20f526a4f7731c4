"""The Topology: a directed graph of GPUs, switches, NICs and the links between them.

A graph is the description; for simulating it is frozen to arrays, and no state of a run lives on
it. This module knows neither schedules nor scenarios.
"""

from collections.abc import Hashable, Mapping
from dataclasses import field
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from netsim.topology.layout import Layout, Links, Sketch, TopologyError, freeze_graph, lanes
from netsim.values import dataclass

if TYPE_CHECKING:
    import networkx as nx


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
    """Devices joined by links, described by a graph or laid out as arrays.

    `gpus` lists the nodes of kind gpu in device order. `capacities` holds, by resource name
    (`sm`, `hbm`, `nvls`, …), what one GPU has of it; what is absent never limits.
    """

    name: str
    description: "nx.DiGraph[Any] | Sketch | Layout"
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
    def memory(self) -> dict[object, Any]:
        """What those who work on it keep for the next time; not part of it."""
        return {}

    @cached_property
    def layout(self) -> Layout:
        """Nodes and links as arrays, links in the order of the graph's edges."""
        if isinstance(self.description, Layout):
            return self.description
        return freeze_graph(self.name, self.description)

    @cached_property
    def graph(self) -> "nx.DiGraph[Any]":
        """The networkx graph; parallel links of a layout are one edge here."""
        drawn: nx.DiGraph[Any] = import_module("netsim.topology.drawn").graph_of(self.description)
        return drawn

    @property
    def nodes(self) -> tuple[Hashable, ...]:
        """The names of all nodes, in the order of their numbers."""
        return self.layout.nodes

    @property
    def node_kinds(self) -> NDArray[np.int8]:
        """The kind of every node, as an index of NODE_KINDS."""
        return self.layout.kinds

    @property
    def links(self) -> Links:
        """The links as arrays."""
        return self.layout.links

    @cached_property
    def node_number(self) -> Mapping[Hashable, int]:
        """The number of every node."""
        return {name: number for number, name in enumerate(self.nodes)}

    @cached_property
    def gpu_nodes(self) -> NDArray[np.int32]:
        """The node number of every device."""
        return np.array([self.node_number[gpu] for gpu in self.gpus], np.int32)

    def link_name(self, link: int) -> str:
        """A link as `tail->head`, the second and further ones between the same ends with `#n`."""
        tail, head = int(self.links.tail[link]), int(self.links.head[link])
        lane = int(self._lanes[link])
        return f"{self.nodes[tail]}->{self.nodes[head]}" + (f"#{lane}" if lane else "")

    @cached_property
    def _lanes(self) -> NDArray[np.int32]:
        return lanes(self.links)

    def routes(
        self,
        src: NDArray[np.int32],
        dst: NDArray[np.int32],
        channel: NDArray[np.int32],
        way: str = "",
    ) -> Routes:
        """Routes between devices, see Router."""
        return self.router.routes(self, src, dst, channel, way)
