"""Tuner tables: what they override, and what is wrong with them."""

import re
from dataclasses import replace

import pytest

from netsim.base.errors import ScenarioError
from netsim.nccl.communicator import Communicator, TunerRule
from netsim.nccl.tuning import TunedCall, choose, launch, parse_tuner, tuner_text
from tests.nccl.nccl_nodes import searched_communicator

TABLE = """
# collective,min,max,algorithm,protocol,channels,nodes,ranks,pipe_ops,registered
allreduce,0,65536,tree,ll,4,-1,-1,-1,-1
allreduce,65537,1048576,nvls_tree,simple,-1,1,8
allreduce,65537,1048576,ring,ll128,8,4,32
allgather,0,4294967295,ring,simple,16,-1,-1
"""


def test_tables_are_read():
    rules = parse_tuner(TABLE)
    assert rules[0] == TunerRule("AllReduce", 0, 65536, "Tree", "LL", 4)
    assert rules[1] == TunerRule("AllReduce", 65537, 2**20, "NVLSTree", "Simple", None, 1, 8)


def tuned(config: str, nodes: int, text: str = TABLE) -> Communicator:
    return replace(searched_communicator(config, nodes), tuner=parse_tuner(text))


def test_the_first_line_that_fits_overrides_the_choice():
    comm = tuned("h100_8nic", 4)
    for nbytes, wanted in ((4096, ("Tree", "LL", 4)), (2**20, ("Ring", "LL128", 8))):
        choice = choose(comm, TunedCall("AllReduce", nbytes))
        assert (choice.algorithm, choice.protocol, choice.n_channels) == wanted
        assert choice.tuned


def test_nccl_chooses_where_no_line_fits_or_the_line_cannot_run():
    for nodes, call in ((4, TunedCall("AllReduce", 2**30)), (1, TunedCall("AllReduce", 2**20))):
        plain = searched_communicator("h100_8nic", nodes)
        assert choose(replace(plain, tuner=parse_tuner(TABLE)), call) == choose(plain, call)


def test_lines_may_ask_for_registered_buffers_or_grouped_calls():
    comm = tuned("h100_8nic", 1, "allreduce,0,99999,tree,ll,-1,-1,-1,1,1")
    assert not choose(comm, TunedCall("AllReduce", 4096)).tuned
    assert not choose(comm, TunedCall("AllReduce", 4096, n_pipe_ops=2, registered=True)).tuned
    assert choose(comm, TunedCall("AllReduce", 4096, registered=True)).tuned


def test_a_tuner_has_no_more_channels_than_there_are():
    comm = tuned("h100_8nic", 4)
    assert launch(comm, 2**30, "Ring", "Simple", 8).n_channels == 8
    assert launch(comm, 2**30, "Ring", "Simple", 500).n_channels == comm.n_channels
    assert launch(comm, 8, "Ring", "Simple", 3).n_channels == 3
    assert launch(comm, 8, "Ring", "Simple").n_channels == 1


def test_tables_are_written_as_they_are_read():
    rules = parse_tuner(TABLE)
    text = tuner_text(rules)
    assert parse_tuner(text) == rules
    assert text.splitlines()[2] == "allreduce,65537,1048576,nvls_tree,simple,-1,1,8"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("allreduce,0,1", "t.csv:1: expected 8 to 10 columns, got 3"),
        (
            "allreduse,0,1,ring,ll,-1,-1,-1",
            "t.csv:1: collective: expected one of Broadcast, Reduce, AllGather, ReduceScatter, "
            "AllReduce, got 'allreduse' (did you mean AllReduce?)",
        ),
        (
            "allreduce,0,1,ring,ll1,-1,-1,-1",
            "t.csv:1: protocol: expected one of LL, LL128, Simple, got 'll1' (did you mean LL?)",
        ),
        (
            "allreduce,zero,1,ring,ll,-1,-1,-1",
            "t.csv:1: min_bytes: expected a whole number, got 'zero'",
        ),
        ("allreduce,0,1,ring,ll,-2,-1,-1", "t.csv:1: channels: expected a whole number, got '-2'"),
    ],
)
def test_mistakes_are_named(line, message):
    with pytest.raises(ScenarioError, match=f"^{re.escape(message)}$"):
        parse_tuner(line, "t.csv")
