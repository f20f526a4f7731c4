"""Reading the CSV files that pictures are drawn from, refusing what is something else.

Every refusal names the file, the line and the column, and what was expected there.
"""

import csv
from collections.abc import Collection, Sequence
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from netsim.errors import InputError, shown, suggest

if TYPE_CHECKING:
    import _csv

RESULTS = ("scenario", "cell", "size_bytes", "time_us", "busbw_GBps")
TRACE = ("row", "kind", "channel", "step", "stream", "src", "dst", "start_us", "end_us")
LINKS = ("link", "kind", "capacity_GBps", "utilisation")
LOAD = ("link", "t_us", "GBps", "utilisation")


def read_table(path: Path, columns: Sequence[str], what: str) -> pd.DataFrame:
    """All cells of a CSV file as text, having the given columns; `what` names such files.

    The index holds the lines of the file.
    """
    header, rows, lines = _read(path, columns, what)
    return pd.DataFrame(rows, index=lines, columns=header, dtype=str)


def read_long_table(
    path: Path, columns: Sequence[str], what: str, only: Collection[str]
) -> pd.DataFrame:
    """As `read_table`, but of many rows only some columns, if there are such; a text that cells
    have in common is held once, as a category.
    """
    header, rows, lines = _read(path, columns, what, only)
    cells = zip(*rows, strict=True) if rows else [()] * len(header)
    held = map(_held_once, cells)
    return pd.DataFrame(dict(zip(header, held, strict=True)), index=lines)


def _held_once(column: Sequence[str]) -> pd.Categorical:
    codes, texts = pd.factorize(np.array(column, object))
    return pd.Categorical.from_codes(codes, pd.Index(texts))


def _read(
    path: Path, columns: Sequence[str], what: str, only: Collection[str] = ()
) -> tuple[list[str], list[tuple[str, ...]], list[int]]:
    """Header and rows, or what is wanted of these, and the line in which each row ends."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file)
            header = next(reader, None)
            if header is None:
                raise InputError(f"{path}: empty, expected {what}")
            _check_header(path, header, columns, what)
            wanted = [k for k, column in enumerate(header) if not only or column in only]
            rows, lines = _cells(path, reader, len(header), wanted)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file", hint=f"expected {what}") from None
    except IsADirectoryError:
        raise InputError(f"{path}: a directory, expected {what}") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    except (UnicodeDecodeError, csv.Error):
        raise InputError(f"{path}: not a text file, expected {what}") from None
    return [header[k] for k in wanted], rows, lines


def _check_header(path: Path, header: list[str], columns: Sequence[str], what: str) -> None:
    for column in columns:
        if column not in header:
            near = suggest(column, header)
            raise InputError(f"{path}:1: column {column} is missing, expected {what}{near}")


def _cells(
    path: Path, reader: "_csv.Reader", width: int, wanted: Sequence[int]
) -> tuple[list[tuple[str, ...]], list[int]]:
    pick, rows, lines = itemgetter(*wanted), [], []
    for row in reader:
        if len(row) != width:
            text = f"expected {width} fields as in the header, got {len(row)}"
            raise InputError(f"{path}:{reader.line_num}: {text}")
        rows.append(pick(row))
        lines.append(reader.line_num)
    return rows, lines


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
