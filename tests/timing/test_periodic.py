"""Long runs from short ones: against runs that fit in full, and where there is no steady state."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netsim.engines.engine import simulate
from netsim.program.place import place
from netsim.schedule.builder import Builder
from netsim.schedule.schedule import ARRIVED, IN_ORDER, Schedule, Style
from netsim.timing.steady import AGREE, MARGIN, TOLERATED, BudgetError, Plan, estimate, extrapolate
from netsim.topology.routing import switch


def loops_of_chain(ranks: int, loops: int, sizes: tuple[float, ...]) -> Schedule:
    """Slices handed on along a chain, their sizes repeating: a pipeline that fills and drains."""
    builder = Builder(ranks)
    pieces = builder.work(sizes)
    last = [-1] * ranks
    for slice_ in range(loops * len(sizes)):
        arrived = -1
        for rank in range(ranks - 1):
            after = [(arrived, ARRIVED), (last[rank], IN_ORDER)]
            (arrived,) = builder.rows(Style(), rank, rank + 1, pieces[slice_ % 2], after=after)
            last[rank] = arrived
    return builder.finish()


def seconds_of(schedule: Schedule, latency: float) -> float:
    program = place(schedule, switch(schedule.ranks, 3.0, latency))
    return simulate(program, "simpy").makespan


@given(
    ranks=st.integers(2, 4),
    latency=st.sampled_from([0.0, 0.1, 0.3]),
    sizes=st.tuples(st.sampled_from([1.0, 6.0]), st.sampled_from([1.0, 2.5])),
)
def test_it_gives_the_time_of_the_run_in_full(ranks: int, latency: float, sizes) -> None:
    plan = Plan(
        loops=24,
        rows=lambda loops, _: len(loops_of_chain(ranks, loops, sizes)),
        seconds=lambda loops, _: seconds_of(loops_of_chain(ranks, loops, sizes), latency),
    )
    exact = plan.seconds(24, 1)
    found = estimate(plan, budget=plan.rows(9, 1))
    assert found.seconds == pytest.approx(exact, rel=1e-9)
    assert found.uncertainty <= 24 * AGREE
    assert "of 24 loops" in found.approximation


def test_what_fits_is_run_in_full() -> None:
    plan = Plan(10, rows=lambda k, _: k, seconds=lambda k, _: k**1.5)
    found = estimate(plan, 10)
    assert (found.seconds, found.uncertainty, found.approximation) == (10**1.5, 0.0, "")


@pytest.mark.parametrize("pattern", [(2,), (1, 2), (1, 1, 2), (3, 1, 1, 1), (1, 2, 1, 3)])
@pytest.mark.parametrize("loops", range(20, 30))
def test_patterns_that_take_several_loops(pattern: tuple[int, ...], loops: int) -> None:
    def seconds(k: int) -> float:
        return 5.0 + sum(pattern[i % len(pattern)] for i in range(k))

    found = extrapolate(loops, seconds, lambda k: k <= 16)
    assert found is not None
    assert found.seconds == pytest.approx(seconds(loops), rel=1e-12)


def test_it_waits_until_the_start_has_died_away() -> None:
    calls = []

    def seconds(k: int) -> float:
        calls.append(k)
        return k + 1 - 0.1**k

    found = extrapolate(10**6, seconds, lambda k: k <= 1024)
    assert found is not None
    assert max(calls) == 16
    assert 0 < found.uncertainty <= AGREE
    assert found.seconds == pytest.approx(10**6 + 1, rel=found.uncertainty)


def test_increments_that_never_settle_are_not_taken_for_steady() -> None:
    assert extrapolate(10**6, lambda k: k**1.01, lambda k: k <= 2**12) is None


def test_larger_chunks_where_there_is_no_steady_state() -> None:
    """Quadratic in loops; chunks g times as large cost a part in a hundred of g more."""
    plan = Plan(
        loops=1000,
        rows=lambda k, grain: k * 8 // grain,
        seconds=lambda k, grain: k**2 * (1 + 0.01 * grain),
        grains=True,
    )
    found = estimate(plan, budget=2000)
    assert found.approximation == "chunks 4 times as large"
    assert found.seconds == 1000**2 * 1.04
    assert found.uncertainty == pytest.approx(0.04 / 1.04)


@pytest.mark.parametrize("grains", [True, False])
def test_what_fits_in_no_way_is_refused_with_its_size(grains: bool) -> None:
    plan = Plan(1000, rows=lambda k, _: k * 10**6, seconds=lambda k, _: float(k), grains=grains)
    with pytest.raises(BudgetError, match=r"1000 loops take 1,000,000,000 rows, .* of 50"):
        estimate(plan, 50)


def test_loops_that_are_all_in_flight_at_once_are_not_taken_for_steady() -> None:
    """Until the first one is over, every loop adds 1; from then on they share, and add 2."""

    def seconds(k: int) -> float:
        return 50.0 + k + max(0, k - 50)

    assert extrapolate(10**6, seconds, lambda k: k <= 32) is None
    found = extrapolate(10**6, seconds, lambda k: k <= 1024)
    assert found is not None
    assert found.seconds == pytest.approx(seconds(10**6), rel=1e-9)


def never_steady(seconds, pace: float, loops: int = 1024) -> Plan:
    """A plan whose runs are never seen to be steady within."""
    return Plan(
        loops,
        rows=lambda k, _: k,
        seconds=lambda k, _: seconds(k),
        within=lambda k: None,
        pace=lambda: pace,
    )


def test_loops_that_take_what_the_busiest_link_needs_are_added_so() -> None:
    """The start takes 0.5 more, which dies away with 24 loops."""
    calls = []

    def seconds(k: int) -> float:
        calls.append(k)
        return 10 + k + 0.5 * (1 - 0.5 ** (k / 24))

    found = estimate(never_steady(seconds, 1.0), budget=100, most=10_000)
    assert max(calls) == found.loops == 128
    assert found.approximation == "128 of 1024 loops, others at the pace of the busiest link"
    assert found.seconds == pytest.approx(1034.5, rel=found.uncertainty)
    assert MARGIN < found.uncertainty <= TOLERATED + MARGIN


@pytest.mark.parametrize(
    ("seconds", "pace"),
    [
        (lambda k: 10 + 1.1 * k, 1.0),  # no link is always busy
        (lambda k: 10 + k + 1e-6 * k**2, 1.0),  # ever slower
        (lambda k: 10 + 0.9 * k, 1.0),  # faster than the link can be
        (lambda k: 10 + k, 0.0),  # what links need is not known
    ],
)
def test_other_loops_are_not_taken_to_be_at_the_pace_of_a_link(seconds, pace: float) -> None:
    found = estimate(never_steady(seconds, pace), budget=100, most=10_000)
    assert (found.seconds, found.approximation) == (seconds(1024), "")
