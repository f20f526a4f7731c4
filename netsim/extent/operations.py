"""Methods that simulate operations back to back: all of them, or some that are extrapolated to all.

`recurring_operations`: if all ranks end an operation by the same number of seconds later than the
one before, twice in a row, further operations do so too, and the finish time of the last one is
computed. If each operation ends before the next one begins, once is enough. To 1e-6.

`some_operations`: operations that are not periodic are all simulated, or some of them: 3, then 4 or
6, 8, 16, until the error is small enough or they have too many rows. The others are taken to last
as long as the mean of the later half of those that were simulated.

How that is checked, and the error (`back_to_back.error_of_estimate`): the mean of further
operations whose durations scatter like the simulated ones is within a t-interval. Besides,
operations get out of step late, by 2.9 % for three of them and less for more, or ranks that end
early get ahead (`python -m tests.bench.rounds 160 operations`). If even three have too many rows,
one operation is taken, with the fraction in which the busiest link idles as its error. If the error
would be over 10 %, more operations are simulated than otherwise: up to 50 million rows, a minute.

    $ netsim expect dgx-h100 all_reduce --nodes 16 --sizes 1G --set fold=off --verbose
    all_reduce of 1 GiB: some operations: taken: 4 of 20 operations: 254,080 rows, within 1.79%
    …  1073741824  …  5804.61 us   (with representatives, exactly: 5809.21 us)
"""

from __future__ import annotations

from dataclasses import replace

from netsim.extent.all_rows import run_in_full
from netsim.extent.back_to_back import (
    error_of_estimate,
    estimated_finish_time,
    half_range_of_durations,
)
from netsim.extent.engine_runs import Bench
from netsim.extent.finish_times import (
    clock_of,
    first_launch_left_out,
    last_of_all,
    launch_of,
    operation_counts,
    result_from_last,
    result_of,
)
from netsim.extent.one_operation import result_like_first
from netsim.extent.result import (
    MethodInput,
    Offer,
    Refusal,
    Result,
    Solver,
    can_run_all_operations,
)

TOO_MANY_ROWS = "more would be too many rows"
NOT_FOLLOWED = Refusal("operations in a row are not followed")


def recurring_operations(question: MethodInput) -> Offer | Refusal:
    """Offer to simulate operations until they are periodic: all ranks end each by the same time
    later.
    """
    follow = question.operation.follow
    if follow is None:
        return NOT_FOLLOWED

    def run(_: Bench, __: Solver) -> Result | Refusal:
        last = last_of_all(follow, question, question.operation.rows)
        if last is None:
            return Refusal("operations in a row do not repeat")
        return result_from_last(question, last + first_launch_left_out(question))

    return Offer(run)


def some_operations(question: MethodInput) -> Offer | Refusal:
    """Offer to simulate all operations that are timed, or the largest number with few
    enough rows.
    """
    operation = question.operation
    if operation.follow is None and operation.fewer_loops is None and question.budget.is_exact:
        return NOT_FOLLOWED
    return Offer(lambda bench, solver: _some_operations(bench, solver, question))


def _some_operations(bench: Bench, solver: Solver, question: MethodInput) -> Result:
    """The result from all operations, or from some of them whose mean duration is extrapolated."""
    operation = question.operation
    if operation.follow is None and operation.fewer_loops is not None:
        # Runs with fewer loops could not decide how operations overlap: all loops are simulated.
        in_full = run_in_full(bench, operation.fewer_loops.schedules, question.budget)
        return solver.back_to_back(replace(question, standalone=in_full))
    launch = launch_of(question)
    iterations = question.form.iterations
    thresholds = question.budget.thresholds
    counts = operation_counts(operation.rows, question)
    if operation.follow is None or not counts:
        # Back to back, operations take hardly longer than one alone, and no less than the busiest
        # link needs.
        return result_like_first(question, TOO_MANY_ROWS, operation.idle_fraction(launch))
    clock = clock_of(question.form, operation.run)
    times = counts[-1]
    ends = operation.follow(launch, times)[0]
    error = error_of_estimate(clock.over(ends), iterations, operation.spread)
    while times < iterations:
        times = _more_operations(question, times)
        tolerance = thresholds.max_error_of_large_runs
        if times * operation.rows <= thresholds.max_rows_of_few_operations:
            tolerance = thresholds.agreement
        most_rows = thresholds.max_rows_of_all_operations * (1.0 if times == iterations else 0.5)
        if error > thresholds.doubtful_error:
            most_rows = max(most_rows, thresholds.max_rows_of_doubtful_operations)
        if error <= tolerance or times * operation.rows > most_rows:
            break
        ends = operation.follow(launch, times)[0]
        error = error_of_estimate(clock.over(ends), iterations, operation.spread)
    # If one operation is inexact, a small difference may give each operation another duration.
    error_of_order = half_range_of_durations(clock.over(ends)) if operation.uncertainty else 0.0
    first = first_launch_left_out(question)
    if len(ends) == iterations:
        return result_from_last(question, ends[-1] + first, uncertainty=error_of_order)
    seconds = (estimated_finish_time(clock.over(ends), iterations) + first) / iterations
    slowest = (estimated_finish_time(ends.max(axis=1), iterations) + first) / iterations
    words = f"{len(ends)} of {iterations} operations"
    return result_of(question, seconds, words, error + error_of_order, slowest)


def _more_operations(question: MethodInput, times: int) -> int:
    """The number of operations to simulate after `times` of them were too few.

    After 3 operations that is 4 if 4 have many rows, otherwise 6. After 4 it is 6. After more, it
    is twice as many, or all of them if there are fewer than 2.5 times as many and all have few
    enough rows. It is never more than the operations that are timed.
    """
    rows = question.operation.rows
    thresholds = question.budget.thresholds
    iterations = question.form.iterations
    if times == 3:
        are_many_rows = 4 * rows > thresholds.max_rows_of_few_operations
        if are_many_rows and 4 * rows <= thresholds.max_rows_of_several_operations:
            return min(4, iterations)
    if times in (3, 4):
        return min(6, iterations)
    if 2.5 * times > iterations and can_run_all_operations(question.form, rows, question.budget):
        return iterations
    return min(2 * times, iterations)
