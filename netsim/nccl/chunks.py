"""FIFO slots, chunks and slices: in which pieces a channel moves its share, by protocol.

Sizes are bytes of user data. How pieces follow one another is the business of the schedules.
"""

from fractions import Fraction
from math import inf

from netsim.constants import value
from netsim.nccl.bandwidth import algorithm_bandwidth
from netsim.nccl.communicator import Communicator
from netsim.nccl.names import PROTOCOLS, Algorithm, Function, Protocol
from netsim.nccl.settings import Settings
from netsim.values import dataclass

SLOTS = int(value("fifo.slots"))  # of every FIFO
BUFFER_BYTES = {name: int(value(f"fifo.{name.lower()}")) for name in PROTOCOLS}
PAYLOAD = {name: Fraction(value(f"payload.{name.lower()}")) for name in PROTOCOLS}
GRAIN = {"LL": 16, "LL128": 1920, "Simple": 512}
SLOW_NVLS = 150.0  # GB/s below which NVLS over a network keeps its chunks small
RING_STEPS = {
    "AllReduce": (4, 2),
    "AllGather": (4, 2),
    "ReduceScatter": (4, 2),
    "Broadcast": (1, 1),
    "Reduce": (1, 1),
}


@dataclass(frozen=True)
class Steps:
    """Slots that one chunk and one slice of it take."""

    chunk: int
    slice: int


def steps_of(function: Function, algorithm: Algorithm, protocol: Protocol) -> Steps:
    """Slots a chunk and a slice; only Simple rings take more than one."""
    if (algorithm, protocol) == ("Ring", "Simple"):
        return Steps(*RING_STEPS[function])
    return Steps(1, 1)


def slot_bytes(protocol: Protocol, settings: Settings) -> int:
    """Data bytes of one FIFO slot."""
    buffer = settings.buffer_bytes.get(protocol, BUFFER_BYTES[protocol])
    return int(buffer // SLOTS * PAYLOAD[protocol])


def slices_of(chunk: int, element_bytes: int, steps: Steps, slot: int) -> tuple[int, ...]:
    """The slices, in bytes, into which a Simple chunk is cut: halves unless it is small."""
    per_chunk = steps.chunk // steps.slice
    elements = chunk // element_bytes
    even = -(-elements // (16 * per_chunk)) * 16
    least = slot * steps.slice // element_bytes // 32
    size = max(even, least)
    starts = range(0, elements, size) if elements else range(0)
    return tuple(min(size, elements - start) * element_bytes for start in starts)


def chunk_bytes(
    comm: Communicator,
    function: Function,
    algorithm: Algorithm,
    protocol: Protocol,
    nbytes: int,
    *,
    n_channels: int = 1,
) -> int:
    """The chunk for a share of `nbytes` on `n_channels` channels.

    Since 2.22 NCCL asks channel by channel; CollNet, and all before, for the call as a whole.
    """
    steps = steps_of(function, algorithm, protocol)
    chunk = slot_bytes(protocol, comm.settings) * steps.chunk
    if algorithm == "NVLS":
        chunk = _nvls(comm, chunk, nbytes, n_channels)
    elif algorithm == "NVLSTree":
        chunk = _nvls_tree(comm, chunk, nbytes, n_channels)
    elif algorithm == "PAT":
        blocks = 32 if function == "AllGather" else 16
        while chunk > 65536 and chunk * n_channels * blocks > nbytes:
            chunk //= 2
    else:
        for per_chunk, floor in _halvings(comm, algorithm, protocol):
            while chunk > floor and nbytes // (n_channels * chunk) < per_chunk:
                chunk //= 2
    return max(chunk // GRAIN[protocol], 1) * GRAIN[protocol]


def _halvings(
    comm: Communicator, algorithm: Algorithm, protocol: Protocol
) -> tuple[tuple[float, int], ...]:
    """(chunks a channel below which the chunk is halved, size down to which), in order."""
    ppn, hops = comm.ppn, comm.n_nodes.bit_length() - 1
    if algorithm == "CollNetDirect":
        depth, heads = 2 if comm.local_ranks > 1 else 1, max(1, comm.n_heads)
        return (
            (64 * depth * heads, 131072),
            (8 * depth * heads, 65536),
            (8 * depth * heads, 32768),
        )
    if algorithm == "CollNetChain":
        depth = comm.local_ranks
        return ((inf, 262144), (64 * depth, 131072), (8 * depth, 65536), (depth, 32768))
    if (algorithm, protocol) == ("Tree", "LL128"):
        steps = 1 + hops + 0.1 * ppn
        return ((steps * 64 / ppn, 131072), (steps * 16 / ppn, 32768))
    if (algorithm, protocol) == ("Tree", "Simple") and not comm.facts.continuous_split:
        depth = comm.local_ranks - 1 + hops
        return ((8 * depth, 131072), (4 * depth, 65536), (depth, 32768))
    return ()


def _nvls(comm: Communicator, chunk: int, nbytes: int, n_channels: int) -> int:
    chunk, lanes = min(chunk, comm.settings.nvls_chunk), n_channels * max(1, comm.n_heads)
    slow = comm.n_nodes > 1 and (
        algorithm_bandwidth(comm, "AllReduce", "NVLS", "Simple") < SLOW_NVLS
    )
    chunk = min(chunk, 32768) if slow else chunk
    for per_lane, smaller in ((64, 65536), (8, 32768), (2, 16384)):
        if nbytes < per_lane * lanes * chunk:
            chunk = min(chunk, smaller)
    return chunk


def _nvls_tree(comm: Communicator, chunk: int, nbytes: int, n_channels: int) -> int:
    wide_hopper = comm.n_nodes >= 4 and 90 <= comm.min_cc < 100
    most = comm.settings.nvls_tree_chunk or (65536 if wide_hopper else comm.settings.nvls_chunk)
    chunk, lanes = min(chunk, comm.settings.nvls_chunk, most), n_channels * max(1, comm.n_heads)
    for per_lane, smaller in ((32, 262144), (16, 131072), (4, 65536), (1, 32768)):
        if nbytes < per_lane * lanes * chunk:
            chunk = min(chunk, smaller)
    return chunk
