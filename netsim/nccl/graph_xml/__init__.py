"""NCCL's graph XML (NCCL_GRAPH_DUMP_FILE, NCCL_GRAPH_FILE): the channels of a node, out and in."""

from netsim.nccl.graph_xml.reader import GraphFile, graphs_of, read_graph_file
from netsim.nccl.graph_xml.writer import write_graphs

__all__ = ["GraphFile", "graphs_of", "read_graph_file", "write_graphs"]
