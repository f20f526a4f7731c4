"""What it costs to launch an operation: by the host, and on the GPU before its first byte moves.

Section numbers are those of the NCCL fact sheet (5.1). Nothing here is fitted to one system.
"""

from dataclasses import dataclass

MICRO = 1e-6

# §5.1: nccl-tests on DGX-A100 with one process for k GPUs takes 10 µs for 2, then 4 µs more for
# each: 33.7 µs / 8 GPUs.
HOST = 4.2 * MICRO
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


def nccl_launch(style: str, sends_and_receives: int = 0) -> LaunchTimes:
    """What a launch of one NCCL call costs; grouped sends and receives cost the host one by one."""
    more = HOST_EACH_P2P * max(0, sends_and_receives - 1)
    if style == "cuda_graph":
        return LaunchTimes(GRAPH_HOST, GRAPH_KERNEL)
    return LaunchTimes(HOST + more, KERNEL)


NOTHING = LaunchTimes(0.0, 0.0)
