"""Method for large trees: one channel is simulated for all channels that share no link which can
saturate.

Channels of a tree share the memory, SMs and NVLinks of their GPUs, so channels that differ in the
order of GPUs are not equal. Often none of these resources can saturate: rows on one path that wait
for each other move one at a time, which bounds the load of every link. Then channels are equal if
they are so on the remaining links, and one of each class is simulated.

How that is checked: the shortest schedule of the task is placed, and `tight_entries` says which
links can saturate at all (`Form.with_fewer_channels`).

Error: where queues are full, a difference in the last digit grows from loop to loop, in the full
simulation as well: two orders of summing give two answers. Two further runs in which ranks begin up
to a picosecond apart show how much the time differs; twice that is stated. Channels of operations
back to back get out of step, so that only `one_operation.trees_end_together` may follow, which
states its own error.

    $ netsim expect gh200-x4 all_reduce --nodes 128 --fabric dragonfly --algo Tree --sizes 64M -v
    all_reduce of 64 MiB: channels apart: taken: one channel for all that meet in nothing that can
        be full: 2,673,728 rows, within 0.00%
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from netsim.extent.all_rows import run_in_full
from netsim.extent.budget import Budget
from netsim.extent.engine_runs import Bench, ends_of
from netsim.extent.forms import Form, written_form
from netsim.extent.one_operation import TREE_SPREADS, is_short_tree
from netsim.extent.result import (
    MethodInput,
    Offer,
    OneOperation,
    Refusal,
    Solver,
    can_run_all_operations,
)
from netsim.nccl.schedules.partitions import ends_by_rank

ONE_CHANNEL = "one channel for all channels that share no link which can saturate"
SHAKEN_SECONDS = 1e-12
"""By which the beginnings of ranks are moved, to see how much the order of transfers matters."""
SHAKEN_RUNS = 2


def channels_apart(question: MethodInput) -> Offer | Refusal:
    """Offer to simulate one channel of a tree for all channels that share no link which can
    saturate.
    """
    form = question.form
    budget = question.budget
    thresholds = budget.thresholds
    if budget.is_exact or not form.is_tree:
        return Refusal("channels that share no busy link are left out of large trees only")
    if thresholds.max_rows_in_full < np.inf and form.loop_schedule.has_loops_to_spare(budget):
        return Refusal("fewer loops are tried first")
    if can_run_all_operations(form, written_form(form, budget).loop_schedule.rows(), budget):
        return Refusal("it has few rows")
    fewest = thresholds.operation_counts[0]
    rows_of_fewest = fewest * form.loop_schedule.rows()
    is_large = form.task.is_single or rows_of_fewest > thresholds.max_rows_of_several_operations
    if not is_large and form.loop_schedule.loops > thresholds.max_tree_loops:
        return TREE_SPREADS
    fewer = form.with_fewer_channels
    if fewer is None:
        return Refusal("its channels share links that can saturate")

    def run(bench: Bench, _: Solver) -> OneOperation | Refusal:
        operation = _one_channel(bench, fewer, budget)
        return operation if is_large or is_short_tree(form, operation, budget) else TREE_SPREADS

    return Offer(run)


def _one_channel(bench: Bench, form: Form, budget: Budget) -> OneOperation:
    """The standalone operation from a simulation of one channel for all.

    If only one operation is timed, its error is twice the largest difference to further runs in
    which ranks begin up to a picosecond apart, as even the rounding of a sum grows from loop to
    loop where queues are full. For operations back to back no error is computed: they are not
    extrapolated from this run, as their channels do not stay in step.
    """
    operation = run_in_full(bench, form.loop_schedule, budget)
    ranks = form.collective.ranks
    run = operation.run
    runs = SHAKEN_RUNS if form.task.is_single else 0
    partition = form.extent.partition
    assert partition is not None
    begins = np.random.default_rng(0).uniform(0, SHAKEN_SECONDS, (runs, ranks))
    shaken = [run.simulator.timeline(begin).makespan for begin in begins]
    differences = [abs(seconds / run.timeline.makespan - 1) for seconds in shaken]
    ends_of_written = ends_of(run.program, run.timeline, apart=True)
    return replace(
        operation,
        ends=ends_by_rank(form.plans[0], partition, ends_of_written) + bench.launch.kernel,
        approximation=ONE_CHANNEL,
        uncertainty=2 * max(differences, default=0.0),
        follow=None,
        fewer_loops=None,
    )
