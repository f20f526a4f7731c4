"""`netsim diff`: compares two results, scenarios, topologies or logs: which is faster at each size,
and why.
"""

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
STEP = 0  # in the place of a size: a training step has none
_LISTED = 8
WON = {"=": "they were equal", "A": "A was faster", "B": "B was faster"}


@dataclass(frozen=True)
class TimedSide:
    """One of the two things that are compared (A or B): its times in µs by size in bytes, and what
    explains them.
    """

    name: str
    collective: str
    times: dict[int, float]
    why: dict[int, str]  # algorithm, protocol and bottleneck
    machine: str = ""
    spans: Mapping[int, Span] = field(default_factory=dict)  # 80 % intervals
    off: Mapping[int, float] = field(default_factory=dict)  # error bounds of approximate times
    is_measured: bool = False


def side_of(name: str, table: pd.DataFrame) -> TimedSide:
    """The side with the times of `table`, whose rows are of one cell.

    The time of a training step is under the size STEP. `name` is what the user called the side.
    """
    rows = table[table["time_us"].notna() & (table["size_asked"] > 0)]
    if rows.empty:
        rows = table[table["step_time_us"].notna()]
        times = rows["step_time_us"].astype(float)
        sizes = [STEP] * len(rows)
    else:
        times = rows["time_us"].astype(float)
        sizes = rows["size_asked"].astype(int).tolist()
    texts = rows[["algorithm", "protocol", "bound_by"]].astype(str).to_numpy().tolist()
    lows = rows["time_low_us"] / rows["time_us"]
    highs = rows["time_high_us"] / rows["time_us"]
    words = table[["collective", "topology"]].head(1).astype(str).to_numpy().flatten().tolist()
    collective, machine = words or ("", "")
    return TimedSide(
        name,
        collective,
        times=dict(zip(sizes, times.tolist(), strict=True)),
        why={size: reason(*parts) for size, parts in zip(sizes, texts, strict=True)},
        machine=machine,
        spans={
            size: (low, high) for size, low, high in zip(sizes, lows, highs, strict=True) if low > 0
        },
        off=dict(zip(sizes, map(off_of, rows.to_dict("records")), strict=True)),
    )


def reason(*parts: str) -> str:
    """Algorithm, protocol and bottleneck (`parts`, each "" if unknown) as `Ring LL, NIC egress`."""
    return ", ".join(part for part in (" ".join(parts[:2]).strip(), *parts[2:]) if part)


def table_of(rows: Sequence[Row], axes: Sequence[str]) -> pd.DataFrame:
    """Rows as the table that would be read from their results.csv."""
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
    """The rows of the one cell of `table` that values of axes name (`8 x 400G`, `nodes=4,Ring`).

    `wanted` is that text; `path` names the file in errors. Raises an InputError if no cell or
    several cells match.
    """
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
        matching = chosen[pd.concat(fits, axis=1).any(axis=1)] if fits else chosen[:0]
        if matching.empty:
            raise InputError(f"{path}: no cell is {part!r}", hint=_listed(table, axes))
        chosen = matching
    if chosen["cell"].nunique() > 1:
        raise InputError(
            f"{path}: has {chosen['cell'].nunique()} such cells; only one can be compared",
            hint=f"name it behind {CELL}: {_listed(chosen, axes)}",
        )
    return chosen


def _listed(table: pd.DataFrame, axes: Sequence[str]) -> str:
    """The names of the first cells of a table, for the hint of an error."""
    names = names_of(table.drop_duplicates("cell"), axes)
    more = f"; … {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return "; ".join(names[:_LISTED]) + more


RESULTS = "results.csv"
USUAL = "all_reduce"
USUAL_SIZES = "8:8G:4"


def sides_of(
    a: str, b: str, collective: str | None, options: QuestionOptions
) -> tuple[TimedSide, TimedSide]:
    """The sides A and B, which `a` and `b` name.

    A topology is simulated with the collective and the sizes of the other side, unless options
    state others.
    """
    names = (a, b)
    sides = [_recorded(name, collective) or _scenario(name) for name in names]
    _refuse_unused(sides, options)
    model = next((side for side in sides if side is not None), None)
    if not collective:
        collective = model.collective if model is not None else USUAL
    if model is not None and None in sides and list(model.times) == [STEP]:
        raise InputError(f"{model.name}: is a training step, which a topology alone has none of")
    if model is not None and not options.sizes:
        options = replace(options, sizes=",".join(map(str, sorted(model.times))))
    versions = versions_of(replace(options, sizes=options.sizes or USUAL_SIZES))
    if len(versions) > 1 and sides != [None, None]:
        raise InputError(f"--nccl {options.nccl}: two versions are of two topologies")
    first, second = sides
    if first is None:
        first = _topology(a, collective, versions[0])
    if second is None:
        second = _topology(b, collective, versions[-1])
    return first, second


def versions_of(options: QuestionOptions) -> list[QuestionOptions]:
    """The options of each side: one entry, or two if `--nccl A,B` names a version for each side."""
    if not options.nccl:
        return [options]
    versions = [replace(options, nccl=version.strip()) for version in options.nccl.split(",")]
    if len(versions) > 2:
        raise InputError(f"--nccl {options.nccl}: expected one version, or two as 2.21,2.27")
    return versions


def compare_versions(topology: str, collective: str, options: QuestionOptions) -> None:
    """Simulate a collective with the two NCCL versions of `--nccl A,B`; print how times and rules
    differ.
    """
    old, new = versions_of(options)
    first, second = (
        replace(_topology(topology, collective, one), name=f"{topology} with NCCL {one.nccl}")
        for one in (old, new)
    )
    common = sorted(set(first.times) & set(second.times))
    print_lines((*_lines(first, second, common), *_rules(old, new)))


def _rules(old: QuestionOptions, new: QuestionOptions) -> Iterator[str]:
    """Yield the names of the rules and constants that differ between the NCCL versions of two
    options.
    """
    facts = [facts_of(parse_version(one.nccl or "")) for one in (old, new)]
    names = [
        field.name
        for field in fields(facts[0])
        if getattr(facts[0], field.name) != getattr(facts[1], field.name)
    ]
    differences = ", ".join(name.replace("_", " ") for name in names)
    yield (
        f"# NCCL {old.nccl} and {new.nccl} differ in: {differences or 'nothing that is modelled'}"
    )


def _refuse_unused(sides: Sequence[TimedSide | None], options: QuestionOptions) -> None:
    """Raise an InputError if options of topologies were given though no side is a topology (None in
    `sides`).
    """
    named = options.named
    if options.sizes:
        named = [*named, "sizes"]
    if named and None not in sides:
        raise InputError(
            f"{flag_of(named[0])}: goes with a topology, and neither of the two is one",
            hint="results, logs and scenarios say it themselves",
        )


def _recorded(name: str, collective: str | None) -> TimedSide | None:
    """The side of a folder of results, a table or a log; None if `name` is that of a topology or a
    scenario.
    """
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


def _results(path: Path, wanted: str) -> TimedSide:
    """The side of one cell of a table of results; `wanted` names the cell by its values of axes."""
    if not path.is_file():
        raise InputError(f"{path}: no such file", hint="expected a folder that netsim run wrote")
    name = f"{path}{CELL}{wanted}" if wanted else str(path)
    return side_of(name, one_cell(path, read_results([path]), wanted))


def _scenario(name: str) -> TimedSide | None:
    """Simulate the cell of a scenario that `name` names (`scenario#cell`); None if there is no such
    scenario.
    """
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
    """Simulate all sizes of a cell and return their rows."""
    sizes = cell.scenario.workload.size_list()
    rows: list[Row] = []
    resolved = resolve_any(cell)
    for size in sizes:
        at(format_size(size) if size else "a step", len(rows), len(sizes))
        rows.append(answer(resolved, size))
    return rows


def _log(path: Path, collective: str | None) -> TimedSide:
    """The side with the measured times of a log; raises an InputError if the log has
    several runs.
    """
    runs = read_log(path, collective)
    if len(runs) > 1:
        collectives = ", ".join(run.collective for run in runs)
        raise InputError(f"{path}: has {len(runs)} runs ({collectives}); only one can be compared")
    run = runs[0]
    times = {row.size_bytes: (row.seconds(run.collective) or 0.0) * 1e6 for row in run.rows}
    times = {size: time for size, time in times.items() if size and time > 0}
    said = {size: " ".join(choice) for size, choice in run.choices.items()}
    why = {size: said.get(size, "measured") for size in times}
    return TimedSide(str(path), run.collective, times, why, is_measured=True)


def _topology(name: str, collective: str, options: QuestionOptions) -> TimedSide:
    """Simulate a collective on a topology at all sizes of the options; return the side with the
    times.

    Sizes that cannot be simulated are left out.
    """
    on(name)
    resolved = resolve(checked_cells(source_of_question(name, collective, options)[0])[0])
    rows = [row for row in simulated(resolved, "auto", []) if row.status == "ok"]
    return side_of(name, table_of(rows, ()))


def compare_sides(a: str, b: str, options: QuestionOptions, collective: str | None) -> None:
    """Print for each size whether A or B is faster, between which sizes that changes, and what
    differs there.

    `a` and `b` name results, scenarios, topologies or logs.
    """
    first, second = sides_of(a, b, collective, options)
    if first.collective and second.collective and first.collective != second.collective:
        typer.echo(f"warning: A is of {first.collective}, B of {second.collective}", err=True)
    common = sorted(set(first.times) & set(second.times))
    if not common:
        raise InputError(f"{first.name} and {second.name} have no size in common")
    for side, size in product((first, second), common):
        if side.times[size] <= 0:
            where = f"{side.name}: {format_size(size)}" if size != STEP else side.name
            raise InputError(f"{where}: expected a time above 0, got {side.times[size]:g} us")
    print_lines(_lines(first, second, common))
    versions = versions_of(options)
    if len(versions) > 1:
        print_lines(_rules(*versions))
    if alone := [format_size(size) for size in sorted({*first.times} ^ {*second.times})]:
        have = "size that only one of them has is" if len(alone) == 1 else "sizes of only one are"
        few = ", ".join(alone[:_LISTED]) + ", …" * (len(alone) > _LISTED)
        typer.echo(f"{len(alone)} {have} left out: {few}", err=True)


def _lines(first: TimedSide, second: TimedSide, common: Sequence[int]) -> Iterator[str]:
    """Yield the table of the sizes in `common`, what changes between them, and how often each side
    is faster.
    """
    yield f"# A: {first.name}"
    yield f"# B: {second.name}"
    titles = f"{'B / A':>6}  faster  {'how sure':<11}  {'80 % of ratios':<14}"
    yield f"# {'size':>11}  {'A (us)':>9}  {'B (us)':>9}  {titles}  A is | B is"
    sureness = {size: _certainty(first, second, size) for size in common}
    shown = {size: _faster(first.times[size], second.times[size]) for size in common}
    wins = [_win(shown[size], sureness[size]) for size in common]
    for size in common:
        a = first.times[size]
        b = second.times[size]
        low, high = _ratios(first, second, size)
        why = f"{first.why.get(size, '')} | {second.why.get(size, '')}"
        span = f"{low:.2f} to {high:.2f}" if low < high else ""
        yield (
            f"{size or 'step':>13}  {microseconds(a):>9}  {microseconds(b):>9}  {b / a:>6.2f}  "
            f"{shown[size]:<6}  {sureness[size]:<11}  {span:<14}  {why}"
        )
    for (left, right), (before, after) in zip(pairwise(common), pairwise(wins), strict=True):
        if before != after:
            places = f"{format_size(left)} and {format_size(right)}"
            change = _change(first, second, left, right)
            yield f"# between {places}: {WON[before]}, then {WON[after]}; there {change}"
    ratios = {size: second.times[size] / first.times[size] for size in common}
    most = max(common, key=lambda size: abs(log(ratios[size])))
    mean = exp(sum(map(log, ratios.values())) / len(ratios))
    if len(common) > 1 and wins.count("=") < len(wins):
        far = f"{ratios[most]:.3g} at {format_size(most)}"
        yield f"# B takes {mean:.3g} times as long on average (geometric), {far}"
    if common != [STEP]:
        yield from _counts(wins, [sureness[size] for size in common])


def _counts(wins: Sequence[str], sureness: Sequence[str]) -> Iterator[str]:
    """Yield at how many sizes A or B is faster (`wins`: A, B or =), and how sure that is."""
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
    """The side that counts as faster: A, B, or `=` if the difference is too small to tell."""
    return "=" if certainty == "cannot tell" else faster


def _certainty(first: TimedSide, second: TimedSide, size: int) -> str:
    """How sure it is which side is faster: sure, likely or cannot tell.

    Empty where times are equal, and for training steps, because too few pairs of those were
    measured.
    """
    a = first.times[size]
    b = second.times[size]
    if size == STEP or _faster(a, b) == "=":
        return ""
    kind = pair_kind(
        same_machine=first.machine == second.machine != "",
        same_collective=first.collective == second.collective,
        measured=first.is_measured + second.is_measured,
    )
    error_bound = (1 + first.off.get(size, 0.0)) * (1 + second.off.get(size, 0.0)) - 1
    return certainty_of(b / a, kind, error_bound)


def _ratios(first: TimedSide, second: TimedSide, size: int) -> Span:
    """The lowest and highest ratio B / A between which 80 % of measured ratios are expected."""
    names = (first.collective, second.collective)
    same = first.machine == second.machine != ""
    spans = first.spans.get(size, EXACT), second.spans.get(size, EXACT)
    off = first.off.get(size, 0.0), second.off.get(size, 0.0)
    low, high = ratio_span(names, size, spans, same=same, off=off)
    ratio = second.times[size] / first.times[size]
    return ratio * low, ratio * high


def _faster(a: float, b: float) -> str:
    """Which of two times (in µs) is shorter: A, B, or `=` if they are equal within EQUAL."""
    if abs(b / a - 1) <= EQUAL:
        return "="
    return "A" if a < b else "B"


def _change(first: TimedSide, second: TimedSide, left: int, right: int) -> str:
    """What changes on either side from the size `left` to the next size `right`, as text."""
    changed = [
        f"{name} goes from {side.why[left]} to {side.why[right]}"
        for name, side in (("A", first), ("B", second))
        if side.why.get(left) != side.why.get(right)
    ]
    return "; ".join(changed) or "neither changes its algorithm nor what bounds it"
