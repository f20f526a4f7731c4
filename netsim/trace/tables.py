"""A run as CSV: trace.csv with a line a row, links.csv with a line a link, links over time.

Times are in µs, rates in GB/s (1e9 bytes a second). What has no meaning for a row or link is empty:
the bytes of a compute row, the GB/s of a resource that gives seconds.
"""

import csv
from collections.abc import Iterable, Iterator, Sequence
from io import TextIOWrapper
from pathlib import Path

import numpy as np

from netsim.files import replacing
from netsim.metrics import IN_SECONDS, LinkLoad, link_use
from netsim.program import Program, Timeline
from netsim.schedule import COMPUTE, KIND_NAMES, MARK, OP_NAMES
from netsim.trace.counters import busiest_load
from netsim.trace.names import Names, named_operations
from netsim.trace.operation import Operation
from netsim.trace.selection import Selection, Written, first_rows

MOST_ROWS = 200_000  # about 30 MB
MOST_LINKS = 128
BINS = 200

ROW_COLUMNS = (
    "row", "kind", "collective", "channel", "step", "stream", "src", "dst", "bytes", "start_us",
    "end_us", "path", "op", "startup_us", "latency_us",
)  # fmt: skip
LINK_COLUMNS = ("link", "kind", "capacity_GBps", "bytes", "utilisation", "busy_us")
LOAD_COLUMNS = ("link", "t_us", "GBps", "utilisation")
Line = Sequence[object]


def write_rows(
    path: Path,
    program: Program,
    timeline: Timeline,
    operations: Sequence[Operation] = (),
    *,
    rows: int = MOST_ROWS,
) -> Written:
    """Write a line for every row; above `rows`, for those that start first.

    `startup_us` of a row pass before its bytes move; they arrive `latency_us` after they left.
    Ranks of a group are joined by semicolons, as are the links of a path.
    """
    selection = first_rows(timeline, rows)
    names = Names(program, named_operations(program, tuple(operations)))
    _write(path, ROW_COLUMNS, _row_lines(program, timeline, names, selection))
    return Written(path, selection.note())


def write_links(path: Path, program: Program, timeline: Timeline) -> Written:
    """Write a line for every link in use, in link order; utilisation is over the makespan."""
    _write(path, LINK_COLUMNS, _link_lines(program, timeline))
    return Written(path)


def write_links_over_time(
    path: Path,
    program: Program,
    timeline: Timeline,
    *,
    links: int = MOST_LINKS,
    bins: int = BINS,
) -> Written:
    """Write the load of the busiest links in equal bins; `t_us` is where a bin begins."""
    used = len(link_use(program, timeline))
    load = busiest_load(program, timeline, links, bins)
    _write(path, LOAD_COLUMNS, _load_lines(program, load))
    note = f"holds the {links} busiest of {used} links" if used > links else ""
    return Written(path, note)


def _row_lines(
    program: Program, timeline: Timeline, names: Names, selection: Selection
) -> Iterator[Line]:
    schedule = program.schedule
    rows = selection.rows
    amounts, delays = schedule.amount, program.path_latency[program.path]
    for row in rows.tolist():
        style = schedule.styles[int(schedule.style[row])]
        sources, targets = schedule.members(row)
        moves = style.kind not in (COMPUTE, MARK)
        yield (
            row,
            KIND_NAMES[style.kind],
            names.operations[style.collective].title,
            style.channel,
            int(schedule.step[row]),
            style.stream,
            _joined(sources),
            _joined(targets),
            _number(float(amounts[row])) if moves else "",
            _micro(timeline.start[row]),
            _micro(timeline.end[row]),
            names.path(row),
            OP_NAMES[style.op] if moves else "",
            _micro(style.latency),
            _micro(delays[row]),
        )


def _link_lines(program: Program, timeline: Timeline) -> Iterator[Line]:
    """`busy_us` is how long the link at its full rate would take for what it carried."""
    use, table, whole = link_use(program, timeline), program.links, timeline.makespan
    for link, amount, part in zip(
        use.link.tolist(), use.amount.tolist(), use.utilisation.tolist(), strict=True
    ):
        kind, busy = table.kind(link), _micro(part * whole)
        capacity: object = float(table.capacity[link]) / 1e9
        carried: object = _number(amount)
        if kind in IN_SECONDS:
            capacity, carried = "", ""
        yield table.name(link), kind, capacity, carried, part, busy


def _load_lines(program: Program, load: LinkLoad) -> Iterator[Line]:
    times = [_micro(edge) for edge in load.edges[:-1]]
    rates, parts = load.rate / 1e9, load.utilisation
    for i, link in enumerate(load.link.tolist()):
        name, in_seconds = program.links.name(link), program.links.kind(link) in IN_SECONDS
        for k, when in enumerate(times):
            yield name, when, "" if in_seconds else float(rates[i, k]), float(parts[i, k])


def _write(path: Path, columns: Sequence[str], lines: Iterable[Line]) -> None:
    with replacing(path) as stream:
        file = TextIOWrapper(stream, encoding="utf-8", newline="")
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(lines)
        file.detach()


def _joined(ranks: Sequence[int]) -> str:
    return ";".join(map(str, ranks))


def _micro(seconds: float) -> float:
    """Microseconds to 12 digits, beyond which engines need not agree."""
    return float(f"{seconds * 1e6:.12g}")


def _number(value: float) -> int | float:
    """Whole numbers without a point."""
    return int(value) if np.isfinite(value) and value.is_integer() else value
