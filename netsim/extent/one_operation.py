"""One operation from an idle cluster tells the time of all operations back to back.

DOC
"""

from __future__ import annotations

import numpy as np

from netsim.extent.budget import Budget
from netsim.extent.finish_times import last_like_first, result_from_last, result_of
from netsim.extent.forms import Form, written_form
from netsim.extent.result import (
    MethodInput,
    Offer,
    OneOperation,
    Refusal,
    Result,
    can_run_all_operations,
)

SAME_INSTANT = 1e-12
"""Relative difference of finish times that count as one."""
SHORT_TREE_ERROR = 0.055
LONG_TREE_ERROR = 0.11
"""Relative errors of one operation of a tree for all: over few loops with ranks that end at about
the same time, and else (`python -m tests.bench.rounds 400 trees`)."""
MAX_LONG_TREE_SPREAD = 0.15
"""Fraction of its time within which the ranks of a tree of many loops must end."""
END_TOGETHER = "its ranks end at about the same time"
KEEPS_BUSY = "it keeps a link busy"
TREE_SPREADS = Refusal("ranks of the tree end at too different times, or after too many loops")
CAN_BE_RUN = Refusal("operations back to back can be simulated")


def one_operation(given: MethodInput) -> Offer | Refusal:
    """Offer the time of one operation if it is the only one, or ends on all ranks at one
    instant; exact."""
    task, one = given.form.task, given.operation
    launch = task.launch
    if task.back_to_back is None:
        seconds = launch.host + one.seconds
        return Offer(lambda *_: result_of(given, seconds))
    if launch.together and task.back_to_back.iterations == 1:
        return Offer(lambda *_: result_from_last(given, launch.host + one.ends))
    if launch.together and np.ptp(one.ends) <= SAME_INSTANT * one.seconds:
        return Offer(lambda *_: result_from_last(given, last_like_first(given)))
    return Refusal("ranks end at different times")


def trees_end_together(given: MethodInput) -> Offer | Refusal:
    """Offer one operation for all of a tree whose ranks end at about the same time, if operations
    back to back are too many rows."""
    form, budget, one = given.form, given.budget, given.operation
    thresholds = budget.thresholds
    if budget.is_exact or not form.is_tree:
        return Refusal("one operation is taken for all of trees only, and not if exact")
    rows = max(one.rows, written_form(form, budget).loop_schedule.rows())
    if one.fewer_loops is not None or can_run_all_operations(form, rows, budget):
        return CAN_BE_RUN
    rows_of_fewest = thresholds.operation_counts[0] * one.rows
    is_large = one.follow is None or rows_of_fewest > thresholds.max_rows_of_several_operations
    if is_short_tree(form, one, budget):
        return Offer(lambda *_: result_like_first(given, END_TOGETHER, SHORT_TREE_ERROR))
    if is_large and one.spread <= MAX_LONG_TREE_SPREAD:
        return Offer(lambda *_: result_like_first(given, END_TOGETHER, LONG_TREE_ERROR))
    return TREE_SPREADS


def is_short_tree(form: Form, one: OneOperation, budget: Budget) -> bool:
    """Whether a tree has few loops and ranks that end at about the same time."""
    thresholds = budget.thresholds
    has_few_loops = form.loop_schedule.loops <= thresholds.max_tree_loops
    return has_few_loops and one.spread <= thresholds.max_tree_spread


def busy_link(given: MethodInput) -> Offer | Refusal:
    """Offer one operation for all if a link is busy throughout.

    Back to back, operations gain no more than the link idles as they begin and end, and lose no
    more where they meet; trees half of that (`python -m tests.bench.rounds 700 busy`)."""
    form, one, thresholds = given.form, given.operation, given.budget.thresholds
    if given.budget.is_exact or not form.task.is_nccl:
        return Refusal("one operation is taken for all of NCCL's only, and not if exact")
    are_trees = all("Tree" in plan.algorithm for plan in form.plans)
    error = one.idle_fraction(form.task.launch) / (2 if are_trees else 1)
    if error > thresholds.max_idle_fraction:
        return Refusal("no link is busy throughout an operation")
    rows = one.rows if one.fewer_loops is None else one.fewer_loops.schedules.rows()
    fewest = min(thresholds.operation_counts[0], form.iterations)
    if fewest * rows <= thresholds.max_rows_of_few_operations:
        return CAN_BE_RUN
    return Offer(lambda *_: result_like_first(given, KEEPS_BUSY, error))


def result_like_first(given: MethodInput, reason: str, uncertainty: float) -> Result:
    """The time of operations that all take as long as the first one, which is about right for a
    `reason`."""
    words = f"1 of {given.form.iterations} operations ({reason})"
    return result_from_last(given, last_like_first(given), words, uncertainty)
