"""Lint: each mistake is found where it is, and sound machines have none."""

from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest

from netsim.base.files import preset_names
from netsim.topology.graph import GPU_LINKS
from netsim.topology.lint import _asymmetric, lint_cluster, lint_topology
from netsim.topology.machine import PCIE_LANE
from tests.topology.topology_tools import cluster, topology

SOUND = [n for n in preset_names("topologies") if n.startswith(("dgx", "hgx", "mi", "g"))]


@pytest.mark.parametrize("name", SOUND)
def test_sound_machines_have_no_findings(name):
    assert lint_cluster(cluster(f"machine: {name}\nnodes: 2\n")) == ()


@pytest.mark.parametrize(
    ("more", "rule", "place", "message"),
    [
        (
            "overrides: [{node: 0, machine: {gpu: {pcie: {generation: 5, width: 8}}}}]",
            "narrow-slot",
            "node0.gpu0",
            "has 8 PCIe lanes, not 16: 25.8 GB/s of 51.61 GB/s",
        ),
        (
            "overrides: [{node: 1, nics: [1, 2, 3, 4, 5, 6, 7]}]",
            "missing-rail",
            "node1",
            "has no nic0: its GPUs share the others, 43.75 GB/s each (12% less)",
        ),
        (
            "overrides: [{machine: {nics: {at: [cpu1]}, gpu: {at: [cpu0]}}}]",
            "far-nic",
            "node0.gpu0",
            "is in another NUMA domain: 2.75 GB/s of 50 GB/s when all 8 GPUs that cross there send "
            "(94% less)",
        ),
        (
            "gpus_per_node: 1\noverrides: [{machine: {nics: {at: [cpu1]}, gpu: {at: [cpu0]}}}]",
            "far-nic",
            "node0.gpu0",
            "is in another NUMA domain: 22 GB/s of 50 GB/s at most (56% less)",
        ),
        ("nics_per_node: 3", "asymmetric", "node0.gpu", "shares nic"),
        (
            "overrides: [{machine: {nics: {pcie: {generation: 4}}}}]",
            "slow-slot",
            "node0.nic0",
            "gpu0 reaches it with 25.8 GB/s of 50 GB/s",
        ),
        (
            "fabric: {kind: leaf-spine, oversubscription: 2}",
            "oversubscription",
            "fabric",
            "oversubscribed 2:1 between halves: 24.55 GB/s a GPU",
        ),
        (
            "fabric: {kind: leaf-spine, spines: 8}\nfaults: [{link: leaf0-spine1, bandwidth: 0%}]",
            "dead-link",
            "leaf0->spine1",
            "has no bandwidth: leaf0 has 7 of 8 such links left, 343.7 GB/s of 392.8 GB/s "
            "(12% less)",
        ),
        (
            "overrides: [{node: 0, machine: {gpu: {pcie: {generation: 4}}}}]",
            "old-pcie",
            "node0.gpu0",
            "generation 4, not 5: 25.8 GB/s of 51.61 GB/s (50% less)",
        ),
        (
            "fabric: {kind: leaf-spine}\nfaults: [{link: node0.nic3-leaf0, bandwidth: 0%}]",
            "dead-nic",
            "node0.nic3",
            "dead: its host has 7 of 8 NICs left",
        ),
        ("gpus: [0]", "unused-nic", "node0.nic1", "50 GB/s stay unused"),
    ],
)
def test_each_mistake_is_found(more, rule, place, message):
    found = lint_cluster(cluster(f"machine: dgx-h100\nnodes: 2\n{more}\n"))
    assert any(
        one.rule == rule and one.place.startswith(place) and message in one.message for one in found
    ), found


def test_far_nics_that_cost_no_bandwidth_cost_latency():
    found = lint_cluster(cluster("machine: rtx4090-x8\n"))
    assert {one.rule for one in found} == {"far-nic"}
    assert "no bandwidth is lost" in found[0].message
    assert "70 ns longer" in found[0].message


def test_nodes_that_nothing_reaches():
    graph = (
        "graph:\n  nodes: [{name: a}, {name: b}, {name: s, kind: switch}, "
        "{name: t, kind: switch}]\n"
        "  links: [{from: a, to: b, bandwidth: 1GB/s}, {from: b, to: s, bandwidth: 1GB/s}]\n"
    )
    found = {one.place: one for one in lint_topology(topology(graph))}
    assert found["t"].rule == "isolated"
    assert "has no link at all" in found["t"].message
    cut = topology(graph + "faults: [{link: b-s, bandwidth: 0%}]\n")
    found = {one.place: one for one in lint_topology(cut)}
    assert "all its links are dead" in found["s"].message
    assert found["b->s"].rule == "dead-link"


def findings(more: str) -> dict[tuple[str, str], str]:
    """Messages by rule and place."""
    found = lint_cluster(cluster(f"machine: dgx-h100\nnodes: 2\n{more}\n"))
    return {(one.rule, one.place): one.message for one in found}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sm", "generation"),
    [(60, 3), (70, 3), (75, 3), (80, 4), (86, 4), (89, 4), (90, 5), (100, 5), (103, 6), (120, 5)],
)
def test_gpus_are_held_to_the_generation_of_their_data_sheets(sm: int, generation: int) -> None:
    """P100, V100 and T4; A100, A40 and L40S; H100, B200, B300 and RTX PRO 6000."""
    override = "overrides: [{machine: {gpu: {arch: sm_%d, pcie: {generation: %d}}}}]"
    old = findings(override % (sm, generation - 1))
    assert f"generation {generation - 1}, not {generation}: " in old["old-pcie", "node0.gpu7"]
    less = {3: "49%", 6: "48%"}.get(generation, "50%")  # 8b/10b, and what FLITs have besides
    assert f"({less} less)" in old["old-pcie", "node0.gpu7"]
    assert not [rule for rule, _ in findings(override % (sm, generation)) if rule == "old-pcie"]


def test_a_narrow_slot_of_a_nic_counts_where_it_is_slower_than_the_nic() -> None:
    override = "overrides: [{machine: {nics: {pcie: {generation: 5, width: %d}}}}]"
    assert not [rule for rule, _ in findings(override % 16) if rule == "narrow-slot"]
    narrow = findings(override % 8)["narrow-slot", "node0.nic7"]
    assert narrow == "has 8 PCIe lanes, not 16: 25.8 GB/s of 51.61 GB/s (50% less)"
    enough = findings("fabric: {nic: 200Gbps}\n" + override % 8)
    assert not [rule for rule, _ in enough if rule in ("narrow-slot", "slow-slot")]


def test_who_shares_a_nic_with_more_than_others_gets_less_of_it() -> None:
    found = findings("nics_per_node: 3")
    shared = [text for (rule, _), text in found.items() if rule == "asymmetric"]
    more = "with more GPUs than others share theirs"
    assert sorted(shared) == [  # of eight, one has nic0 for itself
        *[f"shares nic1 {more}: 16.67 GB/s each (67% less)"] * 3,
        *[f"shares nic2 {more}: 12.5 GB/s each (75% less)"] * 4,
    ]


def test_what_a_missing_rail_and_oversubscription_cost() -> None:
    found = findings("overrides: [{node: 1, nics: [0, 1, 2, 3]}]")
    assert [place for rule, place in found if rule == "missing-rail"] == ["node1"]
    assert found["missing-rail", "node1"].startswith("has no nic7: its GPUs share the others, ")
    assert "25 GB/s each (20% less)" in found["missing-rail", "node1"]
    told = findings("fabric: {kind: leaf-spine, oversubscription: 4}")["oversubscription", "fabric"]
    assert told.startswith("oversubscribed 4:1 between halves: ")
    assert told.endswith(" when all send across (75% less)")


def test_gpus_that_send_less_to_others_are_told_by_how_much() -> None:
    """One of three has one NVLink of two; links to a NIC do not count."""
    nvlink, other = GPU_LINKS[0], max(GPU_LINKS) + 1
    links = SimpleNamespace(
        kind=np.array([nvlink] * 5 + [other]),
        tail=np.array([0, 0, 1, 2, 2, 1]),
        bandwidth=np.array([25e9, 25e9, 20e9, 25e9, 25e9, 90e9]),
    )
    host = SimpleNamespace(
        layout=SimpleNamespace(links=links, nodes=range(4)),
        gpu_node=np.arange(3),
        nics=0,
        gpus=(4, 5, 6),
    )
    (found,) = _asymmetric(host)
    assert (found.rule, found.place) == ("asymmetric", "gpu5")
    told = "has 20 GB/s to other GPUs, the best has 50 GB/s: rings run at the lower rate (60% less)"
    assert found.message == told


def test_a_lane_of_each_generation_is_about_twice_as_fast_as_one_of_the_last() -> None:
    assert list(PCIE_LANE) == [1, 2, 3, 4, 5, 6]
    rates = list(PCIE_LANE.values())
    assert rates[0] == 250e6
    assert all(1.9 < after / before <= 2.0 for before, after in pairwise(rates))
