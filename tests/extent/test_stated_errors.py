"""Drawn extents keep what they state: a sample of `python -m tests.bench.laws`."""

from types import SimpleNamespace

import numpy as np
import pytest

from netsim.extent.budget import USUAL_BUDGET
from netsim.extent.result import OneOperation
from netsim.schedule.repeat import Launch
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


@pytest.mark.parametrize(("utilisation", "idle"), [(0.25, 0.75), (1.0, 0.0), (1.13, 0.0)])
def test_a_link_that_needs_longer_than_an_approximate_time_is_never_idle(
    utilisation: float, idle: float
) -> None:
    """Rates that are solved less often may give a time below what the busiest link needs; a
    negative idle fraction would then be taken from the stated error."""
    use = SimpleNamespace(utilisation=np.array([0.1, utilisation]))
    operation = OneOperation(run=None, ends=np.array([1.0, 2.0]), use=use)
    assert operation.idle_fraction(Launch(0.0, 0.0)) == pytest.approx(idle)
