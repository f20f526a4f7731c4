"""What older NCCL versions find and choose, from the table of changes of the fact sheet."""

from dataclasses import replace
from functools import lru_cache

import pytest

from netsim.nccl.environment import NO_SETTINGS
from netsim.nccl.facts import FUNCTIONS, Version, facts_of
from netsim.nccl.node import communicator, search_node
from netsim.nccl.paths import p2p_level
from netsim.nccl.system import system_graph
from netsim.nccl.tuning import TunedCall, algorithm_bandwidth, choose, latency_us, launch, refusal
from tests.nccl.nccl_nodes import searched_communicator, system_of
from tests.nccl.nccl_oracles import SYSTEMS

VERSIONS = [Version(2, minor) for minor in range(10, 31)]


@lru_cache
def node_of_version(config: str, networked: bool, version: Version):
    return search_node(system_of(config), networked=networked, version=version)


def comm_of(config: str, nodes: int, minor: int):
    version = Version(2, minor)
    return communicator(node_of_version(config, nodes > 1, version), nodes, version=version)


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS, ids=str)
def test_every_version_chooses_something_for_every_size(version):
    for config in ("dgxa100", "h100_8nic", "l40s8sw"):
        for nodes in (1, 2, 8):
            comm = replace(searched_communicator(config, nodes), version=version)
            for function in FUNCTIONS:
                for exponent in range(3, 34, 5):
                    assert choose(comm, TunedCall(function, 2**exponent)).time_us > 0


def test_a100_ring_was_capped_before_2_18():
    assert algorithm_bandwidth(
        comm_of("a100_8nic", 1, 12), "AllReduce", "Ring", "Simple"
    ) == pytest.approx(235 * 8 / 14)
    new = algorithm_bandwidth(comm_of("a100_8nic", 1, 18), "AllReduce", "Ring", "Simple")
    assert new == pytest.approx(240 * 8 / 14)


def test_old_links_and_speeds():
    assert comm_of("a100_8nic", 1, 16).ring.bw_intra == 22
    assert comm_of("a100_8nic", 1, 18).ring.bw_intra == 20
    assert comm_of("dgx1v_4nic", 1, 12).ring.bw_intra == 22


def test_amd_sockets_were_no_limit_before_2_19():
    old, new = (comm_of("a10pcie8_amd", 1, minor).ring for minor in (18, 19))
    assert (old.n_channels * old.bw_intra, new.n_channels * new.bw_intra) == (24, 15)


def test_simple_tree_latency_through_the_years():
    latencies = [
        latency_us(comm_of("a100_8nic", 1, minor), "AllReduce", "Tree", "Simple")
        for minor in (12, 18, 20, 24)
    ]
    assert latencies == pytest.approx([28 * 14, 4 * 14, 28 * 14, 8.4 + 4 * 14])


@pytest.mark.slow
def test_rings_counted_one_more_hop_a_node_before_2_23():
    old, new = (
        latency_us(comm_of("dgxa100", 4, minor), "AllReduce", "Ring", "LL") for minor in (22, 23)
    )
    assert old - new == pytest.approx(2 * (2.7 - 2.0))


def test_nvls_bandwidth_models():
    old, new = (
        algorithm_bandwidth(comm_of("h100_8nic", 1, minor), "AllReduce", "NVLS", "Simple")
        for minor in (24, 28)
    )
    assert old == pytest.approx(8 * 40 * 5 / 6)
    assert new == pytest.approx(272.0, abs=0.01)


def test_which_algorithms_exist():
    assert refusal(comm_of("h100_8nic", 1, 17), "AllReduce", "NVLS", "Simple") == (
        "NCCL 2.17 has no NVLS"
    )
    assert refusal(comm_of("h100_8nic", 1, 18), "AllGather", "NVLS", "Simple") == (
        "NCCL 2.18 has no NVLS AllGather"
    )
    assert not refusal(comm_of("h100_8nic", 1, 19), "AllGather", "NVLS", "Simple")


def test_ll128_was_for_v100_and_a100_only():
    assert refusal(comm_of("h100_8nic", 1, 16), "AllReduce", "Ring", "LL128") == (
        "LL128 needs all GPUs V100 or all A100"
    )
    assert not refusal(comm_of("a100_8nic", 1, 16), "AllReduce", "Ring", "LL128")


def test_trees_kept_their_computed_threads_before_2_22():
    assert launch(comm_of("dgxa100", 4, 21), 2**30, "Tree", "Simple").n_threads == 640
    assert launch(comm_of("dgxa100", 4, 21), 2**30, "Tree", "LL").n_threads == 512
    assert launch(comm_of("dgxa100", 4, 22), 2**30, "Tree", "LL").n_threads == 640


def test_default_levels_of_peer_to_peer():
    def level(config: str, minor: int, devices: list[int] | None = None) -> str:
        facts = facts_of(Version(2, minor))
        graph = system_graph(system_of(config), facts, networked=False, devices=devices)
        return p2p_level(graph, NO_SETTINGS)

    assert [level("l40s8sw", minor) for minor in (22, 23)] == ["SYS", "PXB"]
    assert level("l40s8sw", 23, [0, 4]) == "SYS"
    assert [level("v100pcie4", minor) for minor in (12, 23)] == ["PXB", "PXB"]


def test_the_front_end_knows_all_oracle_systems():
    assert len(SYSTEMS) == 26
