"""Long rings from a few hops against the same rings in full."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from netsim.collectives.collective import collective_of
from netsim.nccl.choice import nccl_plan
from netsim.nccl.schedules.plan import Plan
from netsim.nccl.schedules.table import schedule_of, with_blocks
from netsim.schedule.repeat import Launch
from netsim.timing.bench import Bench
from netsim.timing.rings import RANKS, full_ring, has_long_ring
from netsim.training.prepare import prepare_step
from tests.training.steps import cell

NODES = 12
WISH = "nccl: {{env: {{NCCL_ALGO: Ring, NCCL_PROTO: {}}}}}"


def ring_of(name: str, nbytes: int, protocol: str) -> tuple[Plan, Callable[[int], float]]:
    """A plan of rings over 12 nodes, and the time of the call by how far chunks go."""
    prepared = prepare_step(cell(WISH.format(protocol), nodes=NODES, batch=8 * NODES))
    job = prepared.costs._job(tuple(range(8 * NODES)))
    collective = collective_of(name, 8 * NODES, nbytes, 2, pairs=[])
    plan = nccl_plan(job, collective, "bfloat16")
    topology = with_blocks(prepared.topology, job.mechanism)
    bench = Bench(topology, prepared.gpus, Launch(), single=True, engine="compiled")
    return plan, lambda hops: bench.time(schedule_of(collective, replace(plan, hops=hops))).seconds


@pytest.mark.parametrize(
    ("name", "mebibytes", "protocol", "off"),
    [
        ("all_gather", 96, "Simple", 1e-3),
        ("reduce_scatter", 960, "Simple", 1e-3),  # several loops
        ("all_reduce", 960, "Simple", 1e-3),
        ("all_gather", 24, "LL128", 0.01),
        ("all_reduce", 24, "LL", 0.01),
    ],
)
def test_what_a_few_hosts_add_tells_the_whole_ring(name, mebibytes, protocol, off) -> None:
    plan, seconds = ring_of(name, mebibytes << 20, protocol)
    assert (plan.algorithm, plan.protocol) == ("Ring", protocol)
    found = full_ring(plan, seconds)
    assert found is not None
    assert found.hops < 8 * NODES - 1
    assert found.seconds == pytest.approx(seconds(0), rel=off)
    assert seconds(found.hops) < 0.6 * found.seconds


def test_a_ring_cut_after_some_hops_moves_that_part_of_its_bytes() -> None:
    plan, _ = ring_of("all_reduce", 96 << 20, "Simple")
    collective = collective_of("all_reduce", 8 * NODES, 96 << 20, 2, pairs=[])
    whole, part = (_sent(schedule_of(collective, replace(plan, hops=hops))) for hops in (0, 19))
    np.testing.assert_allclose(part, whole * 19 / (8 * NODES - 1), rtol=1e-3)


def _sent(schedule) -> np.ndarray:
    amount = (
        schedule.amount * schedule.style_column("multiplicity") * (schedule.src != schedule.dst)
    )
    return np.bincount(schedule.src, amount, schedule.ranks)


def test_only_long_rings_over_equal_nodes_are_cut() -> None:
    plan, _ = ring_of("all_gather", 1 << 20, "Simple")
    assert not has_long_ring(plan, "all_gather")
    nodes = tuple(rank // 8 for rank in range(RANKS))
    assert has_long_ring(replace(plan, node=nodes), "all_gather")
    assert not has_long_ring(replace(plan, node=nodes), "broadcast")
    assert not has_long_ring(replace(plan, node=(0, *nodes[:-1])), "all_gather")


def test_hops_that_differ_too_much_are_no_answer() -> None:
    plan, _ = ring_of("all_gather", 1 << 20, "Simple")
    assert full_ring(plan, lambda hops: float(hops) ** 2) is None
