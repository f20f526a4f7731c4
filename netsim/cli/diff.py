"""`netsim diff`: two results, topologies or logs: by size who wins, where they cross, and why."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Annotated

import pandas as pd
import typer

from netsim.cli.expect_question import Given, asked
from netsim.cli.expect_table import simulated
from netsim.errors import InputError
from netsim.measured.logs import read_log
from netsim.plots.lines import read_results
from netsim.presets import SUFFIXES
from netsim.results.nccl_tests import microseconds
from netsim.runs import checked_cells
from netsim.simulate import prepare
from netsim.units import format_size

Text = str | None
EQUAL = 0.005  # by which two times may differ and be called equal
RESULTS = "results.csv"


@dataclass(frozen=True)
class Side:
    """One of two things compared: times in µs by size, and what is known of each."""

    name: str
    times: dict[int, float]
    why: dict[int, str]


def command(
    a: Annotated[str, typer.Argument(help="Results, a topology, or a log.", metavar="A")],
    b: Annotated[str, typer.Argument(help="The other.", metavar="B")],
    collective: Annotated[
        str, typer.Option(help="Of topologies: what is timed.", metavar="C")
    ] = "all_reduce",
    sizes: Annotated[str, typer.Option(help="Of topologies.", metavar="SIZES")] = "8:8G:4",
    nodes: Annotated[int | None, typer.Option(help="Of topologies: hosts.", metavar="N")] = None,
    launch: Annotated[
        Text, typer.Option(help="Of topologies: process_per_gpu, …", metavar="L")
    ] = None,
    nccl: Annotated[Text, typer.Option(help="Of topologies: NCCL's version.", metavar="V")] = None,
) -> None:
    """Print by size which of A and B is faster, where that changes, and what differs there."""
    given = Given({"nodes": nodes, "launch": launch, "nccl": nccl}, sizes)
    one, other = (side_of(name, collective, given) for name in (a, b))
    common = sorted(set(one.times) & set(other.times))
    if not common:
        raise InputError(f"{one.name} and {other.name} have no size in common")
    for line in _lines(one, other, common):
        typer.echo(line)
    alone = len(one.times) + len(other.times) - 2 * len(common)
    if alone:
        typer.echo(f"{alone} sizes that only one of them has are left out", err=True)


def side_of(name: str, collective: str, given: Given) -> Side:
    """What a name stands for: a folder or CSV of results, a log, or a topology."""
    path = Path(name)
    if path.is_dir():
        return _results(path / RESULTS)
    if path.is_file() and path.suffix not in (*SUFFIXES, ".xml"):
        if path.suffix == ".csv" and not path.read_text(errors="replace").startswith("size_bytes"):
            return _results(path)
        return _log(path)
    return _topology(name, collective, given)


def _results(path: Path) -> Side:
    if not path.is_file():
        raise InputError(f"{path}: no such file")
    table = read_results([path])
    if "cell" in table.columns and table["cell"].nunique() > 1:
        raise InputError(f"{path}: has {table['cell'].nunique()} cells; only one can be compared")
    return Side(str(path), _column(table, "time_us"), _reasons(table))


def _column(table: pd.DataFrame, name: str) -> dict[int, float]:
    rows = table[table[name].notna() & (table["size_bytes"] > 0)]
    return dict(zip(rows["size_bytes"].astype(int), rows[name].astype(float), strict=True))


def _reasons(table: pd.DataFrame) -> dict[int, str]:
    names = [n for n in ("algorithm", "protocol", "bound_by") if n in table.columns]
    return {
        int(row["size_bytes"]): _reason(*(str(row[name]) for name in names))
        for _, row in table.iterrows()
        if row["size_bytes"] > 0
    }


def _reason(*parts: str) -> str:
    return ", ".join(part for part in (" ".join(parts[:2]).strip(), *parts[2:]) if part)


def _log(path: Path) -> Side:
    runs = read_log(path)
    if len(runs) > 1:
        what = ", ".join(run.collective for run in runs)
        raise InputError(f"{path}: has {len(runs)} runs ({what}); only one can be compared")
    run = runs[0]
    times = {row.size_bytes: (row.seconds(run.collective) or 0.0) * 1e6 for row in run.rows}
    said = {size: " ".join(choice) for size, choice in run.choices.items()}
    return Side(str(path), times, {size: said.get(size, "measured") for size in times})


def _topology(name: str, collective: str, given: Given) -> Side:
    prepared = prepare(checked_cells(asked(name, collective, given).source)[0])
    rows = [row for row in simulated(prepared, "auto", []) if row.status == "ok"]
    times = {row.size_bytes: row.time_us for row in rows if row.size_bytes and row.time_us}
    why = {row.size_bytes or 0: _reason(row.algorithm, row.protocol, row.bound_by) for row in rows}
    return Side(name, times, why)


def _lines(one: Side, other: Side, common: Sequence[int]) -> Iterator[str]:
    yield f"# A: {one.name}"
    yield f"# B: {other.name}"
    yield f"# {'size':>11}  {'A (us)':>9}  {'B (us)':>9}  {'B / A':>6}  faster  A is | B is"
    for size in common:
        a, b = one.times[size], other.times[size]
        why = f"{one.why.get(size, '')} | {other.why.get(size, '')}"
        yield (
            f"{size:>13}  {microseconds(a):>9}  {microseconds(b):>9}  {b / a:>6.2f}  "
            f"{_faster(a, b):<6}  {why}"
        )
    wins = [_faster(one.times[size], other.times[size]) for size in common]
    for (left, right), (before, after) in zip(pairwise(common), pairwise(wins), strict=True):
        if before != after:
            places = f"{format_size(left)} and {format_size(right)}"
            what = _change(one, other, left, right)
            yield f"# between {places}: {_won(before)}, then {_won(after)}; there {what}"
    counts = [wins.count(who) for who in "AB="]
    yield f"# A faster at {counts[0]} sizes, B at {counts[1]}, equal at {counts[2]}"


def _won(who: str) -> str:
    return "they were equal" if who == "=" else f"{who} was faster"


def _faster(a: float, b: float) -> str:
    if abs(b / a - 1) <= EQUAL:
        return "="
    return "A" if a < b else "B"


def _change(one: Side, other: Side, left: int, right: int) -> str:
    """What changes between two sizes on either side."""
    changed = [
        f"{name} goes from {side.why[left]} to {side.why[right]}"
        for name, side in (("A", one), ("B", other))
        if side.why.get(left) != side.why.get(right)
    ]
    return "; ".join(changed) or "neither changes its algorithm nor what bounds it"
