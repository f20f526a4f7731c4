"""What the lines of a plot are: the cells of results, named by what differs between them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from netsim.plots.seeds import over_seeds
from netsim.plots.tables import RESULTS, read_table, with_numbers

NUMBERS = (
    "size_bytes", "time_us", "busbw_GBps", "algbw_GBps", "measured_time_us", "step_time_us",
)  # fmt: skip
DRAWN = ("cell", "algorithm", "protocol", "seeds")  # beside the numbers and their percentiles
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
Integers = np.ndarray[tuple[int], np.dtype[np.integer[Any]]]


@dataclass(frozen=True)
class Line:
    """One cell: its label, the values that name it, and its rows in order of size."""

    label: str
    values: tuple[str, ...]
    table: pd.DataFrame


@dataclass(frozen=True)
class Lines:
    """All lines of a plot and the columns that tell them apart; those of `rest` are drawn pale."""

    columns: tuple[str, ...]
    lines: tuple[Line, ...]
    rest: tuple[Line, ...] = ()


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
    """A line for every cell of every file, in the order of the files; seeds are one line."""
    table = over_seeds(table)
    cell = table.groupby(["file", "scenario", "cell"], sort=False).ngroup().to_numpy()
    order = np.lexsort((table["size_bytes"].to_numpy(), cell))
    table, cell = table.iloc[order], cell[order]
    starts = np.flatnonzero(np.diff(cell, prepend=-1))
    ends = np.append(starts[1:], len(table))
    columns = _telling(table, cell, starts)
    named = table.iloc[starts][list(columns)].astype(str)
    named = named.assign(**{column: telling(named[column].tolist()) for column in columns})
    drawn = [c for c in table.columns if c in DRAWN or str(c).startswith(NUMBERS)]
    table, lines = table[drawn], []
    for place, values in enumerate(named.itertuples(index=False, name=None)):
        part = table.iloc[starts[place] : ends[place]]
        lines.append(Line(label_of(columns, values, part), values, part))
    return Lines(columns, tuple(lines))


def thinned(lines: Lines, few: int, most: int = 0, always: Sequence[str] = ()) -> Lines:
    """A few of the lines, the others as `rest`, if there are more than `most`: evenly in the order
    of their one column, or from the fastest to the slowest at their largest size; those of some
    cells in any case.
    """
    if len(lines.lines) <= max(few, most):
        return lines
    order = list(range(len(lines.lines)))
    if len(lines.columns) > 1:
        ends = [(-line.table["size_bytes"].iloc[-1], line.table["time_us"].iloc[-1])
                for line in lines.lines]  # fmt: skip
        order.sort(key=ends.__getitem__)
    chosen = {order[round(k * (len(order) - 1) / (few - 1))] for k in range(few)}
    chosen |= {k for k, line in enumerate(lines.lines) if line.table["cell"].iloc[0] in always}
    kept = [line for k, line in enumerate(lines.lines) if k in chosen]
    rest = [line for k, line in enumerate(lines.lines) if k not in chosen]
    return Lines(lines.columns, tuple(kept), tuple(rest))


def _telling(table: pd.DataFrame, cell: Integers, starts: Integers) -> tuple[str, ...]:
    """Columns, as few as possible, whose values are different for different cells; the cells of
    rows that lie together are given by number, and where each starts.
    """
    axes = [str(column) for column in table.columns if str(column).startswith(AXIS)]
    chosen: list[str] = []
    groups, parts = np.zeros(len(starts), np.int64), 1
    for column in (*axes, *(name for name in NAMING if name in table.columns)):
        codes, values = pd.factorize(table[column])
        of_cell = codes[starts]
        if codes.min() < 0 or (codes != of_cell[cell]).any():
            continue
        finer, found = pd.factorize(groups * len(values) + of_cell)
        if len(found) > parts:
            chosen.append(column)
            groups, parts = finer, len(found)
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
    return f"{_SPOKEN.get(name, in_words(name))} {value}"


def in_words(name: str) -> str:
    """The last part of a key as words; a variable of NCCL stays as it is set."""
    return name if name.isupper() else name.replace("_", " ")


def telling(values: Sequence[str]) -> list[str]:
    """Values of several keys (`tp: 8, pp: 4`) without those that all of them share."""
    parts = [str(value).split(", ") for value in values]
    shared = set.intersection(*map(set, parts)) if parts else set()
    left = [", ".join(part for part in each if part not in shared) for each in parts]
    return left if all(left) and all(": " in part for part in shared) else list(map(str, values))


def label_of(columns: Sequence[str], values: Sequence[str], cell: pd.DataFrame) -> str:
    """A line as the legend names it."""
    return ", ".join(map(spoken, columns, values)) or _only(cell)


def _only(cell: pd.DataFrame) -> str:
    """The label of a line that is alone: its algorithm, where it has only one."""
    if "algorithm" in cell.columns and cell["algorithm"].nunique() == 1:
        return str(cell["algorithm"].iloc[0])
    return ""
