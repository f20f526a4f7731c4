"""From the graph of one node to the channels that run: how many, and over which ranks they go.

Search channels are doubled, rings of the nodes are joined end to end, and each pair of channels
gets the two trees. The ranks of nodes may be numbered in any way.
"""

from collections.abc import Sequence
from functools import partial

import numpy as np

from netsim.nccl.channels import ChannelGraph
from netsim.nccl.facts import Facts
from netsim.nccl.repeated import Repeated
from netsim.nccl.seats import Seats, seats_of
from netsim.nccl.settings import NO_SETTINGS, Settings
from netsim.nccl.trees import Tree, children_of, double_binary_tree, planted
from netsim.values import dataclass

Nodes = Sequence[Sequence[int]]
PLENTY = 16  # channels that Hopper needs over a network before NCCL stops doubling
FAST_RING = 45.0


@dataclass(frozen=True)
class Layout:
    """The executed channels: for each its ring, as ranks in order, and its tree."""

    rings: Repeated[tuple[int, ...]]
    trees: Repeated[Tree]


def contiguous_nodes(n_nodes: int, local_ranks: int) -> tuple[range, ...]:
    """The ranks of each node when they are numbered node by node."""
    return tuple(range(first * local_ranks, (first + 1) * local_ranks) for first in range(n_nodes))


def executed_channels(
    ring: ChannelGraph,
    tree: ChannelGraph,
    *,
    n_nodes: int,
    local_ranks: int,
    min_cc: int,
    facts: Facts,
    settings: Settings = NO_SETTINGS,
    collnet: ChannelGraph | None = None,
) -> int:
    """How many channels a communicator has after doubling and the user's limits."""
    count = min(2 * min(ring.n_channels, tree.n_channels), facts.max_channels)
    if collnet is not None and collnet.n_channels:
        wide_inside = collnet.bw_intra > collnet.bw_inter and local_ranks > 1
        count = min(count * 3 // 2, facts.max_channels) if wide_inside else count
    if min_cc >= 90 and n_nodes > 1 and ring.bw_intra > FAST_RING and count < PLENTY:
        count = min(2 * count, facts.max_channels)
    return limited_channels(count, facts, settings)


def limited_channels(count: int, facts: Facts, settings: Settings) -> int:
    """A number of channels within NCCL_MIN_NCHANNELS and NCCL_MAX_NCHANNELS; the least wins."""
    if settings.max_channels is not None:
        count = min(count, settings.max_channels)
    if settings.min_channels is not None:
        count = max(count, settings.min_channels)
    return max(1, min(count, facts.max_channels))


def worst_graph(graphs: Sequence[ChannelGraph], facts: Facts) -> ChannelGraph:
    """What nodes of several kinds agree on: the fewest channels, slowest speeds and worst types.

    Its channels are those of the first node; `mixed_layout` takes each node's own.
    """
    first = graphs[0]
    worst = max((graph.type_intra for graph in graphs), key=facts.rank)
    far = max((graph.type_inter for graph in graphs), key=facts.rank)
    count = min(graph.n_channels for graph in graphs)
    return ChannelGraph(
        pattern=max(graph.pattern for graph in graphs),
        n_channels=count,
        bw_intra=min(graph.bw_intra for graph in graphs),
        bw_inter=min(graph.bw_inter for graph in graphs),
        type_intra=worst,
        type_inter=far,
        same_channels=all(graph.same_channels for graph in graphs),
        cross_nic=max(graph.cross_nic for graph in graphs),
        latency_inter=max(graph.latency_inter for graph in graphs),
        channels=first.channels[:count],
    )


def layout(ring: ChannelGraph, tree: ChannelGraph, nodes: Nodes, n_channels: int) -> Layout:
    """Rings and trees of all executed channels over the ranks of equal `nodes`."""
    return mixed_layout([ring] * len(nodes), [tree] * len(nodes), nodes, n_channels)


def mixed_layout(
    rings: Sequence[ChannelGraph],
    trees: Sequence[ChannelGraph],
    nodes: Nodes,
    n_channels: int,
) -> Layout:
    """Rings and trees over the ranks of `nodes`, each node with its own graphs."""
    seats = seats_of(nodes, zip(map(id, rings), map(id, trees), strict=True))
    kinds = [(rings[node], trees[node]) for node in seats.first]
    return laid_out([ring for ring, _ in kinds], [tree for _, tree in kinds], seats, n_channels)


def laid_out(
    rings: Sequence[ChannelGraph], trees: Sequence[ChannelGraph], seats: Seats, n_channels: int
) -> Layout:
    """The same from the graphs of each kind of node."""
    searched = min(graph.n_channels for graph in (*rings, *trees))
    joined = Repeated(n_channels, searched, partial(_ring, rings, seats, searched))
    pattern = max(graph.pattern for graph in trees)
    twins = [children_of(places) for places in double_binary_tree(len(seats))]

    def plant(number: int) -> Tree:
        twin, channel = divmod(number, searched)
        orders = [graph.channels[channel].gpus for graph in trees]
        return planted(seats.in_order(orders, seats.kind), pattern, twins[twin])

    return Layout(joined, Repeated(n_channels, 2 * searched, plant))


def _ring(
    graphs: Sequence[ChannelGraph], seats: Seats, searched: int, channel: int
) -> tuple[int, ...]:
    """One ring over all nodes; with crossed rails every second node runs the pair's other half."""
    crossed = max(graph.cross_nic for graph in graphs) == 2 and searched % 2 == 0
    turns = [channel, channel ^ 1] if crossed else [channel]
    orders = [graph.channels[own].gpus for graph in graphs for own in turns]
    case = seats.kind * len(turns) + np.arange(len(seats)) % len(turns)
    return tuple(seats.in_order(orders, case).ranks.tolist())
