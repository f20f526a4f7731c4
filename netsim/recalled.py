"""What calls took that cells asked for before: equal calls are simulated once in a process.

Cells of a sweep differ, yet many ask for the same in the end: versions of NCCL that plan a call
alike, algorithms that are chosen or forced, launch costs that do not matter. Calls are equal if all
is equal that their rows and times follow from, not if their scenarios are.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import fields
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from netsim.prepared import Prepared
from netsim.spelled import digest
from netsim.values import dataclass

if TYPE_CHECKING:
    from netsim.nccl.schedules import Plan
    from netsim.timing import Bench

MOST = 50_000  # outcomes that are kept
MOST_RANKS = 1024  # of NCCL's communicators, above which it takes long to write out a plan
# What plans for all sizes have in common.
STANDING = ("node", "rings", "trees", "heads", "chains", "doors", "mechanism", "links", "routes")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What simulating a call tells: seconds out of place and in place, and all else of its row."""

    seconds: float
    inplace: float | None
    bound_by: str
    approximation: str
    uncertainty: float
    rows: int
    engine: str


_KNOWN: OrderedDict[bytes, Outcome] = OrderedDict()


def recalled(call: bytes | None, simulated: Callable[[], Outcome]) -> Outcome:
    """The outcome of a call, simulated unless it is known; None is never known."""
    found = None if call is None else _KNOWN.get(call)
    if found is None:
        found = simulated()
    if call is not None:
        _KNOWN[call] = found
        with suppress(KeyError):  # another thread may be faster
            _KNOWN.move_to_end(call)
            while len(_KNOWN) > MOST:
                _KNOWN.popitem(last=False)
    return found


def forget() -> None:
    """Forget all outcomes."""
    _KNOWN.clear()


def call_of(prepared: Prepared, bench: Bench, size: int) -> bytes | None:
    """What tells a call from all that differ in rows or times; None where that takes too long."""
    if prepared.place is None:
        return None
    collective, work = prepared.collective(size), prepared.cell.scenario.collective
    runs: object = (work.algorithm, prepared.parameters)
    if prepared.jobs:
        if collective.ranks > MOST_RANKS:
            return None
        kinds = list(dict.fromkeys(prepared.jobs))
        plans = [_told_apart(prepared.plan(job, collective)) for job in kinds]
        runs = plans, [kinds.index(job) for job in prepared.jobs]
    where = (prepared.place, prepared.groups, prepared.gpus)
    how = (bench.launch, bench.single, bench.engine, prepared.may_fold, prepared.together)
    return digest((collective, runs, where, how))


def _told_apart(plan: Plan) -> list[object]:
    """All of a plan, with what other sizes have in common written out once."""
    kind: Any = type(plan)
    found = [getattr(plan, name) for name in _varying(kind)]
    for name in STANDING:
        part = getattr(plan, name)
        known = plan.memory.get(("told apart", name))
        if known is None or known[0] is not part:
            known = plan.memory["told apart", name] = part, digest(part)
        found.append(known[1])
    return found


@lru_cache
def _varying(kind: Any) -> tuple[str, ...]:
    """All else that tells plans apart."""
    return tuple(f.name for f in fields(kind) if f.compare and f.name not in STANDING)
