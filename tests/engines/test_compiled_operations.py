"""Operations in a row that are written down once take as long as those that are written out."""

import re

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from netsim.base.errors import StalledError
from netsim.collectives.collective import Collective
from netsim.collectives.table import build
from netsim.engines import simpy
from netsim.engines.compiled import engine as compiled_engine
from netsim.engines.engine import ends_of_operations
from netsim.program.place import place
from netsim.program.program import Operations, Program, operations
from netsim.schedule.repeat import Launch
from netsim.topology.routing import switch
from tests.engines.agreement import RELATIVE, apart
from tests.engines.random_programs import SECONDS, programs

launches = st.builds(Launch, SECONDS, SECONDS, st.integers(1, 3))


def outcomes(many: Operations) -> list[object]:
    """Of the definition, over all that is written out, and of the compiled engine, either way."""
    runs = [
        lambda: simpy.run(many.unrolled()),
        lambda: compiled_engine.run(many.unrolled()),
        lambda: compiled_engine.run_operations(many),
    ]
    found: list[object] = []
    for run in runs:
        try:
            found.append(run())
        except StalledError as error:
            found.append(str(error))
    return found


@pytest.mark.slow
@settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))
@given(programs(), st.integers(1, 4), launches)
def test_random_programs(program: Program, times: int, launch: Launch) -> None:
    many = operations(program, times, launch)
    expected, *found = outcomes(many)
    assert len(many) == len(many.unrolled())
    for got in found:
        assert apart(expected, got) <= RELATIVE


@pytest.mark.slow
@settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    programs(),
    st.lists(st.integers(1, 9), min_size=2, max_size=4, unique=True),
    launches,
    st.booleans(),
)
def test_more_operations_go_on_from_fewer(
    program: Program, times: list[int], launch: Launch, last_is_kept: bool
) -> None:
    """To the last bit as if all were run from the beginning; also the most, which is not kept."""
    under_way: list[object] = []
    for number in sorted(times):
        many = operations(program, number, launch)
        most = compiled_engine.MAX_CONTINUED_ROWS if last_is_kept or number < max(times) else 0
        try:
            expected = compiled_engine.run_operations(many)
        except StalledError as error:
            with pytest.raises(StalledError, match=re.escape(str(error))):
                compiled_engine.run_operations(many, under_way)
            return
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(compiled_engine, "MAX_CONTINUED_ROWS", most)
            found = compiled_engine.run_operations(many, under_way)
        np.testing.assert_array_equal(found.end, expected.end)
        np.testing.assert_array_equal(found.start, expected.start)
        assert (found.path is None) == (expected.path is None)
        if found.path is not None:
            np.testing.assert_array_equal(found.path, expected.path)
    if not last_is_kept:
        assert not under_way


@pytest.mark.parametrize("engine", ["simpy", "compiled"])
def test_ends_of_operations_are_those_of_their_ranks(engine: str) -> None:
    program = place(build(Collective("broadcast", 7, 1001), "binomial"), switch(7, 1e9, 1e-6))
    many = operations(program, 3, Launch(host=2e-6, kernel=1e-6, gpus_per_process=7))
    ends = ends_of_operations(many, engine)
    whole = simpy.run(many.unrolled())
    np.testing.assert_allclose(ends, whole.end[many.ends], rtol=1e-12)
    assert (np.diff(ends, axis=0) > 0).all()
    assert ends.shape == (3, 7)
