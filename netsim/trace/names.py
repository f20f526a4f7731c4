"""How the rows of a program are called in traces: who sends what to whom, over which links."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from netsim.program import Program
from netsim.schedule import (
    COMPUTE,
    LOCAL_COPY,
    MARK,
    MULTICAST,
    OP_NAMES,
    SWITCH_REDUCE,
    Schedule,
    Style,
)
from netsim.trace.columns import spelled
from netsim.trace.operation import Operation

_SIZES = (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10))


@dataclass(frozen=True, slots=True)
class Names:
    """Names of rows, links and ranks of one program; paths are spelled out once each."""

    program: Program
    operations: tuple[Operation, ...]
    _paths: dict[int, str] = field(default_factory=dict)

    def path(self, path: int) -> str:
        """The links of a path, by its number, joined by semicolons; none for -1."""
        if path not in self._paths:
            paths = self.program.paths
            links = paths.link[paths.ptr[path] : paths.ptr[path + 1]].tolist() if path >= 0 else []
            self._paths[path] = ";".join(self.program.links.name(link) for link in links)
        return self._paths[path]

    def rows(self, rows: NDArray[np.int64], *, receiving: bool = False) -> list[str]:
        """Rows as their slices are called: `ring all_reduce s3 →gpu4 (512 KiB)`."""
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

    def _ranks(self, end: int) -> str:
        ranks = members(self.program.schedule, end)
        return self.program.gpus[ranks[0]] if len(ranks) == 1 else f"{len(ranks)} GPUs"


def sources(schedule: Schedule, rows: NDArray[np.int64]) -> NDArray[np.int32]:
    """The rank from which each row comes; -1 less the number of a group."""
    return _ends(schedule, rows, schedule.src, SWITCH_REDUCE)


def targets(schedule: Schedule, rows: NDArray[np.int64]) -> NDArray[np.int32]:
    """The rank to which each row goes; -1 less the number of a group."""
    return _ends(schedule, rows, schedule.dst, MULTICAST)


def members(schedule: Schedule, end: int) -> tuple[int, ...]:
    """The ranks at one end of a row."""
    return (end,) if end >= 0 else schedule.groups[-1 - end]


def _ends(
    schedule: Schedule, rows: NDArray[np.int64], column: NDArray[np.int32], group_kind: int
) -> NDArray[np.int32]:
    grouped = np.array([style.kind == group_kind for style in schedule.styles], bool)
    ends = column[rows]
    found: NDArray[np.int32] = np.where(grouped[schedule.style[rows]], -1 - ends, ends)
    return found


def _row(style: Style, titles: Sequence[str], step: str, where: str, size: str) -> str:
    if style.kind == MARK:
        return style.stream or "mark"
    title = titles[style.collective]
    if style.kind == COMPUTE:
        return f"{title} s{step}"
    if style.kind == LOCAL_COPY:
        where = OP_NAMES[style.op]
    times = f" ×{style.multiplicity}" if style.multiplicity > 1 else ""
    return f"{title} s{step} {where} ({size}){times}"


def named_operations(program: Program, given: tuple[Operation, ...]) -> tuple[Operation, ...]:
    """An operation for every collective of the schedule: those given, else by name alone."""
    names = program.schedule.collectives
    if given and len(given) != len(names):
        raise ValueError(f"operations: expected one for each of {len(names)}, got {len(given)}")
    return given or tuple(Operation(name) for name in names)


def short_size(nbytes: float) -> str:
    """A size to four digits: `512 KiB`, `1.333 MiB`, `8 B`."""
    for unit, factor in _SIZES:
        if nbytes >= factor:
            return f"{nbytes / factor:.4g} {unit}"
    return f"{nbytes:.4g} B"
