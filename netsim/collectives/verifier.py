"""verify: does a schedule implement its collective?

The schedule is executed symbolically in row order (a topological order) and the outputs are
compared with what the collective expects. Whether other orders could do harm is asked in `races`.
"""

from collections.abc import Sequence

import numpy as np

from netsim.collectives.collective import Collective
from netsim.collectives.memory import BITS, Cell, Memory, VerificationError, span_text
from netsim.collectives.ranges import Expectation
from netsim.schedule import OUT, Schedule

SHOWN = 8


def verify(
    schedule: Schedule,
    collective: Collective,
    which: int = 0,
    members: Sequence[int] | None = None,
) -> None:
    """Raise a VerificationError unless collective `which` of a schedule is the given one.

    `members[i]` is the schedule's rank that is rank i of the collective (default: the same).
    """
    rows = rows_of(schedule, which)
    if collective.name == "barrier":
        _verify_barrier(schedule, rows, members or range(collective.ranks))
        return
    memory = Memory(schedule, collective, members)
    for row in rows:
        memory.execute(row)
    for rank in range(collective.ranks):
        for expected in collective.expectations(rank):
            _check_output(memory, rank, expected)


def rows_of(schedule: Schedule, which: int) -> list[int]:
    """The rows of one of the collectives in a schedule."""
    if not 0 <= which < len(schedule.collectives):
        raise ValueError(f"which: expected 0..{len(schedule.collectives) - 1}, got {which}")
    rows: list[int] = np.flatnonzero(schedule.style_column("collective") == which).tolist()
    return rows


def multiplicities(contributions: int, ranks: int) -> list[int]:
    """How often each rank contributes."""
    raw = contributions.to_bytes(ranks * BITS // 8, "little")
    return np.frombuffer(raw, "<u2").tolist()  # type: ignore[no-any-return]


def _check_output(memory: Memory, rank: int, expected: Expectation) -> None:
    for low, high, cell in memory.read(rank, OUT, expected.offset, expected.count):
        wrong = _fault(cell, expected, memory.collective.ranks)
        if wrong:
            where = span_text(rank, OUT, expected.offset + low, expected.offset + high)
            raise VerificationError(f"{where}: {wrong}")


def _fault(cell: Cell, expected: Expectation, ranks: int) -> str:
    """What is wrong with a cell; "" if it is as expected."""
    if cell is None:
        return "never written"
    if cell == (expected.origin_offset, sum(1 << (BITS * origin) for origin in expected.origins)):
        return ""
    wanted = [0] * ranks
    for origin in expected.origins:
        wanted[origin] += 1
    held = multiplicities(cell[1], ranks)
    faults = {
        "missing": [r for r in range(ranks) if held[r] < wanted[r]],
        "double": [r for r in range(ranks) if 0 < wanted[r] < held[r]],
        "foreign": [r for r in range(ranks) if held[r] and not wanted[r]],
    }
    texts = [
        f"{what} the contribution of {_ranks(found)}" for what, found in faults.items() if found
    ]
    if not texts and cell[0] != expected.origin_offset:
        texts = [f"foreign elements, {cell[0] - expected.origin_offset:+d} from those expected"]
    return "; ".join(texts)


def _ranks(ranks: list[int]) -> str:
    names = ", ".join(map(str, ranks[:SHOWN])) + (", …" if len(ranks) > SHOWN else "")
    return f"rank{'s' if len(ranks) > 1 else ''} {names}"


def _verify_barrier(schedule: Schedule, rows: list[int], members: Sequence[int]) -> None:
    """Nobody may leave (end its last row) before everyone has come: news travels along rows."""
    known = dict.fromkeys(rows, 0)
    last: dict[int, int] = {}
    for row in rows:
        sender = int(schedule.src[row])
        known[row] = 1 << sender
        for earlier, lag in schedule.dependencies(row):
            from_rank, to_rank = int(schedule.src[earlier]), int(schedule.dst[earlier])
            if sender == from_rank or (lag.arrival and sender == to_rank):
                known[row] |= known.get(earlier, 0)
        last[sender] = row
    for rank in members:
        missing = [r for r in members if not known.get(last.get(rank, -1), 1 << rank) >> r & 1]
        if missing:
            raise VerificationError(f"rank {rank} leaves the barrier without {_ranks(missing)}")
