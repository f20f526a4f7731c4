"""The next test of `netsim localize`: it finds the faulty nodes in few tests."""

from math import exp

import numpy as np
import pytest

from netsim.cli.localize import localize
from netsim.cli.questions import QuestionOptions, source_of_question
from netsim.localize.effects import SuspectEffects
from netsim.localize.next_test import OTHERS, PLACE, expected_bits, place_probabilities
from netsim.localize.node_tests import HostTest, NodeTest, SizeQuestion, TimedTest
from netsim.localize.observed import ObservedTests
from netsim.localize.parts import Suspect
from netsim.localize.predictions import LARGE_NODES, Predictor
from tests.bench.localize_rounds import Injected, searched

NODES = 16
EVERYONE = NodeTest(tuple(range(NODES)), "all_reduce")
QUESTION = SizeQuestion(2**30)


@pytest.fixture(scope="module")
def predictor() -> Predictor:
    """Sixteen nodes with one GPU and one NIC each."""
    options = QuestionOptions(nodes=NODES, gpus_per_node=1, nics_per_node=1)
    source, _ = source_of_question("dgx-h100", "all_reduce", options)
    return Predictor(source, NODES)


def nic_of(node: int) -> Suspect:
    """The NIC of a node."""
    return Suspect("nic", f"node{node}.nic0", node, "nic0")


def slow_test(test: NodeTest, predictor: Predictor, ratio: float) -> HostTest:
    """A log of a test that takes a ratio of the healthy time."""
    hosts = tuple(f"host-{node:02d}" for node in test.nodes)
    times = {QUESTION: ratio * predictor.healthy(test, QUESTION)}
    return HostTest("log", hosts, test.collective, times)


def test_nodes_of_one_test_are_twins_until_another_test_separates_them(
    predictor: Predictor,
) -> None:
    times = {QUESTION: 1.0}
    half = NodeTest(tuple(range(8)), "all_gather")
    first = SuspectEffects(ObservedTests(predictor, [TimedTest("all", EVERYONE, times)]))
    slow_nodes = [Suspect("slow-node", f"node{node}", node) for node in range(NODES)]
    assert {first.twin_of(suspect) for suspect in slow_nodes} == {slow_nodes[0]}
    tests = [TimedTest("all", EVERYONE, times), TimedTest("half", half, times)]
    second = SuspectEffects(ObservedTests(predictor, tests))
    assert second.twin_of(slow_nodes[9]) == second.twin_of(slow_nodes[15])
    assert second.twin_of(slow_nodes[9]) != second.twin_of(slow_nodes[3])


def test_the_effect_on_a_stand_in_is_that_on_the_whole_test(predictor: Predictor) -> None:
    assert EVERYONE.node_count > LARGE_NODES
    for node, severity in ((5, 0.3), (11, 0.6)):
        exact = predictor.effect(EVERYONE, QUESTION, nic_of(node), severity)
        stand_in = predictor.effect(EVERYONE, QUESTION, nic_of(node), severity, exact=False)
        assert stand_in == pytest.approx(exact, rel=0.15)


@pytest.mark.slow
def test_a_slow_test_of_all_nodes_is_followed_by_tests_of_both_halves(
    predictor: Predictor,
) -> None:
    ratio = exp(predictor.effect(EVERYONE, QUESTION, nic_of(5), 0.3, exact=False))
    log = slow_test(EVERYONE, predictor, ratio)
    proposal = localize(predictor.source, [log], predictor=predictor).proposal
    assert proposal is not None
    assert proposal.purpose == PLACE
    assert [test.node_count for test in proposal.tests] == [NODES // 2, NODES // 2]
    assert set(proposal.test.nodes).isdisjoint(proposal.together[0].nodes)


@pytest.mark.slow
@pytest.mark.parametrize(
    "faults",
    [
        [(nic_of(5), 0.3)],
        pytest.param([(nic_of(5), 0.3), (nic_of(12), 0.5)], marks=pytest.mark.full),
    ],
)
def test_the_next_tests_name_all_faulty_nodes(predictor: Predictor, faults: list[Injected]) -> None:
    search = searched(predictor.source, predictor, faults, np.random.default_rng(1))
    assert search.is_right, search.words
    assert search.round_count <= search.bisection_count


@pytest.mark.slow
def test_nodes_that_were_only_tested_with_a_faulty_one_are_tested_without_it(
    predictor: Predictor,
) -> None:
    # Nodes 0 to 3 have no test without node 3, which hides whatever else is wrong with them.
    tests = []
    for nodes in ((0, 1, 2, 3), (3, 4), (4, 5), (4, 6)):
        test = NodeTest(nodes, "all_reduce")
        effect = predictor.effect(test, QUESTION, nic_of(3), 0.3)
        tests.append(slow_test(test, predictor, exp(effect)))
    result = localize(predictor.source, tests, predictor=predictor)
    places = place_probabilities(result.verdict.faults[0])
    assert max(places, key=lambda place: places[place]) == 3
    assert result.proposal is not None
    assert result.proposal.purpose == OTHERS
    assert result.proposal.test.nodes == (0, 1, 2)


def test_a_test_that_no_suspect_changes_tells_nothing() -> None:
    assert expected_bits(np.array([0.5, 0.5]), np.array([0.4, 0.4])) == pytest.approx(0)
    assert expected_bits(np.array([0.5, 0.5]), np.array([0.0, 0.4])) == pytest.approx(1, abs=0.01)
