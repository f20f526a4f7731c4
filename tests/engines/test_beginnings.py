"""Ranks that begin at times of their own: the same as start marks that come at those times."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from netsim.base.errors import StalledError
from netsim.collectives.collective import Collective
from netsim.collectives.table import build
from netsim.engines import simpy
from netsim.engines.compiled import engine as compiled_engine
from netsim.engines.engine import ENGINES, simulator
from netsim.program.place import place
from netsim.program.program import Operations, Program, Timeline, operations
from netsim.schedule.repeat import Launch
from netsim.topology.routing import switch
from tests.engines.agreement import RELATIVE, apart
from tests.engines.random_programs import SECONDS, programs


def marked(program: Program, begins: np.ndarray) -> Operations:
    """One operation that start marks hold back."""
    return replace(operations(program, 1, Launch()), launched=begins[None])


def inner(program: Program, timeline: Timeline) -> Timeline:
    """The rows between the marks."""
    ranks = program.schedule.ranks
    return Timeline(timeline.start[ranks:-ranks], timeline.end[ranks:-ranks])


@pytest.mark.slow
@settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))
@given(programs(), st.data())
def test_random_programs(program: Program, data: st.DataObject) -> None:
    times = SECONDS | st.floats(0, 9, allow_subnormal=False)
    ranks = program.schedule.ranks
    begins = np.array(data.draw(st.lists(times, min_size=ranks, max_size=ranks)))
    try:
        expected = inner(program, simpy.run(marked(program, begins).unrolled()))
    except StalledError:
        for engine in ENGINES:
            with pytest.raises(StalledError):
                simulator(program, engine).timeline(begins)
        return
    for engine in ENGINES:
        assert apart(expected, simulator(program, engine).timeline(begins)) <= RELATIVE


@pytest.mark.parametrize("engine", ENGINES)
def test_times_do_not_depend_on_those_before(engine: str) -> None:
    program = place(build(Collective("all_gather", 6, 60_000), "ring"), switch(6, 1e9, 1e-6))
    runs, random = simulator(program, engine), np.random.default_rng(5)
    first = runs.timeline()
    for begins in random.uniform(0, 1e-4, (3, 6)):
        expected = inner(program, compiled_engine.run_operations(marked(program, begins)))
        assert apart(expected, runs.timeline(begins)) <= RELATIVE
    assert apart(first, runs.timeline()) == 0.0
    assert apart(first, runs.timeline(np.zeros(6))) == 0.0
