"""What it costs to launch an operation: by the host, and on the GPU before its first byte moves.

Section numbers are those of the NCCL fact sheet (5.1). Nothing here is fitted to one system, but
for what a topology file says of its own.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from netsim.nccl.version import Version
from netsim.topology import stamped
from netsim.values import dataclass

if TYPE_CHECKING:
    from netsim.topology.stamped import Figure

MICRO = 1e-6

# §5.1: nccl-tests on DGX-A100 with one process for k GPUs takes 10 µs for 2, then 4 µs more for
# each: 33.7 µs / 8 GPUs. The runs of 8 GPUs here (A100, H100) have 34.6-35.1 µs with one channel.
HOST = 4.35 * MICRO
# Each further channel: all_reduce of one process on 8 H100 (NCCL 2.26) goes from 35.1 µs with 1
# channel to 36.7 with 4, 37.5 with 8 and 41.5 with 24, whatever the GPU has to do; on 8 A100 with
# an NCCL before 2.11 from 34.8 to 41.1, 47.5 and 74.8.
HOST_EACH_CHANNEL = {Version(2, 12): 0.035 * MICRO, Version(0, 0): 0.2 * MICRO}
# The same with alltoall takes 87 µs: 10.9 a GPU, for 16 sends and receives.
HOST_EACH_P2P = 0.45 * MICRO
# §5.1: from kernel to kernel in a stream 2-3 µs; a block's start, with channel and work loaded,
# 1-2 µs.
KERNEL = 2.5 * MICRO + 1.5 * MICRO
# §5.1: 0.5 µs an operation inside a CUDA graph (4 x H800); a kernel in it 1-1.5 µs after another.
GRAPH_HOST = 0.5 * MICRO
GRAPH_KERNEL = 1.25 * MICRO + 1.5 * MICRO


@dataclass(frozen=True)
class LaunchTimes:
    """Seconds of the host for one launch, and of the GPU before the first byte."""

    host: float
    kernel: float


def nccl_launch(
    style: str,
    version: Version,
    *,
    begin: float = 0.0,
    channels: int = 1,
    sends_and_receives: int = 0,
) -> LaunchTimes:
    """What a launch of one NCCL call costs.

    `begin` is what its kernel takes beyond that of LL. The host pays for every channel, or, where
    sends and receives are grouped, for each of them.
    """
    if style == "cuda_graph":
        return LaunchTimes(GRAPH_HOST, GRAPH_KERNEL + begin)
    each_channel = next(cost for since, cost in HOST_EACH_CHANNEL.items() if version >= since)
    more = HOST_EACH_P2P * max(0, sends_and_receives - 1)
    if not sends_and_receives:
        more = each_channel * (channels - 1)
    return LaunchTimes(HOST + more, KERNEL + begin)


def calibrated_launch(times: LaunchTimes, figures: "Mapping[str, Figure]") -> LaunchTimes:
    """The same with the launch and the kernel of a system that was measured."""
    usual = {"launch.host": HOST, "launch.kernel": KERNEL}
    more = {
        name: stamped.value_of(name, figures[name]) - base
        for name, base in usual.items()
        if name in figures
    }
    return LaunchTimes(
        max(0.0, times.host + more.get("launch.host", 0.0)),
        max(0.0, times.kernel + more.get("launch.kernel", 0.0)),
    )


NOTHING = LaunchTimes(0.0, 0.0)
