"""Graphs that a scenario writes out, node by node and link by link, or names by a generator."""

from typing import Annotated, Any, Literal, Union

import numpy as np
from pydantic import Discriminator, Field, Tag, model_validator

from netsim.errors import suggest
from netsim.topology.generators import full_mesh, ring, switch, torus
from netsim.topology.graph import Topology
from netsim.topology.layout import Sketch
from netsim.topology.routing import StaticRouter, walk
from netsim.yamlio.model import FieldError, ListOf, Model
from netsim.yamlio.quantities import Bandwidth, Count, Seconds

MOST_GPUS = 262_144
GpuCount = Annotated[int, Field(ge=1, le=MOST_GPUS)]
NodeKind = Literal["gpu", "nvswitch", "pcie", "cpu", "nic", "switch", "memory"]
LinkKind = Literal["nvlink", "xgmi", "c2c", "pcie", "upi", "hostmem", "nic", "fabric"]


class _Regular(Model):
    """What all generated graphs take: the rate of a link in one direction, latency of a hop."""

    bandwidth: Bandwidth
    latency: Seconds = 0.0


class SwitchGraph(_Regular):
    """GPUs on one switch; the latency is that from GPU to GPU."""

    kind: Literal["switch"]
    gpus: GpuCount

    def build(self) -> Topology:
        """The topology."""
        return switch(self.gpus, self.bandwidth, self.latency)


class RingGraph(_Regular):
    """Every GPU linked to the next."""

    kind: Literal["ring"]
    gpus: GpuCount

    def build(self) -> Topology:
        """The topology."""
        return ring(self.gpus, self.bandwidth, self.latency)


class MeshGraph(_Regular):
    """A link between every two GPUs."""

    kind: Literal["full-mesh"]
    gpus: Annotated[int, Field(ge=1, le=2048)]

    def build(self) -> Topology:
        """The topology."""
        return full_mesh(self.gpus, self.bandwidth, self.latency)


class TorusGraph(_Regular):
    """A grid of GPUs that closes in every dimension."""

    kind: Literal["torus"]
    dims: Annotated[ListOf[Count], Field(min_length=1, max_length=6)]

    @model_validator(mode="after")
    def _bounded(self) -> "TorusGraph":
        if np.prod(self.dims, dtype=np.float64) > MOST_GPUS:
            raise FieldError(f"expected at most {MOST_GPUS} GPUs, got {list(self.dims)}", "dims")
        return self

    def build(self) -> Topology:
        """The topology."""
        return torus(self.dims, self.bandwidth, self.latency)


class Node(Model):
    """A node; a GPU passes on traffic of others only with `forwards: true`; `reduces`: a switch
    that adds up what passes.
    """

    name: Annotated[str, Field(min_length=1)]
    kind: NodeKind = "gpu"
    forwards: bool | None = None
    reduces: bool = False


class Link(Model):
    """A link, in both directions unless `both: false`; half duplex: they share one bandwidth."""

    tail: Annotated[str, Field(alias="from")]
    head: Annotated[str, Field(alias="to")]
    bandwidth: Bandwidth
    latency: Seconds = 0.0
    kind: LinkKind = "fabric"
    duplex: Literal["full", "half"] = "full"
    both: bool = True


class InlineGraph(Model):
    """Nodes and links written out."""

    kind: Literal["inline"] = "inline"
    nodes: ListOf[Node]
    links: ListOf[Link] = ()

    @model_validator(mode="before")
    @classmethod
    def _has_nodes(cls, value: Any) -> Any:
        if isinstance(value, dict) and not {"nodes", "links"} & set(value):
            kinds = ", ".join(GRAPHS)
            raise FieldError(f"missing key 'kind' (one of {kinds}), or nodes and links")
        return value

    @model_validator(mode="after")
    def _sound(self) -> "InlineGraph":
        names: set[str] = set()
        for number, node in enumerate(self.nodes):
            if node.name in names:
                raise FieldError(f"two nodes are called '{node.name}'", "nodes", number, "name")
            names.add(node.name)
        if not any(node.kind == "gpu" for node in self.nodes):
            raise FieldError("expected at least one node of kind gpu", "nodes")
        self._check_links(names)
        self._check_connected()
        return self

    def _check_links(self, names: set[str]) -> None:
        seen: set[tuple[str, str]] = set()
        for number, link in enumerate(self.links):
            for key, end in (("from", link.tail), ("to", link.head)):
                if end not in names:
                    hint = suggest(end, names)
                    raise FieldError(f"there is no node '{end}'{hint}", "links", number, key)
            if link.tail == link.head:
                raise FieldError(f"a link from '{link.tail}' to itself", "links", number)
            ends = [(link.tail, link.head), *([(link.head, link.tail)] if link.both else [])]
            if seen & set(ends):
                message = f"a second link between '{link.tail}' and '{link.head}'"
                raise FieldError(message, "links", number)
            seen.update(ends)

    def _check_connected(self) -> None:
        topology = self.build()
        nodes = topology.gpu_nodes
        first = np.full(len(nodes), nodes[0])
        for ends in ((first, nodes), (nodes, first)):
            if walk(topology, *ends) is not None:
                continue
            pairs = (np.array(pair)[:, None] for pair in zip(*ends, strict=True))
            apart = next(pair for pair in pairs if walk(topology, *pair) is None)
            names = " to ".join(f"'{topology.nodes[int(node[0])]}'" for node in apart)
            raise FieldError(
                f"not connected: there is no path from {names} (a GPU passes on traffic of others "
                "only with forwards: true)",
                "links",
            )

    def build(self) -> Topology:
        """The topology, with the cheapest path as route."""
        graph = Sketch()
        for node in self.nodes:
            forwards = node.kind != "gpu" if node.forwards is None else node.forwards
            extra = {"reduces": True} if node.reduces else {}
            graph.node(node.name, kind=node.kind, forwards=forwards, **extra)
        for link in self.links:
            given = link.model_dump(include={"bandwidth", "latency", "kind", "duplex"})
            graph.edge(link.tail, link.head, **given)
            if link.both:
                graph.edge(link.head, link.tail, **given)
        gpus = tuple(node.name for node in self.nodes if node.kind == "gpu")
        return Topology("graph", graph, gpus, StaticRouter())


GRAPHS = {
    "switch": SwitchGraph,
    "ring": RingGraph,
    "full-mesh": MeshGraph,
    "torus": TorusGraph,
}


def _shape(value: Any) -> str | None:
    """Which graph a mapping describes: the one it names, or one that is written out."""
    if isinstance(value, dict):
        return str(value.get("kind", "inline"))
    return "inline" if isinstance(value, InlineGraph) else str(getattr(value, "kind", "inline"))


GraphConfig = Annotated[
    Union[  # noqa: UP007 - a discriminated union needs Annotated members side by side
        Annotated[SwitchGraph, Tag("switch")],
        Annotated[RingGraph, Tag("ring")],
        Annotated[MeshGraph, Tag("full-mesh")],
        Annotated[TorusGraph, Tag("torus")],
        Annotated[InlineGraph, Tag("inline")],
    ],
    Discriminator(_shape),
]
"""A graph of GPUs: a generator by its kind, or nodes and links."""
