"""What traces say about a run: its operations, names of rows, and which rows are shown of very
many.
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

# The names of collectives that PyTorch's ProcessGroupNCCL records.
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
# The names of data types in Kineto's traces and in the names of NCCL's kernels.
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
    """A collective of a schedule, as a trace describes it.

    Args:
        in_elements: elements of the input of one rank; None if unknown.
        out_elements: elements of the output of one rank; None if unknown.
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
        """The operation's name in slices: `ring all_reduce`."""
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


# The number of the CUDA stream of kernels that compute. As in PyTorch's profiles, that is 7, the
# default stream; communication has streams of its own.
COMPUTE_STREAM = 7
FIRST_OTHER_STREAM = 20


def stream_numbers(streams: Iterable[str], compute: str) -> dict[str, int]:
    """A CUDA stream number for each stream name; a name has the same number on all ranks.

    `compute` is the name of the stream that computes.
    """
    others = sorted(set(streams) - {compute})
    numbers = {stream: number for number, stream in enumerate(others, FIRST_OTHER_STREAM)}
    return {compute: COMPUTE_STREAM, **numbers}


def launch_args(device: int, stream: int, correlation: int) -> dict[str, int]:
    """The arguments by which Kineto says where a kernel ran and which call launched it.

    HolisticTraceAnalysis counts an event as a GPU's only if its stream and correlation are not
    negative. TraceLens counts a collective only if it has a correlation or an External id.
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
    """The arguments with which Kineto describes a collective on one rank.

    - `members`: the ranks of its process group. Of a point-to-point operation the first one sends
      and the second one receives.
    - `seq`: its sequence number.
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
    """The header in which Kineto says to which job and rank a trace belongs.

    `ranks` is the number of ranks of the job, `rank` the rank of the trace.
    """
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
    """The rows that a trace shows.

    - `rows`: their numbers, in increasing order.
    - `total`: the number of all rows of the run.
    - `until`: omitted rows start at this time or later, in seconds.
    """

    rows: NDArray[np.int64]
    total: int
    until: float

    @property
    def is_complete(self) -> bool:
        """Whether no row is omitted."""
        return len(self.rows) == self.total

    def note(self) -> str:
        """A sentence that says which rows are omitted; "" if none is."""
        if self.is_complete:
            return ""
        return (
            f"holds the first {len(self.rows)} of {self.total} rows, "
            f"those that start before {self.until * 1e6:.6g} us"
        )


def first_rows(timeline: Timeline, most: int) -> ShownRows:
    """The `most` rows that start first (all if there are no more), as a selection for a trace."""
    if most < 1:
        raise ValueError(f"rows: expected at least 1, got {most}")
    total = len(timeline)
    if total <= most:
        return ShownRows(np.arange(total), total, timeline.makespan)
    order = np.argsort(timeline.start, kind="stable")
    return ShownRows(np.sort(order[:most]), total, float(timeline.start[order[most]]))


# Columns of text for files of many rows; values that many rows have in common are converted once.


def spelled(values: NDArray[Any], spell: Callable[[Any], str]) -> list[str]:
    """The text of each value of a column; equal values are converted once."""
    distinct, place = np.unique(values, return_inverse=True)
    texts = np.array([spell(value) for value in distinct.tolist()], object)
    column: list[str] = texts[place].tolist()
    return column


def cells(*values: object) -> str:
    """The values as neighboring cells of a CSV line, quoted where necessary."""
    line = StringIO()
    # The empty last cell is cut off again: without it, a single empty value would be quoted.
    csv.writer(line, lineterminator="\n").writerow([*map(csv_cell, values), ""])
    return line.getvalue()[:-2]


def micro(seconds: float) -> str:
    """A time in seconds as text in microseconds with 12 digits; engines may differ in further
    digits.
    """
    return repr(float(f"{seconds * 1e6:.12g}"))


def number_text(value: float) -> str:
    """A number as text, without a decimal point if it is whole."""
    return str(int(value) if np.isfinite(value) and value.is_integer() else value)


_SIZES = (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10))


@dataclass(frozen=True, slots=True)
class Names:
    """The names of rows, links and ranks of one program; the names of a path are joined
    only once.
    """

    program: Program
    operations: tuple[TracedOperation, ...]
    _paths: dict[int, str] = field(default_factory=dict)

    def path(self, path: int) -> str:
        """The names of the links of a path, joined by semicolons; "" for the path -1 (none)."""
        if path not in self._paths:
            paths = self.program.paths
            links = paths.link[paths.ptr[path] : paths.ptr[path + 1]].tolist() if path >= 0 else []
            self._paths[path] = ";".join(self.program.links.name(link) for link in links)
        return self._paths[path]

    def rows(self, rows: NDArray[np.int64], *, receiving: bool = False) -> list[str]:
        """The names of rows as slices have them: `ring all_reduce s3 →gpu4 (512 KiB)`.

        `s3` is the step. With `receiving`, the arrow points from the sender: `←gpu4`.
        """
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
        """The name of a slice for several rows of one step: `ring all_reduce s3 →gpu4
        (2 × 1 B)`.
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
        """The name of the rank at one end of a row, or the number of ranks as text if the end is a
        group.

        `end` is a rank, or -1 - n for the group n.
        """
        ranks = members(self.program.schedule, end)
        return self.program.gpus[ranks[0]] if len(ranks) == 1 else f"{len(ranks)} GPUs"


def sources(schedule: Schedule, rows: NDArray[np.int64]) -> NDArray[np.int32]:
    """The source rank of each row; -1 - n if the source is the group n."""
    return _ends(schedule, rows, schedule.src, SWITCH_REDUCE)


def targets(schedule: Schedule, rows: NDArray[np.int64]) -> NDArray[np.int32]:
    """The destination rank of each row; -1 - n if the destination is the group n."""
    return _ends(schedule, rows, schedule.dst, MULTICAST)


def members(schedule: Schedule, end: int) -> tuple[int, ...]:
    """The ranks at one end of a row; `end` is a rank, or -1 - n for the group n."""
    return (end,) if end >= 0 else schedule.groups[-1 - end]


def _ends(
    schedule: Schedule,
    rows: NDArray[np.int64],
    column: NDArray[np.int32],
    group_kind: int,
) -> NDArray[np.int32]:
    """By entry of `rows`, the rank in `column` (source or destination). For rows of `group_kind`,
    which have the number n of a group there, it is -1 - n.
    """
    grouped = np.array([style.kind == group_kind for style in schedule.styles], bool)
    ends = column[rows]
    ends_of_rows: NDArray[np.int32] = np.where(grouped[schedule.style[rows]], -1 - ends, ends)
    return ends_of_rows


def _row(style: Style, titles: Sequence[str], step: str, where: str, size: str) -> str:
    """The name of a row with a style.

    - `titles`: the title of each operation.
    - `step`, `size`: its step and size as text.
    - `where`: the rank at its other end as text, with an arrow.
    """
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
    """The operations of a trace, one for each collective of the schedule: `listed`, or if that is
    empty, operations made from the names of the collectives.
    """
    names = program.schedule.collectives
    if listed and len(listed) != len(names):
        raise ValueError(f"operations: expected one for each of {len(names)}, got {len(listed)}")
    return listed or tuple(
        _operation_of_name(program.schedule, number, name) for number, name in enumerate(names)
    )


def _operation_of_name(schedule: Schedule, number: int, name: str) -> TracedOperation:
    """The operation that the name of a collective in a schedule denotes.

    A name begins with the job or the part of a step, and ends with the collective: `train dp
    all_reduce` is an all_reduce of the process group `train dp`. The ranks that take part are its
    members. A name does not say which rank sends to which, so point-to-point transfers count as
    sendrecv.
    """
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
    """The ranks between which collective `number` of a schedule moves data, in order."""
    is_moving = [
        style.collective == number and style.kind not in (MARK, COMPUTE)
        for style in schedule.styles
    ]
    rows = np.flatnonzero(np.array(is_moving, bool)[schedule.style])
    ends = np.unique(np.concatenate([sources(schedule, rows), targets(schedule, rows)]))
    return tuple(sorted({rank for end in ends.tolist() for rank in members(schedule, end)}))


def short_size(nbytes: float) -> str:
    """A size in bytes as text with four digits: `512 KiB`, `1.333 MiB`, `8 B`."""
    for unit, factor in _SIZES:
        if nbytes >= factor:
            return f"{nbytes / factor:.4g} {unit}"
    return f"{nbytes:.4g} B"
