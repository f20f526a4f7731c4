"""From the graph of one node to the channels that run: how many, and over which ranks they go.

Search channels are doubled, rings of the nodes are joined end to end, and each pair of channels
gets the two trees. Nodes are equal here; their ranks may be numbered in any way.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from netsim.nccl.channels import ChannelGraph
from netsim.nccl.facts import Facts
from netsim.nccl.settings import NO_SETTINGS, Settings
from netsim.nccl.trees import Tree, channel_tree, double_binary_tree

Nodes = Sequence[Sequence[int]]
PLENTY = 16  # channels that Hopper needs over a network before NCCL stops doubling
FAST_RING = 45.0


@dataclass(frozen=True)
class Layout:
    """The executed channels: for each its ring, as ranks in order, and its tree."""

    rings: tuple[tuple[int, ...], ...]
    trees: tuple[Tree, ...]


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


def layout(ring: ChannelGraph, tree: ChannelGraph, nodes: Nodes, n_channels: int) -> Layout:
    """Rings and trees of all executed channels over the ranks of `nodes`, node by node."""
    searched = min(ring.n_channels, tree.n_channels)
    rings = [_ring(ring, nodes, channel, searched) for channel in range(searched)]
    twins = double_binary_tree(len(nodes))
    trees: list[Tree] = []
    for places in twins:
        for channel in range(searched):
            orders = [[node[gpu] for gpu in tree.channels[channel].gpus] for node in nodes]
            trees.append(channel_tree(orders, tree.pattern, places))
    return Layout(
        tuple(rings[channel % searched] for channel in range(n_channels)),
        tuple(trees[channel % len(trees)] for channel in range(n_channels)),
    )


def _ring(graph: ChannelGraph, nodes: Nodes, channel: int, searched: int) -> tuple[int, ...]:
    """One ring over all nodes; with crossed rails every second node runs the pair's other half."""
    crossed = graph.cross_nic == 2 and searched % 2 == 0
    ranks: list[int] = []
    for number, node in enumerate(nodes):
        own = channel ^ 1 if crossed and number % 2 else channel
        ranks += (node[gpu] for gpu in graph.channels[own].gpus)
    return tuple(ranks)
