"""The Plan: everything that NCCL has decided about one call, as a value that schedules are made of.

It says which channels run, over which ranks, on which part of the data and in which chunks, and
what execution costs. It knows no topology: it states itself how two ranks are linked."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field

import numpy as np
from numpy.typing import NDArray

from netsim.base.constants import value
from netsim.base.memo import Memo
from netsim.base.values import dataclass
from netsim.nccl.connect import Tree
from netsim.nccl.constants import MECHANISMS, Mechanism
from netsim.nccl.environment import NO_SETTINGS
from netsim.nccl.facts import Protocol
from netsim.nccl.schedules.transfers import Transfers
from netsim.nccl.split import SLOTS, slot_bytes

SEND_RECV = "SendRecv"  # NCCL's name for what has no algorithm
BEGIN_SENDS = value("begin.sends")
NET = "net"
WAYS = {"shm": "staged", NET: NET}  # by what joins two ranks, where no NICs are named

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Work:
    """One channel's part of a collective: elements from `offset` on, in chunks of bytes; those of
    its last loop are smaller, `last` (0: as little as all of them need)."""

    channel: int
    offset: int
    count: int
    chunk: int
    last: int = 0


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
    transfers: Transfers | None = None
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
    memo: Memo = field(default_factory=Memo, repr=False, compare=False)

    def start(self, mechanism: Mechanism, n_nodes: int) -> float:
        """Seconds of its kernel before the first byte, beyond the least of any."""
        if self.algorithm != SEND_RECV:
            return mechanism.start(self.protocol, self.n_channels)
        late = BEGIN_SENDS + (mechanism.network.pool_start if n_nodes > 1 else 0.0)
        return late + mechanism.start("LL", self.n_channels)  # one kernel for all protocols

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
    """A number that channels of a communicator share if `tells_apart` gives them equal values.

    Over very many ranks that function takes long, so it is called once for all sizes."""
    numbers: dict[object, int] = plan.memo.of(("numbers", plan.algorithm), dict)
    asked = "number", plan.algorithm, channel
    return plan.memo.of(asked, lambda: numbers.setdefault(tells_apart(), len(numbers)))
