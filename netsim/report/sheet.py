"""The rows of a report's table: columns of values, texts kept once, as JSON for the page."""

import json
from collections.abc import Mapping, Sequence
from math import isnan
from typing import Any

import pandas as pd

from netsim.plots.lines import AXIS
from netsim.plots.sweeps import short

# Column of results.csv, title, kind.
COLUMNS = (
    ("size_bytes", "size", "size"),
    ("algorithm", "algorithm", "text"),
    ("protocol", "protocol", "text"),
    ("time_us", "time", "time"),
    ("step_time_us", "step time", "time"),
    ("busbw_GBps", "bus bandwidth (GB/s)", "number"),
    ("speedup", "against base", "ratio"),
    ("cost_usd", "cost (USD)", "money"),
    ("power_w", "power (W)", "money"),
    ("error_pct", "error (%)", "number"),
    ("bound_by", "bound by", "text"),
    ("status", "status", "text"),
)
DIGITS = 6


def sheet_of(table: pd.DataFrame, axes: Sequence[str]) -> dict[str, Any]:
    """Columns that say anything: axes first."""
    columns = []
    for axis in axes:
        if AXIS + axis in table.columns:
            title = short(axis)
            columns.append(_column(table[AXIS + axis].tolist(), title, "text"))
    for name, title, kind in COLUMNS:
        if name in table.columns and not _told(table, name, axes):
            values = table[name].tolist()
            if _says_something(values, kind):
                columns.append(_column(values, title, kind))
    return {"rows": len(table), "columns": columns}


def _told(table: pd.DataFrame, name: str, axes: Sequence[str]) -> bool:
    """Whether an axis says the same."""
    same = [AXIS + axis for axis in axes if axis.rpartition(".")[2] == name]
    return any(
        one in table.columns and table[one].astype(str).equals(table[name].astype(str))
        for one in same
    )


def _says_something(values: Sequence[Any], kind: str) -> bool:
    known = {value for value in values if not _missing(value)}
    return len(known) > (1 if kind == "text" else 0)


def _missing(value: Any) -> bool:
    return value is None or value == "" or (isinstance(value, float) and isnan(value))


def _column(values: Sequence[Any], title: str, kind: str) -> dict[str, Any]:
    if kind == "text":
        texts = ["" if _missing(value) else str(value) for value in values]
        known = {text: place for place, text in enumerate(dict.fromkeys(texts))}
        return {"title": title, "kind": kind, "texts": list(known),
                "values": [known[text] for text in texts]}  # fmt: skip
    digits = 17 if kind == "size" else DIGITS  # a rounded 1 GiB would be shown as 1024 MiB
    numbers = [None if _missing(v) else float(f"{float(v):.{digits}g}") for v in values]
    plain = [int(v) if v is not None and v == int(v) else v for v in numbers]
    return {"title": title, "kind": kind, "values": plain}


def page_json(values: Mapping[str, Any]) -> str:
    """JSON that can stand in a script element of a page, whatever it contains."""
    text = json.dumps(values, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
