"""What GPUs' loads and stores reach over PCIe, both ways together."""

import pytest

from netsim.base.constants import value
from netsim.cli.questions import QuestionOptions, source_of_question
from netsim.engines.engine import simulate
from netsim.program.place import place
from netsim.scenario.cells import expand
from netsim.tasks.resolve import resolve
from netsim.topology.load import load_machine
from tests.extent.cells import form_at

MIB = 2**20


def busbw(machine: str, collective: str, size: int, **flags: object) -> float:
    """GB/s of the bus, as nccl-tests counts it for two or four GPUs."""
    given = QuestionOptions(**flags, sizes=str(size))
    ready = resolve(expand(source_of_question(machine, collective, given).source)[0])
    made = place(
        form_at(ready, size).loop_schedule.schedule(),
        ready.topology,
        ready.gpus.tolist(),
    )
    ranks = len(ready.gpus)
    factor = {"all_reduce": 2 * (ranks - 1) / ranks, "broadcast": 1.0}[collective]
    return size / simulate(made).makespan / 1e9 * factor


@pytest.mark.full
def test_a_ring_of_peers_uses_both_ways():
    """v100pcie_bessemer_4_all_reduce_1: 9.4 GB/s at 128 MiB."""
    rate = load_machine("v100-pcie-x4").pcie.usable / 1e9
    found = busbw("v100-pcie-x4", "all_reduce", 128 * MIB, nccl="2.10")
    assert 0.93 < found / (value("pcie.both_ways") * rate / 2) < 1
    assert found == pytest.approx(9.4, rel=0.05)


def test_a_chain_uses_one_way():
    rate = load_machine("v100-pcie-x4").pcie.usable / 1e9
    found = busbw("v100-pcie-x4", "broadcast", 128 * MIB, nccl="2.10", gpus_per_node=2)
    assert found == pytest.approx(rate, rel=0.05)


def test_through_host_memory_it_is_as_much():
    """Two GPUs without peer access."""
    rate = load_machine("rtx5090-x4").pcie.usable / 1e9
    found = busbw("rtx5090-x4", "all_reduce", 128 * MIB, gpus_per_node=2)
    both_ways = value("pcie.both_ways") * rate
    assert 0.85 < found / (both_ways / 2) < 1  # slices cost something too


def test_lines_of_ll_are_packets_of_their_own():
    """Between peers from Ampere on; V100 put them together."""

    def part(machine: str) -> float:
        rate = load_machine(machine).pcie.usable / 1e9
        found = busbw(machine, "all_reduce", 128 * MIB, algo="Ring", proto="LL", gpus_per_node=2)
        return 2 * found / (value("pcie.both_ways") * rate / 2)  # half of a line is data

    assert 0.88 < part("a10-pcie-x4") * value("pcie_lines") < 1  # waves cost something too
    assert part("v100-pcie-x4") * value("pcie_lines") > 1.2
