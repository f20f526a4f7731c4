"""The Plan: everything that NCCL has decided about one call, from which its schedule is written.

It states which channels run, over which ranks, on which part of the data and in which chunks, and
what execution costs. A plan refers to no topology: it states itself how two ranks are linked.
"""

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

SEND_RECV = "SendRecv"  # the algorithm of calls without one: grouped sends and receives
BEGIN_SENDS = value("begin.sends")  # seconds before the kernel of grouped sends starts
NET = "net"
# By the kind of a link, the name of the route over it, if the plan states no other.
ROUTES_BY_LINK = {"shm": "staged", NET: NET}

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Work:
    """One channel's part of a collective.

    - `offset`, `count`: where the part begins in the data of the call, and its size, in elements.
    - `chunk`: the bytes of a chunk.
    - `last`: the bytes of a chunk of the last loop (0: as few as the rest of the data needs).
    """

    channel: int
    offset: int
    count: int
    chunk: int
    last: int = 0


@dataclass(frozen=True)
class Plan:
    """One call as NCCL runs it: its decisions, and the ranks and links that it runs on.

    - `algorithm`, `protocol`: NCCL's choice. Grouped sends may use two protocols: "LL/Simple".
    - `work`, `n_channels`: the part of each channel, and the number of channels.
    - `tuned`: whether a tuner plugin made the choice, which has no effect on the schedule.
    - `node`: the node of every rank.
    - `rings`, `trees`: by channel.
    - `heads`: by node, the ranks that reduce in a switch; all channels have the same.
    - `chains`: by channel and node, the ranks of the node, beginning with the head.
    - `nic_routes`: by number of the head (of chains: by channel), the name of the route to the NIC
      from which a head's data goes to the reducing switches of the network.
    - `transfers`: the messages of grouped sends.
    - `mechanism`: what execution costs.
    - `link`: the kind of link between ranks of one node (nvlink, pcie, phb, shm).
    - `links`: exceptions from `link`, by (source, destination).
    - `routes`: names of routes by (channel, source, destination).
    - `far`: the name of the route between nodes if `routes` has none.
    - `direct`: whether ranks write directly into each other's output.
    - `registered`: whether switches read and write the user's buffers.
    - `cached`: whether the user's buffers stay in the GPU's L2 cache.
    - `crowded`: whether several ranks send to one rank through a switch.
    - `slots`, `slot_bytes`: the number of slots of a FIFO, and the data bytes of a slot (0: NCCL's
      default for the protocol).
    - `memo`: a cache of results that other sizes of the same communicator need, too.
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
    nic_routes: tuple[str, ...] = ()
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
        """Return the seconds from the start of the kernel until its last block sends a first byte.

        From these the seconds of the fastest case (one block, protocol LL, Hopper) are subtracted.
        """
        if self.algorithm != SEND_RECV:
            return mechanism.start(self.protocol, self.n_channels)
        late = BEGIN_SENDS + (mechanism.network.pool_start if n_nodes > 1 else 0.0)
        return late + mechanism.start("LL", self.n_channels)  # one kernel for all protocols

    @property
    def slot(self) -> int:
        """The data bytes of one slot of a FIFO."""
        return self.slot_bytes or slot_bytes(self.protocol, NO_SETTINGS)

    @property
    def nodes(self) -> list[tuple[int, ...]]:
        """The ranks of every node."""
        ranks_by_node = [list[int]() for _ in range(max(self.node) + 1)]
        for rank, node in enumerate(self.node):
            ranks_by_node[node].append(rank)
        return [tuple(ranks) for ranks in ranks_by_node]

    def link_of(self, src: int, dst: int) -> str:
        """Return the kind of link between two ranks.

        It is nvlink, pcie (GPUs below PCIe switches), phb (GPUs that are connected through a CPU),
        shm (the memory of the host) or net.
        """
        if self.node[src] != self.node[dst]:
            return NET
        return self.links.get((src, dst), self.link)

    def route_of(self, channel: int, src: int, dst: int) -> str:
        """Return the name of the route between two ranks on a channel; "" is the topology's
        choice.
        """
        if self.node[src] != self.node[dst]:
            default_route = self.far
        else:
            default_route = ROUTES_BY_LINK.get(self.link_of(src, dst), "")
        return self.routes.get((channel, src, dst), default_route)


def number_of(plan: Plan, channel: int, identity: Callable[[], object]) -> int:
    """Return a number for a channel; channels with an equal `identity()` share a number.

    `identity` takes long if there are many ranks. Therefore the plan's cache keeps the numbers for
    other sizes of the same communicator.
    """
    numbers: dict[object, int] = plan.memo.of(("numbers", plan.algorithm), dict)
    key = "number", plan.algorithm, channel
    return plan.memo.of(key, lambda: numbers.setdefault(identity(), len(numbers)))
