"""What it costs to launch an operation: by the host, and on the GPU before its first byte moves.

The figures, with where each is from, are in `netsim.constants`; a topology file may have its own.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from netsim.constants import value
from netsim.nccl.version import Version
from netsim.topology import stamped
from netsim.values import dataclass

if TYPE_CHECKING:
    from netsim.topology.stamped import Figure

HOST = value("launch.host")
# For each further channel, whatever the GPU has to do, by the version since which it is so.
HOST_EACH_CHANNEL = {
    Version(2, 12): value("launch.each_channel.2_12"),
    Version(0, 0): value("launch.each_channel.2_10"),
}
HOST_EACH_SEND = value("launch.each_send")
KERNEL = value("launch.gap") + value("launch.block_start")
GRAPH_HOST = value("launch.graph_host")
GRAPH_KERNEL = value("launch.graph_gap") + value("launch.block_start")


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
    figures: "Mapping[str, Figure]" = MappingProxyType({}),
) -> LaunchTimes:
    """What a launch of one NCCL call costs.

    `begin` is what its kernel takes beyond that of LL. The host pays for every channel, or, where
    sends and receives are grouped, for each of them, as much as `figures` of a calibration say.
    """
    if style == "cuda_graph":
        return LaunchTimes(GRAPH_HOST, GRAPH_KERNEL + begin)

    def calibrated(name: str, usual: float) -> float:
        return stamped.value_of(name, figures[name]) if name in figures else usual

    usual = next(cost for since, cost in HOST_EACH_CHANNEL.items() if version >= since)
    each_channel = calibrated("launch.each_channel", usual)
    more = calibrated("launch.each_send", HOST_EACH_SEND) * max(0, sends_and_receives - 1)
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
