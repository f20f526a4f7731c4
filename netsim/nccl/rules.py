"""Which algorithm and protocol NCCL may use, and the rule that forbids each of the others.

Every rule answers with a text (for people who ask why) or with nothing. The formulas that
rate what is allowed are in `bandwidth` and `latency`.
"""

from netsim.nccl.communicator import Communicator
from netsim.nccl.names import Algorithm, Function, Protocol

ALL_REDUCE_ONLY = ("Tree", "CollNetChain", "NVLSTree")
SIMPLE_ONLY = ("CollNetDirect", "CollNetChain", "NVLS", "NVLSTree", "PAT")

NVLS_INTEGERS_AND_HALVES = ("int32", "uint32", "int64", "uint64", "half", "bfloat16")
NVLS_SUM_ONLY = ("float", "double")


def refusal(
    comm: Communicator, function: Function, algorithm: Algorithm, protocol: Protocol
) -> str:
    """Why NCCL cannot use this entry of its cost table, or an empty text where it can."""
    return (
        not_made(comm, function, algorithm, protocol)
        or _not_wanted(comm, function, algorithm, protocol)
        or _ALGORITHM_RULES.get(algorithm, _no_rule)(comm, function)
        or (_ll128(comm, function, algorithm) if protocol == "LL128" else "")
    )


def call_refusal(
    comm: Communicator, function: Function, algorithm: Algorithm, data_type: str, reduction: str
) -> str:
    """Why this call's data type or reduction rules the algorithm out, or an empty text."""
    if algorithm in ("NVLS", "NVLSTree") and function != "AllGather":
        return _nvls_type(data_type, reduction)
    if algorithm == "PAT" and function == "ReduceScatter" and reduction in ("avg", "mulsum"):
        return f"PAT has no {reduction} reduction"
    return ""


def _no_rule(comm: Communicator, function: Function) -> str:
    return ""


def not_made(
    comm: Communicator, function: Function, algorithm: Algorithm, protocol: Protocol
) -> str:
    """Why this NCCL version has no such entry at all on any machine, or an empty text."""
    facts = comm.facts
    if algorithm not in facts.algorithms:
        return f"NCCL {comm.version} has no {algorithm}"
    if function in ("Broadcast", "Reduce") and algorithm != "Ring":
        return f"{function} runs on rings only"
    gathers = function in ("AllGather", "ReduceScatter")
    if gathers and algorithm not in facts.gather_algorithms:
        newer = algorithm in ("NVLS", "CollNetDirect")
        return (
            f"NCCL {comm.version} has no {algorithm} {function}"
            if newer
            else (f"{algorithm} exists for AllReduce only")
        )
    if function == "AllReduce" and algorithm == "PAT":
        return "PAT exists for AllGather and ReduceScatter only"
    if algorithm in SIMPLE_ONLY and protocol != "Simple":
        return f"{algorithm} runs with the Simple protocol only"
    return ""


def _not_wanted(
    comm: Communicator, function: Function, algorithm: Algorithm, protocol: Protocol
) -> str:
    settings, mode = comm.settings, comm.facts.bad_choice
    protocols = settings.protocols.get(function)
    if protocols is not None and protocol not in protocols:
        return f"NCCL_PROTO leaves out {protocol}"
    algorithms = settings.algorithms.get(function)
    if algorithms is None or algorithm in algorithms:
        return ""
    if function != "AllReduce" and mode == "all_reduce_only":
        return ""
    if function != "AllReduce" and mode == "all_reduce_and_ring" and algorithm == "Ring":
        return ""
    return f"NCCL_ALGO leaves out {algorithm}"


def _ll128(comm: Communicator, function: Function, algorithm: Algorithm) -> str:
    """LL128 needs stores of 128 bytes that arrive whole, which NCCL trusts on few paths."""
    if "LL128" in comm.settings.protocols.get(function, ()):
        return ""
    graph, facts = comm.graph(algorithm), comm.facts
    if graph is None:
        return ""
    if not facts.ll128_wide:
        same = comm.min_cc == comm.max_cc and comm.min_cc in (70, 80)
        if not same:
            return "LL128 needs all GPUs V100 or all A100"
        widest = "NVL"
    else:
        if comm.min_cc < 70:
            return "LL128 needs GPUs of compute capability 7.0 or newer"
        if comm.min_cc != comm.max_cc and comm.min_cc < 90:
            return "LL128 needs GPUs of one compute capability before Hopper"
        widest = "NVB"
    if facts.rank(graph.type_intra) > facts.rank(widest):
        return f"LL128 inside a node needs paths up to {widest}, found {graph.type_intra}"
    far = "PXN" if facts.ll128_wide and comm.min_cc >= 90 and comm.settings.ll128_c2c else "PXB"
    if facts.rank(graph.type_inter) > facts.rank(far):
        return f"LL128 between nodes needs paths up to {far}, found {graph.type_inter}"
    return ""


def _collnet(comm: Communicator, function: Function) -> str:
    if not comm.settings.collnet:
        return "collective networks are off (NCCL_COLLNET_ENABLE)"
    if comm.n_nodes < comm.settings.collnet_node_threshold:
        threshold = comm.settings.collnet_node_threshold
        return f"fewer than {threshold} nodes (NCCL_COLLNET_NODE_THRESHOLD)"
    if not comm.network_collectives:
        return "the switches of the network do not reduce (cluster.fabric.sharp)"
    return ""


def _few_local_ranks(comm: Communicator) -> str:
    return "CollNet takes at most 8 ranks a node" if comm.local_ranks > 8 else ""


def _collnet_chain(comm: Communicator, function: Function) -> str:
    return _collnet(comm, function) or _few_local_ranks(comm) or _no_graph(comm, "CollNetChain")


def _collnet_direct(comm: Communicator, function: Function) -> str:
    switch = "" if comm.nvswitch else "CollNetDirect needs an NVSwitch"
    refused = _collnet(comm, function) or switch or _few_local_ranks(comm)
    return refused or _heads(comm, function) or _no_graph(comm, "CollNetDirect")


def _heads(comm: Communicator, function: Function) -> str:
    gathers = function in ("AllGather", "ReduceScatter")
    if gathers and comm.n_nodes > 1 and comm.local_ranks > comm.n_heads:
        return f"{comm.local_ranks} local ranks but {comm.n_heads} of them have a NIC"
    return ""


def _multicast(comm: Communicator, function: Function) -> str:
    if comm.settings.nvls == 0:
        return "NVLink SHARP is off (NCCL_NVLS_ENABLE)"
    if not comm.nvswitch:
        return "NVLS needs an NVSwitch"
    if comm.min_cc < 90 or not comm.multicast:
        return "NVLS needs multicast in the switch (Hopper or newer)"
    if comm.local_ranks < 2:
        return "NVLS needs at least 2 GPUs a node"
    if function in ("AllGather", "ReduceScatter") and comm.local_ranks > 32:
        return f"NVLS {function} takes at most 32 ranks a node"
    return ""


def _nvls(comm: Communicator, function: Function) -> str:
    refused = _multicast(comm, function)
    if comm.n_nodes > 1:
        refused = refused or _collnet(comm, function) or _heads(comm, function)
    return refused or _no_graph(comm, "NVLS")


def _nvls_tree(comm: Communicator, function: Function) -> str:
    refused = "NVLSTree needs at least 2 nodes" if comm.n_nodes == 1 else ""
    return refused or _multicast(comm, function) or _no_graph(comm, "NVLSTree")


def _pat(comm: Communicator, function: Function) -> str:
    if comm.settings.pat == 0:
        return "PAT is off (NCCL_PAT_ENABLE)"
    if comm.local_ranks > 1:
        return "PAT needs exactly one rank a node"
    if comm.min_cc < 60:
        return "PAT needs GPUs of compute capability 6.0 or newer"
    return "PAT does not work with device offload networks" if comm.offload_network else ""


def _no_graph(comm: Communicator, algorithm: Algorithm) -> str:
    graph = comm.graph(algorithm)
    if graph is None or graph.n_channels == 0:
        return "the search found no channels for it"
    too_few = algorithm in ("NVLS", "NVLSTree") and comm.facts.nvls_efficiency
    return "NVLS needs at least 2 heads" if too_few and graph.n_channels < 2 else ""


def _nvls_type(data_type: str, reduction: str) -> str:
    if data_type in NVLS_INTEGERS_AND_HALVES and reduction in ("sum", "min", "max"):
        return ""
    if data_type in NVLS_SUM_ONLY and reduction == "sum":
        return ""
    return f"NVLink SHARP cannot reduce {data_type} by {reduction}"


_ALGORITHM_RULES = {
    "CollNetDirect": _collnet_direct,
    "CollNetChain": _collnet_chain,
    "NVLS": _nvls,
    "NVLSTree": _nvls_tree,
    "PAT": _pat,
}
