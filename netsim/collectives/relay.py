"""Relay: an algorithm of long rings with only a few steps of each, and what is left of them.

Every lane is there, with its way to the next and all that they share. What the steps that are left
out take follows from those that are written (`netsim/relay`).
"""

from dataclasses import field, replace

import numpy as np
from numpy.typing import NDArray

from netsim.arrays import different
from netsim.schedule import Schedule
from netsim.values import dataclass

Ints = NDArray[np.int64] | NDArray[np.int32]
Rows = NDArray[np.int32]
STEPS = 3  # of each ring that are written: in the second, everyone passes on what has come


@dataclass(frozen=True, slots=True)
class Message:
    """Rows that some lanes send to others; `ready`: not before these have what came before."""

    sender: Ints
    receiver: Ints
    rows: Rows
    ready: bool


@dataclass(frozen=True, slots=True)
class Laps:
    """Rings of lanes in the order in which they pass on (a ring each line), after their first step:
    of `steps` that follow, `written` are; `rows` are those of the last.
    """

    lanes: NDArray[np.int64]
    rows: Rows
    steps: int
    written: int


@dataclass
class Relay:
    """What lanes do, call by call, where they hold one of these; rings have `STEPS` steps.

    `refused` says why steps cannot be left out.
    """

    ranks: int = 0
    kept: list[tuple[Ints, Rows]] = field(default_factory=list)
    calls: list[Message | Laps] = field(default_factory=list)
    refused: str = ""
    _rings: list[tuple[set[int], Rows, int]] = field(default_factory=list)

    @property
    def rows(self) -> Rows:
        """Rows of all messages and rings, one for each that a lane does the same at once."""
        return np.concatenate([call.rows.ravel() for call in self.calls])

    def begin(self, ranks: int) -> None:
        """Listen to an algorithm from its start."""
        self.ranks = ranks

    def keep(self, ranks: Ints, rows: Rows) -> None:
        """Copies that ranks make for themselves, beside all else."""
        self.kept.append((ranks, rows))

    def message(
        self, sender: Ints, receiver: Ints, rows: Rows, *, ready: bool, plain: bool
    ) -> None:
        """Messages from lanes to others; `plain`: of one part, which waits for no arrival."""
        if not plain:
            self.refused = "messages of several parts, or that wait for the last to arrive"
        self.calls.append(Message(sender, receiver, rows, ready))

    def shortened(self, styles: Rows, first: Rows, size: int) -> tuple[Rows, Rows]:
        """The first steps of rings of `size` lanes together."""
        self._rings.append((set(different(styles).tolist()), different(first), size))
        return styles[:STEPS], first[:STEPS]

    def laps(self, ring: NDArray[np.int64], rows: Rows, steps: int, written: int) -> None:
        """The steps of rings after their first."""
        self.calls.append(Laps(ring, rows.reshape(ring.shape), steps, written))

    def end(self, schedule: Schedule) -> None:
        """Look whether the steps of a ring move as much in the same way."""
        known, count = schedule.styles, schedule.pieces.count
        for styles, first, size in self._rings:
            ways = {replace(known[k], src_buffer=0, dst_buffer=0, op=0) for k in styles}
            if len({replace(style, channel=0) for style in ways}) > 1:
                self.refused = "steps of a ring differ"
            if any((count[k : k + size] != count[first[0]]).any() for k in first.tolist()):
                self.refused = "chunks of a ring differ"
