"""The agenda of the compiled engine, run as plain Python."""

from math import inf

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from netsim.engines.compiled.structures import empty_agenda, grown, next_due, put

TIMES = st.sampled_from([0.0, 1.0, 1.0, 2.0, 3.5, inf])


def filled(times: list[float]) -> np.ndarray:
    agenda = empty_agenda(len(times))
    for place, when in enumerate(times):
        put(agenda, place, when)
    return agenda


@given(st.lists(TIMES, min_size=1, max_size=40))
def test_the_root_is_the_earliest_of_all(times: list[float]) -> None:
    assert filled(times)[1] == min(times)


@given(st.lists(TIMES, min_size=1, max_size=40), st.data())
def test_a_time_can_be_changed(times: list[float], data: st.DataObject) -> None:
    agenda = filled(times)
    place = data.draw(st.integers(0, len(times) - 1))
    times[place] = data.draw(TIMES)
    put(agenda, place, times[place])
    assert agenda[1] == min(times)


@given(st.lists(TIMES, min_size=1, max_size=40), TIMES)
def test_a_walk_finds_all_that_is_due_and_leaves_order(times: list[float], now: float) -> None:
    agenda, due = filled(times), []
    horizon = min(now, 1e9)
    node = next_due(agenda, 1, horizon)
    while node:
        due.append(node - len(agenda) // 2)
        agenda[node] = inf
        node = next_due(agenda, node, horizon)
    assert sorted(due) == [place for place, when in enumerate(times) if when <= horizon]
    assert agenda[1] == min((when for when in times if when > horizon), default=inf)


@given(st.lists(TIMES, min_size=1, max_size=40))
def test_a_larger_agenda_holds_the_same(times: list[float]) -> None:
    agenda = grown(filled(times))
    assert agenda[1] == min(times)
    assert agenda[len(agenda) // 2 :][: len(times)].tolist() == times
