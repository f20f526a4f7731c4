r"""Methods that infer the time of operations back to back from one operation from an idle cluster.

There are three, for three reasons:

`one_operation`: it is the only operation that is timed, or all ranks end it at the same instant, so
that the next one begins as the first did. Exact.

`trees_end_together`: operations back to back of a tree take about as long as one alone if its ranks
end at about the same time. It is asked if all operations have over 44 million rows. Error: two
constants, 5.5 % for up to 32 loops and ranks within 5 % of the time, 11 % for ranks within 15 %
(`python -m tests.bench.rounds 220 trees`: the errors are at most 2.5 % in 31 randomly drawn tasks,
and 9.8 % in 106).

`busy_link`: no operation ends sooner than its busiest link needs. So operations save by overlapping
at most the time in which that link is idle, mostly at their begin and end. What they lose by
competing was at most as much in all randomly drawn tasks. Error: the fraction of the time in which
the busiest link idles, in trees half of that; up to 2.5 % (`python -m tests.bench.rounds 700 busy`:
0 of 69 exceed it).

    $ netsim expect dgx-h100 all_reduce --nodes 128 --fabric leaf-spine --transport roce \
          --set cluster.fabric.oversubscription=2 --sizes 1G --verbose
    all_reduce of 1 GiB: busy link: taken: 1 of 20 operations (it keeps a link busy): 2,089,984
        rows, within 0.60%
    …  1073741824  …  15238.4 us
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


def one_operation(question: MethodInput) -> Offer | Refusal:
    """Offer the time of one operation if it is the only one, or ends on all ranks at the same
    instant; exact.
    """
    task = question.form.task
    operation = question.operation
    launch = task.launch
    if task.back_to_back is None:
        seconds = launch.host + operation.seconds
        return Offer(lambda *_: result_of(question, seconds))
    if launch.together and task.back_to_back.iterations == 1:
        return Offer(lambda *_: result_from_last(question, launch.host + operation.ends))
    if launch.together and np.ptp(operation.ends) <= SAME_INSTANT * operation.seconds:
        return Offer(lambda *_: result_from_last(question, last_like_first(question)))
    return Refusal("ranks end at different times")


def trees_end_together(question: MethodInput) -> Offer | Refusal:
    """Offer one operation for all operations of a tree whose ranks end at about the same time, if
    all of them have too many rows.
    """
    form = question.form
    budget = question.budget
    operation = question.operation
    thresholds = budget.thresholds
    if budget.is_exact or not form.is_tree:
        return Refusal("one operation is taken for all of trees only, and not if exact")
    rows = max(operation.rows, written_form(form, budget).loop_schedule.rows())
    if operation.fewer_loops is not None or can_run_all_operations(form, rows, budget):
        return CAN_BE_RUN
    rows_of_fewest = thresholds.operation_counts[0] * operation.rows
    is_large = (
        operation.follow is None or rows_of_fewest > thresholds.max_rows_of_several_operations
    )
    if is_short_tree(form, operation, budget):
        return Offer(lambda *_: result_like_first(question, END_TOGETHER, SHORT_TREE_ERROR))
    if is_large and operation.spread <= MAX_LONG_TREE_SPREAD:
        return Offer(lambda *_: result_like_first(question, END_TOGETHER, LONG_TREE_ERROR))
    return TREE_SPREADS


def is_short_tree(form: Form, operation: OneOperation, budget: Budget) -> bool:
    """Whether a tree has few loops and ranks that end at about the same time."""
    thresholds = budget.thresholds
    has_few_loops = form.loop_schedule.loops <= thresholds.max_tree_loops
    return has_few_loops and operation.spread <= thresholds.max_tree_spread


def busy_link(question: MethodInput) -> Offer | Refusal:
    """Offer one operation for all operations if a link is busy throughout.

    Back to back, operations save at most the time in which the link is idle, and lose at most as
    much by competing; in trees half of that (`python -m tests.bench.rounds 700 busy`).
    """
    form = question.form
    operation = question.operation
    thresholds = question.budget.thresholds
    if question.budget.is_exact or not form.task.is_nccl:
        return Refusal("one operation is taken for all of NCCL's only, and not if exact")
    are_trees = all("Tree" in plan.algorithm for plan in form.plans)
    error = operation.idle_fraction(form.task.launch) / (2 if are_trees else 1)
    if error > thresholds.max_idle_fraction:
        return Refusal("no link is busy throughout an operation")
    rows = (
        operation.rows if operation.fewer_loops is None else operation.fewer_loops.schedules.rows()
    )
    fewest = min(thresholds.operation_counts[0], form.iterations)
    if fewest * rows <= thresholds.max_rows_of_few_operations:
        return CAN_BE_RUN
    return Offer(lambda *_: result_like_first(question, KEEPS_BUSY, error))


def result_like_first(question: MethodInput, reason: str, uncertainty: float) -> Result:
    """The result if all operations take as long as the first one.

    - `reason`: a clause for the user that says why that is nearly true.
    - `uncertainty`: the largest relative error of the result.
    """
    words = f"1 of {question.form.iterations} operations ({reason})"
    return result_from_last(question, last_like_first(question), words, uncertainty)
