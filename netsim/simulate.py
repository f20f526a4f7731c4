"""One cell, from question to rows: the topology, the schedule of each size, its time, its Row."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from netsim.budget import estimated_rows, misfit
from netsim.collectives import (
    ALGORITHMS,
    Collective,
    CollectiveError,
    build,
    collective_of,
    parameters_of,
)
from netsim.collectives.collective import HAS_IN_PLACE
from netsim.communicators import split_ranks
from netsim.metrics import bound_by
from netsim.results import Row
from netsim.scenario.cells import Cell
from netsim.scenario.clusters import cluster_label, node_count
from netsim.scenario.names import DTYPES
from netsim.schedule import Launch, Schedule, combine
from netsim.timing import Progress, Timing, time_operation
from netsim.topology import Topology, TopologyError
from netsim.topology.build import build_topology
from netsim.version import MODEL_VERSION

# Where in a scenario the arguments of a collective are written.
_FIELDS = {"collective": "collective", "root": "root", "pairs": "pairs", "matrix": "matrix"}


@dataclass(frozen=True)
class Prepared:
    """A cell whose parts are known to fit: its topology, and its GPUs by communicator."""

    cell: Cell
    topology: Topology
    groups: tuple[tuple[int, ...], ...]

    @cached_property
    def gpus(self) -> NDArray[np.int32]:
        """The device of every rank of the whole world."""
        chosen = self.cell.scenario.workload.ranks
        return (
            np.arange(len(self.topology), dtype=np.int32)
            if chosen is None
            else np.array(chosen, np.int32)
        )

    @property
    def gpus_per_node(self) -> int:
        """GPUs of a host; of the first, where they differ."""
        return len(self.topology) // node_count(self.cell.scenario.cluster)

    @cached_property
    def parameters(self) -> dict[str, Any]:
        """Parameters of the algorithm; what is left open follows from the cluster."""
        work = self.cell.scenario.workload
        takes = parameters_of(work.collective, work.algorithm)
        whole = work.ranks is None and len(self.groups) == 1
        if "node_size" in takes and whole and not {"node_size", "groups"} & set(work.parameters):
            return {**work.parameters, "node_size": self.gpus_per_node}
        return work.parameters

    def estimated_rows(self) -> int:
        """Rows of all communicators at the largest size, without building large schedules."""
        work, ranks = self.cell.scenario.workload, len(self.groups[0])
        fixed = {"groups", "root"} & set(self.parameters) or work.pairs or work.matrix or work.root

        def rows_at(count: int) -> int:
            collective = self.collective(max(work.size_list()), ranks=count)
            return len(build(collective, work.algorithm, **self.parameters))

        multiple = ranks if fixed else int(self.parameters.get("node_size", 1))
        return estimated_rows(ranks, rows_at, multiple) * len(self.groups)

    def collective(
        self, size: int, *, in_place: bool = False, ranks: int | None = None
    ) -> Collective:
        """The collective of one communicator (or of another number of ranks) at a size."""
        work = self.cell.scenario.workload
        return collective_of(
            work.collective,
            ranks or len(self.groups[0]),
            size,
            DTYPES[work.dtype],
            root=work.root,
            in_place=in_place,
            pairs=[(pair[0], pair[1]) for pair in work.pairs],
            matrix=work.matrix,
        )

    def schedule(self, size: int, *, in_place: bool = False) -> Schedule:
        """What all communicators do at a size, side by side."""
        work = self.cell.scenario.workload
        collective = self.collective(size, in_place=in_place)
        one = build(collective, work.algorithm, **self.parameters)
        if len(self.groups) == 1:
            return one
        return combine([one] * len(self.groups), self.groups, len(self.gpus))


def prepare(cell: Cell) -> Prepared:
    """Build the topology of a cell and check that its workload fits; errors name the field."""
    source, work = cell.source, cell.scenario.workload
    try:
        topology = build_topology(cell.scenario.cluster)
    except TopologyError as error:
        raise source.error(("cluster",), error.message, key=True, hint=error.hint) from None
    available = len(topology)
    if work.ranks is not None and max(work.ranks) >= available:
        place = ("workload", "ranks", work.ranks.index(max(work.ranks)))
        raise source.error(place, f"expected GPUs in 0..{available - 1}, got {max(work.ranks)}")
    try:
        groups = split_ranks(work.split, available if work.ranks is None else len(work.ranks))
    except ValueError as error:
        raise source.error(("workload", "split"), str(error)) from None
    if len({len(group) for group in groups}) > 1:
        sizes = sorted({len(group) for group in groups})
        raise source.error(("workload", "split"), f"makes communicators of unequal sizes {sizes}")
    prepared = Prepared(cell, topology, tuple(tuple(group) for group in groups))
    _check_algorithm(prepared)
    return prepared


def _check_algorithm(prepared: Prepared) -> None:
    """Build a schedule, or smaller ones of its kind: what does not fit is said before a run."""
    source, work = prepared.cell.source, prepared.cell.scenario.workload
    if work.algorithm == "auto":
        known = ", ".join(ALGORITHMS[work.collective])
        message = f"NCCL's own choice (auto) is not built yet; choose one of {known}"
        raise source.error(("workload", "algorithm"), message)
    try:
        too_large = misfit(prepared.estimated_rows(), len(prepared.gpus))
        if too_large:
            raise source.error(("workload",), too_large, key=True)
    except CollectiveError as error:
        path: tuple[str, ...] = ("workload", _FIELDS.get(error.field, "algorithm"))
        if error.field in work.parameters:
            path = ("workload", "parameters", error.field)
        message = error.message.removeprefix(f"{error.field}: ")
        raise source.error(path, message, hint=error.hint) from None


def simulate_size(
    prepared: Prepared, size: int, *, engine: str = "auto", progress: Progress | None = None
) -> tuple[Row, Timing]:
    """The row of one cell at one size, and the timing behind it (out of place)."""
    work = prepared.cell.scenario.workload
    schedule = prepared.schedule(size)
    timing = _time(prepared, schedule, engine, progress)
    inplace = None
    if work.collective in HAS_IN_PLACE:
        other = prepared.schedule(size, in_place=True)
        same = _same(schedule, other)
        inplace = timing if same else _time(prepared, other, engine, progress)
    return _row(prepared, size, timing, inplace, len(schedule)), timing


def _time(prepared: Prepared, schedule: Schedule, engine: str, progress: Progress | None) -> Timing:
    scenario = prepared.cell.scenario
    return time_operation(
        schedule,
        prepared.topology,
        prepared.gpus,
        launch_of(prepared),
        single=scenario.workload.timing == "single",
        engine=engine,
        progress=progress,
    )


def launch_of(prepared: Prepared) -> Launch:
    """What it takes to begin an operation in this cell."""
    costs = prepared.cell.scenario.launch_costs()
    alone = costs.style == "process_per_gpu"
    per_process = 1 if alone else prepared.gpus_per_node
    return Launch(costs.host, costs.kernel, per_process)


def _row(prepared: Prepared, size: int, timing: Timing, inplace: Timing | None, rows: int) -> Row:
    scenario, work = prepared.cell.scenario, prepared.cell.scenario.workload
    collective = prepared.collective(size)
    seconds = timing.seconds
    algbw = collective.size_bytes / seconds / 1e9 if seconds > 0 else 0.0
    worst = max((t for t in (timing, inplace) if t is not None), key=lambda t: t.uncertainty)
    return Row(
        scenario=scenario.name or "",
        cell=prepared.cell.id,
        topology=cluster_label(scenario.cluster),
        nodes=node_count(scenario.cluster),
        gpus_per_node=prepared.gpus_per_node,
        ranks=collective.ranks,
        workload="collective",
        collective=work.collective,
        algorithm=work.algorithm,
        dtype=work.dtype,
        launch=scenario.launch_costs().style,
        size_bytes=collective.size_bytes,
        count=collective.count,
        time_us=seconds * 1e6,
        inplace_time_us=None if inplace is None else inplace.seconds * 1e6,
        algbw_GBps=algbw,
        busbw_GBps=algbw * collective.bus_factor,
        bound_by=bound_by(timing.program, timing.timeline),
        validated="not validated",
        approximation=worst.approximation,
        approximation_pct=worst.uncertainty * 100 if worst.approximation else None,
        seed=scenario.seed,
        rows=rows,
        engine=timing.engine,
        model_version=MODEL_VERSION,
        axes=prepared.cell.axes,
    )


def _same(a: Schedule, b: Schedule) -> bool:
    """Whether two schedules are the same rows."""
    tables = a.styles == b.styles and a.lags == b.lags and len(a) == len(b)
    columns = zip((*a.columns(), a.pieces.amount), (*b.columns(), b.pieces.amount), strict=True)
    return tables and all(np.array_equal(x, y) for x, y in columns)
