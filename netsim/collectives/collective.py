"""The Collective: what every rank must hold before and after an operation; sizes and volumes.

Counts and offsets are in elements, sizes in bytes. A Collective follows nccl-tests in what a count
means and in how input and output share memory in place. It knows no algorithm and no schedule.
"""

from collections.abc import Callable, Sequence
from operator import index

import numpy as np
from numpy.typing import NDArray

from netsim.base.errors import InputError, suggest
from netsim.base.values import dataclass
from netsim.schedule.schedule import IN, MULTICAST, OUT, SCRATCH, SWITCH_REDUCE, TRANSFER, Schedule


@dataclass(frozen=True, slots=True)
class Expectation:
    """A range of a rank's output, and the ranks whose inputs must be summed in it.

    Element `offset + k` of the output, for k in 0 … count - 1, must be the sum over `origins`
    (ranks) of element `origin_offset + k` of their inputs, with each rank counted once. Offsets and
    count are in elements.
    """

    offset: int
    count: int
    origins: tuple[int, ...]
    origin_offset: int


@dataclass(frozen=True, slots=True)
class Blocks:
    """The block of data that each rank (first axis) sends to each rank (second axis) of an
    all-to-all.

    - `count`: elements of each block.
    - `in_offset`: where the block begins in the sender's input, in elements.
    - `out_offset`: where the block begins in the receiver's output, in elements.
    """

    count: NDArray[np.int64]
    in_offset: NDArray[np.int64]
    out_offset: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class LocalData:
    """Ranges of input data that belong to the output of the same rank; out of place they are
    copied.

    The four columns have one entry for each range: its rank, its offsets in the input and in the
    output of that rank, and its length, in elements.
    """

    rank: NDArray[np.int64]
    in_offset: NDArray[np.int64]
    out_offset: NDArray[np.int64]
    count: NDArray[np.int64]


NAMES = (
    "all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "alltoall", "alltoallv",
    "gather", "scatter", "sendrecv", "p2p", "barrier",
)  # fmt: skip
REDUCING = frozenset({"all_reduce", "reduce_scatter", "reduce"})
ROOTED = frozenset({"broadcast", "reduce", "gather", "scatter"})
# Collectives with an in-place variant. nccl-tests also prints "in place" columns for the other
# collectives, but it does not verify them, and they share no memory.
HAS_IN_PLACE = REDUCING | ROOTED | {"all_gather"}


class CollectiveError(InputError, ValueError):
    """The error for a collective that cannot exist; `field` is the name of the wrong argument."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.args = (field, message)
        self.field = field

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"


@dataclass(frozen=True)
class Collective:
    """One collective operation over ranks 0 … n-1: what every rank holds before and after it.

    - `name`: one of `NAMES`, such as all_reduce.
    - `ranks`: the number of ranks.
    - `count`: nccl-tests' count argument, in elements: of each rank for all_gather, reduce_scatter,
      gather and scatter, of each peer for alltoall, of each pair for p2p, in all for the others.
    - `element_bytes`: bytes of an element (4: float).
    - `root`: the root of a broadcast, reduce, gather or scatter.
    - `in_place`: whether input and output share memory, as nccl-tests defines it.
    - `matrix`: for alltoallv, `matrix[s][d]` elements go from rank s to rank d. In the input of s
      the blocks lie in the order of d, in the output of d in the order of s.
    - `pairs`: for p2p, the (source, destination) of each message. Messages that a rank sends lie in
      its input, and those that it receives in its output, in the order of `pairs`.

    >>> collective = Collective("all_reduce", ranks=8, count=2**20, element_bytes=4)
    >>> collective.size_bytes, collective.bus_factor
    (4194304, 1.75)

    Impossible arguments, such as 0 ranks, raise a CollectiveError (an InputError).
    """

    name: str
    ranks: int
    count: int = 0
    element_bytes: int = 4
    root: int = 0
    in_place: bool = False
    matrix: tuple[tuple[int, ...], ...] = ()
    pairs: tuple[tuple[int, int], ...] = ()

    def __post_init__(self) -> None:
        for name, unit in WHOLE_NUMBERS.items():
            object.__setattr__(self, name, _whole_number(name, getattr(self, name), unit))
        object.__setattr__(self, "matrix", tuple(tuple(map(int, row)) for row in self.matrix))
        object.__setattr__(self, "pairs", tuple((int(s), int(d)) for s, d in self.pairs))
        _check(self)

    @property
    def printed_count(self) -> int:
        """The number of elements in the "count" column of a table, as nccl-tests prints it.

        For alltoallv, whose blocks may differ: the elements that the busiest rank sends or
        receives, divided by the number of ranks. With equal blocks this is the count of an
        alltoall.

        >>> collective_of("alltoallv", 4, 1024).printed_count
        64
        """
        if self.name != "alltoallv":
            return self.count
        sent = [sum(row) for row in self.matrix]
        received = [sum(column) for column in zip(*self.matrix, strict=True)]
        busiest: int = max([*sent, *received])
        return busiest // self.ranks

    @property
    def size_bytes(self) -> int:
        """The size in bytes as nccl-tests prints it: the largest input or output of any rank."""
        uneven = self.name in ("alltoallv", "p2p")  # otherwise nobody has more than the root
        ends = range(self.ranks) if uneven else [self.root]
        largest = max(max(self.input_count(r), self.output_count(r)) for r in ends)
        return largest * self.element_bytes

    @property
    def bus_factor(self) -> float:
        """The bus bandwidth divided by the algorithm bandwidth, as nccl-tests defines it."""
        if self.name == "all_reduce":
            return 2 * (self.ranks - 1) / self.ranks
        if self.name in ("broadcast", "reduce", "sendrecv", "p2p"):
            return 1.0
        return 0.0 if self.name == "barrier" else (self.ranks - 1) / self.ranks

    @property
    def reducing(self) -> bool:
        """Whether the collective sums the inputs of several ranks."""
        return self.name in REDUCING

    def input_count(self, rank: int) -> int:
        """The number of elements in the input of a rank."""
        return self._extent(rank, 0)

    def output_count(self, rank: int) -> int:
        """The number of elements in the output of a rank."""
        return self._extent(rank, 1)

    def _extent(self, rank: int, end: int) -> int:
        """The elements in the input (`end` 0) or output (`end` 1) of a rank."""
        if self.name == "p2p":
            return self.count * sum(pair[end] == rank for pair in self.pairs)
        if self.name == "alltoallv":
            return sum(row[rank] for row in self.matrix) if end else sum(self.matrix[rank])
        blocks = BLOCKS[self.name][end][rank == self.root]
        return self.count * (self.ranks if blocks == ALL else blocks)

    def location(self, rank: int, buffer: int) -> tuple[int, int]:
        """The physical buffer that holds a rank's logical `buffer` (IN, OUT or SCRATCH), as (number
        of the physical buffer, offset of the logical buffer in it in elements).

        In place, input and output share the larger of the two. The input of rank 2 of an
        all-gather, for instance, begins at element 2 * count of the output.
        """
        if not self.in_place or buffer == SCRATCH:
            return buffer, 0
        if self.name in ("all_gather", "gather"):
            return OUT, rank * self.count if buffer == IN else 0
        if self.name in ("reduce_scatter", "scatter"):
            return IN, rank * self.count if buffer == OUT else 0
        return OUT, 0

    def expectations(self, rank: int) -> list[Expectation]:
        """The ranges of a rank's output, each with the ranks whose inputs must be summed in it."""
        return EXPECTATIONS[self.name](self, rank)

    def blocks(self) -> Blocks:
        """The counts and offsets of the blocks from each rank to each rank of an alltoall or
        alltoallv.
        """
        if self.name == "alltoall":
            count = np.full((self.ranks, self.ranks), self.count, np.int64)
        else:
            count = np.array(self.matrix, np.int64).reshape(self.ranks, self.ranks)
        return Blocks(count, np.cumsum(count, 1) - count, np.cumsum(count, 0) - count)

    def pair_offsets(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """For each p2p pair, the offset of its message in the source's input and in the
        destination's output, in elements: two arrays with an entry for each pair.
        """
        return tuple(_occurrence([p[end] for p in self.pairs]) * self.count for end in (0, 1))  # type: ignore[return-value]

    def local_data(self) -> LocalData:
        """The non-empty ranges of data that stay on their rank."""
        if self.name == "alltoall":
            ranks = np.arange(self.ranks, dtype=np.int64)
            place = ranks * self.count
            table = np.stack([ranks, place, place, np.full_like(ranks, self.count)])
        elif self.name == "alltoallv":
            blocks = self.blocks()
            columns = [np.diagonal(x) for x in (blocks.in_offset, blocks.out_offset, blocks.count)]
            table = np.stack([np.arange(self.ranks, dtype=np.int64), *columns])
        elif self.name == "p2p":
            to_itself = [k for k, (s, d) in enumerate(self.pairs) if s == d]
            source, target = self.pair_offsets()
            ranks = np.array([self.pairs[k][0] for k in to_itself], np.int64)
            counts = np.full_like(ranks, self.count)
            table = np.stack([ranks, source[to_itself], target[to_itself], counts])
        else:
            lines = [(r, *LOCAL_DATA[self.name](self, r)) for r in range(self.ranks)]
            table = np.array(lines, np.int64).T
        return LocalData(*table[:, table[3] > 0])


# Fields of a Collective that must be whole numbers, with the unit that an error message names.
WHOLE_NUMBERS = {"ranks": "ranks", "count": "elements", "element_bytes": "bytes", "root": "ranks"}
MOST_BYTES = 2**62  # of all ranks together: offsets are 64-bit integers


def _whole_number(name: str, value: object, unit: str) -> int:
    """`value` as a Python int, also from numpy's integers; anything else raises a
    CollectiveError.
    """
    if not isinstance(value, bool):
        try:
            return index(value)  # type: ignore[arg-type]
        except TypeError:
            pass
    raise CollectiveError(name, f"expected a whole number of {unit}, got {value!r}")


def _check(c: Collective) -> None:
    """Raise a CollectiveError that names the argument unless all arguments are possible."""
    if c.name not in NAMES:
        expected = f"expected one of {', '.join(NAMES)}"
        raise CollectiveError("collective", f"{expected}, got {c.name!r}{suggest(c.name, NAMES)}")
    for name, least in (("ranks", 1), ("count", 0), ("element_bytes", 1)):
        if getattr(c, name) < least:
            raise CollectiveError(name, f"expected at least {least}, got {getattr(c, name)}")
    if c.count * c.ranks * c.element_bytes > MOST_BYTES:
        most = f"expected at most {MOST_BYTES} bytes on all ranks"
        raise CollectiveError("count", f"{most}, got {c.count} elements on {c.ranks} ranks")
    if not 0 <= c.root < c.ranks:
        raise CollectiveError("root", f"expected a rank in 0..{c.ranks - 1}, got {c.root}")
    if c.in_place and c.name not in HAS_IN_PLACE:
        raise CollectiveError("in_place", f"{c.name} does not exist in place")
    _check_matrix(c)
    if c.pairs and c.name != "p2p":
        raise CollectiveError("pairs", f"only p2p has pairs, not {c.name}")
    for source, target in c.pairs:
        wrong = next((rank for rank in (source, target) if not 0 <= rank < c.ranks), None)
        if wrong is not None:
            expected = f"expected ranks in 0..{c.ranks - 1}"
            raise CollectiveError("pairs", f"{expected}, got {wrong} in [{source}, {target}]")


def _check_matrix(c: Collective) -> None:
    """Raise a CollectiveError unless an alltoallv, and nothing else, has a square matrix
    of counts.
    """
    if c.name != "alltoallv":
        if c.matrix:
            raise CollectiveError("matrix", f"only alltoallv has a matrix, not {c.name}")
        return
    if len(c.matrix) != c.ranks or any(len(row) != c.ranks for row in c.matrix):
        raise CollectiveError("matrix", f"expected {c.ranks} rows of {c.ranks} counts")
    if any(count < 0 for row in c.matrix for count in row):
        raise CollectiveError("matrix", "counts must not be negative")


def _occurrence(values: Sequence[int]) -> NDArray[np.int64]:
    """How often each value occurred before, by position: [5, 7, 5] gives [0, 0, 1]."""
    seen: dict[int, int] = {}
    places = []
    for value in values:
        places.append(seen.get(value, 0))
        seen[value] = places[-1] + 1
    return np.array(places, np.int64)


# The sizes of inputs and outputs by collective, in blocks of `count` elements: ((input of a rank
# that is not the root, input of the root), (output of a rank that is not the root, output of the
# root)). ALL: as many blocks as there are ranks.
ALL = -1
BLOCKS: dict[str, tuple[tuple[int, int], tuple[int, int]]] = {
    "all_reduce": ((1, 1), (1, 1)),
    "all_gather": ((1, 1), (ALL, ALL)),
    "reduce_scatter": ((ALL, ALL), (1, 1)),
    "broadcast": ((0, 1), (1, 1)),
    "reduce": ((1, 1), (0, 1)),
    "alltoall": ((ALL, ALL), (ALL, ALL)),
    "gather": ((1, 1), (0, ALL)),
    "scatter": ((0, ALL), (1, 1)),
    "sendrecv": ((1, 1), (1, 1)),
    "barrier": ((0, 0), (0, 0)),
}


def _everyone(c: Collective, origin_offset: int = 0) -> list[Expectation]:
    """One range: the whole output. It must be the sum of `c.count` elements of every rank's input,
    from element `origin_offset` of the input on.
    """
    return [Expectation(0, c.count, tuple(range(c.ranks)), origin_offset)]


def _each_block(c: Collective) -> list[Expectation]:
    """One range of the output for each rank, in rank order; it must equal the rank's input."""
    return [Expectation(r * c.count, c.count, (r,), 0) for r in range(c.ranks)]


def _exchanged(c: Collective, rank: int) -> list[Expectation]:
    """The ranges of the output of `rank` in an alltoall or alltoallv: one for each source rank,
    which must equal the block that the source sends to `rank`.
    """
    blocks = c.blocks()
    columns = (blocks.out_offset, blocks.count, blocks.in_offset)
    offset, count, origin = (table[:, rank].tolist() for table in columns)
    return [Expectation(offset[s], count[s], (s,), origin[s]) for s in range(c.ranks)]


def _paired(c: Collective, rank: int) -> list[Expectation]:
    """The ranges of the output of `rank` in a p2p: one for each message that it receives."""
    source, target = c.pair_offsets()
    received = [(k, s) for k, (s, d) in enumerate(c.pairs) if d == rank]
    return [Expectation(int(target[k]), c.count, (s,), int(source[k])) for k, s in received]


EXPECTATIONS: dict[str, Callable[[Collective, int], list[Expectation]]] = {
    "all_reduce": lambda c, rank: _everyone(c),
    "all_gather": lambda c, rank: _each_block(c),
    "reduce_scatter": lambda c, rank: _everyone(c, rank * c.count),
    "broadcast": lambda c, rank: [Expectation(0, c.count, (c.root,), 0)],
    "reduce": lambda c, rank: _everyone(c) if rank == c.root else [],
    "alltoall": _exchanged,
    "alltoallv": _exchanged,
    "gather": lambda c, rank: _each_block(c) if rank == c.root else [],
    "scatter": lambda c, rank: [Expectation(0, c.count, (c.root,), rank * c.count)],
    "sendrecv": lambda c, rank: [Expectation(0, c.count, ((rank - 1) % c.ranks,), 0)],
    "p2p": _paired,
    "barrier": lambda c, rank: [],
}


def _local_if_alone(c: Collective, rank: int) -> tuple[int, int, int]:
    """The local data (input offset, output offset, count) of a collective that moves data only
    between different ranks: everything if there is a single rank, otherwise nothing.
    """
    return 0, 0, c.count if c.ranks == 1 else 0


# By collective, a function that returns (input offset, output offset, count) of the data that stays
# on a rank, in elements.
LOCAL_DATA: dict[str, Callable[[Collective, int], tuple[int, int, int]]] = {
    "all_reduce": _local_if_alone,
    "all_gather": lambda c, rank: (0, rank * c.count, c.count),
    "reduce_scatter": _local_if_alone,
    "broadcast": lambda c, rank: (0, 0, c.count if rank == c.root else 0),
    "reduce": _local_if_alone,
    "gather": lambda c, rank: (0, rank * c.count, c.count if rank == c.root else 0),
    "scatter": lambda c, rank: (rank * c.count, 0, c.count if rank == c.root else 0),
    "sendrecv": _local_if_alone,
    "barrier": lambda c, rank: (0, 0, 0),
}


# Collectives whose size nccl-tests divides among the ranks, in blocks of a multiple of 16 bytes.
DIVIDED = frozenset({"all_gather", "reduce_scatter", "alltoall", "gather", "scatter"})
ALIGNMENT = 16


def collective_of(
    name: str,
    ranks: int,
    size_bytes: int,
    element_bytes: int = 4,
    *,
    root: int = 0,
    in_place: bool = False,
    matrix: Sequence[Sequence[int]] = (),
    pairs: Sequence[tuple[int, int]] = (),
) -> Collective:
    """The collective that nccl-tests runs for a size of `size_bytes`.

    As in nccl-tests, the size is rounded down to whole elements on every rank, and for the
    collectives of `DIVIDED` to blocks of 16 bytes, so `size_bytes` of the result may be less. For
    alltoallv, `matrix` holds integer weights (all equal by default), which are scaled such that the
    busiest rank sends or receives `size_bytes`. `name`, `ranks`, `element_bytes`, `root`,
    `in_place` and `pairs` are those of Collective.

    >>> collective = collective_of("all_gather", ranks=8, size_bytes=1000)
    >>> collective.count, collective.size_bytes
    (28, 896)
    """
    if size_bytes < 0 or element_bytes < 1 or ranks < 1:
        got = (size_bytes, element_bytes, ranks)
        raise CollectiveError("size", f"expected bytes, element bytes and ranks, got {got}")
    count = size_bytes // element_bytes
    if name in DIVIDED:
        step = max(1, ALIGNMENT // element_bytes)
        count = count // ranks // step * step
    if name == "alltoallv":
        matrix = scaled(matrix or [[1] * ranks] * ranks, count)
        count = 0
    if name == "barrier":
        count = 0
    blocks = tuple(map(tuple, matrix))
    ends = tuple((s, d) for s, d in pairs)
    return Collective(name, ranks, count, element_bytes, root, in_place, blocks, ends)


def scaled(weights: Sequence[Sequence[int]], count: int) -> tuple[tuple[int, ...], ...]:
    """The largest whole counts in proportion to `weights` such that every row and every column adds
    up to at most `count`.
    """
    rows = [[int(w) for w in row] for row in weights]
    busiest = max([sum(row) for row in rows] + [sum(column) for column in zip(*rows, strict=False)])
    if busiest == 0:
        return tuple(tuple(row) for row in rows)
    return tuple(tuple(w * count // busiest for w in row) for row in rows)


Bytes = NDArray[np.float64]


def volumes(schedule: Schedule) -> tuple[Bytes, Bytes]:
    """The bytes that each rank sends in a schedule, and the bytes that each receives: two arrays by
    rank.

    A multicast counts once for its sender.

    >>> from netsim import build
    >>> sent, received = volumes(build(Collective("all_reduce", ranks=4, count=1000), "ring"))
    >>> sent.tolist()  # 2 (n - 1) / n of 4000 bytes
    [6000.0, 6000.0, 6000.0, 6000.0]
    """
    kind = schedule.kind
    nbytes: Bytes = np.multiply(schedule.amount, schedule.style_column("multiplicity"))
    plain = kind == TRANSFER
    sent, received = (
        np.bincount(end[plain], nbytes[plain], schedule.ranks).astype(np.float64)
        for end in (schedule.src, schedule.dst)
    )
    for row in np.flatnonzero((kind == MULTICAST) | (kind == SWITCH_REDUCE)).tolist():
        sources, targets = schedule.members(row)
        sent[list(sources)] += nbytes[row]
        received[list(targets)] += nbytes[row]
    return sent, received
