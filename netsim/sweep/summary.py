"""Tables of a sweep besides its rows: comparison, percentiles over seeds, axes without effect,
costs, manifest.
"""

import hashlib
import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from netsim.base.files import csv_of, write_text
from netsim.base.memo import Memo
from netsim.base.startup import MODEL_VERSION, __version__, version_of
from netsim.base.units import format_bandwidth, format_size
from netsim.base.values import dataclass, grouped
from netsim.costs.prices import Bill, bill_of, load_prices
from netsim.engines.engine import simulate
from netsim.extent.shown import complete_schedule
from netsim.metrics.bound import SPOKEN, bound_by
from netsim.metrics.links import link_use
from netsim.nccl.environment import EFFECTS
from netsim.nccl.environment import reason as variable_reason
from netsim.program.place import place
from netsim.program.program import Program, Timeline
from netsim.results.folder import COSTS
from netsim.results.row import AXIS, Row
from netsim.scenario.cells import Cell, Expansion, idle_axis
from netsim.scenario.models import Workload, line_rate
from netsim.scenario.sweep import JOB, SEED
from netsim.tasks.resolve import resolve
from netsim.topology.cluster import Cluster, build_cluster
from netsim.topology.config import ClusterConfig
from netsim.topology.graph import LINK_KINDS

PERCENTILES = (5, 25, 50, 75, 95)
CLEARLY = 1.005  # a row is clearly faster than another if it is faster by this factor

Place = tuple[tuple[str, str], ...]


def time_of(row: Row) -> float:
    """The time of a row in µs, of an operation or of a training step; 0 if it has none."""
    return row.time_us or row.step_time_us or 0.0


def base_rows(rows: Sequence[Row], base: Mapping[str, Any]) -> dict[tuple[str, int], Row]:
    """By (cell, size in bytes) of a row, the row with which it is compared. Rows without such a row
    are left out.

    It is the row of the same size whose cell has the values of `base` on their axes, and the values
    of the compared row on the other axes.
    """
    row_of_place = {(place_of(row.axes), row.requested_size): row for row in rows if time_of(row)}
    base_of_row = {}
    for row in rows:
        base_row = row_of_place.get((place_of({**row.axes, **base}), row.requested_size))
        if time_of(row) and base_row is not None:
            base_of_row[row.cell, row.requested_size] = base_row
    return base_of_row


def place_of(axes: Mapping[str, Any]) -> Place:
    """The values on all axes as a tuple of (axis, value as text), for use as a key."""
    return tuple(sorted((key, str(value)) for key, value in axes.items()))


def without_seed(axes: Mapping[str, Any]) -> dict[str, Any]:
    """The values of axes without that of the seed, because a seed is no choice."""
    return {axis: value for axis, value in axes.items() if axis != SEED}


def comparison_csv(rows: Sequence[Row], axes: Sequence[str], base: Mapping[str, Any]) -> str:
    """Each row compared with its base row, as CSV; `speedup` is the base row's time over the row's
    time.
    """
    against = base_rows(rows, base)
    fixed = ("cell", "size_bytes", "time_us", "base_cell", "base_time_us", "speedup")
    lines: list[list[object]] = [[*fixed, *(AXIS + name for name in axes)]]
    for row in rows:
        base_row = against.get((row.cell, row.requested_size))
        if base_row is not None:
            row_time = time_of(row)
            base_time = time_of(base_row)
            figures = [row_time, base_row.cell, base_time, base_time / row_time]
            lines.append([row.cell, row.size_bytes, *figures, *(row.axes[a] for a in axes)])
    return csv_of(lines)


def bands_csv(rows: Sequence[Row], axes: Sequence[str]) -> str:
    """Percentiles of the time over the seeds, as CSV. There is a line for each size and each group
    of cells that differ only in their seed.
    """
    others = [name for name in axes if name != SEED]
    timed = (row for row in rows if time_of(row))
    groups = grouped(timed, lambda row: (*(row.axes[name] for name in others), row.requested_size))
    names = [f"time_us_p{p}" for p in PERCENTILES]
    lines: list[list[object]] = [
        [*(AXIS + n for n in others), "size_bytes", "seeds", "time_us_min", *names, "time_us_max"]
    ]
    for key, group_rows in groups.items():
        times = list(map(time_of, group_rows))
        bands = np.percentile(times, PERCENTILES).tolist()
        lines.append([*key, len(times), min(times), *bands, max(times)])
    return csv_of(lines)


def best_row(rows: Iterable[Row], base: Mapping[str, Any] | None = None) -> Row | None:
    """The fastest row of the largest size; for training steps, the shortest step.

    Cells that differ only in their seed count with their median. If no row is clearly faster than
    the base line, a row of the base line is returned. Rows with a large error bound are left out.
    """
    usable_rows = [row for row in rows if row.status == "ok" and time_of(row) and not row.doubtful]
    largest = max((row.requested_size for row in usable_rows), default=0)
    shown = (row for row in usable_rows if row.requested_size == largest)
    groups = grouped(shown, lambda row: place_of(without_seed(row.axes)))
    medians = [sorted(group, key=time_of)[(len(group) - 1) // 2] for group in groups.values()]
    best = min(medians, key=time_of, default=None)
    if best is None or base is None:
        return best
    as_fast = [row for row in medians if time_of(row) <= time_of(best) * CLEARLY]
    at_base = [row for row in as_fast if place_of({**row.axes, **base}) == place_of(row.axes)]
    return min(at_base, key=time_of, default=best)


def write_tables(expansion: Expansion, rows: Sequence[Row], folder: Path) -> list[str]:
    """Write results.csv's companion tables that the sweep asks for into a folder; return their
    paths.
    """
    axes = list(expansion.sweep.names)
    files = []
    if expansion.sweep.base:
        text = comparison_csv(rows, axes, expansion.sweep.base)
        files.append(write_text(folder / "comparison.csv", text))
    if SEED in axes and len({str(row.axes.get(SEED)) for row in rows}) > 1:
        files.append(write_text(folder / "bands.csv", bands_csv(rows, axes)))
    return [str(file) for file in files]


EQUAL = 1e-9  # times with a smaller relative difference are the same
_NAMED = 3  # the number of kinds of links that are listed as the busiest
MOST_ROWS = 3_000_000  # larger schedules are not simulated only to explain an idle axis


@dataclass(frozen=True)
class Idle:
    """An axis without effect: two cells that differ only in it, and their largest size in bytes."""

    axis: str
    cells: tuple[Cell, Cell]
    size: int


def idle_axes(cells: Sequence[Cell], rows: Sequence[Row]) -> list[Idle]:
    """The axes without effect: cells that differ only in such an axis have equal times at every
    size.
    """
    sizes = {cell.id: cell.scenario.workload.size_list() for cell in cells}
    by_cell: dict[str, dict[int, float]] = {}
    for row in rows:
        if row.status == "ok" and time_of(row):
            by_cell.setdefault(row.cell, {})[row.requested_size] = time_of(row) + (
                row.p99_us or 0.0
            )
    idle = []
    for axis in cells[0].axes if cells and by_cell else ():
        if axis == JOB:
            continue
        groups: dict[str, list[Cell]] = {}
        for cell in cells:
            if cell.id in by_cell:
                others = {k: v for k, v in cell.axes.items() if k != axis}
                groups.setdefault(repr(sorted(others.items(), key=str)), []).append(cell)
        compared = [group for group in groups.values() if len(group) > 1]
        if compared and all(_same_times([by_cell[c.id] for c in group]) for group in compared):
            first = compared[-1][0]
            last = compared[-1][-1]
            idle.append(Idle(axis, (first, last), max(sizes[first.id])))
    return idle


def _same_times(times_of_cells: Sequence[Mapping[int, float]]) -> bool:
    """Whether all cells have the same sizes, and equal times at each. `times_of_cells` has a
    mapping from size in bytes to µs for each cell.
    """
    first = times_of_cells[0]
    for times in times_of_cells[1:]:
        if times.keys() != first.keys():
            return False
        for size, time in first.items():
            if not abs(times[size] - time) <= EQUAL * max(time, 1e-300):
                return False
    return True


def reason(idle: Idle, engine: str = "auto") -> str:
    """The reason why an axis has no effect, as text, from a simulation of two of its cells."""
    idle_reason = idle_axis(idle.cells, idle.axis)
    if idle_reason:
        return idle_reason
    if not isinstance(idle.cells[0].scenario.workload, Workload) or idle.cells[0].scenario.shared:
        return "what is run does not depend on it"
    programs = [_program(cell, idle.size) for cell in idle.cells]
    first, second = programs
    changed = _changed_kinds(first, second)
    if len(first) > MOST_ROWS:
        return f"it changes {', '.join(changed) or 'nothing that is simulated'}"
    timeline = simulate(first, engine)
    most = _most_used(first.as_run(timeline), timeline)
    if changed:
        used = {kind: most.get(kind, 0.0) for kind in changed}
        parts = [
            f"{SPOKEN.get(kind, kind)} links are never used"
            if not part
            else f"{SPOKEN.get(kind, kind)} is used to {part:.0%} at most"
            for kind, part in used.items()
        ]
        why = ", ".join(parts)
    else:
        busiest = sorted(most, key=lambda kind: -most[kind])[:_NAMED]
        parts = [f"{SPOKEN.get(kind, kind)} {most[kind]:.0%}" for kind in busiest]
        why = f"{_unchanged(idle)}; used at most: {', '.join(parts)}"
    text = f"{why}; bound by {bound_by(first, timeline)}"
    return text.replace("%", " %").replace("  %", " %")


def _most_used(program: Program, timeline: Timeline) -> dict[str, float]:
    """By kind of link, the largest utilization of a link of this kind, as a fraction."""
    use = link_use(program, timeline)
    most = dict[str, float]()
    for link, part in zip(use.link.tolist(), use.utilisation.tolist(), strict=True):
        kind = program.links.kind(link)
        most[kind] = max(most.get(kind, 0.0), part)
    return most


def _unchanged(idle: Idle) -> str:
    """Why the two cells of `idle` have the same transfers on the same links, as text."""
    first, second = idle.cells
    if idle.axis.rpartition(".")[2] == SEED:
        return "no host is placed at random, and no message has a choice of routes"
    plan = resolve(first).planned(idle.size)
    if plan is not None and idle.axis.startswith("nccl."):
        chosen = f"{plan.algorithm} {plan.protocol} on {plan.n_channels} channels"
        variable = idle.axis.removeprefix("nccl.env.")
        effect = EFFECTS.get(variable)
        if variable == idle.axis:
            return f"NCCL runs {chosen} in any case"
        if effect:
            return f"{variable} ({effect}) makes no difference to {chosen}"
        return f"{variable}: {variable_reason(variable)}"
    if first.cluster != second.cluster:
        return f"both values make the same {_links(first)}"
    return f"the same {format_size(idle.size)} move in the same order"


def _links(cell: Cell) -> str:
    """The number and rates of the links between the hosts of a cell (or else its GPUs), as text."""
    table = resolve(cell).topology.links
    names = [LINK_KINDS[kind] for kind in table.kind.tolist()]
    name = next((kind for kind in ("fabric", "nic") if kind in names), next(iter(names), ""))
    rates = zip(names, table.bandwidth.tolist(), strict=True)
    rates_of_kind = [rate for kind, rate in rates if kind == name]
    span = dict.fromkeys(
        map(format_bandwidth, (min(rates_of_kind, default=0.0), max(rates_of_kind, default=0.0)))
    )
    return f"{len(rates_of_kind)} {SPOKEN.get(name, name)} links of {' to '.join(span)}"


def _program(cell: Cell, size: int) -> Program:
    """The complete program of a cell at a size in bytes."""
    resolved = resolve(cell)
    schedule = complete_schedule(resolved.task(size), resolved.budget)
    return place(schedule, resolved.topology, resolved.gpus.tolist())


def _changed_kinds(first: Program, second: Program) -> list[str]:
    """The kinds of links whose number, rates or latencies differ between two programs."""
    tables = [_table(first), _table(second)]
    kinds = dict.fromkeys([*tables[0], *tables[1]])
    return [kind for kind in kinds if tables[0].get(kind) != tables[1].get(kind)]


def _table(program: Program) -> dict[str, Any]:
    """By kind of link, the capacities and the latencies of its links, as pairs; each of both
    columns is sorted by itself.
    """
    table = program.links
    figures = np.column_stack([table.capacity, table.latency])
    kinds = grouped(range(len(table)), table.kind)
    return {kind: np.sort(figures[rows], axis=0).tolist() for kind, rows in kinds.items()}


COLUMNS = ("switches", "cables", "nics", "gpus", "cost_usd", "power_w", "usd_per_hour")


def bill(cell: Cell) -> Bill | None:
    """The bill (cost and power) of a cell, by the prices that its scenario names.

    None without prices, or if the cluster is a plain graph.
    """
    config = cell.scenario.cluster
    name = cell.scenario.prices
    if name is None or config.graph is not None:
        return None
    models: list[str] = []
    for group in config.members:
        gpu = group.loaded.machine.gpu
        gpu_count = group.gpus_per_node or gpu.count if group.gpus is None else len(group.gpus)
        models += [gpu.model] * (group.nodes * gpu_count)
    return bill_of(_healthy(cell.cluster, config), models, load_prices(name))


MADE = Memo(32)


def _healthy(key: str, config: ClusterConfig) -> "Cluster":
    """The cluster without its faults, as it was bought.

    `key` identifies the cluster section, so that each cluster is built once; "" builds it anew.
    """
    bought = config.model_copy(update={"faults": ()})
    return MADE.of(key, lambda: build_cluster(bought)) if key else build_cluster(bought)


def check_prices(cells: Sequence[Cell]) -> None:
    """Read the prices that cells name, to report errors in them before anything runs."""
    for name in {cell.scenario.prices for cell in cells} - {None}:
        load_prices(str(name))


def write_costs(cells: Sequence[Cell], folder: Path) -> list[str]:
    """Write the bill of every cell, if any cell has prices; return the paths of the files."""
    if all(cell.scenario.prices is None for cell in cells):
        return []
    rows = []
    for cell_id, cell in {cell.id: cell for cell in cells}.items():
        cell_bill = bill(cell)
        if cell_bill:
            rows.append((cell_id, *(getattr(cell_bill, name) for name in COLUMNS)))
    return [str(write_text(folder / COSTS, csv_of([("cell", *COLUMNS), *rows])))]


PACKAGES = ("numpy", "numba", "simpy", "networkx", "scipy")


def about(
    expansion: Expansion,
    path: Path,
    settings: Sequence[str],
    engine: str,
    shard: tuple[int, int] | None = None,
) -> dict[str, Any]:
    """The manifest of a run as plain values, without the name of its scenario.

    `settings` are the values of --set, `shard` is (part, number of parts) or None.
    """
    source = expansion.cells[0].source if expansion.cells else None
    text = source.text if source else ""  # a pipe cannot be read a second time
    text = text or path.read_text(encoding="utf-8", errors="replace")
    scenario = expansion.cells[0].scenario if expansion.cells else None
    rates = {line_rate(cell.scenario.cluster) for cell in expansion.cells}
    return {
        "file": path.as_posix(),
        "path": _absolute_path(path),
        "text": text,
        "sha256": hashlib.sha256(text.encode()).hexdigest(),
        "settings": list(settings),
        "engine": engine,
        "seed": None if scenario is None else scenario.seed,
        "versions": versions(),
        "axes": list(expansion.sweep.names),
        "conditions": expansion.sweep.conditions,
        "base": None if expansion.sweep.base is None else dict(expansion.sweep.base),
        "part_axes": list(expansion.sweep.part_axes),
        "line_rate": rates.pop() if len(rates) == 1 else None,
        "points": [_point(point) for point in expansion.points],
        "shard": None if shard is None else list(shard),
    }


def _absolute_path(path: Path) -> str:
    """The absolute path of a scenario file; empty for a pipe."""
    return os.path.realpath(path) if path.is_file() else ""


def _point(point: Any) -> dict[str, Any]:
    """The entry of a point of the sweep in the manifest."""
    if isinstance(point, Cell):
        sizes = point.scenario.workload.size_list()
        return {"cell": point.id, "axes": _plain(point.axes), "sizes": sizes}
    return {"cell": point.id, "axes": _plain(point.axes), "error": str(point.error)}


def _plain(axes: Mapping[str, Any]) -> dict[str, Any]:
    """The values of axes as values of JSON."""
    plain_types = str | int | float | bool | None
    return {
        key: value if isinstance(value, plain_types) else str(value) for key, value in axes.items()
    }


def versions() -> dict[str, str]:
    """The versions of netsim, of its model, of Python and of the packages that results depend
    on."""
    entries = {"netsim": __version__, "model": MODEL_VERSION, "python": platform.python_version()}
    return {**entries, **{name: version_of(name) for name in PACKAGES}}
