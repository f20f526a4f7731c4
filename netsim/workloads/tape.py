"""The tape: a training step as tasks in a topological order, each on a stream of its ranks.

A task is what many ranks do alike: a kernel on each of them, or one collective in each of several
groups. On one stream of one rank, tasks run in the order in which they were written down; `after`
adds what else a rank waits for: what it did itself in earlier tasks."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field

from netsim.base.values import dataclass
from netsim.workloads.passes import Part
from netsim.workloads.setting import Grid, Ranks

COMPUTE = "compute"
Deps = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Task:
    """One entry of the tape. `groups` has a row a group, in rank order; of a kernel, one rank each.
    `collective` is empty for kernels. `nbytes` is the size as nccl-tests counts it. `posted`: the
    last rank of each group has posted its receive ahead and holds nobody up. `measured`: seconds
    that a profile recorded."""

    name: str
    kind: str
    phase: str
    stream: str
    groups: Ranks
    after: Deps
    seconds: float = 0.0
    collective: str = ""
    nbytes: int = 0
    dtype: str = "bfloat16"
    layer: str = ""
    micro_batch: int = -1
    chunk: int = -1
    posted: bool = False
    measured: float = 0.0


@dataclass
class Tape:
    """Collects the tasks of a step; `tasks[i]` may wait for earlier ones only."""

    tasks: list[Task] = field(default_factory=list)
    phase: str = "forward"
    layer: str = ""
    micro_batch: int = -1
    chunk: int = -1
    put_off: list[tuple[str, Ranks, float, Deps]] = field(default_factory=list)
    _last: dict[int, int] = field(default_factory=dict)
    _columns: dict[int, tuple[Ranks, Ranks]] = field(default_factory=dict)

    def compute(self, name: str, ranks: Ranks, seconds: float, after: Deps = ()) -> int:
        """A kernel on each of these ranks."""
        made = self._add(name, COMPUTE, "compute", self._column(ranks), after, seconds=seconds)
        self._last[id(ranks)] = made
        return made

    def collective(
        self,
        name: str,
        kind: str,
        collective: str,
        groups: Ranks,
        nbytes: int,
        after: Deps = (),
        *,
        stream: str = "",
        dtype: str = "bfloat16",
        posted: bool = False,
        measured: float = 0.0,
    ) -> Deps:
        """A collective in each group, for which others may wait; nothing where there is nothing to
        do. `kind` is the parallelism it belongs to. `posted`: the last rank of each group (a
        receiver) has posted it ahead and does not hold it up."""
        if groups.shape[1] < 2 or nbytes <= 0:
            return ()
        made = self._add(
            name, kind, stream or kind, groups, after,
            collective=collective, nbytes=nbytes, dtype=dtype, posted=posted, measured=measured,
        )  # fmt: skip
        return (made,)

    def _column(self, ranks: Ranks) -> Ranks:
        if id(ranks) not in self._columns:
            self._columns[id(ranks)] = (ranks, ranks.reshape(-1, 1))
        return self._columns[id(ranks)][1]

    def later(self, name: str, ranks: Ranks, seconds: float, after: Deps) -> None:
        """A kernel that is written down only before the optimizer, so that nothing waits for it."""
        self.put_off.append((name, ranks, seconds, after))

    def catch_up(self) -> None:
        """Write down the kernels that were put off."""
        for one in self.put_off:
            self.compute(*one)
        self.put_off.clear()

    @contextmanager
    def naming(self, layer: str) -> Iterator[None]:
        """Tasks that belong to another layer than the one being written."""
        before, self.layer = self.layer, layer
        yield
        self.layer = before

    def last_of(self, ranks: Ranks) -> Deps:
        """The last kernel that these very ranks have run."""
        found = self._last.get(id(ranks))
        return () if found is None else (found,)

    def _add(
        self, name: str, kind: str, stream: str, groups: Ranks, after: Deps, **more: object
    ) -> int:
        number = len(self.tasks)
        earlier = tuple(dict.fromkeys(after))
        self.tasks.append(
            Task(
                name, kind, self.phase, stream, groups, earlier,
                layer=self.layer, micro_batch=self.micro_batch, chunk=self.chunk, **more,  # type: ignore[arg-type]
            )
        )  # fmt: skip
        return number


@dataclass(frozen=True)
class StageRanks:
    """The ranks of one pipeline stage, and their groups along every axis."""

    number: int
    ranks: Ranks
    groups: Mapping[str, Ranks]


def stage_ranks(grid: Grid, number: int) -> StageRanks:
    """The ranks and groups of a pipeline stage."""
    groups = {axis: grid.groups((axis,), number) for axis in ("tp", "cp", "ep", "dp")}
    return StageRanks(number, grid.stage(number), groups)


@dataclass(frozen=True, slots=True)
class Emitted:
    """The last kernel of a pass, and all that whoever follows must wait for."""

    last: int
    ends: Deps


def emit(tape: Tape, stage: StageRanks, parts: Sequence[Part], after: Deps, dtype: str) -> Emitted:
    """Write a pass down. Its first kernel, or collective, waits for `after`."""
    named: dict[str, Deps] = {}
    pending: list[int] = list(after)
    last = -1
    for part in parts:
        if part.collective:
            earlier = tuple(pending) if last < 0 else (last, *pending)
            made = tape.collective(
                part.name, part.axis, part.collective, stage.groups[part.axis], part.nbytes,
                earlier, dtype=part.dtype or dtype,
            )  # fmt: skip
            named[part.name] = made
            pending += made if part.blocks else ()
            continue
        needs = [one for name in part.needs for one in named.get(name, ())]
        last = tape.compute(part.name, stage.ranks, part.seconds, (*pending, *needs))
        pending = []
    ends = tuple(dict.fromkeys([*([last] if last >= 0 else []), *pending]))
    return Emitted(last, ends or after)
