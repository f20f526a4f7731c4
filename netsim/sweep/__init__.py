"""All cells of a scenario: in this process, in several, or on other machines, row by row.

Every finished row is kept at once; a cell that fails is a row with the error and does not stop the
rest. Whoever computes a row, it is the same row.
"""

from netsim.lazy import promised

TYPE_CHECKING = False

if TYPE_CHECKING:
    from netsim.sweep.tasks import Task, finished_row, tasks_of
    from netsim.sweep.work import CellError, run_tasks

__getattr__ = promised(
    __name__,
    *("cache", "cluster", "effects", "local"),
    tasks="Task finished_row tasks_of",
    work="CellError run_tasks",
)

__all__ = ["CellError", "Task", "finished_row", "run_tasks", "tasks_of"]
