"""A run as CSV: trace.csv with a line for each row, links.csv with a line for each link, links over
time.

Times are in µs, rates in GB/s (1e9 bytes a second). A cell is empty if it has no meaning: the bytes
of a compute row, the GB/s of a resource that gives seconds.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from netsim.base.files import write_text
from netsim.metrics.links import IN_SECONDS, LinkLoad, link_use
from netsim.program.program import Program, Timeline
from netsim.schedule.schedule import COMPUTE, KIND_NAMES, MARK, OP_NAMES, Style
from netsim.trace import names as trace_names
from netsim.trace.chrome import busiest_load

MOST_ROWS = 200_000  # about 30 MB
MOST_LINKS = 128
BINS = 200

ROW_COLUMNS = (
    "row", "kind", "collective", "channel", "step", "stream", "src", "dst", "bytes", "start_us",
    "end_us", "path", "op", "startup_us", "latency_us",
)  # fmt: skip
LINK_COLUMNS = ("link", "kind", "capacity_GBps", "bytes", "utilisation", "busy_us")
LOAD_COLUMNS = ("link", "t_us", "GBps", "utilisation")


def write_rows(
    path: Path,
    program: Program,
    timeline: Timeline,
    operations: Sequence[trace_names.TracedOperation] = (),
    *,
    rows: int = MOST_ROWS,
) -> trace_names.Written:
    """Write trace.csv: a line for each row; if there are more than `rows`, for those that start
    first.

    The bytes of a row begin to move `startup_us` after its start, and arrive `latency_us` after
    they left. Ranks of a group are joined by semicolons, as are the links of a path.
    """
    selection = trace_names.first_rows(timeline, rows)
    names = trace_names.Names(program, trace_names.named_operations(program, tuple(operations)))
    _write(path, ROW_COLUMNS, _row_lines(program, timeline, names, selection))
    return trace_names.Written(path, selection.note())


def write_links(path: Path, program: Program, timeline: Timeline) -> trace_names.Written:
    """Write links.csv: a line for each used link, in link order; `utilisation` is averaged over the
    makespan.
    """
    _write(path, LINK_COLUMNS, _link_lines(program, timeline))
    return trace_names.Written(path)


def write_links_over_time(
    path: Path, program: Program, timeline: Timeline, *, links: int = MOST_LINKS, bins: int = BINS
) -> trace_names.Written:
    """Write the load of the `links` busiest links in `bins` equal bins; `t_us` is the begin of a
    bin.
    """
    used = len(link_use(program, timeline))
    load = busiest_load(program, timeline, links, bins)
    _write(path, LOAD_COLUMNS, _load_lines(program, load))
    note = f"holds the {links} busiest of {used} links" if used > links else ""
    return trace_names.Written(path, note)


def _row_lines(
    program: Program, timeline: Timeline, names: trace_names.Names, selection: trace_names.ShownRows
) -> Iterator[str]:
    schedule = program.schedule
    rows = selection.rows
    style = schedule.style[rows]
    path = program.path[rows]
    styles = schedule.styles
    delays = program.path_latency

    def of_style(*spell: Callable[[Style], object]) -> list[str]:
        return trace_names.spelled(
            style, lambda number: trace_names.cells(*(told(styles[number]) for told in spell))
        )

    def joined(end: int) -> str:
        return ";".join(map(str, trace_names.members(schedule, end)))

    moves = np.array([_moves(entry) for entry in styles], bool)[style]
    amounts = np.where(moves, schedule.pieces.amount[schedule.piece[rows]], -1.0)
    columns = (
        map(str, rows.tolist()),
        of_style(
            lambda entry: KIND_NAMES[entry.kind],
            lambda entry: names.operations[entry.collective].title,
            lambda entry: entry.channel,
        ),
        map(str, schedule.step[rows].tolist()),
        of_style(lambda entry: entry.stream),
        trace_names.spelled(trace_names.sources(schedule, rows), joined),
        trace_names.spelled(trace_names.targets(schedule, rows), joined),
        trace_names.spelled(
            amounts, lambda amount: trace_names.number_text(amount) if amount >= 0 else ""
        ),
        trace_names.spelled(timeline.start[rows], trace_names.micro),
        trace_names.spelled(timeline.end[rows], trace_names.micro),
        trace_names.spelled(path, lambda number: trace_names.cells(names.path(number))),
        of_style(
            lambda entry: OP_NAMES[entry.op] if _moves(entry) else "",
            lambda s: trace_names.micro(s.latency),
        ),
        trace_names.spelled(path, lambda number: trace_names.micro(delays[number])),
    )
    return map(",".join, zip(*columns, strict=True))


def _moves(style: Style) -> bool:
    return style.kind not in (COMPUTE, MARK)


def _link_lines(program: Program, timeline: Timeline) -> Iterator[str]:
    """Yield the lines of links.csv: name, kind, GB/s, bytes, utilization and busy time of each used
    link.

    The busy time is how long the link would need at its full rate for what it carried, in µs.
    """
    use = link_use(program, timeline)
    table = program.links
    makespan = timeline.makespan
    for link, amount, part in zip(
        use.link.tolist(), use.amount.tolist(), use.utilisation.tolist(), strict=True
    ):
        kind = table.kind(link)
        busy = trace_names.micro(part * makespan)
        capacity: object = float(table.capacity[link]) / 1e9
        carried = trace_names.number_text(amount)
        if kind in IN_SECONDS:
            capacity = ""
            carried = ""
        yield trace_names.cells(table.name(link), kind, capacity, carried, part, busy)


def _load_lines(program: Program, load: LinkLoad) -> Iterator[str]:
    times = [trace_names.micro(edge) for edge in load.edges[:-1].tolist()]
    rates = (load.rate / 1e9).tolist()
    parts = load.utilisation.tolist()
    for i, link in enumerate(load.link.tolist()):
        name = trace_names.cells(program.links.name(link))
        in_seconds = program.links.kind(link) in IN_SECONDS
        for when, rate, part in zip(times, rates[i], parts[i], strict=True):
            yield f"{name},{when},{'' if in_seconds else rate},{part}"


def _write(path: Path, columns: Sequence[str], lines: Iterable[str]) -> None:
    write_text(path, "\n".join([trace_names.cells(*columns), *lines, ""]))
