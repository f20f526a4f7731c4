"""How NCCL divides a call: into shares of channels, loops, chunks and slices, by protocol.

Sizes are bytes of user data. NCCL: src/enqueue.cc, scheduleCollTasksToPlan and calcCollChunking
(2.22 and later), computeColl (before).
"""

from fractions import Fraction
from math import inf

from netsim.base.constants import value
from netsim.base.values import dataclass
from netsim.nccl.communicator import Communicator
from netsim.nccl.environment import Settings
from netsim.nccl.facts import PROTOCOLS, Algorithm, Function, Protocol
from netsim.nccl.tuning import algorithm_bandwidth

SLOTS = int(value("fifo.slots"))  # of every FIFO
BUFFER_BYTES = {name: int(value(f"fifo.{name.lower()}")) for name in PROTOCOLS}
PAYLOAD = {name: Fraction(value(f"payload.{name.lower()}")) for name in PROTOCOLS}
GRAIN = {"LL": 16, "LL128": 1920, "Simple": 512}
SLOW_NVLS = 150.0  # GB/s below which NVLS over a network keeps its chunks small
RING_STEPS = {
    "AllReduce": (4, 2), "AllGather": (4, 2), "ReduceScatter": (4, 2), "Broadcast": (1, 1),
    "Reduce": (1, 1),
}  # fmt: skip


@dataclass(frozen=True)
class FifoSteps:
    """The number of FIFO slots that one chunk takes, and the number that one slice of it takes."""

    chunk: int
    slice: int


def steps_of(function: Function, algorithm: Algorithm, protocol: Protocol) -> FifoSteps:
    """Return the FIFO slots of a chunk and of a slice, which are 1 but for rings with Simple."""
    if (algorithm, protocol) == ("Ring", "Simple"):
        return FifoSteps(*RING_STEPS[function])
    return FifoSteps(1, 1)


def slot_bytes(protocol: Protocol, settings: Settings) -> int:
    """Return the data bytes of one FIFO slot."""
    buffer = settings.buffer_bytes.get(protocol, BUFFER_BYTES[protocol])
    return int(buffer // SLOTS * PAYLOAD[protocol])


def chunk_bytes(
    comm: Communicator,
    function: Function,
    algorithm: Algorithm,
    protocol: Protocol,
    nbytes: int,
    *,
    n_channels: int = 1,
) -> int:
    """Return the bytes of a chunk.

    - `nbytes`: the bytes of one channel's part since NCCL 2.22, of the whole call before.
    - `n_channels`: the number of channels that `nbytes` is divided among.

    NCCL: calcCollChunking in src/enqueue.cc; computeColl before 2.22.
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
    """Return the rules by which a chunk is halved, as pairs (chunks, bytes) in order.

    By each rule it is halved while it has more than `bytes` bytes and a channel has fewer than
    `chunks` chunks.
    """
    ppn = comm.ppn
    hops = comm.n_nodes.bit_length() - 1
    if algorithm == "CollNetDirect":
        depth = 2 if comm.local_ranks > 1 else 1
        heads = max(1, comm.n_heads)
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
    """Return the bytes of a chunk of NVLS: at most `chunk`, and fewer for small calls.

    They are also fewer on slow networks. `nbytes` is divided among `n_channels` channels, and there
    among the heads.
    """
    chunk = min(chunk, comm.settings.nvls_chunk)
    lanes = n_channels * max(1, comm.n_heads)
    is_slow_network = comm.n_nodes > 1 and (
        algorithm_bandwidth(comm, "AllReduce", "NVLS", "Simple") < SLOW_NVLS
    )
    chunk = min(chunk, 32768) if is_slow_network else chunk
    for per_lane, smaller in ((64, 65536), (8, 32768), (2, 16384)):
        if nbytes < per_lane * lanes * chunk:
            chunk = min(chunk, smaller)
    return chunk


def _nvls_tree(comm: Communicator, chunk: int, nbytes: int, n_channels: int) -> int:
    """Return the bytes of a chunk of NVLSTree: at most `chunk`, and fewer for small calls.

    `nbytes` is divided among `n_channels` channels, and there among the heads.
    """
    wide_hopper = comm.n_nodes >= 4 and 90 <= comm.min_cc < 100
    most = comm.settings.nvls_tree_chunk or (65536 if wide_hopper else comm.settings.nvls_chunk)
    chunk = min(chunk, comm.settings.nvls_chunk, most)
    lanes = n_channels * max(1, comm.n_heads)
    for per_lane, smaller in ((32, 262144), (16, 131072), (4, 65536), (1, 32768)):
        if nbytes < per_lane * lanes * chunk:
            chunk = min(chunk, smaller)
    return chunk


# How NCCL divides collectives among channels, and a channel's share into loops of chunks. Since
# 2.22 the buffer is divided once into consecutive parts; before, all channels shared every loop
# over the buffer equally. Sizes are in bytes where they are not called elements.

LEAST_TRAFFIC = 32768  # bytes of traffic for which a channel is worth using
ALIGNMENT = 16


@dataclass(frozen=True)
class Loops:
    """The loops over a buffer, by the bytes of their chunks.

    There are `full_loops` loops with chunks of `chunk` bytes, then one loop with chunks of `last`
    bytes (0: there is none).
    """

    chunk: int
    full_loops: int
    last: int

    @property
    def chunks(self) -> list[int]:
        """The bytes of a chunk in every loop."""
        return [self.chunk] * self.full_loops + [self.last] * (self.last > 0)


def traffic_per_byte(function: Function, n_ranks: int, protocol: Protocol) -> int:
    """Return how many bytes cross the links of a rank for each byte of the call's count.

    LL counts four times as many. NCCL: ncclFuncTrafficPerByte.
    """
    factor = {"AllReduce": 2, "AllGather": n_ranks, "ReduceScatter": n_ranks}.get(function, 1)
    return factor * (4 if protocol == "LL" else 1)


def split_over_channels(
    function: Function,
    protocol: Protocol,
    count: int,
    element_bytes: int,
    n_channels: int,
    n_ranks: int,
) -> list[int]:
    """Return the elements of each channel in use, at most `n_channels` (NCCL 2.22 and later).

    The buffer is divided into cells, each with the least traffic for which a channel is worth
    using; a channel gets a whole number of cells. `count` is as in NCCL's call (of one rank for
    AllGather and ReduceScatter). NCCL: scheduleCollTasksToPlan.
    """
    factor = traffic_per_byte(function, n_ranks, protocol)
    nbytes = count * element_bytes
    cell = _round_up(_ceil(LEAST_TRAFFIC, factor), ALIGNMENT)
    total = _ceil(nbytes, cell)
    per_channel = _round_up(_ceil(max(LEAST_TRAFFIC, nbytes * factor), n_channels), ALIGNMENT)
    channel_cells = max(1, min(total, _ceil(per_channel, cell * factor)))
    first = min(total, channel_cells) if n_channels > 1 else total
    further, left = divmod(total - first, channel_cells)
    cells = [first, *[channel_cells] * further, *([left] if left else [])]
    counts = [cell_count * (cell // element_bytes) for cell_count in cells]
    counts[-1] -= total * (cell // element_bytes) - count
    return counts


def evenly_split(comm: Communicator, algorithm: Algorithm) -> bool:
    """Return whether all channels get equal shares of the data because the network reduces."""
    return algorithm.startswith("CollNet") or (algorithm == "NVLS" and comm.n_nodes > 1)


def split_evenly(nbytes: int, n_channels: int) -> list[int]:
    """Return the bytes of every channel if all share `nbytes` equally; the last may get less."""
    size = _round_up(_ceil(nbytes, n_channels), ALIGNMENT)
    return [min(size, max(0, nbytes - channel * size)) for channel in range(n_channels)]


def loops_of_part(
    nbytes: int, chunk: int, *, spread: int = 1, alignment: int = ALIGNMENT, last: int = 0
) -> Loops:
    """Return the loops of one channel's share of `nbytes`.

    - `chunk`: bytes of a chunk.
    - `spread`: the chunks of a loop: the number of ranks for a ring AllReduce, of heads for NVLS,
      else 1.
    - `alignment`: bytes to whose multiple the chunks of the last loop are rounded up.
    - `last`: the bytes of a chunk of the last loop; 0: as few as the rest of the data needs.
    """
    full_loops, left = divmod(nbytes, spread * chunk)
    return Loops(
        chunk, full_loops, min(chunk, (left and last) or _round_up(_ceil(left, spread), alignment))
    )


def shared_loops(
    nbytes: int, chunk: int, n_channels: int, n_threads: int, protocol: Protocol, *, spread: int
) -> Loops:
    """Return the loops of a call before NCCL 2.22, in which all channels share each loop.

    Each loop has `n_channels` x `spread` equal chunks; channel c has those from c x `spread` on.
    `spread` is the number of ranks for a ring AllReduce, of heads for NVLS, else 1. `n_threads` is
    the number of threads of a channel: the chunks of the last loop are multiples of what they move
    at once.
    """
    grain = {"LL": n_threads * 8, "LL128": n_threads * 30}
    alignment = grain.get(protocol, (n_threads - 32) * 8)
    chunks = n_channels * spread
    # The last loop moves what is left, in equal chunks that are rounded up to the alignment and
    # smaller than `chunk`; so it moves at most `most` bytes.
    most = (chunk - 1) // alignment * alignment * chunks
    full_loops = max(0, _ceil(nbytes - most, chunks * chunk))
    left = max(0, nbytes - full_loops * chunks * chunk)
    if nbytes < full_loops * chunks * chunk:  # the last chunks are full or empty
        return Loops(chunk, full_loops - 1, chunk)
    return Loops(chunk, full_loops, _round_up(_ceil(left, chunks), alignment))


def shared_parts(
    loops: Loops, nbytes: int, n_channels: int, *, spread: int, in_turn: bool = False
) -> tuple[int, ...]:
    """Return the bytes that each channel moves in all loops (before NCCL 2.22).

    - `loops`: the loops that all channels share (`shared_loops`).
    - `spread`: the chunks that a channel has in each loop, one after the other.
    - `in_turn`: whether in the last loop channel c has the chunks c, c + `n_channels`, ... instead.
    """
    earlier = loops.full_loops if loops.last else max(0, loops.full_loops - 1)
    full = earlier * spread * loops.chunk
    size = loops.last or loops.chunk
    last = spread * size
    left = nbytes - n_channels * full
    if not in_turn:
        return tuple(full + min(last, max(0, left - c * last)) for c in range(n_channels))
    chunks, rest = divmod(left, size)
    chunk_bytes_of_channel = (_ceil(chunks - c, n_channels) * size for c in range(n_channels))
    return tuple(
        full + nbytes_of_channel + rest * (chunks % n_channels == c)
        for c, nbytes_of_channel in enumerate(chunk_bytes_of_channel)
    )


def _ceil(number: int, divisor: int) -> int:
    """Return a quotient, rounded up."""
    return -(-number // divisor)


def _round_up(number: int, multiple: int) -> int:
    """Return the smallest multiple that is not below a number."""
    return -(-number // multiple) * multiple
