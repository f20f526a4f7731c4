"""Memory over a step: its peak is that of the closed form, and all of it is given back."""

import csv
from pathlib import Path

import numpy as np
import pytest

from netsim.plots.timeline import plot_memory
from netsim.training.resolve import memories
from netsim.training.run import (
    MOST_MOMENTS,
    _moments_to_write,
    held_over_time,
    write_memory_over_time,
)
from tests.training.steps import step


@pytest.mark.sample(3)
@pytest.mark.slow
@pytest.mark.parametrize("m", [2, 8])
@pytest.mark.parametrize("schedule", ["naive", "gpipe", "1f1b", "zb-h1"])
def test_the_peak_is_that_of_the_closed_form(schedule: str, m: int) -> None:
    rest = f"  parallelism: {{tp: 2, pp: 4, dp: 1}}\n  pipeline: {{schedule: {schedule}}}"
    one = step(rest, batch=m)
    for held, memory in zip(held_over_time(one), memories(one.resolved.setting), strict=True):
        assert held.peak == pytest.approx(memory.activations)
        assert held.constant + held.peak == pytest.approx(memory.total)
        assert held.activations[-1] == pytest.approx(0, abs=1)
        assert held.activations.min() >= -1
        assert (np.diff(held.seconds) >= 0).all()
        assert held.seconds[-1] == one.seconds


@pytest.mark.slow
def test_recomputation_keeps_inputs_and_needs_one_layer_more() -> None:
    rest = "  parallelism: {{tp: 2, pp: 4, dp: 1}}\n  recompute: {}"
    plain, again = (step(rest.format(kind), batch=8) for kind in ("none", "full"))
    for one, other in zip(held_over_time(again), held_over_time(plain), strict=True):
        assert one.peak < other.peak
        assert one.activations[-1] == pytest.approx(0, abs=1)


def test_few_moments_tell_the_course_of_many() -> None:
    course = np.random.default_rng(1).random(10 * MOST_MOMENTS)
    shown = _moments_to_write(course)
    assert len(shown) <= MOST_MOMENTS + 2
    assert course[shown].max() == course.max()
    assert course[shown].min() == course.min()
    assert shown[0] == 0 and shown[-1] == len(course) - 1  # noqa: PT018


@pytest.mark.slow
def test_the_file_and_its_picture(tmp_path: Path, pictures: None) -> None:
    one = step("  parallelism: {tp: 2, pp: 4, dp: 1}", batch=8)
    with write_memory_over_time(tmp_path, one).open() as file:
        rows = list(csv.DictReader(file))
    assert {row["stage"] for row in rows} == {"0", "1", "2", "3"}
    for stage, memory in enumerate(memories(one.resolved.setting)):
        mine = [float(row["bytes"]) for row in rows if row["stage"] == str(stage)]
        assert max(mine) == pytest.approx(memory.total)
    drawn = plot_memory(tmp_path / "memory_over_time.csv", tmp_path)
    assert [path.name for path in drawn] == ["memory.svg", "memory.png"]
    assert all(path.stat().st_size > 5_000 for path in drawn)
