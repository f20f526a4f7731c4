"""NCCL's environment variables to settings: every value checked, every unknown name refused.

Lists of algorithms and protocols have a small language of their own, read in `choice_lists`.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from netsim.errors import InputError, shown, suggest
from netsim.nccl.choice_lists import algorithm_lists, protocol_lists
from netsim.nccl.effects import EFFECTS, reason
from netsim.nccl.facts import Facts, facts_of
from netsim.nccl.nic_names import NicNames, nic_names
from netsim.nccl.settings import NO_SETTINGS, Settings
from netsim.nccl.variables import KNOWN_VARIABLES, VENDOR_PREFIXES
from netsim.nccl.version import NEWEST, Version

Reader = Callable[[str, Facts], object]


def settings_from(variables: Mapping[str, str], version: Version = NEWEST) -> Settings:
    """The settings that these variables ask of an NCCL version; a wrong one is an error."""
    for name in variables:
        if not is_known(name):
            raise InputError(f"{name} is no NCCL variable{suggest(name, KNOWN_VARIABLES)}")
    facts = facts_of(version)
    fields: dict[str, Any] = {}
    for name, (field, reader) in READERS.items():
        text = variables.get(name, "").strip()
        if not text:
            continue
        value = _read(name, text, reader, facts)
        if not field:
            continue
        known = fields.get(field)
        fields[field] = {**known, **value} if isinstance(known, dict) else value
    settings = replace(NO_SETTINGS, **fields)
    _check_limits(settings)
    return replace(settings, **_policy(variables.get("NCCL_NETDEVS_POLICY", "")))


def is_known(name: str) -> bool:
    """Whether some NCCL release or plugin reads a variable of this name."""
    return name in KNOWN_VARIABLES or name.startswith(VENDOR_PREFIXES)


def known_and_unknown(
    variables: Mapping[str, str],
) -> tuple[dict[str, str], tuple[str, ...]]:
    """NCCL's variables of a process environment, and a warning for each name none knows."""
    ours = {n: text for n, text in variables.items() if n.startswith("NCCL_") or is_known(n)}
    warnings = tuple(
        f"{name} is no NCCL variable{suggest(name, KNOWN_VARIABLES)}"
        for name in ours
        if not is_known(name)
    )
    return {name: text for name, text in ours.items() if is_known(name)}, warnings


def without_effect(variables: Mapping[str, str]) -> dict[str, str]:
    """Known variables that change nothing here, and why, in case someone expects them to."""
    return {name: reason(name) for name in variables if is_known(name) and name not in EFFECTS}


def _read(name: str, text: str, reader: Reader, facts: Facts) -> Any:
    try:
        return reader(text, facts)
    except ValueError as error:
        raise InputError(f"{name}: {error}") from None


def _check_limits(settings: Settings) -> None:
    least, most = settings.min_channels, settings.max_channels
    if least is not None and most is not None and least > most:
        raise InputError(f"NCCL_MIN_NCHANNELS {least} is larger than NCCL_MAX_NCHANNELS {most}")


def _policy(text: str) -> dict[str, Any]:
    name, _, number = text.strip().upper().partition(":")
    return {"nics_policy": name, "nics_at_most": int(number)} if name == "MAX" else {}


def _whole(least: int, most: int) -> Reader:
    def read(text: str, facts: Facts) -> int:
        digits = text.removeprefix("-")
        number = int(text, 0) if digits.isascii() and digits.isalnum() and _is_int(text) else None
        if number is None or not least <= number <= most:
            raise ValueError(f"expected a whole number from {least} to {most}, got {shown(text)}")
        return number

    return read


def _is_int(text: str) -> bool:
    try:
        int(text, 0)
    except ValueError:
        return False
    return True


def _flag(text: str, facts: Facts) -> bool:
    return bool(_whole(0, 1)(text, facts))


def _flag_or_auto(text: str, facts: Facts) -> bool | None:
    number = _whole(-2, 1)(text, facts)
    return None if isinstance(number, int) and number < 0 else bool(number)


def _bytes_of(protocol: str) -> Reader:
    read = _whole(1, 2**31)
    return lambda text, facts: {protocol: read(text, facts)}


def _microseconds(text: str, facts: Facts) -> float:
    number = _whole(0, 10**9)(text, facts)
    assert isinstance(number, int)
    return number / 1000


def _level(text: str, facts: Facts) -> str:
    """A path type by name, or by the numbers of old releases."""
    reachable = facts.path_types[: facts.path_types.index("SYS") + 1]
    if text.isdecimal() and int(text) < len(OLD_LEVELS):
        return OLD_LEVELS[int(text)]
    if text.upper() in reachable:
        return text.upper()
    names = ", ".join(reachable)
    hint = suggest(text, reachable)
    raise ValueError(f"expected one of {names} or 0 to 5, got {shown(text)}{hint}")


def _nics(text: str, facts: Facts) -> str:
    name, colon, number = text.upper().partition(":")
    if (name in ("AUTO", "ALL") and not colon) or (name == "MAX" and number.isdecimal()):
        return name
    raise ValueError(f"expected AUTO, ALL or MAX:<number>, got {shown(text)}")


OLD_LEVELS = ("LOC", "PIX", "PXB", "PHB", "SYS", "SYS")


def _threads(least: int, most: int) -> Reader:
    """Threads of a block: NCCL takes its default where they are no multiple of a warp."""
    read = _whole(least, most)

    def checked(text: str, facts: Facts) -> object:
        number = read(text, facts)
        if isinstance(number, int) and number % 32:
            raise ValueError(f"expected a multiple of 32, got {shown(text)}")
        return number

    return checked


def _one_of(*words: str) -> Reader:
    """Whether the last of some words is given."""

    def read(text: str, facts: Facts) -> bool:
        if text.casefold() not in words:
            hint = suggest(text, words)
            raise ValueError(f"expected one of {', '.join(words)}, got {shown(text)}{hint}")
        return text.casefold() == words[-1]

    return read


def _is_socket(text: str, facts: Facts) -> bool:
    return text.casefold() == "socket"


def _names(text: str, facts: Facts) -> NicNames:
    return nic_names(text)


def _checked(reader: Reader) -> tuple[str, Reader]:
    """A variable whose value is checked, and which changes nothing."""
    return "", reader


_channels = _whole(1, 64)
_bytes = _whole(0, 2**31)

READERS: dict[str, tuple[str, Reader]] = {
    "NCCL_ALGO": ("algorithms", algorithm_lists),
    "NCCL_PROTO": ("protocols", protocol_lists),
    "NCCL_MIN_NRINGS": ("min_channels", _channels),
    "NCCL_MIN_NCHANNELS": ("min_channels", _channels),
    "NCCL_MIN_CTAS": ("min_channels", _channels),
    "NCCL_MAX_NRINGS": ("max_channels", _channels),
    "NCCL_MAX_NCHANNELS": ("max_channels", _channels),
    "NCCL_MAX_CTAS": ("max_channels", _channels),
    "NCCL_NVLS_ENABLE": ("nvls", _whole(0, 2)),
    "NCCL_NVLS_NCHANNELS": ("nvls_channels", _channels),
    "NCCL_NVLS_CHUNKSIZE": ("nvls_chunk", _bytes),
    "NCCL_NVLSTREE_MAX_CHUNKSIZE": ("nvls_tree_chunk", _bytes),
    "NCCL_COLLNET_ENABLE": ("collnet", _flag),
    "NCCL_COLLNET_NODE_THRESHOLD": ("collnet_node_threshold", _whole(0, 10**6)),
    "NCCL_PAT_ENABLE": ("pat", _whole(0, 2)),
    "NCCL_MNNVL_ENABLE": ("mnnvl", _whole(0, 2)),
    "NCCL_LL128_C2C": ("ll128_c2c", _flag),
    "NCCL_NTHREADS": ("n_threads", _threads(64, 512)),
    "NCCL_LL128_NTHREADS": ("ll128_threads", _threads(160, 640)),
    "NCCL_NET_OVERHEAD": ("net_overhead_us", _microseconds),
    "NCCL_BUFFSIZE": ("buffer_bytes", _bytes_of("Simple")),
    "NCCL_LL_BUFFSIZE": ("buffer_bytes", _bytes_of("LL")),
    "NCCL_LL128_BUFFSIZE": ("buffer_bytes", _bytes_of("LL128")),
    "NCCL_P2P_DISABLE": ("p2p_disabled", _flag),
    "NCCL_P2P_LEVEL": ("p2p_level", _level),
    "NCCL_P2P_DIRECT_DISABLE": ("p2p_direct_disabled", _flag),
    "NCCL_P2P_READ_ENABLE": _checked(_flag_or_auto),
    "NCCL_NVB_DISABLE": ("nvb_disabled", _flag),
    "NCCL_SHM_DISABLE": ("shm_disabled", _flag),
    "NCCL_SHM_LOCALITY": _checked(_whole(1, 2)),
    "NCCL_NET_GDR_LEVEL": ("gdr_level", _level),
    "NCCL_NET_GDR_READ": _checked(_flag_or_auto),
    "NCCL_NET_GDR_C2C": ("gdr_c2c", _flag),
    "NCCL_PXN_DISABLE": ("pxn_disabled", _flag),
    "NCCL_P2P_PXN_LEVEL": ("pxn_level", _whole(0, 2)),
    "NCCL_CROSS_NIC": ("cross_nic", _whole(0, 2)),
    "NCCL_NETDEVS_POLICY": ("nics_policy", _nics),
    "NCCL_IB_DISABLE": ("ib_disabled", _flag),
    "NCCL_NET": ("sockets", _is_socket),
    "NCCL_IB_HCA": ("hcas", _names),
    "NCCL_SOCKET_IFNAME": ("interfaces", _names),
    "NCCL_IB_QPS_PER_CONNECTION": ("qps", _whole(1, 128)),
    "NCCL_IB_SPLIT_DATA_ON_QPS": _checked(_flag),
    "NCCL_IB_AR_THRESHOLD": _checked(_bytes),
    "NCCL_NET_DISABLE_INTRA": _checked(_flag),
    "NCCL_MIN_P2P_NCHANNELS": ("min_p2p_channels", _channels),
    "NCCL_MAX_P2P_NCHANNELS": ("max_p2p_channels", _channels),
    "NCCL_NCHANNELS_PER_NET_PEER": ("net_peer_channels", _channels),
    "NCCL_P2P_SCHEDULE_GROUP_SIZE": ("p2p_group", _whole(1, 1024)),
    "NCCL_P2P_LL_THRESHOLD": ("p2p_ll_threshold", _bytes),
    "NCCL_ALLOC_P2P_NET_LL_BUFFERS": ("p2p_net_ll", _flag),
    "NCCL_P2P_NVL_CHUNKSIZE": ("p2p_nvl_chunk", _whole(1, 2**31)),
    "NCCL_P2P_NET_CHUNKSIZE": ("p2p_net_chunk", _whole(1, 2**31)),
    "NCCL_P2P_PCI_CHUNKSIZE": ("p2p_pci_chunk", _whole(1, 2**31)),
    "NCCL_SOCKET_NTHREADS": _checked(_whole(1, 16)),
    "NCCL_NSOCKS_PERTHREAD": _checked(_whole(1, 64)),
    "FI_CXI_RX_MATCH_MODE": ("cxi_software_match", _one_of("hardware", "hybrid", "software")),
    "FI_CXI_RDZV_PROTO": ("cxi_alternative_read", _one_of("default", "alt_read")),
}
