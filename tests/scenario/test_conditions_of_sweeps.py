"""Conditions on the cells of a sweep hold where Python says so."""

from itertools import product

import pytest

from netsim.scenario.sweep import parse_condition

TEXTS = (
    "a == 1 or b == 2",
    "a == 1 and b == 2",
    "not a == 1",
    "a < b or not b <= 1",
    "a == 1 or a == 2 or b == 3",
    "a in [1, 3] and b != 2",
    "a * b > 3",
    "1 < a <= b",
)


@pytest.mark.parametrize("text", TEXTS)
def test_a_condition_holds_where_python_says_so(text: str) -> None:
    condition = parse_condition(text, ("sweep", "only"))
    for a, b in product((1, 2, 3), repeat=2):
        values = {"a": a, "b": b}
        assert condition.holds(values.__getitem__) == eval(text, {}, values)
    assert set(condition.names) <= {"a", "b"}


def test_a_number_as_it_was_written_is_compared_as_a_number() -> None:
    condition = parse_condition("nccl.version > 2.19", ("sweep", "only"))
    assert condition.holds(lambda _: "2.20")
    assert not condition.holds(lambda _: "2.18")
    rate = parse_condition("nic >= '200Gbps'", ("sweep", "only"))
    assert rate.holds(lambda _: "25GB/s")
