"""From one operation, or from when operations back to back are over, to the result of a task.

Shared by the methods for operations back to back. The definition of the time of a collective is in
`extent/back_to_back.py`.
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
    """How the times of the ranks of a form become its time."""
    back_to_back, gpus_per_process = form.task.back_to_back, form.task.gpus_per_process
    assert back_to_back is not None
    return Clock(back_to_back, run.taking_part // gpus_per_process)


def launch_of(question: MethodInput) -> Launch:
    """How operations begin: without the launch by the host, if ranks are all busy for much longer
    than that takes."""
    launch = question.form.task.launch
    shortest = float(question.operation.ends.min())
    is_hidden = launch.period < question.budget.thresholds.negligible_launch_fraction * shortest
    return replace(launch, host=0.0) if is_hidden and launch.together else launch


def first_launch_left_out(question: MethodInput) -> float:
    """Seconds by which all operations are later for the first launch, if `launch_of` leaves it
    out."""
    return question.form.task.launch.host - launch_of(question).host


def last_like_first(question: MethodInput) -> Floats:
    """When the last operation is over by rank, if each is over before the next one begins and all
    take as long as the first one."""
    operation, launch = question.operation, question.form.task.launch
    further_operations = question.form.iterations - 1
    return launch.host + further_operations * max(operation.seconds, launch.period) + operation.ends


def operation_counts(rows: int, question: MethodInput) -> list[int]:
    """How many operations back to back are simulated, one number after the other.

    The fewest, and those that are few enough rows, up to all of them. Empty if even the fewest are
    too many rows."""
    thresholds, iterations = question.budget.thresholds, question.form.iterations
    counts = {min(times, iterations) for times in (*thresholds.operation_counts, iterations)}
    fewest, *more = sorted(counts)
    if fewest * rows > thresholds.max_rows_of_fewest_operations:
        return []
    most_rows = thresholds.max_rows_of_few_operations
    return [fewest, *(times for times in more if times * rows <= most_rows)]


def last_of_all(follow: Follow, question: MethodInput, rows: int) -> Floats | None:
    """When the last operation is over by rank, if all are simulated, or if those that are repeat;
    else None."""
    iterations, launch = question.form.iterations, launch_of(question)
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
    """The time of operations back to back, the last of which is over at these times by rank."""
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
    """The result of a task whose operation takes `seconds`, and what was approximated for it."""
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
