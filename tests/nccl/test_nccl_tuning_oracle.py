"""The cost model and the choice against NCCL's own, with NCCL's own search results fed in."""

import pytest
from nccl_oracles import NODES, SYSTEMS, rows, rows_of

from netsim.nccl.channels import ChannelGraph
from netsim.nccl.communicator import Communicator
from netsim.nccl.tuning import Call, choose, cost_entry, cost_table


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
        multicast="nvls" in found,
    )


def assert_costs(comm: Communicator, config: str, nodes: int) -> int:
    expected = rows_of("tuning_vectors.csv", config, nodes)
    for row in expected:
        cost = cost_entry(comm, row["coll"], row["algo"], row["proto"])
        assert cost.disabled == "", row
        assert cost.latency_us == pytest.approx(float(row["lat_us"]), abs=0.0101), row
        assert cost.bandwidth == pytest.approx(float(row["algbw_GBps"]), abs=0.0101), row
    listed = {(row["coll"], row["algo"], row["proto"]) for row in expected}
    able = [cost for cost in cost_table(comm) if not cost.disabled and cost.bandwidth]
    assert {(cost.function, cost.algorithm, cost.protocol) for cost in able} == listed
    return len(expected)


def selection(comm: Communicator, function: str) -> list[tuple[int, str, str]]:
    """The winner at every power of two from 256 bytes, kept where it changes."""
    found: list[tuple[int, str, str]] = []
    for exponent in range(8, 33):
        choice = choose(comm, Call(function, 2**exponent))
        if not found or found[-1][1:] != (choice.algorithm, choice.protocol):
            found.append((2**exponent, choice.algorithm, choice.protocol))
    return found


def assert_choices(comm: Communicator, config: str, nodes: int) -> int:
    expected: dict[str, list[tuple[int, str, str]]] = {}
    for row in rows_of("choice_vectors.csv", config, nodes):
        step = (int(row["from_bytes"]), row["algo"], row["proto"])
        expected.setdefault(row["coll"], []).append(step)
    for function, steps in expected.items():
        assert selection(comm, function) == steps
    return len(expected)


@pytest.mark.parametrize("config", SYSTEMS)
def test_costs_with_the_search_fed_in(config):
    for nodes in NODES:
        assert assert_costs(fed_communicator(config, nodes), config, nodes)


@pytest.mark.parametrize("config", SYSTEMS)
def test_choices_with_the_search_fed_in(config):
    for nodes in NODES:
        assert assert_choices(fed_communicator(config, nodes), config, nodes) == 3


def test_the_oracles_are_whole():
    assert len(rows("tuning_vectors.csv")) == 2163
    assert len({(r["config"], r["nodes"], r["coll"]) for r in rows("choice_vectors.csv")}) == 390
