"""Stages of unequal layers: who has which, what fits, what they keep."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netsim.base.errors import InputError
from netsim.workloads.memory import memory_of
from netsim.workloads.model import layers_of
from netsim.workloads.step import training_step
from tests.training.steps import SMALL, cell, setting, step


@given(st.lists(st.integers(1, 4), min_size=2, max_size=6), st.integers(1, 3))
def test_every_layer_is_in_the_stage_that_was_said(parts: list[int], chunks: int) -> None:
    counts = parts * chunks
    model = SMALL.__class__(**{**SMALL.__dict__, "layers": sum(counts)})
    s = setting(pp=len(parts), chunks=chunks, model=model, stage_layers=tuple(counts))
    found = s.stages()
    blocks = [
        [layer for layer in found[k % len(parts)][k // len(parts)] if layer.kind == "block"]
        for k in range(len(counts))
    ]
    assert [len(one) for one in blocks] == counts
    assert [layer for one in blocks for layer in one] == list(layers_of(model)[1:-1])
    assert found[0][0][0].kind == "embedding"
    assert found[-1][-1][-1].kind == "head"


def test_first_and_last_stage_carry_embedding_and_head() -> None:
    """By default blocks are even, so the ends take longer and hold more."""
    s = setting(pp=4, batch=4)
    busy = [0.0] * 4
    for task in training_step(s).entries:
        if not task.collective and task.phase != "step":
            busy[int(task.groups[0, 0])] += task.seconds
    assert busy[0] > busy[1] == pytest.approx(busy[2])
    assert busy[3] > busy[0]
    table = SMALL.vocabulary * SMALL.hidden
    weights = [memory_of(s, stage).weights for stage in range(4)]
    assert weights[0] - weights[1] == pytest.approx(2 * table)
    assert weights[3] - weights[1] == pytest.approx(2 * (table + SMALL.hidden))


@pytest.mark.slow
def test_fewer_layers_with_the_head_make_the_step_shorter() -> None:
    """Where kernels and their launches cost nothing beside the work, as in large models."""
    rest, launch = (
        "  parallelism: {pp: 4, dp: 1}\n  compute: {kernel: 0us}\n",
        "launch: {host: 0us}",
    )
    even = step(f"{rest}{launch}", batch=16, gpus=4)
    uneven = step(f"{rest}  pipeline: {{stages: [3, 4, 3, 2]}}\n{launch}", batch=16, gpus=4)
    assert uneven.seconds < even.seconds


@pytest.mark.parametrize(
    ("rest", "message"),
    [
        ("{pp: 4}\n  pipeline: {stages: [3, 3, 6]}", "expected 4 numbers for pp 4, got 3"),
        ("{pp: 4}\n  pipeline: {stages: [3, 3, 3, 4]}", "expected 12 layers in all, got 13"),
        ("{pp: 8, dp: 1}", "pipeline.stages may say how many each has: [2, 2, 2, 2, 1, 1, 1, 1]"),
        ("{pp: 2}\n  pipeline: {chunks: 2, stages: [6, 6]}", "4 numbers for pp 2 x 2 chunks"),
    ],
)
def test_stages_that_do_not_fit_are_told(rest: str, message: str) -> None:
    with pytest.raises(InputError, match=message.replace("[", r"\[")):
        step(f"  parallelism: {rest}")


def test_the_place_of_a_wrong_stage_is_told() -> None:
    with pytest.raises(InputError, match=r"pipeline\.stages\.1: expected at least 0"):
        cell("  parallelism: {pp: 2}\n  pipeline: {stages: [13, -1]}")
