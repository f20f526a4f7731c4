"""The queue of the compiled engine, run as plain Python."""

from math import inf

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netsim.engines.compiled.structures import (
    Queue,
    empty_queue,
    level_of,
    longer,
    put_in,
    take_out,
)

NUMBERS = 12
LEVELS = st.sampled_from([0.0, 1.0, 1.0, 2.0, 3.5, inf])
DEEDS = st.lists(st.tuples(st.integers(0, NUMBERS - 1), st.none() | LEVELS), max_size=60)


def queued(deeds: list[tuple[int, float | None]]) -> tuple[Queue, dict[int, float]]:
    """A queue after numbers were put in (with a level) or taken out, and who has which level."""
    queue, levels = empty_queue(NUMBERS).view(np.recarray), dict[int, float]()
    for who, level in deeds:
        if level is None:
            take_out(queue, who)
            levels.pop(who, None)
        else:
            put_in(queue, who, level)
            levels[who] = level
    return queue, levels


@pytest.mark.slow
@given(DEEDS)
def test_the_lowest_level_comes_first_and_of_equals_the_lowest_number(
    deeds: list[tuple[int, float | None]],
) -> None:
    queue, levels = queued(deeds)
    for level, who in sorted((level, who) for who, level in levels.items()):
        assert (queue[1].level, queue[1].number) == (level, who)
        take_out(queue, who)
    assert queue[1].level == inf
    assert queue[0].number == 0


@pytest.mark.slow
@given(DEEDS)
def test_everyone_has_the_last_level_that_was_given(deeds: list[tuple[int, float | None]]) -> None:
    queue, levels = queued(deeds)
    assert [level_of(queue, who) for who in range(NUMBERS)] == [
        levels.get(who, inf) for who in range(NUMBERS)
    ]


@pytest.mark.slow
@given(DEEDS)
def test_a_longer_queue_holds_the_same_and_takes_more(
    deeds: list[tuple[int, float | None]],
) -> None:
    queue, levels = queued(deeds)
    queue = longer(queue).view(np.recarray)
    put_in(queue, 2 * NUMBERS, -1.0)
    assert queue[1].number == 2 * NUMBERS
    take_out(queue, 2 * NUMBERS)
    assert {who: level_of(queue, who) for who in levels} == levels
