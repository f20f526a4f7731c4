"""Logs with one constant changed: `calibrate` recovers it, or says with what it may be confused.

A sample; `python -m tests.bench.recovery` has every parameter, collective and system."""

import pytest

from tests.bench.recovery import parameters, recovered

RECOVERED = [
    ("4 A100", "all_reduce", "launch on the GPU"),
    ("4 A100", "alltoall", "channel rate of Simple"),
    ("4 A100", "all_gather", "rate of a link between GPUs"),
    ("4 H100", "broadcast", "launch by the host"),
    ("2 x 2 A100", "all_reduce", "usable part of the NICs' rate"),
    ("2 RTX 2080 Ti", "all_reduce", "bandwidth of the hosts' memory"),
]
GROUPED = [
    ("4 A100", "all_reduce", "channel rate of Simple"),
    ("2 x 2 A100", "alltoall", "launch on the GPU"),
]
NOT_SHOWN = [("4 A100", "all_reduce", "launch by the host")]


@pytest.mark.sample(1)
@pytest.mark.slow
@pytest.mark.parametrize(("system", "collective", "name"), RECOVERED)
def test_a_changed_constant_is_recovered_and_no_other_collective_gets_worse(
    system: str, collective: str, name: str
) -> None:
    found = recovered(system, collective, name)
    assert found.state == "recovered"
    assert found.worse < 0.005


@pytest.mark.full
@pytest.mark.parametrize(("system", "collective", "name"), GROUPED)
def test_a_constant_that_the_log_cannot_separate_is_in_the_group_and_left_alone(
    system: str, collective: str, name: str
) -> None:
    found = recovered(system, collective, name)
    assert found.state == "in the group"
    assert found.worse == 0.0


@pytest.mark.slow
@pytest.mark.parametrize(("system", "collective", "name"), NOT_SHOWN)
def test_a_constant_that_the_log_does_not_show_changes_nothing(
    system: str, collective: str, name: str
) -> None:
    found = recovered(system, collective, name)
    assert found.state == "not shown, nothing fitted"
    assert found.worse == 0.0


def test_no_parameter_scales_an_infinite_or_empty_constant() -> None:
    """A network without a plug-in has an infinite copy rate, and a file cannot have one."""
    for system in ("2 x 2 A100", "4 H100"):
        for parameter in parameters(system).values():
            assert all(0 < value < float("inf") for value in parameter.usual.values()), parameter
