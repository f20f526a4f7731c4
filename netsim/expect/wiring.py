"""How the ranks of a communicator hang together: rings, trees, heads, links and NICs by channel.

The same for all calls of a communicator. Which channels a call uses is the business of `plans`.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from netsim.expect.nodes import Node
from netsim.nccl.channels import Channel, ChannelGraph
from netsim.nccl.communicator import Communicator
from netsim.nccl.executed import mixed_layout
from netsim.nccl.paths import PathTable, p2p_level
from netsim.nccl.trees import Tree
from netsim.nccl.variables import VariableError

Pair = tuple[int, int]
Hop = tuple[int, int, int]  # channel, from, to
GPU_OWN = "net"  # each GPU's own NIC


@dataclass(frozen=True)
class Heads:
    """Ranks that reduce in a switch, by node, and the NIC of each to the network."""

    ranks: tuple[tuple[int, ...], ...] = ()
    doors: tuple[str, ...] = ()


@dataclass(frozen=True)
class Chains:
    """By channel: each node's ranks from its head on, and the NIC of the heads."""

    ranks: tuple[tuple[tuple[int, ...], ...], ...] = ()
    doors: tuple[str, ...] = ()


@dataclass(frozen=True)
class Wiring:
    """Rings and trees of all channels; heads by node; links inside nodes: the usual kind and the
    exceptions; the ways between nodes by (channel, from, to). `nvls`, `direct` and `chains` are the
    heads that switches of the network reach, and by which NICs.
    """

    rings: tuple[tuple[int, ...], ...]
    trees: tuple[Tree, ...]
    nvls: Heads
    direct: Heads
    chains: Chains
    link: str
    links: Mapping[Pair, str]
    ring_routes: Mapping[Hop, str]
    tree_routes: Mapping[Hop, str]


def wiring_of(comm: Communicator, nodes: Sequence[Node]) -> Wiring:
    """All of it, from what NCCL found on each node."""
    rings = [node.view.ring for node in nodes]
    trees = [node.view.tree for node in nodes]
    found = mixed_layout(rings, trees, [node.ranks for node in nodes], comm.n_channels)
    link, links = _links(comm, nodes)
    hops = [(c, hop) for c, ring in enumerate(found.rings) for hop in _around(ring)]
    edges = [(c, hop) for c, tree in enumerate(found.trees) for hop in _edges(tree)]
    return Wiring(
        found.rings,
        found.trees,
        _heads(nodes, [node.view.nvls for node in nodes]),
        _heads(nodes, [node.view.collnet_direct for node in nodes]),
        _chains(nodes, comm.n_channels),
        link,
        links,
        _Ways(nodes, rings).routes(hops),
        _Ways(nodes, trees).routes(edges),
    )


def _around(ring: Sequence[int]) -> list[Pair]:
    return list(zip(ring, (*ring[1:], ring[0]), strict=True))


def _edges(tree: Tree) -> list[Pair]:
    """Every edge in both directions."""
    up = [(rank, parent) for rank, parent in enumerate(tree.up) if parent >= 0]
    return up + [(parent, rank) for rank, parent in up]


def _heads(nodes: Sequence[Node], graphs: Sequence[ChannelGraph | None]) -> Heads:
    """The heads of one search, in the order of its channels: as many as every node has."""
    found = []
    for node, graph in zip(nodes, graphs, strict=True):
        firsts: dict[int, str] = {}
        for channel in graph.channels if graph else ():
            firsts.setdefault(channel.gpus[0], _door(node, channel))
        found.append(firsts)
    count = min(map(len, found))
    ranks = [
        tuple(node.ranks[gpu] for gpu in firsts) for node, firsts in zip(nodes, found, strict=True)
    ]
    doors = zip(*(tuple(firsts.values()) for firsts in found), strict=False)
    return Heads(tuple(own[:count] for own in ranks), tuple(_common(same) for same in doors))


def _chains(nodes: Sequence[Node], n_channels: int) -> Chains:
    """The chains of CollNet on all executed channels, as often as those of the search fit in."""
    graphs = [node.view.collnet_chain for node in nodes]
    searched = min(graph.n_channels if graph else 0 for graph in graphs)
    if not searched:
        return Chains()
    orders, doors = [], []
    for number in range(searched):
        own = [graph.channels[number] for graph in graphs if graph]
        pairs = list(zip(nodes, own, strict=True))
        orders.append(tuple(tuple(node.ranks[gpu] for gpu in one.gpus) for node, one in pairs))
        doors.append(_common([_door(node, one) for node, one in pairs]))
    return Chains(
        tuple(orders[channel % searched] for channel in range(n_channels)),
        tuple(doors[channel % searched] for channel in range(n_channels)),
    )


def _door(node: Node, channel: Channel) -> str:
    """The way by which the first GPU of a channel reaches the network."""
    if channel.nics is None:
        return GPU_OWN
    table = node.view.table
    return f"nic:{table.graph.net(table.nets[channel.nics[0]]).dev}"


def _common(doors: Sequence[str]) -> str:
    """One way for all nodes; each GPU's own where they differ."""
    return doors[0] if len(set(doors)) == 1 else GPU_OWN


def _links(comm: Communicator, nodes: Sequence[Node]) -> tuple[str, dict[Pair, str]]:
    """What joins ranks of one node: the most frequent kind, and all pairs of another."""
    kinds = {id(node.view): _kinds(comm, node) for node in nodes}
    count = Counter(kind for pairs in kinds.values() for kind in pairs.values())
    usual = count.most_common(1)[0][0] if count else "nvlink"
    others: dict[Pair, str] = {}
    for node in nodes:
        for (one, other), kind in kinds[id(node.view)].items():
            if kind != usual:
                others[node.ranks[one], node.ranks[other]] = kind
    return usual, others


def check_shared_memory(comm: Communicator, nodes: Sequence[Node]) -> None:
    """Refuse what NCCL would send over the network inside a node, without its shared memory."""
    if not comm.settings.shm_disabled:
        return
    for node in nodes:
        for (one, other), kind in _kinds(comm, node).items():
            if kind == "shm":
                raise VariableError(
                    "NCCL_SHM_DISABLE",
                    f"it leaves no way between GPUs {one} and {other} of a node but the network, "
                    "which is not simulated",
                )


def _kinds(comm: Communicator, node: Node) -> dict[Pair, str]:
    """How NCCL moves data between any two GPUs of a node, by local rank."""
    table = node.view.table
    local = table.graph.local_ranks
    level = comm.facts.rank(p2p_level(table.graph, comm.settings))
    found: dict[Pair, str] = {}
    for one, a in enumerate(table.gpus):
        for other, b in enumerate(table.gpus):
            if one != other:
                kind = _kind(comm, table, a, b, level)
                found[local[one], local[other]] = kind
    return found


def _kind(comm: Communicator, table: PathTable, a: int, b: int, level: int) -> str:
    found = table.type_of(a, b)
    if comm.facts.rank(found) > level:
        return "shm"
    if found in ("NVL", "NVB"):
        return "nvlink"
    peers = table.graph.gpu(a).gdr and table.graph.gpu(b).gdr
    return "pcie" if peers else "shm"


@dataclass(frozen=True)
class _Ways:
    """The NICs by which one kind of channel leaves and enters the nodes."""

    nodes: Sequence[Node]
    graphs: Sequence[ChannelGraph]

    def routes(self, hops: Sequence[tuple[int, Pair]]) -> dict[Hop, str]:
        """The way of every hop between nodes."""
        place = {rank: n for n, node in enumerate(self.nodes) for rank in node.ranks}
        local = {rank: i for node in self.nodes for i, rank in enumerate(node.ranks)}
        found: dict[Hop, str] = {}
        for channel, (src, dst) in hops:
            if place[src] != place[dst]:
                leave, relayed = self._nic(place[src], local[src], channel)
                arrive, _ = self._nic(place[dst], local[dst], channel)
                way = "pxn" if relayed and leave == arrive else f"nic:{leave}:{arrive}"
                found[channel, src, dst] = way
        return found

    def _nic(self, node: int, gpu: int, channel: int) -> tuple[int, bool]:
        """The NIC of a GPU on a channel, and whether another GPU passes its data on (PXN)."""
        graph, table = self.graphs[node], self.nodes[node].view.table
        own = graph.channels[channel % graph.n_channels]
        assert own.nics is not None  # searched as one of several nodes
        net = table.nets[own.nics[0 if own.gpus[0] == gpu else 1]]
        system = table.graph
        relayed = table.type_of(table.gpus[system.local_ranks.index(gpu)], net) == "PXN"
        return system.net(net).dev, relayed
