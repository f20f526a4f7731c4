"""networkx node-link JSON as a topology, and back: `nodes` with id and kind, `edges` with figures.

Bandwidths are bytes/s and latencies seconds, or texts with units.
"""

import json
from typing import Annotated, Any

import networkx as nx
import pydantic
from pydantic import BeforeValidator, Field, model_validator

from netsim.topology.graph import Topology
from netsim.topology.inline import NodeKind
from netsim.topology.layout import LINK_KINDS
from netsim.topology.routing import StaticRouter
from netsim.units import parse_bandwidth, parse_time
from netsim.yamlio.model import FieldError, ListOf
from netsim.yamlio.source import parse_source
from netsim.yamlio.validate import validate


def _bandwidth(value: object) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return parse_bandwidth(f"{float(value):.17g}B/s")
    return parse_bandwidth(value, allow_infinite=True)


def _seconds(value: object) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return parse_time(f"{float(value):.17g}s")
    return parse_time(value)


class _Foreign(pydantic.BaseModel):
    """What other programs write: attributes that are not known here are left aside."""

    model_config = pydantic.ConfigDict(extra="ignore", strict=True, frozen=True)


class NodeOf(_Foreign):
    """A node; a GPU passes on traffic of others only with `forwards`."""

    id: str | int
    kind: NodeKind | None = None
    forwards: bool | None = None
    reduces: bool = False


class EdgeOf(_Foreign):
    """A directed edge, or both directions in an undirected graph."""

    source: str | int
    target: str | int
    bandwidth: Annotated[float, BeforeValidator(_bandwidth)]
    latency: Annotated[float, BeforeValidator(_seconds)] = 0.0
    kind: str = "fabric"
    duplex: str = "full"


class NodeLink(_Foreign):
    """A graph; networkx writes its edges as `edges` or, formerly, `links`."""

    directed: bool = False
    nodes: Annotated[ListOf[NodeOf], Field(min_length=1)]
    edges: ListOf[EdgeOf] = ()
    links: ListOf[EdgeOf] = ()

    @model_validator(mode="after")
    def _sound(self) -> "NodeLink":
        names = [str(node.id) for node in self.nodes]
        for number, name in enumerate(names):
            if name in names[:number]:
                raise FieldError(f"two nodes are called '{name}'", "nodes", number, "id")
        which = "edges" if self.edges else "links"
        for number, edge in enumerate(self.edges or self.links):
            for key, end in (("source", edge.source), ("target", edge.target)):
                if str(end) not in names:
                    raise FieldError(f"there is no node '{end}'", which, number, key)
            if edge.kind not in LINK_KINDS:
                message = f"expected one of {', '.join(LINK_KINDS)}, got '{edge.kind}'"
                raise FieldError(message, which, number, "kind")
        if not any(node.kind == "gpu" or node.kind is None for node in self.nodes):
            raise FieldError("expected at least one node of kind gpu", "nodes")
        return self


def read_node_link(text: str, name: str) -> Topology:
    """The topology of a node-link file; nodes without a kind are GPUs."""
    given = validate(NodeLink, parse_source(text, name))
    graph: nx.DiGraph[Any] = nx.DiGraph()
    for node in given.nodes:
        kind = node.kind or "gpu"
        forwards = kind != "gpu" if node.forwards is None else node.forwards
        extra = {"reduces": True} if node.reduces else {}
        graph.add_node(str(node.id), kind=kind, forwards=forwards, **extra)
    for edge in given.edges or given.links:
        figures = edge.model_dump(include={"bandwidth", "latency", "kind", "duplex"})
        graph.add_edge(str(edge.source), str(edge.target), **figures)
        if not given.directed:
            graph.add_edge(str(edge.target), str(edge.source), **figures)
    gpus = tuple(str(node.id) for node in given.nodes if (node.kind or "gpu") == "gpu")
    return Topology(name, graph, gpus, StaticRouter())


def write_node_link(topology: Topology) -> str:
    """The text of a node-link file."""
    return json.dumps(nx.node_link_data(topology.graph, edges="edges"), indent=1) + "\n"
