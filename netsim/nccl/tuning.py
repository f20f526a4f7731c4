"""NCCL's cost table and the choice it makes for one call: the smallest lat + bytes/bandwidth.

Times are µs and bandwidths GB/s, as NCCL compares them. What the chosen algorithm then really
costs is simulated elsewhere; this only tells what runs.
"""

from collections.abc import Sequence

from netsim.errors import InputError
from netsim.nccl.bandwidth import algorithm_bandwidth
from netsim.nccl.communicator import Communicator
from netsim.nccl.latency import latency_us
from netsim.nccl.names import (
    ALGORITHMS,
    FUNCTIONS,
    PROTOCOLS,
    Algorithm,
    Function,
    Protocol,
)
from netsim.nccl.rules import call_refusal, not_made, refusal
from netsim.values import dataclass

# How NCCL discounts the bandwidth of trees at middle sizes; the index is log2(bytes / 64).
TREE_CORRECTION: dict[Protocol, tuple[float, ...]] = {
    "LL": (
        *(1.0, 1.0, 1.0, 1.0, 0.9, 0.8, 0.7, 0.7, 0.7, 0.7, 0.6, 0.5),
        *(0.4, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.0, 1.0, 1.0, 1.0),
    ),
    "LL128": (
        *(1.0, 1.0, 1.0, 1.0, 1.0, 0.9, 0.8, 0.8, 0.8, 0.7, 0.6, 0.6),
        *(0.6, 0.6, 0.6, 0.6, 0.8, 0.9, 0.9, 0.9, 0.9, 1.0, 1.0, 1.0),
    ),
    "Simple": (
        *(0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.8, 0.7, 0.6, 0.6, 0.5),
        *(0.5, 0.5, 0.5, 0.6, 0.7, 0.8, 0.7, 0.7, 0.8, 0.9, 0.9, 0.9),
    ),
}
FP8_RING_PENALTY = 1024.0
FP8_TYPES = ("f8e4m3", "f8e5m2")  # as nccl-tests names them
BATCH = 8  # collectives in one work batch of a block


@dataclass(frozen=True)
class Call:
    """One collective: bytes as NCCL's choice counts them (the total for AllGather and the like)."""

    function: Function
    nbytes: int
    data_type: str = "float"
    reduction: str = "sum"
    n_pipe_ops: int = 1  # collectives of its group that share a channel
    registered: bool = False


@dataclass(frozen=True)
class Cost:
    """One entry of the cost table; `disabled` is the rule that forbids it, or empty."""

    function: Function
    algorithm: Algorithm
    protocol: Protocol
    latency_us: float
    bandwidth: float  # GB/s of algorithm bandwidth
    disabled: str = ""


@dataclass(frozen=True)
class TimedCost:
    """A cost for one size, with the time NCCL expects; `time_us` is None where it is disabled."""

    cost: Cost
    time_us: float | None
    disabled: str


@dataclass(frozen=True)
class Choice:
    """What NCCL runs for a call and the time in µs by which it won.

    `n_channels` are those that a tuner wants, `tuned` says whether it was a tuner that chose.
    """

    algorithm: Algorithm
    protocol: Protocol
    time_us: float
    n_channels: int | None = None
    tuned: bool = False


def cost_table(comm: Communicator) -> tuple[Cost, ...]:
    """Latency and bandwidth of every function, algorithm and protocol, in NCCL's order."""
    return tuple(
        cost_entry(comm, function, algorithm, protocol)
        for function in FUNCTIONS
        for algorithm in ALGORITHMS
        for protocol in PROTOCOLS
    )


def cost_entry(
    comm: Communicator, function: Function, algorithm: Algorithm, protocol: Protocol
) -> Cost:
    """One entry of the cost table; entries that are never made have bandwidth 0."""
    missing = not_made(comm, function, algorithm, protocol)
    if missing:
        return Cost(function, algorithm, protocol, 0.0, 0.0, missing)
    disabled = refusal(comm, function, algorithm, protocol)
    latency = latency_us(comm, function, algorithm, protocol)
    bandwidth = algorithm_bandwidth(comm, function, algorithm, protocol)
    return Cost(function, algorithm, protocol, latency, bandwidth, disabled)


def timed_costs(comm: Communicator, call: Call) -> tuple[TimedCost, ...]:
    """The cost table of the call's function with the times for its size."""
    return tuple(_timed(comm, call, cost) for cost in _costs_of(comm, call.function))


def _costs_of(comm: Communicator, function: Function) -> tuple[Cost, ...]:
    """The entries of one function, made once for all sizes."""
    found: tuple[Cost, ...] | None = comm.memory.get(("costs", function))
    if found is None:
        found = tuple(
            cost_entry(comm, function, algorithm, protocol)
            for algorithm in ALGORITHMS
            for protocol in PROTOCOLS
        )
        comm.memory["costs", function] = found
    return found


def choose(comm: Communicator, call: Call) -> Choice:
    """NCCL's algorithm and protocol for `call`; ties go to the first in NCCL's order."""
    if comm.n_ranks == 1:
        return Choice("Ring", "Simple", 0.0)
    timed = timed_costs(comm, call)
    tuned = _tuned(comm, call, timed)
    if tuned is not None:
        return tuned
    able = [(entry.time_us, entry.cost) for entry in timed if entry.time_us is not None]
    if able:
        time_us, cost = min(able, key=lambda pair: pair[0])
        return Choice(cost.algorithm, cost.protocol, time_us)
    if comm.facts.bad_choice == "refuse":
        raise InputError(f"no algorithm available for {call.function}", hint=_reasons(comm, timed))
    # Before 2.24 a choice that could not run fell back to rings, in whatever protocol is left.
    admitted = comm.settings.protocols.get(call.function, PROTOCOLS)
    protocol: Protocol = next((name for name in reversed(PROTOCOLS) if name in admitted), "Simple")
    cost = cost_entry(comm, call.function, "Ring", protocol)
    return Choice("Ring", protocol, cost.latency_us + call.nbytes / (1000 * cost.bandwidth))


def _tuned(comm: Communicator, call: Call, timed: Sequence[TimedCost]) -> Choice | None:
    """What the first rule of the tuner that fits wants, if that can run."""
    given = (comm.n_nodes, comm.n_ranks, call.n_pipe_ops, int(call.registered))
    fitting = (rule for rule in comm.tuner if rule.fits(call.function, call.nbytes, given))
    rule = next(fitting, None)
    for entry in timed if rule else ():
        assert rule is not None
        same = (entry.cost.algorithm, entry.cost.protocol) == (rule.algorithm, rule.protocol)
        if same and entry.time_us is not None:
            return Choice(rule.algorithm, rule.protocol, entry.time_us, rule.n_channels, tuned=True)
    return None


def fallback_reason(comm: Communicator, call: Call) -> str:
    """Why nothing that the user admits can run `call`, where NCCL then takes rings; or nothing."""
    if comm.n_ranks == 1 or comm.facts.bad_choice == "refuse":
        return ""
    timed = timed_costs(comm, call)
    return "" if any(entry.time_us is not None for entry in timed) else _reasons(comm, timed)


def time_us(comm: Communicator, call: Call, cost: Cost) -> float:
    """NCCL's expected time of `call` with this entry, in µs, with all its corrections."""
    latency, bandwidth = cost.latency_us, cost.bandwidth * _correction(comm, call, cost)
    if _on_plateau(comm, call, cost):
        latency *= 1.4 if comm.facts.plateau_by_channel and comm.min_cc >= 80 else 1.9
    ops = call.n_pipe_ops if cost.algorithm == "Ring" else -(-call.n_pipe_ops // BATCH)
    expected = latency * ops + call.nbytes / (1000 * bandwidth)
    reduces = call.function in ("AllReduce", "ReduceScatter", "Reduce")
    fp8 = call.data_type in FP8_TYPES and reduces
    slow = fp8 and cost.algorithm == "Ring" and comm.n_ranks > 8
    return expected * FP8_RING_PENALTY if slow else expected


def _timed(comm: Communicator, call: Call, cost: Cost) -> TimedCost:
    disabled = cost.disabled or call_refusal(
        comm, call.function, cost.algorithm, call.data_type, call.reduction
    )
    if not disabled and cost.bandwidth == 0:
        disabled = "NCCL rates its bandwidth as 0"
    return TimedCost(cost, None if disabled else time_us(comm, call, cost), disabled)


def _correction(comm: Communicator, call: Call, cost: Cost) -> float:
    table = TREE_CORRECTION[cost.protocol]
    step = (call.nbytes >> 6).bit_length() - 1
    if call.function != "AllReduce" or step < 0:
        return 1.0
    if cost.algorithm == "Tree":
        return table[step] if step < 23 else 1.0
    blackwell = comm.min_cc >= 100 and comm.cpu_arch == "x86_64"
    corrected = comm.facts.nvls_tree_corrected and blackwell and cost.algorithm == "NVLSTree"
    return table[step] if corrected and step < 24 else 1.0


def _on_plateau(comm: Communicator, call: Call, cost: Cost) -> bool:
    """Where NCCL has seen rings over the network take longer than their latency."""
    ring = (cost.algorithm, cost.protocol) == ("Ring", "Simple")
    if not ring or comm.n_nodes == 1 or call.function != "AllReduce":
        return False
    if comm.facts.plateau_by_channel:
        return call.nbytes // (comm.n_channels * comm.n_ranks) >= 64
    return call.nbytes >= comm.n_ranks / 16 * 65536


def _reasons(comm: Communicator, timed: tuple[TimedCost, ...]) -> str:
    """The rules that forbid what the user admits; what exists on no machine only if it is all."""
    settings, reasons = comm.settings, dict[str, bool]()
    for entry in timed:
        cost = entry.cost
        algorithms = settings.algorithms.get(cost.function, ALGORITHMS)
        protocols = settings.protocols.get(cost.function, PROTOCOLS)
        if cost.algorithm in algorithms and cost.protocol in protocols:
            made = not not_made(comm, cost.function, cost.algorithm, cost.protocol)
            reasons[entry.disabled] = made
    rules = [reason for reason, made in reasons.items() if made] or list(reasons)
    return "; ".join(rules) if rules else "nothing is left to choose from"
