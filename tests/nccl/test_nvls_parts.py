"""Passes through the buffers of an NVLink switch: each head's part costs time, if it has data."""

import pytest

from netsim.nccl.constants import MECHANISMS
from netsim.nccl.facts import Protocol
from netsim.nccl.schedules.plan import Plan
from netsim.nccl.schedules.primitives import Parts, PlannedChannel
from netsim.schedule.schedule import IN, SCRATCH

SIMPLE: Protocol = "Simple"


def test_parts_without_data_cost_nothing():
    parts = Parts(heads=72, least=16384, seconds=1e-6)
    assert [parts.of(n) for n in (1, 16384, 16385, 2**30)] == pytest.approx(
        [1e-6, 1e-6, 2e-6, 72e-6]
    )
    assert Parts(heads=8, seconds=1e-6).of(1) == pytest.approx(8e-6)


def test_a_small_pass_is_as_late_as_its_filled_parts():
    plan = Plan("NVLS", SIMPLE, (0,) * 8, heads=(tuple(range(8)),), mechanism=MECHANISMS[100])
    mechanism = plan.mechanism
    kind = PlannedChannel(plan, 0).staging(IN, SCRATCH, least_part=16384)
    late = [kind.of(n).latency - mechanism.step_cost.simple for n in (64, 40000, 2**20)]
    assert late == pytest.approx([mechanism.nvls_part * parts for parts in (1, 3, 8)])
    assert kind.of(0).latency == 0.0
