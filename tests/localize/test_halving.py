"""Halving of groups of nodes: which nodes are slow, judged by tests of groups of them."""

from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from netsim.localize.halving import GroupResult, group_state, judged, next_groups

NOISE = 0.01
MODEL_ERROR = 0.1
EFFECT_ERROR = 0.1


def result_of(nodes: Sequence[int], deviation: float) -> GroupResult:
    """The result of a test of some nodes."""
    return GroupResult(frozenset(nodes), deviation, 0.0134, "all_reduce")


def halved(
    node_count: int, effects: Mapping[int, float], rng: np.random.Generator
) -> tuple[set[int], int, int]:
    """The nodes that halving finds, the number of tests and of rounds, for the effects of faulty
    nodes. Tests of one node count share an error of the simulation."""
    model_errors: dict[int, float] = {}
    results: list[GroupResult] = []
    slow_nodes: set[int] = set()
    groups: list[tuple[int, ...]] = [tuple(range(node_count))]
    round_count = 0
    while groups and round_count < 3 * node_count:
        round_count += 1
        for group in groups:
            error = model_errors.setdefault(len(group), rng.normal(0, MODEL_ERROR))
            effect = max((effects[node] for node in group if node in effects), default=0.0)
            effect *= 1 + rng.normal(0, EFFECT_ERROR)
            results.append(result_of(group, error + effect + rng.normal(0, NOISE)))
        alone = [nodes for nodes in group_state(results, set()).slow if len(nodes) == 1]
        slow_nodes = {node for nodes in alone for node in nodes}
        groups = next_groups(results, slow_nodes, range(node_count))
    return slow_nodes, len(results), round_count


def drawn_effects(node_count: int, count: int, rng: np.random.Generator) -> dict[int, float]:
    """Effects of some faulty nodes, each of at least 20 %."""
    nodes = rng.choice(node_count, count, replace=False).tolist()
    return {node: float(rng.uniform(np.log(1.2), 1.6)) for node in nodes}


@pytest.mark.parametrize(
    ("faulty_count", "least_right", "mean_tests"), [(0, 40, 4), (1, 39, 22), (2, 38, 33)]
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


def test_equal_halves_within_the_error_of_the_simulation_are_clear() -> None:
    results = [
        result_of(range(16), 0.1),
        result_of(range(8), 0.11),
        result_of(range(8, 16), 0.1),
    ]
    assert next_groups(results, set(), range(16)) == []


def test_the_slower_half_is_slow_whatever_the_simulation_is_off_by() -> None:
    fast = result_of(range(8), -0.2)
    slow = result_of(range(8, 16), 0.0)
    assert judged(slow, [fast, slow]) == "slow"
    assert judged(fast, [fast, slow]) == "clear"
