"""The wiring of a communicator, found by kind of node, against the same found rank by rank."""

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest

from netsim.nccl.job import Wishes, job_of
from netsim.topology.cluster import build_cluster
from netsim.topology.config import ClusterConfig
from netsim.yamlio.read import parse_source
from netsim.yamlio.validate import validate
from tests.nccl.plain_wiring import (
    plain_heads,
    plain_links,
    plain_rings,
    plain_trees,
    plain_ways,
    searched_channels,
)

CLUSTERS = {
    **{f"h100-{n}": f"{{machine: dgx-h100, nodes: {n}}}" for n in (*range(1, 8), 11, 16, 20)},
    **{f"a100-{n}": f"{{machine: dgx-a100, nodes: {n}}}" for n in (1, 2, 7, 12)},
    "few-gpus": "{machine: dgx-h100, nodes: 6, gpus_per_node: 3}",
    "one-gpu": "{machine: dgx-h100, nodes: 9, gpus_per_node: 1}",
    "one-nic": "{machine: dgx-h100, nodes: 5, nics_per_node: 1}",
    "pcie": "{machine: l40s-pcie-x8, nodes: 5}",
    "shm": "{machine: rtx4090-x8, nodes: 3}",
    "cube-mesh": "{machine: dgx-1-v100, nodes: 5}",
    "domains": "{machine: gb200-nvl72, nodes: 20}",
    "missing-nics": "{machine: dgx-h100, nodes: 7, overrides: "
    "[{node: 1, nics: [0, 1, 2, 3, 4, 5, 6]}, {node: 4, nics: [2, 5]}]}",
    "collnet": "{machine: dgx-h100, nodes: 5, fabric: {kind: rail-optimized, sharp: true}}",
    "dead-nic": "{machine: dgx-h100, nodes: 6, faults: [{nic: node2.nic3}]}",
    "mixed": "{groups: [{machine: dgx-h100, nodes: 3}, {machine: dgx-a100, nodes: 2}, "
    "{machine: dgx-h100, nodes: 4, gpus_per_node: 5}]}",
    "mixed-pcie": "{groups: [{machine: l40s-pcie-x8, nodes: 2}, {machine: dgx-h100, nodes: 2}]}",
}
WISHES = {
    "usual": {},
    "crossed": {"NCCL_CROSS_NIC": "1"},
    "collnet": {"NCCL_COLLNET_ENABLE": "1"},
    "few-channels": {"NCCL_MAX_NCHANNELS": "3"},
}


def job(text, order=None, variables=None):
    cluster = build_cluster(validate(ClusterConfig, parse_source(text, "x.yaml")))
    gpus = np.arange(len(cluster.topology), dtype=np.int32)
    gpus = gpus if order is None else order(gpus)
    return job_of(cluster, gpus, Wishes(variables=variables or {}))


def shuffled(gpus):
    return np.random.default_rng(3).permutation(gpus)


def dealt(gpus):
    """One GPU of every host after the other."""
    return gpus[np.argsort(gpus % 8, kind="stable")]


def check(found):
    """All of a job's wiring is what the plain code finds."""
    nodes, wiring, count = found.nodes, found.wiring, found.comm.n_channels
    rings, trees = plain_rings(nodes, count), plain_trees(nodes, count)
    assert list(wiring.rings) == rings
    assert [(tree.up, tree.down) for tree in wiring.trees] == trees
    around = [(c, *hop) for c, ring in enumerate(rings) for hop in pairwise((*ring, ring[0]))]
    up = [(c, r, p) for c, (parents, _) in enumerate(trees) for r, p in enumerate(parents)]
    edges = [edge for c, r, p in up if p >= 0 for edge in ((c, r, p), (c, p, r))]
    for kind, routes, hops in (
        ("ring", wiring.ring_routes, around),
        ("tree", wiring.tree_routes, edges),
    ):
        ways = plain_ways(nodes, kind, hops)
        assert dict(routes) == ways
        assert len(routes) == len(ways)
        assert all(routes.get(hop, "inside") == ways.get(hop, "inside") for hop in hops)
    link, links = plain_links(found.comm, nodes)
    assert (wiring.links[0], dict(wiring.links[1])) == (link, links)
    assert len(wiring.links[1]) == len(links)
    assert wiring.nvls.ranks == plain_heads(nodes, "nvls")
    assert wiring.direct.ranks == plain_heads(nodes, "collnet_direct")
    home = {rank: number for number, node in enumerate(nodes) for rank in node.ranks}
    assert wiring.node == tuple(home[rank] for rank in range(found.comm.n_ranks))


@pytest.mark.sample(5)
@pytest.mark.slow
@pytest.mark.parametrize("name", CLUSTERS)
def test_wiring_by_kind_is_wiring_by_rank(name):
    check(job(CLUSTERS[name]))


def test_a_node_is_searched_once_for_all_hosts_of_its_kind_and_for_no_others():
    kinds = ("dgx-h100", "dgx-a100")
    groups = [f"{{machine: {one}, nodes: 2, gpus_per_node: 2}}" for one in kinds]
    nodes = job(f"{{groups: [{', '.join(groups)}]}}").nodes
    views = [node.view for node in nodes]
    assert views[0] is views[1]
    assert views[2] is views[3]
    sms = [node.view.table.graph.gpu(node.view.table.gpus[0]).sm for node in nodes]
    assert sms == [90, 90, 80, 80]


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "order"),
    [("h100-6", dealt), ("missing-nics", dealt), ("pcie", dealt), ("few-gpus", shuffled)],
)
def test_ranks_in_any_order(name, order):
    check(job(CLUSTERS[name], order))


@pytest.mark.sample(3)
@pytest.mark.slow
@pytest.mark.parametrize("variables", WISHES)
@pytest.mark.parametrize("name", ["h100-1", "h100-5", "a100-7", "mixed", "missing-nics"])
def test_wiring_as_variables_have_it(name, variables):
    check(job(CLUSTERS[name], variables=WISHES[variables]))


def test_chains_are_repeated_over_all_channels():
    found = job(CLUSTERS["collnet"], variables=WISHES["collnet"])
    searched = min(node.view.collnet_chain.n_channels for node in found.nodes)
    chains = found.wiring.chains
    assert len(chains.ranks) == len(chains.nic_routes) == found.comm.n_channels
    for channel, ranks in enumerate(chains.ranks):
        for node, own in zip(found.nodes, ranks, strict=True):
            gpus = node.view.collnet_chain.channels[channel % searched].gpus
            assert own == tuple(node.ranks[gpu] for gpu in gpus)


def test_only_what_is_asked_for_is_made():
    found = job(CLUSTERS["h100-6"])
    assert found.wiring.rings[0] is found.wiring.rings[searched_channels(found.nodes)]
    assert found.wiring.rings[-1] == found.wiring.rings[found.comm.n_channels - 1]
    assert found.wiring.rings[:2] == (found.wiring.rings[0], found.wiring.rings[1])
    with pytest.raises(IndexError):
        found.wiring.rings[found.comm.n_channels]
    with pytest.raises(KeyError):
        found.wiring.ring_routes[0, 0, 1]


@pytest.mark.sample(3)
@pytest.mark.slow
@pytest.mark.parametrize(
    "faults",
    [
        ["node0.nic0"],
        ["node0.nic7"],
        ["node1.nic3"],
        ["node0.nic0", "node1.nic0"],
        ["node0.nic7", "node1.nic7"],
        ["node0.nic0", "node1.nic5"],
    ],
)
def test_which_nic_is_dead_does_not_matter(faults: list[str]) -> None:
    """Nobody sends through a CPU (the GPU without a NIC, and rings that change rails, go over
    NVLink to the GPU beside a NIC), and the others have equally many channels each.
    """
    dead = ", ".join(f"{{nic: {name}}}" for name in faults)
    found = job(f"{{machine: dgx-h100, nodes: 2, faults: [{dead}]}}")
    topology, used = found.cluster.topology, Counter[str]()
    for channel, ring in enumerate(found.wiring.rings):
        for src, dst in zip(ring, (*ring[1:], ring[0]), strict=True):
            if src // 8 == dst // 8:
                continue
            way = found.wiring.ring_routes[channel, src, dst]
            ends = (np.array([src], np.int32), np.array([dst], np.int32))
            routes = topology.router.routes(topology, *ends, np.array([channel]), way)
            names = [topology.link_name(link) for link in routes.link.tolist()]
            assert not any("cpu" in name for name in names), (way, names)
            used += Counter(name for name in names if ".nic" in name and "->leaf" in name)
    hosts = {name.partition(".")[0] for name in faults}
    for host in hosts:
        mine = [count for name, count in used.items() if name.startswith(host)]
        assert len(mine) == 7
        assert len(set(mine)) == 1
    assert found.comm.n_channels == 28  # as NCCL counts from the fewest that any node has found
