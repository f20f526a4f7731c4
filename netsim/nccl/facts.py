"""NCCL's names in its order, its versions, and the rules and numbers that change with versions.

The order decides between equal times, so these tuples are facts and not just lists.
"""

import re
from collections.abc import Mapping
from functools import cache, lru_cache
from pathlib import Path
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

# NCCL's functions by the names of nccl-tests; its other collectives run as sends and receives.
COLLECTIVES: dict[str, Function] = {
    "broadcast": "Broadcast",
    "reduce": "Reduce",
    "all_gather": "AllGather",
    "reduce_scatter": "ReduceScatter",
    "all_reduce": "AllReduce",
}


def function_of(collective: str) -> Function:
    """Return NCCL's function for the name of a collective, `all_reduce` or `AllReduce`."""
    by_name: dict[str, Function] = {**COLLECTIVES, **{name: name for name in FUNCTIONS}}
    if collective not in by_name:
        hint = suggest(collective, by_name)
        raise InputError(f"NCCL has no algorithm choice for {collective!r}{hint}")
    return by_name[collective]


TEXT = re.compile(
    r"(?:v|nccl[ _-]?)?(\d{1,2})\.(\d{1,2})(?:\.(\d{1,2}|x))?(?:-\d+)?(?:\+cuda[\d.]+)?", re.ASCII
)
CODE = re.compile(r"(\d)(\d{2})(\d{2})", re.ASCII)


@dataclass(frozen=True, order=True)
class Version:
    """One NCCL release, or with `Version(2, 27)` the first of the 2.27 series.

    >>> Version(2, 27) < Version(2, 27, 3) < Version(2, 28)
    True
    """

    major: int
    minor: int
    patch: int = 0

    @property
    def code(self) -> int:
        """The version's number in headers and in nccl-tests: 23007 for 2.30.7."""
        return self.major * 10000 + self.minor * 100 + self.patch

    @property
    def in_tables(self) -> str:
        """The version as text in tables; a whole series ends with `.x`.

        Programs that read a table would take 2.20 for the number 2.2:

        >>> Version(2, 20).in_tables, Version(2, 30, 7).in_tables
        ('2.20.x', '2.30.7')
        """
        return str(self) if self.patch else f"{self}.x"

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}" + (f".{self.patch}" if self.patch else "")


OLDEST = Version(2, 10)
NEWEST = Version(2, 30, 7)


def parse_version(text: str) -> Version:
    """Return the version in a text.

    Texts are '2.27' or '2.27.x' (the series), '2.19.3+cuda12.3', 'v2.18.5-1', or the code of five
    digits of nccl-tests, '22703'.
    """
    stripped = text.strip()
    code = CODE.fullmatch(stripped)
    match = code or TEXT.fullmatch(stripped.casefold())
    if match is None:
        raise InputError(f"expected an NCCL version such as 2.27 or 2.19.3, got {text!r}")
    major, minor, patch = match.groups()
    is_series = patch in (None, "x")
    return Version(int(major), int(minor), 0 if is_series else int(patch))


def supported_version(version: Version) -> Version:
    """Return the version; one outside 2.10–2.30 is refused, because its rules are not known."""
    nearest = nearest_version(version)
    if nearest != version:
        span = f"{OLDEST}–{NEWEST.major}.{NEWEST.minor}"
        message = f"NCCL {version} is outside the modelled versions {span}"
        raise InputError(message, hint=f"nearest: {nearest}")
    return version


def nearest_version(version: Version) -> Version:
    """Return the supported version that is closest to `version`, for logs of other releases."""
    if version < OLDEST:
        return OLDEST
    return version if (version.major, version.minor) <= (NEWEST.major, NEWEST.minor) else NEWEST


# NCCL's constants and rules by version: `facts.toml` says what each release changed.


def _value(entry: Any) -> Any:
    """Return an entry of `facts.toml`: lists as tuples, and keys that begin with a digit as
    numbers.
    """
    if isinstance(entry, dict):
        names = (int(key, 0) if key[0].isdigit() else key for key in entry)
        return dict(zip(names, map(_value, entry.values()), strict=True))
    return tuple(map(_value, entry)) if isinstance(entry, list) else entry


@cache
def changes() -> tuple[tuple[Version, Mapping[str, Any]], ...]:
    """Return the releases that changed a fact, the oldest first: pairs of a version and the new
    facts.
    """
    import tomllib  # which a run of a textbook algorithm does without

    table = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
    return tuple((parse_version(since), _value(changed)) for since, changed in table.items())


Triple = tuple[float, float, float]
ARCHITECTURES = (("Volta", 0), ("Ampere", 80), ("Hopper", 90), ("Blackwell", 100))


@dataclass(frozen=True)
class Facts:
    """The constants (µs, GB/s) and rules of one NCCL version; `changes` says since when each
    holds.
    """

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
    direct: bool  # GPUs of one process write each other's buffers, whether registered or not
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
    ib_timeout: int  # of NICs: 4.096 us times 2 to it; as NVIDIA's page of variables has it
    function_lists: bool

    def rank(self, path_type: str) -> int:
        """Return the index of a path type in this version's order, from the best to the worst."""
        return self.path_types.index(path_type)


@lru_cache(maxsize=64)
def facts_of(version: Version = NEWEST) -> Facts:
    """Return the facts of a version: all changes up to it, in order."""
    supported_version(version)
    merged: dict[str, Any] = {}
    for since, changed in changes():
        if since <= version:
            merged = _merge(merged, changed)
    return Facts(**merged)


def architecture(compute_capability: int, table: Mapping[str, object]) -> str:
    """Return the newest row of `table` that is not newer than the GPU (70 is Volta, 90 is
    Hopper).
    """
    names = [one for one, lowest in ARCHITECTURES if lowest <= compute_capability and one in table]
    return names[-1] if names else next(iter(table))


def step_value(table: Mapping[int, float], key: int) -> float:
    """Return the entry with the largest key that is not above `key`."""
    return table[max(lowest for lowest in table if lowest <= key)]


def _merge(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Return `old` with the entries of `new`; tables in both are merged in turn."""
    both = [k for k, v in new.items() if isinstance(v, dict) and isinstance(old.get(k), dict)]
    return {**old, **new, **{key: _merge(old[key], new[key]) for key in both}}
