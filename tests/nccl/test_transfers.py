"""Sends as columns against the same one by one; parts that change; sends of some ranks alone."""

import random
from dataclasses import replace
from itertools import accumulate

import numpy as np
import pytest

from netsim.collectives.collective import Collective
from netsim.nccl.choice import plan_sends
from netsim.nccl.environment import Settings
from netsim.nccl.facts import Version, facts_of
from netsim.nccl.p2p import P2pChannels, Sends, rounds_of
from netsim.nccl.schedules.loops import loops_of
from netsim.nccl.schedules.plan import Plan
from netsim.nccl.schedules.transfers import Transfers
from netsim.schedule.extent import ALL, Extent
from tests.nccl.plain_transfers import one_by_one, plain_transfers

VERSIONS = {"grouped": facts_of(), "quadratic": facts_of(Version(2, 25)),
            "alternating": facts_of(Version(2, 19))}  # fmt: skip
SHAPES = [(1,), (7,), (4, 4), (1, 1, 1), (3, 3, 3), (8, 4), (2, 5, 1), (16, 16)]
CHANNELS = P2pChannels(total=8, per_peer=4, fewest=2)
CHUNK = 4096
SETTINGS = Settings()


def nodes_of(sizes, *, mixed=False):
    ranks = list(range(sum(sizes)))
    if mixed:
        random.Random(5).shuffle(ranks)
    ends = list(accumulate(sizes))
    return [tuple(ranks[end - size : end]) for end, size in zip(ends, sizes, strict=True)]


def matrix_of(ranks):
    return tuple(tuple((r * 7 + d * 3) % 5 * 4000 for d in range(ranks)) for r in range(ranks))


def collectives(ranks, count=9001):
    last = ranks - 1
    pairs = tuple((r * 3 % ranks, r * 5 % ranks) for r in range(2 * ranks))
    return [
        Collective("alltoall", ranks, count, 4),
        Collective("alltoallv", ranks, element_bytes=4, matrix=matrix_of(ranks)),
        Collective("gather", ranks, count, 4, root=last),
        Collective("scatter", ranks, count, 4, root=last, in_place=True),
        Collective("sendrecv", ranks, count, 4),
        Collective("p2p", ranks, count, 4, pairs=pairs),
    ]


def transfers(c, nodes, facts):
    return Transfers(c, rounds_of(nodes, facts, SETTINGS), Sends(CHANNELS, CHUNK))


@pytest.mark.sample(12)
@pytest.mark.slow
@pytest.mark.parametrize("facts", VERSIONS.values(), ids=VERSIONS)
@pytest.mark.parametrize("sizes", SHAPES)
def test_columns_are_the_sends_one_by_one(facts, sizes):
    for mixed in (False, True):
        nodes = nodes_of(sizes, mixed=mixed)
        for count in (1, 9001):
            for c in collectives(sum(sizes), count):
                found = transfers(c, nodes, facts)
                plain = plain_transfers(c, nodes, CHANNELS, CHUNK, facts, SETTINGS)
                assert one_by_one(found.columns) == plain


@pytest.mark.parametrize("sizes", SHAPES)
def test_sends_of_some_ranks_are_those_of_all(sizes):
    nodes, some = nodes_of(sizes), np.arange(0, sum(sizes), 2)
    for c in collectives(sum(sizes)):
        found = transfers(c, nodes, VERSIONS["grouped"])
        every = one_by_one(found.columns)
        assert one_by_one(found.of(some, ALL)) == [one for one in every if one.src % 2 == 0]


@pytest.mark.parametrize("sizes", SHAPES)
def test_works_stand_for_all_sizes_of_parts(sizes):
    for c in collectives(sum(sizes)):
        found = transfers(c, nodes_of(sizes), VERSIONS["grouped"])
        kinds = {(work.parts, work.chunk) for work in found.columns.works}
        assert {(work.parts, work.chunk) for work in found.works()} == kinds


def test_parts_lose_loops():
    nodes, c = nodes_of((4, 4)), Collective("alltoall", 8, 90_001, 4)
    plan = Plan(
        "SendRecv",
        "Simple",
        (0,) * 4 + (1,) * 4,
        transfers=transfers(c, nodes, VERSIONS["grouped"]),
    )
    found = loops_of(c, plan)
    loops = [
        -(-part // one.chunk) for one in one_by_one(plan.transfers.columns) for part in one.parts
    ]
    assert (max(found), min(found)) == (max(loops), min(loops))
    everyone = np.arange(8)
    some = (
        one_by_one(plan.transfers.of(everyone, Extent(loops_left_out=left_out)))
        for left_out in (0, 3)
    )
    for before, after in zip(*some, strict=True):
        parts = tuple(part - 3 * before.chunk for part in before.parts)
        assert after == replace(before, parts=parts)


def test_one_rank_of_many_has_the_channels_of_its_sends():
    nodes = nodes_of((8,) * 6)
    for size in (64, 2**16, 2**24):
        c = Collective("alltoall", 48, size // 4, 4)
        found = transfers(c, nodes, VERSIONS["grouped"])
        own = one_by_one(found.of(np.array([0]), ALL))
        plan = plan_sends(found.sends, found.rounds, 0, np.arange(48), np.full(48, size))
        assert plan.n_channels == len({channel for one in own for channel in one.channels})
        assert set(plan.protocol.split("/")) == {one.protocol for one in own if one.dst}


def test_nothing_is_written_out_that_nobody_looks_at():
    """Sends of 65,536 ranks would be four thousand million."""
    nodes = [range(first, first + 8) for first in range(0, 65_536, 8)]
    c = Collective("alltoall", 65_536, 4096, 4)
    plan = Plan("SendRecv", "Simple", (0,), transfers=transfers(c, nodes, VERSIONS["grouped"]))
    assert (max(loops_of(c, plan)), min(loops_of(c, plan))) == (2, 1)
    one = plan.transfers.of(np.array([77]), ALL)
    assert len(one.src) == 65_536
    assert np.array_equal(np.sort(one.dst), np.arange(65_536))
