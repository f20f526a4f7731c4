"""Topologies: graphs of GPUs, switches, NICs and links, and the routes through them.

What engines and algorithms need is here; machines, clusters and files have modules of their own
(`machine`, `load`, `config`, `build`, `importers`), because reading files takes long to import.
"""

from netsim.lazy import promised
from netsim.topology.generators import full_mesh, ring, switch, torus
from netsim.topology.graph import Router, Routes, Topology
from netsim.topology.layout import LINK_KINDS, NODE_KINDS, Layout, Links, TopologyError
from netsim.topology.routing import StaticRouter

__all__ = [
    "LINK_KINDS",
    "NODE_KINDS",
    "Layout",
    "Links",
    "Router",
    "Routes",
    "StaticRouter",
    "Topology",
    "TopologyError",
    "full_mesh",
    "ring",
    "switch",
    "torus",
]

__getattr__ = promised(__name__, "assembly", "faults", "hosts", "nccl_xml", "stamped")
