"""A cell whose parts fit: its topology, its communicators, the schedule of each of its sizes.

What does not fit is said here, with its place in the scenario, before anything runs."""

from __future__ import annotations

from dataclasses import field, replace
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from netsim.base.errors import InputError, NoRoomError, ScenarioError, suggest
from netsim.base.memo import Memo, kept
from netsim.base.values import dataclass
from netsim.cell.cluster import Built, built, groups_of, jobs_of, refuse_unjoined, wishes_of
from netsim.collectives import table as tables
from netsim.collectives.collective import HAS_IN_PLACE, Collective, CollectiveError, collective_of
from netsim.collectives.forest import links_of
from netsim.nccl import choice, environment
from netsim.nccl.constants import calibrated_launch, nccl_launch
from netsim.nccl.facts import AUTO, COLLECTIVES, NCCL_NAMES
from netsim.nccl.job import Job
from netsim.nccl.schedules.plan import Plan
from netsim.nccl.schedules.smaller import equal_sends
from netsim.program.symmetry import Where, odd_one
from netsim.scenario.cells import Cell, placed
from netsim.scenario.models import Scenario, Workload, node_count
from netsim.scenario.names import DTYPES
from netsim.schedule.repeat import AT_ONCE, Launch
from netsim.schedule.schedule import Schedule
from netsim.timing import ladder
from netsim.timing.call import Call
from netsim.timing.fits import (
    LIMITS,
    Limits,
    estimated_size,
    limits_of,
    misfit,
    misfit_of_nccl,
    needed,
)
from netsim.timing.textbook import why_in_full
from netsim.topology.fault_times import in_time
from netsim.topology.graph import Topology


@dataclass(frozen=True)
class Prepared:
    """A cell whose parts are known to fit: its topology, and its GPUs by communicator. `jobs` are
    the communicators as NCCL sees them, where NCCL's algorithms run. `place` is the same number for
    cells on the same cluster, None if it is not known to be that of others. `limits` say how much
    of a call is run in full."""

    cell: Cell
    topology: Topology
    groups: tuple[tuple[int, ...], ...]
    jobs: tuple[Job, ...] = ()
    place: int | None = None
    limits: Limits = LIMITS
    memo: Memo = field(default_factory=Memo, repr=False, compare=False)

    @cached_property
    def gpus(self) -> NDArray[np.int32]:
        """The device of every rank of the whole world."""
        chosen = self.cell.scenario.collective.ranks
        return np.asarray(np.arange(len(self.topology)) if chosen is None else chosen, np.int32)

    @property
    def gpus_per_node(self) -> int:
        """GPUs of a host; of the first, where they differ."""
        return len(self.topology) // node_count(self.cell.scenario.cluster)

    @cached_property
    def parameters(self) -> dict[str, Any]:
        """Parameters of the algorithm; what is left open follows from the cluster."""
        work = self.cell.scenario.collective
        takes = tables.parameters_of(work.collective, work.built_by)
        whole = work.ranks is None and len(self.groups) == 1
        if "links" in takes and "links" not in work.parameters:
            ways = [links_of(self.topology, self.gpus[list(group)]) for group in self.groups]
            if any(one != ways[0] for one in ways):
                message = f"{work.algorithm} needs communicators whose links are the same"
                raise CollectiveError("algorithm", message)
            return {**work.parameters, "links": ways[0]}
        if "node_size" in takes and whole and not {"node_size", "groups"} & set(work.parameters):
            return {**work.parameters, "node_size": self.gpus_per_node}
        cluster = self.cell.scenario.cluster
        dims = getattr(cluster.graph or cluster.fabric, "dims", ())
        fits = whole and dims and prod(dims) == len(self.topology)
        if fits and "dims" in takes and "dims" not in work.parameters:
            return {**work.parameters, "dims": list(dims)}
        return work.parameters

    @kept
    def collective(
        self, size: int, *, in_place: bool = False, ranks: int | None = None
    ) -> Collective:
        """The collective of one communicator (or of another number of ranks) at a size."""
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

    @kept
    def call(self, size: int, *, in_place: bool = False) -> Call:
        """What runs at a size, as a question to the ladder."""
        collective, kinds = self.collective(size, in_place=in_place), list(dict.fromkeys(self.jobs))
        scenario = self.cell.scenario
        return Call(
            collective,
            self.topology,
            self.gpus,
            self.groups,
            tuple(self.plan(job, collective) for job in kinds),
            tuple(kinds.index(job) for job in self.jobs) or (0,),
            scenario.collective.built_by,
            {} if kinds else self.parameters,
            self.launch(size),
            scenario.collective.timing == "single" or scenario.timed,
            self.may_fold,
            self.together,
            self.memo,
        )

    def memory_needed(self, size: int) -> int:
        """About how many bytes a process needs for a size at most."""
        call = self.call(size)
        if call.plans:
            return needed(len(self.topology), 0, ladder.bytes_expected(call, self.limits))
        found = ladder.size_of(call, self.limits) or _size_from_fewer(self)
        return needed(len(self.topology), *found)

    def launch(self, size: int) -> Launch:
        """What it takes to begin an operation in this cell."""
        costs, usual = self.cell.scenario.launch_costs(), AT_ONCE
        plan = self.planned(size)
        if plan is not None:
            job = self.jobs[0]
            usual = nccl_launch(
                costs.style,
                job.comm.version,
                begin=plan.start(job.mechanism, job.comm.n_nodes),
                channels=plan.n_channels,
                sends_and_receives=choice.operations(self.collective(size)),
                figures=job.calibration,
            )
            if costs.style != "cuda_graph":
                usual = calibrated_launch(usual, job.calibration)
        return Launch(
            usual.host if costs.host is None else costs.host,
            usual.kernel if costs.kernel is None else costs.kernel,
            self.gpus_per_node if costs.style == "single_process" else 1,
        )

    @property
    def may_fold(self) -> bool:
        """Whether like may be written once: not where paths go by load, or differ by message, nor
        with noise."""
        router = self.topology.router
        apart = getattr(router, "by_load", False) or getattr(router, "turns", 1) > 1
        apart = apart or self.cell.scenario.noise is not None or self.cell.scenario.timed
        return self.cell.scenario.fold == "auto" and len(self.groups) == 1 and not apart

    @property
    def together(self) -> int:
        """GPUs that one process starts, one after the other."""
        single = self.cell.scenario.launch_costs().style == "single_process"
        return self.gpus_per_node if single else 1

    @kept
    def plan(self, job: Job, collective: Collective) -> Plan:
        """What one of NCCL's communicators does."""
        scenario = self.cell.scenario
        registered = scenario.nccl.registration != "none"
        direct = scenario.launch_costs().style == "single_process"
        dtype = scenario.collective.dtype
        return choice.nccl_plan(job, collective, dtype, registered=registered, direct=direct)

    @kept
    def planned(self, size: int) -> Plan | None:
        """What NCCL decides for the first communicator at a size; None for textbook algorithms."""
        if not self.jobs:
            return None
        dtype = self.cell.scenario.collective.dtype
        return choice.planned(self.jobs[0], self.collective(size), dtype)


def prepare(cell: Cell) -> Prepared:
    """Build the topology of a cell and check that its workload fits; errors name the field."""
    source = cell.source
    if cell.scenario.shared:
        message = "what runs beside others is run and written out as a whole, by netsim run"
        raise source.error((), message)
    if not isinstance(cell.scenario.workload, Workload):
        message = "a training step is run and written out as a whole, by netsim run"
        raise source.error(("workload",), message, key=True)
    work = cell.scenario.collective
    if work.algorithm in NCCL_NAMES:
        try:
            choice.check_wishes(work.collective, wishes_of(cell.scenario))
        except InputError as error:
            raise source.error(("workload", "algorithm"), error.message, hint=error.hint) from None
    found = built(cell)
    prepared = Prepared(
        cell,
        _in_time(cell, found.topology),
        groups_of(cell, found),
        place=None if cell.scenario.timed else found.number,
        limits=limits_with(cell.scenario),
        memo=found.alike,
    )
    if work.algorithm in NCCL_NAMES:
        return _with_nccl(prepared, found)
    refuse_unjoined(cell, found, prepared.gpus, prepared.groups)
    _check_algorithm(prepared)
    return prepared


# For these rungs ranks are alike, or go on alike.
APART = frozenset({"in_step", "max_plus", "folded", "fewer_hops", "fewer_rounds"})


def limits_with(scenario: Scenario) -> Limits:
    """Those of a cell: with noise no rank stands for another; where links change, all is run."""
    noise, timed = scenario.noise, scenario.timed
    found = limits_of(exact=scenario.exact or timed or bool(noise and noise.link))
    return replace(found, without=APART) if noise or timed else found


def _in_time(cell: Cell, topology: Topology) -> Topology:
    """The topology with what changes while an operation runs."""
    scenario = cell.scenario
    if not scenario.timed:
        return topology
    return in_time(topology, scenario.retries)


def _with_nccl(prepared: Prepared, built: Built) -> Prepared:
    """The same with NCCL's communicators; what NCCL would refuse is said here."""
    source, work = prepared.cell.source, prepared.cell.scenario.collective
    if built.cluster is None:
        known = ", ".join(tables.ALGORITHMS[work.collective])
        message = f"NCCL's choice needs a machine, not a plain graph; choose one of {known}"
        raise source.error(("workload", "algorithm"), message, hint="--algo ring, for example")
    _check_rows(prepared)
    wishes = wishes_of(prepared.cell.scenario)
    place: tuple[str, ...] = ("cluster",)
    try:
        # Schedules of one communicator share what they are made of: of one type of data.
        ranks = [prepared.gpus[list(group)] for group in prepared.groups]
        asked = repr((wishes, prepared.groups, work.ranks, work.dtype))
        here = prepared.cell, built.cluster, ranks, wishes
        jobs = built.jobs.of(asked, lambda: jobs_of(*here))
        joined = _in_time(prepared.cell, jobs[0].cluster.topology)
        topology = choice.with_blocks(joined, jobs[0].mechanism)
        number = prepared.place if jobs[0].cluster is built.cluster else None
        found = replace(prepared, topology=topology, jobs=tuple(jobs), place=number)
        place = ("workload", "algorithm")
        found.planned(min(work.size_list()))
        largest = found.planned(max(work.size_list()))
    except CollectiveError as error:
        raise placed(prepared.cell, error) from None
    except ScenarioError:  # in a file of its own, such as one of channels
        raise
    except environment.VariableError as error:
        raise source.error(("nccl", "env", error.variable), error.message) from None
    except InputError as error:
        raise source.error(place, error.message, hint=error.hint) from None
    _check_rows(found, largest.algorithm if largest else "")
    return found


def _check_rows(prepared: Prepared, algorithm: str = "") -> None:
    """Refuse what would not fit, from the rows that NCCL needs at least."""
    work = prepared.cell.scenario.collective
    asked = work.collective, len(prepared.groups[0]), len(prepared.groups), algorithm
    too_large = misfit_of_nccl(*asked)
    if prepared.jobs:
        if too_large or prepared.limits.exact or work.collective == "alltoall":
            _refuse(prepared)
        return
    # Of equal sends one rank may stand for all others: only the communicator tells.
    told_later = prepared.may_fold and equal_sends(work.collective, len(prepared.groups[0]))
    if too_large and not told_later:
        where = Where(prepared.topology, prepared.gpus)
        odd = odd_one(where) if prepared.may_fold else "fold is off"
        message = f"{too_large}; not folded: {odd}" if odd else too_large
        raise prepared.cell.source.error(("workload",), message, key=True, kind=NoRoomError)


def _refuse(prepared: Prepared) -> None:
    work = prepared.cell.scenario.collective
    every = prepared.jobs and work.collective == "alltoall" and not prepared.limits.exact
    # Sends of a middle size may be cut into more loops, and so have more rows, than the largest.
    for size in sorted(work.size_list(), reverse=True)[: None if every else 1]:
        largest = prepared.call(size)
        if too_large := ladder.why_not(largest, prepared.limits):
            break
    if not (too_large or largest.plans or ladder.size_of(largest, prepared.limits)):
        # Of a textbook algorithm that is not sketched, from schedules of fewer ranks.
        too_large = misfit(*_size_from_fewer(prepared), len(prepared.gpus))
    if too_large:
        message = f"{too_large}{why_in_full(largest)}"
        raise prepared.cell.source.error(("workload",), message, key=True, kind=NoRoomError)


def _size_from_fewer(prepared: Prepared) -> tuple[int, int]:
    """Rows and bytes of a textbook algorithm, from how they grow with the number of ranks."""
    work, ranks = prepared.cell.scenario.collective, len(prepared.groups[0])
    fixed = (
        {"groups", "root", "dims", "links"} & set(prepared.parameters)
        or work.pairs
        or work.matrix
        or work.root
    )

    def schedule_at(count: int) -> Schedule:
        collective = prepared.collective(max(work.size_list()), ranks=count)
        return tables.build(collective, work.built_by, **prepared.parameters)

    multiple = ranks if fixed else int(prepared.parameters.get("node_size", 1))
    try:
        return estimated_size(ranks, schedule_at, multiple, len(prepared.groups))
    except CollectiveError:  # of fewer ranks; all of them tell what is wrong
        return estimated_size(ranks, schedule_at, ranks, len(prepared.groups))


def _no_algorithm(scenario: Scenario) -> str:
    """What could be meant: NCCL's too, where there are machines."""
    work = scenario.collective
    known = list(tables.ALGORITHMS[work.collective])
    if scenario.cluster.graph is None:
        by_nccl = NCCL_NAMES if work.collective in COLLECTIVES else (AUTO,)
        known = [*known, *by_nccl] if work.algorithm.islower() else [*by_nccl, *known]
    hint = suggest(work.algorithm, known)
    return f"expected one of {', '.join(known)} for {work.collective}, got {work.algorithm!r}{hint}"


def _check_algorithm(prepared: Prepared) -> None:
    """Build a schedule, or smaller ones of its kind: what does not fit is said before a run."""
    source, work = prepared.cell.source, prepared.cell.scenario.collective
    if not work.code and not any(work.algorithm in table for table in tables.ALGORITHMS.values()):
        raise source.error(("workload", "algorithm"), _no_algorithm(prepared.cell.scenario))
    if work.protocol != AUTO:
        message = f"only NCCL's algorithms have protocols, {work.algorithm} has none"
        raise source.error(("workload", "protocol"), message)
    try:
        if work.code:
            _check_own(prepared)
        _refuse(prepared)
    except CollectiveError as error:
        raise placed(prepared.cell, error) from None


UNCHECKED: dict[str, str] = {}  # what was too large to be verified, by the id of a cell


def _check_own(prepared: Prepared) -> None:
    """Verify an algorithm of the user's own at the sizes of the cell, in place too, the smallest
    and the largest first."""
    work, left = prepared.cell.scenario.collective, tables.MOST_CHECKED
    ends = min(work.size_list()), max(work.size_list())
    for size in sorted(work.size_list(), key=lambda size: size not in ends):
        for in_place in (False, True)[: 1 + (work.collective in HAS_IN_PLACE)]:
            if left > 0:
                left -= _verified(prepared, size, in_place=in_place)


def _verified(prepared: Prepared, size: int, *, in_place: bool) -> int:
    """Verify one size, if its rows are not too many for that; rows times ranks of it."""
    work = prepared.cell.scenario.collective
    collective = prepared.collective(size, in_place=in_place)
    rows = tables.refuse_wrong(collective, work.built_by, prepared.parameters)
    if rows * collective.ranks > tables.MOST_CHECKED:
        told = f"{rows} rows on {collective.ranks} ranks are too many for that; check it on fewer"
        UNCHECKED[prepared.cell.id] = f"{work.algorithm} is not verified: {told}"
    return rows * collective.ranks
