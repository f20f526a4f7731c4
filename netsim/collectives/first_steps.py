"""A writer that writes only the first steps of long rings, and notes how many are left out.

Every lane is written, with its route to the next lane and all that they share, but only
`STEPS_WRITTEN` steps of each ring. When the others end follows from these
(`extent/max_plus.py`).
"""

from __future__ import annotations

from dataclasses import field, replace

import numpy as np
from numpy.typing import NDArray

from netsim.base.memo import different
from netsim.base.values import dataclass
from netsim.collectives.row_writer import Numbers, Rows, RowWriter
from netsim.schedule.builder import Builder
from netsim.schedule.schedule import Schedule

STEPS_WRITTEN = 3
"""Steps of each ring that are written: in the second, everyone passes on what has come."""


@dataclass(frozen=True, slots=True)
class Message:
    """Rows that some lanes send to others; `ready`: not before these have what came before."""

    lanes: Numbers
    receiver: Numbers
    rows: Rows
    ready: bool


@dataclass(frozen=True, slots=True)
class RingSteps:
    """The steps of rings after their first one.

    `lanes` has a ring in each line, in the order in which lanes pass on. Of `steps` steps,
    `written` are written; `rows` are those of the last of them."""

    lanes: NDArray[np.int64]
    rows: Rows
    steps: int
    written: int


@dataclass
class FirstSteps(RowWriter):
    """What lanes do in the order of the algorithm, with few steps of each ring.

    `refused` says why steps cannot be left out, as a clause."""

    ranks: int = 0
    copies: list[tuple[Numbers, Rows]] = field(default_factory=list)
    """Ranks that copy data for themselves, and the rows of these copies."""
    calls: list[Message | RingSteps] = field(default_factory=list)
    refused: str = ""
    _rings: list[tuple[set[int], Rows, int]] = field(default_factory=list)

    @property
    def rows(self) -> Rows:
        """The rows of all messages and steps of rings."""
        return np.concatenate([call.rows.ravel() for call in self.calls])

    def begin(self, builder: Builder, channels: int) -> None:
        """Note the number of ranks."""
        self.ranks = builder.ranks

    def first_steps(self, styles: Rows, first: Rows, size: int) -> tuple[Rows, Rows]:
        """The first steps of rings."""
        self._rings.append((set(different(styles).tolist()), different(first), size))
        return styles[:STEPS_WRITTEN], first[:STEPS_WRITTEN]

    def rows_of_copies(self, ranks: Numbers, rows: Rows) -> None:
        """Note copies of ranks for themselves."""
        self.copies.append((ranks, rows))

    def rows_of_messages(
        self, sender: Numbers, receiver: Numbers, rows: Rows, *, ready: bool, plain: bool
    ) -> None:
        """Note messages; only plain ones can be followed."""
        if not plain:
            self.refused = "messages of several parts, or that wait for the last to arrive"
        self.calls.append(Message(sender, receiver, rows, ready))

    def rows_of_steps(self, ring: NDArray[np.int64], rows: Rows, steps: int, written: int) -> None:
        """Note the steps of rings."""
        self.calls.append(RingSteps(ring, rows.reshape(ring.shape), steps, written))

    def end(self, schedule: Schedule) -> None:
        """Check that all steps of a ring move equally much in the same way."""
        styles = schedule.styles
        counts = schedule.pieces.count
        for style_numbers, first, size in self._rings:
            ways = {
                replace(styles[number], src_buffer=0, dst_buffer=0, op=0, channel=0)
                for number in style_numbers
            }
            if len(ways) > 1:
                self.refused = "steps of a ring differ"
            if any((counts[k : k + size] != counts[first[0]]).any() for k in first.tolist()):
                self.refused = "chunks of a ring differ"
