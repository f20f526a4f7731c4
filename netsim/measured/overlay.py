"""Measured times beside simulated ones in results: the `measured` file of a scenario."""

from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from netsim.errors import InputError
from netsim.measured.logs import read_log
from netsim.results import Row
from netsim.scenario.cells import Cell


def overlaid(row: Row, cell: Cell) -> Row:
    """The row with the measured time of its size and the error, where its file has it."""
    name = cell.scenario.measured
    if name is None or row.time_us is None or row.size_bytes is None:
        return row
    try:
        times = _times(str(_path(cell, name)), row.collective)
    except InputError as error:
        raise cell.source.error(("measured",), error.message, hint=error.hint) from None
    measured = times.get(row.size_bytes)
    if measured is None:
        return row
    return replace(row, measured_time_us=measured, error_pct=(row.time_us / measured - 1) * 100)


def check(cell: Cell) -> None:
    """Refuse a file that cannot be read, before anything runs."""
    name, work = cell.scenario.measured, cell.scenario.workload
    if name is None:
        return
    try:
        _times(str(_path(cell, name)), getattr(work, "collective", ""))
    except InputError as error:
        raise cell.source.error(("measured",), error.message, hint=error.hint) from None


def _path(cell: Cell, name: str) -> Path:
    """The file beside the scenario, or as it is named from where one is."""
    beside = Path(cell.source.name).parent / name
    return beside if beside.is_file() else Path(name)


@lru_cache(maxsize=32)
def _times(path: str, collective: str) -> dict[int, float]:
    """The times in µs by size of the runs of a collective."""
    found: dict[int, float] = {}
    for run in read_log(Path(path), presumed=collective):
        if run.collective == collective:
            for row in run.rows:
                found.setdefault(row.size_bytes, (row.seconds(collective) or 0.0) * 1e6)
    if not found:
        raise InputError(f"{path}: has no run of {collective}")
    return found
