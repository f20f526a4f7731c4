"""NVLSTree and PAT: correct over several nodes, with few and many heads, even and odd."""

from dataclasses import replace
from math import log2

import pytest

from netsim.collectives.collective import Collective
from netsim.engines.engine import simulate
from netsim.nccl.choice import schedule_of, with_blocks
from netsim.nccl.constants import MECHANISMS
from netsim.nccl.schedules.plan import Plan, Work
from netsim.program.place import place
from netsim.schedule.extent import ALL, Extent
from netsim.topology.routing import switch
from tests.nccl.nccl_plans import IDEAL, UNMERGED, checked, even_work, small_plan

SHAPES = [(2, 2, 2), (3, 2, 2), (4, 2, 1), (5, 3, 2), (2, 8, 4)]


@pytest.mark.slow
@pytest.mark.parametrize(("nodes", "local", "heads"), SHAPES)
@pytest.mark.parametrize("registered", [False, True])
def test_switches_and_trees_sum_up_together(nodes, local, heads, registered):
    ranks = nodes * local
    by_node = tuple(tuple(range(n * local, n * local + heads)) for n in range(nodes))
    for count, in_place in ((5, False), (17 * 16 * heads, True)):
        plan = small_plan(
            *("NVLSTree", "Simple", nodes, local, count),
            heads=by_node,
            registered=registered,
            chunk=64,
        )
        checked(Collective("all_reduce", ranks, count, 4, in_place=in_place), plan)


@pytest.mark.sample(13)
@pytest.mark.slow
@pytest.mark.parametrize("name", ["all_gather", "reduce_scatter"])
@pytest.mark.parametrize("ranks", [2, 3, 4, 5, 6, 8, 11, 16])
@pytest.mark.parametrize("chunk", [64, 1024])
def test_rotated_trees_bring_every_block_home(name, ranks, chunk):
    for count, in_place in ((5, False), (40 * chunk // 4 // ranks, True)):
        plan = small_plan("PAT", "Simple", ranks, 1, count, chunk=chunk)
        checked(Collective(name, ranks, count, 4, in_place=in_place), plan)


@pytest.mark.sample(5)
@pytest.mark.slow
@pytest.mark.parametrize("name", ["all_gather", "reduce_scatter"])
@pytest.mark.parametrize(("ranks", "slots"), [(9, 1), (16, 2), (40, 4)])
def test_more_messages_of_a_round_than_slots(name, ranks, slots):
    count = 64
    plan = small_plan("PAT", "Simple", ranks, 1, count, chunk=128)
    full = replace(plan, slots=slots, slot_bytes=128)  # one block a message
    checked(Collective(name, ranks, count, 4), full)


def seconds(
    c: Collective,
    plan: Plan,
    bandwidth: float,
    latency: float = 0.0,
    extent: Extent = ALL,
) -> float:
    topology = with_blocks(switch(c.ranks, bandwidth, latency), plan.mechanism)
    return simulate(place(schedule_of(c, plan, extent), topology), "compiled").makespan


@pytest.mark.parametrize("name", ["all_gather", "reduce_scatter"])
def test_small_blocks_take_a_logarithm_of_steps(name):
    times = {}
    for ranks in (8, 32):
        c = Collective(name, ranks, 16, 4)
        work = (Work(0, 0, 16, 65536),)
        plan = Plan("PAT", "Simple", tuple(range(ranks)), work, mechanism=IDEAL)
        times[ranks] = seconds(c, plan, 1e12, 5e-6)
    assert times[8] == pytest.approx(log2(8) * 5e-6, rel=0.01)
    assert times[32] == pytest.approx(log2(32) * 5e-6, rel=0.01)


@pytest.mark.parametrize("name", ["all_gather", "reduce_scatter"])
def test_large_blocks_fill_the_links(name):
    c = Collective(name, 8, 2**22, 4)
    work = even_work(c.count, 2**18, 4)
    plan = Plan("PAT", "Simple", tuple(range(8)), work, mechanism=IDEAL)
    assert seconds(c, plan, 50e9) == pytest.approx(7 / 8 * c.size_bytes / 50e9, rel=0.15)


def test_pat_needs_a_node_for_each_rank():
    c = Collective("all_gather", 4, 16, 4)
    with pytest.raises(ValueError, match="one rank a node"):
        schedule_of(c, small_plan("PAT", "Simple", 2, 2, 16))


def test_equal_channels_fold():
    """Channels alternate between the two trees: half of them are equal."""
    c = Collective("all_reduce", 8, 8 * 4096, 4)
    heads = ((0, 1), (2, 3), (4, 5), (6, 7))
    plan = small_plan("NVLSTree", "Simple", 4, 2, c.count, channels=8, chunk=4096, heads=heads)
    plan = replace(plan, mechanism=MECHANISMS[90], slot_bytes=0)
    made = [schedule_of(c, plan, extent) for extent in (ALL, UNMERGED)]
    assert len(made[0]) * 3.8 < len(made[1])
    times = [seconds(c, plan, 40e9, 1e-6, extent=extent) for extent in (ALL, UNMERGED)]
    assert times[0] == pytest.approx(times[1], rel=1e-9)
