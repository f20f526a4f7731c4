"""NCCL's environment variables: every name, what values mean, and which have an effect here."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from typing import Any

from netsim.base.errors import InputError, shown, suggest
from netsim.base.files import table_beside
from netsim.base.values import dataclass
from netsim.nccl.facts import (
    ALGORITHMS,
    FUNCTIONS,
    NEWEST,
    PROTOCOLS,
    Facts,
    Function,
    PathType,
    Version,
    facts_of,
    parse_version,
)


class VariableError(InputError):
    """An error for a value of a variable that NCCL could not follow on this machine."""

    def __init__(self, variable: str, message: str) -> None:
        super().__init__(message)
        self.variable = variable


# All variables that NCCL knows. If netsim reads a variable, `effect` says what it changes; if not,
# `why_none` says why it changes nothing, where that is not obvious. Users see these texts in
# messages and in a table of the documentation.
_ROWS = table_beside(__file__, "variables.csv")
KNOWN_VARIABLES = frozenset(row["variable"] for row in _ROWS)
EFFECTS = {row["variable"]: row["effect"] for row in _ROWS if row["effect"]}
WITHOUT_EFFECT = {row["variable"]: row["why_none"] for row in _ROWS if row["why_none"]}
USUAL = "it changes nothing of what is simulated"
# Prefixes of the variables that belong to network plugins of cloud vendors.
VENDOR_PREFIXES = ("NCCL_FASTRAK_", "NCCL_GPUDIRECTTCPX_", "NCCL_TCPX")


# NCCL_ALGO and NCCL_PROTO have lists of names with commas between them; `^` before a list means all
# other names. `ring,tree;allreduce:^nvls` is two lists: one for all functions, one for AllReduce.


def choice_lists(
    text: str, names: Sequence[str], available: Sequence[str], facts: Facts
) -> dict[Function, tuple[str, ...]]:
    """Return by function the names that a value of NCCL_ALGO or NCCL_PROTO admits.

    - `text`: the value.
    - `names`: all names of algorithms or protocols; `available`: those that this NCCL version has.

    Functions without a list are left out.
    """
    lists = text.split(";")
    if len(lists) > 1 and not lists[-1].strip():
        lists.pop()
    admitted: dict[Function, tuple[str, ...]] = {}
    for number, part in enumerate(lists):
        prefix, colon, rest = part.rpartition(":")
        if colon and not facts.function_lists:
            raise ValueError("lists by function need NCCL 2.24 or newer")
        if not colon and number:
            raise ValueError(f"only the first list may be without a function, got {shown(part)}")
        functions = (_function(prefix),) if colon else FUNCTIONS
        choices = _names_of_list(rest if colon else part, names, available)
        admitted.update(dict.fromkeys(functions, choices))
    return admitted


def _function(text: str) -> Function:
    """Return the function of NCCL that a prefix of a list names, whatever its case."""
    by_name = {function.casefold(): function for function in FUNCTIONS}
    name = text.strip().casefold()
    if name not in by_name:
        hint = suggest(text.strip(), FUNCTIONS)
        raise ValueError(f"{shown(text.strip())} is no function of NCCL{hint}")
    return by_name[name]


def _names_of_list(text: str, names: Sequence[str], available: Sequence[str]) -> tuple[str, ...]:
    """Return the available names that one list admits; `^` at its beginning admits all others."""
    listed = text.strip()
    excluded = listed.startswith("^")
    by_name = {name.casefold(): name for name in names}
    by_name["collnet"] = "CollNetDirect"  # its name before 2.14
    chosen: list[str] = []
    for word in listed.removeprefix("^").split(","):
        name = by_name.get(word.strip().casefold())
        if name is None or name not in names:
            expected = f"expected one of {', '.join(names)}"
            raise ValueError(f"{expected}, got {shown(word.strip())}{suggest(word.strip(), names)}")
        if name not in available and not excluded:
            raise ValueError(f"this NCCL version has no {name}")
        chosen.append(name)
    return tuple(name for name in available if (name in chosen) != excluded)


def reason(name: str) -> str:
    """Return why a known variable changes nothing here."""
    return WITHOUT_EFFECT.get(name, USUAL)


# The network plugins of cloud vendors set some of NCCL's variables, unless the user sets them.
# Their tuners also choose algorithms, by tables that are not published. A user who has such a table
# may state it as the rules of a tuner (`TunerRule`).

# Each row has a transport, a variable and its value, the compute capability below which it holds,
# the first version of NCCL for which it holds (the one that came out with the plugin's version),
# and the source. An example: EFA delivers out of order. aws-ofi-nccl admits LL and LL128 only if
# the GPU's writes of 128 bytes arrive undivided (from Hopper on); else it sets NCCL_PROTO, since
# 2023.
PLUGINS = table_beside(__file__, "plugins.csv")


def plugin_variables(transport: str, min_cc: int, version: Version = NEWEST) -> Mapping[str, str]:
    """Return NCCL's variables that the network plugin of a transport sets, by name.

    - `min_cc`: the compute capability of the oldest GPU (90 for 9.0).
    - `version`: the version of NCCL.
    """
    return {
        row["variable"]: row["value"]
        for row in PLUGINS
        if row["transport"] == transport
        and (not row["below"] or min_cc < int(row["below"]))
        and (not row["since"] or parse_version(row["since"]) <= version)
    }


# Variables such as NCCL_IB_HCA name NICs: `mlx5_0:1,mlx5_1`, `^mlx5_2`, `=mlx5_1`. Names are
# prefixes, or complete names after `=`; `^` means all others; a port follows a colon.


@dataclass(frozen=True)
class NicNames:
    """The NICs that a variable such as NCCL_IB_HCA names.

    - `names`: pairs of a name and a port; a port of None means any port.
    - `excluded`: whether NCCL may use all NICs but these (`^`).
    - `exact`: whether a name must be equal to that of the NIC (`=`), not only its beginning.
    """

    names: tuple[tuple[str, int | None], ...]
    excluded: bool = False
    exact: bool = False

    def admit(self, name: str, port: int) -> bool:
        """Return whether NCCL may use a port of a NIC with this name."""
        return self._named(name, port) != self.excluded

    def _named(self, name: str, port: int) -> bool:
        """Return whether one of the names fits a port of a NIC."""
        return any(
            (name == given if self.exact else name.startswith(given)) and number in (None, port)
            for given, number in self.names
        )


def nic_names(text: str) -> NicNames:
    """Return the names in a value of NCCL_IB_HCA or NCCL_SOCKET_IFNAME."""
    rest = text.strip()
    excluded = rest.startswith("^")
    rest = rest.removeprefix("^")
    exact = rest.startswith("=")
    rest = rest.removeprefix("=")
    names = []
    for word in rest.split(","):
        name, colon, port = word.strip().partition(":")
        if not name or (colon and not (port.isascii() and port.isdecimal())):
            raise ValueError(
                f"expected names such as mlx5_0,mlx5_1 or mlx5_0:1, after ^ or =, got {text!r}"
            )
        names.append((name, int(port) if colon else None))
    return NicNames(tuple(names), excluded, exact)


# The values of a user's NCCL variables. `None` or an empty mapping means that NCCL decides.
# `refusal` of `nccl/tuning.py` says what NCCL cannot do.


@dataclass(frozen=True)
class Settings:
    """What the user has set: lists of algorithms and protocols, limits of channels, paths, NICs."""

    # By function, the names that are admitted; all are, if the function is missing.
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
    split_on_qps: bool | None = None
    ib_timeout: int | None = None
    ib_retries: int = 7
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


# From NCCL's environment variables to settings: every value is checked, every unknown name refused.

Reader = Callable[[str, Facts], object]


def settings_from(variables: Mapping[str, str], version: Version = NEWEST) -> Settings:
    """Return the settings of an NCCL version with these environment variables.

    Raises an InputError for an unknown variable or a value that NCCL would not accept.
    """
    for name in variables:
        if not is_known(name):
            raise InputError(f"{name} is no NCCL variable{suggest(name, KNOWN_VARIABLES)}")
    facts = facts_of(version)
    fields: dict[str, Any] = {}
    for name, (setting, reader) in READERS.items():
        text = variables.get(name, "").strip()
        if not text:
            continue
        value = _read(name, text, reader, facts)
        if not setting:
            continue
        earlier = fields.get(setting)
        fields[setting] = {**earlier, **value} if isinstance(earlier, dict) else value
    settings = replace(NO_SETTINGS, **fields)
    least = settings.min_channels
    most = settings.max_channels
    if least is not None and most is not None and least > most:
        raise InputError(f"NCCL_MIN_NCHANNELS {least} is larger than NCCL_MAX_NCHANNELS {most}")
    return replace(settings, **_policy(variables.get("NCCL_NETDEVS_POLICY", "")))


def is_known(name: str) -> bool:
    """Return whether an NCCL release or a plugin reads a variable of this name."""
    return name in KNOWN_VARIABLES or name.startswith(VENDOR_PREFIXES)


def known_and_unknown(variables: Mapping[str, str]) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return NCCL's variables in a process environment, and a warning for each unknown name."""
    ours = {n: text for n, text in variables.items() if n.startswith("NCCL_") or is_known(n)}
    recognized = {name: text for name, text in ours.items() if is_known(name)}
    unknown = (name for name in ours if name not in recognized)
    wrong = (f"{name} is no NCCL variable{suggest(name, KNOWN_VARIABLES)}" for name in unknown)
    return recognized, tuple(wrong)


def without_effect(variables: Mapping[str, str]) -> dict[str, str]:
    """Return, by name, why those of `variables` that NCCL knows change nothing here.

    Variables that have an effect are left out.
    """
    return {name: reason(name) for name in variables if is_known(name) and name not in EFFECTS}


def _read(name: str, text: str, reader: Reader, facts: Facts) -> Any:
    """Return the value of a variable; an error names the variable."""
    try:
        return reader(text, facts)
    except ValueError as error:
        raise InputError(f"{name}: {error}") from None


def _policy(text: str) -> dict[str, Any]:
    """Return the fields of `Settings` for a value of NCCL_NETDEVS_POLICY; {} unless it is MAX:n."""
    name, _, number = text.strip().upper().partition(":")
    return {"nics_policy": name, "nics_at_most": int(number)} if name == "MAX" else {}


def _whole_number(least: int, most: int, multiple: int = 1) -> Callable[[str, Facts], int]:
    """Return a reader of whole numbers from `least` to `most` that are multiples of `multiple`."""

    def read(text: str, facts: Facts) -> int:
        """Return the number in a text."""
        digits = text.removeprefix("-")
        number = None
        with suppress(ValueError):
            number = int(text, 0) if digits.isascii() and digits.isalnum() else None
        if number is None or not least <= number <= most:
            raise ValueError(f"expected a whole number from {least} to {most}, got {shown(text)}")
        if number % multiple:
            raise ValueError(f"expected a multiple of {multiple}, got {shown(text)}")
        return number

    return read


def _flag_or_auto(text: str, facts: Facts) -> bool | None:
    """Return whether a flag is set; None for a negative number, which means that NCCL decides."""
    number = _whole_number(-2, 1)(text, facts)
    return None if number < 0 else bool(number)


def _level(text: str, facts: Facts) -> str:
    """Return the path type that a value names, as a word or as one of NCCL's old numbers."""
    reachable = facts.path_types[: facts.path_types.index("SYS") + 1]
    if text.isdecimal() and int(text) < len(OLD_LEVELS):
        return OLD_LEVELS[int(text)]
    if text.upper() in reachable:
        return text.upper()
    names = ", ".join(reachable)
    hint = suggest(text, reachable)
    raise ValueError(f"expected one of {names} or 0 to 5, got {shown(text)}{hint}")


def _nics(text: str, facts: Facts) -> str:
    """Return the first word of a value of NCCL_NETDEVS_POLICY: AUTO, ALL or MAX."""
    name, colon, number = text.upper().partition(":")
    if (name in ("AUTO", "ALL") and not colon) or (name == "MAX" and number.isdecimal()):
        return name
    raise ValueError(f"expected AUTO, ALL or MAX:<number>, got {shown(text)}")


OLD_LEVELS = ("LOC", "PIX", "PXB", "PHB", "SYS", "SYS")


def _one_of(*words: str) -> Reader:
    """Return a reader of a value that is one of some words.

    The reader returns whether the value is the last of these words.
    """

    def read(text: str, facts: Facts) -> bool:
        """Return whether the value `text` is the last of the words."""
        if text.casefold() not in words:
            hint = suggest(text, words)
            raise ValueError(f"expected one of {', '.join(words)}, got {shown(text)}{hint}")
        return text.casefold() == words[-1]

    return read


KINDS: dict[str, Reader] = {
    "algorithms": lambda text, facts: choice_lists(text, ALGORITHMS, facts.algorithms, facts),
    "flag": lambda text, facts: bool(_whole_number(0, 1)(text, facts)),
    "flag_or_auto": _flag_or_auto,
    "level": _level,
    "microseconds": lambda text, facts: _whole_number(0, 10**9)(text, facts) / 1000,
    "names": lambda text, facts: nic_names(text),
    "nics": _nics,
    "protocols": lambda text, facts: choice_lists(text, PROTOCOLS, PROTOCOLS, facts),
    "socket": lambda text, facts: text.casefold() == "socket",
}


def _reader(values: str) -> Reader:
    """Return the function that reads values of one kind.

    `values` describes the kind as `variables.csv` does, such as `whole 1 64` for a whole number
    from 1 to 64.
    """
    kind, *words = values.split()
    if kind == "bytes_of":
        read = _whole_number(1, 2**31)
        return lambda text, facts: {words[0]: read(text, facts)}
    if kind == "one_of":
        return _one_of(*words)
    if kind in ("whole", "threads"):
        return _whole_number(int(words[0]), int(words[1]), 32 if kind == "threads" else 1)
    return KINDS[kind]


# By variable, the field of `Settings` that it sets, and the function that reads its value. Without
# a field, the value is only checked. If several variables set one field, the last of them counts.
READERS = {
    row["variable"]: (row["setting"], _reader(row["values"])) for row in _ROWS if row["values"]
}
