"""Looped: a call that goes through its buffers loop after loop, and can be written with fewer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from typing import Any

from netsim.base.values import dataclass
from netsim.collectives.collective import Collective
from netsim.collectives.reduced import Stands
from netsim.collectives.table import build, parameters_of
from netsim.collectives.writing import piece_count
from netsim.nccl.schedules import table
from netsim.nccl.schedules.plan import Plan
from netsim.nccl.schedules.smaller import coarser, loops_of, shorter
from netsim.schedule.schedule import Schedule

LEAST = 2  # loops that every channel keeps: the last one may be partial
WORTH = 40  # loops from which running fewer several times is shorter than running all


@dataclass(frozen=True)
class Looped:
    """A call of `loops` loops over its buffers, not fewer than `least`.

    `write(loops, grain)` writes it down with that many loops, and chunks `grain` times as large
    (where it has `grains`). With fewer loops all data is smaller by whole loops: what is left over
    for a last, partial one is the same. `rounding` is by which part its loops differ at most,
    `memory` the loops that its FIFOs hold. `like(loops, grain)` is equal for what is the same in
    calls of other sizes, of which `told` keeps what was found.
    """

    loops: int
    write: Callable[[int, int], Schedule]
    least: int = 1
    grains: bool = False
    rounding: float = 0.0
    memory: int = 0
    like: Callable[[int, int], object] | None = None
    told: dict[object, Any] = field(default_factory=dict, repr=False, compare=False)
    _last: dict[tuple[int, int], Schedule] = field(default_factory=dict, repr=False, compare=False)

    @property
    def worth_shortening(self) -> bool:
        """Whether there are enough loops to leave some out."""
        return self.loops - self.least >= WORTH

    def schedule(self, loops: int, grain: int = 1) -> Schedule:
        """The schedule with so many loops; the last one is kept, for it is asked for again."""
        if (loops, grain) not in self._last:
            self._last.clear()
            self._last[loops, grain] = self.write(loops, grain)
        return self._last[loops, grain]

    def rows(self, loops: int, grain: int = 1) -> int:
        """About how many rows it has, from the shortest."""
        return len(self.shortest) * -(-loops // (self.least * grain))

    @cached_property
    def shortest(self) -> Schedule:
        """The schedule with the fewest loops."""
        return self.write(self.least, 1)


Join = Callable[[Sequence[Schedule]], Schedule]


def looped_nccl(collective: Collective, plans: Sequence[Plan], join: Join) -> Looped:
    """What NCCL runs for one collective on several communicators, joined."""
    ends = [loops_of(collective, plan) for plan in plans]
    loops, fewest = max(most for most, _ in ends), min(fewest for _, fewest in ends)

    def write(kept: int, grain: int) -> Schedule:
        short = [shorter(collective, plan, loops - kept) for plan in plans]
        return join([table.schedule_of(one, coarser(plan, grain)) for one, plan in short])

    def like(kept: int, grain: int) -> object:
        """All that a schedule without places depends on."""
        (one, plan), *_ = (shorter(collective, plan, loops - kept) for plan in plans)
        work = tuple((w.channel, w.count, w.chunk) for w in plan.work)
        call = (one.name, one.root, one.in_place, one.element_bytes, plan.algorithm, plan.protocol)
        folds = id(plan.symmetry)  # which the memory of all plans keeps, one for each way to fold
        return call, plan.direct, plan.registered, plan.slot, plan.hops, folds, work, grain

    least, memory = min(loops, loops - fewest + LEAST), max(plan.slots for plan in plans)
    whole = Looped(loops, write, least, grains=True, memory=memory)
    if len(plans) > 1 or plans[0].places or plans[0].transfers is not None:
        return whole
    told = plans[0].memory.setdefault("ends of loops", {})
    return replace(whole, like=like, told=told)


def looped_build(
    collective: Collective,
    algorithm: str,
    parameters: Mapping[str, Any],
    join: Join,
    fold: Stands | Schedule | None = None,
) -> Looped:
    """A textbook algorithm; its loops are the pieces of its pipeline, where it has one. `fold`: as
    these lanes that stand for others, or as it is written already.
    """
    if isinstance(fold, Schedule):
        return Looped(1, lambda *_: fold)
    if fold is not None:
        return Looped(1, lambda *_: join([build(collective, algorithm, fold=fold, **parameters)]))
    pieces = _pieces(collective, algorithm, parameters)
    others = {k: v for k, v in parameters.items() if k not in ("chunks", "chunk_bytes")}
    even, left = divmod(collective.count, max(1, pieces))

    def write(kept: int, grain: int) -> Schedule:
        if kept == pieces and grain == 1:
            return join([build(collective, algorithm, **parameters)])
        count = collective.count if kept == pieces else even * kept
        chunks = -(-kept // grain)
        return join([build(replace(collective, count=count), algorithm, **others, chunks=chunks)])

    if pieces <= 1 or not even:
        return Looped(1, lambda kept, grain: join([build(collective, algorithm, **parameters)]))
    return Looped(pieces, write, 1, grains=True, rounding=1 / even if left else 0.0)


def _pieces(collective: Collective, algorithm: str, parameters: Mapping[str, Any]) -> int:
    """How often a pipeline begins; 1 for an algorithm that is none."""
    if "chunks" not in parameters_of(collective.name, algorithm):
        return 1
    count = collective.count
    if algorithm == "double-binary-tree":  # each tree has half of the data
        count = (count + 1) // 2
    wanted = parameters.get("chunks"), parameters.get("chunk_bytes")
    return piece_count(count, collective.element_bytes, *wanted)
