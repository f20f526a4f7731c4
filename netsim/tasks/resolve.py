"""Resolve a cell: build its cluster, check that its parts fit together, and make a task for each
size.

Errors are raised before anything runs, with their place in the scenario.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from netsim.base.errors import InputError, NoRoomError, ScenarioError, suggest
from netsim.base.memo import cached_per_object
from netsim.base.values import dataclass
from netsim.collectives import table as tables
from netsim.collectives.collective import Collective, CollectiveError, collective_of
from netsim.collectives.forest import links_of
from netsim.extent.budget import USUAL_BUDGET, Budget, budget_for
from netsim.extent.memory import misfit_of_nccl
from netsim.nccl import choice, environment
from netsim.nccl.constants import HOST, calibrated_launch, nccl_launch
from netsim.nccl.facts import AUTO, COLLECTIVES, NCCL_NAMES
from netsim.nccl.job import NcclJob
from netsim.nccl.schedules.equal_sends import has_equal_sends
from netsim.nccl.schedules.plan import Plan
from netsim.program.odd_parts import first_odd_part
from netsim.program.partition import Placement
from netsim.scenario.cells import Cell, placed
from netsim.scenario.models import Scenario, Workload, node_count
from netsim.scenario.names import DTYPES
from netsim.schedule.repeat import AT_ONCE, BackToBack, Launch
from netsim.tasks.cluster import Built, built, groups_of, jobs_of, refuse_unjoined, wishes_of
from netsim.tasks.own_algorithms import verify_own_algorithm
from netsim.tasks.room import FewerRanks, expected_bytes, why_task_does_not_fit
from netsim.topology.config import ClusterConfig, TorusGraph
from netsim.topology.fabrics.config import TorusFabric
from netsim.topology.fault_times import in_time
from netsim.topology.graph import Topology
from netsim.topology.host_costs import HostCosts
from netsim.workloads.task import Groups, Task

HOST_FIGURE = "launch.host"
"""The figure of a calibration that a host of the scenario or its machines replaces."""


@dataclass(frozen=True, eq=False)
class ResolvedCell:
    """A cell with its cluster, after all checks: what the tasks of all its sizes share."""

    cell: Cell
    topology: Topology
    groups: Groups
    """The ranks of each communicator."""
    gpus: NDArray[np.int32]
    """The GPU of the topology that each rank of the whole world runs on."""
    jobs: tuple[NcclJob, ...] = ()
    """The communicators as NCCL sees them; empty for a textbook algorithm."""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    """The parameters of a textbook algorithm, those that follow from the cluster included."""
    place: int | None = None
    """Equal for cells on the same cluster; None if no other cell is known to share it."""
    budget: Budget = USUAL_BUDGET
    """What is allowed for the time of its tasks."""

    @property
    def is_nccl(self) -> bool:
        """Whether NCCL runs the collective, rather than a textbook algorithm."""
        return bool(self.jobs)

    @property
    def gpus_per_node(self) -> int:
        """The number of GPUs of the first host."""
        return len(self.topology) // node_count(self.cell.scenario.cluster)

    @property
    def gpus_per_process(self) -> int:
        """The number of GPUs that one process drives; it launches on them one after the other."""
        is_single_process = self.cell.scenario.launch_costs().style == "single_process"
        return self.gpus_per_node if is_single_process else 1

    @cached_per_object
    def collective(
        self, size: int, *, in_place: bool = False, ranks: int | None = None
    ) -> Collective:
        """The collective of one communicator at a size in bytes; with `ranks`, that of a
        communicator of another number of ranks.
        """
        work = self.cell.scenario.collective
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

    @property
    def back_to_back(self) -> BackToBack | None:
        """How operations back to back are timed; None if a single operation is timed."""
        timing = self.cell.scenario.timing
        if self.cell.scenario.is_single or isinstance(timing, str):
            return None
        return BackToBack(timing.iterations, timing.over_processes)

    @cached_per_object
    def task(self, size: int, *, in_place: bool = False) -> Task:
        """The task of the cell at a size."""
        scenario = self.cell.scenario
        collective = self.collective(size, in_place=in_place)
        kinds_of_job = list(dict.fromkeys(self.jobs))
        task = Task(
            collective,
            self.topology,
            self.gpus,
            self.groups,
            launch=self.launch(size),
            back_to_back=self.back_to_back,
        )
        if not self.is_nccl:
            algorithm = scenario.collective.built_by
            return replace(task, algorithm=algorithm, parameters=self.parameters)
        return replace(
            task,
            plans=tuple(self.plan(job, collective) for job in kinds_of_job),
            plan_of_group=tuple(kinds_of_job.index(job) for job in self.jobs),
        )

    @cached_per_object
    def plan(self, job: NcclJob, collective: Collective) -> Plan:
        """NCCL's plan for a collective on the communicator `job`."""
        scenario = self.cell.scenario
        return choice.nccl_plan(
            job,
            collective,
            scenario.collective.dtype,
            registered=scenario.nccl.registration != "none",
            direct=scenario.launch_costs().style == "single_process",
        )

    @cached_per_object
    def planned(self, size: int) -> Plan | None:
        """NCCL's plan for the first communicator at a size; None for a textbook algorithm."""
        if not self.is_nccl:
            return None
        dtype = self.cell.scenario.collective.dtype
        return choice.planned(self.jobs[0], self.collective(size), dtype)

    def launch(self, size: int) -> Launch:
        """The seconds that the launch of one operation of a size takes."""
        costs = self.cell.scenario.launch_costs()
        usual = self._nccl_launch(size) if self.is_nccl else AT_ONCE
        return Launch(
            usual.host if costs.host is None else costs.host,
            usual.kernel if costs.kernel is None else costs.kernel,
            self.gpus_per_process,
        )

    def _nccl_launch(self, size: int) -> Launch:
        """The seconds that NCCL's launch of an operation takes by default, before the scenario's
        own values.
        """
        plan = self.planned(size)
        job = self.jobs[0]
        assert plan is not None
        style = self.cell.scenario.launch_costs().style
        launch = nccl_launch(
            style,
            job.comm.version,
            begin=plan.start(job.mechanism, job.comm.n_nodes),
            channels=plan.n_channels,
            sends_and_receives=choice.operations(self.collective(size)),
            figures=job.calibration,
        )
        if style == "cuda_graph":
            return launch
        if self.host_costs is None:
            return calibrated_launch(launch, job.calibration)
        figures = {name: figure for name, figure in job.calibration.items() if name != HOST_FIGURE}
        launch = calibrated_launch(launch, figures)
        return replace(launch, host=max(0.0, launch.host - HOST + self.host_costs.launch))

    @property
    def host_costs(self) -> HostCosts | None:
        """The launch times of the scenario's `host`, otherwise those of its machine with the
        slowest host.

        None if neither the scenario nor any machine states them.
        """
        scenario = self.cell.scenario
        if scenario.host is not None:
            return scenario.host
        if scenario.cluster.graph is not None:
            return None
        hosts = [group.loaded.machine.host for group in scenario.cluster.members]
        known_hosts = [host for host in hosts if host is not None]
        return max(known_hosts, key=lambda host: host.launch, default=None)

    def memory_needed(self, size: int) -> int:
        """An upper estimate of the bytes that a process needs to simulate a size."""
        return expected_bytes(self.task(size), self.budget, self.fewer_ranks)

    @property
    def fewer_ranks(self) -> FewerRanks:
        """How the largest collective of the cell is made on fewer ranks, to extrapolate the rows of
        a textbook algorithm.

        Numbers of ranks must be multiples of the node size, or of all ranks if arguments name
        ranks.
        """
        work = self.cell.scenario.collective
        largest = max(work.size_list())
        names_ranks = bool(
            {"groups", "root", "dims", "links"} & set(self.parameters)
            or work.pairs
            or work.matrix
            or work.root
        )
        node_size = int(self.parameters.get("node_size", 1))
        return FewerRanks(
            lambda ranks: self.collective(largest, ranks=ranks),
            len(self.groups[0]) if names_ranks else node_size,
        )


# **** Resolving ****


def resolve(cell: Cell) -> ResolvedCell:
    """The cell on the cluster that it builds, after checks that its workload fits; errors name the
    field.
    """
    _refuse_other_workloads(cell)
    work = cell.scenario.collective
    if work.is_nccl:
        _check_wishes(cell)
    built_cluster = built(cell)
    resolved = ResolvedCell(
        cell,
        _in_time(cell, built_cluster.topology),
        groups_of(cell, built_cluster),
        _gpus_of_ranks(cell, built_cluster.topology),
        place=None if cell.scenario.timed else built_cluster.number,
    )
    resolved = replace(resolved, budget=_budget_on(resolved))
    if work.is_nccl:
        return _with_nccl(resolved, built_cluster)
    refuse_unjoined(cell, built_cluster, resolved.gpus, resolved.groups)
    return _with_textbook_algorithm(resolved)


def _refuse_other_workloads(cell: Cell) -> None:
    """Raise an error for a workload that is not a single collective: several jobs, or a training
    step.
    """
    if cell.scenario.shared:
        message = "what runs beside others is run and written out as a whole, by netsim run"
        raise cell.source.error((), message)
    if not isinstance(cell.scenario.workload, Workload):
        message = "a training step is run and written out as a whole, by netsim run"
        raise cell.source.error(("workload",), message, key=True)


def _check_wishes(cell: Cell) -> None:
    """Raise an error if NCCL does not have the algorithm and protocol of the scenario for its
    collective.
    """
    try:
        choice.check_wishes(cell.scenario.collective.collective, wishes_of(cell.scenario))
    except InputError as error:
        place = ("workload", "algorithm")
        raise cell.source.error(place, error.message, hint=error.hint) from None


def _gpus_of_ranks(cell: Cell, topology: Topology) -> NDArray[np.int32]:
    """The GPU of each rank: those that the workload names, or all GPUs."""
    chosen = cell.scenario.collective.ranks
    return np.asarray(np.arange(len(topology)) if chosen is None else chosen, np.int32)


def _in_time(cell: Cell, topology: Topology) -> Topology:
    """The topology of a cell; if the scenario has faults that begin or end while an operation runs,
    a topology with these changes of its links.
    """
    scenario = cell.scenario
    if not scenario.timed:
        return topology
    return in_time(topology, scenario.retries)


# Methods that take ranks for equal, or extrapolate from one rank to the next.
METHODS_OF_EQUAL_RANKS = frozenset(
    {"lockstep", "long_rings", "representatives", "fewer_hops", "rounds_of_sends"}
)


def budget_of(scenario: Scenario) -> Budget:
    """The budget of a scenario's tasks.

    With noise no rank represents another one. If links change in time, everything is simulated.
    """
    noise = scenario.noise
    timed = scenario.timed
    is_exact = scenario.exact or timed or bool(noise and noise.link)
    budget = budget_for(is_exact=is_exact)
    return replace(budget, excluded=METHODS_OF_EQUAL_RANKS) if noise or timed else budget


def _budget_on(resolved: ResolvedCell) -> Budget:
    """The budget of a cell's tasks on its topology."""
    scenario = resolved.cell.scenario
    return replace(
        budget_of(scenario),
        may_fold=may_fold(scenario, resolved.topology),
        has_equal_hops=has_equal_hops(scenario, resolved.topology),
    )


def may_fold(scenario: Scenario, topology: Topology) -> bool:
    """Whether one member may be simulated for each class of equal ranks.

    That needs paths that depend neither on load nor on the number of a message, no noise, and
    links that do not change in time.
    """
    return has_equal_hops(scenario, topology) and topology.router.queue_pairs_in_turn == 1


def has_equal_hops(scenario: Scenario, topology: Topology) -> bool:
    """Whether each hop of a long ring takes the same time as the hop before.

    The paths of messages may depend on their number, but not on load, and nothing may change in
    time or at random.
    """
    changes = scenario.noise is not None or scenario.timed
    return scenario.fold == "auto" and not topology.router.by_load and not changes


# **** NCCL ****


def _with_nccl(resolved: ResolvedCell, built_cluster: Built) -> ResolvedCell:
    """The cell with NCCL's communicators; an error if NCCL refuses its settings or it does not fit
    into memory.
    """
    source = resolved.cell.source
    work = resolved.cell.scenario.collective
    if built_cluster.cluster is None:
        algorithms = ", ".join(tables.ALGORITHMS[work.collective])
        message = f"NCCL's choice needs a machine, not a plain graph; choose one of {algorithms}"
        raise source.error(("workload", "algorithm"), message, hint="--algo ring, for example")
    _refuse_by_least_rows(resolved)
    place: tuple[str, ...] = ("cluster",)
    try:
        resolved = _joined_by_nccl(resolved, built_cluster)
        place = ("workload", "algorithm")
        resolved.planned(min(work.size_list()))
        largest = resolved.planned(max(work.size_list()))
    except CollectiveError as error:
        raise placed(resolved.cell, error) from None
    except ScenarioError:  # the error already names another file, such as one of channels
        raise
    except environment.VariableError as error:
        raise source.error(("nccl", "env", error.variable), error.message) from None
    except InputError as error:
        raise source.error(place, error.message, hint=error.hint) from None
    assert largest is not None
    if _may_be_too_large(resolved, largest.algorithm):
        _refuse_too_large(resolved)
    return resolved


def _joined_by_nccl(resolved: ResolvedCell, built_cluster: Built) -> ResolvedCell:
    """The cell with its communicators, on a topology with the resources that the blocks of NCCL's
    kernels use.
    """
    cell = resolved.cell
    cluster = built_cluster.cluster
    assert cluster is not None
    work = cell.scenario.collective
    wishes = wishes_of(cell.scenario)
    # Communicators with the same data type are shared between cells, so that their schedules share
    # parts.
    ranks = [resolved.gpus[list(group)] for group in resolved.groups]
    question = repr((wishes, resolved.groups, work.ranks, work.dtype))
    jobs = built_cluster.jobs.of(question, lambda: jobs_of(cell, cluster, ranks, wishes))
    joined = _in_time(cell, jobs[0].cluster.topology)
    is_shared = jobs[0].cluster is cluster
    resolved = replace(
        resolved,
        topology=choice.with_blocks(joined, jobs[0].mechanism),
        jobs=tuple(jobs),
        place=resolved.place if is_shared else None,
    )
    return replace(resolved, budget=_budget_on(resolved))


def _refuse_by_least_rows(resolved: ResolvedCell) -> None:
    """Raise an error if even the smallest schedule of NCCL's algorithms does not fit into memory.

    Equal sends are not refused here: one rank may represent all of them, which is known only with
    the communicator.
    """
    work = resolved.cell.scenario.collective
    ranks = len(resolved.groups[0])
    group_count = len(resolved.groups)
    too_large = misfit_of_nccl(work.collective, ranks, group_count, "")
    is_folded = resolved.budget.folds_groups(group_count)
    if not too_large or (is_folded and has_equal_sends(work.collective, ranks)):
        return
    reason = "fold is off"
    if is_folded:
        reason = first_odd_part(Placement(resolved.topology, resolved.gpus))
    message = f"{too_large}; not folded: {reason}" if reason else too_large
    raise resolved.cell.source.error(("workload",), message, key=True, kind=NoRoomError)


def _may_be_too_large(resolved: ResolvedCell, algorithm: str) -> bool:
    """Whether a cell of NCCL is so large that the memory it needs must be computed."""
    work = resolved.cell.scenario.collective
    group_count = len(resolved.groups)
    if resolved.budget.is_exact or work.collective == "alltoall":
        return True
    ranks = len(resolved.groups[0])
    return bool(misfit_of_nccl(work.collective, ranks, group_count, algorithm))


def _refuse_too_large(resolved: ResolvedCell) -> None:
    """Raise an error if the task of any size does not fit into memory."""
    work = resolved.cell.scenario.collective
    sizes = sorted(work.size_list(), reverse=True)
    # A medium size may need more loops than the largest size, and therefore more rows.
    is_every_size = (
        resolved.is_nccl and work.collective == "alltoall" and not resolved.budget.is_exact
    )
    for size in sizes if is_every_size else sizes[:1]:
        task = resolved.task(size)
        if reason := why_task_does_not_fit(task, resolved.budget, resolved.fewer_ranks):
            raise resolved.cell.source.error(("workload",), reason, key=True, kind=NoRoomError)


# **** Textbook algorithms ****


def _with_textbook_algorithm(resolved: ResolvedCell) -> ResolvedCell:
    """The cell with the parameters of its textbook algorithm; wrong parameters raise an error."""
    cell = resolved.cell
    work = resolved.cell.scenario.collective
    if not work.code and not any(work.algorithm in table for table in tables.ALGORITHMS.values()):
        raise cell.source.error(("workload", "algorithm"), _unknown_algorithm(cell.scenario))
    if work.protocol != AUTO:
        message = f"only NCCL's algorithms have protocols, {work.algorithm} has none"
        raise cell.source.error(("workload", "protocol"), message)
    try:
        resolved = replace(resolved, parameters=_parameters_on(resolved))
        if work.code:
            verify_own_algorithm(cell, resolved.collective, resolved.parameters)
        _refuse_too_large(resolved)
    except CollectiveError as error:
        raise placed(cell, error) from None
    return resolved


def _unknown_algorithm(scenario: Scenario) -> str:
    """The message for an unknown algorithm, with the names that exist."""
    work = scenario.collective
    names = list(tables.ALGORITHMS[work.collective])
    if scenario.cluster.graph is None:
        by_nccl = NCCL_NAMES if work.collective in COLLECTIVES else (AUTO,)
        names = [*names, *by_nccl] if work.algorithm.islower() else [*by_nccl, *names]
    hint = suggest(work.algorithm, names)
    return f"expected one of {', '.join(names)} for {work.collective}, got {work.algorithm!r}{hint}"


def _parameters_on(resolved: ResolvedCell) -> Mapping[str, Any]:
    """The parameters of a textbook algorithm: those of the scenario, and those that follow from the
    cluster.
    """
    scenario = resolved.cell.scenario
    work = scenario.collective
    cluster = scenario.cluster
    names = tables.parameters_of(work.collective, work.built_by)
    is_whole_cluster = work.ranks is None and len(resolved.groups) == 1
    if "links" in names and "links" not in work.parameters:
        return {**work.parameters, "links": _links_of_groups(resolved)}
    has_groups = bool({"node_size", "groups"} & set(work.parameters))
    if "node_size" in names and is_whole_cluster and not has_groups:
        return {**work.parameters, "node_size": resolved.gpus_per_node}
    dims = _torus_dims(cluster)
    is_torus = is_whole_cluster and dims and prod(dims) == len(resolved.topology)
    if is_torus and "dims" in names and "dims" not in work.parameters:
        return {**work.parameters, "dims": list(dims)}
    return work.parameters


def _torus_dims(cluster: ClusterConfig) -> tuple[int, ...]:
    """The number of GPUs in each dimension of a torus; empty for any other cluster."""
    shape = cluster.graph or cluster.fabric
    return tuple(shape.dims) if isinstance(shape, TorusGraph | TorusFabric) else ()


def _links_of_groups(resolved: ResolvedCell) -> Any:
    """The connections between the ranks of a communicator; an error if they differ between
    communicators.
    """
    links_by_group = [
        links_of(resolved.topology, resolved.gpus[list(group)]) for group in resolved.groups
    ]
    if any(links != links_by_group[0] for links in links_by_group):
        algorithm = resolved.cell.scenario.collective.algorithm
        message = f"{algorithm} needs communicators whose links are the same"
        raise CollectiveError("algorithm", message)
    return links_by_group[0]
