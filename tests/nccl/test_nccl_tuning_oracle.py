"""The cost model and the choice against NCCL's own, with NCCL's own search results fed in."""

import pytest

from netsim.nccl.communicator import ChannelGraph, Communicator
from tests.nccl.nccl_oracles import NODES, SYSTEMS, rows, rows_of
from tests.nccl.nccl_tuning_checks import assert_choices, assert_costs


def graph_of(row: dict[str, str]) -> ChannelGraph:
    return ChannelGraph(
        pattern=int(row["pattern"]),
        n_channels=int(row["nChannels"]),
        bw_intra=float(row["bwIntra"]),
        bw_inter=float(row["bwInter"]),
        type_intra=row["typeIntra"],
        type_inter=row["typeInter"],
        same_channels=row["sameChannels"] == "1",
        cross_nic=int(row["crossNic"]),
    )


def fed_communicator(config: str, nodes: int) -> Communicator:
    found = {row["graph"]: row for row in rows_of("search_results.csv", config, nodes)}
    gpus, capability, vendor = SYSTEMS[config]
    return Communicator(
        n_ranks=gpus * nodes,
        n_nodes=nodes,
        ring=graph_of(found["ring"]),
        tree=graph_of(found["tree"]),
        nvls=graph_of(found["nvls"]) if "nvls" in found else None,
        n_channels=int(found["ring"]["collChannels"]),
        min_cc=capability,
        max_cc=capability,
        cpu_vendor=vendor,
        nvswitch="nvls" in found,
    )


@pytest.mark.slow
@pytest.mark.parametrize("config", SYSTEMS)
def test_costs_with_the_search_fed_in(config):
    for nodes in NODES:
        assert assert_costs(fed_communicator(config, nodes), config, nodes)


@pytest.mark.sample(21)
@pytest.mark.slow
@pytest.mark.parametrize("config", SYSTEMS)
def test_choices_with_the_search_fed_in(config):
    for nodes in NODES:
        assert assert_choices(fed_communicator(config, nodes), config, nodes) == 3


def test_the_oracles_are_whole():
    assert len(rows("tuning_vectors.csv")) == 2163
    assert len({(r["config"], r["nodes"], r["coll"]) for r in rows("choice_vectors.csv")}) == 390
