"""Trees and NVLS: correct for odd and even nodes, and as fast as their volumes allow."""

from dataclasses import replace

import numpy as np
import pytest

from netsim.collectives.collective import Collective
from netsim.engines.engine import simulate
from netsim.nccl.choice import schedule_of, with_blocks
from netsim.nccl.constants import MECHANISMS, ByProtocol
from netsim.nccl.schedules.plan import Plan, Work
from netsim.program.place import place
from netsim.schedule.extent import ALL, Extent
from netsim.topology.routing import switch
from tests.nccl.nccl_plans import IDEAL, SMALL, UNMERGED, checked, even_work, small_plan

MIB = 2**20


@pytest.mark.sample(11)
@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["LL", "Simple"])
@pytest.mark.parametrize("pattern", [1, 2, 3])
@pytest.mark.parametrize(
    ("nodes", "local"), [(1, 2), (1, 5), (2, 2), (3, 3), (4, 1), (5, 2), (7, 1)]
)
def test_trees_sum_everything_up_and_hand_it_out(protocol, pattern, nodes, local):
    chunk = SMALL[protocol] // 4
    for count, given in ((5, {}), (3 * chunk, {"direct": True}), (18 * chunk - 3, {})):
        plan = small_plan("Tree", protocol, nodes, local, count, pattern=pattern, **given)
        checked(Collective("all_reduce", nodes * local, count, 4, in_place=count != 5), plan)


def seconds(
    c: Collective,
    plan: Plan,
    bandwidth: float,
    latency: float = 0.0,
    extent: Extent = ALL,
) -> float:
    topology = with_blocks(switch(c.ranks, bandwidth, latency), plan.mechanism)
    return simulate(place(schedule_of(c, plan, extent), topology), "compiled").makespan


def test_a_long_chain_of_chunks_fills_links_both_ways():
    """In one node a tree is a chain: ranks inside send everything up, and everything down."""
    c = Collective("all_reduce", 4, 2**20, 4)
    plan = small_plan("Tree", "Simple", 1, 4, c.count, channels=1, chunk=2**14, slot_bytes=2**14)
    assert seconds(c, plan, 1e9) == pytest.approx(2 * c.size_bytes / 1e9, rel=0.02)


def test_two_trees_share_the_nodes_links():
    """Inside one tree and a leaf of the other, a node sends S/2 up twice, and S/2 down twice."""
    c = Collective("all_reduce", 8, 2**19, 4)
    plan = small_plan("Tree", "Simple", 8, 1, c.count, chunk=2**13, slot_bytes=2**13)
    both = seconds(c, plan, 1e9)
    assert both == pytest.approx(2 * c.size_bytes / 1e9, rel=0.05)


def test_a_block_shares_its_rate_between_up_and_down():
    c = Collective("all_reduce", 4, 2**20, 4)
    slow = replace(IDEAL, rate=ByProtocol(1e9, 1e9, 1e9))
    plan = small_plan(
        "Tree", "Simple", 1, 4, c.count, channels=1, chunk=2**13, slot_bytes=2**13, mechanism=slow
    )
    # Half of the threads move what goes up and half what comes down.
    assert seconds(c, plan, 1e12) == pytest.approx(c.size_bytes / 0.5e9, rel=0.03)


@pytest.mark.sample(8)
@pytest.mark.slow
@pytest.mark.parametrize("name", ["all_reduce", "all_gather", "reduce_scatter"])
@pytest.mark.parametrize("ranks", [2, 3, 8])
@pytest.mark.parametrize("registered", [False, True])
def test_the_switch_does_what_it_should(name, ranks, registered):
    for count in (5, 31 * ranks, 32 * 18 * (ranks if name == "all_reduce" else 1)):
        plan = small_plan(
            *("NVLS", "Simple", 1, ranks, count),
            heads=(tuple(range(ranks)),),
            registered=registered,
            chunk=128,
        )
        checked(Collective(name, ranks, count, 4, in_place=count != 5), plan)


def switch_call(name: str, nbytes: int, **given: object) -> tuple[Collective, Plan]:
    count = nbytes // 4 // (1 if name == "all_reduce" else 8)
    values = {"mechanism": IDEAL, "registered": True, **given}
    work = even_work(count, 131072, 16)
    plan = Plan("NVLS", "Simple", (0,) * 8, work, heads=(tuple(range(8)),), **values)
    return Collective(name, 8, count, 4), plan


@pytest.mark.parametrize(
    ("name", "volume"), [("all_reduce", 9 / 8), ("all_gather", 1.0), ("reduce_scatter", 1.0)]
)
def test_what_crosses_the_links_to_the_switch(name, volume):
    c, plan = switch_call(name, 512 * MIB)
    assert seconds(c, plan, 370e9) == pytest.approx(volume * 512 * MIB / 370e9, rel=0.03)


def test_measured_peak_of_hopper():
    c, plan = switch_call("all_reduce", 1024 * MIB, mechanism=MECHANISMS[90], registered=False)
    bus = c.size_bytes * c.bus_factor / seconds(c, plan, 370.8e9, 0.4e-6)
    assert 440e9 < bus < 490e9


@pytest.mark.slow
@pytest.mark.parametrize("nbytes", [2 * MIB, 24 * MIB])
def test_folding_changes_nothing(nbytes):
    c, plan = switch_call("all_reduce", nbytes, mechanism=MECHANISMS[90], registered=False)
    times = [seconds(c, plan, 370e9, extent=extent) for extent in (ALL, UNMERGED)]
    assert times[0] == pytest.approx(times[1], rel=1e-9)


def test_equal_trees_fold():
    ranks = 6
    c = Collective("all_reduce", ranks, 6 * 2**14, 4)
    plan = small_plan("Tree", "LL128", 2, 3, c.count, channels=6, chunk=1920)
    plan = replace(plan, slot_bytes=0, mechanism=MECHANISMS[90])
    made = [schedule_of(c, plan, extent) for extent in (ALL, UNMERGED)]
    assert np.isclose(3 * len(made[0]), len(made[1]), rtol=0.01)
    times = [seconds(c, plan, 40e9, extent=extent) for extent in (ALL, UNMERGED)]
    assert times[0] == pytest.approx(times[1], rel=1e-9)


def test_a_plan_for_other_ranks_is_refused():
    plan = small_plan("Tree", "LL", 1, 4, 100)
    with pytest.raises(ValueError, match="expected 5 ranks, got 4"):
        schedule_of(Collective("all_reduce", 5, 100), plan)
    with pytest.raises(ValueError, match="expected one of Ring, Tree"):
        schedule_of(Collective("all_reduce", 4, 100), replace(plan, algorithm="Star"))


def test_one_rank_only_copies():
    c = Collective("all_gather", 1, 10, 4)
    checked(c, Plan("Ring", "Simple", (0,), (Work(0, 0, 10, 512),), rings=((0,),)))
