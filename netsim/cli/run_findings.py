"""What a sweep shows besides its rows: the best cell, the costliest part, axes without effect."""

from collections import Counter
from collections.abc import Iterator, Sequence

from netsim.base.errors import NetsimError
from netsim.base.units import format_size, format_time
from netsim.base.values import grouped
from netsim.results.row import Row
from netsim.scenario.cells import Expansion, last_part, named
from netsim.scenario.sweep import SEED
from netsim.sweep import summary
from netsim.sweep.parts import costs_of, sentences
from netsim.sweep.summary import CLEARLY, base_rows, best_row, time_of, without_seed


def after_lines(expansion: Expansion, rows: Sequence[Row], engine: str) -> Iterator[str]:
    """Yield what a sweep shows: the costliest part, the best cell, and which axes changed nothing
    and why.
    """
    cells = expansion.cells
    part_axes = expansion.sweep.part_axes
    if len(expansion.points) < 2:
        return
    yield from _part_lines(expansion, rows)
    if len(cells) < 2:
        return
    choices = [
        axis
        for axis in cells[0].axes
        if axis not in (*expansion.sweep.conditions, *part_axes, SEED)
    ]
    if choices or not part_axes:
        yield from _best_lines(expansion, rows)
    for idle in summary.idle_axes(cells, rows):
        try:
            why = summary.reason(idle, engine)
        except NetsimError as error:
            why = str(error)
        yield f"axis {idle.axis} changed nothing: {why}"


def _part_lines(expansion: Expansion, rows: Sequence[Row]) -> Iterator[str]:
    """Yield sentences: which parts at fault cost most and least time, and which the job cannot
    lose.
    """
    largest = max((row.requested_size for row in rows if row.status == "ok"), default=0)
    at = f" at {format_size(largest)}" if largest else ""
    for axis in expansion.sweep.part_axes:
        yield from sentences(costs_of(expansion, rows, axis), at)


def _best_lines(expansion: Expansion, rows: Sequence[Row]) -> Iterator[str]:
    """Yield the best cell; if the sweep has condition axes, the choice that is best under most
    conditions.
    """
    best = best_row(rows, expansion.sweep.base)
    conditions = expansion.sweep.conditions
    groups = grouped(rows, lambda row: tuple(str(row.axes.get(name)) for name in conditions))
    if len(groups) > 1:
        yield from _best_of(expansion, list(groups.values()))
        return
    if best is None:
        return
    collectives = sorted({row.collective for row in rows if row.status == "ok"})
    if len(collectives) > 1:
        yield f"no cell is the best: they time different collectives ({', '.join(collectives)})"
        return
    where = f" at {format_size(best.size_bytes)}" if best.size_bytes else ""
    time = format_time(time_of(best) / 1e6, digits=3)
    line = f"best{where}: {named(without_seed(best.axes))}, {time}"
    line += " (median over seeds)" if SEED in best.axes else ""
    base = expansion.sweep.base
    base_row = base_rows(rows, base).get((best.cell, best.size_bytes or 0)) if base else None
    if base_row is not None and time_of(base_row) > time_of(best) * CLEARLY:
        line += f", {time_of(base_row) / time_of(best):.3g} times as fast as {named(base or {})}"
    yield line


def _best_of(expansion: Expansion, groups: Sequence[Sequence[Row]]) -> Iterator[str]:
    """Yield the choice that is best under most conditions; `groups` has the rows of
    each condition.
    """
    conditions = expansion.sweep.conditions
    bests = [best_row(rows, expansion.sweep.base) for rows in groups]
    chosen = [
        {k: v for k, v in without_seed(one.axes).items() if k not in conditions}
        for one in bests
        if one is not None
    ]
    for choice, count in Counter(map(named, chosen)).most_common(1):
        if choice:
            where = f"{count} of {len(groups)} conditions ({', '.join(map(last_part, conditions))})"
            yield f"best under {where}: {choice}; netsim report compares all choices"
