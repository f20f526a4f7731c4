"""NCCL's estimate of the latency of every function, algorithm and protocol, in µs.

Like `bandwidth`, these are the formulas by which NCCL chooses; the simulation has its own times.
"""

from netsim.nccl.bandwidth import ring_steps
from netsim.nccl.channels import ChannelGraph
from netsim.nccl.communicator import Communicator
from netsim.nccl.names import PROTOCOLS, Algorithm, Function, Protocol


def latency_us(
    comm: Communicator, function: Function, algorithm: Algorithm, protocol: Protocol
) -> float:
    """The part of a call's time that does not grow with its size, in µs."""
    graph = comm.graph(algorithm)
    if graph is None:
        return 0.0
    base = comm.facts.base_latency[algorithm][PROTOCOLS.index(protocol)]
    if algorithm == "Ring" and function in ("Broadcast", "Reduce"):
        return base + _ring_chain(comm, graph, function, protocol)
    if algorithm == "Ring":
        return base + _ring(comm, graph, function, protocol)
    intra = _inside(comm, graph, algorithm, protocol)
    inter = _between(comm, graph, algorithm, protocol)
    return base + _others(comm, algorithm, intra, inter)


def net_overhead_us(comm: Communicator) -> float:
    """What NCCL charges a proxy thread for posting one network operation."""
    if comm.settings.net_overhead_us is not None:
        return comm.settings.net_overhead_us
    return 2.0 if comm.cpu_arch == "x86_64" and comm.cpu_vendor == "AMD" else 1.0


def _hop(comm: Communicator, link: str, algorithm: Algorithm, protocol: Protocol) -> float:
    if link == "PCI" and comm.cpu_arch == "ppc64" and (algorithm, protocol) == ("Tree", "Simple"):
        algorithm = "Ring"
    return comm.facts.hop_latency[link][algorithm][PROTOCOLS.index(protocol)]


def _link_inside(graph: ChannelGraph) -> str:
    return "NVLINK" if graph.type_intra == "NVL" else "PCI"


def _inside(
    comm: Communicator, graph: ChannelGraph, algorithm: Algorithm, protocol: Protocol
) -> float:
    hop = _hop(comm, _link_inside(graph), algorithm, protocol)
    slowed = protocol == "LL" and comm.n_nodes > 1
    return hop * comm.facts.intra_ll_penalty if slowed else hop


def _between(
    comm: Communicator, graph: ChannelGraph, algorithm: Algorithm, protocol: Protocol
) -> float:
    """One network hop; a Simple receive also flushes, which is a second trip to the NIC."""
    lone = comm.ppn == 1 and comm.facts.lone_gpu_tree_hops
    hop = _hop(comm, "NET", "Tree" if lone else algorithm, protocol)
    if comm.facts.net_latency_replaces:
        return graph.latency_inter or hop
    return hop + graph.latency_inter * (2 if protocol == "Simple" else 1)


def _ring_chain(
    comm: Communicator, graph: ChannelGraph, function: Function, protocol: Protocol
) -> float:
    link = _link_inside(graph) if comm.n_nodes == 1 else "NET"
    if graph.same_channels:
        return _hop(comm, link, "Ring", protocol)
    algorithm: Algorithm = "Tree" if protocol == "Simple" else "Ring"
    return ring_steps(function, comm.n_ranks) * _hop(comm, link, algorithm, protocol)


def _ring(comm: Communicator, graph: ChannelGraph, function: Function, protocol: Protocol) -> float:
    steps, nodes = ring_steps(function, comm.n_ranks), comm.n_nodes
    net_steps = 0
    if nodes > 1 and function == "AllReduce":
        net_steps = 2 * (nodes if comm.facts.ring_wraps_over_net else nodes - 1)
    elif nodes > 1:
        net_steps = nodes - 1
    intra = _inside(comm, graph, "Ring", protocol)
    if comm.facts.net_overhead and nodes > 1:
        intra = max(intra, net_overhead_us(comm) * (3 if protocol == "Simple" else 1))
    inter = _between(comm, graph, "Ring", protocol)
    return (steps - net_steps) * intra + net_steps * inter


def _others(comm: Communicator, algorithm: Algorithm, intra: float, inter: float) -> float:
    """Latency beyond the base of everything but the ring (the base of NVLS is 0 since 2.19)."""
    per_node, depth = comm.n_ranks // comm.n_nodes, comm.n_nodes.bit_length() - 1
    if algorithm == "Tree":
        return 2 * ((per_node - 1) * intra + depth * inter)
    if algorithm == "CollNetDirect":
        return 2 * (min(1, per_node - 1) * intra + (per_node - 1) * 0.4) + inter
    if algorithm == "CollNetChain":
        return 2 * (per_node - 1) * intra + inter
    if algorithm == "NVLS":
        return intra + (inter if comm.n_nodes > 1 else 0.0)
    if algorithm == "NVLSTree":
        return intra + 2 * depth * inter
    return depth * (inter / 3.5) + 2.8 * comm.n_ranks
