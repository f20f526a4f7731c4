"""`netsim run`: simulates all cells of a scenario and writes the requested outputs."""

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing
from dataclasses import asdict
from functools import partial
from pathlib import Path

from netsim.base.errors import InputError, LostError, NetsimError, Tell, silent
from netsim.base.files import SUFFIXES, preset_names
from netsim.base.startup import STAGE, engine_progress
from netsim.base.units import format_size, format_time
from netsim.base.values import dataclass
from netsim.cli.options import Engine, Format
from netsim.cli.output import print_lines, tell
from netsim.cli.workers import helpers_of, opened_cache, part_of, shard_of
from netsim.extent.decisions import listening
from netsim.extent.engine_runs import Progress
from netsim.results.folder import TIMINGS, Folder, open_folder
from netsim.results.row import Row, csv_text
from netsim.results.workspace import (
    MANIFEST,
    RESULTS,
    check_place,
    place_of_results,
    read_manifest,
)
from netsim.scenario.cells import Cell, Expansion, named, unused_keys
from netsim.scenario.each_part import HEALTHY
from netsim.sweep import summary
from netsim.sweep.run import (
    Cache,
    CellError,
    SizedCell,
    Workers,
    engine_for,
    finished_row,
    invalid_row,
    run_tasks,
    tasks_of,
    titled,
)
from netsim.sweep.summary import best_row
from netsim.tasks.answer import checked, find_scenario, load_source, notes_of

MOST_AT_ONCE = 4  # processes at most where nobody said how many
COMMAND = "/netsim", "/netsim/__main__.py"  # a script that calls this, helpers would run anew
Finished = Iterator[tuple[Cell, Row]]
Printer = Callable[[Finished], Iterable[str]]


def printer(cells: Sequence[Cell], form: Format, *, wide: bool = False) -> Printer:
    """The function that turns finished rows into the lines to print, in the format `form`.

    The module for tables is imported only for those formats.
    """
    axes = cells[0].axes
    if form == "csv":
        return lambda finished: [csv_text([row for _, row in finished], axes).rstrip("\n")]
    if form == "json":
        return lambda finished: [json.dumps([asdict(row) for _, row in finished], indent=1)]
    from netsim.cli.run_tables import log_printer, table_printer

    return log_printer(cells) if form == "nccl-tests" else table_printer(cells, wide=wide)


MOST_SHOWN = 10  # points or files that a message lists


def invalid_lines(expansion: Expansion, *, skipped: bool) -> Iterator[str]:
    """Yield a message with the points of a sweep that cannot be built; with reasons if they are
    `skipped`.
    """
    invalid = expansion.invalid
    all_points = len(expansion.points)
    if skipped:
        yield f"{len(invalid)} of {all_points} cells cannot be built and are left out:"
    else:
        yield (
            f"{len(invalid)} of {all_points} cells cannot be built "
            f"(--skip-invalid runs the other {all_points - len(invalid)}):"
        )
    for point in invalid[:MOST_SHOWN]:
        message = point.error.errors[0].message if skipped else ""
        yield f"  {named(point.axes)}{f': {message}' if message else ''}"
    if len(invalid) > MOST_SHOWN:
        yield f"  ... and {len(invalid) - MOST_SHOWN} more"


def refuse_invalid(expansion: Expansion, *, skip: bool) -> None:
    """Print which points of a sweep cannot be built, and raise an InputError unless `skip` is set.

    In a sweep over parts at fault, a part without which the job cannot be placed is a result and
    raises nothing.
    """
    if not expansion.invalid:
        return
    if expansion.mistakes and (not skip or not expansion.cells):
        if len(expansion.points) > len(expansion.invalid):
            print_lines(invalid_lines(expansion, skipped=False), err=True)
        expansion.refuse_invalid()
    print_lines(invalid_lines(expansion, skipped=True), err=True)


def approximations(rows: Sequence[Row]) -> Iterator[str]:
    """Yield one line with the number of approximate rows and their largest error bound in %; none
    if all are exact.
    """
    approximate = [row for row in rows if row.approximation]
    if not approximate:
        return
    bounds = [row.approximation_pct for row in approximate if row.approximation_pct is not None]
    if not bounds:
        remark = "without a stated error bound"
    elif len(bounds) < len(approximate):
        remark = f"{len(bounds)} of them within {max(bounds):.2g} %, the others without a bound"
    else:
        remark = f"within {max(bounds):.2g} %"
    yield (
        f"{len(approximate)} of {len(rows)} rows are approximate, {remark} "
        "(columns approximation and approximation_pct of results.csv)"
    )


def worst(failures: Sequence[NetsimError], tasks: int) -> NetsimError | None:
    """Return the error with which a run ends; None if there are no errors.

    It is the first error that is not a `LostError` (a cell whose process died, or for which there
    was no memory); if all are, the first one. If there are several errors, its text also says how
    many of all `tasks` rows failed.
    """
    if not failures:
        return None
    first = next((one for one in failures if one.exit_code > LostError.exit_code), failures[0])
    if len(failures) == 1:
        return first
    return CellError(
        f"{first}\n{len(failures)} of {tasks} rows failed, see results.csv", first.exit_code
    )


# A function that writes one kind of output of cells to a folder, with an engine; it returns the
# names of the files, each with a remark about what it leaves out.
Writer = Callable[[Sequence[Cell], Path, str], list[str]]


def _trace_writers() -> dict[str, Writer]:
    """The functions that write traces and programs, by the name of the output in a scenario."""
    from netsim.cli import traces

    return {
        "trace": traces.write_traces,
        "trace_per_rank": traces.write_traces_per_rank,
        "chakra": traces.write_execution_traces,
        "connections": traces.write_connections,
        "goal": traces.write_application,
        "msccl": traces.write_msccl,
        "mscclpp": traces.write_plan,
    }


def _picture_writers() -> dict[str, Writer]:
    """The functions that write pictures and the report; this imports matplotlib."""
    from netsim.cli import pictures, report

    return {"plots": pictures.write_pictures, "report": report.write_report_of_run}


# Outputs that show a single cell of a sweep.
OF_ONE = {"trace", "trace_per_rank", "chakra", "connections", "goal", "msccl", "mscclpp"}


def write_outputs(cells: Sequence[Cell], folder: Path, engine: str) -> list[str]:
    """Write the outputs that the scenario names; return the files, with remarks about what they
    leave out.

    Outputs that show a single cell (OF_ONE) take the first of `cells`. Modules are imported only if
    an output needs them, because importing matplotlib takes longer than a small run.
    """
    wanted = set(cells[0].scenario.outputs)
    written = [str(folder / RESULTS), str(folder / TIMINGS)]
    writers: dict[str, Writer] = {}
    if wanted & OF_ONE:
        writers |= _trace_writers()
    if wanted & {"plots", "report"}:
        writers |= _picture_writers()
    for output, write in writers.items():
        if output in wanted:
            written += write(cells, folder, engine)
    return written


@dataclass(frozen=True)
class RunOptions:
    """The options of `netsim run`, as they were given (`netsim/cli/verbs/run.py` has
    their help).
    """

    output: Path | None = None
    settings: list[str] | None = None
    engine: Engine = "auto"
    resume: bool = False
    jobs: int | None = None
    memory: str | None = None
    dask: str | None = None
    shard: str | None = None
    use_cache: bool = False
    skip_invalid: bool = False
    seed: int | None = None
    cell: str | None = None
    form: Format = "table"
    allow_oom: bool = False
    exact: bool = False
    quiet: bool = False
    verbose: bool = False
    wide: bool = False

    @property
    def changes(self) -> list[str]:
        """The changes of scenario values, as `key=value`, that the options make."""
        flags = ["workload.allow_oom=true"] * self.allow_oom + ["exact=true"] * self.exact
        seeds = [] if self.seed is None else [f"seed={self.seed}"]
        return [*(self.settings or []), *flags, *seeds]


@dataclass(frozen=True)
class _Run:
    """What a command runs: all points of the scenario, `cells` of this part, and `wanted`, which
    `--cell` names.
    """

    expansion: Expansion
    cells: list[Cell]
    wanted: list[Cell]
    folder: Path
    name: str
    engine: str
    manifest: dict[str, object]
    options: RunOptions


def run_scenario(scenario: str, options: RunOptions) -> None:
    """Simulate all cells of a scenario; write results, plots and the other requested outputs."""
    with listening(tell if options.verbose else silent):
        _run_scenario(scenario, options)


def _run_scenario(scenario: str, options: RunOptions) -> None:
    """Read the scenario, simulate its cells, write the folder, and print results and findings."""
    if Path(scenario).is_dir():
        _refuse_folder(Path(scenario))
    source = find_scenario(scenario)
    part = shard_of(options.shard)
    expansion = checked(load_source(source.path, options.changes), alone=False)
    refuse_invalid(expansion, skip=options.skip_invalid)
    cells = expansion.cells
    tell_user: Tell = silent if options.quiet else tell
    wanted = cells
    if options.cell is not None:
        from netsim.cli.chosen_cells import chosen_cells

        wanted = chosen_cells(cells, options.cell)
    if options.cell and (part or not (OF_ONE | {"report"}) & {*cells[0].scenario.outputs}):
        why = "--shard writes results only" if part else "outputs has neither trace nor report"
        raise InputError(f"--cell {options.cell}: nothing is of one cell: {why}")
    notes = _print_notes(cells, source.note, tell_user)
    name = cells[0].scenario.name or source.path.stem
    parted = name if part is None else f"{name}-{part[0]}of{part[1]}"
    engine = engine_for(tasks_of(cells), options.engine)
    manifest = summary.about(expansion, source.path, options.changes, engine, part)
    if notes:
        manifest["notes"] = notes
    if options.cell:
        manifest["chosen"] = [choice.id for choice in wanted]
    part_cells = part_of(cells, part)
    folder = options.output or Path("reports", parted)
    job = _Run(expansion, part_cells, wanted, folder, name, engine, manifest, options)
    rows, texts, failure = _run_into_folder(job, is_whole=part is None)
    for text in texts:
        tell_user(text)
    _print_findings(job, rows, tell_user, failed=failure is not None, is_whole=part is None)
    if options.verbose:
        tell_user(f"{sum(row.rows or 0 for row in rows)} rows of schedules were simulated")
    if failure is not None:
        raise failure


def _refuse_folder(folder: Path) -> None:
    """Raise an InputError if a folder was given as the scenario; the hint says what to run instead.

    Returns if the folder has neither results nor scenario files.
    """
    place = place_of_results(folder)
    if (place / MANIFEST).is_file():
        manifest = read_manifest(place)
        file = manifest.get("path") or manifest.get("file") or "SCENARIO"
        raise InputError(
            f"{folder}: a folder of results, expected a scenario",
            hint=f"netsim run {file} -o {folder} runs its scenario again, --resume continues it",
        )
    files = sorted(file for file in folder.iterdir() if file.suffix in SUFFIXES)
    names = ", ".join(map(str, files[:MOST_SHOWN]))
    if files and folder.name not in preset_names("scenarios"):
        hint = f"did you mean {names}?" if len(files) == 1 else f"it has {names}"
        raise InputError(f"{folder}: a folder, expected a scenario file", hint=hint)


def _print_notes(cells: Sequence[Cell], note: str, tell: Tell) -> list[str]:
    """Print notes and warnings about the scenario before anything runs; return those that a report
    repeats.

    Raises an InputError if prices, measurements or the writer of Parquet are missing.
    """
    notes = [*notes_of(cells), *(f"warning: {text}" for text in unused_keys(cells))]
    for text in dict.fromkeys([note, *notes]):
        if text:
            tell(text)
    summary.check_prices(cells)
    if "parquet" in cells[0].scenario.outputs:
        from netsim.results import parquet

        parquet.check()
    for cell in cells:
        if cell.scenario.measured is not None:
            from netsim.measured import compare

            compare.check(cell)
    return notes


def _print_findings(
    job: _Run, rows: list[Row], tell: Tell, *, failed: bool, is_whole: bool
) -> None:
    """Print how many cells failed, which rows are approximate, and what the sweep showed."""
    ended = {row.cell for row in rows if row.status != "ok"}
    if ended and not failed:
        cells = len(job.expansion.cells)
        tell(f"{len(ended)} of {cells} cells ended with an error, which is in their row")
    for text in approximations(rows):
        tell(text)
    if is_whole and len(job.expansion.points) > 1:
        from netsim.cli.run_findings import after_lines

        for text in after_lines(job.expansion, rows, job.engine):
            tell(text)


def _run_into_folder(
    job: _Run, *, is_whole: bool
) -> tuple[list[Row], list[str], NetsimError | None]:
    """Simulate the cells; replace earlier results of the folder once everything is written.

    Returns the rows, messages about the files written, and the error to end with (or None). Options
    are checked before the folder is opened; until the end, new files are only in its subfolder
    `.partial`.
    """
    options = job.options
    if not tasks_of(job.cells):
        raise InputError("this part has no cells", hint="there are fewer cells than parts")
    lines = printer(job.cells, options.form, wide=options.wide)
    check_place(job.folder)
    with ExitStack() as simulating:
        helpers = simulating.enter_context(
            helpers_of(options.jobs, options.dask, options.memory, job.cells)
        )
        rows_cache = simulating.enter_context(opened_cache(options.use_cache))
        with open_folder(
            job.folder, job.name, resume=options.resume, about=job.manifest, tell=tell
        ) as results:
            rows, failure = _simulate(job, results, lines, helpers, rows_cache)
            simulating.close()  # nothing that follows needs workers
            texts: list[str] = []
            if failure is None or len(job.expansion.cells) > 1:
                texts = _write_files(job, rows, results, is_whole=is_whole)
            if failure is not None and results.replaces_sound_results():
                results.is_withheld = True
                texts = [_withheld_message(results)]
    return rows, texts, failure


def _withheld_message(results: Folder) -> str:
    """The message that new results do not replace the earlier ones."""
    return (
        f"{results.path} keeps its earlier results; the new ones are in {results.place} "
        "(--resume continues from there)"
    )


def _write_files(job: _Run, rows: list[Row], results: Folder, *, is_whole: bool) -> list[str]:
    """Write tables and outputs; return messages about them.

    If an output cannot be written, the error is raised; the rows are kept if the folder had no
    earlier results.
    """
    try:
        texts = list(_write_files_of_run(job, rows, results.place, is_whole=is_whole))
        texts += _write_parquet(job, results)
    except NetsimError as error:
        if isinstance(error, InputError):
            error.message = results.final_name(error.message)
        if (results.path / RESULTS).exists():
            tell(_withheld_message(results))
        else:
            results.replace_earlier()
        raise
    texts = [results.final_name(text) for text in texts]
    if len(job.expansion.cells) == 1:
        return texts
    return _in_few_lines(texts, results.path)


def _write_parquet(job: _Run, results: Folder) -> list[str]:
    """Write results.parquet if the scenario asks for it; return the message about it."""
    first_cell = job.cells[0]
    if "parquet" not in first_cell.scenario.outputs:
        return []
    from netsim.results.parquet import write_parquet

    path = results.place / "results.parquet"
    return [f"{WROTE}{write_parquet(path, _rows_in_order(job, results), list(first_cell.axes))}"]


WROTE = "wrote "


def _in_few_lines(texts: Sequence[str], folder: Path) -> list[str]:
    """The messages, with those about single files replaced by one line if there are three files or
    more.

    Files with a remark keep their own message.
    """
    files = [text.removeprefix(WROTE) for text in texts if text.startswith(WROTE)]
    remarks = [text for text in texts if not text.startswith(WROTE) or text.endswith(")")]
    if len(files) < 3:
        return list(texts)
    names = [Path(file.partition(" (")[0]).relative_to(folder).as_posix() for file in files]
    named = [name for name in (RESULTS, "report.html") if name in names]
    return [*remarks, f"wrote {len(set(names))} files to {folder}: {', '.join(named)} and others"]


def _write_files_of_run(
    job: _Run, rows: list[Row], folder: Path, *, is_whole: bool
) -> Iterator[str]:
    """Write tables, costs and outputs into the folder; yield a message for each file.

    Outputs show only cells without errors. A part of a sweep (not `is_whole`) writes only costs.
    """
    cells = job.expansion.cells
    files = [str(folder / RESULTS)]
    if is_whole:
        files = [
            *summary.write_tables(job.expansion, rows, folder),
            *summary.write_costs(cells, folder),
        ]
        ended = {row.cell for row in rows if row.status != "ok"}
        able = [cell for cell in cells if cell.id not in ended]
        wanted_ids = {cell.id for cell in job.wanted}
        best = best_row([row for row in rows if row.cell in wanted_ids], job.expansion.sweep.base)
        able.sort(
            key=lambda cell: (best is None or cell.id != best.cell, cell.id not in wanted_ids)
        )
        if (
            len(cells) > 1
            and able
            and able[0].id in wanted_ids
            and OF_ONE & {*able[0].scenario.outputs}
        ):
            axes = named(able[0].axes)
            yield f"trace and pictures show {axes} (cell {able[0].id}; --cell chooses another)"
        if able and able[0].id in wanted_ids:
            files += write_outputs(able, folder, job.options.engine)
        else:
            files.append(str(folder / RESULTS))
    else:
        files += summary.write_costs(job.cells, folder)
    yield from (f"{WROTE}{file}" for file in files)


def _simulate(
    job: _Run,
    results: Folder,
    lines: Callable[[Finished], Iterable[str]],
    helpers: Workers | None,
    cache: Cache | None,
) -> tuple[list[Row], NetsimError | None]:
    """Simulate the tasks of a run and print rows as they finish; return (rows, error to end with or
    None).

    Args:
        job: the run.
        results: the open folder, to which finished rows are written.
        lines: turns finished rows into the lines to print.
        helpers: worker processes; None: this process simulates.
        cache: rows of earlier sweeps; None: not used.
    """
    options = job.options
    tasks = tasks_of(job.cells)
    axes = list(job.cells[0].axes)
    rows: list[Row] = []
    failures: list[NetsimError] = []
    if results.discarded:
        tell(
            f"{results.discarded} rows of a run that did not end are dropped (--resume keeps them)"
        )
    if results.failed:
        tell(f"{results.failed} rows that failed are tried again")
    stream = run_tasks(
        tasks,
        results,
        engine=job.engine,
        workers=helpers,
        cache=cache,
        progress=_progress_of,
        later=_later_helpers(job),
    )
    with (
        results.ended_by(lambda: results.write_results(_rows_in_order(job, results), axes)),
        closing(stream) as finished,
    ):
        part_axes = job.expansion.sweep.part_axes
        print_lines(lines(_recording_rows(finished, rows, failures, part_axes)))
    if cache is not None and cache.hits and not options.quiet:
        tell(f"{cache.hits} of {len(tasks)} rows were known from earlier sweeps")
    return rows, worst(failures, len(tasks))


def _progress_of(task: SizedCell) -> Progress | None:
    """Set the progress display to a task; return the function to which the engine reports rows, or
    None.
    """
    if task.size:
        STAGE.activity = f"{titled(task.cell)}: {format_size(task.size)}"
    return engine_progress()


def _later_helpers(job: _Run) -> Callable[[], AbstractContextManager[Workers | None]] | None:
    """A function that starts helper processes if a run without `--jobs` takes long; None if none
    may be started.
    """
    options = job.options
    processor_count = 1
    if sys.argv[0].endswith(COMMAND) and hasattr(os, "sched_getaffinity"):
        processor_count = len(os.sched_getaffinity(0))
    if options.jobs or options.dask or processor_count == 1:
        return None
    count = min(MOST_AT_ONCE, processor_count)
    return partial(helpers_of, count, None, options.memory, job.cells)


def _recording_rows(
    finished: Iterable[tuple[SizedCell, Row, NetsimError | None]],
    rows: list[Row],
    failures: list[NetsimError],
    part_axes: Sequence[str] = (),
) -> Finished:
    """Yield each finished row with its cell; append rows and errors to `rows` and `failures`
    before.

    In a sweep over parts at fault (axes `part_axes`), an operation that cannot finish without a
    part is a result and no failure.
    """
    best: Row | None = None
    for task, row, error in finished:
        rows.append(row)
        if error is not None and not _is_lost_part(task.cell, error, part_axes):
            failures.append(error)
        best = note_best(best, row)
        yield task.cell, row


def note_best(best: Row | None, row: Row) -> Row | None:
    """The better of two rows, for the progress display: the one of the larger size, then the faster
    one.

    The display gets the axes and time of `row` if it is the better one.
    """
    if row.status != "ok" or not row.time_us:
        return best
    if best is not None and best.time_us is not None:
        size = row.size_bytes or 0
        best_size = best.size_bytes or 0
        if (-size, row.time_us) >= (-best_size, best.time_us):
            return best
    where = ", ".join(str(value) for value in row.axes.values())
    if where:
        STAGE.remark = f"best: {where} {format_time(row.time_us / 1e6)}"
    return row


def _is_lost_part(cell: Cell, error: NetsimError, part_axes: Sequence[str]) -> bool:
    """Whether a cell with a part at fault failed because its operation cannot finish without that
    part.
    """
    is_at_fault = any(cell.axes.get(axis) != HEALTHY for axis in part_axes)
    return is_at_fault and isinstance(error, CellError) and error.is_stalled


def _rows_in_order(job: _Run, results: Folder) -> list[Row]:
    """The finished rows in the order of the sweep, with rows for the points that cannot
    be built.
    """
    ordered: list[Row] = []
    cell_ids = {id(cell) for cell in job.cells}
    for point in job.expansion.points:
        if not isinstance(point, Cell):
            ordered.append(invalid_row(point, job.name))
        elif id(point) in cell_ids:
            tasks = tasks_of([point])
            ordered += [finished_row(results, one) for one in tasks if one.key in results.finished]
    return ordered
