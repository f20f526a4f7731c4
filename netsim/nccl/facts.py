"""NCCL's words in its order, its versions, and the rules and numbers that change with them.

The order decides ties between equal times, so these tuples are facts and not just lists.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Literal

from netsim.base.errors import InputError, suggest
from netsim.base.values import dataclass

Function = Literal["Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce"]
Algorithm = Literal["Tree", "Ring", "CollNetDirect", "CollNetChain", "NVLS", "NVLSTree", "PAT"]
Protocol = Literal["LL", "LL128", "Simple"]
PathType = Literal[
    "LOC", "NVL", "NVB", "C2C", "PIX", "PXB", "P2C", "PXN", "PHB", "SYS", "NET", "DIS"
]

FUNCTIONS: tuple[Function, ...] = ("Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce")
ALGORITHMS: tuple[Algorithm, ...] = (
    *("Tree", "Ring", "CollNetDirect", "CollNetChain", "NVLS", "NVLSTree", "PAT"),
)
PROTOCOLS: tuple[Protocol, ...] = ("LL", "LL128", "Simple")
AUTO = "auto"
NCCL_NAMES = (AUTO, *ALGORITHMS)  # algorithms of scenarios that mean NCCL's

# NCCL's functions by the names of nccl-tests; the others of nccl-tests run as sends and receives.
COLLECTIVES: dict[str, Function] = {
    "broadcast": "Broadcast",
    "reduce": "Reduce",
    "all_gather": "AllGather",
    "reduce_scatter": "ReduceScatter",
    "all_reduce": "AllReduce",
}


def function_of(collective: str) -> Function:
    """The NCCL function behind a collective's name, `all_reduce` or `AllReduce`."""
    by_name = dict(COLLECTIVES)
    by_name.update((name, name) for name in FUNCTIONS)
    if collective not in by_name:
        hint = suggest(collective, by_name)
        raise InputError(f"NCCL has no algorithm choice for {collective!r}{hint}")
    return by_name[collective]


TEXT = re.compile(
    r"(?:v|nccl[ _-]?)?(\d{1,2})\.(\d{1,2})(?:\.(\d{1,2}))?(?:-\d+)?(?:\+cuda[\d.]+)?", re.ASCII
)
CODE = re.compile(r"(\d)(\d{2})(\d{2})", re.ASCII)


@dataclass(frozen=True, order=True)
class Version:
    """One NCCL release; `Version(2, 27)` stands for the whole 2.27 series."""

    major: int
    minor: int
    patch: int = 0

    @property
    def code(self) -> int:
        """The number by which headers and nccl-tests know it: 23007 for 2.30.7."""
        return self.major * 10000 + self.minor * 100 + self.patch

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}" + (f".{self.patch}" if self.patch else "")


OLDEST = Version(2, 10)
NEWEST = Version(2, 30, 7)


def parse_version(text: str) -> Version:
    """Read '2.27', '2.19.3+cuda12.3', 'v2.18.5-1' or nccl-tests' five digit code '22703'."""
    stripped = text.strip()
    code = CODE.fullmatch(stripped)
    match = code or TEXT.fullmatch(stripped.casefold())
    if match is None:
        raise InputError(f"expected an NCCL version such as 2.27 or 2.19.3, got {text!r}")
    major, minor, patch = (int(part or 0) for part in match.groups())
    return Version(major, minor, patch)


def supported_version(version: Version) -> Version:
    """The version itself; one outside 2.10–2.30 is refused, because its rules are not known."""
    nearest = nearest_version(version)
    if nearest != version:
        span = f"{OLDEST}–{NEWEST.major}.{NEWEST.minor}"
        raise InputError(
            f"NCCL {version} is outside the modelled versions {span}", hint=f"nearest: {nearest}"
        )
    return version


def nearest_version(version: Version) -> Version:
    """The modelled version closest to `version`, for logs of releases outside the range."""
    if version < OLDEST:
        return OLDEST
    in_series = (version.major, version.minor) <= (NEWEST.major, NEWEST.minor)
    return version if in_series else NEWEST


# NCCL's constants and rules by version: one literal list of what each release changed.
# An entry says which facts hold from that release on; nested tables are merged key by key.
# Latencies in µs, bandwidths in GB/s (1e9), both as NCCL's own cost model has them. Only `facts`
# reads this.

NONE = (0.0, 0.0, 0.0)

# The columns of every table below: LL, LL128, Simple for latencies; 1, 2 and >= 3 nodes for caps.
CHANGES: tuple[tuple[Version, dict[str, Any]], ...] = (
    (
        Version(2, 10),
        {
            "algorithms": ("Tree", "Ring", "CollNetDirect"),
            "gather_algorithms": ("Ring",),
            "base_latency": {
                "Tree": (4.4, 4.4, 0.0),
                "Ring": (3.6, 10.0, 8.4),
                "CollNetDirect": NONE,
                "CollNetChain": NONE,
                "NVLS": NONE,
                "NVLSTree": NONE,
                "PAT": (8.0, 8.0, 8.0),
            },
            "hop_latency": {
                "NVLINK": {
                    "Tree": (0.52, 1.25, 28.0),
                    "Ring": (0.47, 1.9, 3.4),
                    "CollNetDirect": (0.0, 0.0, 3.7),
                    "CollNetChain": (0.0, 0.0, 2.8),
                    "NVLS": NONE,
                    "NVLSTree": NONE,
                    "PAT": (0.0, 0.0, 4.0),
                },
                "PCI": {
                    "Tree": (1.0, 1.9, 28.0),
                    "Ring": (1.0, 2.5, 5.7),
                    "CollNetDirect": (0.0, 0.0, 3.7),
                    "CollNetChain": (0.0, 0.0, 2.8),
                    "NVLS": NONE,
                    "NVLSTree": NONE,
                    "PAT": (0.0, 0.0, 4.0),
                },
                "NET": {
                    "Tree": (5.0, 8.5, 28.0),
                    "Ring": (2.7, 4.0, 9.6),
                    "CollNetDirect": (0.0, 0.0, 31.0),
                    "CollNetChain": (0.0, 0.0, 30.0),
                    "NVLS": (0.0, 0.0, 18.0),
                    "NVLSTree": (0.0, 0.0, 14.0),
                    "PAT": (0.0, 0.0, 14.0),
                },
            },
            "ll_max": {"Volta": (39.0, 39.0, 20.4), "Ampere": (87.7, 22.5, 19.0)},
            "channel_max": {
                "Ring LL128": {"Volta": (20.0,) * 3, "Ampere": (20.0,) * 3},
                "Tree LL128": {"Volta": (20.0,) * 3, "Ampere": (20.0,) * 3},
                "Tree": {"Volta": (26.5, 18.5, 10.0), "Ampere": (24.0, 23.6, 17.8)},
                "NVLSTree": {"Volta": (26.5, 18.5, 10.0), "Ampere": (24.0, 23.6, 17.8)},
            },
            "nvls_efficiency": {},
            "ring_ll_half": False,
            "ring_ll128_lone_gpu": 0.7,
            "a100_cap": 235.0,
            "intra_ll_penalty": 1.8,
            "plateau_by_channel": False,
            "net_latency_replaces": True,
            "lone_gpu_tree_hops": False,
            "net_overhead": False,
            "ring_wraps_over_net": True,
            "one_gpu_tree_factor": 1.0,
            "pat_factor": 0.85,
            "nvls_shard_rule": "whole",
            "nvls_tree_corrected": False,
            "ll128_wide": False,
            "search_channels": 16,
            "max_channels": 32,
            "nvls_heads": 8,
            "intra_speeds": {"Ampere": (44, 30, 22, 18, 15, 12, 10, 9, 7, 6, 5, 4, 3)},
            "inter_speeds": {
                "Ampere": (48, 30, 24, 22, 18, 15, 12, 10, 9, 7, 6, 5, 4, 3, 2.4, 1.2, 0.24, 0.12)
            },
            "nvlink": {0: 20.0, 60: 18.0, 70: 22.0, 80: 22.0, 86: 12.0, 90: 22.0},
            "intel_sockets": {0: 6.0, 0x55: 9.0},
            "amd_sockets": 5000.0,
            "path_types": ("LOC", "NVL", "NVB", "PIX", "PXB", "PXN", "PHB", "SYS", "DIS"),
            "p2p_narrow": False,
            "tree_640_threads": False,
            "continuous_split": False,
            "p2p_rounds": "alternating",
            "p2p_net_channels": "two",
            "p2p_ll_by": "part",
            "bad_choice": "all_reduce_only",
            "split_on_qps": True,
            "function_lists": False,
        },
    ),
    (Version(2, 12), {"hop_latency": {"NET": {"Ring": (2.7, 4.0, 28.0)}}}),
    (
        Version(2, 14),
        {
            "algorithms": ("Tree", "Ring", "CollNetDirect", "CollNetChain"),
            "hop_latency": {"NET": {"Ring": (2.7, 4.0, 9.6)}},
            "path_types": ("LOC", "NVL", "NVB", "PIX", "PXB", "PXN", "PHB", "SYS", "NET", "DIS"),
        },
    ),
    (
        Version(2, 16),
        {
            "ll_max": {"Hopper": (87.7, 22.5, 19.0)},
            "channel_max": {
                "Ring LL128": {"Hopper": (20.0,) * 3},
                "Tree LL128": {"Hopper": (20.0,) * 3},
                "Tree": {"Hopper": (24.0, 23.6, 17.8)},
                "NVLSTree": {"Hopper": (24.0, 23.6, 17.8)},
            },
            "intra_speeds": {"Hopper": (66, 33, 24, 20, 15, 12, 11, 6, 3)},
            "inter_speeds": {
                "Ampere": (
                    *(48, 30, 28, 24, 22, 18, 15, 12, 10, 9, 7, 6, 5, 4, 3),
                    *(2.4, 1.2, 0.24, 0.12),
                ),
                "Hopper": (
                    *(48, 45, 42, 40, 30, 24, 22, 20, 17.5, 15, 12, 6, 3),
                    *(2.4, 1.2, 0.24, 0.12),
                ),
            },
        },
    ),
    (
        Version(2, 18),
        {
            "algorithms": ("Tree", "Ring", "CollNetDirect", "CollNetChain", "NVLS", "NVLSTree"),
            "base_latency": {
                "Tree": (6.8, 14.0, 0.0),
                "Ring": (6.6, 14.0, 8.4),
                "NVLS": (0.0, 0.0, 23.0),
                "NVLSTree": (0.0, 0.0, 23.0),
            },
            "hop_latency": {
                "NVLINK": {"Tree": (0.6, 1.25, 4.0), "Ring": (0.6, 1.9, 3.4)},
                "PCI": {"Tree": (1.0, 1.9, 6.0)},
                "NET": {"Tree": (5.0, 8.5, 14.0), "Ring": (2.7, 4.0, 14.0)},
            },
            "channel_max": {
                "Ring LL128": {"Hopper": (36.7,) * 3},
                "Tree LL128": {"Hopper": (36.7, 36.7, 29.0)},
                "Tree": {"Hopper": (38.7, 41.4, 36.0)},
                "NVLSTree": {"Hopper": (0.0, 57.7, 45.5)},
            },
            "a100_cap": 0.0,
            "intra_ll_penalty": 1.0,
            "plateau_by_channel": True,
            "net_latency_replaces": False,
            "net_overhead": True,
            "one_gpu_tree_factor": 0.85,
            "ll128_wide": True,
            "intra_speeds": {
                "Ampere": (40, 30, 20, 18, 15, 12, 10, 9, 7, 6, 5, 4, 3),
                "Hopper": (60, 50, 40, 30, 24, 20, 15, 12, 11, 6, 3),
            },
            "inter_speeds": {
                "Ampere": (
                    *(48, 30, 28, 24, 20, 18, 15, 12, 10, 9, 7, 6, 5, 4, 3),
                    *(2.4, 1.2, 0.24, 0.12),
                )
            },
            "nvlink": {70: 20.0, 80: 20.0, 90: 20.0},
            "intel_sockets": {0x55: 10.0},
            "bad_choice": "all_reduce_and_ring",
        },
    ),
    (
        Version(2, 19),
        {
            "gather_algorithms": ("Ring", "NVLS"),
            "base_latency": {"NVLS": NONE, "NVLSTree": NONE},
            "hop_latency": {
                "NVLINK": {
                    "Tree": (0.6, 1.25, 28.0),
                    "NVLS": (0.0, 0.0, 23.0),
                    "NVLSTree": (0.0, 0.0, 23.0),
                },
                "PCI": {"Tree": (1.0, 1.9, 28.0)},
                "NET": {"Tree": (5.0, 8.5, 28.0)},
            },
            "amd_sockets": 16.0,
            "bad_choice": "fall_back",
        },
    ),
    (
        Version(2, 20),
        {
            "gather_algorithms": ("Ring", "NVLS", "CollNetDirect"),
            "p2p_net_channels": "covering",
            "split_on_qps": False,  # NVIDIA's page of environment variables
        },
    ),
    (
        Version(2, 21),
        {
            "hop_latency": {"NVLINK": {"NVLS": (0.0, 0.0, 25.0), "NVLSTree": (0.0, 0.0, 25.0)}},
            "ll_max": {"Hopper": (141.0, 45.0, 35.0)},
            "ring_ll_half": True,
            "nvlink": {90: 20.6},
            "nvls_heads": 32,
        },
    ),
    (
        Version(2, 22),
        {
            "continuous_split": True,
            "tree_640_threads": True,
            "p2p_rounds": "quadratic",
            "p2p_ll_by": "most_channels",
        },
    ),
    (
        Version(2, 23),
        {
            "algorithms": (
                *("Tree", "Ring", "CollNetDirect", "CollNetChain", "NVLS", "NVLSTree", "PAT"),
            ),
            "gather_algorithms": ("Ring", "NVLS", "CollNetDirect", "PAT"),
            "base_latency": {"Tree": (6.8, 14.0, 8.4)},
            "hop_latency": {
                "NVLINK": {"Tree": (0.6, 1.25, 4.0)},
                "PCI": {"Tree": (1.0, 1.9, 4.0)},
                "NET": {"Tree": (5.0, 8.5, 14.0)},
            },
            "ring_ll128_lone_gpu": 0.92,
            "lone_gpu_tree_hops": True,
            "ring_wraps_over_net": False,
            "p2p_narrow": True,
        },
    ),
    (Version(2, 24), {"pat_factor": 0.75, "bad_choice": "refuse", "function_lists": True}),
    (
        Version(2, 25),
        {
            "ll_max": {"Blackwell": (282.0, 90.0, 70.0)},
            "channel_max": {
                "Ring LL128": {"Blackwell": (73.4,) * 3},
                "Tree LL128": {"Blackwell": (73.4, 73.4, 58.0)},
                "Tree": {"Blackwell": (77.4, 82.8, 72.0)},
                "NVLSTree": {"Blackwell": (0.0, 115.4, 91.0)},
            },
            "search_channels": 32,
            "max_channels": 64,
            "intra_speeds": {"Blackwell": (90, 80, 70, 60, 50, 45, 40, 30, 24, 20, 19, 18)},
            "inter_speeds": {
                "Blackwell": (
                    *(96, 86, 80, 48, 45.1, 42, 40, 30, 24, 22, 20, 17.5, 15, 12, 6, 3),
                    *(2.4, 1.2, 0.24, 0.12),
                )
            },
            "nvlink": {100: 40.0},
        },
    ),
    (
        Version(2, 26),
        {
            "intel_sockets": {0x8F: 22.0, 0xCF: 40.0},
            "path_types": (
                *("LOC", "NVL", "NVB", "C2C", "PIX", "PXB", "PXN", "PHB", "SYS", "NET", "DIS"),
            ),
        },
    ),
    (
        Version(2, 27),
        {
            "nvls_shard_rule": "inter",
            "nvlink": {100: 40.1},
            "path_types": (
                *("LOC", "NVL", "NVB", "C2C", "PIX", "PXB", "PXN", "P2C", "PHB", "SYS"),
                *("NET", "DIS"),
            ),
        },
    ),
    (
        Version(2, 28),
        {
            "channel_max": {
                "Tree LL128": {"Blackwell": (55.6, 31.67, 20.0)},
                "Tree": {"Blackwell": (70.0, 42.8, 24.0)},
                "NVLSTree": {"Blackwell": (0.0, 96.0, 43.1)},
            },
            "nvls_efficiency": {"Volta": 0.0, "Ampere": 0.0, "Hopper": 0.85, "Blackwell": 0.74},
            "path_types": (
                *("LOC", "NVL", "NVB", "C2C", "PIX", "PXB", "P2C", "PXN", "PHB", "SYS"),
                *("NET", "DIS"),
            ),
        },
    ),
    (
        Version(2, 28, 7),
        {"channel_max": {"Ring LL128": {"Blackwell": (73.4, 34.6, 73.4)}}, "p2p_rounds": "grouped"},
    ),
    (
        Version(2, 28, 9),
        {
            "hop_latency": {"NET": {"NVLSTree": (0.0, 0.0, 20.9)}},
            "channel_max": {"NVLSTree": {"Blackwell": (0.0, 96.0, 43.8)}},
        },
    ),
    (
        Version(2, 29),
        {
            "channel_max": {"Ring LL128": {"Blackwell": (34.5, 34.6, 34.5)}},
            "nvls_tree_corrected": True,
            "p2p_net_channels": "by_bandwidth",
            "p2p_ll_by": "channels",
        },
    ),
    (Version(2, 29, 7), {"channel_max": {"Ring LL128": {"Blackwell": (40.0,) * 3}}}),
    (Version(2, 30), {"channel_max": {"NVLSTree": {"Blackwell": (0.0, 96.0, 80.0)}}}),
)


# What holds in one NCCL version: constants and rules as a value, looked up by version.
# The numbers themselves are in `CHANGES`; formulas that use them are elsewhere.

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
    p2p_ll_by: str  # what LL's threshold counts: a "part", or all "channels" or "most_channels"
    bad_choice: str  # what an impossible NCCL_ALGO does
    split_on_qps: bool  # every message, unless NCCL_IB_SPLIT_DATA_ON_QPS says otherwise
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
