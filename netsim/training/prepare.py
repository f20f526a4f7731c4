"""A training cell whose parts fit: its cluster, its Setting, what NCCL is told.

What does not fit is said here, with its place in the scenario, before anything runs.
"""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from netsim.errors import InputError
from netsim.expect.settings import Wishes
from netsim.nccl.version import parse_version
from netsim.scenario.cells import Cell
from netsim.scenario.training import Recorded, Training
from netsim.topology import Topology, TopologyError
from netsim.topology.build import build_at, build_cluster
from netsim.topology.cluster import Cluster
from netsim.training.costs import Costs
from netsim.training.fitting import check_memory
from netsim.training.recorded.execution import tape_of_rank
from netsim.training.recorded.kineto import read_profile
from netsim.training.recorded.replay import tape_of
from netsim.training.recorded.steps import StepError, step_of
from netsim.training.settings import recorded_setting, setting_of
from netsim.workloads.setting import Setting
from netsim.workloads.step import training_step
from netsim.workloads.tape import Tape


@dataclass(frozen=True)
class Replay:
    """A step from a trace, and in words what was chosen of it and left out."""

    tape: Tape
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class PreparedStep:
    """A cell that asks for a training step; rank i runs on GPU i of the cluster."""

    cell: Cell
    cluster: Cluster
    setting: Setting
    recorded: Replay | None = None

    @property
    def work(self) -> Training | Recorded:
        """What the scenario says of the step."""
        work = self.cell.scenario.workload
        assert isinstance(work, Training | Recorded)
        return work

    def tape(self) -> Tape:
        """The tasks of the step."""
        return training_step(self.setting) if self.recorded is None else self.recorded.tape

    @property
    def topology(self) -> Topology:
        """The topology of the cluster."""
        return self.cluster.topology

    @property
    def gpus(self) -> NDArray[np.int32]:
        """The device of every rank."""
        return np.arange(len(self.topology), dtype=np.int32)

    @property
    def gpus_per_node(self) -> int:
        """GPUs of a host; of the first, where they differ."""
        return int(np.count_nonzero(self.cluster.gpu_host == 0))

    @cached_property
    def costs(self) -> Costs:
        """What NCCL makes of collectives here."""
        scenario = self.cell.scenario
        nccl = scenario.nccl
        wishes = Wishes(parse_version(nccl.version), nccl.env)
        style = scenario.launch_costs().style
        return Costs(
            self.cluster,
            wishes,
            style,
            registered=nccl.registration != "none",
            holds_sms=self.recorded is None,
        )


def prepare_step(cell: Cell) -> PreparedStep:
    """Build the cluster of a training cell and settle everything about its step."""
    cluster = _cluster(cell)
    work = cell.scenario.workload
    if isinstance(work, Recorded):
        prepared = _recorded(cell, work, cluster)
    else:
        assert isinstance(work, Training)
        prepared = PreparedStep(cell, cluster, setting_of(cell, cluster))
        check_memory(cell, work, prepared.setting, cluster)
    try:
        prepared.costs.wishes.settings()
    except InputError as error:
        raise cell.source.error(("nccl",), error.message, hint=error.hint) from None
    return prepared


def _recorded(cell: Cell, work: Recorded, cluster: Cluster) -> PreparedStep:
    """A step from a profile: on as many GPUs as its world has ranks."""
    place, gpus = ("workload", "trace"), len(cluster.topology)
    try:
        replay = _replay(work, gpus)
    except StepError as error:
        raise cell.source.error(("workload", "step"), error.message) from None
    except InputError as error:
        raise cell.source.error(place, error.message, hint=error.hint) from None
    for number, slow in enumerate(work.stragglers):
        if slow.rank >= gpus:
            message = f"expected a rank in 0..{gpus - 1}, got {slow.rank}"
            raise cell.source.error(("workload", "stragglers", number, "rank"), message)
    return PreparedStep(cell, cluster, recorded_setting(gpus, cluster), replay)


def _replay(work: Recorded, gpus: int) -> Replay:
    path = Path(work.trace)
    if path.suffix == ".et":
        if work.step is not None:
            raise StepError("a Chakra trace is one step")
        return Replay(*tape_of_rank(path, gpus))
    profile = read_profile(path)
    if profile.world != gpus:
        raise InputError(f"the trace is of {profile.world} ranks, but the cluster has {gpus} GPUs")
    chosen, notes = step_of(profile, work.step)
    return Replay(tape_of(chosen), notes)


def _cluster(cell: Cell) -> Cluster:
    config = cell.scenario.cluster
    if config.graph is not None:
        message = "a training step needs machines, which say how fast GPUs compute, not a graph"
        raise cell.source.error(("cluster", "graph"), message, key=True)
    try:
        return build_cluster(config)
    except TopologyError:
        build_at(config, cell.source)  # raises it with its place
        raise
