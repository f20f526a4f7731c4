"""Row writers decide which rows of a textbook algorithm are written.

An algorithm is written once, in terms of lanes: lane channel * ranks + rank is what one rank does
on one channel. The algorithm tells a `RowWriter` each message that lanes send, and writes the rows
of those lanes that the writer selects. It is the same code for every writer:

- `RowWriter` selects every row.
- `TextbookSketch` (`sketch.py`) selects none; it notes who sends to whom, from which classes of
  equal lanes follow.
- `RepresentativeWriter` (`representatives.py`) selects one lane of each class of equal lanes.
- `FirstSteps` (`first_steps.py`) selects the first few steps of each ring.
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
    """One contiguous part of each of several messages.

    - `style`: the style of all parts, or the number of the style of each.
    - `piece`: the number of the piece of each part.
    - `which`: positions of the messages that have such a part; None: all messages.
    """

    style: Style | Rows
    piece: Rows
    which: Numbers | None = None


class RowWriter:
    """Selects every row. Subclasses select fewer rows, or take notes."""

    def begin(self, builder: Builder, channels: int) -> None:
        """Called once before an algorithm writes anything, with its number of channels."""

    def end(self, schedule: Schedule) -> None:
        """Called once with the finished schedule."""

    # **** Selecting rows ****

    def written(self, lanes: Numbers) -> Numbers | slice:
        """The positions in `lanes` of the lanes whose rows are written."""
        return EVERY

    def representatives(self, lanes: Numbers) -> Numbers:
        """By lane, the lane whose rows are written in its place."""
        return lanes

    def marked_ranks(self, ranks: int) -> Numbers:
        """The ranks that get a mark at the end of the schedule."""
        return np.arange(ranks)

    def styles(self, builder: Builder, styles: Style | Rows, lanes: Numbers) -> Style | Rows:
        """The styles of rows that lanes write, changed such that each row counts for all lanes that
        its lane represents.
        """
        return styles

    def styles_of_copies(self, builder: Builder, style: Style, ranks: Numbers) -> Style | Rows:
        """The same as `styles` for copies from a rank's input to its output."""
        return style

    def part(self, builder: Builder, part: MessagePart, sender: Numbers) -> MessagePart:
        """`part`, limited to the messages whose rows are written. `sender`: the sending lane of
        each message.
        """
        return part

    def first_steps(self, styles: Rows, first: Rows, size: int) -> tuple[Rows, Rows]:
        """The styles and the first pieces of those steps of rings that are written, by step.

        `styles` and `first` are those of all steps, `size` the number of lanes of all rings
        together.
        """
        return styles, first

    # **** What an algorithm reports ****

    def distinguish(self, lanes: Numbers, values: Numbers, rows: int = 0) -> None:
        """Called when each of `lanes` does something that is not a message, such as a local copy.

        - `values`: by lane, a number; lanes with different numbers do not count as equal.
        - `rows`: the number of rows that each lane writes for it.
        """

    def message(
        self, builder: Builder, src: Numbers, dst: Numbers, parts: Sequence[MessagePart]
    ) -> None:
        """Called when each lane of `src` sends a message to the lane of `dst` at the same
        position.
        """

    def rings(self, src: Numbers, dst: Numbers, styles: Rows, first: Rows, length: int) -> None:
        """Called before the steps of rings are written.

        Args:
            src: the lanes of all rings, ring by ring.
            dst: the lane after each of them.
            styles: the numbers of styles by step, and by ring or lane.
            first: by step, the piece of chunk 0 of the first ring.
            length: number of lanes in each ring.
        """

    def rows_of_copies(self, ranks: Numbers, rows: Rows) -> None:
        """Called with the rows of copies from the input to the output of `ranks`."""

    def rows_of_messages(
        self, sender: Numbers, receiver: Numbers, rows: Rows, *, ready: bool, plain: bool
    ) -> None:
        """Called with the rows of messages from lanes to other lanes.

        - `ready`: whether a message waits until its receiver has received all earlier messages to
          it.
        - `plain`: whether each message has one part and does not wait for the arrival of the
          sender's last message.
        """

    def rows_of_steps(self, ring: NDArray[np.int64], rows: Rows, steps: int, written: int) -> None:
        """Called with the steps of rings after their first step.

        Args:
            ring: the lanes of each ring, one line for each ring.
            rows: the rows of the last step that was written.
            steps: number of steps after the first one.
            written: number of these that were written.
        """
