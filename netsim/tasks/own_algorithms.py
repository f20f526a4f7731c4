"""Verify a user's algorithm before a cell that uses it runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from netsim.collectives import table as tables
from netsim.collectives.collective import HAS_IN_PLACE, Collective
from netsim.scenario.cells import Cell

UNCHECKED: dict[str, str] = {}
"""By the id of a cell, why its algorithm was not verified."""


def verify_own_algorithm(
    cell: Cell, collective_at: Callable[..., Collective], parameters: Mapping[str, Any]
) -> None:
    """Verify the algorithm of a cell at its sizes, out of place and in place.

    The smallest and the largest size come first. Verification ends when `MOST_CHECKED`
    (`collectives/table.py`) rows times ranks have been examined. A CollectiveError says what is
    wrong with the algorithm.

    `collective_at` returns the collective of a size.
    """
    work = cell.scenario.collective
    sizes = work.size_list()
    first_sizes = min(sizes), max(sizes)
    places = (False, True) if work.collective in HAS_IN_PLACE else (False,)
    left = tables.MOST_CHECKED
    for size in sorted(sizes, key=lambda size: size not in first_sizes):
        for in_place in places:
            if left > 0:
                collective = collective_at(size, in_place=in_place)
                left -= _verify_size(cell, collective, parameters)


def _verify_size(cell: Cell, collective: Collective, parameters: Mapping[str, Any]) -> int:
    """Verify one size, unless it has too many rows; return its rows times its ranks."""
    work = cell.scenario.collective
    rows = tables.refuse_wrong(collective, work.built_by, parameters)
    if rows * collective.ranks > tables.MOST_CHECKED:
        reason = f"{rows} rows on {collective.ranks} ranks are too many for that; check it on fewer"
        UNCHECKED[cell.id] = f"{work.algorithm} is not verified: {reason}"
    return rows * collective.ranks
