"""Grouped sends and receives: correct in every round, and as fast as blocks and links allow."""

from dataclasses import replace

import numpy as np
import pytest

from netsim.collectives.collective import Collective
from netsim.engines.engine import simulate
from netsim.nccl.choice import schedule_of, with_blocks
from netsim.nccl.constants import MECHANISMS, ByProtocol
from netsim.nccl.environment import Settings
from netsim.nccl.facts import facts_of
from netsim.nccl.p2p import P2pChannels, P2pWork, Sends, rounds_of
from netsim.nccl.schedules.plan import Plan
from netsim.nccl.schedules.send_recv import _cut
from netsim.nccl.schedules.transfers import Transfers, messages_of
from netsim.program.place import place
from netsim.schedule.extent import ALL, Extent
from netsim.schedule.schedule import LOCAL_COPY, SCRATCH, TRANSFER
from netsim.topology.routing import switch
from tests.nccl.nccl_plans import IDEAL, UNMERGED, checked, nodes_of
from tests.nccl.plain_transfers import one_by_one

FEW = P2pChannels(total=8, per_peer=4, fewest=2)
MIB = 2**20


def plan_of(
    c: Collective, nodes: int, channels: P2pChannels = FEW, chunk: int = 4096, **given: object
) -> Plan:
    local = c.ranks // nodes
    ranks = [range(first, first + local) for first in range(0, c.ranks, local)]
    sends = Transfers(c, rounds_of(ranks, facts_of()), Sends(channels, chunk))
    values = {"mechanism": IDEAL, **given}
    return Plan("SendRecv", "Simple", nodes_of(nodes, local), transfers=sends, **values)


@pytest.mark.sample(8)
@pytest.mark.slow
@pytest.mark.parametrize("name", ["alltoall", "gather", "scatter", "sendrecv"])
@pytest.mark.parametrize(("nodes", "local"), [(1, 2), (1, 5), (2, 3), (3, 1), (2, 8)])
def test_everyone_gets_what_is_theirs(name, nodes, local):
    root = 1 if name in ("gather", "scatter") else 0
    for count, direct in ((5, False), (2100, True), (9001, False)):
        in_place = root == 1 and count == 5
        c = Collective(name, nodes * local, count, 4, root=root, in_place=in_place)
        checked(c, plan_of(c, nodes, direct=direct))


def test_uneven_exchanges_and_pairs():
    matrix = tuple(tuple((r * 7 + d * 3) % 5 * 400 for d in range(4)) for r in range(4))
    uneven = Collective("alltoallv", 4, element_bytes=4, matrix=matrix)
    checked(uneven, plan_of(uneven, 2))
    pairs = Collective("p2p", 4, 900, 4, pairs=((0, 1), (2, 2), (0, 3), (3, 0)))
    checked(pairs, plan_of(pairs, 2))
    with pytest.raises(ValueError, match="all_reduce does not run as sends"):
        messages_of(Collective("all_reduce", 4, 10), np.arange(4))


@pytest.mark.parametrize("in_place", [False, True])
def test_the_own_block_stays_where_it_is_only_in_place(in_place: bool) -> None:
    c = Collective("gather", 4, 10, 4, root=2, in_place=in_place)
    src, dst, offset, target, count = (column.tolist() for column in messages_of(c, np.arange(4)))
    assert src == ([0, 1, 3] if in_place else [0, 1, 2, 3])
    assert dst == [2] * len(src)
    assert offset == [0] * len(src)
    assert target == [10 * rank for rank in src]
    assert count == [10] * len(src)


@pytest.mark.parametrize(("count", "pieces"), [(4096, 4), (2048, 2)])
def test_proxies_send_chunks_of_ll_as_one_message(count, pieces):
    """A message over the network begins when a chunk is whole; its receiver uses what is there."""
    c = Collective("sendrecv", 4, count, 4)
    settings = Settings(p2p_net_ll=True)
    nodes = [range(1), range(1, 2), range(2, 3), range(3, 4)]
    rounds = rounds_of(nodes, facts_of(), settings)
    sends = Transfers(c, rounds, Sends(P2pChannels(1, 1, 1), 16384))
    assert {work.protocol for work in sends.columns.works} == {"LL"}
    plan = Plan("SendRecv", "LL", (0, 1, 2, 3), transfers=sends, mechanism=MECHANISMS[90])
    made = checked(c, plan)
    moved = made.kind == TRANSFER
    assert moved.sum() == 4 * pieces
    assert (made.kind == LOCAL_COPY).sum() == 4 * 2 * pieces
    posts = [any(use.resource == "proxy" for use in style.uses) for style in made.styles]
    assert np.array(posts)[made.style[moved]].sum() == 4
    timeline = simulate(place(made, with_blocks(switch(4, 1e9, 1e-7), plan.mechanism)), "compiled")
    into_fifo = np.array([style.dst_buffer == SCRATCH for style in made.styles])[made.style]
    filled, taken = ((made.kind == LOCAL_COPY) & mine for mine in (into_fifo, ~into_fifo))
    for rank in range(4):
        sent = moved & (made.src == rank)
        assert timeline.start[sent].min() > timeline.end[filled & (made.src == rank)].max()
        assert timeline.start[taken & (made.src == (rank + 1) % 4)].min() < timeline.end[sent].max()


def seconds(
    c: Collective, plan: Plan, bandwidth: float, latency: float = 0.0, extent: Extent = ALL
) -> float:
    topology = with_blocks(switch(c.ranks, bandwidth, latency), plan.mechanism)
    return simulate(place(schedule_of(c, plan, extent), topology), "compiled").makespan


WIDE = P2pChannels(total=32, per_peer=32, fewest=4)


def test_alltoall_fills_the_links_of_one_node():
    c = Collective("alltoall", 8, 64 * MIB // 32, 4)
    plan = plan_of(c, 1, WIDE, 524288)
    assert seconds(c, plan, 370e9) == pytest.approx(7 / 8 * c.size_bytes / 370e9, rel=0.1)


@pytest.mark.parametrize("nbytes", [2**13, 2**20, 64 * MIB])
def test_folding_changes_nothing(nbytes):
    c = Collective("alltoall", 8, nbytes // 32, 4)
    plan = plan_of(c, 1, WIDE, 524288, mechanism=MECHANISMS[90])
    times = [seconds(c, plan, 370e9, extent=extent) for extent in (ALL, UNMERGED)]
    assert times[0] == pytest.approx(times[1], rel=1e-9)


def test_a_send_has_half_of_its_block():
    """A rank sends and receives on one channel: each has half of the warps."""
    slow = replace(IDEAL, rate=ByProtocol(2e9, 2e9, 2e9))
    c = Collective("sendrecv", 4, 4 * MIB // 4, 4)
    one = P2pChannels(1, 1, 1)
    plan = plan_of(c, 1, one, 65536, mechanism=slow)
    assert seconds(c, plan, 1e12) == pytest.approx(c.size_bytes / 1e9, rel=0.03)
    twice = plan_of(c, 1, P2pChannels(2, 2, 2), 65536, mechanism=slow)
    assert seconds(c, twice, 1e12) == pytest.approx(c.size_bytes / 2e9, rel=0.05)


def test_one_channel_over_the_network_moves_about_15_gigabytes_a_second():
    """§3.7: what one channel moves to one peer, a chunk of 128 KiB at a time (15; two 25)."""
    c = Collective("sendrecv", 4, 16 * MIB // 4, 4)
    for channels, expected in ((1, 15e9), (2, 26e9)):
        several = P2pChannels(channels, channels, channels)
        plan = plan_of(c, 4, several, 131072, mechanism=MECHANISMS[90])
        assert c.size_bytes / seconds(c, plan, 100e9, 3e-6) == pytest.approx(expected, rel=0.1)


def test_batches_of_a_block_follow_one_another():
    """16 rounds on a single channel are two batches; the second waits for all of the first."""
    c = Collective("alltoall", 16, 64, 4)
    plan = plan_of(c, 16, P2pChannels(1, 1, 1))
    sends = one_by_one(plan.transfers.columns)
    assert {one.batch for one in sends} == {0, 1}
    made = schedule_of(c, plan, UNMERGED)
    timeline = simulate(place(made, switch(16, 1e9, 1e-6)), "compiled")
    batch = {(one.src, one.dst): one.batch for one in sends}
    real = [row for row in range(len(made)) if made.amount[row] and made.src[row] == 0]
    pairs = [(batch.get((0, int(made.dst[row]))), row) for row in real]
    first = max(timeline.end[row] for turn, row in pairs if turn == 0 and made.dst[row] != 0)
    second = min(timeline.start[row] for turn, row in pairs if turn == 1)
    assert second >= first


def test_parts_that_are_equal_are_one_row_of_their_number_only_where_rows_fold() -> None:
    """Whatever is folded, elements are conserved and parts begin where the one before ends."""
    even = P2pWork((96, 96, 96), (5, 1, 3), 64, "Simple")
    assert _cut(even, 4, merges_channels=True) == [(0, 24, 1, 3)]
    apart = [(0, 24, 5, 1), (24, 24, 1, 1), (48, 24, 3, 1)]
    assert _cut(even, 4, merges_channels=False) == apart
    odd = replace(even, parts=(96, 0, 40))
    for merges in (False, True):
        assert _cut(odd, 4, merges_channels=merges) == [(0, 24, 5, 1), (24, 10, 3, 1)]
        assert _cut(P2pWork((40,), (2,), 64, "LL"), 4, merges_channels=merges) == [(0, 10, 2, 1)]
