"""All cells of a scenario, one after the other, each finished row kept at once.

A cell that fails is a row with the error and does not stop the rest.
"""

import socket
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from netsim.answers import AnyPrepared, answer, named, prepare_any
from netsim.errors import NetsimError
from netsim.results import Folder, Row
from netsim.scenario.cells import Cell
from netsim.scenario.clusters import cluster_label
from netsim.timing import Progress
from netsim.version import MODEL_VERSION


@dataclass(frozen=True)
class Task:
    """One cell at one size."""

    cell: Cell
    size: int

    @property
    def key(self) -> tuple[str, int]:
        """What the journal knows it by."""
        return self.cell.id, self.size


def tasks_of(cells: Sequence[Cell]) -> list[Task]:
    """Every cell at every size, in the order of results.csv."""
    return [Task(cell, size) for cell in cells for size in cell.scenario.workload.size_list()]


def run_tasks(
    tasks: Sequence[Task],
    folder: Folder,
    *,
    engine: str = "auto",
    progress: Callable[[Task], Progress | None] = lambda task: None,
) -> Iterator[tuple[Task, Row, NetsimError | None]]:
    """Simulate what the folder does not have yet; yield every row as it is there."""
    prepared: AnyPrepared | None = None
    for task in tasks:
        error = None
        if task.key not in folder.finished:
            if prepared is None or prepared.cell is not task.cell:
                prepared = prepare_any(task.cell)
            began = time.perf_counter()
            row, error = _answer(prepared, task, engine, progress(task))
            folder.record(task.key, row, _timing(time.perf_counter() - began))
        yield task, finished_row(folder, task), error


def finished_row(folder: Folder, task: Task) -> Row:
    """The row of a task; an equal question asked under other names keeps its own names."""
    row = folder.finished[task.key]
    return replace(row, scenario=task.cell.scenario.name or "", axes=dict(task.cell.axes))


def _answer(
    prepared: AnyPrepared, task: Task, engine: str, progress: Progress | None
) -> tuple[Row, NetsimError | None]:
    try:
        return answer(prepared, task.size, engine=engine, progress=progress), None
    except NetsimError as error:
        scenario = task.cell.scenario
        row = Row(
            scenario=scenario.name or "",
            cell=task.cell.id,
            topology=cluster_label(scenario.cluster),
            size_bytes=task.size or None,
            seed=scenario.seed,
            model_version=MODEL_VERSION,
            status="error",
            error=str(error),
            axes=dict(task.cell.axes),
        )
        return named(task.cell, row), error


def _timing(seconds: float) -> dict[str, object]:
    return {"wall_s": seconds, "host": socket.gethostname()}
