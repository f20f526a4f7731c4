"""Axes of a sweep that changed nothing, each with the reason."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from netsim.engines import simulate
from netsim.metrics import bound_by, link_use
from netsim.metrics.bound import SPOKEN
from netsim.nccl.effects import EFFECTS
from netsim.nccl.effects import reason as variable_reason
from netsim.prepared import prepare
from netsim.program import Program, Timeline, place
from netsim.results import Row
from netsim.scenario.axes import SEED
from netsim.scenario.cells import Cell
from netsim.scenario.models import Workload
from netsim.scenario.unused import idle_axis
from netsim.sweep.tables import time_of
from netsim.topology.layout import LINK_KINDS
from netsim.units import format_bandwidth, format_size

EQUAL = 1e-9  # relative difference of times that are the same
_NAMED = 3  # kinds of resources that are named as the busiest
MOST_ROWS = 3_000_000  # of a schedule that is simulated only to say why


@dataclass(frozen=True)
class Idle:
    """An axis without effect, two cells that differ in it alone, and the largest size."""

    axis: str
    cells: tuple[Cell, Cell]
    size: int


def idle_axes(cells: Sequence[Cell], rows: Sequence[Row]) -> list[Idle]:
    """The axes whose values never make a difference, however the others are chosen."""
    sizes = {cell.id: cell.scenario.workload.size_list() for cell in cells}
    by_cell: dict[str, dict[int, float]] = {}
    for row in rows:
        if row.status == "ok" and time_of(row):
            by_cell.setdefault(row.cell, {})[row.size_bytes or 0] = time_of(row)
    found = []
    for axis in cells[0].axes if cells and by_cell else ():
        groups: dict[str, list[Cell]] = {}
        for cell in cells:
            if cell.id in by_cell:
                others = {k: v for k, v in cell.axes.items() if k != axis}
                groups.setdefault(repr(sorted(others.items(), key=str)), []).append(cell)
        compared = [group for group in groups.values() if len(group) > 1]
        if compared and all(_alike([by_cell[c.id] for c in group]) for group in compared):
            one, other = compared[-1][0], compared[-1][-1]
            found.append(Idle(axis, (one, other), max(sizes[one.id])))
    return found


def _alike(times: Sequence[Mapping[int, float]]) -> bool:
    first = times[0]
    return all(
        other.keys() == first.keys()
        and all(abs(other[size] - t) <= EQUAL * max(t, 1e-300) for size, t in first.items())
        for other in times[1:]
    )


def reason(idle: Idle, engine: str = "auto") -> str:
    """Why an axis changed nothing, from what is simulated in two of its cells."""
    known = idle_axis(idle.cells, idle.axis)
    if known:
        return known
    if not isinstance(idle.cells[0].scenario.workload, Workload):
        return "the step does not depend on it"
    programs = [_program(cell, idle.size) for cell in idle.cells]
    one, other = programs
    changed = _changed_kinds(one, other)
    if len(one) > MOST_ROWS:
        return f"it changes {_listed(changed) or 'nothing that is simulated'}"
    timeline = simulate(one, engine)
    most = _most_used(one, timeline)
    if changed:
        used = {kind: most.get(kind, 0.0) for kind in changed}
        parts = [
            f"{SPOKEN.get(kind, kind)} links are never used"
            if not part
            else f"{SPOKEN.get(kind, kind)} is used to {part:.0%} at most"
            for kind, part in used.items()
        ]
        why = ", ".join(parts)
    else:
        busiest = sorted(most, key=lambda kind: -most[kind])[:_NAMED]
        parts = [f"{SPOKEN.get(kind, kind)} {most[kind]:.0%}" for kind in busiest]
        why = f"{_unchanged(idle)}; used at most: {', '.join(parts)}"
    text = f"{why}; bound by {bound_by(one, timeline)}"
    return text.replace("%", " %").replace("  %", " %")


def _most_used(program: Program, timeline: Timeline) -> dict[str, float]:
    """How busy the busiest resource of each kind is."""
    use, most = link_use(program, timeline), dict[str, float]()
    for link, part in zip(use.link.tolist(), use.utilisation.tolist(), strict=True):
        kind = program.links.kind(link)
        most[kind] = max(most.get(kind, 0.0), part)
    return most


def _unchanged(idle: Idle) -> str:
    """Why the same data moves over the same links in two cells."""
    one, other = idle.cells
    if idle.axis.rpartition(".")[2] == SEED:
        return "no host is placed at random, and no way is hashed that has a choice"
    plan = prepare(one).planned(idle.size)
    if plan is not None and idle.axis.startswith("nccl."):
        chosen = f"{plan.algorithm} {plan.protocol} on {plan.n_channels} channels"
        variable = idle.axis.removeprefix("nccl.env.")
        effect = EFFECTS.get(variable)
        if variable == idle.axis:
            return f"NCCL runs {chosen} in any case"
        if effect:
            return f"{variable} ({effect}) makes no difference to {chosen}"
        return f"{variable}: {variable_reason(variable)}"
    if one.cluster != other.cluster:
        return f"both values make the same {_links(one)}"
    return f"the same {format_size(idle.size)} move in the same order"


def _links(cell: Cell) -> str:
    """What joins the hosts of a cell, or else the GPUs: how many links of what rate."""
    table = prepare(cell).topology.links
    rates: dict[str, list[float]] = {}
    for kind, rate in zip(table.kind.tolist(), table.bandwidth.tolist(), strict=True):
        rates.setdefault(LINK_KINDS[kind], []).append(rate)
    name = next((kind for kind in ("fabric", "nic") if kind in rates), next(iter(rates), ""))
    found = rates.get(name, [])
    span = dict.fromkeys(map(format_bandwidth, (min(found, default=0.0), max(found, default=0.0))))
    return f"{len(found)} {SPOKEN.get(name, name)} links of {' to '.join(span)}"


def _program(cell: Cell, size: int) -> Program:
    prepared = prepare(cell)
    return place(prepared.schedule(size), prepared.topology, prepared.gpus.tolist())


def _changed_kinds(one: Program, other: Program) -> list[str]:
    """The kinds of links of which two programs have other numbers, rates or latencies."""
    tables = [_table(one), _table(other)]
    kinds = dict.fromkeys([*tables[0], *tables[1]])
    return [kind for kind in kinds if tables[0].get(kind) != tables[1].get(kind)]


def _table(program: Program) -> dict[str, Any]:
    table = program.links
    found: dict[str, list[tuple[float, float]]] = {}
    columns = zip(table.capacity.tolist(), table.latency.tolist(), strict=True)
    for number, figures in enumerate(columns):
        found.setdefault(table.kind(number), []).append(figures)
    return {kind: np.sort(np.array(rows), axis=0).tolist() for kind, rows in found.items()}


def _listed(kinds: Sequence[str]) -> str:
    return ", ".join(kinds)
