"""What blocks read and write of their GPUs' memory, and at which part of their rate they do it."""

from dataclasses import replace

import numpy as np
import pytest

from netsim.collectives.collective import Collective
from netsim.engines.engine import simulate
from netsim.nccl.choice import schedule_of, with_blocks
from netsim.nccl.constants import MECHANISMS, ByProtocol
from netsim.nccl.facts import Protocol
from netsim.nccl.schedules.plan import Plan
from netsim.nccl.schedules.primitives import Pass, PlannedChannel
from netsim.program.place import place
from netsim.schedule.schedule import OUT, SCRATCH, Schedule
from netsim.topology.routing import switch
from tests.nccl.nccl_plans import IDEAL, UNMERGED, small_plan

COUNT = 4096


def touched(schedule: Schedule) -> float:
    """How often memory is read or written, in bytes of the call; parts of other passes are free."""
    of_style = [
        sum(use.weight for use in style.uses if use.resource == "hbm" and use.weight > 1e-6)
        for style in schedule.styles
    ]
    return float(schedule.amount @ np.array(of_style)[schedule.style]) / (4 * COUNT)


def plan_of(algorithm: str, nodes: int, local: int, **given: object) -> Plan:
    ranks = tuple(tuple(range(node * local, (node + 1) * local)) for node in range(nodes))
    places = {"chains": (ranks, ranks), "heads": ranks, "nic_routes": ("net",) * 4}
    return small_plan(algorithm, "Simple", nodes, local, COUNT, **places, **given)


# A rank passes on what comes in one pass: it reads it, adds its own, writes it for itself where
# that is asked, and to the next GPU. On its way over a network it is written and read once more.
@pytest.mark.parametrize(
    ("algorithm", "nodes", "local", "name", "expected"),
    [
        ("Ring", 1, 4, "all_reduce", 3 * 6 + 2),
        ("Ring", 4, 1, "all_reduce", 5 * 6 + 2),
        ("Ring", 1, 4, "reduce_scatter", (3 * 3 + 2) * 4),
        ("Ring", 1, 4, "all_gather", (3 * 3 + 1) * 4),
        ("Ring", 1, 4, "broadcast", 3 * 3 + 1),
        ("Ring", 1, 4, "reduce", 3 * 3 + 2),
        ("Tree", 1, 4, "all_reduce", 3 * 6 + 2),
        ("Tree", 4, 1, "all_reduce", 5 * 6 + 2),
        ("CollNetChain", 2, 1, "all_reduce", 2 * (2 + 2) + 2),
        ("CollNetChain", 2, 4, "all_reduce", 2 * (3 * 3 + 2 + 3 * 3 + 2) + 2),
        # Of each node: given to heads, added up and handed over, found and handed out, taken.
        ("CollNetDirect", 2, 4, "all_reduce", 2 * (3 * 2 + 4 + 1 + 2 + 3 + 3 * 2) + 2),
        ("NVLS", 1, 4, "all_reduce", 4 * (2 + 2)),
        ("NVLS", 2, 4, "all_reduce", 8 * (2 + 2) + 2),
    ],
)
def test_memory_that_passes_touch(
    algorithm: str, nodes: int, local: int, name: str, expected: int
) -> None:
    collective = Collective(name, nodes * local, COUNT, 4, in_place=True)
    made = schedule_of(collective, plan_of(algorithm, nodes, local), UNMERGED)
    assert touched(made) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(
    ("protocol", "sm", "link", "expected"),
    [
        ("Simple", 80, "nvlink", 1.0),
        ("LL128", 80, "nvlink", 128 / 120 * MECHANISMS[80].nvlink_lines),
        ("LL", 80, "nvlink", 2 * MECHANISMS[80].nvlink_lines),
        ("LL128", 80, "pcie", 128 / 120),
        ("LL128", 90, "nvlink", 128 / 120),
    ],
)
def test_lines_take_more_of_nvlink_where_simple_is_read(
    protocol: Protocol, sm: int, link: str, expected: float
) -> None:
    plan = replace(plan_of("Ring", 1, 2), protocol=protocol, mechanism=MECHANISMS[sm], link=link)
    kind = PlannedChannel(plan, 0).write(0, 1, Pass(SCRATCH, OUT))
    assert kind.style.wire == pytest.approx(expected)


@pytest.mark.parametrize(
    ("protocol", "link", "threads", "expected"),
    [
        ("Simple", "nvlink", 1.0, 0.55),
        ("Simple", "nvlink", 0.5, 0.5),
        ("Simple", "pcie", 1.0, 1.0),
        ("LL128", "nvlink", 1.0, 1.0),
    ],
)
def test_blocks_store_over_nvlink_at_a_part_of_their_rate(
    protocol: Protocol, link: str, threads: float, expected: float
) -> None:
    mechanism = MECHANISMS[90]
    plan = replace(plan_of("Ring", 1, 2), protocol=protocol, mechanism=mechanism, link=link)
    channel = PlannedChannel(plan, 0)
    stored = channel.write(0, 1, Pass(SCRATCH, OUT, threads=threads)).style.cap
    assert stored == pytest.approx(expected * mechanism.rate.of(protocol))
    assert channel.local(Pass(SCRATCH, OUT)).style.cap == mechanism.rate.of(protocol)


def test_results_that_need_not_be_copied_out_are_not() -> None:
    collective = Collective("all_reduce", 4, COUNT, 4)
    for algorithm in ("Ring", "Tree"):
        plan = plan_of(algorithm, 1, 4)
        both = [
            touched(schedule_of(collective, replace(plan, direct=d), UNMERGED))
            for d in (False, True)
        ]
        assert both == [pytest.approx(3 * 6 + 2, rel=1e-6), pytest.approx(3 * 6, rel=1e-6)]


def seconds(collective: Collective, plan: Plan) -> float:
    topology = with_blocks(switch(collective.ranks, 1e15, 0.0), plan.mechanism)
    return simulate(place(schedule_of(collective, plan), topology), "compiled").makespan


def test_each_way_of_a_tree_has_half_of_a_block_also_while_the_other_is_idle() -> None:
    """A single slice: three ranks send it up, the root turns it, two pass it on, one takes it."""
    slow = replace(IDEAL, rate=ByProtocol(1e9, 1e9, 1e9))
    plan = plan_of("Tree", 1, 4, channels=1, chunk=2**20, slot_bytes=2**20, mechanism=slow)
    took = seconds(Collective("all_reduce", 4, COUNT, 4), plan)
    assert took == pytest.approx((3 * 2 + 1 + 2 * 2 + 2) * 4 * COUNT / 1e9, rel=1e-6)
