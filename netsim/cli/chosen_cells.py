"""The cells that `netsim run --cell` names."""

import re
from collections.abc import Mapping, Sequence

from netsim.base.errors import InputError, suggest
from netsim.cli.output import plain_text
from netsim.scenario.cells import Cell, last_part

MOST_SHOWN = 10  # values of an axis that an error lists


def chosen_cells(cells: Sequence[Cell], wanted: str) -> list[Cell]:
    """The cells that `--cell` names: by the beginning of an id, or by values of axes
    (`nodes=4,algorithm=Ring`).

    `wanted` is the text of the option. Raises an InputError if no cell matches.
    """
    wanted_values: dict[str, str] = {}
    if "=" in wanted:
        for pair in re.split(r",(?=[^,]+=)", wanted):
            axis, _, value = pair.partition("=")
            wanted_values[axis.strip()] = value.strip()
    if wanted_values:
        matches = [cell for cell in cells if _has_values(cell, wanted_values)]
    else:
        matches = [cell for cell in cells if cell.id.startswith(wanted)]
    if matches and wanted:
        return matches
    raise InputError(
        f"--cell {wanted}: {_unknown_cell(cells, wanted, wanted_values)}",
        hint="an id of results.csv, or values of axes such as nodes=4",
    )


def _has_values(cell: Cell, values: Mapping[str, str]) -> bool:
    """Whether a cell has the given value (as text) on each axis of `values`."""
    return all(_axis_value(cell, axis) == value for axis, value in values.items())


def _unknown_cell(cells: Sequence[Cell], wanted: str, wanted_values: Mapping[str, str]) -> str:
    """The reason why no cell matches `wanted`, with the closest name, as text for an error.

    `wanted_values` has the text by axis, and is empty if `wanted` is the beginning of an id.
    """
    if not wanted_values:
        ids = [cell.id for cell in cells]
        return f"no id of a cell begins like this{suggest(wanted, ids)}"
    axes = {name: axis for axis in cells[0].axes for name in (axis, last_part(axis))}
    for axis, value in wanted_values.items():
        if axis not in axes:
            return (
                f"no axis {axis}{suggest(axis, axes)}, axes: {', '.join(cells[0].axes) or 'none'}"
            )
        values = list(dict.fromkeys(_axis_value(cell, axis) for cell in cells))
        if value not in values:
            values_text = ", ".join(values[:MOST_SHOWN])
            return f"no cell has {axis} {value}{suggest(value, values)}, but {values_text}"
    return "no cell has all of these values together"


def _axis_value(cell: Cell, axis: str) -> str:
    """The value of a cell on an axis as text; "" if the cell lacks the axis.

    `axis` is the full name or its last part: `algorithm` for `workload.algorithm`.
    """
    short = {last_part(key): plain_text(value) for key, value in cell.axes.items()}
    return short.get(axis, "") if axis not in cell.axes else plain_text(cell.axes[axis])
