"""Causes that concern one part: which there are, where they are tried, what they are called."""

import pytest

from netsim.measured import single_parts
from netsim.measured.single_parts import Cause, joined_titles, places_of, single_part_causes
from netsim.scenario.cells import expand
from netsim.tasks.resolve import resolve
from netsim.topology.load import load_machine
from netsim.yamlio.read import parse_source

FOUR_HOSTS = "{machine: dgx-a100, nodes: 4, gpus_per_node: 2, nics_per_node: 2}"


def causes_of(cluster: str, machine: str) -> list[Cause]:
    source = parse_source(
        f"cluster: {cluster}\nworkload: {{collective: all_reduce, sizes: [1MiB]}}", "here"
    )
    return list(single_part_causes(source, resolve(expand(source)[0]), load_machine(machine)))


def test_one_nic_link_rail_gpu_and_host_are_causes_of_a_cluster() -> None:
    titles = {one.title for one in causes_of(FOUR_HOSTS, "dgx-a100")}
    assert titles >= {
        "the link of one NIC at half its rate, which NCCL does not see (node1.nic0)",
        "one NIC missing on one host (node1.nic0)",
        "one rail at half its rate (nic0 of every host)",
        "all NICs of one host at half their rate (node1)",
        "no GPUDirect on one host (node1)",
        "one link between switches at half its rate (leaf0-spine0)",
        "one link between switches down (leaf0-spine0)",
        "one GPU at half its speed (node0.gpu0)",
        "the NVLinks of one GPU at half the rate (node0.gpu0)",
        "the PCIe link of one GPU at half the rate (node0.gpu0)",
    }


def test_a_rail_is_one_nic_of_every_host() -> None:
    (rail,) = [one for one in causes_of(FOUR_HOSTS, "dgx-a100") if "rail" in one.name]
    ((key, faults),) = rail.changes
    assert key == "cluster.faults"
    assert [fault["link"] for fault in faults] == [f"node{n}.nic0-leaf0" for n in range(4)]


def test_a_single_host_has_only_gpus_as_single_parts() -> None:
    titles = [one.title for one in causes_of("{machine: dgx-a100}", "dgx-a100")]
    assert titles
    assert all("GPU" in title and "NIC" not in title for title in titles)


def test_single_parts_of_large_clusters_are_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(single_parts, "MOST_RANKS", 7)
    assert not causes_of(FOUR_HOSTS, "dgx-a100")


@pytest.mark.parametrize(
    ("hosts", "places"),
    [(["a"], ["a"]), (["a", "b"], ["a", "b"]), (list("abcdef"), ["a", "b", "c", "f"])],
)
def test_faults_are_tried_on_hosts_with_different_places_in_trees(
    hosts: list[str], places: list[str]
) -> None:
    assert places_of(hosts) == places


def test_causes_of_one_name_are_one_title_with_all_their_places() -> None:
    titles = ["one GPU (a)", "Ring forced", "one GPU (b)", "the network is X (Y): --nic 1"]
    expected = ["one GPU (a or b)", "Ring forced", "the network is X (Y): --nic 1"]
    assert joined_titles(titles) == expected
