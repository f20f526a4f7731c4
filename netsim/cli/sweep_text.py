"""What is told about a whole sweep: cells that cannot be, the best one, axes without effect."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import typer

from netsim.errors import NetsimError
from netsim.results import Row
from netsim.scenario.axes import SEED
from netsim.scenario.cells import Expansion
from netsim.sweep import CellError, effects
from netsim.sweep.tables import CLEARLY, base_rows, best_row, time_of, without_seed
from netsim.units import format_size, format_time

_MOST = 10


def invalid_lines(expansion: Expansion, *, skipped: bool) -> Iterator[str]:
    """Which points of a sweep cannot be built, and why."""
    invalid, all_points = expansion.invalid, len(expansion.points)
    if skipped:
        yield f"{len(invalid)} of {all_points} cells are left out, which cannot be built:"
    else:
        yield (
            f"{len(invalid)} of {all_points} cells cannot be built "
            f"(--skip-invalid runs the other {all_points - len(invalid)}):"
        )
    for point in invalid[:_MOST]:
        message = point.error.errors[0].message if skipped else ""
        yield f"  {named(point.axes)}{f': {message}' if message else ''}"
    if len(invalid) > _MOST:
        yield f"  ... and {len(invalid) - _MOST} more"


def refuse_invalid(expansion: Expansion, *, skip: bool) -> None:
    """Say what cannot be built, before anything runs; go on only if asked to."""
    if not expansion.invalid:
        return
    if not skip or not expansion.cells:
        if len(expansion.points) > len(expansion.invalid):
            for text in invalid_lines(expansion, skipped=False):
                typer.echo(text, err=True)
        expansion.refuse_invalid()
    for text in invalid_lines(expansion, skipped=True):
        typer.echo(text, err=True)


def after_lines(expansion: Expansion, rows: Sequence[Row], engine: str) -> Iterator[str]:
    """What a sweep showed: the best cell, how it compares, and which axes changed nothing."""
    cells = expansion.cells
    if len(cells) < 2:
        return
    best = best_row(rows, expansion.sweep.base)
    if best is not None:
        where = f" at {format_size(best.size_bytes)}" if best.size_bytes else ""
        line = f"best{where}: {named(without_seed(best.axes))}, {format_time(time_of(best) / 1e6)}"
        line += " (median over seeds)" if SEED in best.axes else ""
        base = expansion.sweep.base
        other = base_rows(rows, base).get((best.cell, best.size_bytes or 0)) if base else None
        if other is not None and time_of(other) > time_of(best) * CLEARLY:
            line += f", {time_of(other) / time_of(best):.3g} times as fast as {named(base or {})}"
        yield line
    for idle in effects.idle_axes(cells, rows):
        try:
            why = effects.reason(idle, engine)
        except NetsimError as error:
            why = str(error)
        yield f"axis {idle.axis} changed nothing: {why}"


def approximations(rows: Sequence[Row]) -> Iterator[str]:
    """How many rows are not simulated in every detail, and how far they may be off."""
    found = [row for row in rows if row.approximation]
    if found:
        most = max(row.approximation_pct or 0.0 for row in found)
        yield (
            f"approximated: {len(found)} of {len(rows)} rows, at most {most:.2g} % off "
            "(approximation, approximation_pct in results.csv)"
        )


def worst(failures: Sequence[NetsimError], tasks: int) -> NetsimError | None:
    """What to end with where rows failed: the first error, and how many there were."""
    if not failures:
        return None
    first = failures[0]
    if len(failures) == 1:
        return first
    return CellError(f"{first}\n{len(failures)} of {tasks} rows failed, see results.csv",
                     first.exit_code)  # fmt: skip


def named(axes: Mapping[str, Any]) -> str:
    """Values of axes in words: `nodes 4, nic 400Gbps`."""
    return ", ".join(f"{key.rpartition('.')[2]} {value}" for key, value in axes.items())
