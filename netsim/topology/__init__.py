"""Topologies: graphs of GPUs, switches, NICs and links, and the routes through them."""

from netsim.topology.build import build_cluster, build_topology
from netsim.topology.cluster import Cluster
from netsim.topology.config import ClusterConfig
from netsim.topology.generators import full_mesh, ring, switch, torus
from netsim.topology.graph import Router, Routes, Topology
from netsim.topology.layout import LINK_KINDS, NODE_KINDS, Layout, Links, TopologyError
from netsim.topology.load import find_machine, load_machine
from netsim.topology.machine import Machine
from netsim.topology.routing import StaticRouter

__all__ = [
    "LINK_KINDS",
    "NODE_KINDS",
    "Cluster",
    "ClusterConfig",
    "Layout",
    "Links",
    "Machine",
    "Router",
    "Routes",
    "StaticRouter",
    "Topology",
    "TopologyError",
    "build_cluster",
    "build_topology",
    "find_machine",
    "full_mesh",
    "load_machine",
    "ring",
    "switch",
    "torus",
]
