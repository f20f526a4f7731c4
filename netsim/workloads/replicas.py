"""What data parallelism exchanges: gradients and weights of a stage's layers, and in which groups.

Experts have replicas of their own (fewer, where expert parallelism divides them); everything else
is shared by all ranks of a stage that differ in data or in their part of the sequence.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from netsim.workloads.emit import Emitted, StageRanks
from netsim.workloads.grid import Ranks
from netsim.workloads.model import Layer
from netsim.workloads.setting import Setting
from netsim.workloads.tape import Deps, Tape

KIND = "dp"


@dataclass(frozen=True)
class Replica:
    """One stage of a setting as data parallelism sees it; layers are those of all its chunks."""

    tape: Tape
    setting: Setting
    stage: StageRanks
    layers: tuple[Layer, ...]

    @cached_property
    def groups(self) -> dict[bool, Ranks]:
        """The groups that hold the same dense weights (False) and expert weights (True)."""
        grid, s = self.setting.grid, self.setting
        axes = {False: s.dense_axes, True: s.expert_axes}
        return {kind: grid.groups(some, self.stage.number) for kind, some in axes.items()}

    def held(self, layers: Iterable[Layer]) -> dict[bool, int]:
        """Elements on one rank: of dense weights, of experts' weights."""
        found = {False: 0, True: 0}
        for layer in layers:
            for count, expert in self.setting.held(layer):
                found[expert] += count
        return found

    @cached_property
    def elements(self) -> dict[bool, int]:
        """All elements on one rank."""
        return self.held(self.layers)

    def exchange(
        self, name: str, collective: str, nbytes: int, after: Deps, *,
        expert: bool = False, groups: Ranks | None = None, dtype: str = "", stream: str = KIND,
    ) -> int | None:  # fmt: skip
        """A collective of replicas, on the stream of data parallelism unless another is named."""
        where = self.groups[expert] if groups is None else groups
        return self.tape.collective(
            name, KIND, collective, where, nbytes, after, stream=stream,
            dtype=dtype or self.setting.gradient_dtype,
        )  # fmt: skip


@dataclass(frozen=True)
class Bucket:
    """Gradients that are reduced together: elements, whether experts', and the layer (by number)
    whose backward pass completes it.
    """

    number: int
    count: int
    expert: bool
    layer: int


def buckets_of(
    setting: Setting, layers: Sequence[Layer], cap: int, first: int, element: int
) -> list[Bucket]:
    """The parameters of a stage from the last to the first, cut when a bucket reaches its size.

    `cap` and `first` are bytes; a parameter is never split, experts have buckets of their own.
    """
    found: list[Bucket] = []
    filled = {False: 0, True: 0}
    for number in reversed(range(len(layers))):
        for count, expert in reversed(setting.held(layers[number])):
            filled[expert] += count
            limit = first if not any(one.expert == expert for one in found) else cap
            if filled[expert] * element >= limit:
                found.append(Bucket(len(found), filled[expert], expert, number))
                filled[expert] = 0
    found += [
        Bucket(len(found) + expert, count, expert, 0) for expert, count in filled.items() if count
    ]
    return found


@dataclass
class Alone:
    """No data parallelism at all, and what every kind of it has: moments at which it may act.

    `layer` is the number of a layer in the stage; `last`: this is the last micro-batch.
    """

    replica: Replica

    def before_forward(self, layer: int) -> Deps:
        """What the forward pass of a layer has to wait for."""
        del layer
        return ()

    def after_forward(self, layer: int, done: Emitted) -> None:
        """A layer's forward pass has been written down."""

    def before_backward(self, layer: int) -> Deps:
        """What the backward pass of a layer has to wait for."""
        del layer
        return ()

    def after_backward(self, layer: int, done: Deps, *, last: bool) -> None:
        """Gradients of a layer are there."""

    def finish(self) -> Deps:
        """After all backward passes: what the optimizer waits for."""
        return ()

    def shard(self) -> int:
        """By how much the optimizer's work is divided."""
        return 1

    def after_optimizer(self, done: int) -> None:
        """The optimizer has been written down."""
