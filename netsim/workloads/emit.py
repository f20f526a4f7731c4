"""Writing the parts of a pass onto the tape: kernels in a row, collectives where they belong."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from netsim.workloads.grid import Grid, Ranks
from netsim.workloads.parts import Part
from netsim.workloads.tape import Deps, Tape


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
    """The first and last kernel of a pass, and all that whoever follows must wait for."""

    first: int
    last: int
    ends: Deps


def emit(tape: Tape, stage: StageRanks, parts: Sequence[Part], after: Deps, dtype: str) -> Emitted:
    """Write a pass down. Its first kernel, or collective, waits for `after`."""
    named: dict[str, int] = {}
    pending: list[int] = list(after)
    first = last = -1
    for part in parts:
        if part.collective:
            earlier = tuple(pending) if last < 0 else (last, *pending)
            made = tape.collective(
                part.name, part.axis, part.collective, stage.groups[part.axis], part.nbytes,
                earlier, dtype=part.dtype or dtype,
            )  # fmt: skip
            if made is not None:
                named[part.name] = made
                if part.blocks:
                    pending.append(made)
            continue
        needs = [named[name] for name in part.needs if name in named]
        last = tape.compute(part.name, stage.ranks, part.seconds, (*pending, *needs))
        first = last if first < 0 else first
        pending = []
    ends = tuple(dict.fromkeys([*([last] if last >= 0 else []), *pending]))
    return Emitted(first, last, ends or after)
