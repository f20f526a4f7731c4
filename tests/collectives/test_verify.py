"""verify finds what is missing, double, foreign, unwritten, or read too early."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from netsim.collectives.collective import Collective
from netsim.collectives.table import build
from netsim.collectives.verify import VerificationError, check_races, verify
from netsim.schedule.builder import Builder
from netsim.schedule.schedule import (
    ARRIVED,
    IN,
    MULTICAST,
    OUT,
    REDUCE,
    SCRATCH,
    SWITCH_REDUCE,
    TRANSFER,
    Schedule,
    Style,
    combine,
)
from tests.collectives.collective_cases import TABLE, build_small, make
from tests.collectives.mutations import (
    MUTATIONS,
    mutate,
    with_end,
    with_piece,
    with_row_twice,
    with_style,
    without_dependency,
    without_row,
)
from tests.collectives.numeric_run import Numbers

RING = make("all_reduce", 4, 8)


def message(schedule: Schedule, collective: Collective = RING) -> str:
    with pytest.raises(VerificationError) as caught:
        verify(schedule, collective)
    assert isinstance(caught.value, ValueError)
    return str(caught.value)


def test_a_schedule_of_nothing() -> None:
    schedule = Builder(4).finish()
    assert message(schedule) == "rank 0, out elements 0..7: never written"


def test_missing() -> None:
    # In its second step rank 0 passes on its own input, not the sum with what it has received.
    text = message(with_style(build(RING, "ring"), 4, src_buffer=IN))
    assert text == "rank 0, out elements 6..7: missing the contribution of rank 3"


def test_double() -> None:
    schedule = build(make("reduce", 3), "binomial")
    rows = np.flatnonzero(schedule.style_column("op") == REDUCE)
    text = message(with_row_twice(schedule, int(rows[0])), make("reduce", 3))
    assert text == "rank 0, out elements 0..2: double the contribution of rank 1"


def test_foreign_ranks() -> None:
    schedule = build(make("broadcast", 3, root=1), "binomial")
    text = message(schedule, make("broadcast", 3, root=2))
    assert text.startswith("row 0 (local_copy, rank 1 -> 1, channel 0, step 0) reads rank 1, in")
    # Rank 2 sends its block where rank 1 should.
    c = make("all_gather", 3, 2)
    schedule = build(c, "direct")
    row = int(np.flatnonzero((schedule.src == 1) & (schedule.dst == 0))[0])
    assert message(with_end(schedule, row, src=2), c) == (
        "rank 0, out elements 2..3: missing the contribution of rank 1; "
        "foreign the contribution of rank 2"
    )


def test_foreign_elements() -> None:
    c = make("scatter", 3, 2)
    schedule = build(c, "linear")
    row = int(np.flatnonzero(schedule.dst == 1)[-2])
    text = message(with_piece(schedule, row, src_offset=1), c)
    assert text == "rank 1, out elements 0..0: foreign elements, -1 from those expected"


def test_elements_of_different_places_do_not_add_up() -> None:
    text = message(with_piece(build(RING, "ring"), 0, src_offset=1))
    assert text == (
        "row 0 (transfer, rank 0 -> 1, channel 0, step 0) adds elements from different places of "
        "the input (1 and 0)"
    )


def test_read_before_written() -> None:
    schedule = without_row(build(RING, "ring"), 0)
    assert message(schedule) == (
        "row 5 (transfer, rank 1 -> 2, channel 0, step 1) reads rank 1, out elements 0..1 before "
        "they are written"
    )


def test_the_input_must_stay() -> None:
    schedule = with_style(build(RING, "ring"), 0, dst_buffer=IN)
    assert message(schedule).endswith("overwrites the input")


def test_writes_beyond_the_end() -> None:
    schedule = build(RING, "ring")
    assert message(with_piece(schedule, 3, dst_offset=7)).endswith(
        "writes rank 0, out elements 7..8: there are only 8"
    )


def test_counts_of_contributions_cannot_overflow() -> None:
    b = Builder(1)
    all_of_it = b.pieces(1)
    row = b.rows(Style(src_buffer=IN, dst_buffer=OUT), 0, 0, all_of_it)
    for _ in range(16):
        row = b.rows(Style(op=REDUCE), 0, 0, all_of_it, after=[(row, ARRIVED)])
    assert message(b.finish(), make("all_reduce", 1, 1)).endswith(
        "adds one rank's contribution 32768 times or more"
    )


def test_folded_schedules_are_refused() -> None:
    schedule = with_style(build(RING, "ring"), 0, multiplicity=2)
    assert message(schedule).endswith("is folded: verify the unfolded")


def test_rows_must_stay_inside_the_collective() -> None:
    assert message(build(RING, "ring"), make("all_reduce", 3, 8)).endswith("outside the collective")


def test_unknown_collective_number() -> None:
    with pytest.raises(ValueError, match=r"which: expected 0\.\.0, got 1"):
        verify(build(RING, "ring"), RING, 1)


def test_a_barrier_waits_for_everyone() -> None:
    barrier = make("barrier", 4)
    schedule = build(barrier, "dissemination")
    verify(schedule, barrier)
    lags = [schedule.lags[k].arrival for k in schedule.dep_lag.tolist()]
    for edge in np.flatnonzero(lags).tolist():
        text = message(without_dependency(schedule, edge), barrier)
        assert "leaves the barrier without rank" in text
    assert message(with_end(schedule, 0, dst=2), barrier) == (
        "rank 1 leaves the barrier without rank 0"
    )


def nvls(n: int, count: int, *, skip: bool = False) -> Schedule:
    """An all-reduce as NVLink SHARP does it: reduced in the switch, and multicast from there."""
    b = Builder(n, 4)
    group = b.group(range(1 if skip else 0, n))
    everyone = b.group(range(n))
    piece = b.pieces(np.full(2, count // 2), np.array([0, count // 2]))
    reduce = Style(kind=SWITCH_REDUCE, src_buffer=IN, dst_buffer=SCRATCH)
    spread = Style(kind=MULTICAST, src_buffer=SCRATCH, dst_buffer=OUT)
    there = b.rows(reduce, group, [0, 1], piece)
    b.rows(spread, [0, 1], everyone, piece, after=[(there, ARRIVED)])
    return b.finish()


def test_multicast_and_switch_reduce() -> None:
    for in_place in (False, True):
        collective = make("all_reduce", 4, 6, in_place=in_place)
        verify(nvls(4, 6), collective)
        check_races(nvls(4, 6), collective)
    assert message(nvls(4, 6, skip=True), make("all_reduce", 4, 6)).endswith(
        "missing the contribution of rank 0"
    )


def test_communicators_side_by_side() -> None:
    c = make("all_gather", 3, 5)
    schedules = [build(c, "bruck"), build(c, "ring")]
    groups = [[4, 0, 2], [1, 3, 5]]
    both = combine(schedules, groups, 6)
    for which in (0, 1):
        verify(both, c, which, members=groups[which])
        check_races(both, c, which, members=groups[which])
    with pytest.raises(VerificationError, match="missing"):
        verify(both, c, 0, members=[0, 4, 2])
    with pytest.raises(ValueError, match="members: expected 3 ranks, got 2"):
        verify(both, c, 0, members=[0, 4])


@pytest.mark.sample(25)
@pytest.mark.slow
@pytest.mark.parametrize(("name", "algorithm"), TABLE, ids=[f"{n}-{a}" for n, a in TABLE])
def test_every_row_counts(name: str, algorithm: str) -> None:
    collective = make(name, *((6, 9) if algorithm == "hierarchical" else (5, 7)))
    schedule = build_small(collective, algorithm)
    moving = np.flatnonzero((schedule.kind == TRANSFER) & (schedule.count > 0)).tolist()
    caught = 0
    for row in moving:
        try:
            verify(without_row(schedule, row), collective)
        except VerificationError:
            caught += 1
    if algorithm == "scatter-allgather":  # the ring hands out again what inner ranks have
        assert 0 < caught < len(moving)
    else:
        assert caught == len(moving)


CASES = [
    make(name, n, 5, n - 1, in_place)
    for name, in_place in [
        ("all_reduce", False),
        ("all_reduce", True),
        ("all_gather", True),
        ("reduce_scatter", True),
        ("alltoallv", False),
        ("gather", False),
        ("scatter", True),
        ("p2p", False),
    ]
    for n in (3, 4, 6)
]
STRICT = ("before they are written", "different places", "there are only", "overwrites the input")


@pytest.mark.slow
@settings(max_examples=120)
@given(st.data())
def test_verify_agrees_with_numbers_on_broken_schedules(data: st.DataObject) -> None:
    collective = data.draw(st.sampled_from(CASES))
    algorithm = data.draw(st.sampled_from([a for n, a in TABLE if n == collective.name]))
    schedule = build_small(collective, algorithm)
    moving = np.flatnonzero(schedule.count > 0).tolist()
    for _ in range(data.draw(st.integers(1, 2))):
        row, what = data.draw(st.sampled_from(moving)), data.draw(st.integers(0, MUTATIONS - 1))
        schedule = mutate(schedule, min(row, len(schedule) - 1), what, data.draw(st.integers(0, 9)))
    numbers = Numbers(collective)
    numbers.run(schedule)
    fault = ""
    try:
        verify(schedule, collective)
    except VerificationError as error:
        fault = str(error)
    # What verify accepts is right; what is right, it refuses only for what numbers cannot show.
    assert numbers.right() or fault
    assert not (numbers.right() and fault) or any(text in fault for text in STRICT), fault
