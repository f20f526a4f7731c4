"""The Schedule: the rows of an operation as columns, and how schedules are combined.

Rows are transfers, copies, computations and marks of ranks. They are in a topological order: a row
waits for earlier rows only.
"""

from collections.abc import Sequence
from dataclasses import field, replace
from math import inf

import numpy as np
from numpy.typing import NDArray

from netsim.base.memo import different
from netsim.base.values import dataclass
from netsim.schedule.partition import Fold


def spelled_out(
    groups: Sequence[Sequence[int]], which: NDArray[np.integer]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The members of several groups, as two columns with an entry for each member.

    `which` has numbers of groups, and may repeat them. The first column is the position in `which`
    of the member's group, the second one is the member.

    >>> place, member = spelled_out([(0, 1), (2, 3, 4)], np.array([1, 0]))
    >>> place.tolist(), member.tolist()
    ([0, 0, 0, 1, 1], [2, 3, 4, 0, 1])
    """
    sizes = np.array([len(group) for group in groups], np.int64)
    flat = np.array([rank for group in groups for rank in group], np.int64)
    first = (np.cumsum(sizes) - sizes)[which]
    times = sizes[which]
    place = np.repeat(np.arange(len(which)), times)
    within = np.arange(len(place)) - np.repeat(np.cumsum(times) - times, times)
    return place, flat[first[place] + within]


# Folding: one simulated member represents a class of identical ranks, links or blocks. Rows that do
# the same at the same times are in the schedule once. A row's `copies` is the number of rows that
# it represents; if these cross several equivalent links, their draws are counted on one of the
# links.

Ints = NDArray[np.int32]


# One row is one piece of work. A schedule knows ranks, buffers and elements. It knows no links, and
# no times but its lags, latencies of styles, seconds of work, and release times.


# Kinds of rows.
TRANSFER, LOCAL_COPY, MULTICAST, SWITCH_REDUCE, COMPUTE, MARK = range(6)
KIND_NAMES = ("transfer", "local_copy", "multicast", "switch_reduce", "compute", "mark")

# What happens to the data at its destination.
COPY = 0  # destination = data
REDUCE = 1  # destination = destination + data
REDUCE_INPUT = 2  # destination = own input + data, as a fused receive-reduce does
OP_NAMES = ("copy", "reduce", "reduce_input")

# Buffers. In place, IN aliases OUT as nccl-tests defines it.
IN, OUT, SCRATCH = range(3)
BUFFER_NAMES = ("in", "out", "scratch")

RESOURCES = ("sm", "sms", "clock", "hbm", "proxy", "nic_msg", "nvls", "host", "bus")
COMPUTING = ("sms", "clock")
"""Resources that compute rows draw on: the SMs of a GPU, which they share, and how fast it runs."""
ENDS = ("src", "dst")


@dataclass(frozen=True, slots=True)
class Use:
    """A draw on a shared resource other than a wire, for each byte (or second of work) of a row.

    - `resource`: one of `RESOURCES`.
    - `end`: whose resource it is: that of the source GPU (`src`) or of the destination GPU (`dst`).
    - `weight`: units of the resource for each byte.
    - `index`: distinguishes several resources of one kind on a GPU.

    >>> Use("hbm", "dst", 2.0).weight  # two passes over the receiver's memory for each byte
    2.0
    >>> Use("sm", "src", 1.0, index=3).index  # the SM of channel 3 on the sending GPU
    3
    >>> f'{Use("proxy", "src", 1e-6 / 2**20).weight:.2g}'  # 1 µs of the proxy for each MiB
    '9.5e-13'
    """

    resource: str
    end: str
    weight: float
    index: int = 0

    def __post_init__(self) -> None:
        if self.resource not in RESOURCES:
            raise ValueError(
                f"resource: expected one of {', '.join(RESOURCES)}, got {self.resource!r}"
            )
        if self.end not in ENDS:
            raise ValueError(f"end: expected src or dst, got {self.end!r}")
        if not 0 < self.weight < inf:
            raise ValueError(f"weight: expected a positive number, got {self.weight!r}")


@dataclass(frozen=True, slots=True)
class Style:
    """What many rows have in common; a row refers to its style by number.

    - `kind`: TRANSFER, LOCAL_COPY, MULTICAST, SWITCH_REDUCE, COMPUTE or MARK.
    - `op`: what happens to the data at its destination: COPY, REDUCE or REDUCE_INPUT.
    - `src_buffer`, `dst_buffer`: IN, OUT or SCRATCH.
    - `collective`, `channel`, `stream`: the operation, channel and stream that the row belongs to.
    - `latency`: seconds that the row takes before its bytes move.
    - `cap`: the highest rate of the row, in bytes a second (or seconds of work a second).
    - `share`: the weight of the row when a link is divided fairly among rows.
    - `wire`: bytes on every wire for each byte of data (16/15 for LL128).
    - `uses`: draws on resources other than wires.
    - `route`: the name of one of the topology's routes; "" is the topology's choice.
    - `multiplicity`: the number of equal rows with the same endpoints that this one represents.
    - `copies`: the number of equal rows with other endpoints, itself included, that this one
      represents (see Fold).

    >>> from math import inf
    >>> Style(src_buffer=IN, latency=1e-6).cap == inf
    True
    """

    kind: int = TRANSFER
    op: int = COPY
    src_buffer: int = OUT
    dst_buffer: int = OUT
    collective: int = 0
    channel: int = 0
    stream: str = ""
    multiplicity: int = 1
    copies: int = 1
    latency: float = 0.0
    cap: float = inf
    share: float = 1.0
    wire: float = 1.0
    uses: tuple[Use, ...] = ()
    route: str = ""

    def __post_init__(self) -> None:
        if not 0 <= self.latency < inf:
            raise ValueError(f"latency: expected seconds from 0 up, got {self.latency!r}")
        if not self.cap > 0:
            raise ValueError(f"cap: expected a positive rate, got {self.cap!r}")
        for name in ("share", "wire"):
            if not 0 < getattr(self, name) < inf:
                raise ValueError(f"{name}: expected a positive number, got {getattr(self, name)!r}")
        for name in ("multiplicity", "copies"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: expected at least 1, got {getattr(self, name)!r}")


@dataclass(frozen=True, slots=True)
class Lag:
    """How long after the end of an earlier row a dependent row may start.

    - `seconds`: a fixed delay.
    - `arrival`: how often the latency of the earlier row's path is added. 1: the dependent row
      waits until the data has arrived. 2: until an answer has come back to the sender. 0: it waits
      for the sender's side only, which is the order of rows on one channel.

    >>> ARRIVED, IN_ORDER
    (Lag(seconds=0.0, arrival=True), Lag(seconds=0.0, arrival=False))
    """

    seconds: float = 0.0
    arrival: int = True

    def __post_init__(self) -> None:
        if not 0 <= self.seconds < inf:
            raise ValueError(f"lag: expected seconds from 0 up, got {self.seconds!r}")


ARRIVED = Lag(0.0, True)
IN_ORDER = Lag(0.0, False)


@dataclass(frozen=True, slots=True)
class Pieces:
    """The table of distinct pieces of data or work; a row refers to its piece by number.

    Offsets (in source, destination, and for REDUCE_INPUT the receiver's own input) and counts are
    in elements. `amount` is the bytes that move, or the seconds of work of a compute row.
    """

    src_offset: NDArray[np.int64]
    dst_offset: NDArray[np.int64]
    own_offset: NDArray[np.int64]
    count: NDArray[np.int64]
    amount: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Schedule:
    """The transfers and computations of an operation, with their dependencies; no links, no times.

    The arrays `style`, `src`, `dst`, `piece` and `step` have one entry for each row. `src` is the
    sending rank (the group, for an in-switch reduction), `dst` the receiving rank (the group, for a
    multicast). Row i waits for the earlier rows `dep_row[dep_ptr[i]:dep_ptr[i + 1]]`, each with the
    lag whose number is at the same position of `dep_lag`. Row `release_row[k]` starts no earlier
    than `release_time[k]` seconds. With a `fold`, a row may represent further rows.

    >>> from netsim import Collective, build
    >>> schedule = build(Collective("all_reduce", ranks=4, count=1024), "ring")
    >>> len(schedule), schedule.ranks, schedule.describe(0)
    (28, 4, 'row 0 (transfer, rank 0 -> 1, channel 0, step 0)')
    """

    ranks: int
    styles: tuple[Style, ...]
    pieces: Pieces
    lags: tuple[Lag, ...]
    groups: tuple[tuple[int, ...], ...]
    style: NDArray[np.int32]
    src: NDArray[np.int32]
    dst: NDArray[np.int32]
    piece: NDArray[np.int32]
    step: NDArray[np.int32]
    dep_ptr: NDArray[np.int32]
    dep_row: NDArray[np.int32]
    dep_lag: NDArray[np.int16]
    release_row: NDArray[np.int32]
    release_time: NDArray[np.float64]
    collectives: tuple[str, ...] = field(default=("",))
    fold: Fold | None = None

    def __post_init__(self) -> None:
        for column in self.columns() + tuple(getattr(self.pieces, n) for n in Pieces.__slots__):
            column.setflags(write=False)

    def __len__(self) -> int:
        return len(self.style)

    def columns(self) -> tuple[NDArray[np.generic], ...]:
        """All arrays with one entry for each row, each dependency or each release."""
        return (
            self.style,
            self.src,
            self.dst,
            self.piece,
            self.step,
            self.dep_ptr,
            self.dep_row,
            self.dep_lag,
            self.release_row,
            self.release_time,
        )

    def style_column(self, name: str) -> NDArray[np.generic]:
        """By row, the attribute `name` of its style, such as `kind` or `channel`."""
        return np.array([getattr(style, name) for style in self.styles])[self.style]

    def stand_in(self, ranks: NDArray[np.int32]) -> NDArray[np.int32]:
        """The representative of each of `ranks`: the rank whose rows are in the schedule."""
        return ranks if self.fold is None else self.fold.ranks.first[ranks]

    @property
    def kind(self) -> NDArray[np.generic]:
        """By row, its kind (TRANSFER, LOCAL_COPY …)."""
        return self.style_column("kind")

    @property
    def count(self) -> NDArray[np.int64]:
        """By row, its number of elements."""
        return self.pieces.count[self.piece]

    @property
    def amount(self) -> NDArray[np.float64]:
        """By row, its bytes (or seconds of work)."""
        return self.pieces.amount[self.piece]

    @property
    def nbytes(self) -> int:
        """The bytes of memory that the columns take."""
        return sum(column.nbytes for column in self.columns())

    def dependencies(self, row: int) -> list[tuple[int, Lag]]:
        """The earlier rows that a row waits for, as pairs of a row and a lag."""
        span = slice(int(self.dep_ptr[row]), int(self.dep_ptr[row + 1]))
        both = zip(self.dep_row[span].tolist(), self.dep_lag[span].tolist(), strict=True)
        return [(earlier, self.lags[lag]) for earlier, lag in both]

    def members(self, row: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The ranks that a row reads from, and the ranks that it writes to."""
        kind = self.styles[int(self.style[row])].kind
        src = int(self.src[row])
        dst = int(self.dst[row])
        if kind == MULTICAST:
            return (src,), self.groups[dst]
        if kind == SWITCH_REDUCE:
            return self.groups[src], (dst,)
        return (src,), (dst,)

    def describe(self, row: int) -> str:
        """A row in words, for messages."""
        style = self.styles[int(self.style[row])]
        sources, targets = self.members(row)
        kind_name = KIND_NAMES[style.kind]
        where = f"rank {_span(sources)}"
        if style.kind not in (COMPUTE, MARK):
            where = f"rank {_span(sources)} -> {_span(targets)}"
        return (
            f"row {row} ({kind_name}, {where}, channel {style.channel}, step {int(self.step[row])})"
        )


def _span(ranks: tuple[int, ...]) -> str:
    """Ranks in words: one rank, or {0, 1, 2} for a group."""
    if len(ranks) == 1:
        return str(ranks[0])
    return "{" + ", ".join(map(str, ranks[:8])) + (", …}" if len(ranks) > 8 else "}")


def combine(schedules: Sequence[Schedule], ranks: Sequence[Sequence[int]], world: int) -> Schedule:
    """One schedule with the rows of several schedules, which run side by side without waiting for
    each other.

    Rank i of `schedules[k]` becomes rank `ranks[k][i]` of `world` ranks. Rows keep their order,
    schedule after schedule. Folded schedules are refused with a ValueError.

    >>> from netsim import Collective, build
    >>> pair = build(Collective("all_reduce", ranks=2, count=8), "ring")
    >>> both = combine([pair, pair], ranks=[(0, 2), (1, 3)], world=4)
    >>> both.ranks, len(both) == 2 * len(pair)
    (4, True)
    """
    if any(one.fold is not None for one in schedules):
        raise ValueError("schedules: expected them in full, got one that is folded")
    tables = _Tables(world)
    pairs = zip(schedules, ranks, strict=True)
    parts = [tables.add(one, np.asarray(who, np.int32)) for one, who in pairs]
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    lengths = np.cumsum([0, *(len(one.dep_row) for one in schedules)])
    pointers = [one.dep_ptr[:-1] + first for one, first in zip(schedules, lengths, strict=False)]
    ptr = np.concatenate([*pointers, lengths[-1:]]).astype(np.int32)
    names = [name for one in schedules for name in one.collectives]
    pieces = (
        np.concatenate([getattr(one.pieces, c) for one in schedules]) for c in Pieces.__slots__
    )
    return Schedule(
        ranks=world,
        styles=tuple(tables.styles),
        pieces=Pieces(*pieces),
        lags=tuple(tables.lags),
        groups=tuple(tables.groups),
        dep_ptr=ptr,
        release_time=np.concatenate([one.release_time for one in schedules]),
        collectives=tuple(names),
        fold=None,
        **columns,
    )


class _Tables:
    """The tables of styles, lags and groups of a combined schedule, which grow while it is made."""

    def __init__(self, world: int) -> None:
        self.world = world
        self.styles: dict[Style, int] = {}
        self.lags: dict[Lag, int] = {}
        self.groups: dict[tuple[int, ...], int] = {}
        self.rows = self.pieces = self.collectives = 0

    def add(
        self, schedule: Schedule, new_ranks: NDArray[np.int32]
    ) -> dict[str, NDArray[np.generic]]:
        """The columns of a schedule, by name, in the numbers of the shared tables.

        Its styles, lags and groups are added to the tables if they are new. Rank i of the schedule
        becomes rank `new_ranks[i]`.
        """
        if (
            len(new_ranks) != schedule.ranks
            or len(different(new_ranks)) < len(new_ranks)
            or new_ranks.max() >= self.world
        ):
            raise ValueError(
                f"expected {schedule.ranks} different ranks below {self.world}, got {new_ranks}"
            )
        styles = [replace(s, collective=s.collective + self.collectives) for s in schedule.styles]
        style = np.array([self.styles.setdefault(s, len(self.styles)) for s in styles], np.int32)
        lag = np.array([self.lags.setdefault(x, len(self.lags)) for x in schedule.lags], np.int16)
        members = [tuple(int(new_ranks[rank]) for rank in group) for group in schedule.groups]
        group = np.array([self.groups.setdefault(g, len(self.groups)) for g in members], np.int32)
        kinds = schedule.kind
        columns: dict[str, NDArray[np.generic]] = {
            "style": style[schedule.style],
            "src": _ends(schedule.src, new_ranks, group, kinds == SWITCH_REDUCE),
            "dst": _ends(schedule.dst, new_ranks, group, kinds == MULTICAST),
            "piece": schedule.piece + np.int32(self.pieces),
            "step": schedule.step,
            "dep_row": schedule.dep_row + np.int32(self.rows),
            "dep_lag": lag[schedule.dep_lag],
            "release_row": schedule.release_row + np.int32(self.rows),
        }
        self.rows += len(schedule)
        self.pieces += len(schedule.pieces.count)
        self.collectives += len(schedule.collectives)
        return columns


def _ends(
    column: NDArray[np.int32],
    new_ranks: NDArray[np.int32],
    group: NDArray[np.int32],
    grouped: NDArray[np.bool_],
) -> NDArray[np.int32]:
    """A column of sources or destinations in the numbers of the combined schedule.

    - `new_ranks`: by rank, its new number; `group`: by group, its new number.
    - `grouped`: by row, whether its entry is a group.
    """
    result = new_ranks[np.where(grouped, 0, column)]
    if grouped.any():
        result[grouped] = group[column[grouped]]
    return result
