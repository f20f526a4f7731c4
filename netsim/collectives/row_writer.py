"""Who decides which rows of a textbook algorithm are written.

An algorithm is written once, for lanes: what one rank does on one channel (number channel * ranks +
rank). It tells a `RowWriter` each message that lanes send, and writes the rows of those lanes that
the writer wants. It does not ask which writer it has:

- `RowWriter` wants every row.
- `TextbookSketch` (`sketch.py`) wants none; it notes who sends to whom, from which equal lanes
  follow.
- `RepresentativeWriter` (`representatives.py`) wants one lane of each class of equal ones.
- `FirstSteps` (`first_steps.py`) wants the first few steps of each ring.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from netsim.base.values import dataclass
from netsim.schedule.builder import Builder
from netsim.schedule.schedule import Schedule, Style

Rows = NDArray[np.int32]
Numbers = NDArray[np.int64] | NDArray[np.int32]
EVERY = slice(None)


@dataclass(frozen=True, slots=True)
class MessagePart:
    """One contiguous part of the messages of some lanes: its style and its piece, by message.

    `which` are the messages that have such a part, as places; None: all of them."""

    style: Style | Rows
    piece: Rows
    which: Numbers | None = None


class RowWriter:
    """Wants every row. Other writers override what differs."""

    def begin(self, builder: Builder, channels: int) -> None:
        """Called before an algorithm writes anything."""

    def end(self, schedule: Schedule) -> None:
        """Called with the finished schedule."""

    # **** Which rows are written ****

    def written(self, lanes: Numbers) -> Numbers | slice:
        """Which of some lanes are written, as places in `lanes`."""
        return EVERY

    def representatives(self, lanes: Numbers) -> Numbers:
        """The lane that is written in place of each of some lanes."""
        return lanes

    def marked_ranks(self, ranks: int) -> Numbers:
        """The ranks that get a mark when they are done."""
        return np.arange(ranks)

    def styles(self, builder: Builder, styles: Style | Rows, lanes: Numbers) -> Style | Rows:
        """The styles of rows of some lanes, each of which may represent others."""
        return styles

    def styles_of_copies(self, builder: Builder, style: Style, ranks: Numbers) -> Style | Rows:
        """The styles of copies that ranks make for themselves."""
        return style

    def part(self, builder: Builder, part: MessagePart, sender: Numbers) -> MessagePart:
        """What is written of a part of the messages of some lanes."""
        return part

    def first_steps(self, styles: Rows, first: Rows, size: int) -> tuple[Rows, Rows]:
        """The steps that are written of rings of `size` lanes together: their styles and first
        pieces, by step."""
        return styles, first

    # **** What an algorithm tells ****

    def distinguish(self, lanes: Numbers, values: Numbers, rows: int = 0) -> None:
        """Lanes do or wait for something else, in `rows` rows each; those with different values
        are not equal."""

    def message(
        self, builder: Builder, src: Numbers, dst: Numbers, parts: Sequence[MessagePart]
    ) -> None:
        """Each of some lanes sends a message to one of others."""

    def rings(self, src: Numbers, dst: Numbers, styles: Rows, first: Rows, length: int) -> None:
        """In rings of some length everyone passes on what it has, in `len(styles)` steps."""

    def rows_of_copies(self, ranks: Numbers, rows: Rows) -> None:
        """The rows of copies that ranks made for themselves, beside all else."""

    def rows_of_messages(
        self, sender: Numbers, receiver: Numbers, rows: Rows, *, ready: bool, plain: bool
    ) -> None:
        """The rows of messages from lanes to others.

        `ready`: not before the receiver has what was sent to it before. `plain`: messages of one
        part, which wait for no arrival at the receiver."""

    def rows_of_steps(self, ring: NDArray[np.int64], rows: Rows, steps: int, written: int) -> None:
        """Of the `steps` of rings after their first one, `written` were written; `rows` are those
        of the last of them."""
