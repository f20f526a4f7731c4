"""A NIC rate that PCIe cannot feed is told, one that it can is not."""

import pytest

from netsim.scenario.cells import expand
from netsim.tasks.answer import notes_of
from netsim.yamlio.read import parse_source

WORK = "workload: {collective: all_reduce}\n"


def notes(cluster: str, sweep: str = "") -> list[str]:
    return notes_of(expand(parse_source(f"cluster: {cluster}\n{WORK}{sweep}", "nics.yaml")))


@pytest.mark.parametrize(
    "cluster",
    [
        "{machine: dgx-h100, nodes: 2, nic: 800Gbps}",
        "{machine: dgx-h100, nodes: 2, fabric: {kind: rail-only, nic: 800Gbps}}",
        "{groups: [{machine: dgx-h100, nic: 800Gbps}, {machine: dgx-h100}]}",
    ],
)
def test_a_nic_faster_than_its_slot_is_told(cluster: str) -> None:
    assert notes(cluster) == [
        "note: NICs of 800Gbps are faster than their PCIe slots in dgx-h100, which carry "
        "51.61 GB/s of 100 GB/s"
    ]


@pytest.mark.parametrize(
    "cluster",
    [
        "{machine: dgx-h100, nodes: 2, nic: 400Gbps}",
        "{machine: dgx-h100, nodes: 2}",
        "{graph: {kind: switch, gpus: 4, bandwidth: 50GB/s, latency: 1us}}",
    ],
)
def test_others_are_not(cluster: str) -> None:
    assert notes(cluster) == []


def test_it_is_said_once_for_all_cells() -> None:
    sweep = "sweep: {cluster.nic: [400Gbps, 800Gbps], cluster.nodes: [2, 4]}\n"
    assert len(notes("{machine: dgx-h100}", sweep)) == 1
