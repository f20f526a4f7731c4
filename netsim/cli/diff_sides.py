"""What `netsim diff` compares: results or a scenario (or one of their cells), a log, a topology."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from netsim.answers import answer, prepare_any
from netsim.cli.diff_cells import CELL, STEP, Side, one_cell, reason, side_of, table_of
from netsim.cli.expect_question import Given, asked
from netsim.cli.expect_table import simulated
from netsim.errors import InputError
from netsim.measured.logs import read_log
from netsim.plots.lines import read_results
from netsim.presets import SUFFIXES, preset_names
from netsim.results import Row
from netsim.runs import checked_cells, find_scenario, load_source
from netsim.scenario.cells import Cell
from netsim.simulate import prepare
from netsim.yamlio.source import read_source

RESULTS = "results.csv"
USUAL, USUAL_SIZES = "all_reduce", "8:8G:4"


def sides_of(a: str, b: str, collective: str | None, given: Given) -> tuple[Side, Side]:
    """Both sides. Topologies are asked for what the other side has, unless something is given."""
    names = (a, b)
    known = [_recorded(name, collective) or _scenario(name) for name in names]
    _refuse_unused(known, given)
    other = next((side for side in known if side is not None), None)
    what = collective or (other.collective if other is not None else USUAL)
    if other is not None and None in known and list(other.times) == [STEP]:
        raise InputError(f"{other.name}: is a training step, which a topology alone has none of")
    if other is not None and not given.sizes:
        given = replace(given, sizes=",".join(map(str, sorted(other.times))))
    asked_for = replace(given, sizes=given.sizes or USUAL_SIZES)
    one, two = (
        _topology(name, what, asked_for) if side is None else side
        for name, side in zip(names, known, strict=True)
    )
    return one, two


def _refuse_unused(known: Sequence[Side | None], given: Given) -> None:
    """Options of topologies say nothing where both sides know what they are of."""
    named = [name for name, value in given.flags.items() if value is not None]
    named += ["sizes"] * bool(given.sizes)
    if named and None not in known:
        raise InputError(
            f"--{named[0]}: goes with a topology, and neither of the two is one",
            hint="results, logs and scenarios say it themselves",
        )


def _recorded(name: str, collective: str | None) -> Side | None:
    """Results or a log; None if a name is a topology's or a scenario's."""
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
    name = f"{path}{CELL}{wanted}" if wanted else str(path)
    return side_of(name, one_cell(path, read_results([path]), wanted))


def _scenario(name: str) -> Side | None:
    """A cell of a scenario, simulated; None if a name is a topology's."""
    head, _, wanted = name.partition(CELL)
    path = Path(head)
    if path.suffix in SUFFIXES and path.is_file():
        if "workload" not in read_source(path).data:
            return None
    elif head in preset_names("scenarios"):
        path = find_scenario(head).path
    else:
        return None
    cells = {cell.id: cell for cell in checked_cells(load_source(path))}
    axes = list(next(iter(cells.values())).axes)
    every = table_of([Row(cell=one.id, axes=one.axes) for one in cells.values()], axes)
    chosen = one_cell(path, every, wanted)
    return side_of(name, table_of(_rows(cells[chosen["cell"].iloc[0]]), axes))


def _rows(cell: Cell) -> list[Row]:
    prepared = prepare_any(cell)
    return [answer(prepared, size) for size in cell.scenario.workload.size_list()]


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
    why = {row.size_bytes or 0: reason(row.algorithm, row.protocol, row.bound_by) for row in rows}
    return Side(name, collective, times, why)
