"""Reading the CSV files that pictures are drawn from, refusing what is something else.

Every refusal names the file, the line and the column, and what was expected there.
"""

import csv
from collections.abc import Collection, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from netsim.errors import InputError, shown, suggest

RESULTS = ("scenario", "cell", "size_bytes", "time_us", "busbw_GBps")
TRACE = ("row", "kind", "channel", "step", "stream", "src", "dst", "start_us", "end_us")
LINKS = ("link", "kind", "capacity_GBps", "utilisation")
LOAD = ("link", "t_us", "GBps", "utilisation")


def read_table(path: Path, columns: Sequence[str], what: str) -> pd.DataFrame:
    """All cells of a CSV file as text, having the given columns; `what` names such files.

    The index holds the lines of the file.
    """
    try:
        header, rows, lines = _read(path, what)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file", hint=f"expected {what}") from None
    except IsADirectoryError:
        raise InputError(f"{path}: a directory, expected {what}") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    except (UnicodeDecodeError, csv.Error):
        raise InputError(f"{path}: not a text file, expected {what}") from None
    for column in columns:
        if column not in header:
            near = suggest(column, header)
            raise InputError(f"{path}:1: column {column} is missing, expected {what}{near}")
    return pd.DataFrame(rows, index=lines, columns=header, dtype=str)


def read_long_table(
    path: Path, columns: Sequence[str], what: str, only: Collection[str]
) -> pd.DataFrame:
    """As `read_table`, but of many rows only some columns, if there are such; a text that cells
    have in common is held once, as a category.
    """
    try:
        table = _read_at_once(path, columns, only)
    except (OSError, ValueError):
        table = None
    if table is None:  # row by row, what is wrong is told
        return read_table(path, columns, what).astype("category")
    return table


def _read_at_once(path: Path, columns: Sequence[str], only: Collection[str]) -> pd.DataFrame | None:
    """Columns of a file as pandas reads them; None where one is missing, or where rows may be
    longer or shorter than the header, of which it makes something else.
    """
    header = pd.read_csv(path, nrows=0, encoding="utf-8-sig").columns
    if not set(columns) <= {*header}:
        return None
    table = pd.read_csv(
        path,
        usecols=[column for column in header if column in only or column == header[-1]],
        dtype=str,
        na_filter=False,
        skip_blank_lines=False,
        encoding="utf-8-sig",
    )
    if not isinstance(table.index, pd.RangeIndex) or (table[header[-1]] == "").any():
        return None
    table.index += 2  # lines of the file, after the header
    return table.astype("category")


def _read(path: Path, what: str) -> tuple[list[str], list[list[str]], list[int]]:
    """Header, rows, and the line in which each of these ends."""
    with path.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.reader(file)
        header = next(reader, None)
        if header is None:
            raise InputError(f"{path}: empty, expected {what}")
        rows, lines = [], []
        for row in reader:
            if len(row) != len(header):
                text = f"expected {len(header)} fields as in the header, got {len(row)}"
                raise InputError(f"{path}:{reader.line_num}: {text}")
            rows.append(row)
            lines.append(reader.line_num)
    return header, rows, lines


def numbers(path: Path, table: pd.DataFrame, column: str) -> pd.Series:
    """A column as numbers, NaN where a cell is empty."""
    cells = pd.Categorical(table[column])  # a text that many cells have is read once
    text = pd.Series(cells.categories, dtype=str).str.strip()
    values = pd.to_numeric(text.where(text != "", None), errors="coerce").astype(float)
    wrong = np.flatnonzero((values.isna() & (text != "")).to_numpy()[cells.codes])
    if len(wrong):
        line, got = int(table.index[wrong[0]]), shown(str(text[cells.codes[wrong[0]]]))
        raise InputError(f"{path}:{line}: {column}: expected a number, got {got}")
    return pd.Series(values.to_numpy()[cells.codes], table.index)


def with_numbers(path: Path, table: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """The table with some of its columns as numbers; those it lacks are left out."""
    present = [column for column in columns if column in table.columns]
    return table.assign(**{column: numbers(path, table, column) for column in present})


def filled(path: Path, table: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """The table with columns as numbers, none of which may be empty."""
    table = with_numbers(path, table, columns)
    for column in columns:
        missing = table.index[table[column].isna()]
        if len(missing):
            raise InputError(f"{path}:{int(missing[0])}: {column}: expected a number, got nothing")
    return table
