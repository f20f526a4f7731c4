"""A writer that writes one lane for each class of equal lanes of a textbook algorithm."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from netsim.base.values import dataclass
from netsim.collectives.row_writer import EVERY, MessagePart, Numbers, Rows, RowWriter
from netsim.schedule.builder import Builder
from netsim.schedule.partition import Fold
from netsim.schedule.schedule import Style


@dataclass(frozen=True)
class RepresentativeWriter(RowWriter):
    """Writes the rows of one lane of each class of equal lanes, its representative.

    - `fold`: the representatives of ranks, links and NICs.
    - `first`: by lane, its representative.
    - `count`: by representative, the number of lanes in its class.

    A row that would wait for a lane without rows waits for the representative of this lane.
    """

    fold: Fold
    first: Rows
    count: Rows

    def begin(self, builder: Builder, channels: int) -> None:
        """Give the schedule the representatives of ranks, links and NICs."""
        builder.fold = self.fold

    def written(self, lanes: Numbers) -> NDArray[np.int64]:
        """The positions in `lanes` of lanes that are their own representative."""
        return np.flatnonzero(self.first[lanes] == lanes)

    def representatives(self, lanes: Numbers) -> Numbers:
        """The representative of each lane."""
        return self.first[lanes]

    def styles(self, builder: Builder, styles: Style | Rows, lanes: Numbers) -> Rows:
        """The numbers of styles like `styles` whose `copies` is the size of the class of
        each lane.
        """
        return styles_with_copies(builder, styles, self.count[lanes])

    def styles_of_copies(self, builder: Builder, style: Style, ranks: Numbers) -> Rows:
        """The numbers of styles like `style` whose `copies` is the size of the class of
        each rank.
        """
        return styles_with_copies(builder, style, self.fold.ranks.count[ranks])

    def part(self, builder: Builder, part: MessagePart, sender: Numbers) -> MessagePart:
        """`part`, limited to the messages that representatives send. Positions of messages count
        only these messages, and styles count for all lanes of a class.

        - `sender`: the sending lane of each message, before any is left out.
        """
        style = part.style
        which = EVERY if part.which is None else part.which
        written_places = self.written(sender[which])
        style = style if isinstance(style, Style) else style[written_places]
        if part.which is None:
            return MessagePart(
                self.styles(builder, style, sender[written_places]), part.piece[written_places]
            )
        place = np.full(len(sender), -1)
        written = self.written(sender)
        place[written] = np.arange(len(written))
        messages = part.which[written_places]
        styles = self.styles(builder, style, sender[messages])
        return MessagePart(styles, part.piece[written_places], place[messages])


def styles_with_copies(builder: Builder, styles: Style | Rows, copies: Rows) -> Rows:
    """The numbers of styles that equal `styles` except for their `copies`, by row."""
    if isinstance(styles, Style):
        styles = np.full(len(copies), builder.style(styles), np.int32)
    table = builder.styles
    width = int(copies.max(initial=1)) + 1
    code, place = np.unique(styles.astype(np.int64) * width + copies, return_inverse=True)
    pairs: Sequence[tuple[int, int]] = [divmod(pair, width) for pair in code.tolist()]
    numbers = [
        builder.style(replace(table[style], copies=copy_count)) for style, copy_count in pairs
    ]
    result: Rows = np.array(numbers, np.int32)[place.reshape(styles.shape)]
    return result
