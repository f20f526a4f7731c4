"""The compiled engine gives every row the times of the engine that defines the model."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from netsim.engines import simpy
from netsim.engines.compiled import engine as compiled_engine
from netsim.program.program import Program
from tests.engines.agreement import outcome
from tests.engines.random_programs import programs

RELATIVE = 1e-9


@pytest.mark.slow
@settings(max_examples=90, deadline=None, suppress_health_check=list(HealthCheck))
@given(programs())
def test_every_row_of_random_programs(program: Program) -> None:
    expected, got = outcome(simpy, program), outcome(compiled_engine, program)
    if isinstance(expected, str) or isinstance(got, str):
        assert got == expected
        return
    np.testing.assert_allclose(got.start, expected.start, rtol=RELATIVE, atol=0)
    np.testing.assert_allclose(got.end, expected.end, rtol=RELATIVE, atol=0)
