"""A Collective: extents, aliasing, sizes and factors as nccl-tests has them."""

import pickle

import numpy as np
import pytest

from netsim.collectives.collective import (
    LOCAL_DATA,
    NAMES,
    Collective,
    CollectiveError,
    Expectation,
    collective_of,
)
from netsim.collectives.table import build
from netsim.collectives.writing import rank_of
from netsim.schedule.schedule import IN, OUT, SCRATCH
from tests.collectives.collective_cases import make


@pytest.mark.parametrize(
    ("name", "inputs", "outputs", "size"),
    [
        ("all_reduce", [6, 6, 6], [6, 6, 6], 24),
        ("all_gather", [6, 6, 6], [18, 18, 18], 72),
        ("reduce_scatter", [18, 18, 18], [6, 6, 6], 72),
        ("broadcast", [0, 6, 0], [6, 6, 6], 24),
        ("reduce", [6, 6, 6], [0, 6, 0], 24),
        ("gather", [6, 6, 6], [0, 18, 0], 72),
        ("scatter", [0, 18, 0], [6, 6, 6], 72),
        ("alltoall", [18, 18, 18], [18, 18, 18], 72),
        ("sendrecv", [6, 6, 6], [6, 6, 6], 24),
        ("barrier", [0, 0, 0], [0, 0, 0], 0),
    ],
)
def test_extents_and_printed_size(
    name: str, inputs: list[int], outputs: list[int], size: int
) -> None:
    root = 1 if name in ("broadcast", "reduce", "gather", "scatter") else 0
    c = Collective(name, 3, 6, root=root)
    assert [c.input_count(rank) for rank in range(3)] == inputs
    assert [c.output_count(rank) for rank in range(3)] == outputs
    assert c.size_bytes == size


def test_alltoallv_lies_packed_in_rank_order() -> None:
    c = Collective("alltoallv", 3, matrix=[[1, 2, 3], [0, 4, 0], [5, 0, 6]])
    assert [c.input_count(r) for r in range(3)] == [6, 4, 11]
    assert [c.output_count(r) for r in range(3)] == [6, 6, 9]
    assert c.size_bytes == 44
    assert c.expectations(2) == [
        Expectation(0, 3, (0,), 3),
        Expectation(3, 0, (1,), 4),
        Expectation(3, 6, (2,), 5),
    ]


def test_pairs_lie_in_the_order_given() -> None:
    c = Collective("p2p", 3, 5, pairs=[(0, 1), (0, 2), (2, 1)])
    assert [c.input_count(r) for r in range(3)] == [10, 0, 5]
    assert c.expectations(1) == [Expectation(0, 5, (0,), 0), Expectation(5, 5, (2,), 0)]
    assert c.expectations(2) == [Expectation(0, 5, (0,), 5)]


@pytest.mark.parametrize(
    ("name", "buffer", "place"),
    [
        ("all_reduce", IN, (OUT, 0)),
        ("broadcast", IN, (OUT, 0)),
        ("reduce", IN, (OUT, 0)),
        ("all_gather", IN, (OUT, 20)),
        ("all_gather", OUT, (OUT, 0)),
        ("gather", IN, (OUT, 20)),
        ("reduce_scatter", IN, (IN, 0)),
        ("reduce_scatter", OUT, (IN, 20)),
        ("scatter", OUT, (IN, 20)),
        ("scatter", SCRATCH, (SCRATCH, 0)),
    ],
)
def test_aliasing_in_place(name: str, buffer: int, place: tuple[int, int]) -> None:
    assert Collective(name, 4, 10, in_place=True).location(2, buffer) == place
    assert Collective(name, 4, 10).location(2, buffer) == (buffer, 0)


@pytest.mark.parametrize(
    ("name", "size", "element_bytes", "count", "printed"),
    [
        ("all_reduce", 1000, 4, 250, 1000),
        ("all_reduce", 1003, 4, 250, 1000),
        ("all_gather", 1000, 4, 80, 960),  # 83 a rank, rounded down to 16 bytes
        ("reduce_scatter", 1000, 2, 160, 960),
        ("alltoall", 1000, 8, 40, 960),
        ("gather", 1000, 1, 320, 960),
        ("scatter", 40, 4, 0, 0),  # less than 16 bytes a rank print as 0
        ("broadcast", 7, 4, 1, 4),
        ("sendrecv", 1024, 4, 256, 1024),
    ],
)
def test_sizes_are_rounded_as_in_nccl_tests(
    name: str, size: int, element_bytes: int, count: int, printed: int
) -> None:
    c = collective_of(name, 3, size, element_bytes)
    assert (c.count, c.size_bytes) == (count, printed)


def test_alltoallv_of_a_size_scales_its_weights() -> None:
    c = collective_of("alltoallv", 2, 400, 4, matrix=[[1, 3], [0, 1]])
    assert c.matrix == ((25, 75), (0, 25))
    assert c.size_bytes == 400
    assert collective_of("alltoallv", 2, 400, 4).matrix == ((50, 50), (50, 50))
    assert collective_of("alltoallv", 2, 400, 4, matrix=[[0, 0], [0, 0]]).size_bytes == 0


def test_bus_factors() -> None:
    factors = {name: make(name, 4).bus_factor for name in NAMES}
    assert factors == {
        "all_reduce": 1.5,
        "all_gather": 0.75,
        "reduce_scatter": 0.75,
        "broadcast": 1,
        "reduce": 1,
        "alltoall": 0.75,
        "alltoallv": 0.75,
        "gather": 0.75,
        "scatter": 0.75,
        "sendrecv": 1,
        "p2p": 1,
        "barrier": 0,
    }
    assert Collective("all_reduce", 1, 4).bus_factor == 0


@pytest.mark.parametrize(
    ("given", "field", "text"),
    [
        ({"name": "allreduce", "ranks": 2}, "collective", "(did you mean all_reduce?)"),
        ({"name": "all_reduce", "ranks": 0}, "ranks", "ranks: expected at least 1, got 0"),
        ({"name": "all_reduce", "ranks": 2, "count": -1}, "count", "at least 0, got -1"),
        ({"name": "broadcast", "ranks": 2, "root": 2}, "root", "a rank in 0..1, got 2"),
        (
            {"name": "alltoall", "ranks": 2, "in_place": True},
            "in_place",
            "in_place: alltoall does not exist in place",
        ),
        ({"name": "sendrecv", "ranks": 2, "in_place": True}, "in_place", "not exist in place"),
        ({"name": "alltoallv", "ranks": 2}, "matrix", "matrix: expected 2 rows of 2 counts"),
        ({"name": "alltoallv", "ranks": 1, "matrix": [[-1]]}, "matrix", "must not be negative"),
        (
            {"name": "alltoall", "ranks": 1, "matrix": [[1]]},
            "matrix",
            "only alltoallv has a matrix",
        ),
        ({"name": "p2p", "ranks": 2, "pairs": [(0, 2)]}, "pairs", "expected ranks in 0..1"),
        ({"name": "sendrecv", "ranks": 2, "pairs": [(0, 1)]}, "pairs", "only p2p has pairs"),
    ],
)
def test_impossible_collectives(given: dict[str, object], field: str, text: str) -> None:
    with pytest.raises(CollectiveError) as caught:
        Collective(**given)
    assert caught.value.field == field
    assert text in str(caught.value)
    assert isinstance(caught.value, ValueError)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


@pytest.mark.parametrize(
    ("collective", "algorithm", "parameters", "field", "text"),
    [
        ("all_reduce", "rings", {}, "algorithm", "algorithm: expected one of ring, tree, double-"),
        ("all_reduce", "rings", {}, "algorithm", "got 'rings' (did you mean ring?)"),
        (
            "all_reduce",
            "binomial",
            {},
            "algorithm",
            "it exists for broadcast, reduce, gather, scat",
        ),
        ("all_reduce", "ring", {"channel": 2}, "channel", "(did you mean channels?)"),
        ("all_gather", "bruck", {"k": 2}, "k", "k: bruck all_gather has no parameter, got 'k'"),
        ("all_reduce", "ring", {"channels": 0}, "channels", "a whole number from 1 up, got 0"),
        ("all_reduce", "ring", {"channels": True}, "channels", "from 1 up, got True"),
        ("broadcast", "ring", {"chunks": 1.5}, "chunks", "a whole number from 1 up, got 1.5"),
        ("broadcast", "ring", {"chunks": 1, "chunk_bytes": 8}, "chunk_bytes", "not both"),
        (
            "all_reduce",
            "hierarchical",
            {"node_size": 4},
            "node_size",
            "a divisor of 6 ranks, got 4",
        ),
        (
            "all_reduce",
            "hierarchical",
            {"groups": [[0, 1], [2, 3, 4, 5]]},
            "groups",
            "groups of equal size",
        ),
        ("all_reduce", "hierarchical", {"groups": [[0, 1, 1]]}, "groups", "ranks 0..5 once"),
        (
            "all_reduce",
            "hierarchical",
            {"groups": [[0]], "node_size": 1},
            "groups",
            "give node_size or groups, not both",
        ),
        ("all_reduce", "tree", {"root": 6}, "root", "expected a rank in 0..5, got 6"),
        ("all_reduce", "parameter-server", {"root": -1}, "root", "a rank in 0..5, got -1"),
    ],
)
def test_impossible_algorithms(
    collective: str, algorithm: str, parameters: dict[str, object], field: str, text: str
) -> None:
    with pytest.raises(CollectiveError) as caught:
        build(make(collective, 6), algorithm, **parameters)
    assert caught.value.field == field
    assert text in str(caught.value)


def test_sizes_need_no_walk_over_the_ranks() -> None:
    assert Collective("all_gather", 2**40, 1).size_bytes == 2**42


@pytest.mark.parametrize("name", ["all_reduce", "reduce_scatter", "reduce", "sendrecv"])
def test_what_is_summed_or_sent_stays_only_where_there_is_nobody_else(name: str) -> None:
    assert LOCAL_DATA[name](Collective(name, 1, 12), 0) == (0, 0, 12)
    assert LOCAL_DATA[name](Collective(name, 3, 12), 2) == (0, 0, 0)


def test_a_rank_is_a_number_of_those_that_there_are() -> None:
    assert [rank_of("root", value, 4) for value in (0, 3, np.int64(2))] == [0, 3, 2]
    for wrong in (True, False, "1", 1.0, None, -1, 4):
        with pytest.raises(CollectiveError, match=r"expected a rank in 0\.\.3, got"):
            rank_of("root", wrong, 4)


def test_an_alltoallv_of_equal_blocks_prints_the_count_of_an_alltoall():
    equal, uneven = (collective_of(name, 8, 1 << 20) for name in ("alltoall", "alltoallv"))
    assert uneven.printed_count == equal.count > 0
