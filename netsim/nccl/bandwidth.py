"""NCCL's estimate of the algorithm bandwidth of every function, algorithm and protocol, in GB/s.

The formulas of its tuning model as they are, version by version; a selection heuristic, not a
prediction. Whether NCCL may choose an entry at all is said by `rules`.
"""

from netsim.nccl.channels import TREE, ChannelGraph
from netsim.nccl.communicator import Communicator
from netsim.nccl.facts import architecture
from netsim.nccl.names import Algorithm, Function, Protocol

GATHERS = ("AllGather", "ReduceScatter")
COLLNETS = ("CollNetDirect", "CollNetChain")


def ring_steps(function: Function, n_ranks: int) -> int:
    """Transfers in a row that one ring of `n_ranks` makes for `function`."""
    if function == "AllReduce":
        return 2 * (n_ranks - 1)
    return n_ranks - 1 if function in GATHERS else n_ranks


def algorithm_bandwidth(
    comm: Communicator, function: Function, algorithm: Algorithm, protocol: Protocol
) -> float:
    """Bytes of the call a second, in GB/s; 0 where the algorithm has no channels to run on."""
    graph = comm.graph(algorithm)
    if graph is None or graph.n_channels == 0:
        return 0.0
    if algorithm in ("NVLS", "NVLSTree"):
        bandwidth = _nvls_bus(comm, graph, function, algorithm)
    else:
        bandwidth = _BUS[algorithm](comm, graph, function, protocol)
    if function in GATHERS and algorithm != "Ring":
        return bandwidth
    return bandwidth * _bus_ratio(comm, function, algorithm)


def _bus_ratio(comm: Communicator, function: Function, algorithm: Algorithm) -> float:
    if algorithm in ("NVLS", "NVLSTree") and not comm.facts.nvls_efficiency:
        nodes = comm.n_nodes
        return 5 / 6 if algorithm == "NVLS" else 0.7 * nodes / (2 * max(1, nodes - 1))
    if algorithm in ("Ring", "NVLS", "NVLSTree"):
        return comm.n_ranks / ring_steps(function, comm.n_ranks)
    return 0.5


def _raw_bus(comm: Communicator, graph: ChannelGraph, *, collnet: bool = False) -> float:
    inside = comm.n_nodes <= 2 or collnet
    bus = graph.n_channels * (graph.bw_intra if inside else graph.bw_inter)
    cap = comm.facts.a100_cap if comm.min_cc == 80 else 0.0
    return min(bus, cap) if cap else bus


def _channel_cap(comm: Communicator, table: str, graph: ChannelGraph) -> float:
    rows = comm.facts.channel_max[table]
    row = rows[architecture(comm.min_cc, rows)]
    return graph.n_channels * row[comm.node_column]


def _ll_cap(comm: Communicator) -> float:
    """The most that LL carries; with several nodes NCCL reads the row by CPU and not by GPU."""
    rows = comm.facts.ll_max
    if comm.n_nodes == 1:
        row = architecture(comm.min_cc, rows)
    else:
        row = "Ampere" if comm.cpu_vendor in ("AMD", "mixed") else "Volta"
    return rows[row][comm.node_column]


def _ring_bus(
    comm: Communicator, graph: ChannelGraph, function: Function, protocol: Protocol
) -> float:
    facts, bus = comm.facts, _raw_bus(comm, graph)
    if protocol == "LL":
        quarter = comm.n_nodes > 1 or function in ("AllReduce", "Reduce")
        share = 0.5 if facts.ring_ll_half else 1 / 4 if quarter else 1 / 3
        return min(_ll_cap(comm), share * bus)
    if protocol == "LL128":
        share = facts.ring_ll128_lone_gpu if comm.ppn < 2 else 0.92
        return min(share * bus, _channel_cap(comm, "Ring LL128", graph))
    return bus


def _tree_bus(
    comm: Communicator, graph: ChannelGraph, function: Function, protocol: Protocol
) -> float:
    bus = min(0.92 * _raw_bus(comm, graph), _channel_cap(comm, "Tree", graph))
    if protocol == "LL":
        bus = min(bus / 3.8, _ll_cap(comm))
    elif protocol == "LL128":
        share = 7 / 9 if comm.n_nodes == 1 else 120 / 128
        bus = min(share * bus, _channel_cap(comm, "Tree LL128", graph))
    return bus * comm.facts.one_gpu_tree_factor if graph.pattern == TREE else bus


def _pat_bus(
    comm: Communicator, graph: ChannelGraph, function: Function, protocol: Protocol
) -> float:
    return comm.facts.pat_factor * _raw_bus(comm, graph)


def _collnet_direct_bus(
    comm: Communicator, graph: ChannelGraph, function: Function, protocol: Protocol
) -> float:
    if function in GATHERS:
        return comm.ppn * min(graph.bw_intra, 0.9 * graph.bw_inter)
    factor = comm.ppn / graph.n_channels
    factor -= (factor - 1) / 2
    bus = _raw_bus(comm, graph, collnet=True) / factor
    return bus * 0.85 if comm.min_cc >= 90 else bus


def _collnet_chain_bus(
    comm: Communicator, graph: ChannelGraph, function: Function, protocol: Protocol
) -> float:
    return _raw_bus(comm, graph, collnet=True)


def _nvls_bus(
    comm: Communicator, graph: ChannelGraph, function: Function, algorithm: Algorithm
) -> float:
    facts, share = comm.facts, (comm.ppn - 1) / comm.ppn
    if not facts.nvls_efficiency:
        gathers_by_nic = function in GATHERS and facts.nvls_shard_rule == "inter"
        sharded = min(graph.bw_intra * share, 0.9 * graph.bw_inter)
        bus = graph.n_channels * sharded if gathers_by_nic else _raw_bus(comm, graph)
        if algorithm == "NVLSTree":
            bus = min(bus, _channel_cap(comm, "NVLSTree", graph))
        return bus
    if graph.n_channels < 2:
        return 0.0
    efficiency = facts.nvls_efficiency[architecture(comm.min_cc, facts.nvls_efficiency)]
    intra = graph.bw_intra * efficiency * (graph.n_channels - 1) / graph.n_channels
    intra *= 2 if function == "AllReduce" else share
    inter = graph.bw_inter * (2 if comm.n_nodes <= 2 and algorithm == "NVLSTree" else 1)
    bus = graph.n_channels * min(intra, inter)
    if algorithm == "NVLSTree":
        bus = min(bus, _channel_cap(comm, "NVLSTree", graph))
    return bus


_BUS = {
    "Ring": _ring_bus,
    "Tree": _tree_bus,
    "PAT": _pat_bus,
    "CollNetDirect": _collnet_direct_bus,
    "CollNetChain": _collnet_chain_bus,
}
