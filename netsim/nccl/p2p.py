"""Sends and receives as NCCL runs them: the order of rounds, channels a peer, and parts.

Every rank walks the same rounds, so that sends and receives of one round match. Alltoall, gather
and scatter are sets of such operations.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, gcd

from netsim.nccl.facts import Facts
from netsim.nccl.paths import PathTable, nearest
from netsim.nccl.settings import NO_SETTINGS, Settings
from netsim.nccl.system import net_bandwidth, nvlink_bandwidth

BATCH = 8  # operations that share a channel's block at a time
NET_CHANNEL = 14.0  # GB/s that one network channel moves to one peer
PART_ALIGNMENT = 4096
LL_SLOT = 16384


@dataclass(frozen=True)
class Round:
    """What a rank does in one round, and the number of the round."""

    number: int
    send_to: int
    receive_from: int


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


def quadratic_order(count: int) -> tuple[int, ...]:
    """0, 1, 3, 6, … modulo the next power of two: all numbers below `count`, each once."""
    power, delta, order = 1 << max(0, count - 1).bit_length(), 0, []
    for step in range(power):
        if delta < count:
            order.append(delta)
        delta = (delta + step + 1) % power
    return tuple(order)


def alternating_order(count: int) -> tuple[int, ...]:
    """Distances tried before 2.22: d, -d, and both from half way, outwards from 0."""
    half, found = count // 2, dict[int, None]()
    for distance in range(count):
        for delta in (distance, count - distance, half - distance, half + distance):
            found.setdefault(delta % count)
    return tuple(found)


def group_size(nodes: Sequence[Sequence[int]], settings: Settings = NO_SETTINGS) -> int:
    """Ranks of one group of the schedule: the node when alone, else 8 or what divides all nodes."""
    if len(nodes) == 1:
        return len(nodes[0])
    return gcd(settings.p2p_group, *(len(node) for node in nodes))


def schedule(
    nodes: Sequence[Sequence[int]], rank: int, facts: Facts, settings: Settings = NO_SETTINGS
) -> tuple[Round, ...]:
    """The rounds of `rank`: with whom it exchanges data, itself first."""
    groups = _groups(nodes, facts, settings)
    size = len(groups[0])
    orders = {
        "grouped": (quadratic_order(len(groups)), tuple(range(size))),
        "quadratic": (quadratic_order(len(groups)), quadratic_order(size)),
        "alternating": (alternating_order(len(groups)), tuple(range(size))),
    }
    far, near = orders[facts.p2p_rounds]
    own, place = next(
        (number, group.index(rank)) for number, group in enumerate(groups) if rank in group
    )
    pairs = [(group, local) for group in far for local in near]
    return tuple(
        Round(
            number,
            groups[(own + group) % len(groups)][(place + local) % size],
            groups[(own - group) % len(groups)][(place - local) % size],
        )
        for number, (group, local) in enumerate(pairs)
    )


def _groups(
    nodes: Sequence[Sequence[int]], facts: Facts, settings: Settings
) -> list[Sequence[int]]:
    if facts.p2p_rounds != "grouped":
        equal = len({len(node) for node in nodes}) == 1
        return list(nodes) if equal else [[rank for node in nodes for rank in node]]
    size = group_size(nodes, settings)
    return [node[start : start + size] for node in nodes for start in range(0, len(node), size)]


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


def base_channel(round_number: int, total: int, n_nodes: int, size: int) -> int:
    """The first channel of a round: spread by reversing the bits of its number."""
    number = round_number
    if n_nodes > 1:
        group, local = divmod(round_number, size)
        number = group * ceil(size / BATCH) + local // BATCH
    bits = total.bit_length() - 1
    text = format(number % total, f"0{bits}b") if bits else "0"
    return int(text[::-1], 2)


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
