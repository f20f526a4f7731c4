"""Explanations against what is known: closed forms, sums, and simulating again by another way."""

from dataclasses import replace
from math import inf

import numpy as np
import pytest
from hypothesis import given, settings

from netsim.base.errors import StalledError
from netsim.collectives.collective import collective_of
from netsim.collectives.table import build
from netsim.engines.engine import simulate
from netsim.explain.explanation import as_values, explain
from netsim.explain.path import slacks, split_path
from netsim.explain.what_if import Case, parameters_of
from netsim.program.place import place
from netsim.program.program import Program
from netsim.schedule.builder import Builder
from netsim.schedule.schedule import ARRIVED, Schedule, Style
from netsim.topology.routing import switch
from tests.engines.random_programs import programs

RATE, LATENCY = 50e9, 1e-6  # of a link; a way through the switch has two


def ring_case(ranks: int = 4, size: int = 2**24, launch: float = 0.0) -> Case:
    schedule = build(collective_of("all_reduce", ranks, size, 4), "ring")
    return Case(place(schedule, switch(ranks, RATE, LATENCY)), launch)


def test_the_parts_of_a_ring_are_those_of_its_closed_form() -> None:
    ranks, size = 4, 2**24
    case = ring_case(ranks, size, launch=5e-6)
    found = explain(case, simulate(case.program))
    hops = 2 * (ranks - 1)
    seconds = found.split.seconds
    assert seconds["wire"] == pytest.approx(hops * LATENCY, rel=1e-9)
    assert seconds["transfer"] == pytest.approx(hops * size / ranks / RATE, rel=1e-9)
    assert seconds["launch"] == 5e-6
    assert sum(seconds.values()) == pytest.approx(found.split.total, rel=1e-12)
    assert {k for k, v in seconds.items() if v == 0} == {
        "protocol",
        "sharing",
        "waiting",
        "compute",
    }
    assert found.slack.min() == 0


def test_sensitivities_of_a_ring_are_the_derivatives_of_its_closed_form() -> None:
    case = ring_case()
    found = {a.parameter.key: a for a in explain(case, simulate(case.program)).answers}
    transfer, wire = 6 * 2**24 / 4 / RATE, 6 * LATENCY
    rate = next(a for key, a in found.items() if key.endswith(".rate") and a.on_path > 0)
    latency = next(a for key, a in found.items() if key.endswith(".latency"))
    assert rate.expected() == pytest.approx(-transfer, rel=1e-9)
    assert rate.slope() == pytest.approx(-transfer, rel=1e-3)  # 1/x is not straight
    assert rate.ideal == pytest.approx(wire, rel=1e-9)
    assert rate.swing == pytest.approx((wire + transfer / 1.1, wire + transfer / 0.9), rel=1e-9)
    assert latency.slope() == pytest.approx(wire, rel=1e-9)
    assert latency.expected() == pytest.approx(wire, rel=1e-9)
    assert latency.ideal == pytest.approx(transfer, rel=1e-9)


def two_flows_into_one() -> Schedule:
    b = Builder(3, 1.0)
    b.rows(Style(), src=[0, 1], dst=[2, 2], piece=b.pieces([10**6, 10**6], [0, 10**6]))
    return b.finish()


def test_sharing_is_told_with_whom_and_where() -> None:
    program = place(two_flows_into_one(), switch(3, 1e9, 0.0))
    timeline = simulate(program)
    found = explain(Case(program), timeline)
    assert found.split.seconds["transfer"] == pytest.approx(1e-3)
    assert found.split.seconds["sharing"] == pytest.approx(1e-3)
    assert len(found.sharers) == 1
    one = found.sharers[0]
    assert one.seconds == pytest.approx(1e-3)
    assert one.link.endswith("gpu2")
    assert found.links[0].name == one.link
    assert found.links[0].full == pytest.approx(2e-3, rel=1e-2)


def test_who_shares_is_told_by_what_each_has_moved_meanwhile() -> None:
    """Three flows into one link: of 3 ms that the largest loses, the others had 1 and 2."""
    b = Builder(4, 1.0)
    sizes, offsets = [3 * 10**6, 10**6, 2 * 10**6], [0, 3 * 10**6, 4 * 10**6]
    b.rows(Style(), src=[0, 1, 2], dst=[3, 3, 3], piece=b.pieces(sizes, offsets))
    program = place(b.finish(), switch(4, 1e9, 0.0))
    found = explain(Case(program), simulate(program))
    assert found.split.seconds["sharing"] == pytest.approx(3e-3)
    by_sender = {one.hop.partition(" ")[0]: one.seconds for one in found.sharers}
    assert by_sender == {"gpu1": pytest.approx(1e-3), "gpu2": pytest.approx(2e-3)}


def test_slack_of_a_short_branch_is_what_the_long_one_takes_more() -> None:
    b = Builder(4, 1.0)
    piece = b.pieces([3 * 10**6, 10**6], [0, 3 * 10**6])
    first = b.rows(Style(), src=[0, 1], dst=[2, 3], piece=piece)
    ptr = [0, 2]
    b.marks([2], joins=(ptr, first, ARRIVED))
    program = place(b.finish(), switch(4, 1e9, 0.0))
    slack = slacks(program, simulate(program))
    assert slack == pytest.approx([0.0, 2e-3, 0.0], abs=1e-12)


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(programs())
def test_every_second_of_any_program_has_one_cause(program: Program) -> None:
    try:
        timeline = simulate(program, "simpy")
    except StalledError:  # it cannot finish: a link is dead
        return
    split = split_path(program, timeline)
    assert sum(split.seconds.values()) == pytest.approx(timeline.makespan, rel=1e-9)
    assert min(split.seconds.values()) >= 0
    assert slacks(program, timeline)[[s.row for s in split.segments]].max() <= 1e-9 * (
        timeline.makespan
    )


def test_scaling_a_parameter_is_scaling_the_topology() -> None:
    case = ring_case()
    rate = next(p for p in parameters_of(case) if p.rate)
    faster = simulate(rate.scaled(case, 2.0).program).makespan
    schedule = build(collective_of("all_reduce", 4, 2**24, 4), "ring")
    other = simulate(place(schedule, switch(4, 2 * RATE, LATENCY))).makespan
    assert faster == pytest.approx(other, rel=1e-12)
    latency = next(p for p in parameters_of(case) if p.key.endswith(".latency"))
    slower = simulate(latency.scaled(case, 3.0).program).makespan
    other = simulate(place(schedule, switch(4, RATE, 3 * LATENCY))).makespan
    assert slower == pytest.approx(other, rel=1e-12)


def test_without_a_budget_of_rows_answers_come_from_the_path_alone() -> None:
    case = ring_case()
    found = explain(case, simulate(case.program), most_rows=0)
    assert all(a.ideal is None and a.slope() is None for a in found.answers)
    assert as_values(found)["confirmed"] == 0
    assert found.answers[0].on_path > 0


def test_own_rates_and_start_up_have_parameters() -> None:
    b = Builder(2, 1.0)
    b.rows(Style(cap=1e8, latency=2e-6), src=0, dst=1, piece=b.pieces(10**6))
    case = Case(place(b.finish(), switch(2, 1e9, 0.0)))
    found = {a.parameter.key: a for a in explain(case, simulate(case.program)).answers}
    own = found["own.rate"].parameter
    assert (own.value, own.unit) == (pytest.approx(0.1), "GB/s")
    assert found["own.rate"].expected() == pytest.approx(-1e-2)
    assert found["own.rate"].ideal == pytest.approx(1e-3 + 2e-6)
    assert found["startup.latency"].slope() == pytest.approx(2e-6, rel=1e-6)


def test_dead_links_stay_dead_when_rates_are_scaled() -> None:
    case = ring_case()
    links = case.program.links
    capacity = links.capacity.copy()
    capacity[0] = 0.0
    dead = Case(replace(case.program, links=replace(links, capacity=capacity)))
    rate = next(p for p in parameters_of(dead) if p.rate)
    room = rate.scaled(dead, inf).program.links.capacity
    assert room[0] == 0.0
    assert np.isinf(room[1:]).any()
