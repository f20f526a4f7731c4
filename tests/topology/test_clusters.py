"""Clusters: names, links host by host, and routes between any two GPUs."""

import numpy as np
import pytest

from netsim.topology.graph import LINK_KINDS, TopologyError
from tests.topology.topology_tools import check_routes, cluster, route, routes, topology

H100 = "machine: dgx-h100\nnodes: 4\nfabric: {kind: single-switch}\n"


def test_names_and_hosts():
    t = topology(H100)
    assert len(t) == 32
    assert t.gpus[11] == "node1.gpu3"
    assert {str(node).split(".")[0] for node in t.nodes} == {
        *(f"node{i}" for i in range(4)),
        "switch0",
    }
    assert t.capacities["hbm"].tolist() == [3350e9] * 32


def test_a_graph_can_be_made_from_a_cluster():
    t = topology(H100)
    assert t.graph.number_of_edges() == len(t.links)
    assert t.graph.edges["node2.nic1", "switch0"]["bandwidth"] == pytest.approx(50e9 * 0.982)


def test_inside_a_host_data_takes_nvlink_and_between_hosts_the_rails():
    t = topology(H100)
    assert route(t, 0, 5) == ["node0.gpu0->node0.nvswitch0", "node0.nvswitch0->node0.gpu5"]
    assert route(t, 1, 25) == [
        "node0.gpu1->node0.pcie1",
        "node0.pcie1->node0.nic1",
        "node0.nic1->switch0",
        "switch0->node3.nic1",
        "node3.nic1->node3.pcie1",
        "node3.pcie1->node3.gpu1",
    ]


def test_ways_that_a_schedule_can_ask_for():
    t = topology(H100)
    assert "node0.nvswitch0->node0.gpu5" in route(t, 0, 13, "pxn")
    assert "node0.nic5->switch0" in route(t, 0, 13, "pxn")
    assert "node0.cpu1->node0.mem1" in route(t, 0, 5, "staged")
    assert "node0.mem1->node0.cpu1" in route(t, 0, 5, "staged")
    assert {"node0.nic3->switch0", "switch0->node1.nic4"} <= set(route(t, 0, 13, "nic:3:4"))
    assert "node0.nic0->switch0" in route(t, 0, 5, "net")
    with pytest.raises(TopologyError, match="unknown way 'pnx'"):
        route(t, 0, 1, "pnx")
    with pytest.raises(TopologyError, match="node1 has no NIC 9"):
        route(t, 0, 13, "nic:0:9")


@pytest.mark.parametrize("way", ["", "pxn", "staged", "net", "nic:2"])
@pytest.mark.parametrize("machine", ["dgx-a100", "dgx-h100"])
def test_routes_lead_from_source_to_destination(machine, way):
    t = topology(f"machine: {machine}\nnodes: 5\ngpus: [0, 3, 6]\nnics_per_node: 4\n")
    src, dst = (side.ravel() for side in np.meshgrid(np.arange(15), np.arange(15)))
    apart = src != dst
    found = routes(t, src[apart], dst[apart], way)
    check_routes(t, found, src[apart], dst[apart])


def test_latency_is_the_sum_of_the_links():
    t = topology(H100)
    found = routes(t, 0, 31)
    assert found.latency[0] == pytest.approx(t.links.latency[found.link].sum())


def test_mixed_hosts_keep_their_own_rates():
    t = topology("groups: [{machine: dgx-h100, nodes: 1}, {machine: dgx-a100, nodes: 2}]\n")
    assert len(t) == 24
    narrow = t.links.bandwidth[routes(t, 0, 9).link].min()
    assert narrow == pytest.approx(25e9 * 0.982)
    assert t.capacities["hbm"][[0, 8]].tolist() == [3350e9, 2039e9]


def test_few_nics_are_shared_and_many_are_spread():
    few = cluster("machine: dgx-a100\nnodes: 2\nnics_per_node: 4\n").hosts[0]
    assert few.local[:, 0].tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    many = cluster("machine: dgx-a100\nnodes: 2\nnics_per_node: 16\nnic: 100Gbps\n").hosts[0]
    assert many.local.shape == (8, 2)
    assert sorted(many.local.ravel().tolist()) == list(range(16))
    one = cluster("machine: dgx-h100\nnodes: 2\ngpus_per_node: 1\nnics_per_node: 1\n").hosts[0]
    assert (one.out[0, 0] >= 0).sum() == 2


def test_no_nic_is_told_with_the_host():
    t = topology("machine: dgx-h100\nnodes: 2\nnics_per_node: 0\n")
    with pytest.raises(TopologyError, match="no fabric joins them"):
        route(t, 0, 8)


def test_links_are_laid_out_host_by_host():
    t = topology(H100)
    each = (len(t.links) - 2 * 32) // 4
    first, second = t.links.tail[:each], t.links.tail[each : 2 * each]
    assert (second - first == (len(t.nodes) - 1) // 4).all()
    kinds = t.links.kind[-64:]
    assert (kinds == LINK_KINDS.index("nic")).all()


def test_many_gpus_are_quick():
    t = topology("machine: dgx-h100\nnodes: 2048\n")
    gpus = np.arange(len(t))
    found = routes(t, gpus, np.roll(gpus, -1))
    assert len(found.latency) == 16384
