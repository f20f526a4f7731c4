"""What traces say of a run: its operations, names of rows, and which of very many rows they
show.
"""

import csv
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import field
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from netsim.base.files import csv_cell
from netsim.base.values import dataclass
from netsim.program.program import Program, Timeline
from netsim.schedule.schedule import (
    COMPUTE,
    LOCAL_COPY,
    MARK,
    MULTICAST,
    OP_NAMES,
    SWITCH_REDUCE,
    Schedule,
    Style,
)

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
# The first part of a kernel's name by collective. NCCL has kernels for the first five
# (src/device/generate.py, all_colls); the others exist only as textbook algorithms here.
KERNEL_NAMES = {
    "all_reduce": "AllReduce",
    "all_gather": "AllGather",
    "reduce_scatter": "ReduceScatter",
    "broadcast": "Broadcast",
    "reduce": "Reduce",
    "alltoall": "AllToAll",
    "alltoallv": "AllToAllv",
    "gather": "Gather",
    "scatter": "Scatter",
    "sendrecv": "SendRecv",
    "p2p": "SendRecv",
    "barrier": "Barrier",
}
# How CUPTI, and so Kineto, spells the parameter of NCCL's kernels (src/include/device.h).
KERNEL_PARAMETERS = "(ncclDevKernelArgsStorage<4096ul>)"
NOT_IN_KERNEL_NAMES = re.compile(r"[^A-Za-z0-9]+")
SENDS_AND_RECEIVES = frozenset({"alltoall", "alltoallv", "gather", "scatter", "sendrecv", "p2p"})
REDUCING = frozenset({"all_reduce", "reduce_scatter", "reduce"})
# What types of data are called by Kineto, and in the names of NCCL's kernels.
TYPES = {
    "int8": ("Char", "i8"), "uint8": ("Byte", "u8"), "int32": ("Int", "i32"),
    "uint32": ("UInt32", "u32"), "int64": ("Long", "i64"), "uint64": ("UInt64", "u64"),
    "half": ("Half", "f16"), "bfloat16": ("BFloat16", "bf16"), "float": ("Float", "f32"),
    "double": ("Double", "f64"), "f8e4m3": ("Float8_e4m3fn", "f8e4m3"),
    "f8e5m2": ("Float8_e5m2", "f8e5m2"),
}  # fmt: skip
KINETO_TYPES = {dtype: kineto for dtype, (kineto, _) in TYPES.items()}
KERNEL_TYPES = {dtype: kernel for dtype, (_, kernel) in TYPES.items()}
NCCL_ALGORITHMS = frozenset(
    {"", "Ring", "Tree", "NVLS", "NVLSTree", "CollNetDirect", "CollNetChain", "PAT", "SendRecv"}
)
_LONGEST_LIST = 30  # Kineto writes longer lists with an ellipsis


@dataclass(frozen=True, slots=True)
class TracedOperation:
    """One collective of a schedule.

    Args:
        in_elements: elements of the input of one rank; None if not known.
        out_elements: elements of the output of one rank; None if not known.
        ranks: members of its process group; empty for all ranks of the schedule.
        label: its title, in place of algorithm and collective.
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
    label: str = ""

    @property
    def title(self) -> str:
        """Its name in slices: `ring all_reduce`."""
        return self.label or f"{self.algorithm} {self.collective}".strip() or "operation"

    @property
    def kernel(self) -> str:
        """The name of the GPU kernel of the operation, as Kineto spells NCCL's:
        `ncclDevKernel_AllReduce_Sum_f32_RING_SIMPLE(ncclDevKernelArgsStorage<4096ul>)`.

        It names the algorithm and the protocol in use. NCCL compiles fewer kernels and names each
        by its fastest case (`RING_LL`), whatever protocol runs in it (src/device/generate.py,
        best_kernel). Textbook algorithms have names of the same form without the parameter
        (`ncclDevKernel_AllToAll_PAIRWISE`), so that readers of profiles count them as
        communication. An operation that is not a collective has its title as name.
        """
        if self.collective not in KERNEL_NAMES:
            return self.title
        is_of_nccl = self.algorithm in NCCL_ALGORITHMS
        if is_of_nccl and self.collective in SENDS_AND_RECEIVES:
            return f"ncclDevKernel_SendRecv{KERNEL_PARAMETERS}"
        parts = ["ncclDevKernel", KERNEL_NAMES[self.collective]]
        if self.collective in REDUCING:
            parts += [self.reduction, KERNEL_TYPES.get(self.dtype, self.dtype)]
        for choice in (self.algorithm, self.protocol):
            word = NOT_IN_KERNEL_NAMES.sub("_", choice).strip("_").upper()
            if word:
                parts.append(word)
        return "_".join(parts) + (KERNEL_PARAMETERS if is_of_nccl else "")


# Streams of CUDA by number, as PyTorch's profiles have them: kernels that compute are on stream 7,
# the default one, and communication has streams of its own.
COMPUTE_STREAM = 7
FIRST_OTHER_STREAM = 20


def stream_numbers(streams: Iterable[str], compute: str) -> dict[str, int]:
    """Return a CUDA stream number for every name of a stream; equal names have equal numbers on all
    ranks.

    `compute` is the name of the stream that computes.
    """
    others = sorted(set(streams) - {compute})
    numbers = {stream: number for number, stream in enumerate(others, FIRST_OTHER_STREAM)}
    return {compute: COMPUTE_STREAM, **numbers}


def launch_args(device: int, stream: int, correlation: int) -> dict[str, int]:
    """Return the arguments by which Kineto says where a kernel ran and which call launched it.

    HolisticTraceAnalysis takes an event for one of a GPU only if its stream and its correlation are
    not negative. TraceLens takes a collective only if it has a correlation or an External id.
    """
    return {
        "External id": correlation,
        "device": device,
        "stream": stream,
        "correlation": correlation,
    }


def kineto_args(
    operation: TracedOperation, rank: int, members: Sequence[int], seq: int
) -> dict[str, object]:
    """Return the arguments by which Kineto describes a collective, under Kineto's own names.

    The first member of a p2p operation sends, the second receives.
    """
    if operation.collective == "p2p":
        sends = rank == members[0]
        peer = {"Dst Rank": members[1]} if sends else {"Src Rank": members[0]}
        name = "send" if sends else "recv"
    else:
        name = KINETO_NAMES.get(operation.collective, operation.collective)
        peer = {}
    nelems = {"In msg nelems": operation.in_elements, "Out msg nelems": operation.out_elements}
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


def distributed_info(
    ranks: int, operations: Sequence[TracedOperation], rank: int = 0
) -> dict[str, object]:
    """Return the header by which Kineto says to which job and rank a trace belongs."""
    groups = {op.group: op for op in reversed(operations)} or {"0": TracedOperation("")}
    return {
        "backend": "nccl",
        "rank": rank,
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
    """A list of ranks as Kineto writes it, with an ellipsis if it is long."""
    if len(members) <= _LONGEST_LIST:
        return "[" + ", ".join(map(str, members)) + "]"
    head = ", ".join(map(str, members[: _LONGEST_LIST - 1]))
    return f"[{head}, ..., {members[-1]}]"


@dataclass(frozen=True, slots=True)
class Written:
    """A file that was written; `note` says what it omits, or is ""."""

    path: Path
    note: str = ""


@dataclass(frozen=True, slots=True)
class ShownRows:
    """The rows that a trace shows, in row order, out of `total`; omitted rows start at `until`
    or later.
    """

    rows: NDArray[np.int64]
    total: int
    until: float

    @property
    def is_complete(self) -> bool:
        """Whether no row is omitted."""
        return len(self.rows) == self.total

    def note(self) -> str:
        """Return a sentence on what is omitted, or ""."""
        if self.is_complete:
            return ""
        return (
            f"holds the first {len(self.rows)} of {self.total} rows, "
            f"those that start before {self.until * 1e6:.6g} us"
        )


def first_rows(timeline: Timeline, most: int) -> ShownRows:
    """Return the rows that start first, at most `most` of them."""
    if most < 1:
        raise ValueError(f"rows: expected at least 1, got {most}")
    total = len(timeline)
    if total <= most:
        return ShownRows(np.arange(total), total, timeline.makespan)
    order = np.argsort(timeline.start, kind="stable")
    return ShownRows(np.sort(order[:most]), total, float(timeline.start[order[most]]))


# Columns of text for files of many rows: what rows have in common is converted once.


def spelled(values: NDArray[Any], spell: Callable[[Any], str]) -> list[str]:
    """Return the text of every value of a column; equal values are converted once."""
    distinct, place = np.unique(values, return_inverse=True)
    texts = np.array([spell(value) for value in distinct.tolist()], object)
    column: list[str] = texts[place].tolist()
    return column


def cells(*values: object) -> str:
    """Return values as cells that are side by side in a line of CSV."""
    line = StringIO()
    # The empty cell at the end is cut off: alone in a line, an empty cell would be quoted.
    csv.writer(line, lineterminator="\n").writerow([*map(csv_cell, values), ""])
    return line.getvalue()[:-2]


def micro(seconds: float) -> str:
    """Return seconds as text in microseconds with 12 digits; engines may differ in further ones."""
    return repr(float(f"{seconds * 1e6:.12g}"))


def number_text(value: float) -> str:
    """Return a number as text, without a decimal point if it is whole."""
    return str(int(value) if np.isfinite(value) and value.is_integer() else value)


_SIZES = (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10))


@dataclass(frozen=True, slots=True)
class Names:
    """Names of rows, links and ranks of one program; the names of a path are joined once."""

    program: Program
    operations: tuple[TracedOperation, ...]
    _paths: dict[int, str] = field(default_factory=dict)

    def path(self, path: int) -> str:
        """Return the links of a path, joined by semicolons; "" for -1."""
        if path not in self._paths:
            paths = self.program.paths
            links = paths.link[paths.ptr[path] : paths.ptr[path + 1]].tolist() if path >= 0 else []
            self._paths[path] = ";".join(self.program.links.name(link) for link in links)
        return self._paths[path]

    def rows(self, rows: NDArray[np.int64], *, receiving: bool = False) -> list[str]:
        """Return the names of rows in slices: `ring all_reduce s3 →gpu4 (512 KiB)`."""
        schedule = self.program.schedule
        titles = [operation.title for operation in self.operations]
        ends, arrow = (sources, "←") if receiving else (targets, "→")
        columns = (
            schedule.style[rows].tolist(),
            spelled(schedule.step[rows], str),
            spelled(ends(schedule, rows), lambda end: f"{arrow}{self._ranks(end)}"),
            spelled(schedule.pieces.amount[schedule.piece[rows]], short_size),
        )
        return [
            _row(schedule.styles[style], titles, step, where, size)
            for style, step, where, size in zip(*columns, strict=True)
        ]

    def of_several(self, rows: Sequence[int], *, receiving: bool) -> str:
        """Return the name of a slice of several rows of a step: `ring all_reduce s3 →gpu4 (2 ×
        1 B)`.
        """
        schedule = self.program.schedule
        peers = {rank for row in rows for rank in schedule.members(row)[0 if receiving else 1]}
        whom = self.program.gpus[min(peers)] if len(peers) == 1 else f"{len(peers)} GPUs"
        amounts = schedule.pieces.amount[schedule.piece[[*rows]]]
        are_equal = np.ptp(amounts) == 0
        size = f"{len(rows)} × {short_size(amounts[0])}" if are_equal else short_size(amounts.sum())
        style = schedule.styles[int(schedule.style[rows[0]])]
        titles = [operation.title for operation in self.operations]
        where = f"{'←' if receiving else '→'}{whom}"
        return _row(style, titles, str(schedule.step[rows[0]]), where, size)

    def _ranks(self, end: int) -> str:
        """The name of the rank, or the number of ranks, at one end of a row."""
        ranks = members(self.program.schedule, end)
        return self.program.gpus[ranks[0]] if len(ranks) == 1 else f"{len(ranks)} GPUs"


def sources(schedule: Schedule, rows: NDArray[np.int64]) -> NDArray[np.int32]:
    """Return the source rank of each row; -1 - n for group n."""
    return _ends(schedule, rows, schedule.src, SWITCH_REDUCE)


def targets(schedule: Schedule, rows: NDArray[np.int64]) -> NDArray[np.int32]:
    """Return the destination rank of each row; -1 - n for group n."""
    return _ends(schedule, rows, schedule.dst, MULTICAST)


def members(schedule: Schedule, end: int) -> tuple[int, ...]:
    """Return the ranks at one end of a row."""
    return (end,) if end >= 0 else schedule.groups[-1 - end]


def _ends(
    schedule: Schedule,
    rows: NDArray[np.int64],
    column: NDArray[np.int32],
    group_kind: int,
) -> NDArray[np.int32]:
    """A column of ranks, with the numbers of groups as -1 - n."""
    grouped = np.array([style.kind == group_kind for style in schedule.styles], bool)
    ends = column[rows]
    ends_of_rows: NDArray[np.int32] = np.where(grouped[schedule.style[rows]], -1 - ends, ends)
    return ends_of_rows


def _row(style: Style, titles: Sequence[str], step: str, where: str, size: str) -> str:
    """The name of a row."""
    if style.kind == MARK:
        return style.stream or "mark"
    title = titles[style.collective]
    if style.kind == COMPUTE:
        return f"{title} s{step}"
    if style.kind == LOCAL_COPY:
        where = OP_NAMES[style.op]
    times = f" ×{style.multiplicity}" if style.multiplicity > 1 else ""
    return f"{title} s{step} {where} ({size}){times}"


def named_operations(
    program: Program, listed: tuple[TracedOperation, ...]
) -> tuple[TracedOperation, ...]:
    """Return an operation for every collective of the schedule: those in `listed`, or by name
    alone.
    """
    names = program.schedule.collectives
    if listed and len(listed) != len(names):
        raise ValueError(f"operations: expected one for each of {len(names)}, got {len(listed)}")
    return listed or tuple(
        _operation_of_name(program.schedule, number, name) for number, name in enumerate(names)
    )


def _operation_of_name(schedule: Schedule, number: int, name: str) -> TracedOperation:
    """Return the operation that a name in a schedule means.

    A name begins with the job or the part of a step, and ends with the collective: `train dp
    all_reduce` is an all_reduce of the process group `train dp`. The ranks that take part are its
    members. A name does not say which rank sends to which, so point-to-point transfers count as
    sendrecv."""
    group, _, collective = name.rpartition(" ")
    if not group or collective not in KERNEL_NAMES:
        return TracedOperation(name)
    return TracedOperation(
        collective="sendrecv" if collective == "p2p" else collective,
        ranks=_ranks_of_collective(schedule, number),
        group=group,
        group_description=group,
        label=name,
    )


def _ranks_of_collective(schedule: Schedule, number: int) -> tuple[int, ...]:
    """Return the ranks between which a collective of a schedule moves data, in order."""
    is_moving = [
        style.collective == number and style.kind not in (MARK, COMPUTE)
        for style in schedule.styles
    ]
    rows = np.flatnonzero(np.array(is_moving, bool)[schedule.style])
    ends = np.unique(np.concatenate([sources(schedule, rows), targets(schedule, rows)]))
    return tuple(sorted({rank for end in ends.tolist() for rank in members(schedule, end)}))


def short_size(nbytes: float) -> str:
    """Return a size with four digits: `512 KiB`, `1.333 MiB`, `8 B`."""
    for unit, factor in _SIZES:
        if nbytes >= factor:
            return f"{nbytes / factor:.4g} {unit}"
    return f"{nbytes:.4g} B"
