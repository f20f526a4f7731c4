"""What ranks hold step by step: the textbook ring of five, and other shapes of data."""

from collections.abc import Callable

import pytest

from netsim.collectives.table import build
from netsim.collectives.verify import Chunk, Holding, render_text, states
from tests.collectives.collective_cases import TABLE, make

RING_OF_FIVE = """\
at the start  a   b   c   d   e
rank 0        a0  b0  c0  d0  e0
rank 1        a1  b1  c1  d1  e1
rank 2        a2  b2  c2  d2  e2
rank 3        a3  b3  c3  d3  e3
rank 4        a4  b4  c4  d4  e4

after step 0  a      b      c      d      e
rank 0        a0     b0     c0     d0     e0+e4
rank 1        a0+a1  b1     c1     d1     e1
rank 2        a2     b1+b2  c2     d2     e2
rank 3        a3     b3     c2+c3  d3     e3
rank 4        a4     b4     c4     d3+d4  e4

after step 1  a         b         c         d         e
rank 0        a0        b0        c0        d0+d3+d4  e0+e4
rank 1        a0+a1     b1        c1        d1        e0+e1+e4
rank 2        a0+a1+a2  b1+b2     c2        d2        e2
rank 3        a3        b1+b2+b3  c2+c3     d3        e3
rank 4        a4        b4        c2+c3+c4  d3+d4     e4

after step 2  a            b            c            d            e
rank 0        a0           b0           c0+c2+c3+c4  d0+d3+d4     e0+e4
rank 1        a0+a1        b1           c1           d0+d1+d3+d4  e0+e1+e4
rank 2        a0+a1+a2     b1+b2        c2           d2           e0+e1+e2+e4
rank 3        a0+a1+a2+a3  b1+b2+b3     c2+c3        d3           e3
rank 4        a4           b1+b2+b3+b4  c2+c3+c4     d3+d4        e4

after step 3  a                b                c                d                e
rank 0        a0               b0+b1+b2+b3+b4*  c0+c2+c3+c4      d0+d3+d4         e0+e4
rank 1        a0+a1            b1               c0+c1+c2+c3+c4*  d0+d1+d3+d4      e0+e1+e4
rank 2        a0+a1+a2         b1+b2            c2               d0+d1+d2+d3+d4*  e0+e1+e2+e4
rank 3        a0+a1+a2+a3      b1+b2+b3         c2+c3            d3               e0+e1+e2+e3+e4*
rank 4        a0+a1+a2+a3+a4*  b1+b2+b3+b4      c2+c3+c4         d3+d4            e4

after step 7  a                b                c                d                e
rank 0        a0+a1+a2+a3+a4*  b0+b1+b2+b3+b4*  c0+c1+c2+c3+c4*  d0+d1+d2+d3+d4*  e0+e1+e2+e3+e4*
rank 1        a0+a1+a2+a3+a4*  b0+b1+b2+b3+b4*  c0+c1+c2+c3+c4*  d0+d1+d2+d3+d4*  e0+e1+e2+e3+e4*
rank 2        a0+a1+a2+a3+a4*  b0+b1+b2+b3+b4*  c0+c1+c2+c3+c4*  d0+d1+d2+d3+d4*  e0+e1+e2+e3+e4*
rank 3        a0+a1+a2+a3+a4*  b0+b1+b2+b3+b4*  c0+c1+c2+c3+c4*  d0+d1+d2+d3+d4*  e0+e1+e2+e3+e4*
rank 4        a0+a1+a2+a3+a4*  b0+b1+b2+b3+b4*  c0+c1+c2+c3+c4*  d0+d1+d2+d3+d4*  e0+e1+e2+e3+e4*
"""


@pytest.mark.parametrize("in_place", [False, True])
def test_ring_all_reduce_of_five(in_place: bool) -> None:
    collective = make("all_reduce", 5, 10, in_place=in_place)
    value = states(build(collective, "ring"), collective)
    assert render_text(value, steps=[-1, 0, 1, 2, 3, 7]) == RING_OF_FIVE
    assert value.chunks[1] == Chunk("b", 2, 4)
    complete = [sum(h.complete for held in s.held for h in held) for s in value.states]
    # One complete chunk a GPU after the reduce-scatter half, one more a step in the other half.
    assert complete == [0, 0, 0, 0, 5, 10, 15, 20, 25]
    assert value.states[2].held[2][0] == Holding((0, 1, 2), False)


def test_all_gather_of_three() -> None:
    collective = make("all_gather", 3, 10)
    assert (
        render_text(states(build(collective, "bruck"), collective))
        == """\
at the start  a    b    c
rank 0        a0*  -    -
rank 1        -    b1*  -
rank 2        -    -    c2*

after step 0  a    b    c
rank 0        a0*  b1*  -
rank 1        -    b1*  c2*
rank 2        a0*  -    c2*

after step 1  a    b    c
rank 0        a0*  b1*  c2*
rank 1        a0*  b1*  c2*
rank 2        a0*  b1*  c2*
"""
    )


def test_long_sums_are_shortened() -> None:
    collective = make("reduce", 9, 2)
    value = states(build(collective, "binomial"), collective)
    assert render_text(value, steps=[3]).splitlines()[:3] == [
        "after step 3  a",
        "rank 0        a[0-8]*",
        "rank 1        a1+a3+a5+a7",
    ]
    assert "a[1,3,5,7]" in render_text(value, most_terms=3)
    assert "a1+a3+a5+a7" in render_text(value, most_terms=4)


def test_letters_go_on_after_z() -> None:
    collective = make("all_gather", 30, 1)
    labels = [c.label for c in states(build(collective, "direct"), collective).chunks]
    assert labels[:2] + labels[25:28] == ["a", "b", "z", "aa", "ab"]


@pytest.mark.parametrize(("name", "algorithm"), TABLE, ids=[f"{n}-{a}" for n, a in TABLE])
def test_everything_expected_is_complete_in_the_end(name: str, algorithm: str) -> None:
    collective = make(name, 4, 5, root=1 if name in ("gather", "reduce") else 0)
    value = states(build(collective, algorithm), collective)
    steps = [state.step for state in value.states]
    assert steps == sorted(set(steps))
    assert steps[0] == -1
    wanted: dict[str, Callable[[int], set[int]]] = {
        "all_reduce": lambda rank: set(range(4)),
        "reduce": lambda rank: set(range(4)) if rank == 1 else set(),
        "broadcast": lambda rank: {0},
        "all_gather": lambda rank: set(range(4)),
        "gather": lambda rank: set(range(4)) if rank == 1 else set(),
        "alltoall": lambda rank: set(range(4)),
    }
    for rank, held in enumerate(value.states[-1].held):
        found = {origin for h in held if h.complete for origin in h.origins}
        assert found >= wanted.get(name, lambda rank: set())(rank)
