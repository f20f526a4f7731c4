"""One cell of any kind, prepared and answered: a collective at a size, or a training step."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from netsim.prepared import Prepared, prepare
from netsim.results import Row
from netsim.scenario.cells import Cell
from netsim.scenario.models import Workload
from netsim.simulate import row_of_size
from netsim.timing import Progress
from netsim.training import details, rows, run
from netsim.training import prepare as steps

if TYPE_CHECKING:
    from netsim.training.prepare import PreparedStep

AnyPrepared: TypeAlias = "Prepared | PreparedStep"


def prepare_any(cell: Cell) -> AnyPrepared:
    """Check that the parts of a cell fit; errors name the field."""
    collective = isinstance(cell.scenario.workload, Workload)
    return prepare(cell) if collective else steps.prepare_step(cell)


def answer(
    prepared: AnyPrepared, size: int, *, engine: str = "auto", progress: Progress | None = None
) -> Row:
    """The row of a prepared cell at one size; a training step has none."""
    if isinstance(prepared, Prepared):
        return row_of_size(prepared, size, engine=engine, progress=progress)
    step = run.simulate_step(prepared, engine=engine, progress=progress)
    return replace(rows.step_row(step), details=details.details_of(step))


def named(cell: Cell, row: Row) -> Row:
    """What a row says of its cell, also where the simulation failed."""
    work = cell.scenario.workload
    if not isinstance(work, Workload):
        return replace(row, workload=f"training {work.label}")
    return replace(row, collective=work.collective, algorithm=work.algorithm, dtype=work.dtype)
