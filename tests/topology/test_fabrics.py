"""Fabrics: counting laws, arithmetic of bandwidths, valid and symmetric routes."""

import numpy as np
import pytest

from netsim.base.errors import InputError
from netsim.topology.fabrics.kinds import _fits, _spreads
from netsim.topology.figures import fabric_figures, gpu_bandwidth, route_statistics
from netsim.topology.graph import TopologyError
from netsim.topology.network import FabricNetwork
from tests.topology.topology_tools import check_routes, cluster, routes, topology

FABRICS = [
    "{kind: single-switch}",
    "{kind: leaf-spine, oversubscription: 2}",
    "{kind: leaf-spine, ports: 32, nodes_per_leaf: 1}",
    "{kind: rail-optimized}",
    "{kind: rail-optimized, ports: 16, nodes_per_unit: 2}",
    "{kind: rail-optimized, ports: 12, nodes_per_unit: 2}",
    "{kind: rail-only}",
    "{kind: rail-only, nodes_per_unit: 2}",
    "{kind: dual-plane}",
    "{kind: fat-tree}",
    "{kind: fat-tree, levels: 2}",
    "{kind: dragonfly, routers: 4, ports_per_router: 4, global_links: 2}",
    "{kind: torus, dims: [2, 2, 3]}",
    "{kind: torus, dims: [3, 4]}",
    "{kind: ring}",
    "{kind: nvlink-domain, hosts: 4}",
    "{kind: nvlink-domain, hosts: 4, between: {kind: leaf-spine, nodes_per_leaf: 4}}",
    "{kind: nvlink-domain, hosts: 3, between: {kind: dragonfly, routers: 4, ports_per_router: 8}}",
    "{kind: custom, switches: [a, b], links: [{from: 'node?.nic*', to: a}, "
    "{from: 'node1?.nic*', to: b}, {from: a, to: b, bandwidth: 1600Gbps}]}",
]


def hosts(count, fabric, machine="dgx-a100", more=""):
    return f"machine: {machine}\nnodes: {count}\nfabric: {fabric}\n{more}"


def with_routing(fabric, routing):
    inner = fabric.endswith("}}")
    return f"{fabric[: -1 - inner]}, routing: {routing}}}" + "}" * inner


@pytest.mark.parametrize("routing", ["static", "ecmp", "spray"])
@pytest.mark.parametrize("fabric", FABRICS)
def test_routes_of_random_pairs_are_valid(fabric, routing):
    t = topology(hosts(12, with_routing(fabric, routing)))
    rng = np.random.default_rng(1)
    src, dst = rng.integers(0, 96, (2, 300))
    apart = src != dst
    found = routes(t, src[apart], dst[apart], channel=3)
    check_routes(t, found, src[apart], dst[apart])


@pytest.mark.parametrize("fabric", FABRICS)
def test_ways_there_and_back_are_equally_long(fabric):
    t = topology(hosts(12, with_routing(fabric, "static")))
    src, dst = np.arange(8), np.arange(8) + 56
    there, back = routes(t, src, dst), routes(t, dst, src)
    assert np.diff(there.ptr).tolist() == np.diff(back.ptr).tolist()


@pytest.mark.parametrize("k", [2, 4, 8])
def test_a_k_ary_fat_tree(k):
    count = max(2, k**3 // 4)
    text = hosts(
        min(count, k**3 // 4), f"{{kind: fat-tree, k: {k}}}", "dgx-h100", "nics_per_node: 1\n"
    )
    figures = fabric_figures(cluster(text))
    assert sum(figures.switches.values()) == 5 * k**2 // 4
    assert figures.cables == k**3 // 2
    assert figures.access == k**3 // 4
    assert figures.oversubscription == pytest.approx(1, rel=1e-4)
    assert figures.diameter == 5


def test_a_two_level_fat_tree():
    figures = fabric_figures(cluster(hosts(4, "{kind: fat-tree, levels: 2, k: 8}")))
    assert figures.switches == {"leaf": 8, "spine": 4}
    assert figures.cables == 32
    assert figures.oversubscription == pytest.approx(1, rel=1e-4)
    assert figures.diameter == 3


@pytest.mark.parametrize("dims", [(4,), (3, 5), (4, 4), (2, 3, 4), (2, 2, 2)])
def test_a_torus_is_vertex_transitive(dims):
    nodes = int(np.prod(dims))
    text = hosts(nodes, f"{{kind: torus, dims: {list(dims)}}}", "dgx-h100", "nics_per_node: 1\n")
    made = cluster(text)
    figures = fabric_figures(made)
    assert figures.cables == sum(nodes if d > 2 else nodes // 2 for d in dims)
    assert figures.diameter == 1 + sum(d // 2 for d in dims)
    src, dst = (side.ravel() for side in np.indices((nodes, nodes)))
    length = FabricNetwork(made.fabric).distance(src, dst).reshape(nodes, nodes)
    assert len({tuple(sorted(row)) for row in length.tolist()}) == 1


@pytest.mark.parametrize(("down", "line"), [("1", 1.0), ("2", 0.5), ("'4:1'", 0.25)])
@pytest.mark.parametrize("kind", ["leaf-spine", "rail-optimized"])
def test_oversubscription_divides_the_bisection(kind, down, line):
    made = cluster(hosts(8, f"{{kind: {kind}, oversubscription: {down}}}", "dgx-h100"))
    figures = fabric_figures(made)
    per_gpu = figures.bisection / 32
    if kind == "leaf-spine":
        assert per_gpu == pytest.approx(50e9 * 0.982 * line, rel=1e-3)
    else:  # a rail's two halves share a leaf
        assert per_gpu == pytest.approx(50e9 * 0.982, rel=1e-3)


def test_one_400g_nic_a_gpu_and_full_bisection_give_50_gigabytes_between_leaves():
    t = topology(hosts(8, "{kind: leaf-spine}", "dgx-h100"))
    gpus = np.arange(32)
    stats = route_statistics(t, gpus, gpus + 32)
    assert not len(stats.collisions)
    assert stats.flows.max() == 1


def test_hashes_collide_and_depend_on_seed_and_channel_only():
    text = hosts(8, "{kind: leaf-spine, routing: ecmp, seed: %d}", "dgx-h100")
    gpus = np.arange(32)
    first, again, other = (topology(text % seed) for seed in (1, 1, 2))
    flows = [route_statistics(t, gpus, gpus + 32).flows for t in (first, again, other)]
    assert flows[0].tolist() == flows[1].tolist() != flows[2].tolist()
    assert len(route_statistics(first, gpus, gpus + 32).collisions) > 0
    assert route_statistics(first, gpus, gpus + 32, channel=1).flows.tolist() != flows[0].tolist()
    assert first.router.per_channel


def test_spray_uses_every_path_equally():
    t = topology(hosts(8, "{kind: leaf-spine, routing: spray}", "dgx-h100"))
    gpus = np.arange(32)
    stats = route_statistics(t, gpus, gpus + 32)
    assert not len(stats.collisions)
    assert stats.flows[stats.flows > 0] == pytest.approx(1.0)


def test_rails_that_never_meet_are_reached_over_nvlink():
    t = topology(hosts(4, "{kind: rail-only}", "dgx-h100"))
    names = [t.link_name(int(link)) for link in routes(t, 0, 13).link]
    assert names[1] == "node0.nvswitch0->node0.gpu5"
    assert "node0.nic5->leaf5" in names
    alone = topology(hosts(4, "{kind: rail-only}", "l40s-pcie-x8"))
    assert "node0.nic1->leaf1" in [alone.link_name(int(x)) for x in routes(alone, 0, 13).link]


def test_rail_routing_takes_the_rail_of_the_receiver():
    t = topology(hosts(4, "{kind: rail-optimized, routing: rail}", "dgx-h100"))
    assert len(routes(t, 0, 13).link) == len(routes(t, 5, 13).link) + 2


def test_dual_plane_splits_every_nic():
    made = cluster(hosts(4, "{kind: dual-plane}", "dgx-h100"))
    t = made.topology
    found = routes(t, 0, 13)
    ports = t.links.kind[found.link] == 6
    assert found.fraction[ports].tolist() == [0.5] * 4
    assert t.links.bandwidth[found.link[ports]] == pytest.approx(np.full(4, 25e9 * 0.982))


@pytest.mark.parametrize("routing", ["minimal", "valiant"])
def test_dragonfly_paths(routing):
    fabric = "{kind: dragonfly, routers: 4, ports_per_router: 2, global_links: 2, routing: %s}"
    text = hosts(24, fabric % routing, "dgx-h100", "nics_per_node: 2\n")
    made = cluster(text)
    figures = fabric_figures(made)
    groups = 6
    assert figures.switches == {"router": 4 * groups}
    assert figures.cables == groups * 6 + groups * (groups - 1) // 2 * (8 // (groups - 1))
    assert figures.diameter <= (4 if routing == "minimal" else 6)


@pytest.mark.parametrize("routing", ["minimal", "valiant"])
def test_a_router_that_dead_links_cut_off_from_its_group_is_named(routing):
    fabric = "{kind: dragonfly, routers: 4, ports_per_router: 8, global_links: 2, routing: %s}"
    cut = "".join(f"- {{link: router0-router{n}, bandwidth: 0%%}}\n" for n in (1, 2, 3))
    text = hosts(16, fabric, "dgx-h100", f"faults:\n{cut}")
    gpus = np.arange(128)
    with pytest.raises(TopologyError, match=r"no way from 'router[0-3]' to 'router[0-3]' inside"):
        routes(topology(text % routing), gpus, np.roll(gpus, -8))
    other = topology(text % "ecmp")
    used = routes(other, gpus, np.roll(gpus, -8)).link
    assert (other.links.bandwidth[used] > 0).all()


def test_several_units_need_three_levels():
    made = cluster(hosts(64, "{kind: rail-optimized, ports: 16}", "dgx-h100"))
    figures = fabric_figures(made)
    assert figures.switches == {"leaf": 64, "spine": 64, "core": 32}
    assert figures.diameter == 5
    assert figures.oversubscription == pytest.approx(1, rel=1e-4)


@pytest.mark.parametrize(
    ("fabric", "message"),
    [
        ("{kind: fat-tree, k: 5}", "k: a fat tree needs an even k, got 5"),
        ("{kind: fat-tree, k: 4}", "with k = 4 has 16 ports, but 12 hosts need 96"),
        ("{kind: leaf-spine, ports: 8, nodes_per_leaf: 1}", "a leaf with 8 ports down and 8 up"),
        ("{kind: leaf-spine, ports: 4}", "a host with 8 NICs does not fit a leaf of 4 ports"),
        ("{kind: leaf-spine, spines: 5}", "32 uplinks a leaf do not spread over 5"),
        ("{kind: torus, dims: [3, 3]}", "a torus of 3 x 3 has 9 routers, not 12 for the hosts"),
        ("{kind: dragonfly, routers: 1, ports_per_router: 8}", "12 groups need 11 global links"),
        ("{kind: dragonfly, groups: 1, routers: 2}", "12 hosts of 8 NICs need 3, got 1"),
        ("{kind: dragonfly, ports: 8}", "a router needs 27 ports, but a switch has 8"),
        ("{kind: custom, switches: [a], links: []}", "links: node0.nic0 is on no switch"),
        ("{kind: custom, switches: [a], links: [{from: x, to: a}]}", "no switch or NIC 'x'"),
    ],
)
def test_impossible_shapes_are_refused_with_the_reason(fabric, message):
    with pytest.raises(TopologyError) as caught:
        topology(hosts(12, fabric))
    assert message in str(caught.value)


def test_a_fabric_without_a_kind_is_rail_optimized():
    made = cluster("machine: dgx-h100\nnodes: 2\nfabric: {transport: roce, latency: 1us}\n")
    assert made.fabric.kind == "rail-optimized"
    assert made.transport.name == "roce"
    assert made.topology.router.per_channel
    usual = cluster("machine: rtx4090-x8\nnodes: 2\n")
    assert usual.fabric.kind == "single-switch"


def test_cables_cost_five_nanoseconds_a_metre():
    base = "machine: dgx-h100\nnodes: 2\nfabric: {latency: 300ns%s}\n"
    short, long = (topology(base % more) for more in ("", ", cable_metres: 100"))
    slower = routes(long, 0, 8).latency - routes(short, 0, 8).latency
    assert slower[0] == pytest.approx(500e-9)


def test_what_gpus_can_send():
    up, out = gpu_bandwidth(cluster(hosts(2, "{kind: single-switch}", "dgx-h100")))
    assert up == pytest.approx(np.full(16, 370.8e9))
    assert out.tolist() == [50e9] * 16


def test_65536_gpus():
    made = cluster(hosts(8192, "{kind: rail-optimized}", "dgx-h100"))
    assert len(made.topology) == 65536
    assert len(made.fabric.switches) == 2048 + 2048 + 1024


@pytest.mark.parametrize(
    "fabric",
    [
        "{kind: leaf-spine, routing: static}",
        "{kind: rail-optimized, nodes_per_unit: 4, routing: static}",
        "{kind: rail-optimized, nodes_per_unit: 4, ports: 16, routing: static}",
        "{kind: fat-tree, routing: static}",
    ],
)
@pytest.mark.parametrize("step", [8, 32, 40])
def test_static_routes_of_shifts_never_collide(fabric, step):
    t = topology(hosts(16, fabric, "dgx-h100"))
    gpus = np.arange(128)
    assert not len(route_statistics(t, gpus, (gpus + step) % 128).collisions)


def test_sockets_carry_less_than_the_line_but_nccl_sees_the_line():
    made = cluster("machine: a100-x4\nnodes: 2\nfabric: {transport: tcp}\n")
    t = made.topology
    found = routes(t, 0, 4)
    ports = t.links.kind[found.link] == 6
    assert t.links.bandwidth[found.link[ports]].tolist() == [4.7e9] * 2
    assert made.hosts[0].machine.nics.rates == (25e9, 25e9)
    assert not made.hosts[0].machine.nics.gpudirect
    assert any("mem0" in t.link_name(int(link)) for link in found.link)


def test_an_nvlink_domain_needs_nvswitches_and_joins_unlike_hosts():
    with pytest.raises(TopologyError, match=r"^fabric.kind: an NVLink domain needs"):
        topology(hosts(4, "{kind: nvlink-domain, hosts: 2}", "mi300x"))
    broken = "overrides: [{node: 1, nics: [0]}]\n"
    t = topology(hosts(4, "{kind: nvlink-domain, hosts: 2}", "hgx-a800", broken))
    names = [t.link_name(int(link)) for link in routes(t, 0, 8).link]
    assert names == ["node0.gpu0->nvlink0.nvswitch0", "nvlink0.nvswitch0->node1.gpu0"]
    assert len(routes(t, 0, 16).link) > 2


def test_racks_are_joined_by_any_fabric():
    fabric = "{kind: nvlink-domain, hosts: 9, between: {kind: rail-optimized, oversubscription: 2}}"
    made = cluster(hosts(36, fabric, "gb200-nvl72"))
    assert made.domain.tolist() == [n // 9 for n in range(36)]
    assert made.fabric.kind == "rail-optimized"
    figures = fabric_figures(made)
    plain = fabric_figures(
        cluster(hosts(36, "{kind: rail-optimized, oversubscription: 2}", "gb200-nvl72"))
    )
    assert figures == plain
    found = routes(made.topology, [0, 0], [35, 36])
    names = [made.topology.link_name(int(link)) for link in found.link]
    assert names[:2] == ["node0.gpu0->nvlink0.nvswitch0", "nvlink0.nvswitch0->node8.gpu3"]
    assert any("leaf" in name for name in names[2:])


def test_figures_of_the_fabric_between_racks_are_told_once():
    with pytest.raises(InputError, match="below between"):
        cluster(
            hosts(
                4,
                "{kind: nvlink-domain, hosts: 2, nic: 1Gbps, between: {kind: ring}}",
                "gb200-nvl72",
            )
        )
    with pytest.raises(TopologyError, match=r"fabric\.between\.k: a fat tree needs an even k"):
        cluster(
            hosts(
                4, "{kind: nvlink-domain, hosts: 2, between: {kind: fat-tree, k: 3}}", "gb200-nvl72"
            )
        )


def test_sprayed_routes_are_the_same_however_many_are_found_at_once(monkeypatch):
    t = topology(hosts(12, "{kind: dual-plane, nodes_per_unit: 2}"))
    src, dst = np.random.default_rng(2).integers(0, 96, (2, 200))
    whole = routes(t, src, dst)
    monkeypatch.setattr("netsim.topology.network._MAX_CELLS", 16)
    parts = routes(t, src, dst)
    for name in ("ptr", "link", "fraction", "latency"):
        assert np.array_equal(getattr(whole, name), getattr(parts, name))


@pytest.mark.parametrize(
    ("kind", "nodes", "ports"),
    [("leaf-spine", 200, 64), ("leaf-spine", 300, 128), ("rail-only", 2100, 128)],
)
def test_switches_are_as_large_as_it_takes(kind, nodes, ports):
    """Two tiers of switches with p ports join p²/2 NICs."""
    made = cluster(hosts(nodes, f"{{kind: {kind}}}", "dgx-h100"))
    told = [note for note in made.notes if "switches of" in note]
    assert [f"switches of {ports} ports" in note for note in told] == [True] * (ports > 64)
    asked = cluster(hosts(nodes, f"{{kind: {kind}, ports: {ports}}}", "dgx-h100"))
    assert not asked.fabric.note
    assert np.array_equal(made.topology.links.head, asked.topology.links.head)
    with pytest.raises(TopologyError, match=r"ports: .* a switch has 32"):
        cluster(hosts(nodes, f"{{kind: {kind}, ports: 32}}", "dgx-h100"))


def test_a_switch_has_as_many_ports_as_it_has() -> None:
    """All of them may be used, and links spread evenly or not at all."""
    _fits("leaf", 5, 3, 8)
    with pytest.raises(TopologyError, match="leaf with 5 ports down and 4 up needs 9"):
        _fits("leaf", 5, 4, 8)
    assert [_spreads(6, switches, 2, 4) for switches in (1, 2, 3, 4, 6)] == [
        False,
        False,
        True,
        False,
        True,
    ]


@pytest.mark.parametrize("kind", ["rail-optimized", "rail-only", "leaf-spine", "dual-plane"])
@pytest.mark.parametrize("each", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("asked", [1, 2, 4, 8, 16])
def test_a_leaf_has_the_oversubscription_that_is_asked_for_or_says_so(kind, each, asked):
    """Of 2 ports a leaf, 4:1 and 8:1 used to be built as 2:1, for there is no half a cable."""
    name = "nodes_per_leaf" if kind == "leaf-spine" else "nodes_per_unit"
    config = f"machine: dgx-h100\nnodes: 16\nfabric: {{kind: {kind}, {name}: {each}, "
    made = cluster(f"{config}oversubscription: {asked}}}\n").fabric
    leaf = made.ports + made.switches.index("leaf0")
    into = made.head == leaf
    down = made.bandwidth[into & (made.tail < made.ports)].sum()
    up = made.bandwidth[into & (made.tail >= made.ports)].sum()
    built = down / up
    if "does not come out even" in made.note:
        assert built < asked
        assert f"which is {built:.3g}:1" in made.note
    else:
        assert built == pytest.approx(asked)


@pytest.mark.parametrize(
    ("nic", "more", "usual"),
    [
        ("100Gbps", "", "static"),
        ("200Gbps", "", "spray"),
        ("400Gbps", "", "spray"),
        ("400Gbps", ", transport: roce", "ecmp"),
        ("400Gbps", ", delivery: in-order", "static"),  # sprayed packets would overtake others
        ("400Gbps", ", routing: static", "static"),
    ],
)
def test_infiniband_of_hdr_and_later_sprays_packets_by_default(nic, more, usual):
    fabric = f"{{kind: leaf-spine, nic: {nic}{more}}}"
    assert cluster(hosts(8, fabric, "dgx-h100")).routing == usual


def test_tori_and_rings_keep_static_paths_by_default():
    for kind in ("{kind: ring}", "{kind: torus, dims: [2, 4]}"):
        assert cluster(hosts(8, kind, "dgx-h100")).routing == "static"
