"""Every algorithm does what its collective demands, without races, at every number of ranks."""

from inspect import signature

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from netsim.collectives.collective import HAS_IN_PLACE, Collective, volumes
from netsim.collectives.table import ALGORITHMS, build
from netsim.collectives.verify import check_races, verify
from netsim.schedule.schedule import MARK, SCRATCH, TRANSFER, Schedule
from tests.collectives.collective_cases import LARGE, SIZES, TABLE, cases, make
from tests.collectives.numeric_run import Numbers

PARAMETERS = [
    ("all_reduce", "ring", {"channels": 3}),
    ("all_gather", "ring", {"channels": 2}),
    ("reduce_scatter", "ring", {"channels": 4}),
    ("broadcast", "ring", {"chunks": 4}),
    ("broadcast", "ring", {"chunk_bytes": 9}),
    ("reduce", "ring", {"chunks": 3}),
    ("reduce", "ring", {"chunk_bytes": 4}),
    ("all_reduce", "double-binary-tree", {"chunks": 3}),
    ("all_reduce", "double-binary-tree", {"chunk_bytes": 8}),
    ("all_reduce", "tree", {"root": 1}),
    ("all_reduce", "parameter-server", {"root": 1}),
    ("all_reduce", "parameter-server", {"sharded": True}),
    ("all_reduce", "hierarchical", {"node_size": 1}),
    ("all_reduce", "hierarchical", {"node_size": 2}),
    ("all_reduce", "hierarchical", {"node_size": 6}),
    ("alltoall", "hierarchical", {"node_size": 1}),
    ("alltoall", "hierarchical", {"node_size": 3}),
    ("alltoallv", "hierarchical", {"node_size": 4}),
]


IDS = [f"{name}-{algorithm}" for name, algorithm in TABLE]


def check(schedule: Schedule, collective: Collective) -> None:
    verify(schedule, collective)
    check_races(schedule, collective)
    n = collective.ranks
    assert (schedule.kind[-n:] == MARK).all()
    assert schedule.dst[-n:].tolist() == list(range(n))


@pytest.mark.sample(11)
@pytest.mark.slow
@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize(("name", "algorithm"), TABLE, ids=IDS)
def test_algorithm(name: str, algorithm: str, n: int) -> None:
    for collective in cases(name, n):
        check(build(collective, algorithm), collective)


@pytest.mark.sample(4)
@pytest.mark.slow
@pytest.mark.parametrize(("algorithm", "name"), {b: a for a, b in TABLE}.items())
def test_every_algorithm_at_many_ranks(algorithm: str, name: str) -> None:
    for collective in cases(name, LARGE):
        check(build(collective, algorithm), collective)


@pytest.mark.sample(4)
@pytest.mark.slow
@pytest.mark.parametrize(("name", "algorithm", "parameters"), PARAMETERS, ids=str)
def test_parameters(name: str, algorithm: str, parameters: dict[str, object]) -> None:
    for n in (12,) if "node_size" in parameters else (2, 5, 12):
        for collective in cases(name, n):
            check(build(collective, algorithm, **parameters), collective)


@pytest.mark.slow
@settings(max_examples=60)
@given(st.data())
def test_any_case(data: st.DataObject) -> None:
    name, algorithm = data.draw(st.sampled_from(TABLE))
    n = data.draw(st.integers(1, 20))
    count, root = data.draw(st.integers(0, 50)), data.draw(st.integers(0, n - 1))
    in_place = name in HAS_IN_PLACE and data.draw(st.booleans())
    parameters: dict[str, object] = {}
    for parameter in list(signature(ALGORITHMS[name][algorithm]).parameters)[1:]:
        if parameter in ("channels", "chunks"):
            parameters[parameter] = data.draw(st.integers(1, 6))
        elif parameter == "node_size":
            divisors = [size for size in range(1, n + 1) if n % size == 0]
            parameters[parameter] = data.draw(st.sampled_from(divisors))
        elif parameter == "sharded":
            parameters[parameter] = data.draw(st.booleans())
    collective = make(name, n, count, root, in_place)
    check(build(collective, algorithm, **parameters), collective)


def test_groups_in_any_order() -> None:
    groups = [[0, 5], [3, 1], [4, 2]]
    for collective in cases("all_reduce", 6):
        check(build(collective, "hierarchical", groups=groups), collective)


@pytest.mark.sample(6)
@pytest.mark.slow
@pytest.mark.parametrize(("name", "algorithm"), TABLE, ids=IDS)
def test_numbers_come_out_right(name: str, algorithm: str) -> None:
    for n in (1, 3, 6, 8):
        for collective in cases(name, n):
            numbers = Numbers(collective)
            numbers.run(build(collective, algorithm))
            assert numbers.right(), collective


@pytest.mark.parametrize(("name", "algorithm"), TABLE, ids=IDS)
def test_nothing_waits_for_a_later_step(name: str, algorithm: str) -> None:
    schedule = build(make(name, 6, 13), algorithm)
    owner = np.repeat(np.arange(len(schedule)), np.diff(schedule.dep_ptr))
    assert (schedule.step[schedule.dep_row] <= schedule.step[owner]).all()


@pytest.mark.parametrize("n", [2, 3, 5, 8])
@pytest.mark.parametrize("algorithm", ["ring", "hierarchical", "double-binary-tree"])
def test_sends_of_one_rank_to_one_rank_leave_in_order(algorithm: str, n: int) -> None:
    schedule = build(make("all_reduce", n, 7 * n), algorithm)
    last: dict[tuple[int, int, int], int] = {}
    for row in np.flatnonzero(schedule.src != schedule.dst).tolist():
        channel = schedule.styles[schedule.style[row]].channel
        lane = (int(schedule.src[row]), int(schedule.dst[row]), channel)
        if lane in last:
            assert _reaches(schedule, row, last[lane]), lane
        last[lane] = row


def _reaches(schedule: Schedule, row: int, earlier: int) -> bool:
    seen, todo = set(), [row]
    while todo:
        for before, _ in schedule.dependencies(todo.pop()):
            if before == earlier:
                return True
            if before > earlier and before not in seen:
                seen.add(before)
                todo.append(before)
    return False


@pytest.mark.parametrize("count", [0, 1, 5, 24, 25])
@pytest.mark.parametrize("n", [2, 3, 7, 8])
def test_ring_volumes_add_up(n: int, count: int) -> None:
    sent, received = volumes(build(make("all_reduce", n, count), "ring"))
    assert sent.sum() == received.sum() == 2 * (n - 1) * count * 4
    if count % n == 0:
        assert (sent == 2 * (n - 1) / n * count * 4).all()
        assert (received == sent).all()


OPTIMAL = [
    ("all_reduce", "ring", 2, (3, 4, 8)),
    ("all_reduce", "halving-doubling", 2, (2, 4, 8, 16)),
    ("all_reduce", "hierarchical", 2, (4, 8, 12)),
    ("all_gather", "ring", 1, (3, 4, 7)),
    ("all_gather", "recursive-doubling", 1, (2, 4, 8, 16)),
    ("all_gather", "bruck", 1, (3, 4, 7, 12)),
    ("all_gather", "direct", 1, (3, 4, 7)),
    ("reduce_scatter", "ring", 1, (3, 4, 7)),
    ("reduce_scatter", "recursive-halving", 1, (2, 4, 8, 16)),
    ("reduce_scatter", "direct", 1, (3, 4, 7)),
    ("alltoall", "linear-shift", 1, (3, 4, 7)),
    ("alltoall", "pairwise", 1, (3, 4, 7)),
]


@pytest.mark.parametrize(
    ("algorithm", "ranks", "steps"),
    [
        ("halving-doubling", 8, 6),
        ("halving-doubling", 6, 6),
        ("halving-doubling", 2, 2),
    ],
)
def test_steps_are_numbered_from_the_first_one(algorithm: str, ranks: int, steps: int) -> None:
    """2·log2 of the core; with ranks beyond it one before and one after."""
    schedule = build(make("all_reduce", ranks, 24), algorithm)
    moving = schedule.step[schedule.kind == TRANSFER]
    assert sorted(set(moving.tolist())) == list(range(steps))


@pytest.mark.parametrize(("ranks", "node_size"), [(4, 2), (12, 4), (12, 3)])
def test_groups_stage_only_what_leaves_them(ranks: int, node_size: int) -> None:
    """A rank keeps a block of each of its group for each rank of the others that it speaks to."""
    schedule = build(make("alltoall", ranks, 5), "hierarchical", node_size=node_size)
    kept = schedule.style_column("dst_buffer") == SCRATCH
    ends = (schedule.pieces.dst_offset + schedule.pieces.count)[schedule.piece[kept]]
    assert ends.max(initial=0) == 5 * (ranks - node_size)


@pytest.mark.parametrize(("name", "algorithm", "times", "sizes"), OPTIMAL)
def test_optimal_volumes_are_exact(
    name: str, algorithm: str, times: int, sizes: tuple[int, ...]
) -> None:
    for n in sizes:
        collective = make(name, n, 24)
        for nbytes in volumes(build(collective, algorithm)):
            assert nbytes.tolist() == [times * (n - 1) * collective.size_bytes / n] * n


def test_sharded_servers_carry_what_a_ring_does() -> None:
    sent, received = volumes(build(make("all_reduce", 4, 24), "parameter-server", sharded=True))
    assert sent.tolist() == received.tolist() == [2 * 3 / 4 * 96] * 4
    sent, received = volumes(build(make("all_reduce", 4, 24), "parameter-server"))
    assert sent.tolist() == received.tolist() == [3 * 96, 96, 96, 96]


@pytest.mark.parametrize("ranks", [2, 5])
def test_each_of_two_trees_moves_half_of_the_data_in_pieces(ranks: int) -> None:
    """Four pieces a tree: each goes up and down every edge of both trees."""
    collective = make("all_reduce", ranks, 64)
    half_bytes = 32 * collective.element_bytes
    schedule = build(collective, "double-binary-tree", chunk_bytes=half_bytes / 4)
    transfers = schedule.kind == TRANSFER
    assert transfers.sum() == 2 * 2 * (ranks - 1) * 4
    assert set(schedule.amount[transfers].tolist()) == {half_bytes / 4}
