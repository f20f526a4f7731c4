"""How many channels and threads NCCL gives to one call: small calls get few.

The rule compares the bytes of the call with what all threads would move in one go.
"""

from dataclasses import replace

from netsim.nccl.communicator import Communicator
from netsim.nccl.names import Algorithm, Protocol
from netsim.values import dataclass

WARP = 32
FEWEST_THREADS = 3 * WARP
RCCL_THREADS = 256  # of RCCL's blocks with every protocol (src/include/device.h)
PCI_BUS = 12.0  # GB/s up to which half the threads keep a ring busy


@dataclass(frozen=True)
class Launch:
    """Blocks (channels) and threads of each for one call."""

    n_channels: int
    n_threads: int


def launch(
    comm: Communicator,
    nbytes: int,
    algorithm: Algorithm,
    protocol: Protocol,
    wanted: int | None = None,
) -> Launch:
    """Channels and threads of a call of `nbytes`, as counted for its choice.

    A tuner's `wanted` number of channels takes the place of NCCL's, as far as there are so many.
    """
    found = _own_launch(comm, nbytes, algorithm, protocol)
    if wanted is None or wanted < 1:
        return found
    most = comm.nvls_channels if algorithm in ("NVLS", "NVLSTree") else comm.n_channels
    return replace(found, n_channels=min(wanted, most))


def _own_launch(
    comm: Communicator, nbytes: int, algorithm: Algorithm, protocol: Protocol
) -> Launch:
    threads = most_threads(comm, algorithm, protocol)
    if algorithm in ("NVLS", "NVLSTree"):
        within = comm.n_nodes > 1 and algorithm == "NVLS"
        channels = min(comm.nvls_channels, comm.n_channels) if within else comm.nvls_channels
        return Launch(channels, threads)
    threshold = bytes_per_thread(comm, algorithm, protocol)
    channels = comm.n_channels
    if algorithm == "CollNetDirect":
        channels = _collnet_channels(comm, nbytes, channels, threads, threshold)
    else:
        while channels > 1 and nbytes < channels * threads * threshold:
            channels -= 1
    while threads % 128 == 0 and nbytes < channels * threads * threshold:
        threads //= 2
    if protocol == "Simple":
        threads += {"Ring": WARP, "Tree": 4 * WARP}.get(algorithm, 0)
    threads = max(threads, FEWEST_THREADS)
    whole = algorithm == "PAT" or (algorithm == "Tree" and comm.facts.tree_640_threads)
    return Launch(channels, 640 if whole else threads)


def most_threads(comm: Communicator, algorithm: Algorithm, protocol: Protocol) -> int:
    """Threads of one channel for calls of any size."""
    if algorithm not in ("Ring", "Tree"):
        return 640
    if comm.rccl:
        return comm.settings.n_threads or RCCL_THREADS
    if protocol == "LL128":
        return comm.settings.ll128_threads or 640
    slow_ring = algorithm == "Ring" and comm.ring.n_channels * comm.ring.bw_intra <= PCI_BUS
    threads = 256 if slow_ring and protocol == "Simple" else 512
    return comm.settings.n_threads or threads


def bytes_per_thread(comm: Communicator, algorithm: Algorithm, protocol: Protocol) -> int:
    """Bytes of the call below which a thread is not worth having."""
    if algorithm in ("CollNetDirect", "CollNetChain"):
        return 512
    if protocol == "LL":
        return 8 * comm.n_ranks if algorithm == "Ring" else 8
    return 8 if protocol == "LL128" else 64


def _collnet_channels(
    comm: Communicator, nbytes: int, channels: int, threads: int, threshold: int
) -> int:
    """Channels of CollNetDirect, given up in bands of 16, 8, 4, 2 and 1 with falling thresholds."""
    heads = max(1, comm.n_heads)
    for band in (16, 8, 4, 2, 1):
        while channels > band and nbytes < channels * threads * heads * threshold:
            if channels == band + band // 2:
                threshold //= 2
            channels -= 1
        if nbytes >= channels * threads * heads * threshold:
            break
    return channels
