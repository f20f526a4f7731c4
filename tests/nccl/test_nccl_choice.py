"""Corrections of the choice: pipelined operations, plateaus, tree factors, FP8, names."""

from dataclasses import replace

import pytest

from netsim.base.errors import InputError
from netsim.nccl.constants import HOST, KERNEL, calibrated_launch, nccl_launch
from netsim.nccl.facts import NEWEST, Version, function_of
from netsim.nccl.job import _joined
from netsim.nccl.tuning import (
    TunedCall,
    _correction,
    choose,
    cost_entry,
    latency_us,
    time_us,
    timed_costs,
)
from netsim.schedule.repeat import Launch
from netsim.topology.machine import Figure
from tests.nccl.nccl_nodes import searched_communicator

MIB = 2**20


def timed(comm, call, algorithm, protocol):
    return time_us(comm, call, cost_entry(comm, call.function, algorithm, protocol))


def test_several_operations_of_a_group_share_a_launch_except_on_rings():
    comm = searched_communicator("dgxa100", 4)
    one, nine = TunedCall("AllReduce", 64), TunedCall("AllReduce", 64, n_pipe_ops=9)
    ring, tree = (cost_entry(comm, "AllReduce", name, "LL") for name in ("Ring", "Tree"))
    assert time_us(comm, nine, ring) - time_us(comm, one, ring) == pytest.approx(
        8 * ring.latency_us
    )
    assert time_us(comm, nine, tree) - time_us(comm, one, tree) == pytest.approx(tree.latency_us)


def test_simple_rings_over_a_network_meet_a_plateau():
    comm = searched_communicator("dgxa100", 4)
    cost = cost_entry(comm, "AllReduce", "Ring", "Simple")
    edge = 64 * comm.n_channels * comm.n_ranks
    below, above = (time_us(comm, TunedCall("AllReduce", size), cost) for size in (edge - 1, edge))
    assert above - below == pytest.approx(0.4 * cost.latency_us, abs=0.01)
    volta = searched_communicator("dgx1v_4nic", 4)
    slow = cost_entry(volta, "AllReduce", "Ring", "Simple")
    expected = 1.9 * slow.latency_us + MIB / (1000 * slow.bandwidth)
    assert time_us(volta, TunedCall("AllReduce", MIB), slow) == pytest.approx(expected)


def test_trees_are_marked_down_at_middle_sizes():
    comm = searched_communicator("dgxa100", 4)
    cost = cost_entry(comm, "AllReduce", "Tree", "LL")
    expected = cost.latency_us + 2**18 / (1000 * 0.4 * cost.bandwidth)
    assert time_us(comm, TunedCall("AllReduce", 2**18), cost) == pytest.approx(expected)
    assert time_us(comm, TunedCall("AllReduce", 8), cost) == pytest.approx(
        cost.latency_us + 8 / (1000 * cost.bandwidth)
    )


def test_nvls_trees_are_marked_down_on_blackwell_since_2_29():
    comm = searched_communicator("b200_8nic", 4)
    old = replace(comm, version=Version(2, 28))
    call = TunedCall("AllReduce", 2**18)
    assert timed(comm, call, "NVLSTree", "Simple") > timed(old, call, "NVLSTree", "Simple")


def test_fp8_reductions_keep_off_long_rings():
    comm = searched_communicator("h100_8nic", 4)
    usual, fp8 = TunedCall("AllReduce", 2**33), TunedCall("AllReduce", 2**33, "f8e4m3")
    assert choose(comm, usual).algorithm == "Ring"
    assert choose(comm, fp8).algorithm == "Tree"
    assert choose(comm, TunedCall("AllGather", 2**33, "f8e4m3")).algorithm == "Ring"


@pytest.mark.parametrize(("ranks", "slower"), [(7, 1), (8, 1), (9, 1024), (16, 1024)])
def test_fp8_slows_rings_of_more_than_eight_ranks(ranks, slower):
    comm = replace(searched_communicator("h100_8nic", 1), n_ranks=ranks)
    times = [
        timed(comm, TunedCall("AllReduce", 2**26, kind), "Ring", "Simple")
        for kind in ("float", "f8e4m3")
    ]
    assert times[1] == pytest.approx(slower * times[0], rel=1e-12)


@pytest.mark.parametrize("nodes", [1, 2, 4])
def test_latency_of_collnet_direct(nodes):
    """Two passes inside, one rank after the other, and the network's 31 us once."""
    comm = replace(searched_communicator("h100_8nic", 2), n_nodes=nodes, n_ranks=8 * nodes)
    comm = replace(comm, collnet_direct=comm.ring)
    found = latency_us(comm, "AllReduce", "CollNetDirect", "Simple")
    assert found == pytest.approx(2 * (3.7 + 7 * 0.4) + 31.0)


@pytest.mark.parametrize(("nodes", "depth"), [(2, 1), (4, 2), (5, 2), (16, 4)])
def test_latency_of_pat_is_that_of_its_rounds_and_of_all_its_blocks(nodes, depth):
    """8 us at first, a round's hop of 14 us by 3.5, and 2.8 us for the block of every rank."""
    one = searched_communicator("h100_1nic", 2)
    for ranks in (nodes, 8 * nodes):
        comm = replace(one, n_nodes=nodes, n_ranks=ranks)
        for function in ("AllGather", "ReduceScatter"):
            found = latency_us(comm, function, "PAT", "Simple")
            assert found == pytest.approx(8 + depth * 4 + 2.8 * ranks)


def test_collnet_needs_few_ranks_and_its_heads_an_nvswitch():
    comm = replace(searched_communicator("h100_8nic", 2), network_collectives=True)
    comm = replace(comm, collnet_direct=comm.ring, collnet_chain=comm.ring)
    comm = replace(comm, settings=replace(comm.settings, collnet=True))
    crowded = replace(comm, n_ranks=18)
    for one, algorithm, why in (
        (comm, "CollNetDirect", ""),
        (comm, "CollNetChain", ""),
        (replace(comm, nvswitch=False), "CollNetDirect", "CollNetDirect needs an NVSwitch"),
        (replace(comm, nvswitch=False), "CollNetChain", ""),
        (crowded, "CollNetDirect", "CollNet takes at most 8 ranks a node"),
        (crowded, "CollNetChain", "CollNet takes at most 8 ranks a node"),
    ):
        assert cost_entry(one, "AllReduce", algorithm, "Simple").disabled == why
    assert cost_entry(comm, "AllGather", "CollNetDirect", "Simple").disabled == ""
    few = cost_entry(replace(comm, n_heads=4), "AllGather", "CollNetDirect", "Simple")
    assert few.disabled == "8 local ranks but 4 of them have a NIC"


def test_a_network_that_reduces_has_more_channels_wherever_a_node_has_several_ranks():
    """Except the case of one rank a node, says NCCL, and asks whether there are as many of them."""
    comm = replace(searched_communicator("a100_8nic", 2), n_channels=0)
    wide = replace(comm.ring, bw_intra=2 * comm.ring.bw_inter)
    kinds = [replace(comm, collnet_chain=wide), replace(comm, collnet_chain=wide, n_heads=1)]
    found = [_joined(kinds, ranks).n_channels for ranks in ([1, 1], [1, 8], [8, 1], [8, 8])]
    assert found[0] > 0
    assert found[0] * 3 // 2 == found[1] == found[2] == found[3]


def test_rings_that_are_fallen_back_to_take_what_their_cost_says():
    old = replace(searched_communicator("dgxa100", 1), version=Version(2, 19))
    comm = replace(old, settings=replace(old.settings, algorithms={"AllReduce": ("NVLS",)}))
    found = choose(comm, TunedCall("AllReduce", MIB))
    cost = cost_entry(comm, "AllReduce", "Ring", found.protocol)
    assert found.algorithm == "Ring"
    assert found.time_us == pytest.approx(cost.latency_us + MIB / (1000 * cost.bandwidth))


def test_the_host_pays_for_every_channel_but_the_first_or_for_every_send_but_the_first():
    one = nccl_launch("process_per_gpu", NEWEST)
    channels = [nccl_launch("process_per_gpu", NEWEST, channels=n).host for n in (1, 2, 5)]
    sends = [
        nccl_launch("process_per_gpu", NEWEST, channels=9, sends_and_receives=n).host
        for n in (1, 2, 5)
    ]
    for found in (channels, sends):
        each = found[1] - found[0]
        assert each > 0
        assert found == pytest.approx([one.host, one.host + each, one.host + 4 * each])


def test_the_table_of_a_call_holds_every_algorithm_and_protocol():
    comm = searched_communicator("h100_8nic", 1)
    entries = timed_costs(comm, TunedCall("AllReduce", MIB))
    assert len(entries) == 21
    best = min(entry.time_us for entry in entries if entry.time_us is not None)
    assert choose(comm, TunedCall("AllReduce", MIB)).time_us == best


def test_names_of_functions():
    assert function_of("all_reduce") == function_of("AllReduce") == "AllReduce"
    with pytest.raises(InputError, match=r"no algorithm choice for 'all_redce' \(did you mean"):
        function_of("all_redce")


@pytest.mark.parametrize("order", [(0,), (0, 1), (1, 0), (1, 0, 2)])
def test_nodes_of_several_kinds_agree_on_what_the_oldest_has(order: tuple[int, ...]) -> None:
    comm = searched_communicator("a100_8nic", 2)
    every = [replace(comm, min_cc=sm) for sm in (90, 80, 100)]
    kinds = [every[kind] for kind in order]
    assert _joined(kinds, [8] * len(kinds)).min_cc == min(kind.min_cc for kind in kinds)
    able = [replace(kind, network_collectives=kind.min_cc > 80) for kind in kinds]
    found = _joined(able, [8] * len(kinds)).network_collectives
    assert found == all(kind.min_cc > 80 for kind in kinds)


# By log2(bytes / 64), as `treeCorrectionFactor` of NCCL's src/graph/tuning.cc has them.
AS_WRITTEN = {
    "LL": "1.0 1.0 1.0 1.0 .9 .8 .7 .7 .7 .7 .6 .5 .4 .4 .5 .6 .7 .8 .9 1.0 1.0 1.0 1.0 1.0",
    "LL128": "1.0 1.0 1.0 1.0 1.0 .9 .8 .8 .8 .7 .6 .6 .6 .6 .6 .6 .8 .9 .9 .9 .9 1.0 1.0 1.0",
    "Simple": ".9 .9 .9 .9 .9 .9 .9 .8 .7 .6 .6 .5 .5 .5 .5 .6 .7 .8 .7 .7 .8 .9 .9 .9",
}


@pytest.mark.parametrize("protocol", AS_WRITTEN)
def test_trees_are_discounted_at_middle_sizes_as_nccl_does(protocol: str) -> None:
    factors = [float(factor) for factor in AS_WRITTEN[protocol].split()]
    comm = searched_communicator("a100_8nic", 2)
    cost = cost_entry(comm, "AllReduce", "Tree", protocol)
    for step, factor in enumerate([*factors[:23], 1.0, 1.0]):
        for nbytes in (64 << step, (64 << step + 1) - 1):
            assert _correction(comm, TunedCall("AllReduce", nbytes), cost) == factor
    assert _correction(comm, TunedCall("AllReduce", 63), cost) == 1.0
    assert _correction(comm, TunedCall("Broadcast", 1 << 16), cost) == 1.0


def test_a_calibrated_launch_takes_the_place_of_the_usual_one_and_keeps_what_is_added() -> None:
    times = Launch(HOST + 2e-6, KERNEL + 3e-6)
    assert calibrated_launch(times, {}) == times
    of_host = calibrated_launch(times, {"launch.host": Figure(value="9us")})
    assert of_host.host == pytest.approx(9e-6 + 2e-6)
    assert of_host.kernel == times.kernel
    of_kernel = calibrated_launch(times, {"launch.kernel": Figure(value="1us")})
    assert of_kernel.host == times.host
    assert of_kernel.kernel == pytest.approx(1e-6 + 3e-6)
