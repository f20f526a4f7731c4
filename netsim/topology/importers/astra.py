"""ASTRA-sim's analytical network file as a topology: a product of rings, switches and meshes.

`topology`, `npus_count`, `bandwidth` (GB/s, taken as 1e9) and `latency` (ns) are lists with one
entry a dimension; the first dimension is that of neighbours.
"""

from collections.abc import Iterator
from itertools import combinations, pairwise, product
from math import prod
from typing import Annotated, Any, Literal

import networkx as nx
import pydantic
from pydantic import Field, model_validator

from netsim.topology.graph import Topology
from netsim.topology.routing import StaticRouter
from netsim.yamlio.model import FieldError, ListOf
from netsim.yamlio.quantities import Count
from netsim.yamlio.source import parse_source
from netsim.yamlio.validate import validate

Shape = Literal["Ring", "Switch", "FullyConnected"]
Figure = Annotated[float, Field(ge=0, lt=1e12, strict=False)]
MOST_GPUS = 65_536


class AstraNetwork(pydantic.BaseModel):
    """The file, key by key."""

    model_config = pydantic.ConfigDict(extra="ignore", strict=True, frozen=True)

    topology: Annotated[ListOf[Shape], Field(min_length=1)]
    npus_count: ListOf[Count]
    bandwidth: ListOf[Annotated[Figure, Field(gt=0)]]
    latency: ListOf[Figure]

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
    """The topology of an ASTRA-sim network file."""
    given = validate(AstraNetwork, parse_source(text, name))
    count = prod(given.npus_count)
    relays = len(given.topology) > 1 or given.topology[0] == "Ring"
    graph: nx.DiGraph[Any] = nx.DiGraph()
    graph.add_nodes_from((f"gpu{n}" for n in range(count)), kind="gpu", forwards=relays)
    for dimension, shape in enumerate(given.topology):
        figures = {
            "bandwidth": given.bandwidth[dimension] * 1e9,
            "latency": given.latency[dimension] * 1e-9,
            "kind": "fabric",
        }
        for number, line in enumerate(_lines(given.npus_count, dimension)):
            for a, b in _pairs(shape, line, f"switch{dimension}.{number}"):
                if b.startswith("switch") and b not in graph:
                    graph.add_node(b, kind="switch", forwards=True)
                graph.add_edge(a, b, **figures)
                graph.add_edge(b, a, **figures)
    return Topology(name, graph, tuple(f"gpu{n}" for n in range(count)), StaticRouter())


def _lines(counts: tuple[int, ...], dimension: int) -> Iterator[list[str]]:
    """The GPUs of every line along a dimension, by name."""
    strides = [prod(counts[:d]) for d in range(len(counts))]
    others = [range(n) if d != dimension else range(1) for d, n in enumerate(counts)]
    for place in product(*reversed(others)):
        first = sum(p * s for p, s in zip(reversed(place), strides, strict=True))
        yield [f"gpu{first + step * strides[dimension]}" for step in range(counts[dimension])]


def _pairs(shape: Shape, line: list[str], switch: str) -> Iterator[tuple[str, str]]:
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
