"""What GPUs' loads and stores reach over PCIe, both ways together."""

import pytest

from netsim.base.constants import value
from netsim.cli.questions import QuestionOptions, source_of_question
from netsim.engines.engine import simulate
from netsim.program.place import place
from netsim.scenario.cells import expand
from netsim.tasks.resolve import resolve
from netsim.topology.load import load_machine
from netsim.topology.machine import both_ways
from tests.extent.cells import form_at

MIB = 2**20
TWO_CHANNELS = "NCCL_MAX_NCHANNELS=2"


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
    assert 0.93 < found / (value("pcie.both_ways.gen3") * rate / 2) < 1
    assert found == pytest.approx(9.4, rel=0.05)


def test_a_chain_uses_one_way():
    rate = load_machine("v100-pcie-x4").pcie.usable / 1e9
    found = busbw("v100-pcie-x4", "broadcast", 128 * MIB, nccl="2.10", gpus_per_node=2)
    assert found == pytest.approx(rate, rel=0.05)


def test_rings_through_the_memory_of_the_host_are_bounded_by_what_channels_read():
    """Two GPUs of PCIe 5 without peer access, on a host whose memory is not the bound."""
    found = busbw("rtx5090-x4", "all_reduce", 128 * MIB, gpus_per_node=2, env=[TWO_CHANNELS])
    assert 0.7 < found / (2 * value("shm.rate") / 1e9) < 1  # slices cost something too


@pytest.mark.parametrize(
    ("machine", "generation"), [("v100-pcie-x4", 3), ("l40s-pcie-x8", 4), ("rtx6000d-x8", 5)]
)
def test_both_ways_are_those_of_the_generation_of_the_links(machine: str, generation: int):
    assert both_ways(load_machine(machine)) == value(f"pcie.both_ways.gen{generation}")


def ll_part(machine: str, **flags: object) -> float:
    """The fraction of what other stores get of PCIe that lines of LL get on two GPUs; half of a
    line is data."""
    loaded = load_machine(machine)
    rate = loaded.pcie.usable / 1e9
    found = busbw(machine, "all_reduce", 128 * MIB, algo="Ring", proto="LL", **flags)
    return 2 * found / (both_ways(loaded) * rate / 2)


def test_lines_of_ll_share_packets_between_peers_below_a_switch():
    assert ll_part("l40s-pcie-x8", gpus_per_node=2, nccl="2.27.3") > 0.75
    assert ll_part("v100-pcie-x4", gpus_per_node=2, nccl="2.10") > 0.5


def test_lines_of_ll_are_packets_of_their_own_between_peers_through_a_cpu():
    part = ll_part("rtx4090-x8", gpus_per_node=2, settings=["cluster.p2p=true"])
    assert 0.75 < part * value("phb.lines") < 1


def test_a_wave_of_ll_out_of_the_memory_of_the_host_takes_a_read():
    """A step of a ring moves a wave of 4 KiB a channel at most every `shm.wave` seconds."""
    flags = {"algo": "Ring", "proto": "LL", "gpus_per_node": 2, "env": [TWO_CHANNELS]}
    found = busbw("rtx4090-x8", "all_reduce", 16 * MIB, **flags)
    bound = 2 * 4096 / value("shm.wave") / 1e9
    assert 0.4 * bound < found < 1.05 * bound
