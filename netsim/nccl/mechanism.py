"""What executing a schedule costs beyond bytes on wires: the constants of blocks and proxies.

A value for each GPU generation, made of the table in `netsim.constants`, which says where each
figure is from. Wires, switches and NICs have their latencies in the topology; where a constant
contains them, as those of NCCL's own latency tables do, they are subtracted here.
"""

from dataclasses import replace
from math import inf

from netsim.constants import value
from netsim.nccl.messages import PLAIN, VERBS, MessagePath, Plugin
from netsim.nccl.names import Protocol
from netsim.values import dataclass


@dataclass(frozen=True, slots=True)
class ByProtocol:
    """One figure for each protocol."""

    ll: float
    ll128: float
    simple: float

    def of(self, protocol: Protocol | str) -> float:
        """The figure of one protocol."""
        return {"LL": self.ll, "LL128": self.ll128, "Simple": self.simple}[protocol]


@dataclass(frozen=True, slots=True)
class HostMemory:
    """What a byte to or from the host's memory takes of a PCIe link's capacity for both ways."""

    ll: float
    simple: float

    def of(self, protocol: Protocol | str) -> float:
        """The figure of one protocol; LL128 is read as Simple is."""
        return self.ll if protocol == "LL" else self.simple


@dataclass(frozen=True, slots=True)
class LinkCost:
    """Seconds from the arrival of data until the next block may use it, and from the end of its
    use until the sender has its credit.
    """

    sync: ByProtocol
    credit: float


@dataclass(frozen=True, slots=True)
class NetworkCost:
    """What the proxies and NICs add to a message between nodes, in seconds.

    `notice`: from the block's flag until the proxy has seen it; `post`: the proxy thread is busy;
    `message`: the NIC is busy; `delivery`: from the completion until the receiving block may use
    the data; `flush`: the read that orders data before flag (before Hopper, Simple only);
    `credit`: from the end of the use of a slot until the other proxy may send the next message;
    `reduction`: what an operation of switches that reduce takes beyond a message; `pool`: what the
    proxy spends beyond a post on a message of grouped sends, whose buffers all channels share.
    `path`: what the network's library makes of a message's size.
    """

    notice: float
    post: ByProtocol
    message: float
    delivery: ByProtocol
    flush: float
    credit: float
    reduction: float
    pool: float = 0.0
    path: MessagePath = PLAIN


@dataclass(frozen=True, slots=True)
class Mechanism:
    """The constants of one GPU generation.

    `rate` is what one channel's block moves (bytes of data a second), `step_cost` what it spends
    on a step (of Simple: on a slice) beyond moving it: waiting, the first loads, barriers, posting.
    Lines of LL overlap that: there it is the least time of a piece. `begin` is what a kernel takes
    before its first byte beyond one of LL. `grain` is the bytes that are passed on together (what
    512 threads of LL hold, a warp of LL128), `most_pieces` how finely that is followed: pieces of a
    chunk. `local_credit` is the credit of a FIFO between a block and the proxy of its own rank.

    `nvls_efficiency` is the part of NVLink's rate that reductions and multicasts in the switch
    reach, `nvls_sync` the time until a rank may use what others have made ready for it. The pass
    between a rank's buffer and the switch's is made by a part of the warps, at `nvls_copy_rate`,
    and goes through the parts of all heads in turn, each of which costs `nvls_part` beyond that.
    `host_memory` is for blocks that meet in the host's memory.
    """

    rate: ByProtocol
    step_cost: ByProtocol
    begin: ByProtocol
    nvlink: LinkCost
    pcie: LinkCost
    shm: LinkCost
    network: NetworkCost
    grain: ByProtocol
    most_pieces: int
    local_credit: float
    nvls_efficiency: float
    nvls_sync: float
    nvls_part: float
    nvls_copy_rate: float
    host_memory: HostMemory

    def link(self, kind: str) -> LinkCost:
        """The cost of a hop inside a node: over nvlink, pcie or (through host memory) shm."""
        return {"nvlink": self.nvlink, "pcie": self.pcie, "shm": self.shm}[kind]


GENERATIONS = (70, 80, 90, 100)
NVLINK_WIRE, PCIE_WIRE = 2 * value("wire.nvlink"), 3 * value("wire.pcie")  # of a hop, as laid out


def _by_protocol(name: str) -> ByProtocol:
    return ByProtocol(*(value(f"{name}.{protocol}") for protocol in ("ll", "ll128", "simple")))


BEGIN = _by_protocol("begin")
GRAIN = ByProtocol(value("grain.ll"), value("grain.ll128"), inf)
HOST_MEMORY = HostMemory(value("host_memory.ll"), value("host_memory.simple"))

NVLINK = LinkCost(
    ByProtocol(
        value("nvlink.hop.ll") - NVLINK_WIRE,
        value("nvlink.hop.ll128") - NVLINK_WIRE,
        value("nvlink.sync.simple"),
    ),
    credit=value("nvlink.credit"),
)

PCIE = LinkCost(
    ByProtocol(
        value("pcie.hop.ll") - PCIE_WIRE,
        value("pcie.hop.ll128") - PCIE_WIRE,
        value("pcie.sync.simple"),
    ),
    credit=value("pcie.credit"),
)

# Through host memory a line is polled over PCIe.
SHM = replace(
    PCIE,
    sync=replace(
        PCIE.sync,
        ll=PCIE.sync.ll + value("shm.poll"),
        ll128=PCIE.sync.ll128 + value("shm.poll"),
    ),
)

# LL and LL128 carry their flags in the data, so that only a poll is left at the receiver. Wires,
# switches and NICs are the topology's.
NETWORK = NetworkCost(
    notice=value("network.notice"),
    post=_by_protocol("network.post"),
    message=value("network.message"),
    delivery=_by_protocol("network.delivery"),
    flush=value("network.flush"),
    credit=value("network.credit"),
    reduction=value("network.reduction.all") - value("network.reduction.message"),
    pool=value("network.pool"),
)


def _generation(sm: int) -> Mechanism:
    switched = f"sm_{max(sm, 90)}"  # older GPUs have no NVLS; whoever asks gets the oldest that do
    return Mechanism(
        rate=_by_protocol(f"sm_{sm}.rate"),
        step_cost=_by_protocol(f"sm_{sm}.step_cost"),
        begin=BEGIN,
        nvlink=NVLINK,
        pcie=PCIE,
        shm=SHM,
        network=NETWORK if sm < 90 else replace(NETWORK, flush=0.0),  # Hopper and newer need none
        grain=GRAIN,
        most_pieces=int(value("most_pieces")),
        local_credit=value("local_credit"),
        nvls_efficiency=value(f"{switched}.nvls_efficiency"),
        nvls_sync=value("nvls_sync"),
        nvls_part=value(f"{switched}.nvls_part"),
        nvls_copy_rate=value(f"{switched}.nvls_copy_rate"),
        host_memory=HOST_MEMORY,
    )


MECHANISMS = {sm: _generation(sm) for sm in GENERATIONS}


def mechanism_of(
    min_cc: int, *, cpu_vendor: str = "Intel", plugin: Plugin = VERBS, rccl: bool = False
) -> Mechanism:
    """The constants for the oldest GPU of a communicator (compute capability 90 for 9.0), with what
    the network's plugin takes. RCCL's blocks have half as many threads.
    """
    newest = max((sm for sm in MECHANISMS if sm <= min_cc), default=min(MECHANISMS))
    found = MECHANISMS[newest]
    network = _plugged(found.network, plugin)
    if cpu_vendor == "AMD":
        times, handling = value("network.post.amd"), network.path.handling
        network = replace(
            network,
            post=replace(network.post, simple=times * network.post.simple),
            pool=times * network.pool,
            path=replace(network.path, handling=replace(handling, simple=times * handling.simple)),
        )
    if rccl:
        found = replace(found, grain=replace(found.grain, ll=found.grain.ll * value("rccl.grain")))
    return replace(found, network=network)


def _plugged(network: NetworkCost, plugin: Plugin) -> NetworkCost:
    """The cost of messages with a plugin of its own."""
    post, delivery = network.post, network.delivery
    return replace(
        network,
        path=plugin.path,
        notice=network.notice + plugin.notice,
        post=ByProtocol(*(one + plugin.post for one in (post.ll, post.ll128, post.simple))),
        delivery=ByProtocol(
            *(one + plugin.matched for one in (delivery.ll, delivery.ll128, delivery.simple))
        ),
    )
