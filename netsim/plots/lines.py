"""What the lines of a plot are: the cells of results, named by what differs between them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from netsim.plots.tables import RESULTS, read_table, with_numbers

NUMBERS = (
    "size_bytes", "time_us", "busbw_GBps", "algbw_GBps", "measured_time_us", "step_time_us",
)  # fmt: skip
# What may tell two cells apart, the most telling first.
NAMING = (
    "topology", "collective", "workload", "algorithm", "protocol", "nodes", "gpus_per_node",
    "ranks", "channels", "dtype", "launch", "nccl_version", "scenario", "file", "seed", "engine",
    "model_version", "cell",
)  # fmt: skip
_PLAIN = frozenset({"topology", "collective", "workload", "algorithm", "protocol", "scenario"})
_COUNTED = {"nodes": "node", "ranks": "rank", "channels": "channel", "gpus_per_node": "GPU",
            "gpus": "GPU"}  # fmt: skip
_SPOKEN = {"nccl_version": "NCCL"}
AXIS = "axis:"


@dataclass(frozen=True)
class Line:
    """One cell: its label, the values that name it, and its rows in order of size."""

    label: str
    values: tuple[str, ...]
    table: pd.DataFrame


@dataclass(frozen=True)
class Lines:
    """All lines of a plot and the columns that tell them apart."""

    columns: tuple[str, ...]
    lines: tuple[Line, ...]


def read_results(paths: Sequence[Path]) -> pd.DataFrame:
    """The rows of one or several results.csv that are answers, with `file` as a column."""
    table = read_all(paths)
    if "status" in table.columns:
        table = table[table["status"].isin(["", "ok"])]
    return table.reset_index(drop=True)


def read_all(paths: Sequence[Path]) -> pd.DataFrame:
    """All rows of one or several results.csv, with those that failed."""
    tables = []
    for path in paths:
        table = read_table(path, RESULTS, "the columns of results.csv")
        table = with_numbers(path, table, NUMBERS)
        tables.append(table.assign(file=path.parent.name or path.stem))
    return pd.concat(tables, ignore_index=True)


def lines_of(table: pd.DataFrame) -> Lines:
    """A line for every cell of every file, in the order of the files."""
    cells = [cell for _, cell in table.groupby(["file", "scenario", "cell"], sort=False)]
    columns = _telling(table, cells)
    lines = []
    for cell in cells:
        values = tuple(str(cell[column].iloc[0]) for column in columns)
        label = ", ".join(map(spoken, columns, values)) or _only(cell)
        lines.append(Line(label, values, cell.sort_values("size_bytes", kind="stable")))
    return Lines(columns, tuple(lines))


def _telling(table: pd.DataFrame, cells: list[pd.DataFrame]) -> tuple[str, ...]:
    """Columns, as few as possible, whose values are different for different cells."""
    axes = [str(column) for column in table.columns if str(column).startswith(AXIS)]
    constant = [
        column
        for column in (*axes, *(name for name in NAMING if name in table.columns))
        if all(cell[column].nunique() == 1 for cell in cells)
    ]
    chosen: list[str] = []
    groups = 1
    for column in constant:
        known = {tuple(cell[c].iloc[0] for c in (*chosen, column)) for cell in cells}
        if len(known) > groups:
            chosen.append(column)
            groups = len(known)
    return tuple(chosen)


def spoken(column: str, value: str) -> str:
    """A value as a label says it: `ring`, `4 nodes`, `oversubscription 2`, a variant's name."""
    key = column.removeprefix(AXIS)
    name = key.rpartition(".")[2]
    if name in _PLAIN or (column != key and name == key and key not in NAMING):
        return value or f"no {name}"
    if name in _COUNTED and value.isdigit():
        many = f"{value} {_COUNTED[name]}{'' if value == '1' else 's'}"
        return f"{many} a node" if name == "gpus_per_node" else many
    return f"{_SPOKEN.get(name, name.replace('_', ' '))} {value}"


def _only(cell: pd.DataFrame) -> str:
    """The label of a line that is alone: its algorithm, where it has only one."""
    if "algorithm" in cell.columns and cell["algorithm"].nunique() == 1:
        return str(cell["algorithm"].iloc[0])
    return ""
