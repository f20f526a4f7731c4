"""Columns of text, for files of many rows: what rows have in common is spelled out once.

Knows neither programs nor runs.
"""

import csv
from collections.abc import Callable
from io import StringIO
from typing import Any

import numpy as np
from numpy.typing import NDArray


def spelled(values: NDArray[Any], spell: Callable[[Any], str]) -> list[str]:
    """The text of every value of a column."""
    found, place = np.unique(values, return_inverse=True)
    texts = np.array([spell(value) for value in found.tolist()], object)
    column: list[str] = texts[place].tolist()
    return column


def cells(*values: object) -> str:
    """Cells that stand side by side in a line of CSV."""
    line = StringIO()
    # The empty cell at the end is cut off: alone in a line, an empty cell would be quoted.
    csv.writer(line, lineterminator="\n").writerow([*values, ""])
    return line.getvalue()[:-2]


def micro(seconds: float) -> str:
    """Microseconds to 12 digits, beyond which engines need not agree."""
    return repr(float(f"{seconds * 1e6:.12g}"))


def whole(value: float) -> str:
    """A number, without a point where it is whole."""
    return str(int(value) if np.isfinite(value) and value.is_integer() else value)
