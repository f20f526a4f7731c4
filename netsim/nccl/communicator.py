"""A communicator as NCCL's tuning sees it: ranks, nodes, GPUs, CPU and the graphs found for it.

Fills nothing in by itself: `executed` builds one from a topology, tests build them by hand.
"""

from functools import cached_property
from typing import Any

from netsim.nccl.channels import ChannelGraph
from netsim.nccl.facts import Facts, facts_of
from netsim.nccl.names import Algorithm
from netsim.nccl.settings import NO_SETTINGS, Settings
from netsim.nccl.tuner_rule import TunerRule
from netsim.nccl.version import NEWEST, Version
from netsim.values import dataclass


@dataclass(frozen=True)
class Communicator:
    """Everything that NCCL's cost model and its choice of algorithm depend on."""

    n_ranks: int
    n_nodes: int
    ring: ChannelGraph
    tree: ChannelGraph
    n_channels: int  # executed channels, after doubling
    min_cc: int = 90  # compute capability, 90 for 9.0
    max_cc: int = 90
    cpu_arch: str = "x86_64"
    cpu_vendor: str = "Intel"  # Intel, AMD, Zhaoxin or mixed
    nvls: ChannelGraph | None = None
    collnet_direct: ChannelGraph | None = None
    collnet_chain: ChannelGraph | None = None
    nvls_channels: int = 16
    n_heads: int = 0  # distinct head GPUs of NVLS or CollNet
    most_local_ranks: int = 0  # 0: the same on every node
    fewest_local_ranks: int = 0
    nvswitch: bool = False
    rccl: bool = False  # GPUs of AMD
    network_collectives: bool = False  # the fabric and its plugin reduce in switches
    offload_network: bool = False
    version: Version = NEWEST
    settings: Settings = NO_SETTINGS
    tuner: tuple[TunerRule, ...] = ()  # replaces NCCL's own choice where a rule fits

    @property
    def facts(self) -> Facts:
        """The constants and rules of this communicator's NCCL version."""
        return facts_of(self.version)

    @cached_property
    def memory(self) -> dict[object, Any]:
        """What calls of several sizes have in common."""
        return {}

    @property
    def multicast(self) -> bool:
        """Whether switch and driver can do NVLink SHARP, so that its channels were searched."""
        return self.nvls is not None

    @property
    def ppn(self) -> float:
        """Ranks a node, on average."""
        return self.n_ranks / self.n_nodes

    @property
    def local_ranks(self) -> int:
        """Ranks of the fullest node."""
        return self.most_local_ranks or -(-self.n_ranks // self.n_nodes)

    @property
    def node_column(self) -> int:
        """The column for this node count in tables of 1, 2 and at least 3 nodes."""
        return min(self.n_nodes, 3) - 1

    def graph(self, algorithm: Algorithm) -> ChannelGraph | None:
        """The graph whose figures stand for `algorithm` in the cost model."""
        return {
            "Tree": self.tree,
            "PAT": self.tree,
            "Ring": self.ring,
            "NVLS": self.nvls,
            "NVLSTree": self.nvls,
            "CollNetDirect": self.collnet_direct,
            "CollNetChain": self.collnet_chain,
        }[algorithm]
