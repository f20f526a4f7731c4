"""Sends and receives written down once for all ranks that do the same, against all of them."""

import itertools

import numpy as np
import pytest

from netsim.base.errors import ScenarioError
from netsim.base.memo import Memo
from netsim.nccl.facts import Version, facts_of
from netsim.nccl.p2p import BATCH, P2pWork, rounds_of
from netsim.nccl.schedules import equal_sends, send_recv
from netsim.nccl.schedules.equal_sends import has_equal_sends
from netsim.nccl.schedules.transfers import Columns, Transfers
from netsim.program.partition import Coloring, Placement, refine
from netsim.tasks import cluster
from netsim.tasks.resolve import ResolvedCell
from tests.extent.cells import folded, form_at, simulate_size
from tests.nccl.test_folding import compare, resolved

SIZES = (1 << 14, 3 << 20, 1 << 26)
HALVES = "cluster.fabric={kind: leaf-spine, nodes_per_leaf: 2, oversubscription: 2}"
GROUPS = (
    "cluster.fabric={kind: dragonfly, routers: 2, ports_per_router: 4, global_links: 6,"
    " transport: slingshot}"
)
RAILS = "cluster.fabric={kind: rail-optimized, nodes_per_unit: 2}"


@pytest.fixture(autouse=True)
def _nothing_found_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was found on a cluster is kept for later cells."""
    monkeypatch.setattr(cluster, "BUILT", Memo())


def leaders(ready: ResolvedCell, size: int = 1 << 20) -> int:
    found = form_at(ready, size).with_representatives
    partition = None if found is None else found.extent.partition
    return 0 if partition is None else len(partition.fold.leaders)


CASES = [
    ("dgx-h100", 1, 1, ()),
    ("dgx-h100", 2, 1, ()),
    ("dgx-h100", 5, 1, ()),
    ("dgx-a100", 3, 1, ()),
    ("dgx-b200", 4, 1, ()),
    ("mi300x", 2, 1, ()),
    ("dgx-h100", 4, 2, (HALVES,)),
    ("dgx-h100", 6, 2, (RAILS,)),
    ("dgx-h100", 4, 1, ("nccl.version=2.19.3",)),
    ("dgx-h100", 3, 1, ("nccl.version=2.25.1",)),
    ("dgx-a100", 2, 1, ("nccl.env={NCCL_PXN_DISABLE: 1}",)),
    ("gh200-x4", 8, 2, (GROUPS,)),
    ("gh200-x4", 7, 7, (GROUPS,)),
    ("a100-x4", 12, 16, (GROUPS,)),
]


@pytest.mark.sample(3)
@pytest.mark.slow
@pytest.mark.parametrize(("machine", "nodes", "kinds", "settings"), CASES)
def test_an_alltoall_takes_the_same_times(
    machine: str, nodes: int, kinds: int, settings: tuple[str, ...]
) -> None:
    ready = resolved(machine, "alltoall", nodes, "", *settings)
    assert leaders(ready) == kinds
    for size in SIZES:
        assert compare(ready, size) > form_at(ready, size).collective.ranks / (2 * kinds)


@pytest.mark.slow
@pytest.mark.parametrize("settings", [(), (HALVES,), (RAILS,)])
def test_engines_agree(settings: tuple[str, ...]) -> None:
    ready = resolved("dgx-h100", "alltoall", 4, "", *settings)
    compare(ready, 1 << 22, "simpy")


@pytest.mark.parametrize("nodes", [1, 2, 5])
def test_everyone_sends_to_the_next(nodes: int) -> None:
    ready = resolved("dgx-h100", "sendrecv", nodes)
    assert leaders(ready) in (0, 1, 8)
    if leaders(ready):
        compare(ready, 1 << 24)


BROKEN = [
    "cluster.overrides=[{node: 1, nics: [0, 1, 2, 3, 4, 5, 6]}]",
    "cluster.faults=[{link: node1.nic3-leaf3, bandwidth: 50%}]",
    "cluster.faults=[{gpu: node1.gpu2, slowdown: 1.5}]",
    "cluster.fabric={kind: leaf-spine, nodes_per_leaf: 2, routing: ecmp}",
]


@pytest.mark.slow
@pytest.mark.parametrize("broken", BROKEN)
def test_nobody_stands_for_others_where_anything_is_odd(broken: str) -> None:
    """Everyone is at another distance from what is odd, and so in another round."""
    ready = resolved("dgx-h100", "alltoall", 4, "", broken)
    assert not leaders(ready)
    assert folded(ready, 1 << 20).schedule().fold is None


@pytest.mark.slow
def test_a_slow_link_is_not_folded_away() -> None:
    slow = "cluster.faults=[{link: node3.nic3-leaf3, bandwidth: 5%}]"
    times = [
        simulate_size(resolved("dgx-h100", "alltoall", 6, "", *broken), 1 << 28)[0].time_us
        for broken in ((), (slow,))
    ]
    assert times[0] is not None
    assert times[1] is not None
    assert times[1] > 2 * times[0]


@pytest.mark.parametrize("launch", ["process_per_gpu", "single_process"])
def test_rows_of_a_table_are_the_same(launch: str) -> None:
    found = [
        simulate_size(resolved("dgx-h100", "alltoall", 4, "", *off, launch=launch), 1 << 22)[0]
        for off in ((), ("fold=off",))
    ]
    assert found[0].time_us == pytest.approx(found[1].time_us, rel=1e-9)
    assert found[0].bound_by == found[1].bound_by
    assert found[0].rows is not None
    assert found[1].rows is not None
    assert found[0].rows * (3 if launch == "single_process" else 16) <= found[1].rows


@pytest.mark.sample(3)
@pytest.mark.slow
@pytest.mark.parametrize("settings", [(), (HALVES,), (RAILS,), (GROUPS,)])
def test_some_rounds_tell_the_same_as_all(
    settings: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of very many sends not all are looked at."""
    every = leaders(resolved("dgx-h100", "alltoall", 12, "", *settings))
    monkeypatch.setattr(equal_sends, "MAX_REFINED_MESSAGES", 0)
    cluster.BUILT.clear()
    ready = resolved("dgx-h100", "alltoall", 12, "", *settings)
    assert leaders(ready) == every > 0
    compare(ready, 1 << 20)


def test_what_stands_for_others_is_held_against_all_that_it_receives(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """From sends inside nodes all ranks look alike, though some share a leaf and others do not."""

    def inside(
        transfers: Transfers, skeletons: equal_sends._Skeletons, placement: Placement
    ) -> Coloring | None:
        return refine(skeletons.of(equal_sends._messages_at(transfers, [0])), placement)

    monkeypatch.setattr(equal_sends, "MAX_REFINED_MESSAGES", 0)
    monkeypatch.setattr(equal_sends, "_refined_by_distances", inside)
    assert leaders(resolved("dgx-h100", "alltoall", 4)) == 1
    assert not leaders(resolved("dgx-h100", "alltoall", 4, "", RAILS))


def test_what_few_sends_may_not_meet_is_not_folded_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow link may be on the way of none of those sends that are looked at."""
    monkeypatch.setattr(equal_sends, "MAX_REFINED_MESSAGES", 0)
    assert leaders(resolved("dgx-h100", "alltoall", 6)) == 1
    cluster.BUILT.clear()
    slow = "cluster.faults=[{link: node3.nic3-leaf3, bandwidth: 5%}]"
    assert not leaders(resolved("dgx-h100", "alltoall", 6, "", slow))


def test_nothing_at_all_is_sent_by_nobody() -> None:
    ready = resolved("dgx-h100", "alltoall", 2)
    assert simulate_size(ready, 0)[0].rows == 16
    assert leaders(ready) == 1


def test_batches_wait_for_the_last_that_holds_one_of_their_channels() -> None:
    """Three batches of one send each: on channel 0, again on 0, then on 0 and 1 together."""
    number, zero = np.arange(3) * BATCH, np.zeros(3, np.int64)
    works = tuple(P2pWork((64,) * len(some), some, 64, "Simple") for some in ((0,), (0,), (0, 1)))
    sends = Columns(zero, zero + 1, zero, zero, number, np.arange(3), works)
    pieces = send_recv._Pieces.of(sends, 4, merges_channels=False)
    assert pieces.wave.tolist() == [0, 1, 2]
    assert pieces.size.tolist() == [1, 1, 2]


@pytest.mark.slow
def test_more_ranks_than_can_be_written_are_refused_at_once() -> None:
    with pytest.raises(ScenarioError, match="GB of memory"):
        resolved("dgx-h100", "alltoall", 8192)


def test_sends_that_are_not_equal_are_written_in_full() -> None:
    for collective in ("gather", "scatter"):
        assert not leaders(resolved("dgx-h100", collective, 2))


@pytest.mark.parametrize("sizes", [(4, 4, 4), (8, 8), (2, 2, 2, 2, 2)])
def test_ranks_meet_others_in_the_same_round(sizes: tuple[int, ...]) -> None:
    first = np.cumsum((0, *sizes))
    nodes = [range(a, b) for a, b in itertools.pairwise(first.tolist())]
    for version in (Version(2, 19), Version(2, 25), Version(2, 29)):
        rounds = rounds_of(nodes, facts_of(version))
        src, dst, rank = (one.ravel() for one in np.indices((sum(sizes),) * 3))
        met = rounds.peers_in_round(rank, src, dst)
        assert (rounds.numbers(rank, met) == rounds.numbers(src, dst)).all()


def test_parts_of_representatives_are_parts_of_all() -> None:
    """What a rank receives is stood for by sends of the same round."""
    ready = resolved("dgx-h100", "alltoall", 4, "", HALVES)
    fold = form_at(ready, 1 << 20).with_representatives.extent.fold
    assert fold is not None
    schedule = folded(ready, 1 << 20).schedule()
    sends = schedule.src != schedule.dst
    assert set(schedule.src[sends].tolist()) == set(fold.leaders.tolist())
    assert len(np.unique(schedule.dst[sends])) == 32


def test_only_equal_sends_of_so_many_ranks_are_compared() -> None:
    """Of more, those that stand for others would have more sends than can be written."""
    for name in ("alltoall", "sendrecv"):
        assert [has_equal_sends(name, ranks) for ranks in (2, 32768, 32769)] == [True, True, False]
    assert not has_equal_sends("gather", 2)
