"""The words of NCCL, in NCCL's order: functions, algorithms, protocols and path types.

The order decides ties between equal times, so these tuples are facts and not just lists.
"""

from typing import Literal

from netsim.errors import InputError, suggest

Function = Literal["Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce"]
Algorithm = Literal["Tree", "Ring", "CollNetDirect", "CollNetChain", "NVLS", "NVLSTree", "PAT"]
Protocol = Literal["LL", "LL128", "Simple"]
PathType = Literal[
    "LOC", "NVL", "NVB", "C2C", "PIX", "PXB", "P2C", "PXN", "PHB", "SYS", "NET", "DIS"
]

FUNCTIONS: tuple[Function, ...] = ("Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce")
ALGORITHMS: tuple[Algorithm, ...] = (
    "Tree",
    "Ring",
    "CollNetDirect",
    "CollNetChain",
    "NVLS",
    "NVLSTree",
    "PAT",
)
PROTOCOLS: tuple[Protocol, ...] = ("LL", "LL128", "Simple")
AUTO = "auto"
NCCL_NAMES = (AUTO, *ALGORITHMS)  # algorithms of scenarios that mean NCCL's

# NCCL's functions by the names of nccl-tests; the others of nccl-tests run as sends and receives.
COLLECTIVES: dict[str, Function] = {
    "broadcast": "Broadcast",
    "reduce": "Reduce",
    "all_gather": "AllGather",
    "reduce_scatter": "ReduceScatter",
    "all_reduce": "AllReduce",
}


def function_of(collective: str) -> Function:
    """The NCCL function behind a collective's name, `all_reduce` or `AllReduce`."""
    by_name = dict(COLLECTIVES)
    by_name.update((name, name) for name in FUNCTIONS)
    if collective not in by_name:
        hint = suggest(collective, by_name)
        raise InputError(f"NCCL has no algorithm choice for {collective!r}{hint}")
    return by_name[collective]
