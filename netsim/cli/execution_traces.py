"""Chakra execution traces of a training step: a file a rank, for other simulators."""

from collections.abc import Sequence
from pathlib import Path

from netsim.scenario.cells import Cell
from netsim.training.prepare import prepare_step
from netsim.training.recorded.chakra import write_ranks

FOLDER = "chakra"


def write(cells: Sequence[Cell], folder: Path, engine: str) -> list[str]:
    """Write the step of the first cell."""
    del engine
    cell = cells[0]
    prepared = prepare_step(cell)
    name = cell.scenario.name or "step"
    ranks = range(prepared.setting.grid.size)
    slow = {one.rank: one.slowdown for one in prepared.work.stragglers}
    files = write_ranks(folder / FOLDER, name, prepared.tape(), ranks, slow)
    return [f"{folder / FOLDER} ({len(files) - 1} ranks)"]
