"""Topologies as networkx graphs, for whoever wants to look at them or write them down."""

from typing import Any

import networkx as nx
import numpy as np

from netsim.topology.layout import LINK_KINDS, NODE_KINDS, Layout, Sketch


def graph_of(description: "nx.DiGraph[Any] | Sketch | Layout") -> "nx.DiGraph[Any]":
    """The networkx graph of whatever describes a topology."""
    if isinstance(description, Layout):
        return thaw(description)
    if not isinstance(description, Sketch):
        return description
    graph: nx.DiGraph[Any] = nx.DiGraph()
    graph.add_nodes_from(description.nodes.items())
    graph.add_edges_from((*ends, given) for ends, given in description.edges.items())
    return graph


def thaw(layout: Layout) -> "nx.DiGraph[Any]":
    """The networkx graph of a layout; parallel links become one edge that counts them."""
    graph: nx.DiGraph[Any] = nx.DiGraph()
    names, links = layout.nodes, layout.links
    of_nodes = (layout.kinds, layout.passes, layout.reduces)
    for node, kind, passes, adds in zip(names, *of_nodes, strict=True):
        extra = {"reduces": True} if adds else {}
        graph.add_node(node, kind=NODE_KINDS[kind], forwards=bool(passes), **extra)
    half = np.bincount(links.resource, minlength=len(links))[links.resource] > 1
    columns = (links.tail, links.head, links.bandwidth, links.latency, links.kind, half)
    for tail, head, bandwidth, latency, kind, shared in zip(
        *(column.tolist() for column in columns), strict=True
    ):
        edge = graph.get_edge_data(names[tail], names[head])
        graph.add_edge(
            names[tail],
            names[head],
            bandwidth=bandwidth + (edge["bandwidth"] if edge else 0.0),
            latency=latency,
            kind=LINK_KINDS[kind],
            duplex="half" if shared else "full",
            count=1 + (edge["count"] if edge else 0),
        )
    return graph
