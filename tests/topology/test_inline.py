"""Graphs written out in a scenario, and generators by name."""

import pytest

from netsim.base.errors import InputError
from tests.topology.topology_tools import config, route, topology

LINE = """
graph:
  nodes: [{name: a}, {name: b}, {name: s, kind: switch}]
  links:
    - {from: a, to: s, bandwidth: 400Gbps, latency: 1us}
    - {from: s, to: b, bandwidth: 25GB/s, latency: 2us}
"""


def test_links_go_both_ways_unless_told():
    t = topology(LINE)
    assert route(t, 0, 1) == ["a->s", "s->b"]
    assert route(t, 1, 0) == ["b->s", "s->a"]
    assert t.links.bandwidth.tolist() == [50e9, 25e9, 50e9, 25e9]


def test_half_duplex_links_share_their_bandwidth():
    t = topology(LINE.replace("latency: 1us", "duplex: half"))
    assert t.links.resource[t.links.bandwidth == 50e9].tolist() == [0, 0]


@pytest.mark.parametrize(
    ("graph", "gpus"),
    [
        ("{kind: switch, gpus: 5, bandwidth: 400Gbps}", 5),
        ("{kind: ring, gpus: 5, bandwidth: 400Gbps, latency: 1us}", 5),
        ("{kind: full-mesh, gpus: 5, bandwidth: 400Gbps}", 5),
        ("{kind: torus, dims: [2, 3, 4], bandwidth: 400Gbps}", 24),
    ],
)
def test_generators(graph, gpus):
    assert len(topology(f"graph: {graph}\n")) == gpus


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (LINE.replace("to: s,", "to: t,"), "graph.links.0.to: there is no node 't'"),
        (LINE.replace("{name: b}", "{name: a}"), "graph.nodes.1.name: two nodes are called 'a'"),
        (LINE.replace("bandwidth: 25GB/s, ", ""), "graph.links.1: missing key 'bandwidth'"),
        (LINE.replace("25GB/s", "0GB/s"), "graph.links.1.bandwidth: expected a bandwidth such as"),
        (LINE.replace("25GB/s", "-1GB/s"), "(it cannot be negative)"),
        (
            LINE.replace("2us}", "2us, both: false}"),
            "not connected: there is no path from 'b' to 'a'",
        ),
        (LINE.replace("to: b", "to: s"), "graph.links.1: a link from 's' to itself"),
        (LINE.replace("to: b", "to: a"), "graph.links.1: a second link between 's' and 'a'"),
        ("graph: {nodes: [{name: s, kind: switch}]}\n", "expected at least one node of kind gpu"),
        ("graph: {kind: rink, gpus: 4, bandwidth: 1GB/s}\n", "did you mean ring?"),
        (
            "graph: {kind: ring, gpus: 0, bandwidth: 1GB/s}\n",
            "graph.gpus: expected at least 1, got 0",
        ),
        ("graph: {kind: ring, gpus: 4, bandwidth: 1}\n", "the unit is missing"),
        ("graph: {kind: torus, dims: [999, 999], bandwidth: 1GB/s}\n", "at most 262144 GPUs"),
    ],
)
def test_mistakes_in_graphs_are_named(text, message):
    with pytest.raises(InputError) as caught:
        config(text)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nodes: 3\n", "expected one of machine, groups or graph, got none of them"),
        ("machine: dgx-h100\ngpus_per_node: 9\n", "x.yaml:2:16: gpus_per_node: the machine has 8"),
        ("machine: dgx-h100\ngpus: [0, 8]\n", "gpus.1: the machine has GPUs 0 to 7, got 8"),
        ("machine: dgx-h100\ngpus: [1, 1]\n", "gpus.1: GPU 1 twice"),
        ("machine: dgx-h100\nnodez: 2\n", "unknown key 'nodez' (did you mean nodes?)"),
        ("machine: dgx-h10\n", "x.yaml:1:10: machine: unknown machine 'dgx-h10' (did you mean"),
        ("machine: 3\n", "machine: expected"),
        ("groups: [{machine: dgx-h100}]\nnodes: 2\n", "nodes: has no meaning beside groups"),
        ("graph: {kind: ring, gpus: 4, bandwidth: 1GB/s}\nnodes: 2\n", "nodes: has no meaning"),
    ],
)
def test_mistakes_in_clusters_are_named(text, message):
    with pytest.raises(InputError) as caught:
        config(text)
    assert message in str(caught.value)
