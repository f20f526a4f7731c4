"""Method for many loops over the buffers: a run with some of them is extrapolated to all.

A run with fewer loops equals the run with all loops until its last loops begin. If by then all
recent starts and ends of rows repeat those of some loops before, each by the same number of seconds
later, they will repeat for as long as loops follow, and the end of the run is the same, only later
(`steady_state.find_recurrence`). Runs of 16, 32, 64, … loops are tried, up to a quarter of all.

How that is checked: the rows of the last loops are compared with those of earlier loops, to 1e-6; a
second run that ends at another phase of the period must agree. Where rows cannot be separated by
loops, runs of nearly equal length are compared instead. The busiest link must not need longer for
all loops than the answer.

Loops that never quite recur may still add equal times. In tasks of over a million rows, if each
loop of the second half of a run takes what the busiest link needs for it (to 0.1 %), further loops
are taken to do so as well; else loops must add the same time between a quarter, a half and all of
the longest run, to 1 %.

Error: the relative difference of what was compared, times the fraction that is extrapolated.

    $ netsim expect dgx-h100 sendrecv --nodes 16 --sizes 512M --verbose
    sendrecv of 512 MiB: fewer loops: taken: 16 of 4096 loops: 410 rows, within 0.00%
    …  536870912  …  35648.2 us   (the same with --exact, of 69,770 rows)
"""

from __future__ import annotations

import numpy as np

from netsim.extent import steady_state
from netsim.extent.all_rows import WITH_EQUAL_HEADS
from netsim.extent.budget import Budget
from netsim.extent.engine_runs import Bench, LoopRuns
from netsim.extent.forms import written_form
from netsim.extent.result import MethodInput, Offer, OneOperation, Refusal, Solver
from netsim.metrics.links import needed


def fewer_loops(question: MethodInput) -> Offer | Refusal:
    """Offer to simulate some of the loops until they recur, and to extrapolate to all loops."""
    form = written_form(question.form, question.budget)
    budget = question.budget
    schedules = form.loop_schedule
    thresholds = budget.thresholds
    if budget.is_exact:
        return Refusal("extrapolating loops is not exact")
    if form.ring_rows > thresholds.max_ring_rows:
        return Refusal("a loop has too many rows")
    if not schedules.has_loops_to_spare(budget):
        loops = "1 loop is" if schedules.loops == 1 else f"{schedules.loops} loops are"
        return Refusal(f"{loops} too few to leave some out")
    if form.ring_rows or any(plan.transfers for plan in form.plans):
        # Hops of rings and rounds of sends may be extrapolated from this run in turn, and errors
        # would add up.
        budget = budget.with_thresholds(min_rows_for_pace=np.inf)

    def run(bench: Bench, _: Solver) -> OneOperation | Refusal:
        fewer_channels = None
        if schedules.rows() >= thresholds.min_rows_for_channels:
            fewer_channels = question.form.with_fewer_channels
        if fewer_channels is not None:
            operation = _extrapolate(LoopRuns(bench, fewer_channels.loop_schedule), budget)
            if isinstance(operation, Refusal):
                return operation
        return _extrapolate(LoopRuns(bench, schedules), budget)

    return Offer(run)


def _extrapolate(runs: LoopRuns, budget: Budget) -> OneOperation | Refusal:
    """The standalone operation from the shortest run that has reached a steady state, or a
    refusal.
    """
    schedules = runs.schedules
    thresholds = budget.thresholds
    size = schedules.first
    largest = thresholds.max_loop_fraction * schedules.loops
    is_pace_enough = schedules.rows() > thresholds.min_rows_for_pace
    while size <= largest and schedules.rows(size) <= thresholds.max_rows_of_loop_run:
        if runs.has_lanes(size):
            operation = _from_recurrence(runs, size)
        else:
            operation = _from_equal_increments(runs, size)
        if operation is None and is_pace_enough and size > schedules.first:
            ends = steady_state.extrapolate_rate(
                runs.ends, schedules.loops, size, steady_state.LATE, runs.need(size)
            )
            operation = _with_all_loops(runs, size, ends)
        if operation is not None:
            return operation
        size *= 2
    last = size // 2
    operation = None
    if is_pace_enough and last >= 4 * schedules.first:
        tolerance = thresholds.max_pace_error
        ends = steady_state.extrapolate_rate(
            runs.ends, schedules.loops, last, tolerance, runs.need(last)
        )
        ends = ends or steady_state.extrapolate_rate(runs.ends, schedules.loops, last, tolerance)
        operation = _with_all_loops(runs, last, ends)
    return operation or Refusal(f"no steady state in {last} of {schedules.loops} loops")


def _from_recurrence(runs: LoopRuns, size: int) -> OneOperation | None:
    """The standalone operation with all loops from a run with `size` loops, if loops recur in it.

    A few loops fewer are run as well if the number of loops that are left out is not a multiple of
    the period. None if loops do not recur in both runs.
    """
    all_loops = runs.schedules.loops
    recurrence = runs.recurs(size)
    last = size
    if recurrence is not None:
        last = size - (size - all_loops) % recurrence.loops
    if last != size:
        recurrence = runs.recurs(last)  # a verdict at another phase
    if recurrence is None or (all_loops - last) % recurrence.loops:
        return None
    ends = runs.ends(last)
    seconds = recurrence.seconds / recurrence.loops
    takes_part = ends > runs.bench.launch.kernel
    added = np.where(takes_part, (all_loops - last) * seconds, 0.0)
    return _with_all_loops(runs, last, steady_state.later_ends(ends, added, recurrence.spread))


def _from_equal_increments(runs: LoopRuns, size: int) -> OneOperation | None:
    """The standalone operation with all loops from several runs of about `size` loops, for
    schedules whose rows cannot be separated by loops. None if the loops do not add equal times.
    """
    schedules, least = runs.schedules, runs.schedules.least
    shortest = float(runs.ends(least).max())
    seconds_per_loop = (float(runs.ends(size).max()) - shortest) / (size - least)
    seconds_before_last = (size - steady_state.LONGEST_PERIOD - 1) * seconds_per_loop
    if seconds_before_last < shortest - (least - 1) * seconds_per_loop:
        return None  # loops that are all under way at once take the same time, but not for long
    for period in range(1, steady_state.LONGEST_PERIOD + 1):
        last = size - (size - schedules.loops) % period
        pairs = [(last - k - period, last - k) for k in range(period + 1)]
        ends = steady_state.extrapolate_increments(runs.ends, schedules.loops, pairs)
        if ends is not None:
            return _with_all_loops(runs, last, ends)
    return None


def _with_all_loops(
    runs: LoopRuns, last: int, extended: steady_state.ExtrapolatedEnds | None
) -> OneOperation | None:
    """The standalone operation with all loops.

    - `last`: the number of loops of the longest run.
    - `extended`: the finish times with all loops, extrapolated from runs; None if that failed.

    None if there are no finish times, or if a link needs longer for all loops than they say.
    """
    if extended is None:
        return None
    schedules = runs.schedules
    run = runs[last]
    by_rank = extended.ends.reshape(run.ends.shape).max(axis=0)[run.busy]
    use = runs.use_of_all(last, extended.seconds)
    if extended.seconds < needed(use, run.program.links)[0] * (1 - steady_state.AGREE):
        return None  # FIFOs are not full yet: from then on the links decide
    words = [f"{last} of {schedules.loops} loops", extended.words]
    if schedules.uncertainty:
        words.append(WITH_EQUAL_HEADS)
    return OneOperation(
        run,
        by_rank,
        use,
        ", ".join(filter(None, words)),
        extended.uncertainty + schedules.rounding + schedules.uncertainty,
        fewer_loops=runs,
    )
