"""Operations: a placed schedule done several times over, one operation after the other.

It is written down once: what changes from one to the next is only when the host launches it.
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from netsim.program.rows import Program
from netsim.schedule import Launch, framed, unrolled
from netsim.values import dataclass


@dataclass(frozen=True, slots=True)
class Operations:
    """`once` is one operation between its marks (see `framed`), `launched` when the host has
    launched each (first axis) on every rank. A rank begins one when it has ended the one before.
    """

    once: Program
    launched: NDArray[np.float64]

    def __len__(self) -> int:
        """Rows of all of them."""
        return len(self.once) * len(self.launched)

    @property
    def ranks(self) -> int:
        """Marks at either end of an operation."""
        return self.once.schedule.ranks

    @property
    def ends(self) -> NDArray[np.int64]:
        """The rows that end each operation (first axis) on every rank."""
        first = np.arange(1, len(self.launched) + 1)[:, None] * len(self.once)
        return first - self.ranks + np.arange(self.ranks)

    def unrolled(self) -> Program:
        """All of them written out."""
        schedule = unrolled(self.once.schedule, self.launched).schedule
        path = np.tile(self.once.path, len(self.launched))
        return replace(self.once, schedule=schedule, path=path)


def operations(program: Program, times: int, launch: Launch) -> Operations:
    """`times` operations of a program."""
    frame = framed(program.schedule, launch.kernel)
    nowhere = np.full(frame.ranks, -1, np.int32)
    path = np.concatenate([nowhere, program.path, nowhere])
    once = replace(program, schedule=frame, path=path)
    return Operations(once, launch.times(times, frame.ranks))
