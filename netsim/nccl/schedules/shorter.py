"""A call with fewer loops over its buffers, or with larger chunks: what huge messages are run as.

Every channel (of sends: every part) loses the same number of whole loops, so that what is left
over for its last loop stays as it is. It knows no times.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from netsim.collectives.collective import Collective
from netsim.nccl.p2p import P2pWork
from netsim.nccl.schedules.plan import Plan, Work
from netsim.nccl.schedules.rounds import Change, Transfers

SHARED_BY_HEADS = ("NVLS", "NVLSTree", "CollNetDirect")  # a loop has a chunk for each head


def loops_of(collective: Collective, plan: Plan) -> tuple[int, int]:
    """The loops of the channel that has most, and of the one that has fewest."""
    counts = list(_loops(collective, plan))
    return (max(counts), min(counts)) if counts else (1, 1)


def shorter(collective: Collective, plan: Plan, loops: int) -> tuple[Collective, Plan]:
    """The same call with `loops` loops less on every channel."""
    if not loops:
        return collective, plan
    step = loops * _chunks_a_loop(collective, plan)
    work = tuple(_less(one, step * one.chunk // collective.element_bytes) for one in plan.work)
    gone = sum(one.count for one in plan.work) - sum(one.count for one in work)
    transfers = _changed(plan, partial(_fewer, loops))
    # Of sends, the plan alone says what is moved.
    less = replace(collective, count=collective.count - gone) if gone else collective
    return less, replace(plan, work=work, transfers=transfers)


def coarser(plan: Plan, grain: int) -> Plan:
    """The same call with chunks, and the slots that hold them, `grain` times as large."""
    if grain == 1:
        return plan
    return replace(
        plan,
        work=tuple(replace(one, chunk=one.chunk * grain) for one in plan.work),
        transfers=_changed(plan, partial(_wider, grain)),
        slot_bytes=plan.slot * grain,
    )


def _loops(collective: Collective, plan: Plan) -> Iterator[int]:
    chunks = _chunks_a_loop(collective, plan)
    for one in plan.work:
        yield -(-one.count * collective.element_bytes // (one.chunk * chunks))
    if plan.transfers is not None:
        for parts in plan.transfers.works():
            yield from (-(-part // parts.chunk) for part in parts.parts if part)


def _chunks_a_loop(collective: Collective, plan: Plan) -> int:
    if collective.name == "all_reduce" and plan.algorithm == "Ring":
        return collective.ranks
    if collective.name == "all_reduce" and plan.algorithm in SHARED_BY_HEADS:
        return len(plan.heads[0])
    return 1


def _less(work: Work, elements: int) -> Work:
    return replace(work, count=work.count - elements)


def _changed(plan: Plan, change: Change) -> Transfers | None:
    return None if plan.transfers is None else plan.transfers.changed(change)


def _fewer(loops: int, work: P2pWork) -> P2pWork:
    parts = tuple(part - loops * work.chunk if part else 0 for part in work.parts)
    return replace(work, parts=parts)


def _wider(grain: int, work: P2pWork) -> P2pWork:
    return replace(work, chunk=work.chunk * grain)
