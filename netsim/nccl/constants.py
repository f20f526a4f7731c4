"""What execution costs: messages, protocols and launches, with a calibration if a machine has one.

InfiniBand's verbs handle messages of all sizes in one way, whose costs are in `Mechanism`.
libfabric's CXI provider, by which NCCL uses Slingshot, has several ways; `base/constants.csv` says
how long each takes, and which measurements show it.
"""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from math import inf, log2
from operator import attrgetter
from types import MappingProxyType
from typing import Any

from netsim.base.constants import TABLE, value
from netsim.base.errors import InputError, suggest
from netsim.base.values import dataclass
from netsim.nccl.environment import Settings
from netsim.nccl.facts import Protocol, Version
from netsim.schedule.repeat import Launch
from netsim.topology import machine
from netsim.topology.machine import BOTH_WAYS, MACHINE, TRANSPORT, Figure, value_of

ANY = 1 << 62  # bytes: more than any message has


@dataclass(frozen=True, slots=True)
class Handling:
    """The seconds for which the messages of a connection keep their NIC busy.

    All but the copy are for messages that follow another one on their connection. They include the
    completion of the message before, the receive buffer and the next request.

    - `eager`: for a message that is sent at once. The following are for larger messages.
    - `lines`: for messages of LL and LL128.
    - `small`, `large`: for messages of Simple up to `small_bytes` bytes, and beyond.
    - `read`: in addition to these, if the receiver reads the data.
    - `copy_rate`: bytes/s at which the first message of a connection is copied (LL and LL128).
    - `copied_bytes`: the most bytes of that message that are copied.
    """

    eager: float = 0.0
    lines: float = 0.0
    small: float = 0.0
    large: float = 0.0
    small_bytes: int = ANY
    read: float = 0.0
    copy_rate: float = inf
    copied_bytes: int = 0

    def later(self, wire_bytes: float, protocol: str) -> float:
        """Return the seconds for a large message that follows another one on its connection.

        `wire_bytes` are its bytes on the wire. It is too large to be sent at once.
        """
        if protocol != "Simple":
            return self.read + self.lines
        return self.read + (self.small if wire_bytes <= self.small_bytes else self.large)


NO_HANDLING = Handling()


@dataclass(frozen=True, slots=True)
class MessagePath:
    """How a network handles messages, by their bytes on the wire.

    - `eager_bytes`: messages up to this size are sent at once. For a larger one the receiver's side
      first requests the data (rendezvous).
    - `rendezvous`: the seconds of that request. Only the first message of a connection waits for
      it; the requests of later ones are made while the message before is sent.
    - `handling`: the seconds for which messages keep a NIC busy.
    """

    eager_bytes: float = ANY
    rendezvous: float = 0.0
    handling: Handling = NO_HANDLING

    def latency(self, wire_bytes: float, *, follows: bool) -> float:
        """Return the seconds before the bytes of a message move.

        `follows`: whether the message follows another one on its connection.
        """
        return self.rendezvous if wire_bytes > self.eager_bytes and not follows else 0.0

    def busy(self, wire_bytes: float, protocol: str, *, follows: bool) -> float:
        """Return the seconds for which a message keeps the NIC busy, beyond `NetworkCost.message`.

        `follows`: whether the message follows another one on its connection.
        """
        eager = wire_bytes <= self.eager_bytes
        if follows:
            return self.handling.eager if eager else self.handling.later(wire_bytes, protocol)
        copied = min(wire_bytes, self.handling.copied_bytes)
        return 0.0 if eager or protocol == "Simple" else copied / self.handling.copy_rate


PLAIN = MessagePath()

# Slingshot, libfabric's CXI provider. If receives are matched in software, messages beyond some
# size wait until the receiver asks for them, and small ones are copied from a buffer of the
# provider. The times for which messages keep a NIC busy were measured with rings; trees, which send
# one message on each connection, do not show them.
CXI = MessagePath(
    eager_bytes=value("cxi.eager_bytes"),
    handling=Handling(
        lines=value("cxi.handling.lines"),
        small=value("cxi.handling.small"),
        large=value("cxi.handling.large"),
        small_bytes=int(value("cxi.small_bytes")),
    ),
)


@dataclass(frozen=True, slots=True)
class Plugin:
    """How a network's library handles messages, and the seconds that it takes beyond InfiniBand's
    verbs.

    - `path`: the handling of messages by size.
    - `post`: more seconds for each message at both proxies.
    - `matched`: more seconds until arrived data is matched with its receive.
    """

    path: MessagePath = PLAIN
    post: float = 0.0
    matched: float = 0.0


def cxi(settings: Settings) -> Plugin:
    """Return how the CXI provider handles messages, with the user's settings for it.

    The settings are the matching of receives in software, and the alternative rendezvous protocol,
    in which the receiver reads the data.
    """
    handling = CXI.handling
    if settings.cxi_alternative_read:
        handling = replace(handling, read=value("cxi.alternative_read"))
    if not settings.cxi_software_match:
        return Plugin(replace(CXI, handling=handling))
    eager = value("cxi.software.eager")
    copied = int(value("cxi.software.copied_bytes"))
    rate = value("cxi.software.copy_rate")
    handling = replace(handling, eager=eager, copy_rate=rate, copied_bytes=copied)
    path = replace(CXI, rendezvous=value("cxi.software.rendezvous"), handling=handling)
    return Plugin(path, matched=value("cxi.software.match"))


VERBS = Plugin()
# EFA's library sends a control message for each message, which takes the proxies more time.
EFA = Plugin(post=value("efa.post"))


def plugin_of(transport: str, settings: Settings) -> Plugin:
    """Return how the library of a transport handles NCCL's messages, and what that costs."""
    if transport == "slingshot":
        return cxi(settings)
    return EFA if transport == "efa" else VERBS


# What executing a schedule costs beyond the bytes on wires: the constants of blocks and proxies.
# There is a `Mechanism` for each GPU generation, made from the table in `base/constants.csv`, which
# states the origin of each figure. The latencies of wires, switches and NICs are in the topology;
# if a figure contains them, as those of NCCL's own latency tables do, they are subtracted here.


@dataclass(frozen=True, slots=True)
class ByProtocol:
    """One number for each protocol."""

    ll: float
    ll128: float
    simple: float

    def of(self, protocol: Protocol | str) -> float:
        """Return the number of one protocol."""
        return {"LL": self.ll, "LL128": self.ll128, "Simple": self.simple}[protocol]


@dataclass(frozen=True, slots=True)
class LinkCost:
    """The seconds that a hop inside a node takes beyond moving its bytes.

    - `sync`: from the arrival of data until the next block uses it.
    - `credit`: from the end of the use of a slot until its credit is back.
    """

    sync: ByProtocol
    credit: float


@dataclass(frozen=True, slots=True)
class NetworkCost:
    """What the proxies and NICs add to a message between nodes, in seconds.

    - `notice`: from the block's flag until the proxy has seen it.
    - `post`: the time for which the proxy thread is busy with a message.
    - `message`: the time for which the NIC is busy with a message.
    - `delivery`: from the completion until the receiving block may use the data.
    - `flush`: the read that orders data before the flag (before Hopper, Simple only).
    - `credit`: from the end of the use of a slot until the other proxy may send the next message.
    - `reduction`: what an operation of switches that reduce takes beyond a message.
    - `receive`: for each message, at the receiver's proxy; that thread also posts its sends.
    - `pool`: more for each message of grouped sends, at the proxy; all channels share its buffers.
    - `pool_turn`: the least time between chunks of a channel of grouped sends.
    - `pool_each`: more of that time for every channel of the send.
    - `pool_start`: how much later grouped sends begin.
    - `path`: how the network's library handles a message, by its size.
    """

    notice: float
    post: ByProtocol
    message: float
    delivery: ByProtocol
    flush: float
    credit: float
    reduction: float
    receive: float = 0.0
    pool: float = 0.0
    pool_turn: float = 0.0
    pool_each: float = 0.0
    pool_start: float = 0.0
    path: MessagePath = PLAIN


@dataclass(frozen=True, slots=True)
class Mechanism:
    """The constants of one GPU generation.

    Blocks and protocols:

    - `rate`: what one channel's block moves, in bytes of data a second.
    - `step_cost`: seconds of a step (Simple: of a slice) beyond moving its data: waiting, first
      loads, barriers, posting. Lines of LL overlap with it: there it is the least time of a piece.
    - `step_gap`: LL: seconds between two steps of a ring.
    - `send_share`: the fraction of its part of a block that a send or a receive uses with LL.
    - `copy_share`: CollNetDirect: the fraction of a block's threads that each of its groups of
      threads has which copy or send.
    - `begin`: seconds that a kernel takes before its first byte, beyond one of LL on Hopper.
    - `begin_channels`: more of these seconds for each doubling of the number of blocks.
    - `grain`: the bytes that are passed on together (what 512 threads hold in LL, a warp in LL128).
    - `most_pieces`: the most pieces in which a chunk is simulated.
    - `local_credit`: seconds of the credit of a FIFO between a block and the proxy of its own rank.
    - `further_store`: LL: how many times as long a pass takes that stores each line twice.
    - `further_source`: Simple: how many times as long a local pass takes that reads two sources,
      if the data does not fit in L2.
    - `copy_send`: Simple: how many times as long a pass takes that also keeps its data. The
      additional time uses no link.
    - `store_share`: Simple: the largest fraction of `rate` at which a block stores over NVLink.

    Links inside a node:

    - `nvlink`, `pcie`, `phb`, `shm`: the costs of a hop. `pcie` is between GPUs below PCIe
      switches, `phb` is PCIe through one or two CPUs, and `shm` goes through the memory of the
      host.
    - `nvlink_lines`: what a byte of LL or LL128 takes of NVLink, relative to a byte of Simple.
    - `phb_lines`: LL: what a byte takes of PCIe between peers that reach each other through a CPU,
      relative to other peers.
    - `shm_wave`: LL: the least seconds in which a block reads a wave from the memory of the host.
    - `shm_rate`: Simple: the highest rate at which a channel reads it, in bytes/s.
    - `crowding`: Simple: what a byte takes of links if several ranks send to one rank through a
      switch.
    - `cache`: bytes of the GPU's L2 cache.
    - `from_cache`: Simple: how many times as fast sends are if the user's buffers fit in that
      cache.

    NVLS:

    - `nvls_efficiency`: the fraction of NVLink's rate that reductions and multicasts reach.
    - `nvls_tree`: the fraction of that which NVLSTree reaches.
    - `nvls_sync`: seconds until a rank may use what others have made ready for it.
    - `nvls_copy_rate`: bytes/s of the copy between a rank's buffer and the switch's.
    - `nvls_part`: seconds more of that copy for the part of each head.

    Between nodes:

    - `network`: the costs of proxies and NICs.
    - `answers`: 2 if a send is only over when it has crossed a long cable and its answer has come
      back, else 0 (the answer's time is then part of credits).
    """

    rate: ByProtocol
    step_cost: ByProtocol
    send_share: float
    copy_share: float
    begin: ByProtocol
    begin_channels: float
    nvlink: LinkCost
    pcie: LinkCost
    phb: LinkCost
    shm: LinkCost
    network: NetworkCost
    grain: ByProtocol
    most_pieces: int
    local_credit: float
    nvls_efficiency: float
    nvls_tree: float
    nvls_sync: float
    nvls_part: float
    nvls_copy_rate: float
    answers: int = 0
    nvlink_lines: float = 1.0
    phb_lines: float = 1.0
    shm_wave: float = 0.0
    shm_rate: float = inf
    further_store: float = 1.0
    further_source: float = 1.0
    copy_send: float = 1.0
    store_share: float = 1.0
    crowding: float = 1.0
    step_gap: float = 0.0
    cache: float = 0.0
    from_cache: float = 1.0

    def start(self, protocol: str, channels: int) -> float:
        """Return the seconds from a kernel's start to the first byte of its last block.

        From these the seconds of the fastest case (one block, protocol LL, Hopper) are subtracted.
        """
        return self.begin.of(protocol) + self.begin_channels * log2(max(1, channels))

    def link(self, kind: str) -> LinkCost:
        """Return the cost of a hop inside a node over a kind of link.

        Kinds are nvlink, pcie (below PCIe switches), phb (PCIe through a CPU) and shm (through the
        memory of the host).
        """
        costs = {"nvlink": self.nvlink, "pcie": self.pcie, "phb": self.phb, "shm": self.shm}
        return costs[kind]


# GPU generations by compute capability. 89 (Ada) and 120 (RTX Blackwell) are those with GDDR memory
# and a higher clock than the data-center GPUs 80, 90 and 100.
GENERATIONS = (70, 80, 89, 90, 100, 120)
# The seconds that the wires of a hop take in the topology: two wires of NVLink, three of PCIe.
NVLINK_WIRE = 2 * value("wire.nvlink")
PCIE_WIRE = 3 * value("wire.pcie")


def _by_protocol(name: str) -> ByProtocol:
    """Return a constant's values by protocol from the table of constants."""
    return ByProtocol(*(value(f"{name}.{protocol}") for protocol in ("ll", "ll128", "simple")))


GRAIN = ByProtocol(value("grain.ll"), value("grain.ll128"), inf)


def _link_cost(kind: str, wire: float) -> LinkCost:
    """Return the cost of a hop over a kind of link, without the `wire` seconds that the topology
    adds.
    """
    ll, ll128 = (value(f"{kind}.hop.{lines}") - wire for lines in ("ll", "ll128"))
    return LinkCost(ByProtocol(ll, ll128, value(f"{kind}.sync.simple")), value(f"{kind}.credit"))


NVLINK = _link_cost("nvlink", NVLINK_WIRE)
PCIE = _link_cost("pcie", PCIE_WIRE)
# Through a CPU, Simple takes longer until the next block uses the data; lines and credits do not.
PHB = replace(PCIE, sync=replace(PCIE.sync, simple=value("phb.sync.simple")))


def _shm_cost() -> LinkCost:
    """Return the cost of a hop through the memory of the host.

    Its `sync` is that of a hop over PCIe through a CPU, but 0 for LL: there the time of reading a
    wave (`shm_wave`) already contains the time of the poll.
    """
    return LinkCost(replace(PHB.sync, ll=0.0), PHB.credit)


SHM = _shm_cost()

# LL and LL128 carry their flags in the data, so that the receiver only polls. The latencies of
# wires, switches and NICs are in the topology.
NETWORK = NetworkCost(
    notice=value("network.notice"),
    post=_by_protocol("network.post"),
    message=value("network.message"),
    delivery=_by_protocol("network.delivery"),
    flush=value("network.flush"),
    credit=value("network.credit"),
    reduction=value("network.reduction.all") - value("network.reduction.message"),
    receive=value("network.receive"),
    pool=value("network.pool"),
    pool_turn=value("network.pool_turn"),
    pool_each=value("network.pool_each"),
    pool_start=value("network.pool_start"),
)


def _nvlink(sm: int) -> LinkCost:
    """Return the cost of a hop over NVLink for GPUs of compute capability `sm`."""
    if sm < 100:
        return NVLINK
    ll = value("sm_100.nvlink.hop.ll") - NVLINK_WIRE
    return replace(NVLINK, sync=replace(NVLINK.sync, ll=ll))


def _value_of_generation(sm: int, name: str) -> float:
    """Return a generation's own value of a constant, or the common one if it has none."""
    key = f"sm_{sm}.{name}"
    return value(key if key in TABLE else name)


def _begin(sm: int) -> ByProtocol:
    """Return the seconds before a kernel's first byte, by protocol, for compute capability `sm`."""
    beyond = (value("begin.ll"), _value_of_generation(sm, "begin.ll128"), value("begin.simple"))
    return ByProtocol(*(one + value(f"sm_{sm}.begin") for one in beyond))


def _generation(sm: int) -> Mechanism:
    # GPUs without NVLS have the figures of the nearest generation that has it.
    """Return the constants of GPUs of compute capability `sm`."""
    switched = "sm_90" if sm < 100 else "sm_100"
    return Mechanism(
        rate=_by_protocol(f"sm_{sm}.rate"),
        step_cost=_by_protocol(f"sm_{sm}.step_cost"),
        step_gap=value(f"sm_{sm}.step_gap"),
        begin=_begin(sm),
        send_share=value("send_share"),
        copy_share=value("copy_share"),
        further_store=_value_of_generation(sm, "further_store"),
        further_source=_value_of_generation(sm, "further_source"),
        copy_send=value(f"sm_{sm}.copy_send"),
        store_share=value("store_share"),
        crowding=value(f"sm_{sm}.crowding"),
        cache=value(f"sm_{sm}.cache"),
        from_cache=_value_of_generation(sm, "from_cache"),
        begin_channels=value(f"sm_{sm}.begin_channels"),
        nvlink=_nvlink(sm),
        nvlink_lines=value("sm_80.nvlink_lines") if sm == 80 else 1.0,
        pcie=PCIE,
        phb=PHB,
        shm=SHM,
        network=NETWORK if sm < 90 else replace(NETWORK, flush=0.0),  # Hopper and newer need none
        grain=GRAIN,
        most_pieces=int(value("most_pieces")),
        local_credit=value("local_credit"),
        nvls_efficiency=value(f"{switched}.nvls_efficiency"),
        nvls_tree=value("nvls_tree"),
        nvls_sync=value("nvls_sync"),
        nvls_part=value(f"{switched}.nvls_part"),
        nvls_copy_rate=value(f"{switched}.nvls_copy_rate"),
        phb_lines=1.0 if sm < 80 else value("phb.lines"),
        shm_wave=value("shm.wave"),
        shm_rate=value("shm.rate"),
    )


MECHANISMS = {sm: _generation(sm) for sm in GENERATIONS}


def mechanism_of(
    min_cc: int, *, cpu_vendor: str = "Intel", plugin: Plugin = VERBS, rccl: bool = False
) -> Mechanism:
    """Return the constants for a communicator with GPUs of compute capability `min_cc` and newer.

    - `min_cc`: 90 for 9.0.
    - `cpu_vendor`: with "AMD" proxies take longer for a message.
    - `plugin`: the network's library, whose costs are added.
    - `rccl`: whether the library is RCCL. Its blocks have half as many threads, which changes the
      grain of LL.
    """
    newest = max((sm for sm in MECHANISMS if sm <= min_cc), default=min(MECHANISMS))
    mechanism = MECHANISMS[newest]
    # The plugin of the network adds to the cost of messages.
    post = mechanism.network.post
    late = mechanism.network.delivery
    network = replace(
        mechanism.network,
        path=plugin.path,
        receive=mechanism.network.receive + plugin.post,
        post=ByProtocol(*(one + plugin.post for one in (post.ll, post.ll128, post.simple))),
        delivery=ByProtocol(*(one + plugin.matched for one in (late.ll, late.ll128, late.simple))),
    )
    if network.flush and network.path.handling != NO_HANDLING:  # a read that keeps the NIC, too
        path, busy, read = network.path, network.path.handling, value("cxi.flush")
        busy = replace(busy, small=busy.small + read, large=busy.large + read)
        network = replace(network, path=replace(path, handling=busy))
    if cpu_vendor == "AMD":
        times = value("network.post.amd")
        network = replace(
            network,
            post=replace(network.post, simple=times * network.post.simple),
            pool=times * network.pool,
            receive=times * network.receive,
        )
    if rccl:
        mechanism = replace(
            mechanism, grain=replace(mechanism.grain, ll=mechanism.grain.ll * value("rccl.grain"))
        )
    return replace(mechanism, network=network)


LAUNCHES = ("launch.host", "launch.kernel", "launch.each_channel", "launch.each_send")
ELSEWHERE = (*LAUNCHES, *MACHINE, *TRANSPORT, BOTH_WAYS)  # figures that are not of execution


def calibrated(mechanism: Mechanism, figures: Mapping[str, Figure]) -> Mechanism:
    """Return the mechanism with some of its constants replaced by those of a calibration.

    `figures` has the new values by dotted name, such as `nvlink.sync.ll`.
    """
    for name, figure in figures.items():
        if name in ELSEWHERE:
            continue
        if name not in names_of(mechanism):
            names = [*ELSEWHERE, *names_of(mechanism)]
            raise InputError(f"calibration: there is no figure {name}{suggest(name, names)}")
        mechanism = _replaced(mechanism, name.split("."), value_of(name, figure))
    return mechanism


def names_of(value: Any, prefix: str = "") -> list[str]:
    """Return the dotted names of all float fields of a dataclass, and of the dataclasses in it.

    `prefix` is put before each name.
    """
    names: list[str] = []
    for part in fields(value):
        inside = getattr(value, part.name)
        if is_dataclass(inside):
            names += names_of(inside, f"{prefix}{part.name}.")
        elif isinstance(inside, float):
            names.append(prefix + part.name)
    return names


def constant(mechanism: Mechanism, name: str) -> float:
    """Return one constant of a mechanism by its dotted name."""
    return float(attrgetter(name)(mechanism))


def _replaced(value: Any, path: list[str], new: float) -> Any:
    """Return a nested dataclass with the field at `path` replaced."""
    if len(path) == 1:
        return replace(value, **{path[0]: new})
    return replace(value, **{path[0]: _replaced(getattr(value, path[0]), path[1:], new)})


# The seconds that it takes to launch an operation: by the host, and on the GPU before its first
# byte moves. The figures and their origins are in `base/constants.csv`; a topology file may state
# others.

HOST = value("launch.host")
# Seconds of the host for each channel after the first, by the first version for which they hold.
HOST_EACH_CHANNEL = {
    Version(2, 13): value("launch.each_channel.2_13"),
    Version(0, 0): value("launch.each_channel.2_10"),
}
HOST_EACH_SEND = {
    Version(2, 28): value("launch.each_send.2_28"),  # alltoall, gather and scatter are calls
    Version(0, 0): value("launch.each_send"),
}
KERNEL = value("launch.gap") + value("launch.block_start")
GRAPH_HOST = value("launch.graph_host")
GRAPH_KERNEL = value("launch.graph_gap") + value("launch.block_start")


def nccl_launch(
    style: str,
    version: Version,
    *,
    begin: float = 0.0,
    channels: int = 1,
    sends_and_receives: int = 0,
    figures: "Mapping[str, Figure]" = MappingProxyType({}),
) -> Launch:
    """Return what a launch of one NCCL call costs, by the host and on the GPU.

    - `style`: how calls are launched: "cuda_graph", or another one for launches by the host.
    - `begin`: the seconds that the kernel takes before its first byte, beyond those of a kernel
      with LL.
    - `channels`: the number of channels. The host pays for each channel after the first.
    - `sends_and_receives`: the number of grouped sends and receives, 0 for other calls. If there
      are any, the host pays for each of them after the first, and not for channels.
    - `figures`: a calibration, whose figures replace the usual ones.
    """
    if style == "cuda_graph":
        return Launch(GRAPH_HOST, GRAPH_KERNEL + begin)

    def calibrated(name: str, usual: float) -> float:
        """Return the figure `name` of the calibration, or `usual` if the calibration has none."""
        return machine.value_of(name, figures[name]) if name in figures else usual

    def by_version(costs: Mapping[Version, float]) -> float:
        """Return the cost that holds for the NCCL version; `costs` has it by the first version."""
        return next(cost for since, cost in costs.items() if version >= since)

    each_channel = calibrated("launch.each_channel", by_version(HOST_EACH_CHANNEL))
    each_send = calibrated("launch.each_send", by_version(HOST_EACH_SEND))
    more = each_send * max(0, sends_and_receives - 1)
    if not sends_and_receives:
        more = each_channel * (channels - 1)
    return Launch(HOST + more, KERNEL + begin)


def calibrated_launch(times: Launch, figures: "Mapping[str, Figure]") -> Launch:
    """Return a launch whose times are shifted as a calibration says.

    A calibration states the times of a usual call (`launch.host`, `launch.kernel`). The difference
    of these from `HOST` and `KERNEL` is added to the times of the launch.
    """
    usual = {"launch.host": HOST, "launch.kernel": KERNEL}
    host, kernel = (
        machine.value_of(name, figures[name]) - base if name in figures else 0.0
        for name, base in usual.items()
    )
    return Launch(max(0.0, times.host + host), max(0.0, times.kernel + kernel))
