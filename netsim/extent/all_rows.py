"""Method: every row of one operation is simulated; exact.

What it assumes: nothing. It is refused if the form has representatives (`representatives.py`
simulates those), if the rows do not fit into memory, or, in a budget that is not exact, if it is
worth trying fewer loops or hops first. If no method can time a task, all methods are asked again
without these limits.

Error: none beyond that of the form: heads of NVLSTree with equal amounts of data
(`Form.with_equal_heads`).

    $ netsim expect dgx-h100 broadcast --nodes 2 --sizes 64K --verbose
    broadcast of 64 KiB: all rows: taken: 289 rows, exact
    …  65536  …  20.86 us
"""

from __future__ import annotations

from functools import cache

import numpy as np

from netsim.extent import memory
from netsim.extent.budget import Budget
from netsim.extent.engine_runs import BackToBackRun, Bench, LoopRuns, StandaloneRun
from netsim.extent.forms import Form, LoopSchedule, written_form
from netsim.extent.result import Floats, Follow, MethodInput, Offer, OneOperation, Refusal
from netsim.metrics.links import link_use
from netsim.schedule.repeat import Launch

WITH_EQUAL_HEADS = "heads with equal amounts of data"
HAS_REPRESENTATIVES = Refusal("one representative is simulated for each class of equal ranks")


def all_rows(question: MethodInput) -> Offer | Refusal:
    """Offer to simulate every row, or refuse if there are too many rows or representatives are
    written.
    """
    if written_form(question.form, question.budget) is not question.form:
        return HAS_REPRESENTATIVES
    return offer_in_full(question.form, question.budget)


def offer_in_full(form: Form, budget: Budget) -> Offer | Refusal:
    """Offer to simulate all loops of a form, or refuse if that is too many rows."""
    schedules = form.loop_schedule
    thresholds = budget.thresholds
    most_ring_rows = thresholds.min_hop_fraction * thresholds.max_ring_rows
    if form.ring_rows > most_ring_rows:
        return Refusal(f"{form.ring_rows:.2g} rows of rings are more than {most_ring_rows:.2g}")
    if thresholds.max_rows_in_full < np.inf:
        has_loops_to_spare = schedules.has_loops_to_spare(budget)
        if has_loops_to_spare and schedules.rows() > thresholds.max_rows_in_full:
            rows = schedules.rows()
            most = thresholds.max_rows_in_full
            return Refusal(f"{rows:.2g} rows are more than {most:.2g}")
    elif reason := _misfit(form, budget):
        return Refusal(reason)
    return Offer(lambda bench, _: run_in_full(bench, schedules, budget), schedules)


def _misfit(form: Form, budget: Budget) -> str:
    """The reason why all rows of a form do not fit into memory, as a clause; empty if they fit."""
    ranks = form.collective.ranks
    if form.ring_rows or not form.loop_schedule.has_loops_to_spare(budget):
        rows = form.ring_rows
        return memory.misfit(rows, rows * memory.BYTES_A_ROW_OF_NCCL, ranks)
    rows = form.loop_schedule.rows()
    return memory.misfit(rows, rows * memory.BYTES_A_ROW, ranks)


def run_in_full(bench: Bench, schedules: LoopSchedule, budget: Budget) -> OneOperation:
    """The standalone operation from a simulation of all its loops."""
    runs = LoopRuns(bench, schedules)
    run = runs[schedules.loops]
    return OneOperation(
        run,
        run.first[run.busy],
        link_use(run.program, run.timeline),
        WITH_EQUAL_HEADS if schedules.uncertainty else "",
        schedules.uncertainty,
        rows=len(run.program),
        follow=_following(run, bench.engine),
        fewer_loops=runs if schedules.has_loops_to_spare(budget) else None,
    )


def _following(run: StandaloneRun, engine: str) -> Follow:
    """A function (launch, number of operations) that simulates operations back to back, each like
    that of `run`.

    It returns their finish times in seconds, by operation and rank, and whether each operation is
    over before the next one begins (see `Follow` in `extent/result.py`).
    """
    back_to_back = cache(lambda launch: BackToBackRun(run, launch, engine))

    def follow(launch: Launch, times: int) -> tuple[Floats, bool]:
        return back_to_back(launch).ends(times)

    return follow
