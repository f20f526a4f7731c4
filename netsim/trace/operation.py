"""An Operation: what a trace says about one collective, in the words that NCCL and Kineto use.

A schedule knows only the name of its collectives; whoever made it knows counts, dtype, algorithm
and group, and says so here. Nothing in this module knows rows or times.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

# The names that PyTorch's ProcessGroupNCCL records.
KINETO_NAMES = {
    "all_reduce": "allreduce",
    "all_gather": "_allgather_base",
    "reduce_scatter": "_reduce_scatter_base",
    "alltoall": "all_to_all",
    "alltoallv": "all_to_allv",
    "sendrecv": "send",
    "p2p": "send",
}
KERNEL_NAMES = {
    "all_reduce": "AllReduce",
    "all_gather": "AllGather",
    "reduce_scatter": "ReduceScatter",
    "broadcast": "Broadcast",
    "reduce": "Reduce",
}
SENDS_AND_RECEIVES = frozenset({"alltoall", "alltoallv", "gather", "scatter", "sendrecv", "p2p"})
REDUCING = frozenset({"all_reduce", "reduce_scatter", "reduce"})
KINETO_TYPES = {
    "int8": "Char",
    "uint8": "Byte",
    "int32": "Int",
    "uint32": "UInt32",
    "int64": "Long",
    "uint64": "UInt64",
    "half": "Half",
    "bfloat16": "BFloat16",
    "float": "Float",
    "double": "Double",
    "fp8_e4m3": "Float8_e4m3fn",
    "fp8_e5m2": "Float8_e5m2",
}
KERNEL_TYPES = {
    "int8": "i8",
    "uint8": "u8",
    "int32": "i32",
    "uint32": "u32",
    "int64": "i64",
    "uint64": "u64",
    "half": "f16",
    "bfloat16": "bf16",
    "float": "f32",
    "double": "f64",
    "fp8_e4m3": "f8e4m3",
    "fp8_e5m2": "f8e5m2",
}
NCCL_ALGORITHMS = frozenset(
    {"", "Ring", "Tree", "NVLS", "NVLSTree", "CollNetDirect", "CollNetChain", "PAT", "SendRecv"}
)
_LONGEST_LIST = 30  # Kineto writes longer lists with an ellipsis


@dataclass(frozen=True, slots=True)
class Operation:
    """One collective of a schedule.

    `in_elements` and `out_elements` are those of one rank; None where nobody said. `ranks` are the
    members of its process group; empty for all ranks of the schedule.
    """

    collective: str
    algorithm: str = ""
    protocol: str = ""
    dtype: str = "float"
    reduction: str = "Sum"
    in_elements: int | None = None
    out_elements: int | None = None
    ranks: tuple[int, ...] = ()
    group: str = "0"
    group_description: str = "default_pg"

    @property
    def title(self) -> str:
        """How slices name it: `ring all_reduce`."""
        return f"{self.algorithm} {self.collective}".strip() or "operation"

    @property
    def kernel(self) -> str:
        """A name as NCCL's kernels have: ncclDevKernel_AllReduce_Sum_f32_RING_SIMPLE.

        NCCL has no kernels of textbook algorithms; they are called by what they do.
        """
        if self.algorithm not in NCCL_ALGORITHMS:
            return self.title
        if self.collective in SENDS_AND_RECEIVES:
            return "ncclDevKernel_SendRecv"
        if self.collective not in KERNEL_NAMES:
            return self.title
        parts = [KERNEL_NAMES[self.collective]]
        if self.collective in REDUCING:
            parts += [self.reduction, KERNEL_TYPES.get(self.dtype, self.dtype)]
        parts += [part.upper().replace("-", "_") for part in (self.algorithm, self.protocol)]
        return "_".join(["ncclDevKernel", *filter(None, parts)])


def kineto_args(
    operation: Operation, rank: int, members: Sequence[int], seq: int
) -> dict[str, object]:
    """The arguments by which Kineto describes a collective, under Kineto's own names.

    Of a p2p, the first member sends and the second receives.
    """
    if operation.collective == "p2p":
        sends = rank == members[0]
        peer = {"Dst Rank": members[1]} if sends else {"Src Rank": members[0]}
        name = "send" if sends else "recv"
    else:
        name, peer = KINETO_NAMES.get(operation.collective, operation.collective), {}
    nelems = {
        "In msg nelems": operation.in_elements,
        "Out msg nelems": operation.out_elements,
    }
    return {
        "Collective name": name,
        **peer,
        **{name: count for name, count in nelems.items() if count is not None},
        "In split size": "[]",
        "Out split size": "[]",
        "Group size": len(members),
        "dtype": KINETO_TYPES.get(operation.dtype, operation.dtype),
        "Process Group Name": operation.group,
        "Process Group Description": operation.group_description,
        "Process Group Ranks": _listed(members),
        "Rank": rank,
        "Seq": seq,
    }


def distributed_info(ranks: int, operations: Sequence[Operation]) -> Mapping[str, object]:
    """The header by which Kineto says what job a trace belongs to."""
    groups = {op.group: op for op in reversed(operations)} or {"0": Operation("")}
    return {
        "backend": "nccl",
        "rank": 0,
        "world_size": ranks,
        "pg_count": len(groups),
        "pg_config": [
            {
                "pg_name": name,
                "pg_desc": op.group_description,
                "backend_config": "cuda:nccl",
                "pg_size": len(op.ranks) or ranks,
                "ranks": list(op.ranks or range(ranks)),
            }
            for name, op in sorted(groups.items())
        ],
    }


def _listed(members: Sequence[int]) -> str:
    if len(members) <= _LONGEST_LIST:
        return "[" + ", ".join(map(str, members)) + "]"
    head = ", ".join(map(str, members[: _LONGEST_LIST - 1]))
    return f"[{head}, ..., {members[-1]}]"
