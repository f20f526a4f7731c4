r"""Method for many grouped sends that share links: rates are solved once for all changes within a
short time.

Where paths of grouped sends share links at random, every send that begins or ends changes the rates
of all, and no two are equal. Solving the rates at each of these events takes most of the time. Here
they are solved once for all that begins or ends within a short time, an instant. Rows that end
within the instant keep their rate too long, and rows that begin within it get theirs too late; both
effects cancel on average. Rows still begin and end at times of their own.

The width of an instant is a fraction of the time that the busiest link needs, and grows with the
number of rows. If there are more than two million rows, the first loops are simulated; each further
loop takes the time that the busiest link needs for it.

How that is checked, and the error: the same rows are simulated with instants twice and four times
as wide. The stated error is three times the difference to the former, or 1.5 times that to the
latter, and at least four widths. If that is over 20 %, instants are halved, up to six times. If the
first loops took longer than the busiest link needs, the further ones may do so again, which is
added to the error.

    $ netsim expect dgx-h100 alltoall --nodes 64 --fabric leaf-spine --transport roce \
          --set cluster.fabric.oversubscription=2 --sizes 64M --verbose
    alltoall of 64 MiB: wide instants: taken: 2 of 2 loops, rates solved anew every 30.61 us:
        1,589,248 rows, within 3.75%
    …  67108864  …  3286.22 us
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from netsim.base.units import format_time
from netsim.extent.budget import Budget
from netsim.extent.engine_runs import Bench, ends_of
from netsim.extent.forms import Form, LoopSchedule, written_form
from netsim.extent.result import MethodInput, Offer, OneOperation, Refusal
from netsim.metrics.links import amounts_by, link_amounts, use_of
from netsim.schedule.partition import written_share

LEAST_ERROR_IN_INSTANTS = 4
"""The error that is stated at least, in widths of an instant."""
LARGE_ERROR = 0.2
"""Relative error above which instants are halved."""
MAX_NARROWING = 64
"""How many times narrower than at first instants may become."""
MAX_RUN_LOOPS = 128
"""Loops that a run has at most, for all but very few tasks."""
ERROR_BY_DOUBLE_WIDTH = 3.0
ERROR_BY_FOURFOLD_WIDTH = 1.5
"""How many times the difference to runs with instants twice and four times as wide is stated."""


def wide_instants(question: MethodInput) -> Offer | Refusal:
    """Offer to solve the rates of many grouped sends once for each instant."""
    form = written_form(question.form, question.budget)
    budget = question.budget
    thresholds = budget.thresholds
    if budget.is_exact or not any(plan.transfers is not None for plan in form.plans):
        return Refusal("rates are solved less often for grouped sends only")
    if written_share(form.extent.partition) < thresholds.min_written_share:
        return Refusal("one representative is simulated for each class of equal ranks")
    if form.topology.changes:
        return Refusal("links change while the operation runs")
    min_rows = thresholds.min_crowded_rows / len(form.task.gpus)
    schedules = form.loop_schedule
    if schedules.rows() < min_rows:
        return Refusal("its sends are few enough to solve their rates at every event")
    if (
        thresholds.max_rows_in_full < np.inf
        and schedules.has_loops_to_spare(budget)
        and schedules.rows(schedules.first) < min_rows
    ):
        return Refusal("fewer loops are tried first")
    return Offer(lambda bench, _: _in_wide_instants(bench, schedules, budget))


def loops_in_wide_instants(form: Form, budget: Budget, rows_per_loop: float) -> int | None:
    """An estimate of the number of loops that this method simulates; None if it refuses the form.

    Unlike the method itself, the estimate writes no schedule. `rows_per_loop`: an estimate of the
    rows of one loop of all channels.
    """
    thresholds = budget.thresholds
    schedules = form.loop_schedule
    has_sends = any(plan.transfers is not None for plan in form.plans)
    share = written_share(form.extent.partition)
    if budget.is_exact or not has_sends or share < thresholds.min_written_share:
        return None
    if form.topology.router.choices > 1 or form.topology.changes:
        return None
    min_rows = thresholds.min_crowded_rows / len(form.task.gpus)
    loops = min(schedules.loops, MAX_RUN_LOOPS)
    if min_rows > min(rows_per_loop * loops, thresholds.rows_of_wide_instants):
        return None
    loops_of_rows = int(thresholds.rows_of_wide_instants / rows_per_loop)
    return min(loops, max(schedules.least, loops_of_rows))


def _in_wide_instants(
    bench: Bench, schedules: LoopSchedule, budget: Budget
) -> OneOperation | Refusal:
    """The standalone operation from its first loops.

    Each further loop takes the time that the busiest link needs for it. Instants are halved as long
    as the error that they state is large.
    """
    thresholds = budget.thresholds
    loops_of_rows = thresholds.rows_of_wide_instants * schedules.least // len(schedules.shortest)
    loops = min(schedules.loops, max(schedules.least, loops_of_rows))
    program = bench.placed(schedules.schedule(loops))
    if program.paths.choices is not None:
        return Refusal("messages choose their paths by load")
    amounts = link_amounts(program)
    all_amounts = amounts
    further_loops = schedules.loops - loops
    if further_loops:
        less = amounts_by(program.links, bench.placed(schedules.write(loops - 1)))
        all_amounts = amounts + further_loops * (amounts - less)
    need = use_of(program, amounts, 1.0).utilisation.max()
    need_of_all = use_of(program, all_amounts, 1.0).utilisation.max()
    instant = thresholds.wide_instant * len(program) * need
    run = bench.standalone(program.schedule, replace(program, instant=instant))
    fourfold, double = (run.simulator.timeline(instant=n * instant).makespan for n in (4, 2))
    timeline = run.timeline
    narrowest = instant / MAX_NARROWING
    while True:
        seconds = timeline.makespan
        error = max(
            LEAST_ERROR_IN_INSTANTS * instant,
            ERROR_BY_DOUBLE_WIDTH * abs(double - seconds),
            ERROR_BY_FOURFOLD_WIDTH * abs(fourfold - seconds),
        )
        if error <= LARGE_ERROR * seconds or instant <= narrowest:
            break
        fourfold = double
        double = seconds
        instant /= 2
        timeline = run.simulator.timeline(instant=instant)
    ends = ends_of(program, timeline) + bench.launch.kernel
    run = replace(run, timeline=timeline, ends=ends)
    # If the first loops took longer than the busiest link needs, the further ones may do so again.
    error += max(0.0, seconds - need) * (need_of_all / need - 1)
    further_seconds = need_of_all - need
    all_seconds = seconds + need_of_all - need
    words = f"{loops} of {schedules.loops} loops, rates solved anew every {format_time(instant)}"
    return OneOperation(
        run,
        run.first[run.busy] + further_seconds,
        use_of(run.program, all_amounts, all_seconds),
        words,
        error / all_seconds,
        rows=len(program),
    )
