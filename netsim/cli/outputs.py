"""What a run leaves behind besides rows: a table from the outputs of a scenario to modules.

A module is imported when its output is asked for: plots take longer to import than a small run.
"""

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from netsim.results.folder import RESULTS, TIMINGS
from netsim.scenario.cells import Cell

WRITERS = {
    "trace": "netsim.cli.traces",
    "chakra": "netsim.cli.execution_traces",
    "plots": "netsim.cli.pictures",
    "report": "netsim.cli.report",
}


def write_outputs(cells: Sequence[Cell], folder: Path, engine: str) -> list[str]:
    """Write what the scenario asks for; every file, with what it leaves out."""
    wanted = cells[0].scenario.outputs
    written = [str(folder / RESULTS), str(folder / TIMINGS)]
    for output, module in WRITERS.items():
        if output in wanted:
            written += import_module(module).write(cells, folder, engine)
    return written
