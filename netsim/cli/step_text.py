"""What `netsim run` prints of training steps: a line a cell."""

from collections.abc import Iterator, Sequence

from netsim.results import Row
from netsim.scenario.cells import Cell
from netsim.scenario.clusters import cluster_label, node_count
from netsim.scenario.training import Training

_WIDTH = 16


class StepTable:
    """All cells, with the axes that tell them apart."""

    def __init__(self, cells: Sequence[Cell]) -> None:
        self.cells, self.axes = cells, list(cells[0].axes)
        self.begun = False

    def lines(self, cell: Cell, row: Row) -> Iterator[str]:
        """One cell; before the first, what is run and the names of columns."""
        del cell
        if not self.begun:
            yield from (self._title(), self._header())
        self.begun = True
        axes = "".join(f"  {row.axes.get(axis)!s:<{_WIDTH}}" for axis in self.axes)
        if row.status != "ok" or row.step_time_us is None:
            yield f"#{axes} {row.error}"
        else:
            yield f"{row.step_time_us / 1e3:>12.3f}  {row.rows:>10}{axes}  {row.bound_by}"

    def end(self, rows: Sequence[Row]) -> Iterator[str]:
        """What was approximated, once."""
        for text in dict.fromkeys(row.approximation for row in rows if row.approximation):
            yield f"# {text}"

    def _title(self) -> str:
        scenario = self.cells[0].scenario
        work = scenario.workload
        assert isinstance(work, Training)
        several = f", {len(self.cells)} cells" if len(self.cells) > 1 else ""
        where = f"{node_count(scenario.cluster)} x {cluster_label(scenario.cluster)}"
        return f"# a training step of {work.label} on {where}{several}"

    def _header(self) -> str:
        axes = "".join(f"  {axis.rpartition('.')[2]:<{_WIDTH}}" for axis in self.axes)
        return f"# {'step (ms)':>10}  {'rows':>10}{axes}  bound by"
