"""How the rows of a program are called in traces: who sends what to whom, over which links."""

from dataclasses import dataclass, field

from netsim.program import Program
from netsim.schedule import COMPUTE, LOCAL_COPY, MARK, OP_NAMES
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

    def row(self, row: int, *, receiving: bool = False) -> str:
        """A row as its slice is called: `ring all_reduce s3 →gpu4 (512 KiB)`."""
        schedule = self.program.schedule
        style, step = schedule.styles[int(schedule.style[row])], int(schedule.step[row])
        title = self.operations[style.collective].title
        if style.kind == MARK:
            return style.stream or "mark"
        if style.kind == COMPUTE:
            return f"{title} s{step}"
        sources, targets = schedule.members(row)
        where = f"←{self._ranks(sources)}" if receiving else f"→{self._ranks(targets)}"
        if style.kind == LOCAL_COPY:
            where = OP_NAMES[style.op]
        times = f" ×{style.multiplicity}" if style.multiplicity > 1 else ""
        return f"{title} s{step} {where} ({short_size(self._bytes(row))}){times}"

    def _bytes(self, row: int) -> float:
        return float(self.program.schedule.pieces.amount[int(self.program.schedule.piece[row])])

    def _ranks(self, ranks: tuple[int, ...]) -> str:
        return self.program.gpus[ranks[0]] if len(ranks) == 1 else f"{len(ranks)} GPUs"


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
