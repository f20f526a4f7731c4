"""Orders of GPUs and NICs, rings over nodes and double trees, as NCCL's own dumps show them."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from netsim.nccl.communicator import Channel, ChannelGraph
from netsim.nccl.connect import (
    ChannelLayout,
    double_binary_tree,
    layout_of_channels,
    seats_of,
    worst_graph,
)
from netsim.nccl.facts import facts_of
from tests.nccl.nccl_nodes import node_of, searched_communicator
from tests.nccl.nccl_plans import channel_tree, contiguous_nodes

Nodes = Sequence[Sequence[int]]


def layout(
    ring: ChannelGraph, tree: ChannelGraph, nodes: Sequence[Sequence[int]], n_channels: int
) -> ChannelLayout:
    """Rings and trees of all executed channels over the ranks of equal `nodes`."""
    return mixed_layout([ring] * len(nodes), [tree] * len(nodes), nodes, n_channels)


def mixed_layout(
    rings: Sequence[ChannelGraph],
    trees: Sequence[ChannelGraph],
    nodes: Sequence[Sequence[int]],
    n_channels: int,
) -> ChannelLayout:
    """Rings and trees over the ranks of `nodes`, each node with its own graphs."""
    seats = seats_of(nodes, zip(map(id, rings), map(id, trees), strict=True))
    kinds = [(rings[node], trees[node]) for node in seats.first]
    return layout_of_channels(
        [ring for ring, _ in kinds], [tree for _, tree in kinds], seats, n_channels
    )


def orders(config: str, kind: str, *, networked: bool) -> list[str]:
    graph = getattr(node_of(config, networked=networked), kind)
    return ["".join(map(str, channel.gpus)) for channel in graph.channels]


def test_rings_of_the_cube_mesh():
    assert orders("dgx1v_4nic", "ring", networked=False) == [
        *["03215674"] * 2,
        *["04765123"] * 2,
        "01375462",
        "02645731",
    ]


def test_rings_that_cross_rails_come_in_pairs():
    ring = node_of("h100_8nic", networked=True).ring
    assert orders("h100_8nic", "ring", networked=True)[:2] == ["07654321", "12345670"]
    assert [channel.nics for channel in ring.channels[:4]] == [(0, 1), (1, 0), (2, 3), (3, 2)]


def test_trees_of_hopper_start_at_each_gpu_in_turn():
    tree = node_of("h100_8nic", networked=True).tree
    assert orders("h100_8nic", "tree", networked=True) == [
        "".join(str((start + step) % 8) for step in range(8)) for start in range(8)
    ]
    assert [channel.nics for channel in tree.channels] == [(nic, nic) for nic in range(8)]


def test_channels_of_dgx_a100_keep_to_their_nic():
    ring = node_of("dgxa100", networked=True).ring
    assert [channel.nics for channel in ring.channels] == [(nic, nic) for nic in range(8)]
    for channel in ring.channels:
        assert {channel.gpus[0], channel.gpus[-1]} == {
            channel.nics[0] // 2 * 2,
            channel.nics[0] | 1,
        }


@pytest.mark.parametrize("config", ["dgxa100", "h100_8nic", "h100_1nic", "a10pcie8_amd"])
@pytest.mark.parametrize("nodes", [1, 2, 3, 5, 8])
def test_every_ring_visits_every_rank_and_every_tree_spans_them(config, nodes):
    node = node_of(config, networked=nodes > 1)
    count = searched_communicator(config, nodes).n_channels
    ranks = contiguous_nodes(nodes, node.local_ranks)
    found = layout(node.ring, node.tree, ranks, count)
    assert len(found.rings) == len(found.trees) == count
    for ring in found.rings:
        assert sorted(ring) == list(range(nodes * node.local_ranks))
    for tree in found.trees:
        reached = [tree.root]
        for rank in reached:
            reached += tree.down[rank]
            assert all(tree.up[child] == rank for child in tree.down[rank])
        assert sorted(reached) == list(range(nodes * node.local_ranks))
        assert max(map(len, tree.down)) <= 3


def test_crossed_rings_swap_pairs_on_odd_nodes():
    node = node_of("h100_8nic", networked=True)
    found = layout(node.ring, node.tree, contiguous_nodes(2, 8), 16)
    assert found.rings[0] == (0, 7, 6, 5, 4, 3, 2, 1, 9, 10, 11, 12, 13, 14, 15, 8)
    assert found.rings[8] == found.rings[0]


def parents(tree) -> dict[int, int]:
    return {node: place.up for node, place in enumerate(tree) if place.up >= 0}


def test_double_trees_of_4_and_8_nodes():
    first, second = double_binary_tree(4)
    assert parents(first) == {1: 2, 2: 0, 3: 2}
    assert parents(second) == {0: 1, 1: 3, 2: 1}
    first, second = double_binary_tree(8)
    assert parents(first) == {1: 2, 2: 4, 3: 2, 4: 0, 5: 6, 6: 4, 7: 6}
    assert parents(second) == {0: 1, 1: 3, 2: 1, 3: 7, 4: 5, 5: 3, 6: 5}


@pytest.mark.parametrize("nodes", range(1, 130))
def test_trees_are_trees_and_children_know_their_parent(nodes):
    for tree in double_binary_tree(nodes):
        assert sum(place.up < 0 for place in tree) == 1
        for node, place in enumerate(tree):
            for child in place.down:
                if child >= 0:
                    assert tree[child].up == node
        seen = [next(node for node, place in enumerate(tree) if place.up < 0)]
        for node in seen:
            seen += [child for child in tree[node].down if child >= 0]
        assert sorted(seen) == list(range(nodes))


@pytest.mark.parametrize("nodes", [4, 8, 9, 16, 31])
def test_few_nodes_are_inside_both_trees(nodes):
    inner = [
        {n for n, p in enumerate(tree) if max(p.down) >= 0} for tree in double_binary_tree(nodes)
    ]
    assert len(inner[0] & inner[1]) <= 2


def test_patterns_say_which_gpu_talks_to_the_network():
    places = double_binary_tree(3)[0]
    ranks = [[0, 1], [2, 3], [4, 5]]
    balanced = channel_tree(ranks, 1, places)
    assert balanced.down == ((1, 4), (), (3,), (), (5,), (2,))
    split, plain = channel_tree(ranks, 2, places), channel_tree(ranks, 3, places)
    assert split.down == ((1,), (4,), (3,), (), (5,), (2,))
    assert plain.down == ((1, 4), (), (3,), (), (5, 2), ())
    lone = channel_tree([[0], [1], [2]], 1, places)
    assert lone.down == ((2,), (), (1,))


def test_nodes_of_two_kinds_agree_on_the_worst():
    kinds = [node_of(config, networked=True) for config in ("dgxa100", "a100x4", "dgxa100")]
    rings, trees = [kind.ring for kind in kinds], [kind.tree for kind in kinds]
    ring = worst_graph(rings, facts_of())
    assert (ring.n_channels, ring.bw_inter, ring.type_inter) == (4, 24, "PXN")
    nodes = [range(8), range(8, 12), range(12, 20)]
    found = mixed_layout(rings, trees, nodes, 8)
    assert all(sorted(one) == list(range(20)) for one in found.rings)
    assert found.rings[0][:8] == rings[0].channels[0].gpus


def test_nodes_of_several_kinds_agree_on_the_worst_of_each() -> None:
    """Whichever is named first; of its channels there are as many as the other has."""
    channels = (Channel((0, 1)), Channel((1, 0)))
    one = ChannelGraph(4, 2, 20.0, 11.0, "NVL", "SYS", True, 0, 3.0, channels)
    other = ChannelGraph(3, 1, 18.0, 12.0, "PHB", "PIX", False, 2, 1.0, channels[1:])
    worst = ChannelGraph(4, 1, 18.0, 11.0, "PHB", "SYS", False, 2, 3.0, channels[:1])
    assert worst_graph([one, other], facts_of()) == worst
    assert worst_graph([other, one], facts_of()) == replace(worst, channels=channels[1:])
    assert worst_graph([one], facts_of()) == one
