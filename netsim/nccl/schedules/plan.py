"""The Plan: everything that NCCL has decided about one call, as a value that schedules are made of.

It says which channels run, over which ranks, on which part of the data and in which chunks, and
what execution costs. It knows no topology: how two ranks are linked is written down here.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from netsim.nccl.chunks import SLOTS, slot_bytes
from netsim.nccl.mechanism import MECHANISMS, Mechanism
from netsim.nccl.names import Protocol
from netsim.nccl.settings import NO_SETTINGS
from netsim.nccl.trees import Tree
from netsim.schedule import Fold, Symmetry
from netsim.values import dataclass

if TYPE_CHECKING:
    from netsim.nccl.schedules.rounds import Transfers

NET = "net"


@dataclass(frozen=True, slots=True)
class Work:
    """One channel's part of a collective: elements from `offset` on, in chunks of bytes."""

    channel: int
    offset: int
    count: int
    chunk: int


@dataclass(frozen=True, slots=True)
class Transfer:
    """One send and its receive: `parts` (bytes) go over `channels` in chunks; `batch` is the turn.

    `offset` and `target` say where the data lies in the source's input and the target's output, in
    elements.
    """

    src: int
    dst: int
    offset: int
    target: int
    parts: tuple[int, ...]
    channels: tuple[int, ...]
    chunk: int
    protocol: Protocol
    batch: int


@dataclass(frozen=True, slots=True)
class Lane:
    """A channel that is written down: for `multiplicity` equal ones, on `copies` sets of GPUs."""

    work: Work
    multiplicity: int = 1
    copies: int = 1
    number: int = 0


@dataclass(frozen=True)
class Plan:
    """One call as NCCL runs it.

    `node` is that of every rank. `rings`, `trees` and `heads` are by channel (heads: the ranks that
    reduce in a switch, by node, the same on all channels). `chains` are each node's ranks from the
    head on, by channel. `doors` are the NICs by which data goes to switches of the network that
    reduce: by head, or of chains by channel. `link` is what joins ranks of one node
    (nvlink, pcie, shm), `links` the exceptions by (source, destination); `routes` are the ways by
    (channel, source, destination). `direct`: ranks write straight into each other's output.
    `registered`: the switch reads and writes the user's buffers. `slots` is the depth of a FIFO.
    `fold`: equal channels become one row of their number; `symmetry`: what else is written down
    once; `places`: rows say where their data lies, which only checks and pictures ask for. `hops`:
    chunks go only so many ranks far in rings (0: all the way), which moves less than the call does,
    but shows what every hop adds. `memory` keeps what other sizes need again; it belongs to one
    communicator.
    """

    algorithm: str
    protocol: Protocol
    node: tuple[int, ...]
    work: tuple[Work, ...] = ()
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
    direct: bool = False
    registered: bool = False
    slots: int = SLOTS
    slot_bytes: int = 0  # 0: NCCL's default for the protocol
    fold: bool = True
    places: bool = True
    symmetry: Symmetry | None = None
    hops: int = 0
    memory: dict[object, Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def stands(self) -> Fold | None:
        """What stands for what in its schedule."""
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
        own = "staged" if self.link_of(src, dst) == "shm" else ""
        return self.routes.get((channel, src, dst), own)


def number_of(plan: Plan, channel: int, tells_apart: Callable[[], object]) -> int:
    """The same number for channels of a communicator that nothing tells apart: over very many ranks
    it takes long to say what does, so it is asked once for all sizes.
    """
    known: dict[int, int]
    known, numbers = plan.memory.setdefault(("channels alike", plan.algorithm), ({}, {}))
    if channel not in known:
        known[channel] = numbers.setdefault(tells_apart(), len(numbers))
    return known[channel]


def lanes_of(plan: Plan, keys: Mapping[int, object]) -> list[Lane]:
    """The lanes of all different channels; `keys` as for `folded`."""
    found = folded(plan, keys)
    return [Lane(work, times, 1, number) for number, (work, times) in enumerate(found)]


def written(plan: Plan, keys: Mapping[int, object]) -> list[Lane]:
    """The lanes that have to be written down; others are like one of them."""
    lanes, symmetry = lanes_of(plan, keys), plan.symmetry
    if symmetry is None:
        return lanes
    copies = symmetry.copies
    return [replace(lane, copies=copies[lane.number]) for lane in lanes if lane.number in copies]


def kept_places(
    plan: Plan, lane: Lane, nodes: Sequence[Sequence[int]]
) -> tuple[tuple[int, ...], int]:
    """Which of the ranks listed by node have to be written down, by their place in the list, and
    how many each stands for: where as many are alike on every node.
    """
    sizes = {len(ranks) for ranks in nodes}
    everyone = tuple(range(max(sizes)))
    if plan.symmetry is None or len(sizes) > 1:
        return everyone, 1
    kind = plan.symmetry.block[lane.number * len(plan.node) + np.array(nodes)]
    _, first, count = np.unique(kind, axis=1, return_index=True, return_counts=True)
    if len(set(count.tolist())) > 1:
        return everyone, 1
    return tuple(sorted(first.tolist())), int(count[0])


def folded(plan: Plan, keys: Mapping[int, object]) -> list[tuple[Work, int]]:
    """Each different piece of work and how many channels do the like, in order of channels.

    `keys` says by channel what else must be equal: order of ranks and ways.
    """
    if not plan.fold:
        return [(work, 1) for work in plan.work]
    groups: dict[object, list[Work]] = {}
    for work in plan.work:
        groups.setdefault((keys[work.channel], work.count, work.chunk), []).append(work)
    return [(group[0], len(group)) for group in groups.values()]
