"""Laws that every run obeys, on random programs: conservation, fairness, scaling, symmetry."""

import hashlib
import os
import subprocess
import sys
from dataclasses import replace
from math import inf

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from netsim.base.errors import StalledError
from netsim.collectives.collective import Collective
from netsim.collectives.table import build
from netsim.engines.simpy import run
from netsim.program.place import place
from netsim.program.program import Program, Timeline
from netsim.schedule.schedule import COMPUTE, Lag, combine
from netsim.topology.routing import switch
from tests.engines.random_programs import programs

random_runs = settings(max_examples=40, suppress_health_check=list(HealthCheck))


def entries(program: Program, row: int) -> list[tuple[int, float]]:
    path = int(program.path[row])
    if path < 0:
        return []
    span = slice(int(program.paths.ptr[path]), int(program.paths.ptr[path + 1]))
    links, weights = program.paths.link[span].tolist(), program.paths.weight[span].tolist()
    return list(zip(links, weights, strict=True))


def finished(program: Program, observer=None) -> Timeline:
    try:
        return run(program, observer=observer)
    except StalledError:
        assume(False)
        raise


def check_allocation(program: Program, rates: dict[int, float], capacity) -> None:
    """The definition of weighted max-min fairness, checked flow by flow."""
    styles, caps = program.schedule.styles, program.caps
    load: dict[int, float] = {}
    level: dict[int, float] = {}
    share = {row: styles[int(program.schedule.style[row])].share for row in rates}
    for row, rate in rates.items():
        for link, weight in entries(program, row):
            load[link] = load.get(link, 0.0) + weight * rate
            level[link] = max(level.get(link, 0.0), rate / share[row])
    for link, total in load.items():
        assert total <= capacity[link] * (1 + 1e-9), "a resource above its capacity"
    for row, rate in rates.items():
        cap = caps[program.schedule.style[row]]
        assert rate <= cap * (1 + 1e-12), "a row above its cap"
        held = [
            load[link] >= capacity[link] * (1 - 1e-9)
            and rate / share[row] >= level[link] * (1 - 1e-9)
            for link, _ in entries(program, row)
        ]
        assert any(held) or rate >= cap * (1 - 1e-12), "a row that could be faster"


@pytest.mark.slow
@random_runs
@given(programs())
def test_every_allocation_is_max_min_fair(program: Program) -> None:
    def look(now: float, rates: dict[int, float], capacity: dict[int, float]) -> None:
        check_allocation(program, {r: x for r, x in rates.items() if x < inf}, capacity)

    finished(program, look)


@pytest.mark.slow
@random_runs
@given(programs())
def test_rows_wait_for_what_they_depend_on_and_take_their_time(program: Program) -> None:
    timeline, schedule = finished(program), program.schedule
    most = program.links.capacity.copy()
    for _, link, value in program.links.changes:
        most[link] = max(most[link], value)
    releases = dict(zip(schedule.release_row.tolist(), schedule.release_time.tolist(), strict=True))
    for row in range(len(program)):
        ready = releases.get(row, 0.0)
        for earlier, lag in schedule.dependencies(row):
            arrival = program.path_latency[program.path[earlier]] if lag.arrival else 0.0
            ready = max(ready, timeline.end[earlier] + lag.seconds + arrival)
        assert timeline.start[row] == pytest.approx(ready, rel=1e-12, abs=1e-15)
        style = schedule.styles[int(schedule.style[row])]
        widest = min([most[link] / weight for link, weight in entries(program, row)] + [style.cap])
        least = style.latency + (schedule.amount[row] / widest if widest > 0 else 0.0)
        assert timeline.end[row] >= (timeline.start[row] + least) * (1 - 1e-12)


@pytest.mark.slow
@random_runs
@given(programs(), st.sampled_from([2.0, 0.25, 3.7]))
def test_bandwidths_times_c_and_latencies_over_c_give_times_over_c(
    program: Program, c: float
) -> None:
    schedule, links, paths = program.schedule, program.links, program.paths
    assume(all(style.kind != COMPUTE for style in schedule.styles))
    quick = replace(
        program,
        schedule=replace(
            schedule,
            styles=tuple(replace(s, latency=s.latency / c, cap=s.cap * c) for s in schedule.styles),
            lags=tuple(Lag(lag.seconds / c, lag.arrival) for lag in schedule.lags),
            release_time=schedule.release_time / c,
        ),
        links=replace(
            links,
            capacity=links.capacity * c,
            changes=tuple((time / c, link, value * c) for time, link, value in links.changes),
        ),
        paths=replace(paths, latency=paths.latency / c),
    )
    slow, fast = finished(program), finished(quick)
    np.testing.assert_allclose(fast.start * c, slow.start, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(fast.end * c, slow.end, rtol=1e-9, atol=1e-12)


@pytest.mark.slow
@settings(max_examples=40, suppress_health_check=list(HealthCheck))
@given(st.permutations(range(6)), st.sampled_from(["ring", "tree", "direct", "halving-doubling"]))
def test_relabelling_by_a_symmetry_permutes_the_timeline(order: list[int], algorithm: str) -> None:
    schedule = build(Collective("all_reduce", 6, 1001), algorithm)
    relabelled = combine([schedule], [order], 6)
    topology = switch(6, 1e9, 1e-6)
    one, other = run(place(schedule, topology)), run(place(relabelled, topology))
    np.testing.assert_allclose(other.start, one.start, rtol=1e-12)
    np.testing.assert_allclose(other.end, one.end, rtol=1e-12)


@pytest.mark.slow
@random_runs
@given(programs())
def test_resources_that_are_left_out_never_matter(program: Program) -> None:
    everything = replace(program.paths, active=np.ones(len(program.paths.active), bool))
    trimmed, whole = finished(program), finished(replace(program, paths=everything))
    np.testing.assert_allclose(trimmed.end, whole.end, rtol=1e-9)


SCRIPT = """
import hashlib
import numpy as np
from netsim.collectives.collective import Collective
from netsim.collectives.table import build
from netsim.engines.simpy import run
from netsim.program.place import place
from netsim.topology.routing import torus
schedule = build(Collective("alltoall", 12, 1001), "linear-shift")
t = run(place(schedule, torus([3, 4], 1e9, 1e-6)))
print(hashlib.sha256(t.start.tobytes() + t.end.tobytes()).hexdigest())
"""


@pytest.mark.slow
def test_the_same_input_gives_the_same_bytes() -> None:
    digests = set()
    for seed in ("0", "1", "271828"):
        environment = os.environ | {"PYTHONHASHSEED": seed}
        output = subprocess.run(
            [sys.executable, "-c", SCRIPT], env=environment, capture_output=True, check=True
        ).stdout
        digests.add(output)
    assert len(digests) == 1
    assert len(digests.pop().strip()) == len(hashlib.sha256().hexdigest())
