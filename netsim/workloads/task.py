"""The task: one operation of one size on one resolved cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from netsim.base.values import dataclass
from netsim.collectives.collective import Collective
from netsim.nccl.schedules.plan import Plan
from netsim.schedule.repeat import AT_ONCE, BackToBack, Launch
from netsim.topology.graph import Topology

Groups = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, eq=False)
class Task:
    """One operation of one size on one resolved cluster: everything that its time depends on.

    Cells of collectives, training steps, traces and explanations resolve their cluster, NCCL's
    decisions and the launch once, and pass on this value; code that receives it needs no scenario.

    Either NCCL runs the operation, by `plans`, or a textbook `algorithm` with its `parameters`.
    """

    collective: Collective
    topology: Topology
    gpus: NDArray[np.int32]
    """The GPU of the topology that each rank runs on."""
    groups: Groups
    """The ranks of each communicator, in rank order."""
    plans: tuple[Plan, ...] = ()
    """NCCL's decisions, one for each kind of communicator; empty for a textbook algorithm."""
    plan_of_group: tuple[int, ...] = (0,)
    """By communicator, the place of its plan in `plans`."""
    algorithm: str = ""
    """The name of the textbook algorithm; empty if NCCL runs the operation."""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    launch: Launch = AT_ONCE
    back_to_back: BackToBack | None = BackToBack()
    """How many operations are timed, and which mean of the times of processes is the result. None:
    one operation is timed, from an idle cluster until it is over on all ranks."""

    @property
    def gpus_per_process(self) -> int:
        """The number of GPUs that one process drives; it launches on them one after the other."""
        return self.launch.gpus_per_process

    @property
    def is_single(self) -> bool:
        """Whether a single operation from an idle cluster is timed."""
        return self.back_to_back is None

    @property
    def is_nccl(self) -> bool:
        """Whether NCCL runs the operation, rather than a textbook algorithm."""
        return bool(self.plans)
