"""Halving of groups of nodes: which nodes are slow, judged by tests of groups of them."""

import numpy as np
import pytest

from netsim.localize.halving import has_contrast, judged, next_groups
from tests.bench.localize_halving import drawn_effects, equal_effects, halved, result_of


@pytest.mark.parametrize(
    ("faulty_count", "least_right", "mean_tests"), [(0, 40, 6), (1, 39, 22), (2, 38, 33)]
)
def test_halving_finds_all_faulty_nodes_of_232(
    faulty_count: int, least_right: int, mean_tests: int
) -> None:
    rng = np.random.default_rng(1)
    right_count = 0
    test_counts = []
    for _ in range(40):
        effects = drawn_effects(232, faulty_count, rng)
        slow_nodes, test_count, _ = halved(232, effects, rng)
        right_count += slow_nodes == set(effects)
        test_counts.append(test_count)
    assert np.mean(test_counts) <= mean_tests
    assert right_count >= least_right


def test_equally_slow_tests_have_no_contrast() -> None:
    quarters = [result_of(range(first, first + 4), 0.7) for first in (0, 4, 8)]
    assert not has_contrast(quarters)
    assert has_contrast([*quarters, result_of(range(12, 16), 0.8)])


def test_halves_of_one_round_have_no_node_in_common() -> None:
    results = [result_of(range(15), 0.5), result_of(range(8, 16), 0.5), result_of(range(8), 0.0)]
    groups = next_groups(results, set(), range(16))
    nodes = [node for group in groups for node in group]
    assert len(groups) == 2
    assert len(set(nodes)) == len(nodes)
    assert {len(group) for group in groups} == {4}


def test_a_mild_first_test_is_followed_by_tests_of_both_halves() -> None:
    groups = next_groups([result_of(range(16), 0.1)], set(), range(16))
    assert groups == [tuple(range(8)), tuple(range(8, 16))]


EQUAL_HALVES = [
    result_of(range(16), 0.1),
    result_of(range(8), 0.11),
    result_of(range(8, 16), 0.1),
]


def test_equally_slow_halves_are_followed_by_their_quarters() -> None:
    groups = next_groups(EQUAL_HALVES, set(), range(16))
    assert groups == [tuple(range(first, first + 4)) for first in (0, 4, 8, 12)]


def test_equal_quarters_within_the_error_of_the_simulation_are_clear() -> None:
    quarters = [result_of(range(first, first + 4), 0.09) for first in (0, 4, 8, 12)]
    assert next_groups([*EQUAL_HALVES, *quarters], set(), range(16)) == []


def test_two_equal_faults_that_are_smaller_than_the_error_of_the_simulation_are_found() -> None:
    rng = np.random.default_rng(1)
    right_count = 0
    for _ in range(40):
        effects = equal_effects(232, 0.1, rng)
        slow_nodes, _, _ = halved(232, effects, rng)
        right_count += slow_nodes == set(effects)
    assert right_count >= 32


def test_the_slower_half_is_slow_whatever_the_simulation_is_off_by() -> None:
    fast = result_of(range(8), -0.2)
    slow = result_of(range(8, 16), 0.0)
    assert judged(slow, [fast, slow]) == "slow"
    assert judged(fast, [fast, slow]) == "clear"
