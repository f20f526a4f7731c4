"""What a report says in sentences: which cell is fastest, what bounds it, how far to trust it."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import field
from itertools import groupby
from math import isnan
from typing import Any

import pandas as pd

from netsim.base.units import format_size
from netsim.base.values import dataclass
from netsim.plots.results import at_largest, shown_size
from netsim.plots.sizes import AXIS, spoken
from netsim.plots.style import time_text
from netsim.results.row import NOT_VALIDATED, ratio_span

Record = Mapping[str, Any]

EQUAL = 0.005  # by which two times may differ and be called equal
_CLOSE = 0.02  # by which times may differ and hardly matter
_FEW = 4  # cells that are compared one by one
_SPELLS = 3  # ranges of sizes that are told
_OF_THE_PATH = ("latency", "launch", "compute", "release", "serial")


def cell_name(row: Record, axes: Sequence[str]) -> str:
    """A cell by its values on the axes: `4 nodes, nic 400Gbps`."""
    parts = [
        spoken(AXIS + axis, str(row[AXIS + axis]))
        for axis in axes
        if not blank(row.get(AXIS + axis))
    ]
    return ", ".join(parts) or str(row.get("algorithm") or row.get("scenario") or "the cell")


def headline(records: Sequence[Record], good: pd.DataFrame, axes: Sequence[str],
             bases: Sequence[str], size: str) -> str:  # fmt: skip
    """The answer. `records` are the cells at one size, the fastest first; `good` has all sizes."""
    if not records:
        return "No cell could be simulated."
    best, at = records[0], f" at {size}" if size else ""
    bound = bound_sentence(str(best.get("bound_by") or ""))
    if len(records) == 1:
        what = str(best.get("collective") or best.get("workload") or "it").replace("_", "-")
        return " ".join(
            filter(None, (f"{_upper(what)} takes {time_text(best['time'])}{at}.", bound))
        )
    name = _upper(cell_name(best, axes))
    sentences = (
        f"{name} is fastest{at}: {time_text(best['time'])}{_compared(records, axes, bases)}.",
        _doubt(best, records[1], axes),
        _elsewhere(good, str(best["cell"]), axes),
        bound,
    )
    return " ".join(filter(None, sentences))


def bound_sentence(bound: str) -> str:
    """What `bound_by` of results.csv says, in words."""
    found = re.fullmatch(r"(.*) (\d+) %", bound)
    if not bound or found is None:
        return f"It is bound by {bound}." if bound else ""
    what, share = found.groups()
    if what.startswith(_OF_THE_PATH):
        return f"It is bound by {what}, {share} % of its time."
    return f"It is bound by {what}, which is used to {share} %."


def longer(time: float, best: float) -> str:
    """How much longer a time is than the best one, in words."""
    ratio = time / best if best > 0 else 1.0
    if ratio < 1 + EQUAL:
        return "as long"
    return f"{ratio - 1:.0%} longer" if ratio < 1.995 else f"{ratio:.3g} times as long"


def _compared(records: Sequence[Record], axes: Sequence[str], bases: Sequence[str]) -> str:
    """The fastest against the others where these are few, else against the base or the slowest."""
    best, others = records[0], records[1:]
    if len(others) >= _FEW:
        base = next((one for one in others if one["cell"] in bases), None)
        word = "the slowest" if base is None else "the base line"
        others = [others[-1] if base is None else base]
        name = f"{word} ({cell_name(others[0], axes)})"
        return f"; {name} takes {longer(others[0]['time'], best['time'])}"
    parts = [f"{cell_name(one, axes)} takes {longer(one['time'], best['time'])}" for one in others]
    return "".join(f"{', ' if place else '; '}{part}" for place, part in enumerate(parts))


def _doubt(best: Record, other: Record, axes: Sequence[str]) -> str:
    """What is to be said where the second may be the faster one when both are measured."""
    if blank(best.get("time_low_us")) or blank(other.get("time_low_us")):
        return ""
    spans = [(one["time_low_us"] / one["time"], one["time_high_us"] / one["time"])
             for one in (best, other)]  # fmt: skip
    names, size = (str(best["collective"]), str(other["collective"])), int(best["size_bytes"])
    same = best["topology"] == other["topology"]
    low, high = ratio_span(names, size, (spans[0], spans[1]), same=same)
    if other["time"] / best["time"] * low > 1:
        return ""
    return (
        f"That is not sure: 80 % of such ratios are measured at {low:.2f} to {high:.2f} times the "
        f"simulated one, so {cell_name(other, axes)} may be as fast."
    )


def _elsewhere(good: pd.DataFrame, best: str, axes: Sequence[str]) -> str:
    """At which other sizes another cell is faster."""
    winners = _winners(good, best)
    if len(winners) < 2:
        return ""
    ones: list[dict[str, Any]] = good.drop_duplicates("cell").to_dict("records")  # type: ignore[assignment]
    names = {str(row["cell"]): cell_name(row, axes) for row in ones}
    spells = [
        (cell, [size for size, _ in group])
        for cell, group in groupby(winners, key=lambda winner: winner[1])
    ]
    if len(spells) == 1:
        return _lead(good, [size for size, _ in winners])
    if len(spells) > _SPELLS:
        between = f"{format_size(winners[0][0])} and {format_size(winners[-1][0])}"
        return f"Which is fastest changes {len(spells) - 1} times between {between}."
    parts = [f"{names[cell]} {_span(sizes)}" for cell, sizes in spells if cell != best]
    return f"At other sizes another is faster: {', '.join(parts)}."


def _lead(good: pd.DataFrame, sizes: Sequence[int]) -> str:
    """What is to be said where one cell is fastest everywhere: where that hardly matters."""
    times = good[good["size_bytes"].isin(sizes)].groupby("size_bytes")["time_us"]
    ratios = (times.max() / times.min()).to_dict()
    apart = [ratios[size] for size in sizes]
    close = next((place for place, ratio in enumerate(apart) if ratio > 1 + _CLOSE), len(apart))
    first, last = format_size(sizes[0]), format_size(sizes[-1])
    if close == len(sizes):
        return f"All are within {_CLOSE:.0%} of each other at every size from {first} to {last}."
    if close:
        return f"Up to {format_size(sizes[close - 1])} all are within {_CLOSE:.0%} of each other."
    return f"No other is faster at any size from {first} to {last}."


def _span(sizes: Sequence[int]) -> str:
    if len(sizes) == 1:
        return f"at {format_size(sizes[0])}"
    return f"from {format_size(sizes[0])} to {format_size(sizes[-1])}"


def _winners(good: pd.DataFrame, best: str) -> list[tuple[int, str]]:
    """The fastest cell at every size that as many cells have as any; on a tie, the best one."""
    if "size_bytes" not in good.columns or not good["size_bytes"].notna().any():
        return []
    counts = good.groupby("size_bytes")["cell"].nunique()
    found = []
    for size in sorted(counts[counts == counts.max()].index):
        times = good[good["size_bytes"] == size].groupby("cell", sort=False)["time_us"].min()
        times = times[times.notna()]
        if len(times):
            near = best in times.index and times[best] <= times.min() * (1 + EQUAL)
            found.append((int(size), best if near else str(times.idxmin())))
    return found


def blank(value: Any) -> bool:
    """Whether a table has no value."""
    return value is None or value == "" or (isinstance(value, float) and isnan(value))


def _upper(text: str) -> str:
    return text[:1].upper() + text[1:]


def trust(good: pd.DataFrame) -> list[str]:
    """How far the figures can be trusted, a sentence for each way that they were validated."""
    lines = []
    for text, count in good["validated"].value_counts().items() if len(good) else ():
        lines.append(f"{rows_text(count)}: {_validation(str(text))}.")
    if "time_low_us" in good.columns and good["time_low_us"].notna().any():
        some = good[good["time_low_us"].notna()]
        low, high = (some[f"time_{end}_us"] / some["time_us"] for end in ("low", "high"))
        lines.append(
            f"{rows_text(len(some))} with an interval: 80 % of times are measured between "
            f"{low.median() - 1:+.0%} and {high.median() - 1:+.0%} of the simulated one (medians)."
        )
    if "measured_time_us" in good.columns and good["measured_time_us"].notna().any():
        errors = pd.to_numeric(good["error_pct"], errors="coerce").dropna().abs()
        lines.append(
            f"{rows_text(len(errors))} with a measured time beside: median error "
            f"{errors.median():.1f} %, largest {errors.max():.1f} %."
        )
    if "approximation" in good.columns:
        lines += _approximations(good[~good["approximation"].map(blank)])
    return lines


def _validation(text: str) -> str:
    known = re.fullmatch(r"(\d+)% \((\d+ runs?)\)", text)
    if known:
        return (
            f"of this machine, network, collective and size range, {known[2]} on hardware "
            f"{'was' if known[2] == '1 run' else 'were'} simulated with a median error of "
            f"{known[1]} %"
        )
    near = re.fullmatch(r"not validated \((\w+): (\d+)%\)", text)
    if near:
        return (
            f"not validated; {near[1].replace('_', '-')} on the same machine, network and size "
            f"range has a median error of {near[2]} %"
        )
    if text == NOT_VALIDATED:
        return "not validated: no measured run of such a machine, network and size range"
    return text or "no hardware to hold it against: a textbook algorithm or graph"


def _approximations(rows: pd.DataFrame) -> list[str]:
    """Rows whose time is not of every loop or operation, and how far that may be off."""
    lines = []
    kinds = rows["approximation"].astype(str)
    for counts, words in ((r"\d+ of \d+ loops", "fewer loops"), (r"\d+", "some")):
        kinds = kinds.str.replace(counts, words, regex=True)
    for kind, some in rows.groupby(kinds, sort=False):
        worst = pd.to_numeric(some["approximation_pct"], errors="coerce").max()
        most = "" if blank(worst) else f", at most {worst:.2g} % off"
        lines.append(f"{rows_text(len(some))} approximated ({kind}){most}.")
    return lines


def rows_text(count: int) -> str:
    """A number of rows."""
    return f"{count:,} row{'' if count == 1 else 's'}"


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
    base = manifest.get("base") or {}
    return [str(cell) for cell in at_base(good, base)["cell"].drop_duplicates()] if base else []


def at_base(rows: pd.DataFrame, base: Mapping[str, Any]) -> pd.DataFrame:
    """The rows whose axes have the values of the base line."""
    for axis, value in base.items():
        rows = rows[rows[AXIS + axis].astype(str) == str(value)]
    return rows
