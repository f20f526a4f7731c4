"""results.csv files made up for the tests of plots: a latency and a rate for every cell."""

import csv
from pathlib import Path
from typing import Any

SIZES = [8 << k for k in range(0, 31, 2)]
Row = dict[str, Any]


def row(size: int, latency_us: float, bandwidth: float, **values: Any) -> Row:
    """One line; `bandwidth` in GB/s of bus bandwidth."""
    time = latency_us + size / bandwidth * 1.75 / 1e3
    return {
        "scenario": "s",
        "cell": "c",
        "topology": "dgx-h100",
        "nodes": 1,
        "collective": "all_reduce",
        "algorithm": "ring",
        "protocol": "Simple",
        "size_bytes": size,
        "time_us": time,
        "busbw_GBps": size / time / 1e3 * 1.75,
        "measured_time_us": "",
        "step_time_us": "",
        "status": "ok",
        **values,
    }


def sweep(*axes: tuple[str, list[Any]], sizes: list[int] = SIZES) -> list[Row]:
    """A cell for every combination of the values of axes."""
    cells: list[Row] = [{}]
    for name, values in axes:
        cells = [{**cell, f"axis:{name}": value} for cell in cells for value in values]
    return [
        row(size, 10 + k, 400 - k, cell=f"c{k}", **cell)
        for k, cell in enumerate(cells)
        for size in sizes
    ]


def write(folder: Path, rows: list[Row]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "results.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]), restval="")
        writer.writeheader()
        writer.writerows(rows)
    return path
