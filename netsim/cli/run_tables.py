"""The tables that `netsim run` prints: collectives, training steps, jobs beside each other."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import groupby
from operator import itemgetter

from netsim.base.errors import InputError
from netsim.cli import shown
from netsim.cli.output import plain_text
from netsim.results import nccl_tests
from netsim.results.row import Row
from netsim.scenario.cells import Cell, last_part, named
from netsim.scenario.models import Workload, hosts_label
from netsim.sweep.summary import time_of
from netsim.tasks.resolve import resolve

Finished = Iterator[tuple[Cell, Row]]
Printer = Callable[[Finished], Iterable[str]]

# Of each column: title, key in `Row.details`, divisor from its unit, width in characters, decimals.
_COLUMNS = (
    ("step (ms)", "step_time_us", 1e3, 12, 3),
    ("MFU %", "mfu_pct", 1, 7, 1),
    ("tokens/s", "tokens_per_s", 1, 11, 0),
    ("exposed ms", "", 1e3, 11, 3),
    ("overlap %", "overlap_pct", 1, 10, 1),
    ("idle ms", "idle_us", 1e3, 10, 3),
    ("GB/GPU", "memory_GB", 1, 8, 1),
)
# The columns that are printed on a narrow terminal.
_COMPACT_COLUMNS = tuple(
    entry for entry in _COLUMNS if entry[0] in ("step (ms)", "MFU %", "GB/GPU")
)
_BOUND_WIDTH = 24  # characters of what bounds a step


def _title(cells: Sequence[Cell], subject: str, more: str = "") -> str:
    """The title line of a table: what is run, on which hosts, in how many cells."""
    several = f", {len(cells)} cells" if len(cells) > 1 else ""
    return f"# {subject} on {hosts_label(cells[0].scenario.cluster)}{more}{several}"


def _step_table(
    cells: Sequence[Cell], finished: Finished, *, width: int | None = None
) -> Iterator[str]:
    """Yield the lines of a table of training steps, then a line with all approximations.

    A step is named by its values on the axes of a sweep. With a `width` in characters, only some
    columns are printed and lines are cut; errors are not cut.
    """
    work = cells[0].scenario.workload
    assert not isinstance(work, Workload)
    names = list(cells[0].axes)
    columns = _COLUMNS if width is None else _COMPACT_COLUMNS
    words: dict[str, None] = {}
    for number, (_, row) in enumerate(finished):
        if not number:
            yield _title(cells, f"{work.title_start} {work.label}")
            titles = "".join(f"{name:>{cells_wide}}" for name, _, _, cells_wide, _ in columns)
            axis_titles = ", ".join(map(last_part, names))
            yield _cut(f"#{titles[1:]}  {'bound by':<{_BOUND_WIDTH}}  {axis_titles}", width)
        words |= dict.fromkeys(filter(None, row.approximation.split("; ")))
        axes = ", ".join(f"{last_part(axis)} {plain_text(row.axes.get(axis))}" for axis in names)
        if row.status != "ok":
            yield f"# {axes}: {row.error}"
            continue
        exposed = sum(v for k, v in row.details.items() if k.startswith("exposed_"))
        values = {**row.details, "": exposed}
        texts = "".join(
            f"{values[key] / unit:>{cells_wide}.{digits}f}"
            if key in values
            else f"{'-':>{cells_wide}}"
            for _, key, unit, cells_wide, digits in columns
        )
        yield _cut(f"{texts}  {row.bound_by:<{_BOUND_WIDTH}}  {axes}", width)
    if words:
        yield f"# approximate: {'; '.join(words)}"


def _cut(line: str, width: int | None) -> str:
    """The line without trailing spaces, cut to `width` characters if that is not None."""
    return line.rstrip() if width is None else shown.shortened(line, width)


def _table(cells: Sequence[Cell], finished: Finished, *, width: int | None = None) -> Iterator[str]:
    """Yield the lines of netsim's table of collectives, for all cells together.

    With a `width` in characters, the table has fewer columns.
    """
    axes = list(cells[0].axes)
    work = cells[0].scenario.collective
    rows: list[Row] = []
    # Only NCCL's algorithms were compared with hardware, so the column "validated" needs one of
    # them.
    validated = any(cell.scenario.collective.is_nccl for cell in cells)
    axis_widths = _axis_widths(cells)
    for _, row in finished:
        if not rows:
            algorithm = "" if "workload.algorithm" in axes else f", {work.algorithm}"
            yield _title(cells, work.collective, algorithm)
            if width is None:
                yield shown.header(axes, validated=validated)
            else:
                yield shown.compact_header(axis_widths, width)
        rows.append(row)
        if width is None:
            yield shown.line(row, axes, validated=validated)
        else:
            yield shown.compact_line(row, axis_widths, width)
    yield shown.footer(rows)


_WIDEST_AXIS = 20  # characters of the column of an axis in a narrow terminal


def _axis_widths(cells: Sequence[Cell]) -> dict[str, int]:
    """The width in characters of the column of each axis, at most `_WIDEST_AXIS`."""
    widths = {}
    for axis in cells[0].axes:
        longest = max(len(str(cell.axes.get(axis))) for cell in cells)
        widths[axis] = min(_WIDEST_AXIS, max(longest, len(last_part(axis))))
    return widths


def _tests_log(cells: Sequence[Cell], finished: Finished) -> Iterator[str]:
    """Yield the lines of a log of nccl-tests, in which each cell is one run."""
    for cell, cell_rows in groupby(finished, itemgetter(0)):
        run = shown.run_of(resolve(cell))
        rows = list[Row]()
        yield nccl_tests.opening(run)
        for _, row in cell_rows:
            rows.append(row)
            yield nccl_tests.line(row, run.root)
        yield nccl_tests.closing(run, rows)


def _slowed_by(row: Row) -> str:
    """The job that slows this row's job most, the factor, and the link, as text.

    If no other job slows it, the error of the row.
    """
    neighbours = row.neighbours
    jobs = [key for key in neighbours if key.startswith("by:")]
    if not jobs:
        return row.error
    slowest = max(jobs, key=neighbours.__getitem__)
    link = neighbours.get(slowest.replace("by:", "on:"))
    place = f" on {link}" if link else ""
    return f"{slowest[3:]} {neighbours[slowest]:.3f}{place}"


def _jobs_table(
    cells: Sequence[Cell], finished: Finished, *, width: int | None = None
) -> Iterator[str]:
    """Yield the lines of a table of jobs that run at the same time.

    The columns are the time of each job alone and with the others in µs, its slowdown, and the job
    that slows it most.
    """
    yield _cut(
        f"#{'size (B)':>11}  {'alone (us)':>12}  {'time (us)':>12}  {'slowdown':>8}  slowed by",
        width,
    )
    for _, row in finished:
        slowed_by = _slowed_by(row)
        figures = f"{row.alone_us or 0:>12.2f}  {time_of(row):>12.2f}  {row.slowdown or 0:>8.3f}"
        line = f"{row.size_bytes or '-':>12}  {figures}  {slowed_by}  ({named(row.axes)})"
        yield _cut(line, width) if row.status == "ok" else line


def log_printer(cells: Sequence[Cell]) -> Printer:
    """The function that turns finished rows into a log of nccl-tests; raises an InputError if they
    are not of collectives.
    """
    if cells[0].scenario.shared:
        raise InputError("--format nccl-tests: several jobs are no run of nccl-tests")
    if not isinstance(cells[0].scenario.workload, Workload):
        raise InputError("--format nccl-tests: a training step is no run of nccl-tests")
    return partial(_tests_log, cells)


def table_printer(cells: Sequence[Cell], *, wide: bool = False) -> Printer:
    """The function that turns finished rows into the lines of a table.

    The table has fewer columns on a narrow terminal, unless `wide`.
    """
    width = shown.compact_width(wide=wide)
    if cells[0].scenario.shared:
        return partial(_jobs_table, cells, width=width)
    if isinstance(cells[0].scenario.workload, Workload):
        return partial(_table, cells, width=width)
    return partial(_step_table, cells, width=width)
