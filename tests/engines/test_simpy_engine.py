"""The SimPy engine against answers worked out by hand."""

from math import inf

import networkx as nx
import numpy as np
import pytest

from netsim.base.errors import StalledError
from netsim.engines.engine import simulate
from netsim.engines.simpy import Demand, Simulation, fair_rates
from netsim.program.place import place
from netsim.program.program import PlacementError
from netsim.schedule.builder import Builder, compute_style
from netsim.schedule.schedule import (
    ARRIVED,
    IN_ORDER,
    LOCAL_COPY,
    MULTICAST,
    SWITCH_REDUCE,
    Lag,
    Style,
    Use,
)
from netsim.topology.graph import Topology
from netsim.topology.routing import StaticRouter, switch

GB = 1e9


def wires(*edges: tuple[str, str, float], changes=(), capacities=None, **attributes) -> Topology:
    graph = nx.DiGraph()
    names = sorted({end for edge in edges for end in edge[:2]})
    for name in names:
        graph.add_node(name, kind="gpu" if name.startswith("g") else "switch")
    for tail, head, bandwidth in edges:
        graph.add_edge(tail, head, bandwidth=bandwidth, **attributes)
    gpus = tuple(name for name in names if name.startswith("g"))
    return Topology("wires", graph, gpus, StaticRouter(), capacities or {}, changes)


def run(builder: Builder, topology: Topology):
    return simulate(place(builder.finish(), topology), "simpy")


def test_two_flows_share_and_the_longer_one_speeds_up() -> None:
    b = Builder(3)
    b.rows(Style(), [0, 0], [1, 2], b.pieces([GB, 3 * GB]))
    timeline = run(b, switch(3, GB))
    assert timeline.end.tolist() == pytest.approx([2.0, 4.0])


def test_latency_occupies_the_sender_and_lag_the_receiver() -> None:
    b = Builder(2)
    p = b.pieces(GB)
    first = b.rows(Style(latency=0.5), 0, 1, p)
    arrived = b.marks([1], after=[(first, ARRIVED)])
    left = b.marks([0], after=[(first, IN_ORDER)])
    late = b.marks([0], after=[(first, Lag(2.0, arrival=False))])
    timeline = run(b, switch(2, GB, latency=0.25))
    assert timeline.start[first[0]] == 0
    assert timeline.end[first[0]] == 1.5
    assert timeline.end[[arrived[0], left[0], late[0]]].tolist() == [1.75, 1.5, 3.5]


def test_weights_shares_and_caps() -> None:
    b = Builder(4)
    p = b.pieces(GB)
    b.rows(Style(wire=2.0), 0, 1, p)
    b.rows(Style(share=3.0), 0, 2, p)
    b.rows(Style(cap=0.1 * GB), 0, 3, p)
    # 2·r + 3·r + 0.1 = 1 for a common level r: 0.18, of which the share of three is 0.54.
    timeline = run(b, switch(4, GB))
    assert timeline.end[1] == pytest.approx(1 / 0.54)
    # Then 2·r + 0.1 = 1.
    left = 1 - 0.18 / 0.54
    assert timeline.end[0] == pytest.approx(1 / 0.54 + left / 0.45)
    assert timeline.end[2] == pytest.approx(10.0)


def test_half_duplex_directions_share_one_capacity() -> None:
    both = [("g0", "s", GB), ("s", "g0", GB), ("g1", "s", GB), ("s", "g1", GB)]
    b = Builder(2)
    b.rows(Style(), [0, 1], [1, 0], b.pieces(GB))
    assert run(b, wires(*both)).makespan == pytest.approx(1.0)
    b = Builder(2)
    b.rows(Style(), [0, 1], [1, 0], b.pieces(GB))
    assert run(b, wires(*both, duplex="half")).makespan == pytest.approx(2.0)


def test_capacity_changes_stall_and_resume() -> None:
    change = ((0.5, 0, 0.0), (2.0, 0, 2 * GB))
    topology = wires(("g0", "g1", GB), ("g1", "g0", GB), changes=change)
    b = Builder(2)
    b.rows(Style(), 0, 1, b.pieces(GB))
    assert run(b, topology).makespan == pytest.approx(2.25)


def test_what_cannot_finish_names_ranks_rows_and_links() -> None:
    topology = wires(("g0", "g1", GB), ("g1", "g0", GB), changes=((0.5, 0, 0.0),))
    b = Builder(2)
    row = b.rows(Style(channel=3), 0, 1, b.pieces(GB), step=2)
    b.marks([1], after=[(row, ARRIVED)])
    with pytest.raises(StalledError) as caught:
        run(b, topology)
    assert str(caught.value) == (
        "the simulation cannot finish: at 0.5 s, 1 rows stand still and 1 more wait for them; "
        "ranks 0, 1; row 0 (transfer, rank 0 -> 1, channel 3, step 2); "
        "links without capacity: g0->g1"
    )
    assert caught.value.exit_code == 3


def test_infinite_capacity_takes_no_time() -> None:
    b = Builder(2)
    first = b.rows(Style(), 0, 1, b.pieces(GB))
    b.rows(Style(), 1, 0, b.pieces(GB), after=[(first, ARRIVED)])
    assert run(b, switch(2, inf, latency=0.5)).end.tolist() == [0.0, 0.5]


def test_multicast_and_in_switch_reduction_cross_each_link_once() -> None:
    topology = switch(4, GB)
    for kind in (MULTICAST, SWITCH_REDUCE):
        b = Builder(4)
        group = b.group([0, 1, 2, 3])
        ends = (0, group) if kind == MULTICAST else (group, 0)
        b.rows(Style(kind=kind), *ends, b.pieces(GB))
        b.rows(Style(), 0, 1, b.pieces(GB))
        program = place(b.finish(), topology)
        # Both rows leave GPU 0 and reach GPU 1: they share each of these links.
        assert simulate(program, "simpy").end.tolist() == pytest.approx([2.0, 2.0])
        links = program.paths.link[program.paths.ptr[0] : program.paths.ptr[1]]
        assert len(links) == 5


def test_compute_yields_to_communication_that_holds_sms() -> None:
    b = Builder(2)
    b.rows(compute_style(), 0, 0, b.work(1.0))
    channel = Style(cap=GB, uses=(Use("sms", "src", 0.25 / GB),))
    b.rows(channel, 0, 1, b.pieces(GB / 2))
    timeline = run(b, switch(2, 10 * GB))
    # For half a second a quarter of the SMs is gone.
    assert timeline.end.tolist() == pytest.approx([1.125, 0.5])


def test_local_copies_draw_on_memory() -> None:
    b = Builder(1)
    b.rows(Style(kind=LOCAL_COPY), [0, 0], 0, b.pieces(GB))
    topology = wires(("g0", "s", GB), capacities={"hbm": np.array([8 * GB])})
    assert run(b, topology).makespan == pytest.approx(0.5)


def test_rows_of_one_process_share_its_host() -> None:
    b = Builder(2)
    launch = Style(uses=(Use("host", "src", 1.0),), kind=LOCAL_COPY)
    b.rows(launch, [0, 1], [0, 1], b.work(1e-6))
    schedule = b.finish()
    apart = place(schedule, switch(2, GB))
    together = place(schedule, switch(2, GB), processes=[0, 0])
    assert simulate(apart, "simpy").makespan == pytest.approx(1e-6)
    assert simulate(together, "simpy").makespan == pytest.approx(2e-6)


def test_multiplicity_weighs_on_wires_but_not_on_sms() -> None:
    b = Builder(2)
    style = Style(multiplicity=4, uses=(Use("sm", "src", 1.0, index=2),))
    b.rows(style, 0, 1, b.pieces(GB))
    topology = switch(2, 2 * GB)
    program = place(b.finish(), topology)
    assert simulate(program, "simpy").makespan == pytest.approx(2.0)
    named = {
        program.links.name(int(n)): w
        for n, w in zip(program.paths.link, program.paths.weight, strict=True)
    }
    assert named == {"gpu0->switch0": 4.0, "switch0->gpu1": 4.0, "sm(gpu0, 2)": 1.0}


def test_a_row_without_link_or_cap_is_refused() -> None:
    b = Builder(2)
    b.rows(Style(), 1, 1, b.pieces(8))
    with pytest.raises(PlacementError, match=r"row 0 \(transfer, rank 1 -> 1.*over no link"):
        place(b.finish(), switch(2, GB))


@pytest.mark.parametrize(
    ("gpus", "message"),
    [
        ([0], "2 ranks need as many GPUs, got 1"),
        ([1, 1], "two ranks cannot share a GPU"),
        ([0, 2], r"switch\(2\) has 2 GPUs, but rank 1 is placed on GPU 2"),
    ],
)
def test_placements_that_cannot_be(gpus: list[int], message: str) -> None:
    b = Builder(2)
    b.marks([0, 1])
    with pytest.raises(PlacementError, match=message):
        place(b.finish(), switch(2, GB), gpus)


def test_links_integrate_what_passes() -> None:
    b = Builder(3)
    b.rows(Style(), [0, 0, 1], [1, 2, 2], b.pieces([GB, 3 * GB, 2 * GB]))
    program = place(b.finish(), switch(3, GB))
    simulation = Simulation(program)
    simulation.timeline()
    moved = {program.links.name(link): total for link, total in simulation.carried.items()}
    assert moved["gpu0->switch0"] == pytest.approx(4 * GB)
    assert moved["switch0->gpu2"] == pytest.approx(5 * GB)


def test_more_bandwidth_can_be_slower() -> None:
    """Max-min sharing has anomalies; docs/model.md shows this one.

    Flow A holds up B, on which a long chain waits. With a faster first link A gets ahead and takes
    from B the half of the second link that it had left alone.
    """
    times = []
    for narrow in (0.25, 1.0):
        edges = [("g0", "s", narrow * GB), ("g1", "s", GB), ("s", "g2", GB), ("g2", "g3", GB)]
        b = Builder(4)
        b.rows(Style(), 0, 2, b.pieces(GB))
        first = b.rows(Style(), 1, 2, b.pieces(0.75 * GB))
        b.rows(Style(), 2, 3, b.pieces(4 * GB), after=[(first, ARRIVED)])
        times.append(run(b, wires(*edges)).makespan)
    assert times == pytest.approx([5.0, 5.5])


def test_fair_rates_by_definition() -> None:
    demands = [Demand(((0, 1.0), (1, 1.0))), Demand(((0, 1.0),)), Demand(((1, 2.0),), cap=0.2)]
    assert fair_rates(demands, {0: 1.0, 1: 10.0}) == pytest.approx([0.5, 0.5, 0.2])
    assert fair_rates([Demand(())], {}) == [inf]
    assert fair_rates([Demand(((0, 1.0),)), Demand(())], {0: 0.0}) == [0.0, inf]
