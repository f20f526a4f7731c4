"""CollNet: chains and heads whose sums the switches of the network add up."""

import pytest

from netsim.collectives.collective import Collective
from netsim.collectives.verify import RaceError, VerificationError
from netsim.nccl.schedules.collnet import Network
from tests.nccl.nccl_plans import checked, small_plan

SHAPES = [(2, 1), (2, 2), (3, 1), (3, 3), (4, 2), (5, 3), (2, 8)]


def chains_of(nodes: int, local: int, channels: int = 2) -> tuple[tuple[tuple[int, ...], ...], ...]:
    """Every second chain runs the other way round, from another head."""
    found = []
    for channel in range(channels):
        orders = [tuple(range(n * local, (n + 1) * local)) for n in range(nodes)]
        found.append(tuple(order[:: -1 if channel % 2 else 1] for order in orders))
    return tuple(found)


def heads_of(nodes: int, local: int, heads: int) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(range(n * local, n * local + heads)) for n in range(nodes))


@pytest.mark.sample(9)
@pytest.mark.slow
@pytest.mark.parametrize(("nodes", "local"), SHAPES)
@pytest.mark.parametrize("direct", [False, True])
def test_chains_and_switches_sum_up(nodes, local, direct):
    for count, in_place in ((5, False), (17 * 256 + 3, True), (2 * 256, False)):
        plan = small_plan(
            *("CollNetChain", "Simple", nodes, local, count),
            chains=chains_of(nodes, local),
            nic_routes=("net", "net"),
            direct=direct,
        )
        checked(Collective("all_reduce", nodes * local, count, 4, in_place=in_place), plan)


@pytest.mark.sample(3)
@pytest.mark.slow
@pytest.mark.parametrize(("nodes", "local"), SHAPES)
@pytest.mark.parametrize("direct", [False, True])
def test_heads_and_switches_sum_up(nodes, local, direct):
    for heads in {1, (local + 1) // 2, local}:
        for count, in_place in ((5, False), (17 * 16 * heads + 3, True)):
            plan = small_plan(
                *("CollNetDirect", "Simple", nodes, local, count),
                heads=heads_of(nodes, local, heads),
                nic_routes=("net",) * heads,
                direct=direct,
                chunk=64,
            )
            checked(Collective("all_reduce", nodes * local, count, 4, in_place=in_place), plan)


@pytest.mark.sample(3)
@pytest.mark.slow
@pytest.mark.parametrize(("nodes", "local"), [(2, 2), (3, 3), (4, 2), (5, 3), (2, 8)])
@pytest.mark.parametrize("registered", [False, True])
def test_switches_of_nodes_and_of_the_network_sum_up(nodes, local, registered):
    for heads in {1, local}:
        for count, in_place in ((5, False), (17 * 16 * heads + 3, True)):
            plan = small_plan(
                *("NVLS", "Simple", nodes, local, count),
                heads=heads_of(nodes, local, heads),
                nic_routes=("net",) * heads,
                registered=registered,
                chunk=64,
            )
            checked(Collective("all_reduce", nodes * local, count, 4, in_place=in_place), plan)


@pytest.mark.sample(3)
@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["NVLS", "CollNetDirect"])
@pytest.mark.parametrize("name", ["all_gather", "reduce_scatter"])
@pytest.mark.parametrize(("nodes", "local"), [(2, 1), (2, 2), (3, 2), (4, 3), (5, 1), (2, 8)])
@pytest.mark.parametrize("quick", [False, True])
def test_blocks_go_through_the_network(algorithm, name, nodes, local, quick):
    if algorithm == "NVLS" and local == 1:
        pytest.skip("NVLS needs two GPUs a node")
    for count, in_place in ((5, False), (17 * 16 + 3, True)):
        plan = small_plan(
            *(algorithm, "Simple", nodes, local, count),
            heads=heads_of(nodes, local, local),
            nic_routes=("net",) * local,
            registered=quick,
            direct=quick,
            chunk=64,
        )
        checked(Collective(name, nodes * local, count, 4, in_place=in_place), plan)


@pytest.mark.slow
@pytest.mark.parametrize("forgotten", ["take", "_give"])
@pytest.mark.parametrize("algorithm", ["NVLS", "CollNetDirect", "CollNetChain"])
def test_what_waits_for_the_network_is_noticed(monkeypatch, algorithm, forgotten):
    """Without the waits around an operation of the network, blocks and proxies would race."""
    monkeypatch.setattr(Network, forgotten, lambda *_: None)
    plan = small_plan(
        *(algorithm, "Simple", 3, 2, 17 * 256),
        heads=heads_of(3, 2, 2),
        chains=chains_of(3, 2),
        nic_routes=("net", "net"),
        chunk=64,
    )
    with pytest.raises((RaceError, VerificationError)):
        checked(Collective("all_reduce", 6, 17 * 256, 4), plan)
