"""Constraints of a search: conditions on the figures of a cell and on the choices it stands for."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from netsim.errors import InputError, shown, suggest
from netsim.scenario.cells import Cell
from netsim.scenario.conditions import Condition, parse_condition
from netsim.scenario.models import Workload
from netsim.sweep.bills import COLUMNS
from netsim.training.details import NAMES

FIGURES = ("time_us", "busbw_GBps", "algbw_GBps", "step_time_us", "ranks", "nodes")
PRICED = (*COLUMNS, "time_x_cost")


@dataclass(frozen=True)
class Constraints:
    """What must hold of a cell; axes may be named by the last part of their key."""

    conditions: tuple[Condition, ...] = ()

    @property
    def names(self) -> set[str]:
        """The figures and axes that they speak of."""
        return {name for condition in self.conditions for name in condition.names}

    def hold(self, axes: Mapping[str, Any], figures: Mapping[str, Any]) -> bool:
        """Whether all of them hold; what a cell has no figure for does not."""
        return all(holds(condition, axes, figures) for condition in self.conditions)


def constraints_of(texts: Sequence[str], cells: Sequence[Cell]) -> Constraints:
    """Constraints as they were written; names that no cell has are refused."""
    found = []
    for text in texts:
        try:
            found.append(parse_condition(text, ()))
        except ValueError as error:
            raise InputError(f"--subject-to: {error}") from None
    known = _known(cells)
    for condition in found:
        for name in condition.names:
            if name not in known and _axis(name, cells[0].axes) is None:
                raise _unknown(name, [*known, *cells[0].axes])
    return Constraints(tuple(found))


def _known(cells: Sequence[Cell]) -> tuple[str, ...]:
    priced = any(cell.scenario.prices is not None for cell in cells)
    steps = any(not isinstance(cell.scenario.workload, Workload) for cell in cells)
    names = (*FIGURES, *(PRICED if priced else ()), *(NAMES if steps else ()))
    return tuple(dict.fromkeys(names))


def _unknown(name: str, known: Sequence[str]) -> InputError:
    if name in PRICED:
        return InputError(f"--subject-to: {name} needs prices", hint="add prices: default")
    return InputError(
        f"--subject-to: unknown figure '{name}'{suggest(name, known)}; known: {', '.join(known)}"
    )


def _axis(name: str, axes: Iterable[str]) -> str | None:
    """The axis that a name means: its whole key, or the last part of only one."""
    if name in axes:
        return name
    short = [axis for axis in axes if axis.rpartition(".")[2] == name]
    return short[0] if len(short) == 1 else None


def holds(condition: Condition, axes: Mapping[str, Any], figures: Mapping[str, Any]) -> bool:
    """Whether one condition holds of a cell."""
    absent: list[str] = []

    def lookup(key: str) -> Any:
        if key in figures:
            value = figures[key]
        else:
            axis = _axis(key, axes)
            value = None if axis is None else axes[axis]
        if value is None:
            absent.append(key)
        return value

    try:
        return condition.holds(lookup)
    except ValueError as error:
        if absent:
            return False
        raise InputError(f"--subject-to: {error}{_units(condition, figures)}") from None


def _units(condition: Condition, figures: Mapping[str, Any]) -> str:
    plain = [name for name in condition.names if name in figures]
    return f"; {plain[0]} is a plain number, such as {figures[plain[0]]:.4g}" if plain else ""


def nearest_misses(
    constraints: Constraints, found: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]
) -> str:
    """Why no cell will do: constraints that none meets, with what there is of each figure; if each
    is met by some, only together they rule out all. `found`: (axes, figures) of cells that ran.
    """
    never = [c for c in constraints.conditions if not any(holds(c, *one) for one in found)]
    if not never:
        return "each constraint is met by some cell, but no cell meets all of them"
    parts = []
    for condition in never:
        ranges = [text for name in condition.names if (text := _range(name, found))]
        parts.append(f"none has {condition.text.strip()} ({', '.join(ranges) or 'no figures'})")
    return "; ".join(parts)


def _range(name: str, found: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]) -> str:
    values = [figures[name] for _, figures in found if figures.get(name) is not None]
    if values:
        return f"{name} is {min(values):.6g} to {max(values):.6g}"
    axis = _axis(name, found[0][0]) if found else None
    if axis is None:
        return ""
    choices = list(dict.fromkeys(shown(axes[axis]) for axes, _ in found))
    return f"{name} is one of {', '.join(choices)}"
