"""What executing a schedule costs beyond bytes on wires: the constants of blocks and proxies.

A value for each GPU generation. Wires, switches and NICs have their latencies in the topology;
NCCL's own latency tables contain them, so they are subtracted here. Sections are those of the fact
sheet; nothing here is fitted to a system.
"""

from dataclasses import field, replace
from math import inf

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
    """

    rate: ByProtocol
    step_cost: ByProtocol
    begin: ByProtocol
    nvlink: LinkCost
    pcie: LinkCost
    shm: LinkCost
    network: NetworkCost
    grain: ByProtocol = field(default=ByProtocol(4096, 1920, inf))
    most_pieces: int = 8
    local_credit: float = 1e-6
    nvls_efficiency: float = 0.85
    nvls_sync: float = 1.5e-6
    nvls_part: float = 0.3e-6
    nvls_copy_rate: float = 21e9

    def link(self, kind: str) -> LinkCost:
        """The cost of a hop inside a node: over nvlink, pcie or (through host memory) shm."""
        return {"nvlink": self.nvlink, "pcie": self.pcie, "shm": self.shm}[kind]


MICRO = 1e-6
NVLINK_WIRE, PCIE_WIRE = 0.4 * MICRO, 0.45 * MICRO  # what the topology counts for such a hop

# Simple, §5.2: 2.5 µs a slice beyond its bytes, seen on A100 rings; the rest of the 3.4 µs a hop
# (§1.1, NVLINK Ring Simple) is flag, fence and wire.
STEP_COST = {
    70: ByProtocol(0.9 * MICRO, 2.6 * MICRO, 2.5 * MICRO),
    80: ByProtocol(0.9 * MICRO, 2.6 * MICRO, 3.5 * MICRO),
    90: ByProtocol(0.32 * MICRO, 1.4 * MICRO, 2.5 * MICRO),
    100: ByProtocol(1.15 * MICRO, 1.4 * MICRO, 2.5 * MICRO),
}

# A loop of 256 KiB (8 chunks of 32 KiB) takes 19-20 µs on 8 H100 (8-32 MiB) and 20-22 on 8 B200
# (16-64 MiB); one of 512 KiB no more than the 29-32 µs that NVLink needs for it; one of 2.3 MiB
# (72 chunks of 32 KiB) 180 µs on 72 B200.
NVLS_COPY = {90: (0.3 * MICRO, 21e9), 100: (0.95 * MICRO, 30e9)}

# §1.1 baseLat: what NCCL's own table has for LL128 and Simple beyond LL.
BEGIN = ByProtocol(0.0, 6.0 * MICRO, 1.8 * MICRO)

# §5.2, §1.1: NVLINK LL 0.6, LL128 1.25 (Tree; 1.9 for Ring contains chunks), Simple 3.4 µs.
# A credit is a flag that travels back and is polled, as an LL line is.
NVLINK = LinkCost(
    ByProtocol(0.5 * MICRO - NVLINK_WIRE, 1.1 * MICRO - NVLINK_WIRE, 0.5 * MICRO),
    credit=0.6 * MICRO,
)

# §5.2, §1.1: PCI LL 1.0, LL128 1.9, Simple 5.7 µs.
PCIE = LinkCost(
    ByProtocol(1.0 * MICRO - PCIE_WIRE, 1.9 * MICRO - PCIE_WIRE, 5.7 * MICRO - 2.95 * MICRO),
    credit=1.0 * MICRO,
)

# Through host memory a line is polled over PCIe: a ring of LL takes 2.75 µs a hop on 8 RTX 4090 and
# 3 on 2 RTX 2080 Ti (all_reduce of up to 8 KiB), 0.8 more than one of peers.
SHM = replace(
    PCIE,
    sync=replace(PCIE.sync, ll=PCIE.sync.ll + 0.8 * MICRO, ll128=PCIE.sync.ll128 + 0.8 * MICRO),
)

# §5.2: 2 µs from GPU to proxy, 1–2 µs from completion to GPU, 1–2 µs flush; wire and NIC are the
# topology's. Of these, 1.5 µs to the proxy is what two hops more of a tree of LL take on 4 × 8 H100
# than on 2 × 8 (9.9 µs). A proxy is busy for 1 µs a post (§1.1 netOverhead), a
# message of Simple has a tail to write too (NVLSTree on 10 × 8 H100 sends 64 KiB in at most 1.7
# µs), and one of grouped sends takes 2.5 µs in all: more, and alltoall of 32-64 MiB on 10 × 8 H100
# is too slow, less, and sendrecv on 2 × 8 B200 is too fast. LL and LL128 carry their flags in the
# data, so that only a poll is left at the receiver; of LL128's 8.5 µs an exposed hop, 5.5 are
# known.
NETWORK = NetworkCost(
    notice=1.5 * MICRO,
    post=ByProtocol(1.0 * MICRO, 1.0 * MICRO, 1.2 * MICRO),
    message=0.05 * MICRO,
    delivery=ByProtocol(0.3 * MICRO, 3.0 * MICRO, 1.5 * MICRO),
    flush=1.5 * MICRO,
    credit=2.0 * MICRO,
    reduction=(31.0 - 14.0) * MICRO,  # §1.1 NET: CollNetDirect, less a message (Tree Simple)
    pool=1.3 * MICRO,
)

# Rates in bytes/s. Simple: §5.4, the middle of the range; for Hopper and Blackwell what sends of
# sendrecv show, each made by half a block: 20.5 GB/s a channel in chunks of 512 KiB (8 × H100, up
# to 64 MiB), 15.2 and 14.9 in chunks of 128 KiB (10 × 8 H100, 64 × 8 B200). Both are 46 GB/s a
# block and slices that cost what they cost on A100. LL: §1.1 llMaxBw of one node over the
# 12, 24, 24 and 32 channels it was measured with. LL128: §1.1 perChMaxRingLL128, which is of a
# channel of the search and so of two blocks.
_RATES = {
    70: ByProtocol(39e9 / 12, 20e9 / 2, 22e9),
    80: ByProtocol(87.7e9 / 24, 20e9 / 2, 22e9),
    90: ByProtocol(141e9 / 24, 36.7e9 / 2, 46e9),
    100: ByProtocol(282e9 / 32, 40e9 / 2, 46e9),
}


def _generation(sm: int) -> Mechanism:
    flush = NETWORK.flush if sm < 90 else 0.0  # §4.6: Hopper and newer need none
    part, copy_rate = NVLS_COPY[max(sm, 90)]
    return Mechanism(
        rate=_RATES[sm],
        step_cost=STEP_COST[sm],
        begin=BEGIN,
        nvlink=NVLINK,
        pcie=PCIE,
        shm=SHM,
        network=replace(NETWORK, flush=flush),
        nvls_efficiency=0.74 if sm >= 100 else 0.85,  # §1.1 nvlsEfficiency
        nvls_part=part,
        nvls_copy_rate=copy_rate,
    )


MECHANISMS = {sm: _generation(sm) for sm in _RATES}


def mechanism_of(
    min_cc: int, *, cpu_vendor: str = "Intel", plugin: Plugin = VERBS, rccl: bool = False
) -> Mechanism:
    """The constants for the oldest GPU of a communicator (compute capability 90 for 9.0), with what
    the network's plugin takes. RCCL's blocks have half as many threads.
    """
    newest = max((sm for sm in MECHANISMS if sm <= min_cc), default=min(MECHANISMS))
    found = MECHANISMS[newest]
    network = _plugged(found.network, plugin)
    if cpu_vendor == "AMD":  # §1.1 netOverhead, which trees of LL on A100 do not show
        handling = network.path.handling
        network = replace(
            network,
            post=replace(network.post, simple=2 * network.post.simple),
            pool=2 * network.pool,
            path=replace(network.path, handling=replace(handling, simple=2 * handling.simple)),
        )
    if rccl:
        found = replace(found, grain=replace(found.grain, ll=found.grain.ll / 2))
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
