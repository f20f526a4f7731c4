"""What `netsim run` prints: rows as they are finished, or all of them at the end."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import Protocol

from netsim.cli import nccl_tests, step_text, tables
from netsim.errors import InputError
from netsim.nccl.names import AUTO, NCCL_NAMES
from netsim.results import Row, csv_text
from netsim.results.nccl_tests import TestRun, closing, line, opening
from netsim.scenario.cells import Cell
from netsim.scenario.clusters import cluster_label, node_count
from netsim.scenario.models import Workload
from netsim.simulate import prepare

HELD = (AUTO, *NCCL_NAMES)


class Printer(Protocol):
    """A format: the lines to print when a row is finished, and those at the end."""

    def lines(self, cell: Cell, row: Row) -> Iterator[str]:
        """What to print for one row."""

    def end(self, rows: Sequence[Row]) -> Iterator[str]:
        """What to print when all are there."""


class _Table:
    """netsim's own table, of all cells together."""

    def __init__(self, cells: Sequence[Cell]) -> None:
        self.cells, self.axes = cells, list(cells[0].axes)
        self.begun = False
        # What NCCL would do can be held against hardware, textbook algorithms cannot.
        self.validated = any(cell.scenario.collective.algorithm in HELD for cell in cells)

    def lines(self, cell: Cell, row: Row) -> Iterator[str]:
        if not self.begun:
            yield from (self._title(), tables.header(self.axes, validated=self.validated))
        self.begun = True
        yield tables.line(row, self.axes, validated=self.validated)

    def end(self, rows: Sequence[Row]) -> Iterator[str]:
        yield tables.footer(rows)

    def _title(self) -> str:
        scenario, work = self.cells[0].scenario, self.cells[0].scenario.collective
        algorithm = "" if "workload.algorithm" in self.axes else f", {work.algorithm}"
        several = f", {len(self.cells)} cells" if len(self.cells) > 1 else ""
        return (
            f"# {work.collective} on {node_count(scenario.cluster)} x "
            f"{cluster_label(scenario.cluster)}{algorithm}{several}"
        )


class _TestsLog:
    """A log of nccl-tests: every cell is one run of it."""

    def __init__(self, cells: Sequence[Cell]) -> None:
        self.cell = ""
        self.run: TestRun | None = None
        self.rows: list[Row] = []

    def lines(self, cell: Cell, row: Row) -> Iterator[str]:
        if cell.id != self.cell or self.run is None:
            yield from self._closing()
            self.cell, self.run, self.rows = cell.id, nccl_tests.run_of(prepare(cell)), []
            yield opening(self.run)
        self.rows.append(row)
        yield line(row, self.run.root)

    def end(self, rows: Sequence[Row]) -> Iterator[str]:
        yield from self._closing()

    def _closing(self) -> Iterator[str]:
        if self.run is not None:
            yield closing(self.run, self.rows)


class _Csv:
    """results.csv."""

    def __init__(self, cells: Sequence[Cell]) -> None:
        self.axes = list(cells[0].axes)

    def lines(self, cell: Cell, row: Row) -> Iterator[str]:
        return iter(())

    def end(self, rows: Sequence[Row]) -> Iterator[str]:
        yield csv_text(rows, self.axes).removesuffix("\n")


class _Json:
    """The rows as a list of mappings."""

    def __init__(self, cells: Sequence[Cell]) -> None:
        del cells

    def lines(self, cell: Cell, row: Row) -> Iterator[str]:
        return iter(())

    def end(self, rows: Sequence[Row]) -> Iterator[str]:
        yield json.dumps([asdict(row) for row in rows], indent=1)


def _table(cells: Sequence[Cell]) -> Printer:
    """The table of collectives, or that of training steps."""
    collective = isinstance(cells[0].scenario.workload, Workload)
    return _Table(cells) if collective else step_text.StepTable(cells)


def _tests_log(cells: Sequence[Cell]) -> Printer:
    """nccl-tests times collectives only."""
    if not isinstance(cells[0].scenario.workload, Workload):
        raise InputError("--format nccl-tests: a training step is no run of nccl-tests")
    return _TestsLog(cells)


PRINTERS: dict[str, Callable[[Sequence[Cell]], Printer]] = {
    "table": _table,
    "nccl-tests": _tests_log,
    "csv": _Csv,
    "json": _Json,
}
