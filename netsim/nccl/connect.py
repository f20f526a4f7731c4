"""How the channels of nodes are joined to rings, trees and heads of a communicator.

NCCL: src/graph/connect.cc (ncclTopoPreset, ncclTopoPostset) and src/graph/trees.cc.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import cached_property, partial
from itertools import chain
from typing import Generic, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from netsim.base.values import dataclass
from netsim.collectives.forest import names_in_second_tree, parents
from netsim.nccl.communicator import BALANCED_TREE, SPLIT_TREE, ChannelGraph
from netsim.nccl.environment import Settings
from netsim.nccl.facts import Facts

T = TypeVar("T")


class PeriodicSequence(Sequence[T], Generic[T]):
    """A sequence of `count` values that repeat with a period: value i is `make(i % period)`.

    Values are made only when they are read: for example, trees over very many ranks are not made if
    only rings run.
    """

    def __init__(self, count: int, period: int, make: Callable[[int], T]) -> None:
        self.length = count
        self.period = period
        self.make = make
        self._values: dict[int, T] = {}

    def __len__(self) -> int:
        return self.length

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[T, ...]: ...

    def __getitem__(self, index: int | slice) -> T | tuple[T, ...]:
        places = range(self.length)
        if isinstance(index, slice):
            return tuple(self[number] for number in places[index])
        number = places[index] % self.period
        if number not in self._values:
            self._values[number] = self.make(number)
        return self._values[number]


# Seats: the node of every rank and its place there, as columns. Nodes whose searches had the same
# result are of one kind, which is handled once. Ranks may be on nodes in any order.

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Seats:
    """The node of every rank and its place in the node.

    A kind is a set of nodes whose searches had the same result, so that they have the same
    channels.

    - `ranks`: the ranks of all nodes, one node after the other.
    - `start`: where the ranks of each node begin in `ranks`; the last entry is the number of ranks.
    - `kind`: the number of the kind of every node.
    - `first`: by kind, the number of one of its nodes.
    """

    ranks: Ints
    start: Ints
    kind: Ints
    first: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.kind)

    @cached_property
    def size(self) -> Ints:
        """The number of ranks of each node."""
        return np.diff(self.start)

    @cached_property
    def node(self) -> Ints:
        """The node of every rank."""
        return self._by_rank(np.repeat(np.arange(len(self)), self.size))

    @cached_property
    def place(self) -> Ints:
        """The index of every rank among those of its node."""
        return self._by_rank(np.arange(len(self.ranks)) - np.repeat(self.start[:-1], self.size))

    def in_order(self, orders: Sequence[Sequence[int]], case: Ints) -> "Seats":
        """Return the same nodes with the ranks of each node in another order.

        The ranks of node i get the order `orders[case[i]]`: indices of ranks within the node.
        """
        size = np.array([len(order) for order in orders], np.int64)[case]
        start = np.r_[0, np.cumsum(size)]
        ranks = np.empty(start[-1], np.int64)
        for number, order in enumerate(orders):
            members = np.flatnonzero(case == number)[:, None]
            there = start[members] + np.arange(len(order))
            ranks[there] = self.ranks[self.start[members] + np.array(order, np.int64)]
        return Seats(ranks, start, self.kind, self.first)

    def _by_rank(self, column: Ints) -> Ints:
        """Return values of ranks by number of the rank; in `column` they are in the order of
        `ranks`.
        """
        result = np.empty(len(self.ranks), np.int64)
        result[self.ranks] = column
        return result


def seats_of(nodes: Iterable[Sequence[int]], kinds: Iterable[Hashable]) -> Seats:
    """Return the seats of nodes; nodes with equal entries in `kinds` are of one kind.

    `nodes` has the ranks of each node, `kinds` any hashable value for each node.
    """
    ranks = list(nodes)
    number: dict[Hashable, int] = {}
    kind = [number.setdefault(kind_key, len(number)) for kind_key in kinds]
    first = [kind.index(kind_key) for kind_key in range(len(number))]
    start = np.cumsum([0, *map(len, ranks)])
    flat = np.fromiter(chain.from_iterable(ranks), np.int64, int(start[-1]))
    return Seats(flat, start, np.array(kind, np.int64), tuple(first))


# NCCL's double binary tree over nodes, and the tree of one channel over ranks. Between nodes it is
# a binary tree whose leaves are inner nodes of the other tree; inside a node it is a chain with the
# first GPU on top. The pattern of the search says which GPUs of the chain use the network.


@dataclass(frozen=True)
class NodePlace:
    """The place of one node in a tree: parent or -1, and two children or -1."""

    up: int
    down: tuple[int, int]


@dataclass(frozen=True)
class Tree:
    """The tree of one channel: for each rank its parent (`up`, -1 at the root) and its children.

    Inside a node, ranks form a chain. The child in the chain comes first in `down`, before the
    children in other nodes.
    """

    up: tuple[int, ...]
    down: tuple[tuple[int, ...], ...]

    @property
    def root(self) -> int:
        """The rank without a parent."""
        return self.up.index(-1)


def double_binary_tree(n_nodes: int) -> tuple[tuple[NodePlace, ...], tuple[NodePlace, ...]]:
    """Return both trees over nodes, each as the parent and the children of every node.

    The first is rooted at node 0, and its leaves are the odd nodes. The second is the first with
    nodes renamed, such that leaves of one are inner nodes of the other. The first child of a node
    is the one before it. NCCL: src/graph/trees.cc, ncclGetDtree.
    """
    up: list[int] = parents(n_nodes).tolist()
    down = [[-1, -1] for _ in up]
    for node, parent in enumerate(up[1:], 1):
        down[parent][node > parent] = node
    first = tuple(NodePlace(one, (low, high)) for one, (low, high) in zip(up, down, strict=True))
    name = [*names_in_second_tree(n_nodes), -1]
    twins = {
        name[node]: NodePlace(name[one.up], (name[one.down[0]], name[one.down[1]]))
        for node, one in enumerate(first)
    }
    return first, tuple(twins[node] for node in range(n_nodes))


def children_of(places: Sequence[NodePlace]) -> Ints:
    """Return the two children of every node, as [node, number]; -1 for none."""
    return np.array([place.down for place in places], np.int64).reshape(-1, 2)


def tree_of_ranks(seats: Seats, pattern: int, children: Ints) -> Tree:
    """Return the tree over all ranks, from a tree over nodes and a chain inside each node.

    - `seats`: the ranks of each node in the order of its chain.
    - `pattern`: the pattern of the search, which says which GPUs of a chain use the network.
    - `children`: the child nodes of every node, as [node, number]; -1 for none.

    NCCL: connectTrees, setTreeUp and setTreeDown in src/graph/connect.cc.
    """
    ranks = seats.ranks
    start = seats.start
    up = np.full(len(ranks), -1, np.int64)
    inner = np.ones(len(ranks), bool)
    inner[start[:-1]] = False  # the first GPU of a chain has no parent in its node
    below = np.flatnonzero(inner)
    up[ranks[below]] = ranks[below - 1]
    down: list[tuple[int, ...]] = [()] * len(ranks)
    for above, child in zip(ranks[below - 1].tolist(), ranks[below].tolist(), strict=True):
        down[above] = (child,)
    for number in (0, 1):
        # Where in the chain of the parent node the GPU is that has child number `number`.
        place = {BALANCED_TREE: 1 - number, SPLIT_TREE: 1}.get(pattern, 0)
        node = np.flatnonzero(children[:, number] >= 0)
        parent = ranks[start[node] + np.minimum(place, seats.size[node] - 1)]
        top = ranks[start[children[node, number]]]
        up[top] = parent
        for above, child in zip(parent.tolist(), top.tolist(), strict=True):
            down[above] = (*down[above], child)
    return Tree(tuple(up.tolist()), tuple(down))


# From the graph of one node to the channels that run. The channels of the search are doubled, the
# rings of the nodes are joined end to end, and each pair of channels gets the two trees.

PLENTY = 16  # channels on Hopper with several nodes from which NCCL does not double again
FAST_RING = 45.0


@dataclass(frozen=True)
class ChannelLayout:
    """The ring of every executed channel, as ranks in order, and its tree."""

    rings: PeriodicSequence[tuple[int, ...]]
    trees: PeriodicSequence[Tree]


def executed_channels(
    ring: ChannelGraph,
    tree: ChannelGraph,
    *,
    n_nodes: int,
    local_ranks: int,
    min_cc: int,
    facts: Facts,
    settings: Settings,
    collnet: ChannelGraph | None,
) -> int:
    """Return the number of channels of a communicator after doubling and the user's limits.

    `ring` and `tree` are the graphs of the searches on its nodes, `collnet` that of CollNetChain.
    """
    count = min(2 * min(ring.n_channels, tree.n_channels), facts.max_channels)
    if collnet is not None and collnet.n_channels:
        wide_inside = collnet.bw_intra > collnet.bw_inter and local_ranks > 1
        count = min(count * 3 // 2, facts.max_channels) if wide_inside else count
    if min_cc >= 90 and n_nodes > 1 and ring.bw_intra > FAST_RING and count < PLENTY:
        count = min(2 * count, facts.max_channels)
    return limited_channels(count, facts, settings)


def limited_channels(count: int, facts: Facts, settings: Settings) -> int:
    """Return the number of channels `count`, limited by NCCL_MIN_NCHANNELS and NCCL_MAX_NCHANNELS.

    If these contradict each other, the minimum holds. The result is at least 1 and at most
    `facts.max_channels`, whatever the user sets. NCCL: ncclMinNchannels, ncclMaxNchannels.
    """
    if settings.max_channels is not None:
        count = min(count, settings.max_channels)
    if settings.min_channels is not None:
        count = max(count, settings.min_channels)
    return max(1, min(count, facts.max_channels))


def worst_graph(graphs: Sequence[ChannelGraph], facts: Facts) -> ChannelGraph:
    """Return the graph that nodes of several kinds agree on.

    It has the fewest channels, the lowest speeds and the worst path types of all. Its channels are
    those of the first graph.
    """
    count = min(graph.n_channels for graph in graphs)
    return ChannelGraph(
        pattern=max(graph.pattern for graph in graphs),
        n_channels=count,
        bw_intra=min(graph.bw_intra for graph in graphs),
        bw_inter=min(graph.bw_inter for graph in graphs),
        type_intra=max((graph.type_intra for graph in graphs), key=facts.rank),
        type_inter=max((graph.type_inter for graph in graphs), key=facts.rank),
        same_channels=all(graph.same_channels for graph in graphs),
        cross_nic=max(graph.cross_nic for graph in graphs),
        latency_inter=max(graph.latency_inter for graph in graphs),
        channels=graphs[0].channels[:count],
    )


def layout_of_channels(
    rings: Sequence[ChannelGraph], trees: Sequence[ChannelGraph], seats: Seats, n_channels: int
) -> ChannelLayout:
    """Return the rings and trees of all `n_channels` executed channels over the ranks of all nodes.

    `rings` and `trees` are the graphs that the searches found, one for each kind of node.
    """
    searched = min(graph.n_channels for graph in (*rings, *trees))
    joined = PeriodicSequence(n_channels, searched, partial(_ring, rings, seats, searched))
    pattern = max(graph.pattern for graph in trees)
    twins = [children_of(places) for places in double_binary_tree(len(seats))]

    def tree_of_channel(number: int) -> Tree:
        """Return the tree of a channel.

        The search finds `searched` channels. The first `searched` channels of the communicator use
        the first tree of the double binary tree, the others the second.
        """
        twin, channel = divmod(number, searched)
        orders = [graph.channels[channel].gpus for graph in trees]
        return tree_of_ranks(seats.in_order(orders, seats.kind), pattern, twins[twin])

    return ChannelLayout(joined, PeriodicSequence(n_channels, 2 * searched, tree_of_channel))


def _ring(
    graphs: Sequence[ChannelGraph], seats: Seats, searched: int, channel: int
) -> tuple[int, ...]:
    """Return the ring of a channel: the ranks of all nodes in order.

    - `graphs`: the graph of the search for rings, of each kind of node.
    - `searched`: the number of channels of the search.
    - `channel`: the number of the channel, below `searched`.

    If rings cross rails (NCCL_CROSS_NIC=2), channels form pairs, and every second node has the
    order of GPUs of the pair's other channel.
    """
    crossed = max(graph.cross_nic for graph in graphs) == 2 and searched % 2 == 0
    turns = [channel, channel ^ 1] if crossed else [channel]
    orders = [graph.channels[own].gpus for graph in graphs for own in turns]
    case = seats.kind * len(turns) + np.arange(len(seats)) % len(turns)
    return tuple(seats.in_order(orders, case).ranks.tolist())
