"""Sets of parameters: which explain residuals, and which of them cannot be separated."""

import numpy as np
import pytest

from netsim.measured.selection import (
    FittedSet,
    LinearModel,
    common_members,
    fitted_sets,
    plausible,
    score_of,
)

LOW, HIGH = np.full(4, -1.0), np.full(4, 1.0)
POINTS = np.linspace(0.0, 1.0, 12)
# Two parameters with a shape of their own, and two that do the same.
SLOPES = np.stack([1 - POINTS, POINTS**2, np.sin(6 * POINTS), np.sin(6 * POINTS)], axis=1)


def best_sets(*true: float) -> list[FittedSet]:
    line = LinearModel(-SLOPES @ np.array(true), SLOPES)
    return plausible(fitted_sets(line, range(4), LOW, HIGH))


@pytest.mark.parametrize(
    ("true", "members"),
    [((0.2, 0, 0, 0), (0,)), ((0, 0.2, 0, 0), (1,)), ((0.2, -0.3, 0, 0), (0, 1))],
)
def test_parameters_of_different_shapes_are_determined(
    true: tuple[float, ...], members: tuple[int, ...]
) -> None:
    sets = best_sets(*true)
    assert [one.members for one in sets] == [members]
    assert sets[0].x == pytest.approx(true, abs=0.01)


def test_parameters_of_the_same_shape_are_alternatives_and_the_rest_is_determined() -> None:
    sets = best_sets(0.2, 0, 0.3, 0)
    assert {one.members for one in sets} == {(0, 2), (0, 3)}
    assert common_members(sets) == (0,)


def test_nothing_is_fitted_to_residuals_that_rounding_makes() -> None:
    noise = np.random.default_rng(1).normal(scale=0.001, size=len(POINTS))
    sets = plausible(fitted_sets(LinearModel(noise, SLOPES), range(4), LOW, HIGH))
    assert [one.members for one in sets] == [()]


def test_another_parameter_must_explain_more_than_its_penalty() -> None:
    residuals = np.full(12, 0.02)
    nothing = np.zeros(4)
    scores = [score_of(residuals, nothing, count) for count in range(4)]
    assert scores == sorted(scores)
    assert score_of(residuals / 10, nothing, 1) < scores[0]
