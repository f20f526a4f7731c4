"""The switches of a fabric in rows above its hosts; of many equal ones the first and the last."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from netsim.plots.topology.groups import ends_of, group_size
from netsim.plots.topology.values import WIDE_GAP, Box, Caption, Sheet
from netsim.topology.fabrics.fabric import Fabric
from netsim.topology.tiers import tiers_of

MOST_SWITCHES = 16
_PITCH = 1.25


@dataclass(frozen=True, slots=True)
class Unit:
    """A switch, or a group of them that is drawn as one."""

    number: int
    label: str
    switches: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Row:
    """The units of a tier that are drawn, and how many it has."""

    name: str
    units: tuple[Unit, ...]
    total: int

    @property
    def slots(self) -> list[Unit | int]:
        """The units in order; a number where that many are left out."""
        found: list[Unit | int] = []
        before = -1
        for unit in self.units:
            if unit.number > before + 1:
                found.append(unit.number - before - 1)
            found.append(unit)
            before = unit.number
        return [*found, self.total - before - 1] if before < self.total - 1 else found


def rows_above(fabric: Fabric, leaves: Iterable[int]) -> list[Row]:
    """What is drawn of every tier, from the leaves of the hosts that are drawn."""
    wanted, rows = set(leaves), []
    firsts = [first for _, first in fabric.tiers] + [len(fabric.switches)]
    for number, (name, _) in enumerate(fabric.tiers):
        units = _units(fabric, name, firsts[number], firsts[number + 1])
        near = [unit for unit in units if wanted & set(unit.switches)]
        shown = ends_of(near, MOST_SWITCHES)
        if shown:
            rows.append(Row(name, tuple(shown), len(units)))
        wanted = _neighbours(fabric, {switch for unit in shown for switch in unit.switches})
    return rows


def _units(fabric: Fabric, name: str, first: int, last: int) -> list[Unit]:
    size = group_size(fabric)
    if size > 1:
        starts = range(first, last, size)
        return [
            Unit(n, f"group {n}\n{size} {name}s", tuple(range(start, start + size)))
            for n, start in enumerate(starts)
        ]
    names = fabric.switches[first:last]
    return [Unit(n, text, (first + n,)) for n, text in enumerate(names)]


def _neighbours(fabric: Fabric, switches: set[int]) -> set[int]:
    """The switches that are joined to any of some."""
    mine = np.isin(fabric.tail - fabric.ports, sorted(switches))
    found = fabric.head[mine] - fabric.ports
    return {int(one) for one in np.unique(found) if one >= 0}


def width_of_row(row: Row) -> float:
    """The least width of a row."""
    return _PITCH * len(row.slots)


def gap_of(span: tuple[float, float]) -> float:
    """The gap between two rows: wider where lines run far to the side."""
    return max(WIDE_GAP, 0.095 * (span[1] - span[0]))


def draw_rows(
    sheet: Sheet, fabric: Fabric, rows: list[Row], span: tuple[float, float], y: float
) -> None:
    """Add the rows of a fabric, the lowest at `y`, each spread over the span."""
    ports = {tier.name: tier.ports for tier in tiers_of(fabric)}
    for row in rows:
        slots = row.slots
        pitch = (span[1] - span[0]) / len(slots)
        for place, slot in enumerate(slots):
            x = span[0] + (place + 0.5) * pitch
            if isinstance(slot, int):
                sheet.captions.append(Caption(x, y, f"… {slot} more …"))
                continue
            tall = 0.52 if "\n" not in slot.label else 0.78
            wide = max(1.0, 0.11 * max(map(len, slot.label.split("\n"))) + 0.2)
            box = Box("switch", x, y, min(wide, 0.94 * pitch), slot.label, tall)
            sheet.add(box, *(fabric.switches[n] for n in slot.switches))
        count = _count(fabric, row.name)
        noun = "switches" if count > 1 else "switch"
        sheet.rows.append((y, f"{row.name}\n{count} {noun}\n{ports.get(row.name, 0)} ports in use"))
        y += gap_of(span)


def _count(fabric: Fabric, name: str) -> int:
    firsts = [first for _, first in fabric.tiers] + [len(fabric.switches)]
    number = [tier for tier, _ in fabric.tiers].index(name)
    return firsts[number + 1] - firsts[number]
