"""Reduction in the switches of a fabric: which switches, which tree, what each link carries."""

import numpy as np
import pytest

from netsim.base.errors import InputError
from netsim.topology.cluster import build_at
from netsim.topology.config import ClusterConfig
from netsim.topology.graph import TopologyError
from netsim.topology.reduction import SwitchReduction
from netsim.yamlio.read import parse_source
from netsim.yamlio.validate import validate
from tests.topology.topology_tools import cluster, topology


def hosts(count, fabric, machine="dgx-h100", more=""):
    return f"machine: {machine}\nnodes: {count}\nfabric: {fabric}\n{more}"


def tree_of(text, gpus, way="net", channel=0):
    t = topology(text)
    return t, SwitchReduction(t).tree(np.array(gpus), way, channel)


def names(t, links):
    return sorted(t.link_name(int(link)) for link in links)


def check_tree(t, tree, gpus):
    """Up: every GPU has one way to the root; down: the same ends the other way round."""
    links = t.links
    onward = {int(links.tail[n]): int(links.head[n]) for n in tree.up}
    assert len(onward) == len(tree.up)  # no node sends its sum two ways
    for gpu in gpus:
        node, seen = int(t.gpu_nodes[gpu]), 0
        while node != tree.root:
            node, seen = onward[node], seen + 1
            assert seen < 20
    back = {(int(links.head[n]), int(links.tail[n])) for n in tree.down}
    assert back == set(onward.items())


def test_one_switch_is_the_root_of_all():
    gpus = [0, 8, 16, 24]
    t, tree = tree_of(hosts(4, "{kind: single-switch, sharp: true}"), gpus)
    check_tree(t, tree, gpus)
    assert t.nodes[tree.root] == "switch0"
    assert tree.switches.tolist() == [tree.root]
    fabric = [name for name in names(t, tree.up) if "switch0" in name]
    assert fabric == [f"node{n}.nic0->switch0" for n in range(4)]


def test_a_rail_below_one_leaf_needs_no_spine():
    gpus = [3, 11, 19, 27]
    text = hosts(4, "{kind: rail-optimized, sharp: true, nodes_per_unit: 4}")
    t, tree = tree_of(text, gpus, "nic:3")
    check_tree(t, tree, gpus)
    assert t.nodes[tree.root] == "leaf3"


@pytest.mark.parametrize("channel", [0, 1, 5])
def test_several_leaves_meet_in_one_spine(channel):
    gpus = np.arange(8) * 8
    text = hosts(8, "{kind: rail-optimized, sharp: true, nodes_per_unit: 2, ports: 32}")
    t, tree = tree_of(text, gpus, channel=channel)
    check_tree(t, tree, gpus)
    assert sorted(str(t.nodes[n]) for n in tree.switches)[:4] == [
        "leaf0",
        "leaf16",
        "leaf24",
        "leaf8",
    ]
    spines = 2  # two uplinks a leaf
    assert t.nodes[tree.root] == f"spine{channel % spines}"
    fabric = [n for n in tree.up if t.layout.reduces[t.links.head[n]]]
    assert len(fabric) == 8 + 4  # eight NICs, four leaves


def test_three_levels_meet_in_a_core():
    gpus = np.arange(16)
    text = hosts(
        16, "{kind: fat-tree, k: 4, sharp: true}", more="gpus_per_node: 1\nnics_per_node: 1"
    )
    t, tree = tree_of(text, gpus)
    check_tree(t, tree, gpus)
    assert str(t.nodes[tree.root]).startswith("core")
    assert len(tree.switches) == 8 + 4 + 1
    hop = 230e-9
    latency = t.links.latency
    inside = latency[[n for n in tree.up if not t.layout.reduces[t.links.head[n]]]]
    assert tree.up_latency == pytest.approx(inside.sum() / 16 + 3 * hop)


def test_dead_cables_are_left_out():
    text = hosts(4, "{kind: leaf-spine, nodes_per_leaf: 2, sharp: true}")
    gpus = [0, 8, 16, 24]
    t, tree = tree_of(text, gpus)
    assert t.nodes[tree.root] == "spine0"
    broken = f"{text}faults: [{{link: leaf1-spine0, bandwidth: 0%}}]"
    t, tree = tree_of(broken, gpus)
    check_tree(t, tree, gpus)
    used = [t.links.bandwidth[n] for n in (*tree.up, *tree.down)]
    assert min(used) > 0


def test_parallel_cables_take_turns():
    text = hosts(4, "{kind: leaf-spine, nodes_per_leaf: 2, spines: 2, sharp: true}")
    used = set()
    for channel in range(16):
        t, tree = tree_of(text, [0, 16], channel=channel)
        used |= {name for name in names(t, tree.up) if name.startswith("leaf0")}
    assert len(used) == 16


def test_rails_that_never_meet_have_no_tree():
    text = hosts(2, "{kind: rail-only, sharp: true}")
    t = topology(text)
    trees = SwitchReduction(t)
    assert t.nodes[trees.tree(np.array([1, 9])).root] == "leaf1"
    with pytest.raises(TopologyError, match="no switch is above all of these NICs"):
        trees.tree(np.array([0, 1]), way="net")


def test_switches_are_marked_only_where_they_reduce():
    marked = cluster(hosts(2, "{kind: leaf-spine, sharp: true}")).topology
    plain = cluster(hosts(2, "{kind: leaf-spine}")).topology
    of_fabric = np.array([str(n).startswith(("leaf", "spine")) for n in marked.nodes])
    assert (marked.layout.reduces[of_fabric]).all()
    assert not plain.layout.reduces[of_fabric].any()
    assert plain.graph.nodes["node0.nvswitch0"]["reduces"]  # NVLink SHARP
    a100 = cluster(hosts(1, "{}", "dgx-a100")).topology
    assert not a100.layout.reduces.any()


def test_without_sharp_there_is_no_tree():
    with pytest.raises(TopologyError, match=r"cluster\.fabric\.sharp"):
        tree_of(hosts(2, "{kind: leaf-spine}"), [0, 8])


@pytest.mark.parametrize(
    ("fabric", "told"),
    [
        ("{kind: torus, dims: [2], sharp: true}", "torus form no tree"),
        ("{kind: dual-plane, sharp: true}", "dual-plane form no tree"),
        ("{kind: leaf-spine, transport: roce, sharp: true}", "only InfiniBand switches reduce"),
        ("{kind: leaf-spine, sharp: ja}", "sharp"),
    ],
)
def test_where_switches_cannot_reduce(fabric, told):
    source = parse_source(
        f"cluster:\n  machine: dgx-h100\n  nodes: 2\n  fabric: {fabric}\n", "x.yaml"
    )
    with pytest.raises(InputError, match=told) as caught:
        build_at(validate(ClusterConfig, source, ("cluster",)), source)
    assert "x.yaml:4" in str(caught.value)


def test_one_stream_has_all_links_on_its_way_up():
    t = topology(hosts(2, "{kind: single-switch, sharp: true}"))
    found, asked = SwitchReduction(t), (np.array([0, 8]), "net", 0)
    tree = found.tree(*asked)
    up, seconds = found.links(0, asked, down=False, all_at_once=True)
    assert up.tolist() == [*tree.up.tolist(), *tree.down.tolist()]
    assert seconds == tree.up_latency + tree.down_latency > 0.0
    down, nothing = found.links(0, asked, down=True, all_at_once=True)
    assert (down.tolist(), nothing) == ([], 0.0)
