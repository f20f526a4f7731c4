"""A job: one NCCL communicator in its cluster, from what a user asks to what NCCL found there."""

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
    """Version, variables, forced algorithm and protocol; rules and graphs in NCCL's place."""

    version: Version = NEWEST
    variables: Mapping[str, str] = field(default_factory=dict)
    algorithm: str = AUTO
    protocol: str = AUTO
    tuner: tuple[TunerRule, ...] = ()
    graphs: GraphFile | None = None

    def settings(self) -> Settings:
        """All of it as NCCL's settings."""
        found = settings_from(self.variables, self.version)
        if self.algorithm != AUTO:
            self._alone("NCCL_ALGO", "an algorithm")
            found = replace(found, algorithms=dict.fromkeys(FUNCTIONS, (self.algorithm,)))
        if self.protocol != AUTO:
            self._alone("NCCL_PROTO", "a protocol")
            found = replace(found, protocols=dict.fromkeys(FUNCTIONS, (self.protocol,)))
        return found

    def with_plugin(self, variables: Mapping[str, str]) -> "Wishes":
        """The same with what a network plugin sets, where the user says nothing of it."""
        forced = {"NCCL_ALGO": self.algorithm, "NCCL_PROTO": self.protocol}
        unforced = [name for name in variables if forced.get(name, AUTO) == AUTO]
        free = {name: variables[name] for name in unforced if not self.variables.get(name)}
        return replace(self, variables={**self.variables, **free}) if free else self

    def on(self, cluster: Cluster, gpus: NDArray[np.int32]) -> "Wishes":
        """The same with what the plugin of the network sets for a job of these GPUs."""
        return self.with_plugin(plugin_of(cluster, gpus, self.version))

    def _alone(self, variable: str, what: str) -> None:
        if self.variables.get(variable):
            raise InputError(f"{variable} is set, and {what} is forced as well: give one of them")


Pair = tuple[int, int]


class LinksInside(Mapping[Pair, str]):
    """Links by rank, from those by place in each kind of node."""

    def __init__(self, seats: connect.Seats, kinds: Sequence[Mapping[Pair, str]]) -> None:
        self.seats, self.kinds = seats, kinds
        self._kind: list[Mapping[Pair, str]] = [kinds[kind] for kind in seats.kind.tolist()]
        self._node: list[int] = seats.node.tolist()
        self._place: list[int] = seats.place.tolist()

    def __getitem__(self, pair: Pair) -> str:
        one, other = pair
        node = self._node[one]
        if self._node[other] != node:
            raise KeyError(pair)
        return self._kind[node][self._place[one], self._place[other]]

    def __iter__(self) -> Iterator[Pair]:
        for start, kind in zip(self.seats.start.tolist(), self._kind, strict=False):
            ranks = self.seats.ranks[start:]
            yield from ((int(ranks[one]), int(ranks[other])) for one, other in kind)

    def __len__(self) -> int:
        return sum(map(len, self._kind))


def link_kinds(comm: Communicator, view: NodeView) -> dict[Pair, str]:
    """How NCCL moves data between any two GPUs of a node, by local rank."""
    table = view.table
    local = table.graph.local_ranks
    level = comm.facts.rank(p2p_level(table.graph, comm.settings))
    found: dict[Pair, str] = {}
    for one, a in enumerate(table.gpus):
        for other, b in enumerate(table.gpus):
            if one != other:
                found[local[one], local[other]] = _kind(comm, table, a, b, level)
    return found


def _kind(comm: Communicator, table: PathTable, a: int, b: int, level: int) -> str:
    found, staged = table.type_of(a, b), "net" if comm.settings.shm_disabled else "shm"
    if comm.facts.rank(found) > level:
        return staged
    if found in ("NVL", "NVB"):
        return "nvlink"
    if not (table.graph.gpu(a).gdr and table.graph.gpu(b).gdr):
        return staged
    through_cpu = comm.facts.rank(found) >= comm.facts.rank("PHB")
    return "phb" if through_cpu else "pcie"


# The ways between nodes: by which NICs each channel leaves and enters them, or over NVLink (PXN).
# Found for all hops of a channel at once, when one of them is asked for.

Ints = NDArray[np.int64]
Hop = tuple[int, int, int]  # channel, from, to


class Ways(Mapping[Hop, str]):
    """The way of every hop between nodes; `hops` are sources and destinations by channel."""

    def __init__(
        self,
        seats: connect.Seats,
        views: Sequence[NodeView],
        graphs: Sequence[ChannelGraph],
        hops: connect.Repeated[tuple[Ints, Ints]],
    ) -> None:
        self.seats, self.views, self.graphs, self.hops = seats, views, graphs, hops
        # All nodes have as many channels as the one with the fewest, and repeat those.
        self.channels = min(graph.n_channels for graph in graphs)
        self.period = lcm(hops.period, self.channels)
        self._known: dict[int, dict[tuple[int, int], str]] = {}

    def __getitem__(self, hop: Hop) -> str:
        return self.of(hop[0])[hop[1], hop[2]]

    def get(self, hop: Hop, default: Any = None) -> Any:
        """The way of a hop; asked for hops inside nodes as well, so without raising for them."""
        channel, src, dst = hop
        known = self._known.get(channel % self.period)
        return (self.of(channel) if known is None else known).get((src, dst), default)

    def __iter__(self) -> Iterator[Hop]:
        for channel in range(len(self.hops)):
            yield from ((channel, *pair) for pair in self.of(channel))

    def __len__(self) -> int:
        return sum(len(self.of(channel)) for channel in range(len(self.hops)))

    def of(self, channel: int) -> Mapping[tuple[int, int], str]:
        """The ways of one channel by (from, to)."""
        number = channel % self.period
        if number not in self._known:
            self._known[number] = self._found(channel)
        return self._known[number]

    def _found(self, channel: int) -> dict[tuple[int, int], str]:
        src, dst = self.hops[channel]
        node = self.seats.node
        away = np.flatnonzero(node[src] != node[dst])
        if not len(away):
            return {}
        src, dst = src[away], dst[away]
        own = channel % self.channels
        doors = [_doors(*kind, own) for kind in zip(self.views, self.graphs, strict=True)]
        width = max(map(len, doors))
        table = np.zeros((len(doors), width, 2), np.int64)
        for number, rows in enumerate(doors):
            table[number, : len(rows)] = rows
        leave, relayed = self._at(table, src).T
        arrive, _ = self._at(table, dst).T
        combined = np.column_stack([leave, arrive, relayed])
        kinds, which = np.unique(combined, axis=0, return_inverse=True)
        names = [_way_name(*kind) for kind in kinds.tolist()]
        ways = [names[number] for number in which.reshape(-1).tolist()]
        return dict(zip(zip(src.tolist(), dst.tolist(), strict=True), ways, strict=True))

    def _at(self, table: Ints, rank: Ints) -> Ints:
        found: Ints = table[self.seats.kind[self.seats.node[rank]], self.seats.place[rank]]
        return found


def _way_name(leave: int, arrive: int, relayed: int) -> str:
    """The name of a way by the NICs that it leaves and arrives by; if it is relayed (PXN), the
    first NIC may be that of another GPU."""
    if relayed and leave == arrive:
        return "pxn"
    return f"{'pxn' if relayed else 'nic'}:{leave}:{arrive}"


def _doors(view: NodeView, graph: ChannelGraph, channel: int) -> list[tuple[int, bool]]:
    """By place, a GPU's NIC on a channel, and whether another GPU passes its data on (PXN)."""
    table, own = view.table, graph.channels[channel]
    assert own.nics is not None  # searched as one of several nodes
    system, found = table.graph, []
    for gpu in range(len(table.gpus)):
        net = table.nets[own.nics[0 if own.gpus[0] == gpu else 1]]
        relayed = table.type_of(table.gpus[system.local_ranks.index(gpu)], net) == "PXN"
        found.append((system.net(net).dev, relayed))
    return found


# The nodes of a communicator as NCCL sees them: GPUs by NVLink domain, each kind searched once.
# A node's GPUs are numbered by their ranks; GPUs that take no part are not there for NCCL.

STATED_SINCE = Version(2, 18)  # plugins of before did not tell NCCL their latency
CHOICE_ONLY = ("NCCL_ALGO", "NCCL_PROTO")  # variables that no search depends on


@dataclass(frozen=True)
class NodeLayout:
    """One node: the ranks of the communicator on it, in order, and what NCCL found there."""

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
    """The nodes of a communicator whose ranks are these GPUs of a cluster, by their first rank."""
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
    found = []
    for number, here in ranks.items():
        places = tuple((gpus[here] - first[number]).tolist())
        key = (tuple(cluster.host_class[host[number] : host[number + 1]].tolist()), places)
        if key not in views:
            there = with_nics(node_system(cluster, number), transport, settings)
            if stated:
                there = there.with_ports(partial(replace, latency=stated))
            system = _taking_part(there, places)
            views[key] = _searched(system, len(ranks) > 1, version, chosen, graphs)
        found.append(NodeLayout(tuple(here), views[key]))
    return tuple(found)


@lru_cache(maxsize=256)
def _searched(
    system: XmlSystem,
    networked: bool,
    version: Version,
    variables: tuple[tuple[str, str], ...],
    graphs: GraphFile | None,
) -> NodeView:
    return search_node(
        system,
        networked=networked,
        version=version,
        settings=settings_from(dict(variables), version),
        given=partial(graphs_of, graphs) if graphs else None,
    )


def _taking_part(system: XmlSystem, places: Sequence[int]) -> XmlSystem:
    number = {place: rank for rank, place in enumerate(places)}
    if number == {gpu.rank: gpu.rank for gpu in system.gpus()}:
        return system

    def ranked(pci: XmlPci) -> XmlPci:
        gpu = pci.gpu
        if gpu is None:
            return pci
        assert gpu.rank is not None  # node_system gives every GPU one
        return replace(pci, gpu=replace(gpu, rank=number.get(gpu.rank)))

    return system.changed(ranked)


# How the ranks of a communicator hang together: rings, trees, heads, links and NICs by channel.
# This is the same for all calls of a communicator; `nccl/choice.py` says which channels one uses.
# What nodes of one kind have in common is computed once for all of them.

GPU_OWN = "net"  # each GPU's own NIC
T = TypeVar("T")


@dataclass(frozen=True)
class Heads(Generic[T]):
    """Ranks that reduce in a switch, by node; or by channel each node's ranks from its head on. And
    the NIC of each head, or of all of a channel, to the network."""

    ranks: tuple[T, ...] = ()
    doors: tuple[str, ...] = ()


Ranks = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Wiring:
    """How the ranks of a communicator hang together, each part found when it is asked for."""

    comm: Communicator
    nodes: Sequence[NodeLayout]

    @cached_property
    def seats(self) -> connect.Seats:
        """Which node every rank sits on."""
        return connect.seats_of(
            [node.ranks for node in self.nodes], [node.view for node in self.nodes]
        )

    @cached_property
    def views(self) -> tuple[NodeView, ...]:
        """What NCCL found on each kind of node."""
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
        """The heads that switches inside nodes reach."""
        return _heads(self.nodes, self.seats, [view.nvls for view in self.views])

    @cached_property
    def direct(self) -> Heads[Ranks]:
        """The heads that switches of the network reach, and by which NICs."""
        return _heads(self.nodes, self.seats, [view.collnet_direct for view in self.views])

    @cached_property
    def chains(self) -> Heads[tuple[Ranks, ...]]:
        """The chains from these heads on."""
        kinds = [self.nodes[number] for number in self.seats.first]
        graphs = [node.view.collnet_chain for node in kinds]
        searched = min(graph.n_channels if graph else 0 for graph in graphs)
        if not searched:
            return Heads()
        orders, doors = [], []
        for number in range(searched):
            own = [graph.channels[number] for graph in graphs if graph]
            orders.append(_of_nodes(self.nodes, self.seats, [one.gpus for one in own]))
            doors.append(_common([_door(node, one) for node, one in zip(kinds, own, strict=True)]))
        turns = [channel % searched for channel in range(self.comm.n_channels)]
        return Heads(tuple(orders[turn] for turn in turns), tuple(doors[turn] for turn in turns))

    @cached_property
    def ring_routes(self) -> Mapping[Hop, str]:
        """The ways of rings between nodes."""
        found = connect.Repeated(self.comm.n_channels, self._layout.rings.period, self._around)
        return Ways(self.seats, self.views, [view.ring for view in self.views], found)

    @cached_property
    def tree_routes(self) -> Mapping[Hop, str]:
        """The ways of trees between nodes, in both directions of every edge."""
        found = connect.Repeated(self.comm.n_channels, self._layout.trees.period, self._edges)
        return Ways(self.seats, self.views, [view.tree for view in self.views], found)

    @cached_property
    def _layout(self) -> connect.Layout:
        rings, trees = [view.ring for view in self.views], [view.tree for view in self.views]
        return connect.laid_out(rings, trees, self.seats, self.comm.n_channels)

    @cached_property
    def links(self) -> tuple[str, Mapping[Pair, str]]:
        """What joins ranks of one node: the most frequent kind, and all pairs of another."""
        kinds = [link_kinds(self.comm, view) for view in self.views]
        count = Counter(kind for pairs in kinds for kind in pairs.values())
        usual = count.most_common(1)[0][0] if count else "nvlink"
        others = [{pair: kind for pair, kind in pairs.items() if kind != usual} for pairs in kinds]
        return usual, LinksInside(self.seats, others) if any(others) else {}

    def _around(self, channel: int) -> tuple[Ints, Ints]:
        ring = np.array(self.rings[channel], np.int64)
        return ring, np.roll(ring, -1)

    def _edges(self, channel: int) -> tuple[Ints, Ints]:
        up = np.array(self.trees[channel].up, np.int64)
        below = np.flatnonzero(up >= 0)
        return np.r_[below, up[below]], np.r_[up[below], below]


def _heads(
    nodes: Sequence[NodeLayout], seats: connect.Seats, graphs: Sequence[ChannelGraph | None]
) -> Heads[Ranks]:
    found = []
    for number, graph in zip(seats.first, graphs, strict=True):
        firsts: dict[int, str] = {}
        for channel in graph.channels if graph else ():
            firsts.setdefault(channel.gpus[0], _door(nodes[number], channel))
        found.append(firsts)
    count = min(map(len, found))
    ranks = _of_nodes(nodes, seats, [list(firsts)[:count] for firsts in found])
    doors = zip(*(tuple(firsts.values()) for firsts in found), strict=False)
    return Heads(ranks, tuple(_common(same) for same in doors))


def _of_nodes(
    nodes: Sequence[NodeLayout], seats: connect.Seats, places: Sequence[Sequence[int]]
) -> tuple[Ranks, ...]:
    kinds = seats.kind.tolist()
    pairs = zip(nodes, kinds, strict=True)
    return tuple(tuple(node.ranks[place] for place in places[kind]) for node, kind in pairs)


def _door(node: NodeLayout, channel: Channel) -> str:
    """The way by which the first GPU of a channel reaches the network."""
    if channel.nics is None:
        return GPU_OWN
    table = node.view.table
    return f"nic:{table.graph.net(table.nets[channel.nics[0]]).dev}"


def _common(doors: Sequence[str]) -> str:
    """One way for all nodes; each GPU's own where they differ."""
    return doors[0] if len(set(doors)) == 1 else GPU_OWN


GRAPHS = ("ring", "tree", "nvls", "collnet_direct", "collnet_chain")


@dataclass(frozen=True, eq=False)
class Job:
    """A communicator and its nodes; `gpus` are the devices of its ranks in the cluster."""

    comm: Communicator
    nodes: tuple[NodeLayout, ...]
    cluster: Cluster
    gpus: NDArray[np.int32]

    @cached_property
    def machines(self) -> tuple[Machine, ...]:
        """The machines of its hosts, each kind once."""
        classes = different(self.cluster.host_class[self.cluster.gpu_host[self.gpus]])
        return tuple(self.cluster.hosts[number].machine for number in classes.tolist())

    @property
    def calibration(self) -> Mapping[str, Figure]:
        """What was fitted to its machines; to the oldest, whose constants all ranks have, where
        they differ."""
        return oldest_machine(self.machines).calibration

    @cached_property
    def mechanism(self) -> Mechanism:
        """What execution costs on its GPUs."""
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
        """What schedules of several sizes have in common."""
        return Memo()

    @cached_property
    def kinds(self) -> tuple[NodeLayout, ...]:
        """A node of each kind."""
        return tuple({node.view: node for node in self.nodes}.values())

    @cached_property
    def wiring(self) -> Wiring:
        """How its ranks hang together."""
        return Wiring(self.comm, self.nodes)

    @cached_property
    def rounds(self) -> Rounds:
        """Who sends to whom when."""
        ranks = tuple(node.ranks for node in self.nodes)
        return rounds_of(ranks, self.comm.facts, self.comm.settings)

    @cached_property
    def sends(self) -> Sends:
        """Channels and chunk of sends and receives."""
        return sends_of(self.comm, [node.view.table for node in self.kinds])


def job_of(cluster: Cluster, gpus: NDArray[np.int32], wishes: Wishes) -> Job:
    """The communicator of these GPUs, in rank order, as NCCL sets it up."""
    wishes = wishes.on(cluster, gpus)
    settings = wishes.settings()
    nodes = nodes_of(cluster, gpus, wishes.version, wishes.variables, settings, wishes.graphs)
    if len(nodes) > 1 and not all(node.view.table.nets for node in nodes):
        raise InputError("NCCL cannot join these nodes: some have no NIC")
    kinds = {node.view: node for node in nodes}
    alike = [
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
    if len({one.rccl for one in alike}) > 1:
        raise InputError(
            "NVIDIA's GPUs and AMD's cannot be in one communicator: NCCL drives the former, RCCL "
            "the latter",
            hint="use machines of one maker, or jobs that each have hosts of one",
        )
    comm = replace(_joined(alike, ranks), tuner=wishes.tuner)
    return Job(comm, nodes, cluster, gpus)


def plugin_of(cluster: Cluster, gpus: NDArray[np.int32], version: Version) -> Mapping[str, str]:
    """What the network's plugin sets for a job; nothing where the job is one NVLink domain."""
    hosts = different(cluster.gpu_host[gpus])
    if cluster.transport is None or len(different(cluster.domain[hosts])) == 1:
        return {}
    oldest = min(cluster.machine_of(host).gpu.sm or ASSUMED_SM for host in hosts.tolist())
    return plugin_variables(cluster.transport.name, oldest, version)


def _joined(kinds: Sequence[Communicator], ranks: Sequence[int]) -> Communicator:
    """What nodes of several kinds agree on, from communicators over nodes of one kind each."""
    first = kinds[0]
    if len(kinds) == 1:
        return first
    vendors, oldest = {one.cpu_vendor for one in kinds}, min(one.min_cc for one in kinds)
    graphs: dict[str, Any] = dict.fromkeys(GRAPHS)  # none where one node has none
    for name, some in ((name, [getattr(one, name) for one in kinds]) for name in GRAPHS):
        graphs[name] = None if None in some else connect.worst_graph(some, first.facts)
    channels = connect.executed_channels(  # every rank counts them from the graphs agreed on
        graphs["ring"],
        graphs["tree"],
        n_nodes=first.n_nodes,
        local_ranks=max(ranks),  # only where no node has two are there no more channels for them
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
        max_cc=max(one.max_cc for one in kinds),
        cpu_vendor=first.cpu_vendor if len(vendors) == 1 else "mixed",
        nvls_channels=min(one.nvls_channels for one in kinds),
        n_heads=min(one.n_heads for one in kinds),
        most_local_ranks=max(ranks),
        nvswitch=all(one.nvswitch for one in kinds),
        network_collectives=all(one.network_collectives for one in kinds),
    )


LONG_CABLE = 5e-6  # seconds: 1 km
VERBS = ("infiniband", "roce")  # transports that NCCL drives itself, and that sockets can replace


def networked(config: ClusterConfig, settings: Settings, version: Version) -> ClusterConfig:
    """The cluster with the network that a version of NCCL uses of it under these settings."""
    changed: dict[str, Any] = {}
    transport = (config.fabric.transport if config.fabric else None) or config.usual_transport
    if transport in VERBS and (settings.ib_disabled or settings.sockets):
        changed["transport"] = "tcp"
    elif transport in VERBS and settings.qps > 1:
        split = settings.split_on_qps
        changed["qps"] = settings.qps
        changed["split_on_qps"] = facts_of(version).split_on_qps if split is None else split
    alone = sum(group.nodes for group in config.members) == 1
    if not changed and not (settings.shm_disabled and alone):
        return config
    if alone:  # its GPUs may have to meet at its NICs
        return config.model_copy(update={"fabric": SingleSwitch(kind="single-switch", **changed)})
    fabric = config.fabric or usual_fabric(max(group.nic_count for group in config.members))
    return config.model_copy(update={"fabric": fabric.model_copy(update=changed)})


def without_gpudirect(config: ClusterConfig) -> ClusterConfig:
    """The cluster whose NICs reach GPUs through host memory only."""
    override = Override(machine={"nics": {"gpudirect": False}})
    return config.model_copy(update={"overrides": (*config.overrides, override)})


def loses_gpudirect(job: Job) -> bool:
    """Whether a level that was asked for keeps all NICs of a job from reaching any GPU."""
    settings = job.comm.settings
    if settings.gdr_level is None or len(job.nodes) == 1:
        return False
    return not any(
        reaches_directly(node.view.table, gpu, net, settings)
        for node in job.kinds
        for gpu in node.view.table.gpus
        for net in node.view.table.nets
    )
