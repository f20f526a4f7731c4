"""The noise model of `netsim localize`: what many equal tests show about a fault of all of them."""

import numpy as np
import pytest

from netsim.localize.evidence import FAULT_SPREAD, Evidence, Observations

TEST_COUNT = 80
EFFECT = 0.33


def observed(deviation: float, slow_count: int = TEST_COUNT) -> Observations:
    """Equal tests, of which the first `slow_count` deviate, with 1 % of noise."""
    rng = np.random.default_rng(1)
    deviations = rng.normal(0, 0.01, TEST_COUNT)
    deviations[:slow_count] += deviation
    numbers = np.arange(TEST_COUNT)
    return Observations(
        deviations,
        numbers,
        np.zeros(TEST_COUNT, dtype=np.int64),
        np.zeros(TEST_COUNT, dtype=bool),
        np.zeros(1, dtype=bool),
    )


def score(observations: Observations, effect: float, slow_count: int = TEST_COUNT) -> float:
    """The log evidence of an effect on the first tests against none."""
    evidence = Evidence(observations, np.zeros(TEST_COUNT))
    effects = np.zeros((1, TEST_COUNT))
    effects[:, :slow_count] = effect
    ratios = evidence.ratios(np.arange(TEST_COUNT), effects)
    return float(evidence.mixed(ratios)[0] - evidence.total)


@pytest.mark.parametrize("slow_count", [TEST_COUNT, TEST_COUNT // 4])
def test_a_fault_that_makes_many_tests_equally_slower_is_more_probable_than_none(
    slow_count: int,
) -> None:
    observations = observed(EFFECT, slow_count)
    exact = score(observations, EFFECT, slow_count)
    assert exact > 3
    # The predictions are off by one standard deviation, on all tests alike.
    assert score(observations, EFFECT * (1 + FAULT_SPREAD), slow_count) > exact - 4


def test_a_fault_of_healthy_tests_is_less_probable_than_none() -> None:
    assert score(observed(0.0), EFFECT) < -3


def test_the_evidence_of_a_baseline_is_that_of_the_same_effects_as_a_hypothesis() -> None:
    observations = observed(EFFECT, TEST_COUNT // 4)
    baseline = np.zeros(TEST_COUNT)
    baseline[: TEST_COUNT // 4] = EFFECT
    difference = Evidence(observations, baseline).total
    difference -= Evidence(observations, np.zeros(TEST_COUNT)).total
    assert difference == pytest.approx(score(observations, EFFECT, TEST_COUNT // 4), abs=1e-6)
