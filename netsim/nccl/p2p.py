"""Sends and receives of NCCL: the rounds in which ranks send, and the channels and chunks of each.

Every rank goes through the same rounds, so that sends and receives of one round match. A round has
a distance between groups of ranks and a distance inside the groups; they determine to which rank
each rank sends (NCCL: p2pSchedule in src/init.cc; scheduleP2pTasksToPlan in src/enqueue.cc).

An example: 4 ranks on one node send at distances 0, 1, 3, 2. In the second round rank 1 sends to
rank 2 and receives from rank 0.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import pairwise
from math import ceil, gcd
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from netsim.base.values import dataclass
from netsim.nccl.communicator import Communicator
from netsim.nccl.connect import Ints, Seats, seats_of
from netsim.nccl.environment import NO_SETTINGS, Settings
from netsim.nccl.facts import Facts
from netsim.nccl.paths import PathTable, nearest
from netsim.nccl.system import net_bandwidth, nvlink_bandwidth

BATCH = 8  # operations that share a channel's block at a time


@dataclass(frozen=True, eq=False)
class Rounds:
    """The rounds of a communicator.

    - `groups`: its ranks in groups of equal size, as [group, place].
    - `far`: the distances between groups, in the order of rounds (outer loop).
    - `near`: the distances inside groups, in the order of rounds (inner loop).
    """

    seats: Seats
    groups: Ints
    far: Ints
    near: Ints
    settings: Settings = NO_SETTINGS

    @property
    def n_nodes(self) -> int:
        """The number of nodes of the communicator."""
        return len(self.seats)

    @property
    def n_ranks(self) -> int:
        """The number of ranks of the communicator."""
        return self.groups.size

    def numbers(self, src: ArrayLike, dst: ArrayLike) -> Ints:
        """Return by entry the number of the round in which rank `src[i]` sends to rank `dst[i]`."""
        (group, place), far, near = self._places, len(self.far), len(self.near)
        between = (group[np.asarray(dst)] - group[np.asarray(src)]) % far
        inside = (place[np.asarray(dst)] - place[np.asarray(src)]) % near
        numbers: Ints = _inverse(self.far)[between] * near + _inverse(self.near)[inside]
        return numbers

    def peers_in_round(self, rank: Ints, src: Ints, dst: Ints) -> Ints:
        """Return by entry the peer of a rank in a round.

        Entry i is the rank to which `rank[i]` sends in the round in which `src[i]` sends to
        `dst[i]`.
        """
        (group, place), far, near = self._places, len(self.far), len(self.near)
        to = (group[rank] + group[dst] - group[src]) % far
        peers: Ints = self.groups[to, (place[rank] + place[dst] - place[src]) % near]
        return peers

    def channels(self, number: Ints, total: int) -> Ints:
        """Return the number of the first channel that the sends of each round use.

        - `number`: numbers of rounds.
        - `total`: the number of channels for sends.
        """
        return first_channels(number, total, self.n_nodes, self._group_size)

    def crosses(self, src: ArrayLike, dst: ArrayLike) -> NDArray[np.bool_]:
        """Return for each pair of ranks (`src[i]`, `dst[i]`) whether it is on two nodes."""
        node = self.seats.node
        crossed: NDArray[np.bool_] = node[np.asarray(src)] != node[np.asarray(dst)]
        return crossed

    @cached_property
    def _places(self) -> tuple[Ints, Ints]:
        """The group of each rank, and its place in the group."""
        places = np.empty((2, self.n_ranks), np.int64)
        places[:, self.groups] = np.indices(self.groups.shape)
        return places[0], places[1]

    @cached_property
    def _group_size(self) -> int:
        """The number of ranks of a group, from which `first_channels` computes channels."""
        return group_size(self.seats.size.tolist(), self.settings)


def rounds_of(
    nodes: Sequence[Sequence[int]], facts: Facts, settings: Settings = NO_SETTINGS
) -> Rounds:
    """Return the rounds of a communicator over the ranks of `nodes`."""
    seats = seats_of(nodes, [0] * len(nodes))
    sizes = set(seats.size.tolist())
    if facts.p2p_rounds == "grouped":
        size = group_size(seats.size.tolist(), settings)
    else:
        size = sizes.pop() if len(sizes) == 1 else len(seats.ranks)
    groups = seats.ranks.reshape(-1, size)
    far, near = ORDERS[facts.p2p_rounds]
    steps = np.array(far(len(groups)), np.int64), np.array(near(size), np.int64)
    return Rounds(seats, groups, *steps, settings)


def quadratic_order(count: int) -> tuple[int, ...]:
    """Return all distances below `count`, each once, in the order 0, 1, 3, 6, … modulo a power of
    two.

    The power is the smallest one that is not below `count`.
    """
    power = 1 << max(0, count - 1).bit_length()
    delta = 0
    order = []
    for step in range(power):
        if delta < count:
            order.append(delta)
        delta = (delta + step + 1) % power
    return tuple(order)


def alternating_order(count: int) -> tuple[int, ...]:
    """Return all distances below `count`, each once, in the order of NCCL before 2.22.

    For d = 0, 1, 2, … these are d, −d, `count` / 2 − d and `count` / 2 + d, modulo `count`.
    """
    half = count // 2
    order = dict[int, None]()
    for distance in range(count):
        for delta in (distance, count - distance, half - distance, half + distance):
            order.setdefault(delta % count)
    return tuple(order)


def group_size(sizes: Collection[int], settings: Settings = NO_SETTINGS) -> int:
    """Return the number of ranks of one group of the rounds.

    `sizes` are the numbers of ranks of all nodes. With one node it is the size of the node. Else it
    is the largest number that divides the sizes of all nodes and NCCL's 8.
    """
    return gcd(*(sizes if len(sizes) == 1 else (settings.p2p_group, *sizes)))


def first_channels(number: Ints, total: int, n_nodes: int, size: int) -> Ints:
    """Return the first channel of each of the rounds `number`, over groups of `size` ranks.

    `total` is the number of channels. The bits of their numbers are reversed, so that consecutive
    rounds use channels that are far apart.
    """
    if n_nodes > 1:
        group, local = np.divmod(number, size)
        number = group * ceil(size / BATCH) + local // BATCH
    bits = total.bit_length() - 1
    texts = [format(one, f"0{bits}b") if bits else "0" for one in range(total)]
    channels: Ints = np.array([int(text[::-1], 2) for text in texts], np.int64)[number % total]
    return channels


def distinct_rows(columns: Sequence[NDArray[Any]]) -> tuple[list[list[int]], Ints]:
    """Return the distinct rows of a table (given by columns), and for each row its index among
    them.
    """
    code = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        different, number = np.unique(column, return_inverse=True)
        code = code * max(1, len(different)) + number
    _, first, which = np.unique(code, return_index=True, return_inverse=True)
    return np.column_stack([column[first] for column in columns]).tolist(), which


def _inverse(order: Ints) -> Ints:
    """Return the inverse of a permutation: at which step each distance comes."""
    turns = np.empty(len(order), np.int64)
    turns[order] = np.arange(len(order))
    return turns


# By the name of the scheme that an NCCL version has: the functions that return the order of rounds
# between groups, and inside groups.
ORDERS: dict[str, tuple[Callable[[int], Sequence[int]], Callable[[int], Sequence[int]]]] = {
    "grouped": (quadratic_order, range),
    "quadratic": (quadratic_order, quadratic_order),
    "alternating": (alternating_order, range),
}


# The channels and the parts of each send and receive. Alltoall, gather and scatter are sets of
# these; the order of their rounds is defined above.

NET_CHANNEL = 14.0  # GB/s that one network channel moves to one peer
PART_ALIGNMENT = 4096
LL_STEP = 1 << 16  # bytes of a slot of LL's FIFO


@dataclass(frozen=True)
class P2pChannels:
    """The numbers of channels for sends and receives.

    - `total`: of all sends together.
    - `per_peer`: the most that a send to one peer uses.
    - `fewest`: the number for a small send. It is doubled for a larger send until the parts are
      small enough.
    - `ll_by`: what is compared with NCCL_P2P_LL_THRESHOLD to decide whether a send runs with LL.
      "part": the bytes of a part; "channels": its bytes divided by the number of its channels;
      "most_channels": its bytes divided by `per_peer`. With "most_channels" a send with LL is
      divided so that its parts fit LL's slots.
    """

    total: int
    per_peer: int
    fewest: int
    ll_by: str = "channels"

    def used(self, nbytes: int, step: int, *, several_nodes: bool) -> int:
        """Return the number of channels that a send of `nbytes` gets.

        It is chosen such that the parts are about as large as a chunk.

        - `step`: the bytes of a chunk.
        - `several_nodes`: whether the communicator has several nodes.

        NCCL: src/enqueue.cc, calcP2pChannelCount.
        """
        least, most = (step // 2, step) if several_nodes else (step // 8, 32 * step)
        count = max(1, min(self.fewest, ceil(nbytes / least)))
        part = max(least, ceil(nbytes / count))
        while part > most and count <= self.per_peer // 2:
            count *= 2
            part = ceil(nbytes / count)
        return count


@dataclass(frozen=True)
class P2pWork:
    """How one send or receive is divided.

    - `parts`: the bytes of each part; `channels`: its channel.
    - `chunk`: the bytes of a chunk.
    - `protocol`: LL or Simple.
    """

    parts: tuple[int, ...]
    channels: tuple[int, ...]
    chunk: int
    protocol: str

    def shorter(self, loops: int) -> "P2pWork":
        """Return the same send without `loops` loops of every part; a loop is one chunk."""
        parts = (part - loops * self.chunk if part else 0 for part in self.parts)
        return replace(self, parts=tuple(parts))


def p2p_channels(
    table: PathTable, n_channels: int, n_ranks: int, facts: Facts, settings: Settings = NO_SETTINGS
) -> P2pChannels:
    """Return the numbers of channels for sends and receives of a communicator.

    - `table`: the paths of one node.
    - `n_channels`: the number of channels that collectives use.
    - `n_ranks`: the number of ranks of the communicator.

    NCCL: ncclTopoComputeP2pChannels in src/graph/paths.cc.
    """
    total = min(n_channels, settings.max_p2p_channels or n_channels)
    total = max(total, settings.min_p2p_channels or 1)
    few = 2 if 2 * n_ranks <= 4 * total else 1
    total = _power_of_two(total)
    pairs = ((gpu, peer) for gpu in table.gpus for peer in table.gpus if gpu != peer)
    counts = [_to_peer(table, *pair) for pair in pairs]
    networked = n_ranks > len(table.gpus)
    if networked:
        counts += [_to_network(table, gpu, facts, settings, few) for gpu in table.gpus]
    per_peer = _power_of_two(min(counts, default=1))
    if networked and facts.p2p_net_channels == "by_bandwidth":
        while per_peer > 1 and per_peer * ceil(n_ranks / BATCH) > total:
            per_peer //= 2
    per_peer = min(total, per_peer)
    fewest = per_peer
    while fewest > 1 and fewest * n_ranks > total:
        fewest //= 2
    return P2pChannels(total, per_peer, fewest, facts.p2p_ll_by)


def _to_peer(table: PathTable, gpu: int, peer: int) -> int:
    """Return the number of channels that a GPU's sends to a GPU of its node can use."""
    if table.type_of(gpu, peer) not in ("NVL", "NVB"):
        return 2
    link_bandwidth = nvlink_bandwidth(table.graph.gpu(gpu).sm, table.graph.facts)
    return 2 * max(1, int(table.paths[gpu, peer].bandwidth / link_bandwidth + 1e-6))


def _to_network(table: PathTable, gpu: int, facts: Facts, settings: Settings, few: int) -> int:
    """Return the number of channels that a GPU's sends to another node can use.

    `few` is the least number under the rule "covering" (`Facts.p2p_net_channels`).
    """
    if settings.net_peer_channels is not None:
        return settings.net_peer_channels
    ports = nearest(table, gpu, table.nets)
    if facts.p2p_net_channels == "two" or not ports:
        return 2
    if facts.p2p_net_channels == "covering":
        return max(few, len(ports))
    total = sum(net_bandwidth(table.graph.net(net)) for net in ports)
    return max(len(ports), ceil(total / NET_CHANNEL))


def p2p_chunk(table: PathTable, n_nodes: int, settings: Settings = NO_SETTINGS) -> int:
    """Return the bytes of one chunk of a send: large inside an NVLink node, small over a
    network.
    """
    if n_nodes > 1:
        cpu = table.graph.first_cpu
        gpu = table.graph.gpu(table.gpus[0])
        return settings.p2p_net_chunk * (2 if cpu.arch == "arm64" and gpu.sm >= 100 else 1)
    pairs = ((gpu, peer) for gpu in table.gpus for peer in table.gpus if gpu != peer)
    nvlinks = all(table.type_of(one, two) == "NVL" for one, two in pairs)
    return settings.p2p_nvl_chunk if nvlinks else settings.p2p_pci_chunk


def _power_of_two(number: int) -> int:
    """Return the smallest power of two that is not below a number."""
    return 1 << max(0, number - 1).bit_length()


@dataclass(frozen=True)
class Sends:
    """What all sends and receives of a communicator share: channels, and the bytes of a chunk."""

    channels: P2pChannels
    chunk: int

    def work(self, nbytes: int, base: int, rounds: Rounds, *, over_network: bool) -> P2pWork:
        """Return how a send or receive of `nbytes` is divided over channels.

        - `base`: the channel of the first part; the further parts use the following channels.
        - `rounds`: the communicator's rounds, for its settings and number of nodes.
        - `over_network`: whether sender and receiver are on two nodes.
        """
        channels = self.channels
        chunk = self.chunk
        settings = rounds.settings
        able = not over_network or settings.p2p_net_ll
        several = rounds.n_nodes > 1
        count = channels.used(nbytes, chunk, several_nodes=several)
        counted = {"part": 1, "channels": count, "most_channels": channels.per_peer}[channels.ll_by]
        compared_bytes = ceil(nbytes / count) if channels.ll_by == "part" else nbytes
        protocol = (
            "LL" if able and compared_bytes <= settings.p2p_ll_threshold * counted else "Simple"
        )
        if protocol == "LL" and channels.ll_by == "most_channels":
            count = channels.used(nbytes, LL_STEP, several_nodes=several)
        if over_network and protocol == "Simple":
            chunk = _network_chunk(nbytes, chunk)
        size = -(-ceil(nbytes / count) // PART_ALIGNMENT) * PART_ALIGNMENT
        bounds = [*(min(number * size, nbytes) for number in range(count)), nbytes]
        parts = tuple(end - start for start, end in pairwise(bounds))
        places = tuple((base + number) % channels.total for number in range(count))
        return P2pWork(parts, places, chunk, protocol)


def _network_chunk(nbytes: int, chunk: int) -> int:
    """Return the bytes of a chunk of a send of `nbytes` to another node.

    It is a quarter or a half of `chunk` for small sends.
    """
    if nbytes < chunk:
        return chunk // 4
    return chunk // 2 if nbytes < 8 * chunk else chunk


def sends_of(comm: Communicator, tables: Sequence[PathTable]) -> Sends:
    """Return the channels and the bytes of a chunk of all sends of a communicator.

    `tables` has the paths of each kind of node. Each number is the least that any kind of node has.
    """
    arguments = comm.n_channels, comm.n_ranks, comm.facts, comm.settings
    choices = [p2p_channels(table, *arguments) for table in tables]
    least = P2pChannels(
        min(one.total for one in choices),
        min(one.per_peer for one in choices),
        min(one.fewest for one in choices),
        comm.facts.p2p_ll_by,
    )
    return Sends(least, min(p2p_chunk(table, comm.n_nodes, comm.settings) for table in tables))
