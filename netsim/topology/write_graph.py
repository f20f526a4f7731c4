"""A graph of GPUs as a scenario file: nodes and links written out, and a collective to time."""

from collections.abc import Hashable
from math import inf
from typing import Any

import yaml

from netsim.topology.graph import Topology
from netsim.topology.layout import TopologyError
from netsim.units import parse_bandwidth, parse_time

MOST_LINKS = 20_000  # a file with more is larger than scenarios may be


def graph_yaml(topology: Topology, name: str) -> str:
    """The text of a scenario with the graph of a topology."""
    links = _links(topology)
    if len(links) > MOST_LINKS:
        raise TopologyError(
            f"{topology.name}: {len(links)} links are too many to write one by one (at most "
            f"{MOST_LINKS}); describe it as machines and a fabric, or as a torus or ring"
        )
    known = set(topology.gpus)
    others = [node for node in topology.graph.nodes if node not in known]
    nodes = [_node(topology, node) for node in (*topology.gpus, *others)]
    values = {
        "name": "".join(c if c.isalnum() or c in "._-" else "-" for c in name).lstrip("._-") or "x",
        "cluster": {"graph": {"nodes": nodes, "links": links}},
        "workload": {"collective": "all_reduce", "algorithm": "ring", "sizes": ["1MiB", "64MiB"]},
    }
    return yaml.dump(values, Dumper=_Dumper, sort_keys=False, width=120)


class _Dumper(yaml.SafeDumper):
    """Mappings of plain values on one line each."""

    def represent_mapping(self, tag: str, mapping: Any, flow_style: bool | None = None) -> Any:
        """A node: flow style for the entries of lists."""
        plain = all(not isinstance(value, dict | list) for value in mapping.values())
        return super().represent_mapping(tag, mapping, flow_style=plain or flow_style)


def _node(topology: Topology, node: Hashable) -> dict[str, Any]:
    given = topology.graph.nodes[node]
    kind = given.get("kind", "switch")
    written: dict[str, Any] = {"name": str(node)}
    if kind != "gpu":
        written["kind"] = kind
    if bool(given.get("forwards", kind != "gpu")) != (kind != "gpu"):
        written["forwards"] = bool(given["forwards"])
    if given.get("reduces"):
        written["reduces"] = True
    return written


def _links(topology: Topology) -> list[dict[str, Any]]:
    """Every link; both directions at once where they are alike."""
    edges = {(tail, head): data for tail, head, data in topology.graph.edges(data=True)}
    alike = {
        (tail, head)
        for (tail, head), data in edges.items()
        if (head, tail) in edges and _figures(edges[head, tail]) == _figures(data)
    }
    found = []
    written: set[tuple[Hashable, Hashable]] = set()
    for (tail, head), data in edges.items():
        if (head, tail) in written and (tail, head) in alike:
            continue
        written.add((tail, head))
        one = {"from": str(tail), "to": str(head), **_figures(data)}
        found.append(one if (tail, head) in alike else {**one, "both": False})
    return found


def _figures(data: dict[str, Any]) -> dict[str, Any]:
    """Bandwidth and latency as texts that read as the same numbers; the rest if not usual."""
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
