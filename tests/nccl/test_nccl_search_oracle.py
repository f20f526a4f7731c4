"""The channel search against NCCL's own results on 26 systems and 1 to 16 nodes."""

import pytest

from tests.nccl.nccl_nodes import node_of, searched_communicator
from tests.nccl.nccl_oracles import NODES, SYSTEMS, rows, rows_of
from tests.nccl.nccl_tuning_checks import assert_choices, assert_costs

# Rows that this search does not reproduce, each with its reason. There are none: all 295 agree in
# every column, pattern, crossNic and sameChannels included.
EXCEPTIONS: dict[tuple[str, str], str] = {}


@pytest.mark.sample(5)
@pytest.mark.slow
@pytest.mark.parametrize("config", SYSTEMS)
def test_every_column_of_every_graph(config):
    for nodes in NODES:
        node = node_of(config, networked=nodes > 1)
        comm = searched_communicator(config, nodes)
        for row in rows_of("search_results.csv", config, nodes):
            graph = getattr(node, row["graph"])
            found = {
                "pattern": str(graph.pattern),
                "crossNic": str(graph.cross_nic),
                "nChannels": str(graph.n_channels),
                "bwIntra": f"{graph.bw_intra:.2f}",
                "bwInter": f"{graph.bw_inter:.2f}",
                "typeIntra": graph.type_intra,
                "typeInter": graph.type_inter,
                "sameChannels": str(int(graph.same_channels)),
                "collChannels": str(comm.n_channels),
            }
            assert found == {key: row[key] for key in found}, (config, nodes, row["graph"])
            assert len(graph.channels) == graph.n_channels


def test_nothing_was_left_out():
    assert len(rows("search_results.csv")) == 295
    assert {row["config"] for row in rows("search_results.csv")} == set(SYSTEMS)
    assert not EXCEPTIONS


@pytest.mark.slow
@pytest.mark.parametrize("config", SYSTEMS)
def test_costs_from_our_own_search(config):
    for nodes in NODES:
        assert assert_costs(searched_communicator(config, nodes), config, nodes)


@pytest.mark.sample(19)
@pytest.mark.slow
@pytest.mark.parametrize("config", SYSTEMS)
def test_choices_from_our_own_search(config):
    for nodes in NODES:
        assert assert_choices(searched_communicator(config, nodes), config, nodes) == 3
