"""From the finish times of one operation, or of operations back to back, to the result of a task.

The methods for operations back to back share these functions. `extent/back_to_back.py` defines the
time of a collective.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from netsim.extent.back_to_back import Clock, last_of_equal
from netsim.extent.engine_runs import StandaloneRun
from netsim.extent.forms import Form
from netsim.extent.result import Floats, Follow, MethodInput, Result
from netsim.schedule.repeat import Launch


def clock_of(form: Form, run: StandaloneRun) -> Clock:
    """The Clock for the ranks that take part in `run`."""
    back_to_back = form.task.back_to_back
    gpus_per_process = form.task.gpus_per_process
    assert back_to_back is not None
    return Clock(back_to_back, run.taking_part // gpus_per_process)


def launch_of(question: MethodInput) -> Launch:
    """How operations are launched. The time of the host is set to 0 if it is negligible.

    It is negligible if all ranks are launched at the same time, and if it is at most a small
    fraction of the finish time of the first rank.
    """
    launch = question.form.task.launch
    shortest = float(question.operation.ends.min())
    is_hidden = launch.period < question.budget.thresholds.negligible_launch_fraction * shortest
    return replace(launch, host=0.0) if is_hidden and launch.together else launch


def first_launch_left_out(question: MethodInput) -> float:
    """The seconds that the host needs for the first launch if `launch_of` omits them, otherwise 0.

    They must be added to the finish times of all operations.
    """
    return question.form.task.launch.host - launch_of(question).host


def last_like_first(question: MethodInput) -> Floats:
    """By rank, the finish time in seconds of the last operation, if each begins after the one
    before has ended on all ranks and takes as long as the first.
    """
    operation = question.operation
    launch = question.form.task.launch
    further_operations = question.form.iterations - 1
    return launch.host + further_operations * max(operation.seconds, launch.period) + operation.ends


def operation_counts(rows: int, question: MethodInput) -> list[int]:
    """The numbers of operations back to back to simulate, in increasing order.

    The smallest is always tried; larger ones, up to all operations, if they have few enough rows.
    Empty if even the smallest has too many. `rows` are those of one operation.
    """
    thresholds = question.budget.thresholds
    iterations = question.form.iterations
    counts = {min(times, iterations) for times in (*thresholds.operation_counts, iterations)}
    fewest, *more = sorted(counts)
    if fewest * rows > thresholds.max_rows_of_fewest_operations:
        return []
    most_rows = thresholds.max_rows_of_few_operations
    return [fewest, *(times for times in more if times * rows <= most_rows)]


def last_of_all(follow: Follow, question: MethodInput, rows: int) -> Floats | None:
    """By rank, the finish time in seconds of the last operation that is timed; None if it cannot be
    found.

    - `follow`: simulates operations back to back (see `Follow`). If it simulates fewer than are
      timed, the last one is extrapolated, which is possible if operations are periodic.
    - `rows`: rows of one operation.
    """
    iterations = question.form.iterations
    launch = launch_of(question)
    for times in operation_counts(rows, question):
        ends, is_apart = follow(launch, times)
        if times == iterations:
            return np.asarray(ends[-1])
        last = last_of_equal(ends, iterations, apart=is_apart)
        if last is not None:
            return last
    return None


def result_from_last(
    question: MethodInput, last: Floats, words: str = "", uncertainty: float = 0.0
) -> Result:
    """The result for operations back to back.

    - `last`: by rank, the finish time in seconds of the last operation.
    - `words`: what was approximated for the operations after the first, for the user; empty:
      nothing.
    - `uncertainty`: the relative error of that approximation.
    """
    clock = clock_of(question.form, question.operation.run)
    if len(last) != len(clock.process):  # of all ranks, not only of those that take part
        process = np.arange(len(last)) // question.form.task.gpus_per_process
        clock = replace(clock, process=process)
    return result_of(question, clock.seconds(last), words, uncertainty, clock.slowest(last))


def result_of(
    question: MethodInput,
    seconds: float,
    words: str = "",
    uncertainty: float = 0.0,
    slowest: float | None = None,
) -> Result:
    """The result of a task whose collective takes `seconds`.

    `words` and `uncertainty` are those of `result_from_last`; what was approximated for one
    operation is added. `slowest` is the time of the slowest process (default: `seconds`).
    """
    operation = question.operation
    return Result(
        seconds,
        operation.run.program,
        operation.run.timeline,
        operation.use,
        operation.run.engine,
        ", ".join(filter(None, (operation.approximation, words))),
        operation.uncertainty + uncertainty,
        operation.causes,
        slowest=seconds if slowest is None else slowest,
    )
