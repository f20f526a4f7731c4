"""Whether a task fits into memory, and how many bytes it needs; nothing is simulated."""

from __future__ import annotations

from collections.abc import Callable

from netsim.base.values import dataclass
from netsim.collectives import table as tables
from netsim.collectives.collective import Collective, CollectiveError
from netsim.extent.budget import Budget
from netsim.extent.fit import nccl_bytes, textbook_size, why_not_fit
from netsim.extent.forms import form_of
from netsim.extent.memory import estimated_size, misfit, needed
from netsim.extent.sketches import why_in_full
from netsim.schedule.schedule import Schedule
from netsim.workloads.task import Task


@dataclass(frozen=True)
class FewerRanks:
    """How to make the same collective on fewer ranks, from which the size of its schedule is
    extrapolated to all ranks.
    """

    collective_at: Callable[[int], Collective]
    """The collective on another number of ranks."""
    multiple: int
    """Numbers of ranks that can be compared are multiples of this."""


def expected_bytes(task: Task, budget: Budget, fewer: FewerRanks) -> int:
    """An upper estimate of the bytes that a process needs to simulate a task."""
    gpu_count = len(task.topology)
    if task.is_nccl:
        return needed(gpu_count, 0, nccl_bytes(task, budget))
    size = textbook_size(task, budget) or _size_from_fewer_ranks(task, fewer)
    return needed(gpu_count, *size)


def why_task_does_not_fit(task: Task, budget: Budget, fewer: FewerRanks) -> str:
    """The reason why a task does not fit into memory, for a message; empty if it fits.

    The rows of a textbook algorithm that cannot be counted directly are extrapolated from fewer
    ranks.
    """
    reason = why_not_fit(task, budget)
    if not reason and not task.is_nccl and textbook_size(task, budget) is None:
        reason = misfit(*_size_from_fewer_ranks(task, fewer), len(task.gpus))
    return f"{reason}{why_in_full(form_of(task, budget))}" if reason else ""


def _size_from_fewer_ranks(task: Task, fewer: FewerRanks) -> tuple[int, int]:
    """Rows and bytes of a textbook algorithm, extrapolated from their growth with the number of
    ranks.
    """
    ranks = len(task.groups[0])
    group_count = len(task.groups)

    def schedule_at(count: int) -> Schedule:
        return tables.build(fewer.collective_at(count), task.algorithm, **task.parameters)

    try:
        return estimated_size(ranks, schedule_at, fewer.multiple, group_count)
    except CollectiveError:  # on fewer ranks; on all of them it says what is wrong
        return estimated_size(ranks, schedule_at, ranks, group_count)
