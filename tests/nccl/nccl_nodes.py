"""Searched nodes of the oracle systems, each searched once for all tests."""

from functools import lru_cache

from netsim.nccl.communicator import Communicator
from netsim.nccl.facts import NEWEST
from netsim.nccl.node import NodeView, communicator, search_node
from netsim.topology.foreign.nccl_xml import XmlSystem, parse_system
from tests.nccl.nccl_oracles import DATA


@lru_cache
def system_of(config: str) -> XmlSystem:
    return parse_system((DATA / "topo" / f"{config}.xml").read_bytes(), config)


@lru_cache
def node_of(config: str, *, networked: bool) -> NodeView:
    return search_node(system_of(config), networked=networked)


def searched_communicator(config: str, nodes: int) -> Communicator:
    return communicator(node_of(config, networked=nodes > 1), nodes, version=NEWEST)
