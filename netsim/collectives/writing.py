"""What algorithms are written with: lanes of ranks, chunks, groups, and messages of blocks.

`Lanes` turns "this rank sends that message next" into rows with the right dependencies: a rank
sends after its last send and after everything that has arrived at it since, and it is finished
after all of that.
"""

from collections.abc import Sequence
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from netsim.base.memo import different
from netsim.base.units import UnitError, parse_size
from netsim.collectives.collective import Collective, CollectiveError
from netsim.collectives.row_writer import MessagePart, RowWriter
from netsim.schedule import schedule
from netsim.schedule.builder import Builder
from netsim.schedule.schedule import ARRIVED, COPY, IN, IN_ORDER, LOCAL_COPY, OUT, Lag, Style

Rows = NDArray[np.int32]
Ints = NDArray[np.int64] | NDArray[np.int32]
KEEP = Style(kind=LOCAL_COPY, src_buffer=IN, dst_buffer=OUT)


class Lanes:
    """A Builder, with the rows that the next row of each lane must wait for.

    A lane is what one rank does on one channel; its number is channel · ranks + rank. For every
    lane, `last` is its last row, and further rows may be open: rows that have arrived at the lane
    since. `writer` selects the rows that are written.
    """

    def __init__(
        self, collective: Collective, channels: int = 1, writer: RowWriter | None = None
    ) -> None:
        n = collective.ranks
        self.collective = collective
        self.ranks = n
        self.channels = channels
        self.builder = Builder(n, collective.element_bytes, (collective.name,))
        self.last = np.full(channels * n, -1, np.int32)
        self._open: list[tuple[Rows, Lag]] = []
        self._final: list[tuple[Rows, Lag]] = []
        self._step = 0
        self.copies = np.full(n, -1, np.int32)  # by rank the row of its last copy to itself
        self.writer = writer or RowWriter()
        self.writer.begin(self.builder, channels)

    def copy_local_data(self) -> Self:
        """Copy the data that stays on its rank from the input to the output, unless the collective
        is in place; return these lanes.
        """
        local_data = self.collective.local_data()
        if self.collective.in_place or not len(local_data.rank):
            return self
        piece = self.builder.pieces(local_data.count, local_data.in_offset, local_data.out_offset)
        rank = local_data.rank
        self.writer.distinguish(rank, local_data.count, rows=1)
        is_written = self.writer.written(rank)
        rank = rank[is_written]
        piece = piece[is_written]
        if len(rank):
            style = self.writer.styles_of_copies(self.builder, KEEP, rank)
            self.copies[rank] = rows = self.builder.rows(style, rank, rank, piece)
            self._final += self._columns(rank, rows, IN_ORDER)
            self.writer.rows_of_copies(rank, rows)
        return self

    def style(self, src_buffer: int, dst_buffer: int, op: int = COPY, channel: int = 0) -> int:
        """The number of the style of a plain transfer between two buffers."""
        return self.builder.style(
            Style(src_buffer=src_buffer, dst_buffer=dst_buffer, op=op, channel=channel)
        )

    def styles(self, src_buffer: ArrayLike, dst_buffer: ArrayLike, op: ArrayLike = COPY) -> Rows:
        """The numbers of the styles of plain transfers, by position in the arguments."""
        table = np.broadcast_arrays(*np.atleast_1d(src_buffer, dst_buffer, op))
        code = table[0] + 8 * table[1] + 64 * table[2]
        numbers = {c: self.style(c % 8, c // 8 % 8, c // 64) for c in different(code).tolist()}
        return np.array([numbers[c] for c in code.tolist()], np.int32)

    def wait_for_own_rows(self, rows: Rows, ranks: Ints | None = None) -> None:
        """Let the next row of each of `ranks` (default: all) wait for the rank's entry in `rows`
        (-1: none).
        """
        waiting: Ints = np.arange(self.ranks) if ranks is None else ranks
        self.writer.distinguish(waiting, np.zeros(len(waiting), np.int64))
        waiting = waiting[rows[waiting] >= 0]
        self.wait(waiting, rows[waiting], IN_ORDER)

    def send(
        self,
        src: Ints,
        dst: Ints,
        parts: Sequence[MessagePart],
        step: int,
        *,
        channel: Ints | int = 0,
        ready: bool = False,
        blocking: bool = False,
    ) -> Rows:
        """Append a message from each of `src` to each of `dst`; return the last row of each (-1:
        none).

        Args:
            src: the senders.
            dst: the receivers, in the same order.
            parts: the parts of the messages.
            step: number of the step, for display.
            channel: channel of all messages, or of each.
            ready: whether a message waits until its receiver has received all earlier messages to
                it (because it adds to the same place).
            blocking: whether a message waits until the sender's last message has arrived.
        """
        base = np.asarray(channel) * self.ranks
        sender = base + src
        receiver = base + dst
        ends = np.full(len(src), -1, np.int32)
        self.writer.message(self.builder, sender, receiver, parts)
        written = self.writer.written(sender)
        parts = [self.writer.part(self.builder, part, sender) for part in parts]
        sender = sender[written]
        receiver = self.writer.representatives(receiver[written])
        if not len(sender):
            return ends
        after = [(column[sender], lag) for column, lag in self._open]
        after.append((self.last[sender], ARRIVED if blocking else IN_ORDER))
        if ready:
            after += [(column[receiver], lag) for column, lag in self._open]
        last = np.full(len(sender), -1, np.int32)
        for part in parts:
            self._append(src[written], dst[written], part, step, after, last)
        is_partial = len(parts) > 1 or parts[0].which is not None
        self.writer.rows_of_messages(
            sender, receiver, last, ready=ready, plain=not (is_partial or blocking)
        )
        sent = np.flatnonzero(last >= 0)
        self.set_last_rows(sender[sent], last[sent], step)
        self.wait(receiver[sent], last[sent])
        ends[written] = last
        return ends

    def _append(
        self,
        src: Ints,
        dst: Ints,
        part: MessagePart,
        step: int,
        after: list[tuple[Rows, Lag]],
        ends: Rows,
    ) -> None:
        """Append the rows of one part of messages from `src` to `dst`.

        `after` are the rows that the first part of each message waits for. `ends` has the last row
        of each message (-1: none yet), and is updated.
        """
        chosen = slice(None) if part.which is None else part.which
        before = ends[chosen]
        deps = [(np.where(before < 0, rows[chosen], -1), lag) for rows, lag in after]
        deps = [
            (rows, lag) for rows, lag in [*deps, (before, IN_ORDER)] if rows.max(initial=-1) >= 0
        ]
        ends[chosen] = self.builder.rows(
            part.style, src[chosen], dst[chosen], part.piece, step=step, after=deps
        )

    def set_last_rows(self, lanes: Ints, rows: Rows, step: int = 0) -> None:
        """Set the last rows of some lanes. These rows have waited for all open rows of the
        lanes.
        """
        for column, _ in self._open:
            column[lanes] = -1
        self._open = [entry for entry in self._open if entry[0].max() >= 0]
        self.last[lanes] = rows
        self._step = max(self._step, step)

    def wait(self, lanes: Ints, rows: Rows, lag: Lag = ARRIVED, step: int = 0) -> None:
        """Let the next row of some lanes wait for rows; a lane that occurs several times waits for
        several.
        """
        self._open += self._columns(lanes, rows, lag)
        self._step = max(self._step, step)

    def close(self) -> schedule.Schedule:
        """The finished schedule. Its last rows are one mark for each rank, in order, at which the
        rank is done.
        """
        n = self.ranks
        columns = [*self._open, (self.last, IN_ORDER), *self._final]
        lead = self.writer.representatives(np.arange(len(self.last)))
        by_rank = [(part, lag) for column, lag in columns for part in column[lead].reshape(-1, n)]
        after = [(rows, lag) for rows, lag in by_rank if rows.max() >= 0]
        done = self.writer.marked_ranks(n)
        if len(done):
            self.builder.marks(done, step=self._step, after=after)
        finished = self.builder.finish()
        self.writer.end(finished)
        return finished

    def _columns(self, lanes: Ints, rows: Rows, lag: Lag) -> list[tuple[Rows, Lag]]:
        """The rows that lanes wait for, as pairs (array with the row by lane, or -1 for none;
        `lag`).

        - `lanes`: the waiting lanes. A lane that occurs k times has entries in k of the arrays.
        - `rows`: the row that each entry of `lanes` waits for.
        """
        order = np.argsort(lanes, kind="stable")
        ordered = lanes[order]
        first = np.searchsorted(ordered, ordered)
        place = np.arange(len(ordered)) - first
        columns = np.full((int(place.max(initial=-1)) + 1, len(self.last)), -1, np.int32)
        columns[place, ordered] = rows[order]
        return [(column, lag) for column in columns]


# Default of pipelines: pieces of at least 128 KiB, and at most 64 pieces.
LEAST_PIECE_BYTES = 128 * 1024
MOST_PIECES = 64
MOST_PARTS = 1_000_000  # pieces, and channels, that anybody can mean
MOST_CHANNELS = 4096


def at_most(name: str, value: int, most: int) -> int:
    """`value`; a CollectiveError for the parameter `name` if it is larger than `most`, which would
    make a schedule of absurd size.
    """
    if value > most:
        raise CollectiveError(name, f"expected at most {most}, got {value}")
    return value


def positive(name: str, value: int) -> int:
    """`value` as an int; a CollectiveError for the parameter `name` unless it is a whole number
    from 1 up.
    """
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise CollectiveError(name, f"expected a whole number from 1 up, got {value!r}")
    return int(value)


def nbytes(name: str, value: int | str) -> int:
    """The bytes of the parameter `name`: a number of bytes, or a text such as 1MiB."""
    try:
        return parse_size(value)
    except UnitError as error:
        raise CollectiveError(name, str(error)) from None


def channel_count(channels: int) -> int:
    """The parameter `channels`, the number of channels that share the data, after checking it."""
    return at_most("channels", positive("channels", channels), MOST_CHANNELS)


def flag(name: str, value: bool) -> bool:
    """`value`; a CollectiveError for the parameter `name` unless it is true or false."""
    if not isinstance(value, bool):
        raise CollectiveError(name, f"expected true or false, got {value!r}")
    return value


def rank_of(name: str, value: int, ranks: int) -> int:
    """`value` as an int; a CollectiveError for the parameter `name` unless it is one of
    the ranks.
    """
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not 0 <= value < ranks:
        raise CollectiveError(name, f"expected a rank in 0..{ranks - 1}, got {value!r}")
    return int(value)


def piece_count(
    count: int, element_bytes: float, chunks: int | None, chunk_bytes: int | str | None
) -> int:
    """The number of pipeline pieces of `count` elements: `chunks`, or the number that follows from
    `chunk_bytes` or the defaults, but at most one for each element.
    """
    if chunks is not None and chunk_bytes is not None:
        raise CollectiveError("chunk_bytes", "give chunks or chunk_bytes, not both")
    if chunks is not None:
        wanted = positive("chunks", chunks)
    elif chunk_bytes is not None:
        wanted = -int(-count * element_bytes // nbytes("chunk_bytes", chunk_bytes))
    else:
        wanted = min(int(count * element_bytes) // LEAST_PIECE_BYTES, MOST_PIECES)
    return at_most("chunks", max(1, min(wanted, count)), MOST_PARTS)


def edges(count: int, parts: int) -> NDArray[np.int64]:
    """Where each of `parts` nearly equal chunks of `count` elements begins, and at the end `count`:
    edges(10, 4) is [0, 2, 5, 7, 10].
    """
    return (np.arange(parts + 1, dtype=np.int64) * count) // parts


def ceil_log2(n: int) -> int:
    """The number of doublings from 1 to at least n."""
    return (n - 1).bit_length()


USUAL_NODE = 8


def groups_of(
    n: int, node_size: int | None = None, groups: Sequence[Sequence[int]] | None = None
) -> Ints:
    """The ranks of every group, one line for each: those of `groups`, or `node_size` consecutive
    ranks.

    By default a group has the largest number of ranks up to 8 that divides n.
    """
    if groups is not None:
        return _checked_groups(n, node_size, groups)
    usual = max(size for size in range(1, USUAL_NODE + 1) if n % size == 0)
    size = usual if node_size is None else positive("node_size", node_size)
    if n % size:
        raise CollectiveError("node_size", f"expected a divisor of {n} ranks, got {size}")
    return np.arange(n).reshape(n // size, size)


def _checked_groups(n: int, node_size: int | None, groups: Sequence[Sequence[int]]) -> Ints:
    """The groups that a user states, as an array with a line for each; a CollectiveError unless
    they are a partition into equal groups.
    """
    if node_size is not None:
        raise CollectiveError("groups", "give node_size or groups, not both")
    lists = isinstance(groups, list | tuple) and all(isinstance(g, list | tuple) for g in groups)
    if not lists or any(type(rank) is not int for group in groups for rank in group):
        raise CollectiveError(
            "groups", f"expected lists of ranks such as [[0, 1], [2, 3]], got {groups!r}"
        )
    if not groups or len({len(group) for group in groups}) > 1:
        raise CollectiveError("groups", "expected groups of equal size")
    table = np.array(groups)
    if sorted(table.ravel().tolist()) != list(range(n)):
        raise CollectiveError("groups", f"expected each of the ranks 0..{n - 1} once")
    return table


# Messages of whole blocks that are not contiguous in memory, and how they are cut into parts. A
# message covers a range of blocks. It is cut where block numbers wrap around, and around the block
# of the one rank whose block lies in another buffer (in its input, or in its output).

Range = tuple[Ints, Ints, Ints]  # which messages, first block, block after the last


def ranges_mod(start: ArrayLike, count: ArrayLike, n: int) -> list[Range]:
    """Two ranges (which messages, first block, block after the last) for the blocks start … start +
    count - 1 (mod n) of each message: up to block n - 1 at most, and, if they wrap around, from
    block 0 on.
    """
    first, number = np.broadcast_arrays(np.asarray(start) % n, count)
    stop = first + number
    low = np.flatnonzero(number > 0)
    high = np.flatnonzero(stop > n)
    return [(low, first[low], np.minimum(stop, n)[low]), (high, 0 * high, stop[high] - n)]


def without_block(low: Ints, high: Ints, block: Ints) -> list[Range]:
    """Two ranges (which messages, first block, block after the last) for the blocks low … high - 1
    of each message: those before its `block` and those after it.
    """
    before = np.flatnonzero(block > low)
    after = np.flatnonzero(block + 1 < high)
    return [(before, low[before], block[before]), (after, block[after] + 1, high[after])]


def range_parts(
    lanes: Lanes, ranges: list[Range], bounds: NDArray[np.int64], styles: Rows
) -> list[MessagePart]:
    """The parts of messages with `ranges` of blocks that lie at the same offset in source and
    destination.

    - `ranges`: (which messages, first block, block after the last) for each part.
    - `bounds`: where each block begins, and at the end where the last one ends, in elements.
    - `styles`: the style of each message.
    """
    return [
        MessagePart(
            styles[which], lanes.builder.pieces(bounds[high] - bounds[low], bounds[low]), which
        )
        for which, low, high in ranges
        if len(which)
    ]
