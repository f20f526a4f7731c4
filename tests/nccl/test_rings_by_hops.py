"""NCCL's rings over very many ranks: what a few hops take tells what all of them take."""

from dataclasses import replace
from importlib import import_module

import pytest

from netsim.base.errors import InputError
from netsim.cell.prepare import Prepared, prepare
from netsim.cell.simulate import simulate_size
from netsim.cli.questions import Given, asked
from netsim.results.row import Row
from netsim.scenario.cells import expand

rings = import_module("netsim.timing.rings")
NODES = 17  # of eight: just long enough, and no power of two
MIB = 1 << 20
FAULT = "cluster.faults=[{link: node9.nic0->leaf0, bandwidth: 2%}]"


def prepared(collective: str, *settings: str, nodes: int = NODES) -> Prepared:
    given = {"nodes": nodes, "algo": "Ring", "fabric": "rail-optimized"}
    source = asked("dgx-h100", collective, Given(given, "64K", settings=settings)).source
    return prepare(expand(source)[0])


def both(monkeypatch: pytest.MonkeyPatch, ready: Prepared, size: int) -> tuple[Row, Row]:
    """The row of a size in full, and from a few hops."""
    full = simulate_size(ready, size)[0]
    monkeypatch.setattr(rings, "TOO_MANY", 0)
    return full, simulate_size(ready, size)[0]


@pytest.mark.parametrize(
    ("collective", "size", "nodes"),
    [("all_gather", 4 * MIB, 24), ("reduce_scatter", 64 * MIB, 24), ("all_reduce", 64 * MIB, 17)],
)
def test_a_few_hops_tell_the_ring_within_what_is_stated(
    monkeypatch: pytest.MonkeyPatch, collective: str, size: int, nodes: int
) -> None:
    full, few = both(monkeypatch, prepared(collective, nodes=nodes), size)
    assert "hops" not in full.approximation
    assert f"rings of {8 * nodes - 1} hops from what" in few.approximation
    off = abs(few.time_us / full.time_us - 1)
    assert off <= few.approximation_pct / 100 + (full.approximation_pct or 0.0) / 100 + 1e-9
    assert off < 0.001
    assert few.rows < full.rows


def test_a_slow_link_hidden_in_the_ring_changes_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rings, "TOO_MANY", 0)
    usual, slow = (
        simulate_size(prepared("all_gather", *settings), MIB)[0] for settings in ((), (FAULT,))
    )
    assert slow.time_us > 1.2 * usual.time_us


def test_rings_that_a_few_hops_do_not_tell_are_run_in_full_or_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ready = prepared("all_gather")
    full = simulate_size(ready, MIB)[0]
    monkeypatch.setattr(rings, "TOO_MANY", 0)
    monkeypatch.setattr(rings, "full_ring", lambda plan, seconds: None)
    assert simulate_size(ready, MIB)[0] == full
    monkeypatch.setattr(rings, "misfit", lambda rows, memory, ranks: f"{rows} rows are too many")
    with pytest.raises(InputError, match="rows are too many; what a few hops add differs"):
        simulate_size(ready, MIB)


def test_rows_of_rings_are_counted_before_they_are_written() -> None:
    ready = prepared("all_gather")
    collective = ready.collective(MIB)
    plan = ready.folded(collective)
    written = ready.looped(MIB, folded=True)
    rows = len(written.schedule(written.loops))
    assert 0.5 * rows < rings.rows_of_rings(collective, plan) < rows
    assert not rings.too_long(collective, plan)
    assert not rings.too_long(collective, replace(plan, algorithm="Tree"))
