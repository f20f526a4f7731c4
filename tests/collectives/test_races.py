"""check_races finds unordered accesses, and agrees with the definition on broken schedules."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from netsim.collectives.collective import Collective
from netsim.collectives.table import build
from netsim.collectives.verify import RaceError, check_races, verify
from netsim.schedule.builder import Builder
from netsim.schedule.schedule import (
    ARRIVED,
    COMPUTE,
    IN,
    IN_ORDER,
    LOCAL_COPY,
    MARK,
    OUT,
    REDUCE,
    REDUCE_INPUT,
    SCRATCH,
    TRANSFER,
    Lag,
    Schedule,
    Style,
)
from tests.collectives.collective_cases import TABLE, build_small, make
from tests.collectives.mutations import with_end, with_other_lag, with_piece, without_dependency

TO_OUT = Style(src_buffer=IN, dst_buffer=OUT)


def pair(lag: Lag | None) -> Schedule:
    """Rank 0 sends to 1, which sends on to 2; `lag` says what it waits for."""
    b = Builder(3)
    piece = b.pieces(4)
    first = b.rows(TO_OUT, 0, 1, piece)
    b.rows(Style(), 1, 2, piece, step=1, after=[] if lag is None else [(first, lag)])
    return b.finish()


def test_the_message_names_both_rows_and_the_place() -> None:
    collective = Collective("broadcast", 3, 4)
    check_races(pair(ARRIVED), collective)
    with pytest.raises(RaceError) as caught:
        check_races(pair(None), collective)
    assert isinstance(caught.value, ValueError)
    assert str(caught.value) == (
        "row 1 (transfer, rank 1 -> 2, channel 0, step 1) reads rank 1, out elements 0..3 that "
        "row 0 (transfer, rank 0 -> 1, channel 0, step 0) uses, and nothing orders the two"
    )


def test_the_end_at_the_sender_is_not_the_arrival() -> None:
    with pytest.raises(RaceError):
        check_races(pair(IN_ORDER), Collective("broadcast", 3, 4))


def test_one_channel_delivers_in_order() -> None:
    def two(channel: int) -> Schedule:
        b = Builder(3)
        piece = b.pieces([2, 2], [0, 2])
        one = b.rows(TO_OUT, 0, 1, piece[:1])
        other = b.rows(
            Style(src_buffer=IN, channel=channel), 0, 1, piece[1:], after=[(one, IN_ORDER)]
        )
        b.rows(Style(), 1, 2, b.pieces(4), after=[(other, ARRIVED)])
        return b.finish()

    check_races(two(0), Collective("broadcast", 3, 4))
    with pytest.raises(RaceError):
        check_races(two(1), Collective("broadcast", 3, 4))


def test_a_buffer_is_reused_only_after_its_last_read() -> None:
    def reuse(after_read: bool) -> Schedule:
        b = Builder(3)
        piece = b.pieces([2, 2], [0, 2], [0, 0])
        fill = b.rows(Style(src_buffer=IN, dst_buffer=SCRATCH), 0, 1, piece[:1])
        read = b.rows(Style(src_buffer=SCRATCH), 1, 2, b.pieces(2, 0, 0), after=[(fill, ARRIVED)])
        wait = read if after_read else fill
        b.rows(Style(src_buffer=IN, dst_buffer=SCRATCH), 0, 1, piece[1:], after=[(wait, IN_ORDER)])
        return b.finish()

    check_races(reuse(True), Collective("broadcast", 3, 4))
    with pytest.raises(RaceError, match=r"writes rank 1, scratch elements 0\.\.1"):
        check_races(reuse(False), Collective("broadcast", 3, 4))


def test_simultaneous_sums_race() -> None:
    b = Builder(3)
    piece = b.pieces(4)
    b.rows(TO_OUT, 0, 0, piece)
    b.rows(Style(op=REDUCE, src_buffer=IN), [1, 2], [0, 0], np.repeat(piece, 2))
    with pytest.raises(RaceError):
        check_races(b.finish(), Collective("reduce", 3, 4))


def test_in_place_copies_may_race_where_others_do_not() -> None:
    b = Builder(2)
    piece = b.pieces(2)
    b.rows(TO_OUT, [0, 1], [1, 0], np.repeat(piece, 2))
    schedule = b.finish()
    check_races(schedule, Collective("all_reduce", 2, 2))
    with pytest.raises(RaceError):
        check_races(schedule, Collective("all_reduce", 2, 2, in_place=True))


def test_a_row_may_not_overwrite_what_it_has_yet_to_read() -> None:
    b = Builder(1)
    b.rows(Style(kind=LOCAL_COPY, src_buffer=SCRATCH, dst_buffer=SCRATCH), 0, 0, b.pieces(4, 0, 1))
    with pytest.raises(RaceError, match="overwrites what it reads"):
        check_races(b.finish(), Collective("all_reduce", 1, 4))


def happens_before(schedule: Schedule) -> np.ndarray:
    """By closure over three moments of each row: start, end at the sender, arrival."""
    n = len(schedule)
    reach = np.eye(3 * n, dtype=bool)
    for row in range(n):
        style = schedule.styles[schedule.style[row]]
        start, end, arrival = 3 * row, 3 * row + 1, 3 * row + 2
        reach[start, end] = reach[end, arrival] = True
        reach[arrival, end] = style.kind in (LOCAL_COPY, MARK, COMPUTE)
        for earlier, lag in schedule.dependencies(row):
            reach[3 * earlier + (2 if lag.arrival else 1), start] = True
            same = (schedule.src, schedule.dst, schedule.style_column("channel"))
            if all(column[row] == column[earlier] for column in same) and style.kind == TRANSFER:
                kinds = {schedule.styles[schedule.style[earlier]].kind}
                reach[3 * earlier + 2, arrival] |= kinds == {TRANSFER}
    while True:
        more = (reach.astype(np.float32) @ reach.astype(np.float32)) > 0
        if (more == reach).all():
            return reach
        reach = more


def touches(
    schedule: Schedule, c: Collective
) -> dict[tuple[int, int, int], list[tuple[int, bool, int]]]:
    """For every element of every physical buffer: row, whether it writes, moment it is over."""
    found: dict[tuple[int, int, int], list[tuple[int, bool, int]]] = {}
    p = schedule.pieces
    for row in range(len(schedule)):
        style, k = schedule.styles[schedule.style[row]], schedule.piece[row]
        if style.kind in (MARK, COMPUTE):
            continue
        src, dst = int(schedule.src[row]), int(schedule.dst[row])
        uses = [
            (src, style.src_buffer, p.src_offset[k], False, 1),
            (dst, style.dst_buffer, p.dst_offset[k], True, 2),
        ]
        if style.op == REDUCE_INPUT:
            uses.append((dst, IN, p.own_offset[k], False, 2))
        for rank, buffer, offset, write, moment in uses:
            physical, base = c.location(rank, buffer)
            for element in range(base + offset, base + offset + p.count[k]):
                found.setdefault((rank, physical, element), []).append((row, write, moment))
    return found


def is_racy(schedule: Schedule, collective: Collective) -> bool:
    reach = happens_before(schedule)
    for uses in touches(schedule, collective).values():
        for i, (one, write, moment) in enumerate(uses):
            for other, writes, other_moment in uses[:i]:
                if one == other or not (write or writes):
                    continue
                ordered = (
                    reach[3 * one + moment, 3 * other] or reach[3 * other + other_moment, 3 * one]
                )
                if not ordered:
                    return True
    return False


CASES = [
    make(name, n, 3, 1, in_place)
    for name, in_place in [
        ("all_reduce", False),
        ("all_reduce", True),
        ("all_gather", False),
        ("reduce_scatter", True),
        ("reduce", False),
        ("scatter", True),
        ("alltoall", False),
    ]
    for n in (2, 3, 4)
]


@pytest.mark.slow
@settings(max_examples=90)
@given(st.data())
def test_agrees_with_the_definition_on_broken_schedules(data: st.DataObject) -> None:
    collective = data.draw(st.sampled_from(CASES))
    algorithm = data.draw(st.sampled_from([a for n, a in TABLE if n == collective.name]))
    schedule = build_small(collective, algorithm)
    for _ in range(data.draw(st.integers(0, 2))):
        if not len(schedule.dep_row):
            break
        edge = data.draw(st.integers(0, len(schedule.dep_row) - 1))
        change = data.draw(st.sampled_from([without_dependency, with_other_lag]))
        schedule = change(schedule, edge)
    if data.draw(st.booleans()):
        row = data.draw(st.integers(0, len(schedule) - 1 - collective.ranks))
        offset = data.draw(st.integers(0, 4))
        schedule = with_piece(schedule, row, dst_offset=offset)
    try:
        check_races(schedule, collective)
        racy = False
    except RaceError as error:
        racy = True
        if "overwrites what it reads" in str(error):
            return
    assert racy == is_racy(schedule, collective)


UNORDERED = {
    ("all_gather", "direct"),
    ("all_gather", "forest"),
    ("all_gather", "synth"),
    ("gather", "linear"),
    ("scatter", "linear"),
    ("alltoall", "linear-shift"),
    ("alltoall", "pairwise"),
    ("alltoallv", "linear-shift"),
    ("alltoallv", "pairwise"),
    ("sendrecv", "ring"),
    ("p2p", "direct"),
    ("barrier", "dissemination"),
}


@pytest.mark.sample(9)
@pytest.mark.slow
@pytest.mark.parametrize(("name", "algorithm"), TABLE, ids=[f"{n}-{a}" for n, a in TABLE])
def test_some_dependency_of_every_algorithm_matters(name: str, algorithm: str) -> None:
    collective = make(name, *((6, 9) if algorithm == "hierarchical" else (5, 7)))
    schedule = build_small(collective, algorithm)
    caught = 0
    for edge in range(len(schedule.dep_row)):
        try:
            check_races(without_dependency(schedule, edge), collective)
        except RaceError:
            caught += 1
    # Algorithms that only send from inputs to outputs have nothing to order.
    assert (caught == 0) == ((name, algorithm) in UNORDERED)


def test_every_arrival_in_a_ring_matters() -> None:
    collective = make("all_reduce", 5, 10)
    schedule = build(collective, "ring")
    rows = np.repeat(np.arange(len(schedule)), np.diff(schedule.dep_ptr))
    arrivals = [schedule.lags[k].arrival for k in schedule.dep_lag.tolist()]
    for edge in np.flatnonzero(arrivals).tolist():
        if rows[edge] < len(schedule) - 5:
            with pytest.raises(RaceError):
                check_races(without_dependency(schedule, edge), collective)


def test_a_wrong_sender_is_a_race_or_a_wrong_result() -> None:
    collective = make("all_reduce", 4, 8)
    schedule = with_end(build(collective, "ring"), 6, src=0)
    with pytest.raises(ValueError, match=r"row|rank"):
        verify(schedule, collective)
