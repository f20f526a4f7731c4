"""Tuner tables: what they override, and what is wrong with them."""

import re

import pytest
from nccl_nodes import searched_communicator

from netsim.errors import ScenarioError
from netsim.nccl.tuner import TunerRule, choose_tuned, parse_tuner
from netsim.nccl.tuning import Call, choose

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


def test_the_first_line_that_fits_overrides_the_choice():
    comm, rules = searched_communicator("h100_8nic", 4), parse_tuner(TABLE)
    choice, channels = choose_tuned(comm, Call("AllReduce", 4096), rules)
    assert (choice.algorithm, choice.protocol, channels) == ("Tree", "LL", 4)
    choice, channels = choose_tuned(comm, Call("AllReduce", 2**20), rules)
    assert (choice.algorithm, choice.protocol, channels) == ("Ring", "LL128", 8)


def test_nccl_chooses_where_no_line_fits_or_the_line_cannot_run():
    rules = parse_tuner(TABLE)
    for nodes, call in ((4, Call("AllReduce", 2**30)), (1, Call("AllReduce", 2**20))):
        comm = searched_communicator("h100_8nic", nodes)
        assert choose_tuned(comm, call, rules) == (choose(comm, call), None)


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
        (
            "allreduce,0,1,ring,ll,-2,-1,-1",
            "t.csv:1: channels: expected a whole number, got '-2'",
        ),
    ],
)
def test_mistakes_are_named(line, message):
    with pytest.raises(ScenarioError, match=f"^{re.escape(message)}$"):
        parse_tuner(line, "t.csv")
