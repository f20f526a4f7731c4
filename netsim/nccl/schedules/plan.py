"""The Plan: everything that NCCL has decided about one call, as a value that schedules are made of.

It says which channels run, over which ranks, on which part of the data and in which chunks, and
what execution costs. It knows no topology: it states itself how two ranks are linked."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from netsim.base.constants import value
from netsim.base.memo import Memo
from netsim.base.values import dataclass, grouped
from netsim.collectives.collective import Collective
from netsim.nccl.connect import Tree
from netsim.nccl.constants import MECHANISMS, Mechanism
from netsim.nccl.environment import NO_SETTINGS
from netsim.nccl.facts import Protocol
from netsim.nccl.p2p import BATCH, P2pWork, Rounds, Sends, distinct_rows
from netsim.nccl.split import SLOTS, slot_bytes
from netsim.schedule.schedule import Fold, Symmetry

SEND_RECV = "SendRecv"  # NCCL's name for what has no algorithm
BEGIN_SENDS = value("begin.sends")
NET = "net"
WAYS = {"shm": "staged", NET: NET}  # by what joins two ranks, where no NICs are named


@dataclass(frozen=True, slots=True)
class Work:
    """One channel's part of a collective: elements from `offset` on, in chunks of bytes; those of
    its last loop are smaller, `last` (0: as little as all of them need)."""

    channel: int
    offset: int
    count: int
    chunk: int
    last: int = 0


@dataclass(frozen=True, slots=True)
class Lane:
    """A channel whose rows are written: it represents `multiplicity` equal ones, on `copies` sets
    of GPUs."""

    work: Work
    multiplicity: int = 1
    copies: int = 1
    number: int = 0


@dataclass(frozen=True)
class Plan:
    """One call as NCCL runs it: its decisions, and the ranks and links that it runs on.

    - `algorithm`, `protocol`, `work`, `n_channels`: NCCL's choice and the share of each channel. Of
      grouped sends the protocol names those inside nodes and between them.
    - `tuned`: a tuner made the choice; it runs no differently.
    - `node`: the node of every rank.
    - `rings`, `trees`: by channel. `heads`: the ranks that reduce in a switch, by node, the same on
      all channels. `chains`: each node's ranks from the head on, by channel.
    - `doors`: the NICs through which data goes to switches of the network that reduce, by head (of
      chains by channel).
    - `transfers`: the messages of grouped sends.
    - `mechanism`: what execution costs.
    - `link`: what joins ranks of one node (nvlink, pcie, shm); `links`: exceptions by (source,
      destination). `routes`: routes by (channel, source, destination); `far`: the route between
      nodes where none is stated.
    - `direct`: ranks write directly into each other's output. `registered`: the switch reads and
      writes the user's buffers. `cached`: these stay in the GPU's L2. `crowded`: several ranks send
      to one through a switch.
    - `slots`, `slot_bytes`: depth of a FIFO, and the bytes of a slot.
    - `fold`: equal channels become one row; `symmetry`: what else is represented.
    - `places`: rows state which data they move, which only proofs need.
    - `hops`: chunks go at most so far in rings (0: all the way). That moves less than the call, but
      shows what every hop adds.
    - `memo`: results that other sizes of the communicator need again.
    """

    algorithm: str
    protocol: Protocol
    node: tuple[int, ...] = ()
    work: tuple[Work, ...] = ()
    n_channels: int = 0
    tuned: bool = field(default=False, compare=False)
    rings: Sequence[tuple[int, ...]] = ()
    trees: Sequence[Tree] = ()
    heads: tuple[tuple[int, ...], ...] = ()
    chains: tuple[tuple[tuple[int, ...], ...], ...] = ()
    doors: tuple[str, ...] = ()
    transfers: "Transfers | None" = None
    mechanism: Mechanism = MECHANISMS[90]
    link: str = "nvlink"
    links: Mapping[tuple[int, int], str] = field(default_factory=dict)
    routes: Mapping[tuple[int, int, int], str] = field(default_factory=dict)
    far: str = NET
    direct: bool = False
    registered: bool = False
    cached: bool = False
    crowded: bool = False
    slots: int = SLOTS
    slot_bytes: int = 0  # 0: NCCL's default for the protocol
    fold: bool = True
    places: bool = True
    symmetry: Symmetry | None = None
    hops: int = 0
    memo: Memo = field(default_factory=Memo, repr=False, compare=False)

    def start(self, mechanism: Mechanism, n_nodes: int) -> float:
        """Seconds of its kernel before the first byte, beyond the least of any."""
        if self.algorithm != SEND_RECV:
            return mechanism.start(self.protocol, self.n_channels)
        late = BEGIN_SENDS + (mechanism.network.pool_start if n_nodes > 1 else 0.0)
        return late + mechanism.start("LL", self.n_channels)  # one kernel for all protocols

    @property
    def stands(self) -> Fold | None:
        """The representatives of its schedule, if it is folded."""
        return None if self.symmetry is None else self.symmetry.fold

    @property
    def slot(self) -> int:
        """Data bytes of one FIFO slot."""
        return self.slot_bytes or slot_bytes(self.protocol, NO_SETTINGS)

    @property
    def nodes(self) -> list[tuple[int, ...]]:
        """The ranks of every node."""
        found = [list[int]() for _ in range(max(self.node) + 1)]
        for rank, home in enumerate(self.node):
            found[home].append(rank)
        return [tuple(ranks) for ranks in found]

    def link_of(self, src: int, dst: int) -> str:
        """What joins two ranks: nvlink, pcie, shm or net."""
        if self.node[src] != self.node[dst]:
            return NET
        return self.links.get((src, dst), self.link)

    def route_of(self, channel: int, src: int, dst: int) -> str:
        """The way of a hop through the topology."""
        apart = self.node[src] != self.node[dst]
        own = self.far if apart else WAYS.get(self.link_of(src, dst), "")
        return self.routes.get((channel, src, dst), own)


def number_of(plan: Plan, channel: int, tells_apart: Callable[[], object]) -> int:
    """The same number for channels of a communicator that nothing tells apart: over very many ranks
    it takes long to say what does, so it is asked once for all sizes."""
    numbers: dict[object, int] = plan.memo.of(("numbers", plan.algorithm), dict)
    asked = "number", plan.algorithm, channel
    return plan.memo.of(asked, lambda: numbers.setdefault(tells_apart(), len(numbers)))


def lanes_of(plan: Plan, keys: Mapping[int, object]) -> list[Lane]:
    """The lanes of all different channels; `keys` as for `folded`."""
    found = folded(plan, keys)
    return [Lane(work, times, 1, number) for number, (work, times) in enumerate(found)]


def written(plan: Plan, keys: Mapping[int, object]) -> list[Lane]:
    """The lanes that are written; each of the others is equal to one of them."""
    lanes, symmetry = lanes_of(plan, keys), plan.symmetry
    if symmetry is None:
        return lanes
    copies = symmetry.copies
    return [replace(lane, copies=copies[lane.number]) for lane in lanes if lane.number in copies]


def kept_places(plan: Plan, lane: Lane, nodes: Sequence[Sequence[int]]) -> dict[int, int]:
    """The ranks that are written, by place in their node, and how many each represents."""
    sizes = {len(ranks) for ranks in nodes}
    if plan.symmetry is None or len(sizes) > 1:
        return dict.fromkeys(range(max(sizes)), 1)
    kind = plan.symmetry.block[lane.number * len(plan.node) + np.array(nodes)]
    _, first, count = np.unique(kind, axis=1, return_index=True, return_counts=True)
    return dict(sorted(zip(first.tolist(), count.tolist(), strict=True)))


def folded(plan: Plan, keys: Mapping[int, object]) -> list[tuple[Work, int]]:
    """Each different work and the number of channels with an equal one, in order of channels.

    `keys` says by channel what else must be equal: order of ranks and routes."""
    if not plan.fold:
        return [(work, 1) for work in plan.work]
    groups = grouped(plan.work, lambda work: (keys[work.channel], work.count, work.chunk))
    return [(group[0], len(group)) for group in groups.values()]


# Rounds: which sends a collective becomes, in which batch, on which channels, in which parts.
# It follows NCCL's order of rounds; collectives are alltoall, gather, scatter and the like. Sends
# are columns, and those of equal parts share a work: an alltoall has as many as pairs of ranks.

Ints = NDArray[np.int64]
Messages = tuple[Ints, Ints, Ints, Ints, Ints]


@dataclass(frozen=True, eq=False)
class Columns:
    """Sends one by one: their ends, where their data lies in the source's input and the target's
    output (elements), the round, and the work of each as a place in `works`."""

    src: Ints
    dst: Ints
    offset: Ints
    target: Ints
    number: Ints
    work: Ints
    works: tuple[P2pWork, ...]


@dataclass(frozen=True)
class Transfers:
    """All sends of a collective as NCCL plans them.

    Each part has `less` fewer loops, and only those of the `first` rounds are written (0: all)."""

    collective: Collective
    rounds: Rounds
    sends: Sends
    less: int = 0
    first: int = 0

    @cached_property
    def columns(self) -> Columns:
        """All of them, by source."""
        return self.of(np.arange(self.collective.ranks))

    def of(self, sources: Ints) -> Columns:
        """The sends of some ranks."""
        return self._columns(self._written(messages_of(self.collective, sources)))

    def among(self, src: Ints, dst: Ints) -> Columns:
        """The sends between some pairs, where everyone sends as much to everyone."""
        c = self.collective
        return self._columns((src, dst, dst * c.count, src * c.count, np.full(len(src), c.count)))

    def _columns(self, messages: Messages) -> Columns:
        src, dst, offset, target, count = messages
        number = self.rounds.numbers(src, dst)
        first = self.rounds.channels(number, self.sends.channels.total)
        kinds = (count * self.collective.element_bytes, first, self.rounds.crosses(src, dst))
        found, work = distinct_rows(kinds)
        works = tuple(
            self.sends.work(nbytes, base, self.rounds, over_network=bool(crosses)).shorter(
                self.less
            )
            for nbytes, base, crosses in found
        )
        return Columns(src, dst, offset, target, number, work, works)

    def into(self, targets: Ints) -> tuple[Ints, Ints, Ints]:
        """Source, target and round of all sends to some ranks."""
        src, dst, *_ = self._written(messages_of(self.collective, targets, to=True))
        return src, dst, self.rounds.numbers(src, dst)

    @property
    def turn(self) -> int:
        """Rounds in which each channel has a batch."""
        return BATCH * self.sends.channels.total

    def _written(self, messages: Messages) -> Messages:
        if not self.first:
            return messages
        kept = self.rounds.numbers(*messages[:2]) < self.first
        src, dst, offset, target, count = (column[kept] for column in messages)
        return src, dst, offset, target, count

    def works(self) -> list[P2pWork]:
        """One of each size of part and chunk that there is."""
        if self.collective.name != "alltoall":
            return list(self.columns.works)
        # Ranks of nodes of one size have equal work.
        _, first = np.unique(self.rounds.seats.size, return_index=True)
        return list(self.of(self.rounds.seats.ranks[self.rounds.seats.start[first]]).works)


def messages_of(c: Collective, ranks: Ints, *, to: bool = False) -> Messages:
    """What some ranks have for others, by source, or what others have for them (`to`), by target:
    both ends, where it lies in the input of the one and the output of the other, and elements.
    Nothing empty; in place, own data stays where it is."""
    columns = _messages(c, ranks, to=to)
    moved = (columns[4] > 0) & ~(c.in_place & (columns[0] == columns[1]))
    src, dst, offset, target, count = (column[moved] for column in columns)
    return src, dst, offset, target, count


def _messages(c: Collective, ranks: Ints, *, to: bool) -> tuple[Ints, ...]:
    if c.name in ("alltoall", "alltoallv"):
        src, dst = np.repeat(ranks, c.ranks), np.tile(np.arange(c.ranks), len(ranks))
        if to:
            src, dst = dst, src
        if c.name == "alltoall":
            return src, dst, dst * c.count, src * c.count, np.full(len(src), c.count)
        blocks = c.blocks()
        table = (blocks.in_offset, blocks.out_offset, blocks.count)
        return src, dst, *(column[src, dst] for column in table)
    if c.name not in ENDS:
        raise ValueError(f"collective: {c.name} does not run as sends and receives")
    columns = np.broadcast_arrays(*ENDS[c.name](c), c.count)
    some = np.isin(columns[int(to)], ranks)
    return tuple(column[some] for column in columns)


def _pairs(c: Collective) -> tuple[ArrayLike, ...]:
    return *np.array(c.pairs, np.int64).reshape(-1, 2).T, *c.pair_offsets()


# Sources, destinations and both offsets of what is sent where not everyone sends to everyone.
ENDS: dict[str, Callable[[Collective], tuple[ArrayLike, ...]]] = {
    "gather": lambda c: (np.arange(c.ranks), c.root, 0, np.arange(c.ranks) * c.count),
    "scatter": lambda c: (c.root, np.arange(c.ranks), np.arange(c.ranks) * c.count, 0),
    "sendrecv": lambda c: (np.arange(c.ranks), (np.arange(c.ranks) + 1) % c.ranks, 0, 0),
    "p2p": _pairs,
}
