"""The same version of the model gives the same figures."""

import pytest

from netsim.base.startup import MODEL_VERSION
from tests import figures

QUESTIONS = figures.questions()


@pytest.mark.sample(3)
@pytest.mark.slow
@pytest.mark.parametrize("name", QUESTIONS)
def test_no_figure_moves_unseen(name: str) -> None:
    before = {key: value for key, value in figures.written().items() if key[0] == name}
    moved = figures.moved(before, figures.answered(name, QUESTIONS[name]))
    assert not moved, f"{len(moved)} figures; see python -m tests.figures\n" + "\n".join(moved[:9])


def test_figures_are_of_this_version_and_of_all_questions() -> None:
    assert figures.version() == MODEL_VERSION
    assert {key[0] for key in figures.written()} == set(QUESTIONS)


def test_a_figure_that_moves_is_told() -> None:
    before = {("q", "8", "time_us"): "1.5", ("q", "8", "algorithm"): "RING"}
    now = {("q", "8", "time_us"): "1.5000003", ("q", "8", "algorithm"): "TREE"}
    assert figures.moved(before, now) == [
        "q: 8: algorithm: RING -> TREE",
        "q: 8: time_us: 1.5 -> 1.5000003",
    ]
    assert not figures.moved({("q", "", "x"): "1"}, {("q", "", "x"): "1.00000001"})
