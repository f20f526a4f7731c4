"""The grid of ranks: how tensor, context, expert, data and pipeline parallelism divide the GPUs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

AXES = ("tp", "cp", "ep", "dp", "pp")
Ranks = NDArray[np.int32]


@dataclass(frozen=True)
class Grid:
    """Degrees of all axes, and their order: the first one's neighbours have consecutive ranks."""

    degrees: Mapping[str, int]
    order: tuple[str, ...] = AXES

    @property
    def size(self) -> int:
        """Ranks in all."""
        return int(np.prod([self.degrees[axis] for axis in AXES]))

    @cached_property
    def _ranks(self) -> Ranks:
        """The ranks as an array with one dimension an axis, the slowest first."""
        shape = [self.degrees[axis] for axis in reversed(self.order)]
        return np.arange(self.size, dtype=np.int32).reshape(shape)

    def groups(self, axes: Sequence[str], stage: int | None = None) -> Ranks:
        """The groups that vary along some axes, a row each (of one pipeline stage, if given).

        Ranks of a group are in ascending order.
        """
        ranks = self._ranks
        names = list(reversed(self.order))
        if stage is not None:
            ranks = np.take(ranks, [stage], axis=names.index("pp"))
        inside = [place for place, axis in enumerate(names) if axis in axes]
        outside = [place for place, axis in enumerate(names) if axis not in axes]
        width = int(np.prod([ranks.shape[place] for place in inside]))
        found = ranks.transpose(*outside, *inside).reshape(-1, width)
        return np.ascontiguousarray(found)

    def stage(self, number: int) -> Ranks:
        """The ranks of one pipeline stage, ascending in every axis but pp."""
        others = [axis for axis in AXES if axis != "pp"]
        return np.sort(self.groups(others, number).reshape(-1))

    def pairs(self, source: int, target: int) -> Ranks:
        """(sender, receiver) between two pipeline stages, a row each."""
        names = list(reversed(self.order))
        place = names.index("pp")
        sides = [np.take(self._ranks, stage, axis=place).reshape(-1) for stage in (source, target)]
        return np.stack(sides, axis=1)
