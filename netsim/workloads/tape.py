"""The tape: a training step as entries in a topological order, each on a stream of its ranks.

An entry is the same work on many ranks: a kernel on each of them, or one collective in each of
several groups. On one stream of one rank, entries run in the order of the tape; `after` lists the
earlier entries that a rank waits for in addition.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from netsim.base.memo import Memo, Same, different
from netsim.base.values import dataclass
from netsim.workloads.parts import PassPart
from netsim.workloads.setting import Grid, Ranks

COMPUTE = "compute"
Deps = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class KernelTime:
    """The seconds of a kernel on one kind of GPU; in `moving` of them it only moves bytes."""

    seconds: float
    moving: float


@dataclass(frozen=True, slots=True)
class TapeEntry:
    """One kernel on many ranks, or one collective in each of several groups of ranks.

    - `kind`: "compute", or the parallelism that a collective belongs to.
    - `phase`: the part of the step (forward, backward, weights, step).
    - `groups`: a line for each group, in rank order; a kernel has groups of one rank.
    - `after`: numbers of earlier entries that the ranks wait for.
    - `seconds`: time of a kernel; on several kinds of GPU, that of the slowest kind.
    - `collective`: name of the collective; empty for a kernel.
    - `nbytes`: size of the collective as nccl-tests counts it.
    - `posted`: whether the last rank of each group has posted its receive early and delays no other
      rank.
    - `measured`: seconds that a profile recorded; 0 without a profile.
    - `launched`: when the host has launched it, in seconds, if that may delay it; otherwise 0.
    - `moving`: the part of `seconds` in which it only moves bytes and needs few SMs.
    - `by_kind`: its times by kind of GPU, if there are several kinds.
    """

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
    launched: float = 0.0
    moving: float = 0.0
    by_kind: tuple[KernelTime, ...] = ()

    def scaled(self, factor: float) -> "TapeEntry":
        """The same kernel with `factor` times its time on every kind of GPU."""
        by_kind = tuple(
            replace(time, seconds=time.seconds * factor, moving=time.moving * factor)
            for time in self.by_kind
        )
        return replace(
            self, seconds=self.seconds * factor, moving=self.moving * factor, by_kind=by_kind
        )


@dataclass
class LaunchThread:
    """The thread of the host that launches the work of one stage's ranks.

    Args:
        clock: when it has launched the entries so far, in seconds.
        last: last entry of each stream.
        line: if entries start in the order of their launch, the entries that must have started
            before the next kernel starts.
    """

    clock: float = 0.0
    last: dict[str, int] = field(default_factory=dict)
    line: Deps = ()


@dataclass
class Tape:
    """The entries of a step; an entry may wait for earlier entries only.

    The host of stage `at` launches them in this order and takes `launch` seconds for each kernel.
    With `in_order` they also start in this order. New entries get the current `phase`, `layer`,
    `micro_batch` and `chunk`. `kind_of_rank` is the kind of GPU of every rank if there are several
    kinds.
    """

    entries: list[TapeEntry] = field(default_factory=list)
    phase: str = "forward"
    layer: str = ""
    micro_batch: int = -1
    chunk: int = -1
    at: int = 0
    launch: float = 0.0
    in_order: bool = False
    deferred: list[tuple[str, Ranks, float, Deps]] = field(default_factory=list)
    kind_of_rank: tuple[int, ...] = ()
    _hosts: dict[int, LaunchThread] = field(default_factory=lambda: defaultdict(LaunchThread))
    _ends: list[float] = field(default_factory=list)
    _last: dict[Same, int] = field(default_factory=dict)
    _columns: Memo = field(default_factory=Memo)

    def compute(
        self,
        name: str,
        ranks: Ranks,
        seconds: float,
        after: Deps = (),
        launches: int = 1,
        moving: float = 0.0,
    ) -> int:
        """Add a kernel on each of `ranks`; return the number of the entry.

        Args:
            seconds: time of the kernel, or of several one after the other.
            after: entries that it waits for.
            launches: number of kernels that the host launches.
            moving: seconds in which it only moves bytes.
        """
        column = self._columns.of(Same(ranks), lambda: ranks.reshape(-1, 1))
        made = self._add(
            name, COMPUTE, "compute", column, after, launches, seconds=seconds, moving=moving
        )
        self._last[Same(ranks)] = made
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
        """Add a collective in each group; return its entry as a tuple to wait for, or () if nothing
        moves.

        `kind` is the parallelism that it belongs to. If it is `posted`, the last rank of each group
        (a receiver) has posted its receive ahead and delays no other rank.
        """
        if groups.shape[1] < 2 or nbytes <= 0:
            return ()
        made = self._add(
            name,
            kind,
            stream or kind,
            groups,
            after,
            collective=collective,
            nbytes=nbytes,
            dtype=dtype,
            posted=posted,
            measured=measured,
        )
        return (made,)

    def kernel_time(self, entry: TapeEntry, rank: int) -> KernelTime:
        """The time of a kernel on the GPU of one rank."""
        if not entry.by_kind:
            return KernelTime(entry.seconds, entry.moving)
        return entry.by_kind[self.kind_of_rank[rank]]

    def defer(self, name: str, ranks: Ranks, seconds: float, after: Deps) -> None:
        """Remember a kernel that `add_deferred` adds just before the optimizer, so that nothing
        else waits for it.
        """
        self.deferred.append((name, ranks, seconds, after))

    def add_deferred(self) -> None:
        """Add the kernels that were deferred."""
        for postponed in self.deferred:
            self.compute(*postponed)
        self.deferred.clear()

    @contextmanager
    def naming(self, layer: str) -> Iterator[None]:
        """Within the block, new entries belong to the layer `layer`."""
        before = self.layer
        self.layer = layer
        yield
        self.layer = before

    def last_kernel(self, ranks: Ranks) -> Deps:
        """The last kernel on exactly these ranks, as a tuple to wait for; () if there is none."""
        last = self._last.get(Same(ranks))
        return () if last is None else (last,)

    def _add(
        self,
        name: str,
        kind: str,
        stream: str,
        groups: Ranks,
        after: Deps,
        launches: int = 1,
        *,
        seconds: float = 0.0,
        **more: object,
    ) -> int:
        """Add a kernel or a collective to the tape; return the number of its entry."""
        number = len(self.entries)
        host = self._hosts[self.at]
        if self.in_order:  # all entries that were launched earlier must have started
            after = (*after, *host.line)
            line = (*after, host.last[stream]) if stream in host.last else after
            host.line = () if kind == COMPUTE else line
        earlier = tuple(dict.fromkeys(after))
        launched = self._launched(host, stream, earlier, launches, seconds) if self.launch else 0.0
        host.last[stream] = number
        self.entries.append(
            TapeEntry(
                name,
                kind,
                self.phase,
                stream,
                groups,
                earlier,
                seconds=seconds,
                layer=self.layer,
                micro_batch=self.micro_batch,
                chunk=self.chunk,
                launched=launched,
                **more,  # type: ignore[arg-type]
            )
        )
        return number

    def _launched(
        self, host: LaunchThread, stream: str, after: Deps, launches: int, seconds: float
    ) -> float:
        """When the host launches the first kernel of an entry, in seconds; 0 if the entry certainly
        waits longer for other entries.

        For the first entries of the step this may be before the step begins.
        """
        launched = host.clock
        host.clock += launches * self.launch
        waited = (*after, host.last[stream]) if stream in host.last else after
        ready = max((self._ends[one] for one in waited), default=0.0)
        self._ends.append(max(ready, launched) + seconds)
        return launched if launched > ready else 0.0


def tape_of_kinds(tapes: Sequence[Tape], kind_of_rank: tuple[int, ...]) -> Tape:
    """One tape for GPUs of several kinds, from the tapes of the step on each kind alone.

    All tapes have the same entries; only the times of their kernels differ. The launch of an entry
    depends on the host only. A tape has 0 for it if its own GPUs are certainly busy for longer, so
    the largest value holds for all.
    """
    kinds = np.array(kind_of_rank, np.int32)
    kinds_of_groups = Memo()
    joined = []
    for entries in zip(*(tape.entries for tape in tapes), strict=True):
        first = entries[0]
        if any(_shape_of(entry) != _shape_of(first) for entry in entries):
            raise AssertionError(f"{first.name}: GPUs of several kinds run different work")
        slowest = replace(first, launched=max(entry.launched for entry in entries))
        if not slowest.collective:
            groups = slowest.groups
            present = kinds_of_groups.of(Same(groups), partial(_kinds_among, kinds, groups))
            times = [KernelTime(entry.seconds, entry.moving) for entry in entries]
            slowest = _with_times(slowest, times, present)
        joined.append(slowest)
    return replace(tapes[0], entries=joined, kind_of_rank=kind_of_rank)


def _kinds_among(kinds: NDArray[np.int32], ranks: Ranks) -> list[int]:
    """The distinct kinds of GPU of some ranks; `kinds` is by rank."""
    present: list[int] = different(kinds[ranks]).tolist()
    return present


def _shape_of(entry: TapeEntry) -> tuple[object, ...]:
    """The fields of an entry that are equal on GPUs of every kind."""
    return (
        entry.name,
        entry.kind,
        entry.stream,
        entry.after,
        entry.collective,
        entry.nbytes,
        entry.dtype,
    )


def _with_times(entry: TapeEntry, times: Sequence[KernelTime], present: Sequence[int]) -> TapeEntry:
    """A kernel with its times on every kind of GPU; `present` are the kinds that it runs on."""
    slowest = max((times[kind] for kind in present), key=lambda time: time.seconds)
    differs = any(times[kind] != slowest for kind in present)
    return replace(
        entry,
        seconds=slowest.seconds,
        moving=slowest.moving,
        by_kind=tuple(times) if differs else (),
    )


@dataclass(frozen=True)
class StageRanks:
    """The ranks of one pipeline stage, and by axis their groups along it."""

    number: int
    ranks: Ranks
    groups: Mapping[str, Ranks]


def stage_ranks(grid: Grid, number: int) -> StageRanks:
    """The ranks and groups of a pipeline stage."""
    groups = {axis: grid.groups((axis,), number) for axis in ("tp", "cp", "ep", "dp")}
    return StageRanks(number, grid.stage(number), groups)


@dataclass(frozen=True, slots=True)
class Emitted:
    """The last kernel of a pass that was written (-1: none), and the entries that the next pass
    must wait for.
    """

    last: int
    ends: Deps


def emit(
    tape: Tape,
    stage: StageRanks,
    parts: Sequence[PassPart],
    after: Deps,
    dtype: str,
    when_made: Callable[[str, int], None] | None = None,
) -> Emitted:
    """Write the parts of a pass to the tape; return its last kernel and the entries that end it.

    Args:
        stage: the ranks and groups that run the pass.
        after: entries that the first part waits for.
        dtype: data type of collectives that have none of their own.
        when_made: called with name and entry of each kernel that makes gradients of weights.
    """
    named: dict[str, Deps] = {}
    pending: list[int] = list(after)
    last = -1
    for part in parts:
        if part.collective:
            earlier = tuple(pending) if last < 0 else (last, *pending)
            made = tape.collective(
                part.name,
                part.axis,
                part.collective,
                stage.groups[part.axis],
                part.nbytes,
                earlier,
                dtype=part.dtype or dtype,
            )
            named[part.name] = made
            pending += made if part.blocks else ()
            continue
        needs = [entry for name in part.needs for entry in named.get(name, ())]
        earlier = (*pending, *needs)
        last = tape.compute(
            part.name, stage.ranks, part.seconds, earlier, part.launches, part.moving
        )
        pending = []
        if when_made and part.weight:
            when_made(part.name, last)
    ends = tuple(dict.fromkeys([*([last] if last >= 0 else []), *pending]))
    return Emitted(last, ends or after)
