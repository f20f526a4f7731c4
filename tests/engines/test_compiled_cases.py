"""Cases with known answers, and those that the compiled engine treats in a way of its own."""

from math import inf

import numpy as np
import pytest

from netsim.base.errors import StalledError
from netsim.collectives.collective import collective_of
from netsim.collectives.table import build
from netsim.engines import simpy
from netsim.engines.compiled import engine as compiled_engine
from netsim.program.place import place
from netsim.program.program import LinkTable, Paths, Program, Timeline
from netsim.schedule.builder import Builder
from netsim.schedule.schedule import ARRIVED, COMPUTE, LOCAL_COPY, Style
from netsim.topology.routing import switch

Ends = list[tuple[int, ...]]
PLAIN = Style()


def program(
    builder: Builder,
    capacity: list[float],
    paths: Ends,
    path: list[int],
    changes: tuple[tuple[float, int, float], ...] = (),
    weight: float = 1.0,
) -> Program:
    """Rows on paths that are given as links; every use counts."""
    links = np.array([link for one in paths for link in one], np.int32)
    ptr = np.cumsum([0, *map(len, paths)])
    weights, active = np.full(len(links), weight), np.ones(len(links), bool)
    table = LinkTable("L{}".format, str, np.array(capacity), np.zeros(len(capacity)), changes)
    return Program(
        builder.finish(),
        np.array(path, np.int32),
        Paths(ptr, links, weights, active, np.zeros(len(paths))),
        table,
        tuple(map(str, range(builder.ranks))),
    )


def flows(
    paths: Ends, amounts: list[float], capacity: list[float], style: Style = PLAIN, **given: object
) -> Timeline:
    """All flows at once, one on each path."""
    builder = Builder(2)
    builder.rows(style, 0, 1, builder.work(amounts))
    return compiled_engine.run(program(builder, capacity, paths, list(range(len(paths))), **given))


def test_one_flow_takes_amount_by_capacity() -> None:
    assert flows([(0,)], [6.0], [2.0]).end.tolist() == [3.0]


def test_a_flow_that_ends_leaves_its_rate_to_the_other() -> None:
    assert flows([(0,), (0,)], [1.0, 3.0], [2.0]).end.tolist() == [1.0, 2.0]


def test_the_textbook_line_network() -> None:
    """Flow 0 crosses both links; flow 1 shares the narrow one, flow 2 gets the rest of the wide."""
    ends = flows([(0, 1), (0,), (1,)], [1.0, 1.0, 9.0], [2.0, 10.0]).end
    np.testing.assert_allclose(ends, [1.0, 1.0, 1.0])


def shares(engine: object, *given: tuple[float, float, float]) -> list[float]:
    """Ends of flows of (share, cap, amount) that start together on one link of capacity 4."""
    builder = Builder(2)
    for share, cap, amount in given:
        builder.rows(Style(share=share, cap=cap), 0, 1, builder.work(amount))
    return engine.run(program(builder, [4.0], [(0,)], [0] * len(given))).end.tolist()  # type: ignore[attr-defined]


@pytest.mark.parametrize("engine", [simpy, compiled_engine])
def test_a_tiny_share_takes_what_the_others_leave(engine: object) -> None:
    """1e-15 is lost beside 3 in one float, but not when the other has stopped at its cap."""
    ends = shares(engine, (3.0, 1.0, 9.0), (1e-15, 20.0, 6.0), (1e-6, 1.0, 9.0))
    np.testing.assert_allclose(ends, [9.0, 3.0, 9.0], rtol=1e-12)


@pytest.mark.parametrize("engine", [simpy, compiled_engine])
def test_a_cap_that_rounding_keeps_from_being_reached(engine: object) -> None:
    cap = 0.19030921581284319
    assert cap / 3.0 * 3.0 < cap
    np.testing.assert_allclose(shares(engine, *[(3.0, cap, cap)] * 2), [1.0, 1.0])


@pytest.mark.parametrize("engine", [simpy, compiled_engine])
@pytest.mark.parametrize("share", [0.5, 1.0, 2.0])
def test_a_cap_is_what_a_flow_may_draw_whatever_its_share(engine: object, share: float) -> None:
    """Two of 3 share a link of 4; two of 1.5 leave room."""
    assert shares(engine, *[(share, 3.0, 6.0)] * 2) == [3.0, 3.0]
    assert shares(engine, *[(share, 1.5, 6.0)] * 2) == [4.0, 4.0]


def test_weights_are_units_of_the_resource_per_byte() -> None:
    assert flows([(0,)], [6.0], [2.0], weight=0.5).end.tolist() == [1.5]


def test_without_any_limit_a_flow_ends_at_once() -> None:
    assert flows([(0,)], [6.0], [inf]).end.tolist() == [0.0]


def test_a_cap_limits_where_no_link_does() -> None:
    assert flows([()], [6.0], [], Style(kind=LOCAL_COPY, cap=3.0)).end.tolist() == [2.0]


def test_a_gpu_computes_one_second_a_second() -> None:
    assert flows([()], [6.0], [], Style(kind=COMPUTE)).end.tolist() == [6.0]


def test_capacity_that_comes_back_lets_a_flow_go_on() -> None:
    changes = ((1.0, 0, 0.0), (5.0, 0, 4.0))
    assert flows([(0,)], [6.0], [2.0], changes=changes).end.tolist() == [6.0]


def test_an_empty_program() -> None:
    assert len(compiled_engine.run(program(Builder(1), [], [], []))) == 0


def test_a_stall_names_ranks_rows_and_links() -> None:
    builder = Builder(3)
    first = builder.rows(Style(), 0, 1, builder.work(8.0))
    builder.rows(Style(), 1, 2, builder.work(8.0), after=[(first, ARRIVED)])
    stuck = program(builder, [2.0, 2.0], [(0,), (1,)], [0, 1], ((1.0, 0, 0.0),))
    messages = []
    for engine in (simpy, compiled_engine):
        with pytest.raises(StalledError) as caught:
            engine.run(stuck)
        messages.append(str(caught.value))
    assert messages[0] == messages[1]
    assert "1 rows stand still and 1 more wait" in messages[1]
    assert "L0" in messages[1]


@pytest.mark.parametrize("release", [0.0, 1.0])
def test_more_at_once_than_there_are_places_at_first(release: float) -> None:
    """Each of 3,000 flows has a link, a cap and an alarm of its own; the agendas have to grow."""
    count = 3000
    builder = Builder(2)
    styles = [builder.style(Style(cap=cap)) for cap in (1.0, 2.0, inf)]
    rows = builder.rows(np.array(styles)[np.arange(count) % 3], 0, 1, builder.work(np.ones(count)))
    builder.release(rows, release * (1 + np.arange(count)))
    links = [(i,) for i in range(count)]
    got = compiled_engine.run(program(builder, [4.0] * count, links, list(range(count))))
    rate = np.array([1.0, 2.0, 4.0])[np.arange(count) % 3]
    np.testing.assert_allclose(got.end, release * (1 + np.arange(count)) + 1 / rate)


def test_many_kinds_of_rows_on_many_paths() -> None:
    """So many (share, cap) pairs that groups are looked up by row."""
    count = 1200
    builder = Builder(2)
    styles = [builder.style(Style(cap=1.0 + i)) for i in range(count)]
    builder.rows(styles, 0, 1, builder.work(np.ones(count)))
    links = [(i,) for i in range(count)]
    got = compiled_engine.run(program(builder, [inf] * count, links, list(range(count))))
    np.testing.assert_allclose(got.end, 1 / (1.0 + np.arange(count)))


def all_to_all(ranks: int) -> Program:
    builder = Builder(ranks)
    src, dst = (x.ravel() for x in np.meshgrid(*2 * [np.arange(ranks)], indexing="ij"))
    src, dst = src[src != dst], dst[src != dst]
    builder.rows(Style(), src, dst, builder.work(7.0))
    paths = [(int(s), ranks + int(d)) for s, d in zip(src, dst, strict=True)]
    return program(builder, [3.0] * 2 * ranks, paths, list(range(len(paths))))


def test_symmetric_flows_end_in_one_instant_to_the_last_bit() -> None:
    ends = compiled_engine.run(all_to_all(60)).end
    assert len(np.unique(ends)) == 1
    np.testing.assert_allclose(ends, 7.0 * 59 / 3)


def test_equal_input_gives_equal_bytes() -> None:
    one, other = (compiled_engine.run(all_to_all(20)) for _ in range(2))
    assert one.end.tobytes() == other.end.tobytes()


def test_progress_is_reported_while_machine_code_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("netsim.engines.compiled.engine.LOOK", 1e-4)
    ring = place(build(collective_of("all_reduce", 512, 1 << 20), "ring"), switch(512, 1e9, 1e-6))
    seen: list[tuple[int, int, float]] = []
    makespan = compiled_engine.run(ring, progress=lambda *now: seen.append(now)).makespan
    assert len(seen) > 1
    assert seen == sorted(seen)
    assert all(0 <= done <= rows == len(ring) and now <= makespan for done, rows, now in seen)


def test_flows_of_one_group_end_in_the_order_of_their_amounts() -> None:
    amounts = np.random.default_rng(5).permutation(np.arange(1.0, 201.0))
    builder = Builder(2)
    builder.rows(Style(), 0, 1, builder.work(amounts))
    alike = program(builder, [1.0], [(0,)], [0] * 200)
    got, expected = compiled_engine.run(alike), simpy.run(alike)
    np.testing.assert_allclose(got.end, expected.end, rtol=1e-12)


@pytest.mark.parametrize("run", [simpy.run, compiled_engine.run], ids=["simpy", "compiled"])
@pytest.mark.parametrize(("apart", "joined"), [(0.9e-14, True), (1.2e-14, False)])
def test_what_is_nearer_than_the_14th_digit_is_one_instant(run, apart: float, joined: bool) -> None:
    """A row that may start just after another starts with it, at its time."""
    builder, later = Builder(2), 1.0 + apart
    rows = builder.rows(PLAIN, 0, 1, builder.work([2.0, 2.0]))
    builder.release(rows, np.array([1.0, later]))
    found = run(program(builder, [2.0], [(0,)], [0, 0]))
    assert found.start.tolist() == [1.0, 1.0 if joined else later]
