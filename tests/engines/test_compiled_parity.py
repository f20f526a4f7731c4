"""The compiled engine gives every row the times of the engine that defines the model."""

import numpy as np
from hypothesis import HealthCheck, given, settings

from netsim.base.errors import StalledError
from netsim.engines import simpy
from netsim.engines.compiled import engine as compiled
from netsim.program.program import Program, Timeline
from tests.engines.random_programs import programs

RELATIVE = 1e-9


def outcome(engine: object, program: Program) -> Timeline | str:
    try:
        return engine.run(program)  # type: ignore[attr-defined]
    except StalledError as error:
        return str(error)


@settings(max_examples=90, deadline=None, suppress_health_check=list(HealthCheck))
@given(programs())
def test_every_row_of_random_programs(program: Program) -> None:
    expected, got = outcome(simpy, program), outcome(compiled, program)
    if isinstance(expected, str) or isinstance(got, str):
        assert got == expected
        return
    np.testing.assert_allclose(got.start, expected.start, rtol=RELATIVE, atol=0)
    np.testing.assert_allclose(got.end, expected.end, rtol=RELATIVE, atol=0)
