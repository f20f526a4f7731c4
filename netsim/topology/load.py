"""Machines: read by name or path, changed by overrides, and written as files."""

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from functools import lru_cache
from math import inf
from pathlib import Path
from typing import Annotated, Any, TypeVar

import numpy as np
import pydantic
import yaml

from netsim.base.errors import suggest
from netsim.base.files import find_preset
from netsim.base.units import format_size, parse_bandwidth, parse_time
from netsim.base.values import dataclass
from netsim.topology.graph import Topology, TopologyError
from netsim.topology.host import make_host
from netsim.topology.machine import Machine, Nics, Transport
from netsim.topology.network import Fabric, Ports
from netsim.yamlio.models import FieldError, Model
from netsim.yamlio.read import Source, read_source
from netsim.yamlio.validate import all_findings, validate

FOLDER = "topologies"


@dataclass(frozen=True, slots=True)
class Loaded:
    """A machine with its name, its file, and a message for the user (empty if there is none)."""

    name: str
    machine: Machine
    path: Path | None = None
    note: str = ""


def load_machine(which: str | Path | Source) -> Machine:
    """Return the machine that `which` names: a machine's name, the path of its file, or a Source.

    Names are those of `netsim topo list`; a file of that name in the current folder, or in a folder
    `topologies` there, takes precedence. Unknown names raise an InputError with the list of names.

    >>> machine = load_machine("dgx-h100")
    >>> machine.gpu.count, machine.gpu.model, f"{machine.nics.rate * 8 / 1e9:.0f} Gb/s"
    (8, 'H100 SXM5 80GB', '400 Gb/s')
    """
    return find_machine(which).machine


def find_machine(which: str | Path | Source) -> Loaded:
    """Return the machine that `which` names (see `load_machine`) with its file, and a note if this
    file hides a preset of the same name.
    """
    if isinstance(which, Source):
        return Loaded(Path(which.name).stem, validate(Machine, which))
    preset = find_preset(FOLDER, str(which), "machine")
    try:
        stamp = preset.path.stat().st_mtime_ns
    except OSError:
        stamp = 0
    return Loaded(preset.name, _read(preset.path, stamp), preset.path, preset.note)


@lru_cache(maxsize=64)
def _read(path: Path, stamp: int) -> Machine:
    return validate(Machine, read_source(path))


M = TypeVar("M", bound=Model)


def with_figures(model: M, changes: Mapping[str, Any], *path: str | int) -> M:
    """Return the model with the values of a partial, nested mapping in place of its own.

    `path` is the path of the mapping in the file, for messages.
    """
    update: dict[str, Any] = {}
    for key, value in changes.items():
        field = type(model).model_fields.get(key)
        if field is None:
            keys = list(type(model).model_fields)
            raise FieldError(f"unknown key '{key}'{suggest(key, keys)}", *path, key)
        now = getattr(model, key)
        if isinstance(now, Model) and isinstance(value, Mapping):
            update[key] = with_figures(now, value, *path, key)
            continue
        kind: Any = field.annotation
        for part in field.metadata:
            kind = Annotated[kind, part]
        new = _validated(kind, value, (*path, key))
        update[key] = {**now, **new} if isinstance(now, Mapping) and new else new
    changed = model.model_copy(update=update)
    for name in type(model).__pydantic_decorators__.model_validators:
        try:  # the rules between the fields hold for what was changed, too
            getattr(changed, name)()
        except FieldError as error:
            raise FieldError(error.message, *path, *error.path) from None
    return changed


def _validated(kind: Any, value: Any, path: tuple[str | int, ...]) -> Any:
    model_type = pydantic.create_model("one", __base__=Model, value=(kind, ...))
    try:
        return model_type.model_validate({"value": value}).value  # type: ignore[attr-defined]
    except pydantic.ValidationError as error:
        first = all_findings(error, model_type, ())[0]
        raise FieldError(first.text, *path, *first.path[1:]) from None


def with_nics(
    machine: Machine,
    count: int | None,
    rate: float | None,
    gpus: Sequence[int],
    transport: Transport,
) -> Machine:
    """Return the machine as a cluster uses it, with its NICs as the transport presents them.

    Args:
        machine: the machine.
        count: number of NICs; None: those of the machine.
        rate: line rate of each NIC in bytes/s; None: that of the machine.
        gpus: the GPUs in use; NICs near them are taken first.
        transport: may combine NICs beyond one for each GPU, or forbid GPUDirect.
    """
    nics = machine.nics
    count = count if count is not None or nics is None else nics.count
    if nics is None or count is None or count == 0:
        return machine.model_copy(update={"nics": None})
    share = 1.0
    if transport.groups and count > machine.gpu.count:
        share = count / machine.gpu.count
        count = machine.gpu.count
    chosen = _chosen(machine, nics, count, gpus)
    rates = tuple((rate or nics.rates[nic]) * share for nic in chosen)
    changed = {
        "count": count,
        "rate": rates[0],
        "rate_each": rates,
        "pcie": tuple(machine.link_of(nics, nic) for nic in chosen),
        "at": tuple(machine.nic_at(nic) for nic in chosen),
        "gpudirect": nics.gpudirect and transport.gpudirect,
    }
    return machine.model_copy(
        update={"nics": nics.model_copy(update=changed), "transport": transport.name}
    )


def _chosen(machine: Machine, nics: Nics, count: int, gpus: Sequence[int]) -> list[int]:
    """Return the numbers of the machine's NICs that are used if `count` are wanted, one number for
    each of them.

    NICs near the GPUs `gpus` come first. If the machine has fewer than `count`, its numbers are
    repeated: two entries of the result are then equal NICs.
    """
    if count >= nics.count:
        return [nic * nics.count // count for nic in range(count)]
    near = sorted(set(make_host(machine, gpus).local.ravel().tolist()))
    others = [nic for nic in range(nics.count) if nic not in near]
    few = min(count, len(near))
    evenly = [near[index * len(near) // few] for index in range(few)]
    return sorted(evenly + others[: count - few])


_BANDWIDTHS = ("memory_bandwidth", "link_bandwidth", "bandwidth", "link", "rate", "rate_each")
_SIZES = ("memory",)


def machine_yaml(machine: Machine) -> str:
    """Return the text of the file that describes a machine."""
    return yaml.safe_dump(
        plain_machine(machine), sort_keys=False, default_flow_style=None, width=100
    )


def plain_machine(machine: Machine) -> Any:
    """Return a machine as mappings and lists, with units, as a file has it."""
    return with_units(machine.model_dump(mode="python", exclude_defaults=True), "")


def with_units(value: Any, key: str, parent: str = "") -> Any:
    """Return a value as a file has it: quantities with units, tuples as lists.

    `key` is the value's own key, `parent` the key of the part that it is in; both decide the unit.
    """
    if isinstance(value, dict):
        return {name: with_units(one, name, key) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [with_units(one, key, parent) for one in value]
    if parent == "latencies":
        return f"{value * 1e9:.12g}ns"
    if parent == "flops":
        return f"{value / 1e12:.15g}TFLOPS"
    if key == "power" and value is not None:
        return f"{value:.15g}W"
    if key in _BANDWIDTHS and isinstance(value, float):
        return f"{value / 1e9:.15g}GB/s"
    return f"{value}B" if key in _SIZES and isinstance(value, int) else value


MOST_LINKS = 20_000  # a file with more is larger than scenarios may be


def graph_yaml(topology: Topology, name: str) -> str:
    """Return the text of a scenario whose cluster is the graph of a topology, node by node and link
    by link.
    """
    links = _links(topology)
    if len(links) > MOST_LINKS:
        raise TopologyError(
            f"{topology.name}: {len(links)} links are too many to write one by one (at most "
            f"{MOST_LINKS}); describe it as machines and a fabric, or as a torus or ring"
        )
    gpu_nodes = set(topology.gpus)
    others = [node for node in topology.graph.nodes if node not in gpu_nodes]
    nodes = [_node(topology, node) for node in (*topology.gpus, *others)]
    switching = {} if topology.switching == "cut-through" else {"switching": topology.switching}
    values = {
        "name": "".join(c if c.isalnum() or c in "._-" else "-" for c in name).lstrip("._-") or "x",
        "cluster": {"graph": {"nodes": nodes, "links": links, **switching}},
        "workload": {"collective": "all_reduce", "algorithm": "ring", "sizes": ["1MiB", "64MiB"]},
    }
    return yaml.dump(values, Dumper=_Dumper, sort_keys=False, width=120)


# Keys that every kind of fabric has: they stay when a fabric is written as a custom one.
SHARED = (
    *("nic", "link", "latency", "cable_metres", "transport"),
    *("delivery", "qps", "split_on_qps", "seed", "nodes", "sharp"),
)


def custom_yaml(section: dict[str, Any], made: Fabric, ports: Ports, routing: str) -> str:
    """Return the text of a `cluster` section with its fabric written as a custom one, cable by
    cable.

    Args:
        section: the section as mappings.
        made: its fabric.
        ports: the NIC ports.
        routing: the routing policy to write.
    """
    fabric_keys = section.get("fabric") or {}
    outer = {}
    if fabric_keys.get("kind") == "nvlink-domain":
        outer = {"kind": "nvlink-domain", "hosts": fabric_keys["hosts"]}
        inner = {key: value for key, value in fabric_keys.items() if key not in outer}
        fabric_keys = fabric_keys.get("between") or inner
    shared_keys = {
        key: fabric_keys[key] for key in SHARED if not isinstance(fabric_keys.get(key), list | None)
    }
    written: dict[str, Any] = {"kind": "custom", **shared_keys, "routing": routing}
    written["switches"] = list(made.switches)
    if made.groups is not None:
        written["groups"] = {
            f"group{group}": [made.switches[n] for n in np.flatnonzero(made.groups == group)]
            for group in range(int(made.groups.max()) + 1)
        }
    written["links"] = _cables(made, ports)
    section = {key: value for key, value in section.items() if key != "sites"}
    cluster = {**section, "fabric": {**outer, "between": written} if outer else written}
    if isinstance(cluster.get("machine"), Machine):
        cluster["machine"] = plain_machine(cluster["machine"])
    return yaml.dump({"cluster": cluster}, Dumper=_Dumper, sort_keys=False, width=120)


def _cables(made: Fabric, ports: Ports) -> list[dict[str, Any]]:
    nics = zip(ports.owner.tolist(), ports.rail.tolist(), strict=True)
    names = [*(f"node{host}.nic{rail}" for host, rail in nics), *made.switches]
    terms = made.terms
    cables = Counter[tuple[int, int, float, float]]()
    carried = terms.port(ports.rate)
    ends = zip(made.tail[::2].tolist(), made.head[::2].tolist(), strict=True)
    figures = zip(made.bandwidth[::2].tolist(), made.latency.reshape(-1, 2).tolist(), strict=True)
    for (tail, head), (rate, (up, down)) in zip(ends, figures, strict=True):
        usual = carried[tail] if tail < made.ports else terms.link * terms.usable
        arrival = terms.nic if tail < made.ports else terms.hop
        stated_rate = 0.0 if rate == usual else rate / terms.usable
        cables[tail, head, stated_rate, -1.0 if (up, down) == (terms.hop, arrival) else up] += 1
    lines = []
    for (tail, head, rate, latency), count in cables.items():
        more: dict[str, Any] = {"count": count} if count > 1 else {}
        more |= {"bandwidth": _bandwidth(rate)} if rate else {}
        more |= {"latency": _latency(latency)} if latency >= 0 else {}
        lines.append({"from": names[tail], "to": names[head], **more})
    return lines


class _Dumper(yaml.SafeDumper):
    """A YAML writer that puts mappings and lists of plain values on one line each."""

    def represent_mapping(self, tag: str, mapping: Any, flow_style: bool | None = None) -> Any:
        """Return the YAML node of a mapping, on one line if all its values are plain."""
        plain = all(not isinstance(value, dict | list) for value in mapping.values())
        return super().represent_mapping(tag, mapping, flow_style=plain or flow_style)

    def represent_sequence(self, tag: str, sequence: Any, flow_style: bool | None = None) -> Any:
        """Return the YAML node of a list, on one line if all its values are plain."""
        plain = all(not isinstance(value, dict | list) for value in sequence)
        return super().represent_sequence(tag, sequence, flow_style=plain or flow_style)


def _node(topology: Topology, node: Hashable) -> dict[str, Any]:
    attributes = topology.graph.nodes[node]
    kind = attributes.get("kind", "switch")
    written: dict[str, Any] = {"name": str(node)}
    if kind != "gpu":
        written["kind"] = kind
    if bool(attributes.get("forwards", kind != "gpu")) != (kind != "gpu"):
        written["forwards"] = bool(attributes["forwards"])
    if attributes.get("reduces"):
        written["reduces"] = True
    return written


def _links(topology: Topology) -> list[dict[str, Any]]:
    edges = {ends: _figures(data) for ends, data in topology.graph.edges.items()}
    links: dict[tuple[Hashable, Hashable], dict[str, Any]] = {}
    for (tail, head), figures in edges.items():
        is_duplex = edges.get((head, tail)) == figures
        if not (is_duplex and (head, tail) in links):
            both = {} if is_duplex else {"both": False}
            links[tail, head] = {"from": str(tail), "to": str(head), **figures, **both}
    return list(links.values())


def _figures(data: dict[str, Any]) -> dict[str, Any]:
    written = {"bandwidth": _bandwidth(data["bandwidth"])}
    if data.get("latency"):
        written["latency"] = _latency(data["latency"])
    usual = {"kind": "fabric", "duplex": "full"}
    return written | {k: data[k] for k, v in usual.items() if data.get(k, v) != v}


def _bandwidth(value: float) -> str:
    if value == inf:
        return "inf"
    text = f"{value / 1e9:.15g}GB/s"
    return text if parse_bandwidth(text, allow_zero=True) == value else f"{value!r}B/s"


def _latency(value: float) -> str:
    text = f"{value * 1e9:.15g}ns"
    return text if parse_time(text) == value else f"{value!r}s"


def figure_text(path: str, value: Any) -> str:
    """Return the value of a machine's figure, such as `gpu.memory`, as text with its unit."""
    part, _, key = path.rpartition(".")
    if key == "memory" and isinstance(value, int):
        return format_size(value)
    text = with_units(value, key, part.rpartition(".")[2])
    if isinstance(text, list):
        return ", ".join(map(str, text))
    return str(text).lower() if isinstance(text, bool) else str(text)
