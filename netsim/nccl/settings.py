"""What a user's NCCL variables ask for, as one value; `environment` reads it from variables.

`None` or an empty mapping means that NCCL decides. Which wishes can be met is said by `rules`.
"""

from collections.abc import Mapping
from dataclasses import field

from netsim.nccl.names import Function, PathType
from netsim.nccl.nic_names import NicNames
from netsim.values import dataclass


@dataclass(frozen=True)
class Settings:
    """The wishes of a user: lists of algorithms and protocols, channel limits, paths, NICs."""

    # Names admitted, by function; a function that is missing admits all.
    algorithms: Mapping[Function, tuple[str, ...]] = field(default_factory=dict)
    protocols: Mapping[Function, tuple[str, ...]] = field(default_factory=dict)
    min_channels: int | None = None
    max_channels: int | None = None
    nvls: int = 2  # 0 off, 1 on, 2 where the hardware has it
    nvls_channels: int | None = None
    nvls_chunk: int = 131072
    nvls_tree_chunk: int | None = None
    collnet: bool = False
    collnet_node_threshold: int = 2
    pat: int = 2
    mnnvl: int = 2
    ll128_c2c: bool = True
    n_threads: int | None = None
    ll128_threads: int | None = None
    net_overhead_us: float | None = None
    buffer_bytes: Mapping[str, int] = field(default_factory=dict)  # by protocol
    p2p_disabled: bool = False
    p2p_level: PathType | None = None
    p2p_direct_disabled: bool = False
    nvb_disabled: bool = False
    shm_disabled: bool = False
    gdr_level: PathType | None = None
    gdr_c2c: bool = True
    pxn_disabled: bool = False
    pxn_level: int = 2
    cross_nic: int = 2
    nics_policy: str = "AUTO"
    nics_at_most: int = 0  # with the policy MAX
    ib_disabled: bool = False
    sockets: bool = False  # NCCL_NET=Socket
    hcas: NicNames | None = None
    interfaces: NicNames | None = None
    qps: int = 1
    min_p2p_channels: int | None = None
    max_p2p_channels: int | None = None
    net_peer_channels: int | None = None
    p2p_group: int = 8
    p2p_ll_threshold: int = 16384
    p2p_net_ll: bool = False
    p2p_nvl_chunk: int = 524288
    p2p_net_chunk: int = 131072
    p2p_pci_chunk: int = 131072
    cxi_software_match: bool = False
    cxi_alternative_read: bool = False


NO_SETTINGS = Settings()
