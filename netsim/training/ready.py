"""When a rank had come to each of its tasks: what it did before on the stream, and what it awaits.

A collective begins when the last rank has come; the others hold their kernels until then.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from netsim.training.spans import Spans
from netsim.workloads.grid import Ranks

NONE = -1


class Ready:
    """The tasks of one rank in order: the row of its groups, and when the rank had come."""

    def __init__(self, spans: Spans) -> None:
        self.spans = spans
        self._rows: dict[int, tuple[Ranks, NDArray[np.int32]]] = {}

    def of(self, rank: int) -> Iterator[tuple[int, int, float]]:
        """Task, row and seconds; a receive that was posted ahead has come when its data does."""
        free: dict[str, float] = {}
        ends: dict[int, float] = {}
        for number, task in enumerate(self.spans.tape.tasks):
            row = self._row(task.groups, rank)
            if row == NONE:
                continue
            come = max(
                [free.get(task.stream, 0.0), *(ends[one] for one in task.after if one in ends)]
            )
            begin = float(self.spans.begin(number)[row])
            receives = task.posted and int(task.groups[row, -1]) == rank
            yield number, row, begin if receives or not task.collective else min(come, begin)
            ends[number] = free[task.stream] = float(self.spans.end(number)[row])

    def _row(self, groups: Ranks, rank: int) -> int:
        kept = self._rows.get(id(groups))
        if kept is None:
            rows = np.full(self.spans.ranks, NONE, np.int32)
            rows[groups] = np.arange(len(groups), dtype=np.int32)[:, None]
            kept = self._rows[id(groups)] = (groups, rows)
        return int(kept[1][rank])
