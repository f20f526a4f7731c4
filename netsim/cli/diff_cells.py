"""Rows of one cell as a side of `netsim diff`: chosen by the values of its axes."""

from collections.abc import Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

import pandas as pd

from netsim.errors import InputError
from netsim.plots.lines import AXIS, spoken
from netsim.results import Row, csv_text

CELL = "#"  # between a folder of results or a scenario and what names one of its cells
STEP = 0  # stands for the size of a training step, which has none
_LISTED = 8


@dataclass(frozen=True)
class Side:
    """One of two things compared: times in µs by size, and what is known of each."""

    name: str
    collective: str
    times: dict[int, float]
    why: dict[int, str]


def side_of(name: str, table: pd.DataFrame) -> Side:
    """The rows of one cell; a training step has a time without a size."""
    rows = table[table["time_us"].notna() & (table["size_bytes"] > 0)]
    sizes, times = rows["size_bytes"], rows["time_us"]
    if rows.empty and "step_time_us" in table.columns:
        rows = table[table["step_time_us"].notna()]
        times = rows["step_time_us"]
        sizes = times * 0 + STEP
    found = dict(zip(sizes.astype(int), times.astype(float), strict=True))
    named = "collective" in table.columns and not table["collective"].isna().all()
    collective = str(table["collective"].iloc[0]) if named else ""
    words = [n for n in ("algorithm", "protocol", "bound_by") if n in rows.columns]
    texts = rows[words].fillna("").astype(str).to_numpy().tolist()
    why = {size: reason(*parts) for size, parts in zip(sizes.astype(int), texts, strict=True)}
    return Side(name, collective, found, why)


def reason(*parts: str) -> str:
    """Algorithm, protocol and what bounds it, as far as they are known."""
    return ", ".join(part for part in (" ".join(parts[:2]).strip(), *parts[2:]) if part)


def table_of(rows: Sequence[Row], axes: Sequence[str]) -> pd.DataFrame:
    """Rows as they would be read from results.csv."""
    table = pd.read_csv(StringIO(csv_text(rows, axes)), dtype=str, keep_default_na=False)
    numbers = ["size_bytes", "time_us", "step_time_us"]
    table[numbers] = table[numbers].apply(pd.to_numeric, errors="coerce")
    return table


def one_cell(path: Path, table: pd.DataFrame, wanted: str) -> pd.DataFrame:
    """The rows of the one cell that is named by values of its axes (`8 x 400G`, `nodes=4,Ring`),
    as they are written in the file or as labels and messages say them.
    """
    if "cell" not in table.columns:
        return table
    axes = [name for name in table.columns if str(name).startswith(AXIS)]
    cells = dict(zip(_names(table, axes), table.drop_duplicates("cell")["cell"], strict=True))
    if wanted.strip() in cells:  # as they are listed, perhaps with commas of their own
        same: pd.DataFrame = table[table["cell"] == cells[wanted.strip()]]
        return same
    chosen = table
    for part in filter(None, (text.strip() for text in wanted.split(","))):
        key, _, value = part.rpartition("=")
        named = [a for a in axes if not key or key in (a[len(AXIS) :], a.rpartition(".")[2])]
        fits = [_is(chosen[axis].astype(str), axis, value) for axis in named]
        kept = chosen[pd.concat(fits, axis=1).any(axis=1)] if fits else chosen[:0]
        if kept.empty:
            raise InputError(f"{path}: no cell is {part!r}", hint=_listed(table, axes))
        chosen = kept
    if chosen["cell"].nunique() > 1:
        raise InputError(
            f"{path}: has {chosen['cell'].nunique()} such cells; only one can be compared",
            hint=f"name it behind {CELL}: {_listed(chosen, axes)}",
        )
    return chosen


def _is(values: "pd.Series[str]", axis: str, wanted: str) -> "pd.Series[bool]":
    return values.map(lambda value: wanted in (value, spoken(axis, value)))


def _names(table: pd.DataFrame, axes: Sequence[str]) -> list[str]:
    cells = table.drop_duplicates("cell")
    return [
        ", ".join(spoken(axis, str(row[axis])) for axis in axes).strip()
        for _, row in cells.iterrows()
    ]


def _listed(table: pd.DataFrame, axes: Sequence[str]) -> str:
    names = _names(table, axes)
    more = f"; … {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return "; ".join(names[:_LISTED]) + more
