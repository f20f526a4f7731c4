"""Sends and receives as NCCL runs them: channels a peer, and the parts of an operation.

Alltoall, gather and scatter are sets of such operations; their order is that of `p2p_rounds`.
"""

from math import ceil

from netsim.nccl.facts import Facts
from netsim.nccl.p2p_rounds import BATCH
from netsim.nccl.paths import PathTable, nearest
from netsim.nccl.settings import NO_SETTINGS, Settings
from netsim.nccl.system import net_bandwidth, nvlink_bandwidth
from netsim.values import dataclass

NET_CHANNEL = 14.0  # GB/s that one network channel moves to one peer
PART_ALIGNMENT = 4096
LL_SLOT = 16384


@dataclass(frozen=True)
class P2pChannels:
    """Channels for sends and receives: in all, for one peer, and the fewest of an operation."""

    total: int
    per_peer: int
    fewest: int


@dataclass(frozen=True)
class P2pWork:
    """One send or receive: its parts in bytes, the channel of each, the chunk and protocol."""

    parts: tuple[int, ...]
    channels: tuple[int, ...]
    chunk: int
    protocol: str


def p2p_channels(
    table: PathTable,
    n_channels: int,
    n_ranks: int,
    facts: Facts,
    settings: Settings = NO_SETTINGS,
) -> P2pChannels:
    """Channels for sends and receives, given the executed channels of the collectives."""
    total = min(n_channels, settings.max_p2p_channels or n_channels)
    total = _power_of_two(max(total, settings.min_p2p_channels or 1))
    counts = [
        _to_peer(table, gpu, peer) for gpu in table.gpus for peer in table.gpus if gpu != peer
    ]
    networked = n_ranks > len(table.gpus)
    if networked:
        counts += [_to_network(table, gpu, facts, settings) for gpu in table.gpus]
    per_peer = _power_of_two(min(counts, default=1))
    if networked:
        while per_peer > 1 and per_peer * ceil(n_ranks / BATCH) > total:
            per_peer //= 2
    per_peer = min(total, per_peer)
    fewest = per_peer
    while fewest > 1 and fewest * n_ranks > total:
        fewest //= 2
    return P2pChannels(total, per_peer, fewest)


def _to_peer(table: PathTable, gpu: int, peer: int) -> int:
    if table.type_of(gpu, peer) not in ("NVL", "NVB"):
        return 2
    one = nvlink_bandwidth(table.graph.gpu(gpu).sm, table.graph.facts)
    return 2 * max(1, int(table.paths[gpu, peer].bandwidth / one + 1e-6))


def _to_network(table: PathTable, gpu: int, facts: Facts, settings: Settings) -> int:
    if settings.net_peer_channels is not None:
        return settings.net_peer_channels
    ports = nearest(table, gpu, table.nets)
    if facts.p2p_net_channels == "two" or not ports:
        return 2
    if facts.p2p_net_channels == "covering":
        return max(2, _power_of_two(len(ports)))
    total = sum(net_bandwidth(table.graph.net(net)) for net in ports)
    return max(len(ports), ceil(total / NET_CHANNEL))


def p2p_chunk(table: PathTable, n_nodes: int, settings: Settings = NO_SETTINGS) -> int:
    """Bytes of one chunk of a send: large inside an NVLink node, small over a network."""
    if n_nodes > 1:
        cpu, gpu = table.graph.first_cpu, table.graph.gpu(table.gpus[0])
        doubled = cpu.arch == "arm64" and gpu.sm >= 100
        return settings.p2p_net_chunk * (2 if doubled else 1)
    pairs = ((one, two) for one in table.gpus for two in table.gpus if one != two)
    nvlinks = all(table.type_of(one, two) == "NVL" for one, two in pairs)
    return settings.p2p_nvl_chunk if nvlinks else settings.p2p_pci_chunk


def p2p_work(
    nbytes: int,
    base: int,
    channels: P2pChannels,
    chunk: int,
    *,
    n_nodes: int,
    over_network: bool,
    settings: Settings = NO_SETTINGS,
) -> P2pWork:
    """The parts of one send or receive of `nbytes` whose round starts at channel `base`."""
    least, most = (chunk // 2, chunk) if n_nodes > 1 else (chunk // 8, 32 * chunk)
    count = max(1, min(channels.fewest, ceil(nbytes / least)))
    part = max(least, ceil(nbytes / count))
    while part > most and count <= channels.per_peer // 2:
        count *= 2
        part = ceil(nbytes / count)
    low_latency = nbytes <= count * settings.p2p_ll_threshold
    protocol = "LL" if low_latency and (not over_network or settings.p2p_net_ll) else "Simple"
    if over_network and protocol == "Simple":
        chunk = chunk // 4 if nbytes < chunk else chunk // 2 if nbytes < 8 * chunk else chunk
    size = -(-ceil(nbytes / count) // PART_ALIGNMENT) * PART_ALIGNMENT
    starts = [min(number * size, nbytes) for number in range(count + 1)]
    parts = tuple(end - start for start, end in zip(starts, [*starts[1:-1], nbytes], strict=False))
    places = tuple((base + number) % channels.total for number in range(count))
    return P2pWork(parts, places, chunk, protocol)


def _power_of_two(number: int) -> int:
    return 1 << max(0, number - 1).bit_length()
