"""Read topology files of other tools, whose format is detected. The formats of ASTRA-sim and
networkx' node-link are read in this module, the others in its neighbors.

In ASTRA-sim's files, `topology`, `npus_count`, `bandwidth` (GB/s) and `latency` (ns) are lists with
one entry per dimension; the first dimension is that of GPUs with consecutive numbers. A GB is 2^30
bytes, as ASTRA-sim reads it, unless netsim's own key `gb_bytes` states another number.
"""

import json
import re
from collections.abc import Callable, Iterator
from itertools import combinations, pairwise
from math import prod
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import pydantic
from pydantic import BeforeValidator, Field, model_validator

from netsim.base.errors import InputError, ScenarioError, suggest
from netsim.base.files import content_of
from netsim.base.units import parse_bandwidth, parse_time
from netsim.base.values import grouped
from netsim.topology.config import NodeKind
from netsim.topology.foreign import infragraph, nccl, smi
from netsim.topology.foreign.nccl_xml import parse_system
from netsim.topology.graph import LINK_KINDS, GraphSketch, Switching, Topology
from netsim.topology.machine import Machine
from netsim.topology.routing import StaticRouter
from netsim.yamlio.models import Count, FieldError, ListOf
from netsim.yamlio.read import parse_source
from netsim.yamlio.validate import validate

Shape = Literal["Ring", "Switch", "FullyConnected"]
Figure = Annotated[float, Field(ge=0, lt=1e12, strict=False)]
MOST_GPUS = 65_536


class _Foreign(pydantic.BaseModel):
    """The base of models of other tools' files: unknown keys are ignored."""

    model_config = pydantic.ConfigDict(extra="ignore", strict=True, frozen=True)


class AstraNetwork(_Foreign):
    """An ASTRA-sim network file: one entry for each dimension in `topology` (shape), `npus_count`,
    `bandwidth` (GB/s) and `latency` (ns).
    """

    topology: Annotated[ListOf[Shape], Field(min_length=1)]
    npus_count: ListOf[Count]
    bandwidth: ListOf[Annotated[Figure, Field(gt=0)]]
    latency: ListOf[Figure]
    gb_bytes: Annotated[Figure, Field(gt=0)] = 2.0**30
    switching: Switching = "cut-through"

    @model_validator(mode="after")
    def _equal_lengths(self) -> "AstraNetwork":
        for name in ("npus_count", "bandwidth", "latency"):
            have = len(getattr(self, name))
            if have != len(self.topology):
                raise FieldError(
                    f"expected {len(self.topology)} entries as topology, got {have}", name
                )
        if prod(self.npus_count) > MOST_GPUS:
            raise FieldError(f"more than {MOST_GPUS} NPUs", "npus_count")
        return self


def read_astra(text: str, name: str) -> Topology:
    """Return the topology of an ASTRA-sim network file."""
    network = validate(AstraNetwork, parse_source(text, name))
    count = prod(network.npus_count)
    relays = len(network.topology) > 1 or network.topology[0] == "Ring"
    graph = GraphSketch()
    gpus = tuple(f"gpu{n}" for n in range(count))
    for gpu in gpus:
        graph.node(gpu, kind="gpu", forwards=relays)
    for dimension, shape in enumerate(network.topology):
        figures = {
            "bandwidth": network.bandwidth[dimension] * network.gb_bytes,
            "latency": network.latency[dimension] * 1e-9,
            "kind": "fabric",
        }
        for number, line in enumerate(_lines(network.npus_count, dimension)):
            for a, b in _pairs(shape, line, f"switch{dimension}.{number}"):
                if b.startswith("switch"):
                    graph.node(b, kind="switch", forwards=True)
                graph.edge(a, b, both=True, **figures)
    return Topology(name, graph, gpus, StaticRouter(), switching=network.switching)


def _lines(counts: tuple[int, ...], dimension: int) -> Iterator[list[str]]:
    """Yield the names of the GPUs along each line of a dimension; `counts` are the GPUs in each
    dimension, the first one fastest.
    """
    place = np.arange(prod(counts)).reshape(counts[::-1])  # the last dimension is the slowest
    for line in np.moveaxis(place, -1 - dimension, -1).reshape(-1, counts[dimension]).tolist():
        yield [f"gpu{gpu}" for gpu in line]


def _pairs(shape: Shape, line: list[str], switch: str) -> Iterator[tuple[str, str]]:
    """Yield the pairs of nodes that are linked, for the GPUs `line` along a dimension of this
    shape; `switch` is the name of their switch if the shape has one.
    """
    if len(line) < 2:
        return
    if shape == "Switch":
        yield from ((gpu, switch) for gpu in line)
    elif shape == "FullyConnected":
        yield from combinations(line, 2)
    else:
        yield from pairwise(line)
        if len(line) > 2:
            yield line[-1], line[0]


# networkx' node-link JSON as a topology, and back: `nodes` with id and kind, `edges` with rates.
# Bandwidths are bytes/s and latencies seconds, or texts with units.


def _bandwidth(value: object) -> float:
    """Return a bandwidth in bytes per second, given such a number or a text with unit."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return parse_bandwidth(f"{float(value):.17g}B/s")
    return parse_bandwidth(value, allow_infinite=True)


def _seconds(value: object) -> float:
    """Return a time in seconds, given such a number or a text with unit."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return parse_time(f"{float(value):.17g}s")
    return parse_time(value)


class NodeOf(_Foreign):
    """A node of a node-link file; a GPU forwards traffic between others only with `forwards`."""

    id: str | int
    kind: NodeKind | None = None
    forwards: bool | None = None
    reduces: bool = False


class EdgeOf(_Foreign):
    """An edge of a node-link file: one direction of a link in a directed graph, else both."""

    source: str | int
    target: str | int
    bandwidth: Annotated[float, BeforeValidator(_bandwidth)]
    latency: Annotated[float, BeforeValidator(_seconds)] = 0.0
    kind: str = "fabric"
    duplex: str = "full"


class NodeLink(_Foreign):
    """A graph in networkx' node-link format; its edges have the key `edges` or, in older files,
    `links`.

    Only a `multigraph` has several edges between the same two nodes; their bandwidths add up.
    """

    directed: bool = False
    multigraph: bool = False
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
        self._check_parallel_edges(which)
        return self

    def ends_of(self, edge: EdgeOf) -> tuple[str, str]:
        """Return the source and target of an edge; in an undirected graph sorted by name."""
        ends = str(edge.source), str(edge.target)
        return ends if self.directed else (min(ends), max(ends))

    def _check_parallel_edges(self, which: str) -> None:
        """Refuse a second edge between two nodes unless the graph is a multigraph, and in a
        multigraph parallel edges that differ in more than bandwidth. `which` is the key of the
        edges, for messages.
        """
        seen: dict[tuple[str, str], EdgeOf] = {}
        for number, edge in enumerate(self.edges or self.links):
            first = seen.setdefault(self.ends_of(edge), edge)
            if first is edge:
                continue
            between = f"a second edge between '{edge.source}' and '{edge.target}'"
            if not self.multigraph:
                message = (
                    f"{between}: expected multigraph: true, or directed: true where it is back"
                )
                raise FieldError(message, which, number)
            for key in ("latency", "kind", "duplex"):
                if getattr(edge, key) != getattr(first, key):
                    message = f"{between} has another {key} than the first"
                    raise FieldError(message, which, number, key)


def read_node_link(text: str, name: str) -> Topology:
    """Return the topology of a node-link file; nodes without a kind are GPUs. `name` is the name of
    the file.
    """
    description = validate(NodeLink, parse_source(text, name))
    graph = GraphSketch()
    for node in description.nodes:
        kind = node.kind or "gpu"
        forwards = kind != "gpu" if node.forwards is None else node.forwards
        graph.node(str(node.id), kind=kind, forwards=forwards, reduces=node.reduces)
    parallel = grouped(description.edges or description.links, description.ends_of)
    for edges in parallel.values():
        first = edges[0]
        figures = first.model_dump(include={"latency", "kind", "duplex"})
        figures["bandwidth"] = sum(edge.bandwidth for edge in edges)
        graph.edge(str(first.source), str(first.target), both=not description.directed, **figures)
    gpus = tuple(str(node.id) for node in description.nodes if (node.kind or "gpu") == "gpu")
    return Topology(name, graph, gpus, StaticRouter())


def write_node_link(topology: Topology) -> str:
    """Return a topology as the text of a node-link file."""
    import networkx as nx

    data = nx.node_link_data(topology.graph, edges="edges")
    return json.dumps(data, indent=1) + "\n"


LARGEST = 32 * 2**20
FORMATS = {
    "nccl": re.compile(r"<system\b"),
    "infragraph": re.compile(
        r"^devices\s*:(?s:.*)^instances\s*:|^instances\s*:(?s:.*)^devices\s*:|"
        r"^devices\s*:\s*\n\s*- components\s*:|\"components\"\s*:\s*\[",
        re.MULTILINE,
    ),
    "amd-smi": smi.ROCM,
    "node-link": re.compile(r'"(nodes|edges|links)"\s*:'),
    "astra-sim": re.compile(r"^\s*npus_count\s*:", re.MULTILINE),
    "nvidia-smi": re.compile(r"^(?:[\s|]|(?:\x1b|\^\[)?\[[0-9;]*m)*GPU0\b", re.MULTILINE),
}
Reader = Callable[[str, str, str, float | None, str], Machine | Topology]
READERS: dict[str, Reader] = {
    "nccl": lambda text, name, gpu, rate, _: nccl.machine_of(
        parse_system(text, name), gpu, name, rate
    ),
    **dict.fromkeys(
        ("nvidia-smi", "amd-smi"),
        lambda text, name, gpu, rate, nics: smi.read_smi(text, name, _named(gpu, name), rate, nics),
    ),
    "infragraph": lambda text, name, *_: infragraph.read_infragraph(text, name),
    "node-link": lambda text, name, *_: read_node_link(text, name),
    "astra-sim": lambda text, name, *_: read_astra(text, name),
}


def read_foreign(
    path: Path, *, form: str = "", gpu: str = "", nic_rate: float | None = None, nics: str = ""
) -> Machine | Topology:
    """Return the machine in a file about a host, or the topology in a file about a network.

    Args:
        path: the file.
        form: name of the format, a key of READERS; detected if empty.
        gpu: model of the GPU, for files that lack it.
        nic_rate: line rate of the NICs in bytes per second, for files that lack it.
        nics: names of the NICs that are imported from a matrix of nvidia-smi, separated by commas.
    """
    name = path.as_posix()
    content = content_of(path, LARGEST)
    text = content.decode("utf-8-sig", errors="replace")
    if not text.strip():
        raise InputError(f"{name}: the file is empty")
    chosen = form or detect(text)
    if chosen not in READERS:
        problem = (
            f"unknown format '{form}'{suggest(form, READERS)}" if form else "of no known format"
        )
        raise ScenarioError(f"{problem}; known: {', '.join(READERS)}", source=name)
    return READERS[chosen](text, name, gpu, nic_rate, nics)


def detect(text: str) -> str:
    """Return the format (key of FORMATS) that a text looks like; "" if it looks like none."""
    return next((form for form, sign in FORMATS.items() if sign.search(text)), "")


def _named(gpu: str, name: str) -> str:
    """Return `gpu`, the name of a GPU model; refuse an empty one. `name` is that of the file."""
    if not gpu:
        raise InputError(f"{name}: this matrix has no speeds; name the GPU model, such as H100")
    return gpu
