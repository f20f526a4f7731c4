"""A writer that writes only the first steps of long rings, and notes how many it leaves out.

The schedule has all lanes and the messages between them, but only `STEPS_WRITTEN` steps of each
ring. `extent/max_plus.py` computes from these when the other steps end.
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
    """Messages that an algorithm sends in one call. The arrays have one entry for each message.

    - `lanes`: the sending lanes.
    - `receiver`: the receiving lanes.
    - `rows`: the row of each message.
    - `ready`: whether a message waits until its receiver has received all earlier messages to it.
    """

    lanes: Numbers
    receiver: Numbers
    rows: Rows
    ready: bool


@dataclass(frozen=True, slots=True)
class RingSteps:
    """The steps of some rings after their first step.

    - `lanes`: a matrix with a line for each ring: its lanes, each of which sends to the next one.
    - `rows`: in the same shape, the row of each lane in the last step that is written.
    - `steps`: the number of steps of each ring after the first one.
    - `written`: the number of these that are written.
    """

    lanes: NDArray[np.int64]
    rows: Rows
    steps: int
    written: int


@dataclass
class FirstSteps(RowWriter):
    """The writer that writes the first steps of rings, and the calls that an algorithm has made.

    `calls` has the messages and the ring steps in the order of the algorithm. `refused` is a clause
    that says why steps cannot be left out, or empty.
    """

    ranks: int = 0
    copies: list[tuple[Numbers, Rows]] = field(default_factory=list)
    """Ranks that copy data for themselves, and the rows of these copies."""
    calls: list[Message | RingSteps] = field(default_factory=list)
    refused: str = ""
    _rings: list[tuple[set[int], Rows, int]] = field(default_factory=list)

    @property
    def rows(self) -> Rows:
        """The rows of all messages, and of the last written step of all rings."""
        return np.concatenate([call.rows.ravel() for call in self.calls])

    def begin(self, builder: Builder, channels: int) -> None:
        """Store the number of ranks of the schedule."""
        self.ranks = builder.ranks

    def first_steps(self, styles: Rows, first: Rows, size: int) -> tuple[Rows, Rows]:
        """The first `STEPS_WRITTEN` entries of `styles` and of `first`, the style and the first
        piece of every step of some rings.

        The different values of both are noted, so that `end` can check whether all steps are equal.
        `size` is the number of lanes of all these rings.
        """
        self._rings.append((set(different(styles).tolist()), different(first), size))
        return styles[:STEPS_WRITTEN], first[:STEPS_WRITTEN]

    def rows_of_copies(self, ranks: Numbers, rows: Rows) -> None:
        """Note the rows with which ranks copy data from their input to their output."""
        self.copies.append((ranks, rows))

    def rows_of_messages(
        self, sender: Numbers, receiver: Numbers, rows: Rows, *, ready: bool, plain: bool
    ) -> None:
        """Note messages, and refuse to leave out steps if some message is not plain."""
        if not plain:
            self.refused = "messages of several parts, or that wait for the last to arrive"
        self.calls.append(Message(sender, receiver, rows, ready))

    def rows_of_steps(self, ring: NDArray[np.int64], rows: Rows, steps: int, written: int) -> None:
        """Note the steps of rings after their first step."""
        self.calls.append(RingSteps(ring, rows.reshape(ring.shape), steps, written))

    def end(self, schedule: Schedule) -> None:
        """Refuse to leave out steps unless all steps of a ring move equally many elements in the
        same style.
        """
        styles = schedule.styles
        counts = schedule.pieces.count
        for style_numbers, first, size in self._rings:
            plain_styles = {
                replace(styles[number], src_buffer=0, dst_buffer=0, op=0, channel=0)
                for number in style_numbers
            }
            if len(plain_styles) > 1:
                self.refused = "steps of a ring differ"
            if any((counts[k : k + size] != counts[first[0]]).any() for k in first.tolist()):
                self.refused = "chunks of a ring differ"
