"""Steady states between runs and within one: pipelines whose FIFOs fill up, and cut short."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netsim.engines.engine import simulate
from netsim.extent import steady_state
from netsim.extent.steady_state import (
    AGREE,
    LoopLane,
    Recurrence,
    extrapolate_increments,
    find_recurrence,
)
from netsim.program.place import place
from netsim.program.program import Program, Timeline
from netsim.schedule.builder import Builder
from netsim.schedule.schedule import ARRIVED, IN_ORDER, Schedule, Style
from netsim.topology.routing import switch

RATE = 3.0


def filling(loops: int, slots: int, caps: tuple[float, ...], shared: bool = False) -> Schedule:
    """Slices handed on from rank to rank at these rates, through FIFOs of so many slots; `shared`:
    the last ranks send back to the first ones what they got.
    """
    builder, hops = Builder(len(caps) + 1), len(caps)
    piece = builder.work([6.0])[0]
    rows = np.full((loops, hops + shared), -1, int)
    for loop in range(loops):
        for hop in range(hops):
            after = [(int(rows[loop - 1, hop]) if loop else -1, IN_ORDER)]
            after.append((int(rows[loop, hop - 1]) if hop else -1, ARRIVED))
            if hop + 1 < hops and loop >= slots:
                after.append((int(rows[loop - slots, hop + 1]), IN_ORDER))
            made = builder.rows(Style(cap=caps[hop]), hop, hop + 1, piece, after=after)
            rows[loop, hop] = made[0]
        if shared:
            after = [(int(rows[loop, hops - 1]), ARRIVED)]
            rows[loop, hops] = builder.rows(Style(), hops, 1, piece, after=after)[0]
    return builder.finish()


def run(schedule: Schedule) -> tuple[Program, Timeline]:
    program = place(schedule, switch(schedule.ranks, RATE, 0.1))
    return program, simulate(program, "compiled")


def seen(schedule: Schedule, size: int) -> tuple[Recurrence | None, float]:
    program, timeline = run(schedule)
    found = find_recurrence(program, timeline, [LoopLane(0, len(schedule), size)])
    return found, timeline.makespan


@pytest.mark.parametrize("loops", [20, 40, 60])
def test_nothing_is_steady_while_a_fifo_fills(loops: int) -> None:
    """The first hop is twice as fast as the last: every second loop fills a slot of 40."""
    found, _ = seen(filling(loops, 40, (3.0, 1.5)), 2)
    assert found is None


def test_it_is_steady_once_the_fifo_is_full() -> None:
    found, seconds = seen(filling(120, 40, (3.0, 1.5)), 2)
    assert found is not None
    assert (found.loops, found.seconds) == (1, pytest.approx(4.0))
    _, longer = seen(filling(170, 40, (3.0, 1.5)), 2)
    assert longer == pytest.approx(seconds + 50 * 4.0, rel=1e-12)


@pytest.mark.slow
@given(
    slots=st.integers(1, 6),
    caps=st.lists(st.sampled_from([0.7, 1.0, 1.5, 2.0, 3.0]), min_size=2, max_size=4),
    shared=st.booleans(),
    loops=st.sampled_from([16, 24, 40]),
)
def test_what_is_seen_is_steady(slots: int, caps: list[float], shared: bool, loops: int) -> None:
    size = len(caps) + shared
    found, seconds = seen(filling(loops, slots, tuple(caps), shared), size)
    if found is None:
        return
    more = found.loops * 13
    _, longer = seen(filling(loops + more, slots, tuple(caps), shared), size)
    assert longer == pytest.approx(seconds + 13 * found.seconds, rel=1e-5)


def test_a_row_that_took_another_time_is_noticed() -> None:
    program, timeline = run(filling(120, 10, (3.0, 1.5)))
    lanes = [LoopLane(0, len(program), 2)]
    assert find_recurrence(program, timeline, lanes) is not None
    last = np.argsort(np.where(timeline.end <= timeline.start[-2], timeline.end, 0.0))
    for row in last[-4:]:
        end = timeline.end.copy()
        end[row] -= 0.01
        assert find_recurrence(program, Timeline(timeline.start, end), lanes) is None


@pytest.mark.parametrize(("last", "recurs"), [(1.0, True), (1.5, True), (2.5, False)])
def test_what_is_over_where_the_past_begins_may_have_taken_another_time(last, recurs) -> None:
    """Of rows that take a second each, the last two loops are compared: from 17 s to 19 s."""
    start = np.arange(20.0)
    end = start + 1
    end[15 if recurs else 16] -= last - 1  # it is the one before that which ends at 17 s
    nothing = SimpleNamespace(lag_seconds=np.zeros(1), path_latency=np.zeros(1))
    found = find_recurrence(nothing, Timeline(start, end), [LoopLane(0, 20, 1)])
    assert found == (Recurrence(1, 1.0, 0.0, 19.0) if recurs else None)


def test_what_is_added_alike_at_two_phases_is_steady() -> None:
    ends = {k: np.array([5.0 + 2 * k, 3.0 + 2 * k]) for k in range(12)}
    found = extrapolate_increments(ends.get, 1000, [(8, 11), (7, 10)])
    assert found is not None
    assert found.ends == pytest.approx([2005.0, 2003.0])
    assert found.uncertainty == 0.0
    assert extrapolate_increments(lambda k: k**1.01, 1000, [(8, 11), (7, 10)]) is None


def test_what_differs_a_little_says_how_far_that_may_lead() -> None:
    ends = {2: 2.0, 4: 4.0, 6: 6.02}
    assert extrapolate_increments(ends.get, 106, [(4, 6), (2, 4)]) is None
    found = extrapolate_increments(ends.get, 106, [(4, 6), (2, 4)], tolerance=0.02)
    assert found is not None
    assert found.seconds == pytest.approx(6.02 + 100 * 1.005)
    assert found.uncertainty == pytest.approx(100 * 1.005 * (0.01 / 1.01) / found.seconds)


def test_what_is_added_by_the_last_part_alone_is_steady() -> None:
    runs = {4: [5.0, 9.0, 0.0], 8: [8.0, 17.0, 0.0], 16: [15.5, 33.08, 0.0]}
    ends_of = lambda loops: np.array(runs[loops])  # noqa: E731
    found = steady_state.extrapolate_rate(ends_of, 40, 16, 0.01)
    assert found is not None
    assert found.ends == pytest.approx([15.5 + 3 * 7.5, 33.08 + 3 * 16.08, 0.0])
    assert found.uncertainty == pytest.approx(
        steady_state.LATE + (1 - 16 / 16.08) * 3 * 16.08 / found.seconds
    )
    assert found.words == steady_state.AT_LAST_RATE
    assert steady_state.extrapolate_rate(ends_of, 40, 16, 0.004) is None
    runs[16][0] = 8.0 + 16.1  # another adds a little more: it ends no later for that
    found = steady_state.extrapolate_rate(ends_of, 40, 16, 0.01)
    assert found is not None
    assert found.ends[0] == pytest.approx(24.1 + 3 * 16.08)
    runs[16][0] = 8.0 + 17.0
    assert steady_state.extrapolate_rate(ends_of, 40, 16, 0.01) is None


def test_a_part_that_would_overtake_the_last_is_not_followed() -> None:
    ends = {k: np.array([50.0 + k, 2.0 * k]) for k in range(9)}
    pairs = [(5, 8), (4, 7)]
    assert extrapolate_increments(ends.get, 40, pairs) is not None
    assert extrapolate_increments(ends.get, 60, pairs) is None
    assert AGREE < 1e-5
