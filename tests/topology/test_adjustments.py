"""Clusters that are not as they should be: overrides, faults, placement."""

import numpy as np
import pytest

from netsim.base.errors import InputError, ScenarioError
from netsim.topology.cluster import build_at
from netsim.topology.config import ClusterConfig
from netsim.yamlio.read import parse_source
from netsim.yamlio.validate import validate
from tests.topology.topology_tools import check_routes, cluster, route, routes, topology

FOUR = "machine: dgx-h100\nnodes: 4\n"


def refusal(text):
    source = parse_source(text, "x.yaml")
    with pytest.raises(InputError) as caught:
        build_at(validate(ClusterConfig, source), source, ())
    assert isinstance(caught.value, ScenarioError)
    return str(caught.value)


def test_gpus_without_a_nic_of_their_own_take_turns_on_all_that_are_left():
    """Only even GPUs, and NICs 0 and 1 beside GPU 0: over two channels each GPU uses both."""
    t = topology(
        "machine: dgx-a100\nnodes: 2\ngpus: [0, 2, 4, 6]\noverrides: [{node: 0, nics: [0, 1]}]\n"
    )
    for gpu in range(4):
        ways = [route(t, gpu, gpu + 4, channel=channel) for channel in range(2)]
        used = [nic for nic in (0, 1) for way in ways if any(f"node0.nic{nic}" in x for x in way)]
        assert sorted(set(used)) == [0, 1], (gpu, ways)


def test_a_dead_nic_is_replaced_by_those_of_the_others():
    made = cluster(FOUR + "overrides: [{node: 3, nics: [0, 1, 2, 3, 4, 5, 6]}]\n")
    assert [len(h.rail) for h in made.hosts] == [8, 7]
    names = route(made.topology, 31, 7)
    assert not any("node3.nic7" in name for name in names)
    assert any("node3.nic" in name for name in names)
    same = cluster(FOUR + "faults: [{nic: node3.nic7}]\n")
    assert route(same.topology, 31, 7) == names


def test_rails_keep_their_numbers_when_one_is_missing():
    t = topology(FOUR + "fabric: {kind: rail-only}\noverrides: [{node: 0, nics: [1, 2, 5]}]\n")
    assert "node0.nic5->leaf5" in route(t, 0, 13)
    with pytest.raises(InputError, match="the fabric does not join their NICs"):
        route(t, 0, 8)


def test_figures_of_the_machine_can_be_overridden():
    change = "{machine: {scale_up: {links: 9}, gpu: {memory_bandwidth: 1TB/s}}}"
    t = topology(f"{FOUR}overrides: [{change}]\n")
    assert t.links.bandwidth[routes(t, 0, 1).link[0]] == pytest.approx(9 * 20.6e9)
    assert t.capacities["hbm"].tolist() == [1e12] * 32


def test_a_bridge_can_be_fitted():
    bare = topology("machine: rtx2080ti-x2\n")
    assert "node0.cpu0->node0.mem0" in route(bare, 0, 1)
    bridged = topology(
        "machine: rtx2080ti-x2\noverrides: [{machine: {scale_up: {fitted: true}}}]\n"
    )
    assert route(bridged, 0, 1) == ["node0.gpu0->node0.gpu1"]


def test_peer_access_can_be_switched_on():
    closed = topology("machine: rtx4090-x8\n")
    opened = topology("machine: rtx4090-x8\np2p: true\n")
    assert sum("mem" in name for name in route(closed, 0, 1)) == 2
    assert not any("mem" in name for name in route(opened, 0, 1))
    both = [x for x in route(closed, 0, 1) if "mem" in x]
    pair = [
        closed.links.resource[i] for i in routes(closed, 0, 1).link if closed.links.kind[i] == 5
    ]
    assert len(both) == 2
    assert pair[0] == pair[1]


def test_a_dead_uplink_is_avoided():
    text = "machine: dgx-h100\nnodes: 8\nfabric: {kind: leaf-spine, spines: 32}\n"
    healthy, broken = (
        topology(text),
        topology(text + "faults: [{link: leaf0-spine3, bandwidth: 0%}]\n"),
    )
    gpus = np.arange(32)
    dead = [x for x in range(len(broken.links)) if broken.link_name(x) == "leaf0->spine3"]
    assert broken.links.bandwidth[dead].tolist() == [0]
    assert dead[0] in routes(healthy, gpus, gpus + 32).link
    found = routes(broken, gpus, gpus + 32)
    assert dead[0] not in found.link
    check_routes(broken, found, gpus, gpus + 32)
    sprayed = topology(
        text.replace("32}", "32, routing: spray}")
        + "faults: [{link: leaf0-spine3, bandwidth: 0%}]\n"
    )
    found = routes(sprayed, gpus, gpus + 32)
    assert dead[0] not in found.link
    check_routes(sprayed, found, gpus, gpus + 32)


def test_faults_in_a_graph():
    graph = "graph: {kind: ring, gpus: 5, bandwidth: 1GB/s}\n"
    t = topology(graph + "faults: [{link: gpu0-gpu1, bandwidth: 0%}, {gpu: gpu3, slowdown: 2}]\n")
    assert route(t, 0, 1) == ["gpu0->gpu4", "gpu4->gpu3", "gpu3->gpu2", "gpu2->gpu1"]
    assert t.capacities["sms"][3] == 0.5
    with pytest.raises(InputError, match=r"faults.0.nic: there is no NIC 'nic0'"):
        topology(graph + "faults: [{nic: nic0}]\n")


def test_the_example_of_the_design():
    text = """
machine: dgx-h100
nodes: 4
gpus_per_node: 8
nics_per_node: 8
fabric: {kind: rail-optimized, nic: 400Gbps, oversubscription: 1, latency: 600ns}
placement: contiguous
overrides: [{node: 3, nics: [0, 1, 2, 3, 4, 5, 6]}]
faults: [{link: leaf0-spine3, bandwidth: 0%}, {gpu: node1.gpu2, slowdown: 1.3}]
"""
    t = topology(text)
    gpus = np.arange(32)
    check_routes(t, routes(t, gpus, (gpus + 11) % 32), gpus, (gpus + 11) % 32)
    assert t.capacities["sms"][10] == pytest.approx(1 / 1.3)


def test_a_dead_link_inside_a_host_is_avoided():
    t = topology(FOUR + "faults: [{link: node1.gpu2-node1.nvswitch0, bandwidth: 0%}]\n")
    assert not any("nvswitch" in name for name in route(t, 10, 11))
    assert any("nvswitch" in name for name in route(t, 2, 3))
    check_routes(t, routes(t, [10, 11], [11, 10]), [10, 11], [11, 10])


def test_degraded_links_and_slow_gpus():
    faults = """
faults:
  - {link: node0.gpu1->node0.nvswitch0, bandwidth: 50%}
  - {link: node0.nic2-leaf2, bandwidth: 100Gbps, latency: 5us}
  - {gpu: node2.gpu5, slowdown: 2}
"""
    t = topology(FOUR + faults)
    rates = {t.link_name(n): t.links.bandwidth[n] for n in range(len(t.links))}
    assert rates["node0.gpu1->node0.nvswitch0"] == pytest.approx(185.4e9)
    assert rates["node0.nvswitch0->node0.gpu1"] == pytest.approx(370.8e9)
    usable = 0.982  # of a line rate, by InfiniBand
    assert rates["node0.nic2->leaf2"] == pytest.approx(12.5e9 * usable)
    assert rates["leaf2->node0.nic2"] == pytest.approx(12.5e9 * usable)
    assert t.capacities["sms"][[20, 21]].tolist() == [1, 0.5]
    assert t.capacities["hbm"][[20, 21]].tolist() == [3350e9, 1675e9]


@pytest.mark.parametrize("placement", ["contiguous", "spread", "random", "[5, 0, 9, 2]"])
def test_a_job_on_some_hosts_of_a_larger_fabric(placement):
    fabric = "fabric: {kind: rail-optimized, nodes: 16, nodes_per_unit: 4}\n"
    made = cluster(f"{FOUR}{fabric}placement: {placement}\n")
    leaves = {"contiguous": [0, 0, 0, 0], "spread": [0, 8, 16, 24], "[5, 0, 9, 2]": [8, 0, 16, 0]}
    found = (made.fabric.head[: 2 * len(made.ports) : 2] - made.fabric.ports)[
        made.ports.rail == 0
    ].tolist()
    assert found == leaves.get(placement, found)
    assert len(made.topology) == 32
    gpus = np.arange(32)
    check_routes(made.topology, routes(made.topology, gpus, (gpus + 9) % 32), gpus, (gpus + 9) % 32)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("faults: [{link: leaf0-spin3, bandwidth: 0%}]", "x.yaml:3:17: faults.0.link: no link"),
        ("faults: [{link: leaf0-leaf1, bandwidth: 0%}]", "'leaf0' has links to node0.nic0"),
        ("faults: [{link: node0.nic0, bandwidth: 0%}]", "write {nic: node0.nic0} for all its"),
        ("faults: [{gpu: node9.gpu0, slowdown: 2}]", "there is no GPU 'node9.gpu0'"),
        ("faults: [{link: leaf0-spine3}]", "faults.0: a link needs what is left of it"),
        ("faults: [{gpu: node0.gpu0}]", "faults.0: a GPU needs a slowdown such as 1.3"),
        ("faults: [{gpu: node0.gpu0, slowdown: 0.5}]", "faults.0.slowdown: expected at least 1"),
        ("faults: [{bandwidth: 0%}]", "faults.0: expected one of link, nic, switch, leaf, spine"),
        ("faults: [{gpu: node0.gpu0, slowdown: 2, bandwidth: 0%}]", "has no meaning for a gpu"),
        ("overrides: [{node: 4, nics: [0]}]", "overrides.0.node: the cluster has hosts 0 to 3"),
        (
            "overrides: [{node: 1, nics: [8]}]",
            "overrides.0.nics.0: the host has NICs 0 to 7, got 8",
        ),
        ("overrides: [{machine: {gpu: {sm: 3}}}]", "overrides.0.machine.gpu.sm: unknown key 'sm'"),
        ("overrides: [{machine: {gpu: {sms: x}}}]", "overrides.0.machine.gpu.sms: "),
        (
            "overrides: [{machine: {cpu: {link: 1}}}]",
            "overrides.0.machine.cpu.link: expected a band",
        ),
        ("placement: [0, 1, 2]", "placement: expected 4 different hosts of the fabric's 4"),
        ("placement: anywhere", "placement: expected"),
        ("fabric: {kind: fat-tree, k: 3}", "x.yaml:3:29: fabric.k: a fat tree needs an even k"),
        (
            "fabric: {kind: fat-tree, k: 4}",
            "fabric.k: a fat tree of 3 levels with k = 4 has 16 ports",
        ),
        ("fabric: {kind: nvlink-domian, hosts: 2}", "did you mean nvlink-domain?"),
        (
            "fabric: {kind: nvlink-domain, hosts: 2}\noverrides: [{node: 9}]",
            "overrides.0.node: the",
        ),
        ("faults: [{nic: node9.nic0}]", "faults.0.nic: there is no NIC 'node9.nic0'"),
        ("faults: [{nic: node0.nic8}]", "faults.0.nic: there is no NIC 'node0.nic8'"),
        ("fabric: {kind: fat-tree, nodes: 3}", "fabric.nodes: the fabric joins 3 hosts, the"),
        ("fabric: {knd: fat-tree}", "fabric.knd: unknown key 'knd' (did you mean kind?)"),
        ("fabric: {oversubscription: 0}", "fabric.oversubscription: expected a ratio"),
        ("fabric: {latency: 5}", "fabric.latency: expected a time such as 600ns"),
    ],
)
def test_mistakes_are_named_with_their_place(more, message):
    assert message in refusal(f"{FOUR}{more}\n")
