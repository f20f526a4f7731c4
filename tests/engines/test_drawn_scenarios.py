"""Both engines, and on small programs a fluid oracle, agree on scenarios drawn with faults.

`python -m tests.engines.drawn_scenarios --count 10000` draws many more."""

import networkx as nx
import numpy as np
import pytest
import yaml
from hypothesis import HealthCheck, given, settings

from netsim.engines import simpy
from netsim.engines.compiled import engine as compiled_engine
from netsim.program.place import place
from netsim.program.program import Program
from netsim.schedule.builder import Builder
from netsim.schedule.schedule import TRANSFER, Style
from netsim.topology.graph import Topology
from netsim.topology.routing import StaticRouter
from tests.engines.agreement import MARGIN, RELATIVE, outcome, own_spread
from tests.engines.drawn_scenarios import checked, drawn
from tests.engines.fluid_oracle import row_ends
from tests.engines.random_programs import programs

SAMPLE = 80
FOUND_BEFORE = (48, 99, 203, 300, 1671)
"""Draws that showed a defect once: crashes of graphs and hosts that nothing joins, of operations
that move nothing, and a period of operations below what its busiest link needs."""


@pytest.mark.sample(12)
@pytest.mark.slow
@pytest.mark.parametrize("seed", [*range(SAMPLE), *FOUND_BEFORE])
def test_engines_and_oracle_agree_on_a_drawn_scenario_with_faults(seed: int) -> None:
    scenario = drawn(seed)
    assert not checked(scenario).wrong, yaml.safe_dump(scenario, sort_keys=False)


def test_draws_cover_answers_stalls_and_refusals() -> None:
    endings = {checked(drawn(seed)).ending for seed in (0, 1, 8)}
    assert endings == {"stalled", "answered", "refused"}


def test_the_oracle_tells_a_slower_link() -> None:
    """Three rows over one link of 2 B/s: by hand they end at 3, 5 and 6 s."""
    graph: nx.DiGraph = nx.DiGraph()
    graph.add_nodes_from(["a", "b"], kind="gpu")
    graph.add_edge("a", "b", bandwidth=2.0, latency=0.0)
    builder = Builder(2)
    style = builder.style(Style(kind=TRANSFER))
    builder.rows(style, [0, 0, 0], [1, 1, 1], builder.work([2.0, 4.0, 6.0]))
    program = place(builder.finish(), Topology("pair", graph, ("a", "b"), StaticRouter()))
    assert row_ends(program).tolist() == pytest.approx([3.0, 5.0, 6.0])
    for engine in (simpy, compiled_engine):
        assert engine.run(program).end.tolist() == pytest.approx([3.0, 5.0, 6.0])


@pytest.mark.slow
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(programs(rows=12))
def test_the_oracle_agrees_on_random_programs(program: Program) -> None:
    timeline = outcome(compiled_engine, program)
    ends = row_ends(program)
    if isinstance(timeline, str) or ends is None:
        assert isinstance(timeline, str)
        assert ends is None
        return
    off = float((np.abs(ends - timeline.end) / np.maximum(ends, 1e-300)).max(initial=0.0))
    assert off <= RELATIVE or off <= MARGIN * own_spread(program)
