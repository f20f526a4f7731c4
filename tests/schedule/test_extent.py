"""How much of a call is written: what a field of an extent leaves out, and what it keeps."""

from dataclasses import fields, is_dataclass

import numpy as np
import pytest

from netsim.collectives.collective import Collective
from netsim.nccl.choice import schedule_of
from netsim.nccl.schedules.loops import loops_of
from netsim.nccl.schedules.plan import Plan
from netsim.nccl.schedules.ring import rows_of_rings
from netsim.nccl.schedules.transfers import Transfers
from netsim.schedule.extent import ALL, Extent
from netsim.schedule.schedule import Schedule
from netsim.workloads.task import Task
from tests.nccl.nccl_plans import small_plan

SAYS_HOW_MUCH = ("distance", "hops", "loops", "less", "first", "fold", "symmetry", "partition")


def moved_bytes(schedule: Schedule) -> float:
    """Bytes of all rows, equal channels counted."""
    return float((schedule.amount * schedule.style_column("multiplicity")).sum())


def a_call(algorithm: str, count: int = 6000) -> tuple[Collective, Plan]:
    collective = Collective("all_reduce", 6, count, 4)
    return collective, small_plan(algorithm, "Simple", 3, 2, count, channels=4)


@pytest.mark.parametrize("decision", [Plan, Collective, Task, Transfers])
def test_no_decision_has_a_field_that_says_how_much_is_written(decision: type) -> None:
    assert is_dataclass(decision)
    assert not {field.name for field in fields(decision)} & set(SAYS_HOW_MUCH)


@pytest.mark.parametrize("algorithm", ["Ring", "Tree"])
def test_merged_channels_move_as_much_in_fewer_rows(algorithm: str) -> None:
    collective, plan = a_call(algorithm)
    merged, apart = (
        schedule_of(collective, plan, extent) for extent in (ALL, Extent(merges_channels=False))
    )
    assert len(merged) < len(apart)
    assert moved_bytes(merged) == pytest.approx(moved_bytes(apart))


@pytest.mark.parametrize("algorithm", ["Ring", "Tree"])
def test_each_loop_that_is_left_out_has_the_same_rows_and_bytes(algorithm: str) -> None:
    collective, plan = a_call(algorithm, count=60_000)
    assert min(loops_of(collective, plan)) > 4
    schedules = [
        schedule_of(collective, plan, Extent(loops_left_out=left_out)) for left_out in range(4)
    ]
    assert len(set(np.diff([len(schedule) for schedule in schedules]).tolist())) == 1
    assert np.diff([moved_bytes(schedule) for schedule in schedules]) == pytest.approx(
        [moved_bytes(schedules[1]) - moved_bytes(schedules[0])] * 3
    )


@pytest.mark.parametrize("distance", [1, 2, 4])
def test_chunks_of_a_ring_that_go_part_of_the_way_move_that_part_of_the_bytes(
    distance: int,
) -> None:
    collective, plan = a_call("Ring")
    full, part = (
        schedule_of(collective, plan, extent) for extent in (ALL, Extent(distance=distance))
    )
    sent = [moved_bytes_between_ranks(schedule) for schedule in (full, part)]
    assert sent[1] == pytest.approx(sent[0] * distance / 5, rel=0.02)  # the last chunks are uneven


def moved_bytes_between_ranks(schedule: Schedule) -> float:
    is_sent = schedule.src != schedule.dst
    times = schedule.style_column("multiplicity")
    return float((schedule.amount * times)[is_sent].sum())


def test_counted_rows_of_a_ring_are_those_of_its_blocks() -> None:
    """Counted before anything is written: the passes of blocks, without marks and proxies."""
    collective, plan = a_call("Ring", count=60_000)
    for extent in (ALL, Extent(merges_channels=False), Extent(loops_left_out=0)):
        schedule = schedule_of(collective, plan, extent)
        assert rows_of_rings(collective, plan, extent) <= len(schedule)
        assert rows_of_rings(collective, plan, extent) >= 0.5 * len(schedule)
