"""From an entry of an index to the scenario that it measured, as `expect` would ask it.

What an entry leaves open is taken as the machine has it; every such choice is a note.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from netsim.errors import InputError, NetsimError, suggest
from netsim.measured.index import Entry
from netsim.measured.versions import version_of
from netsim.nccl.environment import is_known, settings_from
from netsim.nccl.version import Version
from netsim.presets import is_path, preset_names
from netsim.scenario.names import DTYPES, collective_name
from netsim.topology.load import FOLDER, load_machine
from netsim.topology.machine import Machine
from netsim.topology.transports import TRANSPORTS
from netsim.yamlio.source import Source

LAUNCHES = ("process_per_gpu", "single_process", "cuda_graph")
GPUS_A_PROCESS = re.compile(r"(?:^|\s)(?:-g|--ngpus)[ =](\d+)")
DTYPE_NAMES = {
    "fp8_e4m3": "f8e4m3", "fp8_e5m2": "f8e5m2", "fp16": "half", "bf16": "bfloat16",
    "fp32": "float", "fp64": "double",
}  # fmt: skip
ONLY_CHOICE = ("NCCL_ALGO", "NCCL_PROTO", "NCCL_COLLNET_ENABLE")


@dataclass(frozen=True)
class Mapped:
    """A scenario without sizes, and what had to be decided for it."""

    data: Mapping[str, Any]
    notes: tuple[str, ...]

    def source(self, name: str, sizes: list[int], dtype: str, root: int = 0) -> Source:
        """The scenario at some sizes."""
        work = {**self.data["workload"], "sizes": sizes, "dtype": dtype}
        if root > 0:
            work["root"] = root
        return Source(name, {**self.data, "workload": work})

    def without(self, variables: tuple[str, ...], why: str) -> "Mapped | None":
        """The same without some variables; None where none of them is set."""
        env = self.data["nccl"]["env"]
        gone = [name for name in variables if name in env]
        if not gone:
            return None
        kept = {name: value for name, value in env.items() if name not in gone}
        nccl = {**self.data["nccl"], "env": kept}
        note = f"without {', '.join(gone)}: {why}"
        return Mapped({**self.data, "nccl": nccl}, (*self.notes, note))


def mapped(entry: Entry) -> Mapped:
    """The scenario of an entry; what nothing can stand for is an error with its place."""
    notes: list[str] = []
    name, machine = _machine(entry)
    if name != entry.machine:
        notes.append(f"machine {entry.machine}: taken as {name}, the only one so called")
    try:
        collective = collective_name(entry.collective)
    except ValueError as error:
        raise entry.error(str(error), "collective") from None
    version, note = version_of(entry.text("nccl"), entry.text("remarks"), entry.text("date"))
    notes += [note] * bool(note)
    cluster = {"machine": name, **_cluster(entry, machine, notes)}
    data = {
        "name": re.sub(r"[^A-Za-z0-9._-]", "-", entry.id).lstrip("._-") or "run",
        "cluster": cluster,
        "workload": {"collective": collective},
        "nccl": {"version": str(version), "env": _variables(entry, version, notes)},
        "launch": _launch(entry, int(cluster["nodes"]), notes),
    }
    return Mapped(data, tuple(notes))


def dtype_of(text: str) -> str:
    """A data type as scenarios call it; float where a table calls it something unknown."""
    name = DTYPE_NAMES.get(text, text)
    return name if name in DTYPES else "float"


def _machine(entry: Entry) -> tuple[str, Machine]:
    """The machine by its name, or by a part of it that only one has."""
    name = entry.machine
    known = preset_names(FOLDER)
    alike = [one for one in known if name.casefold() in one]
    if name not in known and not is_path(name) and len(alike) == 1:
        name = alike[0]
    try:
        return name, load_machine(name)
    except NetsimError as error:
        raise entry.error(str(error), "topology", "machine") from None


def _count(entry: Entry, key: str) -> int | None:
    """A count of the topology; None where it is not known."""
    text = entry.text("topology", key)
    if text.casefold() in ("", "unknown", "none", "~", "0"):
        return None
    if not text.isdecimal():
        raise entry.error(f"expected a count, got {text!r}", "topology", key)
    return int(text)


def _cluster(entry: Entry, machine: Machine, notes: list[str]) -> dict[str, Any]:
    nodes, gpus = _count(entry, "nodes") or 1, _count(entry, "gpus_per_node")
    nics = _count(entry, "nics_per_node")
    hosts = 1
    if gpus is not None and gpus > machine.gpu.count:
        hosts, gpus, nics = _several_hosts(entry, machine, gpus, nics)
        notes.append(f"{hosts} hosts of {gpus} GPUs make one of its nodes")
    nodes *= hosts
    found: dict[str, Any] = {"nodes": nodes}
    if gpus is not None:
        found["gpus_per_node"] = gpus
    figures = _figures(entry, machine, nodes, hosts, notes)
    if figures:
        found["overrides"] = [{"machine": figures}]
    if entry.topology.get("p2p") is not None:
        found["p2p"] = _flag(entry, "p2p")
    if nodes > 1:
        found |= _network(entry, machine, nics, notes)
    return found


def _several_hosts(
    entry: Entry, machine: Machine, gpus: int, nics: int | None
) -> tuple[int, int, int | None]:
    """Hosts, GPUs and NICs of each where an entry calls a whole NVLink domain a node."""
    count = machine.gpu.count
    most = machine.scale_up.hosts if machine.scale_up else 1
    if gpus % count or gpus // count > most:
        raise entry.error(f"the machine has {count} GPUs, got {gpus}", "topology", "gpus_per_node")
    hosts = gpus // count
    return hosts, count, None if nics is None else max(1, nics // hosts)


def _figures(
    entry: Entry, machine: Machine, nodes: int, hosts: int, notes: list[str]
) -> dict[str, Any]:
    """Figures of the machine that an entry changes: a bridge, or smaller NVLink domains."""
    up: dict[str, Any] = {}
    if entry.topology.get("nvlink_bridge") is not None:
        up["fitted"] = _flag(entry, "nvlink_bridge")
    most = machine.scale_up.hosts if machine.scale_up else 1
    if most > 1 and hosts > 1:
        up["hosts"] = hosts
    elif most > 1 and nodes > most:
        domains = -(-nodes // most)
        if nodes % domains == 0 and nodes // domains != most:
            up["hosts"] = nodes // domains
            notes.append(f"{domains} NVLink domains of {nodes // domains} hosts each")
    return {"scale_up": up} if up else {}


def _network(
    entry: Entry, machine: Machine, nics: int | None, notes: list[str]
) -> Iterator[tuple[str, Any]]:
    """NICs and transport, as far as they are given."""
    if nics is not None:
        yield "nics_per_node", nics
    rate = _rate(entry)
    if rate is not None:
        yield "nic", f"{rate:g}Gbps"
    transport = entry.text("topology", "transport").casefold()
    if not transport or transport in ("unknown", "intra"):
        notes.append(f"transport unknown: taken as {machine.transport}")
    elif transport not in TRANSPORTS:
        known = f"{suggest(transport, TRANSPORTS)}; known: {', '.join(TRANSPORTS)}"
        raise entry.error(f"unknown transport '{transport}'{known}", "topology", "transport")
    elif transport not in ("nvlink", machine.transport):
        several = (nics or (machine.nics.count if machine.nics else 1)) > 1
        kind = "rail-optimized" if several else "single-switch"
        yield "fabric", {"kind": kind, "transport": transport}


def nics_gbps(entry: Entry) -> float:
    """What the NICs of a host carry together, as given or as its machine has them."""
    nics = _machine(entry)[1].nics
    given = _rate(entry)
    own = () if nics is None else nics.rates
    count = _count(entry, "nics_per_node") or len(own)
    if given is not None:
        return given * count
    return sum(own) * count / len(own) * 8 / 1e9 if own else 0.0


def _rate(entry: Entry) -> float | None:
    """Gb/s of a NIC; None where it is not known."""
    text = entry.text("topology", "nic_gbps")
    if text.casefold() in ("", "unknown", "none", "0"):
        return None
    try:
        return float(text)
    except ValueError:
        message = f"expected Gb/s such as 400, got {text!r}"
        raise entry.error(message, "topology", "nic_gbps") from None


def _flag(entry: Entry, key: str) -> bool:
    text = entry.text("topology", key).casefold()
    if text in ("true", "yes", "1"):
        return True
    if text in ("false", "no", "0"):
        return False
    raise entry.error(f"expected true or false, got {text!r}", "topology", key)


def _launch(entry: Entry, nodes: int, notes: list[str]) -> str:
    """Given, or what the command says, or one process for each GPU."""
    given = entry.text("launch")
    if given in LAUNCHES:
        return given
    if given not in ("", "unknown"):
        known = ", ".join(LAUNCHES)
        raise entry.error(f"expected one of {known} or unknown, got {given!r}", "launch")
    match = GPUS_A_PROCESS.search(entry.text("command"))
    found = "single_process" if match and int(match.group(1)) > 1 else "process_per_gpu"
    why = "as its command says" if match else "as is usual"
    notes.append(f"launch unknown: taken as {found}, {why}")
    return found


def _variables(entry: Entry, version: Version, notes: list[str]) -> dict[str, str]:
    """NCCL's variables that were set; those that no NCCL knows, or that mean nothing, are told."""
    given = entry.values.get("env") or {}
    if not isinstance(given, Mapping):
        raise entry.error("expected NCCL variables, each NAME: value", "env")
    found: dict[str, str] = {}
    for name in given:
        value = entry.text("env", name)
        if not (name.startswith("NCCL_") or is_known(name)):
            continue
        try:
            if not is_known(name):
                raise InputError(f"{name} is no NCCL variable")
            settings_from({**found, name: value}, version)
        except InputError as error:
            notes.append(f"left out: {error}")
            continue
        found[name] = value
    peers = entry.topology.get("p2p") is not None and _flag(entry, "p2p")
    if peers and not found.keys() & {"NCCL_P2P_LEVEL", "NCCL_P2P_DISABLE"}:
        found["NCCL_P2P_LEVEL"] = "SYS"
        notes.append("peer access is in use: taken at any distance (NCCL_P2P_LEVEL=SYS)")
    return found
