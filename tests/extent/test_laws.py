"""Drawn extents keep what they state: a sample of `python -m tests.bench.laws`."""

import pytest

from netsim.extent.budget import USUAL_BUDGET
from tests.bench.laws import AXES, budget_of, drawn_task, law_of
from tests.extent.cells import NAMES_OF_THRESHOLDS

SEED = 1


@pytest.mark.slow
@pytest.mark.sample(3)
@pytest.mark.parametrize("first", range(0, 240, 8))
def test_answers_of_drawn_extents_are_off_by_no_more_than_twice_what_they_state(first: int) -> None:
    for number in range(first, first + 8):
        kept = law_of(SEED, number)
        if kept is not None and number not in ORDER_OF_SENDS_FLIPS:
            assert kept.ratio <= 2, f"draw {number}: off by {kept.off:.2%}: {kept.title}"


ORDER_OF_SENDS_FLIPS = {205}
"""Draws in which wide instants change the order of sends (docs/internals/extent.md)."""


def test_each_axis_forces_thresholds_that_there_are() -> None:
    for thresholds in AXES.values():
        assert thresholds.keys() <= NAMES_OF_THRESHOLDS


def test_the_same_number_draws_the_same_task() -> None:
    (one, _, axes), (other, _, same_axes) = drawn_task(SEED, 11), drawn_task(SEED, 11)
    assert (one, axes) == (other, same_axes)


def test_a_forced_axis_changes_only_its_thresholds() -> None:
    budget = budget_of(("hops",), USUAL_BUDGET)
    assert budget.thresholds.max_ring_rows == 0
    assert budget.with_thresholds(max_ring_rows=USUAL_BUDGET.thresholds.max_ring_rows) == (
        USUAL_BUDGET
    )
