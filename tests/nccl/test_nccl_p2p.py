"""Rounds, channels and parts of sends and receives."""

import numpy as np
import pytest

from netsim.nccl.environment import Settings
from netsim.nccl.facts import Version, facts_of
from netsim.nccl.p2p import (
    P2pChannels,
    Sends,
    alternating_order,
    first_channels,
    p2p_channels,
    p2p_chunk,
    quadratic_order,
    rounds_of,
)
from tests.nccl.nccl_nodes import node_of, searched_communicator

NEW, MIDDLE, OLD = facts_of(), facts_of(Version(2, 25)), facts_of(Version(2, 19))
KIB, MIB = 2**10, 2**20
ONE, TWO = rounds_of([[0, 1]], NEW), rounds_of([[0], [1]], NEW)


def test_orders():
    assert quadratic_order(8) == (0, 1, 3, 6, 2, 7, 5, 4)
    assert quadratic_order(16)[:8] == (0, 1, 3, 6, 10, 15, 5, 12)
    assert alternating_order(8) == (0, 4, 1, 7, 3, 5, 2, 6)
    for count in range(1, 40):
        assert sorted(quadratic_order(count)) == list(range(count))
        assert sorted(alternating_order(count)) == list(range(count))


@pytest.mark.parametrize("facts", [NEW, MIDDLE, OLD], ids=["grouped", "quadratic", "alternating"])
@pytest.mark.parametrize("sizes", [(8,), (8, 8), (8, 8, 8), (1, 1, 1), (8, 4), (3, 3), (6,)])
def test_rounds_match_and_meet_everyone_once(facts, sizes):
    nodes, first = [], 0
    for size in sizes:
        nodes.append(range(first, first + size))
        first += size
    found = rounds_of(nodes, facts)
    everyone = np.arange(first)
    for rank in range(first):
        sends, receives = found.numbers(rank, everyone), found.numbers(everyone, rank)
        assert sends[rank] == receives[rank] == 0
        for met in (sends, receives):
            assert sorted(met.tolist()) == list(range(first))
        for peer in range(first):
            assert found.peers_in_round(np.array(rank), np.array(rank), np.array(peer)) == peer


def sends_of(nodes, facts, rank: int) -> list[int]:
    """To whom a rank sends, round after round."""
    found = rounds_of(nodes, facts)
    return np.argsort(found.numbers(rank, np.arange(found.n_ranks))).tolist()


def test_one_node_shifts_plainly_since_2_28_7():
    assert sends_of([range(8)], NEW, 3) == [3, 4, 5, 6, 7, 0, 1, 2]
    assert sends_of([range(8)], MIDDLE, 0) == [0, 1, 3, 6, 2, 7, 5, 4]


def channels_of(config: str, nodes: int, facts=NEW) -> P2pChannels:
    comm = searched_communicator(config, nodes)
    table = node_of(config, networked=nodes > 1).table
    return p2p_channels(table, comm.n_channels, comm.n_ranks, facts)


def test_channels_of_one_node():
    assert channels_of("h100_8nic", 1) == P2pChannels(32, 32, 4)
    assert channels_of("a100_8nic", 1) == P2pChannels(32, 32, 4)
    assert channels_of("l40s8sw", 1) == P2pChannels(2, 2, 1)


def test_channels_to_a_peer_halve_as_ranks_grow():
    counts = [channels_of("b200_8nic", nodes).per_peer for nodes in (2, 4, 8, 16, 64)]
    assert counts == [4, 4, 2, 1, 1]
    older = [channels_of("b200_8nic", nodes, MIDDLE).per_peer for nodes in (2, 4)]
    assert older == [2, 2]


def test_chunks():
    nvlink, pcie = node_of("h100_8nic", networked=False), node_of("l40s8sw", networked=False)
    assert p2p_chunk(nvlink.table, 1) == 512 * KIB
    assert p2p_chunk(pcie.table, 1) == 128 * KIB
    assert p2p_chunk(node_of("h100_8nic", networked=True).table, 2) == 128 * KIB
    cube = node_of("dgx1v_1nic", networked=False).table  # of whose pairs some have no NVLink
    one, *others = cube.gpus
    assert {cube.type_of(one, peer) == "NVL" for peer in others} == {True, False}
    assert p2p_chunk(cube, 1) == 128 * KIB


def test_base_channels_spread_by_bit_reversal():
    assert first_channels(np.arange(8), 8, 1, 8).tolist() == [0, 4, 2, 6, 1, 5, 3, 7]
    assert first_channels(np.array([0, 7, 8, 16]), 8, 2, 8).tolist() == [0, 0, 4, 2]
    assert first_channels(np.array([5]), 1, 1, 8).tolist() == [0]


def test_parts_of_one_operation():
    sends = Sends(P2pChannels(32, 32, 4), 512 * KIB)
    small = sends.work(1000, 3, ONE, over_network=False)
    assert (small.parts, small.channels, small.protocol) == ((1000,), (3,), "LL")
    middle = sends.work(4 * MIB, 30, ONE, over_network=False)
    assert (middle.parts, middle.channels) == ((MIB,) * 4, (30, 31, 0, 1))
    assert middle.protocol == "Simple"
    large = sends.work(1024 * MIB, 0, ONE, over_network=False)
    assert len(large.parts) == 32
    uneven = sends.work(MIB + 1, 0, ONE, over_network=False)
    assert sum(uneven.parts) == MIB + 1
    assert all(part % 4096 == 0 for part in uneven.parts[:-1])


def test_network_parts_have_small_chunks_and_no_ll():
    sends = Sends(P2pChannels(16, 4, 1), 128 * KIB)
    works = [sends.work(size, 0, TWO, over_network=True) for size in (KIB, MIB - 1, 64 * MIB)]
    assert [work.chunk for work in works] == [32 * KIB, 64 * KIB, 128 * KIB]
    assert {work.protocol for work in works} == {"Simple"}
    assert [len(work.parts) for work in works] == [1, 4, 4]
    chosen = rounds_of([[0], [1]], NEW, Settings(p2p_net_ll=True))
    work = sends.work(KIB, 0, chosen, over_network=True)
    assert work.protocol == "LL"
