"""What a report says in sentences and figures, from results alone."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isnan
from typing import Any

import pandas as pd

from netsim.plots.lines import AXIS
from netsim.plots.style import time_text
from netsim.plots.sweeps import at_largest, shown_size

_LISTED = 5


@dataclass(frozen=True)
class Summary:
    """The answer: a question, a sentence, a few figures, the best and the worst cells."""

    question: str
    headline: str
    cards: tuple[tuple[str, str, str], ...]
    best: tuple[tuple[str, str, str], ...]
    worst: tuple[tuple[str, str, str], ...]
    failures: tuple[str, ...]
    validated: tuple[str, ...]
    best_cell: str = ""
    base_cells: tuple[str, ...] = field(default=())


def summary_of(
    table: pd.DataFrame,
    good: pd.DataFrame,
    manifest: Mapping[str, Any],
    explanations: Mapping[str, Mapping[str, Any]],
) -> Summary:
    """Sum up a table of results."""
    axes = list(manifest.get("axes", []))
    rows = at_largest(good).sort_values("time", kind="stable") if len(good) else good
    rows = rows[rows["time"].notna()] if len(rows) else rows
    bases = _base_cells(good, manifest)
    records: list[dict[str, Any]] = rows.to_dict("records") if len(rows) else []  # type: ignore[assignment]
    listed = [(cell_name(r, axes), time_text(r["time"]), _bandwidth(r)) for r in records]
    failed = table[~table["status"].isin(["", "ok"])]
    return Summary(
        question=_question(manifest),
        headline=_headline(records, axes, bases, shown_size(good) if len(good) else ""),
        cards=tuple(_cards(table, records, bases, failed)),
        best=tuple(listed[:_LISTED]),
        worst=tuple(listed[-1 : -_LISTED - 1 : -1]) if len(listed) > _LISTED else (),
        failures=tuple(dict.fromkeys(failed["error"].astype(str)))[:10],
        validated=tuple(_validated(good, explanations)),
        best_cell=str(records[0]["cell"]) if records else "",
        base_cells=tuple(bases),
    )


def cell_name(row: Mapping[str, Any], axes: Sequence[str]) -> str:
    """A cell by its values on the axes: `nodes 4, nic 400Gbps`."""
    parts = []
    for axis in axes:
        value = row.get(AXIS + axis)
        if not _missing(value):
            parts.append(f"{axis.rpartition('.')[2].replace('_', ' ')} {value}")
    return ", ".join(parts) or str(row.get("algorithm") or row.get("scenario") or "the cell")


def _question(manifest: Mapping[str, Any]) -> str:
    """The first comment of the scenario file, which says what it asks."""
    lines = []
    for line in str(manifest.get("text", "")).splitlines():
        if not line.startswith("#"):
            break
        lines.append(line.lstrip("# ").strip())
    return " ".join(lines)


def _headline(records: Sequence[Any], axes: Sequence[str], bases: Sequence[str], size: str) -> str:
    if not records:
        return "No cell could be simulated."
    best, worst = records[0], records[-1]
    at = f" for {size}" if size else ""
    what = str(best.get("collective") or best.get("workload") or "it").replace("_", "-")
    if len(records) == 1:
        return f"{what}{at} takes {time_text(best['time'])}, bound by {best['bound_by']}."
    text = f"{cell_name(best, axes)} is fastest: {time_text(best['time'])}{at}"
    base = next((r for r in records if r["cell"] in bases), None)
    if base is not None and base["cell"] != best["cell"]:
        text += f", {_times(base['time'] / best['time'])} the base line ({cell_name(base, axes)})"
    elif worst["time"] > best["time"]:
        text += f", {_times(worst['time'] / best['time'])} the slowest ({cell_name(worst, axes)})"
    return f"{text}. It is bound by {best['bound_by']}." if best.get("bound_by") else f"{text}."


def _times(ratio: float) -> str:
    """How a time compares, in words."""
    return "about as fast as" if ratio < 1.02 else f"{ratio:.2f} times as fast as"


def _cards(
    table: pd.DataFrame, records: Sequence[Any], bases: Sequence[str], failed: pd.DataFrame
) -> list[tuple[str, str, str]]:
    """Label, figure, note."""
    cells = table["cell"].nunique()
    note = f"{failed['cell'].nunique()} failed" if len(failed) else "all answered"
    cards = [("cells", f"{cells:,}", f"{len(table):,} rows, {note}")]
    if not records:
        return cards
    best = records[0]
    cards.append(("best time", time_text(best["time"]), _bandwidth(best)))
    base = next((r for r in records if r["cell"] in bases), None)
    if base is not None:
        ratio = base["time"] / best["time"]
        cards.append(("against the base line", f"{ratio:.2f} ×", time_text(base["time"])))
    elif len(records) > 1:
        ratio = records[-1]["time"] / best["time"]
        cards.append(("best against worst", f"{ratio:.2f} ×", time_text(records[-1]["time"])))
    if best.get("bound_by"):
        cards.append(("best is bound by", str(best["bound_by"]), ""))
    if not _missing(best.get("cost_usd")):
        cards.append(("cost of the best", f"${best['cost_usd'] / 1e6:.2f} M",
                      f"{best['power_w'] / 1e3:.0f} kW"))  # fmt: skip
    return cards


def _bandwidth(row: Mapping[str, Any]) -> str:
    value = row.get("busbw_GBps")
    return "" if value is None or _missing(value) else f"{value:.4g} GB/s bus bandwidth"


def _missing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and isnan(value))


def _base_cells(good: pd.DataFrame, manifest: Mapping[str, Any]) -> list[str]:
    """The cells of the base line."""
    base, rows = manifest.get("base") or {}, good
    if not base:
        return []
    for axis, value in base.items():
        rows = rows[rows[AXIS + axis].astype(str) == str(value)]
    return [str(cell) for cell in rows["cell"].drop_duplicates()]


def _validated(good: pd.DataFrame, explanations: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """How far the figures can be trusted."""
    del explanations
    lines = []
    for text, count in good["validated"].value_counts().items() if len(good) else ():
        lines.append(f"{text}: {count:,} rows")
    if "measured_time_us" in good.columns and good["measured_time_us"].notna().any():
        errors = good["error_pct"].dropna().abs()
        lines.append(f"measured beside: {len(errors)} rows, median error {errors.median():.1f} %")
    if "approximation" in good.columns:
        for text, count in (
            good[good["approximation"] != ""]["approximation"].value_counts().items()
        ):
            lines.append(f"approximated ({text}): {count:,} rows")
    return lines
