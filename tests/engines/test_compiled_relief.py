"""Resources that nobody has to look at are those that can never be full, and only those."""

from dataclasses import replace

import numpy as np
import pytest

from netsim.engines import simpy
from netsim.engines.compiled import engine as compiled_engine
from netsim.engines.compiled.grouping import group_rows
from netsim.program.place import place
from netsim.program.program import Program
from netsim.schedule.builder import Builder
from netsim.schedule.schedule import IN_ORDER, Schedule, Style, Use
from netsim.topology.routing import switch

RATE = 4.0  # of a link: bytes a second


def files(count: int, rows: int, cap: float, *, chained: bool = True) -> Schedule:
    """So many files of rows from rank 0 to rank 1, each row of at most `cap` bytes a second."""
    builder = Builder(2)
    piece = builder.pieces(np.arange(1, rows + 1))
    before = np.full(count, -1)
    for row in range(rows):
        after = [(before, IN_ORDER)] if chained and row else []
        before = builder.rows(
            Style(cap=cap), np.zeros(count), np.ones(count), piece[row], after=after
        )
    return builder.finish()


def looked_at(program: Program) -> int:
    """How many links the engine shares out."""
    return len(group_rows(program).links)


@pytest.mark.parametrize(
    ("count", "cap", "chained", "shared"),
    [
        (1, 4.0, True, False),  # caps alone fill it: nobody is slowed
        (2, 2.0, True, False),
        (3, 1.0, True, False),
        (2, 2.1, True, True),
        (3, 2.0, True, True),
        (1, 1.0, False, True),  # five at once
        (1, np.inf, True, True),  # the link itself is what bounds
    ],
)
def test_a_link_is_left_out_if_files_at_their_caps_fit(
    count: int, cap: float, chained: bool, shared: bool
) -> None:
    program = place(files(count, 5, cap, chained=chained), switch(2, RATE, 0.0))
    assert (looked_at(program) > 0) == shared
    expected, got = simpy.run(program), compiled_engine.run(program)
    np.testing.assert_allclose(got.end, expected.end, rtol=1e-12)


def test_a_link_that_fails_for_a_while_is_looked_at() -> None:
    program = place(files(1, 5, 1.0), switch(2, RATE, 0.0))
    first = int(program.paths.link[0])
    changes = ((1.5, first, 0.5), (9.0, first, RATE))
    slowed = replace(program, links=replace(program.links, changes=changes))
    assert looked_at(program) == 0
    assert looked_at(slowed) > 0
    expected, got = simpy.run(slowed), compiled_engine.run(slowed)
    np.testing.assert_allclose(got.end, expected.end, rtol=1e-12)
    assert got.makespan > compiled_engine.run(program).makespan


def test_what_follows_the_same_row_is_not_in_one_file() -> None:
    builder = Builder(2)
    piece = builder.pieces([8])[0]
    style = Style(cap=3.0)
    first = builder.rows(style, 0, 1, piece)
    builder.rows(style, [0, 0], [1, 1], piece, after=[(np.repeat(first, 2), IN_ORDER)])
    program = place(builder.finish(), switch(2, RATE, 0.0))
    assert looked_at(program) > 0
    np.testing.assert_allclose(compiled_engine.run(program).end, simpy.run(program).end, rtol=1e-12)
    assert compiled_engine.run(program).makespan == pytest.approx(8 / 3 + 16 / RATE)


def is_looked_at(program: Program, kind: str) -> bool:
    """Whether any resource of a kind is."""
    kinds = np.array([program.links.kind(number) for number in range(len(program.links))])
    return bool((group_rows(program).number[kinds == kind] >= 0).any())


def in_and_out(memory: float, rows: int) -> Program:
    """So many rows at once from rank 0 to rank 1 and back, two bytes of memory for each byte."""
    builder = Builder(2)
    piece = builder.pieces(np.arange(1, rows + 1))
    style = Style(uses=(Use("hbm", "src", 2.0), Use("hbm", "dst", 2.0)))
    sides = np.repeat([0, 1], rows)
    builder.rows(style, sides, 1 - sides, np.tile(piece, 2))
    both = replace(switch(2, RATE, 0.0), capacities={"hbm": np.array([memory, np.inf])})
    return place(builder.finish(), both)


@pytest.mark.parametrize(("memory", "shared"), [(16.1, False), (15.9, True), (7.0, True)])
@pytest.mark.parametrize("rows", [1, 5])
def test_memory_is_left_out_if_what_comes_and_what_goes_fit(
    memory: float, shared: bool, rows: int
) -> None:
    """However many come, a wire brings 4 bytes a second, and they cost 8 of memory; so does what
    goes.
    """
    program = in_and_out(memory, rows)
    assert is_looked_at(program, "hbm") == shared
    expected, got = simpy.run(program), compiled_engine.run(program)
    np.testing.assert_allclose(got.end, expected.end, rtol=1e-12)


def test_memory_is_looked_at_if_a_way_is_faster_for_a_while() -> None:
    program = in_and_out(16.1, 5)
    wires = program.paths.link[: program.paths.ptr[1]][:2].tolist()  # out, and in at the other end
    faster = tuple(
        (when, wire, rate) for when, rate in ((1.0, 2 * RATE), (1.5, RATE)) for wire in wires
    )
    program = replace(program, links=replace(program.links, changes=faster))
    assert is_looked_at(program, "hbm")
    np.testing.assert_allclose(compiled_engine.run(program).end, simpy.run(program).end, rtol=1e-12)


@pytest.mark.parametrize(("share", "cap"), [(4.0, 2.0), (0.25, 2.0), (4.0, 0.9)])
def test_what_has_a_larger_share_is_counted_at_its_cap(share: float, cap: float) -> None:
    """Two bring 3 bytes a second from rank 0, all that its memory gives; another brings its cap."""
    builder = Builder(3)
    pieces = builder.pieces([6, 6, 6])
    builder.rows(Style(uses=(Use("hbm", "src", 1.0),)), [0, 0], [1, 1], pieces[:2])
    builder.rows(Style(cap=cap, share=share), 2, 1, pieces[2])
    room = replace(switch(3, RATE, 0.0), capacities={"hbm": np.array([3.0, np.inf, np.inf])})
    program = place(builder.finish(), room)
    into = program.paths.link[program.paths.ptr[program.path[2] + 1] - 1]
    assert (group_rows(program).number[into] >= 0) == (3.0 + cap > RATE)
    expected, got = simpy.run(program), compiled_engine.run(program)
    np.testing.assert_allclose(got.end, expected.end, rtol=1e-12)
