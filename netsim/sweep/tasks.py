"""What a sweep consists of: its cells at each of their sizes, in the order of results.csv."""

from collections.abc import Sequence
from dataclasses import replace

from netsim.answers import named
from netsim.measured import overlay
from netsim.results import Folder, Row
from netsim.scenario.cells import Cell, Invalid
from netsim.scenario.clusters import cluster_label
from netsim.values import dataclass
from netsim.version import MODEL_VERSION

MANY, MANY_ON_MACHINES = 40, 6  # rows from which the start-up of the compiled engine pays


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


def engine_for(tasks: Sequence[Task], engine: str = "auto") -> str:
    """The engine of all rows of a sweep, so that they do not depend on how the work is divided."""
    machines = any(task.cell.scenario.cluster.graph is None for task in tasks)
    many = len(tasks) >= (MANY_ON_MACHINES if machines else MANY)
    return "compiled" if engine == "auto" and many else engine


def finished_row(folder: Folder, task: Task) -> Row:
    """The row of a task; an equal question asked under other names keeps its own names."""
    row = folder.finished[task.key]
    named = replace(row, scenario=task.cell.scenario.name or "", axes=dict(task.cell.axes))
    return overlay.overlaid(named, task.cell) if task.cell.scenario.measured else named


def failed_row(task: Task, message: str) -> Row:
    """The row of a task that ended in an error."""
    scenario = task.cell.scenario
    row = Row(
        scenario=scenario.name or "",
        cell=task.cell.id,
        topology=cluster_label(scenario.cluster),
        size_bytes=task.size or None,
        seed=scenario.seed,
        model_version=MODEL_VERSION,
        status="error",
        error=message,
        axes=dict(task.cell.axes),
    )
    return named(task.cell, row)


def invalid_row(point: Invalid, scenario: str) -> Row:
    """The row of a point that no scenario is possible at."""
    return Row(
        scenario=scenario,
        cell=point.id,
        model_version=MODEL_VERSION,
        status="invalid",
        error=str(point.error),
        axes=dict(point.axes),
    )
