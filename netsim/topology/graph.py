"""A topology as arrays: names and kinds of nodes, and links as columns.

Generated clusters are built as arrays directly; a GraphSketch or a networkx graph is converted to
the same arrays. Routes are found by other modules.
"""

from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from math import inf, isnan
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from netsim.base.errors import InputError
from netsim.base.memo import Memo
from netsim.base.values import dataclass

if TYPE_CHECKING:
    import networkx as nx

Ints = NDArray[np.int32]
Longs = NDArray[np.int64]
Floats = NDArray[np.float64]
Sides = NDArray[np.bool_]  # whether each node is on a side of a cut

NODE_KINDS = ("gpu", "nvswitch", "pcie", "cpu", "nic", "switch", "memory")
LINK_KINDS = ("nvlink", "xgmi", "c2c", "pcie", "upi", "hostmem", "nic", "fabric")
Switching = Literal["cut-through", "store-and-forward"]
GPU_LINKS = (LINK_KINDS.index("nvlink"), LINK_KINDS.index("xgmi"))  # from GPU to GPU or NVSwitch


class TopologyError(InputError, ValueError):
    """A graph that is not a usable topology; the message names the node or link."""


@dataclass(frozen=True, slots=True)
class Links:
    """All directed links as columns: entry n of each array describes link n.

    Args:
        tail: node that the link leaves.
        head: node that the link enters.
        bandwidth: bytes per second.
        latency: seconds.
        kind: index of LINK_KINDS.
        resource: number of the link whose capacity this link uses: its own, or for both directions
            of a half-duplex pair that of the first.
    """

    tail: Ints
    head: Ints
    bandwidth: Floats
    latency: Floats
    kind: NDArray[np.int8]
    resource: Ints

    def __post_init__(self) -> None:
        for name in Links.__slots__:
            getattr(self, name).setflags(write=False)

    def __len__(self) -> int:
        return len(self.tail)


@dataclass(frozen=True, slots=True)
class Layout:
    """Nodes and links of a topology as columns.

    Args:
        nodes: names of the nodes.
        kinds: kind of each node, an index of NODE_KINDS.
        passes: whether each node forwards traffic between others.
        links: directed links.
        reduces: whether each node adds up data that passes it: a switch with SHARP.
    """

    nodes: tuple[Hashable, ...]
    kinds: NDArray[np.int8]
    passes: NDArray[np.bool_]
    links: Links
    reduces: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class GraphSketch:
    """A graph as dictionaries: nodes by name, and links by (tail, head), each with its attributes.

    It replaces a networkx graph for callers that need no algorithms of networkx: the import of
    networkx takes longer than many simulations.

    >>> sketch = GraphSketch()
    >>> sketch.node("gpu0", kind="gpu")
    >>> sketch.node("switch0")
    >>> sketch.edge("gpu0", "switch0", both=True, bandwidth=50e9)
    >>> list(sketch.edges)
    [('gpu0', 'switch0'), ('switch0', 'gpu0')]
    """

    nodes: dict[Hashable, dict[str, Any]] = field(default_factory=dict)
    edges: dict[tuple[Hashable, Hashable], dict[str, Any]] = field(default_factory=dict)

    def node(self, name: Hashable, *, reduces: bool = False, **attributes: Any) -> None:
        """Add a node. `reduces` marks a switch that adds up data that passes it (SHARP)."""
        self.nodes[name] = {**attributes, "reduces": True} if reduces else attributes

    def edge(
        self, tail: Hashable, head: Hashable, *, both: bool = False, **attributes: Any
    ) -> None:
        """Add a link between two nodes of the sketch; with `both` also one in the other direction.

        Attributes are `bandwidth` (bytes a second), `latency` (seconds), `kind` and `duplex`."""
        for ends in ((tail, head), (head, tail)) if both else ((tail, head),):
            self.edges[ends] = dict(attributes)

    def remove(self, name: Hashable) -> None:
        """Remove a node and its links."""
        del self.nodes[name]
        for ends in [ends for ends in self.edges if name in ends]:
            del self.edges[ends]


def freeze_graph(name: str, graph: "GraphSketch | nx.DiGraph[Any]") -> Layout:
    """Convert a graph to arrays; refuse unknown kinds of nodes and links and invalid bandwidths and
    latencies. `name` is the name of the topology, for messages.
    """
    for node, attributes in graph.nodes.items():
        if attributes.get("kind", "switch") not in NODE_KINDS:
            raise TopologyError(f"{name}: node {node} is of unknown kind {attributes['kind']!r}")
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


def parallel_numbers(links: Links) -> Ints:
    """Return the number of each link among the parallel links with the same tail and head: 0, 1,
    …
    """
    order = np.lexsort((np.arange(len(links)), links.head, links.tail))
    tail = links.tail[order]
    head = links.head[order]
    new = np.r_[True, (tail[1:] != tail[:-1]) | (head[1:] != head[:-1])][: len(order)]
    position = np.arange(len(order))
    start = np.maximum.accumulate(np.where(new, position, 0))
    result = np.zeros(len(links), np.int32)
    result[order] = position - start
    return result


def _freeze_links(name: str, graph: "GraphSketch | nx.DiGraph[Any]") -> Links:
    """Convert the edges of a graph to columns of links. `name` is the name of the topology, for
    messages.
    """
    number = {node: n for n, node in enumerate(graph.nodes)}
    edges = [(tail, head, attributes) for (tail, head), attributes in graph.edges.items()]
    edges.sort(key=lambda edge: number[edge[0]])  # in the order of networkx: by their tail
    for tail, head, attributes in edges:
        _check_edge(name, f"{tail}->{head}", attributes)
    tails = np.array([number[t] for t, _, _ in edges], np.int32)
    heads = np.array([number[h] for _, h, _ in edges], np.int32)
    half = np.array([d.get("duplex", "full") == "half" for _, _, d in edges], bool)
    # The number of the link whose capacity each link uses: its own, or the first of a half-duplex
    # pair.
    resource = np.arange(len(tails), dtype=np.int32)
    first: dict[tuple[int, int], int] = {}
    for link in np.flatnonzero(half):
        ends = sorted((int(tails[link]), int(heads[link])))
        resource[link] = first.setdefault((ends[0], ends[1]), int(link))
    return Links(
        tail=tails,
        head=heads,
        bandwidth=np.array([d["bandwidth"] for _, _, d in edges], np.float64),
        latency=np.array([d.get("latency", 0.0) for _, _, d in edges], np.float64),
        kind=np.array([LINK_KINDS.index(d.get("kind", "fabric")) for _, _, d in edges], np.int8),
        resource=resource,
    )


def _check_edge(name: str, link: str, attributes: Mapping[str, Any]) -> None:
    """Refuse a link without a valid bandwidth, latency and kind. `name` is that of the topology."""
    bandwidth = attributes.get("bandwidth")
    latency = attributes.get("latency", 0.0)
    if bandwidth is None:
        raise TopologyError(f"{name}: link {link} has no bandwidth")
    if isnan(bandwidth) or bandwidth < 0:
        raise TopologyError(f"{name}: link {link} has bandwidth {bandwidth}, expected 0 or more")
    if not 0 <= latency < float("inf"):
        raise TopologyError(f"{name}: link {link} has latency {latency}, expected 0 s or more")
    if attributes.get("kind", "fabric") not in LINK_KINDS:
        raise TopologyError(f"{name}: link {link} is of unknown kind {attributes['kind']!r}")


# The Topology: a directed graph of GPUs, switches, NICs and the links between them. It holds no
# state of a simulation.


@dataclass(frozen=True, slots=True)
class Routes:
    """One route for each pair of a query, in CSR form: route n consists of `link[ptr[n]:ptr[n +
    1]]`.

    Args:
        ptr: where the links of each route begin in `link`.
        link: links of all routes, one route after the other.
        fraction: fraction of the bytes on each link; 1 unless a message is divided among several
            paths.
        latency: seconds of one traversal of each route.
    """

    ptr: Longs
    link: Ints
    fraction: Floats
    latency: Floats

    def of(self, pairs: Longs) -> "Routes":
        """Return the routes of the pairs with these numbers."""
        size = np.diff(self.ptr)[pairs]
        ptr = np.concatenate([np.zeros(1, np.int64), np.cumsum(size)])
        at = np.arange(int(ptr[-1])) + np.repeat(self.ptr[:-1][pairs] - ptr[:-1], size)
        return Routes(ptr, self.link[at], self.fraction[at], self.latency[pairs])


# Sources, destinations, channels, and the name of the route that all of them take (`way`).
RouteQuery = tuple[Ints, Ints, Ints, str]


class Router(ABC):
    """Finds the links between GPUs; depends on nothing but the topology and its own parameters.

    A subclass defines `per_channel` and `routes`. The other properties have the values of a router
    with a single fixed path between two GPUs.
    """

    @property
    @abstractmethod
    def per_channel(self) -> bool:
        """Whether different channels between the same GPUs may take different routes."""

    @abstractmethod
    def routes(self, topology: "Topology", src: Ints, dst: Ints, channel: Ints, way: str) -> Routes:
        """Return the route from device `src[i]` to device `dst[i]` for rows of channel
        `channel[i]`; `way` is the name of the route (see RouteOptions).
        """

    @property
    def choices(self) -> int:
        """The largest number of paths from which a message chooses when it starts."""
        return 1

    @property
    def queue_pairs_in_turn(self) -> int:
        """The number of queue pairs of a connection that successive messages use in turn; 1 if
        every message is divided among all queue pairs.
        """
        return 1

    @property
    def window(self) -> float:
        """Bytes that all connections of a message together may have in flight; infinite without a
        limit.
        """
        return inf

    @property
    def incast(self) -> float:
        """The fraction by which a NIC takes longer to receive a byte for each further sender to
        it.
        """
        return 0.0

    @property
    def by_load(self) -> bool:
        """Whether paths, or the rate at which NICs receive, depend on other traffic."""
        return False

    @property
    def hashed_routing(self) -> str:
        """The routing policy if it chooses paths by a hash, else an empty text."""
        return ""


FEW_ROUTES = 1024  # routes of a query whose result is cached
KEPT_ROUTES = 1024  # results in the cache


@dataclass(frozen=True)
class Topology:
    """Devices joined by links: a graph, its GPUs, and how paths between them are chosen.

    - `name`: name of the topology in messages.
    - `description`: a networkx graph, a GraphSketch, or arrays (a Layout).
    - `gpus`: the nodes of kind gpu, in device order. `len(topology)` is their number.
    - `router`: chooses the paths.
    - `capacities`: for each resource (`sm`, `hbm`, `nvls`, …) the capacity of every GPU, in bytes
      or seconds a second. A resource that is absent never limits.

    >>> from netsim.topology.routing import switch
    >>> topology = switch(4, bandwidth=50e9, latency=1e-6)
    >>> len(topology), len(topology.links), topology.link_name(0)
    (4, 8, 'gpu0->switch0')
    """

    name: str
    description: "nx.DiGraph[Any] | GraphSketch | Layout"
    gpus: tuple[Hashable, ...]
    router: Router
    capacities: Mapping[str, Floats] = field(default_factory=dict)
    changes: tuple[tuple[float, int, float], ...] = ()  # time, link, new bandwidth
    slower: tuple[tuple[float, int, float], ...] = ()  # time, GPU, remaining fraction of its rates
    effects: tuple[Any, ...] = ()  # effects of faults (`faults.Effect`), also of later ones
    switching: Switching = "cut-through"
    """Store-and-forward: a node forwards a message only when it has arrived completely."""

    def __post_init__(self) -> None:
        if not self.gpus:
            raise TopologyError(f"{self.name}: a topology needs at least one GPU")

    def __len__(self) -> int:
        return len(self.gpus)

    @cached_property
    def memo(self) -> Memo:
        """A cache in which functions keep results about this topology; not part of its value."""
        return Memo()

    @cached_property
    def token(self) -> object:
        """A unique value: a key for caches that must not keep the topology alive."""
        return object()

    @cached_property
    def layout(self) -> Layout:
        """Nodes and links as arrays; links are in the order of the graph's edges."""
        if isinstance(self.description, Layout):
            return self.description
        return freeze_graph(self.name, self.description)

    @cached_property
    def graph(self) -> "nx.DiGraph[Any]":
        """The topology as a networkx graph, in which parallel links are one edge."""
        return graph_of(self.description)

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
        """The number of every node by its name."""
        return {name: number for number, name in enumerate(self.nodes)}

    @cached_property
    def gpu_nodes(self) -> Ints:
        """The node number of every device."""
        return np.array([self.node_number[gpu] for gpu in self.gpus], np.int32)

    def link_name(self, link: int) -> str:
        """Return the name of a link: `tail->head`; the n-th further parallel link ends with
        `#n`.
        """
        tail = int(self.links.tail[link])
        head = int(self.links.head[link])
        parallel_number = int(self.parallel_numbers[link])
        return f"{self.nodes[tail]}->{self.nodes[head]}" + (
            f"#{parallel_number}" if parallel_number else ""
        )

    @cached_property
    def parallel_numbers(self) -> Ints:
        """The number of each link among the parallel links with the same tail and head: 0, 1, …"""
        return parallel_numbers(self.links)

    def routes(self, src: Ints, dst: Ints, channel: Ints, way: str = "") -> Routes:
        """Return the route from each device `src[i]` to `dst[i]` on `channel[i]` (see
        Router.routes).

        Results of queries of up to FEW_ROUTES pairs are cached: operations of other sizes need the
        same ones.
        """
        if len(src) > FEW_ROUTES:
            return self.router.routes(self, src, dst, channel, way)
        question = len(src), src.tobytes(), dst.tobytes(), channel.tobytes(), way
        kept_routes = self.memo.of("routes", lambda: Memo(KEPT_ROUTES))
        return kept_routes.of(question, lambda: self.router.routes(self, src, dst, channel, way))

    def routes_of_messages(self, requests: Sequence[RouteQuery]) -> Routes:
        """Return the routes of all messages of a schedule: those of the first request, then those
        of the second, and so on. Each of the `requests` is the source, destination and channel of
        some messages, and the name of their route.

        With adaptive routing, messages are taken to start one after the other at one instant. Each
        takes, of its possible paths, the one whose fullest link has the fewest messages for its
        rate; links that all its paths share do not count.
        """
        choices = range(self.router.choices)
        if len(choices) == 1:
            return joined([self.routes(*request) for request in requests])
        rates = self.links.bandwidth.clip(1.0).tolist()
        flows = [0] * len(rates)
        parts = []
        for src, dst, channel, way in requests:
            every = joined(
                [self.routes(src, dst, channel, f"{way}@{choice}") for choice in choices]
            )
            first = every.ptr.tolist()
            count = len(src)
            taken = []
            for pair in range(count):
                rows = range(pair, len(every.latency), count)
                links = [every.link[first[row] : first[row + 1]].tolist() for row in rows]
                shared = set(links[0]).intersection(*links)
                full = [
                    max(((flows[n] + 1) / rates[n] for n in path if n not in shared), default=0.0)
                    for path in links
                ]
                best = full.index(min(full))
                taken.append(rows[best])
                for link in links[best]:
                    flows[link] += 1
            parts.append(every.of(np.array(taken, np.int64)))
        return joined(parts)


def joined(parts: Sequence[Routes]) -> Routes:
    """Return the routes of several queries in one Routes, query by query."""
    first = np.cumsum([0] + [len(part.link) for part in parts])
    ptr = [part.ptr[:-1] + start for part, start in zip(parts, first, strict=False)]
    return Routes(
        np.concatenate([*ptr, first[-1:]]),
        np.concatenate([np.zeros(0, np.int32), *(part.link for part in parts)]),
        np.concatenate([np.zeros(0), *(part.fraction for part in parts)]),
        np.concatenate([np.zeros(0), *(part.latency for part in parts)]),
    )


def empty_graph() -> "nx.DiGraph[Any]":
    """Return an empty networkx graph; networkx is imported only here, as that takes long."""
    import networkx as nx

    return nx.DiGraph()


def graph_of(description: "nx.DiGraph[Any] | GraphSketch | Layout") -> "nx.DiGraph[Any]":
    """Return the networkx graph of a description of a topology."""
    if isinstance(description, Layout):
        return thaw(description)
    if not isinstance(description, GraphSketch):
        return description
    graph = empty_graph()
    graph.add_nodes_from(description.nodes.items())
    graph.add_edges_from((*ends, given) for ends, given in description.edges.items())
    return graph


def thaw(layout: Layout) -> "nx.DiGraph[Any]":
    """Return the networkx graph of a layout; parallel links become one edge with the sum of their
    bandwidths and their `count`.
    """
    graph = empty_graph()
    names = layout.nodes
    links = layout.links
    of_nodes = (layout.kinds, layout.passes, layout.reduces)
    for node, kind, passes, adds in zip(names, *of_nodes, strict=True):
        extra = {"reduces": True} if adds else {}
        graph.add_node(node, kind=NODE_KINDS[kind], forwards=bool(passes), **extra)
    half = np.bincount(links.resource, minlength=len(links))[links.resource] > 1
    columns = (links.tail, links.head, links.bandwidth, links.latency, links.kind, half)
    for tail, head, bandwidth, latency, kind, shared in zip(
        *(column.tolist() for column in columns), strict=True
    ):
        edge = graph.get_edge_data(names[tail], names[head])
        graph.add_edge(
            names[tail],
            names[head],
            bandwidth=bandwidth + (edge["bandwidth"] if edge else 0.0),
            latency=latency,
            kind=LINK_KINDS[kind],
            duplex="half" if shared else "full",
            count=1 + (edge["count"] if edge else 0),
        )
    return graph


# Names of routes (`way`) that a schedule may use:
# ""         the topology's choice: NVLink or PCIe inside a host, the GPU's own NIC between hosts
# "staged"   inside a host, through its memory, as NCCL's shared-memory transport does
# "pxn"      over the NIC on the receiver's rail, reached over NVLink and the GPU beside that NIC
# "net"      over NICs, even inside a host
# "nic:A"    leave by NIC A
# "nic:A:B"  leave by NIC A and arrive at NIC B
# "pxn:A:B"  as "nic:A:B", with NIC A reached as in "pxn"
# Each of them may end with "@Q": over queue pair Q of the connection.

EXPECTED = 'expected "", "staged", "pxn", "net", "nic:A", "nic:A:B" or "pxn:A:B"'


@dataclass(frozen=True, slots=True)
class RouteOptions:
    """What the name of a route requires. NICs are numbers inside their host.

    Args:
        staged: through the memory of the host.
        relay: over NVLink to the GPU beside the NIC (PXN).
        network: over NICs even inside a host.
        leave: NIC of the sender; -1 for the GPU's own.
        arrive: NIC of the receiver; -1 for the GPU's own.
        queue: queue pair of the connection; -1 for all.
    """

    staged: bool = False
    relay: bool = False
    network: bool = False
    leave: int = -1
    arrive: int = -1
    queue: int = -1


def parse_route_options(text: str) -> RouteOptions:
    """Parse the name of a route, such as `pxn:0:3@1`."""
    text, _, queue = text.partition("@")
    return replace(_way_of_nics(text), queue=int(queue)) if queue else _way_of_nics(text)


def _way_of_nics(text: str) -> RouteOptions:
    """Parse the name of a route without its queue pair, such as `pxn:0:3`."""
    simple = {
        "": RouteOptions(),
        "staged": RouteOptions(staged=True),
        "pxn": RouteOptions(relay=True),
        "net": RouteOptions(network=True),
    }
    if text in simple:
        return simple[text]
    head, *numbers = text.split(":")
    counts = {"nic": (1, 2), "pxn": (2,)}.get(head, ())
    if len(numbers) not in counts or not all(n.isdigit() for n in numbers):
        raise TopologyError(f"unknown way {text!r}: {EXPECTED}")
    arrive = int(numbers[-1]) if numbers[1:] else -1
    return RouteOptions(network=True, relay=head == "pxn", leave=int(numbers[0]), arrive=arrive)


def least_and_most(
    capacity: Floats, changes: Sequence[tuple[float, int, float]]
) -> tuple[Floats, Floats]:
    """Return the lowest and the highest capacity of each link over time.

    `capacity` is that at the start, `changes` are (time, link, new capacity).
    """
    least = capacity.copy()
    most = capacity.copy()
    for _, link, value in changes:
        least[link], most[link] = min(least[link], value), max(most[link], value)
    return least, most


def flow(hops: Sequence[tuple[Any, Any, Any]], source: int, sink: int) -> tuple[int, Sides]:
    """Return the maximum flow from node `source` to `sink`, and a mask of the nodes on the source's
    side of a minimum cut.

    Args:
        hops: edges as (from, to, integer capacity); each may also be an array.
        source: number of a node.
        sink: number of a node.
    """
    # scipy takes longer to import than many a simulation.
    from scipy.sparse import csgraph, csr_array

    joined = (np.concatenate(list(map(np.atleast_1d, c))) for c in zip(*hops, strict=True))
    tails, heads, most = joined
    shape = (int(max(tails.max(), heads.max(), source, sink)) + 1,) * 2
    matrix = csr_array((most.astype(np.int32), (tails, heads)), shape=shape)
    result = csgraph.maximum_flow(matrix, source, sink)
    left: Any = matrix - result.flow
    left = left.multiply(left > 0).tocsr()
    left.eliminate_zeros()
    side = np.zeros(shape[0], bool)
    side[csgraph.breadth_first_order(left, source, return_predecessors=False)] = True
    return int(result.flow_value), side
