"""What few operations or loops tell of all, on series whose continuation is known."""

from types import SimpleNamespace

import numpy as np
import pytest

from netsim.extent.back_to_back import (
    DRIFT,
    Clock,
    error_of_estimate,
    estimated_finish_time,
    half_range_of_durations,
    last_of_equal,
    period_of,
)
from netsim.extent.budget import USUAL_BUDGET, Budget, budget_for
from netsim.extent.finish_times import operation_counts
from netsim.extent.steady_state import (
    AGREE,
    extrapolate_increments,
    extrapolate_overlap,
    later_ends,
)
from netsim.schedule.repeat import BackToBack
from tests.extent.cells import budget_with

TIMED = 20


def numbers(rows: int, limits: Budget, iterations: int = TIMED) -> list[int]:
    """How many operations of a collective of so many rows are run, one number after the other."""
    given = SimpleNamespace(budget=limits, form=SimpleNamespace(iterations=iterations))
    return operation_counts(rows, given)


def ends_of(took: list[float], ranks: int = 3) -> np.ndarray:
    """When operations that take so long are over, by rank: the last rank ends last."""
    return np.cumsum(took)[:, None] - 0.1 * np.arange(ranks)[::-1]


def test_a_process_ends_with_the_last_of_its_gpus() -> None:
    ends = np.array([[1.0, 5.0, 2.0, 3.0], [7.0, 6.0, 9.0, 8.0]])
    two = Clock(BackToBack(2), np.array([0, 0, 1, 1]))
    assert two.over(ends).tolist() == [(5 + 3) / 2, (7 + 9) / 2]
    assert (two.seconds(ends[-1]), two.slowest(ends[-1])) == (4.0, 4.5)
    each = Clock(BackToBack(2), np.arange(4))
    assert each.over(ends[-1]) == 7.5
    for which, over in (("first", 7.0), ("min", 6.0), ("max", 9.0)):
        assert Clock(BackToBack(2, which), np.arange(4)).over(ends[-1]) == over
    # Ranks that take part may be some of a process, and none of another.
    some = Clock(BackToBack(2), np.array([0, 2, 2]))
    assert some.over(ends[-1][:3]) == (7 + 9) / 2


@pytest.mark.parametrize("run", [3, 8, TIMED])
def test_operations_that_are_alike_are_told_from_a_few(run: int) -> None:
    took = [5.0] + [3.0] * (TIMED - 1)
    last = last_of_equal(ends_of(took[:run]), TIMED)
    assert last == pytest.approx(ends_of(took)[-1])


@pytest.mark.parametrize("iterations", [20, 21, 22, 23, 57])
def test_operations_that_come_in_turns_are_told_at_the_same_place_of_a_turn(
    iterations: int,
) -> None:
    """Three kinds of operations in turn, after two that are like none of them."""
    took = [9.0, 7.0, *[3.0, 5.0, 4.0] * 30]
    last = last_of_equal(ends_of(took[:12]), iterations)
    assert last == pytest.approx(ends_of(took)[iterations - 1])


def test_operations_that_were_not_run_take_as_long_as_the_last_half() -> None:
    def over(took: list[float]) -> np.ndarray:
        return np.cumsum(took)

    assert estimated_finish_time(over([5.0, 3.0, 4.0]), TIMED) == pytest.approx(
        5 + 3 + 4 + 3.5 * (TIMED - 3)
    )
    took = [9.0, 3.0, 7.0, 4.0, 2.0, 6.0]
    assert estimated_finish_time(over(took), TIMED) == pytest.approx(31 + 4 * (TIMED - 6))
    assert estimated_finish_time(over(took), 4) == 9 + 3 + 7 + 4


def doubt(took: list[float], early: float = 0.0) -> float:
    """The doubt of an estimate from operations that take so long."""
    return error_of_estimate(np.cumsum(took), TIMED, early)


def test_those_that_were_not_run_may_differ_as_those_do_that_were() -> None:
    late = (TIMED - 4) / TIMED * 3 * DRIFT / 4
    assert doubt([9.0, 3.0, 3.0, 3.0]) == pytest.approx(late)
    # The mean of 2, and that of the 16 others, which deviate as 3 do: at odds of 98 in 100.
    apart = 0.2 / 3.2 * np.sqrt(1 / 2 + 1 / 16)
    told = (TIMED - 4) / TIMED * (2.33 + 4.0 / 2) * apart
    assert doubt([9.0, 3.0, 3.4, 3.2]) == pytest.approx(told + late)
    assert doubt([2.0, 3.0] * (TIMED // 2), 0.5) == 0.0  # all were run


def test_those_that_were_not_run_may_differ_whatever_those_show_that_were() -> None:
    even = [doubt([9.0] + [3.0] * more) for more in (2, 5, 11)]
    assert even == pytest.approx([0.85 * DRIFT, 0.35 * DRIFT, 0.1 * DRIFT])
    # Ranks that end early by a half get ahead by a half, in half of the operations.
    assert doubt([9.0, 3.0, 3.0], 0.5) == pytest.approx(17 / 20 * 0.5 * 0.5 * 0.5)


def test_a_little_may_move_the_mean_by_half_of_what_operations_differ() -> None:
    assert half_range_of_durations(np.cumsum([9.0, 3.0, 4.0, 5.0])) == pytest.approx(0.25)


def test_more_operations_are_run_while_their_rows_are_few() -> None:
    limits = budget_with(
        USUAL_BUDGET,
        operation_counts=(3, 8),
        max_rows_of_fewest_operations=3_000,
        max_rows_of_loop_run=3000,
        max_rows_of_few_operations=1_000,
        min_rows_for_pace=1000,
    )
    told = {rows: numbers(rows, limits) for rows in (10, 50, 51, 125, 126, 300, 1000, 1001)}
    assert told == {
        10: [3, 8, 20],
        50: [3, 8, 20],
        51: [3, 8],
        125: [3, 8],
        126: [3],
        300: [3],
        1000: [3],
        1001: [],
    }
    assert numbers(0, limits) == [3, 8, 20]
    for iterations, told in ((1, [1]), (3, [3]), (5, [3, 5]), (100, [3, 8, 100])):
        assert (
            numbers(
                10,
                budget_with(limits, max_rows_of_few_operations=1e9, min_rows_for_pace=1000000000.0),
                iterations,
            )
            == told
        )


def test_what_operations_overlap_grows_with_loops_as_it_did() -> None:
    straight = {loops: 2.0 + 0.5 * loops for loops in (4, 8, 16)}
    more, off = extrapolate_overlap(straight, 50)
    assert more == pytest.approx(0.5 * (50 - 16))
    assert off == pytest.approx(abs(more))
    # Of slopes 1 and -3 the last one goes on, and the steepest says how far it may be off.
    assert extrapolate_overlap({1: 0.0, 2: 1.0, 4: -5.0}, 10) == (-18.0, 18.0)
    assert extrapolate_overlap({1: 0.0, 2: 4.0, 4: 5.0}, 10) == (3.0, 24.0)


@pytest.mark.parametrize("period", [1, 2, 3])
@pytest.mark.parametrize("first", [0, 1, 2])
def test_a_period_is_what_repeats_twice(period: int, first: int) -> None:
    rng = np.random.default_rng(10 * period + first)
    cycle = rng.uniform(1, 2, period)
    enough = 2 * period + 2 + first
    for count in range(2, enough + 2):
        took = [*rng.uniform(3, 4, first), *np.tile(cycle, 20)][:count]
        found = period_of(ends_of(took))
        if count > first + 3 * period:
            assert found == (period, pytest.approx(cycle.mean()))
        else:
            assert found is None or found[1] == pytest.approx(cycle.mean())


def test_ranks_that_drift_apart_have_no_period() -> None:
    ends = np.cumsum(np.ones((8, 2)), axis=0) * [1.0, 1.0 + 10 * AGREE]
    assert period_of(ends) is None
    assert period_of(np.cumsum(np.ones((8, 2)), axis=0)) == (1, pytest.approx(1.0))


def test_where_operations_are_apart_once_is_enough() -> None:
    ends = ends_of([5.0, 3.0])
    assert period_of(ends) is None
    assert period_of(ends_of([5.0, 3.0, 3.0]), apart=True) == (1, pytest.approx(3.0))


def test_a_part_that_was_not_the_last_may_come_up_but_not_overtake() -> None:
    ends = np.array([10.0, 9.0])
    assert later_ends(ends, np.array([1.0, 2.5]), 0.0) is None
    found = later_ends(ends, np.array([1.0, 2.0]), 0.01)
    assert found.seconds == 11.0
    assert found.uncertainty == pytest.approx(0.01 * 2.0 / 11.0)


def test_increments_are_weighted_by_how_many_they_stand_for() -> None:
    ends = {2: 10.0, 3: 11.0, 7: 15.04, 1: 9.0}
    found = extrapolate_increments(lambda n: ends[n], 17, [(3, 7), (2, 3)], tolerance=0.02)
    each = (4 * 1.01 + 1 * 1.0) / 5
    assert found.seconds == pytest.approx(15.04 + 10 * each)
    assert found.uncertainty == pytest.approx((0.01 / 1.01) * 10 * each / found.seconds)
    assert extrapolate_increments(lambda n: ends[n], 17, [(3, 7), (2, 3)]) is None
    assert extrapolate_increments(lambda n: -float(n), 17, [(3, 7), (2, 3)]) is None
    assert extrapolate_increments(lambda n: 1.0, 17, [(3, 7), (2, 3)]) is None


def test_exact_limits_leave_nothing_out() -> None:
    assert budget_for(is_exact=False) is USUAL_BUDGET
    exact = budget_for(is_exact=True)
    assert exact.is_exact
    assert {
        exact.thresholds.max_rows_in_full,
        exact.thresholds.max_ring_rows,
        exact.thresholds.max_rows_of_fewest_operations,
        exact.thresholds.max_rows_of_few_operations,
        exact.thresholds.max_rows_of_several_operations,
        exact.thresholds.max_rows_of_all_operations,
    } == {np.inf}
    assert numbers(10**12, exact) == [3, 8, 20]
    steps = budget_for(is_exact=False, is_step=True)
    assert budget_with(steps, min_folded_ring_rows=0) == USUAL_BUDGET
    assert steps.thresholds.min_folded_ring_rows > 0
