"""The CSV of measured runs: a row a size, the columns by name."""

import csv
import math
from collections.abc import Mapping
from pathlib import Path

from netsim.errors import InputError, suggest
from netsim.measured.curve import Measured

MICRO = 1e-6
TIMES = ("oop_time_us", "ip_time_us")
COLUMNS = (
    "size_bytes", "count", "dtype", "redop", "root", "oop_time_us", "oop_algbw_gbps",
    "oop_busbw_gbps", "ip_time_us", "ip_algbw_gbps", "ip_busbw_gbps",
)  # fmt: skip


def read_csv(path: Path) -> tuple[Measured, ...]:
    """All rows of a file that have a time; what cannot be read is an error with its line."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read: {error}") from None
    return parse_csv(text, str(path))


def parse_csv(text: str, name: str) -> tuple[Measured, ...]:
    """The rows of a text, called `name` in errors."""
    if not text.strip():
        raise InputError(f"{name}: the file is empty")
    lines = csv.reader(text.splitlines())
    header = [column.strip() for column in next(lines)]
    _check_header(header, name)
    found = []
    for cells in lines:
        place = f"{name}:{lines.line_num}"
        if not any(cell.strip() for cell in cells):
            continue
        if len(cells) != len(header):
            raise InputError(f"{place}: expected {len(header)} values, got {len(cells)}")
        values = {key: cell.strip() for key, cell in zip(header, cells, strict=True)}
        row = _row(values, place, lines.line_num)
        if row.out_of_place is not None or row.in_place is not None:
            found.append(row)
    if not found:
        raise InputError(f"{name}: no row has a time")
    return tuple(found)


def _check_header(header: list[str], name: str) -> None:
    if "size_bytes" not in header or not set(TIMES) & set(header):
        missing = "size_bytes" if "size_bytes" not in header else " or ".join(TIMES)
        raise InputError(
            f"{name}: not a table of measured runs, there is no column {missing}"
            f"{suggest(missing, header)}"
        )


def _row(values: Mapping[str, str], place: str, line: int) -> Measured:
    root = values.get("root", "")
    return Measured(
        size_bytes=_whole(values["size_bytes"], "size_bytes", place),
        count=_whole(values["count"], "count", place) if values.get("count") else None,
        dtype=values.get("dtype") or "float",
        redop=values.get("redop", ""),
        root=int(root) if root.lstrip("-").isdecimal() else -1,
        out_of_place=_seconds(values.get("oop_time_us", ""), "oop_time_us", place),
        in_place=_seconds(values.get("ip_time_us", ""), "ip_time_us", place),
        line=line,
    )


def _whole(text: str, column: str, place: str) -> int:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not number >= 0 or number != int(number):
        raise InputError(f"{place}: {column}: expected a whole number, got {text!r}")
    return int(number)


def _seconds(text: str, column: str, place: str) -> float | None:
    if text.casefold() in ("", "n/a", "nan"):
        return None
    try:
        micros = float(text)
    except ValueError:
        raise InputError(f"{place}: {column}: expected microseconds, got {text!r}") from None
    if not 0 < micros < math.inf:
        raise InputError(f"{place}: {column}: expected a time above 0, got {text}")
    return micros * MICRO
