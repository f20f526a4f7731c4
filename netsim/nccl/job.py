"""One NCCL communicator in its cluster: its nodes, and how its ranks are connected."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property, lru_cache, partial
from math import lcm
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from netsim.base.errors import InputError
from netsim.base.memo import Memo, different
from netsim.base.values import dataclass, grouped
from netsim.nccl import connect
from netsim.nccl.communicator import Channel, ChannelGraph, Communicator, TunerRule
from netsim.nccl.constants import Mechanism, calibrated, mechanism_of
from netsim.nccl.constants import plugin_of as message_plugin
from netsim.nccl.environment import Settings, plugin_variables, settings_from
from netsim.nccl.facts import AUTO, FUNCTIONS, NEWEST, Version, facts_of
from netsim.nccl.graph_xml import GraphFile, graphs_of
from netsim.nccl.node import NodeView, communicator, search_node
from netsim.nccl.p2p import Rounds, Sends, rounds_of, sends_of
from netsim.nccl.paths import PathTable, p2p_level, reaches_directly
from netsim.nccl.system import with_nics
from netsim.topology.cluster import Cluster, usual_fabric
from netsim.topology.config import ClusterConfig, Override
from netsim.topology.fabrics.config import SingleSwitch
from netsim.topology.foreign.nccl_xml import XmlPci, XmlSystem
from netsim.topology.graph import LINK_KINDS
from netsim.topology.machine import Figure, Machine, oldest_machine
from netsim.topology.nccl_view import ASSUMED_SM, node_system


@dataclass(frozen=True)
class Wishes:
    """What the user sets for a communicator.

    - `version`: the version of NCCL.
    - `variables`: NCCL's environment variables.
    - `algorithm`, `protocol`: what is forced, or AUTO.
    - `tuner`: the rules of a tuner plugin.
    - `graphs`: a graph file that replaces searches (NCCL_GRAPH_FILE).
    """

    version: Version = NEWEST
    variables: Mapping[str, str] = field(default_factory=dict)
    algorithm: str = AUTO
    protocol: str = AUTO
    tuner: tuple[TunerRule, ...] = ()
    graphs: GraphFile | None = None

    def settings(self) -> Settings:
        """Return NCCL's settings, from the variables and the forced algorithm and protocol."""
        settings = settings_from(self.variables, self.version)
        if self.algorithm != AUTO:
            self._check_only_once("NCCL_ALGO", "an algorithm")
            settings = replace(settings, algorithms=dict.fromkeys(FUNCTIONS, (self.algorithm,)))
        if self.protocol != AUTO:
            self._check_only_once("NCCL_PROTO", "a protocol")
            settings = replace(settings, protocols=dict.fromkeys(FUNCTIONS, (self.protocol,)))
        return settings

    def with_plugin(self, variables: Mapping[str, str]) -> "Wishes":
        """Return these wishes with the variables that a network plugin sets, unless the user sets
        them.
        """
        forced = {"NCCL_ALGO": self.algorithm, "NCCL_PROTO": self.protocol}
        unforced = [name for name in variables if forced.get(name, AUTO) == AUTO]
        free = {name: variables[name] for name in unforced if not self.variables.get(name)}
        return replace(self, variables={**self.variables, **free}) if free else self

    def on(self, cluster: Cluster, gpus: NDArray[np.int32]) -> "Wishes":
        """Return these wishes for a communicator of these GPUs of a cluster.

        The variables that the plugin of the cluster's network sets are added, unless the user sets
        them.
        """
        return self.with_plugin(plugin_of(cluster, gpus, self.version))

    def _check_only_once(self, variable: str, forced: str) -> None:
        """Refuse an algorithm or protocol that is forced while its variable is set as well."""
        if self.variables.get(variable):
            raise InputError(f"{variable} is set, and {forced} is forced as well: give one of them")


Pair = tuple[int, int]


class LinksInside(Mapping[Pair, str]):
    """The kind of link between every two ranks of one node, by (rank, rank).

    Kinds are nvlink, pcie, phb, shm and net. The pairs of places are stored once for each kind of
    node.
    """

    def __init__(self, seats: connect.Seats, kinds: Sequence[Mapping[Pair, str]]) -> None:
        self.seats = seats
        self.kinds = kinds
        self._kind: list[Mapping[Pair, str]] = [kinds[kind] for kind in seats.kind.tolist()]
        self._node: list[int] = seats.node.tolist()
        self._place: list[int] = seats.place.tolist()

    def __getitem__(self, pair: Pair) -> str:
        first, second = pair
        node = self._node[first]
        if self._node[second] != node:
            raise KeyError(pair)
        return self._kind[node][self._place[first], self._place[second]]

    def __iter__(self) -> Iterator[Pair]:
        for start, kind in zip(self.seats.start.tolist(), self._kind, strict=False):
            ranks = self.seats.ranks[start:]
            yield from ((int(ranks[first]), int(ranks[second])) for first, second in kind)

    def __len__(self) -> int:
        return sum(map(len, self._kind))


def link_kinds(comm: Communicator, view: NodeView) -> dict[Pair, str]:
    """Return how NCCL moves data between any two GPUs of a node, by pair of local ranks."""
    table = view.table
    local = table.graph.local_ranks
    level = comm.facts.rank(p2p_level(table.graph, comm.settings))
    kind_of_pair: dict[Pair, str] = {}
    for first, a in enumerate(table.gpus):
        for second, b in enumerate(table.gpus):
            if first != second:
                kind_of_pair[local[first], local[second]] = _kind(comm, table, a, b, level)
    return kind_of_pair


def _kind(comm: Communicator, table: PathTable, a: int, b: int, level: int) -> str:
    """Return how data moves from GPU `a` to GPU `b`: "nvlink", "pcie", "phb", "shm" or "net".

    `level` is the worst type of path over which GPUs access each other's memory.
    """
    path_type = table.type_of(a, b)
    staged = "net" if comm.settings.shm_disabled else "shm"
    if comm.facts.rank(path_type) > level:
        return staged
    if path_type in ("NVL", "NVB"):
        return "nvlink"
    if not (table.graph.gpu(a).gdr and table.graph.gpu(b).gdr):
        return staged
    through_cpu = comm.facts.rank(path_type) >= comm.facts.rank("PHB")
    return "phb" if through_cpu else "pcie"


# Routes between nodes: by which NICs each channel leaves and enters them, and whether another GPU
# relays the data (PXN).

Ints = NDArray[np.int64]
Hop = tuple[int, int, int]  # channel, from, to


class RoutesBetweenNodes(Mapping[Hop, str]):
    """The name of the route of every hop (channel, source rank, destination rank) between nodes.

    A name such as `nic:0:1` says by which NICs data leaves and arrives; see `_route_name`. `hops`
    has for each channel two arrays: the sources and the destinations of its hops. The routes of all
    hops of a channel are computed when the first of them is needed.
    """

    def __init__(
        self,
        seats: connect.Seats,
        views: Sequence[NodeView],
        graphs: Sequence[ChannelGraph],
        hops: connect.PeriodicSequence[tuple[Ints, Ints]],
    ) -> None:
        self.seats = seats
        self.views = views
        self.graphs = graphs
        self.hops = hops
        # All nodes use only as many searched channels as the node with the fewest has. Executed
        # channels repeat these.
        self.channels = min(graph.n_channels for graph in graphs)
        self.period = lcm(hops.period, self.channels)
        self._routes_of_channel: dict[int, dict[tuple[int, int], str]] = {}

    def __getitem__(self, hop: Hop) -> str:
        return self.of(hop[0])[hop[1], hop[2]]

    def get(self, hop: Hop, default: Any = None) -> Any:
        """Return the route of a hop between nodes, or `default` for a hop inside a node."""
        channel, src, dst = hop
        routes = self._routes_of_channel.get(channel % self.period)
        return (self.of(channel) if routes is None else routes).get((src, dst), default)

    def __iter__(self) -> Iterator[Hop]:
        for channel in range(len(self.hops)):
            yield from ((channel, *pair) for pair in self.of(channel))

    def __len__(self) -> int:
        return sum(len(self.of(channel)) for channel in range(len(self.hops)))

    def of(self, channel: int) -> Mapping[tuple[int, int], str]:
        """Return the routes of one channel by (from, to)."""
        number = channel % self.period
        if number not in self._routes_of_channel:
            self._routes_of_channel[number] = self._compute(channel)
        return self._routes_of_channel[number]

    def _compute(self, channel: int) -> dict[tuple[int, int], str]:
        """Compute the routes of a channel from the NICs of its ranks."""
        src, dst = self.hops[channel]
        node = self.seats.node
        between_nodes = np.flatnonzero(node[src] != node[dst])
        if not len(between_nodes):
            return {}
        src = src[between_nodes]
        dst = dst[between_nodes]
        searched_channel = channel % self.channels
        nics_of_kind = [
            _nics_of_gpus(*kind, searched_channel)
            for kind in zip(self.views, self.graphs, strict=True)
        ]
        width = max(map(len, nics_of_kind))
        table = np.zeros((len(nics_of_kind), width, 2), np.int64)
        for number, rows in enumerate(nics_of_kind):
            table[number, : len(rows)] = rows
        leave, relayed = self._at(table, src).T
        arrive, _ = self._at(table, dst).T
        combined = np.column_stack([leave, arrive, relayed])
        distinct_routes, route_number = np.unique(combined, axis=0, return_inverse=True)
        names = [_route_name(*kind) for kind in distinct_routes.tolist()]
        route_names = [names[number] for number in route_number.reshape(-1).tolist()]
        return dict(zip(zip(src.tolist(), dst.tolist(), strict=True), route_names, strict=True))

    def _at(self, table: Ints, rank: Ints) -> Ints:
        """Return the entries of a table [kind of node, place in the node] for some ranks."""
        entries: Ints = table[self.seats.kind[self.seats.node[rank]], self.seats.place[rank]]
        return entries


def _route_name(leave: int, arrive: int, relayed: int) -> str:
    """Return the name of a route that leaves a node by one NIC and arrives at another by one.

    - `leave`, `arrive`: the numbers of these NICs in their nodes.
    - `relayed`: 1 if another GPU relays the data to the first NIC (PXN), else 0.

    Examples: nic:0:1, pxn:0:1, and pxn if both NICs have the same number and the data is relayed.
    """
    if relayed and leave == arrive:
        return "pxn"
    return f"{'pxn' if relayed else 'nic'}:{leave}:{arrive}"


def _nics_of_gpus(view: NodeView, graph: ChannelGraph, channel: int) -> list[tuple[int, bool]]:
    """Return two values for each GPU of a node: its NIC's number on a channel, and a flag.

    The flag is 1 if the GPU uses PXN: another GPU, next to the NIC, relays the data.
    """
    table = view.table
    searched_channel = graph.channels[channel]
    assert searched_channel.nics is not None  # searched as one of several nodes
    system = table.graph
    nics = []
    for gpu in range(len(table.gpus)):
        net = table.nets[searched_channel.nics[0 if searched_channel.gpus[0] == gpu else 1]]
        relayed = table.type_of(table.gpus[system.local_ranks.index(gpu)], net) == "PXN"
        nics.append((system.net(net).dev, relayed))
    return nics


# The nodes of a communicator as NCCL sees them: the GPUs of an NVLink domain that belong to the
# communicator, numbered by their ranks.

STATED_SINCE = Version(2, 18)  # since this version, plugins state their latency to NCCL
CHOICE_ONLY = ("NCCL_ALGO", "NCCL_PROTO")  # variables that no search depends on


@dataclass(frozen=True)
class NodeLayout:
    """One node: the ranks of the communicator on it, in order, and NCCL's view of it."""

    ranks: tuple[int, ...]
    view: NodeView


def nodes_of(
    cluster: Cluster,
    gpus: NDArray[np.int32],
    version: Version,
    variables: Mapping[str, str],
    settings: Settings,
    graphs: GraphFile | None = None,
) -> tuple[NodeLayout, ...]:
    """Return the nodes of a communicator, in the order of their first ranks.

    `gpus` is by rank the number of its GPU in the cluster. GPUs of one NVLink domain are one node,
    or with NCCL_MNNVL_ENABLE=0 those of one host. Each kind of node is searched once.
    """
    domain = cluster.domain
    transport = cluster.transport.name if cluster.transport else ""
    stated = 0.0
    if cluster.transport and version >= STATED_SINCE:
        stated = cluster.transport.stated_latency * 1e6
    if settings.mnnvl == 0:  # every host is a node, even where NVLink joins several
        domain = np.arange(len(cluster.host_class), dtype=np.int32)
        cluster = replace(cluster, domain=domain)
    ranks = grouped(range(len(gpus)), domain[cluster.gpu_host[gpus]].tolist().__getitem__)
    numbers = np.arange(int(domain[-1]) + 2)
    first = np.searchsorted(domain[cluster.gpu_host], numbers[:-1])
    host = np.searchsorted(domain, numbers)
    chosen = tuple(sorted((k, v) for k, v in variables.items() if k not in CHOICE_ONLY))
    views: dict[tuple[object, ...], NodeView] = {}
    nodes = []
    for number, members in ranks.items():
        places = tuple((gpus[members] - first[number]).tolist())
        key = (tuple(cluster.host_class[host[number] : host[number + 1]].tolist()), places)
        if key not in views:
            system_of_host = with_nics(node_system(cluster, number), transport, settings)
            if stated:
                system_of_host = system_of_host.with_ports(partial(replace, latency=stated))
            system = _system_of_ranks(system_of_host, places)
            views[key] = _searched(system, len(ranks) > 1, version, chosen, graphs)
        nodes.append(NodeLayout(tuple(members), views[key]))
    return tuple(nodes)


@lru_cache(maxsize=256)
def _searched(
    system: XmlSystem,
    networked: bool,
    version: Version,
    variables: tuple[tuple[str, str], ...],
    graphs: GraphFile | None,
) -> NodeView:
    """Return NCCL's view of a node, with the graphs that its search finds."""
    return search_node(
        system,
        networked=networked,
        version=version,
        settings=settings_from(dict(variables), version),
        graphs_of_file=partial(graphs_of, graphs) if graphs else None,
    )


def _system_of_ranks(system: XmlSystem, places: Sequence[int]) -> XmlSystem:
    """Return a node's system with only the GPUs of the communicator, numbered by their ranks.

    `places` are the numbers of these GPUs in the node, in the order of ranks.
    """
    number = {place: rank for rank, place in enumerate(places)}
    if number == {gpu.rank: gpu.rank for gpu in system.gpus()}:
        return system

    def ranked(pci: XmlPci) -> XmlPci:
        """Return a PCI device whose GPU has its rank, or no rank if it is not in the
        communicator.
        """
        gpu = pci.gpu
        if gpu is None:
            return pci
        assert gpu.rank is not None  # node_system gives every GPU one
        return replace(pci, gpu=replace(gpu, rank=number.get(gpu.rank)))

    return system.changed(ranked)


GPU_OWN = "net"  # each GPU's own NIC
T = TypeVar("T")


@dataclass(frozen=True)
class Heads(Generic[T]):
    """Ranks that exchange data with a reducing switch.

    Args:
        ranks: NVLS and CollNetDirect: for each node, the ranks of its heads. CollNetChain: for
            each channel, the chain of ranks of every node, head first.
        nic_routes: for each head (or channel), the name of the route to its NIC.
    """

    ranks: tuple[T, ...] = ()
    nic_routes: tuple[str, ...] = ()


Ranks = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Wiring:
    """How the ranks of a communicator are connected: rings, trees, heads, links, and NICs by
    channel.

    It is the same for all calls of a communicator, and each part is computed when it is needed.
    `nccl/choice.py` says which channels a call uses.
    """

    comm: Communicator
    nodes: Sequence[NodeLayout]

    @cached_property
    def seats(self) -> connect.Seats:
        """The node of every rank and its place there."""
        return connect.seats_of(
            [node.ranks for node in self.nodes], [node.view for node in self.nodes]
        )

    @cached_property
    def views(self) -> tuple[NodeView, ...]:
        """NCCL's view of each kind of node."""
        return tuple(self.nodes[number].view for number in self.seats.first)

    @cached_property
    def node(self) -> tuple[int, ...]:
        """The node of every rank."""
        return tuple(self.seats.node.tolist())

    @property
    def rings(self) -> Sequence[tuple[int, ...]]:
        """The ring of every channel, as ranks in order."""
        return self._layout.rings

    @property
    def trees(self) -> Sequence[connect.Tree]:
        """The tree of every channel."""
        return self._layout.trees

    @cached_property
    def nvls(self) -> Heads[Ranks]:
        """The heads of NVLS, which use the switches inside nodes."""
        return _heads(self.nodes, self.seats, [view.nvls for view in self.views])

    @cached_property
    def direct(self) -> Heads[Ranks]:
        """The heads of CollNetDirect, which use the switches of the network, and their NICs."""
        return _heads(self.nodes, self.seats, [view.collnet_direct for view in self.views])

    @cached_property
    def chains(self) -> Heads[tuple[Ranks, ...]]:
        """The chains of CollNetChain, and the NICs of their heads."""
        kinds = [self.nodes[number] for number in self.seats.first]
        graphs = [node.view.collnet_chain for node in kinds]
        searched = min(graph.n_channels if graph else 0 for graph in graphs)
        if not searched:
            return Heads()
        orders = []
        nic_routes = []
        for number in range(searched):
            channels = [graph.channels[number] for graph in graphs if graph]
            orders.append(_of_nodes(self.nodes, self.seats, [channel.gpus for channel in channels]))
            nic_routes.append(
                _common_route(
                    [
                        _head_route(node, channel)
                        for node, channel in zip(kinds, channels, strict=True)
                    ]
                )
            )
        channel_numbers = [channel % searched for channel in range(self.comm.n_channels)]
        return Heads(
            tuple(orders[turn] for turn in channel_numbers),
            tuple(nic_routes[turn] for turn in channel_numbers),
        )

    @cached_property
    def ring_routes(self) -> Mapping[Hop, str]:
        """The names of the routes (NICs or PXN) of ring hops from one node to another."""
        hops = connect.PeriodicSequence(
            self.comm.n_channels, self._layout.rings.period, self._ring_hops
        )
        return RoutesBetweenNodes(self.seats, self.views, [view.ring for view in self.views], hops)

    @cached_property
    def tree_routes(self) -> Mapping[Hop, str]:
        """The names of the routes (NICs or PXN) of tree hops from one node to another.

        Every edge of a tree is two hops: up to the parent and down from it.
        """
        hops = connect.PeriodicSequence(
            self.comm.n_channels, self._layout.trees.period, self._tree_hops
        )
        return RoutesBetweenNodes(self.seats, self.views, [view.tree for view in self.views], hops)

    @cached_property
    def _layout(self) -> connect.ChannelLayout:
        """The rings and trees of all channels."""
        rings = [view.ring for view in self.views]
        trees = [view.tree for view in self.views]
        return connect.layout_of_channels(rings, trees, self.seats, self.comm.n_channels)

    @cached_property
    def links(self) -> tuple[str, Mapping[Pair, str]]:
        """The most frequent kind of link between ranks of one node, and the exceptions.

        The exceptions are the pairs of ranks with another kind of link, by (rank, rank).
        """
        kinds = [link_kinds(self.comm, view) for view in self.views]
        count = Counter(kind for pairs in kinds for kind in pairs.values())
        usual = count.most_common(1)[0][0] if count else "nvlink"
        others = [{pair: kind for pair, kind in pairs.items() if kind != usual} for pairs in kinds]
        return usual, LinksInside(self.seats, others) if any(others) else {}

    def _ring_hops(self, channel: int) -> tuple[Ints, Ints]:
        """Return all hops of a channel's ring, as ranks: sources and destinations."""
        ring = np.array(self.rings[channel], np.int64)
        return ring, np.roll(ring, -1)

    def _tree_hops(self, channel: int) -> tuple[Ints, Ints]:
        """Return all hops of a channel's tree, up and down, as ranks: sources and destinations."""
        up = np.array(self.trees[channel].up, np.int64)
        below = np.flatnonzero(up >= 0)
        return np.r_[below, up[below]], np.r_[up[below], below]


def _heads(
    nodes: Sequence[NodeLayout], seats: connect.Seats, graphs: Sequence[ChannelGraph | None]
) -> Heads[Ranks]:
    """Return the heads (first GPUs of channels) of each node and the routes to their NICs.

    `graphs` has the graph of each kind of node. Every node uses as many heads as the node with the
    fewest has.
    """
    heads_of_kind = []
    for number, graph in zip(seats.first, graphs, strict=True):
        firsts: dict[int, str] = {}
        for channel in graph.channels if graph else ():
            firsts.setdefault(channel.gpus[0], _head_route(nodes[number], channel))
        heads_of_kind.append(firsts)
    count = min(map(len, heads_of_kind))
    ranks = _of_nodes(nodes, seats, [list(firsts)[:count] for firsts in heads_of_kind])
    nic_routes = zip(*(tuple(firsts.values()) for firsts in heads_of_kind), strict=False)
    return Heads(ranks, tuple(_common_route(same) for same in nic_routes))


def _of_nodes(
    nodes: Sequence[NodeLayout], seats: connect.Seats, places: Sequence[Sequence[int]]
) -> tuple[Ranks, ...]:
    """Return the ranks of each node that have certain places in it.

    `places` has the places (indices of ranks within a node) by kind of node.
    """
    kinds = seats.kind.tolist()
    pairs = zip(nodes, kinds, strict=True)
    return tuple(tuple(node.ranks[place] for place in places[kind]) for node, kind in pairs)


def _head_route(node: NodeLayout, channel: Channel) -> str:
    """Return the name of the route by which the first GPU of a channel reaches the network."""
    if channel.nics is None:
        return GPU_OWN
    table = node.view.table
    return f"nic:{table.graph.net(table.nets[channel.nics[0]]).dev}"


def _common_route(nic_routes: Sequence[str]) -> str:
    """Return the name of the route of one head on all nodes.

    `nic_routes` has its name by kind of node. If these differ, it is the route by each GPU's own
    NIC.
    """
    return nic_routes[0] if len(set(nic_routes)) == 1 else GPU_OWN


GRAPHS = ("ring", "tree", "nvls", "collnet_direct", "collnet_chain")


@dataclass(frozen=True, eq=False)
class NcclJob:
    """A communicator in a cluster.

    `gpus` are the numbers of its ranks' GPUs in the cluster.
    """

    comm: Communicator
    nodes: tuple[NodeLayout, ...]
    cluster: Cluster
    gpus: NDArray[np.int32]

    @cached_property
    def machines(self) -> tuple[Machine, ...]:
        """The machines of the job's hosts, each once."""
        classes = different(self.cluster.host_class[self.cluster.gpu_host[self.gpus]])
        return tuple(self.cluster.hosts[number].machine for number in classes.tolist())

    @property
    def calibration(self) -> Mapping[str, Figure]:
        """The fitted constants of the job's machines; those of the oldest machine if they
        differ.
        """
        return oldest_machine(self.machines).calibration

    @cached_property
    def mechanism(self) -> Mechanism:
        """The costs of execution on the job's GPUs."""
        transport = self.cluster.transport.name if self.cluster.transport else ""
        usual = mechanism_of(
            self.comm.min_cc,
            cpu_vendor=self.comm.cpu_vendor,
            plugin=message_plugin(transport, self.comm.settings),
            rccl=self.comm.rccl,
        )
        links = self.cluster.topology.links
        cables = links.latency[links.kind == LINK_KINDS.index("fabric")]
        far = 2 * bool(cables.max(initial=0.0) >= LONG_CABLE)
        return replace(calibrated(usual, self.calibration), answers=far)

    @cached_property
    def memo(self) -> Memo:
        """A cache of what schedules of several sizes have in common."""
        return Memo()

    @cached_property
    def kinds(self) -> tuple[NodeLayout, ...]:
        """One node of each kind."""
        return tuple({node.view: node for node in self.nodes}.values())

    @cached_property
    def wiring(self) -> Wiring:
        """How the job's ranks are connected: rings, trees, heads and routes."""
        return Wiring(self.comm, self.nodes)

    @cached_property
    def rounds(self) -> Rounds:
        """The rounds of sends and receives: which rank sends to which in each round."""
        ranks = tuple(node.ranks for node in self.nodes)
        return rounds_of(ranks, self.comm.facts, self.comm.settings)

    @cached_property
    def sends(self) -> Sends:
        """Channels and chunk size of sends and receives."""
        return sends_of(self.comm, [node.view.table for node in self.kinds])


def job_of(cluster: Cluster, gpus: NDArray[np.int32], wishes: Wishes) -> NcclJob:
    """Return the communicator over some GPUs of a cluster, as NCCL sets it up.

    `gpus` is by rank the number of its GPU; `wishes` are the user's settings.
    """
    wishes = wishes.on(cluster, gpus)
    settings = wishes.settings()
    nodes = nodes_of(cluster, gpus, wishes.version, wishes.variables, settings, wishes.graphs)
    if len(nodes) > 1 and not all(node.view.table.nets for node in nodes):
        raise InputError("NCCL cannot join these nodes: some have no NIC")
    kinds = {node.view: node for node in nodes}
    communicators = [
        communicator(
            node.view,
            len(nodes),
            version=wishes.version,
            settings=settings,
            network_collectives=any(table.graph.net(net).coll for net in table.nets),
        )
        for node in kinds.values()
        for table in [node.view.table]
    ]
    ranks = [len(node.ranks) for node in nodes]
    if len({comm_of_kind.rccl for comm_of_kind in communicators}) > 1:
        raise InputError(
            "NVIDIA's GPUs and AMD's cannot be in one communicator: NCCL drives the former, RCCL "
            "the latter",
            hint="use machines of one maker, or jobs that each have hosts of one",
        )
    comm = replace(_joined(communicators, ranks), tuner=wishes.tuner)
    return NcclJob(comm, nodes, cluster, gpus)


def plugin_of(cluster: Cluster, gpus: NDArray[np.int32], version: Version) -> Mapping[str, str]:
    """Return the variables that the network's plugin sets for a job; {} inside one NVLink
    domain.
    """
    hosts = different(cluster.gpu_host[gpus])
    if cluster.transport is None or len(different(cluster.domain[hosts])) == 1:
        return {}
    oldest = min(cluster.machine_of(host).gpu.sm or ASSUMED_SM for host in hosts.tolist())
    return plugin_variables(cluster.transport.name, oldest, version)


def _joined(kinds: Sequence[Communicator], ranks: Sequence[int]) -> Communicator:
    """Return the communicator over nodes of several kinds.

    - `kinds`: by kind, a communicator as if all nodes were of this kind.
    - `ranks`: by node, its number of ranks.
    """
    first = kinds[0]
    if len(kinds) == 1:
        return first
    vendors = {comm.cpu_vendor for comm in kinds}
    oldest = min(comm.min_cc for comm in kinds)
    graphs: dict[str, Any] = dict.fromkeys(GRAPHS)  # None if some node has no such graph
    for name, graphs_of_kinds in (
        (name, [getattr(comm, name) for comm in kinds]) for name in GRAPHS
    ):
        graphs[name] = (
            None if None in graphs_of_kinds else connect.worst_graph(graphs_of_kinds, first.facts)
        )
    channels = connect.executed_channels(  # each rank computes it from the graphs agreed on
        graphs["ring"],
        graphs["tree"],
        n_nodes=first.n_nodes,
        local_ranks=max(ranks),  # CollNet adds no channels if all nodes have a single rank
        min_cc=oldest,
        facts=first.facts,
        settings=first.settings,
        collnet=graphs["collnet_chain"],
    )
    return replace(
        first,
        **graphs,
        n_ranks=sum(ranks),
        n_channels=channels,
        min_cc=oldest,
        max_cc=max(comm.max_cc for comm in kinds),
        cpu_vendor=first.cpu_vendor if len(vendors) == 1 else "mixed",
        nvls_channels=min(comm.nvls_channels for comm in kinds),
        n_heads=min(comm.n_heads for comm in kinds),
        most_local_ranks=max(ranks),
        nvswitch=all(comm.nvswitch for comm in kinds),
        network_collectives=all(comm.network_collectives for comm in kinds),
    )


LONG_CABLE = 5e-6  # latency of a cable of 1 km, in seconds
VERBS = ("infiniband", "roce")  # transports that NCCL drives itself, and that sockets can replace


def apply_network_settings(
    config: ClusterConfig, settings: Settings, version: Version
) -> ClusterConfig:
    """Return the configuration of a cluster with the fabric that NCCL uses under its settings.

    - Without InfiniBand verbs (NCCL_IB_DISABLE, NCCL_NET=Socket), messages use TCP.
    - With several queue pairs (NCCL_IB_QPS_PER_CONNECTION), each message is divided among them, or
      messages use them in turn.
    - Without shared memory (NCCL_SHM_DISABLE), the GPUs of a single host exchange data over its
      NICs and a switch.
    """
    changes = _changes_of_fabric(config, settings, version)
    is_one_host = sum(group.nodes for group in config.members) == 1
    needs_switch = is_one_host and settings.shm_disabled
    if not changes and not needs_switch:
        return config
    if is_one_host:
        switch = SingleSwitch(kind="single-switch", **changes)
        return config.model_copy(update={"fabric": switch})
    most_nics = max(group.nic_count for group in config.members)
    fabric = config.fabric or usual_fabric(most_nics)
    return config.model_copy(update={"fabric": fabric.model_copy(update=changes)})


def _changes_of_fabric(
    config: ClusterConfig, settings: Settings, version: Version
) -> dict[str, Any]:
    """Return the keys of a cluster's fabric that NCCL's settings change, with their new values.

    The keys are `transport`, or `qps` and `split_on_qps`; {} if nothing changes.
    """
    stated_transport = config.fabric.transport if config.fabric else None
    transport = stated_transport or config.usual_transport
    if transport not in VERBS:
        return {}
    if settings.ib_disabled or settings.sockets:
        return {"transport": "tcp"}
    if settings.qps <= 1:
        return {}
    split = settings.split_on_qps
    if split is None:
        split = facts_of(version).split_on_qps
    return {"qps": settings.qps, "split_on_qps": split}


def without_gpudirect(config: ClusterConfig) -> ClusterConfig:
    """Return the configuration of a cluster with NICs that cannot reach the memory of GPUs.

    Data then goes through the memory of the host.
    """
    override = Override(machine={"nics": {"gpudirect": False}})
    return config.model_copy(update={"overrides": (*config.overrides, override)})


def loses_gpudirect(job: NcclJob) -> bool:
    """Return whether the user's GPUDirect level keeps every NIC of a job from reaching any GPU."""
    settings = job.comm.settings
    if settings.gdr_level is None or len(job.nodes) == 1:
        return False
    return not any(
        reaches_directly(node.view.table, gpu, net, settings)
        for node in job.kinds
        for gpu in node.view.table.gpus
        for net in node.view.table.nets
    )
