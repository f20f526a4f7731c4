"""Any foreign topology file: its format is told from its content, or named."""

import re
from collections.abc import Callable
from pathlib import Path

from netsim.errors import InputError, ScenarioError, suggest
from netsim.topology import nccl_xml
from netsim.topology.graph import Topology
from netsim.topology.importers import astra, infragraph, nccl, node_link, smi
from netsim.topology.machine import Machine

LARGEST = 32 * 2**20
FORMATS = {
    "nccl": re.compile(r"<system\b"),
    "infragraph": re.compile(
        r"^devices\s*:(?s:.*)^instances\s*:|^instances\s*:(?s:.*)^devices\s*:|"
        r"^devices\s*:\s*\n\s*- components\s*:|\"components\"\s*:\s*\[",
        re.MULTILINE,
    ),
    "node-link": re.compile(r'"(nodes|edges|links)"\s*:'),
    "astra-sim": re.compile(r"^\s*npus_count\s*:", re.MULTILINE),
    "nvidia-smi": re.compile(
        r"^(?:[\s|]|(?:\x1b|\^\[)?\[[0-9;]*m)*GPU0\b|LINK TYPE TABLE", re.MULTILINE
    ),
}
Reader = Callable[[str, str, str, float | None], Machine | Topology]
READERS: dict[str, Reader] = {
    "nccl": lambda text, name, gpu, rate: nccl.machine_of(
        nccl_xml.parse_system(text, name), gpu, name, rate
    ),
    "nvidia-smi": lambda text, name, gpu, rate: smi.read_smi(text, name, _named(gpu, name), rate),
    "infragraph": lambda text, name, _gpu, _rate: infragraph.read_infragraph(text, name),
    "node-link": lambda text, name, _gpu, _rate: node_link.read_node_link(text, name),
    "astra-sim": lambda text, name, _gpu, _rate: astra.read_astra(text, name),
}


def read_foreign(
    path: Path, *, form: str = "", gpu: str = "", nic_rate: float | None = None
) -> Machine | Topology:
    """The machine (of files about a host) or topology (of files about a network) in a file.

    `form` is one of READERS; `gpu` names the GPU's model and `nic_rate` (bytes/s) the NICs', for
    files that lack them.
    """
    name = path.as_posix()
    try:
        content = path.read_bytes()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ScenarioError(f"cannot be read: {reason}", source=name) from None
    if len(content) > LARGEST:
        raise ScenarioError(f"larger than {LARGEST >> 20} MiB", source=name)
    text = content.decode("utf-8-sig", errors="replace")
    chosen = form or detect(text)
    if chosen not in READERS:
        what = f"unknown format '{form}'{suggest(form, READERS)}" if form else "of no known format"
        raise ScenarioError(f"{what}; known: {', '.join(READERS)}", source=name)
    return READERS[chosen](text, name, gpu, nic_rate)


def detect(text: str) -> str:
    """The format that a text looks like; empty if like none."""
    return next((form for form, sign in FORMATS.items() if sign.search(text)), "")


def _named(gpu: str, name: str) -> str:
    if not gpu:
        raise InputError(f"{name}: this matrix has no speeds; name the GPU model, such as H100")
    return gpu
