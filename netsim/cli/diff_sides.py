"""What `netsim diff` compares: results (or one of their cells), a log, or a topology."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd

from netsim.cli.expect_question import Given, asked
from netsim.cli.expect_table import simulated
from netsim.errors import InputError
from netsim.measured.logs import read_log
from netsim.plots.lines import AXIS, read_results, spoken
from netsim.presets import SUFFIXES
from netsim.runs import checked_cells
from netsim.simulate import prepare

RESULTS = "results.csv"
CELL = "#"  # between a folder of results and what names one of its cells
USUAL, USUAL_SIZES = "all_reduce", "8:8G:4"
_LISTED = 8


@dataclass(frozen=True)
class Side:
    """One of two things compared: times in µs by size, and what is known of each."""

    name: str
    collective: str
    times: dict[int, float]
    why: dict[int, str]


def sides_of(a: str, b: str, collective: str | None, given: Given) -> tuple[Side, Side]:
    """Both sides. Topologies are asked for what the other side has, unless something is given."""
    names = (a, b)
    known = [_recorded(name, collective) for name in names]
    other = next((side for side in known if side is not None), None)
    what = collective or (other.collective if other is not None else USUAL)
    if other is not None and not given.sizes:
        given = replace(given, sizes=",".join(map(str, sorted(other.times))))
    asked_for = replace(given, sizes=given.sizes or USUAL_SIZES)
    one, two = (
        _topology(name, what, asked_for) if side is None else side
        for name, side in zip(names, known, strict=True)
    )
    return one, two


def _recorded(name: str, collective: str | None) -> Side | None:
    """Results or a log; None if a name is a topology's."""
    head, _, cell = name.partition(CELL)
    path = Path(head)
    if path.is_dir():
        return _results(path / RESULTS, cell)
    if path.is_file() and path.suffix not in (*SUFFIXES, ".xml"):
        if path.suffix == ".csv" and not path.read_text(errors="replace").startswith("size_bytes"):
            return _results(path, cell)
        return _log(path, collective)
    if not path.exists() and ("/" in head or path.suffix in (".csv", ".log", ".txt", ".json")):
        raise InputError(f"{head}: no such file or folder")
    return None


def _results(path: Path, wanted: str) -> Side:
    if not path.is_file():
        raise InputError(f"{path}: no such file", hint="expected a folder that netsim run wrote")
    table = _cell(path, read_results([path]), wanted)
    rows = table[table["time_us"].notna() & (table["size_bytes"] > 0)]
    times = dict(zip(rows["size_bytes"].astype(int), rows["time_us"].astype(float), strict=True))
    collective = str(table["collective"].iloc[0]) if "collective" in table.columns else ""
    return Side(f"{path}{CELL}{wanted}" if wanted else str(path), collective, times, _reasons(rows))


def _cell(path: Path, table: pd.DataFrame, wanted: str) -> pd.DataFrame:
    """The rows of the one cell that is named by values of its axes: `8 x 400G`, `nodes=4,Ring`."""
    if "cell" not in table.columns:
        return table
    axes = [name for name in table.columns if str(name).startswith(AXIS)]
    chosen = table
    for part in filter(None, (text.strip() for text in wanted.split(","))):
        key, _, value = part.rpartition("=")
        named = [a for a in axes if not key or key in (a[len(AXIS) :], a.rpartition(".")[2])]
        fits = [chosen[axis].astype(str) == value for axis in named]
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


def _listed(table: pd.DataFrame, axes: Sequence[str]) -> str:
    cells = table.drop_duplicates("cell")
    names = [
        ", ".join(spoken(axis, str(row[axis])) for axis in axes) for _, row in cells.iterrows()
    ]
    more = f"; … {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return "; ".join(names[:_LISTED]) + more


def _reasons(table: pd.DataFrame) -> dict[int, str]:
    names = [n for n in ("algorithm", "protocol", "bound_by") if n in table.columns]
    return {
        int(row["size_bytes"]): _reason(*(str(row[name]) for name in names))
        for _, row in table.iterrows()
    }


def _reason(*parts: str) -> str:
    return ", ".join(part for part in (" ".join(parts[:2]).strip(), *parts[2:]) if part)


def _log(path: Path, collective: str | None) -> Side:
    runs = read_log(path, collective)
    if len(runs) > 1:
        what = ", ".join(run.collective for run in runs)
        raise InputError(f"{path}: has {len(runs)} runs ({what}); only one can be compared")
    run = runs[0]
    times = {row.size_bytes: (row.seconds(run.collective) or 0.0) * 1e6 for row in run.rows}
    times = {size: time for size, time in times.items() if size and time > 0}
    said = {size: " ".join(choice) for size, choice in run.choices.items()}
    why = {size: said.get(size, "measured") for size in times}
    return Side(str(path), run.collective, times, why)


def _topology(name: str, collective: str, given: Given) -> Side:
    prepared = prepare(checked_cells(asked(name, collective, given).source)[0])
    rows = [row for row in simulated(prepared, "auto", []) if row.status == "ok"]
    times = {row.size_bytes: row.time_us for row in rows if row.size_bytes and row.time_us}
    why = {row.size_bytes or 0: _reason(row.algorithm, row.protocol, row.bound_by) for row in rows}
    return Side(name, collective, times, why)
