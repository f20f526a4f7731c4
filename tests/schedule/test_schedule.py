"""Schedules and their Builder: what is written is what is read, and nothing impossible."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netsim.collectives.writing import edges
from netsim.schedule.builder import Builder, compute_style
from netsim.schedule.schedule import ARRIVED, IN, IN_ORDER, MULTICAST, Lag, Style, Use, combine


def test_rows_come_back_as_they_were_written() -> None:
    b = Builder(4, element_bytes=4)
    halves = b.pieces(count=[2, 3], src_offset=[0, 2])
    first = b.rows(Style(src_buffer=IN), src=[0, 1], dst=[1, 0], piece=halves)
    slow = Lag(2e-6, arrival=False)
    second = b.rows(Style(channel=7), [1, 0], [2, 3], halves, step=1, after=[(first, slow)])
    schedule = b.finish()
    assert len(schedule) == 4
    assert schedule.amount.tolist() == [8, 12, 8, 12]
    assert schedule.dependencies(int(second[1])) == [(1, slow)]
    assert schedule.describe(3) == "row 3 (transfer, rank 0 -> 3, channel 7, step 1)"


def test_missing_and_joined_dependencies() -> None:
    b = Builder(3)
    a = b.marks([0, 1, 2])
    c = b.marks([0, 1], after=[([a[0], -1], ARRIVED), (a[:2], IN_ORDER)])
    d = b.marks([2], joins=([0, 3], [a[2], c[0], c[1]], ARRIVED))
    schedule = b.finish()
    assert [d for d, _ in schedule.dependencies(3)] == [0, 0]
    assert [d for d, _ in schedule.dependencies(4)] == [1]
    assert [e for e, _ in schedule.dependencies(int(d[0]))] == [2, 3, 4]


def test_a_cycle_cannot_be_written() -> None:
    b = Builder(2)
    b.marks([0])
    with pytest.raises(ValueError, match="row 1 depends on row 1, which does not come earlier"):
        b.marks([1], after=[([1], ARRIVED)])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda b: b.rows(Style(), 0, 9, b.pieces(1)), "dst: expected numbers in 0..1"),
        (lambda b: b.rows(Style(), 0, 1, 5), "piece: expected numbers"),
        (lambda b: b.pieces(-1), "must not be negative"),
        (lambda b: b.work(-1.0), "expected finite seconds"),
        (lambda b: b.group([0, 0]), "expected different ranks"),
        (lambda b: b.release([3], 0.0), "release: unknown row"),
        (lambda b: b.marks([0], joins=([0, 2], [0], ARRIVED)), "pointers do not fit"),
        (lambda b: Style(cap=0.0), "cap: expected a positive rate, got 0.0"),
        (lambda b: Style(share=-1.0), "share: expected a positive number"),
        (lambda b: Style(latency=-1.0), "latency: expected seconds"),
        (lambda b: Lag(-1e-9), "lag: expected seconds from 0 up"),
        (lambda b: Use("gpu", "src", 1.0), "resource: expected one of sm, sms"),
        (lambda b: Builder(0), "ranks: expected at least 1, got 0"),
    ],
)
def test_misuse_is_refused(make, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make(Builder(2))


def test_columns_cannot_be_written_afterwards() -> None:
    b = Builder(1)
    b.marks([0])
    with pytest.raises(ValueError, match="read-only"):
        b.finish().src[0] = 1


@given(st.integers(0, 10**12), st.integers(1, 300))
def test_chunks_add_up_and_differ_by_at_most_one(count: int, parts: int) -> None:
    bounds = edges(count, parts)
    lengths = np.diff(bounds)
    assert (bounds[0], bounds[-1], len(lengths)) == (0, count, parts)
    assert lengths.max() - lengths.min() <= 1


def test_combined_schedules_keep_to_themselves() -> None:
    b = Builder(2, element_bytes=2, collectives=["x"])
    group = b.group([0, 1])
    p = b.pieces(8)
    first = b.rows(Style(kind=MULTICAST), 0, group, p)
    b.rows(Style(), 1, 0, p, after=[(first, ARRIVED)])
    b.release([0], 1e-6)
    b.rows(compute_style(), 0, 0, b.work(1e-3))
    one = b.finish()
    both = combine([one, one], [[3, 1], [0, 2]], 4)
    assert both.ranks == 4
    assert both.members(0) == ((3,), (3, 1))
    assert both.members(3) == ((0,), (0, 2))
    assert both.members(4) == ((2,), (0,))
    assert both.dependencies(4) == [(3, ARRIVED)]
    assert both.release_row.tolist() == [0, 3]
    assert both.collectives == ("x", "x")
    assert both.amount.tolist() == [16, 16, 1e-3] * 2


def test_memory_of_a_row() -> None:
    n, steps = 64, 126
    b = Builder(n)
    rank = np.tile(np.arange(n, dtype=np.int32), steps)
    row = np.arange(n * steps, dtype=np.int32)
    before = np.where(row >= n, row - n, -1)
    b.rows(
        Style(), rank, (rank + 1) % n, b.pieces(1), after=[(before, ARRIVED), (before, IN_ORDER)]
    )
    schedule = b.finish()
    assert schedule.nbytes / len(schedule) <= 37


def test_no_new_rows_may_wait_for_no_earlier_rows() -> None:
    """An algorithm on one rank appends marks for its other ranks, of which there are none."""
    builder = Builder(1)
    assert len(builder.marks([], after=[([], ARRIVED)])) == 0
    assert len(builder.finish()) == 0
