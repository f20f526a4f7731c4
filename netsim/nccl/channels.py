"""Channels and the graphs that the search finds: the order of GPUs and NICs, and what they carry.

A graph says what one node looks like; how nodes join is the business of `executed`.
"""

from netsim.nccl.names import PathType
from netsim.values import dataclass

# NCCL's numbers for the shape of a channel.
BALANCED_TREE, SPLIT_TREE, TREE, RING, NVLS, COLLNET_DIRECT = 1, 2, 3, 4, 5, 6


@dataclass(frozen=True)
class Channel:
    """One channel inside a node: GPUs in order (NVLS: the head only), and ports in and out.

    GPUs are ranks within the node, ports are counted in the order of the topology file.
    """

    gpus: tuple[int, ...]
    nics: tuple[int, int] | None = None


@dataclass(frozen=True)
class ChannelGraph:
    """What a search found: channels, GB/s of each inside and between nodes, and path types."""

    pattern: int
    n_channels: int
    bw_intra: float
    bw_inter: float
    type_intra: PathType
    type_inter: PathType
    same_channels: bool
    cross_nic: int = 0
    latency_inter: float = 0.0
    channels: tuple[Channel, ...] = ()
