"""Write results.parquet: the rows of results.csv with a type for each column.

CSV has no types: readers take an empty column for text, and nccl_version 2.30 for the number 2.3.
Parquet has the types of `Row`: whole numbers, other numbers and text. The values of swept axes are
text, because one axis may have sizes, names and versions.
"""

from collections.abc import Sequence
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from typing import Any

from netsim.base.errors import InputError
from netsim.base.files import write_bytes
from netsim.results.row import AXIS, COLUMNS, Row

PARQUET = "results.parquet"
# For each type annotation of a field of Row, the function of pyarrow that makes the type of its
# column.
ARROW_TYPES: dict[Any, str] = {str: "string", int | None: "int64", float | None: "float64"}


def check() -> None:
    """Raise an InputError if pyarrow, which is needed to write Parquet, is not installed."""
    _pyarrow("pyarrow")


def write_parquet(path: Path, rows: Sequence[Row], axes: Sequence[str]) -> Path:
    """Write rows with the columns of results.csv, in its order, and return the path."""
    arrow = _pyarrow("pyarrow")
    parquet = _pyarrow("pyarrow.parquet")
    annotations = {column.name: column.type for column in fields(Row)}
    names = []
    arrays = []
    for name in COLUMNS:
        kind = getattr(arrow, ARROW_TYPES[annotations[name]])()
        values = [getattr(row, name) for row in rows]
        names.append(name)
        try:
            arrays.append(arrow.array(values, kind))
        except OverflowError:
            largest = max(value for value in values if value is not None)
            raise InputError(
                f"results.parquet: {name}: {largest} does not fit 64 bits",
                hint="choose a smaller value, or leave parquet out of outputs",
            ) from None
    for axis in axes:
        names.append(AXIS + axis)
        arrays.append(arrow.array([_axis_text(row.axes.get(axis)) for row in rows], arrow.string()))
    sink = arrow.BufferOutputStream()
    parquet.write_table(arrow.Table.from_arrays(arrays, names=names), sink)
    return write_bytes(path, sink.getvalue().to_pybytes())


def _axis_text(value: object) -> str | None:
    """Return the value of an axis as results.csv spells it; None where the row has none."""
    if value is None:
        return None
    return repr(float(value)) if isinstance(value, float) else str(value)


def _pyarrow(module: str) -> Any:
    """Return a module of pyarrow, or raise an InputError that says how to install it."""
    try:
        return import_module(module)
    except ImportError:
        hint = "pip install 'netsim[parquet]', or leave parquet out of outputs"
        raise InputError("outputs: parquet needs the package pyarrow", hint=hint) from None
