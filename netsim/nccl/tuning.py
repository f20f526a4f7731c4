"""NCCL's choice of algorithm and protocol: its estimates, and the rules of what it may use.

The formulas are those of NCCL's tuning model, version by version (src/graph/tuning.cc,
ncclTopoTuneModel). They decide what runs; the simulator predicts in other ways how long that takes.
`refusal` says whether NCCL may use an entry of its cost table at all.
"""

import csv
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

from netsim.base.errors import InputError, ScenarioError, shown, suggest
from netsim.base.files import text_of
from netsim.base.values import dataclass
from netsim.nccl.communicator import TREE, ChannelGraph, Communicator, TunerRule
from netsim.nccl.facts import (
    ALGORITHMS,
    FUNCTIONS,
    PROTOCOLS,
    Algorithm,
    Function,
    Protocol,
    architecture,
)

GATHERS = ("AllGather", "ReduceScatter")


def ring_steps(function: Function, n_ranks: int) -> int:
    """Return the number of transfers, one after the other, that a ring of `n_ranks` makes for a
    function.
    """
    if function == "AllReduce":
        return 2 * (n_ranks - 1)
    return n_ranks - 1 if function in GATHERS else n_ranks


@dataclass(frozen=True, slots=True)
class CostEntry:
    """NCCL's estimate for one function, algorithm and protocol of a communicator."""

    comm: Communicator
    graph: ChannelGraph
    function: Function
    algorithm: Algorithm
    protocol: Protocol

    def bandwidth(self) -> float:
        """Return the estimated algorithm bandwidth in GB/s."""
        comm = self.comm
        gathers = self.function in GATHERS
        if self.algorithm in ("NVLS", "NVLSTree"):
            bus = self._nvls_bus()
        elif self.algorithm == "PAT":
            bus = comm.facts.pat_factor * self._raw_bus()
        elif self.algorithm == "CollNetDirect":
            bus = self._collnet_direct_bus()
        elif self.algorithm == "CollNetChain":
            bus = self._raw_bus(collnet=True)
        else:
            bus = self._ring_bus() if self.algorithm == "Ring" else self._tree_bus()
        return bus if gathers and self.algorithm != "Ring" else bus * self._bus_ratio()

    def _bus_ratio(self) -> float:
        """Return algorithm bandwidth divided by bus bandwidth."""
        comm = self.comm
        if self.algorithm in ("NVLS", "NVLSTree") and not comm.facts.nvls_efficiency:
            nodes = comm.n_nodes
            return 5 / 6 if self.algorithm == "NVLS" else 0.7 * nodes / (2 * max(1, nodes - 1))
        if self.algorithm in ("Ring", "NVLS", "NVLSTree"):
            return comm.n_ranks / ring_steps(self.function, comm.n_ranks)
        return 0.5

    def _raw_bus(self, *, collnet: bool = False) -> float:
        """Return the bus bandwidth (GB/s) of all channels before protocol and algorithm reduce it.

        It is the one between nodes if there are more than two nodes, unless `collnet` is set.
        """
        comm = self.comm
        graph = self.graph
        inside = comm.n_nodes <= 2 or collnet
        bus = graph.n_channels * (graph.bw_intra if inside else graph.bw_inter)
        cap = comm.facts.a100_cap if comm.min_cc == 80 else 0.0
        return min(bus, cap) if cap else bus

    def _channel_cap(self, table: str) -> float:
        """Return the most GB/s that all channels together carry.

        `table` names a table of `Facts.channel_max`, which limits the bandwidth of one channel.
        """
        rows = self.comm.facts.channel_max[table]
        row = rows[architecture(self.comm.min_cc, rows)]
        return self.graph.n_channels * row[self.comm.node_column]

    def _ll_cap(self) -> float:
        """Return the most GB/s that LL carries; with several nodes NCCL looks it up by CPU, not by
        GPU.
        """
        comm, rows = self.comm, self.comm.facts.ll_max
        if comm.n_nodes == 1:
            return rows[architecture(comm.min_cc, rows)][comm.node_column]
        return rows["Ampere" if comm.cpu_vendor in ("AMD", "mixed") else "Volta"][comm.node_column]

    def _ring_bus(self) -> float:
        """Return the bus bandwidth of rings in GB/s."""
        comm, facts, bus = self.comm, self.comm.facts, self._raw_bus()
        if self.protocol == "LL":
            quarter = comm.n_nodes > 1 or self.function in ("AllReduce", "Reduce")
            if facts.ring_ll_half:
                share = 0.5
            else:
                share = 1 / 4 if quarter else 1 / 3
            return min(self._ll_cap(), share * bus)
        if self.protocol == "LL128":
            share = facts.ring_ll128_lone_gpu if comm.ppn < 2 else 0.92
            return min(share * bus, self._channel_cap("Ring LL128"))
        return bus

    def _tree_bus(self) -> float:
        """Return the bus bandwidth of trees in GB/s."""
        bus = min(0.92 * self._raw_bus(), self._channel_cap("Tree"))
        if self.protocol == "LL":
            bus = min(bus / 3.8, self._ll_cap())
        elif self.protocol == "LL128":
            share = 7 / 9 if self.comm.n_nodes == 1 else 120 / 128
            bus = min(share * bus, self._channel_cap("Tree LL128"))
        return bus * self.comm.facts.one_gpu_tree_factor if self.graph.pattern == TREE else bus

    def _collnet_direct_bus(self) -> float:
        """Return the bus bandwidth of CollNetDirect in GB/s."""
        comm = self.comm
        graph = self.graph
        if self.function in GATHERS:
            return comm.ppn * min(graph.bw_intra, 0.9 * graph.bw_inter)
        factor = comm.ppn / graph.n_channels
        factor -= (factor - 1) / 2
        bus = self._raw_bus(collnet=True) / factor
        return bus * 0.85 if comm.min_cc >= 90 else bus

    def _nvls_bus(self) -> float:
        """Return the bus bandwidth of NVLS and NVLSTree in GB/s."""
        comm = self.comm
        graph = self.graph
        tree = self.algorithm == "NVLSTree"
        facts = comm.facts
        share = (comm.ppn - 1) / comm.ppn
        if not facts.nvls_efficiency:
            by_nic = self.function in GATHERS and facts.nvls_shard_rule == "inter"
            sharded = min(graph.bw_intra * share, 0.9 * graph.bw_inter)
            bus = graph.n_channels * sharded if by_nic else self._raw_bus()
        elif graph.n_channels < 2:
            return 0.0
        else:
            efficiency = facts.nvls_efficiency[architecture(comm.min_cc, facts.nvls_efficiency)]
            intra = graph.bw_intra * efficiency * (graph.n_channels - 1) / graph.n_channels
            intra *= 2 if self.function == "AllReduce" else share
            inter = graph.bw_inter * (2 if comm.n_nodes <= 2 and tree else 1)
            bus = graph.n_channels * min(intra, inter)
        return min(bus, self._channel_cap("NVLSTree")) if tree else bus

    def latency(self) -> float:
        """Return the estimated microseconds of a call that do not depend on its size."""
        base = self.comm.facts.base_latency[self.algorithm][PROTOCOLS.index(self.protocol)]
        if self.algorithm == "Ring" and self.function in ("Broadcast", "Reduce"):
            return base + self._ring_chain()
        return base + (self._ring() if self.algorithm == "Ring" else self._others())

    def _hop(self, link: str, algorithm: Algorithm) -> float:
        """Return the latency in microseconds of a hop over a kind of link: NVLINK, PCI or NET."""
        tree = (algorithm, self.protocol) == ("Tree", "Simple")
        if link == "PCI" and self.comm.cpu_arch == "ppc64" and tree:
            algorithm = "Ring"
        return self.comm.facts.hop_latency[link][algorithm][PROTOCOLS.index(self.protocol)]

    @property
    def _link_inside(self) -> str:
        """The kind of link inside a node, as the latency tables name it."""
        return "NVLINK" if self.graph.type_intra == "NVL" else "PCI"

    def _inside(self) -> float:
        """Return the latency of a hop inside a node in microseconds."""
        hop = self._hop(self._link_inside, self.algorithm)
        slowed = self.protocol == "LL" and self.comm.n_nodes > 1
        return hop * self.comm.facts.intra_ll_penalty if slowed else hop

    def _between(self) -> float:
        """Return the latency of a network hop in microseconds.

        A receive with Simple also flushes, which is a second trip to the NIC.
        """
        facts = self.comm.facts
        more = self.graph.latency_inter
        lone = self.comm.ppn == 1 and facts.lone_gpu_tree_hops
        hop = self._hop("NET", "Tree" if lone else self.algorithm)
        if facts.net_latency_replaces:
            return more or hop
        return hop + more * (2 if self.protocol == "Simple" else 1)

    def _ring_chain(self) -> float:
        """Return the latency of Broadcast and Reduce on rings in microseconds."""
        link = self._link_inside if self.comm.n_nodes == 1 else "NET"
        if self.graph.same_channels:
            return self._hop(link, "Ring")
        hop = self._hop(link, "Tree" if self.protocol == "Simple" else "Ring")
        return ring_steps(self.function, self.comm.n_ranks) * hop

    def _ring(self) -> float:
        """Return the latency of all steps of a ring in microseconds.

        Some steps cross the network, the others stay in a node (`src/graph/tuning.cc,
        ncclTopoTuneModel`).
        """
        comm, nodes, net_steps = self.comm, self.comm.n_nodes, 0
        steps = ring_steps(self.function, comm.n_ranks)
        if nodes > 1 and self.function == "AllReduce":
            net_steps = 2 * (nodes if comm.facts.ring_wraps_over_net else nodes - 1)
        elif nodes > 1:
            net_steps = nodes - 1
        intra = self._inside()
        if comm.facts.net_overhead and nodes > 1:
            intra = max(intra, net_overhead_us(comm) * (3 if self.protocol == "Simple" else 1))
        return (steps - net_steps) * intra + net_steps * self._between()

    def _others(self) -> float:
        """Return the latency of all algorithms but rings in microseconds."""
        comm = self.comm
        intra = self._inside()
        inter = self._between()
        per_node = comm.n_ranks // comm.n_nodes
        depth = comm.n_nodes.bit_length() - 1
        if self.algorithm == "Tree":
            return 2 * ((per_node - 1) * intra + depth * inter)
        if self.algorithm == "CollNetDirect":
            return 2 * (min(1, per_node - 1) * intra + (per_node - 1) * 0.4) + inter
        if self.algorithm == "CollNetChain":
            return 2 * (per_node - 1) * intra + inter
        if self.algorithm == "NVLS":
            return intra + (inter if comm.n_nodes > 1 else 0.0)
        if self.algorithm == "NVLSTree":
            return intra + 2 * depth * inter
        return depth * (inter / 3.5) + 2.8 * comm.n_ranks


def algorithm_bandwidth(
    comm: Communicator, function: Function, algorithm: Algorithm, protocol: Protocol
) -> float:
    """Return NCCL's estimate of algorithm bandwidth in GB/s; 0 if the algorithm has no channels."""
    graph = comm.graph(algorithm)
    if graph is None or graph.n_channels == 0:
        return 0.0
    return CostEntry(comm, graph, function, algorithm, protocol).bandwidth()


def latency_us(
    comm: Communicator, function: Function, algorithm: Algorithm, protocol: Protocol
) -> float:
    """Return NCCL's estimate of the microseconds of a call that do not depend on its size."""
    graph = comm.graph(algorithm)
    return CostEntry(comm, graph, function, algorithm, protocol).latency() if graph else 0.0


def net_overhead_us(comm: Communicator) -> float:
    """Return the µs that NCCL assumes for a proxy to post one network operation
    (getNetOverhead).
    """
    if comm.settings.net_overhead_us is not None:
        return comm.settings.net_overhead_us
    return 2.0 if comm.cpu_arch == "x86_64" and comm.cpu_vendor == "AMD" else 1.0


# Which algorithm and protocol NCCL may use. Each rule returns why it forbids an entry, or "";
# users read these texts.

SIMPLE_ONLY = ("CollNetDirect", "CollNetChain", "NVLS", "NVLSTree", "PAT")

NVLS_SUMS = ("int32", "uint32", "int64", "uint64", "half", "bfloat16", "float", "double")


def refusal(
    comm: Communicator, function: Function, algorithm: Algorithm, protocol: Protocol
) -> str:
    """Return why NCCL cannot use an entry of its cost table; "" if it can."""
    rule = _ALGORITHM_RULES.get(algorithm)
    return (
        not_implemented(comm, function, algorithm, protocol)
        or _excluded_protocol(comm, function, protocol)
        or _excluded_algorithm(comm, function, algorithm)
        or (rule(comm, function) if rule else "")
        or _protocol_refusal(comm, function, algorithm, protocol)
    )


def not_implemented(
    comm: Communicator, function: Function, algorithm: Algorithm, protocol: Protocol
) -> str:
    """Return why this NCCL version has no such entry on any machine; "" if it has."""
    facts = comm.facts
    if algorithm not in facts.algorithms:
        return f"NCCL {comm.version} has no {algorithm}"
    if function in ("Broadcast", "Reduce") and algorithm != "Ring":
        return f"{function} runs on rings only"
    if function in GATHERS and algorithm not in facts.gather_algorithms:
        if algorithm in ("NVLS", "CollNetDirect"):
            return f"NCCL {comm.version} has no {algorithm} {function}"
        return f"{algorithm} exists for AllReduce only"
    if function == "AllReduce" and algorithm == "PAT":
        return "PAT exists for AllGather and ReduceScatter only"
    if algorithm in SIMPLE_ONLY and protocol != "Simple":
        return f"{algorithm} runs with the Simple protocol only"
    return ""


def _excluded_protocol(comm: Communicator, function: Function, protocol: Protocol) -> str:
    """Return why NCCL_PROTO excludes a protocol; "" if it does not."""
    admitted = comm.settings.protocols.get(function, PROTOCOLS)
    return "" if protocol in admitted else f"NCCL_PROTO leaves out {protocol}"


def _protocol_refusal(
    comm: Communicator, function: Function, algorithm: Algorithm, protocol: Protocol
) -> str:
    """Return why a protocol may not run, whatever NCCL_ALGO says; "" if it may."""
    trusted = "" if protocol != "LL128" else _ll128(comm, function, algorithm)
    return _excluded_protocol(comm, function, protocol) or trusted


def _excluded_algorithm(comm: Communicator, function: Function, algorithm: Algorithm) -> str:
    """Return why NCCL_ALGO excludes an algorithm; "" if it does not."""
    mode = comm.facts.bad_choice
    algorithms = _admitted_algorithms(comm, function)
    if algorithms is None or algorithm in algorithms:
        return ""
    if function != "AllReduce" and mode == "all_reduce_only":
        return ""
    if function != "AllReduce" and mode == "all_reduce_and_ring" and algorithm == "Ring":
        return ""
    return f"NCCL_ALGO leaves out {algorithm}"


def _admitted_algorithms(comm: Communicator, function: Function) -> tuple[str, ...] | None:
    """Return the algorithms that NCCL_ALGO admits; None for all.

    Before 2.24, NCCL ignores the variable if all of them need a collective network and there is
    none.
    """
    wanted = comm.settings.algorithms.get(function)
    if wanted is None or comm.facts.bad_choice == "refuse" or not _collnet(comm, function):
        return wanted
    alone = {"Ring", "Tree", "NVLS" if comm.n_nodes == 1 else "NVLSTree"}
    return wanted if alone.intersection(wanted) else (*wanted, "Ring", "Tree")


def _ll128(comm: Communicator, function: Function, algorithm: Algorithm) -> str:
    """Return why LL128 may not run; "" if it may. It needs 128-byte stores that arrive
    undivided.
    """
    if "LL128" in comm.settings.protocols.get(function, ()):
        return ""
    graph = comm.graph(algorithm)
    facts = comm.facts
    if graph is None:
        return ""
    is_uniform = comm.min_cc == comm.max_cc
    widest = "NVB" if facts.ll128_wide else "NVL"
    if not facts.ll128_wide and not (is_uniform and comm.min_cc in (70, 80)):
        return "LL128 needs all GPUs V100 or all A100"
    if comm.min_cc < 70:
        return "LL128 needs GPUs of compute capability 7.0 or newer"
    if not is_uniform and comm.min_cc < 90:
        return "LL128 needs GPUs of one compute capability before Hopper"
    if facts.rank(graph.type_intra) > facts.rank(widest):
        return f"LL128 inside a node needs paths up to {widest}, found {graph.type_intra}"
    far = "PXN" if facts.ll128_wide and comm.min_cc >= 90 and comm.settings.ll128_c2c else "PXB"
    if facts.rank(graph.type_inter) > facts.rank(far):
        return f"LL128 between nodes needs paths up to {far}, found {graph.type_inter}"
    return ""


def _collnet(comm: Communicator, function: Function) -> str:
    """Return why collective networks cannot be used; "" if they can."""
    if not comm.settings.collnet:
        return "collective networks are off (NCCL_COLLNET_ENABLE)"
    if comm.n_nodes < comm.settings.collnet_node_threshold:
        threshold = comm.settings.collnet_node_threshold
        return f"fewer than {threshold} nodes (NCCL_COLLNET_NODE_THRESHOLD)"
    if not comm.network_collectives:
        return "the switches of the network do not reduce (cluster.fabric.sharp)"
    return ""


def _few_local_ranks(comm: Communicator) -> str:
    """Return why nodes have too many ranks for CollNet; "" if they do not."""
    return "CollNet takes at most 8 ranks a node" if comm.local_ranks > 8 else ""


def _collnet_chain(comm: Communicator, function: Function) -> str:
    """Return why CollNetChain cannot be used; "" if it can."""
    return _collnet(comm, function) or _few_local_ranks(comm) or _no_graph(comm, "CollNetChain")


def _collnet_direct(comm: Communicator, function: Function) -> str:
    """Return why CollNetDirect cannot be used; "" if it can."""
    switch = "" if comm.nvswitch else "CollNetDirect needs an NVSwitch"
    refused = _collnet(comm, function) or switch or _few_local_ranks(comm)
    return refused or _heads(comm, function) or _no_graph(comm, "CollNetDirect")


def _heads(comm: Communicator, function: Function) -> str:
    """Return why a node has too few heads, which are local ranks with a NIC; "" if it has
    enough.
    """
    if function in GATHERS and comm.n_nodes > 1 and comm.local_ranks > comm.n_heads:
        return f"{comm.local_ranks} local ranks but {comm.n_heads} of them have a NIC"
    return ""


def _multicast(comm: Communicator, function: Function) -> str:
    """Return why NVLink SHARP cannot be used; "" if it can."""
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
    """Return why NVLS cannot be used; "" if it can."""
    refused = _multicast(comm, function)
    if comm.n_nodes > 1:
        refused = refused or _collnet(comm, function) or _heads(comm, function)
    return refused or _no_graph(comm, "NVLS")


def _nvls_tree(comm: Communicator, function: Function) -> str:
    """Return why NVLSTree cannot be used; "" if it can."""
    refused = "NVLSTree needs at least 2 nodes" if comm.n_nodes == 1 else ""
    return refused or _multicast(comm, function) or _no_graph(comm, "NVLSTree")


def _pat(comm: Communicator, function: Function) -> str:
    """Return why PAT cannot be used; "" if it can."""
    if comm.settings.pat == 0:
        return "PAT is off (NCCL_PAT_ENABLE)"
    if comm.local_ranks > 1:
        return "PAT needs exactly one rank a node"
    if comm.min_cc < 60:
        return "PAT needs GPUs of compute capability 6.0 or newer"
    return ""


def _no_graph(comm: Communicator, algorithm: Algorithm) -> str:
    """Return why the result of the search for an algorithm cannot be used; "" if it can."""
    graph = comm.graph(algorithm)
    if graph is None or graph.n_channels == 0:
        return "the search found no channels for it"
    too_few = algorithm in ("NVLS", "NVLSTree") and comm.facts.nvls_efficiency
    return "NVLS needs at least 2 heads" if too_few and graph.n_channels < 2 else ""


_ALGORITHM_RULES = {
    "CollNetDirect": _collnet_direct,
    "CollNetChain": _collnet_chain,
    "NVLS": _nvls,
    "NVLSTree": _nvls_tree,
    "PAT": _pat,
}


# NCCL's cost table and its choice for one call: the entry with the least latency + bytes/bandwidth.
# Times are in µs and bandwidths in GB/s, as in NCCL.

# Factors in tenths on the bandwidth of trees, by log2(bytes / 64) (src/graph/tuning.cc,
# treeCorrectionFactor).
TREE_CORRECTION: dict[Protocol, tuple[int, ...]] = {
    "LL": (10, 10, 10, 10, 9, 8, 7, 7, 7, 7, 6, 5, 4, 4, 5, 6, 7, 8, 9, 10, 10, 10, 10, 10),
    "LL128": (10, 10, 10, 10, 10, 9, 8, 8, 8, 7, 6, 6, 6, 6, 6, 6, 8, 9, 9, 9, 9, 10, 10, 10),
    "Simple": (9, 9, 9, 9, 9, 9, 9, 8, 7, 6, 6, 5, 5, 5, 5, 6, 7, 8, 7, 7, 8, 9, 9, 9),
}
FP8_RING_PENALTY = 1024.0
FP8_TYPES = ("f8e4m3", "f8e5m2")  # as nccl-tests names them
BATCH = 8  # collectives in one work batch of a block


@dataclass(frozen=True)
class TunedCall:
    """One collective call.

    - `nbytes`: bytes as NCCL's choice counts them: those of all ranks for AllGather and
      ReduceScatter.
    - `data_type`: as nccl-tests names it.
    - `n_pipe_ops`: the number of collectives of its group that share a channel.
    - `registered`: whether the user has registered the buffers.
    """

    function: Function
    nbytes: int
    data_type: str = "float"
    n_pipe_ops: int = 1  # collectives of its group that share a channel
    registered: bool = False


@dataclass(frozen=True)
class Cost:
    """One entry of the cost table; `disabled` is why it cannot be used, or ""."""

    function: Function
    algorithm: Algorithm
    protocol: Protocol
    latency_us: float
    bandwidth: float  # GB/s of algorithm bandwidth
    disabled: str = ""


@dataclass(frozen=True)
class TimedCost:
    """An entry of the cost table for one size of a call.

    - `time_us`: NCCL's estimate in microseconds; None if the entry is disabled.
    - `disabled`: why it cannot be used, or "".
    """

    cost: Cost
    time_us: float | None
    disabled: str


@dataclass(frozen=True)
class AlgorithmChoice:
    """The algorithm and protocol that NCCL runs, and its estimate of the time in microseconds.

    `tuned` is set if a rule of the user's tuner decided; then `n_channels` may be the tuner's
    number.
    """

    algorithm: Algorithm
    protocol: Protocol
    time_us: float
    n_channels: int | None = None
    tuned: bool = False


def cost_entry(
    comm: Communicator, function: Function, algorithm: Algorithm, protocol: Protocol
) -> Cost:
    """Return one entry of the cost table; entries that do not exist have bandwidth 0."""
    missing = not_implemented(comm, function, algorithm, protocol)
    if missing:
        return Cost(function, algorithm, protocol, 0.0, 0.0, missing)
    disabled = refusal(comm, function, algorithm, protocol)
    latency = latency_us(comm, function, algorithm, protocol)
    bandwidth = algorithm_bandwidth(comm, function, algorithm, protocol)
    return Cost(function, algorithm, protocol, latency, bandwidth, disabled)


def timed_costs(comm: Communicator, call: TunedCall) -> tuple[TimedCost, ...]:
    """Return the cost table of a call's function, with the times for its size."""
    return tuple(_timed_cost(comm, call, cost) for cost in _costs_of(comm, call.function))


def _costs_of(comm: Communicator, function: Function) -> tuple[Cost, ...]:
    """Return the cost table of a function, from the communicator's cache if it is there."""

    def all_entries() -> tuple[Cost, ...]:
        """Return all entries of the cost table."""
        both = product(ALGORITHMS, PROTOCOLS)
        return tuple(cost_entry(comm, function, *entry) for entry in both)

    return comm.memo.of(("costs", function), all_entries)


def choose(comm: Communicator, call: TunedCall) -> AlgorithmChoice:
    """Return NCCL's algorithm and protocol for a call (src/enqueue.cc, topoGetAlgoInfo).

    It is the entry with the least latency + bytes / bandwidth; on equal times, the first in NCCL's
    order.
    """
    if comm.n_ranks == 1:
        return AlgorithmChoice("Ring", "Simple", 0.0)
    timed = timed_costs(comm, call)
    tuned = _tuned(comm, call, timed)
    if tuned is not None:
        return tuned
    possible = [(entry.time_us, entry.cost) for entry in timed if entry.time_us is not None]
    if possible:
        time_us, cost = min(possible, key=lambda pair: pair[0])
        return AlgorithmChoice(cost.algorithm, cost.protocol, time_us)
    if comm.facts.bad_choice == "refuse":
        raise InputError(f"no algorithm available for {call.function}", hint=_reasons(comm, timed))
    return _rings(comm, call)


def _rings(comm: Communicator, call: TunedCall) -> AlgorithmChoice:
    """Return the choice of rings with their fastest protocol.

    NCCL before 2.24 makes this choice if nothing that the user admits can run. Before 2.22 it may
    have a protocol that NCCL_PROTO or the rules of LL128 forbid.
    """
    function = call.function
    protocols = PROTOCOLS
    if comm.facts.bad_choice == "fall_back_within":
        reason_of_protocol = {
            protocol: _protocol_refusal(comm, function, "Ring", protocol) for protocol in PROTOCOLS
        }
        protocols = (
            tuple(protocol for protocol in PROTOCOLS if not reason_of_protocol[protocol])
            or PROTOCOLS
        )
    costs = (cost_entry(comm, function, "Ring", protocol) for protocol in protocols)
    times = [(time_us(comm, call, cost), cost.protocol) for cost in costs if cost.bandwidth]
    time, protocol = min(times, key=lambda pair: pair[0])
    return AlgorithmChoice("Ring", protocol, time)


def _tuned(
    comm: Communicator, call: TunedCall, timed: Sequence[TimedCost]
) -> AlgorithmChoice | None:
    """Return the choice by the first tuner rule that fits the call; None if it cannot run.

    `timed` is the cost table for the call. None also if no rule fits.
    """
    actual = (comm.n_nodes, comm.n_ranks, call.n_pipe_ops, int(call.registered))
    fitting = (rule for rule in comm.tuner if rule.fits(call.function, call.nbytes, actual))
    rule = next(fitting, None)
    for entry in timed if rule else ():
        assert rule is not None
        is_wanted = (entry.cost.algorithm, entry.cost.protocol) == (rule.algorithm, rule.protocol)
        if is_wanted and entry.time_us is not None:
            return AlgorithmChoice(
                rule.algorithm, rule.protocol, entry.time_us, rule.n_channels, tuned=True
            )
    return None


def fallback_reason(comm: Communicator, call: TunedCall) -> str:
    """Return what NCCL does if nothing that the user admits can run a call, and why, as a text.

    It is "" if something can run, and for versions from 2.24 on, which stop with an error instead.
    """
    if comm.n_ranks == 1 or comm.facts.bad_choice == "refuse":
        return ""
    if _admitted_algorithms(comm, call.function) != comm.settings.algorithms.get(call.function):
        return f"ignores NCCL_ALGO: {_collnet(comm, call.function)}"
    timed = timed_costs(comm, call)
    is_possible = any(entry.time_us is not None for entry in timed)
    return "" if is_possible else f"falls back to Ring: {_reasons(comm, timed)}"


def time_us(comm: Communicator, call: TunedCall, cost: Cost) -> float:
    """Return NCCL's estimate of the time of a call in microseconds (ncclTopoGetAlgoTime)."""
    latency = cost.latency_us
    bandwidth = cost.bandwidth * _correction(comm, call, cost)
    if _on_plateau(comm, call, cost):
        latency *= 1.4 if comm.facts.plateau_by_channel and comm.min_cc >= 80 else 1.9
    ops = call.n_pipe_ops if cost.algorithm == "Ring" else -(-call.n_pipe_ops // BATCH)
    expected = latency * ops + call.nbytes / (1000 * bandwidth)
    reduces = call.function in ("AllReduce", "ReduceScatter", "Reduce")
    fp8 = call.data_type in FP8_TYPES and reduces
    slow = fp8 and cost.algorithm == "Ring" and comm.n_ranks > 8
    return expected * FP8_RING_PENALTY if slow else expected


def _timed_cost(comm: Communicator, call: TunedCall, cost: Cost) -> TimedCost:
    """Return a cost for one call: with its time, or with the reason why the call cannot use it."""
    disabled = cost.disabled
    adds_up = call.function != "AllGather"
    switched = cost.algorithm in ("NVLS", "NVLSTree")
    if not disabled and switched and adds_up and call.data_type not in NVLS_SUMS:
        disabled = f"NVLink SHARP cannot reduce {call.data_type} by sum"
    if not disabled and cost.bandwidth == 0:
        disabled = "NCCL rates its bandwidth as 0"
    return TimedCost(cost, None if disabled else time_us(comm, call, cost), disabled)


def _correction(comm: Communicator, call: TunedCall, cost: Cost) -> float:
    """Return the factor by which NCCL reduces the bandwidth of trees for a call, at most 1."""
    table = TREE_CORRECTION[cost.protocol]
    step = (call.nbytes >> 6).bit_length() - 1
    if call.function != "AllReduce" or step < 0:
        return 1.0
    if cost.algorithm == "Tree":
        return table[step] / 10 if step < 23 else 1.0
    blackwell = comm.min_cc >= 100 and comm.cpu_arch == "x86_64"
    corrected = comm.facts.nvls_tree_corrected and blackwell and cost.algorithm == "NVLSTree"
    return table[step] / 10 if corrected and step < 24 else 1.0


def _on_plateau(comm: Communicator, call: TunedCall, cost: Cost) -> bool:
    """Return whether NCCL raises the latency of a cost for a call.

    It does so for AllReduce on rings with Simple over the network, from some size on.
    """
    ring = (cost.algorithm, cost.protocol) == ("Ring", "Simple")
    if not ring or comm.n_nodes == 1 or call.function != "AllReduce":
        return False
    if comm.facts.plateau_by_channel:
        return call.nbytes // (comm.n_channels * comm.n_ranks) >= 64
    return call.nbytes >= comm.n_ranks / 16 * 65536


def _reasons(comm: Communicator, timed: tuple[TimedCost, ...]) -> str:
    """Return why NCCL cannot run anything that the user admits, as one text.

    Reasons that hold on any machine are only included if there are no others.
    """
    settings = comm.settings
    reasons = dict[str, bool]()
    for entry in timed:
        cost = entry.cost
        algorithms = settings.algorithms.get(cost.function, ALGORITHMS)
        protocols = settings.protocols.get(cost.function, PROTOCOLS)
        if cost.algorithm in algorithms and cost.protocol in protocols:
            exists = not not_implemented(comm, cost.function, cost.algorithm, cost.protocol)
            reasons[entry.disabled] = exists
    rules = [reason for reason, exists in reasons.items() if exists] or list(reasons)
    return "; ".join(rules) if rules else "nothing is left to choose from"


# A tuner table in CSV, in the format of NCCL's example tuner plugin.
# Columns: collective, least and most bytes, algorithm, protocol, channels, nodes, ranks, and
# optionally pipelined operations and registration; -1 means any, `#` begins a comment.

# By column: the field of a rule, its possible names (none: a whole number), and whether it may be
# -1 for any.
COLUMNS: dict[str, tuple[str, tuple[str, ...], bool]] = {
    "collective": ("function", FUNCTIONS, False),
    "min_bytes": ("least_bytes", (), False),
    "max_bytes": ("most_bytes", (), False),
    "algorithm": ("algorithm", ALGORITHMS, False),
    "protocol": ("protocol", PROTOCOLS, False),
    "channels": ("n_channels", (), True),
    "nodes": ("n_nodes", (), True),
    "ranks": ("n_ranks", (), True),
    "pipe_ops": ("n_pipe_ops", (), True),
    "registered": ("registered", (), True),
}
REQUIRED = 8
HEADER = "# collective_type,min_bytes,max_bytes,algorithm,protocol,channels,nNodes,nRanks"
# The plugin's names of algorithms; it ignores case.
PLUGIN_NAMES: dict[Algorithm, str] = {
    "CollNetDirect": "collnet_direct",
    "CollNetChain": "collnet_chain",
    "NVLSTree": "nvls_tree",
}


def tuner_text(rules: Iterable[TunerRule]) -> str:
    """Return rules in the CSV format of NCCL's example tuner plugin."""
    return "".join(f"{line}\n" for line in (HEADER, *map(_line, rules)))


def _line(rule: TunerRule) -> str:
    """Return a rule as a line of the CSV file."""
    cells = [
        rule.function.lower(),
        rule.least_bytes,
        rule.most_bytes,
        PLUGIN_NAMES.get(rule.algorithm, rule.algorithm.lower()),
        rule.protocol.lower(),
    ]
    optional = (rule.n_channels, rule.n_nodes, rule.n_ranks)
    return ",".join(map(str, [*cells, *(-1 if number is None else number for number in optional)]))


def read_tuner(path: Path) -> tuple[TunerRule, ...]:
    """Return the rules in a CSV file."""
    return parse_tuner(text_of(path), path.as_posix())


def parse_tuner(text: str, source: str = "<tuner>") -> tuple[TunerRule, ...]:
    """Return the rules in the text of a CSV file; errors name line and column."""
    rules = []
    if not text.strip():
        raise ScenarioError("the file is empty", source=source)
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        cells = [cell.strip() for cell in next(csv.reader([line]))]
        column = ""
        try:
            if not REQUIRED <= len(cells) <= len(COLUMNS):
                raise ValueError(f"{REQUIRED} to {len(COLUMNS)} columns, got {len(cells)}")
            fields: dict[str, Any] = {}
            for column, cell in zip(COLUMNS, cells, strict=False):
                field, names, optional = COLUMNS[column]
                fields[field] = None if optional and cell == "-1" else _value(cell, names)
        except ValueError as error:
            message = f"expected {error}"
            raise ScenarioError(message, source=source, line=number, field=column) from None
        rules.append(TunerRule(**fields))
    return tuple(rules)


def _value(cell: str, names: tuple[str, ...]) -> str | int:
    """Return a cell as one of `names`, or as a whole number if there are no names."""
    by_name = {name.casefold(): name for name in names}
    written = cell.replace("_", "").casefold()
    if written in by_name:
        return by_name[written]
    if names:
        raise ValueError(f"one of {', '.join(names)}, got {shown(cell)}{suggest(cell, names)}")
    if not (cell.isascii() and cell.isdecimal()):
        raise ValueError(f"a whole number, got {shown(cell)}")
    return int(cell)


# Channels and threads of one call: NCCL compares the bytes of the call with what all threads move
# at a time.

WARP = 32
FEWEST_THREADS = 3 * WARP
RCCL_THREADS = 256  # of RCCL's blocks with every protocol (src/include/device.h)
PCI_BUS = 12.0  # GB/s of a ring up to which half of the threads suffice


@dataclass(frozen=True)
class LaunchSize:
    """The number of blocks (channels) of one call, and the number of threads of each."""

    n_channels: int
    n_threads: int


def launch(
    comm: Communicator,
    nbytes: int,
    algorithm: Algorithm,
    protocol: Protocol,
    wanted: int | None = None,
) -> LaunchSize:
    """Return channels and threads of a call of `nbytes` (src/enqueue.cc, topoGetAlgoInfo).

    `wanted` is a tuner's number of channels; it replaces NCCL's, up to the channels that exist.
    """
    choice = _nccl_launch(comm, nbytes, algorithm, protocol)
    if wanted is None or wanted < 1:
        return choice
    most = comm.nvls_channels if algorithm in ("NVLS", "NVLSTree") else comm.n_channels
    return replace(choice, n_channels=min(wanted, most))


def _nccl_launch(
    comm: Communicator, nbytes: int, algorithm: Algorithm, protocol: Protocol
) -> LaunchSize:
    """Return the channels and threads that NCCL uses for a call of `nbytes`: few for small
    calls.
    """
    threads = most_threads(comm, algorithm, protocol)
    if algorithm in ("NVLS", "NVLSTree"):
        within = comm.n_nodes > 1 and algorithm == "NVLS"
        channels = min(comm.nvls_channels, comm.n_channels) if within else comm.nvls_channels
        return LaunchSize(channels, threads)
    threshold = bytes_per_thread(comm, algorithm, protocol)
    channels = comm.n_channels
    if algorithm == "CollNetDirect":
        channels = _collnet_channels(comm, nbytes, channels, threads, threshold)
    else:
        while channels > 1 and nbytes < channels * threads * threshold:
            channels -= 1
    while threads % 128 == 0 and nbytes < channels * threads * threshold:
        threads //= 2
    if protocol == "Simple":
        threads += {"Ring": WARP, "Tree": 4 * WARP}.get(algorithm, 0)
    threads = max(threads, FEWEST_THREADS)
    takes_all = algorithm == "PAT" or (algorithm == "Tree" and comm.facts.tree_640_threads)
    return LaunchSize(channels, 640 if takes_all else threads)


def most_threads(comm: Communicator, algorithm: Algorithm, protocol: Protocol) -> int:
    """Return the threads of one channel for large calls (NCCL: comm->maxThreads, getNthreads)."""
    if algorithm not in ("Ring", "Tree"):
        return 640
    if comm.rccl:
        return comm.settings.n_threads or RCCL_THREADS
    if protocol == "LL128":
        return comm.settings.ll128_threads or 640
    slow_ring = algorithm == "Ring" and comm.ring.n_channels * comm.ring.bw_intra <= PCI_BUS
    threads = 256 if slow_ring and protocol == "Simple" else 512
    return comm.settings.n_threads or threads


def bytes_per_thread(comm: Communicator, algorithm: Algorithm, protocol: Protocol) -> int:
    """Return the threshold below which NCCL uses fewer channels and threads for a call.

    It is in bytes of the call for each thread of all channels.
    """
    if algorithm in ("CollNetDirect", "CollNetChain"):
        return 512
    if protocol == "LL":
        return 8 * comm.n_ranks if algorithm == "Ring" else 8
    return 8 if protocol == "LL128" else 64


def _collnet_channels(
    comm: Communicator, nbytes: int, channels: int, threads: int, threshold: int
) -> int:
    """Return the channels of CollNetDirect for a call of `nbytes`, at most `channels`.

    - `threads`: the threads of each channel.
    - `threshold`: bytes of the call for each thread and head, below which channels are removed one
      by one.

    The threshold is halved each time the number of channels reaches the middle between two of 16,
    8, 4, 2 and 1.
    """
    heads = max(1, comm.n_heads)
    for band in (16, 8, 4, 2, 1):
        while channels > band and nbytes < channels * threads * heads * threshold:
            if channels == band + band // 2:
                threshold //= 2
            channels -= 1
        if nbytes >= channels * threads * heads * threshold:
            break
    return channels
