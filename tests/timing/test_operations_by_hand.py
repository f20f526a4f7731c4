"""What few operations or loops tell of all, on series whose continuation is known."""

from dataclasses import replace

import numpy as np
import pytest

from netsim.timing.fits import LIMITS, TIMED, limits_of
from netsim.timing.ladder import _numbers
from netsim.timing.steady import (
    AGREE,
    extend,
    mean_timed,
    more_gained,
    onward,
    period_of,
    swing,
    unseen,
)


def ends_of(took: list[float], ranks: int = 3) -> np.ndarray:
    """When operations that take so long are over, by rank: the last rank ends last."""
    return np.cumsum(took)[:, None] - 0.1 * np.arange(ranks)[::-1]


@pytest.mark.parametrize("run", [2, 3, 8, TIMED])
def test_the_mean_is_from_the_first_launch_to_the_last_end(run: int) -> None:
    took = [5.0] + [3.0] * (TIMED - 1)
    assert mean_timed(ends_of(took[:run])) == pytest.approx(sum(took) / TIMED)


def test_operations_that_were_not_run_take_as_long_as_the_last_half() -> None:
    mean = (5 + 3 + 4 + 3.5 * (TIMED - 3)) / TIMED
    assert mean_timed(ends_of([5.0, 3.0, 4.0])) == pytest.approx(mean)
    took = [9.0, 3.0, 7.0, 4.0, 2.0, 6.0]
    assert mean_timed(ends_of(took)) == pytest.approx((31 + 4 * (TIMED - 6)) / TIMED)


def test_those_that_were_not_run_may_differ_as_those_do_that_were() -> None:
    late = (TIMED - 4) / TIMED * 0.06 / 4
    assert unseen(ends_of([9.0, 3.0, 3.0, 3.0])) == pytest.approx(late)
    # The mean of 2, and that of the 16 others, which deviate as 3 do: at odds of 98 in 100.
    apart = 0.2 / 3.2 * np.sqrt(1 / 2 + 1 / 16)
    told = (TIMED - 4) / TIMED * (2.33 + 4.0 / 2) * apart
    assert unseen(ends_of([9.0, 3.0, 3.4, 3.2])) == pytest.approx(told + late)
    assert unseen(ends_of([2.0, 3.0] * (TIMED // 2)), 0.5) == 0.0  # all were run


def test_those_that_were_not_run_may_differ_whatever_those_show_that_were() -> None:
    even = [unseen(ends_of([9.0] + [3.0] * more)) for more in (2, 5, 11)]
    assert even == pytest.approx([0.017, 0.007, 0.002])
    # Ranks that end early by a half get ahead by a half, in half of the operations.
    assert unseen(ends_of([9.0, 3.0, 3.0]), 0.5) == pytest.approx(17 / 20 * 0.5 * 0.5 * 0.5)


def test_a_little_may_move_the_mean_by_half_of_what_operations_differ() -> None:
    assert swing(ends_of([9.0, 3.0, 4.0, 5.0])) == pytest.approx(0.25)


def test_more_operations_are_run_while_their_rows_are_few() -> None:
    limits = replace(LIMITS, in_a_row=(3, 8, 20), most=3_000, repeated=1_000)
    told = {rows: _numbers(rows, limits) for rows in (10, 50, 51, 125, 126, 300, 1000, 1001)}
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
    assert _numbers(0, limits) == [3, 8, 20]


def test_what_operations_overlap_grows_with_loops_as_it_did() -> None:
    straight = {loops: 2.0 + 0.5 * loops for loops in (4, 8, 16)}
    more, off = more_gained(straight, 50)
    assert more == pytest.approx(0.5 * (50 - 16))
    assert off == pytest.approx(abs(more))
    # Of slopes 1 and -3 the last one goes on, and the steepest says how far it may be off.
    assert more_gained({1: 0.0, 2: 1.0, 4: -5.0}, 10) == (-18.0, 18.0)
    assert more_gained({1: 0.0, 2: 4.0, 4: 5.0}, 10) == (3.0, 24.0)


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
            assert found == pytest.approx(cycle.mean())
        else:
            assert found is None or found == pytest.approx(cycle.mean())


def test_ranks_that_drift_apart_have_no_period() -> None:
    ends = np.cumsum(np.ones((8, 2)), axis=0) * [1.0, 1.0 + 10 * AGREE]
    assert period_of(ends) is None
    assert period_of(np.cumsum(np.ones((8, 2)), axis=0)) == pytest.approx(1.0)


def test_where_operations_are_apart_once_is_enough() -> None:
    ends = ends_of([5.0, 3.0])
    assert period_of(ends) is None
    assert period_of(ends_of([5.0, 3.0, 3.0]), apart=True) == pytest.approx(3.0)


def test_a_part_that_was_not_the_last_may_come_up_but_not_overtake() -> None:
    ends = np.array([10.0, 9.0])
    assert onward(ends, np.array([1.0, 2.5]), 0.0) is None
    found = onward(ends, np.array([1.0, 2.0]), 0.01)
    assert found.seconds == 11.0
    assert found.off == pytest.approx(0.01 * 2.0 / 11.0)


def test_increments_are_weighted_by_how_many_they_stand_for() -> None:
    ends = {2: 10.0, 3: 11.0, 7: 15.04, 1: 9.0}
    found = extend(lambda n: ends[n], 17, [(3, 7), (2, 3)], tolerated=0.02)
    each = (4 * 1.01 + 1 * 1.0) / 5
    assert found.seconds == pytest.approx(15.04 + 10 * each)
    assert found.off == pytest.approx((0.01 / 1.01) * 10 * each / found.seconds)
    assert extend(lambda n: ends[n], 17, [(3, 7), (2, 3)]) is None
    assert extend(lambda n: -float(n), 17, [(3, 7), (2, 3)]) is None
    assert extend(lambda n: 1.0, 17, [(3, 7), (2, 3)]) is None


def test_exact_limits_leave_nothing_out() -> None:
    assert limits_of(exact=False) is LIMITS
    exact = limits_of(exact=True)
    assert exact.exact
    assert {exact.rows, exact.rings, exact.most, exact.repeated, exact.restless, exact.uneven} == {
        np.inf
    }
    assert _numbers(10**12, exact) == [3, 8, 20]
    steps = limits_of(exact=False, step=True)
    assert replace(steps, folded=0) == LIMITS
    assert steps.folded > 0
