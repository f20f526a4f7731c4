"""Instants that are wide: both engines see the same, and narrow ones are what they were."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from netsim.engines import simpy
from netsim.engines.compiled import engine as compiled_engine
from netsim.program.program import Program
from tests.engines.random_programs import programs
from tests.engines.test_compiled_parity import RELATIVE, outcome


def shares_links(program: Program) -> bool:
    """Whether the compiled engine, too, finds a link that may be full on every path with links: of
    other rows it foresees the ends, so that no instant begins with them."""
    owner = np.repeat(np.arange(len(program.paths)), np.diff(program.paths.ptr))
    tight = np.bincount(owner[compiled_engine.tight_entries(program)], minlength=len(program.paths))
    without = np.append((tight == 0) & (np.diff(program.paths.ptr) > 0), False)
    return not (without[program.path] & (program.schedule.amount > 0)).any()


@pytest.mark.slow
@settings(max_examples=28, deadline=None, suppress_health_check=list(HealthCheck))
@given(programs(), st.sampled_from([1e-3, 0.05, 0.2, 1.0, 4.0]))
def test_every_row_of_random_programs(program: Program, instant: float) -> None:
    links = replace(program.links, changes=())  # of links that nobody uses, only SimPy's sees any
    program = replace(program, links=links, instant=instant)
    assume(shares_links(program))
    expected, got = outcome(simpy, program), outcome(compiled_engine, program)
    assert isinstance(expected, str) == isinstance(got, str)
    if not isinstance(expected, str) and not isinstance(got, str):
        np.testing.assert_allclose(got.start, expected.start, rtol=RELATIVE, atol=1e-12)
        np.testing.assert_allclose(got.end, expected.end, rtol=RELATIVE, atol=1e-12)
