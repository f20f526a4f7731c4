"""InfraGraph files by means of its own package: loaded if it is there, checked, and expanded."""

import json
import re
from collections.abc import Mapping
from typing import Any

import networkx as nx

from netsim.errors import InputError, ScenarioError, suggest
from netsim.yamlio.source import parse_source

MOST_NODES = 100_000
MOST_PAIRS = 2_000_000  # that one edge in slice notation may stand for
# Our kinds of nodes by InfraGraph's types of components; what it has no word for is custom.
COMPONENTS = {"xpu": "gpu", "nic": "nic", "cpu": "cpu", "memory": "memory"}
REDUCING = "-reducing"  # ends the types of switches that add up what passes


def package() -> Any:
    """InfraGraph's own classes."""
    try:
        import infragraph  # noqa: PLC0415 - an extra, which takes half a second to import
    except ImportError:
        raise InputError(
            "InfraGraph files need the package infragraph", hint="pip install 'netsim[infragraph]'"
        ) from None
    return infragraph


def graph_of(text: str, name: str) -> "nx.Graph[Any]":
    """The graph that InfraGraph makes of a file, after a look at its size."""
    data = parse_source(text, name).data
    package()
    from infragraph.infragraph_service import InfraGraphService  # noqa: PLC0415 - as above

    if not data.get("instances"):  # a device alone, as `infragraph translate` writes it
        names = [one.get("name") for one in data.get("devices") or [] if isinstance(one, dict)]
        data = {**data, "instances": [{"name": n, "device": n, "count": 1} for n in names]}
    data = {"name": "infrastructure", **data}
    _check_size(data, name)
    for part in (data, *(d for d in data.get("devices") or [] if isinstance(d, dict))):
        _check_links(part, name)
    service = InfraGraphService()
    try:
        service.set_graph(json.dumps(data))
    except Exception as error:  # the package raises whatever its parts raise
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ScenarioError(f"InfraGraph refuses it: {reason}", source=name) from None
    graph: nx.Graph[Any] = service.get_networkx_graph()
    return graph


def _check_size(data: Mapping[str, Any], name: str) -> None:
    """Refuse what a few lines of slice notation can blow up."""
    devices = {d.get("name"): d for d in data.get("devices") or [] if isinstance(d, dict)}
    total = 0
    for one in data["instances"]:
        device = devices.get(one.get("device"), {}) if isinstance(one, dict) else {}
        parts = {c.get("name"): _count(c) for c in device.get("components") or []}
        total += (_count(one) if isinstance(one, dict) else 1) * sum(parts.values())
        for edge in device.get("edges") or []:
            ends = [str((edge.get(end) or {}).get("component", "")) for end in ("ep1", "ep2")]
            pairs = _extent(ends[0], parts) * _extent(ends[1], parts)
            if edge.get("scheme") == "many2many" and pairs > MOST_PAIRS:
                raise ScenarioError(f"an edge stands for {pairs} links", source=name)
    if total > MOST_NODES:
        message = f"{total} components are too many (at most {MOST_NODES})"
        raise ScenarioError(message, source=name)


def _check_links(part: Mapping[str, Any], name: str) -> None:
    """Refuse edges over links that nothing describes, which the package lets through."""
    known = [str(link.get("name")) for link in part.get("links") or [] if isinstance(link, dict)]
    for edge in part.get("edges") or []:
        link = edge.get("link") if isinstance(edge, dict) else None
        if link is not None and link not in known:
            where = part.get("name", "infrastructure")
            message = f"{where}: an edge has link '{link}', which is not among its links"
            raise ScenarioError(message + suggest(str(link), known), source=name)


def _count(given: Mapping[str, Any]) -> int:
    count = given.get("count", 1)
    return count if isinstance(count, int) else 1


def _extent(endpoint: str, parts: Mapping[Any, int]) -> int:
    """How many components an endpoint such as `xpu[0:2]` stands for, at most."""
    part, _, inside = endpoint.rpartition(".")[2].partition("[")
    bounds = re.fullmatch(r"(\d+)(?::(\d+))?\]", inside)
    if bounds is None:
        return parts.get(part, 1)
    return max(0, int(bounds[2]) - int(bounds[1])) if bounds[2] else 1
