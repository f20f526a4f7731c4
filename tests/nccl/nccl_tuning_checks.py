"""Comparison of one communicator's cost table and choices with the oracle files."""

import pytest

from netsim.nccl.communicator import Communicator
from netsim.nccl.facts import FUNCTIONS
from netsim.nccl.tuning import TunedCall, choose, cost_entry, timed_costs
from tests.nccl.nccl_oracles import rows_of


def assert_costs(comm: Communicator, config: str, nodes: int) -> int:
    expected = rows_of("tuning_vectors.csv", config, nodes)
    for row in expected:
        cost = cost_entry(comm, row["coll"], row["algo"], row["proto"])
        assert cost.disabled == "", row
        assert cost.latency_us == pytest.approx(float(row["lat_us"]), abs=0.0101), row
        assert cost.bandwidth == pytest.approx(float(row["algbw_GBps"]), abs=0.0101), row
    listed = {(row["coll"], row["algo"], row["proto"]) for row in expected}
    every = [
        one.cost for function in FUNCTIONS for one in timed_costs(comm, TunedCall(function, 8))
    ]
    able = [cost for cost in every if not cost.disabled and cost.bandwidth]
    assert {(cost.function, cost.algorithm, cost.protocol) for cost in able} == listed
    return len(expected)


def selection(comm: Communicator, function: str) -> list[tuple[int, str, str]]:
    """The winner at every power of two from 256 bytes, kept where it changes."""
    found: list[tuple[int, str, str]] = []
    for exponent in range(8, 33):
        choice = choose(comm, TunedCall(function, 2**exponent))
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
