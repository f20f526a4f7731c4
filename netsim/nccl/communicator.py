"""A communicator: its channels, its graphs, and the rules of a tuner in place of NCCL's choice.

As in NCCL's example tuner plugin, the first rule that fits a call decides. If the algorithm of this
rule cannot run, NCCL's own choice is used, as in NCCL.
"""

from functools import cached_property

from netsim.base.memo import Memo
from netsim.base.values import dataclass
from netsim.nccl.environment import NO_SETTINGS, Settings
from netsim.nccl.facts import (
    NEWEST,
    Algorithm,
    Facts,
    Function,
    PathType,
    Protocol,
    Version,
    facts_of,
)


@dataclass(frozen=True)
class TunerRule:
    """One rule of a tuner: calls that it applies to, and the algorithm and protocol for them.

    - `function`, `least_bytes`, `most_bytes`: the calls that it applies to.
    - `algorithm`, `protocol`, `n_channels`: what such a call uses (None: NCCL's number of
      channels).
    - `n_nodes`, `n_ranks`, `n_pipe_ops`, `registered`: further conditions on the call; None: any.
    """

    function: Function
    least_bytes: int
    most_bytes: int
    algorithm: Algorithm
    protocol: Protocol
    n_channels: int | None = None
    n_nodes: int | None = None
    n_ranks: int | None = None
    n_pipe_ops: int | None = None
    registered: int | None = None

    def fits(self, function: Function, nbytes: int, actual: tuple[int, int, int, int]) -> bool:
        """Return whether the rule applies to a call of `nbytes` of a function.

        - `actual`: of the call, the number of nodes, of ranks and of pipelined operations, and
          whether its buffers are registered (0 or 1).
        """
        if function != self.function or not self.least_bytes <= nbytes <= self.most_bytes:
            return False
        wanted = (self.n_nodes, self.n_ranks, self.n_pipe_ops, self.registered)
        return all(want in (None, have) for want, have in zip(wanted, actual, strict=True))


# Channels and the graphs that the search finds: the order of GPUs and NICs, and their bandwidth.
# A graph describes one node; `nccl/connect.py` joins the nodes.


# NCCL's numbers for the shapes of channels.
BALANCED_TREE = 1
SPLIT_TREE = 2
TREE = 3
RING = 4
NVLS = 5
COLLNET_DIRECT = 6


@dataclass(frozen=True)
class Channel:
    """One channel inside a node.

    - `gpus`: its GPUs in order, as ranks within the node (NVLS: the head only).
    - `nics`: the ports by which it enters and leaves the node, as indices in the order of the
      topology file; None if it uses no network.
    """

    gpus: tuple[int, ...]
    nics: tuple[int, int] | None = None


@dataclass(frozen=True)
class ChannelGraph:
    """What one search found: channels of one pattern in one node.

    - `pattern`: NCCL's number for the shape of its channels, such as `RING`.
    - `bw_intra`, `bw_inter`: GB/s of each channel inside and between nodes.
    - `type_intra`, `type_inter`: the worst path types inside and between nodes.
    - `same_channels`: whether all channels have one order of GPUs.
    - `cross_nic`: NCCL_CROSS_NIC as the search used it.
    - `latency_inter`: the latency of the ports in µs, as the topology file states it.
    """

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


# A communicator as NCCL's tuning sees it: ranks, nodes, GPUs, CPU, and the graphs of its search.
# `nccl/node.py` builds one from a topology, tests build them by hand.


@dataclass(frozen=True)
class Communicator:
    """Everything that NCCL's cost model and its choice of algorithm depend on.

    - `n_ranks`, `n_nodes`: the numbers of its ranks and nodes.
    - `ring`, `tree`, `nvls`, `collnet_direct`, `collnet_chain`: the graphs that the searches found.
    - `nvls_channels`: the number of channels of NVLS.
    """

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
    nvswitch: bool = False
    rccl: bool = False  # GPUs of AMD
    network_collectives: bool = False  # the fabric and its plugin reduce in switches
    version: Version = NEWEST
    settings: Settings = NO_SETTINGS
    tuner: tuple[TunerRule, ...] = ()  # replaces NCCL's own choice where a rule fits

    @property
    def facts(self) -> Facts:
        """The constants and rules of this communicator's NCCL version."""
        return facts_of(self.version)

    @cached_property
    def memo(self) -> Memo:
        """A cache of what calls of several sizes have in common."""
        return Memo()

    @property
    def multicast(self) -> bool:
        """Whether switch and driver can do NVLink SHARP, so that channels for it were searched."""
        return self.nvls is not None

    @property
    def ppn(self) -> float:
        """The number of ranks of a node, on average."""
        return self.n_ranks / self.n_nodes

    @property
    def local_ranks(self) -> int:
        """The number of ranks on the node that has the most ranks."""
        return self.most_local_ranks or -(-self.n_ranks // self.n_nodes)

    @property
    def node_column(self) -> int:
        """The column (0, 1 or 2) of NCCL's tables for 1, 2, or more nodes."""
        return min(self.n_nodes, 3) - 1

    def graph(self, algorithm: Algorithm) -> ChannelGraph | None:
        """Return the graph from which the cost model takes the bandwidths of an algorithm.

        None if its search found none.
        """
        return {
            "Tree": self.tree,
            "PAT": self.tree,
            "Ring": self.ring,
            "NVLS": self.nvls,
            "NVLSTree": self.nvls,
            "CollNetDirect": self.collnet_direct,
            "CollNetChain": self.collnet_chain,
        }[algorithm]
