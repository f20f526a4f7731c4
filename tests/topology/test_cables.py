"""Cables by name: faults and overrides of one, of all between two switches, of a pattern."""

import numpy as np
import pytest

from netsim.topology.figures import fabric_figures, graph_figures, route_statistics, tiers_of
from netsim.topology.graph import TopologyError
from netsim.topology.network import _divided_width
from netsim.topology.routing import torus
from tests.topology.test_fabrics import hosts
from tests.topology.topology_tools import check_routes, cluster, routes

SWITCH = 5
FOUR = "{kind: leaf-spine}"  # 2 leaves, 4 spines, 4 cables between any two


def rates(made):
    """What every cable between switches has left, as a part, by its name."""
    links, topology = made.topology.links, made.topology
    kinds = topology.node_kinds
    mine = np.flatnonzero((kinds[links.tail] == SWITCH) & (kinds[links.head] == SWITCH))
    return {topology.link_name(int(n)): links.bandwidth[n] / 49.1e9 for n in mine}


@pytest.mark.parametrize(
    ("name", "hit"),
    [
        ("leaf0->spine0#1", {"leaf0->spine0#1"}),
        ("leaf0-spine0#1", {"leaf0->spine0#1", "spine0->leaf0#1"}),
        ("leaf0->spine0", {"leaf0->spine0", *(f"leaf0->spine0#{n}" for n in (1, 2, 3))}),
        ("leaf0->spine0#0", {"leaf0->spine0"}),
        ("leaf*->spine0#2", {"leaf0->spine0#2", "leaf1->spine0#2"}),
    ],
)
def test_names_of_cables_mean_the_same_in_faults_and_overrides(name, hit):
    fault = cluster(hosts(4, FOUR, "dgx-h100", f"faults: [{{link: '{name}', bandwidth: 50%}}]"))
    other = cluster(
        hosts(4, FOUR, "dgx-h100", f"overrides: [{{link: '{name}', bandwidth: 200Gbps}}]")
    )
    for made in (fault, other):
        left = rates(made)
        assert {one for one, part in left.items() if part < 0.9} == hit
        assert {round(part, 9) for one, part in left.items() if one in hit} == {0.5}


def test_a_name_says_how_many_cables_it_takes():
    text = "faults: [{link: leaf0-spine0, bandwidth: 50%}, {link: 'leaf1->spine*', latency: 1us}]"
    notes = cluster(hosts(4, FOUR, "dgx-h100", text)).notes
    assert "leaf0-spine0 takes 4 cables (leaf0-spine0#0 … #3 name one each)" in notes
    assert any(note.startswith("leaf1->spine* takes 16 cables") for note in notes)


def test_what_goes_up_apart_comes_down_apart():
    """Over one spine, with as many cables to each leaf as it has NICs: each has its own."""
    made = cluster(hosts(4, "{kind: leaf-spine, nodes_per_leaf: 2, spines: 1}", "dgx-h100"))
    used = [[], []]
    for nic in range(16):
        found = routes(made.topology, nic, 16 + nic)
        names = [made.topology.link_name(int(link)) for link in found.link]
        for way, name in zip(used, ("leaf0->spine0", "spine0->leaf1"), strict=True):
            way += [one for one in names if one.startswith(name)]
    assert [len({*way}) for way in used] == [16, 16]


FAULT, OVERRIDE = "faults: [{link: '%s', bandwidth: 0%%}]", "overrides: [{link: %s, latency: 1us}]"


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (FAULT % "leaf0-spine0#4", "faults.0.link: no cable 'leaf0-spine0#4': there are #0, #1"),
        (FAULT % "leaf0-spnie0", "there is no 'spnie0' (did you mean spine0?)"),
        (FAULT % "leav*-spine0", "there is no 'leav*'"),
        (OVERRIDE % "leaf0-leaf1", "overrides.0.link: no link 'leaf0-leaf1': 'leaf0' has links to"),
    ],
)
def test_cables_that_are_not_there_are_told_with_those_that_are(more, message):
    with pytest.raises(TopologyError) as caught:
        cluster(hosts(4, FOUR, "dgx-h100", more))
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("nodes", "fabric"),
    [(8, "leaf-spine"), (8, "leaf-spine, nodes_per_leaf: 1"), (6, "leaf-spine")],
)
@pytest.mark.parametrize("dead", ["leaf0-spine0", "leaf0-spine0#0", "leaf1-spine2"])
def test_what_a_dead_cable_carried_is_spread_evenly(nodes, fabric, dead):
    """One flow a cable where all are alive; of those that are cut off no two meet again."""
    text = f"faults: [{{link: '{dead}', bandwidth: 0%}}]"
    static = f"{{kind: {fabric}, routing: static}}"
    made = cluster(hosts(nodes, static, "dgx-h100", text)).topology
    gpus = np.arange(len(made), dtype=np.int32)
    found = route_statistics(made, gpus, (gpus + len(gpus) // 2) % len(gpus)).flows
    assert found[made.links.bandwidth == 0].max() == 0
    between = (made.node_kinds[made.links.tail] == SWITCH) & (
        made.node_kinds[made.links.head] == SWITCH
    )
    assert found[between].max() == 2


def test_sprayed_packets_share_what_a_dead_spine_carried():
    """Each leaf has four spines; without one of them, three carry 4/3 of what each did before."""
    text = "faults: [{link: 'leaf*-spine0', bandwidth: 0%}]"
    made = cluster(hosts(8, FOUR, "dgx-h100", text)).topology
    gpus = np.arange(len(made), dtype=np.int32)
    stats = route_statistics(made, gpus, (gpus + len(gpus) // 2) % len(gpus))
    links = made.links
    is_between = (made.node_kinds[links.tail] == SWITCH) & (made.node_kinds[links.head] == SWITCH)
    is_alive = is_between & (links.bandwidth > 0)
    assert stats.flows[is_alive] == pytest.approx(4 / 3)
    assert stats.flows[is_between & ~is_alive].max() == 0


def loads(text, routing="spray", nodes=8):
    """What every link between switches carries, by its name, if each GPU sends one unit to the GPU
    half of the cluster further."""
    made = cluster(
        hosts(nodes, f"{{kind: leaf-spine, routing: {routing}}}", "dgx-h100", text)
    ).topology
    gpus = np.arange(len(made), dtype=np.int32)
    flows = route_statistics(made, gpus, (gpus + len(gpus) // 2) % len(gpus)).flows
    kinds = made.node_kinds
    links = made.links
    between = np.flatnonzero((kinds[links.tail] == SWITCH) & (kinds[links.head] == SWITCH))
    return {made.link_name(int(link)): float(flows[link]) for link in between}


@pytest.mark.parametrize(
    "text",
    [
        "faults: [{switch: spine0, bandwidth: 50%}]",
        "faults: [{link: 'leaf*-spine0', bandwidth: 50%}]",
        "overrides: [{link: 'leaf*-spine0', bandwidth: 200Gbps}]",
    ],
)
def test_sprayed_packets_avoid_a_spine_as_far_as_it_is_slow(text):
    """Three spines and a half are left of four: the slow one carries half of what others do."""
    for name, load in loads(text).items():
        assert load == pytest.approx((0.5 if "spine0" in name else 1.0) * 4 / 3.5)


def test_sprayed_packets_avoid_a_spine_whose_cables_to_their_leaf_are_slow():
    """Leaf 1 receives less over spine 0, and so leaf 0 sends less to it; the other direction has
    all of its bandwidth."""
    found = loads("faults: [{link: 'spine0->leaf1', bandwidth: 50%}]")
    for name, load in found.items():
        slow = {"leaf0->spine0": 4 / 7, "spine0->leaf1": 4 / 7}
        usual = 8 / 7 if name.startswith("leaf0") or "->leaf1" in name else 1.0
        assert load == pytest.approx(slow.get(name.partition("#")[0], usual))


def test_sprayed_packets_divide_among_parallel_cables_by_their_rates():
    found = loads("faults: [{link: 'leaf0->spine0#1', bandwidth: 50%}]")
    assert found["leaf0->spine0#1"] == pytest.approx(found["leaf0->spine0"] / 2)
    assert sum(load for name, load in found.items() if name.startswith("leaf0->")) == (
        pytest.approx(32)
    )


@pytest.mark.parametrize(
    ("slow", "left"),
    [
        ("node0.nic0->leaf0", "25%"),
        ("leaf0->spine0", "12.5%"),  # cables between switches have twice the rate
        ("spine0->leaf8", "12.5%"),
        ("leaf8->node3.nic0", "25%"),
    ],
)
def test_of_two_planes_the_slow_one_carries_less_wherever_it_is_slow(slow, left):
    """Each plane is one path from NIC to NIC, with four links."""
    text = f"faults: [{{link: '{slow}', bandwidth: {left}}}]"
    made = cluster(hosts(4, "{kind: dual-plane, nodes_per_unit: 2}", "dgx-h100", text)).topology
    found = routes(made, 0, 24)
    share = {
        made.link_name(int(link)): part
        for link, part in zip(found.link, found.fraction, strict=True)
    }
    slow_plane = ("node0.nic0->leaf0", "leaf0->spine0", "spine0->leaf8", "leaf8->node3.nic0")
    other_plane = ("node0.nic0->leaf16", "leaf16->spine1", "spine1->leaf24", "leaf24->node3.nic0")
    assert [share[name] for name in slow_plane] == pytest.approx([0.2] * 4)
    assert [share[name] for name in other_plane] == pytest.approx([0.8] * 4)


def test_parallel_links_divide_what_is_behind_them():
    """Two cables of 10 to a switch with 15 behind it, one cable of 10 to a switch of the target."""
    rate = np.array([10.0, 10.0, 10.0])
    behind = np.array([15.0, 15.0, np.inf])
    found = _divided_width(rate, np.array([0, 0, 1]), behind)
    assert found.tolist() == [7.5, 7.5, 10.0]


def test_a_cable_with_hardly_any_bandwidth_left_is_avoided_like_a_dead_one():
    dead = loads("faults: [{link: 'leaf0-spine0', bandwidth: 0%}]")
    slow = loads("faults: [{link: 'leaf0-spine0', bandwidth: 0.01%}]")
    assert slow == pytest.approx(dead, abs=2e-3)
    healthy = loads("")
    barely = loads("faults: [{link: 'leaf0-spine0', bandwidth: 99.99%}]")
    assert barely == pytest.approx(healthy, rel=1e-3)


@pytest.mark.parametrize(
    "kind", ["fat-tree", "dual-plane", "dragonfly", "torus, dims: [4, 4]", "rail-optimized"]
)
def test_sprayed_bytes_are_conserved_where_cables_are_slow(kind):
    """In fabrics of other shapes, too, whatever cables a drawn third of the faults slows."""
    healthy = cluster(hosts(16, f"{{kind: {kind}, routing: spray}}", "dgx-h100")).topology
    kinds = healthy.node_kinds
    links = healthy.links
    cables = np.flatnonzero((kinds[links.tail] == SWITCH) | (kinds[links.head] == SWITCH))
    drawn = np.random.default_rng(5)
    slow = drawn.choice(cables, min(9, len(cables)), replace=False)
    text = ", ".join(
        f"{{link: '{healthy.link_name(int(link))}', bandwidth: {int(drawn.integers(2, 99))}%}}"
        for link in slow
    )
    made = cluster(
        hosts(16, f"{{kind: {kind}, routing: spray}}", "dgx-h100", f"faults: [{text}]")
    ).topology
    src, dst = drawn.integers(0, len(made), (2, 200))
    apart = src != dst
    found = routes(made, src[apart], dst[apart])
    check_routes(made, found, src[apart], dst[apart])


def test_oversubscription_by_tier():
    fabric = "{kind: rail-optimized, nodes_per_unit: 4, oversubscription: [2, 4], units_per_pod: 2}"
    made = cluster(hosts(32, fabric, "dgx-h100"))
    ratio = {tier.name: tier.ratio for tier in tiers_of(made.fabric)}
    assert ratio == {"leaf": 2, "spine": 4, "core": 0}
    assert fabric_figures(made).diameter == 5
    tree = cluster(hosts(16, "{kind: fat-tree, k: 8, oversubscription: [1, 2]}", "dgx-h100"))
    assert {one.name: one.ratio for one in tiers_of(tree.fabric)} == {
        "leaf": 1,
        "spine": 2,
        "core": 0,
    }
    with pytest.raises(TopologyError, match=r"oversubscription: two levels of switches have one"):
        cluster(hosts(8, "{kind: leaf-spine, oversubscription: [1, 2]}", "dgx-h100"))


def test_a_torus_by_dimension():
    fabric = "{kind: torus, dims: [3, 4], link: [100Gbps, 400Gbps], latency: [1us, 2us]}"
    made = cluster(hosts(12, fabric, "dgx-h100"))
    between = np.minimum(made.fabric.tail, made.fabric.head) >= made.fabric.ports
    found = zip(made.fabric.bandwidth[between], made.fabric.latency[between], strict=True)
    assert {(round(rate / 0.982e9, 6), delay) for rate, delay in found} == {
        (12.5, 1e-6),
        (50, 2e-6),
    }
    with pytest.raises(TopologyError, match=r"link: expected one for each of 2 dimensions"):
        cluster(hosts(12, "{kind: torus, dims: [3, 4], link: [1Gbps, 2Gbps, 3Gbps]}", "dgx-h100"))


@pytest.mark.parametrize("a", [2, 4, 6])
def test_a_twisted_torus_is_as_wide_as_its_short_side(a):
    """Of a x 2a: its diameter is a where that of the plain torus is a + a/2 (Cámara et al.)."""
    plain, twisted = torus([a, 2 * a], 1.0), torus([a, 2 * a], 1.0, twist=True)
    assert graph_figures(plain).diameter == a + a // 2
    assert graph_figures(twisted).diameter == a
    assert graph_figures(twisted).out.tolist() == [4.0] * (2 * a * a)


def test_cubes_are_joined_by_optical_switches():
    made = torus([4, 4, 8], 50e9, 1e-6, cube=4, optical=1e-7)
    faces = made.links.latency > 1.05e-6
    # 2 cubes, 6 faces of 16 links that leave each, both directions
    assert int(faces.sum()) == 2 * 6 * 16
    assert len(made.links) == 6 * 128
    with pytest.raises(TopologyError, match="6 is no multiple of the cube's 4"):
        torus([4, 6], 1.0, cube=4)
    with pytest.raises(TopologyError, match="no dimension is twice as long"):
        torus([4, 4], 1.0, twist=True)
