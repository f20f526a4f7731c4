"""Method for operations back to back of many loops: their overlap is extrapolated from fewer loops.

An operation begins before the last one has ended, on ranks that end early. If one operation was
extrapolated from fewer loops (`fewer_loops.py`), all operations with all loops would have too many
rows. So operations of 16, 32, 64, … loops are simulated back to back, and the seconds by which they
overlap are extrapolated.

How that is checked, and the error: each further loop is taken to add as much overlap as a loop adds
between the last two runs. The error is the overlap that the further loops would add at the larger
of the last two of these slopes. If the error is more than 0.75 % of the time, and all operations
have at most eight million rows, they are simulated with all loops (`operations.py`).

    $ netsim expect dgx-h100 sendrecv --nodes 16 --sizes 512M --verbose
    sendrecv of 512 MiB: overlap of fewer loops: taken: 16 of 4096 loops, the overlap of operations
        from 64 of 4096 loops: 410 rows, within 0.63%
    …  536870912  …  35648.2 us   (the same with --exact)
"""

from __future__ import annotations

import numpy as np

from netsim.extent.engine_runs import BackToBackRun, Bench, StandaloneRun
from netsim.extent.finish_times import (
    clock_of,
    first_launch_left_out,
    last_of_all,
    launch_of,
    result_of,
)
from netsim.extent.forms import LoopSchedule
from netsim.extent.result import Floats, MethodInput, Offer, Refusal, Result
from netsim.extent.steady_state import extrapolate_overlap


def overlap_of_fewer_loops(question: MethodInput) -> Offer | Refusal:
    """Offer to extrapolate the overlap of operations to all loops from runs with fewer loops."""
    operation = question.operation
    if operation.follow is not None or operation.fewer_loops is None:
        return Refusal("no runs with fewer loops are known")
    return Offer(lambda bench, _: _with_overlap(bench, question))


def _with_overlap(bench: Bench, question: MethodInput) -> Result | Refusal:
    """The result from the time of one operation, less the overlap that is extrapolated from runs
    with fewer loops; a refusal if these do not decide it.
    """
    runs = question.operation.fewer_loops
    assert runs is not None
    overlaps = dict[int, Floats]()
    schedules, loops, standalone = runs.schedules, runs.schedules.first, question.operation.seconds
    iterations = question.form.iterations
    launch = launch_of(question)

    def times_of(run: StandaloneRun) -> Floats:
        """The time in seconds of an operation with fewer loops back to back, and that of its
        slowest process.
        """
        back_to_back = BackToBackRun(run, launch, bench.engine)
        clock = clock_of(question.form, run)
        last = last_of_all(lambda _, times: back_to_back.ends(times), question, len(run.program))
        if last is None:
            last = back_to_back.ends(iterations)[0][-1]
        return np.array([clock.seconds(last), clock.slowest(last)])

    key = "time", launch, question.form.task.back_to_back
    while 2 * loops <= schedules.loops and not _is_enough(overlaps, schedules, question, loops):
        overlaps[loops] = float(runs.ends(loops).max()) - runs.answer(loops, key, times_of)
        loops *= 2
    if len(overlaps) < 2:
        return Refusal("there are too few runs with fewer loops")
    further, error = _further_overlap(overlaps, schedules.loops, 0)
    further_of_slowest, _ = _further_overlap(overlaps, schedules.loops, 1)
    first_launch = first_launch_left_out(question) / iterations
    least = launch.period + first_launch
    overlap, overlap_of_slowest = (float(value) for value in overlaps[loops // 2])
    seconds = max(standalone - overlap - further + first_launch, least)
    slowest = max(standalone - overlap_of_slowest - further_of_slowest + first_launch, least)
    thresholds = question.budget.thresholds
    all_rows = iterations * schedules.rows()
    if (
        error > thresholds.agreement * seconds
        and all_rows <= thresholds.max_rows_of_several_operations
    ):
        return Refusal("operations with fewer loops do not decide how those with all overlap")
    words = f"the overlap of operations from {loops // 2} of {schedules.loops} loops"
    return result_of(question, seconds, words, error / seconds, max(slowest, seconds))


def _further_overlap(overlaps: dict[int, Floats], loops: int, column: int) -> tuple[float, float]:
    """The seconds by which operations overlap more with all `loops` loops than with the most that
    were simulated, and the error of these seconds.

    - `overlaps`: by number of simulated loops, two overlaps in seconds: that of the collective
      (column 0) and that of the slowest process (column 1).
    - `column`: which of both is extrapolated.
    """
    return extrapolate_overlap(
        {size: float(value[column]) for size, value in overlaps.items()}, loops
    )


def _is_enough(
    overlaps: dict[int, Floats], schedules: LoopSchedule, question: MethodInput, loops: int
) -> bool:
    """Whether no further runs are needed to extrapolate the overlap, or the next one has too many
    rows.
    """
    if len(overlaps) < 2:
        return False
    error = _further_overlap(overlaps, schedules.loops, 0)[1]
    thresholds = question.budget.thresholds
    rows = question.form.iterations * schedules.rows(loops)
    agrees = len(overlaps) > 2 and error <= thresholds.agreement * question.operation.seconds
    return agrees or rows > thresholds.max_rows_of_several_operations
