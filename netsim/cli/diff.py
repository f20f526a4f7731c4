"""`netsim diff`: two results, scenarios, topologies or logs: who wins by size, and why."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, fields, replace
from functools import partial
from io import StringIO
from itertools import pairwise, product
from math import exp, log
from pathlib import Path

import pandas as pd
import typer

from netsim.base.errors import InputError
from netsim.base.files import SUFFIXES, csv_value, preset_names
from netsim.base.startup import at, on
from netsim.base.units import format_size
from netsim.base.values import dataclass
from netsim.cli.output import print_lines
from netsim.cli.questions import (
    QuestionOptions,
    flag_of,
    simulated,
    source_of_question,
)
from netsim.measured.logs import read_log
from netsim.nccl.facts import facts_of, parse_version
from netsim.plots.results import names_of
from netsim.plots.sizes import AXIS, read_results, spoken
from netsim.results.differences import certainty_of, pair_kind
from netsim.results.nccl_tests import microseconds
from netsim.results.row import EQUAL, EXACT, Row, Span, csv_text, off_of, ratio_span
from netsim.scenario.cells import Cell
from netsim.tasks.answer import answer, checked_cells, find_scenario, load_source, resolve_any
from netsim.tasks.resolve import resolve
from netsim.yamlio.read import read_source

CELL = "#"  # between a folder of results or a scenario and what names one of its cells
STEP = 0  # stands for the size of a training step, which has none
_LISTED = 8
WON = {"=": "they were equal", "A": "A was faster", "B": "B was faster"}


@dataclass(frozen=True)
class Side:
    """One of two things compared: times in µs by size, and what is known of each."""

    name: str
    collective: str
    times: dict[int, float]
    why: dict[int, str]
    machine: str = ""
    spans: Mapping[int, Span] = field(default_factory=dict)
    off: Mapping[int, float] = field(default_factory=dict)  # error bounds of approximate times
    is_measured: bool = False


def side_of(name: str, table: pd.DataFrame) -> Side:
    """The rows of one cell; a training step has a time without a size."""
    rows = table[table["time_us"].notna() & (table["size_asked"] > 0)]
    sizes, times = rows["size_asked"], rows["time_us"]
    if rows.empty:
        rows = table[table["step_time_us"].notna()]
        times = rows["step_time_us"]
        sizes = times * 0 + STEP
    found = dict(zip(sizes.astype(int), times.astype(float), strict=True))
    texts = rows[["algorithm", "protocol", "bound_by"]].astype(str).to_numpy().tolist()
    why = {size: reason(*parts) for size, parts in zip(sizes.astype(int), texts, strict=True)}
    ends = rows["time_low_us"] / rows["time_us"], rows["time_high_us"] / rows["time_us"]
    every = zip(sizes.astype(int), *ends, strict=True)
    told = {size: (low, high) for size, low, high in every if low > 0}
    words = table[["collective", "topology"]].head(1).astype(str).to_numpy().flatten().tolist()
    collective, machine = words or ("", "")
    off = dict(zip(sizes.astype(int), map(off_of, rows.to_dict("records")), strict=True))
    return Side(name, collective, found, why, machine, told, off)


def reason(*parts: str) -> str:
    """Algorithm, protocol and what bounds it, as far as they are known."""
    return ", ".join(part for part in (" ".join(parts[:2]).strip(), *parts[2:]) if part)


def table_of(rows: Sequence[Row], axes: Sequence[str]) -> pd.DataFrame:
    """Rows as they would be read from results.csv."""
    table = pd.read_csv(StringIO(csv_text(rows, axes)), dtype=str, keep_default_na=False)
    table = table.map(csv_value)
    numbers = [
        "size_asked",
        "time_us",
        "time_low_us",
        "time_high_us",
        "step_time_us",
        "approximation_pct",
    ]
    table[numbers] = table[numbers].apply(pd.to_numeric, errors="coerce")
    return table


def one_cell(path: Path, table: pd.DataFrame, wanted: str) -> pd.DataFrame:
    """The rows of the one cell named by values of axes (`8 x 400G`, `nodes=4,Ring`)."""
    axes = [name for name in table.columns if str(name).startswith(AXIS)]
    ones = table.drop_duplicates("cell")
    cells = dict(zip(names_of(ones, axes), ones["cell"], strict=True))
    if wanted.strip() in cells:  # as they are listed, perhaps with commas of their own
        same: pd.DataFrame = table[table["cell"] == cells[wanted.strip()]]
        return same
    chosen = table
    for part in filter(None, (text.strip() for text in wanted.split(","))):
        key, _, value = part.rpartition("=")
        named = [a for a in axes if not key or key in (a[len(AXIS) :], a.rpartition(".")[2])]
        texts = {axis: chosen[axis].astype(str) for axis in named}
        fits = [(own == value) | (own.map(partial(spoken, a)) == value) for a, own in texts.items()]
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
    names = names_of(table.drop_duplicates("cell"), axes)
    more = f"; … {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return "; ".join(names[:_LISTED]) + more


RESULTS = "results.csv"
USUAL, USUAL_SIZES = "all_reduce", "8:8G:4"


def sides_of(a: str, b: str, collective: str | None, options: QuestionOptions) -> tuple[Side, Side]:
    """Both sides. Topologies are asked for what the other side has, unless something is given."""
    names = (a, b)
    known = [_recorded(name, collective) or _scenario(name) for name in names]
    _refuse_unused(known, options)
    other = next((side for side in known if side is not None), None)
    what = collective or (other.collective if other is not None else USUAL)
    if other is not None and None in known and list(other.times) == [STEP]:
        raise InputError(f"{other.name}: is a training step, which a topology alone has none of")
    if other is not None and not options.sizes:
        options = replace(options, sizes=",".join(map(str, sorted(other.times))))
    asked_for = replace(options, sizes=options.sizes or USUAL_SIZES)
    each = versions_of(asked_for)
    if len(each) > 1 and known != [None, None]:
        raise InputError(f"--nccl {options.nccl}: two versions are of two topologies")
    one, two = (
        _topology(name, what, own) if side is None else side
        for name, side, own in zip(names, known, (each * 2)[:2], strict=True)
    )
    return one, two


def versions_of(options: QuestionOptions) -> list[QuestionOptions]:
    """The options of either side, of which `--nccl A,B` gives each one version."""
    found = [replace(options, nccl=one.strip()) for one in (options.nccl or "").split(",")]
    if len(found) > 2:
        raise InputError(f"--nccl {options.nccl}: expected one version, or two as 2.21,2.27")
    return found if options.nccl else [options]


def compare_versions(topology: str, collective: str, options: QuestionOptions) -> None:
    """Print what changes by size from one version of NCCL to another, and what rules do."""
    old, new = versions_of(options)
    one, other = (
        replace(_topology(topology, collective, each), name=f"{topology} with NCCL {each.nccl}")
        for each in (old, new)
    )
    print_lines((*_lines(one, other, sorted({*one.times} & {*other.times})), *_rules(old, new)))


def _rules(old: QuestionOptions, new: QuestionOptions) -> Iterator[str]:
    """The rules and constants of NCCL's choice that two versions do not share."""
    one, other = (facts_of(parse_version(each.nccl or "")) for each in (old, new))
    names = [f.name for f in fields(one) if getattr(one, f.name) != getattr(other, f.name)]
    known = ", ".join(name.replace("_", " ") for name in names)
    yield f"# NCCL {old.nccl} and {new.nccl} differ in: {known or 'nothing that is modelled'}"


def _refuse_unused(known: Sequence[Side | None], options: QuestionOptions) -> None:
    named = options.named + ["sizes"] * bool(options.sizes)
    if named and None not in known:
        raise InputError(
            f"{flag_of(named[0])}: goes with a topology, and neither of the two is one",
            hint="results, logs and scenarios say it themselves",
        )


def _recorded(name: str, collective: str | None) -> Side | None:
    """Results or a log; None if a name is a topology's or a scenario's."""
    head, _, cell = name.partition(CELL)
    path = Path(head)
    if path.is_dir():
        return _results(path / RESULTS, cell)
    if path.is_file() and path.suffix not in (*SUFFIXES, ".xml"):
        if path.suffix == ".csv" and not is_measured_table(path):
            return _results(path, cell)
        return _log(path, collective)
    folder = "/" in head or (cell and head not in preset_names("scenarios"))
    if not path.exists() and (folder or path.suffix in (".csv", ".log", ".txt", ".json")):
        raise InputError(f"{head}: no such file or folder")
    return None


def is_measured_table(path: Path) -> bool:
    """Whether a CSV file is a table of measured sizes, rather than results of netsim."""
    with path.open(errors="replace") as file:
        return file.read(len(SIZE_COLUMN)) == SIZE_COLUMN


SIZE_COLUMN = "size_bytes"  # the first column of tables of measured sizes


def _results(path: Path, wanted: str) -> Side:
    if not path.is_file():
        raise InputError(f"{path}: no such file", hint="expected a folder that netsim run wrote")
    name = f"{path}{CELL}{wanted}" if wanted else str(path)
    return side_of(name, one_cell(path, read_results([path]), wanted))


def _scenario(name: str) -> Side | None:
    """A cell of a scenario, simulated; None if a name is a topology's."""
    on(name)
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
    sizes, rows = cell.scenario.workload.size_list(), list[Row]()
    resolved = resolve_any(cell)
    for size in sizes:
        at(format_size(size) if size else "a step", len(rows), len(sizes))
        rows.append(answer(resolved, size))
    return rows


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
    return Side(str(path), run.collective, times, why, is_measured=True)


def _topology(name: str, collective: str, options: QuestionOptions) -> Side:
    on(name)
    resolved = resolve(checked_cells(source_of_question(name, collective, options)[0])[0])
    rows = [row for row in simulated(resolved, "auto", []) if row.status == "ok"]
    return side_of(name, table_of(rows, ()))


def compare_sides(a: str, b: str, options: QuestionOptions, collective: str | None) -> None:
    """Print by size which of A and B is faster, where that changes, and what differs there."""
    one, other = sides_of(a, b, collective, options)
    if one.collective and other.collective and one.collective != other.collective:
        typer.echo(f"warning: A is of {one.collective}, B of {other.collective}", err=True)
    common = sorted(set(one.times) & set(other.times))
    if not common:
        raise InputError(f"{one.name} and {other.name} have no size in common")
    for side, size in product((one, other), common):
        if side.times[size] <= 0:
            where = f"{side.name}: {format_size(size)}" if size != STEP else side.name
            raise InputError(f"{where}: expected a time above 0, got {side.times[size]:g} us")
    each = versions_of(options)
    print_lines((*_lines(one, other, common), *(_rules(*each) if len(each) > 1 else ())))
    if alone := [format_size(size) for size in sorted({*one.times} ^ {*other.times})]:
        have = "size that only one of them has is" if len(alone) == 1 else "sizes of only one are"
        few = ", ".join(alone[:_LISTED]) + ", …" * (len(alone) > _LISTED)
        typer.echo(f"{len(alone)} {have} left out: {few}", err=True)


def _lines(one: Side, other: Side, common: Sequence[int]) -> Iterator[str]:
    """The table of all sizes, what changes between them, and how often each side is faster."""
    yield f"# A: {one.name}"
    yield f"# B: {other.name}"
    titles = f"{'B / A':>6}  faster  {'how sure':<11}  {'80 % of ratios':<14}"
    yield f"# {'size':>11}  {'A (us)':>9}  {'B (us)':>9}  {titles}  A is | B is"
    sureness = {size: _certainty(one, other, size) for size in common}
    shown = {size: _faster(one.times[size], other.times[size]) for size in common}
    wins = [_win(shown[size], sureness[size]) for size in common]
    for size in common:
        a, b, (low, high) = one.times[size], other.times[size], _ratios(one, other, size)
        why = f"{one.why.get(size, '')} | {other.why.get(size, '')}"
        span = f"{low:.2f} to {high:.2f}" if low < high else ""
        yield (
            f"{size or 'step':>13}  {microseconds(a):>9}  {microseconds(b):>9}  {b / a:>6.2f}  "
            f"{shown[size]:<6}  {sureness[size]:<11}  {span:<14}  {why}"
        )
    for (left, right), (before, after) in zip(pairwise(common), pairwise(wins), strict=True):
        if before != after:
            places = f"{format_size(left)} and {format_size(right)}"
            what = _change(one, other, left, right)
            yield f"# between {places}: {WON[before]}, then {WON[after]}; there {what}"
    ratios = {size: other.times[size] / one.times[size] for size in common}
    most = max(common, key=lambda size: abs(log(ratios[size])))
    mean = exp(sum(map(log, ratios.values())) / len(ratios))
    if len(common) > 1 and wins.count("=") < len(wins):
        far = f"{ratios[most]:.3g} at {format_size(most)}"
        yield f"# B takes {mean:.3g} times as long on average (geometric), {far}"
    if common != [STEP]:
        yield from _counts(wins, [sureness[size] for size in common])


def _counts(wins: Sequence[str], sureness: Sequence[str]) -> Iterator[str]:
    """At how many sizes each side is faster, and how sure that is."""
    counts = [wins.count(side) for side in "AB="]
    sizes = "size" if counts[0] == 1 else "sizes"
    yield f"# A faster at {counts[0]} {sizes}, B at {counts[1]}, equal at {counts[2]}"
    likely = sureness.count("likely")
    unsure = sureness.count("cannot tell")
    if likely or unsure:
        yield (
            f"# sure at {sureness.count('sure')}, likely at {likely}; at {unsure} the difference "
            "is too small to tell (counted as equal)"
        )


def _win(faster: str, certainty: str) -> str:
    """Which side counts as faster: none where that cannot be told."""
    return "=" if certainty == "cannot tell" else faster


def _certainty(one: Side, other: Side, size: int) -> str:
    """How sure it is which side is faster; empty where times are equal, and for training steps, of
    which too few pairs were measured."""
    a, b = one.times[size], other.times[size]
    if size == STEP or _faster(a, b) == "=":
        return ""
    kind = pair_kind(
        same_machine=one.machine == other.machine != "",
        same_collective=one.collective == other.collective,
        measured=one.is_measured + other.is_measured,
    )
    error_bound = (1 + one.off.get(size, 0.0)) * (1 + other.off.get(size, 0.0)) - 1
    return certainty_of(b / a, kind, error_bound)


def _ratios(one: Side, other: Side, size: int) -> Span:
    """Between which ratios B / A of measured times lie, 80 % of them."""
    names, same = (one.collective, other.collective), one.machine == other.machine != ""
    spans = one.spans.get(size, EXACT), other.spans.get(size, EXACT)
    off = one.off.get(size, 0.0), other.off.get(size, 0.0)
    low, high = ratio_span(names, size, spans, same=same, off=off)
    ratio = other.times[size] / one.times[size]
    return ratio * low, ratio * high


def _faster(a: float, b: float) -> str:
    """Which of two times is shorter; `=` on a tie."""
    if abs(b / a - 1) <= EQUAL:
        return "="
    return "A" if a < b else "B"


def _change(one: Side, other: Side, left: int, right: int) -> str:
    changed = [
        f"{name} goes from {side.why[left]} to {side.why[right]}"
        for name, side in (("A", one), ("B", other))
        if side.why.get(left) != side.why.get(right)
    ]
    return "; ".join(changed) or "neither changes its algorithm nor what bounds it"
