"""What a report says in sentences and figures, from results alone."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from netsim.plots.lines import AXIS
from netsim.plots.style import time_text
from netsim.plots.sweeps import at_largest, shown_size
from netsim.report.headline import blank, cell_name, headline, longer
from netsim.report.trust import rows_text, trust

_LISTED = 5
Line = tuple[str, str, str, str]  # a cell, its time, how much longer, its bandwidth or cost


@dataclass(frozen=True)
class Summary:
    """The answer: a question, a sentence, a few figures, the best and the worst cells."""

    question: str
    headline: str
    cards: tuple[tuple[str, str, str], ...]
    beside: str  # what the last column of the tables is
    best: tuple[Line, ...]
    worst: tuple[Line, ...]
    failures: tuple[str, ...]
    validated: tuple[str, ...]
    best_cell: str = ""
    base_cells: tuple[str, ...] = field(default=())


def summary_of(table: pd.DataFrame, good: pd.DataFrame, manifest: Mapping[str, Any]) -> Summary:
    """Sum up a table of results."""
    axes = list(manifest.get("axes", []))
    rows = at_largest(good).sort_values("time", kind="stable") if len(good) else good
    rows = rows[rows["time"].notna()] if len(rows) else rows
    bases = _base_cells(good, manifest)
    records: list[dict[str, Any]] = rows.to_dict("records") if len(rows) else []  # type: ignore[assignment]
    listed = [_line(one, records[0]["time"], axes) for one in records]
    failed = table[~table["status"].isin(["", "ok"])]
    return Summary(
        question=_question(manifest),
        headline=headline(records, good, axes, bases, shown_size(good) if len(good) else ""),
        cards=tuple(_cards(table, records, bases, axes)),
        beside="bus bandwidth" if all(blank(r.get("cost_usd")) for r in records) else "cost",
        best=tuple(listed[:_LISTED]),
        worst=tuple(reversed(listed[_LISTED:][-_LISTED:])),
        failures=tuple(dict.fromkeys(failed["error"].astype(str)))[:10],
        validated=tuple(trust(good)),
        best_cell=str(records[0]["cell"]) if records else "",
        base_cells=tuple(bases),
    )


def _question(manifest: Mapping[str, Any]) -> str:
    """The first comment of the scenario file, which says what it asks."""
    lines = []
    for line in str(manifest.get("text", "")).splitlines():
        if not line.startswith("#"):
            break
        lines.append(line.lstrip("# ").strip())
    return " ".join(lines)


def _line(row: Mapping[str, Any], best: float, axes: Sequence[str]) -> Line:
    more = "" if row["time"] <= best else longer(row["time"], best)
    beside = _bandwidth(row) if blank(row.get("cost_usd")) else dollars(row["cost_usd"])
    return cell_name(row, axes), time_text(row["time"]), more, beside


def _cards(
    table: pd.DataFrame, records: Sequence[Any], bases: Sequence[str], axes: Sequence[str]
) -> list[tuple[str, str, str]]:
    """Label, figure, note."""
    failed = table[~table["status"].isin(["", "ok"])]["cell"].nunique()
    note = f"{failed} failed" if failed else "all answered"
    cards = [("cells", f"{table['cell'].nunique():,}", f"{rows_text(len(table))}, {note}")]
    if not records:
        return cards
    best = records[0]
    bandwidth = _bandwidth(best)
    note = f"{bandwidth} bus bandwidth" if bandwidth else ""
    cards.append(("best time", time_text(best["time"]), note))
    base = next((r for r in records if r["cell"] in bases), None)
    if base is not None:
        ratio = base["time"] / best["time"]
        cards.append(("against the base line", f"{ratio:.2f} ×", time_text(base["time"])))
    elif len(records) > 1:
        ratio = records[-1]["time"] / best["time"]
        cards.append(("best against worst", f"{ratio:.2f} ×", time_text(records[-1]["time"])))
    if not blank(best.get("cost_usd")):
        power = f"{best['power_w'] / 1e3:.3g} kW"
        cards.append(("cost of the best", dollars(best["cost_usd"]), power))
        cheap = min(records, key=lambda one: (float(one["cost_usd"]), one["time"]))
        if cheap["cost_usd"] < best["cost_usd"]:
            note = f"{cell_name(cheap, axes)}: {longer(cheap['time'], best['time'])}"
            cards.append(("cheapest", dollars(cheap["cost_usd"]), note))
    return cards


def dollars(amount: float) -> str:
    """A sum of money, short: `$9.43 M`."""
    for unit, factor in ((" bn", 1e9), (" M", 1e6), (" k", 1e3)):
        if amount >= factor:
            return f"${amount / factor:.3g}{unit}"
    return f"${amount:.0f}"


def _bandwidth(row: Mapping[str, Any]) -> str:
    value = row.get("busbw_GBps")
    return "" if value is None or blank(value) else f"{value:.4g} GB/s"


def _base_cells(good: pd.DataFrame, manifest: Mapping[str, Any]) -> list[str]:
    """The cells of the base line."""
    base, rows = manifest.get("base") or {}, good
    if not base:
        return []
    for axis, value in base.items():
        rows = rows[rows[AXIS + axis].astype(str) == str(value)]
    return [str(cell) for cell in rows["cell"].drop_duplicates()]
