"""The compiled engine's rates meet the condition of optimality, whatever the definition says.

Its functions run here as Python, every line of them, and after every instant all links and seats
are held to what weighted max-min fairness means.
"""

from collections import defaultdict
from contextlib import suppress
from math import inf

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from netsim.base.errors import StalledError
from netsim.engines.compiled import engine, fair
from netsim.engines.compiled.fair import settle
from netsim.engines.compiled.structures import NOBODY, Net, RowColumns
from netsim.program.place import place
from netsim.program.program import Program
from netsim.schedule.builder import Builder
from netsim.schedule.schedule import Style
from netsim.topology.routing import switch
from tests.engines.random_programs import programs

NEAR = 1e-9


def readable(columns: tuple) -> tuple:
    """Named tuples whose records have attributes, as they do in compiled code."""
    views = [c.view(np.recarray) if getattr(c.dtype, "names", None) else c for c in columns]
    return type(columns)(*views)


def violations(net: Net) -> list[str]:
    """Where rates are not feasible, or could grow at nobody's expense who has less."""
    under_way = [(g, net.seats[s]) for g, s in enumerate(net.groups.seat[:-1]) if s != NOBODY]
    on_link = defaultdict(list)
    for group, seat in under_way:
        for k in range(net.groups[group].first, net.groups[group + 1].first):
            weight = float(seat.flows * net.draws[k].weight)
            on_link[int(net.draws[k].link)].append((weight, float(seat.level)))
    found, bounds = _full_links(net, on_link)
    for group, seat in under_way:
        level, cap = float(seat.level), float(net.kinds[net.groups[group].kind].cap)
        held = level >= cap * (1 - NEAR)
        finite = level == inf
        for k in range(net.groups[group].first, net.groups[group + 1].first):
            number = int(net.draws[k].link)
            finite &= float(net.links[number].capacity) == inf
            if number in bounds:
                most, weight, capacity = bounds[number]
                held |= level >= most * (1 - NEAR) or (most - level) * weight <= NEAR * capacity
        if level > cap * (1 + NEAR) or not (held or finite):
            found.append(f"group {group} at level {level} (cap {cap}) could have more")
    return found


def _full_links(
    net: Net, on_link: dict[int, list[tuple[float, float]]]
) -> tuple[list[str], dict[int, tuple[float, float, float]]]:
    """Which links carry more than they can, and of each full link the highest level on it, the
    weight of the groups at that level, and the capacity."""
    overloads: list[str] = []
    bounds = {}
    for number, draws in on_link.items():
        capacity = float(net.links[number].capacity)
        if capacity == inf:
            continue
        used = sum(weight * level for weight, level in draws)
        if used > capacity * (1 + NEAR):
            overloads.append(f"link {number} carries {used} of {capacity}")
        if used >= capacity * (1 - NEAR):
            highest = max(level for _, level in draws)
            weights = [weight for weight, level in draws if level > highest * (1 - NEAR)]
            bounds[number] = (highest, sum(weights), capacity)
    return overloads, bounds


def checked_run(program: Program, monkeypatch: pytest.MonkeyPatch) -> int:
    """Run the engine's Python; the number of instants that were checked."""
    checked = 0

    def settle(rows: RowColumns, net: Net, ends: np.ndarray) -> None:
        nonlocal checked
        SETTLE(rows, net, ends)
        assert not violations(net), (float(net.core[0].now), violations(net))
        checked += 1

    def run_in_thread(call: object, stop: object, look: object) -> int:
        return call()  # type: ignore[operator,no-any-return]

    class Plain:
        @staticmethod
        def ready(*columns: tuple) -> object:
            return lambda: ADVANCE_ROWS.function(*map(readable, columns))

    with monkeypatch.context() as patch:
        patch.setattr(engine, "settle", settle)
        patch.setattr(engine, "run_in_thread", run_in_thread)
        patch.setattr(engine, "advance_rows", Plain)
        with suppress(StalledError):
            engine.run(program)
    return checked


ADVANCE_ROWS, SETTLE = engine.advance_rows, settle


@pytest.mark.slow
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(program=programs(rows=20))
def test_rates_are_optimal_at_every_instant(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert checked_run(program, monkeypatch) > 0


def test_rates_that_are_not_optimal_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    builder = Builder(3)
    builder.rows(Style(), [0, 0, 1], [1, 2, 2], builder.work([1.0, 2.0, 3.0]))
    program = place(builder.finish(), switch(3, 1.0))
    assert checked_run(program, monkeypatch) >= 3
    monkeypatch.setattr(fair, "sweep", lambda net: None)  # whoever rises then has no limit
    with pytest.raises(AssertionError, match=r"carries|could have more"):
        checked_run(program, monkeypatch)
