"""One cell of any kind, prepared and answered: a collective at a size, or a training step."""

from dataclasses import replace

from netsim.prepared import Prepared, prepare
from netsim.results import Row
from netsim.scenario.cells import Cell
from netsim.scenario.training import Recorded, Training
from netsim.simulate import simulate_size
from netsim.timing import Progress
from netsim.training.details import details_of
from netsim.training.prepare import PreparedStep, prepare_step
from netsim.training.rows import step_row
from netsim.training.run import simulate_step

AnyPrepared = Prepared | PreparedStep


def prepare_any(cell: Cell) -> AnyPrepared:
    """Check that the parts of a cell fit; errors name the field."""
    return (
        prepare_step(cell)
        if isinstance(cell.scenario.workload, Training | Recorded)
        else prepare(cell)
    )


def answer(
    prepared: AnyPrepared, size: int, *, engine: str = "auto", progress: Progress | None = None
) -> Row:
    """The row of a prepared cell at one size; a training step has none."""
    if isinstance(prepared, PreparedStep):
        step = simulate_step(prepared, engine=engine, progress=progress)
        return replace(step_row(step), details=details_of(step))
    return simulate_size(prepared, size, engine=engine, progress=progress)[0]


def named(cell: Cell, row: Row) -> Row:
    """What a row says of its cell, also where the simulation failed."""
    work = cell.scenario.workload
    if isinstance(work, Training | Recorded):
        return replace(row, workload=f"training {work.label}")
    return replace(row, collective=work.collective, algorithm=work.algorithm, dtype=work.dtype)
