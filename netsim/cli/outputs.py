"""What a run leaves behind besides rows: plots and the trace of one cell."""

from pathlib import Path

from netsim.results import Row
from netsim.results.folder import RESULTS, TIMINGS
from netsim.scenario.cells import Cell


def write_outputs(cells: list[Cell], rows: list[Row], folder: Path, engine: str) -> list[Path]:
    """Write what the scenario asks for; the paths of all files."""
    written = [folder / RESULTS, folder / TIMINGS]
    return written
