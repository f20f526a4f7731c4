"""Lint: each mistake is found where it is, and sound machines have none."""

import pytest
from topology_tools import cluster

from netsim.presets import preset_names
from netsim.topology.lint import lint_cluster

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
            "has no nic0",
        ),
        (
            "overrides: [{machine: {nics: {at: [cpu1]}, gpu: {at: [cpu0]}}}]",
            "far-nic",
            "node0.gpu0",
            "is in another NUMA domain: at most 22 GB/s of 50 GB/s",
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
            "has no bandwidth",
        ),
        ("gpus: [0]", "unused-nic", "node0.nic1", "50 GB/s stay unused"),
    ],
)
def test_each_mistake_is_found(more, rule, place, message):
    found = lint_cluster(cluster(f"machine: dgx-h100\nnodes: 2\n{more}\n"))
    assert any(
        one.rule == rule and one.place.startswith(place) and message in one.message for one in found
    ), found
