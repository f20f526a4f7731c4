"""A Row: the answer to one cell at one size, with the columns that people script against."""

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, fields
from io import StringIO
from typing import Any

from netsim.errors import InputError
from netsim.values import dataclass


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of results.csv; None is an empty cell. GB/s are 1e9 bytes a second."""

    scenario: str = ""
    cell: str = ""
    topology: str = ""
    nodes: int | None = None
    gpus_per_node: int | None = None
    ranks: int | None = None
    workload: str = ""
    collective: str = ""
    algorithm: str = ""
    protocol: str = ""
    channels: int | None = None
    dtype: str = ""
    launch: str = ""
    nccl_version: str = ""
    size_bytes: int | None = None
    count: int | None = None
    time_us: float | None = None
    inplace_time_us: float | None = None
    algbw_GBps: float | None = None
    busbw_GBps: float | None = None
    step_time_us: float | None = None
    bound_by: str = ""
    validated: str = ""
    measured_time_us: float | None = None
    error_pct: float | None = None
    approximation: str = ""
    approximation_pct: float | None = None
    seed: int | None = None
    rows: int | None = None
    engine: str = ""
    model_version: str = ""
    status: str = "ok"
    error: str = ""
    axes: Mapping[str, Any] = field(default_factory=dict)
    details: Mapping[str, float] = field(default_factory=dict)  # the line of breakdown.csv


BESIDE = ("axes", "details")
COLUMNS = tuple(column.name for column in fields(Row) if column.name not in BESIDE)
AXIS = "axis:"


def csv_text(rows: Sequence[Row], axes: Iterable[str] = ()) -> str:
    """Rows as CSV, the swept axes in columns of their own behind the fixed ones."""
    names = list(axes)
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*COLUMNS, *(AXIS + name for name in names)])
    for row in rows:
        fixed = [_written(getattr(row, name)) for name in COLUMNS]
        writer.writerow([*fixed, *(_written(row.axes.get(name)) for name in names)])
    return text.getvalue()


def details_text(rows: Sequence[Row], axes: Iterable[str] = ()) -> str:
    """What rows have beside their own columns, as CSV: a line a row, the swept axes last."""
    names, ends = list(dict.fromkeys(name for row in rows for name in row.details)), list(axes)
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["scenario", "cell", *names, *(AXIS + name for name in ends)])
    for row in rows:
        if row.details:
            own = [_written(row.details.get(name)) for name in names]
            places = [_written(row.axes.get(name)) for name in ends]
            writer.writerow([row.scenario, row.cell, *own, *places])
    return text.getvalue()


def row_from(values: Mapping[str, Any]) -> Row:
    """A row from the mapping that a journal line holds."""
    unknown = sorted(set(values) - set(COLUMNS) - set(BESIDE))
    if unknown:
        raise InputError(f"not a row of results: unknown column {unknown[0]!r}")
    return Row(**values)


def _written(value: object) -> str:
    """Text of a value: floats so that they read back as they were."""
    if value is None:
        return ""
    return repr(value) if isinstance(value, float) else str(value)
