"""Every seat that may end has a place of its own among the looks, also once both have grown."""

import numpy as np
import pytest

from netsim.engines.compiled import engine, structures
from netsim.engines.compiled.grouping import group_rows
from netsim.engines.compiled.structures import grown, longer
from netsim.engines.engine import give_back_memory
from netsim.program.program import Operations
from netsim.schedule.builder import Builder
from netsim.schedule.schedule import Style
from tests.engines.test_compiled_cases import program


@pytest.mark.parametrize("count", [1, 1000, 1500, 3000, 5000])
@pytest.mark.parametrize("links", [1, 500])
def test_looks_have_a_place_for_every_seat(count: int, links: int) -> None:
    builder = Builder(2)
    styles = [builder.style(Style(cap=1.0 + i)) for i in range(count)]
    builder.rows(styles, 0, 1, builder.work(np.ones(count)))
    paths = [(i % links,) for i in range(count)]
    made = program(builder, [4.0] * links, paths, list(range(count)))
    found = group_rows(made)
    places = engine._places(len(found.groups) - 1)
    net, future = (
        engine._net(made, found, places),
        engine._future(Operations(made, np.zeros((1, 0))), found, places),
    )
    looks, ends = net.looks, future.ends
    for _ in range(2):
        assert len(looks) > len(net.links) + len(ends) // 2
        looks, ends = longer(looks), grown(ends)


def test_room_that_the_system_refuses_is_want_of_memory() -> None:
    with pytest.raises(MemoryError):
        structures.untouched(1 << 55, np.uint8)


def test_memory_is_given_back_when_the_compiled_engine_is_in_use(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[str] = []
    monkeypatch.setattr(structures, "_of_glibc", lambda name, *_: calls.append(name))
    give_back_memory()
    assert calls == ["malloc_trim"]
