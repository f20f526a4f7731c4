"""What holds in one NCCL version: constants and rules as a value, looked up by version.

The numbers themselves are in `changes`; formulas that use them are in their own modules.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from netsim.nccl.changes import CHANGES
from netsim.nccl.names import Algorithm, PathType
from netsim.nccl.version import NEWEST, Version, supported_version
from netsim.values import dataclass

Triple = tuple[float, float, float]
ARCHITECTURES = (("Volta", 0), ("Ampere", 80), ("Hopper", 90), ("Blackwell", 100))


@dataclass(frozen=True)
class Facts:
    """The constants (µs, GB/s) and rules of one NCCL version; `changes` says since when each."""

    algorithms: tuple[Algorithm, ...]
    gather_algorithms: tuple[Algorithm, ...]  # for AllGather and ReduceScatter
    base_latency: Mapping[str, Triple]
    hop_latency: Mapping[str, Mapping[str, Triple]]
    ll_max: Mapping[str, Triple]
    channel_max: Mapping[str, Mapping[str, Triple]]
    nvls_efficiency: Mapping[str, float]  # empty: the older fixed ratios 5/6 and 0.7
    ring_ll_half: bool
    ring_ll128_lone_gpu: float
    a100_cap: float  # 0: none
    intra_ll_penalty: float
    plateau_by_channel: bool
    net_latency_replaces: bool
    lone_gpu_tree_hops: bool
    net_overhead: bool
    ring_wraps_over_net: bool
    one_gpu_tree_factor: float
    pat_factor: float
    nvls_shard_rule: str  # "whole" or "inter", before the efficiency model
    nvls_tree_corrected: bool
    ll128_wide: bool
    search_channels: int
    max_channels: int
    nvls_heads: int
    intra_speeds: Mapping[str, tuple[float, ...]]
    inter_speeds: Mapping[str, tuple[float, ...]]
    nvlink: Mapping[int, float]  # one link, by compute capability and above
    intel_sockets: Mapping[int, float]  # by CPU model and above
    amd_sockets: float
    path_types: tuple[PathType, ...]
    p2p_narrow: bool
    tree_640_threads: bool
    continuous_split: bool
    p2p_rounds: str  # "alternating", "quadratic" or "grouped"
    p2p_net_channels: str  # "two", "covering" or "by_bandwidth"
    bad_choice: str  # what an impossible NCCL_ALGO does
    function_lists: bool

    def rank(self, path_type: str) -> int:
        """The place of a path type in this version's order of preference."""
        return self.path_types.index(path_type)


@lru_cache(maxsize=64)
def facts_of(version: Version = NEWEST) -> Facts:
    """The facts of `version`: everything that changed up to it, in order."""
    supported_version(version)
    merged: dict[str, Any] = {}
    for since, changed in CHANGES:
        if since <= version:
            merged = _merge(merged, changed)
    return Facts(**merged)


def architecture(compute_capability: int, table: Mapping[str, object]) -> str:
    """The newest row of `table` that is not newer than the GPU (70 is Volta, 90 is Hopper)."""
    fitting = [
        name for name, lowest in ARCHITECTURES if lowest <= compute_capability and name in table
    ]
    return fitting[-1] if fitting else next(iter(table))


def step_value(table: Mapping[int, float], key: int) -> float:
    """The entry with the largest key that is not above `key`."""
    return table[max(lowest for lowest in table if lowest <= key)]


def _merge(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    merged = dict(old)
    for key, value in new.items():
        known = merged.get(key)
        if isinstance(known, dict) and isinstance(value, dict):
            merged[key] = _merge(known, value)
        else:
            merged[key] = value
    return merged
