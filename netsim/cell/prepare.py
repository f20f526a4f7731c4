"""A cell whose parts fit: its topology, its communicators, the schedule of each of its sizes.

What does not fit is said here, with its place in the scenario, before anything runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from netsim.base.errors import InputError, ScenarioError, nearest
from netsim.base.memo import kept
from netsim.base.values import dataclass
from netsim.cell.cluster import Built, built, groups_of, jobs_of, refuse_unjoined, wishes_of
from netsim.collectives.collective import Collective, CollectiveError, collective_of
from netsim.collectives.table import ALGORITHMS, build, parameters_of
from netsim.nccl import choice, environment
from netsim.nccl.facts import AUTO, NCCL_NAMES
from netsim.nccl.job import Job
from netsim.nccl.p2p import Planned
from netsim.nccl.schedules import smaller, table
from netsim.nccl.schedules.plan import Plan
from netsim.nccl.schedules.smaller import equal_sends
from netsim.program.symmetry import odd_one
from netsim.scenario.cells import Cell, placed
from netsim.scenario.models import Workload, node_count
from netsim.scenario.names import DTYPES
from netsim.schedule.schedule import Schedule, combine
from netsim.timing import ladder
from netsim.timing.fits import BYTES_A_PATH, BYTES_A_ROW, estimated_size, misfit, misfit_of_nccl
from netsim.timing.ladder import LIMITS, Call, Limits
from netsim.timing.loops import Looped, looped_build, looped_nccl
from netsim.timing.max_plus import Relayed
from netsim.timing.textbook import Alikeness, Place, alikeness, why_in_full
from netsim.topology.graph import Topology


@dataclass(frozen=True)
class Prepared:
    """A cell whose parts are known to fit: its topology, and its GPUs by communicator.

    `jobs` are the communicators as NCCL sees them, where NCCL's algorithms run. `place` is the same
    number for cells on the same cluster, None if it is not known to be that of others. `limits` say
    how much of a call is run in full.
    """

    cell: Cell
    topology: Topology
    groups: tuple[tuple[int, ...], ...]
    jobs: tuple[Job, ...] = ()
    place: int | None = None
    limits: Limits = LIMITS
    memory: dict[object, Any] = field(default_factory=dict, repr=False, compare=False)

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
        takes = parameters_of(work.collective, work.algorithm)
        whole = work.ranks is None and len(self.groups) == 1
        if "node_size" in takes and whole and not {"node_size", "groups"} & set(work.parameters):
            return {**work.parameters, "node_size": self.gpus_per_node}
        return work.parameters

    def estimated_size(self) -> tuple[int, int]:
        """Rows and bytes of all communicators at the largest size, without large schedules."""
        work, ranks = self.cell.scenario.collective, len(self.groups[0])
        found = self.alikeness(self.collective(max(work.size_list())))
        if found is not None:
            return found.rows, found.rows * BYTES_A_ROW + found.ways * BYTES_A_PATH
        fixed = {"groups", "root"} & set(self.parameters) or work.pairs or work.matrix or work.root

        def schedule_at(count: int) -> Schedule:
            collective = self.collective(max(work.size_list()), ranks=count)
            return build(collective, work.algorithm, **self.parameters)

        multiple = ranks if fixed else int(self.parameters.get("node_size", 1))
        return estimated_size(ranks, schedule_at, multiple, len(self.groups))

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

    def schedule(self, size: int, *, in_place: bool = False) -> Schedule:
        """What all communicators do at a size, side by side, in full."""
        work = self.looped(size, in_place=in_place)
        return work.schedule(work.loops)

    def looped(
        self, size: int, *, in_place: bool = False, folded: bool = False, **how: bool
    ) -> Looped:
        """The same as loops over the buffers, of which some can be left out; `folded`: what is
        alike is written down once, unless the scenario forbids it, in this way (`Alikeness.fold`).
        """
        collective = self.collective(size, in_place=in_place)
        if not self.jobs:
            algorithm = self.cell.scenario.collective.algorithm
            found = self.alikeness(collective) if folded else None
            fold = found.fold(**how) if found else None
            return looped_build(collective, algorithm, self.parameters, self._joined, fold)
        kinds = list(dict.fromkeys(self.jobs))
        places = [kinds.index(job) for job in self.jobs]
        plans = [self.plan(job, collective) for job in kinds]
        if folded and self.may_fold:
            plans = [self.folded(collective)]
        return looped_nccl(
            collective, plans, lambda made: self._joined([made[place] for place in places])
        )

    def relayed(self, size: int, *, in_place: bool = False) -> Relayed | None:
        """Long rings at a size, of which a few steps tell all others; None where they do not."""
        found = self.alikeness(self.collective(size, in_place=in_place))
        return found.steps if found else None

    def call(self, size: int, written: Looped, *, in_place: bool = False) -> Call:
        """What NCCL runs at a size, and how it is `written`, as a question to the ladder."""
        collective = self.collective(size, in_place=in_place)
        plan = self.folded(collective) if self.may_fold else None
        return Call(collective, written, plan)

    def told_by_hops(self, size: int) -> bool:
        """Whether NCCL runs rings at a size of which a few hops are to tell the rest."""
        if not (self.jobs and self.may_fold):
            return False
        call = self.call(size, self.looped(size, folded=True))
        return ladder.chosen(call, self.limits) is ladder.fewer_hops

    @kept
    def folded(self, collective: Collective) -> Plan:
        """What NCCL's only communicator does, written down once for all that is alike."""
        plan = self.plan(self.jobs[0], collective)
        return smaller.folded_plan(collective, plan, self.topology, self.gpus, self.together)

    @property
    def may_fold(self) -> bool:
        """Whether what is alike may be written down once: nothing is where paths go by load."""
        by_load = getattr(self.topology.router, "by_load", False)
        return self.cell.scenario.fold == "auto" and len(self.groups) == 1 and not by_load

    @property
    def together(self) -> int:
        """GPUs that one process starts, one after the other."""
        single = self.cell.scenario.launch_costs().style == "single_process"
        return self.gpus_per_node if single else 1

    @kept
    def alikeness(self, collective: Collective) -> Alikeness | None:
        """What of a textbook algorithm is alike here; None where it is written in full."""
        if self.jobs or not self.may_fold:
            return None
        place = Place(self.topology, self.gpus, self.together, self.memory)
        algorithm = self.cell.scenario.collective.algorithm
        return alikeness(collective, algorithm, self.parameters, place)

    def _joined(self, schedules: Sequence[Schedule]) -> Schedule:
        """The schedules of all communicators side by side; one stands for equal ones of all."""
        if len(self.groups) == 1:
            return schedules[0]
        each = schedules if len(schedules) > 1 else [*schedules] * len(self.groups)
        return combine(each, self.groups, len(self.gpus))

    @kept
    def plan(self, job: Job, collective: Collective) -> Plan:
        """What one of NCCL's communicators does."""
        scenario = self.cell.scenario
        registered = scenario.nccl.registration != "none"
        direct = scenario.launch_costs().style == "single_process"
        dtype = scenario.collective.dtype
        return choice.nccl_plan(job, collective, dtype, registered=registered, direct=direct)

    @kept
    def planned(self, size: int) -> Planned | None:
        """What NCCL decides for the first communicator at a size; None for textbook algorithms."""
        if not self.jobs:
            return None
        dtype = self.cell.scenario.collective.dtype
        return choice.planned(self.jobs[0], self.collective(size), dtype)


def prepare(cell: Cell) -> Prepared:
    """Build the topology of a cell and check that its workload fits; errors name the field."""
    source = cell.source
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
        cell, found.topology, groups_of(cell, found), place=found.number, memory=found.alike
    )
    if work.algorithm in NCCL_NAMES:
        return _with_nccl(prepared, found)
    refuse_unjoined(cell, found, prepared.gpus, prepared.groups)
    _check_algorithm(prepared)
    return prepared


def _with_nccl(prepared: Prepared, built: Built) -> Prepared:
    """The same with NCCL's communicators; what NCCL would refuse is said here."""
    source, work = prepared.cell.source, prepared.cell.scenario.collective
    if built.cluster is None:
        known = ", ".join(ALGORITHMS[work.collective])
        message = f"NCCL's choice needs a machine, not a plain graph; choose one of {known}"
        raise source.error(("workload", "algorithm"), message)
    _check_rows(prepared)
    wishes = wishes_of(prepared.cell.scenario)
    place: tuple[str, ...] = ("cluster",)
    try:
        # Schedules of one communicator share what they are made of: of one type of data.
        ranks = [prepared.gpus[list(group)] for group in prepared.groups]
        asked = repr((wishes, prepared.groups, work.ranks, work.dtype))
        if asked not in built.jobs:
            built.jobs[asked] = jobs_of(prepared.cell, built.cluster, ranks, wishes)
        jobs = built.jobs[asked]
        topology = table.with_blocks(jobs[0].cluster.topology, jobs[0].mechanism)
        number = built.number if jobs[0].cluster is built.cluster else None
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
    if not prepared.jobs and prepared.may_fold and equal_sends(*asked[:2]):
        return  # one rank may stand for all others: only the communicator tells
    if prepared.told_by_hops(max(work.size_list())):
        return
    if too_large and prepared.jobs and prepared.may_fold:
        plan = prepared.folded(prepared.collective(max(work.size_list())))
        too_large = misfit_of_nccl(*asked, smaller.written_share(plan))
    if too_large:
        odd = odd_one(prepared.topology, prepared.gpus) if prepared.may_fold else "fold is off"
        why = f"; not folded: {odd}" if odd else ""
        raise prepared.cell.source.error(("workload",), too_large + why, key=True)


def _check_algorithm(prepared: Prepared) -> None:
    """Build a schedule, or smaller ones of its kind: what does not fit is said before a run."""
    source, work = prepared.cell.source, prepared.cell.scenario.collective
    if work.algorithm not in ALGORITHMS[work.collective]:
        near = nearest(work.algorithm, [*ALGORITHMS[work.collective], *NCCL_NAMES])
        if near in NCCL_NAMES:
            message = f"expected an algorithm, got {work.algorithm!r} (did you mean {near}?)"
            raise source.error(("workload", "algorithm"), message)
    if work.protocol != AUTO:
        message = f"only NCCL's algorithms have protocols, {work.algorithm} has none"
        raise source.error(("workload", "protocol"), message)
    try:
        if too_large := misfit(*prepared.estimated_size(), len(prepared.gpus)):
            largest = prepared.collective(max(work.size_list()))
            place = prepared.topology, prepared.gpus
            why = why_in_full(largest, work.algorithm, *place, allowed=prepared.may_fold)
            raise source.error(("workload",), f"{too_large}{why}", key=True)
    except CollectiveError as error:
        raise placed(prepared.cell, error) from None
